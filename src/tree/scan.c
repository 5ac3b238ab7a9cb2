/*
 * scan.c - Ranges in both directions: R5. One round trip for all leaves that one cached parent names, up
 * to 32. The right is entered anew for each such step, so that a long scan holds up no transfer. In a range
 * that is another's nothing is helped: where a leaf stays unreadable its owner is asked for a key of it, and
 * settles it then. Where the range is logged, too, the owner delivers the entries (tree_scan_here is its side
 * of it); only the place of a leaf is still read there, since fences and links are never logged.
 */
#include <assert.h>
#include <string.h>

#include "base/atomic.h"
#include "base/epoch.h"
#include "base/task.h"
#include "format/verdict.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/cache.h"
#include "tree/entries.h"
#include "tree/forward.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/logged.h"
#include "tree/owned_cache_use.h"
#include "tree/session.h"
#include "tree/turn.h"
#include "tree/unlink.h"
#include "tree/walk.h"

/*
 * A scan keeps a position: the key up to which everything has been delivered. It asks the cache for the
 * leaves from there on that one parent names, READs them together, and delivers each whose fences continue
 * exactly at the position (R5). Whatever does not fit - a leaf that has split, died or was caught in a write
 * - is simply located and read again from the position: nothing is delivered twice and nothing is passed
 * over.
 */
/* A walk brings no more of them: a memory node's CPU looks at each, and many READs under way take hardly
 * longer than one. */
#define WALKED_MAX 8u
#define AHEAD_MAX  32u

struct scan {
    struct tree_session *session;
    struct tree *tree;
    const struct tree_range *range;
    tree_visit_function *visit;
    void *context;
    uint64_t left; /* of the limit */
    bool stopped;
    struct format_key_copy position; /* forward: keys from here on are due; reverse: keys below it */
    struct format_key_copy bound;    /* of another's row at the position, in the scan's direction ... */
    bool bounded;                    /* ... if there is one: its leaves are read without an announcement */
    bool unbounded;                  /* reverse: from the very end, whatever the position says */
    /* Not NULL: the right neighbour of the leaf at the position is looked for, and no entry is delivered; the
     * position then is where that neighbour begins. */
    struct tree_place *neighbour;
    struct format_key_copy stuck;   /* TREE_FORWARD: a key that the leaf in the way may hold */
    uint64_t leaves;                /* delivered */
    const struct unmerged_run *run; /* of the step; NULL: nothing is logged there */
    uint32_t run_next;              /* of its entries */
    bool mapped;                    /* the leaves of the step are this process's own memory */
    bool asked;                     /* the owner of the leaf in the way, since the last one was delivered */
    bool here; /* for a peer: within this process's own rows, and a refused entry is not taken */
    bool cut;  /* then: it stopped within a leaf, or at a row that is not this process's */
};

struct ahead {
    struct format_link links[AHEAD_MAX];
    uint32_t count;
    struct tree_path path; /* to the first */
};

/* ---- which leaves ---- */

static uint32_t entries_expected(const struct scan *scan)
{
    const uint32_t per_leaf = scan->session->entries_estimate / 16;
    return per_leaf ? per_leaf : scan->tree->layout.slots * 2 / 3 + 1;
}

static uint32_t leaves_wanted(const struct scan *scan)
{
    const uint32_t per_leaf = entries_expected(scan);
    uint64_t wanted = scan->left == UINT64_MAX ? AHEAD_MAX : scan->left / per_leaf + 2;
    return wanted > AHEAD_MAX ? AHEAD_MAX : (uint32_t)wanted;
}

/* Forward: stop at leaves that begin beyond the range's end. */
static bool past_end(const struct scan *scan, struct format_key lower)
{
    const struct tree_range *range = scan->range;
    if (scan->range->reverse || !range->to)
        return false;
    int order = format_key_compare(lower, (struct format_key){range->to, (uint32_t)range->to_length});
    return range->to_open ? order >= 0 : order > 0;
}

/* Stop at leaves of another row: what this process knows of them is not covered by its announcement, and of
 * another's row that is logged the leaves do not tell all. */
static bool past_row(const struct scan *scan, struct format_key lower)
{
    const struct tree_row *row = scan->session->row;
    if (!row && scan->bounded) {
        int order = format_key_compare(lower, format_key_of(&scan->bound));
        return scan->range->reverse ? order < 0 : order >= 0;
    }
    if (!row || scan->session->table->count == 1)
        return false;
    return scan->range->reverse ? format_key_compare(lower, row->lower) < 0
                                : row->has_upper && format_key_compare(lower, row->upper) >= 0;
}

