/* client.c - see client.h. */
#include "client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/task.h"
#include "fabric/verbs_device.h"
#include "memoryd/disk.h"

#define LOOK_NS UINT64_C(1000000)

/* ---- the daemon ---- */

static struct net_address stream_address(bool rdma)
{
    struct net_address address = {.kind = NET_TCP, .host = "127.0.0.1", .rdma = rdma};
    const char *nic = getenv("BANYAN_RDMA_ADDRESS");
    if (rdma) {
        assert_non_null(nic);
        snprintf(address.host, sizeof address.host, "%s", nic);
    }
    return address;
}

static uint16_t number = SITE_NODE; /* of the last site */

int site_open(struct site *site, const struct site_options *options)
{
    static unsigned serial;
    struct error error = {0};
    number = options->home ? 0 : SITE_NODE;
    struct memory_options pool = {.node = number,
                                  .pool_file = options->pool_file,
                                  .pool_bytes = SITE_POOL,
                                  .chunk_bytes = 64u << 10,
                                  .lock_bytes = SITE_LOCKS,
                                  .shared = options->shared,
                                  .unformatted = options->unformatted};
    *site = (struct site){0};
    char path[64];
    static const struct verbs_options nic;
    struct net_address listen[2];
    snprintf(path, sizeof path, "unix:/tmp/banyan-test-%d-%u.sock", (int)getpid(), serial++);
    listen[0] = stream_address(options->rdma);
    assert_int_equal(net_address_parse(&listen[1], path, 1, &error), BANYAN_OK);
    struct memoryd_options daemon = {.listen = listen,
                                     .listen_count = 2,
                                     .secret = options->secret,
                                     .tls = options->tls,
                                     .busy_poll = options->busy_poll,
                                     .secret_length = options->secret != NULL ? strlen(options->secret) : 0,
                                     .threads = options->threads != 0 ? options->threads : 2,
                                     .walk_threads = options->walk_threads,
                                     .lease_ms_min = options->lease_ms_min,
                                     .connections_max = options->connections_max,
                                     .engine = options->engine,
                                     .nic = options->rdma ? &nic : NULL};
    if (memoryd_locks(&daemon, &pool, &error) || memory_node_create(&site->node, &pool, &error))
        fail_msg("%s", error.text);
    if (options->disk) {
        const struct persist_disk_options disk = {.disk = options->disk, .always = options->always};
        if ((!options->unformatted &&
             memory_node_format(site->node, SITE_CLUSTER, number, (uint16_t)(number + 1), &error)) ||
            memoryd_disk_create(&site->disk, site->node, &disk, &error))
            fail_msg("%s", error.text);
    }
    daemon.disk = site->disk;
    int status = memoryd_create(&site->daemon, site->node, &daemon, &error);
    if (status == BANYAN_ENOTSUP) {
        memoryd_disk_destroy(site->disk);
        memory_node_destroy(site->node);
        return status;
    }
    if (status || memoryd_start(site->daemon, &error))
        fail_msg("%s", error.text);
    site->tcp = listen[0];
    site->tcp.port = memoryd_port(site->daemon, 0);
    site->local = listen[1];
    return BANYAN_OK;
}

void site_close(struct site *site)
{
    memoryd_stop(site->daemon);
    memoryd_join(site->daemon);
    memoryd_destroy(site->daemon);
    memoryd_disk_destroy(site->disk);
    memory_node_destroy(site->node);
}

struct memory_status_reply site_status(struct site *site)
{
    struct memory_status_reply status;
    memory_node_status(site->node, &status);
    return status;
}

static void tick(uint64_t start, const char *what)
{
    if (task_now() - start > CLIENT_LIMIT)
        fail_msg("waited too long for %s", what);
    task_sleep(LOOK_NS);
}

void site_wait_nodes(struct site *site, uint64_t nodes)
{
    uint64_t start = task_now();
    while (site_status(site).compute_nodes != nodes)
        tick(start, "the number of compute nodes");
}

