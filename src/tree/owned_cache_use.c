/*
 * owned_cache_use.c - The cache of owned ranges in leaf access: serving reads, hearing of writes. Round trips
 * where the cache does not serve.
 */
#include "tree/owned_cache_use.h"

#include <assert.h>

#include "format/verdict.h"
#include "tree/announce.h"

#define READS_MAX 16u
#define LISTS_MAX 64u

/* The cache that counts for this operation; NULL: none. */
static struct owned_cache *cache_of(const struct tree_session *session, const struct tree *tree)
{
    /* What is cached of rows that are lost is never told again. */
    return session->right == TREE_OWNED && !session->drains ? tree->owned : NULL;
}

/* The cache that must hear of this operation's writes. Where a row leaves this process, operations that began
 * before may still be answered from what is cached of it, while it is merged (L5): it goes from the cache. */
static struct owned_cache *cache_told(const struct tree_session *session, const struct tree *tree)
{
    return session->right == TREE_OWNED ? tree->owned : NULL;
}

/* ---- reads ---- */

static enum owned_frame_found serve(struct tree_session *session, const struct tree *tree, gaddr leaf,
                                    struct fabric_command *reads, uint32_t count, bool around)
{
    struct owned_piece pieces[READS_MAX];
    if (!count || count > READS_MAX)
        return OWNED_FRAME_NONE;
    for (uint32_t i = 0; i < count; i++) {
        const struct fabric_command *read = &reads[i];
        if (read->operation != FABRIC_READ || read->address < leaf ||
            read->address + read->length > leaf + tree->layout.geometry.leaf_bytes)
            return OWNED_FRAME_NONE;
        pieces[i] = (struct owned_piece){(uint32_t)(read->address - leaf), read->length, read->read.buffer};
    }
    struct owned_busy busy = {0};
    enum owned_frame_found found =
        owned_cache_leaf(tree->owned, session->pool.epoch, leaf, pieces, count, &busy);
    if (found == OWNED_FRAME_NONE || (found == OWNED_FRAME_BUSY && !around))
        return found;
    session->busy = busy;
    for (uint32_t i = 0; i < count; i++)
        reads[i].read.data = reads[i].read.buffer;
    session->cached = session->served = true;
    return OWNED_FRAME_COPIED;
}

/* Whether bytes that were read at once are a live leaf of this index, and of a range that is this process's.
 * A leaf of another range, which a way that leads astray has met, is written by others: adopting the right to
 * its range one day would not take it out of the cache. */
static bool is_leaf(const struct tree_session *session, const struct tree *tree, const uint8_t *bytes)
{
    struct format_header header;
    return format_header_valid(&tree->layout, bytes) && format_header_decode(&tree->layout, bytes, &header) &&
           !header.level && header.state == FORMAT_NODE_LIVE && header.index == tree->index &&
           tree_rights_owns(session, header.lower);
}

/* Whether every buffer is where the leaf's bytes go in the session's image: then a READ of the whole leaf
 * does for all of them. */
static bool fits_image(const struct tree_session *session, const struct tree *tree, gaddr leaf,
                       const struct fabric_command *reads, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct fabric_command *read = &reads[i];
        if (read->operation != FABRIC_READ || read->address < leaf ||
            read->address + read->length > leaf + tree->layout.geometry.leaf_bytes ||
            (uint8_t *)read->read.buffer != session->image.bytes + (read->address - leaf))
            return false;
    }
    return count > 0;
}

static int read_whole(struct tree_session *session, struct tree *tree, gaddr leaf,
                      struct fabric_command *reads, uint32_t count)
{
    struct fabric_command whole =
        pool_read_command(leaf, session->image.bytes, tree->layout.geometry.leaf_bytes);
    uint64_t stamp = owned_cache_stamp(tree->owned, leaf);
    int status = pool_execute(&session->pool, gaddr_node(leaf), &whole, 1);
    if (status)
        return status;
    pool_read_settle(&whole);
    for (uint32_t i = 0; i < count; i++)
        reads[i].read.data = reads[i].read.buffer;
    if (is_leaf(session, tree, session->image.bytes))
        owned_cache_offer_leaf(tree->owned, session->pool.epoch, leaf, session->image.bytes, stamp);
    return 0;
}

