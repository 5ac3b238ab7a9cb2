/* recorder_effects.c - what a command does at a memory node: to a node, a lock, the catalogue or another
 * block (contract: recorder_state.h). */
#include <inttypes.h>
#include <string.h>

#include "swarm/recorder_nodes.h"
#include "swarm/recorder_state.h"

const char *recorder_operation_name(enum fabric_operation operation)
{
    static const char *const names[] = {"READ", "WRITE", "CAS", "FAA"};
    return names[operation];
}

/* "B", or the lock's address. Whether it is the lock of a node with a name. */
static bool lock_text(const struct recorder *recorder, gaddr name, char text[GADDR_TEXT_BYTES])
{
    uint32_t at = recording_find_lock(recorder->recording, name);
    if (at == recorder->recording->name_count) {
        gaddr_format(name, text);
        return false;
    }
    recording_label(at, text);
    return true;
}

/* Returns lock_text's. */
static bool tell_lock(struct recorder *recorder, struct record *record, const struct fabric_command *command)
{
    gaddr name = command->address;
    char text[GADDR_TEXT_BYTES];
    if (command->operation != FABRIC_CAS) {
        uint64_t word = 0;
        bool known = lock_text(recorder, name, text);
        if (command->operation == FABRIC_WRITE && command->length <= 8)
            memcpy(&word, command->write.data, command->length);
        if (command->operation == FABRIC_WRITE && word == 0)
            record_add(record, "unlock %s", text);
        else
            record_add(record, "%s lock %s", recorder_operation_name(command->operation), text);
        return known;
    }
    uint64_t mask = command->cas.mask, shift = mask ? (uint64_t)__builtin_ctzll(mask) : 0;
    bool known = lock_text(recorder, name + shift / 8, text);
    bool swapped = (command->cas.old & mask) == (command->cas.compare & mask);
    if (!(command->cas.swap & mask))
        record_add(record, "unlock %s%s", text, swapped ? "" : ": was not held");
    else if (swapped)
        record_add(record, "lock %s: taken", text);
    else /* the word is the holder's compute_id: those count from 1 */
        record_add(record, "lock %s: held by compute %" PRIu64, text,
                   ((command->cas.old & mask) >> shift) - 1);
    return known;
}

static uint64_t text_hash(const char *text)
{
    uint64_t hash = 1;
    for (; *text; text++)
        hash = random_mix(hash ^ (uint8_t)*text);
    return hash;
}

static struct recorder_known *known_of(struct recorder *recorder, gaddr block)
{
    struct recorder_known *known = &recorder->known[random_mix(block) % RECORDER_KNOWN_MAX];
    if (known->block != block)
        *known = (struct recorder_known){.block = block};
    return known;
}

/* Whether the node has, or had, to do with the key. */
static bool is_of_key(const struct recorder *recorder, const struct recorder_place *place,
                      const struct recorder_known *known)
{
    if (!recorder->recording->focus.has_key)
        return false;
    return known->touched || (place->decoded && format_header_side(&place->header, recorder->key) == 0);
}

static enum record_concern node_concern(struct recorder *recorder, const struct record *record, bool mine,
                                        const struct recorder_place *place,
                                        const struct fabric_command *command, const char *about_node,
                                        const char *about_key)
{
    struct recorder_known *known = known_of(recorder, place->block);
    /* an inner node's version tells nothing: each entry is a new one */
    const char *lasting = place->kind == PLACE_INTERNAL ? strchr(about_node, '[') : about_node;
    uint64_t header = lasting && *lasting ? text_hash(lasting) : known->header;
    uint64_t key = *about_key ? text_hash(about_key) : known->key;
    bool news = header != known->header || key != known->key, of_key = is_of_key(recorder, place, known);
    const struct recorder_lane *lane = record->act ? recorder_lane(recorder, record->lane) : NULL;
    if (command->operation == FABRIC_WRITE) {
        known->header = header;
        known->key = key;
    }
    if (mine && place->kind == PLACE_LEAF && (of_key || !lane->wide))
        known->touched = true;
    if (recorder_is_focus(recorder, place, command))
        return record->act || command->operation == FABRIC_WRITE ? RECORD_CHOOSES : RECORD_ASIDE;
    if (of_key && news && command->operation == FABRIC_WRITE)
        return RECORD_CHOOSES;
    return mine && (!lane->wide || (of_key && *about_key)) ? RECORD_CONTEXT : RECORD_ASIDE;
}

