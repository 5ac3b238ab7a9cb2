/*
 * params.c - names, ranges and defaults of the simulator's parameters (see params.h). Where the defaults come
 * from is params_basis.c's.
 */
#include "sim/params.h"

#define ENTRY(field_kind, text, field, low, high, unit_text, help_text)                                      \
    {                                                                                                        \
        .name = text, .kind = field_kind, .offset = offsetof(struct OBJECT, field), .minimum = (low),        \
        .maximum = (high), .unit = unit_text, .help = help_text                                              \
    }
#define FLAG(text, field, help_text) ENTRY(OPTION_BOOL, text, field, 0, 0, NULL, help_text)
#define WHOLE(text, field, low, high, unit, help_text)                                                       \
    ENTRY(OPTION_U32, text, field, low, high, unit, help_text)
#define NUMBER(text, field, low, high, unit, help_text)                                                      \
    ENTRY(OPTION_DOUBLE, text, field, low, high, unit, help_text)
#define NANOSECONDS(text, field, help_text) WHOLE(text, field, 0, 1e9, "ns", help_text)

/* A millisecond for each read. Far below, the times of a lane no longer fit 64 bits. */
#define DMA_READ_RATE_LEAST 0.001

#define OBJECT sim_params
const struct option_entry sim_params_table[] = {
    FLAG("shared-nic", shared_nic,
         "Compute node i and memory node i are one machine with one NIC, as in Sherman's evaluation (5.1)."),
    FLAG("block-responses", block_responses,
         "A conflicting atomic also holds up responses that arrive at its NIC."),
    NUMBER("bandwidth", bandwidth, 0.1, 10000, "Gb/s", "Link bandwidth, each direction."),
    NUMBER("message-rate-in", message_rate_in, 0.001, 10000, "M/s", "Messages that a NIC takes in."),
    NUMBER("message-rate-out", message_rate_out, 0.001, 10000, "M/s", "Messages that a NIC sends."),
    WHOLE("header-bytes", header_bytes, 0, 1024, "bytes", "Bytes on the wire beside a packet's payload."),
    WHOLE("mtu", mtu, 256, 65536, "bytes", "Payload of one packet."),
    WHOLE("inline-bytes", inline_bytes, 0, 4096, "bytes",
          "Longer WRITE payloads cost a PCIe read at the sender."),
    NANOSECONDS("doorbell-ns", doorbell_ns, "From the CPU's doorbell store to the NIC holding the command."),
    NANOSECONDS("nic-ns", nic_ns, "One pass through one NIC's pipeline."),
    NANOSECONDS("wire-ns", wire_ns, "Cables, serialization and one switch, one way."),
    NANOSECONDS("pcie-read-ns", pcie_read_ns, "One DMA read of host memory."),
    NANOSECONDS("pcie-write-ns", pcie_write_ns, "One DMA write until a polling CPU sees it."),
    NUMBER("pcie-bandwidth", pcie_bandwidth, 1, 10000, "Gb/s",
           "Adds latency per payload byte, and limits what a NIC reads."),
    NUMBER("dma-read-rate", dma_read_rate, 0, 10000, "M/s",
           "DMA reads of a NIC: for READs, atomics on host memory, payloads; at least 0.001, or 0: no limit, "
           "nor of their bytes."),
    WHOLE("dma-read-bytes", dma_read_bytes, 64, 4096, "bytes",
          "One DMA read asks for so many bytes at most; longer ones are several."),
    WHOLE(
        "connection-cache", connection_cache, 0, 1e6, NULL,
        "Connections (of a thread with a memory node) whose state a NIC holds; others wait for a DMA read of "
        "it; 0: all."),
    WHOLE("doorbells", doorbells, 0, 1024, NULL,
          "Doorbells of a compute node, shared by all its threads; 0: each thread has its own."),
    NANOSECONDS("doorbell-hold-ns", doorbell_hold_ns,
                "How long a post holds a shared doorbell, times the threads that contend for it."),
    NANOSECONDS("jitter-ns", jitter_ns, "Mean of an exponentially distributed delay added once each way."),
    NANOSECONDS("atomic-fetch-ns", atomic_fetch_ns,
                "DMA read of an atomic on host memory, during which its bucket of 4,096 is busy."),
    NANOSECONDS(
        "atomic-writeback-ns", atomic_writeback_ns,
        "DMA write of an atomic's new value: its bucket is busy for so much longer; a failed CAS omits it."),
    NUMBER("chip-rate", chip_rate, 0.001, 10000, "M/s",
           "Atomics on the NIC's own memory, on different words."),
    NANOSECONDS(
        "chip-ns", chip_ns,
        "An access to the NIC's own memory: no PCIe. An atomic's bucket of 4,096 is busy for so long."),
    WHOLE("atomic-write", atomic_write, 1024, 1048576, "bytes",
          "A WRITE no longer than this happens entirely or not at all when its sender dies: the path MTU "
          "bounds it."),
    FLAG("release-by-write", release_by_write,
         "The NIC promises that a WRITE to a word under CAS is safe, so that it can release a lock; "
         "Soft-RoCE does not."),
    FLAG("masked-cas", masked_cas,
         "CAS can be of some bits of a word only, so that locks can be of 2 bytes; Soft-RoCE has none."),
    WHOLE("lock-width", lock_width, 2, 8, "bytes", "Of a lock: 2, where masked-cas is on, or 8."),
    WHOLE("rpc-cores", rpc_cores, 1, 64, NULL, "Cores of a memory node that answer RPCs."),
    NANOSECONDS("rpc-ns", rpc_ns, "Time of one RPC on such a core: receive, handle, reply."),
    NANOSECONDS("walk-ns", walk_ns, "Time of one walk on such a core beside its nodes, and beside rpc-ns."),
    NANOSECONDS("walk-node-ns", walk_node_ns,
                "Time of a walk on such a core for each node: copied, checked, searched."),
    NANOSECONDS("merge-entry-ns", merge_entry_ns,
                "Time of merging on such a core for each entry that an owner has logged."),
    NANOSECONDS("receive-ns", receive_ns,
                "CPU time to take a message from another compute node, beside the poll that finds it."),
    WHOLE("read-lease-ns", read_lease_ns, 1000, 1e9, "ns",
          "Read lease: how long a compute node may answer from its cache without an echo of the home node."),
    WHOLE("peer-timeout-ns", peer_timeout_ns, 1000, 1e9, "ns",
          "A call to another compute node that is not answered fails after so long."),
    NANOSECONDS("post-ns", post_ns, "CPU time to post one list and ring the doorbell."),
    NANOSECONDS("command-ns", command_ns, "CPU time to build one command of a list."),
    NANOSECONDS("poll-ns", poll_ns, "CPU time to find and take a completion, once per wait."),
    NANOSECONDS("operation-ns", operation_ns, "Fixed CPU time of one index operation."),
    NANOSECONDS("search-ns", search_ns, "CPU time to search one cached internal node."),
    NUMBER("leaf-ns", leaf_ns, 0, 1e6, "ns", "CPU time to compare one leaf slot with a key."),
    NUMBER("slot-check-ns", slot_check_ns, 0, 1e6, "ns",
           "CPU time to check one slot of the bucket that was read by its CRC."),
    NANOSECONDS("split-ns", split_ns, "CPU time to sort and rewrite one node."),
    NANOSECONDS("handover-ns", handover_ns,
                "CPU time to wake the next waiter: a cache line passed between cores."),
    NUMBER("line-transfer-ns", line_transfer_ns, 0, 1e6, "ns",
           "CPU time to wait for one cache line that another core wrote last: queues of local locks, "
           "operations left to a lock's holder and their answers; an estimate."),
    NUMBER("line-copy-ns", line_copy_ns, 0, 1e6, "ns",
           "The same for each line of a leaf's image that is handed over, on either side; an estimate."),
    NUMBER("sort-ns", sort_ns, 0, 1e6, "ns", "CPU time of a scan to sort one entry of a leaf: an estimate."),
    NUMBER("visit-ns", visit_ns, 0, 1e6, "ns", "CPU time of a scan to copy one entry out: an estimate."),
    NUMBER("checksum-ns", checksum_ns, 0, 1e6, "ns",
           "CPU time of a checksum over a whole node, for each cache line: an estimate."),
    WHOLE("yield-ns", yield_ns, 1, 1e9, "ns", "CPU time of one yield; not 0, so that loops that yield end."),
    WHOLE("clock-ns", clock_ns, 1, 1e9, "ns", "CPU time to read the clock; not 0, so that loops on it end."),
    {.name = NULL, .kind = OPTION_END},
};
#undef OBJECT

