/* stage.c - see stage.h. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "fabric/local.h"

#define VALUE_BYTES 80u

static struct actor *actor_of(const struct fabric *fabric)
{
    return (struct actor *)fabric;
}

static struct actor *find(const struct stage *stage, struct fabric_process process)
{
    for (unsigned i = 0; i < STAGE_ACTORS; i++)
        if (fabric_process_equal(fabric_self(&stage->actors[i]->wrapper.fabric), process))
            return stage->actors[i];
    return NULL;
}

/* ---- time ---- */

/* A loop that looks at the time and never sleeps comes to its end. */
#define LOOK_NS 100u

static uint64_t stage_now(struct task *self)
{
    struct stage *stage = (struct stage *)self;
    return stage->now += LOOK_NS;
}

static void stage_sleep(struct task *self, uint64_t nanoseconds)
{
    struct stage *stage = (struct stage *)self;
    stage->now += nanoseconds;
}

static void stage_yield(struct task *self)
{
    stage_sleep(self, LOOK_NS);
}

static void stage_park(struct task *self)
{
    fail_msg("the only thread waits for another");
}

static void stage_unpark(struct task *task) {}

static const struct task_ops time_of_stage = {
    .park = stage_park, .unpark = stage_unpark, .yield = stage_yield, .sleep = stage_sleep, .now = stage_now};

/* ---- lists and calls ---- */

static bool only_reads(const struct fabric_list *list)
{
    for (uint16_t i = 0; i < list->count; i++)
        if (list->commands[i].operation != FABRIC_READ)
            return false;
    return true;
}

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct actor *actor = actor_of(endpoint->fabric);
    if (list->incarnation && list->incarnation < actor->since[list->node])
        return BANYAN_EFENCED;
    if (actor->failing && only_reads(list)) {
        actor->failing--;
        return actor->failure;
    }
    int status = wrapper_pass(endpoint, list, list->count);
    actor->lists++;
    if (actor->stage->after_list)
        actor->stage->after_list(actor);
    return status;
}

static int stage_call(struct fabric_endpoint *endpoint, uint16_t node, const void *bytes, size_t length,
                      void *reply, size_t capacity, size_t *reply_length)
{
    struct actor *actor = actor_of(endpoint->fabric);
    struct memory_board_request request = {0};
    bool board = length == sizeof request;
    if (board)
        memcpy(&request, bytes, sizeof request);
    board = board && request.kind >= MEMORY_BOARD_LOOK && request.kind <= MEMORY_BOARD_MEMBERS;
    if (board && actor->stage->before_call)
        actor->stage->before_call(actor, &request);
    if (board && actor->cut)
        return BANYAN_ENET;
    int status = wrapper_call(endpoint, node, bytes, length, reply, capacity, reply_length);
    if (board && actor->stage->after_call)
        actor->stage->after_call(actor, &request);
    return status;
}

/* ---- peers.h ---- */

static struct fabric_process stage_self(const struct fabric *fabric)
{
    const uint16_t id = fabric->capabilities.compute_id;
    return (struct fabric_process){.instance = 1000u + id, .compute_id = id};
}

static bool stage_lease_alive(const struct fabric *fabric)
{
    struct stage *stage = ((const struct actor *)fabric)->stage;
    return !stage->lease_alive || stage->lease_alive(stage);
}

static uint64_t stage_lease_lapses(const struct fabric *fabric)
{
    return 0;
}

static void stage_lease_resume(struct fabric *fabric, uint64_t incarnation)
{
    struct actor *actor = actor_of(fabric);
    actor->stage->resumed++;
    if (actor->stage->resuming)
        actor->stage->resuming(actor, incarnation);
}

static void lose_at(struct actor *actor, uint16_t node)
{
    actor->since[node] = ++actor->wrapper.incarnation;
    memory_node_release_locks(actor->stage->nodes[node], actor->wrapper.fabric.capabilities.compute_id);
}

static int stage_fence(struct fabric_endpoint *endpoint, uint16_t node, struct fabric_process process)
{
    struct stage *stage = actor_of(endpoint->fabric)->stage;
    struct actor *actor = find(stage, process);
    assert_non_null(actor);
    if (stage->fencing)
        stage->fencing(stage, actor, node);
    actor->fenced |= STAGE_BIT(node);
    lose_at(actor, node);
    return 0;
}

static int stage_lease_over(struct fabric_endpoint *endpoint, struct fabric_process process, bool *over)
{
    struct stage *stage = actor_of(endpoint->fabric)->stage;
    if (stage->lease_asked)
        stage->lease_asked(stage, find(stage, process));
    *over = stage->lease_asks++ >= stage->lease_needs;
    return 0;
}

static int stage_processes(struct fabric_endpoint *endpoint, struct fabric_process *processes,
                           uint32_t capacity, uint32_t *count)
{
    const struct stage *stage = actor_of(endpoint->fabric)->stage;
    for (unsigned i = 0; i < STAGE_ACTORS; i++) {
        if (!(stage->connected & STAGE_BIT(i)))
            continue;
        if (*count < capacity)
            processes[*count] = stage_self(&stage->actors[i]->wrapper.fabric);
        ++*count;
    }
    return 0;
}

