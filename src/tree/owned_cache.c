/*
 * owned_cache.c - The cache of owned ranges: what reads and writes do to leaves and entries. Which of them go
 * is owned_cache_policy.c's.
 */
#include "tree/owned_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/epoch.h"
#include "base/task.h"
#include "tree/owned_cache_private.h"

/* What entries' links are: of policy dinomo a leaf's address and tag; of banyan a place. */
#define SHORTCUT_BYTES 12u
#define PLACE_BYTES    16u
#define PLACE_SLOTS    64u /* a slot's number stands in the address's lowest bits, which are zero */

static void place_encode(const struct owned_place *place, uint8_t bytes[PLACE_BYTES])
{
    uint64_t word = place->leaf | place->number;
    memcpy(bytes, &word, 8);
    memcpy(bytes + 8, &place->seed, 4);
    memcpy(bytes + 12, &place->shape, 4);
}

static void place_decode(const uint8_t bytes[PLACE_BYTES], struct owned_place *place)
{
    uint64_t word;
    memcpy(&word, bytes, 8);
    memcpy(&place->seed, bytes + 8, 4);
    memcpy(&place->shape, bytes + 12, 4);
    place->leaf = word & ~(uint64_t)(PLACE_SLOTS - 1);
    place->number = (uint32_t)(word & (PLACE_SLOTS - 1));
}

static void link_encode(struct format_link leaf, uint8_t bytes[SHORTCUT_BYTES])
{
    memcpy(bytes, &leaf.address, 8);
    memcpy(bytes + 8, &leaf.tag, 4);
}

/* What a slot of this index refers to may be cached. */
static bool has_values(const struct owned_cache *cache)
{
    return cache->layout.geometry.content == FORMAT_CONTENT_STORE && !cache->settings.shortcuts_only &&
           cache->settings.policy != TREE_CACHE_DEX;
}

/* Dinomo's replacement within a set: entries are values or shortcuts. In a store's index an entry is the
 * shortcut to its long value, and the values have a table of their own. */
static bool has_shortcuts(const struct owned_cache *cache)
{
    return cache->settings.policy == TREE_CACHE_DINOMO &&
           cache->layout.geometry.content != FORMAT_CONTENT_STORE;
}

static bool parts_make(struct owned_cache *cache)
{
    const struct owned_cache_settings *settings = &cache->settings;
    if (has_values(cache)) {
        cache->values = owned_values_create(settings->bytes);
        if (!cache->values)
            return false;
    }
    if (settings->policy != TREE_CACHE_DINOMO) {
        cache->frames = owned_frames_create(cache->layout.geometry.leaf_bytes, settings->bytes);
        if (!cache->frames)
            return false;
    }
    if (settings->policy != TREE_CACHE_DEX) {
        uint32_t link_bytes = settings->policy == TREE_CACHE_DINOMO ? SHORTCUT_BYTES : PLACE_BYTES;
        cache->entries = owned_entries_create(&cache->layout, link_bytes, settings->bytes);
        return cache->entries != NULL;
    }
    /* A tenth of what fits cools (DEX, section 8.1). */
    cache->cooling = owned_cooling_create(settings->bytes / owned_frames_size(cache->frames) / 10);
    return cache->cooling != NULL;
}

struct owned_cache *owned_cache_create(const struct owned_cache_settings *settings,
                                       const struct format_geometry *geometry)
{
    struct error error;
    if (settings->policy == TREE_CACHE_INNER)
        return NULL;
    struct owned_cache *cache = aligned_alloc(64, (sizeof *cache + 63u) & ~(size_t)63u);
    if (!cache)
        return NULL;
    memset(cache, 0, sizeof *cache);
    cache->settings = *settings;
    cache->miss_cost = 1024;
    for (int kind = 0; kind < OWNED_KINDS; kind++)
        cache->meters[kind].density = -1;
    if (format_layout_init(&cache->layout, geometry, &error) || !parts_make(cache)) {
        owned_cache_destroy(cache);
        return NULL;
    }
    return cache;
}

void owned_cache_destroy(struct owned_cache *cache)
{
    if (!cache)
        return;
    owned_frames_destroy(cache->frames);
    owned_entries_destroy(cache->entries);
    owned_values_destroy(cache->values);
    owned_cooling_destroy(cache->cooling);
    owned_lost_destroy(&cache->lost);
    format_layout_free(&cache->layout);
    free(cache);
}

