/* fake_nic.c - see fake_nic.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_nic.h"

#define REGIONS 64

struct fake_nic fake_nic;
static struct ibv_context context;
static struct ibv_qp pair = {.context = &context, .qp_num = 7};
static struct ibv_cq completion_queue = {.context = &context};
static struct ibv_comp_channel channel;
static struct ibv_mr regions[REGIONS]; /* length 0: free */

/* ---- requests ---- */

static bool locally_registered(const struct verbs_work *work)
{
    for (uint32_t i = 0; i < REGIONS; i++) {
        uint64_t begin = (uint64_t)(uintptr_t)regions[i].addr;
        if (regions[i].length > 0 && regions[i].lkey == work->local_key && work->local >= begin &&
            work->local + work->length <= begin + regions[i].length)
            return true;
    }
    return false;
}

static uint8_t *remote_place(const struct verbs_work *work)
{
    const struct verbs_memory *memory = &fake_nic.memory;
    if (work->remote_key == FAKE_POOL_KEY && work->remote >= memory->pool_address &&
        work->remote + work->length <= memory->pool_address + memory->pool_bytes)
        return fake_nic.pool + (work->remote - memory->pool_address);
    if (work->remote_key == FAKE_LOCK_KEY && work->remote >= memory->lock_address &&
        work->remote + work->length <= memory->lock_address + memory->lock_bytes)
        return fake_nic.locks + (work->remote - memory->lock_address);
    return NULL;
}

static void execute_atomic(const struct verbs_work *work, uint8_t *remote, void *local)
{
    uint64_t old, mask = work->masked ? work->mask : UINT64_MAX;
    assert_int_equal(work->length, 8);
    assert_int_equal(work->remote % 8, 0);
    assert_int_equal(work->local % 8, 0);
    memcpy(&old, remote, 8);
    uint64_t value = old;
    if (work->operation == FABRIC_FAA)
        value = old + work->swap;
    else if (((old ^ work->compare) & mask) == 0)
        value = (old & ~mask) | (work->swap & mask);
    memcpy(remote, &value, 8);
    memcpy(local, &old, 8);
}

static enum ibv_wc_status execute(struct fake_request *request)
{
    const struct verbs_work *work = &request->work;
    uint8_t *remote = remote_place(work);
    void *local = work->inlined ? (void *)request->bytes : (void *)(uintptr_t)work->local;
    if (!work->inlined)
        assert_true(locally_registered(work));
    if (remote == NULL)
        return IBV_WC_REM_ACCESS_ERR;
    if (work->operation == FABRIC_READ)
        memcpy(local, remote, work->length);
    else if (work->operation == FABRIC_WRITE)
        memcpy(remote, local, work->length);
    else
        execute_atomic(work, remote, local);
    return IBV_WC_SUCCESS;
}

void fake_nic_complete(const struct verbs_work *work, enum ibv_wc_status status)
{
    if (status == IBV_WC_SUCCESS && !work->signalled)
        return;
    assert_true(fake_nic.completed - fake_nic.polled < fake_nic.completions_max);
    fake_nic.completions[fake_nic.completed % FAKE_REQUESTS] =
        (struct ibv_wc){.wr_id = work->id, .status = status, .qp_num = pair.qp_num};
    fake_nic.covers[fake_nic.completed % FAKE_REQUESTS] = fake_nic.executed;
    fake_nic.completed++;
}

static void next(enum ibv_wc_status status)
{
    struct fake_request *request = &fake_nic.requests[fake_nic.executed % FAKE_REQUESTS];
    if (fake_nic.failed)
        status = IBV_WC_WR_FLUSH_ERR;
    else if (status == IBV_WC_SUCCESS)
        status = execute(request);
    fake_nic.failed |= status != IBV_WC_SUCCESS;
    fake_nic.executed++;
    fake_nic_complete(&request->work, status);
}

void fake_nic_run(uint32_t requests)
{
    while (requests-- > 0 && fake_nic.executed < fake_nic.posted)
        next(IBV_WC_SUCCESS);
}

void fake_nic_fail(enum ibv_wc_status status)
{
    assert_true(fake_nic.executed < fake_nic.posted);
    next(status);
}

uint32_t fake_nic_waiting(void)
{
    return (uint32_t)(fake_nic.posted - fake_nic.executed);
}

/* ---- the provider ---- */

