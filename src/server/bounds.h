/*
 * bounds.h - ranges of keys as RANGE and its kin take them. Bounds are written as for ZRANGEBYLEX: "[key"
 * with the key itself, "(key" without it, "-" before and "+" after all keys. Pure; any thread.
 */
#ifndef SERVER_BOUNDS_H
#define SERVER_BOUNDS_H

#include "server/resp_parser.h"
#include "store/store.h"

enum bounds_verdict { BOUNDS_RANGE, BOUNDS_EMPTY, BOUNDS_INVALID };
/* BOUNDS_EMPTY: no key can lie between the bounds. The range points into the arguments. Bounds may be longer
 * than the longest key. */
enum bounds_verdict bounds_read(const struct resp_argument *low, const struct resp_argument *high,
                                struct tree_range *range);
/* All keys after `key`, or with `before` all keys before it. It need not exist. */
enum bounds_verdict bounds_beside(const struct resp_argument *key, bool before, struct tree_range *range);

#endif
