/*
 * test_pieces.c - values in pieces, and changes of a part of a value: which pieces are written anew, values
 * that grow and are changed at random beside a copy that is too simple to be wrong, what calls cost, records
 * that are moved, pools without a block of the right size, damage. One task, the local fabric.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "store/pieces.h"
#include "store/relocate.h"
#include "store/window.h"
#include "stores.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)

static struct stores stores;
static struct store_session *session;
static struct random random_bytes;

static int set_up_pool(uint64_t pool_bytes)
{
    struct world_options options;
    stores_options_default(&options);
    options.memory_nodes = 2;
    if (pool_bytes)
        options.pool_bytes = pool_bytes;
    random_seed(&random_bytes, world_seed(12));
    assert_int_equal(stores_create(&stores, &options), 0);
    session = stores.world.tasks[0].store_session;
    return 0;
}

static int set_up(void **state)
{
    return set_up_pool(0);
}

static int set_up_small(void **state)
{
    return set_up_pool(24 * MIB);
}

/* Each block of the pool has one owner. */
static void check_blocks(struct store_check_report *report)
{
    struct store_check_report own;
    if (stores_check(&stores, report ? report : &own))
        fail_msg("%s", stores.world.error.text);
    assert_int_equal(stores.world.lost_bytes, 0);
}

static int tear_down(void **state)
{
    int status = stores_check(&stores, NULL);
    if (status)
        fprintf(stderr, "%s\n", stores.world.error.text);
    stores_destroy(&stores);
    return status ? -1 : 0;
}

/* ---- a value and its copy ---- */

struct copy {
    uint8_t *bytes; /* STORE_VALUE_MAX of them */
    uint64_t length;
    bool present;
};

static struct copy copy_create(void)
{
    struct copy copy = {.bytes = calloc(1, STORE_VALUE_MAX)};
    assert_non_null(copy.bytes);
    return copy;
}

static uint64_t below(uint64_t bound)
{
    return random_below(&random_bytes, bound);
}

static void fill(uint8_t *bytes, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)random_next(&random_bytes);
}

/* What store_splice does, to the copy. */
static void copy_splice(struct copy *copy, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    uint64_t at = offset == STORE_AT_END ? copy->length : offset;
    if (at > copy->length && length)
        memset(copy->bytes + copy->length, 0, at - copy->length);
    if (length)
        memcpy(copy->bytes + at, bytes, length);
    if (length && at + length > copy->length)
        copy->length = at + length;
    copy->present = copy->present || length || offset == STORE_AT_END;
}

static void splice(const char *key, struct copy *copy, uint64_t offset, const uint8_t *bytes, uint64_t length)
{
    uint64_t whole = 77;
    int status = store_splice(session, key, strlen(key), offset, bytes, length, &whole);
    if (status)
        fail_msg("splice of %llu bytes at %llu: %d %s", (unsigned long long)length,
                 (unsigned long long)offset, status, tree_session_error(stores.world.tasks[0].session)->text);
    copy_splice(copy, offset, bytes, length);
    assert_int_equal(whole, copy->length);
}

static void expect_whole(const char *key, const struct copy *copy)
{
    struct store_value value;
    int status = store_get(session, key, strlen(key), &value);
    assert_int_equal(status, copy->present ? 0 : BANYAN_ENOTFOUND);
    if (status)
        return;
    assert_int_equal(value.length, copy->length);
    assert_int_equal(memcmp(value.bytes, copy->bytes, copy->length), 0);
}

static struct store_part part_chosen(void *context, uint64_t whole)
{
    return *(const struct store_part *)context;
}

static void expect_part(const char *key, const struct copy *copy, uint64_t offset, uint64_t length)
{
    struct store_value value;
    struct store_part part = {offset, length};
    int status = store_get_part(session, key, strlen(key), part_chosen, &part, &value);
    assert_int_equal(status, copy->present ? 0 : BANYAN_ENOTFOUND);
    if (status)
        return;
    uint64_t from = offset < copy->length ? offset : copy->length;
    uint64_t wanted = length < copy->length - from ? length : copy->length - from;
    assert_int_equal(value.whole, copy->length);
    assert_int_equal(value.length, wanted);
    assert_int_equal(memcmp(value.bytes, copy->bytes + from, wanted), 0);
}

/* How many pieces the key's record has; 0: none. */
static uint32_t pieces_of(const char *key, struct store_raw *raw)
{
    struct format_value slot;
    struct format_record record;
    size_t length = sizeof raw->bytes;
    assert_int_equal(tree_lookup(session->tree, session->store->tree, key, strlen(key), raw->bytes, &length),
                     0);
    raw->present = true;
    raw->length = (uint8_t)length;
    assert_true(format_value_decode(raw->bytes, length, &slot));
    if (!slot.record)
        return 0;
    assert_int_equal(store_record_read_header(session, key, strlen(key), &slot.reference, &record), 0);
    return record.pieces;
}

