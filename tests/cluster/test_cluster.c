/*
 * test_cluster.c - the real program as its users run it: memory nodes and compute nodes as processes, their
 * settings, their refusals, their tools. One scene for each test.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "cluster/process.h"
#include "cluster/talk.h"
#include "net/certificates.h"

#define SECOND UINT64_C(1000000000)

static struct process_result result; /* of the last process_run: too large for a stack */

/* ---- clusters ---- */

static struct process *start_memory(struct scene *scene, const char *name, const char *more,
                                    const char *value)
{
    return process_start(scene, name,
                         ARGUMENTS("memory", "--listen",
                                   text_of("127.0.0.1:0,unix:%s", scene_path(scene, "%s.sock", name)),
                                   "--size", "64M", more, value));
}

/* Both addresses: TCP, and a socket that keeps its name over restarts. */
static const char *listen_of(const struct scene *scene, const char *name)
{
    return text_of("unix:%s,127.0.0.1:0", scene_path(scene, "%s.sock", name));
}

static struct process *start_compute(struct scene *scene, const char *name, const char *memory,
                                     const char *more)
{
    return process_start(
        scene, name,
        ARGUMENTS("compute", "--memory", memory, "--listen", listen_of(scene, name), "--threads", "1", more));
}

static void run_compute(struct scene *scene, const char *memory, const char *more)
{
    process_run(scene, NULL,
                ARGUMENTS("compute", "--memory", memory, "--listen", listen_of(scene, "refused"), more),
                &result);
}

static void demand_check(struct scene *scene, const char *memory, int code)
{
    process_run(scene, NULL, ARGUMENTS("check", "--memory", memory), &result);
    if (result.code != code)
        fail_msg("check: %d\n%s%s", result.code, result.output, result.error);
}

static const char *value_of(int number, size_t length)
{
    static char value[4096];
    memset(value, 'a' + number % 26, length);
    snprintf(value, 8, "%06d", number);
    value[6] = '.';
    return value;
}

static void set(redisContext *client, int number, size_t length)
{
    redisReply *reply = redisCommand(client, "SET key%d %b", number, value_of(number, length), length);
    assert_non_null(reply);
    assert_string_equal(reply->str, "OK");
    freeReplyObject(reply);
}

static void demand_value(redisContext *client, int number, size_t length)
{
    redisReply *reply = redisCommand(client, "GET key%d", number);
    assert_non_null(reply);
    assert_int_equal(reply->len, length);
    assert_memory_equal(reply->str, value_of(number, length), length);
    freeReplyObject(reply);
}

/* ---- tests ---- */

/* What one compute node writes the other reads, over each way to the memory. */
static void share(struct scene *scene, const char *memory, const char *second_more, const char *fabric)
{
    struct process *first = start_compute(scene, "first", memory, "--format"),
                   *second = start_compute(scene, "second", memory, second_more);
    assert_contains(second->said, fabric);
    redisContext *a = client_of(first, 0), *b = client_of(second, 1);
    for (int i = 0; i < 300; i++)
        set(i % 2 ? a : b, i, i % 3 ? 10 : 3000);
    for (int i = 0; i < 300; i++)
        demand_value(i % 2 ? b : a, i, i % 3 ? 10 : 3000);
    assert_string_equal(ask(b, "DEL key7"), "1");
    assert_string_equal(ask(a, "GET key7"), "(nil)");
    assert_string_equal(ask(a, "DBSIZE"), "299");
    assert_string_equal(ask(b, "RANGECOUNT [key1 (key2"), "111");
    demand_check(scene, memory, 0);
    assert_contains(result.output, "299 entries");
    redisFree(a);
    redisFree(b);
    assert_int_equal(process_stop(second), 0);
    b = client_of(first, 0);
    ask(b, "SHUTDOWN");
    redisFree(b);
    assert_int_equal(process_wait(first), 0);
    scene->count -= 2;
    demand_check(scene, memory, 0);
    assert_contains(result.output, "sound");
    assert_lacks(result.output, "lost");
}

