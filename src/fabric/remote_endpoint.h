/*
 * remote_endpoint.h - an endpoint: a link to each memory node, and the worker or plain thread that owns it.
 *
 * An endpoint is bound to the thread that last posted through it. On a worker, messages gather while fibers
 * run; the turn hook sends them, and watches bring the answers. A plain thread does the same by itself in
 * poll(), one step at a time (remote_endpoint_pump).
 */
#ifndef FABRIC_REMOTE_ENDPOINT_H
#define FABRIC_REMOTE_ENDPOINT_H

#include <poll.h>

#include "fabric/remote_link.h"
#include "fabric/remote_peers.h"

#define REMOTE_INPUT_BYTES (UINT32_C(128) << 10)
/* How long a plain thread waits in poll() before it looks around. The heartbeat shuts a connection down that
 * is silent for too long, which ends the wait earlier. */
#define REMOTE_POLL_MS 1000

struct remote_endpoint {
    struct fabric_endpoint endpoint;
    struct worker_hook hook;
    struct worker *worker; /* that has the hook and the watches; NULL: none */
    struct remote_link *dirty;
    uint64_t runs;                /* atomic: odd while a list runs on a mapped pool */
    uint64_t seen_runs;           /* the reconnect's */
    uint8_t *input;               /* what was read last; answers are copied out at once */
    struct pollfd *polls;         /* two for each link: its stream, its NIC */
    uint64_t idle_since, spin_ns; /* NICs: since when nothing came while lists are under way; 0: not so */
    struct remote_endpoint_peers peers;
    struct remote_endpoint *next; /* of the fabric; under its lock */
    uint16_t count;               /* atomic: grows under the fabric's lock */
    struct remote_link links[];   /* [most] of the fabric; `count` of them are in use */
};

static inline uint16_t remote_endpoint_count(const struct remote_endpoint *endpoint)
{
    return atomic_load_acquire(&endpoint->count); /* acquire: the links are there */
}

static inline struct remote_endpoint *remote_endpoint_of_hook(struct worker_hook *hook)
{
    return (struct remote_endpoint *)((char *)hook - offsetof(struct remote_endpoint, hook));
}

struct fabric_endpoint *remote_endpoint_open(struct fabric *fabric, struct error *error);
void remote_endpoint_close(struct fabric_endpoint *base);

/* Makes the endpoint the calling thread's: its worker's, or a plain thread's. */
void remote_endpoint_bind(struct remote_endpoint *endpoint);
void remote_endpoint_unbind(struct remote_endpoint *endpoint);

/* The turn hook: sends what has gathered and polls the NICs. */
void remote_endpoint_turn(struct worker_hook *hook);
/* A plain thread's: sends, receives, and waits once, for at most timeout_ms. */
void remote_endpoint_pump(struct remote_endpoint *endpoint, int timeout_ms);
/* Waits until nothing of `wait` is left. */
void remote_endpoint_wait(struct remote_endpoint *endpoint, struct remote_wait *wait);

#endif
