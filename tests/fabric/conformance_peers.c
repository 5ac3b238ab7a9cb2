/* conformance_peers.c - the suite of peers.h: its trials and what they share (contract: conformance_peers.h,
 * conformance_party.h). The cases are in conformance_peer_calls.c and conformance_peer_leases.c. */
#include "conformance_peers.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conformance_party.h"

void party_fail(struct party *party, const char *format, ...)
{
    spinlock_lock(&party->lock);
    if (!atomic_load_relaxed(&party->failed)) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(party->text, sizeof party->text, format, arguments);
        va_end(arguments);
    }
    atomic_store_relaxed(&party->failed, true);
    spinlock_unlock(&party->lock);
    for (unsigned i = 0; i < party->computes; i++) /* else those that serve would wait for ever */
        if (party->fabrics[i])
            fabric_peer_stop(party->fabrics[i]);
}

/* ---- tasks ---- */

static void guest_main(void *argument)
{
    struct guest *guest = argument;
    struct error error = {0};
    guest->endpoint = fabric_endpoint_open(guest->fabric, &error);
    if (!guest->endpoint) {
        party_fail(guest->party, "endpoint: %s", error.text);
    } else {
        guest->body(guest);
        fabric_endpoint_close(guest->endpoint);
    }
    guest->returned = true;
}

/* Compute nodes that the case has killed say so by their tasks. */
static void check_returned(struct party *party, const struct guest *guests, unsigned count)
{
    bool dead[CONFORMANCE_PEERS_MAX] = {false};
    for (unsigned i = 0; i < count; i++)
        dead[guests[i].compute] |= guests[i].dead;
    for (unsigned i = 0; i < count; i++)
        if (!guests[i].returned && !dead[guests[i].compute])
            party_fail(party, "task %u of %u, on compute node %u, did not return", i, count,
                       guests[i].compute);
}

void party_run(struct party *party, const struct party_part *parts, unsigned count)
{
    struct guest *guests = calloc(CONFORMANCE_PEER_TASKS, sizeof *guests);
    struct conformance_task tasks[CONFORMANCE_PEER_TASKS] = {{0}};
    unsigned total = 0;
    if (!guests)
        abort();
    for (unsigned part = 0; part < count; part++)
        for (unsigned i = 0; i < parts[part].count; i++, total++) {
            if (total == CONFORMANCE_PEER_TASKS)
                abort();
            struct guest *guest = &guests[total];
            *guest = (struct guest){.party = party,
                                    .compute = parts[part].compute,
                                    .index = total,
                                    .body = parts[part].body,
                                    .fabric = party->fabrics[parts[part].compute],
                                    .self = party->processes[parts[part].compute]};
            random_seed(&guest->random, total + 1);
            tasks[total] = (struct conformance_task){guest->compute, guest_main, guest};
        }
    party->way->run(party->way->context, tasks, total);
    check_returned(party, guests, total);
    for (unsigned i = 0; i < total; i++)
        free(guests[i].room);
    free(guests);
}

/* ---- waiting ---- */

bool party_until(struct guest *guest, bool (*condition)(struct guest *, void *), void *context)
{
    uint64_t begin = task_now();
    while (!condition(guest, context)) {
        if (atomic_load_relaxed(&guest->party->failed) || task_now() - begin > guest->party->way->patience_ns)
            return condition(guest, context);
        task_sleep(20000);
    }
    return true;
}

void party_reach(struct party *party, uint64_t stage)
{
    atomic_store_release(&party->stage, stage); /* release: with all that was done before */
}

static bool has_reached(struct guest *guest, void *stage)
{
    return atomic_load_acquire(&guest->party->stage) >= *(uint64_t *)stage;
}

bool party_await(struct guest *guest, uint64_t stage)
{
    return party_until(guest, has_reached, &stage);
}

void party_sleep_leases(const struct guest *guest, double leases)
{
    task_sleep((uint64_t)((double)guest->party->way->read_lease_ns * leases));
}

/* ---- calls ---- */

bool party_unanswered(int status)
{
    return status == BANYAN_ENET || status == BANYAN_ETIMEOUT || status == BANYAN_EFENCED;
}

