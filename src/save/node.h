/*
 * node.h - what the maker of a checkpoint asks of one memory node (SAVE of memory/request.h). Private to
 * src/save/. Messages name the memory node.
 */
#ifndef SAVE_NODE_H
#define SAVE_NODE_H

#include "memory/request.h"
#include "pool/pool.h"

struct save_node {
    uint16_t node;
    bool taken;  /* this compute node holds it */
    bool sent;   /* an action may be under way */
    gaddr block; /* for what is sent; GADDR_NULL: none */
    uint32_t block_bytes;
    struct memory_save_reply said; /* the last answer */
};

/* One call. Fills in the kind. */
int save_node_call(struct pool_session *session, struct save_node *node, struct memory_save_request *request);
/* An action of the memory node's disk is sent. BANYAN_EFENCED: this compute node does not hold the memory
 * node any more, since it was fenced there; that costs one call more. */
int save_node_send(struct pool_session *session, struct save_node *node, struct memory_save_request *request);
/* Until the one that was sent has ended: its status. BANYAN_ETIMEOUT. */
int save_node_wait(struct pool_session *session, struct save_node *node, uint64_t wait_ns);
/* Both. */
int save_node_act(struct pool_session *session, struct save_node *node, struct memory_save_request *request,
                  uint64_t wait_ns);

#endif