static int read_leaf(struct tree_session *session, struct tree *tree, gaddr leaf,
                     struct fabric_command *reads, uint32_t count, bool around)
{
    bool cached = cache_of(session, tree) != NULL;
    session->served = false;
    session->busy = (struct owned_busy){0};
    enum owned_frame_found found =
        cached ? serve(session, tree, leaf, reads, count, around) : OWNED_FRAME_NONE;
    if (found == OWNED_FRAME_COPIED)
        return 0;
    /* A leaf that is BUSY is in the cache: the whole of it is not worth a READ, nor would it be admitted. */
    bool whole = cached && found != OWNED_FRAME_BUSY && fits_image(session, tree, leaf, reads, count) &&
                 owned_cache_wants(tree->owned);
    int status = whole ? read_whole(session, tree, leaf, reads, count)
                       : pool_execute(&session->pool, gaddr_node(leaf), reads, count);
    if (!status)
        session->cached = false; /* the right is proven by the list */
    return status;
}

int tree_owned_read(struct tree_session *session, struct tree *tree, gaddr leaf, struct fabric_command *reads,
                    uint32_t count)
{
    return read_leaf(session, tree, leaf, reads, count, false);
}

int tree_owned_read_around(struct tree_session *session, struct tree *tree, gaddr leaf,
                           struct fabric_command *reads, uint32_t count)
{
    return read_leaf(session, tree, leaf, reads, count, true);
}

bool tree_owned_await(struct tree_session *session, const struct tree *tree, struct format_key key,
                      uint8_t *value, uint32_t *length)
{
    struct owned_cache *cache = cache_of(session, tree);
    if (!cache || !owned_cache_await(cache, key, value, length))
        return false;
    session->cached = true; /* the list that wrote it may be older than this operation */
    return true;
}

/* A list that was posted: the leaf, if it was read whole, or all of it that is used. The buffer has room for
 * a whole leaf, and zeros where nothing was read. */
static void offer_list(struct tree_session *session, const struct tree *tree, struct fabric_list *list,
                       uint64_t stamp)
{
    struct fabric_command *read = &list->commands[0];
    if (list->status || list->count != 1 || read->length < tree->layout.used_bytes ||
        !owned_cache_wants(tree->owned))
        return;
    /* Mapped bytes may be written meanwhile: what is judged and admitted is the copy. */
    pool_read_settle(read);
    if (!is_leaf(session, tree, read->read.buffer))
        return;
    owned_cache_offer_leaf(tree->owned, session->pool.epoch, read->address, read->read.buffer, stamp);
}

int tree_owned_read_many(struct tree_session *session, struct tree *tree, struct fabric_list *const *lists,
                         uint32_t count)
{
    struct fabric_list *posted[LISTS_MAX];
    uint64_t stamps[LISTS_MAX];
    uint32_t left = 0;
    session->served = false;
    if (!tree->owned || count > LISTS_MAX)
        return pool_lists_post(&session->pool, lists, count);
    for (uint32_t i = 0; i < count; i++) {
        struct fabric_list *list = lists[i];
        /* Only whole leaves: the first command of such a list tells where the leaf begins. */
        bool whole = list->count == 1 && list->commands[0].length >= tree->layout.used_bytes;
        gaddr leaf = list->commands[0].address;
        stamps[left] = whole ? owned_cache_stamp(tree->owned, leaf) : 0;
        if (whole && serve(session, tree, leaf, list->commands, 1, false) == OWNED_FRAME_COPIED)
            list->status = 0;
        else
            posted[left++] = list;
    }
    if (!left)
        return 0;
    int status = pool_lists_post(&session->pool, posted, left);
    for (uint32_t i = 0; i < left; i++)
        offer_list(session, tree, posted[i], stamps[i]);
    if (!status)
        session->cached = false; /* as above: they were posted after the others were served */
    return status;
}

void tree_owned_doubt(struct tree_session *session, const struct tree *tree, gaddr leaf)
{
    if (cache_of(session, tree))
        owned_cache_drop_leaf(tree->owned, session->pool.epoch, leaf);
}

/* ---- writes ---- */

void tree_owned_note(struct tree_session *session, const struct tree *tree, struct format_key key,
                     const struct format_key *value, const struct owned_place *place)
{
    if (!cache_told(session, tree))
        return;
    if (session->drains)
        value = NULL, place = NULL;
    assert(session->note_count < TREE_NOTES_MAX);
    session->notes[session->note_count++] =
        (struct tree_note){.key = key,
                           .value = value ? *value : (struct format_key){0},
                           .place = place ? *place : (struct owned_place){0},
                           .known = value != NULL,
                           .placed = place != NULL};
}

