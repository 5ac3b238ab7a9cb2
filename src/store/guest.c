/*
 * guest.c - the guard (guard.h) around changes that this process makes for others in ranges of its own: they
 * come from src/owner/, below the store (rule B1, docs/internals/cuts.md). Each has a guest while it lasts: a
 * session of the store for nothing else, which reads with the tree session of the task that makes the change.
 * Guests are kept for the next one; there are never more than tasks that make changes at once.
 *
 * On any task that serves. Taking a guest and giving it back take a lock each, for as many instructions as
 * there are guests, a few.
 */
#include <stdlib.h>

#include "store/guard.h"

static struct store_session *guest_free(struct store_cuts *cuts)
{
    spinlock_lock(&cuts->lock);
    struct store_session *guest = cuts->guests;
    while (guest && guest->used)
        guest = guest->next;
    if (guest)
        guest->used = true;
    spinlock_unlock(&cuts->lock);
    return guest;
}

static struct store_session *guest_take(struct store *store)
{
    struct store_cuts *cuts = &store->cuts;
    struct store_session *guest = guest_free(cuts);
    if (guest)
        return guest;
    guest = calloc(1, sizeof *guest);
    if (!guest)
        return NULL;
    guest->store = store;
    guest->here = guest->used = true;
    store_guard_add(cuts, &guest->guard);
    spinlock_lock(&cuts->lock);
    guest->next = cuts->guests;
    cuts->guests = guest;
    spinlock_unlock(&cuts->lock);
    return guest;
}

/* A guest that waited for another process would hold up those who wait for this one: so it reads what this
 * process owns, or the cut fails (`here`). */
static int served_begin(void *context, struct tree_session *session, const void *key, size_t key_length,
                        void **change)
{
    struct store_session *guest = guest_take(context);
    if (!guest)
        return pool_fail(tree_session_pool(session), BANYAN_ENOMEM, "no memory for a change of another's");
    guest->tree = session;
    store_guard_begin(guest, key, key_length);
    *change = guest;
    return 0;
}

static void served_end(void *context, void *change)
{
    struct store_session *guest = change;
    struct store_cuts *cuts = &((struct store *)context)->cuts;
    store_guard_end(guest);
    guest->tree = NULL;
    spinlock_lock(&cuts->lock);
    guest->used = false;
    spinlock_unlock(&cuts->lock);
}

const struct tree_served store_served = {.begin = served_begin, .end = served_end};

void store_guests_end(struct store *store)
{
    struct store_session *guest;
    while ((guest = store->cuts.guests)) {
        store->cuts.guests = guest->next;
        store_session_destroy(guest);
    }
}
