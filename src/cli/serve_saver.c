/* serve_saver.c - see serve_saver.h. */
#include "cli/serve_saver.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "base/task.h"
#include "cli/cluster_save.h"
#include "pool/pool.h"

#define SECOND     UINT64_C(1000000000)
#define TICK_NS    (SECOND / 4) /* so soon it sees that it is asked, or is to end */
#define LOOK_TICKS 40u          /* between two looks at the memory nodes; up to twice as many */

struct serve_saver {
    struct tree_compute *compute;
    const struct serve_settings *settings;
    struct thread *thread;
    uint32_t stopping;    /* atomic */
    struct random random; /* the thread's */
    struct spinlock lock; /* guards what follows */
    bool asked;
    struct server_saves saves;
};

static bool cancelled(void *context)
{
    const struct serve_saver *saver = context;
    return atomic_load_relaxed(&saver->stopping); /* relaxed: nothing else is read by it */
}

static void saves_end(struct serve_saver *saver, bool made, bool failed, uint64_t ns)
{
    spinlock_lock(&saver->lock);
    saver->saves.saving = false;
    saver->saves.failed = failed;
    saver->saves.saves += made;
    if (made) {
        saver->saves.saved_ms = clock_wall_ms();
        saver->saves.ns = ns;
    }
    spinlock_unlock(&saver->lock);
}

static void save(struct serve_saver *saver, bool only_due)
{
    const struct save_options options = {
        .copies = saver->settings->log_copies, .cancelled = cancelled, .context = saver};
    const uint64_t began = task_now();
    struct save_stats stats;
    struct error error = {0};
    bool made = false;
    spinlock_lock(&saver->lock);
    saver->saves.saving = true;
    spinlock_unlock(&saver->lock);
    int status = cluster_save(&saver->settings->fabric, &options, only_due, &made, &stats, &error);
    /* Another compute node was first, or this one is to end. */
    const bool given_up = status == BANYAN_EABORT || (only_due && status == BANYAN_EBUSY);
    if (made)
        log_info("checkpoint %" PRIu64 ": %" PRIu64 " keys, %.1f MiB on the memory nodes' disks, %.1f s",
                 stats.number, stats.keys, (double)stats.bytes / 1048576, (double)(task_now() - began) / 1e9);
    else if (status && !given_up)
        log_warning("checkpoint: %s", error.text);
    saves_end(saver, made, status && !given_up, task_now() - began);
}

/* Whether a memory node wants one, and no compute node makes it. */
static bool due(struct pool_session *pool)
{
    struct save_look look;
    struct error error = {0};
    pool_session_begin(pool);
    return !save_look(pool, &look, &error) && look.due && !look.busy;
}

static bool asked_take(struct serve_saver *saver)
{
    spinlock_lock(&saver->lock);
    const bool asked = saver->asked;
    saver->asked = false;
    spinlock_unlock(&saver->lock);
    return asked;
}

static void saver_main(void *context)
{
    struct serve_saver *saver = context;
    struct pool_worker *worker = NULL;
    struct pool_session pool;
    struct error error = {0};
    uint64_t ticks = 0;
    if (pool_worker_create(&worker, tree_compute_pool(saver->compute), &error)) {
        log_warning("this process makes no checkpoints: %s", error.text);
        return;
    }
    pool_session_init(&pool, worker, NULL);
    while (!cancelled(saver)) {
        const bool asked = asked_take(saver);
        if (!asked && ticks > 0)
            ticks--;
        if (asked || (!ticks && due(&pool)))
            save(saver, !asked);
        if (!ticks)
            ticks = LOOK_TICKS + random_below(&saver->random, LOOK_TICKS);
        task_sleep(TICK_NS);
    }
    pool_worker_destroy(worker);
}

static bool all_on_disk(struct tree_compute *compute)
{
    const struct fabric *fabric = pool_fabric(tree_compute_pool(compute));
    for (uint16_t node = 0; node < fabric_memory_nodes(fabric); node++)
        if (fabric_membership(fabric, node) && fabric_durability(fabric, node) < FABRIC_KEPT_ON_DISK)
            return false;
    return true;
}

int serve_saver_start(struct serve_saver **saver, struct tree_compute *compute,
                      const struct serve_settings *settings, struct error *error)
{
    *saver = NULL;
    if (!all_on_disk(compute))
        return 0;
    struct serve_saver *made = calloc(1, sizeof *made);
    if (!made)
        return error_set(error, BANYAN_ENOMEM, "no memory to make checkpoints");
    made->compute = compute;
    made->settings = settings;
    random_seed(&made->random, clock_wall_ns());
    int status = thread_start(&made->thread, saver_main, made, error);
    if (status)
        free(made);
    else
        *saver = made;
    return status;
}

void serve_saver_stop(struct serve_saver *saver)
{
    if (!saver || !saver->thread)
        return;
    atomic_store_relaxed(&saver->stopping, 1); /* relaxed: see cancelled */
    thread_join(saver->thread);
    saver->thread = NULL;
}

void serve_saver_destroy(struct serve_saver *saver)
{
    serve_saver_stop(saver);
    free(saver);
}

int serve_saver_begin(void *context, struct error *error)
{
    struct serve_saver *saver = context;
    spinlock_lock(&saver->lock);
    const bool busy = saver->saves.saving;
    saver->saves.saving = true;
    saver->asked |= !busy;
    spinlock_unlock(&saver->lock);
    return busy ? error_set(error, BANYAN_EBUSY, "a checkpoint is under way") : 0;
}

void serve_saver_look(void *context, struct server_saves *saves)
{
    struct serve_saver *saver = context;
    spinlock_lock(&saver->lock);
    *saves = saver->saves;
    spinlock_unlock(&saver->lock);
}
