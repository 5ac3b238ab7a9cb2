/*
 * transfer.c - the map's lock and the three steps; see transfer.h. docs/internals/ownership.md has the order
 * of the steps and what a death between any two of them leaves.
 */
#include "owner/transfer.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "owner/await.h"
#include "owner/board.h"
#include "owner/message.h"

#define LOCK_LOOK_FIRST (100 * MICROSECOND)
#define LOCK_LOOK_LAST  (2 * MILLISECOND)
#define WRITES_MAX      32u

/* ---- single steps ---- */

struct put {
    struct tree_item item;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
};

static int write_some(struct owner_transfer *transfer, struct format_range *ranges, uint32_t count)
{
    struct pool_session *pool = tree_session_pool(transfer->session);
    struct put *puts = heap_allocate_zeros(&transfer->owner->heap, count, sizeof *puts);
    struct tree_item *items = heap_allocate_zeros(&transfer->owner->heap, count, sizeof *items);
    int status = puts && items ? 0 : pool_fail_memory(pool);
    for (uint32_t i = 0; i < count && !status; i++) {
        ranges[i].version = transfer->version + 1;
        items[i] = (struct tree_item){.key = puts[i].key, .value = puts[i].value};
        items[i].key_length = format_range_encode(&ranges[i], puts[i].key, puts[i].value);
        items[i].length = FORMAT_RANGE_VALUE_BYTES;
    }
    if (!status) {
        pool->pinned = transfer->incarnation;
        status = tree_multi_put(transfer->session, transfer->owner->map, items, count);
        pool->pinned = 0;
    }
    for (uint32_t i = 0; i < count && !status; i++)
        status = items[i].status;
    for (uint32_t i = 0; i < count && !status; i++)
        if (owner_map_put(&transfer->map, &ranges[i]))
            status = pool_fail_memory(pool);
    heap_free(&transfer->owner->heap, puts);
    heap_free(&transfer->owner->heap, items);
    return status;
}

int owner_transfer_write(struct owner_transfer *transfer, struct format_range *ranges, uint32_t count)
{
    int status = 0;
    for (uint32_t at = 0; at < count && !status; at += WRITES_MAX)
        status = write_some(transfer, ranges + at, count - at < WRITES_MAX ? count - at : WRITES_MAX);
    return status;
}

int owner_transfer_remove(struct owner_transfer *transfer, uint32_t at)
{
    struct pool_session *pool = tree_session_pool(transfer->session);
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    size_t length = format_range_encode(&transfer->map.ranges[at], key, value);
    pool->pinned = transfer->incarnation;
    int status = tree_delete(transfer->session, transfer->owner->map, key, length);
    pool->pinned = 0;
    if (status && status != BANYAN_ENOTFOUND)
        return status;
    owner_map_remove(&transfer->map, at);
    return 0;
}

int owner_transfer_publish(struct owner_transfer *transfer)
{
    struct pool_session *pool = tree_session_pool(transfer->session);
    struct memory_board_reply reply;
    struct memory_board_request request = {
        .kind = MEMORY_BOARD_PUBLISH, .grant = transfer->grant, .version = transfer->version + 1};
    int status = owner_board_call(transfer->session, &request, &reply);
    if (status == BANYAN_ECONFLICT)
        return pool_fail(pool, BANYAN_ENET, "this process has lost the lock of the map of ranges");
    if (status)
        return status;
    transfer->version++;
    /* Who does not hear it looks at the board by itself. */
    (void)fabric_notify(pool->endpoint, transfer->version, pool->cost);
    return 0;
}

/* ---- what another has left half done ---- */

/* Takes an entry away. The one before it is written first, for the version to come: an entry that is gone
 * does not say that there is something to publish (`unpublished`), and if this one ended before it is
 * published, all that have a copy of the map would keep the bound until the next change, which may never
 * come. */
static int remove_noted(struct owner_transfer *transfer, uint32_t at)
{
    const struct owner_map *map = &transfer->map;
    int status = 0;
    if (at && map->ranges[at - 1].number == map->ranges[at].number) {
        struct format_range left = map->ranges[at - 1];
        status = owner_transfer_write(transfer, &left, 1);
    }
    return status ? status : owner_transfer_remove(transfer, at);
}

/* Bounds whose borders may be missing: they are bounds no more. Nothing moves before that. */
static int undo_splits(struct owner_transfer *transfer, bool *changed)
{
    for (uint32_t at = transfer->map.count; at-- > 0;)
        if (transfer->map.ranges[at].state == FORMAT_RANGE_SPLIT) {
            int status = remove_noted(transfer, at);
            if (status)
                return status;
            *changed = true;
        }
    return 0;
}

/* Entries that were written, and not published: nobody looks for them. */
static bool unpublished(const struct owner_transfer *transfer)
{
    for (uint32_t i = 0; i < transfer->map.count; i++)
        if (transfer->map.ranges[i].version > transfer->version)
            return true;
    return false;
}

