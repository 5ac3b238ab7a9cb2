/*
 * logs.h - which processes' logs the map of ranges needs: for `banyan check --reclaim`.
 *
 * Called by the audit (src/store/) while no compute node changes the map; does not join. Costs a scan of the
 * map.
 */
#ifndef OWNER_LOGS_H
#define OWNER_LOGS_H

#include "fabric/peers.h"
#include "tree/tree.h"

/* Sets named[i] where some range of the map names processes[i]: as its owner, as the one that is to have it,
 * or as an heir. Where nothing is certain (there is no map, or an entry of it cannot be read) all are named.
 */
int owner_logs_named(struct tree_session *session, const struct fabric_process *processes, uint32_t count,
                     bool *named);

#endif
