/*
 * test_store_logged.c - a store in a range that this process owns and logs: random operations of all sizes
 * against copies in memory, with mergings, flushes, and owners that die and are inherited from between any
 * two operations. In the end everything is merged, and each block of the pool has one owner: after deaths
 * blocks may be lost, but none is in two hands. And what puts and gets cost. One thread. BANYAN_SEED replays
 * a seed, BANYAN_ROUNDS scales how many there are.
 */
#include "logged_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"

#define KEYS       120u
#define STEPS      900u
#define VALUE_MAX  (400u << 10)
#define GRAVES_MAX 64u

struct entry {
    bool present;
    size_t length;
    uint64_t expires;
    uint8_t *bytes; /* VALUE_MAX; owned */
};

struct world {
    struct random random;
    uint64_t seed, now;
    struct processes processes;
    struct logged_store side, graves[GRAVES_MAX];
    unsigned grave_count;
    bool deaths; /* some owners die */
    struct entry entries[KEYS];
    uint8_t *bytes;
};

static void check(const struct logged_store *side, int status)
{
    process_check(side->process, status);
}

static uint64_t world_now(void *context)
{
    return ((const struct world *)context)->now;
}

static void owner_begins(struct world *world)
{
    logged_store_open(&world->side, &world->processes, "logged", random_next(&world->random));
    store_set_clock(world->side.store, world_now, world);
}

static void owner_dies(struct world *world)
{
    process_dies(&world->processes, world->side.process);
    world->graves[world->grave_count++] = world->side;
    owner_begins(world);
}

/* ---- blocks ---- */

struct block {
    gaddr address;
    uint32_t bytes;
};
struct blocks {
    struct block *items; /* owned */
    size_t count, capacity;
};
struct account {
    struct world *world;
    struct blocks owned, used;
};

static void block_add(struct blocks *blocks, gaddr address, uint32_t bytes)
{
    if (blocks->count == blocks->capacity) {
        blocks->capacity = blocks->capacity ? 2 * blocks->capacity : 1024;
        blocks->items = realloc(blocks->items, blocks->capacity * sizeof *blocks->items);
        assert_non_null(blocks->items);
    }
    blocks->items[blocks->count++] = (struct block){address, bytes};
}

static void visit_owned(void *context, gaddr block, uint32_t bytes)
{
    block_add(&((struct account *)context)->owned, block, bytes);
}

static void visit_used(void *context, gaddr block, uint32_t bytes)
{
    struct account *account = context;
    if (!memory_node_is_log(account->world->processes.memory[gaddr_node(block)], block))
        block_add(&account->used, block, bytes);
}

static int block_order(const void *a, const void *b)
{
    const struct block *one = a, *two = b;
    return one->address < two->address ? -1 : one->address > two->address;
}

/* Everything is merged: the index is sound, and its blocks, and those that its worker holds back, are handed
 * out, each once. Without deaths no others are. */
static void check_blocks(struct world *world)
{
    struct logged_store *side = &world->side;
    struct account account = {.world = world};
    struct store_check_report report;
    unsigned present = 0;
    size_t at = 0, lost = 0;
    check(side, store_check(side->records, &report, visit_owned, &account));
    for (unsigned i = 0; i < KEYS; i++)
        present += world->entries[i].present &&
                   (!world->entries[i].expires || world->entries[i].expires > world->now);
    assert_int_equal(report.tree.entries - report.expired, present);
    pool_worker_each_free(side->process->worker, visit_owned, &account);
    for (unsigned n = 0; n < PROCESSES_NODES; n++)
        memory_node_each_used(world->processes.memory[n], visit_used, &account);
    qsort(account.owned.items, account.owned.count, sizeof *account.owned.items, block_order);
    qsort(account.used.items, account.used.count, sizeof *account.used.items, block_order);
    for (size_t i = 0; i < account.owned.count; i++) {
        const struct block *block = &account.owned.items[i];
        if (i && block[-1].address == block->address)
            fail_msg("seed %llu: the block %016llx is in two hands", (unsigned long long)world->seed,
                     (unsigned long long)block->address);
        for (; at < account.used.count && account.used.items[at].address < block->address; at++)
            lost++;
        if (at == account.used.count || account.used.items[at].address != block->address ||
            account.used.items[at].bytes != block->bytes)
            fail_msg("seed %llu: the block %016llx of %u bytes is not handed out",
                     (unsigned long long)world->seed, (unsigned long long)block->address, block->bytes);
        at++;
    }
    lost += account.used.count - at;
    if (lost && !world->grave_count)
        fail_msg("seed %llu: %zu blocks have no owner", (unsigned long long)world->seed, lost);
    free(account.owned.items);
    free(account.used.items);
}

