/* world.c - see world.h. */
#include "swarm/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "fabric/local.h"
#include "swarm/linearize.h"

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes);
    if (!memory)
        abort();
    return memory;
}

void world_options_default(struct world_options *options)
{
    *options =
        (struct world_options){.seed = 1,
                               .memory_nodes = 1,
                               .compute_nodes = 1,
                               .threads = 1,
                               .fibers = 1,
                               .pool_bytes = UINT64_C(64) << 20,
                               .chunk_bytes = UINT64_C(64) << 10,
                               .cache_bytes = UINT64_C(8) << 20,
                               .geometry = {.key_kind = TREE_KEY_FIXED, .key_bytes = 8, .value_bytes = 8}};
    sim_params_default(&options->params);
    sim_faults_none(&options->faults);
}

uint64_t world_seed(uint64_t given)
{
    const char *text = getenv("BANYAN_SEED");
    return text ? strtoull(text, NULL, 0) : given;
}

uint64_t world_fresh_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return world_seed(random_mix((uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec) >> 20);
}

unsigned world_rounds(unsigned given)
{
    const char *text = getenv("BANYAN_ROUNDS");
    double factor = text ? strtod(text, NULL) : 1.0;
    double rounds = given * factor;
    return rounds < 1 ? 1 : (unsigned)rounds;
}

int world_fail(struct world *world, int code, const char *format, ...)
{
    /* Relaxed is enough: whoever wins writes the text, and it is read after all tasks have been joined. */
    int nothing = 0;
    if (!__atomic_compare_exchange_n(&world->error.code, &nothing, code, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED))
        return code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(world->error.text, sizeof world->error.text, format, arguments);
    va_end(arguments);
    return code;
}

/* ---- building ------------------------------------------------------------------------------------ */

static int memory_build(struct world *world)
{
    const struct world_options *options = &world->options;
    for (unsigned i = 0; i < options->memory_nodes; i++) {
        const struct memory_options one = {.node = (uint16_t)i,
                                           .pool_bytes = options->pool_bytes,
                                           .chunk_bytes = options->chunk_bytes,
                                           .lock_bytes = options->lock_bytes,
                                           .lock_width = options->lock_width};
        int status = memory_node_create(&world->memory[i], &one, &world->error);
        if (status)
            return status;
    }
    return 0;
}

static int fabrics_build_local(struct world *world)
{
    const struct fabric_target *targets[WORLD_MEMORY_MAX];
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        targets[i] = memory_node_target(world->memory[i]);
    for (unsigned i = 0; i < world->options.compute_nodes; i++) {
        world->computes[i].fabric = fabric_local_create(targets, (uint16_t)world->options.memory_nodes,
                                                        (uint16_t)(i + 1), &world->error);
        if (!world->computes[i].fabric)
            return world->error.code;
    }
    return 0;
}

static void after_loss(void *argument, int compute, int memory)
{
    struct world *world = argument;
    memory_node_release_locks(world->memory[memory], (uint16_t)(compute + 1));
}

static int fabrics_build_simulated(struct world *world)
{
    const struct world_options *options = &world->options;
    world->sim = sim_create(&options->params, &options->faults, options->seed, &world->error);
    if (!world->sim)
        return world->error.code;
    for (unsigned i = 0; i < options->memory_nodes; i++) {
        int status = sim_add_memory(world->sim, memory_node_target(world->memory[i]), &world->error);
        if (status < 0)
            return status;
    }
    for (unsigned i = 0; i < options->compute_nodes; i++) {
        int index = sim_add_compute(world->sim, &world->error);
        if (index < 0)
            return index;
        world->computes[i].fabric = sim_fabric(world->sim, index);
    }
    return 0;
}

static void switches_draw(const struct world *world, struct tree_switches *switches)
{
    struct random random;
    random_seed(&random, world->options.seed ^ UINT64_C(0x5717c4e5));
    switches->combine = (int)random_below(&random, 3);
    switches->lock_region = (int)random_below(&random, 2);
    switches->local_locks = random_chance(&random, 0.7);
    switches->handover = (uint32_t)random_below(&random, 6);
    switches->snapshot = random_chance(&random, 0.6);
    switches->write_unit = (int)random_below(&random, 2);
    switches->read_unit = (int)random_below(&random, 2);
}

