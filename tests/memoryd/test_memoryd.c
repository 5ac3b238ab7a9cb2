/* test_memoryd.c - the memory daemon over real sockets, with each engine: openings good and bad, lists,
 * calls, roles, format, and what happens to clients that send nonsense. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "client.h"
#include "tests/net/certificates.h"

static int engine;

#define OFFSET UINT64_C(1048576) /* somewhere in the pool */

static bool open_site(struct site *site, struct site_options options)
{
    options.engine = engine;
    client_use_tls(NULL);
    if (!site_open(site, &options)) {
        assert_string_equal(memoryd_engine(site->daemon),
                            engine == MEMORY_ENGINE_EPOLL ? "epoll" : "io_uring");
        return true;
    }
    print_message("SKIPPED: the kernel refuses io_uring\n");
    return false;
}

/* ---- lists ---- */

static void run_lists(struct site *site, const struct net_address *address)
{
    struct client control, data;
    struct script script = {0};
    uint8_t body[4096];
    uint64_t word = 40, olds[2];
    struct memory_status_reply before = site_status(site);
    client_control(&control, address, 11, 60000);
    client_data(&data, address, &control);
    assert_int_equal(data.welcome.compute_id, control.welcome.compute_id);

    atomic_copy_to(site_pool(site, OFFSET), "abcdefgh", 8);
    script_read(&script, site_address(OFFSET), 5);
    script_write(&script, site_address(OFFSET + 64), &word, 8);
    script_cas(&script, site_address(OFFSET + 64), 40, 41, UINT64_MAX);
    script_faa(&script, site_address(OFFSET + 64), 1);
    script_read(&script, site_address(OFFSET + 64), 8);
    script_send(&script, &data, 900);
    struct wire_header head = client_take(&data, body, sizeof body);
    assert_int_equal(head.kind, WIRE_REPLY);
    assert_int_equal(head.status, 0);
    assert_int_equal(head.count, 5);
    assert_int_equal(head.id, 900);
    assert_int_equal(head.length, 5 + 8 + 8 + 8);
    assert_memory_equal(body, "abcde", 5);
    memcpy(olds, body + 5, 16);
    memcpy(&word, body + 21, 8);
    assert_int_equal(olds[0], 40);
    assert_int_equal(olds[1], 41);
    assert_int_equal(word, 42);
    struct memory_status_reply status = site_status(site);
    assert_int_equal(status.lists_total - before.lists_total, 1);
    assert_int_equal(status.commands_total - before.commands_total, 5);
    assert_int_equal(status.bytes_read_total - before.bytes_read_total, 13);
    assert_int_equal(status.bytes_written_total - before.bytes_written_total, 8);
    client_goodbye(&data);
    client_goodbye(&control);
    site_wait_nodes(site, 0);
    assert_int_equal(site_status(site).fenced_total, 0);
}

static void test_lists(void **state)
{
    struct site site;
    if (!open_site(&site, (struct site_options){0}))
        return;
    run_lists(&site, &site.tcp);
    site_close(&site);
    open_site(&site, (struct site_options){0});
    run_lists(&site, &site.local);
    site_close(&site);
}

/* ---- lists that are not good ---- */

/* A good client with a data connection. */
struct pair {
    struct client control, data;
};

static void pair_open(struct pair *pair, struct site *site)
{
    client_control(&pair->control, &site->tcp, 21, 60000); /* more than any test takes */
    client_data(&pair->data, &site->tcp, &pair->control);
}

static void pair_close(struct pair *pair)
{
    client_goodbye(&pair->data);
    client_goodbye(&pair->control);
}

/* `bad` is one command. A WRITE stands before it, and another one, which must not happen, behind it. */
static void refuse_one(struct pair *pair, struct site *site, struct script *bad)
{
    static uint64_t round;
    uint8_t body[64];
    uint64_t before = ++round, after = 666, now;
    struct script script = {0};
    script_write(&script, site_address(OFFSET), &before, 8);
    script.bytes = realloc(script.bytes, script.length + bad->length);
    memcpy(script.bytes + script.length, bad->bytes, bad->length);
    script.length += bad->length;
    script.count++;
    script_write(&script, site_address(OFFSET + 8), &after, 8);
    script_send(&script, &pair->data, round);
    free(bad->bytes);
    *bad = (struct script){0};

    struct wire_header head = client_take(&pair->data, body, sizeof body);
    assert_int_equal(head.kind, WIRE_REPLY);
    assert_int_equal(head.id, round);
    assert_int_equal(head.status, BANYAN_EADDRESS);
    assert_int_equal(head.count, 1);
    assert_int_equal(head.length, 0);
    now = site_word(site, OFFSET);
    assert_int_equal(now, before);
    now = site_word(site, OFFSET + 8);
    assert_int_equal(now, 0);
}

static void test_bad_addresses(void **state)
{
    struct site site;
    struct pair pair;
    struct script bad = {0};
    uint8_t *large = calloc(1, FABRIC_LENGTH_MAX);
    uint8_t body[8];
    if (!open_site(&site, (struct site_options){0})) {
        free(large);
        return;
    }
    pair_open(&pair, &site);
    script_read(&bad, site_address(SITE_POOL), 8);
    refuse_one(&pair, &site, &bad);
    script_read(&bad, site_address(SITE_POOL - 4), 5);
    refuse_one(&pair, &site, &bad);
    script_read(&bad, site_address((UINT64_C(1) << 47) + SITE_LOCKS), 1);
    refuse_one(&pair, &site, &bad);
    script_read(&bad, gaddr_make(SITE_NODE + 1, OFFSET), 8);
    refuse_one(&pair, &site, &bad);
    script_write(&bad, gaddr_make(0, OFFSET), large, FABRIC_LENGTH_MAX);
    refuse_one(&pair, &site, &bad);
    script_write(&bad, site_address(SITE_POOL - 8), large, FABRIC_LENGTH_MAX);
    refuse_one(&pair, &site, &bad);
    script_read(&bad, site_address(OFFSET), 0);
    refuse_one(&pair, &site, &bad);
    script_read(&bad, site_address(OFFSET), FABRIC_LENGTH_MAX + 1);
    refuse_one(&pair, &site, &bad);
    script_read(&bad, site_address(OFFSET), UINT32_MAX);
    refuse_one(&pair, &site, &bad);
    script_cas(&bad, site_address(OFFSET + 4), 0, 1, UINT64_MAX);
    refuse_one(&pair, &site, &bad);
    script_faa(&bad, site_address(SITE_POOL), 1);
    refuse_one(&pair, &site, &bad);
    script_read(&bad, site_address(OFFSET), 8);
    ((struct wire_command *)(void *)bad.bytes)->operation = 9;
    refuse_one(&pair, &site, &bad);

    /* more than a list may hold: four times 1 MiB, and one byte */
    for (unsigned i = 0; i < 4; i++)
        script_read(&bad, site_address(0), FABRIC_LENGTH_MAX);
    script_read(&bad, site_address(0), 1);
    script_send(&bad, &pair.data, 1);
    struct wire_header head = client_take(&pair.data, body, sizeof body);
    assert_int_equal(head.status, BANYAN_EADDRESS);
    assert_int_equal(head.count, 4);
    assert_int_equal(head.length, 4 * FABRIC_LENGTH_MAX);
    pair_close(&pair);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_status(&site).fenced_total, 0);
    site_close(&site);
    free(large);
}

