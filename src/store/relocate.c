/*
 * relocate.c - see relocate.h. A record that moves is written anew, with the same bytes and expiry, and takes
 * the place of the old if the slot still holds what was read (S5): so a change that another operation made
 * meanwhile stands. Then the old blocks are freed, by this operation alone (S3); if the outcome of the
 * exchange is unknown, neither (S6).
 *
 * A value that need not be in pieces is written as a whole, into one block if there is one. Of others only
 * the pieces move that are to, with the header that names them; those that follow each other become as few as
 * the free blocks allow.
 */
#include "store/relocate.h"
#include "store/exchange.h"
#include "store/layout.h"
#include "store/pieces.h"
#include "tree/rights.h"

#include <assert.h>

/* Bytes of pieces that one exchange moves, but for a single longer run. */
#define RUNS_BYTES (UINT64_C(4) << 20)

/* One key's move. */
struct move {
    struct store_session *session;
    const struct store_relocation *relocation;
    const struct store_entry *entry;
    struct store_raw raw; /* of the slot, as it was met */
    struct format_reference old;
    struct store_fresh new;
    struct format_record header;       /* of a record in pieces */
    const struct format_piece *pieces; /* the session's */
    uint32_t blocks;                   /* to be moved, and the bytes that are written for it */
    uint64_t bytes;
    bool more; /* there are pieces left to be moved by another exchange */
};

static bool chosen(const struct move *move, gaddr block)
{
    return block != GADDR_NULL && move->relocation->chosen(move->relocation->context, block);
}

static bool move_expired(const struct move *move, uint64_t expires)
{
    if (!store_expired(expires, move->relocation->now))
        return false;
    store_expire(move->session, move->entry->key, move->entry->key_length, &move->raw);
    return true;
}

/* Stores the new reference instead of the old. STORE_STALE: the slot has changed. */
static int move_exchange(struct move *move, struct store_exchange *exchange)
{
    struct store_raw put;
    *exchange =
        (struct store_exchange){.expected = &move->raw, .put = &put, .fresh = &move->new, .moves = true};
    store_slot_record(&put, &move->new.reference);
    int status = store_exchange_run(move->session, move->entry->key, move->entry->key_length, exchange);
    if (!status && !exchange->matched)
        return STORE_STALE;
    if (status)
        return status;
    move->raw = put; /* for the next exchange, if there is one */
    move->relocation->counts->hits += move->blocks;
    move->relocation->counts->bytes += move->bytes;
    return 0;
}

/* ---- a value as a whole ---- */

static int whole_move(struct move *move)
{
    struct store_session *session = move->session;
    const struct store_entry *entry = move->entry;
    struct store_exchange exchange;
    struct store_value value;
    int status = store_record_read(session, entry->key, entry->key_length, &move->old, FORMAT_PART_VALUE,
                                   STORE_SINK_BUFFER, &value);
    if (!status && move_expired(move, value.expires))
        return STORE_STALE;
    if (!status)
        status = store_record_prepare(session, entry->key, entry->key_length, &value, &move->new);
    if (status)
        return status;
    move->bytes = format_record_whole_bytes(entry->key_length, value.length);
    status = move_exchange(move, &exchange);
    if (!status && store_retires(session))
        store_record_free(session, entry->key, entry->key_length, &move->old, true);
    else if (status)
        store_withdraw(session, entry->key, entry->key_length, status == STORE_STALE ? 0 : status, &exchange,
                       &move->new, true);
    return status;
}

/* ---- pieces of a value ---- */

/* Pieces that follow each other, all to be moved or none. */
struct run {
    uint32_t first, end;
    bool moves;
    uint64_t bytes;
};

static bool run_next(const struct move *move, struct run *run)
{
    uint32_t at = run->end;
    if (at >= move->header.pieces)
        return false;
    *run = (struct run){.first = at, .moves = chosen(move, move->pieces[at].block)};
    while (at < move->header.pieces && chosen(move, move->pieces[at].block) == run->moves)
        run->bytes += move->pieces[at++].length;
    run->end = at;
    return true;
}

/* Adds the pieces to the layout: those of runs that move are read, and cut anew. `end`: pieces from there on
 * stay where they are. */
static int runs_lay_out(struct move *move, struct store_layout *layout, uint32_t end)
{
    struct store_session *session = move->session;
    uint32_t grain = format_record_grain(move->header.length);
    struct run run = {.end = 0};
    uint64_t at = 0;
    int status = 0;
    while (!status && run_next(move, &run)) {
        uint8_t *room = session->value.bytes ? session->value.bytes + at : NULL; /* NULL: nothing moves */
        uint32_t count = run.end - run.first;
        layout->to_come = move->header.pieces - run.end;
        if (!run.moves || run.first >= end) {
            status = store_layout_keep(layout, &move->pieces[run.first], count);
            continue;
        }
        at += (store_pieces_room(&move->pieces[run.first], count) + 7) & ~UINT64_C(7);
        status =
            store_pieces_read(session, move->entry->key_length, &move->pieces[run.first], count, 0, 0, room);
        if (!status)
            status = store_layout_cut(layout, room, run.bytes, grain);
    }
    layout->to_come = 0;
    return status;
}

