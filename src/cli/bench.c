/*
 * bench.c - `banyan bench`: reads the command line into a bench_plan, runs it and writes the reports.
 * The tree's switches become options by themselves, from tree_switches_table.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/log.h"
#include "bench/plan.h"
#include "cli/cluster.h"
#include "cli/command.h"

enum option_key {
    KEY_WORKLOAD = 256,
    KEY_MIX,
    KEY_FABRIC,
    KEY_MEMORY_NODES,
    KEY_COMPUTE_NODES,
    KEY_THREADS,
    KEY_FIBERS,
    KEY_KEYS,
    KEY_KEY_BYTES,
    KEY_VALUE_BYTES,
    KEY_LEAF_BYTES,
    KEY_INTERNAL_BYTES,
    KEY_FILL,
    KEY_DISTRIBUTION,
    KEY_THETA,
    KEY_SCAN_LENGTH,
    KEY_OPERATIONS,
    KEY_WARM_UP,
    KEY_SEED,
    KEY_PRESET,
    KEY_SIM,
    KEY_FAULTS,
    KEY_POOL_BYTES,
    KEY_CHUNK_BYTES,
    KEY_NO_CHECK,
    KEY_PIN,
    KEY_MEMORY,
    KEY_SECRET_FILE,
    KEY_RDMA_DEVICE,
    KEY_RDMA_GID,
    KEY_RDMA_SPIN,
    KEY_JSON,
    KEY_REPORT,
    KEY_ABLATION,
    KEY_PEER,
    KEY_PEER_BATCH,
    KEY_PAIRS,
    KEY_LIST,
    KEY_QUIET,
    KEY_SWITCH,              /* + index in tree_switches_table */
    KEY_NO_SWITCH = 0x10000, /* + the same, for bool switches */
};

