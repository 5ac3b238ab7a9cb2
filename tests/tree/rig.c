/* rig.c - see rig.h. */
#include "rig.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/random.h"
#include "base/task.h"
#include "fabric/local.h"
#include "failing.h"
#include "wrapper.h"

static const char *const names[TROUBLES] = {"none",   "loss",    "outage", "timeout", "refusal",
                                            "memory", "address", "death",  "short"};
const char *trouble_name(enum trouble kind)
{
    return names[kind];
}

/* ---- time of its own: a sleep ends at once ---- */

static uint64_t rig_time;

static void time_park(struct task *self)
{
    (void)self;
    fail_msg("the only task waits for another");
}

static void time_unpark(struct task *task)
{
    (void)task;
}

static void time_yield(struct task *self)
{
    (void)self;
    rig_time += 1000;
}

static void time_sleep(struct task *self, uint64_t nanoseconds)
{
    (void)self;
    rig_time += nanoseconds;
}

static uint64_t time_now(struct task *self)
{
    (void)self;
    return rig_time;
}

static const struct task_ops time_ops = {
    .park = time_park, .unpark = time_unpark, .yield = time_yield, .sleep = time_sleep, .now = time_now};
static struct task time_task = {&time_ops};

/* ---- our fabric ---- */

struct rig_fabric {
    struct wrapper wrapper;
    struct rig *rig;
    uint64_t since[RIG_NODES_MAX];
    bool away[RIG_NODES_MAX], dead, met;
    enum trouble kind;
    uint64_t chances; /* until it strikes; 0: it does not */
    void (*change)(void *context, void *reply, size_t *length);
    void *change_context;
};

static bool strikes(struct rig_fabric *fabric)
{
    if (!fabric->chances || --fabric->chances)
        return false;
    fabric->met = true;
    return true;
}

static bool cuts(enum trouble kind)
{
    return kind == TROUBLE_LOSS || kind == TROUBLE_OUTAGE || kind == TROUBLE_TIMEOUT || kind == TROUBLE_DEATH;
}

/* The memory node has fenced us, or is about to, before anything else of ours arrives there. */
static int lose(struct rig_fabric *fabric, uint16_t node)
{
    fabric->since[node] = ++fabric->wrapper.incarnation;
    fabric->away[node] = fabric->kind == TROUBLE_OUTAGE;
    fabric->dead = fabric->kind == TROUBLE_DEATH;
    for (uint16_t i = 0; i < fabric->rig->options.nodes; i++)
        if (i == node || fabric->dead)
            memory_node_release_locks(fabric->rig->nodes[i], fabric->wrapper.fabric.capabilities.compute_id);
    return fabric->kind == TROUBLE_TIMEOUT ? BANYAN_ETIMEOUT : BANYAN_ENET;
}

static int run_list(struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct rig_fabric *fabric = (struct rig_fabric *)endpoint->fabric;
    if (fabric->dead || (list->incarnation && list->incarnation < fabric->since[list->node]))
        return BANYAN_EFENCED;
    if (fabric->away[list->node])
        return BANYAN_ENET;
    if (fabric->kind == TROUBLE_REFUSAL && strikes(fabric)) {
        lose(fabric, list->node);
        return BANYAN_EFENCED;
    }
    if (fabric->kind == TROUBLE_MEMORY && strikes(fabric))
        return BANYAN_ENOMEM;
    for (uint16_t i = 0; i <= list->count; i++) {
        bool bad = fabric->kind == TROUBLE_ADDRESS && i < list->count &&
                   list->commands[i].operation == FABRIC_READ && strikes(fabric);
        if (bad || (cuts(fabric->kind) && strikes(fabric))) {
            wrapper_pass(endpoint, list, i);
            return bad ? BANYAN_EADDRESS : lose(fabric, list->node);
        }
    }
    return wrapper_pass(endpoint, list, list->count);
}

