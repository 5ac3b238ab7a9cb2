/*
 * handles.h - what stands behind the public handles; shared by the files of src/api/ and nobody else.
 *
 * Ownership: a session owns its worker and tree session, an index its tree; both count in their pool. The
 * counts (sessions, indexes, users) are changed by any thread, through api_count; a session's own iterators
 * count belongs to its thread.
 */
#ifndef API_HANDLES_H
#define API_HANDLES_H

#include "banyan.h"
#include "base/atomic.h"
#include "fabric/local.h"
#include "fabric/remote.h"
#include "memory/memory.h"
#include "store/store.h"
#include "tree/tree.h"

struct banyan {
    /* in this process */
    struct memory_node **nodes;
    const struct fabric_target **targets; /* of nodes; used by the fabric as long as it lives */
    uint16_t node_count;
    /* a cluster's */
    struct net_address *addresses; /* [node_count] */
    struct net_tls *tls;
    char *secret; /* NET_SECRET_MAX + 1 bytes */
    struct fabric_remote_options remote;

    struct fabric *fabric;
    struct tree_compute *compute;
    uint32_t sessions, indexes;  /* open */
    struct spinlock attachments; /* guards the lists of struct api_attachment */
};

/* A session's way into an index of records: made at the session's first use of the index, and gone with
 * either. */
struct api_attachment {
    struct banyan_session *session;
    struct banyan_index *index;
    struct store_session *store_session;
    struct api_attachment *next_of_session, *next_of_index;
};

struct banyan_session {
    struct banyan *banyan;
    struct pool_worker *worker;
    struct tree_session *tree_session;
    struct error error; /* of the last call that failed */
    uint32_t iterators; /* open */
    struct api_attachment *attachments;
    void *room; /* BANYAN_VALUE_MAX bytes, for modify functions of records; NULL until one is called */
};

struct banyan_index {
    struct banyan *banyan;
    struct tree *tree;
    struct store *store; /* which holds the tree; NULL: plain values */
    struct api_attachment *attachments;
    uint32_t users; /* open iterators and bulk loads */
    char name[BANYAN_NAME_MAX + 1];
};

/* Copies a struct that begins with its size_t struct_bytes into ours; the message names it. */
int api_struct_in(void *ours, size_t our_bytes, const void *theirs, const char *name, struct error *error);
void api_count(uint32_t *count, int change);
/* Passes a tree function's status on, and its message to the session. */
int api_result(struct banyan_session *session, int status);
/* Session and index are there and of one pool. */
int api_check(struct banyan_session *session, const struct banyan_index *index);

/* ---- pool.c: opening and closing; what lies behind banyan_open, banyan_close and banyan_pool_status ---- */

/* Sums up all memory nodes. */
int api_pool_status(const struct banyan *banyan, struct memory_status_reply *sum);

/* ---- records.c: the calls on an index of records; arguments have been judged ---- */

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
/* At most 64 items. */
void api_records_multi(struct banyan_session *session, struct banyan_index *index, struct banyan_item **items,
                       size_t count, bool put);
int api_records_scan(struct banyan_session *session, struct banyan_index *index,
                     const struct tree_range *range, tree_visit_function *visit, void *context);
void api_detach_session(struct banyan_session *session);
void api_detach_index(struct banyan_index *index);

#endif
