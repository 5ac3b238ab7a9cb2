/* conformance_peer_leases.c - the cases about read leases and fencing (G7, G8; contract:
 * conformance_party.h). Compute node 0 asks and fences, compute node 1 is asked about. */
#include <string.h>

#include "conformance_party.h"
#include "memory/memory.h"

#define HOME 0
#define WORD (MEMORY_FIRST_CHUNK(MEMORY_LOCK_BYTES) + 64) /* of each pool: what is counted in */
#define LOCK (GADDR_LOCK_REGION | 64)                     /* of each lock region */

static bool is_alive(struct guest *guest, void *compute)
{
    return fabric_lease_alive(guest->party->fabrics[*(unsigned *)compute]);
}
static bool has_lapsed(struct guest *guest, void *compute)
{
    return !is_alive(guest, compute);
}
static bool knows_of_loss(struct guest *guest, void *incarnation)
{
    return fabric_incarnation(guest->party->fabrics[1]) > *(uint64_t *)incarnation;
}
static bool reaches_home(struct guest *guest, void *context)
{
    uint32_t count;
    (void)context;
    return !fabric_processes(guest->endpoint, NULL, 0, &count, NULL);
}

/* Whether the home node lists the process; false too where it cannot be asked. */
static bool is_listed(struct guest *guest, void *process)
{
    struct fabric_process listed[CONFORMANCE_PEERS_MAX];
    uint32_t count = 0;
    if (fabric_processes(guest->endpoint, listed, CONFORMANCE_PEERS_MAX, &count, NULL))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (fabric_process_equal(listed[i], *(struct fabric_process *)process))
            return true;
    return false;
}
static bool is_not_listed(struct guest *guest, void *process)
{
    return reaches_home(guest, NULL) && !is_listed(guest, process);
}

/* The home node's answer; a failure is the party's. */
static bool is_over(struct guest *guest, unsigned compute)
{
    bool over = false;
    int status = fabric_lease_over(guest->endpoint, guest->party->processes[compute], &over, &guest->cost);
    if (status)
        party_fail(guest->party, "fabric_lease_over: %s", error_name(status));
    return over;
}

/* ---- the lease ---- */

/* How often a machine that keeps threads from running may spoil what is shown. What happens each time is no
 * machine's doing. */
#define SPOILT_MAX 20

/* The lease of a compute node has lapsed that nothing was done to. In virtual time that is a fault; else it
 * may be the machine's doing, and when the lease is there again what was to be shown is shown again. False:
 * it has failed. */
static bool spoilt(struct guest *guest, unsigned compute, unsigned *times)
{
    struct party *party = guest->party;
    if (!party->way->busy || ++*times > SPOILT_MAX)
        party_fail(party,
                   "compute node %u's lease lapses while nothing stands still: %llu lapses, seen %u times",
                   compute, (unsigned long long)fabric_lease_lapses(party->fabrics[compute]), *times);
    else if (party_until(guest, is_alive, &compute))
        return true;
    else
        party_fail(party, "compute node %u's lease does not come back", compute);
    return false;
}

/* Six leases long. False: the lease has lapsed. */
static bool stays_alive(struct guest *guest)
{
    const uint64_t lapses = fabric_lease_lapses(guest->fabric);
    bool alive = true;
    for (unsigned i = 0; i < 100 && alive; i++) {
        party_sleep_leases(guest, 0.06);
        alive = fabric_lease_alive(guest->fabric);
        if (guest->compute == 0 && is_over(guest, 1))
            party_fail(guest->party, "the lease of one that is not fenced is over");
    }
    return alive && fabric_lease_lapses(guest->fabric) == lapses;
}

static void stay_alive(struct guest *guest)
{
    struct party *party = guest->party;
    unsigned self = guest->compute, times = 0;
    CHECK(party, party_until(guest, is_alive, &self), "it does not begin");
    while (!stays_alive(guest) && spoilt(guest, self, &times))
        ;
}

static void case_alive(struct party *party)
{
    const struct party_part parts[] = {{0, 1, stay_alive}, {1, 1, stay_alive}};
    party_run(party, parts, 2);
}

