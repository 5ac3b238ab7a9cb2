/* runs.c - see runs.h. */
#include "memory/runs.h"

#include <assert.h>

#include "memory/bits.h"

#define LEAF_WORDS (RUNS_LEAF / 64)
#define FAN        8u

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t greater(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* ---- life ---- */

/* The granules of a node; the last one of a level may have fewer than the others. */
static uint64_t node_size(const struct runs *runs, unsigned level, uint64_t index)
{
    uint64_t full = (uint64_t)RUNS_LEAF << 3 * level;
    return lesser(full, runs->granules - index * full);
}

static uint64_t zone_size(const struct runs *runs, uint64_t zone)
{
    uint64_t full = (uint64_t)RUNS_LEAF << runs->zone_shift;
    return lesser(full, runs->granules - zone * full);
}

/* Up to 4,096 zones of 16 KiB to 8 MiB, or more of 8 MiB. */
static void choose_zones(struct runs *runs)
{
    while (runs->zone_shift < 9 && runs->granules >> runs->zone_shift > (uint64_t)RUNS_LEAF * 4096)
        runs->zone_shift++;
    uint64_t full = (uint64_t)RUNS_LEAF << runs->zone_shift;
    runs->zones = (runs->granules + full - 1) / full;
    runs->reserve = lesser(greater(runs->granules / 64, RUNS_LEAF), runs->granules / 4);
}

static uint64_t whole_lines(uint64_t nodes)
{
    return (nodes + FAN - 1) / FAN * FAN;
}

/* How many nodes there are to store. */
static uint64_t choose_levels(struct runs *runs)
{
    uint64_t nodes = runs->granules / RUNS_LEAF, total = 0;
    do {
        assert(runs->height < RUNS_LEVELS);
        runs->counts[runs->height++] = nodes;
        total += whole_lines(nodes);
        nodes = (nodes + FAN - 1) / FAN;
    } while (runs->counts[runs->height - 1] > 1);
    return total;
}

static void fill(struct runs *runs)
{
    struct runs_lack *lacks = runs->lack_pages.start;
    runs->hidden = runs->hidden_pages.start;
    runs->zone_lacks = runs->zone_pages.start;
    for (unsigned level = 0; level < runs->height; level++) {
        runs->levels[level] = lacks;
        lacks += whole_lines(runs->counts[level]);
    }
    runs->floor = runs->room_below = runs->scrap = 0;
    runs_floor_settle(runs, UINT64_MAX);
}

int runs_create(struct runs *runs, uint64_t *used, uint64_t granules, struct error *error)
{
    assert(granules > 0 && granules % RUNS_LEAF == 0);
    *runs = (struct runs){.granules = granules, .used = used};
    choose_zones(runs);
    uint64_t nodes = choose_levels(runs);
    int status = pages_map(&runs->hidden_pages, granules / RUNS_LEAF / 8 + 8, error);
    if (!status)
        status = pages_map(&runs->zone_pages, runs->zones * sizeof *runs->zone_lacks, error);
    if (!status)
        status = pages_map(&runs->lack_pages, nodes * sizeof(struct runs_lack), error);
    if (status)
        runs_destroy(runs);
    else
        fill(runs);
    return status;
}

void runs_destroy(struct runs *runs)
{
    pages_unmap(&runs->lack_pages);
    pages_unmap(&runs->zone_pages);
    pages_unmap(&runs->hidden_pages);
}

void runs_clear(struct runs *runs)
{
    pages_clear(&runs->lack_pages);
    pages_clear(&runs->zone_pages);
    pages_clear(&runs->hidden_pages);
    fill(runs);
}

/* ---- adding parts up ---- */

/* The free runs of a part that grows to the right. */
struct span {
    uint64_t size; /* not capped */
    uint64_t first, last, longest;
};

static void span_add(struct span *span, uint64_t size, const struct runs_lack *lack)
{
    uint64_t capped = lesser(size, RUNS_CAP);
    uint64_t first = capped - lack->first, last = capped - lack->last, longest = capped - lack->longest;
    assert(first <= longest && last <= longest);
    span->longest = greater(greater(span->longest, longest), lesser(span->last + first, RUNS_CAP));
    if (span->first == span->size) /* free so far, or it is long enough already */
        span->first = lesser(span->first + first, RUNS_CAP);
    span->last = last == size ? lesser(span->last + size, RUNS_CAP) : last;
    span->size += size;
}

static struct runs_lack span_lack(const struct span *span)
{
    uint64_t capped = lesser(span->size, RUNS_CAP);
    return (struct runs_lack){.first = (uint16_t)(capped - span->first),
                              .last = (uint16_t)(capped - span->last),
                              .longest = (uint16_t)(capped - span->longest)};
}

/* The lowest, or highest, bits of the word that are set without a gap. */
static unsigned low_ones(uint64_t word)
{
    return word == UINT64_MAX ? 64 : (unsigned)__builtin_ctzll(~word);
}

static unsigned high_ones(uint64_t word)
{
    return word == UINT64_MAX ? 64 : (unsigned)__builtin_clzll(~word);
}

/* A bit where `length` bits of the word begin that are all set; 1 to 64. */
static uint64_t starts_of(uint64_t word, uint64_t length)
{
    for (uint64_t have = 1, step; have < length; have += step) {
        step = lesser(have, length - have);
        word &= word >> step;
    }
    return word;
}

static unsigned longest_ones(uint64_t word)
{
    unsigned have = 1, step = 1;
    uint64_t both;
    for (; step < 64 && (both = word & word >> step) != 0; step *= 2) {
        word = both;
        have += step;
    }
    for (step /= 2; step > 0; step /= 2)
        if ((both = word & word >> step) != 0) {
            word = both;
            have += step;
        }
    return have;
}

/* Of the leaf's bits, whether it is hidden or not. */
static struct runs_lack leaf_lack(const struct runs *runs, uint64_t leaf)
{
    const uint64_t *words = runs->used + leaf * LEAF_WORDS;
    unsigned first = RUNS_LEAF, last = 0, longest = 0;
    for (unsigned i = 0; i < LEAF_WORDS; i++) {
        uint64_t room = ~words[i];
        if (room == UINT64_MAX) {
            last += 64;
            continue;
        }
        unsigned reach = last + low_ones(room);
        if (first == RUNS_LEAF)
            first = reach;
        if (reach > longest)
            longest = reach;
        if (longest < 64 && starts_of(room, longest + 1) != 0)
            longest = longest_ones(room);
        last = high_ones(room);
    }
    if (last > longest)
        longest = last;
    return (struct runs_lack){.first = (uint16_t)(RUNS_LEAF - first),
                              .last = (uint16_t)(RUNS_LEAF - last),
                              .longest = (uint16_t)(RUNS_LEAF - longest)};
}

/* ---- keeping the tree true ---- */

static uint32_t leaf_room(const struct runs_lack *lack)
{
    uint32_t longest = RUNS_LEAF - lack->longest;
    return longest >= RUNS_ROOM_MIN ? longest : 0;
}

static void zone_change(struct runs *runs, uint64_t leaf, const struct runs_lack *before,
                        const struct runs_lack *after)
{
    uint64_t zone = leaf >> runs->zone_shift;
    uint32_t was = leaf_room(before), is = leaf_room(after);
    assert(runs->zone_lacks[zone] + was >= is);
    runs->zone_lacks[zone] += was - is;
    assert(runs->zone_lacks[zone] <= zone_size(runs, zone));
    if (zone < runs->floor)
        runs->room_below = runs->room_below - was + is;
}

static struct runs_lack node_work_out(const struct runs *runs, unsigned level, uint64_t index)
{
    struct span span = {0};
    if (level == 0) {
        const struct runs_lack none = {RUNS_LEAF, RUNS_LEAF, RUNS_LEAF, 0};
        return bits_get(runs->hidden, index) ? none : leaf_lack(runs, index);
    }
    uint64_t end = lesser((index + 1) * FAN, runs->counts[level - 1]);
    for (uint64_t child = index * FAN; child < end; child++)
        span_add(&span, node_size(runs, level - 1, child), &runs->levels[level - 1][child]);
    return span_lack(&span);
}

/* Nodes from *from to *to of the level; leaves there the first and last that changed. False: none did. */
static bool level_update(struct runs *runs, unsigned level, uint64_t *from, uint64_t *to)
{
    uint64_t first = UINT64_MAX, last = 0;
    for (uint64_t index = *from; index <= *to; index++) {
        struct runs_lack *node = &runs->levels[level][index], now = node_work_out(runs, level, index);
        if (now.first == node->first && now.last == node->last && now.longest == node->longest)
            continue;
        if (level == 0)
            zone_change(runs, index, node, &now);
        *node = now;
        first = lesser(first, index);
        last = index;
    }
    *from = first;
    *to = last;
    return first != UINT64_MAX;
}

void runs_update(struct runs *runs, uint64_t at, uint64_t length)
{
    assert(length > 0 && at + length <= runs->granules);
    uint64_t from = at / RUNS_LEAF, to = (at + length - 1) / RUNS_LEAF;
    for (unsigned level = 0; level < runs->height && level_update(runs, level, &from, &to); level++) {
        from /= FAN;
        to /= FAN;
    }
}

void runs_hide(struct runs *runs, uint64_t from, uint64_t to, bool hide)
{
    assert(from < to && from % RUNS_LEAF == 0 && to % RUNS_LEAF == 0);
    if (hide)
        bits_set(runs->hidden, from / RUNS_LEAF, (to - from) / RUNS_LEAF);
    else
        bits_unset(runs->hidden, from / RUNS_LEAF, (to - from) / RUNS_LEAF);
    runs_update(runs, from, to - from);
}

/* ---- searching ---- */

static uint64_t leaf_first(const struct runs *runs, uint64_t leaf, uint64_t run, uint64_t length)
{
    for (unsigned i = 0; i < LEAF_WORDS; i++) {
        uint64_t at = leaf * RUNS_LEAF + i * 64u, room = ~runs->used[at / 64];
        if (run + low_ones(room) >= length)
            return at - run;
        uint64_t starts = length <= 64 ? starts_of(room, length) : 0;
        if (starts != 0)
            return at + (uint64_t)__builtin_ctzll(starts);
        run = room == UINT64_MAX ? run + 64 : high_ones(room);
    }
    assert(false); /* the leaf has a run of that length */
    return RUNS_NONE;
}

uint64_t runs_first(const struct runs *runs, uint64_t length)
{
    unsigned level = runs->height - 1;
    uint64_t index = 0, run = 0; /* free granules right before what is looked at */
    assert(length > 0 && length <= RUNS_CAP && runs->counts[level] == 1);
    if (lesser(runs->granules, RUNS_CAP) - runs->levels[level][0].longest < length)
        return RUNS_NONE;
    while (level-- > 0) {
        uint64_t child = index * FAN;
        for (;; child++) {
            assert(child < lesser((index + 1) * FAN, runs->counts[level]));
            const struct runs_lack *lack = &runs->levels[level][child];
            uint64_t size = node_size(runs, level, child), capped = lesser(size, RUNS_CAP);
            if (run + capped - lack->first >= length)
                return child * ((uint64_t)RUNS_LEAF << 3 * level) - run;
            if (capped - lack->longest >= length)
                break;
            run = lack->longest == 0 ? run + size : capped - lack->last;
        }
        index = child;
    }
    return leaf_first(runs, index, run, length);
}

static uint64_t leaf_last(const struct runs *runs, uint64_t leaf, uint64_t run, uint64_t length)
{
    for (unsigned i = LEAF_WORDS; i-- > 0;) {
        uint64_t at = leaf * RUNS_LEAF + i * 64u, room = ~runs->used[at / 64];
        if (run + high_ones(room) >= length)
            return at + 64 + run;
        uint64_t starts = length <= 64 ? starts_of(room, length) : 0;
        if (starts != 0)
            return at + 63 - (uint64_t)__builtin_clzll(starts) + length;
        run = room == UINT64_MAX ? run + 64 : low_ones(room);
    }
    assert(false); /* the leaf has a run of that length */
    return RUNS_NONE;
}

uint64_t runs_last(const struct runs *runs, uint64_t length)
{
    unsigned level = runs->height - 1;
    uint64_t index = 0, run = 0; /* free granules right behind what is looked at */
    assert(length > 0 && length <= RUNS_CAP && runs->counts[level] == 1);
    if (lesser(runs->granules, RUNS_CAP) - runs->levels[level][0].longest < length)
        return RUNS_NONE;
    while (level-- > 0) {
        uint64_t child = lesser((index + 1) * FAN, runs->counts[level]) - 1;
        for (;; child--) {
            const struct runs_lack *lack = &runs->levels[level][child];
            uint64_t size = node_size(runs, level, child), capped = lesser(size, RUNS_CAP);
            if (run + capped - lack->last >= length)
                return child * ((uint64_t)RUNS_LEAF << 3 * level) + size + run;
            if (capped - lack->longest >= length)
                break;
            assert(child > index * FAN);
            run = lack->longest == 0 ? run + size : capped - lack->first;
        }
        index = child;
    }
    return leaf_last(runs, index, run, length);
}

uint64_t runs_scrap(struct runs *runs, uint64_t length)
{
    if (length >= RUNS_ROOM_MIN)
        return RUNS_NONE;
    for (uint64_t looked = 0; looked < lesser(RUNS_SCRAPS, runs->counts[0]); looked++) {
        uint64_t leaf = (runs->scrap ? runs->scrap : runs->counts[0]) - 1;
        uint32_t longest = RUNS_LEAF - runs->levels[0][leaf].longest; /* 0 if it is hidden */
        if (longest >= length && longest < RUNS_ROOM_MIN)
            return leaf_last(runs, leaf, 0, length);
        runs->scrap = leaf;
    }
    return RUNS_NONE;
}

uint64_t runs_longest(const struct runs *runs, uint64_t from)
{
    struct span span = {0};
    uint64_t index = from / RUNS_LEAF;
    assert(from % RUNS_LEAF == 0);
    for (unsigned level = 0; level < runs->height; level++, index = (index + FAN - 1) / FAN)
        for (; index < runs->counts[level] && (index % FAN != 0 || level + 1 == runs->height); index++)
            span_add(&span, node_size(runs, level, index), &runs->levels[level][index]);
    return span.longest;
}

uint64_t runs_longest_within(const struct runs *runs, uint64_t from, uint64_t to)
{
    struct span span = {0};
    assert(from % RUNS_LEAF == 0 && to % RUNS_LEAF == 0 && to <= runs->granules);
    for (uint64_t leaf = from / RUNS_LEAF; leaf < to / RUNS_LEAF; leaf++) {
        struct runs_lack lack = leaf_lack(runs, leaf);
        span_add(&span, RUNS_LEAF, &lack);
    }
    return span.longest;
}

uint64_t runs_room_up(const struct runs *runs, uint64_t at, uint64_t most)
{
    uint64_t room = 0;
    most = lesser(most, runs->granules - at);
    while (room < most && !bits_get(runs->hidden, (at + room) / RUNS_LEAF)) {
        uint64_t here = at + room, left = 64 - here % 64;
        uint64_t clear = low_ones(~runs->used[here / 64] >> here % 64);
        room += lesser(clear, left);
        if (clear < left)
            break;
    }
    return lesser(room, most);
}

uint64_t runs_room_down(const struct runs *runs, uint64_t at, uint64_t most)
{
    uint64_t room = 0;
    most = lesser(most, at);
    while (room < most && !bits_get(runs->hidden, (at - room - 1) / RUNS_LEAF)) {
        uint64_t last = at - room - 1, left = last % 64 + 1;
        uint64_t clear = high_ones(~runs->used[last / 64] << (64 - left));
        room += lesser(clear, left);
        if (clear < left)
            break;
    }
    return lesser(room, most);
}

/* ---- the floor ---- */

uint64_t runs_floor(const struct runs *runs)
{
    return lesser(runs->floor * ((uint64_t)RUNS_LEAF << runs->zone_shift), runs->granules);
}

static uint64_t zone_room(const struct runs *runs, uint64_t zone)
{
    return zone_size(runs, zone) - runs->zone_lacks[zone];
}

void runs_floor_settle(struct runs *runs, uint64_t zones_max)
{
    for (; runs->room_below < runs->reserve && runs->floor < runs->zones && zones_max > 0; zones_max--)
        runs->room_below += zone_room(runs, runs->floor++);
    for (; runs->floor > 0 && zones_max > 0 &&
           runs->room_below - zone_room(runs, runs->floor - 1) >= runs->reserve;
         zones_max--)
        runs->room_below -= zone_room(runs, --runs->floor);
}
