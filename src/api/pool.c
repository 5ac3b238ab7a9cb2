/*
 * pool.c - opening and closing a pool for the C API: memory nodes of this process, or a cluster's by its URI.
 *
 * Called by programs; a pool's handle may then be used by any thread. Opening a cluster connects to all its
 * memory nodes; the message of a failure names the one at fault.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/pool.h"
#include "fabric/local.h"
#include "pool/pool.h"

#define DEFAULT_POOL_BYTES    (UINT64_C(1) << 30)
#define LEAST_POOL_BYTES      (UINT64_C(16) << 20)
#define MOST_POOL_BYTES       (UINT64_C(1) << 46)
#define DEFAULT_CACHE_BYTES   (UINT64_C(64) << 20)
#define DEFAULT_ADMISSION     100u
#define MOST_ADMISSION        1000u
#define DEFAULT_READ_LEASE_MS 50u
#define LEAST_READ_LEASE_MS   10u
#define MOST_READ_LEASE_MS    10000u
#define MOST_PEER_THREADS     64u
#define DEFAULT_LOG_WAIT_MS   5000u
#define MOST_LOG_WAIT_MS      600000u
#define PEER_FIBERS           16u /* of each thread: so many calls of other processes are served at once */
#define MEMORY_NODES_MAX      1024u
#define DEFAULT_PORT          7100u
#define COMPUTE_ID            1u /* a pool of this process has it as its only compute node */

static bool is_cluster(const struct banyan_options *options)
{
    return options->uri && options->uri[0] && strcmp(options->uri, "local:") != 0;
}

static int ownership_complete(struct banyan_options *options, struct error *error)
{
    if (options->read_lease_ms == 0)
        options->read_lease_ms = DEFAULT_READ_LEASE_MS;
    if (options->peer_threads == 0)
        options->peer_threads = 1;
    if (options->own > BANYAN_OWN_AUTO)
        return error_set(error, BANYAN_EINVAL, "options: own is %u, wanted a value of enum banyan_own",
                         options->own);
    if (options->read_lease_ms < LEAST_READ_LEASE_MS || options->read_lease_ms > MOST_READ_LEASE_MS)
        return error_set(error, BANYAN_EINVAL, "options: read_lease_ms is %u, wanted %u to %u",
                         options->read_lease_ms, LEAST_READ_LEASE_MS, MOST_READ_LEASE_MS);
    if (options->peer_threads > MOST_PEER_THREADS)
        return error_set(error, BANYAN_EINVAL, "options: peer_threads is %u, at most %u",
                         options->peer_threads, MOST_PEER_THREADS);
    return BANYAN_OK;
}

static int log_complete(struct banyan_options *options, struct error *error)
{
    if (options->log_copies == 0)
        options->log_copies = 1;
    if (options->log_segment_bytes == 0)
        options->log_segment_bytes = MEMORY_LOG_SEGMENT_MOST;
    if (options->log_wait_ms == 0)
        options->log_wait_ms = DEFAULT_LOG_WAIT_MS;
    if (options->log > BANYAN_LOG_AUTO)
        return error_set(error, BANYAN_EINVAL, "options: log is %u, wanted a value of enum banyan_log",
                         options->log);
    if (options->log == BANYAN_LOG_AUTO && (!is_cluster(options) || options->own != BANYAN_OWN_AUTO))
        return error_set(
            error, BANYAN_EINVAL,
            "options: log is BANYAN_LOG_AUTO, which wants a cluster (uri) and own BANYAN_OWN_AUTO: "
            "only writes of owned ranges are logged");
    if (options->log_copies > 2)
        return error_set(error, BANYAN_EINVAL, "options: log_copies is %u, wanted 1 or 2",
                         options->log_copies);
    if (options->log_segment_bytes < MEMORY_LOG_SEGMENT_LEAST ||
        options->log_segment_bytes > MEMORY_LOG_SEGMENT_MOST)
        return error_set(error, BANYAN_EINVAL, "options: log_segment_bytes is %u, wanted 64 KiB to 8 MiB",
                         options->log_segment_bytes);
    if (options->log_wait_ms > MOST_LOG_WAIT_MS)
        return error_set(error, BANYAN_EINVAL, "options: log_wait_ms is %u, at most %u", options->log_wait_ms,
                         MOST_LOG_WAIT_MS);
    return BANYAN_OK;
}

