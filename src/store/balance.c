/* balance.c - see balance.h. */
#include "store/balance.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/task.h"
#include "memory/request.h"
#include "store/balance_load.h"
#include "store/borders.h"
#include "store/defrag.h"
#include "store/relocate.h"
#include "store/store.h"

#define INDEXES_MAX  128u
#define PASSES_MAX   16u
#define DATA_ENTRIES 64u
#define FIRSTS_MAX   64u
#define WAITS        8u /* looks within wait_ns */
#define SHARE_ALL    (UINT64_C(1) << 32)
/* After a time without moves no more than this of it is caught up on. */
#define PACE_BEHIND_NS UINT64_C(5000000)
/* So often, at most, load is measured and nodes are moved for it. */
#define LOAD_ROUNDS 4u

/* ---- how things are ---- */

int store_balance_look(struct store_balance *balance)
{
    struct pool_session *pool = tree_session_pool(balance->session);
    int status = 0;
    pool_session_begin(pool);
    if (pool->memory_nodes > STORE_BALANCE_NODES)
        return pool_fail(pool, BANYAN_EINVAL, "a cluster of %u memory nodes: at most %u can be balanced",
                         pool->memory_nodes, STORE_BALANCE_NODES);
    balance->count = pool->memory_nodes;
    for (uint16_t i = 0; i < balance->count && !status; i++) {
        struct store_balance_node *node = &balance->nodes[i];
        struct memory_status_reply reply;
        const enum fabric_membership membership = fabric_membership(pool->fabric, i);
        if (membership == FABRIC_NO_MEMBER) {
            *node = (struct store_balance_node){.member = false};
            continue;
        }
        if (!node->member)
            node->commands_per_second = -1; /* nothing was measured yet */
        node->member = true;
        status = pool_node_status(pool, i, &reply);
        if (status)
            break;
        node->bytes_used = reply.bytes_used;
        node->bytes_free = reply.bytes_free;
        node->log_bytes = reply.log_bytes;
        node->draining = reply.draining != 0 || membership == FABRIC_LEAVING;
        node->nic = reply.nic != 0;
        node->commands_total = reply.commands_total;
    }
    balance->looked_ns = task_now();
    return status;
}

uint64_t store_balance_mean(const struct store_balance *balance)
{
    uint64_t used = 0;
    unsigned takers = 0;
    for (uint16_t i = 0; i < balance->count; i++)
        if (store_balance_takes(balance, i)) {
            used += store_balance_rest(balance, i);
            takers++;
        }
    return takers ? used / takers : 0;
}

int store_balance_check(struct store_balance *balance)
{
    struct pool_session *pool = tree_session_pool(balance->session);
    const uint16_t drain = balance->drain;
    uint64_t room = 0;
    unsigned others = 0;
    if (drain == POOL_ANY_NODE)
        return 0;
    if (drain >= balance->count || !balance->nodes[drain].member)
        return pool_fail(pool, BANYAN_EINVAL, "there is no memory node %u: the cluster has %u", drain,
                         balance->count);
    if (!drain)
        return pool_fail(pool, BANYAN_EINVAL,
                         "memory node 0 cannot be emptied: it is the home node, and has the catalogue");
    for (uint16_t i = 0; i < balance->count; i++)
        if (store_balance_takes(balance, i)) {
            others++;
            room += balance->nodes[i].bytes_free;
        }
    if (!others)
        return pool_fail(pool, BANYAN_EINVAL,
                         "memory node %u cannot be emptied: no other one hands out memory", drain);
    /* An eighth more: the others keep a reserve for nodes, and what is written meanwhile needs room too. */
    const uint64_t used = balance->nodes[drain].bytes_used, wanted = used + used / 8;
    if (room < wanted)
        return pool_fail(pool, BANYAN_ENOSPC,
                         "memory node %u has %llu bytes in use, and the others have %llu free: too few",
                         drain, (unsigned long long)used, (unsigned long long)room);
    return 0;
}

/* ---- what is to move ---- */

