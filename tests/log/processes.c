/* processes.c - see processes.h. */
#include "processes.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fabric/local.h"
#include "memory/walk_service.h"
#include "tree/wrapper.h"

static const struct format_geometry geometry = {.key_kind = FORMAT_KEY_FIXED,
                                                .key_bytes = 8,
                                                .value_bytes = PROCESSES_VALUE,
                                                .leaf_bytes = 512,
                                                .internal_bytes = 512};

/* ---- the fabric of a process ---- */

struct process_fabric {
    struct wrapper wrapper;
    bool dead, away[PROCESSES_NODES_MAX];
    bool list_away;
    uint16_t nodes;                      /* in the home node's list */
    uint64_t since[PROCESSES_NODES_MAX]; /* lists of earlier incarnations are refused */
    process_hook *hook;
    void *context;
    enum fabric_durability durability;
    process_persist *persist;
    void *persist_context;
    enum fabric_membership membership[PROCESSES_NODES_MAX];
};

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct process_fabric *fabric = (struct process_fabric *)endpoint->fabric;
    if (fabric->dead || (list->incarnation && list->incarnation < fabric->since[list->node]))
        return BANYAN_EFENCED;
    if (fabric->away[list->node])
        return BANYAN_ENET;
    if (fabric->hook)
        return fabric->hook(fabric->context, endpoint, list);
    return wrapper_pass(endpoint, list, list->count);
}

static int run_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                    void *reply, size_t capacity, size_t *reply_length)
{
    const struct process_fabric *fabric = (const struct process_fabric *)endpoint->fabric;
    return fabric->dead || fabric->away[node]
               ? BANYAN_EFENCED /* there is no connection */
               : wrapper_call(endpoint, node, request, length, reply, capacity, reply_length);
}

static void run_calls(struct fabric_endpoint *endpoint, struct fabric_call *const *calls, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        calls[i]->status = run_call(endpoint, calls[i]->node, calls[i]->request, calls[i]->length,
                                    calls[i]->reply, calls[i]->capacity, &calls[i]->reply_length);
}

static enum fabric_durability durability_of(const struct fabric *fabric, uint16_t node)
{
    (void)node;
    return ((const struct process_fabric *)fabric)->durability;
}

static int run_persist(struct fabric_endpoint *endpoint, const uint16_t *nodes, uint32_t count, int *statuses)
{
    const struct process_fabric *fabric = (const struct process_fabric *)endpoint->fabric;
    int first = 0;
    for (uint32_t i = 0; i < count; i++) {
        statuses[i] = fabric->dead || fabric->away[nodes[i]]
                          ? BANYAN_EFENCED
                          : fabric->persist(fabric->persist_context, nodes[i]);
        first = first ? first : statuses[i];
    }
    return first;
}

static enum fabric_membership membership_of(const struct fabric *fabric, uint16_t node)
{
    return ((const struct process_fabric *)fabric)->membership[node];
}

static bool ask_for_list(struct fabric *fabric)
{
    const struct process_fabric *process = (const struct process_fabric *)fabric;
    /* Release: fabric_memory_nodes acquires it. */
    if (!process->list_away)
        __atomic_store_n(&fabric->capabilities.memory_nodes, process->nodes, __ATOMIC_RELEASE);
    return !process->list_away;
}

static bool learn_of(struct fabric *fabric, uint16_t node)
{
    return ask_for_list(fabric) && node < fabric_memory_nodes(fabric) &&
           membership_of(fabric, node) != FABRIC_NO_MEMBER;
}

static const struct fabric_cluster_ops process_cluster_ops = {
    .membership = membership_of, .learn = learn_of, .refresh = ask_for_list};

static const struct fabric_ops process_ops = {
    .execute = wrapper_execute,
    .call = run_call,
    .calls = run_calls,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
    .incarnation = wrapper_incarnation,
    .durability = durability_of,
    .persist = run_persist,
    .cluster = &process_cluster_ops,
};

void process_kept(struct process *process, enum fabric_durability durability, process_persist *persist,
                  void *context)
{
    process->trouble->durability = durability;
    process->trouble->persist = persist;
    process->trouble->persist_context = context;
}

void process_hears(struct process *process, uint16_t node, enum fabric_membership membership)
{
    process->trouble->membership[node] = membership;
}

void process_hooked(struct process *process, process_hook *hook, void *context)
{
    process->trouble->hook = hook;
    process->trouble->context = context;
}

