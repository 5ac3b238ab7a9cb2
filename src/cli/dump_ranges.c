/*
 * dump_ranges.c - `banyan dump` of a cluster: which server owns the next keys (CUT RANGES), then a cut of
 * that range at that server, one range after another (rule B7, docs/internals/cuts.md).
 *
 * A range may move while it is read, and its server may end. What was read of it is taken back then, and the
 * range is read anew where it is by then. Ranges that no server owns which was named are read key by key, and
 * counted.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/task.h"
#include "cli/dump.h"

#define SECOND       UINT64_C(1000000000)
#define ATTEMPTS_MAX 50u /* cuts of one range that were opened and came to nothing */

/* ---- what servers say of ranges ---- */

struct part {
    const redisReply *from, *to, *owner;
};

/* The text without its sign is a key, or there is none: the first, or the last. */
static bool bound_sound(const redisReply *bound, char sign, char none)
{
    return bound->type == REDIS_REPLY_STRING && bound->len &&
           ((bound->len == 1 && bound->str[0] == none) ||
            (bound->len > 1 && bound->len <= ARCHIVE_KEY_MAX + 1 && bound->str[0] == sign));
}

static bool sound(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 3 != 1 || reply->elements < 4 ||
        reply->element[0]->type != REDIS_REPLY_STRING)
        return false;
    for (size_t i = 1; i < reply->elements; i += 3)
        if (!bound_sound(reply->element[i], '[', '-') || !bound_sound(reply->element[i + 1], '(', '+') ||
            reply->element[i + 2]->type != REDIS_REPLY_STRING)
            return false;
    return true;
}

static void server_lose(struct dump_server *server)
{
    redisFree(server->connection);
    server->connection = NULL;
}

/* Asks one server; one that is gone, or has no answer now, is left out. */
static int ranges_ask(struct dump *dump, struct dump_server *server, struct error *error)
{
    const char *arguments[] = {"CUT", "RANGES"};
    struct error passing = {0};
    char words[300];
    dump->server = server;
    freeReplyObject(server->ranges);
    server->ranges = NULL;
    if (!server->connection)
        server->connection = client_connect(&server->address, dump->password, DUMP_WAIT_SECONDS, &passing);
    redisReply *reply = server->connection ? dump_ask(dump, 2, arguments, (size_t[]){3, 6}, &passing) : NULL;
    if (!reply) {
        server_lose(server);
        return 0;
    }
    if (reply->type != REDIS_REPLY_ERROR && sound(reply)) {
        snprintf(server->process, sizeof server->process, "%s", reply->element[0]->str);
        server->ranges = reply;
        return 0;
    }
    int status = 0;
    if (reply->type != REDIS_REPLY_ERROR) {
        status = dump_strange("CUT RANGES is answered by no list of ranges", error);
    } else if (strncmp(reply->str, "CLUSTERDOWN", 11) != 0) {
        client_words(words, sizeof words, reply->str);
        status = error_set(error, BANYAN_ENET,
                           "of several servers, one does not say which ranges it owns: %s. Only the servers "
                           "of one cluster can be dumped together",
                           words);
    }
    freeReplyObject(reply);
    return status;
}

static int ranges_ask_all(struct dump *dump, struct error *error)
{
    int status = 0;
    for (unsigned i = 0; i < dump->server_count && !status; i++)
        status = ranges_ask(dump, &dump->servers[i], error);
    return status;
}

/* ---- bounds ---- */