/* Bytes that are not nodes' of an index, and may leave: records, but also long keys' blocks and what compute
 * nodes hold back. None where no index has records. */
static uint64_t data_bytes(const struct store_balance *balance, uint16_t node)
{
    if (!balance->stores)
        return 0;
    const uint64_t rest = store_balance_rest(balance, node), nodes = balance->nodes[node].node_bytes;
    return rest > nodes ? rest - nodes : 0;
}

/* Whether some memory node has a twentieth more or less than the mean. Less matters too: a new one may lack
 * what many others have too much of, each a little. */
static bool uneven(const struct store_balance *balance, uint64_t mean)
{
    const uint64_t near = mean / STORE_BALANCE_EVEN_SHARE;
    for (uint16_t i = 0; i < balance->count; i++)
        if (store_balance_takes(balance, i) &&
            (store_balance_rest(balance, i) > mean + near || store_balance_rest(balance, i) + near < mean))
            return true;
    return false;
}

/* From what was looked at and counted last: which share of each memory node's nodes and records is to leave,
 * and where to. */
static void shares_set(struct store_balance *balance)
{
    const uint64_t mean = store_balance_mean(balance);
    const bool evens = uneven(balance, mean);
    memset(balance->share, 0, sizeof balance->share);
    memset(balance->room, 0, sizeof balance->room);
    balance->planned_data_bytes = 0;
    for (uint16_t i = 0; i < balance->count; i++) {
        const struct store_balance_node *node = &balance->nodes[i];
        const uint64_t rest = store_balance_rest(balance, i); /* owners choose where their logs lie */
        if (i == balance->drain)
            balance->share[i] = SHARE_ALL;
        else if (balance->drain != POOL_ANY_NODE)
            balance->room[i] = store_balance_takes(balance, i) ? node->bytes_free : 0;
        else if (evens && store_balance_takes(balance, i) && rest > mean) {
            const uint64_t excess = rest - mean, may = node->node_bytes + data_bytes(balance, i);
            balance->share[i] =
                excess >= may ? SHARE_ALL : (uint64_t)((double)excess / (double)may * (double)SHARE_ALL);
        } else if (store_balance_takes(balance, i) && rest < mean)
            balance->room[i] = mean - rest < node->bytes_free ? mean - rest : node->bytes_free;
        balance->planned_data_bytes +=
            (uint64_t)((double)data_bytes(balance, i) * (double)balance->share[i] / (double)SHARE_ALL);
    }
}

/* This process allocates blocks for records where the least is in use. */
static void weights_set(struct store_balance *balance)
{
    struct pool_worker *worker = tree_session_pool(balance->session)->worker;
    for (uint16_t i = 0; i < balance->count; i++)
        pool_worker_weigh(worker, i,
                          store_balance_takes(balance, i) ? balance->nodes[i].bytes_used : INT64_MAX);
}

/* Whether a node or a block is among what is to leave the memory node in this pass: by chance, and the same
 * whenever it is asked. Another pass chooses others, since what was chosen and stayed would be all that the
 * same choice of a smaller share finds. */
static bool is_chosen(const struct store_balance *balance, uint16_t node, uint64_t what)
{
    return (random_mix(what ^ random_mix(balance->passes)) >> 32) < balance->share[node];
}

/* One of those that have room, each as likely as it has much; the same for the same number. */
static uint16_t target(const struct store_balance *balance, uint64_t number)
{
    uint64_t total = 0;
    for (uint16_t i = 0; i < balance->count; i++)
        total += balance->room[i];
    if (!total)
        return POOL_ANY_NODE;
    uint64_t at = random_mix(number) % total;
    for (uint16_t i = 0; i < balance->count; i++) {
        if (at < balance->room[i])
            return i;
        at -= balance->room[i];
    }
    return POOL_ANY_NODE;
}

/* Where load is evened out. */
static uint16_t where_for_load(struct store_balance *balance, gaddr address, uint32_t bytes, uint32_t top_tag)
{
    if (!balance->plans)
        return store_balance_load_where(balance->load, gaddr_node(address), top_tag);
    store_balance_load_count(balance->load, address, bytes, top_tag);
    return POOL_ANY_NODE;
}

