/*
 * test_forged.c - nodes that prove themselves and say what cannot be: each field of each kind of header, and
 * the bytes of inner nodes, changed and sealed again as their writer would have; and slots that do not.
 * An operation that meets one may find less, and says that the index is corrupt; none crashes, goes in
 * circles or keeps a lock.
 */
#include "rig.h"

#include <string.h>

#include "base/crc32c.h"
#include "format/internal_node.h"
#include "format/leaf.h"

#define KEYS 900u

/* ---- nodes ---- */

struct nodes {
    struct rig *rig;
    struct format_layout layout;
    gaddr leaves[KEYS], inner[KEYS];
    unsigned leaf_count, inner_count;
};

static uint8_t *bytes_at(struct rig *rig, gaddr address)
{
    return memory_node_target(rig->nodes[gaddr_node(address)])->pool + gaddr_offset(address);
}

static void collect(void *context, gaddr node, uint32_t bytes)
{
    struct nodes *nodes = context;
    if (bytes < 512)
        return; /* a long key's */
    if (bytes_at(nodes->rig, node)[10])
        nodes->inner[nodes->inner_count++] = node;
    else
        nodes->leaves[nodes->leaf_count++] = node;
}

static void find_nodes(struct rig *rig, struct nodes *nodes)
{
    struct tree_check_report report;
    *nodes = (struct nodes){.rig = rig};
    assert_int_equal(format_layout_init(&nodes->layout, &rig->options.geometry, NULL), 0);
    assert_int_equal(tree_check(rig->others.session, rig->others.tree, &report, collect, nodes), 0);
    assert_true(nodes->leaf_count > 10 && nodes->inner_count > 2);
}

/* The crc of the header, and that of what lies behind it. */
static void seal(const struct format_layout *layout, uint8_t *image, bool inner)
{
    uint32_t used = layout->geometry.key_kind == FORMAT_KEY_FIXED
                        ? layout->header_bytes
                        : FORMAT_HEADER_FIXED + image[28] + image[29];
    if (used > layout->header_bytes)
        return; /* no header can be that long */
    uint32_t crc = crc32c(0, image + 4, used - 4), start = layout->header_bytes + FORMAT_BODY_CRC_BYTES;
    memcpy(image, &crc, sizeof crc);
    if (!inner)
        return;
    crc = crc32c(crc32c(0, image, 4), image + used, layout->header_bytes - used);
    crc = crc32c(crc, image + start, layout->geometry.internal_bytes - start);
    memcpy(image + layout->header_bytes, &crc, sizeof crc);
}

/* ---- everything that can be done to an index ---- */

static int answers; /* that were not what a sound index gives */

static void judge(struct rig *rig, int status)
{
    const char *text = tree_session_error(rig->ours.session)->text;
    switch (status) {
    case 0:
    case BANYAN_ENOTFOUND:
    case BANYAN_EEXIST:
        return;
    case BANYAN_ECORRUPT:
    case BANYAN_EBUSY: /* a bulk load: it is not empty */
        answers++;
        assert_true(text[0]);
        return;
    default:
        fail_msg("%d: %s", status, text);
    }
}

static bool any(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    (void)key;
    (void)key_length;
    (void)value;
    (void)length;
    return --*(int *)context > 0;
}

static void note_problem(void *context, const char *text)
{
    assert_true(text[0]);
    ++*(unsigned *)context;
}

