/*
 * workloads.h - the operations of a benchmark: named mixes, and the stream of operations that they make.
 *
 * Three papers' workloads by name, or a mix given by hand. A workload_source is made once per run and shared
 * by all threads; each thread (or fiber) draws from a workload_generator of its own. Drawing costs some tens
 * of nanoseconds and never fails.
 *
 * KEYS. The loaded keys are ranks 0 .. loaded-1, and stand on two of each three slots of a line; the third
 * slots are free for new keys, so that these fall everywhere between the loaded ones. A key number is slot <<
 * 16 | generation, written big-endian into the key's first eight bytes, so that memcmp order is the order of
 * the slots. upsert (Sherman's "insert") draws from all slots: at the beginning two of three draws meet an
 * existing key insert draws new keys: each is given out once, in an order that is a permutation of the free
 * slots all others draw loaded keys, in Sherman's workloads keys of all slots Popularity is by rank; a
 * bijective permutation takes ranks to slots, so hot keys are spread over the whole line and no two ranks
 * fall on one key. With skew_of the hottest ranks have the shares that they would have among so many (zipf.h,
 * MATCHED).
 */
#ifndef BENCH_WORKLOADS_H
#define BENCH_WORKLOADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "base/random.h"
#include "base/zipf.h"

enum workload_kind {
    WORKLOAD_LOOKUP,
    WORKLOAD_UPSERT,
    WORKLOAD_INSERT,
    WORKLOAD_UPDATE,
    WORKLOAD_DELETE,
    WORKLOAD_SCAN,
    WORKLOAD_MODIFY,       /* reads the value and writes a new one in one operation */
    WORKLOAD_REVERSE_SCAN, /* from its key downwards */
    WORKLOAD_KINDS
};
extern const char *const workload_kind_names[WORKLOAD_KINDS];

#define WORKLOAD_NAME_BYTES 96

struct workload {
    char name[WORKLOAD_NAME_BYTES];
    double share[WORKLOAD_KINDS]; /* sum 1 */
    bool all_slots;               /* lookups and scans draw from all slots too (Sherman) */
    bool latest;                  /* lookups prefer the keys inserted last (YCSB D) */
    bool upsert_uniform;          /* upserts draw uniformly, whatever the distribution of the rest */
    bool scan_uniform;            /* a scan's length is uniform in 1 .. scan length (YCSB E) */
    double working_set;           /* uniform draws are of this share of the loaded keys alone; 0: of all */
    bool scattered; /* which lie anywhere; else they are the first of the line, or of the part */
    bool ascending; /* new keys are given out in their order */
};

/* The named workload ("sherman:write-only", "write-only", "ycsb:a", ...). BANYAN_EINVAL with the list of
 * names. */
int workload_find(struct workload *workload, const char *name, struct error *error);
/* "lookup=95,insert=5": shares of any sum. */
int workload_parse_mix(struct workload *workload, const char *mix, struct error *error);
/* For help texts: the i-th named workload and one line about it; NULL after the last. */
const char *workload_name(size_t i, const char **about);
/* Whether it makes new keys or changes values. */
bool workload_writes(const struct workload *workload);
static inline bool workload_is_scan(enum workload_kind kind)
{
    return kind == WORKLOAD_SCAN || kind == WORKLOAD_REVERSE_SCAN;
}

enum workload_distribution { WORKLOAD_UNIFORM, WORKLOAD_ZIPFIAN, WORKLOAD_SCRAMBLED, WORKLOAD_DISTRIBUTIONS };
/* NULL-terminated: "uniform", "zipfian", "scrambled". */
extern const char *const workload_distribution_names[WORKLOAD_DISTRIBUTIONS + 1];

/* ---- permutations ---- */

/* A bijection of 0 .. items-1 onto itself (four Feistel rounds, walking the cycle back into the range). */
struct permutation {
    uint64_t items, seed;
    unsigned half_bits;
};
void permutation_init(struct permutation *permutation, uint64_t items, uint64_t seed);
uint64_t permutation_apply(const struct permutation *permutation, uint64_t index);

/* ---- the stream of operations ---- */

