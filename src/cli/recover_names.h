/*
 * recover_names.h - the indexes that journals name (persist/replay.h), as `banyan recover --data` shows and
 * takes them. Behind the reading of the journals; one thread.
 */
#ifndef CLI_RECOVER_NAMES_H
#define CLI_RECOVER_NAMES_H

#include <jansson.h>

#include "persist/replay.h"

/* The index of this name that was not dropped, or else of this number. BANYAN_ENOTFOUND: there is none. */
int recover_names_find(const struct persist_replay *replay, const char *text, uint16_t *number,
                       struct error *error);
/* Whether it is named, and was dropped; and was not. Neither: the journals do not name it. */
bool recover_names_dropped(const struct persist_replay *replay, uint16_t number);
bool recover_names_live(const struct persist_replay *replay, uint16_t number);
/* "'orders' (number 2)", "3", and so on. Returns the text. */
#define RECOVER_NAME_TEXT 320u
char *recover_names_text(const struct persist_replay *replay, uint16_t number, char text[RECOVER_NAME_TEXT]);
/* An object with all that is known of it. NULL: no memory. */
json_t *recover_names_json(const struct persist_replay *replay, uint16_t number, uint64_t keys,
                           uint64_t bytes);

#endif
