/* nic.c - the NIC's arithmetic (see nic.h). */
#include "sim/nic.h"

#include <math.h>

#include "base/task.h"

static sim_time per_second(double millions) /* 0: not limited */
{
    return millions > 0 ? (sim_time)llround(1e6 / millions) : 0;
}
static sim_time per_byte(double gigabits)
{
    return (sim_time)llround(8000.0 / gigabits);
}

void sim_model_init(struct sim_model *model, const struct sim_params *params)
{
    *model = (struct sim_model){
        .byte = per_byte(params->bandwidth),
        .message_in = per_second(params->message_rate_in),
        .message_out = per_second(params->message_rate_out),
        .pcie_byte = per_byte(params->pcie_bandwidth),
        .doorbell = params->doorbell_ns * SIM_NANOSECOND,
        .pass = params->nic_ns * SIM_NANOSECOND,
        .wire = params->wire_ns * SIM_NANOSECOND,
        .pcie_read = params->pcie_read_ns * SIM_NANOSECOND,
        .pcie_write = params->pcie_write_ns * SIM_NANOSECOND,
        .doorbell_hold = params->doorbell_hold_ns * SIM_NANOSECOND,
        .connection_cache = params->connection_cache > 0 ? params->connection_cache : UINT32_MAX,
        .dma_request = per_second(params->dma_read_rate),
        .dma_bytes = params->dma_read_bytes,
        .atomic_fetch = params->atomic_fetch_ns * SIM_NANOSECOND,
        .atomic_writeback = params->atomic_writeback_ns * SIM_NANOSECOND,
        .chip_gap = per_second(params->chip_rate),
        .chip = params->chip_ns * SIM_NANOSECOND,
        .rpc = params->rpc_ns * SIM_NANOSECOND,
        .post = params->post_ns * SIM_NANOSECOND,
        .command = params->command_ns * SIM_NANOSECOND,
        .receive = params->receive_ns * SIM_NANOSECOND,
        .poll = params->poll_ns * SIM_NANOSECOND,
        .yield = params->yield_ns * SIM_NANOSECOND,
        .clock = params->clock_ns * SIM_NANOSECOND,
        .header = params->header_bytes,
        .mtu = params->mtu,
        .inline_bytes = params->inline_bytes,
        .block_responses = params->block_responses,
        .jittered = params->jitter_ns > 0,
    };
    model->work[TASK_WORK_OPERATION] = params->operation_ns * SIM_NANOSECOND;
    model->work[TASK_WORK_SEARCH] = params->search_ns * SIM_NANOSECOND;
    model->work[TASK_WORK_LEAF] = (sim_time)llround(params->leaf_ns * 1000);
    model->work[TASK_WORK_CHECK] = (sim_time)llround(params->slot_check_ns * 1000);
    model->work[TASK_WORK_SPLIT] = params->split_ns * SIM_NANOSECOND;
    model->work[TASK_WORK_HANDOVER] = params->handover_ns * SIM_NANOSECOND;
    model->work[TASK_WORK_LINE] = (sim_time)llround(params->line_transfer_ns * 1000);
    model->work[TASK_WORK_COPY] = (sim_time)llround(params->line_copy_ns * 1000);
    model->work[TASK_WORK_SORT] = (sim_time)llround(params->sort_ns * 1000);
    model->work[TASK_WORK_VISIT] = (sim_time)llround(params->visit_ns * 1000);
    model->work[TASK_WORK_CHECKSUM] = (sim_time)llround(params->checksum_ns * 1000);
    for (int step = 0; step < SIM_JITTER_STEPS; step++) {
        double tail = 1 - (step + 0.5) / SIM_JITTER_STEPS;
        model->jitter[step] = (sim_time)llround(-log(tail) * params->jitter_ns * 1000);
    }
}

/* A bad length fails at the memory node; until then it must not count for more than any other. */
static uint32_t payload(const struct fabric_command *command)
{
    return command->length <= FABRIC_LENGTH_MAX ? command->length : 0;
}

/* Adds the reading of so many bytes of host memory. */
static void add_read(const struct sim_model *model, struct sim_dma *dma, uint32_t bytes)
{
    dma->requests += (bytes + model->dma_bytes - 1) / model->dma_bytes;
    dma->bytes += bytes;
}

