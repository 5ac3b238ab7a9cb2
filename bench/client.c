/* client.c - see client.h. */
#include "bench/client.h"

#include <stdio.h>
#include <stdlib.h>
#include "bench/batch.h"
#include "store/store.h"

struct action {
    struct bench_client *client;
    struct workload_operation operation; /* the one under way */
    size_t key_length, value_length;
    uint8_t key[FORMAT_KEY_MAX], in_slot[FORMAT_VALUE_MAX + 1];
    uint8_t *value; /* in_slot, or the client's */
    size_t found;   /* bytes in `value` that a lookup has brought, but for records */
    uint64_t visited;
    bool wrong; /* a value came back that was never written to its key */
    bool lost;  /* by a lookup with `judged`: a value that an acknowledged write had replaced */
    bool judged;
};

static uint64_t slot_of(const struct action *action)
{
    return action->operation.number >> WORKLOAD_GENERATION_BITS;
}

static void judge_value(struct action *action, const uint8_t *value, size_t length)
{
    action->wrong = !workload_value_matches(action->operation.number, value, length);
    action->lost = action->judged && !ledger_allows(action->client->ledger, slot_of(action), value, length);
}

uint64_t bench_client_seed(const struct bench_config *config, unsigned n)
{
    return random_mix(config->seed * UINT64_C(0x9e3779b97f4a7c15) + n + 1);
}

static bool visit_entry(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct action *action = context;
    action->visited++;
    action->wrong |= key_length < 8 || !workload_value_matches(workload_key_number(key), value, length);
    return true;
}

static enum tree_verdict modify_entry(void *context, const void *old, size_t old_length, void *value,
                                      size_t *length)
{
    struct action *action = context;
    if (!old)
        return TREE_KEEP;
    action->visited = 1;
    action->wrong |= !workload_value_matches(action->operation.number, old, old_length);
    workload_value(action->operation.number, action->operation.salt, value, action->value_length);
    *length = action->value_length;
    return TREE_PUT;
}

static int perform_lookup(struct action *action)
{
    struct bench_client *client = action->client;
    action->found = sizeof action->in_slot;
    return tree_lookup(client->session, client->tree, action->key, action->key_length, action->value,
                       &action->found);
}

/* A scan's entries: from its key upwards, or downwards. */
static struct tree_range range_of(const struct action *action)
{
    const struct workload_operation *operation = &action->operation;
    if (operation->kind == WORKLOAD_REVERSE_SCAN)
        return (struct tree_range){.to = action->key,
                                   .to_length = action->key_length,
                                   .reverse = true,
                                   .limit = operation->scan_length};
    return (struct tree_range){
        .from = action->key, .from_length = action->key_length, .limit = operation->scan_length};
}

/* ---- with values in records ---- */

static bool visit_record(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    return visit_entry(context, key, key_length, value->bytes, value->length);
}

static enum store_verdict modify_record(void *context, const struct store_value *old, struct store_value *new)
{
    struct action *action = context;
    if (!old)
        return STORE_KEEP;
    action->visited = 1;
    action->wrong |= !workload_value_matches(action->operation.number, old->bytes, old->length);
    *new = (struct store_value){.bytes = action->value, .length = action->value_length};
    return STORE_PUT;
}

/* Inserts and updates are puts. */
static int perform_record(struct action *action)
{
    struct store_session *records = action->client->records;
    const struct workload_operation *operation = &action->operation;
    const struct tree_range range = range_of(action);
    struct store_value value;
    int status;
    switch (operation->kind) {
    case WORKLOAD_LOOKUP:
        status = store_get(records, action->key, action->key_length, &value);
        if (!status)
            judge_value(action, value.bytes, value.length);
        action->wrong = action->wrong || (!status && value.length != action->value_length);
        return status;
    case WORKLOAD_DELETE:
        return store_delete(records, action->key, action->key_length);
    case WORKLOAD_SCAN:
    case WORKLOAD_REVERSE_SCAN:
        return store_scan(records, &range, STORE_SCAN_VALUES, visit_record, action);
    default:
        break;
    }
    workload_value(operation->number, operation->salt, action->value, action->value_length);
    if (operation->kind != WORKLOAD_MODIFY)
        return store_put(records, action->key, action->key_length, action->value, action->value_length, 0);
    status = store_modify(records, action->key, action->key_length, STORE_NEED_VALUE, modify_record, action,
                          NULL, NULL);
    return !status && !action->visited ? BANYAN_ENOTFOUND : status;
}

