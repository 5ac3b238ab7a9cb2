/* nic_state.h - what nic.c and nic_locks.c share. See nic.h. */
#ifndef MEMORY_SERVER_CARD_STATE_H
#define MEMORY_SERVER_CARD_STATE_H

#include "memoryd/nic.h"

enum card_part { CARD_POOL, CARD_LOCKS, CARD_PARTS };

/* A registered part of the memory node. */
struct card_region {
    struct ibv_mr *registration;
    uint64_t address, bytes; /* for the other end: address + offset */
    bool windowed;           /* each queue pair gets a window of its own to it */
};

struct server_card_queue {
    struct server_card *card;
    struct ibv_cq *completions; /* of windows that are being bound; nothing else is posted here */
    struct ibv_qp *pair;
    struct ibv_mw *windows[CARD_PARTS];
};

/* The memory node's own queue pair: both ends on this device. The keeper's, once the server runs. */
struct card_own {
    struct server_card_queue *far; /* the end that commands arrive at */
    struct wire_card where;        /* the far end, and the memory behind it */
    struct ibv_cq *completions;
    struct ibv_qp *near; /* the end that posts them */
    struct ibv_mr *registration;
    uint8_t *room; /* registered: what is read, and what atomics found */
    struct verbs_scratch *scratch;
    uint64_t posted;
    bool broken; /* it must be made anew */
};

struct server_card {
    struct verbs_device *device;
    const struct fabric_target *target;
    struct card_region regions[CARD_PARTS];
    struct ibv_dm *chip; /* device memory of the lock region; NULL: it is in host memory */
    struct card_own own;
    uint32_t queues; /* atomic: attached ones */
    char text[192];
};

/* Rights of the other end. */
#define CARD_REMOTE ((unsigned)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC))

/* One completion of a queue, waited for with patience; what: for the message. */
int card_wait(struct ibv_cq *completions, const char *what, struct error *error);
/* server_card_attach for own use: not counted. */
int card_queue_open(struct server_card *card, const struct wire_card *theirs, struct wire_card *ours,
                    struct server_card_queue **queue, struct error *error);
/* False: the queue pair lives on, and may still be executing. */
bool card_queue_close(struct server_card_queue *queue);

/* nic_locks.c. The own queue pair: opens it, closes what there is of it, and proves that READ, WRITE
 * and CAS through it do what they should to pool and lock region. */
int card_own_open(struct server_card *card, struct error *error);
void card_own_close(struct server_card *card);
int card_own_prove(struct server_card *card, struct error *error);

#endif
