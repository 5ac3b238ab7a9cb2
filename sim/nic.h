/*
 * nic.h - the model of one NIC: link, message rate, PCIe, atomics.
 *
 * A NIC is a few servers, each remembering only when it is next free. A message that passes a server books it
 * at the virtual time of the event under way, never ahead of it: so bookings are made in the order of
 * time, and a response that must wait long in one queue does not make others wait in the next. A constant
 * delay may stand before or after a server without changing what the server sees, which is why a list
 * needs two events only.
 *
 * Called from the event loop alone. Costs some tens of nanoseconds a list. Cannot fail.
 */
#ifndef SIM_NIC_H
#define SIM_NIC_H

#include "base/random.h"
#include "base/task.h"
#include "fabric/fabric.h"
#include "sim/params.h"
#include "sim/queue.h"

#define SIM_ATOMIC_BUCKETS 4096 /* Sherman 3.2.2: chosen by the address's low 12 bits; for each memory */
#define SIM_JITTER_STEPS   1024

/* The parameters in the units of the model. Read-only after sim_model_init. */
struct sim_model {
    sim_time byte, message_in, message_out, pcie_byte;
    sim_time doorbell, pass, wire, pcie_read, pcie_write;
    sim_time doorbell_hold;
    sim_time dma_request; /* 0: PCIe reads are not limited in rate */
    sim_time atomic_fetch, atomic_writeback, chip_gap, chip;
    sim_time rpc, post, command, receive, poll, yield, clock, work[TASK_WORK_KINDS];
    uint32_t header, mtu, inline_bytes, dma_bytes;
    uint32_t connection_cache; /* UINT32_MAX: holds all */
    bool block_responses, jittered;
    sim_time jitter[SIM_JITTER_STEPS]; /* quantiles of the exponential */
};

/* Messages and bytes of one direction of a list. */
struct sim_load {
    uint32_t messages;
    uint32_t bytes;
};

/* What a NIC reads from its host's memory: a payload takes a request for each dma_bytes of it. */
struct sim_dma {
    uint32_t requests;
    uint32_t bytes;
};

/* One direction of a link, or the reads over PCIe: limited in messages (requests) and in bytes, whichever is
 * slower at the time. */
struct sim_lane {
    sim_time message_free, byte_free;
};

struct sim_nic {
    struct sim_lane in, out, dma;
    uint32_t connections; /* whose state it keeps: pair.h */
    sim_time serve_free;  /* the pipeline of incoming requests is held up until then */
    sim_time chip_free;   /* the unit for atomics on the NIC's own memory begins the next one then */
    sim_time bucket_free[SIM_ATOMIC_BUCKETS];      /* of atomics on host memory */
    sim_time chip_bucket_free[SIM_ATOMIC_BUCKETS]; /* of those on the NIC's own memory */
};

/* The bucket of an atomic: those of one bucket conflict. */
static inline sim_time *sim_nic_bucket(struct sim_nic *nic, gaddr address)
{
    uint64_t bucket = gaddr_offset(address) % SIM_ATOMIC_BUCKETS;
    return address & GADDR_LOCK_REGION ? &nic->chip_bucket_free[bucket] : &nic->bucket_free[bucket];
}

void sim_model_init(struct sim_model *model, const struct sim_params *params);

static inline sim_time sim_later(sim_time a, sim_time b)
{
    return a > b ? a : b;
}

static inline sim_time sim_jitter(const struct sim_model *model, struct random *random)
{
    return model->jittered ? model->jitter[random_next(random) >> 54] : 0;
}

/* Bytes on the wire of a payload. */
static inline uint32_t sim_wire_bytes(const struct sim_model *model, uint32_t payload)
{
    uint32_t packets = payload <= model->mtu ? 1 : (payload + model->mtu - 1) / model->mtu;
    return payload + packets * model->header;
}

/* Books the lane from `at` on; returns when the load is through. */
static inline sim_time sim_lane_book(struct sim_lane *lane, sim_time at, sim_time messages, sim_time bytes)
{
    lane->message_free = sim_later(lane->message_free, at) + messages;
    lane->byte_free = sim_later(lane->byte_free, at) + bytes;
    return sim_later(lane->message_free, lane->byte_free);
}
static inline sim_time sim_nic_send(const struct sim_model *model, struct sim_nic *nic, sim_time at,
                                    struct sim_load load)
{
    return sim_lane_book(&nic->out, at, load.messages * model->message_out, load.bytes * model->byte);
}
static inline sim_time sim_nic_receive(const struct sim_model *model, struct sim_nic *nic, sim_time at,
                                       struct sim_load load)
{
    return sim_lane_book(&nic->in, at, load.messages * model->message_in, load.bytes * model->byte);
}
/* How long the load itself takes on an idle lane. */
static inline sim_time sim_receive_time(const struct sim_model *model, struct sim_load load)
{
    return sim_later(load.messages * model->message_in, load.bytes * model->byte);
}

/* Books the NIC's reads over PCIe at `now`; returns how long they wait for those before them. Their own
 * latency is the caller's. */
static inline sim_time sim_dma_wait(const struct sim_model *model, struct sim_nic *nic, sim_time now,
                                    struct sim_dma dma)
{
    if (model->dma_request == 0 || dma.requests == 0)
        return 0;
    sim_time free = sim_later(nic->dma.message_free, nic->dma.byte_free);
    sim_lane_book(&nic->dma, now, dma.requests * model->dma_request, dma.bytes * model->pcie_byte);
    return free > now ? free - now : 0;
}

/* The load that posting the list puts on the wire; `fetch` is set to the payloads that the NIC must read over
 * PCIe, since they do not travel within their commands. */
struct sim_load sim_request_load(const struct sim_model *model, const struct fabric_list *list,
                                 struct sim_dma *fetch);
/* How long the NIC takes to read them, from `now` on: several payloads overlap. */
sim_time sim_fetch_time(const struct sim_model *model, struct sim_nic *nic, sim_time now,
                        struct sim_dma fetch);
/* The load that the answer puts on the wire. */
struct sim_load sim_response_load(const struct sim_model *model, const struct fabric_list *list);

/* One list at the memory node's NIC. */
struct sim_service {
    sim_time now;     /* of the event: what is booked on the lane of PCIe reads is booked then */
    sim_time at;      /* the NIC has received it */
    bool executed;    /* its CAS commands have their `old` already; otherwise they count as successful */
    sim_time begun;   /* set: the NIC begins with it */
    sim_time *starts; /* set, unless NULL: when it comes to each command */
};
/* Passes the list through the memory node's NIC. Returns when its response may leave. */
sim_time sim_nic_serve(const struct sim_model *model, struct sim_nic *nic, const struct fabric_list *list,
                       struct sim_service *service);

#endif