static const struct argp_option fixed_options[] = {
    {0, 0, 0, 0, "What to run:", 1},
    {"workload", KEY_WORKLOAD, "NAMES", 0,
     "Workloads, comma separated, or 'all'; --list shows them (default: read-intensive)", 1},
    {"mix", KEY_MIX, "OP=SHARE,...", 0,
     "A workload of your own: lookup, upsert, insert (new keys), update, delete, scan, modify", 1},
    {"distribution", KEY_DISTRIBUTION, "NAMES", 0,
     "uniform, zipfian (hot keys spread over the key space), scrambled (as YCSB does it, by a hash); comma "
     "separated (default: zipfian)",
     1},
    {"theta", KEY_THETA, "X", 0, "Skew of zipfian and scrambled, 0 to below 1 (default: 0.99)", 1},
    {"keys", KEY_KEYS, "N", 0, "Keys loaded before the run (default: 1M)", 1},
    {"key-bytes", KEY_KEY_BYTES, "N", 0, "Length of keys, 8 to 255 (default: 8)", 1},
    {"value-bytes", KEY_VALUE_BYTES, "N", 0, "Length of values, 0 to 255 (default: 8)", 1},
    {"fill", KEY_FILL, "X", 0, "How full the loaded leaves are (default: 0.8)", 1},
    {"scan-length", KEY_SCAN_LENGTH, "N", 0, "Entries of a scan (default: 100)", 1},
    {"operations", KEY_OPERATIONS, "N", 0, "Operations to measure (default: 1M, on sim 200k)", 1},
    {"warm-up", KEY_WARM_UP, "N", 0, "Operations before those (default: a tenth as many)", 1},
    {"seed", KEY_SEED, "N", 0, "Seed of all random choices (default: 1)", 1},
    {0, 0, 0, 0, "Where to run it:", 2},
    {"fabric", KEY_FABRIC, "NAME", 0,
     "local (this process, real time), sim (virtual time), or to memory nodes in processes of their own: "
     "tcp, "
     "unix, which maps their pools, or rdma, through NICs (default: local)",
     2},
    {"memory", KEY_MEMORY, "URI,...", 0,
     "On tcp, unix and rdma, memory nodes that run already; each run FORMATS them (default, but for rdma: "
     "starts "
     "its own)",
     2},
    {"secret-file", KEY_SECRET_FILE, "FILE", 0, "First line: the secret of those memory nodes", 2},
    {"rdma-device", KEY_RDMA_DEVICE, "NAME", 0, "On rdma, the NIC (default: the one that owns the address)",
     2},
    {"rdma-gid", KEY_RDMA_GID, "INDEX", 0, "On rdma, the port's GID (default: chosen)", 2},
    {"rdma-spin", KEY_RDMA_SPIN, "US", 0,
     "On rdma, a thread that waits polls so long before it sleeps (default: 50)", 2},
    {"memory-nodes", KEY_MEMORY_NODES, "N", 0, "Memory nodes (default: 1, on sim 8)", 2},
    {"compute-nodes", KEY_COMPUTE_NODES, "N", 0, "Compute nodes (default: 1, on sim 8)", 2},
    {"threads", KEY_THREADS, "N", 0, "Threads of each compute node (default: 1, on sim 22)", 2},
    {"fibers", KEY_FIBERS, "N", 0, "Fibers of each thread (default: 1)", 2},
    {"leaf-bytes", KEY_LEAF_BYTES, "N", 0, "Bytes of a leaf (default: 1024)", 2},
    {"internal-bytes", KEY_INTERNAL_BYTES, "N", 0, "Bytes of an inner node (default: 1024)", 2},
    {"pool-bytes", KEY_POOL_BYTES, "N", 0, "Memory of each memory node (default: enough for the run)", 2},
    {"chunk-bytes", KEY_CHUNK_BYTES, "N", 0,
     "Bytes that a memory node hands out at a time (default: 8M, 1M with more than 16 threads)", 2},
    {"sim", KEY_SIM, "NAME=VALUE,...", 0, "Parameters of the simulated hardware; --sim help lists them", 2},
    {"faults", KEY_FAULTS, "NAME=VALUE,...", 0,
     "Faults of the simulated network, 'none' or 'hostile'; --faults help lists them", 2},
    {"pin", KEY_PIN, 0, 0, "On local, keep each thread on a CPU of its own", 2},
    {"no-check", KEY_NO_CHECK, 0, 0, "Do not walk and prove the whole index after loading and after the run",
     2},
    {0, 0, 0, 0, "Techniques to compare:", 3},
    {"preset", KEY_PRESET, "NAMES", 0,
     "Presets of the switches below, comma separated, or 'all' (default: banyan)", 3},
    {"ablation", KEY_ABLATION, 0, 0,
     "Figures 5 and 6 of Sherman's paper: on sim, 8 memory and 8 compute nodes of 22 threads, 10M keys, "
     "every preset, write-only, write-intensive and read-intensive, zipfian and uniform; prints the paper's "
     "numbers beside ours. Options given as well change that",
     3},
    {0, 0, 0, 0, "Switches, set over every preset:", 4},
    {0, 0, 0, 0, "Comparing with other stores:", 5},
    {"peer", KEY_PEER, "NAME", 0, "Run the same on another store in turns: lmdb", 5},
    {"peer-batch", KEY_PEER_BATCH, "N", 0, "Also with N writes in one of its transactions (default: 1000)",
     5},
    {"pairs", KEY_PAIRS, "N", 0, "Turns (default: 3)", 5},
    {0, 0, 0, 0, "Output:", 6},
    {"json", KEY_JSON, "FILE", 0,
     "Write the results for programs; - is standard output (the table then goes to standard error)", 6},
    {"report", KEY_REPORT, "FILE.html", 0, "Write a page with plots that needs nothing else", 6},
    {"quiet", KEY_QUIET, 0, 0, "No progress on the terminal", 6},
    {"list", KEY_LIST, 0, 0, "List workloads and presets, and exit", 6},
};
#define FIXED_COUNT    (sizeof fixed_options / sizeof fixed_options[0])
#define GROUP_SWITCHES 4

