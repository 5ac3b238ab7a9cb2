/*
 * merge_walk.c - the walk that looks for sparse leaves and merges them (tree.h: tree_merge_step). One round
 * trip reads up to 32 leaves of one parent, without locks; what they hold is an estimate, and the merge
 * itself (merge.c) looks again under the locks. What deaths have left half done in leaves that the walk
 * meets, it finishes. It walks over ranges that this process may change, row by row of the table of rights,
 * and passes the others by.
 */
#include <assert.h>
#include <string.h>

#include "base/atomic.h"
#include "base/epoch.h"
#include "format/verdict.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/cache.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/merge.h"
#include "tree/session.h"
#include "tree/unlink.h"

#define FAMILY_MAX 32u
#define FULL       UINT32_MAX /* the count of a leaf that is not to be merged */

/* Neighbouring leaves that one parent names. */
struct family {
    struct format_link links[FAMILY_MAX];
    uint32_t counts[FAMILY_MAX]; /* taken slots, about */
    uint32_t count;
    struct format_key_copy next; /* where the walk goes on */
    bool last;                   /* nowhere: the index ends here */
};

static struct format_key cursor_key(const struct tree *tree, const struct tree_merge_cursor *cursor)
{
    return cursor->length ? (struct format_key){cursor->key, cursor->length}
                          : format_key_least(&tree->layout);
}

static bool beyond_row(const struct tree_session *session, struct format_key lower)
{
    return session->row->has_upper && format_key_compare(lower, session->row->upper) >= 0;
}

/* The leaf at the cursor, and those to its right that its parent names too. TREE_RESTART: the parent is not
 * cached any more. */
static int family_find(struct tree_session *session, struct tree *tree,
                       const struct tree_merge_cursor *cursor, struct family *family)
{
    const struct format_layout *layout = &tree->layout;
    struct format_key key = cursor_key(tree, cursor);
    struct tree_path path;
    family->count = 0;
    family->last = false;
    int status = tree_locate(session, tree, key, false, 0, &path);
    if (status)
        return status;
    if (!path.parent.address) { /* the only leaf */
        family->last = true;
        return 0;
    }
    epoch_enter(session->pool.epoch);
    struct tree_frame *frame = tree_frame_find(session, tree, path.parent);
    if (frame) {
        uint32_t entry = tree_frame_search(layout, frame, key, false);
        bool border = false;
        struct tree_key_room room;
        for (; entry < frame->count && family->count < FAMILY_MAX && !border; entry++) {
            border = family->count && beyond_row(session, tree_frame_key(layout, frame, entry, &room));
            if (border)
                break;
            struct format_link link = tree_frame_link(frame, entry);
            if (link.address != GADDR_NULL) /* a gap is nobody's */
                family->links[family->count++] = link;
        }
        bool more = entry < frame->count;
        family->last = !more && !frame->has_upper;
        /* The last one is the left neighbour of what follows, but over a border (O3) nothing is merged. */
        format_key_store(&family->next, border
                                            ? session->row->upper
                                            : tree_frame_key(layout, frame, more ? entry - 1 : entry, &room));
    }
    epoch_leave(session->pool.epoch);
    return frame ? 0 : TREE_RESTART;
}

static uint32_t count_taken(const struct format_layout *layout, const uint8_t *image)
{
    uint32_t taken = 0;
    for (uint32_t number = 0; number < layout->slots; number++)
        taken += image[layout->slot_offset[number]] & 1u; /* of a check, little-endian */
    return taken;
}

/* What is half done in a leaf that was met, is finished. */
static int leaf_settle(struct tree_session *session, struct tree *tree, struct format_link link,
                       enum format_verdict verdict, const struct format_header *header)
{
    bool covered = verdict != FORMAT_TORN && verdict != FORMAT_MALFORMED && verdict != FORMAT_OTHER &&
                   tree_rights_cover(session, header->lower);
    switch (verdict) {
    case FORMAT_FROZEN:
        return covered ? tree_merge_thaw(session, tree, link, header) : 0;
    case FORMAT_DEAD:
        return tree_rights_cover_below(session, header->lower)
                   ? tree_unlink_finish(session, tree, link, header)
                   : 0;
    case FORMAT_SPLITTING:
    case FORMAT_MERGING:
        return covered ? tree_leaf_settle(session, tree, link) : 0;
    default:
        return 0; /* changed, or torn: the next walk sees it again */
    }
}