/* A message that contradicts itself ends the connection, and its compute node is fenced. */
static void break_one(struct site *site, const void *bytes, size_t length, uint64_t breaks)
{
    struct pair pair;
    pair_open(&pair, site);
    client_send(&pair.data, bytes, length);
    assert_true(client_closed(&pair.data));
    assert_true(client_closed(&pair.control));
    site_wait_nodes(site, 0);
    assert_int_equal(site_status(site).fenced_total, breaks);
    client_close(&pair.data);
    client_close(&pair.control);
}

static void test_malformed(void **state)
{
    struct site site;
    if (!open_site(&site, (struct site_options){0}))
        return;
    const struct wire_header heads[] = {
        {.kind = 0, .length = 8},
        {.kind = 200, .length = 8},
        {.kind = WIRE_KINDS, .length = 0},
        {.kind = WIRE_LIST, .length = 64, .count = 0},
        {.kind = WIRE_LIST, .length = 15, .count = 1},
        {.kind = WIRE_LIST, .length = 4096, .count = FABRIC_COMMANDS_MAX + 1},
        {.kind = WIRE_LIST, .length = UINT32_MAX, .count = 4},
        {.kind = WIRE_LIST, .length = WIRE_LENGTH_MAX + 1, .count = 4},
        {.kind = WIRE_CALL, .length = WIRE_SMALL_MAX + 1},
        {.kind = WIRE_CALL, .length = 8, .count = 1},
        {.kind = WIRE_HEARTBEAT},
        {.kind = WIRE_HELLO, .length = sizeof(struct wire_hello)},
        {.kind = WIRE_FORMAT, .length = sizeof(struct wire_format)},
        {.kind = WIRE_REPLY, .length = 8},
        {.kind = WIRE_WELCOME, .length = sizeof(struct wire_welcome)},
    };
    uint64_t breaks = 0;
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++)
        break_one(&site, &heads[i], sizeof heads[i], ++breaks);

    struct {
        struct wire_header head;
        struct wire_command command;
        uint8_t payload[64];
    } list = {.head = {.kind = WIRE_LIST, .length = 16 + 8, .count = 1},
              .command = {.address = site_address(OFFSET), .length = 64, .operation = FABRIC_WRITE}};
    break_one(&site, &list, sizeof list, ++breaks); /* the payload ends behind the list */
    list.head.length = 16 + 8;
    list.command =
        (struct wire_command){.address = site_address(OFFSET), .length = 8, .operation = FABRIC_READ};
    break_one(&site, &list, sizeof list, ++breaks); /* the list is longer than its commands */
    list.head.count = 2;
    list.head.length = 32 + 4;
    list.command.operation = FABRIC_FAA;
    break_one(&site, &list, sizeof list, ++breaks); /* its second command ends behind it */
    site_close(&site);
}

/* ---- how bytes arrive ---- */

/* Each command is run as soon as all its bytes are there (G5), and never before. */
static void test_command_by_command(void **state)
{
    struct site site;
    struct pair pair;
    struct script script = {0};
    uint64_t ones = UINT64_MAX, now;
    uint8_t body[64];
    if (!open_site(&site, (struct site_options){0}))
        return;
    pair_open(&pair, &site);
    script_write(&script, site_address(OFFSET), &ones, 8);
    script_write(&script, site_address(OFFSET + 8), &ones, 8);
    struct wire_header head = {.kind = WIRE_LIST, .length = 48, .count = 2, .id = 8};
    client_send(&pair.data, &head, sizeof head);
    for (size_t i = 0; i < 47; i++) {
        client_send(&pair.data, script.bytes + i, 1);
        if (i == 23) /* the first is whole */
            while (site_word(&site, OFFSET) != ones)
                ;
        if (i == 22)
            assert_int_equal(site_word(&site, OFFSET), 0);
    }
    now = site_word(&site, OFFSET + 8);
    assert_int_equal(now, 0);
    client_send(&pair.data, script.bytes + 47, 1);
    head = client_take(&pair.data, body, sizeof body);
    assert_int_equal(head.count, 2);
    now = site_word(&site, OFFSET + 8);
    assert_int_equal(now, ones);
    free(script.bytes);
    pair_close(&pair);
    site_close(&site);
}

/* Many lists at once, also of a megabyte, are answered in order, although the client takes no answer at
 * first. */
