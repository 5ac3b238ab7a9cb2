/*
 * multi.c - Many keys at once: the round trips of up to 32 items overlap. Puts take several locks but never
 * wait for one, so they cannot deadlock. Puts to one leaf share its lock: one list that reads all their
 * buckets, one that writes all their slots, and those of other tasks that wait for the same leaf. Where
 * another task of this compute node has the lock the group is left to it (delegate.h); what nobody has done
 * in the end is done by itself.
 *
 * A batch relies on all rows of the table of rights at once (announce.h), for some round trips. Items of
 * shared ranges and of owned ones go together: a group's lists are the same but for the global lock. What is
 * another's goes to its owner, as many puts in one call as there are for that owner; reads of it go with the
 * batch.
 *
 * Puts of ascending keys go by put.c first. In place, the first other put that finds its leaf full splits it
 * by itself, and the later puts of the same leaf go with the next batch: by then their ways lead to either
 * half. None of them goes before the first, since ascending keys would then not be appended any more, and the
 * split would leave half a leaf behind (split.c).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "format/verdict.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/delegate.h"
#include "tree/in_place.h"
#include "tree/index.h"
#include "tree/keyblocks.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/logged.h"
#include "tree/merging.h"
#include "tree/owned_cache_use.h"
#include "tree/put.h"
#include "tree/session.h"
#include "tree/turn.h"
#include "tree/walk.h"

/* Items under way together; what needs more than the plain case is done one by one afterwards. */
#define BATCH 32u
_Static_assert(BATCH <= TREE_LOCATE_MANY, "one call locates all of them");
/* Merging lets others go first behind so many items that it has located: it holds no lock yet (L5). */
#define LOCATED_MAX 4u
/* Puts to one leaf that go together: each may write a key block and a slot, and the lock has to be freed. */
#define GROUP_MAX ((FABRIC_COMMANDS_MAX - 1u) / 2u)
/* How often the batch is tried with groups that were left to a lock's holder, which let go of it. */
#define ROUNDS_MAX 3u

struct batch_item {
    struct tree_item *item;
    struct tree_path path;
    struct format_point place;       /* of the key in its leaf */
    uint8_t *image;                  /* as large as a leaf; only what was read is there */
    struct fabric_command *commands; /* its part of the batch's */
    struct fabric_list list;
    bool posted, deferred, answered;
    bool owned;                  /* the range is this process's */
    bool drains;                 /* ... but on its way from it (announce.h) */
    bool logged;                 /* ... and its changes go into the log */
    bool others;                 /* it is another's, and the owner is to be asked */
    bool missing;                /* gets: its way is not cached; a memory node is asked */
    bool leased;                 /* gets: it is owned by some process, so the answer needs the read lease */
    struct fabric_process owner; /* then */
    size_t capacity;             /* gets: of the value's buffer */
    /* puts */
    gaddr block;            /* made for a long key that is new; else GADDR_NULL */
    uint32_t leader;        /* the first item of the same leaf has image, commands, list and hold for all */
    uint32_t next;          /* of the same leaf; BATCH: none */
    uint32_t last, members; /* leaders only */
    struct tree_hold hold;
    bool held;
    struct tree_taken taken; /* leaders: of other tasks, done with the group */
    bool todo;               /* not done yet, and to be tried with the batch */
    bool left;               /* leaders: the group is in the lock's queue */
    struct tree_waiter waiter;
    struct tree_operation operation;
    struct tree_in_place in_place; /* of an owned leaf that was found so */
    bool placed;
    bool behind; /* deferred until an earlier item has split its leaf */
};

/* So that images do not lie at the same place of the CPU's caches. */
#define STAGGER 320u

struct tree_batch {
    struct tree_session *session;
    struct tree *tree;
    struct batch_item items[BATCH];
    struct fabric_command commands[3 * BATCH];
    struct fabric_command more[2 * FABRIC_COMMANDS_MAX]; /* for groups with others' operations */
    uint32_t more_used;
    uint64_t marks[BATCH];                 /* puts: equal for equal keys */
    struct tree_exchange exchanges[BATCH]; /* puts of others' ranges */
    bool leased;                           /* gets: some item is */
    struct tree_logged logged[BATCH];      /* puts of logged ranges */
    struct tree_walk_key walks[BATCH];     /* gets whose ways are not cached */
    uint32_t count;
};

static struct format_key item_key(const struct tree_item *item)
{
    return (struct format_key){item->key, (uint32_t)item->key_length};
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

/* The lists of all items that have commands; returns how many. */
static uint32_t batch_lists(struct tree_batch *batch, struct fabric_list *lists[BATCH])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        entry->posted = entry->list.count;
        if (!entry->posted)
            continue;
        entry->list.commands = entry->commands;
        entry->list.node = gaddr_node(entry->commands[0].address);
        lists[count++] = &entry->list;
    }
    return count;
}

/* Reads what every item wants of its leaf, together: one round trip. Leaves of ranges that are not owned are
 * nowhere but in the pool, so one access does for all. */
static int batch_read(struct tree_batch *batch)
{
    struct fabric_list *lists[BATCH];
    uint32_t count = batch_lists(batch, lists);
    const struct tree_access *access = &tree_access_one_sided;
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->items[i].owned)
            access = batch->session->compute->owned_access;
    return count ? access->read_many(batch->session, batch->tree, lists, count) : 0;
}

/* Posts every item's commands together, locks and unlocks among them: one round trip. Each list has its
 * status. */
static void batch_post(struct tree_batch *batch)
{
    struct fabric_list *lists[BATCH];
    uint32_t count = batch_lists(batch, lists);
    if (count)
        pool_lists_post(&batch->session->pool, lists, count);
}

/* ---- in place ---- */

/* Finds the leaves of all items of this process's ranges, so that their cache misses overlap. */
static bool batch_find(struct tree_batch *batch, bool change)
{
    struct tree_session *session = batch->session;
    if (!session->compute->owned_access->find)
        return false;
    session->access = session->compute->owned_access;
    session->right = TREE_OWNED;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        entry->placed = entry->owned && !entry->deferred && !entry->answered && !entry->logged &&
                        tree_in_place_find(session, batch->tree, entry->path.link, item_key(entry->item),
                                           change, &entry->in_place);
    }
    return true;
}

