/* space.c - see space.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "space.h"
#include "store/defrag.h"

#define BATCH     32u
#define VALUE_MAX (UINT32_C(1) << 20)
/* Attempts in a row to make room that let no further value in: then there is none. */
#define VAIN_MAX 2u

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void space_open(struct space *space, uint64_t pool_bytes, uint64_t seed)
{
    struct world_options options;
    stores_options_default(&options);
    options.pool_bytes = pool_bytes;
    options.chunk_bytes = 0;
    options.seed = seed;
    *space = (struct space){.seed = seed, .now_ms = 1000};
    assert_int_equal(stores_create(&space->stores, &options), 0);
    space->session = space->stores.world.tasks[0].store_session;
    space->entries = calloc(SPACE_ENTRIES, sizeof *space->entries);
    space->bytes = malloc(VALUE_MAX);
    assert_non_null(space->entries);
    assert_non_null(space->bytes);
    stores_fill(seed, space->bytes, VALUE_MAX);
}

void space_close(struct space *space)
{
    stores_destroy(&space->stores);
    free(space->entries);
    free(space->bytes);
}

void space_check(struct space *space)
{
    if (stores_check(&space->stores, NULL))
        fail_msg("seed %" PRIu64 ": %s", space->seed, space->stores.world.error.text);
}

/* Whether there was room. Any other failure ends the test. */
static bool room(struct space *space, int status)
{
    if (status && status != BANYAN_ENOSPC)
        fail_msg("seed %" PRIu64 ": %s", space->seed,
                 tree_session_error(space->stores.world.tasks[0].session)->text);
    return !status;
}

/* ---- entries ---- */

struct key {
    char text[128];
    size_t length;
};

/* The same number always has the same key; neighbours in number are none in order. */
static struct key key_of(char kind, uint32_t number, bool long_keys)
{
    struct key key;
    uint64_t mixed = random_mix(number + 1);
    bool tail = long_keys && number % 2;
    key.length = (size_t)snprintf(key.text, sizeof key.text, "%c%08" PRIx32 "%0*" PRIx32, kind,
                                  (uint32_t)mixed, tail ? 8 + (int)(mixed >> 32 & 63) : 1, number);
    return key;
}

static struct store_item item_of(const struct space *space, const struct key *key, uint32_t length,
                                 uint64_t expires)
{
    return (struct store_item){.key = key->text,
                               .key_length = key->length,
                               .value = {.bytes = space->bytes, .length = length, .expires = expires}};
}

/* ---- making room ---- */

/* Removes what has expired since the clock was last moved. */
static void sweep(struct space *space)
{
    if (space->swept_ms == space->now_ms)
        return;
    struct store_sweep *pass = calloc(1, sizeof *pass);
    assert_non_null(pass);
    while (!pass->passes)
        room(space, store_sweep_step(space->session, pass, 4096));
    free(pass);
    space->swept_ms = space->now_ms;
}

/* What a server does by itself in the background, all of it at once. */
static void make_room(struct space *space)
{
    struct store_defrag *pass = calloc(1, sizeof *pass);
    double begun = processor_seconds();
    struct store_merging merging = {.walks = 0};
    bool any = false, done = false;
    assert_non_null(pass);
    sweep(space);
    while (!done)
        room(space, store_merge_step(space->session, &merging, 32, &done));
    done = false;
    assert_int_equal(store_defrag_begin(space->session, pass, &any), 0);
    while (any && !done)
        room(space, store_defrag_step(space->session, pass, 4096, &done));
    space->moved += pass->counts.hits;
    space->passes++;
    free(pass);
    space->waited_s += processor_seconds() - begun;
}

/* ---- histories ---- */

/* What sizes a phase draws from. */
enum mix { MIX_ONE, MIX_SMALL, MIX_ALL, MIX_TWO, MIX_LONG, MIX_POWERS, MIXES };

struct phase {
    struct random *random;
    enum mix mix;
    uint32_t one, two;
};

/* 16 bytes to `most`, all magnitudes equally often. */
static uint32_t size_draw(struct random *random, uint32_t most)
{
    uint32_t top = 16u << random_below(random, 17);
    top = top < most ? top : most;
    return 16 + (uint32_t)random_below(random, top - 15);
}

