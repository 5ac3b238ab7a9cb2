/* conformance.c - see conformance.h. Each case is named after what it proves. */
#include "conformance.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/random.h"
#include "base/task.h"
#include "memory/memory.h"

#define POOL_BYTES  CONFORMANCE_POOL_BYTES
#define CHUNK_BYTES CONFORMANCE_CHUNK_BYTES
#define LOCK_BYTES  CONFORMANCE_LOCK_BYTES
#define AREA        MEMORY_FIRST_CHUNK(MEMORY_LOCK_BYTES) /* where the cases write */

struct trial {
    const struct conformance_backend *backend;
    const char *name;
    uint16_t nodes;
    struct memory_node *memory[CONFORMANCE_NODES_MAX];
    struct fabric *fabric;
    unsigned rounds;
    struct spinlock lock;
    bool failed; /* tasks that wait for others give up when it is set */
    char text[400];
    uint8_t *olds; /* faa: how often each old value was seen */
    uint64_t limit;
};

struct actor {
    struct trial *trial;
    unsigned index, count;
    void (*body)(struct actor *);
    struct fabric_endpoint *endpoint;
    struct fabric_cost cost;
    struct random random;
    bool returned;
};

__attribute__((format(printf, 2, 3))) static void fail(struct trial *trial, const char *format, ...)
{
    spinlock_lock(&trial->lock);
    if (!atomic_load_relaxed(&trial->failed)) {
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(trial->text, sizeof trial->text, format, arguments);
        va_end(arguments);
    }
    atomic_store_relaxed(&trial->failed,
                         true); /* a flag alone; the text is read after all tasks have ended */
    spinlock_unlock(&trial->lock);
}

/* In a function returning void: a failed check ends it. */
#define CHECK(trial, condition, ...)                                                                         \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fail((trial), "line " LINE_TEXT(__LINE__) ": " __VA_ARGS__);                                     \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)
#define LINE_TEXT(line)    LINE_TEXT_OF(line)
#define LINE_TEXT_OF(line) #line

/* ---- tasks ---- */

static void actor_main(void *argument)
{
    struct actor *actor = argument;
    struct error error = {0};
    actor->endpoint = fabric_endpoint_open(actor->trial->fabric, &error);
    if (actor->endpoint == NULL) {
        fail(actor->trial, "endpoint: %s", error.text);
    } else {
        actor->body(actor);
        fabric_endpoint_close(actor->endpoint);
    }
    actor->returned = true;
}

static void run_actors(struct trial *trial, unsigned count, void (*body)(struct actor *))
{
    struct actor *actors = calloc(count, sizeof *actors);
    void (**functions)(void *) = calloc(count, sizeof *functions);
    void **arguments = calloc(count, sizeof *arguments);
    if (actors == NULL || functions == NULL || arguments == NULL)
        abort();
    for (unsigned i = 0; i < count; i++) {
        actors[i].trial = trial;
        actors[i].index = i;
        actors[i].count = count;
        actors[i].body = body;
        random_seed(&actors[i].random, i + 1);
        functions[i] = actor_main;
        arguments[i] = &actors[i];
    }
    trial->backend->run(trial->backend->context, trial->fabric, functions, arguments, count);
    for (unsigned i = 0; i < count; i++)
        if (!actors[i].returned)
            fail(trial, "task %u of %u did not return", i, count);
    free(actors);
    free(functions);
    free(arguments);
}

static bool given_up(const struct actor *actor)
{
    return atomic_load_relaxed(&actor->trial->failed);
}

/* ---- commands ---- */

static struct fabric_command read_command(gaddr address, void *buffer, uint32_t length)
{
    return (struct fabric_command){
        .operation = FABRIC_READ, .length = length, .address = address, .read.buffer = buffer};
}

static struct fabric_command write_command(gaddr address, const void *data, uint32_t length)
{
    return (struct fabric_command){
        .operation = FABRIC_WRITE, .length = length, .address = address, .write.data = data};
}

static struct fabric_command cas_command(gaddr address, uint64_t compare, uint64_t swap, uint64_t mask)
{
    return (struct fabric_command){.operation = FABRIC_CAS,
                                   .address = address,
                                   .cas.compare = compare,
                                   .cas.swap = swap,
                                   .cas.mask = mask,
                                   .cas.old = ~compare};
}

static struct fabric_command faa_command(gaddr address, uint64_t add)
{
    return (struct fabric_command){.operation = FABRIC_FAA, .address = address, .faa.add = add};
}

static struct fabric_list make_list(struct fabric_command *commands, unsigned count)
{
    return (struct fabric_list){.node = gaddr_node(commands[0].address),
                                .count = (uint16_t)count,
                                .commands = commands,
                                .status = 12345};
}

static int execute(struct actor *actor, struct fabric_command *commands, unsigned count)
{
    struct fabric_list list = make_list(commands, count);
    struct fabric_list *lists[] = {&list};
    int status = fabric_execute(actor->endpoint, lists, 1, &actor->cost);
    if (status != list.status)
        fail(actor->trial, "fabric_execute returned %d, the list's status is %d", status, list.status);
    return status;
}

/* READ may return bytes in place: they are copied before they are validated. */
static void fetch(const struct fabric_command *command, void *to)
{
    atomic_copy_from(to, command->read.data, command->length);
}

static uint64_t fetch_word(const struct fabric_command *command)
{
    uint64_t word;
    fetch(command, &word);
    return word;
}

static uint64_t load(struct actor *actor, gaddr address)
{
    uint64_t buffer = 0;
    struct fabric_command command = read_command(address, &buffer, 8);
    int status = execute(actor, &command, 1);
    if (status) {
        fail(actor->trial, "READ of a word: %s", error_name(status));
        return 0;
    }
    return fetch_word(&command);
}

static void store(struct actor *actor, gaddr address, uint64_t value)
{
    struct fabric_command command = write_command(address, &value, 8);
    int status = execute(actor, &command, 1);
    if (status)
        fail(actor->trial, "WRITE of a word: %s", error_name(status));
}

/* ---- capabilities ---- */

static void case_capabilities(struct trial *trial)
{
    const struct fabric_capabilities *c = fabric_capabilities(trial->fabric);
    CHECK(trial, c->backend != NULL && c->backend[0] != 0, "no name");
    CHECK(trial, c->memory_nodes == trial->nodes, "%u memory nodes", (unsigned)c->memory_nodes);
    CHECK(trial, c->compute_id != 0, "compute id 0 is the mark of a free lock");
    CHECK(trial, c->lock_width == 8 || (c->lock_width == 2 && c->masked_cas), "lock width %u", c->lock_width);
    CHECK(trial, c->lock_region_bytes == LOCK_BYTES, "wrong size of the lock region");
    CHECK(trial, c->atomic_write >= 1024, "atomic_write %u is below 1,024", c->atomic_write);
}

