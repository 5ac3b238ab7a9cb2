/*
 * sample.c - a random key.
 */
#include "store/read.h"

#define SAMPLE_TRIES 32u

struct first {
    void *key;
    size_t *length;
    size_t room;
    bool found;
};

static bool first_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct first *first = context;
    first->found = key_length <= first->room;
    if (first->found)
        memcpy(first->key, key, key_length);
    *first->length = key_length;
    return false;
}

int store_sample(struct store_session *session, void *key, size_t *length)
{
    uint64_t now = store_begin(session);
    size_t room = *length;
    struct store_value value;
    for (unsigned i = 0; i < SAMPLE_TRIES; i++) {
        *length = room;
        int status = tree_sample(session->tree, session->store->tree, key, length);
        if (status == BANYAN_ENOTFOUND)
            break;
        if (!status)
            status = store_fetch(session, key, *length, now, FORMAT_PART_HEADER, STORE_SINK_BUFFER, &value);
        if (status != BANYAN_ENOTFOUND)
            return status;
    }
    /* Nearly all entries have expired: takes the first one that has not. */
    struct tree_range everything = {.limit = 1};
    struct first first = {key, length, room, false};
    int status = store_scan(session, &everything, STORE_SCAN_KEYS, first_visit, &first);
    if (!status && !first.found)
        return pool_fail(tree_session_pool(session->tree), BANYAN_ENOTFOUND, "the store is empty");
    return status;
}
