/*
 * test_members.c - memory nodes join and leave a cluster of real processes while clients go on: what is told
 * and refused, bytes that even out, logs that move, a home node that is killed and comes back, compute nodes
 * that are given the home node's address alone, or addresses of before.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/task.h"
#include "cluster/process.h"
#include "cluster/talk.h"
#include "fabric/wire.h"

#define KEYS  4000u
#define VALUE 300u
/* What the client that goes on has written is elsewhere with each of its writes, and what it replaced is held
 * back for a while: so few that it makes no memory node uneven with the others. */
#define LOAD_KEYS 40u
#define SECOND    UINT64_C(1000000000)

static struct process_result result;

static void members(struct scene *scene, const char *memory, const char *one, const char *two)
{
    process_run(scene, NULL, ARGUMENTS("members", "--memory", memory, one, two), &result);
}

static void balance(struct scene *scene, const char *memory, const char *one, const char *two,
                    const char *three)
{
    process_run(scene, NULL, ARGUMENTS("balance", "--memory", memory, "--quiet", one, two, three), &result);
}

static void refused(struct scene *scene, const char *memory, const char *one, const char *two,
                    const char *part)
{
    members(scene, memory, one, two);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, part);
}

static struct process *memory_start(struct scene *scene, const char *name, const char *pool)
{
    return process_start(
        scene, name,
        pool ? ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M", "--pool-file", pool)
             : ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
}

static void keys_set(redisContext *client, unsigned from, unsigned to)
{
    char value[VALUE + 1];
    memset(value, 'v', VALUE);
    value[VALUE] = '\0';
    for (unsigned i = from; i < to; i++)
        assert_string_equal(ask(client, "SET key%05u %u-%s", i, i, value), "OK");
}

static void expect_all(redisContext *client, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const char *wanted = text_of("%u-", i);
        assert_string_equal(ask(client, "GETRANGE key%05u 0 %u", i, (unsigned)strlen(wanted) - 1), wanted);
    }
}

/* ---- a client that goes on ---- */

struct load {
    pthread_t thread;
    struct net_address address;
    uint32_t stop;   /* atomic */
    uint64_t done;   /* atomic: writes that were acknowledged and read back */
    uint64_t failed; /* answered with an error, or with another value */
};

static void *load_main(void *argument)
{
    struct load *load = argument;
    redisContext *client = redisConnect(load->address.host, load->address.port);
    char value[200];
    memset(value, 'l', sizeof value);
    /* acquire: as set by the test */
    for (uint64_t n = 0; client && !client->err && !atomic_load_acquire(&load->stop); n++) {
        redisReply *set = redisCommand(client, "SET load%03u %llu%b", (unsigned)(n % LOAD_KEYS),
                                       (unsigned long long)n, value, sizeof value);
        redisReply *get = redisCommand(client, "GETRANGE load%03u 0 5", (unsigned)(n % LOAD_KEYS));
        char wanted[32];
        snprintf(wanted, sizeof wanted, "%llu", (unsigned long long)n);
        const bool good = set && get && set->type == REDIS_REPLY_STATUS && get->type == REDIS_REPLY_STRING &&
                          !strncmp(get->str, wanted, strlen(wanted) < 6 ? strlen(wanted) : 6);
        load->failed += !good;
        atomic_store_relaxed(&load->done, load->done + good); /* a count */
        freeReplyObject(set);
        freeReplyObject(get);
    }
    load->failed += !client || client->err;
    redisFree(client);
    return NULL;
}

static void load_start(struct load *load, const struct process *compute)
{
    *load = (struct load){.address = process_address(compute, 0)};
    assert_int_equal(pthread_create(&load->thread, NULL, load_main, load), 0);
}

/* It was at work all the time, and nothing failed. */
static void load_stop(struct load *load)
{
    atomic_store_release(&load->stop, 1u); /* release: pairs with the thread's look */
    assert_int_equal(pthread_join(load->thread, NULL), 0);
    assert_int_equal(load->failed, 0);
    assert_true(load->done > 100);
}

