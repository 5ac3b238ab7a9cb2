#include "base/epoch.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/atomic.h"

/*
 * A global counter and, per slot, the counter's value that its reader saw on entering. The counter advances
 * when every reader inside saw its newest value; what was retired under value e is freed at e + 2: a reader
 * that could hold it entered at e + 1 at the latest, and must have left for the counter to get that far.
 */
#define BATCH 64u

struct retired {
    void (*callback)(void *object, void *context);
    void *object, *context;
    uint64_t epoch;
};

struct epoch_slot {
    struct epoch_domain *domain;
    struct epoch_slot *next;
    uint64_t announced; /* epoch * 2 + 1 inside of a section, else 0 */
    uint32_t nesting;
    bool taken;
    bool running;            /* callbacks: one that retires must not start them over */
    struct retired *retired; /* owned, in order of epoch */
    uint32_t count, capacity;
} __attribute__((aligned(64)));

struct epoch_domain {
    uint64_t epoch __attribute__((aligned(64)));
    struct spinlock lock __attribute__((aligned(64))); /* guards `taken` and additions to `slots` */
    struct epoch_slot *slots;                          /* only grows */
};

struct epoch_domain *epoch_domain_create(void)
{
    struct epoch_domain *domain = aligned_alloc(64, sizeof *domain);
    if (domain)
        *domain = (struct epoch_domain){.epoch = 2};
    return domain;
}

static void run_until(struct epoch_slot *slot, uint64_t epoch)
{
    uint32_t done = 0;
    if (slot->running)
        return;
    slot->running = true;
    while (done < slot->count && slot->retired[done].epoch <= epoch) {
        /* A copy: a callback that retires may move the array. */
        struct retired retired = slot->retired[done++];
        retired.callback(retired.object, retired.context);
    }
    slot->running = false;
    slot->count -= done;
    if (!done || !slot->count)
        return;
    memmove(slot->retired, slot->retired + done, slot->count * sizeof *slot->retired);
}

void epoch_domain_destroy(struct epoch_domain *domain)
{
    if (!domain)
        return;
    /* Callbacks may retire, through any slot: all slots stay until none has anything pending. */
    for (bool pending = true; pending;) {
        pending = false;
        for (struct epoch_slot *slot = domain->slots; slot; slot = slot->next) {
            assert(!slot->nesting);
            pending |= slot->count > 0;
            run_until(slot, UINT64_MAX);
        }
    }
    while (domain->slots) {
        struct epoch_slot *slot = domain->slots;
        domain->slots = slot->next;
        free(slot->retired);
        free(slot);
    }
    free(domain);
}

struct epoch_slot *epoch_slot_acquire(struct epoch_domain *domain)
{
    spinlock_lock(&domain->lock);
    struct epoch_slot *slot = domain->slots;
    while (slot && slot->taken)
        slot = slot->next;
    if (slot)
        slot->taken = true;
    spinlock_unlock(&domain->lock);
    if (slot)
        return slot;
    slot = aligned_alloc(64, sizeof *slot);
    if (!slot)
        return NULL;
    *slot = (struct epoch_slot){.domain = domain, .taken = true};
    spinlock_lock(&domain->lock);
    slot->next = domain->slots;
    atomic_store_release(&domain->slots, slot); /* pairs with the acquire in all_caught_up */
    spinlock_unlock(&domain->lock);
    return slot;
}

void epoch_slot_release(struct epoch_slot *slot)
{
    assert(!slot->nesting);
    /* What is still pending waits for the slot's next owner, or the domain's end. */
    spinlock_lock(&slot->domain->lock);
    slot->taken = false;
    spinlock_unlock(&slot->domain->lock);
}

void epoch_enter(struct epoch_slot *slot)
{
    if (slot->nesting++)
        return;
    uint64_t epoch = atomic_load_relaxed(&slot->domain->epoch);
    atomic_store_relaxed(&slot->announced, epoch * 2 + 1);
    /* Full fence, pairs with the one in try_advance: either the advancing thread sees our announcement, or we
     * see every unlinking that it had seen done. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

void epoch_leave(struct epoch_slot *slot)
{
    assert(slot->nesting);
    if (--slot->nesting == 0)
        atomic_store_release(&slot->announced, 0); /* release: our reads come before any free */
}

static bool all_caught_up(struct epoch_domain *domain, uint64_t epoch)
{
    for (struct epoch_slot *slot = atomic_load_acquire(&domain->slots); slot; slot = slot->next) {
        uint64_t announced = atomic_load_acquire(&slot->announced); /* pairs with epoch_leave */
        if (announced && announced != epoch * 2 + 1)
            return false;
    }
    return true;
}

static void try_advance(struct epoch_domain *domain)
{
    uint64_t epoch = atomic_load_acquire(&domain->epoch);
    __atomic_thread_fence(__ATOMIC_SEQ_CST); /* see epoch_enter */
    if (all_caught_up(domain, epoch))
        /* Acquire-release: a failure means that another thread advanced, which serves as well. */
        __atomic_compare_exchange_n(&domain->epoch, &epoch, epoch + 1, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED);
}

bool epoch_retire(struct epoch_slot *slot, void (*callback)(void *, void *), void *object, void *context)
{
    if (slot->count == slot->capacity) {
        uint32_t capacity = slot->capacity ? 2 * slot->capacity : 2 * BATCH;
        struct retired *larger = realloc(slot->retired, capacity * sizeof *larger);
        if (!larger)
            return false; /* never freeing it is safe, freeing it now is not */
        slot->retired = larger;
        slot->capacity = capacity;
    }
    /* Acquire-release fence: the unlinking that the caller did comes before the epoch it is stamped with. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    uint64_t epoch = atomic_load_acquire(&slot->domain->epoch);
    slot->retired[slot->count++] = (struct retired){callback, object, context, epoch};
    if (slot->count % BATCH)
        return true;
    try_advance(slot->domain);
    run_until(slot, atomic_load_acquire(&slot->domain->epoch) - 2);
    return true;
}
