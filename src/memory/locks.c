/*
 * locks.c - frees the locks of a compute node that was fenced (G6), in the lock region and in the table in
 * the node's DRAM. Where a NIC serves the memory, memoryd/nic_locks.c does this in its place.
 *
 * One thread at a time for one compute node; reads both tables once, after services have finished what they
 * had of it.
 */
#include "memory/node.h"

/* Compute nodes go on taking and releasing locks meanwhile, so a word is cleared only if it still bears the
 * id. Sequentially consistent like every atomic of the fabric (G3): a lock cleared here passes on what its
 * holder had written. */
static uint64_t release_narrow(uint64_t *words, uint64_t count, uint16_t id)
{
    uint64_t released = 0;
    for (uint64_t i = 0; i < count; i++) {
        /* relaxed, here and below: a hint only; the fenced owner takes no more locks, so none is missed. Four
         * locks at once, as almost all are free. */
        if (!atomic_load_relaxed(&words[i]))
            continue;
        uint16_t *locks = (uint16_t *)(void *)&words[i];
        for (unsigned lock = 0; lock < sizeof words[i] / sizeof *locks; lock++) {
            uint16_t expected = id;
            if (atomic_load_relaxed(&locks[lock]) == id &&
                __atomic_compare_exchange_n(&locks[lock], &expected, (uint16_t)0, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_RELAXED))
                released++;
        }
    }
    return released;
}

static uint64_t release_wide(uint64_t *words, uint64_t count, uint64_t id)
{
    uint64_t released = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t expected = id;
        /* relaxed: as above */
        if (atomic_load_relaxed(&words[i]) == id &&
            __atomic_compare_exchange_n(&words[i], &expected, UINT64_C(0), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED))
            released++;
    }
    return released;
}

static uint64_t release_table(const struct memory_node *node, void *table, uint16_t compute_id)
{
    if (node->target.lock_width == 2)
        return release_narrow(table, node->target.lock_bytes / 8, compute_id);
    return release_wide(table, node->target.lock_bytes / 8, compute_id);
}

uint64_t memory_node_release_locks(struct memory_node *node, uint16_t compute_id)
{
    uint8_t *dram = node->target.pool + MEMORY_LOCK_TABLE_OFFSET;
    if (compute_id == 0)
        return 0; /* marks a free lock */
    memory_node_finish(node, compute_id);
    return release_table(node, node->target.locks, compute_id) + release_table(node, dram, compute_id);
}
