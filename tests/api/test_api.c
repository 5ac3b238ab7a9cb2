/* test_api.c - every function of banyan.h once as meant, and with everything wrong that a program can get
 * wrong: on an index of plain values, on one of records, and on records in a pool of another process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "banyan.h"

struct fixture {
    struct banyan *banyan;
    struct banyan_session *session;
    struct banyan_index *index; /* variable keys and values */
    size_t value_max;
    const struct banyan_geometry *geometry; /* NULL: of records */
};
static struct fixture fixture;
static const struct banyan_geometry plain = {.struct_bytes = sizeof plain,
                                             .key_bytes = BANYAN_KEY_MAX,
                                             .key_variable = 1,
                                             .value_bytes = BANYAN_SLOT_VALUE_MAX,
                                             .value_variable = 1};
static char uri[160]; /* of the memory node; "": a pool of this process */

static int setup(const struct banyan_geometry *geometry)
{
    char message[300] = "";
    struct banyan_options options = {.struct_bytes = sizeof options,
                                     .pool_bytes = 256u
                                                   << 20, /* each size of block takes a chunk of its own */
                                     .uri = uri,
                                     .format = uri[0] != 0,
                                     .message = message,
                                     .message_bytes = sizeof message};
    fixture.geometry = geometry;
    fixture.value_max = geometry ? geometry->value_bytes : BANYAN_VALUE_MAX;
    int status = banyan_open(&fixture.banyan, &options);
    if (status)
        fprintf(stderr, "banyan_open: %s\n", message);
    return status || banyan_session_open(fixture.banyan, &fixture.session) ||
           banyan_index_create(fixture.session, "words", geometry, &fixture.index);
}

static int setup_plain(void **state)
{
    *state = &fixture;
    return setup(&plain);
}

static int setup_records(void **state)
{
    *state = &fixture;
    return setup(NULL);
}

static int teardown(void **state)
{
    (void)state;
    return banyan_index_close(fixture.index) || banyan_session_close(fixture.session) ||
           banyan_close(fixture.banyan);
}

static int put(struct fixture *f, const char *key, const char *value)
{
    return banyan_put(f->session, f->index, key, strlen(key), value, strlen(value));
}

static void expect(struct fixture *f, const char *key, const char *value)
{
    char found[BANYAN_SLOT_VALUE_MAX];
    size_t length = sizeof found;
    assert_int_equal(banyan_get(f->session, f->index, key, strlen(key), found, &length), BANYAN_OK);
    assert_int_equal(length, strlen(value));
    assert_memory_equal(found, value, length);
}

static void test_version(void **state)
{
    int major = -1, minor = -1, patch = -1;
    char text[32];
    (void)state;
    const char *version = banyan_version(&major, &minor, &patch);
    snprintf(text, sizeof text, "%d.%d.%d", major, minor, patch);
    assert_string_equal(version, text);
    assert_string_equal(banyan_version(NULL, NULL, NULL), text);
    for (int code = BANYAN_EVERSION; code <= BANYAN_OK; code++)
        assert_true(strlen(banyan_strerror(code)) > 0);
    assert_non_null(banyan_strerror(12345));
}

/* What is said of a pool of this process with these options of the log. */
static void refuse_log(struct banyan_options options, const char *part)
{
    char message[200] = "";
    struct banyan *banyan = NULL;
    options.struct_bytes = sizeof options;
    options.pool_bytes = 32u << 20;
    options.message = message;
    options.message_bytes = sizeof message;
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL);
    assert_null(banyan);
    if (!strstr(message, part))
        fail_msg("'%s' lacks '%s'", message, part);
}

static void test_log_options(void **state)
{
    (void)state;
    refuse_log((struct banyan_options){.log = 3}, "log is 3");
    refuse_log((struct banyan_options){.log = BANYAN_LOG_AUTO}, "wants a cluster (uri)");
    refuse_log((struct banyan_options){.log = BANYAN_LOG_AUTO, .uri = "127.0.0.1:1"}, "BANYAN_OWN_AUTO");
    refuse_log((struct banyan_options){.log_copies = 3}, "log_copies is 3, wanted 1 or 2");
    refuse_log((struct banyan_options){.log_segment_bytes = 65535}, "log_segment_bytes is 65535");
    refuse_log((struct banyan_options){.log_segment_bytes = (8u << 20) + 1}, "64 KiB to 8 MiB");
    refuse_log((struct banyan_options){.log_wait_ms = 600001}, "log_wait_ms is 600001");
    struct banyan *banyan = NULL;
    const struct banyan_options none = {.struct_bytes = sizeof none,
                                        .pool_bytes = 32u << 20,
                                        .log = BANYAN_LOG_NONE,
                                        .log_copies = 2,
                                        .log_segment_bytes = 65536,
                                        .log_wait_ms = 600000};
    assert_int_equal(banyan_open(&banyan, &none), BANYAN_OK);
    assert_int_equal(banyan_close(banyan), BANYAN_OK);
}

static void test_open_bad(void **state)
{
    char message[200] = "";
    struct banyan *banyan = (struct banyan *)&message;
    struct {
        struct banyan_options known;
        uint64_t unknown;
    } newer;
    (void)state;
    struct banyan_options options = {0};
    assert_int_equal(banyan_open(NULL, NULL), BANYAN_EINVAL);
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL); /* struct_bytes 0 */
    assert_null(banyan);
    options = (struct banyan_options){.struct_bytes = sizeof options,
                                      .memory_nodes = 100000,
                                      .message = message,
                                      .message_bytes = sizeof message};
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL);
    assert_non_null(strstr(message, "memory_nodes"));
    options.memory_nodes = 1;
    options.pool_bytes = 5;
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL);
    assert_non_null(strstr(message, "pool_bytes"));
    options.pool_bytes = 32u << 20;
    options.own = 9;
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL);
    assert_non_null(strstr(message, "own is 9"));
    options.own = BANYAN_OWN_DEFAULT;
    options.cache_policy = 5;
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL);
    assert_non_null(strstr(message, "cache_policy is 5"));
    options.cache_policy = BANYAN_CACHE_LEAVES;
    options.cache_admission = 1001;
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL);
    assert_non_null(strstr(message, "cache_admission is 1001"));
    memset(&newer, 0, sizeof newer);
    newer.known.struct_bytes = sizeof newer;
    newer.unknown = 1;
    assert_int_equal(banyan_open(&banyan, &newer.known), BANYAN_ENOTSUP);
    newer.unknown = 0;
    newer.known.pool_bytes = 32u << 20;
    assert_int_equal(banyan_open(&banyan, &newer.known), BANYAN_OK);
    assert_int_equal(banyan_close(banyan), BANYAN_OK);
    assert_int_equal(banyan_close(NULL), BANYAN_OK);
}

