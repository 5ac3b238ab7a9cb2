/*
 * test_log_kill.c - an owner dies by SIGKILL with a good deal in its log that is not merged: another process
 * inherits its ranges, nothing that was acknowledged is lost, and what was not acknowledged is there as it
 * was sent, or not at all. Real processes: two memory nodes, two compute nodes with logs, read lease 40 ms.
 *
 * Two connections write to the owner as fast as they can until so much is not merged as is wanted (where that
 * takes long, less); then it is killed in the middle of that. They set keys, each to values that tell their
 * number, and append tokens to lists, whose keys lie in the owner's ranges. Without arguments the short form,
 * also while the other compute node does not reach a memory node. test_log_kill ROUNDS [MIB [VALUE_BYTES
 * [COPIES]]] measures how soon all of the owner's ranges answer a write again.
 */
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "base/random.h"
#include "cluster/process.h"
#include "cluster/proxy.h"
#include "cluster/talk.h"

#define SECOND       UINT64_C(1000000000)
#define CONNECTIONS  2u
#define KEY_BYTES    16u  /* hexadecimal digits */
#define WINDOW       128u /* commands that are sent before their replies are read */
#define APPEND_EVERY 32u  /* so many-th command appends to a list */
#define TOKENS       16u  /* of a list */
#define RANGES_MAX   512u
#define VALUE_MAX    8192u

/* What may be in a key: the value of the last command that was acknowledged, or of one that was not. */
struct known {
    uint64_t id;
    uint64_t value; /* its number; 0: none */
};

struct range {
    char from[64];
    bool victims;
};

struct writer {
    struct work *work;
    unsigned number;
    redisContext *client;
    pthread_t thread;
    uint32_t *keys; /* of the victim's ranges, this writer's; owned */
    uint32_t key_count;
    uint64_t sent, acknowledged; /* commands of this round */
    char wrong[200];
};

/* A measurement, and what its writers share. */
struct work {
    struct scene *scene;
    char memory[2 * NET_TEXT_MAX + 2];
    struct proxy *proxy;         /* compute node 0 reaches memory node 1 through it; NULL: not so */
    struct process *computes[2]; /* number 1 is the one that is killed */
    redisContext *clients[2];
    const char *copies;
    struct known *known; /* owned */
    uint32_t known_count, value_bytes;
    uint64_t wanted; /* bytes of keys and values that are not merged */
    struct range ranges[RANGES_MAX];
    uint32_t range_count, round;
    struct writer writers[CONNECTIONS];
    uint64_t unmerged;
};

static struct process_result result;

/* ---- the cluster ---- */

/* The memory nodes as the compute node reaches them. */
static const char *memory_of(const struct work *work, unsigned number)
{
    char proxied[NET_TEXT_MAX];
    if (number || !work->proxy)
        return work->memory;
    const struct net_address address = proxy_address(work->proxy);
    return text_of("%.*s,%s", (int)strcspn(work->memory, ","), work->memory,
                   net_address_format(&address, proxied));
}

static void compute_start(struct work *work, unsigned number, bool first)
{
    static const char *const names[] = {"compute-0", "compute-1"};
    const char *const *arguments =
        ARGUMENTS("compute", "--memory", memory_of(work, number), "--listen",
                  text_of("unix:%s", scene_path(work->scene, "c%u.sock", number)), "--threads", "1",
                  "--lease", "20000", "--timeout", "5000", "--read-lease", "40", "--log", "auto",
                  "--log-copies", work->copies, first ? "--format" : NULL);
    if (work->computes[number])
        process_restart(work->scene, work->computes[number], arguments);
    else
        work->computes[number] = process_start(work->scene, names[number], arguments);
    work->clients[number] = client_of(work->computes[number], 0);
}

/* A figure of INFO. */
static uint64_t figure(redisContext *client, const char *section, const char *name)
{
    redisReply *reply = redisCommand(client, "INFO %s", section);
    assert_non_null(reply);
    const char *at = strstr(reply->str, text_of("\n%s:", name));
    if (!at)
        fail_msg("INFO has no %s: %s", name, reply->str);
    const uint64_t value = strtoull(at + strlen(name) + 2, NULL, 10);
    freeReplyObject(reply);
    return value;
}

/* Both own some, and nothing is on its way. */
static bool divided(void *context)
{
    struct work *work = context;
    uint64_t sum = 0;
    for (unsigned i = 0; i < 2; i++) {
        const uint64_t owned = figure(work->clients[i], "ownership", "ownership_ranges_owned");
        if (!owned)
            return false;
        sum += owned;
    }
    return sum == figure(work->clients[0], "ownership", "ownership_ranges") &&
           sum == figure(work->clients[1], "ownership", "ownership_ranges");
}

