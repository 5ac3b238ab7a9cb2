/*
 * test_session.c - which commands pool_execute puts into one list, what its errors come to, and when an
 * operation begins again. The fabric notes the lists and answers as the test says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "pool/pool.h"

#define LISTS_MAX 16u

struct noting {
    struct fabric fabric;
    struct fabric_endpoint endpoint;
    uint16_t counts[LISTS_MAX]; /* of the lists that came in */
    uint64_t incarnations[LISTS_MAX];
    unsigned lists;
    unsigned fails_at; /* the list of this number, from 1 */
    int status;        /* that one's */
    uint64_t cas_old;  /* what every CAS finds */
    uint64_t incarnation;
};

struct rig {
    struct noting *noting;
    struct pool *pool;
    struct pool_worker *worker;
    struct pool_session session;
    struct fabric_cost cost;
};

/* ---- the fabric ---- */

static int noting_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    struct noting *noting = (struct noting *)endpoint->fabric;
    int first = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct fabric_list *list = lists[i];
        assert_true(noting->lists < LISTS_MAX);
        noting->counts[noting->lists] = list->count;
        noting->incarnations[noting->lists++] = list->incarnation;
        list->status = noting->lists == noting->fails_at ? noting->status : 0;
        first = first ? first : list->status;
        for (uint16_t at = 0; at < list->count; at++)
            if (list->commands[at].operation == FABRIC_CAS)
                list->commands[at].cas.old = noting->cas_old;
    }
    return first;
}

static int noting_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                       void *reply, size_t capacity, size_t *reply_length)
{
    (void)node;
    (void)request;
    (void)length;
    (void)reply;
    (void)capacity;
    *reply_length = 0;
    return ((struct noting *)endpoint->fabric)->status;
}

static struct fabric_endpoint *noting_endpoint_open(struct fabric *fabric, struct error *error)
{
    struct noting *noting = (struct noting *)fabric;
    (void)error;
    noting->endpoint.fabric = fabric;
    return &noting->endpoint;
}

static void noting_endpoint_close(struct fabric_endpoint *endpoint)
{
    endpoint->fabric = NULL;
}

static void noting_close(struct fabric *fabric)
{
    free(fabric);
}

static uint64_t noting_incarnation(const struct fabric *fabric)
{
    return ((const struct noting *)fabric)->incarnation;
}

static const struct fabric_ops noting_ops = {
    .execute = noting_execute,
    .call = noting_call,
    .endpoint_open = noting_endpoint_open,
    .endpoint_close = noting_endpoint_close,
    .close = noting_close,
    .incarnation = noting_incarnation,
};

static void rig_open(struct rig *rig, enum pool_combine combine)
{
    struct error error = {0};
    rig->noting = calloc(1, sizeof *rig->noting);
    assert_non_null(rig->noting);
    rig->noting->fabric = (struct fabric){.ops = &noting_ops,
                                          .capabilities = {.backend = "noting",
                                                           .memory_nodes = 2,
                                                           .compute_id = 1,
                                                           .lock_width = 8,
                                                           .lock_region_bytes = 4096,
                                                           .atomic_write = 1024,
                                                           .masked_cas = true}};
    rig->noting->incarnation = 7;
    assert_int_equal(pool_create(&rig->pool, &rig->noting->fabric, combine, &error), 0);
    assert_int_equal(pool_worker_create(&rig->worker, rig->pool, &error), 0);
    pool_session_init(&rig->session, rig->worker, &rig->cost);
    pool_session_begin(&rig->session);
}

static void rig_close(struct rig *rig)
{
    pool_worker_abandon(rig->worker);
    pool_destroy(rig->pool);
    fabric_close(&rig->noting->fabric);
}

/* ---- commands ---- */

static uint64_t room[2 * FABRIC_COMMANDS_MAX];

/* r: READ, w: WRITE, c: CAS of 0 */
static uint32_t commands_of(const char *text, struct fabric_command *commands)
{
    uint32_t count = 0;
    for (; text[count]; count++) {
        gaddr at = gaddr_make(0, 4096 + 8 * count);
        commands[count] = text[count] == 'r' ? pool_read_command(at, &room[count], 8)
                          : text[count] == 'w'
                              ? pool_write_command(at, &room[count], 8)
                              : (struct fabric_command){.operation = FABRIC_CAS,
                                                        .address = at,
                                                        .cas = {.swap = 1, .mask = UINT64_MAX}};
    }
    return count;
}

