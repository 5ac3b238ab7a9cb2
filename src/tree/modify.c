/*
 * modify.c - Point writes. Two round trips without contention, one where the lock comes with the
 * leaf's image; more for splits (split.c) and for the last entry of a leaf (unlink.c). The callback runs
 * under the leaf's lock. A task that finds the local lock held leaves its operation to the holder, and a
 * holder does what it finds there with its own (delegate.h): one round trip more if a bucket has to be read
 * for that, none for the others.
 *
 * In a range that is another's the owner makes the change (forward.h), by a peer call; with a callback it is
 * read and decided here. tree_exchange_here is the owner's side of it.
 */
#include "tree/leaf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "format/verdict.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/catalogue.h"
#include "tree/delegate.h"
#include "tree/entries.h"
#include "tree/exchanging.h"
#include "tree/forward.h"
#include "tree/in_place.h"
#include "tree/index.h"
#include "tree/keyblocks.h"
#include "tree/locate.h"
#include "tree/logged.h"
#include "tree/merge.h"
#include "tree/owned_cache_use.h"
#include "tree/parent.h"
#include "tree/session.h"
#include "tree/split.h"
#include "tree/turn.h"
#include "tree/unlink.h"
#include "tree/walk.h"

/* ---- what is known of the leaf under its lock ---- */

static bool bucket_known(const struct tree_image *image, uint32_t number)
{
    return image->buckets[number / 64] >> (number % 64) & 1u;
}

static void image_learn_all(struct tree_session *session, const struct format_layout *layout, gaddr leaf)
{
    struct tree_image *image = &session->image;
    image->address = leaf;
    image->layout = layout;
    image->header = true;
    memset(image->buckets, 0, sizeof image->buckets);
    for (uint32_t i = 0; i < layout->buckets; i++)
        image->buckets[i / 64] |= UINT64_C(1) << (i % 64);
}

static bool image_complete(const struct tree_session *session, const struct format_layout *layout)
{
    for (uint32_t i = 0; i < layout->buckets; i++)
        if (!bucket_known(&session->image, i))
            return false;
    return session->image.header;
}

int tree_leaf_complete(struct tree_session *session, struct tree *tree, gaddr leaf)
{
    if (session->image.address == leaf && image_complete(session, &tree->layout))
        return 0;
    struct fabric_command read =
        pool_read_command(leaf, session->image.bytes, tree->layout.geometry.leaf_bytes);
    int status = tree_leaf_execute(session, tree, leaf, &read, 1);
    if (status) {
        session->image.address = GADDR_NULL;
        return status;
    }
    pool_read_settle(&read);
    image_learn_all(session, &tree->layout, leaf);
    return 0;
}

int tree_leaf_validate(struct tree_session *session, struct tree *tree, struct format_link link,
                       struct format_header *header)
{
    enum format_verdict verdict =
        format_node_verdict(&tree->layout, session->image.bytes, link, tree->index, 0, header);
    if (verdict != FORMAT_LIVE && verdict != FORMAT_FROZEN)
        tree_owned_doubt(session, tree, link.address);
    switch (verdict) {
    case FORMAT_TORN:
        return tree_invalid(session, link.address, "a leaf's header fails its check");
    case FORMAT_MALFORMED:
        return pool_corrupt(&session->pool, link.address, "a leaf's header is malformed");
    case FORMAT_LEVEL:
        return pool_corrupt(&session->pool, link.address, "a node is not on the level that its parent says");
    case FORMAT_OTHER:
    case FORMAT_DEAD:
        return TREE_RESTART;
    default:
        return 0;
    }
}

int tree_leaf_mend(struct tree_session *session, struct tree *tree, struct format_link link,
                   struct format_header *header)
{
    const uint8_t state = header->state;
    if (state != FORMAT_NODE_SPLITTING && state != FORMAT_NODE_MERGING)
        return 0;
    if (!tree_rights_cover(session, header->lower)) /* the way leads astray, or there is no border yet */
        return session->restarts > TREE_PATIENCE ? tree_foreign(session, link, header->lower) : TREE_RESTART;
    int status = tree_leaf_complete(session, tree, link.address);
    if (!status)
        status = state == FORMAT_NODE_SPLITTING ? tree_split_finish(session, tree, link)
                                                : tree_merge_finish(session, tree, link);
    return status ? status : tree_leaf_validate(session, tree, link, header);
}

/* ---- one attempt ---- */

struct change {
    struct tree_session *session;
    struct tree *tree;
    struct format_key key;
    tree_modify_function *function;
    void *context;
    struct tree_path path;
    struct tree_hold hold;
    struct format_header header; /* of session->image */
    struct format_point place;   /* of the key in the leaf of `path` */
    uint32_t seed;               /* of the leaf's slots */
    struct format_slot slot;     /* where the key is, if found */
    enum format_verdict verdict;
    bool found;
    bool placed;  /* by its entry in the cache: of the leaf nothing was read, and `header` says nothing */
    gaddr moving; /* tree_key_block_move: the long key's block; else GADDR_NULL */
    bool moved;
    bool blind;                     /* the function need not be told what the key holds (logged.h) */
    bool here;                      /* the function runs on this task only */
    tree_placed_function *told;     /* NULL, or called where the change is done in place */
    bool mine;                      /* the range must be this process's */
    struct tree_exchange *exchange; /* what an owner is asked for; NULL: what the function decides */
    bool asked;                     /* it was, in the last try */
    struct tree_run *run;    /* goes with the key where that is appended (split.h); NULL: nothing does */
    bool brought;            /* session->spare has the leaf, by a walk that located the key ... */
    uint64_t moment;         /* ... and was asked for after this moment (owned_cache_use.h) */
    uint64_t began;          /* when it READ the leaf, in place of an exchange; 0: that is not measured */
    struct tree_taken taken; /* of others */
    /* Not zeroed (change_init). */
    uint8_t value[FORMAT_VALUE_MAX]; /* of the entry in the cache */
    struct tree_operation operation; /* for the holder of the lock */
};

/* The value and the operation are most of the structure, and say nothing before they are set. */
static void change_init(struct change *change, struct tree_session *session, struct tree *tree,
                        struct format_key key)
{
    memset(change, 0, offsetof(struct change, value));
    change->session = session;
    change->tree = tree;
    change->key = key;
}