int bench_store_open(struct store **store, const struct bench_config *config, struct tree *tree,
                     struct error *error)
{
    *store = NULL;
    return config->record_bytes ? store_wrap(store, tree, error) : 0;
}

void bench_store_close(struct store *store, struct tree *tree)
{
    if (store)
        store_close(store);
    else if (tree)
        tree_close(tree);
}

void bench_client_close(struct bench_client *client)
{
    store_session_destroy(client->records);
    client->records = NULL;
    if (client->session)
        tree_session_destroy(client->session);
    client->session = NULL;
    free(client->value);
    client->value = NULL;
    bench_batch_destroy(client->batch);
    client->batch = NULL;
}

/* ---- any ---- */

/* What stands before the time that an operation takes: its key. */
static void aim(struct action *action)
{
    workload_key(action->operation.number, action->key, action->key_length);
}

/* What stands behind it: whether a lookup's value is its key's. A record's is judged at once, since nothing
 * keeps its bytes. */
static void look(struct action *action, int status)
{
    if (!status && action->operation.kind == WORKLOAD_LOOKUP && !action->client->records)
        judge_value(action, action->value, action->found);
}

static int perform(struct action *action)
{
    struct bench_client *client = action->client;
    struct tree_session *session = client->session;
    struct tree *tree = client->tree;
    const struct workload_operation *operation = &action->operation;
    action->visited = 0;
    action->wrong = action->lost = false;
    if (client->records)
        return perform_record(action);
    switch (operation->kind) {
    case WORKLOAD_LOOKUP:
        return perform_lookup(action);
    case WORKLOAD_DELETE:
        return tree_delete(session, tree, action->key, action->key_length);
    case WORKLOAD_SCAN:
    case WORKLOAD_REVERSE_SCAN: {
        const struct tree_range range = range_of(action);
        return tree_scan(session, tree, &range, visit_entry, action);
    }
    case WORKLOAD_MODIFY: {
        int status = tree_modify(session, tree, action->key, action->key_length, modify_entry, action);
        return !status && !action->visited ? BANYAN_ENOTFOUND : status;
    }
    case WORKLOAD_UPSERT:
    case WORKLOAD_INSERT:
    case WORKLOAD_UPDATE:
    default:
        break;
    }
    workload_value(operation->number, operation->salt, action->value, action->value_length);
    if (operation->kind == WORKLOAD_INSERT)
        return tree_insert(session, tree, action->key, action->key_length, action->value,
                           action->value_length);
    if (operation->kind == WORKLOAD_UPDATE)
        return tree_update(session, tree, action->key, action->key_length, action->value,
                           action->value_length);
    return tree_upsert(session, tree, action->key, action->key_length, action->value, action->value_length);
}

/* All three, where nobody asks for the time. */
static int perform_untimed(struct action *action)
{
    aim(action);
    const int status = perform(action);
    look(action, status);
    return status;
}

/* What was wrong with an operation ends the run. */
static __attribute__((noinline)) void refuse(struct action *action, int status)
{
    struct bench_client *client = action->client;
    struct error error = {0};
    if (action->wrong) {
        error_set(&error, BANYAN_ECORRUPT, "key %llu came back with a value that was never written to it",
                  (unsigned long long)action->operation.number);
    } else if (action->lost) {
        error_set(&error, BANYAN_ECORRUPT,
                  "key %llu has lost a write that was acknowledged: it holds what was there before",
                  (unsigned long long)action->operation.number);
    } else {
        const struct error *cause = tree_session_error(client->session);
        error_set(&error, status, "%s of key %llu: %s", workload_kind_names[action->operation.kind],
                  (unsigned long long)action->operation.number,
                  cause->text[0] ? cause->text : error_name(status));
    }
    bench_window_fail(client->window, &error);
}