static void test_share(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory", NULL, NULL);
    const char *tcp = address_text(memory, 0), *local = address_text(memory, 1);
    share(scene, tcp, NULL, "fabric tcp");
    share(scene, local, "--copy", "fabric ");
    share(scene, local, NULL, "fabric local");
    process_run(scene, NULL, ARGUMENTS("check", "--json", "--memory", local), &result);
    assert_int_equal(result.code, 0);
    json_t *json = json_loads(result.output, 0, NULL);
    assert_true(json_is_true(json_object_get(json, "sound")));
    assert_int_equal(json_integer_value(json_object_get(json, "entries")), 299);
    assert_int_equal(json_array_size(json_object_get(json, "problems")), 0);
    json_decref(json);
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

static void test_format(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory", NULL, NULL),
                   *other = start_memory(scene, "other", NULL, NULL);
    const char *address = address_text(memory, 0),
               *both = keep(text_of("%s,%s", address_text(memory, 0), address_text(other, 0)));
    run_compute(scene, address, NULL);
    assert_int_equal(result.code, 2);
    assert_contains(result.error, address);
    assert_contains(result.error, "is empty");
    assert_contains(result.error, "--format");
    struct process *compute = start_compute(scene, "compute", address, "--format");
    redisContext *client = client_of(compute, 0);
    assert_string_equal(ask(client, "SET a 1"), "OK");
    run_compute(scene, address, "--format");
    assert_int_equal(result.code, 1);
    assert_contains(result.error, "connected");
    run_compute(scene, both, NULL); /* the other is empty: of no cluster */
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, address_text(other, 0));
    assert_contains(result.error, "is empty");
    assert_string_equal(ask(client, "GET a"), "1"); /* nothing of this has disturbed it */
    redisFree(client);
    process_stop(compute);
    compute = start_compute(scene, "two", both, "--format");
    client = client_of(compute, 0);
    assert_string_equal(ask(client, "DBSIZE"), "0");
    assert_contains(compute->said, "2 memory nodes");
    redisFree(client);
    compute = start_compute(scene, "three", address, NULL); /* the home node tells it of the other */
    client = client_of(compute, 0);
    assert_string_equal(ask(client, "DBSIZE"), "0");
    assert_contains(compute->said, "2 memory nodes");
    redisFree(client);
    run_compute(scene, address_text(other, 0), NULL); /* the home node is not among them */
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, address_text(other, 0));
    scene->passed = true;
}

/* ---- a memory node is lost ---- */

#define LOST_KEYS 4000

struct tally {
    int good, down, other;
    uint64_t longest;
};

static struct tally read_all(redisContext *client)
{
    struct tally tally = {0};
    for (int i = 0; i < LOST_KEYS; i++) {
        uint64_t began = now_ns();
        const char *text = ask(client, "GET key%d", i);
        uint64_t taken = now_ns() - began;
        if (taken > tally.longest)
            tally.longest = taken;
        if (!strncmp(text, "-CLUSTERDOWN ", 13))
            tally.down++;
        else if (!strcmp(text, text_of("value%d", i)))
            tally.good++;
        else
            tally.other++;
    }
    return tally;
}

static bool says_format(void *context)
{
    for (int i = 0; i < LOST_KEYS; i += 40) {
        const char *text = ask(context, "GET key%d", i);
        if (!strncmp(text, "-CLUSTERDOWN ", 13) && strstr(text, "--format"))
            return true;
    }
    return false;
}

static void test_lost_memory(void **state)
{
    struct scene *scene = *state;
    struct process *memories[2];
    for (int i = 0; i < 2; i++)
        memories[i] = start_memory(scene, i ? "one" : "zero", NULL, NULL);
    const char *both = keep(text_of("%s,%s", address_text(memories[0], 0), address_text(memories[1], 0))),
               *lost = address_text(memories[1], 0);
    const char *const again[] = {"memory", "--listen", lost + 6, "--size", "64M", NULL};
    /* An owner would answer from its cache, without the memory nodes. */
    struct process *compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", both, "--listen", listen_of(scene, "compute"),
                                "--threads", "1", "--timeout", "5000", "--own", "none", "--format"));
    redisContext *client = client_of(compute, 0);
    for (int i = 0; i < LOST_KEYS; i++)
        assert_string_equal(ask(client, "SET key%d value%d", i, i), "OK");
    process_kill(memories[1]);
    struct tally tally = read_all(client);
    assert_int_equal(tally.other, 0);
    assert_true(tally.down > 0);
    assert_true(tally.good > 0);
    assert_true(tally.longest < 20 * SECOND); /* the time-out, and much for slow machines */
    assert_contains(ask(client, "PING"), "PONG");
    process_restart(scene, memories[1], again);
    wait_until(says_format, client, "the message that says to format");
    tally = read_all(client);
    assert_int_equal(tally.other, 0);
    assert_true(tally.down > 0 && tally.good > 0);
    run_compute(scene, both, NULL);
    assert_int_not_equal(result.code, 0);
    assert_contains(result.error, "--format");
    run_compute(scene, both, "--format"); /* the first is still connected to the other memory node */
    assert_int_not_equal(result.code, 0);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    compute = start_compute(scene, "formatted", both, "--format");
    client = client_of(compute, 0);
    assert_string_equal(ask(client, "DBSIZE"), "0");
    assert_string_equal(ask(client, "SET key1 value1"), "OK");
    assert_string_equal(ask(client, "GET key1"), "value1");
    redisFree(client);
    process_stop(compute);
    demand_check(scene, both, 0);
    scene->passed = true;
}

