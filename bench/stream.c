/* stream.c - which operations a benchmark draws, and with which keys; see workloads.h. */
#include "base/atomic.h"
#include "bench/workloads.h"

static uint64_t line_slots(uint64_t loaded, uint64_t expected_inserts)
{
    return ((loaded ? loaded : expected_inserts * 2 + 2) + 1) / 2 * 3;
}

/* Popularity ranks: an index that starts empty has none yet. */
static uint64_t drawn_ranks(const struct workload *workload, uint64_t loaded, uint64_t slots)
{
    return workload->all_slots ? slots : loaded ? loaded : 1;
}

bool workload_is_skewed(const struct workload *workload, enum workload_distribution distribution)
{
    return distribution != WORKLOAD_UNIFORM || workload->latest;
}

int workload_skew_check(const struct workload_skew *skew, const struct workload *workload,
                        enum workload_distribution distribution, uint64_t loaded, uint64_t expected_inserts,
                        struct error *error)
{
    if (!(skew->theta >= 0) || skew->theta > ZIPF_THETA_MAX)
        return error_set(error, BANYAN_EINVAL, "--theta: %g is not in 0 to 4", skew->theta);
    if (!skew->of || !workload_is_skewed(workload, distribution))
        return 0;
    if (skew->theta <= 0)
        return error_set(error, BANYAN_EINVAL,
                         "--skew-of: with --theta 0 all keys have the same share, so there is no skew to "
                         "match; give a greater --theta, or --skew-of 0");
    if (skew->of > WORKLOAD_SKEW_OF_MAX)
        return error_set(error, BANYAN_EINVAL,
                         "--skew-of: the shares of more than 2^52 (%llu) keys cannot be told apart",
                         (unsigned long long)WORKLOAD_SKEW_OF_MAX);
    uint64_t drawn = drawn_ranks(workload, loaded, line_slots(loaded, expected_inserts));
    uint64_t of = drawn_ranks(workload, skew->of, line_slots(skew->of, 0));
    if (of < drawn || skew->of < loaded)
        return error_set(error, BANYAN_EINVAL,
                         "--skew-of: %llu is less than the %llu keys of this run; give at least so many, or "
                         "--skew-of 0",
                         (unsigned long long)skew->of,
                         (unsigned long long)(loaded                ? loaded
                                              : workload->all_slots ? drawn / 3 * 2
                                                                    : drawn));
    struct zipf zipf;
    zipf_init_matched(&zipf, drawn, skew->theta, of);
    if (drawn > 1 && !zipf.own)
        return error_set(error, BANYAN_EINVAL,
                         "--skew-of: at --theta %g the hottest of %llu keys has a smaller share than each of "
                         "the %llu drawn must have; give fewer, more --keys, or a greater --theta",
                         skew->theta, (unsigned long long)skew->of, (unsigned long long)drawn);
    return 0;
}

static int check_source(const struct workload *workload, uint64_t loaded, struct error *error)
{
    if (loaded > UINT64_C(1) << 40)
        return error_set(error, BANYAN_EINVAL, "--keys: at most 2^40 keys can be loaded");
    if (!loaded && workload->share[WORKLOAD_INSERT] <= 0)
        return error_set(
            error, BANYAN_EINVAL,
            "--keys: workload '%s' needs loaded keys; only workloads that insert can start with none",
            workload->name);
    return 0;
}

int workload_source_init(struct workload_source *source, const struct workload *workload,
                         enum workload_distribution distribution, const struct workload_skew *skew,
                         uint64_t loaded, uint64_t expected_inserts, uint32_t scan_length, uint64_t seed,
                         struct error *error)
{
    int status = check_source(workload, loaded, error);
    if (!status)
        status = workload_skew_check(skew, workload, distribution, loaded, expected_inserts, error);
    if (status)
        return status;
    *source = (struct workload_source){.workload = workload, .distribution = distribution, .loaded = loaded};
    source->slots = line_slots(loaded, expected_inserts);
    source->free_slots = source->slots / 3;
    source->scan_length = scan_length;
    source->drawn = drawn_ranks(workload, loaded, source->slots);
    permutation_init(&source->ranks, source->drawn, random_mix(seed ^ 0x72616e6b));
    permutation_init(&source->fresh, source->free_slots, random_mix(seed ^ 0x66726573));
    if (!workload_is_skewed(workload, distribution))
        return 0;
    if (skew->of)
        zipf_init_matched(&source->zipf, source->drawn, skew->theta,
                          drawn_ranks(workload, skew->of, line_slots(skew->of, 0)));
    else
        zipf_init(&source->zipf, source->drawn, skew->theta);
    return 0;
}

