/* exchanging.c - see exchanging.h. */
#include "tree/exchanging.h"

#include <assert.h>
#include <string.h>

#include "base/task.h"
#include "memory/walk_message.h"
#include "tree/owned_cache_use.h"
#include "tree/rights.h"
#include "tree/selectors.h"
#include "tree/session.h"

/* So many round trips, one after the other, does the owner's own way cost: a READ and a WRITE. */
#define SAVED 2u
/* One of so many such ways is measured: a look at the clock is not free. */
#define MEASURED 8u
#define REQUEST_BYTES                                                                                        \
    (sizeof(struct memory_walk_request) + sizeof(struct memory_merge_entry) + FORMAT_KEY_MAX +               \
     FORMAT_VALUE_MAX + sizeof(struct memory_exchange_expected) + FORMAT_VALUE_MAX)
#define REPLY_BYTES (sizeof(struct memory_walk_reply) + sizeof(struct memory_walk_answer) + FORMAT_VALUE_MAX)

/* ---- conditions ---- */

/* A request says with the same number what its key must hold. */
_Static_assert((int)TREE_EXPECT_ANYTHING == (int)MEMORY_EXPECT_ANYTHING &&
                   (int)TREE_EXPECT_NOTHING == (int)MEMORY_EXPECT_NOTHING &&
                   (int)TREE_EXPECT_SOMETHING == (int)MEMORY_EXPECT_SOMETHING &&
                   (int)TREE_EXPECT_VALUE == (int)MEMORY_EXPECT_VALUE,
               "what changes expect has other numbers at memory nodes");

bool tree_exchange_met(const struct tree_exchange *exchange, const void *old, size_t length)
{
    return memory_expectation_met(
        (enum memory_expectation)exchange->expect,
        (struct format_key){exchange->expected, (uint32_t)exchange->expected_length}, old,
        (struct format_key){old, (uint32_t)length});
}

/* ---- of a compute node ---- */

/* Changes of leaves in single slots, whose leaves bear no other check than the slots'; and no experiment that
 * wants whole leaves READ. */
static bool fits(const struct tree_switches *switches)
{
    return switches->combine == POOL_COMBINE_ALL && switches->write_unit == TREE_WRITE_SLOT &&
           switches->read_unit == TREE_READ_BUCKET && !switches->node_check;
}

int tree_exchanges_create(struct tree_selectors **made, const struct fabric *fabric,
                          const struct tree_switches *switches, struct error *error)
{
    *made = NULL;
    return fits(switches) ? tree_selectors_create(made, fabric, switches->exchange_walks, SAVED,
                                                  "changes by memory nodes", error)
                          : 0;
}

bool tree_exchanges_on(const struct tree_session *session, const struct tree_exchange *exchange)
{
    return exchange && exchange->expected_length <= FORMAT_VALUE_MAX && session->compute->exchanges &&
           session->right == TREE_OWNED && !session->through && !session->drains;
}

bool tree_exchanges_wanted(struct tree_session *session, const struct tree *tree, gaddr leaf)
{
    struct tree_selectors *exchanges = session->compute->exchanges;
    const uint64_t random = random_mix(++session->exchange_draws * UINT64_C(0x9e3779b97f4a7c15));
    return tree_selectors_has(exchanges, gaddr_node(leaf)) && !tree_owned_keeps(session, tree, leaf) &&
           tree_selectors_choose(exchanges, gaddr_node(leaf), SAVED, random);
}

uint64_t tree_exchanges_began(const struct tree_session *session)
{
    return session->exchange_draws % MEASURED ? 0 : task_now();
}

void tree_exchanges_read(const struct tree_session *session, gaddr node, uint64_t began)
{
    struct tree_selectors *exchanges = session->compute->exchanges;
    if (began && tree_selectors_has(exchanges, gaddr_node(node)))
        tree_selectors_read(exchanges, gaddr_node(node), (task_now() - began) / SAVED);
}

/* ---- the request ---- */

