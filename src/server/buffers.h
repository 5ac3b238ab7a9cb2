/*
 * buffers.h - the memory of connections' buffers, and the thread's account of it (counters `blocks` and
 * `large`).
 *
 * Buffers begin as blocks of one size, of which the thread keeps spare ones, and double from there. Of those
 * that have grown to at most 256 KiB the thread keeps spare ones too, for as long as they are in use again
 * and again: a pipeline that fetches values of 10 KiB wants such a one each turn, and one that the allocator
 * gets anew has pages that the kernel must clear first. All functions are called on the thread.
 */
#ifndef SERVER_BUFFERS_H
#define SERVER_BUFFERS_H

#include <stddef.h>

#include "server/thread.h"

#define BUFFER_BLOCK_BYTES 16384u
#define BUFFERS_SPARE_MAX  256u        /* blocks that a thread keeps */
#define BUFFERS_GROWN_MAX  (16u << 20) /* bytes of all that have grown and are kept */

/* A block; NULL: no memory. */
char *buffer_take(struct server_thread *thread);
/* Takes a buffer of any size back; `buffer` may be NULL. */
void buffer_give(struct server_thread *thread, char *buffer, size_t capacity);
/* The buffer (which may be NULL, of 0 bytes) in a larger size, with its first `used` bytes; the old one is
 * given back. NULL: no memory, and the old one stays the caller's. */
char *buffer_grow(struct server_thread *thread, char *buffer, size_t used, size_t capacity, size_t larger);
/* The caller has resized memory that was never a block. */
void buffer_account_large(struct server_thread *thread, size_t from, size_t to);
/* Frees what has grown and was spare all the time since the last call. At each tick of the thread. */
void buffers_trim(struct server_thread *thread);
/* Frees all that is spare. */
void buffers_free_spare(struct server_thread *thread);

#endif
