/*
 * bulk.c - bulk loads of the C API.
 *
 * Passes a program's stream on to the tree's bulk load and checks each entry on the way. A part whose stream
 * is not ascending or holds an entry of a wrong size ends there with an error; banyan_bulk_finish must still
 * be called. Threads: parts in parallel, each with its session; begin and finish by one.
 */
#include <stdlib.h>
#include <string.h>
#include "api/arguments.h"

struct banyan_bulk {
    struct banyan_index *index;
    struct tree_bulk *tree_bulk;
    unsigned parts;
};

struct part_call {
    banyan_bulk_function *next;
    void *context;
    struct banyan_session *session;
    const struct banyan_index *index;
    int status;
};

int banyan_bulk_begin(struct banyan_session *session, struct banyan_index *index, unsigned parts, double fill,
                      struct banyan_bulk **bulk)
{
    if (bulk)
        *bulk = NULL;
    int status = api_check(session, index);
    if (status)
        return status;
    if (!bulk || parts == 0 || !(fill >= 0.0 && fill <= 1.0))
        return error_set(&session->error, BANYAN_EINVAL, "index %s: bulk load of %u parts, fill %g",
                         index->name, parts, fill);
    if (index->store)
        return error_set(&session->error, BANYAN_ENOTSUP,
                         "index %s: an index of records is filled by puts, not by bulk load", index->name);
    struct banyan_bulk *begun = calloc(1, sizeof *begun);
    if (!begun)
        return error_set(&session->error, BANYAN_ENOMEM, "index %s: no memory for a bulk load", index->name);
    begun->index = index;
    begun->parts = parts;
    status = tree_bulk_begin(&begun->tree_bulk, index->tree, parts, fill > 0.0 ? fill : 0.8, &session->error);
    if (status) {
        free(begun);
        return status;
    }
    api_count(&index->users, 1);
    *bulk = begun;
    return BANYAN_OK;
}

static bool part_next(void *context, const void **key, size_t *key_length, const void **value, size_t *length)
{
    struct part_call *call = context;
    *key = *value = NULL;
    *key_length = *length = 0;
    if (call->status || !call->next(call->context, key, key_length, value, length))
        return false;
    call->status = api_check_entry(call->session, call->index, *key, *key_length, *value, *length);
    if (!*value)
        *value = "";
    return !call->status;
}

int banyan_bulk_part(struct banyan_session *session, struct banyan_bulk *bulk, unsigned part,
                     banyan_bulk_function *next, void *context)
{
    if (!session)
        return BANYAN_EINVAL;
    if (!bulk || !next)
        return error_set(&session->error, BANYAN_EINVAL, "the bulk load's %s is NULL",
                         bulk ? "function" : "handle");
    int status = api_check(session, bulk->index);
    if (status)
        return status;
    if (part >= bulk->parts)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: part %u of a bulk load of %u parts",
                         bulk->index->name, part, bulk->parts);
    struct part_call call = {next, context, session, bulk->index, BANYAN_OK};
    status = tree_bulk_part(session->tree_session, bulk->tree_bulk, part, part_next, &call);
    return status ? api_result(session, status) : call.status;
}

int banyan_bulk_finish(struct banyan_session *session, struct banyan_bulk *bulk)
{
    if (!session)
        return BANYAN_EINVAL;
    if (!bulk)
        return error_set(&session->error, BANYAN_EINVAL, "the bulk load's handle is NULL");
    int status = api_check(session, bulk->index);
    if (status)
        return status; /* another pool's session: the load stays open */
    status = api_result(session, tree_bulk_finish(session->tree_session, bulk->tree_bulk));
    api_count(&bulk->index->users, -1);
    free(bulk);
    return status;
}
