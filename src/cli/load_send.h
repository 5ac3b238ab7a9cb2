/*
 * load_send.h - sends commands to a server, many on their way at once, and hears the answers in their order.
 * For load.c; one thread.
 */
#ifndef CLI_LOAD_SEND_H
#define CLI_LOAD_SEND_H

#include <stdbool.h>
#include <stdint.h>
#include "cli/client.h"

#define LOAD_WINDOW       1024u /* commands on their way */
#define LOAD_WINDOW_BYTES ((size_t)4 << 20)
#define LOAD_WAIT_SECONDS 30u

/* A command that was sent and not answered yet. */
struct load_command {
    char *bytes; /* owned, by hiredis's allocator: as it goes over the wire, for another try */
    size_t length;
    uint64_t position; /* in the file, for messages */
    bool again;        /* it may be sent anew */
};

struct load_sender {
    redisContext *connection; /* NULL: nothing is sent, and every command counts as done */
    struct load_command window[LOAD_WINDOW];
    uint32_t first, count;
    size_t bytes;        /* of the window's commands */
    uint64_t done, kept; /* commands that took effect, and those that were to keep a key that exists */
    uint64_t retries;
    uint64_t answered_at; /* when a command took effect last */
};

/* `again`: the command means the same when it is sent twice and behind later ones, so it is sent anew where
 * the server could not say or do it (CLUSTERDOWN, UNKNOWN), for up to LOAD_WAIT_SECONDS without any success.
 * Else, and for any other refusal, BANYAN_ENET, with the place in the file. May wait for answers. */
int load_send(struct load_sender *sender, int count, const char *const *arguments, const size_t *lengths,
              uint64_t position, bool again, struct error *error);
/* All commands are answered. */
int load_finish(struct load_sender *sender, struct error *error);
void load_sender_close(struct load_sender *sender);

#endif