/* Of a way that was walked the leaves that came with it; the frame that names them need not be cached. */
static void look_at_brought(struct scan *scan, struct ahead *ahead)
{
    struct memory_walk_reader at = {0};
    struct format_link link;
    struct format_header header;
    for (uint32_t i = 0; i < WALKED_MAX && tree_walk_look(scan->session, scan->tree, &at, &link, &header);
         i++) {
        if (i && (past_end(scan, header.lower) || past_row(scan, header.lower)))
            return;
        ahead->links[i] = link;
        ahead->count = i + 1;
    }
}

/* Mapped bytes may still have to come from memory: they do so while other work is done. */
static void leaf_prefetch(const uint8_t *data, uint32_t bytes)
{
    const uint8_t *end = data + (bytes < 4096 ? bytes : 4096);
#pragma GCC unroll 8
    for (const uint8_t *line = data; line < end; line += 64)
        __builtin_prefetch(line);
}

/* The first leaf is asked for as soon as it is known, where it is mapped. */
static void first_prefetch(const struct scan *scan, gaddr leaf)
{
    const uint32_t bytes = scan->tree->layout.used_bytes;
    const uint8_t *data = fabric_window(scan->session->pool.fabric, leaf, bytes);
    if (data)
        leaf_prefetch(data, bytes);
}

/* The leaf at the position, and those after it in the scan's direction that its parent names too. */
static int look_ahead(struct scan *scan, struct ahead *ahead)
{
    struct tree_session *session = scan->session;
    struct tree *tree = scan->tree;
    struct format_key position = format_key_of(&scan->position);
    bool before = scan->range->reverse;
    const uint32_t wanted = leaves_wanted(scan);
    session->leaves = wanted <= WALKED_MAX ? wanted : 0;
    int status = tree_locate(session, tree, position, before, 0, &ahead->path);
    if (status)
        return status;
    ahead->links[0] = ahead->path.link;
    ahead->count = 1;
    first_prefetch(scan, ahead->links[0].address);
    look_at_brought(scan, ahead);
    if (ahead->count > 1 || !ahead->path.direct || !ahead->path.parent.address)
        return 0;
    epoch_enter(session->pool.epoch);
    struct tree_frame *frame = tree_frame_find(session, tree, ahead->path.parent);
    uint32_t entry = frame ? tree_frame_search(&tree->layout, frame, position, before) : 0;
    while (frame && ahead->count < wanted) {
        if (before ? !entry : entry + 1 >= frame->count)
            break;
        entry = before ? entry - 1 : entry + 1;
        struct tree_key_room room;
        struct format_key lower = tree_frame_key(&tree->layout, frame, entry, &room);
        struct format_link link = tree_frame_link(frame, entry);
        if (link.address == GADDR_NULL || past_end(scan, lower) || past_row(scan, lower))
            break;
        ahead->links[ahead->count++] = link;
    }
    epoch_leave(session->pool.epoch);
    return 0;
}

/* How many of them a walk has brought: they come as if they had been READ (R5; in owned ranges W11). */
static uint32_t take_brought(struct scan *scan, const struct ahead *ahead)
{
    struct tree_session *session = scan->session;
    uint32_t count = 0;
    uint64_t moment;
    for (; count < ahead->count; count++) {
        const gaddr leaf = ahead->links[count].address;
        uint8_t *to = session->wide + (size_t)count * scan->tree->layout.geometry.leaf_bytes;
        if (!tree_walk_brought(session, scan->tree, ahead->links[count], to, &moment))
            break;
        if (tree_owned_wants(session, scan->tree))
            tree_owned_offer(session, scan->tree, leaf, to,
                             tree_owned_stamp_since(session, scan->tree, leaf, moment));
    }
    return count;
}

/* Finds all of them where they are mapped here and none is cached: what read_leaves does, without lists.
 * False: it is not so, and nothing is counted. */
static bool find_leaves(struct scan *scan, const struct ahead *ahead, const uint8_t **data)
{
    struct tree_session *session = scan->session;
    struct tree_spot spot;
    if (!session->access->find || scan->tree->owned)
        return false;
    for (uint32_t i = 0; i < ahead->count; i++) {
        if (!session->access->find(session, scan->tree, ahead->links[i].address, false, &spot))
            return false;
        data[i] = spot.bytes;
    }
    session->access->count_leaves(session, scan->tree, ahead->count);
    session->cached = false; /* as after a list: nothing that could be lost lies between (O2) */
    return true;
}

/* Reads all of them in one round trip; data[i] is leaf i's bytes (mapped ones are copied when their turn
 * comes). */
