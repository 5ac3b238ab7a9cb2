/* daemon.c - see daemon.h. */
#include "daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/verbs_options.h"
#include "memoryd/memoryd.h"

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    abort();
}

/* ---- the daemon's side: options as words ---- */

static const char *word(char **arguments, unsigned index)
{
    return strcmp(arguments[index], "-") == 0 ? NULL : arguments[index];
}

static uint64_t number(char **arguments, unsigned index)
{
    return strtoull(arguments[index], NULL, 10);
}

enum {
    NUMBER = 2,
    UNFORMATTED,
    PORT,
    SECRET,
    CERTIFICATE,
    KEY,
    POOL,
    CHUNK,
    LOCKS,
    LEASE,
    CONNECTIONS,
    RDMA,
    SOCKET,
    WORDS
};

bool daemon_has_rdma(void)
{
    return getenv("BANYAN_RDMA_ADDRESS") != NULL;
}

static struct net_address stream_address(bool rdma)
{
    struct net_address address = {.kind = NET_TCP, .host = "127.0.0.1", .rdma = rdma};
    if (rdma && !daemon_has_rdma())
        give_up("daemon: BANYAN_RDMA_ADDRESS does not say where there is a NIC with RDMA");
    if (rdma)
        snprintf(address.host, sizeof address.host, "%s", getenv("BANYAN_RDMA_ADDRESS"));
    return address;
}

static void run_server(struct memory_node *node, const struct memoryd_options *options, const char *socket,
                       struct error *error)
{
    struct memoryd *server;
    if (memoryd_create(&server, node, options, error) || memoryd_start(server, error))
        give_up("daemon: %s", error->text);
    printf("%u\n", (unsigned)memoryd_port(server, 0));
    fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
        ;
    unlink(socket);
    _exit(0); /* as a daemon that is killed, but for the socket's file */
}

static void serve(char **arguments, struct error *error)
{
    bool rdma = number(arguments, RDMA) != 0;
    struct net_address listen[2] = {stream_address(rdma), {.kind = NET_UNIX}};
    struct net_tls *tls = NULL;
    struct memory_node *node;
    const struct verbs_options nic = {0};
    const char *secret = word(arguments, SECRET);
    listen[0].port = (uint16_t)number(arguments, PORT);
    snprintf(listen[1].path, sizeof listen[1].path, "%s", arguments[SOCKET]);
    if (word(arguments, CERTIFICATE) != NULL) {
        const struct net_tls_options tls_options = {.certificate_file = arguments[CERTIFICATE],
                                                    .key_file = arguments[KEY]};
        if (net_tls_create(&tls, true, &tls_options, error))
            give_up("daemon: %s", error->text);
    }
    const struct memoryd_options options = {.listen = listen,
                                            .listen_count = 2,
                                            .tls = tls,
                                            .secret = secret,
                                            .secret_length = secret != NULL ? strlen(secret) : 0,
                                            .lease_ms_min = (uint32_t)number(arguments, LEASE),
                                            .connections_max = (uint32_t)number(arguments, CONNECTIONS),
                                            .nic = rdma ? &nic : NULL};
    struct memory_options memory = {.node = (uint16_t)number(arguments, NUMBER),
                                    .unformatted = number(arguments, UNFORMATTED) != 0,
                                    .pool_bytes = number(arguments, POOL),
                                    .chunk_bytes = number(arguments, CHUNK),
                                    .lock_bytes = number(arguments, LOCKS),
                                    .shared = true};
    if (memoryd_locks(&options, &memory, error) || memory_node_create(&node, &memory, error))
        give_up("daemon: %s", error->text);
    run_server(node, &options, arguments[SOCKET], error);
}

void daemon_main(int count, char **arguments)
{
    struct error error = {0};
    if (count != WORDS || strcmp(arguments[1], "--daemon") != 0)
        return;
    log_set_level(LOG_ERROR);
    serve(arguments, &error);
}

/* ---- the test's side ---- */

static void become_daemon(char **arguments, int input, int output)
{
    if (dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0)
        _exit(126);
    execv("/proc/self/exe", arguments);
    _exit(127);
}

