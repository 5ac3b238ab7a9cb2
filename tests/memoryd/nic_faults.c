/* nic_faults.c - see nic_faults.h. */
#include "nic_faults.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/task.h"
#include "memoryd/nic.h"

struct nic_faults nic_faults;

/* ---- device memory that is none ---- */

struct fake_chip {
    struct ibv_dm chip;
    uint8_t *memory;
    size_t bytes;
};
static struct fake_chip *last_chip;

uint8_t *nic_faults_chip(void)
{
    return last_chip != NULL ? last_chip->memory : NULL;
}

static int chip_write(struct ibv_dm *chip, uint64_t offset, const void *from, size_t length)
{
    struct fake_chip *fake = (struct fake_chip *)chip;
    if (offset > fake->bytes || length > fake->bytes - offset)
        return EFAULT;
    memcpy(fake->memory + offset, from, length);
    return 0;
}

static struct ibv_dm *chip_allocate(struct ibv_context *context, struct ibv_alloc_dm_attr *wanted)
{
    if (nic_faults.broken_chip) {
        errno = ENOMEM;
        return NULL;
    }
    struct fake_chip *fake = calloc(1, sizeof *fake);
    fake->bytes = wanted->length;
    fake->memory = aligned_alloc(4096, (wanted->length + 4095) / 4096 * 4096);
    memset(fake->memory, 0xee, wanted->length); /* whatever was there before */
    fake->chip.context = context;
    fake->chip.memcpy_to_dm = chip_write;
    last_chip = fake;
    return &fake->chip;
}

static int chip_free(struct ibv_dm *chip)
{
    struct fake_chip *fake = (struct fake_chip *)chip;
    last_chip = NULL;
    free(fake->memory);
    free(fake);
    return 0;
}

static struct ibv_mr *chip_register(struct ibv_pd *domain, struct ibv_dm *chip, uint64_t offset,
                                    size_t length, unsigned access)
{
    struct fake_chip *fake = (struct fake_chip *)chip;
    if ((access & IBV_ACCESS_ZERO_BASED) == 0 || offset + length > fake->bytes) {
        errno = EINVAL;
        return NULL;
    }
    return ibv_reg_mr_iova(domain, fake->memory + offset, length, 0,
                           access & ~(unsigned)IBV_ACCESS_ZERO_BASED);
}

static struct ibv_mw *no_window(struct ibv_pd *domain, enum ibv_mw_type type)
{
    errno = ENOMEM;
    return NULL;
}

/* ---- events ---- */

static struct {
    int bell; /* in place of the device's descriptor; -1: its own events */
    struct spinlock lock;
    bool waiting, taken;
    struct ibv_async_event event;
} events = {.bell = -1};

void nic_faults_event(enum ibv_event_type type, struct ibv_qp *queue)
{
    spinlock_lock(&events.lock);
    events.event = (struct ibv_async_event){.event_type = type};
    events.event.element.qp = queue;
    events.waiting = true;
    spinlock_unlock(&events.lock);
    assert_int_equal(eventfd_write(events.bell, 1), 0);
}

void nic_faults_wait_acknowledged(void)
{
    for (uint64_t start = task_now();;) {
        spinlock_lock(&events.lock);
        bool done = !events.waiting && !events.taken;
        spinlock_unlock(&events.lock);
        if (done)
            return;
        assert_true(task_now() - start < UINT64_C(20000000000));
        task_sleep(1000000);
    }
}

int __real_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
int __wrap_ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    eventfd_t count;
    if (events.bell < 0)
        return __real_ibv_get_async_event(context, event);
    spinlock_lock(&events.lock);
    bool there = events.waiting;
    *event = events.event;
    events.waiting = false;
    events.taken = events.taken || there;
    spinlock_unlock(&events.lock);
    if (there)
        return 0;
    return eventfd_read(events.bell, &count) == 0 ? __wrap_ibv_get_async_event(context, event) : -1;
}

int __real_memoryd_nic_descriptor(const struct memoryd_nic *nic);
int __wrap_memoryd_nic_descriptor(const struct memoryd_nic *nic);
int __wrap_memoryd_nic_descriptor(const struct memoryd_nic *nic)
{
    return events.bell >= 0 ? events.bell : __real_memoryd_nic_descriptor(nic);
}

