/* test_remote.c - what can go wrong between a compute node and memory nodes in other processes: lost
 * connections, daemons that die, hang or come back empty, secrets, clusters that do not fit together. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/task.h"
#include "base/worker.h"
#include "daemon.h"
#include "fabric/remote.h"
#include "fabric/wire.h"
#include "memory/memory.h"

#define POOL  (UINT64_C(4) << 20)
#define AREA  (UINT64_C(1) << 20)
#define MS    UINT64_C(1000000)
#define LIMIT (UINT64_C(20000) * MS) /* much more than anything takes */

static struct daemon_options daemon_options(uint16_t number)
{
    return (struct daemon_options){
        .number = number, .pool_bytes = POOL, .chunk_bytes = 65536, .lock_bytes = 4096, .lease_ms_min = 50};
}

static void start(struct daemon *daemon, uint16_t number)
{
    struct daemon_options options = daemon_options(number);
    daemon_start(daemon, &options);
}

static void start_empty(struct daemon *daemon, uint16_t port)
{
    struct daemon_options options = daemon_options(0);
    options.unformatted = true;
    options.port = port;
    daemon_start(daemon, &options);
}

static struct fabric_remote_options options_for(const struct net_address *nodes, uint16_t count)
{
    return (struct fabric_remote_options){
        .nodes = nodes, .count = count, .lease_ms = 5000, .timeout_ms = 5000, .name = "test"};
}

static struct fabric *open_fabric(const struct fabric_remote_options *options)
{
    struct error error = {0};
    struct fabric *fabric = NULL;
    if (fabric_remote_open(&fabric, options, &error))
        fail_msg("open: %s", error.text);
    return fabric;
}

/* Opening must fail with this code and a message that says so. */
static void open_fails(const struct fabric_remote_options *options, int code, const char *says)
{
    struct error error = {0};
    struct fabric *fabric = NULL;
    int status = fabric_remote_open(&fabric, options, &error);
    assert_null(fabric);
    if (status != code || strstr(error.text, says) == NULL)
        fail_msg("status %d, not %d, or the message does not say \"%s\": %s", status, code, says, error.text);
}

static struct fabric_endpoint *open_endpoint(struct fabric *fabric)
{
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    assert_non_null(endpoint);
    return endpoint;
}

static int add(struct fabric_endpoint *endpoint, uint16_t node, uint64_t incarnation, uint64_t *old)
{
    struct fabric_command command = {
        .operation = FABRIC_FAA, .address = gaddr_make(node, AREA), .faa.add = 1};
    struct fabric_list list = {.node = node, .count = 1, .commands = &command, .incarnation = incarnation};
    struct fabric_list *lists[] = {&list};
    int status = fabric_execute(endpoint, lists, 1, NULL);
    if (old != NULL)
        *old = command.faa.old;
    return status;
}

static int look(struct fabric_endpoint *endpoint, uint16_t node, uint64_t *value)
{
    struct fabric_command command = {
        .operation = FABRIC_READ, .length = 8, .address = gaddr_make(node, AREA), .read.buffer = value};
    struct fabric_list list = {.node = node, .count = 1, .commands = &command}, *lists[] = {&list};
    int status = fabric_execute(endpoint, lists, 1, NULL);
    if (!status && command.read.data != value)
        memcpy(value, command.read.data, 8);
    return status;
}

