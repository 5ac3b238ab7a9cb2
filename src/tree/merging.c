/* merging.c - see merging.h. */
#include "tree/merging.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "memory/walk.h"
#include "memory/walk_message.h"
#include "tree/announce.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/logged.h"
#include "tree/owned_cache_use.h"
#include "tree/selectors.h"
#include "tree/session.h"

#define SHARE TREE_LOG_APPLY_MAX
/* As many READs, one after the other, does the owner's own way cost: one, and a WRITE. */
#define SAVED 2u
/* Others go first behind so many entries that were located: no lock is held yet (L5). */
#define LOCATED_MAX 4u
#define ENTRY_BYTES (sizeof(struct memory_merge_entry) + FORMAT_KEY_MAX + FORMAT_VALUE_MAX)
#define REPLY_BYTES (sizeof(struct memory_walk_answer) + FORMAT_VALUE_MAX)

/* An entry under way. */
struct part {
    struct format_link leaf;
    bool located, asked, drains;
    bool written;    /* its leaf has it */
    uint32_t leader; /* the first part of the same leaf, which has its lock */
    uint32_t call;   /* in which it is asked for */
    uint32_t slot;   /* that was written; UINT32_MAX: none */
    bool locked;     /* leaders */
    gaddr block;     /* of the key, which the slot names */
    struct tree_hold hold;
};

struct call {
    struct fabric_call call;
    uint16_t node, count;
    bool certain; /* what came of each of its entries is known */
    size_t length;
    uint8_t request[sizeof(struct memory_walk_request) + SHARE * ENTRY_BYTES];
    uint8_t reply[sizeof(struct memory_walk_reply) + SHARE * REPLY_BYTES];
};

struct tree_merging {
    struct part parts[SHARE];
    struct call calls[SHARE];
    uint32_t call_count;
    struct fabric_command writes[SHARE];
};

/* ---- of a compute node ---- */

/* Changes of leaves in single slots, whose leaves bear no other check than the slots'. */
static bool fits(const struct tree_switches *switches)
{
    return switches->combine == POOL_COMBINE_ALL && switches->write_unit == TREE_WRITE_SLOT &&
           !switches->node_check;
}

int tree_merges_create(struct tree_selectors **made, const struct fabric *fabric,
                       const struct tree_switches *switches, struct error *error)
{
    *made = NULL;
    return fits(switches) ? tree_selectors_create(made, fabric, switches->merge_walks, SAVED,
                                                  "merging at memory nodes", error)
                          : 0;
}

void tree_merges_read(const struct tree_session *session, gaddr node, uint64_t took_ns)
{
    struct tree_selectors *merges = session->compute->merges;
    if (tree_selectors_has(merges, gaddr_node(node)))
        tree_selectors_read(merges, gaddr_node(node), took_ns);
}

static bool wanted(struct tree_session *session, gaddr node)
{
    struct tree_selectors *merges = session->compute->merges;
    const uint64_t random = random_mix(++session->merge_draws * UINT64_C(0x9e3779b97f4a7c15));
    return tree_selectors_has(merges, gaddr_node(node)) &&
           tree_selectors_choose(merges, gaddr_node(node), SAVED, random);
}

static void note(struct tree_session *session, const struct call *call, uint64_t took_ns)
{
    const int status = call->call.status;
    tree_selectors_asked(session->compute->merges, call->node, took_ns, status);
    session->stats.merge_calls++;
    session->stats.merge_busy += status == BANYAN_EBUSY;
}

/* ---- which leaves ---- */

