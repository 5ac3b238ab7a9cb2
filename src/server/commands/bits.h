/*
 * bits.h - what the commands about bits share. On fibers.
 */
#ifndef SERVER_COMMANDS_BITS_H
#define SERVER_COMMANDS_BITS_H

#include "server/command.h"

/* Bits of longer values are refused, as Redis does by default. Values here are shorter, which the store says.
 */
#define BITS_VALUE_MAX (INT64_C(512) << 20)

/* The number of a bit. With a width (not 0), `#2` is twice that. Replies an error and returns false. */
bool bits_offset(struct server_call *call, const struct resp_argument *argument, unsigned width,
                 int64_t *offset);

#endif