/* ---- sizes ---- */

static void rooms(void **state)
{
    assert_int_equal(format_record_room_pieces(1), 2);
    assert_int_equal(format_record_room_pieces(2), 3);
    assert_int_equal(format_record_room_pieces(3), 4);
    assert_int_equal(format_record_room_pieces(4), 6);
    assert_int_equal(format_record_room_pieces(FORMAT_ROOM_MAX), FORMAT_PIECES_MAX);
    for (uint32_t pieces = 1; pieces <= FORMAT_PIECES_MAX; pieces++) {
        uint8_t room = format_record_room(pieces);
        assert_true(room >= 1 && room <= FORMAT_ROOM_MAX);
        assert_true(format_record_room_pieces(room) >= pieces);
        assert_true(room == 1 || format_record_room_pieces((uint8_t)(room - 1)) < pieces);
        assert_true(format_record_header_bytes(FORMAT_KEY_MAX, room) <= FORMAT_RECORD_HEADER_MAX);
    }
    /* The longest value has its place, also when every second piece is small. */
    assert_true(2 * STORE_VALUE_MAX / format_record_grain(STORE_VALUE_MAX) + 8 < FORMAT_PIECES_MAX);
}

/* A header of three pieces is valid as it was written, and not when a piece says what cannot be, even if its
 * hash is right. */
static void forged_headers(void **state)
{
    static uint8_t header[FORMAT_RECORD_HEADER_MAX];
    const struct format_piece pieces[] = {{.block = 4096, .hash = 1, .length = 100},
                                          {.length = 70000},
                                          {.block = 8192, .hash = 2, .length = 7, .behind = true}};
    struct format_record record = {.key = "key", .key_length = 3, .stamp = 5, .length = 70107, .pieces = 3},
                         got;
    struct format_reference reference;
    const uint32_t entries = FORMAT_RECORD_HEADER_FIXED + 3;
    for (unsigned forgery = 0; forgery < 8; forgery++) {
        format_record_begin(header, &record);
        for (uint32_t i = 0; i < 3; i++)
            format_record_piece_set(header, 3, i, &pieces[i]);
        if (forgery == 1)
            header[24] = 4; /* more pieces, which have no bytes */
        if (forgery == 2)
            header[24] = 2;
        if (forgery == 3)
            header[24 + 7] = 1;
        if (forgery == 4)
            header[entries + 16]++; /* the sum */
        if (forgery == 5)
            header[entries + FORMAT_PIECE_ENTRY] = 1; /* zeros behind a header */
        if (forgery == 6)
            header[entries + FORMAT_PIECE_ENTRY + 1] = 16; /* a block of 70,000 bytes */
        if (forgery == 7)
            header[24] = 0;
        format_record_seal(header, 32, &record, &reference);
        assert_int_equal(reference.room, 2);
        bool valid = format_record_validate(&reference, "key", 3, FORMAT_PART_HEADER, header, &got);
        assert_int_equal(valid, !forgery);
    }
    format_record_begin(header, &record);
    for (uint32_t i = 0; i < 3; i++)
        format_record_piece_set(header, 3, i, &pieces[i]);
    format_record_seal(header, 32, &record, &reference);
    assert_true(format_record_validate(&reference, "key", 3, FORMAT_PART_HEADER, header, &got));
    assert_int_equal(got.pieces, 3);
    assert_int_equal(format_piece_block_bytes(3, &pieces[0]), 100);
    assert_int_equal(format_piece_block_bytes(3, &pieces[1]), 0);
    assert_int_equal(format_piece_block_bytes(3, &pieces[2]), 47);
    assert_int_equal(format_piece_address(3, &pieces[2]), 8192 + 40);
    for (uint32_t i = 0; i < 3; i++) {
        struct format_piece piece = format_record_piece(header, 3, i);
        assert_int_equal(piece.block, pieces[i].block);
        assert_int_equal(piece.length, pieces[i].length);
        assert_int_equal(piece.behind, pieces[i].behind);
    }
    /* Every byte of the room counts. */
    for (uint32_t at = 0; at < format_record_header_bytes(3, 2); at++) {
        header[at] ^= 1;
        assert_false(format_record_validate(&reference, "key", 3, FORMAT_PART_HEADER, header, &got));
        header[at] ^= 1;
    }
    /* A slot that names a room that there is not, or a long value without pieces, was written by no store. */
    uint8_t slot[FORMAT_REFERENCE_BYTES];
    struct format_value value;
    assert_int_equal(format_value_encode_reference(slot, &reference), FORMAT_REFERENCE_BYTES);
    assert_true(format_value_decode(slot, sizeof slot, &value));
    assert_int_equal(value.reference.room, 2);
    assert_int_equal(value.reference.address, 32);
    slot[1] = (uint8_t)((slot[1] & 0xe0) | (FORMAT_ROOM_MAX + 1));
    assert_false(format_value_decode(slot, sizeof slot, &value));
    slot[1] &= 0xe0;
    assert_false(format_value_decode(slot, sizeof slot, &value));
}

