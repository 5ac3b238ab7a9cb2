/*
 * test_owner_sim.c - compute nodes of a simulated cluster divide an index: ranges are split, moved, shared,
 * merged and taken over while all of them work on it; owners die, stand still and are cut off; and who
 * changes the map dies before each of its effects. Every history is judged.
 */
#include "party.h"

#include <stdio.h>
#include <string.h>

#include "base/task.h"
#include "owner/board.h"

#define KEYS        240u
#define MILLISECOND UINT64_C(1000000)

static void split_at(struct world_task *task, struct party *party, uint64_t number)
{
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = party_key(party, number, key);
    party_good(task, owner_split(party_owner(task), task->session, task->tree, key, length), "split");
}

static void merge_at(struct world_task *task, struct party *party, uint64_t number)
{
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = party_key(party, number, key);
    party_good(task, owner_merge(party_owner(task), task->session, task->tree, key, length), "merge");
}

static int move_to(struct world_task *task, struct party *party, uint64_t number, struct fabric_process to)
{
    uint8_t key[FORMAT_KEY_MAX];
    struct owner_selection selection = {.tree = task->tree, .key = key, .keyed = true};
    selection.key_length = party_key(party, number, key);
    return owner_move(party_owner(task), task->session, &selection, to, NULL);
}

static void move_at(struct world_task *task, struct party *party, uint64_t number, struct fabric_process to)
{
    party_good(task, move_to(task, party, number, to), "move");
}

static const struct fabric_process nobody;

/* ---- everything that can be done with ranges ---- */

static void expect(struct world_task *task, uint32_t count, uint32_t shared, uint32_t first, uint32_t second,
                   uint32_t third)
{
    struct party_ranges ranges = {0};
    party_look(task, &ranges);
    if (ranges.count != count || ranges.shared != shared || ranges.of[0] != first || ranges.of[1] != second ||
        ranges.of[2] != third || ranges.moving || ranges.split || ranges.strangers)
        world_fail(task->world, BANYAN_ECORRUPT,
                   "%u ranges, shared %u, owned %u %u %u, moving %u, split %u; not %u, %u, %u %u %u",
                   ranges.count, ranges.shared, ranges.of[0], ranges.of[1], ranges.of[2], ranges.moving,
                   ranges.split, count, shared, first, second, third);
}

static void everything(struct world_task *task, struct party *party)
{
    const struct fabric_process a = party_process(party, 0), b = party_process(party, 1),
                                c = party_process(party, 2);
    split_at(task, party, 80); /* of an index that was never divided */
    split_at(task, party, 160);
    expect(task, 3, 3, 0, 0, 0);
    split_at(task, party, 80);
    expect(task, 3, 3, 0, 0, 0);
    move_at(task, party, 0, a);
    move_at(task, party, 100, b);
    move_at(task, party, 200, c);
    expect(task, 3, 0, 1, 1, 1);
    split_at(task, party, 40);  /* of this process's */
    split_at(task, party, 120); /* of another's */
    expect(task, 5, 0, 2, 2, 1);
    move_at(task, party, 130, c);
    move_at(task, party, 50, nobody);
    expect(task, 5, 1, 1, 1, 2);
    merge_at(task, party, 160);
    expect(task, 4, 1, 1, 1, 1);
    move_at(task, party, 50, c);
    move_at(task, party, 130, a);
    expect(task, 4, 0, 2, 1, 1);
    /* those that are there already stay */
    move_at(task, party, 130, a);
    expect(task, 4, 0, 2, 1, 1);
    struct owner_selection all = {.tree = task->tree};
    uint32_t moved;
    party_good(task, owner_take(party_owner(task), task->session, &all, &moved), "take");
    expect(task, 4, 0, 4, 0, 0);
    if (moved != 2)
        world_fail(task->world, BANYAN_ECORRUPT, "%u ranges were taken", moved);
    all.per_mille = 500;
    party_good(task, owner_move(party_owner(task), task->session, &all, b, &moved), "move half");
    expect(task, 4, 0, 2, 2, 0);
    all.per_mille = 0;
    party_good(task, owner_share(party_owner(task), task->session, &all, NULL), "share");
    expect(task, 4, 4, 0, 0, 0);
}

