/* plan.c - see plan.h. */
#include "swarm/plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"
#include "swarm/world.h"

static const char *const key_kinds[] = {"fixed", "variable", NULL};
static const char *const patterns[] = {"window", "uniform", "tide", "patch", NULL};

#define FIELD(name) offsetof(struct swarm_plan, name)
#define ENTRY(name, kind, field, minimum, maximum, choices, unit, help)                                      \
    {                                                                                                        \
        name, kind, FIELD(field), minimum, maximum, choices, unit, help                                      \
    }

const struct option_entry swarm_plan_table[] = {
    ENTRY("seed", OPTION_U64, seed, 0, 0, NULL, NULL, "what everything random in the run comes from"),
    ENTRY("dice", OPTION_U64, dice, 0, 0, NULL, NULL,
          "other luck in network and faults with the same workload; 0: the seed's own"),
    ENTRY("memory-nodes", OPTION_U32, memory_nodes, 1, WORLD_MEMORY_MAX, NULL, NULL, "memory nodes"),
    ENTRY("compute-nodes", OPTION_U32, compute_nodes, 1, 8, NULL, NULL, "compute nodes"),
    ENTRY("threads", OPTION_U32, threads, 1, 8, NULL, NULL, "threads of each compute node"),
    ENTRY("fibers", OPTION_U32, fibers, 1, 64, NULL, NULL, "tasks of each thread"),
    ENTRY("pool-bytes", OPTION_U64, pool_bytes, 1 << 16, 1 << 30, NULL, "bytes", "of each memory node"),
    ENTRY("chunk-bytes", OPTION_U64, chunk_bytes, 0, 0, NULL, "bytes", "that the pool is handed out in"),
    ENTRY("lock-bytes", OPTION_U64, lock_bytes, 0, 0, NULL, "bytes",
          "of locks in each memory node; 0: its default"),
    ENTRY("unlock-by-atomic", OPTION_BOOL, unlock_by_atomic, 0, 0, NULL, NULL,
          "the NIC does not promise that a WRITE may release a lock"),
    ENTRY("records", OPTION_BOOL, records, 0, 0, NULL, NULL,
          "a store above the index, with values of any size"),
    ENTRY("key-kind", OPTION_CHOICE, key_kind, 0, 0, key_kinds, NULL, "keys of one length or of any"),
    ENTRY("key-bytes", OPTION_U32, key_bytes, 8, 255, NULL, "bytes", "of keys, or at most"),
    ENTRY("inline-key-bytes", OPTION_U32, inline_key_bytes, 0, 255, NULL, "bytes",
          "longest remainder kept in a slot"),
    ENTRY("value-bytes", OPTION_U32, value_bytes, 8, 255, NULL, "bytes", "of values, or at most"),
    ENTRY("value-variable", OPTION_BOOL, value_variable, 0, 0, NULL, NULL, "values of any length up to that"),
    ENTRY("long-keys", OPTION_BOOL, long_keys, 0, 0, NULL, NULL, "a third of the keys are long"),
    ENTRY("leaf-bytes", OPTION_U32, leaf_bytes, 0, 65536, NULL, "bytes", "of a leaf; 0: the default"),
    ENTRY("internal-bytes", OPTION_U32, internal_bytes, 0, 4096, NULL, "bytes",
          "of an internal node; 0: the default"),
    ENTRY("kills", OPTION_U32, kills, 0, 100, NULL, NULL, "compute nodes that die"),
    ENTRY("kill-at-effect", OPTION_BOOL, kill_at_effect, 0, 0, NULL, NULL,
          "they die between two commands of a list, else at any instant"),
    ENTRY("restarts", OPTION_U32, restarts, 0, 16, NULL, NULL,
          "dead compute nodes that are replaced, at most"),
    ENTRY("stalls", OPTION_U32, stalls, 0, 100, NULL, NULL,
          "compute nodes that stand still, some past their lease"),
    ENTRY("cuts", OPTION_U32, cuts, 0, 100, NULL, NULL, "connections that are cut"),
    ENTRY("refusals", OPTION_U32, refusals, 0, 100, NULL, NULL,
          "times that a memory node refuses to hand out memory"),
    ENTRY("span-ns", OPTION_U64, span_ns, 1000, 1e12, NULL, "ns",
          "virtual time within which these things happen"),
    ENTRY("keys", OPTION_U64, keys, 40, 1e6, NULL, NULL, "the key space"),
    ENTRY("window", OPTION_U64, window, 1, 1e6, NULL, NULL, "keys in the moving window"),
    ENTRY("pattern", OPTION_CHOICE, pattern, 0, 0, patterns, NULL,
          "what happens in the changing part of the keys"),
    ENTRY("rounds", OPTION_U32, rounds, 1, 1e6, NULL, NULL, "operations of each task"),
    ENTRY("hot", OPTION_U32, hot, 0, 100, NULL, "%", "operations on four hot keys"),
    ENTRY("scans", OPTION_U32, scans, 0, 100, NULL, "%", "operations that are scans"),
    ENTRY("multis", OPTION_U32, multis, 0, 100, NULL, "%", "operations on many keys at once"),
    ENTRY("disjoint", OPTION_BOOL, disjoint, 0, 0, NULL, NULL, "each task writes keys of its own only"),
    ENTRY("patience-ns", OPTION_U64, patience_ns, 0, 0, NULL, "ns",
          "longest operation once the faults have stopped"),
    ENTRY("events", OPTION_U64, events, 1000, 1e15, NULL, NULL,
          "of the simulator, in one phase of the run, at most"),
    ENTRY("skip", OPTION_TEXT, skip, 0, 0, NULL, NULL, "rounds left out: task:from-to task:from-to ..."),
    {.name = NULL, .kind = OPTION_END},
};

