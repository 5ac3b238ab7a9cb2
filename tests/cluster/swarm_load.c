/*
 * swarm_load.c - the kind of load whose compute nodes are programs with the public library (swarm_worker.h):
 * what they recorded is merged and judged as the simulator's histories are.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cluster/load_kind.h"
#include "cluster/swarm_worker.h"
#include "swarm/linearize.h"

struct swarm_load {
    struct load_setup setup;
    struct shared *shared;
    int descriptor;
    char memories[512];           /* for processes that fill and read */
    unsigned place[LOAD_SERVERS]; /* of the process that runs now */
};

/* A string that lives as long as the test: arguments are read when a process is started, not later. */
static const char *number_text(uint64_t number)
{
    return text_of("%" PRIu64, number);
}

static unsigned place_take(struct swarm_load *load, unsigned server)
{
    if (load->shared->places == SHARED_PLACES)
        fail_hard("more than %u processes in one run", SHARED_PLACES);
    load->shared->place[load->shared->places].server = server;
    load->shared->place[load->shared->places].threads = SHARED_THREADS;
    return load->shared->places++;
}

static void worker_arguments(struct swarm_load *load, unsigned place, const char *memories, const char *mode,
                             const char *arguments[LOAD_ARGUMENTS_MAX])
{
    unsigned server = load->shared->place[place].server; /* LOAD_SERVERS: of none, nothing is done to it */
    uint32_t lease_ms = load->setup.lease_ms[server < LOAD_SERVERS ? server : LOAD_SERVERS - 1];
    const char *const all[] = {SWARM_WORKER,
                               number_text((uint64_t)load->descriptor),
                               number_text(place),
                               memories,
                               number_text(lease_ms),
                               mode,
                               load->setup.secret_file, /* may be the NULL */
                               NULL};
    memcpy(arguments, all, sizeof all);
}

static const char *own_program(void)
{
    return "/proc/self/exe"; /* of the child that execs: the same program */
}

static void fail_if_wrong(const struct swarm_load *load)
{
    for (unsigned i = 0; i < load->shared->places; i++) {
        const struct shared_place *place = &load->shared->place[i];
        /* Acquire: the text is complete. */
        if (__atomic_load_n(&place->failed, __ATOMIC_ACQUIRE) == 2)
            fail_hard("seed %" PRIu64 ", worker %u of compute node %u: %s", load->setup.seed, i,
                      place->server, place->wrong);
    }
}

/* A worker that does one thing and ends. */
static void run_worker(struct swarm_load *load, const char *mode)
{
    static struct process_result result;
    const char *arguments[LOAD_ARGUMENTS_MAX];
    worker_arguments(load, place_take(load, LOAD_SERVERS), load->memories, mode, arguments);
    process_run(load->setup.scene, own_program(), arguments, &result);
    fail_if_wrong(load);
    if (result.code)
        fail_hard("the worker that was to %s ended with %d: %s", mode, result.code, result.error);
}

static void *library_create(const struct load_setup *setup, const char *memories)
{
    struct swarm_load *load = calloc(1, sizeof *load);
    if (!load)
        fail_hard("no memory");
    load->setup = *setup;
    load->shared = shared_create(&load->descriptor);
    load->shared->seed = setup->seed;
    load->shared->logged = setup->logged;
    load->shared->allowed = SHARED_PACE;
    load->shared->calm_ns = 1; /* waits are measured, but not judged yet */
    snprintf(load->memories, sizeof load->memories, "%s", memories);
    run_worker(load, "fill");
    return load;
}

static const char *library_compute(void *object, unsigned server, const char *memories, bool first,
                                   const char *arguments[LOAD_ARGUMENTS_MAX])
{
    struct swarm_load *load = object;
    load->place[server] = place_take(load, server);
    worker_arguments(load, load->place[server], memories, load->setup.lies ? load->setup.lies : "work",
                     arguments);
    return own_program();
}

static void library_start(void *object, struct process *const computes[LOAD_SERVERS])
{
    (void)object; /* workers begin by themselves */
}

static void library_underway(void *object)
{
    struct swarm_load *load = object;
    __atomic_store_n(&load->shared->underway, 1, __ATOMIC_RELAXED);
}

static void library_figures(const void *object, unsigned server, struct load_figures *figures)
{
    const struct swarm_load *load = object;
    *figures = (struct load_figures){0};
    for (unsigned i = 0; i < load->shared->places; i++)
        for (unsigned t = 0; t < SHARED_THREADS && load->shared->place[i].server == server; t++) {
            const struct shared_thread *thread = &load->shared->place[i].thread[t];
            figures->operations += __atomic_load_n(&thread->operations, __ATOMIC_RELAXED);
            figures->unknown += __atomic_load_n(&thread->unknown, __ATOMIC_RELAXED);
            figures->refused += __atomic_load_n(&thread->unreachable, __ATOMIC_RELAXED);
            uint64_t longest = __atomic_load_n(&thread->longest_ns, __ATOMIC_RELAXED);
            figures->longest_ns = longest > figures->longest_ns ? longest : figures->longest_ns;
        }
    snprintf(figures->longest, sizeof figures->longest, "an operation of the library");
}

