/*
 * forward.c - operations on keys of others' ranges: asked of their owner, one message for up to
 * OWNER_MESSAGE_ITEMS of them. What the owner's answer proves is believed; a call that may have been served
 * and was not answered is BANYAN_EUNKNOWN for an exchange, and is asked again for a lookup.
 *
 * On the calling operation's task; one peer call a message, and buffers of up to 64 KiB while it lasts.
 */
#include "owner/forward.h"

#include <stdlib.h>
#include <string.h>

#include "owner/message.h"
#include "owner/part.h"
#include "owner/state.h"
#include "owner/wait.h"

/* ---- one message ---- */

struct call {
    struct owner *owner;
    struct tree_session *session;
    struct fabric_process peer;
    struct owner_writer writer;
    struct owner_reader reader;
    uint8_t *request, *reply; /* owned */
};

static int call_begin(struct call *call, struct owner *owner, struct tree_session *session,
                      const struct tree *tree, struct fabric_process peer, size_t bytes)
{
    *call = (struct call){.owner = owner, .session = session, .peer = peer};
    call->request = heap_allocate(&owner->heap, bytes + OWNER_REPLY_BYTES);
    if (!call->request)
        return pool_fail_memory(tree_session_pool(session));
    call->reply = call->request + bytes;
    /* Acquire: pairs with give_up. What a client asks for behind an unknown outcome bears the count. */
    owner_request_begin(&call->writer, call->request, bytes, tree_number(tree),
                        atomic_load_relaxed(&owner->adopted), atomic_load_acquire(&owner->given_up));
    return 0;
}

static void call_end(struct call *call)
{
    heap_free(&call->owner->heap, call->request);
}

/* What the peer knows of the map: who waits will fetch it. */
static void hear(struct owner *owner, uint64_t version)
{
    if (version > atomic_load_relaxed(&owner->heard)) /* relaxed: a hint; a lost one is given again */
        atomic_store_relaxed(&owner->heard, version);
}

static int nonsense(struct call *call)
{
    char text[OWNER_TEXT_BYTES];
    return pool_fail(tree_session_pool(call->session), BANYAN_ENET, "%s answered with nonsense",
                     owner_describe(call->owner, call->peer, text));
}

/* A call that failed, or whose reply makes no sense. */
static int call_failed(struct call *call, int status)
{
    char text[OWNER_TEXT_BYTES];
    struct pool_session *pool = tree_session_pool(call->session);
    if (status == BANYAN_EVERSION)
        return pool_fail(pool, status, "%s is of another version of Banyan",
                         owner_describe(call->owner, call->peer, text));
    if (status == BANYAN_EINVAL)
        return nonsense(call);
    return pool_fail(pool, status, "a call of %s failed: %s", owner_describe(call->owner, call->peer, text),
                     error_name(status));
}

/* 0: the reader stands before as many answers as were asked for. BANYAN_EFENCED: nothing was served. Else the
 * call may have been served. */
static int call_send(struct call *call)
{
    struct pool_session *pool = tree_session_pool(call->session);
    size_t length;
    OWNER_COUNT(call->owner, messages, 1);
    int status = fabric_peer_call(pool->endpoint, call->peer, call->request, call->writer.length, call->reply,
                                  OWNER_REPLY_BYTES, &length, pool->cost);
    if (status == BANYAN_EFENCED)
        return status;
    if (!status)
        status = owner_reply_open(&call->reader, call->reply, length);
    if (!status && call->reader.items != call->writer.items)
        status = BANYAN_EINVAL;
    if (status)
        return call_failed(call, status);
    hear(call->owner, call->reader.version);
    return 0;
}

static bool may_be_done(int status)
{
    return status && status != BANYAN_EFENCED && status != BANYAN_EVERSION && status != BANYAN_ENOMEM;
}

/* No answer to exchanges is waited for any more. Before their outcome is told. */
static void give_up(struct owner *owner)
{
    (void)atomic_add_release(&owner->given_up, 1); /* release: pairs with call_begin */
}

/* Of an exchange: whether it was done is not known. */
static int unknown(struct call *call, int status)
{
    char text[OWNER_TEXT_BYTES];
    if (!may_be_done(status))
        return status;
    return pool_fail(tree_session_pool(call->session), BANYAN_EUNKNOWN,
                     "the write may have taken effect: %s did not answer",
                     owner_describe(call->owner, call->peer, text));
}

/* An error of the owner's, which has a sentence of its own there. */
static int answered(struct call *call, int status)
{
    char text[OWNER_TEXT_BYTES];
    switch (status) {
    case 0:
    case BANYAN_ENOTFOUND:
    case BANYAN_ECONFLICT:
        return status;
    case BANYAN_ENET:
    case BANYAN_ETIMEOUT:
        /* Nothing was done, since the owner has lost a memory node: it may have been fenced, and then the
         * range is another's soon. So the operation waits as if it had been refused. */
    case BANYAN_EFENCED:
        OWNER_COUNT(call->owner, refused, 1);
        return BANYAN_EFENCED;
    default:
        return pool_fail(tree_session_pool(call->session), status, "%s: %s",
                         owner_describe(call->owner, call->peer, text), error_name(status));
    }
}

