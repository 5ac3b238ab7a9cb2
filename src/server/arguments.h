/*
 * arguments.h - what commands read out of their arguments: option names, integers, keys.
 *
 * Called by commands on their fiber. Functions that take the call reply an error themselves when they return
 * false.
 */
#ifndef SERVER_ARGUMENTS_H
#define SERVER_ARGUMENTS_H

#include "server/command.h"

/* Compares an argument with an option's name (upper case), in any case of letters. */
bool server_argument_is(const struct resp_argument *argument, const char *name);
/* Whether it is exactly this text. */
bool server_argument_equals(const struct resp_argument *argument, const char *text);
/* Whether it consists of decimal digits, at least one. */
bool server_argument_digits(const struct resp_argument *argument);
/* A decimal integer as Redis reads it: no leading zeros, blanks or plus sign. */
bool server_argument_integer(struct server_call *call, const struct resp_argument *argument, int64_t *value);
/* Whether it can be a key: not empty, and no longer than the index takes. */
bool server_argument_key(struct server_call *call, const struct resp_argument *argument);
/* The same of arguments[first], arguments[first + step], ... */
bool server_arguments_keys(struct server_call *call, uint32_t first, uint32_t step);
/* As server_argument_integer, of any bytes, and without a reply. */
bool server_integer_parse(const void *bytes, size_t length, int64_t *value);

#endif
