/*
 * nic.c - see nic.h: the device, the registered memory, queue pairs, events. Its own queue
 * pair, and what goes through it, are nic_locks.c's.
 */
#include "memoryd/nic_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"

/* The own queue pair's two ends. */
#define OWN_QUEUES 2u
/* What is waited for takes microseconds; a card that is gone says nothing at all. */
#define PATIENCE UINT64_C(30000000000)
#define LOOK_NS  UINT64_C(20000)
#define SPINS    1000u

int card_wait(struct ibv_cq *completions, const char *what, struct error *error)
{
    struct ibv_wc done;
    uint64_t deadline = task_now() + PATIENCE;
    for (unsigned looks = 0;; looks++) {
        int count = ibv_poll_cq(completions, 1, &done);
        if (count < 0)
            return error_set(error, BANYAN_ENET, "%s: the card's completions cannot be read", what);
        if (count > 0 && done.status == IBV_WC_SUCCESS)
            return BANYAN_OK;
        if (count > 0)
            return error_set(error, BANYAN_ENET, "%s: %s", what, verbs_completion_reason(done.status));
        if (task_now() > deadline)
            return error_set(error, BANYAN_ENET, "%s: the card does not answer", what);
        if (looks > SPINS)
            task_sleep(LOOK_NS);
    }
}

/* ---- registered memory ---- */

/* At address 0 where the device can; else its messages say what is wrong. */
static int register_part(struct server_card *card, enum card_part part, void *memory, uint64_t bytes,
                         bool windows, struct error *error)
{
    struct card_region *region = &card->regions[part];
    const char *what = part == CARD_POOL ? "the pool" : "the lock region";
    unsigned access = IBV_ACCESS_LOCAL_WRITE | (windows ? (unsigned)IBV_ACCESS_MW_BIND : CARD_REMOTE);
    *region = (struct card_region){.bytes = bytes, .windowed = windows};
    region->registration = ibv_reg_mr_iova(card->device->domain, memory, bytes, 0, access);
    if (region->registration != NULL)
        return BANYAN_OK;
    region->address = (uintptr_t)memory;
    return verbs_memory_register(card->device, memory, bytes, (int)access, what, &region->registration,
                                 error);
}

static int clear_chip(struct server_card *card, struct error *error)
{
    static const uint8_t zeros[4096];
    for (uint64_t at = 0; at < card->target->lock_bytes; at += sizeof zeros) {
        uint64_t left = card->target->lock_bytes - at;
        int failed = ibv_memcpy_to_dm(card->chip, at, zeros, left < sizeof zeros ? left : sizeof zeros);
        if (failed != 0)
            return error_set(error, BANYAN_ENET, "%s: its device memory cannot be written: %s",
                             card->device->name, strerror(failed < 0 ? -failed : failed));
    }
    return BANYAN_OK;
}

/* Device memory takes no windows: its registration's own key is handed out. */
static int register_chip(struct server_card *card, struct error *error)
{
    struct ibv_alloc_dm_attr wanted = {.length = card->target->lock_bytes};
    card->chip = ibv_alloc_dm(card->device->context, &wanted);
    if (card->chip == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives none of its device memory (%llu bytes wanted): %s",
                         card->device->name, (unsigned long long)wanted.length, strerror(errno));
    int status = clear_chip(card, error);
    if (status != BANYAN_OK)
        return status;
    struct card_region *region = &card->regions[CARD_LOCKS];
    *region = (struct card_region){.bytes = wanted.length};
    region->registration = ibv_reg_dm_mr(card->device->domain, card->chip, 0, wanted.length,
                                         IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | CARD_REMOTE);
    if (region->registration == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s: its device memory cannot be registered: %s",
                         card->device->name, strerror(errno));
    return BANYAN_OK;
}

static int bring_up(struct server_card *card, bool chip, bool windows, struct error *error)
{
    const struct fabric_target *target = card->target;
    int status = register_part(card, CARD_POOL, target->pool, target->pool_bytes, windows, error);
    if (status == BANYAN_OK && chip)
        status = register_chip(card, error);
    else if (status == BANYAN_OK)
        status = register_part(card, CARD_LOCKS, target->locks, target->lock_bytes, windows, error);
    if (status == BANYAN_OK)
        status = card_own_open(card, error);
    return status == BANYAN_OK ? card_own_prove(card, error) : status;
}

static void bring_down(struct server_card *card)
{
    card_own_close(card);
    for (unsigned part = 0; part < CARD_PARTS; part++) {
        if (card->regions[part].registration != NULL)
            ibv_dereg_mr(card->regions[part].registration);
        card->regions[part] = (struct card_region){0};
    }
    if (card->chip != NULL)
        ibv_free_dm(card->chip);
    card->chip = NULL;
}

