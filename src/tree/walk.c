/* walk.c - see walk.h. */
#include "tree/walk.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "format/internal_node.h"
#include "memory/walk.h"
#include "memory/walk_message.h"
#include "tree/cache.h"
#include "tree/index.h"
#include "tree/selector.h"
#include "tree/session.h"

/* How often the way's nodes are wanted although the cache is full: so it follows what is hot. */
#define PATH_ONE_IN 16u

struct walk_target {
    struct spinlock lock; /* guards the selector */
    struct selector selector;
} __attribute__((aligned(64)));

struct tree_walks {
    int share; /* the switch: percent, or TREE_WALKS_AUTO */
    uint16_t count;
    struct walk_target targets[]; /* of each memory node */
};

int tree_walks_create(struct tree_walks **made, const struct fabric *fabric,
                      const struct tree_switches *switches, struct error *error)
{
    const uint16_t count = fabric_capabilities(fabric)->memory_nodes;
    struct selector_options options;
    *made = NULL;
    if (switches->walks == TREE_WALKS_NEVER || !fabric_calls_offered(fabric))
        return 0;
    const size_t bytes = sizeof **made + count * sizeof(struct walk_target);
    struct tree_walks *walks = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!walks)
        return error_set(error, BANYAN_ENOMEM, "no memory for a compute node's walks");
    memset(walks, 0, bytes);
    walks->share = switches->walks;
    walks->count = count;
    selector_options_default(&options);
    for (uint16_t i = 0; i < count; i++)
        selector_init(&walks->targets[i].selector, &options);
    *made = walks;
    return 0;
}

void tree_walks_destroy(struct tree_walks *walks)
{
    free(walks);
}

void tree_walks_figures(const struct tree_compute *compute, uint16_t node, struct tree_walks_figures *figures)
{
    struct tree_walks *walks = compute->walks;
    *figures = (struct tree_walks_figures){0};
    if (!walks || node >= walks->count)
        return;
    struct walk_target *target = &walks->targets[node];
    spinlock_lock(&target->lock);
    *figures = (struct tree_walks_figures){.walk_ns = (uint64_t)selector_walk_ns(&target->selector),
                                           .read_ns = (uint64_t)selector_read_ns(&target->selector),
                                           .share = target->selector.share,
                                           .walks = target->selector.walks,
                                           .reads = target->selector.reads};
    spinlock_unlock(&target->lock);
    if (walks->share <= TREE_WALKS_ALWAYS)
        figures->share = walks->share / 100.0;
}

/* ---- the decision ---- */

static struct walk_target *target_of(const struct tree_session *session, gaddr node)
{
    struct tree_walks *walks = session->compute->walks;
    const uint16_t number = gaddr_node(node);
    return walks && number < walks->count ? &walks->targets[number] : NULL;
}

/* The same ones for each session, so that simulations repeat. */
static uint64_t draw(struct tree_session *session)
{
    return random_mix(++session->walk_draws * UINT64_C(0x9e3779b97f4a7c15));
}

bool tree_walk_wanted(struct tree_session *session, gaddr node, uint32_t reads)
{
    struct walk_target *target = target_of(session, node);
    if (!target || reads < 2)
        return false;
    const uint64_t random = draw(session), now = task_now();
    const int share = session->compute->walks->share;
    spinlock_lock(&target->lock);
    bool walks = selector_walks(&target->selector, now, reads, random);
    if (share != TREE_WALKS_AUTO)
        walks = now >= target->selector.refused_until && random % 100 < (uint64_t)share;
    spinlock_unlock(&target->lock);
    return walks;
}

uint64_t tree_walk_began(const struct tree_session *session)
{
    return session->compute->walks ? task_now() : 0;
}

void tree_walk_read(struct tree_session *session, gaddr node, uint64_t began)
{
    struct walk_target *target = target_of(session, node);
    if (!target || !began)
        return;
    const uint64_t now = task_now();
    spinlock_lock(&target->lock);
    selector_read(&target->selector, now, now - began);
    spinlock_unlock(&target->lock);
}

