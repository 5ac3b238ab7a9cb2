/* balance_load.c - see balance_load.h. */
#include "store/balance_load.h"

#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "memory/request.h"

#define PLACES_MOST 8192u /* of a memory node */
#define POLLS       8u    /* while it measures: a memory node keeps the last few thousand samples */
/* With less in all there is no load to even out. */
#define SAMPLES_LEAST 64u
/* A subtree that fewer samples have met may have been met by chance. */
#define HITS_LEAST 4u
/* A memory node is even with the others as near as this, of the mean: what a thousand samples can tell. */
#define LOAD_EVEN_SHARE 10.0

/* Samples that lie in nodes of one subtree, on one memory node. */
struct hot {
    uint32_t top_tag;
    uint16_t from, to; /* to: POOL_ANY_NODE, it stays */
    uint32_t hits;
    uint32_t nodes; /* that were met */
    uint64_t bytes; /* of these */
};

struct node_load {
    gaddr *places; /* owned; sorted once all are there */
    uint32_t count;
    uint64_t begun, next; /* numbers of samples: the first, and the next to ask for */
    bool known;
};

struct store_balance_load {
    uint16_t count;
    struct node_load nodes[STORE_BALANCE_NODES];
    struct hot *hot; /* owned; by subtree once chosen */
    size_t hot_count, hot_room;
};

void store_balance_load_free(struct store_balance_load *load)
{
    if (!load)
        return;
    for (uint16_t i = 0; i < load->count; i++)
        free(load->nodes[i].places);
    free(load->hot);
    free(load);
}

/* ---- samples ---- */

static void places_take(struct node_load *node, const struct memory_heat_reply *reply)
{
    for (uint32_t i = 0; i < reply->count && node->count < PLACES_MOST; i++)
        if (!(gaddr_offset(reply->places[i]) & GADDR_LOCK_REGION))
            node->places[node->count++] = reply->places[i];
    node->next = reply->first + reply->count;
}

/* What the memory node has noted since it was asked last. */
static int node_poll(struct pool_session *pool, struct node_load *node, uint16_t number)
{
    struct memory_heat_reply reply;
    int status;
    do {
        status = pool_node_heat(pool, number, node->next, &reply);
        if (!status)
            places_take(node, &reply);
    } while (!status && reply.count && node->next < reply.noted);
    return status;
}

static int node_begin(struct pool_session *pool, struct node_load *node, uint16_t number)
{
    struct memory_heat_reply reply;
    int status = pool_node_heat(pool, number, UINT64_MAX, &reply);
    if (status == BANYAN_EINVAL || status == BANYAN_ENOTSUP) {
        pool_session_begin(pool); /* an earlier release: its load stays unknown */
        return 0;
    }
    if (status)
        return status;
    node->places = malloc(PLACES_MOST * sizeof *node->places);
    if (!node->places)
        return pool_fail_memory(pool);
    node->begun = node->next = reply.noted;
    node->known = true;
    return 0;
}

static int place_compare(const void *a, const void *b)
{
    const gaddr *one = a, *other = b;
    return (*one > *other) - (*one < *other);
}

/* How many of them lie in [from, from + bytes). */
static uint32_t places_within(const struct node_load *node, gaddr from, uint32_t bytes)
{
    uint32_t low = 0, high = node->count, within = 0;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (node->places[middle] < from)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + within < node->count && node->places[low + within] - from < bytes)
        within++;
    return within;
}

static int samples_collect(struct store_balance *balance, struct store_balance_load *load)
{
    struct pool_session *pool = tree_session_pool(balance->session);
    int status = 0;
    for (uint16_t i = 0; i < load->count && !status; i++)
        if (balance->nodes[i].member && !balance->nodes[i].nic)
            status = node_begin(pool, &load->nodes[i], i);
    for (unsigned poll = 0; poll < POLLS && !status; poll++) {
        task_sleep(balance->measure_ns / POLLS);
        for (uint16_t i = 0; i < load->count && !status; i++)
            if (load->nodes[i].known)
                status = node_poll(pool, &load->nodes[i], i);
    }
    return status;
}

