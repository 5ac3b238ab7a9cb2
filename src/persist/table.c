/* table.c - see table.h. */
#include "persist/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "disk/manifest.h"

#define MAGIC        "BNYNSAVE"
#define HEADER_BYTES 40u
#define HEADER_CHECK 36u
#define PART_BYTES   32u
#define FLOOR_BYTES  24u
#define INDEX_BYTES  4u
#define NODES_BYTES  16u
#define CHECK_BYTES  4u
#define ROOM_FIRST   16u

void persist_table_free(struct persist_table *table)
{
    free(table->parts);
    free(table->floors);
    free(table->indexes);
    *table = (struct persist_table){0};
}

static void *grow(void **array, uint32_t *count, uint32_t *room, size_t size)
{
    if (*count == *room) {
        const uint32_t more = *room ? 2 * *room : ROOM_FIRST;
        void *grown = realloc(*array, more * size);
        if (!grown)
            return NULL;
        *array = grown;
        *room = more;
    }
    void *at = (uint8_t *)*array + (size_t)(*count)++ * size;
    memset(at, 0, size);
    return at;
}

struct persist_table_part *persist_table_part_add(struct persist_table *table)
{
    void *array = table->parts;
    void *at = grow(&array, &table->part_count, &table->part_room, sizeof *table->parts);
    table->parts = array;
    return at;
}

struct persist_table_floor *persist_table_floor_add(struct persist_table *table)
{
    void *array = table->floors;
    void *at = grow(&array, &table->floor_count, &table->floor_room, sizeof *table->floors);
    table->floors = array;
    return at;
}

struct persist_table_index *persist_table_index_add(struct persist_table *table)
{
    void *array = table->indexes;
    void *at = grow(&array, &table->index_count, &table->index_room, sizeof *table->indexes);
    table->indexes = array;
    return at;
}

static int floor_order(const void *left, const void *right)
{
    const struct persist_table_floor *a = left, *b = right;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return format_key_compare((struct format_key){a->lower, a->lower_length},
                              (struct format_key){b->lower, b->lower_length});
}

void persist_table_sort(struct persist_table *table)
{
    if (table->floor_count)
        qsort(table->floors, table->floor_count, sizeof *table->floors, floor_order);
}

/* ---- writing ---- */

static size_t encoded_bytes(const struct persist_table *table)
{
    size_t bytes = HEADER_BYTES + (size_t)table->part_count * PART_BYTES + NODES_BYTES + CHECK_BYTES;
    for (uint32_t i = 0; i < table->floor_count; i++)
        bytes += FLOOR_BYTES + table->floors[i].lower_length;
    for (uint32_t i = 0; i < table->index_count; i++)
        bytes += INDEX_BYTES + strlen(table->indexes[i].name);
    return bytes;
}

static uint8_t *put(uint8_t *to, const void *bytes, size_t length)
{
    if (length)
        memcpy(to, bytes, length);
    return to + length;
}

static uint8_t *put_header(uint8_t *to, const struct persist_table *table, size_t length)
{
    const uint32_t numbers[] = {PERSIST_TABLE_VERSION, (uint32_t)length};
    const uint32_t counts[] = {table->part_count, table->floor_count, table->index_count};
    uint8_t *at = put(to, MAGIC, 8);
    at = put(at, numbers, sizeof numbers);
    at = put(at, &table->number, sizeof table->number);
    at = put(at, counts, sizeof counts);
    const uint32_t check = crc32c(0, to, HEADER_CHECK);
    return put(at, &check, sizeof check);
}

static uint8_t *put_part(uint8_t *to, const struct persist_table_part *part)
{
    const uint16_t shorts[] = {part->index, part->node, part->second, 0};
    const uint64_t longs[] = {part->bytes, part->entries};
    const uint32_t check[] = {part->check, 0};
    to = put(to, shorts, sizeof shorts);
    to = put(to, longs, sizeof longs);
    return put(to, check, sizeof check);
}

static uint8_t *put_floor(uint8_t *to, const struct persist_table_floor *floor)
{
    const uint16_t shorts[] = {floor->index, floor->lower_length, 0, 0};
    const uint64_t longs[] = {floor->epoch, floor->sequence};
    to = put(to, shorts, sizeof shorts);
    to = put(to, longs, sizeof longs);
    return put(to, floor->lower, floor->lower_length);
}

