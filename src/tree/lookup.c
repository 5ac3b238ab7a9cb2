/*
 * lookup.c - Point reads: R1 and R2. One round trip for a hit; one or two for a miss. Takes no lock, unless a
 * leaf stays unreadable for long.
 */
#include "tree/state.h"

/*
 * A hit needs the bucket alone, a miss the header too. Read together they cost one round trip, and 64 bytes
 * or more that a hit has no use for: worth it where at least one lookup in this many misses.
 */
#define MISS_ONE_IN 16u
#define MISS_MEMORY 64u /* lookups over which the share is averaged */

static bool miss_likely(const struct tree_session *session)
{
    return session->compute->switches.combine == POOL_COMBINE_ALL &&
           session->miss_share > 65536u / MISS_ONE_IN;
}

static void miss_learn(struct tree_session *session, bool missed)
{
    session->miss_share += (missed ? 65536u / MISS_MEMORY : 0u) - session->miss_share / MISS_MEMORY;
}

/* What one attempt at a leaf came to. */
enum verdict { HIT, MISS, AGAIN, ELSEWHERE };

struct point {
    struct tree_session *session;
    struct tree *tree;
    struct format_key key;
    struct tree_path path;
    struct format_bucket bucket;
    uint32_t seed;
    uint16_t version; /* at the segment's head */
    struct format_slot slot;
};

static int point_read(struct point *point, bool header_too)
{
    struct tree_session *session = point->session;
    const struct format_layout *layout = &point->tree->layout;
    gaddr leaf = point->path.link.address;
    uint8_t *image = session->image.bytes;
    struct fabric_command reads[2];
    uint32_t count = 0, slots = layout->bucket_slots;
    format_bucket_of(layout, point->path.link.tag, point->key, &point->bucket);
    if (session->compute->switches.read_unit == TREE_READ_LEAF) {
        reads[count++] = pool_read_command(leaf, image, layout->geometry.leaf_bytes);
        slots = layout->slots;
    } else {
        reads[count++] =
            pool_read_command(leaf + point->bucket.offset, image + point->bucket.offset, point->bucket.bytes);
        if (header_too)
            reads[count++] = pool_read_command(leaf, image, layout->header_bytes);
    }
    int status = pool_execute(&session->pool, gaddr_node(leaf), reads, count);
    if (status)
        return status;
    pool_read_settle(&reads[0]);
    if (count > 1)
        format_header_settle(layout, &reads[1]);
    task_charge(TASK_WORK_LEAF, slots);
    point->version = format_bucket_version(image, &point->bucket);
    point->seed = format_slot_seed(point->path.link.tag, point->version);
    return 0;
}

static int header_read(struct point *point)
{
    struct tree_session *session = point->session;
    struct fabric_command read =
        pool_read_command(point->path.link.address, session->image.bytes, point->tree->layout.header_bytes);
    int status = pool_execute(&session->pool, gaddr_node(read.address), &read, 1);
    if (!status)
        format_header_settle(&point->tree->layout, &read);
    return status;
}

/* The key was not among the slots read: what does the header make of that (R2)? */
static int miss_judge(struct point *point, enum verdict *verdict)
{
    struct tree_session *session = point->session;
    const struct format_layout *layout = &point->tree->layout;
    struct format_header header;
    *verdict = AGAIN;
    if (!format_header_valid(layout, session->image.bytes) ||
        !format_header_decode(layout, session->image.bytes, &header))
        return 0;
    *verdict = ELSEWHERE;
    if (header.tag != point->path.link.tag || header.index != point->tree->index || header.level != 0) {
        tree_path_forget(session, point->tree, &point->path);
        return tree_restart(session, point->path.link.address);
    }
    if (header.state == FORMAT_NODE_DEAD) {
        int status = tree_unlink_finish(session, point->tree, point->path.link, &header);
        tree_path_forget(session, point->tree, &point->path);
        return status ? status : tree_restart(session, point->path.link.address);
    }
    if (header.state == FORMAT_NODE_SPLITTING) { /* R3: nobody follows the new link yet */
        *verdict = AGAIN;
        return 0;
    }
    int side = format_header_side(&header, point->key);
    if (side > 0) {
        *verdict = AGAIN; /* at the sibling */
        return tree_path_right(session, point->tree, &point->path, header.upper, header.sibling, 0);
    }
    if (side < 0) {
        tree_path_forget(session, point->tree, &point->path);
        return tree_restart(session, point->path.link.address);
    }
    bool proven = header.version == point->version &&
                  format_slots_valid(layout, session->image.bytes, point->bucket.first, point->bucket.count,
                                     point->seed, header.lower);
    *verdict = proven ? MISS : AGAIN;
    return 0;
}

static int point_attempt(struct point *point, unsigned attempt, enum verdict *verdict)
{
    struct tree_session *session = point->session;
    bool together = attempt ? session->compute->switches.combine == POOL_COMBINE_ALL : miss_likely(session);
    bool whole = session->compute->switches.read_unit == TREE_READ_LEAF;
    int status = point_read(point, together);
    if (status)
        return status;
    if (format_bucket_find(&point->tree->layout, session->image.bytes, &point->bucket, point->seed,
                           point->key, &point->slot)) {
        *verdict = HIT; /* R1 */
        return 0;
    }
    if (!together && !whole) {
        status = header_read(point);
        if (status)
            return status;
    }
    return miss_judge(point, verdict);
}

/* 0 with the proven slot in point->slot, BANYAN_ENOTFOUND (with a message only where the index was dropped),
 * or an error. */
static int point_lookup(struct point *point)
{
    struct tree_session *session = point->session;
    for (;;) {
        int status = tree_locate(session, point->tree, point->key, false, 0, &point->path);
        enum verdict verdict = AGAIN;
        for (unsigned attempt = 0; !status && verdict == AGAIN; attempt++) {
            gaddr leaf = point->path.link.address;
            if (attempt && attempt % TREE_PATIENCE == 0)
                status = tree_leaf_settle(session, point->tree, point->path.link);
            if (!status)
                status = point_attempt(point, attempt, &verdict);
            if (status == TREE_RESTART) {
                tree_path_forget(session, point->tree, &point->path);
                status = tree_restart(session, leaf);
                verdict = ELSEWHERE;
            } else if (!status && verdict == AGAIN && leaf == point->path.link.address) {
                session->stats.retries++;
            }
        }
        if (tree_again(session, &status))
            continue;
        if (status)
            return status;
        if (verdict == HIT || verdict == MISS) {
            miss_learn(session, verdict == MISS);
            return verdict == HIT ? 0 : BANYAN_ENOTFOUND;
        }
    }
}

int tree_lookup(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                void *value, size_t *length)
{
    int status = tree_key_check(session, tree, key, key_length);
    if (!status)
        status = tree_begin(session, tree);
    if (status)
        return status;
    struct point point = {.session = session, .tree = tree, .key = {key, (uint32_t)key_length}};
    status = point_lookup(&point);
    if (status == BANYAN_ENOTFOUND && !tree_is_dropped(tree))
        return pool_fail(&session->pool, status, "index %s: no such key", tree->name);
    if (status)
        return pool_not_done(&session->pool, status);
    size_t capacity = *length;
    *length = point.slot.value.length;
    if (capacity < point.slot.value.length)
        return pool_fail(&session->pool, BANYAN_EVALUESIZE,
                         "index %s: the value has %u bytes, the buffer %zu", tree->name,
                         point.slot.value.length, capacity);
    if (point.slot.value.length)
        memcpy(value, point.slot.value.bytes, point.slot.value.length);
    return 0;
}
