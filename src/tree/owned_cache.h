/*
 * owned_cache.h - what a compute node caches of the ranges that it owns: whole leaves, entries (a key with
 * its slot's value, or with a shortcut to its leaf), and long values to which slots refer; beside the inner
 * nodes (cache.h), with which they share one budget of bytes. One for each open index. Private to src/tree/.
 *
 * WHO CALLS. The leaf access of owned ranges and point reads, in an operation that has announced its row
 * (rights.h); tree_rights_adopt, for ranges that are lost. Any thread. Nothing suspends or makes a round
 * trip, and no call may lie between the caller's own epoch_enter and epoch_leave that suspends. What is
 * cached is as the pool has it (writes go through); whether it may be told rests on the read lease (O2),
 * which is the caller's business.
 *
 * READING takes no lock and writes no shared cache line but a count of hits, which stays as it is once it is
 * full.
 *
 * WRITING. All writes to a leaf are made under its local lock (O5). Before the pool can have them,
 * owned_cache_write_begin names the bytes and owned_cache_key_begin the keys: from then on who asks for them
 * is told BUSY, and waits for its end or READs the pool instead, because the old value may have been
 * overtaken in another's eyes, and the new one may never come to be. owned_cache_write_end does the WRITEs to
 * the frame, or where their outcome is unknown, drops it; owned_cache_key_end does so for an entry.
 *
 * PLACES. An entry may know where its key's slot is, so that a change of it needs no READ: policy banyan,
 * where the leaf is not cached. It is believed under the leaf's lock, and until the leaf's header is written:
 * every split, merge and death of a leaf, and every other change of its version, writes that.
 *
 * ADMITTING. Bytes are admitted with a stamp that was taken before they were READ; they are not if a write to
 * the leaf began since or was under way then (owned_cache_writes.h). Of a leaf that a memory node has walked
 * to a moment that was taken before the request does for it.
 *
 * LONG VALUES are found by what the slot says of them, and never change (owned_cache_values.h): no write has
 * to name them before it begins, and no loss of a range makes them wrong.
 *
 * BUDGET. The bytes of inner frames, leaf frames, long values and segments of entries stay within the budget
 * but for one object for each thread at work, 16 inner frames and one segment; frames and values that have
 * left and that an epoch keeps are not counted.
 */
#ifndef TREE_OWNED_CACHE_H
#define TREE_OWNED_CACHE_H

#include "fabric/fabric.h"
#include "format/header.h"
#include "format/key.h"
#include "tree/owned_cache_frames.h"
#include "tree/tree.h"

struct epoch_slot;
struct owned_cache;
struct owned_mark;

struct owned_cache_settings {
    uint64_t bytes; /* of everything, inner nodes too */
    enum tree_cache_policy policy;
    double admission; /* DEX's probability for leaves */
    bool shortcuts_only;
};
/* For an index of this geometry, which is complete. NULL: no memory, or the policy caches inner nodes only.
 */
struct owned_cache *owned_cache_create(const struct owned_cache_settings *settings,
                                       const struct format_geometry *geometry);
/* Nothing may be at work in it. */
void owned_cache_destroy(struct owned_cache *cache);

/* ---- reading ---- */

/* Pieces of one state of a leaf. BUSY: *busy says where what was copied may not be told. */
enum owned_frame_found owned_cache_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf,
                                        const struct owned_piece *pieces, uint32_t count,
                                        struct owned_busy *busy);
enum owned_cache_found { OWNED_CACHE_NONE, OWNED_CACHE_VALUE, OWNED_CACHE_SHORTCUT, OWNED_CACHE_BUSY };
/* A key's value, FORMAT_VALUE_MAX bytes of room; or a shortcut to the leaf in which it was found. *hits: of
 * the entry, before this one (owned_cache_entries.h, which wants the random number). */
