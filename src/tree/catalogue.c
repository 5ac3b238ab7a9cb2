/*
 * catalogue.c - Named indexes on memory node 0: superblock, entries, root words. One round trip for each
 * entry looked at; opening, creating and dropping are rare.
 */
#include "tree/catalogue.h"
#include "tree/logging.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/crc32c.h"
#include "format/catalogue.h"
#include "memory/memory.h"
#include "tree/announce.h"
#include "tree/cache.h"
#include "tree/entries.h"
#include "tree/index.h"
#include "tree/owned_cache.h"
#include "tree/locate.h"
#include "tree/rights.h"
#include "tree/session.h"
#include "tree/subtree.h"

#define SUPERBLOCK_MAGIC UINT64_C(0x6e61796e61427831)
#define FORMAT_VERSION   2u
#define ENTRIES          FORMAT_CATALOGUE_ENTRIES
#define ENTRIES_OFFSET   (MEMORY_CATALOGUE_OFFSET + FORMAT_CATALOGUE_FIRST)
#define ENTRIES_BYTES    (ENTRIES * FORMAT_CATALOGUE_ENTRY_BYTES)
#define MIRROR_NODE      1u /* has a copy of the entries, for its disk (P9) */
static_assert(ENTRIES_OFFSET + ENTRIES_BYTES <= MEMORY_CLUSTER_OFFSET, "the area has room");
static_assert(TREE_NAME_MAX == FORMAT_INDEX_NAME_MAX, "a name fits its entry");

struct superblock {
    uint64_t magic;
    uint32_t version;
    uint32_t crc; /* of magic and version */
};

static gaddr superblock_address(void)
{
    return gaddr_make(0, MEMORY_CATALOGUE_OFFSET);
}

static gaddr entry_address(uint32_t number)
{
    return gaddr_make(0, ENTRIES_OFFSET + number * FORMAT_CATALOGUE_ENTRY_BYTES);
}

static int format(struct tree_session *session)
{
    static const uint8_t zeros[FORMAT_CATALOGUE_ENTRY_BYTES];
    struct superblock block = {.magic = SUPERBLOCK_MAGIC, .version = FORMAT_VERSION};
    block.crc = crc32c(0, &block, offsetof(struct superblock, crc));
    for (uint32_t i = 0; i < ENTRIES; i++) {
        struct fabric_command clear =
            pool_write_command(entry_address(i), zeros, FORMAT_CATALOGUE_ENTRY_BYTES);
        int status = pool_execute(&session->pool, 0, &clear, 1);
        if (status)
            return status;
    }
    struct fabric_command write = pool_write_command(superblock_address(), &block, sizeof block);
    return pool_execute(&session->pool, 0, &write, 1);
}

int tree_format(struct tree_session *session)
{
    int status;
    pool_session_begin(&session->pool);
    do /* the same bytes again, wherever it was refused */
        status = format(session);
    while (tree_again(session, NULL, &status));
    return status;
}

static int superblock_validate(struct tree_session *session, const struct superblock *block)
{
    if (block->magic != SUPERBLOCK_MAGIC)
        return pool_fail(
            &session->pool, BANYAN_ECORRUPT,
            "memory node 0 holds no Banyan catalogue (its superblock is not one): format it first");
    if (block->crc != crc32c(0, block, offsetof(struct superblock, crc)))
        return pool_fail(&session->pool, BANYAN_ECORRUPT,
                         "memory node 0: the superblock at offset %u fails its check",
                         MEMORY_CATALOGUE_OFFSET);
    if (block->version != FORMAT_VERSION)
        return pool_fail(&session->pool, BANYAN_EVERSION,
                         "the pool has format version %u, this program reads version %u", block->version,
                         FORMAT_VERSION);
    return 0;
}

int tree_formatted(struct tree_session *session, bool *formatted)
{
    static const struct superblock none;
    struct superblock block;
    struct fabric_command read = pool_read_command(superblock_address(), &block, sizeof block);
    int status;
    pool_session_begin(&session->pool);
    do
        status = pool_execute(&session->pool, 0, &read, 1);
    while (tree_again(session, NULL, &status));
    if (status)
        return status;
    pool_read_settle(&read);
    *formatted = memcmp(&block, &none, sizeof block) != 0;
    return *formatted ? superblock_validate(session, &block) : 0;
}