static int recover(struct owner_transfer *transfer)
{
    bool changed = unpublished(transfer);
    int status = undo_splits(transfer, &changed);
    if (!status)
        status = owner_transfer_finish(transfer, &changed);
    if (!status && changed)
        status = owner_transfer_publish(transfer);
    return status;
}

/* ---- the lock ---- */

static int ask(struct owner_transfer *transfer, struct memory_board_reply *reply)
{
    struct memory_board_request request = {.kind = MEMORY_BOARD_LOCK};
    transfer->incarnation = fabric_incarnation(transfer->owner->fabric);
    int status = owner_board_call(transfer->session, &request, reply);
    if (!status) {
        transfer->grant = reply->grant;
        transfer->version = reply->version;
    }
    return status;
}

static int take_lock(struct owner_transfer *transfer, bool wait, struct memory_board_reply *reply)
{
    char text[OWNER_TEXT_BYTES];
    uint64_t pause = LOCK_LOOK_FIRST;
    for (;;) {
        int status = ask(transfer, reply);
        /* A call that failed may have been served. Relaxed: the keeper looks at it without the turn. */
        atomic_store_relaxed(&transfer->owner->may_lock, status || transfer->grant);
        if (status || transfer->grant)
            return status;
        if (!wait)
            return BANYAN_EBUSY;
        if (task_now() >= transfer->deadline)
            return pool_fail(tree_session_pool(transfer->session), BANYAN_EBUSY,
                             "the map of ranges is being changed by %s for too long",
                             owner_describe(transfer->owner, owner_process_of(&reply->holder), text));
        task_sleep(pause);
        pause = pause * 2 < LOCK_LOOK_LAST ? pause * 2 : LOCK_LOOK_LAST;
    }
}

static int drop_lock(struct owner_transfer *transfer, int status)
{
    struct memory_board_reply reply;
    struct memory_board_request request = {.kind = MEMORY_BOARD_UNLOCK, .grant = transfer->grant};
    struct pool_session *pool = tree_session_pool(transfer->session);
    const struct error first = pool->error; /* of `status` */
    /* A lost unlock is made good by the fencing; where the connection lives on, by the keeper. */
    if (transfer->grant && !owner_board_call(transfer->session, &request, &reply))
        atomic_store_relaxed(&transfer->owner->may_lock, false);
    pool->error = first;
    owner_map_free(&transfer->map);
    owner_turn_give(&transfer->owner->changing);
    return status;
}

static int lock(struct owner_transfer *transfer, struct owner *owner, struct tree_session *session, bool wait,
                struct memory_board_reply *reply)
{
    if (wait)
        owner_turn_take(&owner->changing);
    else if (!owner_turn_try(&owner->changing))
        return BANYAN_EBUSY;
    uint64_t now = task_now();
    *transfer = (struct owner_transfer){
        .owner = owner, .session = session, .began = now, .deadline = now + owner->options.timeout_ns};
    int status = take_lock(transfer, wait, reply);
    return status ? drop_lock(transfer, status) : 0;
}

int owner_transfer_lock(struct owner_transfer *transfer, struct owner *owner, struct tree_session *session)
{
    struct memory_board_reply reply;
    return lock(transfer, owner, session, false, &reply);
}

int owner_transfer_unlock(struct owner_transfer *transfer, int status)
{
    return drop_lock(transfer, status);
}

int owner_transfer_begin(struct owner_transfer *transfer, struct owner *owner, struct tree_session *session,
                         bool wait)
{
    struct memory_board_reply reply;
    int status = owner_join(owner, session);
    if (status)
        return status;
    status = lock(transfer, owner, session, wait, &reply);
    if (status)
        return status;
    if (reply.orphan.instance)
        status = owner_await_orphan(transfer, owner_process_of(&reply.orphan));
    if (!status)
        status = owner_map_fetch(owner, session, &transfer->map);
    if (!status)
        status = recover(transfer);
    return status ? drop_lock(transfer, status) : 0;
}

int owner_transfer_end(struct owner_transfer *transfer, int status)
{
    struct owner *owner = transfer->owner;
    struct tree_session *session = transfer->session;
    uint64_t version = transfer->version, took = task_now() - transfer->began;
    status = drop_lock(transfer, status);
    if (status)
        return status;
    OWNER_COUNT(owner, transfers, 1);
    OWNER_COUNT(owner, transfer_ns, took);
    OWNER_LONGEST(owner, transfer_longest_ns, took);
    /* The map says so already; a process that cannot read it now learns of it by its keeper. */
    (void)owner_refresh(owner, session, version);
    return 0;
}

/* ---- splitting and merging ---- */

