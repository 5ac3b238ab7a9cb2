/*
 * fuzz_saving.c - what a memory node's disk is asked for beside its journal (persist/saving.h): calls of
 * SAVE, of two compute nodes that make checkpoints, and of JOURNALS, of operators that let memory nodes join;
 * such that make sense and any bytes, from callers of every role. In between rounds of the disk, faults of
 * it, compute nodes that are fenced, and lives that begin anew behind a cut of power.
 *
 * Oracle: a caller that may not call is refused; what a reply says to stand on the disk is there after any
 * cut, until the end: the number of memory nodes, and which one was to join, or has; the checkpoint that
 * counts is never an earlier one, and one that is prepared is found by the next life; which can be begun.
 */
#include "base/crc32c.h"
#include "base/log.h"
#include "disk/disk_simulated.h"
#include "disk/manifest.h"
#include "fabric/wire.h"
#include "fuzz/fuzz.h"
#include "memory/memory.h"
#include "memory/request.h"
#include "memory/service.h"
#include "persist/disk.h"

#define LOCKS   UINT64_C(1024)
#define CLUSTER UINT64_C(7)
#define NODE    1u
#define NODES   2u
#define STEPS   120u

/* What was said to stand there of the memory node with a number. */
struct promise {
    bool meant, several, joined, asked; /* asked: that it has joined, whatever came of it */
    uint64_t token;                     /* of the one that was meant first, or has joined */
};

struct world {
    struct memory_node *node;
    struct disk *disk;
    struct persist_disk *kept;
    struct promise promises[MANIFEST_JOINS_MAX];
    uint32_t nodes;
    uint64_t token, committed;
    uint64_t number, written; /* of the checkpoint that is being made */
    uint32_t part, check;
};

/* ---- lives ---- */

static void life_begin(struct world *world)
{
    struct error error = {0};
    const struct persist_disk_options options = {.disk = world->disk, .seed = 5};
    fuzz_must(!persist_disk_create(&world->kept, world->node, &options, &error), "%s", error.text);
    memory_node_register(world->node, &persist_disk_service, MEMORY_PERSIST, 2, world->kept);
    memory_node_register(world->node, &persist_disk_journals, MEMORY_JOURNALS, 1, world->kept);
}

static void life_end(struct world *world)
{
    memory_node_unregister(world->node, &persist_disk_journals, world->kept);
    memory_node_unregister(world->node, &persist_disk_service, world->kept);
    persist_disk_destroy(world->kept);
}

static void join_check(const struct manifest_join *join, const struct promise *promise)
{
    const bool joined = join->state == MANIFEST_JOIN_DONE, several = join->state == MANIFEST_JOIN_SEVERAL;
    if (promise->joined)
        fuzz_must(joined && join->token == promise->token, "that one has joined is forgotten");
    else if (promise->several)
        fuzz_must(joined || several, "that several were to join is forgotten");
    else if (promise->meant)
        fuzz_must(joined || several || join->token == promise->token, "that one was to join is forgotten");
    fuzz_must(!joined || promise->asked, "one has joined of which nobody said it");
}

/* What a cut at this moment would leave. */
static struct disk *cut_check(struct world *world, uint64_t prepared_number)
{
    struct error error = {0};
    struct manifest manifest, prepared;
    struct disk *cut = disk_simulated_cut(world->disk);
    fuzz_must(cut && !manifest_open_both(cut, CLUSTER, NODE, NODES, &manifest, &prepared, &error), "%s",
              error.text);
    fuzz_must(manifest.nodes >= world->nodes, "fewer memory nodes than were promised");
    fuzz_must(manifest.token == world->token, "another token");
    fuzz_must(manifest.checkpoint >= world->committed, "an earlier checkpoint");
    fuzz_must(!prepared_number || prepared.checkpoint == prepared_number ||
                  manifest.checkpoint == prepared_number,
              "a prepared checkpoint is forgotten");
    for (uint32_t i = 0; i < MANIFEST_JOINS_MAX; i++)
        join_check(&manifest.joins[i], &world->promises[i]);
    manifest_free(&prepared);
    manifest_free(&manifest);
    return cut;
}

static void power_cut(struct world *world)
{
    struct disk *cut = cut_check(world, 0);
    life_end(world);
    disk_close(world->disk);
    world->disk = cut;
    life_begin(world);
    world->number = 0;
}

/* ---- calls ---- */

