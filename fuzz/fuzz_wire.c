/*
 * fuzz_wire.c - feeds bytes to the memory daemon's conversations (memory/server_session.h), without sockets:
 * a few connections at once, which may be of one group, and the keeper's steps in between.
 *
 * Input is a little program, so that mutations get behind the hello (nobody guesses a group's key): each step
 * is a byte, connection in its low 2 bits and action above, and what the action wants. See step().
 *
 *     meson setup build-fuzz -Dfuzz=true -Dtests=false (with CC=clang); build-fuzz/fuzz/fuzz_wire
 * fuzz/corpus/wire
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "memory/server_session.h"

#define CONNECTIONS 4u
#define INSTANCE    7u

/* The most that one connection may hold: a command; two lists of results beyond the pause. */
#define INPUT_MOST  (FABRIC_LENGTH_MAX + sizeof(struct wire_command) + 65536u + SESSION_INPUT_LISTS)
#define OUTPUT_MOST (SESSION_OUTPUT_PAUSE + 2u * (WIRE_LENGTH_MAX + WIRE_SMALL_MAX))

struct world {
    struct memory_node *node;
    struct memory_server *server;
    struct server_counts counts;
    struct server_session *sessions[CONNECTIONS];
    /* of the last control connection's welcome */
    uint16_t compute_id;
    uint64_t group_key;
    uint64_t now;
};

struct input {
    const uint8_t *bytes;
    size_t length;
};

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "broken: %s\n", what);
    abort();
}

static void take(struct input *input, void *to, size_t length)
{
    size_t some = input->length < length ? input->length : length;
    memset(to, 0, length);
    memcpy(to, input->bytes, some);
    input->bytes += some;
    input->length -= some;
}

static uint8_t take_byte(struct input *input)
{
    uint8_t byte;
    take(input, &byte, 1);
    return byte;
}

static struct world *world_make(void)
{
    struct world *world = calloc(1, sizeof *world);
    struct memory_options pool = {
        .node = 1, .pool_bytes = 4u << 20, .chunk_bytes = 64u << 10, .shared = true};
    struct memory_server_options server = {.engine = MEMORY_ENGINE_EPOLL};
    struct error error = {0};
    log_set_level(LOG_ERROR);
    must(memory_node_create(&world->node, &pool, &error) == BANYAN_OK, error.text);
    must(memory_server_create(&world->server, world->node, &server, &error) == BANYAN_OK, error.text);
    return world;
}

static struct server_session *session_of(struct world *world, unsigned index)
{
    if (world->sessions[index] != NULL)
        return world->sessions[index];
    struct server_session *session = calloc(1, sizeof *session);
    session->pidfd = -1;
    if (index ==
        CONNECTIONS - 1) { /* one that may map the pool: it is this very process, so nobody is killed */
        session->is_unix = true;
        session->pid = (int)getpid();
        session->pidfd = (int)syscall(SYS_pidfd_open, session->pid, 0u);
    }
    must(server_session_begin(session, world->server, &world->counts, -1, "fuzz"), "a session begins");
    world->sessions[index] = session;
    return session;
}

static void session_end(struct world *world, unsigned index, enum server_leaving how)
{
    struct server_session *session = world->sessions[index];
    if (session == NULL)
        return;
    server_session_leave(session, how, "fuzz");
    server_session_finish(session);
    free(session);
    world->sessions[index] = NULL;
}

/* Everything is taken by the peer; welcomes are remembered. */
static void drain(struct world *world, struct server_session *session)
{
    struct server_buffer *out = &session->out;
    struct wire_head head;
    while (out->start < out->ready) {
        must(out->ready - out->start >= sizeof head, "whole heads are sent");
        memcpy(&head, out->bytes + out->start, sizeof head);
        must(wire_head_valid(&head), "heads that are sent are valid");
        must(out->ready - out->start - sizeof head >= head.length, "whole messages are sent");
        if (head.kind == WIRE_WELCOME) {
            struct wire_welcome welcome;
            memcpy(&welcome, out->bytes + out->start + sizeof head, sizeof welcome);
            if (session->role == WIRE_CONTROL) {
                world->compute_id = welcome.compute_id;
                world->group_key = welcome.group_key;
            }
        }
        out->start += sizeof head + head.length;
    }
}

