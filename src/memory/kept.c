/*
 * kept.c - a memory node with a file: what is settled when it is opened, and what its daemon's next life must
 * know. docs/internals/durability.md.
 */
#include <string.h>

#include "base/log.h"
#include "fabric/target.h"
#include "memory/node.h"

_Static_assert(MEMORY_STAGINGS == KEEP_STAGINGS, "each thread that the daemon can have has an area");

/* ---- sizes ---- */

/* What is asked for, if anything is, must be what the file has. */
static int compare(uint64_t *asked, uint64_t kept, const char *what, const struct keep_file *file,
                   struct error *error)
{
    if (*asked != 0 && *asked != kept)
        return error_set(error, BANYAN_EINVAL,
                         "pool file %s was made with %s %llu, not %llu: leave the setting out, or name an "
                         "empty file",
                         keep_file_path(file), what, (unsigned long long)kept, (unsigned long long)*asked);
    *asked = kept;
    return BANYAN_OK;
}

int memory_kept_sizes(struct memory_options *options, const struct keep_file *file, struct error *error)
{
    struct keep_sizes sizes;
    uint64_t width = options->lock_width;
    if (!keep_file_sizes(file, &sizes)) {
        options->pool_bytes = options->pool_bytes != 0 ? options->pool_bytes : MEMORY_POOL_BYTES;
        return BANYAN_OK;
    }
    int status = compare(&options->pool_bytes, sizes.pool_bytes, "a pool of bytes:", file, error);
    if (!status)
        status = compare(&options->chunk_bytes, sizes.chunk_bytes, "chunks of bytes:", file, error);
    if (!status)
        status = compare(&options->lock_bytes, sizes.lock_bytes, "a lock region of bytes:", file, error);
    if (!status)
        status = compare(&options->log_bytes, sizes.log_bytes, "bytes for owners' logs:", file, error);
    if (!status)
        status = compare(&width, sizes.lock_width, "locks of bytes:", file, error);
    options->lock_width = (uint32_t)width;
    return status;
}

/* ---- staging ---- */

bool memory_staging_finish(const struct wire_staging *area, const struct fabric_target *target,
                           uint16_t number, bool *complaint)
{
    uint8_t data[WIRE_STAGING_DATA];
    *complaint = false;
    /* acquire: what was written before the mark is read after it */
    if (atomic_load_acquire(&area->marked) != WIRE_STAGED)
        return false;
    /* Each word is read once (relaxed: the mark has ordered them), then validated: an area that is still
     * being written can make this process copy nonsense to a place where its client could have written it,
     * and nowhere else. */
    uint64_t offset = atomic_load_relaxed(&area->offset), length = atomic_load_relaxed(&area->length);
    if (length - 1 >= WIRE_STAGING_DATA || offset >> GADDR_OFFSET_BITS != 0) {
        *complaint = true;
        return false;
    }
    atomic_copy_from(data, area->data, length);
    struct fabric_command command = {.operation = FABRIC_WRITE,
                                     .length = (uint32_t)length,
                                     .address = gaddr_make(number, offset),
                                     .write = {.data = data}};
    *complaint = fabric_target_execute(target, &command);
    fabric_target_fence();
    return !*complaint;
}

struct wire_staging *memory_node_staging(struct memory_node *node, unsigned thread)
{
    return node->keep.file != NULL && thread < KEEP_STAGINGS ? &node->keep.staging[thread] : NULL;
}

static void finish_staged(struct memory_node *node)
{
    unsigned finished = 0;
    for (unsigned i = 0; i < KEEP_STAGINGS; i++) {
        struct wire_staging *area = &node->keep.staging[i];
        bool complaint;
        finished += memory_staging_finish(area, &node->target, node->number, &complaint);
        if (complaint)
            log_warning("memory node %u: an impossible write stands in a staging area of pool file %s",
                        (unsigned)node->number, keep_name(&node->keep));
        atomic_order_stores();
        area->marked = 0;
        atomic_order_stores();
    }
    if (finished > 0)
        log_info("memory node %u: finished %u writes of its last life", (unsigned)node->number, finished);
}

void memory_kept_settle(struct memory_node *node)
{
    finish_staged(node);
    /* The lock region is new. */
    memset(node->target.pool + MEMORY_LOCK_TABLE_OFFSET, 0, node->target.lock_bytes);
}

/* ---- what the daemon's next life must know ---- */

uint64_t memory_node_instance(const struct memory_node *node)
{
    return node->keep.file != NULL ? keep_instance(&node->keep) : 0;
}

bool memory_pool_file_lost_power(const char *path)
{
    return keep_file_lost_power(path);
}

bool memory_node_was_cut(const struct memory_node *node)
{
    return node->keep.cut;
}

uint16_t memory_node_kept_id(const struct memory_node *node)
{
    return (uint16_t)keep_checked(&node->keep, KEEP_COMPUTE_ID);
}

void memory_node_keep_id(struct memory_node *node, uint16_t compute_id)
{
    keep_check(&node->keep, KEEP_COMPUTE_ID, compute_id);
}

uint32_t memory_node_kept_read_lease(const struct memory_node *node)
{
    return keep_checked(&node->keep, KEEP_READ_LEASE);
}

void memory_node_keep_read_lease(struct memory_node *node, uint32_t ms)
{
    keep_check(&node->keep, KEEP_READ_LEASE, ms);
}