/* ---- order within a list (G1) ---- */

static void order_alone(struct actor *actor)
{
    struct trial *trial = actor->trial;
    gaddr a = gaddr_make(0, AREA);
    uint64_t one = 1, block[8], inner = 99, buffers[4][8], seen[8];
    for (unsigned i = 0; i < 8; i++)
        block[i] = 10 + i;

    struct fabric_command commands[] = {write_command(a, &one, 8), cas_command(a, 1, 2, UINT64_MAX),
                                        faa_command(a, 5), cas_command(a, 1, 77, UINT64_MAX),
                                        read_command(a, buffers[0], 8)};
    CHECK(trial, !execute(actor, commands, 5), "a good list failed");
    CHECK(trial, commands[1].cas.old == 1, "CAS does not see the WRITE before it");
    CHECK(trial, commands[2].faa.old == 2, "FAA does not see the CAS before it");
    CHECK(trial, commands[3].cas.old == 7, "CAS does not see the FAA before it");
    CHECK(trial, fetch_word(&commands[4]) == 7, "READ does not see the atomics before it");

    struct fabric_command overlapping[] = {write_command(a + 64, block, 64), write_command(a + 72, &inner, 8),
                                           read_command(a + 64, buffers[1], 64),
                                           read_command(a + 72, buffers[2], 8)};
    CHECK(trial, !execute(actor, overlapping, 4), "a good list failed");
    fetch(&overlapping[2], seen);
    CHECK(trial, seen[0] == 10 && seen[1] == 99 && seen[7] == 17, "WRITEs of a list did not land in order");
    CHECK(trial, fetch_word(&overlapping[3]) == 99, "READ does not see the WRITE before it");

    /* What a list did is seen by the next (G4). */
    CHECK(trial, load(actor, a + 64) == 10 && load(actor, a) == 7,
          "effects of a completed list are not there");
}

static void case_order(struct trial *trial)
{
    run_actors(trial, 1, order_alone);
}

/* Task 0 writes A, then B, in one list; no task may see B without A. Half of the time B is an atomic's
 * word. */
static void order_seen(struct actor *actor)
{
    struct trial *trial = actor->trial;
    gaddr a = gaddr_make(0, AREA + 512), b = gaddr_make(0, AREA + 4096), c = gaddr_make(0, AREA + 8192);
    for (uint64_t round = 1; round <= trial->rounds && !given_up(actor); round++) {
        if (actor->index == 0) {
            struct fabric_command commands[] = {write_command(a, &round, 8), write_command(b, &round, 8),
                                                faa_command(c, 1)};
            CHECK(trial, !execute(actor, commands, 3), "a good list failed");
        } else {
            uint64_t last = load(actor, c);
            uint64_t second = load(actor, b);
            uint64_t first = load(actor, a);
            CHECK(trial, last <= second, "FAA %llu is seen, the WRITE before it (%llu) is not",
                  (unsigned long long)last, (unsigned long long)second);
            CHECK(trial, second <= first, "the second WRITE (%llu) is seen, the first (%llu) is not",
                  (unsigned long long)second, (unsigned long long)first);
        }
        if (round % 16 == 0)
            task_yield();
    }
}

static void case_order_seen_by_others(struct trial *trial)
{
    run_actors(trial, 4, order_seen);
}

/* Reads after which a broken backend is told from a slow task. */
#define PATIENCE (1u << 22)

/* Two tasks each write their own word, complete, and read the other's: one of them at least sees the other
 * (G4). */
static void completed(struct actor *actor)
{
    struct trial *trial = actor->trial;
    gaddr mine = gaddr_make(0, AREA + actor->index * 64);
    gaddr other = gaddr_make(0, AREA + (1 - actor->index) * 64);
    gaddr seen = gaddr_make(0, AREA + 16384); /* one word a round: how many saw the other */
    gaddr arrivals = gaddr_make(0, AREA + 8192);
    for (uint64_t round = 1; round <= trial->rounds / 4 && !given_up(actor); round++) {
        store(actor, mine, round);
        uint64_t value = load(actor, other);
        struct fabric_command commands[] = {faa_command(seen + round * 8, value >= round ? 1 : 0),
                                            faa_command(arrivals, 1)};
        CHECK(trial, !execute(actor, commands, 2), "a good list failed");
        unsigned tries = 0;
        while (load(actor, arrivals) < round * 2 && !given_up(actor)) {
            CHECK(trial, ++tries < PATIENCE, "round %llu: the other task's FAA never arrived",
                  (unsigned long long)round);
            task_yield();
        }
        uint64_t count = load(actor, seen + round * 8);
        CHECK(trial, given_up(actor) || count >= 1, "round %llu: both WRITEs were complete, neither was seen",
              (unsigned long long)round);
    }
}

static void case_complete_means_visible(struct trial *trial)
{
    run_actors(trial, 2, completed);
}

/* ---- words are atomic, no more (G2) ---- */

#define BLOCK_WORDS 128

static uint64_t word_pattern(uint32_t value)
{
    return (uint64_t)~value << 32 | value;
}
static bool word_good(uint64_t word)
{
    return word == 0 || (uint32_t)(word >> 32) == (uint32_t)~word;
}

static void words(struct actor *actor)
{
    struct trial *trial = actor->trial;
    uint64_t buffer[BLOCK_WORDS], copy[BLOCK_WORDS];
    for (unsigned round = 0; round < trial->rounds && !given_up(actor); round++) {
        uint32_t first = (uint32_t)random_below(&actor->random, BLOCK_WORDS);
        uint32_t count = 1 + (uint32_t)random_below(&actor->random, BLOCK_WORDS - first);
        gaddr address = gaddr_make(0, AREA + first * 8);
        if (actor->index % 2 == 0) {
            for (uint32_t i = 0; i < count; i++)
                buffer[i] = word_pattern(actor->index << 24 | round << 8 | i);
            struct fabric_command command = write_command(address, buffer, count * 8);
            CHECK(trial, !execute(actor, &command, 1), "a good WRITE failed");
        } else {
            struct fabric_command command = read_command(address, buffer, count * 8);
            CHECK(trial, !execute(actor, &command, 1), "a good READ failed");
            fetch(&command, copy);
            for (uint32_t i = 0; i < count; i++)
                CHECK(trial, word_good(copy[i]), "word 0x%llx was never written",
                      (unsigned long long)copy[i]);
        }
        if (round % 16 == 0)
            task_yield();
    }
}