static const char documentation[] =
    "Measure the index: throughput, latency, and what each operation costs in round trips, commands and "
    "bytes.\v"
    "Counts take k, M, G (powers of 1000), sizes K, M, G (powers of 1024).\n\n"
    "Examples:\n"
    "  banyan bench --workload write-intensive --keys 1M\n"
    "  banyan bench --fabric sim --workload write-intensive --preset fg+,sherman,banyan\n"
    "  banyan bench --fabric sim --workload ycsb:a --preset sherman --handover 0\n"
    "  banyan bench --mix lookup=90,insert=10 --value-bytes 100 --json result.json\n"
    "  banyan bench --peer lmdb --workload read-only --distribution uniform\n"
    "  banyan bench --ablation --report ablation.html\n\n"
    "Exit status: 0, 1 when a run failed, 2 when an option makes no sense.";

#define UNSET UINT64_MAX

struct switch_setting {
    const char *name, *value;
};

struct request {
    struct bench_plan plan;
    uint64_t memory_nodes, compute_nodes, threads, fibers, keys, operations, warm_up;
    const char *json, *report;
    bool ablation, quiet;
    struct cluster_addresses addresses; /* --memory */
    char secret[NET_SECRET_MAX + 1];
    struct cluster_rdma_settings rdma;
    uint32_t spin_us;
    struct switch_setting settings[64];
    unsigned setting_count;
};

/* ---- values ---- */

static const char *option_text(int key)
{
    for (size_t i = 0; i < FIXED_COUNT; i++)
        if (fixed_options[i].key == key)
            return fixed_options[i].name;
    return "";
}

/* argp_error does not return. */
static void refuse(struct argp_state *state, const struct error *error)
{
    argp_error(state, "%s", error->text);
}

/* `kind` says what is wanted, with examples. */
static uint64_t parse_number(struct argp_state *state, int key, const char *text, uint64_t most,
                             int (*parse)(const char *, uint64_t *, struct error *), const char *kind)
{
    uint64_t value = 0;
    struct error error = {0};
    if (parse(text, &value, &error))
        argp_error(state, "--%s: '%s' is not a %s", option_text(key), text, kind);
    if (value > most)
        argp_error(state, "--%s: %s is more than %llu", option_text(key), text, (unsigned long long)most);
    return value;
}

static uint64_t parse_count(struct argp_state *state, int key, const char *text, uint64_t most)
{
    return parse_number(state, key, text, most, option_parse_count, "count, like 1000, 200k or 10M");
}

static uint64_t parse_size(struct argp_state *state, int key, const char *text, uint64_t most)
{
    return parse_number(state, key, text, most, option_parse_size, "size, like 512, 64K or 8M");
}

static double parse_real(struct argp_state *state, int key, const char *text)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end)
        argp_error(state, "--%s: '%s' is not a number", option_text(key), text);
    return value;
}

/* ---- lists ---- */

static void list_names(void)
{
    const char *about = NULL;
    printf("Workloads (a name without its prefix means Sherman's, or DEX's where Sherman has none):\n");
    for (size_t i = 0; workload_name(i, NULL); i++) {
        const char *name = workload_name(i, &about);
        printf("  %-26s %s\n", name, about);
    }
    printf("\nPresets:\n");
    for (size_t i = 0; tree_switches_presets[i]; i++) {
        struct tree_switches switches = {0};
        tree_switches_preset(&switches, tree_switches_presets[i], NULL);
        printf("  %-16s", tree_switches_presets[i]);
        for (const struct option_entry *entry = tree_switches_table; entry->kind != OPTION_END; entry++) {
            char text[64];
            option_format(entry, &switches, text, sizeof text);
            if (strcmp(entry->name, "cache-bytes"))
                printf(" %s=%s", entry->name, text);
        }
        printf("\n");
    }
}

static void list_table(const struct option_entry *table, const void *defaults)
{
    for (const struct option_entry *entry = table; entry->kind != OPTION_END; entry++) {
        char text[64];
        option_format(entry, defaults, text, sizeof text);
        printf("  %s=%s%s%s\n      %s\n", entry->name, text, entry->unit ? " " : "",
               entry->unit ? entry->unit : "", entry->help ? entry->help : "");
    }
}

/* ---- reading the command line ---- */

static void parse_table(struct argp_state *state, int key, const struct option_entry *table, void *object,
                        const char *text)
{
    struct error error = {0};
    if (!strcmp(text, "help")) {
        list_table(table, object);
        exit(COMMAND_OK);
    }
    if (option_set_list(table, object, text, &error))
        argp_error(state, "--%s: %s", option_text(key), error.text);
}

