/* test_remote_nic.c - the compute node's side of memory nodes behind NICs, with queue pairs that do
 * what a test says (fake_queue.h) and memory nodes that say what they should not (liar.h): how such a fabric
 * is opened or refused, sleeping, waiting for room, and what becomes of lists when something breaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "base/thread.h"
#include "base/worker.h"
#include "fabric/remote.h"
#include "fabric/wire.h"
#include "fake_queue.h"
#include "liar.h"

#define MS      UINT64_C(1000000)
#define LIMIT   (UINT64_C(20000) * MS) /* much more than anything takes */
#define SEVENS  UINT64_C(0x7777777777777777)
#define FOREVER 60000000u /* us */

/* ---- a memory node behind a NIC, or one without ---- */

enum attach { GOOD, REFUSES, MUMBLES, TALKS, LONG, SHORT, POSITIVE, CLOSES, SILENT };

struct place {
    struct liar liar;
    struct wire_welcome welcome;
    enum attach attach;
    uint32_t busy;    /* control connections that are refused first; atomic */
    uint32_t control; /* the last control connection's descriptor + 1; atomic */
    uint32_t lists;   /* that came over the stream; atomic */
    uint32_t answers; /* ... that may be answered; atomic */
};

static bool say(int fd, enum wire_kind kind, int32_t status, uint64_t id, const void *body, uint32_t length)
{
    struct wire_header header = {.length = length, .kind = (uint8_t)kind, .status = status, .id = id};
    return liar_say(fd, &header, sizeof header) && (length == 0 || liar_say(fd, body, length));
}

static bool answer_attach(const struct place *place, int fd)
{
    static const char sentence[] = "no queue pairs left\n";
    static const uint8_t zeros[400];
    struct wire_nic nic;
    const struct wire_nic ours = {.queue = 8, .pool_key = 0x1111, .lock_key = 0x2222};
    if (!liar_take(fd, &nic, sizeof nic) || nic.queue != 7)
        return false;
    switch (place->attach) {
    case GOOD:
        return say(fd, WIRE_ATTACHED, 0, 0, &ours, sizeof ours);
    case REFUSES:
        return say(fd, WIRE_ATTACHED, BANYAN_ENOMEM, 0, sentence, sizeof sentence - 1);
    case MUMBLES:
        return say(fd, WIRE_ATTACHED, BANYAN_ENOMEM, 0, NULL, 0);
    case TALKS:
        return say(fd, WIRE_RESULT, 0, 0, &ours, sizeof ours);
    case LONG:
        return say(fd, WIRE_ATTACHED, BANYAN_ENOMEM, 0, zeros, sizeof zeros);
    case SHORT:
        return say(fd, WIRE_ATTACHED, 0, 0, &ours, sizeof ours - 8);
    case POSITIVE:
        return say(fd, WIRE_ATTACHED, 1, 0, sentence, sizeof sentence - 1);
    case SILENT:
        return true;
    case CLOSES:
        break;
    }
    return false;
}

/* One READ of 8 bytes, when the test lets it. */
static bool answer_list(struct place *place, int fd, const struct wire_header *asked)
{
    const struct {
        struct wire_header header;
        uint64_t word;
    } reply = {.header = {.length = 8, .kind = WIRE_REPLY, .count = 1, .id = asked->id}, .word = SEVENS};
    struct wire_command command;
    if (asked->length != sizeof command || !liar_take(fd, &command, sizeof command))
        return false;
    uint32_t number = __atomic_fetch_add(&place->lists, 1, __ATOMIC_ACQ_REL);
    while (atomic_load_acquire(&place->answers) <= number) /* acquire: as the test set it */
        task_sleep(MS / 10);
    return liar_say(fd, &reply, sizeof reply);
}

static bool answer(struct place *place, int fd, const struct wire_header *header)
{
    switch (header->kind) {
    case WIRE_HEARTBEAT:
        return liar_say(fd, header, sizeof *header);
    case WIRE_ATTACH:
        return answer_attach(place, fd);
    case WIRE_LIST:
        return answer_list(place, fd, header);
    default:
        return false;
    }
}