/* The word of a part that the proof works on. */
static uint64_t *proof_word(const struct server_card *card, enum card_part part)
{
    uint8_t *word = part == CARD_POOL ? card->target->pool + MEMORY_LOCK_TABLE_OFFSET : card->target->locks;
    return (uint64_t *)(void *)word;
}

/* The best that can be proved to work. */
static int bring_up_best(struct server_card *card, struct error *error)
{
    bool windows = card->device->features.windows;
    uint64_t chip_bytes = card->device->features.device_memory, lock_bytes = card->target->lock_bytes;
    bool chip = chip_bytes >= lock_bytes;
    const uint64_t pool_word = *proof_word(card, CARD_POOL), lock_word = *proof_word(card, CARD_LOCKS);
    if (!chip && chip_bytes > 0)
        log_info("memory node: %s has %llu bytes of device memory, too few for the lock region of %llu: "
                 "locks are in host memory (--lock-bytes)",
                 card->device->name, (unsigned long long)chip_bytes, (unsigned long long)lock_bytes);
    for (;;) {
        struct error detail = {0};
        int status = bring_up(card, chip, windows, &detail);
        if (status == BANYAN_OK)
            return status;
        /* Without room for the pool itself nothing gets better. */
        bool hopeless = status == BANYAN_ENOMEM && card->regions[CARD_POOL].registration == NULL;
        bring_down(card);
        /* A proof that failed halfway has left them changed: locks that nobody would ever free. Nobody is
         * here, not even a queue pair, so for once the CPU may put them right. */
        *proof_word(card, CARD_POOL) = pool_word;
        *proof_word(card, CARD_LOCKS) = lock_word;
        if (hopeless || (!windows && !chip))
            return error_set(error, status, "%s", detail.text);
        log_info("memory node: %s without %s: %s", card->device->name,
                 windows ? "memory windows" : "device memory", detail.text);
        if (windows)
            windows = false;
        else
            chip = false;
    }
}

/* ---- life ---- */

static const char *network(const struct verbs_device *device)
{
    struct ibv_gid_entry entry;
    if (!device->ethernet)
        return "InfiniBand";
    if (ibv_query_gid_ex(device->context, device->port, (uint32_t)device->gid_index, &entry, 0) != 0)
        return "RoCE";
    return entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2" : "RoCE v1";
}

static void describe(struct server_card *card)
{
    const struct verbs_device *device = card->device;
    snprintf(card->text, sizeof card->text, "%s port %u, %s, packets of %u bytes, locks in %s memory%s",
             device->name, (unsigned)device->port, network(device), verbs_mtu_bytes(device->mtu),
             card->chip != NULL ? "device" : "host",
             card->regions[CARD_POOL].windowed ? ", keys bound to queue pairs" : "");
}

static int judge_width(const struct verbs_device *device, uint32_t width, struct error *error)
{
    if (width == 8 || device->features.masked_cas)
        return BANYAN_OK;
    return error_set(error, BANYAN_EINVAL,
                     "%s has no masked compare-and-swap, so that locks of %u bytes, several of which share a "
                     "word, cannot be taken; start the memory node with --lock-width 8",
                     device->name, width);
}

/* Events are read until there are none. */
static int unblock_events(const struct verbs_device *device, struct error *error)
{
    int flags = fcntl(device->context->async_fd, F_GETFL);
    if (flags >= 0 && fcntl(device->context->async_fd, F_SETFL, flags | O_NONBLOCK) == 0)
        return BANYAN_OK;
    return error_set(error, BANYAN_ENET, "%s: its events cannot be read: %s", device->name, strerror(errno));
}