/* A compute node's lapses so far, counted while its lease is alive. */
struct lapses {
    unsigned compute;
    uint64_t count;
};
static bool is_alive_and_counted(struct guest *guest, void *context)
{
    struct lapses *lapses = context;
    lapses->count = fabric_lease_lapses(guest->party->fabrics[lapses->compute]);
    return is_alive(guest, &lapses->compute);
}
/* Also when it is back already, which one that looks late finds. */
static bool has_lapsed_since(struct guest *guest, void *context)
{
    const struct lapses *lapses = context;
    return fabric_lease_lapses(guest->party->fabrics[lapses->compute]) > lapses->count;
}

static void stall_other(struct guest *guest)
{
    struct party *party = guest->party;
    struct lapses other = {.compute = 1};
    unsigned self = 0, times = 0;
    CHECK(party, party_until(guest, is_alive_and_counted, &other), "it does not begin");
    uint64_t incarnation = fabric_incarnation(party->fabrics[1]);
    for (unsigned shown = 0; shown < 3;) {
        party->way->stall(party->way->context, 1, 3 * party->way->read_lease_ns);
        CHECK(party, party_until(guest, has_lapsed_since, &other), "no heartbeats, and it does not lapse");
        CHECK(party, !is_over(guest, 1), "a lapsed lease of one that is not fenced is over");
        if (fabric_lease_alive(guest->fabric))
            shown++;
        else if (!spoilt(guest, self, &times)) /* another's stall lapses it */
            return;
        const uint64_t before = other.count;
        CHECK(party, party_until(guest, is_alive_and_counted, &other), "it does not come back");
        CHECK(party, other.count > before, "a lapse is not counted when it is over");
    }
    CHECK(party, fabric_incarnation(party->fabrics[1]) == incarnation, "a lapse has lost a connection");
}

static void case_lapse(struct party *party)
{
    const struct party_part parts[] = {{0, 1, stall_other}};
    party_run(party, parts, 1);
}

static void heard(void *context)
{
    struct party *party = context;
    atomic_add_relaxed(&party->heard, 1); /* a count; waited for */
}

static bool was_told_twice(struct guest *guest, void *context)
{
    (void)context;
    return atomic_load_relaxed(&guest->party->heard) >= 2;
}

static bool notice_came(struct guest *guest, void *number)
{
    fabric_notify(guest->endpoint, *(uint64_t *)number, NULL);
    return fabric_notice(guest->fabric) == *(uint64_t *)number;
}

/* On the compute node that loses its connection. */
static void lose_home(struct guest *guest)
{
    struct party *party = guest->party;
    unsigned self = 1;
    CHECK(party, party_until(guest, is_alive, &self), "it does not begin");
    uint64_t before = fabric_incarnation(guest->fabric);
    fabric_notice_listen(guest->fabric, heard, party);
    party_reach(party, 1);
    CHECK(party, party_until(guest, knows_of_loss, &before), "it does not know of its loss");
    CHECK(party, party_until(guest, has_lapsed, &self), "echoes of another connection count by themselves");
    fabric_lease_resume(guest->fabric, before);
    CHECK(party, party_until(guest, reaches_home, NULL), "it is not connected again");
    for (unsigned i = 0; i < 20; i++) {
        party_sleep_leases(guest, 0.1);
        CHECK(party, !fabric_lease_alive(guest->fabric), "an older incarnation resumes it");
    }
    CHECK(party, is_listed(guest, &guest->self), "it is connected and not listed");
    uint64_t incarnation = fabric_incarnation(guest->fabric);
    CHECK(party, reaches_home(guest, NULL), "the home node does not answer");
    fabric_lease_resume(guest->fabric, incarnation);
    CHECK(party, party_until(guest, is_alive, &self), "it cannot be resumed");
    CHECK(party, fabric_lease_lapses(guest->fabric) >= 1, "the lapse is not counted");
    CHECK(party, party_until(guest, was_told_twice, NULL), "who listens was not told of loss and reconnect");
    fabric_notice_listen(guest->fabric, NULL, NULL);
    uint64_t number = 44;
    CHECK(party, party_until(guest, notice_came, &number), "no notice comes by the new connection");
}