/* Without the catalogue's lock. */
static int entry_read(struct tree_session *session, uint32_t number, struct format_catalogue_entry *entry)
{
    for (unsigned attempt = 0; attempt <= TREE_PATIENCE; attempt++) {
        struct fabric_command read = pool_read_command(entry_address(number), entry, sizeof *entry);
        int status = pool_execute(&session->pool, 0, &read, 1);
        if (status)
            return status;
        pool_read_settle(&read);
        if (format_catalogue_whole(entry)) {
            entry->name[TREE_NAME_MAX] = 0;
            return 0;
        }
    }
    return pool_corrupt(&session->pool, entry_address(number), "a catalogue entry fails its check");
}

/* Where a new index may go: the first of the free entries that have been used least often, so that the bits
 * of a generation come round as late as they can. */
struct vacancy {
    uint32_t number; /* ENTRIES: the catalogue is full */
    uint16_t generation;
};

/* Calls visit for each used entry until it returns true; *vacancy (may be NULL) is chosen among the free ones
 * met. */
static int catalogue_walk(struct tree_session *session,
                          bool (*visit)(void *, uint32_t, const struct format_catalogue_entry *),
                          void *context, bool *stopped, struct vacancy *vacancy)
{
    struct superblock block;
    struct fabric_command read = pool_read_command(superblock_address(), &block, sizeof block);
    int status = pool_execute(&session->pool, 0, &read, 1);
    if (status)
        return status;
    pool_read_settle(&read);
    status = superblock_validate(session, &block);
    *stopped = false;
    if (vacancy)
        vacancy->number = ENTRIES;
    for (uint32_t i = 0; i < ENTRIES && !status && !*stopped; i++) {
        struct format_catalogue_entry entry;
        status = entry_read(session, i, &entry);
        if (!status && entry.used)
            *stopped = visit(context, i, &entry);
        else if (!status && !entry.used && vacancy &&
                 (vacancy->number == ENTRIES || entry.generation < vacancy->generation))
            *vacancy = (struct vacancy){i, entry.generation};
    }
    return status;
}

struct search {
    const char *name;
    uint32_t number;
    struct format_catalogue_entry entry;
};

static bool search_visit(void *context, uint32_t number, const struct format_catalogue_entry *entry)
{
    struct search *search = context;
    if (format_catalogue_dropping(entry) || strcmp(entry->name, search->name))
        return false;
    search->number = number;
    search->entry = *entry;
    return true;
}

/* ---- opening ---- */

static int name_check(struct tree_session *session, const char *name)
{
    if (!name || !*name)
        return pool_fail(&session->pool, BANYAN_EINVAL, "an index needs a name");
    if (strlen(name) > TREE_NAME_MAX)
        return pool_fail(&session->pool, BANYAN_EINVAL, "the index name '%.20s...' is longer than %u bytes",
                         name, TREE_NAME_MAX);
    return 0;
}

static int tree_make(struct tree_session *session, const char *name, const struct format_geometry *geometry,
                     uint32_t number, uint16_t generation, struct tree **out)
{
    struct tree *tree = calloc(1, sizeof *tree);
    if (!tree)
        return pool_fail_memory(&session->pool);
    int status = format_layout_init(&tree->layout, geometry, &session->pool.error);
    if (status) {
        free(tree);
        return status;
    }
    tree->compute = session->compute;
    tree->entry = number;
    tree->generation = generation;
    tree->index = format_index_number(number, generation);
    tree->root_word = entry_address(number) + offsetof(struct format_catalogue_entry, root);
    strcpy(tree->name, name);
    tree->rights = tree_rights_acquire(session->compute, number, generation);
    tree->cache = tree_cache_create(session->compute->switches.cache_bytes,
                                    (uint8_t)session->compute->switches.cache_lowest, &tree->layout);
    if (!tree->cache || !tree->rights)
        status = pool_fail_memory(&session->pool);
    /* Where READs are mapped memory there is nothing to gain. */
    if (!status && !fabric_capabilities(session->pool.fabric)->direct)
        tree->owned = tree_rights_cache(tree->rights, geometry);
    if (tree->owned)
        tree_cache_share(tree->cache, tree->owned);
    if (!status)
        status = tree_buffers(session, tree);
    if (status)
        tree_close(tree);
    else
        *out = tree;
    return status;
}