static void test_points(void **state)
{
    struct fixture *f = *state;
    char value[4];
    size_t length = sizeof value;
    assert_int_equal(put(f, "alpha", "one"), BANYAN_OK);
    expect(f, "alpha", "one");
    assert_int_equal(put(f, "alpha", "two"), BANYAN_OK);
    expect(f, "alpha", "two");
    assert_int_equal(banyan_insert(f->session, f->index, "alpha", 5, "x", 1), BANYAN_EEXIST);
    assert_true(strlen(banyan_session_error(f->session)) > 0);
    assert_int_equal(banyan_insert(f->session, f->index, "beta", 4, "longer", 6), BANYAN_OK);
    assert_int_equal(banyan_get(f->session, f->index, "beta", 4, value, &length), BANYAN_EVALUESIZE);
    assert_int_equal(length, 6);
    assert_int_equal(banyan_update(f->session, f->index, "gamma", 5, "x", 1), BANYAN_ENOTFOUND);
    assert_int_equal(banyan_update(f->session, f->index, "beta", 4, NULL, 0), BANYAN_OK);
    expect(f, "beta", "");
    assert_int_equal(banyan_compare_and_set(f->session, f->index, "alpha", 5, "one", 3, "x", 1),
                     BANYAN_ECONFLICT);
    assert_int_equal(banyan_compare_and_set(f->session, f->index, "alpha", 5, "two", 3, "x", 1), BANYAN_OK);
    assert_int_equal(banyan_compare_and_set(f->session, f->index, "none", 4, "a", 1, "x", 1),
                     BANYAN_ENOTFOUND);
    expect(f, "alpha", "x");
    assert_int_equal(banyan_delete(f->session, f->index, "alpha", 5), BANYAN_OK);
    assert_int_equal(banyan_delete(f->session, f->index, "alpha", 5), BANYAN_ENOTFOUND);
    length = sizeof value;
    assert_int_equal(banyan_get(f->session, f->index, "alpha", 5, value, &length), BANYAN_ENOTFOUND);
}

static void test_points_bad(void **state)
{
    struct fixture *f = *state;
    static const char big[300];
    char value[8];
    size_t length = sizeof value;
    assert_int_equal(banyan_put(NULL, f->index, "k", 1, "v", 1), BANYAN_EINVAL);
    assert_int_equal(banyan_put(f->session, NULL, "k", 1, "v", 1), BANYAN_EINVAL);
    assert_int_equal(banyan_put(f->session, f->index, NULL, 1, "v", 1), BANYAN_EINVAL);
    assert_int_equal(banyan_put(f->session, f->index, "k", 1, NULL, 1), BANYAN_EINVAL);
    assert_int_equal(banyan_put(f->session, f->index, "", 0, "v", 1), BANYAN_EKEYSIZE);
    assert_int_equal(banyan_put(f->session, f->index, big, 256, "v", 1), BANYAN_EKEYSIZE);
    assert_int_equal(banyan_put(f->session, f->index, "k", 1, big, f->value_max + 1), BANYAN_EVALUESIZE);
    assert_non_null(strstr(banyan_session_error(f->session), "words"));
    assert_int_equal(banyan_insert(f->session, f->index, "k", 1, big, f->value_max + 1), BANYAN_EVALUESIZE);
    assert_int_equal(banyan_update(f->session, f->index, big, 300, "v", 1), BANYAN_EKEYSIZE);
    assert_int_equal(banyan_delete(f->session, f->index, NULL, 4), BANYAN_EINVAL);
    assert_int_equal(banyan_get(f->session, f->index, "k", 1, value, NULL), BANYAN_EINVAL);
    assert_int_equal(banyan_get(f->session, f->index, "k", 1, NULL, &length), BANYAN_EINVAL);
    assert_int_equal(banyan_compare_and_set(f->session, f->index, "k", 1, NULL, 2, "v", 1), BANYAN_EINVAL);
    assert_int_equal(banyan_modify(f->session, f->index, "k", 1, NULL, NULL), BANYAN_EINVAL);
    assert_int_equal(banyan_multi_get(f->session, f->index, NULL, 1), BANYAN_EINVAL);
    assert_int_equal(banyan_iterator_next(NULL, NULL, NULL, NULL, NULL), BANYAN_EINVAL);
    struct banyan_session *none;
    assert_int_equal(banyan_session_open(NULL, &none), BANYAN_EINVAL);
    assert_null(none);
}

static void test_session_open_bad(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(banyan_session_open(f->banyan, NULL), BANYAN_EINVAL);
    assert_int_equal(banyan_session_close(NULL), BANYAN_OK);
    assert_string_equal(banyan_session_error(NULL), "the session is NULL");
    assert_int_equal(banyan_close(f->banyan), BANYAN_EBUSY);
}

static enum banyan_verdict modify_as_told(void *context, const void *old, size_t old_length, void *value,
                                          size_t *length)
{
    int verdict = *(int *)context;
    (void)old_length;
    memcpy(value, old ? "old" : "new", 3);
    *length = verdict == 77 ? *length + 1 : 3;
    return verdict == 77 ? BANYAN_STORE : (enum banyan_verdict)verdict;
}

static int modify(struct fixture *f, int verdict)
{
    return banyan_modify(f->session, f->index, "modified", 8, modify_as_told, &verdict);
}

