/*
 * keyblocks.c - The blocks that hold long keys: reading all that a leaf's slots name in one round trip, and
 * writing many at once for a bulk load. Point writes put a single block's write into their own lists
 * (modify.c, split.c, multi.c). A block proves itself by its slot's hash: what was read is the slot's key or
 * it is TREE_RESTART, whatever became of the block since the slot was read.
 */
#include "tree/keyblocks.h"

#include <stdlib.h>

#include "tree/entries.h"
#include "tree/session.h"
#include "tree/subtree.h"

/* Commands grouped by memory node, in lists of at most FABRIC_COMMANDS_MAX. One allocation. */
struct tree_gather {
    uint32_t capacity, count, list_count;
    struct fabric_command *commands;
    struct fabric_list *lists, **pointers;
    uint32_t *entries; /* that each command is for */
};

static int gather_reserve(struct tree_session *session, uint32_t capacity)
{
    if (session->gather && session->gather->capacity >= capacity)
        return 0;
    struct tree_gather *gather =
        malloc(sizeof *gather + capacity * (sizeof *gather->commands + sizeof *gather->lists +
                                            sizeof *gather->pointers + sizeof *gather->entries));
    if (!gather)
        return pool_fail_memory(&session->pool);
    gather->capacity = capacity;
    gather->commands = (struct fabric_command *)(gather + 1);
    gather->lists = (struct fabric_list *)(gather->commands + capacity);
    gather->pointers = (struct fabric_list **)(gather->lists + capacity);
    gather->entries = (uint32_t *)(gather->pointers + capacity);
    free(session->gather);
    session->gather = gather;
    return 0;
}

static bool node_gathered(const struct tree_gather *gather, uint16_t node)
{
    for (uint32_t i = 0; i < gather->list_count; i++)
        if (gather->lists[i].node == node)
            return true;
    return false;
}

static void gather_add(struct tree_gather *gather, struct fabric_list **list, struct fabric_command command,
                       uint32_t entry)
{
    if (!*list || (*list)->count == FABRIC_COMMANDS_MAX) {
        *list = gather->pointers[gather->list_count] = &gather->lists[gather->list_count];
        gather->list_count++;
        **list = (struct fabric_list){.node = gaddr_node(command.address),
                                      .commands = &gather->commands[gather->count]};
    }
    gather->entries[gather->count] = entry;
    gather->commands[gather->count++] = command;
    (*list)->count++;
}

/* One command for each entry that has a block. */
static void gather_fill(struct tree_gather *gather, const struct tree_leaf_entry *entries, uint32_t count,
                        bool write)
{
    gather->count = gather->list_count = 0;
    for (uint32_t first = 0; first < count; first++) {
        uint16_t node = gaddr_node(entries[first].block);
        if (entries[first].block == GADDR_NULL || node_gathered(gather, node))
            continue;
        struct fabric_list *list = NULL;
        for (uint32_t i = first; i < count; i++) {
            struct format_key key = entries[i].key;
            if (entries[i].block == GADDR_NULL || gaddr_node(entries[i].block) != node)
                continue;
            gather_add(gather, &list,
                       write
                           ? pool_write_command(entries[i].block, key.bytes, key.length)
                           : pool_read_command(entries[i].block, (uint8_t *)(uintptr_t)key.bytes, key.length),
                       i);
        }
    }
}

/* One of the addresses is none: which? */
static int gather_blame(struct tree_session *session, const struct tree_gather *gather, int status)
{
    for (uint32_t i = 0; i < gather->count; i++) {
        struct fabric_command command = gather->commands[i];
        if (pool_execute(&session->pool, gaddr_node(command.address), &command, 1) == BANYAN_ECORRUPT) {
            session->stranger = command.address;
            return TREE_RESTART;
        }
    }
    return status;
}

int tree_key_blocks_read(struct tree_session *session, const struct format_layout *layout,
                         const uint8_t *image, const struct tree_leaf_entry *entries, uint32_t count)
{
    int status = gather_reserve(session, layout->slots);
    if (status)
        return status;
    struct tree_gather *gather = session->gather;
    gather_fill(gather, entries, count, false);
    status = pool_lists_execute(&session->pool, gather->pointers, gather->list_count);
    if (status == BANYAN_ECORRUPT)
        return gather_blame(session, gather, status);
    if (status)
        return status;
    for (uint32_t i = 0; i < gather->count; i++) {
        const struct tree_leaf_entry *entry = &entries[gather->entries[i]];
        pool_read_settle(&gather->commands[i]);
        if (format_key_hash(entry->key) != format_slot_hash(layout, image, entry->number)) {
            session->stranger = entry->block;
            return TREE_RESTART;
        }
    }
    return 0;
}

int tree_key_blocks_write(struct tree_session *session, const struct tree_leaf_entry *entries, uint32_t count)
{
    int status = gather_reserve(session, count);
    if (status)
        return status;
    gather_fill(session->gather, entries, count, true);
    return session->gather->list_count
               ? pool_lists_execute(&session->pool, session->gather->pointers, session->gather->list_count)
               : 0;
}

int tree_key_block_prepare(struct tree_session *session, const struct format_layout *layout, gaddr leaf,
                           struct format_key key, struct fabric_command *write, gaddr *block)
{
    int status = tree_key_block_allocate(session, layout, leaf, key.length, block);
    if (status)
        return status;
    *write = pool_write_command(*block, key.bytes, key.length);
    return 0;
}

int tree_leaf_corrupt(struct tree_session *session, gaddr leaf)
{
    if (session->stranger != GADDR_NULL)
        return pool_corrupt(&session->pool, session->stranger,
                            "a key block does not hold the key that its slot tells");
    return pool_corrupt(&session->pool, leaf, "a leaf's slot fails its check");
}
