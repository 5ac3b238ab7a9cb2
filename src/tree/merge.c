/*
 * merge.c - See merge.h. The order of the writes, and why it can be cut anywhere, is R7's.
 */
#include "tree/merge.h"

#include <assert.h>
#include <string.h>

#include "base/task.h"
#include "format/verdict.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/entries.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/owned_cache_use.h"
#include "tree/parent.h"
#include "tree/session.h"
#include "tree/unlink.h"

/* A header is at most this long (two fences of 255 bytes, rounded up). */
#define HEADER_MAX 576u
#define SLOTS_MAX  8192u

/* What is left to be written. */
enum stage {
    FREEZE,  /* all of it, the right leaf's mark first */
    COPY,    /* the left leaf's mark and body: the right leaf is frozen and whole */
    EMPTY,   /* the right leaf's: the left one has all entries */
    CONCLUDE /* the left leaf's header: the right leaf is dead */
};

struct merge {
    struct tree_session *session;
    struct tree *tree;
    struct format_link left_link, right_link;
    struct format_header left, right; /* as read under the locks; their keys are in the copies below */
    struct format_key_copy left_lower, middle, right_upper;
    bool shared; /* one lock word for both leaves: the left leaf's hold is the right one's too */
    struct tree_hold right_hold; /* else */
    uint8_t own[SLOTS_MAX / 8];  /* the left leaf's slots that hold its own entries */
    uint32_t own_count;
    uint8_t headers[4][HEADER_MAX]; /* frozen, marked, dead, final */
};

static void merge_start(struct merge *merge, struct tree_session *session, struct tree *tree,
                        struct format_link left, struct format_link right)
{
    merge->session = session;
    merge->tree = tree;
    merge->left_link = left;
    merge->right_link = right;
    merge->shared = session->right != TREE_OWNED &&
                    tree_lock_name(session, left.address) == tree_lock_name(session, right.address);
    memset(merge->own, 0, sizeof merge->own);
    merge->own_count = 0;
}

/* The headers must not point into images that change. */
static void headers_keep(struct merge *merge)
{
    format_key_store(&merge->left_lower, merge->left.lower);
    format_key_store(&merge->middle, merge->right.lower);
    format_key_store(&merge->right_upper, merge->right.upper);
    merge->left.lower = format_key_of(&merge->left_lower);
    merge->left.upper = merge->right.lower = format_key_of(&merge->middle);
    merge->right.upper = format_key_of(&merge->right_upper);
}

/* Whether the left leaf, whose lock is held, still ends where the right one begins, and names it. */
static bool names(const struct format_header *left, struct format_link link, struct format_key lower)
{
    return left->has_upper && format_link_equal(left->sibling, link) &&
           !format_key_compare(left->upper, lower);
}

/* ---- the right leaf's lock, while the left one's is held ---- */

/* Takes it if it is free at once, and reads. TREE_RESTART: it is not. */
static int right_lock(struct merge *merge, struct fabric_command read)
{
    struct tree_session *session = merge->session;
    gaddr leaf = merge->right_link.address;
    const bool owned = session->right == TREE_OWNED;
    int status;
    if (merge->shared) {
        status = pool_execute(&session->pool, gaddr_node(leaf), &read, 1);
        if (!status)
            pool_read_settle(&read);
        return status;
    }
    if (!tree_lock_try_local(session, leaf, owned, &merge->right_hold))
        return TREE_RESTART;
    struct fabric_command commands[2] = {read, read};
    if (!owned)
        commands[0] = tree_lock_command(session, &merge->right_hold);
    status = pool_execute(&session->pool, gaddr_node(leaf), commands + owned, 2u - owned);
    if (status && !owned)
        tree_lock_give_back(session, &merge->right_hold, &commands[0], status);
    else if (!status && !owned && (commands[0].cas.old & merge->right_hold.mask))
        status = TREE_RESTART;
    if (!status && owned)
        tree_owned_begin(session, merge->tree, leaf, true); /* until right_release: it is about to die */
    if (!status)
        pool_read_settle(&commands[1]);
    if (status)
        tree_lock_abandon_local(session, &merge->right_hold);
    return status;
}

/* Runs the writes, with room behind them for one more, and gives the lock up in any case. */
static int right_release(struct merge *merge, struct fabric_command *writes, uint32_t count)
{
    struct tree_session *session = merge->session;
    if (!merge->shared && !merge->right_hold.owned)
        writes[count++] = tree_unlock_command(session, &merge->right_hold);
    int status =
        count ? pool_execute(&session->pool, gaddr_node(merge->right_link.address), writes, count) : 0;
    if (!merge->shared && merge->right_hold.owned)
        tree_owned_end(session, merge->tree, merge->right_link.address, BANYAN_EUNKNOWN, NULL, 0);
    if (!merge->shared)
        tree_lock_abandon(session, &merge->right_hold, status);
    return status;
}