/* As batches of puts do: where an entry's leaf is, before any right is announced. */
static void locate(struct tree_session *session, struct tree *tree, struct tree_merging *merging,
                   const struct unmerged_merge *entries, uint32_t count, struct tree_merged *merged)
{
    for (uint32_t i = 0; i < count; i++) {
        struct part *part = &merging->parts[i];
        struct tree_path path;
        *part = (struct part){.leader = i, .slot = UINT32_MAX};
        if (i && i % LOCATED_MAX == 0)
            task_yield();
        int status = tree_begin(session, tree);
        session->stats.operations--; /* those that are merged are counted when they are */
        if (!status)
            do {
                session->finding = NULL;
                status = tree_locate(session, tree, entries[i].key, false, 0, &path);
            } while (tree_again(session, tree, &status));
        part->located = merged[i].located = !status;
        if (!status)
            part->leaf = merged[i].leaf = path.link;
    }
}

/* The first part of the same leaf; false: its lock is not to be had at once, and it is left to the owner. */
static bool lock(struct tree_session *session, struct tree_merging *merging, uint32_t number)
{
    struct part *part = &merging->parts[number];
    for (uint32_t i = 0; i < number; i++)
        if (merging->parts[i].locked && merging->parts[i].leaf.address == part->leaf.address) {
            part->leader = i;
            return merging->parts[i].leaf.tag == part->leaf.tag;
        }
    session->right = TREE_OWNED;
    part->locked = tree_lock_try_local(session, part->leaf.address, true, &part->hold);
    return part->locked;
}

/* ---- requests ---- */

static struct call *call_of(struct tree_merging *merging, uint16_t node)
{
    for (uint32_t i = 0; i < merging->call_count; i++)
        if (merging->calls[i].node == node)
            return &merging->calls[i];
    struct call *call = &merging->calls[merging->call_count++];
    call->node = node;
    call->count = 0;
    call->certain = false;
    call->length = sizeof(struct memory_walk_request);
    return call;
}

static void add(struct tree_merging *merging, uint32_t number, const struct unmerged_merge *entry)
{
    struct part *part = &merging->parts[number];
    struct call *call = call_of(merging, gaddr_node(part->leaf.address));
    const uint32_t length = entry->deleted ? 0 : entry->length;
    struct memory_walk_writer writer = {
        .bytes = call->request, .length = call->length, .capacity = sizeof call->request};
    const struct memory_merge_entry head = {.leaf = part->leaf.address,
                                            .tag = part->leaf.tag,
                                            .key_length = (uint8_t)entry->key.length,
                                            .value_length = (uint8_t)length,
                                            .deleted = entry->deleted};
    bool room = memory_walk_put(&writer, &head, sizeof head) &&
                memory_walk_put(&writer, entry->key.bytes, entry->key.length) &&
                memory_walk_put(&writer, entry->value, length);
    assert(room); /* a request has room for a share of the longest entries */
    (void)room;
    call->length = writer.length;
    call->count++;
    part->call = (uint32_t)(call - merging->calls);
    part->asked = true;
}

static void finish_request(struct tree_session *session, const struct tree *tree, struct call *call)
{
    const struct memory_walk_request head = {.kind = MEMORY_MERGE,
                                             .index = tree->index,
                                             .count = call->count,
                                             .path = tree->values.released != NULL,
                                             .geometry = memory_walk_geometry_of(&tree->layout.geometry)};
    memcpy(call->request, &head, sizeof head);
    call->call =
        (struct fabric_call){.node = call->node,
                             .incarnation = session->pool.incarnation,
                             .request = call->request,
                             .length = call->length,
                             .reply = call->reply,
                             .capacity = sizeof(struct memory_walk_reply) + call->count * REPLY_BYTES};
}

/* Behind tree_rights_enter_all: the entries that memory nodes are to merge, with their leaves' locks. Which
 * way a memory node's entries go is decided once for a share. */
