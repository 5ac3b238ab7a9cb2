/* test_services.c - services of a memory node: who answers which kinds and for whom, what a call costs by its
 * model, work in the background, and the order of a compute node's end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <pthread.h>
#include <cmocka.h>

#include "fabric/local.h"
#include "memory/memory.h"

#define LOCKS UINT64_C(1024)
#define FIRST 1000u /* kind of the services here */
#define KINDS 3u
#define ID    7

/* What a service of a test was asked. */
struct probe {
    struct memory_node *node;
    struct memory_call last;
    unsigned calls;
    uint64_t to_do_ns; /* background work that is left */
    unsigned turns;
    unsigned working; /* threads in it: at most one */
    unsigned overlaps;
    uint16_t ended[4];
    unsigned ends;
    unsigned locks_then; /* words that still bore the id */
};

static struct memory_node *make(void)
{
    struct memory_options options = {.node = 1,
                                     .pool_bytes = MEMORY_FIRST_CHUNK(LOCKS) + (64u << 10),
                                     .chunk_bytes = 64u << 10,
                                     .lock_bytes = LOCKS};
    struct memory_node *node = NULL;
    struct error error = {0};
    if (memory_node_create(&node, &options, &error))
        fail_msg("%s", error.text);
    return node;
}

static int probe_serve(void *context, struct memory_call *call)
{
    struct probe *probe = context;
    probe->calls++;
    probe->last = *call;
    if (call->length > sizeof call->kind)
        return BANYAN_EBUSY;
    uint32_t answer = call->kind + 1;
    if (call->capacity < sizeof answer)
        return BANYAN_EINVAL;
    memcpy(call->reply, &answer, sizeof answer);
    call->reply_length = sizeof answer;
    return BANYAN_OK;
}

static uint64_t probe_cost(void *context, const struct memory_call *call)
{
    return call->kind * 1000 + call->length;
}

/* In steps of 300 ns by its model. */
static bool probe_work(void *context, uint64_t *budget_ns)
{
    struct probe *probe = context;
    if (__atomic_fetch_add(&probe->working, 1u, __ATOMIC_SEQ_CST) != 0)
        probe->overlaps++;
    probe->turns++;
    while (probe->to_do_ns > 0 && *budget_ns > 0) {
        uint64_t step = probe->to_do_ns < 300 ? probe->to_do_ns : 300;
        step = step < *budget_ns ? step : *budget_ns;
        probe->to_do_ns -= step;
        *budget_ns -= step;
    }
    __atomic_fetch_sub(&probe->working, 1u, __ATOMIC_SEQ_CST);
    return probe->to_do_ns > 0;
}

static void probe_fenced(void *context, uint16_t compute_id)
{
    struct probe *probe = context;
    const struct fabric_target *target = memory_node_target(probe->node);
    const uint16_t *locks = (const uint16_t *)(const void *)target->locks;
    const uint16_t *dram = (const uint16_t *)(const void *)(target->pool + MEMORY_LOCK_TABLE_OFFSET);
    probe->ended[probe->ends++ % 4] = compute_id;
    probe->locks_then = 0;
    for (unsigned i = 0; i < LOCKS / 2; i++)
        probe->locks_then += (locks[i] == compute_id ? 1u : 0u) + (dram[i] == compute_id ? 1u : 0u);
}

static void probe_report(void *context, struct memory_status_reply *status)
{
    status->uptime_ms += 11;
}

static const struct memory_service plain = {
    .name = "plain", .roles = MEMORY_ROLE_DATA | MEMORY_ROLE_MONITOR, .serve = probe_serve};
static const struct memory_service full = {.name = "full",
                                           .roles = MEMORY_ROLES_ALL,
                                           .serve = probe_serve,
                                           .cost_ns = probe_cost,
                                           .work = probe_work,
                                           .fenced = probe_fenced,
                                           .report = probe_report};
static const struct memory_service silent = {.name = "silent", .fenced = probe_fenced};
static const struct memory_service worker = {.name = "worker", .work = probe_work};

static int ask(struct memory_node *node, enum memory_role role, uint32_t kind)
{
    uint32_t reply = 0;
    struct memory_call call = {.role = role,
                               .compute_id = ID,
                               .request = &kind,
                               .length = sizeof kind,
                               .reply = &reply,
                               .capacity = sizeof reply,
                               .reply_length = 99};
    int status = memory_node_serve(node, &call);
    assert_int_equal(call.reply_length, status ? 0 : sizeof reply);
    if (!status)
        assert_int_equal(reply, kind + 1);
    return status;
}