/* How far one exchange moves pieces, and the room for their bytes. */
static int runs_reserve(struct move *move, uint32_t *end)
{
    struct run run = {.end = 0};
    uint64_t room = 0;
    move->bytes = 0;
    *end = 0;
    move->blocks = chosen(move, move->old.address);
    while (move->bytes < RUNS_BYTES && run_next(move, &run)) {
        *end = run.end;
        if (!run.moves)
            continue;
        room += (store_pieces_room(&move->pieces[run.first], run.end - run.first) + 7) & ~UINT64_C(7);
        move->bytes += run.bytes;
        move->blocks += run.end - run.first;
    }
    while (!move->more && run_next(move, &run))
        move->more = run.moves;
    return store_reserve(move->session, &move->session->value, room);
}

static void runs_free(const struct move *move, uint32_t end)
{
    struct run run = {.end = 0};
    while (run_next(move, &run) && run.first < end)
        for (uint32_t i = run.first; run.moves && i < run.end; i++)
            store_piece_free(move->session, move->entry->key_length, &move->pieces[i]);
}

static int pieces_move(struct move *move)
{
    struct store_session *session = move->session;
    const struct store_entry *entry = move->entry;
    struct store_exchange exchange;
    struct store_layout layout;
    uint32_t end;
    int status = runs_reserve(move, &end);
    if (status)
        return status;
    store_layout_begin(&layout, session, entry->key, entry->key_length, move->header.expires);
    status = runs_lay_out(move, &layout, end);
    if (status) {
        store_layout_withdraw(&layout);
        return status;
    }
    assert(layout.length == move->header.length);
    move->new.travels = false;
    status = store_layout_write(&layout, &move->new.reference);
    if (status)
        return status;
    status = move_exchange(move, &exchange);
    if (!status && store_retires(session)) {
        runs_free(move, end);
        store_record_free(session, entry->key, entry->key_length, &move->old, false);
    } else if (!status) {
        /* a merging frees them */
    } else if (status != BANYAN_EUNKNOWN || !exchange.wrote) {
        store_layout_withdraw(&layout);
    }
    return status;
}

/* ---- one key ---- */

/* Counts the record's blocks that are to be moved. 0, STORE_STALE or an error. */
static int record_look(struct move *move)
{
    const struct store_entry *entry = move->entry;
    move->blocks = chosen(move, move->old.address);
    move->header.pieces = 0;
    if (!move->old.room)
        return 0;
    int status =
        store_record_read_header(move->session, entry->key, entry->key_length, &move->old, &move->header);
    if (status)
        return status;
    move->pieces = store_pieces_load(move->session, entry->key_length, move->header.pieces);
    if (!move->pieces)
        return store_fail_memory(move->session);
    for (uint32_t i = 0; i < move->header.pieces; i++)
        move->blocks += chosen(move, move->pieces[i].block);
    return 0;
}

static int record_move(struct move *move)
{
    const struct store_entry *entry = move->entry;
    int status = record_look(move);
    if (status || !move->blocks)
        return status;
    if (!format_record_long(entry->key_length, move->old.length))
        return whole_move(move);
    return move_expired(move, move->header.expires) ? STORE_STALE : pieces_move(move);
}

static int key_move(const struct move *move)
{
    struct store_session *session = move->session;
    struct store_defrag_counts *counts = move->relocation->counts;
    const struct store_entry *entry = move->entry;
    bool moved;
    if (!chosen(move, entry->key_block))
        return 0;
    int status = tree_key_block_move(session->tree, session->store->tree, entry->key, entry->key_length,
                                     entry->key_block, &moved);
    counts->hits += moved;
    counts->misses += !moved;
    counts->bytes += moved ? entry->key_length : 0;
    return status;
}

bool store_relocation_unanswered(int status)
{
    return status == BANYAN_EUNKNOWN || status == BANYAN_ENET || status == BANYAN_ETIMEOUT;
}

int store_relocate(struct store_session *session, const struct store_relocation *relocation,
                   const struct store_entry *entry)
{
    struct move move = {.session = session, .relocation = relocation, .entry = entry};
    struct store_defrag_counts *counts = relocation->counts;
    struct format_value slot;
    uint64_t hits = counts->hits;
    if (tree_rights_unkept(session->tree, session->store->tree, entry->key, entry->key_length)) {
        counts->key_misses++; /* its owner moves it, when there is one */
        return 0;
    }
    int status = key_move(&move);
    if (!status && format_value_decode(entry->raw, entry->raw_length, &slot) && slot.record) {
        store_raw_set(&move.raw, entry->raw, entry->raw_length);
        move.new.reference = slot.reference;
        do {
            move.old = move.new.reference;
            move.more = false;
            status = record_move(&move);
        } while (!status && move.more);
        if (status == STORE_STALE) { /* the change of the slot has dealt with the old record */
            counts->misses++;
            status = 0;
        }
    }
    counts->unanswered += store_relocation_unanswered(status);
    counts->unknown += status == BANYAN_EUNKNOWN;
    counts->key_hits += counts->hits > hits;
    counts->key_misses += !status && counts->hits == hits;
    return status;
}