static void test_modify(void **state)
{
    struct fixture *f = *state;
    char value[8];
    size_t length = sizeof value;
    assert_int_equal(modify(f, BANYAN_KEEP), BANYAN_OK);
    assert_int_equal(banyan_get(f->session, f->index, "modified", 8, value, &length), BANYAN_ENOTFOUND);
    assert_int_equal(modify(f, BANYAN_STORE), BANYAN_OK);
    expect(f, "modified", "new");
    assert_int_equal(modify(f, BANYAN_REFUSE), BANYAN_EABORT);
    assert_int_equal(modify(f, 99), BANYAN_EINVAL);
    assert_int_equal(modify(f, 77), BANYAN_EVALUESIZE);
    expect(f, "modified", "new");
    assert_int_equal(modify(f, BANYAN_STORE), BANYAN_OK);
    expect(f, "modified", "old");
    assert_int_equal(modify(f, BANYAN_REMOVE), BANYAN_OK);
    assert_int_equal(banyan_delete(f->session, f->index, "modified", 8), BANYAN_ENOTFOUND);
}

static void test_multi(void **state)
{
    struct fixture *f = *state;
    static char keys[200][8], values[200][8];
    struct banyan_item items[200];
    for (int i = 0; i < 200; i++) {
        snprintf(keys[i], sizeof keys[i], "m%03d", i);
        items[i] = (struct banyan_item){keys[i], 4, keys[i], 4, 1};
    }
    assert_int_equal(banyan_multi_put(f->session, f->index, items, 200), BANYAN_OK);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(items[i].status, BANYAN_OK);
        items[i] = (struct banyan_item){keys[i], 4, values[i], sizeof values[i], 1};
    }
    items[7].key = "absent";
    items[7].key_length = 6;
    assert_int_equal(banyan_multi_get(f->session, f->index, items, 200), BANYAN_OK);
    for (int i = 0; i < 200; i++) {
        assert_int_equal(items[i].status, i == 7 ? BANYAN_ENOTFOUND : BANYAN_OK);
        if (i != 7)
            assert_memory_equal(values[i], keys[i], 4);
    }
    items[3].key = NULL;
    items[9].length = 8;
    assert_int_equal(banyan_multi_get(f->session, f->index, items, 20), BANYAN_EINVAL);
    assert_int_equal(items[3].status, BANYAN_EINVAL);
    assert_int_equal(items[9].status, BANYAN_OK);
    assert_int_equal(banyan_multi_get(f->session, f->index, NULL, 0), BANYAN_OK);
}

enum { RANGE_KEYS = 1000 };

/* Walks the range and checks the numbers first, first + step, ... ; returns how many. */
static int walk(struct fixture *f, const struct banyan_range *range, int first, int step)
{
    struct banyan_iterator *iterator;
    const void *key;
    size_t key_length;
    char expected[8];
    int count = 0, status;
    assert_int_equal(banyan_iterator_open(f->session, f->index, range, &iterator), BANYAN_OK);
    while (!(status = banyan_iterator_next(iterator, &key, &key_length, NULL, NULL))) {
        snprintf(expected, sizeof expected, "r%04d", (first + step * count) % 10000);
        assert_int_equal(key_length, 5);
        assert_memory_equal(key, expected, 5);
        count++;
    }
    assert_int_equal(status, BANYAN_ENOTFOUND);
    assert_int_equal(banyan_iterator_next(iterator, NULL, NULL, NULL, NULL), BANYAN_ENOTFOUND);
    assert_int_equal(banyan_session_close(f->session), BANYAN_EBUSY);
    assert_int_equal(banyan_index_close(f->index), BANYAN_EBUSY);
    assert_int_equal(banyan_iterator_close(iterator), BANYAN_OK);
    return count;
}

static void test_iterator(void **state)
{
    struct fixture *f = *state;
    char key[8];
    for (int i = 0; i < RANGE_KEYS; i++) {
        snprintf(key, sizeof key, "r%04d", i);
        assert_int_equal(put(f, key, key), BANYAN_OK);
    }
    struct banyan_range range = {
        .struct_bytes = sizeof range, .from = "r", .from_length = 1, .to = "s", .to_length = 1};
    assert_int_equal(walk(f, &range, 0, 1), RANGE_KEYS);
    range.reverse = 1;
    assert_int_equal(walk(f, &range, RANGE_KEYS - 1, -1), RANGE_KEYS);
    range = (struct banyan_range){
        .struct_bytes = sizeof range, .from = "r0100", .from_length = 5, .to = "r0115", .to_length = 5};
    assert_int_equal(walk(f, &range, 100, 1), 16); /* exactly one batch */
    range.from_exclusive = range.to_exclusive = 1;
    assert_int_equal(walk(f, &range, 101, 1), 14);
    range.reverse = 1;
    assert_int_equal(walk(f, &range, 114, -1), 14);
    range.to = "r0100";
    assert_int_equal(walk(f, &range, 0, 1), 0);
    range.to = "q0000";
    assert_int_equal(walk(f, &range, 0, 1), 0);
}

static void test_iterator_bad(void **state)
{
    struct fixture *f = *state;
    static const char big[300];
    struct banyan_iterator *iterator;
    struct banyan_range range = {.struct_bytes = 3};
    assert_int_equal(banyan_iterator_open(f->session, f->index, &range, &iterator), BANYAN_EINVAL);
    range = (struct banyan_range){.struct_bytes = sizeof range, .from = big, .from_length = 256};
    assert_int_equal(banyan_iterator_open(f->session, f->index, &range, &iterator), BANYAN_EKEYSIZE);
    range = (struct banyan_range){.struct_bytes = sizeof range, .to_length = 2};
    assert_int_equal(banyan_iterator_open(f->session, f->index, &range, &iterator), BANYAN_EINVAL);
    assert_null(iterator);
    assert_int_equal(banyan_iterator_open(f->session, f->index, NULL, NULL), BANYAN_EINVAL);
    assert_int_equal(banyan_iterator_close(NULL), BANYAN_OK);
}

