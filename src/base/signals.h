/*
 * signals.h - a thread that waits for the signals that ask a program to end, and tells it.
 *
 * For the outermost code (the command line). signals_start() must come before any other thread is started,
 * since threads inherit the mask of blocked signals. SIGPIPE is ignored from then on.
 */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

#include "base/error.h"

struct signals;

/* SIGINT and SIGTERM wait from here on; SIGPIPE is ignored. */
void signals_block(void);
/* SIGINT, SIGTERM: calls function(context, number) on the thread, once; a second such signal ends the process
 * at once. BANYAN_ENOMEM. */
int signals_start(struct signals **signals, void (*function)(void *context, int number), void *context,
                  struct error *error);
/* Ends the thread. */
void signals_stop(struct signals *signals);

#endif
