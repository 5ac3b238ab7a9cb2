/*
 * selector.h - whether to ask a memory node's CPU for the rest of a way, or to read it (docs/internals/
 * walks.md, The selector): one for each memory node. Pure: it takes times and random numbers, and has neither
 * a clock nor a lock of its own; its owner calls it from one thread at a time. Some nanoseconds.
 *
 * It keeps moving averages of what a walk takes (l_s) and of what a READ takes (l_r), and for ways of each
 * length a share of walks, which rises while a walk takes less than the READs that it saves, and falls while
 * it takes more. So it comes to rest where both take the same, with which neither the CPU's queue nor the
 * network's is left idle while the other is long. Long ways save more READs: they are walked first.
 */
#ifndef TREE_SELECTOR_H
#define TREE_SELECTOR_H

#include <stdbool.h>
#include <stdint.h>

/* Ways of so many READs and more have one share. */
#define SELECTOR_LEVELS 8u

enum selector_form {
    SELECTOR_MARGINAL, /* what waits in the queues counts four times: once for the operation itself, and for
                          those behind it, which wait for it too. So the sum of all waiting is least */
    SELECTOR_LATENCY,  /* l_s against m (l_r + t): what the operation itself waits for (DEX 6.1) */
    SELECTOR_QUEUES,   /* the same, less a round trip each: what waits in the queues alone (Cell 2.5) */
};

struct selector_options {
    enum selector_form form;
    double explore;   /* so large a share of the messages goes the dearer way, to know what it takes: 0.01 */
    double search_ns; /* t: a search in a node that was read: 100 */
    uint64_t silence_ns; /* what was measured is forgotten after so long without a sample: 3 s */
    double outlier;      /* samples beyond so many standard deviations are dropped: 3 */
    double step;         /* the share moves by at most so much with each sample, at first: 0.005 */
};

/* What the last samples took, the newest counting most. */
struct selector_average {
    double mean, variance;
    uint32_t count;   /* of samples, up to a bound */
    uint32_t strange; /* outliers, less the samples that were none */
    uint64_t decided; /* operations that had been decided at the last sample */
};

struct selector_share {
    double share; /* of walks, among ways of this length */
    double same;  /* operations for which it has moved the same way ... */
    double usual; /* ... and for how many it does so, usually */
    bool rises;
    bool used;    /* there was such a way */
    bool doubted; /* whether it is at the right end: until its rare way has been measured anew */
};

struct selector {
    struct selector_options options;
    struct selector_average walk, read;
    struct selector_share shares[SELECTOR_LEVELS]; /* [0]: of ways of one READ */
    double round_trip, least_walk;                 /* the least that a READ, a walk took */
    double levels;                                 /* of the ways that were decided, a moving average */
    uint64_t sampled_at;
    uint64_t refused_until; /* the memory node does not walk */
    uint64_t walks, reads;  /* decisions so far */
};

void selector_options_default(struct selector_options *options);
void selector_init(struct selector *selector, const struct selector_options *options);
/* Whether to walk, where `levels` READs would have to be made one after the other. `draw`: a random number,
 * the same one for all that is decided about one operation. */
bool selector_walks(struct selector *selector, uint64_t now, uint32_t levels, uint64_t draw);
/* A READ of one node took so long. */
void selector_read(struct selector *selector, uint64_t now, uint64_t took_ns);
/* A walk took so long; *busy: it found the queue full, so that all the READs had to be made besides. */
void selector_walked(struct selector *selector, uint64_t now, uint64_t took_ns, bool busy);
/* The memory node does not walk: it is not asked again for a while. */
void selector_refused(struct selector *selector, uint64_t now);
/* The averages, ns; 0: nothing was measured. */
double selector_walk_ns(const struct selector *selector);
double selector_read_ns(const struct selector *selector);
/* The share of walks among ways of the usual length. */
double selector_usual_share(const struct selector *selector);

#endif
