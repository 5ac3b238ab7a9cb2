/* peer_runners.c - see peer_runners.h. */
#include "peer_runners.h"

#include <stdlib.h>

#include "base/worker.h"
#include "runners.h"

void conformance_peers_on_threads(void *context, const struct conformance_task *tasks, unsigned count)
{
    void (*functions[CONFORMANCE_PEER_TASKS])(void *);
    void *arguments[CONFORMANCE_PEER_TASKS];
    (void)context;
    for (unsigned i = 0; i < count; i++) {
        functions[i] = tasks[i].function;
        arguments[i] = tasks[i].argument;
    }
    conformance_run_threads(NULL, NULL, functions, arguments, count);
}

static void worker_main(void *worker)
{
    worker_run(worker);
}

void conformance_peers_on_fibers(void *context, const struct conformance_task *tasks, unsigned count)
{
    struct worker *workers[CONFORMANCE_PEERS_MAX] = {NULL};
    void (*mains[CONFORMANCE_PEERS_MAX])(void *);
    void *running[CONFORMANCE_PEERS_MAX];
    unsigned used = 0;
    (void)context;
    for (unsigned i = 0; i < count; i++) {
        struct worker **worker = &workers[tasks[i].compute];
        if (!*worker) {
            *worker = worker_create();
            mains[used] = worker_main;
            running[used++] = *worker;
        }
        if (!*worker || worker_spawn(*worker, tasks[i].function, tasks[i].argument))
            abort();
    }
    conformance_run_threads(NULL, NULL, mains, running, used);
    for (unsigned i = 0; i < CONFORMANCE_PEERS_MAX; i++)
        if (workers[i])
            worker_destroy(workers[i]);
}
