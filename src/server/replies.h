/*
 * replies.h - replies that several commands share, most of them errors, in the words of Redis 7 where Redis
 * has them.
 *
 * Called by commands on their fiber. Each function writes one complete reply.
 */
#ifndef SERVER_REPLIES_H
#define SERVER_REPLIES_H

#include "server/command.h"

/* Arguments of a "%.*s" that shows at most the first 128 bytes of a resp_argument, as Redis does. */
#define SERVER_SHOWN(argument) (int)((argument)->length < 128 ? (argument)->length : 128), (argument)->bytes

void server_reply_syntax(struct server_call *call);      /* ERR syntax error */
void server_reply_not_integer(struct server_call *call); /* ERR value is not an integer or out of range */
void server_reply_arity(struct server_call *call);       /* ERR wrong number of arguments for 'get' command */
/* ERR unknown command ... */
void server_reply_unknown(struct server_call *call);
/* ERR unknown subcommand 'x'. Try CLIENT HELP. */
void server_reply_subcommand(struct server_call *call);
/* ERR unknown subcommand or wrong number of arguments for 'x'. Try CLIENT HELP. */
void server_reply_subcommand_or_arity(struct server_call *call);
/* ERR wrong number of arguments for 'client|id' command */
void server_reply_subcommand_arity(struct server_call *call, const char *subcommand);
/* Between MULTI and EXEC: the command is refused. */
void server_reply_in_multi(struct server_call *call);
/* ERR invalid expire time in 'set' command */
void server_reply_bad_expire(struct server_call *call);
/* ERR string exceeds maximum allowed size (64MB) */
void server_reply_too_long(struct server_call *call);
/* OOM no memory for 'get' */
void server_reply_memory(struct server_call *call);
/* The error reply of a failed store call. BANYAN_EKEYSIZE names the limit; BANYAN_ENOSPC and BANYAN_ENOMEM
 * are "OOM ..."; BANYAN_ENET, BANYAN_ETIMEOUT and BANYAN_EFENCED "CLUSTERDOWN ..." with the memory node's
 * name; BANYAN_EUNKNOWN "UNKNOWN ...", which says that the write may have taken effect. */
void server_reply_failure(struct server_call *call, int status);
/* A value; NULL: no such key. */
void server_reply_value(struct server_call *call, const struct store_value *value);
/* Removes what the command has written of its reply, so that an error can be replied instead. */
void server_reply_rewind(struct server_call *call);

#endif
