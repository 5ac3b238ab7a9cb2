#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

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
    switch ((enum banyan_error)code) {
    case BANYAN_OK:
        return "no error";
    case BANYAN_ENOTFOUND:
        return "not found";
    case BANYAN_EEXIST:
        return "exists already";
    case BANYAN_EINVAL:
        return "invalid argument";
    case BANYAN_EKEYSIZE:
        return "the key's length is not allowed by the index";
    case BANYAN_EVALUESIZE:
        return "the value's length is not allowed by the index";
    case BANYAN_ENOSPC:
        return "the memory nodes' pools are exhausted";
    case BANYAN_ENOMEM:
        return "this process has no memory left";
    case BANYAN_ECORRUPT:
        return "a node in the pool is corrupt";
    case BANYAN_EADDRESS:
        return "a remote address or length is out of range";
    case BANYAN_ENET:
        return "a memory node cannot be reached";
    case BANYAN_ETIMEOUT:
        return "timed out";
    case BANYAN_EFENCED:
        return "this compute node was declared dead and fenced off";
    case BANYAN_EUNKNOWN:
        return "the operation may or may not have taken effect";
    case BANYAN_ENOTSUP:
        return "not supported";
    case BANYAN_EBUSY:
        return "in use";
    case BANYAN_ECONFLICT:
        return "another value was found";
    case BANYAN_EABORT:
        return "the change was refused by its callback";
    case BANYAN_EVERSION:
        return "written by an incompatible version";
    }
    return "unknown error";
}
