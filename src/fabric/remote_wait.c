/*
 * remote_wait.c - how an endpoint's owner gets on while requests are under way: a worker's turn hook sends
 * what its fibers have put together; a plain thread sends, polls and receives by itself.
 */
#include <sys/epoll.h>

#include "fabric/remote_nic.h"

void remote_endpoint_turn(struct worker_hook *hook)
{
    struct remote_endpoint *endpoint = remote_endpoint_of_hook(hook);
    while (endpoint->dirty != NULL) {
        struct remote_link *link = endpoint->dirty;
        endpoint->dirty = link->next_dirty;
        link->dirty = false;
        remote_link_push(link);
    }
    remote_endpoint_peers_turn(endpoint);
    if (hook->awake != NULL)
        remote_nic_turn(endpoint);
}

/* What a plain thread waits for on one link: answers and its NIC. The socket is shut down when the group
 * ends, so that is noticed too. */
static nfds_t poll_link(struct remote_link *link, struct pollfd *polls)
{
    nfds_t count = 0;
    bool nic = link->transport.queue != NULL && verbs_queue_under_way(link->transport.queue) > 0;
    if (link->transport.stream == NULL || (link->first == NULL && link->deferred == NULL && !nic))
        return 0;
    uint32_t wants = net_stream_wants(link->transport.stream, remote_link_unsent(link) > 0);
    polls[count++] =
        (struct pollfd){.fd = net_stream_fd(link->transport.stream),
                        .events = (short)((wants & EPOLLIN ? POLLIN : 0) | (wants & EPOLLOUT ? POLLOUT : 0))};
    if (nic)
        polls[count++] =
            (struct pollfd){.fd = verbs_queue_descriptor(link->transport.queue), .events = POLLIN};
    return count;
}

void remote_endpoint_pump(struct remote_endpoint *endpoint, int timeout_ms)
{
    nfds_t count = 0;
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint);
         i++) /* first: answers travel while NICs are polled */
        remote_link_push(&endpoint->links[i]);
    if (endpoint->spin_ns != 0 && remote_nic_pump(endpoint))
        return;
    for (uint16_t i = 0; i < remote_endpoint_count(endpoint); i++)
        count += poll_link(&endpoint->links[i], endpoint->polls + count);
    if (count == 0 || poll(endpoint->polls, count, timeout_ms) <= 0)
        return;
    for (uint16_t i = 0, at = 0; i < remote_endpoint_count(endpoint) && at < count; i++) {
        struct remote_link *link = &endpoint->links[i];
        if (link->transport.stream == NULL || net_stream_fd(link->transport.stream) != endpoint->polls[at].fd)
            continue;
        bool told = at + 1u < count && link->transport.queue != NULL &&
                    verbs_queue_descriptor(link->transport.queue) == endpoint->polls[at + 1].fd;
        bool heard = endpoint->polls[at].revents != 0, spoken = told && endpoint->polls[at + 1].revents != 0;
        at = (uint16_t)(at + 1 + told);
        if (spoken)
            remote_nic_told(link);
        if (heard && link->transport.stream != NULL)
            remote_link_receive(link);
    }
}

void remote_endpoint_wait(struct remote_endpoint *endpoint, struct remote_wait *wait)
{
    while (wait->left > 0)
        if (wait->task != NULL)
            task_park();
        else
            remote_endpoint_pump(endpoint, REMOTE_POLL_MS);
}
