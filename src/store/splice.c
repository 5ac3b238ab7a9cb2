/*
 * splice.c - store_edit: a part of a value is changed as one step. A value in the slot is changed under the
 * leaf's lock if it stays there. Else the pieces around the part are read, changed and written anew beside
 * the old ones, with a header that names them and the pieces that stay, and the reference is exchanged if the
 * slot still holds the bytes that were looked at (S5). The operation whose exchange took effect then frees
 * the old header, and exactly the pieces that the new one does not name (S3).
 */
#include "store/exchange.h"
#include "store/guard.h"
#include "store/layout.h"
#include "store/pieces.h"
#include "store/read.h"
#include "store/window.h"

#include <assert.h>

/* Internal statuses: the record has expired, and the step goes on as if there were none; the change came to
 * nothing. */
#define SPLICE_AGAIN   3
#define SPLICE_NOTHING 4

enum splice_next {
    SPLICE_DONE,   /* decided, and stored if there was something to store */
    SPLICE_RECORD, /* the slot refers to a record */
    SPLICE_STORE,  /* the value becomes too long for the slot */
};

struct splice {
    struct store_session *session;
    const void *key;
    size_t key_length;
    uint64_t now;
    const struct store_editor *editor;
    struct store_edit edit;
    /* Of session->seen, the slot's bytes. */
    struct format_value slot;
    bool existed, expired;
    uint64_t whole, after, expires; /* length of the value before and after, its expiry */
    enum splice_next next;
    bool wrote;
    int status; /* BANYAN_EVALUESIZE: no such value can be */
};

/* Asks where the change is to be. False: nothing is to be done. */
static bool splice_aim(struct splice *splice)
{
    struct store_edit *edit = &splice->edit;
    *edit = (struct store_edit){0};
    splice->status = 0;
    splice->after = splice->whole;
    if (splice->editor->aim(splice->editor->context, splice->existed, splice->whole, edit) != STORE_PUT)
        return false;
    if (!edit->length)
        return !splice->existed;
    if (edit->offset > STORE_VALUE_MAX || edit->length > STORE_VALUE_MAX - edit->offset) {
        splice->after = edit->offset > UINT64_MAX - edit->length ? UINT64_MAX : edit->offset + edit->length;
        splice->status = BANYAN_EVALUESIZE;
        return false;
    }
    if (edit->offset + edit->length > splice->whole)
        splice->after = edit->offset + edit->length;
    return true;
}

/* False: the value stays as it is. */
static bool splice_change(struct splice *splice, uint8_t *bytes)
{
    if (!splice->edit.length ||
        splice->editor->change(splice->editor->context, &splice->edit, bytes) == STORE_PUT)
        return true;
    splice->after = splice->whole;
    return false;
}

/* The value is absent: it has expired, or there is none. */
static void splice_absent(struct splice *splice, bool expired)
{
    splice->expired = expired;
    splice->existed = false;
    splice->whole = splice->after = splice->expires = 0;
}

/* Takes session->seen apart. False if the slot refers to a record, or was written by no store. */
static bool splice_look(struct splice *splice)
{
    const struct store_raw *seen = &splice->session->seen;
    splice_absent(splice, false);
    splice->slot = (struct format_value){0};
    if (!seen->present)
        return true;
    if (!format_value_decode(seen->bytes, seen->length, &splice->slot))
        return false;
    splice->existed = true;
    splice->whole = splice->slot.length;
    splice->expires = splice->slot.expires;
    if (!splice->slot.record && store_expired(splice->expires, splice->now))
        splice_absent(splice, true);
    return !splice->slot.record;
}

/* ---- values in the slot ---- */

/* Under the leaf's lock. */
static enum tree_verdict splice_decide(void *context, const void *old, size_t old_length, void *value,
                                       size_t *length)
{
    struct splice *splice = context;
    struct store_session *session = splice->session;
    uint8_t bytes[FORMAT_VALUE_MAX] = {0};
    struct store_raw put;
    splice->wrote = false;
    splice->next = SPLICE_RECORD;
    store_raw_set(&session->seen, old, old_length);
    if (!splice_look(splice))
        return TREE_KEEP;
    splice->next = SPLICE_DONE;
    if (!splice_aim(splice))
        return TREE_KEEP;
    splice->next = SPLICE_STORE;
    if (!store_slot_fits(session->store, splice->after, splice->expires))
        return TREE_KEEP;
    splice->next = SPLICE_DONE;
    if (splice->existed && splice->whole)
        memcpy(bytes, splice->slot.bytes, splice->whole);
    if (!splice_change(splice, bytes + splice->edit.offset))
        return TREE_KEEP;
    store_slot_inline(
        &put, &(struct store_value){.bytes = bytes, .length = splice->after, .expires = splice->expires});
    memcpy(value, put.bytes, put.length);
    *length = put.length;
    splice->wrote = true;
    return TREE_PUT;
}

