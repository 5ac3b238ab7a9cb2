/* cluster_session.c - See cluster_session.h. */
#include "cli/cluster_session.h"

#include "base/log.h"
#include "fabric/local.h"

#define CACHE_BYTES (UINT64_C(16) << 20) /* each node is visited once */
#define EMBEDDED_ID 1u

/* The fabric is there. */
static int open_tree(struct cluster_session *session, struct error *error)
{
    struct tree_switches switches = {0};
    int status = tree_switches_preset(&switches, "banyan", error);
    switches.cache_bytes = CACHE_BYTES;
    if (!status)
        status = tree_compute_create(&session->compute, session->fabric, &switches, error);
    if (!status)
        status = pool_worker_create(&session->worker, tree_compute_pool(session->compute), error);
    return status ? status : tree_session_create(&session->session, session->compute, session->worker, error);
}

int cluster_session_open(struct cluster_session *session, const struct cluster_fabric_settings *settings,
                         const char *name, struct error *error)
{
    *session = (struct cluster_session){.fabric = NULL};
    int status = cluster_fabric_prepare(&session->cluster, settings, error);
    session->cluster.options.name = name;
    if (!status)
        status = fabric_remote_open(&session->fabric, &session->cluster.options, error);
    return status ? status : open_tree(session, error);
}

int cluster_session_open_data(struct cluster_session *session, const char *path, struct error *error)
{
    const struct data_wishes wishes = {.existing = true};
    *session = (struct cluster_session){.fabric = NULL};
    int status = data_directory_open(&session->data, path, &wishes, error);
    if (status)
        return status;
    session->fabric =
        fabric_local_create(session->data.targets, (uint16_t)session->data.count, EMBEDDED_ID, error);
    return session->fabric ? open_tree(session, error) : error->code;
}

int cluster_session_join(struct cluster_session *session, struct error *error)
{
    struct owner_options options;
    owner_options_default(&options);
    options.policy = OWNER_NONE;
    return owner_process_open(&session->process, session->compute, &options, NULL, 1, 1, error);
}

void cluster_session_close(struct cluster_session *session)
{
    struct error error = {0};
    if (owner_process_leave(session->process, &error))
        log_debug("ranges of this process are left to others: %s", error.text);
    owner_process_close(session->process);
    tree_session_destroy(session->session);
    pool_worker_destroy(session->worker);
    if (session->compute)
        tree_compute_destroy(session->compute);
    fabric_close(session->fabric);
    cluster_fabric_close(&session->cluster);
    data_directory_close(&session->data);
}

void cluster_session_error(const struct cluster_session *session, int status, struct error *error)
{
    const struct error *last = tree_session_error(session->session);
    if (last->code == status)
        *error = *last;
    else
        error_set(error, status, "%s", error_name(status));
}
