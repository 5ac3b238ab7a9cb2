/*
 * walk_message.h - how the requests and replies of WALK, MERGE and EXCHANGE (request.h) are put together and
 * taken apart by a compute node, and what both sides go by. Pure; nothing is allocated. A reply comes from
 * outside: the reader says false where it is cut short or says what no reply can say, and what its nodes hold
 * has still to be proven.
 */
#ifndef MEMORY_WALK_MESSAGE_H
#define MEMORY_WALK_MESSAGE_H

#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "format/header.h"
#include "memory/request.h"

struct memory_walk_writer {
    uint8_t *bytes;
    size_t length, capacity;
};

static inline struct memory_walk_geometry memory_walk_geometry_of(const struct format_geometry *geometry)
{
    return (struct memory_walk_geometry){.leaf_bytes = geometry->leaf_bytes,
                                         .internal_bytes = geometry->internal_bytes,
                                         .key_kind = geometry->key_kind,
                                         .key_bytes = geometry->key_bytes,
                                         .inline_key_bytes = geometry->inline_key_bytes,
                                         .value_bytes = geometry->value_bytes,
                                         .value_variable = geometry->value_variable,
                                         .content = geometry->content,
                                         .leaf_kind = geometry->leaf_kind};
}

static inline bool memory_walk_put(struct memory_walk_writer *writer, const void *bytes, size_t length)
{
    if (length > writer->capacity - writer->length)
        return false;
    if (length)
        memcpy(writer->bytes + writer->length, bytes, length);
    writer->length += length;
    return true;
}

/* The next key, and where its walk begins. False: no room. */
static inline bool memory_walk_put_start(struct memory_walk_writer *writer, struct format_link link,
                                         uint8_t level, struct format_key key)
{
    const struct memory_walk_start start = {
        .address = link.address, .tag = link.tag, .level = level, .key_length = (uint8_t)key.length};
    return key.length <= UINT8_MAX && memory_walk_put(writer, &start, sizeof start) &&
           memory_walk_put(writer, key.bytes, key.length);
}

/* What a MERGE or an EXCHANGE that came to this has written: nothing. Such a request is validated as a whole
 * before its first store; so a refusal tells, and with any other error nobody knows. */
static inline bool memory_walk_not_done(int status)
{
    return status == BANYAN_EFENCED || status == BANYAN_EBUSY || status == BANYAN_ENOTSUP ||
           status == BANYAN_EINVAL;
}

/* Whether a key that holds this (unless `found`: nothing) holds what an EXCHANGE expects; for both sides. */
static inline bool memory_expectation_met(enum memory_expectation expects, struct format_key expected,
                                          bool found, struct format_key held)
{
    switch (expects) {
    case MEMORY_EXPECT_NOTHING:
        return !found;
    case MEMORY_EXPECT_SOMETHING:
        return found;
    case MEMORY_EXPECT_VALUE:
        return found && held.length == expected.length &&
               (!held.length || !memcmp(held.bytes, expected.bytes, held.length));
    default:
        return true;
    }
}

struct memory_walk_reader {
    const uint8_t *bytes;
    size_t left;
    uint32_t answers, nodes; /* that are still to come */
};

static inline const uint8_t *memory_walk_take(struct memory_walk_reader *reader, size_t length)
{
    const uint8_t *bytes = reader->bytes;
    if (length > reader->left)
        return NULL;
    reader->bytes += length;
    reader->left -= length;
    return bytes;
}

static inline bool memory_walk_read(struct memory_walk_reader *reader, const void *reply, size_t length)
{
    struct memory_walk_reply head;
    *reader = (struct memory_walk_reader){.bytes = reply, .left = length};
    const uint8_t *bytes = memory_walk_take(reader, sizeof head);
    if (!bytes)
        return false;
    memcpy(&head, bytes, sizeof head);
    reader->answers = head.answers;
    reader->nodes = head.nodes;
    return true;
}

/* The next answer; *value: its value's bytes, in the reply. */
static inline bool memory_walk_read_answer(struct memory_walk_reader *reader,
                                           struct memory_walk_answer *answer, const uint8_t **value)
{
    const uint8_t *bytes = reader->answers ? memory_walk_take(reader, sizeof *answer) : NULL;
    *answer = (struct memory_walk_answer){0};
    *value = NULL;
    if (!bytes)
        return false;
    reader->answers--;
    memcpy(answer, bytes, sizeof *answer);
    *value = memory_walk_take(reader, answer->value_length);
    return *value && answer->outcome && answer->outcome < MEMORY_WALK_OUTCOMES &&
           answer->level <= FORMAT_LEVEL_MAX && (answer->outcome == MEMORY_WALK_HIT || !answer->value_length);
}

/* The next node, behind all answers; false also: there is none. */
static inline bool memory_walk_read_node(struct memory_walk_reader *reader, struct memory_walk_node *node,
                                         const uint8_t **bytes)
{
    const uint8_t *head = reader->nodes && !reader->answers ? memory_walk_take(reader, sizeof *node) : NULL;
    *node = (struct memory_walk_node){0};
    *bytes = NULL;
    if (!head)
        return false;
    reader->nodes--;
    memcpy(node, head, sizeof *node);
    *bytes = memory_walk_take(reader, node->bytes);
    return *bytes && node->level <= FORMAT_LEVEL_MAX;
}

#endif
