/*
 * test_rdma_cluster.c - the real program over rdma:// as its users run it: memory nodes and compute nodes as
 * processes, what is left of them when they are killed or stopped, and what a program gets that asks for
 * what is not there. One scene for each test. Runs as root in a machine with Soft-RoCE at
 * $BANYAN_RDMA_ADDRESS.
 *
 * `test_rdma_cluster huge-pages` is the one test that needs a machine with some; `test_rdma_cluster members`
 * is the one of memory nodes that join and leave.
 *
 * Started as `test_rdma_cluster --as-nobody KILOBYTES PROGRAM ARGUMENT...` it becomes that program as the
 * user nobody, who may lock so much memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "cluster/process.h"
#include "cluster/talk.h"
#include "fabric/liar.h"
#include "fabric/wire.h"

#define NOBODY 65534
#define KEYS   600

static struct process_result result; /* of the last process_run: too large for a stack */
static const char *nic;              /* $BANYAN_RDMA_ADDRESS */

static int setup(void **state)
{
    int status = scene_set_up(state);
    if (!status)
        scene_write(*state, "secret", "the secret of this cluster\n");
    return status;
}

/* ---- clusters ---- */

static const char *secret_of(const struct scene *scene)
{
    return scene_path(scene, "secret");
}

/* A pool is locked in memory as a whole: a small one. */
static struct process *start_memory(struct scene *scene, const char *name)
{
    return process_start(scene, name,
                         ARGUMENTS("memory", "--listen", text_of("rdma://%s:0", nic), "--size", "64M",
                                   "--chunk-size", "1M", "--secret-file", secret_of(scene), "--http",
                                   "127.0.0.1:0"));
}

/* Emulated machines are slow: leases are long where no compute node is to be fenced. */
static struct process *start_compute(struct scene *scene, const char *name, const char *memory,
                                     const char *lease, const char *more)
{
    return process_start(scene, name,
                         ARGUMENTS("compute", "--memory", memory, "--listen",
                                   text_of("unix:%s", scene_path(scene, "%s.sock", name)), "--threads", "1",
                                   "--secret-file", secret_of(scene), "--lease", lease, "--timeout", "20000",
                                   more));
}

#define LONG_LEASE "30000"

static void demand_check(struct scene *scene, const char *memory)
{
    process_run(scene, NULL, ARGUMENTS("check", "--memory", memory, "--secret-file", secret_of(scene)),
                &result);
    if (result.code != 0)
        fail_msg("check: %d\n%s%s", result.code, result.output, result.error);
    assert_contains(result.output, "sound");
}

static const char *value_of(int number)
{
    static char value[2001];
    int length = number % 3 ? 12 : 2000;
    memset(value, 'a' + number % 26, (size_t)length);
    snprintf(value, 8, "%06d", number);
    value[6] = '.';
    value[length] = 0;
    return value;
}

static void load(redisContext *client)
{
    for (int i = 0; i < KEYS; i++)
        redisAppendCommand(client, "SET key%d %s", i, value_of(i));
    for (int i = 0; i < KEYS; i++) {
        redisReply *reply;
        assert_int_equal(redisGetReply(client, (void **)&reply), REDIS_OK);
        assert_string_equal(reply->str, "OK");
        freeReplyObject(reply);
    }
}

static void demand_values(redisContext *client)
{
    for (int i = 0; i < KEYS; i++)
        redisAppendCommand(client, "GET key%d", i);
    for (int i = 0; i < KEYS; i++) {
        redisReply *reply;
        assert_int_equal(redisGetReply(client, (void **)&reply), REDIS_OK);
        assert_int_equal(reply->type, REDIS_REPLY_STRING);
        assert_string_equal(reply->str, value_of(i));
        freeReplyObject(reply);
    }
}

static void stop_all(struct process *first, struct process *second, struct process *third)
{
    assert_int_equal(process_stop(first), 0);
    if (second)
        assert_int_equal(process_stop(second), 0);
    if (third)
        assert_int_equal(process_stop(third), 0);
}

/* ---- a cluster ---- */

