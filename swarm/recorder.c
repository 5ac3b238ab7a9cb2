/* recorder.c - see recorder.h. */
#include "swarm/recorder.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fabric/target.h"
#include "tree/state.h"

#define KNOWN_MAX 256u

struct lane {
    uint32_t act; /* 0: no operation is under way */
    bool on_key;  /* the operation concerns the focus by itself */
    bool wide;    /* it concerns other keys too */
    bool has_key; /* it is about this key alone */
    uint64_t key;
    uint64_t latest; /* 1 more than the number of its latest record of an effect; 0: none */
    uint32_t repeated;
};

/* What a node was last seen to say, as hashes of text: what changes is worth telling. */
struct known {
    gaddr block;
    bool touched; /* by an operation on the key */
    uint64_t header, key;
};

/* In the run's own process. */
struct recorder {
    struct recording *recording;
    struct world *world;
    struct format_layout layout;
    struct lane *lanes; /* by the world's tasks */
    uint32_t lane_count;
    uint32_t *lane_of; /* by the simulator's tasks */
    uint32_t task_count;
    uint32_t acts;
    bool calm;
    uint8_t *image; /* of a node */
    struct format_entry *entries;
    uint8_t key_bytes[FORMAT_KEY_MAX];
    struct format_key key;
    struct known known[KNOWN_MAX]; /* by hash of the address; a newer one takes the place */
};

static void *allocate(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes);
    if (!memory)
        abort();
    return memory;
}

/* ---- recordings ---- */