static int execute(struct rig *rig, const char *text)
{
    struct fabric_command commands[2 * FABRIC_COMMANDS_MAX];
    rig->noting->lists = 0;
    return pool_execute(&rig->session, 0, commands, commands_of(text, commands));
}

/* `lengths`: of the lists that the commands are put into. */
static void expect_lists(struct rig *rig, const char *text, unsigned count, const uint16_t *lengths)
{
    uint64_t before = rig->cost.lists;
    assert_int_equal(execute(rig, text), 0);
    assert_int_equal(rig->noting->lists, count);
    assert_int_equal(rig->cost.lists - before, count); /* where the owner looks, without asking */
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(rig->noting->counts[i], lengths[i]);
        assert_int_equal(rig->noting->incarnations[i], 7);
    }
}
#define EXPECT_LISTS(rig, text, ...)                                                                         \
    expect_lists(rig, text, sizeof((uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t), (uint16_t[]){__VA_ARGS__})

/* ---- combining ---- */

static void off_combines_nothing(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, POOL_COMBINE_OFF);
    EXPECT_LISTS(&rig, "crr", 1, 1, 1);
    EXPECT_LISTS(&rig, "wwc", 1, 1, 1);
    rig_close(&rig);
}

/* WRITEs and what follows them up to a READ; a lock goes alone. */
static void writes_combine_with_their_unlock(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, POOL_COMBINE_WRITES);
    EXPECT_LISTS(&rig, "crr", 1, 1, 1);
    EXPECT_LISTS(&rig, "wwc", 3);
    EXPECT_LISTS(&rig, "wrw", 1, 1, 1);
    EXPECT_LISTS(&rig, "wwrwc", 2, 1, 2);
    rig_close(&rig);
}

static void all_combines_up_to_a_lists_length(void **state)
{
    (void)state;
    struct rig rig;
    char many[FABRIC_COMMANDS_MAX + 4];
    rig_open(&rig, POOL_COMBINE_ALL);
    EXPECT_LISTS(&rig, "crr", 3);
    EXPECT_LISTS(&rig, "wrwc", 4);
    memset(many, 'w', sizeof many - 1);
    many[sizeof many - 1] = 0;
    EXPECT_LISTS(&rig, many, FABRIC_COMMANDS_MAX, 3);
    rig_close(&rig);
    rig_open(&rig, POOL_COMBINE_WRITES);
    EXPECT_LISTS(&rig, many, FABRIC_COMMANDS_MAX, 3);
    rig_close(&rig);
}

/* What stands behind a CAS that failed is not run: the lock is not held. */
static void a_failed_cas_ends_the_commands(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, POOL_COMBINE_WRITES);
    rig.noting->cas_old = 3;
    EXPECT_LISTS(&rig, "crr", 1);
    rig.noting->cas_old = 0;
    EXPECT_LISTS(&rig, "crr", 1, 1, 1);
    rig_close(&rig);
}

/* ---- errors ---- */

static int execute_failing(struct rig *rig, const char *text, unsigned at, int status)
{
    rig->noting->fails_at = at;
    rig->noting->status = status;
    memset(&rig->session.error, 0, sizeof rig->session.error);
    int met = execute(rig, text);
    assert_int_equal(rig->session.error.code, met);
    assert_true(rig->session.error.text[0]);
    assert_int_equal(rig->noting->lists, at); /* nothing is posted behind it */
    return met;
}

/* EFENCED and ENOMEM say that nothing was done: not behind a part that was. */
static void a_refusal_behind_a_first_part_is_a_lost_connection(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, POOL_COMBINE_OFF);
    assert_int_equal(execute_failing(&rig, "wwc", 1, BANYAN_EFENCED), BANYAN_EFENCED);
    assert_int_equal(execute_failing(&rig, "wwc", 2, BANYAN_EFENCED), BANYAN_ENET);
    assert_int_equal(execute_failing(&rig, "crr", 2, BANYAN_EFENCED), BANYAN_ENET);
    assert_int_equal(execute_failing(&rig, "wwc", 1, BANYAN_ENOMEM), BANYAN_ENOMEM);
    assert_int_equal(execute_failing(&rig, "wwc", 2, BANYAN_ENOMEM), BANYAN_ENET);
    assert_int_equal(execute_failing(&rig, "crr", 2, BANYAN_ENOMEM), BANYAN_ENOMEM); /* it has only locked */
    assert_int_equal(execute_failing(&rig, "r", 1, BANYAN_ENET), BANYAN_ENET);
    rig_close(&rig);
}

