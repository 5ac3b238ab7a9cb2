/* staging.c - see staging.h. */
#include "memoryd/staging.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/target.h"
#include "memoryd/state.h"

static size_t area_bytes(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (sizeof(struct wire_staging) + page - 1) / page * page;
}

int memoryd_staging_create(struct memoryd_staging **made, int *descriptor, struct error *error)
{
    struct memoryd_staging *staging = calloc(1, sizeof *staging);
    void *area = MAP_FAILED;
    int fd = memfd_create("banyan-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    /* Sealed: a client that cut it short would make this process fail at its next access. */
    if (staging != NULL && fd >= 0 && ftruncate(fd, (off_t)area_bytes()) == 0 &&
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0)
        area = mmap(NULL, area_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (area == MAP_FAILED) {
        int cause = errno;
        if (fd >= 0)
            close(fd);
        free(staging);
        return error_set(error, BANYAN_ENOMEM, "no shared page for a staging area: %s", strerror(cause));
    }
    staging->area = area;
    *made = staging;
    *descriptor = fd;
    return BANYAN_OK;
}

void memoryd_staging_destroy(struct memoryd_staging *staging)
{
    if (staging == NULL)
        return;
    munmap(staging->area, area_bytes());
    free(staging);
}

/* ---- after the client's end ---- */

void memoryd_staging_leave(struct memoryd *daemon, struct memoryd_staging *staging, uint16_t compute_id)
{
    assert(compute_id != 0);
    staging->compute_id = compute_id;
    spinlock_lock(&daemon->left.lock);
    staging->next = daemon->left.first;
    daemon->left.first = staging;
    spinlock_unlock(&daemon->left.lock);
}

/* Takes an area that the compute node left out of the list; compute_id 0: the first that is there. NULL:
 * none. */
static struct memoryd_staging *take_left(struct memoryd_left *left, uint16_t compute_id)
{
    spinlock_lock(&left->lock);
    struct memoryd_staging **link = &left->first;
    while (*link != NULL && compute_id != 0 && (*link)->compute_id != compute_id)
        link = &(*link)->next;
    struct memoryd_staging *staging = *link;
    if (staging != NULL)
        *link = staging->next;
    spinlock_unlock(&left->lock);
    return staging;
}

void memoryd_staging_drop(struct memoryd *daemon)
{
    struct memoryd_staging *staging;
    while ((staging = take_left(&daemon->left, 0)) != NULL)
        memoryd_staging_destroy(staging);
}

static void fenced(void *context, uint16_t compute_id)
{
    struct memoryd *daemon = context;
    struct memoryd_staging *staging;
    uint16_t number = daemon->groups.number; /* a format changes it, but not while there is a group */
    unsigned finished = 0;
    while ((staging = take_left(&daemon->left, compute_id)) != NULL) {
        bool complaint;
        finished += memory_staging_finish(staging->area, daemon->target, number, &complaint);
        if (complaint)
            log_warning("memory node %u: compute node %u left an impossible write in its staging area",
                        (unsigned)number, (unsigned)compute_id);
        memoryd_staging_destroy(staging);
    }
    if (finished > 0)
        log_info("memory node %u: finished %u writes of compute node %u", (unsigned)number, finished,
                 (unsigned)compute_id);
}

const struct memory_service memoryd_staging_service = {.name = "staging", .fenced = fenced};
