/*
 * unmerged.c - see unmerged.h: nodes, the hash table, latches, and what becomes of pending entries.
 */
#include "tree/unmerged_private.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/epoch.h"
#include "tree/owned_cache_entries.h"

#define BUCKETS_FIRST 16u

struct unmerged *unmerged_create(uint32_t value_bytes)
{
    struct unmerged *table = calloc(1, sizeof *table);
    if (!table)
        return NULL;
    assert(value_bytes <= FORMAT_VALUE_MAX);
    table->value_bytes = value_bytes;
    table->levels = 1;
    random_seed(&table->random, 0x9e3779b97f4a7c15u); /* heights only: nothing depends on the seed */
    return table;
}

void unmerged_destroy(struct unmerged *table)
{
    if (!table)
        return;
    for (uint32_t i = 0; i < UNMERGED_SHARDS; i++) {
        struct unmerged_shard *shard = &table->shards[i];
        for (uint32_t b = 0; b < shard->capacity; b++)
            while (shard->buckets[b]) {
                struct unmerged_node *node = shard->buckets[b];
                shard->buckets[b] = node->chain;
                free(node);
            }
        free(shard->buckets);
    }
    while (table->stranded) {
        struct unmerged_node *node = table->stranded;
        table->stranded = node->chain;
        free(node);
    }
    free(table);
}

/* ---- nodes ---- */

static struct unmerged_node **bucket_of(struct unmerged_shard *shard, uint64_t hash)
{
    return &shard->buckets[(hash / UNMERGED_SHARDS) & (shard->capacity - 1)];
}

static struct unmerged_node *node_find(struct unmerged_shard *shard, uint64_t hash, struct format_key key)
{
    struct unmerged_node *node = shard->capacity ? *bucket_of(shard, hash) : NULL;
    while (node && (node->hash != hash || node->key_length != key.length ||
                    (key.length && memcmp(node->key, key.bytes, key.length))))
        node = node->chain;
    return node;
}

static size_t node_bytes(const struct unmerged *table, uint32_t key_length, uint8_t levels)
{
    return sizeof(struct unmerged_node) + levels * sizeof(struct unmerged_node *) + key_length +
           2 * (size_t)table->value_bytes;
}

static struct unmerged_node *node_create(struct unmerged *table, uint64_t hash, struct format_key key)
{
    uint8_t levels = unmerged_draw_levels(table);
    size_t bytes = node_bytes(table, key.length, levels);
    struct unmerged_node *node = calloc(1, bytes);
    if (!node)
        return NULL;
    uint8_t *room = (uint8_t *)&node->next[levels];
    node->hash = hash;
    node->levels = levels;
    node->committed.bytes = room;
    node->pending.bytes = room + table->value_bytes;
    node->key = room + 2 * (size_t)table->value_bytes;
    node->key_length = (uint16_t)key.length;
    if (key.length)
        memcpy(node->key, key.bytes, key.length);
    node->last = &node->waiting;
    return node;
}

/* False: no memory, and no bucket at all. */
static bool shard_grow(struct unmerged_shard *shard)
{
    uint32_t capacity = shard->capacity ? 2 * shard->capacity : BUCKETS_FIRST;
    struct unmerged_node **buckets = calloc(capacity, sizeof *buckets);
    if (!buckets)
        return shard->capacity;
    for (uint32_t b = 0; b < shard->capacity; b++)
        while (shard->buckets[b]) {
            struct unmerged_node *node = shard->buckets[b];
            struct unmerged_node **to = &buckets[(node->hash / UNMERGED_SHARDS) & (capacity - 1)];
            shard->buckets[b] = node->chain;
            node->chain = *to;
            *to = node;
        }
    free(shard->buckets);
    shard->buckets = buckets;
    shard->capacity = capacity;
    return true;
}

/* The key's node, made where it has none; NULL: no memory. */
static struct unmerged_node *node_get(struct unmerged *table, struct unmerged_shard *shard, uint64_t hash,
                                      struct format_key key)
{
    struct unmerged_node *node = node_find(shard, hash, key);
    if (node || (shard->count >= shard->capacity && !shard_grow(shard)))
        return node;
    node = node_create(table, hash, key);
    if (!node)
        return NULL;
    struct unmerged_node **bucket = bucket_of(shard, hash);
    node->chain = *bucket;
    *bucket = node;
    shard->count++;
    atomic_add_relaxed(&table->entries, 1); /* statistics */
    atomic_add_relaxed(&table->bytes, node_bytes(table, key.length, node->levels));
    return node;
}

static void node_free(void *object, void *context)
{
    (void)context;
    free(object);
}