static void count_name(void *context, const char *name)
{
    *(int *)context += strcmp(name, "fixed") == 0;
}

static void test_indexes(void **state)
{
    struct fixture *f = *state;
    struct banyan_geometry geometry = {.struct_bytes = sizeof geometry, .key_bytes = 8, .value_bytes = 4};
    struct banyan_geometry bad = geometry;
    struct banyan_index *index, *again;
    char long_name[80];
    int met = 0;
    memset(long_name, 'n', sizeof long_name);
    long_name[sizeof long_name - 1] = 0;
    assert_int_equal(banyan_index_create(f->session, NULL, NULL, &index), BANYAN_EINVAL);
    assert_int_equal(banyan_index_create(f->session, "", NULL, &index), BANYAN_EINVAL);
    assert_int_equal(banyan_index_create(f->session, long_name, NULL, &index), BANYAN_EINVAL);
    bad.key_bytes = 4;
    assert_int_equal(banyan_index_create(f->session, "bad", &bad, &index), BANYAN_EINVAL);
    bad.key_bytes = 256;
    assert_int_equal(banyan_index_create(f->session, "bad", &bad, &index), BANYAN_EINVAL);
    assert_int_equal(banyan_index_open(f->session, "fixed", &index), BANYAN_ENOTFOUND);
    assert_int_equal(banyan_index_create(f->session, "fixed", &geometry, &index), BANYAN_OK);
    assert_int_equal(banyan_index_create(f->session, "fixed", &geometry, &again), BANYAN_EEXIST);
    assert_null(again);
    assert_int_equal(banyan_index_open(f->session, "fixed", &again), BANYAN_OK);
    geometry = (struct banyan_geometry){.struct_bytes = sizeof geometry};
    assert_int_equal(banyan_index_geometry(again, &geometry), BANYAN_OK);
    assert_int_equal(geometry.key_bytes, 8);
    assert_int_equal(geometry.value_bytes, 4);
    assert_true(geometry.leaf_bytes >= 512);
    assert_int_equal(banyan_put(f->session, index, "12345678", 8, "abcd", 4), BANYAN_OK);
    assert_int_equal(banyan_put(f->session, index, "1234567", 7, "abcd", 4), BANYAN_EKEYSIZE);
    assert_int_equal(banyan_put(f->session, index, "12345678", 8, "abc", 3), BANYAN_EVALUESIZE);
    assert_int_equal(banyan_insert(f->session, again, "12345678", 8, "abcd", 4), BANYAN_EEXIST);
    assert_int_equal(banyan_index_list(f->session, count_name, &met), BANYAN_OK);
    assert_int_equal(met, 1);
    assert_int_equal(banyan_index_close(again), BANYAN_OK);
    assert_int_equal(banyan_index_close(index), BANYAN_OK);
}

/* Each kind of leaf, of fixed keys and of records; and a program that was built when there was one kind. */
static void test_leaf_kinds(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 6; i++) {
        const struct banyan_geometry geometry = {.struct_bytes = sizeof geometry,
                                                 .key_bytes = i < 3 ? 8 : 0,
                                                 .key_variable = i >= 3,
                                                 .value_bytes = i < 3 ? 8 : BANYAN_VALUE_MAX,
                                                 .value_variable = i >= 3,
                                                 .leaf_kind = i % 3};
        struct banyan_geometry told = {.struct_bytes = sizeof told};
        struct banyan_index *index;
        char name[8], value[8];
        snprintf(name, sizeof name, "kind%u", i);
        assert_int_equal(banyan_index_create(f->session, name, &geometry, &index), BANYAN_OK);
        for (unsigned key = 0; key < 500; key++) {
            snprintf(value, sizeof value, "%07u", key);
            assert_int_equal(banyan_put(f->session, index, value, 8, value, 8), BANYAN_OK);
        }
        for (unsigned key = 0; key < 500; key++) {
            char wanted[8];
            size_t length = sizeof value;
            snprintf(wanted, sizeof wanted, "%07u", key);
            assert_int_equal(banyan_get(f->session, index, wanted, 8, value, &length), BANYAN_OK);
            assert_memory_equal(value, wanted, 8);
        }
        assert_int_equal(banyan_index_geometry(index, &told), BANYAN_OK);
        assert_int_equal(told.leaf_kind, i % 3);
        assert_int_equal(banyan_index_close(index), BANYAN_OK);
        assert_int_equal(banyan_index_drop(f->session, name), BANYAN_OK);
    }
    const size_t before = offsetof(struct banyan_geometry, leaf_kind);
    struct banyan_geometry geometry = {.struct_bytes = before, .key_bytes = 8, .value_bytes = 8};
    struct banyan_index *index;
    geometry.leaf_kind = 77; /* not the library's business */
    assert_int_equal(banyan_index_create(f->session, "older", &geometry, &index), BANYAN_OK);
    assert_int_equal(banyan_index_geometry(index, &geometry), BANYAN_OK);
    assert_int_equal(geometry.leaf_kind, 77);
    geometry.struct_bytes = sizeof geometry;
    assert_int_equal(banyan_index_geometry(index, &geometry), BANYAN_OK);
    assert_int_equal(geometry.leaf_kind, BANYAN_LEAF_HASHED);
    assert_int_equal(banyan_index_close(index), BANYAN_OK);
    assert_int_equal(banyan_index_drop(f->session, "older"), BANYAN_OK);
    geometry.leaf_kind = BANYAN_LEAF_DENSE + 1;
    assert_int_equal(banyan_index_create(f->session, "older", &geometry, &index), BANYAN_EINVAL);
    geometry.leaf_kind = 0;
    geometry.reserved = 1;
    assert_int_equal(banyan_index_create(f->session, "older", &geometry, &index), BANYAN_EINVAL);
}

