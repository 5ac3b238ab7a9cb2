/*
 * cursors.h - what SCAN's cursors stand for: the key after which each continues.
 *
 * A cursor is a number below 2^53, since clients keep it in all kinds of types, and is handed out once. It
 * can be used any number of times while it is among the last CURSORS_KEPT that this server handed out; then
 * it is forgotten. Numbers begin at random, so that a cursor of another server, or of this one before it was
 * restarted, is recognized as unknown. Memory is bounded, whatever clients do. Any thread.
 */
#ifndef SERVER_CURSORS_H
#define SERVER_CURSORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CURSORS_KEPT    16384u
#define CURSORS_KEY_MAX 255u

struct server_cursors;
/* NULL: no memory. */
struct server_cursors *server_cursors_create(void);
void server_cursors_destroy(struct server_cursors *cursors);
/* Never 0. */
uint64_t server_cursors_put(struct server_cursors *cursors, const void *key, size_t length);
/* False: unknown, or forgotten. */
bool server_cursors_get(struct server_cursors *cursors, uint64_t cursor, uint8_t key[CURSORS_KEY_MAX],
                        size_t *length);

#endif
