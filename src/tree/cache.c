/*
 * cache.c - The node cache: decoded internal nodes of one index on one compute node. No round trips.
 */
#include "tree/cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "base/bytes.h"
#include "base/epoch.h"
#include "base/random.h"
#include "format/internal_node.h"
#include "tree/owned_cache.h"

/*
 * Readers walk buckets and swizzled child pointers inside an epoch, without a lock; every change is made
 * under the cache's spin lock, and what leaves the cache is freed when no reader can still be in it. A frame
 * is evicted when it is the longest unused of a small random sample, and only if none of its children is
 * cached (path-aware, DEX §5.2): the upper levels stay until what lies below them is gone.
 */
#define SAMPLE        8u
#define SLAB_SMALL    (UINT64_C(128) << 10)
#define SLAB_LARGE    (UINT64_C(2) << 20) /* a huge page, where the system has them: for caches worth one */
#define SLABS_SMALL   (UINT64_C(1) << 20) /* so much in small ones first: few frames are not worth one */
#define EVICTIONS_MAX 4u                  /* for one installation */
#define HITS_MAX      15u
#define FORGET_STEP   64u /* frames that are looked at under the lock */
#define FRAMES_MIN    16u /* whatever the limit: a few paths must fit */
#define ROOM_UNIT     64u /* frames' memory is given in such units */
#define ROOMS_MAX     512u

struct slab {
    struct slab *next;
};

struct tree_cache {
    struct spinlock lock;
    const struct format_layout *layout;
    uint8_t lowest;                     /* level that is kept */
    bool huge;                          /* slabs may be large */
    struct slab *slabs;                 /* owned; frames are cut from them; freed with the cache */
    uint64_t slab_bytes, slab_used;     /* of the newest */
    uint64_t slabs_bytes;               /* of all */
    struct tree_frame *idle[ROOMS_MAX]; /* of so many units, by `next`: to be used again */
    uint64_t limit, bytes, admissions, evictions;
    struct owned_cache *owned;   /* whose budget it is; NULL: `limit` is */
    struct tree_frame **buckets; /* [bucket_count], atomic heads */
    uint32_t bucket_count;       /* power of two; fixed: from the limit */
    struct tree_frame **places;  /* [count]: all frames, for sampling */
    uint32_t count, capacity;
    uint32_t retired; /* frames that an epoch still keeps from coming back */
    bool closed;      /* the last of them frees the cache */
    uint32_t clock;   /* ticks with every installation: the age of frames */
    struct random random;
};

/* A frame never needs more than this: FORMAT_ENTRIES_MAX entries, a node's bytes of keys, the upper fence
 * key. */
_Static_assert(sizeof(struct tree_frame) + FORMAT_ENTRIES_MAX * (8 + 8 + TREE_FRAME_LINK_BYTES + 2) + 64 +
                       4096 + FORMAT_KEY_MAX + 64 <=
                   (ROOMS_MAX - 1) * ROOM_UNIT,
               "rooms for all frames");

static bool keys_whole(const struct format_layout *layout)
{
    return layout->geometry.key_kind == FORMAT_KEY_FIXED && layout->geometry.key_bytes == 8;
}

/* Bytes of the keys, with the upper fence key. */
static uint32_t keys_size(const struct format_layout *layout, const struct format_header *header,
                          const struct format_entry *entries)
{
    if (keys_whole(layout))
        return 0;
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        return (header->count + 1u) * layout->geometry.key_bytes;
    uint32_t bytes = header->upper.length + 2 * (header->count + 2u);
    for (uint32_t i = 0; i < header->count; i++)
        bytes += entries[i].key.length;
    return bytes;
}

/* Whole lines of heads. */
static uint32_t heads_room(uint32_t count)
{
    return (count + TREE_HEADS_LINE - 1) / TREE_HEADS_LINE * TREE_HEADS_LINE;
}

/* What a frame of this node takes, in units; ROOMS_MAX or more only where keys lie upon each other. */
static uint32_t frame_room(const struct format_layout *layout, const struct format_header *header,
                           const struct format_entry *entries)
{
    uint32_t entry = TREE_FRAME_LINK_BYTES + (header->level > 1 ? (uint32_t)sizeof(struct tree_frame *) : 0);
    uint32_t bytes = (uint32_t)sizeof(struct tree_frame) +
                     heads_room(header->count) * (uint32_t)sizeof(uint64_t) + header->count * entry +
                     keys_size(layout, header, entries);
    return (bytes + ROOM_UNIT - 1) / ROOM_UNIT;
}

