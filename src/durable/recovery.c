/* recovery.c - see recovery.h. */
#include "durable/recovery.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/archive.h"
#include "base/atomic.h"
#include "base/clock.h"
#include "base/task.h"
#include "base/thread.h"
#include "durable/session.h"
#include "format/key.h"

#define BATCH_KEYS  256u
#define BATCH_BYTES ((size_t)1 << 20)
#define THREADS_MAX 64u
/* Batches of each thread: those of a part, and more, so that the reader fills another thread's meanwhile. */
#define SLOTS         32u
#define PART_KEYS     4096u
#define PARTS_MAX     60000u
#define FILL          0.8
#define PROGRESS_KEYS 65536u
#define WAIT_NS       UINT64_C(20000)

struct batch {
    struct recovery_item {
        const uint8_t *key;
        size_t key_length;
        struct store_value value;
    } items[BATCH_KEYS];
    uint32_t count;
    bool ends; /* the part */
    unsigned part;
    uint8_t *bytes; /* owned */
    size_t used, room;
    uint32_t full; /* atomic: the thread's; 0: the reader's */
};

struct putter {
    struct recovery *recovery;
    struct thread *thread;
    struct batch slots[SLOTS];
    unsigned next; /* the reader's: which one it fills */
    unsigned at;
    uint32_t item; /* the thread's */
    bool over;     /* of its part nothing more comes */
};

struct recovery {
    const struct recovery_source *source;
    struct store_bulk *bulk;
    struct store *store;
    struct tree_compute *compute;
    struct putter *putters; /* owned */
    unsigned count, turn;
    uint64_t part, part_keys, part_used, parts; /* the reader's: number; keys of each; so far in this one */
    uint64_t now_ms;
    recovery_progress_function *progress;
    void *context;
    struct recovery_progress done;
    bool ended;      /* atomic: nothing more comes */
    uint32_t failed; /* atomic: 1, `error` is set */
    struct spinlock lock;
    struct error error; /* guarded by the lock: the first */
};

/* ---- putting ---- */

static void fail(struct recovery *recovery, const struct error *error)
{
    spinlock_lock(&recovery->lock);
    if (!recovery->error.code)
        recovery->error = *error;
    spinlock_unlock(&recovery->lock);
    atomic_store_release(&recovery->failed, 1); /* with the message */
}

static int session_fail(struct store_session *session, int status, struct error *error)
{
    const struct error *said = tree_session_error(store_session_tree(session));
    if (status == BANYAN_ENOSPC)
        return error_set(error, status, "the pools are too small for what the disk holds (%s)", said->text);
    return error_set(error, status, "%s", said->code == status ? said->text : error_name(status));
}

/* The batch that the thread is at, when it is full; NULL: nothing more comes. */
static struct batch *batch_wait(struct putter *putter)
{
    struct recovery *recovery = putter->recovery;
    struct batch *batch = &putter->slots[putter->at];
    while (!atomic_load_acquire(&batch->full)) { /* acquire: with its items */
        /* Acquire: a batch that was filled before the end is seen. */
        if (atomic_load_acquire(&recovery->ended) && !atomic_load_acquire(&batch->full))
            return NULL;
        task_sleep(WAIT_NS);
    }
    return batch;
}

static void batch_give(struct putter *putter, struct batch *batch)
{
    putter->at = (putter->at + 1) % SLOTS;
    putter->item = 0;
    batch->count = 0;
    batch->used = 0;
    batch->ends = false;
    atomic_store_release(&batch->full, 0); /* the reader's again */
}

/* The next entry of the part; batches behind its end stay. */
static bool putter_next(void *context, const void **key, size_t *key_length, struct store_value *value)
{
    struct putter *putter = context;
    while (!putter->over) {
        struct batch *batch = batch_wait(putter);
        if (!batch) {
            putter->over = true;
            break;
        }
        if (putter->item < batch->count) {
            const struct recovery_item *item = &batch->items[putter->item++];
            *key = item->key;
            *key_length = item->key_length;
            *value = item->value;
            return true;
        }
        putter->over = batch->ends;
        batch_give(putter, batch);
    }
    return false;
}

/* Drops the rest of a part that could not be put. */
static void part_drop(struct putter *putter)
{
    const void *key;
    size_t length;
    struct store_value value;
    while (putter_next(putter, &key, &length, &value))
        ;
}

static void putter_run(struct putter *putter, struct store_session *session)
{
    struct recovery *recovery = putter->recovery;
    struct error error = {0};
    for (struct batch *batch; (batch = batch_wait(putter));) {
        int status = 0;
        putter->over = false;
        if (!atomic_load_relaxed(&recovery->failed)) /* relaxed: a later failure is told all the same */
            status = store_bulk_part(session, recovery->bulk, batch->part, putter_next, putter);
        if (status) {
            session_fail(session, status, &error);
            fail(recovery, &error);
        }
        part_drop(putter);
    }
}

static void putter_main(void *context)
{
    struct putter *putter = context;
    struct recovery *recovery = putter->recovery;
    struct durable_session session;
    struct error error = {0};
    if (durable_session_open(&session, recovery->store, recovery->compute, &error))
        fail(recovery, &error);
    else
        putter_run(putter, session.store);
    durable_session_close(&session);
}

