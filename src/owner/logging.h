/*
 * logging.h - the log (src/log/) of a real process that takes part in the ownership of ranges: the log
 * itself, a thread that merges, and the functions by which the ownership calls the log (struct owner_log of
 * owner.h). Private to src/owner/; process.c makes it where its process is to keep a log.
 *
 * The merger has a thread of its own, so that requests, whose fibers share their workers' threads, never wait
 * behind a batch of merging; it sleeps where there is nothing to merge. Any thread; functions with a session
 * suspend and leave their message there.
 */
#ifndef OWNER_LOGGING_H
#define OWNER_LOGGING_H

#include "log/log.h"
#include "owner/owner.h"

struct owner_logging;

/* Makes the log and starts the merger. Before owner_join; the owner calls the log from then on. */
int owner_logging_open(struct owner_logging **logging, struct owner *owner, struct tree_compute *compute,
                       const struct log_options *options, struct error *error);
/* Before owner_attach, and behind owner_detach, which came to `detached`: if it could not give all ranges
 * away, what is not merged of the index stays in the log, for whoever takes the ranges over. */
int owner_logging_attach(struct owner_logging *logging, struct tree *tree, struct error *error);
void owner_logging_detach(struct owner_logging *logging, struct tree_session *session, struct tree *tree,
                          int detached);
/* The process ends: merges what is left, ends the merger, and gives the log's segments back. An error: some
 * are kept, for others to inherit. `session` may be NULL; then nothing is given back. */
int owner_logging_end(struct owner_logging *logging, struct tree_session *session);
/* Frees memory, after owner_logging_end and the sessions' last operation. NULL is ignored. */
void owner_logging_destroy(struct owner_logging *logging);

struct log *owner_logging_log(const struct owner_logging *logging);

#endif
