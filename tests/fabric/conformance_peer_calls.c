/* conformance_peer_calls.c - the cases about processes, notices and peer calls (contract:
 * conformance_party.h). Each is named after what it proves. */
#include <stdlib.h>
#include <string.h>

#include "conformance_party.h"

#define BYTES FABRIC_PEER_BYTES_MAX

static void stop_all(struct party *party)
{
    for (unsigned i = 0; i < party->computes; i++)
        fabric_peer_stop(party->fabrics[i]);
}

/* ---- names ---- */

static void list_processes(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_process listed[CONFORMANCE_PEERS_MAX + 1];
    uint32_t count = 0;
    int status = fabric_processes(guest->endpoint, listed, CONFORMANCE_PEERS_MAX + 1, &count, NULL);
    CHECK(party, !status, "fabric_processes: %s", error_name(status));
    CHECK(party, count == party->computes, "%u processes are listed, there are %u", count, party->computes);
    for (uint32_t i = 1; i < count; i++)
        CHECK(party, listed[i - 1].compute_id < listed[i].compute_id, "ids do not ascend");
    for (unsigned i = 0; i < party->computes; i++) {
        unsigned found = 0;
        for (uint32_t at = 0; at < count; at++)
            found += fabric_process_equal(listed[at], party->processes[i]);
        CHECK(party, found == 1, "compute node %u is listed %u times", i, found);
    }
    struct fabric_process few[2] = {{.instance = 0}, {.instance = 77, .compute_id = 77}};
    status = fabric_processes(guest->endpoint, few, 1, &count, NULL);
    CHECK(party, !status && count == party->computes, "a short list counts %u of %u", count, party->computes);
    CHECK(party, fabric_process_equal(few[0], listed[0]), "a short list does not begin with the least id");
    CHECK(party, few[1].instance == 77 && few[1].compute_id == 77, "a list wrote behind its capacity");
    status = fabric_processes(guest->endpoint, NULL, 0, &count, NULL);
    CHECK(party, !status && count == party->computes, "no list counts %u of %u", count, party->computes);
}

static void case_processes(struct party *party)
{
    for (unsigned i = 0; i < party->computes; i++) {
        struct fabric_process self = fabric_self(party->fabrics[i]);
        CHECK(party, self.instance, "instance 0");
        CHECK(party, self.compute_id == fabric_capabilities(party->fabrics[i])->compute_id, "another id");
        for (unsigned other = 0; other < i; other++)
            CHECK(party,
                  self.compute_id != party->processes[other].compute_id &&
                      self.instance != party->processes[other].instance,
                  "compute nodes %u and %u have one name", i, other);
    }
    const struct party_part parts[] = {{0, 1, list_processes}, {2, 1, list_processes}};
    party_run(party, parts, 2);
}

/* ---- notices ---- */

static void heard(void *context)
{
    struct party *party = context;
    atomic_add_relaxed(&party->heard, 1); /* a count; read when the notice has been seen */
}

static bool was_told(struct guest *guest, void *before)
{
    return atomic_load_relaxed(&guest->party->heard) > *(uint64_t *)before;
}

struct expected_notice {
    unsigned compute;
    uint64_t number;
};

static bool notice_came(struct guest *guest, void *context)
{
    const struct expected_notice *expected = context;
    return fabric_notice(guest->party->fabrics[expected->compute]) == expected->number;
}

static void notify_all(struct guest *guest)
{
    struct party *party = guest->party;
    static const uint64_t numbers[] = {5, 3, 6, UINT64_C(1) << 40, 7, 0};
    uint64_t greatest = 0;
    CHECK(party, fabric_notice(guest->fabric) == 0, "there is a notice before any was sent");
    fabric_notice_listen(party->fabrics[1], heard, party);
    for (unsigned i = 0; numbers[i]; i++) {
        uint64_t before = atomic_load_relaxed(&party->heard);
        bool grows = numbers[i] > greatest;
        int status = fabric_notify(guest->endpoint, numbers[i], NULL);
        CHECK(party, !status, "fabric_notify: %s", error_name(status));
        greatest = grows ? numbers[i] : greatest;
        for (unsigned compute = 0; compute < party->computes; compute++) {
            struct expected_notice expected = {compute, greatest};
            CHECK(party, party_until(guest, notice_came, &expected),
                  "compute node %u has notice %llu, not %llu", compute,
                  (unsigned long long)fabric_notice(party->fabrics[compute]), (unsigned long long)greatest);
        }
        CHECK(party, !grows || party_until(guest, was_told, &before), "who listens is not told of notice %u",
              i);
        if (!grows)
            task_sleep(200000); /* would it be lowered? */
    }
    fabric_notice_listen(party->fabrics[1], NULL, NULL);
    uint64_t before = atomic_load_relaxed(&party->heard);
    struct expected_notice last = {1, greatest + 1};
    CHECK(party,
          !fabric_notify(guest->endpoint, greatest + 1, NULL) && party_until(guest, notice_came, &last),
          "a notice that nobody listens for does not come");
    CHECK(party, atomic_load_relaxed(&party->heard) == before, "who does not listen any more is told");
}