static bool whole_leaf(const struct tree_session *session)
{
    return session->compute->switches.read_unit == TREE_READ_LEAF ||
           session->compute->switches.write_unit == TREE_WRITE_NODE;
}

static uint32_t change_reads(struct change *change, bool header, struct fabric_command *reads)
{
    const struct format_layout *layout = &change->tree->layout;
    gaddr leaf = change->path.link.address;
    uint8_t *image = change->session->image.bytes;
    if (whole_leaf(change->session)) {
        reads[0] = pool_read_command(leaf, image, layout->geometry.leaf_bytes);
        return 1;
    }
    uint32_t count = 0;
    if (header)
        reads[count++] = pool_read_command(leaf, image, layout->header_bytes);
    reads[count++] = pool_read_command(leaf + change->place.bucket.offset,
                                       image + change->place.bucket.offset, change->place.bucket.bytes);
    return count;
}

static void change_learn(struct change *change)
{
    struct tree_image *image = &change->session->image;
    gaddr leaf = change->path.link.address;
    if (whole_leaf(change->session)) {
        image_learn_all(change->session, &change->tree->layout, leaf);
        return;
    }
    if (image->address != leaf)
        memset(image->buckets, 0, sizeof image->buckets);
    image->address = leaf;
    image->layout = &change->tree->layout;
    image->header = true;
    image->buckets[change->place.bucket.number / 64] |= UINT64_C(1) << (change->place.bucket.number % 64);
}

/* Under the lock: whether the key's entry in the cache says where its slot is, and what that holds. Where
 * others wait with operations, the leaf is read for all of them. */
static bool change_knows(struct change *change)
{
    struct tree_session *session = change->session;
    struct owned_place place;
    uint32_t length;
    if (tree_delegate_waits(&change->hold) ||
        !tree_owned_place(session, change->tree, change->key, change->path.link.address, &place,
                          change->value, &length))
        return false;
    change->placed = change->found = true;
    change->verdict = FORMAT_HIT;
    change->seed = place.seed;
    change->slot = (struct format_slot){.number = place.number, .value = {change->value, length}};
    change->header = (struct format_header){0};
    return true;
}

/* Whether what was brought proves all that the change rests on: if not, the leaf is READ, and judged then. */
static bool change_proves(struct change *change)
{
    struct tree_session *session = change->session;
    const struct format_layout *layout = &change->tree->layout;
    struct format_header header;
    struct format_slot slot;
    if (format_node_verdict(layout, session->spare, change->path.link, change->tree->index, 0, &header) !=
        FORMAT_LIVE)
        return false;
    const enum format_verdict verdict =
        format_point_verdict_locked(&change->place, session->spare, &header, &slot);
    if (verdict != FORMAT_HIT && verdict != FORMAT_MISS && verdict != FORMAT_RIGHT)
        return false;
    return !whole_leaf(session) ||
           format_slots_valid(layout, session->spare, 0, layout->slots,
                              format_slot_seed(header.tag, header.version), header.lower);
}

/* Under the lock: whether the leaf that a walk has brought is what a READ would bring now (W12). Then the
 * image has of it what a READ would. */
static bool change_brought(struct change *change)
{
    struct tree_session *session = change->session;
    const struct tree *tree = change->tree;
    const gaddr leaf = change->path.link.address;
    if (!change->brought || !tree_owned_unwritten(session, tree, leaf, change->moment) ||
        !change_proves(change))
        return false;
    memcpy(session->image.bytes, session->spare, tree->layout.geometry.leaf_bytes);
    session->served = false;
    change_learn(change);
    if (tree_owned_wants(session, tree))
        tree_owned_offer(session, tree, leaf, session->image.bytes,
                         tree_owned_stamp_since(session, tree, leaf, change->moment));
    return true;
}

/* Under the lock: reads what the image lacks. On an error the lock is given up. */
static int change_read(struct change *change, bool header)
{
    struct tree_session *session = change->session;
    struct fabric_command reads[2], unlock[1];
    uint32_t count = change_reads(change, header, reads);
    int status = tree_leaf_execute(session, change->tree, change->path.link.address, reads, count);
    if (status) {
        session->image.address = GADDR_NULL;
        tree_leaf_release(session, change->tree, &change->hold, unlock, 0);
        return status;
    }
    change->hold.unheard = false;
    if (count > 1)
        format_header_settle(&change->tree->layout, &reads[0]);
    pool_read_settle(&reads[count - 1]);
    change_learn(change);
    return 0;
}

/* Under the lock, with nothing known of the leaf: the memory node makes the change. TREE_EXCHANGED, or an
 * error: the lock is given up. 0: nothing was done. */
static int change_exchange(struct change *change)
{
    struct tree_session *session = change->session;
    struct tree_exchanged exchanged;
    uint8_t value[FORMAT_VALUE_MAX + 1];
    size_t length = 0;
    assert(change->hold.owned); /* to give that lock up asks for nothing, so that it cannot fail (W14) */
    if (tree_delegate_waits(&change->hold) ||
        !tree_exchanges_wanted(session, change->tree, change->path.link.address) ||
        !tree_exchanges_ask(session, change->tree, change->path.link, change->exchange, &exchanged))
        return 0;
    /* It decides as the memory node has done: the exchange says the same. Here it hears what the key held. */
    if (!exchanged.status)
        (void)change->function(change->context, exchanged.existed ? exchanged.old : NULL,
                               exchanged.old_length, value, &length);
    return tree_leaf_release_with(session, change->tree, &change->hold,
                                  exchanged.status ? exchanged.status : TREE_EXCHANGED);
}

/* The same, or reads what the image lacks: for changes that a memory node may make. */
static int change_exchange_or_read(struct change *change)
{
    const int status = change_exchange(change);
    if (status)
        return status;
    change->began = tree_exchanges_began(change->session);
    const int failed = change_read(change, true);
    if (failed || change->session->served)
        change->began = 0;
    return failed;
}

/* Takes the lock with header and bucket in the image, or with the slot placed; or TREE_ANSWERED; or
 * TREE_EXCHANGED without it. */
