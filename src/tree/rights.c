/*
 * rights.c - the table of rights: made, installed, announced; see rights.h and announce.h. Entering and
 * leaving cost some nanoseconds; adopting allocates the table, and takes as long as the longest operation
 * that it waits for. No round trips.
 */
#include "tree/rights.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/membarrier.h"
#include "base/task.h"
#include "tree/access.h"
#include "tree/owned_cache.h"
#include "tree/announce.h"
#include "tree/index.h"

/* What a session announces: a row; or a table with this bit, and relies on all of its rows, or is about to
 * choose one. */
#define ALL_ROWS 1u
/* How long adopt waits between two looks at the announcements. */
#define LOOK_FIRST_NS 2000u
#define LOOK_LAST_NS  50000u
/* Of a table that no loss of a connection makes doubtful. */
#define ANY_INCARNATION UINT64_MAX

/* ---- tables ---- */

static struct tree_table *table_allocate(uint32_t count, size_t key_bytes)
{
    size_t words = (count + 63u) / 64, rows = sizeof(struct tree_table) + count * sizeof(struct tree_row);
    struct tree_table *table = calloc(1, rows + words * sizeof(uint64_t) + key_bytes);
    if (!table)
        return NULL;
    table->count = count;
    table->gone = (uint64_t *)((char *)table + rows);
    return table;
}

/* The copied keys lie behind the bits. */
static struct tree_table *table_make(const struct tree_rights_row *rows, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        bytes += rows[i].lower_length;
    struct tree_table *table = table_allocate(count, bytes);
    if (!table)
        return NULL;
    uint8_t *keys = (uint8_t *)(table->gone + (count + 63u) / 64);
    for (uint32_t i = 0; i < count; i++) {
        struct tree_row *row = &table->rows[i];
        row->lower = (struct format_key){keys, rows[i].lower_length};
        row->right = rows[i].right;
        row->owner = rows[i].owner;
        row->epoch = rows[i].epoch;
        row->logged = rows[i].logged;
        row->unkept = rows[i].unkept;
        row->drains = rows[i].drains;
        if (rows[i].lower_length)
            memcpy(keys, rows[i].lower, rows[i].lower_length);
        keys += rows[i].lower_length;
        if (i) {
            row[-1].has_upper = true;
            row[-1].upper = row->lower;
        }
    }
    return table;
}

static struct tree_table *table_whole(enum tree_right right, bool unkept)
{
    struct tree_rights_row row = {.right = right, .unkept = unkept};
    struct tree_table *table = table_make(&row, 1);
    if (table)
        table->incarnation = ANY_INCARNATION;
    return table;
}

static void tables_free(struct tree_table *table)
{
    while (table) {
        struct tree_table *older = table->older;
        free(table);
        table = older;
    }
}

const struct tree_row *tree_table_find(const struct tree_table *table, struct format_key key, bool below)
{
    uint32_t low = 0,
             high = table->count; /* rows below low begin at or before the key; those from high not */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        int order = format_key_compare(table->rows[middle].lower, key);
        if (below ? order < 0 : order <= 0)
            low = middle;
        else
            high = middle;
    }
    return &table->rows[low];
}

/* ---- the compute node's ---- */

bool tree_wants_logs(const struct tree_compute *compute)
{
    return !compute->switches.unlogged && fabric_logs_on_disk(pool_fabric(compute->pool));
}

struct tree_rights *tree_rights_acquire(struct tree_compute *compute, uint32_t entry, uint16_t generation)
{
    const bool owned = compute->switches.ownership == TREE_OWNERSHIP_ALL;
    const bool unkept = tree_wants_logs(compute);
    struct tree_rights *fresh = calloc(1, sizeof *fresh);
    if (!fresh || !(fresh->table = table_whole(owned ? TREE_OWNED : TREE_SHARED, unkept))) {
        free(fresh);
        return NULL;
    }
    *fresh = (struct tree_rights){
        .table = fresh->table, .compute = compute, .references = 1, .entry = entry, .generation = generation};
    spinlock_lock(&compute->lock);
    struct tree_rights *rights = compute->rights;
    while (rights && (rights->entry != entry || rights->generation != generation))
        rights = rights->next;
    if (rights) {
        rights->references++;
    } else {
        fresh->next = compute->rights;
        compute->rights = fresh;
    }
    spinlock_unlock(&compute->lock);
    if (!rights)
        return fresh;
    free(fresh->table);
    free(fresh);
    return rights;
}

