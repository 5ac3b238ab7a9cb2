/*
 * stepper.h - a compute node that stops between two command lists, or in the middle of one, where a test says
 * so: for interleavings that are too rare to wait for.
 *
 * A fabric over the local backend, all on one thread. At the chosen list the compute node is held: the test's
 * function runs, and in it other compute nodes do whole operations; then the list goes on. Or the compute
 * node dies there: the first commands of the list are done, and nothing that it posts from then on
 * (BANYAN_EFENCED). Its locks are the test's to free (memory_node_release_locks), its memory is still there
 * to be counted.
 */
#ifndef TREE_STEPPER_H
#define TREE_STEPPER_H

#include "fabric/fabric.h"
#include "fabric/target.h"

/* Ends the test where there is no memory. fabric_close ends it. */
struct fabric *stepper_create(const struct fabric_target *const *targets, uint16_t count,
                              uint16_t compute_id);

typedef bool stepper_choice(const struct fabric_list *list, void *context);

/* Once, just before the next list that `choice` accepts is posted, act(context) is called. */
void stepper_hold(struct fabric *fabric, stepper_choice *choice, void (*act)(void *context), void *context);
/* The same, when that list was done and its answer is still away. */
void stepper_hold_answer(struct fabric *fabric, stepper_choice *choice, void (*act)(void *context),
                         void *context);
/* At the next list that `choice` accepts only the first `commands` of its commands are done. */
void stepper_kill(struct fabric *fabric, stepper_choice *choice, uint16_t commands, void *context);
/* Of the next list that `choice` accepts, a READ alone, the bytes from `from` up to `to` are fetched before
 * act(context) is called, the others afterwards; with `to` 0 all of them. Bytes behind its end do not count.
 */
void stepper_tear(struct fabric *fabric, stepper_choice *choice, uint32_t from, uint32_t to,
                  void (*act)(void *context), void *context);
/* Whether that list has come. */
bool stepper_met(const struct fabric *fabric);

#endif
