/*
 * pool.h - a compute node's handle on the pool of memory nodes: connections of its threads, command lists
 * under one operation's incarnation and costs, blocks, tags.
 *
 * OBJECTS
 *   pool          one per compute node: the fabric, and what may share a list. Thread-safe.
 *   pool_worker   one per OS thread (or simulated CPU thread): endpoint, free blocks, tags. One thread.
 *   pool_session  one per task (fiber): costs, incarnation, last error. One task at a time. The sessions of
 *                 the layers above embed it and hand it down.
 *
 * Every call that can fail returns 0 or a negative banyan_error and leaves the message in session->error,
 * which names the memory node or the address at fault.
 */
#ifndef POOL_POOL_H
#define POOL_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomic.h"
#include "fabric/fabric.h"

struct epoch_slot;
struct pool;
struct pool_worker;

/* ---- compute node ---- */

/* Which commands for one memory node may share a list, and so a round trip (Sherman §4.5): none; WRITEs and
 * the unlock that follows them (the paper); all: the lock and the reads behind it too. */
enum pool_combine { POOL_COMBINE_OFF, POOL_COMBINE_WRITES, POOL_COMBINE_ALL };

/* The fabric is borrowed and must outlive the pool. BANYAN_ENOMEM. */
int pool_create(struct pool **pool, struct fabric *fabric, enum pool_combine combine, struct error *error);
void pool_destroy(struct pool *pool); /* after its workers */
struct fabric *pool_fabric(const struct pool *pool);

/* ---- worker ---- */

int pool_worker_create(struct pool_worker **worker, struct pool *pool, struct error *error);
/* Returns its free blocks to their memory nodes (RPCs: from a task), then frees the worker. */
void pool_worker_destroy(struct pool_worker *worker);
/* For an end at which the tasks are gone without having returned (a simulation's): frees memory only, no
 * fabric use. */
void pool_worker_abandon(struct pool_worker *worker);
/* Returns the free blocks that this worker holds back to their memory nodes, by RPCs: from a task. */
void pool_worker_return(struct pool_worker *worker);
/* For a thread that lives long to call about once a second, from a task: returns them if another worker of
 * the process finds no space, and those of a memory node of which this one has taken none for two calls.
 * Costs nearly nothing else. */
void pool_worker_idle(struct pool_worker *worker);
/* For a worker that evens memory nodes out: as if it had taken so many bytes of this one, so that what it
 * allocates without a wish of its own goes where the least is in use. */
void pool_worker_weigh(struct pool_worker *worker, uint16_t node, uint64_t bytes);
/* Calls visit for the free blocks that this worker holds back. */
void pool_worker_each_free(struct pool_worker *worker,
                           void (*visit)(void *context, gaddr block, uint32_t block_bytes), void *context);

/* ---- session ---- */

struct pool_session {
    struct pool_worker *worker;
    struct fabric *fabric;
    struct fabric_endpoint *endpoint; /* the worker's */
    struct epoch_slot *epoch; /* the worker's: for memory that its tasks read without locks (base/epoch.h) */
    uint16_t memory_nodes;
    uint8_t combine;      /* enum pool_combine */
    uint64_t incarnation; /* of the fabric when the operation under way began */
    uint64_t pinned;      /* not 0: the incarnation that operations belong to instead, for what holds only as
                             long as no connection was lost since; none of them begins again */
    struct fabric_cost
        *cost;          /* everything that this session does is added to it; the owner's, NULL: not counted */
    struct error error; /* the last one */
    uint16_t away; /* of the last error: BANYAN_ECORRUPT because a list was for this memory node, which was
                      removed; POOL_ANY_NODE: not so */
};

/* Allocates nothing; a session needs no end. */
void pool_session_init(struct pool_session *session, struct pool_worker *worker, struct fabric_cost *cost);
/* Whether a link may name the memory node. One that has joined a moment ago, of which this process has not
 * heard, is learned of first, which waits for the home node. */
