/* selectors.c - see selectors.h. */
#include "tree/selectors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "tree/selector.h"
#include "tree/session.h"

/* A request that takes so many times what the READs would take that it saves has waited for too long. */
#define LATE_TIMES  2
#define WINDOW_MOST 64.0

struct target {
    struct spinlock lock; /* guards the rest */
    uint32_t asking;      /* if they are bounded: requests under way ... */
    double window;        /* ... and how many may be */
    struct selector selector;
} __attribute__((aligned(64)));

struct tree_selectors {
    int share;
    uint32_t saves; /* READs, by each request; 0: requests differ */
    bool bounded;   /* by that: how many requests are under way at once */
    uint16_t count;
    struct target targets[]; /* of each memory node */
};

static bool window_full(const struct tree_selectors *selectors, const struct target *target)
{
    return selectors->bounded && target->asking >= target->window;
}

/* A request has ended. As with senders who share a network's queue, whose length none of them sees: half as
 * many are let go where one was late, and one more for each window of those that were not. */
static void window_move(const struct tree_selectors *selectors, struct target *target, uint64_t took_ns,
                        bool done)
{
    const double worth = LATE_TIMES * selectors->saves * selector_read_ns(&target->selector);
    const bool used = target->asking >= target->window / 2;
    target->asking--;
    if (!done || (double)took_ns > worth)
        target->window = fmax(target->window / 2, 1);
    else if (used)
        target->window = fmin(target->window + 1 / target->window, WINDOW_MOST);
}

int tree_selectors_create(struct tree_selectors **made, const struct fabric *fabric, int share,
                          uint32_t saves, const char *what, struct error *error)
{
    const uint16_t count = fabric_memory_nodes_most(fabric);
    struct selector_options options;
    *made = NULL;
    if (share == TREE_WALKS_NEVER || !fabric_calls_offered(fabric))
        return 0;
    const size_t bytes = sizeof **made + count * sizeof(struct target);
    struct tree_selectors *selectors = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!selectors)
        return error_set(error, BANYAN_ENOMEM, "no memory for %s", what);
    memset(selectors, 0, bytes);
    selectors->share = share;
    selectors->saves = saves;
    selectors->bounded = saves && share == TREE_WALKS_AUTO;
    selectors->count = count;
    selector_options_default(&options);
    for (uint16_t i = 0; i < count; i++) {
        selector_init(&selectors->targets[i].selector, &options);
        selectors->targets[i].window = 1;
    }
    *made = selectors;
    return 0;
}

void tree_selectors_destroy(struct tree_selectors *selectors)
{
    free(selectors);
}

bool tree_selectors_has(const struct tree_selectors *selectors, uint16_t node)
{
    return selectors && node < selectors->count;
}

bool tree_selectors_choose(struct tree_selectors *selectors, uint16_t node, uint32_t reads, uint64_t draw)
{
    struct target *target = &selectors->targets[node];
    const uint64_t now = task_now();
    spinlock_lock(&target->lock);
    const bool full = window_full(selectors, target); /* the decision is counted all the same */
    bool asks = selector_walks(&target->selector, now, reads, full ? UINT64_MAX : draw);
    if (selectors->share != TREE_WALKS_AUTO)
        asks = now >= target->selector.refused_until && draw % 100 < (uint64_t)selectors->share;
    spinlock_unlock(&target->lock);
    return asks;
}

void tree_selectors_read(struct tree_selectors *selectors, uint16_t node, uint64_t took_ns)
{
    struct target *target = &selectors->targets[node];
    const uint64_t now = task_now();
    spinlock_lock(&target->lock);
    selector_read(&target->selector, now, took_ns);
    spinlock_unlock(&target->lock);
}

void tree_selectors_ask(struct tree_selectors *selectors, uint16_t node)
{
    struct target *target = &selectors->targets[node];
    spinlock_lock(&target->lock);
    target->asking += selectors->bounded;
    spinlock_unlock(&target->lock);
}

void tree_selectors_asked(struct tree_selectors *selectors, uint16_t node, uint64_t took_ns, int status)
{
    struct target *target = &selectors->targets[node];
    const uint64_t now = task_now();
    spinlock_lock(&target->lock);
    if (selectors->bounded)
        window_move(selectors, target, took_ns, !status);
    if (!status || status == BANYAN_EBUSY)
        selector_walked(&target->selector, now, took_ns, status == BANYAN_EBUSY);
    else if (status == BANYAN_ENOTSUP || status == BANYAN_EINVAL)
        selector_refused(&target->selector, now);
    spinlock_unlock(&target->lock);
}

/* Zeros where there is none. */
static void figures_of(struct tree_selectors *selectors, uint16_t node, struct tree_walks_figures *figures)
{
    *figures = (struct tree_walks_figures){0};
    if (!tree_selectors_has(selectors, node))
        return;
    struct target *target = &selectors->targets[node];
    spinlock_lock(&target->lock);
    *figures = (struct tree_walks_figures){.walk_ns = (uint64_t)selector_walk_ns(&target->selector),
                                           .read_ns = (uint64_t)selector_read_ns(&target->selector),
                                           .share = selector_usual_share(&target->selector),
                                           .walks = target->selector.walks,
                                           .reads = target->selector.reads};
    spinlock_unlock(&target->lock);
    if (selectors->share <= TREE_WALKS_ALWAYS)
        figures->share = selectors->share / 100.0;
}

void tree_walks_figures(const struct tree_compute *compute, uint16_t node, struct tree_walks_figures *figures)
{
    figures_of(compute->walks, node, figures);
}

void tree_exchanges_figures(const struct tree_compute *compute, uint16_t node,
                            struct tree_walks_figures *figures)
{
    figures_of(compute->exchanges, node, figures);
}
