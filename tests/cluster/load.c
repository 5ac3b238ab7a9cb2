#include "cluster/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/atomic.h"
#include "base/random.h"
#include "base/thread.h"
#include "cluster/model.h"
#include "cluster/process.h"
#include "swarm/linearize.h"

#define COUNTERS    4u
#define TAILS       3u
#define SHARED      8u
#define THREADS_MAX 16u
#define WORDS_MAX   6u

struct client {
    struct load *load;
    unsigned server, number;
    struct thread *thread;
    redisContext *connection;
    struct random random;
    struct model_value *values;
    struct model_counter counters[COUNTERS];
    struct model_tail tails[TAILS];
    uint32_t *seen; /* the newest write that this client has read of each key of the other clients */
    struct history_log log;
    char *bytes; /* of a value */
    uint32_t parked;
    uint64_t operations, unknown, refused, disconnected;
    uint64_t longest_ns;
    char longest[64];
    char refusal[160];
};
struct load {
    struct load_options options;
    struct history history;
    struct client *clients;
    unsigned count;
    uint32_t stop, pause, epoch;
    struct spinlock longest_lock; /* of the clients' `longest` and `refusal` */
};

enum outcome { ANSWERED, UNKNOWN, REFUSED };

/* ---- one command ---- */

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

struct command {
    int count;
    const char *words[WORDS_MAX];
    size_t lengths[WORDS_MAX];
};

static void command_bytes(struct command *command, const char *bytes, size_t length)
{
    command->words[command->count] = bytes;
    command->lengths[command->count++] = length;
}

static void command_word(struct command *command, const char *word)
{
    command_bytes(command, word, strlen(word));
}

static void reconnect(struct client *client)
{
    uint64_t limit = now_ns() + 60u * UINT64_C(1000000000);
    if (client->connection)
        redisFree(client->connection);
    while (!(client->connection = client_try(&client->load->options.servers[client->server]))) {
        if (now_ns() > limit)
            fail_hard("server %u does not come back", client->server);
        nap();
    }
}

static void note_time(struct client *client, const struct command *command, uint64_t began)
{
    uint64_t taken = now_ns() - began;
    if (taken <= client->longest_ns)
        return;
    spinlock_lock(&client->load->longest_lock);
    client->longest_ns = taken;
    snprintf(client->longest, sizeof client->longest, "%s %.40s", command->words[0],
             command->count > 1 ? command->words[1] : "");
    spinlock_unlock(&client->load->longest_lock);
}

static void note_refusal(struct client *client, const struct command *command, const char *words)
{
    spinlock_lock(&client->load->longest_lock);
    snprintf(client->refusal, sizeof client->refusal, "%s %.20s: %.130s", command->words[0],
             command->count > 1 ? command->words[1] : "", words);
    spinlock_unlock(&client->load->longest_lock);
}

static enum outcome judge(struct client *client, const struct command *command, redisReply **reply)
{
    if (!*reply) {
        if (client->connection->err == REDIS_ERR_IO && (errno == EAGAIN || errno == EWOULDBLOCK))
            fail_hard("%s %.40s: no reply from server %u within a minute", command->words[0],
                      command->words[1], client->server);
        if (client->connection->err == REDIS_ERR_PROTOCOL)
            fail_hard("server %u broke the protocol: %s", client->server, client->connection->errstr);
        atomic_add_relaxed(&client->disconnected, 1);
        reconnect(client);
        return UNKNOWN;
    }
    atomic_add_relaxed(&client->operations, 1);
    if ((*reply)->type != REDIS_REPLY_ERROR)
        return ANSWERED;
    bool unknown = !strncmp((*reply)->str, "UNKNOWN ", 8), down = !strncmp((*reply)->str, "CLUSTERDOWN ", 12);
    if (!unknown && !down)
        fail_hard("%s %.40s at server %u: %s", command->words[0], command->words[1], client->server,
                  (*reply)->str);
    if (down)
        note_refusal(client, command, (*reply)->str);
    atomic_add_relaxed(unknown ? &client->unknown : &client->refused, 1);
    freeReplyObject(*reply);
    *reply = NULL;
    nap(); /* until the server has mended its connections */
    return unknown ? UNKNOWN : REFUSED;
}

/* *reply is the caller's when it returns ANSWERED. */
static enum outcome ask(struct client *client, const struct command *command, redisReply **reply)
{
    uint64_t began = now_ns();
    *reply = redisCommandArgv(client->connection, command->count, (const char **)(uintptr_t)command->words,
                              command->lengths);
    note_time(client, command, began);
    return judge(client, command, reply);
}