/* ---- get ---- */

static int get_finish(struct tree_batch *batch, struct tree_item *item, const struct format_slot *slot)
{
    size_t capacity = item->length;
    item->length = slot->value.length;
    if (capacity < slot->value.length)
        return pool_fail(&batch->session->pool, BANYAN_EVALUESIZE,
                         "index %s: a value has %u bytes, its buffer %zu", batch->tree->name,
                         slot->value.length, capacity);
    bytes_copy(item->value, slot->value.bytes, slot->value.length);
    return 0;
}

/* Answers what needs no list: nothing else is done with those items, and the lease says nothing of them,
 * since they are this process's own. It counts as one round trip, as they are read together. */
static void get_in_place(struct tree_batch *batch)
{
    struct tree_session *session = batch->session;
    bool any = false;
    if (!batch_find(batch, false))
        return;
    const uint64_t trips = session->stats.cost.round_trips;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        struct format_slot slot;
        if (!entry->placed || !tree_in_place_hit(session, batch->tree, &entry->in_place, &slot))
            continue;
        entry->item->status = get_finish(batch, entry->item, &slot);
        entry->answered = any = true;
        entry->leased = false;
    }
    session->stats.cost.round_trips = trips + any;
}

/* L4: what is not merged yet is looked for before any leaf is read. */
static void get_unmerged(struct tree_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        uint8_t value[FORMAT_VALUE_MAX];
        uint32_t length;
        if (!entry->logged || entry->deferred)
            continue;
        enum unmerged_found found =
            tree_logged_find(batch->session, batch->tree, item_key(entry->item), value, &length);
        const struct format_slot slot = {.value = {value, length}};
        if (found == UNMERGED_NONE)
            continue;
        entry->answered = true;
        entry->item->status =
            found == UNMERGED_DELETED ? BANYAN_ENOTFOUND : get_finish(batch, entry->item, &slot);
    }
}

/* Keys whose ways are not cached: their memory nodes find them, all together. What has no answer is read by
 * itself. */
static void get_walked(struct tree_batch *batch)
{
    struct tree_walk_key *keys[BATCH];
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!entry->missing || entry->answered || entry->deferred)
            continue;
        if (entry->owned && batch->tree->owned)
            entry->deferred = true; /* its leaf is to be cached */
        else
            keys[count++] = &batch->walks[i];
    }
    if (count)
        tree_walk_find_many(batch->session, batch->tree, keys, count);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        const struct tree_finding *finding = &batch->walks[i].finding;
        const struct format_slot slot = {.value = {finding->value, finding->length}};
        if (!entry->missing || entry->answered || entry->deferred)
            continue;
        entry->answered = batch->walks[i].answered;
        entry->deferred = !entry->answered;
        if (entry->answered)
            entry->item->status = finding->found ? get_finish(batch, entry->item, &slot) : BANYAN_ENOTFOUND;
    }
}

/* First the buckets of all, then the headers of those that missed (R2); what neither settles is deferred. */
static void get_batch(struct tree_batch *batch)
{
    struct tree_session *session = batch->session;
    const struct format_layout *layout = &batch->tree->layout;
    struct format_header header;
    struct format_slot slot;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        const struct format_bucket *bucket = &entry->place.bucket;
        if (entry->deferred || entry->answered)
            continue;
        format_point_set(&entry->place, layout, entry->path.link, batch->tree->index, item_key(entry->item));
        entry->commands = &batch->commands[i];
        entry->commands[0] = pool_read_command(entry->path.link.address + bucket->offset,
                                               entry->image + bucket->offset, bucket->bytes);
        entry->list.count = 1;
    }
    int status = batch_read(batch);
    for (uint32_t i = 0; i < batch->count && !status; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!entry->posted)
            continue;
        pool_read_settle(&entry->commands[0]);
        tree_charge_bucket(layout);
        entry->list.count = 0;
        if (format_point_verdict(&entry->place, entry->image, FORMAT_SEEN_BUCKET, &header, &slot) ==
            FORMAT_HIT) {
            entry->item->status = get_finish(batch, entry->item, &slot);
            entry->answered = true;
            continue;
        }
        entry->commands[0] = pool_read_command(entry->path.link.address, entry->image, layout->header_bytes);
        entry->list.count = 1;
    }
    if (!status)
        status = batch_read(batch);
    for (uint32_t i = 0; i < batch->count && !status; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!entry->posted)
            continue;
        format_header_settle(layout, &entry->commands[0]);
        entry->answered = format_point_verdict(&entry->place, entry->image, FORMAT_SEEN_HEADER, &header,
                                               &slot) == FORMAT_MISS;
        entry->deferred = !entry->answered;
        if (entry->answered)
            entry->item->status = BANYAN_ENOTFOUND;
    }
    tree_rights_leave(session);
    /* O2: some answers came from the cache, or from others' leaves, and the read lease has lapsed. Each that
     * may be such tries alone. */
    session->cached |= batch->leased;
    bool lapsed = tree_lapsed(session);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        if ((status && !entry->answered) || /* one list's error is not every item's: each tries alone */
            (lapsed && entry->leased))
            entry->deferred = true;
        if (entry->deferred && entry->answered)
            entry->item->length = entry->capacity;
    }
}

/* ---- put ---- */

/* Length and last eight bytes: tells most keys apart. */
static uint64_t key_mark(struct format_key key)
{
    uint64_t tail = 0;
    uint32_t bytes = key.length < sizeof tail ? key.length : (uint32_t)sizeof tail;
    memcpy(&tail, key.bytes + key.length - bytes, bytes);
    return tail ^ (uint64_t)key.length << 56;
}

/* Whether an earlier item that is not in this group has the same key: that one must come first. */
static bool same_key_before(const struct tree_batch *batch, uint32_t number, uint32_t leader)
{
    uint64_t mark = batch->marks[number];
    for (uint32_t i = 0; i < number; i++) {
        const struct batch_item *entry = &batch->items[i];
        bool before = entry->deferred || (entry->todo && entry->leader != leader);
        if (before && batch->marks[i] == mark &&
            !format_key_compare(item_key(entry->item), item_key(batch->items[number].item)))
            return true;
    }
    return false;
}

