/*
 * owned_cache_use.h - the cache of owned ranges (owned_cache.h) as leaf access, lookups and changes use it:
 * reads of leaves that it serves, writes that it must hear of. Private to src/tree/. In an operation that has
 * announced a row of its own; where the index has no such cache, nothing happens. What is served costs no
 * round trip, and sets session->cached (O2).
 */
#ifndef TREE_OWNED_CACHE_USE_H
#define TREE_OWNED_CACHE_USE_H

#include "tree/index.h"
#include "tree/owned_cache.h"
#include "tree/session.h"

/* READs of one leaf: from the cache, else from the pool; then the leaf whole, where it should be admitted and
 * the reads' buffers lie in the session's image. */
int tree_owned_read(struct tree_session *session, struct tree *tree, gaddr leaf, struct fabric_command *reads,
                    uint32_t count);
/* The same for lists of one READ each or more. */
int tree_owned_read_many(struct tree_session *session, struct tree *tree, struct fabric_list *const *lists,
                         uint32_t count);
/* With the leaf's lock held: commands, of which some may be WRITEs to the leaf. They change the keys that
 * were noted; the notes are gone then. */
int tree_owned_write(struct tree_session *session, struct tree *tree, gaddr leaf,
                     struct fabric_command *commands, uint32_t count);
/* As tree_owned_note, of a value that is merged: the key may get an entry. */
void tree_owned_note_merged(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                            struct format_key key, struct format_key value, uint8_t hits);
/* With the leaf's lock held, for the next tree_owned_write: the key will hold this value; NULL: nothing, or
 * what is not known. With a place: in this slot. Key and value stay the caller's until then. */
void tree_owned_note(struct tree_session *session, const struct tree *tree, struct format_key key,
                     const struct format_key *value, const struct owned_place *place);
/* Whether entries may know their keys' slots, in the range under way. */
bool tree_owned_places(const struct tree_session *session, const struct tree *tree);
/* With the leaf's lock held: the key's value, and its slot in this leaf (owned_cache.h). */
bool tree_owned_place(struct tree_session *session, const struct tree *tree, struct format_key key,
                      gaddr leaf, struct owned_place *place, uint8_t *value, uint32_t *length);

/* For writes that do not go through leaf access: all slots (and the header) and these keys are being written,
 * and have been. `status` 0: the frame gets these WRITEs, else it goes; an entry gets the value, and goes
 * where that is NULL. With the leaf's lock held. */
void tree_owned_begin(struct tree_session *session, const struct tree *tree, gaddr leaf, bool header);
void tree_owned_begin_key(struct tree_session *session, const struct tree *tree, struct format_key key);
void tree_owned_end_key(struct tree_session *session, const struct tree *tree, struct format_key key,
                        const struct format_key *value);
/* The same for what was merged into this leaf (owned_cache_key_merged). In a row that the process keeps. */
void tree_owned_end_merged(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                           struct format_key key, struct format_key value, uint8_t hits);
void tree_owned_end(struct tree_session *session, const struct tree *tree, gaddr leaf, int status,
                    const struct fabric_command *writes, uint32_t count);

/* Between the two: the header of a leaf that is cached, to its place in the image. False: it is not. */
bool tree_owned_header(struct tree_session *session, const struct tree *tree, gaddr leaf, uint8_t *image);

/* What was read of the leaf is not what the way to it says, or not whole: if it came from the cache, the next
 * read goes to the pool. */
void tree_owned_doubt(struct tree_session *session, const struct tree *tree, gaddr leaf);

/* A random number, to count hits with: the same ones for each session, so that simulations repeat. */
uint32_t tree_owned_draw(struct tree_session *session);
/* A key's value, from its entry: true, with FORMAT_VALUE_MAX bytes of room in `value`. *leaf: where a
 * shortcut leads; address 0: there is none. */
bool tree_owned_lookup(struct tree_session *session, const struct tree *tree, struct format_key key,
                       uint8_t *value, uint32_t *length, struct format_link *leaf);
/* What a key's entry has, as owned_cache_peek. */
bool tree_owned_peek(struct tree_session *session, const struct tree *tree, struct format_key key,
                     uint8_t *value, uint32_t *length, uint32_t *hits);
/* Whether anything may be cached of the range under way. */
bool tree_owned_caches(const struct tree_session *session, const struct tree *tree);
/* Reads of a leaf as tree_owned_read, but bytes to which a write is under way come too, as they were before
 * it: session->busy says which. */
int tree_owned_read_around(struct tree_session *session, struct tree *tree, gaddr leaf,
                           struct fabric_command *reads, uint32_t count);
/* For a key in such bytes: its value behind the write, if there is a write to it and its outcome is known. */
bool tree_owned_await(struct tree_session *session, const struct tree *tree, struct format_key key,
                      uint8_t *value, uint32_t *length);
/* A key was found by so many round trips, since nothing was cached of it. */
void tree_owned_missed(struct tree_session *session, const struct tree *tree, uint64_t round_trips);
/* A key was found in a leaf that was read since the stamp was taken. */
uint64_t tree_owned_stamp(struct tree_session *session, const struct tree *tree, gaddr leaf);
void tree_owned_learn(struct tree_session *session, const struct tree *tree, struct format_link leaf,
                      uint64_t stamp, struct format_key key, struct format_key value);

/* ---- what walks bring (W11, docs/internals/walks.md) ---- */

/* Whether writes to leaves of the range under way are noted, so that a moment tells of them. */
bool tree_owned_told(const struct tree_session *session, const struct tree *tree);
/* Before the walk is asked for; 0: writes are not noted, so what it brings is neither admitted nor changed.
 */
uint64_t tree_owned_moment(struct tree_session *session, const struct tree *tree);
/* The stamp of a leaf that was read since then. */
uint64_t tree_owned_stamp_since(struct tree_session *session, const struct tree *tree, gaddr leaf,
                                uint64_t moment);
/* With the leaf's lock held: whether nobody has written it since then. */
bool tree_owned_unwritten(struct tree_session *session, const struct tree *tree, gaddr leaf, uint64_t moment);
/* Whether the leaf is in the cache, or would find room there without anything going. */
bool tree_owned_keeps(struct tree_session *session, const struct tree *tree, gaddr leaf);
/* Whether the leaf of a lookup should come whole, for the cache. */
bool tree_owned_wants(struct tree_session *session, const struct tree *tree);
/* The whole leaf, read since that stamp: `bytes` has all of it. */
void tree_owned_offer(struct tree_session *session, const struct tree *tree, gaddr leaf, const uint8_t *bytes,
                      uint64_t stamp);

#endif