static uint32_t frame_bytes(const struct tree_frame *frame)
{
    return frame->room * ROOM_UNIT;
}

struct tree_cache *tree_cache_create(uint64_t bytes, uint8_t lowest, const struct format_layout *layout)
{
    struct tree_cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return NULL;
    cache->layout = layout;
    cache->lowest = lowest;
    cache->limit = bytes;
    cache->huge = bytes >= 8 * SLAB_LARGE;
    cache->bucket_count = 1024;
    while (cache->bucket_count < bytes / 2048 && cache->bucket_count < (1u << 22))
        cache->bucket_count *= 2;
    cache->buckets = calloc(cache->bucket_count, sizeof *cache->buckets);
    random_seed(&cache->random, 1);
    if (!cache->buckets) {
        free(cache);
        return NULL;
    }
    return cache;
}

static void cache_free(struct tree_cache *cache)
{
    while (cache->slabs) {
        struct slab *slab = cache->slabs;
        cache->slabs = slab->next;
        free(slab);
    }
    free(cache->places);
    free(cache->buckets);
    free(cache);
}

void tree_cache_destroy(struct tree_cache *cache)
{
    if (!cache)
        return;
    spinlock_lock(&cache->lock);
    assert(!cache->closed);
    if (cache->owned)
        owned_cache_inner_bytes(cache->owned, -(int64_t)cache->bytes);
    cache->owned = NULL; /* it may go before the last frame comes back */
    cache->closed = true;
    bool last = !cache->retired;
    spinlock_unlock(&cache->lock);
    if (last)
        cache_free(cache);
}

void tree_cache_share(struct tree_cache *cache, struct owned_cache *owned)
{
    assert(!cache->count);
    cache->owned = owned;
}

void tree_cache_count(const struct tree_cache *cache, struct tree_cache_stats *stats)
{
    struct tree_cache *shared = (struct tree_cache *)(uintptr_t)cache;
    spinlock_lock(&shared->lock);
    *stats = (struct tree_cache_stats){.frames = cache->count,
                                       .bytes = cache->bytes,
                                       .admissions = cache->admissions,
                                       .evictions = cache->evictions};
    spinlock_unlock(&shared->lock);
}

bool tree_cache_keeps(const struct tree_cache *cache, uint8_t level)
{
    return level >= cache->lowest;
}

static struct tree_frame **bucket_of(const struct tree_cache *cache, gaddr address)
{
    return &cache->buckets[random_mix(address) & (cache->bucket_count - 1)];
}

struct tree_frame *tree_cache_find(struct tree_cache *cache, struct format_link link)
{
    /* Acquire pairs with the release in frame_publish: a frame that is found is wholly built. */
    struct tree_frame *frame = atomic_load_acquire(bucket_of(cache, link.address));
    while (frame && frame->link.address != link.address)
        frame = atomic_load_acquire(&frame->next);
    return frame && frame->link.tag == link.tag ? frame : NULL;
}

void tree_cache_touch(struct tree_cache *cache, struct tree_frame *frame)
{
    uint32_t now = atomic_load_relaxed(&cache->clock);
    if (atomic_load_relaxed(&frame->used) != now) /* a hint for eviction: no order needed */
        atomic_store_relaxed(&frame->used, now);
    if (!cache->owned)
        return;
    uint8_t hits = atomic_load_relaxed(&frame->hits); /* a hint too */
    if (hits < HITS_MAX)
        atomic_store_relaxed(&frame->hits, (uint8_t)(hits + 1));
    if (!hits)
        owned_cache_inner_hit(cache->owned);
}

/* ---- building ---- */

/* Under the lock: memory of a frame that is gone, of so many units, or up to half as many more. */
static struct tree_frame *idle_take(struct tree_cache *cache, uint32_t room)
{
    for (uint32_t units = room; units <= room + room / 2u && units < ROOMS_MAX; units++) {
        struct tree_frame *frame = cache->idle[units];
        if (frame) {
            cache->idle[units] = frame->next;
            return frame;
        }
    }
    return NULL;
}

/* Under the lock: room for more frames. False when memory is short. */
static bool slab_add(struct tree_cache *cache)
{
    bool large = cache->huge && cache->slabs_bytes >= SLABS_SMALL;
    uint64_t bytes = large ? SLAB_LARGE : SLAB_SMALL;
    struct slab *slab = aligned_alloc(bytes, bytes);
    if (!slab)
        return false;
    if (large)
        madvise(slab, SLAB_LARGE, MADV_HUGEPAGE); /* a wish: nothing depends on it */
    slab->next = cache->slabs;
    cache->slabs = slab;
    cache->slab_bytes = bytes;
    cache->slab_used = 64;
    cache->slabs_bytes += bytes;
    return true;
}

