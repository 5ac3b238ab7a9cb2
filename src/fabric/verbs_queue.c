/*
 * verbs_queue.c - posting lists to a queue pair, taking what has completed, and sleeping until something does
 * (verbs_queue.h). verbs_works.c says which requests a list becomes; here it gets the room that they take.
 */
#include "fabric/verbs_queue.h"

#include <assert.h>
#include <string.h>

#include "fabric/verbs_queue_private.h"

#define BATCH 16 /* completions that are taken at once */

int verbs_queue_post(struct verbs_queue *queue, struct fabric_list *list)
{
    struct verbs_shape shape;
    if (queue->broken.code)
        return queue->broken.code;
    int status = verbs_list_validate(&queue->rules, list, &shape);
    if (status)
        return status;
    if (shape.works > queue->works_max - queue->works_under_way)
        return BANYAN_EBUSY;
    assert(queue->next - queue->first < VERBS_QUEUE_WORKS);
    struct verbs_list_under_way *entry = &queue->lists[queue->next % VERBS_QUEUE_WORKS];
    *entry = (struct verbs_list_under_way){
        .list = list, .commands = shape.commands, .works = shape.works, .status = shape.status};
    status = verbs_room_take(&queue->room, &entry->place, shape.bytes);
    if (status)
        return status;
    if (entry->place.own != NULL)
        verbs_count(&queue->counts.registered, 1);
    verbs_list_build(&queue->rules, list, &shape, queue->next, entry->place.bytes,
                     verbs_room_key(&queue->room, &entry->place), queue->works);
    queue->next++;
    queue->works_under_way += shape.works;

    int number = queue->device->provider->post(queue->pair, queue->works, shape.works, &queue->scratch);
    verbs_count(&queue->counts.doorbells, 1);
    verbs_count(&queue->counts.works, shape.works);
    verbs_count(&queue->counts.signalled, 1);
    verbs_count(&queue->counts.inlined, shape.inlined);
    if (number == 0)
        return BANYAN_OK;
    /* A part of it may be under way, so its place stays taken until the pair is destroyed. */
    entry->list = NULL;
    verbs_count(&queue->counts.lists, 1);
    return error_set(&queue->broken, BANYAN_ENET, "%s refused a list of %u requests: %s", queue->device->name,
                     shape.works, strerror(number));
}

/* ---- completing ---- */

static const char *operation_name(enum fabric_operation operation)
{
    switch (operation) {
    case FABRIC_READ:
        return "READ";
    case FABRIC_WRITE:
        return "WRITE";
    case FABRIC_CAS:
        return "CAS";
    case FABRIC_FAA:
        return "FAA";
    }
    return "command";
}

/* Breaks the queue. The first error that is no flush names the command at fault: all requests behind it are
 * flushed. A flush without such a cause means that the pair was ended from outside.  */
static void completion_failed(struct verbs_queue *queue, const struct ibv_wc *completion)
{
    const char *reason = verbs_completion_reason(completion->status);
    uint64_t sequence = verbs_id_sequence(completion->wr_id);
    if (queue->blamed)
        return;
    if (completion->status == IBV_WC_WR_FLUSH_ERR) {
        if (!queue->broken.code)
            error_set(&queue->broken, BANYAN_ENET, "%s: %s", queue->device->name, reason);
        return;
    }
    queue->blamed = true;
    const struct fabric_list *list = NULL;
    if (sequence >= queue->first && sequence < queue->next)
        list = queue->lists[sequence % VERBS_QUEUE_WORKS].list;
    uint32_t index = verbs_id_command(completion->wr_id);
    if (list == NULL || index >= list->count) {
        error_set(&queue->broken, BANYAN_ENET, "%s: %s", queue->device->name, reason);
        return;
    }
    const struct fabric_command *command = &list->commands[index];
    bool sized = command->operation == FABRIC_READ || command->operation == FABRIC_WRITE;
    char address[GADDR_TEXT_BYTES];
    error_set(&queue->broken, BANYAN_ENET, "%s of %u bytes at %s: %s", operation_name(command->operation),
              sized ? command->length : 8, gaddr_format(command->address, address), reason);
}

/* Takes the oldest list from the rings and hands it back to its owner. */
static void list_finish(struct verbs_queue *queue, verbs_done_function *done, void *owner)
{
    struct verbs_list_under_way *entry = &queue->lists[queue->first % VERBS_QUEUE_WORKS];
    struct fabric_list *list = entry->list;
    int status = entry->status;
    verbs_list_take(&queue->rules, list, entry->commands, entry->place.bytes);
    verbs_room_return(&queue->room, &entry->place);
    assert(queue->works_under_way >= entry->works && list != NULL);
    queue->works_under_way -= entry->works;
    queue->first++;
    verbs_count(&queue->counts.lists, 1);
    done(owner, list, status);
}

uint32_t verbs_queue_poll(struct verbs_queue *queue, verbs_done_function *done, void *owner)
{
    struct ibv_wc batch[BATCH];
    uint32_t finished = 0;
    int got = BATCH;
    while (got == BATCH && !queue->broken.code) {
        got = ibv_poll_cq(queue->completions, BATCH, batch);
        if (got < 0) {
            error_set(&queue->broken, BANYAN_ENET, "%s: its completion queue cannot be read",
                      queue->device->name);
            break;
        }
        verbs_count(&queue->counts.completions, (uint64_t)got);
        for (int i = 0; i < got; i++) {
            if (batch[i].status != IBV_WC_SUCCESS) {
                completion_failed(queue, &batch[i]);
            } else if (!queue->broken.code) {
                /* One request of each list is signalled, and they complete in order. */
                assert(queue->first < queue->next && verbs_id_sequence(batch[i].wr_id) == queue->first);
                list_finish(queue, done, owner);
                finished++;
            }
        }
    }
    return finished;
}

uint32_t verbs_queue_under_way(const struct verbs_queue *queue)
{
    return (uint32_t)(queue->next - queue->first);
}

const char *verbs_queue_broken(const struct verbs_queue *queue)
{
    return queue->broken.code ? queue->broken.text : NULL;
}

/* ---- sleeping ---- */

int verbs_queue_descriptor(const struct verbs_queue *queue)
{
    return queue->channel->fd;
}

void verbs_queue_arm(struct verbs_queue *queue)
{
    int number = ibv_req_notify_cq(queue->completions, 0);
    verbs_count(&queue->counts.arms, 1);
    if (number != 0 && !queue->broken.code)
        error_set(&queue->broken, BANYAN_ENET, "%s: its completion queue cannot be armed: %s",
                  queue->device->name, strerror(number));
}

void verbs_queue_awake(struct verbs_queue *queue)
{
    struct ibv_cq *completions;
    void *context;
    unsigned int events = 0;
    /* Each arming may have left one. Non-blocking: the loop ends when there is none. */
    while (ibv_get_cq_event(queue->channel, &completions, &context) == 0)
        events++;
    if (events > 0)
        ibv_ack_cq_events(queue->completions, events);
}

const struct verbs_counts *verbs_queue_counts(const struct verbs_queue *queue)
{
    return &queue->counts;
}
