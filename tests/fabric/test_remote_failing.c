/* test_remote_failing.c - a compute node whose system refuses: no memory, no descriptors, no threads, no
 * maps. Opening comes back with an error and leaves nothing behind; what is open says BANYAN_ENOMEM, or loses
 * a connection at most, which is opened anew. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/task.h"
#include "base/worker.h"
#include "daemon.h"
#include "failing.h"
#include "fabric/local.h"
#include "fabric/remote.h"
#include "fabric/wire.h"
#include "memory/memory.h"

#define POOL  (UINT64_C(4) << 20)
#define AREA  (UINT64_C(1) << 20)
#define MS    UINT64_C(1000000)
#define LIMIT (UINT64_C(20000) * MS) /* much more than anything takes */
#define LARGE 100000u

static struct daemon daemons[2];

static void start_daemons(void)
{
    for (uint16_t i = 0; i < 2; i++) {
        struct daemon_options options = {.number = i,
                                         .secret = "open sesame",
                                         .pool_bytes = POOL,
                                         .chunk_bytes = 65536,
                                         .lock_bytes = 4096,
                                         .lease_ms_min = 50};
        daemon_start(&daemons[i], &options);
    }
}

static void kill_daemons(void)
{
    daemon_kill(&daemons[0]);
    daemon_kill(&daemons[1]);
}

struct plan {
    struct net_address nodes[2];
    bool on_fibers;
};

static struct fabric_remote_options options_of(const struct plan *plan)
{
    return (struct fabric_remote_options){.nodes = plan->nodes,
                                          .count = 2,
                                          .secret = "open sesame",
                                          .secret_length = 11,
                                          .lease_ms = 60000,
                                          .timeout_ms = 20000};
}

/* ---- work ---- */

/* Lists to both, one with more in it than any buffer has room for at first. */
static int lists_once(struct fabric_endpoint *endpoint)
{
    static uint8_t bytes[LARGE];
    static uint64_t words[2];
    struct fabric_command write = {
        .operation = FABRIC_WRITE, .length = LARGE, .address = gaddr_make(0, AREA), .write.data = bytes};
    struct fabric_command reads[2];
    struct fabric_list list = {.count = 1, .commands = &write};
    struct fabric_list both[2], *lists[] = {&list, &both[0], &both[1]};
    for (uint16_t i = 0; i < 2; i++) {
        reads[i] = (struct fabric_command){
            .operation = FABRIC_READ, .length = 8, .address = gaddr_make(i, AREA), .read.buffer = &words[i]};
        both[i] = (struct fabric_list){.node = i, .count = 1, .commands = &reads[i]};
    }
    int status = fabric_execute(endpoint, lists, 3, NULL);
    for (unsigned i = 0; i < 3; i++)
        assert_true(!lists[i]->status || lists[i]->status == BANYAN_ENET ||
                    lists[i]->status == BANYAN_ENOMEM);
    return status;
}

static int call_once(struct fabric_endpoint *endpoint, uint16_t node)
{
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply reply;
    size_t length;
    int status = fabric_call(endpoint, node, &ask, sizeof ask, &reply, sizeof reply, &length, NULL);
    if (!status)
        assert_int_equal(length, sizeof reply);
    return status;
}

/* A connection that is lost comes back; anything else is an answer. */
static int work(struct fabric_endpoint *endpoint)
{
    uint64_t deadline = task_now() + LIMIT;
    int status;
    while ((status = lists_once(endpoint)) == BANYAN_ENET) {
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
    for (uint16_t i = 0; i < 2 && !status; i++)
        while ((status = call_once(endpoint, i)) == BANYAN_ENET || status == BANYAN_EFENCED) {
            assert_true(task_now() < deadline);
            task_sleep(MS);
        }
    return status;
}

struct job {
    struct fabric_endpoint *endpoint;
    int status;
};

static void job_main(void *argument)
{
    struct job *job = argument;
    job->status = work(job->endpoint);
}

static int work_on_fiber(struct fabric_endpoint *endpoint)
{
    struct job job = {.endpoint = endpoint, .status = BANYAN_ENOMEM};
    struct worker *worker = worker_create();
    if (worker == NULL)
        return BANYAN_ENOMEM;
    if (!worker_spawn(worker, job_main, &job))
        worker_run(worker);
    worker_destroy(worker);
    return job.status;
}

static int fabric_attempt(void *context)
{
    const struct plan *plan = context;
    struct fabric_remote_options options = options_of(plan);
    struct fabric *fabric;
    struct error error = {0};
    int status = fabric_remote_open(&fabric, &options, &error);
    if (status) {
        assert_null(fabric);
        assert_true(error.code == status && error.text[0] != 0);
        return status;
    }
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, &error);
    if (endpoint != NULL) {
        status = plan->on_fibers ? work_on_fiber(endpoint) : work(endpoint);
        fabric_endpoint_close(endpoint);
    } else {
        status = error.code;
    }
    fabric_close(fabric);
    return status;
}

