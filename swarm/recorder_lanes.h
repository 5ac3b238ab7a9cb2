/*
 * recorder_lanes.h - whose doing a record is: a lane is a task of the world, which does one operation at a
 * time.
 */
#ifndef SWARM_RECORDER_LANES_H
#define SWARM_RECORDER_LANES_H

#include "swarm/recording.h"

struct recorder_lane {
    uint32_t act; /* 0: no operation is under way */
    bool on_key;  /* the operation concerns the focus by itself */
    bool wide;    /* it concerns other keys too */
    bool has_key; /* it is about this key alone */
    uint64_t key;
    uint64_t latest; /* 1 more than the number of its latest record of an effect; 0: none */
    uint32_t repeated;
};

/* By the world's number of the task. */
struct recorder_lane *recorder_lane(struct recorder *recorder, uint32_t number);
/* Which lane a task of the simulator is; RECORDING_LANE_NONE: not known. */
void recorder_lane_set(struct recorder *recorder, uint32_t task, uint32_t lane);
uint32_t recorder_lane_of(const struct recorder *recorder, uint32_t task);
/* The record is part of the lane's operation. True if that operation is looked at. */
bool recorder_own(struct recorder *recorder, struct record *record, uint32_t lane);
/* The lane ran last. */
void recorder_note_last(struct recorder *recorder, uint32_t lane);

#endif