struct workload_source {
    const struct workload *workload;
    enum workload_distribution distribution;
    uint64_t loaded;     /* keys loaded before the run */
    uint64_t slots;      /* the line: 1.5 * loaded, rounded up to whole threes */
    uint64_t drawn;      /* popularity ranks: slots or loaded */
    uint64_t free_slots; /* slots/3 (an empty index: as many as the run will insert) */
    uint32_t scan_length;
    struct zipf zipf; /* over drawn; unused when uniform */
    struct permutation ranks, fresh;
    uint64_t inserted; /* new keys given out so far; atomic, relaxed */
};

/* The skew of zipfian and scrambled: theta, and as among how many loaded keys (0: those of the run). */
#define WORKLOAD_SKEW_OF_MAX (UINT64_C(1) << 52)
struct workload_skew {
    double theta;
    uint64_t of;
};
/* Whether such a skew is possible: theta from 0 to ZIPF_THETA_MAX, keys enough in `of`, and not so
 * many that the hottest would be colder than the average of those drawn. BANYAN_EINVAL. */
int workload_skew_check(const struct workload_skew *skew, const struct workload *workload,
                        enum workload_distribution distribution, uint64_t loaded, uint64_t expected_inserts,
                        struct error *error);
/* Whether some keys are drawn more often than others. */
bool workload_is_skewed(const struct workload *workload, enum workload_distribution distribution);
/* expected_inserts sizes the line of an index that starts empty. Some hundred microseconds. */
int workload_source_init(struct workload_source *source, const struct workload *workload,
                         enum workload_distribution distribution, const struct workload_skew *skew,
                         uint64_t loaded, uint64_t expected_inserts, uint32_t scan_length, uint64_t seed,
                         struct error *error);
/*
 * Parts: the line of slots is cut into parts of equal length, that is, the key space into equal ranges, each
 * the range of one compute node. workload_part_begin: the least key number of the part (part 0: 0);
 * workload_part_of: the part that a number lies in. There must be no more parts than source->slots / 3.
 */
uint64_t workload_part_begin(const struct workload_source *source, uint32_t part, uint32_t parts);
uint32_t workload_part_of(const struct workload_source *source, uint64_t number, uint32_t parts);
struct workload_part {
    uint64_t begin, end; /* slots */
    struct permutation fresh;
    uint64_t inserted; /* new keys of it given out so far; atomic, relaxed */
};
void workload_part_init(struct workload_part *own, const struct workload_source *source, uint32_t part,
                        uint32_t parts);

/* A key number is slot << WORKLOAD_GENERATION_BITS | generation. */
#define WORKLOAD_GENERATION_BITS 16
/* The key number of a loaded rank, ascending with it. */
uint64_t workload_loaded_number(uint64_t rank);
/* Whether a key number is one of the loaded keys. */
bool workload_number_loaded(const struct workload_source *source, uint64_t number);

struct workload_generator {
    struct workload_source *source;
    struct workload_part *part; /* NULL: the whole line */
    struct random random;
};
struct workload_operation {
    enum workload_kind kind;
    uint32_t scan_length;
    uint64_t number; /* key number */
    uint64_t salt;   /* makes values differ */
};
void workload_generator_init(struct workload_generator *generator, struct workload_source *source,
                             uint64_t seed);
/* From here on it draws keys of the part alone: each with the share that it has among the part's, as if the
 * others' draws were given to other generators. Costs as many draws as there are parts, on average. New keys
 * are shared with the other generators of the same struct workload_part. */
void workload_generator_keep_to(struct workload_generator *generator, struct workload_part *part);
void workload_next(struct workload_generator *generator, struct workload_operation *operation);

/* Writes the key of exactly length bytes, length >= 8. */
void workload_key(uint64_t number, uint8_t *key, size_t length);
uint64_t workload_key_number(const uint8_t *key);
/* A value proves which key it belongs to: its first up to four bytes are a hash of the key number, the rest
 * is salt. */
void workload_value(uint64_t number, uint64_t salt, uint8_t *value, size_t length);
bool workload_value_matches(uint64_t number, const uint8_t *value, size_t length);

#endif
