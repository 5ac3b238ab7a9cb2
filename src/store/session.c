/*
 * session.c - See session.h. What runs at the start of each call costs nanoseconds.
 */
#include "store/session.h"

#include <assert.h>
#include <stdlib.h>

#define LARGE ((size_t)1 << 20) /* bytes of each session that stats.memory does not count */

/* Notes that `from` bytes of the session's buffers become `to`. False: the store's sessions would have too
 * many. */
static bool account(struct store_session *session, size_t from, size_t to)
{
    struct store *store = session->store;
    assert(session->held >= from && session->counted <= session->held);
    size_t held = session->held - from + to, counted = held > LARGE ? held - LARGE : 0;
    uint64_t more = (uint64_t)counted - (uint64_t)session->counted;
    if (more) {
        /* Relaxed: the sum orders nothing else. A session that exceeds the limit takes its share back. */
        uint64_t sum = atomic_add_relaxed(&store->stats.memory, more) + more;
        if (counted > session->counted && sum > atomic_load_relaxed(&store->memory_max)) {
            atomic_add_relaxed(&store->stats.memory, 0 - more);
            return false;
        }
    }
    session->held = held;
    session->counted = counted;
    return true;
}

static void buffer_free(struct store_session *session, struct store_buffer *buffer)
{
    account(session, buffer->capacity, 0);
    free(buffer->bytes);
    *buffer = (struct store_buffer){.bytes = NULL};
}

int store_session_create(struct store_session **out, struct store *store, struct tree_session *tree,
                         struct error *error)
{
    *out = NULL;
    struct store_session *session = calloc(1, sizeof *session);
    if (!session)
        return error_set(error, BANYAN_ENOMEM, "no memory for a session");
    session->store = store;
    session->tree = tree;
    store_session_seed(session, random_entropy());
    store_guard_add(&store->cuts, &session->guard);
    store_guard_attach(session);
    *out = session;
    return 0;
}

void store_session_seed(struct store_session *session, uint64_t seed)
{
    session->stamp = seed;
    random_seed(&session->random, random_mix(seed));
}

void store_session_buffers_free(struct store_session *session)
{
    buffer_free(session, &session->value);
    buffer_free(session, &session->output);
    buffer_free(session, &session->header);
    buffer_free(session, &session->pieces);
    buffer_free(session, &session->placed);
    buffer_free(session, &session->at_hand);
    free(session->transfer);
    free(session->batch);
    free(session->puts);
    store_arena_reset(session);
    assert(session->held == session->arena.capacity && !session->counted);
    free(session->arena.chunks); /* the one that the reset keeps */
}

void store_session_destroy(struct store_session *session)
{
    if (!session)
        return;
    store_guard_remove(&session->store->cuts, &session->guard);
    store_guard_detach(session);
    if (session->saver)
        store_session_buffers_free(session->saver);
    free(session->saver);
    store_session_buffers_free(session);
    free(session);
}

void store_session_set_changed(struct store_session *session, store_changed_function *changed, void *context)
{
    session->changed = changed;
    session->changed_context = context;
}

void store_session_set_placed(struct store_session *session, store_placed_function *placed)
{
    session->changed_placed = placed;
}

void store_session_set_cancel(struct store_session *session, bool (*cancelled)(void *context), void *context)
{
    session->cancelled = cancelled;
    session->cancel_context = context;
}

struct tree_session *store_session_tree(const struct store_session *session)
{
    return session->tree;
}

#define CALLS_A_WHILE 64u
#define CHUNK_BYTES   ((size_t)16 << 10)

/* Frees what the last calls did not use. */
static void session_shrink(struct store_session *session)
{
    session->calls = 0;
    if (!session->transfer_used) {
        free(session->transfer);
        session->transfer = NULL;
    }
    if (!session->batch_used) {
        free(session->batch);
        session->batch = NULL;
    }
    if (!session->puts_used) {
        free(session->puts);
        session->puts = NULL;
    }
    session->transfer_used = session->batch_used = session->puts_used = false;
}

void store_session_rest(struct store_session *session)
{
    if (session->arena.chunks)
        store_arena_reset(session);
    /* Only uncounted bytes are kept, so that an idle session leaves the whole limit to the others. */
    if (session->counted)
        buffer_free(session, &session->output);
    if (session->counted)
        buffer_free(session, &session->value);
}

int store_turn(struct store_session *session, unsigned round)
{
    if (round)
        task_yield();
    if (session->cancelled && session->cancelled(session->cancel_context))
        return pool_fail(tree_session_pool(session->tree), BANYAN_EABORT,
                         "cancelled before it was done: its caller is gone or stops");
    return 0;
}

