/*
 * bounds.h - ranges of keys as RANGE and its kin take them: bounds written as for ZRANGEBYLEX, "[key" with
 * the key itself, "(key" without it, "-" before and "+" behind all keys. Pure; any thread.
 */
#ifndef SERVER_BOUNDS_H
#define SERVER_BOUNDS_H

#include "server/resp_parser.h"
#include "store/store.h"

enum bounds_verdict { BOUNDS_RANGE, BOUNDS_EMPTY, BOUNDS_INVALID };
/* BOUNDS_EMPTY: no key can lie between them. The range points into the arguments. Bounds may be longer than
 * keys can be. */
enum bounds_verdict bounds_read(const struct resp_argument *low, const struct resp_argument *high,
                                struct tree_range *range);
/* All keys behind `key` (`before`: before it), which need not be one. */
enum bounds_verdict bounds_beside(const struct resp_argument *key, bool before, struct tree_range *range);

#endif
