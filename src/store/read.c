/*
 * read.c - See read.h. A short value costs the index's lookup, one in a record one round trip more, one in
 * pieces two or more.
 */
#include "store/read.h"
#include "store/exchange.h"
#include "store/pieces.h"

/* Lookups that find the same slot and a stale record: only a damaged record needs more. */
#define SAME_SLOT_TRIES 16u

static int corrupt(struct store_session *session, const struct store_raw *raw)
{
    struct format_value slot;
    char text[GADDR_TEXT_BYTES];
    if (!format_value_decode(raw->bytes, raw->length, &slot))
        return pool_fail(tree_session_pool(session->tree), BANYAN_ECORRUPT,
                         "a slot of %u bytes (kind %u) was not written by a store", raw->length,
                         raw->length ? raw->bytes[0] : 0);
    return pool_fail(tree_session_pool(session->tree), BANYAN_ECORRUPT,
                     "record %s: it is not the one that the index names, or it is damaged",
                     gaddr_format(slot.reference.address, text));
}

int store_patience(struct store_session *session, struct store_patience *patience,
                   const struct store_raw *raw)
{
    store_count_up(session, record_retries, 1);
    if (!patience->tries || !store_raw_equal(&patience->last, raw->bytes, raw->length)) {
        patience->last = *raw;
        patience->tries = 0;
    }
    if (++patience->tries >= SAME_SLOT_TRIES)
        return corrupt(session, raw);
    if (patience->tries > 4)
        task_sleep(10000);
    else if (patience->tries > 1)
        task_yield();
    return 0;
}

static struct store_part choice_part(const struct store_choice *choice, uint64_t whole)
{
    struct store_part part = choice->choose(choice->context, whole);
    part.offset = part.offset < whole ? part.offset : whole;
    part.length = part.length < whole - part.offset ? part.length : whole - part.offset;
    return part;
}

void store_choice_apply(const struct store_choice *choice, struct store_value *value)
{
    if (!choice)
        return;
    struct store_part part = choice_part(choice, value->length);
    value->whole = value->length;
    value->bytes += part.offset;
    value->length = part.length;
}

/* The chosen part of a value in pieces: reads the pieces that it touches. */
static int pieces_part(struct store_session *session, const void *key, size_t key_length,
                       const struct format_reference *reference, uint64_t now,
                       const struct store_choice *choice, enum store_sink sink, struct store_value *value)
{
    struct format_record record;
    int status = store_record_read_header(session, key, key_length, reference, &record);
    if (status)
        return status;
    *value = (struct store_value){.whole = reference->length, .expires = record.expires};
    struct store_part part = choice_part(choice, reference->length);
    if (store_expired(record.expires, now) || !part.length) {
        value->bytes = session->header.bytes;
        return 0;
    }
    const struct format_piece *pieces = store_pieces_load(session, key_length, record.pieces);
    if (!pieces)
        return BANYAN_ENOMEM;
    uint64_t start, last;
    uint32_t first = store_pieces_find(pieces, record.pieces, part.offset, &start);
    uint32_t end = store_pieces_find(pieces, record.pieces, part.offset + part.length - 1, &last) + 1;
    uint8_t *room = store_sink_room(session, sink, store_pieces_room(pieces + first, end - first));
    if (!room)
        return BANYAN_ENOMEM;
    value->bytes = room + (part.offset - start);
    value->length = part.length;
    return store_pieces_read(session, key_length, pieces + first, end - first, 0, 0, room);
}