/* ---- storing ---- */

/* Exchanges session->seen for the reference. */
static int splice_exchange(struct splice *splice, struct store_fresh *fresh, bool *unknown)
{
    return store_exchange_reference(splice->session, splice->key, splice->key_length, &splice->session->seen,
                                    fresh, unknown);
}

/* Writes a record of the value's bytes, and exchanges the slot's for its reference. */
static int store_bytes(struct splice *splice, const uint8_t *bytes)
{
    struct store_session *session = splice->session;
    const struct store_value value = {.bytes = bytes, .length = splice->after, .expires = splice->expires};
    struct store_fresh fresh;
    bool unknown;
    int status = store_record_prepare(session, splice->key, splice->key_length, &value, &fresh);
    if (status)
        return status;
    status = splice_exchange(splice, &fresh, &unknown);
    if (status && !unknown)
        store_fresh_free(session, splice->key, splice->key_length, &fresh, status);
    return status;
}

/* The same of a value in pieces. `status` is that of the layout so far. */
static int store_layout(struct splice *splice, struct store_layout *layout, int status)
{
    struct store_fresh fresh = {.travels = false};
    bool unknown;
    if (status) {
        store_layout_withdraw(layout);
        return status;
    }
    assert(layout->length == splice->after);
    status = store_layout_write(layout, &fresh.reference);
    if (status)
        return status;
    status = splice_exchange(splice, &fresh, &unknown);
    if (status && !unknown)
        store_layout_withdraw(layout);
    return status;
}

/* ---- values that are not in pieces ---- */

/* What the slot held has left it. */
static void splice_retire(struct splice *splice)
{
    store_retire(splice->session, splice->key, splice->key_length, &splice->session->seen);
    if (splice->expired)
        store_count_up(splice->session, expired, 1);
}

/* Behind a long gap: it gets no block, so the value lies in pieces. */
static int grow_apart(struct splice *splice, const uint8_t *old)
{
    struct store_session *session = splice->session;
    const struct store_edit *edit = &splice->edit;
    const uint32_t grain = format_record_grain(splice->after);
    struct store_layout layout;
    uint8_t *bytes = store_sink_room(session, STORE_SINK_BUFFER, edit->length);
    int status = 0;
    if (!bytes)
        return BANYAN_ENOMEM;
    memset(bytes, 0, edit->length);
    if (!splice_change(splice, bytes))
        return SPLICE_NOTHING;
    pool_session_begin(tree_session_pool(session->tree));
    store_layout_begin(&layout, session, splice->key, splice->key_length, splice->expires);
    if (splice->whole)
        status = store_layout_cut(&layout, old, splice->whole, grain);
    if (!status)
        status = store_layout_zeros(&layout, edit->offset - splice->whole);
    if (!status)
        status = store_layout_cut(&layout, bytes, edit->length, grain);
    return store_layout(splice, &layout, status);
}

/* Nothing is stored yet, or a short value, `old`; the new one needs a record. */
static int splice_grow(struct splice *splice, const uint8_t *old)
{
    const uint64_t offset = splice->edit.offset;
    int status;
    if (offset >= splice->whole + format_record_grain(splice->after)) {
        status = grow_apart(splice, old);
    } else {
        uint8_t *bytes = store_sink_room(splice->session, STORE_SINK_BUFFER, splice->after);
        if (!bytes)
            return BANYAN_ENOMEM;
        if (splice->whole)
            memcpy(bytes, old, splice->whole);
        if (!splice->edit.blind || offset > splice->whole)
            memset(bytes + splice->whole, 0, splice->after - splice->whole);
        status = splice_change(splice, bytes + offset) ? store_bytes(splice, bytes) : SPLICE_NOTHING;
    }
    if (!status)
        splice_retire(splice);
    return status == SPLICE_NOTHING ? 0 : status;
}

/* A short value takes the place of a record that has expired. */
static int splice_shrink(struct splice *splice)
{
    struct store_session *session = splice->session;
    uint8_t bytes[FORMAT_VALUE_MAX] = {0};
    struct store_raw put;
    struct store_exchange exchange = {.expected = &session->seen, .put = &put};
    assert(!splice->whole && splice->after <= sizeof bytes);
    if (!splice_change(splice, bytes + splice->edit.offset))
        return 0;
    store_slot_inline(&put, &(struct store_value){.bytes = bytes, .length = splice->after});
    int status = store_exchange_run(session, splice->key, splice->key_length, &exchange);
    if (status || !exchange.matched)
        return status ? status : STORE_LOST;
    splice_retire(splice);
    return 0;
}

