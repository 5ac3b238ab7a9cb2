/*
 * test_mapped.c - clients that map the pool, as processes of their own: however they end, WRITEs that they
 * had staged are finished and only then are their locks freed; and which of them are killed.
 *
 * The program starts itself anew for each client; the client's part is at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "memoryd/process.h"
#include "client.h"

static int engine;

#define OFFSET      UINT64_C(1048576)
#define SHORT_LEASE 2000 /* ms: of one that is to be stopped past it */
#define LOCK        8u   /* the word that clients take */
#define BYTES       4001u

static bool open_site(struct site *site)
{
    struct site_options options = {.engine = engine, .shared = true};
    if (!site_open(site, &options))
        return true;
    print_message("SKIPPED: the kernel refuses io_uring\n");
    return false;
}

/* ---- the parent's side of a client process ---- */

struct process {
    int pid, out; /* out: what it prints; one byte when it is ready */
};

static struct process process_start(struct site *site, const char *part)
{
    struct process process;
    int ends[2];
    char text[NET_TEXT_MAX];
    char *arguments[] = {(char *)(uintptr_t) "client", (char *)(uintptr_t)part, text, NULL};
    posix_spawn_file_actions_t actions;
    net_address_format(&site->local, text);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    assert_int_equal(posix_spawn(&process.pid, "/proc/self/exe", &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    process.out = ends[0];
    return process;
}

static void process_ready(struct process *process)
{
    char byte = 0;
    struct pollfd look = {.fd = process->out, .events = POLLIN};
    assert_int_equal(poll(&look, 1, 20000), 1);
    assert_int_equal(read(process->out, &byte, 1), 1);
    assert_int_equal(byte, '!');
}

/* Its wait status. */
static int process_end(struct process *process)
{
    int status = 0;
    assert_int_equal(waitpid(process->pid, &status, 0), process->pid);
    close(process->out);
    return status;
}

static bool was_killed(int status)
{
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void check_staged(struct site *site, uint64_t offset, bool finished)
{
    for (unsigned i = 0; i < BYTES; i++)
        assert_int_equal(site_pool(site, offset)[i], finished ? (uint8_t)(i * 5 + 1) : 0);
}

/* ---- tests ---- */

/* Killed in the middle of a write: the next holder of the lock finds all of the write. */
static void test_killed(void **state)
{
    struct site site;
    if (!open_site(&site))
        return;
    struct process process = process_start(&site, "stage");
    process_ready(&process);
    assert_int_not_equal(site_lock(&site, LOCK), 0);
    check_staged(&site, OFFSET, false);
    kill(process.pid, SIGKILL);
    site_wait_lock(&site, LOCK, 0);
    check_staged(&site, OFFSET, true);
    assert_true(was_killed(process_end(&process)));
    site_wait_nodes(&site, 0);
    assert_int_equal(site_status(&site).fenced_total, 1);
    site_close(&site);
}

/* Stopped past its lease: killed, though its sockets are open. */
static void test_stopped(void **state)
{
    struct site site;
    if (!open_site(&site))
        return;
    struct process process = process_start(&site, "beat");
    process_ready(&process);
    kill(process.pid, SIGSTOP);
    site_wait_lock(&site, LOCK, 0);
    check_staged(&site, OFFSET, true);
    assert_true(was_killed(process_end(&process)));
    site_wait_nodes(&site, 0);
    site_close(&site);
}

/* A process that goes on although its control or a data connection is gone is killed. So is one that sends
 * nonsense. */
static void test_half_gone(void **state)
{
    static const char *const parts[] = {"close control", "close data", "nonsense"};
    struct site site;
    if (!open_site(&site))
        return;
    for (unsigned i = 0; i < 3; i++) {
        memset(site_pool(&site, OFFSET), 0, BYTES);
        struct process process = process_start(&site, parts[i]);
        assert_true(was_killed(process_end(&process)));
        site_wait_nodes(&site, 0);
        assert_int_equal(site_lock(&site, LOCK), 0);
        check_staged(&site, OFFSET, true);
        assert_int_equal(site_status(&site).fenced_total, i + 1);
    }
    site_close(&site);
}

/* Its number is given away only when it can no longer write, and when the locks that bear the number are
 * freed. */
static void test_number_waits(void **state)
{
    struct site site;
    struct client successor;
    if (!open_site(&site))
        return;
    struct process process = process_start(&site, "close control");
    uint64_t limit = task_now() + CLIENT_LIMIT;
    uint16_t id;
    while ((id = (uint16_t)site_lock(&site, LOCK)) == 0)
        assert_true(task_now() < limit);
    for (;;) {
        client_connect(&successor, &site.tcp);
        struct wire_hello hello = client_hello(&successor, WIRE_CONTROL, NULL);
        hello.compute_id = id;
        hello.instance = 1;
        int refusal = client_say_hello(&successor, &hello, NULL);
        if (!refusal)
            break;
        assert_int_equal(refusal, BANYAN_EBUSY);
        client_close(&successor);
        assert_true(task_now() < limit);
    }
    int status = 0;
    assert_int_equal(waitpid(process.pid, &status, WNOHANG), process.pid);
    assert_true(was_killed(status));
    close(process.out);
    assert_int_equal(site_lock(&site, LOCK), 0);
    client_goodbye(&successor);
    site_wait_nodes(&site, 0);
    site_close(&site);
}

/* A process that leaves in good order is left alone, and its staging area is not looked at. */
static void test_orderly(void **state)
{
    struct site site;
    if (!open_site(&site))
        return;
    struct process process = process_start(&site, "goodbye");
    int status = process_end(&process);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_lock(&site, LOCK), 0);
    assert_int_equal(site_status(&site).fenced_total, 0);
    site_close(&site);
}

/* Staged WRITEs to places that do not exist or of impossible lengths: nothing is written, and nothing
 * crashes. */
static void test_malicious(void **state)
{
    static const char *const parts[] = {"offset pool", "offset high",  "offset locks", "offset end",
                                        "length zero", "length large", "length huge"};
    struct site site;
    if (!open_site(&site))
        return;
    uint8_t *before = malloc(SITE_POOL);
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        memcpy(before, site_pool(&site, 0), SITE_POOL);
        struct process process = process_start(&site, parts[i]);
        process_ready(&process);
        kill(process.pid, SIGKILL);
        assert_true(was_killed(process_end(&process)));
        site_wait_nodes(&site, 0);
        assert_memory_equal(before, site_pool(&site, 0), SITE_POOL);
        assert_int_equal(site_lock(&site, LOCK), 0);
    }
    free(before);
    site_close(&site);
}

/* A write into the lock region may be staged as well. */
static void test_lock_region(void **state)
{
    struct site site;
    if (!open_site(&site))
        return;
    struct process process = process_start(&site, "region");
    process_ready(&process);
    kill(process.pid, SIGKILL);
    assert_true(was_killed(process_end(&process)));
    site_wait_nodes(&site, 0);
    assert_memory_equal(memory_node_target(site.node)->locks + 1024, "\x01\x06\x0b\x10", 4);
    site_close(&site);
}

/* The memory node stops: its clients lose their connections, and are not killed. */
static void test_stop(void **state)
{
    struct site site;
    if (!open_site(&site))
        return;
    struct process process = process_start(&site, "wait");
    process_ready(&process);
    site_close(&site);
    int status = process_end(&process);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Only a group whose control connection maps the pool gets staging areas; over TCP there is no mapping at
 * all. */
static void test_refusals(void **state)
{
    struct site site;
    struct client control, data;
    char sentence[256];
    if (!open_site(&site))
        return;
    client_connect(&control, &site.tcp);
    struct wire_hello hello = client_hello(&control, WIRE_CONTROL, NULL);
    hello.map = 1;
    hello.instance = 4;
    assert_int_equal(client_say_hello(&control, &hello, NULL), BANYAN_OK);
    assert_int_equal(control.welcome.mapped, 0);
    client_connect(&data, &site.local);
    hello = client_hello(&data, WIRE_DATA, NULL);
    hello.map = 1;
    hello.instance = 4;
    hello.compute_id = control.welcome.compute_id;
    hello.group_key = control.welcome.group_key;
    assert_int_equal(client_say_hello(&data, &hello, sentence), BANYAN_EINVAL);
    client_close(&data);
    client_goodbye(&control);
    site_close(&site);
}

/* A data connection that maps must be of the process that mapped the pool: another process could not be
 * fenced with it. And a compute node that connects anew does not fence its last life, which can only be
 * fenced with its process. */
static void test_other_processes(void **state)
{
    struct site site;
    struct client control, fresh;
    char sentence[256];
    if (!open_site(&site))
        return;
    struct process process = process_start(&site, "beat long");
    process_ready(&process);
    client_connect(&fresh, &site.local);
    struct wire_hello hello = client_hello(&fresh, WIRE_CONTROL, NULL);
    hello.instance = (uint64_t)process.pid; /* as it says of itself */
    assert_int_equal(client_say_hello(&fresh, &hello, sentence), BANYAN_EBUSY);
    client_close(&fresh);
    assert_int_equal(site_status(&site).fenced_total, 0);
    kill(process.pid, SIGKILL);
    assert_true(was_killed(process_end(&process)));
    site_wait_nodes(&site, 0);

    client_connect(&control, &site.local);
    hello = client_hello(&control, WIRE_CONTROL, NULL);
    hello.map = 1;
    hello.instance = 4;
    assert_int_equal(client_say_hello(&control, &hello, NULL), BANYAN_OK);
    int status = 0, pid = fork();
    if (pid == 0) {
        struct client data;
        client_connect(&data, &site.local);
        struct wire_hello other = client_hello(&data, WIRE_DATA, NULL);
        other.map = 1;
        other.instance = 4;
        other.compute_id = control.welcome.compute_id;
        other.group_key = control.welcome.group_key;
        bool refused = client_say_hello(&data, &other, sentence) == BANYAN_EINVAL;
        _exit(refused && strstr(sentence, "another process has mapped") != NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    int descriptors[2];
    assert_int_equal(net_receive_descriptors(control.fd, descriptors, 2, CLIENT_LIMIT, NULL), BANYAN_OK);
    close(descriptors[0]);
    close(descriptors[1]);
    client_goodbye(&control);
    site_close(&site);
}

/* A process that it may not signal cannot be fenced, so it is not given the pool. */
static void test_not_killable(void **state)
{
    if (getuid() != 0) {
        print_message("SKIPPED: needs to be root to become another user\n");
        return;
    }
    int pid = fork();
    if (pid == 0) {
        int root = (int)syscall(SYS_pidfd_open, getppid(), 0u);
        if (setuid(65534) != 0 || root < 0)
            _exit(2);
        _exit(memoryd_process_killable(root) || memoryd_process_killable(-1) || memoryd_process_dead(root) ||
              memoryd_process_dead(-1));
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* What pidfds tell: of a living process, a dead one that is not reaped yet, one that is gone, and of no
 * process. */
static void test_processes(void **state)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    int pid = fork();
    if (pid == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    int process = (int)syscall(SYS_pidfd_open, pid, 0u);
    assert_true(process >= 0);
    assert_true(memoryd_process_killable(process));
    assert_false(memoryd_process_dead(process));
    close(ends[0]);
    close(ends[1]);
    for (uint64_t end = task_now() + CLIENT_LIMIT; !memoryd_process_dead(process) && task_now() < end;)
        task_sleep(UINT64_C(1000000));
    assert_true(memoryd_process_dead(process));
    assert_true(memoryd_process_kill(process)); /* no harm in it */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_true(memoryd_process_dead(process));
    assert_true(memoryd_process_kill(process));
    close(process);
    assert_false(memoryd_process_killable(-1));
    assert_false(memoryd_process_kill(-1));
    assert_false(memoryd_process_dead(-1));
}

/* ---- the client process ---- */

struct mapped {
    struct client control, data;
    uint8_t *pool;
    uint16_t *locks;
    struct wire_staging *staging;
};

static void *map_descriptor(int fd, size_t bytes)
{
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(start != MAP_FAILED);
    close(fd);
    return start;
}

static void hello_mapped(struct client *client, const struct net_address *address, struct wire_hello hello,
                         const struct client *control)
{
    client_connect(client, address);
    struct wire_hello right = client_hello(client, hello.role, NULL);
    right.map = 1;
    right.lease_ms = hello.lease_ms;
    right.instance = (uint64_t)getpid();
    if (control != NULL) {
        right.compute_id = control->welcome.compute_id;
        right.group_key = control->welcome.group_key;
    }
    assert_int_equal(client_say_hello(client, &right, NULL), BANYAN_OK);
    assert_int_equal(client->welcome.mapped, 1);
}

static void mapped_open(struct mapped *mapped, const char *text, uint32_t lease_ms)
{
    struct net_address address;
    struct error error;
    int descriptors[2];
    assert_int_equal(net_address_parse(&address, text, 0, &error), BANYAN_OK);
    hello_mapped(&mapped->control, &address, (struct wire_hello){.role = WIRE_CONTROL, .lease_ms = lease_ms},
                 NULL);
    assert_int_equal(net_receive_descriptors(mapped->control.fd, descriptors, 2, CLIENT_LIMIT, &error),
                     BANYAN_OK);
    mapped->pool = map_descriptor(descriptors[0], mapped->control.welcome.pool_bytes);
    mapped->locks = map_descriptor(descriptors[1], mapped->control.welcome.lock_bytes);
    hello_mapped(&mapped->data, &address, (struct wire_hello){.role = WIRE_DATA}, &mapped->control);
    assert_int_equal(net_receive_descriptors(mapped->data.fd, descriptors, 1, CLIENT_LIMIT, &error),
                     BANYAN_OK);
    assert_int_equal(ftruncate(descriptors[0], 0), -1); /* sealed */
    mapped->staging = map_descriptor(descriptors[0], sizeof *mapped->staging);
    assert_int_equal(mapped->staging->marked, 0);
}

/* Takes the lock and leaves a write behind that is staged and marked, but not copied to its place. */
static void stage(struct mapped *mapped, uint64_t offset, uint64_t length)
{
    __atomic_store_n(&mapped->locks[LOCK], mapped->control.welcome.compute_id, __ATOMIC_SEQ_CST);
    mapped->staging->offset = offset;
    mapped->staging->length = length;
    for (unsigned i = 0; i < WIRE_STAGING_DATA; i++)
        mapped->staging->data[i] = (uint8_t)(i * 5 + 1);
    atomic_store_release(&mapped->staging->marked,
                         WIRE_STAGED); /* with the mark the bytes before it are seen */
}

static void say_ready(void)
{
    assert_int_equal(write(STDOUT_FILENO, "!", 1), 1);
}

static void stay(void)
{
    for (;;)
        pause();
}

static void stage_badly(struct mapped *mapped, const char *part)
{
    uint64_t pool = mapped->control.welcome.pool_bytes, locks = mapped->control.welcome.lock_bytes;
    if (strcmp(part, "offset pool") == 0)
        stage(mapped, pool, 8);
    else if (strcmp(part, "offset high") == 0)
        stage(mapped, UINT64_MAX - 7, 8);
    else if (strcmp(part, "offset locks") == 0)
        stage(mapped, GADDR_LOCK_REGION + locks - 4, 8);
    else if (strcmp(part, "offset end") == 0)
        stage(mapped, pool - 4000, 4001);
    else if (strcmp(part, "length zero") == 0)
        stage(mapped, OFFSET, 0);
    else if (strcmp(part, "length large") == 0)
        stage(mapped, OFFSET, WIRE_STAGING_DATA + 1);
    else if (strcmp(part, "length huge") == 0)
        stage(mapped, OFFSET, UINT64_MAX);
    else
        exit(3);
}

/* Ends the process, or lives until it is killed. */
static void client_main(const char *part, const char *text)
{
    const bool beats = strncmp(part, "beat", 4) == 0;
    struct mapped mapped;
    mapped_open(&mapped, text, strcmp(part, "beat") == 0 ? SHORT_LEASE : 60000);
    if (strcmp(part, "stage") == 0 || beats) {
        stage(&mapped, OFFSET, BYTES);
        say_ready();
        while (beats) {
            client_heartbeat(&mapped.control);
            task_sleep(UINT64_C(5000000));
        }
        stay();
    } else if (strcmp(part, "region") == 0) {
        stage(&mapped, GADDR_LOCK_REGION + 1024, 4);
        say_ready();
        stay();
    } else if (strcmp(part, "close control") == 0 || strcmp(part, "close data") == 0) {
        stage(&mapped, OFFSET, BYTES);
        client_close(strcmp(part, "close data") == 0 ? &mapped.data : &mapped.control);
        stay();
    } else if (strcmp(part, "nonsense") == 0) {
        struct wire_header head = {.kind = 99, .length = 1};
        stage(&mapped, OFFSET, BYTES);
        client_send(&mapped.data, &head, sizeof head);
        stay();
    } else if (strcmp(part, "wait") == 0) {
        say_ready();
        assert_true(client_closed(&mapped.control));
        mapped.pool[OFFSET] = 1; /* still there */
        exit(0);
    } else if (strcmp(part, "goodbye") == 0) {
        client_goodbye(&mapped.data);
        client_goodbye(&mapped.control);
        task_sleep(UINT64_C(400000000)); /* twice the time after which it would be killed */
        exit(0);
    }
    stage_badly(&mapped, part);
    say_ready();
    stay();
}

int main(int count, char **arguments)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed),      cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_half_gone),   cmocka_unit_test(test_number_waits),
        cmocka_unit_test(test_orderly),     cmocka_unit_test(test_malicious),
        cmocka_unit_test(test_lock_region), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_other_processes),
        cmocka_unit_test(test_processes),   cmocka_unit_test(test_not_killable),
    };
    int failed = 0;
    log_set_level(getenv("TEST_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    if (count == 3)
        client_main(arguments[1], arguments[2]);
    engine = MEMORY_ENGINE_EPOLL;
    failed += cmocka_run_group_tests_name("mapped, epoll", tests, NULL, NULL);
    engine = MEMORY_ENGINE_IO_URING;
    failed += cmocka_run_group_tests_name("mapped, io_uring", tests, NULL, NULL);
    return failed;
}
