/*
 * multi.c - Many keys at once: the round trips of up to 32 items overlap. Puts take several locks but never
 * wait for one, so they cannot deadlock; what is not free at once is done by itself afterwards.
 */
#include "tree/state.h"

#include <stdlib.h>

/* Items under way together; what needs more than the plain case is done one by one afterwards. */
#define BATCH 32u

struct batch_item {
    struct tree_item *item;
    struct tree_path path;
    struct tree_bucket bucket;
    uint8_t *image; /* as large as a leaf; only what was read is there */
    struct tree_hold hold;
    struct fabric_command commands[3];
    struct fabric_list list;
    gaddr block; /* made for a long key that is new; else GADDR_NULL */
    bool posted, deferred, answered;
};

/* So that images do not lie at the same place of the CPU's caches. */
#define STAGGER 320u

struct tree_batch {
    struct tree_session *session;
    struct tree *tree;
    struct batch_item items[BATCH];
    uint64_t marks[BATCH]; /* put: equal for equal keys */
    uint32_t count;
};

static struct tree_key item_key(const struct tree_item *item)
{
    return (struct tree_key){item->key, (uint32_t)item->key_length};
}

static int batch_images(struct tree_batch *batch)
{
    struct tree_session *session = batch->session;
    size_t bytes = batch->tree->layout.geometry.leaf_bytes + STAGGER;
    int status = tree_reserve_wide(session, BATCH * bytes);
    if (status)
        return status;
    for (uint32_t i = 0; i < BATCH; i++)
        batch->items[i].image = session->wide + i * bytes;
    return 0;
}

/* Posts every item's commands together: one round trip. */
static int batch_execute(struct tree_batch *batch)
{
    struct fabric_list *lists[BATCH];
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        entry->posted = !entry->deferred && entry->list.count;
        if (!entry->posted)
            continue;
        entry->list.commands = entry->commands;
        entry->list.node = gaddr_node(entry->commands[0].address);
        entry->list.incarnation = batch->session->incarnation;
        lists[count++] = &entry->list;
    }
    return count ? fabric_execute(batch->session->worker->endpoint, lists, count, &batch->session->stats.cost)
                 : 0;
}

static void settle(struct fabric_command *commands, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (commands[i].operation == FABRIC_READ)
            tree_read_settle(&commands[i]);
}

/* ---- get ---- */

static int get_finish(struct tree_batch *batch, struct tree_item *item, const struct tree_slot *slot)
{
    size_t capacity = item->length;
    item->length = slot->value.length;
    if (capacity < slot->value.length)
        return tree_fail(batch->session, BANYAN_EVALUESIZE, "index %s: a value has %u bytes, its buffer %zu",
                         batch->tree->name, slot->value.length, capacity);
    if (slot->value.length)
        memcpy(item->value, slot->value.bytes, slot->value.length);
    return 0;
}