void unmerged_reap(struct unmerged *table, struct epoch_slot *slot, struct unmerged_node *node)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    if (node->committed.present || node->pending.present)
        return;
    if (node->listed)
        unmerged_unlist(table, node);
    if (node->latched || node->merging)
        return;
    assert(!node->waiting);
    struct unmerged_node **at = bucket_of(shard, node->hash);
    while (*at != node)
        at = &(*at)->chain;
    *at = node->chain;
    shard->count--;
    atomic_add_relaxed(&table->entries, (uint64_t)-1); /* statistics */
    atomic_add_relaxed(&table->bytes, -(uint64_t)node_bytes(table, node->key_length, node->levels));
    if (epoch_retire(slot, node_free, node, NULL))
        return;
    spinlock_lock(&table->order); /* no memory to remember it: it is freed with the table */
    node->chain = table->stranded;
    table->stranded = node;
    spinlock_unlock(&table->order);
}

uint64_t unmerged_count(const struct unmerged *table)
{
    return atomic_load_relaxed(&table->entries); /* statistics */
}

uint64_t unmerged_bytes(const struct unmerged *table)
{
    return atomic_load_relaxed(&table->bytes); /* statistics */
}

/* ---- reading ---- */

enum unmerged_found unmerged_find(struct unmerged *table, struct format_key key, uint8_t *value,
                                  uint32_t *length, uint32_t random, uint32_t *met)
{
    /* Relaxed: an entry that was committed before this operation began has been counted by then, since
     * whoever says so has taken a lock of the table behind it. */
    if (!atomic_load_relaxed(&table->entries))
        return UNMERGED_NONE;
    uint64_t hash = format_key_hash(key);
    struct unmerged_shard *shard = &table->shards[hash % UNMERGED_SHARDS];
    enum unmerged_found found = UNMERGED_NONE;
    spinlock_lock(&shard->lock);
    struct unmerged_node *node = node_find(shard, hash, key);
    if (node && node->committed.present) {
        if (met) {
            *met = node->met;
            node->met = owned_hits_more(node->met, random);
        }
        found = node->committed.deleted ? UNMERGED_DELETED : UNMERGED_VALUE;
        *length = node->committed.length;
        if (*length)
            memcpy(value, node->committed.bytes, *length);
    }
    spinlock_unlock(&shard->lock);
    return found;
}

bool unmerged_unsettled(struct unmerged *table, struct format_key key)
{
    if (!atomic_load_relaxed(&table->entries)) /* relaxed: as in unmerged_find */
        return false;
    uint64_t hash = format_key_hash(key);
    struct unmerged_shard *shard = &table->shards[hash % UNMERGED_SHARDS];
    spinlock_lock(&shard->lock);
    const struct unmerged_node *node = node_find(shard, hash, key);
    const bool unsettled = node && node->pending.present;
    spinlock_unlock(&shard->lock);
    return unsettled;
}

/* ---- the latch ---- */

struct unmerged_node *unmerged_latch(struct unmerged *table, struct format_key key, void *work, bool *taken)
{
    uint64_t hash = format_key_hash(key);
    struct unmerged_shard *shard = &table->shards[hash % UNMERGED_SHARDS];
    struct unmerged_wait wait = {.work = work};
    spinlock_lock(&shard->lock);
    struct unmerged_node *node = node_get(table, shard, hash, key);
    bool waits = node && node->latched;
    if (waits) {
        wakeup_init(&wait.wakeup);
        *node->last = &wait;
        node->last = &wait.next;
        node->waits++;
    } else if (node) {
        node->latched = true;
    }
    spinlock_unlock(&shard->lock);
    if (waits)
        wakeup_wait(&wait.wakeup); /* with the latch handed over, or the work done */
    if (work)
        *taken = wait.taken;
    return wait.taken ? NULL : node;
}

void *unmerged_next_work(struct unmerged *table, struct unmerged_node *node)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    assert(node->latched);
    void *work = node->waiting ? node->waiting->work : NULL;
    spinlock_unlock(&shard->lock);
    return work;
}

uint32_t unmerged_waits(struct unmerged *table, struct unmerged_node *node)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    assert(node->latched);
    uint32_t waits = node->waits;
    spinlock_unlock(&shard->lock);
    return waits;
}

/* The task that waits longest, no more in the list; NULL: none waits. Under the shard's lock. */
static struct unmerged_wait *wait_first(struct unmerged_node *node)
{
    struct unmerged_wait *wait = node->waiting;
    assert(!wait == !node->waits);
    if (!wait)
        return NULL;
    node->waiting = wait->next;
    node->waits--;
    if (!node->waiting)
        node->last = &node->waiting;
    return wait;
}

struct unmerged_wait *unmerged_take_work(struct unmerged *table, struct unmerged_node *node)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    assert(node->latched && node->waiting && node->waiting->work);
    struct unmerged_wait *wait = wait_first(node);
    wait->taken = true;
    spinlock_unlock(&shard->lock);
    return wait;
}

