/*
 * balance.c - a process takes its share of the indexes that it has open: owner_balance, and the keeper's
 * look now and then.
 *
 * HOW MUCH A RANGE IS. Keys drawn from the index (tree_sample) are counted by range: a range's weight is the
 * number of keys in it, as far as a few hundred of them tell. So shares are of keys, not of load.
 *
 * An index that was never divided is taken as a whole, in `ranges` ranges; from one that is divided, ranges
 * are taken from those who have most, the large ones split first, until this process has about as much as
 * everyone. Ranges that are shared stay so, since they were shared on purpose, unless they are unclaimed:
 * those that no process wanted when their owner left, and all of them where memory nodes want changes logged
 * (unkept.h). The first process that comes takes them all.
 */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "owner/transfer.h"
#include "owner/unkept.h"

#define SAMPLES_EACH 32u /* keys for each range that a process should have */
#define SAMPLES_MAX  1024u
#define SPLITS_MAX   128u /* in one step */
/* Keys are drawn one after the other. Where the network is slow a few must do. */
#define SAMPLES_NS    (200 * MILLISECOND)
#define SAMPLES_LEAST 16u

/* ---- a drawing of keys ---- */

struct sample {
    uint8_t length;
    uint8_t bytes[FORMAT_KEY_MAX];
};

struct balance {
    struct owner *owner;
    struct tree_session *session;
    struct owner_index *index;
    struct sample *samples; /* owned; ascending */
    uint32_t sample_count;
    struct fabric_process *others; /* owned: the willing ones */
    uint32_t other_count;
    struct owner_transfer transfer;
};

static int sample_compare(const void *a, const void *b)
{
    const struct sample *left = a, *right = b;
    size_t common = left->length < right->length ? left->length : right->length;
    int order = memcmp(left->bytes, right->bytes, common);
    return order ? order : (int)left->length - (int)right->length;
}

static bool enough(const struct balance *balance, uint32_t wanted, uint64_t began)
{
    return balance->sample_count >= wanted ||
           (balance->sample_count >= SAMPLES_LEAST && task_now() - began >= SAMPLES_NS);
}

static int draw(struct balance *balance)
{
    const uint64_t began = task_now();
    uint64_t looked = began;
    uint32_t wanted = SAMPLES_EACH * balance->owner->options.ranges;
    if (wanted > SAMPLES_MAX)
        wanted = SAMPLES_MAX;
    balance->samples = heap_allocate(&balance->owner->heap, wanted * sizeof *balance->samples);
    if (!balance->samples)
        return pool_fail_memory(tree_session_pool(balance->session));
    while (!enough(balance, wanted, began)) {
        struct sample *sample = &balance->samples[balance->sample_count];
        size_t length = sizeof sample->bytes;
        int status = owner_keep_up(balance->owner, balance->session, &looked);
        if (!status)
            status = tree_sample(balance->session, balance->index->tree, sample->bytes, &length);
        if (status == BANYAN_ENOTFOUND)
            break; /* it is empty, or nearly so */
        if (status)
            return status;
        sample->length = (uint8_t)length;
        balance->sample_count++;
    }
    qsort(balance->samples, balance->sample_count, sizeof *balance->samples, sample_compare);
    return 0;
}

/* The samples that are not below the bound begin there. */
static uint32_t samples_from(const struct balance *balance, const uint8_t *lower, uint8_t length)
{
    struct sample bound = {.length = length};
    if (length)
        memcpy(bound.bytes, lower, length);
    uint32_t at = 0;
    while (at < balance->sample_count && sample_compare(&balance->samples[at], &bound) < 0)
        at++;
    return at;
}

/* ---- weights ---- */

struct weighed {
    const struct format_range *ranges;
    uint32_t count;
    uint32_t *first; /* owned, count + 1: where each range's samples begin */
};

static int weigh(struct balance *balance, struct weighed *weighed)
{
    weighed->ranges = owner_map_of(&balance->transfer.map, balance->index->number, &weighed->count);
    weighed->first = heap_allocate(&balance->owner->heap, (weighed->count + 1) * sizeof *weighed->first);
    if (!weighed->first)
        return pool_fail_memory(tree_session_pool(balance->session));
    for (uint32_t i = 0; i < weighed->count; i++)
        weighed->first[i] = samples_from(balance, weighed->ranges[i].lower, weighed->ranges[i].lower_length);
    weighed->first[weighed->count] = balance->sample_count;
    return 0;
}

