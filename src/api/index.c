/*
 * index.c - indexes: creating, opening, closing, dropping, listing. Called by programs, on the session's
 * thread; closing on any. Costs a walk over the pool's catalogue, dropping a walk over the index.
 */
#include "api/index.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/records.h"

int api_check(struct banyan_session *session, const struct banyan_index *index)
{
    if (!session)
        return BANYAN_EINVAL;
    if (!index)
        return error_set(&session->error, BANYAN_EINVAL, "the index is NULL");
    if (index->banyan != session->banyan)
        return error_set(&session->error, BANYAN_EINVAL, "index %s is of another pool", index->name);
    return BANYAN_OK;
}

static int check_name(struct banyan_session *session, const char *name)
{
    if (!session)
        return BANYAN_EINVAL;
    if (!name)
        return error_set(&session->error, BANYAN_EINVAL, "the index's name is NULL");
    size_t length = strnlen(name, BANYAN_NAME_MAX + 1u);
    if (length == 0 || length > BANYAN_NAME_MAX)
        return error_set(&session->error, BANYAN_EINVAL, "an index's name has 1 to %u bytes",
                         BANYAN_NAME_MAX);
    if (owner_is_map(name))
        return error_set(&session->error, BANYAN_EINVAL,
                         "index %s is the map of the cluster's ranges, which programs cannot use", name);
    return BANYAN_OK;
}

static int check_place(struct banyan_session *session, const char *name, struct banyan_index **index)
{
    if (index)
        *index = NULL;
    int status = check_name(session, name);
    if (!status && !index)
        status = error_set(&session->error, BANYAN_EINVAL, "the index's handle is NULL");
    return status;
}

/* Creates (geometry given) or opens the tree and wraps it. */
static int index_wrap(struct banyan_session *session, const char *name,
                      const struct format_geometry *geometry, struct banyan_index **index)
{
    struct banyan_index *opened = calloc(1, sizeof *opened);
    if (!opened)
        return error_set(&session->error, BANYAN_ENOMEM, "index %s: no memory for its handle", name);
    opened->banyan = session->banyan;
    snprintf(opened->name, sizeof opened->name, "%s", name);
    int status = api_opened_get(session, name, geometry, &opened->opened);
    if (status) {
        free(opened);
        return status;
    }
    opened->tree = opened->opened->tree;
    opened->store = opened->opened->store;
    api_count(&session->banyan->indexes, 1);
    *index = opened;
    return BANYAN_OK;
}

int banyan_index_create(struct banyan_session *session, const char *name,
                        const struct banyan_geometry *geometry, struct banyan_index **index)
{
    struct format_geometry converted;
    int status = check_place(session, name, index);
    if (!status)
        status = api_geometry_convert(session, geometry, &converted);
    return status ? status : index_wrap(session, name, &converted, index);
}

int banyan_index_open(struct banyan_session *session, const char *name, struct banyan_index **index)
{
    int status = check_place(session, name, index);
    return status ? status : index_wrap(session, name, NULL, index);
}

int banyan_index_close(struct banyan_index *index)
{
    if (!index)
        return BANYAN_OK;
    if (atomic_load_relaxed(&index->users))
        return BANYAN_EBUSY;
    api_detach_index(index);
    api_opened_put(index->banyan, index->opened);
    api_count(&index->banyan->indexes, -1);
    free(index);
    return BANYAN_OK;
}

int banyan_index_cache_stats(const struct banyan_index *index, struct banyan_cache_stats *stats)
{
    struct tree_cache_stats from = {0};
    if (!index || !stats)
        return BANYAN_EINVAL;
    tree_cache_stats(index->tree, &from);
    const struct banyan_cache_stats to = {
        .budget_bytes = from.budget,
        .inner_nodes = from.frames,
        .inner_bytes = from.bytes,
        .inner_admissions = from.admissions,
        .inner_evictions = from.evictions,
        .leaves = from.leaves.count,
        .leaf_bytes = from.leaves.bytes,
        .leaf_hits = from.leaves.hits,
        .leaf_misses = from.leaves.misses,
        .leaf_admissions = from.leaves.admissions,
        .leaf_evictions = from.leaves.evictions,
        .entry_bytes = from.entries.bytes,
        .entry_hits = from.entries.hits,
        .entry_misses = from.entries.misses,
        .entry_admissions = from.entries.admissions,
        .entry_evictions = from.entries.evictions,
        .shortcut_hits = from.shortcut_hits,
        .busy = from.busy,
        .values = from.values.count,
        .value_bytes = from.values.bytes,
        .value_hits = from.values.hits,
        .value_misses = from.values.misses,
        .value_admissions = from.values.admissions,
        .value_evictions = from.values.evictions,
    };
    return api_struct_out(stats, &to, sizeof to);
}

int banyan_index_drop(struct banyan_session *session, const char *name)
{
    int status = check_name(session, name);
    return status ? status : api_opened_drop(session, name);
}

struct list_call {
    void (*visit)(void *context, const char *name);
    void *context;
};

static void list_visit(void *context, const char *name, const struct format_geometry *geometry)
{
    struct list_call *call = context;
    (void)geometry;
    if (!owner_is_map(name))
        call->visit(call->context, name);
}

int banyan_index_list(struct banyan_session *session, void (*visit)(void *context, const char *name),
                      void *context)
{
    if (!session)
        return BANYAN_EINVAL;
    if (!visit)
        return error_set(&session->error, BANYAN_EINVAL, "the visit function is NULL");
    struct list_call call = {visit, context};
    return api_result(session, tree_list(session->tree_session, list_visit, &call));
}