static void case_words_are_atomic(struct trial *trial)
{
    run_actors(trial, 6, words);
}

/* Every alignment and short length: the bytes land, their neighbours stay. */
static void alignments(struct actor *actor)
{
    struct trial *trial = actor->trial;
    uint8_t shadow[96], data[48], seen[96];
    uint64_t buffer[12];
    struct fabric_command commands[3];
    gaddr area = gaddr_make(0, AREA);
    memset(shadow, 0xee, sizeof shadow);
    commands[0] = write_command(area, shadow, sizeof shadow);
    CHECK(trial, !execute(actor, commands, 1), "a good WRITE failed");
    for (uint32_t offset = 0; offset < 16; offset++) {
        for (uint32_t length = 1; length <= sizeof data; length++) {
            for (uint32_t i = 0; i < length; i++)
                data[i] = (uint8_t)random_next(&actor->random);
            memcpy(shadow + 16 + offset, data, length);
            uint64_t part[6];
            commands[0] = write_command(area + 16 + offset, data, length);
            commands[1] = read_command(area, buffer, sizeof shadow);
            commands[2] = read_command(area + 16 + offset, part, length);
            CHECK(trial, !execute(actor, commands, 3), "offset %u, length %u failed", offset, length);
            fetch(&commands[1], seen);
            CHECK(trial, memcmp(seen, shadow, sizeof shadow) == 0, "WRITE at +%u of %u bytes went astray",
                  offset, length);
            fetch(&commands[2], seen);
            CHECK(trial, memcmp(seen, data, length) == 0, "READ at +%u of %u bytes is wrong", offset, length);
        }
    }
}

static void case_any_alignment(struct trial *trial)
{
    run_actors(trial, 1, alignments);
}

/* ---- atomics (G3) ---- */

static void cas_alone(struct actor *actor)
{
    struct trial *trial = actor->trial;
    const uint64_t initial = UINT64_C(0x4444333322221111);
    const gaddr places[] = {gaddr_make(0, AREA + 8), gaddr_make(0, GADDR_LOCK_REGION),
                            gaddr_make(0, GADDR_LOCK_REGION | (LOCK_BYTES - 8))};
    for (unsigned place = 0; place < 3; place++) {
        gaddr address = places[place];
        store(actor, address, initial);
        struct fabric_command command = cas_command(address, initial + 1, 5, UINT64_MAX);
        CHECK(trial, !execute(actor, &command, 1) && command.cas.old == initial, "failing CAS: old");
        CHECK(trial, load(actor, address) == initial, "a failing CAS changed the word");
        command = cas_command(address, initial, ~initial, UINT64_MAX);
        CHECK(trial, !execute(actor, &command, 1) && command.cas.old == initial, "CAS: old");
        CHECK(trial, load(actor, address) == ~initial, "CAS did not swap");
        command = faa_command(address, initial + 3);
        CHECK(trial, !execute(actor, &command, 1) && command.faa.old == ~initial, "FAA: old");
        CHECK(trial, load(actor, address) == 2, "FAA does not wrap around");
    }
}

static void case_cas_and_faa(struct trial *trial)
{
    run_actors(trial, 1, cas_alone);
}

static void masked_once(struct actor *actor, uint64_t mask)
{
    struct trial *trial = actor->trial;
    const uint64_t initial = UINT64_C(0x4444333322221111);
    const uint64_t swap = UINT64_C(0xabcdef0123456789);
    gaddr address = gaddr_make(0, GADDR_LOCK_REGION | 64);
    store(actor, address, initial);
    /* Wrong within the mask, right outside of it: must fail. */
    struct fabric_command command = cas_command(address, initial ^ mask, swap, mask);
    CHECK(trial, !execute(actor, &command, 1), "masked CAS failed");
    CHECK(trial, command.cas.old == initial, "failing masked CAS: old");
    CHECK(trial, load(actor, address) == initial, "a failing masked CAS changed the word");
    /* Right within the mask, wrong outside of it: must swap the masked bits alone. */
    command = cas_command(address, initial ^ ~mask, swap, mask);
    CHECK(trial, !execute(actor, &command, 1), "masked CAS failed");
    CHECK(trial, command.cas.old == initial, "masked CAS: old");
    CHECK(trial, load(actor, address) == ((initial & ~mask) | (swap & mask)),
          "masked CAS with 0x%llx is wrong", (unsigned long long)mask);
}

static void masked_alone(struct actor *actor)
{
    for (unsigned lane = 0; lane < 4; lane++)
        masked_once(actor, UINT64_C(0xffff) << lane * 16);
    masked_once(actor, UINT64_C(0x00ff00000000ff00));
    masked_once(actor, UINT64_C(0x0000000ffff00000));
    masked_once(actor, 1);
}

static void case_masked_cas(struct trial *trial)
{
    if (fabric_capabilities(trial->fabric)->masked_cas)
        run_actors(trial, 1, masked_alone);
}

/* Each task owns one lane of a word; no change of the others may make it fail or be lost. */
static void lanes(struct actor *actor)
{
    struct trial *trial = actor->trial;
    gaddr address = gaddr_make(0, GADDR_LOCK_REGION | 8);
    unsigned shift = actor->index * 16;
    for (uint64_t round = 0; round < trial->rounds && !given_up(actor); round++) {
        struct fabric_command command = cas_command(
            address, (round & 0xffff) << shift, ((round + 1) & 0xffff) << shift, UINT64_C(0xffff) << shift);
        CHECK(trial, !execute(actor, &command, 1), "masked CAS failed");
        CHECK(trial, (command.cas.old >> shift & 0xffff) == (round & 0xffff),
              "lane %u was changed by another's CAS", actor->index);
        if (round % 16 == 0)
            task_yield();
    }
}

static void lanes_judge(struct actor *actor)
{
    uint64_t expected = (actor->trial->rounds & 0xffff) * UINT64_C(0x0001000100010001);
    uint64_t word = load(actor, gaddr_make(0, GADDR_LOCK_REGION | 8));
    CHECK(actor->trial, word == expected, "lanes are 0x%llx", (unsigned long long)word);
}

