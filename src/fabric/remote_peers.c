/*
 * remote_peers.c - what the remote backend implements of peers.h. No process has an address for peers yet, so
 * no call finds a way.
 */
#include "fabric/remote_peers.h"

#include "fabric/remote_fabric.h"
#include "fabric/remote_processes.h"

static struct fabric_process remote_self(const struct fabric *fabric)
{
    const struct remote_fabric *remote = (const struct remote_fabric *)fabric;
    return (struct fabric_process){.compute_id = fabric->capabilities.compute_id,
                                   .instance = remote->identity.instance};
}

static int peer_call(struct fabric_endpoint *base, struct fabric_process peer, const void *request,
                     size_t length, void *reply, size_t capacity, size_t *reply_length)
{
    return BANYAN_EFENCED;
}

static int peer_receive(struct fabric_endpoint *base, struct fabric_peer_request **request)
{
    return BANYAN_ENOTSUP;
}

static void peer_reply(struct fabric_endpoint *base, struct fabric_peer_request *request, int status,
                       const void *reply, size_t length)
{
}

static void peer_stop(struct fabric *fabric) {}

static void peer_describe(const struct fabric *fabric, struct fabric_process peer, char *text, size_t size) {}

const struct fabric_peer_ops remote_peer_ops = {
    .self = remote_self,
    .lease_alive = remote_lease_alive,
    .lease_lapses = remote_lease_lapses,
    .lease_resume = remote_lease_resume,
    .fence = remote_fence,
    .lease_over = remote_lease_over,
    .processes = remote_processes,
    .notify = remote_notify,
    .notice = remote_notice,
    .notice_listen = remote_notice_listen,
    .call = peer_call,
    .receive = peer_receive,
    .reply = peer_reply,
    .stop = peer_stop,
    .describe = peer_describe,
};