static bool says_down(void *context)
{
    const char **text = ((void **)context)[1];
    *text = ask(((void **)context)[0], "GET key1");
    return strncmp(*text, "-CLUSTERDOWN ", 13) == 0;
}

/* The owner of all that is asked for answers from its cache as long as its read lease lasts, then says which
 * memory node it cannot reach. */
static void test_lost_home(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory", NULL, NULL);
    const char *address = address_text(memory, 0), *text;
    struct process *compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", address, "--listen", listen_of(scene, "compute"),
                                "--threads", "1", "--timeout", "5000", "--own", "auto", "--format"));
    redisContext *client = client_of(compute, 0);
    void *gone[] = {client, &text};
    assert_string_equal(ask(client, "SET key1 value1"), "OK");
    for (int i = 0; i < 20; i++) /* it is cached then */
        assert_string_equal(ask(client, "GET key1"), "value1");
    process_kill(memory);
    wait_until(says_down, gone, "a client to hear that the memory node is gone");
    assert_contains(text, address);
    assert_string_equal(ask(client, "PING"), "PONG");
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    scene->passed = true;
}

/* ---- settings ---- */

static void test_configuration(void **state)
{
    struct scene *scene = *state;
    const char *file = scene_write(scene, "banyan.conf",
                                   "clients-max = 77 # of everybody\n[serve]\nsize = 32M\nthreads = 1\n"
                                   "sweep-entries = 11\nlisten = 127.0.0.1:0\n[memory]\nthreads = 1\n");
    scene->environment[0] = text_of("BANYAN_CONFIG=%s", file);
    scene->environment[1] = "BANYAN_SWEEP_ENTRIES=22";
    scene->environment[2] = "BANYAN_IDLE_TIMEOUT=100000";
    struct process *serve = process_start(scene, "serve", ARGUMENTS("serve", "--idle-timeout", "200000"));
    redisContext *client = client_of(serve, 0);
    static const char *const wanted[][2] = {
        {"clients-max", "77"}, {"sweep-entries", "22"}, {"idle-timeout", "200000"}, {"size", "33554432"}};
    for (unsigned i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        redisReply *reply = redisCommand(client, "CONFIG GET %s", wanted[i][0]);
        assert_non_null(reply);
        assert_int_equal(reply->elements, 2);
        if (strcmp(reply->element[1]->str, wanted[i][1]) && strcmp(reply->element[1]->str, "32M"))
            fail_msg("%s is %s", wanted[i][0], reply->element[1]->str);
        freeReplyObject(reply);
    }
    redisFree(client);
    assert_int_equal(process_stop(serve), 0);
    scene->passed = true;
}

static void refuse(struct scene *scene, const char *const *arguments, int code, const char *part)
{
    process_run(scene, NULL, arguments, &result);
    if (result.code != code || !strstr(result.error, part))
        fail_msg("%s %s: ended with %d (wanted %d, \"%s\"): %s", arguments[0], arguments[1], result.code,
                 code, part, result.error);
}

static void test_bad_settings(void **state)
{
    struct scene *scene = *state;
    const char *file = keep(scene_write(scene, "bad.conf", "size = 1G\nno-such-setting = 1\n")),
               *open = keep(scene_write(scene, "open.secret", "0123456789abcdef\n")),
               *shorter = keep(scene_write(scene, "short.secret", "abc\n"));
    chmod(open, 0644);
    refuse(scene, ARGUMENTS("serve", "--size", "12"), 2, "size");
    refuse(scene, ARGUMENTS("serve", "--no-such-flag"), 2, "no-such-flag");
    refuse(scene, ARGUMENTS("serve", "--listen", "127.0.0.1:99999"), 2, "99999");
    refuse(scene, ARGUMENTS("serve", "--config", file), 2, "bad.conf:2");
    refuse(scene, ARGUMENTS("serve", "--config", "/no/such/file"), 2, "/no/such/file");
    refuse(scene, ARGUMENTS("serve", "--password-file", open), 2, "open.secret");
    refuse(scene, ARGUMENTS("serve", "--password-file", shorter), 2, "short.secret");
    refuse(scene, ARGUMENTS("serve", "--tls-listen", "127.0.0.1:0"), 2, "tls-certificate");
    refuse(scene, ARGUMENTS("compute"), 2, "--memory");
    refuse(scene, ARGUMENTS("compute", "--memory", "127.0.0.1:1", "--fabric-certificate", file), 2,
           "fabric-authority");
    refuse(scene, ARGUMENTS("compute", "--memory", "127.0.0.1:1", "--timeout", "500"), 1, "127.0.0.1:1");
    refuse(scene, ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--tls-certificate", "/no/such.pem"), 1,
           "/no/such.pem");
    refuse(scene, ARGUMENTS("memory", "--listen", "unix:/no/such/folder/socket"), 2, "/no/such/folder");
    refuse(scene, ARGUMENTS("check", "--memory", "unix:/no/such/socket", "--timeout", "500"), 1,
           "/no/such/socket");
    refuse(scene, ARGUMENTS("no-such-command"), 2, "no-such-command");
    scene->environment[0] = "BANYAN_THREADS=many";
    refuse(scene, ARGUMENTS("serve"), 2, "BANYAN_THREADS");
    scene->passed = true;
}

