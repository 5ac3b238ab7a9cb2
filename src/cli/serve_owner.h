/*
 * serve_owner.h - the part of `banyan compute` in the ownership of ranges: joining, what is logged of
 * transfers, and giving the ranges away before the end.
 *
 * Calls from the main thread, but for serve_owner_tick (the server's first thread) and serve_owner_leave (the
 * signals' thread).
 */
#ifndef CLI_SERVE_OWNER_H
#define CLI_SERVE_OWNER_H

#include "base/thread.h"
#include "cli/serve_settings.h"
#include "owner/process.h"

struct server;

struct serve_owner {
    struct owner_process *process; /* NULL: no cluster */
    const char *mute;              /* why other compute nodes cannot call this one; NULL: they can */
    bool wants;                    /* a share of the ranges */
    struct tree_compute *compute;
    struct server *server;
    struct thread *joiner; /* takes this process's share while the server serves */
    struct thread *leaver; /* gives the ranges away while the server still serves */
    bool terminal, left;
    uint32_t leaving;        /* release/acquire: with it begun_ns */
    uint64_t begun_ns;       /* of leaving */
    uint64_t left_to_tell;   /* the tick's: ranges when progress was last told */
    struct owner_stats told; /* the tick's: as of the last lines of the log */
    bool late;               /* the tick's: the time limit has passed */
};

/* Joins the cluster. Costs round trips. */
int serve_owner_open(struct serve_owner *owner, struct tree_compute *compute,
                     const struct serve_settings *settings, struct error *error);
/* The server has attached its index: takes this process's share on a thread of its own, if the settings want
 * that and others can call it. Returns at once, since the server can serve without: over a slow network it
 * takes seconds. Trouble is logged. */
void serve_owner_start(struct serve_owner *owner, struct server *server);
/* Ten times a second: a line in the log for each change, progress of the end, and the limit of its time. */
void serve_owner_tick(void *owner);
/* The process is asked to end: no more new clients, then the ranges go to others while clients are served,
 * then the server stops. Returns at once. */
void serve_owner_leave(struct serve_owner *owner, struct server *server);
/* The server's threads have returned. Gives the ranges away if that was not done. */
void serve_owner_end(struct serve_owner *owner);
/* After server_destroy. */
void serve_owner_close(struct serve_owner *owner);

#endif
