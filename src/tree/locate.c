/*
 * locate.c - From a key to the link of the node that covers it, through cached frames; one round trip for
 * each frame that is missing. Stale frames are allowed (R6): they cost a restart. Called by every operation,
 * on its own task.
 */
#include "tree/locate.h"

#include <assert.h>

#include "base/atomic.h"
#include "base/epoch.h"
#include "base/task.h"
#include "tree/cache.h"
#include "tree/catalogue.h"
#include "tree/index.h"
#include "tree/owned_cache_use.h"
#include "tree/parent.h"
#include "tree/session.h"
#include "tree/unlink.h"
#include "tree/walk.h"

/* ---- the root ---- */

void tree_root_set(struct tree *tree, struct format_link root, uint8_t level)
{
    spinlock_lock(&tree->root_lock);
    uint32_t version = atomic_load_relaxed(&tree->root_version); /* only the lock's holder changes it */
    atomic_store_relaxed(&tree->root_version, version + 1);
    /* release: whoever loads one of the new values below sees the odd version at its second look */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    atomic_store_relaxed(&tree->root.address, root.address);
    atomic_store_relaxed(&tree->root.tag, root.tag);
    atomic_store_relaxed(&tree->root_level, level);
    atomic_store_release(&tree->root_version, version + 2); /* with all of them */
    spinlock_unlock(&tree->root_lock);
}

void tree_root_forget(struct tree *tree)
{
    tree_root_set(tree, (struct format_link){0}, 0);
}

bool tree_root_known(struct tree *tree, struct format_link *root, uint8_t *level)
{
    uint32_t version;
    do {
        while ((version = atomic_load_acquire(&tree->root_version)) %
               2) /* acquire: the values of this version */
            atomic_pause();
        root->address = atomic_load_relaxed(&tree->root.address);
        root->tag = atomic_load_relaxed(&tree->root.tag);
        *level = atomic_load_relaxed(&tree->root_level);
        /* acquire: pairs with the fence above; a value of a later version comes with that version */
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
    } while (atomic_load_relaxed(&tree->root_version) != version);
    return root->address != GADDR_NULL;
}

int tree_root_get(struct tree_session *session, struct tree *tree, struct format_link *root, uint8_t *level)
{
    const struct format_layout *layout = &tree->layout;
    for (unsigned attempt = 0; !tree_root_known(tree, root, level); attempt++) {
        gaddr address;
        int status = tree_root_read(session, tree, &address);
        if (status)
            return status;
        struct fabric_command read = pool_read_command(address, session->scratch, layout->header_bytes);
        status = pool_execute(&session->pool, gaddr_node(address), &read, 1);
        if (status)
            return status;
        pool_read_settle(&read);
        struct format_header header;
        /* The word may be older than the node that was read: a root that has got a parent may move (R8). A
         * root begins at the least key, and as well as it does any leftmost node to begin at. */
        bool proven = format_header_valid(layout, session->scratch) &&
                      format_header_decode(layout, session->scratch, &header) &&
                      header.index == tree->index &&
                      !format_key_compare(header.lower, format_key_least(layout));
        if (proven && header.state != FORMAT_NODE_DEAD) {
            tree_root_set(tree, (struct format_link){address, header.tag}, header.level);
            continue;
        }
        /* A root that has moved (R8) names its successor, as that does which a bulk load has replaced. Any
         * other dead node: the word that we read was old. */
        if (proven)
            status = tree_unlink_root(session, tree, (struct format_link){address, header.tag}, &header);
        else if (attempt > TREE_PATIENCE)
            status = tree_root_doubt(session, tree, address, "the root's header fails its check");
        if (!status)
            status = tree_restart(session, address);
        if (status)
            return status;
    }
    return 0;
}

/* ---- fetching ---- */

static int internal_validate(struct tree_session *session, struct tree *tree, struct format_link link,
                             uint8_t level, const uint8_t *image, struct format_header *header)
{
    const struct format_layout *layout = &tree->layout;
    if (!format_header_decode(layout, image, header))
        return pool_corrupt(&session->pool, link.address, "an internal node's header is malformed");
    if (header->tag != link.tag || header->index != tree->index)
        return TREE_RESTART;
    if (header->level != level)
        return pool_corrupt(&session->pool, link.address, "a node is not on the level that its parent says");
    return 0;
}