/* The map: which ranges the one that will be killed has. */
static void ranges_fetch(struct work *work)
{
    const json_int_t id = (json_int_t)figure(work->clients[1], "ownership", "ownership_compute_id");
    process_run(work->scene, NULL, ARGUMENTS("ranges", "--memory", work->memory, "list", "redis", "--json"),
                &result);
    json_t *json = json_loads(result.output, 0, NULL), *one;
    size_t i;
    work->range_count = 0;
    if (result.code || !json)
        fail_msg("banyan ranges: %d\n%s%s", result.code, result.output, result.error);
    json_array_foreach(json_object_get(json, "ranges"), i, one)
    {
        const json_t *owner = json_object_get(one, "owner");
        struct range *range = &work->ranges[work->range_count++];
        assert_true(work->range_count < RANGES_MAX);
        snprintf(range->from, sizeof range->from, "%s", json_string_value(json_object_get(one, "from")));
        range->victims = json_integer_value(json_object_get(owner, "id")) == id;
    }
    json_decref(json);
}

static const char *key_text(char text[KEY_BYTES + 1], uint64_t id)
{
    snprintf(text, KEY_BYTES + 1, "%016" PRIx64, id);
    return text;
}

static uint32_t range_of(const struct work *work, const char *key)
{
    uint32_t at = 0;
    while (at + 1 < work->range_count && strcmp(work->ranges[at + 1].from, key) <= 0)
        at++;
    return at;
}

/* Of each of the victim's ranges a key, if one of ours lies there; returns how many. */
static uint32_t one_of_each(const struct work *work, uint64_t ids[RANGES_MAX])
{
    bool seen[RANGES_MAX] = {false};
    char key[KEY_BYTES + 1];
    uint32_t count = 0;
    for (unsigned c = 0; c < CONNECTIONS; c++)
        for (uint32_t i = 0; i < work->writers[c].key_count; i++) {
            const uint64_t id = work->known[work->writers[c].keys[i]].id;
            const uint32_t range = range_of(work, key_text(key, id));
            if (!seen[range])
                ids[count++] = id;
            seen[range] = true;
        }
    return count;
}

/* ---- writing ---- */

/* The value that tells the command's number: the same text for the same number. */
static void value_make(char *text, uint32_t bytes, uint64_t number)
{
    int length = snprintf(text, bytes, "%" PRIu64 ".", number);
    memset(text + length, 'a' + (int)(number % 26), bytes - (uint32_t)length);
}

/* The n-th command of a writer in this round. */
static bool is_append(uint64_t n)
{
    return n % APPEND_EVERY == APPEND_EVERY - 1;
}
static uint32_t key_of(const struct writer *writer, uint64_t n)
{
    return writer->keys[n % writer->key_count];
}
/* Numbers are not 0, and differ between rounds and writers. */
static uint64_t number_of(const struct writer *writer, uint64_t n)
{
    return ((uint64_t)writer->work->round << 40) + n * CONNECTIONS + writer->number + 1;
}
static void list_key(const struct writer *writer, uint64_t list, char text[64])
{
    char key[KEY_BYTES + 1];
    key_text(key, writer->work->known[writer->keys[list % writer->key_count]].id);
    snprintf(text, 64, "%s+%u.%" PRIu64, key, writer->work->round, list);
}

static void command_send(struct writer *writer, uint64_t n)
{
    const struct work *work = writer->work;
    char text[VALUE_MAX], key[64];
    if (is_append(n)) {
        const uint64_t append = n / APPEND_EVERY;
        list_key(writer, append / TOKENS, key);
        (void)redisAppendCommand(writer->client, "APPEND %s %u;", key, (unsigned)(append % TOKENS));
        return;
    }
    value_make(text, work->value_bytes, number_of(writer, n));
    (void)redisAppendCommand(writer->client, "SET %s %b", key_text(key, work->known[key_of(writer, n)].id),
                             text, (size_t)work->value_bytes);
}

/* Until the connection dies. */
static void *writer_main(void *context)
{
    struct writer *writer = context;
    for (;;) {
        for (unsigned i = 0; i < WINDOW; i++)
            command_send(writer, writer->sent + i);
        writer->sent += WINDOW;
        while (writer->acknowledged < writer->sent) {
            redisReply *reply = NULL;
            if (redisGetReply(writer->client, (void **)&reply) != REDIS_OK)
                return NULL;
            const bool error = reply->type == REDIS_REPLY_ERROR;
            if (error)
                snprintf(writer->wrong, sizeof writer->wrong, "%s", reply->str);
            freeReplyObject(reply);
            if (error)
                return NULL;
            writer->acknowledged++;
        }
    }
}

