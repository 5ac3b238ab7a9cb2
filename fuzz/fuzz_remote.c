/*
 * fuzz_remote.c - the compute node's end of the wire (fabric/remote*.c) against memory nodes that answer as
 * they should, and where the input says so, otherwise: any field of a greeting, a welcome, a refusal, a
 * reply, a result or an echo changed; messages cut, doubled, put before others; connections refused and
 * closed; descriptors of files that are too short. Sockets, threads and the clock are played by this file, so
 * that an input does the same each time; the steps of the heartbeat and of the reconnect are made where the
 * input asks for them.
 *
 * Oracle: every list and call ends; what a reply says reaches the caller if, and only if, a second reading of
 * wire.h accepts it, byte for byte, and nothing is written beyond the caller's buffers; what is refused costs
 * the connection; statuses are those of error.h; nothing is leaked.
 */
/* The steps of the heartbeat and of the reconnect, without their threads. */
#include "fabric/remote_heartbeat.c"
#include "fabric/remote_reconnect.c"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "fuzz/fuzz_clock.h"
#include "memory/memory.h"

#define NODES_MAX    3u
#define STREAMS_MAX  64u
#define MEMORY_BYTES (UINT64_C(256) << 10)
#define STEPS_MAX    120u
#define PATIENCE     8u /* empty looks at a stream before it ends */

/* ---- the world: one input's ---- */

struct net_stream {
    bool mapped, ended, dirty; /* dirty: what comes next no longer means what it says */
    bool deaf;                 /* a write has failed: so do all others */
    int fd;
    unsigned node, empty_looks;
    uint32_t role;
    uint8_t nonce[NET_NONCE_BYTES];
    uint8_t *in, *out; /* from the client, to the client */
    size_t in_length, out_begin, out_end, out_capacity;
};

/* The last reply to a list of a node, as it was said. */
struct said {
    bool there, clean;
    struct wire_header header, asked;
    uint8_t *body; /* header.length bytes where clean */
};

static struct {
    struct fuzz_input input;
    struct net_stream *streams[STREAMS_MAX];
    unsigned connecting;
    unsigned lies; /* in 16 messages */
    bool secret;
    struct said said[NODES_MAX];
} world;

static int nowhere, pool_file, locks_file, staging_file, short_file;

/* ---- threads ---- */

int thread_start(struct thread **thread, void (*function)(void *), void *argument, struct error *error)
{
    *thread = NULL;
    if (fuzz_byte(&world.input) == 255)
        return error_set(error, BANYAN_ENOMEM, "no threads today");
    return BANYAN_OK;
}

void thread_join(struct thread *thread) {}

/* ---- the memory node's mouth ---- */

static void out_append(struct net_stream *stream, const void *bytes, size_t length)
{
    if (stream->out_capacity - stream->out_end < length) {
        stream->out_capacity = 2 * (stream->out_end + length);
        stream->out = realloc(stream->out, stream->out_capacity);
        fuzz_must(stream->out, "no memory");
    }
    if (length)
        memcpy(stream->out + stream->out_end, bytes, length);
    stream->out_end += length;
}

static void overwrite(void *bytes, size_t length)
{
    size_t at = fuzz_byte(&world.input) % length, most = 1 + fuzz_byte(&world.input) % 8;
    fuzz_take(&world.input, (uint8_t *)bytes + at, most < length - at ? most : length - at);
}

/* True: it was said, whole, and nothing else; though it may be a lie. */
static bool say(struct net_stream *stream, struct wire_header *header, uint8_t *body, uint32_t length)
{
    uint8_t garbage[32];
    uint8_t how = world.input.length ? fuzz_byte(&world.input) : 255;
    header->length = length;
    bool truth = how % 16 >= world.lies, clean = !stream->dirty;
    how = truth ? 0 : 1 + how / 16 % 8;
    if (how == 1 || how == 2)
        overwrite(header, sizeof *header);
    else if ((how == 3 || how == 4) && length)
        overwrite(body, length < 256 ? length : 256);
    else if (how == 5) { /* longer or shorter, and so it says */
        fuzz_take(&world.input, garbage, sizeof garbage);
        header->length = garbage[0] < length ? garbage[0] : length + garbage[0] % 32;
    } else if (how == 6) {
        fuzz_take(&world.input, garbage, 1 + how);
        out_append(stream, garbage, 1 + how);
        clean = false;
    }
    out_append(stream, header, sizeof *header);
    out_append(stream, body, header->length < length ? header->length : length);
    if (how == 5 && header->length > length)
        out_append(stream, garbage, header->length - length);
    if (how == 7) {
        stream->out_end -= fuzz_byte(&world.input) % (sizeof *header + length);
        stream->ended = true;
        clean = false;
    }
    if (how == 8)
        out_append(stream, header, sizeof *header);
    if (how)
        stream->dirty = true;
    return clean;
}

