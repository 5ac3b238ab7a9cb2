/*
 * serve.c - answers other compute nodes' calls: lookups, exchanges, borders and parts of scans in ranges of
 * this process's. A key that this process does not own is refused, with the version of the map that it knows;
 * nothing is passed on, since the asker can fetch the map itself.
 *
 * On the tasks that owner_serve runs; nothing in a request is believed before it was validated.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "owner/message.h"
#include "owner/part.h"
#include "owner/state.h"

struct owner_service {
    struct owner *owner;
    const struct fabric_peer_request *request; /* under way */
    uint64_t given_up;                         /* by its sender, until then */
    struct tree_session *session;
    struct tree_exchange exchange; /* of the item under way: large */
    uint8_t value[FORMAT_VALUE_MAX];
    struct owner_part_writer part;
    struct error logged; /* the last one */
    uint8_t reply[OWNER_PART_BYTES];
};
static_assert(OWNER_PART_BYTES >= OWNER_REPLY_BYTES, "one buffer is large enough for both");

/* The asker learns the error's name alone: where it is of damage in the pool, this process tells which, once
 * until there is another one. */
static void complain(struct owner_service *service, const struct tree *tree, int status)
{
    const struct error *error = tree_session_error(service->session);
    if (status != BANYAN_ECORRUPT || !strcmp(error->text, service->logged.text))
        return;
    service->logged = *error;
    log_warning("the index '%s', asked by another compute node: %s", tree_name(tree), error->text);
}

static void lookup(struct owner_service *service, struct tree *tree, const struct owner_item *item,
                   struct owner_answer *answer)
{
    OWNER_COUNT(service->owner, served_lookups, 1);
    answer->length = sizeof service->value;
    answer->value = service->value;
    answer->status = (item->kind == OWNER_ITEM_SETTLED ? tree_lookup_settled_here : tree_lookup_here)(
        service->session, tree, item->key, item->key_length, service->value, &answer->length);
    answer->existed = !answer->status;
}

/* Whether the answer is still waited for. On any thread: the change may be made by another task. */
static bool waited(void *context)
{
    const struct owner_service *service = context;
    const struct fabric_peer_request *request = service->request;
    /* relaxed: an end of the connection that is noticed later changes nothing that its caller could know of
     */
    return !(request->gone && atomic_load_relaxed(request->gone)) &&
           owner_callers_wait(&service->owner->callers, request->from, service->given_up);
}

static void exchange(struct owner_service *service, struct tree *tree, const struct owner_item *item,
                     struct owner_answer *answer)
{
    struct tree_exchange *change = &service->exchange;
    OWNER_COUNT(service->owner, served_exchanges, 1);
    *change = (struct tree_exchange){.key = item->key,
                                     .key_length = item->key_length,
                                     .expect = item->expect,
                                     .expected = item->expected,
                                     .expected_length = item->expected_length,
                                     .value = item->value,
                                     .length = item->length,
                                     .waited = waited,
                                     .asker = service};
    answer->status = tree_exchange_here(service->session, tree, change);
    answer->existed = change->existed;
    answer->replaced = change->replaced;
    answer->value = change->old;
    answer->length = change->old_length;
}

static void move(struct owner_service *service, struct tree *tree, const struct owner_item *item,
                 struct owner_answer *answer)
{
    struct tree_move move = {.key = item->key, .key_length = (uint32_t)item->key_length, .here = true};
    const uint8_t *value = item->value;
    memcpy(&move.from, value, sizeof move.from);
    memcpy(&move.to, value + sizeof move.from, sizeof move.to);
    answer->status = tree_move_node(service->session, tree, &move);
    answer->existed = !answer->status;
    answer->value = service->value;
    answer->length = answer->existed;
    service->value[0] = (uint8_t)move.outcome;
}

static void serve_item(struct owner_service *service, struct owner_index *index,
                       const struct owner_item *item, struct owner_answer *answer)
{
    *answer = (struct owner_answer){.status = BANYAN_EFENCED};
    if (index && (item->kind == OWNER_ITEM_LOOKUP || item->kind == OWNER_ITEM_SETTLED))
        lookup(service, index->tree, item, answer);
    else if (index && item->kind == OWNER_ITEM_EXCHANGE)
        exchange(service, index->tree, item, answer);
    else if (index && item->kind == OWNER_ITEM_MOVE)
        move(service, index->tree, item, answer);
    else if (index)
        answer->status = tree_border_make(service->session, index->tree, item->key, item->key_length);
    if (index)
        complain(service, index->tree, answer->status);
    if (answer->status == BANYAN_EFENCED) {
        *answer = (struct owner_answer){.status = BANYAN_EFENCED};
        OWNER_COUNT(service->owner, refusals, 1);
    }
}

