/*
 * lock_stress.c - no unlock is lost (G3): several compute nodes, processes of several threads each, take and
 * release few neighbouring lock words on one memory node, in the lists that src/tree/lock.c makes: CAS and
 * READ of what the lock guards, then WRITE of it and the release. Each run is a fresh set of processes.
 *
 * A run is good when all that was counted under the locks adds up, no word is left taken and every thread
 * came to an end. An unlock is lost when its list has succeeded and the word still has its owner. This is
 * noticed without waiting: each thread has a mark of its own, so a thread that finds its mark in a word that
 * it does not hold has found a lost unlock. A thread gives up after PATIENCE tries on a word that no longer
 * changes.
 *
 * Usage: lock_stress [--runs N] [--rounds N] [--processes N] [--threads N] [--locks N] [--tcp]
 *                    [--release-by-write [--until-lost]]
 *   --rounds            acquisitions of each thread in a run
 *   --tcp               not over the NIC at $BANYAN_RDMA_ADDRESS
 *   --release-by-write  always, whatever the NIC promises: what goes wrong where it promises nothing
 *   --until-lost        succeeds when a run has lost an unlock, fails when none has: proves that this program
 *                       can tell
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "base/random.h"
#include "base/task.h"
#include "fabric/remote.h"
#include "memory/memory.h"
#include "tests/fabric/daemon.h"

#define LOCK_BYTES    UINT64_C(4096)
#define RECORD_WORDS  8u
#define AREA          MEMORY_FIRST_CHUNK(LOCK_BYTES)
#define PROCESSES_MAX 8u
#define THREADS_MAX   16u
#define LOCKS_MAX     64u
/* Tries for a word at which nothing changes. Whoever holds it needs two lists to release it. */
#define PATIENCE   20000u
#define FIRST_MARK 1000u /* no compute node's number: the memory node frees locks by those */

enum verdict { GOOD = 0, BROKEN = 1, LOST = 3 };

struct settings {
    unsigned runs, rounds, processes, threads, locks;
    bool tcp, by_write, until_lost;
    /* of a process of the stress */
    int process; /* -1: the one that starts and judges */
    struct net_address node;
};

struct stress {
    const struct settings *settings;
    struct fabric *fabric;
    uint32_t width;
    bool by_write;
    uint32_t verdict; /* atomic: the worst so far */
};

struct runner {
    struct stress *stress;
    struct fabric_endpoint *endpoint;
    struct random random;
    uint64_t mark;
    pthread_t thread;
};

_Noreturn static void give_up(const char *what, const char *why)
{
    fprintf(stderr, "lock_stress: %s: %s\n", what, why);
    exit(BROKEN);
}

static void found(struct stress *stress, enum verdict verdict)
{
    /* relaxed: a flag that others look at now and then; the last look is after the threads were joined */
    if (atomic_load_relaxed(&stress->verdict) < (uint32_t)verdict)
        atomic_store_relaxed(&stress->verdict, (uint32_t)verdict);
}

/* ---- lists, as src/tree/lock.c makes them ---- */

static gaddr lock_address(const struct stress *stress, unsigned lock)
{
    return gaddr_make(0, GADDR_LOCK_REGION | lock * stress->width);
}

static gaddr record_address(unsigned lock)
{
    return gaddr_make(0, AREA + lock * UINT64_C(256));
}

static struct fabric_command cas_of(const struct stress *stress, unsigned lock, uint64_t from, uint64_t to)
{
    gaddr address = lock_address(stress, lock);
    unsigned shift = (unsigned)(address & 7) * 8;
    uint64_t mask = stress->width == 8 ? UINT64_MAX : UINT64_C(0xffff) << shift;
    return (struct fabric_command){
        .operation = FABRIC_CAS,
        .address = address & ~UINT64_C(7),
        .cas = {.compare = from << shift, .swap = to << shift, .mask = mask, .old = UINT64_MAX}};
}

static uint64_t owner_in(const struct stress *stress, unsigned lock, uint64_t word)
{
    return stress->width == 8 ? word : word >> (lock_address(stress, lock) & 7) * 8 & 0xffff;
}

static struct fabric_command read_of(gaddr address, void *buffer, uint32_t length)
{
    return (struct fabric_command){
        .operation = FABRIC_READ, .length = length, .address = address, .read.buffer = buffer};
}