/* Until the memory node is there (again); any other status than OK and ENET fails the test. */
static uint64_t wait_there(struct fabric_endpoint *endpoint, uint16_t node)
{
    uint64_t value = 0, deadline = task_now() + LIMIT;
    int status;
    while ((status = look(endpoint, node, &value))) {
        assert_int_equal(status, BANYAN_ENET);
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
    return value;
}

static void wait_gone(struct fabric_endpoint *endpoint, uint16_t node)
{
    uint64_t value = 0, deadline = task_now() + LIMIT;
    int status;
    while (!(status = look(endpoint, node, &value))) {
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
    assert_int_equal(status, BANYAN_ENET);
}

/* Until the trouble's text contains `says` ("": is empty). */
static void wait_trouble(struct fabric *fabric, uint16_t node, const char *says)
{
    uint64_t deadline = task_now() + LIMIT;
    char text[256];
    for (;;) {
        fabric_trouble(fabric, node, text, sizeof text);
        if (says[0] == 0 ? text[0] == 0 : strstr(text, says) != NULL)
            return;
        if (task_now() > deadline)
            fail_msg("trouble is \"%s\", never \"%s\"", text, says);
        task_sleep(MS);
    }
}

/* ---- losses ---- */

static void lost_and_found(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct proxy *proxy = proxy_start(&daemon.tcp);
    struct net_address address = proxy_address(proxy);
    struct fabric_remote_options options = options_for(&address, 1);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *one = open_endpoint(fabric), *two = open_endpoint(fabric);
    uint16_t id = fabric_capabilities(fabric)->compute_id;
    struct fabric_remote_node_state node;
    assert_string_equal(fabric_capabilities(fabric)->backend, "tcp");
    assert_true(fabric_capabilities(fabric)->round_trip_ns > 0);
    assert_int_equal(fabric_incarnation(fabric), 1);
    assert_int_equal(add(one, 0, 1, NULL), BANYAN_OK);
    assert_int_equal(add(two, 0, 1, NULL), BANYAN_OK);

    proxy_cut(proxy);
    wait_gone(one, 0);
    wait_trouble(fabric, 0, "memory node tcp://127.0.0.1:");
    fabric_remote_node_state(fabric, 0, &node);
    assert_false(node.connected);
    assert_int_equal(node.losses, 1);
    assert_int_equal(fabric_incarnation(fabric), 2);
    /* The other endpoint never noticed anything; its old operations are refused, and it is not connected. */
    assert_int_equal(add(two, 0, 1, NULL), BANYAN_EFENCED);
    assert_int_equal(add(two, 0, 2, NULL), BANYAN_ENET);
    /* An endpoint that is opened meanwhile works when the memory node is back. */
    struct fabric_endpoint *three = open_endpoint(fabric);
    assert_int_equal(add(three, 0, 2, NULL), BANYAN_ENET);

    proxy_open(proxy);
    assert_int_equal(wait_there(one, 0), 2);
    assert_int_equal(wait_there(two, 0), 2);
    assert_int_equal(wait_there(three, 0), 2);
    wait_trouble(fabric, 0, "");
    assert_int_equal(fabric_incarnation(fabric), 2);
    assert_int_equal(add(one, 0, 1, NULL), BANYAN_EFENCED);
    assert_int_equal(add(two, 0, 1, NULL), BANYAN_EFENCED);
    assert_int_equal(add(three, 0, 2, NULL), BANYAN_OK);
    assert_int_equal(wait_there(one, 0), 3);
    assert_int_equal(fabric_capabilities(fabric)->compute_id, id);
    fabric_remote_node_state(fabric, 0, &node);
    assert_true(node.connected && !node.mapped);
    fabric_endpoint_close(one);
    fabric_endpoint_close(two);
    fabric_endpoint_close(three);
    fabric_close(fabric);
    proxy_stop(proxy);
    daemon_kill(&daemon);
}

/* One data connection that breaks takes the whole group with it. Connection 0 is the control one of the first
 * probe, 1 the lease, 2 and 3 the endpoints'. */
static void one_connection_of_many(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct proxy *proxy = proxy_start(&daemon.tcp);
    struct net_address address = proxy_address(proxy);
    struct fabric_remote_options options = options_for(&address, 1);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *one = open_endpoint(fabric), *two = open_endpoint(fabric);
    assert_int_equal(add(one, 0, 1, NULL), BANYAN_OK);
    proxy_cut_one(proxy, 3);
    uint64_t deadline = task_now() + LIMIT;
    while (fabric_incarnation(fabric) == 1) {
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
    wait_there(one, 0);
    wait_there(two, 0);
    assert_int_equal(add(one, 0, 1, NULL), BANYAN_EFENCED);
    assert_int_equal(add(two, 0, 1, NULL), BANYAN_EFENCED);
    assert_int_equal(add(one, 0, 2, NULL), BANYAN_OK);
    fabric_endpoint_close(one);
    fabric_endpoint_close(two);
    fabric_close(fabric);
    proxy_stop(proxy);
    daemon_kill(&daemon);
}

/* Until a connection is opened that hangs; returns which one. */
static unsigned wait_hangs(struct proxy *proxy)
{
    const uint64_t deadline = task_now() + LIMIT;
    bool open;
    const unsigned before = proxy_opened(proxy, &open);
    for (;;) {
        const unsigned opened = proxy_opened(proxy, &open);
        if (opened > before && open)
            return opened;
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
}

/* A memory node that answers nothing keeps no other one waiting: while a try to connect to it is under way
 * the other one is lost, and is there again. On a machine that has no time for that the try may end
 * meanwhile: then another one is waited for. */
static void one_that_hangs_delays_no_other(void **state)
{
    struct daemon daemons[2];
    struct proxy *proxies[2];
    struct net_address addresses[2];
    for (uint16_t i = 0; i < 2; i++) {
        start(&daemons[i], i);
        proxies[i] = proxy_start(&daemons[i].tcp);
        addresses[i] = proxy_address(proxies[i]);
    }
    struct fabric_remote_options options = options_for(addresses, 2);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    for (uint16_t hung = 0; hung < 2; hung++) {
        struct proxy *hangs = proxies[hung], *other = proxies[!hung];
        const uint64_t deadline = task_now() + LIMIT;
        unsigned opened;
        bool open;
        proxy_cut(hangs);
        wait_gone(endpoint, hung);
        proxy_hang(hangs, 0);
        proxy_open(hangs);
        do {
            assert_true(task_now() < deadline);
            opened = wait_hangs(hangs);
            proxy_cut(other);
            wait_gone(endpoint, !hung);
            proxy_open(other);
            wait_there(endpoint, !hung);
        } while (proxy_opened(hangs, &open) != opened || !open);
        proxy_cut(hangs);
        proxy_hang(hangs, UINT_MAX);
        proxy_open(hangs);
        wait_there(endpoint, hung);
    }
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    for (unsigned i = 0; i < 2; i++) {
        proxy_stop(proxies[i]);
        daemon_kill(&daemons[i]);
    }
}

/* ---- an endpoint that gets no connection ---- */

static int take_lock(struct fabric_endpoint *endpoint, uint64_t compare, uint64_t swap, uint64_t incarnation,
                     uint64_t *old)
{
    struct fabric_command command = {.operation = FABRIC_CAS,
                                     .address = gaddr_make(0, GADDR_LOCK_REGION | 64),
                                     .cas = {.compare = compare, .swap = swap, .mask = UINT64_MAX}};
    struct fabric_list list = {.count = 1, .commands = &command, .incarnation = incarnation};
    struct fabric_list *lists[] = {&list};
    int status = fabric_execute(endpoint, lists, 1, NULL);
    *old = command.cas.old;
    return status;
}

/* A memory node with two connections to give has none for the second endpoint. (The one of the question who
 * it is may not be closed yet when the others are opened.) */
static struct fabric *open_crowded(const struct net_address *address, struct fabric_endpoint **one,
                                   struct fabric_endpoint **two)
{
    struct fabric_remote_options options = options_for(address, 1);
    struct fabric *fabric = NULL;
    uint64_t deadline = task_now() + LIMIT;
    while (fabric_remote_open(&fabric, &options, NULL))
        assert_true(task_now() < deadline);
    *one = open_endpoint(fabric);
    wait_there(*one, 0);
    *two = open_endpoint(fabric);
    return fabric;
}

/* A lock that only it could free is freed by giving the whole group up. */
static void locks_are_given_up(void **state)
{
    struct daemon daemon;
    struct daemon_options few = daemon_options(0);
    struct fabric_endpoint *one, *two;
    uint64_t old, deadline = task_now() + LIMIT;
    few.connections_max = 2;
    daemon_start(&daemon, &few);
    struct fabric *fabric = open_crowded(&daemon.tcp, &one, &two);
    uint16_t id = fabric_capabilities(fabric)->compute_id;
    uint64_t before = fabric_incarnation(fabric);
    assert_int_equal(take_lock(one, 0, id, before, &old), BANYAN_OK);
    assert_int_equal(old, 0);
    assert_int_equal(take_lock(two, id, 0, before, &old), BANYAN_ENET);
    fabric_give_up(one, 0); /* which has a connection */
    assert_int_equal(fabric_incarnation(fabric), before);
    fabric_give_up(two, 0);
    assert_int_equal(fabric_incarnation(fabric), before + 1);
    assert_int_equal(take_lock(two, id, 0, before, &old), BANYAN_EFENCED);
    while (take_lock(one, 0, id, before + 1, &old) && take_lock(two, 0, id, before + 1, &old)) {
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
    assert_int_equal(old, 0);
    fabric_endpoint_close(one);
    fabric_endpoint_close(two);
    fabric_close(fabric);
    daemon_kill(&daemon);
}

/* On a mapped pool it frees the lock itself. */
static void mapped_locks_need_no_connection(void **state)
{
    struct daemon daemon;
    struct daemon_options few = daemon_options(0);
    struct fabric_endpoint *one, *two;
    uint64_t old, words[2] = {1, 2};
    few.connections_max = 2;
    daemon_start(&daemon, &few);
    struct fabric *fabric = open_crowded(&daemon.local, &one, &two);
    uint16_t id = fabric_capabilities(fabric)->compute_id;
    struct fabric_command write = {.operation = FABRIC_WRITE,
                                   .length = sizeof words,
                                   .address = gaddr_make(0, AREA),
                                   .write.data = words};
    struct fabric_list list = {.count = 1, .commands = &write, .incarnation = 1}, *lists[] = {&list};
    assert_int_equal(take_lock(one, 0, id, 1, &old), BANYAN_OK);
    assert_int_equal(fabric_execute(two, lists, 1, NULL), BANYAN_ENET);
    fabric_give_up(two, 0);
    /* Nor is anything else done that is more than one word's change, or of no operation. */
    assert_int_equal(look(two, 0, &old), BANYAN_ENET);
    assert_int_equal(take_lock(two, id, 0, 0, &old), BANYAN_ENET);
    write.address += 4;
    write.length = 8;
    assert_int_equal(fabric_execute(two, lists, 1, NULL), BANYAN_ENET);
    write.address -= 4;
    assert_int_equal(fabric_execute(two, lists, 1, NULL), BANYAN_OK);
    assert_int_equal(take_lock(two, id, 0, 1, &old), BANYAN_OK);
    assert_int_equal(take_lock(one, 0, id, 1, &old), BANYAN_OK);
    assert_int_equal(old, 0);
    assert_int_equal(fabric_incarnation(fabric), 1);
    daemon_kill(&daemon);
    wait_gone(one, 0);
    assert_int_equal(take_lock(two, id, 0, 1, &old), BANYAN_EFENCED);
    assert_int_equal(take_lock(two, id, 0, 2, &old), BANYAN_ENET);
    fabric_endpoint_close(one);
    fabric_endpoint_close(two);
    fabric_close(fabric);
}

/* ---- fibers, while connections are cut again and again: what was acknowledged was done, once ---- */

#define FIBERS 16

struct storm {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct proxy *proxy;
    uint64_t begun[FIBERS], done[FIBERS], all_done;
    bool over;
};
struct rain {
    struct storm *storm;
    unsigned index;
};

/* Adds to a word of its own: done <= word <= begun. */
static void rain_main(void *argument)
{
    struct rain *rain = argument;
    struct storm *storm = rain->storm;
    while (!storm->over) {
        struct fabric_command command = {
            .operation = FABRIC_FAA, .address = gaddr_make(0, AREA + 64 + rain->index * 8), .faa.add = 1};
        struct fabric_list list = {
            .count = 1, .commands = &command, .incarnation = fabric_incarnation(storm->fabric)};
        struct fabric_list *lists[] = {&list};
        storm->begun[rain->index]++;
        int status = fabric_execute(storm->endpoint, lists, 1, NULL);
        storm->done[rain->index] += !status;
        storm->all_done += !status;
        if (status)
            task_sleep(MS);
    }
}

static void thunder_main(void *argument)
{
    struct storm *storm = argument;
    uint64_t deadline = task_now() + LIMIT;
    for (unsigned strike = 1; strike <= 20; strike++) {
        task_sleep(strike % 4 * MS); /* whatever they are doing then */
        proxy_cut(storm->proxy);
        proxy_open(storm->proxy);
        while (fabric_incarnation(storm->fabric) < strike + 1 && task_now() < deadline)
            task_sleep(MS / 4);
        uint64_t done = storm->all_done;
        while (storm->all_done < done + 100 && task_now() < deadline)
            task_sleep(MS / 4);
    }
    storm->over = true;
}

static void fibers_in_a_storm(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct storm storm = {.proxy = proxy_start(&daemon.tcp), .over = false};
    struct rain rain[FIBERS];
    struct net_address address = proxy_address(storm.proxy);
    struct fabric_remote_options options = options_for(&address, 1);
    storm.fabric = open_fabric(&options);
    storm.endpoint = open_endpoint(storm.fabric);
    struct worker *worker = worker_create();
    assert_non_null(worker);
    for (unsigned i = 0; i < FIBERS; i++) {
        rain[i] = (struct rain){&storm, i};
        assert_int_equal(worker_spawn(worker, rain_main, &rain[i]), 0);
    }
    assert_int_equal(worker_spawn(worker, thunder_main, &storm), 0);
    worker_run(worker);
    worker_destroy(worker);
    assert_true(fabric_incarnation(storm.fabric) >= 21);
    assert_true(storm.all_done >= 2000);
    wait_there(storm.endpoint, 0); /* on this thread now */
    for (unsigned i = 0; i < FIBERS; i++) {
        uint64_t word;
        struct fabric_command command = {.operation = FABRIC_READ,
                                         .length = 8,
                                         .address = gaddr_make(0, AREA + 64 + i * 8),
                                         .read.buffer = &word};
        struct fabric_list list = {.count = 1, .commands = &command}, *lists[] = {&list};
        assert_int_equal(fabric_execute(storm.endpoint, lists, 1, NULL), BANYAN_OK);
        assert_in_range(word, storm.done[i], storm.begun[i]);
    }
    fabric_endpoint_close(storm.endpoint);
    fabric_close(storm.fabric);
    proxy_stop(storm.proxy);
    daemon_kill(&daemon);
}

/* ---- more than fits into any buffer ---- */

static void large_main(void *argument)
{
    struct rain *rain = argument;
    struct storm *storm = rain->storm;
    enum { PARTS = 4, PART = 512 << 10 };
    uint8_t *bytes = malloc(PART), *seen = malloc((size_t)PARTS * PART);
    struct fabric_command write = {
        .operation = FABRIC_WRITE, .length = PART, .address = gaddr_make(0, POOL / 2), .write.data = bytes};
    struct fabric_command reads[PARTS];
    struct fabric_list list = {.count = 1, .commands = &write};
    struct fabric_list all = {.count = PARTS, .commands = reads}, *lists[] = {&list, &all};
    if (bytes == NULL || seen == NULL)
        abort();
    memset(bytes, 0x33, PART);
    for (unsigned i = 0; i < PARTS; i++)
        reads[i] = (struct fabric_command){.operation = FABRIC_READ,
                                           .length = PART,
                                           .address = gaddr_make(0, POOL / 2),
                                           .read.buffer = seen + i * (size_t)PART};
    for (unsigned round = 0; round < 5; round++) {
        bool good = !fabric_execute(storm->endpoint, lists, 2, NULL);
        for (size_t i = 0; i < (size_t)PARTS * PART && good; i += 4097) /* all fibers write the same */
            good = seen[i] == 0x33 || round == 0;
        storm->done[rain->index] += good;
    }
    free(bytes);
    free(seen);
}

static void large_lists_wait_for_room(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.tcp, 1);
    struct storm storm = {.fabric = open_fabric(&options)};
    struct rain rain[FIBERS];
    storm.endpoint = open_endpoint(storm.fabric);
    struct worker *worker = worker_create();
    assert_non_null(worker);
    for (unsigned i = 0; i < FIBERS; i++) {
        rain[i] = (struct rain){&storm, i};
        assert_int_equal(worker_spawn(worker, large_main, &rain[i]), 0);
    }
    worker_run(worker);
    for (unsigned i = 0; i < FIBERS; i++)
        assert_int_equal(storm.done[i], 5);
    large_main(&rain[0]); /* a plain thread; the worker is still there */
    assert_int_equal(storm.done[0], 10);
    worker_destroy(worker);
    fabric_endpoint_close(storm.endpoint);
    fabric_close(storm.fabric);
    daemon_kill(&daemon);
}

/* A plain thread sends what it has posted only when it waits; it waits before it holds too much. */
static void one_thread_waits_for_room(void **state)
{
    enum { LISTS = 8, PART = 512 << 10 };
    static uint8_t bytes[PART], seen[PART];
    struct daemon daemon;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.tcp, 1);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    struct fabric_command writes[LISTS];
    struct fabric_list all[LISTS], *lists[LISTS];
    memset(bytes, 0x44, sizeof bytes);
    for (unsigned i = 0; i < LISTS; i++) {
        writes[i] = (struct fabric_command){.operation = FABRIC_WRITE,
                                            .length = PART,
                                            .address = gaddr_make(0, POOL / 2),
                                            .write.data = bytes};
        all[i] = (struct fabric_list){.count = 1, .commands = &writes[i]};
        lists[i] = &all[i];
    }
    assert_int_equal(fabric_execute(endpoint, lists, LISTS, NULL), BANYAN_OK);
    struct fabric_command read = {
        .operation = FABRIC_READ, .length = PART, .address = gaddr_make(0, POOL / 2), .read.buffer = seen};
    all[0] = (struct fabric_list){.count = 1, .commands = &read};
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), BANYAN_OK);
    assert_memory_equal(seen, bytes, PART);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    daemon_kill(&daemon);
}

struct crowd {
    struct fabric_endpoint *endpoint;
    struct daemon *daemon; /* stopped; dies, or goes on */
    bool dies;
    unsigned begun, done, lost;
};

static void crowd_main(void *argument)
{
    enum { PART = 1 << 20 };
    static uint8_t bytes[PART];
    struct crowd *crowd = argument;
    struct fabric_command write = {
        .operation = FABRIC_WRITE, .length = PART, .address = gaddr_make(0, POOL / 2), .write.data = bytes};
    struct fabric_list list = {.count = 1, .commands = &write}, *lists[] = {&list};
    crowd->begun++;
    int status = fabric_execute(crowd->endpoint, lists, 1, NULL);
    crowd->done += !status;
    crowd->lost += status == BANYAN_ENET;
}

static void crowd_ends(void *argument)
{
    struct crowd *crowd = argument;
    while (crowd->begun < FIBERS)
        task_sleep(MS);
    if (crowd->dies)
        daemon_kill(crowd->daemon);
    else
        daemon_signal(crowd->daemon, SIGCONT);
}

/* Fibers whose messages do not fit wait until the memory node takes some of what lies there, or is lost. */
static void fibers_wait_for_room(bool dies)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.tcp, 1);
    options.timeout_ms = 20000;
    options.lease_ms = 60000;
    struct fabric *fabric = open_fabric(&options);
    struct crowd crowd = {.endpoint = open_endpoint(fabric), .daemon = &daemon, .dies = dies};
    struct worker *worker = worker_create();
    assert_non_null(worker);
    daemon_signal(&daemon, SIGSTOP);
    for (unsigned i = 0; i < FIBERS; i++)
        assert_int_equal(worker_spawn(worker, crowd_main, &crowd), 0);
    assert_int_equal(worker_spawn(worker, crowd_ends, &crowd), 0);
    worker_run(worker);
    worker_destroy(worker);
    assert_int_equal(dies ? crowd.lost : crowd.done, FIBERS);
    fabric_endpoint_close(crowd.endpoint);
    fabric_close(fabric);
    daemon_kill(&daemon);
}

