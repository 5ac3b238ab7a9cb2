/*
 * upload.h - a part of a checkpoint on its way to the memory nodes that keep it: an archive, or the table.
 * Private to src/save/. One task; what is sent while the memory node's disk works is gathered meanwhile.
 */
#ifndef SAVE_UPLOAD_H
#define SAVE_UPLOAD_H

#include "save/node.h"

#define SAVE_COPIES_MAX 2u
#define SAVE_SEND_BYTES (256u << 10)

struct save_upload {
    struct pool_session *session;
    uint64_t number, wait_ns;
    uint8_t *buffer; /* owned: SAVE_SEND_BYTES */
    /* of the part */
    struct save_node *nodes[SAVE_COPIES_MAX];
    unsigned count;
    uint32_t part, used, check; /* used: of the buffer */
    uint64_t sent;              /* bytes */
};

int save_upload_open(struct save_upload *upload, struct pool_session *session, uint64_t number,
                     uint64_t wait_ns);
void save_upload_close(struct save_upload *upload);
/* A part begins. Takes a block of each memory node's pool where it has none yet. */
int save_upload_begin(struct save_upload *upload, uint32_t part, struct save_node *const *nodes,
                      unsigned count);
int save_upload_bytes(struct save_upload *upload, const void *bytes, size_t length);
/* It is on the disks when this returns 0. */
int save_upload_end(struct save_upload *upload, uint64_t entries);

#endif
