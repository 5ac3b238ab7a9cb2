/*
 * test_cut_deaths.c - cuts of what one compute node owns while another one, which owned the rest, is dead and
 * not taken over yet: changes that were sent to it hold up no cut (B2), and when this one has taken its range
 * over, cuts of that are as of one moment too, though changes of it were waiting when they were opened (B3).
 * In the simulator's time. Judged by moment.h: of each writer the keys of either half are a client.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "moment.h"
#include "owner/owner.h"
#include "sim/sim.h"
#include "store/cut.h"
#include "store/cut_table.h"
#include "stores.h"
#include "swarm/world_ranges.h"

enum { OURS, VICTIM, COMPUTES };
enum { LOWER, UPPER, HALVES };

#define READER  0u /* the first task; the others of its compute node write */
#define WRITERS 4u
#define MIDDLE  "m"
#define VIEWS   400u
#define BEFORE  2u                 /* cuts before the death */
#define BEHIND  3u                 /* of the half that was taken over */
#define DEAD_NS UINT64_C(40000000) /* for which the dead one keeps its range */
#define MOST_NS UINT64_C(5000000)  /* for an opening: as long as writers are held at once, at first */

struct plan {
    uint64_t clock; /* of stamps */
    bool over;
    unsigned before, meanwhile, behind; /* cuts */
    uint64_t longest;                   /* opening in `meanwhile` */
    struct moment_client clients[HALVES][WRITERS];
    struct moment_view views[VIEWS];
    unsigned halves[VIEWS], view_count;
};

static struct plan *plan_of(struct world_task *task)
{
    return stores_of(task)->context;
}

static void failed(struct world_task *task, int status, const char *what)
{
    world_fail(task->world, status ? status : BANYAN_ECORRUPT, "%s: %s", what,
               tree_session_error(task->session)->text);
}

static struct owner *owner_of(struct world_task *task)
{
    return task->world->computes[task->compute].keepers->owner;
}

/* ---- writers ---- */

static size_t key_make(unsigned half, unsigned writer, uint32_t key, char text[16])
{
    return (size_t)snprintf(text, 16, "%c%02u/%u", half == LOWER ? 'c' : 'r', key, writer);
}

static enum store_verdict renumber(void *context, const struct store_value *old, struct store_value *new)
{
    *new = (struct store_value){.bytes = context, .length = 24};
    return STORE_PUT;
}

/* A key of each half. */
static int put_both(struct world_task *task, unsigned writer, const uint32_t keys[HALVES],
                    const uint8_t value[24])
{
    struct store_item items[HALVES];
    char names[HALVES][16];
    for (unsigned half = 0; half < HALVES; half++)
        items[half] = (struct store_item){.key = names[half],
                                          .key_length = key_make(half, writer, keys[half], names[half]),
                                          .value = {.bytes = value, .length = 24}};
    return store_multi_put(stores_session(task), items, HALVES);
}

static int change_one(struct world_task *task, unsigned half, unsigned writer, uint32_t key, unsigned kind,
                      uint8_t value[24])
{
    struct store_session *session = stores_session(task);
    char name[16];
    const size_t length = key_make(half, writer, key, name);
    if (kind == 0) {
        const int status = store_delete(session, name, length);
        return status == BANYAN_ENOTFOUND ? 0 : status;
    }
    if (kind == 1)
        return store_modify(session, name, length, STORE_NEED_VALUE, renumber, value, NULL, NULL);
    return store_put(session, name, length, value, 24, 0);
}

static bool passes(int status)
{
    return status == BANYAN_ENET || status == BANYAN_ETIMEOUT || status == BANYAN_EUNKNOWN ||
           status == BANYAN_EFENCED;
}

/* Each change makes of its keys the same, however often it is made; so it is made until it is done. */
static int change_until_done(struct world_task *task, unsigned writer, uint64_t number)
{
    struct plan *plan = plan_of(task);
    const unsigned kind = (unsigned)random_below(&task->random, 5);
    const unsigned first = (unsigned)random_below(&task->random, HALVES), halves = kind == 4 ? HALVES : 1;
    uint32_t keys[HALVES];
    uint8_t value[24] = {0};
    int status;
    memcpy(value, &number, 8);
    for (unsigned i = 0; i < HALVES; i++)
        keys[i] = (uint32_t)random_below(&task->random, MOMENT_KEYS);
    for (unsigned i = 0; i < halves; i++) {
        struct moment_client *client = &plan->clients[halves > 1 ? i : first][writer];
        moment_begin(client, &plan->clock);
        moment_add(client, keys[halves > 1 ? i : first], kind ? number : 0);
    }
    do
        status = kind == 4 ? put_both(task, writer, keys, value)
                           : change_one(task, first, writer, keys[first], kind, value);
    while (passes(status) && !task->world->error.code);
    for (unsigned i = 0; i < halves; i++)
        moment_end(&plan->clients[halves > 1 ? i : first][writer], &plan->clock);
    return status;
}

