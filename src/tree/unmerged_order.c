/*
 * unmerged_order.c - see unmerged.h: the entries in key order (a skip list), runs of them for scans, and what
 * merging takes.
 */
#include "tree/unmerged_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/epoch.h"

/* ---- the list; under the order's lock ---- */

uint8_t unmerged_draw_levels(struct unmerged *table)
{
    spinlock_lock(&table->order);
    uint64_t bits = random_next(&table->random);
    spinlock_unlock(&table->order);
    uint8_t levels = 1;
    for (; levels < UNMERGED_LEVELS && !(bits & 3); bits >>= 2)
        levels++;
    return levels;
}

/* The pointers that lead to the first node at or behind the key, on each level. */
static struct unmerged_node *seek(struct unmerged *table, const struct format_key *key,
                                  struct unmerged_node **links[UNMERGED_LEVELS])
{
    struct unmerged_node *before = NULL; /* the last one known to be below the key */
    for (uint32_t level = table->levels; level-- > 0;) {
        struct unmerged_node **at = before ? &before->next[level] : &table->heads[level];
        while (*at && key && format_key_compare(unmerged_key(*at), *key) < 0) {
            before = *at;
            at = &before->next[level];
        }
        if (links)
            links[level] = at;
    }
    return before;
}

static struct unmerged_node *seek_first(struct unmerged *table, const struct format_key *key)
{
    struct unmerged_node *before = seek(table, key, NULL);
    return before ? before->next[0] : table->heads[0];
}

void unmerged_list(struct unmerged *table, struct unmerged_node *node)
{
    struct unmerged_node **links[UNMERGED_LEVELS];
    struct format_key key = unmerged_key(node);
    assert(!node->listed);
    spinlock_lock(&table->order);
    if (table->levels < node->levels)
        table->levels = node->levels;
    seek(table, &key, links);
    for (uint32_t level = 0; level < node->levels; level++) {
        node->next[level] = *links[level];
        *links[level] = node;
    }
    node->listed = true;
    spinlock_unlock(&table->order);
}

void unmerged_unlist(struct unmerged *table, struct unmerged_node *node)
{
    struct unmerged_node **links[UNMERGED_LEVELS];
    struct format_key key = unmerged_key(node);
    assert(node->listed);
    spinlock_lock(&table->order);
    seek(table, &key, links);
    for (uint32_t level = 0; level < node->levels; level++) {
        assert(*links[level] == node);
        *links[level] = node->next[level];
    }
    node->listed = false;
    spinlock_unlock(&table->order);
}

/* ---- pieces of it ---- */

/* Nodes from `from` on, below `to`; *next: the first one behind them, if any. In an epoch. */
static uint32_t nodes_forward(struct unmerged *table, const struct format_key *from,
                              const struct format_key *to, struct unmerged_node **nodes, uint32_t capacity,
                              struct unmerged_node **next)
{
    uint32_t count = 0;
    spinlock_lock(&table->order);
    struct unmerged_node *node = seek_first(table, from);
    for (; node && count < capacity; node = node->next[0]) {
        if (to && format_key_compare(unmerged_key(node), *to) >= 0)
            break;
        nodes[count++] = node;
    }
    *next = node && !(to && format_key_compare(unmerged_key(node), *to) >= 0) ? node : NULL;
    spinlock_unlock(&table->order);
    return count;
}

/* Nodes below `to`, downwards to `from`. Each costs a search, since the list leads one way. */
static uint32_t nodes_backward(struct unmerged *table, const struct format_key *from,
                               const struct format_key *to, struct unmerged_node **nodes, uint32_t capacity,
                               struct unmerged_node **next)
{
    uint32_t count = 0;
    *next = NULL;
    spinlock_lock(&table->order);
    struct format_key below;
    const struct format_key *bound = to;
    for (;;) {
        struct unmerged_node *node;
        if (bound) {
            node = seek(table, bound, NULL);
        } else { /* the last of all */
            node = NULL;
            for (uint32_t level = table->levels; level-- > 0;)
                for (struct unmerged_node *at = node ? node->next[level] : table->heads[level]; at;
                     at = at->next[level])
                    node = at;
        }
        if (!node || (from && format_key_compare(unmerged_key(node), *from) < 0))
            break;
        if (count == capacity) {
            *next = node;
            break;
        }
        nodes[count++] = node;
        below = unmerged_key(node);
        bound = &below;
    }
    spinlock_unlock(&table->order);
    return count;
}

/* ---- runs ---- */

void unmerged_run_free(struct unmerged_run *run)
{
    free(run->items);
    free(run->bytes);
    *run = (struct unmerged_run){0};
}

/* Room for the run's longest: pointers into it must not move. */
static bool run_reserve(const struct unmerged *table, struct unmerged_run *run)
{
    run->count = 0;
    run->used = 0;
    if (!run->items)
        run->items = calloc(UNMERGED_RUN_MAX, sizeof *run->items);
    uint64_t room = (uint64_t)UNMERGED_RUN_MAX * (FORMAT_KEY_MAX + table->value_bytes);
    if (run->room < room) {
        free(run->bytes);
        run->bytes = malloc(room);
        run->room = run->bytes ? room : 0;
    }
    return run->items && run->bytes;
}

static const uint8_t *run_copy(struct unmerged_run *run, const uint8_t *bytes, uint32_t length)
{
    uint8_t *to = run->bytes + run->used;
    if (length)
        memcpy(to, bytes, length);
    run->used += length;
    return to;
}