/* Of the threads that share the epoch's slot, and perhaps of some others. */
static struct owned_stripe *stripe_of(struct owned_cache *cache, const struct epoch_slot *slot)
{
    return &cache->stripes[random_mix((uintptr_t)slot) % OWNED_STRIPES];
}

#define COUNT(cache, slot, what) atomic_add_relaxed(&stripe_of(cache, slot)->what, 1)

/* ---- reading ---- */

/* Acquire: pairs with owned_cache_stop. */
static bool stopped(const struct owned_cache *cache)
{
    return atomic_load_acquire(&cache->stopped);
}

enum owned_frame_found owned_cache_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf,
                                        const struct owned_piece *pieces, uint32_t count,
                                        struct owned_busy *busy)
{
    uint32_t hits = 0, lines = 0;
    if (!cache->frames || stopped(cache))
        return OWNED_FRAME_NONE;
    epoch_enter(slot);
    enum owned_frame_found found = owned_frames_read(cache->frames, leaf, pieces, count, &hits, busy);
    if (found != OWNED_FRAME_NONE && cache->cooling) {
        struct owned_frame *frame = owned_frames_find(cache->frames, leaf);
        /* Relaxed: a hint, which owned_frames_turn looks at again. */
        if (frame && atomic_load_relaxed(&frame->state) == OWNED_FRAME_COOLING &&
            owned_frames_turn(cache->frames, frame, OWNED_FRAME_COOLING, OWNED_FRAME_WARM))
            owned_cooling_remove(cache->cooling, leaf);
    }
    epoch_leave(slot);
    for (uint32_t i = 0; i < count && found != OWNED_FRAME_NONE; i++)
        lines += task_lines(pieces[i].length);
    task_charge(TASK_WORK_LINE, found == OWNED_FRAME_NONE ? 1 : 2);
    task_charge(TASK_WORK_COPY, lines);
    if (found == OWNED_FRAME_NONE)
        COUNT(cache, slot, leaf_misses);
    else if (found == OWNED_FRAME_BUSY)
        COUNT(cache, slot, busy);
    else
        COUNT(cache, slot, leaf_hits);
    if (found == OWNED_FRAME_COPIED && !hits)
        atomic_add_relaxed(&cache->meters[OWNED_LEAVES].cold_hits, 1);
    return found;
}

enum owned_cache_found owned_cache_entry(struct owned_cache *cache, struct epoch_slot *slot,
                                         struct format_key key, uint8_t *value, uint32_t *length,
                                         struct format_link *leaf, uint32_t random, uint32_t *hits)
{
    struct owned_entry entry = {.random = random};
    *hits = 0;
    if (!cache->entries || stopped(cache))
        return OWNED_CACHE_NONE;
    epoch_enter(slot);
    enum owned_entry_found found = owned_entries_find(cache->entries, key, &entry);
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, entry.lines);
    switch (found) {
    case OWNED_ENTRY_NONE:
        COUNT(cache, slot, entry_misses);
        return OWNED_CACHE_NONE;
    case OWNED_ENTRY_BUSY:
        COUNT(cache, slot, busy);
        return OWNED_CACHE_BUSY;
    default:
        break;
    }
    COUNT(cache, slot, entry_hits);
    *hits = entry.hits;
    if (entry.cold)
        atomic_add_relaxed(&cache->meters[OWNED_ENTRIES].cold_hits, 1);
    if (found == OWNED_ENTRY_SHORTCUT) {
        COUNT(cache, slot, shortcut_hits);
        memcpy(&leaf->address, entry.link, 8);
        memcpy(&leaf->tag, entry.link + 8, 4);
        return OWNED_CACHE_SHORTCUT;
    }
    memcpy(value, entry.value, entry.length);
    *length = entry.length;
    return OWNED_CACHE_VALUE;
}

bool owned_cache_value(struct owned_cache *cache, struct epoch_slot *slot,
                       const struct tree_reference *reference, uint8_t *to, uint32_t length, uint64_t *note,
                       uint32_t random)
{
    bool met;
    if (!cache->values || stopped(cache))
        return false;
    epoch_enter(slot);
    bool found = owned_values_read(cache->values, reference, to, length, note, owned_policy_clock(cache),
                                   random, &met);
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, found ? 2 : 1);
    if (!found) {
        COUNT(cache, slot, value_misses);
        return false;
    }
    task_charge(TASK_WORK_COPY, task_lines(length));
    COUNT(cache, slot, value_hits);
    if (!met)
        atomic_add_relaxed(&cache->meters[OWNED_VALUES].cold_hits, 1);
    return true;
}

