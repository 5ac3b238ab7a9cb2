/*
 * params_basis.c - where each cost of the simulated hardware comes from, and how far it may be off (contract:
 * params.h).
 *
 * Sources by short names: [Sherman] Wang, Lu, Shu: Sherman, SIGMOD 2022, and its published code,
 * github.com/thustorage/Sherman; [Neugebauer18] Neugebauer et al.: Understanding PCIe performance for end
 * host networking, SIGCOMM 2018; [Kalia16] Kalia, Kaminsky, Andersen: Design Guidelines for High Performance
 * RDMA Systems, USENIX ATC 2016; [eRPC] the same: Datacenter RPCs can be General and Fast, NSDI 2019;
 * [SMART-data] the measurements published with Ren et al.: Scaling Up Memory Disaggregated Applications with
 * SMART, ASPLOS 2024: github.com/madsys-dev/smart, ae/raw-reference/fig3a.csv, fig3b.csv and fig4a.csv;
 * [IBA] InfiniBand Architecture Specification, volume 1; [CX5] the vendor's ConnectX-5 product brief;
 * [rdma-core] github.com/linux-rdma/rdma-core, providers/mlx5 (MLX5_DEF_TOT_UUARS); [nviennot]
 * github.com/nviennot/core-to-core-latency, results/Dual Intel(R) Xeon(R) CPU E5-2630 v4 @ 2.20GHz.csv, the
 * next smaller CPU of the family that Sherman ran on; [bench-micro] bench/micro/, measured on one machine and
 * scaled (docs/internals/simulator.md, The CPU).
 */
#include "sim/params.h"

#include <string.h>

#define PUBLISHED(name, low, high, source)                                                                   \
    {                                                                                                        \
        name, SIM_PUBLISHED, low, high, source                                                               \
    }
#define CALIBRATED(name, low, high, source)                                                                  \
    {                                                                                                        \
        name, SIM_CALIBRATED, low, high, source                                                              \
    }
#define ESTIMATE(name, low, high, source)                                                                    \
    {                                                                                                        \
        name, SIM_ESTIMATE, low, high, source                                                                \
    }