static void ranges_change_under_load(void **state)
{
    for (unsigned round = 0; round < world_rounds(3); round++) {
        struct party party = {.rounds = 1, .until_over = true, .script = {everything}};
        struct world_options options;
        party_options(&options, world_seed(1 + round), 3);
        party_open(&party, &options, KEYS);
        party_run(&party);
        party_judge(&party);
        struct owner_stats stats[3];
        for (unsigned i = 0; i < 3; i++)
            owner_stats(party.owners[i], &stats[i]);
        assert_true(stats[0].transfers > 10 && stats[0].moved > 10);
        assert_true(stats[1].forwarded_exchanges > 0 && stats[1].served_exchanges > 0);
        assert_int_equal(stats[0].fencings + stats[1].fencings + stats[2].fencings, 0);
        party_close(&party);
    }
}

/* ---- notices that do not come ---- */

/* Few keys, so that two who write at once are sure to meet. */
static void pass_around(struct world_task *task, struct party *party)
{
    for (unsigned turn = 0; turn < 40; turn++) {
        move_at(task, party, 0, turn % 4 == 3 ? nobody : party_process(party, turn % 4));
        task_sleep(MILLISECOND / 5);
    }
}

/* Whoever loses a range may learn of it late: it is waited for. */
static void owners_that_hear_late_are_waited_for(void **state)
{
    for (unsigned round = 0; round < world_rounds(2); round++) {
        struct party party = {.until_over = true, .script = {pass_around}};
        struct world_options options;
        owner_options_default(&party.options);
        party.options.tick_ns = 3 * MILLISECOND;
        party_options(&options, world_seed(61 + round), 3);
        options.faults.message_lose = 0.4;
        party_open(&party, &options, 5);
        party_run(&party);
        party_judge(&party);
        party_close(&party);
    }
}

/* ---- how long it takes ---- */

static void move_half(struct world_task *task, struct party *party)
{
    struct owner_selection all = {.tree = task->tree};
    for (uint64_t key = 15; key < KEYS; key += 15)
        split_at(task, party, key);
    party_good(task, owner_take(party_owner(task), task->session, &all, NULL), "take");
    for (unsigned turn = 0; turn < 20; turn++) {
        uint32_t moved = 0;
        uint64_t began = task_now();
        all.owned = true;
        all.owner = party_process(party, turn % 3);
        all.per_mille = 500;
        party_good(
            task,
            owner_move(party_owner(task), task->session, &all, party_process(party, (turn + 1) % 3), &moved),
            "move half");
        if (task_now() - began > 200 * MILLISECOND || (turn < 2 && !moved))
            world_fail(task->world, BANYAN_ETIMEOUT, "%u ranges moved in %lu ns", moved,
                       (unsigned long)(task_now() - began));
        task_sleep(MILLISECOND);
    }
}

/* Half of what a compute node has moves within 200 ms, and no operation waits for 50. */
static void half_of_a_node_moves_quickly(void **state)
{
    struct party party = {.until_over = true, .script = {move_half}};
    struct world_options options;
    party_options(&options, world_seed(51), 3);
    party_open(&party, &options, KEYS);
    party_run(&party);
    party_judge(&party);
    assert_in_range(party.longest_ns, 1, 50 * MILLISECOND);
    for (unsigned i = 0; i < 3; i++) {
        struct owner_stats stats;
        owner_stats(party.owners[i], &stats);
        assert_true(stats.transfer_longest_ns < 200 * MILLISECOND);
        assert_true(stats.wait_longest_ns < 50 * MILLISECOND);
        assert_true(stats.adoptions > 20);
        assert_int_equal(stats.unreachable, 0);
    }
    party_close(&party);
}

/* ---- what makes no sense ---- */

static void refused(struct world_task *task, int status, int wanted, const char *text)
{
    if (status != wanted || !strstr(tree_session_error(task->session)->text, text))
        world_fail(task->world, BANYAN_ECORRUPT, "%d, '%s' instead of %d, '%s'", status,
                   tree_session_error(task->session)->text, wanted, text);
}

static void nonsense(struct world_task *task, struct party *party)
{
    struct owner *owner = party_owner(task);
    struct tree_session *session = task->session;
    const struct fabric_process stranger = {.instance = 999, .compute_id = 77};
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = party_key(party, 100, key);
    refused(task, owner_split(owner, session, task->tree, key, 0), BANYAN_EINVAL, "least key");
    refused(task, owner_split(owner, session, task->tree, key, 7), BANYAN_EKEYSIZE, "7 bytes");
    refused(task, owner_split(owner, session, task->tree, key, 255), BANYAN_EKEYSIZE, "255 bytes");
    refused(task, owner_merge(owner, session, task->tree, key, length), BANYAN_ENOTFOUND, "begins at");
    refused(task, move_to(task, party, 0, stranger), BANYAN_ENOTFOUND, "compute node 77");
    split_at(task, party, 100);
    move_at(task, party, 0, party_process(party, 1));
    refused(task, owner_merge(owner, session, task->tree, key, length), BANYAN_ECONFLICT, "different owners");
    refused(task, owner_attach(owner, session, task->tree), BANYAN_EBUSY, "open already");
}

