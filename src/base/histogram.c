#include "base/histogram.h"

#include <stdlib.h>
#include <string.h>

#define STEP_BITS 6
#define STEPS     (1u << STEP_BITS)
#define BUCKETS   ((64 - STEP_BITS + 1) * STEPS)

struct histogram {
    uint64_t count, maximum;
    double sum;
    uint64_t buckets[BUCKETS];
};

static unsigned bucket_of(uint64_t value)
{
    if (value < STEPS)
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - STEP_BITS;
    return (shift + 1) * STEPS + (unsigned)((value >> shift) - STEPS);
}

static uint64_t bucket_upper(unsigned bucket)
{
    if (bucket < STEPS)
        return bucket;
    unsigned shift = bucket / STEPS - 1;
    uint64_t base = (uint64_t)(bucket % STEPS + STEPS) << shift;
    return base + ((UINT64_C(1) << shift) - 1);
}

struct histogram *histogram_create(void)
{
    return calloc(1, sizeof(struct histogram));
}

void histogram_destroy(struct histogram *histogram)
{
    free(histogram);
}

void histogram_record(struct histogram *histogram, uint64_t value)
{
    histogram->count++;
    histogram->sum += (double)value;
    if (value > histogram->maximum)
        histogram->maximum = value;
    histogram->buckets[bucket_of(value)]++;
}

void histogram_merge(struct histogram *into, const struct histogram *from)
{
    into->count += from->count;
    into->sum += from->sum;
    if (from->maximum > into->maximum)
        into->maximum = from->maximum;
    for (unsigned i = 0; i < BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

void histogram_reset(struct histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
}

uint64_t histogram_count(const struct histogram *histogram)
{
    return histogram->count;
}

double histogram_mean(const struct histogram *histogram)
{
    return histogram->count ? histogram->sum / (double)histogram->count : 0;
}

uint64_t histogram_max(const struct histogram *histogram)
{
    return histogram->maximum;
}

uint64_t histogram_quantile(const struct histogram *histogram, double quantile)
{
    if (!histogram->count)
        return 0;
    double exact = quantile * (double)histogram->count;
    uint64_t wanted = exact < 1 ? 1 : (uint64_t)exact, seen = 0;
    if ((double)wanted < exact)
        wanted++;
    if (wanted > histogram->count)
        wanted = histogram->count;
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram->buckets[i];
        if (seen >= wanted) {
            uint64_t upper = bucket_upper(i);
            return upper < histogram->maximum ? upper : histogram->maximum;
        }
    }
    return histogram->maximum;
}

void histogram_each(const struct histogram *histogram, void (*visit)(void *, uint64_t, uint64_t),
                    void *context)
{
    for (unsigned i = 0; i < BUCKETS; i++)
        if (histogram->buckets[i])
            visit(context, bucket_upper(i), histogram->buckets[i]);
}
