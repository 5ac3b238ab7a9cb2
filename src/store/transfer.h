/*
 * transfer.h - many reads or writes in one round trip. Private to src/store/.
 */
#ifndef STORE_TRANSFER_H
#define STORE_TRANSFER_H

#include "store/session.h"

#define STORE_TRANSFER_MAX 128u
/* Room for STORE_TRANSFER_MAX commands, for the caller until its next call of store_transfer has returned.
 * NULL when memory is short. */
struct fabric_command *store_transfer_commands(struct store_session *session);
/* Executes 1 to STORE_TRANSFER_MAX READs or WRITEs to any memory nodes, in no order, in one round trip.
 * WRITEs only to blocks that no slot refers to yet, since they may be executed twice. statuses (may be NULL)
 * gets the status of each command. Data that a backend returns in place is copied into the command's buffer.
 * 0 or the first error. */
int store_transfer(struct store_session *session, struct fabric_command *commands, uint32_t count,
                   int *statuses);

#endif
