/*
 * evacuate.h - a compute node's side of emptying sparse chunks: a memory node names chunks of which little is
 * in use and keeps their free space from being handed out; the caller then moves what lies in them elsewhere
 * (a rewrite of each record, piece and key block that pool_evacuation_holds names, by the ordinary exchange),
 * and ends it.
 *
 * The memory node forgets the marks by itself POOL_EVACUATION_MS after the last renewal, and when the compute
 * node is fenced, so a caller that dies costs nothing for long. Handing out space of such chunks is the
 * memory node's last resort before BANYAN_ENOSPC: then a renewal says that there are fewer of them.
 *
 * One task at a time for one evacuation. Begin, renew and end cost one RPC a memory node; `holds` a binary
 * search.
 */
#ifndef POOL_EVACUATE_H
#define POOL_EVACUATE_H

#include "pool/pool.h"

struct pool_evacuation;

#define POOL_EVACUATION_MS 60000u

/* Asks every memory node. *evacuation is NULL when there is nothing worth emptying, or when it fails:
 * BANYAN_ENOMEM, or an error of the network if no memory node answers. */
int pool_evacuation_begin(struct pool_session *session, struct pool_evacuation **evacuation);
/* Chunks that are being emptied now. */
uint32_t pool_evacuation_chunks(const struct pool_evacuation *evacuation);
/* Whether some byte of the block that begins at `block` lies in such a chunk. Of NULL: false. */
bool pool_evacuation_holds(const struct pool_evacuation *evacuation, gaddr block);
/* At least once in POOL_EVACUATION_MS / 2. Chunks that the memory node does not keep back any more (because
 * they are empty, or because space was short) leave the evacuation. */
int pool_evacuation_renew(struct pool_session *session, struct pool_evacuation *evacuation);
/* The memory node hands their space out again. `tried`: everything in the chunks was tried, so those that
 * could not be emptied are left alone until they have changed; else they may be chosen again at once. Frees
 * the evacuation whatever the status is. NULL is ignored. */
int pool_evacuation_end(struct pool_session *session, struct pool_evacuation *evacuation, bool tried);

#endif
