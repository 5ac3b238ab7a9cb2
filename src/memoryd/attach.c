/*
 * attach.c - a data connection's queue pair: made when the client asks for it, and destroyed before the
 * connection leaves its group (G6).
 *
 * On the connection's I/O thread; waits for the kernel (some 100 us). A refusal is answered with a sentence,
 * and the connection stays open: calls still work on it.
 */
#include <assert.h>

#include "base/log.h"
#include "base/task.h"
#include "memoryd/nic.h"
#include "memoryd/session.h"

/* Under the table's lock, since the keeper looks there for the session of a queue pair that broke. */
static void set_queue(struct memoryd_session *session, struct memoryd_nic_queue *queue)
{
    struct memoryd_groups *groups = &session->daemon->groups;
    spinlock_lock(&groups->lock);
    session->queue = queue;
    spinlock_unlock(&groups->lock);
}

/* While this thread waits for the kernel it reads no heartbeats, so leases are prolonged by as much. */
static int attach(struct memoryd *daemon, const struct wire_nic *theirs, struct wire_nic *ours,
                  struct memoryd_nic_queue **queue, struct error *error)
{
    uint64_t begin = task_now();
    /* relaxed: the keeper sees it at its next look at the latest */
    atomic_add_relaxed(&daemon->attaching, 1u);
    int status = memoryd_nic_attach(daemon->nic, theirs, ours, queue, error);
    uint64_t now = task_now();
    memoryd_groups_prolong(daemon, now, now - begin);
    /* release: a keeper that sees that the waiting is over sees that leases were prolonged */
    __atomic_fetch_sub(&daemon->attaching, 1u, __ATOMIC_RELEASE);
    return status;
}

enum session_result memoryd_session_attach(struct memoryd_session *session, const struct wire_header *head,
                                           const void *bytes)
{
    struct wire_nic theirs, ours = {0};
    struct memoryd_nic_queue *queue = NULL;
    struct error error = {0};
    if (head->length != sizeof theirs)
        return memoryd_session_broken(session, "the end of a queue pair in %u bytes", head->length);
    if (session->attached)
        return memoryd_session_broken(session, "a second queue pair");
    assert(session->group != NULL && session->queue == NULL);
    session->attached = session->worked = true;
    memcpy(&theirs, bytes, sizeof theirs);
    int status = attach(session->daemon, &theirs, &ours, &queue, &error);
    set_queue(session, queue);
    bool sent;
    if (!status)
        sent = memoryd_session_send(session, WIRE_ATTACHED, BANYAN_OK, head->id, &ours, sizeof ours);
    else
        sent = memoryd_session_send(session, WIRE_ATTACHED, status, head->id, error.text, strlen(error.text));
    if (status)
        log_warning("memory node %u: no queue pair for compute node %u (%s): %s", (unsigned)session->number,
                    (unsigned)memoryd_group_compute_id(session), session->peer, error.text);
    return sent ? SESSION_MORE : memoryd_session_broken(session, "no memory for a reply");
}

bool memoryd_session_detach(struct memoryd_session *session)
{
    struct memoryd_nic_queue *queue = session->queue;
    if (queue == NULL)
        return true;
    set_queue(session, NULL);
    return memoryd_nic_detach(queue);
}
