/* checkpoint.c - see checkpoint.h. */
#include "persist/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/archive.h"
#include "base/crc32c.h"

#define CHUNK_BYTES (UINT32_C(1) << 20)

struct persist_checkpoint {
    struct persist_checkpoint_source source;
    struct persist_table table;
    struct disk **chosen; /* owned: of each part the directory that has it whole; NULL: it is lost */
    uint8_t *chunk;       /* owned */
};

/* ---- which one counts ---- */

uint64_t persist_checkpoint_choose(const struct persist_checkpoint_claim *claims, uint16_t count)
{
    uint64_t number = 0;
    for (uint16_t i = 0; i < count; i++)
        if (claims[i].there && claims[i].committed > number)
            number = claims[i].committed;
    return number;
}

bool persist_checkpoint_counts(const struct persist_checkpoint_claim *claims, uint16_t count, uint64_t number)
{
    bool all = true, one = false;
    for (uint16_t i = 0; i < count; i++) {
        one |= claims[i].committed == number;
        all &= claims[i].prepared == number;
    }
    return one || all;
}

int persist_checkpoint_judge(const struct persist_table *table, const struct persist_checkpoint_claim *claims,
                             uint16_t count, struct error *error)
{
    for (uint16_t i = 0; i < count; i++)
        if (claims[i].there && claims[i].committed != table->number && claims[i].prepared != table->number &&
            !persist_table_left(table, claims[i].node) && !persist_table_unaware(table, claims[i].node))
            return error_set(error, BANYAN_ECORRUPT,
                             "memory node %" PRIu32 " does not have checkpoint %" PRIu64
                             ", which counts on another one: its directory is an older copy",
                             claims[i].node, table->number);
    return 0;
}

/* ---- the files ---- */

static int file_open(struct disk *disk, uint64_t number, uint32_t part, struct disk_file **file,
                     uint64_t *bytes, struct error *error)
{
    char name[PERSIST_PART_NAME];
    persist_part_name(name, number, part);
    int status = disk_open(disk, name, file, error);
    return status ? status : disk_size(*file, bytes, error);
}

/* Whether the directory's copy of the part is what it was when it was made. */
static int part_check(struct persist_checkpoint *checkpoint, struct disk *disk, uint32_t number,
                      struct error *error)
{
    const struct persist_table_part *part = &checkpoint->table.parts[number];
    struct disk_file *file = NULL;
    uint64_t bytes = 0;
    uint32_t check = 0;
    int status = file_open(disk, checkpoint->source.number, number, &file, &bytes, error);
    for (uint64_t at = 0; !status && at < bytes && bytes == part->bytes;) {
        size_t got;
        status = disk_read(file, at, checkpoint->chunk, CHUNK_BYTES, &got, error);
        check = crc32c(check, checkpoint->chunk, got);
        at += got;
        if (!status && !got)
            break;
    }
    if (!status && (bytes != part->bytes || check != part->check))
        status =
            error_set(error, BANYAN_ECORRUPT,
                      "%.100s/%.47s: the %" PRIu64 " bytes of a checkpoint's part are not those that were "
                      "written",
                      disk_path(disk), disk_file_name(file), bytes);
    disk_file_close(file);
    return status;
}

static struct disk *disk_of(const struct persist_checkpoint *checkpoint, uint16_t node)
{
    return node < checkpoint->source.count ? checkpoint->source.disks[node] : NULL;
}

/* A copy of the part that is whole. */
static int part_choose(struct persist_checkpoint *checkpoint, uint32_t number, struct error *error)
{
    const struct persist_table_part *part = &checkpoint->table.parts[number];
    const uint16_t nodes[] = {part->node, part->second};
    int status =
        error_set(error, BANYAN_ECORRUPT,
                  "part %" PRIu32 " of checkpoint %" PRIu64 " is on memory node %u, whose directory is "
                  "not there",
                  number, checkpoint->source.number, (unsigned)part->node);
    for (unsigned i = 0; i < 2 && status; i++) {
        struct disk *disk = disk_of(checkpoint, nodes[i]);
        if (!disk)
            continue;
        status = part_check(checkpoint, disk, number, error);
        checkpoint->chosen[number] = status ? NULL : disk;
    }
    if (!status || !checkpoint->source.lost)
        return status;
    checkpoint->source.lost(checkpoint->source.context, error->text);
    return 0;
}

static int table_read(struct persist_checkpoint *checkpoint, struct disk *disk, struct error *error)
{
    struct disk_file *file = NULL;
    uint64_t bytes = 0;
    size_t got = 0;
    uint8_t *table = NULL;
    char where[160] = "";
    int status = file_open(disk, checkpoint->source.number, PERSIST_PART_TABLE, &file, &bytes, error);
    if (!status)
        snprintf(where, sizeof where, "%.100s/%.47s", disk_path(disk), disk_file_name(file));
    if (!status && bytes > PERSIST_TABLE_MOST)
        status = error_set(error, BANYAN_ECORRUPT, "%s has %" PRIu64 " bytes, more than any can have", where,
                           bytes);
    if (!status) {
        table = malloc(bytes + 1);
        status = table ? disk_read(file, 0, table, (size_t)bytes, &got, error)
                       : error_set(error, BANYAN_ENOMEM, "no memory for %s", where);
    }
    if (!status)
        status = persist_table_decode(&checkpoint->table, table, got, where, error);
    if (!status && checkpoint->table.number != checkpoint->source.number) {
        persist_table_free(&checkpoint->table);
        status = error_set(error, BANYAN_ECORRUPT, "%s is the table of another checkpoint", where);
    }
    free(table);
    disk_file_close(file);
    return status;
}

