/* walk.c - see walk.h. */
#include "tree/walk.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "format/internal_node.h"
#include "memory/walk.h"
#include "memory/walk_message.h"
#include "tree/cache.h"
#include "tree/index.h"
#include "tree/owned_cache_use.h"
#include "tree/selectors.h"
#include "tree/session.h"

/* How often the way's nodes are wanted although the cache is full: so it follows what is hot. */
#define PATH_ONE_IN 16u

/* ---- the decision ---- */

static bool asks(const struct tree_session *session, gaddr node)
{
    return tree_selectors_has(session->compute->walks, gaddr_node(node));
}

/* The same ones for each session, so that simulations repeat. */
static uint64_t draw(struct tree_session *session)
{
    return random_mix(++session->walk_draws * UINT64_C(0x9e3779b97f4a7c15));
}

bool tree_walk_wanted(struct tree_session *session, gaddr node, uint32_t reads,
                      struct tree_walk_choice *choice)
{
    if (!asks(session, node) || reads < 2 || (choice->reads && choice->node == gaddr_node(node)))
        return false;
    if (!choice->drawn)
        choice->draw = draw(session);
    const bool walks = tree_selectors_choose(session->compute->walks, gaddr_node(node), reads, choice->draw);
    choice->drawn = true;
    choice->reads = !walks;
    choice->node = gaddr_node(node);
    return walks;
}

uint64_t tree_walk_began(const struct tree_session *session)
{
    return session->compute->walks ? task_now() : 0;
}

void tree_walk_read(struct tree_session *session, gaddr node, uint64_t began)
{
    if (asks(session, node) && began)
        tree_selectors_read(session->compute->walks, gaddr_node(node), task_now() - began);
}

/* The memory node has answered, or could not. */
static void note(struct tree_session *session, uint16_t node, uint64_t began, int status)
{
    tree_selectors_asked(session->compute->walks, node, task_now() - began, status);
    session->stats.walks++;
    session->stats.walks_busy += status == BANYAN_EBUSY;
}

/* ---- asking ---- */

/* Room for the answers, and for so many nodes of `bytes` bytes. */
static uint32_t reply_bytes(uint32_t answers, uint64_t nodes, uint32_t bytes)
{
    const uint64_t wanted = sizeof(struct memory_walk_reply) +
                            answers * (sizeof(struct memory_walk_answer) + FORMAT_VALUE_MAX) +
                            nodes * (sizeof(struct memory_walk_node) + bytes);
    return wanted < MEMORY_WALK_REPLY_MAX ? (uint32_t)wanted : MEMORY_WALK_REPLY_MAX;
}

static void request_put(const struct tree *tree, struct memory_walk_writer *writer,
                        struct memory_walk_request request)
{
    request.index = tree->index;
    request.geometry = memory_walk_geometry_of(&tree->layout.geometry);
    memory_walk_put(writer, &request, sizeof request);
}

static void request_begin(struct tree_session *session, const struct tree *tree,
                          struct memory_walk_writer *writer, struct memory_walk_request request)
{
    *writer = (struct memory_walk_writer){.bytes = session->walk_request,
                                          .capacity = session->walk_request_capacity};
    request_put(tree, writer, request);
}

#define REQUEST_BYTES(keys)                                                                                  \
    ((uint32_t)(sizeof(struct memory_walk_request) +                                                         \
                (keys) * (sizeof(struct memory_walk_start) + FORMAT_KEY_MAX)))

/* False: no memory; then nothing is asked. What lies in the room for replies is gone. */
static bool reserve(struct tree_session *session, uint32_t request, uint32_t reply)
{
    session->brought.rest = (struct memory_walk_reader){0};
    return !tree_reserve(session, &session->walk_request, &session->walk_request_capacity, request) &&
           !tree_reserve(session, &session->walk_reply, &session->walk_reply_capacity, reply);
}

/* Requests to so many memory nodes, together; each call's node, request, reply and capacity are set. */
static void ask_all(struct tree_session *session, struct fabric_call *calls, uint32_t count)
{
    const uint64_t began = task_now();
    struct fabric_call *posted[TREE_WALK_KEYS];
    assert(count <= TREE_WALK_KEYS);
    for (uint32_t i = 0; i < count; i++) {
        calls[i].incarnation = session->pool.incarnation;
        posted[i] = &calls[i];
    }
    fabric_calls(session->pool.endpoint, posted, count, session->pool.cost);
    for (uint32_t i = 0; i < count; i++)
        note(session, calls[i].node, began, calls[i].status);
}

