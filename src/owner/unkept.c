/* unkept.c - see unkept.h. */
#include "owner/unkept.h"

static bool on_disk(const struct owner *owner)
{
    return tree_wants_logs(owner->compute);
}

void owner_unkept_row(const struct owner *owner, const struct format_range *range,
                      struct tree_rights_row *row)
{
    /* What the map calls logged is, but for a row of a process that has none. */
    const bool logged =
        range->logged && !owner_nobody(range->owner) && (row->right != TREE_OWNED || owner->options.log);
    row->unkept = !logged && row->right != TREE_MOVING && on_disk(owner);
}

bool owner_unkept_nobodys(const struct owner *owner, const struct format_range *range)
{
    return range->state == FORMAT_RANGE_SETTLED && owner_nobody(range->owner) && on_disk(owner);
}

bool owner_unkept_mine(const struct owner *owner, const struct format_range *range)
{
    return range->state == FORMAT_RANGE_SETTLED && fabric_process_equal(range->owner, owner->self) &&
           !(range->logged && owner->options.log) && on_disk(owner);
}

/* An index that was dropped has no entries, as one that was never divided. */
static bool index_nobodys(const struct owner *owner, const struct owner_index *index)
{
    uint32_t count;
    const struct format_range *ranges = owner_map_of(&owner->copy, index->number, &count);
    bool some = !count && !tree_is_dropped(index->tree);
    for (uint32_t i = 0; i < count && !some; i++)
        some = owner_unkept_nobodys(owner, &ranges[i]);
    return some && !owner_map_problem(&owner->copy, index->number);
}

bool owner_unkept_some(struct owner *owner)
{
    bool some = false;
    if (!owner->options.log || !owner_willing(owner) || !on_disk(owner))
        return false;
    owner_turn_take(&owner->adopting);
    for (const struct owner_index *index = owner->indexes; index && !some; index = index->next)
        some = index_nobodys(owner, index);
    owner_turn_give(&owner->adopting);
    return some;
}

int owner_unkept_allow(const struct owner *owner, struct tree_session *session, struct fabric_process to,
                       bool logs)
{
    char text[OWNER_TEXT_BYTES];
    if (logs || !on_disk(owner))
        return 0;
    if (owner_nobody(to))
        return pool_fail(
            tree_session_pool(session), BANYAN_ENOTSUP,
            "memory nodes keep on their disks what owners log, and of a shared range nobody logs "
            "anything: move it to a compute node that keeps a log instead");
    return pool_fail(tree_session_pool(session), BANYAN_ENOTSUP,
                     "memory nodes keep on their disks what owners log, and %s keeps no log: start it with "
                     "--own auto --log auto, or move the ranges to one that does",
                     owner_describe(owner, to, text));
}

int owner_unkept_fail(const struct owner *owner, struct tree_session *session, const struct tree *tree,
                      struct fabric_process peer)
{
    char text[OWNER_TEXT_BYTES];
    const bool nobodys = owner_nobody(peer);
    return pool_fail(tree_session_pool(session), BANYAN_ENET,
                     "memory nodes keep their data on a disk: changes need an owner with a log, and a range "
                     "of the index '%s' %s%s: start a compute node with --own auto --log auto (a program: "
                     "options own and log)",
                     tree_name(tree), nobodys ? "has none" : "belongs to ",
                     nobodys ? "" : owner_describe(owner, peer, text));
}
