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
#include "fabric/local.h"
#include "memory/memory.h"
#include "tree/tree.h"

struct banyan {
    struct memory_node **nodes;
    const struct fabric_target **targets; /* of nodes; used by the fabric as long as it lives */
    uint16_t node_count;
    struct fabric *fabric;
    struct tree_compute *compute;
    uint32_t sessions, indexes; /* open */
};

struct banyan_session {
    struct banyan *banyan;
    struct tree_worker *worker;
    struct tree_session *tree_session;
    struct error error; /* of the last call that failed */
    uint32_t iterators; /* open */
};

struct banyan_index {
    struct banyan *banyan;
    struct tree *tree;
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

#endif