static int change_lock(struct change *change)
{
    struct tree_session *session = change->session;
    gaddr leaf = change->path.link.address;
    struct fabric_command reads[2];
    format_point_set(&change->place, &change->tree->layout, change->path.link, change->tree->index,
                     change->key);
    uint32_t count = change_reads(change, true, reads);
    bool places = !change->moving && !whole_leaf(session) && tree_owned_places(session, change->tree);
    bool leave = !change->here && tree_delegate_on(session);
    const bool exchanges = tree_exchanges_on(session, change->exchange);
    change->brought =
        tree_walk_brought(session, change->tree, change->path.link, session->spare, &change->moment);
    change->operation = (struct tree_operation){.tree = change->tree,
                                                .place = change->place,
                                                .function = change->function,
                                                .context = change->context};
    int status =
        tree_leaf_lock_or_leave(session, change->tree, leaf, leave ? &change->operation : NULL, reads,
                                places || exchanges || change->brought ? 0 : count, &change->hold);
    change->placed = false;
    change->began = 0;
    if (status)
        return status;
    bool handed = session->waiter.snapshot;
    if (handed && bucket_known(&session->image, change->place.bucket.number))
        return 0;
    assert(!handed || (session->image.address == leaf && session->image.header));
    if (places && change_knows(change))
        return 0;
    if (!handed && change_brought(change))
        return 0;
    if (exchanges && !handed && !change->brought)
        return change_exchange_or_read(change);
    if (handed || places || exchanges || change->brought)
        return change_read(change, !handed);
    if (count > 1)
        format_header_settle(&change->tree->layout, &reads[0]);
    pool_read_settle(&reads[count - 1]);
    change_learn(change);
    return 0;
}

/* Gives the lock up with nothing written and passes `verdict` on, unless the release failed. */
static int change_quit(struct change *change, int verdict)
{
    tree_delegate_return(change->session, &change->hold, &change->taken);
    return tree_leaf_release_with(change->session, change->tree, &change->hold, verdict);
}

/* No lock is held. The leaf is frozen, or dead: finishes that where the right covers it. */
static int leaf_thaw(struct tree_session *session, struct tree *tree, struct format_link link,
                     const struct format_header *header)
{
    int status = 0;
    if (tree_rights_cover(session, header->lower))
        status = tree_merge_thaw(session, tree, link, header);
    else if (session->restarts > TREE_PATIENCE)
        status = tree_foreign(session, link, header->lower);
    return status ? status : TREE_RESTART;
}

static int leaf_departed(struct tree_session *session, struct tree *tree, struct format_link link,
                         const struct format_header *header)
{
    int status = 0;
    if (tree_rights_cover_below(session, header->lower))
        status = tree_unlink_finish(session, tree, link, header);
    else if (session->restarts > TREE_PATIENCE)
        status = tree_foreign(session, link, header->lower);
    return status ? status : TREE_RESTART;
}

/* Under the lock: is this the leaf, and in what state? 0: go on, with change->verdict HIT, MISS or TORN; else
 * the lock is given up. */
static int change_validate(struct change *change)
{
    struct tree_session *session = change->session;
    struct tree *tree = change->tree;
    struct format_link link = change->path.link;
    int status = tree_leaf_validate(session, tree, link, &change->header);
    if (!status)
        status = tree_leaf_mend(session, tree, link, &change->header);
    if (status < 0 || status == TREE_FOREIGN)
        return change_quit(change, status);
    if (!status && change->header.state == FORMAT_NODE_FROZEN) {
        status = change_quit(change, 0);
        return status ? status : leaf_thaw(session, tree, link, &change->header);
    }
    if (status == TREE_RESTART) {
        bool dead = format_header_departed(&change->header, link, tree->index);
        status = change_quit(change, TREE_RESTART);
        if (status == TREE_RESTART && dead)
            status = leaf_departed(session, tree, link, &change->header);
        tree_path_forget(session, tree, &change->path);
        return status;
    }
    change->verdict =
        format_point_verdict_locked(&change->place, session->image.bytes, &change->header, &change->slot);
    if (change->verdict == FORMAT_RIGHT) {
        struct format_key_copy upper;
        struct format_link sibling = change->header.sibling;
        format_key_store(&upper, change->header.upper);
        status = change_quit(change, 0);
        if (!status)
            status = tree_path_right(session, tree, &change->path, format_key_of(&upper), sibling, 0);
        return status ? status : TREE_SIDEWAYS;
    }
    if (change->verdict == FORMAT_LEFT) {
        tree_path_forget(session, tree, &change->path);
        status = change_quit(change, TREE_RESTART);
        int astray = status == TREE_RESTART ? tree_astray(session, link.address) : 0;
        return astray ? astray : status;
    }
    change->found = change->verdict == FORMAT_HIT;
    change->seed = format_slot_seed(change->header.tag, change->header.version);
    return 0;
}

/* ---- others' operations ---- */

/* Under the lock: reads the buckets of what was taken, as far as they are not in the image. */
static int taken_read(struct change *change, struct fabric_command *reads)
{
    struct tree_session *session = change->session;
    struct tree_image *image = &session->image;
    gaddr leaf = change->path.link.address;
    uint64_t buckets[FORMAT_BUCKETS_MAX / 64];
    uint32_t count = 0;
    memcpy(buckets, image->buckets, sizeof buckets);
    for (const struct tree_waiter *waiter = change->taken.waiters; waiter; waiter = waiter->next)
        for (const struct tree_operation *operation = waiter->operations; operation;
             operation = operation->next) {
            const struct format_bucket *bucket = &operation->place.bucket;
            uint64_t bit = UINT64_C(1) << (bucket->number % 64);
            if (buckets[bucket->number / 64] & bit)
                continue;
            buckets[bucket->number / 64] |= bit;
            reads[count++] =
                pool_read_command(leaf + bucket->offset, image->bytes + bucket->offset, bucket->bytes);
        }
    if (!count)
        return 0;
    int status = tree_leaf_execute(session, change->tree, leaf, reads, count);
    if (status) {
        image->address = GADDR_NULL;
        return status;
    }
    for (uint32_t i = 0; i < count; i++)
        pool_read_settle(&reads[i]);
    memcpy(image->buckets, buckets, sizeof buckets);
    change->hold.unheard = false;
    return 0;
}

