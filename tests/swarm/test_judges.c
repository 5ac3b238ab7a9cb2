/*
 * test_judges.c - how the driver and the world judge answers: which they excuse, and which
 * not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/task.h"
#include "swarm/linearize.h"
#include "swarm/plan.h"
#include "swarm/run.h"
#include "swarm/world.h"
#include "swarm/world_ranges.h"
#include "tree/rights.h"

/* ---- a subject that answers as it is told to ---- */

struct rig {
    struct history history;
    struct history_log log;
    struct driver_setting setting;
    struct driver driver;
    int status; /* the answer */
    bool lossy;
    uint64_t held; /* number of the value that a read meets */
};

static int rig_one(void *context, struct subject_call *call)
{
    struct rig *rig = context;
    if (call->kind == HISTORY_GET && rig->status == 0)
        call->result_length = driver_value(&rig->setting.shape, rig->held, call->result);
    return rig->status;
}

static const char *rig_trouble(void *context)
{
    return "as it was told to";
}

static bool rig_lossy(void *context)
{
    return ((struct rig *)context)->lossy;
}

static void rig_fail(void *context, int code, const char *text)
{
    ((struct rig *)context)->setting.failed = code;
}

static void rig_open(struct rig *rig)
{
    static const struct subject_ops subject = {.one = rig_one, .trouble = rig_trouble};
    *rig = (struct rig){.setting = {.shape = {.fixed_keys = true, .key_bytes = 8, .value_bytes = 8},
                                    .history = &rig->history,
                                    .fail = rig_fail,
                                    .lossy = rig_lossy,
                                    .context = rig}};
    history_init(&rig->history);
    history_log_init(&rig->log, &rig->history, 0);
    driver_init(&rig->driver, &rig->setting, &subject, rig, &rig->log, 1);
}

static void rig_close(struct rig *rig)
{
    driver_free(&rig->driver);
    history_log_free(&rig->log);
}

/* Whether the answer makes the run fail. */
static bool is_wrong(enum history_kind kind, int status, bool lossy)
{
    struct rig rig;
    rig_open(&rig);
    rig.status = status;
    rig.lossy = lossy;
    driver_operate(&rig.driver, kind, 7, 0);
    bool wrong = rig.setting.failed != 0;
    rig_close(&rig);
    return wrong;
}

static void losses_are_excuses_where_there_were_some(void **state)
{
    static const int statuses[] = {BANYAN_EUNKNOWN, BANYAN_ENET, BANYAN_ETIMEOUT};
    static const enum history_kind kinds[] = {HISTORY_GET, HISTORY_PUT, HISTORY_INSERT, HISTORY_DELETE};
    for (size_t i = 0; i < sizeof statuses / sizeof statuses[0]; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            assert_true(is_wrong(kinds[k], statuses[i], false));
            assert_false(is_wrong(kinds[k], statuses[i], true));
        }
}

static bool refusal_is_wrong(bool full, bool refusals, uint64_t calm_ns)
{
    struct rig rig;
    rig_open(&rig);
    rig.setting.accept_full = full;
    rig.setting.accept_refusals = refusals;
    rig.setting.calm_ns = calm_ns;
    rig.status = BANYAN_ENOSPC;
    driver_operate(&rig.driver, HISTORY_PUT, 7, 0);
    bool wrong = rig.setting.failed != 0;
    rig_close(&rig);
    return wrong;
}

static void who_only_refused_has_room_in_the_end(void **state)
{
    assert_true(refusal_is_wrong(false, false, 0));
    assert_false(refusal_is_wrong(true, false, 0));
    assert_false(refusal_is_wrong(true, false, 1));
    assert_false(refusal_is_wrong(false, true, 0));
    assert_true(refusal_is_wrong(false, true, 1)); /* calm since long before now */
    assert_false(refusal_is_wrong(false, true, task_now() + UINT64_C(3600000000000)));
}

/* BANYAN_ENET promises that nothing has been done: its value, read all the same, was never written. */
static void broken_promises_are_noticed(void **state)
{
    static const int statuses[] = {BANYAN_ENET, BANYAN_EUNKNOWN};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        rig_open(&rig);
        rig.lossy = true;
        rig.status = statuses[i];
        driver_operate(&rig.driver, HISTORY_PUT, 7, 0);
        rig.held = rig.history.values; /* the value written just now */
        rig.status = 0;
        driver_operate(&rig.driver, HISTORY_GET, 7, 0);
        assert_int_equal(rig.setting.failed, 0);
        assert_int_equal(linearize_key(rig.log.ops, rig.log.count, 0, NULL, NULL, 0),
                         statuses[i] == BANYAN_ENET ? LINEARIZE_REJECTED : LINEARIZE_ACCEPTED);
        rig_close(&rig);
    }
}

/* ---- the world ---- */

static void put_some(struct world_task *task)
{
    for (uint64_t key = 0; key < 20; key++)
        world_operate(task, HISTORY_PUT, key, 0);
}

