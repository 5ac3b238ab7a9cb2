/*
 * wrapper.h - a fabric around another one, in which a test decides what becomes of each list: what the
 * compute nodes have in common that a test holds, cuts off or looks into (stepper.c, rig.c, test_lost.c,
 * test_delegate.c). The test's thread.
 *
 * Such a fabric is malloc'ed and begins with a struct wrapper. Its fabric_ops are made of the functions here
 * and of those that it does otherwise.
 */
#ifndef TREE_WRAPPER_H
#define TREE_WRAPPER_H

#include "fabric/fabric.h"

struct wrapper {
    struct fabric fabric; /* first */
    struct fabric *inner; /* owned */
    uint64_t incarnation; /* begins with 1 */
    /* Passes a list on, or does not; returns the list's status. */
    int (*run)(struct fabric_endpoint *endpoint, struct fabric_list *list);
};

/* Takes the inner fabric and its capabilities; but READs are never answered in place. */
void wrapper_init(struct wrapper *wrapper, const struct fabric_ops *ops,
                  int (*run)(struct fabric_endpoint *endpoint, struct fabric_list *list),
                  struct fabric *inner);
/* Executes the first `count` commands of a list in the inner fabric, in any incarnation; returns the status.
 * What a backend leaves in place is copied into the READs' buffers. */
int wrapper_pass(struct fabric_endpoint *endpoint, const struct fabric_list *list, uint16_t count);

/* ---- for fabric_ops ---- */

int wrapper_execute(struct fabric_endpoint *endpoint, struct fabric_list *const *lists, uint32_t count);
int wrapper_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                 void *reply, size_t capacity, size_t *reply_length);
struct fabric_endpoint *wrapper_endpoint_open(struct fabric *fabric, struct error *error);
void wrapper_endpoint_close(struct fabric_endpoint *endpoint);
void wrapper_close(struct fabric *fabric);
uint64_t wrapper_incarnation(const struct fabric *fabric);

#endif
