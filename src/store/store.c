/*
 * store.c - stores: opening and closing one, its clock, its counters. Costs what opening the index costs.
 */
#include "store/release.h"
#include "store/session.h"

#include <stdlib.h>

#include "base/clock.h"

void store_geometry(struct format_geometry *geometry)
{
    *geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                         .inline_key_bytes = 16,
                                         .value_bytes = STORE_INLINE_MAX + 1,
                                         .value_variable = true,
                                         .content = FORMAT_CONTENT_STORE};
}

static uint64_t wall_clock(void *context)
{
    return clock_wall_ms();
}

int store_wrap(struct store **out, struct tree *tree, struct error *error)
{
    const struct format_geometry *geometry = tree_geometry(tree);
    *out = NULL;
    if (geometry->content != FORMAT_CONTENT_STORE)
        return error_set(error, BANYAN_EINVAL, "the index holds plain values, it is not a store");
    if (!geometry->value_variable || geometry->value_bytes < FORMAT_REFERENCE_BYTES)
        return error_set(error, BANYAN_EINVAL, "a store's index has variable values of at least %u bytes",
                         FORMAT_REFERENCE_BYTES);
    struct store *store = calloc(1, sizeof *store);
    if (!store)
        return error_set(error, BANYAN_ENOMEM, "no memory for a store");
    store->tree = tree;
    store->slot_bytes = geometry->value_bytes;
    store->now = wall_clock;
    store->memory_max = UINT64_MAX;
    store_cuts_init(store);
    tree_set_values(tree, &store_values, store);
    tree_set_served(tree, &store_served, store);
    *out = store;
    return 0;
}

static int tree_open_or_create(struct tree_session *session, const char *name, bool create,
                               struct tree **tree)
{
    struct format_geometry geometry;
    int status = tree_open(session, name, tree);
    if (status != BANYAN_ENOTFOUND || !create)
        return status;
    store_geometry(&geometry);
    geometry.leaf_kind = FORMAT_LEAF_DENSE;
    status = tree_create(session, name, &geometry, tree);
    return status == BANYAN_EEXIST ? tree_open(session, name, tree) : status;
}

int store_open(struct store **store, struct tree_session *session, const char *name, bool create)
{
    struct tree *tree;
    struct error error = {0};
    *store = NULL;
    int status = tree_open_or_create(session, name, create, &tree);
    if (status)
        return status;
    status = store_wrap(store, tree, &error);
    if (!status)
        return 0;
    tree_close(tree);
    return pool_fail(tree_session_pool(session), status, "index %s: %s", name, error.text);
}

void store_close(struct store *store)
{
    if (!store)
        return;
    store_cuts_end(store);
    tree_close(store->tree);
    free(store);
}

void store_set_memory_max(struct store *store, uint64_t bytes)
{
    atomic_store_relaxed(&store->memory_max, bytes);
}

struct tree *store_tree(const struct store *store)
{
    return store->tree;
}

void store_set_clock(struct store *store, uint64_t (*now)(void *context), void *context)
{
    store->now = now;
    store->clock_context = context;
}

void store_stats(const struct store *store, struct store_stats *stats)
{
    *stats = (struct store_stats){
        .records_written = atomic_load_relaxed(&store->stats.records_written),
        .records_freed = atomic_load_relaxed(&store->stats.records_freed),
        .bytes_written = atomic_load_relaxed(&store->stats.bytes_written),
        .bytes_freed = atomic_load_relaxed(&store->stats.bytes_freed),
        .record_retries = atomic_load_relaxed(&store->stats.record_retries),
        .expired = atomic_load_relaxed(&store->stats.expired),
        .memory = atomic_load_relaxed(&store->stats.memory),
    };
}
