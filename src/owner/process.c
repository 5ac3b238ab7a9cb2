/* process.c - See process.h. */
#include "owner/process.h"

#include <stdlib.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "owner/logging.h"
#include "pool/pool.h"

#define LOCK_SLEEP_NS UINT64_C(100000)

struct owner_process {
    struct owner *owner;
    struct owner_threads *threads;
    struct owner_logging *logging; /* NULL: no log */
    struct pool_worker *worker;
    struct tree_session *session;
    struct spinlock lock; /* guards the session; held over round trips, so those that wait sleep */
};

static void session_take(struct owner_process *process)
{
    while (!spinlock_try(&process->lock))
        task_sleep(LOCK_SLEEP_NS);
}

/* Gives the session back, and its message to the caller. */
static int session_give(struct owner_process *process, int status, struct error *error)
{
    const struct error *last = tree_session_error(process->session);
    if (status && last->code == status)
        error_set(error, status, "%s", last->text);
    else if (status)
        error_set(error, status, "%s", error_name(status));
    spinlock_unlock(&process->lock);
    return status;
}

/* What memory nodes with disks keep is what owners log: who owns ranges and logs nothing would acknowledge
 * what no disk ever has. */
static int disks_check(struct tree_session *session, struct error *error)
{
    const struct pool_session *pool = tree_session_pool(session);
    for (uint16_t n = 0; n < pool->memory_nodes; n++)
        if (pool_on_disk(pool, n))
            return error_set(error, BANYAN_EINVAL,
                             "memory node %u keeps on its disk what compute nodes log, and this one would "
                             "own ranges and log nothing: give --log auto, or --own none (a program: options "
                             "log, and own)",
                             (unsigned)n);
    return 0;
}

int owner_process_open(struct owner_process **out, struct tree_compute *compute,
                       const struct owner_options *options, const struct log_options *log, unsigned threads,
                       unsigned fibers, struct error *error)
{
    struct owner_options completed = *options;
    struct owner_process *process = calloc(1, sizeof *process);
    *out = NULL;
    if (!process)
        return error_set(error, BANYAN_ENOMEM, "no memory for a part in the ownership of ranges");
    completed.log = log != NULL;
    int status = owner_create(&process->owner, compute, &completed, error);
    if (!status && log)
        status = owner_logging_open(&process->logging, process->owner, compute, log, error);
    if (!status)
        status = pool_worker_create(&process->worker, tree_compute_pool(compute), error);
    if (!status)
        status = tree_session_create(&process->session, compute, process->worker, error);
    if (!status && completed.policy != OWNER_NONE && !log)
        status = disks_check(process->session, error);
    if (!status)
        status = owner_threads_start(&process->threads, process->owner, threads, fibers, error);
    if (!status) {
        session_take(process);
        status = owner_join(process->owner, process->session);
        if (!status && log) /* an earlier release, or one that found memory node 1 away, made no copy there */
            status = tree_catalogue_persist(process->session);
        status = session_give(process, status, error);
    }
    if (status)
        owner_process_close(process);
    else
        *out = process;
    return status;
}

static void log_end(struct owner_process *process)
{
    if (!process->logging)
        return;
    if (owner_logging_end(process->logging, process->session) && process->session)
        log_info("%s; its segments stay for those who inherit from it",
                 tree_session_error(process->session)->text);
}

void owner_process_close(struct owner_process *process)
{
    if (!process)
        return;
    owner_threads_stop(process->threads);
    log_end(process);
    if (process->session) /* an entry that stays is taken off by others, when this process is gone */
        (void)owner_leave(process->owner, process->session);
    tree_session_destroy(process->session);
    pool_worker_destroy(process->worker);
    owner_destroy(process->owner);
    owner_logging_destroy(process->logging);
    free(process);
}

struct owner *owner_process_owner(const struct owner_process *process)
{
    return process ? process->owner : NULL;
}

struct log *owner_process_log(const struct owner_process *process)
{
    return process && process->logging ? owner_logging_log(process->logging) : NULL;
}

int owner_process_attach(struct owner_process *process, struct tree *tree, struct error *error)
{
    if (!process)
        return 0;
    int status = process->logging ? owner_logging_attach(process->logging, tree, error) : 0;
    if (status)
        return status;
    session_take(process);
    status = owner_attach(process->owner, process->session, tree);
    if (status && process->logging)
        owner_logging_detach(process->logging, process->session, tree, 0);
    return session_give(process, status, error);
}

int owner_process_detach(struct owner_process *process, struct tree *tree, struct error *error)
{
    if (!process)
        return 0;
    session_take(process);
    int status = owner_detach(process->owner, process->session, tree);
    if (process->logging)
        owner_logging_detach(process->logging, process->session, tree, status);
    return session_give(process, status, error);
}

int owner_process_balance(struct owner_process *process, struct error *error)
{
    if (!process)
        return 0;
    session_take(process);
    return session_give(process, owner_balance(process->owner, process->session), error);
}

int owner_process_leave(struct owner_process *process, struct error *error)
{
    if (!process)
        return 0;
    session_take(process);
    return session_give(process, owner_release(process->owner, process->session), error);
}
