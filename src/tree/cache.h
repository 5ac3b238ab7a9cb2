/*
 * cache.h - the node cache: decoded internal nodes of one index on one compute node, up to a number of bytes.
 * Private to src/tree/. Shared by all sessions; searches take no lock, but must lie between epoch_enter and
 * epoch_leave, within which a task must not suspend. No round trips.
 */
#ifndef TREE_CACHE_H
#define TREE_CACHE_H

#include <string.h>

#include "format/internal_node.h"
#include "tree/tree.h"

struct epoch_slot;
struct owned_cache;
struct tree_cache;

#define TREE_PREFIX_MAX 40u

/*
 * An internal node, decoded; its bytes are not kept. Immutable but for `children` and `used`; read between
 * epoch_enter and epoch_leave. What a descent needs comes first, and the heads follow the struct: a search
 * touches few cache lines. Behind them stand, in this order: the children (above level 1), the links, and
 * the keys with the upper fence key last (unless `whole`: then the heads are the keys).
 */
struct tree_frame {
    struct format_link link;
    uint8_t level;
    bool has_upper;
    bool whole;   /* keys are eight bytes: the heads are all there is to compare */
    uint8_t hits; /* up to 15, halved when replacement looks at the frame; relaxed */
    uint16_t count;
    uint16_t room;                   /* of its memory, in units of the cache's */
    uint32_t common;                 /* bytes that all keys but the first share: of `prefix` */
    uint32_t used;                   /* the cache's clock when it was last used */
    uint64_t lower_head, upper_head; /* of the fence keys */
    const uint8_t *links;            /* tree_frame_link */
    struct tree_frame **children;    /* [count], swizzled, NULL where unknown; NULL array on level 1 */
    uint8_t prefix[TREE_PREFIX_MAX];
    /* seldom needed */
    struct format_link sibling;
    const uint8_t *keys; /* tree_frame_key */
    /* the cache's own, under its lock */
    struct tree_frame *parent;
    struct tree_frame *next;
    uint32_t parent_entry, place, cached_children;
    /* [count]: of each key but the first, the eight bytes behind the common ones; then the greatest word
     * until the cache line ends */
    uint64_t heads[] __attribute__((aligned(64)));
};
#define TREE_HEADS_LINE 8u /* heads of a cache line */

/* `lowest`: the lowest level whose nodes are kept, 1 for all (Cell §3 leaves the lowest out, so that a small
 * tree behaves as the lower part of a much larger one). */
struct tree_cache *tree_cache_create(uint64_t bytes, uint8_t lowest, const struct format_layout *layout);
void tree_cache_destroy(struct tree_cache *cache);
/* Before anything is cached: the frames share one budget with what is cached of owned ranges, instead of one
 * of their own. */
void tree_cache_share(struct tree_cache *cache, struct owned_cache *owned);
/* In an epoch. NULL when it is not cached under this tag. */
struct tree_frame *tree_cache_find(struct tree_cache *cache, struct format_link link);
bool tree_cache_keeps(const struct tree_cache *cache, uint8_t level);
/*
 * Decodes a valid image into a frame and publishes it in place of an older one; does nothing for a level that
 * is not kept; false if the node is malformed or memory short. `entries` is room to work in,
 * FORMAT_ENTRIES_MAX of them: too much for a fiber's stack.
 */
bool tree_cache_install(struct tree_cache *cache, struct epoch_slot *slot, gaddr address,
                        const uint8_t *image, struct format_entry *entries);
/* The same of a node that this process has just encoded, from what it was encoded from: nothing is decoded.
 * The header counts the entries; their keys are copied, so they may lie in a buffer of the session. */
bool tree_cache_install_entries(struct tree_cache *cache, struct epoch_slot *slot, gaddr address,
                                const struct format_header *header, const struct format_entry *entries);
/*
 * A frame of a level that is not kept, for one descent: it is the caller's alone, is never found by others,
 * and is freed with tree_frame_free. Allocates. NULL as with tree_cache_install.
 */
struct tree_frame *tree_frame_create(const struct format_layout *layout, gaddr address, const uint8_t *image,
                                     struct format_entry *entries);
void tree_frame_free(struct tree_frame *frame);
/* Whether so many bytes more would be cached without taking anything out. A figure: it may change at once. */
bool tree_cache_has_room(const struct tree_cache *cache, uint64_t bytes);
void tree_cache_forget(struct tree_cache *cache, struct epoch_slot *slot, struct format_link link);
/* Every frame that lies on the memory node, or leads to it: it was removed. Looks at all of the cache, a few
 * frames at a time under its lock. */
void tree_cache_forget_node(struct tree_cache *cache, struct epoch_slot *slot, uint16_t node);
/* In an epoch: the frame was used. */
void tree_cache_touch(struct tree_cache *cache, struct tree_frame *frame);
/* In an epoch: remembers that entry `entry` of parent leads to child. */
void tree_cache_swizzle(struct tree_cache *cache, struct tree_frame *parent, uint32_t entry,
                        struct tree_frame *child);
void tree_cache_count(const struct tree_cache *cache, struct tree_cache_stats *stats);
/* The last of so many heads that is not above this one; the first, where all are. */
static inline uint32_t tree_heads_search(const uint64_t *heads, uint32_t count, uint64_t head)
{
    /* The lines' first heads, then one line: loads that do not wait for each other, and sums where a branch
     * would be guessed wrong. */
    const uint64_t *first = heads + TREE_HEADS_LINE, *end = heads + count;
    uint32_t lines = 0;
    for (; end - first > 3 * (int)TREE_HEADS_LINE; first += 4 * TREE_HEADS_LINE)
        lines += (uint32_t)(first[0] <= head) + (first[TREE_HEADS_LINE] <= head) +
                 (first[2 * TREE_HEADS_LINE] <= head) + (first[3 * TREE_HEADS_LINE] <= head);
    for (; first < end; first += TREE_HEADS_LINE)
        lines += *first <= head;
    uint32_t low = lines * TREE_HEADS_LINE;
    const uint64_t *line = heads + low;
    low += (uint32_t)(line[1] <= head) + (line[2] <= head) + (line[3] <= head) + (line[4] <= head) +
           (line[5] <= head) + (line[6] <= head) + (line[7] <= head);
    return low < count ? low : count - 1;
}
/* The entry whose range holds the key (before: what lies just below the key), if the key is within the
 * frame; the first one if it lies left of it, the last one if right. */
uint32_t tree_frame_search(const struct format_layout *layout, const struct tree_frame *frame,
                           struct format_key key, bool before);
#define TREE_FRAME_LINK_BYTES 12u
static inline struct format_link tree_frame_link(const struct tree_frame *frame, uint32_t entry)
{
    const uint8_t *at = frame->links + entry * TREE_FRAME_LINK_BYTES;
    struct format_link link = {0};
    memcpy(&link.address, at, 8);
    memcpy(&link.tag, at + 8, 4);
    return link;
}
/* A key's bytes are in the frame, or in here. */
struct tree_key_room {
    uint8_t bytes[8];
};
/* The first entry's is the lower fence key; that of entry `count` the upper one, if there is one. */
struct format_key tree_frame_key(const struct format_layout *layout, const struct tree_frame *frame,
                                 uint32_t entry, struct tree_key_room *room);

#endif
