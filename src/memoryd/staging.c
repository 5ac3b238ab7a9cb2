/* staging.c - see staging.h. */
#include "memoryd/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
    /* Sealed: a client that cut it short would make this process fail at its next look. */
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

bool memoryd_staging_finish(const struct memoryd_staging *staging, const struct fabric_target *target,
                            uint16_t number, bool *complaint)
{
    const struct wire_staging *area = staging->area;
    uint8_t data[WIRE_STAGING_DATA];
    *complaint = false;
    /* acquire: what was put down before the mark is seen behind it */
    if (atomic_load_acquire(&area->marked) != WIRE_STAGED)
        return false;
    /* Each word once (relaxed: the mark has ordered them), then judged: an area that is still being written
     * can make us copy nonsense into a place that its client might have written anyway, but no further. */
    uint64_t offset = atomic_load_relaxed(&area->offset), length = atomic_load_relaxed(&area->length);
    if (length - 1 >= WIRE_STAGING_DATA || offset >> GADDR_OFFSET_BITS != 0) {
        *complaint = true;
        return false;
    }
    atomic_copy_from(data, area->data, length);
    struct fabric_command command = {.operation = FABRIC_WRITE,
                                     .length = (uint32_t)length,
                                     .address = gaddr_make(number, offset),
                                     .write = {.data = data}};
    *complaint = fabric_target_execute(target, &command);
    fabric_target_fence();
    return !*complaint;
}