static void case_masked_cas_concurrent(struct trial *trial)
{
    if (!fabric_capabilities(trial->fabric)->masked_cas)
        return;
    run_actors(trial, 4, lanes);
    run_actors(trial, 1, lanes_judge);
}

/* CAS and FAA on one word, against each other: no increment is lost. */
static void sum(struct actor *actor)
{
    struct trial *trial = actor->trial;
    gaddr address = gaddr_make(0, AREA);
    uint64_t expected = 0;
    for (unsigned round = 0; round < trial->rounds && !given_up(actor);) {
        struct fabric_command command = faa_command(address, 1);
        if (actor->index % 2 == 0)
            command = cas_command(address, expected, expected + 1, UINT64_MAX);
        CHECK(trial, !execute(actor, &command, 1), "an atomic failed");
        if (actor->index % 2 != 0 || command.cas.old == expected)
            round++;
        if (actor->index % 2 == 0)
            expected = command.cas.old == expected ? expected + 1 : command.cas.old;
        if (round % 16 == 0)
            task_yield();
    }
}

static void sum_judge(struct actor *actor)
{
    uint64_t value = load(actor, gaddr_make(0, AREA));
    CHECK(actor->trial, value == actor->trial->limit, "sum is %llu, not %llu", (unsigned long long)value,
          (unsigned long long)actor->trial->limit);
}

static void case_cas_against_faa(struct trial *trial)
{
    trial->limit = UINT64_C(4) * trial->rounds;
    run_actors(trial, 4, sum);
    run_actors(trial, 1, sum_judge);
}

/* Every old value of concurrent FAAs is seen exactly once. */
static void tickets(struct actor *actor)
{
    struct trial *trial = actor->trial;
    for (unsigned round = 0; round < trial->rounds && !given_up(actor); round++) {
        struct fabric_command command = faa_command(gaddr_make(0, AREA), 1);
        CHECK(trial, !execute(actor, &command, 1), "FAA failed");
        CHECK(trial, command.faa.old < trial->limit, "FAA returned a number too large");
        /* relaxed: a count, judged after all tasks have ended */
        uint8_t before = atomic_add_relaxed(&trial->olds[command.faa.old], (uint8_t)1);
        CHECK(trial, before == 0, "FAA returned %llu twice", (unsigned long long)command.faa.old);
        if (round % 16 == 0)
            task_yield();
    }
}

static void case_faa_tickets(struct trial *trial)
{
    trial->limit = UINT64_C(8) * trial->rounds;
    trial->olds = calloc(trial->limit, 1);
    if (trial->olds == NULL)
        abort();
    run_actors(trial, 8, tickets);
    run_actors(trial, 1, sum_judge);
    free(trial->olds);
}

/* ---- a lock: CAS to acquire with a READ in the same list, WRITE and unlock in one list ---- */

#define LOCKS        4
#define RECORD_WORDS 8

static gaddr lock_address(unsigned lock, uint32_t width)
{
    return gaddr_make(0, GADDR_LOCK_REGION | (64 + lock * width));
}

static gaddr record_address(unsigned lock)
{
    return gaddr_make(0, AREA + lock * 256);
}

static struct fabric_command lock_command(unsigned lock, uint32_t width, uint64_t from, uint64_t to)
{
    gaddr address = lock_address(lock, width);
    if (width == 8)
        return cas_command(address, from, to, UINT64_MAX);
    unsigned shift = (unsigned)(address % 8) * 8;
    return cas_command(address & ~UINT64_C(7), from << shift, to << shift, UINT64_C(0xffff) << shift);
}

static bool lock_taken(const struct fabric_command *command)
{
    return ((command->cas.old ^ command->cas.compare) & command->cas.mask) == 0;
}

static bool lock_and_read(struct actor *actor, unsigned lock, uint64_t *record)
{
    const struct fabric_capabilities *capabilities = fabric_capabilities(actor->trial->fabric);
    uint64_t buffer[RECORD_WORDS];
    while (!given_up(actor)) {
        struct fabric_command commands[] = {lock_command(lock, capabilities->lock_width, 0, actor->index + 1),
                                            read_command(record_address(lock), buffer, sizeof buffer)};
        int status = execute(actor, commands, 2);
        if (status) {
            fail(actor->trial, "lock: %s", error_name(status));
            return false;
        }
        if (lock_taken(&commands[0])) {
            fetch(&commands[1], record);
            return true;
        }
        task_yield();
    }
    return false;
}

static int write_and_unlock(struct actor *actor, unsigned lock, const uint64_t *record)
{
    const struct fabric_capabilities *capabilities = fabric_capabilities(actor->trial->fabric);
    uint64_t zero = 0;
    struct fabric_command commands[] = {
        write_command(record_address(lock), record, RECORD_WORDS * 8),
        write_command(lock_address(lock, capabilities->lock_width), &zero, capabilities->lock_width)};
    if (!capabilities->release_by_write)
        commands[1] = lock_command(lock, capabilities->lock_width, actor->index + 1, 0);
    return execute(actor, commands, 2);
}

/* The records are counters in remote memory, changed by READ and WRITE alone: only the lock saves them.
 * Neighbouring locks share a word where the width is 2. */
static void locking(struct actor *actor)
{
    struct trial *trial = actor->trial;
    uint64_t record[RECORD_WORDS];
    for (unsigned round = 0; round < trial->rounds / 2; round++) {
        unsigned lock = (unsigned)random_below(&actor->random, LOCKS);
        if (!lock_and_read(actor, lock, record))
            return;
        for (unsigned i = 1; i < RECORD_WORDS; i++)
            CHECK(trial, record[i] == record[0], "under the lock: word 0 is %llu, word %u is %llu",
                  (unsigned long long)record[0], i, (unsigned long long)record[i]);
        if (round % 8 == 0)
            task_yield(); /* with the lock held */
        for (unsigned i = 0; i < RECORD_WORDS; i++)
            record[i]++;
        CHECK(trial, !write_and_unlock(actor, lock, record), "unlock failed");
    }
}

static void locking_judge(struct actor *actor)
{
    uint64_t total = 0;
    for (unsigned lock = 0; lock < LOCKS; lock++)
        total += load(actor, record_address(lock));
    CHECK(actor->trial, total == actor->trial->limit, "%llu increments under locks, %llu were made",
          (unsigned long long)total, (unsigned long long)actor->trial->limit);
}

static void case_lock(struct trial *trial)
{
    trial->limit = UINT64_C(6) * (trial->rounds / 2);
    run_actors(trial, 6, locking);
    run_actors(trial, 1, locking_judge);
}

