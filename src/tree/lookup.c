/*
 * lookup.c - Point reads: R1 and R2. One round trip for a hit; one or two for a miss. Takes no lock, unless a
 * leaf stays unreadable for long. In a range that is another's nothing is helped: a logged one's lookups go
 * to its owner, and a leaf of another one that stays unreadable is left to its owner, by a peer call
 * (tree_lookup_here is the owner's side of it).
 */
#include <assert.h>
#include <string.h>

#include "format/verdict.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/catalogue.h"
#include "tree/forward.h"
#include "tree/in_place.h"
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

/* What one attempt at a leaf came to. AGAIN: read it, or its sibling, again; ELSEWHERE: locate the key again.
 */
enum outcome { HIT, MISS, AGAIN, ELSEWHERE };

struct point {
    struct tree_session *session;
    struct tree *tree;
    struct format_key key;
    struct tree_path path;
    struct format_point place; /* of the key in the leaf of `path` */
    struct format_slot slot;
    uint64_t stamp; /* taken before the leaf was read (owned_cache_use.h) */
    bool leaf_only; /* not what is not merged */
    bool asked;     /* for a peer, who may have met a half done leaf: a hit must not hide that */
    gaddr settled;  /* the leaf that was looked after for that */
    /* Not zeroed (point_init). */
    uint8_t value[FORMAT_VALUE_MAX]; /* of an entry of the cache */
};

/* The value is most of the structure, and says nothing before it is set. */
static void point_init(struct point *point, struct tree_session *session, struct tree *tree,
                       struct format_key key)
{
    memset(point, 0, offsetof(struct point, value));
    point->session = session;
    point->tree = tree;
    point->key = key;
}

/* `around`: of a leaf that the cache has and this process writes, what is not being written will do. */
static int point_read(struct point *point, bool header_too, bool around)
{
    struct tree_session *session = point->session;
    const struct format_layout *layout = &point->tree->layout;
    gaddr leaf = point->path.link.address;
    uint8_t *image = session->image.bytes;
    struct fabric_command reads[2];
    uint32_t count = 0;
    bool whole = session->compute->switches.read_unit == TREE_READ_LEAF;
    format_point_set(&point->place, layout, point->path.link, point->tree->index, point->key);
    const struct format_bucket *bucket = &point->place.bucket;
    if (whole) {
        reads[count++] = pool_read_command(leaf, image, layout->geometry.leaf_bytes);
    } else {
        reads[count++] = pool_read_command(leaf + bucket->offset, image + bucket->offset, bucket->bytes);
        if (header_too)
            reads[count++] = pool_read_command(leaf, image, layout->header_bytes);
    }
    point->stamp = tree_owned_stamp(session, point->tree, leaf);
    session->busy = (struct owned_busy){0};
    int status = around && tree_owned_caches(session, point->tree)
                     ? tree_owned_read_around(session, point->tree, leaf, reads, count)
                     : tree_leaf_read(session, point->tree, leaf, reads, count);
    if (status)
        return status;
    pool_read_settle(&reads[0]);
    if (count > 1)
        format_header_settle(layout, &reads[1]);
    if (whole)
        tree_charge_leaf(session, layout);
    else
        tree_charge_bucket(layout);
    return 0;
}

static int header_read(struct point *point)
{
    struct tree_session *session = point->session;
    gaddr leaf = point->path.link.address;
    struct fabric_command read =
        pool_read_command(leaf, session->image.bytes, point->tree->layout.header_bytes);
    int status = tree_leaf_read(session, point->tree, leaf, &read, 1);
    if (!status)
        format_header_settle(&point->tree->layout, &read);
    return status;
}

/* The leaf is dead: any session that has the right finishes its unlinking. */
static int point_dead(struct point *point, const struct format_header *header)
{
    struct tree_session *session = point->session;
    struct format_link link = point->path.link;
    int status = 0;
    if (tree_rights_cover_below(session, header->lower))
        status = tree_unlink_finish(session, point->tree, link, header);
    else if (session->right <= TREE_OWNED && session->restarts > TREE_PATIENCE)
        status = tree_foreign(session, link, header->lower);
    tree_path_forget(session, point->tree, &point->path);
    return status ? status : tree_restart(session, link.address);
}

