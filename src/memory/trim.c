/*
 * trim.c - memory that comes back: chunks of which nothing has been used for a while go back to the system.
 *
 * Called by what keeps the node alive (the daemon's keeper, the server's cron) about once a second, on one
 * thread at a time. The node's spin lock is held for at most a megabyte's pages at a time, some ten
 * microseconds, so that nothing of what is given back is handed out meanwhile. Where there are huge pages it
 * is a whole one: the system would split one of which a part goes, and keep the memory until the rest goes
 * too. Pages that a NIC writes to stay (memory_node_pin).
 *
 * A reader with a stale link may read such a chunk meanwhile: it finds zeros, which are no node and no
 * record.
 */
#include "memory/node.h"

#define STEP_BYTES (UINT64_C(1) << 20)

/* One step of giving `count` chunks back; false: they are not idle any more. */
static bool trim_step(struct memory_node *node, uint32_t chunk, uint32_t count, uint64_t at, uint64_t bytes)
{
    uint32_t first = chunk;
    spinlock_lock(&node->lock);
    bool idle = !node->pool.pinned && blocks_idle(node->blocks, node->return_ns, &first, count) == count &&
                first == chunk;
    if (idle)
        pages_release(&node->pool, memory_node_first_chunk(node) + chunk * node->chunk_bytes + at, bytes);
    if (idle && at + bytes == count * node->chunk_bytes) {
        blocks_untouched(node->blocks, chunk, count);
        node->returned_total += count;
    }
    spinlock_unlock(&node->lock);
    return idle;
}

static uint64_t step_most(const struct memory_node *node)
{
    return node->pool.whole > STEP_BYTES ? node->pool.whole : STEP_BYTES;
}

/* Explicit huge pages are few, and a step of their own for each would not begin where one does. */
static void trim_chunks(struct memory_node *node, uint32_t chunk, uint32_t count)
{
    uint64_t bytes = count * node->chunk_bytes, step = step_most(node);
    if (node->pool.unit >= STEP_BYTES || bytes < step)
        step = bytes;
    for (uint64_t at = 0; at < bytes && trim_step(node, chunk, count, at, step); at += step)
        ;
}

bool memory_node_trim(struct memory_node *node, uint64_t now, uint64_t most_bytes)
{
    const uint64_t together = node->pool.unit > STEP_BYTES ? 4 * node->pool.unit : step_most(node);
    const uint32_t most = together > node->chunk_bytes ? (uint32_t)(together / node->chunk_bytes) : 1;
    uint64_t bytes = 0;
    spinlock_lock(&node->lock);
    blocks_tick(node->blocks, now);
    memory_evacuations_expire(node, now);
    spinlock_unlock(&node->lock);
    for (uint32_t chunk = 0, count; bytes < most_bytes; chunk += count, bytes += count * node->chunk_bytes) {
        spinlock_lock(&node->lock);
        count = node->pool.pinned ? 0 : blocks_idle(node->blocks, node->return_ns, &chunk, most);
        spinlock_unlock(&node->lock);
        if (count == 0)
            return false;
        trim_chunks(node, chunk, count);
    }
    return true;
}