const struct sim_param_basis sim_params_basis[] = {
    ESTIMATE("block-responses", 0, 1, "not published: whether the stopped pipeline also holds up answers"),
    PUBLISHED("bandwidth", 90, 100, "Sherman 5.1: 100 Gb/s NICs; the low end leaves 10 % to flow control"),
    PUBLISHED("message-rate-in", 75, 200,
              "Sherman 4.3: 110 M/s of CAS come in; low: two thirds of it; high: CX5"),
    PUBLISHED(
        "message-rate-out", 75, 200,
        "Sherman 4.3: 110 M/s of CAS are answered; SMART-data: 111 M/s of READs leave a ConnectX-6; low: "
        "two thirds of it; high: CX5"),
    PUBLISHED("header-bytes", 30, 54, "IBA: LRH 8, BTH 12, RETH 16, ICRC 4, VCRC 2; answers 30, atomics 54"),
    PUBLISHED("mtu", 1024, 4096, "IBA: 256 to 4096"),
    ESTIMATE("inline-bytes", 0, 220,
             "high: usual limit of mlx5 queue pairs; low: Sherman's code makes its queue pairs with "
             "maxInlineData 0"),
    ESTIMATE("doorbell-ns", 150, 300, "half a PCIe round trip: Neugebauer18"),
    ESTIMATE("nic-ns", 50, 150, "what Sherman's round trip of 2 us leaves beside PCIe and wire"),
    CALIBRATED("wire-ns", 275, 425,
               "Sherman, Table 1: what inserts take more than lookups; cables and one switch (Calibration)"),
    PUBLISHED("pcie-read-ns", 400, 600, "Neugebauer18: DMA reads of 64 bytes"),
    ESTIMATE("pcie-write-ns", 150, 300, "half a PCIe round trip: Neugebauer18"),
    PUBLISHED("pcie-bandwidth", 100, 126, "PCIe 3.0 x16: 126 Gb/s of bits, some 100 of them payload"),
    ESTIMATE("dma-read-rate", 50, 110,
             "32 reads under way (the tags of PCIe without extensions) of 400 ns, low: of 600 ns; high: "
             "SMART-data, READs of 8 bytes at a ConnectX-6"),
    ESTIMATE("dma-read-bytes", 256, 4096, "PCIe: 128 to 4096; 512 is what systems usually set"),
    ESTIMATE("connection-cache", 512, 5000,
             "eRPC, figure 1: a ConnectX-5 with some 5,000 connections does half as many READs; so does this "
             "model with 1,000"),
    PUBLISHED("doorbells", 0, 16,
              "Sherman's code opens a device context per thread (ThreadConnection); high: rdma-core's "
              "default for one context"),
    ESTIMATE("doorbell-hold-ns", 130, 175,
             "SMART-data: k threads on a doorbell post once every 130 k to 175 k ns (rdma-read-per-qp)"),
    CALIBRATED("jitter-ns", 425, 500,
               "Sherman, Table 1: how far the percentiles of lookups lie apart (Calibration)"),
    CALIBRATED("atomic-fetch-ns", 325, 375,
               "Sherman, Table 1: the collapse under skewed writes; a PCIe read (Calibration)"),
    ESTIMATE("atomic-writeback-ns", 50, 400,
             "a PCIe write, as pcie-write-ns; Table 1 does not tell it (Calibration)"),
    PUBLISHED("chip-rate", 90, 110, "Sherman 4.3: 110 M/s"),
    ESTIMATE("chip-ns", 10, 100,
             "a few accesses to SRAM at some 200 to 1,000 MHz; no source states how long a word is busy"),
    PUBLISHED("rpc-cores", 1, 2, "Sherman 4.2: one thread; 5.1: two cores of a memory node"),
    ESTIMATE("rpc-ns", 500, 5000, "receive, handle and answer one message"),
    ESTIMATE("walk-ns", 50, 500, "measured on another CPU (below); it depends on the reply's length"),
    ESTIMATE(
        "walk-node-ns", 400, 1800,
        "measured on another CPU (below) with nodes in its caches; high: each of a node's lines from DRAM"),
    ESTIMATE("merge-entry-ns", 400, 1300,
             "measured on another CPU (below) with leaves in DRAM; low: that time as it is, since DRAM is no "
             "slower here"),
    ESTIMATE("receive-ns", 10, 150,
             "eRPC: a core handles up to 10 M/s of small RPCs, 100 ns for all of one; high: a buffer that is "
             "posted by itself, as post-ns"),
    ESTIMATE("post-ns", 40, 150,
             "SMART-data, fig4a: a thread posts and polls a further READ in 230 ns; split as in Kalia16"),
    ESTIMATE("command-ns", 10, 50, "as post-ns"),
    ESTIMATE("poll-ns", 30, 130, "as post-ns"),
    CALIBRATED("operation-ns", 825, 1225, "Sherman, Table 1: lookups and inserts alike (Calibration)"),
    ESTIMATE("search-ns", 50, 400, "Table 1 does not tell it from operation-ns; a few cache misses a node"),
    PUBLISHED("leaf-ns", 1, 4, "Sherman 5.2.1: 100 ns to traverse a whole leaf of 1 KiB; some 50 entries"),
    ESTIMATE("slot-check-ns", 1, 5,
             "bench-micro, slot-check: 2.5 to 3.5 at 3.8 GHz, scaled to 2.2 GHz, less leaf-ns"),
    ESTIMATE("split-ns", 500, 10000, "sorts and copies some 1 KiB"),
    ESTIMATE("handover-ns", 50, 400, "a cache line passed between cores, within and across sockets"),
    ESTIMATE(
        "line-transfer-ns", 40, 120,
        "nviennot: 39 ns within a socket and 117 ns across, by CAS, of two E5-2630 v4 at 2.2 GHz; the mean "
        "of two of 22 cores"),
    ESTIMATE("line-copy-ns", 6, 40,
             "line-transfer-ns times what bench-micro, image-line over line-pass, gains by overlapping: 0.16 "
             "to 0.2"),
    ESTIMATE("sort-ns", 8, 40, "bench-micro, entry-sort: 9 at 3.8 GHz, scaled to 2.2 GHz"),
    ESTIMATE("visit-ns", 1, 10,
             "bench-micro, entry-visit: 1.4 at 3.8 GHz, scaled to 2.2 GHz; more where visit does more"),
    ESTIMATE("checksum-ns", 3, 30,
             "bench-micro, checksum-line: 24 cycles, at 2.2 GHz; less if interleaved, more by tables"),
    ESTIMATE("yield-ns", 20, 200, "a switch between two fibers"),
    ESTIMATE("clock-ns", 10, 50, "reads the time stamp counter, and scales it"),
    {.name = NULL},
};

const struct sim_param_basis *sim_param_basis_find(const char *name)
{
    for (const struct sim_param_basis *row = sim_params_basis; row->name; row++)
        if (!strcmp(row->name, name))
            return row;
    return NULL;
}

const char *sim_basis_name(enum sim_basis basis)
{
    static const char *const names[] = {
        [SIM_PUBLISHED] = "published", [SIM_CALIBRATED] = "calibrated", [SIM_ESTIMATE] = "estimate"};
    return names[basis];
}
