/* world_check.c - what must hold in a world while no task is at work: no lock is held, every block has one
 * owner, the history has an order (contract: world.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swarm/linearize.h"
#include "swarm/world_parts.h"

static bool all_zero(const uint8_t *bytes, uint64_t count, uint64_t *at)
{
    /* A zero, and each byte the same as the one before: memcmp takes a fraction of the loop's time. */
    if (!count || (!bytes[0] && !memcmp(bytes, bytes + 1, count - 1)))
        return true;
    for (*at = 0; *at < count; ++*at)
        if (bytes[*at])
            return false;
    return true;
}

int world_check_locks(struct world *world)
{
    for (unsigned i = 0; i < world->options.memory_nodes; i++) {
        if (i == world->removed) /* its last holder may have heard of that before it could give it back */
            continue;
        const struct fabric_target *target = memory_node_target(world->memory[i]);
        uint64_t at;
        char text[GADDR_TEXT_BYTES];
        gaddr first = gaddr_make((uint16_t)i, GADDR_LOCK_REGION);
        bool free = all_zero(target->locks, target->lock_bytes, &at);
        if (free) {
            first = gaddr_make((uint16_t)i, MEMORY_LOCK_TABLE_OFFSET);
            free = all_zero(target->pool + MEMORY_LOCK_TABLE_OFFSET, target->lock_bytes, &at);
        }
        if (!free)
            return world_fail(world, BANYAN_ECORRUPT, "the lock %s is held though no task is at work",
                              gaddr_format(first + at, text));
    }
    return 0;
}

enum block_owner { OWNER_TREE, OWNER_WORKER };

struct piece {
    gaddr address;
    uint64_t bytes;
    enum block_owner owner;
};

struct pieces {
    struct piece *items;
    size_t count, capacity;
};

struct account {
    struct world *world;
    struct store_check_report report; /* of the index alone, without records */
    struct pieces owned, used;        /* by the tree and the workers; handed out by the memory nodes */
};

static void piece_add(struct pieces *pieces, struct piece piece)
{
    if (pieces->count == pieces->capacity) {
        pieces->capacity = pieces->capacity ? pieces->capacity * 2 : 256;
        pieces->items = realloc(pieces->items, pieces->capacity * sizeof *pieces->items);
        if (!pieces->items)
            abort();
    }
    pieces->items[pieces->count++] = piece;
}

static void visit_in_use(void *context, gaddr node, uint32_t bytes)
{
    struct account *account = context;
    piece_add(&account->owned, (struct piece){node, bytes, OWNER_TREE});
}

static void visit_held(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    piece_add(&account->owned, (struct piece){block, bytes, OWNER_WORKER});
}

static void visit_used(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    if (memory_node_is_log(account->world->memory[gaddr_node(block)], block))
        return; /* no index uses it: its process's log does, or the one that inherits it */
    piece_add(&account->used, (struct piece){.address = block, .bytes = bytes});
}

static int piece_order(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

static const char *owner_name(enum block_owner owner)
{
    static const char *const names[] = {"in use by the index", "held back by a worker"};
    return names[owner];
}

static int missing(struct account *account, const struct piece *piece)
{
    struct world *world = account->world;
    char text[GADDR_TEXT_BYTES];
    world->lost_bytes += piece->bytes;
    /* Excused: a dead node had taken and not linked the block, or a call whose reply was lost gave or took
     * it, or a write of unknown outcome named it, also of a node that was fenced for its ranges. */
    if (world_any_dead(world) || world_lossy(world) || world->options.ranges)
        return 0;
    return world_fail(world, BANYAN_ECORRUPT,
                      "the block of %" PRIu64 " bytes at %s is handed out, but has no owner", piece->bytes,
                      gaddr_format(piece->address, text));
}

/* Both sorted: the blocks with an owner must be those that are handed out. */
static int account_compare(struct account *account)
{
    char text[GADDR_TEXT_BYTES];
    const struct pieces *owned = &account->owned, *used = &account->used;
    size_t at = 0;
    for (size_t i = 0; i < owned->count; i++) {
        const struct piece *piece = &owned->items[i];
        if (i && piece->address == owned->items[i - 1].address)
            return world_fail(account->world, BANYAN_ECORRUPT, "node %s is %s and also %s",
                              gaddr_format(piece->address, text), owner_name(piece->owner),
                              owner_name(owned->items[i - 1].owner));
        for (; at < used->count && used->items[at].address < piece->address; at++) {
            int status = missing(account, &used->items[at]);
            if (status)
                return status;
        }
        if (at == used->count || used->items[at].address != piece->address ||
            used->items[at].bytes != piece->bytes)
            return world_fail(account->world, BANYAN_ECORRUPT, "node %s (%s) is not handed out",
                              gaddr_format(piece->address, text), owner_name(piece->owner));
        at++;
    }
    int status = 0;
    for (; at < used->count && !status; at++)
        status = missing(account, &used->items[at]);
    return status;
}

static void check_index(struct world_task *task)
{
    struct account *account = task->world->context;
    int status = task->store_session
                     ? store_check(task->store_session, &account->report, visit_in_use, account)
                     : tree_check(task->session, task->tree, &account->report.tree, visit_in_use, account);
    if (!world_session_status(task, status, "check"))
        world_ranges_check(task, visit_in_use, account);
}

static void pieces_sort(struct pieces *pieces)
{
    if (pieces->count)
        qsort(pieces->items, pieces->count, sizeof *pieces->items, piece_order);
}

int world_check_store(struct world *world, struct store_check_report *report)
{
    struct account account = {.world = world};
    void *context = world->context;
    world->lost_bytes = 0;
    world->context = &account;
    int status = world_run_one(world, world_survivor(world), check_index);
    world->context = context;
    for (unsigned i = 0; i < world->options.memory_nodes && !status; i++)
        memory_node_each_used(world->memory[i], visit_used, &account);
    for (unsigned i = 0; i < world->compute_count && !status; i++)
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            pool_worker_each_free(world->computes[i].workers[thread], visit_held, &account);
    pieces_sort(&account.owned);
    pieces_sort(&account.used);
    if (!status)
        status = account_compare(&account);
    if (report)
        *report = account.report;
    free(account.owned.items);
    free(account.used.items);
    return status;
}

int world_check(struct world *world, struct tree_check_report *report)
{
    struct store_check_report all = {0};
    int status = world_check_store(world, &all);
    if (report)
        *report = all.tree;
    return status;
}

int world_linearize(struct world *world)
{
    struct history_log *logs = world_allocate(world->task_count, sizeof *logs);
    for (unsigned i = 0; i < world->task_count; i++)
        logs[i] = world->tasks[i].log;
    size_t total;
    struct history_op *all = history_merge(logs, world->task_count, &total);
    char text[4000];
    const struct history_op *culprit;
    enum linearize_verdict verdict = linearize_all(all, total, &culprit, text, sizeof text);
    if (verdict != LINEARIZE_ACCEPTED)
        fprintf(stderr, "the history is not linearizable (verdict %d): %s\n", (int)verdict, text);
    if (culprit) {
        driver_blame(&world->tasks[0].driver, culprit->key);
        world->culprit = *culprit;
    }
    free(all);
    free(logs);
    return verdict == LINEARIZE_ACCEPTED
               ? 0
               : world_fail(world, BANYAN_ECONFLICT, "history, verdict %d: %.200s", (int)verdict, text);
}
