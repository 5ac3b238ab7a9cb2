/*
 * chaos.h - two memory nodes, two compute nodes and a load on both, while things are done to one of them; in
 * the end the cluster's memory is audited to the last block.
 *
 * chaos_run ends the test program with a message when something is wrong, and else returns what it measured.
 */
#ifndef TESTS_CLUSTER_CHAOS_H
#define TESTS_CLUSTER_CHAOS_H

#include <stdbool.h>
#include <stdint.h>

struct load_kind;
enum chaos_reach { CHAOS_TCP, CHAOS_MAPPED, CHAOS_BOTH, CHAOS_COPY, CHAOS_RDMA };
enum chaos_deed {
    CHAOS_KILL,    /* SIGKILL and start again */
    CHAOS_STOP,    /* SIGSTOP until it is fenced, then SIGCONT */
    CHAOS_RESTART, /* a memory node, whose pool lies in a file: SIGKILL, or sometimes SIGTERM, and start again
                    */
    CHAOS_CUT,     /* its connections, or the other's, to one memory node are cut */
    CHAOS_HOLD,    /* its bytes are held back until it is fenced, then delivered */
    CHAOS_SLOW,    /* its bytes arrive late, and it is killed meanwhile */
    CHAOS_SHAPE,   /* everybody's bytes trickle in small pieces or at a low rate; sometimes it is killed
                      meanwhile */
};
struct chaos_variant {
    const char *name;
    enum chaos_reach reach;
    enum chaos_deed deed;
};
extern const struct chaos_variant chaos_variants[]; /* ends with a NULL name */
/* On the NIC at $BANYAN_RDMA_ADDRESS; of RESP servers. */
extern const struct chaos_variant chaos_variants_rdma[]; /* as above */
/* How compute nodes change keys of their own ranges. */
enum chaos_writing {
    CHAOS_IN_PLACE,
    CHAOS_LOGGED,    /* they keep logs (--log auto) */
    CHAOS_EXCHANGED, /* memory nodes make the changes (--exchange-walks always); of RESP servers */
};
/* "NAME"; or "NAME+log", "NAME+exchange": with the other ways of writing. */
const struct chaos_variant *chaos_variant_find(const char *name, enum chaos_writing *writing);
/* Whether its compute nodes can keep a log: none has mapped a pool. */
bool chaos_variant_logs(const struct chaos_variant *variant);

/* Leases. A busy machine may hold a process up for a second, and a survivor that is fenced fails the run: its
 * lease is one that no load eats up, but where BANYAN_STRICT=1 says that the machine is quiet, and on a NIC,
 * whose emulation needs time-outs that follow from it. The compute node that things are done to has the
 * short lease where the deed lasts until the lease ends, and one less short where it has mapped the pools:
 * then it does not come back from a fencing that was the machine's doing. Where it dies at once it has the
 * long one, as the memory nodes notice a death by the connections that close, and whoever waits for the lease
 * instead is found by CHAOS_STALL_NS. */
#define CHAOS_LEASE_SHORT_MS  1000u
#define CHAOS_LEASE_MAPPED_MS 2000u
#define CHAOS_LEASE_LONG_MS   30000u
#define CHAOS_STALL_NS        UINT64_C(10000000000)
uint32_t chaos_lease_ms(const struct chaos_variant *variant);
bool chaos_strict(void);
/* Beside one that things are done to with this lease. */
uint32_t chaos_survivor_lease_ms(const struct chaos_variant *variant, uint32_t lease_ms);

struct chaos_options {
    const struct chaos_variant *variant;
    const struct load_kind *kind; /* NULL: RESP servers */
    const char *lies;             /* of the library's kind: see load_kind.h */
    enum chaos_writing writing;   /* the run fails if the compute nodes do not write so */
    uint64_t seed;
    unsigned deeds;
    uint64_t until_ns;          /* no more deeds after this; 0: all of them */
    uint32_t lease_ms;          /* of the compute node that things are done to */
    uint32_t survivor_lease_ms; /* of the other */
    uint64_t stall_max_ns;      /* of an operation of the compute node that nothing was done to */
    unsigned verify_every;      /* deeds; 0: in the end */
    bool tell;                  /* a line for each deed */
};
struct chaos_result {
    uint64_t deeds, operations, unknown, refused, disconnected, longest_ns;
    uint64_t blocks_lost, bytes_lost, blocks_reclaimed, entries;
};
void chaos_run(const struct chaos_options *options, struct chaos_result *result);
/* One line. */
void chaos_print(const struct chaos_options *options, const struct chaos_result *result);

#endif
