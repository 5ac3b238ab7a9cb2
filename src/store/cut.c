/*
 * cut.c - opening, reading and closing a cut; contract in cut.h, rules in docs/internals/cuts.md. Saving
 * old values for it meanwhile: guard.c.
 */
#include "store/cut.h"

#include <assert.h>

#include "store/cursor.h"
#include "store/guard.h"
#include "store/read.h"

/* Writers are held for no longer than HOLD_NS at once; then they go on for four times as long, about, and it
 * is tried again. Where changes may wait for a log's commit it is twice as long behind each HOLD_RAISE tries,
 * up to HOLD_MOST_NS. */
#define HOLD_NS          UINT64_C(5000000)
#define HOLD_MOST_NS     UINT64_C(40000000)
#define HOLD_RAISE       5u
#define HOLD_TRIES       100u
#define HOLD_TRIES_OWNED 30u
#define LOOK_FIRST_NS    2000u
#define LOOK_LAST_NS     50000u
/* What is freed at once. */
#define FREED_ENTRIES 1000u
#define FREED_BYTES   (UINT64_C(4) << 20)

void store_cuts_init(struct store *store)
{
    struct store_cuts *cuts = &store->cuts;
    cuts->membarrier = membarrier_register();
    cuts->memory_max = STORE_CUT_MEMORY_MAX;
    for (unsigned i = 0; i < STORE_CUTS_MAX; i++)
        cuts->slots[i].store = store;
}

/* ---- slots ---- */

/* Under the lock: shows sessions whether they must look at the cuts. */
static void state_set(struct store_cuts *cuts, uint32_t taken, bool opening)
{
    /* Release: with the cuts as they are. */
    atomic_store_release(&cuts->state, taken | (opening ? STORE_CUTS_OPENING : 0));
}

static uint32_t taken(const struct store_cuts *cuts)
{
    return cuts->state & ~STORE_CUTS_OPENING;
}

static void bound_set(struct store_bound *bound, const void *key, size_t length, bool open)
{
    assert(length <= sizeof bound->key);
    bound->open = open;
    bound->length = length;
    if (length)
        memcpy(bound->key, key, length);
}

/* A bound may be longer than any key. It is cut then: no key lies between both, and its first bytes by
 * themselves lie below it. */
static void bound_copy(struct store_bound *bound, const void *key, size_t length, bool open, bool open_longer)
{
    const bool longer = length > sizeof bound->key;
    bound_set(bound, key, longer ? sizeof bound->key : length, longer ? open_longer : open);
}

static struct store_cut *slot_take(struct store_session *session, const struct tree_range *range)
{
    struct store_cuts *cuts = &session->store->cuts;
    struct store_cut *cut = NULL;
    spinlock_lock(&cuts->lock);
    for (unsigned i = 0; i < STORE_CUTS_MAX && !cut; i++)
        if (atomic_load_acquire(&cuts->slots[i].state) == STORE_CUT_FREE) /* acquire: its last user is done */
            cut = &cuts->slots[i];
    if (cut) {
        state_set(cuts, taken(cuts) + 1, cuts->opening);
        atomic_store_relaxed(&cut->state, STORE_CUT_TAKEN); /* takers have one lock */
    }
    spinlock_unlock(&cuts->lock);
    if (!cut)
        return NULL;
    spinlock_lock(&cut->lock);
    cut->generation++;
    cut->ended = false;
    cut->error = (struct error){0};
    assert(!cut->table.count);
    random_seed(&cut->table.random, random_next(&session->random));
    bound_copy(&cut->low, range->from, range->from ? range->from_length : 0, range->from_open, true);
    cut->first = cut->low;
    bound_copy(&cut->high, range->to, range->to ? range->to_length : 0, range->to_open, false);
    spinlock_unlock(&cut->lock);
    return cut;
}

/* Under the cut's lock: takes out all that it has saved. */
static struct store_saved *saved_take(struct store_cut *cut, bool *much)
{
    *much = cut->table.count > FREED_ENTRIES || cut->table.bytes > FREED_BYTES;
    return store_cut_table_clear(&cut->table);
}

