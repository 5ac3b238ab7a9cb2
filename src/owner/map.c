/* map.c - see map.h. */
#include "owner/map.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "owner/board.h"
#include "owner/state.h"

#define FETCHES 6u /* before what contradicts itself is believed to */

void owner_map_free(struct owner_map *map)
{
    heap_free(map->heap, map->ranges);
    heap_free(map->heap, map->problems);
    *map = (struct owner_map){.heap = map->heap};
}

/* ---- the array ---- */

static int reserve(struct owner_map *map)
{
    if (map->count < map->capacity)
        return 0;
    uint32_t capacity = map->capacity ? map->capacity * 2 : 32;
    struct format_range *ranges = heap_resize(map->heap, map->ranges, capacity * sizeof *ranges);
    if (!ranges)
        return BANYAN_ENOMEM;
    map->ranges = ranges;
    map->capacity = capacity;
    return 0;
}

/* The first range that does not stand before this one. */
static uint32_t lower_bound(const struct owner_map *map, const struct format_range *range)
{
    uint32_t low = 0, high = map->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (format_range_compare(&map->ranges[middle], range) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int owner_map_put(struct owner_map *map, const struct format_range *range)
{
    uint32_t at = lower_bound(map, range);
    if (at < map->count && !format_range_compare(&map->ranges[at], range)) {
        map->ranges[at] = *range;
        return 0;
    }
    const struct format_range copy = *range; /* it may be one of those that move */
    if (reserve(map))
        return BANYAN_ENOMEM;
    memmove(&map->ranges[at + 1], &map->ranges[at], (map->count - at) * sizeof map->ranges[0]);
    map->ranges[at] = copy;
    map->count++;
    return 0;
}

void owner_map_remove(struct owner_map *map, uint32_t at)
{
    assert(at < map->count);
    map->count--;
    memmove(&map->ranges[at], &map->ranges[at + 1], (map->count - at) * sizeof map->ranges[0]);
}

/* ---- asking ---- */

const struct format_range *owner_map_of(const struct owner_map *map, uint16_t number, uint32_t *count)
{
    const struct format_range first = {.number = number};
    uint32_t at = lower_bound(map, &first), end = at;
    while (end < map->count && map->ranges[end].number == number)
        end++;
    *count = end - at;
    return end > at ? &map->ranges[at] : NULL;
}

uint32_t owner_map_find(const struct owner_map *map, uint16_t number, const void *key, size_t key_length)
{
    struct format_range range = {.number = number};
    /* Bounds are at most so long: a longer key lies behind the bound that its beginning is. */
    range.lower_length = (uint8_t)(key_length < FORMAT_RANGE_LOWER_MAX ? key_length : FORMAT_RANGE_LOWER_MAX);
    if (range.lower_length)
        memcpy(range.lower, key, range.lower_length);
    uint32_t at = lower_bound(map, &range);
    if (at == map->count || format_range_compare(&map->ranges[at], &range))
        at--; /* wraps where there is none before */
    return at < map->count && map->ranges[at].number == number ? at : UINT32_MAX;
}

const struct owner_problem *owner_map_problem(const struct owner_map *map, uint16_t number)
{
    for (uint32_t i = 0; i < map->problem_count; i++)
        if (map->problems[i].number == number)
            return &map->problems[i];
    return NULL;
}

const struct format_range *owner_map_after(const struct owner_map *map, uint32_t at)
{
    return at + 1 < map->count && map->ranges[at + 1].number == map->ranges[at].number ? &map->ranges[at + 1]
                                                                                       : NULL;
}

void owner_map_row(const struct format_range *range, struct fabric_process self, struct tree_rights_row *row)
{
    const bool moving = range->state == FORMAT_RANGE_MOVING;
    *row = (struct tree_rights_row){
        .lower = range->lower, .lower_length = range->lower_length, .epoch = range->epoch};
    if (owner_nobody(range->owner)) {
        row->right = moving ? TREE_MOVING : TREE_SHARED;
    } else if (fabric_process_equal(range->owner, self)) {
        row->right = moving || range->heir_count ? TREE_MOVING : TREE_OWNED;
        row->logged = row->right == TREE_OWNED && range->logged;
        row->drains = moving && range->logged && !range->inherited;
    } else if (moving && range->logged_next && !format_range_unmerged(range)) {
        /* The next owner's changes will not be in the pool at once: whoever reads it must have stopped. */
        row->right = TREE_MOVING;
    } else {
        /* While it moves too: where its owner wrote through one-sided reads go on, and all that the owner is
         * asked is refused by it until the range is settled. */
        row->right = TREE_OTHERS;
        row->owner = range->owner;
        row->logged = format_range_unmerged(range);
    }
}

/* ---- judging ---- */

char *owner_bound_text(const uint8_t *lower, size_t length, char text[OWNER_BOUND_TEXT])
{
    size_t shown = length < 20 ? length : 20, at = 0;
    bool plain = true;
    for (size_t i = 0; i < shown; i++)
        plain = plain && lower[i] > ' ' && lower[i] < 127 && lower[i] != '\'';
    if (!length)
        snprintf(text, OWNER_BOUND_TEXT, "the least key");
    else if (plain)
        snprintf(text, OWNER_BOUND_TEXT, "'%.*s%s'", (int)shown, (const char *)lower,
                 shown < length ? "..." : "");
    else {
        at = (size_t)snprintf(text, OWNER_BOUND_TEXT, "0x");
        for (size_t i = 0; i < shown; i++)
            at += (size_t)snprintf(text + at, OWNER_BOUND_TEXT - at, "%02x", lower[i]);
        if (shown < length)
            snprintf(text + at, OWNER_BOUND_TEXT - at, "...");
    }
    return text;
}

static int problem_add(struct owner_map *map, const struct format_range *range, const char *what)
{
    char bound[OWNER_BOUND_TEXT];
    if (owner_map_problem(map, range->number))
        return 0; /* the first one tells enough */
    if (map->problem_count == map->problem_capacity) {
        uint32_t capacity = map->problem_capacity ? map->problem_capacity * 2 : 4;
        struct owner_problem *problems = heap_resize(map->heap, map->problems, capacity * sizeof *problems);
        if (!problems)
            return BANYAN_ENOMEM;
        map->problems = problems;
        map->problem_capacity = capacity;
    }
    struct owner_problem *problem = &map->problems[map->problem_count++];
    problem->number = range->number;
    snprintf(problem->text, sizeof problem->text, "the map's entry for the range from %s %s",
             owner_bound_text(range->lower, range->lower_length, bound), what);
    return 0;
}

int owner_map_judge(struct owner_map *map)
{
    int status = 0;
    for (uint32_t i = 0; i < map->count && !status; i++) {
        const struct format_range *left =
            i && map->ranges[i - 1].number == map->ranges[i].number ? &map->ranges[i - 1] : NULL;
        const char *what = format_range_follows(left, &map->ranges[i]);
        if (what)
            status = problem_add(map, &map->ranges[i], what);
    }
    return status;
}

/* ---- fetching ---- */

struct fetch {
    struct owner_map *map;
    int status;
};

static bool fetch_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct fetch *fetch = context;
    struct owner_map *map = fetch->map;
    struct format_range range;
    const char *what = format_range_decode(key, key_length, value, length, &range);
    if (what)
        fetch->status = problem_add(map, &range, what);
    if (!fetch->status)
        fetch->status = reserve(map);
    if (!fetch->status && !what)
        map->ranges[map->count++] = range; /* a scan delivers ascending keys */
    return !fetch->status;
}

static int fetch_once(struct owner *owner, struct tree_session *session, struct owner_map *map)
{
    struct memory_board_reply board;
    struct fetch fetch = {.map = map};
    const struct tree_range all = {0};
    owner_map_free(map);
    map->incarnation = fabric_incarnation(owner->fabric);
    int status = owner_board_look(session, &board); /* the version first, then the entries */
    if (status)
        return status;
    map->version = board.version;
    status = tree_scan(session, owner->map, &all, fetch_visit, &fetch);
    if (!status)
        status = fetch.status;
    if (!status)
        status = owner_map_judge(map);
    return status == BANYAN_ENOMEM ? pool_fail_memory(tree_session_pool(session)) : status;
}

int owner_map_fetch(struct owner *owner, struct tree_session *session, struct owner_map *map)
{
    *map = (struct owner_map){.heap = &owner->heap};
    for (unsigned tries = 1;; tries++) {
        int status = fetch_once(owner, session, map);
        if (status)
            owner_map_free(map);
        if (status || !map->problem_count || tries == FETCHES)
            return status;
        task_sleep(tries * MILLISECOND / 2);
    }
}

/* ---- the map's index ---- */

bool owner_is_map(const char *index_name)
{
    return !strcmp(index_name, OWNER_MAP_NAME);
}

int owner_map_open(struct tree_session *session, struct tree **tree)
{
    static const struct format_geometry geometry = {.key_kind = FORMAT_KEY_VARIABLE,
                                                    .value_bytes = FORMAT_RANGE_VALUE_BYTES};
    int status;
    do { /* two processes may be about to create it */
        status = tree_open(session, OWNER_MAP_NAME, tree);
        if (status == BANYAN_ENOTFOUND)
            status = tree_create(session, OWNER_MAP_NAME, &geometry, tree);
    } while (status == BANYAN_EEXIST);
    if (status)
        return status;
    const struct format_geometry *found = tree_geometry(*tree);
    if (found->key_kind == FORMAT_KEY_VARIABLE && found->value_bytes == FORMAT_RANGE_VALUE_BYTES &&
        !found->value_variable && found->content == FORMAT_CONTENT_PLAIN)
        status = tree_rights_exempt(*tree, &tree_session_pool(session)->error);
    else
        status = pool_fail(tree_session_pool(session), BANYAN_EVERSION,
                           "the index '%s' is not the map of ranges that this program keeps: a user's, or of "
                           "another version",
                           OWNER_MAP_NAME);
    if (status) {
        tree_close(*tree);
        *tree = NULL;
    }
    return status;
}