bool owned_cache_await(struct owned_cache *cache, struct format_key key, uint8_t *value, uint32_t *length)
{
    return owned_wait_for(&cache->waits, key, value, length);
}

bool owned_cache_keeps_places(const struct owned_cache *cache)
{
    return cache->settings.policy == TREE_CACHE_BANYAN &&
           cache->layout.geometry.key_kind == FORMAT_KEY_FIXED; /* others' slots need the lower fence key */
}

uint32_t owned_cache_shape(struct owned_cache *cache, gaddr leaf)
{
    return owned_writes_shape(&cache->writes, leaf);
}

bool owned_cache_place(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key, gaddr leaf,
                       struct owned_place *place, uint8_t *value, uint32_t *length)
{
    struct owned_entry entry = {.random = (uint32_t)atomic_load_relaxed(&cache->draws)};
    if (!owned_cache_keeps_places(cache) || stopped(cache))
        return false;
    epoch_enter(slot);
    enum owned_entry_found found = owned_entries_find(cache->entries, key, &entry);
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, entry.lines);
    if (found != OWNED_ENTRY_VALUE || !entry.linked)
        return false;
    place_decode(entry.link, place);
    if (place->leaf != leaf || place->shape != owned_writes_shape(&cache->writes, leaf))
        return false;
    COUNT(cache, slot, entry_hits);
    COUNT(cache, slot, placed);
    if (entry.cold)
        atomic_add_relaxed(&cache->meters[OWNED_ENTRIES].cold_hits, 1);
    memcpy(value, entry.value, entry.length);
    *length = entry.length;
    return true;
}

/* ---- admitting ---- */

uint64_t owned_cache_stamp(struct owned_cache *cache, gaddr leaf)
{
    return owned_writes_stamp(&cache->writes, leaf);
}

uint64_t owned_cache_moment(struct owned_cache *cache)
{
    return owned_writes_moment(&cache->writes);
}

uint64_t owned_cache_stamp_since(struct owned_cache *cache, gaddr leaf, uint64_t moment)
{
    return owned_writes_stamp_since(&cache->writes, leaf, moment);
}

bool owned_cache_unwritten(struct owned_cache *cache, gaddr leaf, uint64_t moment)
{
    return !owned_writes_busy(owned_writes_stamp_since(&cache->writes, leaf, moment));
}

bool owned_cache_wants(struct owned_cache *cache)
{
    return cache->frames && !stopped(cache) && owned_policy_wants_leaf(cache);
}

bool owned_cache_keeps_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf)
{
    if (!cache->frames || stopped(cache))
        return false;
    epoch_enter(slot);
    const bool there = owned_frames_find(cache->frames, leaf) != NULL;
    epoch_leave(slot);
    return there || owned_cache_has_room(cache, owned_frames_size(cache->frames));
}

void owned_cache_offer_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf,
                            const uint8_t *bytes, uint64_t stamp)
{
    if (!cache->frames || owned_writes_busy(stamp))
        return;
    epoch_enter(slot);
    bool there = owned_frames_find(cache->frames, leaf) != NULL;
    bool room = there || owned_policy_room(cache, slot, OWNED_LEAVES, owned_frames_size(cache->frames));
    if (room &&
        owned_frames_admit(cache->frames, slot, leaf, bytes, owned_writes_word(&cache->writes, leaf), stamp))
        COUNT(cache, slot, leaf_admissions);
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, 4); /* the frame's head, its shard, its bucket, its place */
    task_charge(TASK_WORK_COPY, task_lines(cache->layout.geometry.leaf_bytes));
}

static void put_entry(struct owned_cache *cache, struct epoch_slot *slot, const struct owned_put *put)
{
    struct owned_put_result result;
    epoch_enter(slot);
    owned_entries_put(cache->entries, put, &result);
    if (result.counted)
        owned_policy_full_set(cache, slot, result.counted, result.cold);
    epoch_leave(slot);
    if (result.done)
        COUNT(cache, slot, entry_admissions);
    if (result.evicted)
        atomic_add_relaxed(&cache->entry_evictions, result.evicted);
    if (result.demoted)
        atomic_add_relaxed(&cache->demotions, result.demoted);
    task_charge(TASK_WORK_COPY, OWNED_SET_BYTES / TASK_LINE_BYTES - 1); /* the search has had the first */
}

