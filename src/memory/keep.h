/*
 * keep.h - what a memory node must still know when its process is gone: which blocks are handed out, the
 * board, whose logs there are, and to which cluster it belongs. It lies in a file together with the pool (a
 * kept node: keep_file.h), or in pages of this process that end with it; both have the same layout, and the
 * services use both in the same way. docs/internals/durability.md has the rules D1 to D6 and their proof.
 *
 * CHANGES (D2). A call of a service changes many words, and the process may be killed between any two of
 * them. So a call notes first, in a list that is kept as well, how each of its changes is taken back, and
 * empties the list by one store when it is through. Who opens the file takes back what stands in the list: a
 * call has then happened wholly or not at all, and one that was answered has happened.
 *
 * A list is guarded by the lock that guards what it is about: the node's, or the board's. Noting costs some
 * nanoseconds.
 */
#ifndef MEMORY_KEEP_H
#define MEMORY_KEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "fabric/wire.h"
#include "memory/pages.h"
#include "memory/request.h"

/* Two nodes with the same sizes have the same layout. */
struct keep_sizes {
    uint64_t pool_bytes, chunk_bytes, lock_bytes, log_bytes;
    uint32_t lock_width;
};

/* ---- what lies there ---- */

/* Each place begins at a multiple of KEEP_ALIGNMENT, the pool at one of KEEP_POOL_ALIGNMENT. */
enum keep_place {
    KEEP_HEADER,     /* struct keep_header (keep_file.h), keep_words, keep_board, keep_log: one page */
    KEEP_NODE_LIST,  /* struct keep_entries */
    KEEP_BOARD_LIST, /* struct keep_entries */
    KEEP_MEMBERS,    /* of the board: struct keep_member[] */
    KEEP_PROCESSES,  /* with a log: struct keep_process[] */
    KEEP_SEGMENTS,   /* of logs: struct keep_segment[] */
    KEEP_STAGING,    /* struct wire_staging[KEEP_STAGINGS] */
    KEEP_USED,       /* three bits for each granule of the pool: blocks_state.h */
    KEEP_STARTS,     /* ... */
    KEEP_NODES,      /* ... */
    KEEP_POOL,       /* of a kept node */
    KEEP_PLACES
};
#define KEEP_ALIGNMENT      UINT64_C(4096)
#define KEEP_POOL_ALIGNMENT (UINT64_C(2) << 20)
#define KEEP_STAGINGS       64u /* threads that carry out WRITEs at once */
#define KEEP_WORDS_OFFSET   1024u
#define KEEP_BOARD_OFFSET   2048u
#define KEEP_LOG_OFFSET     3072u

struct keep_layout {
    uint64_t at[KEEP_PLACES], bytes; /* of all, with the pool */
    uint64_t granules;
    uint32_t segments; /* that all logs can have together */
};

/* What the node itself is. A word of `checked` has its value in its low half and the complement of that in
 * its high half, so that one store changes both. */
enum keep_checked {
    KEEP_USED_SINCE, /* 1: the pool and the accounts may hold anything; 0: zeros */
    KEEP_COMPUTE_ID, /* the last one that was chosen (memoryd/group.c) */
    KEEP_READ_LEASE, /* ms: the longest that this life has granted */
    KEEP_LIVES,      /* processes that have opened it */
    KEEP_CLOSED,     /* 1: the last one has ended in order, and the file system has all of it */
    KEEP_CHECKED
};
#define KEEP_FORMATTED UINT64_C(0x4b45504f44454d31)
struct keep_words {
    uint64_t formatted; /* KEEP_FORMATTED: it belongs to a cluster, and all below is whole; 0: to none */
    uint64_t cluster_id, number, node_count;
    uint64_t check; /* CRC32C of the three */
    uint64_t checked[KEEP_CHECKED];
    uint64_t boot; /* of the machine on which it was opened last: a hash of the kernel's name for it */
    uint64_t pid;  /* of the process that opened it last: a hint for messages */
};

