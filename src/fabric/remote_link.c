/*
 * remote_link.c - an endpoint's data connection to one memory node: command lists and calls go out as
 * messages, their answers come back in the same order.
 *
 * Everything here runs on the endpoint's owner. On a worker, messages gather in the output buffer while
 * fibers run; the turn hook sends them with one write for each link, and the watch reads answers, fills in
 * results and unparks whoever has nothing more to wait for. A plain thread does the same by itself, in
 * poll(). Lists wait in a chain through their own `backend` fields: once the buffers have grown to the load,
 * nothing is allocated.
 *
 * A connection that breaks, or whose other side says what makes no sense, ends its whole group
 * (remote_node_lose) and fails all that is under way on it with BANYAN_ENET.
 */
#include "fabric/remote_private.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define OUTPUT_FIRST (UINT32_C(16) << 10)
#define OUTPUT_FLUSH (UINT32_C(256) << 10) /* sent before the turn ends */
#define OUTPUT_HIGH  (UINT32_C(2) << 20)   /* who comes now has to wait */
#define OUTPUT_KEEP  (UINT32_C(1) << 20)   /* a larger buffer is given back when it is empty */

/* How long a plain thread waits in poll() before it looks around. The heartbeat cuts a connection that is
 * silent for too long, which ends the wait before. */
#define POLL_MS 1000
/* How often a call to a mapped memory node looks whether its answer is there. */
#define CALL_LOOK_NS UINT64_C(20000)

/* A call stands in the chain as a list of no commands. */
struct remote_call {
    struct fabric_list list; /* first: list_call */
    struct remote_wait wait;
    void *reply;
    size_t capacity, length;
    bool left_behind; /* nobody waits for it any more; freed when its answer comes */
};

static inline size_t unsent(const struct remote_link *link)
{
    return link->out_end - link->out_begin;
}

/* The call that stands in the chain as this list; NULL: it is a list of commands. */
static inline struct remote_call *list_call(struct fabric_list *list)
{
    return list->count == 0 ? (struct remote_call *)list : NULL;
}

/* ---- completing ---- */

void remote_link_complete(struct remote_link *link, struct fabric_list *list, int status)
{
    struct remote_wait *wait = remote_list(list)->wait;
    struct remote_call *call = list_call(list);
    if (call != NULL && call->left_behind) {
        link->left_behind--;
        free(call);
        return;
    }
    list->status = status;
    if (--wait->left == 0 && wait->task != NULL)
        task_unpark(wait->task);
}

static void wake_waiters(struct remote_link *link)
{
    while (link->waiters != NULL) {
        struct remote_waiter *waiter = link->waiters;
        link->waiters = waiter->next;
        waiter->waiting = false;
        task_unpark(waiter->task);
    }
}

static void link_reset(struct remote_link *link)
{
    link->out_begin = link->out_end = 0;
    link->sent_id = link->answered_id = 0;
    link->head_have = link->body_left = 0;
    link->command = link->offset = 0;
}

void remote_link_fail(struct remote_link *link, const char *why)
{
    struct remote_ground old = link->ground;
    if (old.group == 0)
        return;
    remote_node_lose(link->node, old.group, why);
    worker_watch_remove(&link->watch);
    worker_watch_remove(&link->nic_watch);
    spinlock_lock(&link->lock);
    link->ground = (struct remote_ground){0};
    spinlock_unlock(&link->lock);
    struct verbs_queue *queue = old.queue;
    old.queue = NULL;
    remote_ground_close(&old, false);
    link_reset(link);
    struct fabric_list *list = link->first;
    link->first = link->last = NULL;
    while (list != NULL) {
        struct fabric_list *next = remote_list(list)->next;
        atomic_store_relaxed(&link->outstanding,
                             link->outstanding - 1); /* relaxed: a hint for the heartbeat */
        remote_link_complete(link, list, BANYAN_ENET);
        list = next;
    }
    wake_waiters(link);
    if (queue != NULL)
        remote_nic_drop(link, queue);
    assert(link->outstanding == 0);
}

/* ---- output ---- */

