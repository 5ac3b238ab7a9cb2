/* await.h - waiting for those who lose a right, and ending what they can still do; see await.c. Private to
 * src/owner/, as is transfer.h, whose owner_transfer_await is in await.c. */
#ifndef OWNER_AWAIT_H
#define OWNER_AWAIT_H

#include "owner/transfer.h"

/* Fences a process that had the map's lock at every memory node, and tells the board. */
int owner_await_orphan(struct owner_transfer *transfer, struct fabric_process orphan);
/* The same of a member that is not connected to the home node, as it was on the board when that was looked
 * at. Does nothing where its read lease is not over yet, or it cannot be fenced. */
int owner_await_gone(struct owner_transfer *transfer, struct fabric_process gone, uint64_t serial);

#endif