/* Frees it, or leaves it to store_cuts_tidy where that would take long: the caller is a client's change, or
 * has other clients that wait. */
static void saved_free(struct store_cuts *cuts, struct store_saved *all, bool much)
{
    if (!much) {
        atomic_add_relaxed(&cuts->memory, 0 - store_saved_free(all, UINT32_MAX, NULL));
        return;
    }
    spinlock_lock(&cuts->lock);
    all->list = cuts->garbage;
    cuts->garbage = all;
    spinlock_unlock(&cuts->lock);
}

bool store_cuts_tidy(struct store *store)
{
    struct store_cuts *cuts = &store->cuts;
    struct store_saved *left;
    spinlock_lock(&cuts->lock);
    struct store_saved *first = cuts->garbage;
    if (first)
        cuts->garbage = first->list;
    spinlock_unlock(&cuts->lock);
    if (!first)
        return false;
    atomic_add_relaxed(&cuts->memory, 0 - store_saved_free(first, FREED_ENTRIES, &left));
    if (left)
        saved_free(cuts, left, true);
    return true;
}

void store_cuts_end(struct store *store)
{
    store_guests_end(store);
    while (store_cuts_tidy(store))
        ;
    assert(!store->cuts.state && !store->cuts.memory);
}

void store_cut_close(struct store_cut *cut)
{
    if (!cut)
        return;
    struct store_cuts *cuts = &cut->store->cuts;
    bool much;
    spinlock_lock(&cut->lock);
    struct store_saved *all = saved_take(cut, &much);
    atomic_store_release(&cut->state, STORE_CUT_FREE); /* release: see slot_take */
    spinlock_unlock(&cut->lock);
    saved_free(cuts, all, much);
    spinlock_lock(&cuts->lock);
    state_set(cuts, taken(cuts) - 1, cuts->opening);
    spinlock_unlock(&cuts->lock);
}

void store_cut_fail(struct store_cut *cut, uint64_t generation, const struct error *error)
{
    struct store_saved *all = NULL;
    bool much = false;
    spinlock_lock(&cut->lock);
    /* Relaxed: as in guard.c, wanted. */
    const bool fails = atomic_load_relaxed(&cut->state) == STORE_CUT_OPEN && cut->generation == generation &&
                       !cut->ended && !cut->error.code;
    if (fails) {
        cut->error = *error;
        all = saved_take(cut, &much);
    }
    spinlock_unlock(&cut->lock);
    if (fails)
        atomic_add_relaxed(&cut->store->cuts.failed, 1);
    saved_free(&cut->store->cuts, all, much);
}

/* ---- opening ---- */

/* Whether no change is under way. */
static bool quiet(struct store_cuts *cuts)
{
    bool none = true;
    spinlock_lock(&cuts->lock);
    for (const struct store_guard *guard = cuts->guards; guard && none; guard = guard->next)
        /* Acquire: the change that has ended is there. */
        none = atomic_load_acquire(&guard->changing) != STORE_GUARD_ANNOUNCED;
    spinlock_unlock(&cuts->lock);
    return none;
}

static bool opening_begin(struct store_cuts *cuts)
{
    spinlock_lock(&cuts->lock);
    const bool mine = !cuts->opening;
    if (mine) {
        cuts->opening = true;
        state_set(cuts, taken(cuts), true);
    }
    spinlock_unlock(&cuts->lock);
    return mine;
}

static void opening_end(struct store_cuts *cuts)
{
    spinlock_lock(&cuts->lock);
    cuts->opening = false;
    state_set(cuts, taken(cuts), false);
    spinlock_unlock(&cuts->lock);
}

