#include "base/zipf.h"

#include <assert.h>
#include <math.h>

#define DIRECT 1000000u

/* Sum of 1/i^theta for i in 1..items: term by term at first, then by the Euler-Maclaurin formula, whose error
 * out there is far below a double's precision of the sum. */
static double zeta(uint64_t items, double theta)
{
    uint64_t direct = items < DIRECT ? items : DIRECT;
    double sum = 0;
    for (uint64_t i = direct; i >= 1; i--) /* small terms first */
        sum += pow((double)i, -theta);
    if (items <= direct)
        return sum;
    double a = (double)direct, b = (double)items;
    double integral = theta == 1 ? log(b / a) : (pow(b, 1 - theta) - pow(a, 1 - theta)) / (1 - theta);
    double ends = (pow(b, -theta) - pow(a, -theta)) / 2;
    double slopes = -theta * (pow(b, -theta - 1) - pow(a, -theta - 1)) / 12;
    return sum + integral + ends + slopes;
}

/* An integral of x^-theta, and its inverse. */
static double integral(double theta, double x)
{
    return theta == 1 ? log(x) : (pow(x, 1 - theta) - 1) / (1 - theta);
}

static double integral_inverse(double theta, double y)
{
    return theta == 1 ? exp(y) : pow(1 + y * (1 - theta), 1 / (1 - theta));
}

static uint64_t next_steep(const struct zipf *zipf, struct random *random)
{
    double theta = zipf->theta;
    for (;;) {
        double u = zipf->last + random_unit(random) * (zipf->first - zipf->last);
        double x = integral_inverse(theta, u), rank = floor(x + 0.5);
        rank = rank < 1 ? 1 : rank > (double)zipf->items ? (double)zipf->items : rank;
        if (rank - x <= zipf->accepted || u >= integral(theta, rank + 0.5) - pow(rank, -theta))
            return (uint64_t)rank - 1;
    }
}

void zipf_init(struct zipf *zipf, uint64_t items, double theta)
{
    assert(items >= 1 && theta >= 0 && theta <= ZIPF_THETA_MAX);
    *zipf = (struct zipf){.items = items, .theta = theta, .zetan = zeta(items, theta)};
    if (theta >= 1) {
        zipf->first = integral(theta, 1.5) - 1;
        zipf->last = integral(theta, (double)items + 0.5);
        zipf->accepted = 2 - integral_inverse(theta, integral(theta, 2.5) - pow(2, -theta));
        return;
    }
    zipf->alpha = 1 / (1 - theta);
    zipf->half_pow_theta = 1 + pow(0.5, theta);
    zipf->eta =
        items < 2 ? 0 : (1 - pow(2.0 / (double)items, 1 - theta)) / (1 - zipf->half_pow_theta / zipf->zetan);
}

uint64_t zipf_next(const struct zipf *zipf, struct random *random)
{
    if (zipf->theta >= 1)
        return next_steep(zipf, random);
    double unit = random_unit(random), scaled = unit * zipf->zetan;
    if (scaled < 1)
        return 0;
    if (scaled < zipf->half_pow_theta)
        return zipf->items > 1 ? 1 : 0;
    double rank = (double)zipf->items * pow(zipf->eta * unit - zipf->eta + 1, zipf->alpha);
    return rank >= (double)zipf->items ? zipf->items - 1 : (uint64_t)rank;
}

uint64_t zipf_next_scrambled(const struct zipf *zipf, struct random *random)
{
    uint64_t rank = zipf_next(zipf, random), hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < 8; i++) {
        hash = (hash ^ (rank & 0xff)) * UINT64_C(0x100000001b3);
        rank >>= 8;
    }
    return hash % zipf->items;
}

double zipf_probability(const struct zipf *zipf, uint64_t rank)
{
    return pow((double)(rank + 1), -zipf->theta) / zipf->zetan;
}
