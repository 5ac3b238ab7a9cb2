/* test_remote_peers.c - what compute nodes know and want of each other (peers.h) on memory nodes in processes
 * of their own: read leases that lapse and come back, fencing, notices. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "daemon.h"
#include "fabric/peers.h"
#include "fabric/remote.h"

#define POOL  (UINT64_C(4) << 20)
#define LOCK  (GADDR_LOCK_REGION | 64)
#define MS    UINT64_C(1000000)
#define LIMIT (UINT64_C(20000) * MS) /* much more than anything takes */

#define WAIT(condition)                                                                                      \
    do {                                                                                                     \
        for (uint64_t deadline_ = task_now() + LIMIT; !(condition); task_sleep(MS / 5))                      \
            if (task_now() > deadline_)                                                                      \
                fail_msg("never: %s", #condition);                                                           \
    } while (0)

static void start(struct daemon *daemon, uint16_t number)
{
    const struct daemon_options options = {
        .number = number, .pool_bytes = POOL, .chunk_bytes = 65536, .lock_bytes = 4096, .lease_ms_min = 50};
    daemon_start(daemon, &options);
}

/* A compute node with one endpoint. */
struct compute {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_process self;
};

static int try_open(struct compute *compute, const struct net_address *nodes, uint16_t count,
                    uint32_t lease_ms)
{
    const struct fabric_remote_options options = {
        .nodes = nodes, .count = count, .lease_ms = lease_ms, .timeout_ms = 20000, .name = "test"};
    struct error error = {0};
    int status = fabric_remote_open(&compute->fabric, &options, &error);
    compute->endpoint = !status ? fabric_endpoint_open(compute->fabric, &error) : NULL;
    if (compute->endpoint == NULL)
        return -1;
    compute->self = fabric_self(compute->fabric);
    return 0;
}

static struct compute open_compute(const struct net_address *nodes, uint16_t count)
{
    struct compute compute;
    assert_int_equal(try_open(&compute, nodes, count, 20000), 0);
    return compute;
}

static void close_compute(struct compute *compute)
{
    fabric_endpoint_close(compute->endpoint);
    fabric_close(compute->fabric);
}

static int swap_lock(const struct compute *compute, uint64_t from, uint64_t to, uint64_t *old)
{
    struct fabric_command command = {.operation = FABRIC_CAS,
                                     .address = gaddr_make(0, LOCK),
                                     .cas = {.compare = from, .swap = to, .mask = UINT64_MAX}};
    struct fabric_list list = {.count = 1, .commands = &command}, *lists[] = {&list};
    list.incarnation = fabric_incarnation(compute->fabric);
    int status = fabric_execute(compute->endpoint, lists, 1, NULL);
    *old = command.cas.old;
    return status;
}

static bool over(const struct compute *asker, struct fabric_process process)
{
    bool answer;
    assert_int_equal(fabric_lease_over(asker->endpoint, process, &answer, NULL), 0);
    return answer;
}

static uint32_t processes(const struct compute *asker, struct fabric_process *list)
{
    uint32_t count;
    assert_int_equal(fabric_processes(asker->endpoint, list, 8, &count, NULL), 0);
    assert_true(count <= 8);
    return count;
}

/* ---- G7 ---- */

static void alive_from_the_first(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    const struct net_address ways[] = {daemon.tcp, daemon.local};
    for (unsigned i = 0; i < 2; i++) {
        struct compute one = open_compute(&ways[i], 1);
        WAIT(fabric_lease_alive(one.fabric)); /* at once, unless this machine was busy for the lease */
        assert_true(one.self.instance != 0);
        assert_int_equal(one.self.compute_id, fabric_capabilities(one.fabric)->compute_id);
        assert_false(over(&one, one.self));
        close_compute(&one);
    }
    daemon_kill(&daemon);
}

/* Heartbeats that are held back cost the lease and nothing else: it returns by itself. */
static void held_back(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct proxy *proxy = proxy_start(&daemon.tcp);
    struct net_address address = proxy_address(proxy);
    struct compute one = open_compute(&address, 1), two = open_compute(&daemon.tcp, 1);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t lapses;
        WAIT((lapses = fabric_lease_lapses(one.fabric), fabric_lease_alive(one.fabric)));
        proxy_hold(proxy, true);
        WAIT(!fabric_lease_alive(one.fabric));
        assert_true(fabric_lease_lapses(one.fabric) > lapses);
        assert_false(over(&two, one.self)); /* it is not fenced */
        proxy_hold(proxy, false);
        WAIT(fabric_lease_alive(one.fabric));
    }
    assert_int_equal(fabric_incarnation(one.fabric), 1);
    close_compute(&one);
    close_compute(&two);
    proxy_stop(proxy);
    daemon_kill(&daemon);
}