static int read_leaves(struct scan *scan, const struct ahead *ahead, const uint8_t **data)
{
    struct tree_session *session = scan->session;
    const uint32_t bytes = scan->tree->layout.geometry.leaf_bytes, used = scan->tree->layout.used_bytes;
    struct fabric_command reads[AHEAD_MAX];
    struct fabric_list lists[AHEAD_MAX], *pointers[AHEAD_MAX];
    scan->mapped = find_leaves(scan, ahead, data);
    if (scan->mapped)
        return tree_lapsed(session) ? TREE_LAPSED : 0;
    int status = tree_reserve_wide(session, (size_t)AHEAD_MAX * bytes);
    if (status)
        return status;
    for (uint32_t i = 0; i < ahead->count; i++) {
        uint8_t *buffer = session->wide + (size_t)i * bytes;
        memset(buffer + used, 0, bytes - used); /* the cache wants leaves whole */
        reads[i] = pool_read_command(ahead->links[i].address, buffer, used);
        lists[i] = (struct fabric_list){
            .node = gaddr_node(ahead->links[i].address), .count = 1, .commands = &reads[i]};
        pointers[i] = &lists[i];
    }
    const uint32_t brought = take_brought(scan, ahead);
    for (uint32_t i = 0; i < brought; i++)
        reads[i].read.data = reads[i].read.buffer;
    if (brought < ahead->count)
        status = tree_leaves_read(session, scan->tree, pointers + brought, ahead->count - brought);
    for (uint32_t i = brought; i < ahead->count && status; i++)
        if (lists[i].status)
            return pool_list_failed(&session->pool, lists[i].status, &reads[i], 1);
    if (status)
        return pool_fail(&session->pool, status, "reading leaves: %s", error_name(status));
    for (uint32_t i = 0; i < ahead->count; i++)
        data[i] = reads[i].read.data;
    /* O2, before anything of it is delivered. */
    return tree_lapsed(session) ? TREE_LAPSED : 0;
}

/* ---- delivering one leaf ---- */

/* The key lies before all that is due, in key order. */
static bool below(const struct scan *scan, struct format_key key)
{
    const struct tree_range *range = scan->range;
    if (!range->reverse && format_key_compare(key, format_key_of(&scan->position)) < 0)
        return true;
    if (!range->from)
        return false;
    int order = format_key_compare(key, (struct format_key){range->from, (uint32_t)range->from_length});
    return order < 0 || (!order && range->from_open);
}

/* The key lies behind all that is due. */
static bool above(const struct scan *scan, struct format_key key)
{
    const struct tree_range *range = scan->range;
    if (range->reverse && !scan->unbounded && format_key_compare(key, format_key_of(&scan->position)) >= 0)
        return true;
    if (!range->to)
        return false;
    int order = format_key_compare(key, (struct format_key){range->to, (uint32_t)range->to_length});
    return order > 0 || (!order && range->to_open);
}

/* How many of the sorted entries, of which there are some, have heads below the position's: by halves,
 * without a branch on what they are. */
static uint32_t below_position(const struct scan *scan, uint32_t count)
{
    const struct crc32c_piece *order = scan->session->order;
    const uint64_t head = format_key_head(format_key_of(&scan->position));
    uint32_t low = 0;
    for (uint32_t left = count, half; left > 1; left -= half) {
        half = left / 2;
        low += order[low + half - 1].head < head ? half : 0;
    }
    return low + (order[low].head < head);
}

/* What a search among the sorted entries knows: those below low satisfy the condition, those from high on do
 * not. */
struct leading {
    const struct scan *scan;
    const uint8_t *image;
    bool (*condition)(const struct scan *, struct format_key);
    bool wanted;
    uint32_t low, high;
};

/* Looks at one entry, unless it is known. */
static void leading_look(struct leading *leading, uint32_t at)
{
    struct tree_leaf_entry entry;
    if (at < leading->low || at >= leading->high)
        return;
    tree_leaf_entry_at(leading->scan->session, &leading->scan->tree->layout, leading->image, at, &entry);
    if (leading->condition(leading->scan, entry.key) == leading->wanted)
        leading->low = at + 1;
    else
        leading->high = at;
}

/* How many of the sorted entries satisfy a condition that holds for the first so many: most often none or
 * all, or those below the position. */
static uint32_t leading(const struct scan *scan, const uint8_t *image, uint32_t count,
                        bool (*condition)(const struct scan *, struct format_key), bool wanted)
{
    struct leading leading = {scan, image, condition, wanted, 0, count};
    leading_look(&leading, wanted ? 0 : count - 1);
    if (leading.low < leading.high) {
        const uint32_t near = below_position(scan, count);
        leading_look(&leading, near - 1);
        leading_look(&leading, near);
    }
    while (leading.low < leading.high)
        leading_look(&leading, leading.low + (leading.high - leading.low) / 2);
    return leading.low;
}

/* How many of the sorted entries lie below the upper fence. All of them, but for a leaf that was widened over
 * its dead neighbour while it was read: its header was fetched before, and a slot that got a key of that
 * neighbour's range after. Such a key comes when the scan has got there. */