static int right_release_with(struct merge *merge, int verdict)
{
    struct fabric_command unlock[1];
    int status = right_release(merge, unlock, 0);
    return status ? status : verdict;
}

/* ---- laying the merged leaf out ---- */

static bool bit_get(const uint8_t *bits, uint32_t number)
{
    return bits[number / 8] >> (number % 8) & 1u;
}

static void bit_set(uint8_t *bits, uint32_t number)
{
    bits[number / 8] = (uint8_t)(bits[number / 8] | 1u << (number % 8));
}

static void heads_write(const struct format_layout *layout, uint8_t *image, uint16_t version)
{
    for (uint32_t number = 0; number < layout->buckets; number += 2) { /* two share a version */
        struct format_bucket bucket;
        format_bucket_number(layout, number, &bucket);
        memcpy(image + bucket.version_offset, &version, sizeof version);
    }
}

static bool heads_are(const struct format_layout *layout, const uint8_t *image, uint16_t version)
{
    for (uint32_t number = 0; number < layout->buckets; number += 2) {
        struct format_bucket bucket;
        format_bucket_number(layout, number, &bucket);
        if (format_bucket_version(image, &bucket) != version)
            return false;
    }
    return true;
}

bool tree_merge_whole(const struct format_layout *layout, const uint8_t *image,
                      const struct format_header *header)
{
    return heads_are(layout, image, header->version) &&
           format_slots_valid(layout, image, 0, layout->slots, format_slot_seed(header->tag, header->version),
                              header->lower);
}

/* Of a leaf whose slots are all valid: notes which are taken. */
static void own_note(struct merge *merge, const uint8_t *image)
{
    const struct format_layout *layout = &merge->tree->layout;
    const uint32_t empty = format_slot_empty_check(format_slot_seed(merge->left.tag, merge->left.version));
    for (uint32_t number = 0; number < layout->slots; number++) {
        uint32_t check;
        memcpy(&check, image + layout->slot_offset[number], sizeof check);
        if (check == empty)
            continue;
        bit_set(merge->own, number);
        merge->own_count++;
    }
}

/*
 * A free slot of the left leaf for each of the right leaf's entries, in key order: entries[i].number. The
 * same slots each time it is asked, whatever an earlier try has written there: a reader may have met some of
 * that already. False where one finds none, or is too long for a slot of this leaf.
 */
static bool place_all(const struct merge *merge, struct tree_leaf_entry *entries, uint32_t count)
{
    const struct format_layout *layout = &merge->tree->layout;
    uint8_t used[SLOTS_MAX / 8];
    memcpy(used, merge->own, sizeof used);
    for (uint32_t i = 0; i < count; i++) {
        struct format_bucket bucket;
        if (entries[i].block == GADDR_NULL &&
            format_slot_needs_block(layout, merge->left.lower, entries[i].key))
            return false;
        format_bucket_of(layout, merge->left.tag, entries[i].key, &bucket);
        uint32_t last = bucket.first + bucket.count - 1, tried = 0, number = 0;
        for (; tried < bucket.count; tried++) { /* own segment first, as format_bucket_free_slot */
            number = bucket.number % 2 ? last - tried : bucket.first + tried;
            if (!bit_get(used, number))
                break;
        }
        if (tried == bucket.count)
            return false;
        bit_set(used, number);
        entries[i].number = number;
    }
    return true;
}

/* The left leaf as it will be, but for its header, into session->spare: its own entries where they are, the
 * right leaf's where place_all put them, all under the next version. */
static void left_build(const struct merge *merge, uint16_t version, const struct tree_leaf_entry *entries,
                       uint32_t count)
{
    struct tree_session *session = merge->session;
    const struct format_layout *layout = &merge->tree->layout;
    const struct format_key lower = merge->left.lower;
    const uint32_t seed = format_slot_seed(merge->left.tag, version);
    uint8_t *image = session->spare;
    memcpy(image, session->image.bytes, layout->geometry.leaf_bytes);
    heads_write(layout, image, version);
    for (uint32_t number = 0; number < layout->slots; number++)
        if (bit_get(merge->own, number))
            format_slot_renew(layout, image, number, seed, lower);
        else
            format_slot_clear(layout, image, number, seed);
    for (uint32_t i = 0; i < count; i++)
        format_slot_write(layout, image, entries[i].number, seed, lower, entries[i].block, entries[i].key,
                          entries[i].value);
}

