/* local.h - the `local` backend in one process: lists run at once on the calling thread, on CPU atomics. */
#ifndef FABRIC_LOCAL_H
#define FABRIC_LOCAL_H

#include "fabric/fabric.h"

/* targets[i] is memory node i; they must outlive the fabric. */
struct fabric *fabric_local_create(const struct fabric_target *const *targets, uint16_t count,
                                   uint16_t compute_id, struct error *error);

#endif
