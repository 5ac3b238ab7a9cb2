/*
 * info.c - INFO: the server's figures as text, in Redis's sections and form, since its tools parse them, and
 * some of Banyan's own. On a fiber; visits every thread once, and asks each memory node for its state
 * where that is shown, to bring the figures up to date.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "server/arguments.h"
#include "server/commands/functions.h"
#include "server/saves.h"
#include "server/state.h"
#include "store/cut.h"
#include "server/text.h"

/* ---- sections ---- */

/* What the sections are written from. */
struct figures {
    struct server_call *call;
    struct server *server;
    struct server_stats stats;
    uint64_t pool_bytes, used_bytes; /* sums of the memory nodes that have answered */
    uint64_t fragmented_bytes;       /* free, in chunks that are partly used */
    unsigned memory_nodes;           /* that there are */
    unsigned kept;                   /* memory nodes whose pool lies in a file */
    bool exact;                      /* the keys must be counted, not estimated */
    bool sized;                      /* the memory nodes must be asked what is used now */
    struct text text;
};

static void section_server(struct figures *f)
{
    struct utsname system = {0};
    unsigned port = 0;
    uname(&system);
    for (unsigned i = 0; !port && i < f->server->listeners.count; i++)
        port = f->server->listeners.list[i].address.kind == NET_TCP
                   ? f->server->listeners.list[i].address.port
                   : 0;
    text_add(&f->text,
             "redis_version:%s\r\nredis_git_sha1:00000000\r\nredis_git_dirty:0\r\nredis_build_id:0\r\n"
             "redis_mode:standalone\r\nbanyan_version:%s\r\nos:%s %s %s\r\narch_bits:%zu\r\n"
             "multiplexing_api:epoll\r\nprocess_id:%ld\r\nrun_id:%s\r\ntcp_port:%u\r\n"
             "server_time_usec:%" PRIu64 "\r\nuptime_in_seconds:%" PRIu64 "\r\nuptime_in_days:%" PRIu64
             "\r\nhz:10\r\nio_threads_active:%u\r\nconfig_file:\r\n",
             SERVER_REDIS_VERSION, BANYAN_VERSION_TEXT, system.sysname, system.release, system.machine,
             sizeof(void *) * 8, (long)getpid(), f->server->run_id, port, clock_wall_ms() * 1000,
             f->stats.uptime_s, f->stats.uptime_s / 86400, f->server->thread_count);
}

static void section_clients(struct figures *f)
{
    text_add(&f->text,
             "connected_clients:%" PRIu64 "\r\ncluster_connections:0\r\nmaxclients:%" PRIu64
             "\r\nblocked_clients:0\r\ntracking_clients:0\r\n",
             f->stats.counters.clients, atomic_load_relaxed(&f->server->clients_max));
}