static void case_notices(struct party *party)
{
    const struct party_part parts[] = {{0, 1, notify_all}};
    party_run(party, parts, 1);
}

/* From several compute nodes at once: the greatest comes everywhere, and none goes back. */
static void notify_often(struct guest *guest)
{
    struct party *party = guest->party;
    uint64_t last = 0;
    for (uint64_t i = 1; i <= party->rounds; i++) {
        CHECK(party, !fabric_notify(guest->endpoint, i * party->computes + guest->compute, NULL),
              "fabric_notify failed");
        uint64_t notice = fabric_notice(guest->fabric);
        CHECK(party, notice >= last, "a notice went from %llu back to %llu", (unsigned long long)last,
              (unsigned long long)notice);
        last = notice;
    }
    struct expected_notice expected = {guest->compute, (party->rounds + 1) * party->computes - 1};
    CHECK(party, party_until(guest, notice_came, &expected), "the greatest notice did not come");
}

static void case_notices_of_all(struct party *party)
{
    const struct party_part parts[] = {{0, 1, notify_often}, {1, 1, notify_often}, {2, 1, notify_often}};
    party_run(party, parts, 3);
}

/* ---- calls ---- */

static void call_each_length(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_process peer = party->processes[1];
    for (size_t length = 1; length <= BYTES; length = length < 70 ? length + 1 : length + length / 7) {
        int status = party_call(guest, peer, length);
        CHECK(party, !status, "a call of %zu bytes: %s", length, error_name(status));
    }
    for (size_t length = BYTES - 2; length <= BYTES; length++)
        CHECK(party, !party_call(guest, peer, length), "a call of %zu bytes failed", length);
    stop_all(party);
}

static void case_lengths(struct party *party)
{
    const struct party_part parts[] = {{1, 1, party_serve}, {0, 1, call_each_length}};
    party_run(party, parts, 2);
}

/* Errors come back with the reply's bytes; a reply may be empty, or too long for its caller. */
static void call_for_errors(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_process peer = party->processes[1];
    static const int errors[] = {
        0, BANYAN_ENOTFOUND, BANYAN_EFENCED, BANYAN_ECONFLICT, BANYAN_EINVAL, BANYAN_EUNKNOWN};
    for (unsigned i = 0; i < sizeof errors / sizeof errors[0]; i++)
        for (size_t length = 2; length < 40; length += 19) {
            uint8_t request[64] = {0xff, (uint8_t)-errors[i], 1, 2, 3}, reply[64] = {99};
            size_t reply_length = 7;
            int status = fabric_peer_call(guest->endpoint, peer, request, length, reply, sizeof reply,
                                          &reply_length, NULL);
            CHECK(party, status == errors[i], "the peer said %s, its caller hears %s", error_name(errors[i]),
                  error_name(status));
            CHECK(party, reply_length == length - 2 && !memcmp(reply, request + 2, reply_length),
                  "a reply of %zu bytes with status %d has %zu, or others", length - 2, errors[i],
                  reply_length);
        }
    uint8_t request[20] = {1}, reply[20];
    memset(reply, 0xab, sizeof reply);
    size_t reply_length = 7;
    int status = fabric_peer_call(guest->endpoint, peer, request, 20, reply, 19, &reply_length, NULL);
    CHECK(party, status == BANYAN_EINVAL && reply_length == 0, "a reply too long: %s, %zu bytes",
          error_name(status), reply_length);
    CHECK(party, reply[19] == 0xab, "a reply too long wrote behind its buffer");
    status = fabric_peer_call(guest->endpoint, peer, request, 20, reply, 20, &reply_length, NULL);
    CHECK(party, !status && reply_length == 20, "a reply that just fits: %s", error_name(status));
    status = fabric_peer_call(guest->endpoint, peer, "\xff", 1, reply, 20, &reply_length, NULL);
    CHECK(party, status == BANYAN_EINVAL && reply_length == 0, "a reply longer than any: %s, %zu bytes",
          error_name(status), reply_length);
    stop_all(party);
}

