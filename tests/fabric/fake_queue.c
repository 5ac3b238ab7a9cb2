/* fake_queue.c - see fake_queue.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/task.h"
#include "fake_queue.h"

#define LISTS 256u

struct verbs_queue {
    struct verbs_queue *next;
    struct wire_nic ours;
    struct fabric_list *lists[LISTS];
    uint32_t first, end, ready; /* counted on and on; up to `ready` they are done */
    uint32_t used;              /* commands */
    uint64_t pool_bytes;
    int event;
    bool armed, connected;
    char broken[128];
};

struct fake_queues fake_queues;
static struct verbs_queue *all;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void count(uint32_t *counter, int more)
{
    __atomic_fetch_add(counter, (uint32_t)more, __ATOMIC_ACQ_REL);
}

/* ---- queues ---- */

int verbs_queue_create(struct verbs_queue **created, const struct verbs_device *device, struct error *error)
{
    *created = NULL;
    if (fake_queues.create_status)
        return error_set(error, fake_queues.create_status, "%s: no queue pair", device->name);
    struct verbs_queue *queue = calloc(1, sizeof *queue);
    assert_non_null(queue);
    queue->event = eventfd(0, EFD_NONBLOCK);
    queue->ours.queue = 7;
    if (fake_queues.broken != NULL)
        snprintf(queue->broken, sizeof queue->broken, "%s", fake_queues.broken);
    count(&fake_queues.queues, 1);
    pthread_mutex_lock(&mutex);
    queue->next = all;
    all = queue;
    pthread_mutex_unlock(&mutex);
    *created = queue;
    return BANYAN_OK;
}

const struct wire_nic *verbs_queue_end(const struct verbs_queue *queue)
{
    return &queue->ours;
}

int verbs_queue_connect(struct verbs_queue *queue, const struct wire_nic *theirs,
                        const struct verbs_memory *memory, struct error *error)
{
    if (fake_queues.connect_fails)
        return error_set(error, BANYAN_EINVAL, "its end of the queue pair cannot be");
    assert_int_equal(theirs->queue, 8);
    assert_int_equal(memory->pool_key, 0x1111);
    assert_int_equal(memory->lock_key, 0x2222);
    queue->pool_bytes = memory->pool_bytes;
    queue->connected = true;
    return BANYAN_OK;
}

void verbs_queue_destroy(struct verbs_queue *queue, verbs_done_function *done, void *owner)
{
    if (queue == NULL)
        return;
    pthread_mutex_lock(&mutex);
    struct verbs_queue **at = &all;
    while (*at != queue)
        at = &(*at)->next;
    *at = queue->next;
    pthread_mutex_unlock(&mutex);
    for (; queue->first < queue->end; queue->first++) {
        assert_true(done != NULL);
        done(owner, queue->lists[queue->first % LISTS], BANYAN_ENET);
    }
    close(queue->event);
    free(queue);
    count(&fake_queues.queues, -1);
}

static int list_validate(const struct verbs_queue *queue, const struct fabric_list *list, uint32_t *good)
{
    for (*good = 0; *good < list->count; ++*good)
        if (gaddr_offset(list->commands[*good].address) + 8 > queue->pool_bytes)
            return BANYAN_EADDRESS;
    return BANYAN_OK;
}

int verbs_queue_post(struct verbs_queue *queue, struct fabric_list *list)
{
    uint32_t good;
    int status = list_validate(queue, list, &good);
    assert_true(queue->connected);
    pthread_mutex_lock(&mutex);
    if (queue->broken[0] != 0)
        status = BANYAN_ENET;
    else if (good > 0)
        status = queue->used + list->count > fake_queues.room ? BANYAN_EBUSY : BANYAN_OK;
    if (!status) {
        assert_true(queue->end - queue->first < LISTS);
        queue->lists[queue->end++ % LISTS] = list;
        queue->used += list->count;
        if (!atomic_load_acquire(&fake_queues.held)) /* acquire: as the test set it */
            queue->ready = queue->end;
    }
    pthread_mutex_unlock(&mutex);
    if (!status)
        count(&fake_queues.posts, 1);
    return status;
}

static void take(const struct fabric_list *list, uint32_t good)
{
    for (uint32_t i = 0; i < good; i++) {
        struct fabric_command *command = &list->commands[i];
        if (command->operation == FABRIC_READ) {
            memset(command->read.buffer, 0x77, command->length);
            command->read.data = command->read.buffer;
        } else if (command->operation == FABRIC_CAS) {
            command->cas.old = UINT64_C(0x7777777777777777);
        } else if (command->operation == FABRIC_FAA) {
            command->faa.old = UINT64_C(0x7777777777777777);
        }
    }
}