static void effect_on_node(struct recorder *recorder, struct record *record, bool mine,
                           struct recorder_place *place, const struct fabric_command *command, int left)
{
    struct record about_node = {.concern = RECORD_CONTEXT}, about_slots = {.concern = RECORD_CONTEXT},
                  about_key = {.concern = RECORD_CONTEXT};
    if (left)
        record_add(&about_node, " begins");
    else
        recorder_tell_node(recorder, place, command, &about_node, &about_slots, &about_key);
    if (left)
        record->concern =
            mine && !recorder_lane(recorder, record->lane)->wide ? RECORD_CONTEXT : RECORD_ASIDE;
    else
        record->concern =
            (uint8_t)node_concern(recorder, record, mine, place, command, about_node.text, about_key.text);
    record_add(record, "%s ", recorder_operation_name(command->operation));
    recorder_add_name(recorder, record, place);
    recorder_add_part(recorder, record, place, command->length);
    record_add(record, "%s%s%s", place->used ? "" : " (a free block)", about_node.text, about_slots.text);
    if (about_slots.text[0] && about_key.text[0])
        record_add(record, ";%s", about_key.text + 1);
    else
        record_add(record, "%s", about_key.text);
}

static void effect_on_lock(struct recorder *recorder, struct record *record, bool mine,
                           const struct recorder_place *place, const struct fabric_command *command)
{
    bool known = tell_lock(recorder, record, command);
    if (recorder_is_focus(recorder, place, command))
        record->concern = record->act ? RECORD_CHOOSES : RECORD_ASIDE;
    else if (known && record->act)
        record->concern = RECORD_CONTEXT;
    else if (mine && recorder_lane(recorder, record->lane)->wide)
        record->concern = RECORD_ASIDE;
}

/* Where an operation meets the same again and again, one record says how often. */
static void fold(struct recorder *recorder, struct record *record)
{
    struct recording *recording = recorder->recording;
    if (!record->act || record->concern == RECORD_ASIDE) {
        recording_drop_aside(recorder->recording, record);
        return;
    }
    struct recorder_lane *lane = recorder_lane(recorder, record->lane);
    struct record *latest = &recording->records[(lane->latest - 1) % RECORDS_MAX];
    size_t length = strlen(record->text);
    if (!lane->latest || recording->count - lane->latest >= RECORDS_MAX || latest->act != record->act ||
        strncmp(latest->text, record->text, length) != 0 || (latest->text[length] && !lane->repeated)) {
        lane->latest = recording->count;
        lane->repeated = 0;
        return;
    }
    lane->repeated++;
    latest->text[length] = 0;
    record_add(latest, " (%u times)", lane->repeated + 1);
    recording->count--;
}

static void tell_command(struct recorder *recorder, struct record *record, const struct sim_observation *seen,
                         const struct fabric_command *command)
{
    struct recorder_place place;
    char text[GADDR_TEXT_BYTES];
    bool mine = recorder_own(recorder, record, recorder_lane_of(recorder, seen->task));
    if (gaddr_node(command->address) >= recorder->world->options.memory_nodes)
        return;
    recorder_place_find(recorder, command->address, &place);
    if (place.kind == PLACE_LOCK) {
        effect_on_lock(recorder, record, mine, &place, command);
    } else if (place.kind == PLACE_LEAF || place.kind == PLACE_INTERNAL) {
        effect_on_node(recorder, record, mine, &place, command, seen->status);
    } else if (place.kind == PLACE_CATALOGUE) {
        bool tags =
            command->operation == FABRIC_FAA && gaddr_offset(command->address) == MEMORY_NEXT_TAG_OFFSET;
        record_add(record, "%s %s", recorder_operation_name(command->operation),
                   tags ? "next tags" : "the catalogue");
    } else {
        if (recorder_is_focus(recorder, &place, command) && record->act)
            record->concern = RECORD_CHOOSES;
        else if (mine && recorder_lane(recorder, record->lane)->wide)
            record->concern = RECORD_ASIDE;
        record_add(record, "%s block %s", recorder_operation_name(command->operation),
                   gaddr_format(place.block, text));
        record_add(record, " %u+%u%s", place.offset, command->length, place.used ? "" : " (a free block)");
    }
}

void recorder_tell_effect(struct recorder *recorder, const struct sim_observation *seen,
                          const struct fabric_command *command)
{
    struct record *record = recording_add(recorder->recording, RECORD_EFFECT, seen->time_ns);
    tell_command(recorder, record, seen, command);
    fold(recorder, record);
}