static void a_range_is_answered(void **state)
{
    struct memory_node *node = make();
    struct probe probe = {.node = node};
    memory_node_register(node, &plain, FIRST, KINDS, &probe);
    assert_int_equal(ask(node, MEMORY_ROLE_DATA, FIRST - 1), BANYAN_EINVAL);
    for (uint32_t kind = FIRST; kind < FIRST + KINDS; kind++) {
        assert_int_equal(ask(node, MEMORY_ROLE_DATA, kind), BANYAN_OK);
        assert_int_equal(probe.last.kind, kind);
        assert_int_equal(probe.last.compute_id, ID);
    }
    assert_int_equal(ask(node, MEMORY_ROLE_DATA, FIRST + KINDS), BANYAN_EINVAL);
    assert_int_equal(probe.calls, KINDS);
    memory_node_unregister(node, &plain, &probe);
    assert_int_equal(ask(node, MEMORY_ROLE_DATA, FIRST), BANYAN_EINVAL);
    assert_int_equal(probe.calls, KINDS);
    memory_node_destroy(node);
}

static void roles_are_kept(void **state)
{
    struct memory_node *node = make();
    struct probe probe = {.node = node};
    const enum memory_role roles[] = {MEMORY_ROLE_DATA, MEMORY_ROLE_CONTROL, MEMORY_ROLE_MONITOR,
                                      MEMORY_ROLE_FORMATTER};
    const uint32_t own[] = {MEMORY_ALLOCATE, MEMORY_FREE, MEMORY_STATUS, MEMORY_USAGE};
    /* Requests of a kind alone are too short: who may call learns that. */
    const int expected[4][4] = {
        {BANYAN_EINVAL, BANYAN_EINVAL, BANYAN_EINVAL, BANYAN_EINVAL},
        {BANYAN_ENOTSUP, BANYAN_ENOTSUP, BANYAN_EINVAL, BANYAN_ENOTSUP},
        {BANYAN_ENOTSUP, BANYAN_ENOTSUP, BANYAN_EINVAL, BANYAN_EINVAL},
        {BANYAN_ENOTSUP, BANYAN_ENOTSUP, BANYAN_EINVAL, BANYAN_ENOTSUP},
    };
    memory_node_register(node, &plain, FIRST, KINDS, &probe);
    for (unsigned role = 0; role < 4; role++) {
        bool may = plain.roles & roles[role];
        assert_int_equal(ask(node, roles[role], FIRST), may ? BANYAN_OK : BANYAN_ENOTSUP);
        for (unsigned kind = 0; kind < 4; kind++)
            assert_int_equal(ask(node, roles[role], own[kind]), expected[role][kind]);
        /* Listed, but no service of this node's; and not listed at all. */
        assert_int_equal(ask(node, roles[role], MEMORY_PEERS), BANYAN_ENOTSUP);
        assert_int_equal(ask(node, roles[role], FIRST + KINDS),
                         roles[role] == MEMORY_ROLE_DATA ? BANYAN_EINVAL : BANYAN_ENOTSUP);
        uint16_t cut = 1;
        struct memory_call call = {.role = roles[role], .request = &cut, .length = sizeof cut};
        assert_int_equal(memory_node_serve(node, &call), BANYAN_EINVAL);
    }
    assert_int_equal(probe.calls, 2);
    memory_node_destroy(node);
}