static uint32_t within(const struct scan *scan, const struct format_header *header, const uint8_t *image,
                       uint32_t count)
{
    struct tree_leaf_entry entry;
    for (; header->has_upper && count; count--) {
        tree_leaf_entry_at(scan->session, &scan->tree->layout, image, count - 1, &entry);
        if (format_key_compare(entry.key, header->upper) < 0)
            break;
    }
    return count;
}

/* The smallest byte string above the position; false if there is none of at most FORMAT_KEY_MAX bytes. */
static bool position_successor(struct format_key_copy *position)
{
    if (position->length < FORMAT_KEY_MAX) {
        position->bytes[position->length++] = 0;
        return true;
    }
    for (uint32_t i = FORMAT_KEY_MAX; i--;)
        if (++position->bytes[i])
            return true;
    return false;
}

/* A peer's part ends at this entry: the rest of the leaf is due still. */
static void cut_at(struct scan *scan, struct format_key key, bool taken)
{
    format_key_store(&scan->position, key);
    scan->unbounded = false;
    scan->cut = true;
    if (scan->range->reverse ? taken : !taken)
        return;
    bool above = position_successor(&scan->position);
    assert(above || taken); /* the greatest key comes first in reverse, and is taken */
    scan->cut = above;      /* nothing lies above */
}

/* Behind this entry nothing is delivered any more: the visitor has refused it, or the limit is reached. */
static void deliver_stop(struct scan *scan, struct format_key key, bool taken)
{
    scan->stopped = true;
    if (scan->here)
        cut_at(scan, key, taken);
}

static inline void deliver_one(struct scan *scan, struct format_key key, struct format_key value, gaddr block)
{
    scan->left--;
    scan->session->visited_block = block;
    bool taken = scan->visit(scan->context, key.bytes, key.length, value.bytes, value.length);
    if (!taken || !scan->left)
        deliver_stop(scan, key, taken);
}

/* The next entry of the run that is due in the leaf; NULL: none. */
static const struct unmerged_item *run_due(struct scan *scan, const struct format_header *header)
{
    const struct unmerged_run *run = scan->run;
    const bool reverse = scan->range->reverse;
    for (; run && scan->run_next < run->count; scan->run_next++) {
        const struct unmerged_item *item = &run->items[scan->run_next];
        if (reverse ? below(scan, item->key) || format_key_compare(item->key, header->lower) < 0
                    : above(scan, item->key) ||
                          (header->has_upper && format_key_compare(item->key, header->upper) >= 0))
            return NULL;
        if (!(reverse ? above(scan, item->key) : below(scan, item->key)))
            return item;
    }
    return NULL;
}

/* The run does not say what is not merged from this key on, in the scan's direction. */
static bool past_run(const struct scan *scan, struct format_key key)
{
    if (!scan->run || scan->run->complete)
        return false;
    int order = format_key_compare(key, format_key_of(&scan->run->until));
    return scan->range->reverse ? order < 0 : order >= 0;
}

/* Fixed keys and values, and nothing that is not merged: the entries from `first` to `end`, as they lie in
 * the image. Does what deliver_merged does, which has more to look at for each of them. */
static void deliver_plain(struct scan *scan, const uint8_t *image, uint32_t first, uint32_t end)
{
    const struct format_layout *layout = &scan->tree->layout;
    const uint32_t key_bytes = layout->geometry.key_bytes, value_bytes = layout->geometry.value_bytes;
    const int step = scan->range->reverse ? -1 : 1;
    const struct crc32c_piece *at = scan->session->order + (scan->range->reverse ? end - 1 : first);
    const uint32_t there = end > first ? end - first : 0;
    const uint32_t due = scan->left < there ? (uint32_t)scan->left : there;
    const uint8_t *key = NULL;
    bool taken = true;
    uint32_t visited = 0;
    scan->session->visited_block = GADDR_NULL;
    for (; visited < due && taken; visited++, at += step) {
        key = image + layout->slot_offset[at->number] + 4;
        taken = scan->visit(scan->context, key, key_bytes, key + key_bytes, value_bytes);
    }
    scan->left -= visited;
    if (!visited || (taken && scan->left))
        return;
    deliver_stop(scan, (struct format_key){key, key_bytes}, taken);
}

/* Both are in the order of the scan; what is not merged takes the place of what the leaf has of its key (L4).
 */
static void deliver_merged(struct scan *scan, const struct format_header *header, const uint8_t *image,
                           uint32_t first, uint32_t end)
{
    struct tree_session *session = scan->session;
    const bool reverse = scan->range->reverse;
    struct tree_leaf_entry entry = {0};
    for (uint32_t i = first; !scan->stopped;) {
        const struct unmerged_item *item = run_due(scan, header);
        bool leaf = i < end;
        if (leaf) {
            tree_leaf_entry_at(session, &scan->tree->layout, image, reverse ? first + end - 1 - i : i,
                               &entry);
            leaf = !past_run(scan, entry.key);
        }
        if (!leaf && !item)
            break;
        int order = !item ? -1 : !leaf ? 1 : format_key_compare(entry.key, item->key) * (reverse ? -1 : 1);
        i += order <= 0;
        scan->run_next += order >= 0;
        if (order < 0)
            deliver_one(scan, entry.key, entry.value, entry.block);
        else if (item->value.bytes)
            deliver_one(scan, item->key, item->value, GADDR_NULL);
    }
}

