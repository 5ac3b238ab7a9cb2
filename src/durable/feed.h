/*
 * feed.h - which keys of a store have changed since they were last copied to a disk: names, and the values
 * that they got where these are short and their order is known (rules K1 and K8,
 * docs/internals/durability.md).
 *
 * Each thread that changes keys has a lane, and each of its tasks a writer. A leader takes all lanes in
 * passes (keeper.h), which are numbered from 1: the keeper's own task, or one that would else wait for it.
 * There is one leader at a time (K7). A key that is marked before a pass begins is in that pass or was in an
 * earlier one. Of a name the keeper reads the value then: it is the one that the mark was made for, or a
 * newer one. A value that came with its name it need not read (K8).
 *
 * A mark copies the key, and a short value, into its lane under a lock that only the keeper contends for.
 * Memory: two buffers for each lane. Where a lane is full, or where the disk is further behind than it may
 * be, a mark waits, so that writers go no faster than the disk.
 */
#ifndef DURABLE_FEED_H
#define DURABLE_FEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "base/error.h"
#include "store/store.h"

struct feed;

struct feed_options {
    unsigned lanes;
    uint32_t lane_bytes; /* of each buffer; 0: 4 MiB. At least the longest entry of a name */
    /* A mark waits while a change that is older than this is not on the disk; 0: it never does. ns */
    uint64_t late_ns;
    uint64_t wait_ns; /* feed_error says BANYAN_EBUSY while one is older than this; 0: 5 s */
};
int feed_create(struct feed **feed, const struct feed_options *options, struct error *error);
/* No task waits or marks any more. NULL: does nothing. */
void feed_destroy(struct feed *feed);

/* ---- tasks that change keys ---- */

struct feed_writer {
    struct feed *feed;
    unsigned lane;
    uint64_t ticket; /* all that was marked is safe when this pass is; 0: nothing was marked */
};
/* A store_changed_function (store.h); its context is a feed_writer. May suspend: for as long as the disk has
 * no room, if need be. Where it has failed for ever nothing is noted. */
void feed_mark(void *writer, const void *key, size_t length);
/* A store_placed_function, with the same context: of one key the calls come in the order of its changes. Does
 * not suspend. False: there is no room, nothing is noted, and feed_mark has to be called. */
bool feed_mark_value(void *writer, const void *key, size_t length, const struct store_value *value);
/* Any thread, when the server ends: from now on a mark for which the disk has no room is given up. */
void feed_end(struct feed *feed);
/* Whether a mark was given up, so that the store holds a change that no pass has copied. Called when no task
 * marks any more. */
bool feed_missed(const struct feed *feed);
/* Suspends until that pass, and its sync, are through: 0. Else as feed_error. */
int feed_wait(struct feed *feed, uint64_t ticket, struct error *error);
/* The ticket of all that was marked by any task before the call. */
uint64_t feed_ticket(struct feed *feed);
/* Whether that pass is safe. Any thread. */
bool feed_safe(const struct feed *feed, uint64_t ticket);
/* Passes are made up to that one, as if a task waited for it. Any thread; does not wait. */
void feed_hurry(struct feed *feed, uint64_t ticket);
/* Whether the disk takes changes. Not 0: it has failed, for ever (BANYAN_EUNKNOWN), has no room at the moment
 * (BANYAN_ENOSPC), or is far behind (BANYAN_EBUSY); no change may begin. Any thread; some nanoseconds where
 * all is well. */
int feed_error(struct feed *feed, struct error *error);

/* ---- the leader of passes (K7) ---- */

/* Any task. True: it leads, and may make passes, until it calls feed_lead_end. False: another one leads, or
 * the keeper wants to. Does not wait. */
bool feed_lead(struct feed *feed);
/* The keeper's task: suspends until it leads. */
void feed_lead_keeper(struct feed *feed);
/* The leader, between two passes. If a task waits for a pass that was not made, the keeper is woken. */
void feed_lead_end(struct feed *feed);

/* ---- the keeper: one task ---- */