/* ---- security ---- */

static void test_guard(void **state)
{
    struct scene *scene = *state;
    const char *secret = keep(scene_write(scene, "secret", "correct horse battery\n"));
    refuse(scene, ARGUMENTS("serve", "--listen", "0.0.0.0:0", "--size", "32M"), 2, "password-file");
    refuse(scene, ARGUMENTS("serve", "--listen", "*:0", "--size", "32M"), 2, "password-file");
    refuse(scene, ARGUMENTS("serve", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0"), 2, "password-file");
    refuse(scene, ARGUMENTS("memory", "--listen", "0.0.0.0:0", "--size", "32M"), 2, "secret-file");
    refuse(scene, ARGUMENTS("memory", "--listen", "[::]:0", "--size", "32M"), 2, "secret-file");
    struct process *serve = process_start(
        scene, "guarded",
        ARGUMENTS("serve", "--listen", "0.0.0.0:0", "--size", "32M", "--password-file", secret));
    struct net_address address = process_address(serve, 0);
    strcpy(address.host, "127.0.0.1");
    redisContext *client = client_connect(&address);
    assert_contains(ask(client, "GET a"), "-NOAUTH");
    assert_contains(ask(client, "AUTH wrong"), "-WRONGPASS");
    assert_contains(ask(client, "GET a"), "-NOAUTH");
    redisReply *reply = redisCommand(client, "AUTH %s", "correct horse battery");
    assert_string_equal(reply->str, "OK");
    freeReplyObject(reply);
    assert_string_equal(ask(client, "GET a"), "(nil)");
    redisFree(client);
    assert_int_equal(process_stop(serve), 0);
    scene->passed = true;
}

/* The secret is in none of what others can see of a process. */
static void demand_hidden(struct scene *scene, const struct process *process, const char *secret)
{
    char line[4096];
    int fd = open(text_of("/proc/%d/cmdline", process->pid), O_RDONLY);
    ssize_t length = read(fd, line, sizeof line);
    close(fd);
    assert_true(length > 0);
    assert_null(memmem(line, (size_t)length, secret, strlen(secret)));
    char *errors = process_errors(scene, process);
    assert_lacks(errors, secret);
    assert_lacks(process->said, secret);
    free(errors);
}

static void test_secrets(void **state)
{
    struct scene *scene = *state;
    const char *secret = keep(scene_write(scene, "secret", "the-fabric-secret-of-this-test\n")),
               *wrong = keep(scene_write(scene, "wrong", "another-secret-that-is-wrong\n")),
               *password = keep(scene_write(scene, "password", "the-password-of-clients\n"));
    struct process *memory = start_memory(scene, "memory", "--secret-file", secret);
    const char *tcp = address_text(memory, 0), *local = address_text(memory, 1);
    const char *const ways[] = {tcp, local};
    for (int i = 0; i < 2; i++) {
        refuse(scene, ARGUMENTS("compute", "--memory", ways[i], "--listen", "127.0.0.1:0", "--format"), 2,
               ways[i]);
        assert_contains(result.error, "secret");
        process_run(scene, NULL,
                    ARGUMENTS("compute", "--memory", ways[i], "--listen", "127.0.0.1:0", "--format",
                              "--secret-file", wrong),
                    &result);
        assert_int_not_equal(result.code, 0);
        assert_contains(result.error, "secret");
        assert_lacks(result.error, "another-secret");
    }
    struct process *compute = process_start(
        scene, "compute",
        ARGUMENTS("compute", "--memory", tcp, "--listen", listen_of(scene, "compute"), "--secret-file",
                  secret, "--password-file", password, "--log-level", "debug", "--format"));
    redisContext *client = client_of(compute, 0);
    assert_contains(ask(client, "GET a"), "-NOAUTH");
    assert_string_equal(ask(client, "AUTH the-password-of-clients"), "OK");
    assert_string_equal(ask(client, "SET a 1"), "OK");
    assert_lacks(ask(client, "INFO all"), "the-password");
    redisReply *reply = redisCommand(client, "CONFIG GET *");
    for (size_t i = 0; i < reply->elements; i++) {
        assert_lacks(reply->element[i]->str, "the-password-of");
        assert_lacks(reply->element[i]->str, "the-fabric-secret");
    }
    freeReplyObject(reply);
    demand_hidden(scene, memory, "the-fabric-secret-of-this-test");
    demand_hidden(scene, compute, "the-fabric-secret-of-this-test");
    demand_hidden(scene, compute, "the-password-of-clients");
    redisFree(client);
    process_run(scene, NULL, ARGUMENTS("check", "--memory", tcp, "--secret-file", secret), &result);
    assert_int_equal(result.code, 0);
    process_run(scene, NULL, ARGUMENTS("check", "--memory", tcp), &result);
    assert_int_not_equal(result.code, 0);
    scene->passed = true;
}

/* ---- TLS ---- */

struct papers {
    const char *authority, *server, *server_expired, *client, *client_expired, *client_foreign,
        *authority_foreign;
};

static const char *issue(struct scene *scene, const char *name, const struct certificate *authority,
                         long from, long to, struct certificate *keep)
{
    struct certificate made;
    const char *path = strdup(scene_path(scene, "%s.pem", name));
    assert_true(certificate_make(&made, authority, name, "DNS:localhost,IP:127.0.0.1", from, to));
    assert_true(certificate_write(&made, path, path));
    if (keep)
        *keep = made;
    else
        certificate_free(&made);
    return path;
}

static void make_papers(struct scene *scene, struct papers *papers)
{
    struct certificate authority, foreign;
    long day = 86400;
    papers->authority = issue(scene, "authority", NULL, -day, day, &authority);
    papers->authority_foreign = issue(scene, "foreign", NULL, -day, day, &foreign);
    papers->server = issue(scene, "server", &authority, -day, day, NULL);
    papers->server_expired = issue(scene, "server-expired", &authority, -2 * day, -day, NULL);
    papers->client = issue(scene, "client", &authority, -day, day, NULL);
    papers->client_expired = issue(scene, "client-expired", &authority, -2 * day, -day, NULL);
    papers->client_foreign = issue(scene, "client-foreign", &foreign, -day, day, NULL);
    certificate_free(&authority);
    certificate_free(&foreign);
}

static void free_papers(struct papers *papers)
{
    const char **paths = (const char **)(void *)papers;
    for (size_t i = 0; i < sizeof *papers / sizeof *paths; i++)
        free((void *)(uintptr_t)paths[i]);
}

static struct process *start_tls_memory(struct scene *scene, const char *name, const char *certificate,
                                        const char *authority)
{
    return process_start(scene, name,
                         ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M", "--tls-certificate",
                                   certificate, "--tls-key", certificate, "--tls-authority", authority));
}

static void refuse_tls(struct scene *scene, const char *memory, const char *certificate,
                       const char *authority, const char *part)
{
    process_run(scene, NULL,
                certificate
                    ? ARGUMENTS("compute", "--memory", memory, "--listen", "127.0.0.1:0", "--timeout", "3000",
                                "--format", "--fabric-authority", authority, "--fabric-certificate",
                                certificate, "--fabric-key", certificate)
                    : ARGUMENTS("compute", "--memory", memory, "--listen", "127.0.0.1:0", "--timeout", "3000",
                                "--format", authority ? "--fabric-authority" : NULL, authority),
                &result);
    if (result.code == 0 || !strstr(result.error, part) || !strstr(result.error, memory))
        fail_msg("with %s: ended with %d: %s", certificate ? certificate : "no certificate", result.code,
                 result.error);
}

static void test_fabric_tls(void **state)
{
    struct scene *scene = *state;
    struct papers papers;
    make_papers(scene, &papers);
    struct process *memory = start_tls_memory(scene, "memory", papers.server, papers.authority),
                   *expired = start_tls_memory(scene, "expired", papers.server_expired, papers.authority);
    const char *address = address_text(memory, 0);
    assert_contains(memory->said, "TLS");
    refuse_tls(scene, address, papers.client_expired, papers.authority, "TLS");
    refuse_tls(scene, address, papers.client_foreign, papers.authority, "TLS");
    refuse_tls(scene, address, NULL, papers.authority, "TLS");
    refuse_tls(scene, address, NULL, NULL, "");
    refuse_tls(scene, address, papers.client, papers.authority_foreign, "TLS");
    refuse_tls(scene, address_text(expired, 0), papers.client, papers.authority, "expired");
    struct process *compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", address, "--listen", listen_of(scene, "compute"),
                                "--format", "--fabric-authority", papers.authority, "--fabric-certificate",
                                papers.client, "--fabric-key", papers.client));
    redisContext *client = client_of(compute, 0);
    for (int i = 0; i < 50; i++)
        set(client, i, 2000);
    for (int i = 0; i < 50; i++)
        demand_value(client, i, 2000);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    assert_int_equal(process_stop(memory), 0);
    free_papers(&papers);
    scene->passed = true;
}

