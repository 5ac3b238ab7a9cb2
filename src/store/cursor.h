/*
 * cursor.h - runs over a range in batches. Private to src/store/.
 */
#ifndef STORE_CURSOR_H
#define STORE_CURSOR_H

#include "store/batch.h"

/* Runs over a range in batches. */
struct store_cursor {
    struct store_session *session;
    struct tree_range range; /* what is left; its limit is not used */
    enum format_part part;   /* values: a batch ends where its records become many bytes */
    bool count_only; /* collects those entries alone whose expiry stands in their record; counts the others */
    uint64_t now, counted;
    bool done;
    uint8_t bound[FORMAT_KEY_MAX]; /* the range's, once it has moved on */
    uint8_t last[FORMAT_KEY_MAX];
    size_t last_length;
    /* of the batch under way */
    uint32_t met;
    bool stopped;
    size_t bytes;
    int status;
};
/* Fills session->batch (keys and slots in the arena, which is reset) with at most `room` entries and moves
 * on. */
int store_cursor_next(struct store_cursor *cursor, uint32_t room);

#endif
