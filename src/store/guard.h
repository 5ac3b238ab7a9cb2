/*
 * guard.h - stands around each change of a key: tells the openers of cuts (cut.h) that a change is under way,
 * and keeps the key's old value for the cuts that still need it. Private to src/store/.
 *
 * store_guard_begin comes before the call of the tree that makes the change, and store_guard_end right behind
 * it; nothing else that waits may stand between them (rule B2, docs/internals/cuts.md). While the change
 * waits for another process the tree has its announcement withdrawn (store_guard_attach). A session has one
 * change at a time. With no cut open both cost a nanosecond, and touch no line that others
 * write.
 */
#ifndef STORE_GUARD_H
#define STORE_GUARD_H

#include "base/membarrier.h"
#include "store/session.h"

/* Any number of keys, at least 1. They may be read first, with buffers of their own, so that the session's
 * stay. */
void store_guard_slow(struct store_session *session, const struct tree_item *items, size_t count);

static inline bool store_guard_enter(struct store_session *session)
{
    struct store_cuts *cuts = &session->store->cuts;
    /* Relaxed: what orders it before the load is the barrier (Dekker, base/membarrier.h). */
    atomic_store_relaxed(&session->guard.changing, STORE_GUARD_ANNOUNCED);
    membarrier_light(cuts->membarrier);
    return !atomic_load_acquire(&cuts->state); /* acquire: the cut is open as a whole */
}

static inline void store_guard_begin_many(struct store_session *session, const struct tree_item *items,
                                          size_t count)
{
    session->guard.items = items;
    session->guard.count = count;
    if (__builtin_expect(!store_guard_enter(session), 0))
        store_guard_slow(session, items, count);
}

static inline void store_guard_begin(struct store_session *session, const void *key, size_t key_length)
{
    if (__builtin_expect(store_guard_enter(session), 1))
        return;
    const struct tree_item item = {.key = key, .key_length = key_length};
    store_guard_slow(session, &item, 1);
}

static inline void store_guard_end(struct store_session *session)
{
    /* Release: an opener that sees it sees the change. */
    atomic_store_release(&session->guard.changing, STORE_GUARD_IDLE);
}

static inline void store_guard_end_many(struct store_session *session)
{
    store_guard_end(session);
    session->guard.items = NULL;
}

#endif
