/*
 * peers.c - what is the same for every backend of peers.h: arguments are checked, costs counted, and a fabric
 * without other compute nodes answers for itself. Any task; some nanoseconds on top of the backend.
 */
#include "fabric/peers.h"

static const struct fabric_peer_ops *peers_of(const struct fabric *fabric)
{
    return fabric->ops->peers;
}

struct fabric_process fabric_self(const struct fabric *fabric)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    return peers ? peers->self(fabric)
                 : (struct fabric_process){.instance = 1, .compute_id = fabric->capabilities.compute_id};
}

/* ---- G7 ---- */

bool fabric_lease_alive(const struct fabric *fabric)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    return !peers || peers->lease_alive(fabric);
}

uint64_t fabric_lease_lapses(const struct fabric *fabric)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    return peers ? peers->lease_lapses(fabric) : 0;
}

void fabric_lease_resume(struct fabric *fabric, uint64_t incarnation)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    if (peers)
        peers->lease_resume(fabric, incarnation);
}

/* ---- G8 ---- */

/* Of what asks a memory node. */
static void count_call(struct fabric_cost *cost)
{
    if (!cost)
        return;
    cost->round_trips++;
    cost->rpcs++;
}

int fabric_fence(struct fabric_endpoint *endpoint, uint16_t node, struct fabric_process process,
                 struct fabric_cost *cost)
{
    const struct fabric_peer_ops *peers = peers_of(endpoint->fabric);
    if (!fabric_membership(endpoint->fabric, node) || !process.instance ||
        fabric_process_equal(process, fabric_self(endpoint->fabric)))
        return BANYAN_EINVAL;
    if (!peers)
        return BANYAN_ENOTSUP;
    count_call(cost);
    return peers->fence(endpoint, node, process);
}

int fabric_lease_over(struct fabric_endpoint *endpoint, struct fabric_process process, bool *over,
                      struct fabric_cost *cost)
{
    const struct fabric_peer_ops *peers = peers_of(endpoint->fabric);
    *over = false;
    if (!peers || fabric_process_equal(process, fabric_self(endpoint->fabric)))
        return 0; /* this process lives */
    count_call(cost);
    return peers->lease_over(endpoint, process, over);
}

int fabric_processes(struct fabric_endpoint *endpoint, struct fabric_process *processes, uint32_t capacity,
                     uint32_t *count, struct fabric_cost *cost)
{
    const struct fabric_peer_ops *peers = peers_of(endpoint->fabric);
    *count = 0;
    if (peers) {
        count_call(cost);
        return peers->processes(endpoint, processes, capacity, count);
    }
    if (capacity)
        processes[0] = fabric_self(endpoint->fabric);
    *count = 1;
    return 0;
}

/* ---- notices ---- */

int fabric_notify(struct fabric_endpoint *endpoint, uint64_t number, struct fabric_cost *cost)
{
    const struct fabric_peer_ops *peers = peers_of(endpoint->fabric);
    if (!peers)
        return 0; /* there is no other to tell */
    count_call(cost);
    return peers->notify(endpoint, number);
}

uint64_t fabric_notice(const struct fabric *fabric)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    return peers ? peers->notice(fabric) : 0;
}

void fabric_notice_listen(struct fabric *fabric, void (*heard)(void *context), void *context)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    if (peers)
        peers->notice_listen(fabric, heard, context);
}

/* ---- peer calls ---- */

int fabric_peer_call(struct fabric_endpoint *endpoint, struct fabric_process peer, const void *request,
                     size_t length, void *reply, size_t capacity, size_t *reply_length,
                     struct fabric_cost *cost)
{
    const struct fabric_peer_ops *peers = peers_of(endpoint->fabric);
    *reply_length = 0;
    if (!length || length > FABRIC_PEER_BYTES_MAX || capacity > FABRIC_PEER_BYTES_MAX ||
        fabric_process_equal(peer, fabric_self(endpoint->fabric)))
        return BANYAN_EINVAL;
    if (!peers)
        return BANYAN_EFENCED;
    if (cost) {
        cost->round_trips++;
        cost->peer_calls++;
    }
    return peers->call(endpoint, peer, request, length, reply, capacity, reply_length);
}

int fabric_peer_receive(struct fabric_endpoint *endpoint, struct fabric_peer_request **request)
{
    const struct fabric_peer_ops *peers = peers_of(endpoint->fabric);
    *request = NULL;
    return peers ? peers->receive(endpoint, request) : BANYAN_ENOTSUP;
}

void fabric_peer_reply(struct fabric_endpoint *endpoint, struct fabric_peer_request *request, int status,
                       const void *reply, size_t length)
{
    if (length > FABRIC_PEER_BYTES_MAX) {
        status = BANYAN_EINVAL;
        length = 0;
    }
    peers_of(endpoint->fabric)->reply(endpoint, request, status, reply, length);
}

void fabric_peer_stop(struct fabric *fabric)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    if (peers)
        peers->stop(fabric);
}

void fabric_peer_forget(struct fabric *fabric, struct fabric_process peer)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    if (peers && peers->forget)
        peers->forget(fabric, peer);
}

void fabric_peer_describe(const struct fabric *fabric, struct fabric_process peer, char *text, size_t size)
{
    const struct fabric_peer_ops *peers = peers_of(fabric);
    if (size)
        text[0] = 0;
    if (peers && size)
        peers->describe(fabric, peer, text, size);
}
