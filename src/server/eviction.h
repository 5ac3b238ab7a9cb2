/*
 * eviction.h - the limit on the buffers of all clients together (client-memory-max): the largest are closed.
 *
 * Each thread closes its own connections, and asks another thread to do so if the largest connection is
 * there. Until that thread has done it, memory may exceed the limit by a quarter. On the thread of the
 * connection.
 */
#ifndef SERVER_EVICTION_H
#define SERVER_EVICTION_H

#include "server/command.h"
#include "server/connection.h"

/* Bytes of the connection's buffers, and of the command that it runs (connection_reserve). */
uint64_t connection_memory(const struct server_connection *connection);
/* A buffer of the connection grows, so that all of its buffers have `bytes`: raises thread.largest. */
void eviction_grown(const struct server_connection *connection, uint64_t bytes);
/* Closes this thread's largest connections until all clients' memory is within its limit, or asks the thread
 * that has a larger one. May close the caller's connection. */
void evict(struct server_thread *thread);
/* Makes room for `more` bytes of this connection, at the expense of larger ones. False: there are none. */
bool eviction_make_room(struct server_connection *connection, uint64_t more);
/* server_call.reserve of commands that a connection runs. */
bool connection_reserve(struct server_call *call, size_t from, size_t to);

#endif
