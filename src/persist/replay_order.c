/*
 * replay_order.c - the keys of a replay in order (persist_replay_sort in replay.h).
 *
 * Most keys differ within the 8 bytes behind what all begin with. These are sorted byte by byte, from the
 * last to the first, by counting: a pass reads and writes in order, where sorting by comparison costs twenty
 * passes for a million keys. Bytes in which all keys agree need no pass. Keys that agree in all 8 bytes are
 * compared then.
 *
 * Several shards are sorted side by side, and joined by as many threads, each of which joins a range of keys.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "persist/replay_private.h"

#define PART_BYTES  8u
#define BYTE_VALUES 256u
#define FEW         256u /* of so few keys a sort by comparison is as quick as the counting */
#define LINE_BYTES  64u
#define TOLD_AHEAD  16u /* keys */

static int key_order(const void *left, const void *right)
{
    const struct replay_sorted *first = left, *second = right;
    const struct replay_key *a = first->key, *b = second->key;
    if (first->part != second->part)
        return first->part < second->part ? -1 : 1;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return format_key_compare((struct format_key){a->key, a->length}, (struct format_key){b->key, b->length});
}

/* Zeros behind a key's end come first, as the shorter key does. Of several indexes the index is the first
 * part. */
static uint64_t part_of(const struct replay_key *key, uint32_t from, bool indexes)
{
    uint64_t part = 0;
    for (uint32_t i = 0; i < PART_BYTES; i++)
        part = part << 8 | (from + i < key->length ? key->key[from + i] : 0);
    return indexes ? (uint64_t)key->index << 48 | part >> 16 : part;
}

/* What is known of the keys of all shards. */
struct sorting {
    struct persist_replay *replay;
    struct replay_sorted *other; /* owned: as long as replay->sorted */
    uint32_t common;             /* as in replay_shard, of all keys */
    bool several;
    const struct replay_shard *longest;
};

static void collect(const struct sorting *sorting, struct replay_shard *shard, struct replay_sorted *to)
{
    shard->sorted_count = 0;
    for (struct replay_key *key = shard->first; key; key = key->next)
        if (key->sequence)
            to[shard->sorted_count++] =
                (struct replay_sorted){part_of(key, sorting->common, sorting->several), key};
}

/* One pass, by byte number `byte` of the parts, 0 the least. counts: of each value of that byte. */
static void pass(const struct replay_sorted *from, struct replay_sorted *to, uint64_t count, unsigned byte,
                 const uint64_t *counts)
{
    uint64_t next[BYTE_VALUES], at = 0;
    for (unsigned value = 0; value < BYTE_VALUES; value++) {
        next[value] = at;
        at += counts[value];
    }
    assert(at == count);
    for (uint64_t i = 0; i < count; i++)
        to[next[from[i].part >> (8 * byte) & (BYTE_VALUES - 1)]++] = from[i];
}

/* Sorts by the parts alone. Both arrays have room for all; what is left in them changes places. */
static void parts_sort(struct replay_sorted **sorted, struct replay_sorted **other, uint64_t count)
{
    static_assert(sizeof(uint64_t) == PART_BYTES, "a part is a number");
    uint64_t counts[PART_BYTES][BYTE_VALUES] = {{0}};
    for (uint64_t i = 0; i < count; i++)
        for (unsigned byte = 0; byte < PART_BYTES; byte++)
            counts[byte][(*sorted)[i].part >> (8 * byte) & (BYTE_VALUES - 1)]++;
    for (unsigned byte = 0; byte < PART_BYTES; byte++) {
        if (counts[byte][(*sorted)[0].part >> (8 * byte) & (BYTE_VALUES - 1)] == count)
            continue;
        pass(*sorted, *other, count, byte, counts[byte]);
        struct replay_sorted *swap = *sorted;
        *sorted = *other;
        *other = swap;
    }
}

/* Sorts by whole keys each run of keys with equal parts. */
static void runs_sort(struct replay_sorted *sorted, uint64_t count)
{
    for (uint64_t begin = 0, end; begin < count; begin = end) {
        for (end = begin + 1; end < count && sorted[end].part == sorted[begin].part; end++)
            ;
        if (end - begin > 1)
            qsort(sorted + begin, end - begin, sizeof *sorted, key_order);
    }
}

/* Sorts one shard's keys: into `other` where there are several shards, which are to be joined. */
static void shard_sort(void *context, uint32_t number)
{
    struct sorting *sorting = context;
    struct replay_shard *shard = &sorting->replay->shards[number];
    struct replay_sorted *sorted = sorting->replay->sorted + shard->sorted_from;
    struct replay_sorted *other = sorting->other + shard->sorted_from;
    collect(sorting, shard, other);
    if (shard->sorted_count > FEW) {
        struct replay_sorted *result = other;
        parts_sort(&result, &sorted, shard->sorted_count);
        if (result != other)
            memcpy(other, result, shard->sorted_count * sizeof *other);
        runs_sort(other, shard->sorted_count);
    } else if (shard->sorted_count) {
        qsort(other, shard->sorted_count, sizeof *other, key_order);
    }
}

