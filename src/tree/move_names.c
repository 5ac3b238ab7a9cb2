/* move_names.c - see move_names.h. */
#include "tree/move_names.h"

#include "format/verdict.h"
#include "tree/index.h"
#include "tree/parent.h"
#include "tree/session.h"

/* All headers into session->wide. */
static int headers_read(struct tree_session *session, const struct tree *tree,
                        const struct tree_family *family)
{
    const uint32_t bytes = tree->layout.header_bytes;
    struct fabric_command reads[TREE_FAMILY_MAX];
    struct fabric_list lists[TREE_FAMILY_MAX], *pointers[TREE_FAMILY_MAX];
    int status = tree_reserve_wide(session, (size_t)TREE_FAMILY_MAX * bytes);
    for (uint32_t i = 0; i < family->count && !status; i++) {
        reads[i] = pool_read_command(family->links[i].address, session->wide + (size_t)i * bytes, bytes);
        lists[i] = (struct fabric_list){
            .node = gaddr_node(family->links[i].address), .count = 1, .commands = &reads[i]};
        pointers[i] = &lists[i];
    }
    if (!status)
        status = pool_lists_execute(&session->pool, pointers, family->count);
    for (uint32_t i = 0; i < family->count && !status; i++)
        pool_read_settle(&reads[i]);
    return status;
}

/* Whether the node ends before what its parent names next begins, or at all where that is nothing: its
 * sibling has no entry. (A node that reaches further has taken over what a dead one had.) */
static bool ends_early(const struct tree_family *family, uint32_t number, const struct format_header *header)
{
    if (!header->has_upper)
        return false;
    if (number + 1 < family->count)
        return format_key_compare(header->upper, format_key_of(&family->keys[number + 1])) < 0;
    return family->last || format_key_compare(header->upper, format_key_of(&family->next)) < 0;
}

int tree_move_names_post(struct tree_session *session, struct tree *tree, uint8_t level,
                         const struct tree_family *family, uint32_t *half_done, bool *changed)
{
    const struct format_layout *layout = &tree->layout;
    *half_done = family->count;
    *changed = false;
    int status = headers_read(session, tree, family);
    for (uint32_t i = 0; i < family->count && !status; i++) {
        const uint8_t *image = session->wide + (size_t)i * layout->header_bytes;
        struct format_header header;
        switch (format_node_verdict(layout, image, family->links[i], tree->index, level, &header)) {
        case FORMAT_LIVE:
        case FORMAT_FROZEN:
            if (!ends_early(family, i, &header))
                break;
            *changed = true;
            status = tree_parent_insert(session, tree, (uint8_t)(level + 1), header.upper, header.sibling);
            break;
        case FORMAT_DEAD:
        case FORMAT_SPLITTING:
        case FORMAT_MERGING:
            *half_done = i;
            break;
        default: /* it is being written, or is no more */
            *changed = true;
        }
    }
    return status;
}

int tree_move_names_finish(struct tree_session *session, struct tree *tree, uint8_t level,
                           const struct tree_family *family, uint32_t number, enum tree_move_outcome *outcome)
{
    const struct format_key key = format_key_of(&family->keys[number]);
    const uint16_t node = gaddr_node(family->links[number].address);
    struct tree_move move = {
        .key = key.bytes, .key_length = key.length, .level = level, .from = node, .to = node};
    int status = tree_move_node(session, tree, &move);
    *outcome = move.outcome;
    return status;
}