/* One request to one memory node. False: there is no reply. */
static bool ask(struct tree_session *session, uint16_t node, const struct memory_walk_writer *writer,
                struct memory_walk_reader *reader)
{
    struct fabric_call call = {.node = node,
                               .request = writer->bytes,
                               .length = writer->length,
                               .reply = session->walk_reply,
                               .capacity = session->walk_reply_capacity};
    ask_all(session, &call, 1);
    return !call.status && memory_walk_read(reader, call.reply, call.reply_length);
}

/* ---- what comes back ---- */

/* A node of the way goes into the cache, if it proves itself as one that was READ. */
static bool install(struct tree_session *session, struct tree *tree, const struct memory_walk_node *node,
                    const uint8_t *bytes)
{
    const struct format_layout *layout = &tree->layout;
    struct format_header header;
    if (!node->level || node->bytes != layout->geometry.internal_bytes ||
        session->scratch_capacity < node->bytes)
        return false;
    memcpy(session->scratch, bytes, node->bytes);
    return format_internal_valid(layout, session->scratch) &&
           format_header_decode(layout, session->scratch, &header) && header.tag == node->tag &&
           header.index == tree->index && header.level == node->level && header.state != FORMAT_NODE_DEAD &&
           tree_cache_keeps(tree->cache, header.level) &&
           format_internal_decode(layout, session->scratch, &header, session->internal) &&
           tree_cache_install(tree->cache, session->pool.epoch, node->address, session->scratch,
                              session->internal);
}

/* Which levels were installed. */
static uint32_t install_all(struct tree_session *session, struct tree *tree,
                            struct memory_walk_reader *reader)
{
    struct memory_walk_node node;
    const uint8_t *bytes;
    uint32_t levels = 0;
    while (memory_walk_read_node(reader, &node, &bytes)) {
        if (!node.level || !install(session, tree, &node, bytes))
            break;
        levels |= 1u << node.level;
        session->stats.cache_misses++;
    }
    return levels;
}

/* Whether the answer is one, and what it says. */
static bool take_answer(struct tree_session *session, const struct tree *tree,
                        const struct memory_walk_answer *answer, const uint8_t *value,
                        struct tree_finding *finding)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    if (answer->outcome != MEMORY_WALK_HIT && answer->outcome != MEMORY_WALK_MISS)
        return false;
    finding->found = answer->outcome == MEMORY_WALK_HIT;
    finding->link = (struct format_link){.address = answer->address, .tag = answer->tag};
    finding->level = 0;
    finding->length = answer->value_length;
    if (finding->found && (geometry->value_variable ? answer->value_length > geometry->value_bytes
                                                    : answer->value_length != geometry->value_bytes))
        return false;
    memcpy(finding->value, value, answer->value_length);
    session->stats.walks_answered++;
    return true;
}

/* ---- one key ---- */

static bool wants_path(struct tree_session *session, struct tree *tree, uint8_t at)
{
    return tree_cache_keeps(tree->cache, at) &&
           (tree_cache_has_room(tree->cache, (uint64_t)at * tree->layout.geometry.internal_bytes) ||
            draw(session) % PATH_ONE_IN == 0);
}

/* Where a way goes on at another memory node, it is asked too: a READ of that node would cost as much. */
bool tree_walk_find(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t at,
                    struct format_key key, struct tree_finding *finding, uint32_t *levels)
{
    const bool path = wants_path(session, tree, at);
    const uint32_t internal_bytes = tree->layout.geometry.internal_bytes;
    *levels = 0;
    finding->moment = tree_owned_moment(session, tree);
    for (uint32_t hops = 0; hops <= FORMAT_LEVEL_MAX; hops++) {
        struct memory_walk_writer writer;
        struct memory_walk_reader reader;
        struct memory_walk_answer answer;
        const uint8_t *value;
        if (!reserve(session, REQUEST_BYTES(1), reply_bytes(1, path ? at + 2u : 0, internal_bytes)))
            return false;
        request_begin(session, tree, &writer,
                      (struct memory_walk_request){.kind = MEMORY_WALK_FIND, .count = 1, .path = path});
        if (!memory_walk_put_start(&writer, link, at, key) ||
            !ask(session, gaddr_node(link.address), &writer, &reader) ||
            !memory_walk_read_answer(&reader, &answer, &value))
            return false;
        *levels |= install_all(session, tree, &reader);
        if (answer.outcome != MEMORY_WALK_ELSEWHERE)
            return take_answer(session, tree, &answer, value, finding);
        link = (struct format_link){.address = answer.address, .tag = answer.tag};
        at = answer.level;
        if (!asks(session, link.address))
            return false;
    }
    return false;
}

