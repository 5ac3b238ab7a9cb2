/* audit_logs.c - the audit's part for owners' logs: their blocks are in use, those that nobody needs are
 * given back. See audit_blocks.h. */
#include <stdio.h>
#include <stdlib.h>

#include "owner/logs.h"
#include "pool/log.h"
#include "store/audit_blocks.h"

/* ---- asking ---- */

static int log_find(struct audit *audit, struct fabric_process process, struct audit_log **log)
{
    for (uint32_t i = 0; i < audit->log_count; i++)
        if (fabric_process_equal(audit->logs[i].process, process)) {
            *log = &audit->logs[i];
            return 0;
        }
    struct audit_log *logs = realloc(audit->logs, (audit->log_count + 1) * sizeof *logs);
    if (!logs)
        return audit_fail_memory(audit);
    audit->logs = logs;
    *log = &logs[audit->log_count++];
    **log = (struct audit_log){.process = process};
    return 0;
}

struct reach {
    struct audit *audit;
    struct audit_log *log;
};

static int reach_segment(void *context, const struct memory_log_segment *segment)
{
    const struct reach *reach = context;
    audit_reach_log(reach->audit, segment->address, segment->bytes);
    reach->log->segments++;
    reach->log->bytes += segment->bytes;
    return 0;
}

static int reach_segments(struct audit *audit, uint16_t node, struct audit_log *log)
{
    struct memory_log_segments page;
    struct reach reach = {audit, log};
    int status = pool_log_list_all(tree_session_pool(audit->session), node, log->process, &page,
                                   reach_segment, &reach);
    if (status)
        return status;
    audit_reach_log(audit, page.control, MEMORY_LOG_CONTROL_BYTES);
    log->nodes++;
    log->nodes_fenced += page.fenced;
    return 0;
}

static int ask_process(struct audit *audit, uint16_t node, const struct memory_board_process *process)
{
    char text[64];
    struct audit_log *log = NULL;
    const struct fabric_process whose = {.instance = process->instance, .compute_id = process->compute_id};
    int status = log_find(audit, whose, &log);
    if (status)
        return status;
    snprintf(text, sizeof text, "compute node %u", (unsigned)whose.compute_id);
    audit->index = text;
    status = reach_segments(audit, node, log);
    audit->index = NULL;
    return status == BANYAN_ENOTFOUND ? 0 : status; /* it has ended meanwhile */
}

static int ask_node(struct audit *audit, uint16_t node)
{
    struct memory_log_processes page;
    uint64_t after = 0;
    do {
        int status = pool_log_processes(tree_session_pool(audit->session), node, after, &page);
        for (uint32_t i = 0; !status && i < page.count; i++) {
            status = ask_process(audit, node, &page.processes[i].process);
            after = page.processes[i].serial;
        }
        if (status)
            return status;
    } while (page.count == MEMORY_LOG_PAGE);
    return 0;
}

int audit_logs(struct audit *audit)
{
    struct audit_report *report = audit->report;
    int status = 0;
    for (uint16_t node = 0; !status && node < audit->node_count; node++)
        status = ask_node(audit, node);
    for (uint32_t i = 0; i < audit->log_count; i++) {
        report->log_segments += audit->logs[i].segments;
        report->log_bytes += audit->logs[i].bytes;
        if (audit->options->log)
            audit->options->log(audit->options->context, &audit->logs[i]);
    }
    report->log_processes = audit->log_count;
    return status;
}

/* ---- giving back ---- */

/* All memory nodes that have it agree, or nothing is done. */
static int release(struct audit *audit, const struct audit_log *log)
{
    struct pool_session *pool = tree_session_pool(audit->session);
    if (log->nodes_fenced < log->nodes)
        return 0;
    for (uint16_t node = 0; node < audit->node_count; node++) {
        int status = pool_log_release(pool, node, log->process);
        if (status)
            return status;
    }
    audit->report->logs_released++;
    return 0;
}

int audit_logs_release(struct audit *audit)
{
    struct fabric_process *processes = calloc(audit->log_count + 1, sizeof *processes);
    bool *named = calloc(audit->log_count + 1, sizeof *named);
    int status = processes && named ? 0 : audit_fail_memory(audit);
    for (uint32_t i = 0; !status && i < audit->log_count; i++)
        processes[i] = audit->logs[i].process;
    if (!status && audit->log_count)
        status = owner_logs_named(audit->session, processes, audit->log_count, named);
    for (uint32_t i = 0; !status && i < audit->log_count; i++)
        if (!named[i])
            status = release(audit, &audit->logs[i]);
    free(processes);
    free(named);
    return status;
}