/* tree_move_choice's. By the tag of the subtree's highest node, so that it stays together; another pass tries
 * what found no room elsewhere. */
static uint16_t where(void *context, gaddr address, uint32_t bytes, uint32_t top_tag)
{
    struct store_balance *balance = context;
    const uint16_t node = gaddr_node(address);
    if (node >= balance->count)
        return POOL_ANY_NODE;
    balance->nodes[node].nodes++;
    balance->nodes[node].node_bytes += bytes;
    if (balance->load)
        return where_for_load(balance, address, bytes, top_tag);
    if (!is_chosen(balance, node, top_tag ^ UINT64_C(0xba1a)))
        return POOL_ANY_NODE;
    const uint16_t to = target(balance, top_tag + ((uint64_t)balance->passes << 32));
    if (to != POOL_ANY_NODE) {
        balance->planned++;
        balance->planned_bytes += bytes;
    }
    return balance->plans ? POOL_ANY_NODE : to;
}

/* ---- walks ---- */

/* After a step: keeps to the rate. */
static void pause_for_rate(struct store_balance *balance)
{
    const uint64_t bytes = balance->moved.bytes + balance->data_bytes, now = task_now();
    if (!balance->bytes_per_second)
        return;
    if (balance->due_ns + PACE_BEHIND_NS < now)
        balance->due_ns = now - PACE_BEHIND_NS;
    balance->due_ns +=
        (uint64_t)((double)(bytes - balance->paced_bytes) / (double)balance->bytes_per_second * 1e9);
    balance->paced_bytes = bytes;
    if (balance->due_ns > now)
        task_sleep(balance->due_ns - now);
}

static void told(struct store_balance *balance)
{
    if (balance->progress)
        balance->progress(balance->context, balance);
    pause_for_rate(balance);
}

/* First leaves of ranges that the index's walk has met, and that stay where they are. */
struct store_balance_firsts {
    uint32_t count;
    struct format_key_copy keys[FIRSTS_MAX]; /* more are left to the next pass */
};

static void first_note(void *context, const void *key, size_t key_length)
{
    struct store_balance_firsts *firsts = ((struct store_balance *)context)->firsts;
    if (firsts->count < FIRSTS_MAX)
        format_key_store(&firsts->keys[firsts->count++], (struct format_key){key, (uint32_t)key_length});
}

static void report_add(struct store_balance *balance, const struct tree_move_report *report)
{
    balance->moved.nodes += report->nodes;
    balance->moved.bytes += report->bytes;
    for (unsigned i = 0; i <= TREE_MOVE_LATER; i++) {
        balance->moved.outcomes[i] += report->outcomes[i];
        balance->left[i] += report->outcomes[i];
        balance->moved.keys[i] += report->keys[i];
        balance->keys_left += i == TREE_MOVE_DONE ? 0 : report->keys[i];
    }
}

static int nodes_walk(struct store_balance *balance, struct tree *tree)
{
    const bool drains = balance->drain != POOL_ANY_NODE;
    const struct tree_move_choice choice = {.where = where,
                                            .context = balance,
                                            .keys = drains && !balance->plans,
                                            .all = drains && !balance->plans,
                                            .keys_from = balance->drain,
                                            .first = drains ? first_note : NULL};
    struct tree_move_walk walk = {0};
    int status = 0;
    while (!status && !walk.ended) {
        struct tree_move_report report = {0};
        status = tree_move_step(balance->session, tree, &walk, &choice, &report);
        report_add(balance, &report);
        told(balance);
    }
    return status;
}

/* What a change of the map may come to without an end of it all: then the leaf stays, for this pass. */
static bool border_excused(int status)
{
    return status == BANYAN_ENOTFOUND || status == BANYAN_ECONFLICT || status == BANYAN_EINVAL ||
           status == BANYAN_EKEYSIZE || status == BANYAN_EBUSY || status == BANYAN_ENET ||
           status == BANYAN_ETIMEOUT || status == BANYAN_EUNKNOWN || status == BANYAN_EFENCED ||
           status == BANYAN_ENOSPC || status == BANYAN_ENOTSUP;
}