static int computes_build(struct world *world)
{
    struct tree_switches switches;
    int status = tree_switches_preset(&switches, world->options.preset ? world->options.preset : "banyan",
                                      &world->error);
    if (status)
        return status;
    switches.cache_bytes = world->options.cache_bytes;
    if (world->options.random_switches)
        switches_draw(world, &switches);
    for (unsigned i = 0; i < world->options.compute_nodes; i++) {
        struct world_compute *compute = &world->computes[i];
        if (world->options.unlock_by_atomic)
            compute->fabric->capabilities.release_by_write = false;
        compute->workers = allocate(world->options.threads, sizeof(struct tree_worker *));
        status = tree_compute_create(&compute->compute, compute->fabric, &switches, &world->error);
        for (unsigned thread = 0; thread < world->options.threads && !status; thread++)
            status = tree_worker_create(&compute->workers[thread], compute->compute, &world->error);
        if (status)
            return status;
    }
    return 0;
}

static int tasks_build(struct world *world)
{
    const struct world_options *options = &world->options;
    world->task_count = options->compute_nodes * options->threads * options->fibers;
    world->tasks = allocate(world->task_count, sizeof *world->tasks);
    for (unsigned i = 0; i < world->task_count; i++) {
        struct world_task *task = &world->tasks[i];
        task->world = world;
        task->number = i;
        task->compute = i / (options->threads * options->fibers);
        task->thread = i / options->fibers % options->threads;
        task->fiber = i % options->fibers;
        random_seed(&task->random, random_mix(options->seed) + i);
        history_log_init(&task->log, &world->history, i);
        int status = tree_session_create(&task->session, world->computes[task->compute].workers[task->thread],
                                         &world->error);
        if (status)
            return status;
    }
    return 0;
}

/* A session's failure becomes the world's. */
static int session_status(struct world_task *task, int status, const char *what)
{
    if (status)
        world_fail(task->world, status, "%s: %s", what, tree_session_error(task->session)->text);
    return status;
}

static void format_pool(struct world_task *task)
{
    struct world *world = task->world;
    if (session_status(task, tree_format(task->session), "format") || world->options.empty)
        return;
    session_status(task,
                   tree_create(task->session, "test", &world->options.geometry, &world->computes[0].tree),
                   "create");
    if (world->computes[0].tree)
        world->options.geometry = *tree_geometry(world->computes[0].tree);
}

static void open_index(struct world_task *task)
{
    session_status(task, tree_open(task->session, "test", &task->world->computes[task->compute].tree),
                   "open");
}

static int index_build(struct world *world)
{
    unsigned per_compute = world->options.threads * world->options.fibers;
    int status = world_run_one(world, 0, format_pool);
    for (unsigned i = 1; i < world->options.compute_nodes && !status && !world->options.empty; i++)
        status = world_run_one(world, i * per_compute, open_index);
    for (unsigned i = 0; i < world->task_count; i++)
        world->tasks[i].tree = world->computes[world->tasks[i].compute].tree;
    return status;
}

int world_create(struct world *world, const struct world_options *options)
{
    *world = (struct world){.options = *options};
    struct world_options *o = &world->options;
    o->memory_nodes = o->memory_nodes ? o->memory_nodes : 1;
    o->compute_nodes = o->compute_nodes ? o->compute_nodes : 1;
    o->threads = o->threads ? o->threads : 1;
    o->fibers = o->fibers ? o->fibers : 1;
    o->pool_bytes = o->pool_bytes ? o->pool_bytes : UINT64_C(64) << 20;
    o->chunk_bytes = o->chunk_bytes ? o->chunk_bytes : UINT64_C(64) << 10;
    o->cache_bytes = o->cache_bytes ? o->cache_bytes : UINT64_C(8) << 20;
    if (o->memory_nodes > WORLD_MEMORY_MAX || o->compute_nodes > WORLD_COMPUTE_MAX)
        return world_fail(world, BANYAN_EINVAL, "a world has at most %u memory and %u compute nodes",
                          WORLD_MEMORY_MAX, WORLD_COMPUTE_MAX);
    log_set_level(LOG_WARNING);
    history_init(&world->history);
    int status = memory_build(world);
    if (!status)
        status = o->simulated ? fabrics_build_simulated(world) : fabrics_build_local(world);
    if (!status)
        status = computes_build(world);
    if (!status)
        status = tasks_build(world);
    return status ? status : index_build(world);
}

