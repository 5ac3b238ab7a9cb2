/* config_json.h - the settings of a run in JSON, for the writers of reports. docs/benchmarks.md names them.
 */
#ifndef BENCH_CONFIG_JSON_H
#define BENCH_CONFIG_JSON_H

#include <jansson.h>
#include "bench/runner.h"

/* New references; NULL: no memory. */
json_t *config_json(const struct bench_config *config);
/* A table's rows with the values that the object has. */
json_t *config_json_table(const struct option_entry *table, const void *object);

#endif
