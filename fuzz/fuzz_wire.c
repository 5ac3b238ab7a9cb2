/*
 * fuzz_wire.c - feeds bytes to the memory daemon's conversations (memoryd/session.h), without sockets:
 * a few connections at once, which may be of one group, and the keeper's steps in between.
 *
 * Input is a little program, so that mutations get beyond the hello (a fuzzer does not guess a group's key):
 * each step is a byte, with the connection in its low 2 bits and the action above, and what the action takes.
 * See step(). An input of an odd number of bytes meets a memory node behind a NIC, whose functions are
 * replaced here.
 *
 * Oracle: buffers are bounded, messages are whole; a block is never given twice, nor taken back if it is not
 * given, and at the end as many are in use as were given; a connection gets one queue pair at most, which is
 * destroyed once, and before locks of its compute node are freed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "fuzz/fuzz.h"
#include "memoryd/nic.h"
#include "memoryd/session.h"

#define CONNECTIONS 4u
#define INSTANCE    7u
#define POOL_BYTES  (4u << 20)
#define BLOCKS_MAX  512u
#define LOGS_MAX    16u

/* The most that one connection may hold: a command; two lists of results beyond the pause. */
#define INPUT_MOST  (FABRIC_LENGTH_MAX + sizeof(struct wire_command) + 65536u + SESSION_INPUT_LISTS)
#define OUTPUT_MOST (SESSION_OUTPUT_PAUSE + 2u * (WIRE_LENGTH_MAX + WIRE_SMALL_MAX))

struct world;
struct memoryd_nic {
    struct world *world;
    uint32_t queues;
    uint32_t releases; /* asked for; every third fails */
    bool obeys;        /* none fails any more */
};

struct world {
    struct memory_node *node;
    struct memoryd_nic nic;
    struct memoryd *daemon;
    struct memoryd_counts counts;
    struct memoryd_session *sessions[CONNECTIONS];
    const struct memoryd_session *fed; /* that got bytes last */
    /* of the last control connection's welcome */
    uint16_t compute_id;
    uint64_t group_key;
    uint64_t now;
    /* the call that is answered next; kind 0: none, or not known */
    struct memory_free_request call; /* the longest */
    size_t call_length;
    /* blocks that allocations have told of and that were not returned */
    struct block {
        gaddr address;
        uint32_t bytes;
    } blocks[BLOCKS_MAX];
    size_t block_count;
    struct memory_log_request log_call;           /* likewise, where that call is of a log */
    struct memory_log_segment segments[LOGS_MAX]; /* that were taken, the latest ones; some are given back */
    gaddr control;                                /* the last one */
    size_t segment_count;
    bool formatted; /* meanwhile: then they are all gone */
};

static void must(bool condition, const char *what)
{
    fuzz_must(condition, "%s", what);
}

/* ---- the NIC: memoryd/nic.h in place of the real one ---- */

struct memoryd_nic_queue {
    struct memoryd_nic *nic;
    const struct memoryd_session *session;
};

int memoryd_nic_create(struct memoryd_nic **nic, struct memory_node *node,
                       const struct verbs_options *options, const struct sockaddr *local, struct error *error)
{
    return error_set(error, BANYAN_ENOTSUP, "no NIC is opened here");
}

void memoryd_nic_destroy(struct memoryd_nic *nic)
{
    if (nic != NULL)
        must(nic->queues == 0, "no queue pair outlives the daemon");
}

int memoryd_nic_locks(const struct verbs_options *options, const struct sockaddr *local, uint32_t *lock_width,
                      uint64_t *lock_bytes, struct error *error)
{
    return error_set(error, BANYAN_ENOTSUP, "no NIC is opened here");
}

uint16_t memoryd_nic_mtu(const struct memoryd_nic *nic)
{
    return 1024;
}

uint8_t memoryd_nic_promises(const struct memoryd_nic *nic)
{
    return 0;
}

const char *memoryd_nic_text(const struct memoryd_nic *nic)
{
    return "fuzz";
}

uint32_t memoryd_nic_queues(const struct memoryd_nic *nic)
{
    return nic->queues;
}

