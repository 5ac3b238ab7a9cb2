/* test_brought.c - pieces that owners bring to a disk (persist/brought.h, P17): what a call may ask, what is
 * there, what waits, and from where on a journal has to stay when its beginning is going to be released. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/task.h"
#include "base/thread.h"
#include "format/record.h"
#include "memory/request.h"
#include "persist/brought.h"

#define POOL_BYTES (1u << 20)
#define HERE       1u /* this memory node, of two */
#define LENGTH     1000u

struct desk {
    struct fabric_target target;
    const struct fabric_target *targets[2];
    struct persist_brought *brought;
    struct memory_bring_request request;
    struct memory_bring_reply reply;
    uint32_t hold_ms;
};

static struct desk *desk_open(void)
{
    struct desk *desk = calloc(1, sizeof *desk);
    assert_non_null(desk);
    desk->target.pool = calloc(1, POOL_BYTES);
    desk->target.pool_bytes = POOL_BYTES;
    assert_non_null(desk->target.pool);
    for (uint32_t i = 0; i < POOL_BYTES; i++)
        desk->target.pool[i] = (uint8_t)(i / 64 * 7 + i);
    desk->targets[HERE] = &desk->target;
    desk->brought = persist_brought_create(desk->targets, 2);
    assert_non_null(desk->brought);
    return desk;
}

static void desk_close(struct desk *desk)
{
    persist_brought_destroy(desk->brought);
    free(desk->target.pool);
    free(desk);
}

static size_t bytes_of(uint32_t count)
{
    return offsetof(struct memory_bring_request, pieces) + count * sizeof(struct memory_bring_piece);
}

/* Piece number `number`, whose bytes stand in the pool at a place of its own; there: staged. */
static struct memory_bring_piece piece_of(const struct desk *desk, unsigned number, bool staged)
{
    const uint64_t offset = 4096 + number * 1024;
    return (struct memory_bring_piece){.address = gaddr_make(0, 1024 * (1 + number)),
                                       .staged = staged ? gaddr_make(HERE, offset) : GADDR_NULL,
                                       .hash = format_record_hash(desk->target.pool + offset, LENGTH),
                                       .length = LENGTH,
                                       .hold_ms = desk->hold_ms};
}

static int send(struct desk *desk, size_t length)
{
    size_t told = 7;
    memset(&desk->reply, 0xff, sizeof desk->reply);
    int status = persist_brought_call(desk->brought, &desk->request, length, &desk->reply, &told);
    if (!status)
        assert_int_equal(told, sizeof desk->reply);
    return status;
}

/* Whether it is missing. */
static bool ask(struct desk *desk, unsigned number, bool staged)
{
    desk->request = (struct memory_bring_request){.kind = MEMORY_BRING, .count = 1};
    desk->request.pieces[0] = piece_of(desk, number, staged);
    assert_int_equal(send(desk, bytes_of(1)), 0);
    return desk->reply.missing[0] & 1;
}

static enum persist_brought_state named(struct desk *desk, unsigned number)
{
    const struct memory_bring_piece piece = piece_of(desk, number, false);
    return persist_brought_named(desk->brought, piece.address, piece.hash);
}

/* What waits first is this piece; it is written. */
static void write_one(struct desk *desk, unsigned number, uint64_t position)
{
    const struct persist_brought_piece *first = persist_brought_first(desk->brought);
    const struct memory_bring_piece piece = piece_of(desk, number, true);
    assert_non_null(first);
    assert_int_equal(first->address, piece.address);
    assert_int_equal(first->hash, piece.hash);
    assert_int_equal(first->length, LENGTH);
    assert_memory_equal(first->bytes, desk->target.pool + gaddr_offset(piece.staged), LENGTH);
    persist_brought_written(desk->brought, position);
}