/* ---- windows ---- */

/* The pieces of a value after a change, of lengths alone. */
static uint32_t window_apply(struct format_piece *pieces, uint32_t count, uint64_t offset, uint64_t length)
{
    static struct format_piece after[2 * FORMAT_PIECES_MAX];
    struct window window;
    uint64_t total = 0, sum = 0, start = 0;
    uint32_t n = 0;
    window_choose(pieces, count, offset, length, &window);
    for (uint32_t i = 0; i < count; i++) {
        total += pieces[i].length;
        start += i < window.first ? pieces[i].length : 0;
    }
    assert_true(window.first <= window.end && window.end <= count);
    assert_true(window.start <= offset && window.start + window.length >= offset + length);
    uint64_t gap = window.first == count && offset > total ? window.zeros_before : 0;
    if (!gap)
        assert_int_equal(start + window.zeros_before, window.start);
    for (uint32_t i = 0; i <= count; i++) {
        if (i == window.first) {
            if (window.zeros_before) {
                if (n && !after[n - 1].block)
                    after[n - 1].length += (uint32_t)window.zeros_before;
                else
                    after[n++] = (struct format_piece){.length = (uint32_t)window.zeros_before};
            }
            for (uint64_t left = window.length; left;) {
                uint32_t some = left < window.grain ? (uint32_t)left : window.grain;
                after[n++] = (struct format_piece){.block = 32, .length = some};
                left -= some;
            }
            if (window.zeros_behind)
                after[n++] = (struct format_piece){.length = (uint32_t)window.zeros_behind};
        }
        if (i == count || (i >= window.first && i < window.end))
            continue;
        if (i == window.merge) {
            assert_true(i + 1 < window.first || i >= window.end);
            assert_true(pieces[i].block && pieces[i + 1].block);
            after[n] = pieces[i];
            after[n++].length += pieces[i + 1].length;
            assert_true(after[n - 1].length <= window.grain);
            i++;
            assert_true(i != window.first);
        } else {
            after[n++] = pieces[i];
        }
    }
    for (uint32_t i = 0; i < n; i++)
        sum += after[i].length;
    assert_int_equal(sum, total > offset + length ? total : offset + length);
    assert_true(n <= FORMAT_PIECES_MAX);
    memcpy(pieces, after, n * sizeof *pieces);
    return n;
}

/* However a value is changed, it keeps few pieces. */
static void windows(void **state)
{
    static struct format_piece pieces[2 * FORMAT_PIECES_MAX];
    random_seed(&random_bytes, world_seed(13));
    for (unsigned round = 0; round < 24; round++) {
        uint32_t count = 1;
        const uint64_t reach = round % 4 == 0 ? STORE_VALUE_MAX : UINT64_C(100000) << round % 8;
        pieces[0] = (struct format_piece){.block = 32, .length = 30000};
        uint64_t total = 30000;
        for (unsigned i = 0; i < 4000; i++) {
            uint64_t offset = below(reach < STORE_VALUE_MAX - 70000 ? reach : STORE_VALUE_MAX - 70000);
            uint64_t length = 1 + below(i % 3 ? 300 : 70000);
            if (round % 5 == 1) /* appends of falling lengths: the least favourable ones */
                length = 1 + 20000 / (1 + i % 13);
            if (round % 5 == 1 || i % 7 == 0)
                offset = total;
            if (offset + length > STORE_VALUE_MAX)
                continue;
            count = window_apply(pieces, count, offset, length);
            total = total > offset + length ? total : offset + length;
            uint64_t grain = format_record_grain(total), most = 2 * ((total + grain - 1) / grain) + 10;
            if (total <= 16 * MIB)
                assert_true(count <= most);
        }
    }
}

