/* subject_tree.c - the index as a driver's subject; the session is a struct world_task. */
#include "swarm/subject.h"
#include <string.h>

#include "swarm/world_drain.h"

static enum tree_verdict exchange(void *context, const void *old, size_t old_length, void *value,
                                  size_t *length)
{
    struct subject_call *call = context;
    call->found = old != NULL;
    call->result_length = old ? old_length : 0;
    if (old)
        memcpy(call->result, old, old_length);
    if (!call->value)
        return old ? TREE_DELETE : TREE_KEEP;
    memcpy(value, call->value, call->length);
    *length = call->length;
    return TREE_PUT;
}

static int one(void *context, struct subject_call *call)
{
    struct world_task *task = context;
    struct tree_session *session = task->session;
    struct tree *tree = task->tree;
    const uint8_t *key = call->key;
    switch (call->kind) {
    case HISTORY_GET:
        call->result_length = call->result_room;
        return tree_lookup(session, tree, key, call->key_length, call->result, &call->result_length);
    case HISTORY_PUT:
        return tree_upsert(session, tree, key, call->key_length, call->value, call->length);
    case HISTORY_INSERT:
        return tree_insert(session, tree, key, call->key_length, call->value, call->length);
    case HISTORY_UPDATE:
        return tree_update(session, tree, key, call->key_length, call->value, call->length);
    case HISTORY_DELETE:
        return tree_delete(session, tree, key, call->key_length);
    case HISTORY_CAS:
        return tree_compare_and_set(session, tree, key, call->key_length, call->expected,
                                    call->expected_length, call->value, call->length);
    case HISTORY_MODIFY:
        return tree_modify(session, tree, key, call->key_length, exchange, call);
    }
    return BANYAN_EINVAL;
}

static void many(void *context, struct subject_call *calls, size_t count)
{
    struct world_task *task = context;
    struct tree_item items[SUBJECT_MANY_MAX];
    bool writes = count > 0 && calls[0].kind == HISTORY_PUT;
    for (size_t i = 0; i < count; i++)
        items[i] = (struct tree_item){.key = calls[i].key,
                                      .key_length = calls[i].key_length,
                                      .value = writes ? (void *)(uintptr_t)calls[i].value : calls[i].result,
                                      .length = writes ? calls[i].length : FORMAT_VALUE_MAX};
    if (writes)
        tree_multi_put(task->session, task->tree, items, count);
    else
        tree_multi_get(task->session, task->tree, items, count);
    for (size_t i = 0; i < count; i++) {
        calls[i].status = items[i].status;
        calls[i].result_length = items[i].length;
    }
}

static int scan(void *context, const struct tree_range *range, tree_visit_function *visit,
                void *visit_context)
{
    struct world_task *task = context;
    return tree_scan(task->session, task->tree, range, visit, visit_context);
}

static int sample(void *context, uint8_t *key, size_t *length)
{
    struct world_task *task = context;
    return tree_sample(task->session, task->tree, key, length);
}

static int merge(void *context, uint32_t budget)
{
    struct world_task *task = context;
    struct tree_merge_report report;
    return tree_merge_step(task->session, task->tree, &task->merge, budget, &report);
}

int subject_move_node(struct tree_session *session, struct tree *tree, const uint8_t *key, size_t length,
                      uint8_t level, uint64_t dice)
{
    const uint16_t nodes = tree_session_pool(session)->memory_nodes;
    struct tree_move move = {.key = key,
                             .key_length = (uint32_t)length,
                             .level = level,
                             .from = POOL_ANY_NODE,
                             .to = (uint16_t)(dice % nodes)};
    const bool member = fabric_membership(tree_session_pool(session)->fabric, move.to) == FABRIC_MEMBER;
    return member ? tree_move_node(session, tree, &move) : 0;
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

const struct subject_ops subject_tree = {.one = one,
                                         .many = many,
                                         .scan = scan,
                                         .sample = sample,
                                         .trouble = trouble,
                                         .merge = merge,
                                         .move_node = move_node,
                                         .drain = drain};
