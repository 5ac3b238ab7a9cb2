/*
 * remote_lease.c - see remote_lease.h. The heartbeat's thread brings echoes and notices; any thread loses the
 * connection and looks. A look is one load and one look at the clock.
 */
#include "base/clock.h"
#include "fabric/remote_fabric.h"

/* A lapse is counted when the lease has been given anew, or was taken away. */
static void move_end(struct remote_lease *lease, uint64_t end)
{
    uint64_t old = lease->end;
    if (old != 0 && (end == 0 || clock_boot_ns() >= old))
        lease->lapses++;
    /* release: a thread that finds the lease alive sees what its caller of fabric_lease_resume did before */
    atomic_store_release(&lease->end, end);
}

void remote_lease_begin(struct remote_lease *lease, uint32_t read_lease_ms, uint64_t sent, bool again)
{
    lease->ns = read_lease_ms * REMOTE_MS;
    lease->offered = 0;
    lease->resumed = !again;
    if (sent != 0)
        remote_lease_extend(lease, sent);
}

void remote_lease_lose(struct remote_lease *lease)
{
    move_end(lease, 0);
    lease->offered = 0;
    lease->resumed = false;
}

void remote_lease_extend(struct remote_lease *lease, uint64_t sent)
{
    uint64_t end = sent + lease->ns - lease->ns / 100;
    if (lease->ns == 0 || end <= lease->offered)
        return;
    lease->offered = end;
    if (lease->resumed)
        move_end(lease, end);
}

void remote_lease_echo(struct remote_node *home, uint64_t group, uint64_t sent)
{
    spinlock_lock(&home->lock);
    if (home->group == group) /* it may have been lost since the echo was read */
        remote_lease_extend(&home->fabric->lease, sent);
    spinlock_unlock(&home->lock);
}

bool remote_lease_alive(const struct fabric *fabric)
{
    const struct remote_lease *lease = &((const struct remote_fabric *)fabric)->lease;
    return clock_boot_ns() < atomic_load_acquire(&lease->end); /* acquire: see move_end */
}

uint64_t remote_lease_lapses(const struct fabric *fabric)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    struct spinlock *lock = &remote->nodes[REMOTE_HOME].lock;
    spinlock_lock(lock);
    uint64_t end = remote->lease.end, lapses = remote->lease.lapses;
    spinlock_unlock(lock);
    return lapses + (end != 0 && clock_boot_ns() >= end);
}

void remote_lease_resume(struct fabric *fabric, uint64_t incarnation)
{
    struct remote_fabric *remote = (struct remote_fabric *)fabric;
    struct remote_node *home = &remote->nodes[REMOTE_HOME];
    struct remote_lease *lease = &remote->lease;
    spinlock_lock(&home->lock);
    /* An older incarnation is of a connection that was lost since. */
    if (remote_group_lives(home->group) && incarnation >= home->since && !lease->resumed) {
        lease->resumed = true;
        if (clock_boot_ns() < lease->offered)
            move_end(lease, lease->offered);
    }
    spinlock_unlock(&home->lock);
}

/* ---- notices ---- */

void remote_notices_tell(struct remote_notices *notices)
{
    spinlock_lock(&notices->lock);
    if (notices->heard != NULL)
        notices->heard(notices->context);
    spinlock_unlock(&notices->lock);
}

void remote_notices_take(struct remote_notices *notices, uint64_t number)
{
    if (number <= notices->greatest) /* one thread at a time takes notices */
        return;
    /* release: a thread that sees the number sees what was done before it was announced, as far as it came
     * with the number */
    atomic_store_release(&notices->greatest, number);
    remote_notices_tell(notices);
}

uint64_t remote_notice(const struct fabric *fabric)
{
    return atomic_load_acquire(&((const struct remote_fabric *)fabric)->notices.greatest); /* see above */
}

void remote_notice_listen(struct fabric *fabric, void (*heard)(void *context), void *context)
{
    struct remote_notices *notices = &((struct remote_fabric *)fabric)->notices;
    spinlock_lock(&notices->lock);
    notices->heard = heard;
    notices->context = context;
    spinlock_unlock(&notices->lock);
}