/* Under the lock. NULL when memory is short. */
static struct tree_frame *frame_take(struct tree_cache *cache, uint32_t room)
{
    struct tree_frame *frame = idle_take(cache, room);
    if (frame)
        return frame;
    uint64_t bytes = (uint64_t)room * ROOM_UNIT;
    if ((!cache->slabs || cache->slab_used + bytes > cache->slab_bytes) && !slab_add(cache))
        return NULL;
    frame = (struct tree_frame *)(void *)((uint8_t *)cache->slabs + cache->slab_used);
    cache->slab_used += bytes;
    frame->room = (uint16_t)room;
    return frame;
}

/* Under the lock. */
static void frame_return(struct tree_cache *cache, struct tree_frame *frame)
{
    frame->next = cache->idle[frame->room];
    cache->idle[frame->room] = frame;
}

/* The first eight bytes behind `skip`, which are those of the key at least. */
static uint64_t head_behind(struct format_key key, uint32_t skip)
{
    uint32_t left = key.length - skip;
    uint64_t word;
    if (left >= sizeof word || key.length < sizeof word)
        return format_key_head((struct format_key){key.bytes + skip, left});
    if (!left)
        return 0;
    memcpy(&word, key.bytes + key.length - sizeof word, sizeof word);
    return __builtin_bswap64(word) << (64 - 8 * left);
}

/* What all keys share but the first, which stands for all that is less than the second: a search compares it
 * once. */
static void frame_share(struct tree_frame *frame, const struct format_entry *entries, uint32_t count)
{
    if (frame->whole || count < 2)
        return;
    frame->common = format_key_common(entries[1].key, entries[count - 1].key);
    if (frame->common > TREE_PREFIX_MAX)
        frame->common = TREE_PREFIX_MAX;
    memcpy(frame->prefix, entries[1].key.bytes, frame->common);
}

static void keys_copy(const struct format_layout *layout, const struct format_header *header,
                      const struct format_entry *entries, uint8_t *keys)
{
    bool varies = layout->geometry.key_kind == FORMAT_KEY_VARIABLE;
    uint8_t *at = keys + (varies ? 2 * (header->count + 2u) : 0);
    for (uint32_t i = 0; i <= header->count; i++) {
        struct format_key key = i < header->count ? entries[i].key : header->upper;
        uint16_t offset = (uint16_t)(at - keys), end = (uint16_t)(offset + key.length);
        if (varies) {
            memcpy(keys + 2 * i, &offset, sizeof offset);
            memcpy(keys + 2 * (i + 1), &end, sizeof end);
        }
        if (key.length)
            memcpy(at, key.bytes, key.length);
        at += key.length;
    }
}

static void frame_build(const struct format_layout *layout, struct tree_frame *frame, gaddr address,
                        const struct format_header *header, const struct format_entry *entries)
{
    const uint16_t room = frame->room;
    memset(frame, 0, sizeof *frame);
    const uint32_t heads = heads_room(header->count);
    struct tree_frame **children = (struct tree_frame **)(frame->heads + heads);
    uint8_t *links = (uint8_t *)(children + (header->level > 1 ? header->count : 0));
    uint8_t *keys = links + header->count * TREE_FRAME_LINK_BYTES;
    frame->room = room;
    frame->link = (struct format_link){address, header->tag};
    frame->level = header->level;
    frame->has_upper = header->has_upper;
    frame->count = header->count;
    frame->sibling = header->sibling;
    frame->whole = keys_whole(layout);
    frame_share(frame, entries, header->count);
    frame->lower_head = format_key_head(header->lower);
    frame->upper_head = format_key_head(header->upper);
    for (uint32_t i = 0; i < header->count; i++) {
        frame->heads[i] = i || frame->whole ? head_behind(entries[i].key, frame->common) : 0;
        memcpy(links + i * TREE_FRAME_LINK_BYTES, &entries[i].link.address, 8);
        memcpy(links + i * TREE_FRAME_LINK_BYTES + 8, &entries[i].link.tag, 4);
    }
    for (uint32_t i = header->count; i < heads; i++)
        frame->heads[i] = UINT64_MAX;
    if (!frame->whole)
        keys_copy(layout, header, entries, keys);
    frame->links = links;
    frame->keys = keys;
    if (header->level > 1) {
        memset(children, 0, header->count * sizeof *children);
        frame->children = children;
    }
}

