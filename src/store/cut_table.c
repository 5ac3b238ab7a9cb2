/* cut_table.c - see cut_table.h. */
#include "store/cut_table.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define OVERHEAD 16u /* of the allocator, for each entry */

unsigned store_cut_table_level(struct store_cut_table *table)
{
    unsigned levels = 1;
    for (uint64_t draw = random_next(&table->random); levels < STORE_CUT_LEVELS && !(draw & 3); draw >>= 2)
        levels++;
    return levels;
}

size_t store_saved_bytes(unsigned levels, size_t key_length, size_t length)
{
    return sizeof(struct store_saved) + levels * sizeof(struct store_saved *) + key_length + length +
           OVERHEAD;
}

struct store_saved *store_saved_make(unsigned levels, const void *key, size_t key_length,
                                     const struct store_value *value)
{
    const size_t length = value ? value->length : 0, held = store_saved_bytes(levels, key_length, length);
    struct store_saved *saved = malloc(held - OVERHEAD);
    if (!saved)
        return NULL;
    *saved = (struct store_saved){.expires = value ? value->expires : 0,
                                  .key_length = key_length,
                                  .length = length,
                                  .held = held,
                                  .present = value != NULL,
                                  .levels = (uint8_t)levels,
                                  .bytes = (uint8_t *)(saved->next + levels)};
    for (unsigned i = 0; i < levels; i++)
        saved->next[i] = NULL;
    memcpy(saved->bytes, key, key_length);
    if (length)
        memcpy(saved->bytes + key_length, value->bytes, length);
    return saved;
}

uint64_t store_saved_free(struct store_saved *saved, uint32_t most, struct store_saved **left)
{
    uint64_t held = 0;
    for (uint32_t i = 0; saved && i < most; i++) {
        struct store_saved *next = saved->next[0];
        held += saved->held;
        free(saved);
        saved = next;
    }
    assert(!saved || left);
    if (left)
        *left = saved;
    return held;
}

/* Of each level, the link that leads to the first entry whose key is not below this one. Returns that entry.
 */
static struct store_saved *find(struct store_cut_table *table, const void *key, size_t key_length,
                                struct store_saved **links[STORE_CUT_LEVELS])
{
    struct store_saved **next = table->heads;
    for (unsigned level = STORE_CUT_LEVELS; level-- > 0;) {
        while (next[level] &&
               store_key_order(next[level]->bytes, next[level]->key_length, key, key_length) < 0)
            next = next[level]->next;
        links[level] = &next[level];
    }
    return *links[0];
}

static bool is(const struct store_saved *saved, const void *key, size_t key_length)
{
    return saved && saved->key_length == key_length && !memcmp(saved->bytes, key, key_length);
}

bool store_cut_table_has(const struct store_cut_table *table, const void *key, size_t key_length)
{
    struct store_saved *const *next = table->heads;
    for (unsigned level = STORE_CUT_LEVELS; level-- > 0;)
        while (next[level] &&
               store_key_order(next[level]->bytes, next[level]->key_length, key, key_length) < 0)
            next = next[level]->next;
    return is(next[0], key, key_length);
}

bool store_cut_table_add(struct store_cut_table *table, struct store_saved *saved)
{
    struct store_saved **links[STORE_CUT_LEVELS];
    if (is(find(table, saved->bytes, saved->key_length, links), saved->bytes, saved->key_length))
        return false;
    assert(saved->levels && saved->levels <= STORE_CUT_LEVELS);
    for (unsigned level = 0; level < saved->levels; level++) {
        saved->next[level] = *links[level];
        *links[level] = saved;
    }
    table->count++;
    table->bytes += saved->held;
    return true;
}

struct store_saved *store_cut_table_pop(struct store_cut_table *table)
{
    struct store_saved *first = table->heads[0];
    if (!first)
        return NULL;
    for (unsigned level = 0; level < first->levels; level++) {
        assert(table->heads[level] == first);
        table->heads[level] = first->next[level];
    }
    first->next[0] = NULL;
    table->count--;
    table->bytes -= first->held;
    return first;
}

struct store_saved *store_cut_table_clear(struct store_cut_table *table)
{
    struct store_saved *all = table->heads[0];
    memset(table->heads, 0, sizeof table->heads);
    table->count = table->bytes = 0;
    return all;
}
