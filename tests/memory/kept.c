/* kept.c - see kept.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "kept.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "memory/node.h"

/* ---- files ---- */

static char directory[256];

void kept_begin(const char *where)
{
    if (where == NULL)
        where = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(directory, sizeof directory, "%s/banyan-kept-XXXXXX", where);
    assert_non_null(mkdtemp(directory));
}

const char *kept_path(const char *name)
{
    static char paths[4][512];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", directory, name);
    return path;
}

void kept_end(void)
{
    DIR *list = opendir(directory);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.') {
            unlink(kept_path(entry->d_name));
            rmdir(kept_path(entry->d_name));
        }
    if (list != NULL)
        closedir(list);
    rmdir(directory);
}

bool kept_unformatted;

struct memory_node *kept_try(const char *name, struct error *error)
{
    struct memory_options options = {.pool_bytes = KEPT_POOL,
                                     .chunk_bytes = KEPT_CHUNK,
                                     .lock_bytes = KEPT_LOCKS,
                                     .log_bytes = MEMORY_LOG_BYTES_LEAST,
                                     .pool_file = kept_path(name),
                                     .unformatted = kept_unformatted};
    struct memory_node *node = NULL;
    int status = memory_node_create(&node, &options, error);
    assert_true(status == 0 ? node != NULL : node == NULL && error->code == status);
    return node;
}

struct memory_node *kept_open(const char *name)
{
    struct error error = {0};
    struct memory_node *node = kept_try(name, &error);
    if (node == NULL)
        fail_msg("%s", error.text);
    return node;
}

