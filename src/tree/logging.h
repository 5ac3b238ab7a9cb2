/*
 * logging.h - the tree's side of the owner's log (docs/internals/log.md): changes of keys in ranges that are
 * owned and logged go into the table of what is not merged and into the log, and are merged into their leaves
 * behind that. For src/log/, which keeps the streams and calls tree_log_apply; and for the owner's layer.
 *
 * struct tree_log is what the tree asks of src/log/: set once, before any table of rights has a logged row.
 * Its functions are called by the operation's task, under the row that it has announced.
 */
#ifndef TREE_LOGGING_H
#define TREE_LOGGING_H

#include "base/wakeup.h"
#include "format/key.h"
#include "tree/tree.h"
#include "tree/unmerged.h"

/* A change on its way into the log: on its operation's stack, from `add` until `commit` has returned. */
struct tree_logged {
    struct unmerged_write write;
    struct tree_logged *next;           /* of its frame; the log's */
    const struct unmerged_frame *frame; /* NULL: nothing was logged */
    struct wakeup wakeup;               /* of its task, which has made it ready before `add` */
    int status; /* 0: in the log. BANYAN_EFENCED, BANYAN_ENOSPC: nothing of it was done. BANYAN_EUNKNOWN */
    struct error error; /* with `status` */
};

struct tree_logged_entry {
    uint16_t index;
    uint64_t epoch;               /* of the range */
    struct format_key key, value; /* value.bytes NULL: deleted */
    /* WRITEs that must have taken effect before the entry has: on the entry's memory node */
    const struct fabric_command *ahead;
    uint32_t ahead_count;
    bool again; /* what is doubtful is logged once more */
    /* The block of the record that the value names, all of it, or the header of one in pieces; 0 bytes: it
     * names none. */
    gaddr record;
    uint32_t record_bytes;
    bool in_pieces;
    uint16_t brought; /* the log's: where the pieces were brought to */
};

/* Fills in the entry's record, record_bytes and in_pieces, from its key and its value. */
void tree_logged_record(const struct tree *tree, struct tree_logged_entry *entry);

struct tree_log {
    /* Before an entry whose value lies in pieces, for that memory node: these come to the disks that it will
     * come to. May suspend. Not 0: it is not to be logged. */
    int (*bring)(void *context, struct tree_session *session, uint16_t node, struct tree_logged_entry *entry);
    /* The open frame for that memory node, with room for the entry, of the session's incarnation: until
     * `close` it stays open, and no other task adds to it. NULL: there is none now, and `room` waits until
     * those that are open are closed. Does not suspend. */
    struct unmerged_frame *(*open)(void *context, struct tree_session *session, uint16_t node,
                                   const struct tree_logged_entry *entry);
    /* Into the frame that `open` has just returned; the entry's index in it. */
    uint32_t (*add)(void *context, struct tree_session *session, struct unmerged_frame *frame,
                    const struct tree_logged_entry *entry, struct tree_logged *logged);
    /* Whether another one fits as well. */
    bool (*fits)(void *context, const struct unmerged_frame *frame, const struct tree_logged_entry *entry);
    void (*close)(void *context, struct tree_session *session);
    void (*room)(void *context, struct tree_session *session);
    /* Sees to it that a task commits the open frames: before this one waits for something else. May suspend.
     */
    void (*lead)(void *context, struct tree_session *session);
    /* Group commit: returns logged->status, when it is known. The session's messages tell why it failed. */
    int (*commit)(void *context, struct tree_session *session, struct tree_logged *logged);
};
void tree_compute_set_log(struct tree_compute *compute, const struct tree_log *log, void *context);
/* What was set. For judges of simulated worlds, which stand between. */
void tree_compute_log(const struct tree_compute *compute, struct tree_log *log, void **context);

/* ---- what values mean to the layer above ---- */

struct tree_values {
    /* Whether the value shares what it refers to with other values of the same key, so that it must have been
     * merged before another takes its place. */
    bool (*shared)(void *context, const void *value, size_t length);
    /* Whether the value names anything that has to be released one day. */
    bool (*names)(void *context, const void *value, size_t length);
    /* A merging has taken the value out of its leaf, and nothing refers any more to what it names but
     * `now` does not (NULL: deleted). What `now` names stays until the call has returned. On any task of this
     * process; may read and release blocks with the session's pool session, and starts no operation. */
    void (*released)(void *context, struct tree_session *session, const void *key, size_t key_length,
                     const void *value, size_t length, const void *now, size_t now_length);
};
/* Before the first operation on the handle. The context lives as long as the handle. */
void tree_set_values(struct tree *tree, const struct tree_values *values, void *context);

