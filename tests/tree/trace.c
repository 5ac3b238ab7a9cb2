/* trace.c - see trace.h. */
#include "trace.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/epoch.h"
#include "base/random.h"
#include "base/zipf.h"
#include "format/leaf.h"
#include "tree/owned_cache.h"

#define FILL 36u /* entries of a leaf: as bulk load leaves them */
#define SCAN 100u

struct run {
    const struct trace *trace;
    struct owned_cache *cache;
    struct format_layout layout;
    struct epoch_domain *domain;
    struct epoch_slot *slot;
    struct zipf zipf;
    struct random random;
    uint64_t own, leaves, reads, inner_bytes;
    uint8_t *image;
};

static uint64_t draw(struct run *run)
{
    for (;;) { /* the second of four owners, each of which has one of the four hottest keys, and so on */
        uint64_t rank = run->trace->theta > 0 ? zipf_next(&run->zipf, &run->random)
                                              : random_below(&run->random, run->trace->keys);
        if (rank % 4 == 1)
            return random_mix(rank / 4 + 1) % run->own;
    }
}

static struct format_link leaf_of(uint64_t number)
{
    return (struct format_link){1024 * (1 + number), 7};
}

/* A leaf is wanted whole or in part: from the cache, or by a READ. True: from the cache. */
static bool leaf_read(struct run *run, uint64_t number, uint32_t length, uint64_t *stamp)
{
    struct format_link leaf = leaf_of(number);
    const struct owned_piece piece = {0, length, run->image};
    *stamp = owned_cache_stamp(run->cache, leaf.address);
    struct owned_busy busy;
    if (owned_cache_leaf(run->cache, run->slot, leaf.address, &piece, 1, &busy) == OWNED_FRAME_COPIED)
        return true;
    run->reads++;
    if (owned_cache_wants(run->cache))
        owned_cache_offer_leaf(run->cache, run->slot, leaf.address, run->image, *stamp);
    return false;
}

static void lookup(struct run *run, uint64_t number, struct format_key key, struct format_key value)
{
    uint8_t found[FORMAT_VALUE_MAX];
    uint32_t length, hits;
    struct format_link leaf = leaf_of(number / FILL);
    uint64_t stamp;
    enum owned_cache_found how =
        owned_cache_entry(run->cache, run->slot, key, found, &length, &leaf, 0, &hits);
    if (how == OWNED_CACHE_VALUE) {
        assert(length == value.length && !memcmp(found, value.bytes, length));
        return;
    }
    if (how == OWNED_CACHE_SHORTCUT)
        assert(leaf.address == leaf_of(number / FILL).address);
    bool cached = leaf_read(run, number / FILL, run->layout.bucket_bytes, &stamp);
    owned_cache_offer_entry(run->cache, run->slot, leaf, cached, stamp, key, value);
}

/* A change of one entry, which has a slot or gets one. */
static void change(struct run *run, uint64_t number, struct format_key key, struct format_key value)
{
    gaddr leaf = leaf_of(number / FILL).address;
    uint64_t stamp;
    leaf_read(run, number / FILL, run->layout.bucket_bytes, &stamp);
    struct fabric_command write = {.operation = FABRIC_WRITE,
                                   .length = run->layout.slot_bytes,
                                   .address = leaf + run->layout.slot_offset[0],
                                   .write = {.data = run->image}};
    owned_cache_write_begin(run->cache, run->slot, leaf, run->layout.slot_offset[0],
                            run->layout.slot_offset[0] + run->layout.slot_bytes);
    owned_cache_key_begin(run->cache, run->slot, key, NULL);
    owned_cache_write_end(run->cache, run->slot, leaf, 0, &write, 1);
    owned_cache_key_end(run->cache, run->slot, key, &value, NULL, NULL);
}

static void scan(struct run *run, uint64_t number)
{
    uint64_t stamp;
    for (uint64_t leaf = number / FILL; leaf <= (number + SCAN) / FILL && leaf < run->leaves; leaf++)
        leaf_read(run, leaf, run->layout.geometry.leaf_bytes, &stamp);
}

static void operation(struct run *run)
{
    const struct trace *trace = run->trace;
    uint64_t number = draw(run), dice = random_below(&run->random, 100);
    uint64_t name = __builtin_bswap64(number), content[FORMAT_VALUE_MAX / 8 + 1];
    struct format_key key = {(const uint8_t *)&name, 8};
    for (uint32_t i = 0; i < sizeof content / 8; i++)
        content[i] = number + i;
    struct format_key value = {(const uint8_t *)content, trace->value_bytes};
    if (dice < trace->update)
        change(run, number, key, value);
    else if (dice < trace->update + trace->insert)
        change(run, draw(run), (struct format_key){(const uint8_t *)"newcomer", 8}, value);
    else if (dice < trace->update + trace->insert + trace->scan)
        scan(run, number);
    else
        lookup(run, number, key, value);
}

void trace_run(const struct trace *trace, struct trace_result *result)
{
    struct run run = {.trace = trace, .own = trace->keys / 4};
    struct format_geometry geometry = {.key_bytes = 8, .value_bytes = (uint8_t)trace->value_bytes};
    struct error error;
    int status = format_geometry_complete(&geometry, 1024, &error);
    if (!status)
        status = format_layout_init(&run.layout, &geometry, &error);
    assert(!status);
    (void)status;
    run.leaves = run.own / FILL + 1;
    run.inner_bytes = (uint64_t)(trace->inner_per_leaf * (double)run.leaves);
    run.image = calloc(1, geometry.leaf_bytes);
    run.domain = epoch_domain_create();
    run.slot = epoch_slot_acquire(run.domain);
    random_seed(&run.random, 1);
    if (trace->theta > 0)
        zipf_init(&run.zipf, trace->keys, trace->theta);
    *result = (struct trace_result){.budget = (uint64_t)(trace->bytes_per_key * (double)trace->keys)};
    const struct owned_cache_settings settings = {result->budget, trace->policy, trace->admission, false};
    run.cache = owned_cache_create(&settings, &geometry);
    assert(run.cache);
    owned_cache_inner_bytes(run.cache, (int64_t)run.inner_bytes);
    uint64_t warm = (uint64_t)(trace->warm * (double)run.own);
    uint64_t all = warm + (uint64_t)(trace->measured * (double)run.own);
    for (uint64_t i = 0; i < all; i++) {
        if (i == warm)
            run.reads = 0;
        operation(&run);
        if (i % 64 && i + 1 < all)
            continue;
        struct tree_cache_stats now = {0};
        owned_cache_count(run.cache, i + 1 == all, &now);
        uint64_t used = run.inner_bytes + now.leaves.bytes + now.entries.bytes;
        result->used_most = used > result->used_most ? used : result->used_most;
        result->stats = now;
    }
    result->reads = (double)run.reads / (double)(all - warm);
    owned_cache_destroy(run.cache);
    epoch_slot_release(run.slot);
    epoch_domain_destroy(run.domain);
    format_layout_free(&run.layout);
    free(run.image);
}