struct format_key tree_frame_key(const struct format_layout *layout, const struct tree_frame *frame,
                                 uint32_t entry, struct tree_key_room *room)
{
    if (frame->whole) {
        uint64_t word = __builtin_bswap64(entry < frame->count ? frame->heads[entry] : frame->upper_head);
        memcpy(room->bytes, &word, sizeof word);
        return (struct format_key){room->bytes, sizeof word};
    }
    if (layout->geometry.key_kind == FORMAT_KEY_FIXED)
        return (struct format_key){frame->keys + entry * layout->geometry.key_bytes,
                                   layout->geometry.key_bytes};
    uint16_t from, to;
    memcpy(&from, frame->keys + 2 * entry, sizeof from);
    memcpy(&to, frame->keys + 2 * (entry + 1), sizeof to);
    return (struct format_key){frame->keys + from, (uint32_t)to - from};
}

/* Of tree_frame_search, not inlined, so that it saves few registers: a key that does not begin as those of
 * the frame; and one of whose head there are several, of which `low` is the last. */
static __attribute__((noinline)) uint32_t search_outside(const struct tree_frame *frame,
                                                         struct format_key key)
{
    const uint32_t both = frame->common < key.length ? frame->common : key.length;
    const int order = both ? memcmp(key.bytes, frame->prefix, both) : 0;
    return order > 0 ? frame->count - 1u : 0;
}

static __attribute__((noinline)) uint32_t search_equal(const struct format_layout *layout,
                                                       const struct tree_frame *frame, struct format_key key,
                                                       bool before, uint32_t low)
{
    const uint64_t head = frame->heads[low];
    while (low > 0 && frame->heads[low] == head) {
        struct tree_key_room room;
        int order = format_key_compare(tree_frame_key(layout, frame, low, &room), key);
        if (before ? order < 0 : order <= 0)
            break;
        low--;
    }
    return low;
}

uint32_t tree_frame_search(const struct format_layout *layout, const struct tree_frame *frame,
                           struct format_key key, bool before)
{
    uint32_t skip = frame->common;
    if (skip && (key.length < skip || !bytes_equal(key.bytes, frame->prefix, skip)))
        return search_outside(frame, key);
    uint64_t head = head_behind(key, skip);
    uint32_t low = tree_heads_search(frame->heads, frame->count, head);
    /* Equal heads do not settle it, unless the head is the whole key. */
    if (low == 0 || frame->heads[low] != head || (frame->whole && !before && key.length >= 8))
        return low;
    return search_equal(layout, frame, key, before, low);
}

/* ---- changing: under the cache's lock ---- */

static void unswizzle(struct tree_frame *frame)
{
    if (frame->parent) {
        assert(frame->parent->children[frame->parent_entry] == frame);
        atomic_store_relaxed(&frame->parent->children[frame->parent_entry],
                             NULL); /* readers keep their epoch */
        frame->parent->cached_children--;
        frame->parent = NULL;
    }
    if (frame->children && frame->cached_children)
        for (uint32_t i = 0; i < frame->count; i++)
            if (frame->children[i])
                frame->children[i]->parent = NULL;
    frame->cached_children = 0;
}

/* When no reader is left. */
static void frame_free(void *object, void *context)
{
    struct tree_cache *cache = context;
    spinlock_lock(&cache->lock);
    frame_return(cache, object);
    bool last = !--cache->retired && cache->closed;
    spinlock_unlock(&cache->lock);
    if (last)
        cache_free(cache);
}

/* Takes the frame out of the cache; the caller retires it once the lock is released. */
static void frame_remove(struct tree_cache *cache, struct tree_frame *frame)
{
    struct tree_frame **at = bucket_of(cache, frame->link.address);
    while (*at != frame)
        at = &(*at)->next;
    atomic_store_release(at, frame->next);
    unswizzle(frame);
    assert(frame->place < cache->count && cache->places[frame->place] == frame);
    cache->places[frame->place] = cache->places[--cache->count];
    cache->places[frame->place]->place = frame->place;
    cache->bytes -= frame_bytes(frame);
    if (cache->owned)
        owned_cache_inner_bytes(cache->owned, -(int64_t)frame_bytes(frame));
    assert(!frame->parent && !frame->cached_children); /* nothing leads to it any more */
    frame->place = UINT32_MAX;                         /* gone: must not be swizzled to again */
    cache->retired++;
}

