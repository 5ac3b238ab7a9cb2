/*
 * pieces.c - See pieces.h. A piece is read to an aligned place, a little behind its own where pieces before
 * it have odd lengths, is validated there, and then moved.
 */
#include "store/pieces.h"
#include "store/record.h"
#include "store/transfer.h"

#include <assert.h>

#define ALIGN8(bytes) (((bytes) + 7) & ~UINT64_C(7))

const struct format_piece *store_pieces_load(struct store_session *session, size_t key_length, uint32_t count)
{
    if (store_reserve(session, &session->pieces, count * sizeof(struct format_piece)))
        return NULL;
    struct format_piece *pieces = (void *)session->pieces.bytes;
    for (uint32_t i = 0; i < count; i++)
        pieces[i] = format_record_piece(session->header.bytes, key_length, i);
    return pieces;
}

uint32_t store_pieces_find(const struct format_piece *pieces, uint32_t count, uint64_t offset,
                           uint64_t *start)
{
    uint32_t number = 0;
    uint64_t at = 0;
    while (number < count && offset - at >= pieces[number].length)
        at += pieces[number++].length;
    assert(number < count);
    *start = at;
    return number;
}

uint64_t store_pieces_room(const struct format_piece *pieces, uint32_t count)
{
    uint64_t bytes = 8;
    for (uint32_t i = 0; i < count; i++)
        bytes += ALIGN8((uint64_t)pieces[i].length);
    return bytes;
}

/* A round of reads: those of pieces first to end - 1. */
struct round {
    const struct format_piece *pieces;
    uint32_t first, end;
    uint64_t place, staged; /* of the first piece: where it belongs, and where it may be read to */
};

static bool piece_skipped(const struct format_piece *piece, uint64_t place, uint64_t skip, uint64_t skip_end)
{
    return place >= skip && place + piece->length <= skip_end;
}

/* Moves the round's pieces to where they belong. Each lies behind its place or at it, and behind the places
 * of all before it, so none is overwritten before it is moved. */
static int round_settle(const struct round *round, uint64_t skip, uint64_t skip_end, uint8_t *room)
{
    uint64_t place = round->place, staged = round->staged;
    for (uint32_t i = round->first; i < round->end; i++) {
        const struct format_piece *piece = &round->pieces[i];
        assert(place <= staged);
        if (piece_skipped(piece, place, skip, skip_end)) {
            /* its bytes are undefined */
        } else if (piece->block == GADDR_NULL) {
            memset(room + place, 0, piece->length);
        } else {
            if (format_record_hash(room + staged, piece->length) != piece->hash)
                return STORE_STALE;
            if (place != staged)
                memmove(room + place, room + staged, piece->length);
        }
        place += piece->length;
        staged += ALIGN8((uint64_t)piece->length);
    }
    return 0;
}

int store_pieces_read(struct store_session *session, size_t key_length, const struct format_piece *pieces,
                      uint32_t count, uint64_t skip, uint64_t skip_end, uint8_t *room)
{
    struct fabric_command *reads = store_transfer_commands(session);
    uint64_t place = 0, staged = 0;
    uint32_t at = 0;
    if (!reads)
        return store_fail_memory(session);
    while (at < count) {
        struct round round = {.pieces = pieces, .first = at, .place = place, .staged = staged};
        uint32_t posted = 0;
        for (; at < count && posted < STORE_TRANSFER_MAX; at++) {
            if (pieces[at].block != GADDR_NULL && !piece_skipped(&pieces[at], place, skip, skip_end))
                reads[posted++] =
                    (struct fabric_command){.operation = FABRIC_READ,
                                            .address = format_piece_address(key_length, &pieces[at]),
                                            .length = pieces[at].length,
                                            .read = {.buffer = room + staged}};
            place += pieces[at].length;
            staged += ALIGN8((uint64_t)pieces[at].length);
        }
        round.end = at;
        int status = posted ? store_read_status(store_transfer(session, reads, posted, NULL)) : 0;
        if (!status)
            status = round_settle(&round, skip, skip_end, room);
        if (status)
            return status;
        if (at < count)
            task_yield(); /* hashing megabytes takes time, which the worker's other tasks get too */
    }
    return 0;
}

uint32_t store_piece_free(struct store_session *session, size_t key_length, const struct format_piece *piece)
{
    uint32_t bytes = format_piece_block_bytes(key_length, piece);
    if (bytes)
        pool_block_release(tree_session_pool(session->tree), piece->block, bytes);
    return bytes;
}