void site_wait_connections(struct site *site, uint64_t connections)
{
    uint64_t start = task_now();
    while (site_status(site).connections != connections)
        tick(start, "the number of connections");
}

uint8_t *site_pool(struct site *site, uint64_t offset)
{
    return memory_node_target(site->node)->pool + offset;
}

uint64_t site_word(struct site *site, uint64_t offset)
{
    /* acquire: as a READ */
    return atomic_load_acquire((uint64_t *)(void *)site_pool(site, offset));
}

static uint16_t *lock_word(struct site *site, unsigned word)
{
    return (uint16_t *)(void *)memory_node_target(site->node)->locks + word;
}

uint64_t site_lock(struct site *site, unsigned word)
{
    return atomic_load_acquire(lock_word(site, word)); /* what was done before it was freed is seen */
}

void site_set_lock(struct site *site, unsigned word, uint16_t id)
{
    atomic_store_release(lock_word(site, word), id);
}

void site_wait_lock(struct site *site, unsigned word, uint16_t id)
{
    uint64_t start = task_now();
    while (site_lock(site, word) != id)
        tick(start, "a lock");
}

gaddr site_address(uint64_t offset)
{
    return gaddr_make(number, offset);
}

/* ---- bytes ---- */

static struct net_tls *use_tls;
static bool use_nic;

void client_use_nic(bool nic)
{
    use_nic = nic;
}

void client_use_tls(struct net_tls *tls)
{
    use_tls = tls;
}

/* As send() and recv() tell it. */
static ssize_t told(enum net_status status, size_t length)
{
    errno = status == NET_AGAIN ? EAGAIN : EPIPE;
    return status == NET_OK ? (ssize_t)length : status == NET_END ? 0 : -1;
}

static ssize_t send_some(struct client *client, const void *bytes, size_t length)
{
    size_t some = 0;
    if (client->stream == NULL)
        return send(client->fd, bytes, length, MSG_NOSIGNAL);
    enum net_status status = net_stream_write(client->stream, bytes, length, &some);
    return told(status, some);
}

static ssize_t take_some(struct client *client, void *bytes, size_t length)
{
    size_t some = 0;
    if (client->stream == NULL)
        return recv(client->fd, bytes, length, 0);
    enum net_status status = net_stream_read(client->stream, bytes, length, &some);
    return told(status, some);
}

void client_send(struct client *client, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    while (length > 0) {
        ssize_t some = send_some(client, from, length);
        if (some < 0 && errno == EAGAIN) {
            uint32_t events = client->stream != NULL ? net_stream_wants(client->stream, true) : EPOLLOUT;
            assert_int_equal(net_wait(client->fd, events, CLIENT_LIMIT), BANYAN_OK);
            continue;
        }
        if (some < 0)
            return; /* the daemon has closed: the test will see */
        from += some;
        length -= (size_t)some;
    }
}

/* At least a byte. 0: closed. */
static size_t take_what_comes(struct client *client, void *bytes, size_t length)
{
    ssize_t some;
    while ((some = take_some(client, bytes, length)) < 0 && errno == EAGAIN) {
        uint32_t events = client->stream != NULL ? net_stream_wants(client->stream, false) : EPOLLIN;
        if (net_wait(client->fd, events, CLIENT_LIMIT))
            fail_msg("the daemon says nothing");
    }
    return some > 0 ? (size_t)some : 0;
}

/* False: closed. */
static bool take_bytes(struct client *client, void *bytes, size_t length)
{
    uint8_t *to = bytes;
    while (length > 0) {
        size_t some = take_what_comes(client, to, length);
        if (some == 0)
            return false;
        to += some;
        length -= some;
    }
    return true;
}

static bool skip_bytes(struct client *client, size_t length)
{
    uint8_t away[4096];
    while (length > 0) {
        size_t some = length < sizeof away ? length : sizeof away;
        if (!take_bytes(client, away, some))
            return false;
        length -= some;
    }
    return true;
}

