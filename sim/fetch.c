/*
 * fetch.c - READs whose words are fetched one by one, each at an instant of its own, in any order.
 *
 * The instants are a function of the word's number, and a fetch shows only in the bytes that it returns. So
 * words are fetched late, though as of their instants: just before something changes them (then those that
 * were due are fetched, before the change), and all that are left when the READ ends. An undisturbed READ
 * costs two events and one copy, however many words and instants it has.
 *
 * Called from the event loop alone. A READ that overlaps no change costs each change some comparisons.
 */
#include <stdlib.h>
#include <string.h>

#include "fabric/target.h"
#include "sim/fetch.h"
#include "sim/node.h"
#include "sim/state.h"

#define INSIDE_BITS 256 /* words for which no memory is allocated: 2 KiB */

/* In which order the words come. Drawn for each READ. */
enum order {
    ANY,          /* every word at an instant of its own */
    PIECES,       /* pieces of 1 to 8 words, each at one of its own */
    ASCENDING,    /* word by word; strictly */
    DESCENDING,   /* likewise */
    ENDS_INWARDS, /* the first and the last word first, the middle last */
    MIDDLE_OUTWARDS,
    ENDS_THEN_REST, /* two instants */
    REST_THEN_ENDS,
    HEAD_THEN_TAIL, /* two instants, cut somewhere */
    TAIL_THEN_HEAD,
    ORDERS
};

struct sim_fetch {
    struct sim_fetch *next, *previous; /* those of the memory node */
    const struct sim_compute *compute;
    struct fabric_command *command;
    const uint8_t *where;
    uint32_t words, skew;   /* aligned words; bytes of the first that are not ours */
    sim_time start, window; /* instants: from start to start + window */
    uint64_t seed;
    enum order order;
    uint32_t shift, cut; /* of PIECES; of HEAD_THEN_TAIL and its reverse */
    uint16_t node;
    uint64_t *done; /* words fetched already, a bit each; NULL: none */
    uint64_t inside[INSIDE_BITS / 64];
};

static sim_time word_delay(const struct sim_fetch *fetch, uint32_t word)
{
    uint32_t last = fetch->words - 1, depth = word < last - word ? word : last - word;
    bool at_end = depth == 0;
    switch (fetch->order) {
    case PIECES:
        return random_mix(fetch->seed + (word >> fetch->shift)) % (fetch->window + 1);
    case ASCENDING:
        return fetch->window * word / fetch->words;
    case DESCENDING:
        return fetch->window * (last - word) / fetch->words;
    case ENDS_INWARDS:
        return fetch->window * depth / fetch->words;
    case MIDDLE_OUTWARDS:
        return fetch->window - fetch->window * depth / fetch->words;
    case ENDS_THEN_REST:
        return at_end ? 0 : fetch->window;
    case REST_THEN_ENDS:
        return at_end ? fetch->window : 0;
    case HEAD_THEN_TAIL:
        return word < fetch->cut ? 0 : fetch->window;
    case TAIL_THEN_HEAD:
        return word < fetch->cut ? fetch->window : 0;
    case ANY:
    case ORDERS:
        break;
    }
    return random_mix(fetch->seed + word) % (fetch->window + 1);
}

static void copy_word(const struct sim_fetch *fetch, uint32_t word)
{
    uint32_t from = word == 0 ? 0 : word * 8 - fetch->skew, end = (word + 1) * 8 - fetch->skew;
    if (end > fetch->command->length)
        end = fetch->command->length;
    atomic_copy_from((uint8_t *)fetch->command->read.buffer + from, fetch->where + from, end - from);
}

/* False: no memory; then the whole READ takes place here, which is an order too. */
static bool remember_words(struct sim_fetch *fetch)
{
    if (fetch->done)
        return true;
    if (fetch->words > INSIDE_BITS) {
        fetch->done = calloc((fetch->words + 63) / 64, sizeof *fetch->done);
        return fetch->done != NULL;
    }
    memset(fetch->inside, 0, sizeof fetch->inside);
    fetch->done = fetch->inside;
    return true;
}

static bool is_done(const struct sim_fetch *fetch, uint32_t word)
{
    return fetch->done && (fetch->done[word / 64] >> word % 64 & 1);
}