/* Reads an internal node and checks it under its link; retries torn reads. 0, TREE_RESTART (another node lies
 * there now), or an error. Dead nodes are returned too: look at header->state. */
static int internal_fetch(struct tree_session *session, struct tree *tree, struct format_link link,
                          uint8_t level, uint8_t *image, struct format_header *header)
{
    const struct format_layout *layout = &tree->layout;
    assert(level > 0);
    for (unsigned attempt = 0;; attempt++) {
        struct fabric_command read = pool_read_command(link.address, image, layout->geometry.internal_bytes);
        struct tree_hold hold;
        bool locked = attempt > TREE_PATIENCE;
        const uint64_t began = attempt ? 0 : tree_walk_began(session);
        /* No session writes a node whose lock we hold, so a failed check is no torn read then. */
        int status = locked ? tree_lock(session, link.address, false, &read, 1, &hold)
                            : pool_execute(&session->pool, gaddr_node(link.address), &read, 1);
        if (!status)
            pool_read_settle(&read);
        if (!status)
            tree_walk_read(session, link.address, began);
        if (!status && locked) {
            struct fabric_command unlock[1];
            status = tree_unlock(session, &hold, unlock, 0);
        }
        if (status)
            return status;
        if (format_internal_valid(layout, image))
            return internal_validate(session, tree, link, level, image, header);
        if (format_header_valid(layout, image) && format_header_decode(layout, image, header) &&
            header->tag != link.tag)
            return TREE_RESTART; /* reused, perhaps as a leaf */
        if (locked)
            return tree_invalid(session, link.address, "an internal node fails its check");
        session->stats.retries++;
    }
}

/* ---- descending: inside an epoch, in the cache alone ---- */

enum descent_verdict { DESCENT_FOUND, DESCENT_MISS, DESCENT_ASTRAY, DESCENT_GAP, DESCENT_HELP };

struct sought {
    struct format_key key;
    uint64_t head; /* of the key's first eight bytes */
    bool eight;    /* that is all of the key */
    bool before;
};

struct descent {
    struct sought sought;
    uint8_t level; /* wanted */
    /* where the way stands */
    struct format_link link, parent;
    struct format_link left; /* the cached node whose sibling link led here instead; address 0: none */
    uint8_t at;              /* link's level */
    bool direct;
    uint32_t fresh; /* bit per level: fetched during this call (the root's parent: the root word was read) */
    struct tree_frame *passing;   /* list of what this call has fetched and the cache does not keep; owned */
    struct tree_finding *finding; /* walk.h; NULL: only the path is wanted, and `leaves` leaves with it */
    uint32_t leaves;
    struct tree_walk_choice choice;
    bool vain; /* a walk has not come to the end of the way: it is read from here on */
    /* DESCENT_GAP: just below this key; DESCENT_HELP: this is the missing separator, of sibling */
    struct format_key_copy bound;
    struct format_link sibling;
};

static struct sought sought_key(struct format_key key, bool before)
{
    return (struct sought){key, format_key_head(key), key.length == 8, before};
}

/* `bound`, which is most of the structure, and `sibling` are set where they mean something. */
static void descent_init(struct descent *descent, struct format_key key, bool before, uint8_t level,
                         struct tree_finding *finding)
{
    memset(descent, 0, offsetof(struct descent, bound));
    descent->sought = sought_key(key, before);
    descent->level = level;
    descent->finding = finding;
}

/* The upper fence key lies behind the frame's last entry. */
static struct format_key frame_upper(const struct tree *tree, const struct tree_frame *frame,
                                     struct tree_key_room *room)
{
    return tree_frame_key(&tree->layout, frame, frame->count, room);
}

/* -1: the key lies left of the frame's range, 1: right of it. Only where a search found the first or the last
 * entry can it be outside: mostly there is nothing to compare. */