/* What the verdict on the leaf leads to. */
static int point_follow(struct point *point, enum format_verdict verdict, const struct format_header *header,
                        enum outcome *outcome)
{
    struct tree_session *session = point->session;
    *outcome = ELSEWHERE;
    if (verdict != FORMAT_HIT && verdict != FORMAT_MISS && verdict != FORMAT_RIGHT)
        tree_owned_doubt(session, point->tree, point->path.link.address);
    switch (verdict) {
    case FORMAT_HIT:
        tree_owned_learn(session, point->tree, point->path.link, point->stamp, point->key, point->slot.value);
        *outcome = HIT;
        return 0;
    case FORMAT_MISS:
        *outcome = MISS;
        return 0;
    case FORMAT_RIGHT:
        *outcome = AGAIN; /* at the sibling */
        return tree_path_right(session, point->tree, &point->path, header->upper, header->sibling, 0);
    case FORMAT_DEAD:
        return point_dead(point, header);
    case FORMAT_OTHER: /* the path is stale */
        tree_path_forget(session, point->tree, &point->path);
        return tree_restart(session, point->path.link.address);
    case FORMAT_LEVEL:
    case FORMAT_LEFT:
        tree_path_forget(session, point->tree, &point->path);
        return tree_astray(session, point->path.link.address);
    case FORMAT_SPLITTING: /* R3: the new link must not be followed yet */
    case FORMAT_MERGING:   /* R7: what it takes over may not be there yet */
    case FORMAT_TORN:
    case FORMAT_MALFORMED: /* under the leaf's lock it would be corrupt (tree_leaf_settle) */
        *outcome = AGAIN;
        return 0;
    case FORMAT_LIVE:
    case FORMAT_FROZEN:
    case FORMAT_UNPROVEN:
        break;
    }
    assert(false && "a point's verdict with its header");
    return BANYAN_ECORRUPT;
}

/* Switch node-check: the verdict of one checksum over the leaf that was read, instead of the slot's own: that
 * of its header, TORN if any slot does not fit that, else the point's. */
static enum format_verdict node_verdict(const struct point *point, enum format_verdict found,
                                        struct format_header *header)
{
    const struct format_layout *layout = &point->tree->layout;
    const uint8_t *image = point->session->image.bytes;
    enum format_verdict verdict =
        format_node_verdict(layout, image, point->path.link, point->tree->index, 0, header);
    if (verdict != FORMAT_LIVE && verdict != FORMAT_FROZEN)
        return verdict;
    bool fits = format_slots_valid(layout, image, 0, layout->slots,
                                   format_slot_seed(header->tag, header->version), header->lower);
    return fits ? found : FORMAT_TORN;
}

static bool node_checked(const struct tree_session *session)
{
    return session->compute->switches.node_check && session->compute->switches.read_unit == TREE_READ_LEAF;
}

/* A hit that needs no list; false says nothing. */
static bool point_hit(struct point *point)
{
    struct tree_session *session = point->session;
    struct tree_in_place place;
    return session->access->find && !miss_likely(session) &&
           tree_in_place_find(session, point->tree, point->path.link, point->key, false, &place) &&
           tree_in_place_hit(session, point->tree, &place, &point->slot);
}

/* Whether the verdict rests on bytes that are being written. */
static bool point_busy(const struct point *point, enum format_verdict verdict)
{
    const struct format_layout *layout = &point->tree->layout;
    const struct owned_busy *busy = &point->session->busy;
    if (busy->from >= busy->to)
        return false;
    if (verdict != FORMAT_HIT)
        return true;
    uint32_t from = layout->slot_offset[point->slot.number];
    return from < busy->to && busy->from < from + layout->slot_bytes;
}

/* The verdict rests on such bytes: waits for the write to the key, if there is one, else reads the pool. */
static int point_await(struct point *point, bool together, enum format_seen seen, bool *told,
                       struct format_header *header, enum format_verdict *verdict)
{
    struct tree_session *session = point->session;
    uint32_t length;
    *told = tree_owned_await(session, point->tree, point->key, point->value, &length);
    if (*told) {
        point->slot.value = (struct format_key){point->value, length};
        return 0;
    }
    int status = point_read(point, together, false);
    if (!status)
        *verdict = format_point_verdict(&point->place, session->image.bytes, seen, header, &point->slot);
    return status;
}

/* The leaf that a walk has brought is as good as one that was READ whole (W11). False: there is none, or it
 * proves nothing. */
