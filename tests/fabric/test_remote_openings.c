/* test_remote_openings.c - memory nodes that open a connection, answer a heartbeat, a question or a format as
 * they should not: the compute node says what is wrong and with which memory node, and keeps nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "fabric/remote.h"
#include "fabric/wire.h"
#include "liar.h"
#include "memory/memory.h"

#define MS          UINT64_C(1000000)
#define LIMIT       (UINT64_C(20000) * MS) /* much more than anything takes */
#define POOL        (1u << 20)
#define LOCKS       4096u
#define BEATS_ASKED 8u /* while it opens */

/* ---- a memory node as the test wants it ---- */

struct message {
    uint32_t length, status; /* length 0: none */
    uint16_t count;
    uint8_t kind;
    const char *body;
};
struct role {
    struct wire_greeting greeting;
    struct wire_welcome welcome, data_welcome; /* of control and monitor, of data connections */
    struct message refusal;                    /* instead of a welcome, of control connections ... */
    uint32_t refusals;                         /* ... so many times; atomic */
    struct message result;                     /* instead of the answer to a call or a format */
    uint32_t good_beats, beats;                /* atomic: then follow ...; all that were answered */
    enum { BEAT_GOOD, BEAT_WRONG, BEAT_LONG, BEAT_SILENT, BEAT_CLOSES, BEAT_HALVES } beat;
    size_t pool_file, lock_file, staging_file; /* bytes, of those that are mapped */
    uint16_t asked_ids[8];                     /* of the first control connections */
    uint32_t controls, datas;
    bool hangs;              /* data connections */
    uint32_t shares_no_more; /* atomic, as it changes while connections open: none is mapped from then on */
};

static struct role honest(void)
{
    struct role role = {
        .greeting = {.magic = WIRE_MAGIC, .version = WIRE_VERSION},
        .welcome = {.lease_ms = 60000,
                    .compute_id = 1,
                    .lock_width = 2,
                    .group_key = 5,
                    .cluster_id = 6,
                    .instance = 7,
                    .pool_bytes = POOL,
                    .lock_bytes = LOCKS},
        .pool_file = POOL,
        .lock_file = LOCKS,
        .staging_file = sizeof(struct wire_staging),
    };
    role.data_welcome = role.welcome;
    return role;
}

static bool say_message(int fd, const struct message *message, uint64_t id)
{
    struct wire_header header = {.length = message->length,
                                 .kind = message->kind,
                                 .count = message->count,
                                 .status = (int32_t)message->status,
                                 .id = id};
    size_t there = message->body != NULL ? message->length : 0;
    return liar_say(fd, &header, sizeof header) && liar_say(fd, message->body, there);
}

static bool give_descriptors(const struct role *role, int fd, const struct wire_hello *hello)
{
    bool control = hello->role == WIRE_CONTROL;
    const size_t bytes[2] = {control ? role->pool_file : role->staging_file, role->lock_file};
    unsigned count = control ? 2 : 1;
    int files[2];
    for (unsigned i = 0; i < count; i++) {
        files[i] = memfd_create("liar", MFD_CLOEXEC);
        if (files[i] < 0 || ftruncate(files[i], (off_t)bytes[i]) != 0)
            abort();
    }
    bool given = !net_send_descriptors(fd, files, count, LIMIT, NULL);
    for (unsigned i = 0; i < count; i++)
        close(files[i]);
    return given;
}

static bool refuses(struct role *role, int fd, const struct wire_hello *hello)
{
    if (hello->role != WIRE_CONTROL || role->refusal.kind == 0)
        return false;
    uint32_t left = atomic_load_acquire(&role->refusals);
    while (left > 0 && !__atomic_compare_exchange_n(&role->refusals, &left, left - 1, false, __ATOMIC_ACQ_REL,
                                                    __ATOMIC_ACQUIRE))
        ;
    return left > 0 && (say_message(fd, &role->refusal, 0) || true);
}

