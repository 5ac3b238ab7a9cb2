/*
 * test_log_members.c - the owner's log where a memory node leaves, or is removed (L6 of
 * docs/internals/log.md): what becomes of the stream there. One thread (processes.h).
 */
#include "processes.h"

#include <string.h>

#include "log/state.h"
#include "memory/request.h"

#define LAST 1u

static struct processes world;

/* A process that writes two copies of each frame. Its index lies on memory node 0 alone, as if the other one
 * had been emptied. */
static struct process *begin(void)
{
    processes_open(&world, LAST + 1, 0);
    memory_node_drain(world.memory[LAST], true);
    world.options.copies = 2;
    struct process *process = process_start(&world);
    process_own(&world, process);
    heirs_end(&world, process);
    return process;
}

static void put_keys(struct process *process, unsigned count, uint64_t value)
{
    for (unsigned i = 0; i < count; i++)
        process_check(process, process_put(process, i, value + i));
}

static unsigned keys_right(struct process *process, unsigned count, uint64_t value)
{
    unsigned right = 0;
    for (unsigned i = 0; i < count; i++)
        right += process_get(process, i) == value + i;
    return right;
}

static void flush(struct process *process)
{
    process_check(process, log_flush_all(process->log, process->session));
}

static void memory_status(struct memory_status_reply *told)
{
    memory_node_status(world.memory[LAST], told);
}

/* ---- leaving ---- */

/* Answers PERSIST: the one that counts `left` down to 0 is refused. */
static int one_fails(void *context, uint16_t node)
{
    unsigned *left = context;
    (void)node;
    return *left && !--*left ? BANYAN_ENOSPC : 0;
}

/* A memory node that leaves gets back all that the log has there, also where its disk, or an answer, has
 * failed meanwhile: else it could not be removed as long as the process lives. */
static void all_is_given_back_behind_a_failure(void **state)
{
    (void)state;
    struct memory_status_reply told;
    bool failed = true;
    for (unsigned at = 1; failed; at++) {
        unsigned left = at;
        struct process *process = begin();
        put_keys(process, 40, 1000);
        memory_status(&told);
        assert_int_equal(told.log_processes, 1);
        process_kept(process, FABRIC_KEPT_ON_DISK, one_fails, &left);
        process_hears(process, LAST, FABRIC_LEAVING);
        (void)log_flush_all(process->log, process->session);
        failed = !left;
        left = 0;
        for (unsigned i = 0; i < 8 && log_stream_lingers(&process->log->streams[LAST]); i++)
            flush(process);
        memory_status(&told);
        assert_int_equal(told.log_processes, 0);
        assert_int_equal(told.bytes_used, 0);
        assert_int_equal(keys_right(process, 40, 1000), 40);
        assert_true(failed || at > 3); /* a segment's end, its giving back, the log's */
        processes_close(&world);
    }
}

/* ---- a memory node that is removed ---- */

/* A process may hear that a memory node was removed before it has heard that it leaves. Its log goes on
 * without what it has there. */
static void one_that_is_removed_holds_nothing_up(void **state)
{
    (void)state;
    struct log_stats stats;
    struct process *process = begin();
    struct log_stream *stream = &process->log->streams[LAST];
    put_keys(process, 40, 1000);
    assert_true(log_stream_lingers(stream));
    process_hears(process, LAST, FABRIC_NO_MEMBER);
    for (unsigned round = 1; round <= 50; round++) { /* many times what the segments take */
        put_keys(process, 100, 1000 * round);
        flush(process);
    }
    log_stats(process->log, &stats);
    assert_true(stats.watermark == stats.sequence);
    assert_false(log_stream_lingers(stream));
    assert_int_equal(stream->segments, 0);
    put_keys(process, 100, 7); /* is not merged */
    process_dies(&world, process);
    struct process *next = process_start(&world);
    process_hears(next, LAST, FABRIC_NO_MEMBER);
    process_own(&world, next);
    heirs_end(&world, next);
    assert_int_equal(keys_right(next, 100, 7), 100);
    process_check(next, log_close(next->log, next->session));
    processes_close(&world);
}

/* Its connections may be lost by then, with what it has there not merged yet. */
static void one_that_is_removed_and_stopped(void **state)
{
    (void)state;
    struct process *process = begin();
    put_keys(process, 40, 1000);
    process_hears(process, LAST, FABRIC_NO_MEMBER);
    process_away(process, LAST, true);
    process_own_still(&world, process);
    put_keys(process, 20, 2000);
    flush(process);
    assert_false(log_stream_lingers(&process->log->streams[LAST]));
    assert_int_equal(keys_right(process, 20, 2000), 20);
    assert_int_equal(process_get(process, 39), 1039);
    process_check(process, log_close(process->log, process->session));
    processes_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_given_back_behind_a_failure),
        cmocka_unit_test(one_that_is_removed_holds_nothing_up),
        cmocka_unit_test(one_that_is_removed_and_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