void daemon_start(struct daemon *daemon, const struct daemon_options *options)
{
    static unsigned started;
    char texts[WORDS][128];
    char *arguments[WORDS + 1] = {"daemon", "--daemon"};
    int leash[2], answer[2];
    unsigned port = 0;
    *daemon = (struct daemon){.tcp = stream_address(options->rdma), .local = {.kind = NET_UNIX}};
    snprintf(daemon->local.path, sizeof daemon->local.path, "/tmp/banyan-test-%ld-%u.sock", (long)getpid(),
             started++);
    snprintf(texts[NUMBER], 128, "%u", (unsigned)options->number);
    snprintf(texts[UNFORMATTED], 128, "%d", options->unformatted);
    snprintf(texts[PORT], 128, "%u", (unsigned)options->port);
    snprintf(texts[SECRET], 128, "%s", options->secret != NULL ? options->secret : "-");
    snprintf(texts[CERTIFICATE], 128, "%s", options->certificate != NULL ? options->certificate : "-");
    snprintf(texts[KEY], 128, "%s", options->key != NULL ? options->key : "-");
    snprintf(texts[POOL], 128, "%llu", (unsigned long long)options->pool_bytes);
    snprintf(texts[CHUNK], 128, "%llu", (unsigned long long)options->chunk_bytes);
    snprintf(texts[LOCKS], 128, "%llu", (unsigned long long)options->lock_bytes);
    snprintf(texts[LEASE], 128, "%u", options->lease_ms_min);
    snprintf(texts[CONNECTIONS], 128, "%u", options->connections_max);
    snprintf(texts[RDMA], 128, "%d", options->rdma);
    snprintf(texts[SOCKET], 128, "%s", daemon->local.path);
    for (unsigned i = NUMBER; i < WORDS; i++)
        arguments[i] = texts[i];
    if (pipe2(leash, O_CLOEXEC) != 0 || pipe2(answer, O_CLOEXEC) != 0)
        give_up("daemon: no pipes");
    daemon->pid = fork();
    if (daemon->pid < 0)
        give_up("daemon: no process");
    if (daemon->pid == 0)
        become_daemon(arguments, leash[0], answer[1]);
    close(leash[0]);
    close(answer[1]);
    daemon->leash = leash[1];
    FILE *said = fdopen(answer[0], "r");
    if (said == NULL || fscanf(said, "%u", &port) != 1)
        give_up("daemon: it did not start");
    fclose(said);
    daemon->tcp.port = (uint16_t)port;
}