/* ---- changes; for the layer above ---- */

/* WRITEs that must be done before the next change of this session takes effect, all to one memory node, to
 * blocks that nothing refers to yet. Where the change is logged they travel with it, and are not made if it
 * is decided against; else they cost a round trip before it. The commands and their data stay the caller's
 * until that call returns. */
void tree_session_ahead(struct tree_session *session, const struct fabric_command *writes, uint32_t count);
/* After that call: they have been done. Else they have not, or (BANYAN_ENET, BANYAN_ETIMEOUT,
 * BANYAN_EUNKNOWN) may be on their way. */
bool tree_session_ahead_done(const struct tree_session *session);
/* In a function of a change: what the key holds may be released by a merging as soon as the change is done,
 * so nothing of it can be read afterwards. */
bool tree_session_replaces_later(const struct tree_session *session);
/* Whether changes of this session may be logged, if they are in ranges that are. */
bool tree_session_has_log(const struct tree_session *session);
/* WRITEs that were done for the next change of this session, whose bytes its log may use instead of reading
 * them again (P17). The commands and their data stay the caller's until it takes them back by a count of 0,
 * when that change has returned. */
void tree_session_at_hand(struct tree_session *session, const struct fabric_command *writes, uint32_t count);
/* The bytes that one of them wrote to this place, so many; NULL: none did. */
const void *tree_session_find_at_hand(const struct tree_session *session, gaddr address, uint32_t length);
/* An upsert of one item, which tells what it replaced as tree_multi_put does. */
int tree_put(struct tree_session *session, struct tree *tree, struct tree_item *item);
/* After a change that was done: whether what the key held before, and the change was told, is now referred to
 * by nothing. False in a logged range where that was in the leaf: it is released when the change is merged.
 */
bool tree_session_replaced(const struct tree_session *session);

/* ---- the catalogue on disks; for sessions that have changed it, and for the owner's layer ---- */

/* Where memory node 0 keeps logs on a disk: waits until that has the catalogue as it is now, so that nothing
 * that is logged of an index is read back without its name, nor an index that was dropped with it. Memory
 * node 1 gets a copy before, at the same place of its pool, for its own disk (P9): that one may not be there.
 * Three round trips, and the disks. */
int tree_catalogue_persist(struct tree_session *session);

/* ---- merging; for src/log/ ---- */

/* A walk over a range of an index in key order, which several tasks make together: each takes the next
 * entries and merges them. All zeros but for `least` and the range, to begin with. */
struct tree_log_walk {
    struct spinlock lock;
    /* guarded by the lock: */
    struct format_key_copy from; /* moves on */
    const struct format_key *to; /* NULL: no end */
    uint64_t least; /* UINT64_MAX at first; see unmerged_take; entries that could not be merged count too */
    uint64_t done, merged; /* entries that were tried; and that are in their leaves ... */
    uint64_t there;        /* ... where memory nodes have put them */
    bool end;              /* nothing is left to be taken; shares of others may be under way */
};
/* One share of the work: the walk's next entries, `limit` of them at most, go into their leaves (the row is
 * this process's own, or on its way from it). Two round trips and, for each entry that
 * splits its leaf, some more; in no operation. Sixteen: between two waits a share keeps its thread from other
 * tasks. The first error; what was not merged stays. */
#define TREE_LOG_APPLY_MAX 16u
int tree_log_apply(struct tree_session *session, struct tree *tree, struct tree_log_walk *walk,
                   uint32_t limit);
/* Keys whose last frame may have been written or not are logged again. Costs a commit for each. */
int tree_log_settle(struct tree_session *session, struct tree *tree);
/* The index's table; NULL: it has none yet. */
struct unmerged *tree_log_table(struct tree *tree);
/* The same, made where it has none: NULL, there is no memory. */
struct unmerged *tree_log_table_make(struct tree *tree);

#endif
