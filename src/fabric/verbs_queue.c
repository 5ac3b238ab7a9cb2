/*
 * verbs_queue.c - see verbs_queue.h. What a list becomes is in verbs_works.c; here is what it takes: room in
 * the send queue, room for its bytes, and a place in the ring of lists under way.
 *
 * BOUNDS. Requests under way never exceed what the send queue was granted, bytes never the ring, lists never
 * the ring of lists (each has a request). Who finds no room is told BANYAN_EBUSY, and an empty queue has room
 * for every list that fabric_execute lets through. The completion queue is as long as the send queue: even if
 * all requests fail at once, each with a completion of its own, it cannot overflow.
 *
 * ORDER. A reliable connection completes its requests in the order of their posts, so lists are done in that
 * order too: rings do for everything.
 */
#include "fabric/verbs_queue.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/atomic.h"
#include "fabric/verbs_works.h"

/* Eight of the longest lists, more than that of the usual ones (two or three requests), which is more than
 * one connection can use: most NICs keep 16 READs and atomics under way on it. */
#define QUEUE_WORKS 512u
/* Four scans' lists of 64 leaves of 1 KiB, or as many READs of one leaf as QUEUE_WORKS allows, and half of it
 * spare; all in all some megabytes for a worker's queues to tens of memory nodes. */
#define RING_BYTES (UINT32_C(256) << 10)
/* Lists' bytes begin on a cache line of their own: NICs write whole lines faster. */
#define RING_ALIGN 64u
/* Of lists that are longer than the ring, together: four of the longest. */
#define OWN_BYTES_MAX (4 * (FABRIC_LIST_BYTES_MAX + 8 * FABRIC_COMMANDS_MAX))
/* Bytes within requests: slots, lock words, small values. With 220 a request of NVIDIA's NICs has 256 bytes;
 * more would make all requests of the queue longer. NICs that cannot do it get the next. */
static const uint32_t inline_steps[] = {220, 128, 64, 28, 0};
#define BATCH 16

/* A list under way. */
struct list_under_way {
    struct fabric_list *list; /* NULL: the post failed, the caller has it back */
    uint8_t *place;
    struct ibv_mr *own; /* the place is no part of the ring */
    uint32_t commands, works;
    uint32_t bytes; /* of the ring, with what was left out at its end; or of `own` */
    int status;     /* 0 or BANYAN_EADDRESS, when it has completed */
};

struct verbs_queue {
    const struct verbs_device *device;
    struct verbs_rules rules;
    struct ibv_comp_channel *channel;
    struct ibv_cq *completions;
    struct ibv_qp *pair;
    struct wire_nic ours;
    struct verbs_counts counts;
    struct error broken; /* code 0: it is not */
    bool blamed;         /* ... and the text names the command at fault */

    uint32_t works_max, works_under_way;
    uint64_t first, next; /* sequence numbers of the lists under way */
    struct list_under_way lists[QUEUE_WORKS];

    uint8_t *ring;
    struct ibv_mr *ring_region;
    uint64_t ring_begin, ring_end; /* bytes in use, counted on and on */
    uint32_t own_bytes;

    struct verbs_work works[VERBS_LIST_WORKS_MAX];
    struct verbs_scratch scratch;
};

/* Only the owner writes; others may read. Relaxed: a statistic orders nothing. */
static inline void count(uint64_t *counter, uint64_t more)
{
    atomic_store_relaxed(counter, *counter + more);
}

/* ---- creating ---- */

static int errno_error(int number)
{
    return number == EINVAL ? BANYAN_EINVAL : number == EOPNOTSUPP ? BANYAN_ENOTSUP : BANYAN_ENOMEM;
}

