/* map_sim.c - see map_sim.h. */
#include "bench/map_sim.h"

#include <stdlib.h>
#include "bench/fail_sim.h"
#include "bench/ownership.h"
#include "owner/owner.h"

#define POLL_NS UINT64_C(20000)

struct map_node {
    struct owner *owner;
    struct sim_client keeper; /* its session and its place; draws nothing */
    struct sim_thread thread; /* the keeper's */
};

struct map_sim {
    struct map_node *nodes;
    struct sim_client *servers; /* one for each client, on its thread */
    struct sim_client mover;    /* on the first node's keeper thread */
    unsigned joined;
    bool divided, stopping;
    uint64_t move_begin_ns, move_end_ns;
    uint64_t move_cached; /* bytes that the range's owner had cached when the move began */
    uint32_t moved;
    struct fabric_cost served[2]; /* when the window opened, when it closed */
};

static bool failed(const struct sim_run *run)
{
    return run->window.failed;
}

/* ---- setting up ---- */

/* A session of its own for a task of this layer on a thread. */
static int open_task_session(struct sim_run *run, struct sim_client *client, struct sim_thread *thread,
                             struct error *error)
{
    client->thread = thread;
    client->client.window = &run->window;
    return tree_session_create(&client->client.session, run->computes[thread->compute].compute,
                               thread->worker, error);
}

static int create_node(struct sim_run *run, unsigned number, struct error *error)
{
    struct map_node *node = &run->map->nodes[number];
    struct owner_options options;
    owner_options_default(&options);
    /* What a dead compute node had goes to those that want ranges. */
    options.policy = run->config->fail ? OWNER_AUTO : OWNER_NONE;
    options.log = run->config->log_copies > 0;
    options.balance_ns = 0; /* ranges stay as they are divided here */
    options.seed = run->config->seed;
    node->thread = (struct sim_thread){.run = run, .compute = number, .number = run->config->threads};
    int status = owner_create(&node->owner, run->computes[number].compute, &options, error);
    if (!status)
        status =
            pool_worker_create(&node->thread.worker, tree_compute_pool(run->computes[number].compute), error);
    return status ? status : open_task_session(run, &node->keeper, &node->thread, error);
}

int map_sim_create(struct sim_run *run, struct error *error)
{
    struct map_sim *map = run->map = calloc(1, sizeof *map);
    if (map) {
        map->nodes = calloc(run->config->compute_nodes, sizeof *map->nodes);
        map->servers = calloc(run->client_count, sizeof *map->servers);
    }
    if (!map || !map->nodes || !map->servers)
        return error_set(error, BANYAN_ENOMEM, "no memory for the map of ranges");
    int status = 0;
    for (unsigned i = 0; i < run->config->compute_nodes && !status; i++)
        status = create_node(run, i, error);
    for (unsigned i = 0; i < run->client_count && !status; i++)
        status = open_task_session(run, &map->servers[i], run->clients[i].thread, error);
    return status ? status : open_task_session(run, &map->mover, &map->nodes[0].thread, error);
}

static void close_session(struct sim_client *client)
{
    if (client->client.session)
        tree_session_destroy(client->client.session);
    client->client.session = NULL;
}

void map_sim_destroy(struct sim_run *run)
{
    struct map_sim *map = run->map;
    if (!map)
        return;
    close_session(&map->mover);
    for (unsigned i = 0; map->servers && i < run->client_count; i++)
        close_session(&map->servers[i]);
    for (unsigned i = 0; map->nodes && i < run->config->compute_nodes; i++) {
        close_session(&map->nodes[i].keeper);
        owner_destroy(map->nodes[i].owner);
        if (map->nodes[i].thread.worker)
            pool_worker_abandon(map->nodes[i].thread.worker);
    }
    free(map->nodes);
    free(map->servers);
    free(map);
    run->map = NULL;
}

struct owner *map_sim_owner(const struct sim_run *run, unsigned compute)
{
    return run->map->nodes[compute].owner;
}

/* ---- tasks ---- */

static void keeper_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_run *run = client->thread->run;
    unsigned number = client->thread->compute;
    struct owner *owner = run->map->nodes[number].owner;
    struct tree_session *session = client->client.session;
    int status = owner_join(owner, session);
    if (!status)
        status = owner_attach(owner, session, run->computes[number].tree);
    sim_client_judge(client, status);
    run->map->joined++;
    if (!status)
        sim_client_judge(client, owner_keep(owner, session));
}

static void ticker_task(void *argument)
{
    const struct map_node *node = argument;
    owner_tick(node->owner);
}

static void server_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_run *run = client->thread->run;
    sim_client_judge(client,
                     owner_serve(run->map->nodes[client->thread->compute].owner, client->client.session));
}

/* A range begins at the bound. */
static int begin_range(struct sim_run *run, uint64_t bound)
{
    uint8_t key[8];
    workload_key(bound, key, sizeof key);
    return bound ? owner_split(run->map->nodes[0].owner, run->map->mover.client.session,
                               run->computes[0].tree, key, sizeof key)
                 : 0;
}

