/* stores.c - see stores.h. */
#include "stores.h"

#include <string.h>

#include "base/atomic.h"

void stores_options_default(struct world_options *options)
{
    world_options_default(options);
    store_geometry(&options->geometry);
    options->records = true;
    options->pool_bytes = UINT64_C(512) << 20;
    options->chunk_bytes = UINT64_C(2) << 20;
}

void stores_now(struct stores *stores, uint64_t now_ms)
{
    atomic_store_relaxed(&stores->world.now_ms, now_ms); /* a number; it orders nothing */
}

int stores_create(struct stores *stores, const struct world_options *options)
{
    *stores = (struct stores){.context = NULL};
    int status = world_create(&stores->world, options);
    stores->world.context = stores;
    return status;
}

void stores_destroy(struct stores *stores)
{
    world_destroy(&stores->world);
}

int stores_check(struct stores *stores, struct store_check_report *report)
{
    return world_check_store(&stores->world, report);
}

/* ---- values ---- */

static uint64_t word_of(uint64_t number, size_t at)
{
    return random_mix(number * UINT64_C(0x9e3779b97f4a7c15) + at);
}

void stores_fill(uint64_t number, uint8_t *bytes, size_t length)
{
    for (size_t at = 0; at < length; at += 8) {
        uint64_t word = word_of(number, at);
        memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
    }
}

bool stores_filled(uint64_t number, const uint8_t *bytes, size_t length)
{
    for (size_t at = 0; at < length; at += 8) {
        uint64_t word = word_of(number, at);
        if (memcmp(bytes + at, &word, length - at < 8 ? length - at : 8))
            return false;
    }
    return true;
}
