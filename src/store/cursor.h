/*
 * cursor.h - runs over a range in batches. Private to src/store/.
 */
#ifndef STORE_CURSOR_H
#define STORE_CURSOR_H

#include "store/batch.h"

/* Where a run over a range is. */
struct store_cursor {
    struct store_session *session;
    struct tree_range range; /* the rest of it; its limit is not used */
    enum format_part part;   /* values: a batch ends where its records become many bytes */
    bool count_only; /* collects only the entries whose expiry is in their record; counts the others */
    uint64_t now, counted;
    bool done;
    uint8_t bound[FORMAT_KEY_MAX]; /* the rest's, after the first batch */
    uint8_t last[FORMAT_KEY_MAX];
    size_t last_length;
    /* of the current batch: entries met, whether it is full, bytes of its records, error */
    uint32_t met;
    bool stopped;
    size_t bytes;
    int status;
};
/* Fills session->batch with at most `room` entries, whose keys and slots lie in the arena (it is reset), and
 * moves on behind them. */
int store_cursor_next(struct store_cursor *cursor, uint32_t room);

#endif
