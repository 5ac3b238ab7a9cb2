/* test_peers.c - what compute nodes ask of each other and of the home node, in virtual time: peer calls and
 * what becomes of them, notices, the read lease and fencing, under deaths, cuts, stalls and drifting clocks.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "base/task.h"
#include "fabric/peers.h"
#include "tests/sim/cluster.h"

#define LEASE_NS 3000000u

struct party {
    struct cluster cluster;
    unsigned served;
};

/* Two compute nodes: one task of the first, which calls, and one of the second, which serves (NULL: none). */
static struct sim *party_open(struct party *party, const struct sim_params *params, uint64_t seed,
                              void (*server)(void *), void (*caller)(void *), void *argument)
{
    cluster_create(&party->cluster, 1, 2, params, NULL, seed);
    struct sim *sim = party->cluster.sim;
    if (server)
        assert_int_equal(sim_spawn(sim, 1, 0, server, argument, NULL), 0);
    assert_int_equal(sim_spawn(sim, 0, 0, caller, argument, NULL), 0);
    return sim;
}

/* All tasks return. */
static void party_end(struct party *party)
{
    assert_int_equal(sim_run(party->cluster.sim, UINT64_MAX), 0);
    cluster_destroy(&party->cluster);
}

static struct fabric *fabric_of(struct party *party, int compute)
{
    return sim_fabric(party->cluster.sim, compute);
}

static struct fabric_process process_of(struct party *party, int compute)
{
    return fabric_self(fabric_of(party, compute));
}

/* A status that no error has, by the request's length. */
static int answer_of(size_t length)
{
    return -1000 - (int)length;
}

/* Answers each request with its bytes, and a status of its length. */
static void serve(struct party *party, int compute)
{
    struct fabric_endpoint *endpoint = party->cluster.endpoints[compute];
    struct fabric_peer_request *request;
    while (!fabric_peer_receive(endpoint, &request)) {
        party->served++;
        fabric_peer_reply(endpoint, request, answer_of(request->length), request->bytes, request->length);
    }
}

static void serve_one(void *argument)
{
    serve(argument, 1);
}

static int call(struct party *party, int from, struct fabric_process peer, size_t length)
{
    uint8_t request[256], reply[256];
    size_t reply_length = 77;
    memset(request, (int)length, sizeof request);
    int status = fabric_peer_call(party->cluster.endpoints[from], peer, request, length, reply, sizeof reply,
                                  &reply_length, NULL);
    if (status == answer_of(length)) {
        assert_int_equal(reply_length, length);
        assert_memory_equal(request, reply, length);
    } else {
        assert_int_equal(reply_length, 0);
    }
    return status;
}

static void call_some(void *argument)
{
    struct party *party = argument;
    uint64_t before = task_now();
    for (size_t length = 1; length <= 200; length++)
        assert_int_equal(call(party, 0, process_of(party, 1), length), answer_of(length));
    uint64_t each = (task_now() - before) / 200;
    assert_in_range(each, 1500, 6000); /* two messages and a switch of tasks */
    assert_int_equal(call(party, 0, (struct fabric_process){.instance = 9, .compute_id = 2}, 5),
                     BANYAN_EFENCED);
    fabric_peer_stop(fabric_of(party, 1));
}