static void demand(const struct client *client, const char *key, const char *wrong)
{
    if (wrong)
        fail_hard("key %s, client %u at server %u (seed %" PRIu64 "): %s", key, client->number,
                  client->server, client->load->options.seed, wrong);
}

static void demand_type(const struct client *client, const struct command *command, const redisReply *reply,
                        int type)
{
    if (reply->type != type && !(type == REDIS_REPLY_STRING && reply->type == REDIS_REPLY_NIL))
        fail_hard("%s %.40s at server %u: a reply of type %d", command->words[0], command->words[1],
                  client->server, reply->type);
}

/* GET by `client`. */
static enum outcome get(struct client *client, const char *name, size_t length, redisReply **reply)
{
    struct command command = {0};
    command_word(&command, "GET");
    command_bytes(&command, name, length);
    enum outcome outcome = ask(client, &command, reply);
    if (outcome == ANSWERED)
        demand_type(client, &command, *reply, REDIS_REPLY_STRING);
    return outcome;
}

static const char *bytes_of(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_NIL ? NULL : reply->str;
}

/* ---- values ---- */

static struct model_value *pick_value(struct client *client)
{
    return &client->values[random_below(&client->random, client->load->options.keys)];
}

/* Reads a key of `owner` through `client`, and judges it as its writer. False: there was no answer. */
static bool read_value(struct client *client, struct model_value *value)
{
    char name[MODEL_NAME_MAX];
    redisReply *reply;
    size_t length = model_value_name(name, value->owner, value->number);
    if (get(client, name, length, &reply) != ANSWERED)
        return false;
    demand(client, name, model_value_read(value, bytes_of(reply), reply->len));
    freeReplyObject(reply);
    return true;
}

static void read_own(struct client *client)
{
    read_value(client, pick_value(client));
}

static void write_value(struct client *client, struct model_value *value, bool delete)
{
    char name[MODEL_NAME_MAX];
    struct command command = {0};
    redisReply *reply;
    size_t length = model_value_name(name, value->owner, value->number);
    size_t bytes = model_value_begin(value, delete ? NULL : client->bytes);
    command_word(&command, delete ? "DEL" : "SET");
    command_bytes(&command, name, length);
    if (!delete)
        command_bytes(&command, client->bytes, bytes);
    const uint32_t write = value->issued;
    const uint64_t began = now_ns();
    enum outcome outcome = ask(client, &command, &reply);
    model_value_past(value, write, !delete, "+?-"[outcome], began, now_ns());
    if (outcome == REFUSED)
        model_value_refused(value);
    if (outcome != ANSWERED)
        return;
    demand_type(client, &command, reply, delete ? REDIS_REPLY_INTEGER : REDIS_REPLY_STATUS);
    if (delete)
        demand(client, name, model_value_existed(value, reply->integer == 1));
    model_value_acked(value);
    freeReplyObject(reply);
}

static void write_own(struct client *client)
{
    struct model_value *value = pick_value(client);
    if (model_value_full(value))
        read_value(client, value);
    else
        write_value(client, value, random_chance(&client->random, 0.2));
}

static void read_foreign(struct client *client)
{
    struct load *load = client->load;
    struct client *other = &load->clients[random_below(&client->random, load->count)];
    struct model_value *value = &other->values[random_below(&client->random, load->options.keys)];
    uint32_t *seen = &client->seen[other->number * load->options.keys + value->number];
    uint32_t acked = atomic_load_acquire(&value->acked), write; /* acknowledged before the read begins */
    char name[MODEL_NAME_MAX];
    redisReply *reply;
    size_t length = model_value_name(name, value->owner, value->number);
    if (get(client, name, length, &reply) != ANSWERED)
        return;
    uint32_t issued = atomic_load_acquire(&value->issued);
    demand(
        client, name,
        model_value_foreign(value->owner, value->number, bytes_of(reply), reply->len, acked, issued, &write));
    if (write && write < *seen)
        fail_hard("key %s went back from write %u to %u for client %u", name, *seen, write, client->number);
    if (write)
        *seen = write;
    freeReplyObject(reply);
}

