/*
 * test_audit_logs.c - the audit behind `banyan check`, and owners' logs: their blocks are in use; a log is
 * given back only if its process is gone and no range needs it, and while one is left nothing else is given
 * back. One task, the local fabric; the processes with logs are requests by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "owner/owner.h"
#include "pool/log.h"
#include "store/audit.h"
#include "stores.h"

#define NODES 2u
#define X     41u /* compute nodes; their instances are 1,000 more */
#define Y     42u
#define Z     43u
#define KEYS  500u

static struct stores stores;
static struct store_session *session;
static struct tree_session *below;
static struct tree *map;

static int set_up(void **state)
{
    struct world_options options;
    stores_options_default(&options);
    options.memory_nodes = NODES;
    options.pool_bytes = UINT64_C(16) << 20;
    options.chunk_bytes = UINT64_C(64) << 10;
    assert_int_equal(stores_create(&stores, &options), 0);
    session = stores.world.tasks[0].store_session;
    below = stores.world.tasks[0].session;
    map = NULL;
    for (unsigned i = 0; i < KEYS; i++)
        assert_int_equal(store_put(session, &i, sizeof i, "0123456789abcdef0123456789abcdef", 32, 0), 0);
    return 0;
}

static int tear_down(void **state)
{
    if (map)
        tree_close(map);
    stores_destroy(&stores);
    return 0;
}

/* ---- processes with logs ---- */

static struct memory_log_reply ask(unsigned node, uint16_t id, uint32_t kind, uint64_t bytes)
{
    struct memory_log_request request = {.kind = kind, .instance = 1000u + id, .bytes = bytes};
    struct memory_log_reply reply = {0};
    struct memory_call call = {.role = MEMORY_ROLE_DATA,
                               .compute_id = id,
                               .request = &request,
                               .length = sizeof request,
                               .reply = &reply,
                               .capacity = sizeof reply};
    assert_int_equal(memory_node_serve(stores.world.memory[node], &call), 0);
    assert_int_equal(reply.refusal, MEMORY_LOG_GRANTED);
    return reply;
}

static void keep_log(unsigned node, uint16_t id, unsigned segments)
{
    ask(node, id, MEMORY_LOG_OPEN, 0);
    while (segments-- > 0)
        ask(node, id, MEMORY_LOG_TAKE, MEMORY_LOG_SEGMENT_LEAST);
}

static void fence(uint16_t id)
{
    for (unsigned node = 0; node < NODES; node++)
        memory_node_finish(stores.world.memory[node], id);
}

static uint64_t processes_on(unsigned node)
{
    struct memory_status_reply status;
    memory_node_status(stores.world.memory[node], &status);
    return status.log_processes;
}

/* ---- the map ---- */

static struct fabric_process process_of(uint16_t id)
{
    return (struct fabric_process){.instance = id ? 1000u + id : 0, .compute_id = id};
}

static void map_make(void)
{
    static const struct format_geometry geometry = {.key_kind = FORMAT_KEY_VARIABLE,
                                                    .value_bytes = FORMAT_RANGE_VALUE_BYTES};
    assert_int_equal(tree_create(below, OWNER_MAP_NAME, &geometry, &map), 0);
}

static void map_write(const struct format_range *range)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    size_t length = format_range_encode(range, key, value);
    assert_int_equal(tree_upsert(below, map, key, length, value, sizeof value), 0);
}

/* ---- auditing ---- */

#define LOGS_MAX 8u
struct outcome {
    struct audit_report report;
    struct audit_log logs[LOGS_MAX];
    unsigned logs_told;
    int status;
};

static void note_problem(void *context, const char *text)
{
    fail_msg("%s", text);
}

static void note_log(void *context, const struct audit_log *log)
{
    struct outcome *outcome = context;
    assert_true(outcome->logs_told < LOGS_MAX);
    outcome->logs[outcome->logs_told++] = *log;
}

static struct outcome audit(bool reclaim)
{
    struct outcome outcome = {0};
    const struct audit_options options = {
        .reclaim = reclaim, .problem = note_problem, .log = note_log, .context = &outcome};
    outcome.status = audit_run(below, &options, &outcome.report);
    assert_int_equal(outcome.status, 0);
    assert_int_equal(outcome.report.problems, 0);
    return outcome;
}

static void logs_are_in_use(void **state)
{
    struct outcome before = audit(false);
    assert_true(before.report.log_processes == 0 && before.logs_told == 0);
    keep_log(0, X, 2);
    keep_log(1, X, 1);
    keep_log(1, Y, 0);
    struct outcome after = audit(false);
    assert_int_equal(after.report.blocks_lost, before.report.blocks_lost);
    assert_true(after.report.log_processes == 2 && after.report.log_segments == 3 &&
                after.report.log_bytes == 3 * MEMORY_LOG_SEGMENT_LEAST && after.report.logs_released == 0);
    assert_int_equal(after.report.blocks_used, before.report.blocks_used + 3 + 3);
    assert_int_equal(after.report.bytes_used,
                     before.report.bytes_used + 3 * MEMORY_LOG_SEGMENT_LEAST + 3 * MEMORY_LOG_CONTROL_BYTES);
    assert_true(after.logs_told == 2 && after.logs[0].process.compute_id == X &&
                after.logs[0].segments == 3 && after.logs[0].nodes == 2 && after.logs[0].nodes_fenced == 0);
    fence(X);
    after = audit(false);
    assert_int_equal(after.logs[0].nodes_fenced, 2);
}