/* Whether the process ends by an assertion. */
static bool aborts(struct memory_node *node, const struct memory_service *service, uint32_t first,
                   uint32_t kinds)
{
    struct probe probe = {.node = node};
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        memory_node_register(node, service, first, kinds, &probe);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void overlaps_are_refused(void **state)
{
    struct memory_node *node = make();
    struct probe probe = {.node = node};
    memory_node_register(node, &plain, FIRST, KINDS, &probe);
    assert_true(aborts(node, &plain, FIRST, 1));
    assert_true(aborts(node, &plain, FIRST + KINDS - 1, 5));
    assert_true(aborts(node, &plain, FIRST - 1, 2));
    assert_true(aborts(node, &plain, FIRST - 1, KINDS + 5));
    assert_true(aborts(node, &plain, MEMORY_STATUS, 1));
    assert_true(aborts(node, &plain, UINT32_MAX, 2));
    assert_true(aborts(node, &silent, FIRST + KINDS, 1)); /* kinds, but no function that serves */
    assert_true(aborts(node, &plain, FIRST + KINDS, 0));  /* and the other way round */
    assert_false(aborts(node, &plain, FIRST - 1, 1));
    assert_false(aborts(node, &plain, FIRST + KINDS, 1));
    assert_false(aborts(node, &silent, FIRST, 0));
    /* As many as there is room for, and no more. */
    unsigned more = 0;
    while (!aborts(node, &silent, 0, 0)) {
        memory_node_register(node, &silent, 0, 0, &probe);
        more++;
    }
    assert_in_range(more, 8, MEMORY_SERVICES_MAX - 2);
    memory_node_destroy(node);
}

static void the_process_calls_as_an_endpoint(void **state)
{
    struct memory_node *node = make();
    struct probe probe = {.node = node, .to_do_ns = 1};
    const struct fabric_target *target = memory_node_target(node);
    uint32_t kind = FIRST, reply = 0;
    size_t length = 99;
    assert_null(target->call_ns);
    assert_null(target->work);
    memory_node_register(node, &plain, FIRST, KINDS, &probe);
    assert_null(target->call_ns);
    assert_null(target->work);
    assert_int_equal(target->call(target->owner, ID, &kind, sizeof kind, &reply, sizeof reply, &length),
                     BANYAN_OK);
    assert_int_equal(length, sizeof reply);
    assert_int_equal(probe.last.role, MEMORY_ROLE_DATA);
    assert_int_equal(probe.last.compute_id, ID);
    uint8_t long_request[5];
    memcpy(long_request, &kind, sizeof kind);
    assert_int_equal(target->call(target->owner, ID, long_request, 5, &reply, sizeof reply, &length),
                     BANYAN_EBUSY);
    assert_int_equal(length, 0);
    memory_node_unregister(node, &plain, &probe);

    memory_node_register(node, &full, FIRST, KINDS, &probe);
    kind = FIRST + 2;
    assert_int_equal(target->call_ns(target->owner, ID, &kind, sizeof kind), (FIRST + 2) * 1000 + 4);
    kind = FIRST + KINDS;
    assert_int_equal(target->call_ns(target->owner, ID, &kind, sizeof kind), 0);
    assert_int_equal(target->call_ns(target->owner, ID, &kind, 3), 0);
    kind = MEMORY_STATUS;
    assert_int_equal(target->call_ns(target->owner, ID, &kind, sizeof kind), 0);
    memory_node_unregister(node, &full, &probe);
    assert_null(target->call_ns);
    assert_null(target->work);
    memory_node_destroy(node);
}

static void reports_are_added(void **state)
{
    struct memory_node *node = make();
    struct probe probes[2] = {{.node = node}, {.node = node}};
    struct memory_status_reply status;
    memory_node_status(node, &status);
    assert_int_equal(status.uptime_ms, 0);
    memory_node_register(node, &full, FIRST, KINDS, &probes[0]);
    memory_node_register(node, &full, FIRST + KINDS, 1, &probes[1]);
    memory_node_status(node, &status);
    assert_int_equal(status.uptime_ms, 22);
    assert_int_equal(status.chunks_total, 1);
    memory_node_destroy(node);
}

static void work_keeps_its_budget(void **state)
{
    struct memory_node *node = make();
    struct probe probes[2] = {{.node = node}, {.node = node}};
    uint64_t budget = 1000;
    assert_false(memory_node_work(node, &budget));
    memory_node_register(node, &worker, 0, 0, &probes[0]);
    memory_node_register(node, &plain, FIRST, KINDS, &probes[0]);
    memory_node_register(node, &worker, 0, 0, &probes[1]);
    assert_false(memory_node_work(node, &budget));
    assert_int_equal(budget, 1000);
    assert_true(probes[0].turns == 1 && probes[1].turns == 1);

    probes[0].to_do_ns = 2500;
    probes[1].to_do_ns = 1500;
    assert_true(memory_node_work(node, &budget)); /* all of it by the first */
    assert_int_equal(budget, 0);
    assert_int_equal(probes[0].to_do_ns + probes[1].to_do_ns, 3000);
    unsigned turns = 1;
    do {
        budget = 1000;
        turns++;
    } while (memory_node_work(node, &budget));
    assert_int_equal(turns, 4); /* what was to do, and no turn more */
    assert_true(probes[0].to_do_ns == 0 && probes[1].to_do_ns == 0);

    /* Neither is starved by one that never ends. */
    probes[0].to_do_ns = UINT64_MAX;
    probes[1].to_do_ns = 700;
    for (turns = 0; turns < 4; turns++) {
        budget = 500;
        assert_true(memory_node_work(node, &budget));
    }
    assert_int_equal(probes[1].to_do_ns, 0);
    memory_node_destroy(node);
}

static void local_calls_let_it_work(void **state)
{
    struct memory_node *node = make();
    struct probe probe = {.node = node, .to_do_ns = 30000};
    /* A local fabric's memory nodes are numbered from 0, but calls do not look at addresses. */
    const struct fabric_target *targets[] = {memory_node_target(node)};
    struct fabric *fabric = fabric_local_create(targets, 1, ID, NULL);
    assert_non_null(fabric);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    uint32_t kind = FIRST, reply;
    size_t length;
    memory_node_register(node, &full, FIRST, KINDS, &probe);
    for (unsigned calls = 0; probe.to_do_ns > 0; calls++) {
        assert_in_range(calls, 0, 9);
        assert_int_equal(fabric_call(endpoint, 0, &kind, sizeof kind, &reply, sizeof reply, &length, NULL),
                         BANYAN_OK);
        assert_int_equal(probe.turns, calls + 1);
    }
    assert_true(probe.turns > 1); /* a budget, not all at once */
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    memory_node_destroy(node);
}

static void *work_on(void *argument)
{
    uint64_t budget;
    do
        budget = 600;
    while (memory_node_work(argument, &budget));
    return NULL;
}

static void one_thread_works_at_a_time(void **state)
{
    struct memory_node *node = make();
    struct probe probe = {.node = node, .to_do_ns = 3000000};
    pthread_t threads[4];
    memory_node_register(node, &worker, 0, 0, &probe);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work_on, node), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(probe.to_do_ns, 0);
    assert_int_equal(probe.overlaps, 0);
    memory_node_destroy(node);
}

