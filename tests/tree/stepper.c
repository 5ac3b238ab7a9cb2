/* stepper.c - see stepper.h. */
#include "stepper.h"

#include <stdlib.h>
#include <string.h>

#include "fabric/local.h"
#include "wrapper.h"

struct stepper {
    struct wrapper wrapper;
    stepper_choice *choice;
    void (*act)(void *context);
    void *context;
    uint16_t commands; /* with act NULL: that are done before the death */
    uint32_t from, to; /* of a torn READ, what is fetched before the act; none: the list is whole */
    bool met, dead;
    bool late; /* the act comes behind the list, and before its answer */
};

static struct stepper *stepper_of(const struct fabric_endpoint *endpoint)
{
    return (struct stepper *)endpoint->fabric;
}

static int run_torn(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct stepper *stepper = stepper_of(endpoint);
    struct fabric_command *read = &list->commands[0];
    uint8_t early[65536];
    if (list->count != 1 || read->operation != FABRIC_READ || read->length > sizeof early)
        abort();
    uint32_t to = stepper->to < read->length ? stepper->to : read->length;
    uint32_t from = stepper->from < to ? stepper->from : to;
    wrapper_pass(endpoint, list, 1);
    memcpy(early, read->read.buffer, read->length);
    stepper->act(stepper->context);
    int status = wrapper_pass(endpoint, list, 1);
    memcpy((uint8_t *)read->read.buffer + from, early + from, to - from);
    return status;
}

static int run_late(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct stepper *stepper = stepper_of(endpoint);
    int status = wrapper_pass(endpoint, list, list->count);
    stepper->act(stepper->context);
    return status;
}

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct stepper *stepper = stepper_of(endpoint);
    if (stepper->dead)
        return BANYAN_EFENCED;
    uint16_t count = list->count;
    if (stepper->choice && stepper->choice(list, stepper->context)) {
        stepper->choice = NULL; /* the others' lists, and our next ones, are none of it */
        stepper->met = true;
        stepper->dead = !stepper->act;
        if (stepper->to)
            return run_torn(endpoint, list);
        if (stepper->late)
            return run_late(endpoint, list);
        if (stepper->act)
            stepper->act(stepper->context);
        else
            count = stepper->commands < count ? stepper->commands : count; /* or behind all of it */
    }
    int status = wrapper_pass(endpoint, list, count);
    return stepper->dead ? BANYAN_ENET : status;
}

static int stepper_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                        void *reply, size_t capacity, size_t *reply_length)
{
    if (stepper_of(endpoint)->dead)
        return BANYAN_EFENCED;
    return wrapper_call(endpoint, node, request, length, reply, capacity, reply_length);
}

static const struct fabric_ops stepper_ops = {
    .execute = wrapper_execute,
    .call = stepper_call,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
};

struct fabric *stepper_create(const struct fabric_target *const *targets, uint16_t count, uint16_t compute_id)
{
    struct error error = {0};
    struct stepper *stepper = calloc(1, sizeof *stepper);
    struct fabric *inner = fabric_local_create(targets, count, compute_id, &error);
    if (!stepper || !inner)
        abort();
    wrapper_init(&stepper->wrapper, &stepper_ops, run_list, inner);
    return &stepper->wrapper.fabric;
}

static void arm(struct fabric *fabric, stepper_choice *choice, void (*act)(void *), uint16_t commands,
                void *context)
{
    struct stepper *stepper = (struct stepper *)fabric;
    stepper->choice = choice;
    stepper->act = act;
    stepper->commands = commands;
    stepper->from = stepper->to = 0;
    stepper->late = false;
    stepper->context = context;
    stepper->met = false;
}

void stepper_hold(struct fabric *fabric, stepper_choice *choice, void (*act)(void *context), void *context)
{
    arm(fabric, choice, act, 0, context);
}

void stepper_hold_answer(struct fabric *fabric, stepper_choice *choice, void (*act)(void *context),
                         void *context)
{
    arm(fabric, choice, act, 0, context);
    ((struct stepper *)fabric)->late = true;
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