uint32_t tree_walk_fetch(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t at,
                         uint8_t level, struct format_key key, bool before)
{
    struct memory_walk_writer writer;
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    const uint8_t *value;
    if (!reserve(session, REQUEST_BYTES(1), reply_bytes(1, at + 2u, tree->layout.geometry.internal_bytes)))
        return 0;
    request_begin(session, tree, &writer,
                  (struct memory_walk_request){
                      .kind = MEMORY_WALK_FETCH, .count = 1, .down_to = level, .before = before});
    if (!memory_walk_put_start(&writer, link, at, key) ||
        !ask(session, gaddr_node(link.address), &writer, &reader) ||
        !memory_walk_read_answer(&reader, &answer, &value))
        return 0;
    return install_all(session, tree, &reader);
}

/* ---- leaves too ---- */

/* The way's nodes, and behind them leaves, which stay in the reply. False: the way's is not there. */
static bool take_leaves(struct tree_session *session, struct tree *tree, struct memory_walk_reader *reader,
                        const struct memory_walk_answer *answer, struct tree_path *path, uint32_t *levels)
{
    struct memory_walk_node node;
    const uint8_t *bytes;
    bool installs = true;
    session->brought.rest = *reader;
    while (memory_walk_read_node(reader, &node, &bytes) && node.level) {
        session->brought.rest = *reader;
        installs = installs && install(session, tree, &node, bytes);
        if (installs) {
            *levels |= 1u << node.level;
            session->stats.cache_misses++;
        }
        if (node.level == 1)
            path->parent = (struct format_link){.address = node.address, .tag = node.tag};
    }
    return bytes && !node.level && node.address == answer->address && node.tag == answer->tag;
}

bool tree_walk_bring(struct tree_session *session, struct tree *tree, struct format_link link, uint8_t at,
                     struct format_key key, bool before, uint32_t leaves, struct tree_path *path,
                     uint32_t *levels)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    const uint32_t leaf_bytes = (uint32_t)sizeof(struct memory_walk_node) + tree->layout.used_bytes;
    assert(leaves && leaves <= MEMORY_WALK_LEAVES);
    *levels = 0;
    *path = (struct tree_path){.direct = true};
    session->brought.moment = tree_owned_moment(session, tree);
    for (uint32_t hops = 0; hops <= FORMAT_LEVEL_MAX; hops++) {
        struct memory_walk_writer writer;
        struct memory_walk_reader reader;
        struct memory_walk_answer answer;
        const uint8_t *value;
        const uint32_t room = reply_bytes(1, at + 2u, geometry->internal_bytes) + leaves * leaf_bytes;
        if (!reserve(session, REQUEST_BYTES(1), room < MEMORY_WALK_REPLY_MAX ? room : MEMORY_WALK_REPLY_MAX))
            break;
        request_begin(
            session, tree, &writer,
            (struct memory_walk_request){
                .kind = MEMORY_WALK_FETCH, .count = 1, .leaves = (uint8_t)leaves, .before = before});
        if (!memory_walk_put_start(&writer, link, at, key) ||
            !ask(session, gaddr_node(link.address), &writer, &reader) ||
            !memory_walk_read_answer(&reader, &answer, &value))
            break;
        path->link = (struct format_link){.address = answer.address, .tag = answer.tag};
        path->fresh = true;
        const bool leaf = take_leaves(session, tree, &reader, &answer, path, levels);
        if (answer.outcome == MEMORY_WALK_ARRIVED && leaf && path->parent.address != GADDR_NULL) {
            session->stats.walks_answered++;
            return true;
        }
        link = path->link;
        at = answer.level;
        if (answer.outcome != MEMORY_WALK_ELSEWHERE || !at || !asks(session, link.address))
            break;
    }
    session->brought.rest = (struct memory_walk_reader){0};
    return false;
}

