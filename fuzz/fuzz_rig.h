/*
 * fuzz_rig.h - one compute node on memory nodes of this process, with an index or a store, for one thread:
 * the smallest cluster, made and taken down in less than a millisecond. Its fabric may be made to lie.
 */
#ifndef FUZZ_RIG_H
#define FUZZ_RIG_H

#include "base/log.h"
#include "fabric/local.h"
#include "fuzz/fuzz.h"
#include "memory/memory.h"
#include "store/store.h"

#define RIG_MEMORY_MAX 4u

struct rig_options {
    unsigned memory_nodes;
    uint64_t pool_bytes, chunk_bytes;
    const char *preset;
    uint64_t cache_bytes;
    struct format_geometry geometry;
    bool records; /* a store */
};

struct rig {
    struct memory_node *memory[RIG_MEMORY_MAX];
    unsigned memory_nodes;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
    struct store *store;
    struct store_session *store_session;
    uint64_t now_ms; /* the store's clock */
};

static inline void rig_options_default(struct rig_options *options)
{
    *options =
        (struct rig_options){.memory_nodes = 1,
                             .pool_bytes = UINT64_C(4) << 20,
                             .chunk_bytes = UINT64_C(64) << 10,
                             .preset = "banyan",
                             .cache_bytes = UINT64_C(1) << 20,
                             .geometry = {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8}};
}

static inline uint64_t rig_now(void *context)
{
    return ((const struct rig *)context)->now_ms;
}

static inline void rig_must(int status, const struct error *error, const char *what)
{
    fuzz_must(!status, "rig: %s: %s", what, error->text);
}

/* Another compute node with its worker and session, on the same memory; no index is opened. */
static inline void rig_join(struct rig *rig, const struct rig_options *options, uint16_t compute_id)
{
    const struct fabric_target *targets[RIG_MEMORY_MAX];
    struct tree_switches switches;
    struct error error = {0};
    for (unsigned i = 0; i < rig->memory_nodes; i++)
        targets[i] = memory_node_target(rig->memory[i]);
    rig->fabric = fabric_local_create(targets, (uint16_t)rig->memory_nodes, compute_id, &error);
    rig_must(!rig->fabric, &error, "fabric");
    rig_must(tree_switches_preset(&switches, options->preset, &error), &error, "switches");
    switches.cache_bytes = options->cache_bytes;
    rig_must(tree_compute_create(&rig->compute, rig->fabric, &switches, &error), &error, "compute node");
    rig_must(pool_worker_create(&rig->worker, tree_compute_pool(rig->compute), &error), &error, "worker");
    rig_must(tree_session_create(&rig->session, rig->compute, rig->worker, &error), &error, "session");
}

/* The index as a store, with the rig's clock. */
static inline void rig_wrap(struct rig *rig)
{
    struct error error = {0};
    rig_must(store_wrap(&rig->store, rig->tree, &error), &error, "store");
    store_set_clock(rig->store, rig_now, rig);
    rig_must(store_session_create(&rig->store_session, rig->store, rig->session, &error), &error, "session");
}

static inline void rig_create(struct rig *rig, const struct rig_options *options)
{
    *rig = (struct rig){.memory_nodes = options->memory_nodes, .now_ms = 1000};
    struct error error = {0};
    log_set_level(LOG_ERROR);
    for (unsigned i = 0; i < options->memory_nodes; i++) {
        const struct memory_options one = {.node = (uint16_t)i,
                                           .pool_bytes = options->pool_bytes,
                                           .chunk_bytes = options->chunk_bytes,
                                           .lock_bytes = 8192};
        rig_must(memory_node_create(&rig->memory[i], &one, &error), &error, "memory node");
    }
    rig_join(rig, options, 1);
    rig_must(tree_format(rig->session), tree_session_error(rig->session), "format");
    rig_must(tree_create(rig->session, "test", &options->geometry, &rig->tree),
             tree_session_error(rig->session), "index");
    if (options->records)
        rig_wrap(rig);
}

/* All but the memory; with `abandon`, nothing of it is used for that. */
static inline void rig_leave(struct rig *rig, bool abandon)
{
    if (rig->store_session)
        store_session_destroy(rig->store_session);
    tree_session_destroy(rig->session);
    if (rig->store)
        store_close(rig->store);
    else if (rig->tree)
        tree_close(rig->tree);
    if (abandon)
        pool_worker_abandon(rig->worker);
    else
        pool_worker_destroy(rig->worker);
    tree_compute_destroy(rig->compute);
    fabric_close(rig->fabric);
    rig->store_session = NULL;
    rig->store = NULL;
    rig->tree = NULL;
}

static inline void rig_destroy(struct rig *rig, bool abandon)
{
    rig_leave(rig, abandon);
    for (unsigned i = 0; i < rig->memory_nodes; i++)
        memory_node_destroy(rig->memory[i]);
}

/* ---- every block has exactly one owner ---- */

struct rig_blocks {
    struct rig_block {
        gaddr address;
        uint32_t bytes;
    } * items;
    size_t count, capacity;
};

static inline void rig_blocks_add(void *context, gaddr address, uint32_t bytes)
{
    struct rig_blocks *blocks = context;
    if (blocks->count == blocks->capacity) {
        blocks->capacity = blocks->capacity ? 2 * blocks->capacity : 256;
        blocks->items = realloc(blocks->items, blocks->capacity * sizeof *blocks->items);
        fuzz_must(blocks->items, "no memory");
    }
    blocks->items[blocks->count++] = (struct rig_block){address, bytes};
}

static inline int rig_blocks_order(const void *left, const void *right)
{
    const struct rig_block *a = left, *b = right;
    return (a->address > b->address) - (a->address < b->address);
}

/* `owned`: what a check visited. Frees its items. */
static inline void rig_account(struct rig *rig, struct rig_blocks *owned)
{
    struct rig_blocks used = {0};
    pool_worker_each_free(rig->worker, rig_blocks_add, owned);
    for (unsigned i = 0; i < rig->memory_nodes; i++)
        memory_node_each_used(rig->memory[i], rig_blocks_add, &used);
    fuzz_must(owned->count == used.count, "accounting: %zu blocks handed out, %zu have an owner", used.count,
              owned->count);
    if (used.count) {
        qsort(owned->items, owned->count, sizeof *owned->items, rig_blocks_order);
        qsort(used.items, used.count, sizeof *used.items, rig_blocks_order);
    }
    for (size_t i = 0; i < used.count; i++)
        fuzz_must(owned->items[i].address == used.items[i].address,
                  "accounting: %llx is owned, %llx handed out", (unsigned long long)owned->items[i].address,
                  (unsigned long long)used.items[i].address);
    free(used.items);
    free(owned->items);
}

#endif
