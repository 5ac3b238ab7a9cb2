/*
 * fuzz_pool.c - a corrupt pool, and memory nodes that lie. A small store is built as it should be; then the
 * input changes bytes of its nodes, records, key blocks and catalogue, or lets another compute node join
 * whose fabric changes what it reads and what its calls are answered; and everything is tried.
 *
 * Oracle: no crash, no access beyond, no end that does not come. Where only single bits were flipped, which
 * every checksum notices: each answer is the right one or an error, no key is missing from a scan that
 * reports no error, and a check that finds nothing counts what there is.
 */
#include "fuzz/fuzz_clock.h"
#include "fuzz/fuzz_rig.h"
#include "store/audit.h"

#define KEYS       120u
#define CATALOGUE  (4096u + 512u) /* superblock, and the first two entries */
#define FLIPPED    (UINT64_C(1) << 63)
#define STEPS_MAX  60u
#define VALUE_ROOM 70000u

/* ---- a fabric that lies ---- */

struct liar {
    struct fabric fabric; /* first */
    struct fabric *inner;
    struct fuzz_input lies;
    uint32_t reads_until, calls_until; /* the next lie */
    bool flips;                        /* single bits only */
    unsigned told;
};
struct liar_endpoint {
    struct fabric_endpoint endpoint; /* first */
    struct fabric_endpoint *inner;
};

static void lie_read(struct liar *liar, struct fabric_command *command)
{
    uint8_t *bytes = command->read.buffer;
    if (command->read.data != bytes)
        memcpy(bytes, command->read.data, command->length);
    command->read.data = bytes;
    uint32_t at = fuzz_u16(&liar->lies) % command->length;
    uint8_t how = fuzz_byte(&liar->lies);
    bytes[at] ^= (uint8_t)(1u << how % 8);
    if (!liar->flips)
        fuzz_take(&liar->lies, bytes + at, how % 16 < command->length - at ? how % 16 : command->length - at);
    liar->told++;
}

static int liar_execute(struct fabric_endpoint *base, struct fabric_list *const *lists, uint32_t count)
{
    struct liar *liar = (struct liar *)base->fabric;
    int status = fabric_execute(((struct liar_endpoint *)base)->inner, lists, count, NULL);
    for (uint32_t i = 0; i < count && !status; i++)
        for (uint32_t j = 0; j < lists[i]->count; j++) {
            struct fabric_command *command = &lists[i]->commands[j];
            if (command->operation != FABRIC_READ || !liar->lies.length || liar->reads_until-- > 0)
                continue;
            liar->reads_until = fuzz_byte(&liar->lies);
            lie_read(liar, command);
        }
    return status;
}

static int liar_call(struct fabric_endpoint *base, uint16_t node, const void *request, size_t length,
                     void *reply, size_t capacity, size_t *reply_length)
{
    struct liar *liar = (struct liar *)base->fabric;
    int status = fabric_call(((struct liar_endpoint *)base)->inner, node, request, length, reply, capacity,
                             reply_length, NULL);
    if (status || liar->flips || !liar->lies.length || liar->calls_until-- > 0)
        return status;
    static const int statuses[] = {BANYAN_ENOSPC, BANYAN_ENET, BANYAN_EINVAL, BANYAN_EFENCED};
    uint8_t how = fuzz_byte(&liar->lies);
    liar->calls_until = how / 16;
    if (how % 8 < 4)
        return statuses[how % 4];
    if (how % 8 == 4)
        *reply_length = fuzz_u16(&liar->lies) % (capacity + 1);
    else if (*reply_length)
        ((uint8_t *)reply)[fuzz_u16(&liar->lies) % *reply_length] = fuzz_byte(&liar->lies);
    return BANYAN_OK;
}

static struct fabric_endpoint *liar_open(struct fabric *fabric, struct error *error)
{
    struct liar_endpoint *endpoint = calloc(1, sizeof *endpoint);
    endpoint->endpoint.fabric = fabric;
    endpoint->inner = fabric_endpoint_open(((struct liar *)fabric)->inner, error);
    return &endpoint->endpoint;
}