/* Room for `length` more bytes. NULL: no memory. */
static uint8_t *out_reserve(struct remote_link *link, size_t length)
{
    size_t have = unsent(link);
    if (link->out_capacity - link->out_end >= length)
        return link->out + link->out_end;
    if (link->out_capacity - have < length || have > link->out_capacity / 2) {
        size_t capacity = link->out_capacity != 0 ? link->out_capacity * 2 : OUTPUT_FIRST;
        while (capacity - have < length)
            capacity *= 2;
        uint8_t *grown = malloc(capacity);
        if (grown == NULL)
            return NULL;
        if (have > 0)
            memcpy(grown, link->out + link->out_begin, have);
        free(link->out);
        link->out = grown;
        link->out_capacity = capacity;
    } else {
        memmove(link->out, link->out + link->out_begin, have);
    }
    link->out_begin = 0;
    link->out_end = have;
    return link->out + have;
}

static bool link_flush(struct remote_link *link)
{
    while (unsent(link) > 0) {
        size_t written = 0;
        enum net_status status =
            net_stream_write(link->ground.stream, link->out + link->out_begin, unsent(link), &written);
        if (status == NET_AGAIN)
            break;
        if (status != NET_OK)
            return false;
        link->out_begin += written;
    }
    if (unsent(link) == 0) {
        link->out_begin = link->out_end = 0;
        if (link->out_capacity > OUTPUT_KEEP) {
            free(link->out);
            link->out = NULL;
            link->out_capacity = 0;
        }
    }
    if (link->waiters != NULL && unsent(link) <= OUTPUT_HIGH / 2)
        wake_waiters(link);
    return true;
}

/* Asks for the events that the connection needs; sends what it can before. */
static void link_push(struct remote_link *link)
{
    if (link->ground.stream == NULL)
        return;
    if (unsent(link) > 0 && !link_flush(link))
        remote_link_fail(link, net_stream_error(link->ground.stream));
    else if (link->watch.worker != NULL)
        worker_watch_change(&link->watch, net_stream_wants(link->ground.stream, unsent(link) > 0));
}

static void mark_dirty(struct remote_link *link)
{
    struct remote_endpoint *endpoint = link->endpoint;
    if (endpoint->worker == NULL)
        return;
    if (unsent(link) >= OUTPUT_FLUSH) {
        link_push(link);
        return;
    }
    if (link->dirty)
        return;
    link->dirty = true;
    link->next_dirty = endpoint->dirty;
    endpoint->dirty = link;
}

static void endpoint_turn(struct worker_hook *hook)
{
    struct remote_endpoint *endpoint =
        (struct remote_endpoint *)((char *)hook - offsetof(struct remote_endpoint, hook));
    while (endpoint->dirty != NULL) {
        struct remote_link *link = endpoint->dirty;
        endpoint->dirty = link->next_dirty;
        link->dirty = false;
        link_push(link);
    }
    if (hook->awake != NULL)
        remote_nic_turn(endpoint);
}

/* ---- input ---- */

static uint32_t result_bytes(const struct fabric_command *command)
{
    switch (command->operation) {
    case FABRIC_READ:
        return command->length;
    case FABRIC_WRITE:
        return 0;
    default:
        return 8;
    }
}

/* A head is complete: is it the answer to the first request under way? */
static bool answer_begin(struct remote_link *link)
{
    const struct wire_header *head = &link->head;
    struct fabric_list *list = link->first;
    if (!wire_header_valid(head) || list == NULL || head->id != link->answered_id + 1)
        return false;
    link->body_left = head->length;
    link->command = link->offset = 0;
    if (list->count == 0)
        return head->kind == WIRE_RESULT;
    uint64_t sent = remote_list(list)->sent, length = 0;
    if (head->kind != WIRE_REPLY || head->count > sent || (head->status == 0 && head->count != sent))
        return false;
    for (uint32_t i = 0; i < head->count; i++)
        length += result_bytes(&list->commands[i]);
    return length == head->length;
}

static void answer_end(struct remote_link *link)
{
    struct fabric_list *list = link->first;
    int status = link->head.status;
    link->head_have = 0;
    link->answered_id++;
    link->first = remote_list(list)->next;
    if (link->first == NULL)
        link->last = NULL;
    /* relaxed: a hint for the heartbeat */
    atomic_store_relaxed(&link->outstanding, link->outstanding - 1);
    struct remote_call *call = list_call(list);
    if (call != NULL) {
        call->length = !status ? link->head.length : 0;
        if (call->length > call->capacity)
            status = BANYAN_EINVAL;
    } else {
        /* A list that was cut before a command that cannot even be said ends with that one's error. */
        if (!status && remote_list(list)->sent < list->count)
            status = BANYAN_EADDRESS;
        for (uint32_t i = 0; i < list->count; i++)
            if (list->commands[i].operation == FABRIC_READ)
                list->commands[i].read.data = list->commands[i].read.buffer;
    }
    remote_link_complete(link, list, status);
}