/* The entry counts as absent, or is in the slot; outside of the lock. *under_lock: the value stays in the
 * slot, so the change is made there. */
static int splice_short(struct splice *splice, bool *under_lock)
{
    struct store_session *session = splice->session;
    uint8_t old[FORMAT_VALUE_MAX];
    *under_lock = false;
    if (!splice_aim(splice)) {
        if (splice->expired)
            store_expire(session, splice->key, splice->key_length, &session->seen);
        return 0;
    }
    if (store_slot_fits(session->store, splice->after, splice->expires)) {
        *under_lock = !splice->slot.record;
        return *under_lock ? 0 : splice_shrink(splice);
    }
    if (splice->existed && splice->whole)
        memcpy(old, splice->slot.bytes, splice->whole);
    return splice_grow(splice, old);
}

/* A value that follows its record's header, and is written anew as a whole. */
static int splice_whole(struct splice *splice)
{
    struct store_session *session = splice->session;
    const struct format_reference *reference = &splice->slot.reference;
    const uint32_t header = format_record_header_bytes(splice->key_length, 0);
    struct store_value value;
    int status = store_reserve(session, &session->value, header + splice->after);
    if (!status)
        status = store_record_read(session, splice->key, splice->key_length, reference, FORMAT_PART_VALUE,
                                   STORE_SINK_BUFFER, &value);
    if (status)
        return status;
    splice->expires = value.expires;
    if (store_expired(value.expires, splice->now)) {
        splice_absent(splice, true);
        return SPLICE_AGAIN;
    }
    uint8_t *bytes = session->value.bytes + header;
    assert(bytes == value.bytes);
    memset(bytes + splice->whole, 0, splice->after - splice->whole);
    if (!splice_change(splice, bytes + splice->edit.offset))
        return 0;
    status = store_bytes(splice, bytes);
    if (!status)
        splice_retire(splice);
    return status;
}

/* ---- values in pieces ---- */

/* What becomes of a value's pieces. */
struct splice_pieces {
    const struct format_piece *old;
    uint32_t count;
    struct window window;
    uint8_t *bytes;  /* of the window */
    uint8_t *merged; /* of the two pieces that become one */
};

/* The window as pieces: the old ones, and zeros. */
struct span {
    struct format_piece *pieces;
    uint32_t count;
    uint64_t at, end; /* the window's bytes that have no piece yet */
};

static void span_add(struct span *span, const struct format_piece *piece, uint64_t end)
{
    if (end > span->end)
        end = span->end;
    if (end <= span->at)
        return;
    struct format_piece *added = &span->pieces[span->count++];
    *added = *piece;
    assert(piece->block == GADDR_NULL || piece->length == end - span->at);
    added->length = (uint32_t)(end - span->at);
    span->at = end;
}

/* Reads the window's bytes, and the two pieces that become one. Those that will be overwritten are not read.
 */
static int window_read(struct splice *splice, struct splice_pieces *pieces)
{
    static const struct format_piece zeros = {.length = 0};
    struct store_session *session = splice->session;
    const struct window *window = &pieces->window;
    const struct store_edit *edit = &splice->edit;
    const uint64_t skip = edit->offset - window->start;
    struct span span = {.at = window->start, .end = window->start + window->length};
    uint64_t begin = 0;
    store_arena_reset(session);
    span.pieces = store_arena_take(session, (window->end - window->first + 2) * sizeof *span.pieces);
    if (!span.pieces)
        return store_fail_memory(session);
    for (uint32_t i = 0; i < window->end; i++) {
        begin += pieces->old[i].length;
        if (i >= window->first)
            span_add(&span, &pieces->old[i], begin);
    }
    span_add(&span, &zeros, edit->offset);
    span_add(&span, &zeros, span.end);
    const uint64_t room = store_pieces_room(span.pieces, span.count);
    const bool merge = window->merge != UINT32_MAX;
    const struct format_piece *two = pieces->old + (merge ? window->merge : 0);
    pieces->bytes =
        store_sink_room(session, STORE_SINK_BUFFER, room + (merge ? store_pieces_room(two, 2) : 0));
    if (!pieces->bytes)
        return BANYAN_ENOMEM;
    pieces->merged = pieces->bytes + room;
    int status = store_pieces_read(session, splice->key_length, span.pieces, span.count, skip,
                                   edit->blind ? skip + edit->length : skip, pieces->bytes);
    if (!status && merge)
        status = store_pieces_read(session, splice->key_length, two, 2, 0, 0, pieces->merged);
    return status;
}