static bool busy(struct place *place, const struct wire_hello *hello)
{
    if (hello->role != WIRE_CONTROL || atomic_load_acquire(&place->busy) == 0) /* acquire: the test's */
        return false;
    __atomic_sub_fetch(&place->busy, 1, __ATOMIC_ACQ_REL);
    return true;
}

static void talk(struct liar *liar, int fd)
{
    struct place *place = liar->context;
    const struct wire_greeting greeting = {.magic = WIRE_MAGIC, .version = WIRE_VERSION};
    struct wire_hello hello;
    struct wire_header header;
    const int32_t refusal = BANYAN_EBUSY;
    if (!say(fd, WIRE_GREETING, 0, 0, &greeting, sizeof greeting) || !liar_take(fd, &header, sizeof header) ||
        !liar_take(fd, &hello, sizeof hello))
        return;
    if (busy(place, &hello)) {
        say(fd, WIRE_REFUSE, 0, 0, &refusal, sizeof refusal);
        return;
    }
    if (hello.role == WIRE_CONTROL)
        atomic_store_release(&place->control, (uint32_t)fd + 1); /* release: it is open */
    struct wire_welcome welcome = place->welcome;
    welcome.compute_id = hello.compute_id != 0 ? hello.compute_id : welcome.compute_id;
    bool on = say(fd, WIRE_WELCOME, 0, 0, &welcome, sizeof welcome);
    while (on && liar_take(fd, &header, sizeof header))
        on = answer(place, fd, &header);
}

static struct place places[2];
static struct net_address addresses[2];
static struct fabric *fabric;
static struct fabric_endpoint *endpoint;
static struct error error;

static void place_start(uint16_t number, uint16_t of, bool nic)
{
    struct place *place = &places[number];
    const struct net_address any = {.kind = NET_TCP, .host = "127.0.0.1"};
    *place = (struct place){.welcome = {.lease_ms = 60000,
                                        .compute_id = 1,
                                        .node = number,
                                        .node_count = of,
                                        .lock_width = 2,
                                        .nic = nic,
                                        .nic_mtu = 1024,
                                        .nic_promises = WIRE_NIC_RELEASE_BY_WRITE | WIRE_NIC_MASKED_CAS,
                                        .group_key = 5,
                                        .cluster_id = 6,
                                        .instance = 7,
                                        .pool_bytes = 65536,
                                        .lock_bytes = 4096}};
    liar_start(&place->liar, &any, talk, place);
    addresses[number] = place->liar.address;
    addresses[number].rdma = nic;
}

/* Ends the group: as a memory node that is killed. */
static void place_cut(struct place *place)
{
    shutdown((int)atomic_load_acquire(&place->control) - 1, SHUT_RDWR); /* acquire: as set when it opened */
}

static int open_fabric(uint16_t count, uint32_t spin_us, uint32_t timeout_ms)
{
    const struct fabric_remote_options options = {
        .nodes = addresses, .count = count, .timeout_ms = timeout_ms, .nic = {.spin_us = spin_us}};
    return fabric_remote_open(&fabric, &options, &error);
}

static void must_open(uint16_t count, uint32_t spin_us)
{
    if (open_fabric(count, spin_us, 20000))
        fail_msg("%s", error.text);
}

static void open_endpoint(void)
{
    endpoint = fabric_endpoint_open(fabric, &error);
    assert_non_null(endpoint);
}

static int setup(void **state)
{
    (void)state;
    fake_queues_start();
    fabric = NULL;
    endpoint = NULL;
    error = (struct error){0};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    if (endpoint != NULL)
        fabric_endpoint_close(endpoint);
    fabric_close(fabric);
    for (unsigned i = 0; i < 2; i++)
        if (places[i].liar.talk != NULL)
            liar_stop(&places[i].liar);
    memset(places, 0, sizeof places);
    fake_queues_end();
    return 0;
}

/* ---- one list ---- */

struct request {
    uint64_t word;
    struct fabric_command commands[16];
    struct fabric_list list;
};

