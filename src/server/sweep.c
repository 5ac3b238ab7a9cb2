/* sweep.c - the expiry sweep; contract in thread.h. */
#include <assert.h>
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
        log_error("no memory for the sweep: expired entries are removed only when commands meet them");
    uint64_t passes = 0;
    while (sweep && store && !thread->stopping) {
        uint64_t seen = sweep->seen, removed = sweep->removed, before = sweep->passes;
        int status = store_sweep_step(store, sweep, server->options.sweep_entries);
        if (sweep->passes != passes) {
            passes = sweep->passes;
            atomic_store_relaxed(&server->keys, sweep->last_pass_keys);
            atomic_store_relaxed(&server->keys_at_ns, task_now());
        }
        /* If a quarter of what it saw had expired there is much to do, so it continues sooner; a step across
         * the end of a pass does not count. */
        bool many = !status && sweep->passes == before && sweep->removed > removed &&
                    (sweep->removed - removed) * 4 >= sweep->seen - seen;
        task_sleep(many ? SERVER_TICK_NS / 50 : SERVER_TICK_NS);
    }
    if (store)
        store_session_destroy(store);
    tree_session_destroy(session);
    free(sweep);
    assert(thread->fibers_live);
    thread->fibers_live--;
}
