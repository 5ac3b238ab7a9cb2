/*
 * selector.h - whether to ask a memory node's CPU for the rest of a way, or to read it (docs/internals/
 * walks.md, The selector): one for each memory node. Pure: it takes times and random numbers, and has neither
 * a clock nor a lock of its own; its owner calls it from one thread at a time. Some nanoseconds.
 *
 * It keeps moving averages of what a walk takes (l_s) and of what a READ takes (l_r), and a share of walks,
 * which rises while a walk takes less than the READs that it saves, and falls while it takes more. So it
 * comes to rest where both take the same, with which neither the CPU's queue nor the network's is left idle
 * while the other is long.
 */
#ifndef TREE_SELECTOR_H
#define TREE_SELECTOR_H

#include <stdbool.h>
#include <stdint.h>

#define SELECTOR_SAMPLES 100u

enum selector_form {
    SELECTOR_MARGINAL, /* what waits in the queues counts twice: once for the operation itself, once for those
                          behind it, which wait for it too. So the sum of all waiting is least (below) */
    SELECTOR_LATENCY,  /* l_s against m (l_r + t): what the operation itself waits for (DEX 6.1) */
    SELECTOR_QUEUES,   /* the same, less a round trip each: what waits in the queues alone (Cell 2.5) */
};

struct selector_options {
    enum selector_form form;
    double explore;      /* at least so large a share goes either way: 0.01 */
    double search_ns;    /* t: a search in a node that was read: 100 */
    uint64_t silence_ns; /* what was measured is forgotten after so long without a sample: 3 s */
    double outlier;      /* samples beyond so many standard deviations are dropped: 3 */
    double step;         /* the share moves by at most so much with each sample: 0.005 */
};

struct selector_window {
    double samples[SELECTOR_SAMPLES];
    uint32_t count, next;
    double sum, squares;
    uint32_t kept, dropped; /* of the period under way */
};

struct selector {
    struct selector_options options;
    struct selector_window walk, read;
    double share;                  /* of walks */
    double round_trip, least_walk; /* the least that a READ, a walk took */
    double levels;                 /* of the walks that were decided, a moving average */
    uint64_t sampled_at;
    uint32_t samples;       /* that have moved the share, up to a bound */
    uint64_t refused_until; /* the memory node does not walk */
    uint64_t walks, reads;  /* decisions so far */
};

void selector_options_default(struct selector_options *options);
void selector_init(struct selector *selector, const struct selector_options *options);
/* Whether to walk, where `levels` READs would have to be made one after the other. `draw`: a random number.
 */
bool selector_walks(struct selector *selector, uint64_t now, double levels, uint64_t draw);
/* A READ of one node took so long. */
void selector_read(struct selector *selector, uint64_t now, uint64_t took_ns);
/* A walk took so long; *busy: it found the queue full, so that all the READs had to be made besides. */
void selector_walked(struct selector *selector, uint64_t now, uint64_t took_ns, bool busy);
/* The memory node does not walk: it is not asked again for a while. */
void selector_refused(struct selector *selector, uint64_t now);
/* The averages, ns; 0: nothing was measured. */
double selector_walk_ns(const struct selector *selector);
double selector_read_ns(const struct selector *selector);

#endif
