/* moment.c - see moment.h. */
#include "moment.h"

#include <stdlib.h>
#include <string.h>

/* Moments at which a client's keys held what was seen: all between two stamps. */
struct window {
    uint64_t from, to;
};
struct windows {
    struct window *list; /* owned */
    size_t count;
};

uint64_t moment_stamp(uint64_t *clock)
{
    /* Both orders: what is done before a stamp is done before all that follows a later one. */
    return __atomic_add_fetch(clock, 1, __ATOMIC_ACQ_REL);
}

static struct moment_change *change_add(struct moment_client *client, const struct moment_change *change)
{
    if (client->count == client->capacity) {
        client->capacity = client->capacity ? 2 * client->capacity : 1024;
        client->changes = realloc(client->changes, client->capacity * sizeof *client->changes);
        if (!client->changes)
            abort();
    }
    client->changes[client->count] = *change;
    return &client->changes[client->count++];
}

struct moment_change *moment_begin(struct moment_client *client, uint64_t *clock)
{
    return change_add(client, &(struct moment_change){.begun = moment_stamp(clock), .ended = UINT64_MAX});
}

void moment_copy(struct moment_client *client, const struct moment_change *change)
{
    (void)change_add(client, change);
    for (uint32_t i = 0; i < change->count; i++)
        client->values[change->keys[i]] = change->values[i];
}

void moment_add(struct moment_client *client, uint32_t key, uint64_t value)
{
    struct moment_change *change = &client->changes[client->count - 1];
    if (change->count == MOMENT_BATCH || key >= MOMENT_KEYS)
        abort();
    change->keys[change->count] = key;
    change->values[change->count++] = value;
    client->values[key] = value;
}

void moment_end(struct moment_client *client, uint64_t *clock)
{
    client->changes[client->count - 1].ended = moment_stamp(clock);
}

void moment_client_free(struct moment_client *client)
{
    free(client->changes);
    *client = (struct moment_client){.changes = NULL};
}

static void windows_find(const struct moment_client *client, const uint64_t seen[MOMENT_KEYS],
                         struct windows *windows)
{
    uint64_t values[MOMENT_KEYS] = {0};
    unsigned others = 0;
    for (unsigned key = 0; key < MOMENT_KEYS; key++)
        others += seen[key] != 0;
    windows->count = 0;
    windows->list = malloc((client->count + 1) * sizeof *windows->list);
    if (!windows->list)
        abort();
    for (size_t done = 0; done <= client->count; done++) {
        const struct moment_change *change = done ? &client->changes[done - 1] : NULL;
        for (uint32_t i = 0; change && i < change->count; i++) {
            const uint32_t key = change->keys[i];
            others -= values[key] != seen[key];
            values[key] = change->values[i];
            others += values[key] != seen[key];
        }
        if (!others)
            windows->list[windows->count++] =
                (struct window){.from = change ? change->begun : 0,
                                .to = done < client->count ? client->changes[done].ended : UINT64_MAX};
    }
}

static bool fits(const struct windows *windows, uint64_t moment)
{
    for (size_t i = 0; i < windows->count; i++)
        if (windows->list[i].from <= moment && moment < windows->list[i].to)
            return true;
    return false;
}

bool moment_judge(const struct moment_client *clients, unsigned count, const struct moment_view *view,
                  unsigned *wrong)
{
    struct windows windows[64];
    bool found = false;
    if (count > 64)
        abort();
    *wrong = count;
    for (unsigned i = 0; i < count; i++) {
        windows_find(&clients[i], view->values[i], &windows[i]);
        if (!windows[i].count && *wrong == count)
            *wrong = i;
    }
    /* If some moment fits, the latest begin of those windows that it lies in does, or the view's own. */
    for (unsigned i = 0; i <= count && !found && *wrong == count; i++)
        for (size_t j = 0; j < (i < count ? windows[i].count : 1) && !found; j++) {
            const uint64_t moment = i < count ? windows[i].list[j].from : view->opened_from;
            found = moment >= view->opened_from && moment < view->opened_to;
            for (unsigned other = 0; other < count && found; other++)
                found = fits(&windows[other], moment);
        }
    for (unsigned i = 0; i < count; i++)
        free(windows[i].list);
    return found;
}