/* Half of the ends are refused, and of those some leave a queue pair all the same. */
int memoryd_nic_attach(struct memoryd_nic *nic, const struct wire_nic *theirs, struct wire_nic *ours,
                       struct memoryd_nic_queue **queue, struct error *error)
{
    bool refused = theirs->mtu & 1;
    *ours = (struct wire_nic){.queue = 17};
    *queue = NULL;
    if (!refused || theirs->mtu & 2) {
        *queue = calloc(1, sizeof **queue);
        (*queue)->nic = nic;
        (*queue)->session = nic->world->fed;
        nic->queues++;
    }
    return refused ? error_set(error, BANYAN_EINVAL, "the fuzzer wants it to fail") : BANYAN_OK;
}

bool memoryd_nic_detach(struct memoryd_nic_queue *queue)
{
    if (queue == NULL)
        return true;
    must(queue->nic->queues > 0, "there is a queue pair to destroy");
    must(queue->session->group != NULL, "a session leaves its group after its queue pair is destroyed");
    queue->nic->queues--;
    free(queue); /* a second time is the sanitizer's */
    return true;
}

/* Every queue pair is some session's, and none of them is of that compute node. */
static void check_release(const struct world *world, uint16_t compute_id)
{
    uint32_t seen = 0;
    for (unsigned i = 0; i < CONNECTIONS; i++) {
        const struct memoryd_session *session = world->sessions[i];
        if (session == NULL || session->queue == NULL)
            continue;
        seen++;
        must(memoryd_group_compute_id(session) != compute_id, "locks are freed after the last queue pair");
    }
    must(seen == world->daemon->nic->queues, "every queue pair is a session's");
}

int memoryd_nic_release_locks(struct memoryd_nic *nic, uint16_t compute_id, uint64_t *freed,
                              struct error *error)
{
    check_release(nic->world, compute_id);
    if (++nic->releases % 3 == 0 && !nic->obeys)
        return error_set(error, BANYAN_ENET, "the fuzzer wants it to fail");
    *freed += memory_node_release_locks(nic->world->node, compute_id);
    return BANYAN_OK;
}

int memoryd_nic_format(struct memoryd_nic *nic, struct error *error)
{
    must(nic->queues == 0, "no queue pair is there while it is formatted");
    return BANYAN_OK;
}

int memoryd_nic_descriptor(const struct memoryd_nic *nic)
{
    return -1;
}

bool memoryd_nic_events(struct memoryd_nic *nic,
                        void (*broken)(void *owner, struct memoryd_nic_queue *queue, const char *why),
                        void *owner)
{
    return true;
}

/* ---- the world ---- */

static struct world *world_make(void)
{
    struct world *world = calloc(1, sizeof *world);
    struct memory_options pool = {
        .node = 1, .pool_bytes = POOL_BYTES, .chunk_bytes = 64u << 10, .shared = true};
    struct memoryd_options daemon = {.engine = MEMORY_ENGINE_EPOLL};
    struct error error = {0};
    log_set_level(LOG_ERROR);
    must(!memory_node_create(&world->node, &pool, &error), error.text);
    must(!memoryd_create(&world->daemon, world->node, &daemon, &error), error.text);
    return world;
}

static struct memoryd_session *session_of(struct world *world, unsigned index)
{
    if (world->sessions[index] != NULL)
        return world->sessions[index];
    struct memoryd_session *session = calloc(1, sizeof *session);
    session->pidfd = -1;
    if (index == CONNECTIONS - 1) { /* one that may map the pool; of this very process, which is not killed */
        session->is_unix = true;
        session->pid = (int)getpid();
        session->pidfd = (int)syscall(SYS_pidfd_open, session->pid, 0u);
    }
    must(memoryd_session_begin(session, world->daemon, &world->counts, -1, "fuzz"), "a session begins");
    world->sessions[index] = session;
    return session;
}

/* ---- the allocator's promises ---- */