static void write_on(struct world_task *task)
{
    struct plan *plan = plan_of(task);
    for (uint64_t number = 1; !plan->over && !task->world->error.code; number++) {
        const int status = change_until_done(task, task->number - 1, number);
        if (status)
            failed(task, status, "a change");
        task_yield();
    }
}

/* ---- the reader ---- */

struct reading {
    struct world_task *task;
    struct moment_view *view;
    unsigned half;
};

static bool visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct reading *reading = context;
    char text[16] = "";
    unsigned writer, number;
    uint64_t seen;
    if (key_length < sizeof text)
        memcpy(text, key, key_length);
    if (value->length != 24 || sscanf(text + 1, "%u/%u", &number, &writer) != 2 || writer >= WRITERS ||
        number >= MOMENT_KEYS || (text[0] == 'c') != (reading->half == LOWER)) {
        failed(reading->task, 0, "the cut has what nobody wrote");
        return false;
    }
    memcpy(&seen, value->bytes, 8);
    reading->view->values[writer][number] = seen;
    return true;
}

static int cut_read(struct world_task *task, struct store_cut *cut, struct reading *reading)
{
    bool ended = false;
    int status = 0;
    while (!status && !ended) {
        status = store_cut_next(stores_session(task), cut, 1 + random_below(&task->random, 20), 1 << 20,
                                visit, reading, &ended);
        if (random_chance(&task->random, 0.5))
            task_sleep(random_below(&task->random, 30000));
    }
    return status;
}

static const struct tree_range ranges[HALVES] = {{.to = MIDDLE, .to_length = 1, .to_open = true},
                                                 {.from = MIDDLE, .from_length = 1}};

/* BANYAN_EFENCED: this compute node does not own the half. */
static int cut_one(struct world_task *task, unsigned half, uint64_t *took)
{
    struct plan *plan = plan_of(task);
    struct moment_view *view = &plan->views[plan->view_count];
    struct store_cut *cut;
    assert_true(plan->view_count < VIEWS);
    view->opened_from = moment_stamp(&plan->clock);
    const uint64_t begun = task_now();
    int status = store_cut_open_owned(stores_session(task), &ranges[half], &cut);
    *took = task_now() - begun;
    view->opened_to = moment_stamp(&plan->clock);
    if (status)
        return status;
    struct reading reading = {.task = task, .view = view, .half = half};
    view->values = calloc(WRITERS, sizeof *view->values);
    if (!view->values)
        abort();
    status = cut_read(task, cut, &reading);
    store_cut_close(cut);
    if (status) {
        free(view->values);
        view->values = NULL;
        return status;
    }
    plan->halves[plan->view_count++] = half;
    return 0;
}

struct whose {
    bool ours, others, nobodys; /* some of the upper half */
};

static void whose_part(void *context, const struct store_portion *part)
{
    struct whose *whose = context;
    if (part->to && store_key_order(part->to, part->to_length, MIDDLE, 1) <= 0)
        return;
    whose->ours |= part->share == STORE_SHARE_OURS;
    whose->others |= part->share == STORE_SHARE_OTHERS;
    whose->nobodys |= part->share == STORE_SHARE_NOBODYS;
}

static void take_upper(struct world_task *task)
{
    struct owner_selection selection = {.tree = task->tree, .key = "z", .key_length = 1, .keyed = true};
    const int status = owner_take(owner_of(task), task->session, &selection, NULL);
    if (status && !passes(status))
        failed(task, status, "taking a range");
}

/* Whose the upper half is. Where no process was willing to take it over it is nobody's: it is taken then. */
static struct whose upper_look(struct world_task *task)
{
    struct whose whose = {0};
    store_portions(stores_session(task), whose_part, &whose);
    if (whose.nobodys)
        take_upper(task);
    return whose;
}

/* Cuts of the lower half, one after the other, until the upper one is this compute node's. */
static void read_meanwhile(struct world_task *task)
{
    struct plan *plan = plan_of(task);
    for (bool gained = false; !gained && !task->world->error.code;) {
        const bool dead = !sim_compute_alive(task->world->sim, VICTIM);
        const struct whose before = upper_look(task);
        uint64_t took;
        const int status = cut_one(task, LOWER, &took);
        if (status)
            failed(task, status, dead ? "a cut beside a dead owner" : "a cut before the death");
        const struct whose behind = upper_look(task);
        if (dead && before.others && behind.others) {
            plan->meanwhile++;
            plan->longest = took > plan->longest ? took : plan->longest;
        }
        plan->before += !dead;
        gained = behind.ours;
        task_sleep(200000 + random_below(&task->random, 300000));
    }
}

