/* linearize_seen.c - see linearize_seen.h. */
#include "swarm/linearize_seen.h"

#include <stdlib.h>

static bool seen_put(struct linearize_seen *seen, uint64_t low, uint64_t high)
{
    size_t at = low & (seen->capacity - 1);
    while (seen->cells[at].low | seen->cells[at].high) {
        if (seen->cells[at].low == low && seen->cells[at].high == high)
            return false;
        at = (at + 1) & (seen->capacity - 1);
    }
    seen->cells[at] = (struct linearize_configuration){low, high};
    seen->count++;
    return true;
}

/* True if the configuration is new. */
bool linearize_seen_add(struct linearize_seen *seen, uint64_t low, uint64_t high)
{
    if (seen->count * 2 >= seen->capacity) {
        struct linearize_seen larger = {.capacity = seen->capacity ? seen->capacity * 2 : 1024};
        larger.cells = calloc(larger.capacity, sizeof *larger.cells);
        if (!larger.cells)
            abort();
        for (size_t i = 0; i < seen->capacity; i++)
            if (seen->cells[i].low | seen->cells[i].high)
                seen_put(&larger, seen->cells[i].low, seen->cells[i].high);
        free(seen->cells);
        *seen = larger;
    }
    return seen_put(seen, low, high);
}
