/*
 * selectors.h - the selectors of one kind of request, one for each memory node (selector.h), and the switch
 * that may decide in their place: for walks (walk.h), for merging (merging.h) and for changes (exchanging.h).
 * One of each for a compute node; any thread. Allocates when it is created, alone; each call takes a spin
 * lock of that memory node's.
 */
#ifndef TREE_SELECTORS_H
#define TREE_SELECTORS_H

#include <stdbool.h>
#include <stdint.h>

#include "fabric/fabric.h"
#include "tree/tree.h"

struct tree_selectors;

/* `share`: percent, or TREE_WALKS_AUTO. `saves`: the READs that each request saves, one after the other, or
 * 0. With `auto` that bounds the requests under way: there are so many at once that they take little longer
 * than those READs would. It is for work that many tasks have at hand all the time; they would fill a memory
 * node's queue before the share, which moves slowly, had fallen. Each request then begins with
 * tree_selectors_ask. NULL where the fabric offers no such requests, or `share` is TREE_WALKS_NEVER. `what`:
 * it, in the message. 0 or BANYAN_ENOMEM. */
int tree_selectors_create(struct tree_selectors **selectors, const struct fabric *fabric, int share,
                          uint32_t saves, const char *what, struct error *error);
void tree_selectors_destroy(struct tree_selectors *selectors); /* NULL: does nothing */
/* NULL has none. The calls below take a memory node that has one. */
bool tree_selectors_has(const struct tree_selectors *selectors, uint16_t node);
/* Whether to ask the memory node, which saves so many READs. `draw`: a random number. */
bool tree_selectors_choose(struct tree_selectors *selectors, uint16_t node, uint32_t reads, uint64_t draw);
/* A READ there took so long. */
void tree_selectors_read(struct tree_selectors *selectors, uint16_t node, uint64_t took_ns);
/* A request goes there; tree_selectors_asked follows. */
void tree_selectors_ask(struct tree_selectors *selectors, uint16_t node);
/* A request there took so long, and came to this. */
void tree_selectors_asked(struct tree_selectors *selectors, uint16_t node, uint64_t took_ns, int status);
/* What they know: tree_walks_figures and tree_exchanges_figures (tree.h). */

#endif