/* ---- operations ---- */

static size_t key_make(unsigned number, char key[16])
{
    return (size_t)snprintf(key, 16, "key:%04u", number);
}

static uint64_t below(struct world *world, uint64_t bound)
{
    return random_below(&world->random, bound);
}

static bool live(const struct world *world, const struct entry *entry)
{
    return entry->present && (!entry->expires || entry->expires > world->now);
}

static size_t length_draw(struct world *world)
{
    switch (below(world, 10)) {
    case 0:
        return (70u << 10) + below(world, 60u << 10);
    case 1:
        return 9000 + below(world, 40000);
    case 2:
    case 3:
    case 4:
    case 5:
        return 17 + below(world, 2000);
    default:
        return below(world, 17);
    }
}

static uint64_t expiry_draw(struct world *world)
{
    return below(world, 4) ? 0 : world->now + 1 + below(world, 200);
}

static void bytes_draw(struct world *world, uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i += 8) {
        uint64_t word = random_next(&world->random);
        memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
    }
}

static void entry_put(struct entry *entry, const uint8_t *bytes, size_t length, uint64_t expires)
{
    entry->present = true;
    entry->length = length;
    entry->expires = expires;
    memcpy(entry->bytes, bytes, length);
}

static void expect(struct world *world, unsigned number, const struct store_value *value, int status)
{
    const struct entry *entry = &world->entries[number];
    if (status != (live(world, entry) ? 0 : BANYAN_ENOTFOUND))
        fail_msg("seed %llu, key %u: %s: %s", (unsigned long long)world->seed, number, error_name(status),
                 tree_session_error(world->side.process->session)->text);
    if (status)
        return;
    assert_int_equal(value->length, entry->length);
    assert_int_equal(value->expires, entry->expires);
    if (value->bytes)
        assert_memory_equal(value->bytes, entry->bytes, entry->length);
}

static void op_put(struct world *world)
{
    unsigned number = (unsigned)below(world, KEYS);
    char key[16];
    size_t length = length_draw(world);
    uint64_t expires = expiry_draw(world);
    bytes_draw(world, world->bytes, length);
    check(&world->side,
          store_put(world->side.records, key, key_make(number, key), world->bytes, length, expires));
    entry_put(&world->entries[number], world->bytes, length, expires);
}

static void op_get(struct world *world)
{
    unsigned number = (unsigned)below(world, KEYS);
    char key[16];
    struct store_value value;
    int status = below(world, 3) ? store_get(world->side.records, key, key_make(number, key), &value)
                                 : store_stat(world->side.records, key, key_make(number, key), &value);
    expect(world, number, &value, status);
}

static void op_delete(struct world *world)
{
    unsigned number = (unsigned)below(world, KEYS);
    char key[16];
    int status = store_delete(world->side.records, key, key_make(number, key));
    expect(world, number,
           &(struct store_value){.length = world->entries[number].length,
                                 .expires = world->entries[number].expires},
           status);
    world->entries[number].present = false;
}

/* store_modify: a new value that depends on the old one, or the expiry alone. */
struct change {
    bool expiry;
    uint64_t expires;
    const uint8_t *bytes;
    size_t length;
};