/* The entries from `from` on, of which `reply` has some; what it skips must be absent. */
static void judge_range(struct client *client, uint32_t from, const redisReply *reply, size_t limit)
{
    uint32_t next = from;
    char name[MODEL_NAME_MAX];
    for (size_t i = 0; i + 1 < reply->elements; i += 2) {
        const redisReply *key = reply->element[i], *value = reply->element[i + 1];
        uint32_t number = client->load->options.keys;
        if (key->len >= 10)
            number = (uint32_t)strtoul(key->str + 5, NULL, 10);
        if (number < next || number >= client->load->options.keys ||
            model_value_name(name, client->number, number) != key->len || memcmp(name, key->str, key->len))
            fail_hard("RANGE from %u of client %u gave key %.60s after %u", from, client->number, key->str,
                      next);
        for (; next < number; next++)
            demand(client, text_of("%u, passed by a RANGE", next),
                   model_value_read(&client->values[next], NULL, 0));
        demand(client, name, model_value_read(&client->values[next++], value->str, value->len));
    }
    for (; reply->elements < 2 * limit && next < client->load->options.keys; next++)
        demand(client, text_of("%u, behind a RANGE", next), model_value_read(&client->values[next], NULL, 0));
}

static void read_range(struct client *client)
{
    uint32_t from = (uint32_t)random_below(&client->random, client->load->options.keys);
    struct command command = {0};
    redisReply *reply;
    command_word(&command, "RANGE");
    command_word(&command, text_of("[v%03u.%05u", client->number, from));
    command_word(&command, text_of("(v%03u/", client->number));
    command_word(&command, "LIMIT");
    command_word(&command, "20");
    command_word(&command, "WITHVALUES");
    if (ask(client, &command, &reply) != ANSWERED)
        return;
    demand_type(client, &command, reply, REDIS_REPLY_ARRAY);
    judge_range(client, from, reply, 20);
    freeReplyObject(reply);
}

/* ---- counters, and what is appended to ---- */

static const char *counter_name(const struct client *owner, unsigned i)
{
    return text_of("c%03u.%u", owner->number, i);
}

static void increase(struct client *client)
{
    unsigned i = (unsigned)random_below(&client->random, COUNTERS);
    const char *name = counter_name(client, i);
    struct command command = {0};
    redisReply *reply;
    command_word(&command, "INCR");
    command_word(&command, name);
    enum outcome outcome = ask(client, &command, &reply);
    if (outcome == UNKNOWN)
        model_counter_unknown(&client->counters[i]);
    if (outcome != ANSWERED)
        return;
    demand_type(client, &command, reply, REDIS_REPLY_INTEGER);
    demand(client, name, model_counter_increased(&client->counters[i], reply->integer));
    freeReplyObject(reply);
}

static bool read_counter(struct client *client, struct client *owner, unsigned i)
{
    const char *name = counter_name(owner, i);
    redisReply *reply;
    if (get(client, name, strlen(name), &reply) != ANSWERED)
        return false;
    demand(client, name,
           model_counter_read(&owner->counters[i], bytes_of(reply) ? strtoll(reply->str, NULL, 10) : 0));
    freeReplyObject(reply);
    return true;
}

static const char *tail_name(const struct client *owner, unsigned i)
{
    return text_of("a%03u.%u", owner->number, i);
}

static bool read_tail(struct client *client, struct client *owner, unsigned i)
{
    const char *name = tail_name(owner, i);
    redisReply *reply;
    if (get(client, name, strlen(name), &reply) != ANSWERED)
        return false;
    demand(client, name, model_tail_read(&owner->tails[i], bytes_of(reply), reply->len));
    freeReplyObject(reply);
    return true;
}

/* Until it is acknowledged. */
static void delete_tail(struct client *client, unsigned i)
{
    struct command command = {0};
    redisReply *reply;
    command_word(&command, "DEL");
    command_word(&command, tail_name(client, i));
    while (ask(client, &command, &reply) != ANSWERED)
        ;
    freeReplyObject(reply);
    model_tail_deleted(&client->tails[i]);
}

static void append(struct client *client)
{
    unsigned i = (unsigned)random_below(&client->random, TAILS);
    struct model_tail *tail = &client->tails[i];
    char token[MODEL_TOKEN + 1];
    struct command command = {0};
    redisReply *reply;
    if (model_tail_full(tail)) {
        delete_tail(client, i);
        return;
    }
    model_tail_begin(tail, token);
    command_word(&command, "APPEND");
    command_word(&command, tail_name(client, i));
    command_word(&command, token);
    enum outcome outcome = ask(client, &command, &reply);
    if (outcome == REFUSED)
        model_tail_refused(tail);
    if (outcome != ANSWERED)
        return;
    demand_type(client, &command, reply, REDIS_REPLY_INTEGER);
    demand(client, command.words[1], model_tail_acked(tail, reply->integer));
    freeReplyObject(reply);
}

