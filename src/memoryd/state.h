/*
 * state.h - the daemon itself, its listeners and counters. For the files of memoryd/, and for its fuzzer.
 *
 * THREADS. The keeper (keeper.c) accepts connections and ends leases. Each loop (loop.h) is one I/O thread
 * with an engine and the connections that were given to it. They meet at the table of groups (group.h), which
 * a spin lock guards, and at a loop's inbox.
 */
#ifndef MEMORYD_STATE_H
#define MEMORYD_STATE_H

#include "base/atomic.h"
#include "base/thread.h"
#include "fabric/wire.h"
#include "memoryd/memoryd.h"
#include "memoryd/group.h"
#include "memoryd/staging.h"

/* One I/O thread writes them, any thread reads them: every field is loaded and stored relaxed, since no other
 * data depends on a count. */
struct memoryd_counts {
    uint64_t lists, commands, bytes_read, bytes_written;
};
static inline void memoryd_count(uint64_t *counter, uint64_t more)
{
    atomic_store_relaxed(counter, *counter + more);
}

struct memoryd_listener {
    struct net_address address;
    int fd;
};

struct memoryd_keeper {
    struct thread *thread;
    int epoll, wake;        /* wake: an eventfd */
    uint64_t awake_at;      /* when its sleep was to end, ns */
    uint64_t pause_until;   /* nothing is accepted before: the process has no descriptors left. 0: no pause */
    uint64_t complained_at; /* the last warning about connections that were turned away */
    uint64_t trim_at;       /* when memory goes back to the system again */
    unsigned next_loop;
};

struct memoryd_loop;
struct memoryd_nic;
struct memoryd {
    struct memory_node *node;
    const struct fabric_target *target;
    struct memoryd_nic *nic;      /* NULL: compute nodes send their lists over the stream */
    struct memoryd_disk *disk;    /* NULL: nothing is kept on one */
    struct memoryd_walks *walks;  /* NULL: no thread walks */
    struct memoryd_walks *merges; /* NULL: no thread is there for merging alone */
    struct net_tls *tls;
    uint8_t secret[NET_SECRET_MAX];
    size_t secret_length; /* 0: none wanted */
    uint32_t lease_ms_min, lease_ms_max;
    uint32_t connections_max;
    enum memory_engine engine;
    bool busy_poll;
    uint64_t instance, started_at;
    unsigned listener_count, loop_count;
    struct memoryd_listener *listeners;
    struct memoryd_loop *loops;
    struct memoryd_keeper keeper;
    struct memoryd_groups groups;
    struct memoryd_left left; /* staging areas */
    uint32_t connections;     /* atomic */
    uint32_t attaching;       /* atomic: I/O threads that wait until the kernel has made a queue pair */
    uint32_t stopping;        /* atomic */
    bool registered;          /* its services, with the node */
    bool started, joined;
};

/* What compute nodes ask about each other (processes.c). Its context is the daemon. */
extern const struct memory_service memoryd_processes_service;
/* PEERS, and the daemon's part of STATUS (status.c). Its context is the daemon. */
extern const struct memory_service memoryd_peers_service;

/* ---- keeper (keeper.c) ---- */

int memoryd_keeper_create(struct memoryd *daemon, struct error *error);
void memoryd_keeper_destroy(struct memoryd *daemon);
/* The thread's function: returns when the daemon stops. */
void memoryd_keeper_main(void *daemon);
/* Any thread: the keeper looks at groups and at `stopping` again. */
void memoryd_keeper_wake(struct memoryd *daemon);

#endif