static int rig_call(struct fabric_endpoint *endpoint, uint16_t node, const void *request, size_t length,
                    void *reply, size_t capacity, size_t *reply_length)
{
    struct rig_fabric *fabric = (struct rig_fabric *)endpoint->fabric;
    if (fabric->dead || fabric->away[node])
        return BANYAN_EFENCED;
    if (cuts(fabric->kind) && strikes(fabric)) /* it never got there */
        return lose(fabric, node);
    if (fabric->kind == TROUBLE_REFUSAL && strikes(fabric)) {
        lose(fabric, node);
        return BANYAN_EFENCED;
    }
    if (fabric->kind == TROUBLE_MEMORY && strikes(fabric))
        return BANYAN_ENOMEM;
    int status = wrapper_call(endpoint, node, request, length, reply, capacity, reply_length);
    if (cuts(fabric->kind) && strikes(fabric)) { /* it was served, and its answer is lost */
        *reply_length = 0;
        return lose(fabric, node);
    }
    if (fabric->change && !status)
        fabric->change(fabric->change_context, reply, reply_length);
    return status;
}

static void rig_tell(const struct fabric *fabric, uint16_t node, char *text, size_t size)
{
    snprintf(text, size, "%s", ((const struct rig_fabric *)fabric)->away[node] ? "it is away" : "");
}

static const struct fabric_ops rig_ops = {
    .execute = wrapper_execute,
    .call = rig_call,
    .endpoint_open = wrapper_endpoint_open,
    .endpoint_close = wrapper_endpoint_close,
    .close = wrapper_close,
    .incarnation = wrapper_incarnation,
    .trouble = rig_tell,
};

void rig_trouble(struct rig *rig, enum trouble kind, uint64_t at)
{
    rig->trouble->kind = kind;
    rig->trouble->chances = kind == TROUBLE_NONE || kind == TROUBLE_SHORT ? 0 : at;
    rig->trouble->met = false;
    if (kind == TROUBLE_SHORT)
        failing_begin(&(struct failing_order){
            .calls = FAILING_MEMORY, .where = FAILING_HERE, .first = (unsigned)at, .count = 1, .error = 12});
}

bool rig_mend(struct rig *rig)
{
    struct rig_fabric *fabric = rig->trouble;
    bool met = fabric->kind == TROUBLE_SHORT ? failing_end() != 0 : fabric->met;
    for (unsigned i = 0; i < RIG_NODES_MAX; i++)
        fabric->away[i] = false;
    fabric->kind = TROUBLE_NONE;
    fabric->chances = 0;
    fabric->met = false;
    return met;
}

bool rig_dead(const struct rig *rig)
{
    return rig->trouble->dead;
}

void rig_replies(struct rig *rig, void (*change)(void *context, void *reply, size_t *length), void *context)
{
    rig->trouble->change = change;
    rig->trouble->change_context = context;
}

/* ---- opening ---- */

void rig_options_default(struct rig_options *options)
{
    *options = (struct rig_options){
        .geometry = {.key_bytes = 8, .value_bytes = 8, .leaf_bytes = 512, .internal_bytes = 512},
        .pool_bytes = 4 << 20,
        .chunk_bytes = 64 << 10,
        .cache_bytes = 1 << 20,
        .nodes = 1};
}

void rig_two_nodes(struct rig_options *options)
{
    options->nodes = 2;
}

void rig_long_keyed(struct rig_options *options)
{
    options->nodes = 2;
    options->geometry = (struct format_geometry){.key_kind = FORMAT_KEY_VARIABLE,
                                                 .key_bytes = 60,
                                                 .inline_key_bytes = 16,
                                                 .value_bytes = 8,
                                                 .leaf_bytes = 1024,
                                                 .internal_bytes = 1024};
}

void rig_large_leaves(struct rig_options *options)
{
    options->geometry.leaf_bytes = 2048;
    options->atomic_write = 1024;
}

static uint64_t given_time(void *context)
{
    return ((struct rig *)context)->now_ms;
}

static void side_open(struct rig *rig, struct rig_side *side, struct fabric *fabric)
{
    struct tree_switches switches = {.cache_bytes = rig->options.cache_bytes};
    struct error error = {0};
    assert_int_equal(
        tree_switches_preset(&switches, rig->options.preset ? rig->options.preset : "banyan", &error), 0);
    side->fabric = fabric;
    assert_int_equal(tree_compute_create(&side->compute, fabric, &switches, &error), 0);
    assert_int_equal(pool_worker_create(&side->worker, tree_compute_pool(side->compute), &error), 0);
    assert_int_equal(tree_session_create(&side->session, side->compute, side->worker, &error), 0);
    assert_int_equal(tree_session_create(&side->spare, side->compute, side->worker, &error), 0);
}