static struct fabric_command write_of(gaddr address, const void *data, uint32_t length)
{
    return (struct fabric_command){
        .operation = FABRIC_WRITE, .length = length, .address = address, .write.data = data};
}

static int execute(struct fabric_endpoint *endpoint, struct fabric_command *commands, unsigned count)
{
    struct fabric_list list = {.node = 0, .count = (uint16_t)count, .commands = commands}, *lists[] = {&list};
    return fabric_execute(endpoint, lists, 1, NULL);
}

/* ---- the stress ---- */

/* False: the run is over. `record` is as it was found under the lock. */
static bool take(struct runner *runner, unsigned lock, uint64_t record[RECORD_WORDS])
{
    struct stress *stress = runner->stress;
    uint64_t seen[RECORD_WORDS], progress = 0, last = 0;
    for (unsigned tries = 0; atomic_load_relaxed(&stress->verdict) == GOOD; tries++) {
        struct fabric_command commands[] = {cas_of(stress, lock, 0, runner->mark),
                                            read_of(record_address(lock), seen, sizeof seen)};
        int status = execute(runner->endpoint, commands, 2);
        if (status) {
            fprintf(stderr, "lock %u cannot be taken: %s\n", lock, error_name(status));
            found(stress, BROKEN);
            return false;
        }
        uint64_t owner = owner_in(stress, lock, commands[0].cas.old);
        atomic_copy_from(record, commands[1].read.data, sizeof seen);
        if (owner == 0)
            return true;
        if (owner == runner->mark) {
            fprintf(stderr,
                    "lock %u still has the mark of the thread that released it, %" PRIu64
                    ", at count %" PRIu64 "\n",
                    lock, owner, record[0]);
            found(stress, LOST);
            return false;
        }
        if (owner != last || record[0] != progress)
            tries = 0;
        last = owner;
        progress = record[0];
        if (tries == PATIENCE) {
            fprintf(stderr, "lock %u has the mark %" PRIu64 " after %u tries, and nothing happens\n", lock,
                    owner, tries);
            found(stress, LOST);
        }
    }
    return false;
}

static bool release(struct runner *runner, unsigned lock, const uint64_t record[RECORD_WORDS])
{
    static const uint64_t zero;
    struct stress *stress = runner->stress;
    struct fabric_command commands[] = {write_of(record_address(lock), record, RECORD_WORDS * 8),
                                        cas_of(stress, lock, runner->mark, 0)};
    if (stress->by_write)
        commands[1] = write_of(lock_address(stress, lock), &zero, stress->width);
    int status = execute(runner->endpoint, commands, 2);
    if (!status && (stress->by_write || owner_in(stress, lock, commands[1].cas.old) == runner->mark))
        return true;
    fprintf(stderr, "lock %u is not released: %s\n", lock,
            status ? error_name(status) : "another's mark stood there");
    found(stress, BROKEN);
    return false;
}

static bool round_of(struct runner *runner)
{
    unsigned lock = (unsigned)random_below(&runner->random, runner->stress->settings->locks);
    uint64_t record[RECORD_WORDS];
    if (!take(runner, lock, record))
        return false;
    for (unsigned i = 0; i < RECORD_WORDS; i++) {
        if (record[i] != record[0]) {
            fprintf(stderr, "under lock %u word 0 is %" PRIu64 ", word %u is %" PRIu64 "\n", lock, record[0],
                    i, record[i]);
            found(runner->stress, BROKEN);
            return false;
        }
    }
    for (unsigned i = 0; i < RECORD_WORDS; i++)
        record[i]++;
    return release(runner, lock, record);
}

static void *runner_main(void *argument)
{
    struct runner *runner = argument;
    struct error error = {0};
    runner->endpoint = fabric_endpoint_open(runner->stress->fabric, &error);
    if (runner->endpoint == NULL)
        give_up("endpoint", error.text);
    for (unsigned i = 0; i < runner->stress->settings->rounds && round_of(runner); i++)
        ;
    fabric_endpoint_close(runner->endpoint);
    return NULL;
}

static struct fabric *open_fabric(const struct settings *settings)
{
    /* Emulated machines are slow: no compute node is to be fenced for that. */
    const struct fabric_remote_options options = {
        .nodes = &settings->node, .count = 1, .lease_ms = 30000, .timeout_ms = 60000};
    struct fabric *fabric;
    struct error error = {0};
    if (fabric_remote_open(&fabric, &options, &error))
        give_up("the memory node", error.text);
    return fabric;
}