static uint64_t resident_bytes(void)
{
    unsigned long size = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    if (fscanf(file, "%lu %lu", &size, &resident) != 2)
        resident = 0;
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* In Redis's names: "allocated" is what is handed out, "active" the chunks that have some of it. */
static void section_fragmentation(struct figures *f)
{
    uint64_t active = f->used_bytes + f->fragmented_bytes;
    text_add(&f->text,
             "allocator_allocated:%" PRIu64 "\r\nallocator_active:%" PRIu64
             "\r\nallocator_frag_ratio:%.2f\r\nallocator_frag_bytes:%" PRIu64
             "\r\nmem_allocator:banyan\r\nactive_defrag_running:%" PRIu64 "\r\n",
             f->used_bytes, active, f->used_bytes ? (double)active / (double)f->used_bytes : 1.0,
             f->fragmented_bytes, atomic_load_relaxed(&f->server->defrag.running));
}

static void section_defrag(struct figures *f)
{
    struct server_defrag *defrag = &f->server->defrag;
    uint64_t since = atomic_load_relaxed(&defrag->since_ns), now = task_now();
    uint64_t current = since && now > since ? (now - since) / 1000000 : 0;
    text_add(&f->text,
             "active_defrag_hits:%" PRIu64 "\r\nactive_defrag_misses:%" PRIu64
             "\r\nactive_defrag_key_hits:%" PRIu64 "\r\nactive_defrag_key_misses:%" PRIu64
             "\r\nactive_defrag_bytes:%" PRIu64 "\r\nactive_defrag_passes:%" PRIu64
             "\r\nactive_defrag_leaf_merges:%" PRIu64 "\r\ntotal_active_defrag_time:%" PRIu64
             "\r\ncurrent_active_defrag_time:%" PRIu64 "\r\n",
             atomic_load_relaxed(&defrag->counts.hits), atomic_load_relaxed(&defrag->counts.misses),
             atomic_load_relaxed(&defrag->counts.key_hits), atomic_load_relaxed(&defrag->counts.key_misses),
             atomic_load_relaxed(&defrag->counts.bytes), atomic_load_relaxed(&defrag->counts.passes),
             atomic_load_relaxed(&defrag->merges), atomic_load_relaxed(&defrag->time_ns) / 1000000 + current,
             current);
}

static void section_memory(struct figures *f)
{
    text_add(&f->text,
             "used_memory:%" PRIu64 "\r\nused_memory_human:%.2fM\r\nused_memory_rss:%" PRIu64
             "\r\nused_memory_dataset:%" PRIu64 "\r\nmaxmemory:%" PRIu64
             "\r\nmaxmemory_human:%.2fM\r\nmaxmemory_policy:noeviction\r\nmem_clients_normal:%" PRIu64
             "\r\nmem_store_buffers:%" PRIu64 "\r\nmem_node_cache:%" PRIu64 "\r\n",
             f->used_bytes, (double)f->used_bytes / 1048576.0, resident_bytes(), f->used_bytes, f->pool_bytes,
             (double)f->pool_bytes / 1048576.0, f->stats.client_memory, f->stats.store.memory,
             f->stats.cache.bytes);
    section_fragmentation(f);
}

/* Of what every acknowledged write is safe: "memory", of nothing that ends its memory node; "process", of its
 * process's end too, where all pools lie in files; "disk-second" and "disk-always", of a loss of power too,
 * but for the last second, or for nothing. */
static const char *durability(const struct figures *f)
{
    const enum fabric_durability kept = server_durability(f->server);
    if (kept >= FABRIC_KEPT_ON_DISK)
        return kept == FABRIC_KEPT_ON_DISK_ALWAYS ? "disk-always" : "disk-second";
    return f->memory_nodes && f->kept == f->memory_nodes ? "process" : "memory";
}

/* In the words of Redis, whose tools look for them: a checkpoint is its snapshot, and what its log of
 * commands was rewritten to; the journal is that log. */
static void section_disk(struct figures *f)
{
    struct durable_stats stats = {.status = 0};
    struct server_saves saves;
    const bool on = server_durability(f->server) >= FABRIC_KEPT_ON_DISK;
    server_save_look(f->server, &saves);
    if (f->server->options.durable)
        durable_stats(f->server->options.durable, &stats);
    text_add(&f->text,
             "rdb_changes_since_last_save:%" PRIu64
             "\r\nrdb_bgsave_in_progress:%d\r\nrdb_last_save_time:%" PRIu64
             "\r\nrdb_last_bgsave_status:%s\r\nrdb_last_bgsave_time_sec:%" PRId64 "\r\nrdb_saves:%" PRIu64
             "\r\naof_enabled:%d\r\naof_rewrite_in_progress:%d\r\naof_last_bgrewrite_status:%s"
             "\r\naof_last_write_status:%s\r\n",
             stats.changes, saves.saving, saves.saved_ms ? saves.saved_ms / 1000 : f->server->started_s,
             saves.failed ? "err" : "ok", saves.saved_ms ? (int64_t)(saves.ns / 1000000000) : -1, saves.saves,
             on, saves.saving, saves.failed ? "err" : "ok", stats.status ? "err" : "ok");
    if (!f->server->options.durable) /* the rest INFO memory_nodes tells, of each memory node */
        return;
    text_add(&f->text,
             "aof_current_size:%" PRIu64 "\r\naof_base_size:%" PRIu64 "\r\naof_delayed_fsync:%" PRIu64
             "\r\ndisk_kind:%s\r\ndisk_bytes:%" PRIu64 "\r\ndisk_written_bytes:%" PRIu64
             "\r\ndisk_behind_ms:%" PRIu64 "\r\ndisk_complete:%d\r\ndisk_syncs:%" PRIu64
             "\r\ndisk_sync_usec:%" PRIu64 "\r\ndisk_sync_usec_longest:%" PRIu64 "\r\ndisk_error:%s\r\n",
             stats.keeper.journal_bytes, stats.keeper.checkpoint_bytes, stats.feed.waits, stats.disk_kind,
             stats.disk_bytes, stats.keeper.bytes, stats.feed.behind_ns / 1000000,
             !stats.behind && !stats.status, stats.keeper.syncs, stats.keeper.sync_ns / 1000,
             stats.keeper.sync_longest_ns / 1000, stats.status ? stats.error.text : "");
}

static void section_persistence(struct figures *f)
{
    text_add(&f->text, "loading:0\r\nasync_loading:0\r\ndurability:%s\r\ndata_directory:%s\r\n",
             durability(f), f->server->data ? f->server->data : "");
    section_disk(f);
}

static void section_cuts(struct figures *f)
{
    struct store_cut_stats cuts;
    store_cut_stats(f->server->store, &cuts);
    text_add(&f->text,
             "cuts_open:%" PRIu64 "\r\ncuts_opened:%" PRIu64 "\r\ncuts_failed:%" PRIu64
             "\r\ncut_memory:%" PRIu64 "\r\ncut_values_saved:%" PRIu64 "\r\ncut_longest_hold_usec:%" PRIu64
             "\r\n",
             cuts.open, cuts.opened, cuts.failed, cuts.memory, cuts.saved, cuts.held_longest_ns / 1000);
}

static void section_stats(struct figures *f)
{
    text_add(&f->text,
             "total_connections_received:%" PRIu64 "\r\ntotal_commands_processed:%" PRIu64
             "\r\ninstantaneous_ops_per_sec:%" PRIu64 "\r\ntotal_net_input_bytes:%" PRIu64
             "\r\ntotal_net_output_bytes:%" PRIu64 "\r\nrejected_connections:%" PRIu64
             "\r\nexpired_keys:%" PRIu64 "\r\nevicted_keys:0\r\nevicted_clients:%" PRIu64
             "\r\nkeyspace_hits:%" PRIu64 "\r\nkeyspace_misses:%" PRIu64 "\r\npubsub_channels:0\r\n"
             "pubsub_patterns:0\r\nlatest_fork_usec:0\r\ntotal_error_replies:%" PRIu64
             "\r\nprotocol_errors:%" PRIu64 "\r\nlatency_usec_p50:%" PRIu64 "\r\nlatency_usec_p99:%" PRIu64
             "\r\nlatency_usec_p999:%" PRIu64 "\r\n",
             f->stats.counters.clients_total, f->stats.counters.commands,
             atomic_load_relaxed(&f->server->commands_per_second), f->stats.counters.bytes_in,
             f->stats.counters.bytes_out, f->stats.counters.clients_rejected, f->stats.expired_total,
             f->stats.counters.clients_evicted, f->stats.counters.hits, f->stats.counters.misses,
             f->stats.counters.errors, f->stats.counters.input_errors, f->stats.latency_us_p50,
             f->stats.latency_us_p99, f->stats.latency_us_p999);
    section_cuts(f);
    section_defrag(f);
}

static void section_replication(struct figures *f)
{
    text_add(&f->text,
             "role:master\r\nconnected_slaves:0\r\nmaster_failover_state:no-failover\r\nmaster_replid:%s\r\n"
             "master_repl_offset:0\r\n",
             f->server->run_id);
}

static void section_cpu(struct figures *f)
{
    struct rusage usage = {0};
    getrusage(RUSAGE_SELF, &usage);
    text_add(&f->text, "used_cpu_sys:%ld.%06ld\r\nused_cpu_user:%ld.%06ld\r\n", (long)usage.ru_stime.tv_sec,
             (long)usage.ru_stime.tv_usec, (long)usage.ru_utime.tv_sec, (long)usage.ru_utime.tv_usec);
}

static void command_line(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                         uint64_t failed)
{
    text_add(context,
             "cmdstat_%s:calls=%" PRIu64 ",usec=%" PRIu64 ",usec_per_call=%.2f,rejected_calls=0,"
             "failed_calls=%" PRIu64 "\r\n",
             name, calls, nanoseconds / 1000, (double)nanoseconds / 1000.0 / (double)calls, failed);
}

static void section_commandstats(struct figures *f)
{
    server_each_command(f->server, command_line, &f->text);
}

static void section_cluster(struct figures *f)
{
    text_add(&f->text, "cluster_enabled:0\r\n");
}

static void section_keyspace(struct figures *f)
{
    static const struct tree_range all = {0};
    uint64_t keys = f->stats.keys;
    bool known = f->stats.keys_age_s != UINT64_MAX;
    if (f->exact)
        known = store_count(f->call->store, &all, &keys) == 0;
    if (known && keys)
        text_add(&f->text, "db0:keys=%" PRIu64 ",expires=0,avg_ttl=0\r\n", keys);
}

/* What a memory node promises. */
static const char *durability_name(const struct memory_status_reply *status)
{
    return status->durability == FABRIC_KEPT_ON_DISK_ALWAYS ? "disk-always"
           : status->durability == FABRIC_KEPT_ON_DISK      ? "disk-second"
           : status->kept                                   ? "process"
                                                            : "memory";
}

/* Figures that Redis does not have. */
static void section_banyan(struct figures *f)
{
    const struct tree_stats *tree = &f->stats.tree;
    double operations = tree->operations ? (double)tree->operations : 1.0;
    double looks =
        tree->cache_hits + tree->cache_misses ? (double)(tree->cache_hits + tree->cache_misses) : 1.0;
    text_add(&f->text,
             "fabric:%s\r\nindex_operations:%" PRIu64 "\r\nround_trips:%" PRIu64
             "\r\nround_trips_per_operation:%.3f\r\nindex_retries:%" PRIu64 "\r\nfabric_bytes_read:%" PRIu64
             "\r\nfabric_bytes_written:%" PRIu64 "\r\nnode_cache_bytes:%" PRIu64
             "\r\nnode_cache_hit_rate:%.4f\r\nrecords_written:%" PRIu64 "\r\nrecords_freed:%" PRIu64
             "\r\nmemory_nodes:%u\r\n",
             fabric_capabilities(f->server->fabric)->backend, tree->operations, tree->cost.round_trips,
             (double)tree->cost.round_trips / operations, tree->retries, tree->cost.bytes_read,
             tree->cost.bytes_written, f->stats.cache.bytes, (double)tree->cache_hits / looks,
             f->stats.store.records_written, f->stats.store.records_freed, f->memory_nodes);
    for (unsigned i = 0; i < server_memory_nodes(f->server); i++) {
        struct server_memory_state state;
        struct memory_status_reply status = {0};
        if (!server_memory_is(f->server, i))
            continue;
        server_memory_state(f->server, i, &state, &status);
        text_add(
            &f->text,
            "memory_node%u:connected=%d,pool_bytes=%" PRIu64 ",used_bytes=%" PRIu64 ",compute_nodes=%" PRIu64
            ",fenced=%" PRIu64 ",rdma=%d,queue_pairs=%" PRIu64 ",log_bytes=%" PRIu64 ",log_segments=%" PRIu64
            ",durability=%s,disk_failed=%d,disk_syncs=%" PRIu64 ",walks=%" PRIu64 ",walk_nodes=%" PRIu64
            ",walks_busy=%" PRIu64 ",walk_cpu_usec=%" PRIu64 ",merges=%" PRIu64 ",merges_busy=%" PRIu64
            ",merge_cpu_usec=%" PRIu64 ",walk_share=%.3f,walk_usec=%.1f,walk_read_usec=%.1f\r\n",
            i, state.connected, status.pool_bytes, status.bytes_used, status.compute_nodes,
            status.fenced_total, status.nic != 0, status.nic_queues, status.log_bytes, status.log_segments,
            durability_name(&status), status.disk_failed != 0, status.disk_syncs_total, status.walks_total,
            status.walk_nodes_total, status.walk_busy_total, status.walk_cpu_ns_total / 1000,
            status.merges_total, status.merge_busy_total, status.merge_cpu_ns_total / 1000, state.walks.share,
            (double)state.walks.walk_ns / 1e3, (double)state.walks.read_ns / 1e3);
    }
}

/* A line for each kind. Its names are what `banyan top` reads. */
static void section_cache(struct figures *f)
{
    const struct tree_cache_stats *cache = &f->stats.cache;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < SERVER_CACHE_KINDS; i++)
        bytes += server_cache_kind(&f->stats, i).bytes;
    text_add(&f->text, "cache_budget_bytes:%" PRIu64 "\r\ncache_bytes:%" PRIu64 "\r\n", cache->budget, bytes);
    for (unsigned i = 0; i < SERVER_CACHE_KINDS; i++) {
        const struct tree_cache_kind kind = server_cache_kind(&f->stats, i);
        text_add(&f->text,
                 "cache_%s:bytes=%" PRIu64 ",hits=%" PRIu64 ",misses=%" PRIu64 ",admissions=%" PRIu64
                 ",evictions=%" PRIu64 "\r\n",
                 server_cache_names[i], kind.bytes, kind.hits, kind.misses, kind.admissions, kind.evictions);
    }
    text_add(&f->text,
             "cache_shortcut_hits:%" PRIu64 "\r\ncache_promotions:%" PRIu64 "\r\ncache_demotions:%" PRIu64
             "\r\ncache_busy:%" PRIu64 "\r\n",
             cache->shortcut_hits, cache->promotions, cache->demotions, cache->busy);
}