static void side_use(struct rig *rig, struct rig_side *side)
{
    struct error error = {0};
    if (!side->tree)
        assert_int_equal(tree_open(side->spare, "rig", &side->tree), 0);
    if (!rig->options.store)
        return;
    assert_int_equal(store_wrap(&side->store, side->tree, &error), 0);
    store_set_clock(side->store, given_time, rig);
    assert_int_equal(store_session_create(&side->store_session, side->store, side->session, &error), 0);
}

/* A dead compute node's tasks are gone without having returned anything. */
static void side_close(struct rig_side *side, bool dead)
{
    store_session_destroy(side->store_session);
    if (side->store)
        store_close(side->store);
    else
        tree_close(side->tree);
    tree_session_destroy(side->session);
    tree_session_destroy(side->spare);
    if (dead)
        pool_worker_abandon(side->worker);
    else
        pool_worker_destroy(side->worker);
    tree_compute_destroy(side->compute);
    fabric_close(side->fabric);
    *side = (struct rig_side){.fabric = NULL};
}

static void ours_open(struct rig *rig)
{
    const struct fabric_target *targets[RIG_NODES_MAX];
    struct error error = {0};
    for (uint16_t i = 0; i < rig->options.nodes; i++)
        targets[i] = memory_node_target(rig->nodes[i]);
    struct rig_fabric *fabric = calloc(1, sizeof *fabric);
    assert_non_null(fabric);
    fabric->rig = rig;
    struct fabric *inner = fabric_local_create(targets, (uint16_t)rig->options.nodes, 1, &error);
    assert_non_null(inner);
    wrapper_init(&fabric->wrapper, &rig_ops, run_list, inner);
    if (rig->options.atomic_write)
        fabric->wrapper.fabric.capabilities.atomic_write = rig->options.atomic_write;
    rig->trouble = fabric;
    side_open(rig, &rig->ours, &fabric->wrapper.fabric);
}

void rig_open(struct rig *rig, const struct rig_options *options)
{
    const struct fabric_target *targets[RIG_NODES_MAX];
    struct error error = {0};
    memset(rig, 0, sizeof *rig);
    rig->options = *options;
    rig->now_ms = 1000;
    task_set_self(&time_task);
    for (uint16_t i = 0; i < options->nodes; i++) {
        struct memory_options memory = {.node = i,
                                        .pool_bytes = options->pool_bytes,
                                        .chunk_bytes = options->chunk_bytes,
                                        .lock_bytes = 4096};
        assert_int_equal(memory_node_create(&rig->nodes[i], &memory, &error), 0);
        targets[i] = memory_node_target(rig->nodes[i]);
    }
    struct fabric *others = fabric_local_create(targets, (uint16_t)options->nodes, 2, &error);
    assert_non_null(others);
    if (options->atomic_write)
        others->capabilities.atomic_write = options->atomic_write;
    side_open(rig, &rig->others, others);
    ours_open(rig);
    assert_int_equal(tree_format(rig->others.spare), 0);
    if (options->no_index)
        return;
    assert_int_equal(tree_create(rig->others.spare, "rig", &options->geometry, &rig->others.tree), 0);
    rig->options.geometry = *tree_geometry(rig->others.tree);
    side_use(rig, &rig->others);
    side_use(rig, &rig->ours);
}

void rig_replace_ours(struct rig *rig)
{
    side_close(&rig->ours, rig_dead(rig));
    ours_open(rig);
    if (rig->others.tree)
        side_use(rig, &rig->ours);
}

void rig_replace_others(struct rig *rig)
{
    const struct fabric_target *targets[RIG_NODES_MAX];
    struct error error = {0};
    side_close(&rig->others, false);
    for (uint16_t i = 0; i < rig->options.nodes; i++)
        targets[i] = memory_node_target(rig->nodes[i]);
    side_open(rig, &rig->others, fabric_local_create(targets, (uint16_t)rig->options.nodes, 2, &error));
    side_use(rig, &rig->others);
}

void rig_close(struct rig *rig)
{
    side_close(&rig->ours, rig_dead(rig));
    side_close(&rig->others, false);
    for (unsigned i = 0; i < rig->options.nodes; i++)
        memory_node_destroy(rig->nodes[i]);
    task_set_self(NULL);
}