static void lose_home_of_other(struct guest *guest)
{
    struct party *party = guest->party;
    CHECK(party, party_await(guest, 1), "the other is not ready");
    party->way->lose(party->way->context, 1, HOME);
}

static void case_home_loss(struct party *party)
{
    const struct party_part parts[] = {{0, 1, lose_home_of_other}, {1, 1, lose_home}};
    party_run(party, parts, 2);
}

/* Of a memory node that is not the home node. False: its lease has lapsed within four leases. */
static bool loses_elsewhere(struct guest *guest)
{
    struct party *party = guest->party;
    uint64_t before = fabric_incarnation(party->fabrics[1]);
    party->way->lose(party->way->context, 1, 1);
    if (!party_until(guest, knows_of_loss, &before))
        party_fail(party, "it does not know of its loss");
    for (unsigned i = 0; i < 40; i++) {
        party_sleep_leases(guest, 0.1);
        if (!fabric_lease_alive(party->fabrics[1]))
            return false;
    }
    return true;
}

static void lose_elsewhere(struct guest *guest)
{
    struct party *party = guest->party;
    unsigned other = 1, times = 0;
    CHECK(party, party_until(guest, is_alive, &other), "it does not begin");
    while (!loses_elsewhere(guest)) /* is another memory node's connection its lease? */
        if (!spoilt(guest, other, &times))
            return;
    CHECK(party, !is_over(guest, 1), "fenced elsewhere, its lease is over");
}

static void case_other_loss(struct party *party)
{
    const struct party_part parts[] = {{0, 1, lose_elsewhere}};
    party_run(party, parts, 1);
}

/* ---- fencing ---- */

static int run_command(struct guest *guest, struct fabric_command *command, uint64_t incarnation)
{
    struct fabric_list list = {
        .node = gaddr_node(command->address), .count = 1, .commands = command, .incarnation = incarnation};
    struct fabric_list *lists[] = {&list};
    return fabric_execute(guest->endpoint, lists, 1, &guest->cost);
}

static int read_word(struct guest *guest, gaddr address, uint64_t *word)
{
    struct fabric_command command = {
        .operation = FABRIC_READ, .length = 8, .address = address, .read.buffer = word};
    int status = run_command(guest, &command, 0);
    if (!status)
        atomic_copy_from(word, command.read.data, 8);
    return status;
}

static int add_one(struct guest *guest, uint16_t node, uint64_t incarnation)
{
    struct fabric_command command = {
        .operation = FABRIC_FAA, .address = gaddr_make(node, WORD), .faa.add = 1};
    return run_command(guest, &command, incarnation);
}

static int take_lock(struct guest *guest, uint16_t node, uint64_t incarnation)
{
    const struct fabric_capabilities *capabilities = fabric_capabilities(guest->fabric);
    struct fabric_command command = {.operation = FABRIC_CAS,
                                     .address = gaddr_make(node, LOCK),
                                     .cas.swap = capabilities->compute_id,
                                     .cas.mask = capabilities->lock_width == 2 ? 0xffff : UINT64_MAX};
    return run_command(guest, &command, incarnation);
}

#define WRITERS  4
#define FENCINGS 6

/* A fencing's stages: WRITERS have begun (counted in numbers[0]), it is fenced (odd), all writers have failed
 * (counted in numbers[1]), the next begins (even). */
static bool writers_at(struct guest *guest, void *count)
{
    return atomic_load_acquire(&guest->party->numbers[0]) >= *(uint64_t *)count;
}

struct joining {
    uint16_t node;
    uint64_t incarnation;
};
static bool joins_anew(struct guest *guest, void *context)
{
    struct joining *joining = context;
    joining->incarnation = fabric_incarnation(guest->fabric);
    return !add_one(guest, joining->node, joining->incarnation);
}