/* Holds the writers, and opens the cut when no change is under way. False: some change takes longer. */
static bool hold(struct store_cut *cut, uint64_t most)
{
    struct store *store = cut->store;
    struct store_cuts *cuts = &store->cuts;
    const uint64_t begun = task_now();
    uint64_t pause = LOOK_FIRST_NS, held;
    bool none;
    /* Behind this each change either has seen that it must wait, or is seen below. */
    membarrier_all(cuts->membarrier);
    while (!(none = quiet(cuts)) && task_now() - begun < most) {
        task_sleep(pause);
        pause = pause < LOOK_LAST_NS ? 2 * pause : LOOK_LAST_NS;
    }
    if (none) {
        spinlock_lock(&cut->lock);
        cut->time = store->now(store->clock_context);
        atomic_store_release(&cut->state, STORE_CUT_OPEN); /* release: with all that it needs */
        spinlock_unlock(&cut->lock);
    }
    opening_end(cuts);
    held = task_now() - begun;
    if (held > atomic_load_relaxed(&cuts->held_longest)) /* one task opens at a time, or nearly */
        atomic_store_relaxed(&cuts->held_longest, held);
    return none;
}

/* Tries it until it is open. False: some change took longer each time. */
static bool hold_often(struct store_session *session, struct store_cut *cut, uint64_t *most)
{
    struct store_cuts *cuts = &session->store->cuts;
    const unsigned tries = cut->owned ? HOLD_TRIES_OWNED : HOLD_TRIES;
    *most = HOLD_NS;
    for (unsigned i = 0; i < tries; i++) {
        if (cut->owned && i && i % HOLD_RAISE == 0 && *most < HOLD_MOST_NS)
            *most *= 2;
        if (i)
            task_sleep(4 * *most);
        if (opening_begin(cuts) && hold(cut, *most))
            return true;
    }
    return false;
}

/* The cut's range from this bound on. The keys are the bounds'. */
static void range_from(const struct store_cut *cut, const struct store_bound *low, struct tree_range *range)
{
    const struct store_bound *high = &cut->high;
    *range = (struct tree_range){.from = NULL};
    if (low->length) {
        range->from = low->key;
        range->from_length = low->length;
        range->from_open = low->open;
    }
    if (high->length) {
        range->to = high->key;
        range->to_length = high->length;
        range->to_open = high->open;
    }
}

static int lost(struct store_session *session, const char *what)
{
    return pool_fail(tree_session_pool(session->tree), BANYAN_EFENCED, "%s", what);
}

/* B7: whether all of the range was this process's from the opening until now, so that what was read of it is
 * what this process has made of it. */
static int still_owned(struct store_session *session, struct store_cut *cut)
{
    struct tree_range range;
    uint64_t epoch;
    if (!cut->owned)
        return 0;
    range_from(cut, &cut->first, &range);
    if (tree_rights_held(session->tree, session->store->tree, &range, &epoch) && epoch == cut->epoch)
        return 0;
    struct error error = {0};
    int status =
        lost(session, "the range has moved to another server, or was shared, since its cut was opened");
    error_set(&error, status, "%s", tree_session_error(session->tree)->text);
    spinlock_lock(&cut->lock);
    cut->ended = false; /* what the last call has read is void too */
    spinlock_unlock(&cut->lock);
    store_cut_fail(cut, cut->generation, &error);
    return status;
}

static int cut_open(struct store_session *session, const struct tree_range *range, bool owned,
                    struct store_cut **out)
{
    struct store_cuts *cuts = &session->store->cuts;
    struct pool_session *pool = tree_session_pool(session->tree);
    uint64_t epoch = 0, most;
    *out = NULL;
    assert(!range->reverse);
    if (owned && !tree_rights_held(session->tree, session->store->tree, range, &epoch))
        return lost(session, "this server does not own all of the range now");
    struct store_cut *cut = slot_take(session, range);
    if (!cut)
        return pool_fail(pool, BANYAN_EBUSY, "%u cuts are open already, which is the most there may be",
                         STORE_CUTS_MAX);
    cut->owned = owned;
    cut->epoch = epoch;
    int status = 0;
    if (!hold_often(session, cut, &most))
        status = pool_fail(pool, BANYAN_EBUSY,
                           "no moment was found at which no change was under way: each time one took longer "
                           "than %llu ms, for which writers may be held",
                           (unsigned long long)(most / 1000000));
    if (!status) {
        atomic_add_relaxed(&cuts->opened, 1);
        status = still_owned(session, cut);
    }
    if (status) {
        store_cut_close(cut);
        return status;
    }
    *out = cut;
    return 0;
}

