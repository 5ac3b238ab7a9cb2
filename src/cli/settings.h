/*
 * settings.h - a command's settings from flags, the environment and one file, in that order of precedence.
 *
 * One table (base/options.h) says it all: setting `clients-max` is --clients-max on the command line,
 * BANYAN_CLIENTS_MAX in the environment, and `clients-max = 10000` in the file that --config or BANYAN_CONFIG
 * names. A file has lines `name = value`, comments from # on, and sections: what stands under [compute] is
 * for `banyan compute` alone, what stands before the first section for every command that reads the file.
 */
#ifndef CLI_SETTINGS_H
#define CLI_SETTINGS_H

#include "base/options.h"

struct settings_command {
    const char *name; /* "compute": section and help */
    const struct option_entry *table;
    const char *documentation; /* what it does; behind \v what stands below the options */
    const char *arguments;     /* of the usage line: "[ADDRESS...]"; NULL: none are taken */
    unsigned arguments_max;
};

struct settings_arguments {
    char **values; /* of the command line: not copied */
    unsigned count;
};

/* Fills `object`, which holds the defaults. Prints --help and ends the process, and on a wrong command line
 * too (status 2), as argp does. A wrong file or environment: BANYAN_EINVAL with a message that names file and
 * line, or the variable. `arguments` may be NULL if none are taken. */
int settings_read(const struct settings_command *command, void *object, int argc, char **argv,
                  struct settings_arguments *arguments, struct error *error);
/* One file; for tests. */
int settings_read_file(const struct settings_command *command, void *object, const char *path,
                       struct error *error);

#endif