static __attribute__((noinline)) int frame_side_compared(const struct tree *tree,
                                                         const struct tree_frame *frame,
                                                         const struct sought *sought)
{
    struct tree_key_room room;
    int lower, upper = -1;
    if (frame->whole && sought->eight) {
        lower = sought->head < frame->lower_head ? -1 : sought->head > frame->lower_head;
        if (frame->has_upper)
            upper = sought->head < frame->upper_head ? -1 : sought->head > frame->upper_head;
    } else {
        lower = format_key_compare(sought->key, tree_frame_key(&tree->layout, frame, 0, &room));
        if (frame->has_upper)
            upper = format_key_compare(sought->key, frame_upper(tree, frame, &room));
    }
    if (sought->before ? lower <= 0 : lower < 0)
        return -1;
    return sought->before ? upper > 0 : upper >= 0;
}

static inline int frame_side(const struct tree *tree, const struct tree_frame *frame,
                             const struct sought *sought, uint32_t entry)
{
    if (entry && (entry + 1 < frame->count || !frame->has_upper))
        return 0;
    return frame_side_compared(tree, frame, sought);
}

/* The lines that the search in a frame is about to touch, asked for all at once. */
static void frame_prefetch(const struct tree_frame *frame)
{
    for (unsigned line = 0; line < 6; line++)
        __builtin_prefetch((const char *)frame->heads + 64 * line);
}

/* Whether the frame begins where its left neighbour ends, and ends behind that: so a walk to the right never
 * comes by a frame twice. */
static bool frame_follows(const struct tree *tree, const struct tree_frame *left,
                          const struct tree_frame *frame)
{
    struct tree_key_room before, own, behind;
    struct format_key lower = tree_frame_key(&tree->layout, frame, 0, &own);
    return left->has_upper && !format_key_compare(frame_upper(tree, left, &before), lower) &&
           (!frame->has_upper || format_key_compare(lower, frame_upper(tree, frame, &behind)) < 0);
}

static struct tree_frame *passing_find(struct tree_frame *passing, struct format_link link)
{
    while (passing && !format_link_equal(passing->link, link))
        passing = passing->next;
    return passing;
}

struct tree_frame *tree_frame_find(struct tree_session *session, struct tree *tree, struct format_link link)
{
    struct tree_frame *frame = tree_cache_find(tree->cache, link);
    return frame ? frame : passing_find(session->passing, link);
}

void tree_passing_free(struct tree_frame *passing)
{
    while (passing) {
        struct tree_frame *frame = passing;
        passing = frame->next;
        tree_frame_free(frame);
    }
}

/* Forgets the frame under this link, wherever it is. */
static void descent_forget(struct tree_session *session, struct tree *tree, struct descent *descent,
                           struct format_link link)
{
    tree_cache_forget(tree->cache, session->pool.epoch, link);
    for (struct tree_frame **at = &descent->passing; *at; at = &(*at)->next)
        if (format_link_equal((*at)->link, link)) {
            struct tree_frame *frame = *at;
            *at = frame->next;
            tree_frame_free(frame);
            return;
        }
}

/* The frame that descent->link leads to, in the cache or fetched by this call; NULL: it is to be fetched.
 * `above`: the frame whose `entry` is the link, where that is how the way came. */
static struct tree_frame *descent_frame(struct tree *tree, const struct descent *descent,
                                        struct tree_frame *above, uint32_t entry)
{
    bool swizzled = above && above->children;
    struct tree_frame *frame = swizzled ? atomic_load_acquire(&above->children[entry]) : NULL;
    if (frame && format_link_equal(frame->link, descent->link))
        return frame;
    frame = tree_cache_find(tree->cache, descent->link);
    if (frame && swizzled)
        tree_cache_swizzle(tree->cache, above, entry, frame);
    return frame ? frame : passing_find(descent->passing, descent->link);
}

/* What a search in the frame and frame_side come to: the entry whose range holds the key; false: it is not
 * within the frame, or not known to be. */
static inline bool frame_entry(const struct tree *tree, const struct tree_frame *frame,
                               const struct sought *sought, uint32_t *entry)
{
    if (!frame->whole || !sought->eight || sought->before) {
        *entry = tree_frame_search(&tree->layout, frame, sought->key, sought->before);
        return !frame_side(tree, frame, sought, *entry);
    }
    *entry = tree_heads_search(frame->heads, frame->count, sought->head);
    return sought->head >= frame->lower_head && (!frame->has_upper || sought->head < frame->upper_head);
}

