/*
 * owned_cache_policy.c - What leaves the cache of owned ranges when something else is to come in, and what is
 * let in. No round trips, no lock that all share but for a moment in some thousand replacements.
 *
 * dex     (DEX, section 5) Two sampled nodes begin to cool for each one that goes, until a tenth of the cache
 *         cools; what has cooled longest in a random bucket of the cooling map goes. An inner node passes the
 *         command on to what is cached below it: so inner nodes go only when there are no leaves.
 * dinomo  (Dinomo, section 3.3) Entries alone; what goes is settled within a set (owned_cache_set.c). Inner
 *         nodes, which Dinomo has not, come before entries. In a store's index entries are the shortcuts to
 *         long values: a miss that finds no room makes the longest unused values go, and a hit lets its value
 *         in if that saves more than the least hit entries that must go for it (equation 1).
 * banyan  Inner nodes, leaves, entries and long values compete by the round trips that their bytes save. What
 * counts is not what all bytes of a kind save, but what would be lost with those that would go next: the hits
 * on objects that had none since replacement looked at them last, over the bytes of such objects
 *         ("density"). Learned in windows of replacements. Room is taken from the kind that is worth least; a
 *         small part of each stays, so that its worth goes on being learned.
 */
#include "tree/owned_cache_private.h"

#include "base/epoch.h"

#define WINDOW      1024u /* draws of random numbers between two looks at the meters */
#define SEEN_MIN    64u   /* objects looked at before a window tells something */
#define KEEP        64u   /* one part in so many of the budget is left to a kind, whatever it is worth */
#define SAMPLE      8u    /* leaves looked at for one that goes */
#define SAMPLE_STEP 4u    /* of so many full sets, one has a leaf looked at */
#define GROW_STEP   4u    /* of so many full sets, one may take room from other kinds */
#define STEP        128u  /* in a window, one part in so many of the budget may pass from kind to kind */
#define MARGIN      1.1   /* a kind must be worth so much more than another to take its room */
#define LOOK_STEP   2u    /* of so many leaves that were missed, one has a cached one looked at */
#define TWICE       1.5   /* a key of a cached leaf gets an entry where those are worth so much more */
#define SPARE       4u /* while one part in so many of the budget is free, keys of cached leaves get entries */
#define TRIES       64u /* for room; then what is to come in stays out */
#define AGED        4u  /* of so many values that go, one makes another lose half of its hits */
#define ENTRY_ABOUT 32u /* bytes of an entry that is a reference */
#define EXPLORE     64u /* of so many leaves that are worth less than entries, one is let in */

uint64_t owned_policy_random(struct owned_cache *cache)
{
    return random_mix(atomic_add_relaxed(&cache->draws, 1) ^ UINT64_C(0x9e3779b97f4a7c15));
}

uint64_t owned_policy_bytes(const struct owned_cache *cache, enum owned_kind kind)
{
    switch (kind) {
    case OWNED_INNER:
        return atomic_load_relaxed(&cache->inner_bytes); /* a figure */
    case OWNED_LEAVES:
        return cache->frames ? owned_frames_count(cache->frames) * owned_frames_size(cache->frames) : 0;
    case OWNED_VALUES:
        return cache->values ? owned_values_bytes(cache->values) : 0;
    default:
        return cache->entries ? owned_entries_bytes(cache->entries) : 0;
    }
}

bool owned_policy_fits(const struct owned_cache *cache, uint64_t bytes)
{
    uint64_t used = bytes;
    for (int kind = 0; kind < OWNED_KINDS; kind++)
        used += owned_policy_bytes(cache, (enum owned_kind)kind);
    return used <= cache->settings.bytes;
}

/* ---- what bytes are worth ---- */

static void meter_learn(struct owned_meter *meter, uint64_t bytes, uint64_t now)
{
    uint64_t hits = atomic_load_relaxed(&meter->cold_hits), seen = atomic_load_relaxed(&meter->seen);
    uint64_t cold = atomic_load_relaxed(&meter->cold);
    uint64_t new_seen = seen - meter->last_seen, new_cold = cold - meter->last_cold;
    if (bytes && new_seen < SEEN_MIN)
        return; /* too little was looked at: the window grows */
    if (bytes) {
        /* At least one part of those that were seen, so that none is worth all there is. */
        double part = ((double)new_cold + 1) / ((double)new_seen + 1);
        double density =
            (double)(hits - meter->last_hits) / ((double)bytes * part * (double)(now - meter->last));
        density = meter->density < 0 ? density : 0.75 * meter->density + 0.25 * density;
        __atomic_store(&meter->density, &density, __ATOMIC_RELAXED); /* an estimate */
    }
    meter->last = now;
    meter->last_hits = hits;
    meter->last_seen = seen;
    meter->last_cold = cold;
}