/*
 * Under the lock of a live leaf, before its image is changed (a bucket that is read shares slots with its
 * neighbour): takes the operations of others that this task will do with its own. On an error the lock is
 * given up.
 */
static int change_take(struct change *change)
{
    struct tree_session *session = change->session;
    if (!tree_delegate_waits(&change->hold) || !tree_delegate_on(session))
        return 0;
    if (!session->list)
        session->list = calloc(FABRIC_COMMANDS_MAX, sizeof *session->list);
    if (!session->list)
        return 0; /* they get the lock, one after the other */
    tree_delegate_take(session, change->tree, change->path.link, &change->hold, TREE_DELEGATE_MAX, NULL,
                       &change->taken);
    int status = taken_read(change, session->list);
    return status ? change_quit(change, status) : 0;
}

/* What a key will hold, as the image has it: for its entry in the cache. An entry gets to know its slot where
 * the leaf had to be read for that. */
static void change_note(struct change *change, const struct format_point *place, bool own)
{
    struct tree_session *session = change->session;
    struct format_slot slot;
    struct format_header header = change->header;
    bool found = header.state == FORMAT_NODE_LIVE &&
                 format_point_verdict_locked(place, session->image.bytes, &header, &slot) == FORMAT_HIT;
    if (found && session->through) { /* merging */
        tree_owned_note_merged(session, change->tree, change->path.link, place->key, slot.value,
                               own ? session->merge_met : 0);
        return;
    }
    bool placed = found && !session->served && slot.block == GADDR_NULL && !whole_leaf(session) &&
                  tree_owned_places(session, change->tree);
    struct owned_place known = {.leaf = change->path.link.address};
    if (placed) {
        known.number = slot.number;
        known.seed = change->seed;
        known.shape = owned_cache_shape(change->tree->owned, known.leaf);
    }
    tree_owned_note(session, change->tree, place->key, found ? &slot.value : NULL, placed ? &known : NULL);
}

/* The same for a slot that its entry has placed: that knows it already. */
static void change_note_placed(struct change *change)
{
    struct format_slot slot;
    bool written = format_slot_read(&change->tree->layout, change->session->image.bytes, change->slot.number,
                                    change->seed, (struct format_key){0}, &slot) == FORMAT_SLOT_TAKEN;
    assert(written);
    tree_owned_note(change->session, change->tree, change->key, written ? &slot.value : NULL, NULL);
}

static void change_notes(struct change *change, bool own)
{
    if (change->session->right != TREE_OWNED || !change->tree->owned)
        return;
    if (own && change->placed)
        change_note_placed(change);
    else if (own)
        change_note(change, &change->place, true);
    for (const struct tree_waiter *waiter = change->taken.waiters; waiter; waiter = waiter->next)
        for (const struct tree_operation *operation = waiter->operations; operation && operation->done;
             operation = operation->next)
            if (operation->wrote)
                change_note(change, &operation->place, false);
}

/* Releases the lock with the list that writes back this change, `count` commands of `writes`, and those taken
 * with it. The change has put its entry into `slot`, or cleared that; UINT32_MAX: it has changed nothing. */
static int change_release(struct change *change, struct fabric_command *writes, uint32_t count, uint32_t slot,
                          bool cleared)
{
    struct tree_session *session = change->session;
    uint32_t own = count;
    if (!change->taken.waiters) {
        change_notes(change, slot != UINT32_MAX);
        int status = tree_leaf_release(session, change->tree, &change->hold, writes, count);
        if (count && !status)
            tree_exchanges_read(session, change->path.link.address, change->began);
        return status;
    }
    struct tree_delegate_leaf leaf = {.session = session,
                                      .tree = change->tree,
                                      .address = change->path.link.address,
                                      .header = &change->header,
                                      .image = session->image.bytes,
                                      .slot = slot,
                                      .cleared = cleared,
                                      .key = change->key};
    if (count)
        memcpy(session->list, writes, count * sizeof *writes);
    if (cleared) /* as a whole, since the key may be put into it again */
        session->list[0].length = change->tree->layout.slot_bytes;
    tree_delegate_apply(&leaf, &change->hold, &change->taken, session->list, &count);
    assert(count < FABRIC_COMMANDS_MAX);
    change_notes(change, slot != UINT32_MAX);
    int status = tree_leaf_release(session, change->tree, &change->hold, session->list, count);
    tree_delegate_answer(session, &change->taken, status);
    return own ? status : pool_not_done(&session->pool, status);
}

/* ---- deciding and writing ---- */

/*
 * Adds what writes the changed slot (and header) back, at most three commands. A whole leaf longer than
 * atomic_write may be cut anywhere: then the parts that change go first, each in a write of its own, and the
 * whole repeats them.
 */
static uint32_t write_back(struct change *change, uint32_t number, uint32_t bytes, bool header,
                           struct fabric_command *writes)
{
    const struct format_layout *layout = &change->tree->layout;
    struct tree_session *session = change->session;
    const uint8_t *image = session->image.bytes;
    gaddr leaf = change->path.link.address;
    bool node = session->compute->switches.write_unit == TREE_WRITE_NODE;
    bool atomic = layout->geometry.leaf_bytes <= fabric_capabilities(session->pool.fabric)->atomic_write;
    uint32_t count = 0;
    if (!node || !atomic)
        writes[count++] = pool_write_command(leaf + layout->slot_offset[number],
                                             image + layout->slot_offset[number], bytes);
    if (header && (!node || !atomic))
        writes[count++] = pool_write_command(leaf, image, layout->header_bytes);
    if (node && session->compute->switches.node_check)
        tree_charge_checksum(layout);
    if (node)
        writes[count++] = pool_write_command(leaf, image, layout->geometry.leaf_bytes);
    return count;
}

