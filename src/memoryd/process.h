/*
 * process.h - processes of mapped clients, by their pidfds: may we stop them, are they dead. A pidfd
 * stays that of the process it was taken for, even when its number is used again. Some system calls, any
 * thread.
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