/* "PING" over TLS; the answer, or why there was none. */
static const char *tls_ping(const struct net_address *address, const char *certificate, const char *authority)
{
    struct net_tls_options options = {
        .certificate_file = certificate, .key_file = certificate, .authority_file = authority};
    struct net_tls *tls;
    struct error error;
    int fd;
    char buffer[64];
    size_t moved = 0, put = 0;
    const char *text = "(nothing)";
    if (net_tls_create(&tls, false, &options, &error) || net_connect(address, 10 * SECOND, &fd, &error))
        fail_hard("%s", error.text);
    struct net_stream *stream = net_stream_create(fd, tls, false, "localhost");
    enum net_status status = NET_AGAIN;
    while (put == 0 && (status = net_stream_write(stream, "PING\r\n", 6, &put)) == NET_AGAIN)
        if (net_wait(fd, net_stream_wants(stream, true), 10 * SECOND))
            break;
    while (put && (status = net_stream_read(stream, buffer, sizeof buffer, &moved)) == NET_AGAIN)
        if (net_wait(fd, net_stream_wants(stream, false), 10 * SECOND))
            break;
    if (status == NET_OK)
        text = text_of("%.*s", (int)moved, buffer);
    else if (status == NET_FAILED)
        text = text_of("%s", net_stream_error(stream));
    net_stream_destroy(stream);
    net_tls_destroy(tls);
    return text;
}