enum owned_cache_found owned_cache_entry(struct owned_cache *cache, struct epoch_slot *slot,
                                         struct format_key key, uint8_t *value, uint32_t *length,
                                         struct format_link *leaf, uint32_t random, uint32_t *hits);
/* A long value, and its note (tree_value_find). */
bool owned_cache_value(struct owned_cache *cache, struct epoch_slot *slot,
                       const struct tree_reference *reference, uint8_t *to, uint32_t length, uint64_t *note,
                       uint32_t random);

/* A key that was BUSY, or in a leaf's busy bytes: waits for the end of the write that is under way to it, and
 * gives the value that it has then, with room as above. False: there is no such write, or its outcome is not
 * known. Suspends. */
bool owned_cache_await(struct owned_cache *cache, struct format_key key, uint8_t *value, uint32_t *length);

/* Where a key's slot is: in a leaf that was live when its header was last written. */
struct owned_place {
    gaddr leaf;
    uint32_t number; /* of the slot */
    uint32_t seed;   /* of the leaf's slots */
    uint32_t shape;  /* owned_cache_shape */
};
/* With the leaf's lock held: the key's value, as above, and its slot in this leaf. False: it is not known. */
bool owned_cache_place(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key, gaddr leaf,
                       struct owned_place *place, uint8_t *value, uint32_t *length);
/* With the leaf's lock held: another number after each write to its header. */
uint32_t owned_cache_shape(struct owned_cache *cache, gaddr leaf);
/* Whether places are kept at all. */
bool owned_cache_keeps_places(const struct owned_cache *cache);

/* ---- admitting what was read ---- */

/* Before the READ. */
uint64_t owned_cache_stamp(struct owned_cache *cache, gaddr leaf);
/* Where the leaf is not known before, since a memory node walks to it: a moment, taken before the walk is
 * asked for; and the stamp of the leaf that it has read, once that is known. */
uint64_t owned_cache_moment(struct owned_cache *cache);
uint64_t owned_cache_stamp_since(struct owned_cache *cache, gaddr leaf, uint64_t moment);
/* With the leaf's lock held: whether what was read of it since that moment is what the lock's holder would
 * find. */
bool owned_cache_unwritten(struct owned_cache *cache, gaddr leaf, uint64_t moment);
/* Whether a leaf that is not cached should be READ whole, and offered. */
bool owned_cache_wants(struct owned_cache *cache);
/* Whether the leaf is cached, or would find room without anything going. Counts as neither hit nor miss. */
bool owned_cache_keeps_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf);
/* The whole leaf, live and with all slots as its lock's holder would find them. */
void owned_cache_offer_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf,
                            const uint8_t *bytes, uint64_t stamp);
/* A key's slot was read: by a READ of the pool, or from a cached leaf. */
void owned_cache_offer_entry(struct owned_cache *cache, struct epoch_slot *slot, struct format_link leaf,
                             bool cached, uint64_t stamp, struct format_key key, struct format_key value);
/* The bytes that the key's entry has, and its hits; counts as no hit. False: there is no entry with a value.
 */
bool owned_cache_peek(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key,
                      uint8_t *value, uint32_t *length, uint32_t *hits);
/* A long value; its key was met about so often of late. */
void owned_cache_offer_value(struct owned_cache *cache, struct epoch_slot *slot,
                             const struct tree_reference *reference, const uint8_t *bytes, uint32_t length,
                             uint64_t note, uint32_t hits);
/* The same in place of another value of the key, whose room it takes, and whose hits it has. True: that was
 * cached. False: *hits is at least what the other had, and it is gone. */
bool owned_cache_replace_value(struct owned_cache *cache, struct epoch_slot *slot,
                               const struct tree_reference *before, const struct tree_reference *reference,
                               const uint8_t *bytes, uint32_t length, uint64_t note, uint32_t random,
                               uint32_t *hits);
/* Policy dinomo: how many round trips a lookup took that found nothing cached. */
void owned_cache_missed(struct owned_cache *cache, uint64_t round_trips);