static void fibers_wait_for_room_until_there_is(void **state)
{
    fibers_wait_for_room(false);
}

static void fibers_wait_for_room_until_it_is_lost(void **state)
{
    fibers_wait_for_room(true);
}

/* What cannot even be said is refused here; what goes before it is done. */
static void impossible_commands(void **state)
{
    struct daemon daemon;
    uint64_t value = 0;
    uint8_t request[WIRE_SMALL_MAX + 1] = {0};
    size_t length;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.tcp, 1);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    struct fabric_command commands[2] = {
        {.operation = FABRIC_FAA, .address = gaddr_make(0, AREA), .faa.add = 1},
        {.operation = FABRIC_FAA, .address = gaddr_make(7, AREA), .faa.add = 1}, /* of another memory node */
    };
    struct fabric_list list = {.count = 2, .commands = commands}, *lists[] = {&list};
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), BANYAN_EADDRESS);
    assert_int_equal(look(endpoint, 0, &value), BANYAN_OK);
    assert_int_equal(value, 1);
    list = (struct fabric_list){.count = 1, .commands = &commands[1]};
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), BANYAN_EADDRESS);
    commands[1] = (struct fabric_command){
        .operation = FABRIC_WRITE, .length = 0, .address = gaddr_make(0, AREA), .write.data = &value};
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), BANYAN_EADDRESS);
    commands[1] = (struct fabric_command){.operation = 9, .length = 8, .address = gaddr_make(0, AREA)};
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), BANYAN_EADDRESS);
    assert_int_equal(fabric_call(endpoint, 0, request, sizeof request, &value, 8, &length, NULL),
                     BANYAN_EINVAL);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK); /* and nothing is lost */
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    daemon_kill(&daemon);
}