void tree_rights_release(struct tree_rights *rights)
{
    struct tree_compute *compute = rights->compute;
    spinlock_lock(&compute->lock);
    bool last = --rights->references == 0;
    if (last) {
        struct tree_rights **at = &compute->rights;
        while (*at != rights)
            at = &(*at)->next;
        *at = rights->next;
    }
    spinlock_unlock(&compute->lock);
    if (!last)
        return;
    owned_cache_destroy(rights->cache);
    unmerged_destroy(rights->unmerged);
    tables_free(rights->table);
    free(rights);
}

struct owned_cache *tree_rights_cache(struct tree_rights *rights, const struct format_geometry *geometry)
{
    struct tree_compute *compute = rights->compute;
    const struct tree_switches *switches = &compute->switches;
    const struct owned_cache_settings settings = {switches->cache_bytes,
                                                  (enum tree_cache_policy)switches->cache_policy,
                                                  switches->admission, switches->shortcuts_only};
    spinlock_lock(&compute->lock);
    struct owned_cache *cache = rights->cache;
    spinlock_unlock(&compute->lock);
    struct owned_cache *fresh = cache ? NULL : owned_cache_create(&settings, geometry);
    spinlock_lock(&compute->lock);
    if (!rights->cache) {
        rights->cache = fresh;
        fresh = NULL;
    }
    cache = rights->cache;
    spinlock_unlock(&compute->lock);
    owned_cache_destroy(fresh);
    return cache;
}

uint64_t tree_session_met(const struct tree_session *session, struct format_key *lower)
{
    *lower = format_key_of(&session->met);
    return session->met_epoch;
}

bool tree_session_wants_log(const struct tree_session *session)
{
    return session->wants_log;
}

bool tree_rights_unkept(struct tree_session *session, struct tree *tree, const void *key, size_t key_length)
{
    (void)tree_rights_enter(session, tree, (struct format_key){key, (uint32_t)key_length});
    const bool unkept = session->unkept;
    tree_rights_leave(session);
    return unkept;
}

/* ---- announcing ---- */

/* For tree_session_met. The row is announced. */
static void met(struct tree_session *session, const struct tree_row *row)
{
    if (row->right != TREE_MOVING)
        return;
    format_key_store(&session->met, row->lower);
    session->met_epoch = row->epoch;
}

/* What the session may do with the row's leaves: it may merge what leaves. */
static enum tree_right row_right(const struct tree_session *session, const struct tree_row *row)
{
    return row->drains && session->draining ? TREE_OWNED : row->right;
}

static void session_rely(struct tree_session *session, const struct tree_row *row)
{
    session->right = row_right(session, row);
    const bool mine = session->right == TREE_OWNED;
    session->drains = mine && row->right != TREE_OWNED;
    session->logged = row->logged || session->drains;
    session->unkept = row->unkept;
    session->log_epoch = session->drains ? row->drain_epoch : row->epoch;
    session->access = mine ? session->compute->owned_access : &tree_access_one_sided;
    /* Whoever was to merge, and was fenced meanwhile, has a right no more: the next owner inherits. */
    if (session->drains && session->pool.incarnation > row->drain_incarnation)
        session->pool.incarnation = row->drain_incarnation;
    met(session, row);
}

/* Lists that rely on the table go out under its incarnation, if connections were lost since. */
static void incarnation_bind(struct tree_session *session, const struct tree_table *table)
{
    /* Acquire: with the map that was fetched in it. */
    uint64_t incarnation = atomic_load_acquire(&table->incarnation);
    if (session->pool.incarnation > incarnation)
        session->pool.incarnation = incarnation;
}

bool tree_rights_stale(const struct tree_session *session, int *status)
{
    if (*status != BANYAN_EFENCED || !session->table ||
        session->pool.incarnation == fabric_incarnation(session->pool.fabric) ||
        session->pool.incarnation != atomic_load_acquire(&session->table->incarnation)) /* as above */
        return false;
    *status = TREE_WAIT;
    return true;
}

