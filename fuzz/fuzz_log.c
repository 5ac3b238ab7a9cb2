/*
 * fuzz_log.c - the bytes of an owner's log (format/log.h): headers of segments, control blocks, and segments
 * full of frames that are whole, torn, forged with right checks, copied elsewhere, or noise.
 *
 * Oracle: a second reading of the format, which marks the blocks that whole frames cover, finds the same
 * entries, the same end and the same corrupt regions; what was added to a frame is found in it; headers and
 * words that are taken are written again and read as the same.
 */
#include "base/crc32c.h"
#include "format/log.h"
#include "fuzz/fuzz.h"

/* ---- headers, control blocks, watermarks ---- */

static void mend(uint8_t *crc, const uint8_t *from, size_t length)
{
    uint32_t value = crc32c(0, from, length);
    memcpy(crc, &value, 4);
}

static void check_segment(struct fuzz_input *input, uint8_t how)
{
    static const struct format_log_segment sound = {.owner = {5, 6}, .nonce = 7, .size = 640, .before = 64};
    uint8_t bytes[FORMAT_LOG_BLOCK], again[FORMAT_LOG_BLOCK], changes[FORMAT_LOG_BLOCK];
    struct format_log_segment segment, second;
    fuzz_take(input, changes, sizeof changes);
    memset(bytes, 0, sizeof bytes);
    if (how & 1)
        format_log_segment_encode(&sound, bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] ^= changes[i];
    if (how & 2)
        mend(bytes, bytes + 4, sizeof bytes - 4);
    const char *complaint = format_log_segment_decode(bytes, &segment);
    fuzz_must(!complaint || complaint[0], "a header is refused without a message");
    if (complaint)
        return;
    fuzz_must(segment.size >= 128 && segment.size <= FORMAT_LOG_SEGMENT_MAX && segment.size % 64 == 0,
              "a segment of %u bytes", segment.size);
    format_log_segment_encode(&segment, again);
    fuzz_must(!format_log_segment_decode(again, &second), "a header is refused when it is written again");
    fuzz_must(fabric_process_equal(segment.owner, second.owner) && segment.number == second.number &&
                  segment.nonce == second.nonce && segment.size == second.size &&
                  segment.before == second.before,
              "a header reads otherwise when it is written again");
}

static void check_control(struct fuzz_input *input, uint8_t how)
{
    static const struct format_log_control sound = {.owner = {5, 6}, .watermark = 7};
    uint8_t bytes[FORMAT_LOG_BLOCK] = {0}, changes[FORMAT_LOG_BLOCK];
    struct format_log_control control, second;
    uint64_t word, sequence;
    fuzz_take(input, changes, sizeof changes);
    if (how & 1)
        format_log_control_encode(&sound, bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] ^= changes[i];
    if (how & 2)
        mend(bytes + 60, bytes + 8, 52);
    memcpy(&word, bytes + FORMAT_LOG_WATERMARK_OFFSET, 8);
    bool right = format_log_watermark_decode(word, &sequence);
    if (how & 4) {
        word = (word & ~UINT64_C(4095)) | (format_log_watermark_encode(sequence) & 4095);
        memcpy(bytes + FORMAT_LOG_WATERMARK_OFFSET, &word, 8);
        right = format_log_watermark_decode(word, &sequence);
        fuzz_must(right, "a watermark is refused");
    }
    fuzz_must(right == (format_log_watermark_encode(sequence) == word), "a watermark that is not written so");
    const char *complaint = format_log_control_decode(bytes, &control);
    fuzz_must(!complaint || complaint[0], "a control block is refused without a message");
    if (complaint)
        return;
    fuzz_must(right && control.watermark == sequence, "another watermark");
    format_log_control_encode(&control, bytes);
    fuzz_must(!format_log_control_decode(bytes, &second) && second.watermark == control.watermark &&
                  fabric_process_equal(control.owner, second.owner),
              "a control block reads otherwise when it is written again");
}

/* ---- a second reading ---- */

#define BLOCKS_MAX 1200u

struct found {
    uint64_t digest, greatest;
    uint32_t entries, frames, committed, end;
    bool covered[BLOCKS_MAX];
};

static void digest(uint64_t *into, const void *bytes, size_t length)
{
    *into = (*into ^ crc32c((uint32_t)*into, bytes, length)) * UINT64_C(0x9e3779b97f4a7c15) + length;
}

static void digest_entry(uint64_t *into, uint8_t kind, uint16_t index, uint64_t epoch, uint64_t sequence)
{
    uint64_t numbers[] = {kind, index, epoch, sequence};
    digest(into, numbers, sizeof numbers);
}

static uint64_t get(const uint8_t *bytes, unsigned length)
{
    uint64_t value = 0;
    while (length--)
        value = value << 8 | bytes[length];
    return value;
}

