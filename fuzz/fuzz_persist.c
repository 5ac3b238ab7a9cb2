/*
 * fuzz_persist.c - what the records of a journal say (persist/format.h, persist/replay.h), of owners' logs or
 * with whole values: blocks, frames, entries and parts of any bytes, in a journal whose own checksums are
 * right. Some frames get a right header, and some entries a record that is really there; some records of
 * values are such as a server writes, with the parts of long values before them, or with others; and some
 * name indexes, of stores and of others, drop them, or begin anew. Some values are in pieces, which were
 * copied, brought, both or neither.
 *
 * Oracle: what is refused is refused with a sentence; keys that are told ascend, and none is told twice; an
 * index that is named has a name.
 */
#include "base/log.h"
#include "disk/disk_simulated.h"
#include "format/record.h"
#include "fuzz/fuzz.h"
#include "persist/format.h"
#include "persist/replay.h"

#define PAYLOAD_MAX 2048u

struct told {
    uint8_t key[ARCHIVE_KEY_MAX];
    size_t length;
    uint16_t index;
    bool some;
};

static int tell(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    struct told *told = context;
    const struct format_key key = {entry->key, (uint32_t)entry->key_length};
    (void)error;
    fuzz_must(entry->key_length <= ARCHIVE_KEY_MAX, "a key of %zu bytes", entry->key_length);
    fuzz_must(!told->some || told->index < index ||
                  (told->index == index &&
                   format_key_compare((struct format_key){told->key, (uint32_t)told->length}, key) < 0),
              "keys do not ascend");
    for (size_t i = 0; i < entry->value_length; i += 64) /* it can be read */
        told->some |= entry->value[i] == 0;
    told->some = true;
    told->index = index;
    told->length = entry->key_length;
    if (entry->key_length)
        memcpy(told->key, entry->key, entry->key_length);
    return 0;
}

/* A record that lies at the address, for the key "k"; and the slot that refers to it. */
static uint32_t record_make(uint8_t *payload, gaddr address, uint32_t length, uint8_t slot[FORMAT_VALUE_MAX],
                            uint8_t *slot_length)
{
    uint8_t value[256] = {1};
    struct format_reference reference;
    const struct format_record record = {
        .key = "k", .key_length = 1, .stamp = 1, .value = value, .length = length % sizeof value};
    memcpy(payload, &address, PERSIST_BLOCK_HEADER);
    format_record_encode(payload + PERSIST_BLOCK_HEADER, address, &record, &reference);
    *slot_length = format_value_encode_reference(slot, &reference);
    return PERSIST_BLOCK_HEADER + format_record_whole_bytes(1, record.length);
}

/* A frame of one entry, of "k" with this slot. */
static uint32_t frame_make(uint8_t *payload, uint64_t sequence, const uint8_t *slot, uint8_t slot_length)
{
    struct persist_frame frame = {.process = {.instance = 5, .compute_id = 1}, .view = {.count = 1}};
    uint8_t *entry = payload + PERSIST_FRAME_HEADER;
    frame.view.first = sequence;
    persist_frame_encode(&frame, payload);
    memset(entry, 0, FORMAT_LOG_ENTRY_BYTES);
    entry[0] = FORMAT_LOG_PUT;
    entry[3] = 1; /* epoch */
    entry[15] = 1;
    entry[16] = slot_length;
    entry[FORMAT_LOG_ENTRY_BYTES] = 'k';
    memcpy(entry + FORMAT_LOG_ENTRY_BYTES + 1, slot, slot_length);
    return PERSIST_FRAME_HEADER + FORMAT_LOG_ENTRY_BYTES + 1 + slot_length;
}

static void append(struct journal *journal, uint8_t kind, const uint8_t *payload, uint32_t length)
{
    struct error error = {0};
    uint64_t position, safe;
    int status = journal_append(journal, kind, payload, length, &position, &error);
    if (status == BANYAN_EBUSY) {
        fuzz_must(!journal_sync(journal, &safe, &error), "%s", error.text);
        status = journal_append(journal, kind, payload, length, &position, &error);
    }
    fuzz_must(!status, "%s", error.text);
}

