/*
 * test_names.c - journals name the indexes (P9): which there are when they are read back, in which order the
 * records stand, what becomes of the names when an index is dropped, the memory node is started again, or
 * files of the journal are released; and values of indexes that no store fills. One thread.
 */
#include "log/processes.h"

#include <string.h>

#include "base/error.h"
#include "disk/disk_simulated.h"
#include "format/catalogue.h"
#include "persist/drain.h"
#include "persist/replay.h"

#define CLUSTER 78u

static const struct format_geometry geometry = {.key_kind = FORMAT_KEY_FIXED,
                                                .key_bytes = 8,
                                                .value_bytes = PROCESSES_VALUE,
                                                .leaf_bytes = 512,
                                                .internal_bytes = 512};

static struct processes processes;
static struct process *first; /* its session creates and drops */
static struct fabric_target targets[PROCESSES_NODES];
static struct disk *disk;
static struct journal *journal;
static struct persist_drain *drain;

static void good(int status, const struct error *error)
{
    if (status)
        fail_msg("%s: %s", error_name(status), error->text);
}

/* ---- the memory nodes, and their disk ---- */

static void (*while_copying)(void); /* called once, behind the pass's look at the catalogue */

static int target_call(void *owner, uint16_t compute, const void *request, size_t length, void *reply,
                       size_t capacity, size_t *reply_length)
{
    const struct fabric_target *inner = memory_node_target(owner);
    void (*hook)(void) = while_copying;
    while_copying = NULL;
    if (hook)
        hook();
    return inner->call(inner->owner, compute, request, length, reply, capacity, reply_length);
}

static void life_begin(void)
{
    const struct fabric_target *all[PROCESSES_NODES];
    const struct journal_options options = {.cluster = CLUSTER, .seed = 3};
    struct journal_reader reader = {.context = NULL};
    struct error error = {0};
    for (unsigned i = 0; i < PROCESSES_NODES; i++)
        all[i] = &targets[i];
    good(journal_open(&journal, disk, &options, &reader, &error), &error);
    good(persist_drain_create(&drain, all, PROCESSES_NODES, journal, &error), &error);
}

static void life_end(void)
{
    persist_drain_destroy(drain);
    journal_close(journal);
}

static void begin(void)
{
    const struct disk_simulated_options options = {.seed = 1};
    processes_open(&processes, PROCESSES_NODES, 0);
    first = process_begin(&processes);
    for (unsigned i = 0; i < PROCESSES_NODES; i++) {
        targets[i] = *memory_node_target(processes.memory[i]);
        targets[i].call = target_call;
        targets[i].owner = processes.memory[i];
    }
    disk = disk_simulated_create(&options);
    assert_non_null(disk);
    life_begin();
}

static void end(void)
{
    life_end();
    processes_close(&processes);
    disk_close(disk);
}

static void pass(void)
{
    struct error error = {0};
    uint64_t safe;
    good(persist_drain_pass(drain, &error), &error);
    good(journal_sync(journal, &safe, &error), &error);
}

static uint16_t create(const char *name)
{
    struct tree *tree;
    process_check(first, tree_create(first->session, name, &geometry, &tree));
    const uint16_t number = tree_number(tree);
    tree_close(tree);
    return number;
}

static void drop(const char *name)
{
    process_check(first, tree_drop(first->session, name, NULL, NULL));
}

/* ---- what is read back ---- */

struct back {
    struct persist_replay *replay;
    struct journal *journal;
    struct disk *disk;
    unsigned named, anew, unnamed; /* records; frames' entries that no record before them has named */
    uint64_t keys, values;         /* and the sum of the values */
};

static int record_take(void *context, const struct journal_record *record, struct error *error)
{
    struct back *back = context;
    struct persist_frame frame;
    struct persist_index index;
    struct format_log_entry entry;
    uint32_t at = 0;
    if (record->kind == PERSIST_INDEX) {
        assert_true(persist_index_decode(record->bytes, record->length, &index));
        back->anew += !index.number;
        back->named += index.number != 0;
    } else if (record->kind == PERSIST_FRAME || record->kind == PERSIST_FRAME_TELLING) {
        assert_true(persist_frame_decode(record->kind, record->bytes, record->length, &frame));
        while (format_log_frame_next(&frame.view, &at, &entry))
            back->unnamed += !persist_replay_index(back->replay, entry.index);
    }
    return persist_replay_record(back->replay, record, error);
}

