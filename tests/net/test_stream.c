/* test_stream.c - streams, plain and with TLS, and the certificates that are refused, with the messages. The
 * certificates are made here; both sides run in this thread, in turns. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/thread.h"
#include "net/net.h"
#include "tests/net/certificates.h"

#define DAY 86400l

/* ---- files ---- */

static char directory[64];

enum { AUTHORITY, FOREIGN_AUTHORITY, SERVER, EXPIRED, FUTURE, FOREIGN, CLIENT, FILES };
static const char *const file_names[FILES] = {"authority", "foreign-authority", "server", "expired",
                                              "future",    "foreign",           "client"};
static struct certificate made[FILES];
static char certificate_paths[FILES][128], key_paths[FILES][128];

static bool make(int number, int authority, const char *name, const char *names, long from, long to)
{
    snprintf(certificate_paths[number], sizeof certificate_paths[number], "%s/%s.crt", directory,
             file_names[number]);
    snprintf(key_paths[number], sizeof key_paths[number], "%s/%s.key", directory, file_names[number]);
    return certificate_make(&made[number], authority < 0 ? NULL : &made[authority], name, names, from, to) &&
           certificate_write(&made[number], certificate_paths[number], key_paths[number]);
}

static int make_all(void **state)
{
    (void)state;
    static const char names[] = "DNS:node.example,DNS:localhost,IP:127.0.0.1";
    snprintf(directory, sizeof directory, "/tmp/test_stream.XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    bool fine = make(AUTHORITY, -1, "authority", NULL, -DAY, DAY) &&
                make(FOREIGN_AUTHORITY, -1, "foreign authority", NULL, -DAY, DAY) &&
                make(SERVER, AUTHORITY, "node", names, -DAY, DAY) &&
                make(EXPIRED, AUTHORITY, "expired", names, -2 * DAY, -DAY) &&
                make(FUTURE, AUTHORITY, "future", names, DAY, 2 * DAY) &&
                make(FOREIGN, FOREIGN_AUTHORITY, "foreign", names, -DAY, DAY) &&
                make(CLIENT, AUTHORITY, "the client", NULL, -DAY, DAY);
    return fine ? 0 : -1;
}

static int remove_all(void **state)
{
    (void)state;
    for (int i = 0; i < FILES; i++) {
        unlink(certificate_paths[i]);
        unlink(key_paths[i]);
        certificate_free(&made[i]);
    }
    return rmdir(directory);
}

static struct net_tls *tls_make(bool server, int certificate, int authority, bool require_peer)
{
    struct error error = {0};
    struct net_tls *tls;
    struct net_tls_options options = {
        .certificate_file = certificate < 0 ? NULL : certificate_paths[certificate],
        .key_file = certificate < 0 ? NULL : key_paths[certificate],
        .authority_file = authority < 0 ? NULL : certificate_paths[authority],
        .require_peer = require_peer,
    };
    if (net_tls_create(&tls, server, &options, &error))
        fail_msg("%s", error.text);
    return tls;
}

/* ---- two ends ---- */

struct pair {
    struct net_tls *client_tls, *server_tls; /* owned */
    struct net_stream *client, *server;
};

static void pair_open(struct pair *pair, struct net_tls *client, struct net_tls *server, const char *host)
{
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    pair->client_tls = client;
    pair->server_tls = server;
    pair->client = net_stream_create(sockets[0], client, false, host);
    pair->server = net_stream_create(sockets[1], server, true, NULL);
    assert_non_null(pair->client);
    assert_non_null(pair->server);
}

static void pair_close(struct pair *pair)
{
    net_stream_destroy(pair->client);
    net_stream_destroy(pair->server);
    net_tls_destroy(pair->client_tls);
    net_tls_destroy(pair->server_tls);
}

/* One end of a conversation: sends `out` and expects `in`. */
struct end {
    struct net_stream *stream;
    const uint8_t *out;
    uint8_t *in;
    size_t out_length, in_length, sent, got;
    enum net_status status;
    bool moved;
};

static bool end_done(const struct end *end)
{
    return end->status == NET_FAILED || end->status == NET_END ||
           (end->sent == end->out_length && end->got == end->in_length);
}

static void end_step(struct end *end)
{
    size_t moved = 0;
    end->moved = false;
    if (end_done(end))
        return;
    if (end->sent < end->out_length) {
        end->status =
            net_stream_write(end->stream, end->out + end->sent, end->out_length - end->sent, &moved);
        end->sent += moved;
        end->moved = end->status == NET_OK;
        assert_true(end->status != NET_OK || moved > 0);
    }
    if (end->got < end->in_length && end->status != NET_FAILED) {
        end->status = net_stream_read(end->stream, end->in + end->got, end->in_length - end->got, &moved);
        end->got += moved;
        end->moved |= end->status == NET_OK;
        assert_true(end->status != NET_OK || moved > 0);
    }
    if (end->status == NET_AGAIN)
        assert_true(net_stream_wants(end->stream, end->sent < end->out_length) & (EPOLLIN | EPOLLOUT));
}

/* Until both are done; a handshake takes some turns in which no byte of theirs moves. */
static void talk(struct end *client, struct end *server)
{
    for (int idle = 0; idle < 20 && !(end_done(client) && end_done(server)); idle++) {
        end_step(client);
        end_step(server);
        if (client->moved || server->moved)
            idle = 0;
    }
}

static void talk_shortly(struct pair *pair, struct end *client, struct end *server)
{
    static uint8_t client_in[7], server_in[5];
    memset(client_in, 0, sizeof client_in);
    memset(server_in, 0, sizeof server_in);
    *client = (struct end){.stream = pair->client,
                           .out = (const uint8_t *)"hello",
                           .out_length = 5,
                           .in = client_in,
                           .in_length = 7};
    *server = (struct end){.stream = pair->server,
                           .out = (const uint8_t *)"welcome",
                           .out_length = 7,
                           .in = server_in,
                           .in_length = 5};
    talk(client, server);
    if (client->status != NET_FAILED && server->status != NET_FAILED) {
        assert_memory_equal(client_in, "welcome", 7);
        assert_memory_equal(server_in, "hello", 5);
    }
}

static void works(struct pair *pair, const char *client_subject, const char *server_subject)
{
    struct end client, server;
    talk_shortly(pair, &client, &server);
    if (client.got != 7 || server.got != 5)
        fail_msg("client: %s; server: %s", net_stream_error(pair->client), net_stream_error(pair->server));
    assert_string_equal(net_stream_subject(pair->server), client_subject);
    assert_string_equal(net_stream_subject(pair->client), server_subject);
    assert_string_equal(net_stream_error(pair->client), "");
    pair_close(pair);
}

/* Each side's message contains its text; NULL: it is not looked at. */
static void fails(struct pair *pair, const char *client_says, const char *server_says)
{
    struct end client, server;
    talk_shortly(pair, &client, &server);
    const char *client_error = net_stream_error(pair->client), *server_error = net_stream_error(pair->server);
    if (client_says && (client.status != NET_FAILED || !strstr(client_error, client_says)))
        fail_msg("the client says: %s", client_error);
    if (server_says && (server.status != NET_FAILED || !strstr(server_error, server_says)))
        fail_msg("the server says: %s", server_error);
    assert_int_equal(client.got, 0);
    assert_int_equal(server.got, 0);
    assert_string_equal(net_stream_subject(pair->server), "");
    size_t moved;
    if (server.status == NET_FAILED) /* and stays failed */
        assert_int_equal(net_stream_read(pair->server, &moved, 1, &moved), NET_FAILED);
    pair_close(pair);
}

/* ---- good ones ---- */

static void move_much(struct pair *pair)
{
    enum { LENGTH = 5000001 };
    uint8_t *bytes = malloc(4 * (size_t)LENGTH);
    assert_non_null(bytes);
    net_random(bytes, 2 * (size_t)LENGTH);
    struct end client = {.stream = pair->client,
                         .out = bytes,
                         .in = bytes + 2 * LENGTH,
                         .out_length = LENGTH,
                         .in_length = LENGTH};
    struct end server = {.stream = pair->server,
                         .out = bytes + LENGTH,
                         .in = bytes + 3 * LENGTH,
                         .out_length = LENGTH,
                         .in_length = LENGTH};
    talk(&client, &server);
    assert_int_equal(client.got, LENGTH);
    assert_int_equal(server.got, LENGTH);
    assert_memory_equal(client.in, server.out, LENGTH);
    assert_memory_equal(server.in, client.out, LENGTH);
    free(bytes);
}

static void test_much_plain(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, NULL, NULL, NULL);
    move_much(&pair);
    works(&pair, "", "");
}