/* The key's bucket is full. TREE_RESTART where there is room now, or the addition is not in yet. */
static int change_split(struct change *change, struct format_key value)
{
    struct tree_session *session = change->session;
    struct tree *tree = change->tree;
    tree_delegate_return(session, &change->hold, &change->taken);
    int status = tree_leaf_complete(session, tree, change->path.link.address);
    /* It may have been read again. A process that has lost the range, and has not heard of it yet, may find
     * another leaf in the block by now: it hears of it at the latest when its writes are refused. */
    if (!status)
        status = tree_leaf_validate(session, tree, change->path.link, &change->header);
    if (!status && format_header_side(&change->header, change->key) != 0)
        status = TREE_RESTART;
    if (status)
        return change_quit(change, status);
    struct tree_addition addition = {change->key, value, change->run};
    bool added = false;
    status = tree_split(session, tree, change->path.link, &change->hold, &addition, &added);
    if (added) { /* done, whatever became of the parent's entry: a traverser posts it
                    (docs/internals/tree.md) */
        session->stats.unfinished += status < 0;
        session->cached = false; /* as in change_delete */
        return 0;
    }
    if (change->run) /* a later try may put the key alone: what should have gone with it is put by itself */
        change->run->taken = 0;
    return status ? status : TREE_RESTART;
}

/* The block of a long key that goes into the leaf: written in the leaf's own list if it lies on the same
 * memory node (*count grows), else here. */
static int change_block(struct change *change, gaddr *block, struct fabric_command *writes, uint32_t *count)
{
    struct tree_session *session = change->session;
    gaddr leaf = change->path.link.address;
    int status =
        tree_key_block_prepare(session, &change->tree->layout, leaf, change->key, &writes[*count], block);
    if (status)
        return status;
    if (gaddr_node(*block) == gaddr_node(leaf)) {
        ++*count;
        return 0;
    }
    status = pool_execute(&session->pool, gaddr_node(*block), &writes[*count], 1);
    if (status)
        pool_block_release(&session->pool, *block, change->key.length); /* no slot names it */
    return status;
}

/* Puts the value where the key is, or into a free slot; splits the leaf if there is none. A key that has a
 * block keeps it, whatever its remainder is by now, unless it is to move to another. */
static int change_put(struct change *change, struct format_key value)
{
    struct tree_session *session = change->session;
    const struct format_layout *layout = &change->tree->layout;
    struct format_key lower = change->header.lower;
    gaddr block = change->found ? change->slot.block : GADDR_NULL;
    uint32_t number = change->found ? change->slot.number
                                    : format_bucket_free_slot(layout, session->image.bytes,
                                                              &change->place.bucket, change->seed);
    if (number == UINT32_MAX)
        return change_split(change, value);
    struct fabric_command writes[5];
    uint32_t count = 0;
    bool fresh = change->moving || (!change->found && format_slot_needs_block(layout, lower, change->key));
    int status = 0;
    if (fresh) {
        status = change_block(change, &block, writes, &count);
        if (status)
            return change_quit(change, status);
    }
    format_slot_write(layout, session->image.bytes, number, change->seed, lower, block, change->key, value);
    count += write_back(change, number, layout->slot_bytes, false, writes + count);
    status = change_release(change, writes, count, number, false);
    if (status == BANYAN_EFENCED && fresh)
        pool_block_release(&session->pool, block,
                           change->key.length); /* nothing was done: no slot names it */
    return status;
}

/* Rewrites the slot with another block, which holds the same key, and the same value. */
static int change_move(struct change *change)
{
    struct tree_session *session = change->session;
    uint8_t value[FORMAT_VALUE_MAX + 1];
    struct format_key same = {value, change->slot.value.length};
    if (!change->found || change->slot.block != change->moving)
        return change_quit(change, 0);
    memcpy(value, change->slot.value.bytes, same.length); /* the slot in the image is written anew */
    int status = change_put(change, same);
    change->moved = !status;
    if (!status) /* else the slot may still name it */
        pool_block_release(&session->pool, change->moving, change->key.length);
    return status;
}

bool tree_only_entry(const struct format_layout *layout, const uint8_t *image, uint32_t seed, uint32_t first,
                     uint32_t count, uint32_t except)
{
    uint32_t empty = format_slot_empty_check(seed);
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t check;
        memcpy(&check, image + layout->slot_offset[i], sizeof check);
        if (i != except && check != empty)
            return false;
    }
    return true;
}

/* Whether deleting the slot leaves the leaf empty, and it may go: it is not the leftmost, nor the first of a
 * range (O3), and its parent names it (so that the session that drops that entry, and no other, frees the
 * leaf). Costs a read of the leaf when the key's bucket is about to be empty. */
static int change_empties(struct change *change, bool *empties)
{
    struct tree_session *session = change->session;
    const struct format_layout *layout = &change->tree->layout;
    *empties = false;
    if (!change->path.direct || !change->path.parent.address ||
        !format_key_compare(change->header.lower, format_key_least(layout)) ||
        tree_rights_first(session, change->header.lower) ||
        !tree_rights_cover(session, change->header.lower) ||
        !tree_only_entry(layout, session->image.bytes, change->seed, change->place.bucket.first,
                         change->place.bucket.count, change->slot.number))
        return 0;
    int status = tree_leaf_complete(session, change->tree, change->path.link.address);
    if (status)
        return status;
    *empties =
        tree_only_entry(layout, session->image.bytes, change->seed, 0, layout->slots, change->slot.number);
    return 0;
}

static int change_delete(struct change *change)
{
    struct tree_session *session = change->session;
    struct tree *tree = change->tree;
    const struct format_layout *layout = &tree->layout;
    struct fabric_command writes[4];
    gaddr block = change->slot.block;
    bool empties;
    int status = change_empties(change, &empties);
    if (status)
        return change_quit(change, status);
    format_slot_clear(layout, session->image.bytes, change->slot.number, change->seed);
    if (empties) {
        tree_delegate_return(session, &change->hold, &change->taken);
        tree_leaf_death(session);
        change->header.state = FORMAT_NODE_DEAD;
        format_header_encode(layout, &change->header, session->image.bytes);
    }
    uint32_t count = write_back(change, change->slot.number, 4, empties, writes);
    status = change_release(change, writes, count, change->slot.number, true);
    if (!status && block != GADDR_NULL) /* else the slot may still be there, and name it */
        pool_block_release(&session->pool, block, change->key.length);
    if (status || !empties)
        return status;
    /* R4. The deletion is done; any session can finish the rest of the unlinking. */
    session->stats.unlinks++;
    status = tree_unlink_finish(session, tree, change->path.link, &change->header);
    session->stats.unfinished += status < 0;
    /* O2: the list that deleted has proven the right, whatever image the rest has used. What is done must not
     * be done again for a lapsed lease. */
    session->cached = false;
    return 0;
}

