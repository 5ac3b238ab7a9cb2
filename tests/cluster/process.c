#include "cluster/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_SECONDS 60
#define ERRORS_SHOWN  6000
#define ARGUMENTS_MAX 48

extern char **environ;
static struct scene *current; /* of the test that runs: shown when it cannot go on */

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

void wait_until(bool (*condition)(void *context), void *context, const char *what)
{
    uint64_t limit = now_ns() + 60u * UINT64_C(1000000000);
    while (!condition(context)) {
        if (now_ns() > limit)
            fail_hard("waited a minute for this: %s", what);
        nap();
    }
}

/* ---- texts and files ---- */

static char *rotating(void)
{
    static _Thread_local char buffers[32][1024];
    static _Thread_local unsigned next;
    return buffers[next++ % 32];
}

const char *text_of(const char *format, ...)
{
    char *text = rotating();
    va_list list;
    va_start(list, format);
    vsnprintf(text, 1024, format, list);
    va_end(list);
    return text;
}

const char *scene_path(const struct scene *scene, const char *format, ...)
{
    char *text = rotating();
    int length = snprintf(text, 1024, "%s/", scene->folder);
    va_list list;
    va_start(list, format);
    vsnprintf(text + length, 1024 - (size_t)length, format, list);
    va_end(list);
    return text;
}

const char *scene_write(const struct scene *scene, const char *name, const char *text)
{
    const char *path = scene_path(scene, "%s", name);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        fail_hard("%s cannot be written: %s", path, strerror(errno));
    close(fd);
    return path;
}

static char *read_file(const char *path)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = fopen(path, "r"), *memory = open_memstream(&text, &length);
    for (int c; file && (c = getc(file)) != EOF;)
        putc(c, memory);
    if (file)
        fclose(file);
    fclose(memory);
    return text;
}

static const char *errors_path(const struct scene *scene, const char *name)
{
    return scene_path(scene, "%s.err", name);
}

char *process_errors(const struct scene *scene, const struct process *process)
{
    return read_file(errors_path(scene, process->name));
}

static void show_errors(const struct scene *scene)
{
    for (unsigned i = 0; i < scene->count; i++) {
        const struct process *process = &scene->processes[i];
        char *text = process_errors(scene, process);
        size_t length = strlen(text);
        fprintf(stderr, "---- standard error of %s (%s%d) ----\n%s", process->name,
                process->pid ? "runs as " : "ended with ", process->pid ? process->pid : process->code,
                length > ERRORS_SHOWN ? text + length - ERRORS_SHOWN : text);
        free(text);
    }
}

void fail_hard(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "FAILED: ");
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    if (getenv("BANYAN_HALT")) { /* leaves everything as it is, for a debugger */
        fprintf(stderr, "halted: the processes go on\n");
        pause();
    }
    if (current) {
        current->passed = false;
        scene_close(current);
    }
    _exit(1);
}

/* ---- scenes ---- */

