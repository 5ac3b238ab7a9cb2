/*
 * error_codes.h - the codes that functions return, each with its number and its sentence. They stand here
 * once.
 *
 * include/banyan.h has the same enum for programs, since it must stand alone where it is installed. Both
 * headers may come into one file, in any order: the first one's enum counts. src/api/error_codes.c does not
 * compile where the two differ.
 */
#ifndef BASE_ERROR_CODES_H
#define BASE_ERROR_CODES_H

#define ERROR_CODES(CODE)                                                                                    \
    CODE(OK, 0, "no error")                                                                                  \
    CODE(ENOTFOUND, -1, "not found")                                                                         \
    CODE(EEXIST, -2, "exists already")                                                                       \
    CODE(EINVAL, -3, "invalid argument")                                                                     \
    CODE(EKEYSIZE, -4, "the key's length is not allowed by the index")                                       \
    CODE(EVALUESIZE, -5, "the value's length is not allowed by the index")                                   \
    CODE(ENOSPC, -6, "the memory nodes' pools are exhausted")                                                \
    CODE(ENOMEM, -7, "this process has no memory left")                                                      \
    CODE(ECORRUPT, -8, "a node in the pool is corrupt")                                                      \
    CODE(EADDRESS, -9, "a remote address or length is out of range")                                         \
    CODE(ENET, -10, "a memory node cannot be reached")                                                       \
    CODE(ETIMEOUT, -11, "timed out")                                                                         \
    CODE(EFENCED, -12, "this compute node was declared dead and fenced off")                                 \
    CODE(EUNKNOWN, -13, "the operation may or may not have taken effect")                                    \
    CODE(ENOTSUP, -14, "not supported")                                                                      \
    CODE(EBUSY, -15, "in use")                                                                               \
    CODE(ECONFLICT, -16, "another value was found")                                                          \
    CODE(EABORT, -17, "the change was refused by its callback")                                              \
    CODE(EVERSION, -18, "written by an incompatible version")

#ifndef BANYAN_ERROR_CODES
#define BANYAN_ERROR_CODES
enum banyan_error {
#define ERROR_CODE(name, number, sentence) BANYAN_##name = (number),
    ERROR_CODES(ERROR_CODE)
#undef ERROR_CODE
};
#endif

/* The lowest code: no error that comes from outside may be below it. */
#define ERROR_CODE_LOWEST BANYAN_EVERSION

#endif
