#include "cluster/chaos.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "cluster/load_kind.h"
#include "cluster/process.h"
#include "cluster/proxy.h"

#define MEMORY_NODES 2u
#define COMPUTES     LOAD_SERVERS /* number 0 is the one that things are done to */
#define EXCHANGES    100u         /* changes by memory nodes that show that they make any */

const struct chaos_variant chaos_variants[] = {
    {"kill-tcp", CHAOS_TCP, CHAOS_KILL},   {"kill-mapped", CHAOS_MAPPED, CHAOS_KILL},
    {"kill-both", CHAOS_BOTH, CHAOS_KILL}, {"kill-copy", CHAOS_COPY, CHAOS_KILL},
    {"stop-tcp", CHAOS_TCP, CHAOS_STOP},   {"stop-mapped", CHAOS_MAPPED, CHAOS_STOP},
    {"stop-both", CHAOS_BOTH, CHAOS_STOP}, {"cut", CHAOS_TCP, CHAOS_CUT},
    {"hold", CHAOS_TCP, CHAOS_HOLD},       {"slow", CHAOS_TCP, CHAOS_SLOW},
    {"shape", CHAOS_TCP, CHAOS_SHAPE},     {"restart", CHAOS_TCP, CHAOS_RESTART},
    {NULL, CHAOS_TCP, CHAOS_KILL},
};
const struct chaos_variant chaos_variants_rdma[] = {
    {"kill-rdma", CHAOS_RDMA, CHAOS_KILL}, {"stop-rdma", CHAOS_RDMA, CHAOS_STOP},
    {"cut-rdma", CHAOS_RDMA, CHAOS_CUT},   {"hold-rdma", CHAOS_RDMA, CHAOS_HOLD},
    {NULL, CHAOS_RDMA, CHAOS_KILL},
};

bool chaos_variant_logs(const struct chaos_variant *variant)
{
    return variant->reach != CHAOS_MAPPED && variant->reach != CHAOS_BOTH;
}

static const struct chaos_variant *find_in(const struct chaos_variant *variants, const char *name,
                                           size_t length)
{
    for (const struct chaos_variant *variant = variants; variant->name; variant++)
        if (strlen(variant->name) == length && !strncmp(variant->name, name, length))
            return variant;
    return NULL;
}

static const char *const writing_names[] = {
    [CHAOS_IN_PLACE] = "",
    [CHAOS_LOGGED] = "+log",
    [CHAOS_EXCHANGED] = "+exchange",
};

const struct chaos_variant *chaos_variant_find(const char *name, enum chaos_writing *writing)
{
    const char *more = strchr(name, '+');
    const size_t length = more ? (size_t)(more - name) : strlen(name);
    const struct chaos_variant *variant = find_in(chaos_variants, name, length);
    if (!variant)
        variant = find_in(chaos_variants_rdma, name, length);
    *writing = CHAOS_IN_PLACE;
    for (enum chaos_writing other = CHAOS_LOGGED; more && other <= CHAOS_EXCHANGED; other++)
        if (!strcmp(more, writing_names[other]))
            *writing = other;
    if (!variant || (more && *writing == CHAOS_IN_PLACE) ||
        (*writing == CHAOS_LOGGED && !chaos_variant_logs(variant)))
        fail_hard("no variant is called %s", name);
    return variant;
}

uint32_t chaos_lease_ms(const struct chaos_variant *variant)
{
    bool lasts = variant->deed == CHAOS_STOP || variant->deed == CHAOS_HOLD;
    bool mapped = variant->reach == CHAOS_MAPPED || variant->reach == CHAOS_BOTH;
    return !lasts ? CHAOS_LEASE_LONG_MS : mapped ? CHAOS_LEASE_MAPPED_MS : CHAOS_LEASE_SHORT_MS;
}

bool chaos_strict(void)
{
    const char *text = getenv("BANYAN_STRICT");
    return text && !strcmp(text, "1");
}

uint32_t chaos_survivor_lease_ms(const struct chaos_variant *variant, uint32_t lease_ms)
{
    const bool same = chaos_strict() || variant->reach == CHAOS_RDMA || lease_ms > CHAOS_LEASE_LONG_MS;
    return same ? lease_ms : CHAOS_LEASE_LONG_MS;
}