static int limits_judge(struct verbs_queue *queue, struct error *error)
{
    const struct verbs_device *device = queue->device;
    const struct verbs_limits *limits = &device->limits;
    if (limits->message < VERBS_MESSAGE_MIN)
        return error_set(error, BANYAN_ENOTSUP,
                         "%s: its longest message is %llu bytes, and lists need %llu; use another NIC",
                         device->name, (unsigned long long)limits->message,
                         (unsigned long long)VERBS_MESSAGE_MIN);
    queue->rules.message = limits->message;
    queue->rules.masked_cas = device->features.masked_cas;
    uint32_t most = limits->works < limits->completions ? limits->works : limits->completions;
    queue->works_max = most < QUEUE_WORKS ? most : QUEUE_WORKS;
    uint32_t need = verbs_list_works_most(limits->message);
    if (queue->works_max < need)
        return error_set(
            error, BANYAN_ENOTSUP,
            "%s: a queue pair can have %u requests under way, and lists need %u; use another NIC",
            device->name, queue->works_max, need);
    return BANYAN_OK;
}

static int completions_create(struct verbs_queue *queue, struct error *error)
{
    const struct verbs_device *device = queue->device;
    queue->channel = ibv_create_comp_channel(device->context);
    if (queue->channel == NULL)
        return error_set(error, errno_error(errno), "%s: no completion channel: %s", device->name,
                         strerror(errno));
    int flags = fcntl(queue->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(queue->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return error_set(error, BANYAN_ENOTSUP, "%s: its completion channel cannot be polled: %s",
                         device->name, strerror(errno));
    queue->completions = ibv_create_cq(device->context, (int)queue->works_max, NULL, queue->channel, 0);
    if (queue->completions == NULL)
        return error_set(error, errno_error(errno),
                         "%s: no completion queue for %u requests: %s; fewer workers need fewer of them",
                         device->name, queue->works_max, strerror(errno));
    return BANYAN_OK;
}

static int pair_create(struct verbs_queue *queue, struct error *error)
{
    const struct verbs_device *device = queue->device;
    struct ibv_qp_init_attr attributes;
    for (uint32_t i = 0; i < sizeof inline_steps / sizeof inline_steps[0] && queue->pair == NULL; i++) {
        attributes = (struct ibv_qp_init_attr){
            .send_cq = queue->completions,
            .recv_cq = queue->completions,
            .qp_type = IBV_QPT_RC,
            .sq_sig_all = 0,
            .cap = {.max_send_wr = queue->works_max,
                    .max_recv_wr = 1, /* none is ever posted; some providers refuse 0 */
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = inline_steps[i]},
        };
        queue->pair =
            device->provider->queue_create(device->domain, &attributes, device->features.masked_cas);
    }
    if (queue->pair == NULL)
        return error_set(
            error, errno_error(errno),
            "%s: no queue pair for %u requests: %s; check the limit of locked memory (ulimit -l) "
            "and the NIC's of queue pairs, fewer workers need fewer",
            device->name, queue->works_max, strerror(errno));
    queue->rules.inlined = attributes.cap.max_inline_data;
    if (attributes.cap.max_send_wr < queue->works_max)
        return error_set(error, BANYAN_ENOTSUP, "%s: it granted %u requests of %u", device->name,
                         attributes.cap.max_send_wr, queue->works_max);
    return BANYAN_OK;
}

/* Registered memory that is 4 KiB aligned. */
static int place_create(const struct verbs_queue *queue, uint32_t bytes, uint8_t **place,
                        struct ibv_mr **region, struct error *error)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u bytes of a queue", bytes);
    int status = verbs_memory_register(queue->device, memory, bytes, IBV_ACCESS_LOCAL_WRITE,
                                       "a queue's ring of bytes", region, error);
    if (status) {
        munmap(memory, bytes);
        return status;
    }
    *place = memory;
    return BANYAN_OK;
}

static void place_drop(uint8_t *place, struct ibv_mr *region, uint32_t bytes)
{
    ibv_dereg_mr(region);
    munmap(place, bytes);
}

int verbs_queue_create(struct verbs_queue **created, const struct verbs_device *device, struct error *error)
{
    struct verbs_queue *queue = calloc(1, sizeof *queue);
    *created = NULL;
    if (queue == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a queue on %s", device->name);
    queue->device = device;
    int status = limits_judge(queue, error);
    if (!status)
        status = completions_create(queue, error);
    if (!status)
        status = place_create(queue, RING_BYTES, &queue->ring, &queue->ring_region, error);
    if (!status)
        status = pair_create(queue, error);
    /* The other end gets no rights: nothing of ours is for it to read or write. */
    if (!status)
        status = verbs_pair_begin(device, queue->pair, 0, &queue->ours, error);
    if (status) {
        verbs_queue_destroy(queue, NULL, NULL);
        return status;
    }
    *created = queue;
    return BANYAN_OK;
}

const struct wire_nic *verbs_queue_end(const struct verbs_queue *queue)
{
    return &queue->ours;
}

/* What comes from the network must not make an address of ours wrap around. */
static bool region_possible(uint64_t address, uint64_t bytes)
{
    return address % 8 == 0 && bytes <= GADDR_LOCK_REGION && address + bytes >= address;
}

int verbs_queue_connect(struct verbs_queue *queue, const struct wire_nic *theirs,
                        const struct verbs_memory *memory, struct error *error)
{
    if (!region_possible(memory->pool_address, memory->pool_bytes) ||
        !region_possible(memory->lock_address, memory->lock_bytes))
        return error_set(error, BANYAN_EINVAL,
                         "the memory node says that its pool is at 0x%llx and its lock "
                         "region at 0x%llx, which cannot be",
                         (unsigned long long)memory->pool_address, (unsigned long long)memory->lock_address);
    int status = verbs_pair_connect(queue->device, queue->pair, &queue->ours, theirs, error);
    if (!status)
        queue->rules.memory = *memory;
    return status;
}

/* ---- room for a list's bytes ---- */

static int place_take_own(struct verbs_queue *queue, struct list_under_way *entry, uint32_t bytes)
{
    if (queue->own_bytes + bytes > OWN_BYTES_MAX)
        return BANYAN_EBUSY;
    int status = place_create(queue, bytes, &entry->place, &entry->own, NULL);
    if (status)
        return status;
    entry->bytes = bytes;
    queue->own_bytes += bytes;
    count(&queue->counts.registered, 1);
    return BANYAN_OK;
}

static int place_take(struct verbs_queue *queue, struct list_under_way *entry, uint32_t bytes)
{
    bytes = (bytes + RING_ALIGN - 1) & ~(RING_ALIGN - 1);
    if (bytes > RING_BYTES)
        return place_take_own(queue, entry, bytes);
    /* From its start, so that what fits the ring fits an empty ring. */
    if (queue->ring_begin == queue->ring_end)
        queue->ring_begin = queue->ring_end = 0;
    uint32_t at = (uint32_t)(queue->ring_end % RING_BYTES);
    uint32_t left_out = at + bytes <= RING_BYTES ? 0 : RING_BYTES - at;
    if (queue->ring_end - queue->ring_begin + left_out + bytes > RING_BYTES)
        return BANYAN_EBUSY;
    entry->place = queue->ring + (at + left_out) % RING_BYTES;
    entry->bytes = left_out + bytes;
    queue->ring_end += entry->bytes;
    return BANYAN_OK;
}

static void place_return(struct verbs_queue *queue, struct list_under_way *entry)
{
    if (entry->own != NULL) {
        place_drop(entry->place, entry->own, entry->bytes);
        entry->own = NULL;
        queue->own_bytes -= entry->bytes;
    } else {
        queue->ring_begin += entry->bytes;
    }
}

/* ---- posting ---- */

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
    assert(queue->next - queue->first < QUEUE_WORKS);
    struct list_under_way *entry = &queue->lists[queue->next % QUEUE_WORKS];
    *entry = (struct list_under_way){
        .list = list, .commands = shape.commands, .works = shape.works, .status = shape.status};
    status = place_take(queue, entry, shape.bytes);
    if (status)
        return status;
    const struct ibv_mr *region = entry->own != NULL ? entry->own : queue->ring_region;
    verbs_list_build(&queue->rules, list, &shape, queue->next, entry->place, region->lkey, queue->works);
    queue->next++;
    queue->works_under_way += shape.works;

    int number = queue->device->provider->post(queue->pair, queue->works, shape.works, &queue->scratch);
    count(&queue->counts.doorbells, 1);
    count(&queue->counts.works, shape.works);
    count(&queue->counts.signalled, 1);
    count(&queue->counts.inlined, shape.inlined);
    if (number == 0)
        return BANYAN_OK;
    /* A part of it may be on its way: its place stays until the pair is destroyed. */
    entry->list = NULL;
    count(&queue->counts.lists, 1);
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

/* Breaks the queue. The first error that is no flush names the command at fault: flushes are what the
 * requests behind it get. A flush without a cause comes when somebody else ended the pair. */
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
        list = queue->lists[sequence % QUEUE_WORKS].list;
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

/* Takes the oldest list from the rings, and hands it back. */
static void list_finish(struct verbs_queue *queue, verbs_done_function *done, void *owner)
{
    struct list_under_way *entry = &queue->lists[queue->first % QUEUE_WORKS];
    struct fabric_list *list = entry->list;
    int status = entry->status;
    verbs_list_take(&queue->rules, list, entry->commands, entry->place);
    place_return(queue, entry);
    queue->works_under_way -= entry->works;
    queue->first++;
    count(&queue->counts.lists, 1);
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
        count(&queue->counts.completions, (uint64_t)got);
        for (int i = 0; i < got; i++) {
            if (batch[i].status != IBV_WC_SUCCESS) {
                completion_failed(queue, &batch[i]);
            } else if (!queue->broken.code) {
                /* One request a list is signalled, and they complete in order. */
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

void verbs_queue_destroy(struct verbs_queue *queue, verbs_done_function *done, void *owner)
{
    if (queue == NULL)
        return;
    /* First of all: while there is a pair the NIC may write to our memory. */
    if (queue->pair != NULL)
        ibv_destroy_qp(queue->pair);
    for (; queue->first < queue->next; queue->first++) {
        struct list_under_way *entry = &queue->lists[queue->first % QUEUE_WORKS];
        place_return(queue, entry);
        if (entry->list == NULL)
            continue;
        count(&queue->counts.lists, 1);
        done(owner, entry->list, BANYAN_ENET);
    }
    if (queue->completions != NULL)
        ibv_destroy_cq(queue->completions);
    if (queue->channel != NULL)
        ibv_destroy_comp_channel(queue->channel);
    if (queue->ring != NULL)
        place_drop(queue->ring, queue->ring_region, RING_BYTES);
    free(queue);
}

/* ---- sleeping ---- */

int verbs_queue_descriptor(const struct verbs_queue *queue)
{
    return queue->channel->fd;
}

void verbs_queue_arm(struct verbs_queue *queue)
{
    int number = ibv_req_notify_cq(queue->completions, 0);
    count(&queue->counts.arms, 1);
    if (number != 0 && !queue->broken.code)
        error_set(&queue->broken, BANYAN_ENET, "%s: its completion queue cannot be armed: %s",
                  queue->device->name, strerror(number));
}

void verbs_queue_awake(struct verbs_queue *queue)
{
    struct ibv_cq *completions;
    void *context;
    unsigned int events = 0;
    /* Each time it was armed may have left one. Non-blocking: ends when there is none. */
    while (ibv_get_cq_event(queue->channel, &completions, &context) == 0)
        events++;
    if (events > 0)
        ibv_ack_cq_events(queue->completions, events);
}

const struct verbs_counts *verbs_queue_counts(const struct verbs_queue *queue)
{
    return &queue->counts;
}
