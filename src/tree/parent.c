/*
 * parent.c - Entries of internal nodes: posted, dropped, and the nodes split or given up for it. Two round
 * trips under the node's lock, and one more to see that a child still lives before it is posted.
 */
#include "tree/parent.h"

#include <assert.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "format/verdict.h"
#include "tree/cache.h"
#include "tree/catalogue.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/session.h"
#include "tree/subtree.h"
#include "tree/unlink.h"

/* ---- locking an internal node ---- */

/* Under the lock: 0, or a verdict with the lock given up. */
static int internal_validate(struct tree_session *session, struct tree *tree, struct format_key key,
                             bool before, uint8_t level, struct tree_path *path, struct tree_hold *hold,
                             struct format_header *header)
{
    const struct format_layout *layout = &tree->layout;
    struct fabric_command unlock[1];
    uint8_t *image = session->scratch;
    bool valid = format_internal_valid(layout, image);
    /* The node may have been reused, as a leaf even: then its header alone proves itself. */
    bool decoded =
        (valid || format_header_valid(layout, image)) && format_header_decode(layout, image, header);
    int status = 0;
    bool astray = false;
    if (!decoded) {
        *header = (struct format_header){0};
        status = tree_invalid(session, path->link.address, "an internal node fails its check");
    } else if (header->tag != path->link.tag || header->index != tree->index ||
               header->state == FORMAT_NODE_DEAD)
        status = TREE_RESTART;
    else if (!valid || header->level != level ||
             !format_internal_decode(layout, image, header, session->internal))
        status = tree_invalid(session, path->link.address, "an internal node is malformed");
    if (!status) {
        int order = header->has_upper ? format_key_compare(key, header->upper) : -1;
        int lowest = format_key_compare(key, header->lower);
        if (before ? order > 0 : order >= 0)
            status = TREE_SIDEWAYS;
        else if (before ? lowest <= 0 : lowest < 0) {
            astray = true;
            status = TREE_RESTART;
        }
    }
    if (!status)
        return 0;
    bool dead = status == TREE_RESTART && format_header_departed(header, path->link, tree->index);
    int released = tree_unlock(session, hold, unlock, 0);
    if (released)
        return released;
    if (status == TREE_SIDEWAYS) {
        int moved = tree_path_right(session, tree, path, header->upper, header->sibling, level);
        return moved ? moved : TREE_SIDEWAYS;
    }
    if (dead && before) /* the caller is unlinking a neighbour: one after the other, not by recursion */
        return TREE_DEAD;
    if (dead) {
        int finished = tree_unlink_finish(session, tree, path->link, header);
        if (finished)
            return finished;
    }
    if (status == TREE_RESTART)
        tree_path_forget(session, tree, path);
    int lost = astray ? tree_astray(session, path->link.address) : 0;
    return lost ? lost : status;
}

int tree_internal_lock(struct tree_session *session, struct tree *tree, struct format_key key, bool before,
                       uint8_t level, struct tree_path *path, struct tree_hold *hold,
                       struct format_header *header)
{
    for (bool located = false;;) {
        int status = located ? 0 : tree_locate(session, tree, key, before, level, path);
        if (status)
            return status;
        gaddr node = path->link.address;
        struct fabric_command read =
            pool_read_command(node, session->scratch, tree->layout.geometry.internal_bytes);
        status = tree_lock(session, node, false, &read, 1, hold);
        if (status)
            return status;
        pool_read_settle(&read);
        status = internal_validate(session, tree, key, before, level, path, hold, header);
        if (status <= 0 || status == TREE_DEAD)
            return status;
        located = status == TREE_SIDEWAYS;
        status = located ? 0 : tree_restart(session, node);
        if (status)
            return status;
    }
}

/* Writes session->spare, which is header and entries, over the locked node, releases the lock, and brings
 * this compute node's cache up to date. */