static void test_calls_are_served(void **state)
{
    (void)state;
    struct party party = {0};
    party_open(&party, NULL, 1, serve_one, call_some, &party);
    assert_int_equal(sim_run(party.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(party.served, 200);
    assert_true(sim_now(party.cluster.sim) < 2000000); /* the timer of the calls does not count */
    cluster_destroy(&party.cluster);
}

static void fence_other(void *argument)
{
    struct party *party = argument;
    struct fabric_endpoint *endpoint = party->cluster.endpoints[0];
    struct fabric_process other = process_of(party, 1), processes[2];
    uint32_t count;
    bool over = true;
    assert_int_equal(fabric_processes(endpoint, processes, 2, &count, NULL), 0);
    assert_int_equal(count, 2);
    assert_true(fabric_process_equal(processes[1], other));
    task_sleep(10 * LEASE_NS);
    assert_true(fabric_lease_alive(fabric_of(party, 0)) && fabric_lease_alive(fabric_of(party, 1)));
    assert_int_equal(fabric_lease_lapses(fabric_of(party, 1)), 0);
    assert_int_equal(fabric_lease_over(endpoint, other, &over, NULL), 0);
    assert_false(over);
    assert_int_equal(fabric_fence(endpoint, 0, other, NULL), 0);
    uint64_t fenced = task_now(), dead = 0;
    while (!over) {
        if (!fabric_lease_alive(fabric_of(party, 1)) && !dead)
            dead = task_now();
        assert_int_equal(fabric_lease_over(endpoint, other, &over, NULL), 0);
    }
    assert_true(dead > 0);
    assert_in_range(task_now() - fenced, LEASE_NS * 6 / 10, LEASE_NS + 20000);
    task_sleep(LEASE_NS);
    assert_false(fabric_lease_alive(fabric_of(party, 1)));
    fabric_lease_resume(fabric_of(party, 1), fabric_incarnation(fabric_of(party, 1)));
    assert_true(fabric_lease_alive(fabric_of(party, 1)));
    assert_int_equal(fabric_notify(endpoint, 12, NULL), 0);
    task_sleep(20000);
    assert_int_equal(fabric_notice(fabric_of(party, 0)), 12);
    assert_int_equal(fabric_notice(fabric_of(party, 1)), 12);
}

static void told(void *argument, int compute, int memory)
{
    unsigned *fenced = argument;
    assert_true(compute == 1 && memory == 0);
    ++*fenced;
}

/* Whoever frees the locks of a fenced process is told of it also when no connection is lost by itself. */
static void test_a_fenced_lease_ends(void **state)
{
    (void)state;
    struct party party = {0};
    unsigned fenced = 0;
    struct sim_params params;
    sim_params_default(&params);
    params.read_lease_ns = LEASE_NS;
    party_open(&party, &params, 1, NULL, fence_other, &party);
    sim_on_loss(party.cluster.sim, told, &fenced);
    sim_on_loss(party.cluster.sim, NULL, NULL);
    sim_cut(party.cluster.sim, 0, 0); /* nothing happens */
    assert_int_equal(sim_run(party.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(sim_losses(party.cluster.sim), 1);
    assert_int_equal(fenced, 1);
    cluster_destroy(&party.cluster);
}

/* ------------------------------------------------------------------ two clocks */

#define WORLDS 40
#define OTHERS (CLUSTER_NODES_MAX - 1)
#define DUELS  (WORLDS * OTHERS)

/* Compute node 0 ends the leases of all others, each at some time, by clocks and on ways of the given kind.
 */
struct duels {
    struct party party;
    uint64_t seed;
    unsigned overlaps;    /* it was over and alive, at one instant */
    unsigned lapsed;      /* before it was fenced */
    uint64_t least, most; /* from the fencing until it was over */
};

static void end_lease(struct duels *duels, int compute)
{
    struct fabric_endpoint *endpoint = duels->party.cluster.endpoints[0];
    struct fabric *other = fabric_of(&duels->party, compute);
    bool over = false;
    task_sleep(LEASE_NS + (duels->seed * OTHERS + (uint64_t)compute) * 12347 % (LEASE_NS / 3));
    duels->lapsed += !fabric_lease_alive(other);
    assert_int_equal(fabric_fence(endpoint, 0, fabric_self(other), NULL), 0);
    uint64_t fenced = task_now();
    while (!over)
        assert_int_equal(fabric_lease_over(endpoint, fabric_self(other), &over, NULL), 0);
    uint64_t took = task_now() - fenced;
    duels->least = took < duels->least ? took : duels->least;
    duels->most = took > duels->most ? took : duels->most;
    duels->overlaps += fabric_lease_alive(other);
}

static void end_leases(void *argument)
{
    for (int compute = 1; compute <= OTHERS; compute++)
        end_lease(argument, compute);
}

static struct duels fight(const struct sim_faults *faults)
{
    struct duels duels = {.least = UINT64_MAX};
    struct sim_params params;
    sim_params_default(&params);
    params.read_lease_ns = LEASE_NS;
    for (duels.seed = 1; duels.seed <= WORLDS; duels.seed++) {
        cluster_create(&duels.party.cluster, 1, CLUSTER_NODES_MAX, &params, faults, duels.seed);
        assert_int_equal(sim_spawn(duels.party.cluster.sim, 0, 0, end_leases, &duels, NULL), 0);
        party_end(&duels.party);
    }
    return duels;
}

static void test_clocks_within_the_margin_are_safe(void **state)
{
    (void)state;
    struct sim_faults faults;
    sim_faults_none(&faults);
    assert_int_equal(fight(&faults).overlaps, 0);
    faults.clock_drift = 0.005;
    struct duels duels = fight(&faults);
    assert_int_equal(duels.overlaps, 0);
    assert_int_equal(duels.lapsed, 0);
    /* from the last heartbeat before the fencing on, by the home node's clock */
    assert_in_range(duels.least, LEASE_NS * 6 / 10, LEASE_NS * 8 / 10);
    assert_in_range(duels.most, LEASE_NS * 9 / 10, LEASE_NS * 102 / 100);
    faults.clock_drift = 0.05; /* beyond: the margin is needed */
    assert_in_range(fight(&faults).overlaps, DUELS / 10, DUELS * 6 / 10);
}

static void test_slow_heartbeats_are_safe(void **state)
{
    (void)state;
    struct sim_faults faults;
    sim_faults_none(&faults);
    faults.late = faults.late_replies = 0.5;
    faults.late_ns = LEASE_NS / 2;
    assert_int_equal(fight(&faults).overlaps, 0);
    faults.lose_ns = 3 * LEASE_NS; /* it would believe an echo that came after the fencing */
    assert_int_equal(fight(&faults).overlaps, 0);
    faults.clock_drift = 0.005;
    assert_int_equal(fight(&faults).overlaps, 0);
    faults.late = faults.late_replies = 0.2;
    faults.late_ns = 3 * LEASE_NS;
    struct duels duels = fight(&faults);
    assert_int_equal(duels.overlaps, 0);
    assert_in_range(duels.lapsed, DUELS / 20, DUELS * 9 / 10);
}

/* ------------------------------------------------------------------ lapses */

struct lapse {
    struct party party;
    uint64_t stalled_at, lapsed_at, back_at;
};

static void stand_still(void *argument)
{
    struct lapse *lapse = argument;
    sim_stall_compute(lapse->party.cluster.sim, 1, 5 * LEASE_NS, UINT64_MAX);
}

/* Nobody looks at the lease before it is over twice. */
static void stand_still_again(void *argument)
{
    struct lapse *lapse = argument;
    sim_stall_compute(lapse->party.cluster.sim, 1, 10, UINT64_MAX);
}

static void test_a_lapse_that_nobody_saw_counts(void **state)
{
    (void)state;
    struct lapse lapse = {0};
    struct sim_params params;
    cluster_plain_params(&params);
    params.read_lease_ns = LEASE_NS;
    cluster_create(&lapse.party.cluster, 1, 2, &params, NULL, 3);
    struct sim *sim = lapse.party.cluster.sim;
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(sim_at(sim, (10 * i + 3) * LEASE_NS, stand_still, &lapse), 0);
        assert_int_equal(sim_at(sim, (10 * i + 9) * LEASE_NS, stand_still_again, &lapse), 0);
    }
    sim_run(sim, 40 * LEASE_NS);
    assert_int_equal(fabric_lease_lapses(fabric_of(&lapse.party, 1)), 3);
    assert_int_equal(fabric_lease_lapses(fabric_of(&lapse.party, 0)), 0);
    assert_true(fabric_lease_alive(fabric_of(&lapse.party, 1)));
    cluster_destroy(&lapse.party.cluster);
}

static void home_stands_still(void *argument)
{
    struct lapse *lapse = argument;
    sim_stall_memory(lapse->party.cluster.sim, 0, 5 * LEASE_NS);
}

static void other_stands_still(void *argument)
{
    struct lapse *lapse = argument;
    sim_stall_memory(lapse->party.cluster.sim, 1, 5 * LEASE_NS);
}

static void watch_lease(void *argument)
{
    struct lapse *lapse = argument;
    struct fabric *fabric = fabric_of(&lapse->party, 1);
    while (task_now() < lapse->stalled_at + 9 * LEASE_NS) {
        bool alive = fabric_lease_alive(fabric);
        if (!alive && !lapse->lapsed_at)
            lapse->lapsed_at = task_now();
        if (alive && lapse->lapsed_at && !lapse->back_at)
            lapse->back_at = task_now();
        task_sleep(500);
    }
    assert_int_equal(fabric_lease_lapses(fabric), lapse->lapsed_at > 0);
}

static struct lapse lapse_by(void (*event)(void *))
{
    struct lapse lapse = {.stalled_at = 4 * LEASE_NS + 1234567};
    struct sim_params params;
    cluster_plain_params(&params);
    params.read_lease_ns = LEASE_NS;
    cluster_create(&lapse.party.cluster, 2, 2, &params, NULL, 3);
    assert_int_equal(sim_spawn(lapse.party.cluster.sim, 0, 0, watch_lease, &lapse, NULL), 0);
    assert_int_equal(sim_at(lapse.party.cluster.sim, lapse.stalled_at, event, &lapse), 0);
    party_end(&lapse.party);
    return lapse;
}

static void test_standing_still_lapses(void **state)
{
    (void)state;
    struct lapse lapses[] = {lapse_by(stand_still), lapse_by(home_stands_still)};
    for (unsigned i = 0; i < 2; i++) {
        assert_in_range(lapses[i].lapsed_at - lapses[i].stalled_at, LEASE_NS * 65 / 100, LEASE_NS * 99 / 100);
        /* the heartbeat that was due leaves at once, and its echo comes back; one that has waited at the home
         * node is too old, but the next is due */
        assert_in_range(lapses[i].back_at - lapses[i].stalled_at, 5 * LEASE_NS, 5 * LEASE_NS + 12000);
    }
    struct lapse none = lapse_by(other_stands_still);
    assert_int_equal(none.lapsed_at, 0);
}

/* A task that works for long without waiting: its heartbeats go on, and it knows. */
static void work_on(void *argument)
{
    struct party *party = argument;
    for (unsigned i = 0; i < 1000; i++) {
        task_charge(TASK_WORK_OPERATION, LEASE_NS / 100 / 1000);
        assert_true(fabric_lease_alive(fabric_of(party, 0)));
    }
    assert_true(sim_task_now(party->cluster.sim) > sim_now(party->cluster.sim) + 9 * LEASE_NS);
    assert_int_equal(fabric_lease_lapses(fabric_of(party, 0)), 0);
    sim_stall_compute(party->cluster.sim, 0, 2 * LEASE_NS, UINT64_MAX);
    assert_false(fabric_lease_alive(fabric_of(party, 0))); /* the first look after a stall */
    task_sleep(10000);
    assert_true(fabric_lease_alive(fabric_of(party, 0)));
    assert_int_equal(fabric_lease_lapses(fabric_of(party, 0)), 1);
}

static void test_work_lapses_nothing(void **state)
{
    (void)state;
    struct party party = {0};
    struct sim_params params;
    cluster_plain_params(&params);
    params.read_lease_ns = LEASE_NS;
    cluster_create(&party.cluster, 1, 1, &params, NULL, 3);
    assert_int_equal(sim_spawn(party.cluster.sim, 0, 0, work_on, &party, NULL), 0);
    party_end(&party);
}

/* ------------------------------------------------------------------ messages that come late, or never */

#define CALLS 400

struct post {
    struct party party;
    unsigned ended[3]; /* well, by the time-out, otherwise */
    uint64_t longest, hash, end;
    unsigned noticed, kinds[SIM_NOTICED + 1];
    unsigned callers_left;
};

static void see(void *context, const struct sim_observation *seen)
{
    struct post *post = context;
    post->kinds[seen->kind]++;
    if (seen->kind >= SIM_PEER_CALLED && seen->kind < SIM_MESSAGE_LOST)
        assert_true(seen->peer >= 0 && seen->peer != seen->compute && seen->number > 0);
    else if (seen->kind < SIM_PEER_CALLED || seen->kind == SIM_NOTICED)
        assert_int_equal(seen->peer, -1);
}

static void post_calls(void *argument)
{
    struct post *post = argument;
    struct fabric *fabric = fabric_of(&post->party, 0);
    uint64_t notice = 0;
    for (unsigned i = 0; i < CALLS; i++) {
        uint64_t before = task_now();
        int status = call(&post->party, 0, process_of(&post->party, 1), 1 + i % 99);
        uint64_t took = task_now() - before;
        post->longest = took > post->longest ? took : post->longest;
        post->ended[status == answer_of(1 + i % 99) ? 0 : status == BANYAN_ETIMEOUT ? 1 : 2]++;
        assert_int_equal(fabric_notify(post->party.cluster.endpoints[0], i + 1, NULL), 0);
        task_sleep(20000);
        post->noticed += fabric_notice(fabric) > notice;
        notice = fabric_notice(fabric);
    }
    if (--post->callers_left == 0)
        fabric_peer_stop(fabric_of(&post->party, 1));
}

#define TIMEOUT_NS 100000u

static struct post post_with(const struct sim_faults *faults, uint64_t seed, bool watched)
{
    struct post post = {.callers_left = 2};
    struct sim_params params;
    sim_params_default(&params);
    params.peer_timeout_ns = TIMEOUT_NS;
    cluster_create(&post.party.cluster, 1, 2, &params, faults, seed);
    struct sim *sim = post.party.cluster.sim;
    if (watched)
        sim_observe(sim, see, &post);
    assert_int_equal(sim_spawn(sim, 1, 0, serve_one, &post, NULL), 0);
    assert_int_equal(sim_spawn(sim, 1, 1, serve_one, &post, NULL), 0);
    assert_int_equal(sim_spawn(sim, 0, 0, post_calls, &post, NULL), 0);
    assert_int_equal(sim_spawn(sim, 0, 0, post_calls, &post, NULL), 0);
    assert_int_equal(sim_run(sim, UINT64_MAX), 0);
    post.hash = sim_trace_hash(sim);
    post.end = sim_now(sim);
    cluster_destroy(&post.party.cluster);
    return post;
}

static void test_messages_come_late_or_never(void **state)
{
    (void)state;
    struct sim_faults faults;
    struct post plain = post_with(NULL, 1, true);
    assert_true(plain.ended[0] == 2 * CALLS && plain.longest < 20000);
    assert_true(plain.noticed >= CALLS && plain.party.served == 2 * CALLS);
    assert_true(plain.kinds[SIM_PEER_CALLED] == 2 * CALLS && plain.kinds[SIM_PEER_RECEIVED] == 2 * CALLS &&
                plain.kinds[SIM_PEER_REPLIED] == 2 * CALLS && plain.kinds[SIM_PEER_RETURNED] == 2 * CALLS);
    assert_true(plain.kinds[SIM_NOTICED] == 4 * CALLS && plain.kinds[SIM_MESSAGE_LOST] == 0);

    sim_faults_none(&faults);
    faults.message_late = 0.1;
    faults.message_late_ns = 50000;
    struct post late = post_with(&faults, 1, true);
    assert_true(late.ended[0] == 2 * CALLS && late.longest > 40000 && late.longest < 2 * 50000 + 20000);
    assert_int_equal(late.kinds[SIM_MESSAGE_LOST], 0);

    sim_faults_none(&faults);
    faults.message_lose = 0.1;
    struct post lossy = post_with(&faults, 1, true);
    assert_in_range(lossy.ended[1], 2 * CALLS / 10, 2 * CALLS * 3 / 10); /* either of two messages */
    assert_true(lossy.ended[0] + lossy.ended[1] == 2 * CALLS);
    assert_in_range(lossy.longest, TIMEOUT_NS, TIMEOUT_NS + 5000);
    assert_true(lossy.party.served > lossy.ended[0] && lossy.party.served < 2 * CALLS);
    assert_in_range(lossy.kinds[SIM_MESSAGE_LOST], lossy.ended[1] + 4 * CALLS / 20,
                    lossy.ended[1] + 4 * CALLS / 5);

    faults.message_lose = 1;
    struct post none = post_with(&faults, 1, true);
    assert_true(none.ended[1] == 2 * CALLS && none.party.served == 0 && none.noticed == 0);
}

static void test_runs_repeat(void **state)
{
    (void)state;
    struct sim_faults faults;
    sim_faults_hostile(&faults);
    faults.message_lose = 0.05;
    struct post one = post_with(&faults, 7, false), again = post_with(&faults, 7, true),
                other = post_with(&faults, 8, false);
    assert_true(one.hash == again.hash && one.end == again.end && one.longest == again.longest);
    assert_true(one.hash != other.hash);
}

/* The time-out of a call that was answered holds nothing up, in this run or the next. */
static void test_answered_calls_leave_no_time_out(void **state)
{
    (void)state;
    struct party party = {0};
    struct sim_params params;
    cluster_plain_params(&params);
    params.peer_timeout_ns = 1000000000;
    struct sim *sim = party_open(&party, &params, 1, serve_one, call_some, &party);
    assert_int_equal(sim_run(sim, 800000000), 0);
    uint64_t end = sim_now(sim);
    assert_true(end < 2000000);
    assert_int_equal(sim_run(sim, UINT64_MAX), 0);
    assert_int_equal(sim_now(sim), end);
    cluster_destroy(&party.cluster);
}

/* ------------------------------------------------------------------ late replies, cuts, deaths */

static uint8_t late_reply[4];

static void call_the_slow(void *argument)
{
    struct party *party = argument;
    size_t length = 9;
    uint64_t before = task_now();
    memset(late_reply, 7, sizeof late_reply);
    assert_int_equal(fabric_peer_call(party->cluster.endpoints[0], process_of(party, 1), "slow", 4,
                                      late_reply, sizeof late_reply, &length, NULL),
                     BANYAN_ETIMEOUT);
    assert_int_equal(length, 0);
    assert_in_range(task_now() - before, TIMEOUT_NS, TIMEOUT_NS + 2000);
    task_sleep(5 * TIMEOUT_NS); /* its reply comes meanwhile, and belongs to no one */
    assert_int_equal(late_reply[0], 7);
    assert_int_equal(party->served, 1);
    assert_int_equal(call(party, 0, process_of(party, 1), 3), answer_of(3));
    fabric_peer_stop(fabric_of(party, 1));
}

static void serve_slowly(void *argument)
{
    struct party *party = argument;
    struct fabric_peer_request *request;
    assert_int_equal(fabric_peer_receive(party->cluster.endpoints[1], &request), 0);
    party->served++;
    task_sleep(3 * TIMEOUT_NS);
    assert_memory_equal(request->bytes, "slow", 4); /* the request is the server's until it replies */
    fabric_peer_reply(party->cluster.endpoints[1], request, 0, "abcd", 4);
    serve(party, 1);
}

static void test_late_replies_belong_to_no_one(void **state)
{
    (void)state;
    struct party party = {0};
    struct sim_params params;
    sim_params_default(&params);
    params.peer_timeout_ns = TIMEOUT_NS;
    party_open(&party, &params, 1, serve_slowly, call_the_slow, &party);
    party_end(&party);
}

struct cutting {
    struct party party;
    bool back; /* the reply is on its way at the cut, not the request */
    uint64_t cut_at;
};

static void cut_now(void *argument)
{
    struct cutting *cutting = argument;
    assert_int_equal(sim_cut_peers(cutting->party.cluster.sim, 1, 0), 0);
    assert_int_equal(sim_cut_peers(cutting->party.cluster.sim, 0, 1), 0); /* it is cut already */
}

static void heal_now(void *argument)
{
    struct cutting *cutting = argument;
    sim_heal_peers(cutting->party.cluster.sim, 0, 1);
    sim_heal_peers(cutting->party.cluster.sim, 0, 1);
}

static void call_once(void *argument)
{
    struct cutting *cutting = argument;
    assert_int_equal(call(&cutting->party, 0, process_of(&cutting->party, 1), 8), BANYAN_ETIMEOUT);
    assert_int_equal(cutting->party.served, cutting->back);
    assert_int_equal(call(&cutting->party, 0, process_of(&cutting->party, 1), 8), answer_of(8));
    fabric_peer_stop(fabric_of(&cutting->party, 1));
}

static void test_what_is_under_way_is_cut(void **state)
{
    (void)state;
    for (unsigned back = 0; back < 2; back++) {
        struct cutting cutting = {.back = back};
        struct sim_params params;
        cluster_plain_params(&params);
        params.peer_timeout_ns = TIMEOUT_NS;
        struct sim *sim = party_open(&cutting.party, &params, 1, serve_one, call_once, &cutting);
        assert_int_equal(sim_at(sim, back ? 1500 : 500, cut_now, &cutting), 0);
        assert_int_equal(sim_at(sim, TIMEOUT_NS / 2, heal_now, &cutting), 0);
        party_end(&cutting.party);
    }
}

struct dying {
    struct party party;
    int victim;
    unsigned done, timed_out, received;
    bool fenced;
};

static void count_received(void *context, const struct sim_observation *seen)
{
    ((struct dying *)context)->received += seen->kind == SIM_PEER_RECEIVED;
}

static void is_fenced(void *argument)
{
    ((struct dying *)argument)->fenced = true;
}

static void call_the_mortal(void *argument)
{
    struct dying *dying = argument;
    for (unsigned i = 0; i < 5; i++) {
        int status = call(&dying->party, 0, process_of(&dying->party, 1), 10);
        dying->done += status == answer_of(10);
        dying->timed_out += status == BANYAN_ETIMEOUT;
    }
    task_sleep(4 * TIMEOUT_NS);
    if (dying->victim == 1)
        assert_int_equal(call(&dying->party, 0, process_of(&dying->party, 1), 10), BANYAN_EFENCED);
}

/* At each message of either, just before it comes. */
static void test_deaths_between_messages(void **state)
{
    (void)state;
    for (int victim = 0; victim < 2; victim++)
        for (uint64_t effects = 1; effects <= 5; effects++) {
            struct dying dying = {.victim = victim};
            struct sim_params params;
            sim_params_default(&params);
            params.peer_timeout_ns = TIMEOUT_NS;
            struct sim *sim = party_open(&dying.party, &params, effects, serve_one, call_the_mortal, &dying);
            sim_observe(sim, count_received, &dying);
            sim_kill_compute_at(sim, victim, effects, 3 * TIMEOUT_NS, is_fenced, &dying);
            assert_int_equal(sim_run(sim, UINT64_MAX), victim == 0); /* the server of the dead waits on */
            assert_true(dying.fenced);
            assert_int_equal(dying.done, effects - 1);
            assert_int_equal(dying.party.served, victim == 0 ? effects - 1 : effects);
            assert_int_equal(dying.received, dying.party.served); /* nothing comes to the dead */
            uint64_t left = victim == 0 ? 0 : 6 - effects;        /* they time out until it is fenced */
            assert_in_range(dying.timed_out, left < 3 ? left : 3, left < 4 ? left : 4);
            cluster_destroy(&dying.party.cluster);
        }
}

/* A message that a dead node has posted comes or does not come. */
static void die_when_posted(void *argument)
{
    struct dying *dying = argument;
    sim_kill_compute(dying->party.cluster.sim, 0, 3 * TIMEOUT_NS, is_fenced, dying);
}

static void test_requests_of_the_dead(void **state)
{
    (void)state;
    unsigned served = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct dying dying = {.victim = 0};
        struct sim *sim = party_open(&dying.party, NULL, seed, serve_one, call_the_mortal, &dying);
        assert_int_equal(sim_at(sim, 500, die_when_posted, &dying), 0);
        assert_int_equal(sim_run(sim, UINT64_MAX), 1);
        served += dying.party.served;
        cluster_destroy(&dying.party.cluster);
    }
    assert_in_range(served, 10, 30);
}

/* ------------------------------------------------------------------ processes that come again */

struct again {
    struct party party;
    int next;
};

static void restart(void *argument)
{
    struct again *again = argument;
    again->next = sim_restart_compute(again->party.cluster.sim, 0, NULL);
}

static void check_description(struct party *party, struct fabric_process process, const char *expected)
{
    char text[100];
    fabric_peer_describe(fabric_of(party, 1), process, text, sizeof text);
    assert_string_equal(text, expected);
}

static void list_again(void *argument)
{
    struct again *again = argument;
    struct party *party = &again->party;
    struct fabric_process listed[3], before = process_of(party, 0), other = process_of(party, 2);
    uint32_t count;
    task_sleep(20000);
    struct fabric_process next = process_of(party, again->next);
    assert_true(next.compute_id == before.compute_id && next.instance > before.instance);
    for (uint32_t capacity = 1; capacity <= 3; capacity++) {
        const struct fabric_process expected[] = {next, process_of(party, 1), other};
        assert_int_equal(fabric_processes(party->cluster.endpoints[1], listed, capacity, &count, NULL), 0);
        assert_int_equal(count, 3);
        for (uint32_t i = 0; i < capacity; i++)
            assert_true(fabric_process_equal(listed[i], expected[i]));
    }
    check_description(party, before, "compute node 1 is dead");
    check_description(party, next, "compute node 1, machine 0 of the simulator");
    check_description(party, (struct fabric_process){.instance = 99, .compute_id = 7},
                      "there is no process 99 of compute node 7");
    sim_hide_compute(party->cluster.sim, 2, true);
    check_description(party, other, "compute node 3 has no address for peers");
    assert_int_equal(call(party, 1, other, 4), BANYAN_EFENCED);
    sim_hide_compute(party->cluster.sim, 2, false);
    assert_int_equal(call(party, 1, other, 4), answer_of(4));
    fabric_peer_stop(fabric_of(party, 2));
}

static void serve_two(void *argument)
{
    struct again *again = argument;
    serve(&again->party, 2);
}

static void test_processes_come_again(void **state)
{
    (void)state;
    struct again again = {.next = 0};
    cluster_create(&again.party.cluster, 1, 3, NULL, NULL, 1);
    struct sim *sim = again.party.cluster.sim;
    assert_int_equal(sim_spawn(sim, 2, 0, serve_two, &again, NULL), 0);
    assert_int_equal(sim_spawn(sim, 1, 0, list_again, &again, NULL), 0);
    sim_kill_compute(sim, 0, 10000, restart, &again);
    party_end(&again.party);
}

/* Time-outs are each call's own, in whatever order tasks come to post. */
static void call_in_vain(void *argument)
{
    struct party *party = argument;
    if (sim_task_number(party->cluster.sim) == 0)
        task_charge(TASK_WORK_OPERATION, 30); /* its calls are later than those that others post after it */
    for (unsigned i = 0; i < 5; i++) {
        uint64_t before = task_now();
        assert_int_equal(call(party, 0, process_of(party, 1), 8), BANYAN_ETIMEOUT);
        assert_in_range(task_now() - before, TIMEOUT_NS, TIMEOUT_NS + 1000);
        task_sleep(1000ull * sim_task_number(party->cluster.sim));
    }
    party->served++;
}

static void test_time_outs_are_each_calls_own(void **state)
{
    (void)state;
    struct party party = {0};
    struct sim_params params;
    sim_params_default(&params);
    params.peer_timeout_ns = TIMEOUT_NS;
    cluster_create(&party.cluster, 1, 2, &params, NULL, 1);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(sim_spawn(party.cluster.sim, 0, i, call_in_vain, &party, NULL), 0);
    assert_int_equal(sim_run(party.cluster.sim, UINT64_MAX), 0);
    assert_int_equal(party.served, 8);
    cluster_destroy(&party.cluster);
}

/* ------------------------------------------------------------------ what it costs */

struct price {
    struct party party;
    size_t length;
    uint64_t took;
};

static void serve_nothing(void *argument)
{
    struct price *price = argument;
    struct fabric_peer_request *request;
    while (!fabric_peer_receive(price->party.cluster.endpoints[1], &request))
        fabric_peer_reply(price->party.cluster.endpoints[1], request, 0, NULL, 0);
}

static void call_for_price(void *argument)
{
    static uint8_t bytes[FABRIC_PEER_BYTES_MAX];
    struct price *price = argument;
    size_t length;
    uint64_t before = task_now();
    assert_int_equal(fabric_peer_call(price->party.cluster.endpoints[0], process_of(&price->party, 1), bytes,
                                      price->length, NULL, 0, &length, NULL),
                     0);
    price->took = task_now() - before;
    fabric_peer_stop(fabric_of(&price->party, 1));
}

static uint64_t price_of(size_t length)
{
    struct price price = {.length = length};
    struct sim_params params;
    cluster_plain_params(&params);
    party_open(&price.party, &params, 1, serve_nothing, call_for_price, &price);
    party_end(&price.party);
    return price.took;
}

/* Of an idle cluster: the sum of its parts, each way. */
static void test_calls_cost_what_their_parts_cost(void **state)
{
    (void)state;
    struct sim_params params;
    cluster_plain_params(&params);
    double way = params.doorbell_ns + 2.0 * params.nic_ns + params.wire_ns + params.pcie_write_ns;
    double cpu = params.post_ns + params.command_ns + params.poll_ns + params.receive_ns;
    double lanes = (params.header_bytes + 1 + params.header_bytes) * 8 / params.bandwidth;
    double expected = 2 * (way + cpu) + lanes + params.clock_ns;
    assert_in_range(price_of(1), (uint64_t)expected - 20, (uint64_t)expected + 60);
    /* longer ones are read over PCIe, and take the lanes longer */
    uint64_t short_one = price_of(params.inline_bytes), long_one = price_of(params.inline_bytes + 1);
    assert_in_range(long_one - short_one, params.pcie_read_ns, params.pcie_read_ns + 40);
    uint64_t page = price_of(FABRIC_PEER_BYTES_MAX);
    assert_true((double)(page - long_one) > (FABRIC_PEER_BYTES_MAX - 221) * 8 / params.bandwidth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_are_served),
        cmocka_unit_test(test_a_fenced_lease_ends),
        cmocka_unit_test(test_clocks_within_the_margin_are_safe),
        cmocka_unit_test(test_slow_heartbeats_are_safe),
        cmocka_unit_test(test_standing_still_lapses),
        cmocka_unit_test(test_a_lapse_that_nobody_saw_counts),
        cmocka_unit_test(test_work_lapses_nothing),
        cmocka_unit_test(test_messages_come_late_or_never),
        cmocka_unit_test(test_runs_repeat),
        cmocka_unit_test(test_answered_calls_leave_no_time_out),
        cmocka_unit_test(test_late_replies_belong_to_no_one),
        cmocka_unit_test(test_what_is_under_way_is_cut),
        cmocka_unit_test(test_deaths_between_messages),
        cmocka_unit_test(test_requests_of_the_dead),
        cmocka_unit_test(test_processes_come_again),
        cmocka_unit_test(test_time_outs_are_each_calls_own),
        cmocka_unit_test(test_calls_cost_what_their_parts_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
