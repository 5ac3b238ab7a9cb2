/* serve_owner.c - See serve_owner.h. */
#include "cli/serve_owner.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/task.h"
#include "fabric/peers.h"
#include "pool/pool.h"
#include "server/server.h"

#define MS             UINT64_C(1000000)
#define LEAVE_LIMIT_NS (10000 * MS) /* then the server stops though ranges are left */
#define PEER_FIBERS    16u

/* ---- joining ---- */

/* NULL: this process keeps no log. */
static const struct log_options *log_chosen(const struct serve_owner *owner,
                                            const struct serve_settings *settings, struct log_options *log)
{
    if (settings->log == SERVE_LOG_NONE || !owner->wants)
        return NULL;
    if (fabric_capabilities(pool_fabric(tree_compute_pool(owner->compute)))->direct) {
        log_info("the log: none is kept, since the pool is mapped into this process, where a write costs no "
                 "round trip");
        return NULL;
    }
    log_options_default(log);
    log->copies = settings->log_copies;
    log->segment_bytes = settings->log_segment_bytes;
    log->wait_ns = settings->log_wait_ms * MS;
    return log;
}

int serve_owner_open(struct serve_owner *owner, struct tree_compute *compute,
                     const struct serve_settings *settings, struct error *error)
{
    struct owner_options options;
    struct log_options log;
    owner_options_default(&options);
    /* Nobody else could write the ranges of a process that answers no calls. */
    owner->wants = settings->own == SERVE_OWN_AUTO && !owner->mute;
    options.policy = owner->wants ? OWNER_AUTO : OWNER_NONE;
    options.timeout_ns = settings->fabric.timeout_ms * MS;
    if (owner->mute && settings->own == SERVE_OWN_AUTO)
        log_warning("ownership: other compute nodes cannot forward to this one (%s): it owns no ranges",
                    owner->mute);
    owner->compute = compute;
    owner->terminal = isatty(STDERR_FILENO);
    return owner_process_open(&owner->process, compute, &options, log_chosen(owner, settings, &log),
                              settings->peer_threads, PEER_FIBERS, error);
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static void joiner_main(void *context)
{
    struct serve_owner *owner = context;
    struct error error = {0};
    struct owner_stats stats;
    uint64_t begun = task_now();
    if (owner_process_balance(owner->process, &error))
        log_warning("ownership: this process could not take its share of the ranges yet: %s", error.text);
    owner_stats(owner_process_owner(owner->process), &stats);
    log_info("ownership: %" PRIu64 " of %" PRIu64 " ranges are this process's, after %.1f ms", stats.owned,
             stats.ranges, ms(task_now() - begun));
}

void serve_owner_start(struct serve_owner *owner, struct server *server)
{
    struct error error = {0};
    owner->server = server;
    if (!owner->process || !owner->wants)
        return;
    if (thread_start(&owner->joiner, joiner_main, owner, &error)) {
        owner->joiner = NULL;
        log_warning("ownership: this process takes its share of the ranges later: %s", error.text);
    }
}

/* ---- the log ---- */

static void tell_transfers(struct serve_owner *owner, const struct owner_stats *now)
{
    const struct owner_stats *before = &owner->told;
    if (now->transfers > before->transfers)
        log_info("ownership: %" PRIu64 " ranges moved by %" PRIu64
                 " transfers of this process, %.1f ms; map version %" PRIu64,
                 now->moved - before->moved, now->transfers - before->transfers,
                 ms(now->transfer_ns - before->transfer_ns), now->version);
    if (now->takeovers > before->takeovers)
        log_warning("ownership: %" PRIu64 " ranges of compute nodes that are gone were taken over",
                    now->takeovers - before->takeovers);
    if (now->finished > before->finished)
        log_info("ownership: %" PRIu64 " transfers that others had begun were ended here",
                 now->finished - before->finished);
    if (now->fencings > before->fencings)
        log_warning("ownership: %" PRIu64 " processes that did not answer were fenced",
                    now->fencings - before->fencings);
    if (now->adoptions > before->adoptions && (now->owned != before->owned || now->ranges != before->ranges))
        log_info("ownership: map version %" PRIu64 " adopted in %.1f ms: %" PRIu64 " of %" PRIu64
                 " ranges are this process's",
                 now->version, ms(now->adopt_ns - before->adopt_ns), now->owned, now->ranges);
    if (now->lapses > before->lapses)
        log_info("ownership: the read lease lapsed %" PRIu64 " times; %" PRIu64
                 " operations waited %.1f ms for it",
                 now->lapses - before->lapses, now->pauses - before->pauses,
                 ms(now->pause_ns - before->pause_ns));
    owner->told = *now;
}

static void tell_progress(struct serve_owner *owner, const struct owner_stats *now)
{
    if (!owner->terminal || now->owned == owner->left_to_tell)
        return;
    owner->left_to_tell = now->owned;
    fprintf(stderr, "\r\033[Kgiving ranges away: %" PRIu64 " left%s", now->owned, now->owned ? "" : "\n");
}

void serve_owner_tick(void *context)
{
    struct serve_owner *owner = context;
    struct owner_stats stats;
    /* Before serve_owner_start, and where there is no cluster, there is nothing to tell. */
    if (!owner->process)
        return;
    owner_stats(owner_process_owner(owner->process), &stats);
    tell_transfers(owner, &stats);
    /* Acquire: pairs with serve_owner_leave; begun_ns and server are there. */
    if (!atomic_load_acquire(&owner->leaving))
        return;
    tell_progress(owner, &stats);
    if (!owner->late && task_now() - owner->begun_ns > LEAVE_LIMIT_NS) {
        owner->late = true;
        log_warning("ownership: %" PRIu64 " ranges could not be given away within %" PRIu64
                    " s; others take them over when this process is gone",
                    stats.owned, LEAVE_LIMIT_NS / (1000 * MS));
        server_stop(owner->server);
    }
}

/* ---- the end ---- */

static void leave(struct serve_owner *owner)
{
    struct error error = {0};
    struct owner_stats before, after;
    uint64_t begun = task_now();
    owner_stats(owner_process_owner(owner->process), &before);
    if (owner_process_leave(owner->process, &error)) {
        log_warning("ownership: %s; others take the ranges over when this process is gone", error.text);
        return;
    }
    owner_stats(owner_process_owner(owner->process), &after);
    log_info("ownership: %" PRIu64 " ranges were given away in %.1f ms", before.owned - after.owned,
             ms(task_now() - begun));
}

static void leaver_main(void *context)
{
    struct serve_owner *owner = context;
    leave(owner);
    server_stop(owner->server);
}

void serve_owner_leave(struct serve_owner *owner, struct server *server)
{
    struct error error = {0};
    owner->server = server;
    owner->begun_ns = task_now();
    if (!owner->process) {
        server_stop(server);
        return;
    }
    server_refuse(server);
    /* Release: the tick that sees it sees what was set above. */
    atomic_store_release(&owner->leaving, 1);
    if (thread_start(&owner->leaver, leaver_main, owner, &error)) {
        owner->leaver = NULL;
        log_warning("ownership: the ranges are given away when all clients are closed: %s", error.text);
        server_stop(server);
    }
}

void serve_owner_end(struct serve_owner *owner)
{
    if (owner->joiner)
        thread_join(owner->joiner);
    owner->joiner = NULL;
    if (owner->leaver)
        thread_join(owner->leaver);
    else if (owner->process)
        leave(owner);
    owner->leaver = NULL;
}

void serve_owner_close(struct serve_owner *owner)
{
    owner_process_close(owner->process);
    owner->process = NULL;
}