static int cache_complete(struct banyan_options *options, struct error *error)
{
    if (options->cache_bytes == 0)
        options->cache_bytes = DEFAULT_CACHE_BYTES;
    if (options->cache_policy == BANYAN_CACHE_DEFAULT)
        options->cache_policy = BANYAN_CACHE_ALL;
    if (options->cache_admission == 0)
        options->cache_admission = DEFAULT_ADMISSION;
    if (options->cache_policy > BANYAN_CACHE_ALL)
        return error_set(error, BANYAN_EINVAL,
                         "options: cache_policy is %u, wanted a value of enum banyan_cache_policy",
                         options->cache_policy);
    if (options->walks > 100 && options->walks != BANYAN_WALKS_NEVER)
        return error_set(error, BANYAN_EINVAL, "options: walks is %u, at most 100 or BANYAN_WALKS_NEVER",
                         options->walks);
    if (options->cache_admission > MOST_ADMISSION)
        return error_set(error, BANYAN_EINVAL, "options: cache_admission is %u, at most %u",
                         options->cache_admission, MOST_ADMISSION);
    return BANYAN_OK;
}

static int options_complete(struct banyan_options *options, const struct banyan_options *given,
                            struct error *error)
{
    memset(options, 0, sizeof *options);
    if (given) {
        int status = api_struct_in(options, sizeof *options, given, "options", error);
        if (status)
            return status;
    }
    if (options->memory_nodes == 0)
        options->memory_nodes = 1;
    if (options->pool_bytes == 0)
        options->pool_bytes = DEFAULT_POOL_BYTES;
    if (options->memory_nodes > MEMORY_NODES_MAX)
        return error_set(error, BANYAN_EINVAL, "options: memory_nodes is %u, at most %u",
                         options->memory_nodes, MEMORY_NODES_MAX);
    if (options->pool_bytes < LEAST_POOL_BYTES || options->pool_bytes > MOST_POOL_BYTES)
        return error_set(error, BANYAN_EINVAL, "options: pool_bytes is %llu, wanted 16 MiB to 64 TiB",
                         (unsigned long long)options->pool_bytes);
    if (options->copy > 1 || options->format > 1)
        return error_set(error, BANYAN_EINVAL, "options: copy and format are 0 or 1");
    if (options->huge_pages > PAGES_AUTO)
        return error_set(error, BANYAN_EINVAL, "options: huge_pages is %u, wanted 0, 1 or 2",
                         options->huge_pages);
    options->pool_bytes &= ~UINT64_C(4095);
    int status = ownership_complete(options, error);
    if (!status)
        status = log_complete(options, error);
    return status ? status : cache_complete(options, error);
}

static void handle_destroy(struct banyan *banyan)
{
    struct error error = {0};
    owner_process_leave(banyan->owner, &error); /* else others find out that this process is gone */
    owner_process_close(banyan->owner);
    if (banyan->compute)
        tree_compute_destroy(banyan->compute);
    if (banyan->fabric)
        fabric_close(banyan->fabric);
    for (uint16_t i = 0; banyan->nodes && i < banyan->node_count; i++)
        memory_node_destroy(banyan->nodes[i]);
    free(banyan->nodes);
    free(banyan->targets);
    free(banyan->addresses);
    if (banyan->tls)
        net_tls_destroy(banyan->tls);
    if (banyan->peer_tls)
        net_tls_destroy(banyan->peer_tls);
    if (banyan->secret)
        explicit_bzero(banyan->secret, NET_SECRET_MAX + 1);
    free(banyan->secret);
    free(banyan);
}

static int pool_create_nodes(struct banyan *banyan, const struct banyan_options *options, struct error *error)
{
    banyan->nodes = calloc(options->memory_nodes, sizeof *banyan->nodes);
    banyan->targets = calloc(options->memory_nodes, sizeof *banyan->targets);
    if (!banyan->nodes || !banyan->targets)
        return error_set(error, BANYAN_ENOMEM, "no memory for %u memory nodes", options->memory_nodes);
    for (uint32_t i = 0; i < options->memory_nodes; i++) {
        struct memory_options memory = {.node = (uint16_t)i,
                                        .pool_bytes = options->pool_bytes,
                                        .huge_pages = (enum pages_huge)options->huge_pages};
        int status = memory_node_create(&banyan->nodes[i], &memory, error);
        if (status)
            return status;
        banyan->node_count++;
        banyan->targets[i] = memory_node_target(banyan->nodes[i]);
    }
    return BANYAN_OK;
}

