/*
 * remote_request.c - command lists and calls become messages (wire.h) in their link's output buffer, and
 * stand in its chain until they are answered.
 *
 * On the endpoint's owner. On a worker the buffer is sent when the turn ends, or earlier when it is long.
 * Once the buffers have grown to the load, nothing is allocated.
 */
#include <assert.h>
#include <string.h>

#include "fabric/remote_endpoint.h"
#include "fabric/remote_fabric.h"

#define OUTPUT_FIRST (UINT32_C(16) << 10)
#define OUTPUT_FLUSH (UINT32_C(256) << 10) /* with so much unsent, it is sent before the turn ends */
/* How often a call to a mapped memory node looks whether its answer is there. */
#define CALL_LOOK_NS UINT64_C(20000)

/* ---- lists ---- */

/* Room for `length` more bytes. NULL: no memory. */
static uint8_t *out_reserve(struct remote_link *link, size_t length)
{
    size_t have = remote_link_unsent(link);
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

static void mark_dirty(struct remote_link *link)
{
    struct remote_endpoint *endpoint = link->endpoint;
    if (endpoint->worker == NULL)
        return;
    if (remote_link_unsent(link) >= OUTPUT_FLUSH) {
        remote_link_push(link);
        return;
    }
    if (link->dirty)
        return;
    link->dirty = true;
    link->next_dirty = endpoint->dirty;
    endpoint->dirty = link;
}

static uint8_t *put(uint8_t *to, const void *data, size_t length)
{
    memcpy(to, data, length);
    return to + length;
}

/* How many bytes the commands take in a message. *sent: how many commands, up to the first one that no
 * message can express. */
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
    assert((link->first == NULL) == (link->last == NULL) && link->transport.stream != NULL);
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
    remote_link_wait_room(link);
    /* Nothing suspends from here on, so a list is posted on the connection on which it was admitted. */
    list->status = remote_link_admit(link, list->incarnation);
    if (list->status)
        return;
    uint8_t *to = out_reserve(link, sizeof(struct wire_header) + length);
    if (to == NULL) {
        list->status = BANYAN_ENOMEM;
        return;
    }
    struct wire_header header = {
        .length = (uint32_t)length, .kind = WIRE_LIST, .count = (uint16_t)sent, .id = ++link->sent_id};
    to = put(to, &header, sizeof header);
    for (uint32_t i = 0; i < sent; i++)
        to = put_command(to, &list->commands[i]);
    link->out_end += sizeof header + length;
    assert(to == link->out + link->out_end);
    enqueue(link, list, wait, sent);
}

/* ---- calls ---- */

/* BANYAN_EFENCED: there is no connection, and nothing was sent. */
static int call_post(struct remote_link *link, struct remote_call *call, const void *request, size_t length)
{
    if (remote_link_admit(link, 0))
        return BANYAN_EFENCED;
    uint8_t *to = remote_link_watched(link) ? out_reserve(link, sizeof(struct wire_header) + length) : NULL;
    if (to == NULL)
        return BANYAN_ENOMEM;
    struct wire_header header = {.length = (uint32_t)length, .kind = WIRE_CALL, .id = ++link->sent_id};
    to = put(to, &header, sizeof header);
    if (length > 0)
        put(to, request, length);
    link->out_end += sizeof header + length;
    enqueue(link, &call->list, &call->wait, 0);
    return BANYAN_OK;
}

/* It counts for no silence: it may take its time, and heartbeats tell of a memory node that is gone. */
int remote_link_call_later(struct remote_link *link, struct remote_call *call, uint64_t incarnation,
                           const void *request, size_t length, struct remote_wait *wait)
{
    if (length > WIRE_SMALL_MAX)
        return BANYAN_EINVAL;
    remote_link_wait_room(link);
    int status = remote_link_admit(link, incarnation);
    if (status)
        return incarnation != 0 ? status : BANYAN_EFENCED;
    uint8_t *to = remote_link_watched(link) ? out_reserve(link, sizeof(struct wire_header) + length) : NULL;
    if (to == NULL)
        return BANYAN_ENOMEM;
    call->id = WIRE_DEFERRED | ++link->deferred_id;
    struct wire_header header = {.length = (uint32_t)length, .kind = WIRE_CALL, .id = call->id};
    put(put(to, &header, sizeof header), request, length);
    link->out_end += sizeof header + length;
    *remote_list(&call->list) = (struct remote_list){.wait = wait, .next = link->deferred};
    link->deferred = &call->list;
    wait->left++;
    mark_dirty(link);
    return BANYAN_OK;
}

/* On a mapped pool a daemon that hangs must not cost the connection: the memory node would kill this process,
 * since nothing else proves that it writes no more. So only the call gives up. Its record stays behind for
 * the answer, and until that has come the link takes no other call. */
static int call_mapped(struct remote_link *link, const void *request, size_t length, void *reply,
                       size_t capacity, size_t *reply_length)
{
    struct remote_endpoint *endpoint = link->endpoint;
    uint64_t deadline = task_now() + link->node->fabric->identity.timeout_ms * REMOTE_MS;
    if (link->left_behind > 0 && endpoint->worker == NULL)
        remote_endpoint_pump(endpoint, 0); /* the answer may have come, and no watch reads it */
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
            remote_endpoint_pump(endpoint, 1);
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
    remote_link_wait_room(link);
    int status = call_post(link, &call, request, length);
    if (status)
        return status;
    remote_endpoint_wait(endpoint, &call.wait);
    if (!call.list.status)
        *reply_length = call.length;
    return call.list.status;
}
