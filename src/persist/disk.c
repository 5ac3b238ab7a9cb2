/* disk.c - see disk.h. Tickets are drawn by any thread; one thread makes rounds, and alone touches the
 * journal. */
#include "persist/disk.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/random.h"
#include "base/task.h"
#include "disk/manifest.h"
#include "fabric/wire.h"
#include "persist/drain.h"
#include "persist/saving.h"

#define SECOND UINT64_C(1000000000)
/* A full disk is said so often at most. */
#define FULL_SAID_NS (10 * SECOND)
/* Memory nodes of a cluster, as far as a drain can name them. */
#define NODES_MAX 64u

struct persist_disk {
    struct memory_node *node;
    struct persist_disk_options options;
    struct persist_disk_listener listener;
    struct journal *journal;       /* owned */
    struct persist_drain *drain;   /* owned */
    struct persist_saving *saving; /* owned */
    bool ready;                    /* atomic: these three are there */
    uint64_t asked;                /* atomic: the last ticket that was drawn */
    uint64_t done;                 /* atomic: up to here it is known what came of them */
    int failed;                    /* atomic: why nothing is promised any more; 0: it is */
    uint64_t full_said, elsewhere, elsewhere_said;

    struct spinlock lock; /* guards what follows */
    uint64_t safe;        /* tickets up to this one are on the disk */
    int status;           /* of the others up to `done` */
    bool full;
    uint64_t bytes, persists, syncs, sync_ns_max, began; /* began: the last pass that came to its end */
    struct persist_drain_stats stats;
};

/* ---- whose journal it is ---- */

static int lost_pool(const struct persist_disk *disk, const struct manifest *manifest, struct error *error)
{
    return error_set(error, BANYAN_EINVAL,
                     "%.80s has the journal of memory node %" PRIu32 " of cluster %016" PRIx64
                     ", but the pool beside it belongs to no cluster: the pool was lost. 'banyan recover "
                     "--data' reads what the journal has; start this memory node with another directory",
                     disk_path(disk->options.disk), manifest->node, manifest->cluster);
}

/* The directory has no journal. It may begin one of a pool that holds nothing: nothing else brings its data
 * to the disk. The home node's manifest says how many memory nodes there are, and would not know of those
 * that have joined while it had no journal. */
static int manifest_begin(struct persist_disk *disk, const struct memory_status_reply *told,
                          struct manifest *first, struct error *error)
{
    const uint64_t seed = disk->options.seed;
    *first = (struct manifest){.cluster = told->cluster_id,
                               .token = (seed ? random_mix(seed) : random_entropy()) | 1,
                               .node = (uint32_t)told->node,
                               .nodes = (uint32_t)told->node_count};
    if (told->blocks_used > 0)
        return error_set(error, BANYAN_EINVAL,
                         "%.80s has no journal, and the pool holds data that would never come to the disk: "
                         "write it to a file with 'banyan dump', begin with an empty directory, and load it "
                         "with 'banyan load'",
                         disk_path(disk->options.disk));
    if (told->node == 0 && memory_node_cluster_generation(disk->node) > 1)
        return error_set(error, BANYAN_EINVAL,
                         "%.80s has no journal, and memory nodes have joined or left since the cluster was "
                         "formatted, of which it would not know: format a new cluster with disks",
                         disk_path(disk->options.disk));
    return manifest_replace(disk->options.disk, NULL, first, error);
}

static int saving_begin(struct persist_disk *disk, struct manifest *manifest, struct manifest *prepared,
                        struct error *error)
{
    const struct persist_saving_parts parts = {.disk = disk->options.disk,
                                               .journal = disk->journal,
                                               .drain = disk->drain,
                                               .target = memory_node_target(disk->node),
                                               .node = (uint16_t)manifest->node};
    return persist_saving_create(&disk->saving, &parts, manifest, prepared, error);
}