static void run_add(struct unmerged *table, struct unmerged_run *run, struct unmerged_node *node)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    const struct unmerged_value *value = &node->committed;
    if (node->listed && value->present) {
        struct unmerged_item *item = &run->items[run->count++];
        item->key = (struct format_key){run_copy(run, node->key, node->key_length), node->key_length};
        item->value = (struct format_key){value->deleted ? NULL : run_copy(run, value->bytes, value->length),
                                          value->length};
    }
    spinlock_unlock(&shard->lock);
}

bool unmerged_run(struct unmerged *table, struct epoch_slot *slot, const struct format_key *from,
                  const struct format_key *to, bool reverse, struct unmerged_run *run)
{
    struct unmerged_node *nodes[UNMERGED_RUN_MAX], *next;
    run->count = 0;
    run->complete = true;
    if (!atomic_load_relaxed(&table->entries)) /* as in unmerged_find */
        return true;
    if (!run_reserve(table, run))
        return false;
    epoch_enter(slot);
    uint32_t count = reverse ? nodes_backward(table, from, to, nodes, UNMERGED_RUN_MAX, &next)
                             : nodes_forward(table, from, to, nodes, UNMERGED_RUN_MAX, &next);
    for (uint32_t i = 0; i < count; i++)
        run_add(table, run, nodes[i]);
    run->complete = !next;
    if (next) /* reverse: the last that was looked at, below which nothing was */
        format_key_store(&run->until, unmerged_key(reverse ? nodes[count - 1] : next));
    epoch_leave(slot);
    return true;
}

/* ---- merging ---- */

#define TAKE_STEP 64u

/* Under the shard's lock of a node that is listed. */
static bool take(struct unmerged_node *node, struct unmerged_merge *merge, uint64_t *least)
{
    uint64_t earliest = UINT64_MAX, drawn = UNMERGED_UNDRAWN;
    /* Acquire: where the counter that the caller has looked at was moved for the frame already, the frame
     * says at least that it is being drawn. One that is not drawn yet gets greater numbers. */
    if (node->pending.present && node->frame)
        drawn = atomic_load_acquire(&node->frame->first);
    if (drawn != UNMERGED_UNDRAWN)
        earliest = drawn;
    if (node->doubt && node->doubtful < earliest)
        earliest = node->doubtful;
    if (node->committed.present && node->merging && node->committed.sequence < earliest)
        earliest = node->committed.sequence;
    if (earliest < *least)
        *least = earliest;
    if (!unmerged_mergeable(node))
        return false;
    unmerged_merge_of(node, merge);
    return true;
}

uint32_t unmerged_take(struct unmerged *table, struct epoch_slot *slot, const struct format_key *from,
                       const struct format_key *to, struct unmerged_merge *merges, uint32_t capacity,
                       struct format_key_copy *after, uint64_t *least, bool *end)
{
    struct unmerged_node *nodes[TAKE_STEP], *next;
    struct format_key begin = from ? *from : (struct format_key){0};
    uint32_t taken = 0;
    *end = false;
    while (taken < capacity && !*end) {
        uint32_t want = capacity - taken < TAKE_STEP ? capacity - taken : TAKE_STEP;
        epoch_enter(slot);
        uint32_t count = nodes_forward(table, from ? &begin : NULL, to, nodes, want, &next);
        for (uint32_t i = 0; i < count; i++) {
            struct unmerged_shard *shard = unmerged_shard(table, nodes[i]);
            spinlock_lock(&shard->lock);
            taken += nodes[i]->listed && take(nodes[i], &merges[taken], least);
            spinlock_unlock(&shard->lock);
        }
        *end = !next;
        if (next)
            format_key_store(after, unmerged_key(next));
        epoch_leave(slot);
        begin = format_key_of(after);
        from = &begin;
    }
    return taken;
}

bool unmerged_doubtful(struct unmerged *table, struct epoch_slot *slot, struct format_key_copy *key)
{
    struct unmerged_node *nodes[TAKE_STEP], *next;
    bool found = false;
    for (bool more = true; more && !found;) {
        struct format_key from = format_key_of(key);
        epoch_enter(slot);
        uint32_t count = nodes_forward(table, &from, NULL, nodes, TAKE_STEP, &next);
        for (uint32_t i = 0; i < count && !found; i++) {
            struct unmerged_shard *shard = unmerged_shard(table, nodes[i]);
            spinlock_lock(&shard->lock);
            found = nodes[i]->listed && nodes[i]->pending.present && !nodes[i]->frame;
            if (found)
                format_key_store(key, unmerged_key(nodes[i]));
            spinlock_unlock(&shard->lock);
        }
        more = next;
        if (more && !found)
            format_key_store(key, unmerged_key(next));
        epoch_leave(slot);
    }
    return found;
}

void unmerged_drop(struct unmerged *table, struct epoch_slot *slot, struct format_key from,
                   const struct format_key *to)
{
    struct unmerged_node *nodes[TAKE_STEP], *next;
    struct format_key_copy at;
    format_key_store(&at, from);
    do {
        struct format_key begin = format_key_of(&at);
        epoch_enter(slot);
        uint32_t count = nodes_forward(table, &begin, to, nodes, TAKE_STEP, &next);
        if (next)
            format_key_store(&at, unmerged_key(next));
        for (uint32_t i = 0; i < count; i++) {
            struct unmerged_shard *shard = unmerged_shard(table, nodes[i]);
            spinlock_lock(&shard->lock);
            if (nodes[i]->listed) {
                assert(!nodes[i]->latched);
                nodes[i]->dropped = nodes[i]->merging;
                nodes[i]->committed.present = nodes[i]->pending.present = false;
                nodes[i]->doubt = false;
                nodes[i]->frame = NULL;
                unmerged_reap(table, slot, nodes[i]);
            }
            spinlock_unlock(&shard->lock);
        }
        epoch_leave(slot);
    } while (next);
}
