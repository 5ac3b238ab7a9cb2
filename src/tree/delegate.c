/*
 * delegate.c - Operations that a lock's holder does for the tasks that wait for it; see delegate.h.
 *
 * The list that writes them back may be cut (G5), and readers may look between two of its writes. So the rule
 * is that each slot goes from its old content to its new one in one write and that no key changes its slot: a
 * key that was deleted comes back into the slot that it had, and no other key gets that slot in the same
 * list.
 */
#include "tree/delegate.h"

#include <assert.h>
#include <string.h>

#include "base/task.h"
#include "tree/access.h"
#include "tree/index.h"
#include "tree/session.h"

bool tree_delegate_on(const struct tree_session *session)
{
    const struct tree_switches *switches = &session->compute->switches;
    return switches->delegate && switches->write_unit == TREE_WRITE_SLOT &&
           (switches->local_locks || session->right == TREE_OWNED);
}

void tree_delegate_take(struct tree_session *session, const struct tree *tree, struct format_link link,
                        const struct tree_hold *hold, uint32_t room, const uint64_t *known,
                        struct tree_taken *taken)
{
    struct tree_lock_wanted wanted = {.tree = tree,
                                      .node = link.address,
                                      .tag = link.tag,
                                      .room = room < TREE_DELEGATE_MAX ? room : TREE_DELEGATE_MAX,
                                      .known = known};
    taken->waiters = tree_lock_take(session, hold, &wanted);
}

/* ---- on the image ---- */

/* What the list under construction writes. */
struct application {
    const struct tree_delegate_leaf *leaf;
    uint32_t seed;
    bool apart; /* the operation under way is of a task on another CPU thread */
    struct fabric_command *writes;
    uint32_t *count;
    uint32_t written_count, cleared_count;
    uint32_t written[TREE_DELEGATE_MAX + 1]; /* slots that are in the list as a whole */
    struct cleared {
        uint32_t number;
        struct format_key key;
    } cleared[TREE_DELEGATE_MAX + 1]; /* slots whose entries the list deletes, for now */
};

/* The slot will hold at the end what the image holds then: one write is enough, however often it changes. */
static void slot_write(struct application *application, uint32_t number)
{
    const struct tree_delegate_leaf *leaf = application->leaf;
    const struct format_layout *layout = &leaf->tree->layout;
    for (uint32_t i = 0; i < application->written_count; i++)
        if (application->written[i] == number)
            return;
    application->written[application->written_count++] = number;
    application->writes[(*application->count)++] =
        pool_write_command(leaf->address + layout->slot_offset[number],
                           leaf->image + layout->slot_offset[number], layout->slot_bytes);
}

static void slot_cleared(struct application *application, uint32_t number, struct format_key key)
{
    application->cleared[application->cleared_count++] = (struct cleared){number, key};
}

/* A slot for a key that is not in the leaf; UINT32_MAX: none that this list may put it into. */
static uint32_t slot_for(const struct application *application, const struct tree_operation *operation)
{
    const struct tree_delegate_leaf *leaf = application->leaf;
    const struct format_point *place = &operation->place;
    uint32_t number =
        format_bucket_free_slot(&leaf->tree->layout, leaf->image, &place->bucket, application->seed);
    for (uint32_t i = 0; i < application->cleared_count; i++) {
        const struct cleared *cleared = &application->cleared[i];
        if (!format_key_compare(cleared->key, place->key))
            return cleared->number;
    }
    for (uint32_t i = 0; i < application->cleared_count; i++)
        if (application->cleared[i].number == number)
            return UINT32_MAX;
    return number;
}

static bool value_fits(const struct format_geometry *geometry, size_t length)
{
    return geometry->value_variable ? length <= geometry->value_bytes : length == geometry->value_bytes;
}

static bool operation_put(struct application *application, struct tree_operation *operation,
                          const struct format_slot *found, struct format_key value)
{
    const struct tree_delegate_leaf *leaf = application->leaf;
    const struct format_layout *layout = &leaf->tree->layout;
    struct format_key key = operation->place.key, lower = leaf->header->lower;
    if (!value_fits(&layout->geometry, value.length) ||
        (!found && format_slot_needs_block(layout, lower, key)))
        return false;
    uint32_t number = found ? found->number : slot_for(application, operation);
    if (number == UINT32_MAX)
        return false;
    format_slot_write(layout, leaf->image, number, application->seed, lower,
                      found ? found->block : GADDR_NULL, key, value);
    slot_write(application, number);
    operation->wrote = true;
    return true;
}

/* Whether the bucket holds another entry: then the leaf is not empty without this one. */
static bool others_stay(const struct application *application, const struct format_bucket *bucket,
                        uint32_t except)
{
    const struct tree_delegate_leaf *leaf = application->leaf;
    uint32_t empty = format_slot_empty_check(application->seed);
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++) {
        uint32_t check;
        memcpy(&check, leaf->image + leaf->tree->layout.slot_offset[i], sizeof check);
        if (i != except && check != empty)
            return true;
    }
    return false;
}