static void case_errors(struct party *party)
{
    const struct party_part parts[] = {{1, 2, party_serve}, {0, 1, call_for_errors}};
    party_run(party, parts, 2);
}

static void call_with_nonsense(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_process peer = party->processes[1], other = peer;
    uint8_t *bytes = calloc(1, BYTES + 1);
    size_t length = 9;
    if (!bytes)
        abort();
    int none = fabric_peer_call(guest->endpoint, peer, bytes, 0, bytes, 10, &length, NULL);
    int lengthy = fabric_peer_call(guest->endpoint, peer, bytes, BYTES + 1, bytes, 10, &length, NULL);
    int roomy = fabric_peer_call(guest->endpoint, peer, bytes, 8, bytes, BYTES + 1, &length, NULL);
    int own = fabric_peer_call(guest->endpoint, guest->self, bytes, 8, bytes, 8, &length, NULL);
    free(bytes);
    CHECK(party, none == BANYAN_EINVAL && lengthy == BANYAN_EINVAL && roomy == BANYAN_EINVAL,
          "a length out of range is not refused");
    CHECK(party, own == BANYAN_EINVAL, "a call to the own process: %s", error_name(own));
    other.instance += 1000;
    CHECK(party, party_call(guest, other, 8) == BANYAN_EFENCED, "another instance is called");
    other = (struct fabric_process){.instance = peer.instance, .compute_id = guest->self.compute_id};
    CHECK(party, party_call(guest, other, 8) == BANYAN_EFENCED, "another's instance is called");
    other = (struct fabric_process){.instance = peer.instance, .compute_id = 60000};
    CHECK(party, party_call(guest, other, 8) == BANYAN_EFENCED, "an unknown id is called");
    CHECK(party, atomic_load_relaxed(&party->served) == 0, "what was refused was served");
    CHECK(party, !party_call(guest, peer, 8), "the right process is not called");
    char text[200] = "";
    fabric_peer_describe(guest->fabric, peer, text, sizeof text);
    CHECK(party, strlen(text) < sizeof text, "a description without end");
    char brief[4] = {9, 9, 9, 9};
    fabric_peer_describe(guest->fabric, peer, brief, 2);
    CHECK(party, brief[2] == 9 && (brief[0] == 0 || brief[1] == 0), "a description does not fit its room");
    stop_all(party);
}

static void case_nonsense(struct party *party)
{
    const struct party_part parts[] = {{1, 1, party_serve}, {0, 1, call_with_nonsense}};
    party_run(party, parts, 2);
}

/* Of all compute nodes to all others, each task with requests of its own. The last one to end stops them. */
static void call_all(struct guest *guest)
{
    struct party *party = guest->party;
    unsigned callers = 8 * party->computes;
    for (unsigned round = 0; round < party->rounds && !atomic_load_relaxed(&party->failed); round++) {
        unsigned to = (guest->compute + 1 + round % (party->computes - 1)) % party->computes;
        size_t length = 1 + random_below(&guest->random, round % 20 == 0 ? BYTES : 300);
        int status = party_call(guest, party->processes[to], length);
        CHECK(party, !status, "from %u to %u: %s", guest->compute, to, error_name(status));
    }
    /* acquire and release: the counts of all are there for the last */
    if (__atomic_add_fetch(&party->numbers[0], 1, __ATOMIC_ACQ_REL) == callers)
        stop_all(party);
}

static void case_all_to_all(struct party *party)
{
    const struct party_part parts[] = {{0, 3, party_serve}, {1, 1, party_serve}, {2, 5, party_serve},
                                       {0, 8, call_all},    {1, 8, call_all},    {2, 8, call_all}};
    party_run(party, parts, 6);
    stop_all(party);
    CHECK(party, party->failed || party->served == 24ull * party->rounds, "%llu of %u requests were served",
          (unsigned long long)party->served, 24 * party->rounds);
}

/* A task that serves calls another compute node itself, as one that finishes a transfer does. */
static void serve_by_calling(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_peer_request *request;
    while (!fabric_peer_receive(guest->endpoint, &request)) {
        int status = party_call(guest, party->processes[2], request->length);
        fabric_peer_reply(guest->endpoint, request, status, NULL, 0);
    }
}