static bool geometry_equal(const struct format_geometry *a, const struct format_geometry *b)
{
    return a->leaf_bytes == b->leaf_bytes && a->internal_bytes == b->internal_bytes &&
           a->key_kind == b->key_kind && a->key_bytes == b->key_bytes &&
           a->inline_key_bytes == b->inline_key_bytes && a->value_bytes == b->value_bytes &&
           a->value_variable == b->value_variable && a->content == b->content &&
           a->leaf_kind == b->leaf_kind && a->subtree_levels == b->subtree_levels;
}

/* Whether this program and its fabric can work on the index; its geometry. */
static int entry_usable(struct tree_session *session, uint32_t number,
                        const struct format_catalogue_entry *entry, struct format_geometry *geometry)
{
    format_catalogue_geometry(entry, geometry);
    struct format_geometry completed = *geometry;
    int status = format_geometry_complete(&completed, UINT32_MAX, &session->pool.error);
    if (!status && !geometry_equal(&completed, geometry))
        status =
            pool_corrupt(&session->pool, entry_address(number), "a catalogue entry's geometry is incomplete");
    const uint32_t atomic_write = fabric_capabilities(session->pool.fabric)->atomic_write;
    if (!status && geometry->internal_bytes > atomic_write)
        status =
            pool_fail(&session->pool, BANYAN_ENOTSUP,
                      "index %s has internal nodes of %u bytes, and this fabric writes at most %u at once "
                      "(RDMA: the path MTU; raise it on every machine, or use another fabric)",
                      entry->name, geometry->internal_bytes, atomic_write);
    return status;
}

int tree_open(struct tree_session *session, const char *name, struct tree **tree)
{
    *tree = NULL;
    struct search search = {.name = name};
    bool found;
    int status = name_check(session, name);
    pool_session_begin(&session->pool);
    if (!status)
        do
            status = catalogue_walk(session, search_visit, &search, &found, NULL);
        while (tree_again(session, NULL, &status));
    if (!status && !found)
        status = pool_fail(&session->pool, BANYAN_ENOTFOUND, "there is no index named '%s'", name);
    if (status)
        return status;
    struct format_geometry geometry;
    status = entry_usable(session, search.number, &search.entry, &geometry);
    if (status)
        return status;
    return tree_make(session, name, &geometry, search.number, search.entry.generation, tree);
}

void tree_close(struct tree *tree)
{
    if (!tree)
        return;
    tree_cache_destroy(tree->cache); /* its frames count in the rights' cache */
    if (tree->rights)
        tree_rights_release(tree->rights);
    format_layout_free(&tree->layout);
    free(tree);
}

const char *tree_name(const struct tree *tree)
{
    return tree->name;
}

const struct format_geometry *tree_geometry(const struct tree *tree)
{
    return &tree->layout.geometry;
}

void tree_cache_stats(const struct tree *tree, struct tree_cache_stats *stats)
{
    tree_cache_count(tree->cache, stats);
    stats->budget = tree->compute->switches.cache_bytes;
    if (tree->owned)
        owned_cache_count(tree->owned, false, stats);
}

/* ---- creating ---- */

static int root_leaf_write(struct tree_session *session, struct tree *tree, gaddr *root)
{
    const struct format_layout *layout = &tree->layout;
    int status = tree_top_allocate(session, tree, 0, GADDR_NULL, root);
    if (status)
        return status;
    struct format_header header = {
        .state = FORMAT_NODE_LIVE, .index = tree->index, .lower = format_key_least(layout)};
    bool fits = true;
    status = tree_leaf_build(session, layout, gaddr_node(*root), 1, 1, &header, NULL, 0, session->image.bytes,
                             &fits);
    if (!status) {
        struct fabric_command write =
            pool_write_command(*root, session->image.bytes, layout->geometry.leaf_bytes);
        status = pool_execute(&session->pool, gaddr_node(*root), &write, 1);
    }
    if (status)
        pool_release(&session->pool, *root, layout->geometry.leaf_bytes);
    return status;
}

static uint64_t root_marks(const struct tree *tree)
{
    return format_root_marks(tree->generation);
}