static void parse_faults(struct argp_state *state, int key, struct bench_config *config, const char *text)
{
    if (!strcmp(text, "none"))
        sim_faults_none(&config->faults);
    else if (!strcmp(text, "hostile"))
        sim_faults_hostile(&config->faults);
    else
        parse_table(state, key, sim_faults_table, &config->faults, text);
}

static void parse_fabric(struct argp_state *state, struct bench_config *config, const char *text)
{
    for (enum bench_fabric fabric = BENCH_LOCAL; fabric <= BENCH_RDMA; fabric++)
        if (!strcmp(text, bench_fabric_names[fabric])) {
            config->fabric = fabric;
            return;
        }
    argp_error(state, "--fabric: '%s' is not one of local, sim, tcp, unix, rdma", text);
}

static bool parse_switch(struct request *request, struct argp_state *state, int key, const char *value)
{
    unsigned index = (unsigned)key - (key >= KEY_NO_SWITCH ? KEY_NO_SWITCH : KEY_SWITCH);
    if (key < KEY_SWITCH)
        return false;
    const struct option_entry *entry = &tree_switches_table[index];
    struct switch_setting setting = {entry->name, key >= KEY_NO_SWITCH ? "off" : value ? value : "on"};
    struct tree_switches scratch = {0};
    struct error error = {0};
    if (option_set(tree_switches_table, &scratch, setting.name, setting.value, &error))
        refuse(state, &error);
    if (request->setting_count == sizeof request->settings / sizeof request->settings[0])
        argp_error(state, "too many switches");
    request->settings[request->setting_count++] = setting;
    return true;
}

/* What to run. False: not an option of this kind. */
static bool parse_what(struct request *request, struct argp_state *state, int key, const char *text)
{
    struct bench_plan *plan = &request->plan;
    struct bench_config *config = &plan->config;
    struct error error = {0};
    int status = 0;
    switch (key) {
    case KEY_WORKLOAD:
        status = bench_plan_add_workloads(plan, text, &error);
        break;
    case KEY_MIX:
        if (plan->workload_count == BENCH_WORKLOADS_MAX)
            argp_error(state, "--mix: too many workloads");
        status = workload_parse_mix(&plan->workloads[plan->workload_count++], text, &error);
        break;
    case KEY_DISTRIBUTION:
        status = bench_plan_add_distributions(plan, text, &error);
        break;
    case KEY_PRESET:
        status = bench_plan_add_presets(plan, text, &error);
        break;
    case KEY_PEER:
        plan->peer = bench_peer_find(text, &error);
        status = plan->peer ? 0 : BANYAN_EINVAL;
        break;
    case KEY_THETA:
        config->theta = parse_real(state, key, text);
        break;
    case KEY_FILL:
        config->fill = parse_real(state, key, text);
        break;
    case KEY_SCAN_LENGTH:
        config->scan_length = (uint32_t)parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_SEED:
        config->seed = parse_count(state, key, text, UINT64_MAX);
        break;
    case KEY_PEER_BATCH:
        plan->peer_batch = (uint32_t)parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_PAIRS:
        plan->pairs = (uint32_t)parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_KEYS:
        request->keys = parse_count(state, key, text, UNSET - 1);
        break;
    case KEY_OPERATIONS:
        request->operations = parse_count(state, key, text, UNSET - 1);
        break;
    case KEY_WARM_UP:
        request->warm_up = parse_count(state, key, text, UINT64_C(1) << 50);
        break;
    default:
        return false;
    }
    if (status)
        refuse(state, &error);
    return true;
}

