/* plan.c - a plan as a whole: its defaults, whether a run can be made of it, and what the run needs of it
 * (contract: plan.h). */
#include "swarm/plan.h"

#include <inttypes.h>
#include <string.h>

#include "memory/memory.h"
#include "store/store.h"
#include "swarm/plan_fields.h"

void swarm_plan_default(struct swarm_plan *plan)
{
    struct error error;
    *plan = (struct swarm_plan){.seed = 1,
                                .memory_nodes = 1,
                                .compute_nodes = 2,
                                .threads = 1,
                                .fibers = 1,
                                .pool_bytes = UINT64_C(64) << 20,
                                .chunk_bytes = UINT64_C(64) << 10,
                                .key_kind = FORMAT_KEY_FIXED,
                                .key_bytes = 8,
                                .value_bytes = 8,
                                .mergers = 1,
                                .disk_round_ns = 1000000,
                                .disk_sync_ns = 100000,
                                .span_ns = 3000000,
                                .keys = 480,
                                .window = 40,
                                .rounds = 160,
                                .hot = 8,
                                .scans = 6,
                                .multis = 5,
                                .patience_ns = 100000000,
                                .events = 100000000};
    tree_switches_preset(&plan->switches, "banyan", &error);
    plan->switches.cache_bytes = UINT64_C(8) << 20;
    sim_params_default(&plan->params);
    sim_faults_none(&plan->faults);
}

void swarm_plan_free(struct swarm_plan *plan)
{
    option_free(swarm_plan_table, plan);
}

int swarm_plan_copy(struct swarm_plan *copy, const struct swarm_plan *plan, struct error *error)
{
    *copy = *plan;
    copy->skip = plan->skip ? strdup(plan->skip) : NULL;
    return !plan->skip || copy->skip ? 0 : error_set(error, BANYAN_ENOMEM, "plan: no memory");
}

static int check_geometry(const struct swarm_plan *plan, struct error *error)
{
    struct format_geometry geometry;
    swarm_plan_geometry(plan, &geometry);
    return format_geometry_complete(&geometry, plan->params.atomic_write, error);
}

int swarm_plan_check(const struct swarm_plan *plan, struct error *error)
{
    struct swarm_skip skip = {0};
    int status = sim_params_check(&plan->params, error);
    status = status ? status : sim_faults_check(&plan->faults, error);
    status = status ? status : check_geometry(plan, error);
    status = status ? status : swarm_skip_parse(&skip, plan, error);
    swarm_skip_free(&skip);
    if (status)
        return status;
    uint64_t lock_bytes = plan->lock_bytes ? plan->lock_bytes : MEMORY_LOCK_BYTES;
    if (plan->keys % 4)
        return error_set(error, BANYAN_EINVAL, "plan: keys is %" PRIu64 ", must be a multiple of 4",
                         plan->keys);
    if (plan->window * 2 > plan->keys)
        return error_set(error, BANYAN_EINVAL,
                         "plan: a window of %" PRIu64 " keys is more than half of all %" PRIu64, plan->window,
                         plan->keys);
    if (plan->long_keys && (plan->key_kind != FORMAT_KEY_VARIABLE || plan->key_bytes < 40))
        return error_set(error, BANYAN_EINVAL, "plan: long-keys wants variable keys of at least 40 bytes");
    if (plan->key_kind == FORMAT_KEY_VARIABLE && plan->key_bytes < 24)
        return error_set(error, BANYAN_EINVAL, "plan: variable keys need key-bytes of at least 24");
    if (plan->pool_bytes % 8 || plan->pool_bytes < MEMORY_FIRST_CHUNK(lock_bytes) + plan->chunk_bytes)
        return error_set(error, BANYAN_EINVAL, "plan: a pool of %" PRIu64 " bytes has no room for a chunk",
                         plan->pool_bytes);
    if (plan->ranges && plan->switches.ownership != TREE_OWNERSHIP_OFF)
        return error_set(error, BANYAN_EINVAL, "plan: ranges wants the switch ownership off");
    if (plan->disk && !(plan->ranges && plan->log && plan->records))
        return error_set(error, BANYAN_EINVAL, "plan: disk wants ranges, log and records on");
    if (plan->scans + plan->multis + plan->hot + plan->moves > 100)
        return error_set(error, BANYAN_EINVAL,
                         "plan: scans, multis, hot and moves are more than 100 %% together");
    return 0;
}

void swarm_plan_geometry(const struct swarm_plan *plan, struct format_geometry *geometry)
{
    *geometry =
        (struct format_geometry){.leaf_bytes = plan->leaf_bytes,
                                 .internal_bytes = plan->internal_bytes,
                                 .key_kind = (uint8_t)plan->key_kind,
                                 .leaf_kind = (uint8_t)plan->leaf_kind,
                                 .key_bytes = (uint8_t)plan->key_bytes,
                                 .inline_key_bytes = (uint8_t)plan->inline_key_bytes,
                                 .value_bytes = (uint8_t)plan->value_bytes,
                                 .value_variable = plan->value_variable,
                                 .subtree_levels = (uint8_t)plan->subtree_levels,
                                 .content = plan->records ? FORMAT_CONTENT_STORE : FORMAT_CONTENT_PLAIN};
}

bool swarm_plan_may_be_full(const struct swarm_plan *plan)
{
    return plan->pool_bytes < UINT64_C(4) << 20;
}

void swarm_plan_churn(const struct swarm_plan *plan, struct churn *churn)
{
    *churn = (struct churn){.seed = plan->seed,
                            .keys = plan->keys,
                            .pattern = plan->pattern,
                            .window = plan->window,
                            .rounds = plan->rounds,
                            .hot = plan->hot,
                            .scans = plan->scans,
                            .multis = plan->multis,
                            .moves = plan->moves,
                            .merges = plan->merges,
                            .node_moves = plan->node_moves,
                            .drains = plan->drains,
                            .disjoint = plan->disjoint,
                            .may_lack = swarm_plan_may_be_full(plan)};
}

void swarm_plan_describe(const struct swarm_plan *plan, char *text, size_t size)
{
    static const char *const disks[] = {"", ", disk-second", ", disk-always"};
    static const char *const leaves[] = {"leaves", "unsorted leaves", "dense leaves"};
    char preset[160] = "";
    struct format_geometry geometry;
    struct error error;
    swarm_plan_geometry(plan, &geometry);
    format_geometry_complete(&geometry, plan->params.atomic_write, &error);
    for (const struct option_entry *entry = sim_faults_table; entry->kind != OPTION_END; entry++) {
        double rate = 0;
        if (entry->kind == OPTION_DOUBLE)
            memcpy(&rate, (const char *)&plan->faults + entry->offset, sizeof rate);
        size_t used = strlen(preset);
        if (rate > 0)
            snprintf(preset + used, sizeof preset - used, " %s", entry->name);
    }
    snprintf(text, size, "%um %uc %ut %uf, %s%s, %u-byte %s%s%s%s%s%s%s%s%s%s%s", plan->memory_nodes,
             plan->compute_nodes, plan->threads, plan->fibers, plan->records ? "records, " : "",
             swarm_plan_key_kinds[plan->key_kind], geometry.leaf_bytes, leaves[plan->leaf_kind],
             plan->ranges ? plan->log ? ", logged ranges" : ", ranges" : "", disks[plan->disk],
             plan->kills ? ", kills" : "", plan->restarts ? ", restarts" : "", plan->stalls ? ", stalls" : "",
             plan->cuts ? ", cuts" : "", plan->joins ? ", joins" : "", plan->drains ? ", drains" : "",
             *preset ? ";" : "", preset);
}