void workload_generator_init(struct workload_generator *generator, struct workload_source *source,
                             uint64_t seed)
{
    *generator = (struct workload_generator){.source = source};
    random_seed(&generator->random, seed);
}

/* ---- parts of the key space ---- */

/* The slot that the part begins with; parts begin where a three of slots does. */
static uint64_t part_begin(const struct workload_source *source, uint32_t part, uint32_t parts)
{
    return (uint64_t)((unsigned __int128)(source->slots / 3) * part / parts) * 3;
}

uint64_t workload_part_begin(const struct workload_source *source, uint32_t part, uint32_t parts)
{
    return part_begin(source, part, parts) << WORKLOAD_GENERATION_BITS;
}

uint32_t workload_part_of(const struct workload_source *source, uint64_t number, uint32_t parts)
{
    uint64_t three = (number >> WORKLOAD_GENERATION_BITS) / 3;
    uint32_t part = (uint32_t)((unsigned __int128)three * parts / (source->slots / 3));
    /* Both divisions round down, so that this is one too few at most. */
    return part + 1 < parts && three * 3 >= part_begin(source, part + 1, parts) ? part + 1 : part;
}

void workload_part_init(struct workload_part *own, const struct workload_source *source, uint32_t part,
                        uint32_t parts)
{
    *own = (struct workload_part){.begin = part_begin(source, part, parts),
                                  .end = part_begin(source, part + 1, parts)};
    permutation_init(&own->fresh, (own->end - own->begin) / 3, random_mix(source->fresh.seed + part));
}

void workload_generator_keep_to(struct workload_generator *generator, struct workload_part *part)
{
    generator->part = part;
}

/* ---- draws ---- */

/* New keys: free slots in an order of their own, or ascending. When every one has been given out, the next
 * generation starts: keys just after those of the last. */
static uint64_t fresh_number(const struct permutation *fresh, bool ascending, uint64_t begin, uint64_t index)
{
    const uint64_t generation = index / fresh->items, at = index % fresh->items;
    const uint64_t slot = begin + (ascending ? at : permutation_apply(fresh, at)) * 3 + 2;
    return slot << WORKLOAD_GENERATION_BITS | (generation & ((1u << WORKLOAD_GENERATION_BITS) - 1));
}

static uint64_t fresh_of(const struct workload_generator *generator, uint64_t index)
{
    const struct workload_part *part = generator->part;
    const bool ascending = generator->source->workload->ascending;
    return part ? fresh_number(&part->fresh, ascending, part->begin, index)
                : fresh_number(&generator->source->fresh, ascending, 0, index);
}

/* How many new keys were given out; of the generator's part, if it keeps to one. */
static uint64_t *inserted_of(struct workload_generator *generator)
{
    return generator->part ? &generator->part->inserted : &generator->source->inserted;
}

static uint64_t slot_of_rank(const struct workload_source *source, uint64_t rank)
{
    return source->workload->all_slots ? rank : workload_loaded_number(rank) >> WORKLOAD_GENERATION_BITS;
}

/* How many of so many keys are drawn. */
static uint64_t working_set(const struct workload *workload, uint64_t keys)
{
    uint64_t share = (uint64_t)((double)keys * workload->working_set);
    return workload->working_set <= 0 ? keys : share ? share : 1;
}

/* Each slot of the generator's part with the same share. */
static uint64_t uniform_slot(struct workload_generator *generator)
{
    const struct workload_source *source = generator->source;
    const struct workload_part *part = generator->part;
    if (!part)
        return slot_of_rank(source,
                            random_below(&generator->random, working_set(source->workload, source->drawn)));
    uint64_t begin = part->begin, end = part->end;
    if (!source->workload->all_slots) { /* ranks of loaded keys: two in each three slots */
        begin = begin / 3 * 2;
        end = end / 3 * 2 < source->loaded ? end / 3 * 2 : source->loaded;
    }
    return slot_of_rank(source,
                        begin + random_below(&generator->random, working_set(source->workload, end - begin)));
}