/* READs of one word. */
static int ask(uint16_t node, unsigned count, uint64_t incarnation)
{
    struct request request = {.list = {.node = node, .count = (uint16_t)count, .incarnation = incarnation}};
    struct fabric_list *lists[] = {&request.list};
    request.list.commands = request.commands;
    for (unsigned i = 0; i < count; i++)
        request.commands[i] = (struct fabric_command){.operation = FABRIC_READ,
                                                      .length = 8,
                                                      .address = gaddr_make(node, 4096),
                                                      .read.buffer = &request.word};
    int status = fabric_execute(endpoint, lists, 1, NULL);
    if (!status && request.word != SEVENS)
        abort();
    return status;
}

static void ask_until_mended(void)
{
    uint64_t deadline = task_now() + LIMIT;
    while (ask(0, 1, 0)) {
        if (task_now() >= deadline)
            abort();
        task_sleep(MS);
    }
}

static void wait_for(uint32_t *counter, uint32_t least)
{
    uint64_t deadline = task_now() + LIMIT;
    while (atomic_load_acquire(counter) < least) { /* acquire: what came before it */
        if (task_now() >= deadline)
            abort();
        task_sleep(MS / 10);
    }
}

static void hold(bool held)
{
    atomic_store_release(&fake_queues.held, (uint32_t)held); /* release: before the next post */
}

/* ---- opening ---- */

/* No connection uses it any more, so it may be changed. */
static void place_rest(struct place *place)
{
    uint64_t deadline = task_now() + LIMIT;
    while (atomic_load_acquire(&place->liar.talks) > 0) { /* acquire: what they read */
        assert_true(task_now() < deadline);
        task_sleep(MS / 10);
    }
}

static void expect_refused(int status, const char *part)
{
    char text[NET_TEXT_MAX];
    assert_int_equal(open_fabric(1, 0, 20000), status);
    assert_null(fabric);
    if (strstr(error.text, part) == NULL ||
        strstr(error.text, net_address_format(&addresses[0], text)) == NULL)
        fail_msg("%s", error.text);
    assert_int_equal(fake_queues.queues, 0);
    assert_int_equal(fake_queues.devices, 0);
    error = (struct error){0};
    place_rest(&places[0]);
}

static void test_attach_refused(void **state)
{
    static const struct {
        enum attach attach;
        int status;
        const char *part;
    } cases[] = {{REFUSES, BANYAN_ENOMEM, "its NIC: no queue pairs left?"},
                 {MUMBLES, BANYAN_ENOMEM, "its NIC: "},
                 {TALKS, BANYAN_EVERSION, "with something else"},
                 {LONG, BANYAN_EVERSION, "with something else"},
                 {SHORT, BANYAN_EVERSION, "with something else"},
                 {POSITIVE, BANYAN_EVERSION, "with something else"},
                 {CLOSES, BANYAN_ENET, "it closed the connection"}};
    (void)state;
    place_start(0, 1, true);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        places[0].attach = cases[i].attach;
        expect_refused(cases[i].status, cases[i].part);
    }
}

static void test_silent(void **state)
{
    (void)state;
    place_start(0, 1, true);
    places[0].attach = SILENT;
    assert_int_equal(open_fabric(1, 0, 100), BANYAN_ETIMEOUT);
    assert_non_null(strstr(error.text, "it does not answer in time"));
    place_rest(&places[0]);
    places[0].attach = GOOD;
    hold(true); /* the stream works, the NIC does not */
    /* A busy machine may take longer than that for what comes before. */
    int status = BANYAN_ETIMEOUT;
    for (uint32_t limit_ms = 100; status == BANYAN_ETIMEOUT && limit_ms < 60000; limit_ms *= 4) {
        error = (struct error){0};
        status = open_fabric(1, 0, limit_ms);
    }
    assert_int_equal(status, BANYAN_ENET);
    assert_non_null(strstr(error.text, "its NIC does not answer in time"));
}

