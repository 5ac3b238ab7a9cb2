/*
 * test_recover.c - logs that compute nodes leave when they are killed: a torn tail is cut silently; a log
 * that is corrupt in its middle keeps its ranges from being served, and no others, until `banyan recover
 * --accept-loss` says that they are. Real processes; the test writes into the pool as a session of its own.
 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/task.h"
#include "cluster/node.h"
#include "cluster/process.h"
#include "cluster/talk.h"
#include "format/log.h"
#include "pool/log.h"

#define KEYS 400u

static struct process_result result;

/* ---- the pool, from beside ---- */

static void node_read(struct node *node, gaddr address, void *bytes, uint32_t length)
{
    struct fabric_command read = pool_read_command(address, bytes, length);
    assert_int_equal(pool_execute(&node->session, gaddr_node(address), &read, 1), 0);
    pool_read_settle(&read);
}

static void node_write(struct node *node, gaddr address, const void *bytes, uint32_t length)
{
    struct fabric_command write = pool_write_command(address, bytes, length);
    assert_int_equal(pool_execute(&node->session, gaddr_node(address), &write, 1), 0);
}

/* What a memory node keeps for the process whose log is there since the longest time. */
static struct memory_log_segments log_of(struct node *node, uint16_t memory)
{
    struct memory_log_processes processes;
    struct memory_log_segments segments;
    assert_int_equal(pool_log_processes(&node->session, memory, 0, &processes), 0);
    assert_true(processes.count >= 1);
    const struct fabric_process process = {.compute_id = processes.processes[0].process.compute_id,
                                           .instance = processes.processes[0].process.instance};
    assert_int_equal(pool_log_list(&node->session, memory, process, 0, &segments), 0);
    assert_true(segments.count >= 1);
    return segments;
}

static struct memory_log_segment first_segment(struct node *node)
{
    return log_of(node, 0).segments[0];
}

static void flip(struct node *node, gaddr address, unsigned bit)
{
    uint8_t byte;
    node_read(node, address, &byte, 1);
    byte ^= (uint8_t)(1u << bit);
    node_write(node, address, &byte, 1);
}

/* As if the process had died before it could say that anything was merged. */
static void unmerge(struct node *node, uint16_t memory)
{
    const uint64_t word = format_log_watermark_encode(0);
    node_write(node, log_of(node, memory).control + FORMAT_LOG_WATERMARK_OFFSET, &word, sizeof word);
}

/* Where the number-th frame of a segment lies; *view: what it is. */
static uint32_t frame_at(struct node *node, const struct memory_log_segment *pool, unsigned number,
                         struct format_log_view *view, uint8_t *bytes)
{
    struct format_log_segment segment;
    uint32_t at = FORMAT_LOG_BLOCK;
    node_read(node, pool->address, bytes, 65536);
    assert_null(format_log_segment_decode(bytes, &segment));
    for (unsigned i = 0;; i++) {
        assert_true(at < 65536);
        if (format_log_frame_find(&segment, bytes, at, view) != FORMAT_LOG_WHOLE)
            fail_msg("frame %u of the segment is not there", i);
        if (i == number)
            return at;
        at += view->bytes;
    }
}

/* ---- the cluster ---- */

/* A process that is killed loses its connections, and its lease with them: it needs no short one, which a
 * busy machine would eat up before. */
static struct process *compute_start_copies(struct scene *scene, const char *name, const char *memory,
                                            const char *copies, bool first)
{
    return process_start(scene, name,
                         ARGUMENTS("compute", "--memory", memory, "--listen", "127.0.0.1:0", "--log", "auto",
                                   "--log-copies", copies, "--log-segment-bytes", "1M",
                                   first ? "--format" : NULL));
}

static struct process *compute_start(struct scene *scene, const char *name, const char *memory, bool first)
{
    return compute_start_copies(scene, name, memory, "1", first);
}

static void keys_set(redisContext *client)
{
    for (unsigned i = 0; i < KEYS; i++)
        assert_string_equal(ask(client, "SET key%03u value%u", i, i), "OK");
}

/* What GET says of the key, once the ranges are somebody's: not that they are on their way. */
struct asked {
    redisContext *client;
    unsigned key;
    const char *wanted; /* a part of the answer */
    char answer[400];
};

static bool answered(void *context)
{
    struct asked *asked = context;
    redisReply *reply = redisCommand(asked->client, "GET key%03u", asked->key);
    snprintf(asked->answer, sizeof asked->answer, "%s", reply && reply->str ? reply->str : "(nil)");
    freeReplyObject(reply);
    return strstr(asked->answer, asked->wanted) != NULL;
}