void owned_cache_offer_entry(struct owned_cache *cache, struct epoch_slot *slot, struct format_link leaf,
                             bool cached, uint64_t stamp, struct format_key key, struct format_key value)
{
    if (!cache->entries || owned_writes_busy(stamp) || (cached && !owned_policy_wants_entry(cache)))
        return;
    bool dac = has_shortcuts(cache);
    uint8_t link[SHORTCUT_BYTES];
    link_encode(leaf, link);
    const struct owned_put put = {.key = key,
                                  .value = value,
                                  .link = dac ? link : NULL,
                                  .replacement = dac ? OWNED_REPLACE_DAC : OWNED_REPLACE_LEAST,
                                  .bare = dac && cache->settings.shortcuts_only,
                                  .word = owned_writes_word(&cache->writes, leaf.address),
                                  .stamp = stamp};
    uint32_t evicted = 0;
    if (dac && !put.bare) { /* the key was found by its shortcut, perhaps */
        epoch_enter(slot);
        /* Relaxed: an average. */
        double miss = (double)atomic_load_relaxed(&cache->miss_cost) / 1024;
        bool promoted = owned_entries_promote(cache->entries, &put, miss, &evicted);
        epoch_leave(slot);
        if (promoted)
            atomic_add_relaxed(&cache->promotions, 1);
        if (evicted)
            atomic_add_relaxed(&cache->entry_evictions, evicted);
    }
    put_entry(cache, slot, &put);
}

void owned_cache_offer_value(struct owned_cache *cache, struct epoch_slot *slot,
                             const struct tree_reference *reference, const uint8_t *bytes, uint32_t length,
                             uint64_t note, uint32_t hits)
{
    if (!cache->values || stopped(cache))
        return;
    epoch_enter(slot);
    bool admitted =
        !owned_values_has(cache->values, reference) &&
        owned_policy_value_room(cache, slot, owned_values_size(length), hits) &&
        owned_values_put(cache->values, reference, bytes, length, note, owned_policy_clock(cache), hits);
    epoch_leave(slot);
    if (!admitted)
        return;
    COUNT(cache, slot, value_admissions);
    task_charge(TASK_WORK_LINE, 3); /* its shard, its bucket, its place */
    task_charge(TASK_WORK_COPY, task_lines(length));
}

bool owned_cache_replace_value(struct owned_cache *cache, struct epoch_slot *slot,
                               const struct tree_reference *before, const struct tree_reference *reference,
                               const uint8_t *bytes, uint32_t length, uint64_t note, uint32_t random,
                               uint32_t *hits)
{
    uint32_t had;
    if (!cache->values || stopped(cache))
        return false;
    epoch_enter(slot);
    const uint64_t room = owned_values_drop(cache->values, slot, before, &had);
    if (room && owned_hits_more((uint8_t)had, random) > *hits)
        *hits = owned_hits_more((uint8_t)had, random);
    const bool replaced =
        owned_values_size(length) <= room &&
        owned_values_put(cache->values, reference, bytes, length, note, owned_policy_clock(cache), *hits);
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, room ? 3 : 1);
    if (!replaced)
        return false;
    COUNT(cache, slot, value_admissions);
    task_charge(TASK_WORK_LINE, 3); /* as above */
    task_charge(TASK_WORK_COPY, task_lines(length));
    return true;
}

void owned_cache_missed(struct owned_cache *cache, uint64_t round_trips)
{
    if (cache->settings.policy != TREE_CACHE_DINOMO)
        return; /* no other policy asks, and threads would share a line for nothing */
    /* Relaxed: an average, of which some samples may be lost. */
    uint64_t old = atomic_load_relaxed(&cache->miss_cost);
    atomic_store_relaxed(&cache->miss_cost, old - old / 64 + round_trips * 1024 / 64);
}

bool owned_cache_peek(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key,
                      uint8_t *value, uint32_t *length, uint32_t *hits)
{
    struct owned_entry entry = {.uncounted = true};
    if (!cache->entries || stopped(cache))
        return false;
    epoch_enter(slot);
    bool found = owned_entries_find(cache->entries, key, &entry) == OWNED_ENTRY_VALUE;
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, entry.lines);
    if (!found)
        return false;
    memcpy(value, entry.value, entry.length);
    *length = entry.length;
    *hits = entry.hits;
    return true;
}

/* ---- writing ---- */