void store_begin_untimed(struct store_session *session)
{
    store_session_rest(session);
    if (++session->calls >= CALLS_A_WHILE)
        session_shrink(session);
}

uint64_t store_begin(struct store_session *session)
{
    store_begin_untimed(session);
    return session->store->now(session->store->clock_context);
}

int store_reserve(struct store_session *session, struct store_buffer *buffer, size_t bytes)
{
    if (buffer->capacity >= bytes)
        return 0;
    size_t capacity = (bytes + 4095) & ~(size_t)4095;
    buffer_free(session, buffer);
    if (!account(session, 0, capacity))
        return store_fail_memory(session);
    buffer->bytes = aligned_alloc(64, capacity);
    if (!buffer->bytes) {
        account(session, capacity, 0);
        return store_fail_memory(session);
    }
    buffer->capacity = capacity;
    return 0;
}

int store_reserve_more(struct store_session *session, struct store_buffer *buffer, size_t bytes)
{
    struct store_buffer larger = {.bytes = NULL};
    if (buffer->capacity >= bytes)
        return 0;
    int status = store_reserve(session, &larger, bytes);
    if (status)
        return status;
    if (buffer->capacity)
        memcpy(larger.bytes, buffer->bytes, buffer->capacity);
    buffer_free(session, buffer);
    *buffer = larger;
    return 0;
}

void *store_arena_take(struct store_session *session, size_t bytes)
{
    struct store_chunk *chunk = session->arena.chunks;
    bytes = (bytes + 15) & ~(size_t)15;
    if (!chunk || chunk->capacity - chunk->used < bytes) {
        size_t capacity = bytes > CHUNK_BYTES / 2 ? bytes : CHUNK_BYTES;
        if (!account(session, 0, capacity))
            return NULL;
        struct store_chunk *more = aligned_alloc(16, sizeof *more + ((capacity + 15) & ~(size_t)15));
        if (!more) {
            account(session, capacity, 0);
            return NULL;
        }
        *more = (struct store_chunk){.next = chunk, .capacity = capacity};
        session->arena.chunks = chunk = more;
        session->arena.capacity += capacity;
    }
    void *place = chunk->bytes + chunk->used;
    chunk->used += bytes;
    assert(chunk->used <= chunk->capacity);
    return place;
}

/* Keeps one chunk of the common size. */
void store_arena_reset(struct store_session *session)
{
    struct store_chunk *kept = NULL, *chunk = session->arena.chunks;
    while (chunk) {
        struct store_chunk *next = chunk->next;
        if (!kept && chunk->capacity == CHUNK_BYTES) {
            kept = chunk;
            kept->next = NULL;
            kept->used = 0;
        } else {
            free(chunk);
        }
        chunk = next;
    }
    size_t capacity = kept ? CHUNK_BYTES : 0;
    account(session, session->arena.capacity, capacity);
    session->arena = (struct store_arena){.chunks = kept, .capacity = capacity};
}

int store_fail_memory(struct store_session *session)
{
    return pool_fail(
        tree_session_pool(session->tree), BANYAN_ENOMEM,
        "no memory for this call's values, or the calls under way have reached the store's limit");
}

uint32_t store_key_max(const struct store_session *session)
{
    return tree_geometry(session->store->tree)->key_bytes;
}

/* Called before a record is written, since the index would refuse the key only afterwards. */
int store_key_check(struct store_session *session, const void *key, size_t length)
{
    const struct format_geometry *geometry = tree_geometry(session->store->tree);
    if (!key)
        return pool_fail(tree_session_pool(session->tree), BANYAN_EINVAL, "the key is a null pointer");
    if (geometry->key_kind == FORMAT_KEY_FIXED && length != geometry->key_bytes)
        return pool_fail(tree_session_pool(session->tree), BANYAN_EKEYSIZE,
                         "a key has %u bytes, this one %zu", geometry->key_bytes, length);
    if (!length || length > geometry->key_bytes)
        return pool_fail(tree_session_pool(session->tree), BANYAN_EKEYSIZE,
                         "a key has 1 to %u bytes, this one %zu", geometry->key_bytes, length);
    return 0;
}

int store_length_check(struct store_session *session, uint64_t length)
{
    if (length <= STORE_VALUE_MAX)
        return 0;
    return pool_fail(tree_session_pool(session->tree), BANYAN_EVALUESIZE,
                     "a value has at most %llu bytes, this one %llu", (unsigned long long)STORE_VALUE_MAX,
                     (unsigned long long)length);
}
