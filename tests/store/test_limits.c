/*
 * test_limits.c - what a store refuses, and how it treats slots that no store has written, records that are
 * not where their slots say, and memory nodes that give impossible answers about their blocks.
 */
#include "rig.h"

#include <string.h>

#include "store/audit.h"
#include "store/session.h"

static struct rig rig;

static void stores(struct rig_options *options)
{
    store_geometry(&options->geometry);
    options->geometry.key_bytes = 60;
    options->geometry.leaf_bytes = 2048;
    options->geometry.internal_bytes = 1024;
    options->pool_bytes = 16 << 20;
    options->chunk_bytes = 128 << 10;
    options->nodes = 2;
    options->store = true;
}

static void open_rig(void)
{
    struct rig_options options;
    rig_options_default(&options);
    stores(&options);
    rig_open(&rig, &options);
}

static void expect(int line, int status, int wanted)
{
    const char *text = tree_session_error(rig.ours.session)->text;
    if (status != wanted || (status && !text[0]))
        fail_msg("line %d: %d instead of %d: %s", line, status, wanted, text);
}
#define EXPECT(call, wanted) expect(__LINE__, call, wanted)

/* ---- arguments ---- */

struct wanted {
    enum store_verdict verdict;
    struct store_value value;
};

static enum store_verdict give(void *context, const struct store_value *old, struct store_value *new)
{
    const struct wanted *wanted = context;
    (void)old;
    *new = wanted->value;
    return wanted->verdict;
}

