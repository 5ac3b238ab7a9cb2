/*
 * session.c - sessions: opening and closing, the last error, counters. Called by programs, on the session's
 * thread. Closing returns free blocks to their memory nodes (RPCs).
 */
#include "api/session.h"

#include <stdlib.h>
#include <string.h>
#include "api/records.h"

int api_result(struct banyan_session *session, int status)
{
    if (status) {
        const struct error *error = tree_session_error(session->tree_session);
        if (error->code == status)
            session->error = *error;
        else
            error_set(&session->error, status, "%s", error_name(status));
    }
    return status;
}

int banyan_session_open(struct banyan *banyan, struct banyan_session **session)
{
    struct error error = {0};
    if (session)
        *session = NULL;
    if (!banyan || !session)
        return BANYAN_EINVAL;
    struct banyan_session *opened = calloc(1, sizeof *opened);
    if (!opened)
        return BANYAN_ENOMEM;
    opened->banyan = banyan;
    int status = pool_worker_create(&opened->worker, tree_compute_pool(banyan->compute), &error);
    if (!status) {
        status = tree_session_create(&opened->tree_session, banyan->compute, opened->worker, &error);
        if (status)
            pool_worker_destroy(opened->worker);
    }
    if (status) {
        free(opened);
        return status;
    }
    api_count(&banyan->sessions, 1);
    *session = opened;
    return BANYAN_OK;
}

int banyan_session_close(struct banyan_session *session)
{
    if (!session)
        return BANYAN_OK;
    if (session->iterators)
        return error_set(&session->error, BANYAN_EBUSY, "the session has %u open iterators",
                         session->iterators);
    api_detach_session(session);
    tree_session_destroy(session->tree_session);
    pool_worker_destroy(session->worker);
    free(session->room);
    api_count(&session->banyan->sessions, -1);
    free(session);
    return BANYAN_OK;
}

const char *banyan_session_error(const struct banyan_session *session)
{
    return session ? session->error.text : "the session is NULL";
}

int banyan_session_stats(const struct banyan_session *session, struct banyan_session_stats *stats)
{
    if (!session || !stats)
        return BANYAN_EINVAL;
    const struct tree_stats *from = tree_session_stats(session->tree_session);
    struct banyan_session_stats to = {
        .operations = from->operations,
        .round_trips = from->cost.round_trips,
        .reads = from->cost.reads,
        .writes = from->cost.writes,
        .atomics = from->cost.atomics,
        .rpcs = from->cost.rpcs,
        .bytes_read = from->cost.bytes_read,
        .bytes_written = from->cost.bytes_written,
        .retries = from->retries,
        .cache_hits = from->cache_hits,
        .cache_misses = from->cache_misses,
        .splits = from->splits,
        .unlinks = from->unlinks,
    };
    return api_struct_out(stats, &to, sizeof to);
}

int banyan_session_stats_reset(struct banyan_session *session)
{
    if (!session)
        return BANYAN_EINVAL;
    tree_session_stats_reset(session->tree_session);
    return BANYAN_OK;
}
