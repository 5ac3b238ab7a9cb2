/* owned_cache_waits.c - see owned_cache_waits.h. */
#include "tree/owned_cache_waits.h"

#include <string.h>

#include "base/task.h"
#include "base/wakeup.h"

struct owned_wait {
    struct owned_wait *next; /* of its mark */
    struct wakeup wakeup;
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
        task_charge(TASK_WORK_HANDOVER, 1);
        wakeup_give(&wait->wakeup);
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
    struct owned_wait wait = {.value = value};
    wakeup_init(&wait.wakeup);
    if (!join(waits, key, &wait))
        return false;
    wakeup_wait(&wait.wakeup);
    task_charge(TASK_WORK_LINE, 2);
    *length = wait.length;
    return wait.known;
}