/* A part of a long value; *bytes: of those that stand right before what comes next. */
static void part_append(struct journal *journal, uint32_t length, uint32_t *bytes)
{
    static uint8_t part[JOURNAL_LENGTH_MAX];
    append(journal, PERSIST_BYTES, part, length);
    *bytes += length;
}

/* Entries of whole values. The first one may stand apart: in the parts that were appended last, or in none.
 */
static uint32_t values_make(struct fuzz_input *input, uint8_t *payload, uint32_t parts)
{
    static const uint8_t zeros[256];
    uint8_t key[2];
    uint32_t used = 0;
    for (unsigned i = 1 + fuzz_byte(input) % 6u; i && input->length; i--) {
        const uint8_t shape = fuzz_byte(input);
        struct persist_value value = {
            .key = {key, 1 + shape % 2u}, .index = shape / 2 % 2, .expires = shape / 4 % 2};
        key[0] = key[1] = (uint8_t)('k' + shape / 8 % 4);
        value.deleted = shape / 32 % 4 == 1;
        value.apart = shape / 32 % 4 == 2;
        if (value.apart)
            value.length = shape & 128 ? parts : PERSIST_VALUE_SHORT + 1u + fuzz_u16(input);
        else if (!value.deleted)
            value.length = fuzz_byte(input);
        value.bytes = value.deleted || value.apart ? NULL : zeros;
        persist_value_encode(&value, payload + used);
        used += persist_value_bytes(&value);
    }
    return used;
}

/* A piece of a value, as a block or as one that was brought: its bytes, or others. */
static void piece_append(struct fuzz_input *input, struct journal *journal, const struct format_piece *piece,
                         const uint8_t *bytes)
{
    uint8_t payload[PAYLOAD_MAX];
    const uint8_t how = fuzz_byte(input);
    memcpy(payload, &piece->block, PERSIST_BLOCK_HEADER);
    memcpy(payload + PERSIST_BLOCK_HEADER, bytes, piece->length);
    payload[PERSIST_BLOCK_HEADER] ^= how & 1;
    if (how & 6)
        append(journal, how & 2 ? PERSIST_PIECE : PERSIST_BLOCK, payload,
               PERSIST_BLOCK_HEADER + piece->length - (how & 8 ? 1 : 0));
}

/* A value of three pieces for the key "k", one of them zeros: the pieces, then the header, which becomes the
 * record's bytes; and the slot. */
static uint32_t pieces_make(struct fuzz_input *input, struct journal *journal, uint8_t *payload,
                            uint8_t slot[FORMAT_VALUE_MAX], uint8_t *slot_length)
{
    const gaddr address = 128;
    uint8_t bytes[256] = {1}, *header = payload + PERSIST_BLOCK_HEADER;
    struct format_record record = {.key = "k", .key_length = 1, .stamp = 2, .pieces = 3};
    struct format_piece pieces[3] = {{.block = 4096}, {.length = 7}, {.block = gaddr_make(1, 8192)}};
    struct format_reference reference;
    for (unsigned i = 0; i < 3; i++) {
        if (pieces[i].block != GADDR_NULL) {
            pieces[i].length = 1 + fuzz_byte(input) % 255u;
            pieces[i].hash = format_record_hash(bytes, pieces[i].length);
            piece_append(input, journal, &pieces[i], bytes);
        }
        record.length += pieces[i].length;
    }
    memcpy(payload, &address, PERSIST_BLOCK_HEADER);
    format_record_begin(header, &record);
    for (unsigned i = 0; i < 3; i++)
        format_record_piece_set(header, 1, i, &pieces[i]);
    format_record_seal(header, address, &record, &reference);
    *slot_length = format_value_encode_reference(slot, &reference);
    return PERSIST_BLOCK_HEADER + format_record_header_bytes(1, format_record_room(3));
}