static const struct part {
    const struct option_entry *table;
    size_t offset;
} parts[] = {
    {swarm_plan_table, 0},
    {tree_switches_table, FIELD(switches)},
    {sim_faults_table, FIELD(faults)},
    {sim_params_table, FIELD(params)},
};
#define PARTS (sizeof parts / sizeof parts[0])

/* ---- defaults ---- */

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

/* ---- drawing ---- */

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

static void draw_index(struct swarm_plan *plan, struct random *random)
{
    static const uint32_t leaves[] = {512, 512, 1024, 1024, 1024, 2048, 4096},
                          values[] = {8, 8, 16, 16, 33, 80, 200};
    plan->params.atomic_write = random_chance(random, 0.3) ? 4096 : 1024;
    plan->leaf_bytes = PICK(random, leaves);
    plan->internal_bytes = random_chance(random, 0.5) ? 512 : 1024;
    plan->records = random_chance(random, 0.3);
    if (plan->records) {
        plan->key_kind = FORMAT_KEY_VARIABLE;
        plan->key_bytes = plan->params.atomic_write == 4096 ? 255 : 64;
        plan->inline_key_bytes = 16;
        plan->value_bytes = 17;
        plan->value_variable = true;
        plan->internal_bytes = plan->params.atomic_write;
        plan->leaf_bytes = plan->leaf_bytes < 1024 ? 1024 : plan->leaf_bytes;
        plan->long_keys = random_chance(random, 0.5);
        plan->chunk_bytes = UINT64_C(256) << 10;
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
        /* What is torn or spread may be so at any rate; the rest is mostly rare. */
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

/* Other machines: what is fast and what is slow decides who overtakes whom. */
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
    /* A pool that is full most of the time. */
    if (!plan->records && random_chance(random, 0.08)) {
        plan->lock_bytes = 4096;
        plan->pool_bytes = MEMORY_FIRST_CHUNK(4096) + (1 + random_below(random, 2)) * plan->chunk_bytes;
        plan->keys = 2000;
        plan->window = 150;
    }
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
    } while (swarm_plan_check(plan, &error)); /* some geometries do not fit together */
}

/* ---- fields by name ---- */

static const struct option_entry *find(const char *name, size_t *offset)
{
    for (size_t i = 0; i < PARTS; i++) {
        const struct option_entry *entry = option_find(parts[i].table, name);
        *offset = parts[i].offset;
        if (entry)
            return entry;
    }
    return NULL;
}