static void test_two_processes(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory");
    const char *address = address_text(memory, 0);
    assert_contains(address, "rdma://");
    struct process *first = start_compute(scene, "first", address, LONG_LEASE, "--format"),
                   *second = start_compute(scene, "second", address, LONG_LEASE, NULL);
    assert_contains(second->said, "fabric rdma");
    redisContext *a = client_of(first, 0), *b = client_of(second, 0);
    load(a);
    demand_values(b);
    assert_string_equal(ask(b, "DEL key7"), "1");
    assert_string_equal(ask(a, "GET key7"), "(nil)");
    demand_check(scene, address); /* with both connected */
    redisFree(a);
    assert_int_equal(process_stop(first), 0);
    assert_string_equal(ask(b, "DBSIZE"), text_of("%d", KEYS - 1));
    redisFree(b);
    assert_int_equal(process_stop(second), 0);
    demand_check(scene, address);
    assert_lacks(result.output, "lost");
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

/* In a guest with huge pages: the pool is made of them, registered, filled, and emptied for another cluster.
 */
static void test_huge_pages(void **state)
{
    struct scene *scene = *state;
    struct process *memory =
        process_start(scene, "memory",
                      ARGUMENTS("memory", "--listen", text_of("rdma://%s:0", nic), "--size", "64M",
                                "--chunk-size", "1M", "--secret-file", secret_of(scene), "--huge-pages"));
    const char *address = address_text(memory, 0);
    char *errors = process_errors(scene, memory);
    assert_contains(errors, "on explicit huge pages");
    free(errors);
    struct process *compute = start_compute(scene, "compute", address, LONG_LEASE, "--format");
    redisContext *client = client_of(compute, 0);
    load(client);
    demand_values(client);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    demand_check(scene, address);
    compute = start_compute(scene, "again", address, LONG_LEASE, "--format");
    client = client_of(compute, 0);
    assert_string_equal(ask(client, "DBSIZE"), "0");
    load(client);
    demand_values(client);
    redisFree(client);
    stop_all(compute, memory, NULL);
    scene->passed = true;
}

static void test_bench(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory");
    process_run(scene, NULL,
                ARGUMENTS("bench", "--fabric", "rdma", "--memory", address_text(memory, 0), "--secret-file",
                          secret_of(scene), "--keys", "2000", "--operations", "1000", "--workload",
                          "write-intensive", "--quiet", "--json", "-"),
                &result);
    if (result.code != 0)
        fail_msg("bench: %d\n%s%s", result.code, result.output, result.error);
    assert_contains(result.output, "\"rdma\"");
    printf("%s", result.error); /* the table */
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

/* ---- processes that go away ---- */

static uint64_t memory_counter(const struct process *memory, const char *name)
{
    char *text = http_get(process_http(memory), "/metrics", NULL);
    const char *at = strstr(text, text_of("\n%s ", name));
    if (!at)
        fail_msg("the metrics have no %s:\n%s", name, text);
    uint64_t value = strtoull(at + strlen(name) + 2, NULL, 10);
    free(text);
    return value;
}

static bool was_fenced(void *memory)
{
    return memory_counter(memory, "banyan_memory_fenced_total") > 0;
}

/* Queue pairs of reliable connections that a process has, as the kernel counts them: by the threads that made
 * them. */
static unsigned queues_of(const struct process *process)
{
    FILE *list = popen("rdma resource show qp", "r");
    char line[512];
    unsigned count = 0;
    assert_non_null(list);
    while (fgets(line, sizeof line, list)) {
        const char *owner = strstr(line, " pid ");
        struct stat status;
        if (owner && strstr(line, " type RC ") &&
            !stat(text_of("/proc/%d/task/%ld", process->pid, strtol(owner + 5, NULL, 10)), &status))
            count++;
    }
    assert_int_equal(pclose(list), 0);
    return count;
}

/* A compute node that is stopped longer than its lease is fenced: its queue pairs at the memory node are gone
 * while it still has its own. When it goes on, none of what it does is lost or done twice. */
static void test_stopped(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory");
    const char *address = address_text(memory, 0);
    struct process *survivor = start_compute(scene, "survivor", address, LONG_LEASE, "--format");
    redisContext *b = client_of(survivor, 0);
    load(b);
    unsigned before = queues_of(memory);
    struct process *stopped = start_compute(scene, "stopped", address, "2000", NULL);
    redisContext *a = client_of(stopped, 0);
    assert_string_equal(ask(a, "SET counter 0"), "OK");
    for (int i = 0; i < 20; i++)
        assert_string_equal(ask(a, "INCR counter"), text_of("%d", i + 1));
    unsigned with = queues_of(memory), own = queues_of(stopped);
    assert_true(with > before && own > 0);
    process_signal(stopped, SIGSTOP);
    wait_until(was_fenced, memory, "the stopped compute node to be fenced");
    assert_int_equal(queues_of(memory), before);
    assert_int_equal(queues_of(stopped), own); /* and yet they lead nowhere */
    assert_string_equal(ask(b, "INCR counter"), "21");
    process_signal(stopped, SIGCONT);
    /* It may have to say that it does not know, but never counts what it could not have read. */
    const char *text;
    int tries = 0;
    while (strncmp(text = ask(a, "INCR counter"), "-", 1) == 0)
        if (++tries > 10000)
            fail_msg("the stopped one does not come back: %s", text);
    char *end;
    long counted = strtol(text, &end, 10);
    assert_true(*end == 0 && counted >= 22);
    assert_string_equal(ask(b, "GET counter"), text_of("%ld", counted));
    assert_true(memory_counter(memory, "banyan_memory_fenced_total") >= 1);
    redisFree(a);
    redisFree(b);
    stop_all(stopped, survivor, NULL);
    demand_check(scene, address);
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

struct memory_gone {
    redisContext *client;
    const char *text;
};

static bool says_down(void *context)
{
    struct memory_gone *gone = context;
    gone->text = ask(gone->client, "GET key1");
    return strncmp(gone->text, "-CLUSTERDOWN ", 13) == 0;
}

/* Clients hear what is the matter, and their compute node goes on and ends in order. */
static void test_memory_killed(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory");
    const char *address = address_text(memory, 0);
    struct process *compute = start_compute(scene, "compute", address, "2000", "--format");
    struct memory_gone gone = {.client = client_of(compute, 0)};
    load(gone.client);
    process_kill(memory);
    wait_until(says_down, &gone, "a client to hear that the memory node is gone");
    assert_contains(gone.text, address);
    const char *text =
        ask(gone.client, "SET key1 x"); /* refused, or of unknown outcome; never acknowledged */
    if (strncmp(text, "-CLUSTERDOWN ", 13) != 0 && strncmp(text, "-UNKNOWN ", 9) != 0)
        fail_msg("a write without a memory node: %s", text);
    assert_string_equal(ask(gone.client, "PING"), "PONG");
    redisFree(gone.client);
    assert_int_equal(process_stop(compute), 0);
    scene->passed = true;
}

/* ---- what is refused ---- */

static void demand_refusal(const char *what, const char *first, const char *second, const char *third)
{
    const char *const parts[] = {first, second, third};
    if (result.code == 0 || result.code > 2)
        fail_msg("%s: ended with %d: %s", what, result.code, result.error);
    for (unsigned i = 0; i < 3; i++)
        if (parts[i] && !strstr(result.error, parts[i]))
            fail_msg("%s: \"%s\" is not in: %s", what, parts[i], result.error);
    printf("%s: status %d: %s", what, result.code, result.error);
}

static void run_memory(struct scene *scene, const char *more, const char *value)
{
    process_run(scene, NULL,
                ARGUMENTS("memory", "--listen", text_of("rdma://%s:0", nic), "--size", "16M", "--chunk-size",
                          "1M", "--secret-file", secret_of(scene), more, value),
                &result);
}

static void run_compute(struct scene *scene, const char *memory, const char *more, const char *value)
{
    process_run(scene, NULL,
                ARGUMENTS("compute", "--memory", memory, "--listen",
                          text_of("unix:%s", scene_path(scene, "refused.sock")), "--secret-file",
                          secret_of(scene), "--timeout", "5000", "--format", more, value),
                &result);
}

static void demand_command(const char *command)
{
    if (system(command) != 0)
        fail_msg("'%s' fails", command);
}

/* Nobody may have the device open: the kernel would wait for them. */
static void test_no_device(void **state)
{
    struct scene *scene = *state;
    demand_command("rdma link delete rxe0");
    run_memory(scene, NULL, NULL);
    demand_command("rdma link add rxe0 type rxe netdev dummy0");
    demand_refusal("memory node without a device", "no RDMA device", "rdma link", NULL);
    struct process *memory = start_memory(scene, "memory");
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

static void test_wrong_settings(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory");
    const char *address = address_text(memory, 0);
    run_memory(scene, "--rdma-gid", "99");
    demand_refusal("memory node, wrong GID", "rxe0", "GID", "99");
    run_compute(scene, address, "--rdma-gid", "99");
    demand_refusal("compute node, wrong GID", "rxe0", "GID", "99");
    run_compute(scene, address, "--rdma-device", "mlx5_7");
    demand_refusal("compute node, wrong device", "mlx5_7", "rxe0", NULL);
    run_compute(scene, address, "--rdma-port", "9");
    demand_refusal("compute node, wrong port", "rxe0", "--rdma-port", NULL);
    struct process *compute = start_compute(scene, "compute", address, LONG_LEASE, "--format");
    stop_all(compute, memory, NULL); /* none of it has disturbed it */
    scene->passed = true;
}

/* The program as nobody, with so much memory that may be locked. */
static void run_as_nobody(struct scene *scene, const char *kilobytes, const char *const *arguments)
{
    const char *all[40] = {"--as-nobody", kilobytes, getenv("BANYAN_PROGRAM")};
    unsigned used = 3;
    for (unsigned i = 0; arguments[i]; i++)
        all[used++] = arguments[i];
    process_run(scene, "/proc/self/exe", all, &result);
}

static const char *nobodys_secret(struct scene *scene)
{
    const char *path = scene_write(scene, "nobodys-secret", "the secret of this cluster\n");
    if (chmod(scene->folder, 0777) || chown(path, NOBODY, NOBODY))
        fail_msg("%s: %s", path, strerror(errno));
    return path;
}

static void memory_as_nobody(struct scene *scene, const char *kilobytes)
{
    run_as_nobody(scene, kilobytes,
                  ARGUMENTS("memory", "--listen", text_of("rdma://%s:0", nic), "--size", "16M",
                            "--chunk-size", "1M", "--secret-file", nobodys_secret(scene)));
}

static void compute_as_nobody(struct scene *scene, const char *kilobytes, const char *memory)
{
    run_as_nobody(scene, kilobytes,
                  ARGUMENTS("compute", "--memory", memory, "--listen",
                            text_of("unix:%s", scene_path(scene, "nobody.sock")), "--secret-file",
                            nobodys_secret(scene), "--timeout", "5000", "--format"));
}

static void test_no_permission(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory");
    const char *address = address_text(memory, 0);
    demand_command("chmod 0600 /dev/infiniband/uverbs*");
    memory_as_nobody(scene, "65536");
    demand_refusal("memory node as nobody", "no permission", "/dev/infiniband/uverbs", NULL);
    compute_as_nobody(scene, "65536", address);
    demand_refusal("compute node as nobody", "no permission", "/dev/infiniband/uverbs", NULL);
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

static void test_locked_memory(void **state)
{
    struct scene *scene = *state;
    struct process *memory = start_memory(scene, "memory");
    const char *address = address_text(memory, 0);
    demand_command("chmod 0666 /dev/infiniband/uverbs*");
    memory_as_nobody(scene, "64");
    int code = result.code;
    char *said = strdup(result.error);
    compute_as_nobody(scene, "64", address);
    demand_command("chmod 0600 /dev/infiniband/uverbs*");
    demand_refusal("compute node that may lock 64 KiB", "ulimit -l", "65536", NULL);
    result.code = code;
    snprintf(result.error, sizeof result.error, "%s", said);
    free(said);
    demand_refusal("memory node that may lock 64 KiB", "ulimit -l", "65536", NULL);
    assert_int_equal(process_stop(memory), 0);
    scene->passed = true;
}

static void test_nobody_there(void **state)
{
    struct scene *scene = *state;
    const char *nowhere = text_of("rdma://%s:9", nic);
    run_compute(scene, nowhere, NULL, NULL);
    demand_refusal("no memory node", nowhere, "refused", NULL);
    scene->passed = true;
}

/* Who speaks another version says so first. */
static void speak_other_version(struct liar *liar, int fd)
{
    struct {
        struct wire_header head;
        struct wire_greeting greeting;
    } said = {.head = {.length = sizeof said.greeting, .kind = WIRE_GREETING},
              .greeting = {.magic = WIRE_MAGIC, .version = WIRE_VERSION + 1}};
    char byte;
    (void)liar;
    liar_say(fd, &said, sizeof said);
    while (liar_take(fd, &byte, 1))
        ;
}

static void test_other_version(void **state)
{
    struct scene *scene = *state;
    struct net_address address = {.kind = NET_TCP};
    struct liar liar;
    char text[NET_TEXT_MAX];
    snprintf(address.host, sizeof address.host, "%s", nic);
    liar_start(&liar, &address, speak_other_version, NULL);
    address = liar.address;
    address.rdma = true;
    run_compute(scene, net_address_format(&address, text), NULL, NULL);
    demand_refusal("memory node of another version", text, "install the same version", NULL);
    liar_stop(&liar);
    scene->passed = true;
}

/* rdma:// to a memory node without a NIC, tcp:// to one with. */
static void test_other_way(void **state)
{
    struct scene *scene = *state;
    struct process *plain =
        process_start(scene, "plain",
                      ARGUMENTS("memory", "--listen", text_of("tcp://%s:0", nic), "--size", "16M",
                                "--chunk-size", "1M", "--secret-file", secret_of(scene)));
    struct net_address address = process_address(plain, 0);
    char text[NET_TEXT_MAX];
    address.rdma = true;
    run_compute(scene, net_address_format(&address, text), NULL, NULL);
    demand_refusal("rdma:// to a memory node without a NIC", text, "rdma", NULL);
    struct process *memory = start_memory(scene, "memory");
    address = process_address(memory, 0);
    address.rdma = false;
    run_compute(scene, net_address_format(&address, text), NULL, NULL);
    demand_refusal("tcp:// to a memory node with a NIC", text, "rdma://", NULL);
    stop_all(plain, memory, NULL);
    scene->passed = true;
}

/* ---- */

static int become_nobody(char **arguments)
{
    rlim_t bytes = (rlim_t)strtoul(arguments[2], NULL, 10) * 1024;
    const struct rlimit limit = {bytes, bytes};
    if (setrlimit(RLIMIT_MEMLOCK, &limit) || setgid(NOBODY) || setuid(NOBODY)) {
        fprintf(stderr, "nobody: %s\n", strerror(errno));
        return 126;
    }
    execv(arguments[3], arguments + 3);
    fprintf(stderr, "%s: %s\n", arguments[3], strerror(errno));
    return 127;
}

/* ---- memory nodes that join and leave ---- */

static void demand(struct scene *scene, const char *const *arguments, const char *part)
{
    process_run(scene, NULL, arguments, &result);
    if (result.code != 0)
        fail_msg("%s: %d\n%s%s", arguments[0], result.code, result.output, result.error);
    assert_contains(result.output, part);
}

/* What the memory node has in use, as a compute node knows. */
static uint64_t used_on(redisContext *client, unsigned node)
{
    char *text = info_text(client, "banyan"), *at = strstr(text, text_of("memory_node%u:", node));
    const uint64_t used = at && (at = strstr(at, "used_bytes=")) ? strtoull(at + 11, NULL, 10) : 0;
    free(text);
    return used;
}

/* A compute node that runs gets queue pairs to a memory node that it was not told of, and its data move there
 * and back. */
static void test_members(void **state)
{
    struct scene *scene = *state;
    const char *secret = secret_of(scene);
    struct process *home = start_memory(scene, "home"), *joins = start_memory(scene, "joins");
    const char *memory = keep(address_text(home, 0)), *other = keep(address_text(joins, 0));
    struct process *compute = start_compute(scene, "compute", memory, LONG_LEASE, "--format");
    redisContext *client = client_of(compute, 0);
    load(client);
    demand(scene, ARGUMENTS("members", "--memory", memory, "--secret-file", secret, "--join", other),
           "memory node 1 has joined: rdma://");
    demand(scene,
           ARGUMENTS("balance", "--memory", memory, "--secret-file", secret, "--run", "--measure", "0"),
           "moved: ");
    assert_true(used_on(client, 1) > used_on(client, 0) / 2);
    demand_values(client);
    load(client);
    demand(
        scene,
        ARGUMENTS("balance", "--memory", memory, "--secret-file", secret, "--drain", "1", "--run", "--json"),
        "\"complete\": true");
    demand(scene, ARGUMENTS("members", "--memory", memory, "--secret-file", secret, "--leave", "1"),
           "memory node 1 has left");
    assert_int_equal(process_stop(joins), 0);
    demand_values(client);
    load(client);
    redisFree(client);
    assert_int_equal(process_stop(compute), 0);
    demand_check(scene, memory);
    assert_int_equal(process_stop(home), 0);
    scene->passed = true;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, scene_tear_down)

int main(int count, char **arguments)
{
    if (count > 3 && !strcmp(arguments[1], "--as-nobody"))
        return become_nobody(arguments);
    nic = getenv("BANYAN_RDMA_ADDRESS");
    if (!nic) {
        fprintf(stderr, "BANYAN_RDMA_ADDRESS must say the address of a NIC with RDMA\n");
        return 1;
    }
    const struct CMUnitTest huge_pages[] = {TEST(test_huge_pages)};
    const struct CMUnitTest members[] = {TEST(test_members)};
    if (count > 1 && !strcmp(arguments[1], "huge-pages"))
        return cmocka_run_group_tests(huge_pages, NULL, NULL);
    if (count > 1 && !strcmp(arguments[1], "members"))
        return cmocka_run_group_tests(members, NULL, NULL);
    if (count > 1)
        cmocka_set_test_filter(arguments[1]);
    const struct CMUnitTest tests[] = {
        TEST(test_two_processes), TEST(test_bench),         TEST(test_stopped),
        TEST(test_memory_killed), TEST(test_no_device),     TEST(test_wrong_settings),
        TEST(test_no_permission), TEST(test_locked_memory), TEST(test_nobody_there),
        TEST(test_other_version), TEST(test_other_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
