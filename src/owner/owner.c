/* owner.c - the life of struct owner: options, joining, the indexes that are attached, counters; see owner.h.
 */
#include "owner/owner.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "owner/board.h"
#include "owner/forward.h"
#include "owner/heirs.h"
#include "owner/state.h"

const char *const owner_state_names[] = {"settled", "moving", "split", "closed", NULL};

#define DETACH_LOOK_NS (50 * MICROSECOND)
#define JOIN_LOOK_NS   (1 * MILLISECOND)

/* ---- options ---- */

void owner_options_default(struct owner_options *options)
{
    *options = (struct owner_options){.policy = OWNER_NONE,
                                      .timeout_ns = 10000 * MILLISECOND,
                                      .adopt_ns = 3000 * MILLISECOND,
                                      .tick_ns = 20 * MILLISECOND,
                                      .balance_ns = 5000 * MILLISECOND,
                                      .ranges = 8};
}

static int check(const struct owner_options *options, struct error *error)
{
    if (options->policy != OWNER_NONE && options->policy != OWNER_AUTO)
        return error_set(error, BANYAN_EINVAL, "ownership: %d is no policy (none, auto)", options->policy);
    if (!options->timeout_ns || !options->adopt_ns || !options->tick_ns)
        return error_set(error, BANYAN_EINVAL, "ownership: a time-out or period is 0");
    if (options->ranges < 1 || options->ranges > 4096)
        return error_set(error, BANYAN_EINVAL,
                         "ownership: %u ranges for each process: 1 to 4096 are possible", options->ranges);
    return 0;
}

/* ---- life ---- */

static void heard(void *context)
{
    owner_wake(context);
}

int owner_create(struct owner **created, struct tree_compute *compute, const struct owner_options *options,
                 struct error *error)
{
    *created = NULL;
    int status = check(options, error);
    if (status)
        return status;
    struct owner *owner = calloc(1, sizeof *owner);
    if (!owner)
        return error_set(error, BANYAN_ENOMEM, "no memory for the ownership of key ranges");
    owner->compute = compute;
    owner->fabric = pool_fabric(tree_compute_pool(compute));
    owner->options = *options;
    owner->copy.heap = owner->tried.heap = &owner->heap;
    owner->self = fabric_self(owner->fabric);
    if (!owner->options.seed)
        owner->options.seed = owner->self.instance * 65536u + owner->self.compute_id;
    tree_compute_set_forward(compute, &owner_forward, owner);
    fabric_notice_listen(owner->fabric, heard, owner);
    *created = owner;
    return 0;
}

void owner_set_log(struct owner *owner, const struct owner_log *log, void *context)
{
    assert(!owner->entered); /* the board was told of none */
    owner->log = log;
    owner->log_context = context;
}

void owner_destroy(struct owner *owner)
{
    static const struct tree_forward nothing;
    if (!owner)
        return;
    fabric_notice_listen(owner->fabric, NULL, NULL);
    tree_compute_set_forward(owner->compute, &nothing, NULL); /* no operation is under way any more */
    owner_heirs_destroy(owner);
    owner_callers_free(&owner->callers);
    heap_clear(&owner->heap);
    tree_close(owner->map);
    free(owner);
}

/* Under `adopting`. */
static int open_map(struct owner *owner, struct tree_session *session)
{
    return owner->map ? 0 : owner_map_open(session, &owner->map);
}

/* The board has no room: of the processes that are gone none may be left there. Where another task or process
 * has the map's lock it may be about to take them off, or do something else: this one waits for its turn. */
static int join_full(struct owner *owner, struct tree_session *session)
{
    const uint64_t began = task_now();
    for (;;) {
        int buried = owner_bury(owner, session, 0);
        if (buried && buried != BANYAN_EBUSY)
            return buried;
        int status = owner_refresh(owner, session, 0);
        if (status != BANYAN_ENOSPC || !buried || owner_stopping(owner) ||
            task_now() - began >= owner->options.timeout_ns)
            return status;
        task_sleep(JOIN_LOOK_NS);
    }
}