/* Adds the old pieces first to end - 1, of which two may become one. */
static int layout_keep(struct store_layout *layout, const struct splice_pieces *pieces, uint32_t first,
                       uint32_t end)
{
    const uint32_t merge = pieces->window.merge;
    const struct format_piece *old = pieces->old;
    if (merge < first || merge >= end)
        return store_layout_keep(layout, old + first, end - first);
    int status = store_layout_keep(layout, old + first, merge - first);
    if (!status)
        status = store_layout_cut(layout, pieces->merged, (uint64_t)old[merge].length + old[merge + 1].length,
                                  pieces->window.grain);
    return status ? status : store_layout_keep(layout, old + merge + 2, end - merge - 2);
}

static int layout_make(struct store_layout *layout, const struct splice_pieces *pieces)
{
    const struct window *window = &pieces->window;
    int status = layout_keep(layout, pieces, 0, window->first);
    layout->to_come = pieces->count - window->end + (window->zeros_behind != 0);
    if (!status && window->zeros_before)
        status = store_layout_zeros(layout, window->zeros_before);
    if (!status)
        status = store_layout_cut(layout, pieces->bytes, window->length, window->grain);
    layout->to_come = 0;
    if (!status && window->zeros_behind)
        status = store_layout_zeros(layout, window->zeros_behind);
    return status ? status : layout_keep(layout, pieces, window->end, pieces->count);
}

static bool piece_replaced(const struct window *window, uint32_t number)
{
    return (number >= window->first && number < window->end) ||
           (window->merge != UINT32_MAX && (number == window->merge || number == window->merge + 1));
}

/* The exchange has taken effect: frees the old header, and the pieces that the new one does not name. */
static void pieces_retire(struct splice *splice, const struct splice_pieces *pieces)
{
    struct store_session *session = splice->session;
    const struct format_reference *old = &splice->slot.reference;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < pieces->count; i++)
        if (piece_replaced(&pieces->window, i))
            bytes += store_piece_free(session, splice->key_length, &pieces->old[i]);
    if (old->room) { /* else the old header stands before its piece, and stays or goes with that */
        uint32_t header = format_record_header_bytes(splice->key_length, old->room);
        pool_block_release(tree_session_pool(session->tree), old->address, header);
        bytes += header;
    }
    store_count_up(session, records_freed, 1);
    store_count_up(session, bytes_freed, bytes);
}

static int pieces_store(struct splice *splice, const struct splice_pieces *pieces)
{
    struct store_session *session = splice->session;
    const struct window *window = &pieces->window;
    int status;
    if (window->length == splice->after && splice->after <= window->grain) {
        status = store_bytes(splice, pieces->bytes);
    } else {
        struct store_layout layout;
        pool_session_begin(tree_session_pool(session->tree));
        store_layout_begin(&layout, session, splice->key, splice->key_length, splice->expires);
        status = store_layout(splice, &layout, layout_make(&layout, pieces));
    }
    if (!status && store_retires(splice->session))
        pieces_retire(splice, pieces);
    return status;
}

/* The pieces that the header in session->header names; of a record whose value follows its header, that. */
static const struct format_piece *pieces_of(struct splice *splice, const struct format_record *record,
                                            uint32_t *count)
{
    struct store_session *session = splice->session;
    const struct format_reference *reference = &splice->slot.reference;
    *count = record->pieces;
    if (reference->room)
        return store_pieces_load(session, splice->key_length, record->pieces);
    if (store_reserve(session, &session->pieces, sizeof(struct format_piece)))
        return NULL;
    struct format_piece *piece = (void *)session->pieces.bytes;
    *piece = (struct format_piece){
        .block = reference->address, .hash = record->value_hash, .length = reference->length, .behind = true};
    *count = 1;
    return piece;
}

static int splice_pieces(struct splice *splice)
{
    struct store_session *session = splice->session;
    struct splice_pieces pieces = {.old = NULL};
    struct format_record record;
    int status =
        store_record_read_header(session, splice->key, splice->key_length, &splice->slot.reference, &record);
    if (status)
        return status;
    splice->expires = record.expires;
    if (store_expired(record.expires, splice->now)) {
        splice_absent(splice, true);
        return SPLICE_AGAIN;
    }
    if (!splice_aim(splice))
        return 0;
    pieces.old = pieces_of(splice, &record, &pieces.count);
    if (!pieces.old)
        return BANYAN_ENOMEM;
    window_choose(pieces.old, pieces.count, splice->edit.offset, splice->edit.length, &pieces.window);
    status = window_read(splice, &pieces);
    if (status || !splice_change(splice, pieces.bytes + (splice->edit.offset - pieces.window.start)))
        return status;
    return pieces_store(splice, &pieces);
}