/* G6: what services have of a compute node is finished while its locks are still taken. */
static void services_finish_before_locks_are_freed(void **state)
{
    struct memory_node *node = make();
    struct probe probes[2] = {{.node = node}, {.node = node}};
    const struct fabric_target *target = memory_node_target(node);
    const uint16_t id = ID, other = ID + 1;
    memory_node_register(node, &full, FIRST, KINDS, &probes[0]);
    memory_node_register(node, &silent, 0, 0, &probes[1]);
    memcpy(target->locks + 10, &id, sizeof id);
    memcpy(target->locks + 12, &other, sizeof other);
    memcpy(target->pool + MEMORY_LOCK_TABLE_OFFSET + 20, &id, sizeof id);
    assert_int_equal(memory_node_release_locks(node, ID), 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(probes[i].ends, 1);
        assert_int_equal(probes[i].ended[0], ID);
        assert_int_equal(probes[i].locks_then, 2);
    }
    assert_int_equal(memory_node_release_locks(node, 0), 0); /* the id of no compute node */
    assert_int_equal(probes[0].ends, 1);

    /* By halves, for a node whose locks a NIC frees. */
    memory_node_finish(node, other);
    assert_int_equal(probes[0].ends, 2);
    assert_int_equal(probes[0].ended[1], other);
    assert_int_equal(probes[0].locks_then, 1);
    assert_memory_equal(target->locks + 12, &other, sizeof other);
    memory_node_destroy(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_is_answered),
        cmocka_unit_test(roles_are_kept),
        cmocka_unit_test(overlaps_are_refused),
        cmocka_unit_test(the_process_calls_as_an_endpoint),
        cmocka_unit_test(reports_are_added),
        cmocka_unit_test(work_keeps_its_budget),
        cmocka_unit_test(local_calls_let_it_work),
        cmocka_unit_test(one_thread_works_at_a_time),
        cmocka_unit_test(services_finish_before_locks_are_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