static int internal_replace(struct tree_session *session, struct tree *tree, gaddr node,
                            struct tree_hold *hold, const struct format_header *header,
                            const struct format_entry *entries, struct fabric_command *writes, uint32_t count)
{
    const struct format_layout *layout = &tree->layout;
    writes[count++] = pool_write_command(node, session->spare, layout->geometry.internal_bytes);
    int status = tree_unlock(session, hold, writes, count);
    if (!status)
        tree_cache_install_entries(tree->cache, session->pool.epoch, node, header, entries);
    return status;
}

/* ---- a new root ---- */

/*
 * Under the lock that goes with the index's root word: whether the root is still this node, in this state.
 * By the word alone it could be another, which lies where this one lay: a root that has got a parent may move
 * (R8). The word changes under this lock alone, but for the one swap by which a bulk load replaces a leaf
 * that it has killed, and begins a drop; so what is found here holds until the lock is given up.
 */
static int root_stands(struct tree_session *session, struct tree *tree, struct format_link root,
                       uint8_t level, bool dead, bool *stands)
{
    const struct format_layout *layout = &tree->layout;
    struct format_header header;
    gaddr address;
    *stands = false;
    int status = tree_root_read(session, tree, &address);
    if (status || address != root.address)
        return status;
    struct fabric_command read = pool_read_command(root.address, session->scratch, layout->header_bytes);
    status = pool_execute(&session->pool, gaddr_node(root.address), &read, 1);
    if (status)
        return status;
    pool_read_settle(&read);
    enum format_verdict verdict =
        format_node_verdict(layout, session->scratch, root, tree->index, level, &header);
    *stands = dead ? verdict == FORMAT_DEAD
                   : verdict == FORMAT_LIVE || verdict == FORMAT_SPLITTING || verdict == FORMAT_MERGING ||
                         verdict == FORMAT_FROZEN;
    return 0;
}

/* Swaps the root word, if the root is still `root`, alive or dead. */
static int root_replace(struct tree_session *session, struct tree *tree, struct format_link root,
                        uint8_t level, bool dead, gaddr fresh, bool *grown)
{
    struct tree_hold hold;
    struct fabric_command unlock[1];
    bool stands;
    int status = tree_lock(session, tree->root_word, false, NULL, 0, &hold);
    if (status)
        return status;
    status = root_stands(session, tree, root, level, dead, &stands);
    if (!status && stands)
        status = tree_root_swap(session, tree, root.address, fresh, grown);
    int released = tree_unlock(session, &hold, unlock, 0);
    /* What was swapped is swapped: the lock goes as any does whose release failed (lock.h). */
    return status || *grown ? status : pool_not_done(&session->pool, released);
}

/* A root of the level above the one that is known, with these entries; the first one's link is set here. */
static int root_make(struct tree_session *session, struct tree *tree, uint8_t level,
                     struct format_entry *entries, uint32_t count, bool *grown)
{
    const struct format_layout *layout = &tree->layout;
    struct format_link root, fresh;
    uint8_t root_level;
    *grown = false;
    int status = tree_root_get(session, tree, &root, &root_level);
    if (status || root_level + 1 != level)
        return status;
    status = tree_top_allocate(session, tree, level, root.address, &fresh.address);
    if (status)
        return status;
    status = pool_take_tag(&session->pool, gaddr_node(fresh.address), &fresh.tag);
    if (!status) {
        struct format_header header = {.tag = fresh.tag,
                                       .level = level,
                                       .state = FORMAT_NODE_LIVE,
                                       .index = tree->index,
                                       .lower = format_key_least(layout)};
        entries[0] = (struct format_entry){format_key_least(layout), root};
        format_internal_encode(layout, &header, entries, count, session->spare);
        struct fabric_command write =
            pool_write_command(fresh.address, session->spare, layout->geometry.internal_bytes);
        status = pool_execute(&session->pool, gaddr_node(fresh.address), &write, 1);
    }
    if (!status)
        status = root_replace(session, tree, root, root_level, false, fresh.address, grown);
    if (*grown) {
        tree_root_set(tree, fresh, level);
        tree_cache_install(tree->cache, session->pool.epoch, fresh.address, session->spare,
                           session->internal);
    } else if (status != BANYAN_EUNKNOWN) {
        pool_release(&session->pool, fresh.address, layout->geometry.internal_bytes);
        tree_root_forget(tree);
    }
    return status;
}