void owned_cache_write_begin(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf, uint32_t from,
                             uint32_t to)
{
    owned_writes_begin(&cache->writes, leaf);
    if (from < cache->layout.header_bytes)
        owned_writes_reshape(&cache->writes, leaf);
    if (!cache->frames)
        return;
    epoch_enter(slot);
    owned_frames_busy(cache->frames, leaf, from, to);
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, 2);
}

void owned_cache_key_begin(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key,
                           struct owned_mark *mark)
{
    if (mark)
        owned_mark_begin(&cache->waits, mark, key);
    if (!cache->entries)
        return;
    epoch_enter(slot);
    owned_entries_busy(cache->entries, key);
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, 1); /* the end of the write finds it in this core's cache */
}

static void entry_end(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key,
                      const struct format_key *value, const struct owned_place *place)
{
    uint8_t link[PLACE_BYTES];
    bool placed = place && value && owned_cache_keeps_places(cache) && place->number < PLACE_SLOTS &&
                  !(place->leaf % PLACE_SLOTS);
    if (placed)
        place_encode(place, link);
    epoch_enter(slot);
    bool found = owned_entries_settle(cache->entries, key, value, placed ? link : NULL);
    epoch_leave(slot);
    if (placed && !found)
        put_entry(cache, slot, &(struct owned_put){.key = key, .value = *value, .link = link});
}

void owned_cache_key_end(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key,
                         const struct format_key *value, const struct owned_place *place,
                         struct owned_mark *mark)
{
    if (cache->entries)
        entry_end(cache, slot, key, value, place);
    if (mark)
        owned_mark_end(&cache->waits, mark, value);
}

void owned_cache_key_merged(struct owned_cache *cache, struct epoch_slot *slot, struct format_link leaf,
                            struct format_key key, struct format_key value, uint8_t hits,
                            struct owned_mark *mark)
{
    uint8_t link[SHORTCUT_BYTES];
    const bool dac = has_shortcuts(cache);
    owned_cache_key_end(cache, slot, key, &value, NULL, mark);
    if (!cache->entries || stopped(cache))
        return;
    link_encode(leaf, link);
    const struct owned_put put = {.key = key,
                                  .value = value,
                                  .link = dac ? link : NULL,
                                  .replacement = dac ? OWNED_REPLACE_DAC : OWNED_REPLACE_LEAST,
                                  .hits = hits,
                                  .bare = dac && cache->settings.shortcuts_only};
    put_entry(cache, slot, &put);
}

void owned_cache_write_end(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf, int status,
                           const struct fabric_command *writes, uint32_t count)
{
    if (cache->frames) {
        epoch_enter(slot);
        if (status)
            owned_frames_drop(cache->frames, slot, leaf);
        else
            owned_frames_settle(cache->frames, leaf, writes, count);
        epoch_leave(slot);
        task_charge(TASK_WORK_LINE, 1);
    }
    owned_writes_end(&cache->writes, leaf);
}

/* ---- dropping ---- */

bool owned_cache_drop_value(struct owned_cache *cache, struct epoch_slot *slot,
                            const struct tree_reference *reference, uint32_t *hits)
{
    if (!cache->values)
        return false;
    epoch_enter(slot);
    bool dropped = owned_values_drop(cache->values, slot, reference, hits) > 0;
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, dropped ? 3 : 1);
    return dropped;
}

void owned_cache_drop_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf)
{
    if (!cache->frames)
        return;
    epoch_enter(slot);
    owned_frames_drop(cache->frames, slot, leaf);
    epoch_leave(slot);
}

struct bounds {
    const struct format_layout *layout;
    struct format_key lower;
    const struct format_key *upper;
    uint32_t looked; /* frames */
};

/* A leaf that reaches into the range, or whose header cannot be read. */
static bool within(void *context, const struct owned_frame *frame)
{
    struct bounds *bounds = context;
    struct format_header header;
    uint8_t bytes[FORMAT_HEADER_FIXED + 2 * FORMAT_KEY_MAX + 64];
    assert(bounds->layout->header_bytes <= sizeof bytes);
    uint32_t version;
    bounds->looked++;
    do {
        version = seqlock_read(&frame->latch);
        atomic_copy_from(bytes, frame->bytes, bounds->layout->header_bytes);
    } while (!seqlock_same(&frame->latch, version));
    if (!format_header_decode(bounds->layout, bytes, &header))
        return true;
    return (!header.has_upper || format_key_compare(header.upper, bounds->lower) > 0) &&
           (!bounds->upper || format_key_compare(header.lower, *bounds->upper) < 0);
}