static void learn(struct owned_cache *cache)
{
    uint64_t now = atomic_load_relaxed(&cache->draws);
    if (now % WINDOW || !spinlock_try(&cache->meters_lock))
        return; /* another thread is at it */
    for (int kind = 0; kind < OWNED_KINDS; kind++)
        meter_learn(&cache->meters[kind], owned_policy_bytes(cache, (enum owned_kind)kind), now);
    uint64_t step = cache->settings.bytes / STEP;
    int64_t allowance = (int64_t)(step > OWNED_SEGMENT_BYTES ? step : OWNED_SEGMENT_BYTES);
    atomic_store_relaxed(&cache->allowance, allowance); /* an estimate, as all who take from it know */
    spinlock_unlock(&cache->meters_lock);
}

/* Room may pass from one kind to another: slowly, since what it is worth is known only later. */
static bool may_pass(struct owned_cache *cache, uint64_t bytes)
{
    if (atomic_load_relaxed(&cache->allowance) <= 0) /* an estimate */
        return false;
    atomic_add_relaxed(&cache->allowance, -(int64_t)bytes);
    return true;
}

static void saw(struct owned_meter *meter, uint32_t seen, uint32_t cold)
{
    atomic_add_relaxed(&meter->seen, seen);
    atomic_add_relaxed(&meter->cold, cold);
}

/* What the kind's least used bytes save; inner nodes much, leaves and entries nothing, while that is not
 * known. Read without the lock: an estimate. */
static double worth(const struct owned_cache *cache, enum owned_kind kind)
{
    double density;
    __atomic_load(&cache->meters[kind].density, &density, __ATOMIC_RELAXED);
    return density >= 0 ? density : kind == OWNED_INNER ? 1e9 : 0;
}

/* ---- what goes ---- */

/* Looks at some leaves, whose hits are halved; the one that was hit least. */
static struct owned_frame *sample_leaves(struct owned_cache *cache, uint32_t count)
{
    struct owned_frame *least = NULL;
    uint32_t seen = 0, cold = 0;
    uint8_t fewest = UINT8_MAX;
    for (uint32_t i = 0; i < count; i++) {
        struct owned_frame *frame = owned_frames_any(cache->frames, owned_policy_random(cache));
        if (!frame)
            break;
        uint8_t hits = atomic_load_relaxed(&frame->hits); /* a hint */
        seen++;
        cold += !hits;
        if (hits)
            atomic_store_relaxed(&frame->hits, hits / 2);
        if (!least || hits < fewest) {
            least = frame;
            fewest = hits;
        }
    }
    saw(&cache->meters[OWNED_LEAVES], seen, cold);
    return least;
}

static bool evict_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf)
{
    bool gone = owned_frames_drop(cache->frames, slot, leaf);
    if (gone)
        atomic_add_relaxed(&cache->leaf_evictions, 1);
    return gone;
}

/* Looks at some values; the one that was hit least, or where `oldest`, that was not used for longest. */
static struct owned_value *sample_values(struct owned_cache *cache, uint32_t count, bool oldest)
{
    struct owned_value *best = NULL;
    uint32_t seen = 0, cold = 0, least = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct owned_value *value = owned_values_any(cache->values, owned_policy_random(cache));
        if (!value)
            break;
        uint8_t hits = atomic_load_relaxed(&value->hits); /* a hint, as is when it was used */
        uint32_t rank =
            oldest ? UINT32_MAX - (owned_policy_clock(cache) - atomic_load_relaxed(&value->used)) : hits;
        seen++;
        cold += !atomic_load_relaxed(&value->met);
        atomic_store_relaxed(&value->met, false);
        if (!best || rank < least) {
            best = value;
            least = rank;
        }
    }
    saw(&cache->meters[OWNED_VALUES], seen, cold);
    return best;
}