static bool open_talk(struct role *role, int fd, struct wire_hello *hello)
{
    struct wire_header header = {.length = sizeof role->greeting, .kind = WIRE_GREETING};
    if (!liar_say(fd, &header, sizeof header) || !liar_say(fd, &role->greeting, sizeof role->greeting) ||
        !liar_take(fd, &header, sizeof header) || header.kind != WIRE_HELLO ||
        !liar_take(fd, hello, sizeof *hello))
        return false;
    if (hello->role == WIRE_CONTROL) {
        uint32_t number = __atomic_fetch_add(&role->controls, 1, __ATOMIC_ACQ_REL);
        if (number < 8)
            atomic_store_release(&role->asked_ids[number], hello->compute_id);
    }
    if (refuses(role, fd, hello))
        return false;
    if (hello->role == WIRE_DATA && role->hangs) {
        uint32_t number = __atomic_fetch_add(&role->datas, 1, __ATOMIC_ACQ_REL);
        return number > 0 &&
               liar_take(fd, &header, sizeof header); /* the first is refused, others never hear */
    }
    struct wire_welcome welcome = hello->role == WIRE_DATA ? role->data_welcome : role->welcome;
    if (hello->role == WIRE_CONTROL && hello->compute_id != 0 && welcome.compute_id == 1)
        welcome.compute_id = hello->compute_id;
    welcome.mapped = welcome.mapped && (hello->role == WIRE_CONTROL || hello->role == WIRE_DATA) &&
                     !atomic_load_acquire(&role->shares_no_more);
    header = (struct wire_header){.length = sizeof welcome, .kind = WIRE_WELCOME};
    return liar_say(fd, &header, sizeof header) && liar_say(fd, &welcome, sizeof welcome) &&
           (!welcome.mapped || give_descriptors(role, fd, hello));
}

static bool beat(struct role *role, int fd, const struct wire_header *asked)
{
    static const struct message wrong = {.kind = WIRE_RESULT};
    static const struct message longer = {.kind = WIRE_HEARTBEAT, .length = 8, .body = "12345678"};
    uint32_t left = atomic_load_acquire(&role->good_beats);
    if (left > 0)
        atomic_store_release(&role->good_beats, left - 1);
    if (role->beat == BEAT_GOOD || (left > 0 && !atomic_load_acquire(&role->shares_no_more))) {
        __atomic_add_fetch(&role->beats, 1, __ATOMIC_RELEASE);
        return liar_say(fd, asked, sizeof *asked);
    }
    switch (role->beat) {
    case BEAT_WRONG:
        return say_message(fd, &wrong, 0);
    case BEAT_LONG:
        return say_message(fd, &longer, 0);
    case BEAT_SILENT:
        return true;
    case BEAT_HALVES: /* later than the other half */
        __atomic_add_fetch(&role->beats, 1, __ATOMIC_RELEASE);
        return liar_say(fd, asked, 10) && (task_sleep(5 * MS), true) &&
               liar_say(fd, (const char *)asked + 10, sizeof *asked - 10);
    default:
        return false;
    }
}

static void talk(struct liar *liar, int fd)
{
    struct role *role = liar->context;
    struct wire_hello hello;
    struct wire_header header;
    uint8_t away[256];
    bool on = open_talk(role, fd, &hello);
    while (on && liar_take(fd, &header, sizeof header) && header.kind != WIRE_GOODBYE)
        if (header.kind == WIRE_HEARTBEAT)
            on = beat(role, fd, &header);
        else
            on = header.length <= sizeof away && liar_take(fd, away, header.length) &&
                 role->result.kind != 0 && say_message(fd, &role->result, header.id) &&
                 (role->result.body != NULL || role->result.length == 0); /* it is cut short */
}

struct stage {
    struct role roles[2];
    struct liar liars[2];
    struct net_address addresses[2];
    unsigned count;
};