static int pool_format(struct banyan *banyan, struct error *error)
{
    struct pool_worker *worker = NULL;
    struct tree_session *session = NULL;
    int status = pool_worker_create(&worker, tree_compute_pool(banyan->compute), error);
    if (status)
        return status;
    status = tree_session_create(&session, banyan->compute, worker, error);
    if (!status) {
        status = tree_format(session);
        if (status)
            *error = *tree_session_error(session);
        tree_session_destroy(session);
    }
    pool_worker_destroy(worker);
    return status;
}

static int pool_create_local(struct banyan *banyan, const struct banyan_options *options, struct error *error)
{
    int status = pool_create_nodes(banyan, options, error);
    if (status)
        return status;
    banyan->fabric = fabric_local_create(banyan->targets, banyan->node_count, COMPUTE_ID, error);
    return banyan->fabric ? BANYAN_OK : error->code ? error->code : BANYAN_ENOMEM;
}

/* ---- a cluster's ---- */

static int parse_uri(struct banyan *banyan, const char *uri, struct error *error)
{
    char *copy = strdup(uri), *rest = copy, *item;
    uint16_t count = 1;
    int status = BANYAN_OK;
    for (const char *at = uri; (at = strchr(at, ',')) && count < MEMORY_NODES_MAX; at++)
        count++;
    banyan->addresses = calloc(count, sizeof *banyan->addresses);
    if (!copy || !banyan->addresses)
        status = error_set(error, BANYAN_ENOMEM, "no memory for %u addresses", (unsigned)count);
    while (!status && (item = strsep(&rest, ","))) {
        if (banyan->node_count == count)
            status = error_set(error, BANYAN_EINVAL, "options: uri names more than %u memory nodes",
                               (unsigned)count);
        else
            status = net_address_parse(&banyan->addresses[banyan->node_count], item, DEFAULT_PORT, error);
        banyan->node_count = (uint16_t)(banyan->node_count + !status);
    }
    free(copy);
    return status;
}

static int read_secrets(struct banyan *banyan, const struct banyan_options *options, struct error *error)
{
    int status = BANYAN_OK;
    if (options->secret_file) {
        banyan->secret = calloc(1, NET_SECRET_MAX + 1);
        status = banyan->secret ? net_secret_read(options->secret_file, banyan->secret,
                                                  &banyan->remote.secret_length, error)
                                : error_set(error, BANYAN_ENOMEM, "no memory for the secret");
    }
    if (!status && options->certificate_file && !options->authority_file)
        status = error_set(error, BANYAN_EINVAL,
                           "options: certificate_file without authority_file, by which the "
                           "memory nodes are known");
    if (!status && options->authority_file) {
        const struct net_tls_options tls = {.certificate_file = options->certificate_file,
                                            .key_file = options->key_file,
                                            .authority_file = options->authority_file};
        status = net_tls_create(&banyan->tls, false, &tls, error);
    }
    return status;
}

/* Who may own ranges answers other processes' calls. Without a certificate it cannot, where there is TLS:
 * they read its ranges from the memory nodes then, and cannot write them. */
static int prepare_peers(struct banyan *banyan, const struct banyan_options *options, struct error *error)
{
    const bool chosen = !options->peers || !options->peers[0];
    int status = BANYAN_OK;
    if (!chosen && !strcmp(options->peers, "off"))
        return BANYAN_OK;
    if (!chosen)
        status = net_address_parse(&banyan->peers, options->peers, 0, error);
    if (!status && !chosen && !net_address_loopback(&banyan->peers) && !banyan->secret && !banyan->tls)
        return error_set(
            error, BANYAN_EINVAL,
            "options: peers would be open to the network: give secret_file, or certificate_file and "
            "authority_file");
    if (!status && banyan->tls && !options->certificate_file)
        return chosen ? BANYAN_OK
                      : error_set(error, BANYAN_EINVAL, "options: peers with TLS wants certificate_file");
    if (!status && banyan->tls) {
        const struct net_tls_options tls = {.certificate_file = options->certificate_file,
                                            .key_file = options->key_file,
                                            .authority_file = options->authority_file,
                                            .require_peer = true};
        status = net_tls_create(&banyan->peer_tls, true, &tls, error);
    }
    banyan->remote.peers = !status;
    banyan->remote.peer_listen = chosen ? NULL : &banyan->peers;
    banyan->remote.peer_tls = banyan->peer_tls;
    return status;
}