static void run_volume(struct site *site)
{
    enum { LISTS = 40 };
    struct pair pair;
    uint8_t *block = malloc(FABRIC_LENGTH_MAX), *body = malloc(4 * FABRIC_LENGTH_MAX);
    for (uint32_t i = 0; i < FABRIC_LENGTH_MAX; i++)
        block[i] = (uint8_t)(i * 7 + i / 256);
    pair_open(&pair, site);
    struct script script = {0};
    script_write(&script, site_address(OFFSET), block, FABRIC_LENGTH_MAX);
    script_write(&script, site_address(OFFSET + FABRIC_LENGTH_MAX), block, FABRIC_LENGTH_MAX);
    script_send(&script, &pair.data, 1);
    assert_int_equal(client_take(&pair.data, body, 8).count, 2);
    for (uint64_t id = 0; id < LISTS; id++) {
        for (unsigned i = 0; i < 4; i++)
            script_read(&script, site_address(OFFSET + (i & 1) * FABRIC_LENGTH_MAX), FABRIC_LENGTH_MAX);
        script_send(&script, &pair.data, id);
    }
    /* The socket's buffer and the limit of output hold a few of them; then the daemon must pause. */
    for (uint64_t id = 0; id < LISTS; id++) {
        struct wire_header head = client_take(&pair.data, body, 4 * FABRIC_LENGTH_MAX);
        assert_int_equal(head.id, id);
        assert_int_equal(head.count, 4);
        for (unsigned i = 0; i < 4; i++)
            assert_memory_equal(body + i * FABRIC_LENGTH_MAX, block, FABRIC_LENGTH_MAX);
    }
    for (uint64_t id = 0; id < 2000; id++) {
        script_faa(&script, site_address(OFFSET), 1);
        script_read(&script, site_address(OFFSET), 8);
        script_send(&script, &pair.data, id);
    }
    for (uint64_t id = 0; id < 2000; id++) {
        uint64_t words[2];
        struct wire_header head = client_take(&pair.data, words, sizeof words);
        assert_int_equal(head.id, id);
        assert_int_equal(words[1], words[0] + 1);
    }
    pair_close(&pair);
    free(block);
    free(body);
}

static void test_volume(void **state)
{
    struct site site;
    if (!open_site(&site, (struct site_options){0}))
        return;
    run_volume(&site);
    site_close(&site);
}

/* The same over TLS, and no client is let in without a certificate. */
static void test_tls(void **state)
{
    struct site site;
    struct certificate authority, ours;
    struct net_tls *daemon, *client, *stranger;
    struct client none;
    struct error error;
    char pem[64], signer[64];
    snprintf(pem, sizeof pem, "/tmp/banyan-test-%d.pem", (int)getpid());
    snprintf(signer, sizeof signer, "/tmp/banyan-test-%d-authority.pem", (int)getpid());
    assert_true(certificate_make(&authority, NULL, "authority", NULL, -60, 3600));
    assert_true(certificate_make(&ours, &authority, "memory", "IP:127.0.0.1", -60, 3600));
    assert_true(certificate_write(&authority, signer, NULL) && certificate_write(&ours, pem, pem));
    struct net_tls_options options = {
        .certificate_file = pem, .authority_file = signer, .require_peer = true};
    assert_int_equal(net_tls_create(&daemon, true, &options, &error), BANYAN_OK);
    assert_int_equal(net_tls_create(&client, false, &options, &error), BANYAN_OK);
    options.certificate_file = NULL;
    assert_int_equal(net_tls_create(&stranger, false, &options, &error), BANYAN_OK);
    unlink(pem);
    unlink(signer);
    if (open_site(&site, (struct site_options){.tls = daemon})) {
        client_use_tls(client);
        run_lists(&site, &site.tcp);
        run_volume(&site);
        run_lists(&site, &site.local); /* Unix sockets stay plain */
        assert_int_equal(net_connect(&site.tcp, CLIENT_LIMIT, &none.fd, &error), BANYAN_OK);
        none.stream = net_stream_create(none.fd, stranger, false, NULL);
        assert_true(client_closed(&none));
        client_close(&none);
        client_use_tls(NULL);
        assert_int_equal(net_connect(&site.tcp, CLIENT_LIMIT, &none.fd, &error), BANYAN_OK);
        none.stream = NULL;
        client_send(&none, "no TLS at all, but long enough to be parsed", 43);
        assert_true(client_closed(&none));
        client_close(&none);
        site_wait_connections(&site, 0);
        site_close(&site);
    }
    net_tls_destroy(daemon);
    net_tls_destroy(client);
    net_tls_destroy(stranger);
    certificate_free(&authority);
    certificate_free(&ours);
}

/* A client that never takes its answers stops only itself. */
static void test_deaf_client(void **state)
{
    struct site site;
    struct pair deaf, other;
    struct script script = {0};
    uint64_t word;
    if (!open_site(&site, (struct site_options){.threads = 1}))
        return;
    pair_open(&deaf, &site);
    for (unsigned i = 0; i < 64; i++) {
        for (unsigned k = 0; k < 4; k++)
            script_read(&script, site_address(OFFSET), FABRIC_LENGTH_MAX);
        script_send(&script, &deaf.data, i);
    }
    client_control(&other.control, &site.tcp, 22, 60000);
    client_data(&other.data, &site.tcp, &other.control);
    script_read(&script, site_address(OFFSET), 8);
    script_send(&script, &other.data, 5);
    assert_int_equal(client_take(&other.data, &word, 8).id, 5);
    assert_true(site_status(&site).lists_total < 65);
    client_close(&deaf.data);
    assert_true(client_closed(&deaf.control));
    client_close(&deaf.control);
    site_wait_nodes(&site, 1);
    pair_close(&other);
    site_close(&site);
}

/* Sends a hello and, without waiting for the welcome, lists that are answered with 4 MiB each. */
static void open_eagerly(struct client *data, const struct net_address *address, const struct client *control,
                         unsigned lists)
{
    struct script script = {0};
    client_connect(data, address);
    struct wire_hello hello = client_hello(data, WIRE_DATA, NULL);
    hello.instance = control->hello.instance;
    hello.compute_id = control->welcome.compute_id;
    hello.group_key = control->welcome.group_key;
    client_message(data, WIRE_HELLO, 0, &hello, sizeof hello);
    for (unsigned i = 0; i < lists; i++) {
        for (unsigned k = 0; k < 4; k++)
            script_read(&script, site_address(OFFSET), FABRIC_LENGTH_MAX);
        script_send(&script, data, i);
    }
}

