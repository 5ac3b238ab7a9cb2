/*
 * client.h - a hand-made client of the memory daemon for its tests: it sends what it is told to send,
 * also what no proper client would. Blocking, one thread; every wait has a limit, after which the test fails.
 */
#ifndef TESTS_MEMORY_SERVER_CLIENT_H
#define TESTS_MEMORY_SERVER_CLIENT_H

#include "fabric/wire.h"
#include "memoryd/memoryd.h"

#define CLIENT_LIMIT UINT64_C(20000000000) /* ns: much more than anything takes */

/* A daemon in this process, with a pool of its own. */
struct site {
    struct memory_node *node;
    struct memoryd *daemon;
    struct memoryd_disk *disk; /* NULL: none */
    struct net_address tcp, local;
};
struct site_options {
    int engine;
    bool shared, unformatted, busy_poll;
    bool home;             /* it is memory node 0, not SITE_NODE */
    const char *pool_file; /* NULL: none */
    struct disk *disk;     /* of its journal; NULL: none. It is formatted as of SITE_CLUSTER then */
    bool always;           /* owners ask behind each commit */
    bool rdma;             /* its memory through the NIC of the address in BANYAN_RDMA_ADDRESS */
    const char *secret;
    struct net_tls *tls;
    uint32_t lease_ms_min, connections_max;
    unsigned threads, walk_threads;
};
#define SITE_NODE    3u
#define SITE_CLUSTER UINT64_C(77)
#define SITE_POOL    (UINT64_C(4) << 20)
#define SITE_LOCKS   UINT64_C(65536)
/* BANYAN_ENOTSUP: no io_uring here. */
int site_open(struct site *site, const struct site_options *options);
void site_close(struct site *site);
struct memory_status_reply site_status(struct site *site);
/* Waits until there are so many groups, or connections. */
void site_wait_nodes(struct site *site, uint64_t nodes);
void site_wait_connections(struct site *site, uint64_t connections);
/* Direct access to the pool and the lock region. */
uint8_t *site_pool(struct site *site, uint64_t offset);
uint64_t site_word(struct site *site, uint64_t offset);
uint64_t site_lock(struct site *site, unsigned word);
void site_set_lock(struct site *site, unsigned word, uint16_t id);
void site_wait_lock(struct site *site, unsigned word, uint16_t id);
gaddr site_address(uint64_t offset);

struct client {
    int fd;
    struct net_stream *stream; /* NULL: the bare descriptor */
    struct wire_greeting greeting;
    struct wire_welcome welcome;
    struct wire_hello hello; /* as it was sent */
};
/* From now on hellos of compute nodes say that their lists go through a NIC. */
void client_use_nic(bool nic);
/* TLS for TCP from now on; NULL: none again. */
void client_use_tls(struct net_tls *tls);
/* Connects and takes the greeting. */
void client_connect(struct client *client, const struct net_address *address);
void client_close(struct client *client);
void client_send(struct client *client, const void *bytes, size_t length);
void client_message(struct client *client, enum wire_kind kind, uint64_t id, const void *bytes,
                    size_t length);
/* The next message; its body, at most capacity bytes of it. */
struct wire_header client_take(struct client *client, void *body, size_t capacity);
/* The same; false: the daemon has closed instead. */
bool client_try_take(struct client *client, struct wire_header *head, void *body, size_t capacity);
bool client_try_connect(struct client *client, const struct net_address *address);
/* Skips all messages until the daemon has closed: true. */
bool client_closed(struct client *client);
/* A hello that is right for that role; the caller may spoil it. */
struct wire_hello client_hello(const struct client *client, uint32_t role, const char *secret);
/* Sends it; 0 and client->welcome, or the code of the refusal and its sentence. */
int client_say_hello(struct client *client, const struct wire_hello *hello, char sentence[256]);
/* Connect, say hello and are let in, else the test fails. lease 0: the default. */
void client_control(struct client *client, const struct net_address *address, uint64_t instance,
                    uint32_t lease_ms);
void client_data(struct client *client, const struct net_address *address, const struct client *control);
void client_monitor(struct client *client, const struct net_address *address);
void client_goodbye(struct client *client); /* and waits for the close */
void client_heartbeat(struct client *client);
/* False: the daemon has closed. */
bool client_try_heartbeat(struct client *client);

/* A list as bytes. */
struct script {
    uint8_t *bytes;
    size_t length;
    uint16_t count;
};
void script_read(struct script *script, gaddr address, uint32_t length);
void script_write(struct script *script, gaddr address, const void *data, uint32_t length);
void script_cas(struct script *script, gaddr address, uint64_t compare, uint64_t swap, uint64_t mask);
void script_faa(struct script *script, gaddr address, uint64_t add);
/* Sends it as one LIST, and empties it. */
void script_send(struct script *script, struct client *client, uint64_t id);

/* An RPC: its status; the reply's length must be `length` where it is 0. */
int client_call(struct client *client, const void *request, size_t request_length, void *reply,
                size_t capacity, size_t *length);

#endif
