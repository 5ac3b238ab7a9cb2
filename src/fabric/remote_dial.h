/*
 * remote_dial.h - one connection to a memory node: opening it, its two ends' proofs, whole messages over it
 * with a deadline, and the orderly goodbye.
 *
 * Called where a fabric or an endpoint is opened, by the reconnect's thread, and for format and ask. Waits,
 * at most as long as it is told.
 */
#ifndef FABRIC_REMOTE_DIAL_H
#define FABRIC_REMOTE_DIAL_H

#include "fabric/remote.h"
#include "fabric/wire.h"
#include "net/net.h"

#define REMOTE_MS UINT64_C(1000000) /* ns */

/* What every memory node is told about this compute node. */
struct remote_identity {
    struct net_tls *tls;
    const char *secret; /* NULL: none */
    size_t secret_length;
    char name[WIRE_NAME_MAX + 1];
    uint32_t lease_ms, timeout_ms, read_lease_ms;
    bool map; /* pools over Unix sockets */
    uint64_t instance;
    char peer[WIRE_PEER_MAX + 1]; /* where this process answers its peers; "": nowhere */
};

/* What a connection is to be. */
struct remote_wish {
    enum wire_role role;
    uint16_t compute_id; /* CONTROL: 0: the memory node chooses */
    uint64_t group_key;  /* DATA */
    bool again;          /* CONTROL: its last group there was lost */
};

/* A connection that was welcomed. */
struct remote_dialed {
    struct net_stream *stream;
    struct wire_welcome welcome;
    int descriptors[2]; /* mapped: CONTROL: pool, lock region; DATA: staging area, -1 */
};

/* From the options; only the name is copied. */
void remote_identity_set(struct remote_identity *identity, const struct fabric_remote_options *options);
/* Waits at most timeout_ns. The message names the memory node. */
int remote_dial(const struct remote_identity *identity, const struct net_address *address,
                const struct remote_wish *wish, uint64_t timeout_ns, struct remote_dialed *dialed,
                struct error *error);
/* Closes what `dialed` still has, without a goodbye. */
void remote_dialed_drop(struct remote_dialed *dialed);
/* Says goodbye and closes; waits 100 ms at most. NULL: does nothing. */
void remote_hang_up(struct net_stream *stream);

/* Sends or receives all of it by `deadline` (task_now). The messages do not name the memory node. */
int remote_send(struct net_stream *stream, const void *data, size_t length, uint64_t deadline,
                struct error *error);
int remote_receive(struct net_stream *stream, void *data, size_t length, uint64_t deadline,
                   struct error *error);

/* Sends a request and waits for its RESULT; up to capacity bytes of it. The error that the RESULT has, or
 * what came in its way, which has a message (without the memory node's name). */
int remote_converse(struct net_stream *stream, enum wire_kind kind, const void *request, size_t length,
                    void *reply, size_t capacity, size_t *reply_length, uint64_t deadline,
                    struct error *error);

/* Makes the memory node at the other end of a formatter's connection number `number` of a cluster. */
int remote_format_one(const struct remote_identity *identity, const struct net_address *address,
                      struct net_stream *stream, const struct wire_format *format, struct error *error);
/* The first list of a cluster that was just formatted: home is the formatter's connection to the home node.
 */
int remote_list_make(const struct fabric_remote_options *options, uint64_t cluster_id,
                     const struct remote_dialed *dialed, struct error *error);

/* The error for a memory node that belongs to no cluster. */
int remote_empty_error(const struct net_address *address, struct error *error);

#endif
