/* blocks_state.h - the accounts behind blocks.h, for blocks.c, blocks_log.c and chunks.c alone. */
#ifndef MEMORY_BLOCKS_STATE_H
#define MEMORY_BLOCKS_STATE_H

#include "memory/blocks.h"
#include "memory/keep.h"
#include "memory/runs.h"

struct chunk {
    uint32_t used;  /* granules handed out */
    uint32_t nodes; /* of them, for nodes of the tree and for logs: what is never moved */
    uint32_t stuck; /* one more than its data when its emptying was given up; 0: it was not */
    uint8_t owner;  /* of the emptying that it is in; 0: none */
    bool touched;
    uint64_t idle_since; /* while nothing of it is used */
};

struct blocks {
    uint32_t chunk_granules, chunks_total;
    struct keep_list *list; /* of changes (keep.h): each is noted before a bit is changed */
    struct runs runs;
    struct pages chunk_pages;
    uint64_t *starts; /* a bit a granule: a block begins here */
    uint64_t *nodes;  /* a bit a granule: a block for a node, or for a log, begins here; a log's has a bit at
                         its  second granule too, where no node begins, since nodes are aligned to two */
    struct chunk *chunks;
    uint64_t now;
    uint32_t idle;                      /* chunks that are touched and not used */
    uint32_t marked[BLOCKS_OWNERS + 1]; /* chunks that each owner empties */
    uint64_t unyielding;                /* what is emptied has no run of so many granules, nor of more */
    struct blocks_count count;
};

/* Hands out `count` blocks of `length` free granules each that follow each other. `fixed`: they are never
 * moved. */
void blocks_carve(struct blocks *blocks, uint64_t at, uint64_t length, uint64_t count, bool fixed);
/* Whether exactly these granules, which the pool has, are a block that is handed out. */
bool blocks_is_run(const struct blocks *blocks, uint64_t at, uint64_t length);
/* The accounts of what the bits say: for a node that was kept (blocks_kept.c). */
int blocks_rebuild(struct blocks *blocks, const struct keep *keep, struct error *error);
/* Whether a block of a log begins at the granule. */
bool blocks_is_log(const struct blocks *blocks, uint64_t at);

/* So many zones the floor moves at a time; before a block is refused it moves all the way. */
#define BLOCKS_FLOOR_STEPS 64u

/* The granules were handed out, or taken back. */
void chunks_take(struct blocks *blocks, uint64_t at, uint64_t length, bool nodes);
void chunks_give(struct blocks *blocks, uint64_t at, uint64_t length, bool nodes);
/* Ends the emptying of a chunk that has a run of `length` free granules; false: there is none. */
bool chunks_yield(struct blocks *blocks, uint64_t length);

#endif
