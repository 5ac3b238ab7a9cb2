/* log.c - see log.h. */
#include "pool/log.h"

#include "memory/memory.h"

/* ---- answers ---- */

static int nonsense(struct pool_session *session, uint16_t node)
{
    return pool_fail(session, BANYAN_ECORRUPT, "memory node %u gives impossible answers about logs",
                     (unsigned)node);
}

/* Whether the bytes can be those of one block of the memory node. */
static bool place_good(uint16_t node, gaddr address, uint64_t bytes)
{
    uint64_t offset = gaddr_offset(address);
    return gaddr_node(address) == node && offset % 64 == 0 && offset >= MEMORY_LOCK_TABLE_OFFSET &&
           offset < GADDR_LOCK_REGION && bytes <= GADDR_LOCK_REGION - offset;
}

static bool segment_good(uint16_t node, const struct memory_log_segment *segment)
{
    return segment->number != 0 && segment->bytes >= MEMORY_LOG_SEGMENT_LEAST &&
           segment->bytes <= MEMORY_LOG_SEGMENT_MOST && segment->bytes % MEMORY_LOG_SEGMENT_LEAST == 0 &&
           place_good(node, segment->address, segment->bytes);
}

static bool control_good(uint16_t node, gaddr control)
{
    return place_good(node, control, MEMORY_LOG_CONTROL_BYTES);
}

static bool reply_good(uint16_t node, const struct memory_log_reply *reply)
{
    return reply->refusal < MEMORY_LOG_REFUSALS && reply->segments <= MEMORY_LOG_SEGMENTS_MAX &&
           (reply->control == GADDR_NULL || control_good(node, reply->control));
}

static bool segments_good(uint16_t node, uint64_t after, const struct memory_log_segments *page,
                          size_t length)
{
    const size_t fixed = offsetof(struct memory_log_segments, segments);
    if (length < fixed || page->count > MEMORY_LOG_PAGE ||
        length != fixed + page->count * sizeof page->segments[0] || page->count > page->total ||
        page->total > MEMORY_LOG_SEGMENTS_MAX || page->fenced > 1 || !control_good(node, page->control))
        return false;
    for (uint32_t i = 0; i < page->count; after = page->segments[i++].number)
        if (!segment_good(node, &page->segments[i]) || page->segments[i].number <= after)
            return false;
    return true;
}

static bool processes_good(uint16_t node, uint64_t after, const struct memory_log_processes *page,
                           size_t length)
{
    const size_t fixed = offsetof(struct memory_log_processes, processes);
    if (length < fixed || page->count > MEMORY_LOG_PAGE ||
        length != fixed + page->count * sizeof page->processes[0] || page->count > page->total ||
        page->total > MEMORY_LOG_PROCESSES_MAX)
        return false;
    for (uint32_t i = 0; i < page->count; after = page->processes[i++].serial) {
        const struct memory_log_process *entry = &page->processes[i];
        if (entry->serial <= after || entry->process.instance == 0 || entry->process.compute_id == 0 ||
            entry->segments > MEMORY_LOG_SEGMENTS_MAX || entry->fenced > 1 ||
            !control_good(node, entry->control))
            return false;
    }
    return true;
}

/* ---- calls ---- */

/* Says what the memory node's error means here; the message of pool_call stays for the others. */
static int explain(struct pool_session *session, int status, uint16_t node)
{
    const char *what = status == BANYAN_ENOTFOUND   ? "the process has no log there"
                       : status == BANYAN_ECONFLICT ? "this process was fenced there since it opened its log"
                       : status == BANYAN_EBUSY     ? "the process was not fenced there: its log stays"
                                                    : NULL;
    return what ? pool_fail(session, status, "memory node %u: %s", (unsigned)node, what) : status;
}

/* OPEN, TAKE, GIVE, RELEASE. */
static int change(struct pool_session *session, uint16_t node, struct memory_log_request *request,
                  struct memory_log_reply *reply)
{
    size_t length = 0;
    request->instance = fabric_self(session->fabric).instance;
    int status = pool_call(session, node, request, sizeof *request, reply, sizeof *reply, &length);
    if (!status && (length != sizeof *reply || !reply_good(node, reply)))
        status = nonsense(session, node);
    return explain(session, status, node);
}

/* Nothing was granted. */
static int refused(struct pool_session *session, uint16_t node, const struct memory_log_reply *reply)
{
    const unsigned long long used = reply->used, most = reply->most, own = reply->bytes;
    switch ((enum memory_log_refusal)reply->refusal) {
    case MEMORY_LOG_NO_PROCESS:
        return pool_fail(session, BANYAN_ENOSPC,
                         "memory node %u: %u processes have a log there, which is all", (unsigned)node,
                         MEMORY_LOG_PROCESSES_MAX);
    case MEMORY_LOG_NO_BUDGET:
        return pool_fail(session, BANYAN_ENOSPC,
                         "memory node %u: logs have %llu of the %llu bytes that they may have there "
                         "(--log-bytes)",
                         (unsigned)node, used, most);
    case MEMORY_LOG_NO_SHARE:
        return pool_fail(session, BANYAN_ENOSPC,
                         "memory node %u: this process has its share of the logs there: %u segments of %llu "
                         "bytes; all logs may have %llu (--log-bytes)",
                         (unsigned)node, reply->segments, own, most);
    case MEMORY_LOG_NO_SPACE:
        return pool_fail(session, BANYAN_ENOSPC, "memory node %u: its pool has no room for the log",
                         (unsigned)node);
    case MEMORY_LOG_GRANTED:
    case MEMORY_LOG_REFUSALS:
        break;
    }
    return nonsense(session, node);
}