/* Takes some bytes of an answer's body to where they belong. Returns how many. */
static size_t take_body(struct remote_link *link, const uint8_t *data, size_t length)
{
    struct fabric_list *list = link->first;
    if (length > link->body_left)
        length = link->body_left;
    struct remote_call *call = list_call(list);
    if (call != NULL) {
        size_t at = link->head.length - link->body_left;
        if (at < call->capacity)
            memcpy((uint8_t *)call->reply + at, data,
                   length < call->capacity - at ? length : call->capacity - at);
        return length;
    }
    struct fabric_command *command = &list->commands[link->command];
    uint32_t whole = result_bytes(command), left = whole - link->offset;
    if (length > left)
        length = left;
    uint8_t *to = command->operation == FABRIC_READ  ? command->read.buffer
                  : command->operation == FABRIC_CAS ? (uint8_t *)&command->cas.old
                                                     : (uint8_t *)&command->faa.old;
    if (length > 0)
        memcpy(to + link->offset, data, length);
    link->offset += (uint32_t)length;
    if (link->offset == whole) {
        link->command++;
        link->offset = 0;
    }
    return length;
}

/* False: what arrives makes no sense. */
static bool link_take(struct remote_link *link, const uint8_t *data, size_t length)
{
    for (;;) {
        if (link->head_have < sizeof link->head) {
            size_t part = sizeof link->head - link->head_have;
            part = part < length ? part : length;
            memcpy((uint8_t *)&link->head + link->head_have, data, part);
            link->head_have += (uint32_t)part;
            data += part;
            length -= part;
            if (link->head_have < sizeof link->head)
                return true;
            if (!answer_begin(link))
                return false;
        }
        while (link->body_left > 0) {
            if (length == 0)
                return true;
            size_t part = take_body(link, data, length);
            link->body_left -= (uint32_t)part;
            data += part;
            length -= part;
        }
        answer_end(link);
    }
}

static void link_receive(struct remote_link *link)
{
    struct remote_endpoint *endpoint = link->endpoint;
    for (;;) {
        struct net_stream *stream = link->ground.stream;
        size_t length = 0;
        enum net_status status = net_stream_read(stream, endpoint->input, REMOTE_INPUT_BYTES, &length);
        if (status == NET_AGAIN)
            return;
        if (status != NET_OK) {
            remote_link_fail(link, status == NET_END ? "it closed the connection" : net_stream_error(stream));
            return;
        }
        atomic_store_relaxed(&link->progress, link->progress + 1);
        if (!link_take(link, endpoint->input, length)) {
            remote_link_fail(link, "it answered what was not asked");
            return;
        }
        if (length < REMOTE_INPUT_BYTES && !net_stream_pending(stream))
            return;
    }
}

static void link_ready(struct worker_watch *watch, uint32_t events)
{
    struct remote_link *link = (struct remote_link *)watch;
    (void)events;
    link_receive(link);
    link_push(link);
}

/* ---- owners ---- */

static void endpoint_gone(struct worker_hook *hook)
{
    remote_endpoint_unbind((struct remote_endpoint *)((char *)hook - offsetof(struct remote_endpoint, hook)));
}

void remote_endpoint_unbind(struct remote_endpoint *endpoint)
{
    if (endpoint->worker == NULL)
        return;
    for (uint16_t i = 0; i < endpoint->count; i++) {
        worker_watch_remove(&endpoint->links[i].watch);
        worker_watch_remove(&endpoint->links[i].nic_watch);
        endpoint->links[i].dirty = false;
    }
    endpoint->dirty = NULL;
    worker_hook_remove(endpoint->worker, &endpoint->hook);
    endpoint->worker = NULL;
}

/* On a worker an answer is only noticed on a connection that is watched. False: it cannot be. */
static bool watched(struct remote_link *link)
{
    struct remote_endpoint *endpoint = link->endpoint;
    if (endpoint->worker == NULL || link->ground.stream == NULL)
        return true;
    return (link->watch.worker != NULL ||
            !worker_watch_add(endpoint->worker, &link->watch, net_stream_fd(link->ground.stream), EPOLLIN,
                              link_ready)) &&
           remote_nic_watched(link);
}

