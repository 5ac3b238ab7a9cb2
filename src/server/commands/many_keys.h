/*
 * many_keys.h - reading the keys of one command (MGET, EXISTS, BITOP, ...) in batches, so that their round
 * trips overlap. On the command's fiber.
 */
#ifndef SERVER_COMMANDS_MANY_KEYS_H
#define SERVER_COMMANDS_MANY_KEYS_H

#include "server/command.h"

/* Keys of one command that are read or written together. */
#define MANY_KEYS_BATCH 16u

/* Calls `visit` with what each of arguments[first..] holds (NULL: nothing), in order, until it returns false.
 * With `values` it gets the bytes, else length and expiry alone. A batch's values may have
 * STORE_MULTI_BYTES_MAX. Returns 0, or the status of the first key that failed. */
int many_keys_each(struct server_call *call, uint32_t first, bool values,
                   bool (*visit)(struct server_call *call, const struct store_value *value, void *context),
                   void *context);

#endif