/* ---- many lists ---- */

static void several_nodes(struct actor *actor)
{
    struct trial *trial = actor->trial;
    struct fabric_command commands[6][2];
    struct fabric_list lists[6], *pointers[6];
    uint64_t values[6], buffers[6];
    for (unsigned i = 0; i < 6; i++) { /* two lists to each node */
        values[i] = 1000 + i;
        gaddr address = gaddr_make((uint16_t)(i % 3), AREA + i * 64);
        commands[i][0] = write_command(address, &values[i], 8);
        commands[i][1] = read_command(address, &buffers[i], 8);
        lists[i] = make_list(commands[i], 2);
        pointers[i] = &lists[i];
    }
    CHECK(trial, !fabric_execute(actor->endpoint, pointers, 6, &actor->cost), "good lists failed");
    CHECK(trial, actor->cost.round_trips == 1 && actor->cost.lists == 6,
          "lists together cost more than one wait");
    for (unsigned i = 0; i < 6; i++)
        CHECK(trial, !lists[i].status && fetch_word(&commands[i][1]) == 1000 + i, "list %u is wrong", i);
    for (uint16_t node = 0; node < 3; node++)
        for (unsigned i = 0; i < 6; i++)
            CHECK(trial, load(actor, gaddr_make(node, AREA + i * 64)) == (i % 3 == node ? 1000 + i : 0),
                  "node %u, word %u is not what was written there", (unsigned)node, i);
    CHECK(trial, !fabric_execute(actor->endpoint, NULL, 0, &actor->cost), "no lists is not an error");
}

static void case_several_nodes(struct trial *trial)
{
    run_actors(trial, 1, several_nodes);
}

struct flight {
    struct fabric_command commands[2];
    struct fabric_list list;
    uint64_t value, buffer;
};

/* `count` lists in one execute, each writing a word of its own and counting itself on a shared one. */
static void fly(struct actor *actor, struct flight *flights, struct fabric_list **lists, unsigned count)
{
    struct trial *trial = actor->trial;
    for (unsigned i = 0; i < count; i++) {
        struct flight *flight = &flights[i];
        uint16_t node = (uint16_t)(i % trial->nodes);
        flight->value = word_pattern(actor->index << 16 | i);
        flight->commands[0] = write_command(
            gaddr_make(node, AREA + 64 + (actor->index * count + i) * UINT64_C(8)), &flight->value, 8);
        flight->commands[1] = faa_command(gaddr_make(node, AREA), 1);
        flight->list = make_list(flight->commands, 2);
        lists[i] = &flight->list;
    }
    int status = fabric_execute(actor->endpoint, lists, count, NULL);
    CHECK(trial, !status, "%u lists at once failed: status %d", count, status);
    for (unsigned i = 0; i < count; i++) {
        struct flight *flight = &flights[i];
        CHECK(trial, !flight->list.status, "list %u of %u: status %d", i, count, flight->list.status);
        flight->commands[0] = read_command(flight->commands[0].address, &flight->buffer, 8);
        flight->list = make_list(flight->commands, 1);
    }
    status = fabric_execute(actor->endpoint, lists, count, NULL);
    CHECK(trial, !status, "%u READs at once failed: status %d", count, status);
    for (unsigned i = 0; i < count; i++)
        CHECK(trial, fetch_word(&flights[i].commands[0]) == flights[i].value, "list %u of %u was lost", i,
              count);
}

static void flying(struct actor *actor)
{
    unsigned count = actor->count == 1 ? 3000 : 64;
    struct flight *flights = calloc(count, sizeof *flights);
    struct fabric_list **lists = calloc(count, sizeof *lists);
    if (flights == NULL || lists == NULL)
        abort();
    fly(actor, flights, lists, count);
    free(flights);
    free(lists);
}

static void flying_judge(struct actor *actor)
{
    uint64_t total = 0;
    for (uint16_t node = 0; node < actor->trial->nodes; node++)
        total += load(actor, gaddr_make(node, AREA));
    CHECK(actor->trial, total == actor->trial->limit, "%llu lists counted, not %llu",
          (unsigned long long)total, (unsigned long long)actor->trial->limit);
}

static void case_thousands_of_lists(struct trial *trial)
{
    trial->limit = 3000;
    run_actors(trial, 1, flying);
    run_actors(trial, 1, flying_judge);
}

static void case_many_tasks(struct trial *trial)
{
    trial->limit = UINT64_C(64) * CONFORMANCE_TASKS_MAX;
    run_actors(trial, CONFORMANCE_TASKS_MAX, flying);
    run_actors(trial, 1, flying_judge);
}

/* ---- what is refused ---- */

/* [WRITE, bad, WRITE] together with a good list: the first WRITE is done, the second is not, the good list
 * is. */
static void refuse_one(struct actor *actor, const char *what, struct fabric_command bad)
{
    static const uint64_t words_written[3] = {111, 222, 333};
    struct trial *trial = actor->trial;
    gaddr a = gaddr_make(0, AREA), b = gaddr_make(0, AREA + 64), c = gaddr_make(1, AREA + 128);
    store(actor, a, 1);
    store(actor, b, 2);
    store(actor, c, 3);
    struct fabric_command commands[] = {write_command(a, &words_written[0], 8), bad,
                                        write_command(b, &words_written[1], 8)};
    struct fabric_command good = write_command(c, &words_written[2], 8);
    struct fabric_list bad_list = make_list(commands, 3), good_list = make_list(&good, 1);
    struct fabric_list *lists[] = {&bad_list, &good_list};
    int status = fabric_execute(actor->endpoint, lists, 2, NULL);
    CHECK(trial, status == BANYAN_EADDRESS && bad_list.status == BANYAN_EADDRESS, "%s: status %d, list %d",
          what, status, bad_list.status);
    CHECK(trial, !good_list.status && load(actor, c) == 333, "%s: harmed another list", what);
    CHECK(trial, load(actor, a) == 111, "%s: the command before it is not done", what);
    CHECK(trial, load(actor, b) == 2, "%s: the command after it is done", what);
}