/* The entries of a frame: false if there are others than an owner writes. */
static bool read_entries(const uint8_t *at, const uint8_t *end, uint64_t count, uint64_t first,
                         struct found *found)
{
    for (; count; count--) {
        if (end - at < 17 || end - at < 17 + at[15] + at[16])
            return false;
        uint8_t kind = at[0], key = at[15], value = at[16];
        uint64_t sequence = first + (uint64_t)(int64_t)(int32_t)get(at + 11, 4);
        if (kind < 1 || kind > 2 || !sequence || sequence >> 52 || (value && kind != 1))
            return false;
        digest_entry(&found->digest, kind, (uint16_t)get(at + 1, 2), get(at + 3, 8), sequence);
        digest(&found->digest, at + 17, key);
        digest(&found->digest, at + 17 + key, value);
        found->entries++;
        if (sequence > found->greatest)
            found->greatest = sequence;
        at += 17 + key + value;
    }
    return at == end;
}

/* Of a frame's other copy. */
static bool other_right(uint64_t nonce, uint64_t number, uint64_t position, uint64_t before)
{
    if (position % 64 || before % 64 || position > FORMAT_LOG_SEGMENT_MAX || before > FORMAT_LOG_SEGMENT_MAX)
        return false;
    return nonce ? position != 0 : !number && !position && !before;
}

/* The parts of records of a carrier, which are all that it has. */
static bool read_parts(const uint8_t *at, const uint8_t *end)
{
    while (end - at >= 24) {
        uint64_t offset = get(at + 8, 4), part = get(at + 12, 4), whole = get(at + 16, 4);
        if (get(at + 20, 4) || !part || part > (uint64_t)(end - at - 24) || offset + part > whole)
            return false;
        at += 24 + part;
    }
    return at == end;
}

/* The flags of a frame: carriers have no entries and no other copy, and stand before a copy alone. */
static bool flags_right(uint64_t flags, uint64_t count, uint64_t nonce)
{
    return (!(flags >> 2) || nonce) && (!(flags & 1) || (!count && !nonce));
}

static void read_segment(const struct format_log_segment *segment, const uint8_t *bytes, struct found *found)
{
    uint32_t blocks = segment->size / 64, next;
    *found = (struct found){.end = 64};
    for (uint32_t block = 1; block < blocks; block = next) {
        const uint8_t *frame = bytes + 64 * block;
        uint64_t length = get(frame + 20, 4), committed = get(frame + 24, 4);
        uint64_t count = get(frame + 28, 2), flags = get(frame + 30, 2);
        next = block + 1;
        if (get(frame, 4) != crc32c(0, frame + 4, 60) || get(frame + 8, 8) != segment->nonce ||
            get(frame + 16, 4) != 64 * block || length < 64 || length > 65536 ||
            length > segment->size - 64 * block || committed > 64 * block || committed % 64)
            continue;
        if (!other_right(get(frame + 40, 8), get(frame + 48, 8), get(frame + 56, 4), get(frame + 60, 4)) ||
            !flags_right(flags, count, get(frame + 40, 8)))
            continue;
        next = block + (uint32_t)(length + 63) / 64;
        if (committed > found->committed)
            found->committed = (uint32_t)committed;
        struct found more = *found;
        if (get(frame + 4, 4) != crc32c(0, frame + 64, length - 64) ||
            !(flags & 1 ? read_parts(frame + 64, frame + length)
                        : read_entries(frame + 64, frame + length, count, get(frame + 32, 8), &more)))
            continue;
        *found = more;
        found->frames++;
        found->end = 64 * next;
        for (uint32_t i = block; i < next; i++)
            found->covered[i] = true;
    }
}

/* ---- segments ---- */

static struct format_log_entry take_entry(struct fuzz_input *input, uint8_t *room)
{
    uint8_t how = fuzz_byte(input), lengths = fuzz_byte(input);
    struct format_log_entry entry = {.kind = (uint8_t)(1 + how % 2),
                                     .index = how,
                                     .epoch = UINT64_C(0x101010101010101) * lengths,
                                     .sequence = 1 + (how & 64 ? fuzz_u64(input) >> 12 : fuzz_byte(input)),
                                     .value = room + 255};
    if (entry.sequence > FORMAT_LOG_SEQUENCE_MAX)
        entry.sequence = 1;
    entry.key = (struct format_key){room, how & 128 ? lengths : lengths & 15};
    fuzz_take(input, room, entry.key.length < 8 ? entry.key.length : 8);
    fuzz_take(input, room + 255, 4);
    if (entry.kind == FORMAT_LOG_PUT)
        entry.value_length = lengths >> 4;
    return entry;
}

