/*
 * output_file.h - a file that a command makes: it gets its name when it is whole and on the disk. For `banyan
 * dump` and `banyan recover`. One thread.
 */
#ifndef CLI_OUTPUT_FILE_H
#define CLI_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include "base/error.h"

struct output_file {
    const char *name; /* borrowed; "-": standard output */
    FILE *file;
    char *temporary; /* where it is made; NULL: standard output, or it has its name */
    uint64_t written;
};

int output_file_open(struct output_file *output, const char *name, struct error *error);
/* An archive_write_function; its context is the file. */
int output_file_write(void *output, const void *bytes, size_t length, struct error *error);
/* Whether what was written can be taken back: not on standard output. */
bool output_file_rewinds(const struct output_file *output);
/* Cuts the file back to its first `length` bytes. */
int output_file_rewind(struct output_file *output, uint64_t length, struct error *error);
int output_file_publish(struct output_file *output, struct error *error);
/* In the end, in any case: what has no name yet is removed. */
void output_file_close(struct output_file *output);

#endif