static void impossible_changes_are_refused(void **state)
{
    struct party party = {.script = {nonsense}};
    struct world_options options;
    party_options(&options, 5, 2);
    party_open(&party, &options, KEYS);
    party_run(&party);
    party_judge(&party);
    party_close(&party);
}

/* ---- balancing, leaving ---- */

static void balance(struct world_task *task, struct party *party)
{
    struct party_ranges ranges = {0};
    party_good(task, owner_balance(party_owner(task), task->session), "balance");
    party_look(task, &ranges);
    if (!ranges.of[task->compute])
        world_fail(task->world, BANYAN_ECORRUPT, "compute node %u has no range after balancing",
                   task->compute);
}

static void balance_then_leave(struct world_task *task, struct party *party)
{
    struct party_ranges ranges = {0};
    task_sleep(20 * MILLISECOND);
    balance(task, party);
    task_sleep(100 * MILLISECOND);
    party_look(task, &ranges);
    for (unsigned i = 0; i < 3; i++)
        if (ranges.of[i] < 2 || ranges.moving || ranges.shared)
            world_fail(task->world, BANYAN_ECORRUPT, "compute node %u has %u of %u ranges (%u, %u)", i,
                       ranges.of[i], ranges.count, ranges.moving, ranges.shared);
    party_good(task, owner_release(party_owner(task), task->session), "release");
    party_look(task, &ranges);
    if (ranges.of[0] || ranges.shared || !ranges.of[1] || !ranges.of[2])
        world_fail(task->world, BANYAN_ECORRUPT, "after leaving: %u, %u, %u, shared %u", ranges.of[0],
                   ranges.of[1], ranges.of[2], ranges.shared);
}

static void willing_nodes_share_an_index(void **state)
{
    struct party party = {.until_over = true, .script = {balance_then_leave, balance, balance}};
    struct world_options options;
    owner_options_default(&party.options);
    party.options.policy = OWNER_AUTO;
    party_options(&options, world_seed(11), 3);
    party_open(&party, &options, 4 * KEYS);
    party_run(&party);
    party_judge(&party);
    party_close(&party);
}

/* ---- ranges for which nobody has a use ---- */

struct unwanted {
    unsigned closed;        /* compute nodes that have the index not open */
    uint32_t ranges, again; /* at first, and when the index was opened again */
    bool seen;              /* what became of them */
};

static void give_to_who_has_it_not_open(struct world_task *task, struct party *party)
{
    struct unwanted *unwanted = party->context;
    struct party_ranges ranges = {0};
    struct memory_board_reply before, after;
    while (unwanted->closed < 2 && !task->world->error.code)
        task_sleep(MILLISECOND);
    party_good(task, owner_balance(party_owner(task), task->session), "balance");
    party_look(task, &ranges);
    unwanted->ranges = ranges.of[0];
    if (ranges.of[0] < 4 || ranges.of[0] != ranges.count)
        world_fail(task->world, BANYAN_ECORRUPT, "%u of %u ranges after balancing", ranges.of[0],
                   ranges.count);
    party_good(task, owner_release(party_owner(task), task->session), "release");
    while ((ranges.shared < ranges.count || ranges.moving) && !task->world->error.code) {
        task_sleep(MILLISECOND);
        party_look(task, &ranges);
    }
    party_good(task, owner_board_look(task->session, &before), "board");
    task_sleep(30 * party->options.balance_ns);
    party_good(task, owner_board_look(task->session, &after), "board");
    if (before.version != after.version)
        world_fail(task->world, BANYAN_ECORRUPT, "ranges that nobody has a use for move: version %u, then %u",
                   (unsigned)before.version, (unsigned)after.version);
    unwanted->seen = true;
    while (ranges.of[1] < ranges.count && !task->world->error.code) { /* one of them opens the index again */
        task_sleep(MILLISECOND);
        party_look(task, &ranges);
    }
    unwanted->again = ranges.count;
}

