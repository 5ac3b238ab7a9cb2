/* plan_draw.c - a plan from a seed: each run has some features and lacks others (contract: plan.h). What is
 * drawn, and in which order, decides which plan a seed is: a change gives every seed another plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "memory/memory.h"
#include "swarm/world.h"
#include "swarm/plan.h"

#define PICK(random, list) list[random_below(random, sizeof(list) / sizeof(list)[0])]

static void draw_cluster(struct swarm_plan *plan, struct random *random)
{
    static const uint32_t memory[] = {1, 1, 1, 2, 2, 3, 4, 8}, compute[] = {1, 2, 2, 3, 3, 4, 5, 8},
                          threads[] = {1, 1, 1, 2, 2, 3}, fibers[] = {1, 1, 2, 2, 3, 4, 8};
    plan->memory_nodes = PICK(random, memory);
    plan->compute_nodes = PICK(random, compute);
    plan->threads = PICK(random, threads);
    plan->fibers = PICK(random, fibers);
    while (plan->compute_nodes * plan->threads * plan->fibers > 24) {
        if (plan->fibers > 1)
            plan->fibers--;
        else
            plan->compute_nodes--;
    }
    /* So few locks that many nodes share one. */
    if (random_chance(random, 0.3))
        plan->lock_bytes = UINT64_C(64) << random_below(random, 6);
    plan->params.lock_width = random_chance(random, 0.2) ? 8 : 2;
    /* Half of the wide locks are of a NIC that promises nothing and has no masks, as Soft-RoCE. */
    bool wide = plan->params.lock_width == 8;
    plan->unlock_by_atomic = random_chance(random, wide ? 0.5 : 0.05);
    plan->params.masked_cas = !(wide && plan->unlock_by_atomic);
}

static void draw_records(struct swarm_plan *plan, struct random *random)
{
    plan->records = true;
    plan->key_kind = FORMAT_KEY_VARIABLE;
    plan->key_bytes = plan->params.atomic_write == 4096 ? 255 : 64;
    plan->inline_key_bytes = 16;
    plan->value_bytes = 17;
    plan->value_variable = true;
    plan->internal_bytes = plan->params.atomic_write;
    plan->leaf_bytes = plan->leaf_bytes < 1024 ? 1024 : plan->leaf_bytes;
    plan->long_keys = random_chance(random, 0.5);
    plan->chunk_bytes = UINT64_C(256) << 10;
}

static void draw_index(struct swarm_plan *plan, struct random *random)
{
    static const uint32_t leaves[] = {512, 512, 1024, 1024, 1024, 2048, 4096},
                          values[] = {8, 8, 16, 16, 33, 80, 200};
    plan->params.atomic_write = random_chance(random, 0.3) ? 4096 : 1024;
    plan->leaf_bytes = PICK(random, leaves);
    plan->internal_bytes = random_chance(random, 0.5) ? 512 : 1024;
    if (random_chance(random, 0.3)) {
        draw_records(plan, random);
        return;
    }
    plan->value_bytes = PICK(random, values);
    plan->value_variable = random_chance(random, 0.3);
    if (random_chance(random, 0.6)) {
        plan->key_bytes = random_chance(random, 0.7) ? 8 : 16;
        return;
    }
    plan->key_kind = FORMAT_KEY_VARIABLE;
    plan->long_keys = random_chance(random, 0.5);
    plan->key_bytes = plan->long_keys ? 60 : 30;
    plan->inline_key_bytes = plan->long_keys ? 16 : 0;
    plan->internal_bytes = 1024;
}

static void draw_switches(struct swarm_plan *plan, struct random *random)
{
    struct tree_switches *switches = &plan->switches;
    struct error error;
    uint64_t presets = 0;
    while (tree_switches_presets[presets])
        presets++;
    if (random_chance(random, 0.25))
        tree_switches_preset(switches, tree_switches_presets[random_below(random, presets)], &error);
    if (random_chance(random, 0.35)) {
        switches->combine = (int)random_below(random, 3);
        switches->lock_region = (int)random_below(random, 2);
        switches->local_locks = random_chance(random, 0.7);
        switches->handover = (uint32_t)random_below(random, 6);
        switches->snapshot = random_chance(random, 0.6);
        switches->write_unit = (int)random_below(random, 2);
        switches->read_unit = (int)random_below(random, 2);
        switches->release = (int)random_below(random, 2);
        switches->node_check = random_chance(random, 0.3);
    }
    if (random_chance(random, 0.3))
        switches->cache_bytes = UINT64_C(4096) << random_below(random, 4);
}

