/*
 * guard.c - the slow part of guard.h, while some cut is open or being opened; docs/internals/cuts.md says why
 * the saved value is that of the moment (B3).
 */
#include "store/guard.h"

#include <stdlib.h>

#include "store/read.h"

#define HELD_LOOK_NS 20000u /* between two looks of a change that is held */

/* Which cuts need what a key holds, by slot; generations[i] is 0 for those that do not. */
struct needs {
    bool any;
    uint64_t generations[STORE_CUTS_MAX];
};

/* Whether there can be such a key: other changes are refused by the tree, and change nothing. */
static bool key_valid(const struct store_session *session, const struct tree_item *item)
{
    const struct format_geometry *geometry = tree_geometry(session->store->tree);
    return item->key && item->key_length && item->key_length <= geometry->key_bytes &&
           (geometry->key_kind != FORMAT_KEY_FIXED || item->key_length == geometry->key_bytes);
}

bool store_cut_wants(const struct store_cut *cut, const void *key, size_t key_length)
{
    const struct store_bound *low = &cut->low, *high = &cut->high;
    if (cut->ended || cut->error.code)
        return false;
    if (low->length) {
        const int order = store_key_order(key, key_length, low->key, low->length);
        if (order < 0 || (!order && low->open))
            return false;
    }
    if (!high->length)
        return true;
    const int order = store_key_order(key, key_length, high->key, high->length);
    return order < 0 || (!order && !high->open);
}

/* Under the cut's lock: whether the key is to be saved, if it is not yet. */
static bool wanted(const struct store_cut *cut, const struct tree_item *item)
{
    /* Relaxed: the lock orders all but the taking of a free slot, which is not open then. */
    return atomic_load_relaxed(&cut->state) == STORE_CUT_OPEN &&
           store_cut_wants(cut, item->key, item->key_length);
}

static void needs_find(struct store_session *session, const struct tree_item *item, struct needs *needs)
{
    struct store_cuts *cuts = &session->store->cuts;
    *needs = (struct needs){.any = false};
    if (!key_valid(session, item))
        return;
    for (unsigned i = 0; i < STORE_CUTS_MAX; i++) {
        struct store_cut *cut = &cuts->slots[i];
        if (atomic_load_acquire(&cut->state) != STORE_CUT_OPEN) /* acquire: a hint, which the lock confirms */
            continue;
        spinlock_lock(&cut->lock);
        if (wanted(cut, item) && !store_cut_table_has(&cut->table, item->key, item->key_length))
            needs->generations[i] = cut->generation;
        spinlock_unlock(&cut->lock);
        needs->any = needs->any || needs->generations[i];
    }
}

/* False: the limit is exceeded, and nothing was added. */
static bool memory_take(struct store_cuts *cuts, uint64_t bytes)
{
    const uint64_t sum = atomic_add_relaxed(&cuts->memory, bytes) + bytes;
    if (sum <= atomic_load_relaxed(&cuts->memory_max))
        return true;
    atomic_add_relaxed(&cuts->memory, 0 - bytes);
    return false;
}

static void fail_memory(struct store_cut *cut, uint64_t generation, const char *what)
{
    struct error error = {0};
    error_set(&error, BANYAN_ENOMEM,
              "the cut was given up: what was changed since it was opened needs more than %s. Raise "
              "cut-memory-max, read it faster or while less is written, or read the keys in parts",
              what);
    store_cut_fail(cut, generation, &error);
}

/* Keeps the value (NULL: the key was absent) for a cut, if that still needs it: the first one stays. */
static void keep(struct store_cut *cut, uint64_t generation, const struct tree_item *item,
                 const struct store_value *value)
{
    struct store_cuts *cuts = &cut->store->cuts;
    spinlock_lock(&cut->lock);
    const unsigned levels = store_cut_table_level(&cut->table);
    if (value && store_expired(value->expires, cut->time))
        value = NULL;
    spinlock_unlock(&cut->lock);
    const size_t bytes = store_saved_bytes(levels, item->key_length, value ? value->length : 0);
    if (!memory_take(cuts, bytes)) {
        fail_memory(cut, generation, "the limit of all cuts");
        return;
    }
    struct store_saved *saved = store_saved_make(levels, item->key, item->key_length, value);
    if (!saved) {
        atomic_add_relaxed(&cuts->memory, 0 - (uint64_t)bytes);
        fail_memory(cut, generation, "this machine's memory");
        return;
    }
    spinlock_lock(&cut->lock);
    const bool kept =
        cut->generation == generation && wanted(cut, item) && store_cut_table_add(&cut->table, saved);
    spinlock_unlock(&cut->lock);
    if (kept)
        atomic_add_relaxed(&cuts->saved, 1);
    else
        atomic_add_relaxed(&cuts->memory, 0 - store_saved_free(saved, UINT32_MAX, NULL));
}