/* The installed table, with all its rows announced. */
static const struct tree_table *announce(struct tree_session *session, struct tree *tree)
{
    struct tree_rights *rights = tree->rights;
    const bool cheap = session->compute->membarrier;
    assert(!session->announced);
    /* Acquire: the rows. The first load's table may be freed already: it is only compared. */
    struct tree_table *table = atomic_load_acquire(&rights->table), *now;
    for (;; table = now) {
        /* Relaxed: what orders it before the load below is the barrier. */
        atomic_store_relaxed(&session->announced, (uintptr_t)table | ALL_ROWS);
        membarrier_light(cheap);
        now = atomic_load_acquire(&rights->table);
        if (__builtin_expect(now == table, 1))
            break;
    }
    session->table = table;
    session->row = NULL;
    session->cached = session->wants_log = false;
    return table;
}

static enum tree_right enter(struct tree_session *session, struct tree *tree, struct format_key key,
                             bool below)
{
    const struct tree_table *table = announce(session, tree);
    const struct tree_row *row = &table->rows[0];
    if (__builtin_expect(table->count > 1, 0)) {
        row = tree_table_find(table, key, below);
        /* Release: from here on adopt may see that the other rows are not relied on. */
        atomic_store_release(&session->announced, (uintptr_t)row);
    }
    session->row = row;
    if (__builtin_expect(row_right(session, row) <= TREE_OWNED, 1)) {
        incarnation_bind(session, table);
        session_rely(session, row);
        return session->right;
    }
    enum tree_right right = row->right;
    struct fabric_process owner = row->owner;
    const bool logged = row->logged, unkept = row->unkept;
    met(session, row);
    tree_rights_leave(session);
    session->right = right;
    session->owner = owner;
    session->logged = logged;
    session->unkept = unkept;
    /* O2: that the pool is what the owner tells rests on this table alone, and a later one may say that the
     * range is logged. */
    session->cached = right == TREE_OTHERS;
    return right;
}

enum tree_right tree_rights_enter(struct tree_session *session, struct tree *tree, struct format_key key)
{
    return enter(session, tree, key, false);
}

enum tree_right tree_rights_enter_below(struct tree_session *session, struct tree *tree,
                                        struct format_key key)
{
    return enter(session, tree, key, true);
}

void tree_rights_enter_all(struct tree_session *session, struct tree *tree)
{
    incarnation_bind(session, announce(session, tree));
}

enum tree_right tree_rights_switch(struct tree_session *session, struct tree *tree, struct format_key key)
{
    (void)tree;
    const struct tree_row *row = tree_table_find(session->table, key, false);
    session_rely(session, row);
    session->owner = row->owner;
    return session->right;
}

void tree_rights_leave(struct tree_session *session)
{
    /* Release: all that the operation did is done before the announcement goes. */
    atomic_store_release(&session->announced, (uintptr_t)0);
    session->table = NULL;
    session->row = NULL;
    session->right = TREE_SHARED;
    session->drains = session->logged = session->unkept = false;
    session->access = &tree_access_one_sided;
}

static int not_whole(struct tree_session *session, const struct tree_table *table, const char *name)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct tree_row *row = &table->rows[i];
        if (row->right == TREE_OTHERS)
            return pool_fail(&session->pool, BANYAN_EBUSY, "index %s: a range of it is compute node %u's",
                             name, row->owner.compute_id);
        if (row->right == TREE_MOVING)
            return pool_fail(&session->pool, BANYAN_EBUSY,
                             "index %s: a range of it is on its way to another owner", name);
    }
    return 0;
}

int tree_rights_enter_whole(struct tree_session *session, struct tree *tree)
{
    const struct tree_table *table = announce(session, tree);
    int status = not_whole(session, table, tree->name);
    if (status)
        tree_rights_leave(session);
    else
        incarnation_bind(session, table);
    return status;
}

bool tree_rights_alike(const struct tree_session *session)
{
    const struct tree_table *table = session->table;
    for (uint32_t i = 1; i < table->count; i++)
        if (table->rows[i].right != table->rows[0].right)
            return false;
    return true;
}

