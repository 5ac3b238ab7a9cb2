/*
 * fuzz_peer.c - what a compute node may be told: requests and replies between compute nodes
 * (owner/message.h), and entries of the map of ranges (format/range.h) in any order.
 *
 * The first byte chooses: a request, a reply, an entry, a map, or a part of a scan. Oracle: nothing that is
 * read lies beyond the bytes; a message that is read to its end comes out the same when it is written again,
 * and so does an entry of the map; of a map that is not refused, each index begins at the least key and no
 * two ranges of it overlap.
 */
#include "fuzz/fuzz.h"
#include "format/range.h"
#include "owner/map.h"
#include "owner/message.h"
#include "owner/part.h"

static void within(const void *part, size_t part_length, const uint8_t *bytes, size_t length)
{
    const uint8_t *from = part;
    fuzz_must(from >= bytes && from + part_length <= bytes + length, "a part lies outside of the message");
}

/* Reads the next part, looks at it and writes it again; what reading it came to. */
static int request_part(struct owner_reader *reader, struct owner_writer *writer, const uint8_t *bytes,
                        size_t length)
{
    struct owner_item item;
    int status = owner_request_next(reader, &item);
    if (status)
        return status;
    within(item.key, item.key_length, bytes, length);
    within(item.expected, item.expected_length, bytes, length);
    if (item.value)
        within(item.value, item.length, bytes, length);
    fuzz_must(owner_request_add(writer, &item), "an item that was read cannot be written");
    return 0;
}

static int reply_part(struct owner_reader *reader, struct owner_writer *writer, const uint8_t *bytes,
                      size_t length)
{
    struct owner_answer answer;
    int status = owner_reply_next(reader, &answer);
    if (status)
        return status;
    within(answer.value, answer.length, bytes, length);
    fuzz_must(answer.status <= 0 && answer.status >= ERROR_CODE_LOWEST, "status %d", answer.status);
    fuzz_must(answer.existed || !answer.length, "no value of %zu bytes", answer.length);
    fuzz_must(owner_reply_add(writer, &answer), "an answer that was read cannot be written");
    return 0;
}

static void try_message(bool request, const uint8_t *bytes, size_t length)
{
    const size_t room = request ? FABRIC_PEER_BYTES_MAX : OWNER_REPLY_BYTES;
    struct owner_reader reader;
    struct owner_writer writer;
    uint8_t *again = malloc(room);
    int status =
        request ? owner_request_open(&reader, bytes, length) : owner_reply_open(&reader, bytes, length);
    if (!again)
        abort();
    if (request)
        owner_request_begin(&writer, again, room, reader.number, reader.version, reader.given_up);
    else
        owner_reply_begin(&writer, again, room, reader.version);
    while (!status)
        status = (request ? request_part : reply_part)(&reader, &writer, bytes, length);
    if (status == BANYAN_ENOTFOUND)
        fuzz_must(writer.length == length && !memcmp(again, bytes, length), "a message changes");
    free(again);
}

/* ---- parts of scans ---- */

static void try_part_request(const uint8_t *bytes, size_t length)
{
    struct owner_part_request request;
    uint8_t again[OWNER_PART_REQUEST_BYTES];
    if (owner_part_request_read(bytes, length, &request))
        return;
    if (request.range.from)
        within(request.range.from, request.range.from_length, bytes, length);
    if (request.range.to)
        within(request.range.to, request.range.to_length, bytes, length);
    fuzz_must(owner_part_request_write(again, &request) == length && !memcmp(again, bytes, length),
              "a request for a part changes");
}

/* Bounds of up to three bytes, so that replies meet them. */
static struct tree_range asked_range(struct fuzz_input *input, uint8_t bounds[2][4])
{
    const uint64_t flags = fuzz_below(input, 32);
    struct tree_range range = {.reverse = flags & 1,
                               .from_open = (flags & 6) == 6,
                               .to_open = (flags & 24) == 24,
                               .from = flags & 2 ? bounds[0] : NULL,
                               .to = flags & 8 ? bounds[1] : NULL};
    range.from_length = fuzz_below(input, 4);
    range.to_length = fuzz_below(input, 4);
    range.limit = fuzz_below(input, 5);
    fuzz_take(input, bounds[0], range.from_length);
    fuzz_take(input, bounds[1], range.to_length);
    return range;
}

static int compare(const struct format_key *key, const void *bound, size_t length)
{
    return format_key_compare(*key, (struct format_key){bound, (uint32_t)length});
}