/* Under the lock with the slot placed, which does not do for a deletion: it must know what else the leaf
 * holds. 0: the leaf is as if it had been read at once; else the lock is given up. */
static int change_unplace(struct change *change)
{
    change->placed = false;
    int status = change_read(change, change->session->image.address == GADDR_NULL);
    if (!status)
        status = change_validate(change);
    return status ? status : change_take(change);
}

static int change_decide(struct change *change)
{
    struct tree_session *session = change->session;
    struct tree *tree = change->tree;
    const struct format_layout *layout = &tree->layout;
    if (change->placed)
        task_charge(TASK_WORK_LINE, 1);
    else if (whole_leaf(session))
        tree_charge_leaf(session, layout);
    else
        tree_charge_bucket(layout);
    if (change->verdict == FORMAT_TORN) /* one of the slots may be the key's */
        return change_quit(change, pool_corrupt(&session->pool, change->path.link.address,
                                                "a leaf's slot fails its check under the leaf's lock"));
    if (change->moving)
        return change_move(change);
    uint8_t value[FORMAT_VALUE_MAX + 1];
    size_t length = 0;
    enum tree_verdict verdict =
        change->function(change->context, change->found ? change->slot.value.bytes : NULL,
                         change->found ? change->slot.value.length : 0, value, &length);
    if (verdict == TREE_PUT) {
        int status = tree_value_check(session, tree, value, length);
        return status ? change_quit(change, status)
                      : change_put(change, (struct format_key){value, (uint32_t)length});
    }
    if (verdict == TREE_DELETE && change->placed) {
        int status = change_unplace(change);
        if (status)
            return status;
    }
    if (verdict == TREE_DELETE && change->found)
        return change_delete(change);
    struct fabric_command unlock[1];
    return change_release(change, unlock, 0, UINT32_MAX, false);
}

/* 0: done in place; else TREE_BY_LOCK. */
static int change_place(struct change *change)
{
    struct tree_session *session = change->session;
    struct tree_in_place place;
    if (!session->access->enter || change->here || change->moving ||
        !tree_in_place_find(session, change->tree, change->path.link, change->key, true, &place))
        return TREE_BY_LOCK;
    return tree_in_place_change(session, change->tree, &place, change->function, change->told,
                                change->context);
}

/* Under the right that was entered: 0, an error, or a verdict of turn.h. */
static int change_try(struct change *change)
{
    struct tree_session *session = change->session;
    struct tree *tree = change->tree;
    int status = 0;
    for (bool located = false;;) {
        if (!located) {
            session->leaves = tree_owned_told(session, tree);
            status = tree_locate(session, tree, change->key, false, 0, &change->path);
        }
        if (!status)
            status = change_place(change);
        if (!status)
            return 0;
        if (status == TREE_BY_LOCK)
            status = change_lock(change);
        if (!status && !change->placed)
            status = change_validate(change);
        if (!status && !change->placed)
            status = change_take(change);
        if (!status)
            status = change_decide(change);
        if (status == TREE_ANSWERED)
            status = tree_delegate_result(session, &change->operation);
        if (status == TREE_EXCHANGED)
            status = 0;
        assert(!change->taken.waiters);
        if (tree_again(session, tree, &status))
            return TREE_ANEW;
        if (status <= 0 || status == TREE_FOREIGN || status == TREE_WAIT)
            return status;
        located = status == TREE_SIDEWAYS;
        status = located ? 0 : tree_restart(session, change->path.link.address);
        if (status)
            return status;
    }
}

/* The range is logged: the leaf gets it later. */
static int change_log(struct change *change)
{
    struct tree_session *session = change->session;
    const struct tree_logged_change logged = {change->key, change->function, change->context, change->blind,
                                              change->here};
    struct tree_logged ticket;
    int status = tree_logged_append(session, change->tree, &logged, &ticket);
    if (!status)
        status = tree_logged_commit(session, &ticket);
    return tree_again(session, change->tree, &status) ? TREE_ANEW : status;
}

/* What must be done before the change. */
static int change_ahead(struct change *change)
{
    struct tree_session *session = change->session;
    struct fabric_command writes[FABRIC_COMMANDS_MAX];
    const uint32_t count = session->ahead_count;
    session->replaced = true;
    if (!count)
        return 0;
    assert(count <= FABRIC_COMMANDS_MAX);
    memcpy(writes, session->ahead, count * sizeof *writes);
    int status = pool_execute(&session->pool, gaddr_node(writes[0].address), writes, count);
    if (!status)
        session->ahead_count = 0;
    session->ahead_done |= !status;
    return status;
}

/* In a range of this process, or a shared one. */
static int change_own(struct change *change)
{
    if (!change->moving && tree_logs(change->session))
        return change_log(change);
    int status = change_ahead(change);
    if (tree_again(change->session, change->tree, &status))
        return TREE_ANEW;
    return status ? status : change_try(change);
}

/* The range is another's. */
static int change_forward(struct change *change)
{
    struct tree_session *session = change->session;
    if (change->moving) /* nothing is moved */
        return 0;
    int status = change_ahead(change);
    if (tree_again(session, change->tree, &status))
        return TREE_ANEW;
    if (status)
        return status;
    tree_turn_withdraw(session, change->tree);
    if (change->exchange)
        return tree_forward_exchange(session, change->tree, change->exchange);
    return tree_forward_modify(session, change->tree, change->key, change->function, change->context);
}

/* The row is `unkept` (rights.h), and the change one that clients rely on: it waits for an owner with a log.
 * What is done for another process is refused instead, and that one waits. An index that was dropped is
 * nobody's for ever; its leaves alone say so. */
static int change_unkept(struct change *change)
{
    struct tree_session *session = change->session;
    uint8_t value[FORMAT_VALUE_MAX];
    size_t length = sizeof value;
    if (change->mine)
        return tree_not_owned(session, change->tree);
    const uint32_t ahead = session->ahead_count; /* they are the change's */
    session->ahead_count = 0;
    if (session->right <= TREE_OWNED)
        (void)tree_lookup_leaf(session, change->tree, change->key, value, &length);
    session->ahead_count = ahead;
    if (tree_is_dropped(change->tree))
        return tree_dropped(session, change->tree);
    session->wants_log = true;
    return TREE_WAIT;
}

