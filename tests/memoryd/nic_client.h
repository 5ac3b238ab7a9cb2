/*
 * nic_client.h - a hand-made end of a queue pair for tests of the memory node's NIC: it sends what it is
 * told to send, one request at a time. Requests that may fail return the completion's status; anything else
 * that fails fails the test.
 */
#ifndef TESTS_MEMORY_NIC_CLIENT_H
#define TESTS_MEMORY_NIC_CLIENT_H

#include "fabric/verbs_device.h"
#include "client.h"

struct raw {
    struct verbs_device *device;
    struct ibv_cq *completions;
    struct ibv_qp *queue;
    struct ibv_mr *registration;
    struct verbs_scratch *scratch;
    uint64_t room[8]; /* registered: what is written, what was read or found */
    struct wire_nic ours, theirs;
};

/* A queue pair that is not connected yet; its packets are sent again soon, so that a peer that is gone is
 * noticed within seconds. */
void raw_open(struct raw *raw);
void raw_close(struct raw *raw);
/* ATTACH over a data connection: 0 and connected, or the status and the daemon's sentence. */
int raw_attach(struct raw *raw, struct client *data, char sentence[256]);
/* Sends ATTACH and takes the answer; connects nothing. */
int raw_ask(struct client *data, const struct wire_nic *end, struct wire_nic *answer, char sentence[256]);
/* Opens control connection, data connection and queue pair. */
struct peer {
    struct client control, data;
    struct raw raw;
};
void peer_open(struct peer *peer, const struct site *site, uint64_t instance, uint32_t lease_ms);
void peer_goodbye(struct peer *peer);
/* Closes its sockets without a goodbye. */
void peer_close(struct peer *peer);

/* In the pool, or with GADDR_LOCK_REGION in the lock region. IBV_WC_SUCCESS, or how it failed; after that the
 * queue pair is of no use. raw_cas: *old may be NULL. */
enum ibv_wc_status raw_read(struct raw *raw, uint64_t offset, uint64_t *word);
enum ibv_wc_status raw_write(struct raw *raw, uint64_t offset, uint64_t word);
enum ibv_wc_status raw_cas(struct raw *raw, uint64_t offset, uint64_t compare, uint64_t swap, uint64_t *old);

#endif
