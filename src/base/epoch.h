/*
 * epoch.h - epoch-based reclamation: readers of shared memory never block, and what was unlinked is freed
 * when no reader can still have it.
 *
 * A domain has a fixed number of slots, one per OS thread (or per simulated worker) that reads.
 * Between epoch_enter and epoch_leave a task must not suspend. epoch_retire() may be called inside
 * or outside a section by the slot's owner; the callback runs later, on the same slot's thread.
 */
#ifndef BASE_EPOCH_H
#define BASE_EPOCH_H

#include <stdbool.h>
#include <stdint.h>

struct epoch_domain;
struct epoch_slot;

struct epoch_domain *epoch_domain_create(void);
/* Runs every callback still pending. No slot may be in a section. */
void epoch_domain_destroy(struct epoch_domain *domain);
/* One per reading thread; NULL when memory is short. */
struct epoch_slot *epoch_slot_acquire(struct epoch_domain *domain);
/* Pending callbacks pass to the domain. */
void epoch_slot_release(struct epoch_slot *slot);
/* Sections of one slot may nest. */
void epoch_enter(struct epoch_slot *slot);
void epoch_leave(struct epoch_slot *slot);
/* False: there is no memory for the entry, and the callback will never run. */
bool epoch_retire(struct epoch_slot *slot, void (*callback)(void *object, void *context), void *object,
                  void *context);

#endif