/* Where to run it. */
static bool parse_where(struct request *request, struct argp_state *state, int key, const char *text)
{
    struct bench_config *config = &request->plan.config;
    struct error error = {0};
    switch (key) {
    case KEY_FABRIC:
        parse_fabric(state, config, text);
        break;
    case KEY_MEMORY_NODES:
        request->memory_nodes = parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_COMPUTE_NODES:
        request->compute_nodes = parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_THREADS:
        request->threads = parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_FIBERS:
        request->fibers = parse_count(state, key, text, UINT32_MAX);
        break;
    case KEY_KEY_BYTES:
        config->geometry.key_bytes = (uint8_t)parse_size(state, key, text, FORMAT_KEY_MAX);
        break;
    case KEY_VALUE_BYTES:
        config->geometry.value_bytes = (uint8_t)parse_size(state, key, text, FORMAT_VALUE_MAX);
        break;
    case KEY_LEAF_BYTES:
        config->geometry.leaf_bytes = (uint32_t)parse_size(state, key, text, UINT32_MAX);
        break;
    case KEY_INTERNAL_BYTES:
        config->geometry.internal_bytes = (uint32_t)parse_size(state, key, text, UINT32_MAX);
        break;
    case KEY_POOL_BYTES:
        config->pool_bytes = parse_size(state, key, text, UINT64_C(1) << 46) & ~UINT64_C(4095);
        break;
    case KEY_CHUNK_BYTES:
        config->chunk_bytes = parse_size(state, key, text, UINT64_C(1) << 30);
        break;
    case KEY_SIM:
        parse_table(state, key, sim_params_table, &config->sim, text);
        break;
    case KEY_FAULTS:
        parse_faults(state, key, config, text);
        break;
    case KEY_MEMORY:
        if (cluster_addresses_parse(&request->addresses, "--memory", text, 7100, &error))
            refuse(state, &error);
        break;
    case KEY_SECRET_FILE:
        if (net_secret_read(text, request->secret, &config->secret_length, &error))
            refuse(state, &error);
        config->secret = request->secret;
        break;
    case KEY_RDMA_DEVICE:
        request->rdma.device = (char *)text; /* only read */
        break;
    case KEY_RDMA_GID:
        request->rdma.gid = (char *)text; /* as above */
        break;
    case KEY_RDMA_SPIN:
        request->spin_us = (uint32_t)parse_count(state, key, text, 60000000);
        break;
    case KEY_PIN:
        config->pin = true;
        break;
    case KEY_NO_CHECK:
        config->check = false;
        break;
    default:
        return false;
    }
    return true;
}

static bool parse_output(struct request *request, int key, const char *text)
{
    switch (key) {
    case KEY_JSON:
        request->json = text;
        break;
    case KEY_REPORT:
        request->report = text;
        break;
    case KEY_ABLATION:
        request->ablation = true;
        request->plan.config.fabric = BENCH_SIM;
        break;
    case KEY_QUIET:
        request->quiet = true;
        break;
    case KEY_LIST:
        list_names();
        exit(COMMAND_OK);
    default:
        return false;
    }
    return true;
}

static uint64_t or_default(uint64_t value, uint64_t usual)
{
    return value == UNSET ? usual : value;
}

/* What was not given gets its default, which depends on the fabric and on --ablation. */
static void complete(struct request *request, struct argp_state *state)
{
    struct bench_plan *plan = &request->plan;
    struct bench_config *config = &plan->config;
    struct error error = {0};
    bool sim = config->fabric == BENCH_SIM;
    config->memory_nodes = (uint32_t)or_default(request->memory_nodes, sim ? 8 : 1);
    config->compute_nodes = (uint32_t)or_default(request->compute_nodes, sim ? 8 : 1);
    if (request->addresses.count) {
        if (config->fabric == BENCH_LOCAL || config->fabric == BENCH_SIM)
            argp_error(state, "--memory: memory nodes that run already are for --fabric tcp, unix or rdma");
        config->memory = request->addresses.list;
        config->memory_nodes = request->addresses.count;
    } else if (config->fabric == BENCH_RDMA) {
        argp_error(state, "--fabric rdma: name memory nodes that run: --memory rdma://host:port");
    }
    if (cluster_rdma_prepare(&config->nic, &request->rdma, &error))
        refuse(state, &error);
    config->nic.spin_us = request->spin_us;
    config->threads = (uint32_t)or_default(request->threads, sim ? 22 : 1);
    config->fibers = (uint32_t)or_default(request->fibers, 1);
    config->keys = or_default(request->keys, request->ablation ? 10000000 : 1000000);
    config->operations = or_default(request->operations, request->ablation ? 400000 : sim ? 200000 : 1000000);
    config->warm_up = or_default(request->warm_up, config->operations / 10);
    int status = 0;
    if (!plan->workload_count)
        status = bench_plan_add_workloads(
            plan, request->ablation ? "write-only,write-intensive,read-intensive" : "read-intensive", &error);
    if (!status && !plan->distribution_count)
        status =
            bench_plan_add_distributions(plan, request->ablation ? "zipfian,uniform" : "zipfian", &error);
    if (!status && !plan->preset_count)
        status = bench_plan_add_presets(plan, request->ablation ? "all" : "banyan", &error);
    for (unsigned i = 0; i < plan->preset_count && !status; i++) {
        struct tree_switches *switches = &plan->presets[i].switches;
        switches->cache_bytes = UINT64_C(500) << 20; /* as in Sherman's evaluation */
        for (unsigned j = 0; j < request->setting_count && !status; j++)
            status = option_set(tree_switches_table, switches, request->settings[j].name,
                                request->settings[j].value, &error);
    }
    if (!status)
        status = bench_plan_check(plan, &error);
    if (status)
        refuse(state, &error);
}

