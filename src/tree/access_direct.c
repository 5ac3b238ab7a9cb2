/*
 * access_direct.c - Leaf access in place: in a range that this process owns, where the leaves are mapped here
 * (fabric_window). A change takes the leaf's latch (lock.h), judges what it copies of the leaf, and stores
 * the changed slot; no list is made, nothing suspends, and the only locked instructions are the latch's two.
 * Some hundred instructions; cannot fail.
 *
 * Why that is right. The latch excludes all that take the leaf's local lock, so nobody else changes the leaf
 * (O5). Readers meet the slot's bytes in any mixture of old and new, as they do with a WRITE, and the slot's
 * check tells them (R1, R2). One slot is stored, so there is no order of writes to keep (R3, R4 and R7 need
 * several, and go by the leaf's lock); the fence behind the stores is that of a list's completion (G4).
 * Memory that ends with the process is found by nobody with a store that was cut; where it outlives the
 * process the slot is staged as a WRITE is (G5), and the mark goes before the latch does, so that whoever
 * changes the leaf next does so behind it.
 */
#include "tree/access_direct.h"

#include "base/atomic.h"
#include "format/verdict.h"
#include "tree/index.h"
#include "tree/session.h"

bool tree_access_in_place(const struct fabric *fabric, const struct tree_switches *switches)
{
    return fabric->windows && fabric_capabilities(fabric)->direct && switches->combine == POOL_COMBINE_ALL &&
           switches->read_unit == TREE_READ_BUCKET && switches->write_unit == TREE_WRITE_SLOT;
}

/* What fabric_execute would count of a list. */
static void list_count(struct fabric_cost *cost, uint32_t reads, uint32_t read, uint32_t writes,
                       uint32_t written)
{
    if (!cost)
        return;
    cost->round_trips++;
    cost->lists++;
    cost->reads += reads;
    cost->bytes_read += read;
    cost->writes += writes;
    cost->bytes_written += written;
}

void tree_direct_count_read(struct tree_session *session, const struct tree *tree)
{
    list_count(session->pool.cost, 1, tree->layout.bucket_bytes, 0, 0);
}

void tree_direct_count_leaves(struct tree_session *session, const struct tree *tree, uint32_t count)
{
    list_count(session->pool.cost, count, count * tree->layout.used_bytes, 0, 0);
    if (session->pool.cost)
        session->pool.cost->lists += count - 1; /* each leaf's list is one, and they are one round trip */
}

bool tree_direct_find(struct tree_session *session, struct tree *tree, gaddr leaf, bool change,
                      struct tree_spot *spot)
{
    spot->leaf = leaf;
    spot->latch = NULL;
    spot->bytes = fabric_window(session->pool.fabric, leaf, tree->layout.geometry.leaf_bytes);
    if (!spot->bytes)
        return false;
    if (change) {
        __builtin_prefetch(spot->bytes);
        tree_latch_prefetch(session, leaf);
    }
    /* acquire: what is loaded from the leaf comes after loads for earlier operations, as with lists */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return true;
}

static inline void bucket_prefetch(const uint8_t *leaf, const struct format_bucket *bucket)
{
    const uint8_t *end = leaf + bucket->offset + bucket->bytes;
    for (const uint8_t *line = leaf + (bucket->offset & ~63u); line < end; line += 64)
        __builtin_prefetch(line);
}

void tree_direct_prefetch(const struct tree_spot *spot, const struct format_bucket *bucket)
{
    bucket_prefetch(spot->bytes, bucket);
}

bool tree_direct_word(struct tree_session *session, const struct tree *tree, struct format_link link,
                      uint64_t key, uint64_t *value)
{
    const struct format_layout *layout = &tree->layout;
    const struct format_key bytes = {(const uint8_t *)&key, sizeof key};
    const uint8_t *leaf = fabric_window(session->pool.fabric, link.address, layout->geometry.leaf_bytes);
    struct format_bucket bucket;
    if (!leaf)
        return false;
    format_bucket_number(layout, format_bucket_index(layout, link.tag, bytes), &bucket);
    bucket_prefetch(leaf, &bucket);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* as in tree_direct_find */
    if (!format_word_in_place(layout, link.tag, &bucket, leaf, key, value))
        return false;
    tree_direct_count_read(session, tree);
    return true;
}

void tree_direct_keep_order(struct tree_session *session, const struct tree *tree, struct format_link link,
                            const uint8_t *numbers, uint32_t count)
{
    const struct format_layout *layout = &tree->layout;
    struct format_header header;
    uint8_t image[FORMAT_HEADER_FIXED + 2 * FORMAT_KEY_MAX + 64]; /* headers are whole cache lines */
    uint8_t *bytes = fabric_window(session->pool.fabric, link.address, layout->geometry.leaf_bytes);
    /* Of memory that outlives the process scans change nothing, since it may have to be written to a disk. */
    if (!bytes || fabric_stages(session->pool.fabric))
        return;
    struct tree_lock_shard *latch = tree_latch_try(session, link.address);
    if (!latch)
        return;
    /* While it is live the bytes are the leaf's, and it cannot die under the latch. */
    format_header_copy(layout, image, bytes);
    if (format_node_verdict(layout, image, link, tree->index, 0, &header) == FORMAT_LIVE)
        atomic_copy_to(bytes + layout->used_bytes, numbers, count);
    tree_latch_leave(latch, false); /* nobody relies on what was stored */
}

bool tree_direct_enter(struct tree_session *session, struct tree_spot *spot)
{
    spot->latch = tree_latch_try(session, spot->leaf);
    return spot->latch;
}

void tree_direct_abandon(struct tree_spot *spot)
{
    tree_latch_leave(spot->latch, false);
}

static void leaf_store(const struct tree_session *session, const struct tree_spot *spot, const uint8_t *image,
                       uint32_t offset, uint32_t length)
{
    if (fabric_stages(session->pool.fabric)) {
        fabric_window_store(session->pool.endpoint, spot->leaf + offset, spot->bytes + offset, image + offset,
                            length);
        return;
    }
    /* release: what the slot names was written before */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    atomic_copy_to(spot->bytes + offset, image + offset, length);
}

static void change_count(struct tree_session *session, const struct tree *tree, uint32_t length)
{
    list_count(session->pool.cost, 2, tree->layout.header_bytes + tree->layout.bucket_bytes, 0, 0);
    if (length)
        list_count(session->pool.cost, 0, 0, 1, length);
}

void tree_direct_leave(struct tree_session *session, const struct tree *tree, struct tree_spot *spot,
                       const uint8_t *image, uint32_t offset, uint32_t length, tree_placed_function *placed,
                       void *context)
{
    if (length)
        leaf_store(session, spot, image, offset, length);
    if (placed)
        placed(context);
    tree_latch_leave(spot->latch, length);
    change_count(session, tree, length);
}

void tree_direct_store(struct tree_session *session, const struct tree *tree, const struct tree_spot *spot,
                       const uint8_t *image, uint32_t offset, uint32_t length)
{
    leaf_store(session, spot, image, offset, length);
    change_count(session, tree, length);
}

void tree_direct_done(struct tree_spot *spot)
{
    tree_latch_leave(spot->latch, true);
}