static void close_at_first(struct world_task *task, struct party *party)
{
    struct unwanted *unwanted = party->context;
    party_good(task, owner_detach(party_owner(task), task->session, task->tree), "detach");
    unwanted->closed++;
    while (!unwanted->seen && !task->world->error.code)
        task_sleep(MILLISECOND);
    if (task->compute == 1)
        party_good(task, owner_attach(party_owner(task), task->session, task->tree), "attach");
}

/* Willing processes that have the index not open are given its ranges too: each gives what it got back once,
 * and there the ranges stay until a process opens the index. */
static void nobody_passes_ranges_on_for_ever(void **state)
{
    struct unwanted unwanted = {0};
    struct party party = {.script = {give_to_who_has_it_not_open, close_at_first, close_at_first},
                          .context = &unwanted};
    struct world_options options;
    owner_options_default(&party.options);
    party.options.policy = OWNER_AUTO;
    party.options.balance_ns = 50 * MILLISECOND;
    party_options(&options, world_seed(17), 3);
    party_open(&party, &options, 4 * KEYS);
    party_run(&party);
    uint64_t moved = 0;
    for (unsigned i = 0; i < 3; i++) {
        struct owner_stats stats;
        owner_stats(party.owners[i], &stats);
        moved += stats.moved;
    }
    /* taken, given away, given back; taken again */
    assert_int_equal(moved, 3 * unwanted.ranges + unwanted.again);
    party_judge(&party);
    party_close(&party);
}

/* ---- owners that die ---- */

struct death {
    unsigned victim;
    uint64_t killed_ns, answered_ns;
};

static void own_then_watch(struct world_task *task, struct party *party)
{
    struct death *death = party->context;
    split_at(task, party, 80);
    split_at(task, party, 160);
    move_at(task, party, 100, party_process(party, death->victim));
    move_at(task, party, 200, party_process(party, death->victim));
    task_sleep(5 * MILLISECOND);
    if (world_kill_at(task->world, death->victim, 1, 100000)) {
        world_fail(task->world, BANYAN_ENOMEM, "no memory");
        return;
    }
    death->killed_ns = task_now();
    task_sleep(MILLISECOND / 2);
    for (uint64_t key = 80; key < KEYS; key += 10)
        world_operate(task, HISTORY_PUT, key, 0);
    death->answered_ns = task_now();
}

static void ranges_of_the_dead_are_taken_over(void **state)
{
    for (unsigned round = 0; round < world_rounds(4); round++) {
        struct death death = {.victim = 2};
        struct party party = {.until_over = true, .script = {own_then_watch}, .context = &death};
        struct world_options options;
        struct owner_stats stats[2];
        owner_options_default(&party.options);
        party.options.policy = round % 2 ? OWNER_AUTO : OWNER_NONE;
        party.options.balance_ns = 0;
        party_options(&options, world_seed(21 + round), 3);
        party_open(&party, &options, KEYS);
        party_run(&party);
        party_judge(&party);
        owner_stats(party.owners[0], &stats[0]);
        owner_stats(party.owners[1], &stats[1]);
        assert_int_equal(stats[0].takeovers + stats[1].takeovers, 1);
        /* the read lease, and 50 ms */
        assert_in_range(death.answered_ns - death.killed_ns, 0, 100 * MILLISECOND);
        party_close(&party);
    }
}

/* ---- owners that stand still, or are cut off ---- */

static void own_then_stall(struct world_task *task, struct party *party)
{
    struct death *death = party->context;
    split_at(task, party, 120);
    move_at(task, party, 200, party_process(party, 2));
    task_sleep(2 * MILLISECOND);
    if (death->victim)
        sim_stall_compute(task->world->sim, 2, 300 * MILLISECOND, 20 * MILLISECOND);
    else
        sim_cut(task->world->sim, 2, 0);
    death->killed_ns = task_now();
    for (uint64_t key = 120; key < KEYS; key += 10)
        world_operate(task, HISTORY_PUT, key, 0);
    death->answered_ns = task_now();
    task_sleep(400 * MILLISECOND); /* it comes back, and reads */
    for (uint64_t key = 120; key < KEYS; key += 10)
        world_operate(task, HISTORY_PUT, key, 0);
}

static void an_owner_that_was_away_answers_nothing_stale(void **state)
{
    for (unsigned round = 0; round < world_rounds(4); round++) {
        struct death death = {.victim = round % 2};
        struct party party = {.until_over = true, .script = {own_then_stall}, .context = &death};
        struct world_options options;
        party_options(&options, world_seed(31 + round), 3);
        party_open(&party, &options, KEYS);
        party_run(&party);
        party_judge(&party);
        party_close(&party);
    }
}

/* ---- clocks that drift ---- */

