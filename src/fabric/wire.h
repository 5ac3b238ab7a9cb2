/*
 * wire.h - what compute nodes and memory nodes say to each other over a stream (TCP, TLS or a Unix socket).
 *
 * Written and read by fabric/remote_*.c (compute node) and memoryd/ (memory node). Little-endian
 * throughout; both ends are little-endian machines, so structs travel as they lie in memory. The functions
 * here validate what has arrived before either end uses it. docs/internals/wire.md tells what happens in
 * which order.
 *
 * CONNECTIONS. A compute node has one *control* connection to each memory node: it is the lease (G6),
 * heartbeats run over it. Each endpoint has a *data* connection of its own to each memory node; it joins the
 * control connection's group by the group's key. When the control connection or any data connection of a
 * group is lost (closed without WIRE_GOODBYE, or no heartbeat for a lease), the memory node closes all of the
 * group, and when nothing of the group is being executed any more it frees the locks of its compute id.
 *
 * OPENING. The server speaks first: WIRE_GREETING with a nonce. The client answers WIRE_HELLO with its own
 * nonce, proof of the shared secret (zeros where there is none) and what it wants; the server WIRE_WELCOME
 * with its own proof, or WIRE_REFUSE with a code and a sentence, and closes. Over a Unix socket, a client
 * that asked to map the pool gets WELCOME.mapped = 1 and then the descriptors: control: pool, lock region;
 * data: its staging area. A memory node that belongs to no cluster answers a CONTROL hello with a WELCOME
 * that says so (cluster_id 0) and closes, since there is no lease to hold yet. BANYAN_EBUSY in a REFUSE
 * means: try again soon (the memory node is still fencing this compute node's earlier connections, or is
 * being formatted).
 *
 * LISTS. WIRE_LIST holds `count` commands one behind the other, each a wire_command and its payload (WRITE:
 * the bytes; CAS: compare, swap, mask; FAA: the addend; READ: nothing). The server runs each command when all
 * of it has arrived (G5). WIRE_REPLY holds, for each of the `count` commands that were run, in order: READ:
 * the bytes; CAS and FAA: the old word; WRITE: nothing. status != 0: the command after those was refused.
 * Replies come in the order of the requests.
 *
 * NICS. If hello.nic is set, the compute node reaches the memory through its NIC: each data connection has a
 * queue pair beside its stream. The client sends WIRE_ATTACH with its end, the server connects its own to it
 * and answers WIRE_ATTACHED. Calls, heartbeats and goodbyes stay on the stream; LIST is not allowed on it.
 * The queue pair lives no longer than its data connection: the server destroys it, and with it the keys,
 * before the connection leaves its group (G6).
 *
 * READ LEASES (G7, fabric/peers.h). Memory node 0 is the home node: its welcome says how long a read lease
 * is. Every heartbeat has a number, WIRE_HEARTBEAT's id, from 1 and ascending by 1; the echo repeats it, so
 * that the compute node knows when it sent what was echoed. The home node counts from when it takes a
 * heartbeat from the connection, and echoes none of a group that is fenced. WIRE_NOTICE (id: the number)
 * comes over the control connection at any time after the welcome.
 *
 * THE LIST OF MEMORY NODES. The home node keeps it (struct wire_cluster_list). The echo of a heartbeat to the
 * home node has the list's generation in its `generation`, so that a compute node learns that it has changed;
 * it asks for the list by WIRE_CLUSTER_LIST over a monitor's connection. Its heartbeats tell every memory
 * node which list it goes by (memory_status_reply.list_heard).
 *
 * CALLS THAT TAKE THEIR TIME. A call whose id has the bit WIRE_DEFERRED is answered when the memory node is
 * done with it, and other answers may come before: PERSIST, which waits for the disk (WIRE_PERSIST), and
 * WALK, which waits for a thread that walks (memory/request.h).
 *
 * PEERS. Compute nodes call each other over connections of their own, which begin as those to memory nodes
 * do (peer_stream.h).
 *
 * STAGING (mapped pools; G5). A WRITE of at most WIRE_STAGING_DATA bytes that is not one store (1, 2, 4 or 8
 * bytes, aligned) is first put down in the endpoint's staging area, then marked WIRE_STAGED (release), copied
 * to its place, and the mark cleared. When the process has died the memory node finishes what is marked.
 * Longer WRITEs may be cut anywhere. A memory node whose pool lies in a file stages what it carries out
 * itself in the same way (docs/internals/durability.md).
 */
#ifndef FABRIC_WIRE_H
#define FABRIC_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"
#include "fabric/fabric.h"
#include "net/net.h"