static void read_on(struct world_task *task)
{
    struct plan *plan = plan_of(task);
    uint64_t took;
    read_meanwhile(task);
    while (plan->behind < BEHIND && !task->world->error.code) {
        const int status = cut_one(task, UPPER, &took);
        if (status && status != BANYAN_EFENCED)
            failed(task, status, "a cut of what was taken over");
        plan->behind += !status;
        if (status) {
            (void)upper_look(task);
            task_sleep(20000 + random_below(&task->random, 20000));
        }
    }
    plan->over = true;
}

static void work(struct world_task *task)
{
    if (task->compute == VICTIM)
        return; /* it serves */
    if (task->number == READER)
        read_on(task);
    else
        write_on(task);
}

/* ---- whole runs ---- */

static void divide(struct world_task *task)
{
    struct owner_selection all = {.tree = task->tree};
    int status = owner_take(owner_of(task), task->session, &all, NULL);
    if (!status)
        status = owner_split(owner_of(task), task->session, task->tree, MIDDLE, 1);
    if (status)
        failed(task, status, "dividing the index");
}

static void options_of(struct world_options *options, uint64_t seed, bool log)
{
    stores_options_default(options);
    options->simulated = true;
    options->seed = seed;
    options->compute_nodes = COMPUTES;
    options->memory_nodes = 2;
    options->fibers = 1 + WRITERS;
    options->ranges = true;
    options->log = log;
    options->pool_bytes = UINT64_C(32) << 20;
    options->log_bytes = options->pool_bytes / 4;
    options->params.read_lease_ns = 50000;
    options->params.peer_timeout_ns = 2000000;
    options->events_max = 30000000;
}

static void judge(struct stores *stores, struct plan *plan)
{
    for (unsigned i = 0; i < plan->view_count; i++) {
        unsigned wrong;
        if (!moment_judge(plan->clients[plan->halves[i]], WRITERS, &plan->views[i], &wrong))
            world_fail(&stores->world, BANYAN_ECORRUPT, "cut %u, of the %s half, is of no moment: client %u",
                       i, plan->halves[i] == LOWER ? "lower" : "upper", wrong);
    }
}

static void plan_free(struct plan *plan)
{
    for (unsigned i = 0; i < VIEWS; i++)
        free(plan->views[i].values);
    for (unsigned half = 0; half < HALVES; half++)
        for (unsigned writer = 0; writer < WRITERS; writer++)
            moment_client_free(&plan->clients[half][writer]);
    free(plan);
}

static unsigned run(uint64_t seed, bool log)
{
    struct stores stores;
    struct world_options options;
    struct plan *plan = calloc(1, sizeof *plan);
    assert_non_null(plan);
    options_of(&options, seed, log);
    int status = stores_create(&stores, &options);
    struct world *world = &stores.world;
    stores.context = plan;
    if (!status)
        status = world_run_one(world, READER, divide);
    if (!status)
        status = world_run_one(world, world->task_count / COMPUTES * VICTIM, take_upper);
    if (!status)
        status = world_kill_at(world, VICTIM, 2000000 + seed % 7 * 300000, DEAD_NS);
    if (!status)
        status = world_run(world, work);
    if (!status)
        judge(&stores, plan);
    if (world->error.code)
        fail_msg("seed %" PRIu64 ", %s: %s", seed, log ? "logged" : "written through", world->error.text);
    print_message("seed %" PRIu64
                  ": %u cuts before the death, %u until its range was taken over (%.3f ms), %u of that\n",
                  seed, plan->before, plan->meanwhile, (double)plan->longest / 1e6, plan->behind);
    assert_true(world->computes[VICTIM].dead);
    assert_true(plan->longest < MOST_NS);
    const unsigned meanwhile = plan->meanwhile;
    stores_destroy(&stores);
    plan_free(plan);
    return meanwhile;
}

/* The dead one may hold the lock of an inner node, which the reader wants: then there is one cut in the time.
 */
static void an_owner_dies_beside_cuts(void **state)
{
    const uint64_t base = world_seed(1);
    const unsigned runs = world_rounds(8);
    unsigned meanwhile = 0;
    for (unsigned i = 0; i < runs; i++)
        meanwhile += run(base + i, (base + i) % 2 == 0);
    assert_true(meanwhile >= 10 * runs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(an_owner_dies_beside_cuts)};
    return cmocka_run_group_tests_name("store_cut_deaths", tests, NULL, NULL);
}