/* Of the frames above leaves, of which there are many, few lie in the nearest cache: the link that a search
 * finds is asked for before it has found it. */
static inline void links_prefetch(const struct tree_frame *frame)
{
    const uint8_t *end = frame->links + frame->count * TREE_FRAME_LINK_BYTES;
    for (const uint8_t *line = frame->links; line < end; line += 128) {
        __builtin_prefetch(line);
        __builtin_prefetch(line + 64);
    }
}

/* The same as the loop of tree_locate_cached, from a frame on the root's level downwards, for keys of eight
 * bytes in frames whose heads are their keys: all is at hand in registers. */
static bool locate_word(struct tree_cache *cache, struct tree_frame *frame, uint8_t height, uint64_t head,
                        struct format_link *leaf, uint32_t *frames)
{
    struct format_link link = *leaf;
    uint8_t level = height;
    for (;; frame_prefetch(frame)) {
        if (level == 1)
            links_prefetch(frame);
        tree_cache_touch(cache, frame);
        *frames = (uint32_t)(height - level) + 1;
        const uint32_t entry = tree_heads_search(frame->heads, frame->count, head);
        if (frame->level != level || !format_link_equal(frame->link, link) || !frame->whole ||
            head < frame->lower_head || (frame->has_upper && head >= frame->upper_head))
            return false;
        link = tree_frame_link(frame, entry);
        if (link.address == GADDR_NULL)
            return false;
        if (!--level)
            break;
        /* Acquire: as in descent_frame. */
        frame = atomic_load_acquire(&frame->children[entry]);
        if (!frame)
            return false;
        __builtin_prefetch(frame); /* first: it says where the links are */
    }
    *leaf = link;
    return true;
}

bool tree_locate_cached(struct tree_session *session, struct tree *tree, struct format_key key,
                        struct format_link *leaf, uint32_t *frames)
{
    const struct sought sought = sought_key(key, false);
    uint8_t level;
    uint32_t entry, visited = 0;
    if (!tree_root_known(tree, leaf, &level) || !level)
        return false;
    epoch_enter(session->pool.epoch);
    struct tree_frame *frame = tree_cache_find(tree->cache, *leaf);
    if (frame && frame->whole && sought.eight) {
        const bool found = locate_word(tree->cache, frame, level, sought.head, leaf, frames);
        epoch_leave(session->pool.epoch);
        return found;
    }
    while (frame) {
        frame_prefetch(frame);
        if (level == 1)
            links_prefetch(frame);
        tree_cache_touch(tree->cache, frame);
        visited++;
        if (frame->level != level || !format_link_equal(frame->link, *leaf) ||
            !frame_entry(tree, frame, &sought, &entry))
            break;
        *leaf = tree_frame_link(frame, entry);
        if (leaf->address == GADDR_NULL || !--level)
            break;
        /* Acquire: as in descent_frame. */
        frame = atomic_load_acquire(&frame->children[entry]);
    }
    epoch_leave(session->pool.epoch);
    *frames = visited;
    return !level;
}

/* One of several ways down. */
struct way {
    struct sought sought;
    struct format_link link;  /* of `frame` */
    struct tree_frame *frame; /* NULL: the way is not all cached */
    uint32_t entry;           /* of the frame on level 1 */
};

/* The search in one frame of the way; above level 1 the way then leads to the next one. */
static void way_step(struct tree *tree, struct way *way, uint8_t level)
{
    struct tree_frame *frame = way->frame;
    uint32_t entry;
    way->frame = NULL;
    tree_cache_touch(tree->cache, frame);
    if (frame->level != level || !format_link_equal(frame->link, way->link) ||
        !frame_entry(tree, frame, &way->sought, &entry))
        return;
    if (level == 1) {
        way->entry = entry;
        way->frame = frame;
        __builtin_prefetch(frame->links + entry * TREE_FRAME_LINK_BYTES);
        return;
    }
    way->link = tree_frame_link(frame, entry);
    /* Acquire: as in descent_frame. */
    struct tree_frame *child = atomic_load_acquire(&frame->children[entry]);
    if (way->link.address == GADDR_NULL || !child)
        return;
    __builtin_prefetch(child);
    frame_prefetch(child);
    way->frame = child;
}