static void writers_start(struct work *work)
{
    char key[KEY_BYTES + 1];
    for (unsigned c = 0; c < CONNECTIONS; c++) {
        struct writer *writer = &work->writers[c];
        writer->work = work;
        writer->number = c;
        writer->sent = writer->acknowledged = 0;
        writer->wrong[0] = 0;
        writer->key_count = 0;
        for (uint32_t i = c; i < work->known_count; i += CONNECTIONS)
            if (work->ranges[range_of(work, key_text(key, work->known[i].id))].victims)
                writer->keys[writer->key_count++] = i;
        assert_true(writer->key_count > TOKENS);
        writer->client = client_of(work->computes[1], 0);
    }
    for (unsigned c = 0; c < CONNECTIONS; c++)
        assert_int_equal(pthread_create(&work->writers[c].thread, NULL, writer_main, &work->writers[c]), 0);
}

/* Until so much is not merged as is wanted; of that half is enough after each second. Where something else
 * keeps the machine busy, the writers wait for it longer than the merging does, which so keeps up with them.
 */
static void unmerged_await(struct work *work)
{
    const uint64_t begun = now_ns();
    for (;;) {
        work->unmerged =
            figure(work->clients[1], "log", "log_unmerged_keys") * (KEY_BYTES + work->value_bytes);
        const uint64_t seconds = (now_ns() - begun) / SECOND;
        if (work->unmerged && work->unmerged >= work->wanted >> (seconds < 63 ? seconds : 63))
            return;
    }
}

/* ---- what is there ---- */

/* What the key's value may be beside what is known: that of a command which was sent and not acknowledged. */
static bool may_be(const struct work *work, uint32_t key, const redisReply *value)
{
    const struct writer *writer = &work->writers[key % CONNECTIONS];
    char text[VALUE_MAX];
    for (uint64_t n = writer->acknowledged; n < writer->sent; n++) {
        value_make(text, work->value_bytes, number_of(writer, n));
        if (!is_append(n) && key_of(writer, n) == key && value->len == work->value_bytes &&
            !memcmp(value->str, text, value->len))
            return true;
    }
    return false;
}

static bool is_known(const struct work *work, uint32_t key, const redisReply *value)
{
    const uint64_t number = work->known[key].value;
    char text[VALUE_MAX];
    if (!number)
        return value->type == REDIS_REPLY_NIL;
    value_make(text, work->value_bytes, number);
    return value->type == REDIS_REPLY_STRING && value->len == work->value_bytes &&
           !memcmp(value->str, text, value->len);
}

static void values_check(struct work *work)
{
    char key[KEY_BYTES + 1];
    for (unsigned c = 0; c < CONNECTIONS; c++)
        for (uint64_t n = 0; n < work->writers[c].acknowledged; n++)
            if (!is_append(n))
                work->known[key_of(&work->writers[c], n)].value = number_of(&work->writers[c], n);
    for (uint32_t i = 0; i < work->known_count; i += WINDOW) {
        const uint32_t end = i + WINDOW < work->known_count ? i + WINDOW : work->known_count;
        for (uint32_t k = i; k < end; k++)
            (void)redisAppendCommand(work->clients[0], "GET %s", key_text(key, work->known[k].id));
        for (uint32_t k = i; k < end; k++) {
            redisReply *reply = NULL;
            assert_int_equal(redisGetReply(work->clients[0], (void **)&reply), REDIS_OK);
            const bool newer = reply->type == REDIS_REPLY_STRING && may_be(work, k, reply);
            if (!newer && !is_known(work, k, reply))
                fail_msg("round %u, key %s: '%.40s', not value %" PRIu64, work->round,
                         key_text(key, work->known[k].id), reply->str ? reply->str : "(nil)",
                         work->known[k].value);
            if (newer)
                work->known[k].value = strtoull(reply->str, NULL, 10);
            freeReplyObject(reply);
        }
    }
}

