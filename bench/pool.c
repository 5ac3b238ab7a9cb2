/* pool.c - see pool.h. */
#include "bench/pool.h"

#include <stdlib.h>
#include <string.h>
#include "bench/client.h"
#include "fabric/local.h"
#include "fabric/remote.h"
#include "format/record.h"
#include "memory/walk_service.h"
#include "pool/pool.h"
#include "store/store.h"

/* ---- size ---- */

#define THREAD_BYTES (UINT64_C(1) << 20)

/* Room for every key that the run can make, in leaves that are 40 % full after splits, and for what the
 * threads hold back of each memory node. */
static uint64_t pool_bytes(const struct bench_config *config, const struct workload_source *source)
{
    if (config->pool_bytes)
        return config->pool_bytes;
    struct format_geometry_shape shape;
    format_geometry_shape(&config->geometry, &shape);
    const double *share = source->workload->share;
    double made =
        (double)(config->operations + config->warm_up) * (share[WORKLOAD_INSERT] + share[WORKLOAD_UPSERT]);
    double in_leaf = (double)shape.slots * (config->fill < 0.4 ? config->fill : 0.4);
    double leaves = ((double)config->keys + made) / (in_leaf < 1 ? 1 : in_leaf) + 1;
    double data = leaves * config->geometry.leaf_bytes * 1.15 / config->memory_nodes;
    if (config->record_bytes) /* sizes of blocks are rounded up by a sixteenth at most */
        data += ((double)config->keys + made) * 1.15 / config->memory_nodes *
                format_record_whole_bytes(config->geometry.key_bytes, config->record_bytes);
    uint64_t threads = (uint64_t)config->compute_nodes * config->threads + 2;
    uint64_t bytes =
        (uint64_t)data + (threads * 2 + 8) * THREAD_BYTES + MEMORY_FIRST_CHUNK(MEMORY_LOCK_BYTES);
    return (bytes + 4095) & ~UINT64_C(4095);
}

/* ---- nodes ---- */

static struct fabric_remote_options remote_options(const struct bench_pool *pool)
{
    return (struct fabric_remote_options){.nodes = pool->addresses,
                                          .count = (uint16_t)pool->count,
                                          .name = "bench",
                                          .tls = pool->config->tls,
                                          .secret = pool->config->secret,
                                          .secret_length = pool->config->secret_length,
                                          .nic = pool->config->nic};
}

#define FORMAT_PATIENCE_NS UINT64_C(5000000000)

/* Memory nodes refuse to be formatted while a compute node is connected. Those of the run before have hung
 * up, but the memory nodes may not have seen it yet. */
static int format_remote(const struct bench_pool *pool, struct error *error)
{
    const struct fabric_remote_options options = remote_options(pool);
    const uint64_t until = task_now() + FORMAT_PATIENCE_NS;
    int status;
    while ((status = fabric_remote_format(&options, error)) == BANYAN_EBUSY && task_now() < until)
        task_sleep(1000000);
    return status;
}

/* In processes of their own. */
static int create_remote(struct bench_pool *pool, const struct bench_config *config,
                         const struct workload_source *source, struct error *error)
{
    struct memory_options memory = {.pool_bytes = pool_bytes(config, source),
                                    .chunk_bytes = config->chunk_bytes,
                                    .log_bytes = config->log_bytes,
                                    .huge_pages = PAGES_HUGE,
                                    .shared = true,
                                    .unformatted = true};
    int status = 0;
    if (!config->memory)
        status = bench_daemons_start(&pool->daemons, config->memory_nodes, &memory,
                                     config->fabric == BENCH_TCP ? NET_TCP : NET_UNIX, error);
    pool->addresses = config->memory ? config->memory : pool->daemons.addresses;
    pool->count = config->memory_nodes;
    return status ? status : format_remote(pool, error);
}

struct fabric *bench_pool_fabric(const struct bench_pool *pool, uint16_t id, struct error *error)
{
    struct fabric_remote_options options = remote_options(pool);
    struct fabric *fabric = NULL;
    if (!pool->addresses)
        return fabric_local_create(pool->targets, (uint16_t)pool->count, id, error);
    fabric_remote_open(&fabric, &options, error);
    return fabric;
}

