/* cursors.c - a ring of the latest cursors, under one short lock; contract in cursors.h. */
#include "server/cursors.h"

#include <stdlib.h>
#include <string.h>
#include "base/atomic.h"
#include "base/random.h"

struct place {
    uint64_t cursor; /* 0: never used */
    uint8_t length;
    uint8_t key[CURSORS_KEY_MAX];
};
struct server_cursors {
    struct spinlock lock; /* guards what follows */
    uint64_t next;
    struct place places[CURSORS_KEPT]; /* cursor modulo CURSORS_KEPT */
};

struct server_cursors *server_cursors_create(void)
{
    struct server_cursors *cursors = calloc(1, sizeof *cursors);
    if (!cursors)
        return NULL;
    /* In [2^40, 2^52), so that 2^52 more cursors stay below 2^53. */
    cursors->next = (UINT64_C(1) << 40) + random_entropy() % ((UINT64_C(1) << 52) - (UINT64_C(1) << 40));
    return cursors;
}

void server_cursors_destroy(struct server_cursors *cursors)
{
    free(cursors);
}

uint64_t server_cursors_put(struct server_cursors *cursors, const void *key, size_t length)
{
    spinlock_lock(&cursors->lock);
    uint64_t cursor = cursors->next++;
    struct place *place = &cursors->places[cursor % CURSORS_KEPT];
    place->cursor = cursor;
    place->length = (uint8_t)(length < CURSORS_KEY_MAX ? length : CURSORS_KEY_MAX);
    memcpy(place->key, key, place->length);
    spinlock_unlock(&cursors->lock);
    return cursor;
}

bool server_cursors_get(struct server_cursors *cursors, uint64_t cursor, uint8_t key[CURSORS_KEY_MAX],
                        size_t *length)
{
    spinlock_lock(&cursors->lock);
    const struct place *place = &cursors->places[cursor % CURSORS_KEPT];
    bool known = cursor && place->cursor == cursor;
    if (known) {
        *length = place->length;
        memcpy(key, place->key, place->length);
    }
    spinlock_unlock(&cursors->lock);
    return known;
}