/* The first leaves become such that the next pass can move. */
static int borders_shift(struct store_balance *balance, struct tree *tree)
{
    const struct store_balance_firsts *firsts = balance->firsts;
    int status = 0;
    for (uint32_t i = 0; i < firsts->count && balance->owner && !status; i++) {
        const struct format_key key = format_key_of(&firsts->keys[i]);
        bool shifted = false;
        status = store_border_shift(balance->owner, balance->session, tree, key.bytes, key.length, &shifted);
        balance->borders += shifted;
        if (!border_excused(status))
            continue;
        balance->border_error = *tree_session_error(balance->session);
        status = 0;
    }
    return status;
}

/* Of the blocks on a memory node that are to go: by chance, as with nodes. */
static bool data_chosen(void *context, gaddr block)
{
    const struct store_balance *balance = context;
    const uint16_t node = gaddr_node(block);
    return node < balance->count && is_chosen(balance, node, block ^ UINT64_C(0xda7a));
}

/* A step, into the sums. What is not answered is left to the next pass, and to the caller's next run; it is
 * no reason to leave what other owners and memory nodes have. */
static int data_step(struct store_balance *balance, struct store_session *session,
                     struct store_defrag *defrag, bool *done)
{
    const struct store_defrag_counts before = defrag->counts;
    const uint32_t refused = defrag->refused;
    int status = store_defrag_step(session, defrag, DATA_ENTRIES, done);
    balance->data_bytes += defrag->counts.bytes - before.bytes;
    balance->data_blocks += defrag->counts.hits - before.hits;
    balance->data_full += defrag->refused - refused;
    balance->data_left += defrag->counts.unanswered - before.unanswered;
    balance->data_unknown += defrag->counts.unknown - before.unknown;
    const bool cut = store_relocation_unanswered(status);
    if (cut || defrag->counts.unanswered > before.unanswered)
        balance->data_error = *tree_session_error(balance->session);
    balance->data_cut += cut;
    return cut ? 0 : status;
}

/* Records of a store leave. */
static int data_walk(struct store_balance *balance, struct store *store)
{
    struct store_session *session = NULL;
    struct store_defrag defrag = {
        .chosen = data_chosen, .chosen_context = balance, .unanswered = balance->unanswered};
    struct error error = {0};
    bool any, done = false;
    int status = store_session_create(&session, store, balance->session, &error);
    if (status)
        return pool_fail(tree_session_pool(balance->session), status, "%s", error.text);
    status = store_defrag_begin(session, &defrag, &any);
    while (!status && any && !done) {
        status = data_step(balance, session, &defrag, &done);
        told(balance);
    }
    balance->unanswered = defrag.unanswered;
    store_defrag_end(session, &defrag);
    store_session_destroy(session);
    return status;
}

/* ---- one index ---- */

/* Whether records are to leave some memory node. */
static bool data_leaves(const struct store_balance *balance)
{
    for (uint16_t i = 0; i < balance->count; i++)
        if (balance->share[i])
            return true;
    return false;
}

/* `store`: of an index of records, over the tree; else NULL. */
static int index_attached(struct store_balance *balance, struct tree *tree, struct store *store)
{
    struct store_balance_firsts *firsts = calloc(1, sizeof *firsts);
    if (!firsts)
        return pool_fail_memory(tree_session_pool(balance->session));
    balance->firsts = firsts;
    balance->stores += store != NULL;
    int status = nodes_walk(balance, tree);
    if (!status && !balance->plans && store && data_leaves(balance))
        status = data_walk(balance, store);
    if (!status && !balance->plans)
        status = borders_shift(balance, tree);
    balance->firsts = NULL;
    free(firsts);
    return status;
}

