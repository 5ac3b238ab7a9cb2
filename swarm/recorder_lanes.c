/* recorder_lanes.c - see recorder_lanes.h. */
#include "swarm/recorder_lanes.h"

#include <string.h>

#include "swarm/recorder_state.h"

struct recorder_lane *recorder_lane(struct recorder *recorder, uint32_t number)
{
    if (number >= recorder->lane_count) {
        uint32_t count = number + 16;
        recorder->lanes = recorder_allocate(recorder->lanes, count * sizeof *recorder->lanes);
        memset(recorder->lanes + recorder->lane_count, 0,
               (count - recorder->lane_count) * sizeof *recorder->lanes);
        recorder->lane_count = count;
    }
    return &recorder->lanes[number];
}

void recorder_lane_set(struct recorder *recorder, uint32_t task, uint32_t lane)
{
    if (task >= recorder->task_count) {
        uint32_t count = task + 64;
        recorder->lane_of = recorder_allocate(recorder->lane_of, count * sizeof *recorder->lane_of);
        for (uint32_t i = recorder->task_count; i < count; i++)
            recorder->lane_of[i] = RECORDING_LANE_NONE;
        recorder->task_count = count;
    }
    recorder->lane_of[task] = lane;
}

uint32_t recorder_lane_of(const struct recorder *recorder, uint32_t task)
{
    return task < recorder->task_count ? recorder->lane_of[task] : RECORDING_LANE_NONE;
}

/* Its own operation, and whether that one is looked at. */
bool recorder_own(struct recorder *recorder, struct record *record, uint32_t lane)
{
    record->lane = lane;
    if (lane == RECORDING_LANE_NONE)
        return false;
    const struct recorder_lane *at = recorder_lane(recorder, lane);
    record->act = at->act;
    record->concern = at->act && at->on_key ? RECORD_CONTEXT : RECORD_ASIDE;
    return at->act && at->on_key;
}

void recorder_note_last(struct recorder *recorder, uint32_t number)
{
    if (number == RECORDING_LANE_NONE)
        return;
    const struct recorder_lane *lane = recorder_lane(recorder, number);
    recorder->recording->last = (struct recorder_last){
        .lane = number, .busy = lane->act != 0, .has_key = lane->has_key, .key = lane->key};
}
