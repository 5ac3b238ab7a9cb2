/* swarm_worker.c - see swarm_worker.h. */
#include "cluster/swarm_worker.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/thread.h"
#include "cluster/process.h"
#include "cluster/subject_api.h"
#include "swarm/churn.h"

#define INDEX        "swarm"
#define SHARED_ROUND 3000u /* operations that a round records, at most: a scan is one for each key */

struct worker {
    struct shared *shared;
    struct shared_place *place;
    unsigned number; /* of the place */
    const char *mode;
    bool once; /* fills or reads, then ends */
    struct swarm_plan plan;
    struct banyan *banyan;
};

struct at_work {
    struct worker *worker;
    unsigned number;
    struct shared_thread *shared;
    struct subject_api api;
    struct driver driver;
    struct driver_setting setting;
    struct churn churn;
    uint32_t forgotten; /* shared->forget, as it was */
};

void swarm_worker_plan(uint64_t seed, struct swarm_plan *plan)
{
    swarm_plan_draw(plan, seed);
    plan->threads = SHARED_THREADS;
    plan->rounds = 300;
    plan->keys = plan->keys < 160 ? 160 : plan->keys > 480 ? 480 : plan->keys;
    plan->window = plan->keys / 8;
    plan->disjoint = false;
}

/* ---- what is wrong ---- */

