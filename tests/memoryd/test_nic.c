/*
 * test_nic.c - a memory node behind a NIC: which connections get a queue pair, what its keys allow, that
 * nothing of a fenced compute node arrives after its locks were freed (G6), and that the NIC itself frees
 * them. Runs in a machine with RDMA (scripts/test-rdma): BANYAN_RDMA_ADDRESS names the NIC's address.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "nic_client.h"
#include "nic_faults.h"
#include "memoryd/nic_state.h"
#include "memoryd/group_state.h"

#define OFFSET      UINT64_C(1048576)
#define LOCK(word)  (GADDR_LOCK_REGION + UINT64_C(8) * (word))
#define TABLE(word) (MEMORY_LOCK_TABLE_OFFSET + UINT64_C(8) * (word))
#define LONG_LEASE  60000u /* ms: does not run out in a test */
#define SHORT_LEASE 5000u  /* ms: runs out in a test, and not before what the test does before */

static void open_site(struct site *site)
{
    static const struct site_options options = {.rdma = true, .shared = true};
    assert_int_equal(site_open(site, &options), BANYAN_OK);
    assert_non_null(memoryd_nic(site->daemon));
}

static uint64_t *lock_word(struct site *site, unsigned word)
{
    return (uint64_t *)(void *)memory_node_target(site->node)->locks + word;
}

static uint64_t lock_now(struct site *site, unsigned word)
{
    return atomic_load_acquire(lock_word(site, word)); /* what was done before it was freed is seen */
}

static void tick(uint64_t start, const char *what)
{
    if (task_now() - start > CLIENT_LIMIT)
        fail_msg("waited too long for %s", what);
    task_sleep(200000);
}

static void wait_lock(struct site *site, unsigned word, uint64_t value)
{
    for (uint64_t start = task_now(); lock_now(site, word) != value;)
        tick(start, "a lock");
}

static void take_lock(struct peer *peer, uint64_t offset)
{
    uint64_t old = 1;
    assert_int_equal(raw_cas(&peer->raw, offset, 0, peer->control.welcome.compute_id, &old), IBV_WC_SUCCESS);
    assert_int_equal(old, 0);
}

/* ---- what a queue pair allows ---- */

static void test_commands(void **state)
{
    struct site site;
    struct peer peer;
    uint64_t word = 0;
    open_site(&site);
    peer_open(&peer, &site, 7, LONG_LEASE);
    const struct wire_welcome *welcome = &peer.data.welcome;
    assert_int_equal(welcome->nic, 1);
    assert_int_equal(peer.control.welcome.nic, 1);
    assert_int_equal(welcome->lock_width, 8); /* of a NIC without masked compare-and-swap */
    assert_int_equal(welcome->nic_promises, 0);
    assert_int_equal(welcome->nic_mtu, verbs_mtu_bytes(peer.raw.device->mtu));
    assert_int_equal(welcome->mapped, 0);
    struct memory_status_reply status = site_status(&site);
    assert_int_equal(status.nic, 1);
    assert_int_equal(status.nic_queues, 1);

    assert_int_equal(raw_write(&peer.raw, OFFSET, 77), IBV_WC_SUCCESS);
    assert_int_equal(site_word(&site, OFFSET), 77);
    assert_int_equal(raw_cas(&peer.raw, OFFSET, 77, 78, &word), IBV_WC_SUCCESS);
    assert_int_equal(word, 77);
    assert_int_equal(raw_read(&peer.raw, OFFSET, &word), IBV_WC_SUCCESS);
    assert_int_equal(word, 78);
    assert_int_equal(raw_read(&peer.raw, SITE_POOL - 8, &word), IBV_WC_SUCCESS);
    assert_int_equal(raw_cas(&peer.raw, LOCK(5), 0, 9, &word), IBV_WC_SUCCESS);
    assert_int_equal(lock_now(&site, 5), 9);
    assert_int_equal(raw_cas(&peer.raw, GADDR_LOCK_REGION + SITE_LOCKS - 8, 0, 9, NULL), IBV_WC_SUCCESS);
    assert_int_equal(raw_read(&peer.raw, SITE_POOL, &word), IBV_WC_REM_ACCESS_ERR); /* behind the end */
    peer_goodbye(&peer);
    site_wait_nodes(&site, 0);
    assert_int_equal(site_status(&site).nic_queues, 0);
    site_close(&site);
}

