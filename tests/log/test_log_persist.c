/*
 * test_log_persist.c - the owner's log where memory nodes keep it on disks (P2, P5): what is acknowledged,
 * what is used again, what is given back, and what each of these costs. The disks are a function of the test,
 * which looks at the segments when it is asked. One thread.
 */
#include "processes.h"

#include <string.h>

#include "base/error.h"
#include "log/reader.h"
#include "log/state.h"
#include "tree/wrapper.h"

static struct processes world;

/* What was asked of the disks. */
struct disks {
    struct process *process;
    unsigned asked[PROCESSES_NODES_MAX];
    int status;                        /* what they answer */
    int statuses[PROCESSES_NODES_MAX]; /* what one of them answers, if that is not 0 */
    /* Of the stream that was asked about last: where it ends, and frames that are under way there. */
    uint32_t tail;
    bool flying;
};

static int disks_persist(void *context, uint16_t node)
{
    struct disks *disks = context;
    const struct log_stream *stream = &disks->process->log->streams[node];
    disks->asked[node]++;
    disks->tail = stream->current ? stream->current->tail : 0;
    disks->flying = stream->flights != NULL;
    return disks->statuses[node] ? disks->statuses[node] : disks->status;
}

static unsigned asked(const struct disks *disks)
{
    unsigned all = 0;
    for (unsigned n = 0; n < PROCESSES_NODES_MAX; n++)
        all += disks->asked[n];
    return all;
}

static struct process *begin(struct disks *disks, enum fabric_durability durability, unsigned nodes,
                             uint64_t log_bytes)
{
    processes_open(&world, nodes, log_bytes);
    struct process *process = process_start(&world);
    *disks = (struct disks){.process = process};
    process_own(&world, process);
    heirs_end(&world, process);
    process_kept(process, durability, disks_persist, disks);
    return process;
}

/* P5. The disk is asked once for each batch, behind the frame's list, and the write waits for what it says.
 */
static void a_commit_waits_for_the_disk(void **state)
{
    struct disks disks;
    struct process *process = begin(&disks, FABRIC_KEPT_ON_DISK_ALWAYS, 1, 0);
    const struct fabric_cost *cost = &tree_session_stats(process->session)->cost;
    (void)state;
    process_check(process, process_put(process, 0, 1)); /* opens the stream */
    for (unsigned i = 1; i < 20; i++) {
        const uint64_t trips = cost->round_trips, calls = cost->rpcs;
        const unsigned before = asked(&disks);
        process_check(process, process_put(process, i, 1000 + i));
        assert_int_equal(asked(&disks), before + 1);
        assert_int_equal(cost->round_trips, trips + 2); /* the frame's list, and the disk */
        assert_int_equal(cost->rpcs, calls + 1);
        assert_false(disks.flying);
        assert_int_equal(disks.tail, process->log->streams[0].current->tail); /* the frame is in it */
    }
    struct log_stats stats;
    log_stats(process->log, &stats);
    assert_int_equal(stats.persists, 20);
    assert_int_equal(stats.unsafe, 0);
    processes_close(&world);
}

/* P5 and L8. Both disks are asked, in one wait. A second one that has failed leaves the write with one copy,
 * and frames say so from then on; one without room holds writers back. */