/* ---- daemons that die, come back, hang ---- */

/* One that did not run for longer than a lease finds heartbeats unread, and does not fence for that. */
static void stopped_daemon_forgives(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.tcp, 1);
    options.timeout_ms = 20000;
    options.lease_ms = 2000; /* longer than this process is kept from running, which is not forgiven */
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK);
    daemon_signal(&daemon, SIGSTOP);
    task_sleep(4500 * MS); /* two leases: the fault itself */
    daemon_signal(&daemon, SIGCONT);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK);
    assert_int_equal(fabric_incarnation(fabric), 1);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    daemon_kill(&daemon);
}

static void dies_and_comes_back_empty(struct daemon_options second, const char *says)
{
    struct daemon daemon, again;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.tcp, 1);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK);
    daemon_kill(&daemon);
    wait_gone(endpoint, 0);
    wait_trouble(fabric, 0, "Connection refused");
    second.port = daemon.tcp.port;
    daemon_start(&again, &second);
    wait_trouble(fabric, 0, says);
    assert_int_equal(add(endpoint, 0, 0, NULL), BANYAN_ENET);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_EFENCED);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    daemon_kill(&again);
}

static void restarted_daemons_are_refused(void **state)
{
    struct daemon_options second = daemon_options(0);
    dies_and_comes_back_empty(second, "was restarted and lost its contents; run `banyan compute --format`");
    second.unformatted = true;
    dies_and_comes_back_empty(second, "is empty: it was never formatted, or was restarted");
    second = daemon_options(1);
    dies_and_comes_back_empty(second, "another cluster");
}

