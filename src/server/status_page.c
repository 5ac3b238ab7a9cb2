/* status_page.c - see status_page.h. */
#include "server/status_page.h"

#include <inttypes.h>

static void escaped(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
}

static void page_begin(FILE *out, const char *title)
{
    fputs("<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"refresh\" "
          "content=\"2\">"
          "<meta name=\"viewport\" content=\"width=device-width\"><title>",
          out);
    escaped(out, title);
    fputs(
        "</title><style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:56em;padding:0 1em;"
        "color:#222;background:#fff}h1{font-size:1.4em}h2{font-size:1.1em;margin-top:1.6em}"
        "table{border-collapse:collapse;width:100%}td,th{padding:.25em .8em .25em 0;border-bottom:1px solid "
        "#ddd;"
        "text-align:left;font-weight:normal}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}"
        "th{color:#666}.bad{color:#b00}a{color:#06c}"
        "@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}td,th{border-color:#333}"
        "th{color:#999}a{color:#6af}.bad{color:#f77}}</style></head><body><h1>",
        out);
    escaped(out, title);
    fputs("</h1>", out);
}

static void page_end(FILE *out)
{
    fputs("<p><a href=\"/metrics\">/metrics</a> has all counters, for Prometheus.</p></body></html>\n", out);
}

static void row(FILE *out, const char *name, uint64_t value)
{
    fprintf(out, "<tr><td>%s</td><td class=\"n\">%" PRIu64 "</td></tr>", name, value);
}

static void row_mib(FILE *out, const char *name, uint64_t bytes)
{
    fprintf(out, "<tr><td>%s</td><td class=\"n\">%.1f MiB</td></tr>", name, (double)bytes / 1048576.0);
}

static void page_memory_nodes(struct server *server, FILE *out)
{
    fputs("<h2>Memory nodes</h2><table><tr><th>node</th><th>state</th><th class=\"n\">used</th>"
          "<th class=\"n\">pool</th><th class=\"n\">compute nodes</th><th class=\"n\">fenced</th></tr>",
          out);
    for (unsigned i = 0; i < server_memory_nodes(server); i++) {
        if (!server_memory_is(server, i))
            continue;
        struct server_memory_state state;
        struct memory_status_reply status;
        server_memory_state(server, i, &state, &status);
        fprintf(out, "<tr><td>%u</td><td%s>", i, state.connected ? "" : " class=\"bad\"");
        escaped(out, state.connected ? "connected" : state.trouble[0] ? state.trouble : "not connected");
        fputs("</td>", out);
        if (state.status)
            fprintf(out,
                    "<td class=\"n\">%.1f MiB</td><td class=\"n\">%.1f MiB</td><td class=\"n\">%" PRIu64
                    "</td><td class=\"n\">%" PRIu64 "</td>",
                    (double)status.bytes_used / 1048576.0, (double)status.pool_bytes / 1048576.0,
                    status.compute_nodes, status.fenced_total);
        fputs("</tr>", out);
    }
    fputs("</table>", out);
}

static void page_cache(const struct server_stats *stats, FILE *out)
{
    fprintf(out,
            "<h2>Cache of the index, at most %.1f MiB</h2><table><tr><th>kind</th><th class=\"n\">used</th>"
            "<th class=\"n\">hits</th><th class=\"n\">misses</th><th class=\"n\">admissions</th>"
            "<th class=\"n\">evictions</th></tr>",
            (double)stats->cache.budget / 1048576.0);
    for (unsigned i = 0; i < SERVER_CACHE_KINDS; i++) {
        const struct tree_cache_kind kind = server_cache_kind(stats, i);
        fprintf(out,
                "<tr><td>%s</td><td class=\"n\">%.1f MiB</td><td class=\"n\">%" PRIu64
                "</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%" PRIu64
                "</td><td class=\"n\">%" PRIu64 "</td></tr>",
                server_cache_names[i], (double)kind.bytes / 1048576.0, kind.hits, kind.misses,
                kind.admissions, kind.evictions);
    }
    fputs("</table>", out);
}

static void page_ownership(const struct server_stats *stats, FILE *out)
{
    const struct owner_stats *owner = &stats->owner;
    if (stats->ownership != SERVER_OWNS_RANGES)
        return;
    fprintf(out,
            "<h2>Ownership</h2><table><tr><td>ranges owned</td><td class=\"n\">%" PRIu64 " of %" PRIu64
            "</td></tr>",
            owner->owned, owner->ranges);
    row(out, "map version", owner->version);
    row(out, "ranges moved by this process", owner->moved);
    row(out, "longest transfer, microseconds", owner->transfer_longest_ns / 1000);
    row(out, "ranges of dead compute nodes taken over", owner->takeovers);
    row(out, "ranges inherited from others' logs", owner->inherited);
    row(out, "lookups forwarded", owner->forwarded_lookups);
    row(out, "writes forwarded", owner->forwarded_exchanges);
    row(out, "parts of scans forwarded", owner->forwarded_scans);
    row(out, "served for others", owner->served_lookups + owner->served_exchanges + owner->served_scans);
    row(out, "failed, owner out of reach", owner->unreachable);
    row(out, "read lease lapsed", owner->lapses);
    row(out, "longest pause for it, microseconds", owner->pause_longest_ns / 1000);
    fputs("</table>", out);
}

