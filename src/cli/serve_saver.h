/*
 * serve_saver.h - the part of `banyan compute` in a cluster's checkpoints: a thread that makes one when a
 * memory node wants it, and when a client asks for it (BGSAVE). Of a cluster's compute nodes whichever comes
 * first makes it. Only where all memory nodes keep a journal.
 *
 * Costs a call of each memory node every 10 to 20 s, and connections of its own while one is made.
 */
#ifndef CLI_SERVE_SAVER_H
#define CLI_SERVE_SAVER_H

#include "base/thread.h"
#include "cli/serve_settings.h"
#include "server/saves.h"
#include "tree/tree.h"

struct serve_saver;

/* *saver stays NULL where nothing is kept on disks. The settings and the compute node are borrowed. */
int serve_saver_start(struct serve_saver **saver, struct tree_compute *compute,
                      const struct serve_settings *settings, struct error *error);
/* Gives up a checkpoint that is under way, and ends the thread. NULL: does nothing. */
void serve_saver_stop(struct serve_saver *saver);
void serve_saver_destroy(struct serve_saver *saver);
/* For struct server_options, with the saver as the context. */
int serve_saver_begin(void *context, struct error *error);
void serve_saver_look(void *context, struct server_saves *saves);

#endif
