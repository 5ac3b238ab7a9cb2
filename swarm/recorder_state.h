/*
 * recorder_state.h - a recorder at work, in the run's own process: shared by recorder.c, which begins and
 * ends it, and the files that turn what it sees into records. No other file includes it.
 */
#ifndef SWARM_RECORDER_STATE_H
#define SWARM_RECORDER_STATE_H

#include "format/internal_node.h"
#include "swarm/recorder_lanes.h"
#include "swarm/recorder_places.h"

#define RECORDER_KNOWN_MAX 256u

/* What a node was last seen to say, as hashes of text: what changes is worth telling. */
struct recorder_known {
    gaddr block;
    bool touched; /* by an operation on the key */
    uint64_t header, key;
};

struct recorder {
    struct recording *recording;
    struct world *world;
    struct format_layout layout;
    struct recorder_lane *lanes; /* by the world's tasks */
    uint32_t lane_count;
    uint32_t *lane_of; /* by the simulator's tasks */
    uint32_t task_count;
    uint32_t acts;
    bool calm;
    uint8_t *image; /* of a node */
    struct format_entry *entries;
    uint8_t key_bytes[FORMAT_KEY_MAX];
    struct format_key key;
    struct recorder_known known[RECORDER_KNOWN_MAX]; /* by hash of the address; a newer one takes the place */
};

/* realloc that aborts. */
void *recorder_allocate(void *old, size_t bytes);
/* What any record may be the first to see: that faults have stopped, and which key is blamed. */
void recorder_note_state(struct recorder *recorder);

/* The driver_setting's `look` and the simulator's `see`; the recorder is their context. */
void recorder_look(void *recorder, const struct driver_sight *sight);
void recorder_see(void *recorder, const struct sim_observation *seen);
/* A command has taken effect. */
void recorder_tell_effect(struct recorder *recorder, const struct sim_observation *seen,
                          const struct fabric_command *command);
/* "READ", "WRITE", ... */
const char *recorder_operation_name(enum fabric_operation operation);

#endif