static void say_greeting(struct net_stream *stream)
{
    struct wire_header header = {.kind = WIRE_GREETING};
    struct wire_greeting greeting = {
        .magic = WIRE_MAGIC, .version = WIRE_VERSION, .secret_wanted = world.secret};
    memset(stream->nonce, 'n', sizeof stream->nonce);
    memcpy(greeting.nonce, stream->nonce, sizeof greeting.nonce);
    say(stream, &header, (uint8_t *)&greeting, sizeof greeting);
}

static void say_refusal(struct net_stream *stream)
{
    struct wire_header header = {.kind = WIRE_REFUSE};
    uint8_t body[300];
    uint32_t length = fuzz_byte(&world.input) + 4u;
    int32_t code = -(int32_t)(fuzz_byte(&world.input) % 24);
    fuzz_take(&world.input, body, length);
    memcpy(body, &code, sizeof code);
    say(stream, &header, body, length);
    stream->ended = true;
}

static void hear_hello(struct net_stream *stream, const struct wire_hello *hello)
{
    struct wire_header header = {.kind = WIRE_WELCOME};
    struct wire_welcome welcome = {.lease_ms = 1000,
                                   .compute_id = hello->compute_id ? hello->compute_id : 9,
                                   .node = (uint16_t)stream->node,
                                   .mapped = hello->map != 0,
                                   .lock_width = 2,
                                   .group_key = 5,
                                   .cluster_id = 6,
                                   .instance = 7,
                                   .pool_bytes = MEMORY_BYTES,
                                   .lock_bytes = 4096};
    stream->role = hello->role;
    stream->mapped = hello->map;
    if (fuzz_byte(&world.input) == 254) {
        say_refusal(stream);
        return;
    }
    if (world.secret)
        net_proof("sesame oil", 10, "banyan server", hello->nonce, stream->nonce, welcome.proof);
    say(stream, &header, (uint8_t *)&welcome, sizeof welcome);
}

static uint8_t content(uint64_t address, uint32_t at)
{
    return (uint8_t)(address * 7 + at * 3 + 1);
}

static void hear_list(struct net_stream *stream, const struct wire_header *asked, const uint8_t *bytes)
{
    struct said *said = &world.said[stream->node];
    uint8_t *body = malloc(8u * 65536u); /* a list's 8 commands, see take_list */
    uint32_t length = 0, stop = fuzz_byte(&world.input);
    struct wire_header header = {.kind = WIRE_REPLY, .id = asked->id};
    for (; header.count < asked->count; header.count++) {
        struct wire_command command;
        memcpy(&command, bytes, sizeof command);
        bytes += sizeof command + wire_command_payload(&command);
        if (stop == 192u + header.count) {
            header.status = BANYAN_EADDRESS;
            break;
        }
        uint32_t result = wire_command_result(&command);
        fuzz_must(result != UINT32_MAX && length + result <= 8u * 65536u, "the client asks nonsense");
        for (uint32_t i = 0; i < result; i++)
            body[length + i] = content(command.address, i);
        length += result;
    }
    free(said->body);
    *said = (struct said){.there = true, .asked = *asked};
    said->clean = say(stream, &header, body, length);
    said->header = header;
    said->body = realloc(body, length ? length : 1);
    said->clean &= header.length <= length;
}

static void hear_call(struct net_stream *stream, const struct wire_header *asked)
{
    struct wire_header header = {.kind = WIRE_RESULT, .id = asked->id};
    uint8_t body[256];
    uint32_t length = fuzz_byte(&world.input);
    memset(body, 'c', sizeof body);
    if (length > 200)
        header.status = -(int32_t)(length - 200);
    say(stream, &header, body, length);
}

