/*
 * subject_api.h - the public library, in whatever process, as a driver's subject (swarm/subject.h).
 *
 * The session is a struct subject_api, of one thread. On an index of records the library has no operations
 * that decide under a lock but insert, update and compare-and-set and its modify, which it offers there too:
 * all kinds are used.
 */
#ifndef TESTS_CLUSTER_SUBJECT_API_H
#define TESTS_CLUSTER_SUBJECT_API_H

#include <banyan.h>
#include "swarm/subject.h"

struct subject_api {
    struct banyan_session *session;
    struct banyan_index *index;
};

extern const struct subject_ops subject_api;

#endif
