/*
 * drop.c - An index goes away together with the records that its slots name. Called by the C API and the
 * programs, on any task. Costs what tree_drop does, and a read for each value that lies in pieces, since its
 * header names them; where ranges are owned, two transfers besides, one that makes the index shared and one
 * that takes it off the map. Records that cannot be read are left to an offline check.
 */
#include "owner/owner.h"
#include "store/record.h"

struct dropping {
    struct store store; /* of no tree: for its counters */
    struct store_session *session;
};

static void entry_dropped(void *context, const struct tree *tree, const void *key, size_t key_length,
                          const void *raw, size_t raw_length)
{
    struct dropping *dropping = context;
    struct format_value slot;
    if (tree_geometry(tree)->content == FORMAT_CONTENT_STORE && format_value_decode(raw, raw_length, &slot) &&
        slot.record)
        store_record_free(dropping->session, key, key_length, &slot.reference, true);
}

static int dropping_begin(struct dropping *dropping, struct tree_session *tree)
{
    struct error error = {0};
    dropping->store.memory_max = UINT64_MAX;
    int status = store_session_create(&dropping->session, &dropping->store, tree, &error);
    return status ? pool_fail(tree_session_pool(tree), status, "%s", error.text) : 0;
}

int store_drop(struct tree_session *session, const char *name)
{
    struct dropping dropping = {.session = NULL};
    int status = dropping_begin(&dropping, session);
    if (!status)
        status = tree_drop(session, name, entry_dropped, &dropping);
    store_session_destroy(dropping.session);
    return status;
}

/* An index that nobody has open here: it takes part in the ownership of ranges for as long as the drop lasts.
 */
static int drop_unopened(struct tree_session *session, struct owner *owner, const char *name)
{
    struct tree *tree = NULL;
    int status = tree_open(session, name, &tree);
    if (status == BANYAN_ENOTFOUND) /* or it is half dropped, and its ranges are closed */
        return store_drop(session, name);
    if (status)
        return status;
    status = owner_attach(owner, session, tree);
    if (!status)
        status = store_drop_owned(session, owner, tree);
    const struct error error = *tree_session_error(session); /* before the next call on the session */
    owner_detach(owner, session, tree);
    tree_close(tree);
    return status ? pool_fail(tree_session_pool(session), status, "%s",
                              error.code == status ? error.text : error_name(status))
                  : 0;
}

int store_drop_owned(struct tree_session *session, struct owner *owner, struct tree *tree)
{
    int status = owner_close(owner, session, tree);
    if (!status)
        status = store_drop(session, tree_name(tree));
    if (status && status != BANYAN_ENOTFOUND) /* it may be half dropped, and what is left stays closed */
        return status;
    int forgotten = owner_forget(owner, session, tree);
    return status ? status : forgotten;
}

int store_drop_name(struct tree_session *session, struct owner *owner, const char *name)
{
    if (owner_is_map(name))
        return pool_fail(tree_session_pool(session), BANYAN_EINVAL,
                         "index '%s' is the map of the cluster's ranges: it cannot be dropped", name);
    return owner ? drop_unopened(session, owner, name) : store_drop(session, name);
}

int store_drop_finish(struct tree_session *session, uint32_t *count)
{
    struct dropping dropping = {.session = NULL};
    *count = 0;
    int status = dropping_begin(&dropping, session);
    if (!status)
        status = tree_drop_finish(session, entry_dropped, &dropping, count);
    store_session_destroy(dropping.session);
    return status;
}