static error_t parse_option(int key, char *text, struct argp_state *state)
{
    struct request *request = state->input;
    if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument '%s'; every setting is an option", text);
    if (key == ARGP_KEY_END)
        complete(request, state);
    if (key < KEY_WORKLOAD || key > KEY_NO_SWITCH + 1000)
        return ARGP_ERR_UNKNOWN;
    bool known = parse_what(request, state, key, text) || parse_where(request, state, key, text) ||
                 parse_output(request, key, text) || parse_switch(request, state, key, text);
    return known ? 0 : ARGP_ERR_UNKNOWN;
}

#define OPTIONS_MAX 192

/* Help texts and names that are made up live in `texts`. */
struct option_list {
    struct argp_option options[OPTIONS_MAX];
    char texts[OPTIONS_MAX][320];
    unsigned count, text_count;
};

static const char *keep_text(struct option_list *list, const char *format, const char *a, const char *b)
{
    char *text = list->texts[list->text_count++];
    snprintf(text, sizeof list->texts[0], format, a, b);
    return text;
}

static void add_switch(struct option_list *list, int index)
{
    const struct option_entry *entry = &tree_switches_table[index];
    char choices[200] = "";
    for (size_t i = 0; entry->choices && entry->choices[i]; i++) {
        size_t used = strlen(choices);
        snprintf(choices + used, sizeof choices - used, "%s%s", i ? "|" : "", entry->choices[i]);
    }
    bool flag = entry->kind == OPTION_BOOL;
    list->options[list->count++] = (struct argp_option){
        .name = entry->name,
        .key = KEY_SWITCH + index,
        .arg = flag ? "on|off" : keep_text(list, "%s%s", entry->choices ? choices : "N", ""),
        .flags = flag ? OPTION_ARG_OPTIONAL : 0,
        .doc = entry->help,
        .group = GROUP_SWITCHES,
    };
    if (flag)
        list->options[list->count++] = (struct argp_option){
            .name = keep_text(list, "no-%s%s", entry->name, ""),
            .key = KEY_NO_SWITCH + index,
            .doc = keep_text(list, "The same as --%s=off%s", entry->name, ""),
            .group = GROUP_SWITCHES,
        };
}

static void make_options(struct option_list *list)
{
    for (size_t i = 0; i < FIXED_COUNT; i++) {
        list->options[list->count++] = fixed_options[i];
        bool switches = !fixed_options[i].name && fixed_options[i].group == GROUP_SWITCHES;
        for (int j = 0; switches && tree_switches_table[j].kind != OPTION_END; j++)
            add_switch(list, j);
    }
}

/* ---- running ---- */

struct terminal {
    char what[256];
    bool on;
};

static void show_begun(void *context, const char *what)
{
    struct terminal *terminal = context;
    snprintf(terminal->what, sizeof terminal->what, "%s", what);
    if (terminal->on)
        fprintf(stderr, "\r\033[K%s", terminal->what);
}