/* The right leaf in session->scratch becomes an empty one under its next version: whoever still has its old
 * header finds no slot of that header's version. */
static void right_empty(const struct merge *merge, uint16_t version)
{
    const struct format_layout *layout = &merge->tree->layout;
    uint8_t *image = merge->session->scratch;
    heads_write(layout, image, version);
    for (uint32_t number = 0; number < layout->slots; number++)
        format_slot_clear(layout, image, number, format_slot_seed(merge->right.tag, version));
}

/* ---- writing ---- */

enum { FROZEN, MARKED, DEAD, FINAL };

/* From what the headers are now, before the merge or in the middle of it. */
static void headers_make(struct merge *merge, enum stage stage)
{
    const struct format_layout *layout = &merge->tree->layout;
    struct format_header left = merge->left, right = merge->right;
    right.state = FORMAT_NODE_FROZEN;
    format_header_encode(layout, &right, merge->headers[FROZEN]);
    right.state = FORMAT_NODE_DEAD;
    right.version++;
    format_header_encode(layout, &right, merge->headers[DEAD]);
    if (stage == FREEZE)
        left.version++;
    left.state = FORMAT_NODE_MERGING;
    format_header_encode(layout, &left, merge->headers[MARKED]);
    left.state = FORMAT_NODE_LIVE;
    left.has_upper = merge->right.has_upper;
    left.upper = merge->right.upper;
    left.sibling = merge->right.sibling;
    format_header_encode(layout, &left, merge->headers[FINAL]);
}

static struct fabric_command header_write(const struct merge *merge, gaddr leaf, unsigned which)
{
    return pool_write_command(leaf, merge->headers[which], merge->tree->layout.header_bytes);
}

static struct fabric_command body_write(const struct merge *merge, gaddr leaf, const uint8_t *image)
{
    const struct format_layout *layout = &merge->tree->layout;
    return pool_write_command(leaf + layout->header_bytes, image + layout->header_bytes,
                              layout->geometry.leaf_bytes - layout->header_bytes);
}

/*
 * R7, from the stage on. One list where both leaves lie on one memory node, else each list is done before the
 * next is posted. The right leaf's lock is given up in any case; the left one's with `hold`, and not with
 * NULL.
 */
static int write_merge(struct merge *merge, enum stage stage, struct tree_hold *hold)
{
    struct tree_session *session = merge->session;
    const gaddr left = merge->left_link.address, right = merge->right_link.address;
    const bool together = gaddr_node(left) == gaddr_node(right);
    struct fabric_command writes[8];
    uint32_t count = 0;
    int status = 0;
    tree_leaf_death(session);
    headers_make(merge, stage);
    if (stage == FREEZE)
        writes[count++] = header_write(merge, right, FROZEN);
    if (count && !together) {
        status = pool_execute(&session->pool, gaddr_node(right), writes, count);
        count = 0;
    }
    if (!status && stage <= COPY) {
        writes[count++] = header_write(merge, left, MARKED);
        writes[count++] = body_write(merge, left, session->spare);
        if (!together) {
            status = tree_leaf_execute(session, merge->tree, left, writes, count);
            count = 0;
        }
    }
    if (!status && stage <= EMPTY) {
        right_empty(merge, (uint16_t)(merge->right.version + 1));
        writes[count++] = body_write(merge, right, session->scratch);
        writes[count++] = header_write(merge, right, DEAD);
    }
    if (!together || status) {
        int released = right_release(merge, writes, status ? 0 : count);
        status = status ? status : released;
        count = 0;
    }
    if (!status)
        writes[count++] = header_write(merge, left, FINAL);
    bool both = together && !status && !merge->shared;
    if (both && !merge->right_hold.owned)
        writes[count++] = tree_unlock_command(session, &merge->right_hold);
    if (hold) {
        int released = tree_leaf_release(session, merge->tree, hold, writes, count);
        status = status ? status : released;
    } else if (count) {
        status = tree_leaf_execute(session, merge->tree, left, writes, count);
    }
    if (both && merge->right_hold.owned)
        tree_owned_end(session, merge->tree, right, BANYAN_EUNKNOWN, NULL, 0);
    if (both)
        tree_lock_abandon(session, &merge->right_hold, status);
    return status;
}

/* ---- a merge ---- */

/* Under both locks: whether the leaves are what they should be and fit together. The right leaf's entries are
 * in session->entries then, each with its new slot. TREE_RESTART: no. */