static unsigned each(unsigned calls, int error, struct plan *plan)
{
    return failing_each(&(struct failing_order){.calls = calls, .count = 1, .error = error}, fabric_attempt,
                        plan, BANYAN_ENOMEM);
}

static void test_streams(void **state)
{
    start_daemons();
    struct plan plan = {.nodes = {daemons[0].tcp, daemons[1].tcp}};
    assert_true(each(FAILING_MEMORY, ENOMEM, &plan) >= 12);
    assert_true(each(FAILING_EVENTFD | FAILING_THREAD, EMFILE, &plan) >= 4);
    plan.on_fibers = true;
    assert_true(each(FAILING_MEMORY, ENOMEM, &plan) >= 12);
    kill_daemons();
}

/* Sockets that break in every place, or move a few bytes at a time. */
static void test_sockets(void **state)
{
    start_daemons();
    struct plan plan = {.nodes = {daemons[0].tcp, daemons[1].tcp}};
    for (unsigned i = 0; i < 2; i++) {
        plan.on_fibers = i == 1;
        struct failing_order order = {
            .calls = FAILING_SEND | FAILING_RECV, .where = FAILING_HERE, .count = 1, .error = ECONNRESET};
        assert_true(failing_each(&order, fabric_attempt, &plan, BANYAN_ENET) >= 8);
        order = (struct failing_order){.calls = FAILING_SEND | FAILING_RECV, .bytes = 1000};
        failing_begin(&order);
        assert_int_equal(fabric_attempt(&plan), BANYAN_OK);
        assert_true(failing_end() > 100);
        order = (struct failing_order){.calls = FAILING_SOCKET, .count = 1, .error = EMFILE};
        assert_true(failing_each(&order, fabric_attempt, &plan, BANYAN_ENOMEM) >= 2);
        order = (struct failing_order){
            .calls = FAILING_EPOLL_CREATE | FAILING_EPOLL_CTL, .count = 1, .error = ENOMEM};
        failing_each(&order, fabric_attempt, &plan, BANYAN_ENOMEM);
    }
    kill_daemons();
}

static void test_mapped(void **state)
{
    start_daemons();
    struct plan plan = {.nodes = {daemons[0].local, daemons[1].local}};
    assert_true(each(FAILING_MEMORY, ENOMEM, &plan) >= 12);
    assert_true(each(FAILING_MMAP, ENOMEM, &plan) >= 4);
    plan.on_fibers = true;
    assert_true(each(FAILING_MEMORY, ENOMEM, &plan) >= 12);
    kill_daemons();
}

/* What is behind the descriptors that came along cannot be looked at or mapped. */
static void test_descriptors(void **state)
{
    start_daemons();
    struct plan plan = {.nodes = {daemons[0].local, daemons[1].local}};
    assert_int_equal(failing_each(&(struct failing_order){.calls = FAILING_FSTAT, .count = 1, .error = EIO},
                                  fabric_attempt, &plan, BANYAN_ENET),
                     4);
    assert_int_equal(each(FAILING_MADVISE, EINVAL, &plan), 0);
    kill_daemons();
}

/* Without membarrier each list on a mapped pool has a fence of its own, and losing the memory node goes as
 * ever. */