static int journal_begin_at(struct persist_disk *disk, const struct memory_status_reply *told,
                            struct manifest *manifest, struct manifest *prepared, struct error *error)
{
    const struct fabric_target *targets[NODES_MAX] = {NULL};
    const struct journal_options options = {.cluster = told->cluster_id,
                                            .node = (uint32_t)told->node,
                                            .from = manifest->position,
                                            .file_bytes = disk->options.file_bytes,
                                            .seed = disk->options.seed};
    struct journal_reader reader = {.visit = NULL};
    if (told->node_count > NODES_MAX)
        return error_set(error, BANYAN_ENOTSUP,
                         "memory node: a cluster of %" PRIu64 " memory nodes; with a journal at most %u",
                         told->node_count, NODES_MAX);
    targets[told->node] = memory_node_target(disk->node);
    int status = journal_open(&disk->journal, disk->options.disk, &options, &reader, error);
    if (!status)
        status =
            persist_drain_create(&disk->drain, targets, (uint16_t)told->node_count, disk->journal, error);
    if (!status)
        status = saving_begin(disk, manifest, prepared, error);
    if (status)
        return status;
    log_info("memory node %" PRIu64 ": journal in %s (%s): %" PRIu64 " records in %u files%s", told->node,
             disk_path(disk->options.disk), disk_kind(disk->options.disk), reader.report.records,
             reader.report.files, reader.report.cut_bytes ? ", a torn tail was cut" : "");
    spinlock_lock(&disk->lock);
    disk->began = task_now();
    spinlock_unlock(&disk->lock);
    /* release: pairs with the acquire in persist_disk_round */
    atomic_store_release(&disk->ready, true);
    return 0;
}

int persist_disk_format(struct persist_disk *disk, struct error *error)
{
    struct memory_status_reply told;
    struct manifest manifest, prepared;
    memory_node_status(disk->node, &told);
    int status = manifest_open_both(disk->options.disk, told.cluster_id, (uint32_t)told.node,
                                    (uint32_t)told.node_count, &manifest, &prepared, error);
    if (status == BANYAN_ENOTFOUND)
        status = manifest_begin(disk, &told, &manifest, error);
    if (!status)
        status = journal_begin_at(disk, &told, &manifest, &prepared, error);
    manifest_free(&manifest);
    manifest_free(&prepared);
    return status;
}

int persist_disk_may_format(const struct persist_disk *disk, struct error *error)
{
    /* relaxed: no format runs beside another one */
    return atomic_load_relaxed(&disk->ready)
               ? error_set(error, BANYAN_EEXIST,
                           "%.80s has the journal of what this memory node holds: for a new cluster start it "
                           "with another directory",
                           disk_path(disk->options.disk))
               : 0;
}

/* ---- passes ---- */

static bool is_full(int status)
{
    return status == BANYAN_ENOSPC || status == BANYAN_ENOMEM;
}

static void complain(struct persist_disk *disk, int status, const struct error *error)
{
    const uint64_t now = task_now();
    if (!is_full(status)) {
        /* release: whoever is refused has been told why here */
        atomic_store_release(&disk->failed, status);
        log_error("memory node: THE JOURNAL HAS FAILED, nothing that is written from now on is safe from "
                  "power, and commits that ask for that fail until this memory node is started again: %s",
                  error->text);
    } else if (!disk->full_said || now - disk->full_said >= FULL_SAID_NS) {
        disk->full_said = now;
        log_warning("memory node: the journal has no room, owners' logs fill up: %s", error->text);
    }
}

/* A long value has pieces on another memory node: this one cannot copy them. */
static void warn_elsewhere(struct persist_disk *disk)
{
    struct persist_drain_stats stats;
    const uint64_t now = task_now();
    persist_drain_stats(disk->drain, &stats);
    if (stats.elsewhere == disk->elsewhere || (disk->elsewhere && now - disk->elsewhere_said < FULL_SAID_NS))
        return;
    disk->elsewhere = stats.elsewhere;
    disk->elsewhere_said = now;
    log_warning("memory node: of %" PRIu64
                " changes the journal has no value, since parts of it lie on other "
                "memory nodes: they DO NOT OUTLIVE POWER",
                stats.elsewhere);
}

static int pass(struct persist_disk *disk, struct error *error)
{
    uint64_t safe;
    int status = persist_saving_may_grow(disk->saving, error);
    if (!status)
        status = persist_drain_pass(disk->drain, error);
    warn_elsewhere(disk);
    return status ? status : journal_sync(disk->journal, &safe, error);
}

