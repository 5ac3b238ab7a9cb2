/* daemons.c - see daemons.h. */
#include "bench/daemons.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memoryd/memoryd.h"

/* The daemon sends this once: its port, or why there is none. */
struct answer {
    uint16_t port;
    struct error error;
};

static void serve(const struct memory_options *memory, struct net_address *address, int leash, int tell)
{
    struct answer answer = {0};
    struct memory_node *node;
    struct memoryd *server;
    const struct memoryd_options options = {.listen = address, .listen_count = 1, .walk_threads = 1};
    int status = memory_node_create(&node, memory, &answer.error);
    if (!status)
        status = memoryd_create(&server, node, &options, &answer.error);
    if (!status)
        status = memoryd_start(server, &answer.error);
    if (!status)
        answer.port = memoryd_port(server, 0);
    char byte;
    if (write(tell, &answer, sizeof answer) == sizeof answer && !status)
        while (read(leash, &byte, 1) < 0 && errno == EINTR)
            ;
    _exit(status != 0);
}

static int start_one(struct bench_daemon *daemon, const struct memory_options *memory,
                     struct net_address *address, struct error *error)
{
    int leash[2], told[2];
    struct answer answer;
    if (pipe2(leash, O_CLOEXEC))
        return error_set(error, BANYAN_ENOMEM, "no pipe for a memory node: %s", strerror(errno));
    if (pipe2(told, O_CLOEXEC)) {
        close(leash[0]);
        close(leash[1]);
        return error_set(error, BANYAN_ENOMEM, "no pipe for a memory node: %s", strerror(errno));
    }
    fflush(NULL);
    daemon->pid = fork();
    if (!daemon->pid) {
        close(leash[1]);
        serve(memory, address, leash[0], told[1]);
    }
    daemon->leash = leash[1];
    close(leash[0]);
    close(told[1]);
    bool there = daemon->pid > 0 && read(told[0], &answer, sizeof answer) == sizeof answer;
    close(told[0]);
    if (!there)
        return error_set(error, BANYAN_ENET, "a memory node of its own process did not start");
    if (answer.error.code)
        return error_set(error, answer.error.code, "%s", answer.error.text);
    address->port = answer.port;
    return 0;
}

int bench_daemons_start(struct bench_daemons *daemons, unsigned count, const struct memory_options *memory,
                        enum net_kind kind, struct error *error)
{
    int status = 0;
    *daemons = (struct bench_daemons){.daemons = calloc(count, sizeof *daemons->daemons),
                                      .addresses = calloc(count, sizeof *daemons->addresses)};
    if (!daemons->daemons || !daemons->addresses)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u memory nodes", count);
    for (unsigned i = 0; i < count && !status; i++) {
        struct net_address *address = &daemons->addresses[i];
        *address = (struct net_address){.kind = kind, .host = "127.0.0.1"};
        if (kind == NET_UNIX)
            snprintf(address->path, sizeof address->path, "/tmp/banyan-bench-%ld-%u.sock", (long)getpid(), i);
        daemons->count++;
        status = start_one(&daemons->daemons[i], memory, address, error);
    }
    return status;
}

void bench_daemons_stop(struct bench_daemons *daemons)
{
    for (unsigned i = 0; i < daemons->count; i++) {
        struct bench_daemon *daemon = &daemons->daemons[i];
        if (daemon->pid > 0) {
            close(daemon->leash);
            kill(daemon->pid, SIGKILL); /* its pool is of no use any more */
            while (waitpid(daemon->pid, NULL, 0) < 0 && errno == EINTR)
                ;
        }
        if (daemons->addresses[i].kind == NET_UNIX)
            unlink(daemons->addresses[i].path);
    }
    free(daemons->daemons);
    free(daemons->addresses);
    *daemons = (struct bench_daemons){0};
}
