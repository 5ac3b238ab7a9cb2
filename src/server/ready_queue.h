/*
 * ready_queue.h - the connections of a thread that have requests to run, in the order in which they got
 * ready. On the thread.
 */
#ifndef SERVER_READY_QUEUE_H
#define SERVER_READY_QUEUE_H

#include "server/connection.h"

/* Queues the connection, and wakes a fiber, if there is something that a fiber can do for it. */
void ready_queue_offer(struct server_connection *connection);
/* The first; NULL: the queue is empty. */
struct server_connection *ready_queue_take(struct server_thread *thread);
/* Wakes an idle fiber, unless one is already on its way to the queue. */
void ready_queue_wake(struct server_thread *thread);

#endif