struct chaos {
    const struct chaos_options *options;
    struct chaos_result *result;
    struct scene scene;
    struct random random;
    struct process *memories[MEMORY_NODES], *computes[COMPUTES];
    struct proxy *proxies[COMPUTES][MEMORY_NODES];
    char secret_file[SCENE_PATH_MAX]; /* "": none */
    void *load;                       /* of the kind */
    unsigned round;
};

/* ---- the cluster ---- */

static bool proxied(const struct chaos *chaos)
{
    return chaos->options->variant->deed >= CHAOS_CUT;
}

static const char *const memory_names[] = {"memory-0", "memory-1"};

/* A NIC's address is open to the network, so there is a secret; all of a pool is locked in memory. */
static void start_memories_rdma(struct chaos *chaos)
{
    const char *address = getenv("BANYAN_RDMA_ADDRESS");
    if (!address)
        fail_hard("BANYAN_RDMA_ADDRESS must say the address of a NIC with RDMA");
    snprintf(chaos->secret_file, sizeof chaos->secret_file, "%s",
             scene_write(&chaos->scene, "secret", "the secret of this chaos\n"));
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        chaos->memories[i] = process_start(&chaos->scene, memory_names[i],
                                           ARGUMENTS("memory", "--listen", text_of("rdma://%s:0", address),
                                                     "--size", "128M", "--chunk-size", "1M", "--secret-file",
                                                     chaos->secret_file, "--http", "127.0.0.1:0"));
}

static const char *pool_file(struct chaos *chaos, unsigned node)
{
    return scene_path(&chaos->scene, "m%u.pool", node);
}

static void start_memories_kept(struct chaos *chaos)
{
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        chaos->memories[i] =
            process_start(&chaos->scene, memory_names[i],
                          ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "256M", "--pool-file",
                                    pool_file(chaos, i), "--http", "127.0.0.1:0"));
}

static void start_memories(struct chaos *chaos)
{
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        chaos->memories[i] =
            process_start(&chaos->scene, memory_names[i],
                          ARGUMENTS("memory", "--listen",
                                    text_of("127.0.0.1:0,unix:%s", scene_path(&chaos->scene, "m%u.sock", i)),
                                    "--size", "512M", "--http", "127.0.0.1:0"));
}

/* How compute node `number` reaches memory node `node`. */
static void format_reach(struct chaos *chaos, unsigned number, unsigned node, char text[NET_TEXT_MAX])
{
    enum chaos_reach reach = chaos->options->variant->reach;
    bool tcp = reach == CHAOS_TCP || reach == CHAOS_RDMA || (reach == CHAOS_BOTH && (number + node) % 2);
    struct net_address address = process_address(chaos->memories[node], tcp ? 0 : 1);
    if (proxied(chaos))
        address = proxy_address(chaos->proxies[number][node]);
    address.rdma = reach == CHAOS_RDMA;
    net_address_format(&address, text);
}

static void list_memories(struct chaos *chaos, unsigned number, char *text, size_t size)
{
    text[0] = 0;
    for (unsigned i = 0; i < MEMORY_NODES; i++) {
        char one[NET_TEXT_MAX];
        format_reach(chaos, number, i, one);
        snprintf(text + strlen(text), size - strlen(text), "%s%s", i ? "," : "", one);
    }
}

static const struct load_kind *kind_of(const struct chaos *chaos)
{
    return chaos->options->kind ? chaos->options->kind : &load_servers;
}

static void start_compute(struct chaos *chaos, unsigned number, bool first)
{
    static const char *const names[] = {"compute-a", "compute-b"};
    char memories[512];
    const char *arguments[LOAD_ARGUMENTS_MAX];
    list_memories(chaos, number, memories, sizeof memories);
    const char *program = kind_of(chaos)->compute(chaos->load, number, memories, first, arguments);
    if (chaos->computes[number])
        process_restart(&chaos->scene, chaos->computes[number], arguments);
    else
        chaos->computes[number] = process_start_other(&chaos->scene, names[number], program, arguments);
}

static void create_load(struct chaos *chaos)
{
    const struct load_setup setup = {
        .scene = &chaos->scene,
        .seed = chaos->options->seed,
        .lease_ms = {chaos->options->lease_ms, chaos->options->survivor_lease_ms},
        .copy = chaos->options->variant->reach == CHAOS_COPY,
        .logged = chaos->options->writing == CHAOS_LOGGED,
        .exchanged = chaos->options->writing == CHAOS_EXCHANGED,
        .secret_file = chaos->secret_file[0] ? chaos->secret_file : NULL,
        .lies = chaos->options->lies};
    char memories[512];
    list_memories(chaos, 0, memories, sizeof memories);
    chaos->load = kind_of(chaos)->create(&setup, memories);
}

