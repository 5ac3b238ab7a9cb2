/* recover_names.c - see recover_names.h. */
#include "cli/recover_names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "owner/owner.h"

static bool is_number(const char *text, uint16_t *number)
{
    if (!*text || strspn(text, "0123456789") != strlen(text) || strlen(text) > 5)
        return false;
    const unsigned long value = strtoul(text, NULL, 10);
    *number = (uint16_t)value;
    return value > 0 && value <= UINT16_MAX;
}

int recover_names_find(const struct persist_replay *replay, const char *text, uint16_t *number,
                       struct error *error)
{
    for (uint32_t i = 1; i <= UINT16_MAX; i++) {
        const struct persist_index *index = persist_replay_index(replay, (uint16_t)i);
        if (index && !index->gone && !strcmp(index->name, text)) {
            *number = (uint16_t)i;
            return 0;
        }
    }
    if (is_number(text, number))
        return 0;
    return error_set(error, BANYAN_ENOTFOUND,
                     "index: the journals name no index '%.100s'; without --output those that they have are "
                     "shown",
                     text);
}

bool recover_names_dropped(const struct persist_replay *replay, uint16_t number)
{
    const struct persist_index *index = persist_replay_index(replay, number);
    return index && index->gone;
}

bool recover_names_live(const struct persist_replay *replay, uint16_t number)
{
    const struct persist_index *index = persist_replay_index(replay, number);
    return index && !index->gone && !owner_is_map(index->name); /* which is not logged */
}

char *recover_names_text(const struct persist_replay *replay, uint16_t number, char text[RECOVER_NAME_TEXT])
{
    const struct persist_index *index = persist_replay_index(replay, number);
    if (index)
        snprintf(text, RECOVER_NAME_TEXT, "'%s' (number %u%s)", index->name, (unsigned)number,
                 index->gone ? ", dropped" : "");
    else
        snprintf(text, RECOVER_NAME_TEXT, "%u", (unsigned)number);
    return text;
}

json_t *recover_names_json(const struct persist_replay *replay, uint16_t number, uint64_t keys,
                           uint64_t bytes)
{
    const struct persist_index *index = persist_replay_index(replay, number);
    json_t *told = json_pack("{s:I, s:I, s:I}", "index", (json_int_t)number, "keys", (json_int_t)keys,
                             "bytes", (json_int_t)bytes);
    if (!told || !index)
        return told;
    const struct format_geometry *geometry = &index->geometry;
    json_object_set_new(told, "name", json_string(index->name)); /* none where it is no UTF-8 */
    json_object_set_new(told, "dropped", json_boolean(index->gone));
    json_object_set_new(told, "geometry",
                        json_pack("{s:s, s:i, s:s, s:i, s:s, s:i, s:i, s:i}", "keys",
                                  geometry->key_kind == FORMAT_KEY_FIXED ? "fixed" : "variable", "key_bytes",
                                  (int)geometry->key_bytes, "values",
                                  geometry->content == FORMAT_CONTENT_STORE ? "records"
                                  : geometry->value_variable                ? "variable"
                                                                            : "fixed",
                                  "value_bytes", (int)geometry->value_bytes, "leaves",
                                  format_leaf_kind_names[geometry->leaf_kind], "leaf_bytes",
                                  (int)geometry->leaf_bytes, "internal_bytes", (int)geometry->internal_bytes,
                                  "inline_key_bytes", (int)geometry->inline_key_bytes));
    return told;
}