static int entry_write(struct tree_session *session, const struct tree *tree, gaddr root)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    struct format_catalogue_entry entry;
    if (format_root_address(root) != root)
        return pool_corrupt(&session->pool, root, "a root cannot lie there");
    memset(&entry, 0, sizeof entry);
    entry.root = root | root_marks(tree);
    entry.used = 1;
    format_catalogue_describe(&entry, geometry);
    entry.generation = tree->generation;
    strcpy(entry.name, tree->name);
    entry.crc = format_catalogue_crc(&entry);
    struct fabric_command write = pool_write_command(entry_address(tree->entry), &entry, sizeof entry);
    return pool_unknown(&session->pool, pool_execute(&session->pool, 0, &write, 1));
}

/* One attempt. Writing the entry is what creates the index; the lock's release has no say in it. */
static int create(struct tree_session *session, const char *name, const struct format_geometry *geometry,
                  struct tree **tree)
{
    struct search search = {.name = name};
    struct tree_hold hold;
    struct fabric_command unlock[1];
    struct vacancy vacancy;
    bool found;
    gaddr root;
    int status = tree_lock(session, superblock_address(), false, NULL, 0, &hold);
    if (status)
        return status;
    status = catalogue_walk(session, search_visit, &search, &found, &vacancy);
    if (!status && found)
        status = pool_fail(&session->pool, BANYAN_EEXIST, "an index named '%s' exists already", name);
    if (!status && vacancy.number == ENTRIES)
        status = pool_fail(&session->pool, BANYAN_ENOSPC, "the catalogue is full: %u indexes", ENTRIES);
    if (!status)
        status = tree_make(session, name, geometry, vacancy.number, vacancy.generation, tree);
    if (!status)
        status = root_leaf_write(session, *tree, &root);
    if (!status) {
        status = entry_write(session, *tree, root);
        if (status && status != BANYAN_EUNKNOWN)
            pool_release(&session->pool, root, (*tree)->layout.geometry.leaf_bytes); /* no link leads to it */
    }
    tree_unlock(session, &hold, unlock, 0);
    if (status) {
        tree_close(*tree);
        *tree = NULL;
    }
    return status;
}

int tree_create(struct tree_session *session, const char *name, const struct format_geometry *wanted,
                struct tree **tree)
{
    *tree = NULL;
    struct format_geometry geometry = *wanted;
    int status = name_check(session, name);
    pool_session_begin(&session->pool);
    if (!status)
        status = format_geometry_complete(&geometry, fabric_capabilities(session->pool.fabric)->atomic_write,
                                          &session->pool.error);
    if (status)
        return status;
    do
        status = create(session, name, &geometry, tree);
    while (tree_again(session, NULL, &status));
    if (!status)
        status = tree_catalogue_persist(session);
    if (status) {
        tree_close(*tree);
        *tree = NULL;
    }
    return status;
}

/* Under the catalogue's lock, so that of two that copy at once neither brings back what the other has
 * replaced. The process that changes an entry meanwhile copies it. */
static int mirror(struct tree_session *session, uint8_t *bytes)
{
    struct tree_hold hold;
    struct fabric_command read = pool_read_command(entry_address(0), bytes, ENTRIES_BYTES);
    struct fabric_command write =
        pool_write_command(gaddr_make(MIRROR_NODE, ENTRIES_OFFSET), bytes, ENTRIES_BYTES);
    int status = tree_lock(session, superblock_address(), false, NULL, 0, &hold);
    if (status)
        return status;
    status = pool_execute(&session->pool, 0, &read, 1);
    if (!status)
        pool_read_settle(&read);
    int copied = status ? status : pool_execute(&session->pool, MIRROR_NODE, &write, 1);
    if (!status && copied && copied != BANYAN_EFENCED)
        copied = 0; /* it is away: the next process that changes the catalogue, or starts, tries again */
    return tree_unlock_with(session, &hold, copied);
}

static int mirror_write(struct tree_session *session)
{
    uint8_t *bytes = malloc(ENTRIES_BYTES);
    int status = bytes ? 0 : pool_fail_memory(&session->pool);
    if (!status)
        do
            status = mirror(session, bytes);
        while (tree_again(session, NULL, &status));
    free(bytes);
    return status;
}