int tree_rights_whole(struct tree_session *session, uint32_t entry, uint16_t generation, const char *name)
{
    struct tree_compute *compute = session->compute;
    int status = 0;
    spinlock_lock(&compute->lock); /* tables are freed under it, or behind it */
    for (const struct tree_rights *rights = compute->rights; rights; rights = rights->next)
        if (rights->entry == entry && rights->generation == generation)
            status = not_whole(session, atomic_load_acquire(&rights->table), name); /* acquire: the rows */
    spinlock_unlock(&compute->lock);
    return status;
}

bool tree_rights_end(struct tree_session *session, struct tree *tree, struct format_key key, bool down,
                     struct format_key_copy *end)
{
    const enum tree_right right = session->right;
    const bool cached = session->cached, logged = session->logged, unkept = session->unkept;
    const struct tree_row *row = tree_table_find(announce(session, tree), key, down);
    const bool ends = down ? row->lower.length > 0 : row->has_upper;
    if (ends)
        format_key_store(end, down ? row->lower : row->upper);
    tree_rights_leave(session);
    session->right = right;
    session->cached = cached;
    session->logged = logged;
    session->unkept = unkept;
    return ends;
}

static bool row_holds(const struct tree_row *row, const struct tree_range *range)
{
    if (row->right != TREE_OWNED || !row->has_upper)
        return row->right == TREE_OWNED;
    if (!range->to)
        return false;
    const int order =
        format_key_compare((struct format_key){range->to, (uint32_t)range->to_length}, row->upper);
    return order < 0 || (!order && range->to_open);
}

bool tree_rights_held(struct tree_session *session, struct tree *tree, const struct tree_range *range,
                      uint64_t *epoch)
{
    const struct format_key from = {range->from, range->from ? (uint32_t)range->from_length : 0};
    /* Without the hook nobody else can have a right, as in tree_lapsed. A process that was fenced gets its
     * lease back only behind the table that says what became of its rows: so the lease comes first (it is
     * loaded with acquire). */
    const bool alive = !session->compute->forward.pause || fabric_lease_alive(session->pool.fabric);
    const struct tree_row *row = tree_table_find(announce(session, tree), from, false);
    const bool held = alive && row_holds(row, range);
    *epoch = row->epoch;
    tree_rights_leave(session);
    return held;
}

void tree_rights_rows(struct tree_session *session, struct tree *tree, tree_row_visit_function *visit,
                      void *context)
{
    const struct tree_table *table = announce(session, tree);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct tree_row *row = &table->rows[i];
        const struct tree_rights_row told = {.lower = row->lower.bytes,
                                             .lower_length = row->lower.length,
                                             .right = row->right,
                                             .owner = row->owner,
                                             .epoch = row->epoch,
                                             .logged = row->logged,
                                             .unkept = row->unkept,
                                             .drains = row->drains};
        visit(context, &told, row->has_upper ? &row->upper : NULL);
    }
    tree_rights_leave(session);
}

int tree_not_owned(struct tree_session *session, const struct tree *tree)
{
    return pool_fail(&session->pool, BANYAN_EFENCED, "index %s: this process does not own the key's range",
                     tree->name);
}

static bool row_covers(const struct tree_row *row, struct format_key lower, bool below)
{
    int order = row->lower.length ? format_key_compare(lower, row->lower) : 1;
    if (below ? order <= 0 : order < 0)
        return false;
    if (!row->has_upper)
        return true;
    order = format_key_compare(lower, row->upper);
    return below ? order <= 0 : order < 0;
}

static bool covers(const struct tree_session *session, struct format_key lower, bool below)
{
    if (session->right > TREE_OWNED || !session->table)
        return false;
    if (session->row)
        return row_covers(session->row, lower, below);
    const struct tree_row *row = tree_table_find(session->table, lower, below);
    /* Of a row that leaves only where the lists are bound to its incarnation already. */
    return row_right(session, row) == session->right &&
           (row->right <= TREE_OWNED || session->pool.incarnation <= row->drain_incarnation);
}

bool tree_rights_cover(const struct tree_session *session, struct format_key lower)
{
    return covers(session, lower, false);
}

