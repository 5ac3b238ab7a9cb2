/*
 * ledger.h - which writes of a run were acknowledged, so that what is read back afterwards can be judged: for
 * runs in which a compute node dies (fail_sim.h).
 *
 * Each write has a number, which stands in its value (workload_value's salt). A write is lost if the key
 * holds a value in the end that an acknowledged write must have replaced: one that began after the write of
 * that value had ended. A write that was never acknowledged may stand there, since nobody knows when it took
 * effect. Times are virtual, and all tasks run on one OS thread; nothing waits.
 */
#ifndef BENCH_LEDGER_H
#define BENCH_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct error;
struct ledger;

/* Shorter values have no room for a write's number. */
#define LEDGER_VALUE_LEAST 8u

/* For the loaded keys of so many slots (workloads.h). BANYAN_ENOMEM. */
int ledger_create(struct ledger **ledger, uint64_t slots, struct error *error);
void ledger_destroy(struct ledger *ledger);

/* A write that is about to begin; its salt goes into its value. 0: no memory. */
uint64_t ledger_begin(struct ledger *ledger);
/* The write with this salt, of the key in this slot, was acknowledged. */
void ledger_acknowledge(struct ledger *ledger, uint64_t salt, uint64_t slot, uint64_t begin_ns,
                        uint64_t end_ns);
/* Whether the slot's key may hold this value when no write is under way. */
bool ledger_allows(const struct ledger *ledger, uint64_t slot, const uint8_t *value, size_t length);

#endif
