/*
 * flush.c - keeps the counters of processes that do not end by exit(): preloaded into every process of a
 * coverage run (scripts/coverage), part of no other build.
 *
 * The counters of gcc's coverage are written when a process exits; one that ends by _exit or SIGKILL, as the
 * tests' children do, takes them along. So _exit writes them first, and a test's SIGKILL becomes SIGNAL, on
 * which a process writes them and kills itself. A stopped process gets the real SIGKILL, as it must not go
 * on; so does, after PATIENCE_SECONDS, one whose writing hangs (the signal may have met it inside malloc).
 */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SIGNAL           (SIGRTMAX - 1)
#define PATIENCE_SECONDS 5

static void (*dump)(void); /* the program's own, NULL in one without counters */
static char stack[65536];  /* since a fiber's would be too small */

static void die(void)
{
    syscall(SYS_kill, (long)getpid(), (long)SIGKILL);
}

static void on_signal(int number __attribute__((unused)))
{
    const struct itimerspec patience = {.it_value = {.tv_sec = PATIENCE_SECONDS}};
    struct sigevent killing = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &killing, &timer) == 0)
        timer_settime(timer, 0, &patience, NULL);
    if (dump != NULL)
        dump();
    die();
}

__attribute__((constructor)) static void prepare(void)
{
    const stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
    void *found = dlsym(RTLD_DEFAULT, "__gcov_dump");
    memcpy(&dump, &found, sizeof dump);
    sigaltstack(&alternate, NULL);
    sigaction(SIGNAL, &action, NULL);
}

static bool stopped(pid_t pid)
{
    char path[64], line[512] = "", *name_end;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    name_end = strrchr(line, ')');
    return read && name_end != NULL && name_end[1] == ' ' && name_end[2] == 'T';
}

int kill(pid_t pid, int number)
{
    if (number == SIGKILL && pid > 0 && pid != getpid() && !stopped(pid))
        number = SIGNAL;
    return (int)syscall(SYS_kill, (long)pid, (long)number);
}

__attribute__((noreturn)) void _exit(int status)
{
    if (dump != NULL)
        dump();
    for (;;)
        syscall(SYS_exit_group, (long)status);
}