/* An empty range counts a little, so that empty indexes are divided too. */
static uint64_t weight(const struct weighed *weighed, uint32_t at)
{
    return 16u * (uint64_t)(weighed->first[at + 1] - weighed->first[at]) + 1;
}

static uint64_t weight_of(const struct weighed *weighed, struct fabric_process process)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < weighed->count; i++)
        if (fabric_process_equal(weighed->ranges[i].owner, process))
            sum += weight(weighed, i);
    return sum;
}

/* What each process should have: of all that is owned. */
static uint64_t fair_share(const struct balance *balance, const struct weighed *weighed)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < weighed->count; i++)
        if (!owner_nobody(weighed->ranges[i].owner))
            sum += weight(weighed, i);
    return sum / (balance->other_count + 1);
}

/* ---- splitting ---- */

/* Bounds that cut the samples from `from` to `to` into pieces of about `piece`. */
static void cut(const struct balance *balance, uint32_t from, uint32_t to, uint32_t piece,
                struct owner_bound *bounds, uint32_t *count)
{
    for (uint32_t at = from + piece; at + piece / 2 < to && *count < SPLITS_MAX; at += piece) {
        const struct sample *sample = &balance->samples[at];
        if (!sample->length || sample->length > OWNER_BOUND_MAX ||
            (at > from && !sample_compare(sample, &balance->samples[at - 1])))
            continue;
        struct owner_bound *bound = &bounds[*count];
        bound->length = sample->length;
        memcpy(bound->bytes, sample->bytes, sample->length);
        if (!*count || bounds[*count - 1].length != bound->length ||
            memcmp(bounds[*count - 1].bytes, bound->bytes, bound->length))
            ++*count;
    }
}

/* An index that was never divided: into this process's ranges. */
static int divide(struct balance *balance)
{
    struct owner_bound *bounds = heap_allocate(&balance->owner->heap, SPLITS_MAX * sizeof *bounds);
    uint32_t count = 0, piece = balance->sample_count / balance->owner->options.ranges;
    if (!bounds)
        return pool_fail_memory(tree_session_pool(balance->session));
    if (piece)
        cut(balance, 0, balance->sample_count, piece, bounds, &count);
    int status = count ? owner_transfer_split(&balance->transfer, balance->index, bounds, count) : 0;
    heap_free(&balance->owner->heap, bounds);
    return status;
}

/* Ranges that are much larger than a process's usual ones, of those who have more than their share. */
static int split_large(struct balance *balance)
{
    struct weighed weighed;
    uint32_t count = 0;
    struct owner_bound *bounds = heap_allocate(&balance->owner->heap, SPLITS_MAX * sizeof *bounds);
    int status = bounds ? weigh(balance, &weighed) : pool_fail_memory(tree_session_pool(balance->session));
    if (status) {
        heap_free(&balance->owner->heap, bounds);
        return status;
    }
    const uint64_t fair = fair_share(balance, &weighed), usual = fair / balance->owner->options.ranges;
    for (uint32_t i = 0; i < weighed.count; i++)
        if (weighed.ranges[i].state == FORMAT_RANGE_SETTLED && !owner_nobody(weighed.ranges[i].owner) &&
            weight_of(&weighed, weighed.ranges[i].owner) > fair && usual >= 16 &&
            weight(&weighed, i) >= 2 * usual)
            cut(balance, weighed.first[i], weighed.first[i + 1], (uint32_t)(usual / 16), bounds, &count);
    heap_free(&balance->owner->heap, weighed.first);
    status = count ? owner_transfer_split(&balance->transfer, balance->index, bounds, count) : 0;
    heap_free(&balance->owner->heap, bounds);
    return status;
}

/* ---- taking ---- */

