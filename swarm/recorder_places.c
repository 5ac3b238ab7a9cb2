/* recorder_places.c - see recorder_places.h. */
#include "swarm/recorder_places.h"

#include <stdio.h>

#include "fabric/target.h"
#include "swarm/recorder_state.h"
#include "tree/lock.h"

/* The bits of 64 blocks of the chunk, from request->first on; false: the memory node refuses to tell. */
static bool usage_ask(struct recorder *recorder, const struct fabric_target *target,
                      const struct memory_usage_request *request)
{
    struct memory_usage_reply *reply = recorder->usage;
    const size_t room = offsetof(struct memory_usage_reply, bits) + sizeof reply->bits[0];
    size_t length;
    return target->call(target->owner, 0, request, sizeof *request, reply, room, &length) == 0;
}

/* How the memory node has cut the chunk. */
static bool block_find(struct recorder *recorder, const struct fabric_target *target, gaddr address,
                       struct recorder_place *place)
{
    const struct memory_usage_reply *reply = recorder->usage;
    uint64_t first = MEMORY_FIRST_CHUNK(target->lock_bytes), offset = gaddr_offset(address);
    uint64_t chunk = (offset - first) / recorder->world->options.chunk_bytes;
    struct memory_usage_request request = {.kind = MEMORY_USAGE, .chunk = (uint32_t)chunk};
    if (!usage_ask(recorder, target, &request) || !reply->block_bytes)
        return false;
    uint32_t number = (uint32_t)((address - reply->chunk) / reply->block_bytes);
    request.first = number / 64 * 64;
    if (!usage_ask(recorder, target, &request))
        return false;
    place->block = reply->chunk + (uint64_t)number * reply->block_bytes;
    place->bytes = reply->block_bytes;
    place->used = reply->words && (reply->bits[0] >> number % 64 & 1);
    return true;
}

void recorder_place_find(struct recorder *recorder, gaddr address, struct recorder_place *place)
{
    const struct fabric_target *target = memory_node_target(recorder->world->memory[gaddr_node(address)]);
    uint64_t offset = gaddr_offset(address);
    *place = (struct recorder_place){.kind = PLACE_LOCK, .block = address};
    if (offset & GADDR_LOCK_REGION)
        return;
    if (offset < MEMORY_FIRST_CHUNK(target->lock_bytes)) {
        place->kind = offset < MEMORY_LOCK_TABLE_OFFSET ? PLACE_CATALOGUE : PLACE_LOCK;
        return;
    }
    place->kind = PLACE_BLOCK;
    if (!block_find(recorder, target, address, place))
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
