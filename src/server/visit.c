/* visit.c - going to every thread of the server; contract in thread.h. */
#include <stdlib.h>

#include "server/state.h"

struct visit {
    void (*function)(struct server_thread *, void *context);
    void *context;
    struct task *caller;
    uint32_t left;
};
struct visit_call {
    struct visit *visit;
    struct server_thread *thread;
};

static void visit_run(void *argument)
{
    struct visit_call *call = argument;
    struct visit *visit = call->visit;
    struct task *caller = visit->caller;
    visit->function(call->thread, visit->context);
    /* Release: the caller sees what the function did. The caller may then return, and the visit with it. */
    __atomic_fetch_sub(&visit->left, 1u, __ATOMIC_ACQ_REL);
    task_unpark(caller);
}

bool server_each_thread(struct server *server, void (*function)(struct server_thread *, void *context),
                        void *context)
{
    struct visit visit = {
        .function = function, .context = context, .caller = task_self(), .left = server->thread_count};
    struct visit_call *calls = calloc(server->thread_count, sizeof *calls);
    bool all = calls != NULL;
    for (unsigned i = 0; calls && i < server->thread_count; i++) {
        calls[i] = (struct visit_call){.visit = &visit, .thread = &server->threads[i]};
        if (worker_post(server->threads[i].worker, visit_run, &calls[i])) {
            __atomic_fetch_sub(&visit.left, 1u, __ATOMIC_ACQ_REL);
            all = false;
        }
    }
    while (calls && atomic_load_acquire(&visit.left))
        task_park();
    free(calls);
    return all;
}
