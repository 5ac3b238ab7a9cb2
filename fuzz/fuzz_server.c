/*
 * fuzz_server.c - the RESP server's commands about itself (CONFIG, CLIENT, HELLO, AUTH, COMMAND, INFO,
 * MEMORY, LATENCY, ...) on a real server: whole conversations over a Unix socket, with arguments out of
 * names, options, globs, numbers and any bytes.
 *
 * Oracle: the answer consists of well-formed replies, at most one for each command; afterwards another
 * connection is served, and can put the settings back.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/local.h"
#include "fuzz/fuzz_replies.h"
#include "memory/memory.h"
#include "server/server.h"

#define COMMANDS_MAX 24u
#define ANSWER_MAX   (4u << 20)

static char path[64]; /* of the socket, whose file is removed at once */
static int keeper;    /* a connection of its own */
static char *answer;

static struct memory_node *memory;
static struct fabric *fabric;
static struct tree_compute *compute;
static struct server *server;

/* Else what only the fibers' stacks refer to would count as leaked. */
static void stop(void)
{
    server_stop(server);
    server_join(server);
    server_destroy(server);
    tree_compute_destroy(compute);
    fabric_close(fabric);
    memory_node_destroy(memory);
    close(keeper);
    free(answer);
}

static int dial(void)
{
    static const struct timeval patience = {.tv_sec = 5};
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    memcpy(name.sun_path, path, sizeof path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    fuzz_must(fd >= 0 && !connect(fd, (const struct sockaddr *)&name, sizeof name), "the server is gone");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static void start(void)
{
    struct error error = {0};
    struct tree_switches switches;
    struct pool_worker *worker;
    struct tree_session *session;
    static struct net_address address = {.kind = NET_UNIX};
    const struct memory_options pool = {.pool_bytes = UINT64_C(64) << 20, .chunk_bytes = UINT64_C(1) << 20};
    const struct server_options options = {
        .listen = &address, .listen_count = 1, .threads = 1, .fibers = 4, .sweep_entries = UINT32_MAX};
    log_set_level(LOG_ERROR);
    answer = malloc(ANSWER_MAX);
    snprintf(address.path, sizeof address.path, "/tmp/banyan-fuzz-server-%d.sock", (int)getpid());
    fuzz_must(!memory_node_create(&memory, &pool, &error), "%s", error.text);
    const struct fabric_target *target = memory_node_target(memory);
    fabric = fabric_local_create(&target, 1, 1, &error);
    fuzz_must(fabric && !tree_switches_preset(&switches, "banyan", &error), "%s", error.text);
    switches.cache_bytes = 1u << 20;
    fuzz_must(!tree_compute_create(&compute, fabric, &switches, &error) &&
                  !pool_worker_create(&worker, tree_compute_pool(compute), &error) &&
                  !tree_session_create(&session, compute, worker, &error),
              "%s", error.text);
    fuzz_must(!tree_format(session), "format");
    tree_session_destroy(session);
    pool_worker_destroy(worker);
    fuzz_must(!server_create(&server, compute, &options, &error) && !server_start(server, &error), "%s",
              error.text);
    int file = open(address.path, O_PATH | O_CLOEXEC);
    fuzz_must(file >= 0 && !unlink(address.path), "no socket");
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    keeper = dial();
    atexit(stop);
}

/* ---- requests ---- */

struct text {
    char bytes[65536];
    size_t length;
    unsigned requests;
};

static void append(struct text *text, const void *bytes, size_t length)
{
    if (length > sizeof text->bytes - text->length)
        length = sizeof text->bytes - text->length;
    memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
}

static void append_bulk(struct text *text, const void *bytes, size_t length)
{
    char head[32];
    append(text, head, (size_t)snprintf(head, sizeof head, "$%zu\r\n", length));
    append(text, bytes, length);
    append(text, "\r\n", 2);
}

/* Excludes requests that stop the server, make it wait, or set a password. */
static const char *const commands[] = {"CONFIG",  "CLIENT",  "HELLO", "AUTH",   "COMMAND", "INFO",   "MEMORY",
                                       "OBJECT",  "PING",    "ECHO",  "SELECT", "RESET",   "LOLWUT", "WAIT",
                                       "SLOWLOG", "LATENCY", "TIME",  "DBSIZE", "ROLE",    "QUIT"};
static const char *const words[] = {"GET",        "SET",     "RESETSTAT",  "REWRITE",
                                    "HELP",       "timeout", "maxclients", "proto-max-bulk-len",
                                    "save",       "*",       "max*",       "[a-z]*",
                                    "0",          "1",       "5",          "100",
                                    "10000",      "-1",      "4294967296", "1kb",
                                    "512mb",      "LIST",    "KILL",       "ID",
                                    "INFO",       "SETNAME", "GETNAME",    "SETINFO",
                                    "LIB-NAME",   "LIB-VER", "NO-EVICT",   "NO-TOUCH",
                                    "REPLY",      "ON",      "OFF",        "SKIP",
                                    "TYPE",       "NORMAL",  "ADDR",       "LADDR",
                                    "SKIPME",     "YES",     "NO",         "USER",
                                    "default",    "2",       "3",          "AUTH",
                                    "COUNT",      "DOCS",    "GETKEYS",    "FILTERBY",
                                    "PATTERN",    "MODULE",  "ACLCAT",     "USAGE",
                                    "SAMPLES",    "DOCTOR",  "ENCODING",   "FREQ",
                                    "get",        "set",     "mset",       "key",
                                    "everything", "server",  "clients",    "commandstats",
                                    "keyspace",   "memory",  "",           "a b"};

static bool forbidden(const uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i + 4 <= length; i++)
        if (!strncasecmp((const char *)bytes + i, "pass", 4))
            return true;
    return false;
}

static void append_argument(struct text *text, struct fuzz_input *input)
{
    uint8_t how = fuzz_byte(input), bytes[255];
    if (how < 200) {
        const char *word = words[how % (sizeof words / sizeof *words)];
        append_bulk(text, word, strlen(word));
        return;
    }
    size_t length = how < 250 ? how % 20u : 200u + how % 56;
    fuzz_take(input, bytes, length);
    append_bulk(text, bytes, forbidden(bytes, length) ? 0 : length);
}

static void make_text(struct text *text, struct fuzz_input *input)
{
    text->length = text->requests = 0;
    while (text->requests < COMMANDS_MAX && input->length && text->length < sizeof text->bytes - 4096) {
        char head[16];
        uint8_t which = fuzz_byte(input), count = which / 32 + 1u;
        const char *name = commands[which % 32 % (sizeof commands / sizeof *commands)];
        append(text, head, (size_t)snprintf(head, sizeof head, "*%u\r\n", count));
        append_bulk(text, name, strlen(name));
        for (unsigned i = 1; i < count; i++)
            append_argument(text, input);
        text->requests++;
    }
}

/* ---- answers ---- */

static size_t take_answers(int fd)
{
    size_t got = 0;
    ssize_t some;
    while (got < ANSWER_MAX && (some = recv(fd, answer + got, ANSWER_MAX - got, 0)) > 0)
        got += (size_t)some;
    return got;
}

static void judge(const struct text *text, size_t length)
{
    const char *at = answer, *end = answer + length;
    unsigned replies = 0;
    while (at < end) {
        const char *next = fuzz_reply_end(at, end, 0, 0);
        fuzz_must(next, "no reply: %.*s", (int)(end - at < 200 ? end - at : 200), at);
        at = next;
        replies++;
    }
    fuzz_must(replies <= text->requests, "%u replies to %u requests", replies, text->requests);
}

static ssize_t ask_keeper(void)
{
    static const char text[] = "CONFIG SET maxclients 10000 timeout 0 proto-max-bulk-len 67000000\r\n";
    ssize_t sent = send(keeper, text, sizeof text - 1, MSG_NOSIGNAL);
    return sent == (ssize_t)sizeof text - 1 ? recv(keeper, answer, 200, 0) : -1;
}

static void put_back(void)
{
    ssize_t got = ask_keeper();
    /* CLIENT KILL may have closed it: connects again, when the server has seen that there is room. */
    for (unsigned tries = 0; got != 5 && tries < 200; tries++) {
        close(keeper);
        usleep(tries * 100);
        keeper = dial();
        got = ask_keeper();
    }
    fuzz_must(got == 5 && !memcmp(answer, "+OK\r\n", 5), "the server answers '%.*s'", got > 0 ? (int)got : 0,
              answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct text text;
    struct fuzz_input input = {bytes, length};
    if (!answer)
        start();
    make_text(&text, &input);
    int fd = dial();
    size_t sent = 0;
    while (sent < text.length) {
        ssize_t some = send(fd, text.bytes + sent, text.length - sent, MSG_NOSIGNAL);
        if (some <= 0) /* after QUIT or CLIENT KILL */
            break;
        sent += (size_t)some;
    }
    shutdown(fd, SHUT_WR);
    judge(&text, take_answers(fd));
    close(fd);
    put_back();
    return 0;
}