/* The process that has most; nobody: no other one has any. */
static struct fabric_process richest(const struct balance *balance, const struct weighed *weighed,
                                     const bool *taken, uint64_t *most)
{
    struct fabric_process found = {0};
    *most = 0;
    for (uint32_t i = 0; i < weighed->count; i++) {
        struct fabric_process process = weighed->ranges[i].owner;
        uint64_t sum = 0;
        if (owner_nobody(process) || fabric_process_equal(process, balance->owner->self))
            continue;
        for (uint32_t k = 0; k < weighed->count; k++)
            if (!taken[k] && fabric_process_equal(weighed->ranges[k].owner, process))
                sum += weight(weighed, k);
        if (sum > *most) {
            *most = sum;
            found = process;
        }
    }
    return found;
}

/* The last range of the process that is no more than `room`; UINT32_MAX: none. */
static uint32_t fitting(const struct owner *owner, const struct weighed *weighed, const bool *taken,
                        struct fabric_process process, uint64_t room)
{
    for (uint32_t i = weighed->count; i-- > 0;)
        if (!taken[i] && (!weighed->ranges[i].heir_count || owner->log) &&
            weighed->ranges[i].state == FORMAT_RANGE_SETTLED &&
            fabric_process_equal(weighed->ranges[i].owner, process) && weight(weighed, i) <= room)
            return i;
    return UINT32_MAX;
}

static int take_from_others(struct balance *balance)
{
    struct weighed weighed;
    int status = weigh(balance, &weighed);
    if (status)
        return status;
    const uint64_t fair = fair_share(balance, &weighed);
    uint64_t mine = weight_of(&weighed, balance->owner->self), most;
    uint32_t count = 0;
    bool *taken = heap_allocate_zeros(&balance->owner->heap, weighed.count + 1, sizeof *taken);
    struct format_range *moves = heap_allocate(&balance->owner->heap, (weighed.count + 1) * sizeof *moves);
    if (!taken || !moves)
        status = pool_fail_memory(tree_session_pool(balance->session));
    while (!status && mine < fair) {
        struct fabric_process from = richest(balance, &weighed, taken, &most);
        if (owner_nobody(from) || most <= fair)
            break;
        /* neither may the other come below what this process has then */
        uint32_t at = fitting(balance->owner, &weighed, taken, from, (most - mine) / 2 + 1);
        if (at == UINT32_MAX)
            break;
        taken[at] = true;
        mine += weight(&weighed, at);
        moves[count] = weighed.ranges[at];
        moves[count++].next = balance->owner->self;
    }
    if (!status)
        status = owner_transfer_move(&balance->transfer, moves, count);
    heap_free(&balance->owner->heap, moves);
    heap_free(&balance->owner->heap, taken);
    heap_free(&balance->owner->heap, weighed.first);
    return status;
}

/* ---- an index ---- */

/* Never owned, or left by its owner when no process wanted it: not shared on purpose. */
static bool is_unclaimed(const struct owner *owner, const struct format_range *range)
{
    return range->state == FORMAT_RANGE_SETTLED && owner_nobody(range->owner) &&
           (!range->epoch || range->unclaimed || owner_unkept_nobodys(owner, range));
}

/* Whether there is something to take that is nobody's; *all: nothing else. */
static bool some_unclaimed(const struct owner *owner, const struct format_range *ranges, uint32_t count,
                           bool *all)
{
    bool some = !count; /* never divided */
    *all = true;
    for (uint32_t i = 0; i < count; i++) {
        const bool unclaimed = is_unclaimed(owner, &ranges[i]);
        some = some || unclaimed;
        *all = *all && unclaimed;
    }
    return some;
}

/* `whole`: nothing of it is anyone's, so it may be divided first. */
static int take_unclaimed(struct balance *balance, bool whole)
{
    uint32_t count, kept = 0;
    const struct format_range *ranges = owner_map_of(&balance->transfer.map, balance->index->number, &count);
    int status = whole && count < balance->owner->options.ranges ? divide(balance) : 0;
    if (status)
        return status;
    const struct format_range all = {.number = balance->index->number, .state = FORMAT_RANGE_SETTLED};
    ranges = owner_map_of(&balance->transfer.map, balance->index->number, &count);
    struct format_range *moves = heap_allocate(&balance->owner->heap, (count + 1) * sizeof *moves);
    if (!moves)
        return pool_fail_memory(tree_session_pool(balance->session));
    for (uint32_t i = 0; i < count; i++)
        if (is_unclaimed(balance->owner, &ranges[i]))
            moves[kept++] = ranges[i];
    if (!count)
        moves[kept++] = all;
    for (uint32_t i = 0; i < kept; i++)
        moves[i].next = balance->owner->self;
    status = owner_transfer_move(&balance->transfer, moves, kept);
    heap_free(&balance->owner->heap, moves);
    return status;
}

