/* kept.h - for the tests of memory nodes with files: a directory for them, nodes on them, everything that a
 * node tells about itself as one number, and random calls of all its services that are the same for the same
 * seed. */
#ifndef TESTS_MEMORY_KEPT_H
#define TESTS_MEMORY_KEPT_H

#include "base/random.h"
#include "memory/memory.h"

#define KEPT_LOCKS  1984u
#define KEPT_CHUNK  (UINT64_C(64) << 10)
#define KEPT_CHUNKS 16u
#define KEPT_POOL   (MEMORY_FIRST_CHUNK(KEPT_LOCKS) + KEPT_CHUNKS * KEPT_CHUNK)
#define KEPT_IDS    4u /* compute nodes 1 to 4 */

/* A new directory, in /dev/shm unless `where` names another place, which kept_end removes with what is in it;
 * paths in it. */
void kept_begin(const char *where);
void kept_end(void);
const char *kept_path(const char *name);

/* Set: a node that belongs to no cluster stays so. Else it is formatted when it is opened. */
extern bool kept_unformatted;
/* NULL, with the error, if it cannot be opened. */
struct memory_node *kept_try(const char *name, struct error *error);
/* The test fails if it cannot. */
struct memory_node *kept_open(const char *name);
void kept_copy(const char *to, const char *from);

/* Of all blocks, the board, logs, what is kept of the daemon, and the identity. */
uint32_t kept_digest(struct memory_node *node);

enum kept_deed {
    KEPT_ALLOCATE,
    KEPT_FREE,
    KEPT_FREE_BAD, /* a batch of which one block is none */
    KEPT_LOG_OPEN,
    KEPT_LOG_TAKE,
    KEPT_LOG_GIVE,
    KEPT_LOG_RELEASE,
    KEPT_BOARD_ENTER,
    KEPT_BOARD_LOCK,
    KEPT_BOARD_CLEAN,
    KEPT_BOARD_OTHER,
    KEPT_FENCE,
    KEPT_DAEMON,
    KEPT_FORMAT, /* never drawn: it must be asked for */
    KEPT_DEEDS,
    KEPT_ANY = KEPT_DEEDS,
};
/* Called right before the next call of a node, once. */
extern void (*kept_before_call)(void);
/* What the calls have answered goes into the number that it returns. KEPT_ANY: drawn. */
uint32_t kept_do(struct memory_node *node, struct random *random, enum kept_deed deed);

#endif