/* What came of tickets up to this one. */
static void settle(struct persist_disk *disk, uint64_t ticket, uint64_t began, int status)
{
    const uint64_t took = task_now() - began;
    spinlock_lock(&disk->lock);
    disk->status = status;
    disk->full = is_full(status);
    if (!status) {
        disk->safe = ticket;
        disk->began = began;
        disk->syncs++;
        disk->sync_ns_max = took > disk->sync_ns_max ? took : disk->sync_ns_max;
    }
    disk->bytes = disk_used(disk->options.disk);
    persist_drain_stats(disk->drain, &disk->stats);
    spinlock_unlock(&disk->lock);
    if (atomic_load_relaxed(&disk->done) == ticket) /* nobody waits */
        return;
    atomic_store_release(&disk->done, ticket); /* release: status and `safe` */
    if (disk->listener.settled)
        disk->listener.settled(disk->listener.context);
}

void persist_disk_round(struct persist_disk *disk)
{
    struct error error = {0};
    if (!atomic_load_acquire(&disk->ready)) /* acquire: what begins the journal */
        return;
    /* acquire: what those have written who drew tickets up to this one */
    const uint64_t ticket = atomic_load_acquire(&disk->asked), began = task_now();
    int status = atomic_load_relaxed(&disk->failed); /* this thread's own */
    if (!status) {
        status = pass(disk, &error);
        if (status)
            complain(disk, status, &error);
    }
    settle(disk, ticket, began, status);
    persist_saving_step(disk->saving, journal_safe(disk->journal) == journal_end(disk->journal));
}

/* ---- the service ---- */

static void ask(const struct persist_disk *disk)
{
    if (disk->listener.asked)
        disk->listener.asked(disk->listener.context);
}

static int serve_persist(struct persist_disk *disk, struct memory_call *call)
{
    if (call->length != sizeof(struct wire_persist_request))
        return BANYAN_EINVAL;
    const int failed = atomic_load_acquire(&disk->failed); /* acquire: see complain */
    if (failed)
        return failed;
    if (!call->defers)
        return BANYAN_EBUSY;
    /* release: what this caller has written before is seen by the pass that settles the ticket */
    call->ticket = atomic_add_release(&disk->asked, UINT64_C(1)) + 1;
    spinlock_lock(&disk->lock);
    disk->persists++;
    spinlock_unlock(&disk->lock);
    ask(disk);
    return MEMORY_DEFERRED;
}

static int serve_save(struct persist_disk *disk, struct memory_call *call)
{
    struct memory_save_request request;
    struct memory_save_reply reply;
    bool wake = false;
    if (call->length != sizeof request || !call->compute_id)
        return BANYAN_EINVAL;
    if (!atomic_load_acquire(&disk->ready)) /* acquire: see journal_begin_at */
        return BANYAN_ENOTSUP;
    memcpy(&request, call->request, sizeof request);
    int status = persist_saving_call(disk->saving, call->compute_id, &request, &reply, &wake);
    if (status)
        return status;
    call->reply_length = persist_saving_reply_bytes(&reply);
    if (call->reply_length > call->capacity)
        return BANYAN_EINVAL;
    memcpy(call->reply, &reply, call->reply_length);
    if (wake)
        ask(disk);
    return 0;
}

static int serve(void *context, struct memory_call *call)
{
    return call->kind == MEMORY_SAVE ? serve_save(context, call) : serve_persist(context, call);
}

/* 0: there is a journal, and it takes what is written. */
static int usable(const struct persist_disk *disk)
{
    if (!atomic_load_acquire(&disk->ready)) /* acquire: see journal_begin_at */
        return BANYAN_ENOTSUP;
    return atomic_load_acquire(&disk->failed); /* acquire: see complain */
}

static int serve_bring(void *context, struct memory_call *call)
{
    struct persist_disk *disk = context;
    if (!call->compute_id || call->capacity < sizeof(struct memory_bring_reply))
        return BANYAN_EINVAL;
    int status = usable(disk);
    if (status)
        return status;
    status = persist_brought_call(persist_drain_brought(disk->drain), call->request, call->length,
                                  call->reply, &call->reply_length);
    if (status == BANYAN_EBUSY) /* a round makes room */
        ask(disk);
    return status;
}

static void fenced(void *context, uint16_t compute_id)
{
    struct persist_disk *disk = context;
    if (!atomic_load_acquire(&disk->ready)) /* acquire: see journal_begin_at */
        return;
    persist_saving_fenced(disk->saving, compute_id);
    ask(disk);
}