static uint8_t *put_index(uint8_t *to, const struct persist_table_index *index)
{
    const uint16_t shorts[] = {index->number, (uint16_t)strlen(index->name)};
    to = put(to, shorts, sizeof shorts);
    return put(to, index->name, strlen(index->name));
}

static uint8_t *put_nodes(uint8_t *to, const struct persist_table *table)
{
    const uint16_t shorts[] = {table->nodes, 0, 0, 0};
    to = put(to, shorts, sizeof shorts);
    return put(to, &table->took, sizeof table->took);
}

int persist_table_encode(const struct persist_table *table, uint8_t **bytes, size_t *length,
                         struct error *error)
{
    *length = encoded_bytes(table);
    *bytes = *length <= PERSIST_TABLE_MOST ? malloc(*length) : NULL;
    if (!*bytes)
        return error_set(error, BANYAN_ENOMEM, "no memory for a checkpoint's table of %zu bytes", *length);
    uint8_t *at = put_header(*bytes, table, *length);
    for (uint32_t i = 0; i < table->part_count; i++)
        at = put_part(at, &table->parts[i]);
    for (uint32_t i = 0; i < table->floor_count; i++)
        at = put_floor(at, &table->floors[i]);
    for (uint32_t i = 0; i < table->index_count; i++)
        at = put_index(at, &table->indexes[i]);
    at = put_nodes(at, table);
    const uint32_t check = crc32c(0, *bytes, *length - CHECK_BYTES);
    put(at, &check, sizeof check);
    return 0;
}

/* ---- reading ---- */

struct reader {
    const uint8_t *at, *end; /* end: of what the last checksum covers */
};

static bool take(struct reader *reader, void *to, size_t length)
{
    if ((size_t)(reader->end - reader->at) < length)
        return false;
    if (length)
        memcpy(to, reader->at, length);
    reader->at += length;
    return true;
}

/* NULL: it is one of ours. */
static const char *header_judge(const uint8_t *bytes, size_t length, uint32_t counts[3], uint32_t *version)
{
    uint32_t all, check;
    if (length < HEADER_BYTES + CHECK_BYTES || memcmp(bytes, MAGIC, 8) != 0)
        return "is no table of a checkpoint";
    memcpy(version, bytes + 8, sizeof *version);
    memcpy(&all, bytes + 12, sizeof all);
    memcpy(counts, bytes + 24, 3 * sizeof *counts);
    memcpy(&check, bytes + HEADER_CHECK, sizeof check);
    if (check != crc32c(0, bytes, HEADER_CHECK))
        return "has a damaged header";
    if (*version == 0 || *version > PERSIST_TABLE_VERSION)
        return NULL;
    memcpy(&check, bytes + length - CHECK_BYTES, sizeof check);
    if (all != length || check != crc32c(0, bytes, length - CHECK_BYTES))
        return "is damaged";
    return NULL;
}

static bool part_take(struct persist_table *table, struct reader *reader)
{
    uint16_t shorts[4];
    uint64_t longs[2];
    uint32_t check[2];
    if (!take(reader, shorts, sizeof shorts) || !take(reader, longs, sizeof longs) ||
        !take(reader, check, sizeof check))
        return false;
    struct persist_table_part *part = persist_table_part_add(table);
    if (!part)
        return false;
    *part = (struct persist_table_part){.index = shorts[0],
                                        .node = shorts[1],
                                        .second = shorts[2],
                                        .check = check[0],
                                        .bytes = longs[0],
                                        .entries = longs[1]};
    return part->node != PERSIST_TABLE_NONE && part->node != part->second &&
           (table->part_count == 1 || part[-1].index <= part->index);
}

static bool floor_take(struct persist_table *table, struct reader *reader)
{
    uint16_t shorts[4];
    uint64_t longs[2];
    if (!take(reader, shorts, sizeof shorts) || !take(reader, longs, sizeof longs) ||
        shorts[1] > FORMAT_KEY_MAX)
        return false;
    struct persist_table_floor *floor = persist_table_floor_add(table);
    if (!floor)
        return false;
    floor->index = shorts[0];
    floor->lower_length = (uint8_t)shorts[1];
    floor->epoch = longs[0];
    floor->sequence = longs[1];
    if (!take(reader, floor->lower, floor->lower_length))
        return false;
    return table->floor_count == 1 || floor_order(floor - 1, floor) < 0;
}