/* The first tokens in their order, all that were acknowledged among them, and none that was not sent. */
static void list_check(const struct work *work, const struct writer *writer, uint64_t list,
                       const redisReply *value)
{
    const uint64_t acknowledged = writer->acknowledged / APPEND_EVERY, sent = writer->sent / APPEND_EVERY;
    const char *at = value->type == REDIS_REPLY_STRING ? value->str : "";
    uint64_t tokens = 0;
    for (; *at && tokens < TOKENS; tokens++) {
        const char *token = text_of("%u;", (unsigned)tokens);
        if (strncmp(at, token, strlen(token)) != 0)
            break;
        at += strlen(token);
    }
    if (*at || list * TOKENS + tokens > sent || (tokens < TOKENS && list * TOKENS + tokens < acknowledged))
        fail_msg("round %u: a list holds '%s'; of its writer's tokens from %" PRIu64 " on %" PRIu64
                 " were sent and %" PRIu64 " acknowledged",
                 work->round, value->str ? value->str : "(nil)", list * TOKENS, sent, acknowledged);
}

static void lists_check(struct work *work)
{
    char key[64];
    for (unsigned c = 0; c < CONNECTIONS; c++) {
        const struct writer *writer = &work->writers[c];
        const uint64_t lists = writer->sent / APPEND_EVERY / TOKENS + 1;
        for (uint64_t i = 0; i < lists; i++) {
            list_key(writer, i, key);
            redisReply *reply = redisCommand(work->clients[0], "GET %s", key);
            assert_non_null(reply);
            list_check(work, writer, i, reply);
            freeReplyObject(reply);
        }
    }
}

/* ---- a round ---- */

/* Until all of the dead one's ranges have answered a write. */
static void ranges_await(struct work *work, const uint64_t *ids, uint32_t count)
{
    bool done[RANGES_MAX] = {false};
    const uint64_t begun = now_ns();
    for (uint32_t left = count; left;) {
        for (uint32_t i = 0; i < count; i++)
            if (!done[i])
                (void)redisAppendCommand(work->clients[0], "SET %016" PRIx64 "!probe %u", ids[i],
                                         work->round);
        for (uint32_t i = 0; i < count; i++) {
            redisReply *reply = NULL;
            if (done[i])
                continue;
            assert_int_equal(redisGetReply(work->clients[0], (void **)&reply), REDIS_OK);
            done[i] = reply->type == REDIS_REPLY_STATUS;
            left -= done[i];
            if (!done[i] && (now_ns() - begun > 30 * SECOND || (strncmp(reply->str, "CLUSTERDOWN", 11) != 0 &&
                                                                strncmp(reply->str, "UNKNOWN", 7) != 0)))
                fail_msg("SET: %s", reply->str);
            freeReplyObject(reply);
        }
    }
}

static bool memory_lost(void *context)
{
    const struct work *work = context;
    redisReply *reply = redisCommand(work->clients[0], "INFO");
    assert_non_null(reply);
    const bool lost = strstr(reply->str, "\nmemory_node1:connected=0");
    freeReplyObject(reply);
    return lost;
}

struct times {
    uint64_t answered, unmerged, inherited;
};

static void round_run(struct work *work, struct times *times)
{
    uint64_t ids[RANGES_MAX];
    const uint64_t before = figure(work->clients[0], "log", "log_inherited");
    ranges_fetch(work);
    writers_start(work);
    const uint32_t count = one_of_each(work, ids);
    unmerged_await(work);
    if (work->proxy)
        proxy_hold(work->proxy, true);
    process_signal(work->computes[1], SIGKILL);
    if (work->proxy) {
        wait_until(memory_lost, work, "the other compute node to lose a memory node");
        proxy_hold(work->proxy, false);
    }
    const uint64_t begun = now_ns();
    ranges_await(work, ids, count);
    times->answered = now_ns() - begun;
    times->unmerged = work->unmerged;
    times->inherited = figure(work->clients[0], "log", "log_inherited") - before;
    process_wait(work->computes[1]);
    for (unsigned c = 0; c < CONNECTIONS; c++) {
        assert_int_equal(pthread_join(work->writers[c].thread, NULL), 0);
        assert_string_equal(work->writers[c].wrong, "");
        redisFree(work->writers[c].client);
    }
    values_check(work);
    lists_check(work);
    assert_true(times->inherited > 0);
    redisFree(work->clients[1]);
    compute_start(work, 1, false);
    wait_until(divided, work, "each compute node to own a share of the ranges");
}