static void check_given(struct world *world, const struct memory_allocate_reply *reply, size_t length)
{
    const struct memory_allocate_request *asked = (const struct memory_allocate_request *)&world->call;
    must(length >= 8 && reply->count >= 1 && reply->count <= asked->want && reply->count <= MEMORY_BATCH_MAX,
         "as many blocks as were asked for, or fewer");
    must(length == 8 + reply->count * sizeof(gaddr), "the reply is as long as it says");
    must(reply->block_bytes == asked->block_bytes ||
             (asked->least_bytes && reply->count == 1 && reply->block_bytes >= asked->least_bytes &&
              reply->block_bytes < asked->block_bytes),
         "blocks of the size that was asked for, or one that is large enough");
    for (uint32_t i = 0; i < reply->count; i++) {
        gaddr address = reply->blocks[i];
        must(gaddr_node(address) == world->daemon->groups.number, "a block of this memory node");
        must(asked->purpose != MEMORY_FOR_NODES || gaddr_offset(address) % 64 == 0,
             "a node lies on a cache line");
        must(gaddr_offset(address) >= MEMORY_LOCK_TABLE_OFFSET &&
                 gaddr_offset(address) + reply->block_bytes <= POOL_BYTES,
             "a block within the pool");
        for (size_t j = 0; j < world->block_count; j++) {
            const struct block *other = &world->blocks[j];
            must(address + reply->block_bytes <= other->address || other->address + other->bytes <= address,
                 "no block is given twice");
        }
        if (world->block_count < BLOCKS_MAX)
            world->blocks[world->block_count++] = (struct block){address, reply->block_bytes};
        else
            world->formatted = true; /* not known any more */
    }
}

static void check_returned(struct world *world)
{
    for (uint32_t i = 0; i < world->call.count; i++) {
        uint32_t bytes = world->call.block_bytes ? world->call.block_bytes : world->call.sizes[i];
        size_t at = 0;
        while (at < world->block_count &&
               (world->blocks[at].address != world->call.blocks[i] || world->blocks[at].bytes != bytes))
            at++;
        must(at < world->block_count, "what was not given is not taken back");
        world->blocks[at] = world->blocks[--world->block_count];
    }
}

/* Refusals and sizes are what request.h says; what is granted is new to all. */
static void check_log(struct world *world, const struct memory_log_request *asked, const uint8_t *body,
                      size_t length)
{
    struct memory_log_reply reply;
    if (asked->kind == MEMORY_LOG_LIST || asked->kind == MEMORY_LOG_PROCESSES)
        return;
    must(length == sizeof reply, "the reply about a log is whole");
    memcpy(&reply, body, sizeof reply);
    const struct memory_log_segment *segment = &reply.segment;
    must(reply.refusal < MEMORY_LOG_REFUSALS && reply.used <= reply.most, "logs have no more than they may");
    must(reply.refusal == MEMORY_LOG_GRANTED || segment->bytes == 0, "a refusal grants nothing");
    if (reply.control != GADDR_NULL)
        world->control = reply.control;
    if (segment->bytes == 0)
        return;
    must(asked->kind == MEMORY_LOG_TAKE && segment->bytes % MEMORY_LOG_SEGMENT_LEAST == 0 &&
             segment->bytes <= MEMORY_LOG_SEGMENT_MOST &&
             (segment->bytes <= asked->bytes || segment->bytes == MEMORY_LOG_SEGMENT_LEAST),
         "a segment is no larger than was asked");
    must(gaddr_offset(segment->address) >= MEMORY_LOCK_TABLE_OFFSET &&
             gaddr_offset(segment->address) + segment->bytes <= POOL_BYTES,
         "a segment lies within the pool");
    for (size_t i = 0; i < world->block_count; i++) {
        const struct block *other = &world->blocks[i];
        must(segment->address + segment->bytes <= other->address ||
                 other->address + other->bytes <= segment->address,
             "a segment is nobody's block");
    }
    world->segments[world->segment_count++ % LOGS_MAX] = *segment;
}

static void check_result(struct world *world, const struct wire_header *head, const uint8_t *body)
{
    uint8_t copy[sizeof(struct memory_usage_reply) + sizeof(struct memory_peers_reply)] = {0};
    must(head->status <= 0 && head->status >= BANYAN_EVERSION, "results have a status of ours");
    must(head->length <= WIRE_SMALL_MAX && (!head->status || !head->length), "errors have no reply");
    memcpy(copy, body, head->length < sizeof copy ? head->length : sizeof copy);
    uint32_t kind = world->call.kind;
    const struct memory_log_request log_call = world->log_call;
    world->call.kind = world->log_call.kind = 0;
    if (head->status || world->formatted)
        return;
    if (log_call.kind) {
        check_log(world, &log_call, body, head->length);
        return;
    }
    world->formatted = kind == 0; /* a call that was put together of raw bytes */
    if (kind == MEMORY_ALLOCATE)
        check_given(world, (const struct memory_allocate_reply *)(const void *)copy, head->length);
    else if (kind == MEMORY_FREE)
        check_returned(world);
}

struct used {
    struct memory_node *node;
    size_t blocks, log_blocks;
    uint64_t log_bytes;
};