/* A compute node. Its exit status is its verdict. */
static int stress_run(const struct settings *settings)
{
    struct stress stress = {.settings = settings, .fabric = open_fabric(settings)};
    struct runner runners[THREADS_MAX];
    const struct fabric_capabilities *capabilities = fabric_capabilities(stress.fabric);
    stress.width = capabilities->lock_width;
    stress.by_write = settings->by_write || capabilities->release_by_write;
    for (unsigned i = 0; i < settings->threads; i++) {
        runners[i] = (struct runner){.stress = &stress,
                                     .mark = FIRST_MARK + (unsigned)settings->process * THREADS_MAX + i};
        random_seed(&runners[i].random, random_mix(runners[i].mark) + (uint64_t)getpid());
        if (pthread_create(&runners[i].thread, NULL, runner_main, &runners[i]) != 0)
            give_up("thread", strerror(errno));
    }
    for (unsigned i = 0; i < settings->threads; i++)
        pthread_join(runners[i].thread, NULL);
    fabric_close(stress.fabric);
    return (int)stress.verdict;
}

/* ---- starts the processes, and judges ---- */

static pid_t start_process(const struct settings *settings, unsigned number)
{
    char node[NET_TEXT_MAX], words[5][16];
    snprintf(words[0], sizeof words[0], "%u", number);
    snprintf(words[1], sizeof words[1], "%u", settings->rounds);
    snprintf(words[2], sizeof words[2], "%u", settings->threads);
    snprintf(words[3], sizeof words[3], "%u", settings->locks);
    net_address_format(&settings->node, node);
    pid_t process = fork();
    if (process < 0)
        give_up("process", strerror(errno));
    if (process == 0) {
        execl("/proc/self/exe", "lock_stress", "--process", words[0], "--node", node, "--rounds", words[1],
              "--threads", words[2], "--locks", words[3], settings->by_write ? "--release-by-write" : NULL,
              (char *)NULL);
        _exit(127);
    }
    return process;
}

/* The worst verdict. Once one has lost an unlock, the others may wait for it: they are ended. */
static enum verdict await(pid_t *processes, unsigned count)
{
    enum verdict worst = GOOD;
    for (unsigned left = count; left > 0; left--) {
        int status;
        pid_t ended = wait(&status);
        enum verdict verdict = WIFEXITED(status) ? (enum verdict)WEXITSTATUS(status) : BROKEN;
        for (unsigned i = 0; i < count; i++) {
            if (processes[i] == ended)
                processes[i] = 0;
            else if (verdict != GOOD && processes[i] != 0 && worst == GOOD)
                kill(processes[i], SIGKILL);
        }
        if (worst == GOOD)
            worst = verdict;
    }
    return worst;
}

struct judge {
    const struct settings *settings;
    struct fabric *fabric;
    struct fabric_endpoint *endpoint;
};

static void judge_execute(struct judge *judge, struct fabric_command *command)
{
    int status = execute(judge->endpoint, command, 1);
    if (status)
        give_up("the judge's list", error_name(status));
}

static void clear(struct judge *judge)
{
    static const uint64_t zeros[LOCKS_MAX * 32];
    struct fabric_command locks = write_of(gaddr_make(0, GADDR_LOCK_REGION), zeros, LOCKS_MAX * 8);
    struct fabric_command records = write_of(record_address(0), zeros, sizeof zeros);
    judge_execute(judge, &locks);
    judge_execute(judge, &records);
}

static enum verdict judge_words(struct judge *judge)
{
    const struct settings *settings = judge->settings;
    uint64_t words[LOCKS_MAX], record, total = 0;
    uint64_t expected = (uint64_t)settings->rounds * settings->processes * settings->threads;
    struct fabric_command read = read_of(gaddr_make(0, GADDR_LOCK_REGION), words, sizeof words);
    judge_execute(judge, &read);
    for (unsigned i = 0; i < LOCKS_MAX; i++) {
        if (words[i] != 0) {
            fprintf(stderr, "all have ended, and lock word %u is 0x%" PRIx64 "\n", i, words[i]);
            return LOST;
        }
    }
    for (unsigned i = 0; i < settings->locks; i++) {
        read = read_of(record_address(i), &record, sizeof record);
        judge_execute(judge, &read);
        total += record;
    }
    if (total == expected)
        return GOOD;
    fprintf(stderr, "counted under locks: %" PRIu64 ", done: %" PRIu64 "\n", total, expected);
    return BROKEN;
}

