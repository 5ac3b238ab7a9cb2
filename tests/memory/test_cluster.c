/* test_cluster.c - the list of memory nodes that the home node keeps: what may become of it, whom it is told,
 * and that it outlives the process, cut anywhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "memory/cluster.h"
#include "memory/memory.h"

#define LOCKS   UINT64_C(1024)
#define CLUSTER UINT64_C(0xc105)

static struct memory_node *make(const char *pool_file)
{
    struct memory_options options = {.pool_bytes = MEMORY_FIRST_CHUNK(LOCKS) + (2u << 20),
                                     .chunk_bytes = 64u << 10,
                                     .lock_bytes = LOCKS,
                                     .pool_file = pool_file,
                                     .unformatted = true};
    struct memory_node *node = NULL;
    struct error error = {0};
    if (memory_node_create(&node, &options, &error))
        fail_msg("%s", error.text);
    return node;
}

static struct memory_node *make_home(const char *pool_file)
{
    struct memory_node *node = make(pool_file);
    struct error error = {0};
    assert_int_equal(memory_node_format(node, CLUSTER, 0, 3, &error), BANYAN_OK);
    return node;
}

static void list_fill(struct wire_cluster_list *list, uint32_t count)
{
    *list = (struct wire_cluster_list){.cluster_id = CLUSTER, .count = count};
    for (uint32_t i = 0; i < count; i++) {
        list->nodes[i] = (struct wire_cluster_node){.instance = 100 + i, .state = WIRE_CLUSTER_MEMBER};
        snprintf(list->nodes[i].address, sizeof list->nodes[i].address, "tcp://10.0.0.%u:7100", i);
    }
}

static int call(struct memory_node *node, enum memory_role role, const void *request, size_t length,
                struct wire_cluster_list *reply)
{
    struct memory_call call = {
        .role = role, .request = request, .length = length, .reply = reply, .capacity = sizeof *reply};
    int status = memory_node_serve(node, &call);
    if (!status)
        assert_true(wire_cluster_valid(reply, call.reply_length));
    return status;
}

static int list_ask(struct memory_node *node, struct wire_cluster_list *list)
{
    const struct wire_cluster_request request = {.kind = WIRE_CLUSTER_LIST};
    return call(node, MEMORY_ROLE_MONITOR, &request, sizeof request, list);
}

static int set_as(struct memory_node *node, enum memory_role role, const struct wire_cluster_list *list)
{
    struct wire_cluster_change change = {.kind = WIRE_CLUSTER_SET, .list = *list};
    struct wire_cluster_list reply;
    return call(node, role, &change,
                offsetof(struct wire_cluster_change, list) + wire_cluster_bytes(list->count), &reply);
}

static int set(struct memory_node *node, const struct wire_cluster_list *list)
{
    return set_as(node, MEMORY_ROLE_FORMATTER, list);
}

static void a_list_is_kept(void **state)
{
    struct memory_node *node = make_home(NULL);
    struct wire_cluster_list list, found;
    (void)state;
    assert_int_equal(list_ask(node, &found), BANYAN_ENOTFOUND);
    assert_int_equal(memory_node_cluster_generation(node), 0);
    list_fill(&list, 3);
    assert_int_equal(set_as(node, MEMORY_ROLE_DATA, &list), BANYAN_ENOTSUP);
    assert_int_equal(set_as(node, MEMORY_ROLE_MONITOR, &list), BANYAN_ENOTSUP);
    assert_int_equal(set(node, &list), BANYAN_OK);
    assert_int_equal(memory_node_cluster_generation(node), 1);
    assert_int_equal(set(node, &list), BANYAN_EBUSY); /* of the generation before */
    for (uint32_t i = 3; i < WIRE_CLUSTER_NODES_MAX; i++) {
        list_fill(&list, i + 1);
        list.generation = i - 2;
        assert_int_equal(set(node, &list), BANYAN_OK);
        assert_int_equal(list_ask(node, &found), BANYAN_OK);
        assert_int_equal(found.count, i + 1);
        assert_int_equal(found.generation, i - 1);
        assert_memory_equal(found.nodes, list.nodes, found.count * sizeof *found.nodes);
    }
    struct error error = {0};
    assert_int_equal(memory_node_format(node, CLUSTER + 1, 0, 1, &error), BANYAN_OK);
    assert_int_equal(list_ask(node, &found), BANYAN_ENOTFOUND);
    assert_int_equal(memory_node_cluster_generation(node), 0);
    memory_node_destroy(node);
}