/* ---- keys that all write ---- */

/* A value is 16 digits and, for some, so much behind them that it needs a record. */
static size_t shared_make(char *bytes, uint64_t value)
{
    size_t length = 16 + (value % 4 ? 0 : 200 + value % 3000);
    snprintf(bytes, 17, "%016" PRIx64, value);
    for (size_t i = 16; i < length; i++)
        bytes[i] = (char)('a' + (value + i) % 26);
    return length;
}

static uint64_t shared_value(struct client *client, const char *key, const redisReply *reply)
{
    if (!bytes_of(reply))
        return 0;
    uint64_t value = strtoull(text_of("%.16s", reply->str), NULL, 16);
    if (shared_make(client->bytes, value) != reply->len || memcmp(client->bytes, reply->str, reply->len))
        demand(client, key, text_of("a value that was never written: %.24s", reply->str));
    return value;
}

struct shared_kind {
    const char *word;
    enum history_kind kind;
    bool value;
};
static const struct shared_kind shared_kinds[] = {
    {"GET", HISTORY_GET, false},     {"GET", HISTORY_GET, false},    {"SET", HISTORY_PUT, true},
    {"SET", HISTORY_PUT, true},      {"DEL", HISTORY_DELETE, false}, {"SETNX", HISTORY_INSERT, true},
    {"GETSET", HISTORY_MODIFY, true}};

static void shared_end(struct client *client, const struct shared_kind *kind, const char *key, size_t place,
                       const redisReply *reply)
{
    int status = 0;
    uint64_t result = 0;
    if (kind->kind == HISTORY_GET || kind->kind == HISTORY_MODIFY)
        result = shared_value(client, key, reply);
    if (kind->kind == HISTORY_GET && !result)
        status = BANYAN_ENOTFOUND;
    if (kind->kind == HISTORY_DELETE && reply->integer == 0)
        status = BANYAN_ENOTFOUND;
    if (kind->kind == HISTORY_INSERT && reply->integer == 0)
        status = BANYAN_EEXIST;
    history_end(&client->log, place, status, result);
}

static void use_shared(struct client *client)
{
    const struct shared_kind *kind =
        &shared_kinds[random_below(&client->random, sizeof shared_kinds / sizeof *shared_kinds)];
    uint64_t number =
        (uint64_t)atomic_load_relaxed(&client->load->epoch) * SHARED + random_below(&client->random, SHARED);
    uint64_t value = kind->value ? history_value(&client->load->history) : 0;
    const char *key = text_of("s%08" PRIu64, number);
    struct command command = {0};
    redisReply *reply;
    command_word(&command, kind->word);
    command_word(&command, key);
    if (value)
        command_bytes(&command, client->bytes, shared_make(client->bytes, value));
    size_t place = history_begin(&client->log, kind->kind, number, value, 0);
    enum outcome outcome = ask(client, &command, &reply);
    if (outcome == REFUSED)
        history_drop(&client->log, place);
    if (outcome != ANSWERED)
        return;
    shared_end(client, kind, key, place, reply);
    freeReplyObject(reply);
}

/* ---- a client ---- */

static void step(struct client *client)
{
    uint64_t choice = random_below(&client->random, 100);
    if (choice < 25)
        read_own(client);
    else if (choice < 60)
        write_own(client);
    else if (choice < 68)
        increase(client);
    else if (choice < 70)
        read_counter(client, client, (unsigned)random_below(&client->random, COUNTERS));
    else if (choice < 76)
        append(client);
    else if (choice < 78)
        read_tail(client, client, (unsigned)random_below(&client->random, TAILS));
    else if (choice < 86)
        read_foreign(client);
    else if (choice < 90)
        read_range(client);
    else
        use_shared(client);
}

static void client_run(void *argument)
{
    struct client *client = argument;
    reconnect(client);
    while (!atomic_load_relaxed(&client->load->stop)) {
        bool pause = atomic_load_acquire(&client->load->pause);
        atomic_store_release(&client->parked, pause); /* a thread that sees it parked sees what it did */
        if (pause)
            nap();
        else
            step(client);
    }
    redisFree(client->connection);
    client->connection = NULL;
}