static void call_through(struct guest *guest)
{
    struct party *party = guest->party;
    for (unsigned round = 0; round < party->rounds; round++) {
        uint8_t request[100] = {1};
        size_t reply_length;
        int status = fabric_peer_call(guest->endpoint, party->processes[1], request, 1 + round % 100, request,
                                      sizeof request, &reply_length, NULL);
        CHECK(party, !status && reply_length == 0, "through another: %s", error_name(status));
    }
    stop_all(party);
}

static void case_chains(struct party *party)
{
    const struct party_part parts[] = {{2, 1, party_serve}, {1, 1, serve_by_calling}, {0, 1, call_through}};
    party_run(party, parts, 3);
}

/* A request comes before any task waits for it. */
static void call_early(struct guest *guest)
{
    party_reach(guest->party, 1);
    int status = party_call(guest, guest->party->processes[1], 33);
    CHECK(guest->party, !status, "a request that waited: %s", error_name(status));
    stop_all(guest->party);
}

static void serve_late(struct guest *guest)
{
    CHECK(guest->party, party_await(guest, 1), "nobody calls");
    task_sleep(300000);
    party_serve(guest);
}

static void case_requests_wait(struct party *party)
{
    const struct party_part parts[] = {{1, 1, serve_late}, {0, 1, call_early}};
    party_run(party, parts, 2);
}

/* ---- the end of peers ---- */

/* Has a request when its process is stopped, and still replies. */
static void serve_past_stop(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_peer_request *request;
    CHECK(party, !fabric_peer_receive(guest->endpoint, &request), "nothing is received");
    party_reach(party, 2);
    CHECK(party, party_await(guest, 3), "it was never stopped");
    fabric_peer_reply(guest->endpoint, request, 0, "\2", 1);
    CHECK(party, fabric_peer_receive(guest->endpoint, &request) == BANYAN_EABORT, "it is not stopped");
}

static void call_before_stop(struct guest *guest)
{
    struct party *party = guest->party;
    uint8_t reply = 0;
    size_t reply_length;
    int status =
        fabric_peer_call(guest->endpoint, party->processes[1], "\1", 1, &reply, 1, &reply_length, NULL);
    CHECK(party, !status && reply == 2, "what was received before a stop: %s", error_name(status));
}

/* Is not received: the only task that serves is busy. */
static void call_meanwhile(struct guest *guest)
{
    struct party *party = guest->party;
    CHECK(party, party_await(guest, 2), "the first request was not received");
    int status = party_call(guest, party->processes[1], 5);
    CHECK(party, party_unanswered(status), "what was not received before a stop: %s", error_name(status));
}

static void stop_and_call(struct guest *guest)
{
    struct party *party = guest->party;
    CHECK(party, party_await(guest, 2), "the first request was not received");
    task_sleep(300000); /* until the second waits */
    fabric_peer_stop(party->fabrics[1]);
    fabric_peer_stop(party->fabrics[1]);
    int status = party_call(guest, party->processes[1], 5);
    party_reach(party, 3);
    CHECK(party, party_unanswered(status), "a stopped process: %s", error_name(status));
}

static void case_stop(struct party *party)
{
    const struct party_part parts[] = {
        {1, 1, serve_past_stop}, {0, 1, call_before_stop}, {0, 1, call_meanwhile}, {2, 1, stop_and_call}};
    party_run(party, parts, 4);
    CHECK(party, party->failed || party->served == 0, "a stopped process serves");
}

/* Nobody receives: the time-out is the caller's only end. */
static void call_nobody(struct guest *guest)
{
    struct party *party = guest->party;
    uint64_t begin = task_now();
    int status = party_call(guest, party->processes[1], 5);
    CHECK(party, status == BANYAN_ETIMEOUT || status == BANYAN_ENET, "nobody serves: %s", error_name(status));
    CHECK(party, task_now() - begin <= party->way->patience_ns, "the time-out is longer than is said");
}

static void case_time_out(struct party *party)
{
    const struct party_part parts[] = {{0, 1, call_nobody}};
    party_run(party, parts, 1);
}

static void die_with_request(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_peer_request *request;
    guest->dead = true;
    if (fabric_peer_receive(guest->endpoint, &request))
        return;
    party_reach(party, 1);
    party_await(guest, 100); /* until it dies; where its tasks go on it may reply in vain */
    fabric_peer_reply(guest->endpoint, request, 0, "\1", 1);
}