int bench_pool_create(struct bench_pool *pool, const struct bench_config *config,
                      const struct workload_source *source, struct error *error)
{
    *pool = (struct bench_pool){.config = config};
    if (config->fabric == BENCH_TCP || config->fabric == BENCH_UNIX || config->fabric == BENCH_RDMA)
        return create_remote(pool, config, source, error);
    pool->nodes = calloc(config->memory_nodes, sizeof *pool->nodes);
    pool->targets = calloc(config->memory_nodes, sizeof *pool->targets);
    pool->walks = calloc(config->memory_nodes, sizeof *pool->walks);
    if (!pool->nodes || !pool->targets || !pool->walks)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u memory nodes", config->memory_nodes);
    for (unsigned i = 0; i < config->memory_nodes; i++) {
        struct memory_options options = {.node = (uint16_t)i,
                                         .pool_bytes = pool_bytes(config, source),
                                         .chunk_bytes = config->chunk_bytes,
                                         .log_bytes = config->log_bytes,
                                         .huge_pages =
                                             config->fabric == BENCH_LOCAL ? PAGES_HUGE : PAGES_PLAIN};
        if (config->fabric == BENCH_SIM)
            options.lock_width = config->sim.lock_width;
        int status = memory_node_create(&pool->nodes[i], &options, error);
        if (status)
            return status;
        pool->targets[i] = memory_node_target(pool->nodes[i]);
        pool->count++;
        const struct memory_walk_costs costs = {.request_ns = config->sim.walk_ns,
                                                .node_ns = config->sim.walk_node_ns,
                                                .entry_ns = config->sim.merge_entry_ns};
        if (config->fabric == BENCH_SIM)
            status = memory_walks_create(&pool->walks[i], pool->nodes[i], &costs, error);
        if (status)
            return status;
    }
    return 0;
}

void bench_pool_destroy(struct bench_pool *pool)
{
    for (unsigned i = 0; pool->walks && i < pool->count; i++)
        memory_walks_destroy(pool->walks[i]);
    for (unsigned i = 0; pool->nodes && i < pool->count; i++)
        memory_node_destroy(pool->nodes[i]);
    bench_daemons_stop(&pool->daemons);
    free(pool->nodes);
    free(pool->targets);
    free(pool->walks);
    *pool = (struct bench_pool){0};
}

/* ---- a client of its own for loading and checking ---- */

struct helper {
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree;
};

static void helper_close(struct helper *helper)
{
    if (helper->session)
        tree_session_destroy(helper->session);
    if (helper->worker)
        pool_worker_destroy(helper->worker);
    if (helper->tree)
        tree_close(helper->tree);
    if (helper->compute)
        tree_compute_destroy(helper->compute);
    if (helper->fabric)
        fabric_close(helper->fabric);
}

static int helper_open(struct helper *helper, struct bench_pool *pool, const struct bench_config *config,
                       const struct tree_switches *switches, struct error *error)
{
    *helper = (struct helper){0};
    uint16_t id = (uint16_t)(config->compute_nodes + 1); /* the run's compute nodes are 1 to their number */
    helper->fabric = bench_pool_fabric(pool, id, error);
    if (!helper->fabric)
        return error && error->code ? error->code : BANYAN_ENOMEM;
    int status = tree_compute_create(&helper->compute, helper->fabric, switches, error);
    if (!status)
        status = pool_worker_create(&helper->worker, tree_compute_pool(helper->compute), error);
    if (!status)
        status = tree_session_create(&helper->session, helper->compute, helper->worker, error);
    return status;
}

static int session_failed(const struct tree_session *session, int status, struct error *error)
{
    const struct error *cause = tree_session_error(session);
    return error_set(error, status, "%s", cause->text[0] ? cause->text : error_name(status));
}

struct loading {
    const struct bench_config *config;
    uint64_t next;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX + 1];
};

static bool next_entry(void *context, const void **key, size_t *key_length, const void **value,
                       size_t *length)
{
    struct loading *loading = context;
    const struct bench_config *config = loading->config;
    if (loading->next >= config->keys)
        return false;
    uint64_t number = workload_loaded_number(loading->next++);
    *key_length = config->geometry.key_bytes;
    *length = config->geometry.value_bytes;
    workload_key(number, loading->key, *key_length);
    workload_value(number, 0, loading->value, *length);
    *key = loading->key;
    *value = loading->value;
    if (config->progress && loading->next % (config->keys / 100 + 1) == 0)
        config->progress(config->progress_context, "loading", (double)loading->next / (double)config->keys);
    return true;
}

static int load_entries(struct helper *helper, const struct bench_config *config, struct error *error)
{
    struct tree_bulk *bulk = NULL;
    int status = tree_bulk_begin(&bulk, helper->tree, 1, config->fill, error);
    if (status)
        return status;
    struct loading loading = {.config = config};
    int part = tree_bulk_part(helper->session, bulk, 0, next_entry, &loading);
    if (part)
        session_failed(helper->session, part, error);
    int finish = tree_bulk_finish(helper->session, bulk);
    if (part)
        return part;
    return finish ? session_failed(helper->session, finish, error) : 0;
}