static void show_progress(void *context, const char *phase, double done)
{
    const struct terminal *terminal = context;
    if (terminal->on)
        fprintf(stderr, "\r\033[K%s: %s %3.0f %%", terminal->what, phase, done * 100);
}

static int open_output(const char *name, FILE **file)
{
    if (!name)
        return 0;
    *file = strcmp(name, "-") ? fopen(name, "w") : stdout;
    if (*file)
        return 0;
    fprintf(stderr, "banyan bench: cannot write '%s': %m\n", name);
    return COMMAND_FAILED;
}

/* Closes; a full disk shows here at the latest. */
static int close_output(const char *name, FILE *file)
{
    if (!file)
        return 0;
    int failed = ferror(file) | (file == stdout ? fflush(file) : fclose(file));
    if (failed)
        fprintf(stderr, "banyan bench: writing '%s' failed\n", name);
    return failed ? COMMAND_FAILED : 0;
}

static int write_reports(const struct request *request, const struct bench_report *report, FILE *json,
                         FILE *html)
{
    FILE *text = json == stdout || html == stdout ? stderr : stdout;
    report_table(report, text);
    if (request->ablation)
        report_paper(report, text);
    if (request->plan.peer)
        report_pairs(report, text);
    int failed = json ? report_json(report, json) != 0 : 0;
    if (html)
        report_html(report, html);
    return failed ? COMMAND_FAILED : 0;
}

static int run_request(struct request *request)
{
    FILE *json = NULL, *html = NULL;
    struct terminal terminal = {.on = !request->quiet && isatty(STDERR_FILENO)};
    struct bench_plan *plan = &request->plan;
    struct bench_result *results = NULL;
    struct error error = {0};
    size_t count = 0;
    plan->begun = show_begun;
    plan->begun_context = &terminal;
    plan->config.progress = terminal.on ? show_progress : NULL;
    plan->config.progress_context = &terminal;
    int exit_code = open_output(request->json, &json);
    if (!exit_code)
        exit_code = open_output(request->report, &html);
    int status = exit_code ? 0 : bench_plan_run(plan, &results, &count, &error);
    if (terminal.on)
        fputs("\r\033[K", stderr);
    struct bench_report report = {.config = &plan->config, .results = results, .count = count};
    report.peer_settings = plan->peer ? plan->peer->settings : NULL;
    if (!exit_code && count)
        exit_code = write_reports(request, &report, json, html);
    if (status) {
        fprintf(stderr, "banyan bench: %s: %s%s\n", terminal.what,
                error.text[0] ? error.text : error_name(status),
                status == BANYAN_ENOSPC ? "; give more with --pool-bytes" : "");
        exit_code = COMMAND_FAILED;
    }
    exit_code |= close_output(request->json, json) | close_output(request->report, html);
    bench_results_free(results, count);
    return exit_code;
}

int command_bench(int argc, char **argv)
{
    struct request *request = calloc(1, sizeof *request);
    struct option_list *list = calloc(1, sizeof *list);
    int exit_code = COMMAND_FAILED;
    if (request && list) {
        struct bench_config *config = &request->plan.config;
        request->memory_nodes = request->compute_nodes = request->threads = request->fibers = UNSET;
        request->keys = request->operations = request->warm_up = UNSET;
        request->plan.pairs = 3;
        request->plan.peer_batch = 1000;
        *config =
            (struct bench_config){.fill = 0.8, .theta = 0.99, .scan_length = 100, .seed = 1, .check = true};
        config->geometry =
            (struct format_geometry){.key_kind = FORMAT_KEY_FIXED, .key_bytes = 8, .value_bytes = 8};
        sim_params_default(&config->sim);
        sim_faults_none(&config->faults);
        make_options(list);
        argp_err_exit_status = COMMAND_USAGE;
        log_set_level(LOG_WARNING); /* notes about pages would only stand in the progress */
        struct argp parser = {.options = list->options, .parser = parse_option, .doc = documentation};
        argp_parse(&parser, argc, argv, 0, NULL, request);
        exit_code = run_request(request);
    }
    free(list);
    free(request);
    return exit_code;
}