static void stage_open(struct stage *stage, bool local)
{
    static unsigned serial;
    for (unsigned i = 0; i < stage->count; i++) {
        struct net_address at = {.kind = local ? NET_UNIX : NET_TCP};
        if (local)
            snprintf(at.path, sizeof at.path, "/tmp/banyan-liar-%ld-%u.sock", (long)getpid(), serial++);
        else
            snprintf(at.host, sizeof at.host, "127.0.0.1");
        liar_start(&stage->liars[i], &at, talk, &stage->roles[i]);
        stage->addresses[i] = stage->liars[i].address;
    }
}

static void stage_close(struct stage *stage)
{
    for (unsigned i = 0; i < stage->count; i++)
        liar_stop(&stage->liars[i]);
}

static struct fabric_remote_options options_of(const struct stage *stage)
{
    return (struct fabric_remote_options){
        .nodes = stage->addresses, .count = (uint16_t)stage->count, .timeout_ms = 20000};
}

/* ---- opening ---- */

static void open_with(struct stage *stage, bool local, struct fabric_remote_options *change, int code,
                      const char *says)
{
    struct fabric *fabric = NULL;
    struct error error = {0};
    stage_open(stage, local);
    struct fabric_remote_options options = options_of(stage);
    if (change != NULL) {
        options.secret = change->secret;
        options.secret_length = change->secret_length;
        options.timeout_ms = change->timeout_ms != 0 ? change->timeout_ms : options.timeout_ms;
    }
    int status = fabric_remote_open(&fabric, &options, &error);
    if (status != code || (code && strstr(error.text, says) == NULL))
        fail_msg("status %d, not %d, or not \"%s\": %s", status, code, says, error.text);
    assert_true((fabric != NULL) == (!code));
    if (code) /* it names the memory node */
        assert_non_null(strstr(error.text, local ? "memory node unix:" : "memory node"));
    if (fabric != NULL)
        fabric_close(fabric);
    stage_close(stage);
}

static void opens_not(struct role role, int code, const char *says)
{
    struct stage stage = {.roles = {role}, .count = 1};
    open_with(&stage, false, NULL, code, says);
}

static void test_greetings(void **state)
{
    struct role role = honest();
    opens_not(role, BANYAN_OK, "");
    role.greeting.magic = 17;
    opens_not(role, BANYAN_EVERSION, "what answers there is not a Banyan memory node");
    role = honest();
    role.greeting.version = 10;
    opens_not(role, BANYAN_EVERSION, "it speaks version 10 of the protocol");
    role = honest();
    role.greeting.secret_wanted = 1;
    opens_not(role, BANYAN_EINVAL, "it asks for a secret, and none was given");
    /* The other way round: it knows none. */
    struct stage stage = {.roles = {honest()}, .count = 1};
    struct fabric_remote_options options = {.secret = "open sesame", .secret_length = 11};
    open_with(&stage, false, &options, BANYAN_EINVAL, "does not prove that it knows the secret");
}

static void refused(struct message refusal, int code, const char *says)
{
    struct role role = honest();
    role.refusal = refusal;
    role.refusal.kind = refusal.kind != 0 ? refusal.kind : WIRE_REFUSE;
    role.refusals = 1;
    opens_not(role, code, says);
}

