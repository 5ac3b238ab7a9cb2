/*
 * load_kind.h - what a cluster under chaos consists of beside its memory nodes: which program its compute
 * nodes run, which load is put on them, and which judge checks it. Two kinds: RESP servers with clients
 * (load.h), and programs with the public library, driven as the simulator's compute nodes are (swarm_load.c).
 *
 * All calls from the scene's thread; an error ends the test program with a message (fail_hard).
 */
#ifndef TESTS_CLUSTER_LOAD_KIND_H
#define TESTS_CLUSTER_LOAD_KIND_H

#include "cluster/load.h"
#include "cluster/process.h"

#define LOAD_ARGUMENTS_MAX 32u

struct load_setup {
    struct scene *scene;
    uint64_t seed;
    uint32_t lease_ms[LOAD_SERVERS];
    bool copy;               /* map no pools */
    bool logged;             /* compute nodes keep logs */
    bool exchanged;          /* memory nodes are asked to make changes (servers only) */
    const char *secret_file; /* of the memory nodes; NULL: none */
    const char *lies;        /* how the workers lie: "lose", "miss"; NULL: not at all (library only) */
};

struct load_kind {
    const char *name;
    /* Before anything but the memory nodes runs; `memories` is how they are reached. */
    void *(*create)(const struct load_setup *setup, const char *memories);
    /* The program (NULL: banyan) and arguments of a compute node's next process. */
    const char *(*compute)(void *load, unsigned server, const char *memories, bool first,
                           const char *arguments[LOAD_ARGUMENTS_MAX]);
    /* The compute nodes run: work begins. */
    void (*start)(void *load, struct process *const computes[LOAD_SERVERS]);
    /* The first deed is about to be done: all that it waits for is so. */
    void (*underway)(void *load);
    /* As in load.h. */
    void (*figures)(const void *load, unsigned server, struct load_figures *figures);
    void (*forget_longest)(void *load);
    void (*advance)(void *load, uint64_t operations);
    void (*next_epoch)(void *load);
    /* A compute node was started anew: waits until it owns a share of the key ranges again, so that the next
     * deed hits an owner. */
    void (*settle)(void *load);
    void (*pause)(void *load);
    void (*resume)(void *load);
    void (*verify)(void *load);
    /* Nothing is done to the cluster any more: no operation may take longer than this from now on. */
    void (*calm)(void *load, uint64_t patience_ns);
    void (*stop)(void *load);
};

extern const struct load_kind load_servers, load_library;

#endif