static int pool_connect(struct banyan *banyan, const struct banyan_options *options, struct error *error)
{
    int status = parse_uri(banyan, options->uri, error);
    if (!status)
        status = read_secrets(banyan, options, error);
    banyan->remote.nodes = banyan->addresses;
    banyan->remote.count = banyan->node_count;
    banyan->remote.tls = banyan->tls;
    banyan->remote.secret = banyan->secret;
    banyan->remote.lease_ms = options->lease_ms;
    banyan->remote.read_lease_ms = options->read_lease_ms;
    banyan->remote.timeout_ms = options->timeout_ms;
    banyan->remote.copy = options->copy != 0;
    banyan->remote.nic = (struct verbs_options){.device = options->rdma_device,
                                                .port = options->rdma_port,
                                                .gid_index = options->rdma_gid,
                                                .traffic_class = options->rdma_traffic_class,
                                                .spin_us = options->rdma_spin_us};
    if (!status && options->own == BANYAN_OWN_AUTO)
        status = prepare_peers(banyan, options, error);
    if (!status && options->format)
        status = fabric_remote_format(&banyan->remote, error);
    return status ? status : fabric_remote_open(&banyan->fabric, &banyan->remote, error);
}

_Static_assert(TREE_CACHE_DEX == BANYAN_CACHE_LEAVES - BANYAN_CACHE_INNER &&
                   TREE_CACHE_DINOMO == BANYAN_CACHE_ENTRIES - BANYAN_CACHE_INNER &&
                   TREE_CACHE_BANYAN == BANYAN_CACHE_ALL - BANYAN_CACHE_INNER,
               "a policy of the API is one of the tree");

/* ---- both ---- */

/* A process of a cluster takes part whether it wants ranges or not: else it would write into those of others.
 */
static int pool_join(struct banyan *banyan, const struct banyan_options *options, struct error *error)
{
    struct owner_options owner;
    struct log_options log;
    owner_options_default(&owner);
    banyan->wants_ranges = options->own == BANYAN_OWN_AUTO;
    owner.policy = banyan->wants_ranges ? OWNER_AUTO : OWNER_NONE;
    if (options->timeout_ms)
        owner.timeout_ns = options->timeout_ms * UINT64_C(1000000);
    log_options_default(&log);
    log.copies = options->log_copies;
    log.segment_bytes = options->log_segment_bytes;
    log.wait_ns = options->log_wait_ms * UINT64_C(1000000);
    const bool logs = options->log == BANYAN_LOG_AUTO && !fabric_capabilities(banyan->fabric)->direct;
    return owner_process_open(&banyan->owner, banyan->compute, &owner, logs ? &log : NULL,
                              options->peer_threads, PEER_FIBERS, error);
}

static int handle_create(struct banyan *banyan, const struct banyan_options *options, struct error *error)
{
    struct tree_switches switches;
    memset(&switches, 0, sizeof switches);
    bool cluster = is_cluster(options);
    int status = cluster ? pool_connect(banyan, options, error) : pool_create_local(banyan, options, error);
    if (!status)
        status = tree_switches_preset(&switches, "banyan", error);
    switches.cache_bytes = options->cache_bytes;
    switches.cache_policy = (int)options->cache_policy - BANYAN_CACHE_INNER;
    switches.admission = options->cache_admission / (double)MOST_ADMISSION;
    switches.walks = options->walks == 0                    ? TREE_WALKS_AUTO
                     : options->walks == BANYAN_WALKS_NEVER ? TREE_WALKS_NEVER
                                                            : (int)options->walks;
    if (!cluster && options->own != BANYAN_OWN_NONE)
        switches.ownership = TREE_OWNERSHIP_ALL;
    if (!status)
        status = tree_compute_create(&banyan->compute, banyan->fabric, &switches, error);
    if (!status && (!cluster || options->format))
        status = pool_format(banyan, error);
    if (!status && cluster)
        status = pool_join(banyan, options, error);
    return status;
}