bool tree_rights_cover_below(const struct tree_session *session, struct format_key lower)
{
    return covers(session, lower, true);
}

bool tree_rights_owns(const struct tree_session *session, struct format_key lower)
{
    if (!session->table)
        return false;
    const struct tree_row *row = session->row ? session->row : tree_table_find(session->table, lower, false);
    return row->right == TREE_OWNED && row_covers(row, lower, false);
}

bool tree_rights_first(const struct tree_session *session, struct format_key lower)
{
    if (!session->table || session->table->count == 1)
        return false;
    return !format_key_compare(tree_table_find(session->table, lower, false)->lower, lower);
}

/* ---- adopting ---- */

static int rows_fail(struct tree_session *session, const struct tree *tree, uint32_t number, const char *what)
{
    return pool_fail(&session->pool, BANYAN_EINVAL, "index %s: the map contradicts itself: range %u %s",
                     tree->name, number, what);
}

static int rows_check(struct tree_session *session, const struct tree *tree,
                      const struct tree_rights_row *rows, uint32_t count)
{
    const struct fabric_process self = fabric_self(session->pool.fabric);
    if (!count)
        return pool_fail(&session->pool, BANYAN_EINVAL, "index %s: the map has no range of it", tree->name);
    if (rows[0].lower_length)
        return rows_fail(session, tree, 0, "does not begin at the least key");
    for (uint32_t i = 0; i < count; i++) {
        const struct tree_rights_row *row = &rows[i];
        if (row->lower_length > FORMAT_KEY_MAX || (row->lower_length && !row->lower))
            return rows_fail(session, tree, i, "has a bound that is no key");
        if (i && format_key_compare((struct format_key){rows[i - 1].lower, rows[i - 1].lower_length},
                                    (struct format_key){row->lower, row->lower_length}) >= 0)
            return rows_fail(session, tree, i, "does not begin behind the one before it");
        if (row->right > TREE_MOVING)
            return rows_fail(session, tree, i, "has no such state");
        if (row->right == TREE_OTHERS && !row->owner.instance)
            return rows_fail(session, tree, i, "is another process's, which is not named");
        if (row->right == TREE_OTHERS && fabric_process_equal(row->owner, self))
            return rows_fail(session, tree, i, "is this process's, and said to be another's");
        if (row->logged && row->right != TREE_OWNED && row->right != TREE_OTHERS)
            return rows_fail(session, tree, i, "is logged, and nobody's");
        if (row->drains && row->right != TREE_MOVING)
            return rows_fail(session, tree, i, "is to be merged, and does not move");
        if (row->unkept && row->right == TREE_MOVING)
            return rows_fail(session, tree, i, "moves, and is said to be unkept by its owner");
    }
    return 0;
}

/* Whether what both rows have was under one right since the installed table's version. The epoch says since
 * which version all of a range has its owner (rights.h): it would be a later one if some of the range had
 * been away in between. So a range that has grown stays the same. Not where it is logged: changes are known
 * by the epoch under which they were. */
static bool row_lasts(const struct tree_row *row, const struct tree_row *now, uint64_t installed)
{
    return now->epoch == row->epoch || (now->right <= TREE_OWNED && !now->logged && now->epoch <= installed);
}

/* Whether the new table leaves the old row's right as it was, in all of its range. */
static bool row_stays(const struct tree_row *row, const struct tree_table *table, uint64_t installed)
{
    if (row->right > TREE_OWNED && !row->drains)
        return true; /* it gave none */
    const struct tree_row *end = table->rows + table->count;
    for (const struct tree_row *now = tree_table_find(table, row->lower, false); now < end; now++) {
        if (row->has_upper && format_key_compare(now->lower, row->upper) >= 0)
            break;
        if (now->right != row->right || !row_lasts(row, now, installed) || now->logged != row->logged ||
            now->unkept != row->unkept || now->drains != row->drains)
            return false;
    }
    return true;
}

/* Notes in the old tables which of their rows are lost. What was lost before stays so; what was not, the
 * installed table has too, whose version therefore counts for all of them. */
