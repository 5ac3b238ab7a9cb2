/*
 * recording.h - records of a run: lines of text about what happened when, in memory shared between the run's
 * process, where the recorder (recorder.h) writes them, and the one that reads them. What was recorded is
 * there however the run ends. The newest RECORDS_MAX records stand; older ones give way.
 */
#ifndef SWARM_RECORDING_H
#define SWARM_RECORDING_H

#include "swarm/run.h"

#define RECORD_TEXT         92u
#define RECORDS_MAX         (UINT64_C(1) << 18) /* 32 MiB */
#define RECORDING_NAMES     400u
#define RECORDING_STUCK     100u /* times that a lock is found held before it counts as never freed */
#define RECORDING_LANE_NONE UINT32_MAX

enum record_kind {
    RECORD_BEGIN,
    RECORD_END,
    RECORD_POSTED,
    RECORD_EFFECT,
    RECORD_RETURNED,
    RECORD_EVENT, /* of the cluster */
};
enum record_concern {
    RECORD_ASIDE,   /* it has nothing to do with the focus */
    RECORD_CONTEXT, /* shown where its operation is */
    RECORD_CHOOSES, /* its operation is to be shown */
};

struct record {
    uint64_t time_ns;
    uint32_t lane; /* number of a task of the world */
    uint32_t act;  /* the operation it is part of, counted from 1; 0: none */
    uint8_t kind, concern;
    uint16_t name; /* 1 more than the place in `names` of the node that the text is about; 0: none */
    char text[RECORD_TEXT];
};

/* The key, node or lane that is looked at closely: every field that is set. */
struct recorder_focus {
    bool has_key, has_node, has_lane;
    uint64_t key;
    gaddr node; /* a block, or a lock word */
    uint32_t lane;
};

/* Of the task that ran last. */
struct recorder_last {
    uint32_t lane;
    bool busy, has_key; /* an operation is under way; on this one key */
    uint64_t key;
};

struct recorder;
struct recording {
    bool texts;  /* records are kept, not only the fields below */
    bool asides; /* also those that have nothing to do with the focus */
    struct recorder_focus focus;
    const struct swarm_watch *more; /* watches as well; NULL: none */
    struct recorder *recorder;      /* of the run's process */
    /* results */
    uint64_t count; /* records written, of which the last RECORDS_MAX are there */
    uint64_t blamed;
    struct history_op culprit;
    char failure[sizeof((struct error *)0)->text];
    struct recorder_last last;
    gaddr contended; /* a lock that was found held again and again, so many times, and never free since */
    uint64_t contended_times;
    uint32_t name_count;
    struct {
        gaddr address, lock;
        char what[12];
    } names[RECORDING_NAMES];
    struct record records[RECORDS_MAX];
};

/* NULL: no memory. Takes memory as it is filled. */
struct recording *recording_create(void);
void recording_destroy(struct recording *recording);
/* Forgets all records and results. */
void recording_clear(struct recording *recording);
/* The short name of names[place]. */
void recording_label(uint32_t place, char text[8]);

/* ---- for the recorder ---- */

/* The next record, without text yet. */
struct record *recording_add(struct recording *recording, enum record_kind kind, uint64_t time);
/* The latest record is not wanted: the next takes its place. */
void recording_drop_aside(struct recording *recording, const struct record *record);
/* Appends to the record's text, which is cut where it is full. */
void record_add(struct record *record, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The place of the first named node that this is the lock of; name_count: there is none. */
uint32_t recording_find_lock(const struct recording *recording, gaddr lock);

#endif