static void call_the_dying(struct guest *guest)
{
    struct party *party = guest->party;
    uint8_t reply;
    size_t reply_length = 5;
    int status =
        fabric_peer_call(guest->endpoint, party->processes[1], "\7", 1, &reply, 1, &reply_length, NULL);
    CHECK(party, status == BANYAN_ENET || status == BANYAN_ETIMEOUT, "its server has died: %s",
          error_name(status));
    CHECK(party, reply_length == 0, "a reply of the dead");
    status = party_call(guest, party->processes[1], 9);
    CHECK(party, party_unanswered(status), "a dead peer answers: %s", error_name(status));
    CHECK(party, !party_call(guest, party->processes[2], 9), "the others are not called any more");
    party_reach(party, 100);
    fabric_peer_stop(party->fabrics[2]);
}

static void kill_the_server(struct guest *guest)
{
    struct party *party = guest->party;
    CHECK(party, party_await(guest, 1), "the request did not come");
    party->way->kill(party->way->context, 1);
}

static bool answers_again(struct guest *guest, void *context)
{
    (void)context;
    return !party_call(guest, guest->party->processes[1], 6);
}

static bool refuses(struct guest *guest, void *process)
{
    return party_call(guest, *(struct fabric_process *)process, 6) == BANYAN_EFENCED;
}

static void call_the_next(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_process before = {.instance = party->numbers[0],
                                    .compute_id = party->processes[1].compute_id};
    CHECK(party, party_until(guest, answers_again, NULL), "the next process does not answer");
    CHECK(party, party_until(guest, refuses, &before), "calls to the process before are not refused");
    fabric_peer_stop(party->fabrics[1]);
}

static void case_death(struct party *party)
{
    const struct party_part parts[] = {
        {1, 1, die_with_request}, {2, 1, party_serve}, {0, 1, call_the_dying}, {2, 1, kill_the_server}};
    party_run(party, parts, 4);
    if (party->failed || !party->way->restart)
        return;
    int status = party->way->restart(party->way->context, 1, &party->fabrics[1]);
    CHECK(party, !status, "it is not restarted: %s", error_name(status));
    struct fabric_process next = fabric_self(party->fabrics[1]);
    CHECK(party, next.compute_id == party->processes[1].compute_id, "the next process has another id");
    CHECK(party, next.instance && next.instance != party->processes[1].instance, "an instance is used again");
    party->numbers[0] = party->processes[1].instance;
    party->processes[1] = next;
    const struct party_part again[] = {{1, 1, party_serve}, {0, 1, call_the_next}};
    party_run(party, again, 2);
}

/* What was replied before a death has come. */
static void die_having_replied(struct guest *guest)
{
    guest->dead = true;
    party_serve(guest);
    party_await(guest, 100);
}

static void call_then_kill(struct guest *guest)
{
    struct party *party = guest->party;
    CHECK(party, !party_call(guest, party->processes[1], 50), "a call failed");
    party->way->kill(party->way->context, 1);
    int status = party_call(guest, party->processes[1], 50);
    CHECK(party, party_unanswered(status), "a dead peer answers: %s", error_name(status));
    CHECK(party, atomic_load_relaxed(&party->served) == 1, "the dead serve");
    party_reach(party, 100);
    fabric_peer_stop(party->fabrics[1]); /* for tasks of it that go on */
}

static void case_death_after(struct party *party)
{
    const struct party_part parts[] = {{1, 2, die_having_replied}, {0, 1, call_then_kill}};
    party_run(party, parts, 2);
}

static void call_across_a_cut(struct guest *guest)
{
    struct party *party = guest->party;
    const struct conformance_way *way = party->way;
    CHECK(party, !party_call(guest, party->processes[1], 10), "a call failed");
    way->cut(way->context, 0, 1);
    uint64_t served = atomic_load_relaxed(&party->served);
    int status = party_call(guest, party->processes[1], 10);
    CHECK(party, party_unanswered(status), "a call across a cut: %s", error_name(status));
    CHECK(party, atomic_load_relaxed(&party->served) == served, "a request came across a cut");
    CHECK(party, !party_call(guest, party->processes[2], 10), "the cut parts others");
    way->heal(way->context, 0, 1);
    CHECK(party, party_until(guest, answers_again, NULL), "the healed do not reach each other");
    stop_all(party);
}

static void case_cuts(struct party *party)
{
    const struct party_part parts[] = {{1, 1, party_serve}, {2, 1, party_serve}, {0, 1, call_across_a_cut}};
    party_run(party, parts, 3);
}

