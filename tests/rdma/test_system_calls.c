/*
 * test_system_calls.c - what a warm client over rdma:// asks of its system, seen from outside with strace: on
 * Soft-RoCE one write() for each list of commands, which is that driver's doorbell (a NIC's is a store), and
 * nothing else; and no allocation, seen by counting calls of the allocator on its thread.
 *
 * The test starts a memory node, then itself again under strace as the client: an index that one thread looks
 * up and updates. The client marks the steady phase in the trace by system calls that nothing else makes. A
 * second form runs the same on a fiber of a worker, which looks at its descriptors, at most every 100 us.
 *
 * Looks at the clock are left out: they are no system calls where the kernel trusts the processor's counter,
 * which it does not in an emulated machine.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/task.h"
#include "base/log.h"
#include "base/worker.h"
#include "fabric/remote.h"
#include "tests/fabric/daemon.h"
#include "tree/tree.h"

#define KEYS       200u
#define OPERATIONS 200u
#define LOOK_NS    UINT64_C(100000) /* worker.h */
#define BEGIN_MARK "steady-phase-begins"
#define END_MARK   "steady-phase-ends"

/* ---- the allocator, counted on one thread ---- */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static _Thread_local uint64_t allocations; /* calls of any of these */

void *malloc(size_t size)
{
    allocations++;
    return __libc_malloc(size);
}
void *calloc(size_t count, size_t size)
{
    allocations++;
    return __libc_calloc(count, size);
}
void *realloc(void *old, size_t size)
{
    allocations++;
    return __libc_realloc(old, size);
}
void *aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __libc_memalign(alignment, size);
}
int posix_memalign(void **memory, size_t alignment, size_t size)
{
    allocations++;
    *memory = __libc_memalign(alignment, size);
    return *memory ? 0 : ENOMEM;
}
void free(void *memory)
{
    allocations += memory != NULL;
    __libc_free(memory);
}

/* ---- the client ---- */

_Noreturn static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "client: %s: %s\n", what, why);
    exit(1);
}

struct client {
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
};

static void demand(const struct client *client, int status, const char *what)
{
    if (status != 0)
        give_up(what, tree_session_error(client->session)->text);
}

static void operate(struct client *client, uint64_t number)
{
    uint8_t key[8] = {0}, value[FORMAT_VALUE_MAX];
    size_t length = sizeof value;
    uint64_t put = number;
    memcpy(key, &(uint64_t){number * 7 % KEYS}, 8);
    if (number % 2 != 0)
        demand(client, tree_upsert(client->session, client->tree, key, 8, &put, 8), "update");
    else
        demand(client, tree_lookup(client->session, client->tree, key, 8, value, &length), "lookup");
}

/* A system call that nothing else makes, with a name in it: fails, and is in the trace. */
static void mark(const char *name)
{
    if (syscall(SYS_rmdir, name) == 0)
        give_up("the mark", "it was a folder");
}

static void open_client(struct client *client, const char *address)
{
    struct net_address node;
    struct error error = {0};
    struct tree_switches switches;
    const struct format_geometry geometry = {.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8};
    if (net_address_parse(&node, address, 0, &error))
        give_up("address", error.text);
    const struct fabric_remote_options options = {.nodes = &node,
                                                  .count = 1,
                                                  .lease_ms = 60000,
                                                  .timeout_ms = 60000,
                                                  /* it never sleeps while it waits */
                                                  .nic = {.spin_us = 60000000}};
    if (fabric_remote_open(&client->fabric, &options, &error) ||
        tree_switches_preset(&switches, "banyan", &error) ||
        tree_compute_create(&client->compute, client->fabric, &switches, &error) ||
        pool_worker_create(&client->worker, tree_compute_pool(client->compute), &error) ||
        tree_session_create(&client->session, client->compute, client->worker, &error))
        give_up("opening", error.text);
    demand(client, tree_format(client->session), "format");
    demand(client, tree_create(client->session, "steady", &geometry, &client->tree), "create");
    for (uint64_t i = 0; i < KEYS; i++) {
        uint8_t key[8];
        memcpy(key, &i, 8);
        demand(client, tree_upsert(client->session, client->tree, key, 8, &i, 8), "load");
    }
}

/* Prints what the phase should have cost. */
static void client_main(void *argument)
{
    struct client *client = argument;
    for (uint64_t i = 0; i < OPERATIONS; i++)
        operate(client, i); /* warm */
    const struct tree_stats *stats = tree_session_stats(client->session);
    uint64_t lists = stats->cost.lists, rpcs = stats->cost.rpcs, before = allocations;
    mark(BEGIN_MARK);
    uint64_t began = task_now();
    for (uint64_t i = 0; i < OPERATIONS; i++)
        operate(client, i);
    uint64_t took = task_now() - began;
    mark(END_MARK);
    uint64_t allocated = allocations - before;
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", stats->cost.lists - lists,
           stats->cost.rpcs - rpcs, allocated, took);
}