uint32_t verbs_queue_poll(struct verbs_queue *queue, verbs_done_function *done, void *owner)
{
    uint32_t finished = 0, good;
    for (;; finished++) {
        pthread_mutex_lock(&mutex);
        bool some = queue->broken[0] == 0 && queue->first < queue->ready;
        pthread_mutex_unlock(&mutex);
        if (!some)
            return finished;
        struct fabric_list *list = queue->lists[queue->first++ % LISTS];
        int status = list_validate(queue, list, &good);
        queue->used -= list->count;
        take(list, good);
        done(owner, list, status);
    }
}

uint32_t verbs_queue_under_way(const struct verbs_queue *queue)
{
    return queue->end - queue->first;
}

const char *verbs_queue_broken(const struct verbs_queue *queue)
{
    pthread_mutex_lock(&mutex);
    bool broken = queue->broken[0] != 0;
    pthread_mutex_unlock(&mutex);
    return broken ? queue->broken : NULL;
}

/* ---- sleeping ---- */

int verbs_queue_descriptor(const struct verbs_queue *queue)
{
    return queue->event;
}

void verbs_queue_arm(struct verbs_queue *queue)
{
    pthread_mutex_lock(&mutex);
    if (atomic_load_acquire(&fake_queues.races)) /* acquire: as the test set it */
        queue->ready = queue->end;
    queue->armed = true;
    pthread_mutex_unlock(&mutex);
    atomic_store_release(&fake_queues.armed_at,
                         task_now()); /* release: what was set before is seen with it */
    count(&fake_queues.arms, 1);
}

void verbs_queue_awake(struct verbs_queue *queue)
{
    uint64_t times;
    ssize_t length = read(queue->event, &times, sizeof times);
    (void)length;
    count(&fake_queues.awakes, 1);
}

/* As a NIC: only what comes after the arm is told, once. */
static void tell(struct verbs_queue *queue)
{
    uint64_t one = 1;
    if (queue->armed && write(queue->event, &one, sizeof one) != sizeof one)
        abort();
    queue->armed = false;
}

void fake_queues_finish(void)
{
    pthread_mutex_lock(&mutex);
    for (struct verbs_queue *queue = all; queue != NULL; queue = queue->next) {
        if (queue->ready != queue->end)
            tell(queue);
        queue->ready = queue->end;
    }
    pthread_mutex_unlock(&mutex);
}

void fake_queues_break(const char *why)
{
    pthread_mutex_lock(&mutex);
    for (struct verbs_queue *queue = all; queue != NULL; queue = queue->next) {
        snprintf(queue->broken, sizeof queue->broken, "%s", why);
        tell(queue);
    }
    pthread_mutex_unlock(&mutex);
}

/* ---- verbs_device.c ---- */

int verbs_device_open(struct verbs_device **device, const struct verbs_options *options,
                      const struct sockaddr *local, struct error *error)
{
    (void)error;
    assert_non_null(local);
    if (options == NULL) {
        fail_msg("a device is opened with options");
        return BANYAN_EINVAL; /* not reached */
    }
    struct verbs_device *made = calloc(1, sizeof *made);
    assert_non_null(made);
    snprintf(made->name, sizeof made->name, "fake0");
    made->options = *options;
    made->options.spin_us = options->spin_us != 0 ? options->spin_us : 50;
    made->mtu = IBV_MTU_4096;
    made->features.masked_cas = fake_queues.masked_cas;
    count(&fake_queues.devices, 1);
    *device = made;
    return BANYAN_OK;
}

void verbs_device_close(struct verbs_device *device)
{
    if (device == NULL)
        return;
    assert_int_equal(atomic_load_acquire(&fake_queues.queues), 0); /* acquire: what was counted */
    free(device);
    count(&fake_queues.devices, -1);
}

uint32_t verbs_mtu_bytes(enum ibv_mtu mtu)
{
    return 128u << mtu;
}

/* ---- their life ---- */

void fake_queues_start(void)
{
    fake_queues = (struct fake_queues){.masked_cas = true, .room = 64};
}

void fake_queues_end(void)
{
    assert_int_equal(fake_queues.queues, 0);
    assert_int_equal(fake_queues.devices, 0);
}
