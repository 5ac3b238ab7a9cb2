/* process.c - see process.h. */
#include "memoryd/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool process_signal(int pidfd, int number)
{
    return pidfd >= 0 && (syscall(SYS_pidfd_send_signal, pidfd, number, NULL, 0u) == 0 || errno == ESRCH);
}

bool memoryd_process_killable(int pidfd)
{
    return process_signal(pidfd, 0);
}

bool memoryd_process_dead(int pidfd)
{
    /* Readable when the last of its threads is gone. */
    struct pollfd look = {.fd = pidfd, .events = POLLIN};
    return pidfd >= 0 && poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0;
}

bool memoryd_process_kill(int pidfd)
{
    return process_signal(pidfd, SIGKILL);
}