/* A value that grows by small appends is written a few times over, whatever its length. */
static void appends_are_cheap(void **state)
{
    static struct format_piece pieces[2 * FORMAT_PIECES_MAX];
    uint64_t total = 9000, written = 0;
    uint32_t count = 1, most = 0;
    pieces[0] = (struct format_piece){.block = 32, .length = 9000};
    while (total < 4 * MIB) {
        struct window window;
        window_choose(pieces, count, total, 100, &window);
        written += window.length;
        count = window_apply(pieces, count, total, 100);
        total += 100;
        most = count > most + total / (32 * KIB) ? count - (uint32_t)(total / (32 * KIB)) : most;
    }
    assert_true(count < 4 * MIB / (32 * KIB) * 3 / 2 + 8);
    assert_true(written / (total / 100) < 4096); /* bytes for each append of 100 */
}

/* ---- growth ---- */

static void growth(void **state)
{
    struct copy copy = copy_create();
    uint8_t bytes[100];
    struct store_raw raw;
    unsigned i = 0;
    splice("grows", &copy, STORE_AT_END, NULL, 0);
    expect_whole("grows", &copy);
    for (; copy.length < 1500; i++) { /* byte by byte through the slot */
        fill(bytes, 1 + i % 7);
        splice("grows", &copy, STORE_AT_END, bytes, 1 + i % 7);
        expect_whole("grows", &copy);
    }
    for (; copy.length < 300 * KIB; i++) {
        fill(bytes, sizeof bytes);
        splice("grows", &copy, STORE_AT_END, bytes, sizeof bytes);
        if (i % 16 == 0) {
            expect_whole("grows", &copy);
            expect_part("grows", &copy, copy.length - 150, 200);
        }
        if (i % 200 == 0)
            check_blocks(NULL);
    }
    expect_whole("grows", &copy);
    assert_in_range(pieces_of("grows", &raw), 10, 24);
    struct store_check_report report;
    check_blocks(&report);
    assert_int_equal(report.values_record, 1);
    assert_int_equal(report.record_blocks, 1 + pieces_of("grows", &raw));
    assert_int_equal(store_delete(session, "grows", 5), 0);
    check_blocks(&report);
    assert_int_equal(report.record_blocks, 0);
    struct store_stats stats;
    store_stats(stores.world.computes[0].store, &stats);
    assert_int_equal(stats.records_written, stats.records_freed);
    assert_int_equal(stats.bytes_written, stats.bytes_freed);
    free(copy.bytes);
}

/* Each size grows into each larger one, by an append and by a write behind the end. */
static void sizes(void **state)
{
    static const uint64_t lengths[] = {0,     1,     7,          8,     15,    16,     17,
                                       300,   4096,  8191,       8192,  8193,  30000,  32768,
                                       40000, 65000, 65536 - 38, 65536, 70000, 262144, 300001};
    struct copy copy = copy_create(), none = {.bytes = copy.bytes};
    uint8_t *bytes = malloc(400000);
    assert_non_null(bytes);
    fill(bytes, 400000);
    const unsigned count = sizeof lengths / sizeof *lengths;
    for (unsigned from = 0; from < count; from++)
        for (unsigned to = 0; to < count; to++)
            for (unsigned expiring = 0; expiring < 2; expiring++) {
                copy = none;
                uint64_t expires = expiring ? 5000 : 0;
                assert_int_equal(store_put(session, "k", 1, bytes, lengths[from], expires), 0);
                copy_splice(&copy, STORE_AT_END, bytes, lengths[from]);
                uint64_t gap = (from + to) % 3 * 20000;
                splice("k", &copy, gap ? copy.length + gap : STORE_AT_END, bytes + 17, lengths[to]);
                expect_whole("k", &copy);
                if (copy.length) {
                    uint64_t at = below(copy.length), some = 1 + below(copy.length - at);
                    splice("k", &copy, at, bytes + 3, some);
                    expect_part("k", &copy, at / 2, some);
                }
                expect_whole("k", &copy);
                struct store_value value;
                assert_int_equal(store_stat(session, "k", 1, &value), 0);
                assert_int_equal(value.expires, expires);
            }
    check_blocks(NULL);
    free(bytes);
    free(copy.bytes);
}

/* ---- random changes ---- */

static uint64_t any_length(uint64_t most)
{
    uint64_t kind = below(100);
    uint64_t bound = kind < 50 ? 200 : kind < 80 ? 5000 : kind < 97 ? 70000 : 600000;
    return below(bound < most ? bound : most + 1);
}

