/*
 * owned_cache_entries.h - the cache's entries: a key of an owned range with the bytes of its slot's value, or
 * with a link: where its leaf is, or its slot. An entry without a value is a shortcut. What a link says is
 * its owner's business (owned_cache.c). Private to the cache of owned ranges (owned_cache.h).
 *
 * A table of sets of 512 bytes. A set is one cache line that tells what is in it (a byte of each key's hash,
 * a count of hits) and seven lines of keys and values, packed as they are: 18 bytes for a key and a value of
 * eight bytes each. So a search touches two cache lines, most often one where the key is not cached. Each set
 * has a version (seqlock.h): searches take no lock and write nothing but a count of hits, up to 15. The table
 * grows and shrinks by segments of sets (linear hashing), so that entries can compete with leaves and inner
 * nodes for bytes.
 *
 * Any thread. A search must lie between epoch_enter and epoch_leave. No round trips; only growing allocates.
 */
#ifndef TREE_OWNED_CACHE_ENTRIES_H
#define TREE_OWNED_CACHE_ENTRIES_H

#include "format/header.h"
#include "format/key.h"

struct epoch_slot;
struct owned_entries;

#define OWNED_SET_BYTES     512u
#define OWNED_SEGMENT_SETS  16u
#define OWNED_SEGMENT_BYTES (OWNED_SEGMENT_SETS * OWNED_SET_BYTES)
#define OWNED_LINK_MAX      16u

enum owned_entry_found {
    OWNED_ENTRY_NONE,
    OWNED_ENTRY_VALUE,
    OWNED_ENTRY_SHORTCUT, /* only a link is known */
    OWNED_ENTRY_BUSY,     /* a write to the key is under way: its value is not to be told */
};
/*
 * How often something was met, in 4 bits. Where entries refer to long values (an index of a store), counts
 * go to some thousand, in rough steps: from 4 on a step stands for twice as many as the one before, and is
 * made with a probability, so that what is met a hundred times differs from what is met ten times.
 */
#define OWNED_HITS_MAX 15u
static inline uint8_t owned_hits_more(uint8_t hits, uint32_t random)
{
    bool step = hits < 4 || !(random & ((1u << (hits - 3u)) - 1u));
    return (uint8_t)(hits + (hits < OWNED_HITS_MAX && step));
}
/* Half as many. */
static inline uint8_t owned_hits_half(uint8_t hits)
{
    return (uint8_t)(hits > 4 ? hits - 1 : hits / 2);
}
/* About how many. */
static inline uint32_t owned_hits_count(uint32_t hits)
{
    return hits < 4 ? hits : 4u << (hits - 4u);
}

struct owned_entry {
    uint8_t value[FORMAT_VALUE_MAX];
    uint32_t length;
    bool linked; /* it has a link */
    uint8_t link[OWNED_LINK_MAX];
    bool cold;       /* it was not found since replacement looked at it last */
    uint32_t hits;   /* before this one; counted up to 15, and halved from time to time */
    uint32_t random; /* in: for counts in rough steps */
    bool uncounted;  /* in: this is no hit */
    uint32_t lines;  /* cache lines that the search touched */
};

/* NULL: no memory. `bytes`: what the table may grow to. Of an index of a store hits are counted in rough
 * steps. */
struct owned_entries *owned_entries_create(const struct format_layout *layout, uint32_t link_bytes,
                                           uint64_t bytes);
/* No search is under way. */
void owned_entries_destroy(struct owned_entries *entries);

/* In an epoch. Counts the hit. */
enum owned_entry_found owned_entries_find(struct owned_entries *entries, struct format_key key,
                                          struct owned_entry *entry);

/* What becomes of an entry where its set is full. */
enum owned_replacement {
    OWNED_REPLACE_LEAST, /* the least hit goes */
    OWNED_REPLACE_DAC,   /* Dinomo, section 3.3: a value that was not used lately becomes a shortcut; where
                            there is none, the least hit shortcut goes */
};
struct owned_put {
    struct format_key key, value;
    const uint8_t *link; /* NULL: none. An entry that is there keeps the one it has */
    enum owned_replacement replacement;
    uint8_t hits;         /* of a new entry, in rough steps; one that is there has as many at least */
    bool bare;            /* a new entry is a shortcut, and stays one */
    const uint64_t *word; /* of the leaf (owned_cache_writes.h): nothing is put unless it is `stamp` */
    uint64_t stamp;
};
struct owned_put_result {
    bool done;
    uint32_t evicted, demoted;
    uint32_t cold, counted; /* of the entries that the set had: those without a hit, and all; 0 where there
                               was room */
};
/* Puts an entry, or gives a key that has one this value. A busy entry stays as it is. */
void owned_entries_put(struct owned_entries *entries, const struct owned_put *put,
                       struct owned_put_result *result);
/* Turns a key's shortcut into a value where that saves round trips (Dinomo's equation 1): its hits, one round
 * trip each, against those of the least hit shortcuts that must go to make room, times `miss` - 1, the round
 * trips that each of their misses costs more than a hit. */
bool owned_entries_promote(struct owned_entries *entries, const struct owned_put *put, double miss,
                           uint32_t *evicted);

/* A write to the key begins: its entry, if there is one, is busy until owned_entries_settle. */
void owned_entries_busy(struct owned_entries *entries, struct format_key key);
/* The write has ended: the key has this value; NULL: it has none, or its value is not known. With a link, the
 * entry has that from now on; others may go for it. False: there is no entry. */
bool owned_entries_settle(struct owned_entries *entries, struct format_key key,
                          const struct format_key *value, const uint8_t *link);
/* From `lower` on, below `upper` (NULL: to the end). Returns how many there were. Looks at every set. */
uint64_t owned_entries_drop_range(struct owned_entries *entries, struct format_key lower,
                                  const struct format_key *upper);
/* Several ranges, piece by piece. While a task holds the table, which it may for long, it neither grows nor
 * shrinks, so that no entry moves to a segment that was looked at already. */
struct owned_span {
    struct format_key lower, upper;
    bool has_upper; /* else: to the end */
};
void owned_entries_hold(struct owned_entries *entries);
/* In the segments from `from` on, below `to`. False: these were the last ones. */
bool owned_entries_drop(struct owned_entries *entries, uint32_t from, uint32_t to,
                        const struct owned_span *spans, uint32_t count);
void owned_entries_release(struct owned_entries *entries);

/* One segment more; false: the table has all that it may have or is held, or memory is short. */
bool owned_entries_grow(struct owned_entries *entries);
/* One segment less: half of its entries find room in others at best. False: there is one segment only, or the
 * table is held. */
bool owned_entries_shrink(struct owned_entries *entries, struct epoch_slot *slot, uint64_t *evicted);
/* Of a set that a random number chooses: the hits of its least hit entry, how many it has, and how many bytes
 * each takes. In an epoch. */
uint32_t owned_entries_least(const struct owned_entries *entries, uint64_t random, uint32_t *least,
                             uint32_t *count);
uint64_t owned_entries_bytes(const struct owned_entries *entries);
/* Exact while nothing is being changed. */
uint64_t owned_entries_count(const struct owned_entries *entries);

#endif