static void test_much_tls(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, -1, false),
              "node.example");
    move_much(&pair);
    works(&pair, "", "node");
}

static void test_tls_good(void **state)
{
    (void)state;
    struct pair pair;
    const char *hosts[] = {NULL, "", "node.example", "localhost", "127.0.0.1"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, -1, false), hosts[i]);
        works(&pair, "", "node");
    }
    /* Mutual; a client's certificate where one is only welcome; and one that was not asked for. */
    pair_open(&pair, tls_make(false, CLIENT, AUTHORITY, false), tls_make(true, SERVER, AUTHORITY, true),
              NULL);
    works(&pair, "the client", "node");
    pair_open(&pair, tls_make(false, CLIENT, AUTHORITY, false), tls_make(true, SERVER, AUTHORITY, false),
              NULL);
    works(&pair, "the client", "node");
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, AUTHORITY, false), NULL);
    works(&pair, "", "node");
    pair_open(&pair, tls_make(false, CLIENT, AUTHORITY, false), tls_make(true, SERVER, -1, false), NULL);
    works(&pair, "", "node");
}

/* ---- refused ones ---- */

static void test_tls_refused_by_client(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, EXPIRED, -1, false), NULL);
    fails(&pair, "refused: certificate has expired", "certificate expired");
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, FUTURE, -1, false), NULL);
    fails(&pair, "refused: certificate is not yet valid", "peer refuses");
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, FOREIGN, -1, false), NULL);
    fails(&pair, "refused: unable to get local issuer certificate", "unknown ca");
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, -1, false),
              "other.example");
    fails(&pair, "not that of \"other.example\"", "peer refuses");
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, -1, false), "127.0.0.2");
    fails(&pair, "not that of \"127.0.0.2\"", "peer refuses");
}

