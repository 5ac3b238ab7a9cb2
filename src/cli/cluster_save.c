/* cluster_save.c - see cluster_save.h. */
#include "cli/cluster_save.h"

#include "cli/cluster_session.h"

int cluster_save(const struct cluster_fabric_settings *settings, const struct save_options *options,
                 bool only_due, bool *made, struct save_stats *stats, struct error *error)
{
    struct cluster_session session = {.fabric = NULL};
    struct save_look look = {.due = true};
    *made = false;
    *stats = (struct save_stats){0};
    int status = cluster_session_open(&session, settings, "banyan save", error);
    if (!status && only_due)
        status = save_look(tree_session_pool(session.session), &look, error);
    if (!status && look.due && !(only_due && look.busy)) {
        status = cluster_session_join(&session, error);
        if (!status)
            status = save_make(owner_process_owner(session.process), session.session, options, stats, error);
        *made = !status;
    }
    cluster_session_close(&session);
    return status;
}