/* ---- writing: under the leaf's local lock ---- */

/* Bytes `from` to `to` of the leaf; all writes of one hold of the lock in one call, before the first list. */
void owned_cache_write_begin(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf, uint32_t from,
                             uint32_t to);
/* With a mark, which stays until the end, lookups may wait for that. */
void owned_cache_key_begin(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key,
                           struct owned_mark *mark);
/* Each key's behind the leaf's end. `value`: what it has now; NULL: nothing, or it is not known. With a place
 * the key gets an entry that knows it. */
void owned_cache_key_end(struct owned_cache *cache, struct epoch_slot *slot, struct format_key key,
                         const struct format_key *value, const struct owned_place *place,
                         struct owned_mark *mark);
/* The same of a key whose entry was merged (logging.h), in this leaf: where there is none the key gets one,
 * if there is room for it or something that is worth less. `hits`: how often it was met before, in rough
 * steps. */
void owned_cache_key_merged(struct owned_cache *cache, struct epoch_slot *slot, struct format_link leaf,
                            struct format_key key, struct format_key value, uint8_t hits,
                            struct owned_mark *mark);
/* status 0: the WRITEs of the commands are done. */
void owned_cache_write_end(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf, int status,
                           const struct fabric_command *writes, uint32_t count);

/* ---- dropping ---- */

/* A long value to which no slot refers any more: true if it was there, and how often it was met. */
bool owned_cache_drop_value(struct owned_cache *cache, struct epoch_slot *slot,
                            const struct tree_reference *reference, uint32_t *hits);
/* A leaf whose frame says what the tree does not. */
void owned_cache_drop_leaf(struct owned_cache *cache, struct epoch_slot *slot, gaddr leaf);
/* The range from `lower` on, below `upper` (NULL: to the end), is this process's no more, and no operation is
 * under way that could admit something of it. What is cached of it goes later, by owned_cache_sweep; until
 * then nobody may ask for it. Costs next to nothing. */
void owned_cache_lose(struct owned_cache *cache, struct epoch_slot *slot, struct format_key lower,
                      const struct format_key *upper);
/* Before the process has the right to the range: what is cached of it since an earlier right is dropped at
 * once, if the sweep has not done that. */
void owned_cache_regain(struct owned_cache *cache, struct epoch_slot *slot, struct format_key lower,
                        const struct format_key *upper);
/* Drops a piece of what is cached of lost ranges: some hundred microseconds' work. One task at a time. False:
 * nothing is left to do. */
bool owned_cache_sweep(struct owned_cache *cache, struct epoch_slot *slot);
/* All leaves and entries of the range, at once. No operation may be under way that could admit others. Looks
 * at all that is cached: up to a hundred nanoseconds each. */
void owned_cache_drop_range(struct owned_cache *cache, struct epoch_slot *slot, struct format_key lower,
                            const struct format_key *upper);

/* The index is being dropped: nothing is found any more. */
void owned_cache_stop(struct owned_cache *cache, struct epoch_slot *slot);

/* ---- the budget, for the cache of inner nodes (cache.c), which lets its own go by itself ---- */

void owned_cache_inner_bytes(struct owned_cache *cache, int64_t more);
/* Whether so many bytes more fit without anything going. A figure. */
bool owned_cache_has_room(const struct owned_cache *cache, uint64_t bytes);
/* Inner frames have grown: leaves or entries go, by the policy. True: an inner one should go. */
bool owned_cache_make_room(struct owned_cache *cache, struct epoch_slot *slot);
/* Of frames that were looked at, so many had not been used since the look before; and one of those was used
 * now. */
void owned_cache_inner_seen(struct owned_cache *cache, uint32_t seen, uint32_t cold);
void owned_cache_inner_hit(struct owned_cache *cache);

/* Adds to *stats, but for the inner nodes' part. */
void owned_cache_count(const struct owned_cache *cache, bool entries, struct tree_cache_stats *stats);

#endif