static void report(void *context, struct memory_status_reply *status)
{
    struct persist_disk *disk = context;
    const uint64_t now = task_now();
    status->durability = persist_disk_level(disk);
    status->disk_failed = atomic_load_relaxed(&disk->failed) != 0; /* statistics */
    spinlock_lock(&disk->lock);
    status->disk_bytes = disk->bytes;
    status->disk_full = disk->full;
    status->disk_syncs_total = disk->syncs;
    status->disk_frames_total = disk->stats.frames;
    status->disk_entries_total = disk->stats.entries;
    status->disk_blocks_total = disk->stats.blocks;
    status->disk_stale_total = disk->stats.stale;
    status->disk_elsewhere_total = disk->stats.elsewhere;
    status->disk_persists_total = disk->persists;
    status->disk_sync_ns_max = disk->sync_ns_max;
    status->disk_behind_ms = disk->began && now > disk->began ? (now - disk->began) / 1000000 : 0;
    spinlock_unlock(&disk->lock);
}

static int serve_journals(void *context, struct memory_call *call)
{
    const struct persist_disk *disk = context;
    struct wire_journals_request request;
    struct wire_journals_reply reply;
    bool wake = false;
    if (call->length != sizeof request || call->capacity < sizeof reply)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    if (request.nodes > WIRE_CLUSTER_NODES_MAX || request.joined > 1 || request.look > 1)
        return BANYAN_EINVAL;
    int status = usable(disk);
    if (!status)
        status = persist_saving_join(disk->saving, &request, &reply, &wake);
    if (status)
        return status;
    memcpy(call->reply, &reply, sizeof reply);
    call->reply_length = sizeof reply;
    if (wake)
        ask(disk);
    return 0;
}

const struct memory_service persist_disk_service = {
    .name = "persist", .roles = MEMORY_ROLE_DATA, .serve = serve, .fenced = fenced, .report = report};

const struct memory_service persist_disk_bring = {
    .name = "bring", .roles = MEMORY_ROLE_DATA, .serve = serve_bring};

const struct memory_service persist_disk_journals = {
    .name = "journals", .roles = MEMORY_ROLE_FORMATTER, .serve = serve_journals};

bool persist_disk_outcome(struct persist_disk *disk, uint64_t ticket, int *status)
{
    if (ticket > atomic_load_acquire(&disk->done)) /* acquire: see settle */
        return false;
    spinlock_lock(&disk->lock);
    *status = ticket <= disk->safe ? 0 : disk->status;
    spinlock_unlock(&disk->lock);
    return true;
}

uint64_t persist_disk_settled(const struct persist_disk *disk)
{
    return atomic_load_acquire(&disk->done); /* acquire: see settle */
}

enum fabric_durability persist_disk_level(const struct persist_disk *disk)
{
    return disk->options.always ? FABRIC_KEPT_ON_DISK_ALWAYS : FABRIC_KEPT_ON_DISK;
}

/* ---- life ---- */

/* The memory node belongs to a cluster already, or none must be known to the directory. */
static int disk_open_first(struct persist_disk *disk, struct error *error)
{
    struct memory_status_reply told;
    struct manifest manifest;
    memory_node_status(disk->node, &told);
    if (told.cluster_id)
        return persist_disk_format(disk, error);
    int status = manifest_read(disk->options.disk, &manifest, error);
    if (status)
        return status == BANYAN_ENOTFOUND ? 0 : status;
    status = lost_pool(disk, &manifest, error);
    manifest_free(&manifest);
    return status;
}

int persist_disk_create(struct persist_disk **made, struct memory_node *node,
                        const struct persist_disk_options *options, struct error *error)
{
    struct persist_disk *disk = calloc(1, sizeof *disk);
    *made = NULL;
    if (!disk)
        return error_set(error, BANYAN_ENOMEM, "no memory for a memory node's disk");
    disk->node = node;
    disk->options = *options;
    int status = disk_open_first(disk, error);
    if (status) {
        persist_disk_destroy(disk);
        return status;
    }
    *made = disk;
    return 0;
}

void persist_disk_listen(struct persist_disk *disk, const struct persist_disk_listener *listener)
{
    disk->listener = *listener;
}

void persist_disk_destroy(struct persist_disk *disk)
{
    if (!disk)
        return;
    persist_saving_destroy(disk->saving);
    persist_drain_destroy(disk->drain);
    journal_close(disk->journal);
    free(disk);
}