/* Commands of each memory node in a second, as its CPU counts them: of the first `count`, since others have
 * joined meanwhile. */
static int commands_count(struct store_balance *balance, uint64_t since, const uint64_t *before,
                          uint16_t count)
{
    int status = store_balance_look(balance);
    const double seconds = (double)(balance->looked_ns - since) / 1e9;
    for (uint16_t i = 0; i < count && !status; i++) {
        struct store_balance_node *node = &balance->nodes[i];
        if (node->member && !node->nic && node->commands_total >= before[i] && seconds > 0)
            node->commands_per_second = (double)(node->commands_total - before[i]) / seconds;
    }
    return status;
}

/* Samples in a memory node's load. */
static double load_of(const struct store_balance_load *load, uint16_t node)
{
    return (double)(load->nodes[node].next - load->nodes[node].begun);
}

/* Whether there is something to even out. */
static bool worth(const struct store_balance *balance, const struct store_balance_load *load)
{
    double samples = 0;
    for (uint16_t i = 0; i < load->count; i++) {
        if (store_balance_takes(balance, i) && !load->nodes[i].known)
            return false;
        samples += store_balance_takes(balance, i) ? load_of(load, i) : 0;
    }
    return samples >= SAMPLES_LEAST;
}

int store_balance_load_measure(struct store_balance *balance, struct store_balance_load **load)
{
    uint64_t before[STORE_BALANCE_NODES];
    struct store_balance_load *made = calloc(1, sizeof *made);
    *load = NULL;
    if (!made)
        return pool_fail_memory(tree_session_pool(balance->session));
    int status = store_balance_look(balance);
    const uint64_t since = balance->looked_ns;
    made->count = balance->count;
    for (uint16_t i = 0; i < balance->count; i++) {
        before[i] = balance->nodes[i].commands_total;
        balance->nodes[i].commands_per_second = -1;
    }
    if (!status)
        status = samples_collect(balance, made);
    if (!status)
        status = commands_count(balance, since, before, made->count);
    if (status || !worth(balance, made)) {
        store_balance_load_free(made);
        return status;
    }
    for (uint16_t i = 0; i < made->count; i++)
        if (made->nodes[i].count)
            qsort(made->nodes[i].places, made->nodes[i].count, sizeof(gaddr), place_compare);
    *load = made;
    return 0;
}

/* ---- what is hot, and where it goes ---- */

void store_balance_load_count(struct store_balance_load *load, gaddr node, uint32_t bytes, uint32_t top_tag)
{
    const uint16_t number = gaddr_node(node);
    const uint32_t hits = number < load->count ? places_within(&load->nodes[number], node, bytes) : 0;
    if (!hits)
        return;
    if (load->hot_count == load->hot_room) {
        const size_t room = load->hot_room ? load->hot_room * 2 : 256;
        struct hot *hot = realloc(load->hot, room * sizeof *hot);
        if (!hot)
            return;
        load->hot = hot;
        load->hot_room = room;
    }
    load->hot[load->hot_count++] = (struct hot){
        .top_tag = top_tag, .from = number, .to = POOL_ANY_NODE, .hits = hits, .nodes = 1, .bytes = bytes};
    return;
}

static int subtree_compare(const void *a, const void *b)
{
    const struct hot *one = a, *other = b;
    if (one->from != other->from)
        return one->from < other->from ? -1 : 1;
    return (one->top_tag > other->top_tag) - (one->top_tag < other->top_tag);
}

static int hotter_first(const void *a, const void *b)
{
    const struct hot *one = a, *other = b;
    if (one->hits != other->hits)
        return one->hits > other->hits ? -1 : 1;
    return subtree_compare(a, b);
}

