/* test_workloads.c - names, mixes, permutations, keys and the stream of operations. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "bench/workloads.h"

static void names_are_found(void **state)
{
    (void)state;
    struct workload workload;
    struct error error = {0};
    for (size_t i = 0; workload_name(i, NULL); i++) {
        assert_int_equal(workload_find(&workload, workload_name(i, NULL), &error), 0);
        assert_string_equal(workload.name, workload_name(i, NULL));
        double sum = 0;
        for (int kind = 0; kind < WORKLOAD_KINDS; kind++)
            sum += workload.share[kind];
        assert_true(fabs(sum - 1) < 1e-9);
    }
}

static void bare_names_prefer_sherman(void **state)
{
    (void)state;
    struct workload workload;
    struct error error = {0};
    assert_int_equal(workload_find(&workload, "write-intensive", &error), 0);
    assert_string_equal(workload.name, "sherman:write-intensive");
    assert_true(workload.share[WORKLOAD_UPSERT] == 0.5);
    assert_int_equal(workload_find(&workload, "scan-intensive", &error), 0);
    assert_string_equal(workload.name, "dex:scan-intensive");
    assert_int_equal(workload_find(&workload, "a", &error), BANYAN_EINVAL);
    assert_int_equal(workload_find(&workload, "ycsb:z", &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "ycsb:z"));
}

static void mixes_are_parsed(void **state)
{
    (void)state;
    struct workload workload;
    struct error error = {0};
    assert_int_equal(workload_parse_mix(&workload, "lookup=3,delete=1", &error), 0);
    assert_true(workload.share[WORKLOAD_LOOKUP] == 0.75);
    assert_true(workload.share[WORKLOAD_DELETE] == 0.25);
    assert_true(workload_writes(&workload));
    static const char *const bad[] = {"",          "lookup", "lookup=",  "lookup=x",
                                      "lookup=-1", "fly=1",  "lookup=0", "lookup=nan"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        error_clear(&error);
        assert_int_equal(workload_parse_mix(&workload, bad[i], &error), BANYAN_EINVAL);
        assert_true(error.text[0]);
    }
}

static void permutations_are_bijective(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 64, 1000, 4097};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct permutation permutation;
        permutation_init(&permutation, sizes[i], 42 + i);
        uint8_t *seen = calloc(sizes[i], 1);
        for (uint64_t at = 0; at < sizes[i]; at++) {
            uint64_t to = permutation_apply(&permutation, at);
            assert_true(to < sizes[i]);
            assert_int_equal(seen[to]++, 0);
        }
        free(seen);
    }
}

static void keys_keep_their_order(void **state)
{
    (void)state;
    uint8_t before[20], key[20], value[16];
    for (uint64_t rank = 0; rank < 1000; rank++) {
        uint64_t number = workload_loaded_number(rank);
        workload_key(number, key, sizeof key);
        assert_true(workload_key_number(key) == number);
        if (rank)
            assert_true(memcmp(before, key, sizeof key) < 0);
        memcpy(before, key, sizeof key);
        workload_value(number, rank, value, sizeof value);
        assert_true(workload_value_matches(number, value, sizeof value));
        assert_false(workload_value_matches(number + 1, value, sizeof value));
    }
}

static void start(struct workload_source *source, struct workload *workload, const char *name,
                  enum workload_distribution distribution, uint64_t keys)
{
    const struct workload_skew skew = {.theta = 0.99};
    struct error error = {0};
    assert_int_equal(workload_find(workload, name, &error), 0);
    assert_int_equal(workload_source_init(source, workload, distribution, &skew, keys, 10000, 100, 7, &error),
                     0);
}

/* Sherman: two of three inserts meet a loaded key. */
static void upserts_are_two_thirds_updates(void **state)
{
    (void)state;
    struct workload workload;
    struct workload_source source;
    struct workload_generator generator;
    struct workload_operation operation;
    start(&source, &workload, "sherman:write-intensive", WORKLOAD_UNIFORM, 10000);
    workload_generator_init(&generator, &source, 1);
    int upserts = 0, existing = 0;
    for (int i = 0; i < 60000; i++) {
        workload_next(&generator, &operation);
        if (operation.kind != WORKLOAD_UPSERT)
            continue;
        upserts++;
        existing += workload_number_loaded(&source, operation.number);
    }
    assert_true(upserts > 29000 && upserts < 31000);
    assert_true(fabs((double)existing / upserts - 2.0 / 3) < 0.02);
}