#define WIRE_MAGIC   UINT32_C(0x4e414e42) /* "BNAN" */
#define WIRE_VERSION 9u

enum wire_kind {
    WIRE_GREETING = 1, /* server: struct wire_greeting */
    WIRE_HELLO,        /* client: struct wire_hello */
    WIRE_WELCOME,      /* server: struct wire_welcome */
    WIRE_REFUSE,       /* server: i32 code, then text */
    WIRE_LIST,         /* client, data: commands */
    WIRE_REPLY,        /* server: their results */
    WIRE_CALL,         /* client, data or monitor: an RPC's request */
    WIRE_RESULT,       /* server: its reply */
    WIRE_HEARTBEAT,    /* client, control: nothing but its number; the server sends it back */
    WIRE_GOODBYE,      /* client: an orderly end of this connection; the server closes */
    WIRE_FORMAT,   /* client, formatter: struct wire_format; WIRE_RESULT answers, with a sentence if it failed
                    */
    WIRE_ATTACH,   /* client, data, once: struct wire_nic, its end of a queue pair */
    WIRE_ATTACHED, /* server: struct wire_nic, the other end, and where the memory is; or, with a status, a
                      sentence */
    WIRE_NOTICE,   /* server, control: nothing but its number (fabric_notify) */
    WIRE_KINDS
};

/* Every message begins with this. */
struct wire_header {
    uint32_t length; /* of all that follows this header */
    uint8_t kind;    /* enum wire_kind */
    uint8_t reserved;
    uint16_t count;      /* LIST: commands; REPLY: commands that were run */
    int32_t status;      /* REPLY, RESULT: 0 or a negative banyan_error */
    uint32_t generation; /* HEARTBEAT: of the list of memory nodes: an echo of the home node's says which it
                            keeps, a compute node which it goes by. Else 0 */
    uint64_t id;         /* the client's, sent back with the answer */
};
struct wire_command {
    uint64_t address;
    uint32_t length;    /* READ, WRITE */
    uint32_t operation; /* enum fabric_operation */
};

/* The longest body of a message, but for LIST and its REPLY. */
#define WIRE_SMALL_MAX 65536u
/* LIST and REPLY: FABRIC_LIST_BYTES_MAX of payload, and the commands. */
#define WIRE_LENGTH_MAX (FABRIC_LIST_BYTES_MAX + FABRIC_COMMANDS_MAX * (sizeof(struct wire_command) + 24))

enum wire_role {
    WIRE_CONTROL = 1,   /* the lease of a compute node */
    WIRE_DATA = 2,      /* an endpoint of it */
    WIRE_MONITOR = 3,   /* may call MEMORY_STATUS, MEMORY_PEERS; holds no lease */
    WIRE_FORMATTER = 4, /* may send WIRE_FORMAT, as long as no compute node is connected */
};
struct wire_format {
    uint64_t cluster_id; /* not 0 */
    uint16_t number, node_count;
    uint32_t reserved;
};
struct wire_greeting {
    uint32_t magic, version;
    uint8_t nonce[NET_NONCE_BYTES];
    uint32_t secret_wanted; /* 1: HELLO must prove the secret */
    uint32_t reserved;
};
#define WIRE_NAME_MAX 63u
#define WIRE_PEER_MAX 127u
struct wire_hello {
    uint32_t magic, version;
    uint8_t nonce[NET_NONCE_BYTES];
    uint8_t proof[NET_PROOF_BYTES]; /* net_proof(secret, "banyan client", server's nonce, client's nonce) */
    uint32_t role;                  /* enum wire_role */
    uint32_t map;                   /* 1: map the pool (Unix sockets only) */
    uint32_t lease_ms;              /* CONTROL: wanted; the server decides */
    uint16_t compute_id; /* CONTROL: wanted; 0: the server chooses one that is free. DATA: of the group */
    uint8_t nic;         /* 1: lists go through NICs (WIRE_ATTACH), not over this stream */
    uint8_t reserved;
    uint64_t instance;            /* random; connections that have the same are of the same compute node */
    uint64_t group_key;           /* DATA: from the control connection's WELCOME */
    char name[WIRE_NAME_MAX + 1]; /* for messages: host and process */
    /* CONTROL */
    uint32_t read_lease_ms;       /* wanted; the home node decides; 0: its default */
    uint32_t again;               /* 1: a connection of this instance to this memory node was lost before */
    char peer[WIRE_PEER_MAX + 1]; /* where it answers peers (net_address_format); "": nowhere */
};
struct wire_welcome {
    uint8_t proof[NET_PROOF_BYTES]; /* net_proof(secret, "banyan server", client's nonce, server's nonce) */
    uint32_t lease_ms;
    uint16_t compute_id;
    uint16_t node;       /* this memory node's number in its cluster */
    uint16_t node_count; /* of the cluster; 0: not known (an embedded node's) */
    uint8_t mapped;      /* 1: descriptors follow (net_send_descriptors) */
    uint8_t lock_width;
    uint16_t nic_mtu; /* path MTU of the server's port, in bytes */
    uint8_t nic;      /* 1: as asked for */
    uint8_t nic_promises;
    uint64_t group_key;
    uint64_t cluster_id; /* made by the format; 0: never formatted */
    uint64_t instance; /* random: of what the memory node holds. It has another one after a restart, unless a
                          file has kept that */
    uint64_t pool_bytes, lock_bytes;
    uint32_t read_lease_ms; /* CONTROL, the home node; else 0 */
    uint32_t atomic_write;  /* longer WRITEs may be cut (G5), since the memory outlives the process that
                               carries  them out; 0: none may */
    uint32_t durability;    /* enum fabric_durability */
    uint32_t generation;    /* the home node's: of its list of memory nodes; 0: it keeps none */
};
/* welcome.nic_promises: what the memory node's NIC promises about words that others CAS. */
#define WIRE_NIC_RELEASE_BY_WRITE 1u /* G3 */
#define WIRE_NIC_MASKED_CAS       2u

