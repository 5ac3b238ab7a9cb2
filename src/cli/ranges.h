/*
 * ranges.h - what the files of `banyan ranges` share: ranges.c is the command and what it changes,
 * ranges_list.c what it shows, ranges_key.c how keys are written on a command line. One thread.
 */
#ifndef CLI_RANGES_H
#define CLI_RANGES_H

#include "cli/cluster_session.h"

/* ---- ranges_key.c ---- */

/* Room for a key of FORMAT_KEY_MAX bytes as text. */
#define RANGES_KEY_TEXT (4u * FORMAT_KEY_MAX + 1)
/* Printable ASCII as it is, a backslash doubled, every other byte as \xHH. Returns text. */
char *ranges_key_format(const void *key, size_t length, char text[RANGES_KEY_TEXT]);
/* The reverse. BANYAN_EINVAL: an escape that is neither \\ nor \xHH; too long. */
int ranges_key_parse(const char *text, uint8_t key[FORMAT_KEY_MAX], size_t *length, struct error *error);

/* ---- ranges_list.c ---- */

struct ranges_list_options {
    const char *index; /* only this one's; NULL: all */
    bool json;
    bool count; /* the keys of each range: costs a walk over the leaves */
};
/* Prints every range and process. On failure the session has the message. */
int ranges_list(struct cluster_session *session, const struct ranges_list_options *options);
/* A text for a message: the processes of the board, "3 (10.0.0.7:7401), 4 (...)"; "none". */
void ranges_members_text(struct cluster_session *session, char *text, size_t size);

#endif
