/* workloads.c - see workloads.h. */
#include "bench/workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const workload_kind_names[WORKLOAD_KINDS] = {"lookup", "upsert", "insert", "update",
                                                         "delete", "scan",   "modify", "reverse-scan"};
const char *const workload_distribution_names[WORKLOAD_DISTRIBUTIONS + 1] = {"uniform", "zipfian",
                                                                             "scrambled", NULL};

struct named_workload {
    const char *name, *mix, *about;
    bool all_slots, latest, scan_uniform, upsert_uniform;
    double working_set;
    bool scattered, ascending;
};

/* The first whose name without its prefix fits wins, so Sherman's stand before DEX's, and those before
 * Dinomo's. */
static const struct named_workload named[] = {
    {"sherman:write-only", "upsert=100", "100% insert, of which about 2/3 meet an existing key", true, false,
     false, false, 0, false, false},
    {"sherman:write-intensive", "upsert=50,lookup=50", "50% insert, 50% lookup", true, false, false, false, 0,
     false, false},
    {"sherman:read-intensive", "upsert=5,lookup=95", "5% insert, 95% lookup", true, false, false, false, 0,
     false, false},
    {"sherman:range-only", "scan=100", "100% range query", true, false, false, false, 0, false, false},
    {"sherman:range-write", "upsert=50,scan=50", "50% insert, 50% range query", true, false, false, false, 0,
     false, false},
    {"sherman:range-write-uniform", "upsert=50,scan=50",
     "50% insert of keys drawn uniformly whatever the distribution, 50% range query", true, false, false,
     true, 0, false, false},
    {"dex:read-only", "lookup=100", "100% lookup", false, false, false, false, 0, false, false},
    {"dex:read-intensive", "lookup=95,update=5", "95% lookup, 5% update", false, false, false, false, 0,
     false, false},
    {"dex:write-intensive", "lookup=50,update=50", "50% lookup, 50% update", false, false, false, false, 0,
     false, false},
    {"dex:read-intensive-2", "upsert=5,lookup=95", "95% lookup, 5% insert as in insert-intensive", true,
     false, false, false, 0, false, false},
    {"dex:insert-intensive", "upsert=50,lookup=50",
     "50% insert, of which about 2/3 meet an existing key, 50% lookup", true, false, false, false, 0, false,
     false},
    {"dex:scan-intensive", "upsert=5,scan=95", "5% insert as in insert-intensive, 95% scan", true, false,
     false, false, 0, false, false},
    {"dex:insert-only", "insert=100", "100% insert of new keys", false, false, false, false, 0, false, false},
    {"banyan:insert-ascending", "insert=100", "100% insert of new keys in ascending order", false, false,
     false, false, 0, false, true},
    {"banyan:range-reverse", "reverse-scan=100", "100% range query in descending order", false, false, false,
     false, 0, false, false},
    {"dinomo:read-only", "lookup=100", "100% lookup", false, false, false, false, 0, false, false},
    {"dinomo:read-mostly-update", "lookup=95,update=5", "95% lookup, 5% update", false, false, false, false,
     0, false, false},
    {"dinomo:read-mostly-insert", "lookup=95,insert=5", "95% lookup, 5% insert of new keys", false, false,
     false, false, 0, false, false},
    {"dinomo:write-heavy-update", "lookup=50,update=50", "50% lookup, 50% update", false, false, false, false,
     0, false, false},
    {"dinomo:write-heavy-insert", "lookup=50,insert=50", "50% lookup, 50% insert of new keys", false, false,
     false, false, 0, false, false},
    {"dinomo:write-only", "upsert=100", "100% upsert of existing keys", false, false, false, false, 0, false,
     false},
    {"dinomo:working-set", "lookup=100", "100% lookup of a range with 5% of the keys (uniform)", false, false,
     false, false, 0.05, false, false},
    {"dinomo:scattered-set", "lookup=100", "100% lookup of 5% of the keys, anywhere (uniform)", false, false,
     false, false, 0.05, true, false},
    {"ycsb:a", "lookup=50,update=50", "50% lookup, 50% update", false, false, false, false, 0, false, false},
    {"ycsb:b", "lookup=95,update=5", "95% lookup, 5% update", false, false, false, false, 0, false, false},
    {"ycsb:c", "lookup=100", "100% lookup", false, false, false, false, 0, false, false},
    {"ycsb:d", "lookup=95,insert=5", "95% lookup of the latest keys, 5% insert", false, true, false, false, 0,
     false, false},
    {"ycsb:e", "scan=95,insert=5", "95% scan of 1 to scan-length entries, 5% insert", false, false, true,
     false, 0, false, false},
    {"ycsb:f", "lookup=50,modify=50", "50% lookup, 50% read-modify-write", false, false, false, false, 0,
     false, false},
};
#define NAMED_COUNT (sizeof named / sizeof named[0])

const char *workload_name(size_t i, const char **about)
{
    if (i >= NAMED_COUNT)
        return NULL;
    if (about)
        *about = named[i].about;
    return named[i].name;
}

static int add_share(struct workload *workload, const char *item, struct error *error)
{
    const char *equals = strchr(item, '=');
    if (!equals)
        return error_set(error, BANYAN_EINVAL, "--mix: '%s' is not of the form operation=share", item);
    size_t length = (size_t)(equals - item);
    char *end = NULL;
    double share = strtod(equals + 1, &end);
    if (end == equals + 1 || *end || !(share >= 0) || share > 1e9)
        return error_set(error, BANYAN_EINVAL, "--mix: '%s' is not a share (a number, 0 or more)",
                         equals + 1);
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++)
        if (strlen(workload_kind_names[kind]) == length &&
            !strncmp(workload_kind_names[kind], item, length)) {
            workload->share[kind] += share;
            return 0;
        }
    return error_set(
        error, BANYAN_EINVAL,
        "--mix: unknown operation '%.*s'; use lookup, upsert, insert, update, delete, scan, reverse-scan "
        "or modify",
        (int)length, item);
}

