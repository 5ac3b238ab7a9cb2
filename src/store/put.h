/*
 * put.h - puts and deletes of one key within a call that has begun. Private to src/store/.
 */
#ifndef STORE_PUT_H
#define STORE_PUT_H

#include "store/session.h"

int store_put_now(struct store_session *session, const void *key, size_t key_length,
                  const struct store_value *value);
int store_delete_now(struct store_session *session, const void *key, size_t key_length, uint64_t now);

#endif