#define OBJECT sim_faults
const struct option_entry sim_faults_table[] = {
    NUMBER("torn-reads", torn_reads, 0, 1, NULL,
           "Probability that a READ fetches its words one by one, in any order."),
    NUMBER("torn-writes", torn_writes, 0, 1, NULL,
           "Probability that a WRITE stores its words at several instants."),
    NANOSECONDS("tear-window-ns", tear_window_ns,
                "The longest time between a torn command's first and last word."),
    FLAG("address-order", address_order,
         "Torn commands move their words in ascending order of addresses: what Sherman and Cell assume."),
    NUMBER("spread", spread, 0, 1, NULL,
           "Probability that other lists' commands may come between those of a list."),
    NANOSECONDS("list-spread-ns", list_spread_ns,
                "The longest time between the first and last command of such a list."),
    NUMBER("late", late, 0, 1, NULL,
           "Probability that a request is delayed (its connection stays in order)."),
    NUMBER("late-replies", late_replies, 0, 1, NULL,
           "Probability that an answer is delayed (its connection stays in order)."),
    NANOSECONDS("late-ns", late_ns, "The longest such delay, of a request or an answer."),
    NUMBER("stall", stall, 0, 1, NULL,
           "Probability, per arriving list, that the memory node stops serving for a while."),
    NANOSECONDS("stall-ns", stall_ns, "The longest such stall."),
    NUMBER("atomic-queue", atomic_queue, 0, 1, NULL,
           "Probability, per arriving atomic, that it queues behind many others in its bucket."),
    NANOSECONDS("atomic-queue-ns", atomic_queue_ns, "The longest such queue: some 500 ns for each atomic."),
    NUMBER("fiber-stall", fiber_stall, 0, 1, NULL,
           "Probability, per resumption of a task, that it comes late."),
    NANOSECONDS("fiber-stall-ns", fiber_stall_ns, "The longest such delay."),
    NUMBER("thread-stall", thread_stall, 0, 1, NULL,
           "Probability, per resumption of a task, that its CPU thread stands still."),
    NANOSECONDS("thread-stall-ns", thread_stall_ns, "The longest such stall."),
    NUMBER("compute-stall", compute_stall, 0, 1, NULL,
           "Probability, per resumption of a task, that all threads of its compute node stand still."),
    NANOSECONDS("compute-stall-ns", compute_stall_ns, "The longest such stall."),
    NANOSECONDS("lease-ns", lease_ns,
                "A compute node that stands still for longer is fenced, where losses are allowed."),
    NUMBER("lose", lose, 0, 1, NULL,
           "Probability, per arriving list, that the connection to the memory node is lost."),
    NANOSECONDS("lose-ns", lose_ns, "The longest time until the loss is known, and until it is over."),
    NUMBER("message-lose", message_lose, 0, 1, NULL,
           "Probability that a notice, a peer call's request or its reply never comes."),
    NUMBER("message-late", message_late, 0, 1, NULL,
           "Probability that a notice, a peer call's request or its reply is delayed."),
    NANOSECONDS("message-late-ns", message_late_ns, "The longest such delay."),
    NUMBER(
        "clock-drift", clock_drift, 0, 0.5, NULL,
        "By how much a node's clock may run fast or slow, as a part of 1: its read lease is counted by it; "
        "up to 0.005 the lease's margin allows for it, beyond that it does not."),
    {.name = NULL, .kind = OPTION_END},
};
#undef OBJECT

