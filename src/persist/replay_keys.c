/*
 * replay_keys.c - the keys of a replay, found by their hash, and the memory in which they and their short
 * values lie (replay_private.h): in as many shards as threads may work on, which know nothing of each other.
 *
 * The table has a key's hash beside it, so that one key costs one line of the table, and its own lines only
 * if it is there already. It is at most half full, and grows by doubling, without a look at any key.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "persist/replay_private.h"

#define HUGE_BYTES  ((size_t)2 << 20)
#define CHUNK_BYTES (HUGE_BYTES - sizeof(struct replay_chunk))
#define SLOTS_FIRST 1024u

/* ---- memory ---- */

void *replay_large(size_t bytes)
{
    if (bytes < HUGE_BYTES)
        return malloc(bytes);
    const size_t whole = (bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    void *large = aligned_alloc(HUGE_BYTES, whole);
    if (large)
        (void)madvise(large, whole, MADV_HUGEPAGE); /* quicker where the system has such pages */
    return large;
}

void *replay_apart(size_t bytes)
{
    void *made = aligned_alloc(REPLAY_APART, bytes);
    if (made)
        memset(made, 0, bytes);
    return made;
}

void *replay_allocate(struct replay_shard *shard, size_t bytes)
{
    const size_t room = (bytes + 15) & ~(size_t)15;
    assert(room <= CHUNK_BYTES);
    if (!shard->chunks || shard->chunk_used + room > CHUNK_BYTES) {
        struct replay_chunk *chunk = replay_large(HUGE_BYTES);
        if (!chunk)
            return NULL;
        chunk->next = shard->chunks;
        shard->chunks = chunk;
        shard->chunk_used = 0;
    }
    void *at = shard->chunks->bytes + shard->chunk_used;
    shard->chunk_used += room;
    return at;
}

bool replay_key_keep(struct replay_shard *shard, struct replay_key *key, const uint8_t *bytes, uint8_t length)
{
    if (length > key->value_room * 8u) {
        const uint8_t room = (uint8_t)((length + 7) / 8);
        uint8_t *value = replay_allocate(shard, room * 8u);
        if (!value)
            return false;
        key->value = value;
        key->value_room = room;
    }
    if (length)
        memcpy(key->value, bytes, length);
    return true;
}

/* ---- the table ---- */

uint64_t replay_key_hash(uint16_t index, struct format_key key)
{
    return format_key_hash(key) ^ ((uint64_t)index * UINT64_C(0x9e3779b97f4a7c15));
}

static bool key_is(const struct replay_key *key, uint16_t index, struct format_key other)
{
    return key->index == index && key->length == other.length &&
           (!other.length || !memcmp(key->key, other.bytes, other.length));
}

/* Where the key is, or would be. */
static struct replay_slot *slot_find(const struct replay_shard *shard, uint16_t index, struct format_key key,
                                     uint64_t hash)
{
    uint64_t at = hash & (shard->capacity - 1);
    for (; shard->slots[at].key; at = (at + 1) & (shard->capacity - 1))
        if (shard->slots[at].hash == hash && key_is(shard->slots[at].key, index, key))
            break;
    return &shard->slots[at];
}

/* Each half of the new table is filled in the order of the old one, so that both are written front to back.
 */
static bool slots_grow(struct replay_shard *shard)
{
    const uint64_t were = shard->capacity, capacity = were ? 2 * were : SLOTS_FIRST;
    struct replay_slot *slots = replay_large(capacity * sizeof *slots);
    if (!slots)
        return false;
    memset(slots, 0, capacity * sizeof *slots);
    for (uint64_t i = 0; i < were; i++) {
        const struct replay_slot *old = &shard->slots[i];
        uint64_t at = old->hash & (capacity - 1);
        if (!old->key)
            continue;
        while (slots[at].key)
            at = (at + 1) & (capacity - 1);
        slots[at] = *old;
    }
    free(shard->slots);
    shard->slots = slots;
    shard->capacity = capacity;
    return true;
}

static const struct replay_slot *slot_first(const struct persist_replay *replay, uint64_t hash)
{
    const struct replay_shard *shard = replay_shard_of(replay, hash);
    return shard->capacity ? &shard->slots[hash & (shard->capacity - 1)] : NULL;
}

void replay_keys_ahead(const struct persist_replay *replay, const uint64_t *hashes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        __builtin_prefetch(slot_first(replay, hashes[i]), 1);
    for (uint32_t i = 0; i < count; i++) {
        const struct replay_slot *slot = slot_first(replay, hashes[i]);
        if (slot && slot->key && slot->hash == hashes[i])
            __builtin_prefetch(slot->key, 1);
    }
}

/* ---- keys ---- */

/* What all keys have in common, with this one too. */
static void key_join(struct replay_shard *shard, const struct replay_key *key)
{
    const struct replay_key *first = shard->first;
    if (first == key) {
        shard->common = key->length;
        return;
    }
    shard->common = format_key_common((struct format_key){first->key, shard->common},
                                      (struct format_key){key->key, key->length});
    shard->several |= key->index != first->index;
}

static struct replay_key *key_make(struct replay_shard *shard, uint16_t index, struct format_key key)
{
    struct replay_key *made = replay_allocate(shard, sizeof *made + key.length);
    if (!made)
        return NULL;
    *made = (struct replay_key){.index = index, .length = (uint16_t)key.length};
    if (key.length)
        memcpy(made->key, key.bytes, key.length);
    if (shard->last)
        shard->last->next = made;
    else
        shard->first = made;
    shard->last = made;
    shard->keys++;
    key_join(shard, made);
    return made;
}

struct replay_key *replay_key_get(struct replay_shard *shard, uint16_t index, struct format_key key,
                                  uint64_t hash)
{
    assert(hash == replay_key_hash(index, key));
    if (2 * shard->keys >= shard->capacity && !slots_grow(shard))
        return NULL;
    struct replay_slot *slot = slot_find(shard, index, key, hash);
    if (!slot->key)
        *slot = (struct replay_slot){.hash = hash, .key = key_make(shard, index, key)};
    return slot->key;
}

void replay_key_place(struct replay_shard *shard, struct replay_key *key, struct replay_place *places)
{
    assert(!key->places);
    key->places = places;
    shard->placed |= places != NULL;
}

void replay_key_clear(struct replay_key *key)
{
    free(key->places);
    key->places = NULL;
    key->plain = false;
    key->plain_length = key->plain_places = 0;
    key->expires = 0;
}

static void shard_free(struct replay_shard *shard)
{
    for (struct replay_key *key = shard->placed ? shard->first : NULL; key; key = key->next)
        free(key->places);
    while (shard->chunks) {
        struct replay_chunk *chunk = shard->chunks;
        shard->chunks = chunk->next;
        free(chunk);
    }
    free(shard->slots);
}

bool replay_shards_make(struct persist_replay *replay, uint32_t count)
{
    struct replay_shard *shards = replay_apart(count * sizeof *shards);
    if (!shards)
        return false;
    replay_keys_free(replay);
    replay->shards = shards;
    replay->shard_count = count;
    return true;
}

void replay_keys_free(struct persist_replay *replay)
{
    for (uint32_t i = 0; i < replay->shard_count; i++)
        shard_free(&replay->shards[i]);
    free(replay->shards);
}
