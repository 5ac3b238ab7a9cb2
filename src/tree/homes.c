/* homes.c - see homes.h. */
#include "tree/homes.h"

#include <string.h>

/* A memory node whose READs take so much longer than the fastest one's gets no subtree, in percent. */
#define SLOW_PERCENT 50u

void homes_init(struct homes *homes, uint16_t number)
{
    memset(homes, 0, sizeof *homes);
    homes->turn = number;
}

static uint64_t fastest(const struct home *nodes, uint16_t count)
{
    uint64_t least = 0;
    for (uint16_t i = 0; i < count; i++)
        if (nodes[i].takes && nodes[i].read_ns && (!least || nodes[i].read_ns < least))
            least = nodes[i].read_ns;
    return least;
}

/* Room in subtrees, less those that are on their way: differences below one are none. */
static int64_t room(const struct homes *homes, const struct home *node, uint16_t number, uint64_t bytes)
{
    const int64_t subtrees = (int64_t)(node->bytes_free / bytes);
    return subtrees - homes->promised[number] / HOMES_PROMISE;
}

/* The older a promise is, the more of it has come, and counts as memory in use. */
static void promise(struct homes *homes, uint16_t count, uint16_t chosen)
{
    for (uint16_t i = 0; i < count; i++)
        homes->promised[i] -= homes->promised[i] / (4u * count);
    homes->promised[chosen] += HOMES_PROMISE;
    homes->turn = (uint16_t)((chosen + 1) % count);
}

uint16_t homes_choose(struct homes *homes, const struct home *nodes, uint16_t count, uint64_t bytes)
{
    uint16_t chosen = HOMES_NONE;
    int64_t most = 0;
    count = count < HOMES_MAX ? count : HOMES_MAX;
    const uint64_t least = fastest(nodes, count), slow = least + least * SLOW_PERCENT / 100;
    spinlock_lock(&homes->lock);
    for (uint16_t i = 0; i < count; i++) {
        const uint16_t number = (uint16_t)((homes->turn + i) % count);
        const struct home *node = &nodes[number];
        if (!node->takes || (least && node->read_ns > slow) || node->bytes_free < bytes / 8)
            continue;
        const int64_t left = room(homes, node, number, bytes);
        if (chosen == HOMES_NONE || left > most) {
            chosen = number;
            most = left;
        }
    }
    if (chosen != HOMES_NONE)
        promise(homes, count, chosen);
    spinlock_unlock(&homes->lock);
    return chosen;
}