void unmerged_work_done(struct unmerged_wait *wait)
{
    wakeup_give(&wait->wakeup);
}

struct unmerged_node *unmerged_latch_try(struct unmerged *table, struct format_key key, bool *busy)
{
    uint64_t hash = format_key_hash(key);
    struct unmerged_shard *shard = &table->shards[hash % UNMERGED_SHARDS];
    spinlock_lock(&shard->lock);
    struct unmerged_node *node = node_get(table, shard, hash, key);
    *busy = node && node->latched;
    if (*busy)
        node = NULL;
    else if (node)
        node->latched = true;
    spinlock_unlock(&shard->lock);
    return node;
}

void unmerged_unlatch(struct unmerged *table, struct epoch_slot *slot, struct unmerged_node *node)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    assert(node->latched);
    struct unmerged_wait *wait = wait_first(node);
    if (!wait) {
        node->latched = false;
        unmerged_reap(table, slot, node);
    }
    spinlock_unlock(&shard->lock);
    if (wait) {
        task_charge(TASK_WORK_HANDOVER, 1);
        wakeup_give(&wait->wakeup);
    }
}

static void look_at(const struct unmerged_value *value, struct unmerged_look *look)
{
    if (!value->present)
        return;
    look->found = value->deleted ? UNMERGED_DELETED : UNMERGED_VALUE;
    look->value = value->bytes;
    look->length = value->length;
    look->leafed = value->leafed;
}

void unmerged_look(struct unmerged *table, struct unmerged_node *node, struct unmerged_look *look)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    *look = (struct unmerged_look){0};
    spinlock_lock(&shard->lock);
    assert(node->latched);
    look_at(node->pending.present ? &node->pending : &node->committed, look);
    look->met = node->met;
    look->frame = node->pending.present ? node->frame : NULL;
    look->doubtful = node->pending.present && !node->frame;
    look->fragile = look->doubtful && node->pending.fragile;
    spinlock_unlock(&shard->lock);
}

void unmerged_look_committed(struct unmerged *table, struct unmerged_node *node, struct unmerged_look *look)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    *look = (struct unmerged_look){0};
    spinlock_lock(&shard->lock);
    assert(node->latched);
    look_at(&node->committed, look);
    spinlock_unlock(&shard->lock);
}

void unmerged_met(struct unmerged *table, struct unmerged_node *node, uint32_t met)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    assert(node->latched && met <= OWNED_HITS_MAX);
    if (node->met < met)
        node->met = (uint8_t)met;
    spinlock_unlock(&shard->lock);
}

/* ---- writing ---- */

static void value_set(const struct unmerged *table, struct unmerged_value *to, const struct format_key *value,
                      uint64_t sequence)
{
    assert(!value || value->length <= table->value_bytes);
    (void)table;
    to->present = true;
    to->leafed = to->fragile = to->ended = false;
    to->deleted = !value;
    to->length = value ? (uint8_t)value->length : 0;
    to->sequence = sequence;
    if (to->length && to->bytes != value->bytes)
        memmove(to->bytes, value->bytes, to->length);
}

void unmerged_write(struct unmerged *table, struct unmerged_node *node, const struct format_key *value,
                    const struct unmerged_frame *frame, uint32_t index, struct unmerged_write *write)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    assert(node->latched && frame && (!node->pending.present || !node->frame || node->frame == frame));
    /* What is doubtful is logged again, or what was there before it. */
    assert(!node->doubt || node->pending.fragile || !value == node->pending.deleted);
    *write = (struct unmerged_write){.node = node,
                                     .table = table,
                                     .frame = frame,
                                     .index = index,
                                     .first = !node->pending.present || !node->frame};
    node->frame = frame;
    node->index = index;
    value_set(table, &node->pending, value, 0);
    if (!node->listed)
        unmerged_list(table, node);
    spinlock_unlock(&shard->lock);
}

void unmerged_mark(struct unmerged *table, struct unmerged_node *node, bool fragile, bool leafed)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    assert(node->latched && node->pending.present && node->frame);
    node->pending.fragile = fragile;
    node->pending.leafed = leafed;
    spinlock_unlock(&shard->lock);
}

/* A change takes the committed value's place. True: nothing else names what that does, and the change's task
 * frees it. False: its leaf may have it, and the next merging frees it; or a merging is bringing it there,
 * which frees it if it does not get there. */
static bool committed_end(struct unmerged_node *node)
{
    struct unmerged_value *committed = &node->committed;
    if (!committed->present || committed->leafed)
        return false;
    committed->ended = true;
    if (!node->merging || node->merged != committed->sequence)
        return true;
    node->overtaken = true;
    return false;
}

/* The pending value is the key's from now on. */
static void pending_commit(struct unmerged_node *node, uint64_t sequence)
{
    uint8_t *bytes = node->committed.bytes;
    node->committed = node->pending;
    node->committed.sequence = sequence;
    node->committed.fragile = false; /* the whole list was done */
    node->pending = (struct unmerged_value){.bytes = bytes};
    node->frame = NULL;
    node->doubt = false;
}

