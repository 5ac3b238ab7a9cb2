/*
 * iterator.c - iterators of the C API: batches of a scan, copied.
 *
 * A scan hands its entries to a callback that must not use the session; an iterator gives the program one
 * entry at a time and lets it do anything in between. So each batch is copied out, and the next one starts
 * after the last key of the one before, exclusively: no entry comes twice, whatever was changed meanwhile.
 * Batches grow from 16 to 256 entries, so that a short look costs little, and end at 1 MiB. Thread: the
 * session's. Can fail: as scans do; memory.
 */
#include <stdlib.h>
#include <string.h>
#include "api/records.h"

#define BATCH_FIRST 16u
#define BATCH_MAX   256u
#define BATCH_BYTES (1u << 20) /* a batch that has so many bytes is not continued */

struct bound {
    unsigned char key[BANYAN_KEY_MAX];
    size_t length;
    bool set, open;
};

/* In the buffer: the key, then the value. */
struct entry {
    size_t at, length;
    uint8_t key_length;
};

struct banyan_iterator {
    struct banyan_session *session;
    struct banyan_index *index;
    struct bound from, to; /* of what has not been fetched yet */
    bool reverse, finished;
    uint32_t batch;          /* entries that the next fetch wants */
    uint32_t fetched, taken; /* entries in the buffer, and how many were given out */
    struct entry entries[BATCH_MAX];
    unsigned char *buffer;
    size_t used, capacity; /* of the buffer */
    bool no_memory;        /* the batch ended for want of it */
};

static unsigned char *slot_key(const struct banyan_iterator *iterator, uint32_t number)
{
    return iterator->buffer + iterator->entries[number].at;
}

static unsigned char *slot_value(const struct banyan_iterator *iterator, uint32_t number)
{
    return slot_key(iterator, number) + iterator->entries[number].key_length;
}

static int bound_set(struct banyan_iterator *iterator, struct bound *bound, const void *key, size_t length,
                     uint32_t exclusive)
{
    const struct format_geometry *geometry = tree_geometry(iterator->index->tree);
    if (!key && length == 0)
        return BANYAN_OK;
    if (!key || exclusive > 1)
        return error_set(&iterator->session->error, BANYAN_EINVAL, "index %s: the range's bound is malformed",
                         iterator->index->name);
    if (length > BANYAN_KEY_MAX || (geometry->key_kind == FORMAT_KEY_FIXED && length != geometry->key_bytes))
        return error_set(&iterator->session->error, BANYAN_EKEYSIZE, "index %s: a bound of %zu bytes",
                         iterator->index->name, length);
    bound->set = true;
    bound->open = exclusive != 0;
    bound->length = length;
    memcpy(bound->key, key, length);
    return BANYAN_OK;
}

static int range_set(struct banyan_iterator *iterator, const struct banyan_range *given)
{
    struct banyan_range range;
    if (!given)
        return BANYAN_OK;
    int status = api_struct_in(&range, sizeof range, given, "range", &iterator->session->error);
    if (!status && range.reverse > 1)
        status = error_set(&iterator->session->error, BANYAN_EINVAL, "range: reverse is %u, not 0 or 1",
                           range.reverse);
    if (!status)
        status = bound_set(iterator, &iterator->from, range.from, range.from_length, range.from_exclusive);
    if (!status)
        status = bound_set(iterator, &iterator->to, range.to, range.to_length, range.to_exclusive);
    iterator->reverse = !status && range.reverse != 0;
    return status;
}

int banyan_iterator_open(struct banyan_session *session, struct banyan_index *index,
                         const struct banyan_range *range, struct banyan_iterator **iterator)
{
    if (iterator)
        *iterator = NULL;
    int status = api_check(session, index);
    if (status)
        return status;
    if (!iterator)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the iterator's handle is NULL",
                         index->name);
    struct banyan_iterator *opened = calloc(1, sizeof *opened);
    if (!opened)
        return error_set(&session->error, BANYAN_ENOMEM, "index %s: no memory for an iterator", index->name);
    opened->session = session;
    opened->index = index;
    opened->batch = BATCH_FIRST;
    status = range_set(opened, range);
    if (status) {
        free(opened);
        return status;
    }
    session->iterators++;
    api_count(&index->users, 1);
    *iterator = opened;
    return BANYAN_OK;
}

static bool buffer_reserve(struct banyan_iterator *iterator, size_t more)
{
    size_t wanted = iterator->used + more;
    if (wanted <= iterator->capacity)
        return true;
    size_t capacity = wanted > 2 * iterator->capacity ? wanted : 2 * iterator->capacity;
    unsigned char *larger = realloc(iterator->buffer, capacity);
    if (!larger)
        return false;
    iterator->buffer = larger;
    iterator->capacity = capacity;
    return true;
}