static void library_forget_longest(void *object)
{
    struct swarm_load *load = object;
    /* Relaxed: the workers look at it between rounds. */
    __atomic_add_fetch(&load->shared->forget, 1, __ATOMIC_RELAXED);
}

struct progress {
    struct swarm_load *load;
    uint64_t wanted[LOAD_SERVERS];
};

static bool place_rests(const struct shared_place *place)
{
    for (unsigned t = 0; t < SHARED_THREADS; t++)
        if (!__atomic_load_n(&place->thread[t].paused, __ATOMIC_ACQUIRE))
            return false;
    return true;
}

static bool advanced(void *context)
{
    struct progress *progress = context;
    fail_if_wrong(progress->load);
    for (unsigned i = 0; i < LOAD_SERVERS; i++) {
        struct load_figures figures;
        library_figures(progress->load, i, &figures);
        /* A process whose logs are full, or that is ahead, does no more. */
        if (figures.operations < progress->wanted[i] &&
            !place_rests(&progress->load->shared->place[progress->load->place[i]]))
            return false;
    }
    return true;
}

static void library_advance(void *object, uint64_t operations)
{
    struct progress progress = {.load = object};
    for (unsigned i = 0; i < LOAD_SERVERS; i++) {
        struct load_figures figures;
        library_figures(object, i, &figures);
        progress.wanted[i] = figures.operations + operations;
    }
    wait_until(advanced, &progress, "the workers to go on");
}

/* A deed is done. Whole histories are judged, so nothing else ends with it. */
static void library_next_epoch(void *object)
{
    struct swarm_load *load = object;
    __atomic_add_fetch(&load->shared->allowed, SHARED_PACE, __ATOMIC_RELAXED);
}

static bool all_rest(void *context)
{
    struct swarm_load *load = context;
    fail_if_wrong(load);
    for (unsigned i = 0; i < LOAD_SERVERS; i++)
        if (!place_rests(&load->shared->place[load->place[i]]))
            return false;
    return true;
}

static void library_settle(void *object)
{
    (void)object; /* a worker takes its share as it opens the index */
}

static void library_pause(void *object)
{
    struct swarm_load *load = object;
    __atomic_store_n(&load->shared->order, SHARED_PAUSE, __ATOMIC_RELEASE);
    wait_until(all_rest, load, "the workers to pause");
}

static void library_resume(void *object)
{
    struct swarm_load *load = object;
    __atomic_store_n(&load->shared->order, SHARED_RUN, __ATOMIC_RELEASE);
}

static void library_verify(void *object)
{
    static char text[4000];
    struct swarm_load *load = object;
    run_worker(load, "read");
    size_t count = 0, total, places = load->shared->places;
    struct history_log *logs = calloc(places * SHARED_THREADS, sizeof *logs);
    if (!logs)
        fail_hard("no memory");
    for (size_t i = 0; i < places; i++)
        for (unsigned t = 0; t < SHARED_THREADS; t++)
            logs[count++] = load->shared->place[i].thread[t].log;
    struct history_op *all = history_merge(logs, count, &total);
    enum linearize_verdict verdict = linearize_all(all, total, NULL, text, sizeof text);
    if (verdict != LINEARIZE_ACCEPTED)
        fail_hard("seed %" PRIu64 ": the history of %zu operations is not linearizable (verdict %d): %s",
                  load->setup.seed, total, (int)verdict, text);
    free(all);
    free(logs);
}

static void library_calm(void *object, uint64_t patience_ns)
{
    struct swarm_load *load = object;
    load->shared->patience_ns = patience_ns;
    __atomic_store_n(&load->shared->calm_ns, now_ns(), __ATOMIC_RELEASE);
}

static void library_stop(void *object)
{
    struct swarm_load *load = object;
    __atomic_store_n(&load->shared->order, SHARED_STOP, __ATOMIC_RELEASE);
    wait_until(all_rest, load, "the workers to end");
    shared_destroy(load->shared, load->descriptor);
    free(load);
}

const struct load_kind load_library = {.name = "library",
                                       .create = library_create,
                                       .compute = library_compute,
                                       .start = library_start,
                                       .underway = library_underway,
                                       .figures = library_figures,
                                       .forget_longest = library_forget_longest,
                                       .advance = library_advance,
                                       .next_epoch = library_next_epoch,
                                       .settle = library_settle,
                                       .pause = library_pause,
                                       .resume = library_resume,
                                       .verify = library_verify,
                                       .calm = library_calm,
                                       .stop = library_stop};