static int merge_prepare(struct merge *merge, uint32_t *count)
{
    struct tree_session *session = merge->session;
    struct tree *tree = merge->tree;
    const struct format_layout *layout = &tree->layout;
    const uint8_t *left = session->image.bytes, *right = session->scratch;
    if (format_node_verdict(layout, left, merge->left_link, tree->index, 0, &merge->left) != FORMAT_LIVE ||
        format_node_verdict(layout, right, merge->right_link, tree->index, 0, &merge->right) != FORMAT_LIVE ||
        !names(&merge->left, merge->right_link, merge->right.lower) ||
        tree_rights_first(session, merge->right.lower) || !tree_rights_cover(session, merge->left.lower) ||
        !tree_rights_cover(session, merge->right.lower) || !tree_merge_whole(layout, left, &merge->left) ||
        !heads_are(layout, right, merge->right.version))
        return TREE_RESTART;
    own_note(merge, left);
    int status = tree_leaf_entries(session, layout, right, &merge->right, count);
    if (status)
        return status;
    headers_keep(merge);
    bool fits = merge->own_count + *count <= tree_merge_limit(layout);
    return fits && place_all(merge, session->entries, *count) ? 0 : TREE_RESTART;
}

/* Up to the left leaf's last header. */
static int merge_run(struct merge *merge, bool *merged)
{
    struct tree_session *session = merge->session;
    const struct format_layout *layout = &merge->tree->layout;
    const uint32_t bytes = layout->geometry.leaf_bytes;
    struct tree_hold hold;
    uint32_t entries;
    gaddr left = merge->left_link.address;
    struct fabric_command read = pool_read_command(left, session->image.bytes, bytes);
    int status = tree_leaf_lock(session, merge->tree, left, false, &read, 1, &hold);
    if (status)
        return status;
    pool_read_settle(&read);
    session->image.address = GADDR_NULL; /* a waiter of ours must not be given this image */
    status = right_lock(merge, pool_read_command(merge->right_link.address, session->scratch, bytes));
    if (!status) {
        status = merge_prepare(merge, &entries);
        if (!status) {
            task_charge(TASK_WORK_SPLIT, 1);
            left_build(merge, (uint16_t)(merge->left.version + 1), session->entries, entries);
            status = write_merge(merge, FREEZE, &hold);
            *merged = !status;
            return status;
        }
        status = right_release_with(merge, status);
    }
    status = tree_leaf_release_with(session, merge->tree, &hold, status);
    return status == TREE_RESTART ? 0 : status;
}

int tree_merge(struct tree_session *session, struct tree *tree, struct format_link left,
               struct format_link right, bool *merged)
{
    struct merge merge;
    *merged = false;
    if (tree->layout.slots > SLOTS_MAX)
        return 0;
    merge_start(&merge, session, tree, left, right);
    int status = merge_run(&merge, merged);
    if (status || !*merged)
        return status;
    session->stats.merges++;
    /* Any session can do the rest: the leaf is dead, and its left neighbour does not name it any more. */
    return tree_parent_drop(session, tree, 1, format_key_of(&merge.middle), right);
}

/* ---- what a death left ---- */

/* Under both locks. The right leaf tells how far the merge had come. */
static int stage_find(struct merge *merge, enum stage *stage)
{
    struct tree_session *session = merge->session;
    const struct format_layout *layout = &merge->tree->layout;
    enum format_verdict verdict = format_node_verdict(layout, session->scratch, merge->right_link,
                                                      merge->tree->index, 0, &merge->right);
    if ((verdict != FORMAT_FROZEN && verdict != FORMAT_DEAD) ||
        !names(&merge->left, merge->right_link, merge->right.lower))
        return pool_corrupt(&session->pool, merge->right_link.address,
                            "the right neighbour of a merging leaf is neither frozen nor dead");
    *stage = verdict == FORMAT_DEAD                                      ? CONCLUDE
             : tree_merge_whole(layout, session->scratch, &merge->right) ? COPY
                                                                         : EMPTY;
    headers_keep(merge);
    return 0;
}

/* The left leaf again from both: what it had of the right one's is not among its own. */
static int copy_again(struct merge *merge)
{
    struct tree_session *session = merge->session;
    const struct format_layout *layout = &merge->tree->layout;
    uint32_t count;
    int status = tree_leaf_halves(session, layout, session->image.bytes, &merge->left, &count);
    for (uint32_t i = 0; !status && i < count; i++)
        if (format_key_compare(session->entries[i].key, merge->left.upper) < 0)
            bit_set(merge->own, session->entries[i].number);
    if (!status)
        status = tree_leaf_entries(session, layout, session->scratch, &merge->right, &count);
    if (status)
        return status == TREE_RESTART ? pool_corrupt(&session->pool, merge->left_link.address,
                                                     "a half-merged leaf's slots do not fit together")
                                      : status;
    if (!place_all(merge, session->entries, count))
        return pool_corrupt(&session->pool, merge->left_link.address,
                            "a half-merged leaf has no room for its right neighbour's entries");
    left_build(merge, merge->left.version, session->entries, count);
    return 0;
}