/* Of a mapped pool only calls need it, and try again: losing the connection would cost this process. */
static void link_watch(struct remote_link *link)
{
    if (!watched(link) && !link->node->mapped)
        remote_link_fail(link, "no memory to watch it");
}

int remote_endpoint_bind(struct remote_endpoint *endpoint)
{
    struct worker *here = worker_current();
    if (endpoint->worker == here)
        return BANYAN_OK;
    remote_endpoint_unbind(endpoint);
    if (here == NULL)
        return BANYAN_OK;
    endpoint->worker = here;
    endpoint->hook = (struct worker_hook){.turn = endpoint_turn,
                                          .gone = endpoint_gone,
                                          .awake = endpoint->spin_ns != 0 ? remote_nic_awake : NULL};
    worker_hook_add(here, &endpoint->hook);
    for (uint16_t i = 0; i < endpoint->count; i++) {
        /* one owner at a time; it takes what was left behind along */
        assert(endpoint->links[i].first == NULL || endpoint->links[i].left_behind > 0);
        link_watch(&endpoint->links[i]);
    }
    return BANYAN_OK;
}

/* What a plain thread waits for on one link: its answers, its NIC, and, for both, that its group ends. */
static nfds_t poll_link(struct remote_link *link, struct pollfd *polls)
{
    nfds_t count = 0;
    bool nic = link->ground.queue != NULL && verbs_queue_under_way(link->ground.queue) > 0;
    if (link->ground.stream == NULL || (link->first == NULL && !nic))
        return 0;
    uint32_t wants = net_stream_wants(link->ground.stream, unsent(link) > 0);
    polls[count++] =
        (struct pollfd){.fd = net_stream_fd(link->ground.stream),
                        .events = (short)((wants & EPOLLIN ? POLLIN : 0) | (wants & EPOLLOUT ? POLLOUT : 0))};
    if (nic)
        polls[count++] = (struct pollfd){.fd = verbs_queue_descriptor(link->ground.queue), .events = POLLIN};
    return count;
}

/* A plain thread's: sends and receives what can be, and waits for more, once. */
static void endpoint_pump(struct remote_endpoint *endpoint, int timeout_ms)
{
    nfds_t count = 0;
    for (uint16_t i = 0; i < endpoint->count; i++) /* first: answers travel while NICs are polled */
        link_push(&endpoint->links[i]);
    if (endpoint->spin_ns != 0 && remote_nic_pump(endpoint))
        return;
    for (uint16_t i = 0; i < endpoint->count; i++)
        count += poll_link(&endpoint->links[i], endpoint->polls + count);
    if (count == 0 || poll(endpoint->polls, count, timeout_ms) <= 0)
        return;
    for (uint16_t i = 0, at = 0; i < endpoint->count && at < count; i++) {
        struct remote_link *link = &endpoint->links[i];
        if (link->ground.stream == NULL || net_stream_fd(link->ground.stream) != endpoint->polls[at].fd)
            continue;
        bool told = at + 1u < count && link->ground.queue != NULL &&
                    verbs_queue_descriptor(link->ground.queue) == endpoint->polls[at + 1].fd;
        bool heard = endpoint->polls[at].revents != 0, spoken = told && endpoint->polls[at + 1].revents != 0;
        at = (uint16_t)(at + 1 + told);
        if (spoken)
            remote_nic_told(link);
        if (heard && link->ground.stream != NULL)
            link_receive(link);
    }
}

void remote_endpoint_pump(struct remote_endpoint *endpoint)
{
    endpoint_pump(endpoint, POLL_MS);
}

void remote_endpoint_wait(struct remote_endpoint *endpoint, struct remote_wait *wait)
{
    while (wait->left > 0)
        if (wait->task != NULL)
            task_park();
        else
            endpoint_pump(endpoint, POLL_MS);
}

/* Waits until there is room for another message, or the connection is gone. */
static void link_wait_room(struct remote_link *link)
{
    while (__builtin_expect(unsent(link) > OUTPUT_HIGH, 0)) {
        if (link->endpoint->worker == NULL) {
            endpoint_pump(link->endpoint, POLL_MS);
            continue;
        }
        struct remote_waiter waiter = {.task = task_self(), .next = link->waiters, .waiting = true};
        link->waiters = &waiter; // cppcheck-suppress autoVariables ; it leaves the list before we go on
        while (waiter.waiting)
            task_park();
    }
}