bool pool_knows(struct pool_session *session, uint16_t node);
/* An operation begins: what it posts belongs to the incarnation that the fabric has now (fabric.h). */
void pool_session_begin(struct pool_session *session);
/*
 * Whether the operation that came to *status must begin again; then *status is 0, and what it posts from now
 * on belongs to today's incarnation. So it is where a list was refused because the operation began before a
 * loss: EFENCED says that its effect has not been done, for the list with the effect is the last that an
 * operation posts. Ends by itself: each time takes another loss. The operation must have given up all its
 * locks.
 */
bool pool_session_again(struct pool_session *session, int *status);

/* Makes this the session's last error; returns the code. */
int pool_fail(struct pool_session *session, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int pool_fail_memory(struct pool_session *session);
/* Bytes at `address` that do not prove themselves; `what` says in which way. BANYAN_ECORRUPT. */
int pool_corrupt(struct pool_session *session, gaddr address, const char *what);
/* An error of the network does not say how much of a list of writes was done: ENET and ETIMEOUT become
 * BANYAN_EUNKNOWN. EFENCED stays: nothing of it was done. */
int pool_unknown(struct pool_session *session, int status);
/* The effect that is unknown is that of another operation, which this one helped: EUNKNOWN becomes ENET. */
int pool_not_done(struct pool_session *session, int status);
/* Why a list failed, with a message that names the address; an address that no memory node has is corruption.
 */
int pool_list_failed(struct pool_session *session, int status, const struct fabric_command *commands,
                     uint32_t count);
/* The same for something else that was asked of a memory node: "`what` failed: ..." */
int pool_node_failed(struct pool_session *session, int status, uint16_t node, const char *what);

/* ---- lists and calls ---- */

static inline struct fabric_command pool_read_command(gaddr address, void *buffer, uint32_t length)
{
    return (struct fabric_command){
        .operation = FABRIC_READ, .address = address, .length = length, .read = {.buffer = buffer}};
}
static inline struct fabric_command pool_write_command(gaddr address, const void *data, uint32_t length)
{
    return (struct fabric_command){
        .operation = FABRIC_WRITE, .address = address, .length = length, .write = {.data = data}};
}
/* Where a backend returned mapped bytes in place: takes a private copy into the command's buffer. */
static inline void pool_read_settle(const struct fabric_command *command)
{
    if (command->read.data != command->read.buffer)
        atomic_copy_from(command->read.buffer, command->read.data, command->length);
}

/* Executes commands for one memory node, in one list or in several as `combine` says. Stops, with status 0,
 * after a CAS that failed and is followed by more commands in a list of their own. */
int pool_execute(struct pool_session *session, uint16_t node, struct fabric_command *commands,
                 uint32_t count);
/* Executes the lists together (fabric_execute), under this session's costs and incarnation. */
int pool_lists_execute(struct pool_session *session, struct fabric_list *const *lists, uint32_t count);
/* The same without a message: each list's status is the caller's to look at. */
int pool_lists_post(struct pool_session *session, struct fabric_list *const *lists, uint32_t count);
/* An RPC to a memory node (fabric_call), under this session's costs. Never BANYAN_EFENCED: no connection is
 * BANYAN_ENET. */
int pool_call(struct pool_session *session, uint16_t node, const void *request, size_t length, void *reply,
              size_t capacity, size_t *reply_length);

/* Waits until what stood in the segments of owners' logs on these memory nodes is on their disks
 * (fabric_persist), each of which has one: one round trip. *at: which of them the message is about. */
#define POOL_PERSIST_MAX 64u /* memory nodes at once */
int pool_persist(struct pool_session *session, const uint16_t *nodes, uint32_t count, uint32_t *at);
/* The same, with the status of each and no message. pool_persist_failed makes the message, and returns what
 * pool_persist would. */
void pool_persist_each(struct pool_session *session, const uint16_t *nodes, uint32_t count, int *statuses);
int pool_persist_failed(struct pool_session *session, uint16_t node, int status);
/* Whether the memory node copies logs to a disk. */
static inline bool pool_on_disk(const struct pool_session *session, uint16_t node)
{
    return fabric_durability(session->fabric, node) >= FABRIC_KEPT_ON_DISK;
}

/* ---- blocks and tags (Sherman §4.2) ---- */

#define POOL_ANY_NODE UINT16_MAX
/* What the memory node says of itself. One RPC. */
struct memory_status_reply;
int pool_node_status(struct pool_session *session, uint16_t node, struct memory_status_reply *status);
/* Which addresses its commands have worked on, from that number of theirs on (memory/heat.h). One RPC.
 * BANYAN_EINVAL, BANYAN_ENOTSUP: it is of a release that does not know. */
struct memory_heat_reply;
int pool_node_heat(struct pool_session *session, uint16_t node, uint64_t from,
                   struct memory_heat_reply *heat);
/* From now on the memory node hands out no blocks (memory/request.h, DRAIN), or does so again; what this
 * worker holds back of it goes back. One RPC. */
int pool_node_drain(struct pool_session *session, uint16_t node, bool on);
/* Nodes are leaving the memory node: what this worker holds back of it goes back now, and what it frees there
 * later at once, until the memory node says how much may be kept. One RPC, if it holds any. */
void pool_worker_leave(struct pool_worker *worker, uint16_t node);
/* A block for a node of the tree, at a multiple of 64 bytes: of `block_bytes` (one of the sizes of
 * memory_block_bytes; all powers of two are), on `preferred` unless that one has given much more than the
 * others, or is full. One RPC in MEMORY_BATCH_MAX calls, or fewer for large blocks. BANYAN_ENOSPC: then this
 * process's workers hold back nothing either, except for those that did not run for some milliseconds. */
int pool_allocate(struct pool_session *session, uint16_t preferred, uint32_t block_bytes, gaddr *block);
/* The same on `node`, however much more that has given than the others; elsewhere only where it is full. */
int pool_allocate_beside(struct pool_session *session, uint16_t node, uint32_t block_bytes, gaddr *block);
/* Only stale links lead to the block. Never fails: what cannot be returned now is kept. */
void pool_release(struct pool_session *session, gaddr block, uint32_t block_bytes);
/* A block for data (a record, a part of one, a key), which keeps off the space reserved for nodes: of
 * memory_block_bytes(bytes) bytes, on some memory node, balanced over them; or on `near`'s where that has
 * room (GADDR_NULL: anywhere). BANYAN_ENOSPC, BANYAN_EINVAL (0 bytes, or more than MEMORY_BLOCK_MAX). */
int pool_block_allocate(struct pool_session *session, gaddr near, uint32_t bytes, gaddr *block);
/* The same, as pool_allocate_beside. */
int pool_block_allocate_beside(struct pool_session *session, gaddr near, uint32_t bytes, gaddr *block);
/* The same, but where no memory node has a block of memory_block_bytes(bytes) bytes, the largest block of at
 * least `least` bytes that one has. *got is its size (one of memory_block_bytes, so it may be more than
 * `bytes`); it is freed with pool_block_release(session, *block, *got). BANYAN_ENOSPC: there is not even a
 * block of `least` bytes. BANYAN_EINVAL as above, or if `least` is 0 or more than `bytes`. */
int pool_block_allocate_part(struct pool_session *session, gaddr near, uint32_t bytes, uint32_t least,
                             gaddr *block, uint32_t *got);
/* A block of that memory node and no other's, which is given back (pool_block_release) as soon as the memory
 * node has taken what is written there: one that is being emptied hands it out too. One RPC more where
 * pool_block_allocate_beside finds none there. */
int pool_block_allocate_staging(struct pool_session *session, uint16_t node, uint32_t bytes, gaddr *block);
/* `bytes` as when it was allocated. GADDR_NULL is ignored. */
void pool_block_release(struct pool_session *session, gaddr block, uint32_t bytes);
/* A tag never used before on that memory node (until 2^32 have been): one FAA in 1,024 tags. */
int pool_take_tag(struct pool_session *session, uint16_t node, uint32_t *tag);

#endif