/* The earlier item whose lock and image this one can share; its own number: none. */
static uint32_t put_leader(const struct tree_batch *batch, uint32_t number)
{
    struct format_link link = batch->items[number].path.link;
    for (uint32_t i = 0; i < number; i++) {
        const struct batch_item *entry = &batch->items[i];
        if (entry->todo && entry->path.link.address == link.address && entry->leader == i &&
            entry->owned == batch->items[number].owned && !entry->deferred &&
            entry->path.link.tag == link.tag && entry->members < GROUP_MAX)
            return i;
    }
    return number;
}

static void put_operation(struct tree_batch *batch, struct batch_item *entry)
{
    entry->operation = (struct tree_operation){
        .tree = batch->tree, .place = entry->place, .function = tree_put_change, .context = entry->item};
}

/* Never waits for a lock while it holds one. The batch forms its groups before it asks for their locks. */
static void put_prepare(struct tree_batch *batch, uint32_t number)
{
    struct batch_item *entry = &batch->items[number];
    batch->marks[number] = key_mark(item_key(entry->item));
    entry->last = number;
    entry->next = BATCH;
    entry->members = 1;
    entry->taken.waiters = NULL;
    entry->leader = put_leader(batch, number);
    entry->deferred = same_key_before(batch, number, entry->leader);
    if (entry->deferred)
        return;
    format_point_set(&entry->place, &batch->tree->layout, entry->path.link, batch->tree->index,
                     item_key(entry->item));
    put_operation(batch, entry);
    if (entry->leader == number)
        return;
    struct batch_item *leader = &batch->items[entry->leader], *last = &batch->items[leader->last];
    last->next = number;
    last->operation.next = &entry->operation;
    leader->last = number;
    leader->members++;
}

/* The group's local lock if it is free; else the group is left in its queue, or deferred. */
static void put_lock(struct tree_batch *batch, struct batch_item *leader)
{
    struct tree_session *session = batch->session;
    gaddr leaf = leader->path.link.address;
    bool locked;
    session->right = leader->owned ? TREE_OWNED : TREE_SHARED;
    if (tree_delegate_on(session)) {
        leader->waiter.tree = batch->tree;
        leader->waiter.operations = &leader->operation;
        leader->waiter.count = leader->members;
        int status = tree_lock_try_or_leave(session, leaf, leader->owned, &leader->waiter, &leader->hold);
        leader->left = status == TREE_ANSWERED;
        locked = !status;
    } else {
        locked = tree_lock_try_local(session, leaf, leader->owned, &leader->hold);
    }
    for (uint32_t i = leader->leader; i != BATCH && !locked && !leader->left; i = batch->items[i].next)
        batch->items[i].deferred = true;
}

/* Whether an earlier item of the group has the same bucket. */
static bool put_reads(const struct tree_batch *batch, uint32_t leader, uint32_t number)
{
    for (uint32_t i = leader; i != number; i = batch->items[i].next)
        if (batch->items[i].place.bucket.number == batch->items[number].place.bucket.number)
            return true;
    return false;
}

/* The group's first list: the lock (of an owned leaf there is none), the header, the buckets. */
static void put_list(struct tree_batch *batch, uint32_t leader)
{
    struct batch_item *first = &batch->items[leader];
    gaddr leaf = first->path.link.address;
    uint16_t count = 0;
    if (!first->owned)
        first->commands[count++] = tree_lock_command(batch->session, &first->hold);
    first->commands[count++] = pool_read_command(leaf, first->image, batch->tree->layout.header_bytes);
    for (uint32_t i = leader; i != BATCH; i = batch->items[i].next) {
        const struct format_bucket *bucket = &batch->items[i].place.bucket;
        if (!put_reads(batch, leader, i))
            first->commands[count++] =
                pool_read_command(leaf + bucket->offset, first->image + bucket->offset, bucket->bytes);
    }
    first->list.count = count;
}

/* A block for a long key that is new, its write as the list's next command. False if there is none on the
 * leaf's memory node: the plain case has one list. */
static bool put_block(struct tree_batch *batch, struct batch_item *entry, struct fabric_command *write)
{
    struct format_key key = item_key(entry->item);
    gaddr leaf = entry->path.link.address, block;
    if (tree_key_block_prepare(batch->session, &batch->tree->layout, leaf, key, write, &block))
        return false;
    if (gaddr_node(block) == gaddr_node(leaf)) {
        entry->block = block;
        return true;
    }
    pool_block_release(&batch->session->pool, block, key.length);
    return false;
}

/* Under the lock: changes the image, and adds what writes it back. False if it is not the plain case. */
static bool put_slot(struct tree_batch *batch, struct batch_item *leader, struct batch_item *entry,
                     const struct format_header *header)
{
    const struct format_layout *layout = &batch->tree->layout;
    struct fabric_command *commands = leader->commands;
    struct format_key key = item_key(entry->item);
    struct format_key value = {entry->item->value, (uint32_t)entry->item->length};
    struct format_slot slot;
    uint8_t *image = leader->image;
    uint32_t seed = format_slot_seed(header->tag, header->version);
    enum format_verdict verdict = format_point_verdict_locked(&entry->place, image, header, &slot);
    bool found = verdict == FORMAT_HIT;
    if (!found && verdict != FORMAT_MISS)
        return false;
    tree_put_replaced(entry->item, found ? slot.value.bytes : NULL, found ? slot.value.length : 0);
    gaddr block = found ? slot.block : GADDR_NULL;
    uint32_t number =
        found ? slot.number : format_bucket_free_slot(layout, image, &entry->place.bucket, seed);
    if (number == UINT32_MAX)
        return false;
    if (!found && format_slot_needs_block(layout, header->lower, key)) {
        if (!put_block(batch, entry, &commands[leader->list.count]))
            return false;
        leader->list.count++;
        block = entry->block;
    }
    format_slot_write(layout, image, number, seed, header->lower, block, key, value);
    gaddr address = leader->path.link.address + layout->slot_offset[number];
    for (uint32_t i = 0; i < leader->list.count; i++)
        if (commands[i].address == address)
            return true; /* that write takes what the image holds in the end */
    commands[leader->list.count++] =
        pool_write_command(address, image + layout->slot_offset[number], layout->slot_bytes);
    return true;
}