int workload_parse_mix(struct workload *workload, const char *mix, struct error *error)
{
    char text[256];
    if (strlen(mix) >= sizeof text)
        return error_set(error, BANYAN_EINVAL, "--mix: the text is too long");
    memset(workload, 0, sizeof *workload);
    snprintf(workload->name, sizeof workload->name, "%.*s", (int)sizeof workload->name - 1, mix);
    snprintf(text, sizeof text, "%s", mix);
    char *rest = text;
    for (char *item = strsep(&rest, ","); item; item = strsep(&rest, ",")) {
        int status = add_share(workload, item, error);
        if (status)
            return status;
    }
    double sum = 0;
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++)
        sum += workload->share[kind];
    if (!(sum > 0))
        return error_set(error, BANYAN_EINVAL, "--mix: the shares sum to nothing");
    for (int kind = 0; kind < WORKLOAD_KINDS; kind++)
        workload->share[kind] /= sum;
    return 0;
}

int workload_find(struct workload *workload, const char *name, struct error *error)
{
    for (size_t i = 0; i < NAMED_COUNT; i++) {
        const char *bare = strchr(named[i].name, ':') + 1;
        /* ycsb's letters are known by their full names only */
        bool bare_fits = strlen(bare) > 1 && !strcmp(name, bare);
        if (strcmp(name, named[i].name) && !bare_fits)
            continue;
        int status = workload_parse_mix(workload, named[i].mix, error);
        snprintf(workload->name, sizeof workload->name, "%s", named[i].name);
        workload->all_slots = named[i].all_slots;
        workload->latest = named[i].latest;
        workload->scan_uniform = named[i].scan_uniform;
        workload->upsert_uniform = named[i].upsert_uniform;
        workload->working_set = named[i].working_set;
        workload->scattered = named[i].scattered;
        workload->ascending = named[i].ascending;
        return status;
    }
    return error_set(error, BANYAN_EINVAL,
                     "unknown workload '%.40s'; 'banyan bench --list' shows the names, --mix takes your own",
                     name);
}

bool workload_writes(const struct workload *workload)
{
    const double *share = workload->share;
    return share[WORKLOAD_LOOKUP] + share[WORKLOAD_SCAN] + share[WORKLOAD_REVERSE_SCAN] < 1.0 - 1e-12;
}

/* ---- permutations ---- */

void permutation_init(struct permutation *permutation, uint64_t items, uint64_t seed)
{
    unsigned bits = 2;
    while (bits < 62 && (UINT64_C(1) << bits) < items)
        bits += 2;
    *permutation = (struct permutation){.items = items, .seed = seed, .half_bits = bits / 2};
}

static uint64_t permutation_rounds(const struct permutation *permutation, uint64_t value)
{
    uint64_t mask = (UINT64_C(1) << permutation->half_bits) - 1;
    uint64_t left = value >> permutation->half_bits, right = value & mask;
    for (uint64_t round = 0; round < 4; round++) {
        uint64_t next = left ^ (random_mix(right + (round << 40) + permutation->seed) & mask);
        left = right;
        right = next;
    }
    return left << permutation->half_bits | right;
}

uint64_t permutation_apply(const struct permutation *permutation, uint64_t index)
{
    /* The rounds permute a power of four that is less than four times the range: few steps lead back into
     * it. */
    do
        index = permutation_rounds(permutation, index);
    while (index >= permutation->items);
    return index;
}

/* ---- keys and values ---- */

uint64_t workload_loaded_number(uint64_t rank)
{
    return (rank / 2 * 3 + rank % 2) << WORKLOAD_GENERATION_BITS;
}

bool workload_number_loaded(const struct workload_source *source, uint64_t number)
{
    uint64_t slot = number >> WORKLOAD_GENERATION_BITS;
    return (number & ((1u << WORKLOAD_GENERATION_BITS) - 1)) == 0 && slot % 3 != 2 &&
           slot / 3 * 2 + slot % 3 < source->loaded;
}

void workload_key(uint64_t number, uint8_t *key, size_t length)
{
    for (size_t i = 0; i < 8; i++)
        key[i] = (uint8_t)(number >> (56 - 8 * i));
    for (size_t i = 8; i < length; i++)
        key[i] = (uint8_t)('a' + (number + i) % 26);
}

uint64_t workload_key_number(const uint8_t *key)
{
    uint64_t number = 0;
    for (size_t i = 0; i < 8; i++)
        number = number << 8 | key[i];
    return number;
}

#define PROOF_BYTES 4

void workload_value(uint64_t number, uint64_t salt, uint8_t *value, size_t length)
{
    uint64_t proof = random_mix(number + 1);
    for (size_t i = 0; i < length; i++)
        value[i] = i < PROOF_BYTES ? (uint8_t)(proof >> (8 * i)) : (uint8_t)(salt >> (8 * (i % 8)));
}

bool workload_value_matches(uint64_t number, const uint8_t *value, size_t length)
{
    uint64_t proof = random_mix(number + 1);
    for (size_t i = 0; i < length && i < PROOF_BYTES; i++)
        if (value[i] != (uint8_t)(proof >> (8 * i)))
            return false;
    return true;
}