/* Fetches those of the words that are due. */
static void fetch_due(struct sim_fetch *fetch, sim_time now, uint32_t first, uint32_t last)
{
    for (uint32_t word = first; word <= last; word++) {
        if (is_done(fetch, word) || fetch->start + word_delay(fetch, word) > now)
            continue;
        if (!remember_words(fetch)) {
            fetch->compute = NULL; /* nothing is due any more */
            atomic_copy_from(fetch->command->read.buffer, fetch->where, fetch->command->length);
            return;
        }
        copy_word(fetch, word);
        fetch->done[word / 64] |= UINT64_C(1) << word % 64;
    }
}

struct sim_fetch *sim_fetch_begin(struct sim *sim, const struct sim_compute *compute, uint16_t node,
                                  struct fabric_command *command, uint64_t seed, sim_time window)
{
    struct sim_memory *memory = &sim->memories[node];
    struct sim_fetch *fetch = malloc(sizeof *fetch);
    command->read.data = command->read.buffer;
    if (!fetch) {
        fabric_target_execute(memory->target, command);
        return NULL;
    }
    const uint8_t *where = fabric_target_locate(memory->target, command);
    uint32_t skew = (uint32_t)((uintptr_t)where % 8);
    fetch->compute = compute;
    fetch->command = command;
    fetch->where = where;
    fetch->skew = skew;
    fetch->words = (skew + command->length + 7) / 8;
    fetch->start = sim->now;
    fetch->window = window;
    fetch->seed = seed;
    /* half of them in some clever order, half in none at all */
    uint64_t choice = random_mix(seed);
    fetch->order = choice % 2 ? ANY : (enum order)(choice / 2 % ORDERS);
    if (sim->faults.address_order)
        fetch->order = choice % 2 ? ASCENDING : HEAD_THEN_TAIL;
    fetch->shift = (uint32_t)(choice >> 32) % 4;
    fetch->cut = (uint32_t)((choice >> 40) % fetch->words);
    fetch->node = node;
    fetch->done = NULL;
    fetch->previous = NULL;
    fetch->next = memory->fetches;
    if (fetch->next)
        fetch->next->previous = fetch;
    memory->fetches = fetch;
    return fetch;
}

void sim_fetch_end(struct sim *sim, struct sim_fetch *fetch, bool deliver)
{
    if (fetch->previous)
        fetch->previous->next = fetch->next;
    else
        sim->memories[fetch->node].fetches = fetch->next;
    if (fetch->next)
        fetch->next->previous = fetch->previous;
    if (deliver && fetch->compute && !fetch->done)
        atomic_copy_from(fetch->command->read.buffer, fetch->where, fetch->command->length);
    for (uint32_t word = 0; deliver && fetch->compute && fetch->done && word < fetch->words; word++)
        if (!is_done(fetch, word))
            copy_word(fetch, word);
    if (fetch->done != fetch->inside)
        free(fetch->done);
    free(fetch);
}

void sim_fetch_before(struct sim *sim, uint16_t node, const uint8_t *where, uint32_t length)
{
    const uint8_t *end = where + length;
    for (struct sim_fetch *fetch = sim->memories[node].fetches; fetch; fetch = fetch->next) {
        const uint8_t *fetch_end = fetch->where + fetch->command->length;
        /* a dead node's buffer may be gone, and no task waits for the bytes */
        if (fetch->where >= end || where >= fetch_end || !fetch->compute || fetch->compute->dead)
            continue;
        const uint8_t *from = where > fetch->where ? where : fetch->where,
                      *to = end < fetch_end ? end : fetch_end;
        fetch_due(fetch, sim->now, (uint32_t)(from - fetch->where + fetch->skew) / 8,
                  (uint32_t)(to - 1 - fetch->where + fetch->skew) / 8);
    }
}

void sim_fetch_settle(struct sim *sim, uint16_t node)
{
    for (struct sim_fetch *fetch = sim->memories[node].fetches; fetch; fetch = fetch->next)
        if (fetch->compute && !fetch->compute->dead)
            fetch_due(fetch, sim->now, 0, fetch->words - 1);
}

void sim_fetch_settle_all(struct sim *sim)
{
    for (uint32_t node = 0; node < sim->memory_count; node++)
        sim_fetch_settle(sim, (uint16_t)node);
}