/* Until the client has done so many more. */
static void load_await(struct load *load, uint64_t more)
{
    const uint64_t from = atomic_load_relaxed(&load->done), deadline = task_now() + 30 * SECOND;
    while (atomic_load_relaxed(&load->done) < from + more) {
        assert_true(task_now() < deadline);
        task_sleep(SECOND / 100);
    }
}

/* ---- figures ---- */

/* Bytes in use on the memory node by what INFO says. */
static uint64_t used_on(redisContext *client, unsigned node)
{
    char *info = info_text(client, "banyan"), *at = strstr(info, text_of("memory_node%u:", node));
    const uint64_t used = at && (at = strstr(at, "used_bytes=")) ? strtoull(at + 11, NULL, 10) : 0;
    free(info);
    return used;
}

/* The compute node knows of so many memory nodes. */
static void memory_nodes_await(redisContext *client, uint64_t count)
{
    const uint64_t deadline = task_now() + 20 * SECOND;
    while (info_figure(client, "banyan", "memory_nodes") != count) {
        assert_true(task_now() < deadline);
        task_sleep(SECOND / 50);
    }
}

/* The compute node reaches the memory node, which was started again: until then what is asked may be refused.
 */
static void memory_node_await(redisContext *client, unsigned node)
{
    const uint64_t deadline = task_now() + 20 * SECOND;
    for (bool there = false; !there;) {
        char *info = info_text(client, "banyan");
        there = strstr(info, text_of("\nmemory_node%u:connected=1", node)) != NULL;
        free(info);
        assert_true(task_now() < deadline);
        task_sleep(SECOND / 50);
    }
}

/* From the table that balance prints: bytes used that are of no log. */
static uint64_t bytes_of(unsigned node)
{
    const char *line = strstr(result.output, text_of("\n%-6u ", node));
    assert_non_null(line);
    char *end;
    strtoull(line + 1, &end, 10);
    const uint64_t used = strtoull(end, &end, 10);
    strtoull(end, &end, 10);
    return used - strtoull(end, NULL, 10);
}

/* Within a tenth of the mean. *far: the number of one that is not. */
static bool is_even(struct scene *scene, const char *memory, const unsigned *nodes, unsigned count,
                    unsigned *far)
{
    uint64_t sum = 0;
    balance(scene, memory, NULL, NULL, NULL);
    assert_int_equal(result.code, 0);
    for (unsigned i = 0; i < count; i++)
        sum += bytes_of(nodes[i]);
    for (unsigned i = 0; i < count; i++) {
        const uint64_t bytes = bytes_of(nodes[i]), mean = sum / count;
        *far = nodes[i];
        if (bytes > mean + mean / 10 || bytes + mean / 10 < mean)
            return false;
    }
    return true;
}

/* The client works on, and what moved is given back by those that held it: so it may take some turns. Nodes
 * that moved for load would be moved for their bytes again. */
static void even_out(struct scene *scene, const char *memory, const unsigned *nodes, unsigned count)
{
    unsigned far = 0, turns = 0;
    while (!is_even(scene, memory, nodes, count, &far)) {
        if (turns++ == 20)
            fail_msg("memory node %u is not even with the others:\n%s", far, result.output);
        balance(scene, memory, "--run", "--measure", "0");
        assert_in_range(result.code, 0, 1); /* 1: not all of it was moved this time */
    }
}

/* ---- tests ---- */

