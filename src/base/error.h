/*
 * error.h - an error with a message that names the thing at fault.
 *
 * A struct error belongs to the code that declared it (usually a session, or a function's caller).
 * error_set() fills it and returns the code, so that a failing function can end with
 *     return error_set(error, BANYAN_ECORRUPT, "node %s: ...", ...);
 * `error` may be NULL where the caller wants the code alone.
 */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#include "base/error_codes.h"

struct error {
    int code;       /* enum banyan_error */
    char text[248]; /* always terminated; empty while code is BANYAN_OK */
};

int error_set(struct error *error, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
void error_clear(struct error *error);
/* A constant sentence for a code; never NULL. */
const char *error_name(int code);

#endif
