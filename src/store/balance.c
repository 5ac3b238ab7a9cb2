/* balance.c - see balance.h. */
#include "store/balance.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/task.h"
#include "memory/request.h"
#include "store/defrag.h"
#include "store/store.h"

#define INDEXES_MAX  128u
#define PASSES_MAX   16u
#define DATA_ENTRIES 64u
#define KEYS_MAX     64u
#define KEYS_LOOKED  4096u
#define SHARE_ALL    (UINT64_C(1) << 32)
/* A memory node is even with the others as near as this, of the mean. */
#define EVEN_SHARE 20u

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
        status = pool_node_status(pool, i, &reply);
        if (status)
            break;
        node->bytes_used = reply.bytes_used;
        node->bytes_free = reply.bytes_free;
        node->draining = reply.draining != 0;
    }
    return status;
}

static bool takes(const struct store_balance *balance, uint16_t node)
{
    return node != balance->drain && !balance->nodes[node].draining;
}

int store_balance_check(struct store_balance *balance)
{
    struct pool_session *pool = tree_session_pool(balance->session);
    const uint16_t drain = balance->drain;
    uint64_t room = 0;
    unsigned others = 0;
    if (drain == POOL_ANY_NODE)
        return 0;
    if (drain >= balance->count)
        return pool_fail(pool, BANYAN_EINVAL, "there is no memory node %u: the cluster has %u", drain,
                         balance->count);
    if (!drain)
        return pool_fail(pool, BANYAN_EINVAL,
                         "memory node 0 cannot be emptied: it is the home node, and has the catalogue");
    for (uint16_t i = 0; i < balance->count; i++)
        if (takes(balance, i)) {
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

/* From what was looked at and counted last: which share of each memory node's nodes is to leave, and where
 * to.
 */
static void shares_set(struct store_balance *balance)
{
    uint64_t used = 0;
    unsigned takers = 0;
    memset(balance->share, 0, sizeof balance->share);
    memset(balance->room, 0, sizeof balance->room);
    for (uint16_t i = 0; i < balance->count; i++)
        if (takes(balance, i)) {
            used += balance->nodes[i].bytes_used;
            takers++;
        }
    const uint64_t mean = takers ? used / takers : 0;
    for (uint16_t i = 0; i < balance->count; i++) {
        const struct store_balance_node *node = &balance->nodes[i];
        if (i == balance->drain)
            balance->share[i] = SHARE_ALL;
        else if (balance->drain != POOL_ANY_NODE)
            balance->room[i] = takes(balance, i) ? node->bytes_free : 0;
        else if (!node->draining && node->bytes_used > mean + mean / EVEN_SHARE && node->node_bytes) {
            const uint64_t excess = node->bytes_used - mean;
            balance->share[i] =
                excess >= node->node_bytes
                    ? SHARE_ALL
                    : (uint64_t)((double)excess / (double)node->node_bytes * (double)SHARE_ALL);
        } else if (!node->draining && node->bytes_used < mean)
            balance->room[i] =
                mean - node->bytes_used < node->bytes_free ? mean - node->bytes_used : node->bytes_free;
    }
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

/* tree_move_choice's. By the tag of the subtree's highest node, so that it stays together; another pass tries
 * what found no room elsewhere. */
static uint16_t where(void *context, uint16_t node, uint32_t bytes, uint32_t top_tag)
{
    struct store_balance *balance = context;
    if (node >= balance->count)
        return POOL_ANY_NODE;
    balance->nodes[node].nodes++;
    balance->nodes[node].node_bytes += bytes;
    if ((random_mix(top_tag ^ UINT64_C(0xba1a)) >> 32) >= balance->share[node])
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
static void pause_for_rate(const struct store_balance *balance)
{
    const uint64_t bytes = balance->moved.bytes + balance->data_bytes;
    if (!balance->bytes_per_second)
        return;
    const uint64_t due =
        balance->begun_ns + (uint64_t)((double)bytes / (double)balance->bytes_per_second * 1e9);
    const uint64_t now = task_now();
    if (due > now)
        task_sleep(due - now);
}

static void told(struct store_balance *balance)
{
    if (balance->progress)
        balance->progress(balance->context, balance);
    pause_for_rate(balance);
}

static int nodes_walk(struct store_balance *balance, struct tree *tree)
{
    const struct tree_move_choice choice = {
        .where = where, .context = balance, .roots = balance->drain != POOL_ANY_NODE};
    struct tree_move_walk walk = {0};
    int status = 0;
    while (!status && !walk.ended) {
        struct tree_move_report report = {0};
        status = tree_move_step(balance->session, tree, &walk, &choice, &report);
        balance->moved.nodes += report.nodes;
        balance->moved.bytes += report.bytes;
        for (unsigned i = 0; i <= TREE_MOVE_LATER; i++) {
            balance->moved.outcomes[i] += report.outcomes[i];
            balance->left[i] += report.outcomes[i];
        }
        told(balance);
    }
    return status;
}

static bool on_drained(void *context, gaddr block)
{
    const struct store_balance *balance = context;
    return gaddr_node(block) == balance->drain;
}

/* Records and key blocks of a store leave the memory node that is emptied. */
static int data_walk(struct store_balance *balance, struct store *store)
{
    struct store_session *session = NULL;
    struct store_defrag defrag = {.chosen = on_drained, .chosen_context = balance};
    struct error error = {0};
    bool any, done = false;
    int status = store_session_create(&session, store, balance->session, &error);
    if (status)
        return pool_fail(tree_session_pool(balance->session), status, "%s", error.text);
    status = store_defrag_begin(session, &defrag, &any);
    while (!status && any && !done) {
        const uint64_t bytes = defrag.counts.bytes, blocks = defrag.counts.hits;
        status = store_defrag_step(session, &defrag, DATA_ENTRIES, &done);
        balance->data_bytes += defrag.counts.bytes - bytes;
        balance->data_blocks += defrag.counts.hits - blocks;
        told(balance);
    }
    store_defrag_end(session, &defrag);
    store_session_destroy(session);
    return status;
}

/* ---- long keys of indexes that are no stores ---- */

struct keys {
    const struct store_balance *balance;
    uint32_t looked, count;
    struct {
        gaddr block;
        uint8_t length, bytes[FORMAT_KEY_MAX];
    } items[KEYS_MAX];
    struct format_key_copy last; /* looked at */
};

static bool key_note(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct keys *keys = context;
    const gaddr block = tree_scan_key_block(keys->balance->session);
    (void)value;
    (void)length;
    format_key_store(&keys->last, (struct format_key){key, (uint32_t)key_length});
    if (block != GADDR_NULL && gaddr_node(block) == keys->balance->drain) {
        keys->items[keys->count].block = block;
        keys->items[keys->count].length = (uint8_t)key_length;
        memcpy(keys->items[keys->count++].bytes, key, key_length);
    }
    return ++keys->looked < KEYS_LOOKED && keys->count < KEYS_MAX;
}

static int keys_walk(struct store_balance *balance, struct tree *tree)
{
    struct keys *keys = calloc(1, sizeof *keys);
    struct tree_range range = {.from = NULL};
    int status = 0;
    if (!keys)
        return pool_fail_memory(tree_session_pool(balance->session));
    keys->balance = balance;
    do {
        keys->looked = keys->count = 0;
        status = tree_scan(balance->session, tree, &range, key_note, keys);
        for (uint32_t i = 0; i < keys->count && !status; i++) {
            bool moved;
            status = tree_key_block_move(balance->session, tree, keys->items[i].bytes, keys->items[i].length,
                                         keys->items[i].block, &moved);
            balance->data_blocks += !status && moved;
            balance->data_bytes += !status && moved ? keys->items[i].length : 0;
        }
        range = (struct tree_range){
            .from = keys->last.bytes, .from_length = keys->last.length, .from_open = true};
        told(balance);
    } while (!status && keys->looked);
    free(keys);
    return status;
}

/* ---- one index ---- */

/* `store`: of an index of records, over the tree; else NULL. */
static int index_attached(struct store_balance *balance, struct tree *tree, struct store *store)
{
    int status = nodes_walk(balance, tree);
    if (status || balance->plans || balance->drain == POOL_ANY_NODE)
        return status;
    if (store)
        return data_walk(balance, store);
    return tree_geometry(tree)->key_kind == FORMAT_KEY_VARIABLE ? keys_walk(balance, tree) : 0;
}

static int index_walk(struct store_balance *balance, const char *name)
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
    balance->planned = balance->planned_bytes = 0;
    int status = tree_list(balance->session, name_add, &names);
    for (uint32_t i = 0; i < names.count && !status; i++)
        status = index_walk(balance, names.items[i]);
    free(names.items);
    return status;
}

int store_balance_plan(struct store_balance *balance)
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

/* Whether another pass would do more than this one has done. */
static bool pass_again(const struct store_balance *balance, uint64_t data_before)
{
    return balance->left[TREE_MOVE_DONE] || balance->left[TREE_MOVE_LATER] || balance->left[TREE_MOVE_FULL] ||
           balance->data_blocks != data_before;
}

int store_balance_run(struct store_balance *balance)
{
    struct pool_session *pool = tree_session_pool(balance->session);
    int status = store_balance_check(balance);
    balance->begun_ns = task_now();
    if (!status && balance->drain != POOL_ANY_NODE) {
        pool_session_begin(pool);
        status = pool_node_drain(pool, balance->drain, true);
    }
    for (bool again = true; again && !status && balance->passes < PASSES_MAX; balance->passes++) {
        const uint64_t data = balance->data_blocks;
        status = store_balance_plan(balance);
        if (!status)
            status = all_walk(balance);
        pool_worker_return(pool->worker); /* what was freed is the memory nodes' again */
        if (!status)
            status = store_balance_look(balance);
        again = pass_again(balance, data);
    }
    return status;
}
