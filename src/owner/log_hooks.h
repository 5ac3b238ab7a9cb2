/*
 * log_hooks.h - the functions by which the ownership of ranges calls a process's log (struct owner_log of
 * owner.h), for whoever makes both: a real process (logging.h), and simulations. Called by the owner's tasks.
 */
#ifndef OWNER_LOG_HOOKS_H
#define OWNER_LOG_HOOKS_H

#include "base/atomic.h"
#include "log/log.h"
#include "owner/owner.h"

struct owner_log_hooks {
    struct log *log; /* borrowed */
    /* For what the ownership tells without a session: of a worker that nothing else uses where other threads
     * call. Borrowed; guarded by the lock. */
    struct tree_session *session;
    struct spinlock lock;
};
/* Before owner_join. The hooks live as long as the owner. */
void owner_log_hook(struct owner *owner, struct owner_log_hooks *hooks);

#endif