void __real_ibv_ack_async_event(struct ibv_async_event *event);
void __wrap_ibv_ack_async_event(struct ibv_async_event *event);
void __wrap_ibv_ack_async_event(struct ibv_async_event *event)
{
    if (events.bell < 0) {
        __real_ibv_ack_async_event(event);
        return;
    }
    spinlock_lock(&events.lock);
    events.taken = false;
    spinlock_unlock(&events.lock);
}

/* ---- lists that end early ---- */

static int half_post(struct ibv_qp *queue, const struct verbs_work *works, uint32_t count,
                     struct verbs_scratch *scratch)
{
    struct verbs_work first = works[0];
    if (count != 4 || !nic_faults.half_proof)
        return verbs_plain.post(queue, works, count, scratch);
    nic_faults.half_proof = false;
    first.signalled = true;
    return verbs_plain.post(queue, &first, 1, scratch);
}

/* ---- the device ---- */

static uint32_t spoiled_timeout; /* of the memory node's devices */

static void spoil(struct verbs_device *device)
{
    spoiled_timeout = device->options.timeout;
    struct verbs_context *context = (struct verbs_context *)(void *)((uint8_t *)device->context -
                                                                     offsetof(struct verbs_context, context));
    if (nic_faults.promises)
        device->features.release_by_write = true;
    if (nic_faults.no_windows)
        device->features.windows = false;
    if (nic_faults.broken_windows)
        device->context->ops.alloc_mw = no_window;
    if (nic_faults.chip || nic_faults.broken_chip) {
        device->features.device_memory =
            nic_faults.chip_bytes != 0 ? nic_faults.chip_bytes : UINT64_C(1) << 20;
        context->alloc_dm = chip_allocate;
        context->free_dm = chip_free;
        context->reg_dm_mr = chip_register;
    }
    if (nic_faults.half_proof) {
        static struct verbs_provider half;
        half = *device->provider;
        half.post = half_post;
        device->provider = &half;
    }
    if (nic_faults.queues != 0)
        device->limits.queues = nic_faults.queues;
    if (nic_faults.events && events.bell < 0) {
        events.bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_true(events.bell >= 0);
    }
}

int __real_verbs_device_open(struct verbs_device **device, const struct verbs_options *options,
                             const struct sockaddr *local, struct error *error);
int __wrap_verbs_device_open(struct verbs_device **device, const struct verbs_options *options,
                             const struct sockaddr *local, struct error *error);
int __wrap_verbs_device_open(struct verbs_device **device, const struct verbs_options *options,
                             const struct sockaddr *local, struct error *error)
{
    int status = __real_verbs_device_open(device, options, local, error);
    if (status == 0 && (options == NULL || options->timeout == 0))
        spoil(*device);
    return status;
}

void __real_verbs_device_close(struct verbs_device *device);
void __wrap_verbs_device_close(struct verbs_device *device);
void __wrap_verbs_device_close(struct verbs_device *device)
{
    if (device != NULL && events.bell >= 0 && device->options.timeout == spoiled_timeout) {
        close(events.bell);
        events.bell = -1;
    }
    __real_verbs_device_close(device);
}

int __real_verbs_pair_connect(const struct verbs_device *device, struct ibv_qp *queue,
                              const struct wire_nic *ours, const struct wire_nic *theirs,
                              struct error *error);
int __wrap_verbs_pair_connect(const struct verbs_device *device, struct ibv_qp *queue,
                              const struct wire_nic *ours, const struct wire_nic *theirs,
                              struct error *error);
int __wrap_verbs_pair_connect(const struct verbs_device *device, struct ibv_qp *queue,
                              const struct wire_nic *ours, const struct wire_nic *theirs, struct error *error)
{
    uint32_t left = atomic_load_relaxed(&nic_faults.connections); /* a test's switch */
    task_sleep(atomic_load_relaxed(&nic_faults.delay_ms) * UINT64_C(1000000));
    if (left == 0)
        return __real_verbs_pair_connect(device, queue, ours, theirs, error);
    if (left != UINT32_MAX)
        atomic_store_relaxed(&nic_faults.connections, left - 1);
    return error_set(error, BANYAN_ENET, "the test wants it to fail");
}