int owner_join(struct owner *owner, struct tree_session *session)
{
    if (owner->options.log && !owner->log)
        return pool_fail(tree_session_pool(session), BANYAN_EINVAL,
                         "ownership: this process is to keep a log, and has none");
    owner_turn_take(&owner->adopting);
    int status = open_map(owner, session);
    owner_turn_give(&owner->adopting);
    /* What was adopted once is kept up by the keeper. Relaxed: what it was is looked at under `adopting`. */
    if (status || atomic_load_relaxed(&owner->incarnation))
        return status;
    status = owner_refresh(owner, session, 0);
    return status == BANYAN_ENOSPC ? join_full(owner, session) : status;
}

/* ---- indexes ---- */

struct owner_index *owner_index_of(const struct owner *owner, const struct tree *tree)
{
    struct owner_index *index = owner->indexes;
    while (index && index->tree != tree)
        index = index->next;
    return index;
}

struct owner_index *owner_index_numbered(const struct owner *owner, uint16_t number)
{
    struct owner_index *index = owner->indexes;
    while (index && index->number != number)
        index = index->next;
    return index;
}

struct owner_index *owner_index_get(struct owner *owner, uint16_t number)
{
    spinlock_lock(&owner->lock);
    struct owner_index *index = owner_index_numbered(owner, number);
    if (index && index->leaving)
        index = NULL;
    if (index)
        index->users++;
    spinlock_unlock(&owner->lock);
    return index;
}

void owner_index_put(struct owner *owner, struct owner_index *index)
{
    spinlock_lock(&owner->lock);
    assert(index->users);
    index->users--;
    spinlock_unlock(&owner->lock);
}

static int add(struct owner *owner, struct tree_session *session, struct tree *tree)
{
    struct pool_session *pool = tree_session_pool(session);
    if (owner_is_map(tree_name(tree)))
        return pool_fail(pool, BANYAN_EINVAL, "the index '%s' is the map of ranges, which has none",
                         tree_name(tree));
    if (owner_index_numbered(owner, tree_number(tree)))
        return pool_fail(pool, BANYAN_EBUSY, "this process has the index '%s' open already", tree_name(tree));
    struct owner_index *index = heap_allocate_zeros(&owner->heap, 1, sizeof *index);
    if (!index)
        return pool_fail_memory(pool);
    index->tree = tree;
    index->number = tree_number(tree);
    int status = owner_install(owner, session, index);
    if (!status && index->broken)
        status = pool_fail(pool, BANYAN_ECORRUPT, "the index '%s': %s", tree_name(tree), index->trouble);
    if (status) {
        heap_free(&owner->heap, index);
        return status;
    }
    spinlock_lock(&owner->lock);
    index->next = owner->indexes;
    owner->indexes = index;
    spinlock_unlock(&owner->lock);
    owner_count_ranges(owner);
    return 0;
}

int owner_attach(struct owner *owner, struct tree_session *session, struct tree *tree)
{
    int status = owner_join(owner, session);
    /* The copy is what the board was told of: an index that is attached begins with the same version. It may
     * be an old one; then the keeper adopts the next for this index too. */
    if (!status)
        status = owner_refresh(owner, session, 0);
    if (status)
        return status;
    owner_turn_take(&owner->adopting);
    status = add(owner, session, tree);
    owner_turn_give(&owner->adopting);
    return status;
}

/* Serving tasks may be at work on it, and may wait for the turn `adopting`: so this does not hold it. */
static void wait_for_users(struct owner *owner, struct owner_index *index)
{
    for (bool used = true; used;) {
        spinlock_lock(&owner->lock);
        index->leaving = true;
        used = index->users > 0;
        spinlock_unlock(&owner->lock);
        if (used)
            task_sleep(DETACH_LOOK_NS);
    }
}

