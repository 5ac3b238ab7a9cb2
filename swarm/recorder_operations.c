/* recorder_operations.c - operations of the drivers, at their beginning and their end (contract:
 * recorder_state.h). */
#include <inttypes.h>

#include "swarm/recorder_state.h"

static bool covers(const struct recorder *recorder, const struct driver_sight *sight, size_t *which)
{
    const struct recorder_focus *focus = &recorder->recording->focus;
    for (*which = 0; focus->has_key && *which < sight->count; ++*which)
        if (sight->ops[*which].key == focus->key)
            return true;
    *which = 0;
    return false;
}

static void tell_begin(struct record *record, const struct driver_sight *sight, size_t which)
{
    const struct history_op *op = &sight->ops[which];
    const char *name = history_kind_name((enum history_kind)op->kind);
    if (sight->scan) {
        record_add(record, "scan [%" PRIu64 ", %" PRIu64 ")%s", sight->scan->low, sight->scan->high,
                   sight->scan->reverse ? " backwards" : "");
        if (sight->scan->limit)
            record_add(record, " limit %" PRIu64, sight->scan->limit);
        return;
    }
    if (sight->count > 1)
        record_add(record, "%zu keys at once: ", sight->count);
    record_add(record, "%s %" PRIu64, name, op->key);
    if (op->kind == HISTORY_CAS)
        record_add(record, ": v%" PRIu64 " to v%" PRIu64, op->expected, op->argument);
    else if (op->argument)
        record_add(record, " = v%" PRIu64, op->argument);
    else if (op->kind == HISTORY_MODIFY)
        record_add(record, ": remove");
}

static void tell_outcome(struct record *record, int status, const struct history_op *op)
{
    bool reads = op->kind == HISTORY_GET || op->kind == HISTORY_MODIFY;
    switch (status) {
    case 0:
        if (reads && op->known && op->result)
            record_add(record, "%sv%" PRIu64, op->kind == HISTORY_GET ? "" : "saw ", op->result);
        else
            record_add(record, op->kind == HISTORY_MODIFY ? "saw none" : "done");
        break;
    case BANYAN_ENOTFOUND:
        record_add(record, "none");
        break;
    case BANYAN_EEXIST:
        record_add(record, "exists");
        break;
    case BANYAN_ECONFLICT:
        record_add(record, "differs");
        break;
    case BANYAN_EUNKNOWN:
        record_add(record, "done or not");
        break;
    default:
        record_add(record, "not done (%s)", error_name(status));
    }
}

static void tell_end(struct record *record, const struct driver_sight *sight, size_t which, bool covered)
{
    const struct history_op *op = &sight->ops[which];
    record_add(record, "-> ");
    if (sight->scan && sight->status) {
        record_add(record, "%s", error_name(sight->status));
    } else if (sight->scan && covered) {
        uint64_t value = sight->scan->values[op->key - sight->scan->low];
        if (value)
            record_add(record, "%" PRIu64 " = v%" PRIu64, op->key, value);
        else
            record_add(record, "did not meet %" PRIu64, op->key);
    } else if (sight->scan) {
        record_add(record, "done");
    } else if (sight->count > 1) {
        record_add(record, "%" PRIu64 ": ", op->key);
        tell_outcome(record, op->known ? op->status : BANYAN_EUNKNOWN, op);
    } else {
        tell_outcome(record, sight->status, op);
    }
}

void recorder_look(void *context, const struct driver_sight *sight)
{
    struct recorder *recorder = context;
    struct recording *recording = recorder->recording;
    if (sight->count == 0)
        return;
    size_t which;
    uint32_t number = sight->ops->task;
    bool covered = covers(recorder, sight, &which), begins = sight->step == DRIVER_BEGINS;
    const struct recorder_focus *focus = &recording->focus;
    recorder_note_state(recorder);
    recorder_lane_set(recorder, sim_task_number(recorder->world->sim), number);
    struct recorder_lane *lane = recorder_lane(recorder, number);
    if (begins)
        *lane = (struct recorder_lane){.act = ++recorder->acts,
                                       .on_key = covered || (focus->has_lane && focus->lane == number) ||
                                                 (!focus->has_key && !focus->has_lane && !focus->has_node),
                                       .wide = focus->has_key && sight->count > 1,
                                       .has_key = !sight->scan && sight->count == 1,
                                       .key = sight->ops->key};
    if (recording->texts) {
        struct record *record = recording_add(recorder->recording, begins ? RECORD_BEGIN : RECORD_END,
                                              begins ? sight->ops->time : sim_task_now(recorder->world->sim));
        recorder_own(recorder, record, number);
        record->concern = lane->on_key ? RECORD_CHOOSES : RECORD_CONTEXT;
        if (begins)
            tell_begin(record, sight, which);
        else
            tell_end(record, sight, which, covered);
    }
    if (!begins)
        *lane = (struct recorder_lane){0};
    recorder_note_last(recorder, number);
}