static void test_tls_refused_by_server(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, AUTHORITY, true), NULL);
    fails(&pair, "certificate required", "sent no certificate");
    pair_open(&pair, tls_make(false, EXPIRED, AUTHORITY, false), tls_make(true, SERVER, AUTHORITY, true),
              NULL);
    fails(&pair, "certificate expired", "certificate has expired");
    pair_open(&pair, tls_make(false, FOREIGN, AUTHORITY, false), tls_make(true, SERVER, AUTHORITY, true),
              NULL);
    fails(&pair, "unknown ca", "unable to get local issuer certificate");
    /* Where none is required, one that is given must still be good. */
    pair_open(&pair, tls_make(false, FOREIGN, AUTHORITY, false), tls_make(true, SERVER, AUTHORITY, false),
              NULL);
    fails(&pair, "unknown ca", "unable to get local issuer certificate");
}

static void test_tls_and_plain(void **state)
{
    (void)state;
    struct pair pair;
    pair_open(&pair, NULL, tls_make(true, SERVER, -1, false), NULL);
    struct end client, server;
    talk_shortly(&pair, &client, &server);
    assert_int_equal(server.status, NET_FAILED);
    assert_non_null(strstr(net_stream_error(pair.server), "TLS"));
    pair_close(&pair);
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), NULL, NULL);
    talk_shortly(&pair, &client, &server);
    assert_int_equal(client.status, NET_FAILED);
    assert_non_null(strstr(net_stream_error(pair.client), "does not speak TLS"));
    pair_close(&pair);
}