int persist_checkpoint_open(struct persist_checkpoint **checkpoint,
                            const struct persist_checkpoint_source *source, struct error *error)
{
    struct persist_checkpoint *made = calloc(1, sizeof *made);
    int status = error_set(error, BANYAN_ECORRUPT, "no directory has the table of checkpoint %" PRIu64,
                           source->number);
    *checkpoint = NULL;
    if (!made)
        return error_set(error, BANYAN_ENOMEM, "no memory for a checkpoint");
    made->source = *source;
    made->chunk = malloc(CHUNK_BYTES);
    for (uint16_t i = 0; i < source->count && status; i++)
        if (source->disks[i])
            status = table_read(made, source->disks[i], error);
    if (!status)
        status = persist_checkpoint_judge(&made->table, source->claims, source->claim_count, error);
    if (!status && source->enough)
        status = source->enough(source->context, &made->table, error);
    if (!status)
        made->chosen = calloc(made->table.part_count + 1u, sizeof(struct disk *));
    if (!status && (!made->chosen || !made->chunk))
        status = error_set(error, BANYAN_ENOMEM, "no memory for a checkpoint");
    for (uint32_t i = 0; !status && i < made->table.part_count; i++)
        status = part_choose(made, i, error);
    if (status)
        persist_checkpoint_close(made);
    else
        *checkpoint = made;
    return status;
}

void persist_checkpoint_close(struct persist_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    persist_table_free(&checkpoint->table);
    free(checkpoint->chosen);
    free(checkpoint->chunk);
    free(checkpoint);
}

const struct persist_table *persist_checkpoint_table(const struct persist_checkpoint *checkpoint)
{
    return &checkpoint->table;
}

/* ---- telling ---- */

struct telling {
    struct persist_replay *replay;
    persist_replay_visit *visit;
    void *context;
    uint16_t index; /* of the part that is read */
};

static int order(uint16_t index, struct format_key key, const struct persist_replay_key *other)
{
    if (index != other->index)
        return index < other->index ? -1 : 1;
    return format_key_compare(key, (struct format_key){other->key, (uint32_t)other->key_length});
}

/* The replay's keys before this one; *same: the replay has this one too. `key` NULL: before those of the
 * index.
 */
static int replay_tell(struct telling *telling, uint16_t index, const struct format_key *key, bool *same,
                       struct error *error)
{
    struct persist_replay_key next;
    int status = 0;
    *same = false;
    while (!status && persist_replay_peek(telling->replay, &next)) {
        const int before = key ? order(index, *key, &next) : next.index < index ? 1 : -1;
        if (before < 0)
            break;
        *same = before == 0;
        if (next.present) {
            struct archive_entry entry;
            status = persist_replay_take(telling->replay, &entry, error);
            if (!status)
                status = telling->visit(telling->context, next.index, &entry, error);
        } else {
            persist_replay_skip(telling->replay);
        }
        if (*same)
            break;
    }
    return status;
}

static int entry_tell(void *context, const struct archive_entry *entry, struct error *error)
{
    struct telling *telling = context;
    const struct format_key key = {entry->key, (uint32_t)entry->key_length};
    bool same;
    int status = replay_tell(telling, telling->index, &key, &same, error);
    return status || same ? status : telling->visit(telling->context, telling->index, entry, error);
}

struct part_reader {
    struct disk_file *file;
    uint64_t at;
};

static int part_bytes(void *context, void *buffer, size_t length, size_t *got, struct error *error)
{
    struct part_reader *reader = context;
    int status = disk_read(reader->file, reader->at, buffer, length, got, error);
    reader->at += status ? 0 : *got;
    return status;
}

static int part_tell(const struct persist_checkpoint *checkpoint, uint32_t number, struct telling *telling,
                     struct error *error)
{
    const struct persist_table_part *part = &checkpoint->table.parts[number];
    struct part_reader reader = {.at = 0};
    struct archive_totals totals = {0};
    struct source source = {0};
    uint64_t bytes;
    if (!checkpoint->chosen[number])
        return 0;
    int status =
        file_open(checkpoint->chosen[number], checkpoint->source.number, number, &reader.file, &bytes, error);
    if (!status) {
        telling->index = part->index;
        source_function(&source, disk_file_name(reader.file), part_bytes, &reader);
        status = archive_read(&source, entry_tell, telling, &totals, error);
        source_close(&source);
    }
    if (!status && totals.entries != part->entries)
        status = error_set(error, BANYAN_ECORRUPT, "%.47s has %" PRIu64 " entries, and had %" PRIu64,
                           disk_file_name(reader.file), totals.entries, part->entries);
    disk_file_close(reader.file);
    return status;
}

int persist_checkpoint_all(struct persist_checkpoint *checkpoint, struct persist_replay *replay,
                           persist_replay_visit *visit, void *context, struct error *error)
{
    struct telling telling = {.replay = replay, .visit = visit, .context = context};
    bool same;
    int status = persist_replay_sort(replay, error);
    for (uint32_t i = 0; checkpoint && !status && i < checkpoint->table.part_count; i++) {
        status = replay_tell(&telling, checkpoint->table.parts[i].index, NULL, &same, error);
        if (!status)
            status = part_tell(checkpoint, i, &telling, error);
    }
    /* What lies behind all of the checkpoint. */
    for (struct persist_replay_key next; !status && persist_replay_peek(replay, &next);)
        status = replay_tell(&telling, next.index, &(struct format_key){next.key, (uint32_t)next.key_length},
                             &same, error);
    return status;
}