/* ---- filling ---- */

static struct batch *batch_open(struct recovery *recovery)
{
    struct putter *putter = &recovery->putters[recovery->turn];
    struct batch *batch = &putter->slots[putter->next];
    while (atomic_load_acquire(&batch->full)) {     /* acquire: it is the reader's again */
        if (atomic_load_relaxed(&recovery->failed)) /* relaxed: the message is read under the lock */
            return NULL;
        task_sleep(WAIT_NS);
    }
    return batch;
}

static int failure(struct recovery *recovery, struct error *error)
{
    spinlock_lock(&recovery->lock);
    *error = recovery->error;
    spinlock_unlock(&recovery->lock);
    return error->code;
}

/* The batch goes to its thread. */
static void batch_send(struct recovery *recovery, bool ends)
{
    struct putter *putter = &recovery->putters[recovery->turn];
    struct batch *batch = &putter->slots[putter->next];
    batch->ends = ends;
    batch->part = (unsigned)recovery->part;
    atomic_store_release(&batch->full, 1); /* with its items */
    putter->next = (putter->next + 1) % SLOTS;
    if (!ends)
        return;
    recovery->part++;
    recovery->part_used = 0;
    recovery->turn = (recovery->turn + 1) % recovery->count;
}

static bool batch_room(struct batch *batch, size_t bytes)
{
    if (batch->room - batch->used >= bytes)
        return true;
    if (batch->count)
        return false;
    const size_t room = bytes > BATCH_BYTES ? bytes : BATCH_BYTES;
    free(batch->bytes);
    batch->bytes = malloc(room);
    batch->room = batch->bytes ? room : 0;
    batch->used = 0;
    return batch->bytes != NULL;
}

/* An empty batch, or one with room for another entry. */
static struct batch *batch_for(struct recovery *recovery, size_t bytes, struct error *error)
{
    struct batch *batch = batch_open(recovery);
    if (batch && (batch->count == BATCH_KEYS || (batch->count && !batch_room(batch, bytes)))) {
        batch_send(recovery, false);
        batch = batch_open(recovery);
    }
    if (!batch)
        failure(recovery, error);
    else if (!batch_room(batch, bytes))
        error_set(error, BANYAN_ENOMEM, "no memory for a value of %zu bytes", bytes);
    else
        return batch;
    return NULL;
}

static int entry_add(struct recovery *recovery, const struct archive_entry *entry, struct error *error)
{
    const size_t bytes = entry->key_length + entry->value_length + 1;
    if (entry->expires && entry->expires <= recovery->now_ms)
        return 0;
    struct batch *batch = batch_for(recovery, bytes, error);
    if (!batch)
        return error->code;
    uint8_t *key = batch->bytes + batch->used, *value = key + entry->key_length;
    memcpy(key, entry->key, entry->key_length);
    if (entry->value_length)
        memcpy(value, entry->value, entry->value_length);
    batch->used += bytes;
    batch->items[batch->count++] = (struct recovery_item){
        .key = key,
        .key_length = entry->key_length,
        .value = {.bytes = value, .length = entry->value_length, .expires = entry->expires}};
    if (++recovery->part_used == recovery->part_keys && recovery->part + 1 < recovery->parts)
        batch_send(recovery, true);
    if (++recovery->done.keys % PROGRESS_KEYS == 0 && recovery->progress)
        recovery->progress(recovery->context, &recovery->done);
    return 0;
}

/* ---- reading ---- */

struct part_reader {
    struct recovery *recovery;
    struct disk_file *file;
    uint64_t at;
};

static int part_read(void *context, void *buffer, size_t length, size_t *got, struct error *error)
{
    struct part_reader *reader = context;
    int status = disk_read(reader->file, reader->at, buffer, length, got, error);
    reader->at += status ? 0 : *got;
    return status;
}

/* Adds the journal's keys below this one, or all that are left (NULL). *same: the journal has this key too,
 * and what it says of it counts, a deletion too. */
static int journal_until(struct recovery *recovery, const struct archive_entry *entry, bool *same,
                         struct error *error)
{
    struct persist_replay *replay = recovery->source->replay;
    const struct format_key bound = {entry ? entry->key : NULL, entry ? (uint32_t)entry->key_length : 0};
    struct persist_replay_key key;
    struct archive_entry found;
    int status = 0;
    *same = false;
    while (!status && !*same && persist_replay_peek(replay, &key)) {
        const int order =
            entry ? format_key_compare((struct format_key){key.key, (uint32_t)key.key_length}, bound) : -1;
        if (order > 0)
            break;
        *same = order == 0;
        if (!key.present || key.index != recovery->source->index) {
            persist_replay_skip(replay);
            continue;
        }
        status = persist_replay_take(replay, &found, error);
        if (!status)
            status = entry_add(recovery, &found, error);
    }
    return status;
}

