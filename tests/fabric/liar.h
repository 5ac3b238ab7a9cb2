/*
 * liar.h - a listener whose connections a test's own function serves, each on a thread: for memory nodes that
 * say what they should not. Whatever it needs and does not get aborts the test.
 */
#ifndef TESTS_FABRIC_LIAR_H
#define TESTS_FABRIC_LIAR_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/net.h"

struct liar {
    struct net_address address;
    void (*talk)(struct liar *liar, int fd); /* serves one connection, which is then closed */
    void *context;                           /* the test's */
    int listener;
    pthread_t thread;
    uint32_t quit, talks; /* atomic */
};

/* Listens at `address` (a TCP port of its own, or a Unix socket). The talk function may be called on several
 * threads at once. */
void liar_start(struct liar *liar, const struct net_address *address, void (*talk)(struct liar *liar, int fd),
                void *context);
/* When its clients have closed their connections: waits for all talks to end. */
void liar_stop(struct liar *liar);
/* All of it. False: the client has closed. */
bool liar_take(int fd, void *bytes, size_t length);
bool liar_say(int fd, const void *bytes, size_t length);

#endif