static void only_the_home_node_keeps_one(void **state)
{
    struct memory_node *node = make(NULL);
    struct wire_cluster_list list;
    struct error error = {0};
    (void)state;
    list_fill(&list, 3);
    assert_int_equal(set(node, &list), BANYAN_EINVAL); /* of no cluster */
    assert_int_equal(memory_node_format(node, CLUSTER, 1, 3, &error), BANYAN_OK);
    assert_int_equal(set(node, &list), BANYAN_EINVAL);
    assert_int_equal(memory_node_format(node, CLUSTER, 0, 3, &error), BANYAN_OK);
    list.cluster_id++;
    assert_int_equal(set(node, &list), BANYAN_EINVAL);
    memory_node_destroy(node);
}

/* A change of the list that is there, and what becomes of it. */
struct change {
    uint32_t node;
    uint8_t state; /* 0: the one before */
    uint64_t instance;
    int result;
};

static void changes_follow_each_other(void **state)
{
    static const struct change changes[] = {
        {.node = 2, .state = WIRE_CLUSTER_REMOVED, .result = BANYAN_EINVAL}, /* it has to leave first */
        {.node = 0, .state = WIRE_CLUSTER_LEAVING, .result = BANYAN_EINVAL}, /* the home node */
        {.node = 1, .instance = 7, .result = BANYAN_EINVAL},
        {.node = 3, .state = WIRE_CLUSTER_LEAVING, .result = BANYAN_EINVAL}, /* new ones are members */
        {.node = 2, .state = WIRE_CLUSTER_LEAVING},
        {.node = 2, .state = WIRE_CLUSTER_MEMBER}, /* it stays */
        {.node = 2, .state = WIRE_CLUSTER_LEAVING},
        {.node = 2, .state = WIRE_CLUSTER_REMOVED},
        {.node = 2, .state = WIRE_CLUSTER_MEMBER, .result = BANYAN_EINVAL}, /* removed is removed */
        {.node = 2, .state = WIRE_CLUSTER_LEAVING, .result = BANYAN_EINVAL},
        {.node = 3, .state = WIRE_CLUSTER_MEMBER},
        {.node = 4, .state = WIRE_CLUSTER_STATES, .result = BANYAN_EINVAL},
    };
    struct memory_node *node = make_home(NULL);
    struct wire_cluster_list list, next;
    (void)state;
    list_fill(&list, 3);
    assert_int_equal(set(node, &list), BANYAN_OK);
    for (unsigned i = 0; i < sizeof changes / sizeof *changes; i++) {
        const struct change *change = &changes[i];
        assert_int_equal(list_ask(node, &list), BANYAN_OK);
        next = list;
        struct wire_cluster_node *at = &next.nodes[change->node];
        if (change->node >= next.count) {
            next.count = change->node + 1;
            *at = (struct wire_cluster_node){.instance = 9, .address = "tcp://10.0.0.9:7100"};
        }
        at->state = change->state ? change->state : at->state;
        at->instance = change->instance ? change->instance : at->instance;
        if (set(node, &next) != change->result)
            fail_msg("change %u", i);
        assert_int_equal(memory_node_cluster_generation(node), list.generation + !change->result);
    }
    assert_int_equal(list_ask(node, &list), BANYAN_OK);
    next = list;
    next.count--;
    assert_int_equal(set(node, &next), BANYAN_EINVAL); /* numbers stay */
    memory_node_destroy(node);
}