static int value_take(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    struct back *back = context;
    uint64_t value;
    (void)index, (void)error;
    assert_int_equal(entry->value_length, PROCESSES_VALUE);
    memcpy(&value, entry->value, sizeof value);
    back->keys++;
    back->values += value;
    return 0;
}

/* Power is cut, and the disk is read. */
static void read_back(struct back *back)
{
    const struct journal_options options = {.cluster = CLUSTER, .seed = 5};
    struct journal_reader reader = {.visit = record_take, .context = back};
    struct error error = {0};
    *back = (struct back){.disk = disk_simulated_cut(disk)};
    assert_non_null(back->disk);
    good(persist_replay_create(&back->replay, &back->disk, 1, &error), &error);
    persist_replay_next(back->replay, 0);
    good(journal_open(&back->journal, back->disk, &options, &reader, &error), &error);
    good(persist_replay_all(back->replay, value_take, back, &error), &error);
}

static void back_end(struct back *back)
{
    persist_replay_destroy(back->replay);
    journal_close(back->journal);
    disk_close(back->disk);
}

/* Whether it is there under this name. */
static bool live(const struct back *back, uint16_t number, const char *name)
{
    const struct persist_index *index = persist_replay_index(back->replay, number);
    if (!index || index->gone || strcmp(index->name, name))
        return false;
    assert_int_equal(index->geometry.key_bytes, 8);
    assert_int_equal(index->geometry.value_bytes, PROCESSES_VALUE);
    assert_int_equal(index->geometry.leaf_bytes, 512);
    assert_int_equal(index->geometry.content, FORMAT_CONTENT_PLAIN);
    return true;
}

static bool gone(const struct back *back, uint16_t number)
{
    const struct persist_index *index = persist_replay_index(back->replay, number);
    return index && index->gone;
}

/* ---- the tests ---- */

static void indexes_are_named(void **state)
{
    struct back back;
    (void)state;
    begin();
    const uint16_t a = create("a"), b = create("b");
    pass();
    pass(); /* tells nothing again */
    read_back(&back);
    assert_true(live(&back, a, "a") && live(&back, b, "b"));
    assert_int_equal(back.named, 2);
    assert_int_equal(back.anew, 1);
    assert_null(persist_replay_index(back.replay, 77));
    back_end(&back);
    drop("a");
    const uint16_t c = create("c"), again = create("a"); /* where the old one was, or elsewhere */
    pass();
    read_back(&back);
    assert_true(gone(&back, a) && live(&back, b, "b") && live(&back, c, "c") && live(&back, again, "a"));
    back_end(&back);
    end();
}

/* What was dropped while nobody looked is not there when the next life has told all that there are. */
static void a_life_begins_anew(void **state)
{
    struct back back;
    (void)state;
    begin();
    const uint16_t a = create("a"), b = create("b");
    pass();
    life_end();
    drop("a");
    life_begin();
    pass();
    read_back(&back);
    assert_true(gone(&back, a) && live(&back, b, "b"));
    assert_int_equal(back.anew, 2);
    assert_int_equal(back.named, 3);
    back_end(&back);
    (void)persist_drain_forget(drain, 0); /* the files with all of that are to be released */
    pass();
    read_back(&back);
    assert_true(gone(&back, a) && live(&back, b, "b"));
    assert_int_equal(back.anew, 3);
    assert_int_equal(back.named, 4);
    back_end(&back);
    end();
}

static struct process *late;

static void late_index(void)
{
    struct tree *tree;
    process_check(late, tree_create(late->session, "late", &geometry, &tree));
    process_attach(late, tree);
    process_own(&processes, late);
    for (unsigned i = 0; i < 10; i++)
        process_check(late, process_put(late, i, 1000 + i));
}

/* The pass has looked at the catalogue, and meets a frame of an index that is younger. */
static void a_name_stands_before_its_frames(void **state)
{
    struct back back;
    (void)state;
    begin();
    late = process_begin(&processes);
    while_copying = late_index;
    pass();
    read_back(&back);
    assert_true(live(&back, tree_number(late->tree), "late"));
    assert_int_equal(back.unnamed, 0);
    assert_int_equal(back.keys, 10);
    back_end(&back);
    end();
}