static void rows_compare(struct tree_table *fresh)
{
    const uint64_t installed = fresh->older->version;
    for (struct tree_table *table = fresh->older; table; table = table->older)
        for (uint32_t i = 0; i < table->count; i++)
            if (!row_stays(&table->rows[i], fresh, installed)) {
                table->gone[i / 64] |= UINT64_C(1) << i % 64;
                table->lost = true;
            }
}

static bool table_has(const struct tree_table *table, uintptr_t announced)
{
    return announced == ((uintptr_t)table | ALL_ROWS) ||
           (announced >= (uintptr_t)table->rows && announced < (uintptr_t)(table->rows + table->count));
}

/* Whether the announcement is of a row that is lost, or may be. */
static bool relies_on_lost(const struct tree_table *table, uintptr_t announced)
{
    if (announced & ALL_ROWS)
        return table->lost;
    size_t number = (announced - (uintptr_t)table->rows) / sizeof(struct tree_row);
    return table->gone[number / 64] >> number % 64 & 1;
}

/* Whether no operation relies on a lost row of these tables; marks those tables in use (as `used` bits by
 * their order, so far as that goes). */
static bool look(struct tree_compute *compute, const struct tree_table *tables)
{
    bool clear = true;
    spinlock_lock(&compute->lock);
    for (const struct tree_session *session = compute->sessions; session && clear; session = session->next) {
        /* Acquire: pairs with leave; what the operation did is done. */
        uintptr_t announced = atomic_load_acquire(&session->announced);
        for (const struct tree_table *table = tables; announced && table && clear; table = table->older)
            if (table_has(table, announced))
                clear = !relies_on_lost(table, announced);
    }
    spinlock_unlock(&compute->lock);
    return clear;
}

static bool in_use(struct tree_compute *compute, const struct tree_table *table)
{
    bool used = false;
    spinlock_lock(&compute->lock);
    for (const struct tree_session *session = compute->sessions; session && !used; session = session->next)
        used = table_has(table, atomic_load_acquire(&session->announced)); /* acquire: before it is freed */
    spinlock_unlock(&compute->lock);
    return used;
}

/* Frees the tables behind the installed one that no operation relies on any more. */
static void tables_trim(struct tree_compute *compute, struct tree_table *installed)
{
    for (struct tree_table **at = &installed->older; *at;) {
        struct tree_table *table = *at;
        if (in_use(compute, table)) {
            at = &table->older;
            continue;
        }
        *at = table->older;
        free(table);
    }
}

static void confirm(struct tree_table *table, uint64_t incarnation)
{
    if (atomic_load_relaxed(&table->incarnation) < incarnation) /* one adopts at a time */
        atomic_store_release(&table->incarnation, incarnation);
}

/* What is still cached of an earlier right to rows that this table gives goes before they are relied on. */
static void cache_regain(struct owned_cache *cache, struct epoch_slot *slot, const struct tree_table *table)
{
    for (uint32_t i = 0; i < table->count && cache; i++) {
        const struct tree_row *row = &table->rows[i];
        if (row->right == TREE_OWNED)
            owned_cache_regain(cache, slot, row->lower, row->has_upper ? &row->upper : NULL);
    }
}

/* What is cached of lost rows is to go: nobody relies on them any more. */
static void cache_drop(struct owned_cache *cache, struct epoch_slot *slot, const struct tree_table *tables)
{
    for (const struct tree_table *table = tables; table && cache; table = table->older)
        for (uint32_t i = 0; i < table->count; i++) {
            const struct tree_row *row = &table->rows[i];
            if (row->right == TREE_OWNED && table->gone[i / 64] >> i % 64 & 1)
                owned_cache_lose(cache, slot, row->lower, row->has_upper ? &row->upper : NULL);
        }
}

/* Whether the two rows give rights that must not be exercised at once: what the one relied on must be over,
 * and gone from the cache, before any operation relies on the other. Two shared rows exclude each other by
 * global locks. */
static bool rows_clash(const struct tree_row *now, const struct tree_row *then, uint64_t installed)
{
    if (now->right > TREE_OWNED || then->right > TREE_OWNED)
        return false;
    return now->right != then->right ||
           (now->right == TREE_OWNED && (!row_lasts(then, now, installed) || now->logged != then->logged));
}

/* The rows of both tables' bounds; where the installed table's right and the new one's clash, MOVING, else as
 * the new one says. Returns how many there are; *clashes: whether some do. */
