/*
 * test_dump.c - `banyan dump` of a cluster whose servers go on serving: each range that a compute node owns
 * is in the file as it was at one moment (rule B7, docs/internals/cuts.md), whichever server clients write
 * through, while ranges move to another owner and when an owner is killed. Real processes: two memory nodes,
 * two compute nodes, four writers, two at each.
 *
 * The judge is tests/store/moment.h, for each range by itself: the changes of a writer's keys in a range are
 * one client of it.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "archive/archive.h"
#include "base/atomic.h"
#include "base/random.h"
#include "cluster/process.h"
#include "cluster/talk.h"
#include "store/moment.h"

#define WRITERS    4u
#define COMPUTES   2u
#define FILLERS    20000u
#define FILLERS_AT 500u /* of them in an MSET */
#define RANGES_MAX 128u
#define KEY_MAX    32u
#define FILE_MAX   12u
#define DUMPS      3u /* of a test without faults */

struct cluster {
    struct scene *scene;
    char memory[2 * NET_TEXT_MAX + 2];
    struct process *computes[COMPUTES];
    redisContext *clients[COMPUTES];
    char bounds[RANGES_MAX][64]; /* where ranges have ever begun, ascending */
    unsigned range_count;
    /* what writers share */
    uint64_t clock;
    uint32_t stopping; /* atomic */
    struct moment_client changes[RANGES_MAX][WRITERS];
    struct writer {
        struct cluster *cluster;
        unsigned number;
        pthread_t thread;
        char wrong[200];
    } writers[WRITERS];
};

/* What a file says. */
struct content {
    const struct cluster *cluster;
    uint64_t fillers;
    uint64_t (*values)[WRITERS][MOMENT_KEYS]; /* [ranges]; owned */
    char wrong[100];
};

static struct process_result result;

/* ---- the cluster ---- */

static void compute_start(struct cluster *cluster, unsigned number, const char *log)
{
    static const char *const names[] = {"compute-0", "compute-1"};
    cluster->computes[number] =
        process_start(cluster->scene, names[number],
                      ARGUMENTS("compute", "--memory", cluster->memory, "--listen", "127.0.0.1:0",
                                "--threads", "1", "--lease", "60000", "--read-lease", "40", "--own", "auto",
                                "--log", log, number ? NULL : "--format"));
    cluster->clients[number] = client_of(cluster->computes[number], 0);
}

static unsigned compute_id(const struct cluster *cluster, unsigned number)
{
    return (unsigned)info_figure(cluster->clients[number], "ownership", "ownership_compute_id");
}

/* Both own some, and nothing is on its way. */
static bool divided(void *context)
{
    struct cluster *cluster = context;
    uint64_t sum = 0;
    for (unsigned i = 0; i < COMPUTES; i++) {
        const uint64_t owned = info_figure(cluster->clients[i], "ownership", "ownership_ranges_owned");
        if (!owned)
            return false;
        sum += owned;
    }
    return sum == info_figure(cluster->clients[0], "ownership", "ownership_ranges") &&
           sum == info_figure(cluster->clients[1], "ownership", "ownership_ranges");
}

static void bound_add(struct cluster *cluster, const char *from)
{
    unsigned at = 0;
    while (at < cluster->range_count && strcmp(cluster->bounds[at], from) < 0)
        at++;
    if (at < cluster->range_count && !strcmp(cluster->bounds[at], from))
        return;
    assert_true(cluster->range_count < RANGES_MAX);
    memmove(cluster->bounds[at + 1], cluster->bounds[at],
            (cluster->range_count - at) * sizeof cluster->bounds[0]);
    snprintf(cluster->bounds[at], sizeof cluster->bounds[0], "%s", from);
    cluster->range_count++;
}

static void bounds_fetch(struct cluster *cluster)
{
    process_run(cluster->scene, NULL,
                ARGUMENTS("ranges", "--memory", cluster->memory, "list", "redis", "--json"), &result);
    json_t *json = json_loads(result.output, 0, NULL), *one;
    size_t i;
    if (result.code || !json)
        fail_msg("banyan ranges: %d\n%s%s", result.code, result.output, result.error);
    json_array_foreach(json_object_get(json, "ranges"), i, one)
    {
        bound_add(cluster, json_string_value(json_object_get(one, "from")));
    }
    json_decref(json);
}