/* First the buckets of all, then the headers of those that missed (R2); what neither settles is deferred. */
static void get_batch(struct tree_batch *batch)
{
    struct tree_session *session = batch->session;
    const struct tree_layout *layout = &batch->tree->layout;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        tree_bucket_of(layout, entry->path.link.tag, item_key(entry->item), &entry->bucket);
        entry->commands[0] = tree_read_command(entry->path.link.address + entry->bucket.offset,
                                               entry->image + entry->bucket.offset, entry->bucket.bytes);
        entry->list.count = 1;
    }
    int status = batch_execute(batch);
    for (uint32_t i = 0; i < batch->count && !status; i++) {
        struct batch_item *entry = &batch->items[i];
        struct tree_slot slot;
        settle(entry->commands, 1);
        task_charge(TASK_WORK_LEAF, layout->bucket_slots);
        uint16_t version = tree_bucket_version(entry->image, &entry->bucket);
        entry->list.count = 0;
        if (tree_bucket_find(layout, entry->image, &entry->bucket,
                             tree_slot_seed(entry->path.link.tag, version), item_key(entry->item), &slot)) {
            entry->item->status = get_finish(batch, entry->item, &slot);
            entry->answered = true;
            continue;
        }
        entry->commands[0] = tree_read_command(entry->path.link.address, entry->image, layout->header_bytes);
        entry->list.count = 1;
    }
    if (!status)
        status = batch_execute(batch);
    for (uint32_t i = 0; i < batch->count && !status; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!entry->posted)
            continue;
        tree_header_settle(layout, &entry->commands[0]);
        struct tree_header header;
        uint16_t version = tree_bucket_version(entry->image, &entry->bucket);
        entry->deferred = !tree_header_valid(layout, entry->image) ||
                          !tree_header_decode(layout, entry->image, &header) ||
                          header.tag != entry->path.link.tag || header.index != batch->tree->index ||
                          header.level || header.state != TREE_NODE_LIVE || header.version != version ||
                          tree_header_side(&header, item_key(entry->item)) ||
                          !tree_slots_valid(layout, entry->image, entry->bucket.first, entry->bucket.count,
                                            tree_slot_seed(header.tag, version), header.lower);
        entry->answered = !entry->deferred;
        if (entry->answered)
            entry->item->status = BANYAN_ENOTFOUND;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        struct tree_item *item = entry->item;
        if (status && !entry->answered) /* one list's error is not every item's: each finds out by itself */
            entry->deferred = true;
        if (!entry->deferred)
            continue;
        session->stats.operations--; /* it is counted once more */
        item->status =
            tree_lookup(session, batch->tree, item->key, item->key_length, item->value, &item->length);
    }
}

/* ---- put ---- */

/* Length and last eight bytes: tells most keys apart. */
static uint64_t key_mark(struct tree_key key)
{
    uint64_t tail = 0;
    uint32_t bytes = key.length < sizeof tail ? key.length : (uint32_t)sizeof tail;
    memcpy(&tail, key.bytes + key.length - bytes, bytes);
    return tail ^ (uint64_t)key.length << 56;
}

static bool same_key_before(const struct tree_batch *batch, uint32_t number)
{
    uint64_t mark = batch->marks[number];
    for (uint32_t i = 0; i < number; i++)
        if (batch->marks[i] == mark &&
            !tree_key_compare(item_key(batch->items[i].item), item_key(batch->items[number].item)))
            return true;
    return false;
}

static void put_replaced(struct tree_item *item, const void *old, size_t length)
{
    if (!item->old)
        return;
    item->existed = old;
    item->old_length = length;
    if (length)
        memcpy(item->old, old, length);
}

static enum tree_verdict put_change(void *context, const void *old, size_t old_length, void *value,
                                    size_t *length)
{
    struct tree_item *item = context;
    put_replaced(item, old, old_length);
    if (item->length)
        memcpy(value, item->value, item->length);
    *length = item->length;
    return TREE_PUT;
}

/* By itself. */
static int put_single(struct tree_session *session, struct tree *tree, struct tree_item *item)
{
    int status = tree_value_check(session, tree, item->value, item->length);
    return status ? status : tree_modify(session, tree, item->key, item->key_length, put_change, item);
}

/* Never waits for a lock while it holds one: what is not free at once is deferred. */
static void put_prepare(struct tree_batch *batch, uint32_t number)
{
    struct batch_item *entry = &batch->items[number];
    const struct tree_layout *layout = &batch->tree->layout;
    gaddr leaf = entry->path.link.address;
    batch->marks[number] = key_mark(item_key(entry->item));
    entry->deferred =
        same_key_before(batch, number) || !tree_lock_try_local(batch->session, leaf, &entry->hold);
    if (entry->deferred)
        return;
    tree_bucket_of(layout, entry->path.link.tag, item_key(entry->item), &entry->bucket);
    entry->commands[0] = tree_lock_command(batch->session, &entry->hold);
    entry->commands[1] = tree_read_command(leaf, entry->image, layout->header_bytes);
    entry->commands[2] = tree_read_command(leaf + entry->bucket.offset, entry->image + entry->bucket.offset,
                                           entry->bucket.bytes);
    entry->list.count = 3;
}