/* Two handles of one index are alike, and each may be closed first. */
static void test_handles(void **state)
{
    struct fixture *f = *state;
    struct banyan_index *again, *third;
    assert_int_equal(banyan_index_open(f->session, "words", &again), BANYAN_OK);
    assert_int_equal(put(f, "handle", "one"), BANYAN_OK);
    assert_int_equal(banyan_put(f->session, again, "handle", 6, "two", 3), BANYAN_OK);
    expect(f, "handle", "two");
    assert_int_equal(banyan_index_open(f->session, "words", &third), BANYAN_OK);
    assert_int_equal(banyan_index_close(again), BANYAN_OK);
    assert_int_equal(banyan_delete(f->session, third, "handle", 6), BANYAN_OK);
    assert_int_equal(banyan_index_close(third), BANYAN_OK);
    assert_int_equal(banyan_delete(f->session, f->index, "handle", 6), BANYAN_ENOTFOUND);
    assert_int_equal(put(f, "handle", "three"), BANYAN_OK);
    expect(f, "handle", "three");
}

/* A pool of this process that owns nothing writes as in a cluster: a lock is taken by an atomic, where an
 * owner takes none. */
static void test_own(void **state)
{
    uint64_t atomics[2];
    (void)state;
    for (uint32_t own = 0; own < 2; own++) {
        struct banyan_options options = {.struct_bytes = sizeof options,
                                         .pool_bytes = 32u << 20,
                                         .own = own ? BANYAN_OWN_AUTO : BANYAN_OWN_NONE};
        struct banyan_session_stats stats = {.struct_bytes = sizeof stats};
        struct banyan *banyan;
        struct banyan_session *session;
        struct banyan_index *index;
        assert_int_equal(banyan_open(&banyan, &options), BANYAN_OK);
        assert_int_equal(banyan_session_open(banyan, &session), BANYAN_OK);
        assert_int_equal(banyan_index_create(session, "words", NULL, &index), BANYAN_OK);
        assert_int_equal(banyan_put(session, index, "key", 3, "one", 3), BANYAN_OK);
        assert_int_equal(banyan_session_stats_reset(session), BANYAN_OK);
        assert_int_equal(banyan_put(session, index, "key", 3, "two", 3), BANYAN_OK);
        assert_int_equal(banyan_session_stats(session, &stats), BANYAN_OK);
        atomics[own] = stats.atomics;
        assert_int_equal(banyan_index_close(index), BANYAN_OK);
        assert_int_equal(banyan_session_close(session), BANYAN_OK);
        assert_int_equal(banyan_close(banyan), BANYAN_OK);
    }
    assert_true(atomics[0] > 0);
    assert_int_equal(atomics[1], 0);
}

/* The handle that is open while its index is dropped finds nothing, also when there is another in its place.
 */
static void test_drop(void **state)
{
    struct fixture *f = *state;
    struct banyan_index *index, *again;
    struct banyan_iterator *iterator;
    struct banyan_session *other;
    struct banyan_pool_status before = {.struct_bytes = sizeof before}, after = before;
    char key[16], value[700] = "";
    size_t room = sizeof value, long_value = f->geometry ? 60 : sizeof value;
    assert_int_equal(banyan_index_drop(f->session, "second"), BANYAN_ENOTFOUND);
    assert_int_equal(banyan_index_drop(f->session, ""), BANYAN_EINVAL);
    assert_int_equal(banyan_index_drop(f->session, NULL), BANYAN_EINVAL);
    assert_int_equal(banyan_index_drop(NULL, "second"), BANYAN_EINVAL);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(banyan_session_open(f->banyan, &other), BANYAN_OK);
        assert_int_equal(banyan_index_create(other, "second", f->geometry, &index), BANYAN_OK);
        for (int i = 0; i < 3000; i++) {
            snprintf(key, sizeof key, "key%d", i);
            assert_int_equal(banyan_put(other, index, key, strlen(key), value, i % 3 ? 10 : long_value),
                             BANYAN_OK);
        }
        assert_int_equal(banyan_iterator_open(other, index, NULL, &iterator), BANYAN_OK);
        assert_int_equal(banyan_iterator_next(iterator, NULL, NULL, NULL, NULL), BANYAN_OK);
        assert_int_equal(banyan_index_drop(f->session, "second"), BANYAN_OK);
        assert_int_equal(banyan_index_drop(f->session, "second"), BANYAN_ENOTFOUND);
        assert_int_equal(banyan_index_open(f->session, "second", &again), BANYAN_ENOTFOUND);
        assert_int_equal(banyan_index_create(f->session, "second", f->geometry, &again), BANYAN_OK);
        assert_int_equal(banyan_put(f->session, again, "key1", 4, "new", 3), BANYAN_OK);
        assert_int_equal(banyan_get(other, index, "key1", 4, value, &room), BANYAN_ENOTFOUND);
        assert_int_equal(banyan_put(other, index, "key2", 4, "new", 3), BANYAN_ENOTFOUND);
        assert_non_null(strstr(banyan_session_error(other), "was dropped"));
        int status;
        while (!(status = banyan_iterator_next(iterator, NULL, NULL, NULL, NULL)))
            ;
        assert_int_equal(status, BANYAN_ENOTFOUND);
        assert_int_equal(banyan_iterator_close(iterator), BANYAN_OK);
        assert_int_equal(banyan_index_close(index), BANYAN_OK);
        assert_int_equal(banyan_session_close(other), BANYAN_OK);
        room = sizeof value;
        assert_int_equal(banyan_get(f->session, again, "key2", 4, value, &room), BANYAN_ENOTFOUND);
        assert_int_equal(banyan_index_close(again), BANYAN_OK);
        assert_int_equal(banyan_index_drop(f->session, "second"), BANYAN_OK);
        assert_int_equal(banyan_pool_status(f->banyan, round ? &after : &before), BANYAN_OK);
    }
    assert_int_equal(after.blocks_used, before.blocks_used); /* all came back */
}