static void refuse_addresses(struct actor *actor)
{
    static uint64_t large[FABRIC_LENGTH_MAX / 8 + 1]; /* zero; no bad command may touch it */
    const uint32_t longest = FABRIC_LENGTH_MAX;
    const gaddr end = gaddr_make(0, POOL_BYTES), locks = gaddr_make(0, GADDR_LOCK_REGION);
    const gaddr last = gaddr_make(0, GADDR_LOCK_REGION - 8), area = gaddr_make(0, AREA);
    struct fabric_command unknown = faa_command(area, 1);
    unknown.operation = (enum fabric_operation)7;

    refuse_one(actor, "READ of nothing", read_command(area, large, 0));
    refuse_one(actor, "WRITE of nothing", write_command(area, large, 0));
    refuse_one(actor, "READ too long", read_command(area, large, longest + 1));
    refuse_one(actor, "WRITE too long", write_command(area, large, longest + 1));
    refuse_one(actor, "READ far too long", read_command(area, large, UINT32_MAX));
    refuse_one(actor, "READ behind the pool", read_command(end, large, 8));
    refuse_one(actor, "READ over the pool's end", read_command(end - 8, large, 16));
    refuse_one(actor, "WRITE over the pool's end", write_command(end - 7, large, 8));
    refuse_one(actor, "READ of the last address below the locks", read_command(last, large, 16));
    refuse_one(actor, "WRITE at the largest address", write_command(locks | last | 7, large, longest));
    refuse_one(actor, "READ behind the locks", read_command(locks + LOCK_BYTES, large, 8));
    refuse_one(actor, "WRITE over the locks' end", write_command(locks + LOCK_BYTES - 1, large, 2));
    refuse_one(actor, "CAS misaligned", cas_command(area + 4, 0, 1, UINT64_MAX));
    refuse_one(actor, "FAA misaligned", faa_command(area + 1, 1));
    refuse_one(actor, "CAS misaligned in the locks", cas_command(locks + 2, 0, 1, UINT64_MAX));
    refuse_one(actor, "CAS behind the pool", cas_command(end, 0, 1, UINT64_MAX));
    refuse_one(actor, "FAA behind the locks", faa_command(locks + LOCK_BYTES, 1));
    refuse_one(actor, "READ of null", read_command(GADDR_NULL, large, 8));
    refuse_one(actor, "WRITE to null", write_command(GADDR_NULL, large, 8));
    refuse_one(actor, "another node's address", read_command(gaddr_make(1, AREA), large, 8));
    refuse_one(actor, "another node's word", faa_command(gaddr_make(1, AREA), 1));
    refuse_one(actor, "no node's address", write_command(gaddr_make(999, AREA), large, 8));
    refuse_one(actor, "unknown operation", unknown);
}

/* The largest that is right: just not refused. */
static void limits(struct actor *actor)
{
    struct trial *trial = actor->trial;
    uint8_t *data = malloc(FABRIC_LENGTH_MAX), *buffer = malloc(FABRIC_LENGTH_MAX);
    if (data == NULL || buffer == NULL)
        abort();
    for (uint32_t i = 0; i < FABRIC_LENGTH_MAX; i++)
        data[i] = (uint8_t)random_next(&actor->random);
    struct fabric_command commands[] = {
        write_command(gaddr_make(0, POOL_BYTES - FABRIC_LENGTH_MAX), data, FABRIC_LENGTH_MAX),
        read_command(gaddr_make(0, POOL_BYTES - FABRIC_LENGTH_MAX), buffer, FABRIC_LENGTH_MAX)};
    int status = execute(actor, commands, 2);
    bool same = !status && memcmp(commands[1].read.data, data, FABRIC_LENGTH_MAX) == 0;
    free(data);
    free(buffer);
    CHECK(trial, same, "the longest WRITE and READ, up to the pool's end: status %d", status);

    struct fabric_command edges[] = {faa_command(gaddr_make(0, GADDR_LOCK_REGION | (LOCK_BYTES - 8)), 1),
                                     faa_command(gaddr_make(1, 0), 0),
                                     faa_command(gaddr_make(0, POOL_BYTES - 8), 1)};
    CHECK(trial, !execute(actor, &edges[0], 1), "the last lock word");
    CHECK(trial, !execute(actor, &edges[1], 1), "offset 0 of another node than 0");
    CHECK(trial, !execute(actor, &edges[2], 1), "the last word of the pool");
    struct fabric_command full[FABRIC_COMMANDS_MAX];
    for (unsigned i = 0; i < FABRIC_COMMANDS_MAX; i++)
        full[i] = faa_command(gaddr_make(0, AREA + 1024), 1);
    CHECK(trial, !execute(actor, full, FABRIC_COMMANDS_MAX), "the longest list");
    CHECK(trial, load(actor, gaddr_make(0, AREA + 1024)) == FABRIC_COMMANDS_MAX, "the longest list was cut");
}

static void case_bad_addresses(struct trial *trial)
{
    run_actors(trial, 1, refuse_addresses);
}
static void case_limits(struct trial *trial)
{
    run_actors(trial, 1, limits);
}

static void refuse_list(struct actor *actor, const char *what, unsigned count, uint16_t node)
{
    struct trial *trial = actor->trial;
    struct fabric_command commands[FABRIC_COMMANDS_MAX + 1], good = faa_command(gaddr_make(1, AREA), 1);
    for (unsigned i = 0; i <= FABRIC_COMMANDS_MAX; i++)
        commands[i] = faa_command(gaddr_make(0, AREA), 1);
    uint64_t before = load(actor, gaddr_make(1, AREA));
    struct fabric_list bad_list = make_list(commands, count), good_list = make_list(&good, 1);
    struct fabric_list *lists[] = {&bad_list, &good_list, NULL};
    bad_list.node = node;
    struct fabric_cost cost = {0};
    int status = fabric_execute(actor->endpoint, lists, 2, &cost);
    CHECK(trial, status == BANYAN_EINVAL && bad_list.status == BANYAN_EINVAL, "%s: status %d", what, status);
    CHECK(trial, !good_list.status, "%s: harmed another list", what);
    CHECK(trial, load(actor, gaddr_make(1, AREA)) == before + 1, "%s: another list was not run once", what);
    CHECK(trial, load(actor, gaddr_make(0, AREA)) == 0, "%s: was run", what);
    CHECK(trial, cost.lists == 1 && cost.round_trips == 1 && cost.atomics == 1, "%s: was counted", what);
    bad_list.status = 0;
    CHECK(trial, fabric_execute(actor->endpoint, lists, 1, NULL) == BANYAN_EINVAL, "%s alone", what);
}

static void refuse_lists(struct actor *actor)
{
    refuse_list(actor, "empty list", 0, 0);
    refuse_list(actor, "too many commands", FABRIC_COMMANDS_MAX + 1, 0);
    refuse_list(actor, "node that is not there", 1, actor->trial->nodes);
    refuse_list(actor, "node 65535", 1, 65535);
}