/* The most that a plan draws; half of the plans are without each. Rates come with three digits, so that text
 * keeps them. */
struct fault {
    const char *rate, *duration;
    double rate_max;
    uint32_t duration_max;
};

static const struct fault faults[] = {
    {"torn-reads", "tear-window-ns", 1, 5000},
    {"torn-writes", NULL, 1, 0},
    {"spread", "list-spread-ns", 1, 5000},
    {"late", "late-ns", 0.05, 50000},
    {"late-replies", NULL, 0.05, 0},
    {"stall", "stall-ns", 0.002, 200000},
    {"fiber-stall", "fiber-stall-ns", 0.005, 500000},
    {"thread-stall", "thread-stall-ns", 0.002, 300000},
    {"compute-stall", "compute-stall-ns", 0.0005, 400000},
    {"atomic-queue", "atomic-queue-ns", 0.01, 50000},
    {"lose", "lose-ns", 0.01, 200000},
};

static void set(struct swarm_plan *plan, const char *name, double value)
{
    char text[32];
    struct error error;
    snprintf(text, sizeof text, "%.3g", value);
    int status = option_set(sim_faults_table, &plan->faults, name, text, &error);
    if (status)
        fprintf(stderr, "%s\n", error.text), abort(); /* a name in the table above is wrong */
}

static void draw_faults(struct swarm_plan *plan, struct random *random)
{
    bool tame = random_chance(random, 0.05);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        const struct fault *fault = &faults[i];
        bool on = random_chance(random, strcmp(fault->rate, "lose") ? 0.5 : 0.25);
        double part = random_unit(random), length = random_unit(random);
        if (!on || tame)
            continue;
        /* Tearing and spreading come at any rate; the other faults are mostly rare. */
        part = fault->rate_max < 1 ? part * part : part;
        set(plan, fault->rate, fault->rate_max * (part * 0.99 + 0.01));
        if (fault->duration)
            set(plan, fault->duration, (double)fault->duration_max * length * length + 200);
    }
    plan->faults.lease_ns = 20000 + (uint32_t)random_below(random, 200000);
    plan->span_ns = 200000 + random_below(random, 6000000);
    if (tame)
        return;
    if (random_chance(random, 0.4)) {
        plan->kills = 1 + (uint32_t)random_below(random, plan->compute_nodes + 4);
        plan->kill_at_effect = random_chance(random, 0.6);
        plan->restarts = random_chance(random, 0.6) ? 1 + (uint32_t)random_below(random, 6) : 0;
    }
    if (random_chance(random, 0.3))
        plan->stalls = 1 + (uint32_t)random_below(random, 4);
    if (random_chance(random, 0.2))
        plan->cuts = 1 + (uint32_t)random_below(random, 5);
    if (random_chance(random, 0.15))
        plan->refusals = 1 + (uint32_t)random_below(random, 8);
}

/* Other machines: their speeds decide which message overtakes which. */
static void draw_hardware(struct swarm_plan *plan, struct random *random)
{
    if (random_chance(random, 0.6))
        return;
    plan->params.wire_ns = 20 + (uint32_t)random_below(random, 3000);
    plan->params.jitter_ns = (uint32_t)random_below(random, 2000);
    plan->params.rpc_ns = 200 + (uint32_t)random_below(random, 20000);
    plan->params.operation_ns = 50 + (uint32_t)random_below(random, 5000);
    plan->params.split_ns = 50 + (uint32_t)random_below(random, 20000);
    plan->params.shared_nic = random_chance(random, 0.5);
    plan->params.block_responses = random_chance(random, 0.2);
}