static void test_unfit(void **state)
{
    (void)state;
    place_start(0, 1, true);
    places[0].welcome.nic = 0;
    expect_refused(BANYAN_EVERSION, "does not say that it serves RDMA");
    places[0].welcome.nic = 1;
    places[0].welcome.nic_mtu = 255;
    expect_refused(BANYAN_EVERSION, "impossible NIC: an MTU of 255 bytes");
    places[0].welcome.nic_mtu = 256;
    places[0].welcome.nic_promises = WIRE_NIC_RELEASE_BY_WRITE;
    expect_refused(BANYAN_EVERSION, "lock words of 2, promises 0x1");
    places[0].welcome.nic_promises = WIRE_NIC_MASKED_CAS;
    fake_queues.masked_cas = false;
    expect_refused(BANYAN_ENOTSUP, "--lock-width 8");
    fake_queues.masked_cas = true;
    fake_queues.create_status = BANYAN_ENOMEM;
    expect_refused(BANYAN_ENOMEM, "no queue pair");
    fake_queues.create_status = BANYAN_OK;
    fake_queues.connect_fails = true;
    expect_refused(BANYAN_EINVAL, "cannot be");
    fake_queues.connect_fails = false;
    fake_queues.broken = "READ of 8 bytes at 0:0x8: retries exceeded";
    expect_refused(BANYAN_ENET, "READ of 8 bytes at 0:0x8: retries exceeded");
    fake_queues.broken = NULL;
    places[0].welcome.pool_bytes = 8; /* not even a header */
    expect_refused(BANYAN_EADDRESS, "too short for a header");
}

/* A compute id that is in use there: the device stays, and there is one of it. */
static void test_busy(void **state)
{
    (void)state;
    place_start(0, 2, true);
    place_start(1, 2, true);
    places[1].busy = 3;
    must_open(2, 0);
    assert_int_equal(places[1].busy, 0);
    assert_int_equal(fake_queues.devices, 1);
    assert_int_equal(fake_queues.queues, 0); /* the first look's are gone */
    const struct fabric_capabilities *capabilities = fabric_capabilities(fabric);
    assert_string_equal(capabilities->backend, "rdma");
    assert_int_equal(capabilities->atomic_write, 1024);
    assert_true(capabilities->release_by_write == false && capabilities->masked_cas);
}

/* ---- on a plain thread ---- */

static void test_results(void **state)
{
    uint64_t word = 0;
    struct fabric_command commands[] = {
        {.operation = FABRIC_READ, .length = 8, .address = gaddr_make(0, 8), .read.buffer = &word},
        {.operation = FABRIC_FAA, .address = gaddr_make(0, 65536), .faa = {.add = 1, .old = 1}}};
    struct fabric_list list = {.count = 2, .commands = commands}, *lists[] = {&list};
    (void)state;
    place_start(0, 1, true);
    must_open(1, 0);
    open_endpoint();
    uint32_t before = fake_queues.posts;
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), BANYAN_EADDRESS); /* in part */
    assert_int_equal(word, SEVENS);
    assert_int_equal(commands[1].faa.old, 1);
    assert_int_equal(fake_queues.posts, before + 1);
    commands[0].address = gaddr_make(0, 65536); /* the first is bad: nothing is posted */
    assert_int_equal(fabric_execute(endpoint, lists, 1, NULL), BANYAN_EADDRESS);
    assert_int_equal(fake_queues.posts, before + 1);
    assert_int_equal(ask(0, 16, 0), BANYAN_OK);
}

struct helper {
    uint32_t arms, posts; /* waits for one more than so many */
    void (*function)(void);
};
static void helper_main(void *argument)
{
    const struct helper *helper = argument;
    wait_for(&fake_queues.arms, helper->arms + 1);
    wait_for(&fake_queues.posts, helper->posts + 1);
    helper->function();
}

/* Starts a thread that does this when a list was posted after now, and, if `asleep`, its queue was armed. */
static struct thread *when_posted(struct helper *helper, void (*function)(void), bool asleep)
{
    struct thread *thread;
    *helper = (struct helper){.arms = fake_queues.arms, .posts = fake_queues.posts, .function = function};
    if (!asleep)
        helper->arms = UINT32_MAX; /* + 1 is 0 */
    assert_int_equal(thread_start(&thread, helper_main, helper, &error), BANYAN_OK);
    return thread;
}

static void cut_first(void)
{
    place_cut(&places[0]);
}
static void break_all(void)
{
    fake_queues_break("READ of 8 bytes at 0:0x1000: remote access error");
}

