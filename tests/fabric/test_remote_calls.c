/* test_remote_calls.c - calls between compute nodes (peers.h) over connections of their own: by fibers and by
 * plain threads, over TCP, TLS and Unix sockets; peers that are gone, slow, silent, liars or strangers. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "base/worker.h"
#include "daemon.h"
#include "fabric/peer_stream.h"
#include "fabric/remote.h"
#include "liar.h"
#include "tests/net/certificates.h"

#define POOL  (UINT64_C(4) << 20)
#define MS    UINT64_C(1000000)
#define LIMIT (UINT64_C(20000) * MS) /* much more than anything takes */

#define WAIT(condition)                                                                                      \
    do {                                                                                                     \
        for (uint64_t deadline_ = task_now() + LIMIT; !(condition); task_sleep(MS / 5))                      \
            if (task_now() > deadline_)                                                                      \
                fail_msg("never: %s", #condition);                                                           \
    } while (0)

struct world {
    const char *secret;
    struct net_tls *tls, *peer_tls;
    const char *certificate, *key; /* the daemon's */
    bool local;                    /* memory node 0 by its Unix socket */
    struct daemon daemon;
};

static void world_start(struct world *world)
{
    const struct daemon_options options = {.pool_bytes = POOL,
                                           .chunk_bytes = 65536,
                                           .lock_bytes = 4096,
                                           .lease_ms_min = 50,
                                           .secret = world->secret,
                                           .certificate = world->certificate,
                                           .key = world->key};
    daemon_start(&world->daemon, &options);
}

static struct fabric_remote_options options_for(const struct world *world, bool peers)
{
    return (struct fabric_remote_options){.nodes = world->local ? &world->daemon.local : &world->daemon.tcp,
                                          .count = 1,
                                          .copy = true, /* fencing must not kill the test */
                                          .lease_ms = 20000,
                                          .timeout_ms = 20000,
                                          .name = "test",
                                          .secret = world->secret,
                                          .secret_length = world->secret ? strlen(world->secret) : 0,
                                          .tls = world->tls,
                                          .peer_tls = world->peer_tls,
                                          .peers = peers};
}

static struct fabric *open_with(const struct fabric_remote_options *options)
{
    struct error error = {0};
    struct fabric *fabric = NULL;
    if (fabric_remote_open(&fabric, options, &error))
        fail_msg("open: %s", error.text);
    return fabric;
}

static struct fabric *open_fabric(const struct world *world, bool peers)
{
    const struct fabric_remote_options options = options_for(world, peers);
    return open_with(&options);
}

static struct fabric_endpoint *open_endpoint(struct fabric *fabric)
{
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    assert_non_null(endpoint);
    return endpoint;
}

/* ---- a compute node that answers ---- */

#define SERVER_FIBERS 4

/* What a request asks for: its bytes follow. */
struct order {
    int32_t status;
    uint32_t reply; /* bytes of the request, over and over, that come back */
    uint64_t number;
    uint32_t wait; /* 1: not before the test says so */
    uint32_t reserved;
};

struct server {
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
    struct fabric_process self;
    struct worker *worker; /* NULL: a plain thread */
    pthread_t thread;
    uint32_t served, released, held, ended; /* atomic */
    struct fabric_process from;             /* of the last request */
};

static void serve_one(struct server *server, struct fabric_peer_request *request)
{
    uint8_t *reply = malloc(FABRIC_PEER_BYTES_MAX);
    struct order order = {.status = BANYAN_EINVAL};
    if (request->length >= sizeof order)
        memcpy(&order, request->bytes, sizeof order);
    size_t length = order.reply < FABRIC_PEER_BYTES_MAX ? order.reply : FABRIC_PEER_BYTES_MAX;
    for (size_t i = 0; i < length; i++)
        reply[i] = ((const uint8_t *)request->bytes)[i % request->length];
    server->from = request->from;
    if (order.wait == 1) {
        atomic_add_relaxed(&server->held, 1u);
        while (!atomic_load_acquire(&server->released))
            task_sleep(MS);
    }
    fabric_peer_reply(server->endpoint, request, order.status, reply, length);
    free(reply);
    __atomic_add_fetch(&server->served, 1, __ATOMIC_RELEASE);
}

static void serve(void *argument)
{
    struct server *server = argument;
    struct fabric_peer_request *request;
    int status;
    while (!(status = fabric_peer_receive(server->endpoint, &request)))
        serve_one(server, request);
    assert_int_equal(status, BANYAN_EABORT);
    assert_int_equal(fabric_peer_receive(server->endpoint, &request), BANYAN_EABORT);
    __atomic_add_fetch(&server->ended, 1, __ATOMIC_RELEASE);
}

static void *server_main(void *argument)
{
    struct server *server = argument;
    if (server->worker != NULL)
        worker_run(server->worker);
    else
        serve(server);
    return NULL;
}

static void server_start(struct server *server, struct fabric *fabric, bool fibers)
{
    *server =
        (struct server){.fabric = fabric, .endpoint = open_endpoint(fabric), .self = fabric_self(fabric)};
    if (fibers) {
        server->worker = worker_create();
        assert_non_null(server->worker);
        for (unsigned i = 0; i < SERVER_FIBERS; i++)
            assert_int_equal(worker_spawn(server->worker, serve, server), 0);
    }
    assert_int_equal(pthread_create(&server->thread, NULL, server_main, server), 0);
}

static void server_end(struct server *server)
{
    fabric_peer_stop(server->fabric);
    pthread_join(server->thread, NULL);
    assert_int_equal(server->ended, server->worker != NULL ? SERVER_FIBERS : 1);
    if (server->worker != NULL)
        worker_destroy(server->worker);
    fabric_endpoint_close(server->endpoint);
}

/* ---- callers ---- */

static int call_with(struct fabric_endpoint *endpoint, struct fabric_process peer, const struct order *order,
                     size_t length, uint8_t *reply, size_t capacity, size_t *reply_length,
                     struct fabric_cost *cost)
{
    uint8_t *request = malloc(length);
    for (size_t i = 0; i < length; i++)
        request[i] = (uint8_t)(order->number * 31 + i * 7);
    memcpy(request, order, sizeof *order);
    int status = fabric_peer_call(endpoint, peer, request, length, reply, capacity, reply_length, cost);
    if (*reply_length > 0 && *reply_length <= capacity)
        for (size_t i = 0; i < *reply_length; i++)
            if (reply[i] != request[i % length])
                status = -1000;
    free(request);
    return status;
}

static int call_once(struct fabric_endpoint *endpoint, struct fabric_process peer)
{
    const struct order order = {.reply = 64};
    uint8_t reply[64];
    size_t length;
    return call_with(endpoint, peer, &order, 100, reply, sizeof reply, &length, NULL);
}

struct caller {
    struct fabric_endpoint *endpoint;
    struct fabric_process peer;
    unsigned number, rounds;
    unsigned wrong;
};

/* Requests and replies of all lengths. */
static void call_often(void *argument)
{
    struct caller *caller = argument;
    uint8_t *reply = malloc(FABRIC_PEER_BYTES_MAX);
    struct fabric_cost cost = {0};
    for (unsigned i = 0; i < caller->rounds; i++) {
        uint32_t seed = caller->number * 977 + i * 131;
        size_t request = i % 16 == 15 ? FABRIC_PEER_BYTES_MAX - seed % 3 : sizeof(struct order) + seed % 300;
        const struct order order = {.status = i % 5 == 4 ? BANYAN_ENOTFOUND : 0,
                                    .reply = i % 16 == 7 ? FABRIC_PEER_BYTES_MAX : seed % 200,
                                    .number = seed};
        size_t length = 0;
        int status = call_with(caller->endpoint, caller->peer, &order, request, reply, FABRIC_PEER_BYTES_MAX,
                               &length, &cost);
        caller->wrong += status != order.status || length != order.reply;
    }
    caller->wrong +=
        cost.peer_calls != caller->rounds || cost.round_trips != caller->rounds || cost.rpcs != 0;
    free(reply);
}

static void run_fibers(struct caller *callers, unsigned count, void (*function)(void *))
{
    struct worker *worker = worker_create();
    assert_non_null(worker);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(worker_spawn(worker, function, &callers[i]), 0);
    worker_run(worker);
    worker_destroy(worker);
}

#define CALLERS 16u
static void call_and_answer(struct world *world, bool caller_fibers, bool server_fibers)
{
    world_start(world);
    struct fabric *one = open_fabric(world, false), *two = open_fabric(world, true);
    struct fabric_endpoint *endpoint = open_endpoint(one);
    struct server server;
    struct caller callers[CALLERS];
    server_start(&server, two, server_fibers);
    unsigned count = caller_fibers ? CALLERS : 1;
    for (unsigned i = 0; i < count; i++)
        callers[i] = (struct caller){.endpoint = endpoint, .peer = server.self, .number = i, .rounds = 100};
    if (caller_fibers)
        run_fibers(callers, count, call_often);
    else
        call_often(&callers[0]);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(callers[i].wrong, 0);
    WAIT(atomic_load_acquire(&server.served) == count * 100);
    assert_true(fabric_process_equal(server.from, fabric_self(one)));
    fabric_endpoint_close(endpoint);
    server_end(&server);
    fabric_close(one);
    fabric_close(two);
    daemon_kill(&world->daemon);
}

static void over_tcp(void **state)
{
    call_and_answer(&(struct world){.secret = "a shared secret"}, true, true);
    call_and_answer(&(struct world){0}, false, false);
    call_and_answer(&(struct world){0}, true, false);
}

static void over_unix(void **state)
{
    call_and_answer(&(struct world){.local = true}, true, true);
    call_and_answer(&(struct world){.local = true}, false, true);
}

static void over_tls(void **state)
{
    char directory[] = "/tmp/banyan-test-tls-XXXXXX", authority_file[64], certificate_file[64], key_file[64];
    struct certificate authority, server;
    struct error error = {0};
    assert_non_null(mkdtemp(directory));
    snprintf(authority_file, sizeof authority_file, "%s/authority", directory);
    snprintf(certificate_file, sizeof certificate_file, "%s/certificate", directory);
    snprintf(key_file, sizeof key_file, "%s/key", directory);
    assert_true(certificate_make(&authority, NULL, "test authority", NULL, -60, 3600));
    assert_true(certificate_make(&server, &authority, "memory", "IP:127.0.0.1", -60, 3600));
    assert_true(certificate_write(&authority, authority_file, NULL));
    assert_true(certificate_write(&server, certificate_file, key_file));
    const struct net_tls_options client_options = {.authority_file = authority_file};
    const struct net_tls_options server_options = {.certificate_file = certificate_file,
                                                   .key_file = key_file};
    struct world world = {.certificate = certificate_file, .key = key_file, .secret = "a shared secret"};
    assert_int_equal(net_tls_create(&world.tls, false, &client_options, &error), 0);
    assert_int_equal(net_tls_create(&world.peer_tls, true, &server_options, &error), 0);
    call_and_answer(&world, true, true);
    call_and_answer(&world, false, false);
    /* Where all else is encrypted, nobody answers in the clear. */
    world_start(&world);
    struct fabric_remote_options bare = options_for(&world, true);
    struct fabric *fabric;
    bare.peer_tls = NULL;
    assert_int_equal(fabric_remote_open(&fabric, &bare, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "certificate"));
    daemon_kill(&world.daemon);
    net_tls_destroy(world.tls);
    net_tls_destroy(world.peer_tls);
    certificate_free(&server);
    certificate_free(&authority);
    unlink(authority_file);
    unlink(certificate_file);
    unlink(key_file);
    rmdir(directory);
}

/* ---- no way ---- */

static void nobody_there(void **state)
{
    struct world world = {0};
    world_start(&world);
    struct fabric *one = open_fabric(&world, true), *two = open_fabric(&world, false);
    struct fabric_endpoint *endpoint = open_endpoint(one), *mute = open_endpoint(two);
    struct fabric_process self = fabric_self(one), other = fabric_self(two), nobody = other;
    struct fabric_peer_request *request;
    uint8_t bytes[8] = {0};
    size_t length;
    char text[256];
    nobody.instance ^= 1;
    assert_int_equal(call_once(endpoint, other), BANYAN_EFENCED); /* it answers no peers */
    fabric_peer_describe(one, other, text, sizeof text);
    assert_non_null(strstr(text, "does not know"));
    assert_int_equal(call_once(endpoint, nobody), BANYAN_EFENCED);
    assert_int_equal(call_once(endpoint, self), BANYAN_EINVAL);
    assert_int_equal(fabric_peer_call(endpoint, other, bytes, 0, NULL, 0, &length, NULL), BANYAN_EINVAL);
    assert_int_equal(fabric_peer_receive(mute, &request), BANYAN_ENOTSUP);
    fabric_peer_describe(one, self, text, sizeof text);
    assert_non_null(strstr(text, "it answers at tcp://127.0.0.1:"));
    fabric_peer_describe(one, nobody, text, 5);
    assert_true(strlen(text) < 5);
    daemon_kill(&world.daemon); /* now it is the home node that is at fault */
    assert_int_equal(call_once(endpoint, other), BANYAN_EFENCED);
    fabric_peer_describe(one, other, text, sizeof text);
    assert_non_null(strstr(text, "memory node 0 does not say where it answers"));
    fabric_endpoint_close(endpoint);
    fabric_endpoint_close(mute);
    fabric_close(one);
    fabric_close(two);
}

static void hold_call(void *argument)
{
    struct caller *caller = argument;
    const struct order order = {.wait = 1, .reply = 8};
    uint8_t reply[8];
    size_t length;
    int status =
        call_with(caller->endpoint, caller->peer, &order, sizeof order, reply, sizeof reply, &length, NULL);
    caller->wrong = (unsigned)-status;
}

static void *held_main(void *argument)
{
    struct caller *callers = argument;
    run_fibers(callers, CALLERS, hold_call);
    return NULL;
}

/* Requests that a task has received are answered when the peer stops; the others fail as if lost. */
static void stopped(void **state)
{
    struct world world = {0};
    world_start(&world);
    struct fabric *one = open_fabric(&world, false), *two = open_fabric(&world, true);
    struct fabric_endpoint *endpoint = open_endpoint(one), *later = open_endpoint(one);
    struct server server;
    struct caller callers[CALLERS];
    pthread_t thread;
    server_start(&server, two, true);
    for (unsigned i = 0; i < CALLERS; i++)
        callers[i] = (struct caller){.endpoint = endpoint, .peer = server.self};
    assert_int_equal(pthread_create(&thread, NULL, held_main, callers), 0);
    WAIT(atomic_load_acquire(&server.held) == SERVER_FIBERS);
    fabric_peer_stop(two);
    atomic_store_release(&server.released, 1u);
    pthread_join(thread, NULL);
    unsigned good = 0, lost = 0;
    for (unsigned i = 0; i < CALLERS; i++) {
        good += callers[i].wrong == 0;
        lost += callers[i].wrong == (unsigned)-BANYAN_ENET;
    }
    assert_int_equal(good, SERVER_FIBERS);
    assert_int_equal(lost, CALLERS - SERVER_FIBERS);
    int status = call_once(later, server.self);
    assert_true(status == BANYAN_ENET || status == BANYAN_EFENCED);
    fabric_endpoint_close(endpoint);
    fabric_endpoint_close(later);
    server_end(&server);
    fabric_close(one);
    fabric_close(two);
    daemon_kill(&world.daemon);
}

static void *call_alone(void *argument)
{
    struct caller *caller = argument;
    caller->wrong = (unsigned)-call_once(caller->endpoint, caller->peer);
    return NULL;
}

/* A process that stops before any task of it has served: its callers do not wait for their time-out. */
static void never_served(void **state)
{
    struct world world = {0};
    world_start(&world);
    struct fabric *one = open_fabric(&world, false), *two = open_fabric(&world, true);
    struct caller caller = {.endpoint = open_endpoint(one), .peer = fabric_self(two)};
    pthread_t thread;
    uint64_t begin = task_now();
    char text[256] = "";
    assert_int_equal(pthread_create(&thread, NULL, call_alone, &caller), 0);
    while (strstr(text, "it answers at") == NULL) { /* it has begun to connect */
        fabric_peer_describe(one, caller.peer, text, sizeof text);
        task_sleep(MS / 5);
    }
    task_sleep(20 * MS); /* mostly, its request waits by now; if not, it finds nobody */
    fabric_peer_stop(two);
    pthread_join(thread, NULL);
    assert_true(caller.wrong == (unsigned)-BANYAN_ENET || caller.wrong == (unsigned)-BANYAN_EFENCED);
    assert_true(task_now() - begin < 20000 * MS);
    fabric_endpoint_close(caller.endpoint);
    fabric_close(one);
    fabric_close(two);
    daemon_kill(&world.daemon);
}

/* A peer that ends while it is called: what it had got is lost, and there is no way to it any more. */
static void gone(void **state)
{
    struct world world = {0};
    world_start(&world);
    struct fabric *one = open_fabric(&world, false), *two = open_fabric(&world, true);
    struct fabric_endpoint *endpoint = open_endpoint(one);
    struct server server;
    server_start(&server, two, true);
    assert_int_equal(call_once(endpoint, server.self), 0);
    server_end(&server); /* closes the endpoint that has the connection */
    int status = call_once(endpoint, server.self);
    assert_true(status == BANYAN_ENET || status == BANYAN_EFENCED);
    WAIT(call_once(endpoint, server.self) == BANYAN_EFENCED);
    fabric_close(two);
    assert_int_equal(call_once(endpoint, server.self), BANYAN_EFENCED);
    fabric_endpoint_close(endpoint);
    fabric_close(one);
    daemon_kill(&world.daemon);
}

/* Answers that come too late meet nobody. */
static void too_late(void **state)
{
    struct world world = {0};
    world_start(&world);
    struct fabric_remote_options options = options_for(&world, false);
    options.timeout_ms = 2000; /* also of the connection, which is to succeed */
    struct fabric *one = open_with(&options), *two = open_fabric(&world, true);
    struct fabric_endpoint *endpoint = open_endpoint(one);
    struct server server;
    server_start(&server, two, true);
    struct caller callers[2] = {{.endpoint = endpoint, .peer = server.self},
                                {.endpoint = endpoint, .peer = server.self}};
    run_fibers(callers, 2, hold_call);
    /* The first to give up ends the connection, on which nothing has come since. */
    for (unsigned i = 0; i < 2; i++)
        assert_true(callers[i].wrong == (unsigned)-BANYAN_ETIMEOUT ||
                    callers[i].wrong == (unsigned)-BANYAN_ENET);
    assert_true(callers[0].wrong == (unsigned)-BANYAN_ETIMEOUT ||
                callers[1].wrong == (unsigned)-BANYAN_ETIMEOUT);
    hold_call(&callers[0]); /* by a plain thread */
    assert_int_equal(callers[0].wrong, -BANYAN_ETIMEOUT);
    atomic_store_release(&server.released, 1u);
    WAIT(!call_once(endpoint, server.self));
    fabric_endpoint_close(endpoint);
    server_end(&server);
    fabric_close(one);
    fabric_close(two);
    daemon_kill(&world.daemon);
}

/* ---- by hand ---- */

/* A compute node made by hand, whose peers' address is the liar's. */
static int join_by_hand(const struct world *world, const struct net_address *liar,
                        struct fabric_process *process, uint64_t *cluster_id)
{
    struct {
        struct wire_header head;
        struct wire_greeting greeting;
    } first;
    struct {
        struct wire_header head;
        struct wire_hello hello;
    } second = {.head = {.kind = WIRE_HELLO, .length = sizeof second.hello},
                .hello = {.magic = WIRE_MAGIC,
                          .version = WIRE_VERSION,
                          .role = WIRE_CONTROL,
                          .lease_ms = 60000,
                          .instance = 4711,
                          .name = "by hand"}};
    struct {
        struct wire_header head;
        struct wire_welcome welcome;
    } third;
    char text[NET_TEXT_MAX];
    int fd;
    assert_int_equal(net_connect(&world->daemon.tcp, LIMIT, &fd, NULL), 0);
    assert_true(liar_take(fd, &first, sizeof first));
    snprintf(second.hello.peer, sizeof second.hello.peer, "%s", net_address_format(liar, text));
    if (world->secret != NULL)
        net_proof(world->secret, strlen(world->secret), "banyan client", first.greeting.nonce,
                  second.hello.nonce, second.hello.proof);
    assert_true(liar_say(fd, &second, sizeof second) && liar_take(fd, &third, sizeof third));
    assert_int_equal(third.head.kind, WIRE_WELCOME);
    *cluster_id = third.welcome.cluster_id;
    *process = (struct fabric_process){.compute_id = third.welcome.compute_id, .instance = 4711};
    return fd;
}

/* ---- strangers and liars that call ---- */

static int reach_peer(struct fabric *fabric)
{
    char text[256];
    struct net_address address;
    int fd;
    fabric_peer_describe(fabric, fabric_self(fabric), text, sizeof text);
    char *at = strstr(text, " at ");
    assert_non_null(at);
    assert_int_equal(net_address_parse(&address, at + 4, 0, NULL), 0);
    assert_int_equal(net_connect(&address, LIMIT, &fd, NULL), 0);
    return fd;
}

/* Whether the other side closes the connection, whatever else it says. */
static bool closed(int fd)
{
    uint8_t bytes[4096];
    ssize_t got;
    do {
        if (net_wait(fd, EPOLLIN, LIMIT))
            return false;
        got = recv(fd, bytes, sizeof bytes, 0);
    } while (got > 0);
    close(fd);
    return true;
}

static void say_head(int fd, uint8_t kind, uint32_t length, int32_t status)
{
    const struct wire_header head = {.kind = kind, .length = length, .status = status, .id = 1};
    assert_true(liar_say(fd, &head, sizeof head));
}

/* Says hello with this secret, to the process that the fabric is, or (wrong) to another life of it. */
static int say_hello(struct fabric *fabric, const char *secret, uint64_t cluster_id, bool wrong)
{
    int fd = reach_peer(fabric);
    struct {
        struct wire_header head;
        struct wire_greeting greeting;
    } first;
    assert_true(liar_take(fd, &first, sizeof first));
    assert_int_equal(first.greeting.magic, PEER_MAGIC);
    struct fabric_process to = fabric_self(fabric);
    struct peer_hello hello = {.magic = PEER_MAGIC,
                               .version = WIRE_VERSION,
                               .cluster_id = cluster_id,
                               .from_id = 99,
                               .from_instance = 99,
                               .to_id = to.compute_id,
                               .to_instance = to.instance ^ wrong};
    net_proof(secret, strlen(secret), "banyan peer client", first.greeting.nonce, hello.nonce, hello.proof);
    say_head(fd, PEER_HELLO, sizeof hello, 0);
    assert_true(liar_say(fd, &hello, sizeof hello));
    return fd;
}

static int refusal_of(int fd)
{
    struct wire_header head;
    assert_true(liar_take(fd, &head, sizeof head));
    assert_int_equal(head.kind, PEER_REFUSE);
    assert_true(closed(fd));
    return head.status;
}

/* Sends requests and takes no reply, until nothing more is taken. */
static void flood(int fd)
{
    struct {
        struct wire_header head;
        struct order order;
        uint8_t bytes[1000];
    } message = {.head = {.kind = PEER_REQUEST, .length = sizeof message - sizeof message.head},
                 .order = {.reply = FABRIC_PEER_BYTES_MAX}};
    for (size_t at = 0; !net_wait(fd, EPOLLOUT, 300 * MS);) {
        ssize_t sent =
            send(fd, (const char *)&message + at, sizeof message - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(sent > 0 || errno == EAGAIN);
        at = (at + (sent > 0 ? (size_t)sent : 0)) % sizeof message;
    }
}

/* One who knows the secret, and then says what makes no sense, or more than is taken. */
static void let_in(struct fabric *fabric, uint64_t cluster_id, unsigned how)
{
    struct wire_header head;
    struct peer_welcome welcome;
    int fd = say_hello(fabric, "a shared secret", cluster_id, false);
    assert_true(liar_take(fd, &head, sizeof head) && liar_take(fd, &welcome, sizeof welcome));
    assert_int_equal(head.kind, PEER_WELCOME);
    if (how == 0)
        say_head(fd, PEER_REQUEST, FABRIC_PEER_BYTES_MAX + 1, 0);
    else if (how == 1)
        say_head(fd, PEER_REPLY, 8, 0);
    else if (how == 2)
        say_head(fd, PEER_REQUEST, 0, 0);
    else if (how == 3)
        say_head(fd, PEER_REQUEST, 100, 0);
    if (how < 3 && !closed(fd))
        fail_msg("nonsense %u: the connection stays", how);
    if (how == 4)
        flood(fd);
    if (how >= 3)
        close(fd);
}

static void strangers(void **state)
{
    struct world world = {.secret = "a shared secret"};
    world_start(&world);
    struct fabric *one = open_fabric(&world, false), *two = open_fabric(&world, true);
    struct fabric_endpoint *endpoint = open_endpoint(one);
    struct server server;
    server_start(&server, two, true);
    const struct net_address nowhere = {.kind = NET_TCP, .host = "127.0.0.1", .port = 1};
    struct fabric_process by_hand;
    uint64_t cluster;
    close(join_by_hand(&world, &nowhere, &by_hand, &cluster));
    assert_int_equal(refusal_of(say_hello(two, "another secret", cluster, false)), BANYAN_EINVAL);
    assert_int_equal(refusal_of(say_hello(two, "a shared secret", cluster, true)), BANYAN_EFENCED);
    assert_int_equal(refusal_of(say_hello(two, "a shared secret", cluster ^ 1, false)), BANYAN_EFENCED);
    for (unsigned i = 0; i < 5; i++)
        let_in(two, cluster, i);
    static const struct {
        uint8_t kind;
        uint32_t length;
        int32_t status;
    } firsts[] = {
        {PEER_REQUEST, 16, 0}, {PEER_HELLO, 8, 0}, {PEER_HELLO, UINT32_MAX, 0},     {PEER_HELLO, 104, -1},
        {PEER_REPLY, 0, 0},    {0, 0, 0},          {255, FABRIC_PEER_BYTES_MAX, 0}, {PEER_GREETING, 48, 0},
    };
    for (unsigned i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
        int fd = reach_peer(two);
        say_head(fd, firsts[i].kind, firsts[i].length, firsts[i].status);
        if (!closed(fd))
            fail_msg("first message %u: the connection stays", i);
    }
    /* More than are let in at once, none of which says anything. */
    int silent[70];
    for (unsigned i = 0; i < 70; i++)
        silent[i] = reach_peer(two);
    assert_int_equal(call_once(endpoint, server.self), 0);
    for (unsigned i = 0; i < 70; i++)
        close(silent[i]);
    fabric_endpoint_close(endpoint);
    server_end(&server);
    fabric_close(one);
    fabric_close(two);
    daemon_kill(&world.daemon);
}

/* A stranger that has been let in. */
static int stand_at_the_door(struct fabric *fabric)
{
    struct {
        struct wire_header head;
        struct wire_greeting greeting;
    } first;
    int fd = reach_peer(fabric);
    assert_true(liar_take(fd, &first, sizeof first));
    return fd;
}

/* One for whom there is no room takes the place of the one that has stood there longest, wherever it is kept.
 */
static void the_oldest_stranger_goes(void **state)
{
    enum { ROOM = 64 };
    struct world world = {0};
    struct pollfd polls[ROOM + 1];
    world_start(&world);
    struct fabric *fabric = open_fabric(&world, true);
    int gone = stand_at_the_door(fabric); /* its place is taken by the youngest of those that follow */
    for (unsigned i = 0; i <= ROOM; i++) {
        if (i == ROOM - 1)
            close(gone);
        polls[i] = (struct pollfd){.fd = stand_at_the_door(fabric), .events = POLLIN};
    }
    assert_int_equal(poll(polls, ROOM, (int)(LIMIT / MS)) > 0, 1);
    assert_true(polls[0].revents & POLLIN); /* it and no other, unless all have had their time */
    for (unsigned i = 0; i <= ROOM; i++)
        close(polls[i].fd);
    fabric_close(fabric);
    daemon_kill(&world.daemon);
}

/* ---- a liar that is called ---- */

/* What the liar does when it has got that far. */
enum lie {
    LIE_MAGIC,
    LIE_VERSION,
    LIE_SECRET_WANTED,
    LIE_PROOF,
    LIE_KIND,
    LIE_REFUSES,
    LIE_CLOSES,
    LIE_LAST_OPENING = LIE_CLOSES,
    LIE_OTHER_ID, /* from here on: after a good opening and a request */
    LIE_LONG,
    LIE_STATUS,
    LIE_HALF,
    LIE_SILENT,
    LIES
};

struct lies {
    enum lie lie;
    const char *secret;
};

static void lie_opened(int fd, enum lie lie)
{
    struct wire_header head;
    uint8_t bytes[4096];
    if (!liar_take(fd, &head, sizeof head) || !liar_take(fd, bytes, head.length))
        return;
    struct wire_header reply = {.kind = PEER_REPLY, .id = head.id, .length = 8};
    if (lie == LIE_OTHER_ID)
        reply.id = head.id + 1;
    else if (lie == LIE_LONG)
        reply.length = FABRIC_PEER_BYTES_MAX + 1;
    else if (lie == LIE_STATUS)
        reply.status = 1;
    if (lie == LIE_SILENT)
        liar_take(fd, &head, 1); /* until the caller gives up */
    else if (liar_say(fd, &reply, lie == LIE_HALF ? 10 : sizeof reply) && lie != LIE_HALF)
        liar_say(fd, bytes, 8);
}

static void lie_talk(struct liar *liar, int fd)
{
    const struct lies *lies = liar->context;
    enum lie lie = lies->lie;
    struct {
        struct wire_header head;
        struct wire_greeting greeting;
    } first = {.head = {.kind = PEER_GREETING, .length = sizeof first.greeting},
               .greeting = {.magic = PEER_MAGIC + (lie == LIE_MAGIC),
                            .version = WIRE_VERSION + (lie == LIE_VERSION),
                            .secret_wanted = lies->secret != NULL || lie == LIE_SECRET_WANTED}};
    struct {
        struct wire_header head;
        struct peer_hello hello;
    } second;
    struct {
        struct wire_header head;
        struct peer_welcome welcome;
    } third = {.head = {.kind = PEER_WELCOME, .length = sizeof third.welcome}};
    if (lie == LIE_KIND)
        first.head.kind = WIRE_REPLY;
    if (!liar_say(fd, &first, sizeof first) || !liar_take(fd, &second, sizeof second) || lie == LIE_CLOSES)
        return;
    if (lie == LIE_REFUSES) {
        third.head = (struct wire_header){.kind = PEER_REFUSE, .length = 4, .status = BANYAN_EBUSY};
        if (liar_say(fd, &third, sizeof third.head))
            liar_say(fd, "no\n!", 4);
        return;
    }
    if (lies->secret != NULL)
        net_proof(lies->secret, strlen(lies->secret), "banyan peer server", second.hello.nonce,
                  first.greeting.nonce, third.welcome.proof);
    third.welcome.proof[0] ^= lie == LIE_PROOF;
    if (liar_say(fd, &third, sizeof third) && lie > LIE_LAST_OPENING)
        lie_opened(fd, lie);
}

struct lied {
    struct fabric_endpoint *endpoint;
    struct fabric_process peer;
    int status;
};

static void call_liar(void *argument)
{
    struct lied *lied = argument;
    lied->status = call_once(lied->endpoint, lied->peer);
}

static void called_liars(void **state)
{
    struct world world = {.secret = "a shared secret"};
    const struct net_address place = {.kind = NET_TCP, .host = "127.0.0.1"};
    world_start(&world);
    for (enum lie lie = 0; lie < LIES; lie++) {
        struct lies lies = {.lie = lie, .secret = lie == LIE_SECRET_WANTED ? NULL : world.secret};
        struct liar liar;
        struct lied lied;
        liar_start(&liar, &place, lie_talk, &lies);
        uint64_t cluster_id;
        int hand = join_by_hand(&world, &liar.address, &lied.peer, &cluster_id);
        struct fabric_remote_options options = options_for(&world, false);
        options.timeout_ms = lie == LIE_SILENT ? 2000 : 20000; /* also of the connection */
        struct fabric *fabric = open_with(&options);
        lied.endpoint = open_endpoint(fabric);
        for (unsigned fibers = 0; fibers < 2; fibers++) {
            if (fibers == 0) {
                call_liar(&lied);
            } else {
                struct worker *worker = worker_create();
                assert_int_equal(worker_spawn(worker, call_liar, &lied), 0);
                worker_run(worker);
                worker_destroy(worker);
            }
            /* SECRET_WANTED is none: this caller has one, and the liar proves that it has not. */
            int expected = lie <= LIE_LAST_OPENING ? BANYAN_EFENCED
                           : lie == LIE_SILENT     ? BANYAN_ETIMEOUT
                                                   : BANYAN_ENET;
            if (lied.status != expected)
                fail_msg("lie %d, fibers %u: status %d, not %d", (int)lie, fibers, lied.status, expected);
        }
        fabric_endpoint_close(lied.endpoint);
        fabric_close(fabric);
        close(hand);
        liar_stop(&liar);
    }
    daemon_kill(&world.daemon);
}

int main(int count, char **arguments)
{
    daemon_main(count, arguments);
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_tcp),     cmocka_unit_test(over_unix),
        cmocka_unit_test(over_tls),     cmocka_unit_test(nobody_there),
        cmocka_unit_test(stopped),      cmocka_unit_test(never_served),
        cmocka_unit_test(gone),         cmocka_unit_test(too_late),
        cmocka_unit_test(strangers),    cmocka_unit_test(the_oldest_stranger_goes),
        cmocka_unit_test(called_liars),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