static void liar_endpoint_close(struct fabric_endpoint *base)
{
    fabric_endpoint_close(((struct liar_endpoint *)base)->inner);
    free(base);
}

static void liar_close(struct fabric *fabric)
{
    fabric_close(((struct liar *)fabric)->inner);
}

static const struct fabric_ops liar_ops = {.execute = liar_execute,
                                           .call = liar_call,
                                           .endpoint_open = liar_open,
                                           .endpoint_close = liar_endpoint_close,
                                           .close = liar_close};

/* ---- what is in the store ---- */

struct trial {
    struct rig rig;
    struct fuzz_input input;
    struct liar liar;
    bool flips, catalogue_flipped; /* whatever was changed is a single bit of its block */
    bool written[KEYS];            /* again, since: not known any more */
    struct rig_blocks blocks;
};

static uint8_t pattern[VALUE_ROOM];

static size_t key_of(unsigned number, uint8_t key[STORE_KEY_MAX])
{
    size_t length = number % 4 == 3 ? 60 + number : 4;
    memset(key, 'p', STORE_KEY_MAX);
    key[0] = (uint8_t)number;
    return length;
}

static uint32_t length_of(unsigned number)
{
    return number == 7 ? 69000 : number % 5 ? number % 17 : 40 + number;
}

static const uint8_t *bytes_of(unsigned number)
{
    return pattern + number;
}

static void fill(struct trial *trial)
{
    enum { MANY = 30 };
    static uint8_t keys[MANY][STORE_KEY_MAX];
    struct store_item items[MANY];
    for (unsigned first = 0; first < KEYS; first += MANY) {
        for (unsigned i = 0; i < MANY; i++)
            items[i] = (struct store_item){.key = keys[i],
                                           .key_length = key_of(first + i, keys[i]),
                                           .value = {.bytes = bytes_of(first + i),
                                                     .length = length_of(first + i),
                                                     .expires = (first + i) % 11 ? 0 : 100000}};
        int status = store_multi_put(trial->rig.store_session, items, MANY);
        fuzz_must(!status, "filling: %s", tree_session_error(trial->rig.session)->text);
    }
}

/* ---- damage ---- */

static uint8_t *bytes_at(struct trial *trial, gaddr address)
{
    const struct fabric_target *target = memory_node_target(trial->rig.memory[gaddr_node(address)]);
    return target->pool + gaddr_offset(address);
}

/* One bit of a block at most: a second one could hide the first. */
static void flip(struct trial *trial, size_t which, uint16_t at, uint8_t how)
{
    struct rig_block *block = &trial->blocks.items[which];
    gaddr address = block->address & ~FLIPPED;
    if (block->address & FLIPPED)
        return;
    block->address |= FLIPPED;
    bytes_at(trial, address)[at % block->bytes] ^= (uint8_t)(1u << how % 8);
}

static void flip_catalogue(struct trial *trial, uint16_t at, uint8_t how)
{
    /* The root's address has no check: another tree's would be as good. The six marks below it have one. */
    bool marks = at % CATALOGUE == 4096 && how % 8 < 6;
    if (trial->catalogue_flipped || (!marks && at % CATALOGUE >= 4096 && at % CATALOGUE < 4096 + 8))
        return;
    trial->catalogue_flipped = true;
    bytes_at(trial, gaddr_make(0, 4096))[at % CATALOGUE] ^= (uint8_t)(1u << how % 8);
}

static void overwrite(struct trial *trial, uint8_t *bytes, uint32_t room, uint8_t how)
{
    fuzz_take(&trial->input, bytes, how % 16 < room ? how % 16 : room);
}

static void damage(struct trial *trial)
{
    uint8_t count = fuzz_byte(&trial->input);
    trial->flips = count < 128;
    for (count = count % 16; count > 0; count--) {
        uint16_t what = fuzz_u16(&trial->input), at = fuzz_u16(&trial->input);
        uint8_t how = fuzz_byte(&trial->input);
        size_t which = what / 8 % trial->blocks.count;
        const struct rig_block *block = &trial->blocks.items[which];
        bool catalogue = what % 8 == 0;
        if (trial->flips && catalogue)
            flip_catalogue(trial, at, how);
        else if (trial->flips)
            flip(trial, which, at, how);
        else if (catalogue)
            overwrite(trial, bytes_at(trial, gaddr_make(0, 4096)) + at % CATALOGUE,
                      CATALOGUE - at % CATALOGUE, how);
        else
            overwrite(trial, bytes_at(trial, block->address) + at % block->bytes,
                      block->bytes - at % block->bytes, how);
    }
}

