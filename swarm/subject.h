/*
 * subject.h - the map that a driver drives: one session of it, be it the index, the store above it, or
 * the public library in a process of its own. The same driver and the same judges serve all of them.
 *
 * One task at a time uses a session. Calls cost as much as the subject's own, and return its status.
 */
#ifndef SWARM_SUBJECT_H
#define SWARM_SUBJECT_H

#include "swarm/history.h"
#include "tree/tree.h"

struct subject_call {
    enum history_kind kind;
    const uint8_t *key;
    size_t key_length;
    const uint8_t *value; /* to be written; NULL: HISTORY_MODIFY deletes the entry */
    size_t length;
    uint64_t expires; /* where values may expire: a time that does not come, or 0 */
    const uint8_t *expected;
    size_t expected_length;
    uint8_t *result; /* room for any value: HISTORY_GET's, and the value that HISTORY_MODIFY saw */
    size_t result_room, result_length;
    bool found; /* HISTORY_MODIFY: it saw something */
    int status; /* of each call of many; one() returns it instead */
};

struct subject_ops {
    int (*one)(void *session, struct subject_call *call);
    /* HISTORY_GET or HISTORY_PUT, all of one kind. */
    void (*many)(void *session, struct subject_call *calls, size_t count);
    int (*scan)(void *session, const struct tree_range *range, tree_visit_function *visit, void *context);
    /* NULL: the subject draws no keys. */
    int (*sample)(void *session, uint8_t *key, size_t *length);
    /* NULL: it moves nothing. Moves blocks of some keys from this one on; `dice` chooses which. */
    int (*move)(void *session, const uint8_t *key, size_t length, uint64_t dice);
    /* The message of the last failure. */
    const char *(*trouble)(void *session);
    /* A step of the walk that merges sparse leaves, over about so many. NULL: the subject has none. */
    int (*merge)(void *session, uint32_t budget);
    /* Moves the node of this level that holds the key to another memory node, and where it is the root gives
     * it a parent first. NULL: it has no nodes. `dice` chooses where. */
    int (*move_node)(void *session, const uint8_t *key, size_t length, uint8_t level, uint64_t dice);
    /* Empties a memory node, or evens all out. NULL: it has none. `dice` chooses. */
    int (*drain)(void *session, uint64_t dice);
};
/* The last of these, of any session of an index. */
int subject_move_node(struct tree_session *session, struct tree *tree, const uint8_t *key, size_t length,
                      uint8_t level, uint64_t dice);

#define SUBJECT_MANY_MAX 12u

/* The session is a struct world_task, of a world whose index is used as it is, or through a store. */
extern const struct subject_ops subject_tree, subject_store;

#endif