/* An owner that hears of nothing: its heartbeats do not come through, it does not know that it is fenced, its
 * peers do not reach it, and all that it is asked for is in its cache. */
struct drift {
    bool away;        /* it is so far */
    uint64_t answers; /* since then */
};

static void own_then_miss_everything(struct world_task *task, struct party *party)
{
    struct drift *drift = party->context;
    split_at(task, party, 120);
    move_at(task, party, 200, party_process(party, 2));
    task_sleep(10 * MILLISECOND); /* it reads meanwhile */
    sim_hide_compute(task->world->sim, 2, true);
    sim_cut(task->world->sim, 2, 0);
    drift->away = true;
    for (uint64_t key = 120; key < KEYS; key += 10)
        world_operate(task, HISTORY_PUT, key, 0);
    task_sleep(50 * MILLISECOND);
    sim_hide_compute(task->world->sim, 2, false);
}

static bool ended(const struct world_task *task, const struct party *party)
{
    return party->over || task->world->error.code;
}

static void read_what_is_cached(struct world_task *task, struct party *party)
{
    struct drift *drift = party->context;
    while (!ended(task, party)) {
        for (uint64_t key = 120; key < KEYS && !ended(task, party); key += 10) {
            bool away = drift->away;
            world_operate(task, HISTORY_GET, key, 0);
            drift->answers += away && !ended(task, party);
        }
        task_sleep(MILLISECOND / 10);
    }
}

static void stay(struct world_task *task, struct party *party)
{
    (void)task;
    (void)party;
}

/* How many of the seeds have answers that are too old. */
static unsigned stale_with(double apart, unsigned seeds)
{
    unsigned stale = 0;
    for (unsigned seed = 1; seed <= seeds; seed++) {
        struct drift drift = {0};
        struct party party = {.script = {own_then_miss_everything, stay, read_what_is_cached},
                              .context = &drift};
        struct world_options options;
        struct owner_stats first, reader;
        owner_options_default(&party.options);
        party.options.tick_ns = 1000 * MILLISECOND; /* nor does it look */
        party.options.balance_ns = 0;
        party_options(&options, 70 + seed, 3);
        options.faults.clock_drift = apart / 2; /* to either side */
        options.faults.lose_ns = 1000 * MILLISECOND;
        party_open(&party, &options, KEYS);
        party_run(&party);
        owner_stats(party.owners[0], &first);
        owner_stats(party.owners[2], &reader);
        assert_int_equal(first.takeovers, 1);
        assert_true(drift.answers > 100); /* by its lease */
        assert_true(reader.pauses > 0);   /* and it has lapsed */
        stale += world_linearize(&party.world) != 0;
        party_close(&party);
    }
    return stale;
}

/* The margin is what clocks may differ by; by more, and an owner answers what is not so any more. */
static void leases_need_clocks_within_the_margin(void **state)
{
    assert_int_equal(stale_with(0.01, 8), 0);
    assert_in_range(stale_with(0.5, 8), 1, 8);
}

/* ---- a holder of the map's lock that stands still ---- */

#define HOLDER        2
#define HOLDER_LEASE  (40 * MILLISECOND)
#define HOLDER_STANDS (300 * MILLISECOND)

/* Has the lock most of the time, once the index is divided: what lies before the bound stays shared. What it
 * is refused for while it is fenced is as it should be. */
static void change_all_the_time(struct world_task *task, struct party *party)
{
    struct party_ranges ranges = {0};
    while (ranges.count < 2 && !task->world->error.code) {
        task_sleep(MILLISECOND / 10);
        party_look(task, &ranges);
    }
    for (unsigned round = 0; !party->over && !task->world->error.code; round++) {
        if (move_to(task, party, 130, party_process(party, round % 2 ? HOLDER : 1)))
            task_sleep(MILLISECOND);
    }
}

/* Waits until the other has the lock, has it stand still, and changes the map: so long that takes. */
static void change_past_the_holder(struct world_task *task, struct party *party)
{
    struct death *death = party->context;
    split_at(task, party, 120);
    for (unsigned round = 0; round < 5; round++) {
        struct memory_board_reply board = {0};
        while (!party_good(task, owner_board_look(task->session, &board), "the board") ||
               board.holder.instance != party_process(party, HOLDER).instance) {
            if (task->world->error.code)
                return;
            task_sleep(7000);
        }
        task_sleep(round * 9000);
        uint64_t began = task_now();
        sim_stall_compute(task->world->sim, HOLDER, HOLDER_STANDS, HOLDER_LEASE);
        split_at(task, party, 30 + 10 * round);
        uint64_t took = task_now() - began;
        death->answered_ns = took > death->answered_ns ? took : death->answered_ns;
        task_sleep(HOLDER_STANDS); /* it goes on, and has the lock again some time */
    }
}