/* One of four indexes, with a name of some bytes of the input, or dropped. */
static uint32_t index_make(struct fuzz_input *input, uint8_t *payload, uint8_t shape)
{
    char name[4];
    struct persist_index index = {.number = shape % 4u, .name = name};
    if (index.number && shape & 4) {
        index.gone = true;
    } else if (index.number) {
        index.geometry.content = shape & 8 ? FORMAT_CONTENT_STORE : FORMAT_CONTENT_PLAIN;
        index.name_length = 1 + fuzz_byte(input) % 4u;
        fuzz_take(input, (uint8_t *)name, index.name_length);
    }
    return persist_index_encode(&index, payload);
}

/* Bytes of the input, as the payload of a record of that kind. */
static void raw_append(struct fuzz_input *input, struct journal *journal, uint8_t kind, uint32_t length)
{
    uint8_t payload[PAYLOAD_MAX] = {0};
    if (length > input->length)
        length = (uint32_t)input->length;
    fuzz_take(input, payload, length);
    append(journal, kind, payload, length);
}

static void fill(struct fuzz_input *input, struct journal *journal)
{
    uint8_t payload[PAYLOAD_MAX], slot[FORMAT_VALUE_MAX], slot_length = 0;
    uint32_t parts = 0;
    for (unsigned i = 0; i < 64 && input->length; i++) {
        const uint8_t what = fuzz_byte(input);
        const uint32_t number = fuzz_u16(input), length = number % PAYLOAD_MAX;
        memset(payload, 0, sizeof payload);
        if (what >= 0xe0) {
            part_append(journal, number, &parts);
        } else if (what >= 0xc0) {
            append(journal, PERSIST_VALUES, payload, values_make(input, payload, parts));
            parts = 0;
        } else if (what >= 0xb0) {
            append(journal, PERSIST_INDEX, payload, index_make(input, payload, (uint8_t)number));
        } else if (what >= 0xa0) {
            const uint32_t header = pieces_make(input, journal, payload, slot, &slot_length);
            append(journal, PERSIST_BLOCK, payload, header);
        } else if (what % 8 == 6) {
            append(journal, PERSIST_BLOCK, payload, record_make(payload, 64, length, slot, &slot_length));
        } else if (what % 8 == 7 && slot_length) {
            append(journal, length % 2 ? PERSIST_FRAME : PERSIST_FRAME_TELLING, payload,
                   frame_make(payload, 1 + length, slot, slot_length));
        } else {
            raw_append(input, journal, what & 0x40 ? PERSIST_PIECE : 1 + (what & 7) % 6, length);
        }
    }
}

static void read_back(struct disk *disk)
{
    const struct journal_options options = {.cluster = 1, .seed = 3};
    struct error error = {0};
    struct persist_replay *replay;
    struct journal *journal = NULL;
    struct told told = {.some = false};
    fuzz_must(!persist_replay_create(&replay, &disk, 1, &error), "%s", error.text);
    struct journal_reader reader = {.visit = persist_replay_record, .context = replay};
    persist_replay_next(replay, 0);
    int status = journal_open(&journal, disk, &options, &reader, &error);
    if (!status)
        status = persist_replay_all(replay, tell, &told, &error);
    fuzz_must(!status || error.text[0], "a refusal without a sentence");
    for (uint32_t i = 0; i <= UINT16_MAX; i += i < 8 ? 1 : 997) {
        const struct persist_index *index = persist_replay_index(replay, (uint16_t)i);
        fuzz_must(!index || (i && index->name[0] && strlen(index->name) == index->name_length),
                  "index %u has no name", (unsigned)i);
    }
    persist_replay_destroy(replay);
    if (journal)
        journal_close(journal);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    const struct disk_simulated_options simulated = {.seed = 1};
    const struct journal_options options = {.cluster = 1, .seed = 2};
    struct fuzz_input input = {bytes, length};
    struct journal_reader reader = {.context = NULL};
    struct error error = {0};
    struct journal *journal;
    uint64_t safe;
    log_set_level(LOG_ERROR);
    struct disk *disk = disk_simulated_create(&simulated);
    if (!disk)
        abort();
    fuzz_must(!journal_open(&journal, disk, &options, &reader, &error), "%s", error.text);
    fill(&input, journal);
    fuzz_must(!journal_sync(journal, &safe, &error), "%s", error.text);
    journal_close(journal);
    read_back(disk);
    disk_close(disk);
    return 0;
}