/* The range that begins there goes to a compute node. */
static int give(struct sim_run *run, uint64_t bound, unsigned to)
{
    struct map_sim *map = run->map;
    uint8_t key[8];
    workload_key(bound, key, sizeof key);
    struct owner_selection selection = {
        .tree = run->computes[0].tree, .key = key, .key_length = sizeof key, .keyed = true};
    int status = begin_range(run, bound);
    return status ? status
                  : owner_move(map->nodes[0].owner, map->mover.client.session, &selection, run->owners[to],
                               &map->moved);
}

/* How many compute nodes have a range at the beginning. */
static uint32_t first_owners(const struct sim_run *run)
{
    return run->config->compute_nodes - run->config->move;
}

/* All bounds first, while everything is shared: then nothing is inherited on the way to a range's first
 * owner.
 */
static int divide(struct sim_run *run)
{
    const uint32_t each = bench_ranges_each(run->config), ranges = first_owners(run) * each;
    int status = 0;
    for (uint32_t range = 0; range < ranges && !status; range++)
        status = begin_range(run, workload_part_begin(run->source, range, ranges));
    for (uint32_t range = 0; range < ranges && !status; range++)
        status = give(run, workload_part_begin(run->source, range, ranges), range / each);
    return status;
}

/* The upper half of the last owner's range to the compute node that has none; its clients begin then. */
static int move_half(struct sim_run *run)
{
    struct map_sim *map = run->map;
    struct workload_part *from = &run->computes[first_owners(run) - 1].part;
    struct workload_part *to = &run->computes[first_owners(run)].part;
    uint64_t middle = (from->begin + from->end) / 6 * 3;
    struct tree_cache_stats cached = {0};
    tree_cache_stats(run->computes[first_owners(run) - 1].tree, &cached);
    map->move_cached = cached.bytes + cached.leaves.bytes + cached.entries.bytes;
    map->move_begin_ns = task_now();
    int status = give(run, middle << WORKLOAD_GENERATION_BITS, first_owners(run));
    map->move_end_ns = task_now();
    if (status)
        return status;
    to->end = from->end;
    to->begin = from->end = middle;
    return 0;
}

static void mover_task(void *argument)
{
    struct sim_client *client = argument;
    struct sim_run *run = client->thread->run;
    struct map_sim *map = run->map;
    const struct bench_config *config = run->config;
    while (map->joined < config->compute_nodes && !failed(run))
        task_sleep(POLL_NS);
    if (!failed(run))
        sim_client_judge(client, divide(run));
    map->divided = true;
    while ((config->move || config->fail) && run->window.counted < config->operations / 4 && !failed(run))
        task_sleep(POLL_NS);
    if (config->move && !failed(run))
        sim_client_judge(client, move_half(run));
    if (config->fail && !failed(run))
        fail_sim_kill(run);
}

int map_sim_spawn(struct sim_run *run, struct error *error)
{
    struct map_sim *map = run->map;
    int status = 0;
    for (unsigned i = 0; i < run->config->compute_nodes && !status; i++)
        status = sim_spawn(run->sim, (int)i, run->config->threads, keeper_task, &map->nodes[i].keeper, error);
    for (unsigned i = 0; i < run->config->compute_nodes && !status; i++)
        status = sim_spawn(run->sim, (int)i, run->config->threads, ticker_task, &map->nodes[i], error);
    for (unsigned i = 0; i < run->client_count && !status; i++)
        status = sim_spawn(run->sim, (int)map->servers[i].thread->compute, map->servers[i].thread->number,
                           server_task, &map->servers[i], error);
    return status ? status : sim_spawn(run->sim, 0, run->config->threads, mover_task, &map->mover, error);
}

void map_sim_wait(struct sim_run *run)
{
    while (!run->map->divided && !failed(run))
        task_sleep(POLL_NS);
}

void map_sim_stop(struct sim_run *run)
{
    for (unsigned i = 0; i < run->config->compute_nodes; i++)
        if (sim_compute_alive(run->sim, (int)i))
            owner_stop(run->map->nodes[i].owner);
}

void map_sim_count(struct sim_run *run, enum bench_phase phase)
{
    struct fabric_cost *sum = &run->map->served[phase == BENCH_DONE];
    for (unsigned i = 0; i < run->client_count; i++)
        if (run->map->servers[i].client.session)
            fabric_cost_add(sum, &tree_session_stats(run->map->servers[i].client.session)->cost);
}

void map_sim_result(const struct sim_run *run, struct bench_result *result)
{
    if (!run->map)
        return;
    struct fabric_cost served = bench_cost_difference(&run->map->served[0], &run->map->served[1]);
    fabric_cost_add(&result->cost, &served);
    if (!run->map->move_end_ns)
        return;
    result->move_begin_ns = run->map->move_begin_ns - run->window.begin_ns;
    result->move_ns = run->map->move_end_ns - run->map->move_begin_ns;
    result->move_cached = run->map->move_cached;
}