static size_t put_request(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                          const struct tree_exchange *exchange)
{
    const bool conditional = exchange->expect == TREE_EXPECT_VALUE;
    struct memory_walk_writer writer = {.bytes = session->walk_request,
                                        .capacity = session->walk_request_capacity};
    const struct memory_walk_request head = {.kind = MEMORY_EXCHANGE,
                                             .index = tree->index,
                                             .count = 1,
                                             .path = 1,
                                             .geometry = memory_walk_geometry_of(&tree->layout.geometry)};
    const struct memory_merge_entry entry = {.leaf = leaf.address,
                                             .tag = leaf.tag,
                                             .key_length = (uint8_t)exchange->key_length,
                                             .value_length = exchange->value ? (uint8_t)exchange->length : 0,
                                             .deleted = !exchange->value};
    const struct memory_exchange_expected expected = {
        .expects = (uint8_t)exchange->expect, .length = conditional ? (uint8_t)exchange->expected_length : 0};
    const bool room = memory_walk_put(&writer, &head, sizeof head) &&
                      memory_walk_put(&writer, &entry, sizeof entry) &&
                      memory_walk_put(&writer, exchange->key, entry.key_length) &&
                      memory_walk_put(&writer, exchange->value, entry.value_length) &&
                      memory_walk_put(&writer, &expected, sizeof expected) &&
                      memory_walk_put(&writer, exchange->expected, expected.length);
    assert(room); /* a request has room for the longest key and values */
    (void)room;
    return writer.length;
}

static void note(struct tree_session *session, const struct fabric_call *call, uint64_t took_ns)
{
    tree_selectors_asked(session->compute->exchanges, call->node, took_ns, call->status);
    session->stats.exchanges++;
    session->stats.exchanges_busy += call->status == BANYAN_EBUSY;
}

/* ---- the answer ---- */

enum taken { TAKEN_DONE, TAKEN_KEPT /* the key holds what it held */, TAKEN_LEFT, TAKEN_NONSENSE };

/* The one answer of which a reply consists. */
static bool read_reply(const struct fabric_call *call, struct memory_walk_answer *answer,
                       const uint8_t **value)
{
    struct memory_walk_reader reader;
    return memory_walk_read(&reader, call->reply, call->reply_length) &&
           memory_walk_read_answer(&reader, answer, value) && !reader.answers && !reader.nodes &&
           !reader.left;
}

/* An answer that does not say what the key held: nothing was written, if an exchange can have it. */
static enum taken take_end(const struct memory_walk_answer *answer)
{
    switch (answer->outcome) {
    case MEMORY_WALK_STALE:
    case MEMORY_WALK_UNPROVEN:
    case MEMORY_WALK_ASTRAY:
    case MEMORY_WALK_CORRUPT:
    case MEMORY_WALK_MORE:
        return answer->tag == UINT32_MAX ? TAKEN_LEFT : TAKEN_NONSENSE;
    default: /* of a walk that goes down */
        return TAKEN_NONSENSE;
    }
}

/* What the reply says: that the change was made, or not since the key holds something else, or not since it
 * takes more. A reply comes from outside. */
static enum taken take_reply(const struct tree *tree, const struct fabric_call *call,
                             const struct tree_exchange *exchange, struct tree_exchanged *exchanged,
                             gaddr *block)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    struct memory_walk_answer answer;
    const uint8_t *value;
    if (!read_reply(call, &answer, &value))
        return TAKEN_NONSENSE;
    exchanged->existed = answer.outcome == MEMORY_WALK_HIT;
    if (!exchanged->existed && answer.outcome != MEMORY_WALK_MISS)
        return take_end(&answer);
    if (exchanged->existed && (geometry->value_variable ? answer.value_length > geometry->value_bytes
                                                        : answer.value_length != geometry->value_bytes))
        return TAKEN_NONSENSE;
    exchanged->old_length = answer.value_length;
    memcpy(exchanged->old, value, answer.value_length);
    *block = tree->layout.long_keys ? answer.address : GADDR_NULL;
    const bool writes =
        tree_exchange_met(exchange, exchanged->existed ? exchanged->old : NULL, exchanged->old_length) &&
        (exchange->value || exchanged->existed);
    if (writes ? answer.tag >= tree->layout.slots : answer.tag != UINT32_MAX)
        return TAKEN_NONSENSE;
    return writes ? TAKEN_DONE : TAKEN_KEPT;
}

