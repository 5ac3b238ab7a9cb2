/*
 * common.h - what all files of src/api/ share: structs that a program passes may be older or newer than ours.
 */
#ifndef API_COMMON_H
#define API_COMMON_H

#include <stddef.h>
#include <stdint.h>
#include "banyan.h"
#include "base/error.h"

/* Copies a struct that begins with its size_t struct_bytes into ours; the message names it. BANYAN_EINVAL:
 * the size makes no sense. BANYAN_ENOTSUP: it sets a field that this version does not know. */
int api_struct_in(void *ours, size_t our_bytes, const void *theirs, const char *name, struct error *error);
/* Fills a caller's struct as far as the caller knows it: struct_bytes stays, fields unknown to us become 0.
 */
int api_struct_out(void *theirs, const void *ours, size_t our_bytes);
/* Changes a count of open handles; any thread. */
void api_count(uint32_t *count, int change);

#endif