/* Calls stay on the stream. */
static void test_calls(void **state)
{
    struct site site;
    struct peer peer;
    struct memory_allocate_request request = {.kind = MEMORY_ALLOCATE, .block_bytes = 1024, .want = 1};
    struct memory_allocate_reply reply;
    size_t length;
    open_site(&site);
    peer_open(&peer, &site, 7, LONG_LEASE);
    assert_int_equal(client_call(&peer.data, &request, sizeof request, &reply, sizeof reply, &length), 0);
    assert_int_equal(raw_write(&peer.raw, gaddr_offset(reply.blocks[0]), 5), IBV_WC_SUCCESS);
    assert_int_equal(site_word(&site, gaddr_offset(reply.blocks[0])), 5);
    client_heartbeat(&peer.control);
    peer_goodbye(&peer);
    site_close(&site);
}

/* ---- refusals ---- */

static int say(const struct site *site, uint32_t role, uint8_t nic, char sentence[256])
{
    struct client client;
    client_connect(&client, &site->tcp);
    struct wire_hello hello = client_hello(&client, role, NULL);
    hello.nic = nic;
    hello.instance = 5;
    int status = client_say_hello(&client, &hello, sentence);
    if (!status && role != WIRE_CONTROL)
        assert_int_equal(client.welcome.nic, 0);
    client_close(&client);
    return status;
}

static void test_roles(void **state)
{
    struct site site;
    char sentence[256];
    open_site(&site);
    assert_int_equal(say(&site, WIRE_CONTROL, 0, sentence), BANYAN_ENOTSUP);
    assert_non_null(strstr(sentence, "rdma://"));
    assert_int_equal(say(&site, WIRE_DATA, 0, sentence), BANYAN_ENOTSUP);
    assert_int_equal(say(&site, WIRE_CONTROL, 2, sentence), BANYAN_ENOTSUP);
    assert_int_equal(say(&site, WIRE_MONITOR, 0, sentence), BANYAN_OK);
    assert_int_equal(say(&site, WIRE_FORMATTER, 0, sentence), BANYAN_OK);
    site_close(&site);
}

/* Closes the connection, and fences: the other connection of the group ends too. */
static void expect_end(struct site *site, struct peer *peer, struct client *culprit)
{
    assert_true(client_closed(culprit));
    assert_true(client_closed(culprit == &peer->data ? &peer->control : &peer->data));
    site_wait_nodes(site, 0);
    assert_int_equal(site_status(site).nic_queues, 0);
    peer_close(peer);
}

static void test_wrong_messages(void **state)
{
    struct site site;
    struct peer peer;
    struct script script = {0};
    open_site(&site);
    peer_open(&peer, &site, 7, LONG_LEASE);
    script_read(&script, site_address(OFFSET), 8);
    script_send(&script, &peer.data, 1); /* lists are for the NIC */
    expect_end(&site, &peer, &peer.data);
    peer_open(&peer, &site, 7, LONG_LEASE);
    client_message(&peer.data, WIRE_ATTACH, 2, &peer.raw.ours, sizeof peer.raw.ours); /* a second one */
    expect_end(&site, &peer, &peer.data);
    peer_open(&peer, &site, 7, LONG_LEASE);
    client_message(&peer.control, WIRE_ATTACH, 2, &peer.raw.ours, sizeof peer.raw.ours);
    expect_end(&site, &peer, &peer.control);
    peer_open(&peer, &site, 7, LONG_LEASE);
    client_message(&peer.data, WIRE_ATTACHED, 2, &peer.raw.ours, sizeof peer.raw.ours);
    expect_end(&site, &peer, &peer.data);
    site_close(&site);
}

static void test_short_end(void **state)
{
    struct site site;
    struct client control, data;
    struct wire_nic end = {0};
    open_site(&site);
    for (unsigned i = 0; i < 3; i++) {
        static const size_t lengths[] = {0, sizeof end - 1, sizeof end + 1};
        uint8_t bytes[sizeof end + 1] = {0};
        client_control(&control, &site.tcp, 7, LONG_LEASE);
        client_data(&data, &site.tcp, &control);
        client_message(&data, WIRE_ATTACH, 2, bytes, lengths[i]);
        assert_true(client_closed(&data));
        client_close(&data);
        client_close(&control);
        site_wait_nodes(&site, 0);
    }
    site_close(&site);
}

/* An ATTACH with every field spoiled in turn is answered by a sentence, or by a queue pair of no use; memory
 * node and connection live on. */
