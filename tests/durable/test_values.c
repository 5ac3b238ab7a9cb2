/*
 * test_values.c - records of whole values (persist/format.h, K3): what is encoded is decoded, nothing that is
 * damaged or cut passes for an entry, and a journal of such records gives of each key the last one, whatever
 * of a value's parts is left over before it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/log.h"
#include "disk/disk_simulated.h"
#include "format/record.h"
#include "persist/format.h"
#include "persist/replay.h"

#define PART JOURNAL_LENGTH_MAX

static uint8_t payload[PART], pattern[3 * PART];

/* ---- one record ---- */

static uint32_t encode(uint8_t *to, const struct persist_value *value)
{
    persist_value_encode(value, to);
    return persist_value_bytes(value);
}

static void same(const struct persist_value *left, const struct persist_value *right)
{
    assert_int_equal(left->key.length, right->key.length);
    assert_memory_equal(left->key.bytes, right->key.bytes, left->key.length);
    assert_int_equal(left->index, right->index);
    assert_int_equal(left->deleted, right->deleted);
    assert_int_equal(left->apart, right->apart);
    assert_int_equal(left->length, right->length);
    assert_true(left->expires == right->expires);
    assert_int_equal(left->bytes != NULL, right->bytes != NULL);
    if (left->bytes)
        assert_memory_equal(left->bytes, right->bytes, left->length);
}

static void test_entries(void **state)
{
    const struct persist_value values[] = {
        {.key = {pattern, 1}, .bytes = pattern, .length = 0},
        {.key = {pattern + 1, 255}, .index = 65535, .deleted = true},
        {.key = {pattern, 3}, .index = 7, .bytes = pattern, .length = 17, .expires = UINT64_MAX},
        {.key = {pattern, 9}, .apart = true, .length = PERSIST_VALUE_SHORT + 1, .expires = 1},
        {.key = {pattern, 255}, .bytes = pattern, .length = PERSIST_VALUE_SHORT},
        {.key = {pattern, 4}, .apart = true, .length = UINT32_MAX},
    };
    const size_t count = sizeof values / sizeof *values;
    struct persist_value value;
    uint32_t length = 0, at = 0;
    (void)state;
    for (size_t i = 0; i < count; i++)
        length += encode(payload + length, &values[i]);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(persist_value_next(payload, length, &at, &value), 1);
        same(&value, &values[i]);
    }
    assert_int_equal(persist_value_next(payload, length, &at, &value), 0);
    assert_int_equal(at, length);
}

/* In memory of its own length, so that a sanitizer sees what is read behind it. */
static int next(const uint8_t *bytes, uint32_t length, struct persist_value *value)
{
    uint8_t *copy = malloc(length ? length : 1);
    uint32_t at = 0;
    assert_non_null(copy);
    memcpy(copy, bytes, length);
    const int found = persist_value_next(copy, length, &at, value);
    if (found == 1) {
        assert_true(at <= length && at == persist_value_bytes(value));
        assert_true(value->key.bytes + value->key.length <= copy + length);
        assert_true(!value->bytes || value->bytes + value->length <= copy + length);
        assert_false(value->deleted && value->apart);
    }
    free(copy);
    return found;
}

static void test_damaged(void **state)
{
    const struct persist_value short_one = {
        .key = {pattern, 5}, .index = 3, .bytes = pattern, .length = 40, .expires = 9};
    const struct persist_value gone = {.key = {pattern, 5}, .deleted = true};
    const struct persist_value apart = {.key = {pattern, 5}, .apart = true, .length = 100000};
    const uint32_t too_long = PERSIST_VALUE_SHORT + 1, some = 1, enough = PERSIST_VALUE_SHORT;
    struct persist_value value;
    (void)state;
    const uint32_t length = encode(payload, &short_one);
    for (uint32_t cut = 1; cut < length; cut++) /* each prefix */
        assert_int_equal(next(payload, cut, &value), BANYAN_ECORRUPT);
    for (unsigned flags = 1; flags < 256;
         flags++) { /* both, or none that is known; or a value that has bytes */
        payload[0] = (uint8_t)flags;
        assert_int_equal(next(payload, length, &value), BANYAN_ECORRUPT);
    }
    encode(payload, &short_one);
    payload[1] = 255; /* a key that ends behind the record */
    assert_int_equal(next(payload, length, &value), BANYAN_ECORRUPT);
    encode(payload, &short_one);
    for (uint32_t bit = 0; bit < 32; bit++) { /* longer than what is there, or than a short one may be */
        const uint32_t more = short_one.length | UINT32_C(1) << bit;
        memcpy(payload + 4, &more, 4);
        if (more != short_one.length)
            assert_int_equal(next(payload, length, &value), BANYAN_ECORRUPT);
    }
    memcpy(payload + 4, &too_long, 4); /* all of it is there, and it is too long all the same */
    assert_int_equal(next(payload, PART, &value), BANYAN_ECORRUPT);
    encode(payload, &gone);
    memcpy(payload + 4, &some, 4); /* deleted, with a value */
    assert_int_equal(next(payload, PERSIST_VALUE_HEADER + 5 + 1, &value), BANYAN_ECORRUPT);
    encode(payload, &apart);
    memcpy(payload + 4, &enough, 4); /* apart, and so short that it would stand here */
    assert_int_equal(next(payload, PERSIST_VALUE_HEADER + 5, &value), BANYAN_ECORRUPT);
}

