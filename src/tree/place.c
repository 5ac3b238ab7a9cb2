/*
 * place.c - where a leaf begins, by its address alone; contract in tree.h (tree_place_after stands in
 * scan.c).
 *
 * A node's lower fence key is written once and never changes, so it may be believed whatever state the leaf
 * is in: live, being split, or dead, as long as the header's check holds and the leaf is the place's by its
 * tag.
 */
#include "format/header.h"
#include "tree/access.h"
#include "tree/index.h"
#include "tree/session.h"

static bool place_possible(struct tree_session *session, const struct tree_place *place)
{
    return pool_knows(&session->pool, gaddr_node(place->address)) && gaddr_offset(place->address) &&
           gaddr_offset(place->address) < GADDR_LOCK_REGION && place->address % 8 == 0;
}

/* One look. TREE_RESTART: the bytes do not fit together, since they are being written, or are no header. */
static int place_look(struct tree_session *session, struct tree *tree, const struct tree_place *place,
                      uint32_t mask, struct tree_place_bound *bound)
{
    const struct format_layout *layout = &tree->layout;
    struct format_header header;
    struct fabric_command read =
        pool_read_command(place->address, session->image.bytes, layout->header_bytes);
    struct fabric_list list = {.node = gaddr_node(place->address), .count = 1, .commands = &read},
                       *one = &list;
    int status = tree_leaves_read(session, tree, &one, 1);
    if (status == BANYAN_EADDRESS) /* no leaf ever was there */
        return BANYAN_ENOTFOUND;
    if (status)
        return pool_list_failed(&session->pool, status, &read, 1);
    format_header_settle(layout, &read);
    if (!format_header_valid(layout, session->image.bytes) ||
        !format_header_decode(layout, session->image.bytes, &header))
        return TREE_RESTART;
    if ((header.tag ^ place->tag) & mask || header.index != tree->index || header.level)
        return BANYAN_ENOTFOUND;
    bound->length = header.lower.length;
    memcpy(bound->bytes, header.lower.bytes, bound->length);
    return 0;
}

int tree_place_find(struct tree_session *session, struct tree *tree, const struct tree_place *place,
                    uint32_t mask, struct tree_place_bound *bound)
{
    int status = tree_begin(session, tree);
    if (!status && !place_possible(session, place))
        return BANYAN_ENOTFOUND;
    for (unsigned i = 0; !status && i < TREE_PATIENCE; i++) {
        status = place_look(session, tree, place, mask, bound);
        if (tree_again(session, tree, &status))
            continue;
        if (status != TREE_RESTART)
            return status;
        status = 0;
    }
    return status ? status : BANYAN_ENOTFOUND;
}
