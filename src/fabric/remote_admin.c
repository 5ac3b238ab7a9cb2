/*
 * remote_admin.c - what is done without a lease: formatting memory nodes (fabric_remote_format), and one RPC
 * to one of them (fabric_remote_ask). On any thread; each message waits at most the time-out.
 */
#include "fabric/remote.h"

#include <stdlib.h>

#include "base/task.h"
#include "fabric/remote_dial.h"

int remote_format_one(const struct remote_identity *identity, const struct net_address *address,
                      struct net_stream *stream, const struct wire_format *format, struct error *error)
{
    char text[NET_TEXT_MAX], reply[WIRE_SMALL_MAX + 1];
    struct error inner = {0};
    size_t length = 0;
    int status = remote_converse(stream, WIRE_FORMAT, format, sizeof *format, reply, sizeof reply - 1,
                                 &length, task_now() + identity->timeout_ms * REMOTE_MS, &inner);
    if (!status)
        return BANYAN_OK;
    reply[length] = 0;
    return error_set(error, status, "memory node %.100s was not formatted: %.120s",
                     net_address_format(address, text),
                     inner.text[0] != 0 ? inner.text
                     : length > 0       ? reply
                                        : error_name(status));
}

int fabric_remote_format(const struct fabric_remote_options *options, struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_FORMATTER};
    struct wire_format format = {.node_count = options->count};
    struct remote_identity identity;
    struct remote_dialed *dialed = calloc(options->count + 1u, sizeof *dialed);
    int status = options->count > 0 ? BANYAN_OK : error_set(error, BANYAN_EINVAL, "no memory node was named");
    if (dialed == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u connections", (unsigned)options->count);
    remote_identity_set(&identity, options);
    while (format.cluster_id == 0)
        net_random(&format.cluster_id, sizeof format.cluster_id);
    /* All formatters are connected before one formats: while they are, no compute node can connect, so none
     * sees a cluster that is half formatted. */
    uint16_t open = 0;
    for (; open < options->count && !status; open++)
        status = remote_dial(&identity, &options->nodes[open], &wish, identity.timeout_ms * REMOTE_MS,
                             &dialed[open], error);
    for (uint16_t i = 0; i < options->count && !status; i++) {
        format.number = i;
        status = remote_format_one(&identity, &options->nodes[i], dialed[i].stream, &format, error);
    }
    if (!status)
        status = remote_list_make(options, format.cluster_id, dialed, error);
    for (uint16_t i = 0; i < open; i++)
        remote_hang_up(dialed[i].stream);
    free(dialed);
    return status;
}

/* Opens a monitor's connection to memory node `number`. An empty one has no number; its place in the options
 * counts as one. */
static int dial_number(const struct fabric_remote_options *options, const struct remote_identity *identity,
                       uint16_t number, struct remote_dialed *dialed, const struct net_address **address,
                       struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_MONITOR};
    struct error first = {0};
    for (uint16_t i = 0; i < options->count; i++) {
        uint16_t place = (uint16_t)((number + i) % options->count); /* it is most likely at its own place */
        struct error one = {0};
        *address = &options->nodes[place];
        if (!remote_dial(identity, *address, &wish, identity->timeout_ms * REMOTE_MS, dialed, &one)) {
            if (dialed->welcome.cluster_id == 0 ? place == number : dialed->welcome.node == number)
                return BANYAN_OK;
            remote_hang_up(dialed->stream);
            dialed->stream = NULL;
        } else if (!first.code) {
            first = one;
        }
    }
    if (first.code)
        return error_set(error, first.code, "%s", first.text);
    return error_set(error, BANYAN_ENOTFOUND, "no memory node of those named is number %u", (unsigned)number);
}

int fabric_remote_ask(const struct fabric_remote_options *options, uint16_t number, const void *request,
                      size_t length, void *reply, size_t capacity, size_t *reply_length, struct error *error)
{
    struct remote_identity identity;
    struct remote_dialed dialed = {0};
    const struct net_address *address = options->nodes;
    struct error inner = {0};
    char text[NET_TEXT_MAX];
    *reply_length = 0;
    if (length > WIRE_SMALL_MAX)
        return error_set(error, BANYAN_EINVAL, "a request of %zu bytes is too long", length);
    remote_identity_set(&identity, options);
    int status = dial_number(options, &identity, number, &dialed, &address, error);
    if (status)
        return status;
    status = remote_converse(dialed.stream, WIRE_CALL, request, length, reply, capacity, reply_length,
                             task_now() + identity.timeout_ms * REMOTE_MS, &inner);
    remote_hang_up(dialed.stream);
    if (status)
        error_set(error, status, "memory node %.100s: %s", net_address_format(address, text),
                  inner.text[0] != 0 ? inner.text : error_name(status));
    return status;
}