/* Nodes of one subtree become one. */
static void subtrees_join(struct store_balance_load *load)
{
    size_t kept = 0;
    if (!load->hot_count)
        return;
    qsort(load->hot, load->hot_count, sizeof *load->hot, subtree_compare);
    for (size_t i = 1; i < load->hot_count; i++) {
        const struct hot *next = &load->hot[i];
        if (subtree_compare(&load->hot[kept], next)) {
            load->hot[++kept] = *next;
            continue;
        }
        load->hot[kept].hits += next->hits;
        load->hot[kept].nodes += next->nodes;
        load->hot[kept].bytes += next->bytes;
    }
    load->hot_count = kept + 1;
}

/* Of those that take more, and have room for it, the one with the least load. */
static uint16_t target(const struct store_balance *balance, const double *loads, const uint64_t *room,
                       uint64_t bytes)
{
    uint16_t least = POOL_ANY_NODE;
    for (uint16_t i = 0; i < balance->count; i++)
        if (store_balance_takes(balance, i) && room[i] >= bytes &&
            (least == POOL_ANY_NODE || loads[i] < loads[least]))
            least = i;
    return least;
}

/* How many bytes each may still take and give: what keeps its bytes even with the others', or the next run
 * would move them back; and no more than half of what is free, since more is written meanwhile. */
static void room_set(const struct store_balance *balance, uint64_t *room, uint64_t *spare)
{
    const uint64_t mean = store_balance_mean(balance), near = mean / STORE_BALANCE_EVEN_SHARE;
    for (uint16_t i = 0; i < balance->count; i++) {
        const struct store_balance_node *node = &balance->nodes[i];
        const uint64_t rest = store_balance_rest(balance, i);
        const uint64_t even = mean + near > rest ? mean + near - rest : 0;
        room[i] = even < node->bytes_free / 2 ? even : node->bytes_free / 2;
        spare[i] = rest > mean - near ? rest - (mean - near) : 0;
    }
}

uint64_t store_balance_load_choose(struct store_balance_load *load, const struct store_balance *balance)
{
    double loads[STORE_BALANCE_NODES] = {0}, sum = 0;
    uint64_t room[STORE_BALANCE_NODES], spare[STORE_BALANCE_NODES], chosen = 0;
    unsigned takers = 0;
    room_set(balance, room, spare);
    for (uint16_t i = 0; i < load->count; i++)
        if (store_balance_takes(balance, i)) {
            loads[i] = load_of(load, i);
            sum += loads[i];
            takers++;
        }
    const double mean = takers ? sum / takers : 0, most = mean + mean / LOAD_EVEN_SHARE;
    subtrees_join(load);
    if (load->hot_count)
        qsort(load->hot, load->hot_count, sizeof *load->hot, hotter_first);
    for (size_t i = 0; i < load->hot_count && load->hot[i].hits >= HITS_LEAST; i++) {
        struct hot *hot = &load->hot[i];
        /* Samples that were no longer kept, or lie in the lock region, are its share of the load all the
         * same. */
        const double part =
            (double)hot->hits / (double)load->nodes[hot->from].count * load_of(load, hot->from);
        const uint16_t to = target(balance, loads, room, hot->bytes);
        if (!store_balance_takes(balance, hot->from) || loads[hot->from] <= most || to == POOL_ANY_NODE ||
            spare[hot->from] < hot->bytes || loads[to] + part >= loads[hot->from])
            continue; /* where it goes it would be as much too much */
        hot->to = to;
        loads[hot->from] -= part;
        loads[to] += part;
        room[to] -= hot->bytes;
        spare[hot->from] -= hot->bytes;
        chosen += hot->nodes;
    }
    if (load->hot_count)
        qsort(load->hot, load->hot_count, sizeof *load->hot, subtree_compare);
    return chosen;
}

uint16_t store_balance_load_where(const struct store_balance_load *load, uint16_t node, uint32_t top_tag)
{
    const struct hot key = {.top_tag = top_tag, .from = node};
    const struct hot *hot =
        load->hot_count ? bsearch(&key, load->hot, load->hot_count, sizeof *load->hot, subtree_compare)
                        : NULL;
    return hot ? hot->to : POOL_ANY_NODE;
}
