/*
 * replay_threads.c - VALUES records, taken by several threads (replay_private.h).
 *
 * The calling thread reads the journal, and copies records into blocks, which form a ring. Each of the
 * threads goes over all blocks, in order, and takes the entries that are of its shard: so of each key the
 * entries come in the order of the journal, without a look at their positions, and no two threads touch the
 * same key. That each of them decodes what is the others' costs some nanoseconds an entry, where a look into
 * the table costs hundreds. A block is filled again when all have been through it.
 *
 * A record that makes no sense is found by every thread, at the same place; a thread that has found one takes
 * no more, and goes on to the end, so that nobody waits for it. The error that is told is of the first record
 * that had one, as if one thread had read all.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bell.h"
#include "base/thread.h"
#include "persist/replay_private.h"

#define BLOCKS        8u
#define BLOCK_BYTES   ((uint32_t)512 << 10)
#define BLOCK_RECORDS 1024u

static_assert(BLOCK_BYTES >= JOURNAL_LENGTH_MAX, "a block has room for any record");

struct block {
    uint32_t left; /* atomic: threads that have not been through it */
    uint32_t count, used;
    struct replay_given *records; /* owned: [BLOCK_RECORDS] */
    uint8_t *bytes;               /* owned: [BLOCK_BYTES] */
};

struct worker {
    _Alignas(REPLAY_APART) struct persist_replay *replay;
    struct replay_shard *shard;
    struct thread *thread;
    struct bell bell; /* there is another block, or the end */
    uint64_t order;   /* of the record that had an error */
    struct error error;
};

struct replay_threads {
    struct block blocks[BLOCKS];
    struct worker *workers; /* owned: [shard_count], of which `running` have been started */
    uint32_t running;
    uint64_t filled; /* the caller's: blocks that it has published */
    /* Written by the caller alone, read by all: */
    _Alignas(REPLAY_APART) uint64_t published; /* atomic: blocks so far */
    bool ended;                                /* atomic: nothing more comes */
    _Alignas(REPLAY_APART) bool failed;        /* atomic: a thread has met an error */
    struct bell emptied;                       /* some block is the caller's again */
};

/* ---- a thread ---- */

static void record_take(struct worker *worker, struct replay_given *given)
{
    struct error reason = {0};
    const int status = replay_plain_take(worker->replay, given, worker->shard, &reason);
    if (!status)
        return;
    worker->order = given->order;
    replay_record_bad(worker->replay, given->disk, &given->record, status, &reason, &worker->error);
    /* Relaxed: a hint to give no more; the error itself is read when the thread has ended. */
    atomic_store_relaxed(&worker->replay->threads->failed, true);
}

static void block_take(struct worker *worker, struct block *block)
{
    struct replay_threads *threads = worker->replay->threads;
    for (uint32_t i = 0; i < block->count && !worker->error.code; i++)
        record_take(worker, &block->records[i]);
    /* Release: with what was taken of it, before the caller fills it again. */
    if (atomic_add_release(&block->left, UINT32_MAX) == 1)
        bell_ring(&threads->emptied);
}

static void worker_main(void *context)
{
    struct worker *worker = context;
    struct replay_threads *threads = worker->replay->threads;
    for (uint64_t at = 0;;) {
        const bool ended = atomic_load_acquire(&threads->ended); /* acquire: with all that was published */
        const uint64_t published = atomic_load_acquire(&threads->published); /* acquire: with the blocks */
        for (; at < published; at++)
            block_take(worker, &threads->blocks[at % BLOCKS]);
        if (ended)
            return;
        bell_wait(&worker->bell);
    }
}

/* ---- giving ---- */

static void workers_ring(struct replay_threads *threads)
{
    for (uint32_t i = 0; i < threads->running; i++)
        bell_ring(&threads->workers[i].bell);
}

static struct block *block_now(struct replay_threads *threads)
{
    return &threads->blocks[threads->filled % BLOCKS];
}

/* The block that is being filled goes to the threads, if there is anything in it. */
static void block_publish(struct replay_threads *threads)
{
    struct block *block = block_now(threads);
    if (!block->count)
        return;
    atomic_store_relaxed(&block->left, threads->running); /* relaxed: seen with `published` */
    threads->filled++;
    atomic_store_release(&threads->published, threads->filled); /* with the block */
    workers_ring(threads);
}

/* The parts that nobody has taken, as behind an error. */
static void block_clear(struct block *block)
{
    for (uint32_t i = 0; i < block->count; i++)
        free(block->records[i].parts);
    block->count = block->used = 0;
}

/* Waits until the threads have been through what the block had. */
static void block_reuse(struct replay_threads *threads, struct block *block)
{
    while (atomic_load_acquire(&block->left)) /* acquire: it is the caller's again */
        bell_wait(&threads->emptied);
    block_clear(block);
}