static void test_nonsense(void **state)
{
    struct site site;
    struct client control, data;
    struct raw raw;
    struct wire_nic answer;
    char sentence[256];
    unsigned refused = 0;
    open_site(&site);
    raw_open(&raw);
    client_control(&control, &site.tcp, 7, LONG_LEASE);
    for (unsigned at = 0; at < offsetof(struct wire_nic, pool_key); at++) {
        static const uint8_t values[] = {0x00, 0xff, 0x80};
        struct wire_nic end = raw.ours;
        ((uint8_t *)&end)[at] = values[at % 3] != ((uint8_t *)&end)[at] ? values[at % 3] : 0x41;
        client_data(&data, &site.tcp, &control);
        refused += raw_ask(&data, &end, &answer, sentence) != 0;
        client_goodbye(&data);
    }
    assert_in_range(refused, 5, 32);
    memset(&answer, 0xff, sizeof answer);
    client_data(&data, &site.tcp, &control);
    assert_int_equal(raw_ask(&data, &answer, &answer, sentence), BANYAN_EINVAL);
    client_goodbye(&data);
    client_data(&data, &site.tcp, &control);
    assert_int_equal(raw_attach(&raw, &data, sentence), BANYAN_OK);
    assert_int_equal(raw_write(&raw, OFFSET, 3), IBV_WC_SUCCESS);
    assert_int_equal(site_status(&site).nic_queues, 1);
    client_goodbye(&data);
    client_goodbye(&control);
    raw_close(&raw);
    site_close(&site);
}

static void test_no_more_queues(void **state)
{
    struct site site;
    struct peer first, second;
    char sentence[256];
    nic_faults.queues = 3; /* two are the memory node's own */
    open_site(&site);
    peer_open(&first, &site, 7, LONG_LEASE);
    client_control(&second.control, &site.tcp, 8, LONG_LEASE);
    client_data(&second.data, &site.tcp, &second.control);
    raw_open(&second.raw);
    assert_int_equal(raw_attach(&second.raw, &second.data, sentence), BANYAN_EBUSY);
    assert_non_null(strstr(sentence, "it has 3"));
    peer_goodbye(&first);
    site_wait_nodes(&site, 1);
    client_goodbye(&second.data);
    client_data(&second.data, &site.tcp, &second.control);
    assert_int_equal(raw_attach(&second.raw, &second.data, sentence), BANYAN_OK);
    peer_goodbye(&second);
    site_close(&site);
    nic_faults = (struct nic_faults){0};
}

/* ---- fencing ---- */

/* Writes ascending numbers until the NIC says that it cannot. */
struct writer {
    struct raw *raw;
    pthread_t thread;
    uint64_t begun; /* the last number, atomic */
    enum ibv_wc_status end;
};

static void *write_on(void *argument)
{
    struct writer *writer = argument;
    do
        atomic_store_release(&writer->begun, writer->begun + 1); /* the others look how far it is */
    while ((writer->end = raw_write(writer->raw, OFFSET, writer->begun)) == IBV_WC_SUCCESS);
    return NULL;
}

/* The lock is freed, and from then on nothing of its owner arrives, however hard it tries. */
static void expect_fenced(struct site *site, struct peer *peer, bool silence)
{
    struct writer writer = {.raw = &peer->raw};
    uint64_t fenced = site_status(site).fenced_total;
    take_lock(peer, LOCK(11));
    assert_int_equal(pthread_create(&writer.thread, NULL, write_on, &writer), 0);
    for (uint64_t start = task_now(); site_word(site, OFFSET) < 20;)
        tick(start, "writes");
    if (!silence)
        client_close(&peer->data);
    wait_lock(site, 11, 0);
    uint64_t then = site_word(site, OFFSET), begun = atomic_load_acquire(&writer.begun);
    assert_int_equal(pthread_join(writer.thread, NULL), 0);
    assert_int_not_equal(writer.end, IBV_WC_SUCCESS);
    assert_true(writer.begun <= begun + 1); /* what it had begun at most */
    assert_int_equal(site_word(site, OFFSET), then);
    assert_int_not_equal(raw_cas(&peer->raw, LOCK(11), 0, 1, NULL), IBV_WC_SUCCESS);
    assert_int_equal(lock_now(site, 11), 0);
    assert_int_equal(site_status(site).fenced_total, fenced + 1);
    assert_int_equal(site_status(site).nic_queues, 0);
}

static void test_silence(void **state)
{
    struct site site;
    struct peer peer;
    open_site(&site);
    peer_open(&peer, &site, 7, SHORT_LEASE);
    expect_fenced(&site, &peer, true);
    peer_close(&peer);
    site_close(&site);
}

static void test_loss(void **state)
{
    struct site site;
    struct peer peer;
    open_site(&site);
    peer_open(&peer, &site, 7, LONG_LEASE);
    expect_fenced(&site, &peer, false);
    peer_close(&peer);
    site_close(&site);
}