void tree_locate_cached_many(struct tree_session *session, struct tree *tree, const struct format_key *keys,
                             uint32_t count, struct format_link *leaves, uint32_t *frames)
{
    struct way ways[TREE_LOCATE_MANY];
    struct format_link root;
    uint8_t height;
    assert(count <= TREE_LOCATE_MANY);
    if (!tree_root_known(tree, &root, &height))
        height = 0;
    epoch_enter(session->pool.epoch);
    struct tree_frame *top = height ? tree_cache_find(tree->cache, root) : NULL;
    for (uint32_t i = 0; i < count; i++)
        ways[i] = (struct way){.sought = sought_key(keys[i], false), .link = root, .frame = top};
    for (uint8_t level = height; level; level--)
        for (uint32_t i = 0; i < count; i++)
            if (ways[i].frame)
                way_step(tree, &ways[i], level);
    for (uint32_t i = 0; i < count; i++) {
        leaves[i] = ways[i].frame ? tree_frame_link(ways[i].frame, ways[i].entry)
                                  : (struct format_link){.address = GADDR_NULL};
        frames[i] = height;
    }
    epoch_leave(session->pool.epoch);
}

void tree_locate_count(struct tree_session *session, uint32_t frames)
{
    task_charge(TASK_WORK_SEARCH, frames);
    session->stats.cache_hits += frames;
}

/* Follows frames from descent->link down to the wanted level. */
static enum descent_verdict descend(struct tree_session *session, struct tree *tree, struct descent *descent)
{
    struct tree_frame *above = NULL, *left = NULL, *frame = NULL;
    uint32_t entry = 0, visited = 0;
    enum descent_verdict verdict = DESCENT_FOUND;
    struct tree_key_room room;
    while (descent->at > descent->level) {
        frame = descent_frame(tree, descent, above, entry);
        if (!frame) {
            verdict = DESCENT_MISS;
            break;
        }
        frame_prefetch(frame);
        tree_cache_touch(tree->cache, frame);
        visited++;
        entry = tree_frame_search(&tree->layout, frame, descent->sought.key, descent->sought.before);
        int side = frame_side(tree, frame, &descent->sought, entry);
        if (frame->level != descent->at || side < 0 || (left && !frame_follows(tree, left, frame))) {
            verdict = DESCENT_ASTRAY;
            break;
        }
        if (side > 0) {
            if (descent->fresh & 1u << (frame->level + 1)) {
                descent->fresh &= ~(1u << (frame->level + 1));
                format_key_store(&descent->bound, frame_upper(tree, frame, &room));
                descent->sibling = frame->sibling;
                verdict = DESCENT_HELP;
                break;
            }
            if (descent->parent.address)
                descent_forget(session, tree, descent, descent->parent);
            else
                tree_root_forget(tree);
            descent->left = frame->link;
            descent->link = frame->sibling;
            descent->direct = false;
            above = NULL;
            left = frame;
            continue;
        }
        descent->parent = frame->link;
        descent->left = (struct format_link){0};
        descent->link = tree_frame_link(frame, entry);
        descent->at--;
        descent->direct = true;
        above = frame;
        left = NULL;
        if (descent->link.address == GADDR_NULL) {
            format_key_store(&descent->bound, tree_frame_key(&tree->layout, frame, 0, &room));
            verdict = DESCENT_GAP;
            break;
        }
    }
    tree_locate_count(session, visited);
    return verdict;
}

/* The descent came to a node that is no longer there: forgets the frames, or the root, that led to it. */
static void forget_way(struct tree_session *session, struct tree *tree, struct descent *descent)
{
    if (descent->left.address)
        descent_forget(session, tree, descent, descent->left);
    if (descent->parent.address)
        descent_forget(session, tree, descent, descent->parent);
    else
        tree_root_forget(tree);
}

