/*
 * session.h - what stands behind a session's handle. Private to src/api/.
 *
 * A session belongs to one thread at a time. It owns a tree worker, because a worker belongs to one thread
 * and the program, not the library, makes the threads.
 */
#ifndef API_SESSION_H
#define API_SESSION_H

#include "api/pool.h"
#include "pool/pool.h"

struct api_attachment;

struct banyan_session {
    struct banyan *banyan;
    struct pool_worker *worker;
    struct tree_session *tree_session;
    struct error error; /* of the last call that failed */
    uint32_t iterators; /* open */
    struct api_attachment *attachments;
    void *room; /* BANYAN_VALUE_MAX bytes, for modify functions of records; NULL until one is called */
};

/* Passes a status of the layers below on, and its message to the session. */
int api_result(struct banyan_session *session, int status);

#endif
