#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

#define NOT_BELOW(name, number, sentence)                                                                    \
    _Static_assert(BANYAN_##name >= ERROR_CODE_LOWEST, "ERROR_CODE_LOWEST is not the lowest code");
ERROR_CODES(NOT_BELOW)

int error_set(struct error *error, int code, const char *format, ...)
{
    if (!error)
        return code;
    va_list arguments;
    error->code = code;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return code;
}

void error_clear(struct error *error)
{
    if (!error)
        return;
    error->code = BANYAN_OK;
    error->text[0] = 0;
}

const char *error_name(int code)
{
    switch (code) {
#define SENTENCE(name, number, sentence)                                                                     \
    case BANYAN_##name:                                                                                      \
        return sentence;
        ERROR_CODES(SENTENCE)
#undef SENTENCE
    default:
        return "unknown error";
    }
}
