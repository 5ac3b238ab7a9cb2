/*
 * check_level.h - what `banyan check` says of durability (docs/internals/durability.md): which level what was
 * written has. Pure, but for a look into the data directory.
 */
#ifndef CLI_CHECK_LEVEL_H
#define CLI_CHECK_LEVEL_H

#include "store/audit.h"

struct check_level {
    const char
        *name;      /* memory, process, disk, disk-second, disk-always: that of the memory node with least */
    char text[400]; /* a sentence about it; may be empty */
};
/* `data`: the directory of a server that does not run; NULL or empty: a cluster's memory nodes were asked. */
void check_level(const struct audit_report *report, const char *data, struct check_level *level);

#endif