static int compare_numbers(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* More new keys than free slots: still each once, and none of the loaded ones. */
static void inserts_are_new_and_unique(void **state)
{
    (void)state;
    static uint64_t numbers[5000];
    for (int empty = 0; empty < 2; empty++) {
        struct workload workload;
        struct workload_source source;
        struct workload_generator generator;
        struct workload_operation operation;
        start(&source, &workload, "dex:insert-only", WORKLOAD_UNIFORM, empty ? 0 : 1000);
        workload_generator_init(&generator, &source, 1);
        for (size_t i = 0; i < 5000; i++) {
            workload_next(&generator, &operation);
            assert_int_equal(operation.kind, WORKLOAD_INSERT);
            assert_false(workload_number_loaded(&source, operation.number));
            numbers[i] = operation.number;
        }
        qsort(numbers, 5000, sizeof numbers[0], compare_numbers);
        for (size_t i = 1; i < 5000; i++)
            assert_true(numbers[i - 1] < numbers[i]);
    }
}

/* The hottest keys must not be neighbours, and must take the share that the law says. */
static void ascending_inserts_ascend(void **state)
{
    (void)state;
    struct workload workload;
    struct workload_source source;
    struct workload_generator generators[2];
    struct workload_operation operation;
    uint64_t last = 0;
    start(&source, &workload, "insert-ascending", WORKLOAD_UNIFORM, 0);
    for (unsigned i = 0; i < 2; i++)
        workload_generator_init(&generators[i], &source, i);
    for (int i = 0; i < 10000; i++) { /* as many as the source was told of */
        workload_next(&generators[i % 2], &operation);
        assert_int_equal(operation.kind, WORKLOAD_INSERT);
        assert_true(operation.number > last);
        assert_false(workload_number_loaded(&source, operation.number));
        last = operation.number;
    }
}

static void hot_keys_are_spread(void **state)
{
    (void)state;
    struct workload workload;
    struct workload_source source;
    struct workload_generator generator;
    struct workload_operation operation;
    start(&source, &workload, "dex:read-only", WORKLOAD_ZIPFIAN, 100000);
    uint64_t hot = workload_loaded_number(permutation_apply(&source.ranks, 0));
    uint64_t next = workload_loaded_number(permutation_apply(&source.ranks, 1));
    assert_true((hot > next ? hot - next : next - hot) > workload_loaded_number(100));
    workload_generator_init(&generator, &source, 1);
    int hits = 0;
    for (int i = 0; i < 100000; i++) {
        workload_next(&generator, &operation);
        assert_true(workload_number_loaded(&source, operation.number));
        hits += operation.number == hot;
    }
    assert_true(fabs(hits / 100000.0 - zipf_probability(&source.zipf, 0)) < 0.01);
}

static void latest_prefers_new_keys(void **state)
{
    (void)state;
    struct workload workload;
    struct workload_source source;
    struct workload_generator generator;
    struct workload_operation operation;
    start(&source, &workload, "ycsb:d", WORKLOAD_ZIPFIAN, 10000);
    source.inserted = 1000;
    workload_generator_init(&generator, &source, 1);
    int fresh = 0, lookups = 0;
    for (int i = 0; i < 10000; i++) {
        workload_next(&generator, &operation);
        if (operation.kind != WORKLOAD_LOOKUP)
            continue;
        lookups++;
        fresh += !workload_number_loaded(&source, operation.number);
    }
    assert_true(fresh > lookups / 2);
}

static void streams_repeat(void **state)
{
    (void)state;
    struct workload workload;
    struct workload_source source;
    struct workload_generator a, b;
    start(&source, &workload, "ycsb:e", WORKLOAD_SCRAMBLED, 1000);
    workload_generator_init(&a, &source, 5);
    workload_generator_init(&b, &source, 5);
    for (int i = 0; i < 1000; i++) {
        struct workload_operation x, y;
        workload_next(&a, &x);
        uint64_t inserted = source.inserted;
        source.inserted -= x.kind == WORKLOAD_INSERT;
        workload_next(&b, &y);
        source.inserted = inserted;
        assert_int_equal(x.kind, y.kind);
        assert_true(x.number == y.number && x.salt == y.salt && x.scan_length == y.scan_length);
        assert_true(x.kind != WORKLOAD_SCAN || (x.scan_length >= 1 && x.scan_length <= 100));
    }
}

static void impossible_sources_are_refused(void **state)
{
    (void)state;
    struct workload workload;
    struct workload_source source;
    struct error error = {0};
    assert_int_equal(workload_find(&workload, "read-only", &error), 0);
    struct workload_skew skew = {.theta = 0.99};
    assert_int_equal(workload_source_init(&source, &workload, WORKLOAD_UNIFORM, &skew, 0, 10, 1, 1, &error),
                     BANYAN_EINVAL);
    skew.theta = ZIPF_THETA_MAX + 0.5;
    assert_int_equal(workload_source_init(&source, &workload, WORKLOAD_ZIPFIAN, &skew, 10, 10, 1, 1, &error),
                     BANYAN_EINVAL);
}

/* Scans follow the distribution, upserts do not. */
static void uniform_upserts_beside_hot_scans(void **state)
{
    (void)state;
    enum { DRAWS = 200000, KEYS = 2000 };
    static unsigned counts[2][KEYS / 2 * 3];
    struct workload workload;
    struct workload_source source;
    struct workload_generator generator;
    const struct workload_skew skew = {.theta = 0.99};
    struct error error = {0};
    unsigned most[2] = {0, 0};
    assert_int_equal(workload_find(&workload, "range-write-uniform", &error), 0);
    assert_int_equal(
        workload_source_init(&source, &workload, WORKLOAD_ZIPFIAN, &skew, KEYS, 10, 67, 1, &error), 0);
    workload_generator_init(&generator, &source, 3);
    memset(counts, 0, sizeof counts);
    for (unsigned i = 0; i < DRAWS; i++) {
        struct workload_operation operation;
        workload_next(&generator, &operation);
        bool scan = operation.kind == WORKLOAD_SCAN;
        assert_true(scan || operation.kind == WORKLOAD_UPSERT);
        assert_true(operation.number >> 16 < source.slots);
        unsigned count = ++counts[scan][operation.number >> 16];
        most[scan] = count > most[scan] ? count : most[scan];
    }
    assert_true(most[0] < 3 * DRAWS / 2 / source.slots); /* 33 on average */
    assert_true(most[1] > DRAWS / 2 / 20);               /* a twentieth of the scans begin at one key */
}

/* A skew that cannot be matched is refused, and the message says what can. */
static void impossible_skews_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct workload_skew skew;
        enum workload_distribution distribution;
        uint64_t loaded;
        const char *says; /* NULL: it is possible */
    } cases[] = {
        {{0.99, 1000}, WORKLOAD_ZIPFIAN, 1000, NULL},
        {{0.99, 998}, WORKLOAD_ZIPFIAN, 1000, "1000 keys"},
        {{0.99, 998}, WORKLOAD_SCRAMBLED, 1000, "1000 keys"},
        {{0.99, 999}, WORKLOAD_ZIPFIAN, 1000, "1000 keys"}, /* as many slots, but fewer keys */
        {{0.99, 1}, WORKLOAD_UNIFORM, 1000, NULL},          /* no skew, none to match */
        {{0, 2000}, WORKLOAD_ZIPFIAN, 1000, "--theta"},
        {{0.5, 1000000000},
         WORKLOAD_ZIPFIAN,
         1000,
         "--theta 0.5"}, /* one in 77,000 is less than one in 1,500 */
        {{4, WORKLOAD_SKEW_OF_MAX}, WORKLOAD_ZIPFIAN, 1000, NULL},
        {{0.99, WORKLOAD_SKEW_OF_MAX + 1}, WORKLOAD_ZIPFIAN, 1000, "4503599627370496"},
        {{0.99, 0}, WORKLOAD_ZIPFIAN, 1000, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct workload workload;
        struct workload_source source;
        struct error error = {0};
        assert_int_equal(workload_find(&workload, "sherman:write-intensive", &error), 0);
        int status = workload_source_init(&source, &workload, cases[i].distribution, &cases[i].skew,
                                          cases[i].loaded, 10, 1, 1, &error);
        assert_int_equal(status, cases[i].says ? BANYAN_EINVAL : 0);
        if (cases[i].says) {
            assert_non_null(strstr(error.text, "--skew-of"));
            assert_non_null(strstr(error.text, cases[i].says));
        }
    }
}