static void tls_refused(const struct net_tls_options *options, bool server, int code, const char *path,
                        const char *why)
{
    struct error error = {0};
    struct net_tls *tls;
    assert_int_equal(net_tls_create(&tls, server, options, &error), code);
    assert_null(tls);
    if (!strstr(error.text, path) || !strstr(error.text, why))
        fail_msg("refused with: %s", error.text);
}

static void test_tls_files(void **state)
{
    (void)state;
    char both[128];
    snprintf(both, sizeof both, "%s/both", directory);
    const char *certificate = certificate_paths[SERVER], *key = key_paths[SERVER];
    tls_refused(&(struct net_tls_options){0}, true, BANYAN_EINVAL, "", "needs a certificate");
    tls_refused(&(struct net_tls_options){0}, false, BANYAN_EINVAL, "", "needs an authority");
    tls_refused(&(struct net_tls_options){certificate, key, NULL, true}, true, BANYAN_EINVAL, "",
                "need an authority");
    tls_refused(&(struct net_tls_options){both, key, NULL, false}, true, BANYAN_ENOTFOUND, both,
                "No such file");
    tls_refused(&(struct net_tls_options){certificate, both, NULL, false}, true, BANYAN_ENOTFOUND, both,
                "key file");
    tls_refused(&(struct net_tls_options){certificate, key, both, false}, true, BANYAN_ENOTFOUND, both,
                "authority file");
    tls_refused(&(struct net_tls_options){key, key, NULL, false}, true, BANYAN_EINVAL, key, "no certificate");
    tls_refused(&(struct net_tls_options){certificate, NULL, NULL, false}, true, BANYAN_EINVAL, certificate,
                "no private key");
    tls_refused(&(struct net_tls_options){certificate, key_paths[CLIENT], NULL, false}, true, BANYAN_EINVAL,
                key_paths[CLIENT], "not that of the certificate");
    tls_refused(&(struct net_tls_options){.authority_file = key}, false, BANYAN_EINVAL, key,
                "no certificate");
    tls_refused(&(struct net_tls_options){.authority_file = directory}, false, BANYAN_EINVAL, directory,
                "authority");
    assert_true(certificate_write(&made[SERVER], both, both)); /* one file for both is fine */
    struct net_tls *tls;
    assert_int_equal(net_tls_create(&tls, true, &(struct net_tls_options){.certificate_file = both}, NULL),
                     0);
    net_tls_destroy(tls);
    net_tls_destroy(NULL);
    unlink(both);
}

/* ---- ends ---- */

static void open_and_talk(struct pair *pair, bool tls)
{
    struct end client, server;
    if (tls)
        pair_open(pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, -1, false), NULL);
    else
        pair_open(pair, NULL, NULL, NULL);
    talk_shortly(pair, &client, &server);
    assert_int_equal(client.got, 7);
}

static void check_ends(bool tls)
{
    struct pair pair;
    uint8_t byte = 0;
    size_t length = 1;
    open_and_talk(&pair, tls);
    assert_int_equal(net_stream_read(pair.server, &byte, 1, &length), NET_AGAIN);
    assert_int_equal(length, 0);
    assert_int_equal(net_stream_wants(pair.server, false), EPOLLIN);
    assert_int_equal(net_stream_wants(pair.server, true), EPOLLIN | EPOLLOUT);
    assert_int_equal(net_stream_read(pair.server, &byte, 0, &length), NET_OK);
    assert_int_equal(net_stream_write(pair.server, &byte, 0, &length), NET_OK);
    assert_int_equal(net_stream_write(pair.client, "z", 1, &length), NET_OK);
    net_stream_destroy(pair.client);
    pair.client = NULL;
    assert_int_equal(net_stream_read(pair.server, &byte, 1, &length), NET_OK); /* what was sent still comes */
    assert_int_equal(byte, 'z');
    assert_int_equal(net_stream_read(pair.server, &byte, 1, &length), NET_END);
    assert_int_equal(net_stream_read(pair.server, &byte, 1, &length), NET_END);
    enum net_status status = NET_OK; /* without a peer a write is an error, and not the end of this process */
    for (int i = 0; i < 3 && status == NET_OK; i++)
        status = net_stream_write(pair.server, "y", 1, &length);
    assert_int_equal(status, NET_FAILED);
    assert_non_null(strstr(net_stream_error(pair.server), "Broken pipe"));
    pair_close(&pair);
}