int tree_frame_fetch(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t level,
                     struct tree_frame **passing)
{
    struct format_header header;
    *passing = NULL;
    session->stats.cache_misses++;
    int status = internal_fetch(session, tree, link, level, session->scratch, &header);
    if (status)
        return status;
    if (header.state == FORMAT_NODE_DEAD) {
        status = tree_unlink_finish(session, tree, link, &header);
        return status ? status : TREE_RESTART;
    }
    if (!format_internal_decode(&tree->layout, session->scratch, &header, session->internal))
        return pool_corrupt(&session->pool, link.address, "an internal node's entries are malformed");
    bool made;
    if (tree_cache_keeps(tree->cache, level))
        made = tree_cache_install(tree->cache, session->pool.epoch, link.address, session->scratch,
                                  session->internal);
    else
        made =
            (*passing = tree_frame_create(&tree->layout, link.address, session->scratch, session->internal));
    return made ? 0 : pool_fail_memory(&session->pool);
}

/* The memory node is asked for what the descent lacks, where that saves reads. 0: nothing has come of it, and
 * the way goes on as ever; TREE_WALKED; TREE_RESTART: the descent goes on with what was fetched. */
static int ask_for_missing(struct tree_session *session, struct tree *tree, struct descent *descent,
                           struct tree_path *path)
{
    struct tree_finding *finding = descent->finding;
    const bool find = !descent->level && (descent->leaves || (finding && !descent->sought.before));
    const uint32_t reads = (uint32_t)descent->at - descent->level + find; /* the leaf is one too */
    uint32_t levels;
    if (descent->vain || !tree_walk_wanted(session, descent->link.address, reads, &descent->choice))
        return 0;
    if (find && finding && finding->later) {
        finding->link = descent->link;
        finding->level = descent->at;
        return TREE_WALKED;
    }
    if (find && finding && finding->admits)
        descent->leaves = tree_owned_wants(session, tree);
    if (find && descent->leaves) {
        if (tree_walk_bring(session, tree, descent->link, descent->at, descent->sought.key,
                            descent->sought.before, descent->leaves, path, &levels))
            return TREE_WALKED;
    } else if (find && tree_walk_find(session, tree, descent->link, descent->at, descent->sought.key, finding,
                                      &levels)) {
        return TREE_WALKED;
    }
    if (!find)
        levels = tree_walk_fetch(session, tree, descent->link, descent->at, descent->level,
                                 descent->sought.key, descent->sought.before);
    descent->fresh |= levels; /* as fetched during this call */
    descent->vain = !(levels & 1u << (descent->level + 1));
    return levels ? TREE_RESTART : 0;
}

/* Fetches the node that the descent lacks. */
static int fetch_missing(struct tree_session *session, struct tree *tree, struct descent *descent,
                         struct tree_path *path)
{
    if (session->compute->walks) {
        int asked = ask_for_missing(session, tree, descent, path);
        if (asked)
            return asked == TREE_RESTART ? 0 : asked;
    }
    struct tree_frame *passing;
    int status = tree_frame_fetch(session, tree, descent->link, descent->at, &passing);
    if (passing) {
        passing->next = descent->passing;
        descent->passing = passing;
    }
    if (status == TREE_RESTART) {
        forget_way(session, tree, descent);
        return tree_restart(session, descent->link.address);
    }
    if (!status)
        descent->fresh |= 1u << descent->at;
    return status;
}

static int start_at_root(struct tree_session *session, struct tree *tree, struct descent *descent)
{
    bool known = tree_root_known(tree, &descent->link, &descent->at);
    int status = known ? 0 : tree_root_get(session, tree, &descent->link, &descent->at);
    if (status)
        return status;
    if (!known)
        descent->fresh |= 1u << (descent->at + 1);
    descent->parent = descent->left = (struct format_link){0};
    descent->direct = true;
    return descent->at < descent->level ? TREE_LOW : 0;
}