/* Of the keys without their signs; a bound without a key counts as below all. */
static int key_order(const char *a, size_t a_length, const char *b, size_t b_length)
{
    const size_t shorter = a_length < b_length ? a_length : b_length;
    const int order = shorter > 1 ? memcmp(a + 1, b + 1, shorter - 1) : 0;
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

static bool open_ended(const char *to)
{
    return to[0] == '+';
}

/* Whether what is still to be read begins in the part. */
static bool part_begins(const struct dump *dump, const struct part *part)
{
    const struct dump_bound *last = &dump->last;
    return key_order(part->from->str, part->from->len, last->bytes, last->length) <= 0 &&
           (open_ended(part->to->str) ||
            key_order(last->bytes, last->length, part->to->str, part->to->len) < 0);
}

/* The part of a server's list in which what is still to be read begins. */
static bool part_find(const struct dump *dump, const struct dump_server *server, struct part *part)
{
    const redisReply *ranges = server->ranges;
    for (size_t i = 1; ranges && i < ranges->elements; i += 3) {
        *part = (struct part){ranges->element[i], ranges->element[i + 1], ranges->element[i + 2]};
        if (part_begins(dump, part))
            return true;
    }
    return false;
}

/* `to` ends where the part does, if that is earlier. */
static void end_limit(struct dump_bound *to, const struct part *part)
{
    if (open_ended(part->to->str) ||
        (!open_ended(to->bytes) && key_order(to->bytes, to->length, part->to->str, part->to->len) <= 0))
        return;
    memcpy(to->bytes, part->to->str, part->to->len);
    to->length = part->to->len;
}

/* ---- choosing ---- */

struct choice {
    struct dump_server *owner; /* NULL: none of those that were named */
    bool later;                /* the servers do not agree, or the range is on its way: it may be one soon */
    bool unnamed;              /* it is a process that is none of them */
    bool answered;             /* some server says anything of the range */
    unsigned claims;           /* servers that say it is theirs */
    char named[48];            /* by the last one that does: its owner */
};

static bool is_named(const struct dump *dump, const char *process)
{
    for (unsigned i = 0; i < dump->server_count; i++)
        if (!strcmp(dump->servers[i].process, process))
            return true;
    return false;
}

/* Who owns what is still to be read: *to ends where that part does. */
static void choose(struct dump *dump, const struct dump_bound *whole_to, struct choice *choice)
{
    struct part part;
    bool shared = false;
    *choice = (struct choice){.owner = NULL};
    dump->to = *whole_to;
    for (unsigned i = 0; i < dump->server_count; i++) {
        struct dump_server *server = &dump->servers[i];
        if (!part_find(dump, server, &part))
            continue;
        const char *owner = part.owner->str;
        const bool mine = !strcmp(owner, server->process), nobody = !strcmp(owner, "shared");
        choice->answered = true;
        snprintf(choice->named, sizeof choice->named, "%s", owner);
        end_limit(&dump->to, &part);
        if (mine) {
            choice->owner = server;
            choice->claims++;
        } else if (nobody) {
            shared = true;
        } else {
            choice->later = choice->later || !strcmp(owner, "moving") || is_named(dump, owner);
        }
    }
    choice->unnamed = !choice->owner && !choice->later && !shared;
    if (choice->claims == 1 && choice->owner->connection) {
        /* Others may lag behind; whether it is the owner, the owner knows. */
        (void)part_find(dump, choice->owner, &part);
        dump->to = *whole_to;
        end_limit(&dump->to, &part);
        choice->later = false;
    }
}

/* ---- one range ---- */

struct mark {
    struct archive_mark archive;
    struct dump_bound last;
    uint64_t keys, bytes, written;
};

static int mark_set(struct dump *dump, struct mark *mark, struct error *error)
{
    int status = dump->writer ? archive_mark(dump->writer, &mark->archive, error) : 0;
    mark->last = dump->last;
    mark->keys = dump->keys;
    mark->bytes = dump->bytes;
    mark->written = dump->output.written;
    return status;
}

/* Takes back what was read since. *whole: all of it; else some keys are out of reach already, and the dump
 * goes on behind them. */
static int mark_return(struct dump *dump, const struct mark *mark, bool *whole, struct error *error)
{
    *whole = dump->keys == mark->keys || output_file_rewinds(&dump->output);
    if (!*whole || dump->keys == mark->keys)
        return 0;
    if (dump->writer)
        archive_rewind(dump->writer, &mark->archive);
    dump->last = mark->last;
    dump->keys = mark->keys;
    dump->bytes = mark->bytes;
    return output_file_rewind(&dump->output, mark->written, error);
}

struct range_state {
    struct dump_bound whole_to; /* where the whole dump ends */
    uint64_t troubled_since;    /* task_now's of the first trouble with what is next; 0: none */
    unsigned attempts;
    bool stale;        /* servers are to be asked for ranges again */
    bool by_key;       /* what is next has been given up: it is read key by key */
    char trouble[300]; /* the last one */
};

/* What is next is tried again, at once with what the servers say now, then now and then, until that has been
 * long. */
static void trouble(struct range_state *state, const char *what)
{
    const uint64_t now = task_now();
    const bool first = !state->troubled_since;
    snprintf(state->trouble, sizeof state->trouble, "%s", what);
    if (first)
        state->troubled_since = now;
    state->stale = true;
    state->by_key =
        now - state->troubled_since > DUMP_WAIT_SECONDS * SECOND || state->attempts > ATTEMPTS_MAX;
    if (!first && !state->by_key)
        task_sleep(DUMP_RETRY_NS);
}

/* The part is read. */
static void part_done(struct dump *dump, struct range_state *state)
{
    state->troubled_since = 0;
    state->attempts = 0;
    state->by_key = false;
    dump->last = dump->to;
    dump->last.bytes[0] = '[';
    dump->ended =
        open_ended(dump->to.bytes) || (dump->to.length == state->whole_to.length &&
                                       !memcmp(dump->to.bytes, state->whole_to.bytes, dump->to.length));
}

/* An ended cut still costs its server a look at each change. */
static void cut_close(struct dump *dump)
{
    const char *arguments[] = {"CUT", "CLOSE"};
    struct error passing = {0};
    dump->cut = false;
    if (!dump_lost(dump))
        freeReplyObject(dump_ask(dump, 2, arguments, (size_t[]){3, 5}, &passing));
    if (dump_lost(dump))
        server_lose(dump->server);
}

/* A cut that came to nothing. */
static int cut_again(struct dump *dump, struct range_state *state, const struct mark *mark, const char *why,
                     struct error *error)
{
    bool whole;
    int status = mark_return(dump, mark, &whole, error);
    state->attempts++;
    if (!status)
        trouble(state, why);
    if (!whole) {
        state->by_key = true;
        dump->plain_keys += dump->keys - mark->keys;
        snprintf(state->trouble, sizeof state->trouble,
                 "%.150s; to a file, the range would have been read again", why);
    }
    return status;
}

static int cut_read(struct dump *dump, struct range_state *state, struct dump_server *owner,
                    struct error *error)
{
    enum dump_opening opening;
    struct error met = {0};
    struct mark mark;
    char words[300] = "";
    dump->server = owner;
    int status = mark_set(dump, &mark, error);
    if (status)
        return status;
    status = dump_cut_open(dump, &opening, words, &met);
    dump->cut = !status && opening == DUMP_OPENED;
    if (dump->cut)
        status = dump_part(dump, &met);
    const bool read = dump->cut && !status, lost = dump_lost(dump);
    cut_close(dump);
    if (read) {
        dump->moments++;
        part_done(dump, state);
        return 0;
    }
    if (status && status != BANYAN_EFENCED && !lost) {
        *error = met;
        return status;
    }
    return cut_again(dump, state, &mark, status ? met.text : words, error);
}

/* Any server that is there. */
static bool server_any(struct dump *dump)
{
    for (unsigned i = 0; i < dump->server_count; i++)
        if (dump->servers[i].connection) {
            dump->server = &dump->servers[i];
            return true;
        }
    return false;
}

static int refuse(const struct dump *dump, const struct choice *choice, const struct range_state *state,
                  struct error *error)
{
    char words[120], text[120];
    client_words(text, sizeof text, dump->last.bytes);
    client_words(words, sizeof words, choice->named);
    if (state->by_key)
        return error_set(error, BANYAN_EBUSY,
                         "the range from %.60s on could not be had as it is at one moment (%s); without "
                         "--consistent require it is read key by key",
                         text, state->trouble);
    return error_set(
        error, BANYAN_ENOTSUP,
        "%s%.60s on %s (%.40s), so they cannot be had as they are at one moment; without "
        "--consistent require they are read key by key",
        "the keys from ", text,
        choice->unnamed ? "belong to a server that was not named" : "are changed by several servers", words);
}

/* Key by key, from any server. */
static int plain_read(struct dump *dump, const struct choice *choice, struct range_state *state,
                      struct error *error)
{
    struct error met = {0};
    if (dump->settings.consistent == CONSISTENT_REQUIRE)
        return refuse(dump, choice, state, error);
    dump->unnamed = dump->unnamed || choice->unnamed;
    dump->plain_parts++;
    const uint64_t begun = task_now();
    for (;;) {
        const uint64_t keys = dump->keys;
        const bool any = server_any(dump);
        int status = any ? dump_part(dump, &met) : BANYAN_ENET;
        dump->plain_keys += dump->keys - keys;
        if (!status) {
            part_done(dump, state);
            return 0;
        }
        if (any && !dump_lost(dump)) {
            *error = met;
            return status;
        }
        if (any)
            server_lose(dump->server);
        else if (task_now() - begun > DUMP_WAIT_SECONDS * SECOND)
            return error_set(error, BANYAN_ENET, "none of the servers answers any more");
        else
            task_sleep(DUMP_RETRY_NS);
        if (!server_any(dump) && (status = ranges_ask_all(dump, error)))
            return status;
    }
}

static int next(struct dump *dump, struct range_state *state, struct error *error)
{
    struct choice choice;
    int status = state->stale ? ranges_ask_all(dump, error) : 0;
    state->stale = false;
    if (status)
        return status;
    choose(dump, &state->whole_to, &choice);
    if (choice.claims == 1 && choice.owner->connection && !state->by_key)
        return cut_read(dump, state, choice.owner, error);
    if ((choice.later || !choice.answered || choice.owner) && !state->by_key) {
        trouble(state, choice.answered ? "it is on its way to another server" : "no server answers");
        return 0;
    }
    if (choice.claims > 1)
        return error_set(
            error, BANYAN_EINVAL,
            "several servers say that they own the same keys: only the servers of one cluster can "
            "be dumped together");
    if (!choice.answered)
        return error_set(error, BANYAN_ENET, "none of the servers answers any more");
    return plain_read(dump, &choice, state, error);
}

int dump_ranges(struct dump *dump, struct error *error)
{
    struct range_state state = {.whole_to = dump->to, .stale = true};
    int status = 0;
    dump->ended = false;
    while (!status && !dump->ended)
        status = next(dump, &state, error);
    return status;
}
