/* peer_runners.h - the `run` of ways in real time (conformance_peers.h): tasks as plain threads, or as
 * fibers, those of a compute node on one worker. Whatever cannot be started aborts the test. */
#ifndef TESTS_FABRIC_PEER_RUNNERS_H
#define TESTS_FABRIC_PEER_RUNNERS_H

#include "conformance_peers.h"

void conformance_peers_on_threads(void *context, const struct conformance_task *tasks, unsigned count);
void conformance_peers_on_fibers(void *context, const struct conformance_task *tasks, unsigned count);

#endif