static void test_refusals(void **state)
{
    char words[400];
    refused((struct message){.length = 2, .body = "no"}, BANYAN_ENET, "it refused, without a reason");
    refused((struct message){.length = 6, .body = "\xfd\xff\xff\xffno"}, BANYAN_EINVAL, "no");
    refused((struct message){.length = 9, .body = "\xfd\xff\xff\xff\x1b[2\x7f\xff"}, BANYAN_EINVAL, "?[2?");
    refused((struct message){.length = 6, .body = "\x05\x00\x00\x00no"}, BANYAN_ENET, "no");
    refused((struct message){.length = 6, .body = "\x00\x00\x00\x80no"}, BANYAN_ENET, "no");
    refused((struct message){.length = 4, .body = "\xfd\xff\xff\xff"}, BANYAN_EINVAL, "invalid argument");
    memset(words, 'w', sizeof words);
    memcpy(words, "\xfd\xff\xff\xff", 4);
    refused((struct message){.length = sizeof words, .body = words}, BANYAN_EINVAL, "wwwwww");
    refused((struct message){.length = 80, .body = NULL}, BANYAN_ENET, "closed the connection");
    refused((struct message){.kind = WIRE_RESULT, .length = 2, .body = "no"}, BANYAN_EVERSION,
            "not a Banyan");
    refused((struct message){.kind = WIRE_WELCOME, .length = 2, .body = "no"}, BANYAN_EVERSION,
            "not a Banyan");
    refused((struct message){.kind = WIRE_KINDS, .length = 2, .body = "no"}, BANYAN_EVERSION, "not a Banyan");
}

static void test_impossible_memory(void **state)
{
    static const struct wire_welcome memories[] = {
        {.pool_bytes = 0, .lock_bytes = 4096, .lock_width = 2},
        {.pool_bytes = 4096, .lock_bytes = 0, .lock_width = 2},
        {.pool_bytes = 4097, .lock_bytes = 4096, .lock_width = 2},
        {.pool_bytes = 4096, .lock_bytes = 4097, .lock_width = 2},
        {.pool_bytes = UINT64_C(1) << 62, .lock_bytes = 4096, .lock_width = 2},
        {.pool_bytes = 4096, .lock_bytes = UINT64_C(1) << 62, .lock_width = 2},
        {.pool_bytes = 4096, .lock_bytes = 4096, .lock_width = 4},
    };
    for (unsigned i = 0; i < sizeof memories / sizeof memories[0]; i++) {
        struct role role = honest();
        role.welcome.pool_bytes = memories[i].pool_bytes;
        role.welcome.lock_bytes = memories[i].lock_bytes;
        role.welcome.lock_width = memories[i].lock_width;
        opens_not(role, BANYAN_EVERSION, "its memory is of an impossible size");
    }
}

static void test_wrong_places(void **state)
{
    struct role role = honest();
    role.welcome.node = 1;
    opens_not(role, BANYAN_EINVAL, "is number 1 of its cluster, but only 1 were named");
    role = honest();
    role.welcome.compute_id = 0;
    opens_not(role, BANYAN_EVERSION, "gives another compute id than it was asked for");

    struct stage stage = {.roles = {honest(), honest()}, .count = 2};
    stage.roles[1].welcome.node = 1;
    stage.roles[1].welcome.lock_width = 8;
    open_with(&stage, false, NULL, BANYAN_EINVAL, "has lock words of 8 bytes");
    stage.roles[1].welcome.lock_width = 2;
    stage.roles[1].welcome.compute_id = 77;
    open_with(&stage, false, NULL, BANYAN_EVERSION, "gives another compute id than it was asked for");
    stage.roles[1].welcome.compute_id = 1;
    stage.roles[1].welcome.lease_ms = 0; /* it does not say: what was asked for */
    open_with(&stage, false, NULL, BANYAN_OK, "");
}

/* An id that is in use at one memory node is given back to the others, and the next is tried. */
static void test_busy_ids(void **state)
{
    const struct message busy = {.kind = WIRE_REFUSE,
                                 .length = 8,
                                 .body = "\xf1\xff\xff\xff"
                                         "busy"};
    struct stage stage = {.roles = {honest(), honest()}, .count = 2};
    stage.roles[1].welcome.node = 1;
    stage.roles[1].refusal = busy;
    stage.roles[1].refusals = 2;
    open_with(&stage, false, NULL, BANYAN_OK, "");
    static const uint16_t first[] = {0, 2, 3}, second[] = {1, 2, 3};
    assert_memory_equal(stage.roles[0].asked_ids, first, sizeof first);
    assert_memory_equal(stage.roles[1].asked_ids, second, sizeof second);
    /* The one that chooses is busy itself: it is asked again to choose. */
    stage = (struct stage){.roles = {honest()}, .count = 1};
    stage.roles[0].refusal = busy;
    stage.roles[0].refusals = 2;
    open_with(&stage, false, NULL, BANYAN_OK, "");
    static const uint16_t none[] = {0, 0, 0};
    assert_int_equal(stage.roles[0].controls, 3);
    assert_memory_equal(stage.roles[0].asked_ids, none, sizeof none);
    /* Until the time is over, in which a slow machine has been refused at least once. */
    stage.roles[0].refusals = UINT32_MAX;
    struct fabric_remote_options options = {.timeout_ms = 2000};
    open_with(&stage, false, &options, BANYAN_EBUSY, "busy");
}

