/*
 * index.h - an open index: the object behind tree.h's `struct tree`. Private to src/tree/. Made by
 * tree_create and tree_open, shared by all sessions of a compute node; what changes after that is atomic or
 * under a lock of its own.
 */
#ifndef TREE_INDEX_H
#define TREE_INDEX_H

#include "base/atomic.h"
#include "format/header.h"
#include "tree/logging.h"
#include "tree/tree.h"

struct owned_cache;
struct tree_cache;
struct tree_rights;

struct tree {
    struct tree_compute *compute;
    struct tree_rights *rights; /* of this compute node, shared by its handles of the index (announce.h) */
    struct format_layout layout;
    char name[TREE_NAME_MAX + 1];
    uint32_t entry;      /* its number in the catalogue */
    uint16_t generation; /* of the entry: earlier indexes of it have been dropped */
    uint16_t index;      /* in the header of each node: from the entry and its generation */
    bool dropped;        /* relaxed: a task of this compute node has seen that; never false again */
    gaddr root_word;     /* in the catalogue */
    /* The root, which every operation begins at: read without a write to a shared cache line. The version is
     * odd while root_lock's holder changes the rest; all are atomic. */
    struct spinlock root_lock;
    uint32_t root_version;
    struct format_link root; /* address 0: not known */
    uint8_t root_level;
    struct tree_cache *cache;
    struct tree_values values; /* of the layer above; set before the first operation */
    void *values_context;
    const struct tree_served *served; /* of the layer above; NULL: it does nothing around such changes */
    void *served_context;
    struct owned_cache *owned; /* of what this process owns; the rights', NULL: none (owned_cache.h) */
};

#endif
