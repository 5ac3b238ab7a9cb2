/* sweep.c - the expiry sweep; contract in thread.h. */
#include <stdlib.h>

#include "base/log.h"
#include "server/state.h"

void sweep_main(void *argument)
{
    struct server_thread *thread = argument;
    struct server *server = thread->server;
    struct tree_session *session = NULL;
    struct store_session *store = NULL;
    struct store_sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep || server_thread_open_session(thread, &session, &store, NULL))
        log_error("no memory for the sweep: entries that have expired are removed only when they are met");
    uint64_t passes = 0;
    while (sweep && store && !thread->stopping) {
        uint64_t seen = sweep->seen, removed = sweep->removed, before = sweep->passes;
        int status = store_sweep_step(store, sweep, server->options.sweep_entries);
        if (sweep->passes != passes) {
            passes = sweep->passes;
            atomic_store_relaxed(&server->keys, sweep->last_pass_keys);
            atomic_store_relaxed(&server->keys_at_ns, task_now());
        }
        /* Much to do (a quarter of what it saw): sooner again. Not across the end of a pass. */
        bool many = !status && sweep->passes == before && sweep->removed > removed &&
                    (sweep->removed - removed) * 4 >= sweep->seen - seen;
        task_sleep(many ? SERVER_TICK_NS / 50 : SERVER_TICK_NS);
    }
    if (store)
        store_session_destroy(store);
    tree_session_destroy(session);
    free(sweep);
    thread->fibers_live--;
}