static void refuses_what_cannot_be(void **state)
{
    (void)state;
    open_rig();
    struct store_session *session = rig.ours.store_session;
    uint8_t long_key[100] = {1};
    static uint8_t value[100];
    EXPECT(store_put(session, NULL, 3, value, 100, 0), BANYAN_EINVAL);
    EXPECT(store_put(session, "key", 0, value, 100, 0), BANYAN_EKEYSIZE);
    EXPECT(store_put(session, long_key, 61, value, 100, 0), BANYAN_EKEYSIZE);
    EXPECT(store_put(session, long_key, 61, value, 1, 0), BANYAN_EKEYSIZE);
    EXPECT(store_put(session, "key", 3, NULL, 1, 0), BANYAN_EINVAL);
    EXPECT(store_put(session, "key", 3, NULL, 0, 0), 0);
    EXPECT(store_put(session, "key", 3, value, STORE_VALUE_MAX + 1, 0), BANYAN_EVALUESIZE);
    struct store_item items[3] = {{.key = "key", .key_length = 3, .value = {.length = 1}},
                                  {.key = NULL, .key_length = 3, .value = {.bytes = value, .length = 50}},
                                  {.key = "yek", .key_length = 3, .value = {.bytes = value, .length = 50}}};
    EXPECT(store_multi_put(session, items, 3), BANYAN_EINVAL);
    assert_int_equal(items[1].status, BANYAN_EINVAL);
    assert_int_equal(items[2].status, 0);
    const struct wanted impossible[] = {{STORE_PUT, {.length = 5}},
                                        {STORE_PUT, {.bytes = value, .length = STORE_VALUE_MAX + 1}}};
    for (unsigned i = 0; i < 2; i++) {
        struct wanted wanted = impossible[i];
        EXPECT(store_modify(session, "key", 3, STORE_NEED_VALUE, give, &wanted, NULL, NULL),
               i ? BANYAN_EVALUESIZE : BANYAN_EINVAL);
    }
    struct wanted keep = {STORE_PUT, {.expires = 0}}; /* the expiry that it has */
    bool existed;
    EXPECT(store_modify(session, "yek", 3, STORE_NEED_LENGTH, give, &keep, NULL, &existed), 0);
    assert_true(existed);
    struct store_value got;
    EXPECT(store_get(session, "yek", 3, &got), 0);
    assert_int_equal(got.length, 50);
    store_session_destroy(NULL);
    store_close(NULL);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

static void only_stores_are_opened_as_such(void **state)
{
    (void)state;
    open_rig();
    const struct format_geometry geometries[] = {
        {.key_bytes = 8, .value_bytes = 8},
        {.key_bytes = 8, .value_bytes = 8, .content = FORMAT_CONTENT_STORE},
        {.key_bytes = 8, .value_bytes = 16, .value_variable = true, .content = FORMAT_CONTENT_STORE},
        {.key_bytes = 8, .value_bytes = 17, .value_variable = true, .content = FORMAT_CONTENT_STORE}};
    static const char *const names[] = {"plain", "fixed", "short", "good"};
    struct error error = {0};
    for (unsigned i = 0; i < 4; i++) {
        struct tree *tree = NULL;
        struct store *store = NULL;
        EXPECT(tree_create(rig.ours.session, names[i], &geometries[i], &tree), 0);
        assert_int_equal(store_wrap(&store, tree, &error), i < 3 ? BANYAN_EINVAL : 0);
        if (i < 3) {
            assert_null(store);
            tree_close(tree);
            continue;
        }
        struct store_session *session = NULL;
        static const uint8_t value[100];
        assert_int_equal(store_session_create(&session, store, rig.ours.session, &error), 0);
        EXPECT(store_put(session, "12345678", 8, value, 100, 0), 0);
        EXPECT(store_put(session, "1234567", 7, value, 100, 0), BANYAN_EKEYSIZE);
        EXPECT(store_delete(session, "12345678", 8), 0);
        store_session_destroy(session);
        store_close(store);
    }
    rig_close(&rig);
}

/* ---- limits ---- */

static bool count_one(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    (void)key;
    (void)key_length;
    assert_int_equal(value->length, 60000);
    return ++*(unsigned *)context;
}

/* More than fits into one batch, and more than the limit of a store's memory allows. */
static void many_long_values(void **state)
{
    (void)state;
    open_rig();
    static uint8_t value[60000];
    struct store_session *session = rig.ours.store_session;
    struct store_item items[80];
    uint8_t keys[80][FORMAT_KEY_MAX];
    for (unsigned i = 0; i < 80; i++) {
        items[i] = (struct store_item){.key = keys[i], .key_length = rig_key(&rig, i, keys[i])};
        EXPECT(store_put(session, keys[i], items[i].key_length, value, sizeof value, 0), 0);
    }
    const struct tree_range all = {.limit = 0}, some = {.limit = 30};
    unsigned seen = 0;
    EXPECT(store_scan(session, &all, STORE_SCAN_VALUES, count_one, &seen), 0);
    assert_int_equal(seen, 80);
    uint64_t count;
    EXPECT(store_count(session, &some, &count), 0);
    assert_int_equal(count, 30);
    EXPECT(store_multi_get(session, items, 80, true), BANYAN_ENOMEM);
    assert_int_equal(items[0].status, 0);
    assert_int_equal(items[79].status, BANYAN_ENOMEM);
    store_set_memory_max(rig.ours.store, 0);
    EXPECT(store_multi_get(session, items, 40, true), BANYAN_ENOMEM);
    EXPECT(store_multi_get(session, items, 40, false), 0);
    EXPECT(store_multi_get(session, items, 5, true), 0);
    store_set_memory_max(rig.ours.store, UINT64_MAX);
    EXPECT(store_multi_get(session, items, 40, true), 0);
    rig_close(&rig);
}

/* Almost all has expired: the one that has not is found. */
static void samples_the_last_one_left(void **state)
{
    (void)state;
    open_rig();
    struct store_session *session = rig.ours.store_session;
    uint8_t key[FORMAT_KEY_MAX], found[FORMAT_KEY_MAX];
    size_t length;
    for (unsigned i = 0; i < 600; i++) {
        length = rig_key(&rig, i, key);
        EXPECT(store_put(session, key, length, "value", 5, i == 599 ? 0 : 2000), 0);
    }
    size_t last = length;
    rig.now_ms = 3000;
    length = sizeof found;
    EXPECT(store_sample(session, found, &length), 0);
    assert_int_equal(length, last);
    assert_memory_equal(found, key, last);
    EXPECT(store_delete(session, key, last), 0);
    length = sizeof found;
    EXPECT(store_sample(session, found, &length), BANYAN_ENOTFOUND);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/* ---- slots that no store has written ---- */

static unsigned problems;

static void note_problem(void *context, const char *text)
{
    (void)context;
    assert_true(text[0]);
    for (const char *at = text; *at; at++)
        assert_true(*at >= ' ' && *at <= '~');
    problems++;
}

static unsigned audit(int wanted)
{
    const struct audit_options options = {.reclaim = true, .problem = note_problem};
    struct audit_report report;
    problems = 0;
    EXPECT(audit_run(rig.ours.session, &options, &report), wanted);
    if (!wanted) {
        assert_int_equal(report.problems, problems);
        assert_true(!problems || !report.blocks_reclaimed);
    }
    return problems;
}

static bool any(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    (void)context;
    (void)key;
    (void)key_length;
    (void)value;
    return true;
}

/* Every call that needs the slot returns BANYAN_ECORRUPT; a put writes over it, and then all is well. */
static void meet_slot(const uint8_t *slot, size_t length, bool proven)
{
    static const uint8_t key[] = "\x01key\xff";
    struct store_session *session = rig.ours.store_session;
    struct store_value value;
    struct store_item item = {.key = key, .key_length = 5};
    const struct tree_range all = {.limit = 0};
    struct store_check_report report;
    EXPECT(tree_upsert(rig.ours.session, rig.ours.tree, key, 5, slot, length), 0);
    EXPECT(store_get(session, key, 5, &value), BANYAN_ECORRUPT);
    EXPECT(store_multi_get(session, &item, 1, true), BANYAN_ECORRUPT);
    EXPECT(store_scan(session, &all, STORE_SCAN_VALUES, any, NULL), BANYAN_ECORRUPT);
    EXPECT(store_check(session, &report, NULL, NULL), BANYAN_ECORRUPT);
    if (!proven) {
        EXPECT(store_stat(session, key, 5, &value), BANYAN_ECORRUPT);
        struct wanted wanted = {STORE_KEEP, {.length = 0}};
        EXPECT(store_modify(session, key, 5, STORE_NEED_VALUE, give, &wanted, NULL, NULL), BANYAN_ECORRUPT);
    }
    assert_true(audit(0) > 0);
    EXPECT(store_put(session, key, 5, "good", 4, 0), 0);
    EXPECT(store_get(session, key, 5, &value), 0);
    EXPECT(tree_upsert(rig.ours.session, rig.ours.tree, key, 5, slot, length), 0);
    EXPECT(store_delete(session, key, 5), 0);
    EXPECT(store_check(session, &report, NULL, NULL), 0);
}

static size_t record_slot(uint8_t *slot, gaddr address, uint64_t word)
{
    slot[0] = 3;
    memcpy(slot + 1, &address, 8);
    memcpy(slot + 9, &word, 8);
    return 17;
}

static void slots_of_no_store_are_corrupt(void **state)
{
    (void)state;
    open_rig();
    uint8_t slot[17] = {0};
    meet_slot(slot, 0, false);
    meet_slot(slot, 5, false); /* kind 0 */
    slot[0] = 2;
    meet_slot(slot, 8, false);  /* expires, but too short to say when */
    meet_slot(slot, 12, false); /* expires, never */
    slot[0] = 3;
    meet_slot(slot, 16, false);
    meet_slot(slot, 17, false); /* a record nowhere */
    record_slot(slot, gaddr_make(0, 1 << 20), (UINT64_C(64) << 20) + 1);
    meet_slot(slot, 17, false); /* longer than any value */
    static const gaddr wild[] = {0x0007000000010000, 0x0000000000001000, 0x0001000000ffff00,
                                 0x0000000000100001, 0x0000800000000100};
    for (unsigned i = 0; i < sizeof wild / sizeof *wild; i++) {
        record_slot(slot, wild[i], 100);
        meet_slot(slot, 17, true);
    }
    rig_close(&rig);
}

/* A valid record of another key, another length, or another kind. */
static void records_of_others_are_not_taken(void **state)
{
    (void)state;
    open_rig();
    struct store_session *session = rig.ours.store_session;
    static const uint8_t value[300];
    uint8_t slot[FORMAT_VALUE_MAX];
    struct store_value got;
    size_t length = sizeof slot;
    EXPECT(store_put(session, "mine", 4, value, sizeof value, 0), 0);
    EXPECT(tree_lookup(rig.ours.session, rig.ours.tree, "mine", 4, slot, &length), 0);
    EXPECT(tree_upsert(rig.ours.session, rig.ours.tree, "your", 4, slot, length), 0);
    EXPECT(store_get(session, "your", 4, &got), BANYAN_ECORRUPT);
    EXPECT(store_stat(session, "your", 4, &got), 0); /* the slot alone answers this */
    assert_true(audit(0) > 0);
    slot[0] = 4; /* the slot says that the value expires, the record does not */
    EXPECT(tree_upsert(rig.ours.session, rig.ours.tree, "mine", 4, slot, length), 0);
    EXPECT(store_get(session, "mine", 4, &got), BANYAN_ECORRUPT);
    EXPECT(store_stat(session, "mine", 4, &got), BANYAN_ECORRUPT);
    rig_close(&rig);
}

/* ---- audits ---- */

/* Blocks so small that their chunk's bits take more than one answer. */
static void chunks_of_many_blocks(void **state)
{
    (void)state;
    struct rig_options options;
    rig_options_default(&options);
    options.geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                                .key_bytes = 30,
                                                .inline_key_bytes = 16,
                                                .value_bytes = 8,
                                                .leaf_bytes = 1024};
    options.pool_bytes = 64 << 20;
    options.chunk_bytes = 16 << 20;
    rig_open(&rig, &options);
    rig_fill(&rig, 0, 60, 1);
    rig_replace_others(&rig);
    rig_replace_ours(&rig);
    assert_int_equal(audit(0), 0);
    for (unsigned at = 1; at < 40; at += 3) { /* and each of its questions may fail */
        rig_trouble(&rig, TROUBLE_MEMORY, at);
        struct audit_report report;
        const struct audit_options wishes = {.problem = note_problem};
        int status = audit_run(rig.ours.session, &wishes, &report);
        assert_true(status == BANYAN_ENOMEM || !rig_mend(&rig));
        rig_mend(&rig);
    }
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

static struct {
    unsigned reply, at; /* word `at` of that reply, from now */
    uint32_t word;
} spoiled;

static void spoil(void *context, void *reply, size_t *length)
{
    (void)context;
    if (spoiled.reply && !--spoiled.reply && *length >= 4 * spoiled.at + 4)
        memcpy((uint8_t *)reply + 4 * spoiled.at, &spoiled.word, 4);
}

/* One word of one answer is wrong: the audit ends with an error, with a problem, or with blocks that seem
 * lost. It returns no block in use, for the index is sound afterwards. */
static void memory_nodes_may_answer_nonsense(void **state)
{
    (void)state;
    static const uint32_t words[] = {0, 1, 0x7fffffff, UINT32_MAX};
    open_rig();
    rig_fill(&rig, 0, 60, 1);
    rig_replace_others(&rig);
    rig_replace_ours(&rig);
    rig_replies(&rig, spoil, NULL);
    unsigned refused = 0;
    for (unsigned reply = 1; reply < 8; reply++)
        for (unsigned at = 0; at < 12; at++)
            for (unsigned i = 0; i < 4; i++) {
                const struct audit_options options = {.problem = note_problem};
                struct audit_report report;
                spoiled.reply = reply;
                spoiled.at = at;
                spoiled.word = words[i];
                int status = audit_run(rig.ours.session, &options, &report);
                refused += status != 0;
                assert_true(!status || tree_session_error(rig.ours.session)->text[0]);
                assert_true(!status || status == BANYAN_ENET || status == BANYAN_EBUSY ||
                            status == BANYAN_ENOMEM);
            }
    assert_true(refused > 10);
    spoiled.reply = 0;
    assert_int_equal(audit(0), 0);
    rig_replies(&rig, NULL, NULL);
    rig_judge(&rig, TROUBLE_NONE);
    rig_close(&rig);
}

/* The other indexes are checked although one cannot be opened. */
static void an_index_that_cannot_be_opened(void **state)
{
    (void)state;
    open_rig();
    rig_fill(&rig, 0, 20, 1);
    uint8_t *entry = memory_node_target(rig.nodes[0])->pool + MEMORY_CATALOGUE_OFFSET + 4096;
    uint64_t root, nowhere = gaddr_make(9, 4096);
    memcpy(&root, entry, sizeof root);
    memcpy(entry, &nowhere, sizeof nowhere);
    assert_true(audit(0) > 0);
    memcpy(entry, &root, sizeof root);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(only_stores_are_opened_as_such),
        cmocka_unit_test(many_long_values),
        cmocka_unit_test(samples_the_last_one_left),
        cmocka_unit_test(slots_of_no_store_are_corrupt),
        cmocka_unit_test(records_of_others_are_not_taken),
        cmocka_unit_test(chunks_of_many_blocks),
        cmocka_unit_test(memory_nodes_may_answer_nonsense),
        cmocka_unit_test(an_index_that_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
