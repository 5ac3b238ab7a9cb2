/*
 * part.h - a part of a scan, as one compute node asks another for it: the bytes of the request and of the
 * reply. Private to src/owner/. Pure; every field that is read is validated, as in message.h.
 *
 * Request: 's', version, number of the index (u16), flags (u16), lengths of both bounds (u8 each), the
 * sender's version of the map (u64), limit (u32; 0: none), 0 (u32); then the bounds. Reply: 'S', version,
 * status (i8), flags (1: the range ended), entries (u16), length of the bound (u8), 0 (u8), the server's
 * version of the map (u64); then the entries (length of key and of value, key, value), then the bound from
 * which the asker goes on. Integers in host byte order. A reply has OWNER_PART_BYTES at most; the asker asks
 * again for the rest.
 */
#ifndef OWNER_PART_H
#define OWNER_PART_H

#include "fabric/peers.h"
#include "tree/rights.h"

#define OWNER_PART_MARK          's' /* the first byte of a request */
#define OWNER_PART_REQUEST_BYTES (24u + 2 * FORMAT_KEY_MAX)
#define OWNER_PART_BYTES         FABRIC_PEER_BYTES_MAX

/* ---- requests ---- */

struct owner_part_request {
    uint16_t number;
    uint64_t version;
    struct tree_range range; /* read: its bounds lie in the bytes */
};
/* Returns the length. A limit that is too large for the message is none. */
size_t owner_part_request_write(uint8_t bytes[OWNER_PART_REQUEST_BYTES],
                                const struct owner_part_request *request);
/* 0; BANYAN_EVERSION: of another release; BANYAN_EINVAL: no such message. */
int owner_part_request_read(const void *bytes, size_t length, struct owner_part_request *request);

/* ---- replies ---- */

struct owner_part_writer {
    uint8_t *bytes; /* OWNER_PART_BYTES */
    size_t length;
    uint16_t entries;
};
void owner_part_begin(struct owner_part_writer *writer, uint8_t *bytes);
/* False: it does not fit; the first one always does. */
bool owner_part_add(struct owner_part_writer *writer, const void *key, size_t key_length, const void *value,
                    size_t length);
/* With an error nothing but that is told. */
void owner_part_end(struct owner_part_writer *writer, int status, const struct tree_scan_end *end,
                    uint64_t version);

struct owner_part_reader {
    const uint8_t *bytes;
    size_t at;
    uint16_t entries, taken;
    int status; /* 0 or a negative banyan_error */
    uint64_t version;
    struct tree_scan_end end;
};
/* Judges the whole reply: its entries ascend (descend), lie in the range and are no more than its limit, and
 * what it says is due next leaves out none of them, and lies further on than what was asked for. 0,
 * BANYAN_EVERSION or BANYAN_EINVAL. */
int owner_part_open(struct owner_part_reader *reader, const void *bytes, size_t length,
                    const struct tree_range *asked);
/* The next entry, which lies in the bytes; false: there is none. */
bool owner_part_next(struct owner_part_reader *reader, struct format_key *key, struct format_key *value);

#endif