static void draw_workload(struct swarm_plan *plan, struct random *random)
{
    static const uint64_t keys[] = {80, 160, 160, 480, 480, 480, 1200, 2000};
    plan->keys = PICK(random, keys);
    plan->window = plan->keys / (4 + random_below(random, 12));
    plan->pattern = random_chance(random, 0.4) ? CHURN_WINDOW : (int)random_below(random, 4);
    plan->rounds = 40 + (uint32_t)random_below(random, random_chance(random, 0.2) ? 700 : 200);
    plan->hot = random_chance(random, 0.2) ? 40 + (uint32_t)random_below(random, 40)
                                           : (uint32_t)random_below(random, 12);
    plan->scans = (uint32_t)random_below(random, 10);
    plan->multis = (uint32_t)random_below(random, 12);
    plan->disjoint = random_chance(random, 0.1);
    if (plan->records && random_chance(random, 0.6))
        plan->moves = 1 + (uint32_t)random_below(random, 8);
    /* Where nodes die in the middle of lists, many of these should be merges'. */
    if (random_chance(random, 0.6))
        plan->merges = 1 + (uint32_t)random_below(random, plan->kill_at_effect ? 40 : 12);
    /* A pool that is full most of the time. */
    if (!plan->records && random_chance(random, 0.08)) {
        plan->lock_bytes = 4096;
        plan->pool_bytes = MEMORY_FIRST_CHUNK(4096) + (1 + random_below(random, 2)) * plan->chunk_bytes;
        plan->keys = 2000;
        plan->window = 150;
    }
}

/* Writes that wait for each other: who does them, and in some plans so many of them that they wait all the
 * time. From dice of its own, so that the rest of each plan is what it was without it. */
static void draw_delegation(struct swarm_plan *plan, uint64_t seed)
{
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0xde1e9a7e)));
    plan->switches.delegate = random_chance(&random, 0.85);
    if (!random_chance(&random, 0.12))
        return;
    plan->hot = (100 - plan->scans - plan->multis - plan->moves - plan->merges) *
                (uint32_t)(70 + random_below(&random, 30)) / 100;
    plan->threads = 1 + (uint32_t)random_below(&random, 3);
    plan->fibers = 2 + (uint32_t)random_below(&random, 5);
    while (plan->compute_nodes > 1 && plan->compute_nodes * plan->threads * plan->fibers > 24)
        plan->compute_nodes--;
}

/* Sherman's leaves in some plans, of indexes that are used as such and of stores. From dice of its own.
 * Dense leaves came later: only large seeds draw them, as nearly all fresh ones are, so that a smaller seed
 * draws the cluster that it has always drawn. */
#define DENSE_FROM (UINT64_C(1) << 32)

static void draw_leaf_kind(struct swarm_plan *plan, uint64_t seed)
{
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0x05027ed)));
    plan->leaf_kind = random_chance(&random, 0.15) ? FORMAT_LEAF_UNSORTED : FORMAT_LEAF_HASHED;
    if (seed >= DENSE_FROM && plan->leaf_kind == FORMAT_LEAF_HASHED && random_chance(&random, 0.4))
        plan->leaf_kind = FORMAT_LEAF_DENSE;
}

/* Caches that keep no inner nodes of the lowest levels, or none at all. From dice of its own. */
static void draw_cache_levels(struct swarm_plan *plan, uint64_t seed)
{
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0xcac4e)));
    plan->switches.cache_lowest = random_chance(&random, 0.1) ? 2 + (uint32_t)random_below(&random, 4) : 0;
}

/* Memory nodes are asked to walk in some plans, of which many have caches so small that there is often reason
 * to. From dice of its own. */
static void draw_walks(struct swarm_plan *plan, uint64_t seed)
{
    static const int shares[] = {TREE_WALKS_ALWAYS, TREE_WALKS_ALWAYS, TREE_WALKS_AUTO, 50};
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0x3a1c5)));
    if (!random_chance(&random, 0.4))
        return;
    plan->switches.walks = PICK(&random, shares);
    if (random_chance(&random, 0.6))
        plan->switches.cache_bytes = UINT64_C(2048) << random_below(&random, 4);
    /* Drawn last, so that the same seeds draw the same values above. */
    if (random_chance(&random, 0.3))
        plan->walk_busy = 1 + (uint32_t)random_below(&random, random_chance(&random, 0.2) ? 100 : 30);
    if (random_chance(&random, 0.7))
        plan->walk_aged = 10 + (uint32_t)random_below(&random, 91);
}

/* What is logged is merged by memory nodes in many plans. From dice of its own. */
static void draw_merge_walks(struct swarm_plan *plan, uint64_t seed)
{
    static const int shares[] = {TREE_WALKS_ALWAYS, TREE_WALKS_ALWAYS, TREE_WALKS_AUTO, 50};
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0x3e49e)));
    if (random_chance(&random, 0.6))
        plan->switches.merge_walks = PICK(&random, shares);
}