static void count_heard(void *context)
{
    __atomic_add_fetch((uint32_t *)context, 1, __ATOMIC_ACQ_REL);
}

/* A lost connection takes the lease away until the caller says that it has looked up its rights. */
static void lost_and_resumed(void **state)
{
    struct daemon daemon;
    uint32_t heard = 0;
    start(&daemon, 0);
    struct proxy *proxy = proxy_start(&daemon.tcp);
    struct net_address address = proxy_address(proxy);
    struct compute one = open_compute(&address, 1), two = open_compute(&daemon.tcp, 1);
    fabric_notice_listen(one.fabric, count_heard, &heard);
    WAIT(fabric_lease_alive(one.fabric));
    proxy_cut(proxy);
    WAIT(fabric_incarnation(one.fabric) == 2);
    assert_false(fabric_lease_alive(one.fabric));
    WAIT(atomic_load_acquire(&heard) == 1); /* of the loss */
    fabric_lease_resume(one.fabric, 2);     /* nothing to resume */
    WAIT(over(&two, one.self));
    proxy_open(proxy);
    WAIT(atomic_load_acquire(&heard) == 2); /* of the return */
    /* A notice comes over the new connection, behind an echo or before the next. */
    assert_int_equal(fabric_notify(two.endpoint, 5, NULL), 0);
    WAIT(fabric_notice(one.fabric) == 5);
    fabric_lease_resume(one.fabric, 1); /* of the connection that was lost */
    assert_false(fabric_lease_alive(one.fabric));
    assert_true(over(&two, one.self)); /* the lease of before does not come back */
    fabric_lease_resume(one.fabric, 2);
    WAIT(fabric_lease_alive(one.fabric));
    assert_true(over(&two, one.self));
    fabric_notice_listen(one.fabric, NULL, NULL);
    close_compute(&one);
    close_compute(&two);
    proxy_stop(proxy);
    daemon_kill(&daemon);
}

/* ---- processes that are stopped and killed ---- */

/* Between the test and a compute node in a process of its own. */
struct shared {
    struct fabric_process self;
    uint32_t ready, over, quit; /* atomic */
    uint64_t looks, wrong;      /* atomic: looks at the lease since it was over; those that found it alive */
};

static void compute_main(struct shared *shared, const struct net_address *address, uint32_t lease_ms)
{
    struct compute compute;
    if (try_open(&compute, address, 1, lease_ms))
        _exit(1);
    shared->self = compute.self;
    uint32_t ready = 0;
    /* acquire, release: between the two processes */
    while (!atomic_load_acquire(&shared->quit)) {
        uint32_t is_over = atomic_load_acquire(&shared->over);
        bool alive = fabric_lease_alive(compute.fabric);
        if (alive && !ready)
            atomic_store_release(&shared->ready, ready = 1);
        if (is_over && alive)
            atomic_add_relaxed(&shared->wrong, UINT64_C(1));
        if (is_over)
            __atomic_add_fetch(&shared->looks, 1, __ATOMIC_RELEASE);
    }
    _exit(0);
}