/* Whether an item of the group with the same key was deferred: this one must come after it. */
static bool same_key_deferred(const struct tree_batch *batch, const struct batch_item *leader,
                              uint32_t number)
{
    for (uint32_t i = leader->leader; i != number; i = batch->items[i].next)
        if (batch->items[i].deferred && batch->marks[i] == batch->marks[number])
            return true;
    return false;
}

/* Others' operations in the buckets that the group has read go into its list too. */
static void put_take(struct tree_batch *batch, struct batch_item *leader, const struct format_header *header)
{
    struct tree_session *session = batch->session;
    uint32_t own = leader->list.count, left = sizeof batch->more / sizeof *batch->more - batch->more_used,
             most = left < FABRIC_COMMANDS_MAX ? left : FABRIC_COMMANDS_MAX, count = own;
    uint64_t known[FORMAT_BUCKETS_MAX / 64] = {0};
    session->right = leader->owned ? TREE_OWNED : TREE_SHARED;
    if (!tree_delegate_waits(&leader->hold) || !tree_delegate_on(session) || most < own + 2)
        return;
    for (uint32_t i = leader->leader; i != BATCH; i = batch->items[i].next) {
        uint32_t number = batch->items[i].place.bucket.number;
        known[number / 64] |= UINT64_C(1) << number % 64;
    }
    tree_delegate_take(session, batch->tree, leader->path.link, &leader->hold, most - own - 1, known,
                       &leader->taken);
    if (!leader->taken.waiters)
        return;
    struct tree_delegate_leaf leaf = {.session = session,
                                      .tree = batch->tree,
                                      .address = leader->path.link.address,
                                      .header = header,
                                      .image = leader->image,
                                      .slot = UINT32_MAX};
    struct fabric_command *commands = &batch->more[batch->more_used];
    memcpy(commands, leader->commands, own * sizeof *commands);
    tree_delegate_apply(&leaf, &leader->hold, &leader->taken, commands, &count);
    batch->more_used += count + 1;
    leader->commands = commands;
    leader->list.count = (uint16_t)count;
}

/* Under the lock: the group's second list. The slots' writes where it is the plain case, the unlock always.
 */
static void put_apply(struct tree_batch *batch, struct batch_item *leader)
{
    const struct format_layout *layout = &batch->tree->layout;
    struct format_header header;
    const uint32_t reads = leader->owned ? 0 : 1;
    format_header_settle(layout, &leader->commands[reads]);
    for (uint32_t i = reads + 1; i < leader->list.count; i++)
        pool_read_settle(&leader->commands[i]);
    leader->list.count = 0;
    bool good = format_node_verdict(layout, leader->image, leader->path.link, batch->tree->index, 0,
                                    &header) == FORMAT_LIVE;
    for (uint32_t i = leader->leader; i != BATCH; i = batch->items[i].next) {
        struct batch_item *entry = &batch->items[i];
        tree_charge_bucket(layout);
        entry->deferred =
            !good || same_key_deferred(batch, leader, i) || !put_slot(batch, leader, entry, &header);
    }
    if (good)
        put_take(batch, leader, &header);
    if (!leader->owned)
        leader->commands[leader->list.count++] = tree_unlock_command(batch->session, &leader->hold);
}

/* The group's writes begin: of an owned leaf the cache must hear. */
static void put_begins(struct tree_batch *batch, const struct batch_item *leader)
{
    struct tree_session *session = batch->session;
    const struct tree *tree = batch->tree;
    if (!leader->owned || !leader->list.count)
        return;
    tree_owned_begin(session, tree, leader->path.link.address, false);
    for (uint32_t i = leader->leader; i != BATCH; i = batch->items[i].next)
        tree_owned_begin_key(session, tree, item_key(batch->items[i].item));
    for (const struct tree_waiter *waiter = leader->taken.waiters; waiter; waiter = waiter->next)
        for (const struct tree_operation *operation = waiter->operations; operation && operation->done;
             operation = operation->next)
            tree_owned_begin_key(session, tree, operation->place.key);
}

/* They have ended: what they wrote stays cached where it was. Of others' operations the entries go, since
 * what they have put is in the image alone. */
static void put_ended(struct tree_batch *batch, const struct batch_item *leader)
{
    struct tree_session *session = batch->session;
    const struct tree *tree = batch->tree;
    const int status = leader->list.status;
    if (!leader->owned || !leader->list.count)
        return;
    tree_owned_end(session, tree, leader->path.link.address, status, leader->commands, leader->list.count);
    for (uint32_t i = leader->leader; i != BATCH; i = batch->items[i].next) {
        const struct batch_item *entry = &batch->items[i];
        const struct format_key value = {entry->item->value, (uint32_t)entry->item->length};
        const bool done = !status && !entry->deferred;
        if (done && session->through && !entry->drains)
            tree_owned_end_merged(session, tree, leader->path.link, item_key(entry->item), value,
                                  entry->item->met);
        else
            tree_owned_end_key(session, tree, item_key(entry->item), done ? &value : NULL);
    }
    for (const struct tree_waiter *waiter = leader->taken.waiters; waiter; waiter = waiter->next)
        for (const struct tree_operation *operation = waiter->operations; operation && operation->done;
             operation = operation->next)
            tree_owned_end_key(session, tree, operation->place.key, NULL);
}

/* The leader's first list was posted: the second one if the lock is held, else all of the group are deferred.
 */
