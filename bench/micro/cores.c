/*
 * cores.c - what passes between two cores: a line, and the image of a leaf as a lock's holder hands it over
 * (micro.h).
 *
 * Two threads take turns. In its turn a thread does its work and gives the turn back by one store, which the
 * other waits for. A turn without work is one line passed. With work, the thread reads its own image, which
 * the other has written, changes it, and copies it into the other's: as many lines read as written, all of
 * them last used by the other core.
 */
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/cpus.h"
#include "base/task.h"
#include "base/thread.h"
#include "bench/micro/micro.h"

#define IMAGE_BYTES 1024u
#define IMAGE_LINES (IMAGE_BYTES / 64u)
#define TURNS       64u
#define PATIENCE    100000u /* looks, before the thread yields: the other may wait for this CPU */

struct pair {
    /* Lines of their own, and their neighbours', which some CPUs fetch with them. */
    uint32_t turn __attribute__((aligned(128)));
    uint8_t images[2][IMAGE_BYTES] __attribute__((aligned(128)));
    bool copy __attribute__((aligned(128))); /* by the first, while the turn is its own */
    bool stop;
};

static void work(struct pair *pair, unsigned side)
{
    uint64_t sum = 0, word;
    if (!pair->copy)
        return;
    for (uint32_t at = 0; at < IMAGE_BYTES; at += 8) {
        memcpy(&word, pair->images[side] + at, 8);
        sum += word;
    }
    memcpy(pair->images[side] + sum % (IMAGE_BYTES / 8) * 8, &sum, 8);
    memcpy(pair->images[!side], pair->images[side], IMAGE_BYTES);
}

static void turn_await(struct pair *pair, uint32_t side)
{
    /* Acquire: with the image that was written before the turn was given. */
    for (uint32_t i = 1; atomic_load_acquire(&pair->turn) != side; i++)
        if (i % PATIENCE)
            atomic_pause();
        else
            task_yield();
}

static void second(void *argument)
{
    struct pair *pair = argument;
    thread_pin(1);
    for (;;) {
        turn_await(pair, 1);
        bool stop = pair->stop;
        if (!stop)
            work(pair, 1);
        atomic_store_release(&pair->turn, 0);
        if (stop)
            return;
    }
}

static void turns(void *argument)
{
    struct pair *pair = argument;
    for (unsigned i = 0; i < TURNS; i++) {
        work(pair, 0);
        atomic_store_release(&pair->turn, 1);
        turn_await(pair, 0);
    }
}

/* A disturbed machine may take longer for less. */
static double apart(double whole, double part)
{
    return whole > part ? whole - part : 0;
}

bool micro_cores(uint32_t rounds, struct micro_result results[MICRO_NAMES])
{
    struct micro_result *pass = &results[MICRO_LINE_PASS], *image = &results[MICRO_IMAGE_LINE];
    struct error error;
    struct thread *thread;
    if (cpus_count() < 2)
        return true;
    struct pair *pair = aligned_alloc(128, sizeof *pair);
    if (!pair)
        return false;
    memset(pair, 0, sizeof *pair);
    if (thread_start(&thread, second, pair, &error)) { /* before this one is pinned: it would inherit that */
        free(pair);
        return false;
    }
    atomic_store_release(&pair->turn, 1);
    turn_await(pair, 0); /* it has its CPU */
    thread_pin(0);
    bool done = micro_measure(rounds, 2 * TURNS, turns, pair, pass);
    pair->copy = true;
    done = done && micro_measure(rounds, 2 * TURNS, turns, pair, image);
    pair->stop = true;
    atomic_store_release(&pair->turn, 1);
    thread_join(thread);
    free(pair);
    /* A turn with the image is one line passed, and all its lines read here and written there. */
    image->median = apart(image->median, pass->median) / (2 * IMAGE_LINES);
    image->least = apart(image->least, pass->least) / (2 * IMAGE_LINES);
    return done;
}
