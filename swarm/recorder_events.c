/* recorder_events.c - lists on their way, and events of the cluster (contract: recorder_state.h). */
#include "swarm/recorder_state.h"

/* Before the first command takes effect: so that a lock is called after the node that is read with it. */
static void name_nodes(struct recorder *recorder, const struct sim_observation *seen)
{
    for (uint32_t i = 0; i < seen->count; i++) {
        struct recorder_place place;
        if (gaddr_node(seen->commands[i].address) >= recorder->world->options.memory_nodes)
            continue;
        recorder_place_find(recorder, seen->commands[i].address, &place);
        if (place.kind == PLACE_LEAF || place.kind == PLACE_INTERNAL)
            recorder_name_place(recorder, &place, true);
    }
}

static void tell_list(struct recorder *recorder, const struct sim_observation *seen)
{
    bool posted = seen->kind == SIM_POSTED,
         call = seen->kind == SIM_CALLED || seen->kind == SIM_CALL_RETURNED;
    posted = posted || seen->kind == SIM_CALLED;
    struct record *record =
        recording_add(recorder->recording, posted ? RECORD_POSTED : RECORD_RETURNED, seen->time_ns);
    recorder_own(recorder, record, recorder_lane_of(recorder, seen->task));
    if (!posted) {
        record_add(record, "m%d: %s", seen->memory, seen->status ? error_name(seen->status) : "answer");
        if (!seen->status)
            record->concern = RECORD_ASIDE;
        recording_drop_aside(recorder->recording, record);
        return;
    }
    if (record->act && recorder_lane(recorder, record->lane)->wide)
        record->concern = RECORD_ASIDE;
    record_add(record, "to m%d: %s", seen->memory, call ? "a call" : "");
    if (record->concern != RECORD_ASIDE)
        name_nodes(recorder, seen);
    for (uint32_t i = 0; i < seen->count; i++) {
        uint32_t same = 1;
        while (i + same < seen->count && seen->commands[i + same].operation == seen->commands[i].operation)
            same++;
        record_add(record, same > 1 ? "%s%s x%u" : "%s%s", i ? ", " : "",
                   recorder_operation_name(seen->commands[i].operation), same);
        i += same - 1;
    }
    recording_drop_aside(recorder->recording, record);
}

static void tell_event(struct recorder *recorder, const struct sim_observation *seen)
{
    struct record *record = recording_add(recorder->recording, RECORD_EVENT, seen->time_ns);
    record->concern = RECORD_CHOOSES;
    switch (seen->kind) {
    case SIM_LOST:
        record_add(record, "m%d loses and fences compute %d", seen->memory, seen->compute);
        break;
    case SIM_DIED:
        record_add(record, "compute %d dies", seen->compute);
        break;
    case SIM_FENCED:
        record_add(record, "dead compute %d is fenced, its locks are freed", seen->compute);
        break;
    case SIM_RESTARTED:
        record_add(record, "compute %d takes the place of %d", seen->compute, seen->status);
        break;
    default:
        if (seen->task != UINT32_MAX) { /* of interest where its operation is */
            record->concern = RECORD_ASIDE;
            recorder_own(recorder, record, recorder_lane_of(recorder, seen->task));
            record->kind = RECORD_RETURNED;
            record_add(record, seen->status ? "(its thread stands still)" : "(stands still)");
            recording_drop_aside(recorder->recording, record);
        } else if (seen->memory >= 0) {
            record_add(record, "m%d stands still", seen->memory);
        } else {
            record_add(record, "compute %d stands still", seen->compute);
        }
    }
}

/* What compute nodes send to each other, and notices. A call is of interest where its operation is. */
static void tell_message(struct recorder *recorder, const struct sim_observation *seen)
{
    bool ends = seen->kind == SIM_PEER_RETURNED, owned = ends || seen->kind == SIM_PEER_CALLED;
    struct record *record = recording_add(recorder->recording,
                                          !owned ? RECORD_EVENT
                                          : ends ? RECORD_RETURNED
                                                 : RECORD_POSTED,
                                          seen->time_ns);
    unsigned long long number = seen->number;
    if (owned && seen->task != UINT32_MAX)
        recorder_own(recorder, record, recorder_lane_of(recorder, seen->task));
    if (seen->kind == SIM_PEER_CALLED)
        record_add(record, "to compute %d: call %llu", seen->peer, number);
    else if (ends)
        record_add(record, "call %llu: %s", number, seen->status ? error_name(seen->status) : "answer");
    else if (seen->kind == SIM_PEER_RECEIVED)
        record_add(record, "compute %d receives call %llu of compute %d", seen->compute, number, seen->peer);
    else if (seen->kind == SIM_PEER_REPLIED)
        record_add(record, "compute %d replies to call %llu: %s", seen->compute, number,
                   error_name(seen->status));
    else if (seen->kind == SIM_NOTICED)
        record_add(record, "compute %d has notice %llu", seen->compute, number);
    else if (seen->peer < 0)
        record_add(record, "notice %llu to compute %d is lost", number, seen->compute);
    else
        record_add(record, "a message of call %llu, from compute %d to %d, is lost", number, seen->compute,
                   seen->peer);
    if (!owned)
        record->concern = RECORD_ASIDE;
    recording_drop_aside(recorder->recording, record);
}

/* A lock may be a part of the word. */
static gaddr lock_of(const struct fabric_command *command)
{
    uint64_t mask = command->operation == FABRIC_CAS ? command->cas.mask : 0;
    return command->address + (mask ? (uint64_t)__builtin_ctzll(mask) / 8 : 0);
}

static void note_lock(struct recording *recording, const struct fabric_command *command)
{
    gaddr lock = lock_of(command);
    bool held = (command->cas.old & command->cas.mask) != (command->cas.compare & command->cas.mask);
    if (!held && lock == recording->contended)
        recording->contended_times = 0;
    if (!held || !(command->cas.swap & command->cas.mask))
        return;
    if (lock != recording->contended && recording->contended_times < RECORDING_STUCK) {
        recording->contended = lock;
        recording->contended_times = 0;
    }
    recording->contended_times += lock == recording->contended;
}

void recorder_see(void *context, const struct sim_observation *seen)
{
    struct recorder *recorder = context;
    recorder_note_state(recorder);
    switch (seen->kind) {
    case SIM_POSTED:
    case SIM_RETURNED:
    case SIM_CALLED:
    case SIM_CALL_RETURNED:
        recorder_note_last(recorder, recorder_lane_of(recorder, seen->task));
        if (recorder->recording->texts)
            tell_list(recorder, seen);
        break;
    case SIM_EFFECT:
        for (uint32_t i = 0; i < seen->count; i++)
            if (seen->commands[i].operation == FABRIC_CAS)
                note_lock(recorder->recording, &seen->commands[i]);
        for (uint32_t i = 0; i < seen->count && recorder->recording->texts; i++)
            recorder_tell_effect(recorder, seen, &seen->commands[i]);
        break;
    default:
        if (!recorder->recording->texts)
            break;
        if (seen->kind >= SIM_PEER_CALLED)
            tell_message(recorder, seen);
        else
            tell_event(recorder, seen);
    }
}
