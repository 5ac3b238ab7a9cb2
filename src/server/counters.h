/*
 * counters.h - what a thread of the server counts. A counter is written by its thread alone, with relaxed
 * stores, and any thread may load it, relaxed: each counter is exact by itself, but two of them read together
 * may be of different moments, so no decision may rest on their relation.
 */
#ifndef SERVER_COUNTERS_H
#define SERVER_COUNTERS_H

#include "base/atomic.h"
#include "server/server.h"

struct server_command_counter {
    uint64_t calls, nanoseconds, failed;
};

/* By the thread that owns the counter alone. */
static inline void counter_add(uint64_t *counter, uint64_t by)
{
    atomic_store_relaxed(counter, atomic_load_relaxed(counter) + by);
}

/* ---- stats.c ---- */

/* Adds up all threads' counters. Any thread. */
void server_counters_sum(const struct server *server, struct server_counters *sum);
/* Sets those to zero that only grow. From a fiber: it visits every thread. */
void server_counters_reset(struct server *server);
/* Buffers of all clients together. Any thread. */
uint64_t server_client_memory(const struct server *server);
/* Makes every thread publish its figures. From a fiber: it visits every thread. */
void server_refresh(struct server *server);

struct server_thread;
/* On the thread: publishes what its sessions have counted. */
void server_thread_publish(struct server_thread *thread);
/* On thread 0, about once a second: samples the commands per second. */
void server_sample_rate(struct server *server, uint64_t now);

#endif
