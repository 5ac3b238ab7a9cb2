/* test_remote_nonsense.c - a memory node that says what it should not: every kind of wrong answer costs the
 * connection and fails the list with BANYAN_ENET; nothing is written beyond what was asked for, nor beyond
 * the room of a call whose answer is too long. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "fabric/peers.h"
#include "fabric/remote.h"
#include "fabric/wire.h"
#include "liar.h"

#define LIMIT UINT64_C(20000000000) /* ns */

/* ---- the liar: correct but for one answer ---- */

enum lie {
    TRUTH,
    WRONG_ID,
    OLD_ID,
    WRONG_KIND,
    NO_KIND,
    MORE_COMMANDS,
    FEWER_COMMANDS,
    LONGER,
    SHORTER,
    HUGE,
    POSITIVE_STATUS,
    UNKNOWN_STATUS,
    TWICE,
    GARBAGE,
    HALF_AND_CLOSE,
    LIES
};

static uint32_t next_lie; /* atomic: of the next list */

static bool welcome(int fd)
{
    struct {
        struct wire_header header;
        struct wire_greeting greeting;
    } first = {.header = {.length = sizeof first.greeting, .kind = WIRE_GREETING},
               .greeting = {.magic = WIRE_MAGIC, .version = WIRE_VERSION}};
    struct {
        struct wire_header header;
        struct wire_hello hello;
    } hello;
    struct {
        struct wire_header header;
        struct wire_welcome welcome;
    } answer = {.header = {.length = sizeof answer.welcome, .kind = WIRE_WELCOME},
                .welcome = {.lease_ms = 60000,
                            .compute_id = 1,
                            .node_count = 1,
                            .lock_width = 2,
                            .group_key = 5,
                            .cluster_id = 6,
                            .instance = 7,
                            .pool_bytes = 1 << 20,
                            .lock_bytes = 4096}};
    return liar_say(fd, &first, sizeof first) && liar_take(fd, &hello, sizeof hello) &&
           liar_say(fd, &answer, sizeof answer);
}

/* The list is always one READ of 64 bytes and one FAA. */
#define ASKED  (2 * sizeof(struct wire_command) + 8)
#define ANSWER 72u

static bool answer_list(int fd, const struct wire_header *asked)
{
    struct {
        struct wire_header header;
        uint8_t body[ANSWER + 64];
    } reply = {.header = {.length = ANSWER, .kind = WIRE_REPLY, .count = 2, .id = asked->id}};
    uint8_t commands[ASKED];
    size_t length = sizeof reply.header + ANSWER;
    /* acq_rel: the test sets it before it asks */
    enum lie lie = (enum lie)__atomic_exchange_n(&next_lie, (uint32_t)TRUTH, __ATOMIC_ACQ_REL);
    memset(reply.body, 0x77, sizeof reply.body);
    if (asked->length != ASKED || !liar_take(fd, commands, sizeof commands))
        return false;
    reply.header.id += lie == WRONG_ID;
    reply.header.id -= lie == OLD_ID;
    reply.header.kind = lie == WRONG_KIND ? WIRE_RESULT : lie == NO_KIND ? 200 : WIRE_REPLY;
    if (lie == WRONG_KIND)
        reply.header.count = 0;
    reply.header.count = (uint16_t)(reply.header.count + (lie == MORE_COMMANDS) - (lie == FEWER_COMMANDS));
    reply.header.status = lie == POSITIVE_STATUS ? 1 : lie == UNKNOWN_STATUS ? -1000 : 0;
    if (lie == UNKNOWN_STATUS) { /* of a list that was cut before its first command */
        reply.header.count = 0;
        reply.header.length = 0;
        length = sizeof reply.header;
    }
    if (lie == LONGER || lie == SHORTER) {
        reply.header.length = lie == LONGER ? ANSWER + 8 : ANSWER - 8;
        length = sizeof reply.header + reply.header.length;
    }
    if (lie == HUGE)
        reply.header.length = UINT32_MAX;
    if (lie == GARBAGE)
        net_random(&reply, sizeof reply);
    if (lie == HALF_AND_CLOSE)
        return liar_say(fd, &reply, length / 2) && false;
    return liar_say(fd, &reply, length) && (lie != TWICE || liar_say(fd, &reply, length));
}

/* ---- who is connected: processes of the ids 2, 4, 6 and so on ---- */

#define CONNECTED 9001u