bool tree_walk_brought(struct tree_session *session, const struct tree *tree, struct format_link link,
                       uint8_t *to, uint64_t *moment)
{
    const uint32_t used = tree->layout.used_bytes;
    struct memory_walk_node node;
    const uint8_t *bytes;
    if (!memory_walk_read_node(&session->brought.rest, &node, &bytes) || node.level ||
        node.address != link.address || node.tag != link.tag || node.bytes != used) {
        session->brought.rest = (struct memory_walk_reader){0};
        return false;
    }
    memcpy(to, bytes, used);
    memset(to + used, 0, tree->layout.geometry.leaf_bytes - used);
    *moment = session->brought.moment;
    return true;
}

bool tree_walk_look(const struct tree_session *session, const struct tree *tree,
                    struct memory_walk_reader *at, struct format_link *link, struct format_header *header)
{
    const struct format_layout *layout = &tree->layout;
    struct memory_walk_node node;
    const uint8_t *bytes;
    if (!at->bytes)
        *at = session->brought.rest;
    if (!memory_walk_read_node(at, &node, &bytes) || node.level || node.bytes != layout->used_bytes ||
        !format_header_valid(layout, bytes) || !format_header_decode(layout, bytes, header))
        return false;
    *link = (struct format_link){.address = node.address, .tag = node.tag};
    return true;
}

/* ---- several keys ---- */

/* What is asked of one memory node: the keys whose ways go on there. An answer changes its key's link, so
 * which they are is kept. */
struct walk_part {
    uint16_t node, count;
    struct tree_walk_key *keys[TREE_WALK_KEYS];
};

struct walk_parts {
    uint32_t count;
    struct walk_part parts[TREE_WALK_KEYS];
};

static void part_keys(struct walk_parts *parts, struct tree_walk_key *const *keys, uint32_t count)
{
    parts->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint16_t node = gaddr_node(keys[i]->finding.link.address);
        uint32_t at = 0;
        while (at < parts->count && parts->parts[at].node != node)
            at++;
        struct walk_part *part = &parts->parts[at];
        if (at == parts->count) {
            parts->count++;
            part->node = node;
            part->count = 0;
        }
        part->keys[part->count++] = keys[i];
    }
}

static void part_request(const struct tree *tree, const struct walk_part *part,
                         struct memory_walk_writer *writer)
{
    request_put(tree, writer, (struct memory_walk_request){.kind = MEMORY_WALK_FIND, .count = part->count});
    for (uint32_t i = 0; i < part->count; i++)
        memory_walk_put_start(writer, part->keys[i]->finding.link, part->keys[i]->finding.level,
                              part->keys[i]->key);
}

static void part_take(struct tree_session *session, const struct tree *tree, const struct walk_part *part,
                      const struct fabric_call *call)
{
    struct memory_walk_reader reader;
    struct memory_walk_answer answer;
    const uint8_t *value;
    if (call->status || !memory_walk_read(&reader, call->reply, call->reply_length))
        return;
    for (uint32_t i = 0; i < part->count && memory_walk_read_answer(&reader, &answer, &value); i++)
        part->keys[i]->answered = take_answer(session, tree, &answer, value, &part->keys[i]->finding);
}

/* All are asked at once: each has its part of the session's room for requests, and of that for replies. */
void tree_walk_find_many(struct tree_session *session, struct tree *tree, struct tree_walk_key *const *keys,
                         uint32_t count)
{
    struct walk_parts parts;
    struct fabric_call calls[TREE_WALK_KEYS];
    uint32_t requests = 0, replies = 0;
    if (!count || count > TREE_WALK_KEYS)
        return;
    part_keys(&parts, keys, count);
    if (!reserve(session, parts.count * REQUEST_BYTES(0) + REQUEST_BYTES(count),
                 parts.count * reply_bytes(0, 0, 0) + reply_bytes(count, 0, 0)))
        return;
    for (uint32_t i = 0; i < parts.count; i++) {
        const struct walk_part *part = &parts.parts[i];
        struct memory_walk_writer writer = {.bytes = session->walk_request + requests,
                                            .capacity = session->walk_request_capacity - requests};
        part_request(tree, part, &writer);
        calls[i] = (struct fabric_call){.node = part->node,
                                        .request = writer.bytes,
                                        .length = writer.length,
                                        .reply = session->walk_reply + replies,
                                        .capacity = reply_bytes(part->count, 0, 0)};
        requests += (uint32_t)writer.length;
        replies += (uint32_t)calls[i].capacity;
    }
    ask_all(session, calls, parts.count);
    for (uint32_t i = 0; i < parts.count; i++)
        part_take(session, tree, &parts.parts[i], &calls[i]);
}