static void put_go_on(struct tree_batch *batch, struct batch_item *leader)
{
    struct tree_session *session = batch->session;
    leader->held =
        !leader->list.status && (leader->owned || !(leader->commands[0].cas.old & leader->hold.mask));
    leader->hold.global = leader->held;
    if (leader->held) {
        put_apply(batch, leader);
        put_begins(batch, leader);
        return;
    }
    leader->list.count = 0;
    if (leader->list.status && !leader->owned)
        tree_lock_give_back(session, &leader->hold, &leader->commands[0], leader->list.status);
    tree_lock_abandon_local(session, &leader->hold);
    for (uint32_t i = leader->leader; i != BATCH; i = batch->items[i].next)
        batch->items[i].deferred = true;
}

/* The second list was posted: what it came to is each one's status, or sends it to be done by itself. */
static void put_conclude(struct tree_batch *batch, struct batch_item *leader)
{
    struct tree_session *session = batch->session;
    int status = leader->list.count ? leader->list.status : 0; /* 0: owned, and there is nothing to write */
    put_ended(batch, leader);
    tree_lock_abandon(session, &leader->hold, status);
    tree_delegate_answer(session, &leader->taken, status);
    /* R6: the memory node was removed while the lock was held there, so the leaf was an old one. */
    if (status == BANYAN_EINVAL && fabric_is_away(session->pool.fabric, leader->list.node))
        status = BANYAN_EFENCED;
    if (status && status != BANYAN_EFENCED)
        status = pool_list_failed(&session->pool, status, leader->commands, leader->list.count);
    for (uint32_t i = leader->leader; i != BATCH; i = batch->items[i].next) {
        struct batch_item *entry = &batch->items[i];
        if (status == BANYAN_EFENCED) { /* nothing of it was done */
            if (entry->block != GADDR_NULL)
                pool_block_release(&session->pool, entry->block, (uint32_t)entry->item->key_length);
            entry->deferred = true;
            continue;
        }
        entry->item->status = entry->deferred ? status : pool_unknown(&session->pool, status);
        entry->deferred = entry->deferred && !status;
    }
}

/* The group was left to a holder of its lock. */
static void put_answered(struct tree_batch *batch, struct batch_item *leader)
{
    struct tree_session *session = batch->session;
    tree_lock_await(session, &leader->waiter);
    for (uint32_t i = leader->leader; i != BATCH; i = batch->items[i].next) {
        struct batch_item *entry = &batch->items[i];
        int status = entry->operation.done ? tree_delegate_result(session, &entry->operation) : 0;
        entry->deferred = status == BANYAN_EFENCED; /* nothing of it was done, and it has to begin again */
        entry->todo = !entry->operation.done;
        if (!entry->deferred && !entry->todo)
            entry->item->status = status;
    }
}

/* What is merged was read: for the choice between this way and the memory node's (merging.h). */
static void put_read(const struct tree_batch *batch, uint64_t began)
{
    const uint64_t took = task_now() - began;
    uint64_t told = 0; /* bits: memory nodes, by their number modulo 64 */
    for (uint32_t i = 0; i < batch->count && batch->session->through; i++) {
        const gaddr leaf = batch->items[i].path.link.address;
        const uint64_t bit = UINT64_C(1) << gaddr_node(leaf) % 64;
        if (told & bit || !batch->items[i].posted || batch->items[i].list.status)
            continue;
        tree_merges_read(batch->session, leaf, took);
        told |= bit;
    }
}

/* Puts what is still to be done: groups, their locks, a list that reads and one that writes for each. What
 * was left to others and not done stays `todo`; what needs more than that is deferred. */
static void put_round(struct tree_batch *batch)
{
    struct fabric_command *commands = batch->commands;
    batch->more_used = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        entry->list.count = 0;
        entry->held = entry->left = false;
        if (entry->todo)
            put_prepare(batch, i);
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!entry->todo || entry->deferred || entry->leader != i)
            continue;
        put_lock(batch, entry);
        if (entry->deferred || entry->left)
            continue;
        entry->commands = commands;
        commands += 2 * entry->members + 1; /* no fewer than the first list needs */
        put_list(batch, i);
    }
    const uint64_t began = batch->session->through ? task_now() : 0;
    batch_post(batch);
    put_read(batch, began);
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->items[i].posted)
            put_go_on(batch, &batch->items[i]);
    batch_post(batch);
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->items[i].held)
            put_conclude(batch, &batch->items[i]);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        entry->todo = entry->todo && !entry->deferred && batch->items[entry->leader].left;
    }
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->items[i].left) /* only now that this task holds no lock */
            put_answered(batch, &batch->items[i]);
}

/* ---- what is asked of others: puts in their ranges, gets in logged ones ---- */

/* Whether an item with this one's key is still to be asked for: that one comes first. */
static bool asked_before(const struct tree_batch *batch, uint32_t number)
{
    for (uint32_t i = 0; i < number; i++)
        if (batch->items[i].others &&
            !format_key_compare(item_key(batch->items[i].item), item_key(batch->items[number].item)))
            return true;
    return false;
}

/* The owner's answer. False: it does not do it now, so nothing of what follows may go before it. */
static bool forward_answered(struct batch_item *entry, const struct tree_forwarded *asked)
{
    struct tree_item *item = entry->item;
    entry->others = false;
    if (asked->status == BANYAN_EFENCED) {
        if (!asked->exchange)
            item->length = entry->capacity;
        return false; /* it stays deferred */
    }
    entry->deferred = false;
    item->status = asked->status;
    if (!asked->status && asked->exchange)
        tree_put_replaced(item,
                          asked->exchange->existed && asked->exchange->replaced ? asked->exchange->old : NULL,
                          asked->exchange->replaced ? asked->exchange->old_length : 0);
    return true;
}

static struct tree_forwarded forward_item(struct tree_batch *batch, struct tree_item *item, uint32_t count,
                                          bool put)
{
    if (!put)
        return (struct tree_forwarded){
            .key = item->key, .key_length = item->key_length, .value = item->value, .length = &item->length};
    batch->exchanges[count] = (struct tree_exchange){.key = item->key,
                                                     .key_length = item->key_length,
                                                     .value = item->value ? item->value : "",
                                                     .length = item->length};
    return (struct tree_forwarded){.exchange = &batch->exchanges[count]};
}

/* Asks the owner of the item `first` for it and for all others of the same owner, but for second puts of a
 * key. */