enum list_lie {
    LIST_TRUTH,
    LIST_AGAIN,   /* an answer begins where the last one did */
    LIST_NOTHING, /* there are more, and none of them is told */
    LIST_TWINS,   /* one id twice */
    LIST_LIES
};

static uint32_t list_lie; /* atomic: of all answers until the test sets it again */

static bool answer_processes(int fd, const struct wire_header *asked)
{
    static __thread struct {
        struct wire_header header;
        struct wire_process_list list;
    } reply;
    struct wire_process_request request;
    struct wire_process_list *list = &reply.list;
    const enum list_lie lie = (enum list_lie)atomic_load_acquire(&list_lie); /* acquire: as set by the test */
    if (asked->length != sizeof request || !liar_take(fd, &request, sizeof request) ||
        request.kind != WIRE_PROCESS_LIST)
        return false;
    const uint32_t told = lie == LIST_AGAIN ? 0 : request.compute_id / 2u;
    list->total = CONNECTED - told;
    list->count = list->total < WIRE_PROCESSES_MAX ? list->total : WIRE_PROCESSES_MAX;
    if (told && lie == LIST_NOTHING)
        list->count = 0;
    for (uint32_t i = 0; i < list->count; i++) { /* in no order: backwards */
        const uint32_t id = 2 * (told + list->count - i);
        list->processes[i] = (struct wire_process){.compute_id = (uint16_t)id, .instance = 100000 + id};
    }
    if (lie == LIST_TWINS)
        list->processes[1].compute_id = list->processes[0].compute_id;
    const size_t length =
        offsetof(struct wire_process_list, processes) + list->count * sizeof list->processes[0];
    reply.header = (struct wire_header){.length = (uint32_t)length, .kind = WIRE_RESULT, .id = asked->id};
    return liar_say(fd, &reply, sizeof reply.header + length);
}

/* ---- calls that take their time ---- */

#define ROOM 16u /* of the caller, for an answer */

/* The request says how long its answer is. */
static bool answer_later(int fd, const struct wire_header *asked)
{
    struct {
        struct wire_header header;
        uint8_t body[2 * ROOM];
    } reply = {.header = {.kind = WIRE_RESULT, .id = asked->id}};
    if (asked->length != sizeof reply.header.length ||
        !liar_take(fd, &reply.header.length, sizeof reply.header.length))
        return false;
    memset(reply.body, 0x77, sizeof reply.body);
    return liar_say(fd, &reply, sizeof reply.header + reply.header.length);
}

static bool answer_call(int fd, const struct wire_header *asked)
{
    return asked->id & WIRE_DEFERRED ? answer_later(fd, asked) : answer_processes(fd, asked);
}

static void talk(struct liar *liar, int fd)
{
    struct wire_header header;
    bool on = welcome(fd);
    while (on && liar_take(fd, &header, sizeof header) && header.kind != WIRE_GOODBYE)
        on = header.kind == WIRE_HEARTBEAT ? liar_say(fd, &header, sizeof header)
             : header.kind == WIRE_CALL    ? answer_call(fd, &header)
                                           : answer_list(fd, &header);
}

/* ---- the client ---- */

/* 64 bytes with a fence of their own on both sides. incarnation: as of a list, 0: any. */
static int ask(struct fabric_endpoint *endpoint, uint64_t incarnation)
{
    uint64_t room[24];
    memset(room, 0x11, sizeof room);
    struct fabric_command commands[] = {
        {.operation = FABRIC_READ, .length = 64, .address = gaddr_make(0, 4096), .read.buffer = &room[8]},
        {.operation = FABRIC_FAA, .address = gaddr_make(0, 8192), .faa.add = 1}};
    struct fabric_list list = {.count = 2, .commands = commands, .incarnation = incarnation},
                       *lists[] = {&list};
    int status = fabric_execute(endpoint, lists, 1, NULL);
    for (unsigned i = 0; i < 8; i++) {
        assert_int_equal(room[i], UINT64_C(0x1111111111111111));
        assert_int_equal(room[16 + i], UINT64_C(0x1111111111111111));
    }
    assert_int_equal(list.status, status);
    if (!status) {
        assert_int_equal(commands[1].faa.old, UINT64_C(0x7777777777777777));
        assert_int_equal(room[8], UINT64_C(0x7777777777777777));
    }
    return status;
}

static void ask_until_truth(struct fabric_endpoint *endpoint)
{
    uint64_t deadline = task_now() + LIMIT;
    int status;
    while ((status = ask(endpoint, 0))) {
        assert_int_equal(status, BANYAN_ENET);
        assert_true(task_now() < deadline);
        task_sleep(1000000);
    }
}