/* Whether all of the sorted entries, of which there are some, lie behind what was delivered and within the
 * range's beginning, as their heads tell. False says nothing. The position lies within the range. */
static bool none_below(const struct scan *scan)
{
    const struct tree_range *range = scan->range;
    if (range->reverse && !range->from)
        return true;
    const struct format_key least = range->reverse
                                        ? (struct format_key){range->from, (uint32_t)range->from_length}
                                        : format_key_of(&scan->position);
    return scan->session->order[0].head > format_key_head(least);
}

/* The same of what was delivered in reverse, and of the range's end. */
static bool none_above(const struct scan *scan, uint32_t count)
{
    const struct tree_range *range = scan->range;
    const bool by_position = range->reverse && !scan->unbounded;
    if (!by_position && !range->to)
        return true;
    const struct format_key most = by_position ? format_key_of(&scan->position)
                                               : (struct format_key){range->to, (uint32_t)range->to_length};
    return scan->session->order[count - 1].head < format_key_head(most);
}

static void deliver(struct scan *scan, const struct format_header *header, const uint8_t *image,
                    uint32_t count)
{
    const uint64_t left = scan->left;
    /* What is due is a run of the sorted entries. */
    const uint32_t first = !count || none_below(scan) ? 0 : leading(scan, image, count, below, true);
    const uint32_t end =
        !count || none_above(scan, count) ? count : leading(scan, image, count, above, false);
    if (!scan->run && format_layout_plain(&scan->tree->layout))
        deliver_plain(scan, image, first, end);
    else
        deliver_merged(scan, header, image, first, end);
    task_charge(TASK_WORK_VISIT, (uint32_t)(left - scan->left));
}

/* The run ends within the leaf. */
static bool run_ends(const struct scan *scan, const struct format_header *header)
{
    if (!scan->run || scan->run->complete)
        return false;
    const struct format_key until = format_key_of(&scan->run->until);
    if (scan->range->reverse)
        return format_key_compare(until, header->lower) > 0;
    return !header->has_upper || format_key_compare(until, header->upper) < 0;
}

/* Moves the position past the leaf; stops at the range's end. */
static void advance(struct scan *scan, const struct format_header *header)
{
    const struct tree_range *range = scan->range;
    scan->leaves++;
    scan->asked = false;
    if (run_ends(scan, header)) { /* the rest of the leaf, with another run */
        scan->position = scan->run->until;
        scan->unbounded = false;
        return;
    }
    if (range->reverse) {
        struct format_key from = {range->from, (uint32_t)range->from_length};
        if (!format_key_compare(header->lower, format_key_least(&scan->tree->layout)) ||
            (range->from && format_key_compare(header->lower, from) <= 0))
            scan->stopped = true;
        format_key_store(&scan->position, header->lower);
        scan->unbounded = false;
        return;
    }
    if (!header->has_upper || past_end(scan, header->upper))
        scan->stopped = true;
    else
        format_key_store(&scan->position, header->upper);
}

/* Puts the entries of a leaf that is LIVE in order; those that are not in the image yet are copied there. */
static int leaf_order(struct scan *scan, struct format_link link, const uint8_t *data,
                      const struct format_header *header, uint32_t *count)
{
    struct tree_session *session = scan->session;
    const struct format_layout *layout = &scan->tree->layout;
    uint8_t *image = session->image.bytes;
    struct tree_kept_order kept;
    if (!format_layout_sifts(layout))
        return tree_leaf_order(session, layout, image, header, count);
    if (!scan->mapped || !format_layout_keeps_order(layout))
        return tree_leaf_order_shared(session, layout, data, image, header, NULL, count);
    int status = tree_leaf_order_shared(session, layout, data, image, header, &kept, count);
    if (!status && kept.stale)
        session->access->keep_order(session, scan->tree, link, kept.numbers, *count);
    return status;
}

/* Delivers what is due of the leaf, if it is LIVE and all of its slots are valid; else *verdict tells what it
 * is. */