int store_cut_open(struct store_session *session, const struct tree_range *range, struct store_cut **cut)
{
    return cut_open(session, range, false, cut);
}

int store_cut_open_owned(struct store_session *session, const struct tree_range *range,
                         struct store_cut **cut)
{
    return cut_open(session, range, true, cut);
}

/* ---- what may be opened ---- */

struct parts {
    store_portion_function *visit;
    void *context;
    struct fabric_process self;
};

static void parts_row(void *context, const struct tree_rights_row *row, const struct format_key *upper)
{
    static const enum store_share shares[] = {[TREE_SHARED] = STORE_SHARE_NOBODYS,
                                              [TREE_OWNED] = STORE_SHARE_OURS,
                                              [TREE_OTHERS] = STORE_SHARE_OTHERS,
                                              [TREE_MOVING] = STORE_SHARE_MOVING};
    const struct parts *parts = context;
    const struct store_portion part = {.from = row->lower,
                                       .from_length = row->lower_length,
                                       .to = upper ? upper->bytes : NULL,
                                       .to_length = upper ? upper->length : 0,
                                       .share = shares[row->right],
                                       .owner = row->right == TREE_OWNED ? parts->self : row->owner};
    parts->visit(parts->context, &part);
}

void store_portions(struct store_session *session, store_portion_function *visit, void *context)
{
    struct parts parts = {
        .visit = visit, .context = context, .self = fabric_self(tree_session_pool(session->tree)->fabric)};
    tree_rights_rows(session->tree, session->store->tree, parts_row, &parts);
}

/* ---- reading ---- */

struct walk {
    struct store_session *session;
    struct store_cut *cut;
    store_visit_function *visit;
    void *context;
    uint64_t entries, bytes; /* that are still wanted; 0: enough */
    bool stopped;
};

static void walk_visit(struct walk *walk, const void *key, size_t key_length, const struct store_value *value)
{
    const uint64_t bytes = key_length + value->length;
    walk->entries--;
    walk->bytes = walk->bytes > bytes ? walk->bytes - bytes : 0;
    walk->stopped = !walk->visit(walk->context, key, key_length, value) || !walk->entries || !walk->bytes;
}

/* Gives the entry out, if the key was there, and frees it. */
static void walk_saved(struct walk *walk, struct store_saved *saved)
{
    const struct store_value value = {
        .bytes = saved->bytes + saved->key_length, .length = saved->length, .expires = saved->expires};
    if (saved->present)
        walk_visit(walk, saved->bytes, saved->key_length, &value);
    atomic_add_relaxed(&walk->cut->store->cuts.memory, 0 - store_saved_free(saved, UINT32_MAX, NULL));
}

/* Takes out the first entry that was saved of a key up to this one (NULL: of any), and passes that key; where
 * there is none, passes this key (NULL: all of them). *failed: the cut has. */
static struct store_saved *pass(struct walk *walk, const void *key, size_t key_length, bool *failed)
{
    struct store_cut *cut = walk->cut;
    struct store_saved *saved = NULL;
    spinlock_lock(&cut->lock);
    *failed = cut->error.code != 0;
    const struct store_saved *first = store_cut_table_first(&cut->table);
    if (!*failed && first &&
        (!key || store_key_order(first->bytes, first->key_length, key, key_length) <= 0)) {
        saved = store_cut_table_pop(&cut->table);
        bound_set(&cut->low, saved->bytes, saved->key_length, true);
    } else if (!*failed && key) {
        bound_set(&cut->low, key, key_length, true);
    } else if (!*failed) {
        cut->ended = true;
    }
    spinlock_unlock(&cut->lock);
    return saved;
}

static int walk_failed(const struct walk *walk)
{
    const struct error *error = &walk->cut->error; /* it stays, once it is set */
    return pool_fail(tree_session_pool(walk->session->tree), error->code, "%s", error->text);
}