static void write_until_fenced(struct guest *guest)
{
    struct party *party = guest->party;
    for (uint64_t fencing = 0; fencing < FENCINGS; fencing++) {
        struct joining joining = {.node = (uint16_t)(fencing % CONFORMANCE_PEER_MEMORY)};
        CHECK(party, party_until(guest, joins_anew, &joining), "fencing %u: it cannot join anew",
              (unsigned)fencing);
        int status = take_lock(guest, joining.node, joining.incarnation);
        /* release: what was joined for has taken effect */
        __atomic_add_fetch(&party->numbers[0], 1, __ATOMIC_ACQ_REL);
        uint64_t begin = task_now();
        while (!status && !atomic_load_relaxed(&party->failed)) {
            status = add_one(guest, joining.node, joining.incarnation);
            CHECK(party, task_now() - begin < party->way->patience_ns, "it is never fenced");
        }
        CHECK(party, status == BANYAN_ENET || status == BANYAN_EFENCED, "a fenced list: %s",
              error_name(status));
        CHECK(party, party_await(guest, 2 * fencing + 1), "the fencing does not end");
        /* what began under the old incarnation is over, whatever is connected again */
        for (unsigned i = 0; i < 20; i++) {
            status = add_one(guest, joining.node, joining.incarnation);
            CHECK(party, status == BANYAN_ENET || status == BANYAN_EFENCED, "an older incarnation's list: %s",
                  error_name(status));
        }
        __atomic_add_fetch(&party->numbers[1], 1, __ATOMIC_ACQ_REL); /* release: after its last list */
        CHECK(party, party_await(guest, 2 * fencing + 2), "the one who fences does not go on");
    }
}

static bool old_ones_are_through(struct guest *guest, void *count)
{
    return atomic_load_acquire(&guest->party->numbers[1]) >= *(uint64_t *)count;
}

static void fence_writers(struct guest *guest)
{
    struct party *party = guest->party;
    for (uint64_t fencing = 0; fencing < FENCINGS; fencing++) {
        uint16_t node = (uint16_t)(fencing % CONFORMANCE_PEER_MEMORY);
        uint64_t all = (fencing + 1) * WRITERS, word = 0, later = 0, lock = 0;
        CHECK(party, party_until(guest, writers_at, &all), "the writers do not begin");
        task_sleep(random_below(&guest->random, 100000));
        CHECK(party, !read_word(guest, gaddr_make(node, LOCK), &lock) && lock, "no writer holds the lock");
        int status = fabric_fence(guest->endpoint, node, party->processes[1], &guest->cost);
        CHECK(party, !status, "fabric_fence: %s", error_name(status));
        CHECK(party, !read_word(guest, gaddr_make(node, WORD), &word) && word, "a READ failed");
        CHECK(party, !read_word(guest, gaddr_make(node, LOCK), &lock) && !lock, "its lock is not freed");
        party_reach(party, 2 * fencing + 1);
        CHECK(party, party_until(guest, old_ones_are_through, &all), "the writers do not end");
        CHECK(party, !read_word(guest, gaddr_make(node, WORD), &later), "a READ failed");
        CHECK(party, later == word, "%llu of its additions came after it was fenced",
              (unsigned long long)(later - word));
        party_reach(party, 2 * fencing + 2);
    }
}

static void case_fence(struct party *party)
{
    const struct party_part parts[] = {{0, 1, fence_writers}, {1, WRITERS, write_until_fenced}};
    party_run(party, parts, 2);
}

static void fence_the_absent(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_process unknown = {.instance = party->processes[1].instance + 1000,
                                     .compute_id = party->processes[1].compute_id};
    struct joining joining = {.node = 1};
    uint64_t before = fabric_incarnation(party->fabrics[1]);
    bool over = false;
    for (uint16_t node = 0; node < CONFORMANCE_PEER_MEMORY; node++)
        CHECK(party, !fabric_fence(guest->endpoint, node, unknown, NULL), "fencing one that is not there");
    CHECK(party, !fabric_lease_over(guest->endpoint, unknown, &over, NULL) && over, "it has a lease");
    task_sleep(300000);
    CHECK(party, fabric_incarnation(party->fabrics[1]) == before, "another with its id was fenced");
    for (unsigned i = 0; i < 5; i++)
        CHECK(party, !fabric_fence(guest->endpoint, 1, party->processes[1], NULL), "fencing again");
    CHECK(party, party_until(guest, joins_anew, &joining), "who fences is fenced itself");
}

static void case_fence_absent(struct party *party)
{
    const struct party_part parts[] = {{0, 1, fence_the_absent}};
    party_run(party, parts, 1);
}