static void forward_some(struct tree_batch *batch, uint32_t first, bool put)
{
    struct tree_session *session = batch->session;
    const struct tree_compute *compute = session->compute;
    const struct fabric_process owner = batch->items[first].owner;
    struct tree_forwarded asked[BATCH];
    uint32_t numbers[BATCH], count = 0;
    bool served = true;
    for (uint32_t i = first; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!entry->others || !fabric_process_equal(entry->owner, owner) || (put && asked_before(batch, i)))
            continue;
        asked[count] = forward_item(batch, entry->item, count, put);
        numbers[count++] = i;
    }
    if (put)
        tree_turn_withdraw(session, batch->tree);
    if (compute->forward.many(compute->forward_context, session, batch->tree, owner, asked, count))
        for (uint32_t i = 0; i < count; i++)
            asked[i].status = BANYAN_EFENCED;
    for (uint32_t i = 0; i < count; i++)
        served &= forward_answered(&batch->items[numbers[i]], &asked[i]);
    for (uint32_t i = 0; i < batch->count && !served; i++) /* one by one, with what waits for the owner */
        if (fabric_process_equal(batch->items[i].owner, owner))
            batch->items[i].others = false;
}

/* In no operation. What the owners did not do stays deferred. */
static void batch_forward(struct tree_batch *batch, bool put)
{
    if (!batch->session->compute->forward.many)
        return;
    for (uint32_t i = 0; i < batch->count; i++)
        while (batch->items[i].others)
            forward_some(batch, i, put);
}

/* Whether an earlier item that is still to be put has this one's key. */
static bool same_key_todo(const struct tree_batch *batch, uint32_t number)
{
    for (uint32_t i = 0; i < number; i++)
        if ((batch->items[i].todo || batch->items[i].deferred) && batch->marks[i] == batch->marks[number])
            return true;
    return false;
}

/* Leaves that items of the batch have found full. */
struct full_leaves {
    gaddr leaves[BATCH];
    uint32_t count;
};

/* Whether an earlier item has found this one's leaf full. */
static bool put_behind(const struct full_leaves *full, const struct batch_item *entry)
{
    for (uint32_t i = 0; i < full->count; i++)
        if (full->leaves[i] == entry->path.link.address)
            return true;
    return false;
}

/* No list of the batch can put it, since its leaf must be split. */
static void put_defer(struct batch_item *entry, bool behind)
{
    entry->behind = behind;
    entry->deferred = true;
    entry->todo = false;
}

/* Puts, in their order, what needs no list; what waits for a split is deferred, and the rest stays `todo`. It
 * counts as two round trips, as they are made together. */
static void put_in_place(struct tree_batch *batch)
{
    struct tree_session *session = batch->session;
    if (!batch_find(batch, true))
        return;
    const uint64_t trips = session->stats.cost.round_trips;
    bool done = false, left = false;
    struct full_leaves full;
    full.count = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        batch->marks[i] = key_mark(item_key(entry->item));
        if (entry->placed && put_behind(&full, entry)) {
            put_defer(entry, true);
            continue;
        }
        if (!entry->placed || (left && same_key_todo(batch, i)) ||
            tree_in_place_change(session, batch->tree, &entry->in_place, tree_put_change,
                                 entry->item->placed ? tree_put_placed : NULL, entry->item)) {
            left = true;
            if (entry->placed && entry->in_place.full && !session->through) {
                put_defer(entry, false);
                full.leaves[full.count++] = entry->path.link.address;
            }
            continue;
        }
        entry->item->status = 0;
        entry->todo = false;
        done = true;
    }
    session->stats.cost.round_trips = trips + (done ? 2 : 0);
}

/* Whether an earlier item of this one's key is to be done by itself. */
static bool same_key_put_off(const struct tree_batch *batch, uint32_t number)
{
    for (uint32_t i = 0; i < number; i++)
        if (batch->items[i].deferred &&
            !format_key_compare(item_key(batch->items[i].item), item_key(batch->items[number].item)))
            return true;
    return false;
}

/* Puts of logged ranges: all go into the log, and then wait for it together. What has to begin again is done
 * by itself. */
static void put_logged(struct tree_batch *batch)
{
    struct tree_session *session = batch->session;
    bool any = false;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        struct tree_item *item = entry->item;
        if (!entry->logged || entry->deferred)
            continue;
        const struct tree_logged_change change = {item_key(item), tree_put_change, item, true, false};
        entry->todo = false;
        entry->deferred = same_key_put_off(batch, i);
        if (entry->deferred)
            continue;
        tree_rights_switch(session, batch->tree, item_key(item));
        session->ahead = item->ahead;
        session->ahead_count = item->ahead != NULL;
        item->status = tree_logged_append(session, batch->tree, &change, &batch->logged[i]);
        session->ahead_count = 0;
        session->entry_hits = 0; /* of one item; many follow */
        session->leaf_value.known = false;
        entry->deferred = item->status > 0 || item->status == BANYAN_EFENCED;
        entry->answered = !entry->deferred && !item->status;
        any |= entry->answered;
    }
    for (uint32_t i = 0; i < batch->count && any; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!entry->logged || !entry->answered)
            continue;
        entry->item->status = tree_logged_commit(session, &batch->logged[i]);
        entry->item->ahead_done |= entry->item->ahead && !entry->item->status;
        entry->deferred = entry->item->status == BANYAN_EFENCED;
        if (!tree_session_replaced(session))
            tree_put_replaced(entry->item, NULL, 0);
    }
}

/* ---- what must be written before puts ---- */

/* The item's WRITE is to be made by the batch: it does not travel with a log's frame, and the put is not done
 * by itself afterwards. */
static bool ahead_wanted(const struct batch_item *entry)
{
    return entry->item->ahead && !entry->item->ahead_done && !entry->logged &&
           (!entry->deferred || entry->others);
}