/* ---- what is tried ---- */

static bool is_right(const struct trial *trial, unsigned number, const struct store_value *value, bool bytes)
{
    return trial->written[number] ||
           (value->length == length_of(number) && value->expires == (number % 11 ? 0 : 100000) &&
            (!bytes || !memcmp(value->bytes, bytes_of(number), value->length)));
}

static void judge_error(const struct trial *trial, int status)
{
    fuzz_must(status <= 0 && status >= BANYAN_EVERSION, "status %d", status);
    fuzz_must(!status || tree_session_error(trial->rig.session)->text[0] || status == BANYAN_ENOTFOUND,
              "status %d without a message", status);
}

static void try_get(struct trial *trial, unsigned number)
{
    uint8_t key[STORE_KEY_MAX];
    size_t length = key_of(number, key);
    struct store_value value;
    int status = store_get(trial->rig.store_session, key, length, &value);
    judge_error(trial, status);
    if (!trial->flips)
        return;
    fuzz_must(status || is_right(trial, number, &value, true), "get %u: another value", number);
    fuzz_must(status != BANYAN_ENOTFOUND || trial->written[number], "get %u: is not there", number);
}

static void try_multi_get(struct trial *trial, unsigned first)
{
    enum { MANY = 24 };
    static uint8_t keys[MANY][STORE_KEY_MAX];
    struct store_item items[MANY];
    for (unsigned i = 0; i < MANY; i++)
        items[i] = (struct store_item){.key = keys[i], .key_length = key_of((first + i) % KEYS, keys[i])};
    store_multi_get(trial->rig.store_session, items, MANY, true);
    for (unsigned i = 0; i < MANY; i++) {
        unsigned number = (first + i) % KEYS;
        judge_error(trial, items[i].status == BANYAN_ENOTFOUND ? 0 : items[i].status);
        if (!trial->flips || trial->written[number])
            continue;
        fuzz_must(items[i].status != BANYAN_ENOTFOUND, "multi_get %u: is not there", number);
        fuzz_must(items[i].status || is_right(trial, number, &items[i].value, true),
                  "multi_get %u: another value", number);
    }
}

struct scan {
    struct trial *trial;
    unsigned met, last;
    bool reverse;
    uint64_t all;
};

static bool visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct scan *scan = context;
    uint8_t expected[STORE_KEY_MAX];
    unsigned number = key_length ? *(const uint8_t *)key : 255;
    fuzz_must(scan->all++ < 100000, "a scan without end");
    if (!scan->trial->flips)
        return true;
    fuzz_must(number < KEYS && key_length == key_of(number, expected) && !memcmp(key, expected, key_length),
              "scan: a key that was never written");
    fuzz_must(is_right(scan->trial, number, value, value->bytes != NULL), "scan: another value of %u",
              number);
    fuzz_must(!scan->met || (scan->reverse ? number < scan->last : number > scan->last),
              "scan: out of order");
    scan->met++;
    scan->last = number;
    return true;
}

static void try_scan(struct trial *trial, uint8_t how)
{
    struct scan scan = {.trial = trial, .reverse = how & 1};
    const struct tree_range range = {.reverse = how & 1};
    int status = store_scan(trial->rig.store_session, &range, how & 2 ? STORE_SCAN_VALUES : STORE_SCAN_KEYS,
                            visit, &scan);
    judge_error(trial, status);
    unsigned known = 0;
    for (unsigned i = 0; i < KEYS; i++)
        known += !trial->written[i];
    fuzz_must(status || !trial->flips || scan.met >= known, "scan: %u of %u keys, and no error", scan.met,
              known);
}