static void client_init(struct client *client, struct load *load, unsigned number)
{
    const struct load_options *options = &load->options;
    *client = (struct client){.load = load, .number = number, .server = number / options->threads};
    random_seed(&client->random, options->seed * THREADS_MAX + number);
    client->values = calloc(options->keys, sizeof *client->values);
    client->seen = calloc((size_t)options->keys * load->count, sizeof *client->seen);
    client->bytes = malloc(MODEL_VALUE_MAX);
    for (uint32_t i = 0; i < options->keys; i++)
        model_value_init(&client->values[i], number, i);
    for (uint32_t i = 0; i < TAILS; i++)
        client->tails[i] = (struct model_tail){.owner = number, .number = i};
    history_log_init(&client->log, &load->history, number);
}

/* ---- the load ---- */

struct load *load_start(const struct load_options *options)
{
    struct load *load = calloc(1, sizeof *load);
    struct error error;
    load->options = *options;
    load->count = options->threads * LOAD_SERVERS;
    if (load->count > THREADS_MAX)
        fail_hard("too many threads");
    history_init(&load->history);
    load->clients = calloc(load->count, sizeof *load->clients);
    for (unsigned i = 0; i < load->count; i++)
        client_init(&load->clients[i], load, i);
    for (unsigned i = 0; i < load->count; i++)
        if (thread_start(&load->clients[i].thread, client_run, &load->clients[i], &error))
            fail_hard("%s", error.text);
    return load;
}

void load_figures(const struct load *load, unsigned server, struct load_figures *figures)
{
    *figures = (struct load_figures){0};
    struct load *changed = (struct load *)(uintptr_t)load;
    spinlock_lock(&changed->longest_lock);
    for (unsigned i = 0; i < load->count; i++) {
        const struct client *client = &load->clients[i];
        if (client->server != server)
            continue;
        figures->operations += atomic_load_relaxed(&client->operations);
        figures->unknown += atomic_load_relaxed(&client->unknown);
        figures->refused += atomic_load_relaxed(&client->refused);
        figures->disconnected += atomic_load_relaxed(&client->disconnected);
        if (client->refusal[0])
            memcpy(figures->refusal, client->refusal, sizeof figures->refusal);
        if (client->longest_ns > figures->longest_ns) {
            figures->longest_ns = client->longest_ns;
            memcpy(figures->longest, client->longest, sizeof figures->longest);
        }
    }
    spinlock_unlock(&changed->longest_lock);
}

void load_forget_longest(struct load *load)
{
    spinlock_lock(&load->longest_lock);
    for (unsigned i = 0; i < load->count; i++)
        atomic_store_relaxed(&load->clients[i].longest_ns, 0);
    spinlock_unlock(&load->longest_lock);
}

struct goal {
    const struct load *load;
    uint64_t operations[LOAD_SERVERS];
};

static bool goal_reached(void *context)
{
    const struct goal *goal = context;
    for (unsigned i = 0; i < LOAD_SERVERS; i++) {
        struct load_figures figures;
        load_figures(goal->load, i, &figures);
        if (figures.operations - figures.refused < goal->operations[i])
            return false;
    }
    return true;
}

void load_advance(struct load *load, uint64_t operations)
{
    struct goal goal = {.load = load};
    for (unsigned i = 0; i < LOAD_SERVERS; i++) {
        struct load_figures figures;
        load_figures(load, i, &figures);
        goal.operations[i] = figures.operations - figures.refused + operations;
    }
    wait_until(goal_reached, &goal, "operations to be answered by both servers");
}

static bool all_own(void *context)
{
    const struct load *load = context;
    bool all = true;
    for (unsigned i = 0; i < LOAD_SERVERS && all; i++) {
        redisContext *connection = client_try(&load->options.servers[i]);
        redisReply *reply = connection ? redisCommand(connection, "INFO ownership") : NULL;
        all = reply && reply->type == REDIS_REPLY_STRING &&
              !strstr(reply->str, "\nownership_ranges_owned:0\r\n") &&
              strstr(reply->str, "\nownership_ranges_owned:");
        if (reply)
            freeReplyObject(reply);
        if (connection)
            redisFree(connection);
    }
    return all;
}

void load_wait_divided(struct load *load)
{
    wait_until(all_own, load, "each server to own a share of the key ranges");
}

void load_next_epoch(struct load *load)
{
    atomic_add_relaxed(&load->epoch, 1);
}

