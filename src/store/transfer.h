/*
 * transfer.h - many reads or writes in one round trip. Private to src/store/.
 */
#ifndef STORE_TRANSFER_H
#define STORE_TRANSFER_H

#include "store/session.h"

#define STORE_TRANSFER_MAX 128u
/* Executes READs or WRITEs of any memory nodes, in no order, in one round trip (1 to STORE_TRANSFER_MAX of
 * them; WRITEs to blocks alone that nobody else knows of: they may be done twice). statuses (may be NULL)
 * gets each one's. What a direct fabric returns in place has been copied into the buffer. 0 or the first
 * error. */
int store_transfer(struct store_session *session, struct fabric_command *commands, uint32_t count,
                   int *statuses);

#endif