static void test_ends_plain(void **state)
{
    (void)state;
    check_ends(false);
}

static void test_ends_tls(void **state)
{
    (void)state;
    check_ends(true);
}

/* A connection that is cut is not one that was closed: what came may be cut short. */
static void test_tls_cut(void **state)
{
    (void)state;
    struct pair pair;
    uint8_t byte;
    size_t length;
    open_and_talk(&pair, true);
    assert_int_equal(shutdown(net_stream_fd(pair.client), SHUT_RDWR), 0);
    assert_int_equal(net_stream_read(pair.server, &byte, 1, &length), NET_FAILED);
    assert_non_null(strstr(net_stream_error(pair.server), "without saying so"));
    pair_close(&pair);
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, -1, false), NULL);
    assert_int_equal(shutdown(net_stream_fd(pair.client), SHUT_RDWR), 0);
    assert_int_equal(net_stream_read(pair.server, &byte, 1, &length), NET_FAILED);
    assert_non_null(strstr(net_stream_error(pair.server), "during the handshake"));
    assert_int_equal(net_stream_write(pair.client, "x", 1, &length), NET_FAILED); /* no SIGPIPE */
    pair_close(&pair);
}

/* Bytes that the descriptor knows nothing of any more. */
static void test_tls_pending(void **state)
{
    (void)state;
    struct pair pair;
    uint8_t bytes[100] = {0};
    size_t length;
    open_and_talk(&pair, true);
    assert_false(net_stream_pending(pair.server));
    assert_int_equal(net_stream_write(pair.client, bytes, 100, &length), NET_OK);
    assert_int_equal(length, 100);
    assert_int_equal(net_stream_read(pair.server, bytes, 1, &length), NET_OK);
    assert_true(net_stream_pending(pair.server));
    assert_int_equal(net_wait(net_stream_fd(pair.server), EPOLLIN, 0), BANYAN_ETIMEOUT);
    assert_int_equal(net_stream_read(pair.server, bytes, 100, &length), NET_OK);
    assert_int_equal(length, 99);
    assert_false(net_stream_pending(pair.server));
    pair_close(&pair);
}

/* The write that began the handshake waits for the peer, and the read behind it takes what the peer says:
 * then the write has nothing more to wait for, and the peer nothing more to say. */
static void test_tls_handshake_ends_in_a_read(void **state)
{
    (void)state;
    struct pair pair;
    uint8_t byte = 0;
    size_t length;
    pair_open(&pair, tls_make(false, -1, AUTHORITY, false), tls_make(true, SERVER, -1, false),
              "node.example");
    assert_int_equal(net_stream_write(pair.client, "x", 1, &length), NET_AGAIN);
    assert_int_equal(net_stream_wants(pair.client, true), EPOLLIN);
    assert_int_equal(net_stream_read(pair.server, &byte, 1, &length), NET_AGAIN);
    assert_int_equal(net_stream_read(pair.client, &byte, 1, &length), NET_AGAIN);
    assert_string_equal(net_stream_subject(pair.client), "node"); /* the handshake is over */
    assert_int_equal(net_stream_wants(pair.client, true), EPOLLIN | EPOLLOUT);
    assert_int_equal(net_stream_wants(pair.client, false), EPOLLIN);
    assert_int_equal(net_stream_write(pair.client, "x", 1, &length), NET_OK);
    assert_int_equal(net_stream_read(pair.server, &byte, 1, &length), NET_OK);
    assert_int_equal(byte, 'x');
    pair_close(&pair);
}

