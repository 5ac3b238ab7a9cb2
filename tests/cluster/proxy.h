/*
 * proxy.h - stands between a compute node and a memory node, on TCP, or before a Unix socket at which a
 * compute node answers others, and does to their connections what networks do: cuts them, holds their bytes
 * back and delivers them late, slows them, hands them on in small pieces.
 *
 * One thread of its own. Calls from the scene's thread; proxy_cut returns when it is done.
 */
#ifndef TESTS_CLUSTER_PROXY_H
#define TESTS_CLUSTER_PROXY_H

#include <stdbool.h>
#include <stdint.h>
#include "net/net.h"

struct proxy;
struct proxy *proxy_start(const struct net_address *to);
/* In the place of the Unix socket at `path`, at which a process listens: that is renamed to "path.real". A
 * process that comes later must listen there anew, and gets a proxy of its own. */
struct proxy *proxy_start_before(const char *path);
struct net_address proxy_address(const struct proxy *proxy);
void proxy_cut(struct proxy *proxy);
/* While it is held no byte moves, and no end of a connection either; then all do, late. */
void proxy_hold(struct proxy *proxy, bool hold);
/* Bytes arrive so much later. */
void proxy_delay(struct proxy *proxy, uint32_t ms);
/* From now on bytes go in pieces of at most `piece` bytes (0: whole), at `rate` bytes a millisecond in each
 * direction of a connection (0: no limit), each up to `jitter_us` after the one before. Where much waits,
 * pieces are at most a 64th of it: so no message needs more than some hundred. No network delivers 256 KiB in
 * 40,000 pieces, each of which wakes its reader; on a busy machine that took seconds, and the test judged
 * nothing but the machine. */
void proxy_shape(struct proxy *proxy, uint32_t piece, uint32_t rate, uint32_t jitter_us);
void proxy_stop(struct proxy *proxy);

#endif