static void test_plain_sleep(void **state)
{
    struct helper helper;
    (void)state;
    place_start(0, 1, true);
    must_open(1, 1);
    open_endpoint();
    hold(true);
    for (unsigned i = 0; i < 20; i++) {
        struct thread *thread = when_posted(&helper, fake_queues_finish, true);
        assert_int_equal(ask(0, 1, 0), BANYAN_OK);
        thread_join(thread);
    }
}

/* Whatever ends the connection ends the list, asleep or not; the message is kept; all is mended. */
static void lose_plain(void (*how)(void), bool asleep, const char *trouble)
{
    struct helper helper;
    char text[256];
    place_start(0, 1, true);
    must_open(1, asleep ? 1 : FOREVER);
    open_endpoint();
    uint64_t incarnation = fabric_incarnation(fabric), begin = task_now();
    hold(true);
    struct thread *thread = when_posted(&helper, how, asleep);
    assert_int_equal(ask(0, 1, incarnation), BANYAN_ENET);
    assert_true(task_now() - begin < LIMIT);
    thread_join(thread);
    assert_int_equal(fabric_incarnation(fabric), incarnation + 1);
    fabric_trouble(fabric, 0, text, sizeof text);
    if (text[0] != 0 && trouble != NULL && strstr(text, trouble) == NULL) /* "": mended already */
        fail_msg("%s", text);
    hold(false);
    ask_until_mended();
    uint32_t posts = fake_queues.posts;
    assert_int_equal(ask(0, 1, incarnation), BANYAN_EFENCED); /* nothing reaches two groups */
    assert_int_equal(fake_queues.posts, posts);
}
static void test_plain_cut_asleep(void **state)
{
    (void)state;
    lose_plain(cut_first, true, NULL);
}
static void test_plain_cut_awake(void **state)
{
    (void)state;
    lose_plain(cut_first, false, NULL);
}
static void test_plain_broken_asleep(void **state)
{
    (void)state;
    lose_plain(break_all, true, "READ of 8 bytes at 0:0x1000");
}
static void test_plain_broken_awake(void **state)
{
    (void)state;
    lose_plain(break_all, false, "READ of 8 bytes at 0:0x1000");
}

/* Broken while nothing is under way: the next list tells, and all is mended. */
static void test_broken_idle(void **state)
{
    (void)state;
    place_start(0, 1, true);
    must_open(1, 0);
    open_endpoint();
    uint64_t incarnation = fabric_incarnation(fabric);
    fake_queues_break("it was ended from outside");
    assert_int_equal(ask(0, 1, 0), BANYAN_ENET);
    assert_int_equal(fabric_incarnation(fabric), incarnation + 1);
    ask_until_mended();
}

/* ---- with another memory node, over TCP ---- */

static void tcp_came(void *argument)
{
    (void)argument;
    wait_for(&places[1].lists, 1);
    fake_queues_finish();
    atomic_store_release(&places[1].answers, 1u); /* release: for the liar */
}

/* Lists of one execute travel together: the NIC's is done only after the other has arrived. */
static void execute_mixed(void *argument)
{
    (void)argument;
    uint64_t words[2] = {0};
    struct fabric_command commands[2];
    struct fabric_list lists[2], *both[] = {&lists[0], &lists[1]};
    for (uint16_t i = 0; i < 2; i++) {
        commands[i] = (struct fabric_command){
            .operation = FABRIC_READ, .length = 8, .address = gaddr_make(i, 4096), .read.buffer = &words[i]};
        lists[i] = (struct fabric_list){.node = i, .count = 1, .commands = &commands[i]};
    }
    if (fabric_execute(endpoint, both, 2, NULL) || words[0] != SEVENS || words[1] != SEVENS)
        abort();
}