struct sim_load sim_request_load(const struct sim_model *model, const struct fabric_list *list,
                                 struct sim_dma *fetch)
{
    struct sim_load load = {.messages = list->count};
    *fetch = (struct sim_dma){0};
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        if (command->operation != FABRIC_WRITE) {
            load.bytes += model->header;
            continue;
        }
        load.bytes += sim_wire_bytes(model, payload(command));
        if (payload(command) > model->inline_bytes)
            add_read(model, fetch, payload(command));
    }
    return load;
}

sim_time sim_fetch_time(const struct sim_model *model, struct sim_nic *nic, sim_time now,
                        struct sim_dma fetch)
{
    if (fetch.requests == 0)
        return 0;
    return sim_dma_wait(model, nic, now, fetch) + model->pcie_read + fetch.bytes * model->pcie_byte;
}

struct sim_load sim_response_load(const struct sim_model *model, const struct fabric_list *list)
{
    struct sim_load load = {0};
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        if (command->operation == FABRIC_WRITE)
            continue; /* acknowledged together with the last command */
        load.messages++;
        load.bytes +=
            command->operation == FABRIC_READ ? sim_wire_bytes(model, payload(command)) : model->header + 8;
    }
    if (list->commands[list->count - 1].operation == FABRIC_WRITE) {
        load.messages++;
        load.bytes += model->header;
    }
    return load;
}

static bool is_effective(const struct fabric_command *command)
{
    return command->operation == FABRIC_FAA ||
           ((command->cas.old ^ command->cas.compare) & command->cas.mask) == 0;
}

/* What the NIC reads over PCIe to serve the list. */
static struct sim_dma serve_reads(const struct sim_model *model, const struct fabric_list *list)
{
    struct sim_dma dma = {0};
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        if (command->operation != FABRIC_WRITE && !(command->address & GADDR_LOCK_REGION))
            add_read(model, &dma, command->operation == FABRIC_READ ? payload(command) : 8);
    }
    return dma;
}

/* An atomic whose turn in its list is at *start; *pipeline: when the NIC begins with what is behind it;
 * `wait`: of its read over PCIe. An atomic waits for the conflicting ones before it wherever the word lies
 * (Sherman 3.2.2). Memory on the NIC saves the two transactions over PCIe, not this rule. Returns when its
 * result is there. */
static sim_time serve_atomic(const struct sim_model *model, struct sim_nic *nic,
                             const struct fabric_command *command, bool executed, sim_time wait,
                             sim_time *pipeline, sim_time *start)
{
    sim_time *bucket = sim_nic_bucket(nic, command->address), done;
    if (*bucket > *start) /* the NIC stops here until the bucket is free: so do all behind it */
        *start = *pipeline = *bucket;
    if (command->address & GADDR_LOCK_REGION) {
        *start = sim_later(nic->chip_free, *start); /* waits alone: the unit serves one after the other */
        nic->chip_free = *start + model->chip_gap;
        *bucket = done = *start + model->chip;
    } else {
        done = *start + wait + model->atomic_fetch;
        *bucket = done + (!executed || is_effective(command) ? model->atomic_writeback : 0);
    }
    return done;
}

sim_time sim_nic_serve(const struct sim_model *model, struct sim_nic *nic, const struct fabric_list *list,
                       struct sim_service *service)
{
    sim_time wait = sim_dma_wait(model, nic, service->now, serve_reads(model, list));
    sim_time pipeline = sim_later(nic->serve_free, service->at);
    sim_time after = pipeline; /* commands behind an atomic of the same list wait for it */
    sim_time ready = pipeline;
    service->begun = pipeline + wait;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        bool on_chip = (command->address & GADDR_LOCK_REGION) != 0;
        sim_time start = sim_later(pipeline, after), done = start;
        if (command->operation == FABRIC_READ)
            done += on_chip ? model->chip : wait + model->pcie_read + payload(command) * model->pcie_byte;
        else if (command->operation == FABRIC_WRITE)
            done += on_chip ? model->chip : 0; /* posted: nothing waits for PCIe */
        else
            after = done = serve_atomic(model, nic, command, service->executed, wait, &pipeline, &start);
        ready = sim_later(ready, done);
        if (service->starts)
            service->starts[i] = start;
    }
    nic->serve_free = pipeline;
    return ready;
}
