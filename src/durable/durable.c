/* durable.c - see durable.h. */
#include "durable/durable.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"
#include "base/thread.h"
#include "durable/session.h"

#define SECOND_NS    UINT64_C(1000000000)
#define LATE_NS      (2 * SECOND_NS)    /* writers wait while the disk is further behind */
#define LOCK_NS      SECOND_NS          /* for a process that is dying */
#define FULL_NS      (SECOND_NS / 10)   /* between two passes where the disk has no room */
#define AGAIN_NS     (10 * SECOND_NS)   /* after a checkpoint that failed */
#define QUICK_NS     (SECOND_NS / 1000) /* a server's thread may be held up so long by a pass */
#define INDEX        0u                 /* the store is the only one of its directory */
#define STEP_KEYS    1024u
#define REST_MOST_NS (SECOND_NS / 1000) /* between two steps of a checkpoint */
/* How far the threads stand back behind those that serve clients (thread_lower): enough to let these go first
 * when they wake up, and not so much that passes and checkpoints starve on a machine with much else to do. */
#define STAND_BACK       5u
#define JOURNAL_LEAST    (UINT64_C(64) << 20) /* a shorter journal is not worth a checkpoint */
#define FILE_LEAST       (UINT64_C(1) << 20)
#define LOADING          "loading"  /* a file: the pools do not hold yet what the directory does */
#define IN_STEP          "in-step"  /* a file: the last life has told the disk all that the pools hold */
#define DISOWNED         "disowned" /* a file: the pools were changed by a life that told the disk nothing */
#define SHAPE            "pools"    /* a file: how many memory nodes, and of which size */
#define SHAPE_NEW        "pools.new"
#define SHAPE_TEXT       "memory-nodes %u size %llu\n"
#define FIRST_CHECKPOINT 1u

enum save { SAVE_NONE, SAVE_ASKED, SAVE_RUNS, SAVE_WRITTEN, SAVE_BROKEN };

/* A thread with a session of its own. */
struct helper {
    struct durable *durable;
    struct thread *thread;
    struct durable_session session;
};

struct durable {
    struct durable_options options;
    struct disk *disk; /* owned, as all below */
    struct manifest manifest;
    bool named, loading, behind; /* named: the manifest is there */
    struct durable_pools pools;
    struct journal *journal;
    struct feed *feed;
    struct keeper *keeper;
    struct helper keeps, saves;
    bool stopping; /* atomic */
    /* The leader's (feed_lead). */
    int status;       /* of the last pass */
    bool full;        /* the disk has no room, and the log says so */
    bool cramped;     /* the journal waits for a checkpoint */
    uint64_t pass_ns; /* how long the last pass took */
    uint64_t passing; /* atomic: when the pass that is under way began; 0: none is */
    bool quick;       /* atomic: the last pass was no longer than a server's thread may be held up */
    /* Where the checkpoint is. Any thread sets ASKED; the keeper sets RUNS, and the thread that writes
     * begins; that one sets WRITTEN or BROKEN, and the keeper ends it. */
    uint32_t save; /* atomic */
    struct checkpoint *checkpoint;
    struct error save_error; /* with BROKEN */
    struct bell saver;       /* rung: the thread that writes has something to do */
    uint64_t saved_at, save_ns, save_begun, save_marks, save_began_marks; /* atomic, statistics */
    uint64_t save_count, save_failures;
    bool save_failed;
};

/* ---- the directory ---- */