static void test_eager_client(void **state)
{
    struct site site;
    struct client control, data;
    struct script script = {0};
    struct wire_header nonsense = {.kind = 99, .length = 1};
    uint64_t word = 0;
    if (!open_site(&site, (struct site_options){.threads = 1}))
        return;
    client_control(&control, &site.tcp, 21, 60000);
    open_eagerly(&data, &site.tcp, &control, 8);
    assert_int_equal(client_take(&data, &data.welcome, sizeof data.welcome).kind, WIRE_WELCOME);
    for (unsigned i = 0; i < 8; i++) {
        struct wire_header head = client_take(&data, &word, sizeof word);
        assert_true(head.kind == WIRE_REPLY && head.id == i && head.length == 4 * FABRIC_LENGTH_MAX);
    }
    for (unsigned i = 0; i < 3; i++) { /* and the conversation goes on */
        script_faa(&script, site_address(OFFSET), 1);
        script_send(&script, &data, i);
        assert_int_equal(client_take(&data, &word, sizeof word).id, i);
        assert_int_equal(word, i);
    }
    client_goodbye(&data);
    /* The nonsense behind them ends the connection as soon as the memory node reads it. */
    open_eagerly(&data, &site.tcp, &control, 8);
    client_send(&data, &nonsense, sizeof nonsense);
    assert_true(client_closed(&data));
    assert_true(client_closed(&control));
    client_close(&data);
    client_close(&control);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_status(&site).fenced_total, 1);
    site_close(&site);
}

/* A client that does nothing loses its connection: before its hello, and after its goodbye if it does not
 * take the answers that it asked for. (The limits are 5 s each.) */
static void test_time_limits(void **state)
{
    struct site site;
    struct client silent, deaf, control;
    if (!open_site(&site, (struct site_options){.threads = 1}))
        return;
    client_control(&control, &site.tcp, 21, 60000);
    client_connect(&silent, &site.tcp);
    /* A Unix socket never holds 4 MiB, and the memory node reads on until it has more than that to send. */
    open_eagerly(&deaf, &site.local, &control, 1);
    assert_int_equal(client_take(&deaf, &deaf.welcome, sizeof deaf.welcome).kind, WIRE_WELCOME);
    client_message(&deaf, WIRE_GOODBYE, 0, NULL, 0);
    client_goodbye(&control);
    site_wait_connections(&site,
                          0); /* though neither client has closed, and the deaf one took nothing more */
    assert_true(client_closed(&silent));
    assert_true(client_closed(&deaf));
    client_close(&silent);
    client_close(&deaf);
    site_wait_nodes(&site, 0);
    site_close(&site);
}

/* ---- openings ---- */

static int hello_of(struct site *site, struct wire_hello change, const char *secret, char sentence[256])
{
    struct client client;
    client_connect(&client, &site->tcp);
    struct wire_hello hello = client_hello(&client, WIRE_MONITOR, secret);
    if (change.magic != 0)
        hello.magic = change.magic;
    if (change.version != 0)
        hello.version = change.version;
    if (change.role != 0)
        hello.role = change.role;
    int status = client_say_hello(&client, &hello, sentence);
    if (status)
        assert_true(client_closed(&client));
    client_close(&client);
    return status;
}

/* A memory node without a NIC says so, and refuses to attach queue pairs. */
static void test_no_nic(void **state)
{
    struct site site;
    struct client client, control;
    char sentence[256];
    struct wire_nic end = {.queue = 17, .mtu = 3};
    if (!open_site(&site, (struct site_options){0}))
        return;
    for (unsigned role = WIRE_CONTROL; role <= WIRE_FORMATTER; role++) {
        client_connect(&client, &site.tcp);
        struct wire_hello hello = client_hello(&client, role, NULL);
        hello.nic = 1;
        bool lists = role == WIRE_CONTROL || role == WIRE_DATA;
        assert_int_equal(client_say_hello(&client, &hello, sentence), lists ? BANYAN_ENOTSUP : BANYAN_OK);
        if (lists)
            assert_non_null(strstr(sentence, "--rdma"));
        else
            assert_int_equal(client.welcome.nic, 0);
        client_close(&client);
    }
    client_control(&control, &site.tcp, 3, 60000);
    client_data(&client, &site.tcp, &control);
    assert_int_equal(client.welcome.nic, 0);
    client_message(&client, WIRE_ATTACH, 1, &end, sizeof end);
    assert_true(client_closed(&client));
    client_close(&client);
    client_close(&control);
    struct memory_status_reply status = site_status(&site);
    assert_int_equal(status.nic, 0);
    assert_int_equal(status.nic_queues, 0);
    site_close(&site);
}

static void test_openings(void **state)
{
    struct site site;
    char sentence[256], ours[32], theirs[32];
    snprintf(ours, sizeof ours, "version %u", WIRE_VERSION);
    snprintf(theirs, sizeof theirs, "side %u", WIRE_VERSION + 1);
    if (!open_site(&site, (struct site_options){0}))
        return;
    assert_int_equal(hello_of(&site, (struct wire_hello){0}, NULL, sentence), BANYAN_OK);
    assert_int_equal(hello_of(&site, (struct wire_hello){.magic = 1}, NULL, sentence), BANYAN_EINVAL);
    assert_int_equal(hello_of(&site, (struct wire_hello){.version = WIRE_VERSION + 1}, NULL, sentence),
                     BANYAN_EVERSION);
    assert_non_null(strstr(sentence, ours));
    assert_non_null(strstr(sentence, theirs));
    assert_int_equal(hello_of(&site, (struct wire_hello){.role = 9}, NULL, sentence), BANYAN_EINVAL);
    assert_non_null(strstr(sentence, "role 9"));
    assert_int_equal(hello_of(&site, (struct wire_hello){.role = WIRE_DATA}, NULL, sentence), BANYAN_EFENCED);
    /* A hello of the right version, but not of that version's length. */
    for (unsigned i = 0; i < 3; i++) {
        static const uint32_t lengths[] = {4, 8, sizeof(struct wire_hello) + 1};
        struct client client;
        client_connect(&client, &site.tcp);
        uint8_t bytes[sizeof(struct wire_hello) + 1] = {0};
        struct wire_hello hello = client_hello(&client, WIRE_MONITOR, NULL);
        memcpy(bytes, &hello, sizeof hello);
        client_message(&client, WIRE_HELLO, 0, bytes, lengths[i]);
        assert_int_equal(client_take(&client, bytes, sizeof bytes).kind, WIRE_REFUSE);
        assert_true(client_closed(&client));
        client_close(&client);
    }
    site_wait_connections(&site, 0);
    site_close(&site);
}

