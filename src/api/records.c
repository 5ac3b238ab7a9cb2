/*
 * records.c - the C API's calls on an index of records, passed on to the store.
 *
 * At its first use of such an index a session gets a store session for it (an attachment), which is freed
 * when the session or the index is closed. Arguments have been checked (arguments.h). Thread: the session's;
 * for api_detach_index the thread that closes the index, when no other uses it any more.
 */
#include "api/records.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- attachments ---- */

static struct store_session *find_attached(struct banyan_session *session, const struct banyan_index *index)
{
    struct store_session *found = NULL;
    spinlock_lock(&session->banyan->attachments);
    for (const struct api_attachment *at = session->attachments; at && !found; at = at->next_of_session)
        if (at->index == index)
            found = at->store_session;
    spinlock_unlock(&session->banyan->attachments);
    return found;
}

/* NULL: the session's error is set. */
static struct store_session *attach(struct banyan_session *session, struct banyan_index *index)
{
    struct store_session *found = find_attached(session, index);
    if (found)
        return found;
    struct api_attachment *made = calloc(1, sizeof *made);
    int status = made ? store_session_create(&made->store_session, index->store, session->tree_session,
                                             &session->error)
                      : error_set(&session->error, BANYAN_ENOMEM, "index %s: no memory for a session of it",
                                  index->name);
    if (status) {
        free(made);
        return NULL;
    }
    made->session = session;
    made->index = index;
    spinlock_lock(&session->banyan->attachments);
    made->next_of_session = session->attachments;
    session->attachments = made;
    made->next_of_index = index->attachments;
    index->attachments = made;
    spinlock_unlock(&session->banyan->attachments);
    return made->store_session;
}

static void attachment_free(struct api_attachment *attachment)
{
    store_session_destroy(attachment->store_session);
    free(attachment);
}

/* Takes the session's or the index's first attachment out of both lists; NULL: there is none. The two may be
 * closed at the same time by different threads: the one that takes it out frees it. */
static struct api_attachment *detach_first(struct spinlock *lock, struct api_attachment *const *list)
{
    spinlock_lock(lock);
    struct api_attachment *attachment = *list;
    if (attachment) {
        struct api_attachment **at = &attachment->index->attachments;
        while (*at != attachment)
            at = &(*at)->next_of_index;
        *at = attachment->next_of_index;
        at = &attachment->session->attachments;
        while (*at != attachment)
            at = &(*at)->next_of_session;
        *at = attachment->next_of_session;
    }
    spinlock_unlock(lock);
    return attachment;
}

void api_detach_session(struct banyan_session *session)
{
    struct api_attachment *attachment;
    while ((attachment = detach_first(&session->banyan->attachments, &session->attachments)))
        attachment_free(attachment);
}

void api_detach_index(struct banyan_index *index)
{
    struct api_attachment *attachment;
    while ((attachment = detach_first(&index->banyan->attachments, &index->attachments)))
        attachment_free(attachment);
}

/* ---- one key ---- */

static int no_room(struct banyan_session *session, const struct banyan_index *index, size_t length,
                   size_t room)
{
    return error_set(&session->error, BANYAN_EVALUESIZE, "index %s: the value has %zu bytes, room for %zu",
                     index->name, length, room);
}

int api_records_get(struct banyan_session *session, struct banyan_index *index, const void *key,
                    size_t key_length, void *value, size_t *length)
{
    struct store_session *store = attach(session, index);
    struct store_value found;
    if (!store)
        return session->error.code;
    int status = store_get(store, key, key_length, &found);
    if (status)
        return api_result(session, status);
    size_t room = *length;
    *length = found.length;
    if (found.length > room)
        return no_room(session, index, found.length, room);
    if (found.length > 0)
        memcpy(value, found.bytes, found.length);
    return BANYAN_OK;
}

struct put_call {
    enum api_put kind;
    const void *value, *expected;
    size_t length, expected_length;
    uint64_t expires;
    int status;
};

static enum store_verdict put_run(void *context, const struct store_value *old, struct store_value *new)
{
    struct put_call *call = context;
    call->status = BANYAN_OK;
    if (old && call->kind == API_INSERT)
        call->status = BANYAN_EEXIST;
    else if (!old && (call->kind == API_UPDATE || call->kind == API_REPLACE))
        call->status = BANYAN_ENOTFOUND;
    else if (old && call->kind == API_REPLACE &&
             (old->length != call->expected_length ||
              (old->length > 0 && memcmp(old->bytes, call->expected, old->length) != 0)))
        call->status = BANYAN_ECONFLICT;
    if (call->status)
        return STORE_KEEP;
    *new = (struct store_value){.bytes = call->value, .length = call->length, .expires = call->expires};
    return STORE_PUT;
}