static void a_holder_that_stands_still_is_not_waited_for(void **state)
{
    for (unsigned round = 0; round < world_rounds(3); round++) {
        struct death death = {0};
        struct party party = {.until_over = true, .context = &death};
        struct world_options options;
        party.script[0] = change_past_the_holder;
        party.script[HOLDER] = change_all_the_time;
        party_options(&options, world_seed(51 + round), 3);
        party_open(&party, &options, KEYS);
        party_run(&party);
        party_judge(&party);
        /* the lease; the read lease, where a range was on its way from it; some round trips */
        assert_in_range(death.answered_ns, 1, HOLDER_LEASE + 60 * MILLISECOND);
        party_close(&party);
    }
}

/* ---- whoever changes the map dies before each of its effects ---- */

static void change_until_death(struct world_task *task, struct party *party)
{
    const uint64_t *effects = party->context;
    split_at(task, party, 60);
    move_at(task, party, 0, party_process(party, 0));
    move_at(task, party, 60, party_process(party, 1));
    world_kill_at_effect(task->world, 0, *effects, 100000);
    split_at(task, party, 90);
    move_at(task, party, 90, party_process(party, 2));
    move_at(task, party, 60, nobody);
    move_at(task, party, 90, nobody);
    merge_at(task, party, 90);
    move_at(task, party, 0, party_process(party, 1));
    world_kill_at_effect(task->world, 0, 0, 0);
}

/* The others work meanwhile, then write every key. */
static void survive(struct world_task *task, struct party *party)
{
    while (sim_compute_alive(task->world->sim, 0) && !party->over && !task->world->error.code) {
        party_operate(task);
        task_sleep(20000);
    }
    for (uint64_t key = 0; key < party->keys; key++)
        world_operate(task, HISTORY_PUT, key, 0);
}

static void settled(struct world_task *task)
{
    struct party_ranges ranges = {0};
    party_look(task, &ranges);
    /* the dead one had ranges until its last split was settled, so others have changed the map since */
    if (ranges.moving || ranges.strangers || ranges.split || ranges.heirs)
        world_fail(task->world, BANYAN_ECORRUPT,
                   "%u ranges are moving still, %u are half split, %u have heirs", ranges.moving,
                   ranges.split, ranges.heirs);
}

static void a_transfer_is_finished_by_others(void **state)
{
    unsigned deaths = 0;
    for (uint64_t effects = 1;; effects++) {
        struct party party = {
            .rounds = 40, .script = {change_until_death, survive, survive}, .context = &effects};
        struct world_options options;
        party_options(&options, world_seed(41 + effects), 3);
        party_open(&party, &options, 120);
        party_run(&party);
        bool died = party.world.computes[0].dead;
        party_judge(&party);
        if (world_run_one(&party.world, world_survivor(&party.world) + PARTY_TASKS - 1, settled))
            fail_msg("death before effect %u: %s", (unsigned)effects, party.world.error.text);
        party_close(&party);
        deaths += died;
        if (!died)
            break;
    }
    assert_in_range(deaths, 20, 1000);
}

/* ---- the same with logs -------------------------------------------------------------------------- */

/* Moves of all kinds between processes that keep logs, and one that keeps none. */
static void move_logged(struct world_task *task, struct party *party)
{
    const struct fabric_process a = party_process(party, 0), b = party_process(party, 1),
                                c = party_process(party, 2);
    split_at(task, party, 80);
    split_at(task, party, 160);
    for (unsigned turn = 0; turn < 4; turn++) {
        move_at(task, party, 0, a);
        move_at(task, party, 100, b);
        move_at(task, party, 200, turn % 2 ? a : c);
        task_sleep(MILLISECOND);
        move_at(task, party, 0, b); /* back and forth, before the heirs are off */
        move_at(task, party, 0, a);
        move_at(task, party, 0, b);
        move_at(task, party, 0, a);
        move_at(task, party, 0, b);
        move_at(task, party, 100, c); /* who may keep no log */
        split_at(task, party, 40);
        move_at(task, party, 100, b);
        move_at(task, party, 50, a);
        move_at(task, party, 20, a);
        merge_at(task, party, 40);
        move_at(task, party, 50, nobody);
        move_at(task, party, 100, nobody);
        move_at(task, party, 200, nobody);
    }
    struct party_ranges ranges = {0};
    party_look(task, &ranges);
    if (ranges.shared != ranges.count)
        world_fail(task->world, BANYAN_ECORRUPT, "%u of %u ranges are shared", ranges.shared, ranges.count);
}

