/*
 * board.h - calls of the board at the home node (memory/request.h). Private to src/owner/. One round trip
 * each; errors as pool_call, with a message.
 */
#ifndef OWNER_BOARD_H
#define OWNER_BOARD_H

#include "memory/request.h"
#include "base/heap.h"
#include "owner/owner.h"

/* `request` without instance. */
int owner_board_call(struct tree_session *session, struct memory_board_request *request,
                     struct memory_board_reply *reply);
int owner_board_look(struct tree_session *session, struct memory_board_reply *reply);

struct owner_members {
    struct heap *heap;
    struct memory_board_member *members; /* owned */
    uint32_t count;
};
/* All of them; owner_members_free in any case. */
int owner_board_members(struct owner *owner, struct tree_session *session, struct owner_members *members);
void owner_members_free(struct owner_members *members);
const struct memory_board_member *owner_members_find(const struct owner_members *members,
                                                     struct fabric_process process);

/* The processes that are connected to the home node, this one among them. *processes is the caller's to
 * heap_free.
 */
int owner_processes(struct owner *owner, struct tree_session *session, struct fabric_process **processes,
                    uint32_t *count);
bool owner_among(const struct fabric_process *processes, uint32_t count, struct fabric_process process);

static inline struct fabric_process owner_process_of(const struct memory_board_process *process)
{
    return (struct fabric_process){.instance = process->instance, .compute_id = process->compute_id};
}

#endif
