/*
 * unmerged.h - the table of an index's logged changes that their leaves do not have yet: rule L4 of
 * docs/internals/log.md. One for each index of a compute node, in the memory of the process that owns the
 * ranges. Private to src/tree/.
 *
 * An ENTRY is a key with what it holds: a value, or nothing (it was deleted). It is PENDING from when it is
 * written into a frame of the log until that frame's fate is known, then COMMITTED. Readers see what is
 * committed, alone. A writer holds the key's latch from when it looks at the key until its entry is in the
 * table, and waits while the key is pending in another frame; a frame's sequences are drawn as one when it is
 * sent, so they order each key's changes (L2). A frame that may have been
 * written or not leaves its keys DOUBTFUL: the next task that changes or merges such a key logs the same
 * value again before anything else; or the value before it, where the new one is FRAGILE: what it names may
 * not have been written.
 *
 * MERGING takes committed entries in key order; an entry leaves the table when its leaf has it, if the key
 * has no newer one by then. What is pending does not keep it back: else a frame that waits for room would
 * wait for a merging that waits for the frame.
 *
 * Any thread. Nothing makes a round trip; unmerged_latch alone suspends. An entry takes its key's bytes,
 * twice the longest value's, and some 150 more.
 */
#ifndef TREE_UNMERGED_H
#define TREE_UNMERGED_H

#include <stdbool.h>
#include <stdint.h>

#include "format/key.h"

struct epoch_slot;
struct unmerged;
struct unmerged_node;

/* `value_bytes`: the longest value of the index. NULL: no memory. */
struct unmerged *unmerged_create(uint32_t value_bytes);
/* Nothing is at work in it. */
void unmerged_destroy(struct unmerged *table);

/* ---- reading ---- */

enum unmerged_found { UNMERGED_NONE, UNMERGED_VALUE, UNMERGED_DELETED };
/* What is committed of the key; with FORMAT_VALUE_MAX bytes of room. A value that is found was met once more:
 * *met, where it is not NULL, is how often that was so before, in rough steps (owned_cache_entries.h), which
 * want the random number. */
enum unmerged_found unmerged_find(struct unmerged *table, struct format_key key, uint8_t *value,
                                  uint32_t *length, uint32_t random, uint32_t *met);

/* Whether a change of the key is pending, or doubtful. */
bool unmerged_unsettled(struct unmerged *table, struct format_key key);

/* A run of committed entries, for a scan that lays them over leaves that it reads LATER. */
struct unmerged_item {
    struct format_key key, value; /* value.bytes NULL: deleted */
};
struct unmerged_run {
    struct unmerged_item *items; /* in key order; descending if reverse */
    uint32_t count;
    bool complete;                /* up to the end that was asked for */
    struct format_key_copy until; /* else: nothing was looked at from this key on (reverse: below it) */
    /* private */
    uint32_t capacity;
    uint8_t *bytes;
    uint64_t used, room;
};
/* At most UNMERGED_RUN_MAX entries from `from` on and below `to` (NULL: no bound); reverse: below `to`, down
 * to `from`. False: no memory. */
#define UNMERGED_RUN_MAX 256u
bool unmerged_run(struct unmerged *table, struct epoch_slot *slot, const struct format_key *from,
                  const struct format_key *to, bool reverse, struct unmerged_run *run);
void unmerged_run_free(struct unmerged_run *run);
/* How many entries there are, about. */
uint64_t unmerged_count(const struct unmerged *table);
uint64_t unmerged_bytes(const struct unmerged *table);

/* ---- writing ---- */

/* Takes the key's latch. NULL: no memory; or *taken (where `work` is not NULL): the latch's holder has done
 * the work instead. */
struct unmerged_node *unmerged_latch(struct unmerged *table, struct format_key key, void *work, bool *taken);
/* With the latch held: how many tasks wait for it. */
uint32_t unmerged_waits(struct unmerged *table, struct unmerged_node *node);
/* With the latch held: the work of the task that gets it next; NULL: there is none. */
void *unmerged_next_work(struct unmerged *table, struct unmerged_node *node);
/* It was done: its task goes on without the latch. It is told by unmerged_work_done, which the caller calls
 * when it holds no lock; the returned object is for that alone. */
struct unmerged_wait *unmerged_take_work(struct unmerged *table, struct unmerged_node *node);
void unmerged_work_done(struct unmerged_wait *wait);
/* The same, if that does not have to wait; *busy: it would. */
struct unmerged_node *unmerged_latch_try(struct unmerged *table, struct format_key key, bool *busy);
void unmerged_unlatch(struct unmerged *table, struct epoch_slot *slot, struct unmerged_node *node);

