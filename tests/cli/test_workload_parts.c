/* test_workload_parts.c - keys of one compute node's range: how the line is cut, and what is drawn of a part.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "bench/workloads.h"

static void start(struct workload_source *source, struct workload *workload, const char *name,
                  enum workload_distribution distribution, double theta, uint64_t keys)
{
    const struct workload_skew skew = {.theta = theta};
    struct error error = {0};
    assert_int_equal(workload_find(workload, name, &error), 0);
    assert_int_equal(workload_source_init(source, workload, distribution, &skew, keys, 10000, 100, 7, &error),
                     0);
}

/* Every slot lies in exactly one part, parts ascend, and no two differ by more than a three of slots. */
static void parts_cut_the_line(void **state)
{
    (void)state;
    static const uint64_t keys[] = {2, 7, 100, 9999, 1000000};
    static const uint32_t counts[] = {1, 2, 3, 4, 7, 64};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            struct workload workload;
            struct workload_source source;
            start(&source, &workload, "dex:read-only", WORKLOAD_UNIFORM, 0.99, keys[k]);
            uint32_t parts = counts[c];
            if (parts > source.slots / 3)
                continue;
            uint64_t end = 0, least = UINT64_MAX, most = 0;
            for (uint32_t i = 0; i < parts; i++) {
                struct workload_part part;
                workload_part_init(&part, &source, i, parts);
                assert_true(part.begin == end && part.end > part.begin && part.begin % 3 == 0);
                end = part.end;
                least = part.end - part.begin < least ? part.end - part.begin : least;
                most = part.end - part.begin > most ? part.end - part.begin : most;
                uint64_t first = workload_part_begin(&source, i, parts);
                assert_true(first == part.begin << WORKLOAD_GENERATION_BITS);
                assert_int_equal(workload_part_of(&source, first, parts), i);
                if (first)
                    assert_int_equal(workload_part_of(&source, first - 1, parts), i - 1);
            }
            assert_true(end == source.slots && most - least <= 3);
        }
}

#define KEYS  3000
#define PARTS 3

/* Of a part each key has the share that it has of all draws, among those of the part. */
static void draws_are_those_of_the_part(void **state)
{
    (void)state;
    enum { DRAWS = 400000 };
    static const enum workload_distribution distributions[] = {WORKLOAD_UNIFORM, WORKLOAD_ZIPFIAN,
                                                               WORKLOAD_SCRAMBLED};
    for (size_t d = 0; d < 3; d++) {
        static double all[KEYS * 2], own[KEYS * 2];
        struct workload workload;
        struct workload_source source;
        struct workload_operation operation;
        start(&source, &workload, "dex:write-intensive", distributions[d], 0.99, KEYS);
        memset(all, 0, sizeof all);
        double in_parts[PARTS] = {0};
        struct workload_generator generator;
        workload_generator_init(&generator, &source, 1);
        for (int i = 0; i < DRAWS; i++) {
            workload_next(&generator, &operation);
            all[operation.number >> WORKLOAD_GENERATION_BITS]++;
            in_parts[workload_part_of(&source, operation.number, PARTS)]++;
        }
        for (uint32_t p = 0; p < PARTS; p++) {
            struct workload_part part;
            workload_part_init(&part, &source, p, PARTS);
            workload_generator_init(&generator, &source, 100 + p);
            workload_generator_keep_to(&generator, &part);
            memset(own, 0, sizeof own);
            for (int i = 0; i < DRAWS; i++) {
                workload_next(&generator, &operation);
                assert_int_equal(workload_part_of(&source, operation.number, PARTS), p);
                assert_true(workload_number_loaded(&source, operation.number));
                own[operation.number >> WORKLOAD_GENERATION_BITS]++;
            }
            for (uint64_t slot = part.begin; slot < part.end; slot++) {
                double expected = all[slot] / in_parts[p], got = own[slot] / DRAWS;
                assert_true(fabs(expected - got) < 0.004 + 0.05 * expected);
            }
        }
    }
}

/* Each new key once, in its part, by generators that share the part; also of an index that starts empty. */
static void new_keys_are_of_the_part(void **state)
{
    (void)state;
    static const char *const names[] = {"dex:insert-only", "ycsb:d"};
    for (size_t n = 0; n < 2; n++)
        for (uint64_t keys = 0; keys <= 300; keys += 300) {
            enum { INSERTS = 4000 };
            static uint8_t seen[1 << 22];
            struct workload workload;
            struct workload_source source;
            start(&source, &workload, names[n], WORKLOAD_UNIFORM, 0.99, keys);
            memset(seen, 0, sizeof seen);
            for (uint32_t p = 0; p < PARTS; p++) {
                struct workload_part part;
                struct workload_generator generators[2];
                workload_part_init(&part, &source, p, PARTS);
                for (int g = 0; g < 2; g++) {
                    workload_generator_init(&generators[g], &source, 10 * p + (unsigned)g);
                    workload_generator_keep_to(&generators[g], &part);
                }
                for (int i = 0; i < INSERTS; i++) {
                    struct workload_operation operation;
                    workload_next(&generators[i % 2], &operation);
                    assert_int_equal(workload_part_of(&source, operation.number, PARTS), p);
                    if (operation.kind != WORKLOAD_INSERT)
                        continue;
                    assert_false(workload_number_loaded(&source, operation.number));
                    uint64_t slot = operation.number >> WORKLOAD_GENERATION_BITS;
                    uint64_t place = slot / 3 * 256 + operation.number % 256; /* generations */
                    assert_true(operation.number % (1 << WORKLOAD_GENERATION_BITS) < 256 &&
                                place < sizeof seen);
                    assert_false(seen[place]);
                    seen[place] = 1;
                }
            }
        }
}

/* A skew so extreme that a part is hardly ever drawn: its generator still goes on. */
static void a_cold_part_is_drawn_uniformly(void **state)
{
    (void)state;
    struct workload workload;
    struct workload_source source;
    start(&source, &workload, "dex:read-only", WORKLOAD_ZIPFIAN, 4, 100000);
    for (uint32_t p = 0; p < 64; p += 21) {
        struct workload_part part;
        struct workload_generator generator;
        workload_part_init(&part, &source, p, 64);
        workload_generator_init(&generator, &source, p);
        workload_generator_keep_to(&generator, &part);
        for (int i = 0; i < 20; i++) {
            struct workload_operation operation;
            workload_next(&generator, &operation);
            assert_int_equal(workload_part_of(&source, operation.number, 64), p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cut_the_line),
        cmocka_unit_test(draws_are_those_of_the_part),
        cmocka_unit_test(new_keys_are_of_the_part),
        cmocka_unit_test(a_cold_part_is_drawn_uniformly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