/* A whole message of the client's; what it sends must always make sense. */
static void hear(struct net_stream *stream, const struct wire_header *header, const uint8_t *body)
{
    struct wire_header echo = *header;
    if (!wire_header_valid(header)) { /* a goodbye in the middle of a call that was left behind */
        fuzz_must(stream->mapped && stream->role == WIRE_DATA, "the client sends an invalid header");
        stream->ended = true;
        return;
    }
    switch (header->kind) {
    case WIRE_HELLO:
        fuzz_must(header->length == sizeof(struct wire_hello), "the client's hello has %u bytes",
                  header->length);
        hear_hello(stream, (const struct wire_hello *)(const void *)body);
        break;
    case WIRE_LIST:
        fuzz_must(stream->role == WIRE_DATA, "a list on another than a data connection");
        hear_list(stream, header, body);
        break;
    case WIRE_CALL:
    case WIRE_FORMAT:
        hear_call(stream, header);
        break;
    case WIRE_HEARTBEAT:
        say(stream, &echo, NULL, 0);
        break;
    case WIRE_GOODBYE:
        stream->ended = true;
        break;
    default:
        fuzz_must(false, "the client sends kind %u", header->kind);
    }
}

/* ---- net.h, played ---- */

int net_connect(const struct net_address *address, uint64_t timeout_ns, int *fd, struct error *error)
{
    if (fuzz_byte(&world.input) > 250)
        return error_set(error, BANYAN_ENET, "no memory node is there");
    world.connecting = address->port;
    *fd = fcntl(nowhere, F_DUPFD_CLOEXEC, 3);
    return BANYAN_OK;
}

struct net_stream *net_stream_create(int fd, struct net_tls *tls, bool server, const char *host)
{
    struct net_stream *stream = calloc(1, sizeof *stream);
    unsigned place = 0;
    while (place < STREAMS_MAX && world.streams[place])
        place++;
    fuzz_must(place < STREAMS_MAX, "connections are left behind");
    *stream = (struct net_stream){.fd = fd, .node = world.connecting};
    world.streams[place] = stream;
    say_greeting(stream);
    return stream;
}

void net_stream_destroy(struct net_stream *stream)
{
    if (!stream)
        return;
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        if (world.streams[i] == stream)
            world.streams[i] = NULL;
    close(stream->fd);
    free(stream->in);
    free(stream->out);
    free(stream);
}

int net_stream_fd(const struct net_stream *stream)
{
    return stream->fd;
}

enum net_status net_stream_read(struct net_stream *stream, void *buffer, size_t capacity, size_t *length)
{
    size_t there = stream->out_end - stream->out_begin;
    uint8_t how = world.input.length ? fuzz_byte(&world.input) : 1;
    *length = 0;
    if (!there && !stream->ended && ++stream->empty_looks <= PATIENCE)
        return NET_AGAIN;
    if (!there)
        return how & 1 ? NET_END : NET_FAILED;
    if (how % 32 == 0)
        return NET_AGAIN;
    stream->empty_looks = 0;
    *length = how % 32 < 24 || there < 2 ? there : 1 + how % (there < 64 ? there - 1 : 63);
    if (*length > capacity)
        *length = capacity;
    memcpy(buffer, stream->out + stream->out_begin, *length);
    stream->out_begin += *length;
    return NET_OK;
}

enum net_status net_stream_write(struct net_stream *stream, const void *data, size_t length, size_t *written)
{
    uint8_t how = world.input.length ? fuzz_byte(&world.input) : 1;
    *written = 0;
    stream->deaf |= how == 255;
    if (stream->deaf)
        return NET_FAILED;
    if (how % 32 == 31)
        return NET_AGAIN;
    *written = how % 32 < 24 ? length : 1 + how % (length < 100 ? length : 100);
    if (*written > length)
        *written = length;
    stream->in = realloc(stream->in, stream->in_length + *written);
    fuzz_must(stream->in, "no memory");
    memcpy(stream->in + stream->in_length, data, *written);
    stream->in_length += *written;
    struct wire_header header;
    while (stream->in_length >= sizeof header) {
        memcpy(&header, stream->in, sizeof header);
        size_t whole = sizeof header + header.length;
        if (stream->in_length < whole)
            break;
        uint8_t *body = malloc(header.length + 1u); /* aligned, and of its size */
        memcpy(body, stream->in + sizeof header, header.length);
        hear(stream, &header, body);
        free(body);
        stream->in_length -= whole;
        memmove(stream->in, stream->in + whole, stream->in_length);
    }
    return NET_OK;
}

