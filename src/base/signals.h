/*
 * signals.h - a thread that waits for the signals that ask a program to end, and tells it.
 *
 * For the outermost code (the command line). signals_start() must come before any other thread is started,
 * since threads inherit the mask of blocked signals. SIGPIPE is ignored from then on.
 */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

#include <stdint.h>

#include "base/error.h"

struct signals;

/* SIGINT and SIGTERM wait from here on; SIGPIPE is ignored. */
void signals_block(void);
/* What the thread calls. */
struct signals_calls {
    void (*asked)(void *context, int number);        /* SIGINT, SIGTERM: once */
    void (*late)(void *context, uint64_t waited_ns); /* NULL: nothing; the process has not ended since then: 3
                                                        s after it was asked, and every 30 s behind that */
};
/* A second such signal ends the process at once. BANYAN_ENOMEM. */
int signals_start(struct signals **signals, const struct signals_calls *calls, void *context,
                  struct error *error);
/* Ends the thread. */
void signals_stop(struct signals *signals);

#endif