/* Changes of keys whose leaf alone is not cached are made by memory nodes in some plans, of which many have
 * caches so small that it often is not. From dice of its own. */
static void draw_exchange_walks(struct swarm_plan *plan, uint64_t seed)
{
    static const int shares[] = {TREE_WALKS_ALWAYS, TREE_WALKS_ALWAYS, TREE_WALKS_AUTO, 50};
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0x6e8c4)));
    if (!random_chance(&random, 0.3))
        return;
    plan->switches.exchange_walks = PICK(&random, shares);
    if (random_chance(&random, 0.6))
        plan->switches.cache_bytes = UINT64_C(4096) << random_below(&random, 4);
}

/* Placed subtrees and nodes that move in some plans, small ones, so that there are many. From dice of its
 * own. */
static void draw_placement(struct swarm_plan *plan, uint64_t seed)
{
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0x91ace)));
    plan->subtree_levels = random_chance(&random, 0.25) ? 1 + (uint32_t)random_below(&random, 3) : 0;
    /* Nodes that move. Where compute nodes die in the middle of lists, many of these should be moves'. */
    plan->node_moves = plan->memory_nodes > 1 && random_chance(&random, 0.4)
                           ? 1 + (uint32_t)random_below(&random, plan->kill_at_effect ? 40 : 12)
                           : 0;
}

/* Memory nodes that are emptied, in some plans, while all goes on. From dice of its own. */
static void draw_drains(struct swarm_plan *plan, uint64_t seed)
{
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0xd4a1)));
    plan->drains =
        plan->memory_nodes > 1 && random_chance(&random, 0.2) ? 1 + (uint32_t)random_below(&random, 3) : 0;
}

/* Memory nodes that join, in some plans of several. From dice of its own. */
static void draw_joins(struct swarm_plan *plan, uint64_t seed)
{
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0x101175)));
    plan->joins =
        plan->memory_nodes > 1 && random_chance(&random, 0.2) ? 1 + (uint32_t)random_below(&random, 2) : 0;
}

/* How long a heartbeat takes and its echo. A lease that is not longer is over before the echo is there, so it
 * never lives, and no process may ever answer from its cache. */
static uint32_t heartbeat_ns(const struct sim_params *params)
{
    uint32_t way = params->doorbell_ns + 2 * params->nic_ns + params->wire_ns + params->pcie_write_ns +
                   params->jitter_ns;
    return params->rpc_ns + 2 * way;
}

/* How long an owner may take to answer where each of its steps is a walk: as a rule not more than eight, and
 * each waits until the memory node's CPU has served all other tasks. A process that waits less gives up every
 * call and sends it again, so that no wait has an end (seed 8502329: five steps of 16 threads at 19.5 us). */
static uint32_t answer_ns(const struct swarm_plan *plan)
{
    return 8 * plan->compute_nodes * plan->threads * plan->fibers * plan->params.rpc_ns;
}

/* Ranges that have owners, with all that may go wrong between compute nodes. From dice of its own, but for
 * the lease, which must be longer than the hardware's heartbeats take. */
static void draw_ranges(struct swarm_plan *plan, uint64_t seed)
{
    struct random random;
    random_seed(&random, random_mix(seed ^ UINT64_C(0x72616e676573)));
    plan->ranges = random_chance(&random, 0.3);
    plan->change_ns = 20000 + random_below(&random, 600000);
    plan->switches.cache_policy = (int)random_below(&random, 4);
    plan->params.read_lease_ns = 5000 + (uint32_t)random_below(&random, 150000);
    if (plan->params.read_lease_ns < 2 * heartbeat_ns(&plan->params))
        plan->params.read_lease_ns = 2 * heartbeat_ns(&plan->params);
    plan->params.peer_timeout_ns = 1000000 + (uint32_t)random_below(&random, 3000000);
    if (plan->switches.walks == TREE_WALKS_ALWAYS && plan->params.peer_timeout_ns < answer_ns(plan))
        plan->params.peer_timeout_ns = answer_ns(plan);
    if (random_chance(&random, 0.4))
        set(plan, "message-lose", 0.1 * random_unit(&random));
    if (random_chance(&random, 0.4)) {
        set(plan, "message-late", random_unit(&random));
        set(plan, "message-late-ns", 200000 * random_unit(&random));
    }
    if (random_chance(&random, 0.5))
        set(plan, "clock-drift", 0.0045 * random_unit(&random)); /* to either side */
    plan->log = random_chance(&random, 0.6);
    plan->mergers = 1 + (uint32_t)random_below(&random, 3);
}

