/* runners.c - see runners.h. */
#include "runners.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/worker.h"

struct start {
    void (*function)(void *);
    void *argument;
};

static void *thread_main(void *argument)
{
    struct start *start = argument;
    start->function(start->argument);
    return NULL;
}

void conformance_run_threads(void *context, struct fabric *fabric, void (*const *functions)(void *),
                             void *const *arguments, unsigned count)
{
    pthread_t threads[CONFORMANCE_TASKS_MAX];
    struct start starts[CONFORMANCE_TASKS_MAX];
    for (unsigned i = 0; i < count; i++) {
        starts[i] = (struct start){functions[i], arguments[i]};
        if (pthread_create(&threads[i], NULL, thread_main, &starts[i]) != 0)
            abort();
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

#define WORKERS 2

static void worker_main(void *worker)
{
    worker_run(worker);
}

void conformance_run_fibers(void *context, struct fabric *fabric, void (*const *functions)(void *),
                            void *const *arguments, unsigned count)
{
    struct worker *workers[WORKERS];
    void (*mains[WORKERS])(void *);
    void *worker_arguments[WORKERS];
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = worker_create();
        if (workers[i] == NULL)
            abort();
        mains[i] = worker_main;
        worker_arguments[i] = workers[i];
    }
    for (unsigned i = 0; i < count; i++)
        if (worker_spawn(workers[i % WORKERS], functions[i], arguments[i]) != 0)
            abort();
    conformance_run_threads(context, fabric, mains, worker_arguments, WORKERS);
    for (unsigned i = 0; i < WORKERS; i++)
        worker_destroy(workers[i]);
}