static void comes_and_is_there(void **state)
{
    struct desk *desk = desk_open();
    (void)state;
    assert_int_equal(named(desk, 1), PERSIST_BROUGHT_NOT);
    assert_true(ask(desk, 1, false));
    assert_null(persist_brought_first(desk->brought));
    assert_false(ask(desk, 1, true));
    assert_false(ask(desk, 1, true)); /* it is taken once */
    assert_int_equal(named(desk, 1), PERSIST_BROUGHT_WAITS);
    write_one(desk, 1, 8);
    assert_null(persist_brought_first(desk->brought));
    assert_int_equal(named(desk, 1), PERSIST_BROUGHT_WRITTEN);
    assert_false(ask(desk, 1, false));
    assert_true(ask(desk, 2, false));
    desk_close(desk);
}

/* Some are there, some not, beyond the first word of the reply. */
static void many(void **state)
{
    struct desk *desk = desk_open();
    (void)state;
    desk->request = (struct memory_bring_request){.kind = MEMORY_BRING, .count = MEMORY_BRING_MAX};
    for (unsigned i = 0; i < MEMORY_BRING_MAX; i++)
        desk->request.pieces[i] = piece_of(desk, i, i % 3 == 0);
    assert_int_equal(send(desk, bytes_of(MEMORY_BRING_MAX)), 0);
    for (unsigned i = 0; i < MEMORY_BRING_MAX; i++)
        assert_int_equal(desk->reply.missing[i / 64] >> (i % 64) & 1, i % 3 != 0);
    for (unsigned i = 0; i < MEMORY_BRING_MAX; i += 3)
        write_one(desk, i, 8 * i);
    assert_null(persist_brought_first(desk->brought));
    desk_close(desk);
}

/* Bytes that are not the piece's are not taken for it. */
static void others_bytes(void **state)
{
    struct desk *desk = desk_open();
    const struct memory_bring_piece piece = piece_of(desk, 1, true);
    (void)state;
    desk->request = (struct memory_bring_request){.kind = MEMORY_BRING, .count = 1, .pieces = {piece}};
    desk->target.pool[gaddr_offset(piece.staged) + LENGTH - 1] ^= 1;
    assert_int_equal(send(desk, bytes_of(1)), 0);
    assert_int_equal(desk->reply.missing[0], 1);
    assert_null(persist_brought_first(desk->brought));
    desk_close(desk);
}

