/* test_local.c - the conformance suite on the local backend, on threads and on the fibers of workers, and
 * what is true of this backend alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "conformance.h"
#include "fabric/local.h"
#include "fabric/target.h"
#include "fabric/wire.h"
#include "memory/memory.h"
#include "runners.h"

static struct fabric *local_open(void *context, const struct fabric_target *const *targets, uint16_t count)
{
    struct error error = {0};
    return fabric_local_create(targets, count, 7, &error);
}

static void local_shut(void *context, struct fabric *fabric)
{
    fabric_close(fabric);
}

static void conformance_on_threads(void **state)
{
    const struct conformance_backend backend = {.name = "local, threads",
                                                .rounds = 50000,
                                                .open = local_open,
                                                .run = conformance_run_threads,
                                                .close = local_shut};
    assert_int_equal(conformance_run(&backend), 0);
}

static void conformance_on_fibers(void **state)
{
    const struct conformance_backend backend = {.name = "local, fibers",
                                                .rounds = 50000,
                                                .open = local_open,
                                                .run = conformance_run_fibers,
                                                .close = local_shut};
    assert_int_equal(conformance_run(&backend), 0);
}

/* The same on memory that outlives the process, as far as a fabric knows. */
static struct fabric *staged_open(void *context, const struct fabric_target *const *targets, uint16_t count)
{
    static struct wire_staging areas[4][64];
    static struct fabric_target staged[4];
    const struct fabric_target *all[4];
    struct error error = {0};
    assert_in_range(count, 1, 4);
    for (uint16_t i = 0; i < count; i++) {
        staged[i] = *targets[i];
        staged[i].stagings = areas[i];
        staged[i].staging_count = 64;
        all[i] = &staged[i];
    }
    return fabric_local_create(all, count, 7, &error);
}

static void conformance_staged(void **state)
{
    const struct conformance_backend backend = {.name = "local, staged",
                                                .rounds = 20000,
                                                .open = staged_open,
                                                .run = conformance_run_threads,
                                                .close = local_shut};
    assert_int_equal(conformance_run(&backend), 0);
}

/* ---- what only local does ---- */

static uint64_t pool_words[1024] __attribute__((aligned(4096)));
static uint64_t lock_words[64];

static int no_call(void *owner, uint16_t compute_id, const void *request, size_t length, void *reply,
                   size_t capacity, size_t *reply_length)
{
    *(uint16_t *)owner = compute_id;
    return BANYAN_ENOTSUP;
}

static uint16_t caller;

static struct fabric_target plain_target(void)
{
    return (struct fabric_target){.pool = (uint8_t *)pool_words,
                                  .pool_bytes = sizeof pool_words,
                                  .locks = (uint8_t *)lock_words,
                                  .lock_bytes = sizeof lock_words,
                                  .lock_width = 2,
                                  .call = no_call,
                                  .owner = &caller};
}

static void reads_are_in_place(void **state)
{
    struct fabric_target target = plain_target();
    const struct fabric_target *targets[] = {&target};
    struct fabric *fabric = fabric_local_create(targets, 1, 300, NULL);
    assert_non_null(fabric);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    assert_non_null(endpoint);
    uint64_t buffer = 5;
    struct fabric_command command = {
        .operation = FABRIC_READ, .length = 8, .address = gaddr_make(0, 64), .read.buffer = &buffer};
    struct fabric_list list = {.count = 1, .commands = &command}, *lists[] = {&list};
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), 0);
    assert_ptr_equal(command.read.data, &pool_words[8]);
    assert_int_equal(buffer, 5);
    command.address = gaddr_make(0, GADDR_LOCK_REGION | 8);
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), 0);
    assert_ptr_equal(command.read.data, &lock_words[1]);

    const struct fabric_capabilities *capabilities = fabric_capabilities(fabric);
    assert_true(capabilities->direct && capabilities->masked_cas && capabilities->release_by_write);
    assert_int_equal(capabilities->compute_id, 300);
    assert_int_equal(capabilities->lock_region_bytes, sizeof lock_words);
    size_t length = 1;
    assert_int_equal(fabric_call(endpoint, 0, "", 1, &buffer, 8, &length, NULL), BANYAN_ENOTSUP);
    assert_int_equal(caller, 300);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
}