/* The hottest key is drawn as often as among a billion, wherever the permutation puts it. */
static void the_skew_of_more_keys(void **state)
{
    (void)state;
    enum { DRAWS = 1000000, KEYS = 20000 };
    static unsigned counts[KEYS / 2 * 3];
    static const enum workload_distribution distributions[] = {WORKLOAD_ZIPFIAN, WORKLOAD_SCRAMBLED};
    for (size_t d = 0; d < 2; d++) {
        const struct workload_skew skew = {0.99, UINT64_C(1000000000)};
        struct workload workload;
        struct workload_source source;
        struct workload_generator generator;
        struct error error = {0};
        assert_int_equal(workload_find(&workload, "sherman:write-intensive", &error), 0);
        assert_int_equal(
            workload_source_init(&source, &workload, distributions[d], &skew, KEYS, 10, 1, 1, &error), 0);
        workload_generator_init(&generator, &source, 3);
        memset(counts, 0, sizeof counts);
        for (unsigned i = 0; i < DRAWS; i++) {
            struct workload_operation operation;
            workload_next(&generator, &operation);
            uint64_t slot = operation.number >> 16;
            assert_true(slot < source.slots);
            counts[slot]++;
        }
        unsigned most = 0;
        for (uint64_t i = 0; i < source.slots; i++)
            most = counts[i] > most ? counts[i] : most;
        double expected = DRAWS / zipf_sum(0, skew.of / 2 * 3, skew.theta);
        assert_true(most > expected - 5 * sqrt(expected));
        assert_true(most < expected + 5 * sqrt(expected) + (d ? 0.01 * DRAWS : 0)); /* hashes collide */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(bare_names_prefer_sherman),
        cmocka_unit_test(mixes_are_parsed),
        cmocka_unit_test(permutations_are_bijective),
        cmocka_unit_test(keys_keep_their_order),
        cmocka_unit_test(upserts_are_two_thirds_updates),
        cmocka_unit_test(inserts_are_new_and_unique),
        cmocka_unit_test(ascending_inserts_ascend),
        cmocka_unit_test(hot_keys_are_spread),
        cmocka_unit_test(latest_prefers_new_keys),
        cmocka_unit_test(streams_repeat),
        cmocka_unit_test(impossible_sources_are_refused),
        cmocka_unit_test(uniform_upserts_beside_hot_scans),
        cmocka_unit_test(impossible_skews_are_refused),
        cmocka_unit_test(the_skew_of_more_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