static void case_bad_lists(struct trial *trial)
{
    run_actors(trial, 1, refuse_lists);
}

/* As many bytes as a list may have, in more commands than can have too many by themselves; and one more. */
static void list_bytes(struct actor *actor)
{
    enum { PARTS = 8, PART = FABRIC_LIST_BYTES_MAX / PARTS };
    struct trial *trial = actor->trial;
    struct fabric_command commands[PARTS + 1];
    uint8_t *buffers = malloc((size_t)FABRIC_LIST_BYTES_MAX + 8);
    if (buffers == NULL)
        abort();
    memset(buffers, 0x5a, PART);
    commands[0] = write_command(gaddr_make(0, POOL_BYTES - PART), buffers, PART);
    for (unsigned i = 1; i <= PARTS; i++)
        commands[i] = read_command(gaddr_make(0, POOL_BYTES - PART), buffers + i * (size_t)PART, PART);
    commands[PARTS] = faa_command(gaddr_make(0, AREA), 1);
    int status = execute(actor, commands, PARTS + 1);
    bool same = !status;
    for (unsigned i = 1; i < PARTS && same; i++)
        same = memcmp(commands[i].read.data, buffers, PART) == 0;
    commands[PARTS] = read_command(gaddr_make(0, AREA), buffers + FABRIC_LIST_BYTES_MAX, 1);
    int refused = execute(actor, commands, PARTS + 1);
    free(buffers);
    CHECK(trial, same, "a list of as many bytes as may be: status %d", status);
    CHECK(trial, refused == BANYAN_EINVAL, "one byte more: status %d", refused);
    CHECK(trial, load(actor, gaddr_make(0, AREA)) == 1, "the long list was not run once");
}

static void case_list_bytes(struct trial *trial)
{
    run_actors(trial, 1, list_bytes);
}

/* ---- lost connections (G6) ---- */

static int add_numbered(struct actor *actor, uint16_t node, uint64_t incarnation)
{
    struct fabric_command command = faa_command(gaddr_make(node, AREA), 1);
    struct fabric_list list = make_list(&command, 1), *lists[] = {&list};
    list.incarnation = incarnation;
    return fabric_execute(actor->endpoint, lists, 1, NULL);
}

static void lose_and_return(struct actor *actor)
{
    struct trial *trial = actor->trial;
    uint64_t before = fabric_incarnation(trial->fabric), buffer;
    unsigned tries = 0;
    trial->backend->lose(trial->backend->context, trial->fabric, 0);
    /* Reads until the memory node is there again: they may be posted whatever was lost. One that was begun
     * before the loss was noticed may still succeed: through a NIC, which lives until then. */
    for (;;) {
        uint64_t now = fabric_incarnation(trial->fabric);
        struct fabric_command command = read_command(gaddr_make(0, AREA), &buffer, 8);
        struct fabric_list list = make_list(&command, 1), *lists[] = {&list};
        int status = fabric_execute(actor->endpoint, lists, 1, NULL);
        if (!status && now > before)
            break;
        CHECK(trial, !status || status == BANYAN_ENET, "a lost connection: status %d", status);
        CHECK(trial, ++tries < 20000, "the memory node did not come back");
        task_sleep(1000000);
    }
    uint64_t after = fabric_incarnation(trial->fabric), count = load(actor, gaddr_make(0, AREA));
    CHECK(trial, after == before + 1, "one loss, but the incarnation went from %llu to %llu",
          (unsigned long long)before, (unsigned long long)after);
    CHECK(trial, add_numbered(actor, 0, before) == BANYAN_EFENCED, "of before the loss: not refused");
    CHECK(trial, load(actor, gaddr_make(0, AREA)) == count, "of before the loss: refused, and yet done");
    CHECK(trial, !add_numbered(actor, 1, before), "refused at a node that was not lost");
    CHECK(trial, !add_numbered(actor, 0, after), "of after the loss: refused");
    CHECK(trial, load(actor, gaddr_make(0, AREA)) == count + 1, "of after the loss: not done once");
}

static void incarnations(struct actor *actor)
{
    struct trial *trial = actor->trial;
    uint64_t first = fabric_incarnation(trial->fabric);
    CHECK(trial, first >= 1, "0 is no incarnation");
    CHECK(trial, !add_numbered(actor, 0, first) && !add_numbered(actor, 1, first),
          "lists of the present incarnation are refused");
    for (unsigned i = 0; i < 3 && trial->backend->lose != NULL && !given_up(actor); i++)
        lose_and_return(actor);
}

static void case_incarnations(struct trial *trial)
{
    run_actors(trial, 1, incarnations);
}

/* ---- calls ---- */

static void calls(struct actor *actor)
{
    struct trial *trial = actor->trial;
    struct fabric_endpoint *endpoint = actor->endpoint;
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_allocate_request allocate = {.kind = MEMORY_ALLOCATE, .block_bytes = 1024, .want = 4};
    struct memory_status_reply status;
    struct memory_allocate_reply chunk;
    uint32_t unknown[4] = {4711};
    size_t length = 0;

    for (uint16_t node = 0; node < trial->nodes; node++) {
        int result =
            fabric_call(endpoint, node, &allocate, sizeof allocate, &chunk, sizeof chunk, &length, NULL);
        CHECK(trial, !result && chunk.count == 4, "allocation: %d", result);
        CHECK(trial, gaddr_node(chunk.blocks[0]) == node, "a call met the wrong node");
        result = fabric_call(endpoint, node, &ask, sizeof ask, &status, sizeof status, &length, NULL);
        CHECK(trial, !result && length == sizeof status && status.chunks_used == 1, "status: %d", result);
    }
    length = 99;
    int result = fabric_call(endpoint, 0, unknown, sizeof unknown, &status, sizeof status, &length, NULL);
    CHECK(trial, result == BANYAN_EINVAL && length == 0, "unknown request: %d", result);
    result = fabric_call(endpoint, 0, &ask, 3, &status, sizeof status, &length, NULL);
    CHECK(trial, result == BANYAN_EINVAL, "request of 3 bytes: %d", result);
    result = fabric_call(endpoint, 0, &ask, 0, &status, sizeof status, &length, NULL);
    CHECK(trial, result == BANYAN_EINVAL, "request of no bytes: %d", result);
    result = fabric_call(endpoint, 0, &ask, sizeof ask, &status, 4, &length, NULL);
    CHECK(trial, result == BANYAN_EINVAL, "no room for the reply: %d", result);
    result = fabric_call(endpoint, trial->nodes, &ask, sizeof ask, &status, sizeof status, &length, NULL);
    CHECK(trial, result == BANYAN_EINVAL, "node that is not there: %d", result);
    result = fabric_call(endpoint, 1, &ask, sizeof ask, &status, sizeof status, &length, NULL);
    CHECK(trial, !result && status.chunks_used == 1, "the endpoint does not survive bad calls");
}