static void work_open(struct work *work, struct scene *scene, uint64_t wanted, uint32_t value_bytes,
                      const char *copies, bool proxied)
{
    static const char *const names[] = {"memory-0", "memory-1"};
    char key[KEY_BYTES + 1];
    *work = (struct work){.scene = scene, .wanted = wanted, .value_bytes = value_bytes, .copies = copies};
    for (unsigned i = 0; i < 2; i++) {
        const struct process *memory = process_start(
            scene, names[i],
            ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "2G", "--log-bytes", "256M"));
        snprintf(work->memory + strlen(work->memory), sizeof work->memory - strlen(work->memory), "%s%s",
                 i ? "," : "", address_text(memory, 0));
        const struct net_address address = process_address(memory, 0);
        if (i && proxied)
            work->proxy = proxy_start(&address);
    }
    work->known_count = (uint32_t)(5 * wanted / (KEY_BYTES + value_bytes));
    work->known = calloc(work->known_count, sizeof *work->known);
    assert_non_null(work->known);
    for (unsigned c = 0; c < CONNECTIONS; c++) {
        work->writers[c].keys = calloc(work->known_count, sizeof *work->writers[c].keys);
        assert_non_null(work->writers[c].keys);
    }
    for (uint32_t i = 0; i < work->known_count; i++)
        work->known[i].id = random_mix(i + 1);
    compute_start(work, 0, true);
    /* Some keys in the index, so that the ranges can be divided: none of those that are written. */
    for (uint32_t i = 0; i < 2000; i++)
        assert_string_equal(ask(work->clients[0], "SET %s- first", key_text(key, random_mix(~(uint64_t)i))),
                            "OK");
    compute_start(work, 1, false);
    wait_until(divided, work, "each compute node to own a share of the ranges");
}

static void work_close(struct work *work)
{
    for (unsigned i = 0; i < 2 && work->proxy; i++) /* before the way of one of them ends */
        assert_int_equal(process_stop(work->computes[i]), 0);
    proxy_stop(work->proxy);
    for (unsigned i = 0; i < 2; i++)
        redisFree(work->clients[i]);
    for (unsigned c = 0; c < CONNECTIONS; c++)
        free(work->writers[c].keys);
    free(work->known);
    work->scene->passed = true;
}

static void kill_with_unmerged(void **state)
{
    static struct work work;
    struct times times;
    work_open(&work, *state, UINT64_C(4) << 20, 1000, "1", false);
    for (work.round = 1; work.round <= 3; work.round++)
        round_run(&work, &times);
    work_close(&work);
}

/* The owner dies while the other compute node does not reach a memory node, which has part of the dead one's
 * log: when it is there again all ranges answer, and nothing is lost. */
static void kill_while_a_memory_node_is_away(void **state)
{
    static struct work work;
    struct times times;
    work_open(&work, *state, UINT64_C(1) << 20, 1000, "1", true);
    for (work.round = 1; work.round <= 2; work.round++)
        round_run(&work, &times);
    work_close(&work);
}

/* ---- measuring ---- */

static int compare_numbers(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int measure(unsigned rounds, uint64_t mib, uint32_t value_bytes, const char *copies)
{
    static struct work work;
    struct scene scene;
    struct times times;
    uint64_t *answered = calloc(rounds, sizeof *answered);
    if (!answered || !rounds || !mib || value_bytes < 24 || value_bytes > VALUE_MAX) {
        fprintf(stderr, "test_log_kill takes a number of rounds, of MiB, and of bytes, 24 to %u\n",
                VALUE_MAX);
        free(answered);
        return 2;
    }
    scene_open(&scene);
    work_open(&work, &scene, mib << 20, value_bytes, copies, false);
    for (work.round = 1; work.round <= rounds; work.round++) {
        round_run(&work, &times);
        answered[work.round - 1] = times.answered;
        printf("%u: all ranges answer after %.1f ms; %.1f MiB not merged, %" PRIu64 " entries inherited\n",
               work.round, (double)times.answered / 1e6, (double)times.unmerged / 1048576, times.inherited);
        fflush(stdout);
    }
    work_close(&work);
    qsort(answered, rounds, sizeof *answered, compare_numbers);
    printf("%u kills with %" PRIu64 " MiB not merged, values of %u bytes, copies %s: all ranges answer after "
           "%.1f ms (median; %.1f to %.1f)\n",
           rounds, mib, value_bytes, copies, (double)answered[rounds / 2] / 1e6, (double)answered[0] / 1e6,
           (double)answered[rounds - 1] / 1e6);
    scene_close(&scene);
    free(answered);
    return 0;
}

int main(int count, char **arguments)
{
    if (count > 1)
        return measure(
            (unsigned)strtoul(arguments[1], NULL, 10), count > 2 ? strtoull(arguments[2], NULL, 10) : 16,
            count > 3 ? (uint32_t)strtoul(arguments[3], NULL, 10) : 1024, count > 4 ? arguments[4] : "1");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(kill_with_unmerged, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(kill_while_a_memory_node_is_away, scene_set_up, scene_tear_down),
    };
    return cmocka_run_group_tests_name("log_kill", tests, NULL, NULL);
}