int tree_catalogue_persist(struct tree_session *session)
{
    const bool mirrored =
        fabric_membership(session->pool.fabric, MIRROR_NODE) && pool_on_disk(&session->pool, MIRROR_NODE);
    const uint16_t nodes[] = {0, MIRROR_NODE};
    int statuses[2] = {0};
    if (!pool_on_disk(&session->pool, 0))
        return 0;
    int status = mirrored ? mirror_write(session) : 0;
    if (status)
        return status;
    pool_persist_each(&session->pool, nodes, mirrored ? 2 : 1, statuses);
    return statuses[0] ? pool_persist_failed(&session->pool, 0, statuses[0]) : 0;
}

struct listing {
    void (*visit)(void *context, const char *name, const struct format_geometry *geometry);
    void *context;
    uint32_t from; /* entries before this one have been visited: a loss does not repeat them */
};

static bool listing_visit(void *context, uint32_t number, const struct format_catalogue_entry *entry)
{
    struct listing *listing = context;
    struct format_geometry geometry;
    if (number < listing->from || format_catalogue_dropping(entry))
        return false;
    listing->from = number + 1;
    format_catalogue_geometry(entry, &geometry);
    listing->visit(listing->context, entry->name, &geometry);
    return false;
}

int tree_list(struct tree_session *session,
              void (*visit)(void *, const char *, const struct format_geometry *), void *context)
{
    struct listing listing = {.visit = visit, .context = context};
    bool stopped;
    int status;
    pool_session_begin(&session->pool);
    do
        status = catalogue_walk(session, listing_visit, &listing, &stopped, NULL);
    while (tree_again(session, NULL, &status));
    return status;
}

/* ---- the root word ---- */

bool tree_is_dropped(const struct tree *tree)
{
    /* Relaxed: the flag orders nothing, it only saves the reading of the root word. */
    return atomic_load_relaxed(&tree->dropped);
}

int tree_dropped(struct tree_session *session, struct tree *tree)
{
    atomic_store_relaxed(&tree->dropped, true);
    tree_root_forget(tree);
    return pool_fail(&session->pool, BANYAN_ENOTFOUND, "index '%s' was dropped", tree->name);
}

int tree_root_doubt(struct tree_session *session, struct tree *tree, gaddr node, const char *what)
{
    struct format_catalogue_entry entry;
    int status = entry_read(session, tree->entry, &entry);
    if (status)
        return status;
    bool ours = entry.used && entry.generation == tree->generation && !format_catalogue_dropping(&entry);
    return ours ? pool_corrupt(&session->pool, node, what) : tree_dropped(session, tree);
}

static int root_word_read(struct tree_session *session, const struct tree *tree, uint64_t *word)
{
    struct fabric_command read = pool_read_command(tree->root_word, word, sizeof *word);
    int status = pool_execute(&session->pool, 0, &read, 1);
    if (!status)
        pool_read_settle(&read);
    return status;
}

static bool root_good(struct tree_session *session, gaddr root)
{
    return root != GADDR_NULL && pool_knows(&session->pool, gaddr_node(root));
}

int tree_root_read(struct tree_session *session, struct tree *tree, gaddr *root)
{
    uint64_t word;
    if (tree_is_dropped(tree))
        return tree_dropped(session, tree);
    int status = root_word_read(session, tree, &word);
    if (status)
        return status;
    *root = format_root_address(word);
    if ((word ^ *root) == root_marks(tree) && root_good(session, *root))
        return 0;
    return tree_root_doubt(session, tree, tree->root_word, "the catalogue's root pointer is none");
}

/* CAS of the whole word. *found: what stood there. */
static int root_word_swap(struct tree_session *session, const struct tree *tree, uint64_t from, uint64_t to,
                          uint64_t *found)
{
    struct fabric_command swap = {.operation = FABRIC_CAS,
                                  .address = tree->root_word,
                                  .cas = {.compare = from, .swap = to, .mask = UINT64_MAX}};
    int status = pool_execute(&session->pool, 0, &swap, 1);
    *found = swap.cas.old;
    return pool_unknown(&session->pool, status);
}