/* One end of a queue pair (InfiniBand specification, volume 1, chapter 9: reliable connection). */
struct wire_nic {
    uint8_t gid[16]; /* of the port */
    uint32_t queue;  /* queue pair number, 24 bits */
    uint32_t psn;    /* sequence number of the first packet that it sends, 24 bits */
    uint16_t lid;    /* InfiniBand; 0 on Ethernet */
    uint8_t ethernet;
    uint8_t mtu;         /* enum ibv_mtu of its port */
    uint8_t reads_taken; /* READs and atomics of the other end that it can have under way at once */
    uint8_t reads_begun; /* ... of its own that it wants to have under way there */
    uint8_t reserved[2];
    /* ATTACHED */
    uint32_t pool_key, lock_key; /* valid through this queue pair, as long as it is connected */
    uint64_t pool_address, lock_address;
};

/* In shared pages of its own for each data connection of a mapped pool. */
#define WIRE_STAGING_DATA 4096u
struct wire_staging {
    uint64_t marked; /* WIRE_STAGED: the bytes must be copied to their place */
    uint64_t offset; /* of the place; as in a gaddr, with the lock region's bit */
    uint64_t length; /* 1 to WIRE_STAGING_DATA */
    uint64_t reserved[5];
    uint8_t data[WIRE_STAGING_DATA];
};
#define WIRE_STAGED UINT64_C(0x5354414745440001)

/*
 * What compute nodes ask memory nodes about each other (peers.h), as CALLs over a data connection. The kinds
 * are listed in memory/request.h like all others; they stand here because the fabric itself asks them.
 */
enum wire_process_kind {
    WIRE_PROCESS_FENCE = 17, /* -> wire_process_reply: the process has no connection here, and no locks */
    WIRE_PROCESS_LEASE_OVER, /* home -> wire_process_reply */
    WIRE_PROCESS_LIST,       /* home; those with a greater id than `compute_id` -> wire_process_list */
    WIRE_PROCESS_NOTIFY,     /* home; `instance` is the number -> nothing */
    WIRE_PROCESS_ADDRESS,    /* home -> text: where the process answers peers; BANYAN_ENOTFOUND: not known */
    WIRE_PROCESS_END
};
#define WIRE_PROCESS_KINDS ((uint32_t)WIRE_PROCESS_END - (uint32_t)WIRE_PROCESS_FENCE)
struct wire_process_request {
    uint32_t kind;
    uint16_t compute_id;
    uint16_t reserved;
    uint64_t instance;
    uint64_t life; /* FENCE: 0: fence it; else only say whether this life of it has ended */
};
struct wire_process_reply {
    uint32_t done; /* FENCE: 0: not yet, ask again about `life`. LEASE_OVER: 1: it is over */
    uint32_t reserved;
    uint64_t
        life; /* FENCE: the one that is being ended: the process may join anew before the next question */
};
#define WIRE_PROCESSES_MAX 4000u
struct wire_process_list {
    uint32_t count, total; /* total: those that were asked for; count: of them, some that have the least ids,
                              in any order. Who wants the rest asks for those behind the last one */
    struct wire_process {
        uint64_t instance;
        uint16_t compute_id;
        uint16_t reserved[3];
    } processes[WIRE_PROCESSES_MAX]; /* only `count` of them are sent */
};