static int grow(struct tree_session *session, struct tree *tree, uint8_t level, struct format_key separator,
                struct format_link link, bool *grown)
{
    struct format_entry entries[2] = {{.key = separator}, {separator, link}};
    *grown = false;
    /* A leftmost node has a parent, or is the root: the way here was older than that parent. */
    if (!format_key_compare(separator, format_key_least(&tree->layout))) {
        tree_root_forget(tree);
        return 0;
    }
    return root_make(session, tree, level, entries, 2, grown);
}

int tree_root_follow(struct tree_session *session, struct tree *tree, struct format_link root, uint8_t level,
                     gaddr successor, bool *followed)
{
    *followed = false;
    return root_replace(session, tree, root, level, true, successor, followed);
}

/* ---- inserting ---- */

/* The node in scratch is full with session->internal[0..count): its upper part moves to a new sibling in
 * session->image. */
static int internal_split(struct tree_session *session, struct tree *tree, struct tree_path *path,
                          struct tree_hold *hold, struct format_header *header, uint32_t count)
{
    const struct format_layout *layout = &tree->layout;
    const struct format_entry *entries = session->internal;
    struct fabric_command writes[4];
    struct format_link sibling;
    uint32_t bytes = layout->geometry.internal_bytes, kept = count / 2, used = 0;
    int status = tree_sibling_allocate(session, tree, header->level, path->link.address, header->lower,
                                       &sibling.address);
    bool allocated = !status;
    if (!status)
        status = pool_take_tag(&session->pool, gaddr_node(sibling.address), &sibling.tag);
    if (status) {
        tree_unlock(session, hold, writes, 0);
        if (allocated)
            pool_release(&session->pool, sibling.address, bytes);
        return status;
    }
    task_charge(TASK_WORK_SPLIT, 1);
    while (format_internal_size(layout, entries, kept) > bytes)
        kept--;
    while (format_internal_size(layout, entries + kept, count - kept) > bytes)
        kept++;
    if (!header->has_upper && entries[count - 1].link.address == session->appended)
        kept = count - 1; /* keys are appended: leave a full node behind */
    assert(kept > 0 && kept < count);
    struct format_key_copy separator;
    format_key_store(&separator, entries[kept].key);
    struct format_header left = *header, right = *header;
    right.tag = sibling.tag;
    right.version = 0;
    right.lower = entries[kept].key;
    left.version++;
    left.has_upper = true;
    left.upper = entries[kept].key;
    left.sibling = sibling;
    format_internal_encode(layout, &right, entries + kept, count - kept, session->image.bytes);
    format_internal_encode(layout, &left, entries, kept, session->spare);
    session->image.address = GADDR_NULL;
    writes[used++] = pool_write_command(sibling.address, session->image.bytes, bytes);
    if (gaddr_node(sibling.address) != gaddr_node(path->link.address)) {
        status = pool_execute(&session->pool, gaddr_node(sibling.address), writes, used);
        used = 0;
        if (status) {
            tree_unlock(session, hold, writes, 0);
            pool_release(&session->pool, sibling.address, bytes); /* no link leads to it */
            return status;
        }
    }
    status = internal_replace(session, tree, path->link.address, hold, &left, entries, writes, used);
    if (status == BANYAN_EFENCED)
        pool_release(&session->pool, sibling.address, bytes); /* still no link leads to it */
    if (status)
        return status;
    tree_cache_install_entries(tree->cache, session->pool.epoch, sibling.address, &right, entries + kept);
    session->stats.splits++;
    return tree_parent_insert(session, tree, (uint8_t)(header->level + 1), format_key_of(&separator),
                              sibling);
}

/*
 * Under the parent's lock: is the child still there to be posted? Another session may have posted it, and it
 * may have been emptied, dropped and reused since the caller saw it. Read now, a live child has an entry or
 * never had one: an entry goes only after the child's death, and only a child that an entry names may die. So
 * no dead node is ever linked, and an entry that stands in the way is a dead node's.
 */
