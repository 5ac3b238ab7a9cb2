/* batch.c - see batch.h. */
#include "bench/batch.h"

#include <stdlib.h>

/* One after the other, so that the order of calls is always the same. */
static const enum workload_kind batch_kinds[] = {WORKLOAD_LOOKUP, WORKLOAD_UPSERT, WORKLOAD_INSERT,
                                                 WORKLOAD_UPDATE};
#define KINDS (sizeof batch_kinds / sizeof batch_kinds[0])

struct bench_batch {
    uint32_t size;
    size_t key_bytes, value_bytes;
    struct workload_operation *drawn;
    struct tree_item *items; /* of one kind, those of the call under way */
    uint64_t *numbers;       /* theirs */
    uint8_t *keys, *values;  /* the items' */
};

bool bench_batch_takes(const struct workload *workload)
{
    double share = 0;
    for (size_t i = 0; i < KINDS; i++)
        share += workload->share[batch_kinds[i]];
    return share > 1.0 - 1e-12;
}

struct bench_batch *bench_batch_create(const struct bench_config *config)
{
    struct bench_batch *batch = calloc(1, sizeof *batch);
    if (!batch)
        return NULL;
    batch->size = config->batch;
    batch->key_bytes = config->geometry.key_bytes;
    batch->value_bytes = config->geometry.value_bytes;
    batch->drawn = calloc(batch->size, sizeof *batch->drawn);
    batch->items = calloc(batch->size, sizeof *batch->items);
    batch->numbers = calloc(batch->size, sizeof *batch->numbers);
    batch->keys = calloc(batch->size, batch->key_bytes);
    batch->values = calloc(batch->size, batch->value_bytes + 1); /* values may have no bytes */
    if (batch->drawn && batch->items && batch->numbers && batch->keys && batch->values)
        return batch;
    bench_batch_destroy(batch);
    return NULL;
}

void bench_batch_destroy(struct bench_batch *batch)
{
    if (!batch)
        return;
    free(batch->drawn);
    free(batch->items);
    free(batch->numbers);
    free(batch->keys);
    free(batch->values);
    free(batch);
}

/* The items of the drawn operations of a kind; how many there are. */
static uint32_t take_kind(struct bench_batch *batch, enum workload_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < batch->size; i++) {
        const struct workload_operation *operation = &batch->drawn[i];
        if (operation->kind != kind)
            continue;
        uint8_t *key = batch->keys + count * batch->key_bytes;
        uint8_t *value = batch->values + count * (batch->value_bytes + 1);
        workload_key(operation->number, key, batch->key_bytes);
        if (kind != WORKLOAD_LOOKUP)
            workload_value(operation->number, operation->salt, value, batch->value_bytes);
        batch->items[count] = (struct tree_item){.key = key,
                                                 .key_length = batch->key_bytes,
                                                 .value = value,
                                                 .length = batch->value_bytes,
                                                 .status = BANYAN_EUNKNOWN};
        batch->numbers[count++] = operation->number;
    }
    return count;
}

/* How many items' keys were not there; UINT32_MAX: the run has failed. `status` is the call's. */
static uint32_t judge(const struct bench_batch *batch, struct bench_client *client, enum workload_kind kind,
                      uint32_t count, int status)
{
    struct error error = {0};
    uint32_t absent = 0;
    if (status && status != BANYAN_ENOTFOUND) {
        const struct error *cause = tree_session_error(client->session);
        error_set(&error, status, "%s of %u keys: %s", workload_kind_names[kind], count,
                  cause->text[0] ? cause->text : error_name(status));
        bench_window_fail(client->window, &error);
        return UINT32_MAX;
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct tree_item *item = &batch->items[i];
        const bool found = !item->status;
        absent += item->status == BANYAN_ENOTFOUND;
        if (kind == WORKLOAD_LOOKUP && found &&
            !workload_value_matches(batch->numbers[i], item->value, item->length))
            error_set(&error, BANYAN_ECORRUPT, "key %llu came back with a value that was never written to it",
                      (unsigned long long)batch->numbers[i]);
        else if (!found && item->status != BANYAN_ENOTFOUND)
            error_set(&error, item->status, "%s of key %llu, one of %u: %s", workload_kind_names[kind],
                      (unsigned long long)batch->numbers[i], count, error_name(item->status));
    }
    if (!error.code)
        return absent;
    bench_window_fail(client->window, &error);
    return UINT32_MAX;
}

/* Performs and counts the drawn operations of a kind. */
static bool step_kind(struct bench_batch *batch, struct bench_client *client, enum bench_phase phase,
                      enum workload_kind kind, bool *waited)
{
    const uint32_t count = take_kind(batch, kind);
    if (!count)
        return true;
    const struct tree_stats *stats = tree_session_stats(client->session);
    const struct tree_stats before = *stats;
    const uint64_t begin = task_now();
    const int status = (kind == WORKLOAD_LOOKUP ? tree_multi_get : tree_multi_put)(
        client->session, client->tree, batch->items, count);
    const uint64_t end = task_now();
    const uint32_t absent = judge(batch, client, kind, count, status);
    if (absent == UINT32_MAX)
        return false;
    if (phase == BENCH_MEASURING && bench_window_phase(client->window) != BENCH_DONE) {
        bench_stats_add(client->meter->result, &before, stats);
        client->meter->result->absent += absent;
    }
    const struct fabric_cost cost = bench_cost_difference(&before.cost, &stats->cost);
    *waited |= cost.round_trips > 0;
    for (uint32_t i = 0; i < count; i++)
        bench_meter_count(client->meter, phase, kind, begin, end, i ? NULL : &cost);
    return true;
}

bool bench_batch_step(struct bench_batch *batch, struct bench_client *client, enum bench_phase phase,
                      bool *waited)
{
    bool well = true;
    *waited = false;
    for (uint32_t i = 0; i < batch->size; i++)
        workload_next(&client->generator, &batch->drawn[i]);
    for (size_t i = 0; i < KINDS && well; i++)
        well = step_kind(batch, client, phase, batch_kinds[i], waited);
    return well;
}
