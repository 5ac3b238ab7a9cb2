/*
 * fuzz_table.c - the table of a cluster's checkpoint (persist/table.h): bytes that are sound, changed, or
 * noise, with checksums that are wrong or made right.
 *
 * Oracle: a table that is taken is written again and read as the same, and what it covers follows from a
 * search through all of its floors.
 */
#include "base/crc32c.h"
#include "fuzz/fuzz.h"
#include "persist/table.h"

#define ROOM 4096u

static void mend(uint8_t *bytes, size_t length)
{
    const uint32_t all = (uint32_t)length;
    if (length < 44)
        return;
    memcpy(bytes + 12, &all, 4);
    uint32_t check = crc32c(0, bytes, 36);
    memcpy(bytes + 36, &check, 4);
    check = crc32c(0, bytes, length - 4);
    memcpy(bytes + length - 4, &check, 4);
}

static void sound_table(struct fuzz_input *input, struct persist_table *table)
{
    const unsigned parts = fuzz_byte(input) % 4, floors = fuzz_byte(input) % 5,
                   indexes = fuzz_byte(input) % 3;
    *table = (struct persist_table){.number = fuzz_byte(input)};
    for (unsigned i = 0; i < parts; i++) {
        struct persist_table_part *part = persist_table_part_add(table);
        fuzz_must(part, "no memory");
        *part = (struct persist_table_part){
            .index = (uint16_t)i, .node = fuzz_byte(input), .second = PERSIST_TABLE_NONE};
    }
    for (unsigned i = 0; i < floors; i++) {
        struct persist_table_floor *floor = persist_table_floor_add(table);
        fuzz_must(floor, "no memory");
        floor->index = fuzz_byte(input) % 3;
        floor->lower_length = fuzz_byte(input) % 4;
        fuzz_take(input, floor->lower, floor->lower_length);
        floor->epoch = fuzz_byte(input) % 8;
        floor->sequence = fuzz_byte(input);
    }
    for (unsigned i = 0; i < indexes; i++) {
        struct persist_table_index *index = persist_table_index_add(table);
        fuzz_must(index, "no memory");
        index->number = (uint16_t)i;
        memset(index->name, 'a' + (int)i, 1 + fuzz_byte(input) % 8);
    }
    table->nodes = fuzz_byte(input) % 80;
    for (uint32_t i = 0; i < table->nodes && i < PERSIST_TABLE_NODES; i++)
        table->took |= (uint64_t)(fuzz_byte(input) & 1) << i;
    persist_table_sort(table);
}

static size_t sound_bytes(struct fuzz_input *input, uint8_t bytes[ROOM])
{
    struct persist_table table;
    struct error error = {0};
    uint8_t *encoded = NULL;
    size_t length = 0;
    sound_table(input, &table);
    fuzz_must(!persist_table_encode(&table, &encoded, &length, &error), "a table is not written: %s",
              error.text);
    fuzz_must(length <= ROOM, "a table of %zu bytes", length);
    memcpy(bytes, encoded, length);
    free(encoded);
    persist_table_free(&table);
    return length;
}

/* The last floor that is not above the key, of its index. */
static bool covers(const struct persist_table *table, uint16_t index, struct format_key key, uint64_t epoch,
                   uint64_t sequence)
{
    const struct persist_table_floor *best = NULL;
    for (uint32_t i = 0; i < table->floor_count; i++) {
        const struct persist_table_floor *floor = &table->floors[i];
        const struct format_key lower = {floor->lower, floor->lower_length};
        if (floor->index == index && format_key_compare(lower, key) <= 0)
            best = floor;
    }
    return best && (epoch < best->epoch || (epoch == best->epoch && sequence <= best->sequence));
}

static void check_taken(struct fuzz_input *input, const struct persist_table *table, const uint8_t *bytes,
                        size_t length)
{
    struct error error = {0};
    uint8_t *again = NULL, key[4];
    size_t again_length = 0;
    fuzz_must(!persist_table_encode(table, &again, &again_length, &error), "it is not written again: %s",
              error.text);
    /* Fields that say nothing are zeros then. One of version 1 gets what that lacks. */
    fuzz_must(again_length == length + (bytes[8] == 1 ? 16 : 0), "%zu bytes became %zu", length,
              again_length);
    free(again);
    for (uint32_t node = table->nodes; node < 100; node++)
        fuzz_must(!persist_table_left(table, node), "memory node %u, which there is not, has left",
                  (unsigned)node);
    for (unsigned i = 0; i < 16; i++) {
        const uint8_t key_length = fuzz_byte(input) % 5;
        fuzz_take(input, key, key_length);
        const struct format_key asked = {key, key_length};
        const uint16_t index = fuzz_byte(input) % 4;
        const uint64_t epoch = fuzz_byte(input) % 9, sequence = fuzz_byte(input);
        fuzz_must(persist_table_covers(table, index, asked, epoch, sequence) ==
                      covers(table, index, asked, epoch, sequence),
                  "a search among %u floors finds another one", (unsigned)table->floor_count);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {.bytes = data, .length = size};
    struct persist_table table;
    struct error error = {0};
    uint8_t bytes[ROOM];
    size_t length;
    const uint8_t how = fuzz_byte(&input);
    if (how & 1) {
        length = sound_bytes(&input, bytes);
        for (unsigned changes = how >> 4; changes; changes--)
            bytes[(fuzz_byte(&input) * 256u + fuzz_byte(&input)) % length] ^= fuzz_byte(&input);
    } else {
        length = input.length < ROOM ? input.length : ROOM;
        fuzz_take(&input, bytes, length);
    }
    if (how & 2)
        mend(bytes, length);
    int status = persist_table_decode(&table, bytes, length, "the table", &error);
    fuzz_must(!status || error.text[0], "a refusal without a sentence");
    fuzz_must(!status || !table.floors, "a refused table keeps memory");
    if (!status)
        check_taken(&input, &table, bytes, length);
    persist_table_free(&table);
    return 0;
}