/* Those of one memory node, from the item `first` on, as one list; returns how many there are. */
static uint32_t ahead_list(struct tree_batch *batch, uint32_t first, struct fabric_command *commands,
                           uint64_t *taken, struct fabric_list *list)
{
    const uint16_t node = gaddr_node(batch->items[first].item->ahead->address);
    uint64_t bytes = 0;
    *list = (struct fabric_list){.node = node, .commands = commands};
    for (uint32_t i = first; i < batch->count; i++) {
        const struct fabric_command *ahead = batch->items[i].item->ahead;
        if (!ahead_wanted(&batch->items[i]) || *taken >> i & 1u || gaddr_node(ahead->address) != node ||
            (bytes && bytes + ahead->length > FABRIC_LIST_BYTES_MAX))
            continue;
        *taken |= UINT64_C(1) << i;
        bytes += ahead->length;
        commands[list->count++] = *ahead;
    }
    return list->count;
}

/* All of them together: one round trip. An item whose WRITE failed has failed; where that was not done for
 * sure, it begins again by itself. */
static void put_ahead(struct tree_batch *batch)
{
    struct fabric_list lists[BATCH], *pointers[BATCH];
    uint64_t taken = 0, before;
    uint64_t of[BATCH]; /* the items of each list, as bits */
    uint32_t count = 0, used = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        if (!ahead_wanted(&batch->items[i]) || taken >> i & 1u)
            continue;
        before = taken;
        used += ahead_list(batch, i, &batch->more[used], &taken, &lists[count]);
        of[count] = taken & ~before;
        pointers[count] = &lists[count];
        count++;
    }
    if (!count)
        return;
    pool_lists_post(&batch->session->pool, pointers, count);
    for (uint32_t n = 0; n < count; n++) {
        int status = lists[n].status;
        if (status && status != BANYAN_EFENCED)
            status = pool_list_failed(&batch->session->pool, status, lists[n].commands, lists[n].count);
        for (uint32_t i = 0; i < batch->count; i++) {
            struct batch_item *entry = &batch->items[i];
            if (!(of[n] >> i & 1u))
                continue;
            entry->item->ahead_done = !status;
            if (!status)
                continue;
            entry->item->status = status;
            entry->others = entry->todo = false;
            entry->deferred = status == BANYAN_EFENCED;
            entry->answered = !entry->deferred;
        }
    }
}

static bool put_has_more(const struct tree_batch *batch)
{
    bool todo = false;
    for (uint32_t i = 0; i < batch->count; i++)
        todo |= batch->items[i].todo;
    return todo;
}

static void put_batch(struct tree_batch *batch)
{
    struct tree_session *session = batch->session;
    for (uint32_t i = 0; i < batch->count; i++)
        batch->items[i].todo = !batch->items[i].deferred;
    put_ahead(batch);
    put_logged(batch);
    put_in_place(batch);
    for (uint32_t round = 0; put_has_more(batch) && round < ROUNDS_MAX; round++)
        put_round(batch);
    tree_rights_leave(session);
    batch_forward(batch, true);
}

/* ---- both ---- */

/* After the items were located: relies on all rows. Items of ranges that the batch cannot work on are done by
 * themselves. */
static void batch_enter(struct tree_batch *batch, bool put)
{
    struct tree_session *session = batch->session;
    tree_rights_enter_all(session, batch->tree);
    batch->leased = false;
    const bool alike = session->table->count == 1; /* one row: what it says of the first is true of all */
    enum tree_right right = TREE_SHARED;
    for (uint32_t i = 0; i < batch->count; i++) {
        struct batch_item *entry = &batch->items[i];
        if (!alike || !i)
            right = tree_rights_switch(session, batch->tree, item_key(entry->item));
        entry->owned = right == TREE_OWNED;
        entry->drains = session->drains;
        entry->logged = tree_logs(session);
        entry->capacity = entry->item->length;
        const bool waits = put && session->unkept && !session->through; /* by itself: rights.h, unkept */
        entry->others = right == TREE_OTHERS && (put || session->logged) && !session->through && !waits;
        entry->owner = entry->others ? session->owner : (struct fabric_process){0};
        entry->deferred =
            right == TREE_MOVING || entry->others || waits ||
            (session->through &&
             (right != TREE_OWNED || tree_merge_void(session, batch->tree, item_key(entry->item))));
        entry->leased = !entry->deferred && right != TREE_SHARED;
        batch->leased |= entry->leased && right == TREE_OTHERS;
    }
}

/* The ways of the next items, where they are cached and leaves are mapped here: there the CPU is what a batch
 * waits for. The operation begins with it, for all of them. */
struct batch_ways {
    struct format_link leaves[BATCH]; /* address GADDR_NULL: not known */
    uint32_t frames[BATCH];
    uint32_t count;
    uint32_t taken, visited; /* known ways that the batch has taken, and their frames: not charged yet */
};

static void batch_ways_find(struct tree_batch *batch, struct tree_item *const *items, uint32_t count,
                            struct batch_ways *ways)
{
    struct tree_session *session = batch->session;
    struct format_key keys[BATCH];
    ways->count = ways->taken = ways->visited = 0;
    if (!session->compute->owned_access->find || session->compute->walks)
        return;
    for (; ways->count < count; ways->count++) {
        struct tree_item *item = items[ways->count];
        if (item->leaf || tree_key_check(session, batch->tree, item->key, item->key_length))
            break;
        keys[ways->count] = item_key(item);
    }
    if (!ways->count)
        return;
    session->stats.operations--; /* it is theirs, who count by themselves */
    if (tree_begin(session, batch->tree))
        ways->count = 0;
    tree_locate_cached_many(session, batch->tree, keys, ways->count, ways->leaves, ways->frames);
}

/* Charges for the known ways that were taken since: before anything else is charged or waits. */
static void batch_ways_charge(struct tree_session *session, struct batch_ways *ways)
{
    if (!ways->taken)
        return;
    task_charge(TASK_WORK_OPERATION, ways->taken);
    tree_locate_count(session, ways->visited);
    ways->taken = ways->visited = 0;
}

