/* manifest_joins.c - see manifest.h: what is noted of memory nodes that join. */
#include "disk/manifest.h"

int manifest_join_note(struct manifest *manifest, uint32_t node, uint64_t token, bool joined)
{
    if (node >= MANIFEST_JOINS_MAX)
        return BANYAN_EINVAL;
    struct manifest_join *join = &manifest->joins[node];
    const bool same = join->token == token;
    if (join->state == MANIFEST_JOIN_DONE)
        return same ? 0 : BANYAN_EEXIST;
    if (joined)
        *join = (struct manifest_join){.state = MANIFEST_JOIN_DONE, .token = token};
    else if (token && (join->state == MANIFEST_JOIN_NONE || (join->state == MANIFEST_JOIN_MEANT && same)))
        *join = (struct manifest_join){.state = MANIFEST_JOIN_MEANT, .token = token};
    else
        *join = (struct manifest_join){.state = MANIFEST_JOIN_SEVERAL};
    return 0;
}

bool manifest_join_stands(const struct manifest_join *join, uint64_t token, bool joined)
{
    if (join->state == MANIFEST_JOIN_SEVERAL)
        return !joined;
    return join->token == token &&
           (join->state == MANIFEST_JOIN_DONE || (join->state == MANIFEST_JOIN_MEANT && !joined));
}

bool manifest_join_denies(const struct manifest_join *join, uint64_t token, bool home)
{
    const bool sure = join->state == MANIFEST_JOIN_DONE || (join->state == MANIFEST_JOIN_MEANT && home);
    return sure && join->token && join->token != token;
}