static void use(struct rig *rig, unsigned seed)
{
    struct tree_session *session = rig->ours.session;
    struct tree *tree = rig->ours.tree;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX] = {1};
    size_t length, size = rig->options.geometry.value_bytes;
    struct tree_check_report report;
    struct tree_item items[8];
    uint8_t keys[8][FORMAT_KEY_MAX], values[8][FORMAT_VALUE_MAX];
    int before = answers;
    /* Two answers that something is wrong will do. */
    for (unsigned i = seed % 23; i < KEYS && answers < before + 2; i += 97) {
        size_t key_length = rig_key(rig, i, key);
        length = sizeof value;
        judge(rig, tree_lookup(session, tree, key, key_length, value, &length));
        judge(rig, tree_upsert(session, tree, key, key_length, value, size));
        judge(rig, tree_delete(session, tree, key, key_length));
    }
    for (unsigned put = 0; put < 2 && answers < before + 2; put++) {
        for (unsigned i = 0; i < 8; i++)
            items[i] = (struct tree_item){.key = keys[i],
                                          .key_length = rig_key(rig, i * 47 + seed % 7, keys[i]),
                                          .value = values[i],
                                          .length = put ? size : sizeof values[i]};
        judge(rig, put ? tree_multi_put(session, tree, items, 8) : tree_multi_get(session, tree, items, 8));
    }
    for (unsigned reverse = 0; reverse < 2; reverse++) {
        const struct tree_range all = {.reverse = reverse};
        int left = 3 * KEYS;
        judge(rig, tree_scan(session, tree, &all, any, &left));
    }
    length = sizeof key;
    judge(rig, tree_sample(session, tree, key, &length));
    unsigned problems = 0;
    const struct tree_check_visitor visitor = {.problem = note_problem, .context = &problems};
    judge(rig, tree_check_all(session, tree, &visitor, &report));
    assert_int_equal(problems, report.problems);
    judge(rig, tree_check(session, tree, &report, NULL, NULL));
    rig_locks_are_free(rig);
}

/* ---- forging ---- */

static void fixed(struct rig_options *options)
{
    options->geometry.value_bytes = 8;
}

static void variable(struct rig_options *options)
{
    rig_long_keyed(options);
    options->geometry.internal_bytes = 512;
}

enum kind { ROOT, INNER, LEFTMOST, MIDDLE, RIGHTMOST, KINDS };

/* One byte of one node: false if the node is not that long. */
static bool forge(void (*shape)(struct rig_options *), enum kind kind, unsigned at, uint8_t flip)
{
    static struct rig rig;
    static struct nodes nodes;
    struct rig_options options;
    rig_options_default(&options);
    shape(&options);
    rig_open(&rig, &options);
    rig_fill(&rig, 0, KEYS, 1);
    find_nodes(&rig, &nodes);
    const gaddr chosen[KINDS] = {nodes.inner[0], nodes.inner[1], nodes.leaves[0],
                                 nodes.leaves[nodes.leaf_count / 2], nodes.leaves[nodes.leaf_count - 1]};
    bool inner = kind <= INNER;
    uint8_t *image = bytes_at(&rig, chosen[kind]);
    bool there = at < (inner ? rig.options.geometry.internal_bytes : rig.options.geometry.leaf_bytes);
    if (there) {
        image[at] ^= flip;
        seal(&nodes.layout, image, inner);
        rig_replace_ours(&rig); /* knows nothing yet */
        use(&rig, at);
    }
    format_layout_free(&nodes.layout);
    rig_close(&rig);
    return there;
}

static void forge_all(void (*shape)(struct rig_options *), unsigned step)
{
    answers = 0;
    for (enum kind kind = ROOT; kind < KINDS; kind++)
        for (unsigned at = 4;; at += at < FORMAT_HEADER_FIXED + 8 ? 1 : step)
            if (!forge(shape, kind, at, (uint8_t)(at % 3 ? 1u << at % 8 : 0x83)))
                break;
    assert_true(answers > 100);
}

/* Ours know the way when it changes: they meet the node under its lock, where leaves go and come below it. */
static void forge_warm(void (*shape)(struct rig_options *), bool last, unsigned at, uint8_t flip)
{
    static struct rig rig;
    static struct nodes nodes;
    struct rig_options options;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX] = {1};
    rig_options_default(&options);
    shape(&options);
    rig_open(&rig, &options);
    rig_fill(&rig, 0, KEYS, 1);
    find_nodes(&rig, &nodes);
    struct tree_session *session = rig.ours.session;
    for (unsigned i = 0; i < KEYS; i++) {
        size_t length = sizeof value;
        assert_int_equal(tree_lookup(session, rig.ours.tree, key, rig_key(&rig, i, key), value, &length), 0);
    }
    uint8_t *image = bytes_at(&rig, nodes.inner[last ? nodes.inner_count - 1 : 2]);
    image[at] ^= flip;
    if (at >= 4) /* else the checks fail */
        seal(&nodes.layout, image, true);
    int before = answers;
    for (unsigned i = last ? KEYS : 80; i < (last ? KEYS + 60 : 600) && answers < before + 2; i++) {
        size_t length = rig_key(&rig, i, key);
        judge(&rig,
              last ? tree_insert(session, rig.ours.tree, key, length, value, rig.options.geometry.value_bytes)
                   : tree_delete(session, rig.ours.tree, key, length));
    }
    rig_locks_are_free(&rig);
    format_layout_free(&nodes.layout);
    rig_close(&rig);
}

