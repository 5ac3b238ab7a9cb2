/* machine.c - see machine.h. */
#include "cli/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/cpus.h"
#include "base/log.h"

/* The limit of the control group at the root of what this process sees, as in a container; UINT64_MAX: none.
 */
static uint64_t group_limit(void)
{
    static const char *const paths[] = {"/sys/fs/cgroup/memory.max",
                                        "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    unsigned long long limit = 0;
    for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
        FILE *file = fopen(paths[i], "re");
        bool read = file && fscanf(file, "%llu", &limit) == 1; /* "max" is no number */
        if (file)
            fclose(file);
        if (read && limit)
            return limit;
    }
    return UINT64_MAX;
}

uint64_t machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    uint64_t machine = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
    uint64_t group = group_limit();
    return group < machine ? group : machine;
}

void machine_warn_pool(uint64_t bytes)
{
    uint64_t memory = machine_memory();
    if (bytes <= memory)
        return;
    log_warning(
        "a pool of %.1f GiB is more than the %.1f GiB of memory here: it is taken from the system as it is "
        "filled, and when there is no more the system kills this process, with all that the pool holds; "
        "give a smaller --size",
        (double)bytes / 0x1p30, (double)memory / 0x1p30);
}

void machine_warn_threads(uint32_t threads)
{
    unsigned cpus = cpus_count();
    if (threads <= cpus)
        return;
    log_warning(
        "%u threads on %u CPU%s: they take turns, so that each command waits longer and no more commands are "
        "done; --threads 0 starts one for each CPU",
        threads, cpus, cpus == 1 ? "" : "s");
}