static unsigned range_of(const struct cluster *cluster, const char *key)
{
    unsigned at = 0;
    while (at + 1 < cluster->range_count && strcmp(cluster->bounds[at + 1], key) <= 0)
        at++;
    return at;
}

/* Fillers and writers' keys lie among each other, all over the key space. */
static const char *key_text(char text[KEY_MAX], unsigned writer, unsigned number)
{
    snprintf(text, KEY_MAX, "%08" PRIx64 "/%u/%02u", random_mix(1000 * (uint64_t)writer + number + 1) >> 32,
             writer, number);
    return text;
}

static void fill(struct cluster *cluster)
{
    static char keys[FILLERS_AT][KEY_MAX];
    const char *arguments[2 * FILLERS_AT + 1] = {"MSET"};
    for (unsigned i = 0; i < FILLERS; i += FILLERS_AT) {
        for (unsigned j = 0; j < FILLERS_AT; j++) {
            snprintf(keys[j], KEY_MAX, "%08" PRIx64 "/filler", random_mix(~(uint64_t)(i + j)) >> 32);
            arguments[2 * j + 1] = keys[j];
            arguments[2 * j + 2] = "a filler, which is longer than a slot has room";
        }
        redisReply *reply = redisCommandArgv(cluster->clients[0], 2 * FILLERS_AT + 1, arguments, NULL);
        if (!reply || reply->type == REDIS_REPLY_ERROR)
            fail_msg("MSET: %s", reply ? reply->str : "the connection is lost");
        freeReplyObject(reply);
    }
}

static struct cluster *cluster_open(struct scene *scene, const char *log)
{
    static const char *const names[] = {"memory-0", "memory-1"};
    struct cluster *cluster = calloc(1, sizeof *cluster);
    assert_non_null(cluster);
    cluster->scene = scene;
    for (unsigned i = 0; i < 2; i++) {
        const struct process *memory = process_start(
            scene, names[i],
            ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "256M", "--log-bytes", "64M"));
        snprintf(cluster->memory + strlen(cluster->memory), sizeof cluster->memory - strlen(cluster->memory),
                 "%s%s", i ? "," : "", address_text(memory, 0));
    }
    compute_start(cluster, 0, log);
    fill(cluster);
    compute_start(cluster, 1, log);
    wait_until(divided, cluster, "each compute node to own a share of the ranges");
    bounds_fetch(cluster);
    assert_true(cluster->range_count >= 4);
    return cluster;
}

static void cluster_close(struct cluster *cluster)
{
    for (unsigned r = 0; r < RANGES_MAX; r++)
        for (unsigned w = 0; w < WRITERS; w++)
            moment_client_free(&cluster->changes[r][w]);
    for (unsigned i = 0; i < COMPUTES; i++)
        redisFree(cluster->clients[i]);
    cluster->scene->passed = true;
    free(cluster);
}

/* ---- writers ---- */

/* Sends it until it is done: each change makes of its keys the same, however often it is made, and what an
 * owner that was killed has left of it counts before its ranges are served again. False: the server is gone,
 * and nobody knows whether it was done. */
static bool write_until_done(struct writer *writer, redisContext *client, int count, const char **arguments)
{
    for (;;) {
        redisReply *reply = redisCommandArgv(client, count, arguments, NULL);
        const bool gone = !reply, done = reply && reply->type != REDIS_REPLY_ERROR;
        if (reply && !done && strncmp(reply->str, "CLUSTERDOWN", 11) != 0 &&
            strncmp(reply->str, "UNKNOWN", 7) != 0)
            snprintf(writer->wrong, sizeof writer->wrong, "%s: %.150s", arguments[0], reply->str);
        freeReplyObject(reply);
        if (done || gone || *writer->wrong)
            return done;
    }
}

/* Up to two keys in different ranges, since what a server makes of several keys of a range it does not make
 * at once. */