void tree_owned_note_merged(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                            struct format_key key, struct format_key value, uint8_t hits)
{
    tree_owned_note(session, tree, key, &value, NULL);
    if (!cache_of(session, tree))
        return;
    struct tree_note *note = &session->notes[session->note_count - 1];
    note->merged = true;
    note->leaf = leaf;
    note->hits = hits;
}

bool tree_owned_caches(const struct tree_session *session, const struct tree *tree)
{
    return cache_of(session, tree) != NULL;
}

bool tree_owned_places(const struct tree_session *session, const struct tree *tree)
{
    const struct owned_cache *cache = cache_of(session, tree);
    return cache && owned_cache_keeps_places(cache);
}

bool tree_owned_place(struct tree_session *session, const struct tree *tree, struct format_key key,
                      gaddr leaf, struct owned_place *place, uint8_t *value, uint32_t *length)
{
    struct owned_cache *cache = cache_of(session, tree);
    if (!cache || !owned_cache_place(cache, session->pool.epoch, key, leaf, place, value, length))
        return false;
    session->cached = true;
    return true;
}

/* Which of the leaf's bytes the WRITEs change; false: none. */
static bool written(const struct tree *tree, gaddr leaf, const struct fabric_command *commands,
                    uint32_t count, uint32_t *from, uint32_t *to)
{
    *from = UINT32_MAX;
    *to = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct fabric_command *write = &commands[i];
        if (write->operation != FABRIC_WRITE || write->address < leaf ||
            write->address >= leaf + tree->layout.geometry.leaf_bytes)
            continue;
        uint32_t at = (uint32_t)(write->address - leaf);
        *from = at < *from ? at : *from;
        *to = at + write->length > *to ? at + write->length : *to;
    }
    return *to > 0;
}

int tree_owned_write(struct tree_session *session, struct tree *tree, gaddr leaf,
                     struct fabric_command *commands, uint32_t count)
{
    struct owned_cache *cache = cache_told(session, tree);
    struct epoch_slot *slot = session->pool.epoch;
    uint32_t from, to;
    bool writes = cache && written(tree, leaf, commands, count, &from, &to);
    assert(writes || !session->note_count);
    if (writes)
        owned_cache_write_begin(cache, slot, leaf, from, to);
    for (uint32_t i = 0; i < session->note_count && writes; i++)
        owned_cache_key_begin(cache, slot, session->notes[i].key, &session->notes[i].mark);
    int status = pool_execute(&session->pool, gaddr_node(leaf), commands, count);
    if (writes) /* where the row leaves: as if nobody knew what was written */
        owned_cache_write_end(cache, slot, leaf, session->drains ? BANYAN_EUNKNOWN : status, commands, count);
    for (uint32_t i = 0; i < session->note_count && writes; i++) {
        struct tree_note *note = &session->notes[i];
        if (note->merged && !status)
            owned_cache_key_merged(cache, slot, note->leaf, note->key, note->value, note->hits, &note->mark);
        else
            owned_cache_key_end(cache, slot, note->key, !status && note->known ? &note->value : NULL,
                                note->placed ? &note->place : NULL, &note->mark);
    }
    session->note_count = 0;
    if (!status)
        session->cached = false;
    return status;
}

void tree_owned_begin(struct tree_session *session, const struct tree *tree, gaddr leaf, bool header)
{
    if (tree->owned)
        owned_cache_write_begin(tree->owned, session->pool.epoch, leaf,
                                header ? 0 : tree->layout.header_bytes, tree->layout.geometry.leaf_bytes);
}

void tree_owned_begin_key(struct tree_session *session, const struct tree *tree, struct format_key key)
{
    if (tree->owned)
        owned_cache_key_begin(tree->owned, session->pool.epoch, key, NULL);
}

void tree_owned_end_key(struct tree_session *session, const struct tree *tree, struct format_key key,
                        const struct format_key *value)
{
    if (tree->owned)
        owned_cache_key_end(tree->owned, session->pool.epoch, key, value, NULL, NULL);
}

void tree_owned_end(struct tree_session *session, const struct tree *tree, gaddr leaf, int status,
                    const struct fabric_command *writes, uint32_t count)
{
    if (tree->owned)
        owned_cache_write_end(tree->owned, session->pool.epoch, leaf, status, writes, count);
}

void tree_owned_end_merged(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                           struct format_key key, struct format_key value, uint8_t hits)
{
    if (tree->owned)
        owned_cache_key_merged(tree->owned, session->pool.epoch, leaf, key, value, hits, NULL);
}