/* ---- lookups and exchanges ---- */

static struct owner_item item_of(const struct tree_forwarded *asked)
{
    const struct tree_exchange *exchange = asked->exchange;
    if (!exchange)
        return (struct owner_item){.kind = asked->settled ? OWNER_ITEM_SETTLED : OWNER_ITEM_LOOKUP,
                                   .key = asked->key,
                                   .key_length = asked->key_length};
    return (struct owner_item){.kind = OWNER_ITEM_EXCHANGE,
                               .key = exchange->key,
                               .key_length = exchange->key_length,
                               .expect = exchange->expect,
                               .expected = exchange->expected,
                               .expected_length = exchange->expected_length,
                               .value = exchange->value,
                               .length = exchange->length};
}

static size_t item_bytes(const struct tree_forwarded *asked)
{
    const struct tree_exchange *exchange = asked->exchange;
    return 6u + (exchange ? exchange->key_length + exchange->expected_length + exchange->length
                          : asked->key_length);
}

static int take_found(struct call *call, struct tree_forwarded *asked, const struct owner_answer *answer)
{
    if (answer->status)
        return answered(call, answer->status);
    if (!answer->existed)
        return nonsense(call);
    if (answer->length > *asked->length)
        return pool_fail(tree_session_pool(call->session), BANYAN_EVALUESIZE,
                         "the value of %zu bytes does not fit into %zu", answer->length, *asked->length);
    if (answer->length)
        memcpy(asked->value, answer->value, answer->length);
    *asked->length = answer->length;
    return 0;
}

static int take_exchanged(struct call *call, struct tree_exchange *exchange,
                          const struct owner_answer *answer)
{
    exchange->existed = answer->existed;
    exchange->replaced = answer->replaced;
    exchange->old_length = answer->length;
    if (answer->length)
        memcpy(exchange->old, answer->value, answer->length);
    return answered(call, answer->status);
}

/* Sends items from the first on, as many as one message holds; *sent: how many. */
static int send_some(struct owner *owner, struct tree_session *session, struct tree *tree,
                     struct fabric_process peer, struct tree_forwarded *asked, uint32_t count, uint32_t *sent)
{
    struct call call;
    size_t bytes = OWNER_REQUEST_HEADER;
    *sent = 0;
    for (uint32_t i = 0; i < count && i < OWNER_MESSAGE_ITEMS; i++)
        bytes += item_bytes(&asked[i]);
    int status = call_begin(&call, owner, session, tree, peer,
                            bytes < FABRIC_PEER_BYTES_MAX ? bytes : FABRIC_PEER_BYTES_MAX);
    if (status)
        return status;
    while (*sent < count) {
        const struct owner_item item = item_of(&asked[*sent]);
        if (!owner_request_add(&call.writer, &item))
            break;
        ++*sent;
    }
    int call_status = call_send(&call);
    if (may_be_done(call_status))
        give_up(owner);
    for (uint32_t i = 0; i < *sent; i++) {
        struct tree_forwarded *one = &asked[i];
        struct owner_answer answer;
        int bad = call_status ? 0 : owner_reply_next(&call.reader, &answer);
        if (bad) {
            call_status = nonsense(&call);
            give_up(owner);
        }
        if (one->exchange)
            one->status =
                call_status ? unknown(&call, call_status) : take_exchanged(&call, one->exchange, &answer);
        else if (call_status == BANYAN_ENET || call_status == BANYAN_ETIMEOUT)
            one->status = BANYAN_EFENCED; /* a lookup may be asked again, and nothing was done */
        else
            one->status = call_status ? call_status : take_found(&call, one, &answer);
    }
    call_end(&call);
    return 0;
}

static int forward_many(void *context, struct tree_session *session, struct tree *tree,
                        struct fabric_process peer, struct tree_forwarded *items, uint32_t count)
{
    struct owner *owner = context;
    uint32_t sent, done = 0;
    int status = 0;
    for (uint32_t i = 0; i < count; i++) {
        items[i].status = BANYAN_EFENCED;
        if (items[i].exchange)
            OWNER_COUNT(owner, forwarded_exchanges, 1);
        else
            OWNER_COUNT(owner, forwarded_lookups, 1);
    }
    for (; done < count && !status; done += sent)
        status = send_some(owner, session, tree, peer, items + done, count - done, &sent);
    return done ? 0 : status;
}

static int forward_lookup(void *context, struct tree_session *session, struct tree *tree,
                          struct fabric_process peer, const void *key, size_t key_length, bool settled,
                          void *value, size_t *length)
{
    struct tree_forwarded one = {
        .key = key, .key_length = key_length, .settled = settled, .value = value, .length = length};
    int status = forward_many(context, session, tree, peer, &one, 1);
    return status ? status : one.status;
}

