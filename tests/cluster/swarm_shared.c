/* swarm_shared.c - see swarm_shared.h. */
#include "cluster/swarm_shared.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cluster/process.h"

/* Free in every process, with AddressSanitizer's shadow too. */
#define ADDRESS ((void *)(uintptr_t)0x200000000000)

struct shared *shared_map(int descriptor)
{
    struct shared *shared = mmap(ADDRESS, sizeof *shared, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, descriptor, 0);
    if (shared != ADDRESS)
        fail_hard("the shared history cannot be mapped: %s", strerror(errno));
    return shared;
}

struct shared *shared_create(int *descriptor)
{
    *descriptor = memfd_create("history", 0);
    if (*descriptor < 0 || ftruncate(*descriptor, sizeof(struct shared)))
        fail_hard("no memory for a shared history: %s", strerror(errno));
    struct shared *shared = shared_map(*descriptor);
    history_init(&shared->history);
    return shared;
}

void shared_destroy(struct shared *shared, int descriptor)
{
    munmap(shared, sizeof *shared);
    close(descriptor);
}