/* A name may be missing, or fill its field without an end. */
static void test_names(void **state)
{
    struct site site;
    struct client clients[2], monitor;
    struct memory_peers_request ask = {.kind = MEMORY_PEERS};
    struct memory_peers_reply peers;
    size_t length;
    char whole[WIRE_NAME_MAX + 1] = "";
    if (!open_site(&site, (struct site_options){0}))
        return;
    memset(whole, 'w', WIRE_NAME_MAX);
    for (unsigned i = 0; i < 2; i++) {
        client_connect(&clients[i], &site.tcp);
        struct wire_hello hello = client_hello(&clients[i], WIRE_CONTROL, NULL);
        hello.instance = 5 + i;
        memset(hello.name, i == 0 ? 0 : 'w', sizeof hello.name);
        assert_int_equal(client_say_hello(&clients[i], &hello, NULL), BANYAN_OK);
    }
    client_monitor(&monitor, &site.tcp);
    assert_int_equal(client_call(&monitor, &ask, sizeof ask, &peers, sizeof peers, &length), BANYAN_OK);
    assert_int_equal(peers.count, 2); /* the last first */
    assert_string_equal(peers.peers[1].name, "?");
    assert_string_equal(peers.peers[0].name, whole);
    client_goodbye(&monitor);
    client_goodbye(&clients[0]);
    client_goodbye(&clients[1]);
    site_close(&site);
}

static void test_secret(void **state)
{
    static const char secret[] = "correct horse";
    struct site site;
    struct client client;
    char sentence[256];
    uint8_t proof[NET_PROOF_BYTES];
    if (!open_site(&site, (struct site_options){.secret = secret}))
        return;
    assert_int_equal(hello_of(&site, (struct wire_hello){0}, NULL, sentence), BANYAN_EINVAL);
    assert_int_equal(hello_of(&site, (struct wire_hello){0}, "correct horsf", sentence), BANYAN_EINVAL);
    assert_non_null(strstr(sentence, "secret"));
    assert_null(strstr(sentence, secret));
    client_connect(&client, &site.local);
    assert_int_equal(client.greeting.secret_wanted, 1);
    struct wire_hello hello = client_hello(&client, WIRE_MONITOR, secret);
    assert_int_equal(client_say_hello(&client, &hello, sentence), BANYAN_OK);
    net_proof(secret, strlen(secret), "banyan server", hello.nonce, client.greeting.nonce, proof);
    assert_memory_equal(proof, client.welcome.proof, sizeof proof);
    /* A proof is good for one connection. */
    struct client thief;
    client_connect(&thief, &site.tcp);
    assert_int_equal(client_say_hello(&thief, &hello, sentence), BANYAN_EINVAL);
    client_close(&thief);
    client_close(&client);
    site_close(&site);
}

/* Before the hello is accepted only a hello is answered, and a stranger gets little memory. */
static void stranger(struct site *site, const void *bytes, size_t length, bool leave)
{
    struct client client;
    client_connect(&client, &site->tcp);
    client_send(&client, bytes, length);
    if (!leave)
        assert_true(client_closed(&client));
    client_close(&client);
    site_wait_connections(site, 0);
}

static void test_strangers(void **state)
{
    struct site site;
    uint8_t noise[8192];
    if (!open_site(&site, (struct site_options){0}))
        return;
    for (unsigned round = 0; round < 32; round++) {
        for (size_t i = 0; i < sizeof noise; i++)
            noise[i] = (uint8_t)(i * 31 + round * 17 + 3);
        stranger(&site, noise, sizeof noise, false);
    }
    stranger(&site, "GET / HTTP/1.1\r\nHost: banyan\r\n\r\n", 33, false);
    stranger(&site, "*1\r\n$4\r\nPING\r\n", 14, true);
    struct wire_header head = {.kind = WIRE_HELLO, .length = UINT32_MAX};
    stranger(&site, &head, sizeof head, false);
    head.length = WIRE_SMALL_MAX;
    stranger(&site, &head, sizeof head, false);
    head.length = sizeof(struct wire_hello);
    stranger(&site, &head, sizeof head, true); /* cut within the hello */
    stranger(&site, &head, 10, true);          /* and within its header */
    stranger(&site, &head, 0, true);
    head = (struct wire_header){.kind = WIRE_LIST, .length = 16, .count = 1};
    stranger(&site, &head, sizeof head, false);
    head = (struct wire_header){.kind = WIRE_CALL, .length = 8};
    stranger(&site, &head, sizeof head, false);
    head = (struct wire_header){.kind = WIRE_GOODBYE};
    stranger(&site, &head, sizeof head, false);
    site_close(&site);
}

/* Connections without a hello make room for later ones. */
static void test_silent_strangers(void **state)
{
    enum { MANY = 200 };
    struct site site;
    struct client silent[MANY], good;
    if (!open_site(&site, (struct site_options){.threads = 1}))
        return;
    for (unsigned i = 0; i < MANY; i++)
        client_connect(&silent[i], &site.tcp);
    assert_true(client_closed(&silent[0]));
    client_monitor(&good, &site.tcp);
    assert_true(site_status(&site).connections < MANY);
    client_goodbye(&good);
    for (unsigned i = 0; i < MANY; i++)
        client_close(&silent[i]);
    site_wait_connections(&site, 0);
    site_close(&site);
}

static void test_connections_max(void **state)
{
    struct site site;
    struct client clients[4], more;
    struct error error;
    if (!open_site(&site, (struct site_options){.connections_max = 4}))
        return;
    for (unsigned i = 0; i < 4; i++)
        client_monitor(&clients[i], &site.tcp);
    assert_int_equal(net_connect(&site.tcp, CLIENT_LIMIT, &more.fd, &error), BANYAN_OK);
    more.stream = NULL;
    assert_true(client_closed(&more));
    client_close(&more);
    client_goodbye(&clients[0]);
    site_wait_connections(&site, 3);
    client_monitor(&clients[0], &site.tcp);
    for (unsigned i = 0; i < 4; i++)
        client_goodbye(&clients[i]);
    site_close(&site);
}

/* ---- calls ---- */