/* A window is the pool's own bytes, as far as they go, and nothing else. */
static void windows_end_with_the_pool(void **state)
{
    struct fabric_target first = plain_target();
    const struct fabric_target *targets[] = {&first};
    struct error error = {0};
    struct fabric *fabric = fabric_local_create(targets, 1, 1, &error);
    assert_non_null(fabric);
    const uint64_t bytes = first.pool_bytes;
    assert_ptr_equal(fabric_window(fabric, gaddr_make(0, 64), 8), &pool_words[8]);
    assert_ptr_equal(fabric_window(fabric, gaddr_make(0, bytes - 8), 8), (uint8_t *)pool_words + bytes - 8);
    assert_null(fabric_window(fabric, gaddr_make(0, bytes - 8), 9));
    assert_null(fabric_window(fabric, gaddr_make(0, bytes), 1));
    assert_null(fabric_window(fabric, gaddr_make(0, 64), (uint32_t)bytes));
    assert_null(fabric_window(fabric, gaddr_make(0, GADDR_LOCK_REGION | 8), 8));
    assert_null(fabric_window(fabric, gaddr_make(1, 64), 8));
    assert_null(fabric_window(fabric, GADDR_NULL, 8));
    fabric->windows = NULL;
    assert_null(fabric_window(fabric, gaddr_make(0, 64), 8));
    fabric_close(fabric);
}

static void bad_targets_are_refused(void **state)
{
    struct fabric_target first = plain_target(), second = plain_target();
    const struct fabric_target *targets[] = {&first, &second};
    struct error error = {0};
    assert_null(fabric_local_create(targets, 0, 1, &error));
    assert_int_equal(error.code, BANYAN_EINVAL);
    assert_null(fabric_local_create(targets, 2, 0, &error));
    assert_int_equal(error.code, BANYAN_EINVAL);
    second.lock_width = 8;
    assert_null(fabric_local_create(targets, 2, 1, &error));
    assert_int_equal(error.code, BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "node 1"));
    second = plain_target();
    second.pool += 4;
    second.pool_bytes -= 8;
    assert_null(fabric_local_create(targets, 2, 1, &error));
    assert_int_equal(error.code, BANYAN_EINVAL);
    second = plain_target();
    second.locks += 2;
    assert_null(fabric_local_create(targets, 2, 1, &error));
    second = plain_target();
    second.pool_bytes = GADDR_LOCK_REGION + 8;
    assert_null(fabric_local_create(targets, 2, 1, &error));
    second = plain_target();
    second.lock_bytes = GADDR_LOCK_REGION + 8;
    assert_null(fabric_local_create(targets, 2, 1, &error));
    assert_non_null(strstr(error.text, "misaligned or too large"));
    fabric_close(NULL);
    fabric_endpoint_close(NULL);
}

static void write_at(struct fabric_endpoint *endpoint, uint64_t offset, const void *data, uint32_t length)
{
    struct fabric_command command = {.operation = FABRIC_WRITE,
                                     .length = length,
                                     .address = gaddr_make(0, offset),
                                     .write = {.data = data}};
    struct fabric_list list = {.count = 1, .commands = &command}, *lists = &list;
    assert_int_equal(fabric_execute(endpoint, &lists, 1, NULL), 0);
}

/* Each endpoint stages what it writes in an area of its own, and clears the mark behind it. */
static void endpoints_have_staging_areas(void **state)
{
    static struct wire_staging areas[2];
    static const char data[100] = "what is more than one store";
    struct fabric_target target = plain_target();
    const struct fabric_target *targets[] = {&target};
    struct error error = {0};
    target.stagings = areas;
    target.staging_count = 2;
    struct fabric *fabric = fabric_local_create(targets, 1, 1, &error);
    assert_non_null(fabric);
    assert_true(fabric_stages(fabric));
    assert_int_equal(fabric_capabilities(fabric)->atomic_write, WIRE_STAGING_DATA);
    struct fabric_endpoint *first = fabric_endpoint_open(fabric, &error),
                           *second = fabric_endpoint_open(fabric, &error);
    assert_true(first && second);
    assert_null(fabric_endpoint_open(fabric, &error));
    assert_int_equal(error.code, BANYAN_EINVAL);
    write_at(first, 1000, data, sizeof data);
    fabric_window_store(second, gaddr_make(0, 2000), fabric_window(fabric, gaddr_make(0, 2000), 30), data,
                        30);
    assert_int_equal(areas[0].offset, 1000);
    assert_int_equal(areas[0].length, sizeof data);
    assert_int_equal(areas[1].offset, 2000);
    assert_int_equal(areas[1].length, 30);
    assert_true(areas[0].marked == 0 && areas[1].marked == 0);
    assert_memory_equal((uint8_t *)pool_words + 1000, data, sizeof data);
    assert_memory_equal((uint8_t *)pool_words + 2000, data, 30);
    write_at(first, 3000, data, 8); /* one store */
    assert_int_equal(areas[0].offset, 1000);
    fabric_endpoint_close(first);
    first = fabric_endpoint_open(fabric, &error); /* in its place */
    assert_non_null(first);
    write_at(first, 4000, data, sizeof data);
    assert_int_equal(areas[0].offset, 4000);
    assert_int_equal(areas[1].offset, 2000);
    fabric_endpoint_close(first);
    fabric_endpoint_close(second);
    fabric_close(fabric);
    memset(pool_words, 0, sizeof pool_words);
}