/* A session for reading alone, on the same task and tree session: the guarded one's buffers hold what it is
 * about to write. NULL: no memory. */
static struct store_session *saver_get(struct store_session *session)
{
    if (!session->saver)
        session->saver = calloc(1, sizeof *session->saver);
    if (session->saver) {
        session->saver->store = session->store;
        session->saver->tree = session->tree;
        session->saver->here = session->here;
    }
    return session->saver;
}

static void save(struct store_session *session, const struct tree_item *item, const struct needs *needs)
{
    struct store_session *saver = saver_get(session);
    struct store_value value;
    struct error error = {0};
    int status = BANYAN_ENOMEM;
    if (saver) {
        store_begin(saver);
        /* As of time 0, when nothing had expired: what counts is the time of each cut. */
        status =
            store_fetch(saver, item->key, item->key_length, 0, FORMAT_PART_VALUE, STORE_SINK_BUFFER, &value);
    }
    if (status && status != BANYAN_ENOTFOUND)
        error_set(&error, status, "the cut was given up: a value could not be read before it was changed: %s",
                  saver ? tree_session_error(session->tree)->text : "there is no memory for it");
    for (unsigned i = 0; i < STORE_CUTS_MAX; i++) {
        struct store_cut *cut = &session->store->cuts.slots[i];
        if (!needs->generations[i])
            continue;
        if (error.code)
            store_cut_fail(cut, needs->generations[i], &error);
        else
            keep(cut, needs->generations[i], item, status ? NULL : &value);
    }
    if (saver)
        store_session_rest(saver);
}

/* Whether all that is needed is kept; else it is kept now, and the announcement is withdrawn. */
static bool saved_all(struct store_session *session, const struct tree_item *items, size_t count)
{
    bool all = true;
    for (size_t i = 0; i < count; i++) {
        struct needs needs;
        needs_find(session, &items[i], &needs);
        if (!needs.any)
            continue;
        store_guard_end(session); /* an opener does not wait for the reading, which may take long */
        all = false;
        save(session, &items[i], &needs);
    }
    return all;
}

void store_guard_slow(struct store_session *session, const struct tree_item *items, size_t count)
{
    struct store_cuts *cuts = &session->store->cuts;
    for (;;) {
        uint32_t state = atomic_load_acquire(&cuts->state); /* acquire: as store_guard_enter */
        if (state & STORE_CUTS_OPENING) {
            store_guard_end(session);
            while (atomic_load_acquire(&cuts->state) & STORE_CUTS_OPENING)
                task_sleep(HELD_LOOK_NS);
        } else if (!state || saved_all(session, items, count)) {
            return;
        }
        /* All is looked at again behind the announcement: another cut may have been opened meanwhile. */
        if (store_guard_enter(session))
            return;
    }
}

static bool withdraw(void *context)
{
    struct store_session *session = context;
    /* Relaxed: the session's own word. */
    if (atomic_load_relaxed(&session->guard.changing) != STORE_GUARD_ANNOUNCED)
        return false;
    /* Release: of a batch an opener sees what has been changed already. */
    atomic_store_release(&session->guard.changing, STORE_GUARD_WITHDRAWN);
    return true;
}

static void announce_again(void *context, const void *key, size_t key_length)
{
    struct store_session *session = context;
    const struct store_guard *guard = &session->guard;
    const struct tree_item one = {.key = key, .key_length = key_length};
    if (atomic_load_relaxed(&guard->changing) != STORE_GUARD_WITHDRAWN) /* relaxed: as in withdraw */
        return;
    if (!store_guard_enter(session))
        store_guard_slow(session, guard->items ? guard->items : &one, guard->items ? guard->count : 1);
}

void store_guard_attach(struct store_session *session)
{
    session->guard.announcer = (struct tree_announcer){
        .tree = session->store->tree, .withdraw = withdraw, .announce = announce_again, .context = session};
    tree_session_add_announcer(session->tree, &session->guard.announcer);
}

void store_guard_detach(struct store_session *session)
{
    if (session->guard.announcer.context)
        tree_session_remove_announcer(session->tree, &session->guard.announcer);
}

void store_guard_add(struct store_cuts *cuts, struct store_guard *guard)
{
    spinlock_lock(&cuts->lock);
    guard->previous = NULL;
    guard->next = cuts->guards;
    if (guard->next)
        guard->next->previous = guard;
    cuts->guards = guard;
    spinlock_unlock(&cuts->lock);
}

void store_guard_remove(struct store_cuts *cuts, struct store_guard *guard)
{
    /* A change may still be announced: of a task that died with its compute node, as in simulated worlds. No
     * opener waits for it any more when its guard has left the list. */
    spinlock_lock(&cuts->lock);
    if (guard->previous)
        guard->previous->next = guard->next;
    else
        cuts->guards = guard->next;
    if (guard->next)
        guard->next->previous = guard->previous;
    spinlock_unlock(&cuts->lock);
}