/* OPEN, TAKE: an error where the reply is a refusal. */
static int ask(struct pool_session *session, uint16_t node, struct memory_log_request *request,
               struct memory_log_reply *reply)
{
    int status = change(session, node, request, reply);
    return !status && reply->refusal != MEMORY_LOG_GRANTED ? refused(session, node, reply) : status;
}

/* A number that is of no memory node (any more) has no logs. */
static bool is_member(const struct pool_session *session, uint16_t node)
{
    return fabric_membership(session->fabric, node) != FABRIC_NO_MEMBER;
}

int pool_log_open(struct pool_session *session, uint16_t node, struct pool_log *log)
{
    struct memory_log_request request = {.kind = MEMORY_LOG_OPEN};
    struct memory_log_reply reply;
    int status = ask(session, node, &request, &reply);
    if (status)
        return status;
    if (reply.control == GADDR_NULL)
        return nonsense(session, node);
    *log = (struct pool_log){.control = reply.control, .segments = reply.segments, .bytes = reply.bytes};
    return BANYAN_OK;
}

int pool_log_take(struct pool_session *session, uint16_t node, uint64_t bytes,
                  struct memory_log_segment *segment)
{
    struct memory_log_request request = {.kind = MEMORY_LOG_TAKE, .bytes = bytes};
    struct memory_log_reply reply;
    int status = ask(session, node, &request, &reply);
    if (status)
        return status;
    if (!segment_good(node, &reply.segment))
        return nonsense(session, node);
    *segment = reply.segment;
    return BANYAN_OK;
}

/* P2. What is given back is not copied any more. */
static int persist_first(struct pool_session *session, uint16_t node)
{
    uint32_t at;
    return pool_on_disk(session, node) ? pool_persist(session, &node, 1, &at) : 0;
}

int pool_log_give(struct pool_session *session, uint16_t node, const struct memory_log_segment *segment)
{
    struct memory_log_request request = {.kind = MEMORY_LOG_GIVE, .segment = *segment};
    struct memory_log_reply reply;
    int status = persist_first(session, node);
    return status ? status : change(session, node, &request, &reply);
}

int pool_log_release(struct pool_session *session, uint16_t node, struct fabric_process process)
{
    struct memory_log_request request = {
        .kind = MEMORY_LOG_RELEASE,
        .process = {.instance = process.instance, .compute_id = process.compute_id}};
    struct memory_log_reply reply;
    if (!is_member(session, node))
        return BANYAN_OK;
    int status = persist_first(session, node);
    if (!status)
        status = change(session, node, &request, &reply);
    return status == BANYAN_ENOTFOUND ? BANYAN_OK : status;
}

int pool_log_list(struct pool_session *session, uint16_t node, struct fabric_process process, uint64_t after,
                  struct memory_log_segments *page)
{
    const struct memory_log_request request = {
        .kind = MEMORY_LOG_LIST,
        .instance = fabric_self(session->fabric).instance,
        .after = after,
        .process = {.instance = process.instance, .compute_id = process.compute_id}};
    size_t length = 0;
    if (!is_member(session, node)) {
        *page = (struct memory_log_segments){0};
        return BANYAN_ENOTFOUND;
    }
    int status = pool_call(session, node, &request, sizeof request, page, sizeof *page, &length);
    if (!status && !segments_good(node, after, page, length))
        status = nonsense(session, node);
    return explain(session, status, node);
}

int pool_log_list_all(struct pool_session *session, uint16_t node, struct fabric_process process,
                      struct memory_log_segments *page,
                      int (*visit)(void *context, const struct memory_log_segment *segment), void *context)
{
    uint64_t after = 0;
    int status;
    do {
        status = pool_log_list(session, node, process, after, page);
        for (uint32_t i = 0; !status && i < page->count; after = page->segments[i++].number)
            status = visit(context, &page->segments[i]);
    } while (!status && page->count == MEMORY_LOG_PAGE);
    return status;
}

int pool_log_processes(struct pool_session *session, uint16_t node, uint64_t after,
                       struct memory_log_processes *page)
{
    const struct memory_log_request request = {
        .kind = MEMORY_LOG_PROCESSES, .instance = fabric_self(session->fabric).instance, .after = after};
    size_t length = 0;
    page->count = 0;
    if (!is_member(session, node))
        return BANYAN_OK;
    int status = pool_call(session, node, &request, sizeof request, page, sizeof *page, &length);
    if (!status && !processes_good(node, after, page, length))
        status = nonsense(session, node);
    return status;
}