static int change_run(struct change *change)
{
    struct tree_session *session = change->session;
    struct tree *tree = change->tree;
    struct tree_turn turn = {.change = &change->key};
    int status = tree_key_check(session, tree, change->key.bytes, change->key.length);
    if (!status)
        tree_turn_announce(session, &change->key); /* an earlier one of a batch may have withdrawn */
    if (!status)
        status = tree_begin(session, tree);
    if (status) {
        session->ahead_count = 0;
        return status;
    }
    do {
        enum tree_right right = tree_rights_enter(session, tree, change->key);
        change->asked = right == TREE_OTHERS;
        if (change->asked)
            tree_turn_ask(&turn);
        if ((change->mine || session->through) &&
            (right != TREE_OWNED || tree_merge_void(session, tree, change->key)))
            status = tree_not_owned(session, tree);
        else if (__builtin_expect(session->unkept, 0) && !session->through && !change->moving)
            status = change_unkept(change);
        else if (right <= TREE_OWNED)
            status = change_own(change);
        else
            status = right == TREE_OTHERS ? change_forward(change) : TREE_WAIT;
    } while (tree_turn_again(session, tree, &turn, &status));
    session->ahead_count = 0; /* they were this change's */
    return status;
}

int tree_modify(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                tree_modify_function *function, void *context)
{
    struct change change;
    change_init(&change, session, tree, (struct format_key){key, (uint32_t)key_length});
    change.function = function;
    change.context = context;
    return change_run(&change);
}

int tree_change(struct tree_session *session, struct tree *tree, tree_modify_function *function,
                tree_placed_function *placed, void *context, struct tree_exchange *exchange,
                struct tree_run *run, bool *asked)
{
    struct change change;
    change_init(&change, session, tree, (struct format_key){exchange->key, (uint32_t)exchange->key_length});
    change.function = function;
    change.told = placed;
    change.context = context;
    change.blind = exchange->expect == TREE_EXPECT_ANYTHING && exchange->value;
    change.exchange = exchange;
    change.run = run;
    int status = change_run(&change);
    *asked = change.asked;
    return status;
}

int tree_change_leaf(struct tree_session *session, struct tree *tree, struct format_key key,
                     tree_modify_function *function, void *context)
{
    struct change change;
    change_init(&change, session, tree, key);
    change.function = function;
    change.context = context;
    change.here = true;
    return change_try(&change);
}

int tree_modify_here(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                     tree_modify_function *function, void *context)
{
    struct change change;
    change_init(&change, session, tree, (struct format_key){key, (uint32_t)key_length});
    change.function = function;
    change.context = context;
    change.here = true;
    return change_run(&change);
}

int tree_key_block_move(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                        gaddr block, bool *moved)
{
    struct change change;
    change_init(&change, session, tree, (struct format_key){key, (uint32_t)key_length});
    change.here = true;
    change.moving = block;
    assert(block != GADDR_NULL);
    int status = change_run(&change);
    *moved = change.moved;
    return status;
}

int tree_leaf_take(struct tree_session *session, struct tree *tree, struct format_link link,
                   struct tree_hold *hold, struct format_header *header)
{
    struct fabric_command read =
        pool_read_command(link.address, session->image.bytes, tree->layout.geometry.leaf_bytes);
    *header = (struct format_header){0};
    int status = tree_leaf_lock(session, tree, link.address, false, &read, 1, hold);
    if (status)
        return status;
    pool_read_settle(&read);
    image_learn_all(session, &tree->layout, link.address);
    status = tree_leaf_validate(session, tree, link, header);
    if (!status)
        status = tree_leaf_mend(session, tree, link, header);
    if (!status && header->state == FORMAT_NODE_FROZEN) {
        /* It may be emptied in part: its left neighbour tells. */
        status = tree_leaf_release_with(session, tree, hold, 0);
        return status ? status : leaf_thaw(session, tree, link, header);
    }
    return status ? tree_leaf_release_with(session, tree, hold, status) : 0;
}

int tree_leaf_settle(struct tree_session *session, struct tree *tree, struct format_link link)
{
    struct tree_hold hold;
    struct format_header header;
    uint32_t count;
    int status = tree_leaf_take(session, tree, link, &hold, &header);
    if (status == TREE_RESTART && format_header_departed(&header, link, tree->index))
        return 0; /* the reader finds that out itself */
    if (status)
        return status;
    if (tree_leaf_entries(session, &tree->layout, session->image.bytes, &header, &count) == TREE_RESTART)
        /* On a way that leads astray this lock does not keep those away who write the leaf: no proof. */
        status = tree_rights_cover(session, header.lower) ? tree_leaf_corrupt(session, link.address)
                                                          : TREE_RESTART;
    return tree_leaf_release_with(session, tree, &hold, status);
}

/* ---- the usual changes ---- */

enum put_when { PUT_ALWAYS, PUT_IF_ABSENT, PUT_IF_PRESENT, PUT_IF_EQUAL, DELETE_IF_PRESENT };

struct usual {
    enum put_when when;
    const void *value, *expected;
    size_t length, expected_length;
    int status;
};

static enum tree_verdict usual_change(void *context, const void *old, size_t old_length, void *value,
                                      size_t *length)
{
    struct usual *usual = context;
    usual->status = 0;
    if (!old && usual->when != PUT_ALWAYS && usual->when != PUT_IF_ABSENT)
        usual->status = BANYAN_ENOTFOUND;
    else if (old && usual->when == PUT_IF_ABSENT)
        usual->status = BANYAN_EEXIST;
    else if (usual->when == PUT_IF_EQUAL && (old_length != usual->expected_length ||
                                             (old_length && memcmp(old, usual->expected, old_length))))
        usual->status = BANYAN_ECONFLICT;
    if (usual->status)
        return TREE_KEEP;
    if (usual->when == DELETE_IF_PRESENT)
        return TREE_DELETE;
    if (usual->length)
        memcpy(value, usual->value, usual->length);
    *length = usual->length;
    return TREE_PUT;
}