static void hangs(const struct net_address *address, const struct daemon *daemon, bool copy)
{
    struct fabric_remote_options options = options_for(address, 1);
    options.timeout_ms = 2000; /* which a memory node that runs never needs */
    options.lease_ms = 60000;
    options.copy = copy;
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK);
    daemon_signal(daemon, SIGSTOP);
    uint64_t begin = task_now();
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_ENET);
    uint64_t took = task_now() - begin;
    assert_in_range(took, 1800 * MS, 50000 * MS); /* not at once, and not when something else gave up */
    assert_int_equal(add(endpoint, 0, 0, NULL), BANYAN_ENET); /* at once */
    daemon_signal(daemon, SIGCONT);
    wait_there(endpoint, 0);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_EFENCED);
    assert_int_equal(add(endpoint, 0, fabric_incarnation(fabric), NULL), BANYAN_OK);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
}

static void stopped_daemon_times_out(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    hangs(&daemon.tcp, &daemon, false);
    hangs(&daemon.local, &daemon, true);
    daemon_kill(&daemon);
}

static int ask_status(struct fabric_endpoint *endpoint)
{
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply reply;
    size_t length;
    int status = fabric_call(endpoint, 0, &ask, sizeof ask, &reply, sizeof reply, &length, NULL);
    if (!status)
        assert_int_equal(length, sizeof reply);
    return status;
}

/* Calls are not sent without a connection, which is said; and they are there again with it. */
static void calls_want_a_connection(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct proxy *proxy = proxy_start(&daemon.tcp);
    struct net_address address = proxy_address(proxy);
    struct fabric_remote_options options = options_for(&address, 1);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    assert_int_equal(ask_status(endpoint), BANYAN_OK);
    proxy_cut(proxy);
    wait_gone(endpoint, 0);
    assert_int_equal(ask_status(endpoint), BANYAN_EFENCED);
    proxy_open(proxy);
    wait_there(endpoint, 0);
    assert_int_equal(ask_status(endpoint), BANYAN_OK);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    proxy_stop(proxy);
    daemon_kill(&daemon);
}

static void ask_stopped(void *argument)
{
    struct storm *storm = argument;
    storm->begun[0] = (uint64_t)-ask_status(storm->endpoint);
}

/* A mapped pool needs its daemon for calls alone; when that hangs they give up, and nothing is lost. */
static void mapped_daemon_hangs(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.local, 1);
    options.timeout_ms = 2000;
    options.lease_ms = 60000; /* longer than it will hang */
    struct storm storm = {.fabric = open_fabric(&options)};
    struct fabric_endpoint *endpoint = open_endpoint(storm.fabric);
    storm.endpoint = open_endpoint(storm.fabric);
    assert_int_equal(ask_status(endpoint), BANYAN_OK);
    daemon_signal(&daemon, SIGSTOP);
    assert_int_equal(ask_status(endpoint), BANYAN_ENET);
    assert_int_equal(ask_status(endpoint), BANYAN_EFENCED); /* not sent while that one is not answered */
    struct worker *worker = worker_create();
    assert_non_null(worker);
    assert_int_equal(worker_spawn(worker, ask_stopped, &storm), 0);
    worker_run(worker);
    assert_int_equal(storm.begun[0], -BANYAN_ENET);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK);
    wait_trouble(storm.fabric, 0, "does not answer");
    daemon_signal(&daemon, SIGCONT);
    wait_trouble(storm.fabric, 0, "");
    uint64_t deadline = task_now() + LIMIT;
    while (ask_status(endpoint) || ask_status(storm.endpoint))
        assert_true(task_now() < deadline);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK);
    assert_int_equal(fabric_incarnation(storm.fabric), 1);
    daemon_signal(&daemon, SIGSTOP); /* and an answer that never comes */
    assert_int_equal(ask_status(endpoint), BANYAN_ENET);
    worker_destroy(worker);
    fabric_endpoint_close(endpoint);
    fabric_endpoint_close(storm.endpoint);
    daemon_signal(&daemon, SIGCONT);
    daemon_kill(&daemon);
    fabric_close(storm.fabric);
}