int tree_root_swap(struct tree_session *session, struct tree *tree, gaddr from, gaddr to, bool *swapped)
{
    const uint64_t marks = root_marks(tree);
    uint64_t found;
    *swapped = false;
    if (format_root_address(to) != to)
        return pool_corrupt(&session->pool, to, "a root cannot lie there");
    int status = root_word_swap(session, tree, from | marks, to | marks, &found);
    *swapped = !status && found == (from | marks);
    if (status || found == (format_root_address(found) | marks))
        return status;
    status = tree_root_doubt(session, tree, tree->root_word, "the catalogue's root pointer is none");
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

/* ---- dropping ---- */

int tree_condemn(struct tree_session *session, const char *name, bool *found)
{
    struct search search = {.name = name};
    struct format_geometry geometry;
    int status = name_check(session, name);
    for (*found = false; !status && !*found;) {
        bool there;
        status = catalogue_walk(session, search_visit, &search, &there, NULL);
        if (!status && there)
            status = entry_usable(session, search.number, &search.entry, &geometry);
        if (!status && there)
            status = tree_rights_whole(session, search.number, search.entry.generation, name);
        if (status || !there)
            break;
        const uint64_t dropping =
            format_root_address(search.entry.root) | format_root_dropping(search.entry.generation);
        struct fabric_command swap = {
            .operation = FABRIC_CAS,
            .address = entry_address(search.number) + offsetof(struct format_catalogue_entry, root),
            .cas = {.compare = search.entry.root, .swap = dropping, .mask = UINT64_MAX}};
        status = pool_unknown(&session->pool, pool_execute(&session->pool, 0, &swap, 1));
        *found = !status && swap.cas.old == search.entry.root; /* else the root has changed meanwhile */
    }
    return status;
}

struct condemned {
    const char *name; /* NULL: of any name */
    uint32_t from, number;
    struct format_catalogue_entry entry;
};

static bool condemned_visit(void *context, uint32_t number, const struct format_catalogue_entry *entry)
{
    struct condemned *condemned = context;
    if (number < condemned->from || !format_catalogue_dropping(entry) ||
        (condemned->name && strcmp(entry->name, condemned->name)))
        return false;
    condemned->number = number;
    condemned->entry = *entry;
    return true;
}

int tree_condemned_next(struct tree_session *session, const char *name, uint32_t *from, struct tree **tree)
{
    struct condemned condemned = {.name = name, .from = *from};
    struct format_geometry geometry;
    bool found;
    *tree = NULL;
    int status = catalogue_walk(session, condemned_visit, &condemned, &found, NULL);
    if (status || !found)
        return status;
    *from = condemned.number + 1;
    status = entry_usable(session, condemned.number, &condemned.entry, &geometry);
    if (status)
        return status;
    return tree_make(session, condemned.entry.name, &geometry, condemned.number, condemned.entry.generation,
                     tree);
}

int tree_condemned_root(struct tree_session *session, const struct tree *tree, gaddr *root)
{
    uint64_t word;
    int status = root_word_read(session, tree, &word);
    if (status)
        return status;
    *root = format_root_address(word);
    if ((word ^ *root) != format_root_dropping(tree->generation))
        return BANYAN_ENOTFOUND; /* it has been ended, and the entry may have another index */
    if (*root != GADDR_NULL && !root_good(session, *root))
        return pool_corrupt(&session->pool, tree->root_word, "the catalogue's root pointer is none");
    return 0;
}

int tree_condemned_swap(struct tree_session *session, const struct tree *tree, gaddr from, gaddr to,
                        bool *swapped)
{
    const uint64_t marks = format_root_dropping(tree->generation);
    uint64_t found;
    *swapped = false;
    if (format_root_address(to) != to)
        return pool_corrupt(&session->pool, to, "a root cannot lie there");
    int status = root_word_swap(session, tree, from | marks, to | marks, &found);
    *swapped = !status && found == (from | marks);
    return status;
}

int tree_condemned_end(struct tree_session *session, const struct tree *tree)
{
    struct format_catalogue_entry entry;
    struct tree_hold hold;
    struct fabric_command writes[2];
    int status = tree_lock(session, superblock_address(), false, NULL, 0, &hold);
    if (status)
        return status;
    status = entry_read(session, tree->entry, &entry);
    bool due = !status && entry.used && entry.root == format_root_dropping(tree->generation) &&
               entry.generation == tree->generation;
    if (!due)
        return tree_unlock_with(session, &hold, status);
    memset(&entry, 0, sizeof entry);
    entry.generation = (uint16_t)(tree->generation + 1);
    entry.crc = format_catalogue_crc(&entry);
    writes[0] = pool_write_command(entry_address(tree->entry), &entry, sizeof entry);
    return tree_unlock(session, &hold, writes, 1);
}
