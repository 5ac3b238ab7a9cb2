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
    sim_time atomic_fetch, atomic_writeback, chip_gap, chip;
    sim_time rpc, post, command, poll, yield, clock, work[TASK_WORK_KINDS];
    uint32_t header, mtu, inline_bytes;
    bool block_responses, jittered;
    sim_time jitter[SIM_JITTER_STEPS]; /* quantiles of the exponential */
};

/* Messages and bytes of one direction of a list. */
struct sim_load {
    uint32_t messages;
    uint32_t bytes;
};

/* One direction of a link: limited in messages and in bytes, whichever is slower at the time. */
struct sim_lane {
    sim_time message_free, byte_free;
};

struct sim_nic {
    struct sim_lane in, out;
    sim_time serve_free; /* the pipeline of incoming requests is held up until then */
    sim_time chip_free;  /* the unit for atomics on the NIC's own memory begins the next one then */
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

/* The load that posting the list puts on the wire; `fetch` is set to the latency of reading payloads over
 * PCIe. */
struct sim_load sim_request_load(const struct sim_model *model, const struct fabric_list *list,
                                 sim_time *fetch);
/* The load that the answer puts on the wire. */
struct sim_load sim_response_load(const struct sim_model *model, const struct fabric_list *list);

/* Passes the list, received by `at`, through the memory node's NIC. Returns when its response may leave;
 * `begun` is set to the time at which the NIC began with it, and `starts`, unless NULL, to the times at
 * which it came to each command. CAS commands must have their `old` already where `executed`; otherwise they
 * count as successful. */
sim_time sim_nic_serve(const struct sim_model *model, struct sim_nic *nic, sim_time at,
                       const struct fabric_list *list, bool executed, sim_time *begun, sim_time *starts);

#endif