void daemon_kill(struct daemon *daemon)
{
    if (daemon->pid == 0)
        return;
    kill(daemon->pid, SIGKILL);
    while (waitpid(daemon->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    unlink(daemon->local.path);
    close(daemon->leash);
    daemon->pid = 0;
}

void daemon_signal(const struct daemon *daemon, int signal)
{
    kill(daemon->pid, signal);
    if (signal == SIGSTOP) /* it takes a moment */
        while (waitpid(daemon->pid, NULL, WUNTRACED) < 0 && errno == EINTR)
            ;
}

/* ---- the proxy ---- */

#define PAIRS 128

struct proxy {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards all that follows */
    struct net_address listen, to;
    int listener, wake[2];
    bool quit, closed, held, renamed;
    unsigned opened, hanging; /* from which number on */
    struct pair {
        int fd[2]; /* -1: free */
        unsigned number;
    } pairs[PAIRS];
};

static void pair_close(struct pair *pair)
{
    for (unsigned i = 0; i < 2; i++) {
        if (pair->fd[i] >= 0)
            close(pair->fd[i]);
        pair->fd[i] = -1;
    }
}

static void proxy_accept(struct proxy *proxy)
{
    int fd = -1, to = -1;
    if (net_accept(proxy->listener, &fd, NULL, NULL) || fd < 0)
        return;
    struct pair *pair = proxy->pairs;
    while (pair < proxy->pairs + PAIRS && pair->fd[0] >= 0)
        pair++;
    if (!proxy->closed && pair < proxy->pairs + PAIRS && proxy->opened >= proxy->hanging)
        *pair = (struct pair){.fd = {fd, -1}, .number = proxy->opened++};
    else if (proxy->closed || pair == proxy->pairs + PAIRS ||
             net_connect(&proxy->to, UINT64_C(1000000000), &to, NULL))
        close(fd);
    else
        *pair = (struct pair){.fd = {fd, to}, .number = proxy->opened++};
}

/* False: the pair is at its end. */
static bool pass_on(int from, int to)
{
    char bytes[65536];
    ssize_t length = read(from, bytes, sizeof bytes);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR;
    for (ssize_t at = 0; at < length;) {
        ssize_t written = send(to, bytes + at, (size_t)(length - at), MSG_NOSIGNAL);
        if (written < 0 && errno != EAGAIN)
            return false;
        at += written > 0 ? written : 0;
        if (written < 0 && net_wait(to, 4 /* EPOLLOUT */, UINT64_C(5000000000)))
            return false;
    }
    return length > 0;
}

static void *proxy_run(void *argument)
{
    struct proxy *proxy = argument;
    struct pollfd polls[2 + 2 * PAIRS];
    for (;;) {
        pthread_mutex_lock(&proxy->mutex);
        bool quit = proxy->quit;
        polls[0] = (struct pollfd){.fd = proxy->wake[0], .events = POLLIN};
        polls[1] = (struct pollfd){.fd = proxy->listener, .events = POLLIN};
        for (unsigned i = 0; i < 2 * PAIRS; i++)
            polls[2 + i] =
                (struct pollfd){.fd = proxy->held ? -1 : proxy->pairs[i / 2].fd[i % 2], .events = POLLIN};
        pthread_mutex_unlock(&proxy->mutex);
        if (quit)
            return NULL;
        if (poll(polls, 2 + 2 * PAIRS, -1) < 0)
            continue;
        pthread_mutex_lock(&proxy->mutex);
        char byte;
        if (polls[0].revents != 0 && read(proxy->wake[0], &byte, 1) < 0)
            give_up("proxy: no wake-up");
        if (polls[1].revents != 0)
            proxy_accept(proxy);
        for (unsigned i = 0; i < 2 * PAIRS; i++) {
            struct pair *pair = &proxy->pairs[i / 2];
            if (polls[2 + i].revents != 0 && !proxy->held && pair->fd[i % 2] == polls[2 + i].fd &&
                pair->fd[0] >= 0 && !pass_on(pair->fd[i % 2], pair->fd[1 - i % 2]))
                pair_close(pair);
        }
        pthread_mutex_unlock(&proxy->mutex);
    }
}

static void proxy_wake(struct proxy *proxy)
{
    if (write(proxy->wake[1], "", 1) != 1)
        give_up("proxy: no wake-up");
}

static struct proxy *start(const struct net_address *listen, const struct net_address *to)
{
    struct proxy *proxy = calloc(1, sizeof *proxy);
    struct error error = {0};
    if (proxy == NULL || pipe2(proxy->wake, O_CLOEXEC) != 0)
        give_up("proxy: no memory");
    proxy->to = *to;
    proxy->hanging = UINT_MAX;
    proxy->listen = *listen;
    pthread_mutex_init(&proxy->mutex, NULL);
    for (unsigned i = 0; i < PAIRS; i++)
        proxy->pairs[i].fd[0] = proxy->pairs[i].fd[1] = -1;
    if (net_listen(&proxy->listen, 0, &proxy->listener, &error))
        give_up("proxy: %s", error.text);
    if (pthread_create(&proxy->thread, NULL, proxy_run, proxy) != 0)
        give_up("proxy: no thread");
    return proxy;
}

struct proxy *proxy_start(const struct net_address *to)
{
    const struct net_address listen = {.kind = NET_TCP, .host = "127.0.0.1"};
    return start(&listen, to);
}

struct proxy *proxy_before(const struct net_address *socket)
{
    struct net_address inside = *socket;
    size_t length = strlen(inside.path);
    if (length + sizeof ".in" > sizeof inside.path)
        give_up("proxy: %s is too long", inside.path);
    memcpy(inside.path + length, ".in", sizeof ".in");
    if (rename(socket->path, inside.path))
        give_up("proxy: %s: %s", socket->path, strerror(errno));
    struct proxy *proxy = start(socket, &inside);
    proxy->renamed = true;
    return proxy;
}

struct net_address proxy_address(const struct proxy *proxy)
{
    return proxy->listen;
}

void proxy_cut(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    for (unsigned i = 0; i < PAIRS; i++)
        pair_close(&proxy->pairs[i]);
    proxy->closed = true;
    pthread_mutex_unlock(&proxy->mutex);
    proxy_wake(proxy);
}

void proxy_cut_one(struct proxy *proxy, unsigned number)
{
    pthread_mutex_lock(&proxy->mutex);
    for (unsigned i = 0; i < PAIRS; i++)
        if (proxy->pairs[i].fd[0] >= 0 && proxy->pairs[i].number == number)
            pair_close(&proxy->pairs[i]);
    pthread_mutex_unlock(&proxy->mutex);
    proxy_wake(proxy);
}

void proxy_hang(struct proxy *proxy, unsigned number)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->hanging = number;
    pthread_mutex_unlock(&proxy->mutex);
}

unsigned proxy_opened(struct proxy *proxy, bool *last)
{
    *last = false;
    pthread_mutex_lock(&proxy->mutex);
    const unsigned opened = proxy->opened;
    for (unsigned i = 0; i < PAIRS; i++)
        *last |= proxy->pairs[i].fd[0] >= 0 && proxy->pairs[i].number + 1 == opened;
    pthread_mutex_unlock(&proxy->mutex);
    return opened;
}

void proxy_hold(struct proxy *proxy, bool hold)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->held = hold;
    pthread_mutex_unlock(&proxy->mutex);
    proxy_wake(proxy);
}

void proxy_open(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->closed = false;
    proxy->opened = 0;
    pthread_mutex_unlock(&proxy->mutex);
}

void proxy_stop(struct proxy *proxy)
{
    pthread_mutex_lock(&proxy->mutex);
    proxy->quit = true;
    pthread_mutex_unlock(&proxy->mutex);
    proxy_wake(proxy);
    pthread_join(proxy->thread, NULL);
    for (unsigned i = 0; i < PAIRS; i++)
        pair_close(&proxy->pairs[i]);
    close(proxy->listener);
    close(proxy->wake[0]);
    close(proxy->wake[1]);
    if (proxy->renamed) {
        unlink(proxy->listen.path);
        unlink(proxy->to.path);
    }
    free(proxy);
}
