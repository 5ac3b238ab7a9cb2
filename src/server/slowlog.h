/*
 * slowlog.h - the commands that took longest to run, as SLOWLOG shows them: what Redis's slow log is, with
 * its settings (slowlog-log-slower-than, slowlog-max-len), trimmed and redacted as there.
 *
 * One log for the whole server. Any thread; entries are made outside of the lock, which is held for some
 * instructions. Bounded: at most SLOWLOG_LENGTH_MAX entries of a few KiB each.
 */
#ifndef SERVER_SLOWLOG_H
#define SERVER_SLOWLOG_H

#include "base/atomic.h"
#include "server/command.h"

#define SLOWLOG_LENGTH_MAX    10000u
#define SLOWLOG_ARGUMENTS_MAX 32u
#define SLOWLOG_BYTES_MAX     128u /* of an argument */

struct server;

/* An argument, or what stands for it. */
struct slowlog_text {
    uint32_t length;
    const char *bytes; /* in the entry */
};
struct slowlog_entry {
    struct slowlog_entry *older; /* under the lock */
    uint32_t references;         /* under the lock: the log's, and those of who reads it */
    uint64_t id, seconds, microseconds;
    uint32_t count;
    struct slowlog_text address, name, arguments[SLOWLOG_ARGUMENTS_MAX];
};

struct server_slowlog {
    /* Relaxed: settings, which order nothing. */
    int64_t slower_than; /* microseconds; negative: none is logged */
    uint64_t length_max;
    struct spinlock lock; /* guards what follows */
    struct slowlog_entry *newest;
    uint64_t length, next_id;
};

void slowlog_init(struct server_slowlog *log);
void slowlog_destroy(struct server_slowlog *log);
/* Whether a command that took so long is to be logged. */
static inline bool slowlog_wants(const struct server_slowlog *log, uint64_t nanoseconds)
{
    const int64_t slower_than = __atomic_load_n(&log->slower_than, __ATOMIC_RELAXED);
    return slower_than >= 0 && nanoseconds / 1000 >= (uint64_t)slower_than;
}
/* After a command that is to be. Without memory for an entry, it is left out. */
void slowlog_note(struct server *server, const struct server_call *call, uint64_t nanoseconds);
/* Takes up to `most` entries, the newest first, which stay valid until they are given back. */
size_t slowlog_take(struct server_slowlog *log, struct slowlog_entry **entries, size_t most);
void slowlog_give(struct server_slowlog *log, struct slowlog_entry **entries, size_t count);
uint64_t slowlog_length(struct server_slowlog *log);
/* Drops all entries beyond the newest `keep`. */
void slowlog_trim(struct server_slowlog *log, uint64_t keep);

#endif