static void count_block(void *context, gaddr address, uint32_t bytes)
{
    struct used *used = context;
    if (memory_node_is_log(used->node, address)) {
        used->log_blocks++;
        used->log_bytes += bytes;
    } else {
        used->blocks++;
    }
}

/* Everything is taken by the peer; welcomes are remembered. */
static void drain(struct world *world, struct memoryd_session *session)
{
    struct memoryd_buffer *out = &session->out;
    struct wire_header head;
    while (out->start < out->ready) {
        must(out->ready - out->start >= sizeof head, "whole heads are sent");
        memcpy(&head, out->bytes + out->start, sizeof head);
        must(wire_header_valid(&head), "heads that are sent are valid");
        must(out->ready - out->start - sizeof head >= head.length, "whole messages are sent");
        if (head.kind == WIRE_WELCOME) {
            struct wire_welcome welcome;
            memcpy(&welcome, out->bytes + out->start + sizeof head, sizeof welcome);
            if (session->role == WIRE_CONTROL) {
                world->compute_id = welcome.compute_id;
                world->group_key = welcome.group_key;
            }
        } else if (head.kind == WIRE_RESULT && session->role != WIRE_FORMATTER) {
            check_result(world, &head, out->bytes + out->start + sizeof head);
        } else if (head.kind == WIRE_RESULT) {
            world->formatted |= !head.status;
        }
        out->start += sizeof head + head.length;
    }
}

static void session_end(struct world *world, unsigned index, enum memoryd_leaving how)
{
    struct memoryd_session *session = world->sessions[index];
    if (session == NULL)
        return;
    drain(world, session); /* what it did before counts */
    memoryd_session_leave(session, how, "fuzz");
    memoryd_session_finish(session);
    free(session);
    world->sessions[index] = NULL;
}

static void run(struct world *world, unsigned index)
{
    for (;;) {
        struct memoryd_session *session = session_of(world, index);
        enum session_result result = memoryd_session_run(session);
        must(session->out.start <= session->out.ready && session->out.ready <= session->out.end,
             "output is in order");
        must(memoryd_buffer_held(&session->in) <= INPUT_MOST, "input is bounded");
        must(memoryd_buffer_held(&session->out) <= OUTPUT_MOST, "output is bounded");
        if (result == SESSION_MORE) {
            must(session->need > memoryd_buffer_held(&session->in), "it waits for what is not there");
            must(session->need <= FABRIC_LENGTH_MAX + 65536u, "it waits for what may come");
            return;
        }
        if (result == SESSION_BROKEN || result == SESSION_FENCED || result == SESSION_ENDED) {
            if (result == SESSION_BROKEN)
                must(session->why[0] != 0, "it says why");
            session_end(world, index, result == SESSION_ENDED ? MEMORYD_GOODBYE : MEMORYD_BROKEN);
            return;
        }
        drain(world, session); /* paused, or descriptors */
        memoryd_session_descriptors_sent(session);
    }
}

static void feed(struct world *world, unsigned index, const void *bytes, size_t length)
{
    world->fed = session_of(world, index);
    must(memoryd_buffer_append(&session_of(world, index)->in, bytes, length), "memory");
    run(world, index);
}

static void feed_hello(struct world *world, unsigned index, uint8_t how)
{
    struct wire_hello hello = {.magic = WIRE_MAGIC,
                               .version = WIRE_VERSION,
                               .role = how & 7u,
                               .map = how >> 7,
                               .instance = INSTANCE + (how >> 5 & 1u),
                               .lease_ms = 1000,
                               .nic = (world->daemon->nic != NULL) ^ (how >> 3 & 1u),
                               .name = "fuzz"};
    struct wire_header head = {.kind = WIRE_HELLO, .length = sizeof hello};
    if (hello.role == WIRE_DATA) {
        hello.compute_id = world->compute_id;
        hello.group_key = world->group_key ^ (how >> 6 & 1u);
    }
    feed(world, index, &head, sizeof head);
    if (world->sessions[index] != NULL)
        feed(world, index, &hello, sizeof hello);
}

static void feed_head(struct world *world, unsigned index, struct fuzz_input *input)
{
    struct wire_header head = {.kind = fuzz_byte(input), .count = fuzz_byte(input)};
    fuzz_take(input, &head.length, 3);
    feed(world, index, &head, sizeof head);
}

