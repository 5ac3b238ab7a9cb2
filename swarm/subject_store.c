/* subject_store.c - the store as a driver's subject; the session is a struct world_task of a world of
 * records. */
#include "swarm/subject.h"

#include <assert.h>
#include <string.h>

#include "store/defrag.h"
#include "store/store.h"
#include "swarm/world_drain.h"

/* The kinds of calls that the store can do only by reading, deciding and writing. */
struct decision {
    struct subject_call *call;
    int status;
};

static bool equals(const struct store_value *old, const struct subject_call *call)
{
    return old->length == call->expected_length && memcmp(old->bytes, call->expected, old->length) == 0;
}

static void remember(struct subject_call *call, const struct store_value *old)
{
    call->found = old != NULL;
    call->result_length = old ? old->length : 0;
    if (old && old->length <= call->result_room)
        memcpy(call->result, old->bytes, old->length);
}

static enum store_verdict decide(void *context, const struct store_value *old, struct store_value *new)
{
    struct decision *decision = context;
    struct subject_call *call = decision->call;
    decision->status = 0;
    if (call->kind == HISTORY_MODIFY) {
        remember(call, old);
        if (!call->value)
            return old ? STORE_REMOVE : STORE_KEEP;
    } else if (call->kind == HISTORY_INSERT) {
        decision->status = old ? BANYAN_EEXIST : 0;
    } else {
        decision->status = !old                                              ? BANYAN_ENOTFOUND
                           : call->kind == HISTORY_CAS && !equals(old, call) ? BANYAN_ECONFLICT
                                                                             : 0;
    }
    if (decision->status)
        return STORE_KEEP;
    *new = (struct store_value){.bytes = call->value, .length = call->length, .expires = call->expires};
    return STORE_PUT;
}

static int get(struct store_session *session, struct subject_call *call)
{
    struct store_value value;
    int status = store_get(session, call->key, call->key_length, &value);
    call->result_length = status ? 0 : value.length;
    if (!status && value.length <= call->result_room)
        memcpy(call->result, value.bytes, value.length);
    return status;
}

static int one(void *context, struct subject_call *call)
{
    const struct world_task *task = context;
    struct store_session *session = task->store_session;
    struct decision decision = {.call = call};
    bool values = call->kind == HISTORY_MODIFY || call->kind == HISTORY_CAS;
    if (call->kind == HISTORY_GET)
        return get(session, call);
    if (call->kind == HISTORY_PUT)
        return store_put(session, call->key, call->key_length, call->value, call->length, call->expires);
    if (call->kind == HISTORY_DELETE)
        return store_delete(session, call->key, call->key_length);
    int status = store_modify(session, call->key, call->key_length,
                              values ? STORE_NEED_VALUE : STORE_NEED_LENGTH, decide, &decision, NULL, NULL);
    return status ? status : decision.status;
}

static void many_put(struct store_session *session, struct subject_call *calls, struct store_item *items,
                     size_t count)
{
    for (size_t i = 0; i < count; i++)
        items[i].value = (struct store_value){
            .bytes = calls[i].value, .length = calls[i].length, .expires = calls[i].expires};
    store_multi_put(session, items, count);
    for (size_t i = 0; i < count; i++)
        calls[i].status = items[i].status;
}

static void many(void *context, struct subject_call *calls, size_t count)
{
    const struct world_task *task = context;
    struct store_item items[SUBJECT_MANY_MAX] = {{0}};
    assert(count <= SUBJECT_MANY_MAX);
    if (count > SUBJECT_MANY_MAX) /* said once more for optimising compilers, which see no assertion */
        __builtin_unreachable();
    for (size_t i = 0; i < count; i++)
        items[i] = (struct store_item){.key = calls[i].key, .key_length = calls[i].key_length};
    if (count > 0 && calls[0].kind == HISTORY_PUT) {
        many_put(task->store_session, calls, items, count);
        return;
    }
    store_multi_get(task->store_session, items, count, true);
    for (size_t i = 0; i < count; i++) {
        calls[i].status = items[i].status;
        calls[i].result_length = items[i].status ? 0 : items[i].value.length;
        if (calls[i].result_length && calls[i].result_length <= calls[i].result_room)
            memcpy(calls[i].result, items[i].value.bytes, calls[i].result_length);
    }
}

struct visit {
    tree_visit_function *function;
    void *context;
};

static bool visit_value(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    const struct visit *visit = context;
    return visit->function(visit->context, key, key_length, value->bytes, value->length);
}

static int scan(void *context, const struct tree_range *range, tree_visit_function *function,
                void *visit_context)
{
    const struct world_task *task = context;
    struct visit visit = {function, visit_context};
    return store_scan(task->store_session, range, STORE_SCAN_VALUES, visit_value, &visit);
}

static int sample(void *context, uint8_t *key, size_t *length)
{
    const struct world_task *task = context;
    return store_sample(task->store_session, key, length);
}

/* ---- moves ---- */

#define MOVE_ENTRIES 24u

static bool chosen(void *context, gaddr block)
{
    return random_mix(block ^ *(uint64_t *)context) & 1;
}

/* Either half of the blocks of some keys, or what memory nodes want to have emptied, as far as some steps go.
 */
static int move(void *context, const uint8_t *key, size_t length, uint64_t dice)
{
    struct world_task *task = context;
    struct store_defrag defrag = {.chosen = dice % 4 ? chosen : NULL, .chosen_context = &dice};
    bool any, done = false;
    int status = store_defrag_begin(task->store_session, &defrag, &any);
    memcpy(defrag.cursor, key, length);
    defrag.cursor_length = length;
    for (unsigned steps = dice % 4 ? 1 : 4; !status && any && !done && steps; steps--)
        status = store_defrag_step(task->store_session, &defrag, MOVE_ENTRIES, &done);
    store_defrag_end(task->store_session, &defrag);
    task->driver.unknown += defrag.counts.unknown; /* as of what a client does: blocks may be lost (S6) */
    return !status && defrag.counts.unanswered ? BANYAN_ENET
                                               : status; /* the driver judges whether that may be */
}

static int merge(void *context, uint32_t budget)
{
    struct world_task *task = context;
    struct tree_merge_report report;
    return tree_merge_step(task->session, task->tree, &task->merge, budget, &report);
}

static int move_node(void *context, const uint8_t *key, size_t length, uint8_t level, uint64_t dice)
{
    struct world_task *task = context;
    return subject_move_node(task->session, task->tree, key, length, level, dice);
}

static int drain(void *context, uint64_t dice)
{
    return world_drain_any(context, dice);
}

static const char *trouble(void *context)
{
    const struct world_task *task = context;
    return tree_session_error(task->session)->text;
}

const struct subject_ops subject_store = {one, many, scan, sample, move, trouble, merge, move_node, drain};