static int leaf_deliver(struct scan *scan, struct format_link link, const uint8_t *data,
                        enum format_verdict *verdict, struct format_header *header)
{
    struct tree_session *session = scan->session;
    const struct format_layout *layout = &scan->tree->layout;
    const struct format_position position = {format_key_of(&scan->position), scan->range->reverse,
                                             scan->unbounded};
    uint8_t *image = session->image.bytes;
    uint32_t count;
    if (format_layout_sifts(layout))
        format_header_copy(layout, image, data); /* the rest when it is put in order */
    else
        atomic_copy_from(image, data, layout->used_bytes);
    tree_charge_leaf(session, layout);
    *verdict = format_leaf_verdict(layout, image, link, scan->tree->index, &position, header);
    if (*verdict != FORMAT_LIVE && *verdict != FORMAT_RIGHT)
        tree_owned_doubt(session, scan->tree, link.address);
    if (*verdict != FORMAT_LIVE)
        return 0;
    if (scan->neighbour) {
        *scan->neighbour = (struct tree_place){header->sibling.address, header->sibling.tag};
        if (header->has_upper)
            format_key_store(&scan->position, header->upper);
        scan->stopped = true;
        return 0;
    }
    int status = leaf_order(scan, link, data, header, &count);
    if (status) {
        *verdict = FORMAT_TORN;
        return status == TREE_RESTART ? 0 : status;
    }
    task_charge(TASK_WORK_SORT, count);
    session->entries_estimate += count - session->entries_estimate / 16;
    session->restarts = session->invalid = session->astray = 0; /* there is progress */
    deliver(scan, header, image, within(scan, header, image, count));
    if (!scan->cut)
        advance(scan, header);
    return 0;
}

/* ---- the scan ---- */

/* The leaf has been read many times in vain. */
static int leaf_settle(struct scan *scan, struct format_link link)
{
    struct tree_session *session = scan->session;
    const struct format_layout *layout = &scan->tree->layout;
    const uint8_t *image = session->image.bytes;
    struct format_header header;
    if (session->right != TREE_OTHERS)
        return tree_leaf_settle(session, scan->tree, link);
    scan->stuck = scan->position;
    if (format_header_valid(layout, image) && format_header_decode(layout, image, &header))
        format_key_store(&scan->stuck, header.lower);
    return TREE_FORWARD;
}

/* The leaf is dead: any session that has the right finishes its unlinking. */
static int leaf_departed(struct scan *scan, struct format_link link, const struct format_header *header)
{
    struct tree_session *session = scan->session;
    if (tree_rights_cover_below(session, header->lower))
        return tree_unlink_finish(session, scan->tree, link, header);
    if (session->restarts <= TREE_PATIENCE)
        return 0;
    format_key_store(&scan->stuck, header->lower);
    return session->right == TREE_OTHERS ? TREE_FORWARD : tree_foreign(session, link, header->lower);
}

/* One leaf that needs care: reads it alone, walks right, retries, until something at the position was
 * delivered, or the path is no good. */
static int follow(struct scan *scan, struct tree_path *path)
{
    struct tree_session *session = scan->session;
    struct tree *tree = scan->tree;
    for (unsigned attempt = 0;; attempt++) {
        struct ahead one = {.links = {path->link}, .count = 1};
        const uint8_t *data[1];
        enum format_verdict verdict;
        struct format_header header;
        int status = attempt && attempt % TREE_PATIENCE == 0 ? leaf_settle(scan, path->link) : 0;
        if (!status)
            status = read_leaves(scan, &one, data);
        if (!status)
            status = leaf_deliver(scan, path->link, data[0], &verdict, &header);
        if (status == TREE_RESTART) {
            tree_path_forget(session, tree, path);
            return tree_restart(session, path->link.address);
        }
        if (status || verdict == FORMAT_LIVE)
            return status;
        if (verdict == FORMAT_RIGHT) {
            status = tree_path_right(session, tree, path, header.upper, header.sibling, 0);
            attempt = 0;
        } else if (verdict == FORMAT_TORN || verdict == FORMAT_MALFORMED || verdict == FORMAT_SPLITTING ||
                   verdict == FORMAT_MERGING) {
            session->stats.retries++;
        } else {
            struct format_link link = path->link;
            status = verdict == FORMAT_DEAD ? leaf_departed(scan, link, &header) : 0;
            tree_path_forget(session, tree, path);
            if (status)
                return status;
            return verdict == FORMAT_LEVEL || verdict == FORMAT_LEFT ? tree_astray(session, link.address)
                                                                     : tree_restart(session, link.address);
        }
        if (status)
            return status;
    }
}

/* The run says nothing of the next row, of which the row's last leaf may have keys still (O3). */
static void run_bound(struct unmerged_run *run, const struct tree_row *row, bool reverse)
{
    if (!run->complete || (reverse ? !row->lower.length : !row->has_upper))
        return;
    run->complete = false;
    format_key_store(&run->until, reverse ? row->lower : row->upper);
}