/* Polls until its lease is over: at no time it may be over and alive. */
static void await_over(struct guest *guest)
{
    struct party *party = guest->party;
    uint64_t begin = task_now();
    while (!is_over(guest, 1)) {
        CHECK(party, !atomic_load_relaxed(&party->failed), "given up");
        CHECK(party, task_now() - begin < party->way->patience_ns, "a fenced lease does not end");
        task_sleep(party->way->read_lease_ns / 200);
    }
    CHECK(party, !fabric_lease_alive(party->fabrics[1]), "it is over and alive");
}

/* Stages of what follows: at an odd one the process that is fenced resumes its lease, at an even one it does
 * not. numbers[0]: the stage that it has seen. */
#define RESUMES_LAST 100u

static bool has_seen(struct guest *guest, void *stage)
{
    /* acquire: what it did before */
    return atomic_load_acquire(&guest->party->numbers[0]) >= *(uint64_t *)stage;
}

/* The lease is alive, and the process will not resume it any more. *stage: the last one. False: it has
 * failed. */
static bool alive_and_left(struct guest *guest, uint64_t *stage)
{
    struct party *party = guest->party;
    unsigned other = 1, times = 0;
    for (;;) {
        party_reach(party, ++*stage);
        if (!party_until(guest, is_alive, &other))
            party_fail(party, "it is not resumed");
        party_reach(party, ++*stage);
        if (!party_until(guest, has_seen, stage))
            party_fail(party, "who resumes it stands still");
        if (atomic_load_relaxed(&party->failed))
            return false;
        if (is_alive(guest, &other))
            return true;
        /* its connection was lost, or it has lapsed */
        if (!party->way->busy || ++times > SPOILT_MAX) {
            party_fail(party, "it does not stay alive");
            return false;
        }
    }
}

static void end_leases(struct guest *guest)
{
    struct party *party = guest->party;
    unsigned other = 1;
    uint64_t stage = 0;
    CHECK(party, party_until(guest, is_alive, &other), "it does not begin");
    CHECK(party, !fabric_fence(guest->endpoint, 1, party->processes[1], NULL), "fabric_fence");
    party_sleep_leases(guest, 2.5);
    CHECK(party, !is_over(guest, 1), "fenced elsewhere, its lease is over");
    for (uint64_t round = 1; round <= 3; round++) {
        if (!alive_and_left(guest, &stage))
            return;
        int status = fabric_fence(guest->endpoint, HOME, party->processes[1], NULL);
        CHECK(party, !status, "fabric_fence: %s", error_name(status));
        await_over(guest);
        if (atomic_load_relaxed(&party->failed))
            return;
        CHECK(party, party_until(guest, is_listed, &party->processes[1]), "it does not join anew");
        CHECK(party, is_over(guest, 1), "the lease that was over is not over any more");
        party_sleep_leases(guest, 1);
        CHECK(party, !fabric_lease_alive(party->fabrics[1]), "it comes back by itself");
    }
    CHECK(party, alive_and_left(guest, &stage), "it is not resumed at last");
    party_reach(party, RESUMES_LAST);
}

/* The process that is fenced looks up its rights when it may, once for each incarnation. */
static void resume_often(struct guest *guest)
{
    struct party *party = guest->party;
    uint64_t resumed = 0, stage = 0;
    while (stage < RESUMES_LAST && !atomic_load_relaxed(&party->failed)) {
        stage = atomic_load_acquire(&party->stage);      /* acquire: see party_reach */
        atomic_store_release(&party->numbers[0], stage); /* release: what was resumed before is */
        uint64_t incarnation = fabric_incarnation(guest->fabric);
        if (stage % 2 == 1 && incarnation != resumed && reaches_home(guest, NULL)) {
            resumed = incarnation;
            fabric_lease_resume(guest->fabric, incarnation);
        }
        task_sleep(20000);
    }
}

static void case_over(struct party *party)
{
    const struct party_part parts[] = {{0, 1, end_leases}, {1, 1, resume_often}};
    party_run(party, parts, 2);
}