static void logged_ranges_go_with_their_heirs(void **state)
{
    for (unsigned round = 0; round < world_rounds(4); round++) {
        struct book book = {.fail_every = round % 2 ? 2 : 0};
        struct party party = {
            .until_over = true, .script = {move_logged}, .book = &book, .logging = round < 2 ? 7 : 3};
        struct world_options options;
        party_options(&options, world_seed(81 + round), 3);
        party_open(&party, &options, KEYS);
        party_run(&party);
        party_judge(&party);
        assert_true(book.inherits >= 20 && book.clears >= 10 && book.flushes >= 8 && book.disowns >= 10 &&
                    book.releases >= 10);
        party_close(&party);
    }
}

/* From one that keeps no log to those that do, and back. */
static void pass_logged_around(struct world_task *task, struct party *party)
{
    static const unsigned to[] = {2, 0, 2, 1, 3};
    for (unsigned turn = 0; turn < 50; turn++) {
        move_at(task, party, 0, to[turn % 5] == 3 ? nobody : party_process(party, to[turn % 5]));
        task_sleep(MILLISECOND / 5);
    }
}

/* Also those who only read the range learn of it late: nobody logs it before they have stopped. */
static void readers_that_hear_late_are_waited_for(void **state)
{
    for (unsigned round = 0; round < world_rounds(2); round++) {
        struct book book = {0};
        struct party party = {
            .until_over = true, .script = {pass_logged_around}, .book = &book, .logging = 3};
        struct world_options options;
        owner_options_default(&party.options);
        party.options.tick_ns = 3 * MILLISECOND;
        party_options(&options, world_seed(101 + round), 3);
        options.faults.message_lose = 0.4;
        party_open(&party, &options, 30);
        party_run(&party);
        party_judge(&party);
        assert_true(book.flushes >= 10);
        party_close(&party);
    }
}

static void take_over_logged(struct world_task *task, struct party *party)
{
    struct death *death = party->context;
    own_then_watch(task, party);
    task_sleep(200 *
               MILLISECOND); /* the heirs are off, and who took the ranges to merge them has shared them */
    struct party_ranges ranges = {0};
    party_look(task, &ranges);
    const bool wanted = party->options.policy == OWNER_AUTO || party->logging & 1;
    if (ranges.heirs || ranges.moving || ranges.of[death->victim] ||
        (!wanted && ranges.shared != ranges.count))
        world_fail(task->world, BANYAN_ECORRUPT,
                   "after a takeover: heirs %u, moving %u, the dead one's %u, shared %u of %u", ranges.heirs,
                   ranges.moving, ranges.of[death->victim], ranges.shared, ranges.count);
}

/* The dead one kept a log. Where no other wants its ranges one takes them until they are merged. */
static void logged_ranges_of_the_dead_are_inherited(void **state)
{
    for (unsigned round = 0; round < world_rounds(4); round++) {
        struct book book = {0};
        struct death death = {.victim = 2};
        struct party party = {.until_over = true,
                              .script = {take_over_logged},
                              .context = &death,
                              .book = &book,
                              .logging = round < 2 ? 7 : 4};
        struct world_options options;
        owner_options_default(&party.options);
        party.options.policy = round % 2 ? OWNER_AUTO : OWNER_NONE;
        party.options.balance_ns = 0;
        party_options(&options, world_seed(91 + round), 3);
        party_open(&party, &options, KEYS);
        party_run(&party);
        party_judge(&party);
        assert_true(book.inherits >= 1);
        assert_int_equal(book.given_back, 1);
        assert_in_range(death.answered_ns - death.killed_ns, 0, 100 * MILLISECOND);
        party_close(&party);
    }
}

/* The first dies before one of its effects, the second some time after: heirs of heirs. */
struct two_deaths {
    uint64_t effects, second;
};
#define NOBODY UINT32_MAX

/* Where a second one dies some changes fail. */
static void change(struct world_task *task, struct party *party, char what, uint64_t number, unsigned to)
{
    const struct two_deaths *deaths = party->context;
    uint8_t key[FORMAT_KEY_MAX];
    const size_t length = party_key(party, number, key);
    const struct fabric_process process = to == NOBODY ? nobody : party_process(party, to);
    int status = what == 's'   ? owner_split(party_owner(task), task->session, task->tree, key, length)
                 : what == 'j' ? owner_merge(party_owner(task), task->session, task->tree, key, length)
                               : move_to(task, party, number, process);
    if (!deaths->second)
        party_good(task, status, "change");
}

