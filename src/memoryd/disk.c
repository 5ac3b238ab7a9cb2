/* disk.c - see disk.h. */
#include "memoryd/disk.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "memoryd/loop.h"

struct memoryd_disk {
    struct persist_disk *kept; /* owned */
    struct memoryd *daemon;
    struct thread *thread;
    int wake;      /* eventfd */
    bool stopping; /* atomic */
};

/* ---- the thread ---- */

static void disk_wait(struct memoryd_disk *disk)
{
    struct pollfd event = {.fd = disk->wake, .events = POLLIN};
    uint64_t count;
    if (poll(&event, 1, 1000) > 0) {
        ssize_t got = read(disk->wake, &count, sizeof count);
        (void)got; /* another look does no harm */
    }
}

static void disk_main(void *argument)
{
    struct memoryd_disk *disk = argument;
    while (!atomic_load_acquire(&disk->stopping)) { /* acquire: what I/O threads have done is seen below */
        disk_wait(disk);
        persist_disk_round(disk->kept);
    }
    persist_disk_round(disk->kept);
}

static void disk_wake(void *context)
{
    const struct memoryd_disk *disk = context;
    const uint64_t one = 1;
    ssize_t written = write(disk->wake, &one, sizeof one);
    (void)written; /* it fails only where the thread is awake already */
}

static void loops_wake(void *context)
{
    const struct memoryd_disk *disk = context;
    for (unsigned i = 0; disk->daemon && i < disk->daemon->loop_count; i++)
        memoryd_loop_wake(&disk->daemon->loops[i]);
}

int memoryd_disk_start(struct memoryd_disk *disk, struct memoryd *daemon, struct error *error)
{
    disk->daemon = daemon;
    return thread_start(&disk->thread, disk_main, disk, error);
}

void memoryd_disk_stop(struct memoryd_disk *disk)
{
    if (!disk || !disk->thread)
        return;
    atomic_store_release(&disk->stopping, true); /* release: see disk_main */
    disk_wake(disk);
    thread_join(disk->thread);
    disk->thread = NULL;
    disk->daemon = NULL;
}

/* ---- for the daemon ---- */

struct persist_disk *memoryd_disk_kept(const struct memoryd_disk *disk)
{
    return disk->kept;
}

int memoryd_disk_may_format(const struct memoryd_disk *disk, struct error *error)
{
    return disk ? persist_disk_may_format(disk->kept, error) : 0;
}

int memoryd_disk_format(struct memoryd_disk *disk, struct error *error)
{
    return disk ? persist_disk_format(disk->kept, error) : 0;
}

uint32_t memoryd_disk_level(const struct memoryd_disk *disk, struct memory_node *node)
{
    if (disk)
        return persist_disk_level(disk->kept);
    return memory_node_instance(node) ? FABRIC_KEPT_IN_FILE : FABRIC_KEPT_IN_MEMORY;
}

bool memoryd_disk_outcome(struct memoryd_disk *disk, uint64_t ticket, int *status)
{
    return persist_disk_outcome(disk->kept, ticket, status);
}

uint64_t memoryd_disk_settled(const struct memoryd_disk *disk)
{
    return disk ? persist_disk_settled(disk->kept) : 0;
}

/* ---- life ---- */

int memoryd_disk_create(struct memoryd_disk **made, struct memory_node *node,
                        const struct persist_disk_options *options, struct error *error)
{
    struct memoryd_disk *disk = calloc(1, sizeof *disk);
    *made = NULL;
    if (!disk)
        return error_set(error, BANYAN_ENOMEM, "no memory for a memory node's disk");
    disk->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int status = disk->wake < 0 ? error_set(error, BANYAN_ENOMEM, "memory node: no eventfd for its disk: %s",
                                            strerror(errno))
                                : persist_disk_create(&disk->kept, node, options, error);
    if (status) {
        memoryd_disk_destroy(disk);
        return status;
    }
    const struct persist_disk_listener listener = {
        .asked = disk_wake, .settled = loops_wake, .context = disk};
    persist_disk_listen(disk->kept, &listener);
    *made = disk;
    return 0;
}

void memoryd_disk_destroy(struct memoryd_disk *disk)
{
    if (!disk)
        return;
    memoryd_disk_stop(disk);
    persist_disk_destroy(disk->kept);
    if (disk->wake >= 0)
        close(disk->wake);
    free(disk);
}