int api_records_put(struct banyan_session *session, struct banyan_index *index, enum api_put kind,
                    const void *key, size_t key_length, const void *value, size_t length, uint64_t expires,
                    const void *expected, size_t expected_length)
{
    struct store_session *store = attach(session, index);
    if (!store)
        return session->error.code;
    if (kind == API_PUT)
        return api_result(session, store_put(store, key, key_length, value, length, expires));
    struct put_call call = {kind, value, expected, length, expected_length, expires, BANYAN_OK};
    int status =
        store_modify(store, key, key_length, kind == API_REPLACE ? STORE_NEED_VALUE : STORE_NEED_LENGTH,
                     put_run, &call, NULL, NULL);
    if (!status && call.status)
        return error_set(&session->error, call.status, "index %s: %s", index->name, error_name(call.status));
    return api_result(session, status);
}

int api_records_delete(struct banyan_session *session, struct banyan_index *index, const void *key,
                       size_t key_length)
{
    struct store_session *store = attach(session, index);
    return store ? api_result(session, store_delete(store, key, key_length)) : session->error.code;
}

struct modify_call {
    banyan_modify_function *function;
    void *context, *room;
    int status; /* of the last run */
};

static enum store_verdict modify_run(void *context, const struct store_value *old, struct store_value *new)
{
    struct modify_call *call = context;
    size_t length = BANYAN_VALUE_MAX;
    const void *bytes = old && old->bytes ? old->bytes : old ? (const void *)"" : NULL;
    enum banyan_verdict verdict =
        call->function(call->context, bytes, old ? old->length : 0, call->room, &length);
    call->status = verdict == BANYAN_REFUSE ? BANYAN_EABORT : BANYAN_OK;
    if (verdict == BANYAN_REMOVE)
        return STORE_REMOVE;
    if (verdict == BANYAN_STORE && length <= BANYAN_VALUE_MAX) {
        *new = (struct store_value){.bytes = call->room, .length = length};
        return STORE_PUT;
    }
    if (verdict == BANYAN_STORE)
        call->status = BANYAN_EVALUESIZE;
    else if (verdict != BANYAN_KEEP && verdict != BANYAN_REFUSE)
        call->status = BANYAN_EINVAL;
    return STORE_KEEP;
}

int api_records_modify(struct banyan_session *session, struct banyan_index *index, const void *key,
                       size_t key_length, banyan_modify_function *function, void *context)
{
    struct store_session *store = attach(session, index);
    if (!store)
        return session->error.code;
    if (!session->room) /* its pages come as they are touched */
        session->room = malloc(BANYAN_VALUE_MAX);
    if (!session->room)
        return error_set(&session->error, BANYAN_ENOMEM, "index %s: no memory for a value", index->name);
    struct modify_call call = {function, context, session->room, BANYAN_OK};
    /* Here: the application's function may rely on its thread. */
    int status = store_modify_here(store, key, key_length, STORE_NEED_VALUE, modify_run, &call, NULL, NULL);
    if (!status && call.status)
        return error_set(&session->error, call.status, "index %s: the function's change: %s", index->name,
                         error_name(call.status));
    return api_result(session, status);
}

/* ---- many keys ---- */

static void item_take(struct banyan_session *session, const struct banyan_index *index,
                      struct banyan_item *to, const struct store_item *from)
{
    size_t room = to->length;
    to->status = from->status;
    if (to->status)
        return;
    to->length = from->value.length;
    if (from->value.length > room)
        to->status = no_room(session, index, from->value.length, room);
    else if (from->value.length > 0)
        memcpy(to->value, from->value.bytes, from->value.length);
}

void api_records_multi(struct banyan_session *session, struct banyan_index *index, struct banyan_item **items,
                       size_t count, bool put)
{
    struct store_item group[API_GROUP_MAX];
    assert(count <= API_GROUP_MAX);
    struct store_session *store = attach(session, index);
    int status = store ? BANYAN_OK : session->error.code;
    for (size_t i = 0; i < count; i++) {
        group[i] =
            (struct store_item){.key = items[i]->key, .key_length = items[i]->key_length, .status = status};
        if (put)
            group[i].value = (struct store_value){.bytes = items[i]->value, .length = items[i]->length};
    }
    if (store)
        status = put ? store_multi_put(store, group, count) : store_multi_get(store, group, count, true);
    for (size_t i = 0; i < count; i++) {
        if (put)
            items[i]->status = group[i].status;
        else
            item_take(session, index, items[i], &group[i]);
    }
    /* What would have been too much at once comes by itself. */
    for (size_t i = 0; store && !put && i < count; i++)
        if (group[i].status == BANYAN_ENOMEM)
            items[i]->status = api_records_get(session, index, items[i]->key, items[i]->key_length,
                                               items[i]->value, &items[i]->length);
    if (store && status && (put || status != BANYAN_ENOMEM))
        api_result(session, status);
}

/* ---- ranges ---- */

struct scan_call {
    tree_visit_function *visit;
    void *context;
};

static bool scan_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    const struct scan_call *call = context;
    return call->visit(call->context, key, key_length, value->bytes, value->length);
}

int api_records_scan(struct banyan_session *session, struct banyan_index *index,
                     const struct tree_range *range, tree_visit_function *visit, void *context)
{
    struct store_session *store = attach(session, index);
    struct scan_call call = {visit, context};
    return store ? store_scan(store, range, STORE_SCAN_VALUES, scan_visit, &call) : session->error.code;
}