static int stage_notify(struct fabric_endpoint *endpoint, uint64_t number)
{
    struct actor *self = actor_of(endpoint->fabric);
    struct stage *stage = self->stage;
    if (stage->notified)
        stage->notified(stage, number);
    for (unsigned i = 0; i < STAGE_ACTORS; i++) {
        struct actor *actor = stage->actors[i];
        if (actor != self && (stage->connected & ~stage->deaf & STAGE_BIT(i)) && actor->attached)
            assert_int_equal(owner_refresh(actor->owner, actor->second, number), 0);
    }
    return 0;
}

static uint64_t stage_notice(const struct fabric *fabric)
{
    return 0;
}

static void stage_notice_listen(struct fabric *fabric, void (*heard)(void *context), void *context) {}

static int stage_peer_call(struct fabric_endpoint *endpoint, struct fabric_process peer, const void *request,
                           size_t length, void *reply, size_t capacity, size_t *reply_length)
{
    struct stage *stage = actor_of(endpoint->fabric)->stage;
    struct actor *actor = find(stage, peer);
    struct owner_service *service;
    const uint8_t *bytes;
    if (!actor || !(stage->connected & STAGE_BIT(actor->number)))
        return BANYAN_EFENCED;
    stage->served++;
    assert_int_equal(owner_service_create(&service, actor->owner, actor->second), 0);
    const struct fabric_peer_request asked = {
        .from = fabric_self(endpoint->fabric), .bytes = request, .length = length};
    int status = owner_service_answer(service, &asked, &bytes, reply_length);
    assert_in_range(*reply_length, 0, capacity);
    memcpy(reply, bytes, *reply_length);
    owner_service_destroy(service);
    return stage->lose_replies ? BANYAN_ENET : status;
}

static void stage_describe(const struct fabric *fabric, struct fabric_process peer, char *text, size_t size)
{
    snprintf(text, size, "compute node %u", peer.compute_id);
}

static const struct fabric_peer_ops peers = {
    .self = stage_self,
    .lease_alive = stage_lease_alive,
    .lease_lapses = stage_lease_lapses,
    .lease_resume = stage_lease_resume,
    .fence = stage_fence,
    .lease_over = stage_lease_over,
    .processes = stage_processes,
    .notify = stage_notify,
    .notice = stage_notice,
    .notice_listen = stage_notice_listen,
    .call = stage_peer_call,
    .describe = stage_describe,
};

static const struct fabric_ops operations = {
    .execute = wrapper_execute,
    .call = stage_call,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
    .incarnation = wrapper_incarnation,
    .peers = &peers,
};

/* ---- opening and closing ---- */

static void actor_open(struct stage *stage, unsigned number)
{
    const struct fabric_target *targets[STAGE_NODES];
    struct tree_switches switches;
    struct owner_options options;
    struct error error = {0};
    struct actor *actor = calloc(1, sizeof *actor);
    assert_non_null(actor);
    for (unsigned i = 0; i < STAGE_NODES; i++)
        targets[i] = memory_node_target(stage->nodes[i]);
    struct fabric *inner = fabric_local_create(targets, STAGE_NODES, (uint16_t)(number + 1), &error);
    assert_non_null(inner);
    wrapper_init(&actor->wrapper, &operations, run_list, inner);
    actor->stage = stage;
    actor->number = number;
    stage->actors[number] = actor;
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_bytes = 1u << 20;
    owner_options_default(&options);
    options.adopt_ns = 20 * MILLISECOND;
    options.timeout_ns = 300 * MILLISECOND;
    assert_int_equal(tree_compute_create(&actor->compute, &actor->wrapper.fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&actor->worker, tree_compute_pool(actor->compute), &error), 0);
    assert_int_equal(tree_session_create(&actor->session, actor->compute, actor->worker, &error), 0);
    assert_int_equal(tree_session_create(&actor->second, actor->compute, actor->worker, &error), 0);
    options.log = stage->log != NULL;
    assert_int_equal(owner_create(&actor->owner, actor->compute, &options, &error), 0);
    if (stage->log)
        owner_set_log(actor->owner, stage->log, actor);
}

static void good(const struct actor *actor, int status)
{
    if (status)
        fail_msg("compute node %u: %d: %s", actor->number, status, tree_session_error(actor->session)->text);
}