static void choose(struct tree_session *session, struct tree *tree, struct tree_merging *merging,
                   const struct unmerged_merge *entries, uint32_t count)
{
    struct tree_selectors *merges = session->compute->merges;
    uint64_t decided = 0, asks = 0; /* bits: memory nodes, by their number modulo 64 */
    merging->call_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct part *part = &merging->parts[i];
        const uint64_t bit = UINT64_C(1) << gaddr_node(part->leaf.address) % 64;
        if (!part->located || !tree_selectors_has(merges, gaddr_node(part->leaf.address)))
            continue;
        if (tree_rights_switch(session, tree, entries[i].key) != TREE_OWNED ||
            tree_merge_void(session, tree, entries[i].key))
            continue;
        part->drains = session->drains;
        if (!(decided & bit) && wanted(session, part->leaf.address))
            asks |= bit;
        decided |= bit;
        if (asks & bit && lock(session, merging, i))
            add(merging, i, &entries[i]);
    }
    for (uint32_t i = 0; i < merging->call_count; i++)
        finish_request(session, tree, &merging->calls[i]);
}

/* ---- the cache ---- */

static void cache_begin(struct tree_session *session, const struct tree *tree, struct tree_merging *merging,
                        const struct unmerged_merge *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct part *part = &merging->parts[i];
        if (part->locked)
            tree_owned_begin(session, tree, part->leaf.address, false);
        if (part->asked)
            tree_owned_begin_key(session, tree, entries[i].key);
    }
}

/* What was written in the leaf, as WRITEs, if the leaf is cached whole: its header says how its slots look.
 * False: that does not tell, and the leaf leaves the cache. */
static bool cache_writes(struct tree_session *session, const struct tree *tree, struct tree_merging *merging,
                         const struct unmerged_merge *entries, uint32_t count, uint32_t leader,
                         uint32_t *writes)
{
    const struct format_layout *layout = &tree->layout;
    const struct part *first = &merging->parts[leader];
    uint8_t *image = session->image.bytes;
    struct format_header header;
    *writes = 0;
    session->image.address = GADDR_NULL;
    if (!tree_owned_header(session, tree, first->leaf.address, image))
        return true;
    if (!format_header_decode(layout, image, &header) || header.tag != first->leaf.tag)
        return false;
    const uint32_t seed = format_slot_seed(header.tag, header.version);
    for (uint32_t i = leader; i < count; i++) {
        const struct part *part = &merging->parts[i];
        const struct unmerged_merge *entry = &entries[i];
        if (!part->asked || part->leader != leader || part->slot == UINT32_MAX)
            continue;
        if (entry->deleted)
            format_slot_clear(layout, image, part->slot, seed);
        else if (part->block == GADDR_NULL && format_slot_needs_block(layout, header.lower, entry->key))
            return false;
        else
            format_slot_write(layout, image, part->slot, seed, header.lower, part->block, entry->key,
                              (struct format_key){entry->value, entry->length});
        merging->writes[(*writes)++] = pool_write_command(
            part->leaf.address + layout->slot_offset[part->slot], image + layout->slot_offset[part->slot],
            entry->deleted ? 4 : layout->slot_bytes);
    }
    return true;
}

static void cache_end(struct tree_session *session, const struct tree *tree, struct tree_merging *merging,
                      const struct unmerged_merge *entries, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct part *part = &merging->parts[i];
        uint32_t writes = 0;
        if (!part->locked)
            continue;
        bool known = merging->calls[part->call].certain &&
                     cache_writes(session, tree, merging, entries, count, i, &writes);
        tree_owned_end(session, tree, part->leaf.address, known ? 0 : BANYAN_EUNKNOWN, merging->writes,
                       known ? writes : 0);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct part *part = &merging->parts[i];
        const struct format_key value = {entries[i].value, entries[i].length};
        if (!part->asked)
            continue;
        if (part->written && !part->drains && !entries[i].deleted)
            tree_owned_end_merged(session, tree, part->leaf, entries[i].key, value, entries[i].met);
        else
            tree_owned_end_key(session, tree, entries[i].key,
                               part->written && !entries[i].deleted ? &value : NULL);
    }
}

/* ---- answers ---- */

