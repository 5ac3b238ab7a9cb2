/*
 * move_keys.c - see move_keys.h. One round trip for a look; two and one for each key where there is something
 * to move, and what tree_key_block_move costs.
 */
#include "tree/move_keys.h"

#include "tree/access.h"
#include "tree/announce.h"
#include "tree/entries.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/session.h"
#include "tree/unlink.h"

/* A private copy of a leaf. True where it is no live one, or some slot does not prove itself. */
static bool image_names(const struct format_layout *layout, const uint8_t *image, struct format_link link,
                        uint16_t index, uint16_t from)
{
    struct format_header header;
    if (!format_header_decode(layout, image, &header) || !format_header_valid(layout, image) ||
        header.tag != link.tag || header.index != index || header.state != FORMAT_NODE_LIVE)
        return true;
    const uint32_t seed = format_slot_seed(header.tag, header.version);
    for (uint32_t number = 0; number < layout->slots; number++) {
        struct format_slot slot;
        enum format_slot_state state = format_slot_read(layout, image, number, seed, header.lower, &slot);
        if (state == FORMAT_SLOT_INVALID)
            return true;
        if (state == FORMAT_SLOT_TAKEN && slot.block != GADDR_NULL && gaddr_node(slot.block) == from)
            return true;
    }
    return false;
}

int tree_move_keys_look(struct tree_session *session, struct tree *tree, struct format_key key, uint16_t from,
                        bool *names)
{
    const struct format_layout *layout = &tree->layout;
    struct tree_path path;
    *names = true;
    int status = tree_locate(session, tree, key, false, 0, &path);
    if (status)
        return status;
    struct fabric_command read =
        pool_read_command(path.link.address, session->scratch, layout->geometry.leaf_bytes);
    status = pool_execute(&session->pool, gaddr_node(path.link.address), &read, 1);
    if (status)
        return status;
    pool_read_settle(&read);
    *names = image_names(layout, session->scratch, path.link, tree->index, from);
    return 0;
}

static void keys_collect(const struct tree_session *session, uint32_t count, uint16_t from,
                         struct tree_move_keys *keys)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct tree_leaf_entry *entry = &session->entries[i];
        if (entry->block == GADDR_NULL || gaddr_node(entry->block) != from)
            continue;
        keys->more = keys->count == TREE_MOVE_KEYS_MAX;
        if (keys->more)
            return;
        keys->items[keys->count].block = entry->block;
        format_key_store(&keys->items[keys->count++].key, entry->key);
    }
}

int tree_move_keys_find(struct tree_session *session, struct tree *tree, struct format_key key, uint16_t from,
                        struct tree_move_keys *keys)
{
    struct tree_path path;
    struct tree_hold hold;
    struct format_header header;
    uint32_t count;
    keys->count = 0;
    keys->more = false;
    int status = tree_locate(session, tree, key, false, 0, &path);
    if (status)
        return status;
    status = tree_leaf_take(session, tree, path.link, &hold, &header);
    if (status == TREE_RESTART && format_header_departed(&header, path.link, tree->index) &&
        tree_rights_cover_below(session, header.lower))
        status = tree_unlink_finish(session, tree, path.link, &header);
    else if (!status && format_header_side(&header, key)) {
        status = tree_leaf_release_with(session, tree, &hold, TREE_RESTART);
    } else if (!status) {
        status = tree_leaf_entries(session, &tree->layout, session->image.bytes, &header, &count);
        if (!status)
            keys_collect(session, count, from, keys);
        return tree_leaf_release_with(session, tree, &hold, status);
    }
    if (status < 0 || status == TREE_FOREIGN)
        return status;
    tree_path_forget(session, tree, &path);
    return TREE_RESTART;
}

int tree_move_keys_run(struct tree_session *session, struct tree *tree, const struct tree_move_keys *keys,
                       uint32_t *moved)
{
    int status = 0;
    *moved = 0;
    for (uint32_t i = 0; i < keys->count && !status; i++) {
        const struct format_key key = format_key_of(&keys->items[i].key);
        bool done = false;
        status = tree_key_block_move(session, tree, key.bytes, key.length, keys->items[i].block, &done);
        session->stats.operations--; /* it is background work, not a client's */
        *moved += done;
    }
    return status;
}
