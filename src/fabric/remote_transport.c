/*
 * remote_transport.c - opening and closing what a link stands on: the data connection, and beside it the
 * staging area of a mapped pool or the queue pair of a NIC.
 *
 * Called where an endpoint is opened and by the reconnect's thread; waits, at most as long as it is told.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "fabric/remote_nic.h"

static int map_staging(int descriptor, struct wire_staging **staging, struct error *error)
{
    struct stat file;
    if (fstat(descriptor, &file) != 0 || file.st_size < (off_t)sizeof **staging)
        return error_set(error, BANYAN_ENET, "its staging area is too small");
    void *mapped = mmap(NULL, sizeof **staging, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED)
        return error_set(error, BANYAN_ENOMEM, "its staging area cannot be mapped: %s", strerror(errno));
    *staging = mapped;
    return BANYAN_OK;
}

int remote_transport_open(struct remote_node *node, uint64_t timeout_ns, struct remote_transport *transport,
                          struct error *error)
{
    struct remote_fabric *remote = node->fabric;
    struct remote_wish wish = {.role = WIRE_DATA, .compute_id = remote->fabric.capabilities.compute_id};
    struct remote_dialed dialed;
    struct error inner = {0};
    spinlock_lock(&node->lock);
    struct remote_transport opened = {.group = node->group, .since = node->since};
    wish.group_key = node->group_key;
    spinlock_unlock(&node->lock);
    if (opened.group % 2 == 0)
        return error_set(error, BANYAN_ENET, "memory node %.100s is not connected", node->text);
    uint64_t deadline = task_now() + timeout_ns;
    int status = remote_dial(&remote->identity, &node->address, &wish, timeout_ns, &dialed, error);
    if (status)
        return status;
    if ((dialed.welcome.mapped != 0) != node->mapped)
        status = error_set(&inner, BANYAN_ENET, "it does not share its pool as it did before");
    else if (node->mapped)
        status = map_staging(dialed.descriptors[0], &opened.staging, &inner);
    else if (node->device != NULL)
        status = remote_nic_attach(node, dialed.stream, deadline, &opened.queue, &inner);
    if (status) {
        remote_hang_up(dialed.stream); /* it was let in: closed without a goodbye, it would end the group */
        dialed.stream = NULL;
        remote_dialed_drop(&dialed);
        return error_set(error, status, "memory node %.100s: %s", node->text, inner.text);
    }
    opened.stream = dialed.stream;
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    assert((opened.staging != NULL) == node->mapped && (opened.queue != NULL) == (node->device != NULL));
    *transport = opened;
    return BANYAN_OK;
}

void remote_transport_close(struct remote_transport *transport, bool goodbye)
{
    if (transport->stream != NULL && goodbye)
        remote_hang_up(transport->stream);
    else if (transport->stream != NULL)
        net_stream_destroy(transport->stream);
    if (transport->staging != NULL)
        munmap(transport->staging, sizeof *transport->staging);
    verbs_queue_destroy(transport->queue, NULL, NULL); /* no list is under way on it */
    *transport = (struct remote_transport){0};
}