/* Nothing is under way, and yet the loss is noticed: by the heartbeats. */
static void silence_is_noticed(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.tcp, 1);
    options.timeout_ms = 2000;
    options.lease_ms = 2000; /* of which a quarter is between two heartbeats */
    struct fabric *fabric = open_fabric(&options);
    daemon_signal(&daemon, SIGSTOP);
    wait_trouble(fabric, 0, "does not answer");
    daemon_signal(&daemon, SIGCONT);
    wait_trouble(fabric, 0, "");
    assert_true(fabric_incarnation(fabric) > 1);
    fabric_close(fabric);
    daemon_kill(&daemon);
}

/* A mapped pool whose daemon is gone: its memory is still mapped, and not touched any more. */
static void mapped_daemon_dies(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.local, 1);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    assert_string_equal(fabric_capabilities(fabric)->backend, "local");
    assert_true(fabric_capabilities(fabric)->direct);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK);
    daemon_kill(&daemon);
    wait_gone(endpoint, 0);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_EFENCED);
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply reply;
    size_t length;
    assert_int_equal(fabric_call(endpoint, 0, &ask, sizeof ask, &reply, sizeof reply, &length, NULL),
                     BANYAN_EFENCED); /* not sent */
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
}

/* ---- a process that is killed while it writes to a mapped pool (G5) ---- */

#define BLOCK_WORDS 512
#define KILLS       40

/* Fills the block with one number after the other, a list each, until it is killed. */
static void write_for_ever(const struct net_address *address, int tell)
{
    struct fabric_remote_options options = options_for(address, 1);
    uint64_t block[BLOCK_WORDS], number;
    struct fabric *fabric = NULL;
    struct fabric_endpoint *endpoint = NULL;
    if (!fabric_remote_open(&fabric, &options, NULL))
        endpoint = fabric_endpoint_open(fabric, NULL);
    if (endpoint == NULL)
        _exit(1);
    net_random(&number, sizeof number);
    for (bool told = false;; number++) {
        for (unsigned i = 0; i < BLOCK_WORDS; i++)
            block[i] = number;
        struct fabric_command command = {.operation = FABRIC_WRITE,
                                         .length = sizeof block,
                                         .address = gaddr_make(0, AREA + 8),
                                         .write.data = block};
        struct fabric_list list = {.count = 1, .commands = &command}, *lists[] = {&list};
        if (fabric_execute(endpoint, lists, 1, NULL))
            _exit(1);
        if (!told && write(tell, "", 1) != 1)
            _exit(1);
        told = true;
    }
}

static void kill_one(const struct net_address *address, uint64_t moment_ns)
{
    int told[2], status;
    char byte;
    assert_int_equal(pipe(told), 0);
    pid_t child = fork(); /* no other thread is there now */
    assert_true(child >= 0);
    if (child == 0)
        write_for_ever(address, told[1]);
    close(told[1]);
    assert_int_equal(read(told[0], &byte, 1), 1);
    task_sleep(moment_ns);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    close(told[0]);
}

static void wait_fenced(const struct net_address *address, uint64_t count)
{
    const struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct fabric_remote_options options = options_for(address, 1);
    struct memory_status_reply reply;
    uint64_t deadline = task_now() + LIMIT;
    size_t length;
    do {
        assert_true(task_now() < deadline);
        assert_int_equal(
            fabric_remote_ask(&options, 0, &ask, sizeof ask, &reply, sizeof reply, &length, NULL), BANYAN_OK);
    } while (reply.fenced_total < count || reply.compute_nodes > 0);
}

static void killed_writers_leave_whole_writes(void **state)
{
    struct daemon daemon;
    start(&daemon, 0);
    for (unsigned round = 1; round <= KILLS; round++) {
        uint64_t block[BLOCK_WORDS] = {0};
        kill_one(&daemon.local, round * 7919 % 300 * 1000);
        wait_fenced(&daemon.local, round);
        struct fabric_remote_options options = options_for(&daemon.tcp, 1);
        struct fabric *fabric = open_fabric(&options);
        struct fabric_endpoint *endpoint = open_endpoint(fabric);
        struct fabric_command command = {.operation = FABRIC_READ,
                                         .length = sizeof block,
                                         .address = gaddr_make(0, AREA + 8),
                                         .read.buffer = block};
        struct fabric_list list = {.count = 1, .commands = &command}, *lists[] = {&list};
        assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), BANYAN_OK);
        for (unsigned i = 1; i < BLOCK_WORDS; i++)
            if (block[i] != block[0])
                fail_msg("round %u: a WRITE was cut at word %u", round, i);
        fabric_endpoint_close(endpoint);
        fabric_close(fabric);
    }
    daemon_kill(&daemon);
}

/* ---- clusters ---- */

static void format_and_open(void **state)
{
    struct daemon daemons[2];
    struct error error = {0};
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply reply;
    size_t length = 0;
    start_empty(&daemons[0], 0);
    start_empty(&daemons[1], 0);
    struct net_address nodes[2] = {daemons[0].tcp, daemons[1].tcp};
    struct net_address swapped[2] = {daemons[1].tcp, daemons[0].tcp};
    struct net_address twice[2] = {daemons[0].tcp, daemons[0].local};
    struct fabric_remote_options options = options_for(nodes, 2);
    open_fails(&options, BANYAN_EINVAL, "is empty: it was never formatted");
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_OK);

    options.nodes = swapped; /* any order */
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    struct fabric_remote_node_state node;
    fabric_remote_node_state(fabric, 1, &node);
    assert_int_equal(node.address.port, daemons[1].tcp.port);
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK);
    assert_int_equal(add(endpoint, 1, 1, NULL), BANYAN_OK);
    for (uint16_t i = 0; i < 2; i++) {
        assert_int_equal(
            fabric_remote_ask(&options, i, &ask, sizeof ask, &reply, sizeof reply, &length, &error),
            BANYAN_OK);
        assert_int_equal(length, sizeof reply);
        assert_int_equal(reply.node, i);
        assert_int_equal(reply.node_count, 2);
    }
    assert_int_equal(fabric_remote_ask(&options, 2, &ask, sizeof ask, &reply, sizeof reply, &length, &error),
                     BANYAN_ENOTFOUND);

    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_EBUSY);
    assert_non_null(strstr(error.text, "is connected"));
    assert_int_equal(add(endpoint, 0, 1, NULL), BANYAN_OK); /* and nothing has happened to it */
    struct fabric *other = open_fabric(&options);
    assert_int_not_equal(fabric_capabilities(other)->compute_id, fabric_capabilities(fabric)->compute_id);
    fabric_close(other);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);

    options.count = 1;
    open_fails(&options, BANYAN_EINVAL, "one of a cluster of 2, but 1 were named");
    options = options_for(twice, 2);
    open_fails(&options, BANYAN_EINVAL, "are both number 0");
    daemon_kill(&daemons[1]);
    options = options_for(nodes, 2);
    open_fails(&options, BANYAN_ENET, "Connection refused");
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_ENET);
    daemon_kill(&daemons[0]);
}