int remote_link_admit_slow(struct remote_link *link, uint64_t incarnation)
{
    struct remote_node *node = link->node;
    struct remote_ground fresh = {0};
    remote_endpoint_bind(link->endpoint);
    /* acquire: condition (2) of remote_private.h; and with an odd number, the group's `since` */
    uint64_t group = atomic_load_acquire(&node->group);
    if (link->ground.group != group) {
        remote_link_fail(link, "its group ended"); /* says it to nobody: that group is over */
        spinlock_lock(&link->lock);
        if (link->fresh.group == group) {
            fresh = link->fresh;
            link->fresh = (struct remote_ground){0};
            link->ground = fresh;
        }
        spinlock_unlock(&link->lock);
        if (fresh.group != 0)
            link_watch(link);
    }
    if (link->ground.group != group)
        return incarnation != 0 && incarnation < atomic_load_relaxed(&node->since) ? BANYAN_EFENCED
                                                                                   : BANYAN_ENET;
    return incarnation != 0 && incarnation < link->ground.since ? BANYAN_EFENCED : BANYAN_OK;
}

/* ---- requests ---- */

static uint8_t *put(uint8_t *to, const void *data, size_t length)
{
    memcpy(to, data, length);
    return to + length;
}

/* What the commands take in a message; *sent: how many can be said at all. */
static size_t measure(const struct fabric_list *list, uint32_t *sent)
{
    size_t length = 0;
    uint32_t i = 0;
    for (; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        bool bytes = command->operation == FABRIC_READ || command->operation == FABRIC_WRITE;
        if (gaddr_node(command->address) != list->node ||
            (bytes && command->length - 1u >= FABRIC_LENGTH_MAX))
            break;
        if (command->operation == FABRIC_WRITE)
            length += command->length;
        else if (command->operation == FABRIC_CAS)
            length += 24;
        else if (command->operation == FABRIC_FAA)
            length += 8;
        else if (command->operation != FABRIC_READ)
            break;
    }
    *sent = i;
    return length + i * sizeof(struct wire_command);
}

static uint8_t *put_command(uint8_t *to, const struct fabric_command *command)
{
    bool bytes = command->operation == FABRIC_READ || command->operation == FABRIC_WRITE;
    struct wire_command said = {.address = command->address,
                                .length = bytes ? command->length : 8,
                                .operation = (uint32_t)command->operation};
    to = put(to, &said, sizeof said);
    if (command->operation == FABRIC_WRITE) {
        to = put(to, command->write.data, command->length);
    } else if (command->operation == FABRIC_CAS) {
        const uint64_t words[3] = {command->cas.compare, command->cas.swap, command->cas.mask};
        to = put(to, words, sizeof words);
    } else if (command->operation == FABRIC_FAA) {
        to = put(to, &command->faa.add, sizeof command->faa.add);
    }
    return to;
}

static void enqueue(struct remote_link *link, struct fabric_list *list, struct remote_wait *wait,
                    uint32_t sent)
{
    *remote_list(list) = (struct remote_list){.wait = wait, .sent = sent};
    wait->left++;
    if (link->last != NULL)
        remote_list(link->last)->next = list;
    else
        link->first = list;
    link->last = list;
    /* relaxed: a hint for the heartbeat */
    atomic_store_relaxed(&link->outstanding, link->outstanding + 1);
    mark_dirty(link);
}

void remote_link_post(struct remote_link *link, struct fabric_list *list, struct remote_wait *wait)
{
    uint32_t sent;
    size_t length = measure(list, &sent);
    if (sent == 0) {
        list->status = BANYAN_EADDRESS;
        return;
    }
    link_wait_room(link);
    /* From here on nothing suspends: what was admitted is posted on the same connection. */
    list->status = remote_link_admit(link, list->incarnation);
    if (list->status)
        return;
    uint8_t *to = out_reserve(link, sizeof(struct wire_header) + length);
    if (to == NULL) {
        list->status = BANYAN_ENOMEM;
        return;
    }
    struct wire_header head = {
        .length = (uint32_t)length, .kind = WIRE_LIST, .count = (uint16_t)sent, .id = ++link->sent_id};
    to = put(to, &head, sizeof head);
    for (uint32_t i = 0; i < sent; i++)
        to = put_command(to, &list->commands[i]);
    link->out_end += sizeof head + length;
    assert(to == link->out + link->out_end);
    enqueue(link, list, wait, sent);
}