/* The memory node has answered, or could not. */
static void note(struct tree_session *session, uint16_t node, uint64_t began, int status)
{
    struct walk_target *target = &session->compute->walks->targets[node];
    const uint64_t now = task_now();
    spinlock_lock(&target->lock);
    if (!status || status == BANYAN_EBUSY)
        selector_walked(&target->selector, now, now - began, status == BANYAN_EBUSY);
    else if (status == BANYAN_ENOTSUP || status == BANYAN_EINVAL)
        selector_refused(&target->selector, now);
    spinlock_unlock(&target->lock);
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

static void request_begin(struct tree_session *session, const struct tree *tree,
                          struct memory_walk_writer *writer, struct memory_walk_request request)
{
    *writer = (struct memory_walk_writer){.bytes = session->walk_request,
                                          .capacity = session->walk_request_capacity};
    request.index = tree->index;
    request.geometry = memory_walk_geometry_of(&tree->layout.geometry);
    memory_walk_put(writer, &request, sizeof request);
}

#define REQUEST_BYTES(keys)                                                                                  \
    ((uint32_t)(sizeof(struct memory_walk_request) +                                                         \
                (keys) * (sizeof(struct memory_walk_start) + FORMAT_KEY_MAX)))

/* False: no memory; then nothing is asked. */
static bool reserve(struct tree_session *session, uint32_t request, uint32_t reply)
{
    return !tree_reserve(session, &session->walk_request, &session->walk_request_capacity, request) &&
           !tree_reserve(session, &session->walk_reply, &session->walk_reply_capacity, reply);
}

/* One request to one memory node. False: there is no reply. */
static bool ask(struct tree_session *session, uint16_t node, const struct memory_walk_writer *writer,
                struct memory_walk_reader *reader)
{
    const uint64_t began = task_now();
    struct fabric_call call = {.node = node,
                               .incarnation = session->pool.incarnation,
                               .request = writer->bytes,
                               .length = writer->length,
                               .reply = session->walk_reply,
                               .capacity = session->walk_reply_capacity};
    struct fabric_call *calls[1] = {&call};
    fabric_calls(session->pool.endpoint, calls, 1, session->pool.cost);
    note(session, node, began, call.status);
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
        if (!target_of(session, link.address))
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

/* ---- several keys ---- */

/* The keys whose ways go on at this memory node, in one request; false: none. */
static bool many_request(struct tree_session *session, const struct tree *tree, uint16_t node,
                         struct tree_walk_key *const *keys, uint32_t count, struct memory_walk_writer *writer)
{
    struct memory_walk_request request = {.kind = MEMORY_WALK_FIND};
    for (uint32_t i = 0; i < count; i++)
        if (gaddr_node(keys[i]->finding.link.address) == node)
            request.count++;
    request_begin(session, tree, writer, request);
    for (uint32_t i = 0; i < count; i++)
        if (gaddr_node(keys[i]->finding.link.address) == node)
            memory_walk_put_start(writer, keys[i]->finding.link, keys[i]->finding.level, keys[i]->key);
    return request.count > 0;
}

static void many_take(struct tree_session *session, const struct tree *tree, uint16_t node,
                      struct memory_walk_reader *reader, struct tree_walk_key *const *keys, uint32_t count)
{
    struct memory_walk_answer answer;
    const uint8_t *value;
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i]->answered || gaddr_node(keys[i]->finding.link.address) != node)
            continue;
        if (!memory_walk_read_answer(reader, &answer, &value))
            return;
        keys[i]->answered = take_answer(session, tree, &answer, value, &keys[i]->finding);
    }
}

void tree_walk_find_many(struct tree_session *session, struct tree *tree, struct tree_walk_key *const *keys,
                         uint32_t count)
{
    uint64_t done = 0; /* bit of a key: its memory node was asked */
    if (count > TREE_WALK_KEYS || !reserve(session, REQUEST_BYTES(count), reply_bytes(count, 0, 0)))
        return;
    for (uint32_t i = 0; i < count; i++) {
        const uint16_t node = gaddr_node(keys[i]->finding.link.address);
        struct memory_walk_writer writer;
        struct memory_walk_reader reader;
        struct tree_walk_key *here[TREE_WALK_KEYS];
        uint32_t here_count = 0;
        if (done >> i & 1)
            continue;
        for (uint32_t j = i; j < count; j++)
            if (!(done >> j & 1) && gaddr_node(keys[j]->finding.link.address) == node) {
                done |= UINT64_C(1) << j;
                here[here_count++] = keys[j];
            }
        if (many_request(session, tree, node, here, here_count, &writer) &&
            ask(session, node, &writer, &reader))
            many_take(session, tree, node, &reader, here, here_count);
    }
}