int banyan_open(struct banyan **banyan, const struct banyan_options *options)
{
    struct error error = {0};
    struct banyan_options complete;
    if (!banyan)
        return BANYAN_EINVAL;
    *banyan = NULL;
    int status = options_complete(&complete, options, &error);
    struct banyan *pool = NULL;
    if (!status) {
        pool = calloc(1, sizeof *pool);
        status = pool ? handle_create(pool, &complete, &error)
                      : error_set(&error, BANYAN_ENOMEM, "no memory for the pool's handle");
    }
    if (!status) {
        *banyan = pool;
        return BANYAN_OK;
    }
    if (pool)
        handle_destroy(pool);
    if (complete.message && complete.message_bytes > 0)
        snprintf(complete.message, complete.message_bytes, "%s",
                 error.text[0] ? error.text : error_name(status));
    return status;
}

int banyan_close(struct banyan *banyan)
{
    if (!banyan)
        return BANYAN_OK;
    if (atomic_load_relaxed(&banyan->sessions) || atomic_load_relaxed(&banyan->indexes))
        return BANYAN_EBUSY;
    handle_destroy(banyan);
    return BANYAN_OK;
}

static void status_add(struct memory_status_reply *sum, const struct memory_status_reply *one)
{
    sum->pool_bytes += one->pool_bytes;
    sum->chunk_bytes = one->chunk_bytes;
    sum->chunks_total += one->chunks_total;
    sum->chunks_used += one->chunks_used;
    sum->blocks_used += one->blocks_used;
    sum->bytes_used += one->bytes_used;
    sum->bytes_free_in_chunks += one->bytes_free_in_chunks;
}

static int pool_status_sum(const struct banyan *banyan, struct memory_status_reply *sum)
{
    memset(sum, 0, sizeof *sum);
    for (uint16_t i = 0; i < banyan->node_count; i++) {
        struct memory_status_reply reply = {0};
        const struct memory_status_request request = {.kind = MEMORY_STATUS};
        size_t length = 0;
        int status = BANYAN_OK;
        if (banyan->nodes)
            memory_node_status(banyan->nodes[i], &reply);
        else
            status = fabric_remote_ask(&banyan->remote, i, &request, sizeof request, &reply, sizeof reply,
                                       &length, NULL);
        if (status)
            return status;
        status_add(sum, &reply);
    }
    return BANYAN_OK;
}

int banyan_pool_status(struct banyan *banyan, struct banyan_pool_status *status)
{
    struct memory_status_reply sum;
    if (!banyan || !status)
        return BANYAN_EINVAL;
    int failed = pool_status_sum(banyan, &sum);
    const struct banyan_pool_status result = {
        .memory_nodes = banyan->node_count,
        .pool_bytes = sum.pool_bytes,
        .chunk_bytes = sum.chunk_bytes,
        .chunks_total = sum.chunks_total,
        .chunks_used = sum.chunks_used,
        .blocks_used = sum.blocks_used,
        .bytes_used = sum.bytes_used,
        .bytes_free_in_chunks = sum.bytes_free_in_chunks,
    };
    return failed ? failed : api_struct_out(status, &result, sizeof result);
}

int banyan_ownership_stats(struct banyan *banyan, struct banyan_ownership_stats *stats)
{
    struct owner_stats from = {0};
    if (!banyan || !stats)
        return BANYAN_EINVAL;
    if (banyan->owner)
        owner_stats(owner_process_owner(banyan->owner), &from);
    const struct banyan_ownership_stats to = {
        .ranges_owned = from.owned,
        .ranges = from.ranges,
        .map_version = from.version,
        .transfers = from.transfers,
        .ranges_moved = from.moved,
        .takeovers = from.takeovers,
        .forwarded_lookups = from.forwarded_lookups,
        .forwarded_writes = from.forwarded_exchanges,
        .served_lookups = from.served_lookups,
        .served_writes = from.served_exchanges,
        .unreachable = from.unreachable,
        .read_lease_lapses = from.lapses,
        .read_lease_pauses = from.pauses,
    };
    return api_struct_out(stats, &to, sizeof to);
}
