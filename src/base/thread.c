/* thread.c - see thread.h; pthreads underneath. */
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/task.h"

struct thread {
    pthread_t handle;
    struct task *task; /* made before the thread, which could not report a lack of memory */
    void (*function)(void *);
    void *argument;
};

static void *thread_main(void *argument)
{
    struct thread *thread = argument;
    task_adopt(thread->task);
    thread->function(thread->argument);
    return NULL;
}

int thread_start(struct thread **thread, void (*function)(void *), void *argument, struct error *error)
{
    struct thread *made = malloc(sizeof *made);
    struct task *task = made ? task_reserve() : NULL;
    if (!task) {
        free(made);
        return error_set(error, BANYAN_ENOMEM, "no memory for a thread");
    }
    made->task = task;
    made->function = function;
    made->argument = argument;
    int code = pthread_create(&made->handle, NULL, thread_main, made);
    if (code) {
        task_give_back(task);
        free(made);
        return error_set(error, BANYAN_ENOMEM, "cannot start a thread: %s", strerror(code));
    }
    *thread = made;
    return 0;
}

void thread_join(struct thread *thread)
{
    if (!thread)
        return;
    pthread_join(thread->handle, NULL);
    free(thread);
}

int thread_pin(unsigned number)
{
    cpu_set_t allowed;
    if (pthread_getaffinity_np(pthread_self(), sizeof allowed, &allowed))
        return BANYAN_ENOTSUP;
    unsigned wanted = number % (unsigned)CPU_COUNT(&allowed);
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed) || wanted-- > 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        return pthread_setaffinity_np(pthread_self(), sizeof one, &one) ? BANYAN_ENOTSUP : 0;
    }
    return BANYAN_ENOTSUP;
}

int thread_lower(unsigned by)
{
    const int most = 19;
    errno = 0;
    const int now = getpriority(PRIO_PROCESS, 0); /* of the thread: Linux keeps one for each */
    if (errno)
        return BANYAN_ENOTSUP;
    const int next = by < (unsigned)(most - now) ? now + (int)by : most;
    return setpriority(PRIO_PROCESS, 0, next) ? BANYAN_ENOTSUP : 0;
}