/* Keys of one queue pair are of no use on another, alive or not. */
static void test_keys(void **state)
{
    struct site site;
    struct peer one, other;
    uint64_t word;
    open_site(&site);
    assert_non_null(strstr(memoryd_nic(site.daemon), "keys bound to queue pairs"));
    peer_open(&one, &site, 7, LONG_LEASE);
    peer_open(&other, &site, 8, LONG_LEASE);
    struct wire_nic keys = one.raw.theirs;
    assert_int_not_equal(keys.pool_key, other.raw.theirs.pool_key);
    assert_int_not_equal(keys.lock_key, other.raw.theirs.lock_key);
    assert_int_equal(raw_read(&one.raw, OFFSET, &word), IBV_WC_SUCCESS);
    other.raw.theirs.pool_key = keys.pool_key;
    assert_int_equal(raw_read(&other.raw, OFFSET, &word), IBV_WC_REM_ACCESS_ERR); /* of a live one */
    peer_goodbye(&other);
    client_close(&one.data);
    site_wait_nodes(&site, 0);
    peer_open(&other, &site, 9, LONG_LEASE);
    other.raw.theirs.lock_key = keys.lock_key;
    assert_int_equal(raw_cas(&other.raw, LOCK(1), 0, 9, NULL), IBV_WC_REM_ACCESS_ERR); /* of a fenced one */
    assert_int_equal(lock_now(&site, 1), 0);
    peer_goodbye(&other);
    /* Nor is the registration's own, should a client guess it. */
    peer_open(&other, &site, 10, LONG_LEASE);
    other.raw.theirs.pool_key = site.daemon->nic->regions[NIC_POOL].registration->rkey;
    assert_int_equal(raw_read(&other.raw, OFFSET, &word), IBV_WC_REM_ACCESS_ERR);
    peer_goodbye(&other);
    peer_close(&one);
    site_close(&site);
}

/* While an I/O thread waits for the kernel to make a queue pair it reads no heartbeats, and no lease runs
 * out. */
static void test_slow_attach(void **state)
{
    struct site site;
    struct client patient;
    struct peer slow;
    struct wire_nic answer;
    const struct site_options options = {.rdma = true, .shared = true, .threads = 1};
    assert_int_equal(site_open(&site, &options), BANYAN_OK);
    client_control(&patient, &site.tcp, 7, 500);
    client_control(&slow.control, &site.tcp, 8, LONG_LEASE);
    client_data(&slow.data, &site.tcp, &slow.control);
    raw_open(&slow.raw);
    atomic_store_relaxed(&nic_faults.delay_ms, 1500u); /* a test's switch */
    client_heartbeat(&patient);
    client_message(&slow.data, WIRE_ATTACH, 1, &slow.raw.ours, sizeof slow.raw.ours);
    client_heartbeat(&patient); /* waits as long */
    client_heartbeat(&patient);
    assert_int_equal(client_take(&slow.data, &answer, sizeof answer).status, BANYAN_OK);
    atomic_store_relaxed(&nic_faults.delay_ms, 0u);
    assert_int_equal(site_status(&site).fenced_total, 0);
    assert_int_equal(site_status(&site).nic_queues, 1);
    peer_goodbye(&slow);
    assert_true(client_closed(&patient)); /* its lease still runs out when it is silent */
    site_wait_nodes(&site, 0);
    client_close(&patient);
    site_close(&site);
}

/* However often others ask for queue pairs and are refused, a silent compute node's lease runs out: else the
 * queue pairs that it holds would never be free for them. */
static void test_many_attach(void **state)
{
    struct site site;
    struct peer peer;
    struct client control, data;
    struct raw raw;
    struct wire_nic answer;
    char sentence[256];
    nic_faults.queues = 3; /* two are the memory node's own */
    open_site(&site);
    raw_open(&raw);
    client_control(&control, &site.tcp, 8, LONG_LEASE);
    peer_open(&peer, &site, 7, SHORT_LEASE);
    for (uint64_t start = task_now();; tick(start, "a silent one's end")) {
        client_data(&data, &site.tcp, &control);
        bool let_in = !raw_ask(&data, &raw.ours, &answer, sentence);
        client_goodbye(&data);
        if (let_in)
            break;
    }
    assert_int_equal(site_status(&site).fenced_total, 1);
    client_goodbye(&control);
    peer_close(&peer);
    raw_close(&raw);
    site_close(&site);
    nic_faults = (struct nic_faults){0};
}

/* ---- locks of fenced compute nodes ---- */

