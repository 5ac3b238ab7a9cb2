/*
 * recorder_places.h - what lies at an address of a memory node: a lock, the catalogue, a block, a node of the
 * index; and the short names that nodes get in a recording.
 */
#ifndef SWARM_RECORDER_PLACES_H
#define SWARM_RECORDER_PLACES_H

#include "format/header.h"
#include "swarm/recording.h"

enum recorder_place_kind { PLACE_LOCK, PLACE_CATALOGUE, PLACE_BLOCK, PLACE_LEAF, PLACE_INTERNAL };

struct recorder_place {
    enum recorder_place_kind kind;
    gaddr block; /* begins here */
    uint32_t bytes, offset;
    bool used; /* handed out */
    struct format_header header;
    bool decoded;       /* the header, of what is in memory */
    const uint8_t *now; /* the block, in memory */
};

void recorder_place_find(struct recorder *recorder, gaddr address, struct recorder_place *place);
/* The number of the place's name, a new one if `make`; RECORDING_NAMES: it has none. */
uint32_t recorder_name_place(struct recorder *recorder, const struct recorder_place *place, bool make);
/* Appends the place's name, or its address where it has none. */
void recorder_add_name(struct recorder *recorder, struct record *record, const struct recorder_place *place);
/* Whether the command is about the address in the failure's message. Beside a key's operations only changes
 * of it count. */
bool recorder_is_focus(const struct recorder *recorder, const struct recorder_place *place,
                       const struct fabric_command *command);

#endif
