/*
 * fuzz_peer_stream.c - what a compute node takes from its peers (fabric/peer_stream.c): the side that is
 * called or the one that calls, with a secret or without, against a proper other side whose bytes arrive in
 * any pieces, altered, and mixed with bytes of anybody's.
 *
 * Oracle: nothing is taken for a message before the opening has ended; with a secret nobody comes in who does
 * not know it; a message has a length and a kind that its side may send, and, as long as nothing was altered,
 * is the one that was sent; input and a stranger's output stay within their limits.
 */
#include "fabric/peer_stream.h"
#include "fuzz/fuzz.h"

#define STEPS_MAX  200
#define INPUT_MOST (sizeof(struct wire_header) + FABRIC_PEER_BYTES_MAX + 16384u)
#define SENT_MOST  (1u << 20)

struct world {
    struct peer_self tested_self, other_self;
    struct peer_stream tested, other;
    bool altered; /* something came that the other side has not said */
    bool heard;   /* something of the other side has come */
    bool over;
    uint64_t sent, taken; /* messages of the other side */
    uint64_t sent_id[STEPS_MAX];
    size_t sent_length[STEPS_MAX];
};

static const uint8_t *filler(void)
{
    static uint8_t bytes[FABRIC_PEER_BYTES_MAX];
    for (size_t i = 0; i < sizeof bytes && !bytes[1]; i++)
        bytes[i] = (uint8_t)(i * 7);
    return bytes;
}

static void check_message(struct world *world, const struct peer_message *message)
{
    fuzz_must(world->tested.stage == PEER_OPEN, "a message before the opening has ended");
    fuzz_must(message->length <= FABRIC_PEER_BYTES_MAX, "a message of %zu bytes", message->length);
    fuzz_must(message->status <= 0 && message->status >= ERROR_CODE_LOWEST, "status %d", message->status);
    if (world->tested.called)
        fuzz_must(message->kind == PEER_REQUEST && message->length > 0 && !message->status,
                  "a caller sends requests");
    else
        fuzz_must(message->kind == PEER_REPLY || (message->kind == PEER_UNSERVED && !message->length),
                  "a caller gets replies");
    if (world->altered)
        return;
    fuzz_must(world->taken < world->sent, "more messages than were sent");
    fuzz_must(message->id == world->sent_id[world->taken] &&
                  message->length == world->sent_length[world->taken] &&
                  memcmp(message->bytes, filler(), message->length) == 0,
              "the message is the one that was sent");
    world->taken++;
}

static void take_events(struct world *world)
{
    struct peer_message message;
    for (;;) {
        enum peer_event event = peer_stream_next(&world->tested, &message);
        if (event == PEER_MORE)
            return;
        if (event == PEER_MESSAGE) {
            check_message(world, &message);
        } else if (event == PEER_OPENED) {
            fuzz_must(world->heard || !world->tested_self.secret, "a stranger knows the secret");
        } else {
            fuzz_must(world->tested.why[0] != 0, "it says why");
            fuzz_must(world->altered || world->tested.stage == PEER_OVER, "it is over");
            world->over = true;
            return;
        }
    }
}

/* The bytes arrive. */
static void arrive(struct world *world, const uint8_t *bytes, size_t length)
{
    while (length > 0 && !world->over) {
        size_t capacity = 0;
        uint8_t *room = peer_stream_room(&world->tested, &capacity);
        fuzz_must(room && capacity > 0, "there is room for what is due");
        fuzz_must(world->tested.in_capacity <= INPUT_MOST, "input has grown to %zu bytes",
                  world->tested.in_capacity);
        fuzz_must(world->tested.stage == PEER_OPEN || world->tested.in_capacity <= 1024 + INPUT_MOST / 64,
                  "a stranger's input has grown to %zu bytes", world->tested.in_capacity);
        size_t some = length < capacity ? length : capacity;
        memcpy(room, bytes, some);
        peer_stream_received(&world->tested, some);
        bytes += some;
        length -= some;
        take_events(world);
        if (world->tested.stage != PEER_OPEN)
            fuzz_must(peer_stream_unsent(&world->tested) <= 1024, "a stranger makes the output grow");
    }
}

/* Part of what the other side has said arrives; one byte of it is another, if so. */
static void deliver(struct world *world, size_t length, bool alter, uint32_t place)
{
    struct peer_stream *other = &world->other;
    size_t unsent = peer_stream_unsent(other);
    length = length < unsent ? length : unsent;
    if (length == 0)
        return;
    uint8_t *copy = malloc(length);
    fuzz_must(copy, "memory");
    memcpy(copy, other->out + other->out_begin, length);
    peer_stream_sent(other, length);
    if (alter)
        copy[place % length] ^= (uint8_t)(1u << place % 8);
    world->altered |= alter;
    world->heard = true;
    arrive(world, copy, length);
    free(copy);
}