static void random_splices(void **state)
{
    enum { KEYS = 5 };
    struct copy copies[KEYS];
    uint8_t *bytes = malloc(MIB);
    char key[16];
    assert_non_null(bytes);
    for (unsigned i = 0; i < KEYS; i++)
        copies[i] = copy_create();
    const unsigned rounds = world_rounds(6000);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned number = (unsigned)below(KEYS);
        struct copy *copy = &copies[number];
        const uint64_t reach = number == 0 ? 100 : number == 1 ? 20000 : number == 4 ? 20 * MIB : 900000;
        snprintf(key, sizeof key, "k%u", number);
        uint64_t length = any_length(reach), offset = below(reach);
        if (below(2) && copy->length)
            offset = below(copy->length);
        fill(bytes, length < 300 ? length : 300);
        bytes[length] = (uint8_t)round;
        if (below(4) == 0)
            offset = STORE_AT_END;
        if (copy->length > reach + reach / 2 || below(400) == 0) {
            assert_int_equal(store_delete(session, key, strlen(key)), copy->present ? 0 : BANYAN_ENOTFOUND);
            copy->length = 0;
            copy->present = false;
        }
        if (below(50) == 0) {
            assert_int_equal(store_put(session, key, strlen(key), bytes, length, 0), 0);
            copy->length = 0;
            copy_splice(copy, STORE_AT_END, bytes, length);
        } else {
            splice(key, copy, offset, bytes, length);
        }
        expect_part(key, copy, below(copy->length + 2), any_length(reach));
        if (round % 8 == 0)
            expect_whole(key, copy);
        if (round % 250 == 0)
            check_blocks(NULL);
    }
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%u", i);
        expect_whole(key, &copies[i]);
        free(copies[i].bytes);
    }
    check_blocks(NULL);
    free(bytes);
}

/* Bits of a value that begins as nothing: zeros cost no memory, and in the end there are few pieces. */
static void sparse(void **state)
{
    struct copy copy = copy_create();
    struct store_raw raw;
    struct store_check_report report;
    uint8_t one = 1;
    splice("sparse", &copy, 60 * MIB, &one, 1);
    check_blocks(&report);
    assert_true(report.record_bytes < 1000);
    assert_int_equal(pieces_of("sparse", &raw), 2);
    for (unsigned i = 0; i < 300; i++) {
        one = (uint8_t)(i | 1);
        splice("sparse", &copy, below(60 * MIB), &one, 1);
    }
    expect_whole("sparse", &copy);
    expect_part("sparse", &copy, 30 * MIB, 100000);
    check_blocks(&report);
    assert_true(report.record_bytes < 40 * MIB);
    assert_int_equal(store_delete(session, "sparse", 6), 0);
    free(copy.bytes);
}

/* ---- functions that decide ---- */

struct decision {
    enum store_verdict aim, change;
    struct store_edit edit;
    bool existed;
    uint64_t whole;
    uint8_t seen[64];
    unsigned changes;
};

static enum store_verdict decision_aim(void *context, bool existed, uint64_t whole, struct store_edit *edit)
{
    struct decision *decision = context;
    decision->existed = existed;
    decision->whole = whole;
    *edit = decision->edit;
    return decision->aim;
}

static enum store_verdict decision_change(void *context, const struct store_edit *edit, uint8_t *bytes)
{
    struct decision *decision = context;
    assert_true(edit->length <= sizeof decision->seen);
    memcpy(decision->seen, bytes, edit->length);
    memset(bytes, 'x', edit->length);
    decision->changes++;
    return decision->change;
}

/* The functions see the value's bytes, and may leave it as it is, whatever it lies in. */
static void decisions(void **state)
{
    static const uint64_t lengths[] = {0, 10, 16, 200, 9000, 40000, 100000};
    uint8_t *bytes = malloc(100000);
    assert_non_null(bytes);
    fill(bytes, 100000);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (unsigned kind = 0; kind < 5; kind++) {
            uint64_t length = lengths[i], whole = 9;
            struct decision decision = {.aim = STORE_PUT, .change = STORE_PUT};
            const struct store_editor editor = {decision_aim, decision_change, &decision};
            struct store_value value;
            bool existed;
            assert_int_equal(store_put(session, "d", 1, bytes, length, 0), 0);
            decision.edit = (struct store_edit){.offset = length / 2, .length = 40};
            if (kind == 1)
                decision.change = STORE_KEEP;
            if (kind == 2)
                decision.aim = STORE_KEEP;
            if (kind == 3)
                decision.edit.length = 0;
            if (kind == 4)
                decision.edit = (struct store_edit){.offset = STORE_VALUE_MAX - 39, .length = 40};
            int status = store_edit(session, "d", 1, &editor, &whole, &existed);
            assert_int_equal(status, kind == 4 ? BANYAN_EVALUESIZE : 0);
            assert_true(decision.existed);
            assert_int_equal(decision.whole, length);
            assert_int_equal(decision.changes, kind < 2 ? 1 : 0);
            uint64_t after = length / 2 + 40 > length ? length / 2 + 40 : length;
            uint64_t had = length - length / 2 < 40 ? length - length / 2 : 40;
            if (kind < 2) {
                assert_memory_equal(decision.seen, bytes + length / 2, had);
                for (uint64_t at = had; at < 40; at++)
                    assert_int_equal(decision.seen[at], 0);
            }
            if (!status) {
                assert_true(existed);
                assert_int_equal(whole, kind ? length : after);
            }
            assert_int_equal(store_get(session, "d", 1, &value), 0);
            assert_int_equal(value.length, kind ? length : after);
            if (kind)
                assert_int_equal(memcmp(value.bytes, bytes, length), 0);
            else
                for (uint64_t at = 0; at < after; at++)
                    assert_int_equal(value.bytes[at],
                                     at >= length / 2 && at < length / 2 + 40 ? 'x' : bytes[at]);
        }
    uint64_t whole;
    assert_int_equal(store_splice(session, "", 0, 0, bytes, 3, &whole), BANYAN_EKEYSIZE);
    assert_int_equal(store_splice(session, "none", 4, STORE_VALUE_MAX, bytes, 1, &whole), BANYAN_EVALUESIZE);
    assert_int_equal(store_splice(session, "none", 4, 100, bytes, 0, &whole), 0);
    assert_int_equal(whole, 0);
    struct store_value value;
    assert_int_equal(store_get(session, "none", 4, &value), BANYAN_ENOTFOUND);
    check_blocks(NULL);
    free(bytes);
}