static int resolve(struct store_session *session, const void *key, size_t key_length,
                   const struct store_raw *raw, uint64_t now, enum format_part part,
                   const struct store_choice *choice, enum store_sink sink, struct store_value *value)
{
    struct format_value slot;
    if (!format_value_decode(raw->bytes, raw->length, &slot))
        return STORE_STALE;
    *value = (struct store_value){.length = slot.length, .expires = slot.expires};
    if (!slot.record) {
        value->bytes = part == FORMAT_PART_VALUE ? slot.bytes : NULL;
        store_choice_apply(choice, value);
        return store_expired(slot.expires, now) ? BANYAN_ENOTFOUND : 0;
    }
    if (part == FORMAT_PART_HEADER && !slot.reference.expires)
        return 0;
    int status;
    if (choice && slot.reference.room) {
        status = pieces_part(session, key, key_length, &slot.reference, now, choice, sink, value);
    } else {
        status = store_record_fetch(session, key, key_length, &slot.reference, part, sink, value);
        if (!status)
            store_choice_apply(choice, value);
    }
    return !status && store_expired(value->expires, now) ? BANYAN_ENOTFOUND : status;
}

int store_resolve(struct store_session *session, const void *key, size_t key_length,
                  const struct store_raw *raw, uint64_t now, enum format_part part, enum store_sink sink,
                  struct store_value *value)
{
    return resolve(session, key, key_length, raw, now, part, NULL, sink, value);
}

/* An inline value's bytes lie in session->seen; a copy in the arena stays when that changes. */
static int inline_keep(struct store_session *session, enum store_sink sink, struct store_value *value)
{
    uintptr_t at = (uintptr_t)value->bytes, seen = (uintptr_t)session->seen.bytes;
    if (sink == STORE_SINK_BUFFER || at < seen || at > seen + sizeof session->seen.bytes)
        return 0;
    uint8_t *copy = store_arena_take(session, value->length + 1);
    if (!copy)
        return store_fail_memory(session);
    memcpy(copy, value->bytes, value->length);
    value->bytes = copy;
    return 0;
}

static int fetch(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                 enum format_part part, const struct store_choice *choice, enum store_sink sink,
                 struct store_value *value)
{
    struct store_patience patience;
    struct store_raw *raw = &session->seen;
    patience.tries = 0;
    for (;;) {
        size_t length = sizeof raw->bytes;
        int status = (session->here ? tree_lookup_here : tree_lookup)(session->tree, session->store->tree,
                                                                      key, key_length, raw->bytes, &length);
        if (status)
            return status;
        raw->present = true;
        raw->length = (uint8_t)length;
        status = resolve(session, key, key_length, raw, now, part, choice, sink, value);
        if (!status)
            return inline_keep(session, sink, value);
        if (status == BANYAN_ENOTFOUND)
            store_expire(session, key, key_length, raw);
        if (status != STORE_STALE)
            return status;
        status = store_patience(session, &patience, raw);
        if (status)
            return status;
    }
}

int store_fetch(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                enum format_part part, enum store_sink sink, struct store_value *value)
{
    return fetch(session, key, key_length, now, part, NULL, sink, value);
}

int store_fetch_part(struct store_session *session, const void *key, size_t key_length, uint64_t now,
                     const struct store_choice *choice, enum store_sink sink, struct store_value *value)
{
    return fetch(session, key, key_length, now, FORMAT_PART_VALUE, choice, sink, value);
}

int store_get_part(struct store_session *session, const void *key, size_t key_length,
                   store_choose_function *choose, void *context, struct store_value *value)
{
    uint64_t now = store_begin(session);
    const struct store_choice choice = {choose, context};
    return store_fetch_part(session, key, key_length, now, &choice, STORE_SINK_BUFFER, value);
}

int store_get(struct store_session *session, const void *key, size_t key_length, struct store_value *value)
{
    uint64_t now = store_begin(session);
    return store_fetch(session, key, key_length, now, FORMAT_PART_VALUE, STORE_SINK_BUFFER, value);
}

int store_stat(struct store_session *session, const void *key, size_t key_length, struct store_value *value)
{
    uint64_t now = store_begin(session);
    return store_fetch(session, key, key_length, now, FORMAT_PART_HEADER, STORE_SINK_BUFFER, value);
}