static uint32_t rows_between(const struct tree_table *installed, const struct tree_table *fresh,
                             struct tree_rights_row *rows, bool *clashes)
{
    uint32_t count = 0;
    *clashes = false;
    for (uint32_t i = 0, j = 0; i < fresh->count && j < installed->count;) {
        const struct tree_row *now = &fresh->rows[i], *then = &installed->rows[j];
        struct format_key lower = format_key_compare(now->lower, then->lower) < 0 ? then->lower : now->lower;
        const bool clash = rows_clash(now, then, installed->version);
        struct tree_rights_row *row = &rows[count++];
        *row = (struct tree_rights_row){.lower = lower.bytes,
                                        .lower_length = lower.length,
                                        .right = clash ? TREE_MOVING : now->right,
                                        .epoch = now->epoch};
        if (!clash) {
            row->owner = now->owner;
            row->logged = now->logged;
            row->unkept = now->unkept;
            row->drains = now->drains;
        }
        *clashes = *clashes || clash;
        int order = !now->has_upper && !then->has_upper ? 0
                    : !now->has_upper                   ? 1
                    : !then->has_upper                  ? -1
                                                        : format_key_compare(now->upper, then->upper);
        i += order <= 0;
        j += order >= 0;
    }
    return count;
}

/* The table that is installed before the new one where a row would go straight from one right of this process
 * to another: it says MOVING there, so operations wait until those of before are over and what they cached is
 * dropped. *between is NULL where there is no such row, which is nearly always. BANYAN_ENOMEM. */
static int table_between(const struct tree_table *installed, const struct tree_table *fresh,
                         struct tree_table **between)
{
    bool clashes;
    struct tree_rights_row *rows = calloc((size_t)installed->count + fresh->count, sizeof *rows);
    *between = NULL;
    if (!rows)
        return BANYAN_ENOMEM;
    uint32_t count = rows_between(installed, fresh, rows, &clashes);
    if (clashes)
        *between = table_make(rows, count);
    free(rows);
    if (!clashes)
        return 0;
    if (!*between)
        return BANYAN_ENOMEM;
    (*between)->version = fresh->version;
    (*between)->incarnation = fresh->incarnation;
    return 0;
}

/* Rows on their way from this process, which has logged changes of them, may still be merged. Not those of
 * another epoch: they were others' meanwhile. */
static void rows_drain(const struct tree_table *installed, struct tree_table *fresh)
{
    for (uint32_t i = 0; i < fresh->count; i++) {
        struct tree_row *row = &fresh->rows[i];
        const struct tree_row *before = tree_table_find(installed, row->lower, false);
        row->drains = row->drains && row->epoch == before->epoch &&
                      (before->drains || (before->right == TREE_OWNED && before->logged));
        if (!row->drains)
            continue;
        row->drain_epoch = before->drains ? before->drain_epoch : before->epoch;
        row->drain_incarnation = before->drains ? before->drain_incarnation
                                                : atomic_load_relaxed(&installed->incarnation); /* mine */
    }
}

/* Installs the table, and waits for those who rely on what it takes away. `slot`: NULL where nothing is
 * cached. */
static void install(struct tree_rights *rights, struct tree_table *fresh, struct epoch_slot *slot)
{
    struct tree_compute *compute = rights->compute;
    fresh->older = atomic_load_relaxed(&rights->table); /* one task installs at a time */
    rows_drain(fresh->older, fresh);
    rows_compare(fresh);
    if (slot)
        cache_regain(rights->cache, slot, fresh);
    atomic_store_release(&rights->table, fresh);
    /* Behind this, every operation either has seen the new table or is seen below (announce.h, Order). */
    membarrier_all(compute->membarrier);
    for (uint64_t pause = LOOK_FIRST_NS; !look(compute, fresh->older);
         pause = pause < LOOK_LAST_NS ? 2 * pause : LOOK_LAST_NS)
        task_sleep(pause);
    if (slot)
        cache_drop(rights->cache, slot, fresh->older);
    tables_trim(compute, fresh);
}