static void case_calls(struct trial *trial)
{
    run_actors(trial, 1, calls);
}

/* ---- cost ---- */

static bool cost_is(const struct fabric_cost *cost, struct fabric_cost expected)
{
    return memcmp(cost, &expected, sizeof expected) == 0;
}

static void costs(struct actor *actor)
{
    struct trial *trial = actor->trial;
    struct memory_status_request ask = {.kind = MEMORY_STATUS};
    struct memory_status_reply status;
    struct fabric_cost cost = {0};
    uint64_t data[16] = {0}, buffer[16];
    size_t length;
    gaddr a = gaddr_make(0, AREA), b = gaddr_make(1, AREA);
    struct fabric_command first[] = {cas_command(a, 0, 0, UINT64_MAX), read_command(a, buffer, 100)};
    struct fabric_command second[] = {write_command(b, data, 77), write_command(b + 128, data, 2),
                                      faa_command(b, 0)};
    struct fabric_list lists[] = {make_list(first, 2), make_list(second, 3)};
    struct fabric_list *pointers[] = {&lists[0], &lists[1]};

    CHECK(trial, !fabric_execute(actor->endpoint, pointers, 2, &cost), "good lists failed");
    CHECK(trial,
          cost_is(&cost, (struct fabric_cost){.round_trips = 1,
                                              .lists = 2,
                                              .reads = 1,
                                              .writes = 2,
                                              .atomics = 2,
                                              .bytes_read = 100,
                                              .bytes_written = 77 + 2 + 16}),
          "two lists are not counted right");
    CHECK(trial, !fabric_execute(actor->endpoint, pointers, 1, NULL), "without counting");
    CHECK(trial, !fabric_call(actor->endpoint, 1, &ask, sizeof ask, &status, sizeof status, &length, &cost),
          "a call failed");
    CHECK(trial, !fabric_execute(actor->endpoint, pointers, 1, &cost), "a good list failed");
    struct fabric_cost expected = {.round_trips = 3,
                                   .lists = 3,
                                   .reads = 2,
                                   .writes = 2,
                                   .atomics = 3,
                                   .rpcs = 1,
                                   .bytes_read = 200,
                                   .bytes_written = 77 + 2 + 24};
    CHECK(trial, cost_is(&cost, expected), "a call or a second list is not counted right");
    struct fabric_cost twice = expected;
    fabric_cost_add(&twice, &expected);
    CHECK(trial, twice.round_trips == 6 && twice.lists == 6 && twice.reads == 4 && twice.writes == 4,
          "added wrong");
    CHECK(trial,
          twice.atomics == 6 && twice.rpcs == 2 && twice.bytes_read == 400 && twice.bytes_written == 206,
          "added wrong");
}

static void case_cost(struct trial *trial)
{
    run_actors(trial, 1, costs);
}

/* ---- running ---- */

static const struct {
    const char *name;
    uint16_t nodes;
    void (*function)(struct trial *);
} cases[] = {
    {"capabilities", 2, case_capabilities},
    {"order", 1, case_order},
    {"order seen by others", 1, case_order_seen_by_others},
    {"complete means visible", 1, case_complete_means_visible},
    {"words are atomic", 1, case_words_are_atomic},
    {"any alignment", 1, case_any_alignment},
    {"CAS and FAA", 1, case_cas_and_faa},
    {"masked CAS", 1, case_masked_cas},
    {"masked CAS, concurrent", 1, case_masked_cas_concurrent},
    {"CAS against FAA", 1, case_cas_against_faa},
    {"FAA tickets", 1, case_faa_tickets},
    {"lock", 1, case_lock},
    {"several nodes", 3, case_several_nodes},
    {"thousands of lists", 3, case_thousands_of_lists},
    {"many tasks", 4, case_many_tasks},
    {"bad addresses", 2, case_bad_addresses},
    {"limits", 2, case_limits},
    {"bad lists", 2, case_bad_lists},
    {"bytes of a list", 1, case_list_bytes},
    {"incarnations", 2, case_incarnations},
    {"calls", 2, case_calls},
    {"cost", 2, case_cost},
};

static void open_nodes(struct trial *trial, const struct fabric_target **targets)
{
    struct error error = {0};
    for (uint16_t i = 0; i < trial->nodes; i++) {
        struct memory_options options = {
            .node = i, .pool_bytes = POOL_BYTES, .chunk_bytes = CHUNK_BYTES, .lock_bytes = LOCK_BYTES};
        if (memory_node_create(&trial->memory[i], &options, &error)) {
            fail(trial, "memory node: %s", error.text);
            return;
        }
        targets[i] = memory_node_target(trial->memory[i]);
    }
}

static bool run_case(const struct conformance_backend *backend, unsigned index)
{
    const struct fabric_target *targets[CONFORMANCE_NODES_MAX];
    struct trial trial = {.backend = backend, .name = cases[index].name, .nodes = cases[index].nodes};
    trial.rounds = backend->rounds ? backend->rounds : 2000;
    open_nodes(&trial, targets);
    if (!trial.failed) {
        trial.fabric = backend->open(backend->context, targets, trial.nodes);
        if (trial.fabric == NULL)
            fail(&trial, "the fabric does not open");
    }
    if (!trial.failed)
        cases[index].function(&trial);
    if (trial.fabric != NULL)
        backend->close(backend->context, trial.fabric);
    for (uint16_t i = 0; i < trial.nodes; i++)
        memory_node_destroy(trial.memory[i]);
    if (trial.failed)
        fprintf(stderr, "conformance of %s: %s: %s\n", backend->name, trial.name, trial.text);
    return !trial.failed;
}

unsigned conformance_run_some(const struct conformance_backend *backend, const char *part)
{
    unsigned failed = 0, count = 0;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (strstr(cases[i].name, part) == NULL)
            continue;
        count++;
        if (!run_case(backend, i))
            failed++;
    }
    return count == 0 ? 1 : failed; /* to run nothing is no success */
}

unsigned conformance_run(const struct conformance_backend *backend)
{
    return conformance_run_some(backend, "");
}