/* Its names are what `banyan top` reads. */
static void section_ownership(struct figures *f)
{
    const struct owner_stats *o = &f->stats.owner;
    text_add(&f->text, "ownership:%s\r\n", server_ownership_names[f->stats.ownership]);
    if (f->stats.ownership != SERVER_OWNS_RANGES)
        return;
    text_add(&f->text,
             "ownership_compute_id:%u\r\nownership_map_version:%" PRIu64 "\r\nownership_ranges_owned:%" PRIu64
             "\r\nownership_ranges:%" PRIu64 "\r\nownership_adoptions:%" PRIu64
             "\r\nownership_adoption_usec_longest:%" PRIu64 "\r\nownership_transfers:%" PRIu64
             "\r\nownership_ranges_moved:%" PRIu64 "\r\nownership_transfer_usec_longest:%" PRIu64
             "\r\nownership_transfers_finished:%" PRIu64 "\r\nownership_takeovers:%" PRIu64
             "\r\nownership_ranges_inherited:%" PRIu64 "\r\nownership_fencings:%" PRIu64 "\r\n",
             fabric_capabilities(f->server->fabric)->compute_id, o->version, o->owned, o->ranges,
             o->adoptions, o->adopt_longest_ns / 1000, o->transfers, o->moved, o->transfer_longest_ns / 1000,
             o->finished, o->takeovers, o->inherited, o->fencings);
    text_add(&f->text,
             "forwarded_lookups:%" PRIu64 "\r\nforwarded_writes:%" PRIu64 "\r\nforwarded_scans:%" PRIu64
             "\r\nforwarded_messages:%" PRIu64 "\r\nserved_lookups:%" PRIu64 "\r\nserved_writes:%" PRIu64
             "\r\nserved_scans:%" PRIu64 "\r\nforwards_refused:%" PRIu64 "\r\nrefusals:%" PRIu64
             "\r\nranges_unreachable:%" PRIu64 "\r\nownership_waits:%" PRIu64
             "\r\nownership_wait_usec_longest:%" PRIu64 "\r\nread_lease_lapses:%" PRIu64
             "\r\nread_lease_pauses:%" PRIu64 "\r\nread_lease_pause_usec_longest:%" PRIu64 "\r\n",
             o->forwarded_lookups, o->forwarded_exchanges, o->forwarded_scans, o->messages, o->served_lookups,
             o->served_exchanges, o->served_scans, o->refused, o->refusals, o->unreachable, o->waits,
             o->wait_longest_ns / 1000, o->lapses, o->pauses, o->pause_longest_ns / 1000);
}