/* A value that has expired is none: what is written takes its place, without an expiry. */
static void expired(void **state)
{
    static const uint64_t lengths[] = {5, 300, 20000, 200000};
    uint8_t *bytes = malloc(200000);
    assert_non_null(bytes);
    fill(bytes, 200000);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (unsigned kind = 0; kind < 5; kind++) {
            static const uint64_t offsets[] = {STORE_AT_END, 0, 3, 100000, 2};
            const uint64_t added = kind == 4 ? 0 : kind == 2 ? 9000 : 4;
            struct store_value value;
            uint64_t whole;
            stores_now(&stores, 1000);
            assert_int_equal(store_put(session, "e", 1, bytes, lengths[i], 2000), 0);
            stores_now(&stores, 2000);
            assert_int_equal(store_splice(session, "e", 1, offsets[kind], bytes + 9, added, &whole), 0);
            uint64_t at = kind ? offsets[kind] : 0;
            assert_int_equal(whole, added ? at + added : 0);
            int status = store_get(session, "e", 1, &value);
            assert_int_equal(status, added ? 0 : BANYAN_ENOTFOUND);
            if (status)
                continue;
            assert_int_equal(value.length, at + added);
            assert_int_equal(value.expires, 0);
            for (uint64_t zero = 0; zero < at; zero++)
                assert_int_equal(value.bytes[zero], 0);
            assert_memory_equal(value.bytes + at, bytes + 9, added);
        }
    check_blocks(NULL);
    free(bytes);
}

/* ---- costs ---- */

static uint64_t trips(void)
{
    return tree_session_stats(stores.world.tasks[0].session)->cost.round_trips;
}

static uint64_t moved_bytes(void)
{
    const struct fabric_cost *cost = &tree_session_stats(stores.world.tasks[0].session)->cost;
    return cost->bytes_read + cost->bytes_written;
}

struct price {
    uint64_t trips, bytes;
};

/* The least of several calls: some of them get a batch of blocks, or merge pieces. */
static struct price price_of(const char *key, uint64_t offset, uint64_t length, bool read)
{
    uint8_t bytes[128] = {1};
    struct price least = {UINT64_MAX, UINT64_MAX};
    for (unsigned i = 0; i < (offset == STORE_AT_END ? 90 : 8); i++) {
        struct store_value value;
        struct store_part part = {offset, length};
        uint64_t whole, before = trips(), moved = moved_bytes();
        if (read)
            assert_int_equal(store_get_part(session, key, strlen(key), part_chosen, &part, &value), 0);
        else
            assert_int_equal(store_splice(session, key, strlen(key), offset, bytes, length, &whole), 0);
        struct price price = {trips() - before, moved_bytes() - moved};
        least.trips = price.trips < least.trips ? price.trips : least.trips;
        least.bytes = price.bytes < least.bytes ? price.bytes : least.bytes;
    }
    return least;
}