static void test_client_tls(void **state)
{
    struct scene *scene = *state;
    struct papers papers;
    make_papers(scene, &papers);
    struct process *serve =
        process_start(scene, "serve",
                      ARGUMENTS("serve", "--listen", "127.0.0.1:0", "--tls-listen", "127.0.0.1:0", "--size",
                                "32M", "--tls-certificate", papers.server, "--tls-key", papers.server,
                                "--tls-authority", papers.authority, "--tls-clients"));
    struct net_address address = process_address(serve, 1);
    assert_string_equal(tls_ping(&address, papers.client, papers.authority), "+PONG\r\n");
    assert_string_not_equal(tls_ping(&address, papers.client_expired, papers.authority), "+PONG\r\n");
    assert_string_not_equal(tls_ping(&address, papers.client_foreign, papers.authority), "+PONG\r\n");
    assert_string_not_equal(tls_ping(&address, NULL, papers.authority), "+PONG\r\n");
    assert_contains(tls_ping(&address, papers.client, papers.authority_foreign), "certificate");
    redisContext *plain = client_of(serve, 1); /* no TLS at the TLS port */
    assert_contains(ask(plain, "PING"), "(no reply");
    redisFree(plain);
    plain = client_of(serve, 0);
    assert_string_equal(ask(plain, "PING"), "PONG");
    redisFree(plain);
    assert_int_equal(process_stop(serve), 0);
    free_papers(&papers);
    scene->passed = true;
}

/* ---- corruption ---- */

/* The pool of a memory node: the largest memfd that it has open. */
static uint8_t *map_pool(const struct process *memory, size_t *length)
{
    const char *folder = text_of("/proc/%d/fd", memory->pid);
    DIR *list = opendir(folder);
    int best = -1;
    *length = 0;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char target[256] = "";
        struct stat status;
        const char *path = text_of("%s/%s", folder, entry->d_name);
        if (readlink(path, target, sizeof target - 1) < 0 || !strstr(target, "memfd:"))
            continue;
        int fd = open(path, O_RDWR);
        if (fd >= 0 && !fstat(fd, &status) && (size_t)status.st_size > *length) {
            if (best >= 0)
                close(best);
            best = fd;
            *length = (size_t)status.st_size;
        } else if (fd >= 0) {
            close(fd);
        }
    }
    closedir(list);
    assert_true(best >= 0);
    uint8_t *pool = mmap(NULL, *length, PROT_READ | PROT_WRITE, MAP_SHARED, best, 0);
    assert_ptr_not_equal(pool, MAP_FAILED);
    close(best);
    return pool;
}

static uint8_t *find(uint8_t *pool, size_t length, const char *text)
{
    uint8_t *place = memmem(pool, length, text, strlen(text));
    assert_non_null(place);
    return place;
}