/* What the table has of a key whose latch is held: the pending value, else the committed one. */
struct unmerged_look {
    enum unmerged_found found;
    const uint8_t *value; /* stays until the latch is given up, or the key is written */
    uint32_t length;
    const struct unmerged_frame *frame; /* in which it is pending; NULL: it is committed, or doubtful */
    bool doubtful;
    bool fragile; /* doubtful; and what it names may not be there */
    bool leafed;  /* the key's leaf may have this value already */
    uint8_t met;  /* as unmerged_find */
};
void unmerged_look(struct unmerged *table, struct unmerged_node *node, struct unmerged_look *look);
/* The same without what is pending: what readers see. */
void unmerged_look_committed(struct unmerged *table, struct unmerged_node *node, struct unmerged_look *look);

/* With the latch held: the key was met so often at least. */
void unmerged_met(struct unmerged *table, struct unmerged_node *node, uint32_t met);

/* With the latch held: waits until nothing is pending in a frame whose fate is not known. Suspends. */
void unmerged_await(struct unmerged *table, struct unmerged_node *node);

/* A frame as the table knows it: part of the log's object. */
struct unmerged_frame {
    uint64_t first; /* atomic: its first entry's sequence; UNMERGED_UNDRAWN, or UNMERGED_DRAWING, which is
                       stored before the counter is moved */
};
#define UNMERGED_UNDRAWN UINT64_C(0)
#define UNMERGED_DRAWING UINT64_C(1)

/* A change in a frame, on the writer's stack until the frame's fate is known and it was told. */
struct unmerged_write {
    struct unmerged_node *node;
    struct unmerged *table;
    const struct unmerged_frame *frame;
    uint32_t index; /* among the frame's entries */
    bool first;     /* of its frame's changes to the key */
    bool replaced;  /* out: it has taken the place of an entry of the table, of which nothing refers any more
                       to what that named: not its leaf, and no later merging puts it there */
};
/* With the latch held, and nothing pending in another frame. `value` NULL: the key is deleted. */
void unmerged_write(struct unmerged *table, struct unmerged_node *node, const struct format_key *value,
                    const struct unmerged_frame *frame, uint32_t index, struct unmerged_write *write);
/* Of the change that was written last, with the latch still held. `fragile`: what the value names is written
 * by the same list as the frame. `leafed`: the key's leaf may have this value already. */
void unmerged_mark(struct unmerged *table, struct unmerged_node *node, bool fragile, bool leafed);
/* The frame's fate, for each of its changes in the order in which they were made. */
enum unmerged_fate { UNMERGED_COMMITTED, UNMERGED_REFUSED, UNMERGED_UNKNOWN };
void unmerged_settle(struct epoch_slot *slot, struct unmerged_write *write, enum unmerged_fate fate);
/* A committed entry that comes from another process's log (L7), which may have merged it; an older one of the
 * key is replaced. False: no memory. */
bool unmerged_adopt(struct unmerged *table, struct format_key key, const struct format_key *value,
                    uint64_t sequence);

/* ---- merging ---- */

struct unmerged_merge {
    struct unmerged_node *node;
    struct format_key key; /* stays until unmerged_merged */
    uint64_t sequence;
    bool deleted;
    uint8_t met; /* how often lookups found the key here, as unmerged_find; half of that is forgotten then */
    uint32_t length;
    uint8_t value[FORMAT_VALUE_MAX];
};
/* The next at most `capacity` entries to be merged, from `from` on (NULL: the least key) and below `to`.
 * *after: the key to go on from. *least becomes the least sequence of those that cannot be merged yet, if
 * that is less. Returns how many; *end: there are no more. */
uint32_t unmerged_take(struct unmerged *table, struct epoch_slot *slot, const struct format_key *from,
                       const struct format_key *to, struct unmerged_merge *merges, uint32_t capacity,
                       struct format_key_copy *after, uint64_t *least, bool *end);
/* The leaf has it, does not have it, or nobody knows. Unless it has it, the entry stays. True: nothing refers
 * any more to what the entry's value names: another has taken its place, and the leaf did not get it. */
enum unmerged_end { UNMERGED_DONE, UNMERGED_NOT_DONE, UNMERGED_PERHAPS };
bool unmerged_merged(struct unmerged *table, struct epoch_slot *slot, const struct unmerged_merge *merge,
                     enum unmerged_end end);
/* In an operation that has announced the key's row: whether what is being merged of the key was dropped, so
 * that it must not be put into the leaf, however the range came back. */
bool unmerged_void(struct unmerged *table, struct format_key key);
/* With the key's latch held: its committed entry, as unmerged_take would. False: there is none, or it is
 * being merged by another task. */
bool unmerged_take_one(struct unmerged *table, struct unmerged_node *node, struct unmerged_merge *merge);
/* A key that is doubtful, from `from` on. False: there is none. */
bool unmerged_doubtful(struct unmerged *table, struct epoch_slot *slot, struct format_key_copy *key);

/* The range is another's by now: its entries leave the table, whatever they are. No operation is under way in
 * it; what is being merged finds unmerged_void. `to` NULL: no end. */
void unmerged_drop(struct unmerged *table, struct epoch_slot *slot, struct format_key from,
                   const struct format_key *to);

#endif
