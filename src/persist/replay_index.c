/* replay_index.c - records that name indexes (replay_private.h): of each index what stands last. */
#include <stdlib.h>
#include <string.h>

#include "persist/replay_private.h"

static int begin_anew(struct persist_replay *replay)
{
    for (uint32_t i = 0; i < REPLAY_INDEXES; i++)
        if (replay->indexes[i])
            replay->indexes[i]->index.gone = true;
    return 0;
}

/* One that was dropped keeps its name, for who asks what its keys are. */
static int named(struct persist_replay *replay, const struct persist_index *index, struct error *error)
{
    struct replay_index **place = &replay->indexes[index->number];
    if (!*place && index->gone)
        return 0; /* it was named in a part of the journal that is gone */
    if (!*place)
        *place = calloc(1, sizeof **place);
    if (!*place)
        return error_set(error, BANYAN_ENOMEM, "no memory for the name of an index");
    if (index->gone) {
        (*place)->index.gone = true;
        return 0;
    }
    (*place)->index = *index;
    memcpy((*place)->name, index->name, index->name_length);
    (*place)->name[index->name_length] = 0;
    (*place)->index.name = (*place)->name;
    return 0;
}

int replay_index_take(struct persist_replay *replay, const struct journal_record *record, struct error *error)
{
    struct persist_index index;
    if (!persist_index_decode(record->bytes, record->length, &index))
        return error_set(error, BANYAN_ECORRUPT, "what names an index makes no sense");
    if (replay->disk != replay->names_disk)
        return 0; /* another copy of the same names, which may be an older one */
    if (!replay->indexes)
        replay->indexes = calloc(REPLAY_INDEXES, sizeof(struct replay_index *));
    if (!replay->indexes)
        return error_set(error, BANYAN_ENOMEM, "no memory for the names of indexes");
    return index.number ? named(replay, &index, error) : begin_anew(replay);
}

void replay_indexes_free(struct persist_replay *replay)
{
    for (uint32_t i = 0; replay->indexes && i < REPLAY_INDEXES; i++)
        free(replay->indexes[i]);
    free(replay->indexes);
}

const struct persist_index *persist_replay_index(const struct persist_replay *replay, uint16_t number)
{
    const struct replay_index *found = replay->indexes ? replay->indexes[number] : NULL;
    return found ? &found->index : NULL;
}