/* A block that only a log may name is not given back while the log is there. */
static void take_and_lose(void)
{
    gaddr block;
    assert_int_equal(pool_block_allocate(tree_session_pool(below), GADDR_NULL, 3000, &block), 0);
}

static void without_a_map_all_logs_stay(void **state)
{
    keep_log(0, X, 2);
    take_and_lose();
    fence(X);
    struct outcome outcome = audit(true);
    assert_true(outcome.report.logs_released == 0 && outcome.report.blocks_reclaimed == 0 &&
                outcome.report.blocks_lost > 0);
    assert_int_equal(processes_on(0), 1);
}

static void logs_that_ranges_need_stay(void **state)
{
    struct format_range range = {
        .state = FORMAT_RANGE_SETTLED, .owner = process_of(X), .epoch = 1, .version = 1};
    keep_log(0, X, 2);
    keep_log(1, Y, 1);
    keep_log(0, Z, 1);
    keep_log(1, Z, 2);
    take_and_lose();
    map_make();
    range.heirs[range.heir_count++].process = process_of(Z);
    map_write(&range);
    range = (struct format_range){.number = 3,
                                  .state = FORMAT_RANGE_MOVING,
                                  .owner = process_of(X),
                                  .next = process_of(Y),
                                  .epoch = 1,
                                  .version = 1};
    map_write(&range);
    fence(X), fence(Y), fence(Z);
    struct outcome outcome = audit(true);
    assert_true(outcome.report.logs_released == 0 && outcome.report.blocks_reclaimed == 0);

    /* Z is no heir any more: its log goes, everywhere; the others stay, and so do lost blocks. */
    range = (struct format_range){
        .state = FORMAT_RANGE_SETTLED, .owner = process_of(X), .epoch = 2, .version = 2};
    map_write(&range);
    outcome = audit(true);
    assert_true(outcome.report.logs_released == 1 && outcome.report.blocks_reclaimed == 0);
    assert_true(processes_on(0) == 1 && processes_on(1) == 1);

    /* When the last one is not needed either, what is lost comes back too. */
    range.owner = process_of(0);
    map_write(&range);
    range.number = 3;
    map_write(&range);
    outcome = audit(true);
    assert_true(outcome.report.logs_released == 2 && outcome.report.blocks_reclaimed > 0);
    assert_true(processes_on(0) == 0 && processes_on(1) == 0);
    outcome = audit(false);
    assert_true(outcome.report.log_processes == 0 && outcome.report.blocks_lost == 0);
}

static void logs_of_the_living_stay(void **state)
{
    map_make();
    keep_log(0, X, 1);
    keep_log(1, X, 1);
    memory_node_finish(stores.world.memory[1], X); /* fenced at one memory node alone */
    struct outcome outcome = audit(true);
    assert_int_equal(outcome.report.logs_released, 0);
    assert_true(processes_on(0) == 1 && processes_on(1) == 1);
    assert_true(outcome.logs[0].nodes == 2 && outcome.logs[0].nodes_fenced == 1);
}

/* What cannot be read may name any process. */
static void a_damaged_map_keeps_all_logs(void **state)
{
    struct format_range range = {.state = FORMAT_RANGE_SETTLED, .epoch = 1, .version = 1};
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    size_t length = format_range_encode(&range, key, value);
    keep_log(0, X, 1);
    fence(X);
    map_make();
    value[20] ^= 1;
    assert_int_equal(tree_upsert(below, map, key, length, value, sizeof value), 0);
    assert_int_equal(audit(true).report.logs_released, 0);
    assert_int_equal(processes_on(0), 1);
    map_write(&range);
    assert_int_equal(audit(true).report.logs_released, 1);
}

/* More processes and segments than a page of each. */
static void pages(void **state)
{
    for (uint16_t id = 1; id <= MEMORY_LOG_PAGE + 5; id++)
        keep_log(0, (uint16_t)(1000 + id), 0);
    keep_log(1, X, 2);
    struct audit_report report;
    const struct audit_options options = {.problem = note_problem};
    assert_int_equal(audit_run(below, &options, &report), 0);
    assert_true(report.log_processes == MEMORY_LOG_PAGE + 6 && report.log_segments == 2);
    assert_int_equal(report.problems, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(logs_are_in_use, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_a_map_all_logs_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(logs_that_ranges_need_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(logs_of_the_living_stay, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_map_keeps_all_logs, set_up, tear_down),
        cmocka_unit_test_setup_teardown(pages, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