static struct block *block_for(struct replay_threads *threads, uint32_t bytes)
{
    struct block *block = block_now(threads);
    if (block->count < BLOCK_RECORDS && bytes <= BLOCK_BYTES - block->used)
        return block;
    block_publish(threads);
    block = block_now(threads);
    block_reuse(threads, block);
    return block;
}

/* ---- their life ---- */

static void threads_free(struct replay_threads *threads)
{
    for (unsigned i = 0; i < BLOCKS; i++) {
        block_clear(&threads->blocks[i]);
        free(threads->blocks[i].records);
        free(threads->blocks[i].bytes);
    }
    free(threads->workers);
    free(threads);
}

/* Waits for all, and keeps the error of the record that came first. */
static void threads_end(struct persist_replay *replay)
{
    struct replay_threads *threads = replay->threads;
    const struct worker *first = NULL;
    block_publish(threads);
    atomic_store_release(&threads->ended, true); /* behind the last block */
    workers_ring(threads);
    for (uint32_t i = 0; i < threads->running; i++) {
        const struct worker *worker = &threads->workers[i];
        thread_join(worker->thread);
        if (worker->error.code && (!first || worker->order < first->order))
            first = worker;
    }
    if (first)
        replay->failure = first->error;
    threads_free(threads);
    replay->threads = NULL;
}

static bool blocks_make(struct replay_threads *threads)
{
    bool made = true;
    for (unsigned i = 0; i < BLOCKS; i++) {
        struct block *block = &threads->blocks[i];
        block->records = malloc(BLOCK_RECORDS * sizeof *block->records);
        block->bytes = malloc(BLOCK_BYTES);
        made = made && block->records && block->bytes;
    }
    return made;
}

static struct replay_threads *threads_make(uint32_t count)
{
    struct replay_threads *threads = replay_apart(sizeof *threads);
    if (!threads)
        return NULL;
    threads->workers = replay_apart(count * sizeof *threads->workers);
    if (threads->workers && blocks_make(threads))
        return threads;
    threads_free(threads);
    return NULL;
}

static int threads_start(struct persist_replay *replay, struct error *error)
{
    struct replay_threads *threads = threads_make(replay->shard_count);
    int status = 0;
    if (!threads)
        return error_set(error, BANYAN_ENOMEM, "no memory to read a journal with %u threads",
                         (unsigned)replay->shard_count);
    replay->threads = threads;
    while (!status && threads->running < replay->shard_count) {
        struct worker *worker = &threads->workers[threads->running];
        worker->replay = replay;
        worker->shard = &replay->shards[threads->running];
        status = thread_start(&worker->thread, worker_main, worker, error);
        threads->running += !status;
    }
    if (status)
        threads_end(replay);
    return status;
}

int replay_threads_give(struct persist_replay *replay, const struct replay_given *given, struct error *error)
{
    int status = replay->threads ? 0 : threads_start(replay, error);
    if (status) {
        free(given->parts);
        return status;
    }
    struct block *block = block_for(replay->threads, given->record.length);
    struct replay_given *copy = &block->records[block->count++];
    *copy = *given;
    copy->record.bytes = block->bytes + block->used;
    if (given->record.length)
        memcpy(block->bytes + block->used, given->record.bytes, given->record.length);
    block->used += given->record.length;
    return 0;
}

bool replay_threads_failed(const struct persist_replay *replay)
{
    return replay->failure.code ||
           (replay->threads && atomic_load_relaxed(&replay->threads->failed)); /* relaxed: a hint */
}

int replay_threads_settle(struct persist_replay *replay, struct error *error)
{
    if (replay->threads)
        threads_end(replay);
    if (replay->failure.code && error)
        *error = replay->failure;
    return replay->failure.code;
}

/* ---- all shards at once ---- */

struct call {
    void (*function)(void *context, uint32_t shard);
    void *context;
    uint32_t shard;
    struct thread *thread;
};

static void call_main(void *context)
{
    const struct call *call = context;
    call->function(call->context, call->shard);
}

int replay_threads_each(struct persist_replay *replay, void (*function)(void *context, uint32_t shard),
                        void *context, struct error *error)
{
    struct call calls[REPLAY_SHARDS_MAX];
    uint32_t started = 1;
    int status = 0;
    for (; started < replay->shard_count && !status; started += !status) {
        calls[started] = (struct call){function, context, started, NULL};
        status = thread_start(&calls[started].thread, call_main, &calls[started], error);
    }
    if (!status)
        function(context, 0);
    for (uint32_t i = 1; i < started; i++)
        thread_join(calls[i].thread);
    return status;
}