static void phase_draw(struct phase *phase, struct random *random)
{
    *phase = (struct phase){.random = random,
                            .mix = (enum mix)random_below(random, MIXES),
                            .one = size_draw(random, VALUE_MAX),
                            .two = size_draw(random, VALUE_MAX)};
}

static uint32_t phase_size(struct phase *phase)
{
    switch (phase->mix) {
    case MIX_ONE:
        return phase->one;
    case MIX_SMALL:
        return size_draw(phase->random, 2048);
    case MIX_TWO:
        return random_below(phase->random, 2) ? phase->one : phase->two;
    case MIX_LONG:
        return size_draw(phase->random, VALUE_MAX) | 4096;
    case MIX_POWERS:
        return 16u << random_below(phase->random, 17);
    default:
        return size_draw(phase->random, VALUE_MAX);
    }
}

/* False: it was refused, and the entry is as it was. */
static bool entry_put(struct space *space, uint32_t number, uint32_t length, uint64_t expires)
{
    struct key key = key_of('h', number, space->long_keys);
    length = length < VALUE_MAX ? length : VALUE_MAX;
    if (!room(space, store_put(space->session, key.text, key.length, space->bytes, length, expires)))
        return false;
    space->entries[number] = (struct space_entry){.length = length, .live = true, .expires = expires};
    return true;
}

static void entry_delete(struct space *space, uint32_t number)
{
    struct key key = key_of('h', number, space->long_keys);
    int status = store_delete(space->session, key.text, key.length);
    if (!space->entries[number].live)
        assert_int_equal(status, BANYAN_ENOTFOUND);
    else
        assert_int_equal(status, 0);
    space->entries[number].live = false;
}

static uint64_t pool_bytes(const struct space *space)
{
    return space->stores.world.options.pool_bytes;
}

/* Adds entries until something is refused, or a share of the pool's bytes was written. */
static void phase_fill(struct space *space, struct phase *phase)
{
    uint64_t bytes = 0, most = pool_bytes(space) / 100 * (20 + random_below(phase->random, 100));
    while (space->count < SPACE_ENTRIES && bytes < most) {
        uint32_t length = phase_size(phase);
        if (!entry_put(space, space->count, length, 0))
            break;
        space->count++;
        bytes += length + 64;
    }
}

/* Deletes each entry with this likelihood, in percent. */
static void phase_delete(struct space *space, struct phase *phase, unsigned percent)
{
    for (uint32_t i = 0; i < space->count; i++)
        if (space->entries[i].live && random_below(phase->random, 100) < percent)
            entry_delete(space, i);
}

/* Deletes a range of keys, which are spread over the numbers. */
static void phase_delete_range(struct space *space, struct phase *phase)
{
    char from[16], to[16];
    uint64_t count;
    uint32_t a = (uint32_t)random_next(phase->random), b = (uint32_t)random_next(phase->random);
    snprintf(from, sizeof from, "h%08" PRIx32, a < b ? a : b);
    snprintf(to, sizeof to, "h%08" PRIx32, a < b ? b : a);
    const struct tree_range range = {.from = from, .from_length = 9, .to = to, .to_length = 9};
    room(space, store_delete_range(space->session, &range, &count));
    for (uint32_t i = 0; i < space->count; i++) {
        struct key key = key_of('h', i, space->long_keys);
        if (strcmp(key.text, from) >= 0 && strcmp(key.text, to) <= 0)
            space->entries[i].live = false;
    }
}

static void phase_change(struct space *space, struct phase *phase, unsigned percent)
{
    for (uint32_t i = 0; i < space->count; i++)
        if (space->entries[i].live && random_below(phase->random, 100) < percent)
            entry_put(space, i, phase_size(phase), 0);
}

/* Gives entries an expiry, and lets some of them expire. */
static void phase_expire(struct space *space, struct phase *phase, unsigned percent)
{
    for (uint32_t i = 0; i < space->count; i++)
        if (space->entries[i].live && random_below(phase->random, 100) < percent)
            entry_put(space, i, space->entries[i].length,
                      space->now_ms + 1 + random_below(phase->random, 2000));
    space->now_ms += 1000;
    stores_now(&space->stores, space->now_ms);
    for (uint32_t i = 0; i < space->count; i++)
        space->entries[i].live &= !space->entries[i].expires || space->entries[i].expires > space->now_ms;
}