/* Whether the adopted map says that this process has half of its share, without the lock. */
static bool has_enough(struct balance *balance)
{
    struct weighed weighed;
    bool enough = true, all;
    struct owner *owner = balance->owner;
    owner_turn_take(&owner->adopting);
    balance->transfer.map = owner->copy; /* borrowed while the turn lasts */
    if (!owner_map_problem(&owner->copy, balance->index->number) && !weigh(balance, &weighed)) {
        enough = !some_unclaimed(owner, weighed.ranges, weighed.count, &all) &&
                 2 * weight_of(&weighed, owner->self) >= fair_share(balance, &weighed);
        heap_free(&balance->owner->heap, weighed.first);
    }
    balance->transfer.map = (struct owner_map){0};
    owner_turn_give(&owner->adopting);
    return enough;
}

/* An index that was dropped has no entries, as one that was never divided; under the map's lock it stays what
 * it is, since a drop closes it first. */
static int dropped(struct balance *balance, bool *dropped)
{
    uint8_t key[FORMAT_KEY_MAX];
    size_t length = sizeof key;
    struct tree *tree = balance->index->tree;
    int status = tree_sample(balance->session, tree, key, &length);
    *dropped = tree_is_dropped(tree);
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

static int change(struct balance *balance, bool wait)
{
    uint32_t count;
    bool gone;
    int status = owner_transfer_begin(&balance->transfer, balance->owner, balance->session, wait);
    if (status)
        return status;
    bool problem = owner_map_problem(&balance->transfer.map, balance->index->number) != NULL, all;
    const struct format_range *ranges = owner_map_of(&balance->transfer.map, balance->index->number, &count);
    if (!problem && some_unclaimed(balance->owner, ranges, count, &all)) {
        status = dropped(balance, &gone);
        if (!status && !gone)
            status = take_unclaimed(balance, all);
    } else if (!problem && ranges[0].state != FORMAT_RANGE_CLOSED) {
        status = split_large(balance);
        if (!status)
            status = take_from_others(balance);
    }
    return owner_transfer_end(&balance->transfer, status);
}

static int balance_index(struct owner *owner, struct tree_session *session, struct owner_index *index,
                         bool idle)
{
    struct balance balance = {.owner = owner, .session = session, .index = index};
    int status = draw(&balance);
    if (!status)
        status = owner_takers(owner, session, owner->self, false, &balance.others, &balance.other_count);
    if (!status && !(idle && has_enough(&balance)))
        status = change(&balance, !idle);
    heap_free(&owner->heap, balance.samples);
    heap_free(&owner->heap, balance.others);
    /* another process changes the map: that is tried again later. An index that is gone has no ranges. */
    return (idle && status == BANYAN_EBUSY) || status == BANYAN_ENOTFOUND ? 0 : status;
}

int owner_balance_step(struct owner *owner, struct tree_session *session, bool idle)
{
    int status = owner_join(owner, session);
    /* one after the other: indexes may be attached and detached meanwhile */
    for (uint32_t number = 0; !status && number <= UINT16_MAX; number++) {
        uint32_t next = UINT32_MAX;
        spinlock_lock(&owner->lock);
        for (const struct owner_index *index = owner->indexes; index; index = index->next)
            if (index->number >= number && index->number < next)
                next = index->number;
        spinlock_unlock(&owner->lock);
        if (next == UINT32_MAX)
            break;
        number = next;
        struct owner_index *index = owner_index_get(owner, (uint16_t)number);
        if (!index)
            continue;
        status = balance_index(owner, session, index, idle);
        owner_index_put(owner, index);
    }
    return status;
}

int owner_balance(struct owner *owner, struct tree_session *session)
{
    return owner_willing(owner) ? owner_balance_step(owner, session, false) : 0;
}