static void start_cluster(struct chaos *chaos)
{
    if (chaos->options->variant->reach == CHAOS_RDMA)
        start_memories_rdma(chaos);
    else if (chaos->options->variant->deed == CHAOS_RESTART)
        start_memories_kept(chaos);
    else
        start_memories(chaos);
    for (unsigned i = 0; i < COMPUTES && proxied(chaos); i++)
        for (unsigned j = 0; j < MEMORY_NODES; j++) {
            struct net_address address = process_address(chaos->memories[j], 0);
            chaos->proxies[i][j] = proxy_start(&address);
        }
    create_load(chaos);
    for (unsigned i = 0; i < COMPUTES; i++)
        start_compute(chaos, i, true);
}

/* ---- what is watched ---- */

static const char *writing_name(const struct chaos *chaos)
{
    return writing_names[chaos->options->writing];
}

/* A number of a memory node's metrics. */
static uint64_t memory_counter(struct chaos *chaos, unsigned node, const char *name)
{
    char *text = http_get(process_http(chaos->memories[node]), "/metrics", NULL);
    const char *at = strstr(text, text_of("\n%s ", name));
    if (!at)
        fail_hard("metrics of memory node %u have no %s:\n%s", node, name, text);
    uint64_t value = strtoull(at + strlen(name) + 2, NULL, 10);
    free(text);
    return value;
}

struct fencing {
    struct chaos *chaos;
    uint64_t before[MEMORY_NODES];
    bool node[MEMORY_NODES]; /* awaited of this one */
};

static bool all_there(void *context)
{
    const struct fencing *fencing = context;
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        if (fencing->node[i] && memory_counter(fencing->chaos, i, "banyan_memory_compute_nodes") < COMPUTES)
            return false;
    return true;
}

/* Who has not come back from the last deed yet cannot be fenced: it is waited for. */
static struct fencing fencing_from_now(struct chaos *chaos, int node)
{
    struct fencing fencing = {.chaos = chaos};
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        fencing.node[i] = node < 0 || (unsigned)node == i;
    wait_until(all_there, &fencing, "compute nodes to be connected");
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        fencing.before[i] = memory_counter(chaos, i, "banyan_memory_fenced_total");
    return fencing;
}

static bool fenced(void *context)
{
    struct fencing *fencing = context;
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        if (fencing->node[i] &&
            memory_counter(fencing->chaos, i, "banyan_memory_fenced_total") == fencing->before[i])
            return false;
    return true;
}

/* Each of the processes that run keeps a log at some memory node. */
static bool logs_kept(void *context)
{
    struct chaos *chaos = context;
    uint64_t most = 0;
    for (unsigned i = 0; i < MEMORY_NODES; i++) {
        const uint64_t here = memory_counter(chaos, i, "banyan_memory_log_processes");
        most = here > most ? here : most;
    }
    return most >= COMPUTES;
}

static uint64_t exchanges_answered(struct chaos *chaos)
{
    uint64_t answered = 0;
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        answered += memory_counter(chaos, i, "banyan_memory_walk_answered_total");
    return answered;
}

struct exchanging {
    struct chaos *chaos;
    uint64_t before;
};

static bool exchanges_go_on(void *context)
{
    const struct exchanging *exchanging = context;
    return exchanges_answered(exchanging->chaos) >= exchanging->before + EXCHANGES;
}

/* Memory nodes make changes now; but none for a compute node that has mapped their pools. */
static void expect_exchanges(struct chaos *chaos)
{
    struct exchanging exchanging = {.chaos = chaos, .before = exchanges_answered(chaos)};
    if (chaos->options->variant->reach != CHAOS_MAPPED)
        wait_until(exchanges_go_on, &exchanging, "memory nodes to make changes");
    else if (exchanging.before)
        fail_hard("%" PRIu64 " changes were left to memory nodes whose pools are mapped", exchanging.before);
}

/* ---- deeds ---- */

static void kill_one(struct chaos *chaos)
{
    process_kill(chaos->computes[0]);
    start_compute(chaos, 0, false);
}