static void test_corruption(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory", NULL, NULL);
    const char *address = address_text(memory, 1);
    struct process *compute = start_compute(scene, "compute", address, "--format");
    redisContext *client = client_of(compute, 0);
    size_t length;
    for (int i = 0; i < 500; i++)
        assert_string_equal(ask(client, "SET key%03d small%03d", i, i), "OK");
    redisReply *reply = redisCommand(client, "SET record RECORD-BEGINS%b", value_of(0, 4000), (size_t)4000);
    assert_string_equal(reply->str, "OK");
    freeReplyObject(reply);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    demand_check(scene, address, 0);
    uint8_t *pool = map_pool(memory, &length);
    uint8_t *record = find(pool, length, "RECORD-BEGINS");
    record[2000] ^= 1; /* one bit of a record */
    demand_check(scene, address, 1);
    assert_contains(result.output, "BROKEN");
    assert_contains(result.output, "record");
    assert_contains(result.output, "broken");
    record[2000] ^= 1;
    demand_check(scene, address, 0);
    uint8_t *entry = find(pool, length, "small250");
    uint8_t saved[64];
    memcpy(saved, entry, sizeof saved);
    memset(entry, 0xa5, sizeof saved); /* garbage into a leaf */
    demand_check(scene, address, 1);
    assert_contains(result.output, "BROKEN");
    process_run(scene, NULL, ARGUMENTS("check", "--json", "--memory", address), &result);
    assert_int_equal(result.code, 1);
    json_t *json = json_loads(result.output, 0, NULL);
    assert_true(json_is_false(json_object_get(json, "sound")));
    assert_true(json_array_size(json_object_get(json, "problems")) > 0);
    json_decref(json);
    memcpy(entry, saved, sizeof saved);
    demand_check(scene, address, 0);
    munmap(pool, length);
    scene->passed = true;
}

/* ---- looking at it ---- */

static void test_views(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory", "--http", "127.0.0.1:0");
    struct process *compute =
        process_start(scene, "compute",
                      ARGUMENTS("compute", "--memory", address_text(memory, 0), "--listen",
                                listen_of(scene, "compute"), "--http", "127.0.0.1:0", "--format"));
    redisContext *client = client_of(compute, 0);
    assert_string_equal(ask(client, "SET a 1"), "OK");
    redisFree(client);
    char *text = http_get(process_http(compute), "/metrics", NULL);
    assert_contains(text, "HTTP/1.1 200");
    assert_contains(text, "\nbanyan_round_trips_total ");
    free(text);
    text = http_get(process_http(compute), "/", NULL);
    assert_contains(text, "HTTP/1.1 200");
    assert_contains(text, "text/html");
    free(text);
    text = http_get(process_http(memory), "/metrics", NULL);
    assert_contains(text, "\nbanyan_memory_used_bytes ");
    free(text);
    text = http_get(process_http(memory), "/no-such-page", NULL);
    assert_contains(text, "HTTP/1.1 404");
    free(text);
    process_run(scene, NULL,
                ARGUMENTS("top", "--once", "--json", "--interval", "100", address_text(compute, 0)), &result);
    assert_int_equal(result.code, 0);
    json_t *json = json_loads(result.output, 0, NULL);
    const json_t *server = json_array_get(json, 0);
    assert_true(json_is_true(json_object_get(server, "alive")));
    assert_int_equal(json_array_size(json_object_get(server, "memory_nodes")), 1);
    json_decref(json);
    process_run(scene, NULL, ARGUMENTS("top", "--once", "--interval", "100", "unix:/no/such.sock"), &result);
    assert_int_equal(result.code, 1);
    scene->passed = true;
}

/* A compute node that caches no inner node and owns no range: its first lookup is a walk, unless the walk was
 * refused or lost (then the nodes were read, and are cached). */
static struct process *start_walker(struct scene *scene, const char *address)
{
    return process_start(scene, "compute",
                         ARGUMENTS("compute", "--memory", address, "--listen", listen_of(scene, "compute"),
                                   "--threads", "1", "--walks", "always", "--own", "none"));
}

/* What `top` tells of a server's walks at its first memory node. */
static json_t *walks_told(struct scene *scene, const struct process *compute)
{
    process_run(scene, NULL,
                ARGUMENTS("top", "--once", "--json", "--interval", "100", address_text(compute, 0)), &result);
    json_t *json = json_loads(result.output, 0, NULL);
    json_t *node = json_array_get(json_object_get(json_array_get(json, 0), "memory_nodes"), 0);
    json_incref(node);
    json_decref(json);
    return node;
}