static void draw_power(struct swarm_plan *plan, struct random *random)
{
    const uint64_t all = (uint64_t)plan->rounds * plan->compute_nodes * plan->threads * plan->fibers;
    plan->disk_round_ns = 20000 + random_below(random, UINT64_C(1) << (15 + random_below(random, 8)));
    plan->disk_sync_ns = 20000 + random_below(random, 200000);
    plan->disk_slow = random_chance(random, 0.5) ? 0.001 * (double)(1 + random_below(random, 50)) : 0;
    plan->disk_spells = random_chance(random, 0.3) ? 1 + (uint32_t)random_below(random, 3) : 0;
    plan->disk_fulls = random_chance(random, 0.3) ? 1 + (uint32_t)random_below(random, 3) : 0;
    plan->disk_fails = random_chance(random, 0.2);
    plan->power_rounds = random_chance(random, 0.85) ? 1 + (uint32_t)random_below(random, all * 9 / 10) : 0;
    plan->power_events = (uint32_t)random_below(random, UINT64_C(1) << random_below(random, 12));
}

/* One memory node's disk that is lost with the power. From dice of its own. */
static void draw_gone(struct swarm_plan *plan)
{
    struct random random;
    random_seed(&random, random_mix(plan->seed ^ UINT64_C(0x60e5)));
    plan->disk_gone =
        plan->disk == WORLD_DISK_ALWAYS && plan->memory_nodes > 1 && random_chance(&random, 0.5);
}

/* A compute node that makes checkpoints, in some plans where no disk is lost. From dice of its own. */
static void draw_saves(struct swarm_plan *plan)
{
    struct random random;
    random_seed(&random, random_mix(plan->seed ^ UINT64_C(0x5a7e)));
    if (random_chance(&random, 0.4) && !plan->disk_gone)
        plan->disk_save_ns = 20000 + random_below(&random, UINT64_C(1) << (15 + random_below(&random, 8)));
}

void swarm_plan_draw_disk(struct swarm_plan *plan, int level)
{
    struct random random;
    struct error error;
    plan->disk = level;
    if (!level)
        return;
    random_seed(&random, random_mix(plan->seed ^ UINT64_C(0xd15c)));
    if (!plan->records) { /* of which level disk is, alone */
        plan->params.atomic_write = random_chance(&random, 0.3) ? 4096 : 1024;
        plan->leaf_bytes = 1024u << random_below(&random, 2);
        draw_records(plan, &random);
        plan->pool_bytes = UINT64_C(64) << 20;
    }
    plan->ranges = plan->log = true;
    plan->switches.ownership = TREE_OWNERSHIP_OFF;
    draw_power(plan, &random);
    draw_gone(plan);
    draw_saves(plan);
    if (swarm_plan_check(plan, &error)) /* the leaf is too small for such keys, say */
        plan->leaf_bytes = 4096;
}

void swarm_plan_draw(struct swarm_plan *plan, uint64_t seed)
{
    struct random random;
    struct error error;
    random_seed(&random, random_mix(seed ^ UINT64_C(0x5a43)));
    do {
        swarm_plan_default(plan);
        plan->seed = seed;
        draw_cluster(plan, &random);
        draw_index(plan, &random);
        draw_switches(plan, &random);
        draw_faults(plan, &random);
        draw_hardware(plan, &random);
        draw_workload(plan, &random);
        draw_delegation(plan, seed);
        draw_walks(plan, seed);
        draw_merge_walks(plan, seed);
        draw_exchange_walks(plan, seed);
        draw_leaf_kind(plan, seed);
        draw_cache_levels(plan, seed);
        draw_placement(plan, seed);
        draw_drains(plan, seed);
        draw_joins(plan, seed);
        draw_ranges(plan, seed);
    } while (swarm_plan_check(plan, &error)); /* some geometries do not fit together */
    if (plan->records && plan->ranges && plan->log)
        swarm_plan_draw_disk(plan, (int)(random_mix(seed ^ UINT64_C(0x1e7e1)) % 3));
}
