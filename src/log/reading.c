/*
 * reading.c - What the logs of earlier owners have that is not merged (L7 of docs/internals/log.md). A
 * process that dies leaves many ranges, which one transfer gives to others under one epoch. Their next owner
 * reads its log once: the READING is kept from the first range to the last, until heirs are taken off. Takes
 * memory for all entries that are not merged.
 */
#include <stdlib.h>
#include <string.h>

#include "log/reader.h"
#include "log/state.h"

/* ---- entries ---- */

/* Room for one more entry, and its bytes. */
static bool reading_reserve(struct log *log, struct log_reading *reading, uint32_t bytes)
{
    struct log_found *entries =
        heap_grow(&log->heap, reading->entries, reading->count, &reading->capacity, sizeof *entries);
    if (!entries)
        return false;
    reading->entries = entries;
    if (reading->room - reading->used < bytes) {
        const uint32_t room = reading->room ? 2 * reading->room : 64u << 10;
        uint8_t *grown = heap_resize(&log->heap, reading->bytes, room);
        if (!grown)
            return false;
        reading->bytes = grown;
        reading->room = room;
    }
    return true;
}

static bool entry_add(struct log *log, struct log_reading *reading, uint16_t node,
                      const struct format_log_entry *entry)
{
    const uint32_t bytes = entry->key.length + entry->value_length;
    if (!reading_reserve(log, reading, bytes))
        return false;
    reading->entries[reading->count++] = (struct log_found){.epoch = entry->epoch,
                                                            .sequence = entry->sequence,
                                                            .at = reading->used,
                                                            .index = entry->index,
                                                            .node = node,
                                                            .key_length = (uint8_t)entry->key.length,
                                                            .value_length = entry->value_length,
                                                            .process = (uint8_t)reading->process_count,
                                                            .deleted = entry->kind == FORMAT_LOG_DELETE};
    memcpy(reading->bytes + reading->used, entry->key.bytes, entry->key.length);
    if (entry->value_length)
        memcpy(reading->bytes + reading->used + entry->key.length, entry->value, entry->value_length);
    reading->used += bytes;
    return true;
}

/* ---- one process's log ---- */

struct process_reading {
    struct log *log;
    struct log_reading *reading;
    struct log_reader reader;
};

static int frame_keep(void *context, uint16_t node, const struct format_log_view *frame)
{
    struct process_reading *process = context;
    struct format_log_entry entry;
    uint32_t at = 0;
    while (format_log_frame_next(frame, &at, &entry))
        if (entry.sequence > process->reader.watermark &&
            !entry_add(process->log, process->reading, node, &entry))
            return pool_fail_memory(tree_session_pool(process->reader.session));
    return 0;
}

static int refuse(const struct log_reader *reader, const char *index, const struct log_fault *fault)
{
    return pool_fail(
        tree_session_pool(reader->session), BANYAN_ECORRUPT,
        "index %s: the log of compute node %u is corrupt at %016llx: %s, %u bytes, %s; the range "
        "is not served before their loss is accepted (banyan recover)",
        index, reader->process.compute_id, (unsigned long long)fault->address, log_fault_names[fault->kind],
        fault->bytes, fault->what);
}

static int process_read(struct log *log, struct tree_session *session, struct log_reading *reading,
                        const char *index, struct fabric_process process)
{
    const uint32_t count = reading->count, used = reading->used;
    struct process_reading one = {.log = log,
                                  .reading = reading,
                                  .reader = {.heap = &log->heap,
                                             .session = session,
                                             .process = process,
                                             .memory_nodes = log_nodes(log),
                                             .visit = frame_keep}};
    one.reader.context = &one;
    int status = log_reader_run(&one.reader);
    const struct log_fault *lost = status ? NULL : log_reader_lost(&one.reader);
    if (lost)
        status = refuse(&one.reader, index, lost);
    log_reader_end(&one.reader);
    if (status) {
        reading->count = count;
        reading->used = used;
    } else {
        reading->processes[reading->process_count++] = process;
    }
    return status;
}

/* ---- all of them ---- */

static int found_compare(const void *a, const void *b, void *bytes)
{
    const struct log_found *one = a, *two = b;
    if (one->index != two->index)
        return one->index < two->index ? -1 : 1;
    const struct format_key left = {(const uint8_t *)bytes + one->at, one->key_length};
    const struct format_key right = {(const uint8_t *)bytes + two->at, two->key_length};
    int order = format_key_compare(left, right);
    if (order)
        return order;
    if (one->epoch != two->epoch)
        return one->epoch < two->epoch ? 1 : -1;
    return one->sequence < two->sequence ? 1 : one->sequence > two->sequence ? -1 : 0;
}

int log_reading_find(const struct log_reading *reading, struct fabric_process process)
{
    for (uint32_t i = 0; i < reading->process_count; i++)
        if (fabric_process_equal(reading->processes[i], process))
            return (int)i;
    return -1;
}

int log_reading_complete(struct log *log, struct tree_session *session, struct log_reading *reading,
                         const char *index, const struct log_heir *processes, uint32_t count)
{
    const uint32_t before = reading->process_count;
    int status = 0;
    for (uint32_t i = 0; i < count && !status; i++) /* one may be there twice */
        if (log_reading_find(reading, processes[i].process) < 0)
            status = process_read(log, session, reading, index, processes[i].process);
    if (reading->process_count > before && reading->count)
        qsort_r(reading->entries, reading->count, sizeof *reading->entries, found_compare, reading->bytes);
    return status;
}

/* ---- the one that is kept ---- */

void log_reading_free(struct log *log, struct log_reading *reading)
{
    if (!reading)
        return;
    heap_free(&log->heap, reading->entries);
    heap_free(&log->heap, reading->bytes);
    heap_free(&log->heap, reading);
}

/* From here on it is the caller's; NULL: none is kept. */
static struct log_reading *reading_take(struct log *log)
{
    spinlock_lock(&log->lock);
    struct log_reading *reading = log->reading;
    log->reading = NULL;
    spinlock_unlock(&log->lock);
    return reading;
}

void log_reading_drop(struct log *log)
{
    log_reading_free(log, reading_take(log));
}

void log_reading_keep(struct log *log, struct log_reading *reading)
{
    spinlock_lock(&log->lock);
    const bool kept = !log->reading;
    if (kept)
        log->reading = reading;
    spinlock_unlock(&log->lock);
    if (!kept)
        log_reading_free(log, reading);
}

struct log_reading *log_reading_take(struct log *log, uint64_t epoch, uint32_t processes)
{
    struct log_reading *reading = reading_take(log);
    if (reading && reading->epoch == epoch && reading->process_count + processes <= LOG_READING_PROCESSES)
        return reading;
    log_reading_free(log, reading);
    reading = heap_allocate_zeros(&log->heap, 1, sizeof *reading);
    if (reading)
        reading->epoch = epoch;
    return reading;
}