static bool all_parked(void *context)
{
    const struct load *load = context;
    for (unsigned i = 0; i < load->count; i++)
        if (!atomic_load_acquire(&load->clients[i].parked))
            return false;
    return true;
}

struct emptying {
    redisContext *connection;
    unsigned still; /* times in a row that it was found at rest */
};

/* A pass may just be beginning: so it is asked for several times. */
static bool emptying_rests(void *context)
{
    struct emptying *emptying = context;
    redisReply *reply = redisCommand(emptying->connection, "INFO memory");
    if (!reply || reply->type != REDIS_REPLY_STRING)
        fail_hard("INFO: %s", reply ? reply->str : emptying->connection->errstr);
    bool rests = strstr(reply->str, "active_defrag_running:0\r\n");
    emptying->still = rests ? emptying->still + 1 : 0;
    freeReplyObject(reply);
    for (unsigned i = 0; i < 30; i++)
        nap();
    return emptying->still >= 10;
}

/* The servers write by themselves, too: they move records out of sparse chunks. */
static void let_empty(const struct load *load, bool on)
{
    for (unsigned i = 0; i < LOAD_SERVERS; i++) {
        struct emptying emptying = {.connection = client_connect(&load->options.servers[i])};
        redisReply *reply =
            redisCommand(emptying.connection, "CONFIG SET activedefrag %s", on ? "yes" : "no");
        if (!reply || reply->type == REDIS_REPLY_ERROR)
            fail_hard("CONFIG SET: %s", reply ? reply->str : emptying.connection->errstr);
        freeReplyObject(reply);
        if (!on)
            wait_until(emptying_rests, &emptying, "a server to stop emptying chunks");
        redisFree(emptying.connection);
    }
}

void load_pause(struct load *load)
{
    atomic_store_release(&load->pause, 1);
    wait_until(all_parked, load, "the clients to pause");
    let_empty(load, false);
}

static bool none_parked(void *context)
{
    const struct load *load = context;
    for (unsigned i = 0; i < load->count; i++)
        if (atomic_load_acquire(&load->clients[i].parked))
            return false;
    return true;
}

void load_resume(struct load *load)
{
    let_empty(load, true);
    atomic_store_release(&load->pause, 0);
    wait_until(none_parked, load, "the clients to go on");
}

static void verify_client(struct client *reader, struct client *owner)
{
    for (uint32_t i = 0; i < owner->load->options.keys; i++)
        while (!read_value(reader, &owner->values[i]))
            ;
    for (unsigned i = 0; i < COUNTERS; i++)
        while (!read_counter(reader, owner, i))
            ;
    for (unsigned i = 0; i < TAILS; i++)
        while (!read_tail(reader, owner, i))
            ;
}

void load_verify(struct load *load)
{
    for (unsigned server = 0; server < LOAD_SERVERS; server++) {
        struct client reader = {.load = load, .server = server, .number = 900 + server};
        reader.bytes = malloc(MODEL_VALUE_MAX);
        reconnect(&reader);
        for (unsigned i = 0; i < load->count; i++)
            verify_client(&reader, &load->clients[i]);
        redisFree(reader.connection);
        free(reader.bytes);
    }
}

static void judge_shared(struct load *load)
{
    struct history_log logs[THREADS_MAX];
    char explanation[2048] = "";
    size_t total;
    for (unsigned i = 0; i < load->count; i++)
        logs[i] = load->clients[i].log;
    struct history_op *ops = history_merge(logs, load->count, &total);
    enum linearize_verdict verdict = linearize_all(ops, total, NULL, explanation, sizeof explanation);
    if (verdict == LINEARIZE_REJECTED || verdict == LINEARIZE_MALFORMED)
        fail_hard("not linearizable (seed %" PRIu64 "): %s", load->options.seed, explanation);
    if (verdict == LINEARIZE_UNDECIDED)
        fprintf(stderr, "the judge of histories gave up on one: %s\n", explanation);
    free(ops);
}

void load_stop(struct load *load)
{
    atomic_store_relaxed(&load->stop, 1);
    for (unsigned i = 0; i < load->count; i++)
        thread_join(load->clients[i].thread);
    judge_shared(load);
    for (unsigned i = 0; i < load->count; i++) {
        struct client *client = &load->clients[i];
        history_log_free(&client->log);
        free(client->values);
        free(client->seen);
        free(client->bytes);
    }
    free(load->clients);
    free(load);
}