/* True if the run may go on. */
static bool judge(struct action *action, int status)
{
    if (!action->wrong && !action->lost && (!status || status == BANYAN_ENOTFOUND))
        return true;
    refuse(action, status);
    return false;
}

static void warm_cache(struct bench_client *client, struct action *action)
{
    const struct bench_config *config = client->config;
    struct format_geometry_shape shape;
    format_geometry_shape(&config->geometry, &shape);
    /* A quarter of the keys below a full node above the leaves: no such node is missed. */
    uint64_t stride = (uint64_t)((double)shape.slots * shape.internal_entries * config->fill / 4) + 1;
    uint64_t begin = 0, end = config->keys;
    const struct workload_part *part = client->generator.part;
    if (part) { /* two loaded keys in each three slots */
        begin = part->begin / 3 * 2;
        end = part->end / 3 * 2 < end ? part->end / 3 * 2 : end;
    }
    const struct workload *workload = client->generator.source->workload;
    if (workload->working_set > 0 && !workload->scattered)
        end = begin + (uint64_t)((double)(end - begin) * workload->working_set);
    for (uint64_t rank = begin + client->number * stride; rank < end; rank += client->of * stride) {
        action->operation =
            (struct workload_operation){.kind = WORKLOAD_LOOKUP, .number = workload_loaded_number(rank)};
        if (bench_window_phase(client->window) == BENCH_DONE || !judge(action, perform_untimed(action)))
            return;
    }
}

void bench_stats_add(struct bench_result *result, const struct tree_stats *before,
                     const struct tree_stats *after)
{
    result->retries += after->retries - before->retries;
    result->cache_hits += after->cache_hits - before->cache_hits;
    result->cache_misses += after->cache_misses - before->cache_misses;
    result->splits += after->splits - before->splits;
    result->unlinks += after->unlinks - before->unlinks;
    result->handovers += after->handovers - before->handovers;
    result->combined += after->combined - before->combined;
    result->snapshot_handovers += after->snapshot_handovers - before->snapshot_handovers;
}

struct fabric_cost bench_cost_difference(const struct fabric_cost *before, const struct fabric_cost *after)
{
    return (struct fabric_cost){
        .round_trips = after->round_trips - before->round_trips,
        .lists = after->lists - before->lists,
        .reads = after->reads - before->reads,
        .writes = after->writes - before->writes,
        .atomics = after->atomics - before->atomics,
        .rpcs = after->rpcs - before->rpcs,
        .peer_calls = after->peer_calls - before->peer_calls,
        .bytes_read = after->bytes_read - before->bytes_read,
        .bytes_written = after->bytes_written - before->bytes_written,
    };
}

static bool writes(enum workload_kind kind)
{
    return kind != WORKLOAD_LOOKUP && !workload_is_scan(kind);
}

/* With a ledger: a write whose owner died under it may have been made or not. It is begun again, as the user
 * of a store would, as another write, and what it takes counts as one operation. */
static int perform_logged(struct action *action)
{
    struct bench_client *client = action->client;
    int status = BANYAN_EUNKNOWN;
    while (status == BANYAN_EUNKNOWN && bench_window_phase(client->window) != BENCH_DONE) {
        const uint64_t begin = task_now();
        action->operation.salt = ledger_begin(client->ledger);
        if (!action->operation.salt)
            return BANYAN_ENOMEM;
        status = perform(action);
        if (!status)
            ledger_acknowledge(client->ledger, action->operation.salt, slot_of(action), begin, task_now());
        client->meter->result->failure.unknown += status == BANYAN_EUNKNOWN;
    }
    return status == BANYAN_EUNKNOWN ? 0 : status;
}

