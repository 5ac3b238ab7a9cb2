#include "base/zipf.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

/* ---- sums ---- */

/* So many terms are added one by one; behind them the Euler-Maclaurin formula's terms fall fast. */
#define DIRECT 128u
#define TERMS  6u

/* An integral of x^-theta from 1 to e^logarithm, exact near theta 1 and near 0 too. */
static double integral_to(double theta, double logarithm)
{
    double slope = 1 - theta;
    return slope == 0 ? logarithm : expm1(slope * logarithm) / slope;
}

/* The same to x, and its inverse. */
static double integral(double theta, double x)
{
    return integral_to(theta, log(x));
}

static double integral_inverse(double theta, double y)
{
    double slope = 1 - theta;
    return slope == 0 ? exp(y) : exp(log1p(y * slope) / slope);
}

double zipf_sum(uint64_t first, uint64_t last, double theta)
{
    /* B(2j) / (2j)! */
    static const double weights[TERMS] = {1.0 / 12,       -1.0 / 720,     1.0 / 30240,
                                          -1.0 / 1209600, 1.0 / 47900160, -691.0 / 1307674368000.0};
    uint64_t start = first < DIRECT ? DIRECT : first;
    double head = 0;
    for (uint64_t i = last < start ? last : start; i > first; i--) /* small terms first */
        head += pow((double)i, -theta);
    if (last <= start)
        return head;
    double a = (double)start, b = (double)last;
    double fa = pow(a, -theta), fb = pow(b, -theta);
    double sum = a * fa * integral_to(theta, log1p((b - a) / a)) + (fb - fa) / 2;
    /* The derivatives of odd order, each from the one before: -theta x^(-theta-1), and so on. */
    double da = -theta * fa / a, db = -theta * fb / b;
    for (unsigned j = 0; j < TERMS; j++) {
        sum += weights[j] * (db - da);
        double order = theta + 2 * j + 1;
        da *= order * (order + 1) / (a * a);
        db *= order * (order + 1) / (b * b);
    }
    return head + sum;
}

/* ---- rejection-inversion ---- */

static void inversion_init(struct zipf *zipf, uint64_t ranks)
{
    double theta = zipf->theta;
    zipf->first = integral(theta, 1.5) - 1;
    zipf->last = integral(theta, (double)ranks + 0.5);
    zipf->accepted = 2 - integral_inverse(theta, integral(theta, 2.5) - pow(2, -theta));
}

static uint64_t next_inverted(const struct zipf *zipf, uint64_t ranks, struct random *random)
{
    double theta = zipf->theta;
    for (;;) {
        double u = zipf->last + random_unit(random) * (zipf->first - zipf->last);
        double x = integral_inverse(theta, u), rank = floor(x + 0.5);
        rank = rank < 1 ? 1 : rank > (double)ranks ? (double)ranks : rank;
        if (rank - x <= zipf->accepted || u >= integral(theta, rank + 0.5) - pow(rank, -theta))
            return (uint64_t)rank - 1;
    }
}

/* ---- matched shares ---- */

/* Whether each of the items behind the first `own` gets no more than the last of those. */
static bool falls(const struct zipf *zipf, uint64_t own)
{
    double rest = zipf_sum(own, zipf->of, zipf->theta);
    return rest <= pow((double)own, -zipf->theta) * (double)(zipf->items - own);
}

/* Less and less probable as `own` grows: what one rank leaves to the rest falls faster than the rest does. */
static uint64_t own_ranks(const struct zipf *zipf)
{
    if (zipf->of == zipf->items)
        return zipf->items;
    uint64_t low = 0, high = zipf->items; /* falls at low, or low is 0; not at high */
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (falls(zipf, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

static uint64_t next_matched(const struct zipf *zipf, struct random *random)
{
    if (zipf->own == zipf->items || random_unit(random) < zipf->own_share)
        return next_inverted(zipf, zipf->own, random);
    return zipf->own + random_below(random, zipf->items - zipf->own);
}

void zipf_init_matched(struct zipf *zipf, uint64_t items, double theta, uint64_t of)
{
    assert(items >= 1 && theta >= 0 && theta <= ZIPF_THETA_MAX && items <= of && of <= ZIPF_OF_MAX);
    *zipf = (struct zipf){.items = items, .theta = theta, .of = of, .zetan = zipf_sum(0, of, theta)};
    zipf->own = own_ranks(zipf);
    zipf->own_share = zipf_sum(0, zipf->own, theta) / zipf->zetan;
    inversion_init(zipf, zipf->own ? zipf->own : 1);
}

/* ---- plain ---- */

void zipf_init(struct zipf *zipf, uint64_t items, double theta)
{
    assert(items >= 1 && theta >= 0 && theta <= ZIPF_THETA_MAX);
    *zipf = (struct zipf){.items = items, .theta = theta, .zetan = zipf_sum(0, items, theta)};
    if (theta >= 1) {
        inversion_init(zipf, items);
        return;
    }
    zipf->alpha = 1 / (1 - theta);
    zipf->half_pow_theta = 1 + pow(0.5, theta);
    zipf->eta =
        items < 2 ? 0 : (1 - pow(2.0 / (double)items, 1 - theta)) / (1 - zipf->half_pow_theta / zipf->zetan);
}

uint64_t zipf_next(const struct zipf *zipf, struct random *random)
{
    if (zipf->of)
        return next_matched(zipf, random);
    if (zipf->theta >= 1)
        return next_inverted(zipf, zipf->items, random);
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
    if (zipf->of && rank >= zipf->own)
        return (1 - zipf->own_share) / (double)(zipf->items - zipf->own);
    return pow((double)(rank + 1), -zipf->theta) / zipf->zetan;
}