/* Not under the lock: what is freed goes back to the cache, which takes it. A frame that cannot be retired,
 * because memory is short, stays where it is until the cache is freed. */
static void frame_retire(struct tree_cache *cache, struct epoch_slot *slot, struct tree_frame *frame)
{
    if (epoch_retire(slot, frame_free, frame, cache))
        return;
    spinlock_lock(&cache->lock);
    cache->retired--; /* the cache is not closed yet: we are using it */
    spinlock_unlock(&cache->lock);
}

static struct tree_frame *evict_one(struct tree_cache *cache, const struct tree_frame *keep)
{
    struct tree_frame *oldest = NULL;
    uint32_t cold = 0;
    for (unsigned i = 0; i < SAMPLE; i++) {
        struct tree_frame *frame = cache->places[random_below(&cache->random, cache->count)];
        uint8_t hits = atomic_load_relaxed(&frame->hits);
        cold += !hits;
        atomic_store_relaxed(&frame->hits, hits / 2);
        if (frame == keep || frame->cached_children)
            continue;
        uint32_t age = cache->clock - atomic_load_relaxed(&frame->used);
        if (!oldest || age > cache->clock - atomic_load_relaxed(&oldest->used))
            oldest = frame;
    }
    if (cache->owned)
        owned_cache_inner_seen(cache->owned, SAMPLE, cold);
    if (oldest) {
        frame_remove(cache, oldest);
        cache->evictions++;
    }
    return oldest;
}

static bool frame_publish(struct tree_cache *cache, struct tree_frame *frame)
{
    if (cache->count == cache->capacity) {
        uint32_t capacity = cache->capacity ? 2 * cache->capacity : 256;
        struct tree_frame **larger = realloc(cache->places, capacity * sizeof *larger);
        if (!larger)
            return false;
        cache->places = larger;
        cache->capacity = capacity;
    }
    atomic_store_relaxed(&cache->clock, cache->clock + 1);
    frame->used = cache->clock;
    frame->place = cache->count;
    cache->places[cache->count++] = frame;
    cache->admissions++;
    cache->bytes += frame_bytes(frame);
    if (cache->owned)
        owned_cache_inner_bytes(cache->owned, frame_bytes(frame));
    struct tree_frame **head = bucket_of(cache, frame->link.address);
    frame->next = *head;
    atomic_store_release(head, frame);
    return true;
}

static struct tree_frame *find_locked(struct tree_cache *cache, gaddr address)
{
    struct tree_frame *frame = *bucket_of(cache, address);
    while (frame && frame->link.address != address)
        frame = frame->next;
    return frame;
}

/* Where the budget is shared: leaves and entries go, or frames do. */
static void share_keep(struct tree_cache *cache, struct epoch_slot *slot)
{
    for (uint32_t i = 0; i < EVICTIONS_MAX && owned_cache_make_room(cache->owned, slot); i++) {
        spinlock_lock(&cache->lock);
        struct tree_frame *gone = cache->count > FRAMES_MIN ? evict_one(cache, NULL) : NULL;
        spinlock_unlock(&cache->lock);
        if (!gone)
            return;
        frame_retire(cache, slot, gone);
    }
}

static bool frame_decode(const struct format_layout *layout, const uint8_t *image,
                         struct format_header *header, struct format_entry *entries)
{
    return format_header_decode(layout, image, header) && header->level &&
           format_internal_decode(layout, image, header, entries);
}

struct tree_frame *tree_frame_create(const struct format_layout *layout, gaddr address, const uint8_t *image,
                                     struct format_entry *entries)
{
    struct format_header header;
    if (!frame_decode(layout, image, &header, entries))
        return NULL;
    const uint32_t room = frame_room(layout, &header, entries);
    struct tree_frame *frame = room < ROOMS_MAX ? aligned_alloc(ROOM_UNIT, room * ROOM_UNIT) : NULL;
    if (!frame)
        return NULL;
    frame->room = (uint16_t)room;
    frame_build(layout, frame, address, &header, entries);
    frame->place = UINT32_MAX; /* not in a cache: must not be swizzled to */
    return frame;
}

void tree_frame_free(struct tree_frame *frame)
{
    assert(frame->place == UINT32_MAX && !frame->parent && !frame->cached_children);
    free(frame);
}

