/*
 * error_codes.c - checks, while it is compiled, that the public header and src/base/error_codes.h name the
 * same codes with the same numbers. There is nothing here to call.
 */
#include "banyan.h" /* first: it is the public header's enum that is compared */

#include "base/error_codes.h"

#define SAME(name, number, sentence)                                                                         \
    _Static_assert(BANYAN_##name == (number),                                                                \
                   "BANYAN_" #name " has another number in src/base/error_codes.h");
ERROR_CODES(SAME)

/* A code that only the public header has makes -Wswitch complain. */
__attribute__((unused)) static void error_codes_complete(enum banyan_error code)
{
    switch (code) {
#define KNOWN(name, number, sentence) case BANYAN_##name:
        ERROR_CODES(KNOWN)
        break;
    }
}
