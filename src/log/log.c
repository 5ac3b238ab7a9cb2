/*
 * log.c - see log.h: life, indexes, what is kept for successors, counters.
 */
#include <assert.h>
#include <stdlib.h>

#include "base/task.h"
#include "log/state.h"
#include "tree/rights.h"

void log_options_default(struct log_options *options)
{
    *options = (struct log_options){.copies = 1,
                                    .threshold = 2,
                                    .segment_bytes = MEMORY_LOG_SEGMENT_MOST,
                                    .frame_bytes = 16u << 10,
                                    .wait_ns = 5000 * MILLISECOND,
                                    .idle_ns = MILLISECOND};
}

static int options_check(const struct log_options *options, struct error *error)
{
    if (options->copies < 1 || options->copies > 2)
        return error_set(error, BANYAN_EINVAL, "the log: %u copies of each entry: choose 1 or 2",
                         options->copies);
    if (options->threshold < 2 || options->threshold > 64)
        return error_set(error, BANYAN_EINVAL, "the log: %u segments before writers wait: choose 2 to 64",
                         options->threshold);
    if (options->frame_bytes < 1024 || options->frame_bytes > FORMAT_LOG_FRAME_MAX ||
        options->frame_bytes % FORMAT_LOG_BLOCK)
        return error_set(error, BANYAN_EINVAL,
                         "the log: frames of %u bytes: choose a multiple of %u from 1024 to %u",
                         options->frame_bytes, FORMAT_LOG_BLOCK, FORMAT_LOG_FRAME_MAX);
    if (options->segment_bytes < MEMORY_LOG_SEGMENT_LEAST || options->segment_bytes > MEMORY_LOG_SEGMENT_MOST)
        return error_set(error, BANYAN_EINVAL, "the log: segments of %llu bytes: choose %u to %u",
                         (unsigned long long)options->segment_bytes, MEMORY_LOG_SEGMENT_LEAST,
                         MEMORY_LOG_SEGMENT_MOST);
    return 0;
}

int log_create(struct log **out, struct tree_compute *compute, const struct log_options *options,
               struct error *error)
{
    int status = options_check(options, error);
    if (status)
        return status;
    struct log *log = calloc(1, sizeof *log);
    struct fabric *fabric = pool_fabric(tree_compute_pool(compute));
    const uint16_t nodes = fabric_memory_nodes(fabric), most = fabric_memory_nodes_most(fabric);
    if (log)
        log->streams = calloc(most, sizeof *log->streams);
    if (!log || !log->streams) {
        free(log);
        return error_set(error, BANYAN_ENOMEM, "no memory for the log");
    }
    log->compute = compute;
    log->fabric = fabric;
    log->options = *options;
    log->most = most;
    log->merged_at = task_now();
    log->single = options->copies < 2 || nodes < 2;
    log->carry_most = LOG_CARRIED_MOST;
    random_seed(&log->random, options->seed ? options->seed : random_entropy());
    for (uint16_t n = 0; n < most; n++) {
        struct log_stream *stream = &log->streams[n];
        stream->log = log;
        stream->node = n;
        stream->used_last = &stream->used;
        stream->flights_last = &stream->flights;
        stream->next_number = 1;
    }
    if (!log_lane_create(log)) {
        log_destroy(log);
        return error_set(error, BANYAN_ENOMEM, "no memory for the log");
    }
    tree_compute_set_log(compute, &log_tree, log);
    *out = log;
    return 0;
}

void log_destroy(struct log *log)
{
    if (!log)
        return;
    log_lane_destroy(log);
    while (log->indexes) {
        struct log_index *index = log->indexes;
        log->indexes = index->next;
        free(index);
    }
    while (log->kept) {
        struct log_kept *kept = log->kept;
        log->kept = kept->next;
        free(kept);
    }
    heap_clear(&log->heap);
    free(log->streams);
    free(log);
}

/* ---- indexes ---- */

int log_attach(struct log *log, struct tree *tree, struct error *error)
{
    struct log_index *index = calloc(1, sizeof *index);
    if (!index)
        return error_set(error, BANYAN_ENOMEM, "no memory for the log of index %s", tree_name(tree));
    index->tree = tree;
    spinlock_lock(&log->lock);
    index->next = log->indexes;
    log->indexes = index;
    spinlock_unlock(&log->lock);
    return 0;
}