static int take_out(struct owner *owner, struct tree_session *session, struct owner_index *index)
{
    uint32_t count;
    int status = 0;
    owner_turn_take(&owner->adopting);
    const struct format_range *ranges = owner_map_of(&owner->copy, index->number, &count);
    for (uint32_t i = 0; i < count && !status; i++)
        if (fabric_process_equal(ranges[i].owner, owner->self) && ranges[i].logged)
            status = owner_heirs_strand(owner, session, index->number);
    spinlock_lock(&owner->lock);
    struct owner_index **link = &owner->indexes;
    while (*link != index)
        link = &(*link)->next;
    *link = index->next;
    spinlock_unlock(&owner->lock);
    owner_count_ranges(owner);
    owner_turn_give(&owner->adopting);
    heap_free(&owner->heap, index);
    return status;
}

int owner_detach(struct owner *owner, struct tree_session *session, struct tree *tree)
{
    spinlock_lock(&owner->lock);
    struct owner_index *index = owner_index_of(owner, tree);
    spinlock_unlock(&owner->lock);
    if (!index)
        return pool_fail(tree_session_pool(session), BANYAN_ENOTFOUND, "the index '%s' is not attached",
                         tree_name(tree));
    int status = owner_give(owner, session, tree);
    wait_for_users(owner, index);
    int stranded = take_out(owner, session, index);
    return status ? status : stranded;
}

/* ---- messages ---- */

char *owner_describe(const struct owner *owner, struct fabric_process process, char text[OWNER_TEXT_BYTES])
{
    char where[96];
    if (owner_nobody(process)) {
        snprintf(text, OWNER_TEXT_BYTES, "shared");
    } else if (fabric_process_equal(process, owner->self)) {
        snprintf(text, OWNER_TEXT_BYTES, "this process");
    } else {
        fabric_peer_describe(owner->fabric, process, where, sizeof where);
        snprintf(text, OWNER_TEXT_BYTES, "compute node %u%s%s%s", (unsigned)process.compute_id,
                 where[0] ? " (" : "", where, where[0] ? ")" : "");
    }
    return text;
}

/* ---- counters ---- */

void owner_longest(uint64_t *counter, uint64_t value)
{
    uint64_t before = atomic_load_relaxed(counter);
    /* relaxed: a figure for people */
    while (before < value &&
           !__atomic_compare_exchange_n(counter, &before, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

void owner_count_ranges(struct owner *owner)
{
    uint64_t owned = 0, ranges = 0;
    for (const struct owner_index *index = owner->indexes; index; index = index->next) {
        uint32_t count;
        const struct format_range *range = owner_map_of(&owner->copy, index->number, &count);
        ranges += count;
        for (uint32_t i = 0; i < count; i++)
            owned +=
                fabric_process_equal(range[i].owner, owner->self) && range[i].state != FORMAT_RANGE_MOVING;
    }
    /* relaxed: figures for people */
    atomic_store_relaxed(&owner->owned, owned);
    atomic_store_relaxed(&owner->ranges, ranges);
}

void owner_stats(const struct owner *owner, struct owner_stats *stats)
{
    uint64_t counts[sizeof owner->counts / sizeof owner->counts[0]] = {0};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        counts[i] = atomic_load_relaxed(&owner->counts[i]);
    static_assert(sizeof counts == sizeof *stats, "struct owner_stats is made of counters alone");
    memcpy(stats, counts, sizeof *stats);
    stats->version = atomic_load_relaxed(&owner->adopted);
    stats->busy = owner_heirs_pending(owner) || atomic_load_relaxed(&owner->may_lock);
    stats->lapses = fabric_lease_lapses(owner->fabric);
    stats->owned = atomic_load_relaxed(&owner->owned);
    stats->ranges = atomic_load_relaxed(&owner->ranges);
}
