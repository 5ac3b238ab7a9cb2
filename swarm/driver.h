/*
 * driver.h - operations on a subject, each with its entry in the history, for one task: what it does and
 * expects is the same on a simulated cluster and on real processes.
 *
 * Keys are numbers, turned into bytes as the shape has it; values begin with a number that the history gives
 * out, and the rest of their bytes and their length follow from it, so that a torn, mixed or foreign value is
 * recognized. A driver belongs to one task. It reports a failure through `fail`, once or more; its
 * caller stops then.
 */
#ifndef SWARM_DRIVER_H
#define SWARM_DRIVER_H

#include "base/random.h"
#include "swarm/history.h"
#include "swarm/subject.h"

#define DRIVER_RECORD_MAX 72000u /* bytes of a record's value: some need pieces */

struct driver_shape {
    bool fixed_keys; /* of key_bytes bytes; else a prefix, the number as text, and a tail */
    bool long_keys;  /* a third of variable keys have up to key_bytes bytes */
    uint8_t key_bytes;
    uint8_t value_bytes; /* of values, or at most with value_variable */
    bool value_variable;
    bool records; /* values of any length to DRIVER_RECORD_MAX instead */
};

size_t driver_key(const struct driver_shape *shape, uint64_t number, uint8_t key[FORMAT_KEY_MAX]);
/* The number back; UINT64_MAX if these bytes are no key of driver_key. */
uint64_t driver_key_number(const struct driver_shape *shape, const uint8_t *key, size_t length);
size_t driver_value(const struct driver_shape *shape, uint64_t number, uint8_t *value);
/* The number back; 0 if the bytes do not hold together. */
uint64_t driver_value_number(const struct driver_shape *shape, const uint8_t *value, size_t length);

/* What an onlooker is shown of a driver (recorder.h). */
enum driver_step { DRIVER_BEGINS, DRIVER_ENDS };
struct driver_scan;
struct driver_sight {
    enum driver_step step;
    const struct history_op
        *ops; /* in the history: one, or those of many keys at once; of a scan the first */
    size_t count;
    const struct driver_scan *scan; /* NULL: it is no scan */
    int status;                     /* DRIVER_ENDS: of one operation or a scan */
};

/* Shared by several drivers. */
struct driver_setting {
    struct driver_shape shape;
    struct history *history;
    bool accept_full;     /* BANYAN_ENOSPC is no failure: the operation had no effect */
    bool accept_refusals; /* the same, of operations that began before calm_ns */
    uint64_t pause_ns;    /* after an operation that could not be done */
    uint64_t calm_ns; /* faults stopped then (task_now); 0: not yet. Later operations must not take long */
    uint64_t patience_ns; /* longest wait of an operation from then on; 0: no limit */
    int failed;           /* not 0: a failure; all drivers stop. Relaxed */
    uint64_t blamed;      /* 1 more than the key that the first failure is about; 0: no key. Relaxed */
    void (*fail)(void *context, int code, const char *text);
    /* Connections have been lost: BANYAN_ENET and BANYAN_EUNKNOWN are no failures. */
    bool (*lossy)(void *context);
    void *context;
    /* Called at the beginning and end of operations; it must change nothing. NULL: no onlooker. */
    void (*look)(void *looker, const struct driver_sight *sight);
    void *looker;
};

struct driver {
    struct driver_setting *setting;
    const struct subject_ops *subject;
    void *session;
    struct random random;
    struct history_log *log;
    uint8_t *room;        /* owned: for values written, expected and read */
    uint64_t unreachable; /* operations that a lost connection kept from being done */
    uint64_t unknown;     /* operations of unknown outcome for the same reason */
    uint64_t refused;     /* operations that BANYAN_ENOSPC met */
    uint64_t longest_ns;  /* wait of an operation after calm_ns */
};

/* Aborts where this process has no memory. */
void driver_init(struct driver *driver, struct driver_setting *setting, const struct subject_ops *subject,
                 void *session, struct history_log *log, uint64_t seed);
void driver_free(struct driver *driver);
static inline bool driver_stopped(const struct driver *driver)
{
    /* Relaxed: to stop some operations later does no harm. */
    return __atomic_load_n(&driver->setting->failed, __ATOMIC_RELAXED) != 0;
}
/* The next failure is about this key. */
void driver_blame(struct driver *driver, uint64_t key);
/* Returns code. */
int driver_fail(struct driver *driver, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One operation. Fails on a status that it cannot explain. Returns the subject's status. */
int driver_operate(struct driver *driver, enum history_kind kind, uint64_t key, uint64_t expected);
/* Different keys at once, at most SUBJECT_MANY_MAX: reads, or writes of new values. */
void driver_many(struct driver *driver, bool writes, const uint64_t *keys, size_t count);

#define DRIVER_SCAN_MAX 160u
struct driver_scan {
    uint64_t low, high; /* keys [low, high), at most DRIVER_SCAN_MAX */
    uint64_t limit;     /* 0: none */
    bool reverse;
    /* After it: */
    uint64_t from, to;                /* the keys it spoke about: all, or up to where the limit stopped it */
    uint64_t values[DRIVER_SCAN_MAX]; /* by key - low; 0: not there */
};
/* Recorded as a read of every key that it spoke about, which happened some time during the scan: so a key
 * that was there throughout must have been met, and none that was never there. Order and bounds are judged at
 * once. False if it failed, and told nothing. */
bool driver_scan(struct driver *driver, struct driver_scan *scan);
/* Moves what belongs to some keys from this one on to other blocks, where the subject can: no answer may
 * change. */
void driver_move(struct driver *driver, uint64_t key);
/* A step of the walk that merges sparse leaves. It changes nothing that a history tells. */
void driver_merge(struct driver *driver);
/* Moves the node that holds the key, a leaf or one above it, to another memory node: no answer may change. */
void driver_move_node(struct driver *driver, uint64_t key);
/* Empties a memory node, or evens all of them out: no answer may change. */
void driver_drain(struct driver *driver, uint64_t dice);
/* A key of the subject; UINT64_MAX: none, or it could not be asked. */
uint64_t driver_sample(struct driver *driver);

#endif
