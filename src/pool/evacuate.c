/* evacuate.c - see evacuate.h. */
#include "pool/evacuate.h"

#include <stdlib.h>

/* Chunks of a memory node are cut for one size each, and no request names sparse ones: there are none to
 * empty. */
struct pool_evacuation {
    uint32_t chunks;
};

int pool_evacuation_begin(struct pool_session *session, struct pool_evacuation **evacuation)
{
    (void)session;
    *evacuation = NULL;
    return 0;
}

uint32_t pool_evacuation_chunks(const struct pool_evacuation *evacuation)
{
    return evacuation ? evacuation->chunks : 0;
}

bool pool_evacuation_holds(const struct pool_evacuation *evacuation, gaddr block)
{
    (void)block;
    return evacuation && evacuation->chunks;
}

int pool_evacuation_renew(struct pool_session *session, struct pool_evacuation *evacuation)
{
    (void)session;
    (void)evacuation;
    return 0;
}

int pool_evacuation_end(struct pool_session *session, struct pool_evacuation *evacuation)
{
    (void)session;
    free(evacuation);
    return 0;
}
