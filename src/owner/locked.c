/* locked.c - work of others under the map's lock; see owner_locked in owner.h. */
#include "owner/transfer.h"

#include "base/task.h"

#define LOOK_NS (2 * MILLISECOND)

int owner_locked(struct owner *owner, struct tree_session *session,
                 int (*work)(void *context, struct tree_session *session), void *context)
{
    const uint64_t began = task_now();
    struct owner_transfer transfer;
    for (;;) {
        int status = owner_transfer_begin(&transfer, owner, session, true);
        if (!status)
            return owner_transfer_end(&transfer, work(context, session));
        if (status != BANYAN_EBUSY || task_now() - began >= owner->options.timeout_ns)
            return status == BANYAN_EBUSY
                       ? pool_fail(tree_session_pool(session), status,
                                   "another process changes the map of ranges for too long")
                       : status;
        task_sleep(LOOK_NS);
    }
}
