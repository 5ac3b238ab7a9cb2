/*
 * move_walk.c - the walk that moves nodes (tree.h: tree_move_step): level by level from the leaves upwards,
 * so that a subtree is there before its top, and the way to a node is cached while the nodes below it move. A
 * step looks at nodes that one parent names; it costs what it moves, and a round trip for the parent.
 */
#include <assert.h>
#include <string.h>

#include "tree/announce.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/move_keys.h"
#include "tree/move_names.h"
#include "tree/session.h"
#include "tree/subtree.h"

/* A family of which there is always something to be named is left to the next walk. */
#define AGAIN_MAX 32u

static struct format_key cursor_key(const struct tree *tree, const struct tree_move_walk *walk)
{
    return walk->length ? (struct format_key){walk->key, walk->length} : format_key_least(&tree->layout);
}

/*
 * Reads the node above that covers the cursor into session->scratch, and its entries into session->internal,
 * whatever is cached of it: an entry that is out of date (R6) may name a node that others have moved since,
 * to where it is to leave. It is looked for at its own level: what lies below a gap at its beginning is
 * reached by way of the left neighbour, which says nothing of the entries behind the gap.
 */
static int parent_read(struct tree_session *session, struct tree *tree, const struct tree_move_walk *walk,
                       struct format_header *header)
{
    const struct format_key key = cursor_key(tree, walk);
    const uint8_t above = (uint8_t)(walk->level + 1);
    struct tree_frame *passing = NULL;
    struct tree_path path;
    int status = tree_locate(session, tree, key, false, above, &path), side = 1;
    while (!status && side > 0) {
        status = tree_frame_fetch(session, tree, path.link, above, &passing);
        tree_passing_free(passing);
        if (!status && !format_header_decode(&tree->layout, session->scratch, header))
            status =
                pool_corrupt(&session->pool, path.link.address, "an internal node's header is malformed");
        side = status ? 0 : format_header_side(header, key);
        if (side > 0) {
            struct format_key_copy upper;
            format_key_store(&upper, header->upper);
            status = tree_path_right(session, tree, &path, format_key_of(&upper), header->sibling, above);
        }
    }
    if (side < 0)
        status = TREE_RESTART;
    if (status == TREE_RESTART)
        tree_path_forget(session, tree, &path);
    return status;
}

/* The cursor's level has no level above: its one node is the root. TREE_LOW: there is no such level either.
 */
static int root_find(struct tree_session *session, struct tree *tree, const struct tree_move_walk *walk,
                     struct tree_family *family)
{
    struct tree_path path;
    int status = tree_locate(session, tree, cursor_key(tree, walk), false, walk->level, &path);
    if (status)
        return status;
    family->links[0] = path.link;
    format_key_store(&family->keys[0], format_key_least(&tree->layout));
    family->count = 1;
    family->last = true;
    return path.direct && !path.parent.address ? 0 : TREE_RESTART;
}

/* TREE_RESTART: the way led astray. TREE_LOW: there is no such level. */
static int family_find(struct tree_session *session, struct tree *tree, const struct tree_move_walk *walk,
                       struct tree_family *family)
{
    const struct format_key key = cursor_key(tree, walk);
    const struct format_entry *entries = session->internal;
    struct format_header header;
    family->count = 0;
    family->last = false;
    int status = parent_read(session, tree, walk, &header);
    if (status == TREE_LOW)
        return root_find(session, tree, walk, family);
    if (status)
        return status;
    uint32_t entry = 0;
    while (entry + 1 < header.count && format_key_compare(entries[entry + 1].key, key) <= 0)
        entry++;
    for (; entry < header.count && family->count < TREE_FAMILY_MAX; entry++) {
        if (entries[entry].link.address == GADDR_NULL) /* a gap is nobody's */
            continue;
        family->links[family->count] = entries[entry].link;
        format_key_store(&family->keys[family->count++], entries[entry].key);
    }
    family->last = entry == header.count && !header.has_upper;
    if (!family->last)
        format_key_store(&family->next, entry < header.count ? entries[entry].key : header.upper);
    return 0;
}

/* The highest node of the node's subtree; the node itself, where subtrees are not placed, or above them. */
static int top_find(struct tree_session *session, struct tree *tree, uint8_t level, struct format_key key,
                    struct format_link *top)
{
    const uint8_t levels = tree->layout.geometry.subtree_levels;
    struct format_link root;
    struct tree_path path;
    uint8_t height;
    if (!tree_level_placed(tree, level) || level + 1u == levels)
        return 0;
    int status = tree_locate(session, tree, key, false, (uint8_t)(levels - 1), &path);
    if (!status)
        *top = path.link;
    if (status != TREE_LOW)
        return status;
    status = tree_root_get(session, tree, &root, &height); /* all of it is less than a subtree */
    if (!status)
        *top = root;
    return status;
}

static bool keys_wanted(const struct tree *tree, uint8_t level, const struct tree_move_choice *choice)
{
    return !level && choice->keys && tree->layout.long_keys;
}