static bool point_brought(struct point *point, enum format_verdict *verdict, struct format_header *header)
{
    struct tree_session *session = point->session;
    struct tree *tree = point->tree;
    const struct format_link link = point->path.link;
    uint64_t moment;
    if (!tree_walk_brought(session, tree, link, session->image.bytes, &moment))
        return false;
    session->image.address = GADDR_NULL;
    session->served = false;
    point->stamp = tree_owned_stamp_since(session, tree, link.address, moment);
    format_point_set(&point->place, &tree->layout, link, tree->index, point->key);
    tree_charge_leaf(session, &tree->layout);
    *verdict =
        format_point_verdict(&point->place, session->image.bytes, FORMAT_SEEN_BOTH, header, &point->slot);
    if (node_checked(session) && (*verdict == FORMAT_HIT || *verdict == FORMAT_MISS))
        *verdict = node_verdict(point, *verdict, header);
    if (*verdict != FORMAT_HIT && *verdict != FORMAT_MISS)
        return false;
    tree_owned_offer(session, tree, link.address, session->image.bytes, point->stamp);
    return true;
}

static int point_attempt(struct point *point, unsigned attempt, enum outcome *outcome)
{
    struct tree_session *session = point->session;
    if (!attempt && point_hit(point)) {
        *outcome = HIT;
        return 0;
    }
    bool together = attempt ? session->compute->switches.combine == POOL_COMBINE_ALL : miss_likely(session);
    bool both = together || session->compute->switches.read_unit == TREE_READ_LEAF;
    struct format_header header;
    enum format_verdict verdict;
    enum format_seen seen = both ? FORMAT_SEEN_BOTH : FORMAT_SEEN_BUCKET;
    if (!attempt && point_brought(point, &verdict, &header))
        return point_follow(point, verdict, &header, outcome);
    int status = point_read(point, together, !point->asked);
    if (status)
        return status;
    verdict = format_point_verdict(&point->place, session->image.bytes, seen, &header, &point->slot);
    if (point_busy(point, verdict)) {
        bool told;
        status = point_await(point, together, seen, &told, &header, &verdict);
        *outcome = HIT;
        if (status || told)
            return status;
    }
    if (verdict == FORMAT_UNPROVEN) {
        status = header_read(point);
        if (status)
            return status;
        /* The bucket too: if the leaf came whole, for the cache, the bucket is another one than that which
         * was searched, and the key may be in it. */
        verdict = format_point_verdict(&point->place, session->image.bytes, FORMAT_SEEN_BOTH, &header,
                                       &point->slot);
    }
    if (node_checked(session) && (verdict == FORMAT_HIT || verdict == FORMAT_MISS))
        verdict = node_verdict(point, verdict, &header);
    return point_follow(point, verdict, &header, outcome);
}

/* The leaf has been read many times in vain. */
static int point_settle(struct point *point)
{
    point->settled = point->path.link.address;
    return point->session->right == TREE_OTHERS
               ? TREE_FORWARD
               : tree_leaf_settle(point->session, point->tree, point->path.link);
}

/* L4: what is not merged yet. 0, BANYAN_ENOTFOUND, or TREE_RESTART: the leaf tells. */
static int point_unmerged(struct point *point)
{
    struct tree_session *session = point->session;
    uint32_t length;
    if (point->leaf_only || !tree_logs(session))
        return TREE_RESTART;
    switch (tree_logged_find(session, point->tree, point->key, point->value, &length)) {
    case UNMERGED_VALUE:
        point->slot.value = (struct format_key){point->value, length};
        return 0;
    case UNMERGED_DELETED:
        return BANYAN_ENOTFOUND;
    default:
        return TREE_RESTART;
    }
}

/* From the cache of what this process owns: the key's value, or by a shortcut to its leaf. False: not so. */
static bool point_cached(struct point *point, int *status)
{
    struct tree_session *session = point->session;
    struct format_link leaf;
    uint32_t length;
    *status = 0;
    if (point->asked)
        return false;
    if (tree_owned_lookup(session, point->tree, point->key, point->value, &length, &leaf)) {
        point->slot.value = (struct format_key){point->value, length};
        return true;
    }
    if (leaf.address == GADDR_NULL)
        return false;
    point->path = (struct tree_path){.link = leaf};
    *status = point_read(point, false, false);
    if (*status)
        return true;
    struct format_header header;
    if (format_point_verdict(&point->place, session->image.bytes, FORMAT_SEEN_BUCKET, &header,
                             &point->slot) != FORMAT_HIT)
        return false; /* it has moved, or is gone */
    tree_owned_learn(session, point->tree, leaf, point->stamp, point->key, point->slot.value);
    return true;
}

