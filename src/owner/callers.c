/* callers.c - see callers.h. */
#include "owner/callers.h"

#include <assert.h>
#include <stdlib.h>

static_assert(OWNER_CALLERS_PAGE * OWNER_CALLERS_PAGES == UINT16_MAX + 1, "a place for each compute id");

/* Under the lock, or where the page is known to be there, which it then stays. */
static struct owner_caller *caller_of(const struct owner_callers *callers, uint16_t id)
{
    struct owner_caller *page = callers->pages[id / OWNER_CALLERS_PAGE];
    return page ? &page[id % OWNER_CALLERS_PAGE] : NULL;
}

static bool page_make(struct owner_callers *callers, uint16_t id)
{
    struct owner_caller *page = calloc(OWNER_CALLERS_PAGE, sizeof *page), **place;
    if (!page)
        return false;
    spinlock_lock(&callers->lock);
    place = &callers->pages[id / OWNER_CALLERS_PAGE];
    if (!*place) {
        *place = page;
        page = NULL;
    }
    spinlock_unlock(&callers->lock);
    free(page);
    return true;
}

bool owner_callers_hear(struct owner_callers *callers, struct fabric_process from, uint64_t given_up)
{
    for (;;) {
        spinlock_lock(&callers->lock);
        struct owner_caller *caller = caller_of(callers, from.compute_id);
        if (caller && caller->instance != from.instance) /* the id has another process now */
            *caller = (struct owner_caller){.instance = from.instance};
        if (caller && caller->given_up < given_up)
            caller->given_up = given_up;
        spinlock_unlock(&callers->lock);
        if (caller)
            return true;
        if (!page_make(callers, from.compute_id))
            return false;
    }
}

bool owner_callers_wait(struct owner_callers *callers, struct fabric_process from, uint64_t given_up)
{
    spinlock_lock(&callers->lock);
    const struct owner_caller *caller = caller_of(callers, from.compute_id);
    const bool waits = caller && caller->instance == from.instance && caller->given_up <= given_up;
    spinlock_unlock(&callers->lock);
    return waits;
}

void owner_callers_free(struct owner_callers *callers)
{
    for (uint32_t i = 0; i < OWNER_CALLERS_PAGES; i++)
        free(callers->pages[i]);
}
