/*
 * recorder_nodes.h - what a command's bytes say about a node of the index, as a reader of these bytes would
 * understand them.
 */
#ifndef SWARM_RECORDER_NODES_H
#define SWARM_RECORDER_NODES_H

#include "swarm/recorder_places.h"

/* Three texts about the command's part of the node: about the node, about slots of other keys, about the key
 * looked at. Each stays empty where there is nothing to say. */
void recorder_tell_node(struct recorder *recorder, struct recorder_place *place,
                        const struct fabric_command *command, struct record *about_node,
                        struct record *about_slots, struct record *about_key);
/* Appends which part of the node a command of so many bytes is about. */
void recorder_add_part(struct recorder *recorder, struct record *record, const struct recorder_place *place,
                       uint32_t length);

#endif
