/*
 * layout.c - See layout.h.
 */
#include "store/layout.h"
#include "store/pieces.h"
#include "store/record.h"
#include "store/transfer.h"

#include <assert.h>

/* Bytes that are hashed before the worker's other tasks get their turn. */
#define HASHED_IN_A_ROW (UINT64_C(4) << 20)
/* No piece of less is made as long as that does not leave the value without a place. */
#define PART_LEAST 64u

/* In session->placed. */
struct store_placed {
    struct format_piece piece;
    const uint8_t *bytes; /* of a new piece; NULL: it is kept, or zeros */
};

static struct store_placed *placed_of(const struct store_layout *layout)
{
    return (void *)layout->session->placed.bytes;
}

void store_layout_begin(struct store_layout *layout, struct store_session *session, const void *key,
                        size_t key_length, uint64_t expires)
{
    *layout =
        (struct store_layout){.session = session, .key = key, .key_length = key_length, .expires = expires};
}

/* Room for more pieces. */
static int layout_reserve(struct store_layout *layout, uint64_t more)
{
    uint64_t pieces = layout->count + more;
    size_t bytes = (size_t)pieces * sizeof(struct store_placed);
    if (pieces + layout->to_come > FORMAT_PIECES_MAX)
        return pool_fail(tree_session_pool(layout->session->tree), BANYAN_ENOSPC,
                         "the pool's free blocks are too small for a value of this length");
    if (bytes <= layout->session->placed.capacity)
        return 0;
    return store_reserve_more(layout->session, &layout->session->placed, bytes + bytes / 2);
}

static void layout_add(struct store_layout *layout, const struct format_piece *piece, const uint8_t *bytes)
{
    placed_of(layout)[layout->count++] = (struct store_placed){*piece, bytes};
    layout->length += piece->length;
}

int store_layout_keep(struct store_layout *layout, const struct format_piece *pieces, uint32_t count)
{
    int status = layout_reserve(layout, count);
    for (uint32_t i = 0; i < count && !status; i++)
        layout_add(layout, &pieces[i], NULL);
    return status;
}

int store_layout_zeros(struct store_layout *layout, uint64_t length)
{
    struct store_placed *last = layout->count ? &placed_of(layout)[layout->count - 1] : NULL;
    assert(length && layout->length + length <= FORMAT_RECORD_VALUE_MAX);
    if (last && last->piece.block == GADDR_NULL) {
        last->piece.length += (uint32_t)length;
        layout->length += length;
        return 0;
    }
    int status = layout_reserve(layout, 1);
    if (!status)
        layout_add(layout, &(struct format_piece){.length = (uint32_t)length}, NULL);
    return status;
}

/* Where memory nodes copy owners' logs to disks a value's blocks lie on one of them, if there is room: each
 * copies its own alone (persist/drain.h). */
static gaddr blocks_near(const struct store_layout *layout)
{
    const struct store_placed *placed = placed_of(layout);
    uint32_t i = 0;
    while (i < layout->count && placed[i].piece.block == GADDR_NULL)
        i++;
    return i < layout->count &&
                   pool_on_disk(tree_session_pool(layout->session->tree), gaddr_node(placed[i].piece.block))
               ? placed[i].piece.block
               : GADDR_NULL;
}

/* The least block that will do for a piece, so that those for the rest are not too many. */
static uint32_t part_least(const struct store_layout *layout, uint64_t left, uint32_t wanted)
{
    uint64_t room = FORMAT_PIECES_MAX - layout->count - layout->to_come;
    uint64_t least = ((left + room - 1) / room + 31) & ~UINT64_C(31);
    least = least < PART_LEAST ? PART_LEAST : least;
    return least < wanted ? (uint32_t)least : wanted;
}

int store_layout_cut(struct store_layout *layout, const uint8_t *bytes, uint64_t length, uint32_t grain)
{
    struct store_session *session = layout->session;
    assert(grain && grain <= FORMAT_PIECE_MAX);
    int status = layout_reserve(layout, (length + grain - 1) / grain);
    while (length && !status) {
        uint32_t wanted = length < grain ? (uint32_t)length : grain, got = 0;
        struct format_piece piece = {.length = wanted};
        status = layout_reserve(layout, 1);
        if (!status)
            status = pool_block_allocate_part(tree_session_pool(session->tree), blocks_near(layout), wanted,
                                              part_least(layout, length, wanted), &piece.block, &got);
        if (status)
            return status;
        piece.length = got < wanted ? got : wanted;
        piece.hash = format_record_hash(bytes, piece.length);
        layout_add(layout, &piece, bytes);
        bytes += piece.length;
        length -= piece.length;
        layout->hashed += piece.length;
        if (layout->hashed >= HASHED_IN_A_ROW) {
            layout->hashed = 0;
            task_yield();
        }
    }
    return status;
}