/* In the same place, with what its file has. Compute nodes come back by themselves. */
static void restart_memory(struct chaos *chaos)
{
    unsigned node = (unsigned)random_below(&chaos->random, MEMORY_NODES);
    struct net_address address = process_address(chaos->memories[node], 0);
    if (random_chance(&chaos->random, 0.8))
        process_kill(chaos->memories[node]);
    else if (process_stop(chaos->memories[node]))
        fail_hard("memory node %u ended with %d after SIGTERM", node, chaos->memories[node]->code);
    process_restart(&chaos->scene, chaos->memories[node],
                    ARGUMENTS("memory", "--listen", text_of("127.0.0.1:%u", (unsigned)address.port),
                              "--pool-file", pool_file(chaos, node), "--http", "127.0.0.1:0"));
    struct fencing back = {.chaos = chaos, .node = {true, true}};
    wait_until(all_there, &back, "compute nodes to be connected to a memory node that was started again");
}

static bool must_be_killed(const struct chaos *chaos)
{
    enum chaos_reach reach = chaos->options->variant->reach;
    return reach == CHAOS_MAPPED || reach == CHAOS_BOTH; /* a mapping cannot be revoked otherwise */
}

static void stop_one(struct chaos *chaos)
{
    struct fencing fencing = fencing_from_now(chaos, -1);
    process_signal(chaos->computes[0], SIGSTOP);
    wait_until(fenced, &fencing, "a stopped compute node to be fenced");
    process_signal(chaos->computes[0], SIGCONT);
    if (must_be_killed(chaos)) {
        process_wait(chaos->computes[0]);
        start_compute(chaos, 0, false);
    }
}

static void cut_some(struct chaos *chaos)
{
    unsigned compute = (unsigned)random_below(&chaos->random, COMPUTES);
    unsigned node = (unsigned)random_below(&chaos->random, MEMORY_NODES + 1);
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        if (node == i || node == MEMORY_NODES)
            proxy_cut(chaos->proxies[compute][i]);
}

static void hold_some(struct chaos *chaos)
{
    int node = (int)random_below(&chaos->random, MEMORY_NODES + 1);
    if (node == MEMORY_NODES)
        node = -1;
    struct fencing fencing = fencing_from_now(chaos, node);
    for (int i = 0; i < (int)MEMORY_NODES; i++)
        if (node < 0 || node == i)
            proxy_hold(chaos->proxies[0][i], true);
    wait_until(fenced, &fencing, "a compute node that is cut off to be fenced");
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        proxy_hold(chaos->proxies[0][i], false);
}

static void slow_some(struct chaos *chaos)
{
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        proxy_delay(chaos->proxies[0][i], (uint32_t)random_below(&chaos->random, 20));
    kind_of(chaos)->advance(chaos->load, 20);
    kill_one(chaos);
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        proxy_delay(chaos->proxies[0][i], 0);
}

/* Bytes of both compute nodes trickle in pieces that end anywhere, or in larger ones at a low rate; sometimes
 * one of them dies meanwhile. */
static void shape_some(struct chaos *chaos)
{
    for (unsigned i = 0; i < COMPUTES; i++)
        for (unsigned j = 0; j < MEMORY_NODES; j++) {
            bool tiny = random_chance(&chaos->random, 0.5);
            uint32_t piece = (uint32_t)(tiny ? 1 + random_below(&chaos->random, 12)
                                             : 1500 + random_below(&chaos->random, 6000));
            uint32_t rate = tiny ? 0 : 1000 + (uint32_t)random_below(&chaos->random, 9000);
            uint32_t jitter_us = tiny ? 0 : (uint32_t)random_below(&chaos->random, 500);
            proxy_shape(chaos->proxies[i][j], piece, rate, jitter_us);
        }
    kind_of(chaos)->advance(chaos->load, 40);
    if (random_chance(&chaos->random, 0.5))
        kill_one(chaos);
    for (unsigned i = 0; i < COMPUTES; i++)
        for (unsigned j = 0; j < MEMORY_NODES; j++)
            proxy_shape(chaos->proxies[i][j], 0, 0, 0);
}

static void do_deed(struct chaos *chaos)
{
    static void (*const deeds[])(struct chaos *) = {
        [CHAOS_KILL] = kill_one,    [CHAOS_STOP] = stop_one,  [CHAOS_RESTART] = restart_memory,
        [CHAOS_CUT] = cut_some,     [CHAOS_HOLD] = hold_some, [CHAOS_SLOW] = slow_some,
        [CHAOS_SHAPE] = shape_some,
    };
    deeds[chaos->options->variant->deed](chaos);
}

