/* registry.c - see service.h: which service answers what, and when the others get their turn. */
#include "memory/registry.h"

#include <assert.h>
#include <string.h>

#include "memory/node.h"

/* ---- the list of kinds ---- */

#define DECLARE_OWN(name, number, kinds, service) extern const struct memory_service service;
#define DECLARE_OTHER(name, number, kinds)
MEMORY_KINDS(DECLARE_OWN, DECLARE_OTHER)

#define REGISTER_OWN(name, number, kinds, service) memory_node_register(node, &service, number, kinds, node);
#define REGISTER_OTHER(name, number, kinds)

void memory_registry_fill(struct memory_node *node)
{
    MEMORY_KINDS(REGISTER_OWN, REGISTER_OTHER)
}

#define CASE_OWN(name, number, kinds, service)                                                               \
    case number ...(number) + (kinds)-1:                                                                     \
        return true;
#define CASE_OTHER(name, number, kinds) CASE_OWN(name, number, kinds, )

/* Whether some memory node has a service for it. (Ranges of the list that overlap do not compile.) */
static bool kind_listed(uint32_t kind)
{
    switch (kind) {
        MEMORY_KINDS(CASE_OWN, CASE_OTHER)
    default:
        return false;
    }
}

/* ---- looking up ---- */

static const struct memory_registration *find(const struct memory_registry *registry, uint32_t kind)
{
    for (uint32_t i = 0; i < registry->count; i++) {
        const struct memory_registration *entry = &registry->entries[i];
        if (kind - entry->first < entry->kinds) /* wraps below the first */
            return entry;
    }
    return NULL;
}

/* False: the request is too short for one. */
static bool read_kind(struct memory_call *call)
{
    if (call->length < sizeof call->kind)
        return false;
    memcpy(&call->kind, call->request, sizeof call->kind);
    return true;
}

/* What the call costs by its service's model; 0 if no service answers it. */
static uint64_t call_cost(const struct memory_registry *registry, struct memory_call *call)
{
    const struct memory_registration *entry = read_kind(call) ? find(registry, call->kind) : NULL;
    if (entry == NULL || entry->service->cost_ns == NULL || !(entry->service->roles & call->role))
        return 0;
    return entry->service->cost_ns(entry->context, call);
}

/* ---- what the fabric's backends in this process call ---- */

static uint64_t target_call_ns(void *owner, uint16_t compute_id, const void *request, size_t length)
{
    const struct memory_node *node = owner;
    struct memory_call call = {
        .role = MEMORY_ROLE_DATA, .compute_id = compute_id, .request = request, .length = length};
    return call_cost(&node->registry, &call);
}

static bool target_work(void *owner, uint64_t *budget_ns)
{
    return memory_node_work(owner, budget_ns);
}

/* Where no service has a model or background work the backends see NULL, and spend nothing on it. */
static void update_target(struct memory_node *node)
{
    struct memory_registry *registry = &node->registry;
    bool costs = false;
    registry->works = false;
    for (uint32_t i = 0; i < registry->count; i++) {
        costs |= registry->entries[i].service->cost_ns != NULL;
        registry->works |= registry->entries[i].service->work != NULL;
    }
    node->target.call_ns = costs ? target_call_ns : NULL;
    node->target.work = registry->works ? target_work : NULL;
}

/* ---- registering ---- */

__attribute__((unused)) /* only an assertion asks */
static bool
overlap(const struct memory_registration *entry, uint32_t first, uint32_t kinds)
{
    return kinds > 0 && entry->kinds > 0 && first < entry->first + entry->kinds &&
           entry->first < first + kinds;
}

void memory_node_register(struct memory_node *node, const struct memory_service *service, uint32_t first,
                          uint32_t kinds, void *context)
{
    struct memory_registry *registry = &node->registry;
    assert(registry->count < MEMORY_SERVICES_MAX);
    assert(first <= UINT32_MAX - kinds);
    assert((service->serve != NULL) == (kinds > 0));
    for (uint32_t i = 0; i < registry->count; i++)
        assert(!overlap(&registry->entries[i], first, kinds));
    registry->entries[registry->count++] = (struct memory_registration){service, context, first, kinds};
    update_target(node);
}

void memory_node_unregister(struct memory_node *node, const struct memory_service *service, void *context)
{
    struct memory_registry *registry = &node->registry;
    uint32_t at = 0;
    while (at < registry->count &&
           (registry->entries[at].service != service || registry->entries[at].context != context))
        at++;
    assert(at < registry->count);
    registry->count--;
    memmove(&registry->entries[at], &registry->entries[at + 1],
            (registry->count - at) * sizeof registry->entries[0]);
    update_target(node);
}

/* ---- calls ---- */

int memory_node_serve(struct memory_node *node, struct memory_call *call)
{
    call->reply_length = 0;
    if (!read_kind(call))
        return BANYAN_EINVAL;
    const struct memory_registration *entry = find(&node->registry, call->kind);
    if (entry == NULL) /* callers other than endpoints are not told which kinds there are */
        return call->role != MEMORY_ROLE_DATA || kind_listed(call->kind) ? BANYAN_ENOTSUP : BANYAN_EINVAL;
    if (!(entry->service->roles & call->role))
        return BANYAN_ENOTSUP;
    int status = entry->service->serve(entry->context, call);
    assert(status <= 0 || (status == MEMORY_DEFERRED && call->defers));
    assert(call->reply_length <= (status ? 0 : call->capacity));
    return status;
}

/* ---- background work ---- */

bool memory_node_work(struct memory_node *node, uint64_t *budget_ns)
{
    struct memory_registry *registry = &node->registry;
    if (!registry->works)
        return false;
    /* Another thread works: what is new since it looked must not be forgotten, so this one looks again. */
    if (!spinlock_try(&registry->working))
        return true;
    bool more = false;
    for (uint32_t turns = registry->count; turns > 0; turns--) {
        const struct memory_registration *entry = &registry->entries[registry->next % registry->count];
        uint64_t before = *budget_ns;
        if (before == 0) { /* the others have their turn next time */
            more = true;
            break;
        }
        if (entry->service->work != NULL)
            more |= entry->service->work(entry->context, budget_ns);
        assert(*budget_ns <= before);
        registry->next++;
    }
    spinlock_unlock(&registry->working);
    return more;
}

/* ---- the others ---- */

void memory_node_finish(struct memory_node *node, uint16_t compute_id)
{
    const struct memory_registry *registry = &node->registry;
    assert(compute_id != 0);
    for (uint32_t i = 0; i < registry->count; i++)
        if (registry->entries[i].service->fenced != NULL)
            registry->entries[i].service->fenced(registry->entries[i].context, compute_id);
}

void memory_registry_report(const struct memory_registry *registry, struct memory_status_reply *status)
{
    for (uint32_t i = 0; i < registry->count; i++)
        if (registry->entries[i].service->report != NULL)
            registry->entries[i].service->report(registry->entries[i].context, status);
}
