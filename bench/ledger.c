/* ledger.c - see ledger.h. */
#include "bench/ledger.h"

#include <stdlib.h>
#include "base/error.h"

#define NEVER_ENDED UINT64_MAX

struct ledger {
    uint64_t *ends;  /* of each write, by its number; NEVER_ENDED: it was not acknowledged */
    uint64_t *began; /* by slot: when the acknowledged write began that began last */
    uint64_t slots, count, capacity;
};

int ledger_create(struct ledger **out, uint64_t slots, struct error *error)
{
    struct ledger *ledger = *out = calloc(1, sizeof *ledger);
    if (ledger)
        ledger->began = calloc(slots + 1, sizeof *ledger->began);
    if (!ledger || !ledger->began)
        return error_set(error, BANYAN_ENOMEM, "no memory for the writes of %llu keys",
                         (unsigned long long)slots);
    ledger->slots = slots;
    ledger->count = 1; /* write 0: the key was loaded with it, before all others */
    return 0;
}

void ledger_destroy(struct ledger *ledger)
{
    if (!ledger)
        return;
    free(ledger->ends);
    free(ledger->began);
    free(ledger);
}

/* Values of eight bytes have the upper half of the salt, longer ones all of it. */
static uint64_t salt_of(uint64_t number)
{
    return number << 32 | number;
}

static uint64_t number_in(const uint8_t *value)
{
    uint64_t number = 0;
    for (unsigned i = 0; i < 4; i++)
        number |= (uint64_t)value[4 + i] << (8 * i);
    return number;
}

uint64_t ledger_begin(struct ledger *ledger)
{
    if (ledger->count >= ledger->capacity) {
        uint64_t capacity = ledger->capacity * 2 + 4096;
        uint64_t *grown = capacity > UINT32_MAX ? NULL : realloc(ledger->ends, capacity * sizeof *grown);
        if (!grown)
            return 0;
        ledger->ends = grown;
        ledger->capacity = capacity;
        ledger->ends[0] = 0;
    }
    ledger->ends[ledger->count] = NEVER_ENDED;
    return salt_of(ledger->count++);
}

void ledger_acknowledge(struct ledger *ledger, uint64_t salt, uint64_t slot, uint64_t begin_ns,
                        uint64_t end_ns)
{
    ledger->ends[salt >> 32] = end_ns;
    if (slot < ledger->slots && begin_ns > ledger->began[slot])
        ledger->began[slot] = begin_ns;
}

bool ledger_allows(const struct ledger *ledger, uint64_t slot, const uint8_t *value, size_t length)
{
    if (slot >= ledger->slots || length < LEDGER_VALUE_LEAST)
        return false;
    const uint64_t number = number_in(value);
    if (!number)
        return !ledger->began[slot];
    return number < ledger->count && ledger->ends[number] >= ledger->began[slot];
}
