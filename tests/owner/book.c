/* book.c - see book.h. */
#include "book.h"

#include <inttypes.h>
#include <string.h>

#include "base/task.h"
#include "party.h"
#include "tree/announce.h"
#include "tree/index.h"

#define MICROSECOND UINT64_C(1000)

void book_open(struct book *book, struct party *party)
{
    book->party = party;
    for (unsigned i = 0; i < BOOK_KEYS; i++)
        book->keys[i].number = i * party->keys / BOOK_KEYS;
    for (unsigned i = 0; i < 8; i++)
        book->sides[i] = (struct book_side){book, i};
}

static void wrong(struct book *book, unsigned compute, const struct book_key *key, const char *what)
{
    world_fail(&book->party->world, BANYAN_ECORRUPT,
               "the book: compute node %u, key %" PRIu64 ": %s (%u debts)", compute, key->number, what,
               key->count);
}

static struct fabric_process self(const struct book *book, unsigned compute)
{
    return party_process(book->party, compute);
}

/* ---- debts ---- */

static bool in_debt(const struct book_key *key, struct fabric_process process)
{
    for (unsigned i = 0; i < key->count; i++)
        if (fabric_process_equal(key->debts[i].process, process))
            return true;
    return false;
}

static void pay(struct book_key *key, struct fabric_process process)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < key->count; i++)
        if (!fabric_process_equal(key->debts[i].process, process))
            key->debts[kept++] = key->debts[i];
    key->count = kept;
}

static void owe(struct book *book, unsigned compute, struct book_key *key, uint64_t epoch)
{
    for (unsigned i = 0; i < key->count; i++)
        if (fabric_process_equal(key->debts[i].process, self(book, compute)) && key->debts[i].epoch == epoch)
            return;
    if (key->count == BOOK_DEBTS)
        wrong(book, compute, key, "more logs have changes than the map can name");
    else
        key->debts[key->count++] = (struct book_debt){.process = self(book, compute), .epoch = epoch};
}

/* Whether all debts are the process's, of this epoch, or it has inherited them. */
static bool settled(const struct book *book, unsigned compute, const struct book_key *key, uint64_t epoch)
{
    if (fabric_process_equal(key->inherited, self(book, compute)))
        return true;
    for (unsigned i = 0; i < key->count; i++)
        if (!fabric_process_equal(key->debts[i].process, self(book, compute)) || key->debts[i].epoch != epoch)
            return false;
    return true;
}

/* ---- rights ---- */

static const struct tree_row *row_of(const struct book *book, unsigned compute, const struct book_key *key)
{
    uint8_t bytes[FORMAT_KEY_MAX];
    const uint32_t length = (uint32_t)party_key(book->party, key->number, bytes);
    const struct tree *tree = book->party->world.computes[compute].tree;
    return tree_table_find(atomic_load_acquire(&tree->rights->table), (struct format_key){bytes, length},
                           false);
}

/* Whether what the process's table says is more than history: it is there, and no connection was lost since
 * it adopted. */
static bool acts(const struct book *book, unsigned compute)
{
    const struct world_compute *side = &book->party->world.computes[compute];
    const struct tree_table *table = atomic_load_acquire(&side->tree->rights->table);
    return !side->dead && sim_compute_alive(book->party->world.sim, (int)compute) &&
           atomic_load_relaxed(&table->incarnation) == fabric_incarnation(side->fabric) &&
           fabric_lease_alive(side->fabric);
}

/* With heirs that the process has adopted, only one that will be named with them serves the range. */
static bool may_serve(const struct book *book, unsigned compute, const struct book_key *key)
{
    const struct owner *owner = book->party->owners[compute];
    uint8_t bytes[FORMAT_KEY_MAX];
    const size_t length = party_key(book->party, key->number, bytes);
    const uint32_t at =
        owner_map_find(&owner->copy, tree_number(book->party->world.computes[compute].tree), bytes, length);
    const unsigned heirs = at == UINT32_MAX ? 0 : owner->copy.ranges[at].heir_count;
    return !heirs || (owner->options.log && heirs < FORMAT_RANGE_HEIRS_MAX);
}

/* Whether a process that keeps no log has inherited: then the leaves have it all. The others may learn that
 * its heirs are off before it does. */
static bool merged(const struct book *book, const struct book_key *key)
{
    for (unsigned i = 0; i < book->party->world.options.compute_nodes; i++)
        if (fabric_process_equal(self(book, i), key->inherited))
            return !book->party->owners[i]->options.log;
    return false;
}