static int index_open_walk(struct store_balance *balance, const char *name)
{
    struct pool_session *pool = tree_session_pool(balance->session);
    struct tree *tree = NULL;
    struct store *store = NULL;
    struct error error = {0};
    const bool owned = balance->owner && !owner_is_map(name);
    int status = tree_open(balance->session, name, &tree);
    if (status)
        return status == BANYAN_ENOTFOUND ? 0 : status; /* it was dropped meanwhile */
    if (tree_geometry(tree)->content == FORMAT_CONTENT_STORE)
        status = store_wrap(&store, tree, &error);
    if (!status && owned)
        status = owner_attach(balance->owner, balance->session, tree);
    if (!status)
        status = index_attached(balance, tree, store);
    if (!error.code)
        error = *tree_session_error(balance->session); /* before the next call on the session */
    if (owned)
        owner_detach(balance->owner, balance->session, tree);
    const bool dropped = tree_is_dropped(tree);
    if (store)
        store_close(store);
    else
        tree_close(tree);
    if (!status || (status == BANYAN_ENOTFOUND && dropped))
        return 0;
    return pool_fail(pool, status, "%s", error.code == status ? error.text : error_name(status));
}

static int index_walk(struct store_balance *balance, const char *name)
{
    if (balance->tree && !strcmp(name, tree_name(balance->tree)))
        return index_attached(balance, balance->tree, balance->store);
    return index_open_walk(balance, name);
}

/* ---- all indexes ---- */

struct names {
    char (*items)[TREE_NAME_MAX + 1]; /* owned */
    uint32_t count;
};

static void name_add(void *context, const char *name, const struct format_geometry *geometry)
{
    struct names *names = context;
    (void)geometry;
    if (names->count < INDEXES_MAX)
        strcpy(names->items[names->count++], name);
}

static int all_walk(struct store_balance *balance)
{
    struct names names = {.items = malloc(INDEXES_MAX * sizeof *names.items)};
    if (!names.items)
        return pool_fail_memory(tree_session_pool(balance->session));
    for (uint16_t i = 0; i < balance->count; i++)
        balance->nodes[i].nodes = balance->nodes[i].node_bytes = 0;
    memset(balance->left, 0, sizeof balance->left);
    balance->keys_left = balance->data_full = balance->data_left = balance->data_cut = balance->stores = 0;
    balance->planned = balance->planned_bytes = 0;
    int status = tree_list(balance->session, name_add, &names);
    for (uint32_t i = 0; i < names.count && !status; i++)
        status = index_walk(balance, names.items[i]);
    free(names.items);
    return status;
}

/* Which bytes are to move. */
static int bytes_plan(struct store_balance *balance)
{
    balance->plans = true;
    memset(balance->share, 0, sizeof balance->share);
    int status = all_walk(balance); /* what there is */
    shares_set(balance);
    if (!status)
        status = all_walk(balance); /* what of it is to move */
    balance->plans = false;
    return status;
}

/* ---- load ---- */

/* Measures load, and where it is to be evened out says which nodes are to move for it (balance->load). */
static int load_plan(struct store_balance *balance)
{
    memset(balance->share, 0, sizeof balance->share); /* nothing moves for bytes */
    int status = store_balance_load_measure(balance, &balance->load);
    balance->load_planned = 0;
    if (status || !balance->load || balance->drain != POOL_ANY_NODE)
        return status;
    balance->plans = true;
    status = all_walk(balance);
    balance->plans = false;
    balance->load_planned = status ? 0 : store_balance_load_choose(balance->load, balance);
    return status;
}

static void load_forget(struct store_balance *balance)
{
    store_balance_load_free(balance->load);
    balance->load = NULL;
}