/* What was mapped for the first id that was tried is what is used with the next. */
static void test_busy_ids_of_maps(void **state)
{
    struct stage stage = {.roles = {honest(), honest()}, .count = 2};
    for (unsigned i = 0; i < 2; i++)
        stage.roles[i].welcome.mapped = stage.roles[i].data_welcome.mapped = 1;
    stage.roles[1].welcome.node = 1;
    stage.roles[1].refusal = (struct message){.kind = WIRE_REFUSE,
                                              .length = 8,
                                              .body = "\xf1\xff\xff\xff"
                                                      "busy"};
    stage.roles[1].refusals = 1;
    open_with(&stage, true, NULL, BANYAN_OK, "");
    assert_int_equal(stage.roles[0].controls, 2);
}

/* An endpoint may be closed while the connection that it lacks is being opened. */
static void test_closes_while_it_is_mended(void **state)
{
    struct stage stage = {.roles = {honest()}, .count = 1};
    struct fabric *fabric;
    uint64_t deadline = task_now() + LIMIT;
    stage.roles[0].hangs = true;
    stage_open(&stage, false);
    struct fabric_remote_options options = options_of(&stage);
    assert_int_equal(fabric_remote_open(&fabric, &options, NULL), BANYAN_OK);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    assert_non_null(endpoint);
    while (atomic_load_acquire(&stage.roles[0].datas) < 2) {
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
    fabric_endpoint_close(endpoint); /* waits for that attempt's end */
    fabric_close(fabric);
    stage_close(&stage);
}

/* ---- heartbeats ---- */

static void test_beats_of_an_opening(void **state)
{
    struct role role = honest();
    struct fabric_remote_options options = {.timeout_ms = 200};
    for (role.good_beats = 0; role.good_beats < BEATS_ASKED; role.good_beats += 3) {
        role.beat = BEAT_WRONG;
        opens_not(role, BANYAN_EVERSION, "answers a heartbeat with something else");
        role.beat = BEAT_LONG;
        opens_not(role, BANYAN_EVERSION, "answers a heartbeat with something else");
        role.beat = BEAT_CLOSES;
        opens_not(role, BANYAN_ENET, "closed the connection");
        role.beat = BEAT_HALVES;
        opens_not(role, BANYAN_OK, "");
    }
    struct stage stage = {.roles = {honest()}, .count = 1};
    stage.roles[0].beat = BEAT_SILENT;
    open_with(&stage, false, &options, BANYAN_ETIMEOUT, "does not answer in time");
}

/* Until the trouble's text contains `says`. */
static void wait_trouble(struct fabric *fabric, const char *says)
{
    uint64_t deadline = task_now() + LIMIT;
    char text[256] = "";
    while (strstr(text, says) == NULL) {
        if (task_now() > deadline)
            fail_msg("trouble is \"%s\", never \"%s\"", text, says);
        task_sleep(MS);
        fabric_trouble(fabric, 0, text, sizeof text);
    }
}

static void wait_incarnation(struct fabric *fabric, uint64_t least)
{
    uint64_t deadline = task_now() + LIMIT;
    while (fabric_incarnation(fabric) < least) {
        assert_true(task_now() < deadline);
        task_sleep(MS);
    }
}

/* Later ones cost the connection; it is opened anew, and they may be right then. */
static void test_beats(void **state)
{
    for (unsigned lie = BEAT_GOOD; lie <= BEAT_HALVES; lie++) {
        struct stage stage = {.roles = {honest()}, .count = 1};
        struct fabric *fabric;
        uint32_t good = BEATS_ASKED + 2;
        stage.roles[0].welcome.lease_ms = 20; /* a beat every 5 ms */
        stage.roles[0].beat = lie;
        stage.roles[0].good_beats = good;
        stage_open(&stage, false);
        struct fabric_remote_options options = options_of(&stage);
        options.timeout_ms = lie == BEAT_SILENT ? 2000 : 20000; /* the opening is to succeed within it */
        assert_int_equal(fabric_remote_open(&fabric, &options, NULL), BANYAN_OK);
        if (lie == BEAT_GOOD || lie == BEAT_HALVES) {
            uint64_t deadline = task_now() + LIMIT;
            while (atomic_load_acquire(&stage.roles[0].beats) < good + 5) {
                assert_true(task_now() < deadline);
                task_sleep(MS);
            }
            assert_int_equal(fabric_incarnation(fabric), 1);
        } else {
            wait_incarnation(fabric, 3); /* lost, opened, and lost again */
        }
        fabric_close(fabric);
        stage_close(&stage);
    }
}

/* ---- memory that is mapped ---- */

static void test_maps(void **state)
{
    struct stage stage = {.roles = {honest()}, .count = 1};
    struct role *role = &stage.roles[0];
    role->welcome.mapped = role->data_welcome.mapped = 1;
    open_with(&stage, true, NULL, BANYAN_OK, "");
    role->pool_file = POOL - 8;
    open_with(&stage, true, NULL, BANYAN_ENET, "its pool is shorter than it says");
    role->pool_file = POOL;
    role->lock_file = 0;
    open_with(&stage, true, NULL, BANYAN_ENET, "its lock region is shorter than it says");
}

static int add(struct fabric_endpoint *endpoint)
{
    struct fabric_command command = {.operation = FABRIC_FAA, .address = gaddr_make(0, 4096), .faa.add = 1};
    struct fabric_list list = {.count = 1, .commands = &command}, *lists[] = {&list};
    return fabric_execute(endpoint, lists, 1, NULL);
}

/* Data connections that do not fit: the endpoint stays without one, and the trouble says why. */
static void maps_data(struct role role, const char *says)
{
    struct stage stage = {.roles = {role}, .count = 1};
    struct fabric *fabric;
    stage_open(&stage, true);
    struct fabric_remote_options options = options_of(&stage);
    assert_int_equal(fabric_remote_open(&fabric, &options, NULL), BANYAN_OK);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    assert_non_null(endpoint);
    wait_trouble(fabric, says);
    assert_int_equal(add(endpoint), BANYAN_ENET);
    assert_int_equal(fabric_incarnation(fabric), 1);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    stage_close(&stage);
}

static void test_maps_of_data(void **state)
{
    struct role role = honest();
    role.welcome.mapped = 1;
    maps_data(role, "it does not share its pool as it did before");
    role.data_welcome.mapped = 1;
    role.staging_file = 64;
    maps_data(role, "its staging area is too small");
}

/* One that came back and shares its pool no more is not taken for the old one. */
static void test_maps_no_more(void **state)
{
    struct stage stage = {.roles = {honest()}, .count = 1};
    struct role *role = &stage.roles[0];
    struct fabric *fabric;
    role->welcome.mapped = role->data_welcome.mapped = 1;
    role->welcome.lease_ms = 20;
    role->beat = BEAT_CLOSES;
    role->good_beats = UINT32_MAX;
    stage_open(&stage, true);
    struct fabric_remote_options options = options_of(&stage);
    assert_int_equal(fabric_remote_open(&fabric, &options, NULL), BANYAN_OK);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, NULL);
    assert_non_null(endpoint);
    assert_int_equal(add(endpoint), BANYAN_OK);
    atomic_store_release(&role->shares_no_more, 1);
    wait_trouble(fabric, "does not share its pool as it did before");
    assert_int_equal(add(endpoint), BANYAN_ENET);
    fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    stage_close(&stage);
}