/* Sleeps until a task waits for a pass, a lane is half full, feed_wake is called, or the time is over (0: it
 * never is). May return earlier. A ring while the keeper waits in feed_lead_keeper ends that wait, and not
 * the next sleep: the keeper looks for its cause behind feed_lead_keeper. */
void feed_sleep(struct feed *feed, uint64_t most_ns);
/* Any thread: wakes the keeper, which does not sleep from now on. For its end, since a ring alone may be
 * taken by feed_lead_keeper. */
void feed_stop(struct feed *feed);
/* Any thread. */
void feed_wake(struct feed *feed);
/* Whether a task waits for a pass. Any thread. */
bool feed_wanted(struct feed *feed);
/* Bytes of keys that are marked, and not taken. Any thread. */
uint64_t feed_marked(struct feed *feed);
/* Sleeps until as many tasks wait as waited for the last pass, or the time is over: clients that were
 * answered then ask again soon, and one sync serves all of them (group commit). Returns how many wait. */
unsigned feed_gather(struct feed *feed, uint64_t most_ns);

/* ---- the leader ---- */

/* Begins a pass, and returns its number: takes what all lanes have at one instant. */
uint64_t feed_begin(struct feed *feed);
/* What the pass has of the lane: the leader's until the next pass begins. Entries stand one behind the other,
 * the older ones first. */
struct feed_taken {
    uint8_t *bytes;
    uint32_t used, count;
    uint32_t doubtful; /* its first bytes: the pass before may have read what is newer (K8) */
};
struct feed_taken feed_taken(const struct feed *feed, unsigned lane);
/* The pass has read values of the store, and will read no more: what was marked since it began is doubtful to
 * the next one. */
void feed_doubt(struct feed *feed);

/*
 * An entry: 0 bytes of the key u8 | 1 flags u8 | 2 bytes of the value u16 | 4 with FEED_EXPIRES: when it
 * expires, ms since 1970, u64 | the key, and the value. In the machine's byte order: it leaves no process.
 */
#define FEED_ENTRY_HEADER 4u
#define FEED_VALUE_MAX    256u /* longer ones are read by the pass: a lane has room for few of them */
enum feed_flags {
    FEED_VALUE = 1, /* it has the value; else the value is to be read */
    FEED_EXPIRES = 2,
    FEED_READ = 4, /* the leader's: the value is to be read though it is there */
    FEED_GONE = 8, /* the leader's: another entry stands for the key */
};
static inline uint32_t feed_entry_key(const uint8_t *entry) /* where it stands in the entry */
{
    return FEED_ENTRY_HEADER + (entry[1] & FEED_EXPIRES ? 8u : 0u);
}
static inline uint32_t feed_entry_value(const uint8_t *entry) /* its length */
{
    uint16_t length;
    memcpy(&length, entry + 2, sizeof length);
    return length;
}
static inline uint32_t feed_entry_bytes(const uint8_t *entry)
{
    return feed_entry_key(entry) + entry[0] + feed_entry_value(entry);
}
/* The entry of a name: FEED_ENTRY_HEADER bytes more than the name has. Returns them all. */
uint32_t feed_entry_name(uint8_t *entry, const void *key, size_t length);
unsigned feed_lanes(const struct feed *feed);
/* Says that the disk has taken a part of a pass: it may be slow, but it does not stand still. */
void feed_progress(struct feed *feed);
/* Says how long a pass took. The room of the lanes follows from it, so that no pass takes long, however large
 * the values are. */
void feed_pace(struct feed *feed, uint64_t took_ns);
/* All of the pass is on the disk. */
void feed_done(struct feed *feed, uint64_t pass);
/* From now on feed_error says so. BANYAN_ENOSPC ends with the next feed_done. */
void feed_fail(struct feed *feed, const struct error *error);

struct feed_stats {
    uint64_t marks, passes, safe; /* safe: the last pass that is */
    uint64_t waits, wait_ns;      /* of marks */
    uint64_t led;                 /* times that another task than the keeper led */
    uint64_t behind_ns;           /* the oldest change that is not on the disk may be so old; 0: all are */
};
/* Any thread. */
void feed_stats(struct feed *feed, struct feed_stats *stats);

#endif
