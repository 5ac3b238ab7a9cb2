/*
 * unkept.h - clusters whose memory nodes keep on their disks what owners log: what is written to a range that
 * nobody owns, or whose owner keeps no log, would be acknowledged and come to no disk. So nobody changes such
 * a range (`unkept` of tree/rights.h); its changes wait until an owner with a log has taken it, and fail with
 * a sentence that says what to do. Private to src/owner/. Makes no round trip.
 *
 * Whether memory nodes do so is asked of their connections each time a map is installed; elsewhere nothing of
 * this counts.
 */
#ifndef OWNER_UNKEPT_H
#define OWNER_UNKEPT_H

#include "owner/state.h"

/* Sets `unkept` of the range's row, which owner_map_row has made. */
void owner_unkept_row(const struct owner *owner, const struct format_range *range,
                      struct tree_rights_row *row);
/* Whether the settled range is nobody's, and somebody has to take it, shared on purpose or not. */
bool owner_unkept_nobodys(const struct owner *owner, const struct format_range *range);
/* Whether the settled range is this process's, which keeps no log: it is to be given back. */
bool owner_unkept_mine(const struct owner *owner, const struct format_range *range);
/* Whether the adopted map has something that this process is to take at once, since changes may wait for it.
 * Takes the turn `adopting`. */
bool owner_unkept_some(struct owner *owner);
/* 0, or BANYAN_ENOTSUP: ranges cannot go to this process, or become shared (zeros). `logs`: it keeps a log.
 */
int owner_unkept_allow(const struct owner *owner, struct tree_session *session, struct fabric_process to,
                       bool logs);
/* BANYAN_ENET: a change has waited for too long. `peer`: whose range it is, which keeps no log; zeros: it is
 * nobody's. */
int owner_unkept_fail(const struct owner *owner, struct tree_session *session, const struct tree *tree,
                      struct fabric_process peer);

#endif