/* The first memory node has our lease, and our process mapped its pool, while the second lets us wait for
 * much longer than the lease: opening fails, and no process is killed. Connection 0 asks who it is. */
static void leases_live_while_others_hang(void **state)
{
    struct daemon daemons[2];
    struct error error = {0};
    const struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply reply;
    uint64_t deadline = task_now() + LIMIT;
    size_t length;
    start_empty(&daemons[0], 0);
    start_empty(&daemons[1], 0);
    struct net_address nodes[2] = {daemons[0].local, daemons[1].tcp};
    struct fabric_remote_options options = options_for(nodes, 2);
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_OK);
    struct proxy *proxy = proxy_start(&daemons[1].tcp);
    nodes[1] = proxy_address(proxy);
    proxy_hang(proxy, 1);
    options.lease_ms = 2000; /* else this process dies where the machine keeps it from running */
    options.timeout_ms = 6000;
    open_fails(&options, BANYAN_ETIMEOUT, "does not answer in time");
    options = options_for(nodes, 1);
    do {
        assert_true(task_now() < deadline);
        assert_int_equal(
            fabric_remote_ask(&options, 0, &ask, sizeof ask, &reply, sizeof reply, &length, &error),
            BANYAN_OK);
    } while (reply.compute_nodes > 0);
    assert_int_equal(reply.fenced_total, 0);
    proxy_stop(proxy);
    daemon_kill(&daemons[0]);
    daemon_kill(&daemons[1]);
}

static int read_at(struct fabric_endpoint *endpoint, uint16_t node, uint64_t incarnation)
{
    uint64_t word;
    struct fabric_command read = {.operation = FABRIC_READ,
                                  .address = gaddr_make(node, 64),
                                  .length = sizeof word,
                                  .read.buffer = &word};
    struct fabric_list list = {.node = node, .count = 1, .commands = &read, .incarnation = incarnation},
                       *one = &list;
    return fabric_execute(endpoint, &one, 1, NULL);
}

/* The oldest list of memory nodes by which a compute node goes, as memory node 1 tells. */
static uint64_t list_heard(const struct net_address *address)
{
    const struct memory_status_request request = {.kind = MEMORY_STATUS};
    const struct fabric_remote_options options = options_for(address, 1);
    struct memory_status_reply reply = {0};
    struct error error = {0};
    size_t length = 0;
    assert_int_equal(
        fabric_remote_ask(&options, 1, &request, sizeof request, &reply, sizeof reply, &length, &error), 0);
    return reply.list_heard;
}

/* Compute nodes use a memory node that joins, whichever way they hear of it, and what began before they were
 * connected to it does not reach it: they may have been fenced at the home node since. */
static void a_memory_node_joins(void **state)
{
    struct daemon daemons[2];
    struct error error = {0};
    struct wire_cluster_list list;
    start_empty(&daemons[0], 0);
    start_empty(&daemons[1], 0);
    struct fabric_remote_options options = options_for(&daemons[0].tcp, 1);
    options.copy = true;
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_OK);
    struct fabric *fabric = open_fabric(&options);
    struct fabric_endpoint *endpoint = open_endpoint(fabric);
    const uint64_t before = fabric_incarnation(fabric);
    assert_int_equal(fabric_memory_nodes(fabric), 1);
    assert_int_equal(read_at(endpoint, 1, 0), BANYAN_EINVAL);
    assert_int_equal(read_at(endpoint, UINT16_MAX, 0), BANYAN_EINVAL);

    if (fabric_remote_join(&options, &daemons[1].tcp, &list, &error))
        fail_msg("%s", error.text);
    assert_int_equal(list.count, 2);
    assert_int_equal(read_at(endpoint, 1, 0), BANYAN_OK); /* it has not been told: it asks */
    assert_int_equal(fabric_memory_nodes(fabric), 2);
    assert_int_equal(fabric_membership(fabric, 1), FABRIC_MEMBER);
    assert_true(fabric_incarnation(fabric) > before);
    assert_int_equal(read_at(endpoint, 1, before), BANYAN_EFENCED);
    assert_int_equal(read_at(endpoint, 0, before), BANYAN_OK);
    assert_int_equal(read_at(endpoint, 1, fabric_incarnation(fabric)), BANYAN_OK);
    struct fabric_endpoint *later = open_endpoint(fabric);
    assert_int_equal(read_at(later, 1, fabric_incarnation(fabric)), BANYAN_OK);
    fabric_endpoint_close(later);

    /* Without a question, by the heartbeats. */
    assert_int_equal(fabric_remote_set_state(&options, 1, WIRE_CLUSTER_REMOVED, &list, &error),
                     BANYAN_EINVAL);
    assert_int_equal(fabric_remote_set_state(&options, 0, WIRE_CLUSTER_LEAVING, &list, &error),
                     BANYAN_EINVAL);
    assert_int_equal(fabric_remote_set_state(&options, 1, WIRE_CLUSTER_LEAVING, &list, &error), BANYAN_OK);
    const uint64_t deadline = task_now() + UINT64_C(10000000000);
    while (list_heard(&daemons[1].tcp) < list.generation)
        assert_true(task_now() < deadline);
    assert_int_equal(fabric_membership(fabric, 1), FABRIC_LEAVING); /* it has said so */
    assert_int_equal(read_at(endpoint, 1, 0), BANYAN_OK);
    assert_int_equal(fabric_remote_set_state(&options, 1, WIRE_CLUSTER_REMOVED, &list, &error), BANYAN_OK);
    assert_true(fabric_refresh(fabric));
    assert_int_equal(fabric_membership(fabric, 1), FABRIC_NO_MEMBER);
    assert_int_equal(read_at(endpoint, 1, 0), BANYAN_EINVAL);
    assert_int_equal(read_at(endpoint, 0, 0), BANYAN_OK);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);

    /* Anew: the number is of none, and the one that left is passed by, whether it is there or not. */
    struct net_address both[2] = {daemons[1].tcp, daemons[0].tcp};
    options = options_for(both, 2);
    for (unsigned i = 0; i < 2; i++) {
        fabric = open_fabric(&options);
        assert_int_equal(fabric_memory_nodes(fabric), 2);
        assert_int_equal(fabric_membership(fabric, 1), FABRIC_NO_MEMBER);
        fabric_close(fabric);
        daemon_kill(&daemons[1]);
    }
    daemon_kill(&daemons[0]);
    open_fails(&options, BANYAN_ENET, "memory node"); /* now nobody knows that it has left */
}