/* Its request lies in memory of its own, so that a read behind its end is found. */
static int serve(struct world *world, enum memory_role role, uint16_t compute_id, const void *request,
                 size_t length, void *reply, size_t capacity, size_t *told)
{
    uint8_t *bytes = malloc(length + 1);
    if (!bytes)
        abort();
    memcpy(bytes, request, length);
    struct memory_call call = {.role = role,
                               .compute_id = compute_id,
                               .request = bytes,
                               .length = length,
                               .reply = reply,
                               .capacity = capacity};
    const int status = memory_node_serve(world->node, &call);
    *told = status ? 0 : call.reply_length;
    fuzz_must(status <= 0 && *told <= capacity, "a reply of %zu bytes", *told);
    free(bytes);
    return status;
}

/* That it stands there was said. */
static void promise_take(struct world *world, const struct wire_journals_request *request)
{
    struct promise *promise = &world->promises[request->nodes - 1];
    world->nodes = request->nodes > world->nodes ? request->nodes : world->nodes;
    if (request->joined) {
        fuzz_must(!promise->joined || promise->token == request->token, "two have joined as one number");
        promise->joined = true;
        promise->token = request->token;
    } else if (!promise->joined) {
        promise->several |= !request->token || (promise->meant && promise->token != request->token);
        promise->token = promise->meant ? promise->token : request->token;
        promise->meant = true;
    }
}

static void journals_call(struct world *world, struct fuzz_input *input, struct wire_journals_request request)
{
    struct wire_journals_reply reply;
    const uint8_t how = fuzz_byte(input);
    const enum memory_role role = how & 1 ? (enum memory_role)(1u << how / 2 % 4) : MEMORY_ROLE_FORMATTER;
    const size_t length = how >= 240 ? fuzz_byte(input) % (sizeof request + 1) : sizeof request;
    size_t told;
    request.kind = WIRE_JOURNALS;
    if (length < sizeof request.kind)
        return;
    const bool possible = length == sizeof request && request.nodes <= WIRE_CLUSTER_NODES_MAX &&
                          request.joined <= 1 && request.look <= 1;
    if (role == MEMORY_ROLE_FORMATTER && possible && request.nodes && request.joined && !request.look)
        world->promises[request.nodes - 1].asked = true;
    const int status = serve(world, role, 0, &request, length, &reply, sizeof reply, &told);
    fuzz_must(status || (role == MEMORY_ROLE_FORMATTER && possible), "a call is taken that may not be");
    if (status == BANYAN_EEXIST && possible)
        fuzz_must(world->promises[request.nodes - 1].asked, "a number is taken that nobody has");
    if (status)
        return;
    fuzz_must(told == sizeof reply && reply.busy <= 1 && reply.stands <= 1, "a reply without sense");
    fuzz_must(reply.token == world->token, "another token is told");
    fuzz_must(request.nodes || !reply.stands, "what nobody asked for stands");
    if (reply.stands)
        promise_take(world, &request);
    disk_close(cut_check(world, 0));
}

static void journals_step(struct world *world, struct fuzz_input *input)
{
    struct wire_journals_request request = {0};
    const uint8_t what = fuzz_byte(input);
    if (what >= 248) {
        fuzz_take(input, &request, sizeof request);
    } else {
        request.nodes = what % 8 < 7 ? NODES + what % 4u : what;
        request.token = what / 8 % 4;
        request.joined = what / 32 % 4 == 3;
        request.look = what / 128;
    }
    journals_call(world, input, request);
}

static void save_call(struct world *world, struct fuzz_input *input,
                      const struct memory_save_request *request)
{
    struct memory_save_reply reply = {0};
    const uint8_t how = fuzz_byte(input);
    const size_t length = how >= 248 ? fuzz_byte(input) % (sizeof *request + 1) : sizeof *request;
    const enum memory_role role = how >= 240 ? (enum memory_role)(1u << how % 4) : MEMORY_ROLE_DATA;
    const uint16_t compute_id = how < 16 ? how / 8 : 1; /* mostly one, seldom none */
    size_t told;
    if (length < sizeof request->kind)
        return;
    const int status = serve(world, role, compute_id ? compute_id : (uint16_t)(how == 1 ? 0 : 2), request,
                             length, &reply, sizeof reply, &told);
    if (status)
        return;
    fuzz_must(role == MEMORY_ROLE_DATA && length == sizeof *request, "a call is taken that may not be");
    fuzz_must(reply.state <= MEMORY_SAVE_PREPARED && reply.committed >= world->committed,
              "a reply without sense");
    world->committed = reply.committed;
    /* One whose preparing, or dropping, has failed may be there or not: it stays prepared, as it may count.
     */
    const bool stands = reply.state == MEMORY_SAVE_PREPARED && !reply.busy && !reply.status;
    disk_close(cut_check(world, stands ? reply.number : 0));
}

