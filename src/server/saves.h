/*
 * saves.h - what the server's clients may ask about what outlives power, wherever that is kept: in this
 * process (durable.h), or on the disks of a cluster's memory nodes.
 *
 * Any thread; waits for nothing, but server_persist.
 */
#ifndef SERVER_SAVES_H
#define SERVER_SAVES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "fabric/fabric.h"

struct server;
struct store_session;

struct server_saves {
    bool saving, failed;   /* failed: the last one that ended */
    uint64_t saves;        /* that this process has made */
    uint64_t saved_ms, ns; /* when the last one was made, since 1970, 0: not in this life; how long it took */
};
/* What makes checkpoints of a cluster, for struct server_options. */
struct server_saver {
    /* Returns at once. BANYAN_EBUSY: one is under way. */
    int (*begin)(void *context, struct error *error);
    void (*look)(void *context, struct server_saves *saves);
    void *context;
};

/* The least that any memory node promises of what is acknowledged. */
enum fabric_durability server_durability(const struct server *server);
/* BANYAN_ENOTSUP: nothing is kept on a disk. */
int server_save_begin(const struct server *server, struct error *error);
void server_save_look(const struct server *server, struct server_saves *saves);
/* On a fiber: waits until all that was answered is on the disks of the cluster's memory nodes. */
int server_persist(const struct server *server, struct store_session *session);

#endif