static bool operation_delete(struct application *application, struct tree_operation *operation,
                             const struct format_slot *found)
{
    const struct tree_delegate_leaf *leaf = application->leaf;
    if (!others_stay(application, &operation->place.bucket, found->number))
        return false;
    format_slot_clear(&leaf->tree->layout, leaf->image, found->number, application->seed);
    slot_write(application, found->number);
    slot_cleared(application, found->number, operation->place.key);
    operation->block = found->block;
    operation->wrote = true;
    return true;
}

/* False: it is left to its own task, and the image is as it was. */
static bool operation_apply(struct application *application, struct tree_operation *operation)
{
    const struct tree_delegate_leaf *leaf = application->leaf;
    struct format_slot slot;
    uint8_t value[FORMAT_VALUE_MAX + 1];
    size_t length = 0;
    operation->wrote = false;
    operation->block = GADDR_NULL;
    tree_charge_bucket(&leaf->tree->layout);
    if (application->apart) /* its key, and a line of its context; the operation came when it was taken */
        task_charge(TASK_WORK_LINE, task_lines(operation->place.key.length) + 1);
    enum format_verdict place =
        format_point_verdict_locked(&operation->place, leaf->image, leaf->header, &slot);
    bool found = place == FORMAT_HIT;
    if (!found && place != FORMAT_MISS)
        return false;
    enum tree_verdict verdict = operation->function(operation->context, found ? slot.value.bytes : NULL,
                                                    found ? slot.value.length : 0, value, &length);
    if (verdict == TREE_PUT && application->apart)
        task_charge(TASK_WORK_LINE, task_lines((uint32_t)length));
    if (verdict == TREE_PUT)
        return operation_put(application, operation, found ? &slot : NULL,
                             (struct format_key){value, (uint32_t)length});
    return verdict != TREE_DELETE || !found || operation_delete(application, operation, &slot);
}

/* ---- what was taken ---- */

/* A waiter whose operations are not all done: a guest is told, another gets the lock for itself. */
static bool waiter_apply(struct application *application, struct tree_waiter *waiter)
{
    application->apart = waiter->thread != task_thread();
    for (struct tree_operation *operation = waiter->operations; operation; operation = operation->next) {
        operation->done = operation_apply(application, operation);
        if (!operation->done)
            return waiter->guest;
    }
    return true;
}

void tree_delegate_apply(const struct tree_delegate_leaf *leaf, const struct tree_hold *hold,
                         struct tree_taken *taken, struct fabric_command *writes, uint32_t *count)
{
    const struct format_header *header = leaf->header;
    struct application application = {.leaf = leaf,
                                      .seed = format_slot_seed(header->tag, header->version),
                                      .writes = writes,
                                      .count = count};
    struct tree_waiter **at = &taken->waiters, *undone = NULL, **end = &undone;
    if (leaf->slot != UINT32_MAX)
        application.written[application.written_count++] = leaf->slot;
    if (leaf->cleared)
        slot_cleared(&application, leaf->slot, leaf->key);
    while (*at) {
        struct tree_waiter *waiter = *at;
        if (waiter_apply(&application, waiter)) {
            at = &waiter->next;
            continue;
        }
        *at = waiter->next;
        waiter->operations = NULL; /* no other holder shall try it again */
        waiter->next = NULL;
        *end = waiter;
        end = &waiter->next;
    }
    if (undone)
        tree_lock_put_back(leaf->session, hold, undone);
}

void tree_delegate_return(struct tree_session *session, const struct tree_hold *hold,
                          struct tree_taken *taken)
{
    if (taken->waiters)
        tree_lock_put_back(session, hold, taken->waiters);
    taken->waiters = NULL;
}

/* What the list means for an operation in it. One that changed nothing has learnt nothing either if the list
 * failed: it may have seen a change that was not written, or the lock was not held any more. */
static int operation_status(const struct tree_operation *operation, int status)
{
    bool lost = status == BANYAN_ENET || status == BANYAN_ETIMEOUT || status == BANYAN_EUNKNOWN;
    if (!lost)
        return status;
    return operation->wrote ? BANYAN_EUNKNOWN : BANYAN_ENET;
}

void tree_delegate_answer(struct tree_session *session, struct tree_taken *taken, int status)
{
    for (struct tree_waiter *waiter = taken->waiters; waiter; waiter = waiter->next)
        for (struct tree_operation *operation = waiter->operations; operation && operation->done;
             operation = operation->next) {
            operation->status = operation_status(operation, status);
            session->stats.combined++;
        }
    tree_lock_answer(taken->waiters);
    taken->waiters = NULL;
}

int tree_delegate_result(struct tree_session *session, const struct tree_operation *operation)
{
    int status = operation->status;
    assert(operation->done);
    if (!status && operation->wrote) /* the list has proven the right to the range */
        session->cached = false;
    if (!status && operation->block != GADDR_NULL) /* else the slot may still be there, and name it */
        pool_block_release(&session->pool, operation->block, operation->place.key.length);
    if (!status || status == BANYAN_EFENCED)
        return status;
    return pool_fail(&session->pool, status,
                     status == BANYAN_EUNKNOWN
                         ? "the write may have taken effect: the lock's holder, which did it, heard: %s"
                         : "not done: the lock's holder, which was to do it, heard: %s",
                     error_name(status));
}