/* The blocks of the leaf's long keys leave `from`. Of most leaves one READ tells that there are none. */
static int keys_leave(struct tree_session *session, struct tree *tree, struct format_key key, uint16_t from,
                      struct tree_move_report *report)
{
    struct tree_move move = {.key = key.bytes, .key_length = key.length, .from = from, .to = POOL_ANY_NODE};
    bool names = false;
    int status = tree_begin(session, tree);
    session->stats.operations--; /* as above */
    if (!status)
        status = tree_move_keys_look(session, tree, key, from, &names);
    if (!status && names)
        status = tree_move_node(session, tree, &move);
    if (!status && names && move.outcome != TREE_MOVE_THERE)
        report->keys[move.outcome]++;
    return status;
}

static int node_move(struct tree_session *session, struct tree *tree, uint8_t level, struct format_link link,
                     struct format_key key, const struct tree_move_choice *choice,
                     struct tree_move_report *report)
{
    struct format_link top = link;
    int status = tree_begin(session, tree);
    session->stats.operations--; /* it is background work, not a client's */
    if (!status)
        status = top_find(session, tree, level, key, &top);
    if (status)
        return status;
    const uint16_t from = gaddr_node(link.address),
                   to = choice->where(choice->context, link.address, tree_node_bytes(tree, level), top.tag);
    report->nodes++;
    if (to == from || to == POOL_ANY_NODE)
        return 0;
    struct tree_move move = {
        .key = key.bytes, .key_length = key.length, .level = level, .from = from, .to = to};
    status = tree_move_node(session, tree, &move);
    if (status)
        return status;
    report->outcomes[move.outcome]++;
    if (move.outcome == TREE_MOVE_DONE)
        report->bytes += tree_node_bytes(tree, level);
    if (move.outcome == TREE_MOVE_FIRST && choice->first)
        choice->first(choice->context, key.bytes, key.length);
    return 0;
}

static int one_move(struct tree_session *session, struct tree *tree, uint8_t level, struct format_link link,
                    struct format_key key, const struct tree_move_choice *choice,
                    struct tree_move_report *report)
{
    int status = node_move(session, tree, level, link, key, choice, report);
    if (!status && keys_wanted(tree, level, choice))
        status = keys_leave(session, tree, key, choice->keys_from, report);
    return status;
}

/* Of a node of the family. */
static int half_done_finish(struct tree_session *session, struct tree *tree, uint8_t level,
                            const struct tree_family *family, uint32_t number, bool *changed,
                            struct tree_move_report *report)
{
    enum tree_move_outcome outcome;
    int status = tree_move_names_finish(session, tree, level, family, number, &outcome);
    const bool finished = outcome == TREE_MOVE_THERE || outcome == TREE_MOVE_ELSEWHERE;
    *changed |= !status && finished;
    if (!status && !finished)
        report->outcomes[outcome]++;
    return status;
}

/* The family has changed, and is to be looked at once more. */
static bool named_again(struct tree_move_walk *walk, bool changed, struct tree_move_report *report)
{
    const bool again = changed && walk->again < AGAIN_MAX;
    report->outcomes[TREE_MOVE_LATER] += changed && !again;
    walk->again = again ? (uint8_t)(walk->again + 1) : 0;
    return again;
}

static void walk_on(struct tree_move_walk *walk, const struct tree_family *family)
{
    if (family->last) {
        walk->level++;
        walk->length = 0;
        return;
    }
    const struct format_key next = format_key_of(&family->next);
    assert(format_key_compare(next, (struct format_key){walk->key, walk->length}) > 0);
    walk->length = (uint16_t)next.length;
    memcpy(walk->key, next.bytes, next.length);
}

int tree_move_step(struct tree_session *session, struct tree *tree, struct tree_move_walk *walk,
                   const struct tree_move_choice *choice, struct tree_move_report *report)
{
    struct tree_family family;
    uint32_t half_done = 0;
    bool changed = false;
    int status = tree_begin(session, tree);
    session->stats.operations--;
    if (status)
        return status;
    session->right = TREE_SHARED; /* inner nodes are everybody's (O4) */
    session->cached = false;
    if (!walk->length)
        tree_root_forget(tree); /* others may have put one above it */
    do {
        status = family_find(session, tree, walk, &family);
        if (!status && choice->all)
            status = tree_move_names_post(session, tree, walk->level, &family, &half_done, &changed);
        if (status == TREE_RESTART || status == TREE_SIDEWAYS)
            status = tree_restart(session, tree->root_word);
        else if (!status)
            break;
    } while (!status || tree_again(session, tree, &status));
    if (status == TREE_LOW) {
        walk->ended = true;
        return 0;
    }
    if (status)
        return status;
    if (choice->all && half_done < family.count)
        status = half_done_finish(session, tree, walk->level, &family, half_done, &changed, report);
    if (status || named_again(walk, changed, report))
        return status;
    for (uint32_t i = 0; i < family.count && !status; i++)
        status = one_move(session, tree, walk->level, family.links[i], format_key_of(&family.keys[i]), choice,
                          report);
    if (!status)
        walk_on(walk, &family);
    return status > 0 ? 0 : status; /* a way that led astray: the step again */
}
