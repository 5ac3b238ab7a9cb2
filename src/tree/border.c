/*
 * border.c - leaves begin where ranges do (O3): tree_border_make, as rights.h has it. Called by src/owner/,
 * from any task. A leaf that begins at the key costs one round trip; a split costs what splits do, and a read
 * to find that out.
 *
 * A border is not only a leaf that begins at the key, but also an entry of the parent that names it: the way
 * to the range's keys must not lead through a leaf of the range before, which may be another's and half done.
 * As the leaf never dies, that entry is never dropped.
 */
#include "format/verdict.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/merge.h"
#include "tree/parent.h"
#include "tree/session.h"
#include "tree/split.h"
#include "tree/turn.h"
#include "tree/unlink.h"

struct border {
    struct tree_session *session;
    struct tree *tree;
    struct format_key key;
    struct tree_path path;
};

/* The leaf begins at the key: its parent has to name it. */
static int border_name(struct border *border)
{
    if (border->path.direct && border->path.parent.address)
        return 0;
    return tree_parent_insert(border->session, border->tree, 1, border->key, border->path.link);
}

static int border_right(struct border *border, const struct format_header *header)
{
    struct format_key_copy upper;
    struct format_link sibling = header->sibling;
    format_key_store(&upper, header->upper);
    int status =
        tree_path_right(border->session, border->tree, &border->path, format_key_of(&upper), sibling, 0);
    return status ? status : TREE_SIDEWAYS;
}

/* Under the leaf's lock, its image complete: splits it, unless it begins at the key. */
static int border_split(struct border *border, struct tree_hold *hold, const struct format_header *header)
{
    struct tree_session *session = border->session;
    struct tree *tree = border->tree;
    int side = format_header_side(header, border->key);
    int status = 0;
    if (side < 0) {
        status = tree_leaf_release_with(session, tree, hold, TREE_RESTART);
        int astray = status == TREE_RESTART ? tree_astray(session, border->path.link.address) : 0;
        return astray ? astray : status;
    }
    if (!side && format_key_compare(header->lower, border->key))
        return tree_split_at(session, tree, border->path.link, hold, border->key);
    struct format_header kept = *header; /* its keys lie in the image, which stays as it is */
    status = tree_leaf_release_with(session, tree, hold, 0);
    if (status)
        return status;
    return side ? border_right(border, &kept) : border_name(border);
}

/* Takes the leaf's lock: what is half done there is finished. */
static int border_take(struct border *border)
{
    struct tree_session *session = border->session;
    struct tree *tree = border->tree;
    const struct format_link link = border->path.link;
    struct format_header header;
    struct tree_hold hold;
    int status = tree_leaf_take(session, tree, link, &hold, &header);
    if (!status)
        return border_split(border, &hold, &header);
    if (status == TREE_RESTART && format_header_departed(&header, link, tree->index)) {
        int finished = tree_unlink_finish(session, tree, link, &header);
        status = finished ? finished : TREE_RESTART;
    }
    if (status == TREE_RESTART)
        tree_path_forget(session, tree, &border->path);
    return status;
}

/* Whether the leaf at the end of the way, live, begins at the key: a look without a lock. */
static int border_look(struct border *border, bool *begins)
{
    struct tree_session *session = border->session;
    const struct format_layout *layout = &border->tree->layout;
    const gaddr leaf = border->path.link.address;
    struct format_header header;
    struct fabric_command read = pool_read_command(leaf, session->image.bytes, layout->header_bytes);
    session->image.address = GADDR_NULL;
    int status = tree_leaf_read(session, border->tree, leaf, &read, 1);
    if (status)
        return status;
    format_header_settle(layout, &read);
    enum format_verdict verdict =
        format_node_verdict(layout, session->image.bytes, border->path.link, border->tree->index, 0, &header);
    *begins = verdict == FORMAT_LIVE && !format_key_compare(header.lower, border->key);
    return 0;
}

static int border_try(struct border *border)
{
    struct tree_session *session = border->session;
    struct tree *tree = border->tree;
    for (bool located = false;;) {
        bool begins = false;
        int status = located ? 0 : tree_locate(session, tree, border->key, false, 0, &border->path);
        if (!status)
            status = border_look(border, &begins);
        if (!status)
            status = begins ? border_name(border) : border_take(border);
        if (status != TREE_RESTART && status != TREE_SIDEWAYS)
            return status;
        located = status == TREE_SIDEWAYS;
        status = located ? 0 : tree_restart(session, border->path.link.address);
        if (status)
            return status;
    }
}

/* Both rows that meet at the key are this process's to change, in one way; or the leaf begins there already.
 */
static int border_enter(struct border *border)
{
    struct tree_session *session = border->session;
    struct tree *tree = border->tree;
    tree_rights_enter_all(session, tree);
    const enum tree_right before = tree_table_find(session->table, border->key, true)->right;
    const enum tree_right right = tree_rights_switch(session, tree, border->key);
    if (right > TREE_OWNED)
        return tree_not_owned(session, tree);
    if (before == right)
        return border_try(border);
    bool begins = false;
    int status = tree_locate(session, tree, border->key, false, 0, &border->path);
    if (!status)
        status = border_look(border, &begins);
    if (!status)
        status = begins ? border_name(border)
                        : pool_fail(&session->pool, BANYAN_EFENCED,
                                    "index %s: the ranges on both sides of the border have different owners",
                                    tree->name);
    return status;
}

int tree_border_make(struct tree_session *session, struct tree *tree, const void *key, size_t key_length)
{
    struct border border = {.session = session, .tree = tree, .key = {key, (uint32_t)key_length}};
    struct tree_turn turn = {0};
    int status = tree_key_check(session, tree, key, key_length);
    if (!status)
        status = tree_begin(session, tree);
    if (status || !format_key_compare(border.key, format_key_least(&tree->layout)))
        return status;
    do {
        status = border_enter(&border);
        if (tree_again(session, tree, &status))
            status = TREE_ANEW;
    } while (tree_turn_again(session, tree, &turn, &status));
    /* The leaf may be split, and no operation tells of it. */
    session->stats.unfinished += status == BANYAN_EUNKNOWN || status == BANYAN_ENET;
    return status;
}