static bool evict_value(struct owned_cache *cache, struct epoch_slot *slot, const struct owned_value *value)
{
    uint32_t hits;
    bool gone = value && owned_values_drop(cache->values, slot, &value->reference, &hits) > 0;
    if (gone)
        atomic_add_relaxed(&cache->value_evictions, 1);
    return gone;
}

/* Sometimes, a value loses half of its hits, so that what was popular long ago goes in the end. */
static void cool_value(struct owned_cache *cache)
{
    uint64_t random = owned_policy_random(cache);
    struct owned_value *value = random % AGED ? NULL : owned_values_any(cache->values, random_mix(random));
    if (value) /* a hint, as its hits are */
        atomic_store_relaxed(&value->hits, owned_hits_half(atomic_load_relaxed(&value->hits)));
}

static bool evict_entries(struct owned_cache *cache, struct epoch_slot *slot)
{
    uint64_t evicted;
    bool shrunk = owned_entries_shrink(cache->entries, slot, &evicted);
    atomic_add_relaxed(&cache->entry_evictions, evicted);
    return shrunk;
}

/* Of leaves, entries or values. */
static bool evict_kind(struct owned_cache *cache, struct epoch_slot *slot, enum owned_kind kind)
{
    if (kind == OWNED_ENTRIES)
        return evict_entries(cache, slot);
    if (kind == OWNED_VALUES)
        return evict_value(cache, slot,
                           sample_values(cache, SAMPLE, cache->settings.policy == TREE_CACHE_DINOMO));
    struct owned_frame *least = sample_leaves(cache, SAMPLE);
    return least && evict_leaf(cache, slot, least->address);
}

/* The kind whose bytes are worth least, of those that have more than is left to each; `self` counts at its
 * worth, the others with the margin. OWNED_KINDS: there is none. */
static enum owned_kind cheapest(const struct owned_cache *cache, enum owned_kind self)
{
    enum owned_kind best = OWNED_KINDS;
    double least = 0;
    for (int i = 0; i < OWNED_KINDS; i++) {
        enum owned_kind kind = (enum owned_kind)i;
        uint64_t bytes = owned_policy_bytes(cache, kind);
        /* Inner nodes go only for others of their own. */
        if (!bytes || (kind == OWNED_INNER && self != OWNED_INNER) ||
            (kind != self && bytes <= cache->settings.bytes / KEEP) ||
            (kind == OWNED_ENTRIES && bytes <= OWNED_SEGMENT_BYTES))
            continue;
        double value = worth(cache, kind) * (kind == self ? 1 : MARGIN);
        if (best == OWNED_KINDS || value < least) {
            best = kind;
            least = value;
        }
    }
    return best;
}

/* ---- DEX ---- */

/* What cooled longest in its bucket goes. */
static bool evict_cooled(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf)
{
    struct owned_frame *frame = owned_frames_find(cache->frames, leaf);
    return frame && atomic_load_relaxed(&frame->state) == OWNED_FRAME_COOLING &&
           evict_leaf(cache, slot, leaf);
}

static void cool_one(struct owned_cache *cache, struct epoch_slot *slot)
{
    struct owned_frame *frame = owned_frames_any(cache->frames, owned_policy_random(cache));
    gaddr pushed;
    if (!frame || !owned_frames_turn(cache->frames, frame, OWNED_FRAME_WARM, OWNED_FRAME_COOLING))
        return;
    if (owned_cooling_put(cache->cooling, frame->address, &pushed))
        evict_cooled(cache, slot, pushed);
}

static bool dex_evict(struct owned_cache *cache, struct epoch_slot *slot)
{
    gaddr node;
    cool_one(cache, slot);
    cool_one(cache, slot);
    /* Until a tenth of the cache cools, pushing from full buckets is all that frees. */
    uint64_t nodes = owned_frames_count(cache->frames) / 10;
    uint64_t enough = owned_cooling_capacity(cache->cooling) / 2;
    if (nodes < enough)
        enough = nodes;
    return owned_cooling_count(cache->cooling) > enough &&
           owned_cooling_take(cache->cooling, owned_policy_random(cache), &node) &&
           evict_cooled(cache, slot, node);
}

/* ---- room ---- */

