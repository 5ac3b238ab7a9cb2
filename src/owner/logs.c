/* logs.c - see logs.h. */
#include "owner/logs.h"

#include "owner/owner.h"

struct search {
    const struct fabric_process *processes;
    uint32_t count;
    bool *named;
};

static void name(const struct search *search, struct fabric_process process)
{
    for (uint32_t i = 0; i < search->count; i++)
        search->named[i] |= fabric_process_equal(search->processes[i], process);
}

static void name_all(const struct search *search)
{
    for (uint32_t i = 0; i < search->count; i++)
        search->named[i] = true;
}

static bool visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    const struct search *search = context;
    struct format_range range;
    if (format_range_decode(key, key_length, value, length, &range)) {
        name_all(search);
        return false;
    }
    name(search, range.owner);
    name(search, range.next);
    for (unsigned i = 0; i < range.heir_count; i++)
        name(search, range.heirs[i].process);
    return true;
}

int owner_logs_named(struct tree_session *session, const struct fabric_process *processes, uint32_t count,
                     bool *named)
{
    struct search search = {.processes = processes, .count = count, .named = named};
    const struct tree_range all = {0};
    struct tree *map = NULL;
    for (uint32_t i = 0; i < count; i++)
        named[i] = false;
    int status = tree_open(session, OWNER_MAP_NAME, &map);
    if (status == BANYAN_ENOTFOUND) {
        name_all(&search);
        return 0;
    }
    if (status)
        return status;
    status = tree_scan(session, map, &all, visit, &search);
    tree_close(map);
    return status;
}
