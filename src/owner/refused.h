/*
 * refused.h - ranges of this process's that it cannot inherit, since something of an heir's log is corrupt:
 * which, since when, and why. Their operations fail at once with the reason; all others go on. Inheriting is
 * tried again now and then, as an operator may have accepted the loss (`banyan recover`). Private to
 * src/owner/.
 *
 * Noted by the task that inherits, one at a time; asked by any. Makes no round trip.
 */
#ifndef OWNER_REFUSED_H
#define OWNER_REFUSED_H

#include "owner/state.h"

/* Refused, once more: `text` says why. Without memory the range's operations wait for their time-out. */
void owner_refused_note(struct owner *owner, const struct owner_piece *piece, const char *text);
/* It was inherited. */
void owner_refused_end(struct owner *owner, const struct owner_piece *piece);
/* Whether it is too early to try again. */
bool owner_refused_wait(struct owner *owner, const struct owner_piece *piece);
/* For an operation of the index that has met a range that is MOVING: BANYAN_ECORRUPT and the reason, if that
 * range was refused; else 0. */
int owner_refused_tell(struct owner *owner, struct tree_session *session, const struct tree *tree);
void owner_refused_destroy(struct owner *owner);

#endif