/* Records are put, since only the index can be loaded in bulk: many in a call, in an order in which leaves
 * fill as they do in use. */
#define PUTS 32u

static int put_records(const struct bench_config *config, struct store_session *records, uint8_t *values)
{
    const uint32_t length = config->record_bytes;
    uint8_t keys[PUTS][FORMAT_KEY_MAX];
    struct store_item items[PUTS];
    struct permutation order;
    int status = 0;
    permutation_init(&order, config->keys, config->seed);
    for (uint64_t done = 0; done < config->keys && !status;) {
        size_t count = 0;
        for (; count < PUTS && done < config->keys; count++, done++) {
            uint64_t number = workload_loaded_number(permutation_apply(&order, done));
            uint8_t *value = values + count * length;
            workload_key(number, keys[count], config->geometry.key_bytes);
            workload_value(number, 0, value, length);
            items[count] = (struct store_item){.key = keys[count],
                                               .key_length = config->geometry.key_bytes,
                                               .value = {.bytes = value, .length = length}};
        }
        status = store_multi_put(records, items, count);
        if (config->progress && done % (config->keys / 100 + 1) < PUTS)
            config->progress(config->progress_context, "loading", (double)done / (double)config->keys);
    }
    return status;
}

static int load_records(struct helper *helper, const struct bench_config *config, struct error *error)
{
    struct store *store = NULL;
    struct store_session *records = NULL;
    uint8_t *values = malloc((size_t)PUTS * config->record_bytes);
    int status = values ? 0 : error_set(error, BANYAN_ENOMEM, "no memory for values");
    if (!status)
        status = bench_store_open(&store, config, helper->tree, error);
    if (!status)
        status = store_session_create(&records, store, helper->session, error);
    if (!status) {
        store_session_seed(records, random_mix(config->seed));
        status = put_records(config, records, values);
        if (status)
            session_failed(helper->session, status, error);
    }
    store_session_destroy(records);
    if (store) {
        store_close(store); /* with the tree */
        helper->tree = NULL;
    }
    free(values);
    return status;
}

int bench_pool_load(struct bench_pool *pool, const struct bench_config *config,
                    const struct tree_switches *switches, const struct workload_source *source,
                    struct error *error)
{
    (void)source;
    struct helper helper;
    int status = helper_open(&helper, pool, config, switches, error);
    if (!status) {
        status = tree_format(helper.session);
        if (!status)
            status = tree_create(helper.session, BENCH_INDEX, &config->geometry, &helper.tree);
        if (status)
            session_failed(helper.session, status, error);
    }
    if (!status && config->keys)
        status = config->record_bytes ? load_records(&helper, config, error)
                                      : load_entries(&helper, config, error);
    helper_close(&helper);
    return status;
}

/* ---- check ---- */

static uint64_t pool_bytes_used(struct bench_pool *pool)
{
    const struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct fabric_remote_options options = remote_options(pool);
    uint64_t used = 0;
    for (unsigned i = 0; i < pool->count; i++) {
        struct memory_status_reply status = {0};
        size_t length;
        if (!pool->addresses)
            memory_node_status(pool->nodes[i], &status);
        else /* one that is gone is found out by the walk, or was by the run */
            fabric_remote_ask(&options, (uint16_t)i, &ask, sizeof ask, &status, sizeof status, &length, NULL);
        used += status.bytes_used;
    }
    return used;
}

int bench_pool_check(struct bench_pool *pool, const struct bench_config *config,
                     const struct tree_switches *switches, struct bench_space *space, struct error *error)
{
    space->pool_bytes = pool_bytes_used(pool);
    if (!config->check)
        return 0;
    if (config->progress)
        config->progress(config->progress_context, "checking", 0);
    struct helper helper;
    struct tree_check_report report = {0};
    int status = helper_open(&helper, pool, config, switches, error);
    if (!status) {
        status = tree_open(helper.session, BENCH_INDEX, &helper.tree);
        if (!status)
            status = tree_check(helper.session, helper.tree, &report, NULL, NULL);
        if (status)
            session_failed(helper.session, status, error);
    }
    space->entries = report.entries;
    space->leaves = report.leaves;
    space->index_bytes = report.bytes;
    space->height = report.height;
    helper_close(&helper);
    return status;
}
