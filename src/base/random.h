/* random.h - seeded random numbers (xoshiro256**, seeded through splitmix64). Not for secrets. */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

struct random {
    uint64_t state[4];
};

void random_seed(struct random *random, uint64_t seed);
uint64_t random_next(struct random *random);
/* Uniform in [0, bound), without modulo bias; bound must not be 0. */
uint64_t random_below(struct random *random, uint64_t bound);
/* Uniform in [0, 1). */
double random_unit(struct random *random);
bool random_chance(struct random *random, double probability);
/* A 64-bit finalizer (bijective): spreads the bits of small integers. */
uint64_t random_mix(uint64_t value);
/* A number from the system, which no other process draws again. For names that must differ between processes,
 * never for decisions of a run, which could not be repeated. */
uint64_t random_entropy(void);

#endif