/* What was located before is not located again, and its operation has begun with its batch. */
static int batch_locate(struct tree_batch *batch, struct batch_item *entry, const struct tree_item *item,
                        bool put, struct tree_walk_key *walk)
{
    struct tree_session *session = batch->session;
    if (item->leaf) {
        session->stats.operations++;
        entry->path = (struct tree_path){.link = *item->leaf};
        return 0;
    }
    *walk = (struct tree_walk_key){.key = item_key(item), .finding = {.later = true}};
    int status = tree_begin(session, batch->tree);
    if (!status)
        do {
            session->finding = put || !session->compute->walks ? NULL : &walk->finding;
            status = tree_locate(session, batch->tree, item_key(item), false, 0, &entry->path);
        } while (tree_again(session, batch->tree, &status));
    return status;
}

/* Takes those of the items whose arguments are good and whose leaves can be located. */
static void batch_fill(struct tree_batch *batch, struct tree_item *const *items, uint32_t count, bool put)
{
    struct batch_ways ways;
    batch->count = 0;
    batch_ways_find(batch, items, count, &ways);
    for (uint32_t number = 0; number < count; number++) {
        struct tree_item *item = items[number];
        if (batch->session->through && !item->leaf && batch->count && batch->count % LOCATED_MAX == 0) {
            batch_ways_charge(batch->session, &ways);
            task_yield();
        }
        item->status = number < ways.count /* whose keys were looked at */
                           ? 0
                           : tree_key_check(batch->session, batch->tree, item->key, item->key_length);
        if (!item->status && put)
            item->status = tree_value_check(batch->session, batch->tree, item->value, item->length);
        if (item->status)
            continue;
        struct batch_item *entry = &batch->items[batch->count];
        int status = 0;
        if (number < ways.count && ways.leaves[number].address != GADDR_NULL) {
            batch->session->stats.operations++;
            entry->path = (struct tree_path){.link = ways.leaves[number]};
            ways.taken++;
            ways.visited += ways.frames[number];
        } else {
            batch_ways_charge(batch->session, &ways);
            status = batch_locate(batch, entry, item, put, &batch->walks[batch->count]);
        }
        entry->missing = status == TREE_WALKED;
        if (status && !entry->missing) {
            item->status = pool_not_done(&batch->session->pool, status);
            continue;
        }
        entry->item = item;
        entry->list = (struct fabric_list){0};
        entry->deferred = entry->answered = entry->todo = entry->behind = false;
        entry->placed = entry->in_place.full = false;
        entry->block = GADDR_NULL;
        batch->count++;
    }
    batch_ways_charge(batch->session, &ways);
}

/* Whether all that the batch has not done waits for splits: then each leaf is split by its first item. */
static bool batch_waits_for_splits(const struct tree_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct batch_item *entry = &batch->items[i];
        const bool full = entry->placed && entry->in_place.full;
        if (entry->todo || (entry->deferred && !full && !entry->behind))
            return false;
    }
    return true;
}

/* Those that the batch has not done, by themselves, but for items that wait for a split by an earlier one:
 * these are in `items` then, to go with the next batch, and it returns how many there are. An item may wait
 * for its range, and whatever it waits for may put many keys at once in this session (rights.h,
 * tree_forward): the batch is gone behind the first. */
static uint32_t batch_alone(struct tree_batch *batch, struct tree_item **items, bool put)
{
    struct tree_session *session = batch->session;
    struct tree *tree = batch->tree;
    struct tree_item *alone[BATCH];
    uint32_t count = 0, behind = 0;
    const bool again = put && batch_waits_for_splits(batch);
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct batch_item *entry = &batch->items[i];
        if (again && entry->behind)
            items[behind++] = entry->item;
        else if (entry->deferred || entry->todo)
            alone[count++] = entry->item;
    }
    session->stats.operations -= count + behind; /* each is counted once more */
    for (uint32_t i = 0; i < count; i++) {
        struct tree_item *item = alone[i];
        item->status =
            put ? tree_put_single(session, tree, item, NULL)
                : tree_lookup(session, tree, item->key, item->key_length, item->value, &item->length);
    }
    return behind;
}

/* Up to BATCH items. Those that are to go with the next batch are in `items` afterwards, *count of them,
 * fewer than before. */
static int batch_some(struct tree_session *session, struct tree *tree, struct tree_item **items,
                      uint32_t *count, bool put)
{
    struct tree_batch *batch = session->batch;
    if (put)
        tree_turn_announce(session, NULL);
    batch->session = session;
    batch->tree = tree;
    int status = batch_images(batch);
    if (status)
        return status;
    batch_fill(batch, items, *count, put);
    batch_enter(batch, put);
    if (put) {
        put_batch(batch);
    } else {
        get_unmerged(batch);
        get_walked(batch);
        get_in_place(batch);
        get_batch(batch);
        batch_forward(batch, false);
    }
    *count = batch_alone(batch, items, put);
    return 0;
}

static int batch_run(struct tree_session *session, struct tree *tree, struct tree_item *items, size_t count,
                     bool put)
{
    struct tree_item *some[BATCH];
    uint32_t taken = 0; /* left over by the batch before, and then the next ones */
    size_t next = 0;
    if (!session->batch) /* kept: a task may end in the middle of a call */
        session->batch = calloc(1, sizeof *session->batch);
    int status = session->batch ? tree_begin(session, tree) : pool_fail_memory(&session->pool);
    if (session->batch)
        session->stats.operations--; /* each item counts by itself */
    while ((next < count || taken) && !status) {
        if (put && taken && some[0] == &items[next - taken]) { /* what waits is what comes next */
            next -= taken;
            taken = 0;
        }
        if (put && !taken) /* all before are done */
            next += tree_put_ascending(session, tree, items + next, count - next);
        for (; taken < BATCH && next < count; next++) {
            items[next].ahead_done = false;
            some[taken++] = &items[next];
        }
        if (taken)
            status = batch_some(session, tree, some, &taken, put);
    }
    for (uint32_t i = 0; i < taken; i++)
        some[i]->status = status;
    for (; next < count; next++)
        items[next].status = status;
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
    /* A batch overlaps its items by combining their commands. */
    if (session->compute->switches.combine == POOL_COMBINE_ALL)
        return batch_run(session, tree, items, count, true);
    int status = 0;
    for (size_t i = 0; i < count; i++) {
        tree_put(session, tree, &items[i]);
        if (!status)
            status = items[i].status;
    }
    return status;
}
