/*
 * test_table.c - the table of a cluster's checkpoint (persist/table.h): what it covers, and that no damage of
 * it is believed; and which checkpoint counts for all memory nodes (persist/checkpoint.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/crc32c.h"
#include "persist/checkpoint.h"
#include "persist/table.h"

static void floor_put(struct persist_table *table, uint16_t index, const char *lower, uint64_t epoch,
                      uint64_t sequence)
{
    struct persist_table_floor *floor = persist_table_floor_add(table);
    assert_non_null(floor);
    floor->index = index;
    floor->lower_length = (uint8_t)strlen(lower);
    memcpy(floor->lower, lower, strlen(lower));
    floor->epoch = epoch;
    floor->sequence = sequence;
}

static void table_make(struct persist_table *table)
{
    *table = (struct persist_table){.number = 7};
    floor_put(table, 3, "m", 5, 100);
    floor_put(table, 2, "", 9, UINT64_MAX);
    floor_put(table, 3, "", 4, 200);
    persist_table_sort(table);
    for (uint16_t i = 0; i < 3; i++) {
        struct persist_table_part *part = persist_table_part_add(table);
        assert_non_null(part);
        *part = (struct persist_table_part){.index = i ? 3 : 2,
                                            .node = i,
                                            .second = i == 1 ? 0 : PERSIST_TABLE_NONE,
                                            .check = 1000u + i,
                                            .bytes = 10u * i,
                                            .entries = i};
    }
    struct persist_table_index *index = persist_table_index_add(table);
    assert_non_null(index);
    index->number = 3;
    strcpy(index->name, "orders");
    table->nodes = 3;
    table->took = 1 << 0 | 1 << 2;
}

static bool covers(const struct persist_table *table, uint16_t index, const char *key, uint64_t epoch,
                   uint64_t sequence)
{
    return persist_table_covers(
        table, index, (struct format_key){(const uint8_t *)key, (uint32_t)strlen(key)}, epoch, sequence);
}

/* By the range in which the key lies: its epoch first, then the sequence. */
static void test_covers(void **state)
{
    struct persist_table table;
    (void)state;
    table_make(&table);
    assert_true(covers(&table, 3, "a", 4, 200));
    assert_false(covers(&table, 3, "a", 4, 201));
    assert_true(covers(&table, 3, "a", 3, 5000));
    assert_false(covers(&table, 3, "a", 5, 1));
    assert_true(covers(&table, 3, "lz", 4, 200));
    assert_true(covers(&table, 3, "m", 5, 100));
    assert_false(covers(&table, 3, "m", 5, 101));
    assert_true(covers(&table, 3, "z", 4, 5000));
    assert_true(covers(&table, 2, "", 9, UINT64_MAX - 1));
    assert_false(covers(&table, 2, "x", 10, 1));
    assert_false(covers(&table, 1, "a", 1, 1)); /* an index that it does not know */
    assert_false(covers(&table, 4, "a", 1, 1));
    persist_table_free(&table);
}

static void test_bytes(void **state)
{
    struct persist_table table, read;
    struct error error = {0};
    uint8_t *bytes;
    size_t length;
    (void)state;
    table_make(&table);
    assert_int_equal(persist_table_encode(&table, &bytes, &length, &error), 0);
    assert_int_equal(persist_table_decode(&read, bytes, length, "it", &error), 0);
    assert_int_equal(read.number, 7);
    assert_int_equal(read.part_count, 3);
    assert_memory_equal(read.parts, table.parts, 3 * sizeof *read.parts);
    assert_int_equal(read.floor_count, 3);
    assert_memory_equal(read.floors, table.floors, 3 * sizeof *read.floors);
    assert_int_equal(read.index_count, 1);
    assert_string_equal(read.indexes[0].name, "orders");
    assert_int_equal(read.nodes, 3);
    assert_int_equal(read.took, table.took);
    persist_table_free(&read);
    for (size_t at = 0; at < length; at++) { /* each byte */
        bytes[at] ^= 0x10;
        int status = persist_table_decode(&read, bytes, length, "it", &error);
        assert_true(status == BANYAN_ECORRUPT || status == BANYAN_EVERSION);
        bytes[at] ^= 0x10;
    }
    for (size_t short_by = 1; short_by <= length; short_by++)
        assert_int_equal(persist_table_decode(&read, bytes, length - short_by, "it", &error),
                         BANYAN_ECORRUPT);
    free(bytes);
    persist_table_free(&table);
}

/* Sums that are right make no table of what contradicts itself. */
static void test_contradictions(void **state)
{
    struct persist_table table, read;
    struct error error = {0};
    uint8_t *bytes;
    size_t length;
    (void)state;
    for (unsigned which = 0; which < 5; which++) {
        table_make(&table);
        if (which == 0)
            table.parts[0].index = 4; /* parts do not ascend */
        else if (which == 1)
            table.parts[1].second = table.parts[1].node;
        else if (which == 2)
            table.floors[1] = table.floors[2];
        else if (which == 3)
            table.parts[2].node = PERSIST_TABLE_NONE;
        else
            table.took |= 1 << 3; /* one that there is not */
        assert_int_equal(persist_table_encode(&table, &bytes, &length, &error), 0);
        assert_int_equal(persist_table_decode(&read, bytes, length, "it", &error), BANYAN_ECORRUPT);
        assert_non_null(strstr(error.text, "contradicts itself"));
        free(bytes);
        persist_table_free(&table);
    }
}