static void wait_answer(redisContext *client, unsigned key, const char *wanted)
{
    struct asked asked = {.client = client, .key = key, .wanted = wanted};
    uint64_t begun = now_ns();
    while (!answered(&asked))
        if (now_ns() - begun > UINT64_C(20000000000))
            fail_msg("GET key%03u says '%s', not '%s'", key, asked.answer, wanted);
}

static int recover(struct scene *scene, const char *memory, const char *one, const char *two)
{
    process_run(scene, NULL, ARGUMENTS("recover", "--memory", memory, one, two), &result);
    return result.code;
}

/* What is written from now on is logged. */
static bool owns(void *context)
{
    const char *info = ask(context, "INFO ownership");
    const char *owned = strstr(info, "ownership_ranges_owned:");
    return owned && owned[strlen("ownership_ranges_owned:")] != '0';
}

struct cluster {
    struct process *memory, *other, *compute; /* other: the second memory node; NULL: there is one */
    const char *address;
    struct node node;
    uint8_t *bytes;
};

static void cluster_start(struct scene *scene, struct cluster *cluster)
{
    cluster->memory =
        process_start(scene, "memory", ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    cluster->other = NULL;
    cluster->address = strdup(address_text(cluster->memory, 0));
    cluster->compute = compute_start(scene, "first", cluster->address, true);
    cluster->bytes = malloc(65536);
}

/* Two memory nodes, which both have each entry. */
static void cluster_start_twice(struct scene *scene, struct cluster *cluster)
{
    cluster->memory =
        process_start(scene, "memory-0", ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    cluster->other =
        process_start(scene, "memory-1", ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M"));
    cluster->address =
        strdup(text_of("%s,%s", address_text(cluster->memory, 0), address_text(cluster->other, 0)));
    cluster->compute = compute_start_copies(scene, "first", cluster->address, "2", true);
    cluster->bytes = malloc(65536);
}

/* The first compute node writes all keys, and is killed; this test is connected then. */
static void cluster_kill(struct cluster *cluster)
{
    redisContext *client = client_of(cluster->compute, 0);
    wait_until(owns, client, "the compute node does not own its ranges");
    keys_set(client);
    redisFree(client);
    process_kill(cluster->compute);
    node_open(&cluster->node, cluster->address);
}

static void cluster_end(struct scene *scene, struct cluster *cluster)
{
    node_close(&cluster->node);
    assert_int_equal(process_stop(cluster->memory), 0);
    if (cluster->other)
        assert_int_equal(process_stop(cluster->other), 0);
    free(cluster->bytes);
    free((void *)(uintptr_t)cluster->address);
    scene->passed = true;
}

static void expect_all(redisContext *client)
{
    for (unsigned i = 0; i < KEYS; i++)
        assert_string_equal(ask(client, "GET key%03u", i), text_of("value%u", i));
}

/* ---- tests ---- */

/* Bytes behind the last frame, as of one whose WRITE was cut off, are no loss. */
static void a_torn_tail_is_cut(void **state)
{
    struct scene *scene = *state;
    struct cluster cluster;
    struct format_log_view view;
    uint8_t torn[256];
    cluster_start(scene, &cluster);
    cluster_kill(&cluster);
    const struct memory_log_segment segment = first_segment(&cluster.node);
    uint32_t last = frame_at(&cluster.node, &segment, KEYS - 1, &view, cluster.bytes);
    memcpy(torn, cluster.bytes + last, 64); /* a header that is right for another place */
    memset(torn + 64, 0xa5, sizeof torn - 64);
    node_write(&cluster.node, segment.address + last + view.bytes, torn, sizeof torn);

    assert_int_equal(recover(scene, cluster.address, NULL, NULL), 0);
    assert_contains(result.output, "nothing is corrupt");
    assert_contains(result.output, "gone");
    struct process *second = compute_start(scene, "second", cluster.address, false);
    redisContext *client = client_of(second, 0);
    wait_answer(client, KEYS - 1, text_of("value%u", KEYS - 1));
    expect_all(client);
    redisFree(client);
    assert_int_equal(process_stop(second), 0);
    assert_int_equal(recover(scene, cluster.address, NULL, NULL), 0);
    assert_contains(result.output, "no compute node has a log");
    cluster_end(scene, &cluster);
}

static void a_corrupt_middle_is_refused_until_accepted(void **state)
{
    struct scene *scene = *state;
    struct cluster cluster;
    struct format_log_view view;
    uint8_t wrong[24];
    cluster_start(scene, &cluster);
    cluster_kill(&cluster);
    unmerge(&cluster.node, 0);
    const struct memory_log_segment segment = first_segment(&cluster.node);
    const uint32_t at = frame_at(&cluster.node, &segment, 200, &view, cluster.bytes);
    memset(wrong, 0x5a, sizeof wrong);
    node_write(&cluster.node, segment.address + at + FORMAT_LOG_FRAME_BYTES, wrong, sizeof wrong);
    const char *where = text_of("%016llx", (unsigned long long)(segment.address + at));

    struct process *second = compute_start(scene, "second", cluster.address, false);
    redisContext *client = client_of(second, 0);
    wait_answer(client, 7, where);
    assert_contains(ask(client, "SET key007 x"), "is corrupt at");
    assert_contains(ask(client, "GET key399"), "banyan recover");

    assert_int_equal(recover(scene, cluster.address, NULL, NULL), 3);
    assert_contains(result.output, "CORRUPT: memory node 0, region");
    assert_contains(result.output, text_of("%u bytes", view.bytes));
    assert_contains(result.output, "before it: change 200, of key 'key199' of index redis");
    assert_contains(result.output, "behind it: change 202, of key 'key201' of index redis");
    assert_contains(result.output, "which has not inherited the log yet");
    assert_int_equal(recover(scene, cluster.address, "--json", NULL), 3);
    json_t *json = json_loads(result.output, 0, NULL);
    const json_t *log = json_array_get(json_object_get(json, "logs"), 0);
    const json_t *place = json_array_get(json_object_get(log, "corrupt"), 0);
    assert_true(json_is_false(json_object_get(json, "sound")));
    assert_int_equal(json_integer_value(json_object_get(place, "bytes")), view.bytes);
    assert_string_equal(json_string_value(json_object_get(place, "kind")), "region");
    assert_string_equal(json_string_value(json_object_get(json_object_get(place, "before"), "key")),
                        "key199");
    json_decref(json);
    assert_contains(ask(client, "GET key007"), "banyan recover"); /* looking changes nothing */

    assert_int_equal(recover(scene, cluster.address, "--accept-loss", NULL), 0);
    assert_contains(result.output, "before it: change 200, of key 'key199' of index redis");
    assert_contains(result.output, "accepted: 1 place");
    wait_answer(client, 7, "value7");
    for (unsigned i = 0; i < KEYS; i++) {
        const char *value = ask(client, "EXISTS key%03u", i);
        if (i != 200) /* may have been merged before it was lost */
            assert_string_equal(value, "1");
    }
    redisFree(client);
    assert_int_equal(process_stop(second), 0);
    assert_int_equal(recover(scene, cluster.address, NULL, NULL), 0);
    cluster_end(scene, &cluster);
}

/* The frame of the memory node's log that begins with the change. */
static gaddr frame_with(struct cluster *cluster, uint16_t memory, uint64_t sequence)
{
    const struct memory_log_segment segment = log_of(&cluster->node, memory).segments[0];
    for (unsigned i = 0;; i++) {
        struct format_log_view view;
        struct format_log_entry entry;
        uint32_t first = 0;
        const uint32_t at = frame_at(&cluster->node, &segment, i, &view, cluster->bytes);
        if (format_log_frame_next(&view, &first, &entry) && entry.sequence == sequence)
            return segment.address + at;
    }
}

/* What is corrupt on one memory node, and whole on the other, is not lost; what is corrupt on both is. */
static void what_another_memory_node_has_is_not_lost(void **state)
{
    struct scene *scene = *state;
    struct cluster cluster;
    struct format_log_view view;
    struct format_log_entry entry;
    uint32_t first = 0;
    cluster_start_twice(scene, &cluster);
    cluster_kill(&cluster);
    unmerge(&cluster.node, 0);
    unmerge(&cluster.node, 1);
    const struct memory_log_segment segment = first_segment(&cluster.node);
    const uint32_t at = frame_at(&cluster.node, &segment, 100, &view, cluster.bytes);
    assert_true(format_log_frame_next(&view, &first, &entry));
    const uint64_t sequence = entry.sequence;
    const gaddr copy = frame_with(&cluster, 1, sequence);
    flip(&cluster.node, segment.address + at + FORMAT_LOG_FRAME_BYTES + 3, 4);
    flip(&cluster.node, copy + FORMAT_LOG_FRAME_BYTES + 3, 4);

    struct process *second = compute_start_copies(scene, "second", cluster.address, "2", false);
    redisContext *client = client_of(second, 0);
    wait_answer(client, 7, "banyan recover");
    assert_int_equal(recover(scene, cluster.address, NULL, NULL), 3);
    assert_contains(result.output, "CORRUPT: memory node 0, region");
    assert_contains(result.output, "CORRUPT: memory node 1, region");
    assert_contains(result.output,
                    text_of("changes between %llu and %llu may have stood there",
                            (unsigned long long)sequence - 1, (unsigned long long)sequence + 1));
    assert_lacks(result.output, "RECOVERABLE");
    assert_int_equal(process_stop(second), 0);

    flip(&cluster.node, copy + FORMAT_LOG_FRAME_BYTES + 3, 4); /* whole again */
    assert_int_equal(recover(scene, cluster.address, NULL, NULL), 0);
    assert_contains(result.output, "RECOVERABLE: memory node 0, region");
    assert_contains(result.output, "other memory nodes have all that stood there: nothing is lost");
    assert_contains(result.output, "recoverable: 1 place;");
    assert_lacks(result.output, "CORRUPT");
    assert_int_equal(recover(scene, cluster.address, "--json", NULL), 0);
    json_t *json = json_loads(result.output, 0, NULL);
    assert_true(json_is_true(json_object_get(json, "sound")));
    assert_int_equal(json_integer_value(json_object_get(json, "recoverable")), 1);
    json_decref(json);
    redisFree(client);
    second = compute_start_copies(scene, "third", cluster.address, "2", false);
    client = client_of(second, 0);
    wait_answer(client, 7, "value7");
    expect_all(client);
    redisFree(client);
    assert_int_equal(process_stop(second), 0);
    cluster_end(scene, &cluster);
}

/* All is merged, and the log says so. */
static bool merged(void *context)
{
    const char *info = ask(context, "INFO log");
    return strstr(info, "log_unmerged_keys:0\r\n") && strstr(info, "log_lag_entries:0\r\n");
}

/* One bit of a dead owner's log, wherever it lies: its ranges wait, and say what for, until it is accepted.
 * Everything was merged here, and the log does not say so, so nothing is lost by that. */
static void one_bit_is_enough(void **state)
{
    static const char *const names[] = {"second", "third", "fourth"};
    static const char *const wanted[] = {"CORRUPT: memory node 0, segment at",
                                         "CORRUPT: memory node 0, region at",
                                         "CORRUPT: memory node 0, control block at"};
    struct scene *scene = *state;
    struct cluster cluster;
    struct format_log_view view;
    cluster_start(scene, &cluster);
    node_open(&cluster.node, cluster.address);
    for (unsigned i = 0; i < 3; i++) {
        redisContext *client = client_of(cluster.compute, 0);
        wait_until(owns, client, "the compute node does not own its ranges");
        keys_set(client);
        wait_until(merged, client, "everything to be merged");
        redisFree(client);
        process_kill(cluster.compute);
        const struct memory_log_segments log = log_of(&cluster.node, 0);
        unmerge(&cluster.node, 0);
        const gaddr places[] = {
            log.segments[0].address + 9,
            log.segments[0].address +
                frame_at(&cluster.node, &log.segments[0], KEYS / 2, &view, cluster.bytes) + 5,
            log.control + 2};
        flip(&cluster.node, places[i], i);

        cluster.compute = compute_start(scene, names[i], cluster.address, false);
        client = client_of(cluster.compute, 0);
        wait_answer(client, 7, "banyan recover");
        assert_contains(ask(client, "SET key007 x"), "banyan recover");
        assert_int_equal(recover(scene, cluster.address, NULL, NULL), 3);
        assert_contains(result.output, wanted[i]);
        assert_contains(result.output, "corrupt: 1 place;");
        assert_int_equal(recover(scene, cluster.address, "--accept-loss", NULL), 0);
        assert_contains(result.output, wanted[i]);
        assert_contains(result.output, "accepted: 1 place;");
        wait_answer(client, 7, "value7");
        expect_all(client);
        redisFree(client);
    }
    assert_int_equal(process_stop(cluster.compute), 0);
    assert_int_equal(recover(scene, cluster.address, NULL, NULL), 0);
    cluster_end(scene, &cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_torn_tail_is_cut, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(a_corrupt_middle_is_refused_until_accepted, scene_set_up,
                                        scene_tear_down),
        cmocka_unit_test_setup_teardown(what_another_memory_node_has_is_not_lost, scene_set_up,
                                        scene_tear_down),
        cmocka_unit_test_setup_teardown(one_bit_is_enough, scene_set_up, scene_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