/* Of a working set that lies anywhere. */
static uint64_t scattered_slot(struct workload_generator *generator)
{
    const struct workload_source *source = generator->source;
    uint64_t rank = random_below(&generator->random, working_set(source->workload, source->drawn));
    return slot_of_rank(source, permutation_apply(&source->ranks, rank));
}

static uint64_t skewed_slot(struct workload_generator *generator)
{
    struct workload_source *source = generator->source;
    uint64_t rank;
    if (source->distribution == WORKLOAD_ZIPFIAN)
        rank = permutation_apply(&source->ranks, zipf_next(&source->zipf, &generator->random));
    else
        rank = zipf_next_scrambled(&source->zipf, &generator->random);
    return slot_of_rank(source, rank);
}

static bool in_part(const struct workload_part *part, uint64_t slot)
{
    return !part || (slot >= part->begin && slot < part->end);
}

/* Draws that fall into other parts are drawn again, so often. A part that holds none of the hottest keys of
 * an extreme skew gets uniform draws then. */
#define DRAWS_MAX 10000

static uint64_t drawn_slot(struct workload_generator *generator)
{
    const bool uniform = generator->source->distribution == WORKLOAD_UNIFORM;
    if (uniform && !generator->source->workload->scattered)
        return uniform_slot(generator);
    for (unsigned draws = 0; draws < DRAWS_MAX; draws++) {
        uint64_t slot = uniform ? scattered_slot(generator) : skewed_slot(generator);
        if (in_part(generator->part, slot))
            return slot;
    }
    return uniform_slot(generator);
}

/* The youngest keys are the hottest: new ones first, then the loaded ones in a fixed order. */
static uint64_t latest_number(struct workload_generator *generator)
{
    struct workload_source *source = generator->source;
    /* Relaxed: a number only; whether the key is in the index already is for the index to say. */
    uint64_t inserted = atomic_load_relaxed(inserted_of(generator));
    for (unsigned draws = 0; draws < DRAWS_MAX; draws++) {
        uint64_t age = zipf_next(&source->zipf, &generator->random);
        if (age < inserted)
            return fresh_of(generator, inserted - 1 - age);
        if (!source->loaded)
            return fresh_of(generator, 0);
        uint64_t rank = permutation_apply(&source->ranks, (age - inserted) % source->drawn);
        uint64_t number = workload_loaded_number(rank);
        if (in_part(generator->part, number >> WORKLOAD_GENERATION_BITS))
            return number;
    }
    return uniform_slot(generator) << WORKLOAD_GENERATION_BITS;
}

static enum workload_kind drawn_kind(struct workload_generator *generator)
{
    double at = random_unit(&generator->random);
    int last = 0;
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++) {
        double share = generator->source->workload->share[kind];
        if (share <= 0)
            continue;
        last = kind;
        if (at < share)
            break;
        at -= share;
    }
    return (enum workload_kind)last;
}

void workload_next(struct workload_generator *generator, struct workload_operation *operation)
{
    struct workload_source *source = generator->source;
    operation->kind = drawn_kind(generator);
    operation->salt = random_next(&generator->random);
    operation->scan_length = source->scan_length;
    if (operation->kind == WORKLOAD_INSERT) {
        /* Relaxed: the counter orders nothing else, it only gives each key out once. */
        operation->number = fresh_of(generator, atomic_add_relaxed(inserted_of(generator), UINT64_C(1)));
        return;
    }
    if (source->workload->scan_uniform && source->scan_length)
        operation->scan_length = 1 + (uint32_t)random_below(&generator->random, source->scan_length);
    if (source->workload->latest)
        operation->number = latest_number(generator);
    else if (!source->loaded)
        operation->number = fresh_of(
            generator, random_below(&generator->random, atomic_load_relaxed(inserted_of(generator)) + 1));
    else if (source->workload->upsert_uniform && operation->kind == WORKLOAD_UPSERT)
        operation->number = uniform_slot(generator) << WORKLOAD_GENERATION_BITS;
    else
        operation->number = drawn_slot(generator) << WORKLOAD_GENERATION_BITS;
}
