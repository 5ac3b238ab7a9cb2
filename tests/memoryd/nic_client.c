/* nic_client.c - see nic_client.h. */
#include "nic_client.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/task.h"

#define RESEND 16u /* 0.27 s */

void raw_open(struct raw *raw)
{
    static const struct verbs_options options = {.timeout = RESEND};
    struct error error = {0};
    *raw = (struct raw){0};
    if (verbs_device_open(&raw->device, &options, NULL, &error))
        fail_msg("%s", error.text);
    raw->completions = ibv_create_cq(raw->device->context, 4, NULL, NULL, 0);
    assert_non_null(raw->completions);
    struct ibv_qp_init_attr wanted = {
        .send_cq = raw->completions,
        .recv_cq = raw->completions,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    raw->queue = raw->device->provider->queue_create(raw->device->domain, &wanted, false);
    assert_non_null(raw->queue);
    raw->scratch = calloc(1, sizeof *raw->scratch);
    assert_non_null(raw->scratch);
    if (verbs_memory_register(raw->device, raw->room, sizeof raw->room, IBV_ACCESS_LOCAL_WRITE, "a test",
                              &raw->registration, &error) ||
        verbs_pair_begin(raw->device, raw->queue, 0, &raw->ours, &error))
        fail_msg("%s", error.text);
}

void raw_close(struct raw *raw)
{
    assert_int_equal(ibv_destroy_qp(raw->queue), 0);
    assert_int_equal(ibv_destroy_cq(raw->completions), 0);
    assert_int_equal(ibv_dereg_mr(raw->registration), 0);
    verbs_device_close(raw->device);
    free(raw->scratch);
    *raw = (struct raw){0};
}

int raw_ask(struct client *data, const struct wire_nic *end, struct wire_nic *answer, char sentence[256])
{
    char body[512] = "";
    client_message(data, WIRE_ATTACH, 31, end, sizeof *end);
    struct wire_header head = client_take(data, body, sizeof body - 1);
    assert_int_equal(head.kind, WIRE_ATTACHED);
    assert_int_equal(head.id, 31);
    if (!head.status) {
        assert_int_equal(head.length, sizeof *answer);
        memcpy(answer, body, sizeof *answer);
    } else {
        assert_in_range(head.length, 1, 255);
        snprintf(sentence, 256, "%s", body);
    }
    return head.status;
}

int raw_attach(struct raw *raw, struct client *data, char sentence[256])
{
    struct error error = {0};
    int status = raw_ask(data, &raw->ours, &raw->theirs, sentence);
    if (!status && verbs_pair_connect(raw->device, raw->queue, &raw->ours, &raw->theirs, &error))
        fail_msg("%s", error.text);
    return status;
}

void peer_open(struct peer *peer, const struct site *site, uint64_t instance, uint32_t lease_ms)
{
    char sentence[256];
    client_control(&peer->control, &site->tcp, instance, lease_ms);
    client_data(&peer->data, &site->tcp, &peer->control);
    raw_open(&peer->raw);
    if (raw_attach(&peer->raw, &peer->data, sentence))
        fail_msg("%s", sentence);
}

void peer_goodbye(struct peer *peer)
{
    client_goodbye(&peer->data);
    client_goodbye(&peer->control);
    raw_close(&peer->raw);
}

void peer_close(struct peer *peer)
{
    client_close(&peer->data);
    client_close(&peer->control);
    raw_close(&peer->raw);
}

static struct verbs_work work_at(const struct raw *raw, uint64_t offset, enum fabric_operation operation)
{
    bool lock = (offset & GADDR_LOCK_REGION) != 0;
    uint64_t base = lock ? raw->theirs.lock_address - GADDR_LOCK_REGION : raw->theirs.pool_address;
    return (struct verbs_work){.operation = operation,
                               .signalled = true,
                               .length = 8,
                               .local = (uintptr_t)raw->room,
                               .local_key = raw->registration->lkey,
                               .remote = base + offset,
                               .remote_key = lock ? raw->theirs.lock_key : raw->theirs.pool_key};
}

static enum ibv_wc_status run(struct raw *raw, const struct verbs_work *work)
{
    struct ibv_wc done;
    uint64_t start = task_now();
    if (raw->device->provider->post(raw->queue, work, 1, raw->scratch) != 0)
        return IBV_WC_GENERAL_ERR;
    for (unsigned looks = 0;; looks++) {
        int count = ibv_poll_cq(raw->completions, 1, &done);
        assert_true(count >= 0);
        if (count > 0)
            return done.status;
        if (task_now() - start > CLIENT_LIMIT)
            fail_msg("a request never completes");
        if (looks > 100)
            task_sleep(20000);
    }
}

enum ibv_wc_status raw_read(struct raw *raw, uint64_t offset, uint64_t *word)
{
    struct verbs_work work = work_at(raw, offset, FABRIC_READ);
    enum ibv_wc_status status = run(raw, &work);
    *word = raw->room[0];
    return status;
}

enum ibv_wc_status raw_write(struct raw *raw, uint64_t offset, uint64_t word)
{
    struct verbs_work work = work_at(raw, offset, FABRIC_WRITE);
    raw->room[0] = word;
    return run(raw, &work);
}

enum ibv_wc_status raw_cas(struct raw *raw, uint64_t offset, uint64_t compare, uint64_t swap, uint64_t *old)
{
    struct verbs_work work = work_at(raw, offset, FABRIC_CAS);
    work.compare = compare;
    work.swap = swap;
    enum ibv_wc_status status = run(raw, &work);
    if (old != NULL)
        *old = raw->room[0];
    return status;
}