/* What the key holds now, for its entry in the cache; NULL: nothing, or it is not known. */
static const struct format_key *now_held(const struct tree_exchange *exchange,
                                         const struct tree_exchanged *exchanged, enum taken taken,
                                         struct format_key *value)
{
    if (taken == TAKEN_DONE && exchange->value)
        *value = (struct format_key){exchange->value, (uint32_t)exchange->length};
    else if (taken == TAKEN_KEPT && exchanged->existed)
        *value = (struct format_key){exchanged->old, exchanged->old_length};
    else
        return NULL;
    return value;
}

/* The call, with the leaf and the key marked as being written. */
static enum taken carry_out(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                            const struct tree_exchange *exchange, struct fabric_call *call,
                            struct tree_exchanged *exchanged, gaddr *block)
{
    const struct format_key key = {exchange->key, (uint32_t)exchange->key_length};
    struct fabric_call *calls[] = {call};
    struct format_key value;
    enum taken taken = TAKEN_NONSENSE;
    const uint64_t began = task_now();
    task_charge(TASK_WORK_LINE, 1); /* the look at the cache, which a READ would have charged */
    tree_owned_begin(session, tree, leaf.address, false);
    tree_owned_begin_key(session, tree, key);
    tree_selectors_ask(session->compute->exchanges, call->node);
    fabric_calls(session->pool.endpoint, calls, 1, session->pool.cost);
    if (memory_walk_not_done(call->status))
        taken = TAKEN_LEFT;
    else if (!call->status)
        taken = take_reply(tree, call, exchange, exchanged, block);
    /* The leaf was not cached. If a reader has brought it in since, it goes: its slots may be of before. */
    tree_owned_end(session, tree, leaf.address, BANYAN_EUNKNOWN, NULL, 0);
    tree_owned_end_key(session, tree, key, now_held(exchange, exchanged, taken, &value));
    note(session, call, task_now() - began);
    return taken;
}

bool tree_exchanges_ask(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                        const struct tree_exchange *exchange, struct tree_exchanged *exchanged)
{
    gaddr block = GADDR_NULL;
    *exchanged = (struct tree_exchanged){0};
    session->brought.rest = (struct memory_walk_reader){0}; /* it lies where the reply goes */
    if (tree_reserve(session, &session->walk_request, &session->walk_request_capacity, REQUEST_BYTES) ||
        tree_reserve(session, &session->walk_reply, &session->walk_reply_capacity, REPLY_BYTES))
        return false;
    struct fabric_call call = {.node = gaddr_node(leaf.address),
                               .incarnation = session->pool.incarnation,
                               .request = session->walk_request,
                               .length = put_request(session, tree, leaf, exchange),
                               .reply = session->walk_reply,
                               .capacity = REPLY_BYTES};
    const enum taken taken = carry_out(session, tree, leaf, exchange, &call, exchanged, &block);
    if (taken == TAKEN_LEFT)
        return false;
    if (taken == TAKEN_NONSENSE) {
        exchanged->status =
            pool_fail(&session->pool, BANYAN_EUNKNOWN, "memory node %u may have made the change or not: %s",
                      call.node, call.status ? error_name(call.status) : "its answer makes no sense");
        return true;
    }
    if (taken == TAKEN_DONE && !exchange->value && block != GADDR_NULL)
        pool_block_release(&session->pool, block, (uint32_t)exchange->key_length);
    session->cached = false; /* the right is proven by the call, as by a list (O2) */
    session->stats.exchanges_answered++;
    return true;
}
