/*
 * fuzz_peer.c - what a compute node may be told: requests and replies between compute nodes
 * (owner/message.h), and entries of the map of ranges (format/range.h) in any order.
 *
 * The first byte chooses: a request, a reply, or a map. Oracle: nothing that is read lies beyond the bytes; a
 * message that is read to its end comes out the same when it is written again, and so does an entry of the
 * map; of a map that is not refused, each index begins at the least key and no two ranges of it overlap.
 */
#include "fuzz/fuzz.h"
#include "format/range.h"
#include "owner/map.h"
#include "owner/message.h"

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
        owner_request_begin(&writer, again, room, reader.number, reader.version);
    else
        owner_reply_begin(&writer, again, room, reader.version);
    while (!status)
        status = (request ? request_part : reply_part)(&reader, &writer, bytes, length);
    if (status == BANYAN_ENOTFOUND)
        fuzz_must(writer.length == length && !memcmp(again, bytes, length), "a message changes");
    free(again);
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
    struct owner_heap heap = {0};
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
    unsigned choice = fuzz_byte(&input) % 4;
    if (choice == 3) {
        try_map(&input);
        return 0;
    }
    char *copy = fuzz_text(input.bytes, input.length);
    const uint8_t *copied = (const uint8_t *)copy;
    if (choice < 2)
        try_message(choice == 0, copied, input.length);
    else
        try_entry(copied, input.length);
    free(copy);
    return 0;
}