static void run_mixed(bool worker)
{
    struct thread *thread;
    place_start(0, 2, true);
    place_start(1, 2, false);
    must_open(2, FOREVER);
    assert_string_equal(fabric_capabilities(fabric)->backend, "mixed");
    open_endpoint();
    hold(true);
    uint64_t begin = task_now();
    assert_int_equal(thread_start(&thread, tcp_came, NULL, &error), BANYAN_OK);
    if (worker) {
        struct worker *here = worker_create();
        assert_int_equal(worker_spawn(here, execute_mixed, NULL), BANYAN_OK);
        worker_run(here);
        worker_destroy(here);
    } else {
        execute_mixed(NULL);
    }
    assert_true(task_now() - begin < LIMIT);
    thread_join(thread);
}
static void test_mixed_plain(void **state)
{
    (void)state;
    run_mixed(false);
}
static void test_mixed_worker(void **state)
{
    (void)state;
    run_mixed(true);
}

/* ---- on a worker ---- */

struct client {
    unsigned count;  /* commands of its lists */
    unsigned rounds; /* at most */
    uint64_t incarnation;
    bool *until; /* set by another: the end */
    bool finished;
    int status; /* the first that is not 0 */
};

static void client_main(void *argument)
{
    struct client *client = argument;
    for (unsigned i = 0; i < client->rounds && (client->until == NULL || !*client->until); i++) {
        int status = ask(0, client->count, client->incarnation);
        if (!client->status)
            client->status = status;
    }
    client->finished = true;
}

static void run_clients(struct client *clients, unsigned count)
{
    struct worker *worker = worker_create();
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(worker_spawn(worker, client_main, &clients[i]), BANYAN_OK);
    worker_run(worker);
    worker_destroy(worker);
    for (unsigned i = 0; i < count; i++)
        assert_true(clients[i].finished);
}

/* A worker that has slept polls again for the next list, as long as for the first. */
#define SPIN_US 20000u
static uint64_t second_posted;
static void sleep_twice(void *argument)
{
    (void)argument;
    if (ask(0, 1, 0))
        abort();
    second_posted = task_now();
    if (ask(0, 1, 0))
        abort();
}
static uint64_t armed_twice[2];
static void finish_twice(void *argument)
{
    uint32_t arms = *(uint32_t *)argument;
    for (uint32_t i = 0; i < 2; i++) {
        wait_for(&fake_queues.arms, arms + 1 + i);
        armed_twice[i] = atomic_load_acquire(&fake_queues.armed_at); /* acquire: of this arm */
        fake_queues_finish();
    }
}
static void test_worker_sleeps_and_spins(void **state)
{
    struct thread *thread;
    (void)state;
    place_start(0, 1, true);
    must_open(1, SPIN_US);
    open_endpoint();
    struct worker *worker = worker_create();
    uint32_t arms = fake_queues.arms;
    hold(true);
    assert_int_equal(thread_start(&thread, finish_twice, &arms, &error), BANYAN_OK);
    assert_int_equal(worker_spawn(worker, sleep_twice, NULL), BANYAN_OK);
    worker_run(worker);
    thread_join(thread);
    assert_int_equal(fake_queues.arms, arms + 2);
    assert_true(armed_twice[1] >= second_posted + SPIN_US * UINT64_C(1000));
    worker_destroy(worker);
}

/* What is done between the last look and the arm is not told by the descriptor; the arm is good for the next
 * list. */
static void race(bool worker)
{
    struct helper helper;
    for (unsigned i = 0; i < 2; i++) {
        struct client client = {.count = 1, .rounds = 1};
        struct thread *thread = NULL;
        atomic_store_release(&fake_queues.races, i == 0); /* release: before the next arm */
        if (i == 1)
            thread = when_posted(&helper, fake_queues_finish, false);
        uint32_t arms = fake_queues.arms;
        if (worker)
            run_clients(&client, 1);
        else
            client_main(&client);
        thread_join(thread);
        assert_int_equal(client.status, BANYAN_OK);
        assert_int_equal(fake_queues.arms, arms + 1 - i);
    }
}
static void test_race_with_arm(void **state)
{
    (void)state;
    uint64_t begin = task_now();
    place_start(0, 1, true);
    must_open(1, 1);
    hold(true);
    for (unsigned i = 0; i < 2; i++) {
        open_endpoint();
        race(i == 0);
        fabric_endpoint_close(endpoint);
        endpoint = NULL;
    }
    assert_true(task_now() - begin < LIMIT);
}