/* The entries of the bounds that are none yet; an index without any gets its first. */
static int split_entries(struct owner_transfer *transfer, const struct owner_index *index,
                         const struct owner_bound *bounds, uint32_t count, struct format_range *entries,
                         uint32_t *made)
{
    struct pool_session *pool = tree_session_pool(transfer->session);
    uint32_t there;
    *made = 0;
    if (!owner_map_of(&transfer->map, index->number, &there)) {
        struct format_range first = {.number = index->number, .state = FORMAT_RANGE_SETTLED};
        int status = owner_transfer_write(transfer, &first, 1);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = owner_map_find(&transfer->map, index->number, bounds[i].bytes, bounds[i].length);
        if (at == UINT32_MAX)
            return pool_fail(pool, BANYAN_ECORRUPT, "the index '%s' has no first range",
                             tree_name(index->tree));
        struct format_range entry = transfer->map.ranges[at];
        if (entry.state == FORMAT_RANGE_CLOSED)
            return pool_fail(pool, BANYAN_EBUSY, "the index '%s' is being dropped", tree_name(index->tree));
        if (entry.lower_length == bounds[i].length && !memcmp(entry.lower, bounds[i].bytes, bounds[i].length))
            continue;
        memset(entry.lower, 0, sizeof entry.lower);
        entry.lower_length = bounds[i].length;
        memcpy(entry.lower, bounds[i].bytes, bounds[i].length);
        entry.state = FORMAT_RANGE_SPLIT;
        entries[(*made)++] = entry;
    }
    return 0;
}

static int make_borders(struct owner_transfer *transfer, struct owner_index *index,
                        const struct format_range *entries, uint32_t count)
{
    int status = 0;
    for (uint32_t i = 0; i < count && !status; i++) {
        const struct fabric_process at = entries[i].owner;
        if (owner_nobody(at) || fabric_process_equal(at, transfer->owner->self))
            status =
                tree_border_make(transfer->session, index->tree, entries[i].lower, entries[i].lower_length);
        else
            status = owner_message_border(transfer->owner, transfer->session, index->tree, at,
                                          entries[i].lower, entries[i].lower_length);
    }
    return status;
}

/* Those of the entries that are still there. */
static void take_back(struct owner_transfer *transfer)
{
    struct pool_session *pool = tree_session_pool(transfer->session);
    const struct error first = pool->error;
    bool changed = false;
    if (!undo_splits(transfer, &changed) && changed)
        (void)owner_transfer_publish(transfer); /* else the next holder does it all */
    pool->error = first;
}

static int split(struct owner_transfer *transfer, struct owner_index *index, struct format_range *entries,
                 uint32_t count)
{
    int status = owner_transfer_write(transfer, entries, count);
    if (!status)
        status = owner_transfer_publish(transfer);
    /* All who may change these leaves keep the new bounds from now on: what begins there dies no more. */
    if (!status)
        status = owner_transfer_await(transfer, entries, count, NULL);
    if (!status) {
        status = make_borders(transfer, index, entries, count);
        if (status)
            take_back(transfer);
    }
    for (uint32_t i = 0; i < count; i++)
        entries[i].state = FORMAT_RANGE_SETTLED;
    if (!status)
        status = owner_transfer_write(transfer, entries, count);
    return status ? status : owner_transfer_publish(transfer);
}

int owner_transfer_split(struct owner_transfer *transfer, struct owner_index *index,
                         const struct owner_bound *bounds, uint32_t count)
{
    uint32_t made = 0;
    struct format_range *entries = heap_allocate(&transfer->owner->heap, (count + 1) * sizeof *entries);
    if (!entries)
        return pool_fail_memory(tree_session_pool(transfer->session));
    int status = split_entries(transfer, index, bounds, count, entries, &made);
    if (!status && made)
        status = split(transfer, index, entries, made);
    heap_free(&transfer->owner->heap, entries);
    return status;
}

int owner_transfer_merge(struct owner_transfer *transfer, uint32_t at)
{
    const struct format_range left = transfer->map.ranges[at - 1];
    const struct format_range *right = &transfer->map.ranges[at];
    const uint64_t epoch = left.epoch > right->epoch ? left.epoch : right->epoch;
    int status = 0;
    assert(fabric_process_equal(left.owner, right->owner));
    assert(!left.heir_count && !right->heir_count);
    assert(left.logged == right->logged);
    assert(!left.logged || left.epoch == right->epoch);
    /* An owner that has adopted the later epoch knows that it had both parts since, and its operations go on
     * without a pause (tree/rights.c). */
    if (left.epoch != right->epoch)
        status = owner_transfer_await_owner(transfer, left.owner, epoch);
    /* The later epoch: what is cached of the other part under an earlier one may be dropped, never kept by
     * mistake. */
    if (!status) {
        transfer->map.ranges[at - 1].epoch = epoch;
        status = remove_noted(transfer, at);
    }
    return status ? status : owner_transfer_publish(transfer);
}
