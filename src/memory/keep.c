/* keep.c - see keep.h. */
#include "memory/keep.h"

#include <assert.h>
#include <string.h>

#include "base/atomic.h"
#include "base/crc32c.h"
#include "memory/bits.h"
#include "memory/keep_file.h"
#include "memory/memory.h"
#include "memory/runs.h"

_Static_assert(sizeof(struct keep_header) <= KEEP_WORDS_OFFSET, "the header's page has room");
_Static_assert(KEEP_WORDS_OFFSET + sizeof(struct keep_words) <= KEEP_BOARD_OFFSET, "the same");
_Static_assert(KEEP_BOARD_OFFSET + sizeof(struct keep_board) <= KEEP_LOG_OFFSET, "the same");
_Static_assert(sizeof(struct keep_member) == 64, "one cache line");
_Static_assert(sizeof(struct keep_process) == 32 && sizeof(struct keep_segment) == 32, "half of one");
_Static_assert(sizeof(struct wire_staging) % 8 == 0, "words of the next one are aligned");

/* ---- where everything lies ---- */

static uint64_t place_bytes(const struct keep_layout *layout, enum keep_place place)
{
    switch (place) {
    case KEEP_HEADER:
        return KEEP_ALIGNMENT;
    case KEEP_NODE_LIST:
        return sizeof(struct keep_entries) + KEEP_NODE_ENTRIES * sizeof(struct keep_entry);
    case KEEP_BOARD_LIST:
        return sizeof(struct keep_entries) + KEEP_BOARD_ENTRIES * sizeof(struct keep_entry);
    case KEEP_MEMBERS:
        return MEMORY_BOARD_MEMBERS_MAX * sizeof(struct keep_member);
    case KEEP_PROCESSES:
        return MEMORY_LOG_PROCESSES_MAX * sizeof(struct keep_process);
    case KEEP_SEGMENTS:
        return layout->segments * sizeof(struct keep_segment);
    case KEEP_STAGING:
        return KEEP_STAGINGS * sizeof(struct wire_staging);
    case KEEP_USED:
    case KEEP_STARTS:
    case KEEP_NODES:
        return layout->granules / 8;
    default:
        return 0; /* the pool: keep_layout */
    }
}

void keep_layout(struct keep_layout *layout, const struct keep_sizes *sizes)
{
    uint64_t chunks = (sizes->pool_bytes - MEMORY_FIRST_CHUNK(sizes->lock_bytes)) / sizes->chunk_bytes;
    *layout = (struct keep_layout){.granules = chunks * (sizes->chunk_bytes / RUNS_GRANULE),
                                   .segments = (uint32_t)(sizes->log_bytes / MEMORY_LOG_SEGMENT_LEAST)};
    uint64_t at = 0;
    for (enum keep_place place = KEEP_HEADER; place < KEEP_POOL; place++) {
        layout->at[place] = at;
        at = pages_round_up(at + place_bytes(layout, place), KEEP_ALIGNMENT);
    }
    layout->at[KEEP_POOL] = pages_round_up(at, KEEP_POOL_ALIGNMENT);
    layout->bytes = layout->at[KEEP_POOL] + pages_round_up(sizes->pool_bytes, KEEP_POOL_ALIGNMENT);
}

static struct keep_list list_make(uint8_t *base, uint64_t at, uint32_t capacity)
{
    return (struct keep_list){
        .entries = (struct keep_entries *)(void *)(base + at), .base = base, .capacity = capacity};
}

void keep_place(struct keep *keep)
{
    const uint64_t *at = keep->layout.at;
    uint8_t *base = keep->pages.start;
    keep->node = list_make(base, at[KEEP_NODE_LIST], KEEP_NODE_ENTRIES);
    keep->board_list = list_make(base, at[KEEP_BOARD_LIST], KEEP_BOARD_ENTRIES);
    keep->words = (void *)(base + KEEP_WORDS_OFFSET);
    keep->board = (void *)(base + KEEP_BOARD_OFFSET);
    keep->log = (void *)(base + KEEP_LOG_OFFSET);
    keep->members = (void *)(base + at[KEEP_MEMBERS]);
    keep->processes = (void *)(base + at[KEEP_PROCESSES]);
    keep->segments = (void *)(base + at[KEEP_SEGMENTS]);
    keep->staging = (void *)(base + at[KEEP_STAGING]);
    keep->used = (void *)(base + at[KEEP_USED]);
    keep->starts = (void *)(base + at[KEEP_STARTS]);
    keep->nodes = (void *)(base + at[KEEP_NODES]);
    keep->pool = keep->file != NULL ? base + at[KEEP_POOL] : NULL;
}

int keep_create(struct keep *keep, const struct keep_sizes *sizes, struct error *error)
{
    *keep = (struct keep){0};
    keep_layout(&keep->layout, sizes);
    int status = pages_map(&keep->pages, keep->layout.at[KEEP_POOL], error);
    if (status)
        return status;
    keep_place(keep);
    for (enum keep_checked which = 0; which < KEEP_CHECKED; which++)
        keep_check(keep, which, 0);
    return BANYAN_OK;
}

void keep_destroy(struct keep *keep)
{
    pages_unmap(&keep->pages);
    keep_file_close(keep->file);
    *keep = (struct keep){0};
}

const char *keep_name(const struct keep *keep)
{
    return keep->file != NULL ? keep_file_path(keep->file) : "memory";
}

/* ---- changes ---- */

/* D2: the entry is whole before the count has it, and the count has it before anything is changed. Only this
 * thread's end matters, so that it is enough to keep the compiler from moving stores. */