/* A command at a place that mostly exists. */
static void feed_command(struct world *world, unsigned index, struct fuzz_input *input)
{
    struct wire_command command = {.operation = fuzz_byte(input)};
    uint32_t place = 0;
    fuzz_take(input, &place, 3);
    fuzz_take(input, &command.length, 2);
    if (command.operation & 0x40)
        command.length <<= 8;
    command.address = gaddr_make(world->daemon->groups.number, place);
    if (command.operation & 0x80)
        command.address |= GADDR_LOCK_REGION;
    command.operation &= 7;
    feed(world, index, &command, sizeof command);
}

static uint32_t take_block_bytes(struct fuzz_input *input)
{
    uint8_t how = fuzz_byte(input);
    return how < 200 ? memory_block_size(how % MEMORY_BLOCK_SIZES) : fuzz_u32(input);
}

/* The result of the call that was just fed is judged while it is known what was asked. */
static void hear(struct world *world, unsigned index)
{
    if (world->sessions[index] != NULL)
        drain(world, world->sessions[index]);
}

/* A call about a log, of one of two processes; segments are mostly some that were taken. */
static void feed_log_call(struct world *world, unsigned index, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input), how = fuzz_byte(input);
    struct wire_header head = {.kind = WIRE_CALL, .length = sizeof(struct memory_log_request)};
    struct memory_log_request call = {
        .kind = MEMORY_LOG + what % 6u,
        .instance = what / 6u % 3u,
        .bytes = (uint64_t)fuzz_byte(input) << (how % 24u),
        .after = how & 128 ? fuzz_byte(input) : 0,
        .process = {.instance = 1 + (what / 18u & 1u),
                    .compute_id = how & 64 ? fuzz_u16(input) : world->compute_id}};
    if (world->segment_count > 0)
        call.segment = world->segments[fuzz_byte(input) %
                                       (world->segment_count < LOGS_MAX ? world->segment_count : LOGS_MAX)];
    if (how & 32)
        call.segment.address += fuzz_u16(input);
    struct memoryd_session *session = session_of(world, index);
    world->call.kind = world->log_call.kind = 0;
    if (!memoryd_buffer_held(&session->in))
        world->log_call = call;
    else
        world->formatted = true; /* no longer known what is whose */
    feed(world, index, &head, sizeof head);
    if (world->sessions[index] != NULL)
        feed(world, index, &call, sizeof call);
    hear(world, index);
    world->log_call.kind = 0;
}

/* A call of any kind, its fields mostly possible; blocks that are returned are mostly some that were given.
 */
static void feed_call(struct world *world, unsigned index, struct fuzz_input *input)
{
    uint8_t kind = fuzz_byte(input);
    if (kind >= 216) {
        feed_log_call(world, index, input);
        return;
    }
    struct memory_free_request call = {.kind = kind % 9};
    struct wire_header head = {.kind = WIRE_CALL, .length = sizeof call};
    uint8_t how = fuzz_byte(input);
    if (call.kind == MEMORY_ALLOCATE || call.kind == MEMORY_FREE) {
        call.block_bytes = take_block_bytes(input);
        call.count = fuzz_byte(input) % 80; /* or what is wanted */
        if (call.kind == MEMORY_ALLOCATE && how & 8) {
            call.count |= (uint32_t)(how >> 4 & 3) << 16; /* the purpose */
            call.reserved = take_block_bytes(input);      /* the least size that will do */
        }
    } else {
        call.block_bytes = fuzz_byte(input); /* a chunk, or how many peers to skip */
        call.count = how & 1 ? 64u * fuzz_byte(input) : fuzz_u32(input);
    }
    for (uint32_t i = 0; call.kind == MEMORY_FREE && i < call.count && i < MEMORY_BATCH_MAX; i++) {
        const struct block *block =
            world->block_count ? &world->blocks[fuzz_u16(input) % world->block_count] : NULL;
        call.blocks[i] = block ? block->address : fuzz_u64(input);
        if (block && i == 0 && how & 2)
            call.block_bytes = block->bytes;
        call.sizes[i] = block ? block->bytes : take_block_bytes(input);
        if (how & 16) { /* a log's, which is not taken */
            const struct memory_log_segment *segment = &world->segments[i % LOGS_MAX];
            call.blocks[i] = how & 32 ? world->control : segment->address;
            call.sizes[i] = how & 32 ? MEMORY_LOG_CONTROL_BYTES : (uint32_t)segment->bytes;
        }
        if (how & 4)
            call.blocks[i] += fuzz_byte(input);
    }
    if (call.kind == MEMORY_FREE && how & 8)
        call.block_bytes = 0; /* of several sizes */
    if (how & 128)
        head.length = fuzz_byte(input);
    struct memoryd_session *session = session_of(world, index);
    world->call.kind = 0;
    if (!memoryd_buffer_held(&session->in) && head.length == sizeof call)
        world->call = call;
    else
        world->formatted = true; /* no longer known what is whose */
    feed(world, index, &head, sizeof head);
    if (world->sessions[index] != NULL)
        feed(world, index, &call, head.length);
    hear(world, index);
    world->call.kind = 0;
}

