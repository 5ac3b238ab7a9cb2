/* names.c - see names.h. */
#include "persist/names.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "format/catalogue.h"
#include "memory/memory.h"

/* What the journal has of an entry of the catalogue. */
struct told {
    uint16_t number; /* 0: no index */
    uint32_t crc;    /* of the entry */
};

/* An entry's first bytes. While they are what they were when it was told it has not changed: nearly all looks
 * end with them. */
struct head {
    uint64_t root;
    uint32_t crc, used;
};
static_assert(offsetof(struct format_catalogue_entry, crc) == 8 &&
                  offsetof(struct format_catalogue_entry, used) == 12,
              "an entry begins so");

struct persist_names {
    const struct fabric_target *home;
    bool begun;                          /* the record that begins anew is written */
    uint32_t at;                         /* the entry that is looked at */
    struct told now;                     /* what `at` has when the record under way is written */
    struct format_catalogue_entry entry; /* of that */
    struct told told[FORMAT_CATALOGUE_ENTRIES];
    struct head heads[FORMAT_CATALOGUE_ENTRIES]; /* of entries that are as they were told */
    bool same[FORMAT_CATALOGUE_ENTRIES];         /* ... which these are */
    uint64_t known[(UINT16_MAX + 1) / 64];       /* bits: numbers of indexes */
};

struct persist_names *persist_names_create(const struct fabric_target *home)
{
    struct persist_names *names = calloc(1, sizeof *names);
    if (names)
        names->home = home;
    return names;
}

void persist_names_destroy(struct persist_names *names)
{
    free(names);
}

static const uint8_t *entry_at(const struct persist_names *names, uint32_t at)
{
    const uint64_t offset =
        MEMORY_CATALOGUE_OFFSET + FORMAT_CATALOGUE_FIRST + (uint64_t)at * FORMAT_CATALOGUE_ENTRY_BYTES;
    assert(offset + FORMAT_CATALOGUE_ENTRY_BYTES <= names->home->pool_bytes);
    return names->home->pool + offset;
}

static bool head_same(const struct persist_names *names, uint32_t at)
{
    struct head head;
    atomic_copy_from(&head, entry_at(names, at), sizeof head);
    return names->same[at] && head.root == names->heads[at].root && head.crc == names->heads[at].crc &&
           head.used == names->heads[at].used;
}

/* False: it is being written, and is looked at again by the next pass. */
static bool entry_read(const struct persist_names *names, uint32_t at, struct format_catalogue_entry *entry)
{
    atomic_copy_from(entry, entry_at(names, at), sizeof *entry);
    entry->name[FORMAT_INDEX_NAME_MAX] = 0;
    return format_catalogue_whole(entry);
}

/* What the entry at `at` is to be told as; false: it is as the journal has it. */
static bool entry_differs(struct persist_names *names)
{
    const struct told *told = &names->told[names->at];
    struct format_catalogue_entry *entry = &names->entry;
    names->now = (struct told){0};
    if (head_same(names, names->at) || !entry_read(names, names->at, entry))
        return false;
    if (entry->used && !format_catalogue_dropping(entry) && entry->name[0])
        names->now = (struct told){format_index_number(names->at, entry->generation), entry->crc};
    if (told->number && names->now.number != told->number) /* that one first */
        names->now = (struct told){0};
    names->same[names->at] = names->now.number == told->number && names->now.crc == told->crc;
    names->heads[names->at] = (struct head){entry->root, entry->crc, entry->used};
    return !names->same[names->at];
}

void persist_names_begin(struct persist_names *names)
{
    names->at = 0;
}

bool persist_names_next(struct persist_names *names, struct persist_index *index)
{
    *index = (struct persist_index){.number = 0};
    if (!names->begun)
        return true;
    while (names->at < FORMAT_CATALOGUE_ENTRIES && !entry_differs(names))
        names->at++;
    if (names->at == FORMAT_CATALOGUE_ENTRIES)
        return false;
    index->number = names->now.number;
    index->gone = !index->number;
    if (index->gone) {
        index->number = names->told[names->at].number;
        return true;
    }
    format_catalogue_geometry(&names->entry, &index->geometry);
    index->name = names->entry.name;
    index->name_length = (uint32_t)strlen(index->name);
    return true;
}

void persist_names_written(struct persist_names *names)
{
    const uint16_t number = names->now.number;
    if (!names->begun) {
        names->begun = true;
        return;
    }
    names->told[names->at] = names->now; /* it is looked at once more: another index may be there */
    if (number)
        names->known[number / 64] |= UINT64_C(1) << number % 64;
}

bool persist_names_have(const struct persist_names *names, uint16_t number)
{
    return names->known[number / 64] >> number % 64 & 1;
}

void persist_names_forget(struct persist_names *names)
{
    const struct fabric_target *home = names->home;
    *names = (struct persist_names){.home = home};
}
