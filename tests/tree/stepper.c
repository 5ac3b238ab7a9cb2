/* stepper.c - see stepper.h. */
#include "stepper.h"

#include <stdlib.h>
#include <string.h>

#include "fabric/local.h"
#include "pool/pool.h"

struct stepper {
    struct fabric fabric;
    struct fabric *inner; /* owned */
    stepper_choice *choice;
    void (*act)(void *context);
    void *context;
    uint16_t commands; /* with act NULL: that are done before the death */
    uint32_t from, to; /* of a torn READ, what is fetched before the act; none: the list is whole */
    bool met, dead;
};
struct stepper_endpoint {
    struct fabric_endpoint endpoint;
    struct fabric_endpoint *inner; /* owned */
};

static struct stepper *stepper_of(const struct fabric_endpoint *endpoint)
{
    return (struct stepper *)endpoint->fabric;
}

/* The first `count` commands; what the local backend leaves in place is copied, as from elsewhere. */
static void run(struct fabric_endpoint *endpoint, struct fabric_list *list, uint16_t count)
{
    struct fabric_list part = *list, *lists[1] = {&part};
    part.count = count;
    if (count)
        fabric_execute(((struct stepper_endpoint *)endpoint)->inner, lists, 1, NULL);
    list->status = part.status;
    for (uint16_t i = 0; i < count && !part.status; i++)
        if (list->commands[i].operation == FABRIC_READ) {
            pool_read_settle(&list->commands[i]);
            list->commands[i].read.data = list->commands[i].read.buffer;
        }
}

static void run_torn(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct stepper *stepper = stepper_of(endpoint);
    struct fabric_command *read = &list->commands[0];
    uint8_t early[65536];
    if (list->count != 1 || read->operation != FABRIC_READ || read->length > sizeof early ||
        stepper->to > read->length)
        abort();
    run(endpoint, list, 1);
    memcpy(early, read->read.buffer, read->length);
    stepper->act(stepper->context);
    run(endpoint, list, 1);
    memcpy((uint8_t *)read->read.buffer + stepper->from, early + stepper->from, stepper->to - stepper->from);
}

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct stepper *stepper = stepper_of(endpoint);
    if (stepper->dead)
        return list->status = BANYAN_EFENCED;
    uint16_t count = list->count;
    if (stepper->choice && stepper->choice(list, stepper->context)) {
        stepper->choice = NULL; /* the others' lists, and our next ones, are none of it */
        stepper->met = true;
        stepper->dead = !stepper->act;
        if (stepper->to) {
            run_torn(endpoint, list);
            return list->status;
        }
        if (stepper->act)
            stepper->act(stepper->context);
        else
            count = stepper->commands;
    }
    run(endpoint, list, count);
    return stepper->dead ? (list->status = BANYAN_ENET) : list->status;
}

static int stepper_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    int first = BANYAN_OK;
    for (uint32_t i = 0; i < count; i++) {
        int status = run_list(endpoint, lists[i]);
        first = first ? first : status;
    }
    return first;
}

static int stepper_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                        void *reply, size_t capacity, size_t *reply_length)
{
    if (stepper_of(endpoint)->dead)
        return BANYAN_EFENCED;
    return fabric_call(((struct stepper_endpoint *)endpoint)->inner, node, request, length, reply, capacity,
                       reply_length, NULL);
}

static struct fabric_endpoint *stepper_endpoint_open(struct fabric *fabric, struct error *error)
{
    struct stepper_endpoint *endpoint = calloc(1, sizeof *endpoint);
    if (!endpoint)
        abort();
    endpoint->endpoint.fabric = fabric;
    endpoint->inner = fabric_endpoint_open(((struct stepper *)fabric)->inner, error);
    if (!endpoint->inner)
        abort();
    return &endpoint->endpoint;
}

static void stepper_endpoint_close(struct fabric_endpoint *endpoint)
{
    fabric_endpoint_close(((struct stepper_endpoint *)endpoint)->inner);
    free(endpoint);
}

static void stepper_close(struct fabric *fabric)
{
    fabric_close(((struct stepper *)fabric)->inner);
    free(fabric);
}

static const struct fabric_ops stepper_ops = {
    .execute = stepper_execute,
    .call = stepper_call,
    .endpoint_open = stepper_endpoint_open,
    .endpoint_close = stepper_endpoint_close,
    .close = stepper_close,
};

struct fabric *stepper_create(const struct fabric_target *const *targets, uint16_t count, uint16_t compute_id)
{
    struct error error = {0};
    struct stepper *stepper = calloc(1, sizeof *stepper);
    if (!stepper || !(stepper->inner = fabric_local_create(targets, count, compute_id, &error)))
        abort();
    stepper->fabric = (struct fabric){&stepper_ops, *fabric_capabilities(stepper->inner)};
    stepper->fabric.capabilities.direct = false;
    return &stepper->fabric;
}

static void arm(struct fabric *fabric, stepper_choice *choice, void (*act)(void *), uint16_t commands,
                void *context)
{
    struct stepper *stepper = (struct stepper *)fabric;
    stepper->choice = choice;
    stepper->act = act;
    stepper->commands = commands;
    stepper->from = stepper->to = 0;
    stepper->context = context;
    stepper->met = false;
}

void stepper_hold(struct fabric *fabric, stepper_choice *choice, void (*act)(void *context), void *context)
{
    arm(fabric, choice, act, 0, context);
}

void stepper_kill(struct fabric *fabric, stepper_choice *choice, uint16_t commands, void *context)
{
    arm(fabric, choice, NULL, commands, context);
}

void stepper_tear(struct fabric *fabric, stepper_choice *choice, uint32_t from, uint32_t to,
                  void (*act)(void *context), void *context)
{
    arm(fabric, choice, act, 0, context);
    ((struct stepper *)fabric)->from = from;
    ((struct stepper *)fabric)->to = to;
}

bool stepper_met(const struct fabric *fabric)
{
    return ((const struct stepper *)fabric)->met;
}
