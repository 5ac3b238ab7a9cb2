/*
 * carry.c - Records that the second copy of a frame carries (L8 of docs/internals/log.md). An entry names a
 * record on the first copy's memory node. Where memory nodes copy their logs to disks, the second one must
 * have the record's bytes too: they stand in carriers right before the frame's second copy. Most are at hand,
 * since they are written ahead of the first copy; those that were written before are READ by its list. So
 * they cost bytes, and no round trip where the record travels with its entry.
 */
#include <stdlib.h>

#include "log/state.h"

bool log_carries(const struct log *log)
{
    return log->options.copies > 1 && log_nodes(log) > 1 && fabric_logs_on_disk(log->fabric);
}

bool log_carry_brought(const struct tree_logged_entry *entry)
{
    return entry->ahead_count == 1 && entry->ahead[0].address == entry->record &&
           entry->ahead[0].length == entry->record_bytes;
}

void log_carry_add(struct log_frame *frame, const struct tree_logged_entry *entry)
{
    struct log_carry *carry = &frame->carry;
    const uint32_t before = carry->carriers.used;
    format_log_carriers_add(&carry->carriers, entry->record, NULL, entry->record_bytes);
    frame->batch->carried += carry->carriers.used - before;
    if (log_carry_brought(entry)) {
        carry->commands |= UINT64_C(1) << (frame->ahead - 1);
        return;
    }
    /* Its buffer is known when all is. */
    carry->commands |= UINT64_C(1) << frame->ahead;
    frame->commands[frame->ahead++] = pool_read_command(entry->record, NULL, entry->record_bytes);
    carry->reads += entry->record_bytes;
}

static bool room_make(uint8_t **bytes, uint32_t *room, uint32_t wanted)
{
    if (wanted <= *room)
        return true;
    free(*bytes);
    *bytes = malloc(wanted);
    *room = *bytes ? wanted : 0;
    return *bytes;
}

bool log_carry_prepare(struct log_frame *frame)
{
    struct log_carry *carry = &frame->carry;
    uint32_t at = 0;
    const uint32_t bytes = format_log_carriers_end(&carry->carriers);
    if (!room_make(&carry->bytes, &carry->bytes_room, bytes) ||
        !room_make(&carry->scratch, &carry->scratch_room, carry->reads))
        return false;
    for (uint32_t i = 0; i < frame->ahead; i++) {
        struct fabric_command *command = &frame->commands[i];
        if (command->operation != FABRIC_READ)
            continue;
        command->read.buffer = carry->scratch + at;
        at += command->length;
    }
    return true;
}

void log_carry_fill(struct log_frame *frame, const struct log_place *place)
{
    struct log_carry *carry = &frame->carry;
    if (!carry->filled) {
        carry->carriers = (struct format_log_carriers){.bytes = carry->bytes};
        for (uint32_t i = 0; i < frame->ahead; i++) {
            struct fabric_command *command = &frame->commands[i];
            const bool read = command->operation == FABRIC_READ;
            if (!(carry->commands >> i & 1))
                continue;
            if (read)
                pool_read_settle(command);
            format_log_carriers_add(&carry->carriers, command->address,
                                    read ? command->read.buffer : command->write.data, command->length);
        }
        format_log_carriers_end(&carry->carriers);
        carry->filled = true;
    }
    format_log_carriers_seal(&carry->carriers, place->segment->nonce, place->position, place->committed,
                             frame->frame.first);
}

void log_carry_free(struct log_carry *carry)
{
    free(carry->bytes);
    free(carry->scratch);
}

/* ---- records of what is logged again ---- */

#define LISTS_AT_ONCE 16u
#define READS_AT_ONCE (LISTS_AT_ONCE * FABRIC_COMMANDS_MAX)

bool log_records_add(struct log_records *records, gaddr address, uint32_t bytes)
{
    struct log_record *grown =
        heap_grow(records->heap, records->items, records->count, &records->capacity, sizeof *grown);
    if (!grown)
        return false;
    records->items = grown;
    grown[records->count++] = (struct log_record){address, bytes};
    records->bytes += bytes;
    return true;
}

/* Those from `first` on, in as many lists as there may be at once; *count of them. */
static int records_read(struct log_records *records, struct tree_session *session, uint32_t first,
                        uint8_t *to, struct fabric_command *reads, uint32_t *count)
{
    struct fabric_list all[LISTS_AT_ONCE];
    struct fabric_list *lists[LISTS_AT_ONCE];
    uint32_t used = 0, posted = 0;
    for (; first + posted < records->count && posted < READS_AT_ONCE; posted++) {
        const struct log_record *record = &records->items[first + posted];
        const uint16_t node = gaddr_node(record->address);
        if (!used || all[used - 1].node != node || all[used - 1].count == FABRIC_COMMANDS_MAX) {
            if (used == LISTS_AT_ONCE)
                break;
            all[used] = (struct fabric_list){.node = node, .commands = &reads[posted]};
            lists[used] = &all[used];
            used++;
        }
        reads[posted] = pool_read_command(record->address, to, record->bytes);
        all[used - 1].count++;
        to += record->bytes;
    }
    *count = posted;
    int status = pool_lists_execute(tree_session_pool(session), lists, used);
    for (uint32_t i = 0; i < posted && !status; i++)
        pool_read_settle(&reads[i]);
    return status;
}

/* The records' bytes are in the scratch. */
static int carriers_make(struct log_records *records, struct tree_session *session)
{
    for (uint32_t turn = 0; turn < 2; turn++) { /* counted, then filled */
        uint8_t *bytes = records->carriers.bytes;
        uint32_t at = 0;
        records->carriers = (struct format_log_carriers){.bytes = bytes};
        for (uint32_t i = 0; i < records->count; i++) {
            const struct log_record *record = &records->items[i];
            format_log_carriers_add(&records->carriers, record->address, records->scratch + at,
                                    record->bytes);
            at += record->bytes;
        }
        const uint32_t room = format_log_carriers_end(&records->carriers);
        if (!turn)
            records->carriers.bytes = heap_allocate(records->heap, room);
        if (!records->carriers.bytes)
            return pool_fail_memory(tree_session_pool(session));
    }
    return 0;
}

int log_records_read(struct log_records *records, struct tree_session *session)
{
    const uint32_t most = records->count < READS_AT_ONCE ? records->count : READS_AT_ONCE;
    uint32_t at = 0, done = 0;
    int status = 0;
    if (!records->count)
        return 0;
    struct fabric_command *reads = heap_allocate_zeros(records->heap, most, sizeof *reads);
    records->scratch = heap_allocate(records->heap, records->bytes);
    if (!reads || !records->scratch)
        status = pool_fail_memory(tree_session_pool(session));
    while (!status && done < records->count) {
        uint32_t count;
        status = records_read(records, session, done, records->scratch + at, reads, &count);
        for (; count; count--)
            at += records->items[done++].bytes;
    }
    heap_free(records->heap, reads);
    return status ? status : carriers_make(records, session);
}

void log_records_clear(struct log_records *records)
{
    heap_free(records->heap, records->items);
    heap_free(records->heap, records->scratch);
    heap_free(records->heap, records->carriers.bytes);
    *records = (struct log_records){.heap = records->heap};
}
