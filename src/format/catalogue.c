/* catalogue.c - see catalogue.h. */
#include "format/catalogue.h"

#include <assert.h>
#include <string.h>

#include "base/crc32c.h"

#define ROOT_ALIGNMENT   64u          /* of nodes: they are larger, and so is every chunk's offset */
#define ROOT_DROPPING    UINT64_C(21) /* the marks that a drop inverts */
#define ROOT_GENERATIONS 32u
#define KIND_DENSE       3u /* bits: the upper one of the leaf's kind */
#define KIND_LEAF        4u /* the lower one */
#define KIND_SUBTREE     5u

static_assert(FORMAT_SUBTREE_LEVELS_MAX < 1u << (8 - KIND_SUBTREE), "the levels fit their bits");
static_assert(FORMAT_LEAF_DENSE == 2 && FORMAT_LEAF_KIND_LAST < 4, "the leaf's kind has two bits");
static_assert(FORMAT_KEY_VARIABLE < 1u << KIND_DENSE, "the key's kind fits its bits");
static_assert(sizeof(struct format_catalogue_entry) <= FORMAT_CATALOGUE_ENTRY_BYTES,
              "an entry fits its place");

uint32_t format_catalogue_crc(const struct format_catalogue_entry *entry)
{
    const size_t start = offsetof(struct format_catalogue_entry, used);
    return crc32c(0, (const uint8_t *)entry + start, sizeof *entry - start);
}

bool format_catalogue_whole(const struct format_catalogue_entry *entry)
{
    static const struct format_catalogue_entry formatted;
    if (!entry->used)
        return entry->crc == format_catalogue_crc(entry) || !memcmp(entry, &formatted, sizeof formatted);
    return entry->used == 1 && entry->crc == format_catalogue_crc(entry) &&
           (format_root_address(entry->root) != GADDR_NULL || format_catalogue_dropping(entry));
}

bool format_catalogue_dropping(const struct format_catalogue_entry *entry)
{
    return (entry->root ^ format_root_address(entry->root)) == format_root_dropping(entry->generation);
}

void format_catalogue_describe(struct format_catalogue_entry *entry, const struct format_geometry *geometry)
{
    entry->leaf_bytes = geometry->leaf_bytes;
    entry->internal_bytes = geometry->internal_bytes;
    entry->kinds =
        (uint8_t)(geometry->key_kind | (geometry->leaf_kind >> 1) << KIND_DENSE |
                  (geometry->leaf_kind & 1) << KIND_LEAF | geometry->subtree_levels << KIND_SUBTREE);
    entry->key_bytes = geometry->key_bytes;
    entry->inline_key_bytes = geometry->inline_key_bytes;
    entry->value_bytes = geometry->value_bytes;
    entry->value_variable = geometry->value_variable;
    entry->content = geometry->content;
}

static uint8_t leaf_kind(uint8_t kinds)
{
    return (uint8_t)((kinds >> KIND_LEAF & 1u) | (kinds >> KIND_DENSE & 1u) << 1);
}

void format_catalogue_geometry(const struct format_catalogue_entry *entry, struct format_geometry *geometry)
{
    *geometry = (struct format_geometry){.leaf_bytes = entry->leaf_bytes,
                                         .internal_bytes = entry->internal_bytes,
                                         .key_kind = entry->kinds % (1u << KIND_DENSE),
                                         .leaf_kind = leaf_kind(entry->kinds),
                                         .subtree_levels = entry->kinds >> KIND_SUBTREE,
                                         .key_bytes = entry->key_bytes,
                                         .inline_key_bytes = entry->inline_key_bytes,
                                         .value_bytes = entry->value_bytes,
                                         .value_variable = entry->value_variable,
                                         .content = entry->content};
}

gaddr format_root_address(uint64_t word)
{
    return word & ~(uint64_t)(ROOT_ALIGNMENT - 1);
}

uint64_t format_root_marks(uint16_t generation)
{
    return generation % ROOT_GENERATIONS << 1;
}

uint64_t format_root_dropping(uint16_t generation)
{
    return format_root_marks(generation) ^ ROOT_DROPPING;
}

uint16_t format_index_number(uint32_t entry, uint16_t generation)
{
    assert(entry < FORMAT_CATALOGUE_ENTRIES);
    return (uint16_t)(generation % FORMAT_INDEX_GENERATIONS << 8 | (entry + 1));
}