static void test_other_pool(void **state)
{
    struct fixture *f = *state;
    struct banyan_options options = {.struct_bytes = sizeof options, .pool_bytes = 32u << 20};
    struct banyan *other;
    struct banyan_session *session;
    assert_int_equal(banyan_open(&other, &options), BANYAN_OK);
    assert_int_equal(banyan_session_open(other, &session), BANYAN_OK);
    assert_int_equal(banyan_put(session, f->index, "k", 1, "v", 1), BANYAN_EINVAL);
    assert_int_equal(banyan_session_close(session), BANYAN_OK);
    assert_int_equal(banyan_close(other), BANYAN_OK);
}

static void test_stats(void **state)
{
    struct fixture *f = *state;
    struct banyan_session_stats stats = {.struct_bytes = sizeof stats};
    struct banyan_pool_status status = {.struct_bytes = sizeof status};
    assert_int_equal(banyan_session_stats_reset(f->session), BANYAN_OK);
    assert_int_equal(put(f, "counted", "x"), BANYAN_OK);
    assert_int_equal(banyan_session_stats(f->session, &stats), BANYAN_OK);
    assert_int_equal(stats.operations, 1);
    assert_true(stats.round_trips >= 1 && stats.bytes_written > 0);
    assert_int_equal(banyan_pool_status(f->banyan, &status), BANYAN_OK);
    assert_int_equal(status.memory_nodes, 1);
    assert_true(status.chunks_used >= 1 && status.chunks_used <= status.chunks_total);
    assert_true(status.blocks_used >= 1 && status.bytes_used >= status.blocks_used * 32);
    assert_true(status.bytes_used + status.bytes_free_in_chunks <= status.chunks_used * status.chunk_bytes);
    stats.struct_bytes = 2;
    assert_int_equal(banyan_session_stats(f->session, &stats), BANYAN_EINVAL);
    assert_int_equal(banyan_pool_status(f->banyan, NULL), BANYAN_EINVAL);
}

/* What is told of the cache and of ranges, where nothing is owned, or owned as a whole without a cache. */
static void test_cache_stats(void **state)
{
    struct fixture *f = *state;
    struct banyan_cache_stats cache = {.struct_bytes = sizeof cache};
    struct banyan_ownership_stats owner = {.struct_bytes = sizeof owner};
    char key[16];
    for (int i = 0; i < 500; i++) {
        snprintf(key, sizeof key, "cached%d", i);
        assert_int_equal(put(f, key, "x"), BANYAN_OK);
    }
    assert_int_equal(banyan_index_cache_stats(f->index, &cache), BANYAN_OK);
    assert_int_equal(cache.budget_bytes, 64u << 20);
    assert_true(cache.inner_nodes >= 1 && cache.inner_bytes >= cache.inner_nodes * 512);
    assert_int_equal(cache.inner_admissions - cache.inner_evictions >= cache.inner_nodes, 1);
    assert_int_equal(cache.leaves + cache.leaf_hits + cache.entry_hits + cache.entry_bytes, 0);
    assert_int_equal(banyan_ownership_stats(f->banyan, &owner), BANYAN_OK);
    assert_int_equal(owner.ranges_owned, 0);
    cache.struct_bytes = owner.struct_bytes = 2;
    assert_int_equal(banyan_index_cache_stats(f->index, &cache), BANYAN_EINVAL);
    assert_int_equal(banyan_ownership_stats(f->banyan, &owner), BANYAN_EINVAL);
    assert_int_equal(banyan_index_cache_stats(NULL, &cache), BANYAN_EINVAL);
    assert_int_equal(banyan_ownership_stats(f->banyan, NULL), BANYAN_EINVAL);
}

/* A process that owns the whole index reads it from its cache: leaves, entries or both, as it was told. */
static void own_and_cache(uint32_t policy)
{
    struct banyan_options options = {.struct_bytes = sizeof options,
                                     .uri = uri,
                                     .copy = 1, /* a mapped pool is not cached */
                                     .own = BANYAN_OWN_AUTO,
                                     .read_lease_ms = 10000,
                                     .cache_bytes = 8u << 20,
                                     .cache_policy = policy,
                                     .cache_admission = 1000};
    struct banyan_cache_stats cache = {.struct_bytes = sizeof cache};
    struct banyan_ownership_stats owner = {.struct_bytes = sizeof owner};
    struct fixture f = {0};
    char name[16];
    snprintf(name, sizeof name, "cached-%u", policy);
    assert_int_equal(banyan_open(&f.banyan, &options), BANYAN_OK);
    assert_int_equal(banyan_session_open(f.banyan, &f.session), BANYAN_OK);
    assert_int_equal(banyan_index_create(f.session, name, NULL, &f.index), BANYAN_OK);
    assert_int_equal(put(&f, "key", "value"), BANYAN_OK);
    for (int i = 0; i < 20; i++)
        expect(&f, "key", "value");
    assert_int_equal(banyan_ownership_stats(f.banyan, &owner), BANYAN_OK);
    assert_true(owner.ranges >= 1 && owner.ranges_owned == owner.ranges && owner.map_version >= 1);
    assert_int_equal(owner.forwarded_lookups + owner.forwarded_writes + owner.unreachable, 0);
    assert_int_equal(banyan_index_cache_stats(f.index, &cache), BANYAN_OK);
    assert_int_equal(cache.budget_bytes, 8u << 20);
    const bool leaves = policy == BANYAN_CACHE_LEAVES || policy == BANYAN_CACHE_ALL;
    const bool entries = policy == BANYAN_CACHE_ENTRIES || policy == BANYAN_CACHE_ALL;
    assert_int_equal(cache.leaves > 0 && cache.leaf_bytes > 0 && cache.leaf_admissions > 0, leaves);
    assert_int_equal(cache.entry_bytes > 0, entries);
    assert_int_equal(cache.entry_admissions > 0, entries);
    if (leaves || entries)
        assert_true(cache.leaf_hits + cache.entry_hits >= 10);
    else
        assert_int_equal(cache.leaf_hits + cache.entry_hits + cache.leaf_misses + cache.entry_misses, 0);
    assert_int_equal(banyan_index_close(f.index), BANYAN_OK);
    assert_int_equal(banyan_session_close(f.session), BANYAN_OK);
    assert_int_equal(banyan_close(f.banyan), BANYAN_OK);
}