/* All that the tested side has said arrives at the other. */
static void answer(struct world *world)
{
    struct peer_stream *tested = &world->tested;
    struct peer_message message;
    while (peer_stream_unsent(tested) > 0) {
        size_t capacity = 0, unsent = peer_stream_unsent(tested);
        uint8_t *room = peer_stream_room(&world->other, &capacity);
        fuzz_must(room, "memory");
        size_t some = unsent < capacity ? unsent : capacity;
        memcpy(room, tested->out + tested->out_begin, some);
        peer_stream_sent(tested, some);
        peer_stream_received(&world->other, some);
        enum peer_event event;
        while ((event = peer_stream_next(&world->other, &message)) == PEER_OPENED || event == PEER_MESSAGE)
            ;
        fuzz_must(event == PEER_MORE || world->altered || world->over,
                  "a proper other side finds nothing wrong: %s", world->other.why);
        if (event != PEER_MORE)
            world->over = true; /* it has closed */
        if (world->over)
            return;
    }
}

static void send_message(struct world *world, struct fuzz_input *input)
{
    uint8_t how = fuzz_byte(input);
    size_t length = how & 1 ? fuzz_u16(input) : fuzz_byte(input);
    if (world->other.stage != PEER_OPEN || world->sent == STEPS_MAX ||
        peer_stream_unsent(&world->other) > SENT_MOST)
        return;
    enum peer_kind kind = !world->other.called ? PEER_REQUEST : how & 2 ? PEER_UNSERVED : PEER_REPLY;
    length = kind == PEER_UNSERVED ? 0 : kind == PEER_REQUEST && length == 0 ? 1 : length;
    fuzz_must(
        peer_stream_send(&world->other, kind, how, kind == PEER_REPLY ? -(how >> 6) : 0, filler(), length),
        "memory");
    world->sent_id[world->sent] = how;
    world->sent_length[world->sent++] = length;
}

static void feed_raw(struct world *world, struct fuzz_input *input, size_t length)
{
    uint8_t bytes[256];
    length = length < sizeof bytes ? length : sizeof bytes;
    fuzz_take(input, bytes, length);
    world->altered = true;
    arrive(world, bytes, length);
}

static void feed_head(struct world *world, struct fuzz_input *input)
{
    struct wire_header head = {.kind = fuzz_byte(input), .status = -(int32_t)fuzz_byte(input)};
    head.length = fuzz_u32(input);
    head.id = fuzz_byte(input);
    world->altered = true;
    arrive(world, (const uint8_t *)&head, sizeof head);
}

static void step(struct world *world, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input);
    switch (what % 8) {
    case 0:
        feed_raw(world, input, fuzz_byte(input));
        break;
    case 1:
        feed_head(world, input);
        break;
    case 2:
        deliver(world, 1 + fuzz_byte(input), true, fuzz_byte(input));
        break;
    case 3:
        deliver(world, 1u + fuzz_u16(input), false, 0);
        break;
    case 4:
    case 5:
        send_message(world, input);
        break;
    default:
        deliver(world, SIZE_MAX, false, 0);
        if (!world->over)
            answer(world);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    struct world *world = calloc(1, sizeof *world);
    uint8_t how = fuzz_byte(&input);
    fuzz_must(world, "memory");
    world->tested_self = (struct peer_self){.process = {.instance = 11, .compute_id = 1}, .cluster_id = 5};
    world->other_self = (struct peer_self){.process = {.instance = 22, .compute_id = 2}, .cluster_id = 5};
    if (how & 1) {
        world->tested_self.secret = world->other_self.secret = "sesame oil";
        world->tested_self.secret_length = world->other_self.secret_length = 10;
    }
    bool called = how & 2;
    if (how & 4) { /* the other side is wrong about something */
        world->altered = true;
        world->other_self.cluster_id += how >> 3 & 1;
        world->other_self.secret_length -= world->other_self.secret && how >> 4 & 1;
    }
    bool knows =
        !world->tested_self.secret || world->tested_self.secret_length == world->other_self.secret_length;
    peer_stream_begin(&world->tested, &world->tested_self, called, world->other_self.process);
    peer_stream_begin(&world->other, &world->other_self, !called, world->tested_self.process);
    for (unsigned i = 0; i < STEPS_MAX && input.length > 0 && !world->over; i++)
        step(world, &input);
    fuzz_must(knows || world->tested.stage != PEER_OPEN, "one who does not know the secret has come in");
    peer_stream_end(&world->tested);
    peer_stream_end(&world->other);
    free(world);
    return 0;
}