uint32_t net_stream_wants(const struct net_stream *stream, bool write)
{
    return EPOLLIN | (write ? EPOLLOUT : 0u);
}

bool net_stream_pending(const struct net_stream *stream)
{
    return stream->out_end > stream->out_begin;
}

const char *net_stream_error(const struct net_stream *stream)
{
    return "it failed";
}

int net_wait(int fd, uint32_t events, uint64_t timeout_ns)
{
    for (unsigned i = 0; i < STREAMS_MAX; i++) {
        const struct net_stream *stream = world.streams[i];
        if (stream && stream->fd == fd && (events & EPOLLOUT || stream->out_end > stream->out_begin))
            return BANYAN_OK;
    }
    fuzz_clock_ns += timeout_ns;
    return BANYAN_ETIMEOUT;
}

int net_receive_descriptors(int fd, int *descriptors, unsigned count, uint64_t timeout_ns,
                            struct error *error)
{
    uint8_t how = fuzz_byte(&world.input);
    if (how == 255)
        return error_set(error, BANYAN_ENET, "no descriptors came");
    const int files[2] = {count == 2 ? pool_file : staging_file, locks_file};
    for (unsigned i = 0; i < count; i++)
        descriptors[i] =
            fcntl(how / 64 == i + 1 && how % 64 == 0 ? short_file : files[i], F_DUPFD_CLOEXEC, 3);
    return BANYAN_OK;
}

/* There are no peers here: fuzz_peer_stream.c has what they say. */
int net_listen(struct net_address *address, unsigned mode, int *fd, struct error *error)
{
    return error_set(error, BANYAN_ENET, "no address is free");
}

int net_accept(int listener, int *fd, char peer[NET_TEXT_MAX], struct error *error)
{
    fuzz_must(false, "nothing listens");
    return BANYAN_ENET;
}

int net_connect_begin(const struct net_address *address, int *fd, struct error *error)
{
    return error_set(error, BANYAN_ENET, "no peer is there");
}

void net_local_host(int fd, char host[NET_HOST_MAX + 1])
{
    host[0] = 0;
}

/* ---- the client ---- */

struct trial {
    struct net_address addresses[NODES_MAX];
    struct fabric_remote_options options;
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
};

static void judge_status(int status)
{
    fuzz_must(status <= 0 && status >= BANYAN_EVERSION, "status %d", status);
}

struct asked {
    struct fabric_list list;
    struct fabric_command commands[8];
    uint64_t words[8][3];
};

static void take_list(struct asked *asked, uint16_t node)
{
    *asked = (struct asked){.list = {.node = node, .count = 1 + fuzz_byte(&world.input) % 8}};
    asked->list.commands = asked->commands;
    asked->list.incarnation = fuzz_byte(&world.input) % 3;
    for (unsigned i = 0; i < asked->list.count; i++) {
        struct fabric_command *command = &asked->commands[i];
        uint8_t what = fuzz_byte(&world.input);
        command->operation = (enum fabric_operation)(what % 4);
        command->address = gaddr_make(what == 255 ? node + 1u : node, (fuzz_u16(&world.input) & 0xfff8u) + 8);
        command->length = what & 64 ? fuzz_u16(&world.input) : 8;
        if (what & 128)
            command->address |= GADDR_LOCK_REGION;
        if (command->operation == FABRIC_READ) {
            command->read.buffer = aligned_alloc(8, (command->length + 8u) / 8 * 8);
        } else if (command->operation == FABRIC_WRITE) {
            command->write.data = calloc(1, command->length + 1u);
        } else if (command->operation == FABRIC_CAS) {
            command->cas.mask = UINT64_MAX;
        }
    }
}

static void drop_list(struct asked *asked)
{
    for (unsigned i = 0; i < asked->list.count; i++)
        if (asked->commands[i].operation == FABRIC_READ)
            free(asked->commands[i].read.buffer);
        else if (asked->commands[i].operation == FABRIC_WRITE)
            free((void *)(uintptr_t)asked->commands[i].write.data);
}

static uint32_t result_of(const struct fabric_command *command)
{
    return command->operation == FABRIC_READ ? command->length : command->operation == FABRIC_WRITE ? 0 : 8;
}