/* A compute node that has nothing cached leaves its ways to the memory node, and says so. */
static void test_walks_view(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory", NULL, NULL);
    const char *address = keep(address_text(memory, 0));
    struct process *first =
        process_start(scene, "first",
                      ARGUMENTS("compute", "--memory", address, "--listen", listen_of(scene, "first"),
                                "--threads", "1", "--format", "--walks", "never", "--own", "none"));
    redisContext *client = client_of(first, 0);
    for (int i = 0; i < 6000; i++)
        set(client, i, 10);
    redisFree(client);
    struct process *compute = NULL;
    for (bool told = false; !told;) {
        if (compute) {
            assert_int_equal(process_stop(compute), 0);
            scene->count--;
        }
        compute = start_walker(scene, address);
        client = client_of(compute, 0);
        demand_value(client, 97, 10);
        redisFree(client);
        json_t *node = walks_told(scene, compute);
        told = json_real_value(json_object_get(node, "walk_us")) > 0;
        assert_true(json_real_value(json_object_get(node, "walk_percent")) == 100.0);
        json_decref(node);
    }
    process_run(scene, NULL, ARGUMENTS("top", "--once", "--interval", "100", address_text(compute, 0)),
                &result);
    assert_contains(result.output, "walks of");
    assert_contains(result.output, "100.0%");
    /* One that never walks has no share to tell. */
    process_run(scene, NULL, ARGUMENTS("top", "--once", "--interval", "100", address_text(first, 0)),
                &result);
    assert_int_equal(result.code, 0);
    assert_null(strstr(result.output, "100.0%"));
    scene->passed = true;
}

/* While a compute node serves the index: it finds nothing from then on, and refuses writes. */
static void test_drop(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory", NULL, NULL);
    const char *address = keep(address_text(memory, 0));
    struct process *compute = start_compute(scene, "compute", address, "--format");
    redisContext *client = client_of(compute, 0);
    for (int i = 0; i < 300; i++)
        set(client, i, i % 3 ? 10 : 3000);
    refuse(scene, ARGUMENTS("drop", "--memory", address, "--yes"), 2, "no index");
    refuse(scene, ARGUMENTS("drop", "--memory", address, "redis"), 2, "--yes");
    refuse(scene, ARGUMENTS("drop", "--memory", address, "--yes", "rediz"), 1, "there are: redis");
    refuse(scene, ARGUMENTS("drop", "--memory", "unix:/no/such/socket", "--yes", "redis"), 1, "/no/such");
    demand_value(client, 1, 10);
    process_run(scene, NULL, ARGUMENTS("drop", "--memory", address, "--yes", "redis"), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "'redis' was dropped");
    assert_string_equal(ask(client, "GET key1"), "(nil)");
    assert_contains(ask(client, "SET key1 new"), "was dropped");
    refuse(scene, ARGUMENTS("drop", "--memory", address, "--yes", "redis"), 1, "nor any other");
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    demand_check(scene, address, 0);
    assert_contains(result.output, "0 indexes");
    assert_contains(result.output, "memory: 1 blocks"); /* of the map of ranges */
    scene->count--;
    compute = start_compute(scene, "compute", address, NULL);
    client = client_of(compute, 0);
    assert_string_equal(ask(client, "DBSIZE"), "0");
    set(client, 1, 3000);
    demand_value(client, 1, 3000);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    demand_check(scene, address, 0);
    scene->passed = true;
}

static void test_redis_cli(void **state)
{
    struct scene *scene = *state;
    if (access("/usr/bin/redis-cli", X_OK)) {
        print_message("redis-cli is not installed\n");
        scene->passed = true;
        skip();
    }
    struct process *serve =
        process_start(scene, "serve", ARGUMENTS("serve", "--listen", "127.0.0.1:0", "--size", "64M"));
    struct net_address address = process_address(serve, 0);
    const char *port = text_of("%u", address.port);
    static const char *const session[][4] = {{"SET", "fruit:apple", "red", "OK"},
                                             {"APPEND", "fruit:apple", "+green", "9"},
                                             {"SET", "fruit:banana", "yellow", "OK"},
                                             {"INCRBY", "count", "41", "41"},
                                             {"RANGE", "[fruit:", "(fruit;", "fruit:apple\nfruit:banana"}};
    for (unsigned i = 0; i < sizeof session / sizeof *session; i++) {
        process_run(scene, "redis-cli",
                    ARGUMENTS("-p", port, session[i][0], session[i][1], session[i][2],
                              strcmp(session[i][0], "RANGE") ? NULL : "KEYS"),
                    &result);
        assert_int_equal(result.code, 0);
        assert_string_equal(result.output, text_of("%s\n", session[i][3]));
    }
    process_run(scene, "redis-cli", ARGUMENTS("-3", "-p", port, "NEXTKEY", "fruit:apple"), &result);
    assert_contains(result.output, "fruit:banana");
    process_run(scene, "redis-cli", ARGUMENTS("-p", port, "SHUTDOWN"), &result);
    assert_int_equal(process_wait(serve), 0);
    scene->passed = true;
}

int main(int count, char **arguments)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, scene_set_up, scene_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_share),         TEST(test_format),       TEST(test_lost_memory), TEST(test_lost_home),
        TEST(test_configuration), TEST(test_bad_settings), TEST(test_guard),       TEST(test_secrets),
        TEST(test_fabric_tls),    TEST(test_client_tls),   TEST(test_corruption),  TEST(test_drop),
        TEST(test_views),         TEST(test_walks_view),   TEST(test_redis_cli),
    };
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
