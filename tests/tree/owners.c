/* owners.c - see owners.h. */
#include "owners.h"

#include <string.h>

#include "base/task.h"

static struct owners_peer *peer_of(struct owners_way *way, struct fabric_process owner)
{
    for (unsigned i = 0; i < way->count; i++)
        if (fabric_process_equal(way->peers[i].process, owner))
            return &way->peers[i];
    return NULL;
}

/* A peer's error is told in the asker's session, as a reply's would be. */
static int told(struct tree_session *session, const struct owners_peer *peer, int status)
{
    return status && status != BANYAN_EFENCED
               ? pool_fail(tree_session_pool(session), status, "%s", tree_session_error(peer->session)->text)
               : status;
}

int owners_lookup(struct owners_way *way, struct tree_session *session, struct fabric_process owner,
                  const void *key, size_t key_length, bool settled, void *value, size_t *length)
{
    struct owners_peer *peer = peer_of(way, owner);
    way->lookups++;
    if (!peer)
        return BANYAN_EFENCED;
    return told(session, peer,
                (settled ? tree_lookup_settled_here : tree_lookup_here)(peer->session, peer->tree, key,
                                                                        key_length, value, length));
}

int owners_exchange(struct owners_way *way, struct tree_session *session, struct fabric_process owner,
                    struct tree_exchange *exchange)
{
    struct owners_peer *peer = peer_of(way, owner);
    way->exchanges++;
    if (!peer)
        return BANYAN_EFENCED;
    return told(session, peer, tree_exchange_here(peer->session, peer->tree, exchange));
}

static int way_lookup(void *context, struct tree_session *session, struct tree *tree,
                      struct fabric_process owner, const void *key, size_t key_length, bool settled,
                      void *value, size_t *length)
{
    (void)tree;
    return owners_lookup(context, session, owner, key, key_length, settled, value, length);
}

static int way_exchange(void *context, struct tree_session *session, struct tree *tree,
                        struct fabric_process owner, struct tree_exchange *exchange)
{
    (void)tree;
    return owners_exchange(context, session, owner, exchange);
}

static int way_many(void *context, struct tree_session *session, struct tree *tree,
                    struct fabric_process owner, struct tree_forwarded *items, uint32_t count)
{
    struct owners_way *way = context;
    (void)tree;
    way->batches++;
    for (uint32_t i = 0; i < count; i++) {
        struct tree_forwarded *item = &items[i];
        item->status = item->exchange ? owners_exchange(way, session, owner, item->exchange)
                                      : owners_lookup(way, session, owner, item->key, item->key_length,
                                                      item->settled, item->value, item->length);
    }
    return 0;
}

static int way_wait(void *context, struct tree_session *session, struct tree *tree,
                    struct fabric_process owner, uint64_t since)
{
    struct owners_way *way = context;
    (void)tree;
    (void)since;
    if (++way->waits >= way->waits_max && way->waits_max)
        return pool_fail(tree_session_pool(session), BANYAN_ENET, "compute node %u cannot be reached",
                         owner.compute_id);
    task_yield();
    return 0;
}

/* What a peer's part has; the reply is as short as `entries` says, so that parts meet. */
struct part {
    uint32_t count, entries;
    size_t lengths[OWNERS_ENTRIES_MAX][2];
    uint8_t keys[OWNERS_ENTRIES_MAX][FORMAT_KEY_MAX], values[OWNERS_ENTRIES_MAX][FORMAT_VALUE_MAX];
};

static bool part_take(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct part *part = context;
    if (part->count == part->entries)
        return false;
    memcpy(part->keys[part->count], key, key_length);
    memcpy(part->values[part->count], value, length);
    part->lengths[part->count][0] = key_length;
    part->lengths[part->count++][1] = length;
    return true;
}

static int way_scan(void *context, struct tree_session *session, struct tree *tree,
                    struct fabric_process owner, const struct tree_range *range, tree_visit_function *visit,
                    void *visit_context, struct tree_scan_end *end)
{
    struct owners_way *way = context;
    struct owners_peer *peer = peer_of(way, owner);
    struct part part = {.entries = way->part_entries ? way->part_entries : OWNERS_ENTRIES_MAX};
    (void)tree;
    way->scans++;
    if (!peer)
        return BANYAN_EFENCED;
    int status = told(session, peer, tree_scan_here(peer->session, peer->tree, range, part_take, &part, end));
    for (uint32_t i = 0; i < part.count && !status; i++)
        if (!visit(visit_context, part.keys[i], part.lengths[i][0], part.values[i], part.lengths[i][1]))
            break;
    return status;
}

const struct tree_forward owners_forward = {
    .lookup = way_lookup, .exchange = way_exchange, .wait = way_wait, .many = way_many, .scan = way_scan};
