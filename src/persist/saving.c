/* saving.c - see saving.h. The lock guards what calls and the disk's thread both look at; files are that
 * thread's alone. */
#include "persist/saving.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "persist/table.h"

/* The kernel is to write while parts come, so that the sync at their end, and the journal's, wait for little.
 */
#define SYNC_BYTES (UINT64_C(8) << 20)
/* A journal that is shorter is no reason for a checkpoint. */
#define LEAST_BYTES (UINT64_C(64) << 20)

_Static_assert(WIRE_CLUSTER_NODES_MAX <= MANIFEST_JOINS_MAX, "any number can be noted");

struct persist_saving {
    struct persist_saving_parts parts;
    uint64_t token;           /* of the directory; never changes */
    struct manifest manifest; /* owned: the one that counts */
    struct manifest next;     /* owned: what is under way, or prepared (then its serial is not 0) */
    struct disk_file *file;   /* owned: the part that is written */
    uint32_t part, check;     /* of it */
    uint64_t written, synced;
    bool whole;      /* the table is there */
    bool doubtful;   /* the disk may have the manifest of a change that failed */
    uint8_t *buffer; /* owned: MEMORY_BLOCK_MAX, while parts are written */

    struct spinlock lock; /* guards what follows */
    uint16_t holder;
    bool busy, drop; /* busy: `request` is to be done; drop: its holder was fenced */
    int status;      /* of the last one */
    uint32_t state;  /* enum memory_save_state */
    bool due;
    struct memory_save_request request;
    uint64_t number, committed, saved_ms, journal_bytes, checkpoint_bytes;
    struct persist_drain_mark *marks; /* owned */
    uint32_t mark_count;
    bool growing;                        /* the manifest is to say `wanted` */
    struct wire_journals_request wanted; /* of one that joins */
    int grown;                           /* what came of the last such change */
    uint32_t nodes;                      /* what the manifest says, as do the joins */
    struct manifest_join joins[MANIFEST_JOINS_MAX];
};

/* ---- sizes ---- */

static uint64_t manifest_bytes(const struct manifest *manifest)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < manifest->part_count; i++)
        bytes += manifest->parts[i].bytes;
    return bytes;
}

static uint64_t journal_bytes(const struct persist_saving *saving)
{
    return journal_end(saving->parts.journal) - saving->manifest.position;
}

/* How long the journal may become while no checkpoint is made: a checkpoint takes a quarter more than the one
 * before, or as much as the journal, and the old one stays until then. An eighth is for what is logged
 * meanwhile (P15). */
static int journal_most(const struct persist_saving *saving, uint64_t *most, uint64_t *all,
                        struct error *error)
{
    uint64_t rest;
    int status = disk_free(saving->parts.disk, &rest, error);
    if (status)
        return status;
    const uint64_t used = disk_used(saving->parts.disk);
    *all =
        rest < UINT64_MAX - used ? used + rest : UINT64_MAX; /* a disk without a limit has that much left */
    const uint64_t checkpoint = manifest_bytes(&saving->manifest);
    const uint64_t needed = *all / 8 + checkpoint / 4 * 9;
    *most = needed < *all ? *all - needed : 0;
    if (!checkpoint)
        *most /= 2;
    return 0;
}

int persist_saving_may_grow(struct persist_saving *saving, struct error *error)
{
    uint64_t most, all;
    int status = journal_most(saving, &most, &all, error);
    if (status)
        return status;
    const uint64_t length = journal_bytes(saving);
    const uint64_t checkpoint = manifest_bytes(&saving->manifest);
    const uint64_t long_enough = checkpoint > LEAST_BYTES ? checkpoint : LEAST_BYTES;
    spinlock_lock(&saving->lock);
    saving->journal_bytes = length;
    saving->checkpoint_bytes = checkpoint;
    saving->due = length >= most / 2 || length >= long_enough;
    const uint32_t state = saving->state;
    spinlock_unlock(&saving->lock);
    if (state >= MEMORY_SAVE_WRITTEN || length < most ||
        (state == MEMORY_SAVE_OPEN && length < most + all / 8))
        return 0;
    return error_set(
        error, BANYAN_ENOSPC,
        "%.80s: of %" PRIu64 " MiB the journal has %" PRIu64
        ", and the rest is for the next checkpoint: it goes on when that is made (BGSAVE or 'banyan "
        "save'; a compute node makes one by itself), or with a higher --disk-limit",
        disk_path(saving->parts.disk), all >> 20, length >> 20);
}