bool tree_owned_header(struct tree_session *session, const struct tree *tree, gaddr leaf, uint8_t *image)
{
    const struct owned_piece piece = {0, tree->layout.header_bytes, image};
    struct owned_busy busy = {0};
    return tree->owned &&
           owned_cache_leaf(tree->owned, session->pool.epoch, leaf, &piece, 1, &busy) == OWNED_FRAME_COPIED;
}

/* ---- entries ---- */

uint32_t tree_owned_draw(struct tree_session *session)
{
    return (uint32_t)random_mix(session->entry_draws++);
}

bool tree_owned_lookup(struct tree_session *session, const struct tree *tree, struct format_key key,
                       uint8_t *value, uint32_t *length, struct format_link *leaf)
{
    struct owned_cache *cache = cache_of(session, tree);
    session->entry_hits = 0;
    *leaf = (struct format_link){0};
    if (!cache)
        return false;
    enum owned_cache_found found = owned_cache_entry(cache, session->pool.epoch, key, value, length, leaf,
                                                     tree_owned_draw(session), &session->entry_hits);
    if (found == OWNED_CACHE_BUSY && tree_owned_await(session, tree, key, value, length))
        found = OWNED_CACHE_VALUE;
    /* A shortcut may be old: its leaf is there no more if its memory node was removed (R6). */
    if (found != OWNED_CACHE_SHORTCUT || fabric_is_away(session->pool.fabric, gaddr_node(leaf->address)))
        *leaf = (struct format_link){0};
    if (found == OWNED_CACHE_VALUE)
        session->cached = true;
    return found == OWNED_CACHE_VALUE;
}

bool tree_owned_peek(struct tree_session *session, const struct tree *tree, struct format_key key,
                     uint8_t *value, uint32_t *length, uint32_t *hits)
{
    struct owned_cache *cache = cache_of(session, tree);
    return cache && owned_cache_peek(cache, session->pool.epoch, key, value, length, hits);
}

void tree_owned_missed(struct tree_session *session, const struct tree *tree, uint64_t round_trips)
{
    struct owned_cache *cache = cache_of(session, tree);
    if (cache)
        owned_cache_missed(cache, round_trips);
}

uint64_t tree_owned_stamp(struct tree_session *session, const struct tree *tree, gaddr leaf)
{
    struct owned_cache *cache = cache_of(session, tree);
    return cache ? owned_cache_stamp(cache, leaf) : 0;
}

void tree_owned_learn(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                      uint64_t stamp, struct format_key key, struct format_key value)
{
    struct owned_cache *cache = cache_of(session, tree);
    if (cache)
        owned_cache_offer_entry(cache, session->pool.epoch, leaf, session->served, stamp, key, value);
}

/* ---- what walks bring ---- */

bool tree_owned_told(const struct tree_session *session, const struct tree *tree)
{
    return cache_told(session, tree) != NULL;
}

uint64_t tree_owned_moment(struct tree_session *session, const struct tree *tree)
{
    struct owned_cache *cache = cache_told(session, tree);
    return cache ? owned_cache_moment(cache) : 0;
}

uint64_t tree_owned_stamp_since(struct tree_session *session, const struct tree *tree, gaddr leaf,
                                uint64_t moment)
{
    struct owned_cache *cache = cache_of(session, tree);
    return cache && moment ? owned_cache_stamp_since(cache, leaf, moment) : 0;
}

bool tree_owned_unwritten(struct tree_session *session, const struct tree *tree, gaddr leaf, uint64_t moment)
{
    struct owned_cache *cache = cache_told(session, tree);
    return cache && moment && owned_cache_unwritten(cache, leaf, moment);
}

bool tree_owned_keeps(struct tree_session *session, const struct tree *tree, gaddr leaf)
{
    struct owned_cache *cache = cache_of(session, tree);
    return cache && owned_cache_keeps_leaf(cache, session->pool.epoch, leaf);
}

bool tree_owned_wants(struct tree_session *session, const struct tree *tree)
{
    struct owned_cache *cache = cache_of(session, tree);
    return cache && owned_cache_wants(cache);
}

void tree_owned_offer(struct tree_session *session, const struct tree *tree, gaddr leaf, const uint8_t *bytes,
                      uint64_t stamp)
{
    struct owned_cache *cache = cache_of(session, tree);
    if (cache && is_leaf(session, tree, bytes))
        owned_cache_offer_leaf(cache, session->pool.epoch, leaf, bytes, stamp);
}