static void test_without_membarrier(void **state)
{
    start_daemons();
    struct plan plan = {.nodes = {daemons[0].local, daemons[1].local}};
    struct fabric_remote_options options = options_of(&plan);
    struct fabric *fabric;
    failing_begin(
        &(struct failing_order){.calls = FAILING_SYSCALL, .detail = SYS_membarrier, .error = ENOSYS});
    assert_int_equal(fabric_remote_open(&fabric, &options, NULL), BANYAN_OK);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    assert_non_null(endpoint);
    assert_int_equal(work(endpoint), BANYAN_OK);
    kill_daemons();
    uint64_t deadline = task_now() + LIMIT;
    while (fabric_incarnation(fabric) < 3 || lists_once(endpoint) != BANYAN_ENET) {
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
    assert_int_equal(failing_end(), 1); /* asked once, and never used */
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
}

/* A word of the memory node's lock region. */
static int lock_take(struct fabric_endpoint *endpoint, uint16_t node)
{
    struct fabric_command take = {.operation = FABRIC_CAS,
                                  .length = 8,
                                  .address = gaddr_make(node, GADDR_LOCK_REGION | 64),
                                  .cas = {.compare = 0, .swap = 1, .mask = UINT64_MAX}};
    struct fabric_list list = {.node = node, .count = 1, .commands = &take}, *one = &list;
    int status = fabric_execute(endpoint, &one, 1, NULL);
    return status ? status : list.status;
}

/* A memory node joins, whose pool can be mapped at first, and its lock region only when that is tried again.
 */
static void test_mapped_later(void **state)
{
    struct wire_cluster_list list;
    struct error error = {0};
    for (uint16_t i = 0; i < 2; i++)
        daemon_start(&daemons[i], &(struct daemon_options){.unformatted = true,
                                                           .secret = "open sesame",
                                                           .pool_bytes = POOL,
                                                           .chunk_bytes = 65536,
                                                           .lock_bytes = 4096,
                                                           .lease_ms_min = 50});
    const struct plan plan = {.nodes = {daemons[0].local}};
    struct fabric_remote_options options = options_of(&plan);
    options.count = 1;
    struct fabric *fabric;
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_OK);
    assert_int_equal(fabric_remote_open(&fabric, &options, NULL), BANYAN_OK);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    assert_non_null(endpoint);
    failing_begin(&(struct failing_order){
        .calls = FAILING_MMAP, .where = FAILING_ELSEWHERE, .first = 2, .count = 1, .error = ENOMEM});
    if (fabric_remote_join(&options, &daemons[1].local, &list, &error))
        fail_msg("%s", error.text);
    const uint64_t deadline = task_now() + LIMIT;
    while (!fabric_learn(fabric, 1))
        assert_true(task_now() < deadline);
    assert_int_equal(failing_end(), 1);
    assert_int_equal(lock_take(endpoint, 0), BANYAN_OK);
    assert_int_equal(lock_take(endpoint, 1), BANYAN_OK);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    kill_daemons();
}

/* ---- without a lease ---- */

static int ask_attempt(void *context)
{
    struct fabric_remote_options options = options_of(context);
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply reply;
    struct error error = {0};
    size_t length;
    return fabric_remote_ask(&options, 1, &ask, sizeof ask, &reply, sizeof reply, &length, &error);
}

static int format_attempt(void *context)
{
    struct fabric_remote_options options = options_of(context);
    struct error error = {0};
    return fabric_remote_format(&options, &error);
}

static void test_without_a_lease(void **state)
{
    start_daemons();
    struct plan plan = {.nodes = {daemons[0].tcp, daemons[1].tcp}};
    const struct failing_order order = {.calls = FAILING_MEMORY, .count = 1, .error = ENOMEM};
    failing_each(&order, ask_attempt, &plan, BANYAN_ENOMEM);
    assert_int_equal(failing_each(&order, format_attempt, &plan, BANYAN_ENOMEM), 5);
    kill_daemons();
}

/* ---- in this process ---- */

static int local_attempt(void *context)
{
    const struct fabric_target *target = memory_node_target(context);
    uint64_t word = 0;
    struct fabric_command command = {
        .operation = FABRIC_READ, .length = 8, .address = gaddr_make(0, AREA), .read.buffer = &word};
    struct fabric_list good = {.count = 1, .commands = &command}, bad = {.node = 7, .count = 1};
    struct fabric_list *lists[] = {&good, &bad};
    struct error error = {0};
    struct fabric *fabric = fabric_local_create(&target, 1, 1, &error);
    if (fabric == NULL)
        return error.code;
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, &error);
    int status = error.code;
    if (endpoint != NULL) {
        /* Not one that is refused takes the other with it; without memory to tell them apart neither runs. */
        status = fabric_execute(endpoint, lists, 2, NULL);
        assert_int_equal(bad.status, BANYAN_EINVAL);
        assert_int_equal(status, good.status ? good.status : BANYAN_EINVAL);
        status = good.status;
        fabric_endpoint_close(endpoint);
    }
    fabric_close(fabric);
    return status;
}

static void test_local(void **state)
{
    struct memory_options options = {.pool_bytes = POOL, .chunk_bytes = 65536, .lock_bytes = 4096};
    struct memory_node *node;
    assert_int_equal(memory_node_create(&node, &options, NULL), BANYAN_OK);
    assert_int_equal(
        failing_each(&(struct failing_order){.calls = FAILING_MEMORY, .count = 1, .error = ENOMEM},
                     local_attempt, node, BANYAN_ENOMEM),
        3);
    memory_node_destroy(node);
}

int main(int count, char **arguments)
{
    daemon_main(count, arguments);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams),         cmocka_unit_test(test_sockets),
        cmocka_unit_test(test_mapped),          cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_mapped_later),    cmocka_unit_test(test_without_membarrier),
        cmocka_unit_test(test_without_a_lease), cmocka_unit_test(test_local),
    };
    task_sleep(1); /* what a plain thread needs to wait, it allocates the first time, or aborts */
    log_set_level(getenv("TEST_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