/* A frame as owners write them, at some place; what was added must be found in it. */
static void put_frame(struct fuzz_input *input, const struct format_log_segment *segment, uint8_t *bytes,
                      uint32_t position)
{
    static uint8_t room[510], buffer[FORMAT_LOG_FRAME_MAX];
    struct format_log_frame frame;
    struct format_log_view view;
    uint64_t nonce = segment->nonce ^ !fuzz_below(input, 8);
    uint32_t left = segment->size - position, count = fuzz_byte(input) % 24, greatest = 4096;
    uint32_t committed = (uint32_t)fuzz_below(input, position / 64 + 1) * 64;
    format_log_frame_begin(&frame, buffer, left < greatest ? left : greatest);
    for (uint32_t i = 0; i < count; i++) {
        struct format_log_entry entry = take_entry(input, room);
        if (!format_log_frame_add(&frame, &entry))
            break;
    }
    if (count & 1)
        frame.other = (struct format_log_other){
            .nonce = 1 + count, .number = count, .position = 64 * (1u + count), .before = committed};
    uint32_t used = format_log_frame_seal(&frame, nonce, position, committed);
    fuzz_must(used == format_log_frame_bytes(&frame) && used <= left, "a frame of %u bytes", used);
    memcpy(bytes + position, buffer, used);
    enum format_log_found found = format_log_frame_find(segment, bytes, position, &view);
    fuzz_must(found == (nonce == segment->nonce ? FORMAT_LOG_WHOLE : FORMAT_LOG_NOTHING),
              "a frame is found as %d", (int)found);
    fuzz_must(found == FORMAT_LOG_NOTHING ||
                  (view.count == frame.count && view.bytes == used && view.committed == committed &&
                   !memcmp(&view.other, &frame.other, sizeof view.other)),
              "another frame is found");
}

/* Carriers of a record of any bytes, as owners write them: they are found, one behind the other, with all of
 * it. */
static void put_carriers(struct fuzz_input *input, const struct format_log_segment *segment, uint8_t *bytes,
                         uint32_t position)
{
    static uint8_t record[FORMAT_LOG_FRAME_MAX + 4096], again[sizeof record];
    struct format_log_carriers counted = {.bytes = NULL}, carriers = {.bytes = bytes + position};
    uint32_t length = 1 + (uint32_t)fuzz_below(input, sizeof record - 1), at = 0, found = 0;
    fuzz_take(input, record, 16);
    format_log_carriers_add(&counted, 4096, record, length);
    if (format_log_carriers_end(&counted) > segment->size - position)
        return;
    format_log_carriers_add(&carriers, 4096, record, length);
    uint32_t used = format_log_carriers_end(&carriers);
    fuzz_must(used == counted.used, "%u bytes of carriers, and %u were counted", used, counted.used);
    format_log_carriers_seal(&carriers, segment->nonce, position, 0, 9);
    while (at < used) {
        struct format_log_view view;
        struct format_log_part part;
        uint32_t next = 0;
        fuzz_must(format_log_frame_find(segment, bytes, position + at, &view) == FORMAT_LOG_WHOLE &&
                      view.parts,
                  "a carrier is not found");
        for (; format_log_part_next(&view, &next, &part); found += part.length)
            memcpy(again + part.offset, part.bytes, part.length);
        at += view.bytes;
    }
    fuzz_must(at == used && found == length && !memcmp(again, record, length), "another record is carried");
}

/* Changes the header of a frame, or what stands there, and puts its checks right. */
static void forge_frame(struct fuzz_input *input, const struct format_log_segment *segment, uint8_t *bytes,
                        uint32_t position)
{
    uint8_t how = fuzz_byte(input), *frame = bytes + position;
    if (how & 1)
        memcpy(frame + 8, &segment->nonce, 8);
    if (how & 2)
        memcpy(frame + 16, &position, 4);
    if (how & 4) {
        uint32_t length = how & 8 ? fuzz_u32(input) : fuzz_u16(input) % 1024;
        memcpy(frame + 20, &length, 4);
    }
    if (how & 16)
        fuzz_take(input, frame + 24, 16);
    uint64_t length = get(frame + 20, 4);
    if (how & 64)
        fuzz_take(input, frame + 40, 24);
    if (how & 32 && length >= 64 && length <= segment->size - position)
        mend(frame + 4, frame + 64, length - 64);
    mend(frame, frame + 4, 60);
}

static void fill_segment(struct fuzz_input *input, const struct format_log_segment *segment, uint8_t *bytes)
{
    uint32_t blocks = segment->size / 64, block = 1;
    while (input->length) {
        uint8_t what = fuzz_byte(input);
        if (what & 128) /* else where the last frame was */
            block = 1 + (uint32_t)fuzz_below(input, blocks - 1);
        uint32_t position = 64 * block, some = 1 + fuzz_byte(input);
        if (some > segment->size - position)
            some = segment->size - position;
        switch (what % 6) {
        case 0:
        case 1:
            put_frame(input, segment, bytes, position);
            break;
        case 2:
            forge_frame(input, segment, bytes, position);
            break;
        case 4:
            put_carriers(input, segment, bytes, position);
            break;
        case 3: { /* a copy of another place */
            uint32_t from = 64 * (uint32_t)fuzz_below(input, blocks);
            if (some > segment->size - from)
                some = segment->size - from;
            memmove(bytes + position, bytes + from, some);
            break;
        }
        default: {
            uint32_t at = position + fuzz_byte(input);
            bytes[at < segment->size ? at : position] ^= (uint8_t)(1u << some % 8);
        }
        }
    }
}