int process_cut(struct process *process, struct fabric_endpoint *endpoint, struct fabric_list *list,
                uint16_t count)
{
    wrapper_pass(endpoint, list, count);
    process->trouble->since[list->node] = ++process->trouble->wrapper.incarnation;
    return BANYAN_ENET;
}

int process_refuse(struct process *process, struct fabric_list *list)
{
    process->trouble->since[list->node] = ++process->trouble->wrapper.incarnation;
    return BANYAN_EFENCED;
}

void process_away(struct process *process, uint16_t node, bool away)
{
    process->trouble->away[node] = away;
    if (away)
        process->trouble->since[node] = ++process->trouble->wrapper.incarnation;
}

void process_list_away(struct process *process, bool away)
{
    process->trouble->list_away = away;
}

/* ---- life ---- */

void process_check(const struct process *process, int status)
{
    if (status)
        fail_msg("%s: %s", error_name(status), tree_session_error(process->session)->text);
}

void processes_open(struct processes *processes, unsigned nodes, uint64_t log_bytes)
{
    const struct memory_options memory = {.pool_bytes = 64 << 20, .log_bytes = log_bytes};
    processes_open_as(processes, nodes, &memory);
}

void processes_open_as(struct processes *processes, unsigned nodes, const struct memory_options *memory)
{
    struct memory_options options = *memory;
    struct error error = {0};
    *processes = (struct processes){.nodes = nodes, .policy = TREE_CACHE_BANYAN, .cache_bytes = 64 << 10};
    for (uint16_t n = 0; n < nodes; n++) {
        options.node = n;
        assert_int_equal(memory_node_create(&processes->memory[n], &options, &error), 0);
    }
    log_options_default(&processes->options);
    processes->options.segment_bytes = 64 << 10;
    processes->options.frame_bytes = 2048;
    processes->options.seed = 1;
    processes->options.wait_ns = 20 * 1000 * 1000;
}

static void process_close(struct process *process)
{
    log_destroy(process->log);
    if (process->tree)
        tree_close(process->tree);
    tree_session_destroy(process->spare);
    tree_session_destroy(process->session);
    pool_worker_abandon(process->worker);
    tree_compute_destroy(process->compute);
    fabric_close(process->fabric);
}

void processes_close(struct processes *processes)
{
    for (unsigned i = 0; i < processes->count; i++)
        process_close(&processes->all[i]);
    for (unsigned n = 0; n < processes->nodes; n++) {
        memory_walks_destroy(processes->walks[n]);
        memory_node_destroy(processes->memory[n]);
    }
}

void processes_merge_there(struct processes *processes)
{
    const struct memory_walk_costs costs = {0};
    struct error error = {0};
    for (unsigned n = 0; n < processes->nodes; n++)
        assert_int_equal(memory_walks_create(&processes->walks[n], processes->memory[n], &costs, &error), 0);
}

struct process *process_begin(struct processes *processes)
{
    const struct fabric_target *targets[PROCESSES_NODES_MAX];
    struct tree_switches switches = {.cache_bytes = processes->cache_bytes};
    struct error error = {0};
    struct process *process = &processes->all[processes->count];
    assert_true(processes->count < PROCESSES_MAX);
    for (unsigned n = 0; n < processes->nodes; n++)
        targets[n] = memory_node_target(processes->memory[n]);
    struct fabric *inner =
        fabric_local_create(targets, (uint16_t)processes->nodes, (uint16_t)(processes->count + 1), &error);
    assert_non_null(inner);
    process->trouble = calloc(1, sizeof *process->trouble);
    assert_non_null(process->trouble);
    for (unsigned n = 0; n < processes->nodes; n++)
        process->trouble->membership[n] = FABRIC_MEMBER;
    wrapper_init(&process->trouble->wrapper, &process_ops, run_list, inner);
    process->fabric = &process->trouble->wrapper.fabric;
    process->trouble->nodes = (uint16_t)processes->nodes;
    process->fabric->capabilities.memory_nodes_most = (uint16_t)processes->nodes;
    if (processes->listed)
        process->fabric->capabilities.memory_nodes = (uint16_t)processes->listed;
    assert_int_equal(tree_switches_preset(&switches, "banyan", &error), 0);
    switches.cache_policy = (int)processes->policy;
    switches.merge_walks = processes->walks[0] ? TREE_WALKS_ALWAYS : TREE_WALKS_NEVER;
    assert_int_equal(tree_compute_create(&process->compute, process->fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&process->worker, tree_compute_pool(process->compute), &error), 0);
    assert_int_equal(tree_session_create(&process->session, process->compute, process->worker, &error), 0);
    assert_int_equal(tree_session_create(&process->spare, process->compute, process->worker, &error), 0);
    processes->options.seed++;
    assert_int_equal(log_create(&process->log, process->compute, &processes->options, &error), 0);
    if (!processes->count++)
        process_check(process, tree_format(process->session));
    return process;
}

