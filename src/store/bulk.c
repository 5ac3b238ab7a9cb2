/*
 * bulk.c - an index that is filled from streams: what fits goes into the slots, and a record is written
 * before the leaf that refers to it.
 */
#include <stdlib.h>

#include "store/record.h"
#include "store/transfer.h"

struct store_bulk {
    struct tree_bulk *tree;
};

struct part {
    struct store_session *session;
    store_bulk_next_function *next;
    void *context;
    struct store_raw raw; /* of the entry that was given last */
    struct error error;   /* of the entry that could not be given */
};

int store_bulk_begin(struct store_bulk **out, struct store *store, unsigned parts, double fill,
                     struct error *error)
{
    struct store_bulk *bulk = calloc(1, sizeof *bulk);
    *out = bulk;
    if (!bulk)
        return error_set(error, BANYAN_ENOMEM, "no memory for a bulk load");
    int status = tree_bulk_begin(&bulk->tree, store->tree, parts, fill, error);
    if (status) {
        free(bulk);
        *out = NULL;
    }
    return status;
}

static int record_write(struct part *part, const void *key, size_t key_length,
                        const struct store_value *value)
{
    struct store_session *session = part->session;
    struct store_fresh fresh = {.travels = false};
    int status = store_record_prepare(session, key, key_length, value, &fresh);
    if (!status && fresh.travels)
        status = store_transfer(session, &fresh.ahead, 1, NULL);
    if (status)
        return status;
    store_fresh_written(session, &fresh, true);
    store_slot_record(&part->raw, &fresh.reference);
    return 0;
}

static bool part_next(void *context, const void **key, size_t *key_length, const void **bytes, size_t *length)
{
    struct part *part = context;
    struct store_session *session = part->session;
    struct store_value value = {.bytes = NULL};
    if (!part->next(part->context, key, key_length, &value))
        return false;
    int status = store_key_check(session, *key, *key_length);
    if (!status)
        status = store_length_check(session, value.length);
    if (!status && store_slot_fits(session->store, value.length, value.expires))
        store_slot_inline(&part->raw, &value);
    else if (!status)
        status = record_write(part, *key, *key_length, &value);
    *bytes = part->raw.bytes;
    *length = part->raw.length;
    if (status) { /* an entry that no index takes: the part must not end as if all of it were there */
        part->error = *tree_session_error(session->tree);
        part->error.code = status;
        *length = SIZE_MAX;
    }
    return true;
}

int store_bulk_part(struct store_session *session, struct store_bulk *bulk, unsigned number,
                    store_bulk_next_function *next, void *context)
{
    struct part part = {.session = session, .next = next, .context = context};
    store_begin_untimed(session);
    int status = tree_bulk_part(session->tree, bulk->tree, number, part_next, &part);
    if (part.error.code)
        return pool_fail(tree_session_pool(session->tree), part.error.code, "%s", part.error.text);
    return status;
}

int store_bulk_finish(struct store_session *session, struct store_bulk *bulk)
{
    store_begin_untimed(session);
    int status = tree_bulk_finish(session->tree, bulk->tree);
    free(bulk);
    return status;
}