/* Whether a memory node may answer instead of its leaf, or bring that, where it should be cached whole. */
static struct tree_finding *point_finds(const struct point *point, struct tree_finding *finding)
{
    struct tree_session *session = point->session;
    *finding = (struct tree_finding){0};
    if (!session->compute->walks || point->asked)
        return NULL;
    finding->admits = tree_owned_caches(session, point->tree);
    return finding;
}

/* A memory node's answer (R1, R2, by its own reading: docs/internals/walks.md). */
static int point_found(struct point *point, const struct tree_finding *finding, uint64_t round_trips)
{
    struct tree_session *session = point->session;
    struct tree *tree = point->tree;
    miss_learn(session, !finding->found);
    if (!finding->found)
        return BANYAN_ENOTFOUND;
    memcpy(point->value, finding->value, finding->length);
    point->slot.value = (struct format_key){point->value, finding->length};
    session->served = false;
    tree_owned_learn(session, tree, finding->link,
                     tree_owned_stamp_since(session, tree, finding->link.address, finding->moment),
                     point->key, point->slot.value);
    tree_owned_missed(session, tree, round_trips);
    return 0;
}

/* One try under the right that was entered: 0 with the proven slot in point->slot, BANYAN_ENOTFOUND (with a
 * message only where the index was dropped), an error, TREE_FORWARD, or a verdict of turn.h. */
static int point_try(struct point *point)
{
    struct tree_session *session = point->session;
    int cached = point_unmerged(point);
    if (cached != TREE_RESTART)
        return cached;
    if (point_cached(point, &cached))
        return tree_again(session, point->tree, &cached) ? TREE_ANEW : cached;
    const uint64_t began = session->stats.cost.round_trips;
    for (;;) {
        struct tree_finding finding;
        enum outcome outcome = AGAIN;
        session->finding = point_finds(point, &finding);
        int status = tree_locate(session, point->tree, point->key, false, 0, &point->path);
        if (status == TREE_WALKED)
            return point_found(point, &finding, session->stats.cost.round_trips - began);
        for (unsigned attempt = 0; !status && outcome == AGAIN; attempt++) {
            gaddr leaf = point->path.link.address;
            if ((attempt && attempt % TREE_PATIENCE == 0) || (point->asked && point->settled != leaf))
                status = point_settle(point);
            if (!status)
                status = point_attempt(point, attempt, &outcome);
            if (status == TREE_RESTART) {
                tree_path_forget(session, point->tree, &point->path);
                status = tree_restart(session, leaf);
                outcome = ELSEWHERE;
            } else if (!status && outcome == AGAIN && leaf == point->path.link.address) {
                session->stats.retries++;
            }
        }
        if (tree_again(session, point->tree, &status))
            return TREE_ANEW;
        if (status)
            return status;
        if (outcome == HIT || outcome == MISS) {
            miss_learn(session, outcome == MISS);
            if (outcome == HIT && !point->asked)
                tree_owned_missed(session, point->tree, session->stats.cost.round_trips - began);
            return outcome == HIT ? 0 : BANYAN_ENOTFOUND;
        }
        if (session->right == TREE_OTHERS && session->restarts > TREE_PATIENCE)
            return TREE_FORWARD;
    }
}

static int value_copy(struct tree_session *session, const struct tree *tree, struct format_key found,
                      void *value, size_t *length)
{
    size_t capacity = *length;
    *length = found.length;
    if (capacity < found.length)
        return pool_fail(&session->pool, BANYAN_EVALUESIZE,
                         "index %s: the value has %u bytes, the buffer %zu", tree->name, found.length,
                         capacity);
    if (found.length)
        memcpy(value, found.bytes, found.length);
    return 0;
}

/* The end of lookup_plain, at the leaf to which so many frames have led. */
static int plain_value(struct tree_session *session, struct tree *tree, struct format_link leaf,
                       uint32_t frames, struct format_key key, void *value, size_t *length)
{
    struct tree_in_place place;
    struct format_slot slot;
    if (!tree_in_place_find(session, tree, leaf, key, false, &place) ||
        !tree_in_place_hit(session, tree, &place, &slot))
        return TREE_RESTART;
    tree_locate_count(session, frames);
    miss_learn(session, false);
    return value_copy(session, tree, slot.value, value, length);
}