static void test_calls(void **state)
{
    struct site site;
    struct pair pair;
    struct memory_allocate_request allocate = {.kind = MEMORY_ALLOCATE, .block_bytes = 1024, .want = 3};
    struct memory_allocate_reply blocks;
    struct memory_usage_request usage = {.kind = MEMORY_USAGE};
    struct memory_usage_reply used;
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply status;
    size_t length;
    if (!open_site(&site, (struct site_options){0}))
        return;
    pair_open(&pair, &site);
    assert_int_equal(client_call(&pair.data, &allocate, sizeof allocate, &blocks, sizeof blocks, &length),
                     BANYAN_OK);
    assert_int_equal(length, offsetof(struct memory_allocate_reply, blocks) + 3 * sizeof(gaddr));
    assert_int_equal(blocks.count, 3);
    assert_int_equal(gaddr_node(blocks.blocks[0]), SITE_NODE);
    assert_int_equal(client_call(&pair.data, &usage, sizeof usage, &used, sizeof used, &length), BANYAN_OK);
    /* Data lies at the high end. */
    assert_true(used.words > 2 && used.first + used.words * 64 == used.granules);
    assert_true(used.bits[used.words - 1].used == UINT64_MAX && used.bits[used.words - 2].used == UINT64_MAX
                                                                                                      << 32);
    assert_true(used.bits[used.words - 1].starts == (UINT64_C(1) << 32 | 1) &&
                used.bits[used.words - 2].starts == UINT64_C(1) << 32);
    assert_int_equal(client_call(&pair.data, &ask, sizeof ask, &status, sizeof status, &length), BANYAN_OK);
    assert_int_equal(status.compute_nodes, 1);
    assert_int_equal(status.connections, 2);
    assert_int_equal(status.blocks_used, 3);
    struct memory_free_request give = {.kind = MEMORY_FREE, .block_bytes = 1024, .count = 3};
    memcpy(give.blocks, blocks.blocks, sizeof give.blocks);
    assert_int_equal(client_call(&pair.data, &give, sizeof give, &blocks, sizeof blocks, &length), BANYAN_OK);
    assert_int_equal(length, sizeof(struct memory_free_reply));
    assert_int_equal(client_call(&pair.data, &give, sizeof give, &blocks, sizeof blocks, &length),
                     BANYAN_EINVAL); /* twice */
    assert_int_equal(client_call(&pair.data, &give, 3, &blocks, sizeof blocks, &length), BANYAN_EINVAL);
    assert_int_equal(client_call(&pair.data, &give, 0, &blocks, sizeof blocks, &length), BANYAN_EINVAL);
    uint8_t noise[WIRE_SMALL_MAX];
    memset(noise, 0xa5, sizeof noise);
    assert_int_equal(client_call(&pair.data, noise, sizeof noise, &blocks, sizeof blocks, &length),
                     BANYAN_EINVAL);
    /* the control connection may only ask */
    assert_int_equal(client_call(&pair.control, &allocate, sizeof allocate, &blocks, sizeof blocks, &length),
                     BANYAN_ENOTSUP);
    assert_int_equal(client_call(&pair.control, &ask, sizeof ask, &status, sizeof status, &length),
                     BANYAN_OK);
    pair_close(&pair);
    site_close(&site);
}

static void test_monitor(void **state)
{
    struct site site;
    struct pair pair;
    struct client monitor;
    struct memory_allocate_request allocate = {.kind = MEMORY_ALLOCATE, .block_bytes = 1024, .want = 1};
    struct memory_usage_request usage = {.kind = MEMORY_USAGE};
    struct memory_peers_request ask = {.kind = MEMORY_PEERS};
    struct memory_peers_reply peers;
    struct memory_usage_reply reply;
    size_t length;
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_connect(&pair.control, &site.tcp);
    struct wire_hello hello = client_hello(&pair.control, WIRE_CONTROL, NULL);
    memcpy(hello.name, "host\n\x1b[31m 7\xff", 13);
    hello.instance = 5;
    hello.lease_ms = 60000;
    assert_int_equal(client_say_hello(&pair.control, &hello, NULL), BANYAN_OK);
    client_data(&pair.data, &site.tcp, &pair.control);
    client_monitor(&monitor, &site.local);
    assert_int_equal(client_call(&monitor, &allocate, sizeof allocate, &reply, sizeof reply, &length),
                     BANYAN_ENOTSUP);
    assert_int_equal(client_call(&monitor, &usage, sizeof usage, &reply, sizeof reply, &length), BANYAN_OK);
    assert_int_equal(client_call(&monitor, &ask, sizeof ask, &peers, sizeof peers, &length), BANYAN_OK);
    assert_int_equal(length, offsetof(struct memory_peers_reply, peers) + sizeof peers.peers[0]);
    assert_int_equal(peers.total, 1);
    assert_int_equal(peers.count, 1);
    assert_int_equal(peers.peers[0].compute_id, pair.control.welcome.compute_id);
    assert_int_equal(peers.peers[0].connections, 2);
    assert_int_equal(peers.peers[0].mapped, 0);
    assert_string_equal(peers.peers[0].name, "host??[31m?7?");
    assert_non_null(strstr(peers.peers[0].address, "127.0.0.1"));
    ask.skip = 1;
    assert_int_equal(client_call(&monitor, &ask, sizeof ask, &peers, sizeof peers, &length), BANYAN_OK);
    assert_int_equal(peers.count, 0);
    assert_int_equal(peers.total, 1);

    struct script script = {0};
    script_read(&script, site_address(OFFSET), 8);
    script_send(&script, &monitor, 1);
    assert_true(client_closed(&monitor));
    client_close(&monitor);
    client_monitor(&monitor, &site.tcp);
    client_message(&monitor, WIRE_HEARTBEAT, 1, NULL, 0);
    assert_true(client_closed(&monitor));
    client_close(&monitor);
    pair_close(&pair);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_status(&site).fenced_total, 0);
    site_close(&site);
}