/* Gives out the saved entries of keys up to this one, then the key as the store has it, unless it was saved.
 * `value` NULL: the store does not have it. `key` NULL: gives out all saved entries. */
static int walk_key(struct walk *walk, const void *key, size_t key_length, const struct store_value *value)
{
    while (!walk->stopped) {
        bool failed;
        struct store_saved *saved = pass(walk, key, key_length, &failed);
        if (failed)
            return walk_failed(walk);
        if (!saved) {
            if (value && !store_expired(value->expires, walk->cut->time))
                walk_visit(walk, key, key_length, value);
            return 0;
        }
        const bool same = key && saved->key_length == key_length && !memcmp(saved->bytes, key, key_length);
        walk_saved(walk, saved);
        if (same)
            return 0;
    }
    return 0;
}

/* Each value is read before it is asked whether the key was saved: B4. */
static int walk_batch(struct walk *walk)
{
    struct store_session *session = walk->session;
    struct store_batch *batch = session->batch;
    int status = 0;
    store_batch_resolve(session, 0, FORMAT_PART_VALUE);
    for (uint32_t i = 0; i < batch->count && !status && !walk->stopped; i++) {
        struct store_entry *entry = &batch->entries[i];
        if (entry->status == STORE_STALE)
            entry->status = store_fetch(session, entry->key, entry->key_length, 0, FORMAT_PART_VALUE,
                                        STORE_SINK_BUFFER, &entry->value);
        if (entry->status && entry->status != BANYAN_ENOTFOUND)
            return entry->status;
        status = walk_key(walk, entry->key, entry->key_length, entry->status ? NULL : &entry->value);
    }
    return status;
}

static uint32_t walk_room(const struct walk *walk)
{
    return walk->entries < STORE_BATCH_ENTRIES ? (uint32_t)walk->entries : STORE_BATCH_ENTRIES;
}

int store_cut_next(struct store_session *session, struct store_cut *cut, uint64_t entries, uint64_t bytes,
                   store_visit_function *visit, void *context, bool *ended)
{
    struct walk walk = {.session = session,
                        .cut = cut,
                        .visit = visit,
                        .context = context,
                        .entries = entries ? entries : 1,
                        .bytes = bytes ? bytes : 1};
    struct store_cursor cursor = {.session = session, .part = FORMAT_PART_VALUE};
    store_begin_untimed(session);
    /* The cursor looks at it when it begins, before anything is passed. */
    range_from(cut, &cut->low, &cursor.range);
    int status = still_owned(session, cut);
    for (unsigned round = 0; !status && !walk.stopped && !cut->ended; round++) {
        status = store_turn(session, round);
        if (!status && !cursor.done)
            status = store_cursor_next(&cursor, walk_room(&walk));
        if (!status)
            status = walk_batch(&walk);
        if (!status && cursor.done && !walk.stopped)
            status = walk_key(&walk, NULL, 0, NULL);
    }
    if (!status)
        status = still_owned(session, cut);
    *ended = cut->ended;
    return status;
}

/* ---- figures ---- */

void store_set_cut_memory_max(struct store *store, uint64_t bytes)
{
    atomic_store_relaxed(&store->cuts.memory_max, bytes);
}

void store_cut_stats(const struct store *store, struct store_cut_stats *stats)
{
    const struct store_cuts *cuts = &store->cuts;
    /* Relaxed, all: figures. */
    *stats = (struct store_cut_stats){
        .open = atomic_load_relaxed(&cuts->state) & ~STORE_CUTS_OPENING,
        .memory = atomic_load_relaxed(&cuts->memory),
        .memory_max = atomic_load_relaxed(&cuts->memory_max),
        .opened = atomic_load_relaxed(&cuts->opened),
        .failed = atomic_load_relaxed(&cuts->failed),
        .saved = atomic_load_relaxed(&cuts->saved),
        .held_longest_ns = atomic_load_relaxed(&cuts->held_longest),
    };
}