static void both_disks_are_asked(void **state)
{
    struct disks disks;
    struct log_stats stats;
    (void)state;
    processes_open(&world, 2, 0);
    world.options.copies = 2;
    struct process *process = process_start(&world);
    disks = (struct disks){.process = process};
    process_own(&world, process);
    heirs_end(&world, process);
    process_kept(process, FABRIC_KEPT_ON_DISK_ALWAYS, disks_persist, &disks);
    const struct fabric_cost *cost = &tree_session_stats(process->session)->cost;
    process_check(process, process_put(process, 0, 1)); /* opens the streams */
    for (unsigned i = 1; i < 10; i++) {
        const uint64_t trips = cost->round_trips;
        const unsigned first = disks.asked[0], second = disks.asked[1];
        process_check(process, process_put(process, i, 1000 + i));
        assert_int_equal(disks.asked[0], first + 1);
        assert_int_equal(disks.asked[1], second + 1);
        assert_int_equal(cost->round_trips, trips + 2); /* both lists, and both disks */
    }
    assert_false(log_tells_alone(process->log));
    const unsigned home = process->log->lane.batches[0].frames[0].places[0].stream ? 0 : 1;
    disks.statuses[!home] = BANYAN_ENOSPC;
    assert_int_equal(process_put(process, 20, 1), BANYAN_EUNKNOWN);
    disks.statuses[!home] = BANYAN_EUNKNOWN;
    process_check(process, process_put(process, 21, 1));
    log_stats(process->log, &stats);
    assert_true(stats.degraded > 0);
    assert_true(log_tells_alone(process->log));
    process_check(process, process_put(process, 22, 1)); /* one copy as well: only one disk knows */
    assert_true(log_tells_alone(process->log));
    disks.statuses[!home] = 0;
    process_check(process, process_put(process, 20, 2)); /* this one says it, on two disks */
    assert_false(log_tells_alone(process->log));
    processes_close(&world);
}

/* The second list from now on is refused: the frame that it bears has one copy. */
struct refusal {
    struct process *process;
    unsigned lists;
};

static int refuse_second(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct refusal *refusal = context;
    return ++refusal->lists == 2 ? process_refuse(refusal->process, list)
                                 : wrapper_pass(endpoint, list, list->count);
}

static void put_single(struct process *process, unsigned key)
{
    struct refusal refusal = {.process = process};
    struct log_stats before, after;
    log_stats(process->log, &before);
    process_hooked(process, refuse_second, &refusal);
    process_check(process, process_put(process, key, 1));
    process_hooked(process, NULL, NULL);
    log_stats(process->log, &after);
    assert_int_equal(after.degraded, before.degraded + 1);
    process_own_still(&world, process);
}

/* Another task draws frames of one copy while this one's lists are under way. */
static int mark_meanwhile(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct refusal *refusal = context;
    refusal->lists++;
    log_alone(refusal->process->log);
    return wrapper_pass(endpoint, list, list->count);
}

/* Whether the log's last frame says that there are frames of one copy. */
static bool last_tells(struct process *process)
{
    bool tells = false;
    uint64_t last = 0;
    for (uint16_t n = 0; n < log_nodes(process->log); n++)
        for (struct log_segment *segment = process->log->streams[n].current; segment; segment = NULL) {
            static uint8_t bytes[MEMORY_LOG_SEGMENT_LEAST];
            struct format_log_segment use;
            struct format_log_view view;
            const uint32_t length = (uint32_t)segment->pool.bytes;
            assert_true(length <= sizeof bytes);
            process_check(process, log_bytes_read(process->session, segment->pool.address, bytes, length));
            assert_null(format_log_segment_decode(bytes, &use));
            for (uint32_t at = FORMAT_LOG_BLOCK; at < use.size; at += view.bytes) {
                if (format_log_frame_find(&use, bytes, at, &view) != FORMAT_LOG_WHOLE)
                    break;
                tells = view.first >= last ? view.alone : tells;
                last = view.first > last ? view.first : last;
            }
        }
    assert_true(last > 0);
    return tells;
}

/* P18. That there was a frame of one copy is told until two disks have a frame that says so. At disk-second
 * they are asked for it, and writes do not wait for what they say. */
