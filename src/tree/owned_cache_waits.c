/* owned_cache_waits.c - see owned_cache_waits.h. */
#include "tree/owned_cache_waits.h"

#include <assert.h>
#include <string.h>

#include "base/task.h"

/* Written by both sides: as the waiters of local locks (lock.c). */
enum wait_state {
    WAIT_QUEUED,
    WAIT_PARKED,  /* set by the waiter */
    WAIT_GRANTED, /* set by the writer, which still touches the waiter's task */
    WAIT_DONE,    /* set by the writer: it is through with the wait */
};

struct owned_wait {
    struct owned_wait *next; /* of its mark */
    struct task *task;
    uint32_t state;
    bool known;
    uint8_t *value;
    uint32_t length;
};

static struct owned_wait_list *list_of(struct owned_waits *waits, struct format_key key)
{
    return &waits->lists[(format_key_hash(key) >> 32) % OWNED_WAIT_LISTS];
}

void owned_mark_begin(struct owned_waits *waits, struct owned_mark *mark, struct format_key key)
{
    struct owned_wait_list *list = list_of(waits, key);
    mark->key = key;
    mark->waits = NULL;
    spinlock_lock(&list->lock);
    mark->next = list->marks;
    list->marks = mark;
    spinlock_unlock(&list->lock);
}

static void wake(struct owned_wait *wait)
{
    uint32_t queued = WAIT_QUEUED;
    task_charge(TASK_WORK_HANDOVER, 1);
    /* Release: with the value. If it fails the waiter has parked; it published nothing with that. */
    if (__atomic_compare_exchange_n(&wait->state, &queued, (uint32_t)WAIT_DONE, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED))
        return;
    assert(queued == WAIT_PARKED);
    struct task *task = wait->task;
    atomic_store_release(&wait->state, WAIT_GRANTED); /* with the value */
    task_unpark(task);
    atomic_store_release(&wait->state, WAIT_DONE); /* behind the last look at the task */
}

void owned_mark_end(struct owned_waits *waits, struct owned_mark *mark, const struct format_key *value)
{
    struct owned_wait_list *list = list_of(waits, mark->key);
    spinlock_lock(&list->lock);
    struct owned_mark **at = &list->marks;
    while (*at != mark)
        at = &(*at)->next;
    *at = mark->next;
    struct owned_wait *wait = mark->waits;
    spinlock_unlock(&list->lock);
    while (wait) {
        struct owned_wait *next = wait->next; /* it is the waiter's again once it is woken */
        wait->known = value != NULL;
        wait->length = value ? value->length : 0;
        if (wait->length)
            memcpy(wait->value, value->bytes, wait->length);
        wake(wait);
        wait = next;
    }
}

static bool join(struct owned_waits *waits, struct format_key key, struct owned_wait *wait)
{
    struct owned_wait_list *list = list_of(waits, key);
    spinlock_lock(&list->lock);
    struct owned_mark *mark = list->marks;
    while (mark && (mark->key.length != key.length || memcmp(mark->key.bytes, key.bytes, key.length)))
        mark = mark->next;
    if (mark) {
        wait->next = mark->waits;
        mark->waits = wait;
    }
    spinlock_unlock(&list->lock);
    return mark != NULL;
}

bool owned_wait_for(struct owned_waits *waits, struct format_key key, uint8_t *value, uint32_t *length)
{
    struct owned_wait wait = {.task = task_self(), .state = WAIT_QUEUED, .value = value};
    if (!join(waits, key, &wait))
        return false;
    uint32_t queued = WAIT_QUEUED;
    /* Relaxed: says only that we park. If it fails the writer was faster, and the loop below acquires. */
    __atomic_compare_exchange_n(&wait.state, &queued, (uint32_t)WAIT_PARKED, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    while (atomic_load_acquire(&wait.state) == WAIT_PARKED)
        task_park();
    while (atomic_load_acquire(&wait.state) != WAIT_DONE)
        atomic_pause(); /* the writer still touches our task */
    task_charge(TASK_WORK_LINE, 2);
    *length = wait.length;
    return wait.known;
}
