/* zipf.h - Zipfian ranks: for theta in [0, 1) as YCSB draws them (Gray et al., SIGMOD 1994), from 1 on by
 * rejection-inversion (Hörmann and Derflinger, ACM TOMACS 1996), up to ZIPF_THETA_MAX; rank 0 is the hottest.
 * The scrambled form spreads the ranks over the items with a 64-bit hash (FNV-1a). */
#ifndef BASE_ZIPF_H
#define BASE_ZIPF_H

#include <stdint.h>
#include "base/random.h"

#define ZIPF_THETA_MAX 4.0

struct zipf {
    uint64_t items;
    double theta, alpha, zetan, eta, half_pow_theta;
    double first, last, accepted; /* theta from 1 on: integrals at both ends, and what need not be rejected */
};

/* items >= 1; theta 0 is uniform. Costs one pass over the items (zeta), so share it between threads. */
void zipf_init(struct zipf *zipf, uint64_t items, double theta);
uint64_t zipf_next(const struct zipf *zipf, struct random *random);
uint64_t zipf_next_scrambled(const struct zipf *zipf, struct random *random);
/* Probability of the given rank. */
double zipf_probability(const struct zipf *zipf, uint64_t rank);

#endif