/* ---- tearing down -------------------------------------------------------------------------------- */

static void return_nodes(struct world_task *task)
{
    struct world_compute *compute = &task->world->computes[task->compute];
    for (unsigned thread = 0; thread < task->world->options.threads; thread++) {
        tree_worker_destroy(compute->workers[thread]);
        compute->workers[thread] = NULL;
    }
}

static void workers_destroy(struct world *world)
{
    unsigned per_compute = world->options.threads * world->options.fibers;
    for (unsigned i = 0; i < world->options.compute_nodes; i++) {
        struct world_compute *compute = &world->computes[i];
        if (!compute->workers)
            continue;
        bool complete = world->tasks && !compute->dead && !world->error.code;
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            complete = complete && compute->workers[thread];
        if (complete)
            world_run_one(world, i * per_compute, return_nodes);
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            if (compute->workers[thread])
                tree_worker_abandon(compute->workers[thread]);
        free(compute->workers);
        compute->workers = NULL;
    }
}

void world_destroy(struct world *world)
{
    for (unsigned i = 0; i < world->task_count; i++)
        if (world->tasks[i].session) {
            tree_session_destroy(world->tasks[i].session);
            world->tasks[i].session = NULL;
        }
    for (unsigned i = 0; i < world->options.compute_nodes && i < WORLD_COMPUTE_MAX; i++)
        if (world->computes[i].tree)
            tree_close(world->computes[i].tree);
    workers_destroy(world);
    for (unsigned i = 0; i < world->options.compute_nodes && i < WORLD_COMPUTE_MAX; i++) {
        if (world->computes[i].compute)
            tree_compute_destroy(world->computes[i].compute);
        if (world->computes[i].fabric && !world->options.simulated)
            fabric_close(world->computes[i].fabric);
    }
    if (world->sim)
        sim_destroy(world->sim);
    for (unsigned i = 0; i < WORLD_MEMORY_MAX; i++)
        if (world->memory[i])
            memory_node_destroy(world->memory[i]);
    for (unsigned i = 0; i < world->task_count; i++)
        history_log_free(&world->tasks[i].log);
    free(world->tasks);
    *world = (struct world){0};
}

/* ---- running ------------------------------------------------------------------------------------- */

static void task_main(void *argument)
{
    struct world_task *task = argument;
    task->function(task);
    task->returned = true;
}

struct thread_run {
    struct world_task *first;
    unsigned count;
    int status;
};

static void thread_main(void *argument)
{
    struct thread_run *run = argument;
    if (run->count == 1) { /* a plain thread, as a user's own: the other way to run index code */
        task_main(run->first);
        return;
    }
    struct worker *worker = worker_create();
    run->status = worker ? 0 : BANYAN_ENOMEM;
    for (unsigned i = 0; i < run->count && !run->status; i++)
        run->status = worker_spawn(worker, task_main, run->first + i);
    if (worker) {
        worker_run(worker);
        worker_destroy(worker);
    }
}

static int run_local(struct world *world)
{
    unsigned fibers = world->options.fibers, count = world->task_count / fibers, started = 0;
    struct thread_run *runs = allocate(count, sizeof *runs);
    struct thread **threads = allocate(count, sizeof(struct thread *));
    int status = 0;
    for (; started < count && !status; started++) {
        runs[started] = (struct thread_run){.first = &world->tasks[started * fibers], .count = fibers};
        status = thread_start(&threads[started], thread_main, &runs[started], &world->error);
        if (status)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        thread_join(threads[i]);
        status = status ? status : runs[i].status;
    }
    free(threads);
    free(runs);
    return status;
}