/* What counts, and whether all of these have it. */
static int choose(struct persist_table *table, struct persist_checkpoint_claim a,
                  struct persist_checkpoint_claim b)
{
    const struct persist_checkpoint_claim claims[] = {a, b};
    struct error error = {0};
    table->number = persist_checkpoint_choose(claims, 2);
    return persist_checkpoint_judge(table, claims, 2, &error);
}

/* P13: one that counts anywhere counts for all, which have prepared it at least; one that was prepared alone
 * never does. */
static void test_choose(void **state)
{
    struct persist_table table = {0};
    (void)state;
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 0, 0, 0},
                            (struct persist_checkpoint_claim){true, 1, 0, 0}),
                     0);
    assert_int_equal(table.number, 0);
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 0, 2, 3},
                            (struct persist_checkpoint_claim){true, 1, 2, 3}),
                     0);
    assert_int_equal(table.number, 2);
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 0, 2, 3},
                            (struct persist_checkpoint_claim){true, 1, 3, 0}),
                     0);
    assert_int_equal(table.number, 3);
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 0, 2, 0},
                            (struct persist_checkpoint_claim){true, 1, 3, 0}),
                     BANYAN_ECORRUPT);
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){false, 0, 0, 0},
                            (struct persist_checkpoint_claim){true, 1, 3, 0}),
                     0);
    assert_int_equal(table.number, 3);
}

/* One that had left before the checkpoint has an older one, or none; one that took part does not pass
 * for it. */
static void test_left(void **state)
{
    struct persist_table table = {.nodes = 3, .took = 1 << 0 | 1 << 2};
    (void)state;
    assert_false(persist_table_left(&table, 0));
    assert_true(persist_table_left(&table, 1));
    assert_false(persist_table_left(&table, 2));
    assert_false(persist_table_left(&table, 3));
    assert_false(persist_table_left(&table, 200));
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 1, 2, 0},
                            (struct persist_checkpoint_claim){true, 2, 3, 0}),
                     0);
    assert_int_equal(table.number, 3);
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 0, 2, 0},
                            (struct persist_checkpoint_claim){true, 2, 3, 0}),
                     BANYAN_ECORRUPT);
}

/* One of which the checkpoint's maker had not heard, since it joined later, may have none. */
static void test_joined(void **state)
{
    struct persist_table table = {.nodes = 3, .took = 1 << 0 | 1 << 2};
    (void)state;
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 3, 0, 0},
                            (struct persist_checkpoint_claim){true, 2, 3, 0}),
                     0);
    assert_int_equal(table.number, 3);
    table.nodes = 4; /* it was heard of, and took part */
    table.took |= 1 << 3;
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 3, 0, 0},
                            (struct persist_checkpoint_claim){true, 2, 3, 0}),
                     BANYAN_ECORRUPT);
    table.nodes = 0; /* of an earlier release */
    assert_int_equal(choose(&table, (struct persist_checkpoint_claim){true, 3, 0, 0},
                            (struct persist_checkpoint_claim){true, 2, 3, 0}),
                     BANYAN_ECORRUPT);
}

/* What its maker has left counts where all have prepared it, and where one has committed it: of the others
 * one may have joined since. */
static void test_counts(void **state)
{
    struct persist_checkpoint_claim claims[] = {{true, 0, 2, 3}, {true, 1, 2, 3}, {true, 2, 0, 0}};
    (void)state;
    assert_true(persist_checkpoint_counts(claims, 2, 3));
    assert_false(persist_checkpoint_counts(claims, 3, 3));
    claims[0] = (struct persist_checkpoint_claim){true, 0, 3, 0};
    assert_true(persist_checkpoint_counts(claims, 2, 3));
    assert_true(persist_checkpoint_counts(claims, 3, 3));
}

/* A table of an earlier release, which does not say who took part: all did. */
static void test_earlier_version(void **state)
{
    struct persist_table table, read;
    struct error error = {0};
    uint8_t *bytes;
    size_t length;
    (void)state;
    table_make(&table);
    table.nodes = 3;
    assert_int_equal(persist_table_encode(&table, &bytes, &length, &error), 0);
    length -= 16;
    const uint32_t version = 1, all = (uint32_t)length;
    memcpy(bytes + 8, &version, sizeof version);
    memcpy(bytes + 12, &all, sizeof all);
    uint32_t check = crc32c(0, bytes, 36);
    memcpy(bytes + 36, &check, sizeof check);
    check = crc32c(0, bytes, length - 4);
    memcpy(bytes + length - 4, &check, sizeof check);
    assert_int_equal(persist_table_decode(&read, bytes, length, "it", &error), 0);
    assert_int_equal(read.part_count, 3);
    for (uint32_t node = 0; node < 4; node++)
        assert_false(persist_table_left(&read, node));
    persist_table_free(&read);
    persist_table_free(&table);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_covers),         cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_contradictions), cmocka_unit_test(test_choose),
        cmocka_unit_test(test_left),           cmocka_unit_test(test_joined),
        cmocka_unit_test(test_counts),         cmocka_unit_test(test_earlier_version)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