static void under_the_lock(void **state)
{
    (void)state;
    answers = 0;
    for (unsigned last = 0; last < 2; last++)
        for (unsigned at = 0; at < 64; at++) {
            forge_warm(fixed, last, at, (uint8_t)(at % 2 ? 1u : 0x82));
            forge_warm(variable, last, at, (uint8_t)(at % 2 ? 0x82 : 1u));
        }
    assert_true(answers > 20);
}

/* ---- circles ---- */

/* Sound nodes that lead in circles, or backwards. */
enum circle {
    INNER_SIBLING_SELF,  /* an inner node ends early, and its right sibling is itself */
    INNER_SIBLING_BACK,  /* two inner nodes are each other's siblings */
    INNER_CHILD_SELF,    /* an inner node names itself in place of a leaf */
    INNER_CHILD_ROOT,    /* ... and its root */
    ROOT_CHILD_SELF,     /* the root names itself */
    INNER_CHILDREN_SAME, /* an inner node names one leaf for all of its keys */
    INNER_LEFTMOST_GAP,  /* what begins the level hands its range over to a left neighbour */
    LEAF_SIBLING_SELF,   /* a leaf ends early, and its right sibling is itself */
    LEAF_SIBLING_BACK,   /* two leaves are each other's siblings */
    CIRCLES
};
/* A sound tree of this height costs four round trips an operation; each try to go on is as many. */
#define READS_MAX 100u

static struct format_link link_of(struct nodes *nodes, gaddr node)
{
    struct format_header header;
    assert_true(format_header_decode(&nodes->layout, bytes_at(nodes->rig, node), &header));
    return (struct format_link){node, header.tag};
}

struct inner {
    uint8_t copy[4096]; /* header and entries point into it */
    struct format_header header;
    struct format_entry entries[FORMAT_ENTRIES_MAX + 1];
};

static void inner_read(struct nodes *nodes, gaddr node, struct inner *inner)
{
    memcpy(inner->copy, bytes_at(nodes->rig, node), nodes->layout.geometry.internal_bytes);
    assert_true(format_header_decode(&nodes->layout, inner->copy, &inner->header));
    assert_true(format_internal_decode(&nodes->layout, inner->copy, &inner->header, inner->entries));
}

static void inner_write(struct nodes *nodes, gaddr node, struct inner *inner, uint16_t count)
{
    static uint8_t made[4096];
    format_internal_encode(&nodes->layout, &inner->header, inner->entries, count, made);
    memcpy(bytes_at(nodes->rig, node), made, nodes->layout.geometry.internal_bytes);
}

/* Changes an inner node: `count` entries stay, what lies behind is left to the sibling. */
static void inner_cut(struct nodes *nodes, gaddr node, uint16_t count, struct format_link sibling)
{
    static struct inner inner;
    inner_read(nodes, node, &inner);
    assert_true(inner.header.count > count);
    inner.header.has_upper = true;
    inner.header.upper = inner.entries[count].key;
    inner.header.sibling = sibling;
    inner_write(nodes, node, &inner, count);
}

/* Changes the links of an inner node's entries from `from` on. */
static void inner_lead(struct nodes *nodes, gaddr node, uint16_t from, struct format_link link)
{
    static struct inner inner;
    inner_read(nodes, node, &inner);
    for (uint16_t i = from; i < (from ? inner.header.count : 1); i++)
        inner.entries[i].link = link;
    inner_write(nodes, node, &inner, inner.header.count);
}

/* The leaf keeps no more than its least key's range. */
static void leaf_cut(struct nodes *nodes, gaddr node, struct format_link sibling)
{
    static uint8_t copy[4096];
    uint8_t upper[FORMAT_KEY_MAX];
    uint8_t *image = bytes_at(nodes->rig, node);
    struct format_header header;
    memcpy(copy, image, nodes->layout.header_bytes);
    assert_true(format_header_decode(&nodes->layout, copy, &header));
    memcpy(upper, header.lower.bytes, header.lower.length);
    upper[header.lower.length - 1]++;
    header.has_upper = true;
    header.upper = (struct format_key){upper, header.lower.length};
    header.sibling = sibling;
    format_header_encode(&nodes->layout, &header, image);
}

