/*
 * data_directory.h - what `banyan serve --data DIR` keeps: memory nodes in this process, whose pools lie in
 * the files DIR/pool-0, DIR/pool-1 and so on (docs/internals/durability.md, level process). Other files of
 * other names may join them.
 *
 * FIRST START. The directory is made, or was empty. All pools are made, then each is told that it belongs to
 * one new cluster, pool-0 last: as long as that belongs to none, nothing was ever stored, and who opens the
 * directory begins again. So a start may be killed anywhere.
 *
 * One thread. Opening costs what opening the files costs; making them takes their whole size from the file
 * system. Errors name the directory or the file, and what can be done: BANYAN_EINVAL (it is none of ours, or
 * the settings are others), BANYAN_EBUSY (another process has it), and those of memory/keep_file.h.
 */
#ifndef CLI_DATA_DIRECTORY_H
#define CLI_DATA_DIRECTORY_H

#include <stdbool.h>

#include "memory/memory.h"

#define DATA_NODES_MAX 64u
/* A directory in it: what outlives power (durable/durable.h). */
#define DATA_DISK "disk"
/* Threads that can work on it at once, each of which stages its writes; some more are needed for a moment. */
#define DATA_THREADS_MAX (MEMORY_STAGINGS - 8u)

struct data_directory {
    struct memory_node *nodes[DATA_NODES_MAX]; /* owned; until the first NULL */
    const struct fabric_target *targets[DATA_NODES_MAX];
    uint32_t count;
    bool used; /* blocks are handed out: something was stored */
    bool cut;  /* its last process did not end in order */
    uint64_t cluster;
};
struct data_wishes {
    uint32_t memory_nodes;          /* 0: as many as there are; 1 if there are none */
    uint64_t pool_bytes, log_bytes; /* of each; 0: what the files have, or as memory.h says */
    bool huge_pages;                /* of their file systems, where those have some */
    bool existing;                  /* makes nothing: BANYAN_EINVAL where there is no store */
    /* What the pools hold is on a disk too (durable/durable.h): */
    uint64_t cluster; /* not 0: new pools belong to it; a directory without pools may have other files */
    bool anew;        /* pools that there are are removed first */
};

/* Whether the pools can only be made anew: there is no pool-0, or the machine went down while one was in use.
 */
bool data_directory_lost(const char *path);

/* Makes it, if it is missing. */
int data_directory_make(const char *path, struct error *error);
/* Must be closed, also when it fails. */
int data_directory_open(struct data_directory *data, const char *path, const struct data_wishes *wishes,
                        struct error *error);
/* Writes everything to the file system: it outlives the machine then. When nothing uses the nodes. */
void data_directory_close(struct data_directory *data);

#endif