/* Which kind something must go of for more bytes of one kind; OWNED_KINDS: none may. */
static enum owned_kind victim(struct owned_cache *cache, enum owned_kind wanting)
{
    uint64_t inner = owned_policy_bytes(cache, OWNED_INNER);
    enum owned_kind kind;
    switch (cache->settings.policy) {
    case TREE_CACHE_DEX: /* a sampled inner node passes the command to cool on to a leaf below it */
        return owned_policy_bytes(cache, OWNED_LEAVES)                          ? OWNED_LEAVES
               : wanting == OWNED_INNER && inner > cache->settings.bytes / KEEP ? OWNED_INNER
                                                                                : OWNED_KINDS;
    case TREE_CACHE_DINOMO:
        return wanting != OWNED_INNER                                           ? OWNED_KINDS
               : owned_policy_bytes(cache, OWNED_VALUES)                        ? OWNED_VALUES
               : owned_policy_bytes(cache, OWNED_ENTRIES) > OWNED_SEGMENT_BYTES ? OWNED_ENTRIES
                                                                                : OWNED_INNER;
    default:
        kind = cheapest(cache, wanting);
        if (kind == OWNED_ENTRIES && wanting == OWNED_LEAVES && !may_pass(cache, OWNED_SEGMENT_BYTES))
            kind = OWNED_LEAVES;
        return kind;
    }
}

bool owned_policy_room(struct owned_cache *cache, struct epoch_slot *slot, enum owned_kind kind,
                       uint64_t bytes)
{
    for (unsigned i = 0; i < TRIES; i++) {
        if (owned_policy_fits(cache, bytes))
            return true;
        learn(cache);
        enum owned_kind gone = victim(cache, kind);
        if (gone == OWNED_KINDS || gone == OWNED_INNER)
            return false; /* its own cache lets one of them go */
        if (cache->settings.policy == TREE_CACHE_DEX)
            dex_evict(cache, slot);
        else
            evict_kind(cache, slot, gone);
    }
    return owned_policy_fits(cache, bytes);
}

void owned_policy_saw_inner(struct owned_cache *cache, uint32_t seen, uint32_t cold)
{
    saw(&cache->meters[OWNED_INNER], seen, cold);
}

/* ---- long values ---- */

uint32_t owned_policy_clock(const struct owned_cache *cache)
{
    return (uint32_t)atomic_load_relaxed(&cache->draws);
}

/* Dinomo's equation 1: the hits that the value would save one round trip each, against those of the least hit
 * entries that must go for it, times what a miss costs more than a hit. */
static bool promotes(struct owned_cache *cache, uint64_t bytes, uint32_t hits)
{
    uint32_t least, count;
    /* Relaxed: an average, of lookups; the value's own READ comes with a hit and with a miss. */
    double more = (double)atomic_load_relaxed(&cache->miss_cost) / 1024;
    uint32_t share = owned_entries_least(cache->entries, owned_policy_random(cache), &least, &count);
    double gone = share ? (double)bytes / share : 0;
    /* The access that brought an entry in counts as well, as Dinomo counts. */
    return owned_hits_count(hits) + 1 > gone * (owned_hits_count(least) + 1) * more;
}

static bool dinomo_value_room(struct owned_cache *cache, struct epoch_slot *slot, uint64_t bytes,
                              uint32_t hits)
{
    if (!promotes(cache, bytes, hits))
        return false;
    while (!owned_policy_fits(cache, bytes))
        if (owned_policy_bytes(cache, OWNED_ENTRIES) <= OWNED_SEGMENT_BYTES || !evict_entries(cache, slot))
            return false;
    atomic_add_relaxed(&cache->promotions, 1);
    return true;
}

/* Room from what is worth less, else of values that were met less often. */
static bool banyan_value_room(struct owned_cache *cache, struct epoch_slot *slot, uint64_t bytes,
                              uint32_t hits)
{
    if (owned_policy_random(cache) % SAMPLE_STEP == 0)
        sample_leaves(cache, 1); /* what they are worth must be known */
    learn(cache);
    for (unsigned i = 0; i < TRIES && !owned_policy_fits(cache, bytes); i++) {
        enum owned_kind kind = cheapest(cache, OWNED_VALUES);
        if (kind != OWNED_VALUES && kind != OWNED_KINDS && may_pass(cache, bytes)) {
            if (!evict_kind(cache, slot, kind))
                return false;
            continue;
        }
        const struct owned_value *least = sample_values(cache, SAMPLE, false);
        uint32_t fewest = least ? atomic_load_relaxed(&least->hits) : 0;
        bool better = hits > fewest || (!fewest && owned_policy_random(cache) % 10 == 0);
        if (!least || !better || !evict_value(cache, slot, least))
            return false;
        cool_value(cache);
    }
    return owned_policy_fits(cache, bytes);
}

