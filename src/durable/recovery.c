/* recovery.c - see recovery.h. */
#include "durable/recovery.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/archive.h"
#include "base/atomic.h"
#include "base/task.h"
#include "base/thread.h"
#include "pool/pool.h"

#define BATCH_KEYS    256u
#define BATCH_BYTES   ((size_t)1 << 20)
#define THREADS_MAX   64u
#define SLOTS         4u /* batches of each thread: one is put while others are filled */
#define PROGRESS_KEYS 65536u
#define WAIT_NS       UINT64_C(20000)

struct batch {
    struct store_item items[BATCH_KEYS];
    uint32_t count;
    uint8_t *bytes; /* owned */
    size_t used, room;
    uint32_t full; /* atomic: the thread's; 0: the reader's */
};

struct putter {
    struct recovery *recovery;
    struct thread *thread;
    struct batch slots[SLOTS];
    unsigned next; /* the reader's: which one it fills */
};

struct recovery {
    const struct recovery_source *source;
    struct store *store;
    struct tree_compute *compute;
    struct store_session *session; /* of the caller: it puts itself */
    struct batch *here;            /* with it */
    struct putter *putters;        /* owned */
    unsigned count, turn;
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

static int batch_put(struct store_session *session, struct batch *batch, struct error *error)
{
    int status = batch->count ? store_multi_put(session, batch->items, batch->count) : 0;
    batch->count = 0;
    batch->used = 0;
    if (!status)
        return 0;
    const struct error *said = tree_session_error(store_session_tree(session));
    if (status == BANYAN_ENOSPC)
        return error_set(error, status, "the pools are too small for what the disk holds (%s)", said->text);
    return error_set(error, status, "%s", said->code == status ? said->text : error_name(status));
}

static void putter_run(struct putter *putter, struct store_session *session)
{
    struct recovery *recovery = putter->recovery;
    struct error error = {0};
    for (unsigned at = 0;; at = (at + 1) % SLOTS) {
        struct batch *batch = &putter->slots[at];
        while (!atomic_load_acquire(&batch->full)) { /* acquire: with its items */
            /* Acquire: a batch that was filled before the end is seen. */
            if (atomic_load_acquire(&recovery->ended) && !atomic_load_acquire(&batch->full))
                return;
            task_sleep(WAIT_NS);
        }
        /* Relaxed: what fails later is told all the same. */
        if (!atomic_load_relaxed(&recovery->failed) && batch_put(session, batch, &error))
            fail(recovery, &error);
        batch->count = 0;
        batch->used = 0;
        atomic_store_release(&batch->full, 0); /* the reader's again */
    }
}

static void putter_main(void *context)
{
    struct putter *putter = context;
    struct recovery *recovery = putter->recovery;
    struct pool_worker *worker = NULL;
    struct tree_session *tree = NULL;
    struct store_session *session = NULL;
    struct error error = {0};
    int status = pool_worker_create(&worker, tree_compute_pool(recovery->compute), &error);
    if (!status)
        status = tree_session_create(&tree, recovery->compute, worker, &error);
    if (!status)
        status = store_session_create(&session, recovery->store, tree, &error);
    if (status)
        fail(recovery, &error);
    else
        putter_run(putter, session);
    if (session)
        store_session_destroy(session);
    tree_session_destroy(tree);
    pool_worker_destroy(worker);
}

/* ---- filling ---- */

static struct batch *batch_open(struct recovery *recovery)
{
    if (recovery->here)
        return recovery->here;
    struct putter *putter = &recovery->putters[recovery->turn];
    return &putter->slots[putter->next];
}

/* The batch goes to its putter; the next one is empty when it returns. */
static int batch_send(struct recovery *recovery, struct error *error)
{
    if (recovery->here)
        return batch_put(recovery->session, recovery->here, error);
    struct putter *putter = &recovery->putters[recovery->turn];
    atomic_store_release(&putter->slots[putter->next].full, 1); /* with its items */
    putter->next = (putter->next + 1) % SLOTS;
    recovery->turn = (recovery->turn + 1) % recovery->count;
    putter = &recovery->putters[recovery->turn];
    while (atomic_load_acquire(&putter->slots[putter->next].full)) { /* acquire: it is the reader's */
        if (atomic_load_acquire(&recovery->failed))                  /* acquire: with the message */
            break;
        task_sleep(WAIT_NS);
    }
    if (!atomic_load_acquire(&recovery->failed))
        return 0;
    spinlock_lock(&recovery->lock);
    *error = recovery->error;
    spinlock_unlock(&recovery->lock);
    return error->code;
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

static int entry_add(struct recovery *recovery, const struct archive_entry *entry, struct error *error)
{
    const size_t bytes = entry->key_length + entry->value_length + 1;
    struct batch *batch = batch_open(recovery);
    if (batch->count == BATCH_KEYS || (batch->count && !batch_room(batch, bytes))) {
        int status = batch_send(recovery, error);
        if (status)
            return status;
        batch = batch_open(recovery);
    }
    if (!batch_room(batch, bytes))
        return error_set(error, BANYAN_ENOMEM, "no memory for a value of %zu bytes", entry->value_length);
    uint8_t *key = batch->bytes + batch->used, *value = key + entry->key_length;
    memcpy(key, entry->key, entry->key_length);
    if (entry->value_length)
        memcpy(value, entry->value, entry->value_length);
    batch->used += bytes;
    batch->items[batch->count++] = (struct store_item){.key = key,
                                                       .key_length = entry->key_length,
                                                       .value = {.bytes = value,
                                                                 .length = entry->value_length,
                                                                 .expires = entry->expires}};
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

/* What the journal has of a key counts, also that it was deleted. */
static int part_entry(void *context, const struct archive_entry *entry, struct error *error)
{
    struct recovery *recovery = ((struct part_reader *)context)->recovery;
    const struct recovery_source *source = recovery->source;
    if (persist_replay_has(source->replay, source->index, entry->key, entry->key_length))
        return 0;
    return entry_add(recovery, entry, error);
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

static int journal_entry(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    struct recovery *recovery = context;
    return index == recovery->source->index ? entry_add(recovery, entry, error) : 0;
}

static int read_all(struct recovery *recovery, struct error *error)
{
    const struct manifest *manifest = recovery->source->manifest;
    int status = 0;
    for (uint32_t i = 0; i < manifest->part_count; i++)
        recovery->done.of += manifest->parts[i].entries;
    for (uint32_t i = 0; i < manifest->part_count && !status; i++)
        status = part_load(recovery, &manifest->parts[i], error);
    if (!status)
        status = persist_replay_all(recovery->source->replay, journal_entry, recovery, error);
    if (!status && batch_open(recovery)->count)
        status = batch_send(recovery, error);
    return status;
}

/* ---- whole ---- */

static int putters_start(struct recovery *recovery, unsigned threads, struct error *error)
{
    int status = 0;
    recovery->putters = calloc(threads, sizeof *recovery->putters);
    if (!recovery->putters)
        return error_set(error, BANYAN_ENOMEM, "no memory to read what the disk holds");
    for (; recovery->count < threads && !status; recovery->count++) {
        recovery->putters[recovery->count].recovery = recovery;
        status = thread_start(&recovery->putters[recovery->count].thread, putter_main,
                              &recovery->putters[recovery->count], error);
        if (status)
            break;
    }
    return status;
}

/* All that was sent is in the store, or an error is known. */
static void putters_end(struct recovery *recovery)
{
    atomic_store_release(&recovery->ended, true); /* behind the last batch */
    for (unsigned i = 0; i < recovery->count; i++) {
        thread_join(recovery->putters[i].thread);
        for (unsigned slot = 0; slot < SLOTS; slot++)
            free(recovery->putters[i].slots[slot].bytes);
    }
    free(recovery->putters);
}

int recovery_run(const struct recovery_source *source, struct store *store, struct tree_compute *compute,
                 unsigned threads, recovery_progress_function *progress, void *context, uint64_t *keys,
                 struct error *error)
{
    struct recovery recovery = {
        .source = source, .store = store, .compute = compute, .progress = progress, .context = context};
    assert(threads);
    int status = putters_start(&recovery, threads < THREADS_MAX ? threads : THREADS_MAX, error);
    if (!status)
        status = read_all(&recovery, error);
    putters_end(&recovery);
    if (!status && recovery.error.code) {
        *error = recovery.error;
        status = error->code;
    }
    *keys = recovery.done.keys;
    return status;
}

int recovery_here(const struct recovery_source *source, struct store_session *session, uint64_t *keys,
                  struct error *error)
{
    struct recovery recovery = {.source = source, .session = session};
    int status = BANYAN_ENOMEM;
    recovery.here = calloc(1, sizeof *recovery.here);
    if (recovery.here) {
        status = read_all(&recovery, error);
        free(recovery.here->bytes);
        free(recovery.here);
    } else {
        error_set(error, status, "no memory to read what the disk holds");
    }
    *keys = recovery.done.keys;
    return status;
}
