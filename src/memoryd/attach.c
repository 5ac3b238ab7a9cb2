/*
 * attach.c - a data connection's queue pair: made when the client asks for it, and destroyed before
 * the connection leaves its group (G6).
 *
 * On the connection's I/O thread; waits for the kernel (some 100 us). A refusal is a sentence for the other
 * side, and the connection lives on, of no use but for calls.
 */
#include "base/log.h"
#include "base/task.h"
#include "memoryd/nic.h"
#include "memoryd/session.h"

/* The keeper looks for the session of a queue pair that broke. */
static void set_queue(struct server_session *session, struct server_card_queue *queue)
{
    struct server_groups *groups = &session->server->groups;
    spinlock_lock(&groups->lock);
    session->queue = queue;
    spinlock_unlock(&groups->lock);
}

/* While this thread waits for the kernel it reads no heartbeats, and nobody shall lose a lease for it. */
static int attach(struct memory_server *server, const struct wire_card *theirs, struct wire_card *ours,
                  struct server_card_queue **queue, struct error *error)
{
    uint64_t begin = task_now();
    /* relaxed: the keeper is late to see it by no more than its next look */
    atomic_add_relaxed(&server->attaching, 1u);
    int status = server_card_attach(server->card, theirs, ours, queue, error);
    uint64_t now = task_now();
    server_groups_prolong(server, now, now - begin);
    /* release: who sees that it is over sees that leases were prolonged */
    __atomic_fetch_sub(&server->attaching, 1u, __ATOMIC_RELEASE);
    return status;
}

enum session_result server_session_attach(struct server_session *session, const struct wire_head *head,
                                          const void *bytes)
{
    struct wire_card theirs, ours = {0};
    struct server_card_queue *queue = NULL;
    struct error error = {0};
    if (head->length != sizeof theirs)
        return server_session_broken(session, "the end of a queue pair in %u bytes", head->length);
    if (session->attached)
        return server_session_broken(session, "a second queue pair");
    session->attached = session->worked = true;
    memcpy(&theirs, bytes, sizeof theirs);
    int status = attach(session->server, &theirs, &ours, &queue, &error);
    set_queue(session, queue);
    bool sent;
    if (status == BANYAN_OK)
        sent = server_session_send(session, WIRE_ATTACHED, BANYAN_OK, head->id, &ours, sizeof ours);
    else
        sent = server_session_send(session, WIRE_ATTACHED, status, head->id, error.text, strlen(error.text));
    if (status != BANYAN_OK)
        log_warning("memory node %u: no queue pair for compute node %u (%s): %s", (unsigned)session->number,
                    (unsigned)server_group_compute_id(session), session->peer, error.text);
    return sent ? SESSION_MORE : server_session_broken(session, "no memory for a reply");
}

bool server_session_detach(struct server_session *session)
{
    struct server_card_queue *queue = session->queue;
    if (queue == NULL)
        return true;
    set_queue(session, NULL);
    return server_card_detach(queue);
}