static int locate(struct tree_session *session, struct tree *tree, struct descent *descent,
                  struct tree_path *path)
{
    const uint8_t level = descent->level;
    struct tree_path across = {0}; /* beyond a gap: where to go on instead of at the root */
    uint8_t across_level = 0;
    for (;;) {
        int status = 0;
        if (across.link.address) {
            descent->link = across.link;
            descent->parent = across.parent;
            descent->left = (struct format_link){0};
            descent->at = across_level;
            descent->direct = false;
        } else {
            status = start_at_root(session, tree, descent);
            if (status)
                return status;
        }
        epoch_enter(session->pool.epoch);
        enum descent_verdict verdict = descend(session, tree, descent);
        epoch_leave(session->pool.epoch);
        switch (verdict) {
        case DESCENT_FOUND:
            *path = (struct tree_path){.link = descent->link,
                                       .parent = descent->parent,
                                       .direct = descent->direct,
                                       .fresh = descent->fresh & 1u << (level + 1)};
            return 0;
        case DESCENT_MISS:
            status = fetch_missing(session, tree, descent, path);
            if (!status && session->restarts && across.link.address)
                across.link.address = GADDR_NULL; /* it may have led astray: from the root again */
            break;
        case DESCENT_ASTRAY:
            forget_way(session, tree, descent);
            descent_forget(session, tree, descent, descent->link);
            across.link.address = GADDR_NULL;
            status = tree_astray(session, descent->link.address);
            break;
        case DESCENT_GAP:
            if (!format_key_compare(format_key_of(&descent->bound), format_key_least(&tree->layout)))
                return pool_corrupt(&session->pool, descent->parent.address,
                                    "the leftmost node of its level begins with a gap");
            status = tree_locate(session, tree, format_key_of(&descent->bound), true, descent->at, &across);
            across_level = descent->at;
            if (!status && across_level == level) {
                *path = across;
                path->direct = path->fresh = false;
                return 0;
            }
            break;
        case DESCENT_HELP:
            status = tree_parent_insert(session, tree, (uint8_t)(descent->at + 1),
                                        format_key_of(&descent->bound), descent->sibling);
            if (status == BANYAN_ENOSPC)
                status = 0; /* no room to help: the sibling link will do */
            break;
        }
        if (status)
            return status;
    }
}

int tree_locate(struct tree_session *session, struct tree *tree, struct format_key key, bool before,
                uint8_t level, struct tree_path *path)
{
    struct descent descent;
    descent_init(&descent, key, before, level, session->finding);
    descent.leaves = session->leaves;
    session->finding = NULL; /* what is located on the way is for something else */
    session->leaves = 0;
    session->brought.rest = (struct memory_walk_reader){0};
    tree_passing_free(session->passing);
    session->passing = NULL;
    int status = locate(session, tree, &descent, path);
    if (status == TREE_WALKED && descent.leaves)
        status = 0; /* the path came with the leaves */
    /* In front of what a call within this one has left, whose path it may return. */
    struct tree_frame **end = &descent.passing;
    while (*end)
        end = &(*end)->next;
    *end = session->passing;
    session->passing = descent.passing;
    return status;
}

void tree_path_forget(struct tree_session *session, struct tree *tree, const struct tree_path *path)
{
    if (path->parent.address)
        tree_cache_forget(tree->cache, session->pool.epoch, path->parent);
    else
        tree_root_forget(tree);
}

int tree_path_right(struct tree_session *session, struct tree *tree, struct tree_path *path,
                    struct format_key upper, struct format_link sibling, uint8_t level)
{
    struct format_key_copy separator;
    int status = 0;
    /* Siblings' fence keys ascend: else they lead in a circle. */
    if (path->walked && format_key_compare(upper, format_key_of(&session->walked_past)) <= 0)
        return pool_corrupt(&session->pool, path->link.address,
                            "a node does not end behind its left neighbour");
    format_key_store(&separator, upper);
    if (path->fresh)
        status = tree_parent_insert(session, tree, (uint8_t)(level + 1), format_key_of(&separator), sibling);
    else
        tree_path_forget(session, tree, path);
    if (status && status != BANYAN_ENOSPC) /* no room to help: the sibling link will do */
        return status;
    path->link = sibling;
    path->direct = path->fresh = false;
    path->walked = true;
    session->walked_past = separator;
    /* Walking right is progress; only a very long walk is counted as trouble. */
    session->stats.retries++;
    return ++session->walked % 64 ? 0 : tree_restart(session, sibling.address);
}