/* Again and again: what was hot is not known as well as what is left of it. */
static int load_even_out(struct store_balance *balance)
{
    bool again = balance->drain == POOL_ANY_NODE && balance->measure_ns;
    const uint64_t keys_left = balance->keys_left, data_full = balance->data_full,
                   data_left = balance->data_left, data_cut = balance->data_cut;
    uint64_t left[TREE_MOVE_LATER + 1];
    int status = 0;
    memcpy(left, balance->left, sizeof left);
    for (unsigned round = 0; again && !status && round < LOAD_ROUNDS; round++) {
        const uint64_t moved = balance->moved.outcomes[TREE_MOVE_DONE];
        status = load_plan(balance);
        again = balance->load && balance->load_planned;
        if (!status && again)
            status = all_walk(balance);
        balance->load_moved += balance->moved.outcomes[TREE_MOVE_DONE] - moved;
        load_forget(balance);
    }
    /* Hot nodes that stay are no failure: bytes alone are promised. */
    memcpy(balance->left, left, sizeof left);
    balance->keys_left = keys_left;
    balance->data_full = data_full;
    balance->data_left = data_left;
    balance->data_cut = data_cut;
    return status;
}

/* ---- what a caller asks for ---- */

int store_balance_plan(struct store_balance *balance)
{
    int status = 0;
    if (balance->measure_ns)
        status = load_plan(balance);
    load_forget(balance);
    return status ? status : bytes_plan(balance);
}

/* Records stay that may go in another pass: they found no room, or their owners did not answer, and not so
 * often that it is no use to ask again. */
static bool data_again(const struct store_balance *balance)
{
    return balance->data_full || (balance->data_left && !balance->data_cut);
}

/* What passes have done. */
struct done {
    uint64_t data, borders, keys;
};

static struct done done_so_far(const struct store_balance *balance)
{
    const uint64_t *keys = balance->moved.keys; /* what has not left, but may, counts as what has */
    return (struct done){balance->data_blocks, balance->borders,
                         keys[TREE_MOVE_DONE] + keys[TREE_MOVE_LATER] + keys[TREE_MOVE_FULL]};
}

/*
 * Whether another pass would do more than this one has done: something has moved, and what it has uncovered
 * or others have put there meanwhile is next; or what has stayed may go then, since others were at work on
 * it, its owner did not answer, or there was no room where it was to go.
 */
static bool pass_again(const struct store_balance *balance, const struct done *before)
{
    const struct done now = done_so_far(balance);
    return balance->left[TREE_MOVE_DONE] || balance->left[TREE_MOVE_LATER] || balance->left[TREE_MOVE_FULL] ||
           data_again(balance) || now.data != before->data || now.borders != before->borders ||
           now.keys != before->keys;
}

static int pass_run(struct store_balance *balance)
{
    int status = bytes_plan(balance);
    weights_set(balance);
    if (!status)
        status = all_walk(balance);
    pool_worker_return(tree_session_pool(balance->session)->worker); /* what was freed is the memory nodes' */
    balance->passes++;
    return status ? status : store_balance_look(balance);
}

/* Nothing was left to move, and something is there: blocks that compute nodes hold back come soon, and those
 * that they have filled meanwhile are for another pass. *again false: nothing is there, or it has waited for
 * long. */
static int rest_await(struct store_balance *balance, unsigned *waits, bool *again)
{
    int status = 0;
    *again = false;
    if (balance->drain == POOL_ANY_NODE || !balance->wait_ns)
        return 0;
    while (!status && !*again && *waits < WAITS && store_balance_rest(balance, balance->drain)) {
        task_sleep(balance->wait_ns / WAITS);
        ++*waits;
        *again = *waits % 2 == 0; /* a look costs less than a pass */
        status = store_balance_look(balance);
        told(balance);
    }
    *again = *again && store_balance_rest(balance, balance->drain);
    return status;
}

int store_balance_run(struct store_balance *balance)
{
    struct pool_session *pool = tree_session_pool(balance->session);
    int status = store_balance_check(balance);
    unsigned waits = 0;
    balance->due_ns = task_now();
    if (!status && balance->drain != POOL_ANY_NODE) {
        pool_session_begin(pool);
        status = pool_node_drain(pool, balance->drain, true);
    }
    for (bool again = true; again && !status && balance->passes < PASSES_MAX;) {
        const struct done before = done_so_far(balance);
        status = pass_run(balance);
        again = pass_again(balance, &before);
        if (!status && !again)
            status = rest_await(balance, &waits, &again);
    }
    return status ? status : load_even_out(balance);
}
