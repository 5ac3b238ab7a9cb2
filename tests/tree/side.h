/*
 * side.h - a compute node with one session in a test's hand (stepper.h), and the account of blocks that tests
 * with several of them end with. The test's thread; what should never fail is a failed assertion.
 */
#ifndef TREE_SIDE_H
#define TREE_SIDE_H

#include "memory/memory.h"
#include "tree/tree.h"

struct side {
    uint16_t id;
    struct fabric *fabric; /* a stepper */
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session;
    struct tree *tree; /* the test opens it; side_close closes it */
};

/* With the switches of the preset "banyan", but this unit of reading. */
void side_open(struct side *side, struct memory_node *memory, uint16_t id, enum tree_read_unit read_unit);
/* The same over several memory nodes. */
void side_open_over(struct side *side, struct memory_node *const *memories, unsigned count, uint16_t id,
                    enum tree_read_unit read_unit);
/* lives: gives its memory back first, which a compute node that has died cannot. */
void side_close(struct side *side, bool lives);

/* By the eyes of the last of these sides: the index is sound, and each block that the memory node has handed
 * out is the index's, or lies ready with a worker, or is one of `others`. tree NULL: there is no index. */
void side_account(struct side *sides, unsigned count, struct memory_node *memory, struct tree *tree,
                  uint64_t others, struct tree_check_report *report);
/* The same over several memory nodes: how many blocks they have handed out that are none of these. */
uint64_t side_lost(struct side *sides, unsigned count, struct memory_node *const *memories, unsigned nodes,
                   struct tree *tree, struct tree_check_report *report);

#endif