/* Its names are what `banyan top` reads. */
static void section_log(struct figures *f)
{
    const struct log_stats *l = &f->stats.log;
    text_add(&f->text, "log:%s\r\n", f->stats.logs ? "kept" : "none");
    if (!f->stats.logs)
        return;
    text_add(&f->text,
             "log_unmerged_keys:%" PRIu64 "\r\nlog_unmerged_bytes:%" PRIu64 "\r\nlog_lag_entries:%" PRIu64
             "\r\nlog_lag_msec:%" PRIu64 "\r\nlog_segments:%" PRIu64 "\r\nlog_segment_bytes:%" PRIu64
             "\r\nlog_segment_bytes_unmerged:%" PRIu64 "\r\n",
             l->unmerged, l->unmerged_bytes, l->sequence > l->watermark ? l->sequence - l->watermark : 0,
             l->lag_ns / 1000000, l->segments, l->segment_bytes, l->log_bytes);
    text_add(&f->text,
             "log_entries:%" PRIu64 "\r\nlog_commits:%" PRIu64 "\r\nlog_entries_per_commit:%.2f"
             "\r\nlog_frames:%" PRIu64 "\r\nlog_bytes_written:%" PRIu64 "\r\nlog_degraded:%" PRIu64
             "\r\nlog_unknown:%" PRIu64 "\r\nlog_refused:%" PRIu64 "\r\n",
             l->entries, l->commits, l->commits ? (double)l->entries / (double)l->commits : 0.0, l->frames,
             l->bytes, l->degraded, l->unknown, l->refused);
    text_add(&f->text,
             "log_merged:%" PRIu64 "\r\nlog_merged_there:%" PRIu64 "\r\nlog_cycles:%" PRIu64
             "\r\nlog_cycle_usec_last:%" PRIu64 "\r\nlog_held:%" PRIu64 "\r\nlog_held_usec_longest:%" PRIu64
             "\r\nlog_waits:%" PRIu64 "\r\nlog_wait_usec_longest:%" PRIu64 "\r\nlog_full:%" PRIu64
             "\r\nlog_inherited:%" PRIu64 "\r\nlog_inherit_usec_longest:%" PRIu64 "\r\n",
             l->merged, l->merged_there, l->cycles, l->cycle_ns / 1000, l->held, l->held_longest_ns / 1000,
             l->waits, l->wait_longest_ns / 1000, l->full, l->inherited, l->inherit_longest_ns / 1000);
}

