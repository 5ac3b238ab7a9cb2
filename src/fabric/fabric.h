/*
 * fabric.h - one-sided access to the memory of memory nodes: the contract that every backend keeps, and all
 * that the layers above may assume.
 *
 * ADDRESSES. A gaddr has 64 bits: the memory node's number (16 bits) and an offset (48 bits; Sherman §4.2). 0
 * is null. If bit 47 of the offset is set, the rest is an offset into the node's lock region ("on-chip": the
 * NIC's own memory where it has some), else into its pool.
 *
 * COMMAND LISTS. The unit of work is an ordered list of commands to ONE memory node. Executing a
 * list costs one round trip however many commands it holds (Sherman §4.5, command combination).
 * Lists to different nodes, or several to one, may be executed together: one wait, one round trip.
 *
 * GUARANTEES (G1 to G6, and G7, G8 in peers.h; docs/internals/fabric.md argues why each backend keeps them)
 *  G1 WRITEs and atomics of one endpoint take effect in the order in which they stand in a list, and a
 *     READ sees the effects of those that stand before it. READs have no order among themselves, and a
 *     later WRITE may overtake an earlier READ. Lists executed together have no order between them.
 *  G2 Only aligned 8-byte words are atomic. A longer READ may return any mixture of old and new words
 *     of concurrent WRITEs, fetched in any order: address order is never assumed.
 *  G3 CAS and FAA are atomic against each other. A WRITE to a word on which others CAS is safe only
 *     where `release_by_write` is set; elsewhere such a word is changed by atomics alone.
 *  G4 When fabric_execute returns, the effects of its lists are visible to everyone.
 *  G5 When a compute node dies, its list may be cut between any two commands, and a WRITE longer than
 *     `atomic_write` anywhere (at a word); a shorter one happens entirely or not at all.
 *  G6 A connection is the lease. A memory node that has lost its connection to a compute node first fences
 * that, so that nothing of it can arrive later, and only then frees its locks.
 *
 * ERRORS. A command with a bad address, length or alignment fails its list with BANYAN_EADDRESS: the commands
 * before it have taken effect, it and those after it have not, no other list is harmed, and the endpoint
 * stays usable. BANYAN_ENET: the connection is down or was lost; the list may have taken effect in part.
 * BANYAN_EFENCED: the list was refused for its incarnation, and nothing of it has been done. A list that was
 * under way when the connection was lost ends with BANYAN_ENET.
 *
 * THREADS. A struct fabric is shared by all tasks of a compute node; an endpoint belongs to one worker
 * thread and may be used by all its fibers. fabric_execute suspends the calling task.
 */
#ifndef FABRIC_FABRIC_H
#define FABRIC_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/error.h"

typedef uint64_t gaddr;

#define GADDR_NULL        ((gaddr)0)
#define GADDR_OFFSET_BITS 48
#define GADDR_LOCK_REGION (UINT64_C(1) << 47)

static inline gaddr gaddr_make(uint16_t node, uint64_t offset)
{
    return (gaddr)node << GADDR_OFFSET_BITS | offset;
}
static inline uint16_t gaddr_node(gaddr address)
{
    return (uint16_t)(address >> GADDR_OFFSET_BITS);
}
static inline uint64_t gaddr_offset(gaddr address)
{
    return address & ((UINT64_C(1) << GADDR_OFFSET_BITS) - 1);
}

enum fabric_operation { FABRIC_READ, FABRIC_WRITE, FABRIC_CAS, FABRIC_FAA };

/* The longest READ or WRITE of one command, the most commands of one list, and the most bytes that the READs
 * and WRITEs of one list may have together. */
#define FABRIC_LENGTH_MAX     (1u << 20)
#define FABRIC_COMMANDS_MAX   64
#define FABRIC_LIST_BYTES_MAX (4u << 20)
/* The least that a backend writes entirely or not at all (G5). */
#define FABRIC_ATOMIC_WRITE_LEAST 1024u

