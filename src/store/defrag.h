/*
 * defrag.h - emptying of sparse chunks in the background: a walk over the index rewrites every record, piece
 * and key block that lies in a chunk which a memory node keeps back for that (pool/evacuate.h), so that what
 * they leave serves values of any size, and goes back to the system. Redis calls it active defragmentation.
 *
 * Called by the server (server/defrag.c), in steps, by one task at a time; any number of compute nodes may do
 * it at once, since a memory node gives each chunk to one of them. All other operations go on meanwhile: a
 * move is an exchange of the slot that holds only if the slot still has the bytes that were moved (S5).
 *
 * COST of a step: the scan of its entries; for each record in pieces one round trip for its header; for each
 * record moved one to read it, one to write it, two for the exchange. Memory: the longest value moved.
 */
#ifndef STORE_DEFRAG_H
#define STORE_DEFRAG_H

#include "pool/evacuate.h"
#include "store/store.h"

/* Counters that only grow, with the meanings of Redis's active_defrag_*. */
struct store_defrag_counts {
    uint64_t passes;
    uint64_t entries;      /* looked at */
    uint64_t hits, misses; /* blocks moved; not moved, since their key was changed meanwhile, or keys that
                              found no room or whose owner did not answer */
    uint64_t key_hits, key_misses; /* keys of which something was moved; keys of which nothing had to be */
    uint64_t bytes;                /* of the blocks moved */
    uint64_t unanswered; /* of the misses: values whose leaf's owner, or a memory node, did not answer; the
                            next pass finds them */
    uint64_t unknown;    /* of these: they are here or there, and blocks may be lost (S6) */
};

/*
 * Sparse leaves are merged by a walk of its own (tree_merge_step), so that the tree gives nodes back: nodes
 * are never moved.
 */
struct store_merging {
    struct tree_merge_cursor cursor;
    uint64_t leaves, merges, walks; /* so far */
};
/* Looks at about so many leaves. *ended: the walk has come to the end of the index, and begins anew with the
 * next step. */
int store_merge_step(struct store_session *session, struct store_merging *merging, uint32_t leaves,
                     bool *ended);

/* Keys that find no room in a pass before it is over. One alone says little: the holes may be too small for
 * its blocks, and what smaller ones leave behind makes larger holes. */
#define STORE_DEFRAG_REFUSED_MAX 1024u

/* So many times in a row a pass is not answered, by owners of leaves or memory nodes, before it is over. Each
 * time may take as long as an operation waits, and what does not answer is mostly one owner, which has the
 * next key too. */
#define STORE_DEFRAG_UNANSWERED_MAX 8u

struct store_defrag {
    struct pool_evacuation *evacuation; /* NULL: nothing is being emptied */
    uint8_t cursor[FORMAT_KEY_MAX];     /* the last key looked at; cursor_length 0: a pass begins */
    size_t cursor_length;
    bool
        cut; /* the pass under way has not tried everything: it met an error that another pass may not meet */
    uint32_t refused;    /* its keys that found no room to move to */
    uint32_t unanswered; /* how often in a row it was not answered; the caller's, from pass to pass */
    uint64_t renewed_ns;
    struct store_defrag_counts counts;
    /* For tests: the blocks to move, instead of those that the evacuation names. Of a key's blocks it answers
     * alike, however often it is asked. */
    bool (*chosen)(void *context, gaddr block);
    void *chosen_context;
};

/* Asks the memory nodes what is to be emptied. *any false: nothing. Else a pass has begun. */
int store_defrag_begin(struct store_session *session, struct store_defrag *defrag, bool *any);
/* Looks at up to `entries` entries from the cursor on, and moves what lies in chunks being emptied. *done:
 * the pass has ended. BANYAN_ENOSPC: there is no room to move to, the pass is over too, before its time (some
 * keys may find no room while others, with smaller blocks, do). BANYAN_EUNKNOWN, BANYAN_ENET,
 * BANYAN_ETIMEOUT: owners of leaves, or memory nodes, have not answered so often in a row that the pass is
 * over too. After another error the pass may go on; with BANYAN_ECORRUPT it has passed over a damaged record.
 * Chunks that a complete pass could not empty are left alone until they have changed. */
int store_defrag_step(struct store_session *session, struct store_defrag *defrag, uint32_t entries,
                      bool *done);
/* Cuts the pass short: gives the chunks back, emptied or not, and a later pass may try them again. Nothing,
 * where no pass is under way. */
void store_defrag_end(struct store_session *session, struct store_defrag *defrag);

#endif