/* ---- questions and formats ---- */

static void asks(struct message result, size_t length, int code, const char *says)
{
    struct stage stage = {.roles = {honest()}, .count = 1};
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct error error = {0};
    char reply[64];
    size_t reply_length = 1;
    stage.roles[0].result = result;
    stage_open(&stage, false);
    struct fabric_remote_options options = options_of(&stage);
    int status = fabric_remote_ask(&options, 0, &ask, length, reply, sizeof reply, &reply_length, &error);
    if (status != code || strstr(error.text, says) == NULL)
        fail_msg("status %d, not %d, or not \"%s\": %s", status, code, says, error.text);
    assert_int_equal(reply_length, !code ? result.length : 0);
    if (!code)
        assert_memory_equal(reply, result.body, result.length);
    stage_close(&stage);
}

static void test_asking(void **state)
{
    const size_t good = sizeof(struct memory_status_request);
    asks((struct message){.kind = WIRE_RESULT, .length = 5, .body = "hello"}, good, BANYAN_OK, "");
    asks((struct message){.kind = WIRE_RESULT, .status = (uint32_t)BANYAN_ENOTSUP}, good, BANYAN_ENOTSUP,
         "not supported");
    asks((struct message){.kind = WIRE_REPLY, .length = 5, .body = "hello"}, good, BANYAN_EVERSION,
         "something that is no result");
    asks((struct message){.kind = WIRE_RESULT, .status = 3}, good, BANYAN_EVERSION,
         "something that is no result");
    asks((struct message){.kind = WIRE_KINDS}, good, BANYAN_EVERSION, "something that is no result");
    asks((struct message){.kind = WIRE_RESULT, .length = 200, .body = NULL}, good, BANYAN_EINVAL,
         "longer than expected");
    asks((struct message){.kind = WIRE_RESULT, .length = 40, .body = NULL}, good, BANYAN_ENET,
         "closed the connection");
    asks((struct message){0}, good, BANYAN_ENET, "closed the connection");
    asks((struct message){0}, WIRE_SMALL_MAX + 1, BANYAN_EINVAL, "is too long");
}