static bool index_take(struct persist_table *table, struct reader *reader)
{
    uint16_t shorts[2];
    if (!take(reader, shorts, sizeof shorts) || shorts[1] > PERSIST_NAME_MAX)
        return false;
    struct persist_table_index *index = persist_table_index_add(table);
    if (!index)
        return false;
    index->number = shorts[0];
    return take(reader, index->name, shorts[1]) && !memchr(index->name, 0, shorts[1]);
}

/* Bits of memory nodes that there are not say nothing. */
static bool nodes_take(struct persist_table *table, struct reader *reader)
{
    uint16_t shorts[4];
    if (!take(reader, shorts, sizeof shorts) || !take(reader, &table->took, sizeof table->took))
        return false;
    table->nodes = shorts[0];
    const uint64_t all = table->nodes < PERSIST_TABLE_NODES ? (UINT64_C(1) << table->nodes) - 1 : UINT64_MAX;
    return !(table->took & ~all);
}

static bool body_take(struct persist_table *table, struct reader *reader, const uint32_t counts[3],
                      uint32_t version)
{
    bool right = true;
    for (uint32_t i = 0; i < counts[0] && right; i++)
        right = part_take(table, reader);
    for (uint32_t i = 0; i < counts[1] && right; i++)
        right = floor_take(table, reader);
    for (uint32_t i = 0; i < counts[2] && right; i++)
        right = index_take(table, reader);
    if (right && version > 1)
        right = nodes_take(table, reader);
    return right && reader->at == reader->end;
}

int persist_table_decode(struct persist_table *table, const uint8_t *bytes, size_t length, const char *where,
                         struct error *error)
{
    uint32_t counts[3] = {0}, version = 0;
    const char *wrong = header_judge(bytes, length, counts, &version);
    *table = (struct persist_table){0};
    if (!wrong && (version == 0 || version > PERSIST_TABLE_VERSION))
        return error_set(error, BANYAN_EVERSION, "%s has version %" PRIu32 ", this program knows %u", where,
                         version, PERSIST_TABLE_VERSION);
    if (wrong)
        return error_set(error, BANYAN_ECORRUPT, "%s %s", where, wrong);
    struct reader reader = {bytes + HEADER_BYTES, bytes + length - CHECK_BYTES};
    memcpy(&table->number, bytes + 16, sizeof table->number);
    if (body_take(table, &reader, counts, version))
        return 0;
    persist_table_free(table);
    return error_set(error, BANYAN_ECORRUPT, "%s contradicts itself", where);
}

/* ---- asking ---- */

bool persist_table_left(const struct persist_table *table, uint32_t node)
{
    return node < table->nodes && node < PERSIST_TABLE_NODES && !(table->took >> node & 1);
}

bool persist_table_unaware(const struct persist_table *table, uint32_t node)
{
    return table->nodes && node >= table->nodes;
}

bool persist_table_covers(const struct persist_table *table, uint16_t index, struct format_key key,
                          uint64_t epoch, uint64_t sequence)
{
    uint32_t low = 0, high = table->floor_count; /* the first floor above the key lies in [low, high] */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const struct persist_table_floor *floor = &table->floors[middle];
        const struct format_key lower = {floor->lower, floor->lower_length};
        const bool above = floor->index != index ? floor->index > index : format_key_compare(lower, key) > 0;
        if (above)
            high = middle;
        else
            low = middle + 1;
    }
    if (!low || table->floors[low - 1].index != index)
        return false;
    const struct persist_table_floor *floor = &table->floors[low - 1];
    return epoch != floor->epoch ? epoch < floor->epoch : sequence <= floor->sequence;
}

void persist_part_name(char name[PERSIST_PART_NAME], uint64_t number, uint32_t part)
{
    if (part == PERSIST_PART_TABLE)
        snprintf(name, PERSIST_PART_NAME, MANIFEST_PREFIX "%08" PRIu64 "-table", number);
    else
        snprintf(name, PERSIST_PART_NAME, MANIFEST_PREFIX "%08" PRIu64 "-%05" PRIu32, number, part);
}
