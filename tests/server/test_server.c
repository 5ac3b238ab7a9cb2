/*
 * test_server.c - a server in the test's process, driven by sockets and hiredis: replies and errors as Redis
 * gives them, the order of pipelines, passwords, protected mode, RESP3, CLIENT, INFO and CONFIG, Unix
 * sockets, TLS, SHUTDOWN.
 */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#include <hiredis/hiredis.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/net/certificates.h"
#include "serving.h"

static void say_expect(int fd, const char *request, const char *reply)
{
    assert_true(serving_say(fd, request));
    serving_expect(fd, reply);
}

static void test_replies(void **state)
{
    (void)state;
    static const char *const said[][2] = {
        {"PING\r\n", "+PONG\r\n"},
        {"PING hello\r\n", "$5\r\nhello\r\n"},
        {"PING a b\r\n", "-ERR wrong number of arguments for 'ping' command\r\n"},
        {"ECHO x\r\n", "$1\r\nx\r\n"},
        {"SET a 1\r\n", "+OK\r\n"},
        {"get a\r\n", "$1\r\n1\r\n"},
        {"GET\r\n", "-ERR wrong number of arguments for 'get' command\r\n"},
        {"foo\r\n", "-ERR unknown command 'foo', with args beginning with: \r\n"},
        {"foo a b\r\n", "-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n"},
        {"SELECT 0\r\n", "+OK\r\n"},
        {"SELECT 1\r\n", "-ERR DB index is out of range\r\n"},
        {"SELECT x\r\n", "-ERR value is not an integer or out of range\r\n"},
        {"DBSIZE\r\n", ":1\r\n"},
        {"WAIT 0 0\r\n", ":0\r\n"},
        {"AUTH x\r\n", "-ERR AUTH <password> called without any password configured for the default user. "
                       "Are you sure your "
                       "configuration is correct?\r\n"},
        {"CLIENT NOSUCH\r\n", "-ERR unknown subcommand 'NOSUCH'. Try CLIENT HELP.\r\n"},
        {"CLIENT ID x\r\n", "-ERR wrong number of arguments for 'client|id' command\r\n"},
        {"CLIENT GETNAME\r\n", "$-1\r\n"},
        {"CLIENT SETNAME me\r\n", "+OK\r\n"},
        {"CLIENT GETNAME\r\n", "$2\r\nme\r\n"},
        {"CLIENT SETNAME \"a b\"\r\n",
         "-ERR Client names cannot contain spaces, newlines or special characters.\r\n"},
        {"CLIENT SETINFO LIB-NAME x\r\n", "+OK\r\n"},
        {"CLIENT NO-EVICT ON\r\n", "+OK\r\n"},
        {"CLIENT KILL 1.2.3.4:5\r\n", "-ERR No such client\r\n"},
        {"RESET\r\n", "+RESET\r\n"},
        {"CLIENT GETNAME\r\n", "$-1\r\n"},
        {"HELLO 4\r\n", "-NOPROTO unsupported protocol version\r\n"},
        {"HELLO x\r\n", "-ERR Protocol version is not an integer or out of range\r\n"},
        {"HELLO 2 NONSENSE\r\n", "-ERR Syntax error in HELLO option 'NONSENSE'\r\n"},
        {"CONFIG GET save\r\n", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"},
        {"CONFIG GET appendonly\r\n", "*2\r\n$10\r\nappendonly\r\n$2\r\nno\r\n"},
        {"CONFIG GET requirepass\r\n", "*0\r\n"},
        {"CONFIG SET nosuch 1\r\n",
         "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'\r\n"},
        {"CONFIG SET save x\r\n",
         "-ERR CONFIG SET failed (possibly related to argument 'save') - can't set immutable config\r\n"},
        {"CONFIG SET timeout 100\r\n", "+OK\r\n"},
        {"CONFIG GET TIMEOU?\r\n", "*2\r\n$7\r\ntimeout\r\n$3\r\n100\r\n"},
        {"CONFIG SET timeout 0\r\n", "+OK\r\n"},
        {"CONFIG SET timeout -1\r\n",
         "-ERR CONFIG SET failed (possibly related to argument 'timeout') - argument must be between 0 and "
         "2147483647 inclusive\r\n"},
        {"CONFIG RESETSTAT\r\n", "+OK\r\n"},
        {"COMMAND GETKEYS SET k v\r\n", "*1\r\n$1\r\nk\r\n"},
        {"COMMAND LIST FILTERBY PATTERN ech?\r\n", "*1\r\n$4\r\necho\r\n"},
        {"COMMAND INFO nosuch\r\n", "*1\r\n$-1\r\n"},
        {"OBJECT ENCODING a\r\n", "$3\r\nint\r\n"},
        {"OBJECT ENCODING none\r\n", "$-1\r\n"},
        {"MEMORY USAGE none\r\n", "$-1\r\n"},
        /* None is slow, however busy the machine is. */
        {"CONFIG SET slowlog-log-slower-than -1\r\n", "+OK\r\n"},
        {"SLOWLOG RESET\r\n", "+OK\r\n"},
        {"SLOWLOG GET\r\n", "*0\r\n"},
        {"SLOWLOG LEN\r\n", ":0\r\n"},
        {"LATENCY LATEST\r\n", "*0\r\n"},
        {"DEBUG SLEEP 0\r\n", "+OK\r\n"},
        {"DEBUG SEGFAULT\r\n", "-ERR unknown subcommand 'SEGFAULT'. Try DEBUG HELP.\r\n"},
        {"SHUTDOWN ABORT\r\n", "-ERR No shutdown in progress.\r\n"},
        {"EVAL x 0\r\n", "-ERR unknown command 'EVAL', with args beginning with: 'x' '0' \r\n"},
        {"QUIT\r\n", "+OK\r\n"},
    };
    struct serving serving;
    char rest[64];
    serving_prepare(&serving, 2);
    serving_start(&serving);
    int fd = serving_connect(&serving);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        say_expect(fd, said[i][0], said[i][1]);
    assert_int_equal(serving_expect_end(fd, rest, sizeof rest), 0);
    close(fd);
    serving_end(&serving);
}

/* CONFIG SET of several settings changes all of them or none, whichever is wrong. */
static void test_config_set_many(void **state)
{
    (void)state;
    static const char failed[] = "-ERR CONFIG SET failed (possibly related to argument ";
    struct serving serving;
    char reply[256];
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int fd = serving_connect(&serving);
    say_expect(fd, "CONFIG SET timeout 100 maxclients 50 requirepass \"\"\r\n", "+OK\r\n");
    static const char *const wrong[][2] = {
        {"timeout 200 maxclients 0", "'maxclients') - argument must be between 1 and 4294967295 inclusive"},
        {"timeout 200 requirepass secret maxclients many",
         "'maxclients') - argument couldn't be parsed into an integer"},
        {"timeout 200 save x", "'save') - can't set immutable config"},
        {"timeout 200 Timeout 300", "'Timeout') - duplicate parameter"},
        {"timeout 200 maxclients \"60\\x00\"", "'maxclients') - argument couldn't be parsed into an integer"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(reply, sizeof reply, "CONFIG SET %s\r\n", wrong[i][0]);
        assert_true(serving_say(fd, reply));
        snprintf(reply, sizeof reply, "%s%s\r\n", failed, wrong[i][1]);
        serving_expect(fd, reply);
        say_expect(fd, "CONFIG GET timeout\r\n", "*2\r\n$7\r\ntimeout\r\n$3\r\n100\r\n");
        say_expect(fd, "CONFIG GET maxclients\r\n", "*2\r\n$10\r\nmaxclients\r\n$2\r\n50\r\n");
    }
    /* The first mistake is reported, and the password has not been set. */
    say_expect(fd, "CONFIG SET timeout 200 nosuch 1 save x\r\n",
               "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'\r\n");
    say_expect(
        fd, "CONFIG SET timeout 200 save x nosuch 1\r\n",
        "-ERR CONFIG SET failed (possibly related to argument 'save') - can't set immutable config\r\n");
    int other = serving_connect(&serving);
    say_expect(other, "CONFIG GET timeout\r\n", "*2\r\n$7\r\ntimeout\r\n$3\r\n100\r\n");
    say_expect(fd, "CONFIG SET timeout 200 maxclients 60 requirepass secret\r\n", "+OK\r\n");
    say_expect(fd, "CONFIG GET maxclients\r\n", "*2\r\n$10\r\nmaxclients\r\n$2\r\n60\r\n");
    say_expect(fd, "RESET\r\nPING\r\n", "+RESET\r\n-NOAUTH Authentication required.\r\n");
    close(other);
    close(fd);
    serving_end(&serving);
}

/* ---- the order of pipelines ---- */

#define MODEL_KEYS   24u
#define MODEL_VALUE  200u
#define MODEL_ROUNDS 60u

struct model {
    char values[MODEL_KEYS][MODEL_VALUE + 1];
    bool there[MODEL_KEYS];
    unsigned client;
    char *request, *reply;
    size_t request_length, reply_length;
};

static void add(char *text, size_t *length, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(char *text, size_t *length, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    *length += (size_t)vsprintf(text + *length, format, arguments);
    va_end(arguments);
}

static void add_bulk(struct model *model, const char *text)
{
    add(model->request, &model->request_length, "$%zu\r\n%s\r\n", strlen(text), text);
}

/* Adds a random command to the request, and its expected answer to the reply. */
static void model_step(struct model *model, struct random *random)
{
    unsigned key = (unsigned)random_below(random, MODEL_KEYS);
    char name[32], value[MODEL_VALUE + 1];
    char *now = model->values[key];
    snprintf(name, sizeof name, "c%u:%u", model->client, key);
    size_t length = random_below(random, 4) ? random_below(random, 12) : random_below(random, MODEL_VALUE);
    for (size_t i = 0; i < length; i++)
        value[i] = (char)('a' + random_below(random, 26));
    value[length] = 0;
    switch (random_below(random, 8)) {
    case 0:
    case 1:
        add(model->request, &model->request_length, "*3\r\n$3\r\nSET\r\n");
        add_bulk(model, name);
        add_bulk(model, value);
        strcpy(now, value);
        model->there[key] = true;
        add(model->reply, &model->reply_length, "+OK\r\n");
        break;
    case 2:
        add(model->request, &model->request_length, "*2\r\n$3\r\nDEL\r\n");
        add_bulk(model, name);
        add(model->reply, &model->reply_length, ":%d\r\n", model->there[key]);
        model->there[key] = false;
        *now = 0;
        break;
    case 3:
        add(model->request, &model->request_length, "*2\r\n$6\r\nSTRLEN\r\n");
        add_bulk(model, name);
        add(model->reply, &model->reply_length, ":%zu\r\n", strlen(now));
        break;
    case 4:
        add(model->request, &model->request_length, "STRLEN \"%s\"\r\n", name);
        add(model->reply, &model->reply_length, ":%zu\r\n", strlen(now));
        break;
    default:
        add(model->request, &model->request_length, "*2\r\n$3\r\nGET\r\n");
        add_bulk(model, name);
        if (model->there[key])
            add(model->reply, &model->reply_length, "$%zu\r\n%s\r\n", strlen(now), now);
        else
            add(model->reply, &model->reply_length, "$-1\r\n");
    }
}

static void send_in_pieces(int fd, const char *bytes, size_t length, struct random *random)
{
    for (size_t sent = 0; sent < length;) {
        size_t piece = 1 + random_below(random, random_below(random, 3) ? 40 : 4000);
        if (piece > length - sent)
            piece = length - sent;
        assert_true(serving_send(fd, bytes + sent, piece));
        sent += piece;
    }
}

/* Consecutive SETs are done together: a command between them, or a SET that is wrong, is answered in its
 * place. */
static void test_runs_of_sets(void **state)
{
    (void)state;
    struct serving serving;
    char *request = malloc(1 << 16), *reply = malloc(1 << 16), name[300];
    size_t asked = 0, answered = 0;
    assert_true(request && reply);
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int fd = serving_connect(&serving);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    for (unsigned i = 0; i < 150; i++) {
        add(request, &asked, "SET k%u first%u\r\nSET k%u v%u\r\n", i / 2, i, i / 2, i);
        add(reply, &answered, "+OK\r\n+OK\r\n");
        if (i % 40 == 13) {
            add(request, &asked, "SET %s v\r\nSET k0 a b\r\nSET k\r\nSET k%u again NX\r\nSET \"\" v\r\n",
                name, i / 2);
            add(reply, &answered,
                "-ERR a key has 1 to 255 bytes, this one has 299\r\n-ERR syntax error\r\n"
                "-ERR wrong number of arguments for 'set' command\r\n$-1\r\n"
                "-ERR a key has 1 to 255 bytes, this one has 0\r\n");
        }
        if (i % 40 == 20) {
            add(request, &asked, "GET k%u\r\nGET k0\r\n", i / 2);
            add(reply, &answered, "$%d\r\nv%u\r\n$2\r\nv1\r\n", i < 100 ? 3 : 4, i);
        }
    }
    for (unsigned key = 0; key < 75; key += 20) {
        char value[16];
        int length = snprintf(value, sizeof value, "v%u", 2 * key + 1);
        add(request, &asked, "GET k%u\r\n", key);
        add(reply, &answered, "$%d\r\n%s\r\n", length, value);
    }
    add(request, &asked, "CLIENT REPLY SKIP\r\nSET k1 x\r\nSET k2 y\r\nSET k3 z\r\nMGET k1 k2 k3\r\n");
    add(reply, &answered, "+OK\r\n+OK\r\n*3\r\n$1\r\nx\r\n$1\r\ny\r\n$1\r\nz\r\n");
    say_expect(fd, request, reply);
    say_expect(fd, "DBSIZE\r\n", ":75\r\n");
    close(fd);
    free(request);
    free(reply);
    serving_end(&serving);
}

/* Several connections, each with its own keys, run long pipelines of reads and writes at once. */
static void test_order(void **state)
{
    (void)state;
    enum { CLIENTS = 4, STEPS = 700 };
    static struct model models[CLIENTS];
    int fds[CLIENTS];
    struct random random;
    struct serving serving;
    random_seed(&random, 7);
    serving_prepare(&serving, 2);
    serving_start(&serving);
    for (unsigned c = 0; c < CLIENTS; c++) {
        memset(&models[c], 0, sizeof models[c]);
        models[c].client = c;
        models[c].request = malloc(STEPS * 300);
        models[c].reply = malloc(STEPS * 300);
        assert_true(models[c].request && models[c].reply);
        fds[c] = serving_connect(&serving);
    }
    for (unsigned round = 0; round < MODEL_ROUNDS; round++) {
        for (unsigned c = 0; c < CLIENTS; c++) {
            models[c].request_length = models[c].reply_length = 0;
            for (unsigned step = 1 + (unsigned)random_below(&random, STEPS); step; step--)
                model_step(&models[c], &random);
            send_in_pieces(fds[c], models[c].request, models[c].request_length, &random);
        }
        for (unsigned c = 0; c < CLIENTS; c++)
            serving_expect(fds[c], models[c].reply);
    }
    for (unsigned c = 0; c < CLIENTS; c++) {
        close(fds[c]);
        free(models[c].request);
        free(models[c].reply);
    }
    serving_end(&serving);
}

/* Requests before the end of the connection are run and answered. */
static void test_half_closed(void **state)
{
    (void)state;
    struct serving serving;
    char rest[256];
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int fd = serving_connect(&serving);
    assert_true(serving_say(fd, "SET a 1\r\nDEBUG SLEEP 0.05\r\nGET a\r\nGET"));
    shutdown(fd, SHUT_WR);
    serving_expect_end(fd, rest, sizeof rest);
    assert_string_equal(rest, "+OK\r\n+OK\r\n$1\r\n1\r\n");
    close(fd);
    serving_end(&serving);
}

/* ---- who may do what ---- */

static void test_password(void **state)
{
    (void)state;
    struct serving serving;
    char rest[256];
    serving_prepare(&serving, 1);
    serving.options.password = "sesame street";
    serving_start(&serving);
    int fd = serving_connect(&serving);
    say_expect(fd, "PING\r\n", "-NOAUTH Authentication required.\r\n");
    say_expect(fd, "GET a\r\nGET b\r\n",
               "-NOAUTH Authentication required.\r\n-NOAUTH Authentication required.\r\n");
    say_expect(fd, "HELLO 3\r\n", "-NOAUTH HELLO must be called with the client already authenticated, ");
    serving_expect(fd,
                   "otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the "
                   "client and select the RESP protocol version at the same time\r\n");
    say_expect(fd, "AUTH sesame\r\n", "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    say_expect(fd, "AUTH other \"sesame street\"\r\n",
               "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    say_expect(fd, "AUTH default \"sesame street\"\r\n", "+OK\r\n");
    say_expect(fd, "PING\r\n", "+PONG\r\n");
    say_expect(fd, "RESET\r\nPING\r\n", "+RESET\r\n-NOAUTH Authentication required.\r\n");
    say_expect(fd, "AUTH \"sesame street\"\r\nPING\r\n", "+OK\r\n+PONG\r\n");
    say_expect(fd, "CONFIG SET requirepass changed\r\n", "+OK\r\n");
    int other = serving_connect(&serving);
    say_expect(other, "AUTH \"sesame street\"\r\n",
               "-WRONGPASS invalid username-password pair or user is disabled.\r\n");
    say_expect(other, "HELLO 2 AUTH default changed SETNAME x\r\n", "*14\r\n");
    close(other);
    other = serving_connect(&serving);
    assert_true(serving_say(other, "*11\r\n"));
    serving_expect_end(other, rest, sizeof rest);
    assert_string_equal(rest, "-ERR Protocol error: unauthenticated multibulk length\r\n");
    close(other);
    close(fd);
    serving_end(&serving);
}

static bool own_address(struct sockaddr_in *address)
{
    struct ifaddrs *list = NULL;
    bool found = false;
    if (getifaddrs(&list))
        return false;
    for (struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
        if (!at->ifa_addr || at->ifa_addr->sa_family != AF_INET)
            continue;
        memcpy(address, at->ifa_addr, sizeof *address);
        found = ntohl(address->sin_addr.s_addr) >> 24 != 127;
    }
    freeifaddrs(list);
    return found;
}

/* Connects to an address of this machine that is not a loopback one; nothing leaves the machine. */
static void test_protected_mode(void **state)
{
    (void)state;
    struct serving serving;
    struct sockaddr_in address;
    char rest[1024];
    if (!own_address(&address)) {
        print_message("skipped: this machine has no address but the loopback's\n");
        skip();
    }
    serving_prepare(&serving, 1);
    strcpy(serving.addresses[0].host, "*");
    serving_start(&serving);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    address.sin_port = htons(serving_port(&serving, 0));
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    serving_expect_end(fd, rest, sizeof rest);
    assert_memory_equal(rest, "-DENIED ", 8);
    close(fd);
    fd = serving_connect(&serving);
    say_expect(fd, "PING\r\nCONFIG SET requirepass x\r\n", "+PONG\r\n+OK\r\n");
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    say_expect(fd, "AUTH x\r\nPING\r\n", "+OK\r\n+PONG\r\n");
    close(fd);
    serving_end(&serving);
}

/* ---- protocol 3, CLIENT, INFO ---- */

static void test_hello(void **state)
{
    (void)state;
    struct serving serving;
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int fd = serving_connect(&serving);
    say_expect(fd, "HELLO 3 SETNAME you\r\n",
               "%7\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:3\r\n"
               "$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"
               "$7\r\nmodules\r\n*0\r\n");
    say_expect(fd, "GET none\r\nCLIENT GETNAME\r\nCONFIG GET save\r\n",
               "_\r\n$3\r\nyou\r\n%1\r\n$4\r\nsave\r\n$0\r\n\r\n");
    say_expect(fd, "HELLO 2\r\nGET none\r\n",
               "*14\r\n$6\r\nserver\r\n$5\r\nredis\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:2\r\n"
               "$2\r\nid\r\n:1\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n"
               "$7\r\nmodules\r\n*0\r\n$-1\r\n");
    close(fd);
    serving_end(&serving);
}

static void test_client_reply(void **state)
{
    (void)state;
    struct serving serving;
    serving_prepare(&serving, 1);
    serving_start(&serving);
    int fd = serving_connect(&serving);
    say_expect(fd, "CLIENT REPLY SKIP\r\nSET a 1\r\nGET a\r\n", "$1\r\n1\r\n");
    say_expect(fd, "CLIENT REPLY OFF\r\nSET a 2\r\nGET a\r\nGET a\r\nNOSUCH\r\nCLIENT REPLY ON\r\nGET a\r\n",
               "+OK\r\n$1\r\n2\r\n");
    say_expect(fd, "CLIENT REPLY MAYBE\r\n", "-ERR syntax error\r\n");
    close(fd);
    serving_end(&serving);
}

static redisContext *hiredis_connect(const struct serving *serving)
{
    redisContext *context =
        redisConnectWithTimeout("127.0.0.1", serving_port(serving, 0), (struct timeval){.tv_sec = 20});
    assert_true(context && !context->err);
    return context;
}

static redisReply *ask(redisContext *context, const char *text)
{
    redisReply *reply = redisCommand(context, text);
    assert_non_null(reply);
    return reply;
}

/* The server and its clients see one clock: a time that a client names is never further away than it is. */
static void test_wall_clock(void **state)
{
    (void)state;
    struct serving serving;
    char text[64];
    serving_prepare(&serving, 1);
    serving_start(&serving);
    redisContext *context = hiredis_connect(&serving);
    for (unsigned i = 0; i < 2000; i++) {
        uint64_t at = clock_wall_ms() + 10000;
        snprintf(text, sizeof text, "SET a 1 PXAT %" PRIu64, at);
        freeReplyObject(ask(context, text));
        redisReply *reply = ask(context, "PTTL a");
        uint64_t left = at - clock_wall_ms();
        assert_in_range(reply->integer, left, 10000);
        freeReplyObject(reply);
    }
    redisFree(context);
    serving_end(&serving);
}

static void test_client_list_and_kill(void **state)
{
    (void)state;
    enum { OTHERS = 5 };
    struct serving serving;
    int others[OTHERS];
    char text[256];
    serving_prepare(&serving, 2);
    serving_start(&serving);
    redisContext *context = hiredis_connect(&serving);
    for (unsigned i = 0; i < OTHERS; i++) {
        others[i] = serving_connect(&serving);
        snprintf(text, sizeof text, "CLIENT SETNAME other-%u\r\n", i);
        say_expect(others[i], text, "+OK\r\n");
    }
    redisReply *reply = ask(context, "CLIENT LIST");
    unsigned lines = 0;
    for (const char *at = reply->str; (at = strchr(at, '\n')); at++)
        lines++;
    assert_int_equal(lines, OTHERS + 1);
    for (unsigned i = 0; i < OTHERS; i++) {
        snprintf(text, sizeof text, " name=other-%u ", i);
        assert_non_null(strstr(reply->str, text));
    }
    freeReplyObject(reply);
    reply = ask(context, "CLIENT INFO");
    assert_non_null(strstr(reply->str, " cmd=client|info "));
    freeReplyObject(reply);
    reply = ask(context, "CLIENT KILL TYPE normal SKIPME yes");
    assert_int_equal(reply->integer, OTHERS);
    freeReplyObject(reply);
    for (unsigned i = 0; i < OTHERS; i++) {
        assert_int_equal(serving_expect_end(others[i], text, sizeof text), 0);
        close(others[i]);
    }
    reply = ask(context, "CLIENT ID");
    long long id = reply->integer;
    freeReplyObject(reply);
    snprintf(text, sizeof text, "CLIENT KILL ID %lld SKIPME no", id);
    reply = ask(context, text);
    assert_int_equal(reply->integer, 1);
    freeReplyObject(reply);
    assert_null(redisCommand(context, "PING"));
    redisFree(context);
    serving_end(&serving);
}

static void test_info(void **state)
{
    (void)state;
    struct serving serving;
    serving_prepare(&serving, 2);
    serving_start(&serving);
    redisContext *context = hiredis_connect(&serving);
    for (unsigned i = 0; i < 50; i++)
        freeReplyObject(redisCommand(context, "SET key:%u value", i));
    freeReplyObject(ask(context, "GET key:1"));
    freeReplyObject(ask(context, "GET none"));
    freeReplyObject(ask(context, "NOSUCH"));
    redisReply *reply = ask(context, "INFO everything");
    static const char *const parts[] = {"# Server\r\n",
                                        "redis_version:7.0.0\r\n",
                                        "# Clients\r\n",
                                        "connected_clients:1\r\n",
                                        "# Memory\r\n",
                                        "# Stats\r\n",
                                        "keyspace_hits:1\r\n",
                                        "keyspace_misses:1\r\n",
                                        "# Replication\r\nrole:master\r\n",
                                        "# CPU\r\n",
                                        "# Commandstats\r\n",
                                        "cmdstat_set:calls=50,",
                                        "cmdstat_get:calls=2,",
                                        "# Keyspace\r\n",
                                        "# Banyan\r\n",
                                        "# Cache\r\n",
                                        "cache_budget_bytes:",
                                        "\r\ncache_inner:bytes=",
                                        "\r\ncache_leaves:bytes=0,hits=0,",
                                        "\r\ncache_entries:bytes=0,hits=0,",
                                        "memory_nodes:1\r\n",
                                        "fabric:local\r\n",
                                        "total_error_replies:1\r\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (!strstr(reply->str, parts[i]))
            fail_msg("INFO has no %s: %s", parts[i], reply->str);
    freeReplyObject(reply);
    reply = ask(context, "INFO keyspace");
    assert_string_equal(reply->str, "# Keyspace\r\ndb0:keys=50,expires=0,avg_ttl=0\r\n");
    freeReplyObject(reply);
    struct server_stats stats = serving_stats(&serving);
    assert_int_equal(stats.counters.hits, 1);
    assert_int_equal(stats.counters.misses, 1);
    assert_true(stats.counters.commands >= 54);
    assert_true(stats.tree.operations >= 52);
    assert_int_equal(stats.counters.clients, 1);
    reply = ask(context, "COMMAND COUNT");
    long long count = reply->integer;
    freeReplyObject(reply);
    assert_true(count > 60);
    redisFree(context);
    serving_end(&serving);
}

#define ASKED_BYTES 50000001u

struct asked {
    redisContext *context;
    int reader;
    size_t wanted, received; /* bytes of the reader's replies */
};

/* Has the reader's commands read a long value, one after the other, and looks at INFO meanwhile. */
static bool store_memory_seen(void *context)
{
    struct asked *asked = context;
    static const char name[] = "\r\nmem_store_buffers:";
    static char bytes[1 << 20];
    ssize_t once;
    while ((once = recv(asked->reader, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        asked->received += (size_t)once;
    assert_true(asked->received <= asked->wanted);
    if (asked->received == asked->wanted) {
        assert_true(serving_say(asked->reader, "GET a\r\n"));
        asked->wanted += strlen("$50000001\r\n") + ASKED_BYTES + strlen("\r\n");
    }
    redisReply *reply = ask(asked->context, "INFO memory");
    const char *line = strstr(reply->str, name);
    assert_non_null(line);
    bool seen = strtoull(line + sizeof name - 1, NULL, 10) > 0;
    freeReplyObject(reply);
    return seen;
}

/* INFO has the size of the buffers of commands under way, beyond 1 MiB of each. */
static void test_info_store_memory(void **state)
{
    (void)state;
    struct serving serving;
    serving_prepare(&serving, 2);
    serving_start(&serving);
    struct asked asked = {.context = hiredis_connect(&serving), .reader = serving_connect(&serving)};
    say_expect(asked.reader, "SETRANGE a 50000000 x\r\n", ":50000001\r\n");
    assert_true(serving_until(store_memory_seen, &asked));
    close(asked.reader);
    redisFree(asked.context);
    serving_end(&serving);
}

/* A new index has dense leaves. One of before is served as it is, whatever leaves it has. */
static void test_leaves(void **state)
{
    (void)state;
    for (int kind = -1; kind <= FORMAT_LEAF_KIND_LAST; kind++) {
        struct serving serving;
        struct format_geometry geometry;
        store_geometry(&geometry);
        geometry.leaf_kind = (uint8_t)kind;
        serving_prepare(&serving, 1);
        serving.made_before = kind < 0 ? NULL : &geometry;
        serving_start(&serving);
        int fd = serving_connect(&serving);
        char text[64], reply[80];
        for (unsigned i = 0; i < 500; i++) {
            snprintf(text, sizeof text, "SET key:%u value:%u\r\n", i, i);
            say_expect(fd, text, "+OK\r\n");
        }
        for (unsigned i = 0; i < 500; i++) {
            const int length = snprintf(text, sizeof text, "value:%u", i);
            snprintf(reply, sizeof reply, "$%d\r\n%s\r\n", length, text);
            snprintf(text, sizeof text, "GET key:%u\r\n", i);
            say_expect(fd, text, reply);
        }
        close(fd);
        assert_int_equal(serving_geometry(&serving).leaf_kind, kind < 0 ? FORMAT_LEAF_DENSE : kind);
        serving_end(&serving);
    }
}

/* ---- other ways in ---- */

static void test_unix_socket(void **state)
{
    (void)state;
    struct serving serving;
    char folder[] = "/tmp/banyan-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/socket", folder);
    serving_prepare(&serving, 2);
    serving.addresses[1].kind = NET_UNIX;
    strcpy(serving.addresses[1].path, path);
    serving.options.listen_count = 2;
    serving_start(&serving);
    redisContext *context = redisConnectUnix(path);
    assert_true(context && !context->err);
    redisReply *reply = ask(context, "PING");
    assert_string_equal(reply->str, "PONG");
    freeReplyObject(reply);
    redisFree(context);
    serving_end(&serving);
    assert_int_not_equal(access(path, F_OK), 0); /* it is removed */
    rmdir(folder);
}

/* Sends and receives over TLS, waiting for the socket. */
static void tls_exchange(struct net_stream *stream, const char *request, size_t length, const char *reply,
                         size_t expected)
{
    size_t sent = 0, got = 0, moved;
    char *text = calloc(1, expected + 1);
    assert_non_null(text);
    while (got < expected) {
        enum net_status status = NET_AGAIN;
        if (sent < length &&
            (status = net_stream_write(stream, request + sent, length - sent, &moved)) == NET_OK)
            sent += moved;
        assert_true(status == NET_OK || status == NET_AGAIN);
        enum net_status reads = net_stream_read(stream, text + got, expected - got, &moved);
        if (reads == NET_OK)
            got += moved;
        assert_true(reads == NET_OK || reads == NET_AGAIN);
        if (status == NET_AGAIN && reads == NET_AGAIN)
            assert_int_equal(net_wait(net_stream_fd(stream), net_stream_wants(stream, sent < length),
                                      UINT64_C(20000000000)),
                             0);
    }
    assert_memory_equal(text, reply, expected);
    free(text);
}

/* A short request, which the socket takes at once. */
static void tls_write(struct net_stream *stream, const char *request, size_t length)
{
    size_t moved = 0;
    assert_int_equal(net_stream_write(stream, request, length, &moved), NET_OK);
    assert_int_equal(moved, length);
}

static void test_tls(void **state)
{
    (void)state;
    struct certificate authority, own;
    struct serving serving;
    struct error error = {0};
    struct net_tls *client = NULL;
    char folder[] = "/tmp/banyan-test-XXXXXX", ca[64], pem[64];
    assert_non_null(mkdtemp(folder));
    snprintf(ca, sizeof ca, "%s/ca.pem", folder);
    snprintf(pem, sizeof pem, "%s/own.pem", folder);
    assert_true(certificate_make(&authority, NULL, "authority", NULL, -3600, 3600));
    assert_true(certificate_make(&own, &authority, "server", "DNS:localhost,IP:127.0.0.1", -3600, 3600));
    assert_true(certificate_write(&authority, ca, NULL) && certificate_write(&own, pem, pem));
    serving_prepare(&serving, 1);
    assert_int_equal(net_tls_create(&serving.options.tls, true,
                                    &(struct net_tls_options){.certificate_file = pem}, &error),
                     0);
    assert_int_equal(net_tls_create(&client, false, &(struct net_tls_options){.authority_file = ca}, &error),
                     0);
    strcpy(serving.addresses[1].host, "127.0.0.1");
    serving.options.listen_tls = &serving.addresses[1];
    serving.options.listen_tls_count = 1;
    serving_start(&serving);
    int fd = serving_connect_port(serving_port(&serving, 1)), flags = 1;
    (void)flags;
    struct net_address address = {.kind = NET_TCP, .host = "127.0.0.1", .port = serving_port(&serving, 1)};
    close(fd); /* a client that leaves before the handshake */
    assert_int_equal(net_connect(&address, UINT64_C(20000000000), &fd, &error), 0);
    struct net_stream *stream = net_stream_create(fd, client, false, "127.0.0.1");
    assert_non_null(stream);
    tls_exchange(stream, "PING\r\n", 6, "+PONG\r\n", 7);
    /* Larger than a TLS record and than the buffers: the server must ask OpenSSL for what it holds back. */
    enum { LARGE = 300000 };
    char *request = malloc(LARGE + 64), *reply = malloc(LARGE + 64);
    assert_true(request && reply);
    size_t length = (size_t)sprintf(request, "*2\r\n$4\r\nECHO\r\n$%d\r\n", LARGE);
    size_t expected = (size_t)sprintf(reply, "$%d\r\n", LARGE);
    for (size_t i = 0; i < LARGE; i++)
        request[length + i] = reply[expected + i] = (char)('a' + i % 26);
    memcpy(request + length + LARGE, "\r\n", 2);
    memcpy(reply + expected + LARGE, "\r\n", 2);
    for (unsigned i = 0; i < 3; i++)
        tls_exchange(stream, request, length + LARGE + 2, reply, expected + LARGE + 2);
    /* A record that does not fit into the buffer behind the running command: its rest is inside OpenSSL then.
     */
    length = (size_t)sprintf(request, "DEBUG SLEEP 0.1\r\n");
    expected = (size_t)sprintf(reply, "+OK\r\n");
    tls_write(stream, request, length);
    for (length = 0; length + 6 <= 16384;) {
        length += (size_t)sprintf(request + length, "PING\r\n");
        expected += (size_t)sprintf(reply + expected, "+PONG\r\n");
    }
    tls_exchange(stream, request, length, reply, expected);
    free(request);
    free(reply);
    net_stream_destroy(stream);
    /* A client that does not speak TLS is closed, and others are served. */
    char rest[256];
    fd = serving_connect_port(serving_port(&serving, 1));
    assert_true(serving_say(fd, "PING\r\n\r\n\r\n\r\n"));
    serving_expect_end(fd, rest, sizeof rest);
    close(fd);
    fd = serving_connect(&serving);
    say_expect(fd, "PING\r\n", "+PONG\r\n");
    close(fd);
    serving_end(&serving);
    net_tls_destroy(serving.options.tls);
    net_tls_destroy(client);
    certificate_free(&authority);
    certificate_free(&own);
    unlink(ca);
    unlink(pem);
    rmdir(folder);
}

/* Protected mode admits a client of another machine that has shown a certificate, without a password. */
static void test_tls_clients(void **state)
{
    (void)state;
    struct certificate authority, own;
    struct serving serving;
    struct error error = {0};
    struct net_tls *client = NULL;
    struct sockaddr_in from;
    struct net_address address = {.kind = NET_TCP};
    char folder[] = "/tmp/banyan-test-XXXXXX", ca[64], pem[64];
    int fd = -1;
    if (!own_address(&from)) {
        print_message("skipped: this machine has no address but the loopback's\n");
        skip();
    }
    assert_non_null(mkdtemp(folder));
    snprintf(ca, sizeof ca, "%s/ca.pem", folder);
    snprintf(pem, sizeof pem, "%s/own.pem", folder);
    assert_true(certificate_make(&authority, NULL, "authority", NULL, -3600, 3600));
    assert_true(certificate_make(&own, &authority, "both", "DNS:localhost", -3600, 3600));
    assert_true(certificate_write(&authority, ca, NULL) && certificate_write(&own, pem, pem));
    serving_prepare(&serving, 1);
    struct net_tls_options options = {.certificate_file = pem, .authority_file = ca, .require_peer = true};
    assert_int_equal(net_tls_create(&serving.options.tls, true, &options, &error), 0);
    assert_int_equal(net_tls_create(&client, false, &options, &error), 0);
    strcpy(serving.addresses[1].host, "*");
    serving.options.listen_tls = &serving.addresses[1];
    serving.options.listen_tls_count = 1;
    serving.options.tls_clients = true;
    serving_start(&serving);
    assert_non_null(inet_ntop(AF_INET, &from.sin_addr, address.host, sizeof address.host));
    address.port = serving_port(&serving, 1);
    assert_int_equal(net_connect(&address, UINT64_C(20000000000), &fd, &error), 0);
    struct net_stream *stream = net_stream_create(fd, client, false, NULL);
    assert_non_null(stream);
    tls_exchange(stream, "PING\r\n", 6, "+PONG\r\n", 7);
    net_stream_destroy(stream);
    serving_end(&serving);
    net_tls_destroy(serving.options.tls);
    net_tls_destroy(client);
    certificate_free(&authority);
    certificate_free(&own);
    unlink(ca);
    unlink(pem);
    rmdir(folder);
}

/* ---- the end ---- */

static void test_shutdown(void **state)
{
    (void)state;
    struct serving serving;
    char rest[256];
    serving_prepare(&serving, 2);
    serving_start(&serving);
    int sleeper = serving_connect(&serving), idle = serving_connect(&serving), fd = serving_connect(&serving);
    say_expect(idle, "PING\r\n", "+PONG\r\n");
    say_expect(sleeper, "PING\r\n", "+PONG\r\n");
    assert_true(serving_say(sleeper, "DEBUG SLEEP 3000\r\n"));
    say_expect(fd, "CLIENT NO-TOUCH ON\r\n", "+OK\r\n");
    assert_true(serving_say(fd, "SHUTDOWN NOSAVE\r\n"));
    assert_int_equal(serving_expect_end(fd, rest, sizeof rest), 0);
    assert_int_equal(serving_expect_end(idle, rest, sizeof rest), 0);
    serving_expect_end(sleeper, rest, sizeof rest); /* does not wait for its 3,000 seconds */
    server_join(serving.server);
    close(fd);
    close(idle);
    close(sleeper);
    serving_end(&serving);
}

/* A server that was never started, and one whose address is taken. */
static void test_no_start(void **state)
{
    (void)state;
    struct serving serving;
    struct server *second = NULL;
    struct error error = {0};
    serving_prepare(&serving, 1);
    serving_start(&serving);
    struct net_address taken = {.kind = NET_TCP, .host = "127.0.0.1", .port = serving_port(&serving, 0)};
    struct server_options options = {.listen = &taken, .listen_count = 1, .threads = 1};
    assert_true(server_create(&second, serving.compute, &options, &error) < 0);
    assert_null(second);
    assert_non_null(strstr(error.text, "127.0.0.1"));
    taken.port = 0;
    assert_int_equal(server_create(&second, serving.compute, &options, &error), 0);
    server_destroy(second);
    serving_end(&serving);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies),        cmocka_unit_test(test_config_set_many),
        cmocka_unit_test(test_order),          cmocka_unit_test(test_runs_of_sets),
        cmocka_unit_test(test_half_closed),    cmocka_unit_test(test_password),
        cmocka_unit_test(test_protected_mode), cmocka_unit_test(test_hello),
        cmocka_unit_test(test_client_reply),   cmocka_unit_test(test_client_list_and_kill),
        cmocka_unit_test(test_info),           cmocka_unit_test(test_info_store_memory),
        cmocka_unit_test(test_unix_socket),    cmocka_unit_test(test_tls),
        cmocka_unit_test(test_tls_clients),    cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_leaves),         cmocka_unit_test(test_no_start),
        cmocka_unit_test(test_wall_clock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
