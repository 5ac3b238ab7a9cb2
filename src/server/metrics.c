/* metrics.c - see metrics.h. */
#include "server/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* Begins a family of samples. */
static void family_begin(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void metric(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
    family_begin(out, name, type, help);
    fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void counter(FILE *out, const char *name, const char *help, uint64_t value)
{
    metric(out, name, "counter", help, value);
}

static void gauge(FILE *out, const char *name, const char *help, uint64_t value)
{
    metric(out, name, "gauge", help, value);
}

static void server_counters(const struct server_stats *stats, FILE *out)
{
    gauge(out, "banyan_uptime_seconds", "Seconds since the server started.", stats->uptime_s);
    gauge(out, "banyan_clients", "Connected clients.", stats->counters.clients);
    counter(out, "banyan_clients_total", "Clients accepted.", stats->counters.clients_total);
    counter(out, "banyan_clients_rejected_total", "Clients refused, for a limit or protected mode.",
            stats->counters.clients_rejected);
    counter(out, "banyan_clients_evicted_total", "Clients closed to free their buffers' memory.",
            stats->counters.clients_evicted);
    gauge(out, "banyan_client_memory_bytes", "Buffers of all clients.", stats->client_memory);
    gauge(out, "banyan_store_memory_bytes", "Values of commands under way, beyond 1 MiB of each command.",
          stats->store.memory);
    counter(out, "banyan_commands_processed_total", "Commands run.", stats->counters.commands);
    counter(out, "banyan_errors_total", "Error replies.", stats->counters.errors);
    counter(out, "banyan_keyspace_hits_total", "Reads that found their key.", stats->counters.hits);
    counter(out, "banyan_keyspace_misses_total", "Reads that did not.", stats->counters.misses);
    counter(out, "banyan_expired_keys_total", "Keys removed because their time had come.",
            stats->expired_total);
    counter(out, "banyan_net_input_bytes_total", "Bytes read from clients.", stats->counters.bytes_in);
    counter(out, "banyan_net_output_bytes_total", "Bytes written to clients.", stats->counters.bytes_out);
    if (stats->keys_age_s != UINT64_MAX)
        gauge(out, "banyan_keys", "Keys, as the last complete sweep counted them.", stats->keys);
    family_begin(out, "banyan_command_latency_seconds", "gauge", "Latency of commands over the last minute.");
    const struct {
        const char *quantile;
        uint64_t microseconds;
    } quantiles[] = {
        {"0.5", stats->latency_us_p50}, {"0.99", stats->latency_us_p99}, {"0.999", stats->latency_us_p999}};
    for (unsigned i = 0; i < sizeof quantiles / sizeof *quantiles; i++)
        fprintf(out, "banyan_command_latency_seconds{quantile=\"%s\"} %.6f\n", quantiles[i].quantile,
                (double)quantiles[i].microseconds / 1e6);
}

static void index_counters(const struct server_stats *stats, FILE *out)
{
    const struct tree_stats *tree = &stats->tree;
    counter(out, "banyan_tree_operations_total", "Operations on the index.", tree->operations);
    counter(out, "banyan_round_trips_total", "Waits for memory nodes.", tree->cost.round_trips);
    counter(out, "banyan_fabric_reads_total", "READ commands.", tree->cost.reads);
    counter(out, "banyan_fabric_writes_total", "WRITE commands.", tree->cost.writes);
    counter(out, "banyan_fabric_atomics_total", "CAS and FAA commands.", tree->cost.atomics);
    counter(out, "banyan_fabric_calls_total", "Calls of memory nodes' processors.", tree->cost.rpcs);
    counter(out, "banyan_peer_calls_total", "Calls to other compute nodes.", tree->cost.peer_calls);
    counter(out, "banyan_fabric_read_bytes_total", "Bytes read from memory nodes.", tree->cost.bytes_read);
    counter(out, "banyan_fabric_written_bytes_total", "Bytes written to memory nodes.",
            tree->cost.bytes_written);
    counter(out, "banyan_tree_retries_total", "Reads and lock attempts done again.", tree->retries);
    counter(out, "banyan_tree_splits_total", "Nodes split.", tree->splits);
    counter(out, "banyan_tree_unlinks_total", "Nodes removed.", tree->unlinks);
    counter(out, "banyan_tree_unfinished_total",
            "Splits and removals whose last step an error left to a later operation.", tree->unfinished);
    counter(out, "banyan_lock_handovers_total", "Locks passed on within this compute node.", tree->handovers);
    counter(out, "banyan_writes_combined_total",
            "Writes done by the holder of the lock that they waited for.", tree->combined);
    counter(out, "banyan_walks_total", "Requests to memory nodes to go down the index.", tree->walks);
    counter(out, "banyan_walks_answered_total", "Keys that these have answered.", tree->walks_answered);
    counter(out, "banyan_walks_busy_total", "Such requests that were turned away.", tree->walks_busy);
    counter(out, "banyan_exchanges_total", "Requests to memory nodes to make a change in a leaf.",
            tree->exchanges);
    counter(out, "banyan_exchanges_answered_total", "Such requests that were answered there.",
            tree->exchanges_answered);
    counter(out, "banyan_exchanges_busy_total", "Such requests that were turned away.", tree->exchanges_busy);
    counter(out, "banyan_records_written_total", "Records written.", stats->store.records_written);
    counter(out, "banyan_records_freed_total", "Records freed.", stats->store.records_freed);
    counter(out, "banyan_record_retries_total", "Records overwritten while they were read.",
            stats->store.record_retries);
}

/* A sample for each kind of what is cached. `field`: of struct tree_cache_kind. */
static void cache_family(const struct server_stats *stats, FILE *out, const char *name, const char *type,
                         const char *help, size_t field)
{
    family_begin(out, name, type, help);
    for (unsigned i = 0; i < SERVER_CACHE_KINDS; i++) {
        const struct tree_cache_kind kind = server_cache_kind(stats, i);
        uint64_t value;
        memcpy(&value, (const char *)&kind + field, sizeof value);
        fprintf(out, "%s{kind=\"%s\"} %" PRIu64 "\n", name, server_cache_names[i], value);
    }
}

static void cache_counters(const struct server_stats *stats, FILE *out)
{
    const struct {
        const char *name, *type, *help;
        size_t field;
    } families[] = {
        {"banyan_cache_bytes", "gauge", "Bytes of the cache in use.",
         offsetof(struct tree_cache_kind, bytes)},
        {"banyan_cache_hits_total", "counter", "What was wanted and found in the cache.",
         offsetof(struct tree_cache_kind, hits)},
        {"banyan_cache_misses_total", "counter", "What was wanted and not found in the cache.",
         offsetof(struct tree_cache_kind, misses)},
        {"banyan_cache_admissions_total", "counter", "What came into the cache.",
         offsetof(struct tree_cache_kind, admissions)},
        {"banyan_cache_evictions_total", "counter", "What left the cache to make room.",
         offsetof(struct tree_cache_kind, evictions)},
    };
    gauge(out, "banyan_cache_budget_bytes", "Bytes that the cache may use, all kinds together.",
          stats->cache.budget);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        cache_family(stats, out, families[i].name, families[i].type, families[i].help, families[i].field);
    counter(out, "banyan_cache_shortcut_hits_total",
            "Of the entries' hits those that had the place of the value, not the value.",
            stats->cache.shortcut_hits);
    counter(out, "banyan_cache_promotions_total", "Shortcuts that became values.", stats->cache.promotions);
    counter(out, "banyan_cache_demotions_total", "Values that became shortcuts.", stats->cache.demotions);
    counter(out, "banyan_cache_busy_total", "Reads that met a write under way, and read the pool instead.",
            stats->cache.busy);
}

static void owner_counters(const struct server_stats *stats, FILE *out)
{
    const struct owner_stats *owner = &stats->owner;
    family_begin(out, "banyan_ownership", "gauge",
                 "What this process may write alone: 1 for one of the kinds.");
    for (int i = SERVER_SHARES; i <= SERVER_OWNS_RANGES; i++)
        fprintf(out, "banyan_ownership{kind=\"%s\"} %d\n", server_ownership_names[i],
                i == (int)stats->ownership);
    if (stats->ownership != SERVER_OWNS_RANGES)
        return;
    gauge(out, "banyan_ranges_owned", "Key ranges that this process owns.", owner->owned);
    gauge(out, "banyan_ranges", "Key ranges in the map, of the indexes that are open here.", owner->ranges);
    gauge(out, "banyan_map_version", "Version of the map of ranges that this process has adopted.",
          owner->version);
    counter(out, "banyan_map_adoptions_total", "Versions of the map adopted.", owner->adoptions);
    counter(out, "banyan_transfers_total", "Transfers of ranges begun here and ended.", owner->transfers);
    counter(out, "banyan_ranges_moved_total", "Ranges that they moved.", owner->moved);
    counter(out, "banyan_transfers_finished_total", "Transfers of others that were ended here.",
            owner->finished);
    counter(out, "banyan_takeovers_total", "Ranges of dead compute nodes taken over.", owner->takeovers);
    counter(out, "banyan_ranges_inherited_total", "Ranges taken over with what logs had of them.",
            owner->inherited);
    counter(out, "banyan_fencings_total", "Processes that this one had fenced.", owner->fencings);
    counter(out, "banyan_forwarded_lookups_total", "Lookups asked of other compute nodes.",
            owner->forwarded_lookups);
    counter(out, "banyan_forwarded_writes_total", "Writes asked of other compute nodes.",
            owner->forwarded_exchanges);
    counter(out, "banyan_forwarded_scans_total", "Parts of scans asked of other compute nodes.",
            owner->forwarded_scans);
    counter(out, "banyan_forward_messages_total", "Messages that carried them.", owner->messages);
    counter(out, "banyan_served_lookups_total", "Lookups served for other compute nodes.",
            owner->served_lookups);
    counter(out, "banyan_served_writes_total", "Writes served for other compute nodes.",
            owner->served_exchanges);
    counter(out, "banyan_served_scans_total", "Parts of scans served for other compute nodes.",
            owner->served_scans);
    counter(out, "banyan_forwards_refused_total", "Operations asked of others in vain.", owner->refused);
    counter(out, "banyan_refusals_total", "Operations of others that were refused here.", owner->refusals);
    counter(out, "banyan_ranges_unreachable_total",
            "Operations that failed since their range's owner could not be reached.", owner->unreachable);
    counter(out, "banyan_read_lease_lapses_total", "Times that the read lease lapsed.", owner->lapses);
    counter(out, "banyan_read_lease_pauses_total", "Operations that waited for the read lease.",
            owner->pauses);
}

static void log_counters(const struct server_stats *stats, FILE *out)
{
    const struct log_stats *log = &stats->log;
    gauge(out, "banyan_log_kept", "Whether this process keeps a log of what it writes to its ranges.",
          stats->logs);
    if (!stats->logs)
        return;
    gauge(out, "banyan_log_unmerged_keys", "Keys with logged changes that their leaves do not have yet.",
          log->unmerged);
    gauge(out, "banyan_log_unmerged_bytes", "This process's memory for them.", log->unmerged_bytes);
    gauge(out, "banyan_log_lag_entries", "Entries logged and not known to be merged.",
          log->sequence > log->watermark ? log->sequence - log->watermark : 0);
    gauge(out, "banyan_log_segments", "Segments of this process's log on memory nodes.", log->segments);
    gauge(out, "banyan_log_segment_bytes", "Bytes of them.", log->segment_bytes);
    gauge(out, "banyan_log_segment_unmerged_bytes", "Bytes of frames in them that are not all merged.",
          log->log_bytes);
    counter(out, "banyan_log_entries_total", "Entries logged.", log->entries);
    counter(out, "banyan_log_commits_total", "Group commits, a round trip each.", log->commits);
    counter(out, "banyan_log_frames_total", "Frames written, one for each memory node and copy.",
            log->frames);
    counter(out, "banyan_log_written_bytes_total", "Bytes of frames, copies included.", log->bytes);
    counter(out, "banyan_log_degraded_total", "Frames with fewer copies than were asked for.", log->degraded);
    counter(out, "banyan_log_carried_bytes_total",
            "Bytes of records that second copies carried, for a second disk.", log->carried);
    counter(out, "banyan_log_brought_bytes_total", "Bytes of parts of long values that went to other disks.",
            log->brought);
    counter(out, "banyan_log_uncarried_total", "Changes that a second disk has without their values.",
            log->uncarried);
    counter(out, "banyan_log_unknown_total", "Frames that may have been written or not.", log->unknown);
    counter(out, "banyan_log_refused_total", "Frames that were refused.", log->refused);
    counter(out, "banyan_log_merged_total", "Entries merged into their leaves.", log->merged);
    counter(out, "banyan_log_merged_there_total", "Of them, those that memory nodes have merged.",
            log->merged_there);
    counter(out, "banyan_log_cycles_total", "Rounds of merging.", log->cycles);
    counter(out, "banyan_log_held_total", "Commits that were held back, since merging has to keep up.",
            log->held);
    counter(out, "banyan_log_waits_total", "Commits that waited for room in the log.", log->waits);
    counter(out, "banyan_log_full_total", "Commits refused since the log had no room.", log->full);
    counter(out, "banyan_log_inherited_total", "Entries taken over from the logs of earlier owners.",
            log->inherited);
}

static void log_seconds(const struct server_stats *stats, FILE *out)
{
    const struct {
        const char *name, *type, *help;
        uint64_t nanoseconds;
    } times[] = {
        {"banyan_log_lag_seconds", "gauge", "The oldest change that is not merged is at most so old.",
         stats->log.lag_ns},
        {"banyan_log_cycle_seconds", "gauge", "How long the last round of merging took.",
         stats->log.cycle_ns},
        {"banyan_log_held_seconds_total", "counter", "Time for which commits were held back.",
         stats->log.held_ns},
        {"banyan_log_held_longest_seconds", "gauge", "The longest of these.", stats->log.held_longest_ns},
        {"banyan_log_wait_seconds_total", "counter", "Time that commits waited for room in the log.",
         stats->log.wait_ns},
        {"banyan_log_wait_longest_seconds", "gauge", "The longest of these.", stats->log.wait_longest_ns},
        {"banyan_log_inherit_seconds_total", "counter", "Time that taking over from earlier owners took.",
         stats->log.inherit_ns},
    };
    for (size_t i = 0; stats->logs && i < sizeof times / sizeof *times; i++) {
        family_begin(out, times[i].name, times[i].type, times[i].help);
        fprintf(out, "%s %.6f\n", times[i].name, (double)times[i].nanoseconds / 1e9);
    }
}

/* A sum of nanoseconds, as Prometheus wants it. */
static void owner_seconds(const struct server_stats *stats, FILE *out)
{
    const struct {
        const char *name, *help;
        uint64_t nanoseconds;
    } sums[] = {
        {"banyan_map_adoption_seconds_total", "Time that adopting versions of the map took.",
         stats->owner.adopt_ns},
        {"banyan_transfer_seconds_total", "Time that transfers begun here took.", stats->owner.transfer_ns},
        {"banyan_range_wait_seconds_total", "Time that operations waited for ranges of others.",
         stats->owner.wait_ns},
        {"banyan_read_lease_pause_seconds_total", "Time that operations waited for the read lease.",
         stats->owner.pause_ns},
    };
    for (size_t i = 0; stats->ownership == SERVER_OWNS_RANGES && i < sizeof sums / sizeof *sums; i++) {
        family_begin(out, sums[i].name, "counter", sums[i].help);
        fprintf(out, "%s %.6f\n", sums[i].name, (double)sums[i].nanoseconds / 1e9);
    }
}

/* The format wants all samples of a family together: so there is one pass for each family. */
static void command_calls(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                          uint64_t failed)
{
    (void)nanoseconds;
    (void)failed;
    fprintf(context, "banyan_command_calls_total{command=\"%s\"} %" PRIu64 "\n", name, calls);
}

static void command_seconds(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                            uint64_t failed)
{
    (void)calls;
    (void)failed;
    fprintf(context, "banyan_command_seconds_total{command=\"%s\"} %.6f\n", name, (double)nanoseconds / 1e9);
}

static void command_failures(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                             uint64_t failed)
{
    (void)calls;
    (void)nanoseconds;
    fprintf(context, "banyan_command_failures_total{command=\"%s\"} %" PRIu64 "\n", name, failed);
}

static void command_families(struct server *server, FILE *out)
{
    family_begin(out, "banyan_command_calls_total", "counter", "Calls of each command.");
    server_each_command(server, command_calls, out);
    family_begin(out, "banyan_command_seconds_total", "counter", "Time spent in each command.");
    server_each_command(server, command_seconds, out);
    family_begin(out, "banyan_command_failures_total", "counter",
                 "Calls of each command that were answered by an error.");
    server_each_command(server, command_failures, out);
}

enum memory_family { MEMORY_UP, MEMORY_POOL, MEMORY_USED, MEMORY_LOGS };

static void memory_family(struct server *server, FILE *out, const char *name, const char *help,
                          enum memory_family family)
{
    family_begin(out, name, "gauge", help);
    for (unsigned i = 0; i < server_memory_nodes(server); i++) {
        if (!server_memory_is(server, i))
            continue;
        struct server_memory_state state;
        struct memory_status_reply status;
        server_memory_state(server, i, &state, &status);
        uint64_t value = state.connected;
        if (family != MEMORY_UP && !state.status)
            continue;
        if (family != MEMORY_UP)
            value = family == MEMORY_POOL   ? status.pool_bytes
                    : family == MEMORY_USED ? status.bytes_used
                                            : status.log_bytes;
        fprintf(out, "%s{node=\"%u\"} %" PRIu64 "\n", name, i, value);
    }
}

static void memory_families(struct server *server, FILE *out)
{
    memory_family(server, out, "banyan_memory_node_up", "Whether this compute node reaches the memory node.",
                  MEMORY_UP);
    memory_family(server, out, "banyan_memory_node_pool_bytes", "Size of the memory node's pool.",
                  MEMORY_POOL);
    memory_family(server, out, "banyan_memory_node_used_bytes", "Bytes of its blocks handed out.",
                  MEMORY_USED);
    memory_family(server, out, "banyan_memory_node_log_bytes",
                  "Bytes of them that are segments of owners' logs.", MEMORY_LOGS);
}

/* What this compute node knows of walks and of changes at each memory node: the share, and what both ways
 * take. */
static void walk_families(struct server *server, FILE *out)
{
    static const struct {
        const char *name, *help;
    } families[] = {
        {"banyan_walk_share", "Share of searches with levels that are not cached that the memory node gets."},
        {"banyan_walk_seconds", "What a walk takes, a moving average."},
        {"banyan_walk_read_seconds", "What a READ of an inner node takes, a moving average."},
        {"banyan_exchange_share", "Share of changes whose leaf is not cached that the memory node gets."},
        {"banyan_exchange_seconds", "What such a change takes, a moving average."},
        {"banyan_exchange_read_seconds",
         "Half of what the READ and the WRITE take that it saves, a moving average."},
    };
    for (unsigned family = 0; family < sizeof families / sizeof *families; family++) {
        family_begin(out, families[family].name, "gauge", families[family].help);
        for (unsigned i = 0; i < server_memory_nodes(server); i++) {
            if (!server_memory_is(server, i))
                continue;
            struct server_memory_state state;
            struct memory_status_reply status;
            server_memory_state(server, i, &state, &status);
            const double values[] = {state.walks.share,
                                     (double)state.walks.walk_ns / 1e9,
                                     (double)state.walks.read_ns / 1e9,
                                     state.exchanges.share,
                                     (double)state.exchanges.walk_ns / 1e9,
                                     (double)state.exchanges.read_ns / 1e9};
            fprintf(out, "%s{node=\"%u\"} %.9g\n", families[family].name, i, values[family]);
        }
    }
}

/* What outlives power, where something does. */
static void disk_families(const struct server *server, FILE *out)
{
    struct durable_stats stats;
    if (!server_durable(server))
        return;
    durable_stats(server_durable(server), &stats);
    gauge(out, "banyan_disk_bytes", "What journal and checkpoints take.", stats.disk_bytes);
    gauge(out, "banyan_disk_complete", "1: the disk has, or gets, all that was changed.",
          !stats.behind && !stats.status);
    gauge(out, "banyan_disk_refuses", "1: commands that change data are refused.", stats.status != 0);
    gauge(out, "banyan_disk_checkpoint_keys", "Keys in the last checkpoint.", stats.keeper.checkpoint_keys);
    gauge(out, "banyan_disk_journal_bytes", "Bytes of the journal behind it.", stats.keeper.journal_bytes);
    counter(out, "banyan_disk_changes_total", "Changes of keys.", stats.feed.marks);
    counter(out, "banyan_disk_keys_total", "Keys copied into the journal.",
            stats.keeper.keys + stats.keeper.deleted);
    counter(out, "banyan_disk_journal_written_bytes_total", "Bytes appended to it.", stats.keeper.bytes);
    counter(out, "banyan_disk_syncs_total", "Syncs of the journal.", stats.keeper.syncs);
    counter(out, "banyan_disk_waits_total", "Changes that waited since the disk was behind.",
            stats.feed.waits);
    counter(out, "banyan_disk_checkpoints_total", "Checkpoints that were made.", stats.saves);
    counter(out, "banyan_disk_checkpoint_failures_total", "Checkpoints that failed.", stats.saves_failed);
    family_begin(out, "banyan_disk_behind_seconds", "gauge",
                 "The oldest change that is not on the disk may be so old.");
    fprintf(out, "banyan_disk_behind_seconds %.6f\n", (double)stats.feed.behind_ns / 1e9);
    family_begin(out, "banyan_disk_sync_seconds_total", "counter", "Time that syncs took.");
    fprintf(out, "banyan_disk_sync_seconds_total %.6f\n", (double)stats.keeper.sync_ns / 1e9);
}

void metrics_compute(void *context, FILE *out)
{
    struct server *server = context;
    struct server_stats stats;
    server_stats(server, &stats);
    server_counters(&stats, out);
    index_counters(&stats, out);
    cache_counters(&stats, out);
    owner_counters(&stats, out);
    owner_seconds(&stats, out);
    log_counters(&stats, out);
    log_seconds(&stats, out);
    disk_families(server, out);
    memory_families(server, out);
    walk_families(server, out);
    command_families(server, out);
}

void metrics_memory(void *context, FILE *out)
{
    const struct metrics_memory_source *source = context;
    struct memory_status_reply status;
    source->status(source->owner, &status);
    gauge(out, "banyan_memory_uptime_seconds", "Seconds since the memory node started.",
          status.uptime_ms / 1000);
    gauge(out, "banyan_memory_pool_bytes", "Size of the pool.", status.pool_bytes);
    gauge(out, "banyan_memory_used_bytes", "Bytes of blocks handed out.", status.bytes_used);
    gauge(out, "banyan_memory_used_blocks", "Blocks handed out.", status.blocks_used);
    gauge(out, "banyan_memory_chunks", "Chunks of the pool.", status.chunks_total);
    gauge(out, "banyan_memory_chunks_used", "Chunks with blocks that are handed out.", status.chunks_used);
    gauge(out, "banyan_memory_free_bytes", "Bytes that are not handed out.", status.bytes_free);
    gauge(out, "banyan_memory_resident_bytes", "Bytes of chunks taken from the system, at most.",
          status.bytes_resident);
    gauge(out, "banyan_memory_chunks_emptying", "Chunks kept back while their blocks are moved.",
          status.chunks_emptying);
    counter(out, "banyan_memory_chunks_emptied_total", "Chunks that were emptied by moving their blocks.",
            status.chunks_emptied_total);
    counter(out, "banyan_memory_chunks_returned_total", "Chunks given back to the system.",
            status.chunks_returned_total);
    gauge(out, "banyan_memory_kept", "1 if the pool lies in a file that outlives the process.", status.kept);
    gauge(out, "banyan_memory_log_bytes", "Bytes of segments of owners' logs.", status.log_bytes);
    gauge(out, "banyan_memory_log_bytes_max", "Bytes that they may have together.", status.log_bytes_max);
    gauge(out, "banyan_memory_log_segments", "Segments of owners' logs.", status.log_segments);
    gauge(out, "banyan_memory_log_processes", "Processes that keep a log here.", status.log_processes);
    gauge(out, "banyan_memory_disk_level", "Journal: 0: none; 2: synced each second; 3: behind each commit.",
          status.durability > 1 ? status.durability : 0);
    gauge(out, "banyan_memory_disk_failed", "1 if the journal has failed: nothing is promised any more.",
          status.disk_failed);
    gauge(out, "banyan_memory_disk_full", "1 if the journal finds no room.", status.disk_full);
    gauge(out, "banyan_memory_disk_bytes", "Bytes of the files in the data directory.", status.disk_bytes);
    gauge(out, "banyan_memory_disk_behind_seconds", "Age of the last pass that is safe.",
          status.disk_behind_ms / 1000);
    counter(out, "banyan_memory_disk_syncs_total", "Passes that were synced.", status.disk_syncs_total);
    counter(out, "banyan_memory_disk_entries_total", "Changes copied to the journal.",
            status.disk_entries_total);
    counter(out, "banyan_memory_disk_elsewhere_total",
            "Changes that are not wholly in the journal, since "
            "parts of their values lie on other memory nodes.",
            status.disk_elsewhere_total);
    counter(out, "banyan_memory_disk_persists_total", "Times that owners asked for safety.",
            status.disk_persists_total);
    gauge(out, "banyan_memory_walk_threads", "Threads that walk for compute nodes.", status.walk_threads);
    counter(out, "banyan_memory_walks_total", "Walks made for compute nodes.", status.walks_total);
    counter(out, "banyan_memory_walk_keys_total", "Keys that they looked for.", status.walk_keys_total);
    counter(out, "banyan_memory_walk_nodes_total", "Nodes that they looked at.", status.walk_nodes_total);
    counter(out, "banyan_memory_walk_answered_total", "Keys that were answered for good.",
            status.walk_answered_total);
    counter(out, "banyan_memory_walk_busy_total", "Walks that found the queue full.", status.walk_busy_total);
    counter(out, "banyan_memory_walk_refused_total", "Walks that made no sense.", status.walk_refused_total);
    counter(out, "banyan_memory_walk_cpu_nanoseconds_total", "CPU time of the threads that walk.",
            status.walk_cpu_ns_total);
    gauge(out, "banyan_memory_merge_threads", "Threads that merge for compute nodes, and do nothing else.",
          status.merge_threads);
    counter(out, "banyan_memory_merges_total", "Requests to merge what compute nodes have logged.",
            status.merges_total);
    counter(out, "banyan_memory_merge_entries_total", "Entries in them.", status.merge_entries_total);
    counter(out, "banyan_memory_merge_merged_total", "Of these, those that were merged here.",
            status.merge_merged_total);
    counter(out, "banyan_memory_merge_busy_total", "Such requests that found the queue full.",
            status.merge_busy_total);
    counter(out, "banyan_memory_merge_cpu_nanoseconds_total", "CPU time of the threads that merge alone.",
            status.merge_cpu_ns_total);
    counter(out, "banyan_memory_allocations_total", "Blocks handed out so far.", status.allocations_total);
    counter(out, "banyan_memory_frees_total", "Blocks returned so far.", status.frees_total);
    counter(out, "banyan_memory_refusals_total", "Allocations that found no room.", status.refusals_total);
    gauge(out, "banyan_memory_compute_nodes", "Compute nodes that hold a lease.", status.compute_nodes);
    gauge(out, "banyan_memory_connections", "Connections.", status.connections);
    gauge(out, "banyan_memory_rdma", "Whether a NIC serves the memory.", status.nic);
    gauge(out, "banyan_memory_queue_pairs", "Queue pairs of compute nodes.", status.nic_queues);
    counter(out, "banyan_memory_fenced_total", "Compute nodes fenced.", status.fenced_total);
    counter(out, "banyan_memory_locks_freed_total", "Locks of fenced compute nodes freed.",
            status.locks_freed_total);
    counter(out, "banyan_memory_lists_total", "Command lists run; those through a NIC are not known here.",
            status.lists_total);
    counter(out, "banyan_memory_commands_total", "Commands run.", status.commands_total);
    counter(out, "banyan_memory_read_bytes_total", "Bytes read by commands.", status.bytes_read_total);
    counter(out, "banyan_memory_written_bytes_total", "Bytes written by commands.",
            status.bytes_written_total);
}