/* Requests that are too short are refused; a format of another length ends the connection. */
static void test_cut_messages(void **state)
{
    struct site site;
    struct client client;
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_peers_request peers = {.kind = MEMORY_PEERS};
    struct memory_usage_request usage = {.kind = MEMORY_USAGE};
    uint8_t reply[sizeof(struct memory_peers_reply)];
    size_t length;
    if (!open_site(&site, (struct site_options){0}))
        return;
    client_monitor(&client, &site.tcp);
    assert_int_equal(client_call(&client, &ask, 4, reply, sizeof reply, &length), BANYAN_EINVAL);
    assert_int_equal(client_call(&client, &peers, 4, reply, sizeof reply, &length), BANYAN_EINVAL);
    assert_int_equal(client_call(&client, &usage, 4, reply, sizeof reply, &length), BANYAN_EINVAL);
    assert_int_equal(client_call(&client, &usage, 3, reply, sizeof reply, &length), BANYAN_EINVAL);
    client_goodbye(&client);
    client_connect(&client, &site.tcp);
    struct wire_hello hello = client_hello(&client, WIRE_FORMATTER, NULL);
    assert_int_equal(client_say_hello(&client, &hello, NULL), BANYAN_OK);
    assert_int_equal(client_call(&client, &usage, sizeof usage, reply, sizeof reply, &length),
                     BANYAN_ENOTSUP); /* it may only format, and ask how things are */
    client_message(&client, WIRE_FORMAT, 3, &hello, sizeof(struct wire_format) + 1);
    assert_true(client_closed(&client));
    client_close(&client);
    site_close(&site);
}

/* More peers than one reply holds: a full reply, then the rest. */
static void test_many_peers(void **state)
{
    enum { MANY = MEMORY_PEERS_MAX + 6 };
    struct site site;
    struct client clients[MANY], monitor;
    struct memory_peers_request ask = {.kind = MEMORY_PEERS};
    struct memory_peers_reply peers;
    bool seen[MANY + 1] = {false};
    size_t length;
    if (!open_site(&site, (struct site_options){0}))
        return;
    for (unsigned i = 0; i < MANY; i++)
        client_control(&clients[i], &site.tcp, 100 + i, 60000);
    client_monitor(&monitor, &site.tcp);
    for (ask.skip = 0; ask.skip < MANY; ask.skip += peers.count) {
        assert_int_equal(client_call(&monitor, &ask, sizeof ask, &peers, sizeof peers, &length), BANYAN_OK);
        assert_int_equal(peers.total, MANY);
        assert_int_equal(peers.count, ask.skip == 0 ? MEMORY_PEERS_MAX : 6);
        for (unsigned i = 0; i < peers.count; i++) {
            assert_in_range(peers.peers[i].compute_id, 1, MANY);
            assert_false(seen[peers.peers[i].compute_id]);
            seen[peers.peers[i].compute_id] = true;
        }
    }
    client_goodbye(&monitor);
    for (unsigned i = 0; i < MANY; i++)
        client_goodbye(&clients[i]);
    site_close(&site);
}

/* ---- format ---- */

static int format(struct site *site, struct wire_format how, char sentence[256])
{
    struct client client;
    char text[256] = "";
    client_connect(&client, &site->tcp);
    struct wire_hello hello = client_hello(&client, WIRE_FORMATTER, NULL);
    assert_int_equal(client_say_hello(&client, &hello, NULL), BANYAN_OK);
    client_message(&client, WIRE_FORMAT, 3, &how, sizeof how);
    struct wire_header head = client_take(&client, text, sizeof text - 1);
    assert_int_equal(head.kind, WIRE_RESULT);
    assert_int_equal(head.id, 3);
    memcpy(sentence, text, sizeof text);
    client_goodbye(&client);
    return head.status;
}

static void test_format(void **state)
{
    struct site site;
    struct client client;
    char sentence[256];
    if (!open_site(&site, (struct site_options){.unformatted = true}))
        return;
    client_connect(&client, &site.tcp);
    struct wire_hello hello = client_hello(&client, WIRE_CONTROL, NULL);
    hello.instance = 1;
    assert_int_equal(client_say_hello(&client, &hello, NULL), BANYAN_OK);
    assert_int_equal(client.welcome.cluster_id, 0);
    assert_int_equal(client.welcome.compute_id, 0);
    assert_true(client_closed(&client));
    client_close(&client);

    struct wire_format how = {.cluster_id = 0, .number = SITE_NODE, .node_count = 5};
    assert_int_equal(format(&site, how, sentence), BANYAN_EINVAL);
    how.cluster_id = 99;
    how.node_count = SITE_NODE;
    assert_int_equal(format(&site, how, sentence), BANYAN_EINVAL);
    how.node_count = 5;
    assert_int_equal(format(&site, how, sentence), BANYAN_OK);
    assert_string_equal(sentence, "");
    client_control(&client, &site.tcp, 1, 60000);
    assert_int_equal(client.welcome.cluster_id, 99);
    assert_int_equal(client.welcome.node_count, 5);
    how.cluster_id = 100;
    assert_int_equal(format(&site, how, sentence), BANYAN_EBUSY);
    assert_non_null(strstr(sentence, "test")); /* names the compute node */
    client_goodbye(&client);
    site_wait_nodes(&site, 0);
    assert_int_equal(format(&site, how, sentence), BANYAN_OK);
    assert_int_equal(site_status(&site).cluster_id, 100);
    site_close(&site);
}

/* ---- the end ---- */

static void test_stop_with_clients(void **state)
{
    struct site site;
    struct pair pair;
    struct client monitor;
    if (!open_site(&site, (struct site_options){0}))
        return;
    pair_open(&pair, &site);
    client_monitor(&monitor, &site.local);
    memoryd_stop(site.daemon);
    assert_true(client_closed(&pair.data));
    assert_true(client_closed(&pair.control));
    assert_true(client_closed(&monitor));
    client_close(&pair.data);
    client_close(&pair.control);
    client_close(&monitor);
    site_close(&site);
}

/* More connections at once than any queue between the system and an I/O thread has room for; then the daemon
 * stops with all of them. */