struct fabric_command {
    enum fabric_operation operation;
    uint32_t length; /* bytes, READ and WRITE: 1 to FABRIC_LENGTH_MAX. Atomics: 8 implied. */
    gaddr address;   /* READ, WRITE: any alignment. Atomics: a multiple of 8. */
    union {
        struct {
            void *buffer;     /* the caller's, at least length bytes, 8-byte aligned; in use until the list
                                 completes */
            const void *data; /* set by the backend: `buffer`, or (capability `direct`) the mapped bytes
                               * themselves, which others may be writing: copy them with atomic_copy_from,
                               * then validate the copy */
        } read;
        struct {
            const void *data; /* the caller's; in use until the list completes */
        } write;
        struct {
            /* If (word & mask) == (compare & mask): word = (word & ~mask) | (swap & mask). */
            uint64_t compare, swap, mask; /* mask: all ones, or what `masked_cas` allows */
            uint64_t old;                 /* the word before, whether swapped or not */
        } cas;
        struct {
            uint64_t add, old;
        } faa;
    };
};

struct fabric_list {
    uint16_t node; /* every command's address must be of this node */
    uint16_t count;
    struct fabric_command *commands;
    int status; /* set when complete: 0 or a negative banyan_error */
    /* fabric_incarnation() when the operation that posts this list began. If the connection to the node was
     * lost since, the operation's locks there are gone: the list is refused with BANYAN_EFENCED, and nothing
     * of it is done. 0: posted in any case. */
    uint64_t incarnation;
    uint64_t backend[3]; /* the backend's while the list is under way: FABRIC_LIST_STATE */
};

/* A backend lays a struct of its own over `backend`: this makes `struct type *type(list)`, which finds it.
 * The struct is declared FABRIC_LIST_STATE_STRUCT, so that the compiler knows that it shares its bytes. */
