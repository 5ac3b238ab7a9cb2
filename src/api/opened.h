/*
 * opened.h - the trees that a pool's handles of indexes share. Private to src/api/.
 *
 * All handles of one index have one tree: what this process has cached of the ranges that it owns lies there,
 * and a second tree would not hear of the first one's writes. Each function may be called by any thread with
 * a session of its own; it waits while another thread opens, closes or drops an index of the pool.
 */
#ifndef API_OPENED_H
#define API_OPENED_H

#include "api/session.h"
#include "store/store.h"

struct api_opened {
    struct tree *tree;
    struct store *store; /* which holds the tree; NULL: plain values */
    uint32_t handles;
    bool dropped; /* by this process: nothing is opened by it any more */
    struct api_opened *next;
};

/* Creates (geometry given) or opens the index of the name. On failure the session has the message. */
int api_opened_get(struct banyan_session *session, const char *name, const struct format_geometry *geometry,
                   struct api_opened **opened);
/* Gives up a handle's part of it; the last one closes the tree. */
void api_opened_put(struct banyan *banyan, struct api_opened *opened);
/* banyan_index_drop, of a name that has been checked. */
int api_opened_drop(struct banyan_session *session, const char *name);

#endif
