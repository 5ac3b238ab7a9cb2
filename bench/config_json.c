/* config_json.c - see config_json.h. */
#include "bench/config_json.h"

#include <stdlib.h>

#include "bench/json_numbers.h"

json_t *config_json_table(const struct option_entry *table, const void *object)
{
    json_t *json = json_object();
    for (const struct option_entry *entry = table; entry->kind != OPTION_END; entry++) {
        char text[64];
        option_format(entry, object, text, sizeof text);
        char *end = text;
        double value = strtod(text, &end);
        if (entry->kind == OPTION_BOOL)
            json_object_set_new(json, entry->name,
                                json_boolean(*(const bool *)((const char *)object + entry->offset)));
        else if (entry->kind == OPTION_U32)
            json_object_set_new(json, entry->name,
                                json_unsigned(*(const uint32_t *)((const char *)object + entry->offset)));
        else if (entry->kind == OPTION_U64)
            json_object_set_new(json, entry->name,
                                json_unsigned(*(const uint64_t *)((const char *)object + entry->offset)));
        else if (entry->kind == OPTION_DOUBLE && end != text && !*end)
            json_object_set_new(json, entry->name, json_real(value));
        else
            json_object_set_new(json, entry->name, json_string(text));
    }
    return json;
}

json_t *config_json(const struct bench_config *config)
{
    json_t *json = json_object();
    json_object_set_new(json, "fabric", json_string(bench_fabric_names[config->fabric]));
    json_object_set_new(json, "memory_nodes", json_unsigned(config->memory_nodes));
    json_object_set_new(json, "compute_nodes", json_unsigned(config->compute_nodes));
    json_object_set_new(json, "threads", json_unsigned(config->threads));
    json_object_set_new(json, "fibers", json_unsigned(config->fibers));
    json_object_set_new(json, "keys", json_unsigned(config->keys));
    json_object_set_new(json, "operations", json_unsigned(config->operations));
    json_object_set_new(json, "warm_up", json_unsigned(config->warm_up));
    json_object_set_new(json, "seed", json_unsigned(config->seed));
    json_object_set_new(json, "key_bytes", json_unsigned(config->geometry.key_bytes));
    json_object_set_new(json, "value_bytes", json_unsigned(bench_config_value_bytes(config)));
    json_object_set_new(json, "leaf_bytes", json_unsigned(config->geometry.leaf_bytes));
    json_object_set_new(json, "internal_bytes", json_unsigned(config->geometry.internal_bytes));
    json_object_set_new(json, "fill", json_real(config->fill));
    json_object_set_new(json, "theta", json_real(config->theta));
    json_object_set_new(json, "skew_of", json_unsigned(config->skew_of));
    json_object_set_new(json, "scan_length", json_unsigned(config->scan_length));
    json_object_set_new(json, "batch", json_unsigned(config->batch));
    if (config->fabric == BENCH_SIM) {
        json_object_set_new(json, "sim", config_json_table(sim_params_table, &config->sim));
        json_object_set_new(json, "faults", config_json_table(sim_faults_table, &config->faults));
    }
    return json;
}