static int part_entry(void *context, const struct archive_entry *entry, struct error *error)
{
    struct recovery *recovery = ((struct part_reader *)context)->recovery;
    bool same;
    int status = journal_until(recovery, entry, &same, error);
    return status || same ? status : entry_add(recovery, entry, error);
}

static int part_load(struct recovery *recovery, const struct manifest_part *part, struct error *error)
{
    struct part_reader reader = {.recovery = recovery};
    struct source source;
    struct archive_totals totals;
    char name[160];
    snprintf(name, sizeof name, "%.100s/%s", disk_path(recovery->source->disk), part->name);
    int status = disk_open(recovery->source->disk, part->name, &reader.file, error);
    if (status)
        return status;
    source_function(&source, name, part_read, &reader);
    status = archive_read(&source, part_entry, &reader, &totals, error);
    source_close(&source);
    disk_file_close(reader.file);
    if (!status && totals.entries != part->entries)
        status = error_set(error, BANYAN_ECORRUPT, "%.160s has %llu keys, but the manifest says %llu", name,
                           (unsigned long long)totals.entries, (unsigned long long)part->entries);
    return status;
}

static int read_all(struct recovery *recovery, struct error *error)
{
    const struct manifest *manifest = recovery->source->manifest;
    bool same;
    int status = 0;
    for (uint32_t i = 0; i < manifest->part_count && !status; i++)
        status = part_load(recovery, &manifest->parts[i], error);
    if (!status)
        status = journal_until(recovery, NULL, &same, error);
    if (!status && !batch_open(recovery))
        status = failure(recovery, error);
    if (!status) /* the rest, or an empty part */
        batch_send(recovery, true);
    return status;
}

/* ---- whole ---- */

static int putters_start(struct recovery *recovery, unsigned threads, struct error *error)
{
    int status = 0;
    recovery->putters = calloc(threads, sizeof *recovery->putters);
    if (!recovery->putters)
        return error_set(error, BANYAN_ENOMEM, "no memory to read what the disk holds");
    while (recovery->count < threads && !status) {
        struct putter *putter = &recovery->putters[recovery->count];
        putter->recovery = recovery;
        status = thread_start(&putter->thread, putter_main, putter, error);
        recovery->count += !status;
    }
    return status;
}

/* When it returns, all that was sent is in the pool, or an error is known. */
static void putters_end(struct recovery *recovery)
{
    atomic_store_release(&recovery->ended, true); /* behind the last batch */
    for (unsigned i = 0; i < recovery->count; i++)
        thread_join(recovery->putters[i].thread);
    for (unsigned i = 0; i < recovery->count; i++)
        for (unsigned slot = 0; slot < SLOTS; slot++)
            free(recovery->putters[i].slots[slot].bytes);
    free(recovery->putters);
    recovery->putters = NULL;
}

static bool nothing_next(void *context, const void **key, size_t *key_length, struct store_value *value)
{
    (void)context, (void)key, (void)key_length, (void)value;
    return false;
}

/* Makes the remaining parts, which are empty, and joins all. */
static int join(struct recovery *recovery, struct store_session *session, int status, struct error *error)
{
    for (; !status && recovery->part < recovery->parts; recovery->part++) {
        status = store_bulk_part(session, recovery->bulk, (unsigned)recovery->part, nothing_next, NULL);
        if (status)
            session_fail(session, status, error);
    }
    const int joined = store_bulk_finish(session, recovery->bulk);
    return !status && joined ? session_fail(session, joined, error) : status;
}

static int run(struct recovery *recovery, struct store_session *session, unsigned threads,
               struct error *error)
{
    const struct manifest *manifest = recovery->source->manifest;
    int status = persist_replay_sort(recovery->source->replay, error);
    for (uint32_t i = 0; i < manifest->part_count; i++)
        recovery->done.of += manifest->parts[i].entries;
    const uint64_t most = recovery->done.of + persist_replay_keys(recovery->source->replay);
    recovery->part_keys = most / PARTS_MAX > PART_KEYS ? most / PARTS_MAX : PART_KEYS;
    recovery->parts = most / recovery->part_keys + 1;
    recovery->now_ms = clock_wall_ms();
    if (!status)
        status = store_bulk_begin(&recovery->bulk, recovery->store, (unsigned)recovery->parts, FILL, error);
    if (status)
        return status;
    status = putters_start(recovery, threads < THREADS_MAX ? threads : THREADS_MAX, error);
    if (!status)
        status = read_all(recovery, error);
    putters_end(recovery);
    if (!status && recovery->error.code) {
        *error = recovery->error;
        status = error->code;
    }
    return join(recovery, session, status, error);
}

int recovery_run(const struct recovery_source *source, struct store *store, struct tree_compute *compute,
                 unsigned threads, recovery_progress_function *progress, void *context, uint64_t *keys,
                 struct error *error)
{
    struct recovery recovery = {
        .source = source, .store = store, .compute = compute, .progress = progress, .context = context};
    struct durable_session session;
    assert(threads);
    int status = durable_session_open(&session, store, compute, error);
    if (!status)
        status = run(&recovery, session.store, threads, error);
    durable_session_close(&session);
    *keys = recovery.done.keys;
    return status;
}