static enum verdict one_run(struct judge *judge)
{
    pid_t processes[PROCESSES_MAX];
    clear(judge);
    for (unsigned i = 0; i < judge->settings->processes; i++)
        processes[i] = start_process(judge->settings, i);
    enum verdict verdict = await(processes, judge->settings->processes);
    return verdict == GOOD ? judge_words(judge) : verdict;
}

static int conclude(const struct settings *settings, unsigned runs, unsigned lost, unsigned broken)
{
    printf("%s: %u runs of %u acquisitions by %u processes of %u threads on %u locks, released by %s: "
           "an unlock was lost in %u, %u failed otherwise\n",
           settings->tcp ? "tcp" : "rdma", runs, settings->rounds * settings->processes * settings->threads,
           settings->processes, settings->threads, settings->locks,
           settings->by_write ? "WRITE" : "what the NIC promises", lost, broken);
    if (settings->until_lost)
        return broken == 0 && lost > 0 ? 0 : 1;
    return broken + lost == 0 ? 0 : 1;
}

static int judge_run(struct settings *settings)
{
    const struct daemon_options options = {.rdma = !settings->tcp,
                                           .pool_bytes = UINT64_C(4) << 20,
                                           .chunk_bytes = UINT64_C(64) << 10,
                                           .lock_bytes = LOCK_BYTES};
    struct error error = {0};
    struct daemon daemon;
    daemon_start(&daemon, &options);
    settings->node = daemon.tcp;
    struct judge judge = {.settings = settings, .fabric = open_fabric(settings)};
    judge.endpoint = fabric_endpoint_open(judge.fabric, &error);
    if (judge.endpoint == NULL)
        give_up("endpoint", error.text);
    unsigned run = 0, lost = 0, broken = 0;
    while (run < settings->runs && !(settings->until_lost && lost > 0)) {
        enum verdict verdict = one_run(&judge);
        run++;
        lost += verdict == LOST;
        broken += verdict != LOST && verdict != GOOD;
    }
    fabric_endpoint_close(judge.endpoint);
    fabric_close(judge.fabric);
    daemon_kill(&daemon);
    return conclude(settings, run, lost, broken);
}

/* ---- options ---- */

static unsigned number_of(const char *name, const char *text, unsigned least, unsigned most)
{
    unsigned long number = text != NULL ? strtoul(text, NULL, 10) : 0;
    if (text == NULL || number < least || number > most)
        give_up(name, "no such number");
    return (unsigned)number;
}

static void read_options(struct settings *settings, char **arguments)
{
    struct error error = {0};
    for (char **at = arguments + 1; *at != NULL; at++) {
        const char *name = *at;
        if (strcmp(name, "--tcp") == 0)
            settings->tcp = true;
        else if (strcmp(name, "--release-by-write") == 0)
            settings->by_write = true;
        else if (strcmp(name, "--until-lost") == 0)
            settings->until_lost = true;
        else if (strcmp(name, "--runs") == 0)
            settings->runs = number_of(name, *++at, 1, 1000000);
        else if (strcmp(name, "--rounds") == 0)
            settings->rounds = number_of(name, *++at, 1, 1000000);
        else if (strcmp(name, "--processes") == 0)
            settings->processes = number_of(name, *++at, 1, PROCESSES_MAX);
        else if (strcmp(name, "--threads") == 0)
            settings->threads = number_of(name, *++at, 1, THREADS_MAX);
        else if (strcmp(name, "--locks") == 0)
            settings->locks = number_of(name, *++at, 1, LOCKS_MAX);
        else if (strcmp(name, "--process") == 0)
            settings->process = (int)number_of(name, *++at, 0, PROCESSES_MAX - 1);
        else if (strcmp(name, "--node") != 0)
            give_up(name, "no such option");
        else if (net_address_parse(&settings->node, *++at, 0, &error))
            give_up(name, error.text);
    }
}

int main(int count, char **arguments)
{
    struct settings settings = {
        .runs = 3, .rounds = 400, .processes = 2, .threads = 3, .locks = 2, .process = -1};
    daemon_main(count, arguments);
    log_set_level(LOG_ERROR);
    read_options(&settings, arguments);
    return settings.process >= 0 ? stress_run(&settings) : judge_run(&settings);
}
