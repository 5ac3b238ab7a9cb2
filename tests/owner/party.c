/* party.c - see party.h. */
#include "party.h"

#include <inttypes.h>
#include <string.h>

#include "base/task.h"
#include "owner/state.h"

static enum { ROLE_KEEPER, ROLE_TICKER, ROLE_SERVER, ROLE_WORKER } role(const struct world_task *task)
{
    unsigned fiber = task->fiber;
    return fiber == 0                  ? ROLE_KEEPER
           : fiber == 1                ? ROLE_TICKER
           : fiber < 2 + PARTY_SERVERS ? ROLE_SERVER
                                       : ROLE_WORKER;
}

struct fabric_process party_process(const struct party *party, unsigned compute)
{
    return fabric_self(party->world.computes[compute].fabric);
}

size_t party_key(const struct party *party, uint64_t number, uint8_t key[FORMAT_KEY_MAX])
{
    return world_key(&party->world, number, key);
}

bool party_good(struct world_task *task, int status, const char *what)
{
    if (status)
        world_fail(task->world, status, "%s, compute node %u: %d: %s", what, task->compute, status,
                   tree_session_error(task->session)->text);
    return !status;
}

/* ---- the world ---- */

void party_options(struct world_options *options, uint64_t seed, unsigned computes)
{
    world_options_default(options);
    options->simulated = true;
    options->seed = seed;
    options->memory_nodes = 2;
    options->compute_nodes = computes;
    options->fibers = PARTY_TASKS;
    options->geometry = (struct format_geometry){.key_kind = FORMAT_KEY_FIXED,
                                                 .key_bytes = 8,
                                                 .value_bytes = 80,
                                                 .leaf_bytes = 512,
                                                 .internal_bytes = 512};
    options->until_ns = UINT64_C(30) * 1000000000;
}

static bool always(void *context)
{
    return true;
}

static void attach(struct world_task *task)
{
    if (role(task) == ROLE_KEEPER)
        party_good(task, owner_attach(party_owner(task), task->session, task->tree), "attach");
}

static void fill(struct world_task *task)
{
    for (uint64_t key = 0; key < party_of(task)->keys && !task->world->error.code; key += 2)
        world_operate(task, HISTORY_PUT, key, 0);
}

static void open_owner(struct party *party, unsigned compute)
{
    struct error error = {0};
    struct owner_options options = party->options;
    options.log = party->book && party->logging >> compute & 1;
    assert_int_equal(
        owner_create(&party->owners[compute], party->world.computes[compute].compute, &options, &error), 0);
    if (party->book)
        owner_set_log(party->owners[compute], &book_log, &party->book->sides[compute]);
}

void party_open(struct party *party, const struct world_options *options, uint64_t keys)
{
    struct owner_options defaults;
    owner_options_default(&defaults);
    if (!party->options.timeout_ns)
        party->options = defaults;
    party->keys = keys;
    if (world_create(&party->world, options))
        fail_msg("%s", party->world.error.text);
    party->world.context = party;
    if (party->book)
        book_open(party->book, party);
    party->world.setting.lossy = always;
    world_begin_losses(&party->world);
    for (unsigned i = 0; i < options->compute_nodes; i++)
        open_owner(party, i);
    if (world_run_one(&party->world, PARTY_TASKS - 1, fill) || world_run(&party->world, attach))
        fail_msg("%s", party->world.error.text);
}

void party_close(struct party *party)
{
    for (unsigned i = 0; i < PARTY_MAX; i++)
        owner_destroy(party->owners[i]);
    world_destroy(&party->world);
}

/* ---- running ---- */

static void stop_all(struct party *party)
{
    for (unsigned i = 0; i < party->world.options.compute_nodes; i++)
        if (!party->world.computes[i].dead)
            owner_stop(party->owners[i]);
}