/* Addresses come from links. */
static void an_address_that_does_not_exist_is_corruption(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, POOL_COMBINE_ALL);
    assert_int_equal(execute_failing(&rig, "r", 1, BANYAN_EADDRESS), BANYAN_ECORRUPT);
    assert_non_null(strstr(rig.session.error.text, "0:0x1000"));
    assert_int_equal(execute_failing(&rig, "cr", 1, BANYAN_EINVAL), BANYAN_ECORRUPT);
    assert_non_null(strstr(rig.session.error.text, "0:0x1008")); /* the node, not its lock */
    rig_close(&rig);
}

static void a_failed_write_is_unknown(void **state)
{
    (void)state;
    struct rig rig;
    rig_open(&rig, POOL_COMBINE_ALL);
    assert_int_equal(pool_unknown(&rig.session, BANYAN_ENET), BANYAN_EUNKNOWN);
    assert_int_equal(pool_unknown(&rig.session, BANYAN_ETIMEOUT), BANYAN_EUNKNOWN);
    assert_int_equal(pool_unknown(&rig.session, BANYAN_EFENCED), BANYAN_EFENCED);
    assert_int_equal(pool_unknown(&rig.session, BANYAN_ENOSPC), BANYAN_ENOSPC);
    assert_int_equal(pool_unknown(&rig.session, 0), 0);
    assert_int_equal(pool_not_done(&rig.session, BANYAN_EUNKNOWN), BANYAN_ENET);
    assert_int_equal(pool_not_done(&rig.session, BANYAN_ENOSPC), BANYAN_ENOSPC);
    assert_int_equal(pool_not_done(&rig.session, 0), 0);
    rig_close(&rig);
}

/* Else an operation would begin again at once, as often as it is refused. */
static void a_call_is_never_fenced(void **state)
{
    (void)state;
    struct rig rig;
    char reply[8];
    size_t length;
    rig_open(&rig, POOL_COMBINE_ALL);
    rig.noting->status = BANYAN_EFENCED;
    assert_int_equal(pool_call(&rig.session, 1, "x", 1, reply, sizeof reply, &length), BANYAN_ENET);
    rig.noting->status = 0;
    assert_int_equal(pool_call(&rig.session, 1, "x", 1, reply, sizeof reply, &length), 0);
    rig_close(&rig);
}

/* ---- again ---- */

static void an_operation_begins_again_once_for_each_loss(void **state)
{
    (void)state;
    struct rig rig;
    int status = BANYAN_EFENCED;
    rig_open(&rig, POOL_COMBINE_ALL);
    assert_false(pool_session_again(&rig.session, &status)); /* no loss since it began */
    assert_int_equal(status, BANYAN_EFENCED);
    rig.noting->incarnation = 8;
    status = BANYAN_ENET;
    assert_false(pool_session_again(&rig.session, &status));
    assert_int_equal(status, BANYAN_ENET);
    status = BANYAN_EFENCED;
    assert_true(pool_session_again(&rig.session, &status));
    assert_int_equal(status, 0);
    assert_int_equal(rig.session.incarnation, 8);
    execute(&rig, "r");
    assert_int_equal(rig.noting->incarnations[0], 8);
    status = BANYAN_EFENCED;
    assert_false(pool_session_again(&rig.session, &status));
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(off_combines_nothing),
        cmocka_unit_test(writes_combine_with_their_unlock),
        cmocka_unit_test(all_combines_up_to_a_lists_length),
        cmocka_unit_test(a_failed_cas_ends_the_commands),
        cmocka_unit_test(a_refusal_behind_a_first_part_is_a_lost_connection),
        cmocka_unit_test(an_address_that_does_not_exist_is_corruption),
        cmocka_unit_test(a_failed_write_is_unknown),
        cmocka_unit_test(a_call_is_never_fenced),
        cmocka_unit_test(an_operation_begins_again_once_for_each_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