void stage_open_logged(struct stage *stage, const struct owner_log *log)
{
    const struct format_geometry geometry = {
        .key_bytes = 8, .value_bytes = VALUE_BYTES, .leaf_bytes = 512, .internal_bytes = 1024};
    struct error error = {0};
    *stage = (struct stage){.connected = STAGE_ALL, .log = log, .now = 1000 * MILLISECOND};
    stage->task.ops = &time_of_stage;
    stage->before = task_self();
    task_set_self(&stage->task);
    for (uint16_t i = 0; i < STAGE_NODES; i++) {
        struct memory_options options = {.node = i, .pool_bytes = 4 << 20, .chunk_bytes = 64 << 10};
        assert_int_equal(memory_node_create(&stage->nodes[i], &options, &error), 0);
    }
    for (unsigned i = 0; i < STAGE_ACTORS; i++)
        actor_open(stage, i);
    struct actor *first = stage->actors[A];
    good(first, tree_format(first->session));
    good(first, tree_create(first->session, "steps", &geometry, &first->tree));
    for (unsigned i = 0; i < STAGE_ACTORS; i++) {
        struct actor *actor = stage->actors[i];
        if (i)
            good(actor, tree_open(actor->session, "steps", &actor->tree));
        good(actor, owner_attach(actor->owner, actor->session, actor->tree));
        actor->attached = true;
    }
    for (uint64_t key = 1; key <= STAGE_KEYS; key++)
        good(first, stage_put(first, key, 1));
}

void stage_open(struct stage *stage)
{
    stage_open_logged(stage, NULL);
}

void stage_close(struct stage *stage)
{
    for (unsigned i = 0; i < STAGE_ACTORS; i++) {
        struct actor *actor = stage->actors[i];
        owner_destroy(actor->owner);
        tree_close(actor->tree);
        tree_session_destroy(actor->session);
        tree_session_destroy(actor->second);
        pool_worker_abandon(actor->worker);
        tree_compute_destroy(actor->compute);
        fabric_close(&actor->wrapper.fabric);
    }
    for (unsigned i = 0; i < STAGE_NODES; i++)
        memory_node_destroy(stage->nodes[i]);
    task_set_self(stage->before);
}

/* ---- what actors do ---- */

void stage_lose(struct actor *actor)
{
    for (uint16_t i = 0; i < STAGE_NODES; i++)
        lose_at(actor, i);
}

size_t stage_key(uint64_t number, uint8_t key[8])
{
    for (unsigned i = 0; i < 8; i++)
        key[i] = (uint8_t)(number >> (56 - 8 * i));
    return 8;
}

int stage_put(struct actor *actor, uint64_t number, uint8_t what)
{
    uint8_t key[8], value[VALUE_BYTES];
    memset(value, what, sizeof value);
    return tree_upsert(actor->session, actor->tree, key, stage_key(number, key), value, sizeof value);
}

int stage_get(struct actor *actor, uint64_t number)
{
    uint8_t key[8], value[VALUE_BYTES];
    size_t length = sizeof value;
    int status = tree_lookup(actor->session, actor->tree, key, stage_key(number, key), value, &length);
    return status ? status : value[0];
}

int stage_move(struct actor *actor, uint64_t number, const struct actor *to)
{
    uint8_t key[8];
    struct owner_selection selection = {
        .tree = actor->tree, .key = key, .key_length = stage_key(number, key), .keyed = true};
    struct fabric_process process = {0};
    if (to)
        process = stage_self(&to->wrapper.fabric);
    return owner_move(actor->owner, actor->session, &selection, process, NULL);
}

int stage_split(struct actor *actor, uint64_t number)
{
    uint8_t key[8];
    return owner_split(actor->owner, actor->session, actor->tree, key, stage_key(number, key));
}

enum tree_right stage_right(const struct actor *actor, uint64_t number, uint64_t *incarnation)
{
    uint8_t key[8];
    return tree_rights_at(actor->tree, key, stage_key(number, key), incarnation);
}

struct memory_board_reply stage_board(struct actor *actor)
{
    struct memory_board_reply reply;
    assert_int_equal(owner_board_look(actor->second, &reply), 0);
    return reply;
}

/* ---- the map ---- */

struct looking {
    const struct stage *stage;
    struct stage_ranges *ranges;
};

static void count_range(void *context, const struct owner_range *range)
{
    const struct looking *looking = context;
    struct stage_ranges *ranges = looking->ranges;
    const uint64_t facts[] = {range->number,        (uint64_t)range->state, range->owner.instance,
                              range->next.instance, range->epoch,           range->version};
    const struct actor *owner = find(looking->stage, range->owner);
    uint32_t crc = crc32c(crc32c(0, facts, sizeof facts), range->lower, range->lower_length);
    ranges->sum = ranges->sum * 31 + crc;
    ranges->count++;
    ranges->moving += range->state == FORMAT_RANGE_MOVING;
    ranges->split += range->state == FORMAT_RANGE_SPLIT;
    if (owner)
        ranges->of[owner->number]++;
    else
        ranges->shared++;
}

void stage_look(struct actor *actor, struct stage_ranges *ranges)
{
    struct looking looking = {actor->stage, ranges};
    *ranges = (struct stage_ranges){0};
    assert_int_equal(owner_list(actor->owner, actor->second, count_range, &looking), 0);
}