/* More lists than there is room for: all are done. */
static void test_room(void **state)
{
    struct client clients[20] = {0};
    (void)state;
    fake_queues.room = 16;
    place_start(0, 1, true);
    must_open(1, 0);
    open_endpoint();
    for (unsigned i = 0; i < 20; i++)
        clients[i] = (struct client){.count = 1 + i % 16, .rounds = 200};
    run_clients(clients, 20);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(clients[i].status, BANYAN_OK);
}

/* Short lists without end do not keep a long one out. */
static void test_room_for_the_long(void **state)
{
    struct client clients[4] = {0};
    (void)state;
    fake_queues.room = 16;
    place_start(0, 1, true);
    must_open(1, 0);
    open_endpoint();
    for (unsigned i = 0; i < 3; i++)
        clients[i] = (struct client){.count = 1, .rounds = 10000, .until = &clients[3].finished};
    clients[3] = (struct client){.count = 16, .rounds = 1};
    uint32_t before = fake_queues.posts;
    run_clients(clients, 4);
    assert_in_range(fake_queues.posts - before, 4, 100);
}

/* The connection ends while some lists are under way and others wait for room. */
static void lose_on_worker(void (*how)(void), bool asleep)
{
    struct client clients[20] = {0};
    struct helper helper;
    fake_queues.room = 16;
    place_start(0, 1, true);
    must_open(1, asleep ? 1 : FOREVER);
    open_endpoint();
    uint64_t incarnation = fabric_incarnation(fabric);
    for (unsigned i = 0; i < 20; i++)
        clients[i] = (struct client){.count = 4, .rounds = 1, .incarnation = incarnation};
    hold(true);
    struct thread *thread = when_posted(&helper, how, asleep);
    run_clients(clients, 20);
    thread_join(thread);
    for (unsigned i = 0; i < 20; i++)
        if (clients[i].status != BANYAN_ENET && (i == 0 || clients[i].status != BANYAN_EFENCED))
            fail_msg("client %u: %d", i, clients[i].status);
    assert_int_equal(fabric_incarnation(fabric), incarnation + 1);
    hold(false);
    ask_until_mended();
}
static void test_worker_cut_asleep(void **state)
{
    (void)state;
    lose_on_worker(cut_first, true);
}
static void test_worker_cut_awake(void **state)
{
    (void)state;
    lose_on_worker(cut_first, false);
}
static void test_worker_broken_asleep(void **state)
{
    (void)state;
    lose_on_worker(break_all, true);
}
static void test_worker_broken_awake(void **state)
{
    (void)state;
    lose_on_worker(break_all, false);
}

/* An endpoint goes from a plain thread to a worker to another, and back; each of them sleeps. */
static void test_owners(void **state)
{
    struct helper helper;
    (void)state;
    place_start(0, 1, true);
    must_open(1, 1);
    open_endpoint();
    hold(true);
    for (unsigned i = 0; i < 4; i++) {
        struct thread *thread = when_posted(&helper, fake_queues_finish, true);
        struct client client = {.count = 1, .rounds = 1};
        if (i % 3 == 0)
            client_main(&client);
        else
            run_clients(&client, 1);
        thread_join(thread);
        assert_int_equal(client.status, BANYAN_OK);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_attach_refused),
        TEST(test_silent),
        TEST(test_unfit),
        TEST(test_busy),
        TEST(test_results),
        TEST(test_plain_sleep),
        TEST(test_plain_cut_asleep),
        TEST(test_plain_cut_awake),
        TEST(test_plain_broken_asleep),
        TEST(test_plain_broken_awake),
        TEST(test_broken_idle),
        TEST(test_mixed_plain),
        TEST(test_mixed_worker),
        TEST(test_worker_sleeps_and_spins),
        TEST(test_race_with_arm),
        TEST(test_room),
        TEST(test_room_for_the_long),
        TEST(test_worker_cut_asleep),
        TEST(test_worker_cut_awake),
        TEST(test_worker_broken_asleep),
        TEST(test_worker_broken_awake),
        TEST(test_owners),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