/* ---- what the disk's thread does ---- */

static struct manifest_part *part_add(struct manifest *manifest)
{
    struct manifest_part *grown = realloc(manifest->parts, (manifest->part_count + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    manifest->parts = grown;
    struct manifest_part *part = &grown[manifest->part_count++];
    *part = (struct manifest_part){.entries = 0};
    return part;
}

/* What was begun, and is not prepared, is no checkpoint: its parts go. */
static void clear(struct persist_saving *saving)
{
    struct error error = {0};
    char name[PERSIST_PART_NAME];
    if (saving->file) {
        disk_file_close(saving->file);
        saving->file = NULL;
        persist_part_name(name, saving->next.checkpoint, saving->part);
        (void)disk_remove_if_there(saving->parts.disk, name, &error); /* else the next opening does */
    }
    for (uint32_t i = 0; i < saving->next.part_count; i++)
        (void)disk_remove_if_there(saving->parts.disk, saving->next.parts[i].name, &error);
    manifest_free(&saving->next);
    free(saving->buffer);
    saving->buffer = NULL;
    saving->whole = false;
}

/* What a manifest says of the memory nodes that there are. */
static void members_copy(struct manifest *to, const struct manifest *from)
{
    to->token = from->token;
    to->nodes = from->nodes;
    memcpy(to->joins, from->joins, sizeof to->joins);
}

static int begin(struct persist_saving *saving, const struct memory_save_request *request, bool safe,
                 struct error *error)
{
    struct persist_drain_mark *marks = NULL;
    uint32_t count = 0;
    if (!safe)
        return error_set(error, BANYAN_ENOSPC, "the journal is not on the disk");
    if (request->number <= saving->manifest.checkpoint)
        return error_set(error, BANYAN_EINVAL, "a checkpoint of this number was made before");
    uint8_t *buffer = malloc(MEMORY_BLOCK_MAX);
    int status = buffer ? persist_drain_marks(saving->parts.drain, &marks, &count, error)
                        : error_set(error, BANYAN_ENOMEM, "no memory for a checkpoint");
    if (status) {
        free(buffer);
        return status;
    }
    assert(journal_safe(saving->parts.journal) == journal_end(saving->parts.journal));
    saving->next = (struct manifest){
        .cluster = saving->manifest.cluster, .node = saving->manifest.node, .checkpoint = request->number};
    members_copy(&saving->next, &saving->manifest);
    saving->buffer = buffer;
    saving->whole = false;
    /* What the journal has before this position will go, but for pieces of which the entry is still to come:
     * others are copied again behind it. */
    saving->next.position = persist_drain_forget(saving->parts.drain, journal_end(saving->parts.journal));
    assert(saving->next.position >= saving->manifest.position);
    spinlock_lock(&saving->lock);
    free(saving->marks);
    saving->marks = marks;
    saving->mark_count = count;
    spinlock_unlock(&saving->lock);
    return 0;
}

static int part_open(struct persist_saving *saving, uint32_t part, struct error *error)
{
    char name[PERSIST_PART_NAME];
    persist_part_name(name, saving->next.checkpoint, part);
    int status = disk_remove_if_there(saving->parts.disk, name, error);
    if (!status)
        status = disk_create(saving->parts.disk, name, &saving->file, error);
    if (status)
        return status;
    saving->part = part;
    saving->check = 0;
    saving->written = saving->synced = 0;
    return 0;
}

static int write_part(struct persist_saving *saving, const struct memory_save_request *request,
                      struct error *error)
{
    const struct fabric_target *target = saving->parts.target;
    const uint64_t offset = gaddr_offset(request->address);
    if (!request->length || request->length > MEMORY_BLOCK_MAX ||
        gaddr_node(request->address) != saving->parts.node || offset > target->pool_bytes ||
        request->length > target->pool_bytes - offset)
        return error_set(error, BANYAN_EINVAL, "the bytes of a part lie nowhere in the pool");
    int status = 0;
    if (!saving->file)
        status = part_open(saving, request->part, error);
    if (!status && (saving->part != request->part || saving->written != request->offset))
        status = error_set(error, BANYAN_EINVAL, "part %u: bytes of another place", (unsigned)request->part);
    if (status)
        return status;
    atomic_copy_from(saving->buffer, target->pool + offset, request->length);
    const struct disk_piece piece = {saving->buffer, request->length};
    status = disk_write(saving->file, saving->written, &piece, 1, error);
    if (status)
        return status;
    saving->check = crc32c(saving->check, saving->buffer, request->length);
    saving->written += request->length;
    if (saving->written - saving->synced < SYNC_BYTES)
        return 0;
    saving->synced = saving->written;
    return disk_sync(saving->file, error);
}

static int end_part(struct persist_saving *saving, const struct memory_save_request *request,
                    struct error *error)
{
    if (!saving->file || saving->part != request->part || saving->written != request->bytes ||
        saving->check != request->check)
        return error_set(error, BANYAN_EINVAL,
                         "part %u: the %" PRIu64 " bytes that came are not those that were sent",
                         (unsigned)request->part, saving->file ? saving->written : 0);
    int status = disk_sync(saving->file, error);
    struct manifest_part *part = status ? NULL : part_add(&saving->next);
    if (!status && !part)
        status = error_set(error, BANYAN_ENOMEM, "no memory for a checkpoint's parts");
    if (status)
        return status;
    persist_part_name(part->name, saving->next.checkpoint, saving->part);
    part->bytes = request->bytes;
    part->entries = request->entries;
    part->check = request->check;
    saving->whole = request->part == MEMORY_SAVE_TABLE;
    disk_file_close(saving->file);
    saving->file = NULL;
    return 0;
}

static int commit(struct persist_saving *saving, struct error *error)
{
    struct error warning = {0};
    int status = manifest_replace(saving->parts.disk, &saving->manifest, &saving->next, error);
    if (status)
        return status;
    manifest_free(&saving->manifest);
    saving->manifest = saving->next;
    saving->next = (struct manifest){0};
    free(saving->buffer);
    saving->buffer = NULL;
    /* Both make room alone: what is left the next opening removes. */
    if (disk_remove_if_there(saving->parts.disk, MANIFEST_PREPARED, &warning))
        log_warning("memory node: %s", warning.text);
    return journal_release(saving->parts.journal, saving->manifest.position, error);
}

static int drop(struct persist_saving *saving, struct error *error)
{
    const int status = saving->next.serial
                           ? manifest_forget(saving->parts.disk, &saving->manifest, &saving->next, error)
                           : 0;
    if (!status)
        clear(saving);
    return status;
}

static int act(struct persist_saving *saving, const struct memory_save_request *request, bool safe,
               struct error *error)
{
    switch (request->action) {
    case MEMORY_SAVE_BEGIN:
        return begin(saving, request, safe, error);
    case MEMORY_SAVE_WRITE:
        return write_part(saving, request, error);
    case MEMORY_SAVE_END:
        return end_part(saving, request, error);
    case MEMORY_SAVE_PREPARE:
        /* It would follow a manifest that may not be the one on the disk, and so be taken for an old one. */
        if (saving->doubtful)
            return error_set(error, BANYAN_EUNKNOWN,
                             "a change of the manifest failed: start this memory node again");
        return manifest_prepare(saving->parts.disk, &saving->manifest, &saving->next, error);
    case MEMORY_SAVE_COMMIT:
        return commit(saving, error);
    default:
        assert(request->action == MEMORY_SAVE_DROP);
        return drop(saving, error);
    }
}

static uint32_t state_of(const struct persist_saving *saving)
{
    if (saving->next.serial)
        return MEMORY_SAVE_PREPARED;
    if (!saving->next.checkpoint)
        return MEMORY_SAVE_IDLE;
    return saving->whole ? MEMORY_SAVE_WRITTEN : MEMORY_SAVE_OPEN;
}

/* What calls see now. `dropped`: a drop was made; until here others may not take the place of its holder,
 * since they would still see the dropped one's state. One that was asked for meanwhile stays to be made. */
static void publish(struct persist_saving *saving, uint32_t action, int status, bool dropped)
{
    const uint64_t length = journal_bytes(saving), bytes = manifest_bytes(&saving->manifest);
    spinlock_lock(&saving->lock);
    saving->busy = false;
    if (dropped)
        saving->drop = false;
    saving->status = status;
    saving->state = state_of(saving);
    saving->number = saving->next.checkpoint;
    saving->committed = saving->manifest.checkpoint;
    saving->journal_bytes = length;
    saving->checkpoint_bytes = bytes;
    if (action == MEMORY_SAVE_COMMIT && !status) {
        saving->saved_ms = clock_wall_ms();
        saving->due = false;
    }
    spinlock_unlock(&saving->lock);
}

/* Who takes part in a checkpoint that is under way stays as it is. One that is prepared follows the present
 * manifest, and may count elsewhere: so that one stays until it counts here, or is dropped. */
static int grow(struct persist_saving *saving, const struct wire_journals_request *wanted,
                struct error *error)
{
    struct manifest next = saving->manifest; /* and its parts, which it shares */
    if (saving->next.serial)
        return error_set(error, BANYAN_EBUSY, "checkpoint %" PRIu64 " is prepared, and does not count yet",
                         saving->next.checkpoint);
    next.nodes = wanted->nodes > next.nodes ? wanted->nodes : next.nodes;
    int status = manifest_join_note(&next, wanted->nodes - 1, wanted->token, wanted->joined);
    if (status)
        return error_set(error, status, "another one has joined as number %" PRIu32, wanted->nodes - 1);
    status = manifest_replace(saving->parts.disk, &saving->manifest, &next, error);
    if (status) {
        saving->doubtful |= status != BANYAN_ENOSPC && status != BANYAN_ENOMEM; /* those come before it is */
        return status;
    }
    saving->manifest = next;
    members_copy(&saving->next, &next);
    saving->doubtful = false;
    return 0;
}

/* For calls; the lock is held, or there is no other thread yet. */
static void members_publish(struct persist_saving *saving)
{
    saving->nodes = saving->manifest.nodes;
    memcpy(saving->joins, saving->manifest.joins, sizeof saving->joins);
}

static void grow_step(struct persist_saving *saving)
{
    struct error error = {0};
    spinlock_lock(&saving->lock);
    const bool growing = saving->growing;
    const struct wire_journals_request wanted = saving->wanted;
    spinlock_unlock(&saving->lock);
    if (!growing)
        return;
    const int status = grow(saving, &wanted, &error);
    if (status)
        log_warning("memory node: that another memory node joins is not noted: %s", error.text);
    spinlock_lock(&saving->lock);
    saving->growing = false;
    saving->grown = status;
    members_publish(saving);
    spinlock_unlock(&saving->lock);
}

void persist_saving_step(struct persist_saving *saving, bool safe)
{
    struct memory_save_request request;
    struct error error = {0};
    grow_step(saving);
    spinlock_lock(&saving->lock);
    const bool busy = saving->busy, dropped = saving->drop;
    request = saving->request;
    spinlock_unlock(&saving->lock);
    int status = 0;
    if (busy) {
        status = act(saving, &request, safe, &error);
        if (status)
            log_warning("memory node: checkpoint %" PRIu64 ": %s", request.number, error.text);
        /* What was prepared may count elsewhere; all else cannot be gone on with. */
        if (status && !saving->next.serial)
            clear(saving);
    }
    if (dropped && !saving->next.serial)
        clear(saving);
    if (busy || dropped)
        publish(saving, request.action, status, dropped);
}

/* ---- calls ---- */

/* Whether the action fits the state; the lock is held. */
static bool fits(const struct persist_saving *saving, const struct memory_save_request *request)
{
    const uint32_t state = saving->state;
    if (request->action != MEMORY_SAVE_BEGIN && request->number != saving->number)
        return false;
    switch (request->action) {
    case MEMORY_SAVE_BEGIN:
        return state == MEMORY_SAVE_IDLE && request->number;
    case MEMORY_SAVE_WRITE:
    case MEMORY_SAVE_END:
        return state == MEMORY_SAVE_OPEN;
    case MEMORY_SAVE_PREPARE:
        return state == MEMORY_SAVE_WRITTEN;
    case MEMORY_SAVE_COMMIT:
        return state == MEMORY_SAVE_PREPARED;
    case MEMORY_SAVE_DROP:
        return state != MEMORY_SAVE_IDLE;
    default:
        return false;
    }
}

/* The lock is held. */
static int call_locked(struct persist_saving *saving, uint16_t compute_id,
                       const struct memory_save_request *request, bool *wake)
{
    if (request->action == MEMORY_SAVE_LOOK)
        return 0;
    if (saving->busy || saving->drop || (saving->holder && saving->holder != compute_id))
        return BANYAN_EBUSY;
    if (request->action == MEMORY_SAVE_TAKE) {
        saving->holder = compute_id;
        return 0;
    }
    if (!saving->holder)
        return BANYAN_EINVAL;
    if (request->action == MEMORY_SAVE_LEAVE) {
        saving->holder = 0;
        saving->drop = *wake = saving->state == MEMORY_SAVE_OPEN || saving->state == MEMORY_SAVE_WRITTEN;
        return 0;
    }
    if (!fits(saving, request))
        return BANYAN_EINVAL;
    saving->request = *request;
    saving->busy = *wake = true;
    return 0;
}

static void reply_fill(const struct persist_saving *saving, const struct memory_save_request *request,
                       struct memory_save_reply *reply)
{
    *reply = (struct memory_save_reply){.state = saving->state,
                                        .busy = saving->busy || saving->drop,
                                        .status = saving->status,
                                        .holder = saving->holder,
                                        .due = saving->due,
                                        .number = saving->number,
                                        .committed = saving->committed,
                                        .saved_ms = saving->saved_ms,
                                        .journal_bytes = saving->journal_bytes,
                                        .checkpoint_bytes = saving->checkpoint_bytes,
                                        .total = saving->mark_count};
    for (uint64_t i = request->offset; i < saving->mark_count && reply->count < MEMORY_SAVE_MARKS; i++)
        reply->marks[reply->count++] = (struct memory_save_mark){.instance = saving->marks[i].instance,
                                                                 .sequence = saving->marks[i].sequence};
}

int persist_saving_call(struct persist_saving *saving, uint16_t compute_id,
                        const struct memory_save_request *request, struct memory_save_reply *reply,
                        bool *wake)
{
    *wake = false;
    spinlock_lock(&saving->lock);
    int status = call_locked(saving, compute_id, request, wake);
    if (!status)
        reply_fill(saving, request, reply);
    spinlock_unlock(&saving->lock);
    return status;
}

void persist_saving_fenced(struct persist_saving *saving, uint16_t compute_id)
{
    spinlock_lock(&saving->lock);
    if (saving->holder == compute_id) {
        saving->holder = 0;
        saving->drop =
            saving->state == MEMORY_SAVE_OPEN || saving->state == MEMORY_SAVE_WRITTEN || saving->busy;
    }
    spinlock_unlock(&saving->lock);
}

/* Whether the manifest says what is asked for; the lock is held. */
static bool stands(const struct persist_saving *saving, const struct wire_journals_request *request)
{
    return saving->nodes >= request->nodes &&
           manifest_join_stands(&saving->joins[request->nodes - 1], request->token, request->joined);
}

int persist_saving_join(struct persist_saving *saving, const struct wire_journals_request *request,
                        struct wire_journals_reply *reply, bool *wake)
{
    int status = 0;
    *wake = false;
    spinlock_lock(&saving->lock);
    const bool there = request->nodes && stands(saving, request);
    if (request->nodes && !there && saving->joins[request->nodes - 1].state == MANIFEST_JOIN_DONE)
        status = BANYAN_EEXIST;
    else if (request->nodes && !there && !request->look && !saving->growing) {
        saving->growing = *wake = true;
        saving->wanted = *request;
    }
    *reply = (struct wire_journals_reply){.nodes = saving->nodes,
                                          .busy = saving->growing,
                                          .status = saving->grown,
                                          .stands = there,
                                          .token = saving->token};
    spinlock_unlock(&saving->lock);
    return status;
}

size_t persist_saving_reply_bytes(const struct memory_save_reply *reply)
{
    return offsetof(struct memory_save_reply, marks) + reply->count * sizeof reply->marks[0];
}

/* ---- lifetime ---- */

int persist_saving_create(struct persist_saving **saving, const struct persist_saving_parts *parts,
                          struct manifest *manifest, struct manifest *prepared, struct error *error)
{
    struct persist_saving *made = calloc(1, sizeof *made);
    *saving = made;
    if (!made)
        return error_set(error, BANYAN_ENOMEM, "no memory for a memory node's checkpoints");
    made->parts = *parts;
    made->manifest = *manifest;
    made->next = *prepared;
    *manifest = *prepared = (struct manifest){0};
    made->token = made->manifest.token;
    members_publish(made);
    publish(made, MEMORY_SAVE_LOOK, 0, false);
    return 0;
}

void persist_saving_destroy(struct persist_saving *saving)
{
    if (!saving)
        return;
    if (!saving->next.serial)
        clear(saving);
    manifest_free(&saving->next);
    manifest_free(&saving->manifest);
    free(saving->buffer);
    free(saving->marks);
    free(saving);
}
