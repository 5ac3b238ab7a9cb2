/* runners.h - the `run` of backends in real time (conformance.h): tasks as plain threads, or as the fibers of
 * two workers. Whatever cannot be started aborts the test. */
#ifndef TESTS_FABRIC_RUNNERS_H
#define TESTS_FABRIC_RUNNERS_H

#include "conformance.h"

void conformance_run_threads(void *context, struct fabric *fabric, void (*const *functions)(void *),
                             void *const *arguments, unsigned count);
void conformance_run_fibers(void *context, struct fabric *fabric, void (*const *functions)(void *),
                            void *const *arguments, unsigned count);

#endif