void store_layout_withdraw(struct store_layout *layout)
{
    const struct store_placed *placed = placed_of(layout);
    for (uint32_t i = 0; i < layout->count; i++)
        if (placed[i].bytes)
            store_piece_free(layout->session, layout->key_length, &placed[i].piece);
    pool_block_release(tree_session_pool(layout->session->tree), layout->header, layout->header_bytes);
    if (layout->written) {
        store_count_up(layout->session, records_freed, 1);
        store_count_up(layout->session, bytes_freed, layout->written);
    }
    layout->count = 0;
    layout->header = GADDR_NULL;
}

static struct fabric_command write_command(gaddr address, const void *data, uint32_t bytes)
{
    return (struct fabric_command){
        .operation = FABRIC_WRITE, .address = address, .length = bytes, .write = {.data = data}};
}

/* Writes the header and the new pieces, as many together as the fabric takes. */
static int layout_post(struct store_layout *layout)
{
    struct store_session *session = layout->session;
    struct fabric_command *writes = store_transfer_commands(session);
    const struct store_placed *placed = placed_of(layout);
    uint32_t posted = 0;
    uint64_t bytes = layout->header_bytes;
    int status = writes ? 0 : store_fail_memory(session);
    if (!status)
        writes[posted++] = write_command(layout->header, session->output.bytes, layout->header_bytes);
    for (uint32_t i = 0; i < layout->count && !status; i++) {
        if (!placed[i].bytes)
            continue;
        if (posted == STORE_TRANSFER_MAX) {
            status = store_transfer(session, writes, posted, NULL);
            posted = 0;
        }
        writes[posted++] = write_command(placed[i].piece.block, placed[i].bytes, placed[i].piece.length);
        bytes += placed[i].piece.length;
    }
    if (!status && posted)
        status = store_transfer(session, writes, posted, NULL);
    if (status)
        return status;
    layout->written = bytes;
    store_count_up(session, records_written, 1);
    store_count_up(session, bytes_written, bytes);
    return 0;
}

/* Allocates the header's block and fills session->output with it. */
static int layout_header(struct store_layout *layout, struct format_reference *reference)
{
    struct store_session *session = layout->session;
    const struct store_placed *placed = placed_of(layout);
    struct format_record record = {.key = layout->key,
                                   .key_length = layout->key_length,
                                   .expires = layout->expires,
                                   .length = layout->length,
                                   .pieces = layout->count};
    uint32_t bytes = format_record_header_bytes(layout->key_length, format_record_room(layout->count));
    int status = store_reserve(session, &session->output, bytes);
    if (!status)
        status = pool_block_allocate(tree_session_pool(session->tree), blocks_near(layout), bytes,
                                     &layout->header);
    if (status) {
        layout->header = GADDR_NULL;
        return status;
    }
    layout->header_bytes = bytes;
    record.stamp = session->stamp++;
    format_record_begin(session->output.bytes, &record);
    for (uint32_t i = 0; i < layout->count; i++)
        format_record_piece_set(session->output.bytes, layout->key_length, i, &placed[i].piece);
    format_record_seal(session->output.bytes, layout->header, &record, reference);
    return 0;
}

int store_layout_write(struct store_layout *layout, struct format_reference *reference)
{
    assert(layout->count && !layout->to_come);
    int status = layout_header(layout, reference);
    if (!status)
        status = layout_post(layout);
    if (status && store_failed_for_sure(status))
        store_layout_withdraw(layout);
    return status;
}

uint32_t store_layout_at_hand(struct store_layout *layout)
{
    struct store_session *session = layout->session;
    const struct store_placed *placed = placed_of(layout);
    uint32_t count = 0;
    if (store_reserve(session, &session->at_hand, (layout->count + 1) * sizeof(struct fabric_command)))
        return 0;
    struct fabric_command *writes = (void *)session->at_hand.bytes;
    writes[count++] = write_command(layout->header, session->output.bytes, layout->header_bytes);
    for (uint32_t i = 0; i < layout->count; i++)
        if (placed[i].bytes)
            writes[count++] = write_command(placed[i].piece.block, placed[i].bytes, placed[i].piece.length);
    return count;
}