static void call_the_hidden(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_peer_request *request;
    party->way->hide(party->way->context, 1);
    CHECK(party, party_until(guest, refuses, &party->processes[1]), "a peer without an address is called");
    party_reach(party, 1);
    int status = fabric_peer_receive(guest->endpoint, &request);
    CHECK(party, status == BANYAN_EABORT, "who has an address: %s", error_name(status));
}

static void receive_hidden(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_peer_request *request;
    CHECK(party, party_await(guest, 1), "it is not hidden");
    int status = fabric_peer_receive(guest->endpoint, &request);
    CHECK(party, status == BANYAN_ENOTSUP, "who has no address: %s", error_name(status));
    CHECK(party, !party_call(guest, party->processes[2], 8), "who has no address cannot call");
    stop_all(party);
}

static void case_hidden(struct party *party)
{
    const struct party_part parts[] = {{1, 1, receive_hidden}, {2, 1, party_serve}, {0, 1, call_the_hidden}};
    party_run(party, parts, 3);
}

/* ---- costs ---- */

static void count_costs(struct guest *guest)
{
    struct party *party = guest->party;
    struct fabric_process unknown = {.instance = party->processes[1].instance + 1000,
                                     .compute_id = party->processes[1].compute_id};
    struct fabric_cost cost = {0};
    uint32_t count;
    bool over;
    party_call(guest, party->processes[1], 10);
    party_call(guest, unknown, 10);
    CHECK(party, guest->cost.round_trips == 2 && guest->cost.peer_calls == 2 && guest->cost.rpcs == 0,
          "two calls are %llu round trips, %llu calls", (unsigned long long)guest->cost.round_trips,
          (unsigned long long)guest->cost.peer_calls);
    CHECK(party,
          !fabric_processes(guest->endpoint, NULL, 0, &count, &cost) &&
              !fabric_notify(guest->endpoint, 1, &cost) &&
              !fabric_lease_over(guest->endpoint, party->processes[1], &over, &cost) &&
              !fabric_fence(guest->endpoint, 1, unknown, &cost),
          "a call to a memory node failed");
    CHECK(party, !over && cost.round_trips == 4 && cost.rpcs == 4 && cost.peer_calls == 0 && cost.lists == 0,
          "four calls to memory nodes are %llu round trips, %llu RPCs", (unsigned long long)cost.round_trips,
          (unsigned long long)cost.rpcs);
    CHECK(party, !fabric_lease_over(guest->endpoint, guest->self, &over, &cost) && !over,
          "the lease of the process itself is over");
    CHECK(party,
          fabric_fence(guest->endpoint, 0, guest->self, &cost) == BANYAN_EINVAL &&
              fabric_fence(guest->endpoint, CONFORMANCE_PEER_MEMORY, unknown, &cost) == BANYAN_EINVAL,
          "fencing itself, or at no memory node, is not refused");
    CHECK(party, cost.rpcs == 4, "what asks no memory node is counted");
    struct fabric_cost sum = guest->cost;
    fabric_cost_add(&sum, &guest->cost);
    CHECK(party, sum.peer_calls == 4, "added wrong");
    stop_all(party);
}

static void case_costs(struct party *party)
{
    const struct party_part parts[] = {{1, 1, party_serve}, {0, 1, count_costs}};
    party_run(party, parts, 2);
}

const struct party_case party_call_cases[] = {
    {"processes have names", 3, 0, case_processes},
    {"notices grow", 3, 0, case_notices},
    {"notices of all", 3, 0, case_notices_of_all},
    {"calls of every length", 2, 0, case_lengths},
    {"errors of the peer", 2, 0, case_errors},
    {"nonsense is refused", 2, 0, case_nonsense},
    {"all call all", 3, 0, case_all_to_all},
    {"servers call others", 3, 0, case_chains},
    {"requests wait for their receiver", 2, 0, case_requests_wait},
    {"stopped peers", 3, 0, case_stop},
    {"nobody answers", 2, PARTY_TIMEOUT, case_time_out},
    {"a peer dies with a request", 3, PARTY_KILL, case_death},
    {"a peer dies after its reply", 2, PARTY_KILL, case_death_after},
    {"peers that are cut", 3, PARTY_CUT, case_cuts},
    {"a peer without an address", 3, PARTY_HIDE, case_hidden},
    {"costs of calls", 2, 0, case_costs},
    {.name = NULL},
};
