/* refused.c - see refused.h. */
#include "owner/refused.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/task.h"

#define AGAIN_FIRST_NS (250 * MILLISECOND)
#define AGAIN_LAST_NS  (4000 * MILLISECOND)
#define ROOM           64u /* of the table at first */

struct owner_refused {
    uint16_t number;
    uint64_t epoch;
    struct format_key_copy lower;
    uint64_t again, pause; /* when it is tried again; how long after the last time that is */
    char text[256];
};

/* Under the lock. NULL: it was not refused. */
static struct owner_refused *find(const struct owner *owner, uint16_t number, uint64_t epoch,
                                  struct format_key lower)
{
    for (uint32_t i = 0; i < owner->refused_count; i++) {
        struct owner_refused *refused = &owner->refused[i];
        if (refused->number == number && refused->epoch == epoch &&
            !format_key_compare(format_key_of(&refused->lower), lower))
            return refused;
    }
    return NULL;
}

/* Room for one more; the noting task's. */
static bool reserve(struct owner *owner)
{
    if (owner->refused_count < owner->refused_capacity)
        return true;
    const uint32_t capacity = owner->refused_capacity ? 2 * owner->refused_capacity : ROOM;
    struct owner_refused *grown = heap_allocate_zeros(&owner->heap, capacity, sizeof *grown);
    if (!grown)
        return false;
    spinlock_lock(&owner->lock);
    struct owner_refused *old = owner->refused;
    if (owner->refused_count)
        memcpy(grown, old, owner->refused_count * sizeof *grown);
    owner->refused = grown;
    owner->refused_capacity = capacity;
    spinlock_unlock(&owner->lock);
    heap_free(&owner->heap, old);
    return true;
}

void owner_refused_note(struct owner *owner, const struct owner_piece *piece, const char *text)
{
    const uint64_t now = task_now();
    const bool room = reserve(owner);
    bool first = false;
    spinlock_lock(&owner->lock);
    struct owner_refused *refused = find(owner, piece->number, piece->epoch, format_key_of(&piece->lower));
    if (!refused && room) {
        first = true;
        refused = &owner->refused[owner->refused_count++];
        *refused = (struct owner_refused){.number = piece->number,
                                          .epoch = piece->epoch,
                                          .lower = piece->lower,
                                          .pause = AGAIN_FIRST_NS / 2};
    }
    if (refused) {
        refused->pause = refused->pause < AGAIN_LAST_NS / 2 ? 2 * refused->pause : AGAIN_LAST_NS;
        refused->again = now + refused->pause;
        snprintf(refused->text, sizeof refused->text, "%s", text);
    }
    spinlock_unlock(&owner->lock);
    if (first)
        log_error("ownership: %s", text);
}

void owner_refused_end(struct owner *owner, const struct owner_piece *piece)
{
    spinlock_lock(&owner->lock);
    struct owner_refused *refused = find(owner, piece->number, piece->epoch, format_key_of(&piece->lower));
    if (refused)
        *refused = owner->refused[--owner->refused_count];
    spinlock_unlock(&owner->lock);
}

bool owner_refused_wait(struct owner *owner, const struct owner_piece *piece)
{
    spinlock_lock(&owner->lock);
    const struct owner_refused *refused =
        find(owner, piece->number, piece->epoch, format_key_of(&piece->lower));
    const bool wait = refused && task_now() < refused->again;
    spinlock_unlock(&owner->lock);
    return wait;
}

int owner_refused_tell(struct owner *owner, struct tree_session *session, const struct tree *tree)
{
    struct format_key lower;
    char text[sizeof((struct owner_refused *)0)->text];
    const uint64_t epoch = tree_session_met(session, &lower);
    spinlock_lock(&owner->lock);
    const struct owner_refused *refused = find(owner, tree_number(tree), epoch, lower);
    if (refused) /* a copy: it may be inherited at once */
        memcpy(text, refused->text, sizeof text);
    spinlock_unlock(&owner->lock);
    return refused ? pool_fail(tree_session_pool(session), BANYAN_ECORRUPT, "%s", text) : 0;
}

void owner_refused_destroy(struct owner *owner)
{
    heap_free(&owner->heap, owner->refused);
}