struct recording *recording_create(void)
{
    void *memory = mmap(NULL, sizeof(struct recording), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void recording_destroy(struct recording *recording)
{
    if (recording)
        munmap(recording, sizeof *recording);
}

void recording_clear(struct recording *recording)
{
    recording->count = recording->blamed = 0;
    recording->name_count = 0;
    recording->failure[0] = 0;
    recording->contended = GADDR_NULL;
    recording->contended_times = 0;
    memset(&recording->last, 0, sizeof recording->last);
    memset(&recording->culprit, 0, sizeof recording->culprit);
}

void recording_label(uint32_t place, char text[8])
{
    char number[4] = "";
    if (place >= 26)
        snprintf(number, sizeof number, "%u", place / 26 % 1000);
    snprintf(text, 8, "%c%s", (char)('A' + place % 26), number);
}

/* The latest record is not wanted: its room is that of the next. */
static void record_drop_aside(struct recorder *recorder, const struct record *record)
{
    if (record->concern == RECORD_ASIDE && !recorder->recording->asides)
        recorder->recording->count--;
}

static struct record *record_new(struct recorder *recorder, enum record_kind kind, uint64_t time)
{
    struct recording *recording = recorder->recording;
    struct record *record = &recording->records[recording->count % RECORDS_MAX];
    *record = (struct record){.time_ns = time, .lane = RECORDING_LANE_NONE, .kind = (uint8_t)kind};
    recording->count++;
    return record;
}

__attribute__((format(printf, 2, 3))) static void add(struct record *record, const char *format, ...)
{
    size_t used = strlen(record->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(record->text + used, sizeof record->text - used, format, arguments);
    va_end(arguments);
}

/* ---- whose it is ---- */

static struct lane *lane_at(struct recorder *recorder, uint32_t number)
{
    if (number >= recorder->lane_count) {
        uint32_t count = number + 16;
        recorder->lanes = allocate(recorder->lanes, count * sizeof *recorder->lanes);
        memset(recorder->lanes + recorder->lane_count, 0,
               (count - recorder->lane_count) * sizeof *recorder->lanes);
        recorder->lane_count = count;
    }
    return &recorder->lanes[number];
}

static void lane_is(struct recorder *recorder, uint32_t task, uint32_t lane)
{
    if (task >= recorder->task_count) {
        uint32_t count = task + 64;
        recorder->lane_of = allocate(recorder->lane_of, count * sizeof *recorder->lane_of);
        for (uint32_t i = recorder->task_count; i < count; i++)
            recorder->lane_of[i] = RECORDING_LANE_NONE;
        recorder->task_count = count;
    }
    recorder->lane_of[task] = lane;
}

static uint32_t lane_of(const struct recorder *recorder, uint32_t task)
{
    return task < recorder->task_count ? recorder->lane_of[task] : RECORDING_LANE_NONE;
}

/* Its own operation, and whether that one is looked at. */
static bool own(struct recorder *recorder, struct record *record, uint32_t lane)
{
    record->lane = lane;
    if (lane == RECORDING_LANE_NONE)
        return false;
    const struct lane *at = lane_at(recorder, lane);
    record->act = at->act;
    record->concern = at->act && at->on_key ? RECORD_CONTEXT : RECORD_ASIDE;
    return at->act && at->on_key;
}

static void note_last(struct recorder *recorder, uint32_t number)
{
    if (number == RECORDING_LANE_NONE)
        return;
    const struct lane *lane = lane_at(recorder, number);
    recorder->recording->last = (struct recorder_last){
        .lane = number, .busy = lane->act != 0, .has_key = lane->has_key, .key = lane->key};
}

/* What every record may be the first to see. */
static void note_state(struct recorder *recorder)
{
    const struct driver_setting *setting = &recorder->world->setting;
    recorder->recording->blamed = setting->blamed;
    if (setting->calm_ns && !recorder->calm && recorder->recording->texts) {
        struct record *record = record_new(recorder, RECORD_EVENT, setting->calm_ns);
        record->concern = RECORD_CHOOSES;
        add(record, "faults stop");
    }
    recorder->calm = setting->calm_ns != 0;
}

/* ---- operations ---- */

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
        add(record, "scan [%" PRIu64 ", %" PRIu64 ")%s", sight->scan->low, sight->scan->high,
            sight->scan->reverse ? " backwards" : "");
        if (sight->scan->limit)
            add(record, " limit %" PRIu64, sight->scan->limit);
        return;
    }
    if (sight->count > 1)
        add(record, "%zu keys at once: ", sight->count);
    add(record, "%s %" PRIu64, name, op->key);
    if (op->kind == HISTORY_CAS)
        add(record, ": v%" PRIu64 " to v%" PRIu64, op->expected, op->argument);
    else if (op->argument)
        add(record, " = v%" PRIu64, op->argument);
    else if (op->kind == HISTORY_MODIFY)
        add(record, ": remove");
}

static void tell_outcome(struct record *record, int status, const struct history_op *op)
{
    bool reads = op->kind == HISTORY_GET || op->kind == HISTORY_MODIFY;
    switch (status) {
    case 0:
        if (reads && op->known && op->result)
            add(record, "%sv%" PRIu64, op->kind == HISTORY_GET ? "" : "saw ", op->result);
        else
            add(record, op->kind == HISTORY_MODIFY ? "saw none" : "done");
        break;
    case BANYAN_ENOTFOUND:
        add(record, "none");
        break;
    case BANYAN_EEXIST:
        add(record, "exists");
        break;
    case BANYAN_ECONFLICT:
        add(record, "differs");
        break;
    case BANYAN_EUNKNOWN:
        add(record, "done or not");
        break;
    default:
        add(record, "not done (%s)", error_name(status));
    }
}

static void tell_end(struct record *record, const struct driver_sight *sight, size_t which, bool covered)
{
    const struct history_op *op = &sight->ops[which];
    add(record, "-> ");
    if (sight->scan && sight->status) {
        add(record, "%s", error_name(sight->status));
    } else if (sight->scan && covered) {
        uint64_t value = sight->scan->values[op->key - sight->scan->low];
        if (value)
            add(record, "%" PRIu64 " = v%" PRIu64, op->key, value);
        else
            add(record, "did not meet %" PRIu64, op->key);
    } else if (sight->scan) {
        add(record, "done");
    } else if (sight->count > 1) {
        add(record, "%" PRIu64 ": ", op->key);
        tell_outcome(record, op->known ? op->status : BANYAN_EUNKNOWN, op);
    } else {
        tell_outcome(record, sight->status, op);
    }
}

static void look(void *context, const struct driver_sight *sight)
{
    struct recorder *recorder = context;
    struct recording *recording = recorder->recording;
    if (sight->count == 0)
        return;
    size_t which;
    uint32_t number = sight->ops->task;
    bool covered = covers(recorder, sight, &which), begins = sight->step == DRIVER_BEGINS;
    const struct recorder_focus *focus = &recording->focus;
    note_state(recorder);
    lane_is(recorder, sim_task_number(recorder->world->sim), number);
    struct lane *lane = lane_at(recorder, number);
    if (begins)
        *lane = (struct lane){.act = ++recorder->acts,
                              .on_key = covered || (focus->has_lane && focus->lane == number) ||
                                        (!focus->has_key && !focus->has_lane && !focus->has_node),
                              .wide = focus->has_key && sight->count > 1,
                              .has_key = !sight->scan && sight->count == 1,
                              .key = sight->ops->key};
    if (recording->texts) {
        struct record *record = record_new(recorder, begins ? RECORD_BEGIN : RECORD_END,
                                           begins ? sight->ops->time : sim_task_now(recorder->world->sim));
        own(recorder, record, number);
        record->concern = lane->on_key ? RECORD_CHOOSES : RECORD_CONTEXT;
        if (begins)
            tell_begin(record, sight, which);
        else
            tell_end(record, sight, which, covered);
    }
    if (!begins)
        *lane = (struct lane){0};
    note_last(recorder, number);
}

/* ---- addresses ---- */

enum place_kind { PLACE_LOCK, PLACE_HEAD, PLACE_BLOCK, PLACE_LEAF, PLACE_INTERNAL };
struct place {
    enum place_kind kind;
    gaddr block; /* begins here */
    uint32_t bytes, offset;
    bool used; /* handed out */
    struct format_header header;
    bool decoded;       /* the header, of what is in memory */
    const uint8_t *now; /* the block, in memory */
};

/* How the memory node has cut the chunk. */
static bool block_find(const struct fabric_target *target, const struct world_options *options, gaddr address,
                       struct place *place)
{
    struct { /* struct memory_usage_reply with one word */
        gaddr chunk;
        uint32_t block_bytes, blocks, words, reserved;
        uint64_t bits;
    } reply;
    uint64_t first = MEMORY_FIRST_CHUNK(target->lock_bytes), offset = gaddr_offset(address);
    struct memory_usage_request request = {.kind = MEMORY_USAGE,
                                           .chunk = (uint32_t)((offset - first) / options->chunk_bytes)};
    size_t length;
    if (target->call(target->owner, 0, &request, sizeof request, &reply, sizeof reply, &length) ||
        !reply.block_bytes)
        return false;
    uint32_t number = (uint32_t)((address - reply.chunk) / reply.block_bytes);
    request.first = number / 64 * 64;
    if (target->call(target->owner, 0, &request, sizeof request, &reply, sizeof reply, &length))
        return false;
    place->block = reply.chunk + (uint64_t)number * reply.block_bytes;
    place->bytes = reply.block_bytes;
    place->used = reply.words && (reply.bits >> number % 64 & 1);
    return true;
}

static void place_find(struct recorder *recorder, gaddr address, struct place *place)
{
    const struct world_options *options = &recorder->world->options;
    const struct fabric_target *target = memory_node_target(recorder->world->memory[gaddr_node(address)]);
    uint64_t offset = gaddr_offset(address);
    *place = (struct place){.kind = PLACE_LOCK, .block = address};
    if (offset & GADDR_LOCK_REGION)
        return;
    if (offset < MEMORY_FIRST_CHUNK(target->lock_bytes)) {
        place->kind = offset < MEMORY_LOCK_TABLE_OFFSET ? PLACE_HEAD : PLACE_LOCK;
        return;
    }
    place->kind = PLACE_BLOCK;
    if (!block_find(target, options, address, place))
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

static struct known *known_of(struct recorder *recorder, gaddr block)
{
    struct known *known = &recorder->known[random_mix(block) % KNOWN_MAX];
    if (known->block != block)
        *known = (struct known){.block = block};
    return known;
}

/* The place of the node's name, a new one if `make`; RECORDING_NAMES: it has none. */
static uint32_t name_of(struct recorder *recorder, const struct place *place, bool make)
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
static void add_name(struct recorder *recorder, struct record *record, const struct place *place)
{
    char text[GADDR_TEXT_BYTES];
    uint32_t at = name_of(recorder, place, record->concern != RECORD_ASIDE);
    if (at == RECORDING_NAMES) {
        add(record, "%s", gaddr_format(place->block, text));
        return;
    }
    record->name = (uint16_t)(at + 1);
    recording_label(at, text);
    add(record, "%s", text);
}

/* The first node with a name that this is the lock of. */
static uint32_t name_of_lock(const struct recording *recording, gaddr lock)
{
    uint32_t at = 0;
    while (at < recording->name_count && recording->names[at].lock != lock)
        at++;
    return at;
}

/* ---- what is in a node ---- */

/* A key, or as much of one as a separator has kept of it: "k" and some digits. */
static void add_fence(struct recorder *recorder, struct record *record, struct format_key key)
{
    const struct driver_shape *shape = &recorder->world->setting.shape;
    uint64_t number = shape->fixed_keys ? driver_key_number(shape, key.bytes, key.length) : 0;
    for (uint32_t i = 1; i < 13 && !shape->fixed_keys; i++)
        number = number * 10 + (i < key.length ? (uint64_t)(key.bytes[i] - '0') : 0);
    if (key.length && number != UINT64_MAX)
        add(record, "%" PRIu64, number);
}

static void add_header(struct recorder *recorder, struct record *record, const struct format_header *header)
{
    static const char *const states[] = {"state 0", "live", "splitting", "dead"};
    add(record, " ver %u ", header->version);
    if (header->state < 4)
        add(record, "%s", states[header->state]);
    else
        add(record, "state %u", header->state);
    add(record, " [");
    add_fence(recorder, record, header->lower);
    add(record, "..");
    if (header->has_upper)
        add_fence(recorder, record, header->upper);
    add(record, ")");
}

static void add_value(struct recorder *recorder, struct record *record, struct format_key value)
{
    const struct driver_shape *shape = &recorder->world->setting.shape;
    uint64_t number = shape->records ? 0 : driver_value_number(shape, value.bytes, value.length);
    if (number)
        add(record, " = v%" PRIu64, number);
    else
        add(record, shape->records ? " is there" : " = a broken value");
}

/* What these bytes of the leaf say about the key, as a reader would judge who takes them for this leaf's. */
static void add_key(struct recorder *recorder, struct record *record, const struct place *place,
                    const struct format_bucket *bucket, bool reads)
{
    const uint8_t *image = recorder->image;
    uint32_t seed = format_slot_seed(place->header.tag, format_bucket_version(image, bucket)), invalid = 0;
    struct format_slot slot;
    add(record, ": ");
    if (format_bucket_find(&recorder->layout, image, bucket, seed, recorder->key, &slot)) {
        add(record, "%" PRIu64, recorder->recording->focus.key);
        add_value(recorder, record, slot.value);
        if (reads)
            add(record, " in slot %u", slot.number);
        return;
    }
    for (uint32_t i = bucket->first; i < bucket->first + bucket->count; i++)
        invalid += format_slot_read(&recorder->layout, image, i, seed, place->header.lower, &slot) ==
                   FORMAT_SLOT_INVALID;
    add(record, "no %" PRIu64, recorder->recording->focus.key);
    if (invalid)
        add(record, ", %u slots invalid", invalid);
}

static bool overlaps(uint32_t a, uint32_t a_bytes, uint32_t b, uint32_t b_bytes)
{
    return a < b + b_bytes && b < a + a_bytes;
}

static void add_slot(struct recorder *recorder, struct record *record, const struct place *place,
                     const struct format_slot *slot)
{
    uint8_t bytes[2 * FORMAT_KEY_MAX];
    struct format_key lower = place->header.lower;
    if (slot->block != GADDR_NULL) {
        add(record, " a long key");
    } else {
        uint32_t head = slot->head_length < lower.length ? slot->head_length : lower.length;
        memcpy(bytes, lower.bytes, head);
        memcpy(bytes + head, slot->remainder.bytes, slot->remainder.length);
        add(record, " %" PRIu64,
            driver_key_number(&recorder->world->setting.shape, bytes, head + slot->remainder.length));
    }
    add_value(recorder, record, slot->value);
}

/* Where no key is looked for: what the slots hold that the command is about. */
static void add_slots(struct recorder *recorder, struct record *record, const struct place *place,
                      uint32_t length)
{
    const struct format_layout *layout = &recorder->layout;
    uint32_t states[3] = {0}, seed = format_slot_seed(place->header.tag, place->header.version);
    struct format_slot slot, taken = {0};
    for (uint32_t i = 0; i < layout->slots; i++) {
        if (!overlaps(place->offset, length, layout->slot_offset[i], layout->slot_bytes))
            continue;
        enum format_slot_state state =
            format_slot_read(layout, recorder->image, i, seed, place->header.lower, &slot);
        states[state]++;
        if (state == FORMAT_SLOT_TAKEN)
            taken = slot;
    }
    uint32_t all = states[0] + states[1] + states[2];
    if (all == 1 && states[FORMAT_SLOT_TAKEN]) {
        add(record, ":");
        add_slot(recorder, record, place, &taken);
    } else if (all == 1) {
        add(record, states[FORMAT_SLOT_EMPTY] ? ": empty" : ": invalid");
    } else if (all) {
        add(record, ": %u taken", states[FORMAT_SLOT_TAKEN]);
        if (states[FORMAT_SLOT_INVALID])
            add(record, ", %u invalid", states[FORMAT_SLOT_INVALID]);
    }
}

/* Under which child the node's bytes say that the key is. */
static void add_child(struct recorder *recorder, struct record *record, const struct format_header *header)
{
    struct format_entry *entries = recorder->entries;
    uint32_t at = 0;
    if (!format_internal_valid(&recorder->layout, recorder->image) ||
        !format_internal_decode(&recorder->layout, recorder->image, header, entries)) {
        add(record, ": torn");
        return;
    }
    while (at < header->count && format_key_compare(entries[at].key, recorder->key) <= 0)
        at++;
    if (at == 0)
        return;
    const struct format_link *link = &entries[at - 1].link;
    add(record, ": %" PRIu64 " under ", recorder->recording->focus.key);
    if (link->address == GADDR_NULL)
        add(record, "the left neighbour (a gap)");
    else
        add_name(recorder, record, &(struct place){.kind = PLACE_BLOCK, .block = link->address});
}

/* What part of a leaf a command is about. */
static void add_part(struct recorder *recorder, struct record *record, const struct place *place,
                     uint32_t length)
{
    const struct format_layout *layout = &recorder->layout;
    struct format_bucket bucket;
    uint32_t from = place->offset;
    if (from == 0 && length >= place->bytes)
        return;
    if (from == 0 && length <= layout->header_bytes) {
        add(record, " header");
        return;
    }
    for (uint32_t i = 0; i < layout->buckets && place->kind == PLACE_LEAF; i++) {
        format_bucket_number(layout, i, &bucket);
        if (bucket.offset == from && bucket.bytes == length) {
            add(record, " bucket %u", i);
            return;
        }
    }
    for (uint32_t i = 0; i < layout->slots && place->kind == PLACE_LEAF; i++)
        if (from == layout->slot_offset[i] && length <= layout->slot_bytes) {
            add(record, length == 4 ? " check of slot %u" : " slot %u", i);
            return;
        }
    add(record, " %u+%u", from, length);
}

/* The bytes that a READ has brought, or what is in memory since the WRITE, into the recorder's image. */
static void image_take(struct recorder *recorder, const struct place *place,
                       const struct fabric_command *command, bool last)
{
    memcpy(recorder->image, place->now, place->bytes);
    if (command->operation == FABRIC_READ && last && place->offset + command->length <= place->bytes)
        memcpy(recorder->image + place->offset, command->read.data, command->length);
}

/* Whether the command's bytes are those of the slot that the key is in. */
static bool is_slot_of_key(const struct recorder *recorder, const struct place *place, uint32_t length,
                           const struct format_bucket *bucket)
{
    struct format_slot slot;
    uint32_t seed = format_slot_seed(place->header.tag, format_bucket_version(recorder->image, bucket));
    return format_bucket_find(&recorder->layout, recorder->image, bucket, seed, recorder->key, &slot) &&
           overlaps(place->offset, length, recorder->layout.slot_offset[slot.number],
                    recorder->layout.slot_bytes);
}

/* A lock may be a part of the word. */
static gaddr lock_of(const struct fabric_command *command)
{
    uint64_t mask = command->operation == FABRIC_CAS ? command->cas.mask : 0;
    return command->address + (mask ? (uint64_t)__builtin_ctzll(mask) / 8 : 0);
}

/* About the address in the failure's message. Beside a key's operations only changes of it are of interest.
 */
static bool is_focus(const struct recorder *recorder, const struct place *place,
                     const struct fabric_command *command)
{
    const struct recorder_focus *focus = &recorder->recording->focus;
    if (!focus->has_node || (focus->has_key && command->operation == FABRIC_READ))
        return false;
    return place->kind == PLACE_LOCK ? (command->address | 7) == (focus->node | 7)
                                     : place->block == focus->node;
}

/* What the command's part of the node says: about the node, about slots of other keys, and about the key. */
static void tell_node(struct recorder *recorder, struct place *place, const struct fabric_command *command,
                      struct record *about_node, struct record *about_slots, struct record *about_key)
{
    const struct format_layout *layout = &recorder->layout;
    bool has_key = recorder->recording->focus.has_key, headed = false;
    struct format_bucket bucket;
    struct format_header header;
    uint32_t length = command->length;
    image_take(recorder, place, command, true);
    if (place->offset == 0 && length >= FORMAT_HEADER_FIXED) {
        headed = format_header_decode(layout, recorder->image, &header);
        if (headed)
            add_header(recorder, about_node, &header);
        if (!format_header_valid(layout, recorder->image))
            add(about_node, " torn");
    }
    if (!place->decoded)
        return;
    if (place->kind == PLACE_INTERNAL) {
        if (has_key && headed && length >= place->bytes)
            add_child(recorder, about_key, &header);
        return;
    }
    format_bucket_of(layout, place->header.tag, recorder->key, &bucket);
    bool writes = command->operation == FABRIC_WRITE;
    bool all = place->offset <= bucket.offset && place->offset + length >= bucket.offset + bucket.bytes;
    bool some = overlaps(place->offset, length, bucket.offset, bucket.bytes);
    bool key = has_key && (writes ? some : all),
         own_slot = key && is_slot_of_key(recorder, place, length, &bucket);
    if ((writes && !own_slot && length <= layout->slot_bytes) || !has_key ||
        is_focus(recorder, place, command))
        add_slots(recorder, about_slots, place, length);
    if (key)
        add_key(recorder, about_key, place, &bucket, !writes);
}

/* ---- commands ---- */

static const char *operation_name(enum fabric_operation operation)
{
    static const char *const names[] = {"READ", "WRITE", "CAS", "FAA"};
    return names[operation];
}

/* "B", or the lock's address. Whether it is the lock of a node with a name. */
static bool lock_text(const struct recorder *recorder, gaddr name, char text[GADDR_TEXT_BYTES])
{
    uint32_t at = name_of_lock(recorder->recording, name);
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
            add(record, "unlock %s", text);
        else
            add(record, "%s lock %s", operation_name(command->operation), text);
        return known;
    }
    uint64_t mask = command->cas.mask, shift = mask ? (uint64_t)__builtin_ctzll(mask) : 0;
    bool known = lock_text(recorder, name + shift / 8, text);
    bool swapped = (command->cas.old & mask) == (command->cas.compare & mask);
    if (!(command->cas.swap & mask))
        add(record, "unlock %s%s", text, swapped ? "" : ": was not held");
    else if (swapped)
        add(record, "lock %s: taken", text);
    else /* the word is the holder's compute_id: those count from 1 */
        add(record, "lock %s: held by compute %" PRIu64, text, ((command->cas.old & mask) >> shift) - 1);
    return known;
}

static uint64_t text_hash(const char *text)
{
    uint64_t hash = 1;
    for (; *text; text++)
        hash = random_mix(hash ^ (uint8_t)*text);
    return hash;
}

/* Whether the node has, or had, to do with the key. */
static bool is_of_key(const struct recorder *recorder, const struct place *place, const struct known *known)
{
    if (!recorder->recording->focus.has_key)
        return false;
    return known->touched || (place->decoded && format_header_side(&place->header, recorder->key) == 0);
}

static enum record_concern node_concern(struct recorder *recorder, const struct record *record, bool mine,
                                        const struct place *place, const struct fabric_command *command,
                                        const char *about_node, const char *about_key)
{
    struct known *known = known_of(recorder, place->block);
    /* an inner node's version tells nothing: each entry is a new one */
    const char *lasting = place->kind == PLACE_INTERNAL ? strchr(about_node, '[') : about_node;
    uint64_t header = lasting && *lasting ? text_hash(lasting) : known->header;
    uint64_t key = *about_key ? text_hash(about_key) : known->key;
    bool news = header != known->header || key != known->key, of_key = is_of_key(recorder, place, known);
    const struct lane *lane = record->act ? lane_at(recorder, record->lane) : NULL;
    if (command->operation == FABRIC_WRITE) {
        known->header = header;
        known->key = key;
    }
    if (mine && place->kind == PLACE_LEAF && (of_key || !lane->wide))
        known->touched = true;
    if (is_focus(recorder, place, command))
        return record->act || command->operation == FABRIC_WRITE ? RECORD_CHOOSES : RECORD_ASIDE;
    if (of_key && news && command->operation == FABRIC_WRITE)
        return RECORD_CHOOSES;
    return mine && (!lane->wide || (of_key && *about_key)) ? RECORD_CONTEXT : RECORD_ASIDE;
}

static void effect_on_node(struct recorder *recorder, struct record *record, bool mine, struct place *place,
                           const struct fabric_command *command, int left)
{
    struct record about_node = {.concern = RECORD_CONTEXT}, about_slots = {.concern = RECORD_CONTEXT},
                  about_key = {.concern = RECORD_CONTEXT};
    if (left)
        add(&about_node, " begins");
    else
        tell_node(recorder, place, command, &about_node, &about_slots, &about_key);
    if (left)
        record->concern = mine && !lane_at(recorder, record->lane)->wide ? RECORD_CONTEXT : RECORD_ASIDE;
    else
        record->concern =
            (uint8_t)node_concern(recorder, record, mine, place, command, about_node.text, about_key.text);
    add(record, "%s ", operation_name(command->operation));
    add_name(recorder, record, place);
    add_part(recorder, record, place, command->length);
    add(record, "%s%s%s", place->used ? "" : " (a free block)", about_node.text, about_slots.text);
    if (about_slots.text[0] && about_key.text[0])
        add(record, ";%s", about_key.text + 1);
    else
        add(record, "%s", about_key.text);
}

static void effect_on_lock(struct recorder *recorder, struct record *record, bool mine,
                           const struct place *place, const struct fabric_command *command)
{
    bool known = tell_lock(recorder, record, command);
    if (is_focus(recorder, place, command))
        record->concern = record->act ? RECORD_CHOOSES : RECORD_ASIDE;
    else if (known && record->act)
        record->concern = RECORD_CONTEXT;
    else if (mine && lane_at(recorder, record->lane)->wide)
        record->concern = RECORD_ASIDE;
}

/* Where an operation meets the same again and again, one record says how often. */
static void fold(struct recorder *recorder, struct record *record)
{
    struct recording *recording = recorder->recording;
    if (!record->act || record->concern == RECORD_ASIDE) {
        record_drop_aside(recorder, record);
        return;
    }
    struct lane *lane = lane_at(recorder, record->lane);
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
    add(latest, " (%u times)", lane->repeated + 1);
    recording->count--;
}

static void tell_effect(struct recorder *recorder, struct record *record, const struct sim_observation *seen,
                        const struct fabric_command *command)
{
    struct place place;
    char text[GADDR_TEXT_BYTES];
    bool mine = own(recorder, record, lane_of(recorder, seen->task));
    if (gaddr_node(command->address) >= recorder->world->options.memory_nodes)
        return;
    place_find(recorder, command->address, &place);
    if (place.kind == PLACE_LOCK) {
        effect_on_lock(recorder, record, mine, &place, command);
    } else if (place.kind == PLACE_LEAF || place.kind == PLACE_INTERNAL) {
        effect_on_node(recorder, record, mine, &place, command, seen->status);
    } else if (place.kind == PLACE_HEAD) {
        bool tags =
            command->operation == FABRIC_FAA && gaddr_offset(command->address) == MEMORY_NEXT_TAG_OFFSET;
        add(record, "%s %s", operation_name(command->operation), tags ? "next tags" : "the catalogue");
    } else {
        if (is_focus(recorder, &place, command) && record->act)
            record->concern = RECORD_CHOOSES;
        else if (mine && lane_at(recorder, record->lane)->wide)
            record->concern = RECORD_ASIDE;
        add(record, "%s block %s", operation_name(command->operation), gaddr_format(place.block, text));
        add(record, " %u+%u%s", place.offset, command->length, place.used ? "" : " (a free block)");
    }
}

static void effect(struct recorder *recorder, const struct sim_observation *seen,
                   const struct fabric_command *command)
{
    struct record *record = record_new(recorder, RECORD_EFFECT, seen->time_ns);
    tell_effect(recorder, record, seen, command);
    fold(recorder, record);
}

/* ---- lists and events ---- */

/* Before the first command takes effect: so that a lock is called after the node that is read with it. */
static void name_nodes(struct recorder *recorder, const struct sim_observation *seen)
{
    for (uint32_t i = 0; i < seen->count; i++) {
        struct place place;
        if (gaddr_node(seen->commands[i].address) >= recorder->world->options.memory_nodes)
            continue;
        place_find(recorder, seen->commands[i].address, &place);
        if (place.kind == PLACE_LEAF || place.kind == PLACE_INTERNAL)
            name_of(recorder, &place, true);
    }
}

static void tell_list(struct recorder *recorder, const struct sim_observation *seen)
{
    bool posted = seen->kind == SIM_POSTED,
         call = seen->kind == SIM_CALLED || seen->kind == SIM_CALL_RETURNED;
    posted = posted || seen->kind == SIM_CALLED;
    struct record *record = record_new(recorder, posted ? RECORD_POSTED : RECORD_RETURNED, seen->time_ns);
    own(recorder, record, lane_of(recorder, seen->task));
    if (!posted) {
        add(record, "m%d: %s", seen->memory, seen->status ? error_name(seen->status) : "answer");
        if (!seen->status)
            record->concern = RECORD_ASIDE;
        record_drop_aside(recorder, record);
        return;
    }
    if (record->act && lane_at(recorder, record->lane)->wide)
        record->concern = RECORD_ASIDE;
    add(record, "to m%d: %s", seen->memory, call ? "a call" : "");
    if (record->concern != RECORD_ASIDE)
        name_nodes(recorder, seen);
    for (uint32_t i = 0; i < seen->count; i++) {
        uint32_t same = 1;
        while (i + same < seen->count && seen->commands[i + same].operation == seen->commands[i].operation)
            same++;
        add(record, same > 1 ? "%s%s x%u" : "%s%s", i ? ", " : "",
            operation_name(seen->commands[i].operation), same);
        i += same - 1;
    }
    record_drop_aside(recorder, record);
}

static void tell_event(struct recorder *recorder, const struct sim_observation *seen)
{
    struct record *record = record_new(recorder, RECORD_EVENT, seen->time_ns);
    record->concern = RECORD_CHOOSES;
    switch (seen->kind) {
    case SIM_LOST:
        add(record, "m%d loses and fences compute %d", seen->memory, seen->compute);
        break;
    case SIM_DIED:
        add(record, "compute %d dies", seen->compute);
        break;
    case SIM_FENCED:
        add(record, "dead compute %d is fenced, its locks are freed", seen->compute);
        break;
    case SIM_RESTARTED:
        add(record, "compute %d takes the place of %d", seen->compute, seen->status);
        break;
    default:
        if (seen->task != UINT32_MAX) { /* of interest where its operation is */
            record->concern = RECORD_ASIDE;
            own(recorder, record, lane_of(recorder, seen->task));
            record->kind = RECORD_RETURNED;
            add(record, seen->status ? "(its thread stands still)" : "(stands still)");
            record_drop_aside(recorder, record);
        } else if (seen->memory >= 0) {
            add(record, "m%d stands still", seen->memory);
        } else {
            add(record, "compute %d stands still", seen->compute);
        }
    }
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

static void see(void *context, const struct sim_observation *seen)
{
    struct recorder *recorder = context;
    note_state(recorder);
    switch (seen->kind) {
    case SIM_POSTED:
    case SIM_RETURNED:
    case SIM_CALLED:
    case SIM_CALL_RETURNED:
        note_last(recorder, lane_of(recorder, seen->task));
        if (recorder->recording->texts)
            tell_list(recorder, seen);
        break;
    case SIM_EFFECT:
        for (uint32_t i = 0; i < seen->count; i++)
            if (seen->commands[i].operation == FABRIC_CAS)
                note_lock(recorder->recording, &seen->commands[i]);
        for (uint32_t i = 0; i < seen->count && recorder->recording->texts; i++)
            effect(recorder, seen, &seen->commands[i]);
        break;
    default:
        if (recorder->recording->texts)
            tell_event(recorder, seen);
    }
}

/* ---- the watch ---- */

static void begin(void *context, struct world *world)
{
    struct recording *recording = context;
    struct error error;
    struct recorder *recorder = calloc(1, sizeof *recorder);
    if (!recorder)
        abort();
    recorder->recording = recording;
    recorder->world = world;
    recording->recorder = recorder;
    if (recording->more && recording->more->begin)
        recording->more->begin(recording->more->context, world);
    if (!world->sim || format_layout_init(&recorder->layout, &world->options.geometry, &error))
        return;
    const struct format_geometry *geometry = &recorder->layout.geometry;
    recorder->entries = allocate(NULL, FORMAT_ENTRIES_MAX * sizeof *recorder->entries);
    recorder->image = allocate(NULL, geometry->leaf_bytes + geometry->internal_bytes + 1024);
    recorder->key = (struct format_key){
        recorder->key_bytes,
        (uint32_t)driver_key(&world->setting.shape, recording->focus.key, recorder->key_bytes)};
    world->setting.look = look;
    world->setting.looker = recorder;
    sim_observe(world->sim, see, recorder);
}

static void end(void *context, struct world *world, const struct swarm_result *result)
{
    struct recording *recording = context;
    struct recorder *recorder = recording->recorder;
    recording->blamed = world->setting.blamed;
    recording->culprit = world->culprit;
    snprintf(recording->failure, sizeof recording->failure, "%s", world->error.text);
    world->setting.look = NULL;
    if (world->sim)
        sim_observe(world->sim, NULL, NULL);
    if (recording->more && recording->more->end)
        recording->more->end(recording->more->context, world, result);
    if (!recorder)
        return;
    format_layout_free(&recorder->layout);
    free(recorder->lanes);
    free(recorder->lane_of);
    free(recorder->image);
    free(recorder->entries);
    free(recorder);
    recording->recorder = NULL;
}

struct swarm_watch recorder_watch(struct recording *recording)
{
    return (struct swarm_watch){.begin = begin, .end = end, .context = recording};
}