static void what_makes_no_sense_is_refused(void **state)
{
    struct memory_node *node = make_home(NULL);
    struct wire_cluster_change change = {.kind = WIRE_CLUSTER_SET};
    struct wire_cluster_list reply;
    (void)state;
    list_fill(&change.list, 3);
    for (size_t length = sizeof change.kind; length < sizeof change; length++)
        if (length != offsetof(struct wire_cluster_change, list) + wire_cluster_bytes(3))
            assert_int_equal(call(node, MEMORY_ROLE_FORMATTER, &change, length, &reply), BANYAN_EINVAL);
    memset(change.list.nodes[1].address, 'x', sizeof change.list.nodes[1].address);
    assert_int_equal(set(node, &change.list), BANYAN_EINVAL);
    list_fill(&change.list, 3);
    change.list.nodes[1].address[0] = 0;
    assert_int_equal(set(node, &change.list), BANYAN_EINVAL);
    list_fill(&change.list, 3);
    change.list.nodes[1].state = 0;
    assert_int_equal(set(node, &change.list), BANYAN_EINVAL);
    assert_int_equal(list_ask(node, &reply), BANYAN_ENOTFOUND);
    memory_node_destroy(node);
}

/* The second list stands whole in the pool file, up to `cut` bytes; from there on what was there before. */
static void cut_at(const char *path, uint64_t place, uint32_t cut, const uint8_t *before)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(place + cut), SEEK_SET), 0);
    assert_int_equal(fwrite(before + cut, 1, MEMORY_CLUSTER_PLACE_BYTES - cut, file),
                     MEMORY_CLUSTER_PLACE_BYTES - cut);
    assert_int_equal(fclose(file), 0);
}

/* Where the text stands in the file; 0: nowhere. */
static uint64_t find_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const size_t size = (size_t)ftell(file);
    char *bytes = malloc(size);
    assert_non_null(bytes);
    rewind(file);
    assert_int_equal(fread(bytes, 1, size, file), size);
    const char *at = memmem(bytes, size, text, strlen(text));
    const uint64_t found = at ? (uint64_t)(at - bytes) : 0;
    free(bytes);
    fclose(file);
    return found;
}

/* A process that dies within a change leaves the list of before or the next one, whichever bytes it had
 * written: the check is taken away first and comes last. */
static void a_list_outlives_the_process(void **state)
{
    char path[] = "/tmp/banyan-cluster-XXXXXX";
    struct wire_cluster_list list, found;
    static const uint8_t zeros[MEMORY_CLUSTER_PLACE_BYTES];
    (void)state;
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    close(descriptor);
    struct memory_node *node = make_home(path);
    list_fill(&list, 3);
    assert_int_equal(set(node, &list), BANYAN_OK);
    list_fill(&list, 4);
    list.generation = 1;
    snprintf(list.nodes[3].address, sizeof list.nodes[3].address, "tcp://the.last.one:7100");
    assert_int_equal(set(node, &list), BANYAN_OK);
    memory_node_destroy(node);

    node = make(path);
    assert_int_equal(memory_node_cluster_generation(node), 2);
    assert_int_equal(list_ask(node, &found), BANYAN_OK);
    assert_int_equal(found.count, 4);
    assert_string_equal(found.nodes[3].address, "tcp://the.last.one:7100");
    memory_node_destroy(node);

    const uint64_t place = find_text(path, "tcp://the.last.one:7100") -
                           offsetof(struct memory_cluster_place, list.nodes[3].address);
    for (uint32_t cut = (uint32_t)offsetof(struct memory_cluster_place, list.nodes[3].address) + 10; cut > 0;
         cut = cut > 100 ? cut - 100 : 0) {
        cut_at(path, place, cut - 1, zeros);
        node = make(path);
        assert_int_equal(memory_node_cluster_generation(node), 1);
        assert_int_equal(list_ask(node, &found), BANYAN_OK);
        assert_int_equal(found.count, 3);
        memory_node_destroy(node);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_is_kept),
        cmocka_unit_test(only_the_home_node_keeps_one),
        cmocka_unit_test(changes_follow_each_other),
        cmocka_unit_test(what_makes_no_sense_is_refused),
        cmocka_unit_test(a_list_outlives_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