/* A process that stands still while its lease is ended believes its own clock when it goes on. */
static void end_lease_of_stalled(struct guest *guest)
{
    struct party *party = guest->party;
    unsigned other = 1;
    CHECK(party, party_until(guest, is_alive, &other), "it does not begin");
    party_reach(party, 1);
    task_sleep(party->way->read_lease_ns / 2);
    party->way->stall(party->way->context, 1, 4 * party->way->read_lease_ns);
    int status = fabric_fence(guest->endpoint, HOME, party->processes[1], NULL);
    CHECK(party, !status, "fabric_fence: %s", error_name(status));
    await_over(guest);
    party_reach(party, 2);
}

static void look_often(struct guest *guest)
{
    struct party *party = guest->party;
    uint64_t begin = task_now(), looks = 0;
    CHECK(party, party_await(guest, 1), "the other is not ready");
    for (;;) {
        /* acquire: what is looked at next is after the end */
        bool ended = atomic_load_acquire(&party->stage) >= 2;
        bool alive = fabric_lease_alive(guest->fabric);
        CHECK(party, !ended || !alive, "its lease was ended, and it believes in it");
        if (ended && looks++ > 100)
            return;
        CHECK(party, task_now() - begin < party->way->patience_ns && !atomic_load_relaxed(&party->failed),
              "it was not ended");
        task_sleep(party->way->read_lease_ns / 100);
    }
}

static void case_stalled(struct party *party)
{
    const struct party_part parts[] = {{0, 1, end_lease_of_stalled}, {1, 2, look_often}};
    party_run(party, parts, 2);
}

/* A dead one is fenced at once, and its lease ends. */
static void hold_and_die(struct guest *guest)
{
    struct party *party = guest->party;
    uint64_t incarnation = fabric_incarnation(guest->fabric);
    guest->dead = true;
    for (uint16_t node = 0; node < CONFORMANCE_PEER_MEMORY; node++)
        CHECK(party, !take_lock(guest, node, incarnation), "its lock is not free");
    party_reach(party, 1);
    party_await(guest, 100);
}

static void fence_the_dead(struct guest *guest)
{
    struct party *party = guest->party;
    uint64_t lock = 1;
    CHECK(party, party_await(guest, 1), "the other is not ready");
    party->way->kill(party->way->context, 1);
    for (uint16_t node = 0; node < CONFORMANCE_PEER_MEMORY; node++) {
        int status = fabric_fence(guest->endpoint, node, party->processes[1], NULL);
        CHECK(party, !status, "fabric_fence of the dead: %s", error_name(status));
        CHECK(party, !read_word(guest, gaddr_make(node, LOCK), &lock) && !lock,
              "a lock of the dead is not freed");
    }
    CHECK(party, !is_listed(guest, &party->processes[1]), "the fenced are listed");
    uint64_t begin = task_now();
    while (!is_over(guest, 1) && !atomic_load_relaxed(&party->failed)) {
        CHECK(party, task_now() - begin < party->way->patience_ns, "the lease of the dead does not end");
        task_sleep(party->way->read_lease_ns / 20);
    }
    party_reach(party, 100);
}

static void await_end_of_dead(struct guest *guest)
{
    struct party *party = guest->party;
    CHECK(party, party_until(guest, is_not_listed, &party->processes[1]), "the dead are listed for ever");
    CHECK(party, is_over(guest, 1), "its lease is not over");
}

static void await_next(struct guest *guest)
{
    struct party *party = guest->party;
    unsigned other = 1;
    CHECK(party, party_until(guest, is_listed, &party->processes[1]), "the next process is not listed");
    CHECK(party, party_until(guest, is_alive, &other), "it has no lease");
    CHECK(party, !is_over(guest, 1), "its lease is over");
}

static void case_dead(struct party *party)
{
    const struct party_part parts[] = {{0, 1, fence_the_dead}, {1, 1, hold_and_die}};
    const struct party_part after[] = {{0, 1, await_end_of_dead}}, next[] = {{0, 1, await_next}};
    party_run(party, parts, 2);
    if (!party->failed)
        party_run(party, after, 1);
    if (party->failed || !party->way->restart)
        return;
    int status = party->way->restart(party->way->context, 1, &party->fabrics[1]);
    CHECK(party, !status, "it is not restarted: %s", error_name(status));
    party->processes[1] = fabric_self(party->fabrics[1]);
    party_run(party, next, 1);
}

