/*
 * place.c - places of the index as numbers; contract in store.h.
 *
 * From the highest bit down: the leaf's offset in units of 64 bytes (41 bits reach all of a pool), the memory
 * node's number in as many bits as the cluster's numbers need, and what is left of 63 bits for the lowest
 * bits of the leaf's tag, by which a leaf that was put there later is told apart (22 bits with one memory
 * node, 16 with 64). The offset stands first so that the number is small while the pool is.
 */
#include "pool/pool.h"
#include "store/session.h"

#define PLACE_UNIT      64u
#define PLACE_TAIL_BITS 22u /* of node and tag; 41 more for the offset */

/* Bits of a memory node's number. */
static unsigned node_bits(const struct store_session *session)
{
    unsigned nodes = fabric_memory_nodes_most(tree_session_pool(session->tree)->fabric), bits = 0;
    while (bits < PLACE_TAIL_BITS && (nodes - 1) >> bits)
        bits++;
    return bits;
}

int store_place_after(struct store_session *session, const void *key, size_t key_length, uint64_t *place,
                      struct tree_place_bound *bound)
{
    struct tree_place at;
    store_session_rest(session);
    int status = tree_place_after(session->tree, session->store->tree, key, key_length, &at, bound);
    if (status)
        return status;
    unsigned tag_bits = PLACE_TAIL_BITS - node_bits(session);
    uint64_t tail = (uint64_t)gaddr_node(at.address) << tag_bits | (at.tag & ((1u << tag_bits) - 1));
    *place = gaddr_offset(at.address) / PLACE_UNIT << PLACE_TAIL_BITS | tail;
    return 0;
}

int store_place_find(struct store_session *session, uint64_t place, struct tree_place_bound *bound)
{
    unsigned tag_bits = PLACE_TAIL_BITS - node_bits(session);
    uint32_t mask = (1u << tag_bits) - 1, tail = (uint32_t)(place & ((1u << PLACE_TAIL_BITS) - 1));
    uint64_t offset = (place >> PLACE_TAIL_BITS) * PLACE_UNIT;
    store_session_rest(session);
    if (offset >> 47) /* the lock region, or beyond what addresses can say */
        return BANYAN_ENOTFOUND;
    struct tree_place at = {gaddr_make((uint16_t)(tail >> tag_bits), offset), tail & mask};
    return tree_place_find(session->tree, session->store->tree, &at, mask, bound);
}