/* Reads all of them, and estimates how full they are. */
static int family_read(struct tree_session *session, struct tree *tree, struct family *family)
{
    const struct format_layout *layout = &tree->layout;
    const uint32_t bytes = layout->geometry.leaf_bytes;
    struct fabric_command reads[FAMILY_MAX];
    struct fabric_list lists[FAMILY_MAX], *pointers[FAMILY_MAX];
    int status = tree_reserve_wide(session, (size_t)FAMILY_MAX * bytes);
    if (status)
        return status;
    for (uint32_t i = 0; i < family->count; i++) {
        reads[i] = pool_read_command(family->links[i].address, session->wide + (size_t)i * bytes, bytes);
        lists[i] = (struct fabric_list){
            .node = gaddr_node(family->links[i].address), .count = 1, .commands = &reads[i]};
        pointers[i] = &lists[i];
    }
    status = tree_leaves_read(session, tree, pointers, family->count);
    for (uint32_t i = 0; i < family->count && status; i++)
        if (lists[i].status)
            return pool_list_failed(&session->pool, lists[i].status, &reads[i], 1);
    if (status)
        return pool_fail(&session->pool, status, "reading leaves: %s", error_name(status));
    for (uint32_t i = 0; i < family->count; i++)
        pool_read_settle(&reads[i]);
    for (uint32_t i = 0; i < family->count; i++) {
        const uint8_t *image = session->wide + (size_t)i * bytes;
        struct format_header header;
        enum format_verdict verdict =
            format_node_verdict(layout, image, family->links[i], tree->index, 0, &header);
        tree_charge_leaf(session, layout);
        family->counts[i] = verdict == FORMAT_LIVE ? count_taken(layout, image) : FULL;
        status = leaf_settle(session, tree, family->links[i], verdict, &header);
        if (status)
            return status;
    }
    return 0;
}

static int family_merge(struct tree_session *session, struct tree *tree, struct family *family,
                        struct tree_merge_report *report)
{
    const uint32_t limit = tree_merge_limit(&tree->layout);
    int status = 0;
    for (uint32_t left = 0, right = 1; !status && right < family->count; right++) {
        uint32_t *counts = family->counts;
        bool merged = false;
        if (counts[left] <= limit && counts[right] <= limit - counts[left])
            status = tree_merge(session, tree, family->links[left], family->links[right], &merged);
        report->merges += merged;
        if (merged)
            counts[left] += counts[right];
        else
            left = right;
    }
    return status;
}

/* The way to the cursor leads to the parent left of its own, whose entry above is not posted yet (a split
 * that found no room for it): goes on behind the cursor's leaf. */
static int pass_over(struct tree_session *session, struct tree *tree, struct tree_merge_cursor *cursor,
                     struct tree_merge_report *report)
{
    struct tree_place place;
    struct tree_place_bound bound;
    tree_rights_leave(session); /* that is an operation of its own */
    int status = tree_place_after(session, tree, cursor->key, cursor->length, &place, &bound);
    if (status && status != BANYAN_ENOTFOUND)
        return status;
    report->leaves++;
    report->ended = status != 0;
    cursor->length = status ? 0 : (uint16_t)bound.length;
    memcpy(cursor->key, bound.bytes, cursor->length);
    return 0;
}

static bool moves_on(const struct family *family, const struct tree_merge_cursor *cursor)
{
    return family->last || !cursor->length ||
           format_key_compare(format_key_of(&family->next),
                              (struct format_key){cursor->key, cursor->length}) > 0;
}

static int step(struct tree_session *session, struct tree *tree, struct tree_merge_cursor *cursor,
                struct tree_merge_report *report)
{
    struct family family;
    int status = family_find(session, tree, cursor, &family);
    if (!status && !moves_on(&family, cursor))
        return pass_over(session, tree, cursor, report);
    if (!status && family.count > 1)
        status = family_read(session, tree, &family);
    if (!status && family.count > 1)
        status = family_merge(session, tree, &family, report);
    if (status)
        return status;
    report->leaves += family.count;
    report->ended = family.last;
    cursor->length = family.last ? 0 : family.next.length;
    memcpy(cursor->key, family.next.bytes, cursor->length);
    return 0;
}

/* The row at the cursor is not this process's to change: goes on behind it. */
static void row_pass(struct tree_session *session, struct tree *tree, struct tree_merge_cursor *cursor,
                     struct tree_merge_report *report)
{
    struct format_key_copy end;
    report->ended = !tree_rights_end(session, tree, cursor_key(tree, cursor), false, &end);
    report->leaves++; /* so that a walk over nothing but such rows ends */
    cursor->length = report->ended ? 0 : end.length;
    memcpy(cursor->key, end.bytes, cursor->length);
}

int tree_merge_step(struct tree_session *session, struct tree *tree, struct tree_merge_cursor *cursor,
                    uint32_t budget, struct tree_merge_report *report)
{
    *report = (struct tree_merge_report){0};
    int status = tree_begin(session, tree);
    session->stats.operations--; /* it is background work, not a client's */
    while (!status && !report->ended && report->leaves < budget) {
        if (tree_rights_enter(session, tree, cursor_key(tree, cursor)) <= TREE_OWNED)
            status = step(session, tree, cursor, report);
        else
            row_pass(session, tree, cursor, report);
        bool stale = tree_rights_stale(session, &status);
        tree_rights_leave(session);
        if (stale)
            return pool_fail(&session->pool, BANYAN_EFENCED,
                             "index %s: a connection was lost, and the map of ranges is not fetched yet",
                             tree->name);
        if (status > 0)
            status = tree_restart(session, tree->root_word);
        else if (!status)
            session->restarts = session->invalid = session->astray = session->walked = 0;
        tree_again(session, tree, &status);
    }
    return status;
}
