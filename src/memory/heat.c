/* heat.c - see heat.h; and the service HEAT. Any thread; nothing waits. */
#include "memory/heat.h"

#include <string.h>

#include "memory/node.h"

void memory_heat_note(struct memory_node *node, gaddr address)
{
    struct memory_heat *heat = &node->heat;
    /* relaxed, both: it is a sample. A reader that meets a place before it was stored gets an older address,
     * which was sampled too. */
    const uint64_t number = __atomic_fetch_add(&heat->noted, 1, __ATOMIC_RELAXED);
    atomic_store_relaxed(&heat->places[number % MEMORY_HEAT_PLACES], address);
}

/* Those that were noted as number `from` and later, as many as there is room for; what is no longer kept is
 * left out. */
static int serve_heat(void *context, struct memory_call *call)
{
    const struct memory_node *node = context;
    const struct memory_heat *heat = &node->heat;
    struct memory_heat_request request;
    struct memory_heat_reply reply = {.every = MEMORY_HEAT_EVERY};
    const size_t fixed = offsetof(struct memory_heat_reply, places);
    if (call->length < sizeof request || call->capacity < fixed)
        return BANYAN_EINVAL;
    memcpy(&request, call->request, sizeof request);
    const size_t room = (call->capacity - fixed) / sizeof reply.places[0];
    reply.noted = atomic_load_relaxed(&heat->noted); /* relaxed: as in memory_heat_note */
    const uint64_t kept = reply.noted < MEMORY_HEAT_PLACES ? 0 : reply.noted - MEMORY_HEAT_PLACES;
    reply.first = request.from < kept ? kept : request.from;
    for (uint64_t at = reply.first; at < reply.noted && reply.count < MEMORY_HEAT_MOST && reply.count < room;
         at++)
        reply.places[reply.count++] =
            atomic_load_relaxed(&heat->places[at % MEMORY_HEAT_PLACES]); /* relaxed: likewise */
    call->reply_length = fixed + reply.count * sizeof reply.places[0];
    memcpy(call->reply, &reply, call->reply_length);
    return BANYAN_OK;
}

const struct memory_service memory_heat_service = {
    .name = "heat", .roles = MEMORY_ROLE_DATA | MEMORY_ROLE_MONITOR, .serve = serve_heat};