/* ---- the step ---- */

static int splice_record(struct splice *splice)
{
    const struct format_reference *reference = &splice->slot.reference;
    bool whole = false;
    if (!reference->room) {
        bool wanted = splice_aim(splice); /* as if it had not expired, which is seen later */
        if (!wanted && !reference->expires)
            return 0;
        whole = wanted &&
                (splice->after <= WINDOW_WHOLE_MAX || (splice->edit.offset < splice->whole &&
                                                       splice->whole <= format_record_grain(splice->after)));
    }
    return whole ? splice_whole(splice) : splice_pieces(splice);
}

/* One attempt on the slot's bytes in session->seen. *again: another slot was met under the lock. */
static int splice_try(struct splice *splice, bool *again)
{
    struct store_session *session = splice->session;
    bool under_lock;
    int status = SPLICE_AGAIN;
    *again = false;
    if (!splice_look(splice)) {
        if (!splice->existed)
            return STORE_STALE;
        status = splice_record(splice);
    }
    if (status != SPLICE_AGAIN)
        return status;
    status = splice_short(splice, &under_lock);
    if (status || !under_lock)
        return status;
    store_guard_begin(session, splice->key, splice->key_length);
    status = tree_modify(session->tree, session->store->tree, splice->key, splice->key_length, splice_decide,
                         splice);
    store_guard_end(session);
    *again = !status && splice->next != SPLICE_DONE;
    if (splice->wrote)
        store_changed(session, splice->key, splice->key_length);
    if (!status && splice->wrote)
        splice_retire(splice);
    return status;
}

static int splice_lookup(struct splice *splice)
{
    struct store_session *session = splice->session;
    struct store_raw *seen = &session->seen;
    size_t length = sizeof seen->bytes;
    int status = tree_lookup(session->tree, session->store->tree, splice->key, splice->key_length,
                             seen->bytes, &length);
    if (status && status != BANYAN_ENOTFOUND)
        return status;
    seen->present = !status;
    seen->length = status ? 0 : (uint8_t)length;
    return 0;
}

static int splice_run(struct splice *splice)
{
    struct store_session *session = splice->session;
    struct store_patience patience;
    patience.tries = 0;
    bool again = false;
    for (unsigned attempt = 0;; attempt++) {
        int status = again ? 0 : splice_lookup(splice);
        if (!status)
            status = splice_try(splice, &again);
        if (status == STORE_STALE)
            status = store_patience(session, &patience, &session->seen);
        else if (status == STORE_LOST)
            store_back_off(session, attempt);
        else if (status || !again)
            return status;
        if (status && status != STORE_LOST)
            return status;
    }
}

int store_edit(struct store_session *session, const void *key, size_t key_length,
               const struct store_editor *editor, uint64_t *whole, bool *existed)
{
    struct splice splice = {.session = session,
                            .key = key,
                            .key_length = key_length,
                            .now = store_begin(session),
                            .editor = editor};
    int status = store_key_check(session, key, key_length);
    if (!status)
        status = splice_run(&splice);
    if (!status && splice.status)
        status = store_length_check(session, splice.after);
    if (status)
        return status;
    *whole = splice.after;
    if (existed)
        *existed = splice.existed;
    return 0;
}

/* ---- plain bytes ---- */

struct overwrite {
    uint64_t offset;
    const void *bytes;
    size_t length;
};

static enum store_verdict overwrite_aim(void *context, bool existed, uint64_t whole, struct store_edit *edit)
{
    const struct overwrite *overwrite = context;
    bool append = overwrite->offset == STORE_AT_END;
    *edit = (struct store_edit){
        .offset = append ? whole : overwrite->offset, .length = overwrite->length, .blind = true};
    return overwrite->length || append ? STORE_PUT : STORE_KEEP;
}

static enum store_verdict overwrite_change(void *context, const struct store_edit *edit, uint8_t *bytes)
{
    const struct overwrite *overwrite = context;
    memcpy(bytes, overwrite->bytes, overwrite->length);
    return STORE_PUT;
}

int store_splice(struct store_session *session, const void *key, size_t key_length, uint64_t offset,
                 const void *bytes, size_t length, uint64_t *whole)
{
    struct overwrite overwrite = {.offset = offset, .bytes = bytes, .length = length};
    const struct store_editor editor = {
        .aim = overwrite_aim, .change = overwrite_change, .context = &overwrite};
    return store_edit(session, key, key_length, &editor, whole, NULL);
}
