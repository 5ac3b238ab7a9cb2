/*
 * world_kept_book.h - the book of world_kept.h as its two files know it: world_kept.c, which keeps it, and
 * world_kept_judge.c.
 */
#ifndef SWARM_WORLD_KEPT_BOOK_H
#define SWARM_WORLD_KEPT_BOOK_H

#include "format/record.h"
#include "swarm/world_kept.h"
#include "tree/logging.h"

#define KEPT_UNKNOWN 1          /* under way, or it may have been done */
#define KEPT_NOBODYS UINT64_MAX /* a value that cannot be read */

struct kept_change {
    uint64_t key, value;   /* value 0: it was deleted */
    uint64_t added, ended; /* ended 0: it is under way */
    uint64_t number;       /* from 1, in the order of changes */
    int status;            /* of its commit: 0, an error after which nothing was done, KEPT_UNKNOWN */
    uint16_t node;         /* whose stream has got it */
    bool again;            /* nobody's write: what was doubtful is logged once more */
    bool record, apart;    /* the value is in a record; of which parts lie on other memory nodes */
    bool stood, safe;      /* the record stood when the round under way began; a round that went well */
    struct format_reference reference; /* of the record */
    const struct kept_watch *watch;    /* of the process that has logged it */
    uint64_t drawn; /* the log's greatest sequence when its commit had ended: not below the change's */
    bool brought; /* its log keeps two copies, and has carried all records by then, and brought all pieces */
    bool twice;   /* no frame of the log had one copy by then; of a record `brought` too */
};

struct kept_flight {
    const struct tree_logged *logged;
    size_t change;
};

struct kept_rounds {
    uint64_t *began; /* owned: of those that went well, ascending */
    size_t count, capacity;
    size_t looked; /* changes up to here need not be looked at any more: records */
};

struct kept_calls {
    uint64_t epochs[SUBJECT_MANY_MAX]; /* of the task's call under way */
};

/* An operation of a task's history that was in one owner's logged row from its begin to its end. */
struct kept_sure {
    unsigned task;
    size_t place;
};

struct kept_watch {
    struct kept_watch *next;
    struct world_kept *kept;
    struct tree_log log; /* the real one */
    void *context;
    const struct log *counts; /* the same, for its statistics */
    struct fabric_process process;
    bool copies;   /* it keeps two */
    uint16_t node; /* of the frame that is open */
};

struct world_kept {
    struct world *world;
    struct kept_change *changes; /* owned, as the others */
    size_t change_count, change_capacity;
    struct kept_flight *flights;
    size_t flight_count, flight_capacity;
    struct kept_sure *sure;
    size_t sure_count, sure_capacity;
    struct kept_calls *calls; /* by task */
    struct kept_rounds rounds[WORLD_MEMORY_MAX];
    struct kept_watch *watches;
    uint8_t block[FORMAT_RECORD_HEADER_MAX + FORMAT_RECORD_BLOCK_MAX], value[DRIVER_RECORD_MAX];
};

#endif
