/* world_options.c - the defaults of a world, and what the environment changes in a test:
 * seeds and rounds (contract: world.h). */
#include "swarm/world.h"

#include <stdlib.h>
#include <time.h>

void world_options_default(struct world_options *options)
{
    *options =
        (struct world_options){.seed = 1,
                               .memory_nodes = 1,
                               .compute_nodes = 1,
                               .threads = 1,
                               .fibers = 1,
                               .pool_bytes = UINT64_C(64) << 20,
                               .chunk_bytes = UINT64_C(64) << 10,
                               .cache_bytes = UINT64_C(8) << 20,
                               .geometry = {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8}};
    sim_params_default(&options->params);
    sim_faults_none(&options->faults);
}

uint64_t world_seed(uint64_t given)
{
    const char *text = getenv("BANYAN_SEED"), *offset = getenv("BANYAN_SEED_OFFSET");
    if (text)
        return strtoull(text, NULL, 0);
    return given + (offset ? strtoull(offset, NULL, 0) : 0);
}

uint64_t world_fresh_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return world_seed(random_mix((uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec) >> 20);
}

unsigned world_rounds(unsigned given)
{
    const char *text = getenv("BANYAN_ROUNDS");
    double factor = text ? strtod(text, NULL) : 1.0;
    double rounds = given * factor;
    unsigned whole = (unsigned)rounds;
    return whole + (whole < rounds || !whole); /* rounded up: builds that share rounds do them all */
}
