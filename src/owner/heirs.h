/*
 * heirs.h - what this process has logged of ranges, and what it inherits of others' logs (owner.h, struct
 * owner_log; docs/internals/ownership.md, Ranges with a log). Private to src/owner/.
 *
 * A range of this process's that has heirs is MOVING here until this process has inherited. Then it serves
 * the range, and takes the heirs off the map's entry. A process that keeps no log, or finds the list of heirs
 * full, takes them off first: while they are named it has served nothing, so its own log, or what it has
 * written through, need not be thought of by whoever owns the range next.
 */
#ifndef OWNER_HEIRS_H
#define OWNER_HEIRS_H

#include "owner/state.h"

/* ---- under `adopting` ---- */

/* Whether this process may serve its range, which has heirs and ends at `upper` (NULL: with the index). */
bool owner_heirs_ready(const struct owner *owner, const struct format_range *range,
                       const struct format_range *upper);
/* The copy of the map was installed in all attached indexes, and no operation relies on what it took away;
 * `before`: the copy before. Flushes what must be merged before the version is reported, disowns what is
 * gone. An error: the version may not be reported. */
int owner_heirs_adopted(struct owner *owner, struct tree_session *session, const struct owner_map *before);
/* Whether the moving range, which ends at `upper`, was to be merged by this process, and cannot be any more:
 * the process has lost a connection, so it may have been fenced, since it had the right to it. */
bool owner_heirs_overdue(const struct owner *owner, const struct format_range *range,
                         const struct format_range *upper);
/* The index is to be detached with ranges that could not be given away: what the log has of them is merged by
 * whoever inherits it. */
int owner_heirs_strand(struct owner *owner, struct tree_session *session, uint16_t number);

/* ---- under no turn ---- */

/* Whether this process has to inherit, or to take heirs off. Any thread. */
static inline bool owner_heirs_pending(const struct owner *owner)
{
    return atomic_load_relaxed(&owner->heirs_pending); /* a hint: the keeper looks again at each tick */
}
/* Inherits what is to be inherited, and takes heirs off; what cannot be done now is left to the next call. */
int owner_heirs_step(struct owner *owner, struct tree_session *session);
/* Waits, for as long as the time-out at most, until no range that this process knows has heirs while its
 * owner lives; then a change that needs ranges without heirs can be tried. */
int owner_heirs_await(struct owner *owner, struct tree_session *session);

/* ---- ranges that this process has taken since no other could inherit them ---- */

int owner_heirs_lend(struct owner *owner, struct tree_session *session, uint64_t epoch);
/* Under `adopting`. */
bool owner_heirs_lent(const struct owner *owner, uint64_t epoch);
/* Under `adopting`. Whether the log has changes of the index, which is not attached any more. */
bool owner_heirs_stranded(const struct owner *owner, uint16_t number);

void owner_heirs_destroy(struct owner *owner);

#endif