/* The reader at the end has read every key: else nothing has been judged. */
static void a_dead_judge_is_no_judge(void **state)
{
    struct world_options options;
    struct world world;
    world_options_default(&options);
    options.simulated = true;
    options.compute_nodes = 2;
    assert_int_equal(world_create(&world, &options), 0);
    assert_int_equal(world_run_one(&world, 1, put_some), 0);
    world_kill_at_effect(&world, 1, 10, 20000);
    assert_int_equal(world_run_one(&world, 1, put_some), BANYAN_EFENCED);
    assert_true(world.computes[1].dead);
    world_destroy(&world);

    assert_int_equal(world_create(&world, &options), 0);
    world_kill_at(&world, 1, 0, 20000);
    assert_int_equal(world_run_one(&world, 0, put_some), 0);
    assert_int_equal(world_run_one(&world, 1, put_some), BANYAN_EFENCED); /* dead already */
    world_destroy(&world);
}

/* Deaths before the n-th effect, arranged while faults were on, once met the task that reads all keys at the
 * end. */
static void deaths_stop_with_the_faults(void **state)
{
    static const uint64_t seeds[] = {1176, 2559, 2877, 2996};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct swarm_plan plan;
        struct swarm_result result;
        struct error error;
        swarm_plan_draw(&plan, seeds[i]);
        assert_int_equal(swarm_plan_set(&plan, "kill-at-effect", "on", &error), 0);
        assert_int_equal(swarm_plan_set(&plan, "kills", "6", &error), 0);
        assert_int_equal(swarm_plan_set(&plan, "span-ns", "2000000", &error), 0);
        if (swarm_run(&plan, NULL, &result))
            fail_msg("seed %lu: %s", (unsigned long)seeds[i], result.what);
        swarm_plan_free(&plan);
    }
}

/* ---- two owners at one time ---- */

#define BORDER 50u /* the ranges before this key are everyone's */

/* By compute node, of the range behind the border: o owned, s shared, x another's, m moving. */
static const char *rights_of_all;

static void adopt_right(struct world_task *task)
{
    const char letter = rights_of_all[task->compute];
    const enum tree_right right = letter == 'o'   ? TREE_OWNED
                                  : letter == 's' ? TREE_SHARED
                                  : letter == 'x' ? TREE_OTHERS
                                                  : TREE_MOVING;
    struct world *world = task->world;
    struct fabric *fabric = world->computes[task->compute].fabric;
    uint8_t key[FORMAT_KEY_MAX];
    struct tree_rights_row rows[2] = {
        {.right = TREE_SHARED, .epoch = 1},
        {.lower = key, .lower_length = (uint32_t)world_key(world, BORDER, key), .right = right, .epoch = 1}};
    if (right == TREE_OTHERS)
        rows[1].owner = (struct fabric_process){.instance = 77, .compute_id = 7};
    int status = tree_rights_adopt(task->session, task->tree, 1, fabric_incarnation(fabric), rows, 2);
    if (status)
        world_fail(world, status, "%s", tree_session_error(task->session)->text);
}

enum mishap { NO_MISHAP, SECOND_IS_CUT_OFF, SECOND_DIES, SECOND_COMES_BACK };

static void sleep_a_while(struct world_task *task)
{
    (void)task;
    task_sleep(1000000);
}

static void is_fenced(void *context)
{
    (void)context;
}

static bool two_owners(const char *rights, enum mishap mishap)
{
    struct world_options options;
    struct world world;
    world_options_default(&options);
    options.simulated = true;
    options.compute_nodes = 3;
    assert_int_equal(world_create(&world, &options), 0);
    rights_of_all = rights;
    assert_int_equal(world_run(&world, adopt_right), 0);
    world_begin_losses(&world);
    if (mishap == SECOND_DIES)
        sim_kill_compute(world.sim, 1, 20000, is_fenced, NULL);
    else if (mishap)
        sim_cut(world.sim, 1, 0);
    if (mishap == SECOND_COMES_BACK) /* it is connected again, and has its old table */
        assert_int_equal(world_run_one(&world, 0, sleep_a_while), 0);
    assert_int_equal(mishap == NO_MISHAP || mishap == SECOND_COMES_BACK, sim_connected(world.sim, 1, 0));
    world_ranges_judge(&world, BORDER - 1);
    assert_int_equal(world.error.code, 0);
    world_ranges_judge(&world, BORDER);
    world_ranges_judge(&world, 2 * BORDER);
    bool wrong = world.error.code == BANYAN_ECONFLICT;
    assert_true(wrong || !world.error.code);
    world_destroy(&world);
    return wrong;
}

static void two_owners_are_noticed(void **state)
{
    static const char *const good[] = {"sss", "oxx", "xxo", "omx", "mmm", "sms", "sxx"},
                             *const bad[] = {"oox", "oxo", "xoo", "sox", "oss", "mos", "ooo"},
                             *const excused[] = {"oox", "xso", "sos"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
        assert_false(two_owners(good[i], NO_MISHAP));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(two_owners(bad[i], NO_MISHAP));
    /* What a fenced node believes is worth nothing, nor is what it believed before it was fenced. */
    for (size_t i = 0; i < sizeof excused / sizeof excused[0]; i++)
        for (unsigned mishap = SECOND_IS_CUT_OFF; mishap <= SECOND_COMES_BACK; mishap++)
            assert_false(two_owners(excused[i], (enum mishap)mishap));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_excuses_where_there_were_some),
        cmocka_unit_test(who_only_refused_has_room_in_the_end),
        cmocka_unit_test(broken_promises_are_noticed),
        cmocka_unit_test(a_dead_judge_is_no_judge),
        cmocka_unit_test(deaths_stop_with_the_faults),
        cmocka_unit_test(two_owners_are_noticed),
    };
    return cmocka_run_group_tests_name("swarm_judges", tests, NULL, NULL);
}