static bool sayable(const struct fabric_list *list, unsigned i)
{
    const struct fabric_command *command = &list->commands[i];
    return gaddr_node(command->address) == list->node &&
           (command->operation >= FABRIC_CAS || command->length - 1u < FABRIC_LENGTH_MAX);
}

/* What should have become of a list whose reply was said as `said`. */
static void judge_list(const struct fabric_list *list, const struct said *said)
{
    const struct wire_header *header = &said->header;
    unsigned sent = 0;
    uint64_t length = 0;
    while (sent < list->count && sayable(list, sent))
        sent++;
    fuzz_must(said->asked.count == sent, "%u commands were sent, not %u", said->asked.count, sent);
    for (unsigned i = 0; i < header->count && i < sent; i++)
        length += result_of(&list->commands[i]);
    bool good = header->kind == WIRE_REPLY && header->id == said->asked.id && header->status <= 0 &&
                header->status >= ERROR_CODE_LOWEST && header->count <= sent &&
                (header->status || header->count == sent) && header->length == length;
    int expected = !good                ? BANYAN_ENET
                   : header->status     ? header->status
                   : sent < list->count ? BANYAN_EADDRESS
                                        : 0;
    fuzz_must(list->status == expected, "a list's status is %d instead of %d", list->status, expected);
    for (unsigned i = 0, at = 0; good && i < header->count; i++) {
        const struct fabric_command *command = &list->commands[i];
        const void *got = command->operation == FABRIC_READ  ? command->read.data
                          : command->operation == FABRIC_CAS ? (const void *)&command->cas.old
                                                             : &command->faa.old;
        fuzz_must(!memcmp(got, said->body + at, result_of(command)), "command %u got other bytes", i);
        at += result_of(command);
    }
}

static void do_lists(struct trial *trial)
{
    struct asked *asked[NODES_MAX];
    struct fabric_list *lists[NODES_MAX];
    unsigned count = 1 + fuzz_byte(&world.input) % trial->options.count;
    for (unsigned i = 0; i < count; i++) {
        asked[i] = malloc(sizeof *asked[i]);
        take_list(asked[i], (uint16_t)i);
        lists[i] = &asked[i]->list;
        world.said[i].there = false;
    }
    int status = fabric_execute(trial->endpoint, lists, count, NULL);
    judge_status(status);
    for (unsigned i = 0; i < count; i++) {
        struct fabric_remote_node_state state;
        judge_status(lists[i]->status);
        fabric_remote_node_state(trial->fabric, (uint16_t)i, &state);
        if (!state.mapped && world.said[i].there && world.said[i].clean)
            judge_list(lists[i], &world.said[i]);
        else if (!state.mapped && !world.said[i].there)
            fuzz_must(lists[i]->status, "a list succeeded that was never sent");
        drop_list(asked[i]);
        free(asked[i]);
    }
}

static void do_call(struct trial *trial)
{
    size_t capacity = fuzz_byte(&world.input), length = 0;
    uint8_t *reply = malloc(capacity ? capacity : 1);
    struct memory_status_request request = {.kind = MEMORY_STATUS};
    int status = fabric_call(trial->endpoint, (uint16_t)(fuzz_byte(&world.input) % trial->options.count),
                             &request, sizeof request, reply, capacity, &length, NULL);
    judge_status(status);
    fuzz_must(status || length <= capacity, "a reply of %zu bytes in a buffer of %zu", length, capacity);
    free(reply);
}

static void do_heartbeat(struct trial *trial)
{
    struct remote_fabric *remote = (struct remote_fabric *)trial->fabric;
    uint64_t due = UINT64_MAX;
    fuzz_clock_ns += fuzz_byte(&world.input) * REMOTE_MS * 8;
    for (uint16_t i = 0; i < remote->count; i++) {
        heartbeat_node(&remote->nodes[i], fuzz_clock_ns, &due);
        if (trial->endpoint)
            heartbeat_link(&((struct remote_endpoint *)trial->endpoint)->links[i], fuzz_clock_ns, false);
    }
}

static void do_reconnect(struct trial *trial)
{
    struct remote_fabric *remote = (struct remote_fabric *)trial->fabric;
    uint64_t due = UINT64_MAX;
    fuzz_clock_ns += 2 * DELAY_LAST;
    for (uint16_t i = 0; i < remote->count; i++) {
        reconnect_control(&remote->nodes[i], &due);
        reconnect_links(&remote->nodes[i], &due);
    }
}

