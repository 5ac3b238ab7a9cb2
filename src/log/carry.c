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
    return log->options.copies > 1 && log->memory_nodes > 1 && fabric_logs_on_disk(log->fabric);
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