static void pools_in_files_stand_alone(void **state)
{
    static struct wire_staging areas[1];
    struct fabric_target first = plain_target(), second = plain_target();
    const struct fabric_target *targets[] = {&first, &second};
    struct error error = {0};
    first.stagings = areas;
    first.staging_count = 1;
    assert_null(fabric_local_create(targets, 2, 1, &error));
    assert_int_equal(error.code, BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "the pool of one is in a file"));
    struct fabric_local_peers *peers = fabric_local_peers_create(&error);
    assert_null(fabric_local_create_peer(peers, targets, 1, 1, &error));
    assert_int_equal(error.code, BANYAN_ENOTSUP);
    fabric_local_peers_destroy(peers);
}

/* What all of them have is what the fabric promises. */
static void the_smallest_lock_region_counts(void **state)
{
    struct fabric_target first = plain_target(), second = plain_target(), third = plain_target();
    const struct fabric_target *targets[] = {&first, &second, &third};
    second.lock_bytes = 64;
    third.lock_bytes = 128;
    struct fabric *fabric = fabric_local_create(targets, 3, 1, NULL);
    assert_non_null(fabric);
    assert_int_equal(fabric_capabilities(fabric)->lock_region_bytes, 64);
    assert_int_equal(fabric_incarnation(fabric), 1);
    fabric_close(fabric);
}

/* ---- what is validated before any backend ---- */

/* Says yes to everything. */
struct yes {
    struct fabric fabric;
    struct fabric_endpoint endpoint;
    unsigned lists, gives_up;
};

static int yes_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count)
{
    ((struct yes *)endpoint->fabric)->lists += count;
    for (uint32_t i = 0; i < count; i++)
        lists[i]->status = BANYAN_OK;
    return BANYAN_OK;
}

static void yes_trouble(const struct fabric *fabric, uint16_t node, char *text, size_t size)
{
    snprintf(text, size, "all is well with %u", (unsigned)node);
}

static void yes_give_up(struct fabric_endpoint *endpoint, uint16_t node)
{
    ((struct yes *)endpoint->fabric)->gives_up++;
}

/* On hardware that has no masked CAS no list gets through that has one, however long it is. */
static void lists_are_validated_first(void **state)
{
    const struct fabric_ops ops = {.execute = yes_execute};
    struct yes yes = {.fabric = {.ops = &ops, .capabilities = {.memory_nodes = 1, .masked_cas = true}}};
    struct fabric_command commands[8];
    struct fabric_list list = {.commands = commands}, *lists[] = {&list};
    yes.endpoint.fabric = &yes.fabric;
    for (unsigned masked = 0; masked < 2; masked++)
        for (uint16_t count = 1; count <= 8; count++)
            for (unsigned allowed = 0; allowed < 2; allowed++) {
                bool fits = allowed == 1 || masked == 0;
                for (unsigned i = 0; i < 8; i++)
                    commands[i] = (struct fabric_command){.operation = FABRIC_CAS, .cas.mask = UINT64_MAX};
                commands[count - 1].cas.mask = masked == 1 ? 0xffff : UINT64_MAX;
                yes.fabric.capabilities.masked_cas = allowed == 1;
                yes.lists = 0;
                list.count = count;
                assert_int_equal(fabric_execute(&yes.endpoint, lists, 1, NULL),
                                 fits ? BANYAN_OK : BANYAN_EINVAL);
                assert_int_equal(yes.lists, fits);
            }
    /* More bytes than a list may have; a command that is too long alone is the backend's to refuse. */
    for (unsigned i = 0; i < 5; i++)
        commands[i] = (struct fabric_command){.operation = FABRIC_READ, .length = FABRIC_LENGTH_MAX};
    list.count = 5;
    assert_int_equal(fabric_execute(&yes.endpoint, lists, 1, NULL), BANYAN_EINVAL);
    commands[0].length = FABRIC_LENGTH_MAX + 1;
    assert_int_equal(fabric_execute(&yes.endpoint, lists, 1, NULL), BANYAN_OK);
    assert_int_equal(fabric_execute(&yes.endpoint, lists, 0, NULL), BANYAN_OK);
}