static void test_cache_policies(void **state)
{
    (void)state;
    own_and_cache(BANYAN_CACHE_INNER);
    own_and_cache(BANYAN_CACHE_LEAVES);
    own_and_cache(BANYAN_CACHE_ENTRIES);
    own_and_cache(BANYAN_CACHE_ALL);
}

static int next_descending(void *context, const void **key, size_t *key_length, const void **value,
                           size_t *length)
{
    static const char *const keys[] = {"b", "a"};
    int *number = context;
    if (*number == 2)
        return 0;
    *key = keys[(*number)++];
    *key_length = 1;
    *value = NULL;
    *length = 0;
    return 1;
}

static void test_bulk_bad(void **state)
{
    struct fixture *f = *state;
    struct banyan_index *index;
    struct banyan_bulk *bulk;
    int number = 0;
    assert_int_equal(banyan_index_create(f->session, "bulk", &plain, &index), BANYAN_OK);
    assert_int_equal(banyan_bulk_begin(f->session, index, 0, 0, &bulk), BANYAN_EINVAL);
    assert_int_equal(banyan_bulk_begin(f->session, index, 1, 1.5, &bulk), BANYAN_EINVAL);
    assert_int_equal(banyan_bulk_begin(f->session, index, 1, 0, &bulk), BANYAN_OK);
    assert_int_equal(banyan_bulk_part(f->session, bulk, 1, next_descending, &number), BANYAN_EINVAL);
    assert_int_equal(banyan_bulk_part(f->session, bulk, 0, NULL, NULL), BANYAN_EINVAL);
    assert_int_not_equal(banyan_bulk_part(f->session, bulk, 0, next_descending, &number), BANYAN_OK);
    banyan_bulk_finish(f->session, bulk);
    assert_int_equal(banyan_bulk_finish(f->session, NULL), BANYAN_EINVAL);
    assert_int_equal(banyan_index_close(index), BANYAN_OK);
}

/* ---- records alone ---- */

static char *pattern(size_t length, unsigned seed)
{
    char *bytes = malloc(length + 1);
    assert_non_null(bytes);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (char)(seed + i * 31 + (i >> 9));
    return bytes;
}

static void test_long_values(void **state)
{
    static const size_t lengths[] = {0, 1, 16, 17, 255, 256, 70000, (1u << 20) + 1, 5u << 20};
    struct fixture *f = *state;
    for (unsigned i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char key[32], *value = pattern(lengths[i], i), *found = malloc(lengths[i] + 1);
        size_t length = lengths[i] ? lengths[i] - 1 : 0,
               key_length = (size_t)snprintf(key, sizeof key, "long%u", i);
        assert_int_equal(banyan_put(f->session, f->index, key, key_length, value, lengths[i]), BANYAN_OK);
        if (lengths[i])
            assert_int_equal(banyan_get(f->session, f->index, key, key_length, found, &length),
                             BANYAN_EVALUESIZE);
        assert_int_equal(length, lengths[i]);
        assert_int_equal(banyan_get(f->session, f->index, key, key_length, found, &length), BANYAN_OK);
        assert_int_equal(length, lengths[i]);
        assert_memory_equal(found, value, length);
        free(found);
        free(value);
    }
    /* an iterator meets them all, longer batches than its buffer included */
    struct banyan_iterator *iterator;
    struct banyan_range range = {
        .struct_bytes = sizeof range, .from = "long", .from_length = 4, .to = "long~", .to_length = 5};
    const void *value;
    size_t length, met = 0;
    assert_int_equal(banyan_iterator_open(f->session, f->index, &range, &iterator), BANYAN_OK);
    while (!banyan_iterator_next(iterator, NULL, NULL, &value, &length)) {
        char *wanted = pattern(lengths[met], (unsigned)met);
        assert_int_equal(length, lengths[met++]);
        assert_memory_equal(value, wanted, length);
        free(wanted);
    }
    assert_int_equal(met, sizeof lengths / sizeof *lengths);
    assert_int_equal(banyan_iterator_close(iterator), BANYAN_OK);
}

/* More than the store reads at once. */
static void test_multi_large(void **state)
{
    struct fixture *f = *state;
    enum { COUNT = 5 };
    struct banyan_item items[COUNT + 1];
    char *value = malloc(BANYAN_VALUE_MAX), *room = malloc(BANYAN_VALUE_MAX), small[8];
    assert_true(value && room);
    memset(value, 'v', BANYAN_VALUE_MAX);
    assert_int_equal(banyan_put(f->session, f->index, "large", 5, value, BANYAN_VALUE_MAX), BANYAN_OK);
    for (unsigned i = 0; i < COUNT; i++)
        items[i] =
            (struct banyan_item){.key = "large", .key_length = 5, .value = room, .length = BANYAN_VALUE_MAX};
    items[COUNT] =
        (struct banyan_item){.key = "large", .key_length = 5, .value = small, .length = sizeof small};
    assert_int_equal(banyan_multi_get(f->session, f->index, items, COUNT), BANYAN_OK);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(items[i].status, BANYAN_OK);
        assert_int_equal(items[i].length, BANYAN_VALUE_MAX);
    }
    assert_memory_equal(room, value, BANYAN_VALUE_MAX);
    assert_int_equal(banyan_multi_get(f->session, f->index, &items[COUNT], 1), BANYAN_EVALUESIZE);
    assert_int_equal(items[COUNT].length, BANYAN_VALUE_MAX);
    assert_non_null(strstr(banyan_session_error(f->session), "room for 8"));
    free(value);
    free(room);
}

static void test_records_expire(void **state)
{
    struct fixture *f = *state;
    char value[8];
    size_t length = sizeof value;
    assert_int_equal(banyan_put_until(f->session, f->index, "past", 4, "gone", 4, 1), BANYAN_OK);
    assert_int_equal(banyan_get(f->session, f->index, "past", 4, value, &length), BANYAN_ENOTFOUND);
    assert_int_equal(banyan_put_until(f->session, f->index, "future", 6, "here", 4, UINT64_C(32503680000000)),
                     BANYAN_OK);
    expect(f, "future", "here");
}