static void change_logged_until_death(struct world_task *task, struct party *party)
{
    const struct two_deaths *deaths = party->context;
    split_at(task, party, 30);
    split_at(task, party, 60);
    move_at(task, party, 0, party_process(party, 0));
    move_at(task, party, 30,
            party_process(party, 0)); /* this one it has till its end, so that it is missed */
    move_at(task, party, 60, party_process(party, 1));
    if (deaths->second)
        world_kill_at_effect(task->world, 1, deaths->second, 100000);
    world_kill_at_effect(task->world, 0, deaths->effects, 100000);
    change(task, party, 's', 90, 0);
    change(task, party, 'm', 90, 2);
    change(task, party, 'm', 60, 0);
    task_sleep(MILLISECOND);
    change(task, party, 'm', 60, NOBODY);
    change(task, party, 'm', 0, 2);
    change(task, party, 'm', 90, 0);
    change(task, party, 'm', 90, NOBODY);
    change(task, party, 'j', 90, 0);
    change(task, party, 'm', 0, 2);
    world_kill_at_effect(task->world, 0, 0, 0);
}

/* ... and until what the dead have left is ended, and nothing has changed for some ticks. */
static void survive_all(struct world_task *task, struct party *party)
{
    struct party_ranges ranges;
    struct memory_board_reply board = {0};
    uint64_t version = 0;
    survive(task, party);
    for (unsigned quiet = 0, looks = 0; quiet < 4 && looks < 100 && !task->world->error.code; looks++) {
        task_sleep(party->options.tick_ns);
        party_look(task, &ranges);
        party_good(task, owner_board_look(task->session, &board), "board");
        quiet = version == board.version && !ranges.moving && !ranges.heirs ? quiet + 1 : 0;
        version = board.version;
    }
}

static void die_logged(uint64_t effects, bool second, unsigned *deaths)
{
    struct book book = {.fail_every = effects % 4 == 3 ? 4 : 0};
    struct two_deaths killed = {effects, second ? 1 + effects * 7 % 40 : 0};
    struct party party = {.rounds = 40,
                          .script = {change_logged_until_death, survive_all, survive_all, survive_all},
                          .context = &killed,
                          .book = &book,
                          .logging = effects % 3 ? 15 : 11};
    struct world_options options;
    party_options(&options, world_seed(141 + effects), 4);
    party_open(&party, &options, 120);
    party_run(&party);
    *deaths += party.world.computes[0].dead;
    party_judge(&party);
    if (world_run_one(&party.world, world_survivor(&party.world) + PARTY_TASKS - 1, settled))
        fail_msg("death before effect %u: %s", (unsigned)effects, party.world.error.text);
    party_close(&party);
}

static void transfers_of_logged_ranges_are_finished_by_others(void **state)
{
    unsigned deaths = 0, before;
    uint64_t effects = 1;
    do {
        before = deaths;
        die_logged(effects++, false, &deaths);
    } while (deaths > before);
    assert_in_range(deaths, 40, 1000);
    for (uint64_t i = 1; i < effects; i += 3)
        die_logged(i, true, &deaths);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_change_under_load),
        cmocka_unit_test(owners_that_hear_late_are_waited_for),
        cmocka_unit_test(half_of_a_node_moves_quickly),
        cmocka_unit_test(impossible_changes_are_refused),
        cmocka_unit_test(willing_nodes_share_an_index),
        cmocka_unit_test(nobody_passes_ranges_on_for_ever),
        cmocka_unit_test(ranges_of_the_dead_are_taken_over),
        cmocka_unit_test(an_owner_that_was_away_answers_nothing_stale),
        cmocka_unit_test(leases_need_clocks_within_the_margin),
        cmocka_unit_test(a_holder_that_stands_still_is_not_waited_for),
        cmocka_unit_test(a_transfer_is_finished_by_others),
        cmocka_unit_test(logged_ranges_go_with_their_heirs),
        cmocka_unit_test(readers_that_hear_late_are_waited_for),
        cmocka_unit_test(logged_ranges_of_the_dead_are_inherited),
        cmocka_unit_test(transfers_of_logged_ranges_are_finished_by_others),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("owner in the simulator", tests, NULL, NULL);
}