/* The same where key and value are words. */
static int plain_word(struct tree_session *session, struct tree *tree, struct format_link leaf,
                      uint32_t frames, struct format_key key, void *value, size_t *length)
{
    uint64_t wanted, found;
    memcpy(&wanted, key.bytes, sizeof wanted);
    if (!session->access->word(session, tree, leaf, wanted, &found))
        return TREE_RESTART;
    session->cached = false; /* as in tree_in_place_hit */
    tree_charge_bucket(&tree->layout);
    tree_locate_count(session, frames);
    miss_learn(session, false);
    return value_copy(session, tree, (struct format_key){(const uint8_t *)&found, sizeof found}, value,
                      length);
}

/*
 * What point_try comes to where nothing stands in the way: the range is this process's alone and not logged,
 * the way to the leaf is cached, the leaf is mapped here, and the key's slot is found there (R1).
 * TREE_RESTART: it is not so; then nothing is counted, and point_try begins from the root.
 */
static int lookup_plain(struct tree_session *session, struct tree *tree, struct format_key key, void *value,
                        size_t *length)
{
    struct format_link leaf;
    uint32_t frames;
    if (session->right != TREE_OWNED || session->logged || tree->owned || !session->access->find ||
        session->compute->walks || miss_likely(session) ||
        !tree_locate_cached(session, tree, key, &leaf, &frames))
        return TREE_RESTART;
    return format_layout_words(&tree->layout) ? plain_word(session, tree, leaf, frames, key, value, length)
                                              : plain_value(session, tree, leaf, frames, key, value, length);
}

static int lookup_any(struct tree_session *session, struct tree *tree, struct format_key key, bool leaf_only,
                      void *value, size_t *length)
{
    struct point point;
    point_init(&point, session, tree, key);
    point.leaf_only = leaf_only;
    int status = point_try(&point);
    return status ? status : value_copy(session, tree, point.slot.value, value, length);
}

int tree_lookup_try(struct tree_session *session, struct tree *tree, struct format_key key, void *value,
                    size_t *length)
{
    if (tree_rights_ask(session))
        return TREE_FORWARD;
    int status = lookup_plain(session, tree, key, value, length);
    return status == TREE_RESTART ? lookup_any(session, tree, key, false, value, length) : status;
}

int tree_lookup_leaf(struct tree_session *session, struct tree *tree, struct format_key key, void *value,
                     size_t *length)
{
    return lookup_any(session, tree, key, true, value, length);
}

static int lookup_failed(struct tree_session *session, struct tree *tree, int status)
{
    if (status == BANYAN_ENOTFOUND && !tree_is_dropped(tree))
        return pool_fail(&session->pool, status, "index %s: no such key", tree->name);
    return pool_not_done(&session->pool, status);
}

int tree_lookup(struct tree_session *session, struct tree *tree, const void *key_bytes, size_t key_length,
                void *value, size_t *length)
{
    const struct format_key key = {key_bytes, (uint32_t)key_length};
    const size_t capacity = *length;
    struct tree_turn turn = {0};
    int status = tree_key_check(session, tree, key_bytes, key_length);
    if (!status)
        status = tree_begin(session, tree);
    if (status)
        return status;
    do {
        *length = capacity;
        status = tree_rights_enter(session, tree, key) == TREE_MOVING
                     ? TREE_WAIT
                     : tree_lookup_try(session, tree, key, value, length);
        if (status == TREE_FORWARD) {
            tree_turn_ask(&turn);
            status = tree_forward_lookup(session, tree, key, false, value, length);
        }
    } while (tree_turn_again(session, tree, &turn, &status));
    return status ? lookup_failed(session, tree, status) : 0;
}

int tree_lookup_here(struct tree_session *session, struct tree *tree, const void *key_bytes,
                     size_t key_length, void *value, size_t *length)
{
    const size_t capacity = *length;
    struct point point;
    struct tree_turn turn = {0};
    point_init(&point, session, tree, (struct format_key){key_bytes, (uint32_t)key_length});
    point.asked = true;
    int status = tree_key_check(session, tree, key_bytes, key_length);
    if (!status)
        status = tree_begin(session, tree);
    if (status)
        return status;
    do {
        *length = capacity;
        if (tree_rights_enter(session, tree, point.key) != TREE_OWNED) {
            tree_rights_leave(session);
            return tree_not_owned(session, tree);
        }
        status = point_try(&point);
        if (!status)
            status = value_copy(session, tree, point.slot.value, value, length);
    } while (tree_turn_again(session, tree, &turn, &status));
    return status ? lookup_failed(session, tree, status) : 0;
}
