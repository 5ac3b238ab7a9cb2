/* banyan.h - placeholder for the error codes; the full C API is added by its owner. */
#ifndef BANYAN_H
#define BANYAN_H

#ifdef __cplusplus
extern "C" {
#endif

/* Every function that can fail returns 0 (BANYAN_OK) or one of these. */
enum banyan_error {
    BANYAN_OK = 0,
    BANYAN_ENOTFOUND = -1, /* the key, index or node does not exist */
    BANYAN_EEXIST = -2,    /* the key or index exists already */
    BANYAN_EINVAL = -3,    /* an argument is out of its range */
    BANYAN_EKEYSIZE = -4,  /* the key's length is not one that the index's geometry allows */
    BANYAN_EVALUESIZE = -5, /* the value's length is not one that the index's geometry allows */
    BANYAN_ENOSPC = -6,    /* a memory node's pool is exhausted; the index stays usable */
    BANYAN_ENOMEM = -7,    /* this process has no memory left */
    BANYAN_ECORRUPT = -8,  /* a node in the pool does not prove itself; the message names its address */
    BANYAN_EADDRESS = -9,  /* a remote address or length is out of range or misaligned */
    BANYAN_ENET = -10,     /* a memory node cannot be reached */
    BANYAN_ETIMEOUT = -11, /* an operation took longer than its limit */
    BANYAN_EFENCED = -12,  /* this compute node was declared dead and fenced off */
    BANYAN_EUNKNOWN = -13, /* the operation may or may not have taken effect */
    BANYAN_ENOTSUP = -14,  /* not supported by this build, backend or index */
    BANYAN_EBUSY = -15,    /* the object is in use */
    BANYAN_ECONFLICT = -16, /* compare-and-set found another value */
    BANYAN_EABORT = -17,   /* a callback refused the change */
    BANYAN_EVERSION = -18, /* the pool was written by an incompatible version */
};

#ifdef __cplusplus
}
#endif
#endif
