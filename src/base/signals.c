#include "base/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/task.h"
#include "base/thread.h"

#define END_SIGNAL SIGUSR2 /* to the thread itself: signals_stop */
#define LATE_S     3       /* from the first signal on, until it is said that the process is late */
#define AGAIN_S    30      /* until it is said again */

struct signals {
    sigset_t set;
    struct thread *thread;
    struct signals_calls calls;
    void *context;
};

/* The next signal; 0: none came for so long. */
static int signal_await(const struct signals *signals, time_t seconds)
{
    int number;
    do
        number = seconds ? sigtimedwait(&signals->set, NULL, &(struct timespec){.tv_sec = seconds})
                         : sigwaitinfo(&signals->set, NULL);
    while (number < 0 && errno == EINTR);
    return number < 0 ? 0 : number;
}

static void wait_for_signals(void *argument)
{
    const struct signals *signals = argument;
    int number = signal_await(signals, 0);
    const uint64_t asked = task_now();
    if (number != END_SIGNAL)
        signals->calls.asked(signals->context, number);
    for (time_t seconds = LATE_S; number != END_SIGNAL; seconds = AGAIN_S) {
        number = signal_await(signals, seconds);
        if (number && number != END_SIGNAL)
            _exit(128 + number); /* the second signal: do not wait for an orderly end */
        if (!number && signals->calls.late)
            signals->calls.late(signals->context, task_now() - asked);
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

int signals_start(struct signals **out, const struct signals_calls *calls, void *context, struct error *error)
{
    struct signals *signals = calloc(1, sizeof *signals);
    *out = NULL;
    if (!signals)
        return error_set(error, BANYAN_ENOMEM, "no memory for the signals' thread");
    signals->calls = *calls;
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
