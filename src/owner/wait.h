/* wait.h - operations that cannot go on: their range is refused, on its way, or its owner is silent; or the
 * read lease has lapsed. As struct tree_forward's wait and pause (rights.h). Private to src/owner/. */
#ifndef OWNER_WAIT_H
#define OWNER_WAIT_H

#include "owner/owner.h"

int owner_wait_for(void *context, struct tree_session *session, struct tree *tree, struct fabric_process peer,
                   uint64_t since);
int owner_wait_lease(void *context, struct tree_session *session, struct tree *tree);

#endif