/* BANYAN_EFENCED: there is no connection, nothing goes out. */
static int call_post(struct remote_link *link, struct remote_call *call, const void *request, size_t length)
{
    if (remote_link_admit(link, 0))
        return BANYAN_EFENCED;
    uint8_t *to = watched(link) ? out_reserve(link, sizeof(struct wire_header) + length) : NULL;
    if (to == NULL)
        return BANYAN_ENOMEM;
    struct wire_header head = {.length = (uint32_t)length, .kind = WIRE_CALL, .id = ++link->sent_id};
    to = put(to, &head, sizeof head);
    if (length > 0)
        put(to, request, length);
    link->out_end += sizeof head + length;
    enqueue(link, &call->list, &call->wait, 0);
    return BANYAN_OK;
}

/* A daemon that hangs must not cost the connection of a mapped pool: it would take our death for the only
 * proof that we do not write any more. So here it is the call alone that gives up; its record stays behind
 * for the answer, and until that came, there are no other calls. */
static int call_mapped(struct remote_link *link, const void *request, size_t length, void *reply,
                       size_t capacity, size_t *reply_length)
{
    struct remote_endpoint *endpoint = link->endpoint;
    uint64_t deadline = task_now() + link->node->fabric->identity.timeout_ms * REMOTE_MS;
    if (link->left_behind > 0 && endpoint->worker == NULL)
        endpoint_pump(endpoint, 0); /* it may have come: nobody else looks */
    if (link->left_behind > 0)
        return BANYAN_EFENCED;
    struct remote_call *call = malloc(sizeof *call);
    if (call == NULL)
        return BANYAN_ENOMEM;
    *call = (struct remote_call){.reply = reply, .capacity = capacity};
    int status = call_post(link, call, request, length);
    while (!status && call->wait.left > 0) {
        if (task_now() >= deadline) {
            call->left_behind = true;
            call->capacity = 0;
            link->left_behind++;
            return BANYAN_ENET;
        }
        if (endpoint->worker != NULL)
            task_sleep(CALL_LOOK_NS);
        else
            endpoint_pump(endpoint, 1);
    }
    status = !status ? call->list.status : status;
    if (!status)
        *reply_length = call->length;
    free(call);
    return status;
}

int remote_link_call(struct remote_link *link, const void *request, size_t length, void *reply,
                     size_t capacity, size_t *reply_length)
{
    struct remote_endpoint *endpoint = link->endpoint;
    struct remote_call call = {.reply = reply, .capacity = capacity};
    if (length > WIRE_SMALL_MAX)
        return BANYAN_EINVAL;
    remote_endpoint_bind(endpoint);
    if (link->node->mapped)
        return call_mapped(link, request, length, reply, capacity, reply_length);
    call.wait.task = endpoint->worker != NULL ? task_self() : NULL;
    link_wait_room(link);
    int status = call_post(link, &call, request, length);
    if (status)
        return status;
    remote_endpoint_wait(endpoint, &call.wait);
    if (!call.list.status)
        *reply_length = call.length;
    return call.list.status;
}

/* ---- the end ---- */

void remote_link_close(struct remote_link *link)
{
    while (link->first != NULL) { /* calls that were left behind: their answers never came */
        struct fabric_list *list = link->first;
        link->first = remote_list(list)->next;
        assert(list_call(list) != NULL && list_call(list)->left_behind);
        remote_link_complete(link, list, BANYAN_ENET);
    }
    assert(link->waiting_first == NULL);
    assert(link->ground.queue == NULL || verbs_queue_under_way(link->ground.queue) == 0);
    /* acquire: of a group that still lives we take leave; a dead one's socket is dead too */
    bool alive = link->ground.group == atomic_load_acquire(&link->node->group);
    remote_ground_close(&link->ground, alive);
    bool fresh_alive = link->fresh.group == atomic_load_acquire(&link->node->group); /* as above */
    remote_ground_close(&link->fresh, fresh_alive);
    free(link->out);
}