/* Garbage instead of records, at every stage. */
static void test_tls_garbage(void **state)
{
    (void)state;
    for (int round = 0; round < 50; round++) {
        struct pair pair;
        uint8_t bytes[300];
        size_t length;
        enum net_status status = NET_OK;
        if (round % 2)
            open_and_talk(&pair, true);
        else
            pair_open(&pair, NULL, tls_make(true, SERVER, -1, false), NULL);
        net_random(bytes, sizeof bytes);
        if (round % 3) /* looks like a record of a handshake or of data */
            memcpy(bytes, round % 2 ? "\x17\x03\x03\x01\x00" : "\x16\x03\x01\x01\x00", 5);
        assert_int_equal(send(net_stream_fd(pair.client), bytes, sizeof bytes, 0), sizeof bytes);
        assert_int_equal(shutdown(net_stream_fd(pair.client), SHUT_WR), 0);
        for (int i = 0; i < 10 && status != NET_FAILED; i++)
            status = net_stream_read(pair.server, bytes, sizeof bytes, &length);
        assert_int_equal(status, NET_FAILED);
        assert_true(net_stream_error(pair.server)[0] != 0);
        pair_close(&pair);
    }
}

/* ---- threads ---- */

enum { SHARERS = 4, HANDSHAKES_EACH = 10 };
struct sharer {
    struct net_tls *client, *server;
    unsigned worked;
};

/* Counts what worked, for the main thread to check: an assertion that fails here would end the program. */
static void share(void *argument)
{
    struct sharer *sharer = argument;
    for (int i = 0; i < HANDSHAKES_EACH; i++) {
        int sockets[2];
        uint8_t client_in[2] = {0}, server_in[2] = {0};
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
            return;
        struct end client = {.stream = net_stream_create(sockets[0], sharer->client, false, "localhost"),
                             .out = (const uint8_t *)"ab",
                             .in = client_in,
                             .out_length = 2,
                             .in_length = 2};
        struct end server = {.stream = net_stream_create(sockets[1], sharer->server, true, NULL),
                             .out = (const uint8_t *)"cd",
                             .in = server_in,
                             .out_length = 2,
                             .in_length = 2};
        talk(&client, &server);
        sharer->worked += client.got == 2 && server.got == 2 && memcmp(client_in, "cd", 2) == 0;
        net_stream_destroy(client.stream);
        net_stream_destroy(server.stream);
    }
}

static void test_tls_shared_by_threads(void **state)
{
    (void)state;
    struct net_tls *client = tls_make(false, CLIENT, AUTHORITY, false);
    struct net_tls *server = tls_make(true, SERVER, AUTHORITY, true);
    struct sharer sharers[SHARERS];
    struct thread *threads[SHARERS];
    struct error error;
    for (int i = 0; i < SHARERS; i++) {
        sharers[i] = (struct sharer){client, server, 0};
        assert_int_equal(thread_start(&threads[i], share, &sharers[i], &error), 0);
    }
    for (int i = 0; i < SHARERS; i++)
        thread_join(threads[i]);
    for (int i = 0; i < SHARERS; i++)
        assert_int_equal(sharers[i].worked, HANDSHAKES_EACH);
    net_tls_destroy(client);
    net_tls_destroy(server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_much_plain),
        cmocka_unit_test(test_much_tls),
        cmocka_unit_test(test_tls_good),
        cmocka_unit_test(test_tls_refused_by_client),
        cmocka_unit_test(test_tls_refused_by_server),
        cmocka_unit_test(test_tls_and_plain),
        cmocka_unit_test(test_tls_files),
        cmocka_unit_test(test_ends_plain),
        cmocka_unit_test(test_ends_tls),
        cmocka_unit_test(test_tls_cut),
        cmocka_unit_test(test_tls_pending),
        cmocka_unit_test(test_tls_handshake_ends_in_a_read),
        cmocka_unit_test(test_tls_garbage),
        cmocka_unit_test(test_tls_shared_by_threads),
    };
    return cmocka_run_group_tests(tests, make_all, remove_all);
}