static void phase_run(struct space *space, struct random *random, char *told, size_t size)
{
    struct phase phase;
    unsigned percent = (unsigned)random_below(random, 101);
    size_t length = strlen(told);
    const char *what = "fill";
    phase_draw(&phase, random);
    switch (random_below(random, 8)) {
    case 0:
        what = "delete";
        phase_delete(space, &phase, percent);
        break;
    case 1:
        what = "delete most";
        phase_delete(space, &phase, 90);
        break;
    case 2:
        what = "delete range";
        phase_delete_range(space, &phase);
        break;
    case 3:
        what = "change";
        phase_change(space, &phase, percent);
        break;
    case 4:
        what = "expire";
        phase_expire(space, &phase, percent);
        break;
    case 5:
        if (random_below(random, 3) == 0) {
            what = "flush";
            space_flush(space);
            break;
        } /* fall through */
    default:
        phase_fill(space, &phase);
    }
    snprintf(told + length, size - length, "%s%s", length ? ", " : "", what);
}

void space_history(struct space *space, char *told, size_t size)
{
    struct random random;
    random_seed(&random, space->seed);
    *told = 0;
    space->long_keys = random_below(&random, 3) == 0;
    struct phase phase;
    phase_draw(&phase, &random);
    phase_fill(space, &phase);
    for (unsigned phases = 2 + (unsigned)random_below(&random, 8); phases; phases--)
        phase_run(space, &random, told, size);
    space->live = space->live_bytes = 0;
    for (uint32_t i = 0; i < space->count; i++)
        if (space->entries[i].live) {
            space->live++;
            space->live_bytes += space->entries[i].length;
        }
}

/* ---- filling ---- */

/* Puts a batch of values; they may be refused one by one. Returns how many went in. */
static uint32_t batch_put(struct space *space, struct store_item *items, uint32_t count)
{
    uint32_t done = 0;
    store_multi_put(space->session, items, count);
    for (uint32_t i = 0; i < count; i++)
        done += room(space, items[i].status);
    return done;
}

bool space_copy(struct space *space, const struct space *from)
{
    bool all = true;
    space->long_keys = from->long_keys;
    for (uint32_t i = 0; i < from->count; i++)
        if (from->entries[i].live)
            all =
                entry_put(space, i, from->entries[i].length, from->entries[i].expires ? UINT64_MAX / 4 : 0) &&
                all;
    return all;
}

/* One batch of the fill, without the items whose keys are there. Those that were refused stay first. */
static uint32_t fill_batch(struct space *space, struct key *keys, struct store_item *items, uint32_t count)
{
    uint32_t done = batch_put(space, items, count), kept = 0;
    for (uint32_t i = 0; i < count; i++)
        if (items[i].status)
            keys[kept++] = keys[i];
    return done;
}

uint64_t space_fill(struct space *space, uint32_t length)
{
    struct key keys[BATCH];
    struct store_item items[BATCH];
    uint32_t next = 0, held = 0, batch = length > 16384 ? 1 : BATCH;
    uint64_t filled = 0;
    space->waited_s = 0;
    space->moved = space->passes = 0;
    for (unsigned vain = 0; vain <= VAIN_MAX && space->waited_s < SPACE_WAIT_S;) {
        while (held < batch)
            keys[held++] = key_of('f', next++, false);
        for (uint32_t i = 0; i < batch; i++)
            items[i] = item_of(space, &keys[i], length, 0);
        uint32_t done = fill_batch(space, keys, items, batch);
        filled += done;
        held = batch - done;
        if (done)
            vain = 0;
        if (held) {
            make_room(space);
            vain++;
        }
    }
    return filled;
}

void space_flush(struct space *space)
{
    const struct tree_range everything = {.from = NULL};
    uint64_t count;
    room(space, store_delete_range(space->session, &everything, &count));
    for (uint32_t i = 0; i < space->count; i++)
        space->entries[i].live = false;
}
