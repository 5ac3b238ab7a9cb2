/*
 * buffers.h - the memory of connections' buffers, and the thread's account of it (counters `blocks` and
 * `large`).
 *
 * Buffers begin as blocks of one size, of which the thread keeps spare ones, and grow from there; a buffer
 * that has grown is freed when it is given back. All functions are called on the thread.
 */
#ifndef SERVER_BUFFERS_H
#define SERVER_BUFFERS_H

#include <stddef.h>

#include "server/thread.h"

#define BUFFER_BLOCK_BYTES 16384u
#define BUFFERS_SPARE_MAX  256u /* blocks that a thread keeps */

/* A block; NULL: no memory. */
char *buffer_take(struct server_thread *thread);
/* Takes a buffer of any size back; `buffer` may be NULL. */
void buffer_give(struct server_thread *thread, char *buffer, size_t capacity);
/* The caller has resized a buffer. */
void buffer_account(struct server_thread *thread, size_t from, size_t to);
/* The caller has resized memory that was never a block. */
void buffer_account_large(struct server_thread *thread, size_t from, size_t to);
/* Frees the spare blocks. */
void buffers_free_spare(struct server_thread *thread);

#endif
