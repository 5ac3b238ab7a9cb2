/* version.c - `banyan version`: what this executable is and what it was made with. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include "base/crc32c.h"
#include "cli/command.h"

#if defined(__x86_64__)
#define ARCHITECTURE "x86-64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "unknown"
#endif

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

static int print_json(void)
{
    json_t *json = json_pack("{s:s, s:s, s:s, s:s}", "version", BANYAN_VERSION_TEXT, "architecture",
                             ARCHITECTURE, "compiler", COMPILER, "crc32c", crc32c_implementation());
    int failed = !json || json_dumpf(json, stdout, JSON_INDENT(2));
    json_decref(json);
    return failed || putchar('\n') == EOF ? COMMAND_FAILED : COMMAND_OK;
}

int command_version(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--json"))
        return print_json();
    if (argc == 2 && !strcmp(argv[1], "--help")) {
        printf("Usage: banyan version [--json]\n\nPrints the version of this executable; --json for "
               "programs.\n");
        return COMMAND_OK;
    }
    if (argc > 1) {
        fprintf(stderr, "banyan version: unknown argument '%.60s'; only --json is known\n", argv[1]);
        return COMMAND_USAGE;
    }
    printf("banyan %s (%s, %s, crc32c %s)\n", BANYAN_VERSION_TEXT, ARCHITECTURE, COMPILER,
           crc32c_implementation());
    return COMMAND_OK;
}
