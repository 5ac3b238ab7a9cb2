/*
 * cut.h - a consistent cut of a store: what all keys of a range held at one moment, read bit by bit while
 * writers go on. Rules B1 to B7, docs/internals/cuts.md.
 *
 * Called by the RESP server (commands/cut.c). It holds where every change of the range is made through
 * sessions of this struct store: where this process has the index to itself, for which the caller answers, or
 * owns the range among others, which is looked at (store_cut_open_owned). Bulk loads and drops of the index
 * are not seen, and must not run while a cut is open; drops by other processes end a cut of what was owned.
 *
 * COST. Opening holds all writers of the store for as long as the longest change under way lasts, at most
 * some milliseconds at a time. While a cut is open the first change of each key that it has not passed reads
 * the key once more, and copies its value into memory. With no cut open a change costs a nanosecond more.
 */
#ifndef STORE_CUT_H
#define STORE_CUT_H

#include "fabric/peers.h"
#include "store/store.h"

#define STORE_CUTS_MAX       4u /* open at the same time */
#define STORE_CUT_MEMORY_MAX (UINT64_C(256) << 20)

struct store_cut;

/* The moment lies between the call's begin and its return. Copies the range, which must not be in reverse;
 * its limit is not used. BANYAN_EBUSY: too many are open, or the changes under way would not end, so that
 * writers would have been held for too long. Suspends. */
int store_cut_open(struct store_session *session, const struct tree_range *range, struct store_cut **cut);
/* The same where other processes change keys of the index too: of a range that this process owns now, as part
 * of one range of the map. BANYAN_EFENCED: it does not. Writers are held for up to 40 ms at once, since a
 * change under way may wait for a log. Changes that wait for another process hold up nothing (B2). */
int store_cut_open_owned(struct store_session *session, const struct tree_range *range,
                         struct store_cut **cut);
/* Visits the next entries in key order, about as many or as many bytes as were asked for, at least one unless
 * there are none; *ended: those were the last. One task at a time for each cut, with any session of the store
 * but one that is in a call. Visited entries are gone from the cut, also if the visit returns false, which
 * ends the call. BANYAN_ENOMEM: the values that had to be kept would have exceeded store_set_cut_memory_max,
 * or the machine's memory; BANYAN_EFENCED: the range has not been this process's all the time since the cut
 * was opened; BANYAN_ECORRUPT and others: a value could not be read before it was changed. What was visited
 * in a call that fails does not count. From a failure on the cut gives nothing more, and keeps no memory but
 * itself; the message is the session's. */
int store_cut_next(struct store_session *session, struct store_cut *cut, uint64_t entries, uint64_t bytes,
                   store_visit_function *visit, void *context, bool *ended);
/* Any thread, at any time but during store_cut_next; does not suspend. NULL: does nothing. */
void store_cut_close(struct store_cut *cut);
/* Any thread, from time to time: frees a piece, some hundred microseconds' work, of what cuts had saved that
 * are over by now. False: nothing is left. */
bool store_cuts_tidy(struct store *store);

/* What this process could open a cut of by store_cut_open_owned, and to whom the rest belongs: visits the
 * ranges that the index is divided into, in key order, as this process knows them now. The visit does not
 * suspend. `to` NULL: to the end. */
enum store_share { STORE_SHARE_NOBODYS, STORE_SHARE_OURS, STORE_SHARE_OTHERS, STORE_SHARE_MOVING };
struct store_portion {
    const void *from, *to; /* without `to` itself */
    size_t from_length, to_length;
    enum store_share share;
    struct fabric_process owner; /* OURS, OTHERS */
};
typedef void store_portion_function(void *context, const struct store_portion *part);
void store_portions(struct store_session *session, store_portion_function *visit, void *context);

/* Limits the bytes of memory that all cuts of the store together take; default: STORE_CUT_MEMORY_MAX. */
void store_set_cut_memory_max(struct store *store, uint64_t bytes);

struct store_cut_stats {
    uint64_t open;            /* cuts, now */
    uint64_t memory;          /* bytes that they hold, now */
    uint64_t memory_max;      /* that they may hold */
    uint64_t opened, failed;  /* since the store was opened */
    uint64_t saved;           /* values kept for a cut, since then */
    uint64_t held_longest_ns; /* the longest time for which writers were held */
};
/* Any thread. */
void store_cut_stats(const struct store *store, struct store_cut_stats *stats);

#endif