/* Before this process has threads. */
static pid_t start_compute(struct shared **shared, const struct net_address *address, uint32_t lease_ms)
{
    *shared = mmap(NULL, sizeof **shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(*shared != MAP_FAILED);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        compute_main(*shared, address, lease_ms);
    WAIT(atomic_load_acquire(&(*shared)->ready));
    return pid;
}

/* How the process ended: the signal, or 0. */
static int end_of(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

/* A process that was stopped beyond its lease finds it lapsed at its first look, not after a moment. */
static void stopped(void **state)
{
    struct daemon daemon;
    struct shared *shared;
    start(&daemon, 0);
    pid_t pid = start_compute(&shared, &daemon.tcp, 2000);
    struct compute two = open_compute(&daemon.tcp, 1);
    assert_false(over(&two, shared->self));
    kill(pid, SIGSTOP);
    WAIT(over(&two, shared->self)); /* it is fenced when it has sent no heartbeat for a lease */
    atomic_store_release(&shared->over, 1u);
    kill(pid, SIGCONT);
    WAIT(atomic_load_acquire(&shared->looks) > 1000);
    assert_int_equal(shared->wrong, 0);
    atomic_store_release(&shared->quit, 1u);
    assert_int_equal(end_of(pid), 0);
    munmap(shared, sizeof *shared);
    close_compute(&two);
    daemon_kill(&daemon);
}

/* A process that has mapped the pool is dead when the fencing returns. */
static void fence_mapped(void **state)
{
    struct daemon daemon;
    struct shared *shared;
    start(&daemon, 0);
    pid_t pid = start_compute(&shared, &daemon.local, 20000);
    struct compute two = open_compute(&daemon.tcp, 1);
    assert_int_equal(fabric_fence(two.endpoint, 0, shared->self, NULL), 0);
    int status;
    assert_int_equal(waitpid(pid, &status, WNOHANG), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    WAIT(over(&two, shared->self));
    munmap(shared, sizeof *shared);
    close_compute(&two);
    daemon_kill(&daemon);
}

/* ---- G8 ---- */

static void fence_live(void **state)
{
    struct daemon daemons[2];
    start(&daemons[0], 0);
    start(&daemons[1], 1);
    const struct net_address nodes[] = {daemons[0].tcp, daemons[1].tcp};
    struct compute one = open_compute(nodes, 2), two = open_compute(nodes, 2);
    uint64_t old, began = fabric_incarnation(one.fabric), ids[] = {one.self.compute_id};
    struct fabric_cost cost = {0};
    assert_int_equal(swap_lock(&one, 0, ids[0], &old), 0);
    assert_int_equal(fabric_fence(two.endpoint, 0, two.self, &cost), BANYAN_EINVAL);
    assert_int_equal(fabric_fence(two.endpoint, 2, one.self, &cost), BANYAN_EINVAL);
    assert_int_equal(cost.rpcs, 0);
    /* Of another life of the same id, or of none. */
    struct fabric_process other = {.compute_id = one.self.compute_id, .instance = one.self.instance ^ 1};
    assert_int_equal(fabric_fence(two.endpoint, 0, other, &cost), 0);
    assert_true(over(&two, other));
    assert_int_equal(swap_lock(&two, 0, 0, &old), 0);
    assert_int_equal(old, ids[0]);

    for (uint16_t node = 0; node < 2; node++)
        assert_int_equal(fabric_fence(two.endpoint, node, one.self, &cost), 0);
    assert_int_equal(cost.rpcs, 3);
    assert_int_equal(swap_lock(&two, 0, two.self.compute_id, &old), 0);
    assert_int_equal(old, 0); /* its lock was free when the fencing had returned */
    WAIT(over(&two, one.self));
    assert_false(fabric_lease_alive(one.fabric));
    assert_false(over(&two, two.self));
    /* It comes again, and its old operations do not. */
    bool ended = true;
    WAIT(!fabric_lease_over(one.endpoint, two.self, &ended, NULL));
    assert_false(ended);
    struct fabric_command command = {.operation = FABRIC_FAA, .address = gaddr_make(1, 4096), .faa.add = 1};
    struct fabric_list list = {.node = 1, .count = 1, .commands = &command, .incarnation = began};
    struct fabric_list *lists[] = {&list};
    WAIT(fabric_execute(one.endpoint, lists, 1, NULL) == BANYAN_EFENCED);
    WAIT(swap_lock(&one, 0, 0, &old) == 0);
    assert_int_equal(old, two.self.compute_id);
    WAIT(fabric_incarnation(one.fabric) >= 3);
    assert_true(over(&two, one.self));
    close_compute(&one);
    close_compute(&two);
    daemon_kill(&daemons[0]);
    daemon_kill(&daemons[1]);
}

static void lists_of_processes(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    const struct net_address ways[] = {daemon.tcp, daemon.local};
    struct fabric_process list[8];
    struct compute nodes[3];
    uint32_t count;
    for (unsigned i = 0; i < 3; i++)
        nodes[i] = open_compute(&ways[i % 2], 1);
    assert_int_equal(processes(&nodes[1], list), 3);
    for (unsigned i = 0; i < 3; i++)
        assert_true(fabric_process_equal(list[i], nodes[i].self)); /* ids are given in ascending order */
    assert_int_equal(fabric_processes(nodes[1].endpoint, list, 1, &count, NULL), 0);
    assert_int_equal(count, 3);
    assert_true(fabric_process_equal(list[0], nodes[0].self));
    close_compute(&nodes[0]);
    WAIT(processes(&nodes[1], list) == 2);
    WAIT(over(&nodes[1], nodes[0].self)); /* it has said goodbye */
    assert_true(fabric_process_equal(list[0], nodes[1].self));
    close_compute(&nodes[1]);
    close_compute(&nodes[2]);
    daemon_kill(&daemon);
}

/* ---- notices ---- */

static void notices(void **state)
{
    struct daemon daemon;
    uint32_t heard = 0;
    start(&daemon, 0);
    struct compute one = open_compute(&daemon.tcp, 1), two = open_compute(&daemon.local, 1);
    assert_int_equal(fabric_notice(one.fabric), 0);
    fabric_notice_listen(two.fabric, count_heard, &heard);
    for (uint64_t number = 1; number <= 20; number++) {
        const struct compute *from = number % 2 ? &one : &two;
        assert_int_equal(fabric_notify(from->endpoint, number, NULL), 0);
        WAIT(fabric_notice(one.fabric) == number && fabric_notice(two.fabric) == number);
        WAIT(atomic_load_acquire(&heard) == number);
    }
    assert_int_equal(fabric_notify(one.endpoint, 7, NULL), 0); /* old news */
    assert_int_equal(fabric_notify(one.endpoint, UINT64_C(1) << 40, NULL), 0);
    WAIT(fabric_notice(two.fabric) == UINT64_C(1) << 40);
    WAIT(atomic_load_acquire(&heard) == 21);
    fabric_notice_listen(two.fabric, NULL, NULL);
    assert_int_equal(fabric_notify(one.endpoint, (UINT64_C(1) << 40) + 1, NULL), 0);
    WAIT(fabric_notice(two.fabric) > UINT64_C(1) << 40);
    assert_int_equal(heard, 21);
    struct compute three = open_compute(&daemon.tcp, 1); /* learns the greatest */
    WAIT(fabric_notice(three.fabric) == (UINT64_C(1) << 40) + 1);
    close_compute(&one);
    close_compute(&two);
    close_compute(&three);
    daemon_kill(&daemon);
}

int main(int count, char **arguments)
{
    daemon_main(count, arguments);
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stopped), /* those that fork come first, before there are threads */
        cmocka_unit_test(fence_mapped), cmocka_unit_test(alive_from_the_first),
        cmocka_unit_test(held_back),    cmocka_unit_test(lost_and_resumed),
        cmocka_unit_test(fence_live),   cmocka_unit_test(lists_of_processes),
        cmocka_unit_test(notices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