static void backends_may_have_no_troubles(void **state)
{
    const struct fabric_ops none = {.execute = yes_execute};
    const struct fabric_ops some = {.trouble = yes_trouble, .give_up = yes_give_up};
    struct yes yes = {.fabric = {.ops = &none, .capabilities = {.memory_nodes = 2}}};
    char text[32] = "x";
    yes.endpoint.fabric = &yes.fabric;
    fabric_trouble(&yes.fabric, 0, text, 0);
    assert_string_equal(text, "x");
    fabric_trouble(&yes.fabric, 0, text, sizeof text);
    assert_string_equal(text, "");
    fabric_give_up(&yes.endpoint, 0);
    yes.fabric.ops = &some;
    fabric_trouble(&yes.fabric, 1, text, sizeof text);
    assert_string_equal(text, "all is well with 1");
    fabric_trouble(&yes.fabric, 2, text, sizeof text); /* there is no such memory node */
    assert_string_equal(text, "");
    fabric_give_up(&yes.endpoint, 1);
    fabric_give_up(&yes.endpoint, 2);
    assert_int_equal(yes.gives_up, 1);
}

/* fabric_target_execute, which the simulator builds on: copies READs, checks before it acts. */
static void single_commands(void **state)
{
    struct fabric_target target = plain_target();
    uint64_t value = 0x1122334455667788, buffer = 0;
    struct fabric_command write = {
        .operation = FABRIC_WRITE, .length = 8, .address = gaddr_make(0, 128), .write.data = &value};
    struct fabric_command read = {
        .operation = FABRIC_READ, .length = 8, .address = gaddr_make(0, 128), .read.buffer = &buffer};
    struct fabric_command add = {.operation = FABRIC_FAA, .address = gaddr_make(0, 128), .faa.add = 1};
    struct fabric_command lane = {.operation = FABRIC_CAS,
                                  .address = gaddr_make(0, 128),
                                  .cas = {.compare = 0x77880000, .swap = 0xabcd0000, .mask = 0xffff0000}};
    assert_int_equal(fabric_target_execute(&target, &write), 0);
    assert_int_equal(fabric_target_execute(&target, &read), 0);
    assert_ptr_equal(read.read.data, &buffer);
    assert_int_equal(buffer, value);
    assert_int_equal(fabric_target_execute(&target, &add), 0);
    assert_int_equal(add.faa.old, value);
    assert_int_equal(fabric_target_execute(&target, &lane), 0);
    assert_int_equal(lane.cas.old, value + 1);
    assert_int_equal(pool_words[16], value + 1);
    lane.cas.compare = 0x55660000;
    assert_int_equal(fabric_target_execute(&target, &lane), 0);
    assert_int_equal(pool_words[16], 0x11223344abcd7789);
    lane.cas.mask = 0; /* compares nothing, changes nothing */
    assert_int_equal(fabric_target_execute(&target, &lane), 0);
    assert_int_equal(lane.cas.old, 0x11223344abcd7789);
    assert_int_equal(pool_words[16], 0x11223344abcd7789);
    read.length = sizeof pool_words;
    assert_int_equal(fabric_target_execute(&target, &read), BANYAN_EADDRESS);
    assert_int_equal(fabric_bounds_check(&target, &read), BANYAN_EADDRESS);
    read.length = sizeof pool_words - 128;
    assert_int_equal(fabric_bounds_check(&target, &read), 0);
    memset(pool_words, 0, sizeof pool_words);
}

static void addresses_as_text(void **state)
{
    char text[GADDR_TEXT_BYTES];
    assert_string_equal(gaddr_format(gaddr_make(3, 0x1000), text), "3:0x1000");
    assert_string_equal(gaddr_format(gaddr_make(3, GADDR_LOCK_REGION | 0x40), text), "3:lock:0x40");
    assert_string_equal(gaddr_format(GADDR_NULL, text), "null");
    assert_string_equal(gaddr_format(UINT64_MAX, text), "65535:lock:0x7fffffffffff");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_lock_region_counts),
        cmocka_unit_test(lists_are_validated_first),
        cmocka_unit_test(backends_may_have_no_troubles),
        cmocka_unit_test(reads_are_in_place),
        cmocka_unit_test(windows_end_with_the_pool),
        cmocka_unit_test(bad_targets_are_refused),
        cmocka_unit_test(endpoints_have_staging_areas),
        cmocka_unit_test(pools_in_files_stand_alone),
        cmocka_unit_test(single_commands),
        cmocka_unit_test(addresses_as_text),
        cmocka_unit_test(conformance_on_threads),
        cmocka_unit_test(conformance_on_fibers),
        cmocka_unit_test(conformance_staged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