/*
 * PERSIST, a CALL over a data connection (fabric_persist): its RESULT comes when all that was in the segments
 * of owners' logs before the call is on the memory node's disk, and other answers may come before it. Ids
 * with WIRE_DEFERRED are of such calls, and of others that may take their time (fabric_calls), alone: they
 * are out of the order in which all others ascend by 1.
 */
#define WIRE_PERSIST  28u
#define WIRE_DEFERRED (UINT64_C(1) << 63)
struct wire_persist_request {
    uint32_t kind;
    uint32_t reserved;
};

/*
 * JOURNALS, a call of a memory node with a disk, by an operator: what its directory is to say of one more
 * that joins, before that one is listed, and of the same when it is (disk/manifest.h). A change begins when
 * it is asked for, and is looked at by further calls until it is not `busy`.
 */
#define WIRE_JOURNALS 42u
struct wire_journals_request {
    uint32_t kind;
    uint32_t nodes;  /* the cluster is to have at least so many memory nodes; 0: only a look */
    uint64_t token;  /* of the directory of number `nodes` - 1, as that memory node has told it */
    uint32_t joined; /* 1: it is listed by now */
    uint32_t look;   /* 1: only whether that stands */
};
struct wire_journals_reply {
    uint32_t nodes; /* what stands on the disk */
    uint32_t busy;  /* 1: a change is under way, this one or another */
    int32_t
        status; /* what came of the last one; BANYAN_EBUSY: a checkpoint is prepared and does not count yet */
    uint32_t stands; /* 1: what was asked for is on the disk */
    uint64_t token;  /* of the memory node's own directory; 0: it has none */
};

/*
 * CLUSTER, calls of the home node: the list of the cluster's memory nodes. A memory node's number is its
 * place in the list, and is given to no other one later. They stand here because the fabric itself asks them.
 */
#define WIRE_CLUSTER_LIST      44u /* -> wire_cluster_list; BANYAN_ENOTFOUND: it keeps none */
#define WIRE_CLUSTER_SET       45u /* wire_cluster_change -> wire_cluster_list, as it is from then on */
#define WIRE_CLUSTER_NODES_MAX 95u /* in the life of a cluster */
#define WIRE_CLUSTER_TEXT_MAX  118u
enum wire_cluster_state {
    WIRE_CLUSTER_MEMBER = 1,
    WIRE_CLUSTER_LEAVING, /* compute nodes put nothing new there, and take their logs away */
    WIRE_CLUSTER_REMOVED, /* its number stays */
    WIRE_CLUSTER_STATES
};
struct wire_cluster_node {
    uint64_t instance;                       /* as in its welcome */
    uint8_t state;                           /* enum wire_cluster_state */
    char address[WIRE_CLUSTER_TEXT_MAX + 1]; /* net_address_format, for compute nodes that were told none */
};
struct wire_cluster_list {
    uint64_t cluster_id;
    uint32_t generation; /* from 1; every change adds one */
    uint32_t count;
    struct wire_cluster_node nodes[WIRE_CLUSTER_NODES_MAX]; /* only `count` of them are sent */
};
/* Becomes the list if the present one has `list.generation` (0: there is none), and differs in what may
 * change: a member may begin to leave, one that leaves may stay or be removed, the last ones may be new, and
 * an address may be another. Number 0, the home node, stays. BANYAN_EBUSY: the list has another generation.
 */
struct wire_cluster_change {
    uint32_t kind;
    uint32_t reserved;
    struct wire_cluster_list list;
};
struct wire_cluster_request {
    uint32_t kind;
    uint32_t reserved;
};
/* Bytes of a list with so many memory nodes. */
static inline size_t wire_cluster_bytes(uint32_t count)
{
    return offsetof(struct wire_cluster_list, nodes) + count * sizeof(struct wire_cluster_node);
}
/* Whether `length` bytes that have arrived are a list: counts, states, texts that end, and a home node. */
bool wire_cluster_valid(const struct wire_cluster_list *list, size_t length);

/* Validates a header that has arrived: true if kind, length, count and status are possible. */
bool wire_header_valid(const struct wire_header *header);
/* Bytes of a command's payload in a LIST and in a REPLY; UINT32_MAX: no such command. */
uint32_t wire_command_payload(const struct wire_command *command);
uint32_t wire_command_result(const struct wire_command *command);

#endif