static void lies_cost_the_connection(void **state)
{
    struct liar liar;
    struct error error = {0};
    struct fabric *fabric = NULL;
    liar_start(&liar, &(struct net_address){.kind = NET_TCP, .host = "127.0.0.1"}, talk, NULL);
    const struct fabric_remote_options options = {.nodes = &liar.address, .count = 1, .timeout_ms = 20000};
    if (fabric_remote_open(&fabric, &options, &error))
        fail_msg("%s", error.text);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, &error);
    assert_non_null(endpoint);
    assert_int_equal(ask(endpoint, 0), BANYAN_OK);
    for (uint32_t lie = TRUTH + 1; lie < LIES; lie++) {
        uint64_t before = fabric_incarnation(fabric);
        atomic_store_release(&next_lie, lie); /* release: before the question */
        int status = ask(endpoint, 0);
        /* The first was right; the second answers nothing, which may be noticed before the next question. */
        const bool noticed = lie == TWICE && !status && (status = ask(endpoint, before)) == BANYAN_EFENCED;
        if (status != BANYAN_ENET && !noticed)
            fail_msg("lie %u: status %d", lie, status);
        assert_int_equal(fabric_incarnation(fabric), before + 1);
        ask_until_truth(endpoint);
    }
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    liar_stop(&liar);
}

/* More processes than one answer has room for are asked for in pieces; what the pieces contradict is told. */
static void long_lists_of_processes(void **state)
{
    struct liar liar;
    struct error error = {0};
    struct fabric *fabric = NULL;
    uint32_t count;
    struct fabric_process *list = calloc(CONNECTED + 1, sizeof *list);
    assert_non_null(list);
    liar_start(&liar, &(struct net_address){.kind = NET_TCP, .host = "127.0.0.1"}, talk, NULL);
    const struct fabric_remote_options options = {.nodes = &liar.address, .count = 1, .timeout_ms = 20000};
    if (fabric_remote_open(&fabric, &options, &error))
        fail_msg("%s", error.text);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, &error);
    assert_non_null(endpoint);
    for (uint32_t capacity = 10; capacity <= CONNECTED; capacity += CONNECTED - 10) {
        memset(list, 0, (CONNECTED + 1) * sizeof *list);
        assert_int_equal(fabric_processes(endpoint, list, capacity, &count, NULL), 0);
        assert_int_equal(count, CONNECTED);
        for (uint32_t i = 0; i < capacity; i++) {
            assert_int_equal(list[i].compute_id, 2 * (i + 1));
            assert_int_equal(list[i].instance, 100000 + 2 * (i + 1));
        }
        assert_int_equal(list[capacity].compute_id, 0);
    }
    for (uint32_t lie = LIST_TRUTH + 1; lie < LIST_LIES; lie++) {
        atomic_store_release(&list_lie, lie); /* release: before the question */
        assert_int_equal(fabric_processes(endpoint, list, CONNECTED, &count, NULL), BANYAN_EVERSION);
    }
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    liar_stop(&liar);
    free(list);
}

/* Such a call has been served. A caller that would be told that it was refused might do it once more. */
static void answers_without_room(void **state)
{
    struct liar liar;
    struct error error = {0};
    struct fabric *fabric = NULL;
    liar_start(&liar, &(struct net_address){.kind = NET_TCP, .host = "127.0.0.1"}, talk, NULL);
    const struct fabric_remote_options options = {.nodes = &liar.address, .count = 1, .timeout_ms = 20000};
    if (fabric_remote_open(&fabric, &options, &error))
        fail_msg("%s", error.text);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, &error);
    assert_non_null(endpoint);
    for (uint32_t length = ROOM - 1; length <= ROOM + 1; length++) {
        uint8_t reply[2 * ROOM] = {0};
        struct fabric_call call = {.request = &length,
                                   .length = sizeof length,
                                   .reply = reply,
                                   .capacity = ROOM,
                                   .incarnation = fabric_incarnation(fabric)},
                           *calls[] = {&call};
        fabric_calls(endpoint, calls, 1, NULL);
        assert_int_equal(call.status, length <= ROOM ? 0 : BANYAN_ENET);
        assert_int_equal(call.reply_length, length <= ROOM ? length : 0);
        assert_int_equal(reply[ROOM], 0);
    }
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    liar_stop(&liar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lies_cost_the_connection),
                                       cmocka_unit_test(long_lists_of_processes),
                                       cmocka_unit_test(answers_without_room)};
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
