/*
 * drop.c - An index goes away together with the records that its slots name. Called by the C API and the
 * programs, on any task. Costs what tree_drop does, and a read for each value that lies in pieces, since its
 * header names them. Records that cannot be read are left to an offline check.
 */
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