void client_message(struct client *client, enum wire_kind kind, uint64_t id, const void *bytes, size_t length)
{
    struct wire_header head = {.kind = (uint8_t)kind, .length = (uint32_t)length, .id = id};
    uint8_t *all = malloc(sizeof head + length);
    memcpy(all, &head, sizeof head);
    if (length > 0)
        memcpy(all + sizeof head, bytes, length);
    client_send(client, all, sizeof head + length);
    free(all);
}

struct wire_header client_take(struct client *client, void *body, size_t capacity)
{
    struct wire_header head;
    if (!take_bytes(client, &head, sizeof head))
        fail_msg("the daemon has closed%s%s", client->stream != NULL ? ": " : "",
                 client->stream != NULL ? net_stream_error(client->stream) : "");
    assert_true(wire_header_valid(&head));
    size_t some = head.length < capacity ? head.length : capacity;
    assert_true(take_bytes(client, body, some));
    assert_true(skip_bytes(client, head.length - some));
    return head;
}

bool client_try_take(struct client *client, struct wire_header *head, void *body, size_t capacity)
{
    if (!take_bytes(client, head, sizeof *head))
        return false;
    assert_true(wire_header_valid(head));
    size_t some = head->length < capacity ? head->length : capacity;
    return take_bytes(client, body, some) && skip_bytes(client, head->length - some);
}

bool client_closed(struct client *client)
{
    uint8_t away[4096];
    while (take_what_comes(client, away, sizeof away) > 0)
        ;
    return true;
}

/* ---- opening ---- */

void client_connect(struct client *client, const struct net_address *address)
{
    struct error error = {0};
    *client = (struct client){.fd = -1};
    if (net_connect(address, CLIENT_LIMIT, &client->fd, &error))
        fail_msg("%s", error.text);
    if (use_tls != NULL && address->kind == NET_TCP) {
        client->stream = net_stream_create(client->fd, use_tls, false, NULL);
        assert_non_null(client->stream);
    }
    struct wire_header head = client_take(client, &client->greeting, sizeof client->greeting);
    assert_int_equal(head.kind, WIRE_GREETING);
    assert_int_equal(head.length, sizeof client->greeting);
    assert_int_equal(client->greeting.magic, WIRE_MAGIC);
    assert_int_equal(client->greeting.version, WIRE_VERSION);
}

bool client_try_connect(struct client *client, const struct net_address *address)
{
    struct error error = {0};
    struct wire_header head;
    *client = (struct client){.fd = -1};
    if (net_connect(address, CLIENT_LIMIT, &client->fd, &error))
        fail_msg("%s", error.text);
    return client_try_take(client, &head, &client->greeting, sizeof client->greeting);
}

void client_close(struct client *client)
{
    if (client->stream != NULL)
        net_stream_destroy(client->stream);
    else if (client->fd >= 0)
        close(client->fd);
    client->stream = NULL;
    client->fd = -1;
}

struct wire_hello client_hello(const struct client *client, uint32_t role, const char *secret)
{
    struct wire_hello hello = {.magic = WIRE_MAGIC, .version = WIRE_VERSION, .role = role, .name = "test"};
    hello.nic = use_nic && (role == WIRE_CONTROL || role == WIRE_DATA);
    net_random(hello.nonce, sizeof hello.nonce);
    if (secret != NULL)
        net_proof(secret, strlen(secret), "banyan client", client->greeting.nonce, hello.nonce, hello.proof);
    return hello;
}

int client_say_hello(struct client *client, const struct wire_hello *hello, char sentence[256])
{
    char body[256 + 4] = "";
    int32_t code;
    client->hello = *hello;
    client_message(client, WIRE_HELLO, 0, hello, sizeof *hello);
    struct wire_header head = client_take(client, body, sizeof body - 1);
    if (head.kind == WIRE_WELCOME) {
        assert_int_equal(head.length, sizeof client->welcome);
        memcpy(&client->welcome, body, sizeof client->welcome);
        return BANYAN_OK;
    }
    assert_int_equal(head.kind, WIRE_REFUSE);
    assert_true(head.length > sizeof code);
    memcpy(&code, body, sizeof code);
    assert_true(code < 0);
    if (sentence != NULL)
        snprintf(sentence, 256, "%s", body + sizeof code);
    return code;
}