/* ---- keys ---- */

/* In the order of their numbers; of variable keys every third is too long for a slot. */
size_t rig_key(const struct rig *rig, unsigned number, uint8_t key[FORMAT_KEY_MAX])
{
    const struct format_geometry *geometry = &rig->options.geometry;
    size_t length = geometry->key_kind == FORMAT_KEY_FIXED ? geometry->key_bytes
                    : number % 3                           ? 6
                                                           : geometry->key_bytes;
    memset(key, 'k', length);
    for (unsigned i = 0; i < 4; i++)
        key[i] = (uint8_t)(number >> (24 - 8 * i));
    return length;
}

static size_t value_of(const struct rig *rig, uint64_t number, uint8_t value[FORMAT_VALUE_MAX])
{
    memset(value, 0, FORMAT_VALUE_MAX);
    memcpy(value, &number, sizeof number);
    return rig->options.geometry.value_bytes;
}

size_t rig_size(uint64_t value)
{
    return value % 16 == 12 ? 66000 : value % 3 == 0 ? 300 : 8 + value % 5;
}

const uint8_t *rig_bytes(uint64_t value)
{
    static uint64_t words[8250];
    if (words[0] != value) /* asked for again and again */
        for (uint64_t i = 0; i < (rig_size(value) + 7) / 8; i++)
            words[i] = value + (i << 32);
    return (const uint8_t *)words;
}

uint64_t rig_number(const struct store_value *value)
{
    uint64_t number;
    assert_true(value->length >= sizeof number);
    memcpy(&number, value->bytes, sizeof number);
    assert_int_equal(value->length, rig_size(number));
    assert_true(!memcmp(value->bytes, rig_bytes(number), value->length));
    return number;
}

static int put(struct rig *rig, struct rig_side *side, unsigned number, uint64_t value)
{
    uint8_t key[FORMAT_KEY_MAX], bytes[FORMAT_VALUE_MAX];
    size_t length = rig_key(rig, number, key);
    if (side->store)
        return store_put(side->store_session, key, length, rig_bytes(value), rig_size(value), 0);
    return tree_upsert(side->session, side->tree, key, length, bytes, value_of(rig, value, bytes));
}

void rig_fill(struct rig *rig, unsigned from, unsigned to, unsigned step)
{
    assert_true(to <= RIG_KEYS);
    for (unsigned i = from; i < to; i += step) {
        assert_int_equal(put(rig, &rig->others, i, i + 1), 0);
        rig->entries[i] = (struct rig_entry){i + 1, i + 1, 0};
    }
    rig->entry_count = rig->entry_count < to ? to : rig->entry_count;
}