/* L4: what is not merged of the row, from the position on, is looked up before leaves are read. */
static int run_take(struct scan *scan)
{
    struct tree_session *session = scan->session;
    struct unmerged *table = tree_log_table(scan->tree);
    scan->run = NULL;
    if (scan->neighbour || !table || !tree_logs(session))
        return 0;
    const struct tree_row *row = session->row;
    const struct format_key position = format_key_of(&scan->position);
    const bool reverse = scan->range->reverse;
    const struct format_key *to = reverse          ? scan->unbounded ? NULL : &position
                                  : row->has_upper ? &row->upper
                                                   : NULL;
    if (!unmerged_run(table, session->pool.epoch, reverse ? &row->lower : &position, to, reverse,
                      &session->run))
        return pool_fail_memory(&session->pool);
    run_bound(&session->run, row, reverse);
    scan->run = &session->run;
    scan->run_next = 0;
    session->cached |= session->run.count > 0; /* O2 */
    return 0;
}

static int step(struct scan *scan)
{
    struct ahead ahead;
    const uint8_t *data[AHEAD_MAX];
    int status = run_take(scan);
    ahead.count = 0;
    if (!status)
        status = look_ahead(scan, &ahead);
    if (!status)
        status = read_leaves(scan, &ahead, data);
    for (uint32_t i = 0; i < ahead.count && !status && !scan->stopped; i++) {
        if (i && past_run(scan, format_key_of(&scan->position)))
            return 0; /* the next step takes another run */
        enum format_verdict verdict;
        struct format_header header;
        /* A scan begins anywhere in its first leaf. */
        if (i + 1 < ahead.count && scan->left > entries_expected(scan) / (i ? 1 : 2))
            leaf_prefetch(data[i + 1], scan->tree->layout.used_bytes);
        status = leaf_deliver(scan, ahead.links[i], data[i], &verdict, &header);
        if (status || verdict == FORMAT_LIVE)
            continue;
        scan->session->stats.retries++;
        if (i) /* the rest is read again from the position */
            return tree_restart(scan->session, ahead.links[i].address);
        return follow(scan, &ahead.path);
    }
    return status;
}

static int range_check(struct scan *scan)
{
    const struct tree_range *range = scan->range;
    if ((range->from && range->from_length > FORMAT_KEY_MAX) ||
        (range->to && range->to_length > FORMAT_KEY_MAX))
        return pool_fail(&scan->session->pool, BANYAN_EKEYSIZE, "index %s: a bound is longer than %u bytes",
                         scan->tree->name, FORMAT_KEY_MAX);
    return 0;
}

static void position_start(struct scan *scan)
{
    const struct tree_range *range = scan->range;
    struct format_key least = format_key_least(&scan->tree->layout);
    if (!range->reverse) {
        struct format_key from = {range->from, (uint32_t)range->from_length};
        /* Bounds need not be keys: one below the least fence starts there. */
        format_key_store(&scan->position, range->from && format_key_compare(from, least) > 0 ? from : least);
        return;
    }
    scan->unbounded = !range->to;
    if (range->to) {
        format_key_store(&scan->position, (struct format_key){range->to, (uint32_t)range->to_length});
        if (!range->to_open)
            scan->unbounded = !position_successor(&scan->position);
    }
    if (scan->unbounded) {
        memset(scan->position.bytes, 0xff, FORMAT_KEY_MAX);
        scan->position.length = FORMAT_KEY_MAX;
    } else if (format_key_compare(format_key_of(&scan->position), least) <= 0) {
        scan->stopped = true; /* nothing lies below */
    }
}

/* The owner of the range at the position is asked for a key of the leaf that stays unreadable. */
static int owner_settle(struct scan *scan)
{
    const struct format_geometry *geometry = &scan->tree->layout.geometry;
    struct format_key_copy key = scan->stuck;
    uint8_t value[FORMAT_VALUE_MAX];
    size_t length = sizeof value;
    scan->asked = !scan->asked;
    if (!scan->asked) /* it was, in vain: waits before it asks again, and a time-out ends that */
        return TREE_WAIT;
    bool fixed = geometry->key_kind == FORMAT_KEY_FIXED;
    uint16_t least = fixed ? geometry->key_bytes : 1; /* a fence need not be a key */
    if (key.length < least)
        memset(key.bytes + key.length, 0, (size_t)least - key.length);
    if (key.length < least || key.length > geometry->key_bytes)
        key.length = key.length < least ? least : geometry->key_bytes;
    int status = tree_forward_lookup(scan->session, scan->tree, format_key_of(&key), false, value, &length);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

static bool part_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct scan *scan = context;
    task_charge(TASK_WORK_VISIT, 1);
    scan->left--;
    scan->session->visited_block = GADDR_NULL; /* the block is its owner's to move */
    if (!scan->visit(scan->context, key, key_length, value, length) || !scan->left)
        scan->stopped = true;
    return !scan->stopped;
}