static int run_simulated(struct world *world, unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++) {
        struct world_task *task = &world->tasks[i];
        if (world->computes[task->compute].dead)
            continue;
        int status = sim_spawn(world->sim, (int)task->compute, task->thread, task_main, task, &world->error);
        if (status)
            return status;
    }
    unsigned stuck = sim_run(world->sim, UINT64_MAX);
    for (unsigned i = 0; i < world->options.compute_nodes; i++)
        if (!sim_compute_alive(world->sim, (int)i))
            world->computes[i].dead = true;
    if (stuck == 0)
        return 0;
    char names[120] = "";
    for (unsigned i = first, used = 0; i < first + count && used < sizeof names - 8; i++)
        if (!world->tasks[i].returned && !world->computes[world->tasks[i].compute].dead)
            used += (unsigned)snprintf(names + used, sizeof names - used, " %u", i);
    return world_fail(world, BANYAN_ETIMEOUT, "%u tasks wait for ever:%s", stuck, names);
}

static int run(struct world *world, unsigned first, unsigned count, void (*function)(struct world_task *task))
{
    for (unsigned i = first; i < first + count; i++) {
        world->tasks[i].function = function;
        world->tasks[i].returned = false;
    }
    int status = 0;
    if (world->options.simulated)
        status = run_simulated(world, first, count);
    else if (count == 1)
        task_main(&world->tasks[first]);
    else
        status = run_local(world);
    return status ? status : world->error.code;
}

int world_run(struct world *world, void (*function)(struct world_task *task))
{
    return run(world, 0, world->task_count, function);
}

int world_run_one(struct world *world, unsigned task, void (*function)(struct world_task *task))
{
    return run(world, task, 1, function);
}

struct death {
    struct world *world;
    unsigned compute;
    uint64_t lease_ns;
};

static void count_marked(void *context, gaddr block, uint32_t block_bytes)
{
    struct world *world = context;
    const uint8_t *bytes = memory_node_target(world->memory[gaddr_node(block)])->pool + gaddr_offset(block);
    if (block_bytes == world->options.geometry.leaf_bytes && bytes[10] == 0 &&
        bytes[11] == 2) /* level and state, as layout.h has them */
        world->marked_at_death++;
}

static void after_fencing(void *argument)
{
    struct death *death = argument;
    for (unsigned i = 0; i < death->world->options.memory_nodes; i++)
        memory_node_each_used(death->world->memory[i], count_marked, death->world);
    for (unsigned i = 0; i < death->world->options.memory_nodes; i++)
        memory_node_release_locks(death->world->memory[i], (uint16_t)(death->compute + 1));
    free(death);
}

static void die(void *argument)
{
    struct death *death = argument;
    sim_kill_compute(death->world->sim, (int)death->compute, death->lease_ns, after_fencing, death);
}

int world_kill_at(struct world *world, unsigned compute, uint64_t delay_ns, uint64_t lease_ns)
{
    struct death *death = allocate(1, sizeof *death);
    *death = (struct death){world, compute, lease_ns};
    int status = sim_at(world->sim, sim_now(world->sim) + delay_ns, die, death);
    if (status)
        free(death);
    return status;
}

void world_begin_losses(struct world *world)
{
    sim_on_loss(world->sim, after_loss, world);
}

static void wait_long(struct world_task *task)
{
    task_sleep(2 * (uint64_t)task->world->options.faults.lose_ns + 1000);
}

int world_end_losses(struct world *world)
{
    sim_on_loss(world->sim, NULL, NULL);
    return world_run(world, wait_long);
}

/* ---- accounting ---------------------------------------------------------------------------------- */

enum owner { OWNER_TREE, OWNER_WORKER };

struct piece {
    gaddr address;
    uint64_t bytes;
    enum owner owner;
};

struct pieces {
    struct piece *items;
    size_t count, capacity;
};

struct account {
    struct world *world;
    struct tree_check_report report;
    struct pieces owned, used; /* by the tree and the workers; what the memory nodes have handed out */
};

static void piece_add(struct pieces *pieces, struct piece piece)
{
    if (pieces->count == pieces->capacity) {
        pieces->capacity = pieces->capacity ? pieces->capacity * 2 : 256;
        pieces->items = realloc(pieces->items, pieces->capacity * sizeof *pieces->items);
        if (!pieces->items)
            abort();
    }
    pieces->items[pieces->count++] = piece;
}

