/*
 * nic_locks.c - the memory node's own queue pair, which is connected to itself. Through it the memory node
 * changes words that compute nodes CAS, so that it frees the locks of fenced compute nodes; see nic.h.
 *
 * On one thread at a time: the one that creates the NIC, then the keeper's. Waits for the NIC.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "memoryd/nic_state.h"

#define OWN_WORKS   64u                                     /* requests of one post */
#define PIECE_BYTES (64u << 10)                             /* read at once */
#define OLD_AT      PIECE_BYTES                             /* in the room: the old words of atomics */
#define NEW_AT      (OLD_AT + OWN_WORKS * sizeof(uint64_t)) /* and the words that are written */
#define ROOM_BYTES  (NEW_AT + sizeof(uint64_t))

/* ---- life ---- */

static int make_room(struct memoryd_nic *nic, struct error *error)
{
    struct nic_own *own = &nic->own;
    own->room = aligned_alloc(4096, (ROOM_BYTES + 4095) / 4096 * 4096);
    own->scratch = malloc(sizeof *own->scratch);
    if (own->room == NULL || own->scratch == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for the memory node's own queue pair");
    memset(own->scratch, 0, sizeof *own->scratch);
    return verbs_memory_register(nic->device, own->room, ROOM_BYTES, IBV_ACCESS_LOCAL_WRITE,
                                 "the room of the memory node's own queue pair", &own->registration, error);
}

static int make_near(struct memoryd_nic *nic, struct error *error)
{
    const struct verbs_device *device = nic->device;
    struct nic_own *own = &nic->own;
    own->completions = ibv_create_cq(device->context, (int)OWN_WORKS, NULL, NULL, 0);
    if (own->completions == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives no completion queue: %s", device->name,
                         strerror(errno));
    struct ibv_qp_init_attr wanted = {
        .send_cq = own->completions,
        .recv_cq = own->completions,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = OWN_WORKS, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    own->near = device->provider->queue_create(device->domain, &wanted, device->features.masked_cas);
    if (own->near == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives no queue pair: %s", device->name, strerror(errno));
    return BANYAN_OK;
}

int nic_own_open(struct memoryd_nic *nic, struct error *error)
{
    struct nic_own *own = &nic->own;
    struct wire_nic near = {0};
    *own = (struct nic_own){0};
    int status = make_room(nic, error);
    if (!status)
        status = make_near(nic, error);
    if (!status)
        status = verbs_pair_begin(nic->device, own->near, 0, &near, error);
    if (!status)
        status = nic_queue_open(nic, &near, &own->where, &own->far, error);
    if (!status)
        status = verbs_pair_connect(nic->device, own->near, &near, &own->where, error);
    return status;
}

void nic_own_close(struct memoryd_nic *nic)
{
    struct nic_own *own = &nic->own;
    bool gone = own->near == NULL || ibv_destroy_qp(own->near) == 0;
    if (own->far != NULL)
        nic_queue_close(own->far);
    if (own->completions != NULL)
        ibv_destroy_cq(own->completions);
    if (own->registration != NULL)
        ibv_dereg_mr(own->registration);
    if (gone) /* else a READ may still be under way, whose bytes the NIC writes there */
        free(own->room);
    free(own->scratch);
    *own = (struct nic_own){.broken = true};
}

/* ---- commands ---- */

static struct verbs_work work_on(const struct memoryd_nic *nic, enum nic_part part, uint64_t offset,
                                 enum fabric_operation operation, uint32_t length, uint64_t room_at)
{
    const struct nic_own *own = &nic->own;
    bool pool = part == NIC_POOL;
    return (struct verbs_work){.operation = operation,
                               .length = length,
                               .local = (uintptr_t)own->room + room_at,
                               .local_key = own->registration->lkey,
                               .remote = (pool ? own->where.pool_address : own->where.lock_address) + offset,
                               .remote_key = pool ? own->where.pool_key : own->where.lock_key};
}

/* Posts them with one doorbell, and waits until the last is done; then all are. */
static int run(struct memoryd_nic *nic, struct verbs_work *works, uint32_t count, struct error *error)
{
    struct nic_own *own = &nic->own;
    for (uint32_t i = 0; i < count; i++) {
        works[i].id = own->posted++;
        works[i].signalled = i + 1 == count;
    }
    int failed = nic->device->provider->post(own->near, works, count, own->scratch);
    int status = failed != 0 ? error_set(error, BANYAN_ENET, "%s takes no requests: %s", nic->device->name,
                                         strerror(failed))
                             : nic_wait(own->completions, "the memory node's own queue pair", error);
    own->broken = own->broken || status;
    return status;
}

static uint64_t *room_word(const struct memoryd_nic *nic, uint64_t at)
{
    return (uint64_t *)(void *)(nic->own.room + at);
}

/* ---- trying it out ---- */

/* READ, CAS and WRITE on one word, which afterwards is what it was. There is no other queue pair yet. */
static int prove_word(struct memoryd_nic *nic, enum nic_part part, uint64_t offset, struct error *error)
{
    struct verbs_work works[4];
    const char *where = part == NIC_POOL ? "the pool" : "the lock region";
    works[0] = work_on(nic, part, offset, FABRIC_READ, 8, 0);
    int status = run(nic, works, 1, error);
    if (status)
        return status;
    uint64_t before = *room_word(nic, 0);
    *room_word(nic, NEW_AT) = before;
    works[0] = work_on(nic, part, offset, FABRIC_CAS, 8, OLD_AT);
    works[0].compare = before;
    works[0].swap = ~before;
    works[1] = work_on(nic, part, offset, FABRIC_READ, 8, 8);
    works[2] = work_on(nic, part, offset, FABRIC_WRITE, 8, NEW_AT);
    works[3] = work_on(nic, part, offset, FABRIC_READ, 8, 16);
    status = run(nic, works, 4, error);
    if (status)
        return status;
    if (*room_word(nic, OLD_AT) != before || *room_word(nic, 8) != ~before || *room_word(nic, 16) != before)
        return error_set(error, BANYAN_ENOTSUP, "%s does not do to %s what it is told to", nic->device->name,
                         where);
    return BANYAN_OK;
}

/* A masked CAS changes its part of a word and nothing else. */
static int prove_mask(struct memoryd_nic *nic, struct error *error)
{
    struct verbs_work works[4];
    works[0] = work_on(nic, NIC_LOCKS, 0, FABRIC_READ, 8, 0);
    int status = run(nic, works, 1, error);
    if (status)
        return status;
    uint64_t before = *room_word(nic, 0);
    for (unsigned i = 0; i < 2; i++) {
        struct verbs_work *swap = &works[2 * i];
        *swap = work_on(nic, NIC_LOCKS, 0, FABRIC_CAS, 8, OLD_AT + i * 8);
        swap->masked = true;
        swap->mask = UINT64_C(0xffff0000);
        swap->compare = i == 0 ? before : ~before;
        swap->swap = ~swap->compare;
        /* A READ shows which bytes have changed, whatever byte order the NIC's atomics have. */
        works[2 * i + 1] = work_on(nic, NIC_LOCKS, 0, FABRIC_READ, 8, 8 + i * 8);
    }
    status = run(nic, works, 4, error);
    if (status)
        return status;
    const uint64_t between = before ^ works[0].mask;
    if (*room_word(nic, OLD_AT) != before || *room_word(nic, 8) != between ||
        *room_word(nic, OLD_AT + 8) != between || *room_word(nic, 16) != before)
        return error_set(error, BANYAN_ENOTSUP,
                         "%s: its masked compare-and-swap is none; start the memory node with --lock-width 8",
                         nic->device->name);
    return BANYAN_OK;
}

int nic_own_prove(struct memoryd_nic *nic, struct error *error)
{
    int status = prove_word(nic, NIC_POOL, MEMORY_LOCK_TABLE_OFFSET, error);
    if (!status)
        status = prove_word(nic, NIC_LOCKS, 0, error);
    if (!status && nic->target->lock_width < 8)
        status = prove_mask(nic, error);
    return status;
}

/* ---- locks of fenced compute nodes ---- */

/* Which bits of the word are locks that bear the id. */
static uint64_t bits_of(uint64_t word, uint16_t id, uint32_t width)
{
    uint64_t bits = 0;
    if (width == 8)
        return word == id ? UINT64_MAX : 0;
    for (unsigned shift = 0; shift < 64; shift += 16)
        if ((uint16_t)(word >> shift) == id)
            bits |= UINT64_C(0xffff) << shift;
    return bits;
}

struct sweep {
    struct memoryd_nic *nic;
    enum nic_part part;
    uint16_t id;
    uint64_t *freed;
    uint32_t count;
    struct verbs_work works[OWN_WORKS];
    uint32_t locks[OWN_WORKS]; /* that each of them frees */
};

static int flush(struct sweep *sweep, struct error *error)
{
    if (sweep->count == 0)
        return BANYAN_OK;
    int status = run(sweep->nic, sweep->works, sweep->count, error);
    for (uint32_t i = 0; !status && i < sweep->count; i++) {
        const struct verbs_work *work = &sweep->works[i];
        uint64_t mask = work->masked ? work->mask : UINT64_MAX;
        if (((*room_word(sweep->nic, OLD_AT + i * 8) ^ work->compare) & mask) == 0)
            *sweep->freed += sweep->locks[i];
    }
    sweep->count = 0;
    return status;
}

static int free_word(struct sweep *sweep, uint64_t offset, uint64_t word, uint64_t bits, struct error *error)
{
    uint32_t width = sweep->nic->target->lock_width;
    struct verbs_work *work = &sweep->works[sweep->count];
    *work = work_on(sweep->nic, sweep->part, offset, FABRIC_CAS, 8, OLD_AT + sweep->count * 8);
    work->compare = word & bits;
    work->masked = width < 8;
    work->mask = bits;
    sweep->locks[sweep->count] = (uint32_t)__builtin_popcountll(bits) / (width * 8);
    return ++sweep->count == OWN_WORKS ? flush(sweep, error) : BANYAN_OK;
}

/* One table, `start` bytes into its part. The NIC reads it too, since the CPU may not see the present bytes
 * of device memory. Compute nodes go on taking and releasing locks meanwhile; words that bear the id do not
 * change, since their owner is fenced, so none is missed. */
static int sweep_table(struct sweep *sweep, uint64_t start, struct error *error)
{
    struct memoryd_nic *nic = sweep->nic;
    uint64_t bytes = nic->target->lock_bytes;
    for (uint64_t at = 0; at < bytes; at += PIECE_BYTES) {
        uint32_t length = bytes - at < PIECE_BYTES ? (uint32_t)(bytes - at) : PIECE_BYTES;
        struct verbs_work read = work_on(nic, sweep->part, start + at, FABRIC_READ, length, 0);
        int status = run(nic, &read, 1, error);
        for (uint32_t i = 0; !status && i < length; i += 8) {
            uint64_t word = *room_word(nic, i), bits = bits_of(word, sweep->id, nic->target->lock_width);
            if (bits != 0)
                status = free_word(sweep, start + at + i, word, bits, error);
        }
        if (!status)
            status = flush(sweep, error);
        if (status)
            return status;
    }
    return BANYAN_OK;
}

static int sweep_all(struct memoryd_nic *nic, uint16_t id, uint64_t *freed, struct error *error)
{
    struct sweep sweep = {.nic = nic, .id = id, .freed = freed, .part = NIC_LOCKS};
    int status = sweep_table(&sweep, 0, error);
    sweep.part = NIC_POOL;
    return !status ? sweep_table(&sweep, MEMORY_LOCK_TABLE_OFFSET, error) : status;
}

/* Where the NIC fails, words may be left that bear the id. The CPU cannot free them: its store may be undone
 * by another compute node's CAS that fails in the NIC at the same moment, and the lock would be lost for
 * ever. If they were left as they are, the locks would be lost too. So the caller does not reap the compute
 * node, does not give its id away, and tries again until the NIC works: only compute nodes that want these
 * locks wait for it, and through a broken NIC they could do nothing anyway. A sweep may be repeated, since
 * words that it freed do not bear the id any more. */
int memoryd_nic_release_locks(struct memoryd_nic *nic, uint16_t compute_id, uint64_t *freed,
                              struct error *error)
{
    struct error first = {0};
    if (compute_id == 0)
        return BANYAN_OK; /* the mark of a free lock */
    if (!nic->own.broken && !sweep_all(nic, compute_id, freed, &first))
        return BANYAN_OK;
    if (first.code != 0)
        log_warning("memory node: its own queue pair broke and is made anew: %s", first.text);
    nic_own_close(nic);
    int status = nic_own_open(nic, error);
    nic->own.broken = status;
    return !status ? sweep_all(nic, compute_id, freed, error) : status;
}