/* A block for a long key that is new, its write as the list's first command. False if there is none on the
 * leaf's memory node: the plain case has one list. */
static bool put_block(struct tree_batch *batch, struct batch_item *entry, struct tree_key key, gaddr *block)
{
    gaddr leaf = entry->path.link.address;
    if (tree_key_block_prepare(batch->session, leaf, key, &entry->commands[0], block))
        return false;
    if (gaddr_node(*block) == gaddr_node(leaf))
        return true;
    tree_block_release(batch->session, *block, key.length);
    return false;
}

/* Under the lock: changes the image. The slot's number, or UINT32_MAX if it is not the plain case; *blocks:
 * commands that go before the slot's write, 0 or 1. */
static uint32_t put_slot(struct tree_batch *batch, struct batch_item *entry, uint16_t *blocks)
{
    const struct tree_layout *layout = &batch->tree->layout;
    struct tree_key key = item_key(entry->item);
    struct tree_key value = {entry->item->value, (uint32_t)entry->item->length};
    struct tree_header header;
    struct tree_slot slot;
    if (!tree_header_valid(layout, entry->image) || !tree_header_decode(layout, entry->image, &header) ||
        header.tag != entry->path.link.tag || header.index != batch->tree->index || header.level ||
        header.state != TREE_NODE_LIVE || tree_header_side(&header, key))
        return UINT32_MAX;
    uint32_t seed = tree_slot_seed(header.tag, header.version);
    bool found = tree_bucket_find(layout, entry->image, &entry->bucket, seed, key, &slot);
    if (!found && !tree_slots_valid(layout, entry->image, entry->bucket.first, entry->bucket.count, seed,
                                    header.lower)) /* one of them may be the key's */
        return UINT32_MAX;
    put_replaced(entry->item, found ? slot.value.bytes : NULL, found ? slot.value.length : 0);
    gaddr block = found ? slot.block : GADDR_NULL;
    uint32_t number = found ? slot.number : tree_bucket_free_slot(layout, entry->image, &entry->bucket, seed);
    if (number != UINT32_MAX && !found && tree_slot_needs_block(layout, header.lower, key)) {
        if (!put_block(batch, entry, key, &block))
            return UINT32_MAX;
        entry->block = block;
        *blocks = 1;
    }
    if (number != UINT32_MAX)
        tree_slot_write(layout, entry->image, number, seed, header.lower, block, key, value);
    return number;
}

/* Under the lock: the slot's write if it is the plain case. The unlock in any case. */
static void put_apply(struct tree_batch *batch, struct batch_item *entry)
{
    const struct tree_layout *layout = &batch->tree->layout;
    uint16_t count = 0;
    tree_header_settle(layout, &entry->commands[1]);
    tree_read_settle(&entry->commands[2]);
    task_charge(TASK_WORK_LEAF, layout->bucket_slots);
    uint32_t number = put_slot(batch, entry, &count);
    if (number != UINT32_MAX)
        entry->commands[count++] =
            tree_write_command(entry->path.link.address + layout->slot_offset[number],
                               entry->image + layout->slot_offset[number], layout->slot_bytes);
    else
        entry->deferred = true;
    entry->commands[count++] = tree_unlock_command(batch->session, &entry->hold);
    entry->list.count = count;
}