bool owned_policy_value_room(struct owned_cache *cache, struct epoch_slot *slot, uint64_t bytes,
                             uint32_t hits)
{
    if (bytes > cache->settings.bytes / KEEP)
        return false;
    if (owned_policy_fits(cache, bytes) &&
        (cache->settings.policy != TREE_CACHE_DINOMO || !atomic_load_relaxed(&cache->filled)))
        return true;
    atomic_store_relaxed(&cache->filled, true); /* an estimate */
    return cache->settings.policy == TREE_CACHE_DINOMO ? dinomo_value_room(cache, slot, bytes, hits)
                                                       : banyan_value_room(cache, slot, bytes, hits);
}

/* Dinomo: a miss makes values go for the shortcut that it brings; here for the segment that the table of
 * entries gets for so many of them. */
static void demote_values(struct owned_cache *cache, struct epoch_slot *slot)
{
    uint64_t random = owned_policy_random(cache);
    if (!cache->values || random % OWNED_SEGMENT_BYTES >= ENTRY_ABOUT)
        return;
    while (!owned_policy_fits(cache, OWNED_SEGMENT_BYTES)) {
        if (!evict_kind(cache, slot, OWNED_VALUES))
            return;
        atomic_add_relaxed(&cache->demotions, 1);
    }
    owned_entries_grow(cache->entries);
}

void owned_policy_full_set(struct owned_cache *cache, struct epoch_slot *slot, uint32_t counted,
                           uint32_t cold)
{
    if (owned_policy_fits(cache, OWNED_SEGMENT_BYTES)) {
        owned_entries_grow(cache->entries);
        return;
    }
    if (cache->settings.policy == TREE_CACHE_DINOMO)
        demote_values(cache, slot);
    if (cache->settings.policy != TREE_CACHE_BANYAN)
        return;
    uint64_t random = owned_policy_random(cache);
    learn(cache);
    saw(&cache->meters[OWNED_ENTRIES], counted, cold);
    if (random % SAMPLE_STEP == 0)
        sample_leaves(cache, 1);
    if (random / SAMPLE_STEP % GROW_STEP || cheapest(cache, OWNED_ENTRIES) == OWNED_ENTRIES ||
        !may_pass(cache, OWNED_SEGMENT_BYTES))
        return;
    for (unsigned i = 0; i < TRIES && !owned_policy_fits(cache, OWNED_SEGMENT_BYTES); i++) {
        enum owned_kind kind = cheapest(cache, OWNED_ENTRIES);
        if (kind == OWNED_ENTRIES || kind == OWNED_KINDS || !evict_kind(cache, slot, kind))
            return; /* entries replace each other */
    }
    if (owned_policy_fits(cache, OWNED_SEGMENT_BYTES))
        owned_entries_grow(cache->entries);
}

bool owned_policy_wants_leaf(struct owned_cache *cache)
{
    uint64_t random = owned_policy_random(cache);
    if (cache->settings.policy == TREE_CACHE_DEX)
        return (double)(random >> 11) * 0x1p-53 < cache->settings.admission;
    if (!cache->frames)
        return false;
    if (owned_policy_fits(cache, owned_frames_size(cache->frames)))
        return true;
    if (random / 64 % LOOK_STEP == 0)
        sample_leaves(cache,
                      1); /* as often as leaves are missed, those that are there must prove themselves */
    learn(cache);
    if (worth(cache, OWNED_LEAVES) < worth(cache, OWNED_ENTRIES))
        return random % EXPLORE == 0;
    return random % 10 == 0; /* as DEX: those that come often are let in soon */
}

bool owned_policy_wants_entry(const struct owned_cache *cache)
{
    /* An entry saves the descent and the search in the leaf. Beside long values it is small: the leaf's room
     * is better used by some of those. */
    return cache->values || owned_policy_fits(cache, cache->settings.bytes / SPARE) ||
           worth(cache, OWNED_LEAVES) * TWICE < worth(cache, OWNED_ENTRIES);
}