static int client_run(const char *address, bool fiber)
{
    struct client client = {0};
    open_client(&client, address);
    if (fiber) {
        struct worker *worker = worker_create();
        if (worker == NULL || worker_spawn(worker, client_main, &client) != 0)
            give_up("worker", "no memory");
        worker_run(worker);
        worker_destroy(worker);
    } else {
        client_main(&client);
    }
    tree_session_destroy(client.session);
    tree_close(client.tree);
    pool_worker_destroy(client.worker);
    tree_compute_destroy(client.compute);
    fabric_close(client.fabric);
    return 0;
}

/* ---- the test ---- */

struct phase {
    uint64_t lists, rpcs, allocated, nanoseconds; /* as the client counted */
    uint64_t writes, waits, others;               /* as strace saw them, of its thread */
    char other[512];                              /* the first of the others */
};

/* One line of the trace: "PID NAME(ARGUMENTS...) = RESULT". */
static void judge_line(struct phase *phase, const char *call)
{
    if (strncmp(call, "write(", 6) == 0)
        phase->writes++;
    else if (strncmp(call, "epoll_wait(", 11) == 0 || strncmp(call, "epoll_pwait", 11) == 0)
        phase->waits++;
    else if (phase->others++ == 0)
        snprintf(phase->other, sizeof phase->other, "%.500s", call);
}

static void read_trace(struct phase *phase, const char *path)
{
    char line[1024];
    long steady = 0; /* the thread, while it is in the phase */
    bool begun = false, ended = false;
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        char *call;
        long process = strtol(line, &call, 10);
        call += strspn(call, " ");
        if (strstr(call, BEGIN_MARK)) {
            begun = true;
            steady = process;
        } else if (strstr(call, END_MARK)) {
            ended = true;
            steady = 0;
        } else if (process == steady && strncmp(call, "<...", 4) != 0) {
            judge_line(phase, call);
        }
    }
    fclose(file);
    assert_true(begun && ended);
}

static void trace(const struct net_address *node, const char *form, struct phase *phase)
{
    char address[NET_TEXT_MAX], command[1024], path[] = "/tmp/banyan-strace-XXXXXX", self[256] = "";
    int file = mkstemp(path);
    assert_true(file >= 0 && readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    close(file);
    snprintf(command, sizeof command,
             "strace -f --seccomp-bpf -e trace='!clock_gettime' -o %s %s --client %s %s", path, self,
             net_address_format(node, address), form);
    FILE *said = popen(command, "r");
    assert_non_null(said);
    int read = fscanf(said, "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64, &phase->lists, &phase->rpcs,
                      &phase->allocated, &phase->nanoseconds);
    int status = pclose(said);
    if (read != 4 || status != 0)
        fail_msg("'%s' ended with status %d", command, status);
    read_trace(phase, path);
    unlink(path);
    printf("%s: %u operations in %" PRIu64 " lists and %" PRIu64 " calls: %" PRIu64 " doorbells, %" PRIu64
           " looks of the worker, %" PRIu64 " other system calls, %" PRIu64 " calls of the allocator\n",
           form, OPERATIONS, phase->lists, phase->rpcs, phase->writes, phase->waits, phase->others,
           phase->allocated);
    if (phase->others)
        printf("the first other: %s", phase->other);
}

static void with_memory_node(const char *form, struct phase *phase)
{
    const struct daemon_options options = {.rdma = true,
                                           .pool_bytes = UINT64_C(16) << 20,
                                           .chunk_bytes = UINT64_C(64) << 10,
                                           .lock_bytes = 65536};
    struct daemon daemon;
    daemon_start(&daemon, &options);
    trace(&daemon.tcp, form, phase);
    daemon_kill(&daemon);
    assert_int_equal(phase->rpcs, 0);
    assert_true(phase->lists >= OPERATIONS);
    assert_int_equal(phase->writes, phase->lists);
    assert_int_equal(phase->others, 0);
    assert_int_equal(phase->allocated, 0);
}

static void plain_thread(void **state)
{
    struct phase phase = {0};
    with_memory_node("thread", &phase);
    assert_int_equal(phase.waits, 0);
}

/* A worker looks whether something else has happened. */
static void fiber_of_a_worker(void **state)
{
    struct phase phase = {0};
    with_memory_node("fiber", &phase);
    assert_true(phase.waits <= phase.nanoseconds / LOOK_NS + 2);
}

int main(int count, char **arguments)
{
    daemon_main(count, arguments);
    log_set_level(LOG_ERROR);
    if (count == 4 && strcmp(arguments[1], "--client") == 0)
        return client_run(arguments[2], strcmp(arguments[3], "fiber") == 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_thread),
        cmocka_unit_test(fiber_of_a_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