/* Performs and counts one operation; false when the run has failed. *waited: it made a round trip. */
static bool step(struct bench_client *client, struct action *action, enum bench_phase phase, bool *waited)
{
    workload_next(&client->generator, &action->operation);
    const struct tree_stats *stats = tree_session_stats(client->session);
    struct tree_stats before = *stats;
    aim(action);
    uint64_t begin = task_now();
    int status = client->ledger && writes(action->operation.kind) ? perform_logged(action) : perform(action);
    uint64_t end = task_now();
    look(action, status);
    if (!judge(action, status))
        return false;
    struct bench_result *result = client->meter->result;
    if (phase == BENCH_MEASURING && bench_window_phase(client->window) != BENCH_DONE) {
        bench_stats_add(result, &before, stats);
        result->absent += status == BANYAN_ENOTFOUND;
        if (workload_is_scan(action->operation.kind))
            result->entries_scanned += action->visited;
    }
    struct fabric_cost cost = bench_cost_difference(&before.cost, &stats->cost);
    *waited = cost.round_trips > 0;
    bench_meter_count(client->meter, phase, action->operation.kind, begin, end, &cost);
    return true;
}

/* A compute node that owns nothing yet looks so often whether it does. */
#define IDLE_NS UINT64_C(20000)

/* With records: room for a value, and a session of the store. With batches: room for one. */
static int prepare(struct bench_client *client, struct action *action)
{
    struct error error = {0};
    int status = 0;
    action->value = action->in_slot;
    if (client->config->batch > 1) {
        client->batch = bench_batch_create(client->config);
        if (!client->batch) {
            status = error_set(&error, BANYAN_ENOMEM, "no memory for a batch of %u operations",
                               client->config->batch);
            bench_window_fail(client->window, &error);
        }
        return status;
    }
    if (!client->store)
        return 0;
    status = store_session_create(&client->records, client->store, client->session, &error);
    action->value = client->value = malloc(action->value_length + 1);
    if (!status && !action->value)
        status = error_set(&error, BANYAN_ENOMEM, "no memory for a value");
    if (status)
        bench_window_fail(client->window, &error);
    else
        store_session_seed(client->records, random_next(&client->generator.random));
    return status;
}

static void run(struct bench_client *client, struct action *action)
{
    warm_cache(client, action);
    bench_window_warm(client->window);
    /* On mapped memory no operation waits, so the fibers of a thread must give way to each other by
     * themselves; in the simulator they must where an operation was done from the cache. There a client that
     * never waits would also be done with all operations before the other threads' clients begin. */
    enum bench_fabric fabric = client->config->fabric;
    bool give_way = (fabric == BENCH_LOCAL || fabric == BENCH_UNIX) && client->config->fibers > 1;
    bool simulated = fabric == BENCH_SIM;
    for (;;) {
        enum bench_phase phase = bench_window_phase(client->window);
        const struct workload_part *part = client->generator.part;
        if (phase != BENCH_DONE && part && part->begin == part->end) {
            task_sleep(IDLE_NS);
            continue;
        }
        bool waited = false;
        if (phase == BENCH_DONE || !(client->batch ? bench_batch_step(client->batch, client, phase, &waited)
                                                   : step(client, action, phase, &waited)))
            return;
        if (give_way || (simulated && !waited && client->config->fibers > 1))
            task_yield();
        else if (simulated && !waited)
            task_sleep(0); /* the others catch up; costs nothing */
    }
}

void bench_client_run(struct bench_client *client)
{
    struct action action = {.client = client,
                            .key_length = client->config->geometry.key_bytes,
                            .value_length = bench_config_value_bytes(client->config)};
    if (!prepare(client, &action))
        run(client, &action);
}

void bench_client_read_back(struct bench_client *client, uint64_t first, uint64_t step)
{
    struct action action = {.client = client,
                            .key_length = client->config->geometry.key_bytes,
                            .value_length = bench_config_value_bytes(client->config),
                            .judged = true};
    action.value = client->value ? client->value : action.in_slot;
    for (uint64_t rank = first; rank < client->config->keys && !client->window->failed; rank += step) {
        action.operation =
            (struct workload_operation){.kind = WORKLOAD_LOOKUP, .number = workload_loaded_number(rank)};
        int status = perform_untimed(&action);
        /* All loaded keys are there: the workload deletes none. */
        if (!judge(&action, status == BANYAN_ENOTFOUND ? BANYAN_ECORRUPT : status))
            return;
        client->meter->result->failure.read_back++;
    }
}