static void try_write(struct trial *trial, unsigned number, uint8_t how)
{
    uint8_t key[STORE_KEY_MAX];
    size_t length = key_of(number, key);
    trial->written[number] = true;
    judge_error(trial, how % 2
                           ? store_delete(trial->rig.store_session, key, length)
                           : store_put(trial->rig.store_session, key, length, bytes_of(how), how * 3u, 0));
}

static void count_problem(void *context, const char *text)
{
    fuzz_must(text[0], "a problem without a sentence");
    ++*(uint64_t *)context;
}

static void try_check(struct trial *trial, bool all)
{
    struct store_check_report report = {0};
    uint64_t told = 0;
    const struct store_check_visitor visitor = {.problem = all ? count_problem : NULL, .context = &told};
    unsigned before = trial->liar.told;
    int status = store_check_all(trial->rig.store_session, &visitor, &report);
    judge_error(trial, status);
    bool fresh = true;
    for (unsigned i = 0; i < KEYS; i++)
        fresh &= !trial->written[i];
    if (!status && !report.problems && trial->flips && fresh && before == trial->liar.told)
        fuzz_must(report.tree.entries == KEYS, "check: %llu entries, and nothing is wrong",
                  (unsigned long long)report.tree.entries);
    fuzz_must(!all || told == report.problems, "check: tells %llu of %llu problems", (unsigned long long)told,
              (unsigned long long)report.problems);
}

static void audit_problem(void *context, const char *text)
{
    fuzz_must(text[0], "a problem without a sentence");
    ++*(uint64_t *)context;
}

static void try_audit(struct trial *trial, bool reclaim)
{
    uint64_t told = 0;
    struct audit_report report = {0};
    const struct audit_options options = {.reclaim = reclaim, .problem = audit_problem, .context = &told};
    unsigned before = trial->liar.told;
    int status = audit_run(trial->rig.session, &options, &report);
    judge_error(trial, status);
    fuzz_must(told <= report.problems, "audit: tells %llu of %llu problems", (unsigned long long)told,
              (unsigned long long)report.problems);
    bool fresh = true;
    for (unsigned i = 0; i < KEYS; i++)
        fresh &= !trial->written[i];
    if (!status && !report.problems && trial->flips && fresh && before == trial->liar.told)
        fuzz_must(report.entries == KEYS, "audit: %llu entries, and nothing is wrong",
                  (unsigned long long)report.entries);
}

static void list_visit(void *context, const char *name, const struct format_geometry *geometry)
{
    struct format_geometry_shape shape;
    fuzz_must(strlen(name) <= TREE_NAME_MAX, "a name that is too long");
    format_geometry_shape(geometry, &shape);
    ++*(unsigned *)context;
}

static void try_others(struct trial *trial, uint8_t how)
{
    uint8_t key[STORE_KEY_MAX];
    size_t length = sizeof key;
    unsigned listed = 0;
    uint64_t count;
    const struct tree_range all = {.reverse = how & 1, .limit = how & 2};
    struct store_sweep sweep = {0};
    struct tree *other = NULL;
    switch (how / 4 % 7) {
    case 0:
        judge_error(trial, store_sample(trial->rig.store_session, key, &length));
        break;
    case 1:
        judge_error(trial, store_count(trial->rig.store_session, &all, &count));
        break;
    case 2:
        judge_error(trial, store_sweep_step(trial->rig.store_session, &sweep, how));
        break;
    case 3:
        judge_error(trial, tree_list(trial->rig.session, list_visit, &listed));
        break;
    case 5:
        try_audit(trial, how & 1);
        break;
    case 4:
        judge_error(trial, tree_open(trial->rig.session, "test", &other));
        if (other)
            tree_close(other);
        break;
    default:
        memset(trial->written, true, sizeof trial->written);
        judge_error(trial, store_delete_range(trial->rig.store_session, &all, &count));
        break;
    }
}

static void step(struct trial *trial)
{
    uint8_t what = fuzz_byte(&trial->input), which = fuzz_byte(&trial->input);
    switch (what % 8) {
    case 0:
    case 1:
        try_get(trial, which % KEYS);
        break;
    case 2:
        try_multi_get(trial, which % KEYS);
        break;
    case 3:
        try_scan(trial, what / 8);
        break;
    case 4:
    case 5:
        try_write(trial, which % KEYS, what / 8);
        break;
    case 6:
        try_check(trial, which & 1);
        break;
    default:
        try_others(trial, which);
        break;
    }
}

