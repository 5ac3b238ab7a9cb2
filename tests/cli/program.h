/*
 * program.h - `banyan` from outside, for tests of its commands: exit code and output. One thread; a
 * failure of the test's own means is a failed assertion.
 */
#ifndef TESTS_CLI_PROGRAM_H
#define TESTS_CLI_PROGRAM_H

#include <stdio.h>

extern const char *program_path; /* the executable: a test sets it from its argument */

struct program_outcome {
    int code;
    char *text; /* malloc'ed for the caller */
};

/* Runs the executable under the shell; standard error is added where `redirect` says so. */
struct program_outcome program_run(const char *arguments, const char *redirect);
/* Standard output and error must hold `needle`, and the exit code must be this one. */
void program_expect(const char *arguments, int code, const char *needle);
/* All that a stream gives until its end, malloc'ed for the caller. */
char *program_text(FILE *stream);

#endif