void scene_open(struct scene *scene)
{
    memset(scene, 0, sizeof *scene);
    strcpy(scene->folder, "/tmp/banyan-cluster-XXXXXX");
    if (!mkdtemp(scene->folder))
        fail_hard("no temporary folder: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    current = scene;
}

void process_remove_folder(const char *folder)
{
    pid_t child = fork();
    if (child == 0) {
        execlp("rm", "rm", "-rf", folder, (char *)NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
}

void scene_close(struct scene *scene)
{
    for (unsigned i = 0; i < scene->count; i++)
        if (scene->processes[i].pid && !process_ended(&scene->processes[i]))
            process_kill(&scene->processes[i]);
    if (!scene->passed)
        show_errors(scene);
    for (unsigned i = 0; i < scene->count; i++)
        if (scene->processes[i].output >= 0)
            close(scene->processes[i].output);
    current = NULL;
    if (!getenv("BANYAN_KEEP"))
        process_remove_folder(scene->folder);
    scene->count = 0;
}

int scene_set_up(void **state)
{
    struct scene *scene = *state = calloc(1, sizeof *scene);
    if (scene)
        scene_open(scene);
    return scene ? 0 : -1;
}

int scene_tear_down(void **state)
{
    scene_close(*state);
    free(*state);
    return 0;
}

/* ---- starting ---- */

static const char *program_path(void)
{
    const char *path = getenv("BANYAN_PROGRAM");
    if (!path)
        fail_hard("BANYAN_PROGRAM must say where the program is");
    return path;
}

/* The environment without settings of banyan, and with those of the scene. */
static char **make_environment(const struct scene *scene)
{
    size_t count = 0, used = 0;
    while (environ[count])
        count++;
    char **made = calloc(count + 9, sizeof *made);
    for (size_t i = 0; i < count; i++)
        if (strncmp(environ[i], "BANYAN_", 7))
            made[used++] = environ[i];
    for (unsigned i = 0; i < 8 && scene->environment[i]; i++)
        made[used++] = (char *)(uintptr_t)scene->environment[i];
    return made;
}

static bool has_argument(const char *const *arguments, const char *argument)
{
    for (unsigned i = 0; arguments[i]; i++)
        if (!strcmp(arguments[i], argument))
            return true;
    return false;
}

/* A compute node that a test says nothing of keeps its lease on a machine on which it waits for seconds for a
 * CPU: a test that wants one to be fenced for its silence gives it a lease. */
static const char *const patient[] = {"--lease", "20000", NULL};

/* Forks; the child has `output` and `errors` as its standard output and error. */
static pid_t spawn(const struct scene *scene, const char *program, const char *const *arguments, int output,
                   int errors)
{
    char *argv[ARGUMENTS_MAX + 4] = {(char *)(uintptr_t)program};
    unsigned count = 1;
    for (; count <= ARGUMENTS_MAX && arguments[count - 1]; count++)
        argv[count] = (char *)(uintptr_t)arguments[count - 1];
    const bool impatient =
        arguments[0] && !strcmp(arguments[0], "compute") && !has_argument(arguments, "--lease");
    for (unsigned i = 0; impatient && patient[i]; i++)
        argv[count++] = (char *)(uintptr_t)patient[i];
    char **environment = make_environment(scene);
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(127);
        int nothing = open("/dev/null", O_RDONLY);
        dup2(nothing, 0);
        dup2(output, 1);
        dup2(errors, 2);
        execvpe(program, argv, environment);
        dprintf(2, "%s: %s\n", program, strerror(errno));
        _exit(127);
    }
    free(environment);
    if (child < 0)
        fail_hard("fork: %s", strerror(errno));
    return child;
}

/* Reads standard output until the announcement is complete; false when the process ends before. */
static bool await_ready(struct process *process, bool http)
{
    uint64_t limit = now_ns() + READY_SECONDS * UINT64_C(1000000000);
    size_t used = 0;
    process->said[0] = 0;
    while (!strchr(process->said, '\n') || (http && !strstr(process->said, "status page at "))) {
        struct pollfd ready = {.fd = process->output, .events = POLLIN};
        if (now_ns() > limit)
            fail_hard("%s is not ready after %d s", process->name, READY_SECONDS);
        if (poll(&ready, 1, 100) <= 0)
            continue;
        ssize_t length = read(process->output, process->said + used, sizeof process->said - 1 - used);
        if (length <= 0)
            return false;
        used += (size_t)length;
        process->said[used] = 0;
    }
    return true;
}

void process_spawn(struct scene *scene, struct process *process, const char *const *arguments)
{
    int ends[2];
    int errors = open(errors_path(scene, process->name), O_CREAT | O_APPEND | O_WRONLY | O_CLOEXEC, 0600);
    if (errors < 0 || pipe2(ends, O_CLOEXEC))
        fail_hard("%s cannot be started: %s", process->name, strerror(errno));
    process->said[0] = 0;
    if (process->output >= 0)
        close(process->output);
    process->pid =
        spawn(scene, process->program ? process->program : program_path(), arguments, ends[1], errors);
    process->output = ends[0];
    close(ends[1]);
    close(errors);
}

bool process_try(struct scene *scene, struct process *process, const char *const *arguments)
{
    process_spawn(scene, process, arguments);
    if (await_ready(process, has_argument(arguments, "--http")))
        return true;
    process_wait(process);
    return false;
}

void process_restart(struct scene *scene, struct process *process, const char *const *arguments)
{
    if (!process_try(scene, process, arguments))
        fail_hard("%s ended with %d before it was ready", process->name, process->code);
}

struct process *process_place(struct scene *scene, const char *name)
{
    if (scene->count == SCENE_PROCESSES_MAX)
        fail_hard("too many processes");
    struct process *process = &scene->processes[scene->count++];
    *process = (struct process){.name = name, .output = -1};
    return process;
}

struct process *process_start_other(struct scene *scene, const char *name, const char *program,
                                    const char *const *arguments)
{
    struct process *process = process_place(scene, name);
    process->program = program;
    process_restart(scene, process, arguments);
    return process;
}

struct process *process_start(struct scene *scene, const char *name, const char *const *arguments)
{
    return process_start_other(scene, name, NULL, arguments);
}

static void fill_from(char *to, size_t size, const char *path)
{
    char *text = read_file(path);
    snprintf(to, size, "%s", text);
    free(text);
}

void process_run(struct scene *scene, const char *program, const char *const *arguments,
                 struct process_result *result)
{
    char output[SCENE_PATH_MAX], errors[SCENE_PATH_MAX];
    snprintf(output, sizeof output, "%s/run.out", scene->folder);
    snprintf(errors, sizeof errors, "%s/run.err", scene->folder);
    int out = open(output, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600),
        err = open(errors, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    struct process process = {.name = "run", .output = -1};
    process.pid = spawn(scene, program ? program : program_path(), arguments, out, err);
    close(out);
    close(err);
    result->code = process_wait(&process);
    fill_from(result->output, sizeof result->output, output);
    fill_from(result->error, sizeof result->error, errors);
}

/* ---- ending ---- */

static void note_end(struct process *process, int status)
{
    process->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    process->pid = 0;
}

bool process_ended(struct process *process)
{
    int status;
    if (process->pid && waitpid(process->pid, &status, WNOHANG) == process->pid)
        note_end(process, status);
    return !process->pid;
}

static bool ended(void *context)
{
    return process_ended(context);
}

int process_wait(struct process *process)
{
    wait_until(ended, process, text_of("the end of process %s", process->name));
    return process->code;
}

void process_signal(const struct process *process, int signal)
{
    if (process->pid)
        kill(process->pid, signal);
}

int process_kill(struct process *process)
{
    process_signal(process, SIGKILL);
    return process_wait(process);
}

int process_stop(struct process *process)
{
    process_signal(process, SIGTERM);
    return process_wait(process);
}

/* ---- addresses ---- */

struct net_address process_address(const struct process *process, unsigned number)
{
    struct net_address address;
    struct error error;
    const char *at = strstr(process->said, " at ");
    for (unsigned i = 0; at && i < number; i++)
        at = strstr(at + 1, ", ") ? strstr(at + 1, ", ") - 2 : NULL;
    if (!at)
        fail_hard("%s announced no address %u: %s", process->name, number, process->said);
    char text[NET_TEXT_MAX];
    // cppcheck-suppress nullPointerArithmeticRedundantCheck ; fail_hard does not return
    snprintf(text, sizeof text, "%.*s", (int)strcspn(at + 4, ",; \n"), at + 4);
    if (net_address_parse(&address, text, 0, &error))
        fail_hard("%s announced %s: %s", process->name, text, error.text);
    return address;
}

const char *process_http(const struct process *process)
{
    const char *at = strstr(process->said, "http://");
    if (!at)
        fail_hard("%s has no status page", process->name);
    // cppcheck-suppress nullPointerArithmeticRedundantCheck ; fail_hard does not return
    return text_of("%.*s", (int)strcspn(at + 7, "/\n"), at + 7);
}

/* ---- clients ---- */

redisContext *client_try(const struct net_address *address)
{
    struct timeval limit = {.tv_sec = 10};
    redisContext *client = address->kind == NET_UNIX
                               ? redisConnectUnixWithTimeout(address->path, limit)
                               : redisConnectWithTimeout(address->host, address->port, limit);
    if (!client || client->err) {
        if (client)
            redisFree(client);
        return NULL;
    }
    redisSetTimeout(client, (struct timeval){.tv_sec = 60});
    return client;
}

redisContext *client_connect(const struct net_address *address)
{
    uint64_t limit = now_ns() + 10u * UINT64_C(1000000000);
    redisContext *client;
    while (!(client = client_try(address))) {
        char text[NET_TEXT_MAX];
        if (now_ns() > limit)
            fail_hard("no server answers at %s", net_address_format(address, text));
        nap();
    }
    return client;
}

char *http_get(const char *host_port, const char *path, const char *header)
{
    struct net_address address;
    struct error error;
    int fd;
    char *text = NULL;
    size_t length = 0;
    if (net_address_parse(&address, host_port, 0, &error) ||
        net_connect(&address, 10u * UINT64_C(1000000000), &fd, &error))
        fail_hard("HTTP at %s: %s", host_port, error.text);
    dprintf(fd, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n%s\r\n", path, host_port,
            header ? header : "");
    FILE *memory = open_memstream(&text, &length);
    for (;;) {
        char buffer[4096];
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 10000) <= 0)
            fail_hard("HTTP at %s does not answer", host_port);
        ssize_t count = read(fd, buffer, sizeof buffer);
        if (count <= 0)
            break;
        fwrite(buffer, 1, (size_t)count, memory);
    }
    fclose(memory);
    close(fd);
    return text;
}