bool tree_cache_has_room(const struct tree_cache *cache, uint64_t bytes)
{
    /* relaxed: a figure */
    return cache->owned ? owned_cache_has_room(cache->owned, bytes)
                        : atomic_load_relaxed(&cache->bytes) + bytes <= cache->limit;
}

bool tree_cache_install(struct tree_cache *cache, struct epoch_slot *slot, gaddr address,
                        const uint8_t *image, struct format_entry *entries)
{
    struct format_header header;
    return frame_decode(cache->layout, image, &header, entries) &&
           tree_cache_install_entries(cache, slot, address, &header, entries);
}

bool tree_cache_install_entries(struct tree_cache *cache, struct epoch_slot *slot, gaddr address,
                                const struct format_header *header, const struct format_entry *entries)
{
    struct tree_frame *gone[EVICTIONS_MAX + 1];
    uint32_t count = 0;
    const uint32_t room = frame_room(cache->layout, header, entries);
    if (room >= ROOMS_MAX)
        return false;
    if (!tree_cache_keeps(cache, header->level))
        return true;
    spinlock_lock(&cache->lock);
    struct tree_frame *frame = frame_take(cache, room);
    spinlock_unlock(&cache->lock);
    if (!frame)
        return false;
    frame_build(cache->layout, frame, address, header, entries);
    spinlock_lock(&cache->lock);
    struct tree_frame *older = find_locked(cache, address);
    if (older)
        frame_remove(cache, gone[count++] = older);
    bool built = frame_publish(cache, frame);
    if (!built)
        frame_return(cache, frame);
    while (built && !cache->owned && cache->bytes > cache->limit && cache->count > FRAMES_MIN &&
           count <= EVICTIONS_MAX - 1) {
        struct tree_frame *evicted = evict_one(cache, frame);
        if (!evicted)
            break;
        gone[count++] = evicted;
    }
    spinlock_unlock(&cache->lock);
    for (uint32_t i = 0; i < count; i++)
        frame_retire(cache, slot, gone[i]);
    if (built && cache->owned)
        share_keep(cache, slot);
    return built;
}

void tree_cache_forget(struct tree_cache *cache, struct epoch_slot *slot, struct format_link link)
{
    spinlock_lock(&cache->lock);
    struct tree_frame *frame = find_locked(cache, link.address);
    if (frame && frame->link.tag != link.tag)
        frame = NULL;
    if (frame)
        frame_remove(cache, frame);
    spinlock_unlock(&cache->lock);
    if (frame)
        frame_retire(cache, slot, frame);
}

static bool leads_to(const struct tree_frame *frame, uint16_t node)
{
    bool leads = gaddr_node(frame->link.address) == node || gaddr_node(frame->sibling.address) == node;
    for (uint32_t i = 0; i < frame->count && !leads; i++)
        leads = gaddr_node(tree_frame_link(frame, i).address) == node;
    return leads;
}

/* Looks at FORGET_STEP frames below *place, which it counts down. NULL: none leads to the memory node. */
static struct tree_frame *take_one_of(struct tree_cache *cache, uint16_t node, uint32_t *place)
{
    struct tree_frame *taken = NULL;
    spinlock_lock(&cache->lock);
    *place = *place < cache->count ? *place : cache->count;
    for (unsigned i = 0; i < FORGET_STEP && *place && !taken; i++)
        if (leads_to(cache->places[--*place], node))
            frame_remove(cache, taken = cache->places[*place]);
    spinlock_unlock(&cache->lock);
    return taken;
}

void tree_cache_forget_node(struct tree_cache *cache, struct epoch_slot *slot, uint16_t node)
{
    uint32_t place = UINT32_MAX; /* what is cached from now on is newer than the removal */
    do {
        struct tree_frame *taken = take_one_of(cache, node, &place);
        if (taken)
            frame_retire(cache, slot, taken);
    } while (place);
}

void tree_cache_swizzle(struct tree_cache *cache, struct tree_frame *parent, uint32_t entry,
                        struct tree_frame *child)
{
    spinlock_lock(&cache->lock);
    /* Either may have left the cache since the caller found it; and a child hangs on one parent only. */
    if (parent->place != UINT32_MAX && child->place != UINT32_MAX && !child->parent &&
        !parent->children[entry] && parent->level == child->level + 1) {
        child->parent = parent;
        child->parent_entry = entry;
        parent->cached_children++;
        atomic_store_release(&parent->children[entry], child);
    }
    spinlock_unlock(&cache->lock);
}