static void note(struct keep_list *list, enum keep_kind kind, uint64_t at, uint64_t value)
{
    struct keep_entries *entries = list->entries;
    uint64_t count = entries->count;
    assert(list->depth > 0 && count < list->capacity);
    entries->entries[count] = (struct keep_entry){.kind = (uint64_t)kind, .at = at, .value = value};
    atomic_order_stores();
    entries->count = count + 1;
    atomic_order_stores();
}

void keep_end(struct keep_list *list)
{
    assert(list->depth > 0);
    if (--list->depth > 0 || list->entries->count == 0)
        return;
    atomic_order_stores();
    list->entries->count = 0;
    atomic_order_stores();
}

void keep_word(struct keep_list *list, const uint64_t *word)
{
    note(list, KEEP_WORD, (uint64_t)((const uint8_t *)word - list->base), *word);
}

void keep_process(struct keep_list *list, const struct memory_board_process *process)
{
    const uint64_t *words = (const uint64_t *)(const void *)process;
    _Static_assert(sizeof *process == 2 * sizeof *words, "two words");
    keep_word(list, &words[0]);
    keep_word(list, &words[1]);
}

void keep_run(struct keep_list *list, enum keep_kind kind, uint64_t at, uint64_t length)
{
    note(list, kind, at, length);
}

/* ---- taking back ---- */

static void run_undo(struct keep *keep, const struct keep_entry *entry)
{
    uint64_t at = entry->at, length = entry->value;
    if (entry->kind == KEEP_FREE) {
        bits_unset(keep->used, at, length);
        bits_unset(keep->starts, at, length);
        bits_unset(keep->nodes, at, length);
        return;
    }
    bits_set(keep->used, at, length);
    bits_set(keep->starts, at, 1);
    if (entry->kind != KEEP_DATA)
        bits_set(keep->nodes, at, entry->kind == KEEP_LOGS ? 2 : 1);
}

static bool entry_undo(struct keep *keep, const struct keep_entry *entry)
{
    uint64_t granules = keep->layout.granules;
    if (entry->kind == KEEP_WORD) {
        uint8_t *base = keep->pages.start;
        const uint64_t *at = keep->layout.at;
        bool good =
            entry->at % 8 == 0 && ((entry->at >= KEEP_BOARD_OFFSET && entry->at < at[KEEP_NODE_LIST]) ||
                                   (entry->at >= at[KEEP_MEMBERS] && entry->at < at[KEEP_STAGING]));
        if (good)
            memcpy(base + entry->at, &entry->value, sizeof entry->value);
        return good;
    }
    if (entry->kind < KEEP_FREE || entry->kind > KEEP_LOGS || entry->at >= granules || entry->value == 0 ||
        entry->value > granules - entry->at || (entry->kind == KEEP_LOGS && entry->value < 2))
        return false;
    run_undo(keep, entry);
    return true;
}

/* The last change first. Killed in the middle it is done again: each entry says what was, not what to
 * change. */
static int list_undo(struct keep *keep, struct keep_list *list, struct error *error)
{
    struct keep_entries *entries = list->entries;
    uint64_t count = entries->count;
    bool good = count <= list->capacity;
    while (good && count-- > 0)
        good = entry_undo(keep, &entries->entries[count]);
    if (!good)
        return error_set(
            error, BANYAN_ECORRUPT,
            "pool file %s: what was unfinished when its last process ended (at byte %llu) makes no "
            "sense: the file is damaged; move it away to begin with an empty pool",
            keep_name(keep), (unsigned long long)((uint8_t *)entries - (uint8_t *)keep->pages.start));
    atomic_order_stores();
    entries->count = 0;
    atomic_order_stores();
    return BANYAN_OK;
}

int keep_undo(struct keep *keep, struct error *error)
{
    int status = list_undo(keep, &keep->node, error);
    return status ? status : list_undo(keep, &keep->board_list, error);
}

/* ---- single words ---- */

uint32_t keep_checked(const struct keep *keep, enum keep_checked which)
{
    return (uint32_t)atomic_load_relaxed(&keep->words->checked[which]);
}

void keep_check(struct keep *keep, enum keep_checked which, uint32_t value)
{
    /* relaxed: one word, and no other depends on it */
    atomic_store_relaxed(&keep->words->checked[which], (uint64_t)~value << 32 | value);
    atomic_order_stores();
}

/* ---- the format ---- */

void keep_forget(struct keep *keep)
{
    keep->words->formatted = 0;
    atomic_order_stores();
}

void keep_clear(struct keep *keep)
{
    struct keep_board *board = keep->board;
    uint64_t from = keep->layout.at[KEEP_MEMBERS], staging = keep->layout.at[KEEP_STAGING],
             used = keep->layout.at[KEEP_USED];
    pages_zero(&keep->pages, from, staging - from);
    pages_zero(&keep->pages, used, keep->layout.at[KEEP_NODES] + keep->layout.granules / 8 - used);
    /* Numbers go on: what was granted or handed out before is taken for nothing of now. */
    *board = (struct keep_board){.grants = board->grants, .entries = board->entries, .places = board->places};
    atomic_order_stores();
}

void keep_remember(struct keep *keep, uint64_t cluster_id, uint16_t number, uint16_t node_count)
{
    struct keep_words *words = keep->words;
    keep_check(keep, KEEP_USED_SINCE, 1);
    words->cluster_id = cluster_id;
    words->number = number;
    words->node_count = node_count;
    words->check = crc32c(0, &words->cluster_id, 3 * sizeof words->cluster_id);
    atomic_order_stores();
    words->formatted = KEEP_FORMATTED;
    atomic_order_stores();
}