static void feed_attach(struct world *world, unsigned index, struct fuzz_input *input)
{
    struct wire_nic end = {0};
    uint8_t how = fuzz_byte(input);
    struct wire_header head = {.kind = WIRE_ATTACH, .length = how & 1 ? how : sizeof end};
    fuzz_take(input, &end, how & 2 ? sizeof end : 0);
    end.mtu = how >> 4;
    feed(world, index, &head, sizeof head);
    if (world->sessions[index] != NULL)
        feed(world, index, &end, sizeof end < head.length ? sizeof end : head.length);
}

/* What the keeper does when the NIC says so. */
static void break_queue(struct world *world, unsigned index)
{
    const struct memoryd_session *session = world->sessions[index];
    if (session != NULL && session->queue != NULL)
        memoryd_groups_break(world->daemon, session->queue, "fuzz");
}

static void feed_raw(struct world *world, unsigned index, struct fuzz_input *input, size_t length)
{
    uint8_t bytes[65536] = {0};
    fuzz_take(input, bytes, length < input->length ? length : input->length);
    feed(world, index, bytes, length);
}

static void step(struct world *world, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input);
    unsigned index = what % CONNECTIONS;
    uint16_t length;
    switch (what / CONNECTIONS % 8) {
    case 0:
        if (what & 128)
            feed_call(world, index, input);
        else
            feed_raw(world, index, input, fuzz_byte(input));
        break;
    case 1:
        fuzz_take(input, &length, 2);
        feed_raw(world, index, input, length);
        break;
    case 2:
        feed_hello(world, index, fuzz_byte(input));
        break;
    case 3:
        feed_head(world, index, input);
        break;
    case 4:
        feed_command(world, index, input);
        break;
    case 5:
        if (what & 128)
            feed_attach(world, index, input);
        else
            drain(world, session_of(world, index));
        break;
    case 6:
        session_end(world, index, what & 0x80 ? MEMORYD_LOST : MEMORYD_GOODBYE);
        break;
    default:
        if (what & 128)
            break_queue(world, index);
        world->now += UINT64_C(1000000) * fuzz_byte(input) * 16;
        memoryd_groups_step(world->daemon, world->now);
        break;
    }
    if (world->sessions[index] != NULL)
        drain(world, world->sessions[index]);
}

/* True: it is not as it was at first. */
static bool world_end(struct world *world)
{
    struct used used = {.node = world->node};
    struct memory_status_reply status;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        session_end(world, i, MEMORYD_LOST);
    world->nic.obeys = true;
    must(world->nic.queues == 0, "queue pairs end with their connections");
    memoryd_groups_step(world->daemon, world->now + UINT64_C(2000000000));
    must(world->daemon->groups.count == 0, "all groups end with their connections");
    memory_node_each_used(world->node, count_block, &used);
    memory_node_status(world->node, &status);
    must(status.blocks_used == used.blocks + used.log_blocks, "the blocks in use are as many as it says");
    must(used.log_blocks == status.log_processes + status.log_segments &&
             used.log_bytes == status.log_bytes + status.log_processes * MEMORY_LOG_CONTROL_BYTES,
         "the logs' blocks are those that it knows of");
    must(world->formatted || used.blocks == world->block_count, "those in use are those that were given");
    return used.blocks || used.log_blocks || world->formatted;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    static struct world *world;
    if (!world)
        world = world_make();
    world->now = task_now();
    world->nic = (struct memoryd_nic){.world = world};
    world->daemon->nic = length % 2 ? &world->nic : NULL;
    while (input.length > 0)
        step(world, &input);
    if (world_end(world)) {
        memoryd_destroy(world->daemon);
        memory_node_destroy(world->node);
        free(world);
        world = NULL;
    }
    return 0;
}