void owned_cache_drop_range(struct owned_cache *cache, struct epoch_slot *slot, struct format_key lower,
                            const struct format_key *upper)
{
    struct bounds bounds = {&cache->layout, lower, upper, 0};
    uint64_t gone = 0;
    epoch_enter(slot);
    if (cache->frames)
        gone = owned_frames_drop_if(cache->frames, slot, within, &bounds);
    if (cache->entries)
        owned_entries_drop_range(cache->entries, lower, upper);
    epoch_leave(slot);
    task_charge(TASK_WORK_LINE, OWNED_LOOK_LINES * bounds.looked + OWNED_DROP_LINES * (uint32_t)gone);
    if (cache->entries)
        task_charge(TASK_WORK_COPY, (uint32_t)(owned_entries_bytes(cache->entries) / TASK_LINE_BYTES));
}

void owned_cache_stop(struct owned_cache *cache, struct epoch_slot *slot)
{
    if (stopped(cache))
        return;
    atomic_store_release(&cache->stopped, true); /* who finds something behind this has begun before */
    owned_cache_drop_range(cache, slot, (struct format_key){NULL, 0}, NULL);
    if (!cache->values)
        return;
    epoch_enter(slot);
    owned_values_drop_all(cache->values, slot);
    epoch_leave(slot);
}

/* ---- the budget ---- */

void owned_cache_inner_bytes(struct owned_cache *cache, int64_t more)
{
    atomic_add_relaxed(&cache->inner_bytes, (uint64_t)more);
}

bool owned_cache_has_room(const struct owned_cache *cache, uint64_t bytes)
{
    return owned_policy_fits(cache, bytes);
}

bool owned_cache_make_room(struct owned_cache *cache, struct epoch_slot *slot)
{
    epoch_enter(slot);
    bool room = owned_policy_room(cache, slot, OWNED_INNER, 0);
    epoch_leave(slot);
    return !room;
}

void owned_cache_inner_seen(struct owned_cache *cache, uint32_t seen, uint32_t cold)
{
    owned_policy_saw_inner(cache, seen, cold);
}

void owned_cache_inner_hit(struct owned_cache *cache)
{
    atomic_add_relaxed(&cache->meters[OWNED_INNER].cold_hits, 1);
}

void owned_cache_count(const struct owned_cache *cache, bool entries, struct tree_cache_stats *stats)
{
    struct tree_cache_kind *leaves = &stats->leaves, *keys = &stats->entries, *values = &stats->values;
    for (uint32_t i = 0; i < OWNED_STRIPES; i++) { /* relaxed: figures */
        const struct owned_stripe *stripe = &cache->stripes[i];
        leaves->hits += atomic_load_relaxed(&stripe->leaf_hits);
        leaves->misses += atomic_load_relaxed(&stripe->leaf_misses);
        leaves->admissions += atomic_load_relaxed(&stripe->leaf_admissions);
        keys->hits += atomic_load_relaxed(&stripe->entry_hits);
        keys->misses += atomic_load_relaxed(&stripe->entry_misses);
        keys->admissions += atomic_load_relaxed(&stripe->entry_admissions);
        values->hits += atomic_load_relaxed(&stripe->value_hits);
        values->misses += atomic_load_relaxed(&stripe->value_misses);
        values->admissions += atomic_load_relaxed(&stripe->value_admissions);
        stats->shortcut_hits += atomic_load_relaxed(&stripe->shortcut_hits);
        stats->placed += atomic_load_relaxed(&stripe->placed);
        stats->busy += atomic_load_relaxed(&stripe->busy);
    }
    leaves->count += cache->frames ? owned_frames_count(cache->frames) : 0;
    leaves->bytes += owned_policy_bytes(cache, OWNED_LEAVES);
    leaves->evictions += atomic_load_relaxed(&cache->leaf_evictions);
    keys->count += cache->entries && entries ? owned_entries_count(cache->entries) : 0;
    keys->bytes += owned_policy_bytes(cache, OWNED_ENTRIES);
    keys->evictions += atomic_load_relaxed(&cache->entry_evictions);
    values->count += cache->values ? owned_values_count(cache->values) : 0;
    values->bytes += owned_policy_bytes(cache, OWNED_VALUES);
    values->evictions += atomic_load_relaxed(&cache->value_evictions);
    stats->promotions += atomic_load_relaxed(&cache->promotions);
    stats->demotions += atomic_load_relaxed(&cache->demotions);
}