/* ---- judging ---- */

static void note_stall(struct chaos *chaos)
{
    struct load_figures figures;
    kind_of(chaos)->figures(chaos->load, 1, &figures);
    if (figures.longest_ns > chaos->result->longest_ns)
        chaos->result->longest_ns = figures.longest_ns;
    /* What it had forwarded to the other, as the owner of the key's range, may be of unknown outcome. */
    const bool both = chaos->options->variant->deed == CHAOS_CUT ||
                      chaos->options->variant->deed == CHAOS_RESTART; /* it may be done to the survivor too */
    if (!both && figures.refused + figures.disconnected)
        fail_hard("deed %u, seed %" PRIu64 ": nothing was done to the survivor, but %" PRIu64
                  " of its commands were refused, %" PRIu64 " connections lost; %s",
                  chaos->round, chaos->options->seed, figures.refused, figures.disconnected, figures.refusal);
    if (both || figures.longest_ns <= chaos->options->stall_max_ns)
        return;
    fail_hard("deed %u: the survivor needed %.1f ms for %s; at most %.1f ms are allowed", chaos->round,
              (double)figures.longest_ns / 1e6, figures.longest, (double)chaos->options->stall_max_ns / 1e6);
}

static void tell_round(struct chaos *chaos)
{
    struct load_figures a, b;
    kind_of(chaos)->figures(chaos->load, 0, &a);
    kind_of(chaos)->figures(chaos->load, 1, &b);
    printf("%s%s %u: operations %" PRIu64 "+%" PRIu64 ", unknown %" PRIu64 "+%" PRIu64 ", refused %" PRIu64
           "+%" PRIu64 ", disconnected %" PRIu64 ", survivor's longest %.1f ms (%s)\n",
           chaos->options->variant->name, writing_name(chaos), chaos->round, a.operations, b.operations,
           a.unknown, b.unknown, a.refused, b.refused, a.disconnected + b.disconnected,
           (double)b.longest_ns / 1e6, b.longest);
    fflush(stdout);
}

static json_t *check(struct chaos *chaos, bool reclaim, int code_wanted, int code_wanted_too)
{
    static struct process_result result;
    char memories[512] = "";
    for (unsigned i = 0; i < MEMORY_NODES; i++) {
        char one[NET_TEXT_MAX];
        struct net_address address = process_address(chaos->memories[i], 0);
        snprintf(memories + strlen(memories), sizeof memories - strlen(memories), "%s%s", i ? "," : "",
                 net_address_format(&address, one));
    }
    process_run(&chaos->scene, NULL,
                chaos->secret_file[0]
                    ? ARGUMENTS("check", "--json", "--memory", memories, "--secret-file", chaos->secret_file,
                                reclaim ? "--reclaim" : NULL)
                    : ARGUMENTS("check", "--json", "--memory", memories, reclaim ? "--reclaim" : NULL),
                &result);
    json_t *json = json_loads(result.output, 0, NULL);
    if (!json || (result.code != code_wanted && result.code != code_wanted_too) ||
        !json_is_true(json_object_get(json, "sound")))
        fail_hard("%s%s, deed %u, seed %" PRIu64 ": banyan check%s ended with %d:\n%s%s",
                  chaos->options->variant->name, writing_name(chaos), chaos->round, chaos->options->seed,
                  reclaim ? " --reclaim" : "", result.code, result.output, result.error);
    return json;
}

static uint64_t number_of(const json_t *json, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(json, name));
}

static void verify(struct chaos *chaos)
{
    kind_of(chaos)->pause(chaos->load);
    kind_of(chaos)->verify(chaos->load);
    json_decref(check(chaos, false, 0, 0));
}

/* No compute node is connected any more: every block is in use, free, or was lost by one that died. */
static void audit(struct chaos *chaos)
{
    struct chaos_result *result = chaos->result;
    json_t *json = check(chaos, false, 0, 1);
    result->blocks_lost = number_of(json, "blocks_lost");
    result->bytes_lost = number_of(json, "bytes_lost");
    result->entries = number_of(json, "entries");
    json_decref(json);
    json = check(chaos, true, 0, 0);
    result->blocks_reclaimed = number_of(json, "blocks_reclaimed");
    if (result->blocks_reclaimed != result->blocks_lost)
        fail_hard("%" PRIu64 " blocks were lost, %" PRIu64 " given back", result->blocks_lost,
                  result->blocks_reclaimed);
    json_decref(json);
    json = check(chaos, false, 0, 0);
    if (number_of(json, "blocks_lost"))
        fail_hard("after --reclaim %" PRIu64 " blocks are lost", number_of(json, "blocks_lost"));
    json_decref(json);
}

