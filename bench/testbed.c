/* testbed.c - see testbed.h. Numbers in brackets are sections of the paper that the testbed is named after.
 */
#include "bench/testbed.h"

#include <stdio.h>
#include <string.h>

const struct testbed testbeds[] = {
    {
        /* [5.1]: eight servers, each of them one memory and one compute server ("we emulate each server as
         * one MS and one CS") with one ConnectX-5 of 100 Gb/s; 22 client threads and a cache of 500 MB on
         * each compute server; tree nodes of 1 KB. [4.2]: one memory thread serves a memory server's RPCs.
         * The simulator's defaults are this NIC, so that few parameters differ. */
        .name = "sherman",
        .about = "8 machines, each a memory and a compute node of 22 threads; ConnectX-5, 100 Gb/s",
        .memory_nodes = 8,
        .compute_nodes = 8,
        .threads = 22,
        .leaf_bytes = 1024,
        .internal_bytes = 1024,
        .cache_bytes = UINT64_C(500) << 20,
        .sim = "shared-nic=on,bandwidth=100,rpc-cores=1",
        .switches = "",
    },
    {
        /* [8.1]: four servers, each of them one compute server of 36 cores and one memory server of 4, one
         * ConnectX-5 of 100 Gb/s each; 144 compute-side and 16 memory-side threads; 256 MB of cache on each
         * compute server, 8 % of the 200 million 16-byte records that are loaded; nodes of 1 KB. What the
         * cache holds decides here, so it shrinks with the keys. Two sockets a server: the simulator knows no
         * NUMA. Access to the memory server on the same machine takes 90 % of the time through the switch. */
        .name = "dex",
        .about = "4 machines, each a memory and a compute node of 36 threads; ConnectX-5, 100 Gb/s",
        .memory_nodes = 4,
        .compute_nodes = 4,
        .threads = 36,
        .leaf_bytes = 1024,
        .internal_bytes = 1024,
        .cache_bytes = UINT64_C(256) << 20,
        .keys = 200000000,
        .sim = "shared-nic=on,bandwidth=100,rpc-cores=4",
        .switches = "",
    },
    {
        /* [4]: four server machines of two cores, other machines for clients; a ConnectX EN DDR of 20 Gb/s
         * each: 16 Gb/s of data, as DDR lanes carry 8 bits in 10. [4.2]: the biggest run has 48 client
         * machines for 16 servers, 80 processes of 3 threads: 3 machines a server, 5 threads a machine. [3],
         * [4]: nodes of 1 KB, a cache of 128 MB. message-rate-in, -out: fitted to the microbenchmark that
         * [4.1] repeats from its Table 1, 1.04 million READs of 1 KB a second of one server. pcie-bandwidth:
         * x8 lanes of 2.5 GT/s, 8 bits in 10; an estimate. subtree-levels: all that is not cached lies in one
         * meganode (its meganodes have five levels and more). lock-width, masked-cas, lock-region: the paper
         * uses no atomics; taken to lend no memory and to have no CAS of a part of a word, the safe side. */
        .name = "cell",
        .about = "4 servers of 2 cores and 12 client machines of 5 threads; ConnectX DDR, 20 Gb/s",
        .memory_nodes = 4,
        .compute_nodes = 12,
        .threads = 5,
        .leaf_bytes = 1024,
        .internal_bytes = 1024,
        .subtree_levels = 4,
        .cache_bytes = UINT64_C(128) << 20,
        .sim = "shared-nic=off,bandwidth=16,message-rate-in=1.04,message-rate-out=1.04,pcie-bandwidth=16,"
               "rpc-cores=2,lock-width=8,masked-cas=off",
        .switches = "lock-region=dram",
    },
    {
        /* [5]: one DPM of 4 threads and up to 16 KNs of 8 threads and 1 GB of cache, each on a server of its
         * own; ConnectX-3 FDR, 56 Gb/s: 54.5 Gb/s of data, as FDR lanes of 14.0625 Gb/s carry 64 bits in 66.
         * pcie-bandwidth: PCIe 3.0 x8, half of what the default has. The paper has no tree: nodes of 1 KB are
         * ours. lock-region: taken to lend no memory, which Sherman 4.3 has from the ConnectX-5.
         * read-lease-ns: ours too; it is most of the time until the ranges of a compute node that fails are
         * served again. */
        .name = "dinomo",
        .about = "1 memory node of 4 cores and 16 compute nodes of 8 threads; ConnectX-3 FDR, 56 Gb/s",
        .memory_nodes = 1,
        .compute_nodes = 16,
        .threads = 8,
        .leaf_bytes = 1024,
        .internal_bytes = 1024,
        .cache_bytes = UINT64_C(1) << 30,
        .sim = "shared-nic=off,bandwidth=54.5,pcie-bandwidth=63,rpc-cores=4,read-lease-ns=40000000",
        .switches = "lock-region=dram",
    },
    {.name = NULL},
};

const struct testbed *testbed_find(const char *name, struct error *error)
{
    char names[200] = "";
    for (const struct testbed *testbed = testbeds; testbed->name; testbed++) {
        if (!strcmp(testbed->name, name))
            return testbed;
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", testbed->name);
    }
    error_set(error, BANYAN_EINVAL, "--testbed: '%.40s' is not one of %s; --list shows what they are", name,
              names);
    return NULL;
}