static void put_batch(struct tree_batch *batch)
{
    struct tree_session *session = batch->session;
    bool held[BATCH] = {false};
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->items[i].list.count = 0;
        put_prepare(batch, i);
    }
    batch_execute(batch); /* each list's own status counts */
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!entry->posted)
            continue;
        entry->list.count = 0;
        held[i] = !entry->list.status && !(entry->commands[0].cas.old & entry->hold.mask);
        if (held[i]) {
            put_apply(batch, entry);
        } else {
            entry->deferred = true;
            if (entry->list.status)
                tree_lock_give_back(session, &entry->hold, &entry->commands[0], entry->list.status);
            tree_lock_abandon_local(session, &entry->hold);
        }
    }
    /* Deferred items post their unlock too. */
    bool deferred[BATCH];
    for (uint32_t i = 0; i < batch->count; i++) {
        deferred[i] = batch->items[i].deferred;
        batch->items[i].deferred = !held[i];
    }
    batch_execute(batch);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!held[i])
            continue;
        tree_lock_abandon(session, &entry->hold, entry->list.status);
        entry->item->status = deferred[i] ? entry->list.status : tree_unknown(session, entry->list.status);
        if (entry->item->status == BANYAN_EFENCED) { /* nothing of it was done */
            if (entry->block != GADDR_NULL)
                tree_block_release(session, entry->block, (uint32_t)entry->item->key_length);
            deferred[i] = true;
            entry->item->status = 0;
        }
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct tree_item *item = batch->items[i].item;
        if (!deferred[i] || (held[i] && item->status))
            continue;
        session->stats.operations--; /* it is counted once more */
        item->status = put_single(session, batch->tree, item);
    }
}

/* ---- both ---- */

/* Takes the next items whose arguments are good and whose leaves can be located. */
static void batch_fill(struct tree_batch *batch, struct tree_item **items, size_t *left, bool put)
{
    batch->count = 0;
    while (*left && batch->count < BATCH) {
        struct tree_item *item = (*items)++;
        --*left;
        item->status = tree_key_check(batch->session, batch->tree, item->key, item->key_length);
        if (!item->status && put)
            item->status = tree_value_check(batch->session, batch->tree, item->value, item->length);
        if (item->status)
            continue;
        struct batch_item *entry = &batch->items[batch->count];
        int status = tree_begin(batch->session, batch->tree);
        if (!status)
            do
                status = tree_locate(batch->session, batch->tree, item_key(item), false, 0, &entry->path);
            while (tree_again(batch->session, &status));
        if (status) {
            item->status = tree_not_done(batch->session, status);
            continue;
        }
        entry->item = item;
        entry->deferred = entry->answered = false;
        entry->block = GADDR_NULL;
        batch->count++;
    }
}

static int batch_run(struct tree_session *session, struct tree *tree, struct tree_item *items, size_t count,
                     bool put)
{
    if (!session->batch) /* kept: a task may end in the middle of a call */
        session->batch = malloc(sizeof *session->batch);
    struct tree_batch *batch = session->batch;
    if (!batch)
        return tree_fail_memory(session);
    memset(batch, 0, sizeof *batch);
    batch->session = session;
    batch->tree = tree;
    struct tree_item *next = items;
    size_t left = count;
    int status = tree_begin(session, tree);
    session->stats.operations--; /* each item counts by itself */
    if (!status)
        status = batch_images(batch);
    for (size_t i = 0; i < count && status; i++)
        items[i].status = status;
    while (left && !status) {
        batch_fill(batch, &next, &left, put);
        if (put)
            put_batch(batch);
        else
            get_batch(batch);
    }
    for (size_t i = 0; i < count && !status; i++)
        if (items[i].status && items[i].status != BANYAN_ENOTFOUND)
            status = items[i].status;
    return status;
}

int tree_multi_get(struct tree_session *session, struct tree *tree, struct tree_item *items, size_t count)
{
    return batch_run(session, tree, items, count, false);
}

int tree_multi_put(struct tree_session *session, struct tree *tree, struct tree_item *items, size_t count)
{
    if (session->compute->switches.combine == TREE_COMBINE_ALL)
        return batch_run(session, tree, items, count, true);
    /* Without command combination there is nothing to overlap that would not be combining. */
    int status = 0;
    for (size_t i = 0; i < count; i++) {
        items[i].status = put_single(session, tree, &items[i]);
        if (!status)
            status = items[i].status;
    }
    return status;
}
