/*
 * common.c - See common.h; and the names of errors and of the version. Any thread.
 */
#include "api/common.h"

#include <assert.h>
#include <string.h>
#include "base/atomic.h"

#define TEXT_OF(x)     #x
#define NUMBER_TEXT(x) TEXT_OF(x)
#define VERSION_TEXT                                                                                         \
    NUMBER_TEXT(BANYAN_VERSION_MAJOR)                                                                        \
    "." NUMBER_TEXT(BANYAN_VERSION_MINOR) "." NUMBER_TEXT(BANYAN_VERSION_PATCH)

const char *banyan_strerror(int code)
{
    return error_name(code);
}

const char *banyan_version(int *major, int *minor, int *patch)
{
    if (major)
        *major = BANYAN_VERSION_MAJOR;
    if (minor)
        *minor = BANYAN_VERSION_MINOR;
    if (patch)
        *patch = BANYAN_VERSION_PATCH;
    return VERSION_TEXT;
}

int api_struct_in(void *ours, size_t our_bytes, const void *theirs, const char *name, struct error *error)
{
    size_t their_bytes;
    memcpy(&their_bytes, theirs, sizeof their_bytes);
    if (their_bytes < sizeof their_bytes || their_bytes > 65536)
        return error_set(error, BANYAN_EINVAL, "%s: struct_bytes is %zu, not its size", name, their_bytes);
    for (size_t i = our_bytes; i < their_bytes; i++)
        if (((const unsigned char *)theirs)[i] != 0)
            return error_set(error, BANYAN_ENOTSUP, "%s: byte %zu sets something this version does not know",
                             name, i);
    memset(ours, 0, our_bytes);
    memcpy(ours, theirs, their_bytes < our_bytes ? their_bytes : our_bytes);
    return BANYAN_OK;
}

int api_struct_out(void *theirs, const void *ours, size_t our_bytes)
{
    size_t their_bytes;
    memcpy(&their_bytes, theirs, sizeof their_bytes);
    if (their_bytes < sizeof their_bytes || their_bytes > 65536)
        return BANYAN_EINVAL;
    memset((char *)theirs + sizeof their_bytes, 0, their_bytes - sizeof their_bytes);
    size_t copied = their_bytes < our_bytes ? their_bytes : our_bytes;
    memcpy((char *)theirs + sizeof their_bytes, (const char *)ours + sizeof their_bytes,
           copied - sizeof their_bytes);
    return BANYAN_OK;
}

/* A count only catches a program's mistakes: the program orders its own closes, so relaxed is enough. */
void api_count(uint32_t *count, int change)
{
    assert(change > 0 || atomic_load_relaxed(count) > 0);
    atomic_add_relaxed(count, (uint32_t)change);
}