static void answer(struct guest *guest, struct fabric_peer_request *request)
{
    const uint8_t *bytes = request->bytes;
    uint8_t *reply = guest->room;
    if (bytes[0] == 0xff && request->length >= 2) {
        fabric_peer_reply(guest->endpoint, request, -(int)bytes[1], bytes + 2, request->length - 2);
        return;
    }
    if (bytes[0] == 0xff) {
        fabric_peer_reply(guest->endpoint, request, 0, reply, FABRIC_PEER_BYTES_MAX + 1);
        return;
    }
    for (size_t i = 0; i < request->length; i++)
        reply[i] = (uint8_t)(bytes[i] + 1);
    fabric_peer_reply(guest->endpoint, request, 0, reply, request->length);
}

void party_serve(struct guest *guest)
{
    struct fabric_peer_request *request;
    int status;
    guest->room = calloc(1, FABRIC_PEER_BYTES_MAX + 1);
    if (!guest->room)
        abort();
    while (!(status = fabric_peer_receive(guest->endpoint, &request))) {
        /* relaxed: a count, read when its callers have been answered */
        atomic_add_relaxed(&guest->party->served, 1);
        if (request->length == 0 || request->length > FABRIC_PEER_BYTES_MAX)
            party_fail(guest->party, "a request of %zu bytes came", request->length);
        answer(guest, request);
    }
    CHECK(guest->party, status == BANYAN_EABORT, "fabric_peer_receive ended with %s", error_name(status));
    CHECK(guest->party, fabric_peer_receive(guest->endpoint, &request) == BANYAN_EABORT,
          "after a stop a task receives again");
}

int party_call(struct guest *guest, struct fabric_process peer, size_t length)
{
    uint8_t *request = malloc(2 * FABRIC_PEER_BYTES_MAX);
    size_t reply_length = 12345;
    if (!request)
        abort();
    uint8_t *reply = request + FABRIC_PEER_BYTES_MAX;
    for (size_t i = 0; i < length; i++)
        request[i] = (uint8_t)random_below(&guest->random, 255); /* not 0xff */
    int status = fabric_peer_call(guest->endpoint, peer, request, length, reply, FABRIC_PEER_BYTES_MAX,
                                  &reply_length, &guest->cost);
    if (reply_length != (status ? 0 : length))
        party_fail(guest->party, "a call of %zu bytes, status %d, has a reply of %zu bytes", length, status,
                   reply_length);
    for (size_t i = 0; !status && i < length; i++)
        if (reply[i] != (uint8_t)(request[i] + 1)) {
            party_fail(guest->party, "byte %zu of a reply of %zu is %u, not %u", i, length, reply[i],
                       (uint8_t)(request[i] + 1));
            break;
        }
    free(request);
    return status;
}

/* ---- running ---- */

static bool way_can(const struct conformance_way *way, unsigned needs)
{
    return !((needs & PARTY_LEASES && !way->read_lease_ns) || (needs & PARTY_LOSE && !way->lose) ||
             (needs & PARTY_STALL && !way->stall) || (needs & PARTY_KILL && !way->kill) ||
             (needs & PARTY_RESTART && !way->restart) || (needs & PARTY_CUT && !(way->cut && way->heal)) ||
             (needs & PARTY_HIDE && !way->hide) || (needs & PARTY_TIMEOUT && way->peers_never_time_out) ||
             (needs & PARTY_NO_LEASES && way->read_lease_ns));
}

static bool run_case(const struct conformance_way *way, const struct party_case *one)
{
    struct party party = {.way = way, .computes = one->computes, .rounds = way->rounds ? way->rounds : 200};
    int status = way->open(way->context, one->computes, party.fabrics);
    if (status)
        party_fail(&party, "its compute nodes do not open: %s", error_name(status));
    for (unsigned i = 0; !status && i < one->computes; i++)
        party.processes[i] = fabric_self(party.fabrics[i]);
    if (!status)
        one->function(&party);
    way->close(way->context);
    if (party.failed)
        fprintf(stderr, "peers of %s: %s: %s\n", way->name, one->name, party.text);
    return !party.failed;
}

unsigned conformance_peers_run_some(const struct conformance_way *way, const char *part)
{
    const struct party_case *const tables[] = {party_call_cases, party_lease_cases};
    unsigned failed = 0, count = 0;
    for (unsigned table = 0; table < 2; table++)
        for (const struct party_case *one = tables[table]; one->name; one++)
            if (strstr(one->name, part) && way_can(way, one->needs)) {
                count++;
                failed += !run_case(way, one);
            }
    return count == 0 ? 1 : failed;
}

unsigned conformance_peers_run(const struct conformance_way *way)
{
    return conformance_peers_run_some(way, "");
}