static void test_crowd(void **state)
{
    enum { MANY = 300, ROUNDS = 3 };
    struct site site;
    struct client *clients = calloc(MANY, sizeof *clients);
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply status;
    assert_non_null(clients);
    if (open_site(&site, (struct site_options){.threads = 1})) {
        for (unsigned i = 0; i < MANY; i++)
            client_monitor(&clients[i], i % 2 == 0 ? &site.tcp : &site.local);
        for (unsigned round = 0; round < ROUNDS; round++) {
            for (unsigned i = 0; i < MANY; i++)
                client_message(&clients[i], WIRE_CALL, round * 1000 + i, &ask, sizeof ask);
            for (unsigned i = 0; i < MANY; i++) {
                assert_int_equal(client_take(&clients[i], &status, sizeof status).id, round * 1000 + i);
                assert_int_equal(status.connections, MANY);
            }
        }
        memoryd_stop(site.daemon);
        for (unsigned i = 0; i < MANY; i++) {
            assert_true(client_closed(&clients[i]));
            client_close(&clients[i]);
        }
        site_close(&site);
    }
    free(clients);
}

static void test_options(void **state)
{
    struct site site;
    struct memoryd *daemon;
    struct error error;
    if (!open_site(&site, (struct site_options){0}))
        return;
    struct memoryd_options options = {.listen = &site.tcp, .listen_count = 1, .engine = engine};
    assert_int_equal(memoryd_create(&daemon, site.node, &options, &error), BANYAN_EBUSY);
    assert_null(daemon);
    options.listen = &site.local;
    assert_int_equal(memoryd_create(&daemon, site.node, &options, &error), BANYAN_EBUSY);
    options.threads = 1000;
    assert_int_equal(memoryd_create(&daemon, site.node, &options, &error), BANYAN_EINVAL);
    options = (struct memoryd_options){.engine = 17};
    assert_int_equal(memoryd_create(&daemon, site.node, &options, &error), BANYAN_EINVAL);
    options = (struct memoryd_options){.engine = engine, .lease_ms_min = 9, .lease_ms_max = 8};
    assert_int_equal(memoryd_create(&daemon, site.node, &options, &error), BANYAN_EINVAL);
    options = (struct memoryd_options){.engine = -1};
    assert_int_equal(memoryd_create(&daemon, site.node, &options, &error), BANYAN_EINVAL);
    options = (struct memoryd_options){.engine = engine, .secret = "", .secret_length = 0};
    assert_int_equal(memoryd_create(&daemon, site.node, &options, &error), BANYAN_EINVAL);
    options.secret_length = NET_SECRET_MAX + 1;
    assert_int_equal(memoryd_create(&daemon, site.node, &options, &error), BANYAN_EINVAL);
    site_close(&site);
}

/* A daemon that ends leaves its node as it was: another one may serve it. */
static void test_one_after_another(void **state)
{
    struct memory_options pool = {.pool_bytes = 1u << 20, .chunk_bytes = 64u << 10};
    struct memoryd_options options = {.engine = engine};
    struct memory_status_reply status;
    struct memory_node *node;
    struct memoryd *daemon;
    struct error error;
    assert_int_equal(memory_node_create(&node, &pool, &error), BANYAN_OK);
    const struct fabric_target *target = memory_node_target(node);
    struct memory_peers_request ask = {.kind = MEMORY_PEERS};
    static struct memory_peers_reply peers;
    size_t length;
    for (unsigned life = 0; life < 3; life++) {
        if (memoryd_create(&daemon, node, &options, &error) == BANYAN_ENOTSUP)
            skip();
        assert_int_equal(target->call(target->owner, 1, &ask, sizeof ask, &peers, sizeof peers, &length),
                         BANYAN_OK);
        assert_int_equal(peers.total, 0);
        memoryd_join(daemon);    /* never started: there is no thread to wait for */
        memoryd_destroy(daemon); /* never started */
        assert_int_equal(target->call(target->owner, 1, &ask, sizeof ask, &peers, sizeof peers, &length),
                         BANYAN_ENOTSUP);
    }
    memory_node_status(node, &status);
    assert_int_equal(status.uptime_ms, 0);
    memory_node_destroy(node);
}

/* ---- engines ---- */

/* A kernel, or a container's filter, without io_uring. In a process of its own, since a filter cannot be
 * removed. */
static int without_uring(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof steps / sizeof steps[0], .filter = steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0)
        return 77;
    struct site site;
    if (site_open(&site, &(struct site_options){.engine = MEMORY_ENGINE_IO_URING}) != BANYAN_ENOTSUP)
        return 1;
    if (site_open(&site, &(struct site_options){.engine = MEMORY_ENGINE_AUTO}))
        return 2;
    if (strcmp(memoryd_engine(site.daemon), "epoll") != 0)
        return 3;
    run_lists(&site, &site.tcp);
    site_close(&site);
    return 0;
}

static void test_fallback(void **state)
{
    int status = 0, pid = fork();
    if (pid == 0)
        _exit(without_uring());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        print_message("SKIPPED: no system call filters here\n");
    else
        assert_int_equal(WEXITSTATUS(status), 0);
}

/* An I/O thread that never sleeps serves like any other, and ends when it is told to. */
static void test_busy_poll(void **state)
{
    struct site site;
    if (!open_site(&site, (struct site_options){.threads = 1, .busy_poll = true}))
        return;
    run_lists(&site, &site.tcp);
    site_close(&site);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_busy_poll),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_bad_addresses),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_command_by_command),
        cmocka_unit_test(test_volume),
        cmocka_unit_test(test_tls),
        cmocka_unit_test(test_deaf_client),
        cmocka_unit_test(test_eager_client),
        cmocka_unit_test(test_time_limits),
        cmocka_unit_test(test_no_nic),
        cmocka_unit_test(test_openings),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_cut_messages),
        cmocka_unit_test(test_many_peers),
        cmocka_unit_test(test_secret),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_silent_strangers),
        cmocka_unit_test(test_connections_max),
        cmocka_unit_test(test_calls),
        cmocka_unit_test(test_monitor),
        cmocka_unit_test(test_format),
        cmocka_unit_test(test_stop_with_clients),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_one_after_another),
    };
    int failed = 0;
    log_set_level(getenv("TEST_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    engine = MEMORY_ENGINE_EPOLL;
    failed += cmocka_run_group_tests_name("daemon, epoll", tests, NULL, NULL);
    engine = MEMORY_ENGINE_IO_URING;
    failed += cmocka_run_group_tests_name("daemon, io_uring", tests, NULL, NULL);
    return failed;
}