int swarm_plan_set(struct swarm_plan *plan, const char *name, const char *value, struct error *error)
{
    size_t offset;
    const struct option_entry *entry = find(name, &offset);
    if (!entry)
        return error_set(error, BANYAN_EINVAL,
                         "a plan has no field '%.40s'; 'banyan sim --fields' lists them", name);
    for (size_t i = 0; i < PARTS; i++)
        if (parts[i].offset == offset && option_find(parts[i].table, name))
            return option_set(parts[i].table, (char *)plan + offset, name, value, error);
    return BANYAN_EINVAL;
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
    if (plan->scans + plan->multis + plan->hot > 100)
        return error_set(error, BANYAN_EINVAL, "plan: scans, multis and hot are more than 100 %% together");
    return 0;
}

void swarm_plan_geometry(const struct swarm_plan *plan, struct format_geometry *geometry)
{
    *geometry =
        (struct format_geometry){.leaf_bytes = plan->leaf_bytes,
                                 .internal_bytes = plan->internal_bytes,
                                 .key_kind = (uint8_t)plan->key_kind,
                                 .key_bytes = (uint8_t)plan->key_bytes,
                                 .inline_key_bytes = (uint8_t)plan->inline_key_bytes,
                                 .value_bytes = (uint8_t)plan->value_bytes,
                                 .value_variable = plan->value_variable,
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
                            .disjoint = plan->disjoint,
                            .may_lack = swarm_plan_may_be_full(plan)};
}

/* ---- text ---- */

#define HEADING "banyan sim plan, version "

int swarm_plan_write(const struct swarm_plan *plan, FILE *file)
{
    struct swarm_plan usual;
    swarm_plan_default(&usual);
    fprintf(file, HEADING "%u\n", SWARM_PLAN_VERSION);
    for (size_t part = 0; part < PARTS; part++)
        for (const struct option_entry *entry = parts[part].table; entry->kind != OPTION_END; entry++) {
            char value[64], expected[64];
            if (entry->kind == OPTION_TEXT)
                continue;
            option_format(entry, (const char *)plan + parts[part].offset, value, sizeof value);
            option_format(entry, (const char *)&usual + parts[part].offset, expected, sizeof expected);
            if (strcmp(value, expected) || !strcmp(entry->name, "seed"))
                fprintf(file, "%s = %s\n", entry->name, value);
        }
    if (plan->skip)
        fprintf(file, "skip = %s\n", plan->skip);
    return fflush(file) || ferror(file) ? BANYAN_ENOSPC : 0;
}

static int parse_heading(const char *line, struct error *error)
{
    char *end;
    unsigned long version =
        strncmp(line, HEADING, strlen(HEADING)) ? 0 : strtoul(line + strlen(HEADING), &end, 10);
    if (!version || *end)
        return error_set(error, BANYAN_EINVAL, "this is no plan: its first line is not '" HEADING "%u'",
                         SWARM_PLAN_VERSION);
    if (version != SWARM_PLAN_VERSION)
        return error_set(error, BANYAN_EVERSION,
                         "this plan is of version %lu, this program reads version %u: run it with the "
                         "program that wrote it",
                         version, SWARM_PLAN_VERSION);
    return 0;
}

static int parse_line(struct swarm_plan *plan, char *line, unsigned number, struct error *error)
{
    char *equals = strchr(line, '=');
    struct error why;
    if (!equals)
        return error_set(error, BANYAN_EINVAL, "line %u is no 'name = value': %.60s", number, line);
    *equals = 0;
    int status = swarm_plan_set(plan, option_trim(line), option_trim(equals + 1), &why);
    return status ? error_set(error, status, "line %u: %s", number, why.text) : 0;
}

int swarm_plan_parse(struct swarm_plan *plan, const char *text, struct error *error)
{
    swarm_plan_default(plan);
    char *copy = strdup(text), *rest = copy, *line;
    if (!copy)
        return error_set(error, BANYAN_ENOMEM, "plan: no memory");
    int status = 0;
    bool headed = false;
    for (unsigned number = 1; !status && (line = strsep(&rest, "\n")); number++) {
        line = option_trim(line);
        if (!headed)
            status = parse_heading(line, error);
        else if (*line && *line != '#')
            status = parse_line(plan, line, number, error);
        headed = true;
    }
    free(copy);
    return status ? status : swarm_plan_check(plan, error);
}

#define FILE_MAX (16u << 20)