/* ---- records in a journal ---- */

struct fixture {
    struct disk *disk;
    struct journal *journal;
};

static void append(struct fixture *fixture, enum persist_kind kind, const void *bytes, uint32_t length)
{
    struct error error = {0};
    uint64_t position, safe;
    if (!journal_has_room(fixture->journal, length))
        assert_int_equal(journal_sync(fixture->journal, &safe, &error), 0);
    if (journal_append(fixture->journal, (uint8_t)kind, bytes, length, &position, &error))
        fail_msg("%s", error.text);
}

static void begin(struct fixture *fixture)
{
    const struct journal_options options = {.cluster = 1, .seed = 2};
    struct journal_reader reader = {.context = NULL};
    struct error error = {0};
    log_set_level(LOG_ERROR + 1);
    for (size_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i * 7 + i / 251);
    fixture->disk = disk_simulated_create(&(struct disk_simulated_options){.seed = 1});
    assert_non_null(fixture->disk);
    assert_int_equal(journal_open(&fixture->journal, fixture->disk, &options, &reader, &error), 0);
}

/* `length` bytes of the pattern, from one of its beginnings on, in parts of that many. */
static void parts(struct fixture *fixture, size_t from, uint32_t length, uint32_t part)
{
    for (uint32_t at = 0; at < length; at += part)
        append(fixture, PERSIST_BYTES, pattern + from + at, length - at < part ? length - at : part);
}

static void values(struct fixture *fixture, const struct persist_value *first,
                   const struct persist_value *second)
{
    uint32_t length = encode(payload, first);
    if (second)
        length += encode(payload + length, second);
    append(fixture, PERSIST_VALUES, payload, length);
}

struct expected {
    const char *name; /* NULL: no more come */
    size_t from;
    uint32_t length;
};

static int expect(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    const struct expected **expected = context, *now = (*expected)++;
    (void)index, (void)error;
    assert_non_null(now->name);
    assert_int_equal(entry->key_length, strlen(now->name));
    assert_memory_equal(entry->key, now->name, entry->key_length);
    assert_int_equal(entry->value_length, now->length);
    assert_memory_equal(entry->value, pattern + now->from, now->length);
    return 0;
}

/* What the next life reads. */
static int ends(struct fixture *fixture, const struct expected *expected, struct error *error)
{
    const struct journal_options options = {.cluster = 1, .seed = 3};
    struct persist_replay *replay;
    uint64_t safe;
    assert_int_equal(journal_sync(fixture->journal, &safe, error), 0);
    journal_close(fixture->journal);
    fixture->journal = NULL;
    assert_int_equal(persist_replay_create(&replay, &fixture->disk, 1, error), 0);
    struct journal_reader reader = {.visit = persist_replay_record, .context = replay};
    int status = journal_open(&fixture->journal, fixture->disk, &options, &reader, error);
    if (!status)
        status = persist_replay_all(replay, expect, &expected, error);
    if (!status)
        assert_null(expected->name);
    persist_replay_destroy(replay);
    journal_close(fixture->journal);
    disk_close(fixture->disk);
    return status;
}

#define KEY(text)                                                                                            \
    {                                                                                                        \
        (const uint8_t *)(text), sizeof(text) - 1                                                            \
    }

static void test_last_counts(void **state)
{
    const struct persist_value a = {.key = KEY("a"), .bytes = pattern, .length = 300};
    const struct persist_value a_short = {.key = KEY("a"), .bytes = pattern + 5, .length = 3};
    const struct persist_value b = {.key = KEY("b"), .bytes = pattern, .length = 10};
    const struct persist_value b_gone = {.key = KEY("b"), .deleted = true};
    const struct persist_value c = {.key = KEY("c"), .apart = true, .length = 2 * PART};
    const struct persist_value c_short = {.key = KEY("c"), .bytes = pattern + 9, .length = 256};
    const struct persist_value d = {.key = KEY("d"), .apart = true, .length = 70000};
    const struct expected expected[] = {{"a", 5, 3}, {"c", 9, 256}, {"d", 3, 70000}, {NULL, 0, 0}};
    struct fixture fixture;
    struct error error = {0};
    (void)state;
    begin(&fixture);
    values(&fixture, &b, &a);
    parts(&fixture, 1, c.length, PART);
    values(&fixture, &c, &b_gone);
    values(&fixture, &a_short, &c_short);
    parts(&fixture, 3, d.length, 9999);
    values(&fixture, &d, NULL);
    assert_int_equal(ends(&fixture, expected, &error), 0);
}

