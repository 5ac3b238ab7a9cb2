#include "base/signals.h"

#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"

#define END_SIGNAL SIGUSR2 /* to the thread itself: signals_stop */

struct signals {
    sigset_t set;
    struct thread *thread;
    void (*function)(void *context, int number);
    void *context;
};

static void wait_for_signals(void *argument)
{
    struct signals *signals = argument;
    bool told = false;
    for (;;) {
        int number = 0;
        if (sigwait(&signals->set, &number) || number == END_SIGNAL)
            return;
        if (told)
            _exit(128 + number); /* the second signal: do not wait for an orderly end */
        told = true;
        signals->function(signals->context, number);
    }
}

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
    sigaddset(set, END_SIGNAL);
}

void signals_block(void)
{
    sigset_t set;
    signal_set(&set);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}

int signals_start(struct signals **out, void (*function)(void *context, int number), void *context,
                  struct error *error)
{
    struct signals *signals = calloc(1, sizeof *signals);
    *out = NULL;
    if (!signals)
        return error_set(error, BANYAN_ENOMEM, "no memory for the signals' thread");
    signals->function = function;
    signals->context = context;
    signal_set(&signals->set);
    int status = thread_start(&signals->thread, wait_for_signals, signals, error);
    if (status) {
        free(signals);
        return status;
    }
    *out = signals;
    return 0;
}

void signals_stop(struct signals *signals)
{
    if (!signals)
        return;
    kill(getpid(), END_SIGNAL); /* blocked everywhere: only the thread's sigwait takes it */
    thread_join(signals->thread);
    free(signals);
}
