/*
 * many.c - many keys in one call, in groups whose round trips overlap. Called by programs, on the session's
 * thread. Each item has its own status.
 */
#include "api/arguments.h"
#include "api/records.h"

#define STATUS_UNTOUCHED 1 /* no status: those are 0 or negative */

typedef int multi_function(struct tree_session *, struct tree *, struct tree_item *, size_t);

static int item_check(struct banyan_session *session, const struct banyan_index *index,
                      const struct banyan_item *item, bool put)
{
    if (put)
        return api_check_entry(session, index, item->key, item->key_length, item->value, item->length);
    if (!item->value && item->length > 0)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: no room for a value", index->name);
    return api_check_key(session, index, item->key, item->key_length);
}

static void multi_group(struct banyan_session *session, struct banyan_index *index, struct banyan_item *items,
                        size_t count, bool put)
{
    struct tree_item group[API_GROUP_MAX];
    struct banyan_item *origin[API_GROUP_MAX];
    static char empty[1];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        items[i].status = item_check(session, index, &items[i], put);
        if (items[i].status)
            continue;
        group[used] = (struct tree_item){.key = items[i].key,
                                         .key_length = items[i].key_length,
                                         .value = items[i].value ? items[i].value : empty,
                                         .length = items[i].length,
                                         .status = STATUS_UNTOUCHED};
        origin[used++] = &items[i];
    }
    if (used == 0)
        return;
    if (index->store) {
        api_records_multi(session, index, origin, used, put);
        return;
    }
    multi_function *function = put ? tree_multi_put : tree_multi_get;
    int status = function(session->tree_session, index->tree, group, used);
    for (size_t i = 0; i < used; i++) {
        if (group[i].status == STATUS_UNTOUCHED) /* the group failed before its turn */
            group[i].status = status ? status : BANYAN_EUNKNOWN;
        origin[i]->status = group[i].status;
        if (!put)
            origin[i]->length = group[i].length;
    }
    if (status && status != BANYAN_ENOTFOUND)
        api_result(session, status);
}

static int multi(struct banyan_session *session, struct banyan_index *index, struct banyan_item *items,
                 size_t count, bool put)
{
    int status = api_check(session, index);
    if (status)
        return status;
    if (!items && count > 0)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the items are NULL", index->name);
    for (size_t start = 0; start < count; start += API_GROUP_MAX)
        multi_group(session, index, items + start,
                    count - start < API_GROUP_MAX ? count - start : API_GROUP_MAX, put);
    for (size_t i = 0; i < count; i++)
        if (items[i].status && items[i].status != BANYAN_ENOTFOUND)
            return items[i].status;
    return BANYAN_OK;
}

int banyan_multi_get(struct banyan_session *session, struct banyan_index *index, struct banyan_item *items,
                     size_t count)
{
    return multi(session, index, items, count, false);
}

int banyan_multi_put(struct banyan_session *session, struct banyan_index *index, struct banyan_item *items,
                     size_t count)
{
    return multi(session, index, items, count, true);
}
