/*
 * recover_disk.h - `banyan recover --data`: what the journals of a cluster's memory nodes have, told or
 * written to a file. One thread; the memory nodes do not run.
 */
#ifndef CLI_RECOVER_DISK_H
#define CLI_RECOVER_DISK_H

#include <stdbool.h>
#include <stdint.h>
#include "base/error.h"

struct recover_disk_settings {
    const char *directories; /* comma separated */
    const char *output;      /* NULL: it is only told what is there */
    const char *index;       /* its name or number; NULL: the only one */
    const char *lost;        /* numbers of memory nodes whose disks are gone, comma separated; NULL: none */
    bool accept_loss, json;
};

/* BANYAN_EINVAL: the directories are not those of one cluster, one each; BANYAN_EBUSY: a memory node runs;
 * BANYAN_ECORRUPT: what was promised is damaged or missing. */
/* *doubtful: without an output, what is told is not all that there was, or may not be. */
int recover_disk(const struct recover_disk_settings *settings, bool *doubtful, struct error *error);

#endif