static bool write_one(struct writer *writer, redisContext *client, struct random *random, uint64_t number)
{
    struct cluster *cluster = writer->cluster;
    char keys[2][KEY_MAX], values[2][120];
    const char *arguments[5] = {"MSET", keys[0], values[0], keys[1], values[1]};
    struct moment_client *changes[2];
    const uint64_t kind = random_below(random, 100);
    unsigned count = kind < 20 ? 2 : 1;
    for (unsigned i = 0; i < count; i++) {
        const uint32_t key = (uint32_t)random_below(random, MOMENT_KEYS);
        const unsigned range = range_of(cluster, key_text(keys[i], writer->number, key));
        changes[i] = &cluster->changes[range][writer->number];
        if (i && changes[0] == changes[1]) {
            count = 1;
            break;
        }
        /* Some lie in the slot, some in a record. */
        snprintf(values[i], sizeof values[i], "%08u%.*s", (unsigned)(2 * number + i), kind % 3 ? 0 : 100,
                 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        moment_begin(changes[i], &cluster->clock);
        moment_add(changes[i], key, kind >= 80 ? 0 : 2 * number + i);
    }
    if (kind >= 80)
        arguments[0] = "DEL";
    else if (kind >= 50)
        arguments[0] = "SET";
    if (!write_until_done(writer, client, kind >= 80 ? 2 : (int)(2 * count + 1), arguments))
        return false;
    for (unsigned i = 0; i < count; i++)
        moment_end(changes[i], &cluster->clock);
    return true;
}

static void *write_on(void *context)
{
    struct writer *writer = context;
    struct cluster *cluster = writer->cluster;
    const struct net_address address = process_address(cluster->computes[writer->number % COMPUTES], 0);
    redisContext *client = client_connect(&address);
    struct random random;
    random_seed(&random, writer->number + 1);
    for (uint64_t number = 1; !atomic_load_relaxed(&cluster->stopping); number++) /* a hint */
        if (!write_one(writer, client, &random, number))
            break;
    redisFree(client);
    return NULL;
}

static void writers_start(struct cluster *cluster)
{
    for (unsigned i = 0; i < WRITERS; i++) {
        cluster->writers[i] = (struct writer){.cluster = cluster, .number = i};
        assert_int_equal(pthread_create(&cluster->writers[i].thread, NULL, write_on, &cluster->writers[i]),
                         0);
    }
}

/* A compute node that takes its share of keys splits ranges, whenever it thinks that it has too little. What
 * was of one moment in a range was so in each of its parts: so changes are judged by the smallest parts. */
static void changes_divide(struct cluster *cluster)
{
    struct moment_client(*whole)[WRITERS] = malloc(sizeof cluster->changes);
    char key[KEY_MAX];
    assert_non_null(whole);
    memcpy(whole, cluster->changes, sizeof cluster->changes);
    memset(cluster->changes, 0, sizeof cluster->changes);
    bounds_fetch(cluster);
    for (unsigned r = 0; r < RANGES_MAX; r++)
        for (unsigned w = 0; w < WRITERS; w++) {
            for (size_t i = 0; i < whole[r][w].count; i++) {
                const struct moment_change *change = &whole[r][w].changes[i]; /* of one key: see write_one */
                const unsigned range = range_of(cluster, key_text(key, w, change->keys[0]));
                moment_copy(&cluster->changes[range][w], change);
            }
            moment_client_free(&whole[r][w]);
        }
    free(whole);
}

static void writers_stop(struct cluster *cluster)
{
    atomic_store_relaxed(&cluster->stopping, 1u); /* joined below */
    for (unsigned i = 0; i < WRITERS; i++) {
        assert_int_equal(pthread_join(cluster->writers[i].thread, NULL), 0);
        assert_string_equal(cluster->writers[i].wrong, "");
    }
    changes_divide(cluster);
}

/* ---- dumps ---- */

struct dumped {
    char file[SCENE_PATH_MAX];
    uint64_t from, to; /* stamps around the command */
};

static const char *const *dump_arguments(const struct cluster *cluster, const struct dumped *dumped)
{
    static const char *arguments[8];
    static char addresses[COMPUTES][NET_TEXT_MAX];
    const char *const all[] = {"dump",       addresses[0],   addresses[1], "--output",
                               dumped->file, "--consistent", "require",    NULL};
    for (unsigned i = 0; i < COMPUTES; i++) {
        const struct net_address address = process_address(cluster->computes[i], 0);
        (void)net_address_format(&address, addresses[i]);
    }
    memcpy(arguments, all, sizeof all);
    return arguments;
}

static void dump_begin(struct cluster *cluster, struct dumped *dumped, unsigned number)
{
    snprintf(dumped->file, sizeof dumped->file, "%s", scene_path(cluster->scene, "dump-%u", number));
    dumped->from = moment_stamp(&cluster->clock);
}

static void dump_run(struct cluster *cluster, struct dumped *dumped, unsigned number)
{
    dump_begin(cluster, dumped, number);
    process_run(cluster->scene, NULL, dump_arguments(cluster, dumped), &result);
    dumped->to = moment_stamp(&cluster->clock);
    if (result.code)
        fail_msg("banyan dump: %d\n%s%s", result.code, result.output, result.error);
    assert_contains(result.output, "ranges, each as it was at one moment,");
}

static int content_add(void *context, const struct archive_entry *entry, struct error *error)
{
    struct content *content = context;
    char key[KEY_MAX] = "", digits[9] = "";
    unsigned writer, number;
    if (entry->key_length < sizeof key)
        memcpy(key, entry->key, entry->key_length);
    if (strstr(key, "/filler")) {
        content->fillers++;
        return 0;
    }
    if (entry->value_length < 8 || sscanf(key, "%*x/%u/%u", &writer, &number) != 2 || writer >= WRITERS ||
        number >= MOMENT_KEYS)
        return error_set(error, BANYAN_ECORRUPT, "a key or a value of nobody: %s", key);
    memcpy(digits, entry->value, 8);
    content->values[range_of(content->cluster, key)][writer][number] = strtoull(digits, NULL, 10);
    return 0;
}

/* No writer is at work any more. */
static void dump_judge(const struct cluster *cluster, const struct dumped *dumped)
{
    struct content content = {.cluster = cluster,
                              .values = calloc(cluster->range_count, sizeof *content.values)};
    struct archive_totals totals;
    struct source source;
    struct error error = {0};
    assert_non_null(content.values);
    if (source_open(&source, dumped->file, &error) ||
        archive_read(&source, content_add, &content, &totals, &error))
        fail_msg("%s", error.text);
    source_close(&source);
    assert_int_equal(content.fillers, FILLERS);
    for (unsigned r = 0; r < cluster->range_count; r++) {
        const struct moment_view view = {
            .opened_from = dumped->from, .opened_to = dumped->to, .values = content.values[r]};
        unsigned wrong;
        if (!moment_judge(cluster->changes[r], WRITERS, &view, &wrong))
            fail_msg("%s: the range from '%s' was never like that at one moment (writer %u of %u)",
                     dumped->file, cluster->bounds[r], wrong, WRITERS);
    }
    free(content.values);
}

static uint64_t figures(const struct cluster *cluster, const char *name)
{
    return info_figure(cluster->clients[0], "stats", name) + info_figure(cluster->clients[1], "stats", name);
}

static void ranges_change(struct cluster *cluster, const char *const *arguments)
{
    process_run(cluster->scene, NULL, arguments, &result);
    if (result.code)
        fail_msg("banyan ranges: %d\n%s%s", result.code, result.output, result.error);
}

static void beside_writers(void **state, const char *log)
{
    struct cluster *cluster = cluster_open(*state, log);
    const unsigned ranges = cluster->range_count;
    struct dumped dumped[DUMPS];
    writers_start(cluster);
    for (unsigned i = 0; i < DUMPS; i++) {
        if (i + 1 == DUMPS) /* the first range, of which each part is of one moment then */
            ranges_change(cluster, ARGUMENTS("ranges", "--memory", cluster->memory, "split", "redis", "04"));
        dump_run(cluster, &dumped[i], i);
    }
    writers_stop(cluster);
    assert_true(figures(cluster, "cut_values_saved") > 0);
    assert_true(figures(cluster, "cuts_opened") >= DUMPS * ranges);
    assert_int_equal(figures(cluster, "cuts_open"), 0);
    for (unsigned i = 0; i < DUMPS; i++)
        dump_judge(cluster, &dumped[i]);
    cluster_close(cluster);
}

static void written_through(void **state)
{
    beside_writers(state, "none");
}

static void logged(void **state)
{
    beside_writers(state, "auto");
}

/* ---- faults ---- */

/* Moves a range, or shares it. */
static void range_give(struct cluster *cluster, const char *key, const char *to)
{
    ranges_change(cluster,
                  to ? ARGUMENTS("ranges", "--memory", cluster->memory, "move", "redis", key, "--to", to)
                     : ARGUMENTS("ranges", "--memory", cluster->memory, "share", "redis", key));
}

/* Ranges move to and fro, until some cut has ended by that, which is likely soon; that one does is tested
 * below. */
static void while_ranges_move(void **state)
{
    struct cluster *cluster = cluster_open(*state, "none");
    struct process *dump = process_place(cluster->scene, "dump");
    struct dumped dumped[FILE_MAX];
    unsigned count = 0, moves = 0;
    char id[8];
    writers_start(cluster);
    do {
        dump_begin(cluster, &dumped[count], count);
        process_spawn(cluster->scene, dump, dump_arguments(cluster, &dumped[count]));
        while (!process_ended(dump)) {
            const unsigned range = moves % cluster->range_count;
            snprintf(id, sizeof id, "%u", compute_id(cluster, moves / cluster->range_count % COMPUTES));
            range_give(cluster, range ? cluster->bounds[range] : "0", id);
            moves++;
        }
        assert_int_equal(process_wait(dump), 0);
        dumped[count++].to = moment_stamp(&cluster->clock);
    } while (count < FILE_MAX && !figures(cluster, "cuts_failed"));
    assert_true(moves >= count);
    writers_stop(cluster);
    for (unsigned i = 0; i < count; i++)
        dump_judge(cluster, &dumped[i]);
    cluster_close(cluster);
}

static bool cut_open(void *client)
{
    return info_figure(client, "stats", "cuts_open") > 0;
}

/* An owner ends while a range of its is read: that one is read again from the next owner. */
static void owner_killed(void **state, const char *log)
{
    struct cluster *cluster = cluster_open(*state, log);
    struct process *dump = process_place(cluster->scene, "dump");
    struct dumped dumped = {.from = 0};
    writers_start(cluster);
    dump_begin(cluster, &dumped, 0);
    process_spawn(cluster->scene, dump, dump_arguments(cluster, &dumped));
    wait_until(cut_open, cluster->clients[1], "the dump to come to the server that is to be killed");
    process_kill(cluster->computes[1]);
    assert_int_equal(process_wait(dump), 0);
    dumped.to = moment_stamp(&cluster->clock);
    writers_stop(cluster);
    dump_judge(cluster, &dumped);
    cluster_close(cluster);
}

static void owner_killed_written_through(void **state)
{
    owner_killed(state, "none");
}

static void owner_killed_logged(void **state)
{
    owner_killed(state, "auto");
}

/* A cut of the n-th range, at its owner, of which some is read. */
struct opening {
    struct cluster *cluster;
    const char *from, *to;
    unsigned owner;
};

/* An owner whose read lease has lapsed owns nothing until it has it again. */
static bool cut_opens(void *context)
{
    struct opening *opening = context;
    for (opening->owner = 0; opening->owner < COMPUTES; opening->owner++) {
        redisContext *client = opening->cluster->clients[opening->owner];
        const char *said = ask(client, "CUT OPEN %s %s", opening->from, opening->to);
        if (strcmp(said, "OK") != 0) {
            assert_contains(said, "-NOCUT ");
            continue;
        }
        redisReply *reply = redisCommand(client, "CUT NEXT 10");
        const bool opens = reply->type == REDIS_REPLY_ARRAY;
        if (opens)
            assert_int_equal(reply->elements, 30);
        else
            assert_contains(reply->str, "NOCUT ");
        freeReplyObject(reply);
        return opens;
    }
    return false;
}

static redisContext *cut_begin(struct cluster *cluster, unsigned range, unsigned *owner)
{
    struct opening opening = {.cluster = cluster,
                              .from = keep(text_of("[%s", cluster->bounds[range])),
                              .to = keep(text_of("(%s", cluster->bounds[range + 1]))};
    wait_until(cut_opens, &opening, "the range's owner to open a cut of it");
    *owner = opening.owner;
    return cluster->clients[*owner];
}

/* A cut is of what its server owns, all the time: another may have changed what was its own before. */
static void a_cut_ends_with_its_range(void **state)
{
    struct cluster *cluster = cluster_open(*state, "none");
    const char *ids[COMPUTES], *key = cluster->bounds[1];
    unsigned owner;
    for (unsigned i = 0; i < COMPUTES; i++)
        ids[i] = keep(text_of("%u", compute_id(cluster, i)));
    for (unsigned i = 0; i < COMPUTES; i++)
        assert_contains(ask(cluster->clients[i], "CUT OPEN"), "-NOCUT other servers change keys");
    redisContext *client = cut_begin(cluster, 1, &owner);
    range_give(cluster, key, ids[!owner]);
    assert_contains(ask(client, "CUT NEXT"), "-NOCUT the range has moved");
    assert_contains(ask(client, "CUT NEXT"), "-ERR this connection has no cut");
    /* There and back. */
    client = cut_begin(cluster, 1, &owner);
    range_give(cluster, key, ids[!owner]);
    assert_string_equal(ask(cluster->clients[!owner], "DEL %s", key), "1");
    range_give(cluster, key, ids[owner]);
    assert_contains(ask(client, "CUT NEXT"), "-NOCUT the range has moved");
    /* Shared. */
    client = cut_begin(cluster, 1, &owner);
    range_give(cluster, key, NULL);
    assert_contains(ask(client, "CUT NEXT"), "-NOCUT the range has moved");
    assert_int_equal(info_figure(client, "stats", "cuts_open"), 0);
    cluster_close(cluster);
}

/* A write that waits for its owner. */
struct waiting {
    struct cluster *cluster;
    uint64_t before; /* writes forwarded */
};

static bool forwarded(void *context)
{
    const struct waiting *waiting = context;
    return info_figure(waiting->cluster->clients[0], "ownership", "forwarded_writes") > waiting->before;
}

/* Of the first range that is the server's; compute-0's are known by its cuts. */
static unsigned range_at(struct cluster *cluster, unsigned wanted)
{
    unsigned owner;
    for (unsigned range = 1; range + 1 < cluster->range_count; range++) {
        redisContext *client = cut_begin(cluster, range, &owner);
        assert_string_equal(ask(client, "CUT CLOSE"), "1");
        if (owner == wanted)
            return range;
    }
    fail_msg("compute-%u owns none of the ranges between others", wanted);
    return 0;
}

/* B2: a write that was sent to an owner that hangs holds up no cut of what its own server owns. Where a cut
 * was opened behind the write's time-out instead, it is written again. */
static void beside_an_owner_that_hangs(void **state)
{
    struct cluster *cluster = cluster_open(*state, "auto");
    const unsigned mine = range_at(cluster, 0), theirs = range_at(cluster, 1);
    const char *from = keep(text_of("[%s", cluster->bounds[mine])),
               *to = keep(text_of("(%s", cluster->bounds[mine + 1]));
    const uint64_t limit = now_ns() + UINT64_C(60000000000);
    bool waits;
    process_signal(cluster->computes[1], SIGSTOP);
    do {
        struct waiting waiting = {cluster, info_figure(cluster->clients[0], "ownership", "forwarded_writes")};
        redisContext *client = client_of(cluster->computes[0], 0);
        int sent = 0;
        assert_int_equal(redisAppendCommand(client, "SET %s hangs", cluster->bounds[theirs]), REDIS_OK);
        while (!sent)
            assert_int_equal(redisBufferWrite(client, &sent), REDIS_OK);
        wait_until(forwarded, &waiting, "the write to be sent to its owner");
        const char *opened = ask(cluster->clients[0], "CUT OPEN %s %s", from, to);
        if (strncmp(opened, "-NOCUT", 6) != 0) /* its read lease has lapsed, on a busy machine */
            assert_string_equal(opened, "OK");
        waits =
            !strcmp(opened, "OK") && poll(&(struct pollfd){.fd = client->fd, .events = POLLIN}, 1, 0) == 0;
        (void)ask(cluster->clients[0], "CUT CLOSE");
        redisFree(client);
    } while (!waits && now_ns() < limit);
    assert_true(waits);
    process_signal(cluster->computes[1], SIGCONT);
    cluster_close(cluster);
}

/* ---- the servers that are asked ---- */

static void figure_is(const char *name, json_int_t value)
{
    json_t *json = json_loads(result.output, 0, NULL);
    assert_non_null(json);
    const json_t *figure = json_object_get(json, name);
    if (json_is_boolean(figure))
        assert_int_equal(json_is_true(figure), value);
    else
        assert_int_equal(json_integer_value(figure), value);
    json_decref(json);
}

static void owners_not_named(void **state)
{
    struct cluster *cluster = cluster_open(*state, "none");
    const char *one = keep(address_text(cluster->computes[0], 0)),
               *other = keep(address_text(cluster->computes[1], 0)),
               *file = keep(scene_path(cluster->scene, "dump"));
    const json_int_t all = cluster->range_count,
                     mine =
                         (json_int_t)info_figure(cluster->clients[0], "ownership", "ownership_ranges_owned");
    process_run(cluster->scene, NULL, ARGUMENTS("dump", one, "--output", file, "--json"), &result);
    assert_int_equal(result.code, 0);
    assert_contains(result.error, "give the addresses of all servers of the cluster");
    figure_is("consistent", 0);
    figure_is("moments", mine);
    figure_is("ranges_by_key", all - mine);
    figure_is("keys", FILLERS);
    process_run(cluster->scene, NULL, ARGUMENTS("dump", one, "--output", file, "--consistent", "require"),
                &result);
    assert_int_equal(result.code, 1);
    assert_contains(result.error, "belong to a server that was not named");
    process_run(cluster->scene, NULL, ARGUMENTS("dump", one, other, "--output", file, "--json"), &result);
    assert_int_equal(result.code, 0);
    assert_string_equal(result.error, "");
    figure_is("consistent", 1);
    figure_is("moments", all);
    figure_is("ranges_by_key", 0);
    figure_is("keys", FILLERS);
    /* Shared ranges are everybody's. */
    process_run(cluster->scene, NULL,
                ARGUMENTS("ranges", "--memory", cluster->memory, "share", "redis", cluster->bounds[1]),
                &result);
    assert_int_equal(result.code, 0);
    process_run(cluster->scene, NULL, ARGUMENTS("dump", one, other, "--output", file, "--json"), &result);
    assert_int_equal(result.code, 0);
    figure_is("consistent", 0);
    figure_is("ranges_by_key", 1);
    figure_is("keys", FILLERS);
    process_run(cluster->scene, NULL,
                ARGUMENTS("dump", one, other, "--output", file, "--consistent", "require"), &result);
    assert_int_equal(result.code, 1);
    assert_contains(result.error, "are changed by several servers");
    cluster_close(cluster);
}

/* ---- a server that says what it is told to ---- */

struct line {
    const char *asked; /* what the command contains */
    const char *reply;
};
struct actor {
    const struct line *lines;
    int listener;
    unsigned said;
    char wrong[100];
    pthread_t thread;
};

static void *act(void *context)
{
    struct actor *actor = context;
    char command[512];
    int client = accept(actor->listener, NULL, NULL);
    for (const struct line *line = actor->lines; line->asked && !*actor->wrong; line++) {
        /* A command is asked for at a time, and is short. */
        const ssize_t got = recv(client, command, sizeof command - 1, 0);
        command[got < 0 ? 0 : got] = 0;
        if (!strstr(command, line->asked))
            snprintf(actor->wrong, sizeof actor->wrong, "not %.20s: %.60s", line->asked, command);
        else if (send(client, line->reply, strlen(line->reply), MSG_NOSIGNAL) < 0)
            snprintf(actor->wrong, sizeof actor->wrong, "%s: no reply", line->asked);
        actor->said++;
    }
    close(client);
    return NULL;
}

/* Dumps from it, to its last line. */
static void act_and_dump(struct scene *scene, const struct line *lines, const char *output,
                         const char *consistent)
{
    struct actor actor = {.lines = lines, .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    unsigned count = 0;
    assert_int_equal(bind(actor.listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(actor.listener, 1), 0);
    assert_int_equal(getsockname(actor.listener, (struct sockaddr *)&address, &length), 0);
    assert_int_equal(pthread_create(&actor.thread, NULL, act, &actor), 0);
    process_run(scene, NULL,
                ARGUMENTS("dump", keep(text_of("127.0.0.1:%u", ntohs(address.sin_port))), "--output", output,
                          "--consistent", consistent),
                &result);
    assert_int_equal(pthread_join(actor.thread, NULL), 0);
    close(actor.listener);
    assert_string_equal(actor.wrong, "");
    while (lines[count].asked)
        count++;
    assert_int_equal(actor.said, count);
}

#define SAYS_RANGES "*4\r\n$3\r\n1/a\r\n$1\r\n-\r\n$1\r\n+\r\n$3\r\n1/a\r\n"
#define SAYS_A_B    "*6\r\n$1\r\na\r\n$1\r\n1\r\n:-1\r\n$1\r\nb\r\n$1\r\n2\r\n:-1\r\n"
#define SAYS_A_C    "*6\r\n$1\r\na\r\n$1\r\n9\r\n:-1\r\n$1\r\nc\r\n$1\r\n3\r\n:-1\r\n"
#define BEGINS                                                                                               \
    {"OPEN", "-NOCUT not all\r\n"}, {"RANGES", SAYS_RANGES}, {"OPEN", "+OK\r\n"}, {"NEXT", SAYS_A_B},        \
        {"NEXT", "-NOCUT the range has moved\r\n"},                                                          \
    {                                                                                                        \
        "CLOSE", ":0\r\n"                                                                                    \
    }

static int entry_note(void *context, const struct archive_entry *entry, struct error *error)
{
    char *text = context;
    const size_t length = strlen(text);
    snprintf(text + length, 64 - length, "%.*s=%.*s ", (int)entry->key_length, (const char *)entry->key,
             (int)entry->value_length, (const char *)entry->value);
    return 0;
}

/* What was read of a range before its cut was over is taken back. */
static void taken_back(void **state)
{
    static const struct line lines[] = {BEGINS,
                                        {"RANGES", SAYS_RANGES},
                                        {"OPEN", "+OK\r\n"},
                                        {"NEXT", SAYS_A_C},
                                        {"NEXT", "*0\r\n"},
                                        {"CLOSE", ":1\r\n"},
                                        {NULL, NULL}};
    struct scene *scene = *state;
    const char *file = keep(scene_path(scene, "dump"));
    struct archive_totals totals;
    struct source source;
    struct error error = {0};
    char text[64] = "";
    act_and_dump(scene, lines, file, "require");
    assert_int_equal(result.code, 0);
    assert_contains(result.output, "2 keys, in 1 ranges, each as it was at one moment,");
    assert_int_equal(source_open(&source, file, &error), 0);
    assert_int_equal(archive_read(&source, entry_note, text, &totals, &error), 0);
    source_close(&source);
    assert_string_equal(text, "a=9 c=3 ");
    scene->passed = true;
}

/* Where that cannot be, the rest is read key by key, or not at all. */
static void not_taken_back(void **state)
{
    static const struct line by_key[] = {
        BEGINS, {"RANGES", SAYS_RANGES}, {"(b", "*3\r\n$1\r\nc\r\n$1\r\n3\r\n:-1\r\n"}, {NULL, NULL}};
    static const struct line refused[] = {BEGINS, {"RANGES", SAYS_RANGES}, {NULL, NULL}};
    struct scene *scene = *state;
    act_and_dump(scene, by_key, "-", "auto");
    assert_int_equal(result.code, 0);
    act_and_dump(scene, refused, "-", "require");
    assert_int_equal(result.code, 1);
    assert_contains(result.error, "the range would have been read again");
    scene->passed = true;
}

/* Lists that no server would send end the dump with an error. */
static void strange_ranges(void **state)
{
    static const char *const strange[] = {"*1\r\n$3\r\n1/a\r\n",
                                          ":7\r\n",
                                          "*4\r\n$3\r\n1/a\r\n$1\r\n-\r\n$1\r\n-\r\n$3\r\n1/a\r\n",
                                          "*4\r\n$3\r\n1/a\r\n$0\r\n\r\n$1\r\n+\r\n$3\r\n1/a\r\n",
                                          "*4\r\n$3\r\n1/a\r\n$1\r\n-\r\n$1\r\n(\r\n$3\r\n1/a\r\n",
                                          "*4\r\n$3\r\n1/a\r\n$1\r\n-\r\n:3\r\n$3\r\n1/a\r\n"};
    struct scene *scene = *state;
    for (unsigned i = 0; i < sizeof strange / sizeof *strange; i++) {
        const struct line lines[] = {{"OPEN", "-NOCUT not all\r\n"}, {"RANGES", strange[i]}, {NULL, NULL}};
        act_and_dump(scene, lines, keep(scene_path(scene, "dump")), "auto");
        assert_int_equal(result.code, 1);
        assert_contains(result.error, "CUT RANGES is answered by no list of ranges");
    }
    scene->passed = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(written_through, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(logged, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(while_ranges_move, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(owner_killed_written_through, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(owner_killed_logged, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(a_cut_ends_with_its_range, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(beside_an_owner_that_hangs, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(taken_back, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(not_taken_back, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(strange_ranges, scene_set_up, scene_tear_down),
        cmocka_unit_test_setup_teardown(owners_not_named, scene_set_up, scene_tear_down),
    };
    return cmocka_run_group_tests_name("cluster_dump", tests, NULL, NULL);
}