static void note_wrong(void *context, int code, const char *text)
{
    struct at_work *thread = context;
    struct shared_place *place = thread->worker->place;
    uint32_t nobody = 0;
    thread->setting.failed = code;
    /* Whoever is first writes the text, and publishes it with the second store (release). */
    if (__atomic_compare_exchange_n(&place->failed, &nobody, 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
        snprintf(place->wrong, sizeof place->wrong, "%s", text);
        __atomic_store_n(&place->failed, 2, __ATOMIC_RELEASE);
    }
}

/* Anything may happen to a connection here. */
static bool always(void *context)
{
    return true;
}

/* ---- orders ---- */

static void publish(struct at_work *thread)
{
    struct shared_thread *shared = thread->shared;
    const struct driver *driver = &thread->driver;
    __atomic_store_n(&shared->unreachable, driver->unreachable, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->unknown, driver->unknown, __ATOMIC_RELAXED);
    __atomic_store_n(&shared->longest_ns, driver->longest_ns, __ATOMIC_RELAXED);
    __atomic_add_fetch(&shared->operations, 1, __ATOMIC_RELAXED);
}

/* A full log rests for good, and one that is ahead of the deeds until the next one. */
static bool must_rest(const struct at_work *thread)
{
    const struct shared *shared = thread->worker->shared;
    const uint64_t count = thread->shared->log.count;
    return count + SHARED_ROUND > SHARED_LOG ||
           (count >= __atomic_load_n(&shared->allowed, __ATOMIC_RELAXED) &&
            __atomic_load_n(&shared->underway, __ATOMIC_RELAXED));
}

/* The deeds wait until every process has written to its own ranges. When that happens is not known, since a
 * process that has lost a connection has these some seconds later: so work goes on, and leaves most of the
 * log for the deeds. */
static void wait_for_deeds(const struct at_work *thread)
{
    const struct shared *shared = thread->worker->shared;
    if (!__atomic_load_n(&shared->underway, __ATOMIC_RELAXED) && thread->shared->log.count >= SHARED_PACE)
        usleep(20000);
}

/* Between two rounds: pauses as long as the conductor wants it; false when it is to end. */
static bool obey(struct at_work *thread)
{
    struct shared *shared = thread->worker->shared;
    uint32_t order;
    if (thread->worker->once)
        return true; /* is part of what the others pause for */
    /* Acquire: what the conductor did before it gave the order has happened. */
    while ((order = __atomic_load_n(&shared->order, __ATOMIC_ACQUIRE)) == SHARED_PAUSE ||
           (order == SHARED_RUN && must_rest(thread))) {
        /* Release: the log is complete. Whoever rests counts as paused. */
        __atomic_store_n(&thread->shared->paused, 1, __ATOMIC_RELEASE);
        usleep(2000);
    }
    __atomic_store_n(&thread->shared->paused, 0, __ATOMIC_RELEASE);
    thread->setting.calm_ns = __atomic_load_n(&shared->calm_ns, __ATOMIC_RELAXED);
    thread->setting.patience_ns = shared->patience_ns;
    if (order == SHARED_STOP)
        thread->setting.failed = BANYAN_EABORT; /* ends the churn */
    return order != SHARED_STOP;
}

static void after_round(void *context, unsigned task, unsigned round)
{
    struct at_work *thread = context;
    uint32_t forget = __atomic_load_n(&thread->worker->shared->forget, __ATOMIC_RELAXED);
    if (forget != thread->forgotten) {
        thread->forgotten = forget;
        thread->driver.longest_ns = 0;
    }
    publish(thread);
    if (obey(thread))
        wait_for_deeds(thread);
}

/* ---- lies, to see whether the judges notice ---- */

/* Some acknowledged writes are never done ("lose"), or some keys not found that are there ("miss"). */
static int lie(void *context, struct subject_call *call)
{
    const struct at_work *thread = context;
    struct subject_api api = thread->api;
    bool time = thread->shared->operations % 16 == 15;
    if (time && call->kind == HISTORY_PUT && !strcmp(thread->worker->mode, "lose"))
        return 0;
    int status = subject_api.one(&api, call);
    return time && call->kind == HISTORY_GET && !status && !strcmp(thread->worker->mode, "miss")
               ? BANYAN_ENOTFOUND
               : status;
}

static void lying_many(void *context, struct subject_call *calls, size_t count)
{
    struct at_work *thread = context;
    subject_api.many(&thread->api, calls, count);
}

static int lying_scan(void *context, const struct tree_range *range, tree_visit_function *visit,
                      void *visited)
{
    struct at_work *thread = context;
    return subject_api.scan(&thread->api, range, visit, visited);
}

static const char *lying_trouble(void *context)
{
    struct at_work *thread = context;
    return subject_api.trouble(&thread->api);
}

static const struct subject_ops liar = {
    .one = lie, .many = lying_many, .scan = lying_scan, .trouble = lying_trouble};

/* ---- threads ---- */

static void thread_prepare(struct at_work *thread, struct worker *worker, unsigned number)
{
    const struct swarm_plan *plan = &worker->plan;
    bool lies = !strcmp(worker->mode, "lose") || !strcmp(worker->mode, "miss");
    thread->worker = worker;
    thread->number = number;
    thread->shared = &worker->place->thread[number];
    thread->setting = (struct driver_setting){.shape = {.fixed_keys = plan->key_kind == FORMAT_KEY_FIXED,
                                                        .long_keys = plan->long_keys,
                                                        .key_bytes = (uint8_t)plan->key_bytes,
                                                        .value_bytes = (uint8_t)plan->value_bytes,
                                                        .value_variable = plan->value_variable,
                                                        .records = plan->records},
                                              .history = &worker->shared->history,
                                              .pause_ns = 1000000,
                                              .fail = note_wrong,
                                              .lossy = always,
                                              .context = thread};
    history_log_init_fixed(&thread->shared->log, &worker->shared->history,
                           worker->number * SHARED_THREADS + number,
                           worker->shared->ops[worker->number][number], SHARED_LOG);
    driver_init(&thread->driver, &thread->setting, lies ? &liar : &subject_api,
                lies ? (void *)thread : (void *)&thread->api, &thread->shared->log, plan->seed);
    swarm_plan_churn(plan, &thread->churn);
    thread->churn.after = after_round;
    thread->churn.context = thread;
}

/* The pool may be out of reach for a while: a compute node goes on trying. */
static bool thread_open(struct at_work *thread)
{
    struct worker *worker = thread->worker;
    int status = banyan_session_open(worker->banyan, &thread->api.session);
    while (!status && obey(thread)) {
        status = banyan_index_open(thread->api.session, INDEX, &thread->api.index);
        if (!status)
            return true;
        if (status != BANYAN_ENET && status != BANYAN_ETIMEOUT)
            break;
        status = 0;
        usleep(10000);
    }
    if (status)
        driver_fail(&thread->driver, status, "the index cannot be opened: %s",
                    thread->api.session ? banyan_session_error(thread->api.session)
                                        : banyan_strerror(status));
    return false;
}

static void thread_close(struct at_work *thread)
{
    banyan_index_close(thread->api.index);
    banyan_session_close(thread->api.session);
    driver_free(&thread->driver);
}

static void thread_main(void *argument)
{
    struct at_work *thread = argument;
    struct worker *worker = thread->worker;
    const struct churn_place place = {thread->number + worker->place->server * SHARED_THREADS,
                                      2 * SHARED_THREADS};
    bool open = thread_open(thread);
    for (uint64_t again = 0; open && obey(thread) && !driver_stopped(&thread->driver); again++) {
        thread->churn.seed = random_mix(worker->shared->seed + worker->number * 1000 + again);
        churn_task(&thread->driver, &thread->churn, &place);
    }
    thread_close(thread);
    /* Release: the log is complete. */
    __atomic_store_n(&thread->shared->paused, 1, __ATOMIC_RELEASE);
}

/* ---- one thing, once ---- */

static void create_index(struct worker *worker, struct at_work *thread)
{
    const struct swarm_plan *plan = &worker->plan;
    const struct banyan_geometry plain = {.struct_bytes = sizeof plain,
                                          .key_bytes = plan->key_bytes,
                                          .key_variable = plan->key_kind == FORMAT_KEY_VARIABLE,
                                          .value_bytes = plan->value_bytes,
                                          .value_variable = plan->value_variable,
                                          .leaf_bytes = plan->leaf_bytes,
                                          .internal_bytes = plan->internal_bytes,
                                          .inline_key_bytes = plan->inline_key_bytes};
    int status = banyan_session_open(worker->banyan, &thread->api.session);
    status = status ? status
                    : banyan_index_create(thread->api.session, INDEX, plan->records ? NULL : &plain,
                                          &thread->api.index);
    if (status)
        driver_fail(&thread->driver, status, "the index cannot be made: %s",
                    thread->api.session ? banyan_session_error(thread->api.session)
                                        : banyan_strerror(status));
}

static void run_once(struct worker *worker)
{
    struct at_work thread = {0};
    thread_prepare(&thread, worker, 0);
    if (!strcmp(worker->mode, "fill")) {
        create_index(worker, &thread);
        churn_fill(&thread.driver, &thread.churn);
    } else if (thread_open(&thread)) {
        churn_read_all(&thread.driver, &thread.churn);
    }
    publish(&thread);
    thread_close(&thread);
}

static void run_threads(struct worker *worker)
{
    struct at_work threads[SHARED_THREADS] = {{0}};
    struct thread *handles[SHARED_THREADS];
    struct error error;
    for (unsigned i = 0; i < SHARED_THREADS; i++) {
        thread_prepare(&threads[i], worker, i);
        if (thread_start(&handles[i], thread_main, &threads[i], &error))
            fail_hard("%s", error.text);
    }
    for (unsigned i = 0; i < SHARED_THREADS; i++)
        thread_join(handles[i]);
}

/* ---- the process ---- */

int swarm_worker_main(int argc, char **argv)
{
    if (argc != 7 && argc != 8)
        fail_hard("%s takes five or six arguments", SWARM_WORKER);
    struct worker worker = {.number = (unsigned)atoi(argv[3]), .mode = argv[6]};
    char message[300] = "";
    worker.once = !strcmp(worker.mode, "fill") || !strcmp(worker.mode, "read");
    signal(SIGTERM, SIG_IGN); /* ends by order, so that its last operation is complete */
    worker.shared = shared_map(atoi(argv[2]));
    worker.place = &worker.shared->place[worker.number];
    swarm_worker_plan(worker.shared->seed, &worker.plan);
    struct banyan_options options = {.struct_bytes = sizeof options,
                                     .uri = argv[4],
                                     .lease_ms = (uint32_t)atoi(argv[5]),
                                     .timeout_ms = 5 * (uint32_t)atoi(argv[5]),
                                     .secret_file = argv[7],
                                     .own = BANYAN_OWN_AUTO,
                                     .log = worker.shared->logged ? BANYAN_LOG_AUTO : BANYAN_LOG_NONE,
                                     .log_segment_bytes = 256u << 10,
                                     .format = !strcmp(worker.mode, "fill"),
                                     .message = message,
                                     .message_bytes = sizeof message};
    int status;
    while ((status = banyan_open(&worker.banyan, &options)) == BANYAN_ENET || status == BANYAN_ETIMEOUT)
        if (__atomic_load_n(&worker.shared->order, __ATOMIC_RELAXED) == SHARED_STOP)
            return 1; /* the conductor has given up */
        else
            usleep(20000);
    if (status)
        fail_hard("a worker cannot open %s: %s", argv[4], message);
    printf("works\n");
    fflush(stdout);
    if (worker.once)
        run_once(&worker);
    else
        run_threads(&worker);
    status = banyan_close(worker.banyan);
    swarm_plan_free(&worker.plan);
    if (status)
        fail_hard("the pool cannot be closed: %s", banyan_strerror(status));
    return worker.place->failed ? 1 : 0;
}
