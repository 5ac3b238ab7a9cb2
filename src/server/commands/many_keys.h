/*
 * data.h - what the files of the data commands share: strings.c (the table of string commands, reading and
 * setting), splice.c (APPEND, SETRANGE), numbers.c (INCR and its kin), keys.c (the table of key commands),
 * expiry.c, keyspace.c (SCAN, KEYS, ...), ranges.c. Private to them.
 *
 * Commands run on fibers with small stacks: what is larger than a few hundred bytes goes to the heap.
 */
#ifndef SERVER_DATA_H
#define SERVER_DATA_H

#include "server/command.h"

/* Keys of one command that are looked up or written together. */
#define DATA_BATCH 16u

/* Counts for INFO's keyspace_hits and keyspace_misses. */
static inline void data_count(struct server_call *call, bool found)
{
    if (found)
        call->hits++;
    else
        call->misses++;
}
/* All of arguments[first], arguments[first + step], ... may be keys; else replies and returns false. */
bool data_keys_valid(struct server_call *call, uint32_t first, uint32_t step);
/* Takes back what was written of the reply so far, for an error instead. */
void data_rewind(struct server_call *call);
/* "... 'set' command" with the name of the command under way. */
void data_reply_bad_expire(struct server_call *call);
void data_reply_too_long(struct server_call *call);
void data_reply_memory(struct server_call *call);
/* Integers as Redis reads them, without a reply. */
bool data_integer(const void *bytes, size_t length, int64_t *value);
/* Values come in batches of STORE_MULTI_BYTES_MAX. Calls `visit` with what each of arguments[1..] holds
 * (NULL: nothing), in order, batch by batch, until it returns false. 0 or the status of the first key that
 * failed. */
int data_each(struct server_call *call, bool values,
              bool (*visit)(struct server_call *call, const struct store_value *value, void *context),
              void *context);

/* splice.c */
void append_run(struct server_call *call);
void setrange_run(struct server_call *call);
/* numbers.c */
void incr_run(struct server_call *call);
void decr_run(struct server_call *call);
void incrby_run(struct server_call *call);
void decrby_run(struct server_call *call);
void incrbyfloat_run(struct server_call *call);
/* expiry.c */
void expire_run(struct server_call *call);
void pexpire_run(struct server_call *call);
void expireat_run(struct server_call *call);
void pexpireat_run(struct server_call *call);
void persist_run(struct server_call *call);
void ttl_point(struct server_call *call, const struct store_value *value);
void pttl_point(struct server_call *call, const struct store_value *value);
void expiretime_point(struct server_call *call, const struct store_value *value);
void pexpiretime_point(struct server_call *call, const struct store_value *value);
/* keyspace.c */
void scan_run(struct server_call *call);
void keys_run(struct server_call *call);
void randomkey_run(struct server_call *call);
void flush_run(struct server_call *call);

#endif
