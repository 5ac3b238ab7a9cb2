/* zipf.h - Zipfian ranks: for theta in [0, 1) as YCSB draws them (Gray et al., SIGMOD 1994), from 1 on by
 * rejection-inversion (Hörmann and Derflinger, ACM TOMACS 1996), up to ZIPF_THETA_MAX; rank 0 is the hottest.
 * The scrambled form spreads the ranks over the items with a 64-bit hash (FNV-1a).
 *
 * MATCHED. Few items may stand for many: the hottest of them have exactly the shares that they would have
 * among `of` items, and all others have the same share, so that together they have the rest. The bound
 * between the two, `own`, is the largest for which none of the others gets more than the last before it; 0
 * where even the hottest would get less than the others' average, so that nothing is matched. */
#ifndef BASE_ZIPF_H
#define BASE_ZIPF_H

#include <stdint.h>
#include "base/random.h"

#define ZIPF_THETA_MAX 4.0
/* Ranks beyond are not told apart by doubles. */
#define ZIPF_OF_MAX (UINT64_C(1) << 53)

struct zipf {
    uint64_t items;
    double theta, alpha, zetan, eta, half_pow_theta;
    double first, last, accepted; /* by rejection-inversion: integrals at both ends, and what need not be
                                     rejected */
    uint64_t of, own;             /* matched; of 0: not. Ranks below `own` have their share among `of` */
    double own_share;             /* of all ranks below `own` */
};

/* Sum of i^-theta over first < i <= last, by the Euler-Maclaurin formula: some hundred terms at most.
 * Relative error below 1e-13. */
double zipf_sum(uint64_t first, uint64_t last, double theta);

/* items >= 1; theta 0 is uniform. Costs some microseconds. */
void zipf_init(struct zipf *zipf, uint64_t items, double theta);
/* items <= of <= ZIPF_OF_MAX. Costs some hundred microseconds. */
void zipf_init_matched(struct zipf *zipf, uint64_t items, double theta, uint64_t of);
uint64_t zipf_next(const struct zipf *zipf, struct random *random);
uint64_t zipf_next_scrambled(const struct zipf *zipf, struct random *random);
/* Probability of the given rank. */
double zipf_probability(const struct zipf *zipf, uint64_t rank);

#endif