#define HELD 150u
/* Wants the locks that another holds: almost all of its CASes fail while that one lives. */
struct rival {
    struct peer peer;
    pthread_t thread;
    uint32_t stop;            /* atomic */
    uint64_t failed;          /* atomic */
    uint64_t taken[2 * HELD]; /* atomic */
};

static void *want_locks(void *argument)
{
    struct rival *rival = argument;
    uint64_t id = rival->peer.control.welcome.compute_id, old;
    for (unsigned word = 0; !atomic_load_relaxed(&rival->stop); word = (word + 1) % (2 * HELD)) {
        uint64_t offset = word < HELD ? LOCK(word * 3) : TABLE(word - HELD);
        if (raw_cas(&rival->peer.raw, offset, 0, id, &old) != IBV_WC_SUCCESS)
            return rival;
        if (old != 0) {
            atomic_store_relaxed(&rival->failed, rival->failed + 1); /* a count that others look at */
            continue;
        }
        atomic_store_relaxed(&rival->taken[word], rival->taken[word] + 1); /* the same */
        if (raw_cas(&rival->peer.raw, offset, id, 0, &old) != IBV_WC_SUCCESS || old != id)
            return rival;
    }
    return NULL;
}

/* Locks in both tables, which rivals try to take all the time: each is freed, none is lost. */
static void test_release(void **state)
{
    struct site site;
    struct peer dead;
    static struct rival rivals[2];
    void *failed;
    open_site(&site);
    peer_open(&dead, &site, 7, LONG_LEASE);
    for (unsigned i = 0; i < HELD; i++) {
        take_lock(&dead, LOCK(i * 3));
        take_lock(&dead, TABLE(i));
    }
    for (unsigned i = 0; i < 2; i++) {
        rivals[i] = (struct rival){0};
        peer_open(&rivals[i].peer, &site, 8 + i, LONG_LEASE);
        assert_int_equal(pthread_create(&rivals[i].thread, NULL, want_locks, &rivals[i]), 0);
    }
    for (uint64_t start = task_now();
         atomic_load_relaxed(&rivals[0].failed) < HELD || atomic_load_relaxed(&rivals[1].failed) < HELD;)
        tick(start, "rivals");
    client_close(&dead.control);
    site_wait_nodes(&site, 2);
    assert_int_equal(site_status(&site).locks_freed_total, 2 * HELD);
    /* Each can be taken: the rivals take all of them in turn. */
    for (unsigned i = 0; i < 2 * HELD; i++)
        for (uint64_t start = task_now();
             atomic_load_relaxed(&rivals[0].taken[i]) == 0 && atomic_load_relaxed(&rivals[1].taken[i]) == 0;)
            tick(start, "a lock to be taken");
    for (unsigned i = 0; i < 2; i++) {
        atomic_store_relaxed(&rivals[i].stop, 1u); /* no other data depends on it */
        assert_int_equal(pthread_join(rivals[i].thread, &failed), 0);
        assert_null(failed);
    }
    for (unsigned i = 0; i < HELD; i++) {
        assert_int_equal(lock_now(&site, i * 3), 0);
        assert_int_equal(site_word(&site, TABLE(i)), 0);
    }
    peer_goodbye(&rivals[0].peer);
    peer_goodbye(&rivals[1].peer);
    peer_close(&dead);
    site_close(&site);
}

/* An orderly end frees the locks that it forgot, and those of others stay. */
static void test_forgotten(void **state)
{
    struct site site;
    struct peer one, other;
    open_site(&site);
    peer_open(&one, &site, 7, LONG_LEASE);
    peer_open(&other, &site, 8, LONG_LEASE);
    take_lock(&one, LOCK(0));
    take_lock(&one, GADDR_LOCK_REGION + SITE_LOCKS - 8);
    take_lock(&one, MEMORY_LOCK_TABLE_OFFSET + SITE_LOCKS - 8);
    take_lock(&other, LOCK(2));
    uint64_t id = one.control.welcome.compute_id;
    assert_int_equal(raw_write(&one.raw, MEMORY_LOCK_TABLE_OFFSET + SITE_LOCKS, id), IBV_WC_SUCCESS);
    peer_goodbye(&one);
    site_wait_nodes(&site, 1);
    assert_int_equal(site_status(&site).locks_freed_total, 3);
    assert_int_equal(lock_now(&site, 0), 0);
    assert_int_equal(lock_now(&site, 2), other.control.welcome.compute_id);
    assert_int_equal(site_word(&site, MEMORY_LOCK_TABLE_OFFSET + SITE_LOCKS), id); /* no lock */
    peer_goodbye(&other);
    site_close(&site);
}