#define FABRIC_LIST_STATE_STRUCT __attribute__((may_alias))
#define FABRIC_LIST_STATE(type)                                                                              \
    _Static_assert(sizeof(struct type) <= sizeof(((struct fabric_list *)0)->backend) &&                      \
                       _Alignof(struct type) <= _Alignof(uint64_t),                                          \
                   #type " does not fit a list's backend field");                                            \
    static inline struct type *type(struct fabric_list *list)                                                \
    {                                                                                                        \
        return (struct type *)(void *)list->backend;                                                         \
    }

/* What one operation cost. Counted by fabric_execute and fabric_call, the same for every backend. */
struct fabric_cost {
    uint64_t round_trips; /* waits: one per fabric_execute, one per fabric_call */
    uint64_t lists, reads, writes, atomics, rpcs;
    uint64_t peer_calls;                /* to other compute nodes (peers.h) */
    uint64_t bytes_read, bytes_written; /* payload, that of fabric_calls too; atomics count 8
                                            written */
};

/* What a fabric can do and promises; fixed when it is opened, but for which memory nodes there are. */
struct fabric_capabilities {
    const char *backend;        /* "local", "sim", ... */
    uint16_t memory_nodes;      /* atomic: all have lower numbers. It grows (fabric_memory_nodes) */
    uint16_t memory_nodes_most; /* what it may become while the fabric is open: for the sizes of arrays */
    uint16_t compute_id;        /* 1 .. 65535: this compute node's name in lock words */
    uint32_t lock_width;        /* bytes of a lock word: 2 with masked CAS, else 8 */
    uint64_t lock_region_bytes; /* per memory node */
    uint32_t atomic_write;      /* G5, bytes, at least FABRIC_ATOMIC_WRITE_LEAST */
    bool release_by_write;      /* G3 */
    bool masked_cas;
    bool direct;            /* a READ may return mapped bytes in place */
    uint32_t round_trip_ns; /* of one list, an estimate */
};

/* What is written to a memory node outlives (docs/internals/durability.md): compute nodes alone; the memory
 * node's process too; power, but for the last second of what owners have logged; power, all that was
 * acknowledged of that. */
enum fabric_durability {
    FABRIC_KEPT_IN_MEMORY,
    FABRIC_KEPT_IN_FILE,
    FABRIC_KEPT_ON_DISK,
    FABRIC_KEPT_ON_DISK_ALWAYS,
    FABRIC_DURABILITIES
};

/* A call for which the memory node's CPU may take its time (fabric_calls). */
struct fabric_call {
    uint16_t node;
    int status;           /* set when complete */
    uint64_t incarnation; /* as a list's: 0, or the operation's */
    const void *request;  /* the caller's, in use until the call completes; as is the reply's room */
    size_t length;
    void *reply;
    size_t capacity, reply_length; /* reply_length: set when complete; 0 unless it succeeded */
};

struct fabric;
struct fabric_endpoint;
struct fabric_peer_ops;
struct wire_staging;

/* A memory node's memory and its RPCs, for backends in the same address space (local, sim; mapped pools).
 * Filled by src/memory/. */
struct fabric_target {
    uint8_t *pool;       /* 4 KiB aligned */
    uint64_t pool_bytes; /* multiple of 8 */
    uint8_t *locks;
    uint64_t lock_bytes; /* multiple of 8 */
    uint32_t lock_width;
    /* Runs an RPC, on any thread. Writes at most `capacity` bytes of reply. 0 or a negative error. */
    int (*call)(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                size_t capacity, size_t *reply_length);
    /* How long the memory node's CPU works on such a call beyond what every RPC costs, by a model, ns. NULL:
     * 0. */
    uint64_t (*call_ns)(void *owner, uint16_t compute_id, const void *request, size_t length);
    /* Lets the memory node's CPU work in the background, after calls: takes the modelled cost of what it did
     * off *budget_ns, and returns whether more is to do. Any thread. NULL: there is no such work. */
    bool (*work)(void *owner, uint64_t *budget_ns);
    void *owner;
    /* Of memory that outlives this process: an area for each endpoint, in which it stages its WRITEs (G5,
     * wire.h). NULL: it ends with the process. */
    struct wire_staging *stagings;
    uint32_t staging_count;
};

/* What a backend implements. The functions of the same names below say what each does. */
struct fabric_ops {
    int (*execute)(struct fabric_endpoint *, struct fabric_list *const *lists, uint32_t count);
    int (*call)(struct fabric_endpoint *, uint16_t node, const void *request, size_t length, void *reply,
                size_t capacity, size_t *reply_length);
    struct fabric_endpoint *(*endpoint_open)(struct fabric *, struct error *);
    void (*endpoint_close)(struct fabric_endpoint *);
    void (*close)(struct fabric *);
    /* NULL: connections are never lost. Any thread, some nanoseconds. */
    uint64_t (*incarnation)(const struct fabric *);
    /* NULL: there is nothing to tell. */
    void (*trouble)(const struct fabric *, uint16_t node, char *text, size_t size);
    /* NULL: an endpoint is never without a connection while others have one. */
    void (*give_up)(struct fabric_endpoint *, uint16_t node);
    /* NULL: a plain store into a window will do, since the memory ends with this process. */
    void (*store)(struct fabric_endpoint *, gaddr address, uint8_t *where, const void *data, uint32_t length);
    /* NULL: nothing is kept on a disk, and persist is a call that says so. */
    enum fabric_durability (*durability)(const struct fabric *, uint16_t node);
    int (*persist)(struct fabric_endpoint *, const uint16_t *nodes, uint32_t count, int *statuses);
    /* NULL: no memory node's CPU is worth asking, since reading its memory costs nothing. */
    void (*calls)(struct fabric_endpoint *, struct fabric_call *const *calls, uint32_t count);
    /* NULL: all memory nodes that there are were there when the fabric was opened, and stay. */
    const struct fabric_cluster_ops *cluster;
    /* NULL: no other compute node can reach this one's memory (peers.h). */
    const struct fabric_peer_ops *peers;
};

/* Memory nodes that join and leave. The functions of the same names below say what each does. */
enum fabric_membership { FABRIC_NO_MEMBER, FABRIC_MEMBER, FABRIC_LEAVING };
struct fabric_cluster_ops {
    enum fabric_membership (*membership)(const struct fabric *, uint16_t node);
    bool (*learn)(struct fabric *, uint16_t node);
    bool (*refresh)(struct fabric *);
};

/* A memory node's pool as it is mapped here. */
struct fabric_window {
    uint8_t *bytes;
    uint64_t length;
};

/* Backends embed these as their first member. */
struct fabric {
    const struct fabric_ops *ops;
    struct fabric_capabilities capabilities;
    const struct fabric_window
        *windows; /* [memory_nodes], of the fabric; NULL: fabric_window offers nothing */
};
struct fabric_endpoint {
    struct fabric *fabric;
};

/*
 * WHICH MEMORY NODES THERE ARE. Numbers are below fabric_memory_nodes, which only grows; a number below it
 * may be of none (any more). Nothing is posted to such a one: lists and calls there fail with BANYAN_EINVAL.
 * A compute node may meet a link to a memory node that has joined a moment ago, of which it has not heard:
 * then fabric_execute and fabric_call themselves learn of it first.
 */
static inline uint16_t fabric_memory_nodes(const struct fabric *fabric)
{
    /* acquire: what belongs to a memory node is there before its number */
    return __atomic_load_n(&fabric->capabilities.memory_nodes, __ATOMIC_ACQUIRE);
}
/* What that may become while the fabric is open, for the sizes of arrays. */
static inline uint16_t fabric_memory_nodes_most(const struct fabric *fabric)
{
    const uint16_t now = fabric_memory_nodes(fabric), most = fabric->capabilities.memory_nodes_most;
    return most > now ? most : now;
}
/* Whether it is one of the cluster's: FABRIC_LEAVING: it is, but nothing new is to be put there. Any thread,
 * some nanoseconds. */
static inline enum fabric_membership fabric_membership(const struct fabric *fabric, uint16_t node)
{
    if (node >= fabric_memory_nodes(fabric))
        return FABRIC_NO_MEMBER;
    return fabric->ops->cluster != NULL ? fabric->ops->cluster->membership(fabric, node) : FABRIC_MEMBER;
}
/* Whether the number is of a memory node that was removed, or one that has joined and could not be connected
 * to: links to it are old, or come too early. */
static inline bool fabric_is_away(const struct fabric *fabric, uint16_t node)
{
    return node < fabric_memory_nodes(fabric) && fabric_membership(fabric, node) == FABRIC_NO_MEMBER;
}
/* A link names a memory node that is not known: asks the home node for the list of memory nodes, if this one
 * may stand there, and connects. True: it is known from now on. Waits, at most about the time-out. */
bool fabric_learn(struct fabric *fabric, uint16_t node);
/* Asks the home node for the list of memory nodes, which is at least as new as the call, and connects to
 * those that are new. False: the list could not be had, or one of them not be reached. Waits as fabric_learn.
 */
bool fabric_refresh(struct fabric *fabric);

static inline const struct fabric_capabilities *fabric_capabilities(const struct fabric *fabric)
{
    return &fabric->capabilities;
}

struct fabric_endpoint *fabric_endpoint_open(struct fabric *fabric, struct error *error);
void fabric_endpoint_close(struct fabric_endpoint *endpoint);
void fabric_close(struct fabric *fabric);

/*
 * Where `length` bytes at the address are mapped here, for a caller that does without a list what one of
 * READs and WRITEs would do: it loads and stores as base/atomic.h copies, puts a release fence before its
 * stores and a full one behind them (G1, G4), and counts what the list would have cost. Only where nothing
 * can be lost (G6): the memory is this process's own, and no connection leads to it. Where it outlives the
 * process (fabric_stages), stores are fabric_window_store's, or a death could cut them (G5). NULL: it is not
 * so, or there are no such bytes.
 */
static inline uint8_t *fabric_window(const struct fabric *fabric, gaddr address, uint32_t length)
{
    const uint64_t offset = gaddr_offset(address); /* in the lock region it is beyond all pools */
    const uint16_t node = gaddr_node(address);
    if (!fabric->windows || node >= fabric_memory_nodes(fabric) || address == GADDR_NULL)
        return NULL;
    const struct fabric_window *window = &fabric->windows[node];
    return offset < window->length && length <= window->length - offset ? window->bytes + offset : NULL;
}

static inline bool fabric_stages(const struct fabric *fabric)
{
    return fabric->ops->store != NULL;
}
/* Stores up to FABRIC_ATOMIC_WRITE_LEAST bytes at `where` in a window, which is the place of `address`,
 * wholly or not at all whenever the process dies. Begins with a release fence. On the endpoint's owner. */
static inline void fabric_window_store(struct fabric_endpoint *endpoint, gaddr address, uint8_t *where,
                                       const void *data, uint32_t length)
{
    endpoint->fabric->ops->store(endpoint, address, where, data, length);
}

/* Counts lost connections, from 1. An operation that began under one number must not go on under another at
 * the memory node that was lost in between (G6). It is read once, at the start of an operation that takes
 * locks; an operation that is handed a lock by one with another number must take the lock anew. */
uint64_t fabric_incarnation(const struct fabric *fabric);
/* For messages: writes a sentence that says why the memory node cannot be reached; "" if nothing is known. */
void fabric_trouble(const struct fabric *fabric, uint16_t node, char *text, size_t size);

/* For an operation that holds a lock on the memory node and has got nothing but BANYAN_ENET for longer than a
 * reconnect takes. If this endpoint alone has no connection there, ends those of the others too, so that the
 * memory node fences this compute node and frees the lock (G6). Otherwise it does nothing. On the endpoint's
 * owner. */
void fabric_give_up(struct fabric_endpoint *endpoint, uint16_t node);

/* Executes the lists together and waits for all of them. 0 if every list succeeded, else the error of the
 * first that failed; each list's own status is set. `cost` (may be NULL) is added to. A list with count 0, a
 * node that does not exist, more than FABRIC_COMMANDS_MAX commands or more than FABRIC_LIST_BYTES_MAX bytes
 * fails with BANYAN_EINVAL. */
int fabric_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count,
                   struct fabric_cost *cost);