static struct ibv_qp *provider_queue_create(struct ibv_pd *pd, struct ibv_qp_init_attr *attributes,
                                            bool masked)
{
    if (fake_nic.failure == FAKE_PAIR || attributes->cap.max_inline_data > fake_nic.inline_max) {
        errno = fake_nic.failure == FAKE_PAIR ? ENOMEM : EINVAL;
        return NULL;
    }
    assert_int_equal(attributes->qp_type, IBV_QPT_RC);
    assert_int_equal(attributes->sq_sig_all, 0);
    assert_true(attributes->send_cq == &completion_queue);
    assert_true(attributes->cap.max_send_wr <= fake_nic.device.limits.works);
    fake_nic.send_max = attributes->cap.max_send_wr;
    fake_nic.masked = masked;
    fake_nic.pairs++;
    return &pair;
}

static int provider_post(struct ibv_qp *queue, const struct verbs_work *works, uint32_t count,
                         struct verbs_scratch *scratch)
{
    assert_true(queue == &pair && fake_nic.connected);
    assert_in_range(count, 1, VERBS_WORKS_MAX);
    assert_true(fake_nic.posted + count - fake_nic.released <= fake_nic.send_max);
    memset(scratch, 0x5a, sizeof *scratch); /* it is ours */
    memcpy(fake_nic.last, works, count * sizeof *works);
    fake_nic.last_count = count;
    fake_nic.posts++;
    if (fake_nic.post_error != 0)
        return fake_nic.post_error;
    for (uint32_t i = 0; i < count; i++) {
        struct fake_request *request = &fake_nic.requests[fake_nic.posted++ % FAKE_REQUESTS];
        request->work = works[i];
        assert_true(works[i].length <= fake_nic.device.limits.message);
        assert_false(works[i].masked && !fake_nic.masked);
        if (!works[i].inlined)
            continue;
        assert_int_equal(works[i].operation, FABRIC_WRITE);
        assert_true(works[i].length <= fake_nic.inline_max && works[i].length <= sizeof request->bytes);
        memcpy(request->bytes, (const void *)(uintptr_t)works[i].local, works[i].length);
    }
    return 0;
}

static const struct verbs_provider provider = {
    .name = "fake", .queue_create = provider_queue_create, .post = provider_post};

/* ---- libibverbs ---- */

static int poll_completions(struct ibv_cq *queue, int most, struct ibv_wc *into)
{
    int got = 0;
    assert_true(queue == &completion_queue);
    while (got < most && fake_nic.polled < fake_nic.completed) {
        into[got] = fake_nic.completions[fake_nic.polled++ % FAKE_REQUESTS];
        /* A completion tells that all requests up to its own are done: their slots are free. */
        fake_nic.released = fake_nic.covers[(fake_nic.polled - 1) % FAKE_REQUESTS];
        got++;
    }
    return got;
}

static int request_notify(struct ibv_cq *queue, int solicited)
{
    assert_int_equal(solicited, 0);
    fake_nic.notified++;
    return fake_nic.notify_error ? EIO : 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *of)
{
    if (fake_nic.failure == FAKE_CHANNEL) {
        errno = EMFILE;
        return NULL;
    }
    channel = (struct ibv_comp_channel){.context = of, .fd = eventfd(0, EFD_SEMAPHORE)};
    fake_nic.channels++;
    return &channel;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *destroyed)
{
    assert_int_equal(fake_nic.completion_queues, 0);
    close(destroyed->fd);
    fake_nic.channels--;
    return 0;
}
struct ibv_cq *ibv_create_cq(struct ibv_context *of, int entries, void *owner, struct ibv_comp_channel *with,
                             int vector)
{
    if (fake_nic.failure == FAKE_COMPLETIONS) {
        errno = ENOMEM;
        return NULL;
    }
    assert_true(entries > 0 && (uint32_t)entries <= fake_nic.device.limits.completions);
    fake_nic.completions_max = (uint32_t)entries;
    fake_nic.completion_queues++;
    completion_queue.channel = with;
    return &completion_queue;
}
int ibv_destroy_cq(struct ibv_cq *destroyed)
{
    assert_int_equal(fake_nic.pairs, 0);
    fake_nic.completion_queues--;
    return 0;
}
int ibv_get_cq_event(struct ibv_comp_channel *of, struct ibv_cq **queue, void **owner)
{
    uint64_t one;
    if (read(of->fd, &one, sizeof one) != sizeof one)
        return -1;
    *queue = &completion_queue;
    *owner = NULL;
    return 0;
}
void ibv_ack_cq_events(struct ibv_cq *queue, unsigned int events)
{
    fake_nic.acknowledged += events;
}
int ibv_destroy_qp(struct ibv_qp *destroyed)
{
    assert_true(destroyed == &pair);
    fake_nic.pairs--;
    return 0;
}
int ibv_dereg_mr(struct ibv_mr *region)
{
    assert_true(region->length > 0);
    region->length = 0;
    fake_nic.regions--;
    return 0;
}

