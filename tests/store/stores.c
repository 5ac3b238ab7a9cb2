/* stores.c - see stores.h. */
#include "stores.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"

void stores_options_default(struct world_options *options)
{
    world_options_default(options);
    store_geometry(&options->geometry);
    options->pool_bytes = UINT64_C(512) << 20;
    options->chunk_bytes = UINT64_C(2) << 20;
}

static uint64_t given_clock(void *context)
{
    struct stores *stores = context;
    return atomic_load_relaxed(&stores->now_ms); /* a number; it orders nothing */
}

void stores_now(struct stores *stores, uint64_t now_ms)
{
    atomic_store_relaxed(&stores->now_ms, now_ms);
}

int stores_create(struct stores *stores, const struct world_options *options)
{
    struct world *world = &stores->world;
    *stores = (struct stores){.now_ms = 1000};
    int status = world_create(world, options);
    world->context = stores;
    for (unsigned i = 0; i < world->options.compute_nodes && !status; i++) {
        status = store_wrap(&stores->stores[i], world->computes[i].tree, &world->error);
        if (!status) {
            world->computes[i].tree = NULL; /* store_close closes it */
            store_set_clock(stores->stores[i], given_clock, stores);
        }
    }
    if (status)
        return status;
    stores->sessions = calloc(world->task_count, sizeof(struct store_session *));
    if (!stores->sessions)
        abort();
    for (unsigned i = 0; i < world->task_count && !status; i++)
        status = store_session_create(&stores->sessions[i], stores->stores[world->tasks[i].compute],
                                      world->tasks[i].session, &world->error);
    return status;
}

void stores_destroy(struct stores *stores)
{
    for (unsigned i = 0; i < stores->world.task_count && stores->sessions; i++)
        store_session_destroy(stores->sessions[i]);
    free(stores->sessions);
    for (unsigned i = 0; i < WORLD_COMPUTE_MAX; i++)
        store_close(stores->stores[i]);
    world_destroy(&stores->world);
}

/* ---- accounting ---- */

struct piece {
    gaddr address;
    uint32_t bytes;
    const char *owner;
};

struct account {
    struct stores *stores;
    struct store_check_report report;
    struct piece *pieces;
    size_t count, capacity;
    const char *owner;
    int status;
    uint64_t lost;
};

static uint64_t last_lost; /* of the last check: for reports */

uint64_t stores_lost(const struct stores *stores)
{
    return last_lost;
}

static void account_add(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    if (account->count == account->capacity) {
        account->capacity = account->capacity ? 2 * account->capacity : 1024;
        account->pieces = realloc(account->pieces, account->capacity * sizeof *account->pieces);
        if (!account->pieces)
            abort();
    }
    account->pieces[account->count++] = (struct piece){block, bytes, account->owner};
}

static int piece_order(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

static void check_store(struct world_task *task)
{
    struct account *account = stores_of(task)->context;
    account->status = store_check(stores_session(task), &account->report, account_add, account);
    if (account->status)
        world_fail(task->world, account->status, "check: %s", tree_session_error(task->session)->text);
}

/* Each block handed out against the sorted pieces. */
static void account_used(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    struct world *world = &account->stores->world;
    struct piece wanted = {.address = block};
    struct piece *piece =
        account->count ? bsearch(&wanted, account->pieces, account->count, sizeof wanted, piece_order) : NULL;
    char text[GADDR_TEXT_BYTES];
    bool deaths = world_lossy(world);
    for (unsigned i = 0; i < world->options.compute_nodes; i++)
        deaths = deaths || world->computes[i].dead;
    if (!piece) {
        account->lost += bytes;
        if (!deaths)
            world_fail(world, BANYAN_ECORRUPT, "block %s of %u bytes is nobody's", gaddr_format(block, text),
                       bytes);
    } else if (piece->bytes != bytes) {
        world_fail(world, BANYAN_ECORRUPT, "block %s has %u bytes, its owner (%s) says %u",
                   gaddr_format(block, text), bytes, piece->owner, piece->bytes);
    } else {
        piece->owner = NULL; /* seen */
    }
}

static int account_judge(struct account *account)
{
    struct world *world = &account->stores->world;
    char text[GADDR_TEXT_BYTES];
    for (size_t i = 1; i < account->count; i++)
        if (account->pieces[i].address < account->pieces[i - 1].address + account->pieces[i - 1].bytes)
            return world_fail(world, BANYAN_ECORRUPT, "block %s is %s and also %s",
                              gaddr_format(account->pieces[i].address, text), account->pieces[i - 1].owner,
                              account->pieces[i].owner);
    for (unsigned i = 0; i < world->options.memory_nodes; i++)
        memory_node_each_used(world->memory[i], account_used, account);
    for (size_t i = 0; i < account->count; i++)
        if (account->pieces[i].owner)
            return world_fail(world, BANYAN_ECORRUPT, "block %s is %s, and has not been handed out",
                              gaddr_format(account->pieces[i].address, text), account->pieces[i].owner);
    return world->error.code;
}

int stores_check(struct stores *stores, struct store_check_report *report)
{
    struct world *world = &stores->world;
    struct account account = {.stores = stores, .owner = "the store's"};
    void *context = stores->context;
    unsigned per_compute = world->options.threads * world->options.fibers, survivor = 0;
    while (survivor < world->options.compute_nodes - 1 && world->computes[survivor].dead)
        survivor++;
    stores->context = &account;
    int status = world_run_one(world, survivor * per_compute, check_store);
    stores->context = context;
    account.owner = "held back by a worker";
    for (unsigned i = 0; i < world->options.compute_nodes && !status; i++)
        for (unsigned thread = 0; thread < world->options.threads; thread++)
            tree_worker_each_free(world->computes[i].workers[thread], account_add, &account);
    if (account.count)
        qsort(account.pieces, account.count, sizeof *account.pieces, piece_order);
    if (!status)
        status = account_judge(&account);
    last_lost = account.lost;
    if (report)
        *report = account.report;
    free(account.pieces);
    return status;
}

/* ---- values ---- */

static uint64_t word_of(uint64_t number, size_t at)
{
    return random_mix(number * UINT64_C(0x9e3779b97f4a7c15) + at);
}

void stores_fill(uint64_t number, uint8_t *bytes, size_t length)
{
    for (size_t at = 0; at < length; at += 8) {
        uint64_t word = word_of(number, at);
        memcpy(bytes + at, &word, length - at < 8 ? length - at : 8);
    }
}

bool stores_filled(uint64_t number, const uint8_t *bytes, size_t length)
{
    for (size_t at = 0; at < length; at += 8) {
        uint64_t word = word_of(number, at);
        if (memcmp(bytes + at, &word, length - at < 8 ? length - at : 8))
            return false;
    }
    return true;
}
