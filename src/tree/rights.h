/*
 * rights.h - which leaves of an index this compute node may change, and who may change the others: its copy
 * of the map of ranges (rules O1 to O5, docs/internals/ownership.md). For src/tree/, and for src/owner/,
 * which keeps the map and sets the copy.
 *
 * A range is SHARED (any compute node changes its leaves, under global locks), OWNED by this process (no
 * global lock; leaves and entries may be cached), another's (operations are forwarded to it; its leaves may
 * be read one-sided where it writes through, and lookups and scans are forwarded too where it logs), or
 * MOVING (this process must wait for what becomes of it). An
 * index that was never given a table is shared as a whole; tree_rights_own makes it owned as a whole, for a
 * process that has it to itself.
 *
 * AN OPERATION announces the row that it relies on before it touches a leaf (tree_rights_enter), and
 * withdraws that at its end (tree_rights_leave); both cost some nanoseconds and no shared cache line that is
 * written. tree_rights_adopt installs a new table, then waits for the operations that rely on rows whose
 * right the new table takes away: rule O1.
 */
#ifndef TREE_RIGHTS_H
#define TREE_RIGHTS_H

#include "fabric/peers.h"
#include "format/key.h"
#include "tree/tree.h"

enum tree_right { TREE_SHARED, TREE_OWNED, TREE_OTHERS, TREE_MOVING };

/* A range, from its lower bound to that of the next row. Rows ascend; the first one's bound is empty: the
 * least key. */
struct tree_rights_row {
    const uint8_t *lower;
    uint32_t lower_length;
    enum tree_right right;
    struct fabric_process owner; /* OTHERS; else zeros */
    /* The version in which all of the range had got its owner: grows with each change of that, and is never
     * used again. A table of a later version in which the range was this process's says so of it still. */
    uint64_t epoch;
    /* OWNED: this process's writes of the row go to its log first. OTHERS: the pool may be older than what
     * the owner has acknowledged, so no operation is answered from it: the owner is asked. Else false. A row
     * that is logged has another right than one that is not. */
    bool logged;
    /* SHARED, OWNED, OTHERS: memory nodes promise to keep on disks what is logged, and what is written to
     * this row is not: no key of it is changed. Changes wait for a table that says otherwise (`wait` below),
     * reads go on, and so does what changes nodes alone. Else false. */
    bool unkept;
    /* MOVING: this process has to merge what it has logged of the row, where it had the row before under this
     * epoch. Else false: it is inherited by the next owner, or there is nothing. */
    bool drains;
};

/*
 * O1. Installs the map's version for this index: from here on no operation begins that it forbids; those
 * under way are waited for, and what is cached of ranges that this process has no more, or has under another
 * epoch, is found by no operation any more (tree_rights_sweep frees it). Where a range goes from one right of
 * this process straight to another, operations find it MOVING until then. When it returns 0 the version is
 * adopted. Copies the rows. An older version than the installed one changes nothing; the installed one again
 * changes nothing but its incarnation. Suspends the calling task, which must hold no lock and be in no
 * operation of the index; one call at a time for each index. BANYAN_ENOMEM: nothing was changed.
 * BANYAN_EINVAL: rows that contradict themselves (order, no first row); the message says which. All handles
 * of the index on this compute node have one table.
 *
 * `incarnation`: fabric_incarnation, read before the map was fetched. Whatever changes leaves of the index is
 * posted under the installed table's number. So after the loss of a connection nothing goes out to that
 * memory node until the map has been read again; operations that are refused for it (BANYAN_EFENCED) call
 * `wait` of struct tree_forward with an owner of zeros.
 */
int tree_rights_adopt(struct tree_session *session, struct tree *tree, uint64_t version, uint64_t incarnation,
                      const struct tree_rights_row *rows, uint32_t count);
/* The installed version once more: rows of it that were MOVING are this process's now, since what kept them
 * was this process itself. Else as tree_rights_adopt; nothing where another version is installed. */
int tree_rights_ready(struct tree_session *session, struct tree *tree, uint64_t version, uint64_t incarnation,
                      const struct tree_rights_row *rows, uint32_t count);
/* Frees a piece of what is cached of ranges that this process has lost: some hundred microseconds' work, no
 * round trip. In no operation; one task at a time for each index, adopting may be under way. False: nothing
 * is left. */
bool tree_rights_sweep(struct tree_session *session, struct tree *tree);
/* The whole index is this process's, as version 0, and it has the pool to itself: no incarnation makes that
 * untrue. Before any operation of it began (the switch `ownership` does it as each index is opened).
 * BANYAN_ENOMEM. */
int tree_rights_own(struct tree *tree, struct error *error);
/* In `wait` of struct tree_forward with an owner of zeros: the epoch and the lower bound (the session's) of
 * the row that is MOVING, for which the operation waits. */
uint64_t tree_session_met(const struct tree_session *session, struct format_key *lower);
/* In `wait` of struct tree_forward, before it does anything with the session: the operation is a change of a
 * row that is `unkept`. */
