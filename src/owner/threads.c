/* threads.c - the layer's own threads in a real process; see owner_threads_start in owner.h. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "owner/state.h"

struct runner;
struct owner_threads {
    struct owner *owner;
    struct runner *runners; /* owned */
    unsigned count;
};

/* How often, at most, a thread looks whether it holds blocks back that it does not need. */
#define IDLE_NS UINT64_C(1000000000)

enum runner_task { RUN_KEEPER, RUN_TICKER, RUN_IDLE, RUN_SERVER };
struct fiber_argument {
    struct runner *runner;
    enum runner_task task;
};

struct runner {
    struct owner_threads *threads;
    struct thread *thread;
    struct worker *worker;
    struct pool_worker *pool;
    struct fiber_argument *fibers; /* owned */
    unsigned count, left;          /* `left`: fibers that have not returned; the thread's */
    struct error told;             /* the last that was logged; the thread's */
};

static int work(struct runner *runner, enum runner_task task, struct tree_session *session)
{
    struct owner *owner = runner->threads->owner;
    switch (task) {
    case RUN_KEEPER:
        return owner_keep(owner, session);
    case RUN_SERVER:
        return owner_serve(owner, session);
    default:
        return 0;
    }
}

/* What fails is tried again in a while. It is told once, as long as the reason stays the same. */
static void try_later(struct runner *runner, const struct error *error)
{
    if (strcmp(error->text, runner->told.text) != 0)
        log_warning("ownership: %s; it is tried again", error->text);
    runner->told = *error;
    task_sleep(runner->threads->owner->options.tick_ns);
}

/* The keeper must not end while the process lives, nor what answers the peers: others would wait for it. */
static void run_with_session(struct runner *runner, enum runner_task task)
{
    struct owner *owner = runner->threads->owner;
    struct tree_session *session = NULL;
    struct error error = {0};
    while (tree_session_create(&session, owner->compute, runner->pool, &error)) {
        if (owner_stopping(owner))
            return;
        try_later(runner, &error);
    }
    while (work(runner, task, session) && !owner_stopping(owner))
        try_later(runner, tree_session_error(session));
    tree_session_destroy(session);
}

/* Each thread's worker takes blocks for what is done for others. */
static void idle(struct runner *runner)
{
    struct owner *owner = runner->threads->owner;
    uint64_t looked = task_now();
    while (!owner_stopping(owner)) {
        task_sleep(owner->options.tick_ns);
        if (task_now() - looked < IDLE_NS)
            continue;
        looked = task_now();
        pool_worker_idle(runner->pool);
    }
}

static void fiber(void *context)
{
    struct fiber_argument *argument = context;
    struct runner *runner = argument->runner;
    if (argument->task == RUN_TICKER)
        owner_tick(runner->threads->owner);
    else if (argument->task == RUN_IDLE)
        idle(runner);
    else
        run_with_session(runner, argument->task);
    if (--runner->left == 0)
        pool_worker_destroy(runner->pool); /* from a task: it returns blocks */
}

static void thread(void *context)
{
    struct runner *runner = context;
    worker_run(runner->worker);
}

static int start(struct owner_threads *threads, struct runner *runner, bool first, unsigned fibers,
                 struct error *error)
{
    runner->threads = threads;
    runner->count = fibers + (first ? 3 : 1);
    runner->left = runner->count;
    runner->fibers = calloc(runner->count, sizeof *runner->fibers);
    runner->worker = worker_create();
    if (!runner->fibers || !runner->worker)
        return error_set(error, BANYAN_ENOMEM, "no memory for a thread of the ownership of ranges");
    int status = pool_worker_create(&runner->pool, tree_compute_pool(threads->owner->compute), error);
    for (unsigned i = 0; i < runner->count && !status; i++) {
        static const enum runner_task others[] = {RUN_IDLE, RUN_KEEPER, RUN_TICKER};
        enum runner_task task = i < (first ? 3u : 1u) ? others[i] : RUN_SERVER;
        runner->fibers[i] = (struct fiber_argument){runner, task};
        if (worker_spawn(runner->worker, fiber, &runner->fibers[i]))
            status = error_set(error, BANYAN_ENOMEM, "no memory for a fiber of the ownership of ranges");
    }
    return status ? status : thread_start(&runner->thread, thread, runner, error);
}

int owner_threads_start(struct owner_threads **started, struct owner *owner, unsigned count, unsigned fibers,
                        struct error *error)
{
    *started = NULL;
    if (!count || !fibers)
        return error_set(error, BANYAN_EINVAL, "the ownership of ranges needs a thread and a fiber at least");
    struct owner_threads *threads = calloc(1, sizeof *threads);
    struct runner *runners = calloc(count, sizeof *runners);
    if (!threads || !runners) {
        free(threads);
        free(runners);
        return error_set(error, BANYAN_ENOMEM, "no memory for the threads of the ownership of ranges");
    }
    *threads = (struct owner_threads){.owner = owner, .runners = runners, .count = count};
    int status = 0;
    for (unsigned i = 0; i < count && !status; i++)
        status = start(threads, &runners[i], i == 0, fibers, error);
    if (status) {
        owner_threads_stop(threads);
        return status;
    }
    *started = threads;
    return 0;
}

void owner_threads_stop(struct owner_threads *threads)
{
    if (!threads)
        return;
    owner_stop(threads->owner);
    for (unsigned i = 0; i < threads->count; i++) {
        struct runner *runner = &threads->runners[i];
        if (runner->thread)
            thread_join(runner->thread);
        else if (runner->pool)
            pool_worker_abandon(runner->pool);
        if (runner->worker)
            worker_destroy(runner->worker);
        free(runner->fibers);
    }
    free(threads->runners);
    free(threads);
}
