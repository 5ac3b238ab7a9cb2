/* histogram.h - log-scale histogram of 64-bit values (latencies in ns): 64 linear steps per power of two,
 * so a reported quantile is at most 1.6 % above the true one. Fixed size, no allocation on record. */
#ifndef BASE_HISTOGRAM_H
#define BASE_HISTOGRAM_H

#include <stdint.h>

struct histogram;
struct histogram *histogram_create(void);
void histogram_destroy(struct histogram *histogram);
void histogram_record(struct histogram *histogram, uint64_t value);
void histogram_merge(struct histogram *into, const struct histogram *from);
void histogram_reset(struct histogram *histogram);
uint64_t histogram_count(const struct histogram *histogram);
double histogram_mean(const struct histogram *histogram);
uint64_t histogram_max(const struct histogram *histogram);
/* quantile in [0,1]; 0 when empty. */
uint64_t histogram_quantile(const struct histogram *histogram, double quantile);
/* Walks the non-empty steps in ascending order: upper bound and count of each. */
void histogram_each(const struct histogram *histogram,
                    void (*visit)(void *context, uint64_t upper, uint64_t count), void *context);

#endif
