/* reference.c - see reference.h. */
#include "swarm/reference.h"

#include <stdlib.h>
#include <string.h>

void reference_init(struct reference *reference)
{
    *reference = (struct reference){0};
}

void reference_free(struct reference *reference)
{
    for (size_t i = 0; i < reference->count; i++)
        free(reference->entries[i]);
    free(reference->entries);
    *reference = (struct reference){0};
}

int reference_compare(const void *left, size_t left_length, const void *right, size_t right_length)
{
    size_t common = left_length < right_length ? left_length : right_length;
    int order = common ? memcmp(left, right, common) : 0;
    return order ? order : (left_length > right_length) - (left_length < right_length);
}

size_t reference_place(const struct reference *reference, const void *key, size_t length, bool after)
{
    size_t low = 0, high = reference->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct reference_entry *entry = reference->entries[middle];
        int order = reference_compare(entry->bytes, entry->key_length, key, length);
        if (order < 0 || (after && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

const struct reference_entry *reference_find(const struct reference *reference, const void *key,
                                             size_t length)
{
    size_t at = reference_place(reference, key, length, false);
    if (at == reference->count)
        return NULL;
    const struct reference_entry *entry = reference->entries[at];
    return reference_compare(entry->bytes, entry->key_length, key, length) == 0 ? entry : NULL;
}

void reference_put(struct reference *reference, const void *key, size_t key_length, const void *value,
                   size_t value_length)
{
    struct reference_entry *entry = malloc(sizeof *entry + key_length + value_length);
    if (!entry)
        abort();
    entry->key_length = (uint32_t)key_length;
    entry->value_length = (uint32_t)value_length;
    if (key_length)
        memcpy(entry->bytes, key, key_length);
    if (value_length)
        memcpy(entry->bytes + key_length, value, value_length);
    size_t at = reference_place(reference, key, key_length, false);
    if (reference_find(reference, key, key_length)) {
        free(reference->entries[at]);
        reference->entries[at] = entry;
        return;
    }
    if (reference->count == reference->capacity) {
        reference->capacity = reference->capacity ? reference->capacity * 2 : 64;
        reference->entries =
            realloc(reference->entries, reference->capacity * sizeof(struct reference_entry *));
        if (!reference->entries)
            abort();
    }
    memmove(reference->entries + at + 1, reference->entries + at,
            (reference->count - at) * sizeof(struct reference_entry *));
    reference->entries[at] = entry;
    reference->count++;
}

bool reference_remove(struct reference *reference, const void *key, size_t length)
{
    if (!reference_find(reference, key, length))
        return false;
    size_t at = reference_place(reference, key, length, false);
    free(reference->entries[at]);
    reference->count--;
    memmove(reference->entries + at, reference->entries + at + 1,
            (reference->count - at) * sizeof(struct reference_entry *));
    return true;
}