/* Installs the table of these rows. */
static int adopt(struct tree_session *session, struct tree *tree, uint64_t version, uint64_t incarnation,
                 const struct tree_rights_row *rows, uint32_t count)
{
    struct tree_rights *rights = tree->rights;
    struct tree_table *table = atomic_load_relaxed(&rights->table); /* only this call changes it */
    struct tree_table *fresh = table_make(rows, count), *between;
    if (!fresh)
        return pool_fail_memory(&session->pool);
    fresh->version = version;
    fresh->incarnation = incarnation;
    if (table_between(table, fresh, &between)) {
        free(fresh);
        return pool_fail_memory(&session->pool);
    }
    if (between)
        install(rights, between, session->pool.epoch);
    install(rights, fresh, session->pool.epoch);
    atomic_store_release(&rights->version, version); /* readers of it see what was adopted */
    return 0;
}

int tree_rights_adopt(struct tree_session *session, struct tree *tree, uint64_t version, uint64_t incarnation,
                      const struct tree_rights_row *rows, uint32_t count)
{
    assert(!session->announced);
    int status = rows_check(session, tree, rows, count);
    if (status)
        return status;
    struct tree_table *table = atomic_load_relaxed(&tree->rights->table); /* only such calls change it */
    /* An index begins with a table that no map gave: the first one replaces it, whatever its version. */
    bool first = atomic_load_relaxed(&table->incarnation) == ANY_INCARNATION;
    if (version > table->version || first)
        return adopt(session, tree, version, incarnation, rows, count);
    if (version == table->version)
        confirm(table, incarnation);
    return 0;
}

int tree_rights_ready(struct tree_session *session, struct tree *tree, uint64_t version, uint64_t incarnation,
                      const struct tree_rights_row *rows, uint32_t count)
{
    assert(!session->announced);
    int status = rows_check(session, tree, rows, count);
    const struct tree_table *table = atomic_load_relaxed(&tree->rights->table); /* as above */
    if (status || table->version != version || atomic_load_relaxed(&table->incarnation) == ANY_INCARNATION)
        return status;
    return adopt(session, tree, version, incarnation, rows, count);
}

static int install_whole(struct tree *tree, enum tree_right right, struct error *error)
{
    struct tree_table *fresh = table_whole(right, false);
    if (!fresh)
        return error_set(error, BANYAN_ENOMEM, "no memory for the rights of index %s", tree->name);
    install(tree->rights, fresh, NULL);
    return 0;
}

int tree_rights_own(struct tree *tree, struct error *error)
{
    return install_whole(tree, TREE_OWNED, error);
}

int tree_rights_exempt(struct tree *tree, struct error *error)
{
    return install_whole(tree, TREE_SHARED, error);
}

bool tree_rights_sweep(struct tree_session *session, struct tree *tree)
{
    struct owned_cache *cache = tree->rights->cache; /* set before the first operation of the index */
    assert(!session->announced);
    return cache && owned_cache_sweep(cache, session->pool.epoch);
}

uint64_t tree_rights_version(const struct tree *tree)
{
    return atomic_load_acquire(&tree->rights->version);
}

enum tree_right tree_rights_at(const struct tree *tree, const void *key, size_t key_length,
                               uint64_t *incarnation)
{
    const struct tree_table *table = atomic_load_acquire(&tree->rights->table);
    *incarnation = atomic_load_relaxed(&table->incarnation); /* the caller is alone */
    return tree_table_find(table, (struct format_key){key, (uint32_t)key_length}, false)->right;
}

uint64_t tree_rights_logged_at(const struct tree *tree, const void *key, size_t key_length,
                               uint64_t *incarnation)
{
    const struct tree_table *table = atomic_load_acquire(&tree->rights->table);
    *incarnation = atomic_load_relaxed(&table->incarnation); /* the caller is alone */
    const struct tree_row *row =
        tree_table_find(table, (struct format_key){key, (uint32_t)key_length}, false);
    return row->right == TREE_OWNED && row->logged ? row->epoch : 0;
}

uint16_t tree_number(const struct tree *tree)
{
    return tree->index;
}

void tree_compute_set_forward(struct tree_compute *compute, const struct tree_forward *forward, void *context)
{
    compute->forward = *forward;
    compute->forward_context = context;
}