/* The memory node's own queue pair breaks: it makes another. */
static void test_own_breaks(void **state)
{
    struct site site;
    struct peer peer;
    struct ibv_qp_attr broken = {.qp_state = IBV_QPS_ERR};
    open_site(&site);
    peer_open(&peer, &site, 7, LONG_LEASE);
    take_lock(&peer, LOCK(3));
    assert_int_equal(ibv_modify_qp(site.daemon->nic->own.near, &broken, IBV_QP_STATE), 0);
    client_close(&peer.data);
    site_wait_nodes(&site, 0);
    assert_int_equal(lock_now(&site, 3), 0);
    peer_close(&peer);
    site_close(&site);
}

/* As long as it cannot, the fenced compute node is not reaped: its locks and its id are not given away. */
static void test_own_stays_broken(void **state)
{
    struct site site;
    struct peer peer;
    struct client again;
    char sentence[256];
    struct ibv_qp_attr broken = {.qp_state = IBV_QPS_ERR};
    open_site(&site);
    peer_open(&peer, &site, 7, LONG_LEASE);
    take_lock(&peer, LOCK(3));
    assert_int_equal(ibv_modify_qp(site.daemon->nic->own.near, &broken, IBV_QP_STATE), 0);
    atomic_store_relaxed(&nic_faults.connections, UINT32_MAX); /* a test's switch */
    log_set_level(LOG_ERROR + 1);
    client_close(&peer.data);
    for (uint64_t start = task_now();
         site_status(&site).nic_queues != 0 || site_status(&site).fenced_total == 0;)
        tick(start, "the fencing");
    client_connect(&again, &site.tcp);
    struct wire_hello hello = client_hello(&again, WIRE_CONTROL, NULL);
    hello.instance = 7;
    assert_int_equal(client_say_hello(&again, &hello, sentence), BANYAN_EBUSY);
    client_close(&again);
    assert_int_equal(lock_now(&site, 3), peer.control.welcome.compute_id);
    assert_int_equal(site_status(&site).compute_nodes, 1);
    atomic_store_relaxed(&nic_faults.connections, 0u);
    site_wait_nodes(&site, 0);
    assert_int_equal(lock_now(&site, 3), 0);
    log_set_level(LOG_ERROR);
    peer_close(&peer);
    site_close(&site);
}

/* ---- formats ---- */

/* The pool is empty afterwards, and still the NIC's: what it writes is what this machine's CPU sees. */
static void test_format(void **state)
{
    struct site site;
    struct peer peer;
    struct client formatter;
    struct wire_format format = {.cluster_id = 99, .number = SITE_NODE, .node_count = SITE_NODE + 1};
    uint64_t word = 1;
    open_site(&site);
    peer_open(&peer, &site, 7, LONG_LEASE);
    assert_int_equal(raw_write(&peer.raw, OFFSET, 5), IBV_WC_SUCCESS);
    peer_goodbye(&peer);
    site_wait_nodes(&site, 0);
    *lock_word(&site, 4) = 500; /* no compute node is connected */
    client_connect(&formatter, &site.tcp);
    struct wire_hello hello = client_hello(&formatter, WIRE_FORMATTER, NULL);
    assert_int_equal(client_say_hello(&formatter, &hello, NULL), BANYAN_OK);
    client_message(&formatter, WIRE_FORMAT, 1, &format, sizeof format);
    assert_int_equal(client_take(&formatter, &word, sizeof word).status, BANYAN_OK);
    client_goodbye(&formatter);
    peer_open(&peer, &site, 7, LONG_LEASE);
    assert_int_equal(raw_read(&peer.raw, OFFSET, &word), IBV_WC_SUCCESS);
    assert_int_equal(word, 0);
    assert_int_equal(raw_read(&peer.raw, LOCK(4), &word), IBV_WC_SUCCESS);
    assert_int_equal(word, 0);
    assert_int_equal(raw_read(&peer.raw, offsetof(struct memory_header, cluster_id), &word), IBV_WC_SUCCESS);
    assert_int_equal(word, 99);
    assert_int_equal(raw_write(&peer.raw, OFFSET, 6), IBV_WC_SUCCESS);
    assert_int_equal(site_word(&site, OFFSET), 6);
    take_lock(&peer, LOCK(4));
    assert_int_equal(lock_now(&site, 4), peer.control.welcome.compute_id);
    peer_goodbye(&peer);
    site_close(&site);
}

/* ---- other NICs ---- */