static void try_part(struct fuzz_input *input)
{
    uint8_t bounds[2][4] = {{0}};
    const struct tree_range asked = asked_range(input, bounds);
    char *copy = fuzz_text(input->bytes, input->length);
    const uint8_t *bytes = (const uint8_t *)copy;
    struct owner_part_reader reader;
    struct owner_part_writer writer;
    struct format_key key, value, before = {0};
    uint8_t *again = malloc(OWNER_PART_BYTES);
    if (!again)
        abort();
    if (!owner_part_open(&reader, bytes, input->length, &asked)) {
        bool whole = true;
        owner_part_begin(&writer, again);
        while (owner_part_next(&reader, &key, &value)) {
            within(key.bytes, key.length, bytes, input->length);
            within(value.bytes, value.length, bytes, input->length);
            fuzz_must(!asked.from || compare(&key, asked.from, asked.from_length) >= asked.from_open,
                      "an entry below the range");
            fuzz_must(!asked.to || compare(&key, asked.to, asked.to_length) <= -(int)asked.to_open,
                      "an entry above the range");
            int order = reader.taken > 1 ? format_key_compare(before, key) : asked.reverse ? 1 : -1;
            fuzz_must(asked.reverse ? order > 0 : order < 0, "entries in disorder");
            before = key;
            whole = whole && owner_part_add(&writer, key.bytes, key.length, value.bytes, value.length);
        }
        fuzz_must(!asked.limit || reader.entries <= asked.limit, "more than were asked for");
        if (whole) {
            owner_part_end(&writer, reader.status, &reader.end, reader.version);
            fuzz_must(writer.length == input->length && !memcmp(again, bytes, writer.length),
                      "a part changes");
        }
    }
    free(again);
    free(copy);
}

/* ---- the map ---- */

/* Bytes as they are: only the check lets few of them through. */
static void try_entry(const uint8_t *bytes, size_t length)
{
    struct format_range range;
    size_t key_length = length ? bytes[0] : 0;
    if (length < 1 + key_length)
        return;
    const char *what =
        format_range_decode(bytes + 1, key_length, bytes + 1 + key_length, length - 1 - key_length, &range);
    if (what)
        return;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_RANGE_VALUE_BYTES];
    fuzz_must(format_range_encode(&range, key, value) == key_length && !memcmp(key, bytes + 1, key_length) &&
                  !memcmp(value, bytes + 1 + key_length, sizeof value),
              "an entry changes");
}

/* Entries that are good each by itself. */
static void try_map(struct fuzz_input *input)
{
    struct heap heap = {0};
    struct owner_map map = {.heap = &heap};
    while (input->length) {
        struct format_range range = {.number = (uint16_t)fuzz_below(input, 3)};
        range.state = (uint8_t)fuzz_below(input, FORMAT_RANGE_STATES);
        range.lower_length = (uint8_t)fuzz_below(input, 4);
        fuzz_take(input, range.lower, range.lower_length);
        range.owner.compute_id = (uint16_t)fuzz_below(input, 3);
        range.owner.instance = range.owner.compute_id;
        if (owner_map_put(&map, &range))
            abort();
    }
    if (owner_map_judge(&map))
        abort();
    for (uint16_t number = 0; number < 3; number++) {
        uint32_t count;
        const struct format_range *ranges = owner_map_of(&map, number, &count);
        if (!count || owner_map_problem(&map, number))
            continue;
        fuzz_must(!ranges[0].lower_length, "index %u does not begin at the least key", number);
        for (uint32_t i = 0; i < count; i++) {
            fuzz_must(!i || format_range_compare(&ranges[i - 1], &ranges[i]) < 0, "ranges overlap");
            uint32_t at = owner_map_find(&map, number, ranges[i].lower, ranges[i].lower_length);
            fuzz_must(&map.ranges[at] == &ranges[i], "a bound is not found in its range");
            struct tree_rights_row row;
            owner_map_row(&ranges[i], (struct fabric_process){.instance = 1, .compute_id = 1}, &row);
            fuzz_must(row.right != TREE_OWNED || ranges[i].owner.compute_id == 1, "a right from nothing");
        }
    }
    owner_map_free(&map);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    unsigned choice = fuzz_byte(&input) % 6;
    if (choice == 3)
        try_map(&input);
    else if (choice == 4)
        try_part(&input);
    if (choice == 3 || choice == 4)
        return 0;
    char *copy = fuzz_text(input.bytes, input.length);
    const uint8_t *copied = (const uint8_t *)copy;
    if (choice < 2)
        try_message(choice == 0, copied, input.length);
    else if (choice == 5)
        try_part_request(copied, input.length);
    else
        try_entry(copied, input.length);
    free(copy);
    return 0;
}
