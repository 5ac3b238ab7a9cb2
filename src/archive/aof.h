/*
 * aof.h - Redis's append-only files: commands as clients send them. A file may begin with a snapshot (rdb.h).
 *
 * One thread. A command is in memory as a whole, and so is a transaction, since it counts only with its EXEC.
 */
#ifndef ARCHIVE_AOF_H
#define ARCHIVE_AOF_H

#include <stdbool.h>
#include "archive/entry.h"
#include "archive/source.h"

#define AOF_ARGUMENTS_MAX (1u << 20)
#define AOF_COMMAND_MAX   (UINT64_C(1) << 30) /* bytes of a command, and of a transaction */

struct aof_argument {
    const uint8_t *bytes;
    size_t length;
};

struct aof_command {
    uint64_t position; /* in the file */
    uint32_t count;    /* at least 1 */
    const struct aof_argument *arguments;
    bool in_transaction;
};

/* As archive_visit_function. MULTI and EXEC are not visited, nor a transaction without its EXEC. */
typedef int aof_visit_function(void *context, const struct aof_command *command, struct error *error);

struct aof_counts {
    uint64_t commands; /* that were visited */
    uint64_t cut_at;   /* with `cut`: where what was left out begins */
    bool cut; /* the file ends within a command or a transaction, which was left out, as Redis does */
};

/* Whether the bytes may begin such a file. */
bool aof_begins(const uint8_t *bytes, size_t length);
/* From the source's place to its end. BANYAN_ECORRUPT: something in the middle is no command. */
int aof_read(struct source *source, aof_visit_function *visit, void *context, struct aof_counts *counts,
             struct error *error);
/* The commands that store an entry: SET, and PEXPIREAT where it expires. */
int aof_write(const struct archive_entry *entry, archive_write_function *write, void *context,
              struct error *error);

#endif