/* Locks on the chip: taken there, freed there, emptied there. */
static void test_chip(void **state)
{
    struct site site;
    struct peer peer, other;
    struct error error = {0};
    struct wire_format format = {.cluster_id = 98, .number = SITE_NODE, .node_count = SITE_NODE + 1};
    nic_faults.chip = nic_faults.promises = true;
    open_site(&site);
    assert_non_null(strstr(memoryd_nic(site.daemon), "locks in device memory"));
    assert_int_equal(memoryd_nic_promises(site.daemon->nic), WIRE_NIC_RELEASE_BY_WRITE);
    uint64_t *chip = (uint64_t *)(void *)nic_faults_chip();
    assert_non_null(chip);
    for (unsigned i = 0; i < SITE_LOCKS / 8; i++)
        assert_int_equal(chip[i], 0);
    peer_open(&peer, &site, 7, LONG_LEASE);
    peer_open(&other, &site, 8, LONG_LEASE);
    take_lock(&peer, LOCK(6));
    take_lock(&peer, TABLE(6));
    take_lock(&other, LOCK(7));
    assert_int_equal(atomic_load_acquire(&chip[6]), peer.control.welcome.compute_id); /* set by the NIC */
    assert_int_equal(lock_now(&site, 6), 0); /* host memory has nothing to do with it */
    client_close(&peer.data);
    site_wait_nodes(&site, 1);
    assert_int_equal(atomic_load_acquire(&chip[6]), 0); /* freed by the NIC */
    assert_int_equal(site_word(&site, TABLE(6)), 0);
    assert_int_equal(chip[7], other.control.welcome.compute_id);
    peer_goodbye(&other);
    site_wait_nodes(&site, 0);
    chip[9] = 1234;
    assert_int_equal(memoryd_groups_format(site.daemon, &format, &error), BANYAN_OK);
    assert_int_equal(chip[9], 0);
    peer_close(&peer);
    site_close(&site);
    assert_null(nic_faults_chip()); /* given back */
    nic_faults = (struct nic_faults){0};
}

/* As many locks as the device's own memory holds, if that is not too little. */
static void test_lock_bytes(void **state)
{
    static const uint64_t sizes[][2] = {{0, MEMORY_LOCK_BYTES},
                                        {16383, MEMORY_LOCK_BYTES},
                                        {16384, 16384},
                                        {100000, 65536},
                                        {131072, 131072},
                                        {MEMORY_LOCK_BYTES - 1, MEMORY_LOCK_BYTES / 2},
                                        {UINT64_C(1) << 20, MEMORY_LOCK_BYTES}};
    const struct verbs_options options = {0};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct error error = {0};
        uint32_t width = 0;
        uint64_t bytes = 0;
        nic_faults = (struct nic_faults){.chip = sizes[i][0] != 0, .chip_bytes = sizes[i][0]};
        assert_int_equal(memoryd_nic_locks(&options, NULL, &width, &bytes, &error), BANYAN_OK);
        assert_int_equal(width, 8);
        assert_int_equal(bytes, sizes[i][1]);
    }
    nic_faults = (struct nic_faults){0};
}

/* A maker's promise holds for device memory. */
static void test_no_promise_for_host_memory(void **state)
{
    struct site site;
    nic_faults.promises = true;
    open_site(&site);
    assert_non_null(strstr(memoryd_nic(site.daemon), "locks in host memory"));
    assert_int_equal(memoryd_nic_promises(site.daemon->nic), 0);
    site_close(&site);
    nic_faults = (struct nic_faults){0};
}

/* Windows or device memory that do not work are left out. */
static void without(struct nic_faults faults, const char *not_there)
{
    struct site site;
    struct peer one, other;
    uint64_t word;
    nic_faults = faults;
    open_site(&site);
    assert_null(strstr(memoryd_nic(site.daemon), not_there));
    assert_non_null(strstr(memoryd_nic(site.daemon), "locks in host memory"));
    assert_int_equal(lock_now(&site, 0), 0); /* trying it out has left no lock behind */
    assert_int_equal(site_word(&site, TABLE(0)), 0);
    peer_open(&one, &site, 7, LONG_LEASE);
    peer_open(&other, &site, 8, LONG_LEASE);
    take_lock(&one, LOCK(6));
    assert_int_equal(raw_write(&other.raw, OFFSET, 4), IBV_WC_SUCCESS);
    assert_int_equal(raw_read(&one.raw, OFFSET, &word), IBV_WC_SUCCESS);
    assert_int_equal(word, 4);
    client_close(&one.data);
    wait_lock(&site, 6, 0);
    if (faults.no_windows) /* keys that outlive their queue pair are of no use without one; takes seconds */
        assert_int_not_equal(raw_read(&one.raw, OFFSET, &word), IBV_WC_SUCCESS);
    peer_goodbye(&other);
    peer_close(&one);
    site_close(&site);
    nic_faults = (struct nic_faults){0};
}