static void what_is_told_of_one_copy(void **state)
{
    struct disks disks;
    const bool always = *(const bool *)*state;
    processes_open(&world, 2, 0);
    world.options.copies = 2;
    struct process *process = process_start(&world);
    disks = (struct disks){.process = process};
    process_own(&world, process);
    heirs_end(&world, process);
    process_check(process, process_put(process, 0, 1));
    put_single(process, 1);
    assert_true(log_tells_alone(process->log));
    process_check(process, process_put(process, 2, 1)); /* no memory node has a disk: nobody knows */
    assert_true(log_tells_alone(process->log) && last_tells(process));
    process_kept(process, always ? FABRIC_KEPT_ON_DISK_ALWAYS : FABRIC_KEPT_ON_DISK, disks_persist, &disks);
    disks.statuses[1] = BANYAN_EUNKNOWN;
    if (!always) {
        process_check(process, process_put(process, 3, 1)); /* one of the disks does not have it */
        assert_int_equal(asked(&disks), 2);
        assert_true(log_tells_alone(process->log));
        process_check(process, process_put(process, 3, 2)); /* not asked again so soon */
        assert_int_equal(asked(&disks), 2);
        process->log->asked_at = 0;
    }
    disks.statuses[1] = 0;
    process_check(process, process_put(process, 4, 1));
    assert_true(last_tells(process) && !log_tells_alone(process->log));
    const unsigned before = asked(&disks);
    process_check(process, process_put(process, 5, 1));
    assert_false(last_tells(process));
    assert_int_equal(asked(&disks), before + (always ? 2 : 0));
    put_single(process, 6);
    struct refusal meanwhile = {.process = process};
    process_hooked(process, mark_meanwhile, &meanwhile);
    process->log->asked_at = 0;
    process_check(process, process_put(process, 7, 1));
    process_hooked(process, NULL, NULL);
    assert_true(meanwhile.lists > 0 && log_tells_alone(process->log)); /* its sequences may be greater */
    process->log->asked_at = 0;
    process_check(process, process_put(process, 8, 1));
    assert_false(log_tells_alone(process->log));
    processes_close(&world);
}

/* Whether another task's entry with a record may go into a frame that was opened for one without, or with. */
static bool goes_along(struct process *process, bool first_has_record)
{
    static const uint8_t bytes[PROCESSES_VALUE];
    uint8_t key[8];
    key_of(1, key);
    struct tree_logged_entry plain = {.key = {key, sizeof key}, .value = {bytes, sizeof bytes}},
                             record = plain;
    record.record = gaddr_make(0, 4096);
    record.record_bytes = 1024;
    pool_session_begin(tree_session_pool(process->session));
    const struct unmerged_frame *frame =
        log_tree.open(process->log, process->session, 0, first_has_record ? &record : &plain);
    assert_non_null(frame);
    const bool fits = log_tree.fits(process->log, frame, &record);
    assert_true(log_tree.fits(process->log, frame, &plain));
    log_tree.close(process->log, process->session);
    return fits;
}

/* P16. A frame whose first entry has no record carries none: one that has to be carried does not go along. */
static void what_is_carried_opens_its_own_frame(void **state)
{
    (void)state;
    struct disks disks;
    for (unsigned copies = 1; copies <= 2; copies++) {
        processes_open(&world, 2, 0);
        world.options.copies = copies;
        struct process *process = process_start(&world);
        disks = (struct disks){.process = process};
        process_own(&world, process);
        assert_true(goes_along(process, false) && goes_along(process, true)); /* there is no disk */
        process_kept(process, FABRIC_KEPT_ON_DISK, disks_persist, &disks);
        assert_true(goes_along(process, true));
        assert_int_equal(goes_along(process, false), copies == 1);
        processes_close(&world);
    }
}

/* Where it is synced each second nobody waits. */
static void a_commit_waits_for_no_second(void **state)
{
    struct disks disks;
    struct process *process = begin(&disks, FABRIC_KEPT_ON_DISK, 1, 0);
    (void)state;
    for (unsigned i = 0; i < 20; i++)
        process_check(process, process_put(process, i, 1000 + i));
    assert_int_equal(asked(&disks), 0);
    processes_close(&world);
}

/* What the disk refuses is not acknowledged, and no reader has seen it; when it takes it again, it is as if
 * the outcome had been lost. */