/* ---- */

/* Another compute node, whose fabric lies with the second half of the input; false: it cannot open the index.
 */
static bool join(struct trial *trial, const struct rig_options *options, uint8_t how)
{
    const struct fabric_target *targets[RIG_MEMORY_MAX];
    struct rig *rig = &trial->rig;
    struct tree_switches switches;
    struct error error = {0};
    for (unsigned i = 0; i < rig->memory_nodes; i++)
        targets[i] = memory_node_target(rig->memory[i]);
    struct fabric *inner = fabric_local_create(targets, (uint16_t)rig->memory_nodes, 2, &error);
    rig_must(!inner, &error, "fabric");
    trial->liar = (struct liar){.inner = inner, .flips = trial->flips};
    trial->liar.fabric = (struct fabric){.ops = &liar_ops, .capabilities = inner->capabilities};
    if (how & 1) {
        size_t half = trial->input.length / 2;
        trial->liar.lies = (struct fuzz_input){trial->input.bytes + half, trial->input.length - half};
        trial->input.length = half;
        trial->liar.reads_until = fuzz_byte(&trial->liar.lies);
        trial->liar.fabric.capabilities.direct = false;
    }
    rig->fabric = &trial->liar.fabric;
    tree_switches_preset(&switches, how & 2 ? "fg+" : how & 4 ? "sherman" : "banyan", &error);
    switches.cache_bytes = options->cache_bytes;
    rig_must(tree_compute_create(&rig->compute, rig->fabric, &switches, &error), &error, "compute node");
    rig_must(pool_worker_create(&rig->worker, tree_compute_pool(rig->compute), &error), &error, "worker");
    rig_must(tree_session_create(&rig->session, rig->compute, rig->worker, &error), &error, "session");
    int status = tree_open(rig->session, "test", &rig->tree);
    judge_error(trial, status);
    if (status || !rig->tree)
        return false;
    if (store_wrap(&rig->store, rig->tree, &error)) { /* says that it holds no store any more */
        fuzz_must(!trial->flips, "a store is none: %s", error.text);
        return false;
    }
    store_set_clock(rig->store, rig_now, rig);
    rig_must(store_session_create(&rig->store_session, rig->store, rig->session, &error), &error, "session");
    return true;
}

/* Where the tree leads in circles, each operation gives up after thousands of restarts. */
static bool patient(const struct trial *trial)
{
    return tree_session_stats(trial->rig.session)->retries < 4000;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    static struct trial trial;
    struct rig_options options;
    for (unsigned i = 0; !pattern[1] && i < VALUE_ROOM; i++)
        pattern[i] = (uint8_t)(i % 251);
    memset(&trial, 0, sizeof trial);
    trial.input = (struct fuzz_input){bytes, length};
    fuzz_clock_begin();
    rig_options_default(&options);
    store_geometry(&options.geometry);
    options.records = true;
    options.memory_nodes = 2;
    options.chunk_bytes = UINT64_C(1) << 20;
    options.pool_bytes = UINT64_C(16) << 20;
    rig_create(&trial.rig, &options);
    fill(&trial);
    struct store_check_report report;
    fuzz_must(!store_check(trial.rig.store_session, &report, rig_blocks_add, &trial.blocks),
              "the store as built");
    rig_leave(&trial.rig, false);
    uint8_t how = fuzz_byte(&trial.input);
    damage(&trial);
    bool there = join(&trial, &options, how);
    for (unsigned i = 0; there && trial.input.length && i < STEPS_MAX && patient(&trial); i++)
        step(&trial);
    for (unsigned i = 0; there && i < KEYS && patient(&trial); i += 7)
        try_get(&trial, i);
    if (there)
        try_check(&trial, true);
    rig_destroy(&trial.rig, true);
    fuzz_clock_end();
    free(trial.blocks.items);
    return 0;
}