static void good_hello(struct client *client, const struct wire_hello *hello)
{
    char sentence[256];
    if (client_say_hello(client, hello, sentence))
        fail_msg("%s", sentence);
}

void client_control(struct client *client, const struct net_address *address, uint64_t instance,
                    uint32_t lease_ms)
{
    client_connect(client, address);
    struct wire_hello hello = client_hello(client, WIRE_CONTROL, NULL);
    hello.instance = instance;
    hello.lease_ms = lease_ms;
    good_hello(client, &hello);
    assert_int_not_equal(client->welcome.compute_id, 0);
    assert_int_equal(client->welcome.node, number);
}

void client_data(struct client *client, const struct net_address *address, const struct client *control)
{
    client_connect(client, address);
    struct wire_hello hello = client_hello(client, WIRE_DATA, NULL);
    hello.instance = control->hello.instance;
    hello.compute_id = control->welcome.compute_id;
    hello.group_key = control->welcome.group_key;
    good_hello(client, &hello);
}

void client_monitor(struct client *client, const struct net_address *address)
{
    client_connect(client, address);
    struct wire_hello hello = client_hello(client, WIRE_MONITOR, NULL);
    good_hello(client, &hello);
}

void client_goodbye(struct client *client)
{
    client_message(client, WIRE_GOODBYE, 0, NULL, 0);
    assert_true(client_closed(client));
    client_close(client);
}

bool client_try_heartbeat(struct client *client)
{
    struct wire_header head;
    client_message(client, WIRE_HEARTBEAT, 77, NULL, 0);
    if (!take_bytes(client, &head, sizeof head))
        return false;
    assert_int_equal(head.kind, WIRE_HEARTBEAT);
    assert_int_equal(head.id, 77);
    assert_int_equal(head.length, 0);
    return true;
}

void client_heartbeat(struct client *client)
{
    assert_true(client_try_heartbeat(client));
}

/* ---- lists ---- */

static void script_add(struct script *script, enum fabric_operation operation, gaddr address, uint32_t length,
                       const void *payload, size_t payload_length)
{
    struct wire_command command = {.address = address, .length = length, .operation = (uint32_t)operation};
    script->bytes = realloc(script->bytes, script->length + sizeof command + payload_length);
    assert_non_null(script->bytes);
    memcpy(script->bytes + script->length, &command, sizeof command);
    if (payload_length > 0)
        memcpy(script->bytes + script->length + sizeof command, payload, payload_length);
    script->length += sizeof command + payload_length;
    script->count++;
}

void script_read(struct script *script, gaddr address, uint32_t length)
{
    script_add(script, FABRIC_READ, address, length, NULL, 0);
}

void script_write(struct script *script, gaddr address, const void *data, uint32_t length)
{
    script_add(script, FABRIC_WRITE, address, length, data, length);
}

void script_cas(struct script *script, gaddr address, uint64_t compare, uint64_t swap, uint64_t mask)
{
    uint64_t words[3] = {compare, swap, mask};
    script_add(script, FABRIC_CAS, address, 8, words, sizeof words);
}

void script_faa(struct script *script, gaddr address, uint64_t add)
{
    script_add(script, FABRIC_FAA, address, 8, &add, sizeof add);
}

void script_send(struct script *script, struct client *client, uint64_t id)
{
    struct wire_header head = {
        .kind = WIRE_LIST, .length = (uint32_t)script->length, .count = script->count, .id = id};
    client_send(client, &head, sizeof head);
    client_send(client, script->bytes, script->length);
    free(script->bytes);
    *script = (struct script){0};
}

int client_call(struct client *client, const void *request, size_t request_length, void *reply,
                size_t capacity, size_t *length)
{
    client_message(client, WIRE_CALL, 5, request, request_length);
    struct wire_header head = client_take(client, reply, capacity);
    assert_int_equal(head.kind, WIRE_RESULT);
    assert_int_equal(head.id, 5);
    *length = head.length;
    return head.status;
}
