/*
 * hanging.c - a library that is put before the program's own (LD_PRELOAD): its fdatasync hangs for as long as
 * the file exists that BANYAN_HANGING names, and says so by making another one, with ".met" behind its name.
 * io_uring is refused, so that all syncs come here.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void hang(void)
{
    const char *file = getenv("BANYAN_HANGING");
    char met[4096];
    if (!file || access(file, F_OK))
        return;
    snprintf(met, sizeof met, "%s.met", file);
    const int descriptor = open(met, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (descriptor >= 0)
        close(descriptor);
    while (!access(file, F_OK))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int fdatasync(int descriptor)
{
    int (*next)(int);
    hang();
    *(void **)&next = dlsym(RTLD_NEXT, "fdatasync");
    return next(descriptor);
}

int io_uring_queue_init_params(unsigned entries, struct io_uring *ring, struct io_uring_params *parameters)
{
    (void)entries, (void)ring, (void)parameters;
    return -ENOSYS;
}
