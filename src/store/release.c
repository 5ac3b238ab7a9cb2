/*
 * release.c - what mergings of logged ranges ask of a store (struct tree_values of tree/logging.h): whose
 * value shares blocks with another, and the freeing of what has left a leaf (S3 of
 * docs/internals/records.md).
 *
 * On any task of the process, with that task's tree session and inside of another call of the store, so
 * nothing here touches a store session of a caller. A record of one block is freed without a round trip; for
 * one in pieces its header is read, and that of the value that took its place.
 */
#include "store/release.h"

#include <stdlib.h>

#include "store/cached.h"
#include "store/pieces.h"
#include "store/record.h"

static bool reference_of(const void *value, size_t length, struct format_reference *reference)
{
    struct format_value slot;
    *reference = (struct format_reference){.address = GADDR_NULL};
    if (!value || !format_value_decode(value, length, &slot) || !slot.record)
        return false;
    *reference = slot.reference;
    return true;
}

static bool value_names(void *context, const void *value, size_t length)
{
    struct format_reference reference;
    (void)context;
    return reference_of(value, length, &reference);
}

/* Another header of the key may name the same pieces. */
static bool value_shared(void *context, const void *value, size_t length)
{
    struct format_reference reference;
    (void)context;
    return reference_of(value, length, &reference) && reference.room;
}

/* A record that left its leaf, and the one that took its place there. */
struct releasing {
    struct store_session session; /* for its buffers */
    const void *key;
    size_t key_length;
    struct format_reference old, now;
    const struct format_piece *kept; /* what `now` names */
    uint32_t kept_count, at;         /* at: the piece behind the one that was found last */
};

/* Pieces that stay keep their order, so this one is mostly found at once. */
static bool kept(struct releasing *releasing, gaddr block)
{
    for (uint32_t i = 0; i < releasing->kept_count; i++) {
        uint32_t number = (releasing->at + i) % releasing->kept_count;
        if (releasing->kept[number].block == block) {
            releasing->at = number + 1;
            return true;
        }
    }
    return false;
}

static int kept_read(struct releasing *releasing)
{
    struct format_record record;
    if (!releasing->now.room)
        return 0;
    int status = store_record_read_header(&releasing->session, releasing->key, releasing->key_length,
                                          &releasing->now, &record);
    if (status)
        return status;
    releasing->kept = store_pieces_load(&releasing->session, releasing->key_length, record.pieces);
    releasing->kept_count = record.pieces;
    return releasing->kept ? 0 : BANYAN_ENOMEM;
}

static void release(struct releasing *releasing)
{
    struct store_session *session = &releasing->session;
    const size_t key_length = releasing->key_length;
    struct format_record record = {.pieces = 0};
    uint64_t bytes = 0;
    /* What cannot be read is left to an offline check, and so is what may be named by it. */
    if (kept_read(releasing) ||
        (releasing->old.room &&
         store_record_read_header(session, releasing->key, key_length, &releasing->old, &record)))
        return;
    for (uint32_t i = 0; i < record.pieces; i++) {
        struct format_piece piece = format_record_piece(session->header.bytes, key_length, i);
        if (piece.block != GADDR_NULL && !kept(releasing, piece.block))
            bytes += store_piece_free(session, key_length, &piece);
    }
    if (releasing->old.room || !kept(releasing, releasing->old.address)) {
        uint32_t block = format_record_block_bytes(key_length, &releasing->old);
        store_cached_forget(session, releasing->key, key_length, &releasing->old);
        pool_block_release(tree_session_pool(session->tree), releasing->old.address, block);
        bytes += block;
    }
    store_count_up(session, records_freed, 1);
    store_count_up(session, bytes_freed, bytes);
}

/* An operation may be under way in the tree session: what it relies on stays as it is. */
static void value_released(void *context, struct tree_session *tree, const void *key, size_t key_length,
                           const void *value, size_t length, const void *now, size_t now_length)
{
    struct releasing releasing = {
        .session = {.store = context, .tree = tree}, .key = key, .key_length = key_length};
    struct pool_session *pool = tree_session_pool(tree);
    const uint64_t incarnation = pool->incarnation;
    if (!reference_of(value, length, &releasing.old))
        return;
    (void)reference_of(now, now_length, &releasing.now);
    release(&releasing);
    store_session_buffers_free(&releasing.session);
    pool->incarnation = incarnation;
}

const struct tree_values store_values = {
    .shared = value_shared, .names = value_names, .released = value_released};
