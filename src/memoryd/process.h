/*
 * process.h - processes of clients that map the pool, by their pidfds: whether this process may kill them,
 * whether they are dead. A pidfd always means the process that it was taken for, even when its number is used
 * again. Any thread; one system call each.
 */
#ifndef MEMORYD_PROCESS_H
#define MEMORYD_PROCESS_H

#include <stdbool.h>

/* True for one that is dead already. */
bool memoryd_process_killable(int pidfd);
bool memoryd_process_dead(int pidfd);
/* SIGKILL. false: it could not be sent (and the process is not dead). */
bool memoryd_process_kill(int pidfd);

#endif