static void step(struct trial *trial)
{
    uint8_t what = fuzz_byte(&world.input);
    struct error error = {0};
    char text[256];
    switch (what % 8) {
    case 0:
    case 1:
    case 2:
        do_lists(trial);
        break;
    case 3:
        do_call(trial);
        break;
    case 4:
        do_heartbeat(trial);
        break;
    case 5:
        do_reconnect(trial);
        break;
    case 6:
        fabric_endpoint_close(trial->endpoint);
        trial->endpoint = fabric_endpoint_open(trial->fabric, &error);
        fuzz_must(trial->endpoint, "no endpoint: %s", error.text);
        break;
    default:
        fabric_trouble(trial->fabric, (uint16_t)(what / 8 % trial->options.count), text, sizeof text);
        if (what & 128)
            fabric_give_up(trial->endpoint, (uint16_t)(what / 8 % trial->options.count));
        break;
    }
}

static void try_open(struct trial *trial)
{
    struct error error = {0};
    int status = fabric_remote_open(&trial->fabric, &trial->options, &error);
    judge_status(status);
    fuzz_must(!status == (trial->fabric != NULL), "open: status %d", status);
    fuzz_must(!status || error.text[0], "open: status %d without a message", status);
    if (status)
        return;
    trial->endpoint = fabric_endpoint_open(trial->fabric, &error);
    fuzz_must(trial->endpoint, "no endpoint: %s", error.text);
    for (unsigned i = 0; i < STEPS_MAX && world.input.length; i++)
        step(trial);
    fabric_endpoint_close(trial->endpoint);
    fabric_close(trial->fabric);
}

static void try_ask(struct trial *trial)
{
    struct error error = {0};
    size_t capacity = fuzz_byte(&world.input), length = 0;
    uint8_t *reply = malloc(capacity ? capacity : 1);
    int status = fabric_remote_ask(&trial->options, fuzz_byte(&world.input) % 4, "hello", 5, reply, capacity,
                                   &length, &error);
    judge_status(status);
    fuzz_must(length <= capacity, "ask: %zu bytes in a buffer of %zu", length, capacity);
    fuzz_must(!status || error.text[0], "ask: status %d without a message", status);
    free(reply);
}

static void try_format(struct trial *trial)
{
    struct error error = {0};
    int status = fabric_remote_format(&trial->options, &error);
    judge_status(status);
    fuzz_must(!status || error.text[0], "format: status %d without a message", status);
}

/* ---- */

static int make_file(uint64_t bytes)
{
    int file = memfd_create("fuzz", MFD_CLOEXEC);
    fuzz_must(file >= 0 && !ftruncate(file, (off_t)bytes), "no memory file");
    return file;
}

static void prepare(void)
{
    log_set_level(LOG_ERROR);
    nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    pool_file = make_file(MEMORY_BYTES);
    locks_file = make_file(4096);
    staging_file = make_file(sizeof(struct wire_staging));
    short_file = make_file(100);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct trial trial = {0};
    if (!nowhere)
        prepare();
    memset(&world, 0, sizeof world);
    world.input = (struct fuzz_input){bytes, length};
    fuzz_clock_begin();
    uint8_t how = fuzz_byte(&world.input), more = fuzz_byte(&world.input);
    world.lies = more % 8;
    world.secret = how & 64;
    trial.options = (struct fabric_remote_options){.nodes = trial.addresses,
                                                   .count = (uint16_t)(1 + how % NODES_MAX),
                                                   .name = "fuzz",
                                                   .timeout_ms = 2000,
                                                   .secret = how & 128 ? "sesame oil" : NULL,
                                                   .secret_length = 10,
                                                   .copy = more & 64};
    for (unsigned i = 0; i < NODES_MAX; i++)
        trial.addresses[i] = (struct net_address){
            .kind = how / 8 >> i & 1 ? NET_UNIX : NET_TCP, .host = "h", .path = "/p", .port = (uint16_t)i};
    if (more % 16 < 13)
        try_open(&trial);
    else
        (more % 16 < 15 ? try_ask : try_format)(&trial);
    for (unsigned i = 0; i < NODES_MAX; i++)
        free(world.said[i].body);
    for (unsigned i = 0; i < STREAMS_MAX; i++)
        fuzz_must(!world.streams[i], "a connection is left open");
    fuzz_clock_end();
    return 0;
}