/* A call to the memory node's CPU (an RPC). BANYAN_EFENCED: there is no connection, and nothing was sent.
 * After BANYAN_ENET or BANYAN_ETIMEOUT the call may have been served or not. */
int fabric_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                void *reply, size_t capacity, size_t *reply_length, struct fabric_cost *cost);

/*
 * Calls that are answered whenever the memory node is done with them, in any order and with other answers
 * between them; so nothing of the endpoint waits behind them. Posted together, one wait, one round trip. Each
 * has its status: that of fabric_call, but refused for its incarnation as a list is (BANYAN_EFENCED), and
 * BANYAN_ENOTSUP where reading the memory costs nothing (it is mapped here). A call that was served, and
 * whose answer has no room, is BANYAN_ENET: a refusal would say that nothing was done.
 */
void fabric_calls(struct fabric_endpoint *endpoint, struct fabric_call *const *calls, uint32_t count,
                  struct fabric_cost *cost);
/* Whether some memory node may be asked so. */
static inline bool fabric_calls_offered(const struct fabric *fabric)
{
    return fabric->ops->calls != NULL;
}

/* What a memory node says that it does; it may say something else when it was restarted. Any thread. */
enum fabric_durability fabric_durability(const struct fabric *fabric, uint16_t node);
/* Whether some memory node promises to keep on its disk what owners log: then nothing is to be written that
 * is not logged. Some nanoseconds for each memory node. Any thread. */
bool fabric_logs_on_disk(const struct fabric *fabric);
/* Waits until all that stood in the segments of owners' logs on these memory nodes before the call is on
 * their disks; one round trip, however long it takes. statuses[i] is of nodes[i], the result the first that
 * is not 0: BANYAN_ENOTSUP: it keeps nothing on a disk; BANYAN_ENOSPC: the disk is full, or has what the user
 * lets it have; BANYAN_EUNKNOWN: the disk has failed, and nothing is safe any more before the memory node is
 * started anew; BANYAN_EBUSY: too many wait already; errors of fabric_call. */
int fabric_persist(struct fabric_endpoint *endpoint, const uint16_t *nodes, uint32_t count, int *statuses,
                   struct fabric_cost *cost);

/* 0 or BANYAN_EADDRESS. For backends that have the memory in their address space. */
int fabric_bounds_check(const struct fabric_target *target, const struct fabric_command *command);

void fabric_cost_add(struct fabric_cost *into, const struct fabric_cost *from);

/* "3:0x1000" or "3:lock:0x40": for messages. Returns text. */
#define GADDR_TEXT_BYTES 32
char *gaddr_format(gaddr address, char text[GADDR_TEXT_BYTES]);

#endif