/* ---- verbs_device.c ---- */

int verbs_memory_register(const struct verbs_device *device, void *memory, uint64_t bytes, int access,
                          const char *what, struct ibv_mr **region, struct error *error)
{
    static uint32_t key = 100;
    if (fake_nic.failure == FAKE_REGISTER)
        return error_set(error, BANYAN_ENOMEM, "%s: raise the limit", what);
    assert_int_equal((uintptr_t)memory % 4096, 0);
    assert_int_equal(access, IBV_ACCESS_LOCAL_WRITE);
    for (uint32_t i = 0; i < REGIONS; i++) {
        if (regions[i].length > 0)
            continue;
        regions[i] = (struct ibv_mr){.addr = memory, .length = bytes, .lkey = key++};
        *region = &regions[i];
        fake_nic.regions++;
        return BANYAN_OK;
    }
    fail_msg("no room for a region");
    return BANYAN_ENOMEM;
}
int verbs_pair_begin(const struct verbs_device *device, struct ibv_qp *queue, int access,
                     struct wire_nic *ours, struct error *error)
{
    assert_int_equal(access, 0);
    if (fake_nic.failure == FAKE_BEGIN)
        return error_set(error, BANYAN_ENET, "the port is down");
    *ours = (struct wire_nic){.queue = queue->qp_num, .psn = 42};
    return BANYAN_OK;
}
int verbs_pair_connect(const struct verbs_device *device, struct ibv_qp *queue, const struct wire_nic *ours,
                       const struct wire_nic *theirs, struct error *error)
{
    assert_int_equal(ours->psn, 42);
    assert_int_equal(theirs->queue, 8);
    fake_nic.connected = true;
    return BANYAN_OK;
}
const char *verbs_completion_reason(enum ibv_wc_status status)
{
    return status == IBV_WC_REM_ACCESS_ERR  ? "remote access error"
           : status == IBV_WC_WR_FLUSH_ERR  ? "flushed"
           : status == IBV_WC_RETRY_EXC_ERR ? "retries exceeded"
                                            : "another error";
}

/* ---- its life ---- */

void fake_nic_start(void)
{
    memset(&fake_nic, 0, sizeof fake_nic);
    context.ops.poll_cq = poll_completions;
    context.ops.req_notify_cq = request_notify;
    fake_nic.device = (struct verbs_device){
        .context = &context,
        .provider = &provider,
        .name = "fake0",
        .limits = {.queues = 16, .works = 32768, .completions = 65536, .message = UINT64_C(1) << 30},
    };
    fake_nic.inline_max = 220;
    fake_nic.pool = calloc(1, FAKE_POOL_BYTES);
    fake_nic.locks = calloc(1, FAKE_LOCK_BYTES);
    fake_nic.requests = calloc(FAKE_REQUESTS, sizeof *fake_nic.requests);
    fake_nic.completions = calloc(FAKE_REQUESTS, sizeof *fake_nic.completions);
    assert_true(fake_nic.pool && fake_nic.locks && fake_nic.requests && fake_nic.completions);
    fake_nic.memory = (struct verbs_memory){
        .pool_address = 0x7f0000001000,
        .pool_bytes = FAKE_POOL_BYTES,
        .pool_key = FAKE_POOL_KEY,
        .lock_address = 0, /* as that of device memory is */
        .lock_bytes = FAKE_LOCK_BYTES,
        .lock_key = FAKE_LOCK_KEY,
    };
}

void fake_nic_end(void)
{
    assert_int_equal(fake_nic.pairs, 0);
    assert_int_equal(fake_nic.completion_queues, 0);
    assert_int_equal(fake_nic.channels, 0);
    assert_int_equal(fake_nic.regions, 0);
    free(fake_nic.pool);
    free(fake_nic.locks);
    free(fake_nic.requests);
    free(fake_nic.completions);
}