/* The next thing that a maker does, mostly: bytes of a part, and their end, are right. */
static struct memory_save_request save_next(struct world *world, struct fuzz_input *input)
{
    static const uint32_t actions[] = {MEMORY_SAVE_LOOK,  MEMORY_SAVE_TAKE,    MEMORY_SAVE_LEAVE,
                                       MEMORY_SAVE_BEGIN, MEMORY_SAVE_WRITE,   MEMORY_SAVE_END,
                                       MEMORY_SAVE_DROP,  MEMORY_SAVE_PREPARE, MEMORY_SAVE_COMMIT};
    const uint8_t what = fuzz_byte(input);
    const struct fabric_target *target = memory_node_target(world->node);
    struct memory_save_request request = {.kind = MEMORY_SAVE,
                                          .action = actions[what % 9],
                                          .number = world->number + (what >= 250),
                                          .part = what / 9 % 4 ? world->part : MEMORY_SAVE_TABLE};
    if (request.action == MEMORY_SAVE_BEGIN) {
        request.number = world->number = world->committed + 1 + what / 128;
        world->part = 0;
    } else if (request.action == MEMORY_SAVE_WRITE) {
        request.length = 1 + what;
        request.address = gaddr_make(NODE, MEMORY_FIRST_CHUNK(LOCKS) + 64u * (what % 8u));
        request.offset = request.part == world->part ? world->written : 0;
        world->check = crc32c(request.offset ? world->check : 0, target->pool + gaddr_offset(request.address),
                              request.length);
        world->written = request.offset + request.length;
        world->part = request.part;
    } else if (request.action == MEMORY_SAVE_END) {
        request.part = world->part;
        request.bytes = world->written;
        request.check = world->check;
        world->written = 0;
        world->part = request.part == MEMORY_SAVE_TABLE ? 0 : request.part + 1;
    }
    return request;
}

static void save_step(struct world *world, struct fuzz_input *input)
{
    struct memory_save_request request = save_next(world, input);
    if (fuzz_byte(input) >= 248)
        fuzz_take(input, (uint8_t *)&request + sizeof request.kind, sizeof request - sizeof request.kind);
    save_call(world, input, &request);
}

static void fault(struct world *world, struct fuzz_input *input)
{
    const uint8_t how = fuzz_byte(input);
    if (how % 4 < DISK_FAULTS)
        disk_simulated_fail(world->disk, (enum disk_fault)(how % 4), how / 4 % 8, 1 + how / 32 % 2);
    else
        disk_simulated_capacity(world->disk, how & 4 ? 0 : 4096u * (1 + how / 8));
}

static void step(struct world *world, struct fuzz_input *input)
{
    const uint8_t what = fuzz_byte(input);
    if (what < 80)
        journals_step(world, input);
    else if (what < 160)
        save_step(world, input);
    else if (what < 232)
        persist_disk_round(world->kept);
    else if (what < 238)
        fault(world, input);
    else if (what < 244)
        memory_node_finish(world->node, 1 + what % 2);
    else
        power_cut(world);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    struct error error = {0};
    struct manifest manifest;
    const struct memory_options options = {.node = NODE,
                                           .pool_bytes = MEMORY_FIRST_CHUNK(LOCKS) + (64u << 10),
                                           .chunk_bytes = 64u << 10,
                                           .lock_bytes = LOCKS,
                                           .unformatted = true};
    const struct disk_simulated_options simulated = {.seed = 1 + length};
    struct world *world = calloc(1, sizeof *world);
    log_set_level(LOG_ERROR + 1);
    if (!world || memory_node_create(&world->node, &options, NULL) ||
        memory_node_format(world->node, CLUSTER, NODE, NODES, NULL))
        abort();
    world->disk = disk_simulated_create(&simulated);
    fuzz_must(world->disk, "no memory");
    life_begin(world);
    fuzz_must(!manifest_read(world->disk, &manifest, &error), "%s", error.text);
    world->token = manifest.token;
    manifest_free(&manifest);
    for (unsigned i = 0; i < STEPS && input.length; i++)
        step(world, &input);
    power_cut(world);
    life_end(world);
    disk_close(world->disk);
    memory_node_destroy(world->node);
    free(world);
    return 0;
}