void log_detach(struct log *log, struct tree_session *session, struct tree *tree)
{
    for (;;) {
        spinlock_lock(&log->lock);
        struct log_index **at = &log->indexes;
        while (*at && (*at)->tree != tree)
            at = &(*at)->next;
        struct log_index *index = *at;
        const bool idle = !index || !index->users;
        if (index)
            index->leaving = true;
        if (index && idle)
            *at = index->next;
        spinlock_unlock(&log->lock);
        if (idle) {
            free(index);
            break;
        }
        task_sleep(100 * MICROSECOND);
    }
    log_dropped(log, session, tree);
}

/* There is no memory to note what is kept: all of the log is. */
static void log_seal(struct log *log)
{
    spinlock_lock(&log->lock);
    log->sealed = true;
    spinlock_unlock(&log->lock);
}

void log_strand(struct log *log, struct tree_session *session, struct tree *tree)
{
    /* Of no index, so that no map releases it. */
    if (!log_keep(log, NULL, UINT64_MAX))
        log_seal(log);
    log_detach(log, session, tree);
}

uint64_t log_draw(struct log *log, uint32_t count)
{
    /* Release: whoever finds the counter moved (acquire) sees what was stored before. */
    return __atomic_fetch_add(&log->sequence, count, __ATOMIC_ACQ_REL) + 1;
}

/* ---- what is kept ---- */

/* Notes it. `drawn`: it holds what was drawn already too, all that is not below the watermark. NULL: no
 * memory.
 */
static struct log_kept *keep(struct log *log, const struct log_kept *what, bool drawn)
{
    struct log_kept *kept = malloc(sizeof *kept);
    if (!kept)
        return NULL;
    *kept = *what;
    spinlock_lock(&log->lock);
    /* Relaxed: what the task holds with this is drawn behind it. */
    kept->floor = 1 + (drawn ? log->published : atomic_load_relaxed(&log->sequence));
    kept->next = log->kept;
    log->kept = kept;
    spinlock_unlock(&log->lock);
    return kept;
}

bool log_keep(struct log *log, struct tree *tree, uint64_t version)
{
    return keep(log, &(struct log_kept){.tree = tree, .version = version}, true);
}

bool log_keep_inherited(struct log *log, struct tree *tree, struct format_key lower,
                        const struct format_key *upper, uint64_t epoch)
{
    struct log_kept range = {.tree = tree, .version = KEPT_INHERITED, .epoch = epoch, .bounded = upper};
    format_key_store(&range.lower, lower);
    if (upper)
        format_key_store(&range.upper, *upper);
    return keep(log, &range, false);
}

/* Takes the range out of what is kept; `spare`: for what is left above it, if something is left below it
 * too. Under the lock. False: nothing of it is kept there, or there is no spare one. */
static bool kept_cut(struct log_kept *kept, struct format_key lower, const struct format_key *upper,
                     struct log_kept **spare, bool *empty)
{
    const struct format_key begin = format_key_of(&kept->lower), end = format_key_of(&kept->upper);
    const bool below = format_key_compare(begin, lower) < 0;
    const bool above = upper && (!kept->bounded || format_key_compare(*upper, end) < 0);
    *empty = !below && !above;
    if ((kept->bounded && format_key_compare(end, lower) <= 0) ||
        (upper && format_key_compare(*upper, begin) <= 0) || (below && above && !*spare))
        return *empty = false;
    if (below && above) {
        **spare = *kept;
        format_key_store(&(*spare)->lower, *upper);
        kept->next = *spare;
        *spare = NULL;
    } else if (above) {
        format_key_store(&kept->lower, *upper);
    }
    if (below) {
        format_key_store(&kept->upper, lower);
        kept->bounded = true;
    }
    return true;
}

void log_hurry(struct log *log, bool on)
{
    atomic_add_relaxed(&log->beyond, on ? 1u : -1u); /* whoever waits looks again soon */
}

