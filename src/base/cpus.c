/* cpus.c - see cpus.h; sched_getaffinity underneath. */
#include "base/cpus.h"

#include <sched.h>
#include <unistd.h>

unsigned cpus_count(void)
{
    cpu_set_t allowed;
    /* The first thread's, since the calling one may be pinned. */
    if (sched_getaffinity(getpid(), sizeof allowed, &allowed))
        return 1;
    int count = CPU_COUNT(&allowed);
    return count > 0 ? (unsigned)count : 1;
}