void sim_params_default(struct sim_params *params)
{
    *params = (struct sim_params){
        .shared_nic = true,
        .block_responses = false,
        .bandwidth = 100,
        .message_rate_in = 110,
        .message_rate_out = 110,
        .header_bytes = 42,
        .mtu = 4096,
        .inline_bytes = 220,
        .doorbell_ns = 200,
        .nic_ns = 75,
        .wire_ns = 375,
        .pcie_read_ns = 400,
        .pcie_write_ns = 200,
        .pcie_bandwidth = 126,
        .dma_read_rate = 80,
        .dma_read_bytes = 512,
        .connection_cache = 1024,
        .doorbells = 0,
        .doorbell_hold_ns = 150,
        .jitter_ns = 450,
        .atomic_fetch_ns = 350,
        .atomic_writeback_ns = 200,
        .chip_rate = 110,
        .chip_ns = 30,
        .atomic_write = 1024,
        .lock_width = 2,
        .release_by_write = true,
        .masked_cas = true,
        .rpc_cores = 1,
        .rpc_ns = 2000,
        .walk_ns = 200,
        .walk_node_ns = 880,
        .merge_entry_ns = 670,
        .receive_ns = 50,
        .read_lease_ns = 50000000,
        .peer_timeout_ns = 10000000,
        .post_ns = 80,
        .command_ns = 20,
        .poll_ns = 60,
        .operation_ns = 1000,
        .search_ns = 150,
        .leaf_ns = 2,
        .slot_check_ns = 3,
        .split_ns = 2000,
        .handover_ns = 100,
        .line_transfer_ns = 80,
        .line_copy_ns = 15,
        .sort_ns = 16,
        .visit_ns = 2.5,
        .checksum_ns = 11,
        .yield_ns = 50,
        .clock_ns = 20,
    };
}

