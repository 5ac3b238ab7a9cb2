/*
 * model.h - what keys written by one client may hold now, given acknowledged writes and writes of unknown
 * outcome.
 *
 * The rule: once a later write of a key is acknowledged, earlier ones of unknown outcome can no longer take
 * effect (they would need the lock that it had); and a read that shows the effect of one write settles the
 * writes before it. Each check returns NULL, or what is wrong in a rotating buffer. One thread owns a key;
 * `acked` and `issued` may be read by others.
 */
#ifndef TESTS_CLUSTER_MODEL_H
#define TESTS_CLUSTER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MODEL_MAYBE_MAX  16u
#define MODEL_TOKENS_MAX 256u
#define MODEL_TOKEN      24u
#define MODEL_VALUE_MAX  (200u << 10)
#define MODEL_NAME_MAX   256u
#define MODEL_PAST       6u

/* ---- values ---- */

struct model_value {
    uint32_t owner, number;
    uint32_t issued, acked; /* writes are numbered from 1; atomic */
    struct model_maybe {
        uint32_t write;
        bool present;
    } may[MODEL_MAYBE_MAX]; /* in the order of the writes */
    unsigned count;
    /* for messages: the last writes, with when they began and ended (ns), and how: '?' unknown, '+'
     * acknowledged, '-' refused */
    struct model_past {
        uint32_t write;
        char how;
        bool present;
        uint64_t began, ended;
    } past[MODEL_PAST];
};
void model_value_init(struct model_value *value, uint32_t owner, uint32_t number);
/* "vOWNER.NUMBER", some with long remainders. */
size_t model_value_name(char name[MODEL_NAME_MAX], uint32_t owner, uint32_t number);
bool model_value_full(const struct model_value *value);
/* A write begins; `bytes` (MODEL_VALUE_MAX) gets what it writes, NULL: it deletes. Returns the length. */
size_t model_value_begin(struct model_value *value, char *bytes);
/* It ended: acknowledged, or refused. Of unknown outcome: no call. */
void model_value_acked(struct model_value *value);
void model_value_refused(struct model_value *value);
/* A write that was acknowledged said whether there was something before it. Before model_value_acked. */
const char *model_value_existed(const struct model_value *value, bool existed);
/* The write ended, whichever way, for messages; after the calls above. */
void model_value_past(struct model_value *value, uint32_t write, bool present, char how, uint64_t began,
                      uint64_t ended);
/* Its last writes in words, in a rotating buffer. */
const char *model_value_story(const struct model_value *value);
/* It was read: bytes NULL: absent. */
const char *model_value_read(struct model_value *value, const char *bytes, size_t length);
/* Somebody else read it; *write gets the write's number (0: absent). Acked before and issued after the read.
 */
const char *model_value_foreign(uint32_t owner, uint32_t number, const char *bytes, size_t length,
                                uint32_t acked, uint32_t issued, uint32_t *write);

/* ---- counters ---- */

struct model_counter {
    int64_t low, high;
};
void model_counter_unknown(struct model_counter *counter);
const char *model_counter_increased(struct model_counter *counter, int64_t reply);
const char *model_counter_read(struct model_counter *counter, int64_t value);

/* ---- what is appended to ---- */

struct model_tail {
    uint32_t owner, number, issued;
    struct model_token {
        uint32_t number;
        bool certain;
    } tokens[MODEL_TOKENS_MAX];
    unsigned count;
};
bool model_tail_full(const struct model_tail *tail);
void model_tail_token(const struct model_tail *tail, uint32_t number, char token[MODEL_TOKEN + 1]);
/* Begins an append of the token it returns. */
void model_tail_begin(struct model_tail *tail, char token[MODEL_TOKEN + 1]);
const char *model_tail_acked(struct model_tail *tail, int64_t length);
void model_tail_refused(struct model_tail *tail);
const char *model_tail_read(struct model_tail *tail, const char *bytes, size_t length);
void model_tail_deleted(struct model_tail *tail);

#endif
