/*
 * remote_answer.c - what comes back over a data connection: answers in the order of the requests, but for
 * calls that wait for a disk. Their bytes are copied to where the lists and calls want them, in as many
 * pieces as they arrive in.
 *
 * On the endpoint's owner. Nothing is believed before it was validated: an answer that does not fit the first
 * request under way ends the connection.
 */
#include <string.h>

#include "fabric/remote_endpoint.h"

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

/* Where the chain names the call that is answered out of order with this id; the chain's end: none is. */
static struct fabric_list **find_deferred(struct remote_link *link, uint64_t id)
{
    struct fabric_list **at = &link->deferred;
    while (*at != NULL && remote_list_call(*at)->id != id)
        at = &remote_list(*at)->next;
    return at;
}

/* A header is complete. Whether it can be the answer to the first request under way, or to one that is
 * answered out of order. */
static bool answer_begin(struct remote_link *link)
{
    const struct wire_header *header = &link->answer;
    const bool deferred = (header->id & WIRE_DEFERRED) != 0;
    struct fabric_list *list = deferred ? *find_deferred(link, header->id) : link->first;
    if (!wire_header_valid(header) || list == NULL || (!deferred && header->id != link->answered_id + 1))
        return false;
    link->answering = list;
    link->body_left = header->length;
    link->command = link->offset = 0;
    if (list->count == 0)
        return header->kind == WIRE_RESULT;
    uint64_t sent = remote_list(list)->sent, length = 0;
    if (header->kind != WIRE_REPLY || header->count > sent || (header->status == 0 && header->count != sent))
        return false;
    for (uint32_t i = 0; i < header->count; i++)
        length += result_bytes(&list->commands[i]);
    return length == header->length;
}

static void deferred_end(struct remote_link *link)
{
    struct fabric_list **at = find_deferred(link, link->answer.id), *list = *at;
    struct remote_call *call = remote_list_call(list);
    int status = link->answer.status;
    *at = remote_list(list)->next;
    link->answer_have = 0;
    call->length = !status ? link->answer.length : 0;
    if (call->length > call->capacity)
        status = BANYAN_ENET; /* it was served: no refusal (fabric_calls) */
    remote_link_complete(link, list, status);
}

static void answer_end(struct remote_link *link)
{
    struct fabric_list *list = link->answering;
    int status = link->answer.status;
    if (link->answer.id & WIRE_DEFERRED) {
        deferred_end(link);
        return;
    }
    link->answer_have = 0;
    link->answered_id++;
    link->first = remote_list(list)->next;
    if (link->first == NULL)
        link->last = NULL;
    /* relaxed: a hint for the heartbeat */
    atomic_store_relaxed(&link->outstanding, link->outstanding - 1);
    struct remote_call *call = remote_list_call(list);
    if (call != NULL) {
        call->length = !status ? link->answer.length : 0;
        if (call->length > call->capacity)
            status = BANYAN_EINVAL;
    } else {
        /* If the list was cut before a command that no message can express, it ends with that command's
         * error. */
        if (!status && remote_list(list)->sent < list->count)
            status = BANYAN_EADDRESS;
        for (uint32_t i = 0; i < list->count; i++)
            if (list->commands[i].operation == FABRIC_READ)
                list->commands[i].read.data = list->commands[i].read.buffer;
    }
    remote_link_complete(link, list, status);
}

/* Copies bytes of an answer's body to where they belong. Returns how many: at most those of one command. */
static size_t take_body(struct remote_link *link, const uint8_t *data, size_t length)
{
    struct fabric_list *list = link->answering;
    if (length > link->body_left)
        length = link->body_left;
    struct remote_call *call = remote_list_call(list);
    if (call != NULL) {
        size_t at = link->answer.length - link->body_left;
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

/* Takes bytes as they arrive. False: they are no answer to what was asked. */
static bool link_take(struct remote_link *link, const uint8_t *data, size_t length)
{
    for (;;) {
        if (link->answer_have < sizeof link->answer) {
            size_t part = sizeof link->answer - link->answer_have;
            part = part < length ? part : length;
            memcpy((uint8_t *)&link->answer + link->answer_have, data, part);
            link->answer_have += (uint32_t)part;
            data += part;
            length -= part;
            if (link->answer_have < sizeof link->answer)
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

void remote_link_receive(struct remote_link *link)
{
    struct remote_endpoint *endpoint = link->endpoint;
    for (;;) {
        struct net_stream *stream = link->transport.stream;
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
            remote_link_fail(link, "its answer does not fit what was asked");
            return;
        }
        if (length < REMOTE_INPUT_BYTES && !net_stream_pending(stream))
            return;
    }
}

void remote_link_ready(struct worker_watch *watch, uint32_t events)
{
    struct remote_link *link = (struct remote_link *)watch;
    (void)events;
    remote_link_receive(link);
    remote_link_push(link);
}