void book_look(struct book *book)
{
    for (unsigned compute = 0; compute < book->party->world.options.compute_nodes; compute++)
        for (unsigned i = 0; i < BOOK_KEYS && acts(book, compute); i++) {
            struct book_key *key = &book->keys[i];
            const struct tree_row *row = row_of(book, compute, key);
            if (row->right == TREE_OWNED && !settled(book, compute, key, row->epoch))
                wrong(book, compute, key, "it is served before others' changes were inherited");
            else if (row->right == TREE_OWNED && !may_serve(book, compute, key))
                wrong(book, compute, key,
                      "it is served before its heirs are off, by one who is none of them");
            else if (row->right == TREE_OWNED && row->logged)
                owe(book, compute, key, row->epoch);
            else if (row->right == TREE_SHARED && key->count && !merged(book, key))
                wrong(book, compute, key, "it is shared before it was merged");
            else if (row->right == TREE_OTHERS && !row->logged && key->count && !merged(book, key))
                wrong(book, compute, key, "it is read in the pool before it was merged");
        }
}

static bool within(const struct book *book, const struct book_key *key, struct format_key lower,
                   const struct format_key *upper)
{
    uint8_t bytes[FORMAT_KEY_MAX];
    const struct format_key at = {bytes, (uint32_t)party_key(book->party, key->number, bytes)};
    return format_key_compare(at, lower) >= 0 && (!upper || format_key_compare(at, *upper) < 0);
}

/* ---- the hooks ---- */

/* Some calls fail, and others take their time. */
static int take_time(struct book *book, struct tree_session *session)
{
    task_sleep(30 * MICROSECOND);
    if (book->fail_every && ++book->calls % book->fail_every == 0)
        return pool_fail(tree_session_pool(session), BANYAN_ENET, "the book was not to be had");
    return 0;
}

static bool named(const struct format_heir *heirs, uint32_t count, struct fabric_process process,
                  uint64_t epoch)
{
    for (uint32_t i = 0; i < count; i++)
        if (fabric_process_equal(heirs[i].process, process) && heirs[i].epoch == epoch)
            return true;
    return false;
}

/* Whether the heirs have the change: its log, or that of one who has inherited it, or the leaves do. */
static bool found(const struct book *book, const struct book_key *key, const struct book_debt *debt,
                  const struct format_heir *heirs, uint32_t count)
{
    return named(heirs, count, debt->process, debt->epoch) ||
           (debt->copy.instance && named(heirs, count, debt->copy, debt->copied)) || merged(book, key);
}

/* All debts are this process's too. */
static void copy(struct book *book, unsigned compute, struct book_key *key, uint64_t epoch)
{
    key->inherited = self(book, compute);
    for (unsigned i = 0; i < key->count; i++) {
        key->debts[i].copy = key->inherited;
        key->debts[i].copied = epoch;
    }
    if (book->party->owners[compute]->options.log)
        owe(book, compute, key, epoch);
}

static int book_inherit(void *context, struct tree_session *session, struct tree *tree,
                        const struct format_heir *heirs, uint32_t heir_count, struct format_key lower,
                        const struct format_key *upper, uint64_t epoch)
{
    const struct book_side *side = context;
    struct book *book = side->book;
    book_look(book);
    book->inherits++;
    for (unsigned i = 0; i < BOOK_KEYS; i++) {
        struct book_key *key = &book->keys[i];
        if (!within(book, key, lower, upper))
            continue;
        if (row_of(book, side->compute, key)->right != TREE_MOVING)
            wrong(book, side->compute, key, "it is served while it is inherited");
        for (unsigned k = 0; k < key->count; k++)
            if (!found(book, key, &key->debts[k], heirs, heir_count))
                wrong(book, side->compute, key, "a log that has changes of it is not named");
            else if (key->debts[k].gone &&
                     named(heirs, heir_count, key->debts[k].process, key->debts[k].epoch))
                wrong(book, side->compute, key, "a log was let go that is to be inherited");
    }
    int status = take_time(book, session);
    for (unsigned i = 0; i < BOOK_KEYS && !status; i++)
        if (within(book, &book->keys[i], lower, upper))
            copy(book, side->compute, &book->keys[i], epoch);
    return status;
}