static enum store_verdict change_function(void *context, const struct store_value *old,
                                          struct store_value *new)
{
    const struct change *change = context;
    if (!old)
        return STORE_KEEP;
    *new = (struct store_value){.expires = change->expires};
    if (!change->expiry) {
        new->bytes = change->bytes;
        new->length = change->length;
    }
    return STORE_PUT;
}

static void op_modify(struct world *world)
{
    unsigned number = (unsigned)below(world, KEYS);
    struct entry *entry = &world->entries[number];
    struct change change = {.expiry = below(world, 2) == 0,
                            .expires = expiry_draw(world),
                            .bytes = world->bytes,
                            .length = length_draw(world)};
    char key[16];
    bool existed;
    struct store_value old;
    bytes_draw(world, world->bytes, change.length);
    check(&world->side, store_modify(world->side.records, key, key_make(number, key),
                                     change.expiry ? STORE_NEED_LENGTH : STORE_NEED_VALUE, change_function,
                                     &change, &old, &existed));
    assert_int_equal(existed, live(world, entry));
    if (!existed) {
        entry->present = false;
        return;
    }
    if (!change.expiry)
        assert_memory_equal(old.bytes, entry->bytes, entry->length);
    if (change.expiry)
        entry->expires = change.expires;
    else
        entry_put(entry, world->bytes, change.length, change.expires);
}

static void op_splice(struct world *world)
{
    unsigned number = (unsigned)below(world, KEYS);
    struct entry *entry = &world->entries[number];
    char key[16];
    uint64_t whole;
    if (!live(world, entry))
        *entry = (struct entry){.bytes = entry->bytes};
    bool append = below(world, 2) == 0;
    size_t offset = append ? entry->length : (size_t)below(world, entry->length + 1000);
    size_t length = 1 + length_draw(world);
    if (offset + length > VALUE_MAX)
        return;
    bytes_draw(world, world->bytes, length);
    check(&world->side, store_splice(world->side.records, key, key_make(number, key),
                                     append ? STORE_AT_END : offset, world->bytes, length, &whole));
    if (offset > entry->length)
        memset(entry->bytes + entry->length, 0, offset - entry->length);
    memcpy(entry->bytes + offset, world->bytes, length);
    entry->length = offset + length > entry->length ? offset + length : entry->length;
    entry->present = true;
    assert_int_equal(whole, entry->length);
}

#define MANY 40u

static void op_many(struct world *world)
{
    struct store_item items[MANY];
    char keys[MANY][16];
    unsigned numbers[MANY], count = 1 + (unsigned)below(world, MANY);
    bool put = below(world, 2);
    size_t at = 0;
    for (unsigned i = 0; i < count; i++) {
        numbers[i] = (unsigned)below(world, KEYS);
        items[i] = (struct store_item){.key = keys[i], .key_length = key_make(numbers[i], keys[i])};
        if (!put)
            continue;
        size_t length = below(world, 2) ? below(world, 17) : below(world, 5000);
        items[i].value =
            (struct store_value){.bytes = world->bytes + at, .length = length, .expires = expiry_draw(world)};
        bytes_draw(world, world->bytes + at, length);
        entry_put(&world->entries[numbers[i]], world->bytes + at, length, items[i].value.expires);
        at += length;
    }
    check(&world->side, put ? store_multi_put(world->side.records, items, count)
                            : store_multi_get(world->side.records, items, count, false));
    for (unsigned i = 0; i < count && !put; i++)
        expect(world, numbers[i], &items[i].value, items[i].status);
}

struct walk {
    struct world *world;
    unsigned next;
};

static bool walk_visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct walk *walk = context;
    char expected[16];
    while (walk->next < KEYS && !live(walk->world, &walk->world->entries[walk->next]))
        walk->next++;
    assert_true(walk->next < KEYS);
    assert_int_equal(key_length, key_make(walk->next, expected));
    assert_memory_equal(key, expected, key_length);
    expect(walk->world, walk->next++, value, 0);
    return true;
}