/* False: the reply says what none can say. */
static bool take_answer(struct tree_session *session, const struct tree *tree, struct part *part,
                        const struct unmerged_merge *entry, const struct memory_walk_answer *answer,
                        const uint8_t *value, struct tree_merged *merged)
{
    const struct format_layout *layout = &tree->layout;
    const struct format_geometry *geometry = &layout->geometry;
    const bool hit = answer->outcome == MEMORY_WALK_HIT, wrote = hit || !entry->deleted;
    merged->located = answer->outcome == MEMORY_WALK_MORE; /* else the leaf is another one by now */
    if (!hit && answer->outcome != MEMORY_WALK_MISS)
        return true;
    if (wrote ? answer->tag >= layout->slots : answer->tag != UINT32_MAX)
        return false;
    if (hit && tree->values.released &&
        (geometry->value_variable ? answer->value_length > geometry->value_bytes
                                  : answer->value_length != geometry->value_bytes))
        return false;
    if (answer->value_length && !tree->values.released)
        return false;
    merged->ended = part->written = true;
    merged->status = 0;
    merged->existed = hit;
    merged->old_length = answer->value_length;
    memcpy(merged->old, value, answer->value_length);
    part->slot = answer->tag;
    part->block = layout->long_keys ? answer->address : GADDR_NULL;
    session->stats.operations++;
    session->stats.merge_answered++;
    if (entry->deleted && hit && part->block != GADDR_NULL)
        pool_block_release(&session->pool, part->block, entry->key.length);
    return true;
}

static void take_reply(struct tree_session *session, const struct tree *tree, struct tree_merging *merging,
                       uint32_t number, const struct unmerged_merge *entries, uint32_t count,
                       struct tree_merged *merged)
{
    struct call *call = &merging->calls[number];
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    const uint8_t *value;
    if (memory_walk_not_done(call->call.status)) {
        call->certain = true;
        return;
    }
    bool good = !call->call.status && memory_walk_read(&reader, call->reply, call->call.reply_length);
    for (uint32_t i = 0; i < count; i++) {
        struct part *part = &merging->parts[i];
        if (!part->asked || part->call != number)
            continue;
        good = good && memory_walk_read_answer(&reader, &answer, &value) &&
               take_answer(session, tree, part, &entries[i], &answer, value, &merged[i]);
        if (good)
            continue;
        merged[i].ended = true;
        merged[i].status =
            pool_fail(&session->pool, BANYAN_EUNKNOWN, "memory node %u may have merged an entry or not: %s",
                      call->node, error_name(call->call.status));
    }
    call->certain = good;
}

void tree_merges_ask(struct tree_session *session, struct tree *tree, const struct unmerged_merge *entries,
                     uint32_t count, struct tree_merged *merged)
{
    struct fabric_call *calls[SHARE];
    for (uint32_t i = 0; i < count; i++)
        merged[i] = (struct tree_merged){0};
    if (!session->compute->merges || !count)
        return;
    if (!session->merging) /* kept: a task may end in the middle of a call */
        session->merging = calloc(1, sizeof *session->merging);
    struct tree_merging *merging = session->merging;
    if (!merging)
        return;
    locate(session, tree, merging, entries, count, merged);
    tree_rights_enter_all(session, tree);
    choose(session, tree, merging, entries, count);
    for (uint32_t i = 0; i < merging->call_count; i++) {
        calls[i] = &merging->calls[i].call;
        tree_selectors_ask(session->compute->merges, merging->calls[i].node);
    }
    if (merging->call_count) {
        cache_begin(session, tree, merging, entries, count);
        const uint64_t began = task_now();
        fabric_calls(session->pool.endpoint, calls, merging->call_count, session->pool.cost);
        const uint64_t took = task_now() - began;
        for (uint32_t i = 0; i < merging->call_count; i++) {
            note(session, &merging->calls[i], took);
            take_reply(session, tree, merging, i, entries, count, merged);
        }
        cache_end(session, tree, merging, entries, count);
    }
    for (uint32_t i = 0; i < count; i++)
        if (merging->parts[i].locked)
            tree_lock_abandon_local(session, &merging->parts[i].hold);
    tree_rights_leave(session);
}