/* How many keys of the shard come before this one. */
static uint64_t before(const struct sorting *sorting, const struct replay_shard *shard,
                       const struct replay_sorted *bound)
{
    const struct replay_sorted *keys = sorting->other + shard->sorted_from;
    uint64_t from = 0, to = shard->sorted_count;
    while (from < to) {
        const uint64_t middle = from + (to - from) / 2;
        if (key_order(&keys[middle], bound) < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

/* The keys of one shard that a thread has yet to join. */
struct run {
    const struct replay_sorted *next, *end;
};

/* Where, in each shard, the range with that number begins: at the keys of the longest shard that lie evenly
 * in it. As keys fall to shards by their hashes, they lie evenly in all. */
static void range_begin(const struct sorting *sorting, uint32_t number, uint64_t *begins)
{
    const struct persist_replay *replay = sorting->replay;
    const struct replay_shard *longest = sorting->longest;
    const uint64_t at = longest->sorted_count * number / replay->shard_count;
    for (uint32_t i = 0; i < replay->shard_count; i++) {
        const struct replay_shard *shard = &replay->shards[i];
        if (!number)
            begins[i] = 0;
        else if (at == longest->sorted_count)
            begins[i] = shard->sorted_count;
        else
            begins[i] = before(sorting, shard, &sorting->other[longest->sorted_from + at]);
    }
}

static void runs_join(struct run *runs, uint32_t count, struct replay_sorted *to)
{
    while (count) {
        struct run *least = &runs[0];
        for (uint32_t i = 1; i < count; i++)
            if (key_order(runs[i].next, least->next) < 0)
                least = &runs[i];
        *to++ = *least->next++;
        if (least->next == least->end)
            *least = runs[--count];
    }
}

/* Joins one of as many ranges as there are shards: each has keys of all shards. */
static void range_join(void *context, uint32_t number)
{
    const struct sorting *sorting = context;
    const struct persist_replay *replay = sorting->replay;
    uint64_t begins[REPLAY_SHARDS_MAX], ends[REPLAY_SHARDS_MAX], to = 0;
    struct run runs[REPLAY_SHARDS_MAX];
    uint32_t count = 0;
    range_begin(sorting, number, begins);
    range_begin(sorting, number + 1, ends);
    for (uint32_t i = 0; i < replay->shard_count; i++) {
        const struct replay_sorted *keys = sorting->other + replay->shards[i].sorted_from;
        to += begins[i];
        if (begins[i] < ends[i])
            runs[count++] = (struct run){keys + begins[i], keys + ends[i]};
    }
    runs_join(runs, count, replay->sorted + to);
}

/* Where shards' keys will lie, and what all keys have in common. Returns how many keys there are at most. */
static uint64_t sorting_plan(struct sorting *sorting)
{
    const struct persist_replay *replay = sorting->replay;
    const struct replay_key *first = NULL;
    uint64_t keys = 0;
    for (uint32_t i = 0; i < replay->shard_count; i++) {
        struct replay_shard *shard = &replay->shards[i];
        shard->sorted_from = keys;
        keys += shard->keys;
        if (!shard->first)
            continue;
        if (!first) {
            first = shard->first;
            sorting->common = shard->common;
        }
        sorting->several |= shard->several || shard->first->index != first->index;
        sorting->common = format_key_common((struct format_key){first->key, sorting->common},
                                            (struct format_key){shard->first->key, shard->common});
    }
    return keys;
}

/* Joins what the shards have, if there are several. */
static int shards_join(struct sorting *sorting, struct error *error)
{
    struct persist_replay *replay = sorting->replay;
    sorting->longest = replay->shards;
    for (const struct replay_shard *shard = replay->shards; shard < replay->shards + replay->shard_count;
         shard++) {
        replay->sorted_count += shard->sorted_count;
        if (shard->sorted_count > sorting->longest->sorted_count)
            sorting->longest = shard;
    }
    if (replay->shard_count > 1)
        return replay_threads_each(replay, range_join, sorting, error);
    struct replay_sorted *swap = replay->sorted;
    replay->sorted = sorting->other;
    sorting->other = swap;
    return 0;
}

int persist_replay_sort(struct persist_replay *replay, struct error *error)
{
    struct sorting sorting = {.replay = replay};
    int status = replay_threads_settle(replay, error);
    if (status)
        return status;
    free(replay->sorted);
    replay->sorted_count = replay->sorted_at = 0;
    const uint64_t keys = sorting_plan(&sorting);
    replay->sorted = replay_large((keys + 1) * sizeof *replay->sorted);
    sorting.other = replay_large((keys + 1) * sizeof *sorting.other);
    if (!replay->sorted || !sorting.other)
        status = error_set(error, BANYAN_ENOMEM, "no memory to sort what the logs have");
    if (!status)
        status = replay_threads_each(replay, shard_sort, &sorting, error);
    if (!status)
        status = shards_join(&sorting, error);
    free(sorting.other);
    return status;
}

void replay_order_ahead(const struct persist_replay *replay)
{
    if (replay->sorted_count - replay->sorted_at <= TOLD_AHEAD)
        return;
    const char *key = (const char *)replay->sorted[replay->sorted_at + TOLD_AHEAD].key;
    for (unsigned line = 0; line < 3; line++)
        __builtin_prefetch(key + (size_t)LINE_BYTES * line);
}