static void test_asking_nobody(void **state)
{
    struct stage stage = {.roles = {honest()}, .count = 1};
    struct fabric_remote_options options;
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct error error = {0};
    char reply[64];
    size_t length;
    stage_open(&stage, false);
    options = options_of(&stage);
    assert_int_equal(fabric_remote_ask(&options, 1, &ask, sizeof ask, reply, sizeof reply, &length, &error),
                     BANYAN_ENOTFOUND);
    assert_non_null(strstr(error.text, "number 1"));
    stage_close(&stage);
    assert_int_equal(fabric_remote_ask(&options, 0, &ask, sizeof ask, reply, sizeof reply, &length, &error),
                     BANYAN_ENET); /* nobody is there */
    assert_non_null(strstr(error.text, "127.0.0.1"));
    /* Of two of whom neither is there, it is told of the one that was most likely meant. */
    struct net_address both[2] = {stage.addresses[0], {.kind = NET_UNIX, .path = "/nowhere/at/all"}};
    options.nodes = both;
    options.count = 2;
    assert_int_equal(fabric_remote_ask(&options, 1, &ask, sizeof ask, reply, sizeof reply, &length, &error),
                     BANYAN_ENET);
    assert_non_null(strstr(error.text, "/nowhere/at/all"));
}

/* One that belongs to no cluster has no number but its place. */
static void test_asking_the_empty(void **state)
{
    struct stage stage = {.roles = {honest(), honest()}, .count = 2};
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    char reply[64];
    size_t length;
    for (unsigned i = 0; i < 2; i++) {
        stage.roles[i].welcome.cluster_id = 0;
        stage.roles[i].result =
            (struct message){.kind = WIRE_RESULT, .length = 1, .body = i == 0 ? "0" : "1"};
    }
    stage_open(&stage, false);
    struct fabric_remote_options options = options_of(&stage);
    for (uint16_t i = 0; i < 2; i++) {
        assert_int_equal(fabric_remote_ask(&options, i, &ask, sizeof ask, reply, sizeof reply, &length, NULL),
                         BANYAN_OK);
        assert_int_equal(reply[0], '0' + i);
    }
    stage_close(&stage);
}