/* The position lies in a logged range of another's, who delivers what comes next. */
static int part_ask(struct scan *scan)
{
    struct tree_range range = *scan->range;
    const struct format_key_copy position = scan->position;
    struct tree_scan_end end;
    range.limit = scan->left == UINT64_MAX ? 0 : scan->left;
    if (!range.reverse) {
        range.from_open = range.from && range.from_open && range.from_length == position.length &&
                          !memcmp(range.from, position.bytes, position.length);
        range.from = position.bytes;
        range.from_length = position.length;
    } else if (!scan->unbounded) {
        range.to = position.bytes;
        range.to_length = position.length;
        range.to_open = true;
    }
    int status = tree_forward_scan(scan->session, scan->tree, &range, part_visit, scan, &end);
    if (status || scan->stopped)
        return status;
    scan->leaves++; /* there is progress */
    scan->session->restarts = scan->session->invalid = scan->session->astray = 0;
    scan->stopped = end.ended;
    scan->position = end.next;
    scan->unbounded = false;
    return 0;
}

/* A peer's part ends where this process's rows do. */
static int here_end(struct scan *scan)
{
    tree_rights_leave(scan->session);
    if (!scan->leaves)
        return tree_not_owned(scan->session, scan->tree);
    scan->stopped = scan->cut = true;
    return 0;
}

/* One step under the right to the range at the position. */
static int scan_turn(struct scan *scan, struct tree_turn *turn)
{
    struct tree_session *session = scan->session;
    struct format_key position = format_key_of(&scan->position);
    enum tree_right right = scan->range->reverse ? tree_rights_enter_below(session, scan->tree, position)
                                                 : tree_rights_enter(session, scan->tree, position);
    if (scan->here && right != TREE_OWNED)
        return here_end(scan);
    if (tree_rights_ask(session) && !scan->neighbour) {
        tree_turn_ask(turn);
        return part_ask(scan);
    }
    scan->bounded =
        right == TREE_OTHERS && tree_rights_end(session, scan->tree, format_key_of(&scan->position),
                                                scan->range->reverse, &scan->bound);
    int status = right == TREE_MOVING ? TREE_WAIT : step(scan);
    if (!status && right == TREE_OTHERS && session->restarts > TREE_PATIENCE)
        status = TREE_FORWARD; /* the way leads to a leaf that is in nobody's place */
    if (status == TREE_FORWARD)
        status = owner_settle(scan);
    return tree_again(session, scan->tree, &status) ? TREE_ANEW : status;
}

static int scan_run(struct scan *scan)
{
    struct tree_session *session = scan->session;
    struct tree_turn turn = {0};
    int status = 0;
    position_start(scan);
    scan->stuck = scan->position;
    while (!status && !scan->stopped) {
        const uint64_t before = scan->leaves;
        status = scan_turn(scan, &turn); /* from the position on: what was delivered stays delivered */
        session->cached = false;         /* it was asked about before it was delivered */
        if (scan->leaves != before)      /* there is progress */
            turn.since = 0;
        tree_turn_again(session, scan->tree, &turn, &status);
    }
    return pool_not_done(&session->pool, status);
}

gaddr tree_scan_key_block(const struct tree_session *session)
{
    return session->visited_block;
}

int tree_scan(struct tree_session *session, struct tree *tree, const struct tree_range *range,
              tree_visit_function *visit, void *context)
{
    struct scan scan = {.session = session,
                        .tree = tree,
                        .range = range,
                        .visit = visit,
                        .context = context,
                        .left = range->limit ? range->limit : UINT64_MAX};
    int status = range_check(&scan);
    if (!status)
        status = tree_begin(session, tree);
    if (status)
        return status;
    return scan_run(&scan);
}

int tree_scan_here(struct tree_session *session, struct tree *tree, const struct tree_range *range,
                   tree_visit_function *visit, void *context, struct tree_scan_end *end)
{
    struct scan scan = {.session = session,
                        .tree = tree,
                        .range = range,
                        .visit = visit,
                        .context = context,
                        .left = range->limit ? range->limit : UINT64_MAX,
                        .here = true};
    int status = range_check(&scan);
    if (!status)
        status = tree_begin(session, tree);
    if (!status)
        status = scan_run(&scan);
    *end = (struct tree_scan_end){.ended = !scan.cut};
    if (scan.cut)
        end->next = scan.position;
    return status;
}

int tree_place_after(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                     struct tree_place *place, struct tree_place_bound *bound)
{
    const struct tree_range range = {.from = key, .from_length = key_length};
    struct scan scan = {.session = session, .tree = tree, .range = &range, .left = 1, .neighbour = place};
    int status = range_check(&scan);
    if (!status)
        status = tree_begin(session, tree);
    if (status)
        return status;
    status = scan_run(&scan);
    if (status)
        return status;
    if (place->address == GADDR_NULL)
        return BANYAN_ENOTFOUND;
    bound->length = scan.position.length;
    memcpy(bound->bytes, scan.position.bytes, bound->length);
    return 0;
}