static void forge_circle(struct nodes *nodes, enum circle circle)
{
    const gaddr root = nodes->inner[0], first = nodes->inner[1], second = nodes->inner[2];
    const gaddr leaf = nodes->leaves[4], next = nodes->leaves[5];
    switch (circle) {
    case INNER_SIBLING_SELF:
        inner_cut(nodes, first, 2, link_of(nodes, first));
        return;
    case INNER_SIBLING_BACK:
        inner_cut(nodes, first, 2, link_of(nodes, second));
        inner_cut(nodes, second, 2, link_of(nodes, first));
        return;
    case INNER_CHILD_SELF:
        inner_lead(nodes, second, 1, link_of(nodes, second));
        return;
    case INNER_CHILD_ROOT:
        inner_lead(nodes, second, 1, link_of(nodes, root));
        return;
    case ROOT_CHILD_SELF:
        inner_lead(nodes, root, 1, link_of(nodes, root));
        return;
    case INNER_CHILDREN_SAME:
        inner_lead(nodes, first, 1, link_of(nodes, next));
        return;
    case INNER_LEFTMOST_GAP:
        inner_lead(nodes, first, 0, (struct format_link){0});
        return;
    case LEAF_SIBLING_SELF:
        leaf_cut(nodes, leaf, link_of(nodes, leaf));
        return;
    case LEAF_SIBLING_BACK:
        leaf_cut(nodes, leaf, link_of(nodes, next));
        leaf_cut(nodes, next, link_of(nodes, leaf));
        return;
    default:
        fail();
    }
}

/* Each answer that the index is corrupt was cheap. */
static void judge_cost(struct rig *rig, int status, const char *what, enum circle circle)
{
    uint64_t reads = tree_session_stats(rig->ours.session)->cost.round_trips;
    if (status == BANYAN_ECORRUPT && reads > READS_MAX)
        fail_msg("%s, circle %d: %llu round trips: %s", what, (int)circle, (unsigned long long)reads,
                 tree_session_error(rig->ours.session)->text);
    judge(rig, status);
    tree_session_stats_reset(rig->ours.session);
}

static void circle_costs(enum circle circle)
{
    static struct rig rig;
    static struct nodes nodes;
    struct rig_options options;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX] = {1};
    rig_options_default(&options);
    fixed(&options);
    rig_open(&rig, &options);
    rig_fill(&rig, 0, KEYS, 1);
    find_nodes(&rig, &nodes);
    rig_replace_ours(&rig); /* knows nothing yet */
    forge_circle(&nodes, circle);
    struct tree_session *session = rig.ours.session;
    const int before = answers;
    tree_session_stats_reset(session);
    for (unsigned i = 0; i < KEYS; i += 3) {
        size_t key_length = rig_key(&rig, i, key), length = sizeof value;
        judge_cost(&rig, tree_lookup(session, rig.ours.tree, key, key_length, value, &length), "lookup",
                   circle);
        judge_cost(&rig, tree_upsert(session, rig.ours.tree, key, key_length, value, 8), "upsert", circle);
        int left = 3;
        const struct tree_range range = {.from = key, .from_length = key_length};
        judge_cost(&rig, tree_scan(session, rig.ours.tree, &range, any, &left), "scan", circle);
        left = 3;
        const struct tree_range back = {.to = key, .to_length = key_length, .reverse = true};
        judge_cost(&rig, tree_scan(session, rig.ours.tree, &back, any, &left), "reverse scan", circle);
    }
    assert_true(answers > before);
    rig_locks_are_free(&rig);
    format_layout_free(&nodes.layout);
    rig_close(&rig);
}

static void circles_cost_few_reads(void **state)
{
    (void)state;
    for (enum circle circle = 0; circle < CIRCLES; circle++)
        circle_costs(circle);
}

static void fixed_keys(void **state)
{
    (void)state;
    forge_all(fixed, 29);
}

static void variable_keys(void **state)
{
    (void)state;
    forge_all(variable, 61);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(circles_cost_few_reads),
        cmocka_unit_test(fixed_keys),
        cmocka_unit_test(variable_keys),
        cmocka_unit_test(under_the_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