int server_card_create(struct server_card **made, struct memory_node *node,
                       const struct verbs_options *options, const struct sockaddr *local, struct error *error)
{
    *made = NULL;
    struct server_card *card = calloc(1, sizeof *card);
    if (card == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a network card");
    card->target = memory_node_target(node);
    int status = verbs_device_open(&card->device, options, local, error);
    if (status == BANYAN_OK)
        status = judge_width(card->device, card->target->lock_width, error);
    if (status == BANYAN_OK)
        status = unblock_events(card->device, error);
    if (status == BANYAN_OK) {
        memory_node_pin(node);
        status = bring_up_best(card, error);
    }
    if (status != BANYAN_OK) {
        server_card_destroy(card);
        return status;
    }
    describe(card);
    *made = card;
    return BANYAN_OK;
}

void server_card_destroy(struct server_card *card)
{
    if (card == NULL)
        return;
    if (card->device != NULL) {
        bring_down(card);
        verbs_device_close(card->device);
    }
    free(card);
}

int server_card_locks(const struct verbs_options *options, const struct sockaddr *local, uint32_t *lock_width,
                      uint64_t *lock_bytes, struct error *error)
{
    struct verbs_device *device;
    int status = verbs_device_open(&device, options, local, error);
    if (status != BANYAN_OK)
        return status;
    *lock_width = device->features.masked_cas ? 2 : 8;
    *lock_bytes = MEMORY_LOCK_BYTES;
    while (*lock_bytes > device->features.device_memory && *lock_bytes > SERVER_CARD_CHIP_MIN)
        *lock_bytes /= 2;
    if (*lock_bytes > device->features.device_memory) /* in host memory, where there is room */
        *lock_bytes = MEMORY_LOCK_BYTES;
    verbs_device_close(device);
    return BANYAN_OK;
}

uint16_t server_card_packet(const struct server_card *card)
{
    return (uint16_t)verbs_mtu_bytes(card->device->mtu);
}

uint8_t server_card_promises(const struct server_card *card)
{
    const struct verbs_features *features = &card->device->features;
    /* What the maker says of WRITEs beside CAS is about the card's own memory: in the host's, the card's
     * read and write of an atomic are two, with the bus between them. */
    bool release_by_write = features->release_by_write && card->chip != NULL;
    return (uint8_t)((release_by_write ? WIRE_CARD_RELEASE_BY_WRITE : 0) |
                     (features->masked_cas ? WIRE_CARD_MASKED_CAS : 0));
}

const char *server_card_text(const struct server_card *card)
{
    return card->text;
}

int server_card_format(struct server_card *card, struct error *error)
{
    return card->chip != NULL ? clear_chip(card, error) : BANYAN_OK;
}

/* ---- queue pairs ---- */

static int make_pair(struct server_card_queue *queue, struct error *error)
{
    const struct verbs_device *device = queue->card->device;
    queue->completions = ibv_create_cq(device->context, CARD_PARTS, NULL, NULL, 0);
    if (queue->completions == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives no completion queue: %s", device->name,
                         strerror(errno));
    struct ibv_qp_init_attr wanted = {
        .qp_context = queue,
        .send_cq = queue->completions,
        .recv_cq = queue->completions,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = CARD_PARTS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    queue->pair = device->provider->queue_create(device->domain, &wanted, false);
    if (queue->pair == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives no queue pair (%u are in use here): %s",
                         device->name, server_card_queues(queue->card), strerror(errno));
    return BANYAN_OK;
}

/* The key is a new one at each binding; it is good for this queue pair alone. */
static int bind_window(struct server_card_queue *queue, enum card_part part, uint32_t *key,
                       struct error *error)
{
    const struct card_region *region = &queue->card->regions[part];
    struct ibv_mw *window = ibv_alloc_mw(queue->card->device->domain, IBV_MW_TYPE_2);
    queue->windows[part] = window;
    if (window == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives no memory window: %s", queue->card->device->name,
                         strerror(errno));
    *key = ibv_inc_rkey(window->rkey);
    struct ibv_send_wr bind = {.opcode = IBV_WR_BIND_MW,
                               .send_flags = IBV_SEND_SIGNALED,
                               .bind_mw = {.mw = window,
                                           .rkey = *key,
                                           .bind_info = {.mr = region->registration,
                                                         .addr = region->address,
                                                         .length = region->bytes,
                                                         .mw_access_flags = CARD_REMOTE}}};
    struct ibv_send_wr *bad;
    int failed = ibv_post_send(queue->pair, &bind, &bad);
    if (failed != 0)
        return error_set(error, BANYAN_ENET, "%s binds no memory window of %llu bytes: %s",
                         queue->card->device->name, (unsigned long long)region->bytes, strerror(failed));
    return card_wait(queue->completions, "binding a memory window", error);
}

static int hand_out(struct server_card_queue *queue, enum card_part part, uint32_t *key, uint64_t *address,
                    struct error *error)
{
    const struct card_region *region = &queue->card->regions[part];
    *address = region->address;
    *key = region->registration->rkey;
    return region->windowed ? bind_window(queue, part, key, error) : BANYAN_OK;
}

int card_queue_open(struct server_card *card, const struct wire_card *theirs, struct wire_card *ours,
                    struct server_card_queue **made, struct error *error)
{
    *made = NULL;
    struct server_card_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for a queue pair");
    queue->card = card;
    *ours = (struct wire_card){0};
    int status = make_pair(queue, error);
    if (status == BANYAN_OK)
        status = verbs_pair_begin(card->device, queue->pair, CARD_REMOTE, ours, error);
    if (status == BANYAN_OK)
        status = verbs_pair_connect(card->device, queue->pair, ours, theirs, error);
    if (status == BANYAN_OK)
        status = hand_out(queue, CARD_POOL, &ours->pool_key, &ours->pool_address, error);
    if (status == BANYAN_OK)
        status = hand_out(queue, CARD_LOCKS, &ours->lock_key, &ours->lock_address, error);
    /* One that was connected and cannot be destroyed is the caller's all the same: it is to be fenced. */
    if (status == BANYAN_OK || !card_queue_close(queue))
        *made = queue;
    return status;
}

/* A pair that is in error takes nothing from the other side any more; its windows are freed then, since some
 * devices do not destroy a pair as long as windows are bound to it. */
static bool destroy_pair(struct server_card_queue *queue)
{
    struct ibv_qp_attr error_state = {.qp_state = IBV_QPS_ERR};
    int stopped = ibv_modify_qp(queue->pair, &error_state, IBV_QP_STATE);
    for (unsigned part = 0; part < CARD_PARTS; part++)
        if (queue->windows[part] != NULL && ibv_dealloc_mw(queue->windows[part]) == 0)
            queue->windows[part] = NULL;
    int failed = ibv_destroy_qp(queue->pair);
    if (failed == 0)
        return true;
    log_error("memory node: %s does not destroy queue pair %u: %s%s", queue->card->device->name,
              queue->pair->qp_num, strerror(failed < 0 ? -failed : failed),
              stopped == 0 ? "" : "; nor does it stop it");
    return false;
}

bool card_queue_close(struct server_card_queue *queue)
{
    if (queue->pair != NULL && !destroy_pair(queue))
        return false; /* what an event may still name stays where it is */
    for (unsigned part = 0; part < CARD_PARTS; part++)
        if (queue->windows[part] != NULL)
            ibv_dealloc_mw(queue->windows[part]);
    if (queue->completions != NULL)
        ibv_destroy_cq(queue->completions);
    free(queue);
    return true;
}

int server_card_attach(struct server_card *card, const struct wire_card *theirs, struct wire_card *ours,
                       struct server_card_queue **queue, struct error *error)
{
    uint32_t most = card->device->limits.queues;
    *queue = NULL;
    /* relaxed: a count that limits, and nothing hangs on its order */
    uint32_t count = atomic_add_relaxed(&card->queues, 1u);
    int status;
    if (most < OWN_QUEUES || count >= most - OWN_QUEUES)
        status = error_set(error, BANYAN_EBUSY,
                           "all queue pairs of %s are in use: it has %u; let fewer threads connect, or "
                           "share the memory among more memory nodes",
                           card->device->name, most);
    else
        status = card_queue_open(card, theirs, ours, queue, error);
    if (*queue == NULL)
        atomic_add_relaxed(&card->queues, UINT32_MAX);
    return status;
}

bool server_card_detach(struct server_card_queue *queue)
{
    if (queue == NULL)
        return true;
    struct server_card *card = queue->card;
    if (!card_queue_close(queue))
        return false;
    atomic_add_relaxed(&card->queues, UINT32_MAX); /* as above */
    return true;
}

uint32_t server_card_queues(const struct server_card *card)
{
    return atomic_load_relaxed(&card->queues);
}

/* ---- events ---- */

int server_card_descriptor(const struct server_card *card)
{
    return card->device->context->async_fd;
}

/* NULL: not about a queue pair, or nothing that stops one. */
static const char *queue_broken(enum ibv_event_type type)
{
    switch (type) {
    case IBV_EVENT_QP_FATAL:
        return "its queue pair broke down: the card reports a fatal error of it";
    case IBV_EVENT_QP_REQ_ERR:
        return "its queue pair broke down: it sent a request that makes no sense";
    case IBV_EVENT_QP_ACCESS_ERR:
        return "its queue pair broke down: it reached for memory that it has no key for, or that is not "
               "there";
    default:
        return NULL;
    }
}

static bool of_queue(const struct server_card *card, struct ibv_async_event *event)
{
    return event->element.qp->qp_context != NULL && event->element.qp->qp_context != card->own.far;
}

bool server_card_events(struct server_card *card,
                        void (*broken)(void *owner, struct server_card_queue *queue, const char *why),
                        void *owner)
{
    struct ibv_async_event event;
    while (ibv_get_async_event(card->device->context, &event) == 0) {
        const char *why = queue_broken(event.event_type);
        const char *name = ibv_event_type_str(event.event_type);
        if (why != NULL && of_queue(card, &event))
            broken(owner, event.element.qp->qp_context, why);
        else if (why != NULL)
            card->own.broken = true;
        else if (event.event_type == IBV_EVENT_DEVICE_FATAL)
            broken(owner, NULL, "the network card broke down");
        if (event.event_type == IBV_EVENT_DEVICE_FATAL || event.event_type == IBV_EVENT_PORT_ERR)
            log_error("memory node: %s: %s", card->device->name, name);
        else
            log_debug("memory node: %s: %s", card->device->name, name);
        ibv_ack_async_event(&event);
    }
    return errno == EAGAIN || errno == EINTR;
}