static int child_lives(struct tree_session *session, struct tree *tree, uint8_t level,
                       struct format_key separator, struct format_link link, bool *lives)
{
    const struct format_layout *layout = &tree->layout;
    uint8_t *image = session->spare;
    struct format_header header;
    *lives = false;
    for (unsigned attempt = 0; attempt <= TREE_PATIENCE; attempt++) {
        struct fabric_command read = pool_read_command(link.address, image, layout->header_bytes);
        int status = pool_execute(&session->pool, gaddr_node(link.address), &read, 1);
        if (status == BANYAN_ECORRUPT && session->pool.away != POOL_ANY_NODE)
            return 0; /* nothing lives on a memory node that was removed */
        if (status)
            return status;
        pool_read_settle(&read);
        enum format_verdict verdict = format_node_verdict(layout, image, link, tree->index, level, &header);
        if (verdict == FORMAT_TORN || verdict == FORMAT_MALFORMED) {
            session->stats.retries++;
            continue;
        }
        *lives = (verdict == FORMAT_LIVE || verdict == FORMAT_SPLITTING || verdict == FORMAT_MERGING ||
                  verdict == FORMAT_FROZEN) &&
                 !format_key_compare(header.lower, separator);
        return 0;
    }
    return 0; /* busy or worse: a later traverser finds out */
}

/* Release and acquire: a death was counted before its list was posted, and the count is looked at after the
 * list that has locked the parent. So a death that the parent has heard of, by that lock, is seen. */
uint64_t tree_leaf_deaths(const struct tree_session *session)
{
    return atomic_load_acquire(&session->compute->deaths);
}

void tree_leaf_death(struct tree_session *session)
{
    atomic_add_release(&session->compute->deaths, 1);
}

/* Under the lock, behind the entry `at`: the children that follow it in the node's range, before any other
 * entry, while there is room. *at is the last one's then. Returns how many. */
static uint32_t insert_more(const struct format_layout *layout, const struct format_header *header,
                            struct format_entry *entries, uint32_t *at, uint32_t *count,
                            const struct tree_child *children, uint32_t more)
{
    uint32_t done = 0;
    for (; done < more && *count < FORMAT_ENTRIES_MAX; done++, ++*at, ++*count) {
        const struct format_key separator = children[done].separator;
        if ((header->has_upper && format_key_compare(separator, header->upper) >= 0) ||
            (*at + 1 < *count && format_key_compare(separator, entries[*at + 1].key) >= 0))
            break;
        memmove(entries + *at + 2, entries + *at + 1, (*count - *at - 1) * sizeof *entries);
        entries[*at + 1] = (struct format_entry){separator, children[done].link};
        if (format_internal_size(layout, entries, *count + 1) > layout->geometry.internal_bytes) {
            memmove(entries + *at + 1, entries + *at + 2, (*count - *at - 1) * sizeof *entries);
            break;
        }
    }
    return done;
}

/* The first of `children`, and where `deaths` says that all of them live as many of the others as find room
 * beside it; *posted says how many they are. */