static void page_log(const struct server_stats *stats, FILE *out)
{
    const struct log_stats *log = &stats->log;
    if (!stats->logs)
        return;
    fputs("<h2>Log</h2><table>", out);
    row(out, "keys not merged", log->unmerged);
    row(out, "oldest of them at most, milliseconds", log->lag_ns / 1000000);
    row_mib(out, "segments", log->segment_bytes);
    row_mib(out, "written", log->bytes);
    row(out, "entries", log->entries);
    row(out, "commits", log->commits);
    row(out, "commits that waited for room", log->waits);
    row(out, "longest wait, microseconds", log->wait_longest_ns / 1000);
    row(out, "commits refused for want of room", log->full);
    row(out, "entries taken over from earlier owners", log->inherited);
    row(out, "frames with too few copies", log->degraded);
    fputs("</table>", out);
}

static void page_command(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                         uint64_t failed)
{
    fprintf(context,
            "<tr><td>%s</td><td class=\"n\">%" PRIu64 "</td><td class=\"n\">%.1f</td><td class=\"n\">%" PRIu64
            "</td></tr>",
            name, calls, calls ? (double)nanoseconds / 1000.0 / (double)calls : 0.0, failed);
}

void status_page_compute(void *context, FILE *out)
{
    struct server *server = context;
    struct server_stats stats;
    server_stats(server, &stats);
    page_begin(out, "Banyan compute node");
    fputs("<table>", out);
    row(out, "seconds up", stats.uptime_s);
    row(out, "clients", stats.counters.clients);
    row(out, "commands", stats.counters.commands);
    row(out, "error replies", stats.counters.errors);
    if (stats.keys_age_s != UINT64_MAX)
        row(out, "keys (at the last sweep)", stats.keys);
    row(out, "latency p50, microseconds", stats.latency_us_p50);
    row(out, "latency p99, microseconds", stats.latency_us_p99);
    row_mib(out, "clients' buffers", stats.client_memory);
    double operations = stats.tree.operations ? (double)stats.tree.operations : 1.0;
    fprintf(out, "<tr><td>round trips per operation</td><td class=\"n\">%.2f</td></tr>",
            (double)stats.tree.cost.round_trips / operations);
    fputs("</table>", out);
    page_cache(&stats, out);
    page_ownership(&stats, out);
    page_log(&stats, out);
    page_memory_nodes(server, out);
    fputs("<h2>Commands</h2><table><tr><th>name</th><th class=\"n\">calls</th><th class=\"n\">mean us</th>"
          "<th class=\"n\">failed</th></tr>",
          out);
    server_each_command(server, page_command, out);
    fputs("</table>", out);
    page_end(out);
}

void status_page_memory(void *context, FILE *out)
{
    const struct metrics_memory_source *source = context;
    struct memory_status_reply status;
    char title[160];
    source->status(source->owner, &status);
    snprintf(title, sizeof title, "Banyan memory node at %.120s", source->address);
    page_begin(out, title);
    fputs("<table>", out);
    if (status.cluster_id)
        fprintf(out,
                "<tr><td>cluster</td><td class=\"n\">%016" PRIx64 ", node %" PRIu64 " of %" PRIu64
                "</td></tr>",
                status.cluster_id, status.node, status.node_count);
    else
        fputs("<tr><td>cluster</td><td class=\"n bad\">none: never formatted</td></tr>", out);
    row(out, "seconds up", status.uptime_ms / 1000);
    fprintf(out, "<tr><td>durability</td><td class=\"n\">%s</td></tr>",
            status.disk_failed                                ? "NONE: the journal has failed"
            : status.durability == FABRIC_KEPT_ON_DISK_ALWAYS ? "disk-always"
            : status.durability == FABRIC_KEPT_ON_DISK        ? "disk-second"
            : status.kept                                     ? "process: the pool lies in a file"
                                                              : "memory");
    row_mib(out, "pool", status.pool_bytes);
    row_mib(out, "handed out", status.bytes_used);
    row_mib(out, "free", status.bytes_free);
    row_mib(out, "free in chunks that are used", status.bytes_free_in_chunks);
    row_mib(out, "taken from the system, at most", status.bytes_resident);
    row_mib(out, "segments of owners' logs", status.log_bytes);
    row(out, "their number", status.log_segments);
    row(out, "processes with a log", status.log_processes);
    row(out, "chunks emptied so far", status.chunks_emptied_total);
    row(out, "allocations refused", status.refusals_total);
    row(out, "compute nodes", status.compute_nodes);
    row(out, "connections", status.connections);
    if (status.nic)
        row(out, "queue pairs (RDMA)", status.nic_queues);
    row(out, "compute nodes fenced so far", status.fenced_total);
    row(out, "their locks freed", status.locks_freed_total);
    if (status.walk_threads) {
        row(out, "walks", status.walks_total);
        row(out, "walks that found the queue full", status.walk_busy_total);
    }
    if (status.walk_threads || status.merge_threads) {
        row(out, "entries merged for compute nodes", status.merge_merged_total);
        row(out, "requests to merge that found the queue full", status.merge_busy_total);
    }
    row(out, "command lists", status.lists_total);
    row(out, "commands", status.commands_total);
    fputs("</table>", out);
    page_end(out);
}