void kept_copy(const char *to, const char *from)
{
    static uint8_t buffer[1 << 20];
    int source = open(kept_path(from), O_RDONLY | O_CLOEXEC);
    int target = open(kept_path(to), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(source >= 0 && target >= 0);
    for (ssize_t length; (length = read(source, buffer, sizeof buffer)) > 0;)
        assert_int_equal(write(target, buffer, (size_t)length), length);
    close(source);
    close(target);
}

/* ---- asking ---- */

void (*kept_before_call)(void);

static void before_call(void)
{
    void (*hook)(void) = kept_before_call;
    kept_before_call = NULL;
    if (hook != NULL)
        hook();
}

static int call(struct memory_node *node, uint16_t id, const void *request, size_t length, void *reply,
                size_t capacity, size_t *got)
{
    before_call();
    return memory_node_target(node)->call(node, id, request, length, reply, capacity, got);
}

static uint64_t instance_of(uint16_t id)
{
    return 100u + id;
}

static int board(struct memory_node *node, uint16_t id, struct memory_board_request request,
                 struct memory_board_reply *reply)
{
    size_t length;
    memset(reply, 0, sizeof *reply);
    request.instance = instance_of(id);
    return call(node, id, &request, sizeof request, reply, sizeof *reply, &length);
}

static int members(struct memory_node *node, struct memory_board_members *told)
{
    const struct memory_board_request request = {.kind = MEMORY_BOARD_MEMBERS, .instance = 1};
    size_t length;
    memset(told, 0, sizeof *told);
    return call(node, 1, &request, sizeof request, told, sizeof *told, &length);
}

static int logs(struct memory_node *node, uint16_t id, struct memory_log_request request,
                struct memory_log_reply *reply)
{
    size_t length;
    memset(reply, 0, sizeof *reply);
    request.instance = instance_of(id);
    return call(node, id, &request, sizeof request, reply, sizeof *reply, &length);
}

static int segments(struct memory_node *node, struct memory_board_process process,
                    struct memory_log_segments *told)
{
    const struct memory_log_request request = {.kind = MEMORY_LOG_LIST, .instance = 1, .process = process};
    size_t length;
    memset(told, 0, sizeof *told);
    return call(node, 1, &request, sizeof request, told, sizeof *told, &length);
}

static int processes(struct memory_node *node, struct memory_log_processes *told)
{
    const struct memory_log_request request = {.kind = MEMORY_LOG_PROCESSES, .instance = 1};
    size_t length;
    memset(told, 0, sizeof *told);
    return call(node, 1, &request, sizeof request, told, sizeof *told, &length);
}

/* ---- everything as one number ---- */

struct digest {
    struct memory_node *node;
    uint32_t sum;
};

static void add(struct digest *digest, const void *bytes, size_t length)
{
    digest->sum = crc32c(digest->sum, bytes, length);
}

static void add_block(void *context, gaddr block, uint32_t bytes)
{
    struct digest *digest = context;
    const uint64_t words[] = {block, bytes, memory_node_is_log(digest->node, block)};
    add(digest, words, sizeof words);
}

static void add_logs(struct digest *digest)
{
    struct memory_log_processes told;
    assert_int_equal(processes(digest->node, &told), 0);
    add(digest, &told, sizeof told);
    for (uint32_t i = 0; i < told.count; i++) {
        struct memory_log_segments list;
        assert_int_equal(segments(digest->node, told.processes[i].process, &list), 0);
        add(digest, &list, sizeof list);
    }
}

uint32_t kept_digest(struct memory_node *node)
{
    struct digest digest = {.node = node};
    struct memory_status_reply status;
    struct memory_board_reply reply;
    struct memory_board_members told;
    memory_node_status(node, &status);
    const uint64_t words[] = {status.chunks_used, status.blocks_used,   status.bytes_used,
                              status.bytes_free,  status.cluster_id,    status.node,
                              status.node_count,  status.log_processes, status.log_segments,
                              status.log_bytes,   status.log_bytes_max};
    add(&digest, words, sizeof words);
    const uint64_t daemon[] = {memory_node_instance(node), memory_node_kept_id(node),
                               memory_node_kept_read_lease(node)};
    add(&digest, daemon, sizeof daemon);
    if (status.cluster_id == 0)
        return digest.sum;
    memory_node_each_used(node, add_block, &digest);
    add(&digest, node->keep.nodes, node->keep.layout.granules / 8); /* which of them may be moved */
    assert_int_equal(board(node, 1, (struct memory_board_request){.kind = MEMORY_BOARD_LOOK}, &reply), 0);
    add(&digest, &reply, sizeof reply);
    assert_int_equal(members(node, &told), 0);
    add(&digest, &told, sizeof told);
    add_logs(&digest);
    return digest.sum;
}

/* ---- deeds ---- */

#define HELD_MAX 4096u
struct held {
    struct memory_node *node;
    uint32_t count, sizes[HELD_MAX];
    gaddr blocks[HELD_MAX];
};

static void add_held(void *context, gaddr block, uint32_t bytes)
{
    struct held *held = context;
    if (memory_node_is_log(held->node, block) || held->count == HELD_MAX)
        return;
    held->blocks[held->count] = block;
    held->sizes[held->count++] = bytes;
}

static uint32_t do_allocate(struct memory_node *node, struct random *random)
{
    struct memory_allocate_reply reply = {0};
    const struct memory_allocate_request request = {
        .kind = MEMORY_ALLOCATE,
        .block_bytes =
            memory_block_bytes(1 + random_below(random, random_chance(random, 0.1) ? 40000 : 2000)),
        .want = (uint16_t)(1 + random_below(random, random_chance(random, 0.3) ? MEMORY_BATCH_MAX : 6)),
        .purpose = (uint16_t)random_below(random, 2),
        .least_bytes = random_chance(random, 0.3) ? 32 : 0};
    size_t length;
    int status = call(node, 1, &request, sizeof request, &reply, sizeof reply, &length);
    return crc32c((uint32_t)status, &reply, length);
}

static uint32_t do_free(struct memory_node *node, struct random *random, bool bad)
{
    struct held *held = calloc(1, sizeof *held);
    struct memory_free_request request = {.kind = MEMORY_FREE};
    assert_non_null(held);
    held->node = node;
    memory_node_each_used(node, add_held, held);
    uint32_t want = 1 + (uint32_t)random_below(random, random_chance(random, 0.3) ? MEMORY_BATCH_MAX : 6);
    for (; request.count < want && held->count > 0; request.count++) {
        uint32_t at = (uint32_t)random_below(random, held->count);
        request.blocks[request.count] = held->blocks[at];
        request.sizes[request.count] = held->sizes[at];
        held->blocks[at] = held->blocks[--held->count];
        held->sizes[at] = held->sizes[held->count];
    }
    free(held);
    if (request.count == 0)
        return 0;
    uint32_t at = (uint32_t)random_below(random, request.count);
    if (bad && random_chance(random, 0.5))
        request.sizes[at] += 32; /* or it stands there twice */
    else if (bad && request.count < MEMORY_BATCH_MAX) {
        request.blocks[request.count] = request.blocks[at];
        request.sizes[request.count++] = request.sizes[at];
    }
    struct memory_free_reply reply = {0};
    size_t length;
    int status = call(node, 1, &request, sizeof request, &reply, sizeof reply, &length);
    return crc32c((uint32_t)status, &reply, length);
}

static uint32_t do_log(struct memory_node *node, struct random *random, enum kept_deed deed)
{
    uint16_t id = (uint16_t)(1 + random_below(random, KEPT_IDS));
    struct memory_log_request request = {.bytes = (64 + random_below(random, 128)) << 10};
    struct memory_log_segments told;
    struct memory_log_reply reply;
    const struct memory_board_process self = {.instance = instance_of(id), .compute_id = id};
    request.process = self;
    request.kind = deed == KEPT_LOG_OPEN   ? MEMORY_LOG_OPEN
                   : deed == KEPT_LOG_TAKE ? MEMORY_LOG_TAKE
                   : deed == KEPT_LOG_GIVE ? MEMORY_LOG_GIVE
                                           : MEMORY_LOG_RELEASE;
    if (deed == KEPT_LOG_GIVE && !segments(node, self, &told) && told.count > 0)
        request.segment = told.segments[random_below(random, told.count)];
    int status = logs(node, id, request, &reply);
    return crc32c((uint32_t)status, &reply, sizeof reply);
}

static uint32_t do_board(struct memory_node *node, struct random *random, enum kept_deed deed)
{
    static const uint32_t others[] = {MEMORY_BOARD_LEAVE, MEMORY_BOARD_UNLOCK, MEMORY_BOARD_PUBLISH,
                                      MEMORY_BOARD_PUBLISH};
    uint16_t id = (uint16_t)(1 + random_below(random, KEPT_IDS)), other;
    struct memory_board_request request = {0};
    struct memory_board_members told;
    struct memory_board_reply reply;
    /* One call only, so the grant is looked up. */
    const struct keep_board *kept = node->keep.board;
    if (kept->grant != 0 && random_chance(random, 0.8))
        id = kept->holder.compute_id;
    request.grant = kept->grant;
    request.version = kept->version + (deed == KEPT_BOARD_OTHER);
    other =
        kept->orphan.instance != 0 ? kept->orphan.compute_id : (uint16_t)(1 + random_below(random, KEPT_IDS));
    request.process = (struct memory_board_process){.instance = instance_of(other), .compute_id = other};
    request.willing = (uint16_t)random_below(random, 2);
    request.overdue = (uint16_t)random_below(random, 2);
    request.logs = (uint32_t)random_below(random, 3);
    assert_int_equal(members(node, &told), 0);
    for (uint32_t i = 0; i < told.count; i++)
        if (told.members[i].process.compute_id == other)
            request.serial = told.members[i].serial;
    request.kind = deed == KEPT_BOARD_ENTER   ? MEMORY_BOARD_ENTER
                   : deed == KEPT_BOARD_LOCK  ? MEMORY_BOARD_LOCK
                   : deed == KEPT_BOARD_CLEAN ? MEMORY_BOARD_CLEAN
                                              : others[random_below(random, 4)];
    int status = board(node, id, request, &reply);
    return crc32c((uint32_t)status, &reply, sizeof reply);
}

static uint32_t do_daemon(struct memory_node *node, struct random *random)
{
    bool first = random_chance(random, 0.5);
    before_call();
    if (first)
        memory_node_keep_id(node, (uint16_t)(memory_node_kept_id(node) + 1));
    else
        memory_node_keep_read_lease(node, (uint32_t)random_below(random, 1000));
    return 0;
}

uint32_t kept_do(struct memory_node *node, struct random *random, enum kept_deed deed)
{
    /* Each as often as its weight; blocks change most. */
    static const uint8_t weights[KEPT_FORMAT] = {8, 5, 3, 2, 4, 2, 1, 2, 1, 1, 2, 1, 1};
    struct error error = {0};
    if (deed == KEPT_ANY) {
        uint64_t draw = random_below(random, 33);
        for (deed = 0; draw >= weights[deed]; deed++)
            draw -= weights[deed];
    }
    switch (deed) {
    case KEPT_ALLOCATE:
        return do_allocate(node, random);
    case KEPT_FREE:
    case KEPT_FREE_BAD:
        return do_free(node, random, deed == KEPT_FREE_BAD);
    case KEPT_LOG_OPEN:
    case KEPT_LOG_TAKE:
    case KEPT_LOG_GIVE:
    case KEPT_LOG_RELEASE:
        return do_log(node, random, deed);
    case KEPT_FENCE:
        before_call();
        memory_node_finish(node, (uint16_t)(1 + random_below(random, KEPT_IDS)));
        return 0;
    case KEPT_DAEMON:
        return do_daemon(node, random);
    case KEPT_FORMAT:
        before_call();
        return (uint32_t)memory_node_format(node, 1 + random_below(random, 1000), 1, 3, &error);
    default:
        return do_board(node, random, deed);
    }
}