static void visit_in_use(void *context, gaddr node, uint32_t bytes)
{
    struct account *account = context;
    piece_add(&account->owned, (struct piece){node, bytes, OWNER_TREE});
}

static void visit_held(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    piece_add(&account->owned, (struct piece){block, bytes, OWNER_WORKER});
}

static void visit_used(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    piece_add(&account->used, (struct piece){.address = block, .bytes = bytes});
}

static int piece_order(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

static const char *owner_name(enum owner owner)
{
    static const char *const names[] = {"in use by the tree", "held back by a worker"};
    return names[owner];
}

static int missing(struct account *account, const struct piece *piece)
{
    for (unsigned i = 0; i < account->world->options.compute_nodes; i++)
        if (account->world->computes[i].dead)
            return 0; /* what the dead had taken and not linked */
    if (account->world->sim && sim_losses(account->world->sim))
        return 0; /* what was given or taken by a call whose reply was lost, or named by an unknown write */
    char text[GADDR_TEXT_BYTES];
    return world_fail(account->world, BANYAN_ECORRUPT,
                      "the block of %" PRIu64 " bytes at %s is handed out, but nobody's", piece->bytes,
                      gaddr_format(piece->address, text));
}

/* Both sorted: what somebody owns must be what is handed out. */
static int account_compare(struct account *account)
{
    char text[GADDR_TEXT_BYTES];
    const struct pieces *owned = &account->owned, *used = &account->used;
    size_t at = 0;
    for (size_t i = 0; i < owned->count; i++) {
        const struct piece *piece = &owned->items[i];
        if (i && piece->address == owned->items[i - 1].address)
            return world_fail(account->world, BANYAN_ECORRUPT, "node %s is %s and also %s",
                              gaddr_format(piece->address, text), owner_name(piece->owner),
                              owner_name(owned->items[i - 1].owner));
        for (; at < used->count && used->items[at].address < piece->address; at++) {
            int status = missing(account, &used->items[at]);
            if (status)
                return status;
        }
        if (at == used->count || used->items[at].address != piece->address ||
            used->items[at].bytes != piece->bytes)
            return world_fail(account->world, BANYAN_ECORRUPT, "node %s (%s) is not handed out",
                              gaddr_format(piece->address, text), owner_name(piece->owner));
        at++;
    }
    int status = 0;
    for (; at < used->count && !status; at++)
        status = missing(account, &used->items[at]);
    return status;
}

static void check_tree(struct world_task *task)
{
    struct account *account = task->world->context;
    session_status(task, tree_check(task->session, task->tree, &account->report, visit_in_use, account),
                   "check");
}

int world_check(struct world *world, struct tree_check_report *report)
{
    struct account account = {.world = world};
    void *context = world->context;
    unsigned per_compute = world->options.threads * world->options.fibers, survivor = 0;
    while (survivor < world->options.compute_nodes - 1 && world->computes[survivor].dead)
        survivor++;
    world->context = &account;
    int status = world_run_one(world, survivor * per_compute, check_tree);
    world->context = context;
    for (unsigned i = 0; i < world->options.memory_nodes && !status; i++)
        memory_node_each_used(world->memory[i], visit_used, &account);
    for (unsigned i = 0; i < world->options.compute_nodes && !status; i++)
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            tree_worker_each_free(world->computes[i].workers[thread], visit_held, &account);
    if (account.owned.count)
        qsort(account.owned.items, account.owned.count, sizeof *account.owned.items, piece_order);
    if (account.used.count)
        qsort(account.used.items, account.used.count, sizeof *account.used.items, piece_order);
    if (!status)
        status = account_compare(&account);
    if (report)
        *report = account.report;
    free(account.owned.items);
    free(account.used.items);
    return status;
}

int world_linearize(struct world *world)
{
    struct history_log *logs = allocate(world->task_count, sizeof *logs);
    for (unsigned i = 0; i < world->task_count; i++)
        logs[i] = world->tasks[i].log;
    size_t total;
    struct history_op *all = history_merge(logs, world->task_count, &total);
    char text[4000];
    enum linearize_verdict verdict = linearize_all(all, total, text, sizeof text);
    if (verdict != LINEARIZE_ACCEPTED)
        fprintf(stderr, "the history is not linearizable (verdict %d): %s\n", (int)verdict, text);
    free(all);
    free(logs);
    return verdict == LINEARIZE_ACCEPTED
               ? 0
               : world_fail(world, BANYAN_ECONFLICT, "history, verdict %d: %.200s", (int)verdict, text);
}

uint64_t world_pool_used(struct world *world)
{
    uint64_t used = 0;
    for (unsigned i = 0; i < world->options.memory_nodes; i++) {
        struct memory_status_reply status;
        memory_node_status(world->memory[i], &status);
        used += status.chunks_used * status.chunk_bytes;
    }
    return used;
}

void world_stats(const struct world *world, struct tree_stats *stats)
{
    *stats = (struct tree_stats){0};
    for (unsigned i = 0; i < world->task_count; i++) {
        const struct tree_stats *one = tree_session_stats(world->tasks[i].session);
        fabric_cost_add(&stats->cost, &one->cost);
        stats->operations += one->operations;
        stats->retries += one->retries;
        stats->cache_hits += one->cache_hits;
        stats->cache_misses += one->cache_misses;
        stats->splits += one->splits;
        stats->unlinks += one->unlinks;
        stats->handovers += one->handovers;
        stats->snapshot_handovers += one->snapshot_handovers;
    }
}

/* ---- recorded operations ------------------------------------------------------------------------- */

/* Fixed keys: the number, big-endian, in the first eight bytes, then bytes made from it. Variable keys: a
 * prefix that many share, the number as text, and a tail whose length depends on it. */
size_t world_key(const struct world *world, uint64_t number, uint8_t key[TREE_KEY_MAX])
{
    const struct tree_geometry *geometry = &world->options.geometry;
    if (geometry->key_kind == TREE_KEY_FIXED) {
        for (unsigned i = 0; i < 8; i++)
            key[i] = (uint8_t)(number >> (56 - 8 * i));
        for (unsigned i = 8; i < geometry->key_bytes; i++)
            key[i] = (uint8_t)(random_mix(number) >> (i % 8 * 8));
        return geometry->key_bytes;
    }
    int length = snprintf((char *)key, TREE_KEY_MAX, "k%012" PRIu64, number);
    uint64_t tail = random_mix(number) % 9;
    if (world->options.long_keys && random_mix(number + 7) % 3 == 0)
        tail = random_mix(number) % (geometry->key_bytes - 12u);
    for (unsigned i = 0; i < tail; i++)
        key[length++] = (uint8_t)('a' + i % 26);
    return (size_t)length;
}

uint64_t world_key_number(const struct world *world, const uint8_t *key, size_t length)
{
    uint64_t number = 0;
    uint8_t again[TREE_KEY_MAX];
    if (world->options.geometry.key_kind == TREE_KEY_FIXED) {
        for (unsigned i = 0; i < 8 && i < length; i++)
            number = number << 8 | key[i];
    } else {
        for (unsigned i = 1; i < 13 && i < length; i++)
            number = number * 10 + (uint64_t)(key[i] - '0');
    }
    size_t expected = world_key(world, number, again);
    return expected == length && memcmp(again, key, length) == 0 ? number : UINT64_MAX;
}

size_t world_value(const struct world *world, uint64_t number, uint8_t value[TREE_VALUE_MAX])
{
    size_t length = world->options.geometry.value_bytes;
    if (world->options.geometry.value_variable && length > 8)
        length = 8 + random_mix(number) % (length - 7);
    uint64_t word = number;
    for (size_t i = 0; i < length; i++) {
        if (i % 8 == 0 && i > 0)
            word = random_mix(word + i);
        value[i] = (uint8_t)(word >> (i % 8 * 8));
    }
    return length;
}

uint64_t world_value_number(const struct world *world, const uint8_t *value, size_t length)
{
    uint64_t number = 0;
    for (size_t i = 0; i < 8 && i < length; i++)
        number |= (uint64_t)value[i] << (i * 8);
    uint8_t again[TREE_VALUE_MAX];
    return world_value(world, number, again) == length && memcmp(again, value, length) == 0 ? number : 0;
}

struct exchange {
    struct world *world;
    uint64_t seen, number; /* number 0: delete what is there */
};

static enum tree_verdict exchange(void *context, const void *old, size_t old_length, void *value,
                                  size_t *length)
{
    struct exchange *exchange = context;
    exchange->seen = old ? world_value_number(exchange->world, old, old_length) : 0;
    if (old && !exchange->seen)
        world_fail(exchange->world, BANYAN_ECORRUPT, "modify was shown a value that nobody wrote");
    if (exchange->number == 0)
        return old ? TREE_DELETE : TREE_KEEP;
    *length = world_value(exchange->world, exchange->number, value);
    return TREE_PUT;
}

static bool status_expected(enum history_kind kind, int status)
{
    switch (status) {
    case 0:
    case BANYAN_EUNKNOWN:
        return true;
    case BANYAN_ENOTFOUND:
        return kind == HISTORY_GET || kind == HISTORY_UPDATE || kind == HISTORY_DELETE || kind == HISTORY_CAS;
    case BANYAN_EEXIST:
        return kind == HISTORY_INSERT;
    case BANYAN_ECONFLICT:
        return kind == HISTORY_CAS;
    default:
        return false;
    }
}

static int operate_get(struct world_task *task, const uint8_t *key, size_t key_length, uint64_t *result)
{
    uint8_t value[TREE_VALUE_MAX];
    size_t length = sizeof value;
    int status = tree_lookup(task->session, task->tree, key, key_length, value, &length);
    *result = status ? 0 : world_value_number(task->world, value, length);
    if (!status && !*result)
        return world_fail(task->world, BANYAN_ECORRUPT, "a lookup returned a value that nobody wrote");
    return status;
}

int world_operate(struct world_task *task, enum history_kind kind, uint64_t number, uint64_t expected)
{
    struct world *world = task->world;
    struct tree_session *session = task->session;
    uint8_t key[TREE_KEY_MAX], value[TREE_VALUE_MAX], old[TREE_VALUE_MAX];
    size_t key_length = world_key(world, number, key);
    uint64_t argument = kind == HISTORY_GET || kind == HISTORY_DELETE ? 0 : history_value(&world->history);
    if (kind == HISTORY_MODIFY && random_chance(&task->random, 0.4))
        argument = 0;
    size_t length = world_value(world, argument, value), old_length = world_value(world, expected, old);
    struct exchange change = {world, 0, argument};
    uint64_t result = 0;
    int status = BANYAN_EINVAL;
    size_t place = history_begin(&task->log, kind, number, argument, expected);
    switch (kind) {
    case HISTORY_GET:
        status = operate_get(task, key, key_length, &result);
        break;
    case HISTORY_PUT:
        status = tree_upsert(session, task->tree, key, key_length, value, length);
        break;
    case HISTORY_INSERT:
        status = tree_insert(session, task->tree, key, key_length, value, length);
        break;
    case HISTORY_UPDATE:
        status = tree_update(session, task->tree, key, key_length, value, length);
        break;
    case HISTORY_DELETE:
        status = tree_delete(session, task->tree, key, key_length);
        break;
    case HISTORY_CAS:
        status = tree_compare_and_set(session, task->tree, key, key_length, old, old_length, value, length);
        break;
    case HISTORY_MODIFY:
        status = tree_modify(session, task->tree, key, key_length, exchange, &change);
        result = change.seen;
        break;
    }
    if (status == BANYAN_ENOSPC && world->options.accept_full) {
        atomic_add_relaxed(&world->refused, 1); /* a count */
        history_drop(&task->log, place);
        return status;
    }
    if (status == BANYAN_ENET && world_lossy(world)) { /* promises that it has not been done */
        world->unreachable++;
        history_drop(&task->log, place);
        task_sleep(2000);
        return status;
    }
    if (status == BANYAN_EUNKNOWN && world_lossy(world))
        world->unknown++;
    if (!status_expected(kind, status)) {
        world_fail(world, status, "%s of key %" PRIu64 ": %d: %s", history_kind_name(kind), number, status,
                   tree_session_error(session)->text);
        return status; /* recorded as unknown: the world has failed anyway */
    }
    history_end(&task->log, place, status, result);
    return status;
}
