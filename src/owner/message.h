/*
 * message.h - what compute nodes ask of each other: the bytes of requests and replies, and one call that
 * sends a request and reads its reply. Private to src/owner/. The codec is pure; every field that is read is
 * validated, and nothing is believed because of who sent it.
 *
 * A request: 'o', version, number of the index (u16), items (u16), 0 (u16), the sender's version of the map
 * (u64), how many of its messages it has given up (u64, callers.h); then the items. A reply: 'O', version,
 * items (u16), 0 (u32), the server's version of the map (u64); then an answer to each item, in order.
 * Integers in host byte order, as in memory/request.h.
 *
 *   item:   kind, expectation, flags (1: a value), length of key, of expected, of value; then these three
 *   answer: status (i8), flags (1: there was a value; 2: nothing refers to it any more), length; then the
 *   value
 */
#ifndef OWNER_MESSAGE_H
#define OWNER_MESSAGE_H

#include "owner/owner.h"

#define OWNER_MESSAGE_ITEMS  64u
#define OWNER_REQUEST_HEADER 24u /* bytes before the items */
/* A reply of as many items always fits. */
#define OWNER_REPLY_BYTES (16u + OWNER_MESSAGE_ITEMS * (3u + FORMAT_VALUE_MAX))

/* SETTLED: a lookup of what a change is decided on, as tree_lookup_settled_here. MOVE: of the key's leaf; the
 * value says from which memory node to which (u16 each; to POOL_ANY_NODE: the blocks of its long keys, as
 * tree_move_node), the answer's value, a byte, what it came to. */
enum owner_item_kind {
    OWNER_ITEM_LOOKUP = 1,
    OWNER_ITEM_EXCHANGE,
    OWNER_ITEM_BORDER,
    OWNER_ITEM_SETTLED,
    OWNER_ITEM_MOVE
};

struct owner_item {
    enum owner_item_kind kind;
    const void *key;
    size_t key_length;
    /* EXCHANGE: as struct tree_exchange */
    enum tree_expectation expect;
    const void *expected, *value;
    size_t expected_length, length;
};

struct owner_answer {
    int status; /* 0 or a negative banyan_error */
    bool existed;
    bool replaced;        /* EXCHANGE: as struct tree_exchange */
    const uint8_t *value; /* LOOKUP, SETTLED: found; EXCHANGE: what the key held */
    size_t length;
};

/* ---- writing ---- */

struct owner_writer {
    uint8_t *bytes;
    size_t capacity, length;
    uint16_t items;
};
void owner_request_begin(struct owner_writer *writer, uint8_t *bytes, size_t capacity, uint16_t number,
                         uint64_t version, uint64_t given_up);
/* False: it does not fit, and nothing was written. */
bool owner_request_add(struct owner_writer *writer, const struct owner_item *item);
void owner_reply_begin(struct owner_writer *writer, uint8_t *bytes, size_t capacity, uint64_t version);
bool owner_reply_add(struct owner_writer *writer, const struct owner_answer *answer);

/* ---- reading ---- */

struct owner_reader {
    const uint8_t *bytes;
    size_t length, at;
    uint16_t number, items, taken;
    uint64_t version, given_up; /* given_up: of a request */
};
/* 0; BANYAN_EVERSION: of another release; BANYAN_EINVAL: no such message. */
int owner_request_open(struct owner_reader *reader, const void *bytes, size_t length);
int owner_reply_open(struct owner_reader *reader, const void *bytes, size_t length);
/* The next item, or answer; what it points to lies in the bytes. BANYAN_EINVAL: it makes no sense, or is cut
 * off. BANYAN_ENOTFOUND: that was the last, and nothing follows it. */
int owner_request_next(struct owner_reader *reader, struct owner_item *item);
int owner_reply_next(struct owner_reader *reader, struct owner_answer *answer);

/* ---- calling ---- */

struct owner;
/* Asks the process for a border at the key. BANYAN_EFENCED: it does not own the key's range; else as
 * tree_border_make, or BANYAN_ENET. */
int owner_message_border(struct owner *owner, struct tree_session *session, struct tree *tree,
                         struct fabric_process peer, const void *key, size_t key_length);
/* Has the process move a leaf of its own; as struct tree_forward's `move`. */
int owner_message_move(void *owner, struct tree_session *session, struct tree *tree,
                       struct fabric_process peer, struct tree_move *move);
#define OWNER_MOVE_BYTES 4u

#endif