static void memory_nodes_join_and_leave(void **state)
{
    struct scene *scene = *state;
    struct process *nodes[4];
    struct load load;
    for (unsigned i = 0; i < 4; i++)
        nodes[i] = memory_start(scene, keep(text_of("memory-%u", i)), keep(scene_path(scene, "pool-%u", i)));
    const char *home = address_text(nodes[0], 0), *fourth = address_text(nodes[3], 0),
               *three = keep(text_of("%s,%s,%s", home, address_text(nodes[1], 0), address_text(nodes[2], 0)));
    struct process *compute = process_start(scene, "compute",
                                            ARGUMENTS("compute", "--memory", three, "--listen", "127.0.0.1:0",
                                                      "--format", "--log", "auto", "--log-copies", "2"));
    /* The home node tells of the others. */
    struct process *other = process_start(scene, "other",
                                          ARGUMENTS("compute", "--memory", home, "--listen", "127.0.0.1:0",
                                                    "--log", "auto", "--log-copies", "2"));
    redisContext *client = client_of(compute, 0), *second = client_of(other, 0);
    assert_int_equal(info_figure(second, "banyan", "memory_nodes"), 3);
    keys_set(client, 0, KEYS);
    load_start(&load, other);

    members(scene, home, "--join", fourth);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "memory node 3 has joined");
    memory_nodes_await(client, 4);
    memory_nodes_await(second, 4);
    refused(scene, home, "--join", fourth, "it is memory node 3 of this cluster already");
    load_await(&load, 200);

    even_out(scene, home, (unsigned[]){0, 1, 2, 3}, 4);
    load_await(&load, 200);

    /* The home node's process is killed: its file has the list. */
    process_signal(nodes[0], SIGKILL);
    process_wait(nodes[0]);
    process_restart(scene, nodes[0],
                    ARGUMENTS("memory", "--listen", home, "--size", "64M", "--pool-file",
                              keep(scene_path(scene, "pool-0"))));
    members(scene, home, NULL, NULL);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, fourth);
    atomic_store_release(&load.stop, 1u); /* what was under way then may have failed */
    pthread_join(load.thread, NULL);
    memory_node_await(client, 0);
    memory_node_await(second, 0);
    expect_all(client, KEYS);
    load_start(&load, other);
    load_await(&load, 200);

    refused(scene, home, "--leave", "2", "hands out more");
    refused(scene, home, "--leave", "0", "home node");
    balance(scene, home, "--drain", "2", "--run");
    assert_in_range(result.code, 0, 1);
    members(scene, home, "--leave", "2");
    if (result.code)
        fail_msg("%s", result.error);
    assert_contains(result.output, "has left");
    memory_nodes_await(client, 3);
    memory_nodes_await(second, 3);
    assert_int_equal(process_stop(nodes[2]), 0);
    load_await(&load, 200);
    load_stop(&load);
    expect_all(client, KEYS);
    expect_all(second, KEYS);
    keys_set(client, KEYS, KEYS + 500);
    refused(scene, home, "--leave", "2", "there is no memory node 2");
    refused(scene, home, "--stay", "2", "there is no memory node 2");

    /* Anew, with the addresses of before, one of which answers no more. */
    redisFree(client);
    redisFree(second);
    assert_int_equal(process_stop(compute), 0);
    assert_int_equal(process_stop(other), 0);
    process_restart(scene, compute, ARGUMENTS("compute", "--memory", three, "--listen", "127.0.0.1:0"));
    client = client_of(compute, 0);
    assert_int_equal(info_figure(client, "banyan", "memory_nodes"), 3);
    expect_all(client, KEYS + 500);
    assert_int_equal(used_on(client, 2), 0);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    process_run(scene, NULL, ARGUMENTS("check", "--memory", home, "--reclaim"), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "sound");
    scene->passed = true;
}

/* Values so short that they lie in the leaves: so leaves are all that there is to move. */
static void numbers_set(redisContext *client, unsigned from, unsigned to)
{
    for (unsigned i = from; i < to; i++)
        assert_string_equal(ask(client, "SET number%05u %u", i, i), "OK");
}

static void numbers_expect(redisContext *client, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        assert_string_equal(ask(client, "GET number%05u", i), text_of("%u", i));
}