/* ---- a run ---- */

static void note_figures(struct chaos *chaos)
{
    for (unsigned i = 0; i < LOAD_SERVERS; i++) {
        struct load_figures figures;
        kind_of(chaos)->figures(chaos->load, i, &figures);
        chaos->result->operations += figures.operations;
        chaos->result->unknown += figures.unknown;
        chaos->result->refused += figures.refused;
        chaos->result->disconnected += figures.disconnected;
    }
}

static void run_deeds(struct chaos *chaos)
{
    const struct chaos_options *options = chaos->options;
    for (; chaos->round < options->deeds && (!options->until_ns || now_ns() < options->until_ns);
         chaos->round++) {
        kind_of(chaos)->advance(chaos->load, 20 + random_below(&chaos->random, 300));
        kind_of(chaos)->forget_longest(chaos->load);
        do_deed(chaos);
        kind_of(chaos)->advance(chaos->load, 20);
        note_stall(chaos);
        kind_of(chaos)->next_epoch(chaos->load);
        if (options->variant->deed == CHAOS_KILL || options->variant->deed == CHAOS_SLOW)
            kind_of(chaos)->settle(chaos->load);
        if (options->tell)
            tell_round(chaos);
        if (options->verify_every && chaos->round % options->verify_every == options->verify_every - 1) {
            verify(chaos);
            kind_of(chaos)->resume(chaos->load);
        }
    }
    chaos->result->deeds = chaos->round;
}

static void end_cluster(struct chaos *chaos)
{
    for (unsigned i = 0; i < COMPUTES; i++)
        if (process_stop(chaos->computes[i]))
            fail_hard("compute node %u ended with %d after SIGTERM", i, chaos->computes[i]->code);
    audit(chaos);
    for (unsigned i = 0; i < MEMORY_NODES; i++)
        if (process_stop(chaos->memories[i]))
            fail_hard("memory node %u ended with %d after SIGTERM", i, chaos->memories[i]->code);
    for (unsigned i = 0; i < COMPUTES; i++)
        for (unsigned j = 0; j < MEMORY_NODES; j++)
            proxy_stop(chaos->proxies[i][j]);
}

void chaos_run(const struct chaos_options *options, struct chaos_result *result)
{
    struct chaos *chaos = calloc(1, sizeof *chaos);
    *result = (struct chaos_result){0};
    chaos->options = options;
    chaos->result = result;
    random_seed(&chaos->random, options->seed);
    scene_open(&chaos->scene);
    start_cluster(chaos);
    kind_of(chaos)->start(chaos->load, chaos->computes);
    if (options->writing == CHAOS_LOGGED)
        wait_until(logs_kept, chaos, "both compute nodes to keep a log");
    if (options->writing == CHAOS_EXCHANGED)
        expect_exchanges(chaos);
    kind_of(chaos)->underway(chaos->load);
    run_deeds(chaos);
    if (options->writing == CHAOS_EXCHANGED) /* still, or again */
        expect_exchanges(chaos);
    kind_of(chaos)->calm(chaos->load, options->stall_max_ns);
    kind_of(chaos)->advance(chaos->load, 100);
    verify(chaos);
    note_figures(chaos);
    kind_of(chaos)->stop(chaos->load);
    end_cluster(chaos);
    chaos->scene.passed = true;
    scene_close(&chaos->scene);
    free(chaos);
}

void chaos_print(const struct chaos_options *options, const struct chaos_result *result)
{
    printf("%s%s, seed %" PRIu64 ": %" PRIu64 " deeds, %" PRIu64 " operations, %" PRIu64
           " outcomes unknown, %" PRIu64 " refused, %" PRIu64
           " connections lost, survivor's longest stall %.1f ms, "
           "%" PRIu64 " entries, %" PRIu64 " blocks (%" PRIu64 " bytes) lost, %" PRIu64 " given back\n",
           options->variant->name, writing_names[options->writing], options->seed, result->deeds,
           result->operations, result->unknown, result->refused, result->disconnected,
           (double)result->longest_ns / 1e6, result->entries, result->blocks_lost, result->bytes_lost,
           result->blocks_reclaimed);
    fflush(stdout);
}