static int insert(struct tree_session *session, struct tree *tree, uint8_t level,
                  const struct tree_child *children, uint32_t child_count, const uint64_t *deaths,
                  uint32_t *posted)
{
    const struct format_layout *layout = &tree->layout;
    const struct format_link link = children->link;
    struct format_key separator = children->separator;
    struct format_key_copy copy;
    struct tree_path path;
    struct tree_hold hold;
    struct format_header header;
    struct fabric_command writes[2];
    *posted = 1;
    format_key_store(&copy, separator);
    separator = format_key_of(&copy);
    for (;;) {
        int status = tree_internal_lock(session, tree, separator, false, level, &path, &hold, &header);
        if (!status)
            break;
        if (status != TREE_LOW)
            return status;
        bool grown;
        status = grow(session, tree, level, separator, link, &grown);
        if (!status && !grown)
            status = tree_restart(session, link.address);
        if (status || grown)
            return status;
    }
    struct format_entry *entries = session->internal;
    uint32_t at = 0, count = header.count;
    while (at + 1 < count && format_key_compare(entries[at + 1].key, separator) <= 0)
        at++;
    struct format_link replaced = {0};
    bool fresh = false, lives = false;
    int status = 0;
    if (!format_link_equal(entries[at].link, link)) {
        fresh = deaths && session->right == TREE_OWNED && tree_leaf_deaths(session) == *deaths;
        lives = fresh;
        if (!fresh)
            status = child_lives(session, tree, (uint8_t)(level - 1), separator, link, &lives);
    }
    if (status || !lives) {
        int released = tree_unlock(session, &hold, writes, 0);
        return status ? status : released;
    }
    if (!format_key_compare(entries[at].key, separator)) {
        replaced = entries[at].link; /* of a dead node, whose range has been given away and split off again */
        entries[at].link = link;
    } else {
        at++;
        memmove(entries + at + 1, entries + at, (count - at) * sizeof *entries);
        entries[at] = (struct format_entry){separator, link};
        count++;
    }
    if (fresh && format_internal_size(layout, entries, count) <= layout->geometry.internal_bytes)
        *posted += insert_more(layout, &header, entries, &at, &count, children + 1, child_count - 1);
    session->appended = at + 1 == count ? entries[at].link.address : GADDR_NULL;
    if (format_internal_size(layout, entries, count) > layout->geometry.internal_bytes)
        return internal_split(session, tree, &path, &hold, &header, count);
    header.version++;
    format_internal_encode(layout, &header, entries, count, session->spare);
    status = internal_replace(session, tree, path.link.address, &hold, &header, entries, writes, 0);
    if (!status && replaced.address)
        pool_release(&session->pool, replaced.address,
                     level == 1 ? layout->geometry.leaf_bytes : layout->geometry.internal_bytes);
    return status;
}

int tree_parent_insert(struct tree_session *session, struct tree *tree, uint8_t level,
                       struct format_key separator, struct format_link link)
{
    const struct tree_child child = {separator, link};
    uint32_t posted;
    return insert(session, tree, level, &child, 1, NULL, &posted);
}

int tree_parent_insert_fresh(struct tree_session *session, struct tree *tree,
                             const struct tree_child *children, uint32_t count, uint64_t deaths,
                             uint32_t *posted)
{
    return insert(session, tree, 1, children, count, &deaths, posted);
}

/* ---- dropping ---- */

int tree_parent_drop(struct tree_session *session, struct tree *tree, uint8_t level, struct format_key lower,
                     struct format_link link)
{
    const struct format_layout *layout = &tree->layout;
    struct tree_path path;
    struct tree_hold hold;
    struct format_header header;
    struct fabric_command writes[2];
    int status = tree_internal_lock(session, tree, lower, false, level, &path, &hold, &header);
    if (status)
        return status == TREE_LOW ? 0 : status;
    struct format_entry *entries = session->internal;
    uint32_t at = 0, count = header.count;
    while (at < count && !format_link_equal(entries[at].link, link))
        at++;
    if (at == count)
        return tree_unlock(session, &hold, writes, 0);
    if (at) {
        memmove(entries + at, entries + at + 1, (count - at - 1) * sizeof *entries);
        count--;
    } else if (!format_key_compare(header.lower, format_key_least(layout))) {
        status = tree_unlock(session, &hold, writes, 0);
        return status ? status
                      : pool_corrupt(&session->pool, link.address, "the leftmost node of its level is dead");
    } else {
        entries[0].link = (struct format_link){0}; /* the range belongs to the left neighbour's last child */
    }
    bool empty = count == 1 && entries[0].link.address == GADDR_NULL && path.direct && path.parent.address;
    header.version++;
    if (empty)
        header.state = FORMAT_NODE_DEAD;
    format_internal_encode(layout, &header, entries, count, session->spare);
    status = internal_replace(session, tree, path.link.address, &hold, &header, entries, writes, 0);
    if (status)
        return status;
    pool_release(&session->pool, link.address,
                 level == 1 ? layout->geometry.leaf_bytes : layout->geometry.internal_bytes);
    if (!empty)
        return 0;
    tree_cache_forget(tree->cache, session->pool.epoch, path.link);
    session->stats.unlinks++;
    return tree_unlink_finish(session, tree, path.link, &header);
}
