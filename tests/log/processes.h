/*
 * processes.h - processes with logs over the same memory nodes, all on the test's thread: one owns the whole
 * index and logs it, dies or gives it away, and the next one inherits. For tests of src/log/ that decide what
 * becomes of single lists, or draw operations at random. Stands in for src/owner/ and the map. cmocka's
 * asserts fail the test at once.
 */
#ifndef TESTS_LOG_PROCESSES_H
#define TESTS_LOG_PROCESSES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "log/log.h"
#include "memory/memory.h"
#include "tree/rights.h"

#define PROCESSES_NODES     2u
#define PROCESSES_NODES_MAX 3u
#define PROCESSES_MAX       512u
#define PROCESSES_VALUE     24u

struct process_fabric;
struct process {
    struct process_fabric *trouble;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct pool_worker *worker;
    struct tree_session *session, *spare; /* spare: for what a hook does within an operation of `session` */
    struct tree *tree;
    struct log *log;
    uint64_t epoch; /* under which it owns the index; 0: it does not */
};

struct processes {
    unsigned nodes;
    unsigned listed; /* processes that are started from now on know of the first so many memory nodes, until
                        they ask the home node for its list; 0: of all */
    struct log_options options;
    enum tree_cache_policy policy; /* of processes that are started from now on */
    uint64_t cache_bytes;          /* of those */
    struct memory_node *memory[PROCESSES_NODES_MAX];
    struct memory_walks *walks[PROCESSES_NODES_MAX]; /* NULL: they do not merge */
    struct process all[PROCESSES_MAX];
    unsigned count;
    struct log_heir heirs[8];
    uint32_t heir_count;
    uint64_t version; /* of the map */
};

/* The memory nodes, and a log's options that tests may change before the first process is started: small
 * segments, small frames, no long waits. */
void processes_open(struct processes *processes, unsigned nodes, uint64_t log_bytes);
/* The same with other memory nodes: all as `memory` says. */
void processes_open_as(struct processes *processes, unsigned nodes, const struct memory_options *memory);
void processes_close(struct processes *processes);
/* Processes that are started from now on have the memory nodes merge all that they have logged (MERGE). */
void processes_merge_there(struct processes *processes);
/* The first one makes the index, "logged". Owns nothing yet. */
struct process *process_start(struct processes *processes);
/* One without an index, in a pool that is formatted; then the caller's index, which it closes itself, and
 * sets `tree` to NULL, before processes_close. */
struct process *process_begin(struct processes *processes);
void process_attach(struct process *process, struct tree *tree);
/* It owns the index, after it has taken over what the heirs have not merged. */
void process_own(struct processes *processes, struct process *process);
/* Its table of rights as it is, in a new version: its connections were lost. */
void process_own_still(struct processes *processes, struct process *process);
/* Its table of rights says that the index is `owner`'s, and logged. */
void process_others(struct processes *processes, struct process *process, const struct process *owner);
/* The index is on its way from the process. */
void process_moving(struct processes *processes, struct process *process);
/* The owner goes, with what it has not merged: no list of it arrives any more. It is an heir. */
void process_dies(struct processes *processes, struct process *process);
/* It gives the index away while it lives, with what it has not merged, and becomes an heir. */
void process_gives_away(struct processes *processes, struct process *process);
/* The map names no heir any more. */
void heirs_end(struct processes *processes, struct process *owner);

/* Decides what becomes of each list from now on; NULL: all are passed on. */
typedef int process_hook(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list);
void process_hooked(struct process *process, process_hook *hook, void *context);
/* All memory nodes say from now on that they keep logs on disks, and answer PERSIST as `persist` says. */
typedef int process_persist(void *context, uint16_t node);
void process_kept(struct process *process, enum fabric_durability durability, process_persist *persist,
                  void *context);
/* For hooks: the first `count` commands take effect, then the connection is lost. Returns BANYAN_ENET. */
int process_cut(struct process *process, struct fabric_endpoint *endpoint, struct fabric_list *list,
                uint16_t count);
/* The memory node is there, or it is not: what is sent to it is lost, and what is asked fails, until it is
 * there again. */
void process_away(struct process *process, uint16_t node, bool away);
/* The home node cannot be asked for its list of memory nodes, or it can be again. */
void process_list_away(struct process *process, bool away);
/* What it hears of the list of memory nodes: all are members from the beginning. */
void process_hears(struct process *process, uint16_t node, enum fabric_membership membership);
/* ... none does, since the connection was lost before. Returns BANYAN_EFENCED. */
int process_refuse(struct process *process, struct fabric_list *list);

/* Keys are numbers; values too, 0: there is none. */
void key_of(unsigned number, uint8_t key[8]);
int process_put(struct process *process, unsigned number, uint64_t value);
int process_delete(struct process *process, unsigned number);
uint64_t process_get(struct process *process, unsigned number);
/* Fails the test with the session's message. */
void process_check(const struct process *process, int status);

#endif