static void costs(void **state)
{
    static uint8_t bytes[10 << 20];
    const uint64_t leaf = tree_geometry(session->store->tree)->leaf_bytes;
    assert_int_equal(store_put(session, "slot", 4, bytes, 8, 0), 0);
    assert_int_equal(store_put(session, "short", 5, bytes, 1000, 0), 0);
    assert_int_equal(store_put(session, "middle", 6, bytes, 30000, 0), 0);
    assert_int_equal(store_put(session, "long", 4, bytes, sizeof bytes, 0), 0);
    assert_int_equal(price_of("slot", 2, 3, true).trips, 1);
    assert_int_equal(price_of("short", 2, 3, true).trips, 2);
    assert_int_equal(price_of("middle", 2, 3, true).trips, 2);
    assert_int_equal(price_of("long", 5 << 20, 100, true).trips, 3);
    assert_int_equal(price_of("slot", 2, 3, false).trips, 3);
    assert_int_equal(price_of("short", 2, 3, false).trips, 5);
    assert_int_equal(price_of("short", STORE_AT_END, 100, false).trips, 5);
    assert_int_equal(price_of("middle", 2, 3, false).trips, 5);
    assert_in_range(price_of("middle", STORE_AT_END, 100, false).trips, 5, 6);
    assert_int_equal(price_of("long", 5 << 20, 100, false).trips, 6);
    assert_in_range(price_of("long", STORE_AT_END, 100, false).trips, 5, 6);
    /* Of 10 MiB some kilobytes are read and written: the header of 320 pieces, and a piece. */
    const uint64_t header = format_record_header_bytes(4, format_record_room(330)), slack = 8 * leaf;
    assert_true(price_of("long", 5 << 20, 100, true).bytes <= 32 * KIB + header + slack);
    assert_true(price_of("long", 5 << 20, 100, false).bytes <= 2 * (32 * KIB + header) + slack);
    assert_true(price_of("long", STORE_AT_END, 100, false).bytes <= 2 * header + 10000 + slack);
}

/* ---- moves ---- */

struct leaving {
    unsigned one_in;
    unsigned count;
    gaddr blocks[512]; /* in use before the move: none of them is where something is moved to */
};

static void leaving_visit(void *context, gaddr block, uint32_t bytes)
{
    struct leaving *leaving = context;
    assert_true(leaving->count < 512);
    if (random_mix(block ^ leaving->one_in) % leaving->one_in == 0)
        leaving->blocks[leaving->count++] = block;
}

static bool leaving_chosen(void *context, gaddr block)
{
    const struct leaving *leaving = context;
    for (unsigned i = 0; i < leaving->count; i++)
        if (leaving->blocks[i] == block)
            return true;
    return false;
}

/* Values of all kinds are moved, with pieces behind old headers and zeros among them; nothing happens where
 * the slot has changed since. */
static void moves(void **state)
{
    static const uint64_t lengths[] = {3, 100, 30000, 60000, 100000, 5 << 20};
    struct copy copy = copy_create(), none = {.bytes = copy.bytes};
    uint8_t *bytes = malloc(6 * MIB);
    unsigned moved = 0;
    assert_non_null(bytes);
    fill(bytes, 6 * MIB);
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (unsigned one_in = 1; one_in < 6; one_in += 2) {
            struct leaving leaving = {.one_in = one_in};
            struct store_defrag_counts counts = {0};
            struct store_check_report report;
            const struct store_relocation relocation = {
                .now = 1000, .chosen = leaving_chosen, .context = &leaving, .counts = &counts};
            struct store_raw raw, after;
            copy = none;
            assert_int_equal(store_put(session, "m", 1, bytes, lengths[i], 7000), 0);
            copy_splice(&copy, STORE_AT_END, bytes, lengths[i]);
            if (i == 2 || i == 3) /* a piece behind the record's old header */
                splice("m", &copy, STORE_AT_END, bytes, 100);
            if (i == 4)
                splice("m", &copy, copy.length + 200000, bytes, 100);
            assert_int_equal(store_check(session, &report, leaving_visit, &leaving), 0);
            pieces_of("m", &raw);
            const struct store_entry entry = {
                .key = (const uint8_t *)"m", .key_length = 1, .raw = raw.bytes, .raw_length = raw.length};
            assert_int_equal(store_relocate(session, &relocation, &entry), 0);
            pieces_of("m", &after);
            assert_int_equal(store_raw_equal(&raw, after.bytes, after.length), !counts.hits);
            moved += counts.hits != 0;
            expect_whole("m", &copy);
            struct store_value value;
            assert_int_equal(store_stat(session, "m", 1, &value), 0);
            assert_int_equal(value.expires, 7000);
            check_blocks(NULL);
            if (!counts.hits)
                continue;
            assert_int_equal(store_relocate(session, &relocation, &entry), 0); /* of a slot that is gone */
            expect_whole("m", &copy);
            check_blocks(NULL);
        }
    assert_true(moved > 8);
    free(bytes);
    free(copy.bytes);
}

/* ---- pools without a block of the right size ---- */