/* Whether the whole of it makes sense, before anything of it is done. */
static int validate(const void *bytes, size_t length)
{
    struct owner_reader reader;
    struct owner_item item;
    int status = owner_request_open(&reader, bytes, length);
    while (!status)
        status = owner_request_next(&reader, &item);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* What the asker knows of the map. */
static void hear(struct owner *owner, uint64_t version)
{
    if (version <= atomic_load_relaxed(&owner->heard)) /* relaxed: a hint */
        return;
    atomic_store_relaxed(&owner->heard, version);
    if (version > atomic_load_relaxed(&owner->adopted))
        owner_wake(owner);
}

static bool part_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct owner_service *service = context;
    return owner_part_add(&service->part, key, key_length, value, length);
}

static int answer_part(struct owner_service *service, const void *bytes, size_t length, size_t *reply_length)
{
    struct owner *owner = service->owner;
    struct owner_part_request request;
    struct tree_scan_end end = {0};
    int status = owner_part_request_read(bytes, length, &request);
    if (status)
        return status;
    OWNER_COUNT(owner, served_scans, 1);
    owner_part_begin(&service->part, service->reply);
    struct owner_index *index = owner_index_get(owner, request.number);
    status = index ? tree_scan_here(service->session, index->tree, &request.range, part_visit, service, &end)
                   : BANYAN_EFENCED;
    if (index) {
        complain(service, index->tree, status);
        owner_index_put(owner, index);
    }
    if (status == BANYAN_EFENCED)
        OWNER_COUNT(owner, refusals, 1);
    owner_part_end(&service->part, status, &end, atomic_load_relaxed(&owner->adopted)); /* relaxed: a hint */
    hear(owner, request.version);
    *reply_length = service->part.length;
    return 0;
}

int owner_service_answer(struct owner_service *service, const struct fabric_peer_request *request,
                         const uint8_t **reply, size_t *reply_length)
{
    struct owner *owner = service->owner;
    const void *bytes = request->bytes;
    const size_t length = request->length;
    struct owner_reader reader;
    struct owner_writer writer;
    struct owner_item item;
    *reply = service->reply;
    *reply_length = 0;
    if (length && ((const uint8_t *)bytes)[0] == OWNER_PART_MARK)
        return answer_part(service, bytes, length, reply_length);
    int status = validate(bytes, length);
    if (status)
        return status;
    (void)owner_request_open(&reader, bytes, length);
    service->request = request;
    service->given_up = reader.given_up;
    if (!owner_callers_hear(&owner->callers, request->from, reader.given_up))
        return pool_fail_memory(tree_session_pool(service->session));
    struct owner_index *index = owner_index_get(owner, reader.number);
    owner_reply_begin(&writer, service->reply, sizeof service->reply, atomic_load_relaxed(&owner->adopted));
    while (!owner_request_next(&reader, &item)) {
        struct owner_answer answer;
        serve_item(service, index, &item, &answer);
        (void)owner_reply_add(&writer, &answer); /* there is room for as many as a request has */
    }
    if (index)
        owner_index_put(owner, index);
    hear(owner, reader.version);
    *reply_length = writer.length;
    return 0;
}

int owner_service_create(struct owner_service **service, struct owner *owner, struct tree_session *session)
{
    *service = heap_allocate_zeros(&owner->heap, 1, sizeof **service);
    if (!*service)
        return pool_fail_memory(tree_session_pool(session));
    (*service)->owner = owner;
    (*service)->session = session;
    return 0;
}

void owner_service_destroy(struct owner_service *service)
{
    if (!service)
        return;
    heap_free(&service->owner->heap, service);
}

int owner_serve(struct owner *owner, struct tree_session *session)
{
    struct fabric_endpoint *endpoint = tree_session_pool(session)->endpoint;
    struct fabric_peer_request *request;
    struct owner_service *service;
    int status = owner_service_create(&service, owner, session);
    if (status)
        return status;
    while (!owner_stopping(owner) && !(status = fabric_peer_receive(endpoint, &request))) {
        const uint8_t *reply;
        size_t length;
        int verdict = owner_service_answer(service, request, &reply, &length);
        fabric_peer_reply(endpoint, request, verdict, reply, length);
    }
    owner_service_destroy(service);
    return status == BANYAN_EABORT || status == BANYAN_ENOTSUP ? 0 : status;
}