bool tree_session_wants_log(const struct tree_session *session);
/* Whether a change of the key would wait at present, since its row is `unkept`: for those who would change
 * what nobody asked for, and can leave it. In no operation; no round trip. */
bool tree_rights_unkept(struct tree_session *session, struct tree *tree, const void *key, size_t key_length);
/* An index that no map gives a table is `unkept` as a whole where memory nodes keep logs on disks. Not this
 * one: what is in it is made anew by whoever reads those disks back. Before any operation of it began.
 * BANYAN_ENOMEM. */
int tree_rights_exempt(struct tree *tree, struct error *error);
/* The installed version; 0: none was. Any thread. */
uint64_t tree_rights_version(const struct tree *tree);
/* What the installed table says of the key now; *incarnation: as tree_rights_adopt's, UINT64_MAX where none
 * makes it untrue. For judges of simulated worlds: no other task may adopt meanwhile. */
enum tree_right tree_rights_at(const struct tree *tree, const void *key, size_t key_length,
                               uint64_t *incarnation);
/* The same: the epoch under which this process has the key's row for itself, and logs it; 0: it does not. */
uint64_t tree_rights_logged_at(const struct tree *tree, const void *key, size_t key_length,
                               uint64_t *incarnation);

/* Whether this process has all of the range for itself, as part of one row: *epoch is the row's. Where it
 * says so twice, with the same epoch, nobody but this process has changed a key of the range in between
 * (epochs are never used again), nor has what it has read there in between been another's: it asks for the
 * read lease (O2) before it looks at the table. In no operation; no round trip. */
bool tree_rights_held(struct tree_session *session, struct tree *tree, const struct tree_range *range,
                      uint64_t *epoch);
/* Visits the rows of the installed table in key order. In no operation; no round trip. The visit does not
 * suspend, and does not use the session: adopting waits for it. */
typedef void tree_row_visit_function(void *context, const struct tree_rights_row *row,
                                     const struct format_key *upper /* NULL: none */);
void tree_rights_rows(struct tree_session *session, struct tree *tree, tree_row_visit_function *visit,
                      void *context);

/* O3. Makes sure that a leaf begins exactly at the key: splits one if need be. The caller has the right to
 * change it (SHARED or OWNED); TREE_OTHERS and TREE_MOVING are BANYAN_EFENCED. The leaf may die again at
 * once, unless the key is a row's bound in the installed table. Two round trips more than a split; one where
 * the leaf begins there already. */
int tree_border_make(struct tree_session *session, struct tree *tree, const void *key, size_t key_length);

/* ---- what is done for others (src/owner/ calls these; they never forward) ---- */

/* What the key must hold for a change to be done. */
enum tree_expectation { TREE_EXPECT_ANYTHING, TREE_EXPECT_NOTHING, TREE_EXPECT_SOMETHING, TREE_EXPECT_VALUE };
struct tree_exchange {
    const void *key;
    size_t key_length;
    enum tree_expectation expect;
    const void *expected; /* TREE_EXPECT_VALUE */
    size_t expected_length;
    const void *value; /* NULL: the key is to be deleted */
    size_t length;
    /* Whether its asker waits for it still: asked with the key's latch or the leaf's lock held, on any
     * thread, each time the change is decided on. False: nothing is done, BANYAN_EFENCED. NULL: it does. */
    bool (*waited)(void *asker);
    void *asker;
    /* out: what the key held, whether the change was done or not */
    bool existed;
    uint8_t old[FORMAT_VALUE_MAX];
    size_t old_length;
    bool refused;  /* the key did not hold what was expected */
    bool given_up; /* it was not waited for any more */
    bool replaced; /* of a change that was done: tree_session_replaced, of the process that did it */
};

/* All: BANYAN_EFENCED where this process does not own the key's range: nothing was done. Else as tree_lookup
 * and tree_compare_and_set; tree_exchange_here is BANYAN_ECONFLICT where the key does not hold what is
 * expected. */
int tree_lookup_here(struct tree_session *session, struct tree *tree, const void *key, size_t key_length,
                     void *value, size_t *length);
/* The same for a change that is to be decided on what is found, and may come to nothing: behind every change
 * of the key that is in the log's table by now, of unknown outcome or not committed yet (L3). */
int tree_lookup_settled_here(struct tree_session *session, struct tree *tree, const void *key,
                             size_t key_length, void *value, size_t *length);
int tree_exchange_here(struct tree_session *session, struct tree *tree, struct tree_exchange *exchange);

/* What the layer above does around each change that tree_exchange_here makes, which it does not see else. */
struct tree_served {
    /* In no operation of the index; may read with the session, by the functions of this section alone, and
     * suspend. Not 0: nothing is changed, and the exchange fails with that. *change goes to `end`. */
    int (*begin)(void *context, struct tree_session *session, const void *key, size_t key_length,
                 void **change);
    /* The change is done, or will not be. Does not suspend. */
    void (*end)(void *context, void *change);
};
/* Before the first operation; `context` must live as long as the handle. */
void tree_set_served(struct tree *tree, const struct tree_served *served, void *context);