static void no_sense(void **state)
{
    struct desk *desk = desk_open();
    const struct memory_bring_piece good = piece_of(desk, 1, true);
    const struct memory_bring_piece bad[] = {
        {.address = GADDR_NULL, .staged = good.staged, .hash = 1, .length = LENGTH},
        {.address = gaddr_make(HERE, 1024), .staged = good.staged, .hash = 1, .length = LENGTH},
        {.address = good.address, .staged = gaddr_make(0, 1024), .hash = 1, .length = LENGTH},
        {.address = good.address, .staged = gaddr_make(9, 1024), .hash = 1, .length = LENGTH},
        {.address = good.address, .staged = gaddr_make(HERE, POOL_BYTES - LENGTH + 1), .length = LENGTH},
        {.address = good.address, .staged = gaddr_make(HERE, UINT64_C(1) << 47), .length = LENGTH},
        {.address = good.address, .staged = good.staged, .hash = 1, .length = 0},
        {.address = good.address, .staged = good.staged, .hash = 1, .length = FORMAT_PIECE_MAX + 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        desk->request =
            (struct memory_bring_request){.kind = MEMORY_BRING, .count = 2, .pieces = {good, bad[i]}};
        assert_int_equal(send(desk, bytes_of(2)), BANYAN_EINVAL);
    }
    for (uint32_t count = 0; count < 3; count++) {
        desk->request = (struct memory_bring_request){.kind = MEMORY_BRING, .count = count, .pieces = {good}};
        for (size_t length = 0; length < bytes_of(2); length++)
            if (count != 1 || length != bytes_of(1))
                assert_int_equal(send(desk, length), BANYAN_EINVAL);
    }
    desk->request.count = UINT32_MAX;
    assert_int_equal(send(desk, sizeof desk->request), BANYAN_EINVAL);
    assert_int_equal(send(desk, sizeof desk->request + 1), BANYAN_EINVAL);
    assert_null(persist_brought_first(desk->brought)); /* of a call that makes no sense nothing is taken */
    desk_close(desk);
}

/* Behind a pass that has met all entries which are to come. */
static uint64_t forget(struct desk *desk, uint64_t position)
{
    return persist_brought_forget(desk->brought, position, UINT64_MAX);
}

/* A journal stays from the oldest piece on of which the entry is to come; and no longer than that. */
static void held_once(void **state)
{
    struct desk *desk = desk_open();
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        assert_false(ask(desk, i, true));
    for (unsigned i = 0; i < 3; i++)
        write_one(desk, i, 800 + 8 * i);
    assert_int_equal(named(desk, 0), PERSIST_BROUGHT_WRITTEN);
    assert_int_equal(forget(desk, 2000), 808);
    /* They have to be brought again, also the one whose entry is to come; and that one is there for it. */
    for (unsigned i = 0; i < 3; i++)
        assert_true(ask(desk, i, false));
    assert_int_equal(named(desk, 0), PERSIST_BROUGHT_NOT);
    assert_int_equal(named(desk, 1), PERSIST_BROUGHT_WRITTEN);
    /* The piece that had not come to the journal comes behind. */
    assert_int_equal(named(desk, 3), PERSIST_BROUGHT_WAITS);
    assert_false(ask(desk, 3, false));
    write_one(desk, 3, 2008);
    assert_false(ask(desk, 1, true));
    write_one(desk, 1, 2016);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(named(desk, 3), PERSIST_BROUGHT_WRITTEN);
    assert_int_equal(forget(desk, 3000), 2016);
    /* The entries never came. */
    assert_int_equal(forget(desk, 4000), 4000);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(named(desk, i), PERSIST_BROUGHT_NOT);
    desk_close(desk);
}

/* An entry that takes its time holds the journal over each checkpoint that begins meanwhile, for as long as
 * its owner has said; and it finds its piece then. */
static void held_for_a_slow_entry(void **state)
{
    struct desk *desk = desk_open();
    (void)state;
    const uint64_t ms = 1000000, began = task_now();
    desk->hold_ms = 60000;
    assert_false(ask(desk, 1, true));
    write_one(desk, 1, 800);
    assert_false(ask(desk, 1, false)); /* two entries are to come */
    desk->hold_ms = 0;
    assert_false(ask(desk, 2, true));
    write_one(desk, 2, 900);
    desk->hold_ms = UINT32_MAX;
    assert_false(ask(desk, 3, true));
    write_one(desk, 3, 1000);
    const uint64_t behind = task_now();
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(persist_brought_forget(desk->brought, 2000 + i, began), 800);
    assert_int_equal(named(desk, 1), PERSIST_BROUGHT_WRITTEN); /* one has come */
    /* That of which nobody has said how long holds it for less long, and one for which somebody has said for
     * ever, for no longer than is allowed. */
    assert_int_equal(persist_brought_forget(desk->brought, 3000, behind + MEMORY_BRING_HOLD_MS * ms), 800);
    assert_int_equal(named(desk, 2), PERSIST_BROUGHT_NOT);
    assert_int_equal(persist_brought_forget(desk->brought, 3001, behind + 60000 * ms), 1000);
    assert_int_equal(named(desk, 1), PERSIST_BROUGHT_NOT);
    assert_int_equal(persist_brought_forget(desk->brought, 3002, behind + MEMORY_BRING_HOLD_MS_MAX * ms),
                     3002);
    assert_int_equal(named(desk, 3), PERSIST_BROUGHT_NOT);
    desk_close(desk);
}

/* Two entries are to come; one is there. */
static void asked_twice(void **state)
{
    struct desk *desk = desk_open();
    (void)state;
    assert_false(ask(desk, 1, true));
    write_one(desk, 1, 80);
    assert_false(ask(desk, 1, false));
    assert_int_equal(named(desk, 1), PERSIST_BROUGHT_WRITTEN);
    assert_int_equal(forget(desk, 1000), 80);
    desk_close(desk);
}

/* As much waits as may; a call that comes then has to be made again. */
static void too_much(void **state)
{
    struct desk *desk = desk_open();
    struct memory_bring_piece piece = {.staged = gaddr_make(HERE, 0), .length = FORMAT_PIECE_MAX};
    unsigned taken = 0;
    int status = 0;
    (void)state;
    piece.hash = format_record_hash(desk->target.pool, FORMAT_PIECE_MAX);
    while (!status) {
        piece.address = gaddr_make(0, UINT64_C(65536) * (1 + taken));
        desk->request = (struct memory_bring_request){.kind = MEMORY_BRING, .count = 1, .pieces = {piece}};
        status = send(desk, bytes_of(1));
        taken += !status;
    }
    assert_int_equal(status, BANYAN_EBUSY);
    assert_int_equal(taken, PERSIST_BROUGHT_WAITS_MAX / FORMAT_PIECE_MAX);
    persist_brought_written(desk->brought, 8);
    assert_int_equal(send(desk, bytes_of(1)), 0);
    assert_int_equal(desk->reply.missing[0], 0);
    desk_close(desk);
}

/* ---- two connections at once ---- */

#define ROUNDS   40u
#define TOGETHER 100u /* pieces of a round: all of them may wait */

/* Both bring the same pieces, so the one that is behind passes over those that are there, and meets the other
 * one, which copies a piece. */
struct caller {
    struct desk *desk;
    struct thread *thread;
    uint64_t hash;
    unsigned round, failed;
};

static void caller_main(void *argument)
{
    struct caller *caller = argument;
    struct memory_bring_reply reply;
    for (unsigned i = 0; i < TOGETHER; i++) {
        size_t told;
        const uint64_t number = 1 + caller->round * TOGETHER + i;
        const struct memory_bring_request request = {
            .kind = MEMORY_BRING,
            .count = 1,
            .pieces = {{.address = gaddr_make(0, number * FORMAT_PIECE_MAX),
                        .staged = gaddr_make(HERE, 0),
                        .hash = caller->hash,
                        .length = FORMAT_PIECE_MAX}}};
        int status = persist_brought_call(caller->desk->brought, &request, bytes_of(1), &reply, &told);
        caller->failed += status || (reply.missing[0] & 1);
    }
}

/* A piece waits once, whoever brings it: a second one would be written when a checkpoint has forgotten it. */
static void waits_once(void **state)
{
    struct desk *desk = desk_open();
    const uint64_t hash = format_record_hash(desk->target.pool, FORMAT_PIECE_MAX);
    struct error error;
    (void)state;
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct caller callers[2];
        unsigned waited = 0;
        for (unsigned i = 0; i < 2; i++) {
            callers[i] = (struct caller){.desk = desk, .hash = hash, .round = round};
            assert_int_equal(thread_start(&callers[i].thread, caller_main, &callers[i], &error), 0);
        }
        for (unsigned i = 0; i < 2; i++)
            thread_join(callers[i].thread);
        assert_int_equal(callers[0].failed + callers[1].failed, 0);
        for (; persist_brought_first(desk->brought); waited++)
            persist_brought_written(desk->brought, 8);
        assert_int_equal(waited, TOGETHER);
    }
    desk_close(desk);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comes_and_is_there), cmocka_unit_test(many),
        cmocka_unit_test(others_bytes),       cmocka_unit_test(no_sense),
        cmocka_unit_test(held_once),          cmocka_unit_test(held_for_a_slow_entry),
        cmocka_unit_test(asked_twice),        cmocka_unit_test(too_much),
        cmocka_unit_test(waits_once)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