void sim_faults_none(struct sim_faults *faults)
{
    *faults = (struct sim_faults){
        .tear_window_ns = 1000,
        .list_spread_ns = 1000,
        .late_ns = 20000,
        .stall_ns = 50000,
        .atomic_queue_ns = 50000,
        .fiber_stall_ns = 20000,
        .thread_stall_ns = 50000,
        .compute_stall_ns = 200000,
        .lease_ns = 1000000,
        .lose_ns = 30000,
        .message_late_ns = 30000,
    };
}

void sim_faults_hostile(struct sim_faults *faults)
{
    *faults = (struct sim_faults){
        .torn_reads = 0.5,
        .torn_writes = 0.5,
        .tear_window_ns = 3000,
        .spread = 0.5,
        .list_spread_ns = 3000,
        .late = 0.02,
        .late_replies = 0.02,
        .late_ns = 30000,
        .stall = 0.0005,
        .stall_ns = 100000,
        .atomic_queue = 0.002,
        .atomic_queue_ns = 50000,
        .fiber_stall = 0.005,
        .fiber_stall_ns = 30000,
        .thread_stall = 0.001,
        .thread_stall_ns = 50000,
        .compute_stall = 0.0002,
        .compute_stall_ns = 200000,
        .lease_ns = 1000000,
        .lose_ns = 50000,
        .message_lose = 0.001,
        .message_late = 0.02,
        .message_late_ns = 30000,
        .clock_drift = 0.005,
    };
}

static int check(const struct option_entry *table, const void *object, struct error *error)
{
    for (const struct option_entry *entry = table; entry->kind != OPTION_END; entry++) {
        const char *field = (const char *)object + entry->offset;
        double value;
        if (entry->kind == OPTION_U32)
            value = *(const uint32_t *)(const void *)field;
        else if (entry->kind == OPTION_DOUBLE)
            value = *(const double *)(const void *)field;
        else
            continue;
        if (!(value >= entry->minimum && value <= entry->maximum)) /* not a number fails too */
            return error_set(error, BANYAN_EINVAL, "simulator: %s is %g, must be from %g to %g", entry->name,
                             value, entry->minimum, entry->maximum);
    }
    return BANYAN_OK;
}

int sim_params_check(const struct sim_params *params, struct error *error)
{
    int status = check(sim_params_table, params, error);
    if (!status && params->dma_read_rate > 0 && params->dma_read_rate < DMA_READ_RATE_LEAST)
        return error_set(error, BANYAN_EINVAL,
                         "simulator: dma-read-rate is %g, must be 0 (no limit) or from %g to 10000",
                         params->dma_read_rate, DMA_READ_RATE_LEAST);
    if (!status && params->lock_width != 2 && params->lock_width != 8)
        return error_set(error, BANYAN_EINVAL, "simulator: lock-width is %u, must be 2 or 8",
                         params->lock_width);
    if (!status && params->lock_width == 2 && !params->masked_cas)
        return error_set(error, BANYAN_EINVAL,
                         "simulator: a lock-width of 2 needs masked-cas; without it set lock-width to 8");
    return status;
}

int sim_faults_check(const struct sim_faults *faults, struct error *error)
{
    return check(sim_faults_table, faults, error);
}

bool sim_faults_any(const struct sim_faults *faults)
{
    return faults->torn_reads > 0 || faults->torn_writes > 0 || faults->spread > 0 || faults->late > 0 ||
           faults->late_replies > 0 || faults->stall > 0 || faults->atomic_queue > 0 ||
           faults->fiber_stall > 0 || faults->thread_stall > 0 || faults->compute_stall > 0 ||
           faults->lose > 0 || faults->message_lose > 0 || faults->message_late > 0 ||
           faults->clock_drift > 0;
}
