/*
 * forward.c - see forward.h.
 */
#include "tree/forward.h"

#include <assert.h>
#include <string.h>

#include "tree/index.h"
#include "tree/session.h"

/* What the hook came to. It may have worked with the session. */
static int forwarded(struct tree_session *session, struct fabric_process owner, int status)
{
    session->right = TREE_OTHERS;
    session->owner = owner;
    session->cached = false;
    return status == BANYAN_EFENCED ? TREE_WAIT : status;
}

int tree_forward_lookup(struct tree_session *session, struct tree *tree, struct format_key key, bool settled,
                        void *value, size_t *length)
{
    const struct tree_compute *compute = session->compute;
    const struct fabric_process owner = session->owner;
    assert(!session->announced);
    if (!compute->forward.lookup)
        return TREE_WAIT;
    return forwarded(session, owner,
                     compute->forward.lookup(compute->forward_context, session, tree, owner, key.bytes,
                                             key.length, settled, value, length));
}

int tree_forward_exchange(struct tree_session *session, struct tree *tree, struct tree_exchange *exchange)
{
    const struct tree_compute *compute = session->compute;
    const struct fabric_process owner = session->owner;
    assert(!session->announced);
    if (!compute->forward.exchange)
        return TREE_WAIT;
    int status = compute->forward.exchange(compute->forward_context, session, tree, owner, exchange);
    session->replaced = !status && exchange->replaced;
    return forwarded(session, owner, status);
}

int tree_forward_scan(struct tree_session *session, struct tree *tree, const struct tree_range *range,
                      tree_visit_function *visit, void *context, struct tree_scan_end *end)
{
    const struct tree_compute *compute = session->compute;
    const struct fabric_process owner = session->owner;
    assert(!session->announced);
    if (!compute->forward.scan)
        return TREE_WAIT;
    return forwarded(
        session, owner,
        compute->forward.scan(compute->forward_context, session, tree, owner, range, visit, context, end));
}

static int old_read(struct tree_session *session, struct tree *tree, struct tree_exchange *exchange)
{
    struct format_key key = {exchange->key, (uint32_t)exchange->key_length};
    exchange->old_length = sizeof exchange->old;
    int status = tree_lookup_try(session, tree, key, exchange->old, &exchange->old_length);
    if (status == TREE_FORWARD)
        status = tree_forward_lookup(session, tree, key, true, exchange->old, &exchange->old_length);
    exchange->existed = !status;
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* What the function wants done to what the exchange found. False: nothing. */
static int decide(struct tree_session *session, struct tree *tree, struct tree_exchange *exchange,
                  tree_modify_function *function, void *context, uint8_t *value, bool *wanted)
{
    size_t length = 0;
    enum tree_verdict verdict = function(context, exchange->existed ? exchange->old : NULL,
                                         exchange->existed ? exchange->old_length : 0, value, &length);
    *wanted = verdict == TREE_PUT || (verdict == TREE_DELETE && exchange->existed);
    exchange->value = verdict == TREE_PUT ? value : NULL;
    exchange->length = length;
    return verdict == TREE_PUT ? tree_value_check(session, tree, value, length) : 0;
}

int tree_forward_modify(struct tree_session *session, struct tree *tree, struct format_key key,
                        tree_modify_function *function, void *context)
{
    uint8_t value[FORMAT_VALUE_MAX + 1], expected[FORMAT_VALUE_MAX];
    struct tree_exchange exchange = {.key = key.bytes, .key_length = key.length};
    bool wanted;
    int status = old_read(session, tree, &exchange);
    while (!status) {
        status = decide(session, tree, &exchange, function, context, value, &wanted);
        if (status || !wanted)
            break;
        exchange.expect = exchange.existed ? TREE_EXPECT_VALUE : TREE_EXPECT_NOTHING;
        exchange.expected = expected;
        exchange.expected_length = exchange.existed ? exchange.old_length : 0;
        if (exchange.expected_length)
            memcpy(expected, exchange.old, exchange.expected_length);
        status = tree_forward_exchange(session, tree, &exchange);
        if (status != BANYAN_ECONFLICT)
            break;
        status = 0; /* with what the owner found */
    }
    return status;
}