static void formats(struct message result, int code, const char *says)
{
    struct stage stage = {.roles = {honest()}, .count = 1};
    struct error error = {0};
    stage.roles[0].result = result;
    stage_open(&stage, false);
    struct fabric_remote_options options = options_of(&stage);
    int status = fabric_remote_format(&options, &error);
    if (status != code || strstr(error.text, says) == NULL)
        fail_msg("status %d, not %d, or not \"%s\": %s", status, code, says, error.text);
    stage_close(&stage);
}

static void test_formatting(void **state)
{
    const uint32_t busy = (uint32_t)BANYAN_EBUSY;
    /* It is formatted, but answers the list of memory nodes with something else. */
    formats((struct message){.kind = WIRE_RESULT}, BANYAN_EVERSION,
            "its list of memory nodes makes no sense");
    formats((struct message){.kind = WIRE_RESULT, .status = busy, .length = 5, .body = "sorry"}, BANYAN_EBUSY,
            "was not formatted: sorry");
    formats((struct message){.kind = WIRE_RESULT, .status = busy}, BANYAN_EBUSY, "was not formatted: in use");
    formats((struct message){.kind = WIRE_WELCOME}, BANYAN_EVERSION, "something that is no result");
    formats((struct message){0}, BANYAN_ENET, "closed the connection");
    struct fabric_remote_options none = {0};
    struct fabric *fabric;
    struct error error = {0};
    assert_int_equal(fabric_remote_format(&none, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "no memory node was named"));
    assert_int_equal(fabric_remote_open(&fabric, &none, &error), BANYAN_EINVAL);
}

/* Of a list that makes no sense the caller gets nothing. */
static void test_lists(void **state)
{
    static struct wire_cluster_list lie, list;
    struct stage stage = {.roles = {honest()}, .count = 1};
    struct error error = {0};
    lie = (struct wire_cluster_list){.cluster_id = 6, .count = WIRE_CLUSTER_NODES_MAX + 1};
    stage.roles[0].result =
        (struct message){.kind = WIRE_RESULT, .length = sizeof lie, .body = (const char *)&lie};
    stage_open(&stage, false);
    struct fabric_remote_options options = options_of(&stage);
    memset(&list, 0xff, sizeof list);
    assert_int_equal(fabric_remote_list(&options, &list, &error), BANYAN_EVERSION);
    assert_non_null(strstr(error.text, "its list of memory nodes makes no sense"));
    assert_int_equal(list.count, 0);
    stage_close(&stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greetings),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_impossible_memory),
        cmocka_unit_test(test_wrong_places),
        cmocka_unit_test(test_busy_ids),
        cmocka_unit_test(test_beats_of_an_opening),
        cmocka_unit_test(test_beats),
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_maps_of_data),
        cmocka_unit_test(test_maps_no_more),
        cmocka_unit_test(test_asking),
        cmocka_unit_test(test_asking_nobody),
        cmocka_unit_test(test_asking_the_empty),
        cmocka_unit_test(test_busy_ids_of_maps),
        cmocka_unit_test(test_closes_while_it_is_mended),
        cmocka_unit_test(test_formatting),
        cmocka_unit_test(test_lists),
    };
    log_set_level(getenv("TEST_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