static const struct section {
    const char *name;  /* in requests */
    const char *title; /* in the reply */
    void (*write)(struct figures *);
    bool rare;  /* only with "all" and "everything" */
    bool sized; /* shows what the memory nodes hold */
} sections[] = {
    {"SERVER", "Server", section_server, false, false},
    {"CLIENTS", "Clients", section_clients, false, false},
    {"MEMORY", "Memory", section_memory, false, true},
    {"PERSISTENCE", "Persistence", section_persistence, false, true},
    {"STATS", "Stats", section_stats, false, false},
    {"REPLICATION", "Replication", section_replication, false, false},
    {"CPU", "CPU", section_cpu, false, false},
    {"COMMANDSTATS", "Commandstats", section_commandstats, true, false},
    {"CLUSTER", "Cluster", section_cluster, false, false},
    {"KEYSPACE", "Keyspace", section_keyspace, false, false},
    {"BANYAN", "Banyan", section_banyan, false, true},
    {"CACHE", "Cache", section_cache, false, false},
    {"OWNERSHIP", "Ownership", section_ownership, false, false},
    {"LOG", "Log", section_log, false, false},
};

static bool wanted(const struct server_call *call, const struct section *section)
{
    bool found = call->count == 1 && !section->rare;
    for (uint32_t i = 1; !found && i < call->count; i++) {
        const struct resp_argument *name = &call->arguments[i];
        found = server_argument_is(name, section->name) || server_argument_is(name, "ALL") ||
                server_argument_is(name, "EVERYTHING") ||
                (server_argument_is(name, "DEFAULT") && !section->rare);
    }
    return found;
}

