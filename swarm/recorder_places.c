/* recorder_places.c - see recorder_places.h. */
#include "swarm/recorder_places.h"

#include <stdio.h>
#include <string.h>

#include "fabric/target.h"
#include "swarm/recorder_state.h"
#include "tree/lock.h"

/* The block that the memory node has handed out there; where none is, the one whose name the recording knows,
 * for it was one before. */
static bool block_find(struct recorder *recorder, struct memory_node *node, gaddr address,
                       struct recorder_place *place)
{
    const struct recording *recording = recorder->recording;
    const struct format_geometry *geometry = &recorder->layout.geometry;
    place->used = memory_node_find_used(node, address, &place->block, &place->bytes);
    if (place->used)
        return true;
    for (uint32_t i = 0; i < recording->name_count; i++) {
        gaddr named = recording->names[i].address;
        bool leaf = strcmp(recording->names[i].what, "leaf") == 0;
        uint32_t bytes = leaf ? geometry->leaf_bytes : geometry->internal_bytes;
        if (address < named || address - named >= bytes || strcmp(recording->names[i].what, "block") == 0)
            continue;
        place->block = named;
        place->bytes = bytes;
        return true;
    }
    return false;
}

void recorder_place_find(struct recorder *recorder, gaddr address, struct recorder_place *place)
{
    struct memory_node *node = recorder->world->memory[gaddr_node(address)];
    const struct fabric_target *target = memory_node_target(node);
    uint64_t offset = gaddr_offset(address);
    *place = (struct recorder_place){.kind = PLACE_LOCK, .block = address};
    if (offset & GADDR_LOCK_REGION)
        return;
    if (offset < MEMORY_FIRST_CHUNK(target->lock_bytes)) {
        place->kind = offset < MEMORY_LOCK_TABLE_OFFSET ? PLACE_CATALOGUE : PLACE_LOCK;
        return;
    }
    place->kind = PLACE_BLOCK;
    if (!block_find(recorder, node, address, place))
        return;
    place->offset = (uint32_t)(address - place->block);
    place->now = target->pool + gaddr_offset(place->block);
    const struct format_geometry *geometry = &recorder->layout.geometry;
    if (place->bytes != geometry->leaf_bytes && place->bytes != geometry->internal_bytes)
        return;
    place->decoded = format_header_decode(&recorder->layout, place->now, &place->header) && place->header.tag;
    bool leaf = place->decoded ? place->header.level == 0 : place->bytes == geometry->leaf_bytes;
    if (place->bytes == (leaf ? geometry->leaf_bytes : geometry->internal_bytes))
        place->kind = leaf ? PLACE_LEAF : PLACE_INTERNAL;
}

/* The place of the node's name, a new one if `make`; RECORDING_NAMES: it has none. */
uint32_t recorder_name_place(struct recorder *recorder, const struct recorder_place *place, bool make)
{
    static const char *const kinds[] = {"lock", "", "block", "leaf", "inner node"};
    struct recording *recording = recorder->recording;
    uint32_t at = 0;
    while (at < recording->name_count && recording->names[at].address != place->block)
        at++;
    if (at == recording->name_count) {
        if (at == RECORDING_NAMES || !make)
            return RECORDING_NAMES;
        recording->name_count++;
        recording->names[at].address = place->block;
        recording->names[at].lock = tree_lock_name(recorder->world->tasks[0].session, place->block);
        recording->names[at].what[0] = 0;
    }
    if (place->kind != PLACE_BLOCK || !recording->names[at].what[0])
        snprintf(recording->names[at].what, sizeof recording->names[at].what, "%s", kinds[place->kind]);
    return at;
}

/* A name of one letter, for text and legend. */
void recorder_add_name(struct recorder *recorder, struct record *record, const struct recorder_place *place)
{
    char text[GADDR_TEXT_BYTES];
    uint32_t at = recorder_name_place(recorder, place, record->concern != RECORD_ASIDE);
    if (at == RECORDING_NAMES) {
        record_add(record, "%s", gaddr_format(place->block, text));
        return;
    }
    record->name = (uint16_t)(at + 1);
    recording_label(at, text);
    record_add(record, "%s", text);
}

/* About the address in the failure's message. Beside a key's operations only changes of it are of interest.
 */
bool recorder_is_focus(const struct recorder *recorder, const struct recorder_place *place,
                       const struct fabric_command *command)
{
    const struct recorder_focus *focus = &recorder->recording->focus;
    if (!focus->has_node || (focus->has_key && command->operation == FABRIC_READ))
        return false;
    return place->kind == PLACE_LOCK ? (command->address | 7) == (focus->node | 7)
                                     : place->block == focus->node;
}
