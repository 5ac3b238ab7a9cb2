/*
 * reports.h - what `banyan bench` writes, for tests of its JSON and its page. One thread; a run that fails,
 * or a report without what a test asks for, is a failed assertion. Arguments are those after `banyan bench`.
 */
#ifndef TESTS_CLI_REPORTS_H
#define TESTS_CLI_REPORTS_H

#include <jansson.h>

/* The JSON as it is written, malloc'ed for the caller. */
char *reports_run(const char *arguments);
/* The same of two runs, which must be equal. */
char *reports_repeat(const char *arguments);
/* New references. */
json_t *reports_parse(const char *text);
json_t *reports_json(const char *arguments);
/* The page that --report writes, malloc'ed for the caller, and where `output` is no NULL what the run prints,
 * malloc'ed too. */
char *reports_page(const char *arguments, char **output);

/* The row `index` of "results", borrowed. */
const json_t *reports_result(const json_t *report, size_t index);
/* The member of that name, which must be a number, or a string (borrowed). */
double reports_number(const json_t *json, const char *name);
const char *reports_string(const json_t *json, const char *name);
/* A row of "results" must have all that each run tells, with sound numbers, and at least so many operations.
 */
void reports_check(const json_t *result, double operations);

#endif
