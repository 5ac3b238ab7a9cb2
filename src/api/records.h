/*
 * records.h - the calls on an index of records, passed on to the store. Private to src/api/. Arguments have
 * been checked (arguments.h). Thread: the session's.
 */
#ifndef API_RECORDS_H
#define API_RECORDS_H

#include "api/index.h"

/* A session's way into an index of records: made at the session's first use of the index, and gone with
 * either. */
struct api_attachment {
    struct banyan_session *session;
    struct banyan_index *index;
    struct store_session *store_session;
    struct api_attachment *next_of_session, *next_of_index;
};

int api_records_get(struct banyan_session *session, struct banyan_index *index, const void *key,
                    size_t key_length, void *value, size_t *length);
enum api_put { API_PUT, API_INSERT, API_UPDATE, API_REPLACE };
/* API_REPLACE: only over `expected`. */
int api_records_put(struct banyan_session *session, struct banyan_index *index, enum api_put kind,
                    const void *key, size_t key_length, const void *value, size_t length, uint64_t expires,
                    const void *expected, size_t expected_length);
int api_records_delete(struct banyan_session *session, struct banyan_index *index, const void *key,
                       size_t key_length);
int api_records_modify(struct banyan_session *session, struct banyan_index *index, const void *key,
                       size_t key_length, banyan_modify_function *function, void *context);
#define API_GROUP_MAX 64u /* items of one call: bounds the stack, and suffices to overlap round trips */
/* At most API_GROUP_MAX items. */
void api_records_multi(struct banyan_session *session, struct banyan_index *index, struct banyan_item **items,
                       size_t count, bool put);
int api_records_scan(struct banyan_session *session, struct banyan_index *index,
                     const struct tree_range *range, tree_visit_function *visit, void *context);
void api_detach_session(struct banyan_session *session);
void api_detach_index(struct banyan_index *index);

#endif