static void test_without(void **state)
{
    without((struct nic_faults){.no_windows = true}, "keys bound");
    without((struct nic_faults){.broken_windows = true}, "keys bound");
    without((struct nic_faults){.half_proof = true}, "keys bound");
    without((struct nic_faults){.broken_chip = true}, "device memory");
}

static void test_lock_width(void **state)
{
    struct memory_node *node;
    struct memoryd_nic *nic;
    struct error error = {0};
    const struct memory_options options = {.pool_bytes = SITE_POOL,
                                           .chunk_bytes = 64u << 10,
                                           .lock_bytes = SITE_LOCKS,
                                           .lock_width = 2,
                                           .shared = true};
    const struct verbs_options none = {0};
    assert_int_equal(memory_node_create(&node, &options, &error), BANYAN_OK);
    assert_int_equal(memoryd_nic_create(&nic, node, &none, NULL, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "--lock-width 8"));
    assert_null(nic);
    memory_node_destroy(node);
}

/* ---- events ---- */

static struct memoryd_session *session_of(struct site *site, uint16_t compute_id)
{
    struct memoryd_groups *groups = &site->daemon->groups;
    struct memoryd_session *session = NULL;
    spinlock_lock(&groups->lock);
    for (struct memoryd_group *group = groups->first; group != NULL; group = group->next)
        if (group->compute_id == compute_id)
            for (session = group->sessions; session->queue == NULL;)
                session = session->group_next;
    spinlock_unlock(&groups->lock);
    assert_non_null(session);
    return session;
}

/* The NIC says that a queue pair broke: its compute node is fenced, others are not. */
static void test_events(void **state)
{
    struct site site;
    struct peer one, other;
    nic_faults.events = true;
    open_site(&site);
    peer_open(&one, &site, 7, LONG_LEASE);
    peer_open(&other, &site, 8, LONG_LEASE);
    take_lock(&one, LOCK(2));
    nic_faults_event(IBV_EVENT_PORT_ACTIVE, NULL);
    nic_faults_wait_acknowledged();
    assert_int_equal(site_status(&site).compute_nodes, 2);
    nic_faults_event(IBV_EVENT_QP_ACCESS_ERR, session_of(&site, one.control.welcome.compute_id)->queue->pair);
    nic_faults_wait_acknowledged();
    assert_true(client_closed(&one.control));
    site_wait_nodes(&site, 1);
    assert_int_equal(lock_now(&site, 2), 0);
    /* Its own queue pair: no compute node is fenced, and locks are still freed. */
    nic_faults_event(IBV_EVENT_QP_FATAL, site.daemon->nic->own.near);
    nic_faults_wait_acknowledged();
    take_lock(&other, LOCK(2));
    assert_int_equal(site_status(&site).compute_nodes, 1);
    /* The whole device. */
    log_set_level(LOG_ERROR + 1);
    nic_faults_event(IBV_EVENT_DEVICE_FATAL, NULL);
    nic_faults_wait_acknowledged();
    log_set_level(LOG_ERROR);
    assert_true(client_closed(&other.control));
    site_wait_nodes(&site, 0);
    assert_int_equal(lock_now(&site, 2), 0);
    peer_close(&one);
    peer_close(&other);
    site_close(&site);
    nic_faults = (struct nic_faults){0};
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),       cmocka_unit_test(test_calls),
        cmocka_unit_test(test_roles),          cmocka_unit_test(test_wrong_messages),
        cmocka_unit_test(test_short_end),      cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_no_more_queues), cmocka_unit_test(test_silence),
        cmocka_unit_test(test_loss),           cmocka_unit_test(test_keys),
        cmocka_unit_test(test_slow_attach),    cmocka_unit_test(test_many_attach),
        cmocka_unit_test(test_release),        cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_own_breaks),     cmocka_unit_test(test_own_stays_broken),
        cmocka_unit_test(test_format),         cmocka_unit_test(test_chip),
        cmocka_unit_test(test_lock_bytes),     cmocka_unit_test(test_no_promise_for_host_memory),
        cmocka_unit_test(test_without),        cmocka_unit_test(test_lock_width),
        cmocka_unit_test(test_events),
    };
    if (getenv("BANYAN_RDMA_ADDRESS") == NULL) {
        fprintf(stderr, "BANYAN_RDMA_ADDRESS must say the address of a NIC with RDMA\n");
        return 1;
    }
    log_set_level(LOG_ERROR);
    client_use_nic(true);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