static void book_cleared(void *context, struct tree *tree, struct format_key lower,
                         const struct format_key *upper, uint64_t epoch)
{
    const struct book_side *side = context;
    struct book *book = side->book;
    book->clears++;
    for (unsigned i = 0; i < BOOK_KEYS; i++) {
        struct book_key *key = &book->keys[i];
        if (!within(book, key, lower, upper))
            continue;
        if (!fabric_process_equal(key->inherited, self(book, side->compute)))
            wrong(book, side->compute, key, "heirs were taken off that it has not inherited from");
        key->count = 0;
        key->inherited = (struct fabric_process){0};
        if (book->party->owners[side->compute]->options.log)
            owe(book, side->compute, key, epoch);
    }
    book_look(book);
}

static int book_flush(void *context, struct tree_session *session, struct tree *tree, struct format_key lower,
                      const struct format_key *upper)
{
    const struct book_side *side = context;
    struct book *book = side->book;
    book_look(book);
    book->flushes++;
    const uint64_t pinned = tree_session_pool(session)->pinned;
    int status = take_time(book, session);
    if (!status && pinned != fabric_incarnation(tree_session_pool(session)->fabric))
        status = pool_fail(tree_session_pool(session), BANYAN_EFENCED, "a connection was lost");
    for (unsigned i = 0; i < BOOK_KEYS && !status; i++) {
        struct book_key *key = &book->keys[i];
        if (!within(book, key, lower, upper))
            continue;
        if (row_of(book, side->compute, key)->right != TREE_MOVING)
            wrong(book, side->compute, key, "it is served while it is merged for others");
        pay(key, self(book, side->compute));
        if (key->count)
            wrong(book, side->compute, key, "it was not inherited, and is merged");
    }
    return status;
}

static void book_disown(void *context, struct tree *tree, struct format_key lower,
                        const struct format_key *upper, uint64_t epoch)
{
    const struct book_side *side = context;
    struct book *book = side->book;
    book->disowns++;
    for (unsigned i = 0; i < BOOK_KEYS; i++) {
        struct book_key *key = &book->keys[i];
        const struct tree_row *row = row_of(book, side->compute, key);
        if (within(book, key, lower, upper) && row->right == TREE_OWNED && row->epoch == epoch)
            wrong(book, side->compute, key, "it is disowned, and served");
    }
    book_look(book);
}

/* The process's log is not kept any more. Where it was inherited, and the heirs are off, the new owner learns
 * of that a little later. */
static void let_go(struct book *book, unsigned compute, struct book_key *key, struct fabric_process process)
{
    for (unsigned i = 0; i < key->count; i++)
        key->debts[i].gone |= fabric_process_equal(key->debts[i].process, process);
    if (in_debt(key, process) && !key->inherited.instance)
        wrong(book, compute, key, "a log was let go before it was inherited");
}

static void book_released(void *context, struct tree *tree, uint64_t version)
{
    const struct book_side *side = context;
    struct book *book = side->book;
    book_look(book);
    book->releases++;
    for (unsigned i = 0; i < BOOK_KEYS; i++) {
        if (row_of(book, side->compute, &book->keys[i])->right != TREE_OWNED)
            let_go(book, side->compute, &book->keys[i], self(book, side->compute));
    }
}

static void book_dropped(void *context, struct tree *tree)
{
    const struct book_side *side = context;
    for (unsigned i = 0; i < BOOK_KEYS; i++)
        if (in_debt(&side->book->keys[i], self(side->book, side->compute)))
            wrong(side->book, side->compute, &side->book->keys[i], "it was dropped before it was merged");
}

static int book_release_dead(void *context, struct tree_session *session, struct fabric_process gone)
{
    const struct book_side *side = context;
    struct book *book = side->book;
    book->given_back++;
    for (unsigned i = 0; i < BOOK_KEYS; i++)
        let_go(book, side->compute, &book->keys[i], gone);
    for (unsigned i = 0; i < book->party->world.options.compute_nodes; i++)
        if (fabric_process_equal(self(book, i), gone) && sim_compute_alive(book->party->world.sim, (int)i))
            world_fail(&book->party->world, BANYAN_ECORRUPT, "the book: compute node %u lives", i);
    return 0;
}

static void book_hurry(void *context, bool on)
{
    (void)context, (void)on;
}

const struct owner_log book_log = {.inherit = book_inherit,
                                   .cleared = book_cleared,
                                   .flush = book_flush,
                                   .hurry = book_hurry,
                                   .disown = book_disown,
                                   .released = book_released,
                                   .dropped = book_dropped,
                                   .release_dead = book_release_dead};