static void different_clusters(void **state)
{
    struct daemon daemons[2];
    struct error error = {0};
    start_empty(&daemons[0], 0);
    start_empty(&daemons[1], 0);
    struct net_address nodes[2] = {daemons[0].tcp, daemons[1].tcp};
    struct net_address swapped[2] = {daemons[1].tcp, daemons[0].tcp};
    struct fabric_remote_options options = options_for(nodes, 2), one = options_for(nodes, 1);
    struct fabric_remote_options other = options_for(swapped, 2);
    assert_int_equal(fabric_remote_format(&one, &error), BANYAN_OK);
    open_fails(&options, BANYAN_EINVAL, "is empty"); /* the second, not that the first is alone */
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_OK);
    assert_int_equal(fabric_remote_format(&one, &error), BANYAN_OK);
    open_fails(&options, BANYAN_EINVAL, "different clusters");
    /* Two clusters of two, each with one of them as a member: the numbers fit, the clusters do not. */
    struct daemon third;
    start_empty(&third, 0);
    struct net_address first_pair[2] = {daemons[0].tcp, third.tcp};
    options = options_for(first_pair, 2);
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_OK);
    struct net_address second_pair[2] = {third.tcp, daemons[1].tcp};
    options = options_for(second_pair, 2);
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_OK);
    open_fails(&other, BANYAN_EINVAL, "different clusters");
    daemon_kill(&third);
    daemon_kill(&daemons[0]);
    daemon_kill(&daemons[1]);
}

static void secrets(void **state)
{
    struct daemon open_daemon, daemon;
    struct daemon_options with_secret = daemon_options(0);
    with_secret.secret = "correct horse";
    daemon_start(&daemon, &with_secret);
    start(&open_daemon, 0);
    struct fabric_remote_options options = options_for(&daemon.tcp, 1);
    open_fails(&options, BANYAN_EINVAL, "asks for a secret, and none was given");
    options.secret = "wrong horse!!";
    options.secret_length = 13;
    open_fails(&options, BANYAN_EINVAL, "the shared secret is missing or not the same");
    struct error error = {0};
    assert_int_equal(fabric_remote_format(&options, &error), BANYAN_EINVAL);
    options.secret = "correct horse";
    struct fabric *fabric = open_fabric(&options);
    fabric_close(fabric);
    options.nodes = &open_daemon.tcp;
    open_fails(&options, BANYAN_EINVAL, "does not prove that it knows the secret");
    daemon_kill(&daemon);
    daemon_kill(&open_daemon);
}

/* Something that is no memory node: one that talks, and one that says nothing. */
static void strangers(void **state)
{
    struct net_address address = {.kind = NET_TCP, .host = "127.0.0.1"};
    struct error error = {0};
    int listener, fd = -1;
    assert_int_equal(net_listen(&address, 0, &listener, &error), BANYAN_OK);
    struct fabric_remote_options options = options_for(&address, 1);
    options.timeout_ms = 1000;
    open_fails(&options, BANYAN_ETIMEOUT, "does not answer in time");
    assert_int_equal(net_accept(listener, &fd, NULL, &error), BANYAN_OK); /* the connection that gave up */
    close(fd);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        static const char greeting[] =
            "220 mail.example.com ESMTP, pleased to meet you, whoever you may be\r\n";
        do
            net_accept(listener, &fd, NULL, NULL);
        while (fd < 0);
        ssize_t written = write(fd, greeting, sizeof greeting);
        _exit(written < 0);
    }
    options.timeout_ms = 20000;
    open_fails(&options, BANYAN_EVERSION, "not a Banyan memory node");
    kill(child, SIGKILL);
    options.count = 0;
    open_fails(&options, BANYAN_EINVAL, "no memory node was named");
    close(listener);
}

int main(int count, char **arguments)
{
    daemon_main(count, arguments);
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lost_and_found),
        cmocka_unit_test(one_connection_of_many),
        cmocka_unit_test(one_that_hangs_delays_no_other),
        cmocka_unit_test(locks_are_given_up),
        cmocka_unit_test(mapped_locks_need_no_connection),
        cmocka_unit_test(fibers_in_a_storm),
        cmocka_unit_test(large_lists_wait_for_room),
        cmocka_unit_test(one_thread_waits_for_room),
        cmocka_unit_test(fibers_wait_for_room_until_there_is),
        cmocka_unit_test(fibers_wait_for_room_until_it_is_lost),
        cmocka_unit_test(impossible_commands),
        cmocka_unit_test(stopped_daemon_forgives),
        cmocka_unit_test(restarted_daemons_are_refused),
        cmocka_unit_test(stopped_daemon_times_out),
        cmocka_unit_test(silence_is_noticed),
        cmocka_unit_test(mapped_daemon_dies),
        cmocka_unit_test(calls_want_a_connection),
        cmocka_unit_test(mapped_daemon_hangs),
        cmocka_unit_test(killed_writers_leave_whole_writes),
        cmocka_unit_test(format_and_open),
        cmocka_unit_test(leases_live_while_others_hang),
        cmocka_unit_test(different_clusters),
        cmocka_unit_test(a_memory_node_joins),
        cmocka_unit_test(secrets),
        cmocka_unit_test(strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
