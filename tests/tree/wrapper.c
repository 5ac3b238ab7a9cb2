/* wrapper.c - see wrapper.h. */
#include "wrapper.h"

#include <stdlib.h>

#include "pool/pool.h"

struct wrapper_endpoint {
    struct fabric_endpoint endpoint; /* first */
    struct fabric_endpoint *inner;   /* owned */
};

static struct fabric_endpoint *inner_of(struct fabric_endpoint *endpoint)
{
    return ((struct wrapper_endpoint *)endpoint)->inner;
}

void wrapper_init(struct wrapper *wrapper, const struct fabric_ops *ops,
                  int (*run)(struct fabric_endpoint *endpoint, struct fabric_list *list),
                  struct fabric *inner)
{
    wrapper->fabric = (struct fabric){.ops = ops, .capabilities = *fabric_capabilities(inner)};
    wrapper->fabric.capabilities.direct = false;
    wrapper->inner = inner;
    wrapper->incarnation = 1;
    wrapper->run = run;
}

int wrapper_pass(struct fabric_endpoint *endpoint, const struct fabric_list *list, uint16_t count)
{
    struct fabric_list part = {.node = list->node, .count = count, .commands = list->commands};
    struct fabric_list *parts[1] = {&part};
    int status = count ? fabric_execute(inner_of(endpoint), parts, 1, NULL) : 0;
    for (uint16_t i = 0; i < count && !status; i++)
        if (list->commands[i].operation == FABRIC_READ) {
            pool_read_settle(&list->commands[i]);
            list->commands[i].read.data = list->commands[i].read.buffer;
        }
    return status;
}

int wrapper_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    const struct wrapper *wrapper = (const struct wrapper *)endpoint->fabric;
    int first = 0;
    for (uint32_t i = 0; i < count; i++) {
        lists[i]->status = wrapper->run(endpoint, lists[i]);
        first = first ? first : lists[i]->status;
    }
    return first;
}

int wrapper_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                 void *reply, size_t capacity, size_t *reply_length)
{
    return fabric_call(inner_of(endpoint), node, request, length, reply, capacity, reply_length, NULL);
}

struct fabric_endpoint *wrapper_endpoint_open(struct fabric *fabric, struct error *error)
{
    struct wrapper_endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint) {
        error_set(error, BANYAN_ENOMEM, "no memory for an endpoint");
        return NULL;
    }
    endpoint->endpoint.fabric = fabric;
    endpoint->inner = fabric_endpoint_open(((struct wrapper *)fabric)->inner, error);
    if (endpoint->inner)
        return &endpoint->endpoint;
    free(endpoint);
    return NULL;
}

void wrapper_endpoint_close(struct fabric_endpoint *endpoint)
{
    fabric_endpoint_close(inner_of(endpoint));
    free(endpoint);
}

void wrapper_close(struct fabric *fabric)
{
    fabric_close(((struct wrapper *)fabric)->inner);
    free(fabric);
}

uint64_t wrapper_incarnation(const struct fabric *fabric)
{
    return ((const struct wrapper *)fabric)->incarnation;
}