static bool batch_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct banyan_iterator *iterator = context;
    if (!buffer_reserve(iterator, key_length + length)) {
        iterator->no_memory = true;
        return false;
    }
    unsigned char *to = iterator->buffer + iterator->used;
    memcpy(to, key, key_length);
    if (length > 0)
        memcpy(to + key_length, value, length);
    iterator->entries[iterator->fetched++] = (struct entry){iterator->used, length, (uint8_t)key_length};
    iterator->used += key_length + length;
    return iterator->fetched < iterator->batch && iterator->used < BATCH_BYTES;
}

/* The part of the range up to the last fetched key is done, even if the scan failed after it. */
static void range_advance(struct banyan_iterator *iterator)
{
    if (iterator->fetched == 0)
        return;
    struct bound *bound = iterator->reverse ? &iterator->to : &iterator->from;
    uint32_t last = iterator->fetched - 1;
    bound->set = true;
    bound->open = true;
    bound->length = iterator->entries[last].key_length;
    memcpy(bound->key, slot_key(iterator, last), bound->length);
}

/* A bound moved past the other one leaves nothing; scans need not be asked about such a range. */
static bool range_empty(const struct banyan_iterator *iterator)
{
    const struct bound *from = &iterator->from, *to = &iterator->to;
    if (!from->set || !to->set)
        return false;
    int order = memcmp(from->key, to->key, from->length < to->length ? from->length : to->length);
    if (order == 0)
        order = (from->length > to->length) - (from->length < to->length);
    return order > 0 || (order == 0 && (from->open || to->open));
}

static int batch_fetch(struct banyan_iterator *iterator)
{
    iterator->fetched = 0;
    iterator->taken = 0;
    iterator->used = 0;
    iterator->no_memory = false;
    if (range_empty(iterator)) {
        iterator->finished = true;
        return BANYAN_OK;
    }
    struct tree_range range = {
        .from = iterator->from.set ? iterator->from.key : NULL,
        .from_length = iterator->from.length,
        .from_open = iterator->from.open,
        .to = iterator->to.set ? iterator->to.key : NULL,
        .to_length = iterator->to.length,
        .to_open = iterator->to.open,
        .reverse = iterator->reverse,
        .limit = iterator->batch,
    };
    struct banyan_session *session = iterator->session;
    int status = iterator->index->store
                     ? api_records_scan(session, iterator->index, &range, batch_visit, iterator)
                     : tree_scan(session->tree_session, iterator->index->tree, &range, batch_visit, iterator);
    range_advance(iterator);
    if (iterator->no_memory && iterator->fetched == 0)
        return error_set(&session->error, BANYAN_ENOMEM, "index %s: no memory for an entry",
                         iterator->index->name);
    if (status) /* BANYAN_ENOTFOUND: the index was dropped */
        /* What came before the failure is given out first; the next fetch meets the failure again, or not. */
        return iterator->fetched > 0 ? BANYAN_OK : api_result(iterator->session, status);
    if (iterator->fetched < iterator->batch && iterator->used < BATCH_BYTES && !iterator->no_memory)
        iterator->finished = true;
    iterator->batch = iterator->batch * 4 < BATCH_MAX ? iterator->batch * 4 : BATCH_MAX;
    return BANYAN_OK;
}

int banyan_iterator_next(struct banyan_iterator *iterator, const void **key, size_t *key_length,
                         const void **value, size_t *length)
{
    if (!iterator)
        return BANYAN_EINVAL;
    if (iterator->taken == iterator->fetched && !iterator->finished) {
        int status = batch_fetch(iterator);
        if (status)
            return status;
    }
    if (iterator->taken == iterator->fetched)
        return error_set(&iterator->session->error, BANYAN_ENOTFOUND, "index %s: the iterator is at its end",
                         iterator->index->name);
    uint32_t number = iterator->taken++;
    if (key)
        *key = slot_key(iterator, number);
    if (key_length)
        *key_length = iterator->entries[number].key_length;
    if (value)
        *value = slot_value(iterator, number);
    if (length)
        *length = iterator->entries[number].length;
    return BANYAN_OK;
}

int banyan_iterator_close(struct banyan_iterator *iterator)
{
    if (!iterator)
        return BANYAN_OK;
    iterator->session->iterators--;
    api_count(&iterator->index->users, -1);
    free(iterator->buffer);
    free(iterator);
    return BANYAN_OK;
}