static void test_records_elsewhere(void **state)
{
    struct fixture *f = *state;
    struct banyan_index *other, *bulk_index;
    struct banyan_bulk *bulk;
    struct banyan_geometry geometry = {.struct_bytes = sizeof geometry};
    /* a second handle of the same index sees the same entries, and may be closed while the session stays */
    assert_int_equal(put(f, "shared", "by both"), BANYAN_OK);
    assert_int_equal(banyan_index_open(f->session, "words", &other), BANYAN_OK);
    char value[16];
    size_t length = sizeof value;
    assert_int_equal(banyan_get(f->session, other, "shared", 6, value, &length), BANYAN_OK);
    assert_int_equal(length, 7);
    assert_int_equal(banyan_index_geometry(other, &geometry), BANYAN_OK);
    assert_int_equal(geometry.value_bytes, BANYAN_VALUE_MAX);
    assert_int_equal(banyan_index_close(other), BANYAN_OK);
    expect(f, "shared", "by both");
    assert_int_equal(banyan_bulk_begin(f->session, f->index, 1, 0, &bulk), BANYAN_ENOTSUP);
    geometry.key_variable = 0;
    assert_int_equal(banyan_index_create(f->session, "fixed", &geometry, &bulk_index), BANYAN_EINVAL);
}

static void test_plain_does_not_expire(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(banyan_put_until(f->session, f->index, "k", 1, "v", 1, 5), BANYAN_ENOTSUP);
}

static void test_uri_bad(void **state)
{
    (void)state;
    struct banyan *banyan = NULL;
    char message[300];
    struct banyan_options options = {.struct_bytes = sizeof options,
                                     .message = message,
                                     .message_bytes = sizeof message,
                                     .timeout_ms = 500};
    options.uri = "unix:/nonexistent/banyan.sock";
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_ENET);
    assert_non_null(strstr(message, "/nonexistent/banyan.sock"));
    options.uri = "tcp://host:port:7";
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL);
    options.uri = "unix:/nonexistent/banyan.sock";
    options.secret_file = "/nonexistent/secret";
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_ENOTFOUND);
    assert_non_null(strstr(message, "/nonexistent/secret"));
    options.secret_file = NULL;
    options.certificate_file = "/nonexistent/node.pem";
    assert_int_equal(banyan_open(&banyan, &options), BANYAN_EINVAL);
    assert_null(banyan);
}

/* ---- all of it, three times ---- */

#define COMMON_TESTS                                                                                         \
    cmocka_unit_test(test_version), cmocka_unit_test(test_open_bad), cmocka_unit_test(test_points),          \
        cmocka_unit_test(test_points_bad), cmocka_unit_test(test_modify), cmocka_unit_test(test_multi),      \
        cmocka_unit_test(test_iterator), cmocka_unit_test(test_iterator_bad),                                \
        cmocka_unit_test(test_indexes), cmocka_unit_test(test_handles), cmocka_unit_test(test_leaf_kinds),   \
        cmocka_unit_test(test_drop), cmocka_unit_test(test_other_pool), cmocka_unit_test(test_stats),        \
        cmocka_unit_test(test_bulk_bad), cmocka_unit_test(test_session_open_bad),                            \
        cmocka_unit_test(test_cache_stats)
static const struct CMUnitTest plain_tests[] = {COMMON_TESTS, cmocka_unit_test(test_plain_does_not_expire),
                                                cmocka_unit_test(test_own),
                                                cmocka_unit_test(test_log_options)};
static const struct CMUnitTest record_tests[] = {COMMON_TESTS,
                                                 cmocka_unit_test(test_long_values),
                                                 cmocka_unit_test(test_multi_large),
                                                 cmocka_unit_test(test_records_expire),
                                                 cmocka_unit_test(test_records_elsewhere),
                                                 cmocka_unit_test(test_uri_bad)};

static const struct CMUnitTest cache_tests[] = {cmocka_unit_test(test_cache_policies)};

/* A memory node in a process of its own, at a socket in `folder`; 0: it does not start. */
static pid_t start_daemon(const char *program, const char *folder)
{
    char address[160], line[256];
    int ends[2];
    snprintf(address, sizeof address, "unix:%s/memory.sock", folder);
    if (pipe(ends))
        return 0;
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        execl(program, program, "memory", "--listen", address, "--size", "256M", "--log-level", "warning",
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    bool serves = child > 0 && output && fgets(line, sizeof line, output);
    if (output)
        fclose(output);
    if (serves)
        snprintf(uri, sizeof uri, "%s", address);
    return serves ? child : 0;
}

static int run_cluster(const char *program)
{
    char folder[] = "/tmp/banyan-api-XXXXXX";
    if (!mkdtemp(folder))
        return 1;
    pid_t child = start_daemon(program, folder);
    int failed =
        child ? cmocka_run_group_tests_name("records in a cluster", record_tests, setup_records, teardown) +
                    cmocka_run_group_tests_name("a cache in a cluster", cache_tests, NULL, NULL)
              : 1;
    if (child) {
        int status = 0;
        kill(child, SIGTERM);
        waitpid(child, &status, 0);
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    rmdir(folder);
    return failed;
}

/* Argument: the `banyan` program, for its memory node; without it the cluster is left out. With $BANYAN_URI
 * the tests run on the memory node there, which they format, and nowhere else. */
int main(int argc, char **argv)
{
    const char *there = getenv("BANYAN_URI");
    if (there) {
        snprintf(uri, sizeof uri, "%s", there);
        return cmocka_run_group_tests_name("records there", record_tests, setup_records, teardown);
    }
    int failed = cmocka_run_group_tests_name("plain values", plain_tests, setup_plain, teardown);
    failed += cmocka_run_group_tests_name("records", record_tests, setup_records, teardown);
    if (argc > 1)
        failed += run_cluster(argv[1]);
    return failed;
}
