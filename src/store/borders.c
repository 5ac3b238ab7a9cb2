/* borders.c - see borders.h. */
#include "store/borders.h"

#include <string.h>

#include "pool/pool.h"

struct border {
    struct owner *owner;
    struct tree_session *session;
    struct tree *tree;
    struct format_key key;
    /* of the map */
    bool found, begun, settled;        /* it is there; some range of the index was met; neither range moves */
    bool ended;                        /* a range begins behind it */
    struct fabric_process left, right; /* whose they are; zeros: shared */
    struct format_key_copy end;        /* where that begins */
};

static void range_visit(void *context, const struct owner_range *range)
{
    struct border *border = context;
    const struct format_key lower = {range->lower, range->lower_length};
    if (range->number != tree_number(border->tree))
        return;
    const bool settled = range->state == FORMAT_RANGE_SETTLED;
    const int order = format_key_compare(lower, border->key);
    if (order < 0) {
        border->begun = true;
        border->left = range->owner;
        border->settled = settled;
    } else if (!order) {
        border->found = border->begun;
        border->right = range->owner;
        border->settled = border->settled && settled;
    } else if (!border->ended) {
        border->ended = true;
        format_key_store(&border->end, lower);
    }
}

/* The least key behind it that can be a bound; for keys as long as they may be one that is not the least, but
 * as good. False: there is none. */
static bool key_behind(const struct border *border, struct format_key_copy *behind)
{
    const struct format_geometry *geometry = tree_geometry(border->tree);
    const uint32_t most = geometry->key_bytes < OWNER_BOUND_MAX ? geometry->key_bytes : OWNER_BOUND_MAX;
    uint8_t bytes[FORMAT_KEY_MAX + 1];
    uint32_t length = border->key.length;
    memcpy(bytes, border->key.bytes, length);
    if (geometry->key_kind == FORMAT_KEY_VARIABLE && length < most) {
        bytes[length++] = 0;
    } else {
        uint32_t at = length;
        while (at && bytes[at - 1] == 0xff)
            bytes[--at] = 0;
        if (!at)
            return false;
        bytes[at - 1]++;
        if (geometry->key_kind == FORMAT_KEY_VARIABLE)
            length = at;
    }
    format_key_store(behind, (struct format_key){bytes, length});
    return true;
}

/* A range of one key, or of as few as may be. */
static int cut(struct border *border)
{
    struct format_key_copy behind;
    if (!key_behind(border, &behind))
        return pool_fail(tree_session_pool(border->session), BANYAN_ENOTFOUND,
                         "index %s: no key follows the bound of a range", tree_name(border->tree));
    const struct format_key key = format_key_of(&behind);
    if (border->ended && format_key_compare(key, format_key_of(&border->end)) >= 0)
        return 0; /* it is so short already */
    return owner_split(border->owner, border->session, border->tree, key.bytes, key.length);
}

static int give(struct border *border)
{
    const struct owner_selection selection = {
        .tree = border->tree, .key = border->key.bytes, .key_length = border->key.length, .keyed = true};
    if (fabric_process_equal(border->left, border->right))
        return 0;
    return border->left.compute_id
               ? owner_move(border->owner, border->session, &selection, border->left, NULL)
               : owner_share(border->owner, border->session, &selection, NULL);
}

/* What the map says of the border now. */
static int look(void *context, struct tree_session *session)
{
    struct border *border = context;
    *border =
        (struct border){.owner = border->owner, .tree = border->tree, .session = session, .key = border->key};
    return owner_list(border->owner, session, range_visit, border);
}

/*
 * Under the map's lock no range is on its way: its holder ends the changes that processes which are gone have
 * left, and the others wait. Without it a bound that was left half made could stay for ever: nothing moves
 * with it, so no operation and no keeper takes the lock to end it.
 */
static int look_settled(struct border *border)
{
    int status = look(border, border->session);
    if (status || !border->found || border->settled)
        return status;
    return owner_locked(border->owner, border->session, look, border);
}

int store_border_shift(struct owner *owner, struct tree_session *session, struct tree *tree, const void *key,
                       size_t key_length, bool *shifted)
{
    struct border border = {
        .owner = owner, .session = session, .tree = tree, .key = {key, (uint32_t)key_length}};
    *shifted = false;
    int status = look_settled(&border);
    if (status || !border.found || !border.settled)
        return status;
    status = cut(&border);
    if (!status)
        status = give(&border);
    if (!status)
        status = owner_merge(owner, session, tree, key, key_length);
    *shifted = !status;
    return status;
}
