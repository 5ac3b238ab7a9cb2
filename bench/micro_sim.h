/*
 * micro_sim.h - experiments on the simulated NIC alone, without any index: those that papers made to see what
 * their hardware does.
 *
 *   LOCKS   Sherman 3.2.2, Figure 2: threads of all compute nodes but one (there: 7 x 22) acquire and release
 *           10,240 locks in the host memory of one memory node, by CAS and FAA, as fast as they can, with
 *           popularity zipfian of theta. One operation is both.
 *   CHIP    Sherman 4.3: the same threads do CASes on random words of the memory node's NIC, 16 at a time.
 *           One operation is one CAS.
 *   READ    one thread alone READs `bytes` from random places of 64 MiB, one at a time.
 *
 * The memory node is a machine of its own. Called from a plain thread; costs no memory to speak of.
 */
#ifndef BENCH_MICRO_SIM_H
#define BENCH_MICRO_SIM_H

#include "bench/runner.h"

enum micro_sim_kind { MICRO_SIM_LOCKS, MICRO_SIM_CHIP, MICRO_SIM_READ };

struct micro_sim {
    enum micro_sim_kind kind;
    double theta;   /* LOCKS */
    uint32_t bytes; /* READ */
};

/* "locks, theta 0.99": what a report calls it. */
void micro_sim_name(const struct micro_sim *micro, char *name, size_t size);
/* Fills throughput, latencies, costs and the trace's hash. Of the configuration it takes the simulator's
 * parameters, the compute nodes, their threads, the seed and the operations. */
int micro_sim_run(const struct bench_config *config, const struct micro_sim *micro,
                  struct bench_result *result, struct error *error);

#endif