static int read_text(FILE *file, char **text)
{
    size_t length = 0, room = 0;
    for (;;) {
        if (length + 1 >= room) {
            room = room ? room * 2 : 4096;
            char *larger = room > FILE_MAX ? NULL : realloc(*text, room);
            if (!larger)
                return BANYAN_ENOMEM;
            *text = larger;
        }
        size_t got = fread(*text + length, 1, room - length - 1, file);
        length += got;
        (*text)[length] = 0;
        if (got == 0)
            return ferror(file) ? BANYAN_EINVAL : 0;
    }
}

int swarm_plan_read(struct swarm_plan *plan, const char *path, struct error *error)
{
    swarm_plan_default(plan);
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(error, BANYAN_EINVAL, "%s: %s", path, strerror(errno));
    char *text = NULL;
    struct error why;
    int status = read_text(file, &text);
    fclose(file);
    if (status)
        error_set(error, status, "%s cannot be read, or is too long", path);
    else if ((status = swarm_plan_parse(plan, text, &why)))
        error_set(error, status, "%s: %s", path, why.text);
    free(text);
    return status;
}

void swarm_plan_describe(const struct swarm_plan *plan, char *text, size_t size)
{
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
    snprintf(text, size, "%um %uc %ut %uf, %s%s, %u-byte leaves%s%s%s%s%s%s", plan->memory_nodes,
             plan->compute_nodes, plan->threads, plan->fibers, plan->records ? "records, " : "",
             key_kinds[plan->key_kind], geometry.leaf_bytes, plan->kills ? ", kills" : "",
             plan->restarts ? ", restarts" : "", plan->stalls ? ", stalls" : "", plan->cuts ? ", cuts" : "",
             *preset ? ";" : "", preset);
}

/* ---- rounds left out ---- */

int swarm_skip_parse(struct swarm_skip *skip, const struct swarm_plan *plan, struct error *error)
{
    uint64_t tasks = (uint64_t)plan->compute_nodes * plan->threads * plan->fibers;
    *skip = (struct swarm_skip){.tasks = (uint32_t)tasks, .rounds = plan->rounds};
    if (!plan->skip)
        return 0;
    skip->words = calloc((tasks * plan->rounds + 63) / 64, 8);
    if (!skip->words)
        return error_set(error, BANYAN_ENOMEM, "plan: no memory for %" PRIu64 " tasks of %u rounds", tasks,
                         plan->rounds);
    for (const char *at = plan->skip; *at;) {
        unsigned task, from, to;
        int length = 0;
        if (sscanf(at, "%u:%u-%u%n", &task, &from, &to, &length) != 3 || from > to || to >= plan->rounds ||
            task >= tasks || (at[length] && at[length] != ' '))
            return error_set(error, BANYAN_EINVAL,
                             "plan: skip '%.40s' is no task:from-to of %" PRIu64 " tasks and %u rounds", at,
                             tasks, plan->rounds);
        for (unsigned round = from; round <= to; round++)
            swarm_skip_set(skip, task, round, true);
        for (at += length; *at == ' ';)
            at++;
    }
    return 0;
}

void swarm_skip_set(struct swarm_skip *skip, uint32_t task, uint32_t round, bool left_out)
{
    uint64_t bit = (uint64_t)task * skip->rounds + round, mask = UINT64_C(1) << bit % 64;
    skip->words[bit / 64] = left_out ? skip->words[bit / 64] | mask : skip->words[bit / 64] & ~mask;
}

char *swarm_skip_format(const struct swarm_skip *skip)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = skip->words ? open_memstream(&text, &size) : NULL;
    if (!file)
        return NULL;
    for (uint32_t task = 0; task < skip->tasks; task++)
        for (uint32_t from = 0, to; from < skip->rounds; from = to + 1) {
            for (to = from; to < skip->rounds && swarm_skip_has(skip, task, to); to++)
                ;
            if (to > from)
                fprintf(file, "%s%u:%u-%u", ftell(file) ? " " : "", task, from, to - 1);
        }
    if (fclose(file) || size == 0) {
        free(text);
        return NULL;
    }
    return text;
}

void swarm_skip_free(struct swarm_skip *skip)
{
    free(skip->words);
    skip->words = NULL;
}