/* Where a part of a scan ended. */
struct tree_scan_end {
    bool ended;                  /* the range did; else: */
    struct format_key_copy next; /* keys from here on are due; reverse: keys below it */
};
/* tree_scan of a peer, within the rows that this process owns: delivers what it can, from the range's begin
 * (reverse: from its end) on. An entry for which visit returns false is not taken; visit takes the first one
 * at least. `limit` as ever. BANYAN_EFENCED: this process does not own the row in which the range begins. */
int tree_scan_here(struct tree_session *session, struct tree *tree, const struct tree_range *range,
                   tree_visit_function *visit, void *context, struct tree_scan_end *end);

/* What the layer above announces of a session while a change of its is under way. While the change waits for
 * another process, or for a range on its way here, it has made nothing and makes nothing here; so it
 * withdraws the announcement, and announces itself again before it goes on. */
struct tree_announcer {
    const struct tree *tree;
    /* Neither suspends nor uses the session. False: nothing was announced. */
    bool (*withdraw)(void *context);
    /* In no operation; may do whole operations with the session, and suspend. The key is of the change that
     * goes on, NULL: a batch of them does. Where nothing is withdrawn any more it does nothing. */
    void (*announce)(void *context, const void *key, size_t key_length);
    void *context;
    struct tree_announcer *next; /* the session's */
};
/* On the session's task, in no operation; it must live until it is removed. */
void tree_session_add_announcer(struct tree_session *session, struct tree_announcer *announcer);
void tree_session_remove_announcer(struct tree_session *session, const struct tree_announcer *announcer);

/* ---- what others do for this process: set once by src/owner/ ---- */

/* One of several operations that go to one owner together. */
struct tree_forwarded {
    struct tree_exchange *exchange; /* NULL: a lookup of what follows */
    const void *key;
    size_t key_length;
    bool settled; /* a lookup: tree_lookup_settled_here */
    void *value;
    size_t *length; /* as tree_lookup's */
    int status;     /* out */
};

/*
 * Each is called in no operation of the index, and may suspend. `owner` is that of the row that the caller
 * met. They return what the operation came to at the owner; BANYAN_EFENCED: nothing was done, the owner
 * refused or cannot be reached; then `wait` is called, which returns 0 when it is worth looking at the table
 * again, or an error with a message that names the owner: BANYAN_ENET when the range could not be reached
 * within the time-out, counted from `since` (task_now of the operation's begin). `owner` is zeros for a range
 * that is MOVING.
 * `wait` and `pause` may do whole operations with the session, of any index: they fetch and change the map.
 */
struct tree_forward {
    int (*lookup)(void *context, struct tree_session *session, struct tree *tree, struct fabric_process owner,
                  const void *key, size_t key_length, bool settled, void *value, size_t *length);
    int (*exchange)(void *context, struct tree_session *session, struct tree *tree,
                    struct fabric_process owner, struct tree_exchange *exchange);
    int (*wait)(void *context, struct tree_session *session, struct tree *tree, struct fabric_process owner,
                uint64_t since);
    /* Several lookups and exchanges of one owner in as few messages as they fit into. Each item's status is
     * as above. Returns 0, or the error that kept all of them from being asked (then they are
     * BANYAN_EFENCED).
     */
    int (*many)(void *context, struct tree_session *session, struct tree *tree, struct fabric_process owner,
                struct tree_forwarded *items, uint32_t count);
    /* A part of a scan, as the owner delivers it (tree_scan_here): all of it is there before visit is called,
     * in key order, within the range. A visit that returns false ends it; then *end says nothing. */
    int (*scan)(void *context, struct tree_session *session, struct tree *tree, struct fabric_process owner,
                const struct tree_range *range, tree_visit_function *visit, void *visit_context,
                struct tree_scan_end *end);
    /* The owner moves a leaf of its own (tree_move_node with `here`). May be NULL: then it stays. */
    int (*move)(void *context, struct tree_session *session, struct tree *tree, struct fabric_process owner,
                struct tree_move *move);
    /* Rule O2: the read lease has lapsed, and this operation was answered from the cache, or from the pool in
     * another's range. 0: it is alive
     * again, or the right to the range is gone; the operation is done anew. */
    int (*pause)(void *context, struct tree_session *session, struct tree *tree);
};
void tree_compute_set_forward(struct tree_compute *compute, const struct tree_forward *forward,
                              void *context);

/* The number by which nodes and requests name the index: its entry in the catalogue and that entry's
 * generation. */
uint16_t tree_number(const struct tree *tree);
/* Whether memory nodes keep on disks what owners log, so that nothing else may be changed. Any thread. */
bool tree_wants_logs(const struct tree_compute *compute);
const char *tree_name(const struct tree *tree);

#endif
