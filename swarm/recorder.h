/*
 * recorder.h - writes down what happens in a run (recording.h). The parent makes a recording, runs with
 * recorder_watch in a child process, and reads the recording when the child is gone. The recorder sees
 * operations through the drivers and commands through sim_observe, and changes nothing. One thread; it aborts
 * where the process has no memory.
 */
#ifndef SWARM_RECORDER_H
#define SWARM_RECORDER_H

#include "swarm/recording.h"

/* The watch of a run to be recorded. */
struct swarm_watch recorder_watch(struct recording *recording);

#endif