static int forward_exchange(void *context, struct tree_session *session, struct tree *tree,
                            struct fabric_process peer, struct tree_exchange *exchange)
{
    struct tree_forwarded one = {.exchange = exchange};
    int status = forward_many(context, session, tree, peer, &one, 1);
    return status ? status : one.status;
}

/* ---- parts of scans ---- */

/* One part of the range: the owner's reply is judged as a whole before anything of it is visited. */
static int part_call(struct call *call, const struct tree *tree, const struct tree_range *range,
                     struct owner_part_reader *part)
{
    struct pool_session *pool = tree_session_pool(call->session);
    const struct owner_part_request asked = {.number = tree_number(tree),
                                             .version = atomic_load_relaxed(&call->owner->adopted),
                                             .range = *range}; /* relaxed: a hint */
    size_t length;
    OWNER_COUNT(call->owner, messages, 1);
    int status = fabric_peer_call(pool->endpoint, call->peer, call->request,
                                  owner_part_request_write(call->request, &asked), call->reply,
                                  OWNER_PART_BYTES, &length, pool->cost);
    /* Nothing is changed by it, so it may be asked again. */
    if (status == BANYAN_EFENCED || status == BANYAN_ENET || status == BANYAN_ETIMEOUT)
        return BANYAN_EFENCED;
    if (!status)
        status = owner_part_open(part, call->reply, length, range);
    if (status)
        return call_failed(call, status);
    hear(call->owner, part->version);
    return answered(call, part->status);
}

static int forward_scan(void *context, struct tree_session *session, struct tree *tree,
                        struct fabric_process peer, const struct tree_range *range,
                        tree_visit_function *visit, void *visit_context, struct tree_scan_end *end)
{
    struct owner *owner = context;
    struct call call = {.owner = owner, .session = session, .peer = peer};
    struct owner_part_reader part;
    struct format_key key, value;
    OWNER_COUNT(owner, forwarded_scans, 1);
    call.request = heap_allocate(&owner->heap, OWNER_PART_REQUEST_BYTES + OWNER_PART_BYTES);
    if (!call.request)
        return pool_fail_memory(tree_session_pool(session));
    call.reply = call.request + OWNER_PART_REQUEST_BYTES;
    int status = part_call(&call, tree, range, &part);
    while (!status && owner_part_next(&part, &key, &value) &&
           visit(visit_context, key.bytes, key.length, value.bytes, value.length))
        ;
    if (!status)
        *end = part.end;
    call_end(&call);
    return status;
}

/* ---- borders ---- */

int owner_message_border(struct owner *owner, struct tree_session *session, struct tree *tree,
                         struct fabric_process peer, const void *key, size_t key_length)
{
    const struct owner_item item = {.kind = OWNER_ITEM_BORDER, .key = key, .key_length = key_length};
    char text[OWNER_TEXT_BYTES];
    struct owner_answer answer;
    struct call call;
    int status = call_begin(&call, owner, session, tree, peer, 32u + FORMAT_KEY_MAX);
    if (status)
        return status;
    (void)owner_request_add(&call.writer, &item); /* there is room */
    status = call_send(&call);
    if (!status && owner_reply_next(&call.reader, &answer))
        status = nonsense(&call);
    else if (!status)
        status = answered(&call, answer.status);
    if (status == BANYAN_EFENCED)
        status = pool_fail(tree_session_pool(session), BANYAN_ENET,
                           "%s, which has the range, does not make a border in it",
                           owner_describe(owner, peer, text));
    call_end(&call);
    return status;
}

/* ---- moves ---- */

int owner_message_move(void *context, struct tree_session *session, struct tree *tree,
                       struct fabric_process peer, struct tree_move *move)
{
    uint8_t where[OWNER_MOVE_BYTES];
    const struct owner_item item = {.kind = OWNER_ITEM_MOVE,
                                    .key = move->key,
                                    .key_length = move->key_length,
                                    .value = where,
                                    .length = sizeof where};
    struct owner_answer answer;
    struct call call;
    memcpy(where, &move->from, sizeof move->from);
    memcpy(where + sizeof move->from, &move->to, sizeof move->to);
    int status = call_begin(&call, context, session, tree, peer, 64u + FORMAT_KEY_MAX);
    if (status)
        return status;
    (void)owner_request_add(&call.writer, &item); /* there is room */
    status = call_send(&call);
    if (!status && (owner_reply_next(&call.reader, &answer) ||
                    (!answer.status && (answer.length != 1 || answer.value[0] > TREE_MOVE_LATER))))
        status = nonsense(&call);
    else if (!status)
        status = answered(&call, answer.status);
    if (!status)
        move->outcome = (enum tree_move_outcome)answer.value[0];
    call_end(&call);
    return status;
}

const struct tree_forward owner_forward = {.lookup = forward_lookup,
                                           .exchange = forward_exchange,
                                           .wait = owner_wait_for,
                                           .many = forward_many,
                                           .scan = forward_scan,
                                           .move = owner_message_move,
                                           .pause = owner_wait_lease};