/* A compute node that owns no ranges does not hear of nodes that others move: what it has cached leads to the
 * memory node that has left, and that is no corruption. */
static void links_to_one_that_has_left_are_forgotten(void **state)
{
    struct scene *scene = *state;
    struct process *nodes[3];
    for (unsigned i = 0; i < 3; i++)
        nodes[i] = memory_start(scene, keep(text_of("memory-%u", i)), NULL);
    const char *home = address_text(nodes[0], 0),
               *all = keep(text_of("%s,%s,%s", home, address_text(nodes[1], 0), address_text(nodes[2], 0)));
    struct process *writer = process_start(scene, "writer",
                                           ARGUMENTS("compute", "--memory", all, "--listen", "127.0.0.1:0",
                                                     "--format", "--own", "none")),
                   *reader = process_start(
                       scene, "reader",
                       ARGUMENTS("compute", "--memory", all, "--listen", "127.0.0.1:0", "--own", "none"));
    redisContext *client = client_of(writer, 0), *second = client_of(reader, 0);
    numbers_set(client, 0, KEYS);
    balance(scene, home, "--run", "--measure", "0"); /* else all leaves are on the first one */
    assert_in_range(result.code, 0, 1);
    numbers_expect(second, KEYS);
    balance(scene, home, "--drain", "2", "--run");
    assert_int_equal(result.code, 0);
    assert_null(strstr(result.output, "moved: 0 nodes"));
    members(scene, home, "--leave", "2");
    if (result.code)
        fail_msg("%s", result.error);
    memory_nodes_await(client, 2);
    memory_nodes_await(second, 2);
    numbers_expect(second, KEYS);
    numbers_set(second, KEYS / 2, KEYS + 500);
    numbers_expect(client, KEYS + 500);
    assert_string_equal(ask(second, "DBSIZE"), text_of("%u", KEYS + 500));
    redisFree(client);
    redisFree(second);
    assert_int_equal(process_stop(writer), 0);
    assert_int_equal(process_stop(reader), 0);
    scene->passed = true;
}

static void receive(int fd, void *to, size_t length)
{
    for (size_t have = 0; have < length;) {
        const ssize_t got = recv(fd, (char *)to + have, length - have, 0);
        assert_true(got > 0);
        have += (size_t)got;
    }
}

/* The lease of a compute node that says nothing behind that. The connection is the caller's. */
static int silent_compute_node(const struct process *memory)
{
    const struct net_address address = process_address(memory, 0);
    const struct sockaddr_in peer = {
        .sin_family = AF_INET, .sin_port = htons(address.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct {
        struct wire_header head;
        struct wire_hello hello;
    } say = {.head = {.kind = WIRE_HELLO, .length = sizeof say.hello},
             .hello = {.magic = WIRE_MAGIC,
                       .version = WIRE_VERSION,
                       .role = WIRE_CONTROL,
                       .instance = 77,
                       .lease_ms = 60000}};
    struct wire_header head;
    struct wire_greeting greeting;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&peer, sizeof peer), 0);
    receive(fd, &head, sizeof head);
    assert_int_equal(head.length, sizeof greeting);
    receive(fd, &greeting, sizeof greeting);
    assert_int_equal(send(fd, &say, sizeof say, 0), sizeof say);
    receive(fd, &head, sizeof head);
    assert_int_equal(head.kind, WIRE_WELCOME);
    return fd;
}

/* A compute node that has not heard that memory node 1 leaves could still log there. */
static void leave_before_all_have_heard(struct scene *scene, const char *home, const struct process *memory)
{
    const int silent = silent_compute_node(memory);
    process_run(scene, NULL, ARGUMENTS("members", "--memory", home, "--leave", "1", "--wait", "0"), &result);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, "not all compute nodes have heard");
    members(scene, home, NULL, NULL);
    assert_contains(result.output, "1      member");
    close(silent);
}