static void a_disk_that_refuses(void **state)
{
    struct disks disks;
    struct process *process = begin(&disks, FABRIC_KEPT_ON_DISK_ALWAYS, 2, 0);
    struct log_stats stats;
    (void)state;
    for (unsigned i = 0; i < 8; i++)
        process_check(process, process_put(process, i, 1000 + i));
    disks.status = BANYAN_EUNKNOWN;
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(process_put(process, i, 2000 + i), BANYAN_EUNKNOWN);
        assert_non_null(strstr(tree_session_error(process->session)->text, "disk has failed"));
        assert_int_equal(process_get(process, i), 1000 + i);
    }
    log_stats(process->log, &stats);
    assert_true(stats.unsafe >= 8);
    disks.status = 0;
    for (unsigned i = 0; i < 8; i++) {
        process_check(process, process_put(process, i, 3000 + i));
        assert_int_equal(process_get(process, i), 3000 + i);
    }
    process_check(process, log_flush_all(process->log, process->session));
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(process_get(process, i), 3000 + i);
    processes_close(&world);
}

/* P2. No segment is used again before the disk has it; if it does not take it the log fills up. */
static void segments_wait_for_the_disk(void **state)
{
    struct disks disks;
    struct process *process = begin(&disks, FABRIC_KEPT_ON_DISK, 1, 1 << 20);
    int status = 0;
    unsigned puts = 0;
    (void)state;
    disks.status = BANYAN_ENOSPC;
    while (!status && puts < 20000) {
        status = process_put(process, puts % 100, 1000 + puts);
        puts += !status;
        if (puts % 500 == 0)
            (void)log_flush_all(process->log, process->session);
    }
    assert_int_equal(status, BANYAN_ENOSPC);
    assert_true(asked(&disks) > 0);
    assert_int_not_equal(log_flush_all(process->log, process->session), 0);
    disks.status = 0;
    process_check(process, log_flush_all(process->log, process->session));
    const unsigned before = asked(&disks);
    for (unsigned i = 0; i < 5000; i++) {
        process_check(process, process_put(process, i % 100, 5000 + i));
        if (i % 500 == 0)
            process_check(process, log_flush_all(process->log, process->session));
    }
    assert_true(asked(&disks) > before);
    processes_close(&world);
}

/* What is given back was kept before: an owner's own segments, and those of one that is gone. */
static void what_is_given_back(void **state)
{
    struct disks disks, later;
    struct process *process = begin(&disks, FABRIC_KEPT_ON_DISK, 1, 0);
    (void)state;
    for (unsigned i = 0; i < 20; i++)
        process_check(process, process_put(process, i, 1000 + i));
    const struct fabric_process gone = fabric_self(process->fabric);
    process_dies(&world, process);
    struct process *next = process_start(&world);
    later = (struct disks){.process = next, .status = BANYAN_ENOSPC};
    process_kept(next, FABRIC_KEPT_ON_DISK, disks_persist, &later);
    process_own(&world, next);
    heirs_end(&world, next);
    assert_int_equal(asked(&later), 0);
    assert_int_not_equal(log_release_dead(next->log, next->session, gone), 0);
    assert_int_equal(asked(&later), 1);
    struct memory_status_reply told;
    memory_node_status(world.memory[0], &told);
    assert_int_equal(told.log_processes, 2); /* it stays */
    assert_int_not_equal(log_close(next->log, next->session), 0);
    later.status = 0;
    process_check(next, log_close(next->log, next->session));
    memory_node_status(world.memory[0], &told);
    assert_int_equal(told.log_processes, 1);
    processes_close(&world);
}

int main(void)
{
    static bool second = false, always = true;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_waits_for_the_disk),
        cmocka_unit_test(a_commit_waits_for_no_second),
        cmocka_unit_test(what_is_carried_opens_its_own_frame),
        cmocka_unit_test(both_disks_are_asked),
        cmocka_unit_test(a_disk_that_refuses),
        cmocka_unit_test(segments_wait_for_the_disk),
        cmocka_unit_test(what_is_given_back),
        cmocka_unit_test_prestate(what_is_told_of_one_copy, &second),
        cmocka_unit_test_prestate(what_is_told_of_one_copy, &always),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