void unmerged_settle(struct epoch_slot *slot, struct unmerged_write *write, enum unmerged_fate fate)
{
    struct unmerged *table = write->table;
    struct unmerged_node *node = write->node;
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    const bool last = node->pending.present && node->frame == write->frame && node->index == write->index;
    /* Relaxed: it was drawn by this task. */
    const uint64_t sequence = atomic_load_relaxed(&write->frame->first) + write->index;
    switch (fate) {
    case UNMERGED_COMMITTED:
        /* What is doubtful, or what was there before it, is logged again: that may be the committed value. */
        write->replaced = !write->first || (!node->doubt && committed_end(node));
        if (last)
            pending_commit(node, sequence);
        break;
    case UNMERGED_REFUSED:
        if (last) {
            node->pending.present = node->doubt; /* an earlier frame of it may have been written */
            node->frame = NULL;
        }
        break;
    case UNMERGED_UNKNOWN:
        if (last) {
            if (!node->doubt || sequence < node->doubtful)
                node->doubtful = sequence; /* what it replaced in its frame counts no more */
            node->doubt = true;
            node->frame = NULL;
        }
        break;
    }
    struct wakeup *awaiting = last ? node->awaiting : NULL;
    if (awaiting)
        node->awaiting = NULL;
    else
        unmerged_reap(table, slot, node);
    spinlock_unlock(&shard->lock);
    if (awaiting) /* it has the latch, so the node stays */
        wakeup_give(awaiting);
}

void unmerged_await(struct unmerged *table, struct unmerged_node *node)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    struct wakeup wakeup;
    wakeup_init(&wakeup);
    spinlock_lock(&shard->lock);
    assert(node->latched && !node->awaiting);
    bool waits = node->pending.present && node->frame;
    if (waits)
        node->awaiting = &wakeup; // cppcheck-suppress autoVariables ; it is taken off before we go on
    spinlock_unlock(&shard->lock);
    if (waits)
        wakeup_wait(&wakeup);
}

bool unmerged_adopt(struct unmerged *table, struct format_key key, const struct format_key *value,
                    uint64_t sequence)
{
    uint64_t hash = format_key_hash(key);
    struct unmerged_shard *shard = &table->shards[hash % UNMERGED_SHARDS];
    spinlock_lock(&shard->lock);
    struct unmerged_node *node = node_get(table, shard, hash, key);
    if (node) {
        value_set(table, &node->committed, value, sequence);
        node->committed.leafed = true;
        if (!node->listed)
            unmerged_list(table, node);
    }
    spinlock_unlock(&shard->lock);
    return node;
}

/* ---- merging ---- */

void unmerged_merge_of(struct unmerged_node *node, struct unmerged_merge *merge)
{
    node->merging = true;
    node->merged = node->committed.sequence;
    merge->node = node;
    merge->key = unmerged_key(node);
    merge->sequence = node->committed.sequence;
    merge->deleted = node->committed.deleted;
    merge->met = node->met;
    node->met = owned_hits_half(node->met);
    merge->length = node->committed.length;
    if (merge->length)
        memcpy(merge->value, node->committed.bytes, merge->length);
}

bool unmerged_take_one(struct unmerged *table, struct unmerged_node *node, struct unmerged_merge *merge)
{
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    bool taken = unmerged_mergeable(node);
    if (taken)
        unmerged_merge_of(node, merge);
    spinlock_unlock(&shard->lock);
    return taken;
}

bool unmerged_merged(struct unmerged *table, struct epoch_slot *slot, const struct unmerged_merge *merge,
                     enum unmerged_end end)
{
    struct unmerged_node *node = merge->node;
    struct unmerged_shard *shard = unmerged_shard(table, node);
    spinlock_lock(&shard->lock);
    assert(node->merging);
    const bool alone = node->overtaken && end == UNMERGED_NOT_DONE;
    node->merging = node->dropped = node->overtaken = false;
    if (node->committed.present && node->committed.sequence == merge->sequence) {
        node->committed.present = end != UNMERGED_DONE;
        node->committed.leafed |= end == UNMERGED_PERHAPS;
    }
    unmerged_reap(table, slot, node);
    spinlock_unlock(&shard->lock);
    return alone;
}

bool unmerged_void(struct unmerged *table, struct format_key key)
{
    uint64_t hash = format_key_hash(key);
    struct unmerged_shard *shard = &table->shards[hash % UNMERGED_SHARDS];
    spinlock_lock(&shard->lock);
    const struct unmerged_node *node = node_find(shard, hash, key);
    bool dropped = node && node->dropped;
    spinlock_unlock(&shard->lock);
    return dropped;
}