static void what_cannot_join_is_refused(void **state)
{
    struct scene *scene = *state;
    struct process *home = memory_start(scene, "home", NULL),
                   *stranger = memory_start(scene, "stranger", NULL),
                   *wide = process_start(
                       scene, "wide",
                       ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M", "--lock-width", "8")),
                   *filed = memory_start(scene, "filed", keep(scene_path(scene, "pool")));
    const char *memory = address_text(home, 0), *away = address_text(stranger, 0);
    refused(scene, memory, NULL, NULL, "is empty");
    struct process *compute = process_start(
        scene, "compute", ARGUMENTS("compute", "--memory", memory, "--listen", "127.0.0.1:0", "--format"));
    struct process *its = process_start(
        scene, "its", ARGUMENTS("compute", "--memory", away, "--listen", "127.0.0.1:0", "--format"));
    refused(scene, memory, "--join", away, "number 0 of another cluster");
    refused(scene, memory, "--join", address_text(wide, 0), "lock words of 8 bytes");
    refused(scene, memory, "--join", address_text(filed, 0), "its pool lies in a file");
    refused(scene, memory, "--join", "127.0.0.1:1", "127.0.0.1:1");
    refused(scene, memory, "--join", memory, "it is memory node 0 of this cluster already");
    refused(scene, memory, "--join", "a,b", "one address");
    refused(scene, memory, "--leave", "x", "is not the number of a memory node");
    refused(scene, memory, "--leave", "1", "there is no memory node 1");
    members(scene, memory, NULL, NULL);
    assert_contains(result.output, "list 1 of cluster"); /* nothing was changed */
    members(scene, away, NULL, NULL);
    assert_contains(result.output, "list 1 of cluster");

    /* Nothing is in use there yet, but the next value could be put there. */
    struct process *fresh = memory_start(scene, "fresh", NULL);
    members(scene, memory, "--join", address_text(fresh, 0));
    assert_int_equal(result.code, 0);
    refused(scene, memory, "--leave", "1", "0 bytes are in use, and it hands out more");
    members(scene, memory, NULL, NULL);
    assert_contains(result.output, "list 2 of cluster");
    balance(scene, memory, "--drain", "1", "--run");
    assert_int_equal(result.code, 0);
    leave_before_all_have_heard(scene, memory, fresh);
    members(scene, memory, "--leave", "1");
    if (result.code)
        fail_msg("%s", result.error);
    assert_int_equal(process_stop(compute), 0);
    assert_int_equal(process_stop(its), 0);
    scene->passed = true;
}

/* ---- journals ---- */

static void disk_start(struct scene *scene, struct process **node, unsigned number)
{
    const char *const *arguments =
        ARGUMENTS("memory", "--listen", text_of("unix:%s", scene_path(scene, "m%u.sock", number)), "--size",
                  "64M", "--data", scene_path(scene, "d%u", number), "--durability", "disk-always");
    if (*node)
        process_restart(scene, *node, arguments);
    else
        *node = process_start(scene, keep(text_of("disk-%u", number)), arguments);
}

static void logs_start(struct scene *scene, struct process **compute, const char *memory, const char *copies,
                       const char *format)
{
    /* However busy the machine is, no memory node counts as lost. */
    const char *const *arguments =
        ARGUMENTS("compute", "--memory", memory, "--copy", "--listen", "127.0.0.1:0", "--log", "auto",
                  "--timeout", "60000", "--log-copies", copies, format);
    if (*compute)
        process_restart(scene, *compute, arguments);
    else
        *compute = process_start(scene, "compute", arguments);
}

static void all_kill(struct process *const *nodes, unsigned count, struct process *compute)
{
    process_kill(compute);
    for (unsigned i = 0; i < count; i++)
        process_kill(nodes[i]);
}

/* What a recovery of these directories says. */
static void recover(struct scene *scene, const char *directories, int code, const char *part)
{
    process_run(scene, NULL, ARGUMENTS("recover", "--data", directories), &result);
    if (result.code != code || !strstr(code ? result.error : result.output, part))
        fail_msg("%d: %s%s", result.code, result.output, result.error);
}

static void save(struct scene *scene, const char *home)
{
    process_run(scene, NULL, ARGUMENTS("save", "--memory", home, "--copy"), &result);
    if (result.code)
        fail_msg("%s", result.error);
}

/* Memory nodes with disks: a recovery misses the journal of one that has joined, since the others' tell of
 * it, with a checkpoint and without; and one disk's loss loses nothing that had two copies, its own neither.
 */
static void a_journal_that_has_joined_is_missed(void **state)
{
    struct scene *scene = *state;
    struct process *nodes[3] = {NULL}, *other = NULL, *compute = NULL;
    for (unsigned i = 0; i < 3; i++)
        disk_start(scene, &nodes[i], i);
    disk_start(scene, &other, 3);
    const char *home = keep(text_of("unix:%s", scene_path(scene, "m0.sock"))),
               *memory = keep(text_of("%s,unix:%s", home, scene_path(scene, "m1.sock"))),
               *joining = keep(text_of("unix:%s", scene_path(scene, "m2.sock"))),
               *two = keep(text_of("%s,%s", keep(scene_path(scene, "d0")), scene_path(scene, "d1"))),
               *all = keep(text_of("%s,%s", two, scene_path(scene, "d2"))),
               *wrong = keep(text_of("%s,%s", two, scene_path(scene, "d3")));
    logs_start(scene, &compute, memory, "1", "--format");
    redisContext *client = client_of(compute, 0);
    keys_set(client, 0, KEYS / 8);
    redisFree(client);

    /* A member whose disk cannot note it: none joins, and a recovery wants no journal but those of before.
     * The directory of the one that was to be number 2 first stays. */
    const char *obstacle = keep(scene_path(scene, "d1/manifest.new"));
    assert_int_equal(mkdir(obstacle, 0700), 0);
    refused(scene, home, "--join", keep(text_of("unix:%s", scene_path(scene, "m3.sock"))),
            "must note that another one joins");
    process_kill(other);
    refused(scene, home, "--join", joining, "must note that another one joins");
    assert_contains(result.error, "memory node 1 ");
    members(scene, home, NULL, NULL);
    assert_contains(result.output, "list 1 of cluster");
    all_kill(nodes, 3, compute);
    assert_int_equal(rmdir(obstacle), 0);
    recover(scene, two, 0, text_of("%u keys", KEYS / 8));
    for (unsigned i = 0; i < 3; i++)
        disk_start(scene, &nodes[i], i);
    logs_start(scene, &compute, home, "1", NULL);
    client = client_of(compute, 0);

    members(scene, home, "--join", joining);
    if (result.code)
        fail_msg("%s", result.error);
    memory_nodes_await(client, 3);
    keys_set(client, KEYS / 8, KEYS / 2);
    redisFree(client);
    all_kill(nodes, 3, compute);
    recover(scene, two, 2, "the cluster has 3 memory nodes, and the directory of memory node 2 is not given");
    recover(scene, all, 0, text_of("%u keys", KEYS / 2));
    assert_contains(result.output, "memory node 2 of 3, ");
    assert_null(strstr(result.output, "memory node 2 of 3, 0 records")); /* its journal has some of them */
    recover(scene, wrong, 2, "d3 is not of the memory node 2 that joined");
    recover(scene, keep(text_of("%s,%s", keep(scene_path(scene, "d3")), scene_path(scene, "d1"))), 2,
            "d1 says so"); /* and not the home node alone */

    /* The checkpoint has what one copy had. */
    for (unsigned i = 0; i < 3; i++)
        disk_start(scene, &nodes[i], i);
    logs_start(scene, &compute, home, "2", NULL);
    client = client_of(compute, 0);
    keys_set(client, 0,
             KEYS / 8); /* so the range is taken over, with its log of one copy, before it is made */
    save(scene, home);
    keys_set(client, KEYS / 4, KEYS / 2 + 100);
    redisFree(client);
    all_kill(nodes, 3, compute);
    recover(scene, two, 2, "the cluster has 3 memory nodes, and the directory of memory node 2 is not given");
    recover(scene, all, 0, text_of("%u keys", KEYS / 2 + 100));
    recover(scene, wrong, 2, "d3 is not of the memory node 2 that joined"); /* with a checkpoint too */
    process_run(scene, NULL, ARGUMENTS("recover", "--data", two, "--lost", "2"), &result);
    if (result.code || !strstr(result.output, text_of("%u keys", KEYS / 2 + 100)))
        fail_msg("%d: %s%s", result.code, result.output, result.error);
    scene->passed = true;
}

/* The journal of a memory node that has left is wanted as before, until there is a checkpoint, which has all
 * of it. */
static void leave_and_read_back(struct scene *scene, bool joins)
{
    struct process *nodes[3] = {NULL}, *compute = NULL;
    const char *memory = keep(""), *directories[3], *list = keep("");
    for (unsigned i = 0; i < 3; i++) {
        disk_start(scene, &nodes[i], i);
        if (i < 2 || !joins)
            memory = keep(text_of("%s%sunix:%s", memory, i ? "," : "", scene_path(scene, "m%u.sock", i)));
        directories[i] = list = keep(text_of("%s%s%s", list, i ? "," : "", scene_path(scene, "d%u", i)));
    }
    const char *home = keep(text_of("unix:%s", scene_path(scene, "m0.sock")));
    logs_start(scene, &compute, memory, "1", "--format");
    redisContext *client = client_of(compute, 0);
    if (joins) {
        members(scene, home, "--join", text_of("unix:%s", scene_path(scene, "m2.sock")));
        if (result.code)
            fail_msg("%s", result.error);
        memory_nodes_await(client, 3);
    }
    keys_set(client, 0, KEYS / 4);
    balance(scene, home, "--drain", "2", "--run");
    assert_in_range(result.code, 0, 1); /* 1: the owner's log is there still */
    members(scene, home, "--leave", "2");
    if (result.code)
        fail_msg("%s", result.error);
    assert_contains(result.output, "keep its --data directory");
    keys_set(client, KEYS / 4, KEYS / 2);
    redisFree(client);
    all_kill(nodes, 3, compute);
    recover(scene, directories[1], 2, "the directory of memory node 2 is not given");
    recover(scene, directories[2], 0, text_of("%u keys", KEYS / 2));

    for (unsigned i = 0; i < 2; i++)
        disk_start(scene, &nodes[i], i);
    logs_start(scene, &compute, home, "1", NULL);
    save(scene, home);
    client = client_of(compute, 0);
    keys_set(client, KEYS / 4, KEYS / 2 + 100);
    redisFree(client);
    all_kill(nodes, 2, compute);
    for (unsigned i = 1; i < 3; i++)
        recover(scene, directories[i], 0, text_of("%u keys", KEYS / 2 + 100));
    scene->passed = true;
}

static void journals_are_read_back_together(void **state)
{
    leave_and_read_back(*state, false);
}

static void one_that_has_joined_leaves_its_journal(void **state)
{
    leave_and_read_back(*state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(memory_nodes_join_and_leave, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(links_to_one_that_has_left_are_forgotten, scene_set_up,
                                        scene_tear_down),
        cmocka_unit_test_setup_teardown(what_cannot_join_is_refused, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(a_journal_that_has_joined_is_missed, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(journals_are_read_back_together, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(one_that_has_joined_leaves_its_journal, scene_set_up,
                                        scene_tear_down),
    };
    if (getenv("PART"))
        cmocka_set_test_filter(getenv("PART"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