static int finish(struct merge *merge)
{
    struct tree_session *session = merge->session;
    const struct format_layout *layout = &merge->tree->layout;
    const uint32_t bytes = layout->geometry.leaf_bytes;
    enum stage stage = COPY;
    int status = stage_find(merge, &stage);
    if (!status && stage == COPY)
        status = copy_again(merge);
    else if (!status && !tree_merge_whole(layout, session->image.bytes, &merge->left))
        status = pool_corrupt(&session->pool, merge->left_link.address,
                              "a merged leaf has a slot of another version");
    else if (!status)
        memcpy(session->spare, session->image.bytes, bytes);
    if (status)
        return right_release_with(merge, status);
    status = write_merge(merge, stage, NULL);
    memcpy(session->image.bytes, session->spare, bytes);
    memcpy(session->image.bytes, merge->headers[FINAL], layout->header_bytes);
    return status;
}

int tree_merge_finish(struct tree_session *session, struct tree *tree, struct format_link link)
{
    const struct format_layout *layout = &tree->layout;
    struct merge merge;
    struct format_header left;
    if (!format_header_decode(layout, session->image.bytes, &left) || left.state != FORMAT_NODE_MERGING ||
        !left.has_upper || left.sibling.address == link.address || layout->slots > SLOTS_MAX)
        return pool_corrupt(&session->pool, link.address, "a half-merged leaf's header is malformed");
    merge_start(&merge, session, tree, link, left.sibling);
    merge.left = left;
    int status = right_lock(
        &merge, pool_read_command(left.sibling.address, session->scratch, layout->geometry.leaf_bytes));
    if (status == TREE_RESTART) /* nothing was done */
        return status;
    if (!status)
        status = finish(&merge);
    if (status)
        session->image.address = GADDR_NULL; /* the pool may not have what the image says */
    return status;
}

/*
 * Under the left neighbour's lock, which has not begun to take the leaf over. The list that takes the leaf's
 * own lock does not prove that the neighbour's is still held, if that is another memory node's: another
 * session may have begun since, and died. The list behind it does: it is refused where that lock was lost,
 * and from here on nobody can begin.
 */
static int thaw(struct tree_session *session, struct tree *tree, struct format_link left,
                struct format_link link)
{
    const struct format_layout *layout = &tree->layout;
    struct merge merge;
    struct fabric_command writes[2];
    uint32_t count = 0;
    merge_start(&merge, session, tree, left, link);
    int status = right_lock(&merge, pool_read_command(link.address, session->scratch, layout->header_bytes));
    if (status)
        return status;
    if (gaddr_node(left.address) != gaddr_node(link.address)) {
        struct fabric_command proof = pool_read_command(left.address, session->spare, layout->header_bytes);
        status = tree_leaf_execute(session, tree, left.address, &proof, 1);
        if (status)
            return right_release_with(&merge, status);
    }
    if (format_node_verdict(layout, session->scratch, link, tree->index, 0, &merge.right) == FORMAT_FROZEN) {
        merge.right.state = FORMAT_NODE_LIVE;
        format_header_encode(layout, &merge.right, session->scratch);
        writes[count++] = pool_write_command(link.address, session->scratch, layout->header_bytes);
    }
    return right_release(&merge, writes, count);
}

int tree_merge_thaw(struct tree_session *session, struct tree *tree, struct format_link link,
                    const struct format_header *header)
{
    struct format_key_copy lower;
    format_key_store(&lower, header->lower);
    for (;;) {
        struct tree_path path;
        struct tree_hold hold;
        struct format_header left;
        int status = tree_left_lock(session, tree, format_key_of(&lower), &path, &hold, &left);
        if (!status) {
            if (names(&left, link, format_key_of(&lower)))
                status = thaw(session, tree, path.link, link);
            session->image.address = GADDR_NULL;
            status = tree_leaf_release_with(session, tree, &hold, status);
        } else if (status == TREE_SIDEWAYS) { /* a dead leaf goes first */
            status = tree_unlink_finish(session, tree, path.link, &left);
            status = status ? status : TREE_RESTART;
        }
        if (status != TREE_RESTART)
            return status;
        status = tree_restart(session, link.address);
        if (status)
            return status;
    }
}