/* Parts whose entry was never written: before those of another value, whole, in part, more than once. */
static void test_parts_left_over(void **state)
{
    const struct persist_value a = {.key = KEY("a"), .apart = true, .length = 70000};
    const struct persist_value b = {.key = KEY("b"), .bytes = pattern, .length = 2};
    const struct expected expected[] = {{"a", 3, 70000}, {"b", 0, 2}, {NULL, 0, 0}};
    struct fixture fixture;
    struct error error = {0};
    (void)state;
    begin(&fixture);
    parts(&fixture, 11, PART, PART);
    values(&fixture, &b, NULL);
    parts(&fixture, 1, PART, PART); /* of an entry that was cut off */
    parts(&fixture, 2, 70000, PART);
    parts(&fixture, 3, a.length, PART);
    values(&fixture, &a, NULL);
    assert_int_equal(ends(&fixture, expected, &error), 0);
}

/* So many of them that a value of any length has its parts among the last. */
static void test_parts_piled_up(void **state)
{
    const struct persist_value a = {.key = KEY("a"), .apart = true, .length = 2 * PART + 1};
    const struct expected expected[] = {{"a", 3, 2 * PART + 1}, {NULL, 0, 0}};
    struct fixture fixture;
    struct error error = {0};
    (void)state;
    begin(&fixture);
    for (unsigned i = 0; i < 520; i++)
        parts(&fixture, i, PART, PART);
    parts(&fixture, 3, a.length, PART);
    values(&fixture, &a, NULL);
    assert_int_equal(ends(&fixture, expected, &error), 0);
}

static void refused(void (*fill)(struct fixture *fixture))
{
    const struct expected none = {NULL, 0, 0};
    struct fixture fixture;
    struct error error = {0};
    begin(&fixture);
    fill(&fixture);
    assert_int_equal(ends(&fixture, &none, &error), BANYAN_ECORRUPT);
    assert_non_null(strstr(error.text, "file 1 of the journal"));
}

static const struct persist_value long_one = {.key = KEY("a"), .apart = true, .length = 70000};

static void no_parts(struct fixture *fixture)
{
    values(fixture, &long_one, NULL);
}

static void too_few_parts(struct fixture *fixture)
{
    parts(fixture, 0, 69999, PART);
    values(fixture, &long_one, NULL);
}

static void too_long_parts(struct fixture *fixture)
{
    parts(fixture, 0, 70001, PART);
    values(fixture, &long_one, NULL);
}

static void parts_of_another_record(struct fixture *fixture)
{
    const struct persist_value other = {.key = KEY("b"), .bytes = pattern, .length = 2};
    parts(fixture, 0, 70000, PART);
    values(fixture, &other, NULL);
    values(fixture, &long_one, NULL);
}

static void not_the_first(struct fixture *fixture)
{
    const struct persist_value other = {.key = KEY("b"), .bytes = pattern, .length = 2};
    parts(fixture, 0, 70000, PART);
    values(fixture, &other, &long_one);
}

static void an_empty_part(struct fixture *fixture)
{
    append(fixture, PERSIST_BYTES, pattern, 0);
}

static void half_an_entry(struct fixture *fixture)
{
    const struct persist_value other = {.key = KEY("b"), .bytes = pattern, .length = 2};
    append(fixture, PERSIST_VALUES, payload, encode(payload, &other) - 1);
}

static void test_refused(void **state)
{
    (void)state;
    refused(no_parts);
    refused(too_few_parts);
    refused(too_long_parts);
    refused(parts_of_another_record);
    refused(not_the_first);
    refused(an_empty_part);
    refused(half_an_entry);
}

/* Parts that fell off the pile are not there for a value that is too long to be one. */
static void test_impossible_length(void **state)
{
    const struct persist_value huge = {
        .key = KEY("a"), .apart = true, .length = FORMAT_RECORD_VALUE_MAX + PART};
    const struct expected none = {NULL, 0, 0};
    struct fixture fixture;
    struct error error = {0};
    (void)state;
    begin(&fixture);
    for (uint32_t i = 0; i < huge.length / PART; i++)
        parts(&fixture, i, PART, PART);
    values(&fixture, &huge, NULL);
    assert_int_equal(ends(&fixture, &none, &error), BANYAN_ECORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_entries),           cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_last_counts),       cmocka_unit_test(test_parts_left_over),
        cmocka_unit_test(test_parts_piled_up),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_impossible_length),
    };
    return cmocka_run_group_tests_name("records of values", tests, NULL, NULL);
}
