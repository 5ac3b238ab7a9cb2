/* upload.c - see upload.h. */
#include "save/upload.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

/* A memory node that is nearly full has no large block. */
#define BLOCK_LEAST 4096u

int save_upload_open(struct save_upload *upload, struct pool_session *session, uint64_t number,
                     uint64_t wait_ns)
{
    *upload = (struct save_upload){
        .session = session, .number = number, .wait_ns = wait_ns, .buffer = malloc(SAVE_SEND_BYTES)};
    return upload->buffer ? 0 : pool_fail_memory(session);
}

void save_upload_close(struct save_upload *upload)
{
    free(upload->buffer);
    upload->buffer = NULL;
}

static int block_take(const struct save_upload *upload, struct save_node *node)
{
    const gaddr near = gaddr_make(node->node, 64);
    if (node->block != GADDR_NULL)
        return 0;
    int status = pool_block_allocate_part(upload->session, near, SAVE_SEND_BYTES, BLOCK_LEAST, &node->block,
                                          &node->block_bytes);
    if (status || gaddr_node(node->block) == node->node)
        return status;
    pool_block_release(upload->session, node->block, node->block_bytes);
    node->block = GADDR_NULL;
    return pool_fail(upload->session, BANYAN_ENOSPC,
                     "memory node %u has no room for the %u bytes through which a checkpoint comes",
                     (unsigned)node->node, BLOCK_LEAST);
}

int save_upload_begin(struct save_upload *upload, uint32_t part, struct save_node *const *nodes,
                      unsigned count)
{
    int status = 0;
    assert(count && count <= SAVE_COPIES_MAX);
    for (unsigned i = 0; i < count && !status; i++)
        status = block_take(upload, upload->nodes[i] = nodes[i]);
    upload->count = count;
    upload->part = part;
    upload->used = upload->check = 0;
    upload->sent = 0;
    return status;
}

/* `length` bytes of the buffer to one memory node, when its disk has what was sent before. */
static int node_send(const struct save_upload *upload, struct save_node *node, uint32_t at, uint32_t length)
{
    struct fabric_command write = pool_write_command(node->block, upload->buffer + at, length);
    struct memory_save_request request = {.action = MEMORY_SAVE_WRITE,
                                          .number = upload->number,
                                          .part = upload->part,
                                          .length = length,
                                          .address = node->block,
                                          .offset = upload->sent + at};
    int status = save_node_wait(upload->session, node, upload->wait_ns);
    if (!status) {
        pool_session_begin(upload->session);
        status = pool_execute(upload->session, node->node, &write, 1);
        if (status)
            return pool_list_failed(upload->session, status, &write, 1);
    }
    return status ? status : save_node_send(upload->session, node, &request);
}

static int flush(struct save_upload *upload)
{
    int status = 0;
    for (unsigned i = 0; i < upload->count; i++)
        for (uint32_t at = 0; at < upload->used && !status;) {
            const uint32_t rest = upload->used - at, most = upload->nodes[i]->block_bytes;
            const uint32_t length = rest < most ? rest : most;
            status = node_send(upload, upload->nodes[i], at, length);
            at += length;
        }
    upload->check = crc32c(upload->check, upload->buffer, upload->used);
    upload->sent += upload->used;
    upload->used = 0;
    return status;
}

int save_upload_bytes(struct save_upload *upload, const void *bytes, size_t length)
{
    const uint8_t *from = bytes;
    int status = 0;
    while (length && !status) {
        const size_t room = SAVE_SEND_BYTES - upload->used, some = length < room ? length : room;
        memcpy(upload->buffer + upload->used, from, some);
        upload->used += (uint32_t)some;
        from += some;
        length -= some;
        if (upload->used == SAVE_SEND_BYTES)
            status = flush(upload);
    }
    return status;
}

int save_upload_end(struct save_upload *upload, uint64_t entries)
{
    int status = upload->used ? flush(upload) : 0;
    for (unsigned i = 0; i < upload->count && !status; i++)
        status = save_node_wait(upload->session, upload->nodes[i], upload->wait_ns);
    for (unsigned i = 0; i < upload->count && !status; i++) {
        struct memory_save_request request = {.action = MEMORY_SAVE_END,
                                              .number = upload->number,
                                              .part = upload->part,
                                              .bytes = upload->sent,
                                              .entries = entries,
                                              .check = upload->check};
        status = save_node_send(upload->session, upload->nodes[i], &request);
    }
    for (unsigned i = 0; i < upload->count && !status; i++)
        status = save_node_wait(upload->session, upload->nodes[i], upload->wait_ns);
    return status;
}