void party_operate(struct world_task *task)
{
    struct party *party = party_of(task);
    static const enum history_kind kinds[] = {HISTORY_GET, HISTORY_GET,    HISTORY_GET,   HISTORY_PUT,
                                              HISTORY_PUT, HISTORY_DELETE, HISTORY_INSERT};
    enum history_kind kind = kinds[random_below(&task->random, sizeof kinds / sizeof kinds[0])];
    uint64_t began = task_now();
    world_operate(task, kind, random_below(&task->random, party->keys), 0);
    uint64_t took = task_now() - began;
    if (took > party->longest_ns)
        party->longest_ns = took;
    if (party->book)
        book_look(party->book);
}

static bool over(const struct party *party)
{
    return party->world.error.code || (party->until_over && party->over);
}

static void work(struct world_task *task)
{
    struct party *party = party_of(task);
    bool scripted = party->script[task->compute] && task->fiber == 2 + PARTY_SERVERS;
    if (scripted) {
        party->script[task->compute](task, party);
        party->over = party->over || task->compute == 0;
    } else {
        for (unsigned i = 0; (party->until_over || i < party->rounds) && !over(party); i++)
            party_operate(task);
    }
}

/* Those of a compute node that dies never return. */
static unsigned working(const struct party *party)
{
    unsigned count = 0;
    for (unsigned i = 0; i < party->world.task_count; i++) {
        const struct world_task *task = &party->world.tasks[i];
        count += role(task) == ROLE_WORKER && !task->returned &&
                 sim_compute_alive(party->world.sim, (int)task->compute);
    }
    return count;
}

static void run(struct world_task *task)
{
    struct party *party = party_of(task);
    struct owner *owner = party_owner(task);
    switch (role(task)) {
    case ROLE_KEEPER:
        party_good(task, owner_keep(owner, task->session), "keeper");
        break;
    case ROLE_SERVER:
        party_good(task, owner_serve(owner, task->session), "serving");
        break;
    case ROLE_WORKER:
        work(task);
        break;
    default: /* the ticker also sees the end of the workers: of all compute nodes */
        while (working(party)) {
            owner_wake(owner);
            task_sleep(party->options.tick_ns);
        }
        stop_all(party);
    }
}

void party_run(struct party *party)
{
    if (world_run(&party->world, run))
        fail_msg("seed %" PRIu64 ": %s", party->world.options.seed, party->world.error.text);
}

/* ---- judging ---- */

static void count_range(void *context, const struct owner_range *range)
{
    void **pair = context;
    struct party_ranges *ranges = pair[0];
    const struct party *party = pair[1];
    unsigned i = 0;
    ranges->count++;
    ranges->moving += range->state == FORMAT_RANGE_MOVING;
    ranges->split += range->state == FORMAT_RANGE_SPLIT;
    ranges->heirs += range->heir_count > 0;
    while (i < party->world.options.compute_nodes &&
           !fabric_process_equal(range->owner, party_process(party, i)))
        i++;
    if (!range->owner.compute_id)
        ranges->shared++;
    else if (i < party->world.options.compute_nodes)
        ranges->of[i]++;
    else
        ranges->strangers++;
}

void party_look(struct world_task *task, struct party_ranges *ranges)
{
    *ranges = (struct party_ranges){0};
    void *pair[2] = {ranges, party_of(task)};
    party_good(task, owner_list(party_owner(task), task->session, count_range, pair), "list");
}

static void no_problem(void *context, const char *text)
{
    world_fail(context, BANYAN_ECORRUPT, "%s", text);
}

static void judge(struct world_task *task)
{
    struct tree_check_report report;
    struct party_ranges ranges = {0};
    uint32_t count;
    party_look(task, &ranges);
    party_good(task, owner_check(party_owner(task), task->session, no_problem, task->world, &count), "map");
    party_good(task, tree_check(task->session, task->tree, &report, NULL, NULL), "check");
}

void party_judge(struct party *party)
{
    unsigned survivor = world_survivor(&party->world);
    if (world_run_one(&party->world, survivor + PARTY_TASKS - 1, judge) || world_linearize(&party->world))
        fail_msg("seed %" PRIu64 ": %s", party->world.options.seed, party->world.error.text);
}