/* The board (board.h). */
struct keep_board {
    uint64_t version, grants, entries, places; /* so far */
    uint64_t grant;                            /* that has the lock; 0: free */
    struct memory_board_process holder;        /* with `grant` */
    struct memory_board_process orphan;        /* instance 0: none */
};
struct keep_member {
    uint64_t place; /* members are in this order; 0: there is none in this slot */
    struct memory_board_member member;
    uint64_t reserved[2];
};
/* Logs (log.h). */
struct keep_log {
    uint64_t serials, numbers; /* of processes and of segments: given so far */
};
struct keep_process {
    uint64_t serial; /* 0: there is none in this slot */
    struct memory_board_process process;
    gaddr control;
};
struct keep_segment {
    uint64_t serial; /* of its process; 0: there is none in this slot */
    struct memory_log_segment segment;
};

/* ---- changes ---- */

/* How a change is taken back. */
enum keep_kind {
    KEEP_WORD = 1, /* the word at the offset had this value */
    KEEP_FREE,     /* `value` granules from `at` on were not handed out */
    KEEP_DATA,     /* they were one block: of data, of a node of the tree, of a log */
    KEEP_NODE,
    KEEP_LOGS,
};
struct keep_entry {
    uint64_t kind, at, value;
};
struct keep_entries {
    uint64_t count; /* the one word that says what the list has: 0: nothing is unfinished */
    uint64_t reserved[7];
    struct keep_entry entries[];
};
/* RELEASE of a process with all the segments that it can have changes two things for each. */
#define KEEP_NODE_ENTRIES  (2 * MEMORY_LOG_SEGMENTS_MAX + 256)
#define KEEP_BOARD_ENTRIES 64u

struct keep_list {
    struct keep_entries *entries;
    uint8_t *base;
    uint32_t capacity, depth;
};

struct keep_file;
struct keep {
    struct keep_layout layout;
    struct keep_file *file; /* NULL: it is not kept */
    bool cut;               /* kept: its last life did not end in order */
    struct pages pages;     /* the whole file; or all but the pool */
    struct keep_list node, board_list;
    struct keep_words *words;
    struct keep_board *board;
    struct keep_log *log;
    struct keep_member *members;
    struct keep_process *processes;
    struct keep_segment *segments;
    struct wire_staging *staging;
    uint64_t *used, *starts, *nodes;
    uint8_t *pool; /* NULL: it is not kept */
};

void keep_layout(struct keep_layout *layout, const struct keep_sizes *sizes);
/* In pages of this process. */
int keep_create(struct keep *keep, const struct keep_sizes *sizes, struct error *error);
/* Where everything lies in keep->pages, which are mapped. */
void keep_place(struct keep *keep);
void keep_destroy(struct keep *keep);
/* For messages: the file's path; "memory". */
const char *keep_name(const struct keep *keep);

/* From the first keep_begin to its keep_end the list's changes are one; both may be nested. */
static inline void keep_begin(struct keep_list *list)
{
    list->depth++;
}
void keep_end(struct keep_list *list);
/* The word will be changed; it is one of the keep's. */
void keep_word(struct keep_list *list, const uint64_t *word);
/* The word is noted, and changed. */
static inline void keep_set(struct keep_list *list, uint64_t *word, uint64_t value)
{
    keep_word(list, word);
    *word = value;
}
/* keep_word for what is of more than one word. */
void keep_process(struct keep_list *list, const struct memory_board_process *process);
/* The run's bits will be changed; what it is now. */
void keep_run(struct keep_list *list, enum keep_kind kind, uint64_t at, uint64_t length);
/* Takes back what is unfinished. BANYAN_ECORRUPT: the lists contradict themselves. */
int keep_undo(struct keep *keep, struct error *error);

/* ---- single words ---- */

uint32_t keep_checked(const struct keep *keep, enum keep_checked which);
void keep_check(struct keep *keep, enum keep_checked which, uint32_t value);

/* ---- the format (D5) ---- */

/* From keep_forget to keep_remember the node belongs to no cluster, whenever the process ends. */
void keep_forget(struct keep *keep);
/* All blocks are free, nobody has a log, and the board is empty; counters go on. */
void keep_clear(struct keep *keep);
void keep_remember(struct keep *keep, uint64_t cluster_id, uint16_t number, uint16_t node_count);

#endif