/* The pool is filled with small values, and some of them are deleted: long values fit between the others. */
static void scattered(void **state)
{
    uint8_t *bytes = malloc(4 * MIB);
    char key[16];
    unsigned stored = 0;
    assert_non_null(bytes);
    fill(bytes, 4 * MIB);
    for (;; stored++) {
        snprintf(key, sizeof key, "s%06u", stored);
        int status = store_put(session, key, strlen(key), bytes + stored % 1000, 950, 0);
        if (status) {
            assert_int_equal(status, BANYAN_ENOSPC);
            break;
        }
    }
    assert_true(stored > 20000);
    for (unsigned i = 0; i < stored; i++) {
        snprintf(key, sizeof key, "s%06u", i);
        if (random_mix(i) % 3)
            assert_int_equal(store_delete(session, key, strlen(key)), 0);
    }
    struct copy copy = copy_create();
    unsigned made = 0;
    for (; made < 40; made++) {
        uint64_t length = 20000 + 9000 * made;
        snprintf(key, sizeof key, "l%u", made);
        int status = store_put(session, key, strlen(key), bytes, length, 0);
        if (status) {
            assert_int_equal(status, BANYAN_ENOSPC);
            break;
        }
        copy.length = 0;
        copy_splice(&copy, STORE_AT_END, bytes, length);
        expect_whole(key, &copy);
        splice(key, &copy, length / 3, bytes + 5, 3000);
        splice(key, &copy, STORE_AT_END, bytes + 5, 300);
        expect_whole(key, &copy);
    }
    check_blocks(NULL);
    assert_true(made >= 10);
    struct store_raw raw;
    assert_true(pieces_of("l3", &raw) >= 2);
    free(copy.bytes);
    free(bytes);
}

/* ---- damage ---- */

struct blocks {
    gaddr addresses[64];
    unsigned count;
};

static void blocks_visit(void *context, gaddr block, uint32_t bytes)
{
    struct blocks *blocks = context;
    if (blocks->count < 64)
        blocks->addresses[blocks->count++] = block;
}

/* A changed value with a damaged piece: what touches the piece fails, what does not is done, and nothing that
 * was not validated gets into a new record. */
static void damage(void **state)
{
    struct copy copy = copy_create();
    uint8_t *bytes = malloc(5 * 32 * KIB), one = 7;
    struct blocks blocks = {.count = 0};
    struct store_check_report report;
    struct store_value value;
    uint64_t whole;
    assert_non_null(bytes);
    fill(bytes, 5 * 32 * KIB);
    assert_int_equal(store_put(session, "victim", 6, bytes, 5 * 32 * KIB, 0), 0);
    copy_splice(&copy, 0, bytes, 5 * 32 * KIB);
    assert_int_equal(store_check(session, &report, blocks_visit, &blocks), 0);
    assert_int_equal(report.record_blocks, 6);
    const gaddr third = blocks.addresses[blocks.count - 3];
    uint8_t *byte =
        memory_node_target(stores.world.memory[gaddr_node(third)])->pool + gaddr_offset(third) + 1000;
    *byte ^= 4;
    assert_int_equal(store_get(session, "victim", 6, &value), BANYAN_ECORRUPT);
    assert_int_equal(store_splice(session, "victim", 6, 2 * 32 * KIB + 5, &one, 1, &whole), BANYAN_ECORRUPT);
    expect_part("victim", &copy, 0, 2 * 32 * KIB);
    expect_part("victim", &copy, 3 * 32 * KIB, 2 * 32 * KIB);
    splice("victim", &copy, 32 * KIB, &one, 1);
    splice("victim", &copy, 3 * 32 * KIB + 1, &one, 1);
    struct store_part part = {2 * 32 * KIB + 8, 1};
    assert_int_equal(store_get_part(session, "victim", 6, part_chosen, &part, &value), BANYAN_ECORRUPT);
    *byte ^= 4;
    expect_whole("victim", &copy);
    *byte ^= 4;
    /* All of the piece is overwritten: it need not be read. */
    splice("victim", &copy, 2 * 32 * KIB, bytes, 32 * KIB);
    expect_whole("victim", &copy);
    check_blocks(NULL);
    free(bytes);
    free(copy.bytes);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rooms),
        cmocka_unit_test(forged_headers),
        cmocka_unit_test(windows),
        cmocka_unit_test(appends_are_cheap),
        TEST(growth),
        TEST(sizes),
        TEST(random_splices),
        TEST(sparse),
        TEST(decisions),
        TEST(expired),
        TEST(costs),
        TEST(moves),
        TEST(damage),
        cmocka_unit_test_setup_teardown(scattered, set_up_small, tear_down),
    };
    return cmocka_run_group_tests_name("store_pieces", tests, NULL, NULL);
}