static void op_scan(struct world *world)
{
    struct walk walk = {.world = world};
    const struct tree_range all = {0};
    check(&world->side, store_scan(world->side.records, &all,
                                   below(world, 2) ? STORE_SCAN_VALUES : STORE_SCAN_KEYS, walk_visit, &walk));
    for (; walk.next < KEYS; walk.next++)
        assert_false(live(world, &world->entries[walk.next]));
}

static void op_delete_range(struct world *world)
{
    unsigned from = (unsigned)below(world, KEYS), present = 0;
    char lower[16], upper[16];
    uint64_t count;
    unsigned to = from + (unsigned)below(world, 6);
    const struct tree_range range = {.from = lower,
                                     .from_length = key_make(from, lower),
                                     .to = upper,
                                     .to_length = key_make(to, upper),
                                     .to_open = true};
    for (unsigned i = from; i < to && i < KEYS; i++) {
        present += live(world, &world->entries[i]);
        world->entries[i].present = false;
    }
    check(&world->side, store_delete_range(world->side.records, &range, &count));
    assert_int_equal(count, present);
}

static void op_sample(struct world *world)
{
    char key[FORMAT_KEY_MAX + 1] = "";
    size_t length = FORMAT_KEY_MAX;
    int status = store_sample(world->side.records, key, &length);
    assert_true(!status || status == BANYAN_ENOTFOUND);
}

static void op_sweep(struct world *world)
{
    struct store_sweep *sweep = calloc(1, sizeof *sweep);
    assert_non_null(sweep);
    check(&world->side, store_sweep_step(world->side.records, sweep, 1000));
    free(sweep);
}

/* ---- what happens between them ---- */

static void merge_some(struct world *world)
{
    struct logged_store *side = &world->side;
    struct tree_log_walk walk = {.least = UINT64_MAX};
    char key[16];
    uint32_t length = (uint32_t)key_make((unsigned)below(world, KEYS), key);
    format_key_store(&walk.from, (struct format_key){(const uint8_t *)key, length});
    check(side,
          tree_log_apply(side->process->session, side->process->tree, &walk, 1 + (uint32_t)below(world, 60)));
}

static void something(struct world *world)
{
    struct logged_store *side = &world->side;
    switch (below(world, 10)) {
    case 0:
        if (world->deaths && world->processes.heir_count < 3 && world->grave_count < GRAVES_MAX)
            owner_dies(world);
        break;
    case 1:
        if (world->processes.heir_count < 3) { /* away and back, to itself */
            process_gives_away(&world->processes, side->process);
            process_own(&world->processes, side->process);
        }
        break;
    case 2:
    case 3:
        heirs_end(&world->processes, side->process);
        break;
    case 4:
        check(side, log_flush_all(side->process->log, side->process->session));
        break;
    default:
        merge_some(world);
    }
}

static void step(struct world *world)
{
    uint64_t what = below(world, 100);
    world->now += below(world, 3);
    if (what < 25)
        op_put(world);
    else if (what < 40)
        op_get(world);
    else if (what < 47)
        op_delete(world);
    else if (what < 59)
        op_modify(world);
    else if (what < 71)
        op_splice(world);
    else if (what < 77)
        op_many(world);
    else if (what < 80)
        op_scan(world);
    else if (what < 82)
        op_delete_range(world);
    else if (what < 83)
        op_sample(world);
    else if (what < 84)
        op_sweep(world);
    else
        something(world);
}

static void settle(struct world *world)
{
    struct logged_store *side = &world->side;
    heirs_end(&world->processes, side->process);
    check(side, log_flush_all(side->process->log, side->process->session));
    assert_int_equal(unmerged_count(tree_log_table(side->process->tree)), 0);
    check_blocks(world);
}

