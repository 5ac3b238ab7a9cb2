/*
 * arguments.h - checks of keys and values that a program passes, so that the layers below may rely on them.
 * Private to src/api/. No round trips; what is wrong becomes the session's error.
 */
#ifndef API_ARGUMENTS_H
#define API_ARGUMENTS_H

#include "api/index.h"

/* Session, index and key are there; the key has a length that the index takes (BANYAN_EKEYSIZE). */
int api_check_key(struct banyan_session *session, const struct banyan_index *index, const void *key,
                  size_t length);
bool api_value_fits(const struct banyan_index *index, size_t length);
/* BANYAN_EVALUESIZE. */
int api_check_value(struct banyan_session *session, const struct banyan_index *index, const void *value,
                    size_t length);
int api_check_entry(struct banyan_session *session, const struct banyan_index *index, const void *key,
                    size_t key_length, const void *value, size_t length);
/* The layers below may take the address of an empty value for granted. */
static inline const void *api_value_or_empty(const void *value)
{
    return value ? value : "";
}

#endif