/* The same as an owner is asked for it. */
static void usual_exchange(const struct usual *usual, const void *key, size_t key_length,
                           struct tree_exchange *exchange)
{
    static const enum tree_expectation expectations[] = {TREE_EXPECT_ANYTHING, TREE_EXPECT_NOTHING,
                                                         TREE_EXPECT_SOMETHING, TREE_EXPECT_VALUE,
                                                         TREE_EXPECT_SOMETHING};
    exchange->key = key;
    exchange->key_length = key_length;
    exchange->expect = expectations[usual->when];
    exchange->expected = usual->expected;
    exchange->expected_length = usual->expected_length;
    exchange->value = usual->when == DELETE_IF_PRESENT ? NULL : usual->value ? usual->value : "";
    exchange->length = usual->length;
    exchange->replaced = exchange->given_up = false;
    exchange->waited = NULL; /* the caller waits for it itself */
}

static int usual_run(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                     struct usual *usual)
{
    struct tree_exchange exchange;
    usual_exchange(usual, key, key_length, &exchange);
    bool asked;
    int status =
        usual->when == DELETE_IF_PRESENT ? 0 : tree_value_check(session, tree, usual->value, usual->length);
    if (!status)
        status = tree_change(session, tree, usual_change, NULL, usual, &exchange, NULL, &asked);
    if (!status && asked)
        usual->status = 0;            /* what an earlier try found here is not what its owner has done */
    if (status == BANYAN_ECONFLICT) { /* the owner's answer */
        usual->status = !exchange.existed              ? BANYAN_ENOTFOUND
                        : usual->when == PUT_IF_ABSENT ? BANYAN_EEXIST
                                                       : BANYAN_ECONFLICT;
        status = 0;
    }
    if (status || !usual->status)
        return status;
    return pool_fail(&session->pool, usual->status, "index %s: %s", tree->name, error_name(usual->status));
}

int tree_insert(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                const void *value, size_t length)
{
    struct usual usual = {.when = PUT_IF_ABSENT, .value = value, .length = length};
    return usual_run(session, tree, key, key_length, &usual);
}

int tree_update(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                const void *value, size_t length)
{
    struct usual usual = {.when = PUT_IF_PRESENT, .value = value, .length = length};
    return usual_run(session, tree, key, key_length, &usual);
}

int tree_upsert(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                const void *value, size_t length)
{
    struct usual usual = {.when = PUT_ALWAYS, .value = value, .length = length};
    return usual_run(session, tree, key, key_length, &usual);
}

int tree_delete(struct tree_session *session, struct tree *tree, const void *key, size_t key_length)
{
    struct usual usual = {.when = DELETE_IF_PRESENT};
    return usual_run(session, tree, key, key_length, &usual);
}

int tree_compare_and_set(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                         const void *expected, size_t expected_length, const void *value, size_t length)
{
    struct usual usual = {.when = PUT_IF_EQUAL,
                          .value = value,
                          .length = length,
                          .expected = expected,
                          .expected_length = expected_length};
    return usual_run(session, tree, key, key_length, &usual);
}

/* ---- for another compute node ---- */

static enum tree_verdict exchange_change(void *context, const void *old, size_t old_length, void *value,
                                         size_t *length)
{
    struct tree_exchange *exchange = context;
    exchange->given_up = exchange->waited && !exchange->waited(exchange->asker);
    if (exchange->given_up)
        return TREE_KEEP;
    exchange->existed = old;
    exchange->old_length = old_length;
    if (old_length)
        memcpy(exchange->old, old, old_length);
    exchange->refused = !tree_exchange_met(exchange, old, old_length);
    if (exchange->refused)
        return TREE_KEEP;
    if (!exchange->value)
        return TREE_DELETE;
    if (exchange->length)
        memcpy(value, exchange->value, exchange->length);
    *length = exchange->length;
    return TREE_PUT;
}

enum tree_verdict tree_keep(void *context, const void *old, size_t old_length, void *value, size_t *length)
{
    (void)context, (void)old, (void)old_length, (void)value, (void)length;
    return TREE_KEEP;
}

int tree_lookup_settled_here(struct tree_session *session, struct tree *tree, const void *key,
                             size_t key_length, void *value, size_t *length)
{
    struct unmerged *table = tree_log_table(tree);
    struct change change;
    change_init(&change, session, tree, (struct format_key){key, (uint32_t)key_length});
    change.function = tree_keep;
    change.mine = true;
    int status = table && unmerged_unsettled(table, change.key) ? change_run(&change) : 0;
    return status ? status : tree_lookup_here(session, tree, key, key_length, value, length);
}

void tree_set_served(struct tree *tree, const struct tree_served *served, void *context)
{
    tree->served = served;
    tree->served_context = context;
}

/* What the layer above does around it comes before anything is announced. */
static int exchange_run(struct change *change)
{
    const struct tree *tree = change->tree;
    void *served = NULL;
    if (!tree->served)
        return change_run(change);
    int status = tree->served->begin(tree->served_context, change->session, change->key.bytes,
                                     change->key.length, &served);
    if (status)
        return status;
    status = change_run(change);
    tree->served->end(tree->served_context, served);
    return status;
}

int tree_exchange_here(struct tree_session *session, struct tree *tree, struct tree_exchange *exchange)
{
    struct change change;
    change_init(&change, session, tree, (struct format_key){exchange->key, (uint32_t)exchange->key_length});
    change.function = exchange_change;
    change.context = exchange;
    change.blind = exchange->expect == TREE_EXPECT_ANYTHING && exchange->value;
    change.mine = true;
    int status = exchange->value ? tree_value_check(session, tree, exchange->value, exchange->length) : 0;
    if (!status && exchange->expect > TREE_EXPECT_VALUE)
        status = pool_fail(&session->pool, BANYAN_EINVAL, "index %s: an exchange expects what there is not",
                           tree->name);
    if (!status)
        status = exchange_run(&change);
    exchange->replaced = !status && session->replaced;
    if (!status && exchange->given_up)
        return BANYAN_EFENCED;
    if (status || !exchange->refused)
        return status;
    return pool_fail(&session->pool, BANYAN_ECONFLICT, "index %s: the key does not hold what was expected",
                     tree->name);
}