static int file_exists(struct disk *disk, const char *name, bool *exists, struct error *error)
{
    struct disk_file *file;
    int status = disk_open(disk, name, &file, error);
    *exists = !status;
    if (!status)
        disk_file_close(file);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* Makes an empty file, and syncs its name. */
static int file_note(struct disk *disk, const char *name, struct error *error)
{
    struct disk_file *file;
    int status = disk_create(disk, name, &file, error);
    if (status == BANYAN_EEXIST)
        return 0;
    if (status)
        return status;
    status = disk_sync(file, error);
    disk_file_close(file);
    return status ? status : disk_sync_names(disk, error);
}

static int file_forget(struct disk *disk, const char *name, struct error *error)
{
    int status = disk_remove_if_there(disk, name, error);
    return status ? status : disk_sync_names(disk, error);
}

/* Asks the manifest itself whose directory it is, since manifest_open must be told. */
static int manifest_find(struct durable *durable, struct error *error)
{
    struct manifest found = {0};
    int status = manifest_read(durable->disk, &found, error);
    if (status == BANYAN_ENOTFOUND)
        return 0;
    if (!status)
        status =
            manifest_open(durable->disk, found.cluster, found.node, found.nodes, &durable->manifest, error);
    manifest_free(&found);
    durable->named = !status;
    return status;
}

int durable_open(struct durable **out, const char *path, const struct durable_options *options,
                 struct error *error)
{
    /* Plain calls: the kernel gives each sync of a ring to another thread, and the leader of a pass has
     * nothing else to do until that one has ended. */
    const struct disk_real_options disk = {
        .limit = options->limit_bytes, .lock_wait = LOCK_NS, .io = DISK_IO_PLAIN};
    struct durable *durable = calloc(1, sizeof *durable);
    *out = durable;
    if (!durable)
        return error_set(error, BANYAN_ENOMEM, "no memory to keep data on a disk");
    durable->options = *options;
    durable->options.quick_ns = options->quick_ns ? options->quick_ns : QUICK_NS;
    int status = disk_real_open(&durable->disk, path, &disk, error);
    if (!status)
        status = manifest_find(durable, error);
    if (!status)
        status = file_exists(durable->disk, LOADING, &durable->loading, error);
    if (status) {
        durable_close(durable);
        *out = NULL;
    }
    return status;
}

int durable_disown(const char *path, struct error *error)
{
    const struct disk_real_options options = {.lock_wait = LOCK_NS};
    struct disk *disk;
    int status = disk_real_open(&disk, path, &options, error);
    if (status)
        return status;
    status = file_note(disk, DISOWNED, error);
    if (!status)
        status = file_forget(disk, IN_STEP, error);
    disk_close(disk);
    return status;
}

static bool is_there(const char *path, const char *name)
{
    char whole[PATH_MAX];
    return snprintf(whole, sizeof whole, "%s/%s", path, name) < (int)sizeof whole && !access(whole, F_OK);
}

void durable_look(const char *path, struct durable_look *look)
{
    *look = (struct durable_look){.journal = is_there(path, MANIFEST_NAME)};
    look->in_step = look->journal && is_there(path, IN_STEP);
    look->disowned = look->journal && is_there(path, DISOWNED);
    look->loading = look->journal && is_there(path, LOADING);
}

uint64_t durable_cluster(const struct durable *durable)
{
    return durable->named ? durable->manifest.cluster : 0;
}

bool durable_loading(const struct durable *durable)
{
    return durable->loading;
}

int durable_load_begin(struct durable *durable, struct error *error)
{
    assert(durable->named);
    bool disowned = false;
    int status = durable->loading ? 0 : file_exists(durable->disk, DISOWNED, &disowned, error);
    if (status)
        return status;
    if (disowned)
        return error_set(error, BANYAN_EINVAL,
                         "%s: the pools are lost, and were changed last at level process, of which this has "
                         "nothing: remove the file " DISOWNED " in it to go back to what it has",
                         disk_path(durable->disk));
    if (!durable->manifest.checkpoint)
        return error_set(error, BANYAN_EINVAL,
                         "%s: the pools are lost, and no checkpoint of what they held has become whole: load "
                         "a backup into another directory",
                         disk_path(durable->disk));
    durable->loading = true;
    return file_note(durable->disk, LOADING, error);
}

/* ---- what a start finds ---- */

static int journal_begin_life(struct durable *durable, struct persist_replay *replay, struct error *error)
{
    struct journal_reader reader = {.visit = replay ? persist_replay_record : NULL,
                                    .settle = replay ? persist_replay_settle : NULL,
                                    .context = replay};
    const uint64_t limit = durable->options.limit_bytes, file = limit / 32;
    const struct journal_options options = {.cluster = durable->manifest.cluster,
                                            .node = 0,
                                            .from = durable->manifest.position,
                                            .seed = durable->options.seed,
                                            .file_bytes = !limit || file > JOURNAL_FILE_BYTES ? 0
                                                          : file > FILE_LEAST                 ? file
                                                                                              : FILE_LEAST};
    int status = journal_open(&durable->journal, durable->disk, &options, &reader, error);
    if (!status && reader.report.cut_bytes)
        log_warning("%s: the last %llu bytes of the journal were cut off by the end of the process or of the "
                    "power, and were promised to no one",
                    disk_path(durable->disk), (unsigned long long)reader.report.cut_bytes);
    if (!status && !strcmp(disk_kind(durable->disk), "persistent-memory"))
        log_info("%s: the journal is mapped, in persistent memory: a sync of it is no call of the system",
                 disk_path(durable->disk));
    return status;
}

static int load(struct durable *durable, uint64_t *keys, struct error *error)
{
    const struct durable_pools *pools = &durable->pools;
    struct recovery_source source = {.disk = durable->disk, .manifest = &durable->manifest, .index = INDEX};
    int status = persist_replay_create(&source.replay, &durable->disk, 1, error);
    if (!status)
        status = persist_replay_threads(source.replay, pools->threads, error);
    if (!status)
        status = journal_begin_life(durable, source.replay, error);
    if (!status)
        status = recovery_run(&source, pools->store, pools->compute, pools->threads, pools->progress,
                              pools->context, keys, error);
    persist_replay_destroy(source.replay);
    if (!status)
        status = file_forget(durable->disk, LOADING, error);
    durable->loading = durable->loading && status;
    return status;
}

static int first_manifest(struct durable *durable, struct error *error)
{
    /* If the pools hold nothing yet, the journal will have everything, as if an empty checkpoint stood before
     * it. */
    struct manifest next = {.cluster = durable->pools.cluster,
                            .nodes = 1,
                            .checkpoint = durable->pools.fresh ? FIRST_CHECKPOINT : 0};
    int status = manifest_replace(durable->disk, NULL, &next, error);
    if (status)
        return status;
    durable->manifest = next;
    durable->named = true;
    return 0;
}

/* ---- the pools' shape ---- */

static int shape_read(struct disk *disk, struct durable_shape *shape, struct error *error)
{
    char text[128] = "";
    struct disk_file *file;
    size_t got = 0;
    unsigned long long bytes;
    unsigned nodes;
    int status = disk_open(disk, SHAPE, &file, error);
    if (status)
        return status;
    status = disk_read(file, 0, text, sizeof text - 1, &got, error);
    disk_file_close(file);
    if (status)
        return status;
    if (sscanf(text, SHAPE_TEXT, &nodes, &bytes) != 2)
        return error_set(error, BANYAN_ECORRUPT, "%s/" SHAPE ": it does not say of which size the pools are",
                         disk_path(disk));
    *shape = (struct durable_shape){.memory_nodes = nodes, .pool_bytes = bytes};
    return 0;
}

bool durable_shape(struct durable *durable, struct durable_shape *shape)
{
    struct error error = {0};
    *shape = (struct durable_shape){0};
    int status = shape_read(durable->disk, shape, &error);
    if (status && status != BANYAN_ENOTFOUND)
        log_warning("%s; give --size and --memory-nodes", error.text);
    return !status;
}

/* Notes how the pools were made. */
static int shape_note(struct durable *durable, const struct durable_shape *shape, struct error *error)
{
    struct durable_shape noted = {0};
    struct error ignored = {0};
    struct disk_file *file;
    char text[128];
    if (!shape_read(durable->disk, &noted, &ignored) && noted.memory_nodes == shape->memory_nodes &&
        noted.pool_bytes == shape->pool_bytes)
        return 0;
    const int length = snprintf(text, sizeof text, SHAPE_TEXT, (unsigned)shape->memory_nodes,
                                (unsigned long long)shape->pool_bytes);
    const struct disk_piece piece = {text, (size_t)length};
    int status = disk_remove_if_there(durable->disk, SHAPE_NEW, error);
    if (!status)
        status = disk_create(durable->disk, SHAPE_NEW, &file, error);
    if (status)
        return status;
    status = disk_write_sync(file, 0, &piece, 1, error);
    disk_file_close(file);
    if (!status)
        status = disk_rename(durable->disk, SHAPE_NEW, SHAPE, error);
    return status ? status : disk_sync_names(durable->disk, error);
}

int durable_attach(struct durable *durable, const struct durable_pools *pools, uint64_t *keys,
                   struct error *error)
{
    bool in_step = false;
    int status = 0;
    durable->pools = *pools;
    *keys = 0;
    assert(pools->load == durable->loading);
    if (durable->named && durable->manifest.cluster != pools->cluster)
        return error_set(error, BANYAN_EINVAL,
                         "%s: the journal and the pools are of different stores: all files of a data "
                         "directory are kept, copied and moved together",
                         disk_path(durable->disk));
    if (!durable->named) {
        durable->behind = !pools->fresh;
        status = first_manifest(durable, error);
    } else {
        status = file_exists(durable->disk, IN_STEP, &in_step, error);
        durable->behind = !in_step && !pools->load;
    }
    if (!status)
        status = file_forget(durable->disk, IN_STEP, error);
    if (!status)
        status = shape_note(durable, &pools->shape, error);
    if (!status)
        status = pools->load ? load(durable, keys, error) : journal_begin_life(durable, NULL, error);
    return status;
}

/* ---- threads ---- */

static int helper_open(struct durable *durable, struct helper *helper, struct error *error)
{
    helper->durable = durable;
    return durable_session_open(&helper->session, durable->pools.store, durable->pools.compute, error);
}

/* ---- checkpoints ---- */

static uint32_t save_state(const struct durable *durable)
{
    return atomic_load_acquire(&durable->save); /* acquire: with what the other thread has written before */
}

static void save_set(struct durable *durable, enum save save)
{
    atomic_store_release(&durable->save, save); /* release: as above */
}

/* Sleeps as long as each step took, so that the load goes on beside it; but not long behind a step that took
 * long because others had the CPU. */
static void save_write(struct durable *durable, struct helper *helper)
{
    int more = 1;
    while (more == 1 &&
           !atomic_load_acquire(&durable->stopping)) { /* acquire: a flag that orders nothing else */
        const uint64_t begun = task_now();
        more = checkpoint_step(durable->checkpoint, helper->session.store, STEP_KEYS, &durable->save_error);
        const uint64_t took = task_now() - begun;
        task_sleep(took < REST_MOST_NS ? took : REST_MOST_NS);
    }
    if (more == 1)
        more = error_set(&durable->save_error, BANYAN_EABORT, "the server stops");
    save_set(durable, more ? SAVE_BROKEN : SAVE_WRITTEN);
    feed_wake(durable->feed);
}

static void saver_main(void *context)
{
    struct helper *helper = context;
    struct durable *durable = helper->durable;
    (void)thread_lower(STAND_BACK); /* if it is refused, clients wait longer beside a checkpoint */
    while (!atomic_load_acquire(&durable->stopping)) { /* acquire: as above */
        if (save_state(durable) == SAVE_RUNS)
            save_write(durable, helper);
        else
            bell_wait(&durable->saver);
    }
    if (save_state(durable) == SAVE_RUNS)
        save_write(durable, helper);
}

static void save_begin(struct durable *durable)
{
    struct feed_stats feed;
    struct error *error = &durable->save_error;
    feed_stats(durable->feed, &feed);
    error_clear(error);
    atomic_store_relaxed(&durable->save_begun, task_now()); /* statistics, as the next one */
    atomic_store_relaxed(&durable->save_began_marks, feed.marks);
    if (checkpoint_begin(&durable->checkpoint, durable->keeper, error)) {
        durable->checkpoint = NULL;
        save_set(durable, SAVE_BROKEN);
        return;
    }
    log_info("%s: a checkpoint begins", disk_path(durable->disk));
    save_set(durable, SAVE_RUNS);
    bell_ring(&durable->saver);
}

static void save_told(struct durable *durable, int status)
{
    const uint64_t took =
        task_now() - atomic_load_relaxed(&durable->save_begun); /* statistics, as all below */
    atomic_store_relaxed(&durable->save_failed, status != 0);
    atomic_add_relaxed(status ? &durable->save_failures : &durable->save_count, 1);
    if (status) {
        if (status != BANYAN_EABORT)
            log_warning("%s: the checkpoint failed: %s", disk_path(durable->disk), durable->save_error.text);
        return;
    }
    atomic_store_relaxed(&durable->save_ns, took);
    atomic_store_relaxed(&durable->saved_at, clock_wall_ms());
    atomic_store_relaxed(&durable->save_marks, atomic_load_relaxed(&durable->save_began_marks));
    if (file_forget(durable->disk, DISOWNED, &durable->save_error))
        log_warning("%s: %s", disk_path(durable->disk), durable->save_error.text);
    atomic_store_release(&durable->behind, false); /* behind the manifest */
    log_info("%s: the checkpoint is whole: %llu keys, %llu bytes, after %.1f s", disk_path(durable->disk),
             (unsigned long long)durable->manifest.parts[0].entries,
             (unsigned long long)durable->manifest.parts[0].bytes, (double)took / 1e9);
}

/* Ends a checkpoint that was written, or that could not be. */
static void save_end(struct durable *durable, struct helper *helper)
{
    const bool whole = save_state(durable) == SAVE_WRITTEN;
    int status = whole ? 0 : durable->save_error.code;
    if (durable->checkpoint) {
        struct error error = {0};
        int ended = checkpoint_end(durable->checkpoint, helper->session.store, whole, &error);
        if (ended && !status) {
            durable->save_error = error;
            status = ended;
        }
    }
    durable->checkpoint = NULL;
    save_told(durable, status);
    save_set(durable, SAVE_NONE);
}

/* The journal is longer than the last checkpoint, or takes a quarter of what the limit leaves beside two of
 * them. */
static bool save_due(const struct durable *durable)
{
    const uint64_t limit = durable->options.limit_bytes, last = keeper_checkpoint_bytes(durable->keeper);
    const uint64_t left = limit > 2 * last ? (limit - 2 * last) / 4 : 0;
    uint64_t due = last > JOURNAL_LEAST ? last : JOURNAL_LEAST;
    if (limit && due > left)
        due = left;
    if (limit && due < FILE_LEAST)
        due = FILE_LEAST;
    return durable->behind || durable->cramped || keeper_journal_bytes(durable->keeper) > due;
}

/* And one may begin. */
static bool save_wanted(const struct durable *durable)
{
    return save_due(durable) && (!durable->save_failed || task_now() - durable->save_begun > AGAIN_NS);
}

static void saves_look(struct durable *durable, struct helper *helper)
{
    switch ((enum save)save_state(durable)) {
    case SAVE_NONE:
        if (save_wanted(durable))
            save_begin(durable);
        break;
    case SAVE_ASKED:
        save_begin(durable);
        break;
    case SAVE_RUNS:
        break;
    case SAVE_WRITTEN:
    case SAVE_BROKEN:
        save_end(durable, helper);
        break;
    }
}

int durable_save(struct durable *durable, struct error *error)
{
    uint32_t none = SAVE_NONE;
    int status = feed_error(durable->feed, error);
    if (status)
        return status;
    if (!atomic_swap_relaxed(&durable->save, &none, SAVE_ASKED)) /* relaxed: it hands nothing over */
        return error_set(error, BANYAN_EBUSY, "a checkpoint is under way");
    feed_wake(durable->feed);
    return 0;
}

/* ---- passes ---- */

static void told_full(struct durable *durable, int status, const struct error *error)
{
    if (status && !durable->full)
        log_warning("%s: %s; writes wait, and are refused, until there is room", disk_path(durable->disk),
                    error->text);
    else if (!status && durable->full)
        log_info("%s: there is room again, and all that was changed is on the disk",
                 disk_path(durable->disk));
    durable->full = status != 0;
}

typedef int pass_function(struct keeper *keeper, struct store_session *session, struct error *error);

/* The leader makes a pass, and tells the log of a disk that takes nothing, or something again. */
static void lead_pass(struct durable *durable, pass_function *pass)
{
    struct error error = {0};
    const uint64_t begun = task_now();
    atomic_store_relaxed(&durable->passing, begun); /* for messages */
    int status = pass(durable->keeper, durable->keeps.session.store, &error);
    atomic_store_relaxed(&durable->passing, 0); /* as above */
    durable->pass_ns = task_now() - begun;
    durable->status = status;
    durable->cramped = status == BANYAN_EBUSY;
    atomic_store_relaxed(&durable->quick,
                         !status && durable->pass_ns <= durable->options.quick_ns); /* a hint of the pace */
    /* No checkpoint will make room. */
    if (durable->cramped && save_state(durable) == SAVE_NONE && durable->save_failed) {
        status = durable->status = error.code = BANYAN_ENOSPC;
        feed_fail(durable->feed, &error);
    }
    if (status == BANYAN_EBUSY)
        return;
    if (!status || status == BANYAN_ENOSPC) {
        told_full(durable, status, &error);
    } else {
        log_error("%s: what is changed from now on does not outlive a loss of power, and writes are refused: "
                  "%s. See to the disk, then start the server again",
                  disk_path(durable->disk), error.text);
    }
}

/* What only the keeper's thread does: to try again where a pass has failed, and to begin and end checkpoints.
 */
static bool keeper_needed(const struct durable *durable)
{
    const uint32_t save = save_state(durable);
    return durable->status || (save != SAVE_NONE && save != SAVE_RUNS) ||
           (save == SAVE_NONE && save_wanted(durable));
}

void durable_commit(struct durable *durable, uint64_t ticket)
{
    struct feed *feed = durable->feed;
    /* Relaxed: a hint of the pace. */
    if (!atomic_load_relaxed(&durable->quick) || feed_safe(feed, ticket) || !feed_lead(feed))
        return;
    if (!feed_safe(feed, ticket) && !durable->status)
        lead_pass(durable, keeper_pass_at_once);
    const bool needed = keeper_needed(durable);
    feed_lead_end(feed);
    if (needed)
        feed_wake(feed);
}

/* ---- the keeper ---- */

static void keep_once(struct durable *durable)
{
    if (!durable->full && !durable->cramped && !feed_marked(durable->feed) && !feed_wanted(durable->feed))
        return;
    if (durable->options.always)
        feed_gather(durable->feed, durable->pass_ns / 2);
    lead_pass(durable, keeper_pass);
}

static void keeper_main(void *context)
{
    struct helper *helper = context;
    struct durable *durable = helper->durable;
    if (!durable->options.always) /* there clients wait for it */
        (void)thread_lower(STAND_BACK);
    while (!atomic_load_acquire(&durable->stopping)) { /* acquire: a flag that orders nothing else */
        feed_lead_keeper(durable->feed);
        if (durable->status != BANYAN_EUNKNOWN)
            keep_once(durable);
        saves_look(durable, helper);
        const int status = durable->status;
        feed_lead_end(durable->feed);
        if (!durable->options.always || status)
            feed_sleep(durable->feed, status ? FULL_NS : SECOND_NS);
        else
            feed_sleep(durable->feed, 0);
    }
}

int durable_start(struct durable *durable, unsigned lanes, struct error *error)
{
    const struct feed_options feed = {.lanes = lanes, .late_ns = durable->options.always ? 0 : LATE_NS};
    struct keeper_parts parts = {.disk = durable->disk,
                                 .journal = durable->journal,
                                 .manifest = &durable->manifest,
                                 .index = INDEX,
                                 .limit = durable->options.limit_bytes};
    int status = feed_create(&durable->feed, &feed, error);
    parts.feed = durable->feed;
    if (!status)
        status = keeper_create(&durable->keeper, &parts, error);
    if (!status)
        status = helper_open(durable, &durable->keeps, error);
    if (!status)
        status = helper_open(durable, &durable->saves, error);
    if (!status)
        status = thread_start(&durable->saves.thread, saver_main, &durable->saves, error);
    if (!status)
        status = thread_start(&durable->keeps.thread, keeper_main, &durable->keeps, error);
    return status;
}

static void threads_end(struct durable *durable)
{
    atomic_store_release(&durable->stopping, true); /* a flag that orders nothing else */
    if (durable->keeps.thread) {
        feed_stop(durable->feed);
        thread_join(durable->keeps.thread);
        durable->keeps.thread = NULL;
    }
    if (durable->saves.thread) {
        bell_ring(&durable->saver);
        thread_join(durable->saves.thread);
        durable->saves.thread = NULL;
    }
}

int durable_stop(struct durable *durable, struct error *error)
{
    int status = 0;
    if (!durable->keeper)
        return 0;
    threads_end(durable);
    feed_lead_keeper(durable->feed);
    if (save_state(durable) == SAVE_WRITTEN || save_state(durable) == SAVE_BROKEN)
        save_end(durable, &durable->keeps);
    status = feed_error(durable->feed, error);
    atomic_store_relaxed(&durable->passing, task_now()); /* for messages */
    if (status != BANYAN_EUNKNOWN)                       /* a disk that is full or slow may take it now */
        status = keeper_pass_beyond(durable->keeper, durable->keeps.session.store, error);
    atomic_store_relaxed(&durable->passing, 0); /* as above */
    feed_lead_end(durable->feed);
    if (!status && feed_missed(durable->feed))
        status = error_set(error, BANYAN_ENOSPC, "%s: there was no room for them", disk_path(durable->disk));
    if (!status && !durable->behind)
        status = file_note(durable->disk, IN_STEP, error);
    if (!status && durable->behind)
        log_warning("%s: the checkpoint that tells it all that the pools hold was not whole yet: until the "
                    "next start has made it, a loss of the pools costs what a former life had not told",
                    disk_path(durable->disk));
    return status;
}

void durable_close(struct durable *durable)
{
    if (!durable)
        return;
    struct error ignored = {0};
    if (durable->feed)
        threads_end(durable);
    if (durable->checkpoint) /* durable_stop was not called */
        (void)checkpoint_end(durable->checkpoint, durable->keeps.session.store, false, &ignored);
    durable_session_close(&durable->keeps.session);
    durable_session_close(&durable->saves.session);
    keeper_destroy(durable->keeper);
    feed_destroy(durable->feed);
    journal_close(durable->journal);
    manifest_free(&durable->manifest);
    disk_close(durable->disk);
    free(durable);
}

void durable_end(struct durable *durable)
{
    if (durable->feed)
        feed_end(durable->feed);
}

/* ---- for others ---- */

struct feed_writer durable_writer(struct durable *durable, unsigned lane)
{
    return (struct feed_writer){.feed = durable->feed, .lane = lane};
}

bool durable_always(const struct durable *durable)
{
    return durable->options.always;
}

struct feed *durable_feed(struct durable *durable)
{
    return durable->feed;
}

uint64_t durable_waits(const struct durable *durable)
{
    const uint64_t began = atomic_load_relaxed(&durable->passing), now = task_now(); /* for messages */
    return began && now > began ? now - began : 0;
}

bool durable_safe(const struct durable *durable, uint64_t ticket)
{
    /* Acquire: the manifest names the checkpoint. */
    return feed_safe(durable->feed, ticket) && !atomic_load_acquire(&durable->behind);
}

void durable_stats(struct durable *durable, struct durable_stats *stats)
{
    *stats = (struct durable_stats){/* statistics: relaxed */
                                    .disk_bytes = disk_used(durable->disk),
                                    .disk_kind = disk_kind(durable->disk),
                                    .saved_at = atomic_load_relaxed(&durable->saved_at),
                                    .save_ns = atomic_load_relaxed(&durable->save_ns),
                                    .saves = atomic_load_relaxed(&durable->save_count),
                                    .saves_failed = atomic_load_relaxed(&durable->save_failures),
                                    .saving = save_state(durable) != SAVE_NONE,
                                    .behind = atomic_load_relaxed(&durable->behind),
                                    .save_failed = atomic_load_relaxed(&durable->save_failed)};
    feed_stats(durable->feed, &stats->feed);
    keeper_stats(durable->keeper, &stats->keeper);
    stats->changes = stats->feed.marks - atomic_load_relaxed(&durable->save_marks);
    stats->status = feed_error(durable->feed, &stats->error);
}