static int look(struct rig *rig, struct rig_side *side, unsigned number, uint64_t *value)
{
    uint8_t key[FORMAT_KEY_MAX], bytes[FORMAT_VALUE_MAX];
    size_t length = sizeof bytes;
    *value = 0;
    size_t key_length = rig_key(rig, number, key);
    int status;
    if (side->store) {
        struct store_value got;
        status = store_get(side->store_session, key, key_length, &got);
        *value = status ? 0 : rig_number(&got);
    } else {
        status = tree_lookup(side->session, side->tree, key, key_length, bytes, &length);
        if (!status)
            memcpy(value, bytes, sizeof *value);
    }
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

uint64_t rig_look(struct rig *rig, unsigned number)
{
    uint64_t value;
    int status = look(rig, &rig->others, number, &value);
    if (status)
        fail_msg("looking for key %u: %d %s", number, status, tree_session_error(rig->others.session)->text);
    return value;
}

void rig_note(struct rig *rig, unsigned number, uint64_t after, int status)
{
    assert_true(number < RIG_KEYS);
    struct rig_entry *entry = &rig->entries[number];
    if (!entry->status)
        entry->before = entry->after;
    entry->after = after;
    entry->status = status;
    if (rig->entry_count <= number)
        rig->entry_count = number + 1;
}

/* ---- judging ---- */

struct piece {
    gaddr address;
    uint32_t bytes;
    const char *owner;
};
static struct {
    struct piece *pieces;
    size_t count, capacity;
    const char *owner;
    uint64_t lost;
} account;

static void account_add(void *context, gaddr address, uint32_t bytes)
{
    (void)context;
    if (account.count == account.capacity) {
        account.capacity = account.capacity ? 2 * account.capacity : 1024;
        account.pieces = realloc(account.pieces, account.capacity * sizeof *account.pieces);
        assert_non_null(account.pieces);
    }
    account.pieces[account.count++] = (struct piece){address, memory_block_bytes(bytes), account.owner};
}

static int piece_order(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;
    return a->address < b->address ? -1 : a->address > b->address;
}

static void account_used(void *context, gaddr address, uint32_t bytes)
{
    (void)context;
    struct piece wanted = {.address = address};
    struct piece *piece =
        account.count ? bsearch(&wanted, account.pieces, account.count, sizeof wanted, piece_order) : NULL;
    if (!piece) {
        account.lost += bytes;
        return;
    }
    assert_int_equal(piece->bytes, bytes);
    piece->owner = NULL;
}

static void check_whole(struct rig *rig)
{
    struct tree_check_report tree;
    struct store_check_report store;
    int status = rig->others.store
                     ? store_check(rig->others.store_session, &store, account_add, NULL)
                     : tree_check(rig->others.session, rig->others.tree, &tree, account_add, NULL);
    if (status)
        fail_msg("the index is not sound: %s", tree_session_error(rig->others.session)->text);
}

uint64_t rig_account(struct rig *rig)
{
    char text[GADDR_TEXT_BYTES];
    account.count = 0;
    account.lost = 0;
    account.owner = "the index's";
    if (rig->others.tree)
        check_whole(rig);
    account.owner = "free, with the others";
    pool_worker_each_free(rig->others.worker, account_add, NULL);
    account.owner = "free, with us";
    if (!rig_dead(rig))
        pool_worker_each_free(rig->ours.worker, account_add, NULL);
    if (account.count)
        qsort(account.pieces, account.count, sizeof *account.pieces, piece_order);
    for (size_t i = 1; i < account.count; i++)
        if (account.pieces[i].address < account.pieces[i - 1].address + account.pieces[i - 1].bytes)
            fail_msg("block %s is %s and also %s", gaddr_format(account.pieces[i].address, text),
                     account.pieces[i - 1].owner, account.pieces[i].owner);
    for (unsigned i = 0; i < rig->options.nodes; i++)
        memory_node_each_used(rig->nodes[i], account_used, NULL);
    for (size_t i = 0; i < account.count; i++)
        if (account.pieces[i].owner)
            fail_msg("block %s is %s, and has not been handed out",
                     gaddr_format(account.pieces[i].address, text), account.pieces[i].owner);
    free(account.pieces);
    account.pieces = NULL;
    account.capacity = 0;
    return account.lost;
}

/* Every byte is the same as the one before: memcmp takes a fraction of the time of a loop. */
static bool all_zero(const uint8_t *bytes, uint64_t count)
{
    return !bytes[0] && !memcmp(bytes, bytes + 1, count - 1);
}

void rig_locks_are_free(struct rig *rig)
{
    for (unsigned i = 0; i < rig->options.nodes; i++) {
        const struct fabric_target *target = memory_node_target(rig->nodes[i]);
        if (all_zero(target->locks, target->lock_bytes) &&
            all_zero(target->pool + MEMORY_LOCK_TABLE_OFFSET, target->lock_bytes))
            continue;
        for (uint64_t at = 0; at < target->lock_bytes; at++)
            if (target->locks[at] || target->pool[MEMORY_LOCK_TABLE_OFFSET + at])
                fail_msg("lock byte %" PRIu64 " of memory node %u is not free", at, i);
    }
}

static void keys_judge(struct rig *rig, enum trouble kind, unsigned step)
{
    for (unsigned i = 0; i < rig->entry_count; i += step) {
        struct rig_entry *entry = &rig->entries[i];
        uint64_t is = rig_look(rig, i);
        bool unsure = entry->status == BANYAN_EUNKNOWN || (entry->status && rig_dead(rig));
        bool before = is == entry->before && (entry->status || entry->before == entry->after);
        bool after = is == entry->after && (!entry->status || unsure);
        if (!before && !after)
            fail_msg("key %u is %" PRIu64 ", was %" PRIu64 ", to be %" PRIu64 ", which came to %d (%s)", i,
                     is, entry->before, entry->after, entry->status, trouble_name(kind));
        *entry = (struct rig_entry){is, is, 0};
    }
}

/* Ours read all, and change every fifth. */
static void ours_work(struct rig *rig)
{
    for (unsigned i = 0; i < rig->entry_count; i++) {
        uint64_t value;
        int status = look(rig, &rig->ours, i, &value);
        if (!status && value != rig->entries[i].before)
            fail_msg("key %u is %" PRIu64 ", and not %" PRIu64, i, value, rig->entries[i].before);
        if (!status && i % 5 == 0) {
            status = put(rig, &rig->ours, i, i + 100000);
            rig->entries[i].before = rig->entries[i].after = i + 100000;
        }
        if (status)
            fail_msg("ours, key %u afterwards: %d %s", i, status,
                     tree_session_error(rig->ours.session)->text);
    }
}

uint64_t rig_judge(struct rig *rig, enum trouble kind)
{
    rig_locks_are_free(rig);
    keys_judge(rig, kind, 1);
    uint64_t lost = rig_account(rig);
    if (!rig_dead(rig))
        ours_work(rig);
    keys_judge(rig, TROUBLE_NONE, 5);
    rig_account(rig);
    rig_locks_are_free(rig);
    return lost;
}

/* ---- loops ---- */

/* What an operation may come to under this trouble. */
static bool explained(enum trouble kind, int status)
{
    switch (kind) {
    case TROUBLE_LOSS:
    case TROUBLE_OUTAGE:
        return status == BANYAN_ENET || status == BANYAN_EUNKNOWN;
    case TROUBLE_TIMEOUT:
        return status == BANYAN_ETIMEOUT || status == BANYAN_ENET || status == BANYAN_EUNKNOWN;
    case TROUBLE_REFUSAL: /* where lists are not combined it may come behind a first part */
        return status == BANYAN_ENET || status == BANYAN_EUNKNOWN;
    case TROUBLE_MEMORY: /* there too */
        return status == BANYAN_ENOMEM || status == BANYAN_EUNKNOWN;
    case TROUBLE_SHORT:
        return status == BANYAN_ENOMEM;
    case TROUBLE_ADDRESS:
        return status == BANYAN_ECORRUPT;
    default:
        return kind == TROUBLE_DEATH;
    }
}

static bool loop_once(const struct rig_scenario *scenario, const struct rig_options *options,
                      enum trouble kind, uint64_t at)
{
    static struct rig rig;
    rig_open(&rig, options);
    if (scenario->prepare)
        scenario->prepare(&rig);
    rig_trouble(&rig, kind, at);
    int status = scenario->act(&rig);
    bool met = rig_mend(&rig);
    if (getenv("BANYAN_RIG"))
        print_message("%s, %s at %" PRIu64 ": %d, %s\n", scenario->name, trouble_name(kind), at, status,
                      tree_session_error(rig.ours.session)->text);
    if (status && (!met || !explained(kind, status) || !tree_session_error(rig.ours.session)->text[0]))
        fail_msg("%s, %s at %" PRIu64 " (%s): %d, %s", scenario->name, trouble_name(kind), at,
                 met ? "met" : "not met", status, tree_session_error(rig.ours.session)->text);
    if (scenario->judge)
        scenario->judge(&rig, status, kind);
    else
        rig_judge(&rig, kind);
    rig_close(&rig);
    return met;
}

void rig_loop(const struct rig_scenario *scenario, enum trouble kind)
{
    struct rig_options options;
    unsigned stride = scenario->stride[kind] ? scenario->stride[kind] : 1;
    if (scenario->without >> kind & 1u)
        return;
    rig_options_default(&options);
    if (scenario->options)
        scenario->options(&options);
    uint64_t at = 1;
    while (loop_once(scenario, &options, kind, at))
        at += stride;
    if (at == 1 && kind != TROUBLE_NONE)
        fail_msg("%s, %s: no trouble at all", scenario->name, trouble_name(kind));
}

void rig_loop_all(const struct rig_scenario *scenario)
{
    for (enum trouble kind = TROUBLE_NONE; kind < TROUBLES; kind++)
        rig_loop(scenario, kind);
}