static struct world *world_open(uint64_t seed)
{
    struct world *world = calloc(1, sizeof *world);
    const struct memory_options memory = {.pool_bytes = 128 << 20};
    assert_non_null(world);
    random_seed(&world->random, seed);
    world->seed = seed;
    world->now = 1000;
    world->deaths = seed % 3;
    world->bytes = malloc(VALUE_MAX);
    assert_non_null(world->bytes);
    for (unsigned i = 0; i < KEYS; i++) {
        world->entries[i].bytes = malloc(VALUE_MAX);
        assert_non_null(world->entries[i].bytes);
    }
    processes_open_as(&world->processes, PROCESSES_NODES, &memory);
    world->processes.options.copies = 1 + (uint32_t)(seed % 2);
    world->processes.options.seed = seed;
    owner_begins(world);
    return world;
}

static void world_close(struct world *world)
{
    logged_store_close(&world->side);
    for (unsigned i = 0; i < world->grave_count; i++)
        logged_store_close(&world->graves[i]);
    processes_close(&world->processes);
    for (unsigned i = 0; i < KEYS; i++)
        free(world->entries[i].bytes);
    free(world->bytes);
    free(world);
}

static void world_run(uint64_t seed)
{
    struct world *world = world_open(seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (unsigned i = 1; i <= STEPS; i++) {
        step(world);
        if (i % 150 == 0)
            settle(world);
    }
    settle(world);
    op_scan(world);
    check(&world->side, log_close(world->side.process->log, world->side.process->session));
    world_close(world);
}

static void test_reference(void **state)
{
    (void)state;
    const char *seed = getenv("BANYAN_SEED"), *rounds = getenv("BANYAN_ROUNDS");
    if (seed) {
        world_run(strtoull(seed, NULL, 10));
        return;
    }
    uint64_t count = 9 * (rounds ? strtoull(rounds, NULL, 10) : 1);
    for (uint64_t i = 1; i <= count; i++)
        world_run(i);
}

/* ---- costs ---- */

static uint64_t trips(const struct world *world)
{
    return tree_session_stats(world->side.process->session)->cost.round_trips;
}

static void test_costs(void **state)
{
    (void)state;
    struct world *world = world_open(2); /* one copy */
    struct store_value value;
    char key[16];
    size_t length = key_make(7, key);
    bytes_draw(world, world->bytes, 1024);
    for (unsigned i = 0; i < 40; i++) { /* blocks and segments of both memory nodes are there */
        char other[16];
        check(&world->side,
              store_put(world->side.records, other, key_make(i % 20, other), world->bytes, 1024, 0));
    }
    check(&world->side, log_flush_all(world->side.process->log,
                                      world->side.process->session)); /* the value is in the leaf */
    uint64_t before = trips(world);
    check(&world->side, store_put(world->side.records, key, length, world->bytes, 1024, 0));
    assert_int_equal(trips(world) - before, 1); /* the record and its entry, in one list */
    before = trips(world);
    check(&world->side, store_get(world->side.records, key, length, &value));
    assert_int_equal(trips(world) - before, 1); /* the record */
    assert_memory_equal(value.bytes, world->bytes, 1024);
    before = trips(world);
    check(&world->side, store_put(world->side.records, key, length, "short", 5, 0));
    assert_int_equal(trips(world) - before, 1);
    before = trips(world);
    check(&world->side, store_get(world->side.records, key, length, &value));
    assert_int_equal(trips(world) - before, 0);
    assert_memory_equal(value.bytes, "short", 5);
    struct change change = {.bytes = (const uint8_t *)"other", .length = 5};
    for (unsigned merged = 0; merged < 2;
         merged++) { /* the table knows the value, or its entry in the cache */
        before = trips(world);
        check(&world->side, store_modify(world->side.records, key, length, STORE_NEED_VALUE, change_function,
                                         &change, NULL, NULL));
        assert_int_equal(trips(world) - before, 1);
        check(&world->side, log_flush_all(world->side.process->log, world->side.process->session));
    }
    world_close(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_costs),
        cmocka_unit_test(test_reference),
    };
    return cmocka_run_group_tests_name("store_logged", tests, NULL, NULL);
}