void process_attach(struct process *process, struct tree *tree)
{
    struct error error = {0};
    process->tree = tree;
    assert_int_equal(log_attach(process->log, tree, &error), 0);
}

struct process *process_start(struct processes *processes)
{
    struct process *process = process_begin(processes);
    struct tree *tree;
    process_check(process, process == &processes->all[0]
                               ? tree_create(process->session, "logged", &geometry, &tree)
                               : tree_open(process->session, "logged", &tree));
    process_attach(process, tree);
    return process;
}

/* ---- who owns ---- */

static void adopt_row(struct processes *processes, struct process *process, const struct tree_rights_row *row)
{
    processes->version++;
    process_check(process, tree_rights_adopt(process->session, process->tree, processes->version,
                                             fabric_incarnation(process->fabric), row, 1));
}

static void adopt(struct processes *processes, struct process *process, enum tree_right right)
{
    struct tree_rights_row row = {.right = right,
                                  .epoch = process->epoch,
                                  .logged = right == TREE_OWNED,
                                  .drains = right == TREE_MOVING};
    adopt_row(processes, process, &row);
}

void process_others(struct processes *processes, struct process *process, const struct process *owner)
{
    struct tree_rights_row row = {
        .right = TREE_OTHERS, .owner = fabric_self(owner->fabric), .epoch = owner->epoch, .logged = true};
    adopt_row(processes, process, &row);
}

void process_moving(struct processes *processes, struct process *process)
{
    adopt(processes, process, TREE_MOVING);
}

void process_own_still(struct processes *processes, struct process *process)
{
    adopt(processes, process, TREE_OWNED);
}

void process_own(struct processes *processes, struct process *process)
{
    adopt(processes, process, TREE_MOVING);
    process->epoch = processes->version;
    process_check(process, log_inherit(process->log, process->session, process->tree, processes->heirs,
                                       processes->heir_count, (struct format_key){0}, NULL, process->epoch));
    adopt(processes, process, TREE_OWNED);
}

static void heirs_add(struct processes *processes, const struct process *process)
{
    assert_true(processes->heir_count < 8);
    processes->heirs[processes->heir_count++] =
        (struct log_heir){fabric_self(process->fabric), process->epoch};
}

void process_dies(struct processes *processes, struct process *process)
{
    process->trouble->dead = true;
    if (process->epoch)
        heirs_add(processes, process);
}

void process_gives_away(struct processes *processes, struct process *process)
{
    heirs_add(processes, process);
    log_disown(process->log, process->session, process->tree, (struct format_key){0}, NULL, process->epoch);
}

void heirs_end(struct processes *processes, struct process *owner)
{
    processes->version++;
    processes->heir_count = 0;
    log_released(owner->log, owner->tree, processes->version);
    log_cleared(owner->log, owner->tree, (struct format_key){0}, NULL, owner->epoch);
}

/* ---- operations ---- */

void key_of(unsigned number, uint8_t key[8])
{
    memset(key, 0, 8);
    for (unsigned i = 0; i < 4; i++)
        key[4 + i] = (uint8_t)(number >> (24 - 8 * i));
}

int process_put(struct process *process, unsigned number, uint64_t value)
{
    uint8_t key[8], bytes[PROCESSES_VALUE] = {0};
    key_of(number, key);
    for (unsigned i = 0; i + 8 <= sizeof bytes; i += 8)
        memcpy(bytes + i, &value, 8);
    return tree_upsert(process->session, process->tree, key, 8, bytes, sizeof bytes);
}

int process_delete(struct process *process, unsigned number)
{
    uint8_t key[8];
    key_of(number, key);
    return tree_delete(process->session, process->tree, key, 8);
}

uint64_t process_get(struct process *process, unsigned number)
{
    uint8_t key[8], bytes[PROCESSES_VALUE];
    size_t length = sizeof bytes;
    uint64_t value;
    key_of(number, key);
    int status = tree_lookup(process->session, process->tree, key, 8, bytes, &length);
    if (status == BANYAN_ENOTFOUND)
        return 0;
    process_check(process, status);
    assert_int_equal(length, sizeof bytes);
    assert_memory_equal(bytes, bytes + 8, 8);
    assert_memory_equal(bytes, bytes + 16, 8);
    memcpy(&value, bytes, 8);
    return value;
}