static void figures_gather(struct figures *f)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        f->sized |= sections[i].sized && wanted(f->call, &sections[i]);
    server_refresh(f->server);
    server_stats(f->server, &f->stats);
    for (unsigned i = 0; i < server_memory_nodes(f->server); i++) {
        struct server_memory_state state;
        struct memory_status_reply status = {0};
        if (!server_memory_is(f->server, i))
            continue;
        f->memory_nodes++;
        if (f->sized)
            server_node_ask(f->server, store_session_tree(f->call->store), i);
        server_memory_state(f->server, i, &state, &status);
        f->pool_bytes += status.pool_bytes;
        f->used_bytes += status.bytes_used;
        f->fragmented_bytes += status.bytes_free_in_chunks;
        f->kept += status.kept != 0;
    }
    for (uint32_t i = 1; i < f->call->count; i++)
        f->exact |= server_argument_is(&f->call->arguments[i], "KEYSPACE");
}

void info_run(struct server_call *call)
{
    struct figures *f = calloc(1, sizeof *f);
    if (!f) {
        resp_error(call->reply, "OOM no memory for INFO");
        return;
    }
    f->call = call;
    f->server = call->connection->thread->server;
    figures_gather(f);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (!wanted(call, &sections[i]))
            continue;
        text_add(&f->text, "%s# %s\r\n", f->text.length ? "\r\n" : "", sections[i].title);
        sections[i].write(f);
    }
    if (f->text.failed)
        resp_error(call->reply, "OOM no memory for INFO");
    else
        resp_verbatim(call->reply, f->text.bytes ? f->text.bytes : "", f->text.length);
    text_free(&f->text);
    free(f);
}
