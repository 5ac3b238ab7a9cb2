/* program.c - see program.h. */
#include "program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>

const char *program_path;

char *program_text(FILE *stream)
{
    char *text = NULL;
    size_t size = 0;
    FILE *copy = open_memstream(&text, &size);
    assert_non_null(copy);
    for (int c = fgetc(stream); c != EOF; c = fgetc(stream))
        fputc(c, copy);
    fclose(copy);
    return text;
}

struct program_outcome program_run(const char *arguments, const char *redirect)
{
    char command[1024];
    struct program_outcome outcome = {0};
    snprintf(command, sizeof command, "'%s' %s %s", program_path, arguments, redirect);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    outcome.text = program_text(pipe);
    int status = pclose(pipe);
    assert_true(WIFEXITED(status));
    outcome.code = WEXITSTATUS(status);
    return outcome;
}

void program_expect(const char *arguments, int code, const char *needle)
{
    struct program_outcome outcome = program_run(arguments, "2>&1");
    if (outcome.code != code || !strstr(outcome.text, needle))
        fail_msg("banyan %s: exit code %d, expected %d and '%s' in:\n%s", arguments, outcome.code, code,
                 needle, outcome.text);
    free(outcome.text);
}