struct visit {
    const uint8_t *bytes, *end;
    uint64_t digest;
    uint32_t count, stop; /* visits; at which to end, 0: none */
};

static int visit_entry(struct visit *visit, const struct format_log_entry *entry)
{
    fuzz_must(entry->key.bytes > visit->bytes && entry->value == entry->key.bytes + entry->key.length &&
                  entry->value + entry->value_length <= visit->end,
              "an entry outside of the segment");
    digest_entry(&visit->digest, entry->kind, entry->index, entry->epoch, entry->sequence);
    digest(&visit->digest, entry->key.bytes, entry->key.length);
    digest(&visit->digest, entry->value, entry->value_length);
    return ++visit->count == visit->stop ? -3 : 0;
}

static int visit_frame(void *context, const struct format_log_view *frame)
{
    struct format_log_entry entry;
    uint32_t at = 0;
    int status = 0;
    while (!status && format_log_frame_next(frame, &at, &entry))
        status = visit_entry(context, &entry);
    return status;
}

/* What is corrupt, by the blocks that are covered. */
static void judge_corrupt(const struct found *found, const struct format_log_scan *scan, uint32_t limit)
{
    uint32_t regions = 0, first = 0, first_bytes = 0, bytes = 0;
    for (uint32_t block = 1; block < limit / 64; block++) {
        if (found->covered[block])
            continue;
        if (block == 1 || found->covered[block - 1])
            regions++;
        if (regions == 1 && !first)
            first = 64 * block;
        first_bytes += regions == 1 ? 64 : 0;
        bytes += 64;
    }
    fuzz_must(scan->corrupt_regions == regions && scan->corrupt_bytes == bytes &&
                  scan->corrupt_first == first && scan->corrupt_first_bytes == first_bytes,
              "corrupt: %u regions, %u bytes, first %u of %u, and not %u, %u, %u, %u", scan->corrupt_regions,
              scan->corrupt_bytes, scan->corrupt_first, scan->corrupt_first_bytes, regions, bytes, first,
              first_bytes);
}

static void check_scan(struct fuzz_input *input, uint8_t how)
{
    static struct found found;
    struct format_log_segment segment = {.owner = {5, 6}, .nonce = 2 + (uint64_t)fuzz_byte(input)};
    struct format_log_scan scan;
    segment.size = 64 * (2 + (uint32_t)fuzz_below(input, how & 1 ? BLOCKS_MAX - 2 : 60));
    uint32_t known = how & 2 ? fuzz_byte(input) * 64u : 0, stop = how & 4 ? fuzz_byte(input) : 0;
    uint8_t *bytes = malloc(segment.size);
    if (!bytes)
        abort();
    memset(bytes, how & 8 ? 0xa5 : 0, segment.size);
    fill_segment(input, &segment, bytes);
    read_segment(&segment, bytes, &found);
    struct visit visit = {.bytes = bytes, .end = bytes + segment.size};
    int status = format_log_scan(&segment, bytes, known, visit_frame, &visit, &scan);
    fuzz_must(!status && visit.count == found.entries && visit.digest == found.digest, "other entries");
    fuzz_must(scan.entries == found.entries && scan.frames == found.frames && scan.end == found.end &&
                  scan.committed == found.committed && scan.sequence == found.greatest,
              "%u entries, %u frames, end %u, committed %u, and not %u, %u, %u, %u", scan.entries,
              scan.frames, scan.end, scan.committed, found.entries, found.frames, found.end, found.committed);
    uint32_t limit = known > scan.committed ? known : scan.committed;
    judge_corrupt(&found, &scan, limit < segment.size ? limit : segment.size);
    visit = (struct visit){.bytes = bytes, .end = bytes + segment.size, .stop = stop};
    status = format_log_scan(&segment, bytes, known, visit_frame, &visit, &scan);
    fuzz_must(!stop || stop > found.entries ? !status : status == -3 && visit.count == stop,
              "a visit that ends it: %d", status);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    uint8_t what = fuzz_byte(&input);
    if (length > 4096)
        return 0;
    if (what % 8 == 0)
        check_segment(&input, what >> 3);
    else if (what % 8 == 1)
        check_control(&input, what >> 3);
    else
        check_scan(&input, what >> 3);
    return 0;
}