/* Fences and cuts from all sides while all look at their leases: none is over and alive. Each process counts
 * its resumptions; one that is over since belongs to an earlier count. */
static void look_and_resume(struct guest *guest)
{
    struct party *party = guest->party;
    unsigned self = guest->compute;
    for (unsigned round = 0; round < 12 && !atomic_load_relaxed(&party->failed); round++) {
        unsigned other =
            (self + 1 + (unsigned)random_below(&guest->random, party->computes - 1)) % party->computes;
        uint64_t resumed = atomic_load_acquire(&party->numbers[other]);
        int status = fabric_fence(guest->endpoint, HOME, party->processes[other], NULL);
        bool over = false;
        uint64_t begin = task_now();
        while (!status && !over && task_now() - begin < party->way->patience_ns) {
            task_sleep(party->way->read_lease_ns / 20);
            status = fabric_lease_over(guest->endpoint, party->processes[other], &over, NULL);
        }
        bool alive = fabric_lease_alive(party->fabrics[other]);
        bool same = resumed == atomic_load_acquire(&party->numbers[other]);
        CHECK(party, status || over, "a fenced lease does not end");
        CHECK(party, status || !alive || !same, "it is over and alive");
        CHECK(party, !status || status == BANYAN_ENET || status == BANYAN_EFENCED, "it says %s",
              error_name(status));
        if (fabric_lease_alive(guest->fabric))
            continue;
        uint64_t incarnation = fabric_incarnation(guest->fabric);
        CHECK(party, party_until(guest, reaches_home, NULL), "it is not connected again");
        __atomic_add_fetch(&party->numbers[self], 1, __ATOMIC_ACQ_REL); /* before it can be alive again */
        fabric_lease_resume(guest->fabric, incarnation);
    }
}

static void case_all_fence_all(struct party *party)
{
    const struct party_part parts[] = {
        {0, 1, look_and_resume}, {1, 1, look_and_resume}, {2, 1, look_and_resume}};
    party_run(party, parts, 3);
}

/* ---- where nothing lapses ---- */

static void live_together(struct guest *guest)
{
    struct party *party = guest->party;
    bool over = true;
    CHECK(party, fabric_lease_alive(guest->fabric) && fabric_lease_alive(party->fabrics[1]), "it has lapsed");
    CHECK(party, fabric_lease_lapses(guest->fabric) == 0, "a lapse is counted");
    fabric_lease_resume(guest->fabric, fabric_incarnation(guest->fabric));
    CHECK(party, fabric_fence(guest->endpoint, 1, party->processes[1], NULL) == BANYAN_ENOTSUP,
          "a backend without leases fences");
    CHECK(party, !fabric_lease_over(guest->endpoint, party->processes[1], &over, NULL) && !over,
          "the lease of the living is over");
}

static void case_no_leases(struct party *party)
{
    const struct party_part parts[] = {{0, 1, live_together}};
    party_run(party, parts, 1);
}

const struct party_case party_lease_cases[] = {
    {"leases stay alive", 2, PARTY_LEASES, case_alive},
    {"a lease lapses and comes back", 2, PARTY_LEASES | PARTY_STALL, case_lapse},
    {"a loss of the home node", 2, PARTY_LEASES | PARTY_LOSE, case_home_loss},
    {"a loss of another memory node", 2, PARTY_LEASES | PARTY_LOSE, case_other_loss},
    {"fencing ends what was posted", 2, PARTY_LEASES, case_fence},
    {"fencing the absent", 2, PARTY_LEASES, case_fence_absent},
    {"a fenced lease ends", 2, PARTY_LEASES, case_over},
    {"a stalled lease ends", 2, PARTY_LEASES | PARTY_STALL, case_stalled},
    {"the lease of the dead ends", 2, PARTY_LEASES | PARTY_KILL, case_dead},
    {"all fence all", 3, PARTY_LEASES, case_all_fence_all},
    {"compute nodes of one process", 2, PARTY_NO_LEASES, case_no_leases},
    {.name = NULL},
};