void log_cleared(struct log *log, struct tree *tree, struct format_key lower, const struct format_key *upper,
                 uint64_t epoch)
{
    log_reading_drop(log);
    /* Without memory for it the range is kept for longer than it must be. */
    struct log_kept *spare = calloc(1, sizeof *spare), *ended = NULL;
    spinlock_lock(&log->lock);
    for (struct log_kept **at = &log->kept; *at;) {
        struct log_kept *kept = *at;
        bool empty = false;
        if (kept->tree == tree && kept->epoch == epoch && epoch)
            (void)kept_cut(kept, lower, upper, &spare, &empty);
        if (!empty) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        kept->next = ended;
        ended = kept;
    }
    spinlock_unlock(&log->lock);
    free(spare);
    while (ended) {
        struct log_kept *kept = ended;
        ended = kept->next;
        free(kept);
    }
}

struct log_kept *log_hold(struct log *log)
{
    return keep(log, &(struct log_kept){.version = UINT64_MAX}, false);
}

void log_unhold(struct log *log, struct log_kept *hold)
{
    spinlock_lock(&log->lock);
    struct log_kept **at = &log->kept;
    while (*at != hold)
        at = &(*at)->next;
    *at = hold->next;
    spinlock_unlock(&log->lock);
    free(hold);
}

void log_released(struct log *log, struct tree *tree, uint64_t version)
{
    spinlock_lock(&log->lock);
    for (struct log_kept **at = &log->kept; *at;) {
        struct log_kept *kept = *at;
        if (kept->tree != tree || kept->version > version) {
            at = &kept->next;
            continue;
        }
        *at = kept->next;
        free(kept);
    }
    spinlock_unlock(&log->lock);
}

void log_disown(struct log *log, struct tree_session *session, struct tree *tree, struct format_key lower,
                const struct format_key *upper, uint64_t epoch)
{
    struct unmerged *table = tree_log_table(tree);
    if (table && !log_keep(log, tree, tree_rights_version(tree)))
        log_seal(log);
    log_cleared(log, tree, lower, upper, epoch); /* all of the log is kept instead, if it has anything */
    if (table)
        unmerged_drop(table, tree_session_pool(session)->epoch, lower, upper);
}

void log_dropped(struct log *log, struct tree_session *session, struct tree *tree)
{
    struct unmerged *table = tree_log_table(tree);
    if (table)
        unmerged_drop(table, tree_session_pool(session)->epoch, (struct format_key){0}, NULL);
    log_released(log, tree, UINT64_MAX);
}

void log_stop(struct log *log)
{
    atomic_store_release(&log->stopped, true); /* a hint for those who wait */
    log_helpers_end(log);
}

/* ---- counters ---- */

void log_stats(const struct log *log, struct log_stats *stats)
{
    const uint64_t *from = (const uint64_t *)&log->stats;
    uint64_t *to = (uint64_t *)stats;
    struct log *mine = (struct log *)(uintptr_t)log; /* its locks */
    for (size_t i = 0; i < sizeof *stats / sizeof *to; i++)
        to[i] = atomic_load_relaxed(&from[i]);                                         /* statistics */
    stats->sequence = atomic_load_relaxed(&log->sequence);                             /* as above */
    const uint64_t merged_at = atomic_load_relaxed(&log->merged_at), now = task_now(); /* as above */
    stats->lag_ns = now > merged_at ? now - merged_at : 0;
    for (uint16_t n = 0; n < log_nodes(log); n++) {
        struct log_stream *stream = &mine->streams[n];
        spinlock_lock(&stream->lock);
        stats->segments += stream->segments;
        stats->segment_bytes += stream->segment_bytes;
        for (const struct log_segment *segment = stream->used; segment; segment = segment->next)
            stats->log_bytes += segment->tail;
        stats->log_bytes += stream->current ? stream->current->tail : 0;
        spinlock_unlock(&stream->lock);
    }
    spinlock_lock(&mine->lock);
    stats->watermark = log->published;
    stats->merging = log->merging;
    for (const struct log_index *index = log->indexes; index; index = index->next) {
        const struct unmerged *table = tree_log_table(index->tree);
        stats->unmerged += table ? unmerged_count(table) : 0;
        stats->unmerged_bytes += table ? unmerged_bytes(table) : 0;
    }
    spinlock_unlock(&mine->lock);
    if (stats->watermark >= stats->sequence)
        stats->lag_ns = 0;
}