/* Values that are no store's, and look like anything: they are what they are. */
static void plain_values_are_read_back(void **state)
{
    struct back back;
    uint64_t sum = 0;
    (void)state;
    begin();
    struct process *process = first;
    process_check(process, tree_create(process->session, "plain", &geometry, &process->tree));
    process_attach(process, process->tree);
    process_own(&processes, process);
    for (unsigned i = 0; i < 600; i++) {
        const uint64_t value = i * UINT64_C(0x0102030405060708);
        process_check(process, process_put(process, i, value));
        sum += value;
    }
    process_check(process, process_delete(process, 1));
    pass();
    read_back(&back);
    assert_int_equal(back.keys, 599);
    assert_true(back.values == sum - UINT64_C(0x0102030405060708));
    back_end(&back);
    end();
}

/* What makes no sense is refused, and nothing else. */
static void records_are_validated(void **state)
{
    struct persist_index index = {.number = 5, .geometry = geometry, .name = "orders", .name_length = 6};
    struct persist_index found;
    uint8_t bytes[PERSIST_INDEX_BYTES];
    uint32_t length = persist_index_encode(&index, bytes);
    (void)state;
    assert_true(persist_index_decode(bytes, length, &found));
    assert_int_equal(found.number, 5);
    assert_memory_equal(found.name, "orders", 6);
    assert_memory_equal(&found.geometry.key_bytes, &geometry.key_bytes, 1);
    for (uint32_t cut = 0; cut < length; cut++)
        assert_false(persist_index_decode(bytes, cut, &found));
    for (unsigned at = 12; at < 20; at++) {    /* no such kind of key, leaf, content, ... */
        const bool may = at >= 14 && at <= 16; /* lengths are any */
        const uint8_t was = bytes[at];
        bytes[at] = 0xff;
        assert_int_equal(persist_index_decode(bytes, length, &found), may);
        bytes[at] = was;
    }
    bytes[PERSIST_INDEX_HEADER + 2] = 0; /* in the name */
    assert_false(persist_index_decode(bytes, length, &found));
    index = (struct persist_index){.number = 5};
    assert_false(persist_index_decode(bytes, persist_index_encode(&index, bytes), &found));
    index.gone = true;
    assert_true(persist_index_decode(bytes, persist_index_encode(&index, bytes), &found));
    index = (struct persist_index){.number = 0};
    assert_true(persist_index_decode(bytes, persist_index_encode(&index, bytes), &found));
}

/* Each kind of leaf; and dense leaves as a memory node tells of them that does not know them. */
static void leaf_kinds_are_told(void **state)
{
    (void)state;
    for (unsigned key = FORMAT_KEY_FIXED; key <= FORMAT_KEY_VARIABLE; key++)
        for (unsigned kind = 0; kind <= FORMAT_LEAF_KIND_LAST; kind++) {
            struct persist_index index = {
                .number = 5, .geometry = geometry, .name = "orders", .name_length = 6};
            struct format_catalogue_entry entry = {.used = 1};
            struct persist_index found;
            uint8_t bytes[PERSIST_INDEX_BYTES];
            index.geometry.key_kind = (uint8_t)key;
            index.geometry.leaf_kind = (uint8_t)kind;
            const uint32_t length = persist_index_encode(&index, bytes);
            assert_true(persist_index_decode(bytes, length, &found));
            assert_int_equal(found.geometry.key_kind, key);
            assert_int_equal(found.geometry.leaf_kind, kind);
            format_catalogue_describe(&entry, &index.geometry);
            assert_int_equal(bytes[12], entry.kinds % 16); /* its key kind */
            assert_int_equal(bytes[13],
                             entry.kinds / 16); /* its leaf kind, below its levels, of which are none */
        }
    struct persist_index index = {.number = 5, .geometry = geometry, .name = "orders", .name_length = 6};
    uint8_t bytes[PERSIST_INDEX_BYTES];
    const uint32_t length = persist_index_encode(&index, bytes);
    bytes[12] |= 8;
    bytes[13] = 1; /* a fourth kind */
    assert_false(persist_index_decode(bytes, length, &index));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes_are_named),
        cmocka_unit_test(a_life_begins_anew),
        cmocka_unit_test(a_name_stands_before_its_frames),
        cmocka_unit_test(plain_values_are_read_back),
        cmocka_unit_test(records_are_validated),
        cmocka_unit_test(leaf_kinds_are_told),
    };
    return cmocka_run_group_tests_name("names of indexes", tests, NULL, NULL);
}