static void run(struct world *world, unsigned index)
{
    for (;;) {
        struct server_session *session = session_of(world, index);
        enum session_result result = server_session_run(session);
        must(session->out.start <= session->out.ready && session->out.ready <= session->out.end,
             "output is in order");
        must(server_buffer_held(&session->in) <= INPUT_MOST, "input is bounded");
        must(server_buffer_held(&session->out) <= OUTPUT_MOST, "output is bounded");
        if (result == SESSION_MORE) {
            must(session->need > server_buffer_held(&session->in), "it waits for what is not there");
            must(session->need <= FABRIC_LENGTH_MAX + 65536u, "it waits for what may come");
            return;
        }
        if (result == SESSION_BROKEN || result == SESSION_FENCED || result == SESSION_ENDED) {
            if (result == SESSION_BROKEN)
                must(session->why[0] != 0, "it says why");
            session_end(world, index, result == SESSION_ENDED ? SERVER_GOODBYE : SERVER_BROKEN);
            return;
        }
        drain(world, session); /* paused, or descriptors */
        server_session_descriptors_sent(session);
    }
}

static void feed(struct world *world, unsigned index, const void *bytes, size_t length)
{
    must(server_buffer_append(&session_of(world, index)->in, bytes, length), "memory");
    run(world, index);
}

static void feed_hello(struct world *world, unsigned index, uint8_t how)
{
    struct wire_hello hello = {.magic = WIRE_MAGIC,
                               .version = WIRE_VERSION,
                               .role = how & 7u,
                               .map = how >> 7,
                               .instance = INSTANCE + (how >> 5 & 1u),
                               .lease_ms = 1000,
                               .name = "fuzz"};
    struct wire_head head = {.kind = WIRE_HELLO, .length = sizeof hello};
    if (hello.role == WIRE_DATA) {
        hello.compute_id = world->compute_id;
        hello.group_key = world->group_key ^ (how >> 6 & 1u);
    }
    feed(world, index, &head, sizeof head);
    if (world->sessions[index] != NULL)
        feed(world, index, &hello, sizeof hello);
}

static void feed_head(struct world *world, unsigned index, struct input *input)
{
    struct wire_head head = {.kind = take_byte(input), .count = take_byte(input)};
    take(input, &head.length, 3);
    feed(world, index, &head, sizeof head);
}

/* A command at a place that mostly exists. */
static void feed_command(struct world *world, unsigned index, struct input *input)
{
    struct wire_command command = {.operation = take_byte(input)};
    uint32_t place = 0;
    take(input, &place, 3);
    take(input, &command.length, 2);
    if (command.operation & 0x40)
        command.length <<= 8;
    command.address = gaddr_make(world->server->groups.number, place);
    if (command.operation & 0x80)
        command.address |= GADDR_LOCK_REGION;
    command.operation &= 7;
    feed(world, index, &command, sizeof command);
}

static void feed_raw(struct world *world, unsigned index, struct input *input, size_t length)
{
    uint8_t bytes[65536] = {0};
    take(input, bytes, length < input->length ? length : input->length);
    feed(world, index, bytes, length);
}

static void step(struct world *world, struct input *input)
{
    uint8_t what = take_byte(input);
    unsigned index = what % CONNECTIONS;
    uint16_t length;
    switch (what / CONNECTIONS % 8) {
    case 0:
        feed_raw(world, index, input, take_byte(input));
        break;
    case 1:
        take(input, &length, 2);
        feed_raw(world, index, input, length);
        break;
    case 2:
        feed_hello(world, index, take_byte(input));
        break;
    case 3:
        feed_head(world, index, input);
        break;
    case 4:
        feed_command(world, index, input);
        break;
    case 5:
        drain(world, session_of(world, index));
        break;
    case 6:
        session_end(world, index, what & 0x80 ? SERVER_LOST : SERVER_GOODBYE);
        break;
    default:
        world->now += UINT64_C(1000000) * take_byte(input) * 16;
        server_groups_step(world->server, world->now);
        break;
    }
    if (world->sessions[index] != NULL)
        drain(world, world->sessions[index]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct world *world;
    struct input input = {bytes, length};
    if (world == NULL)
        world = world_make();
    world->now = task_now();
    while (input.length > 0)
        step(world, &input);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        session_end(world, i, SERVER_LOST);
    server_groups_step(world->server, task_now());
    must(world->server->groups.count == 0, "all groups end with their connections");
    return 0;
}
