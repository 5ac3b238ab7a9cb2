#include <assert.h>
#include "cluster/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include "base/atomic.h"
#include "base/random.h"
#include "cluster/process.h"

#define HEADER 24u /* of a value: whose it is */

/* ---- values ---- */

static uint64_t value_seed(uint32_t owner, uint32_t number, uint32_t write)
{
    return random_mix(((uint64_t)owner << 48) ^ ((uint64_t)number << 32) ^ write);
}

/* Most fit in a slot, some need records, few are long. */
static size_t value_length(uint64_t seed)
{
    uint64_t kind = seed % 100, more = seed >> 32;
    if (kind < 60)
        return HEADER + more % 40;
    if (kind < 85)
        return HEADER + more % 1000;
    return HEADER + more % (kind < 98 ? 20000 : MODEL_VALUE_MAX - HEADER);
}

static size_t value_make(char *bytes, uint32_t owner, uint32_t number, uint32_t write)
{
    uint64_t seed = value_seed(owner, number, write);
    size_t length = value_length(seed);
    char header[HEADER + 1];
    snprintf(header, sizeof header, "%04u.%06u.%010u::", owner % 10000, number % 1000000, write);
    memcpy(bytes, header, HEADER);
    for (size_t i = HEADER; i < length; i += 8) {
        uint64_t word = random_mix(seed + i);
        memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
    }
    return length;
}

/* Is it what write `write` wrote, to the last byte? */
static bool value_is(const char *bytes, size_t length, uint32_t owner, uint32_t number, uint32_t write)
{
    static _Thread_local char wanted[MODEL_VALUE_MAX];
    return value_length(value_seed(owner, number, write)) == length &&
           value_make(wanted, owner, number, write) == length && !memcmp(wanted, bytes, length);
}

static uint32_t value_write(const char *bytes, size_t length)
{
    char header[HEADER + 1] = {0};
    unsigned owner, number, write;
    memcpy(header, bytes, length < HEADER ? length : HEADER);
    return sscanf(header, "%4u.%6u.%10u::", &owner, &number, &write) == 3 ? write : 0;
}

void model_value_init(struct model_value *value, uint32_t owner, uint32_t number)
{
    *value = (struct model_value){.owner = owner, .number = number, .count = 1};
}

size_t model_value_name(char name[MODEL_NAME_MAX], uint32_t owner, uint32_t number)
{
    size_t length = (size_t)snprintf(name, MODEL_NAME_MAX, "v%03u.%05u", owner, number);
    if (number % 5 == 4) {
        size_t wanted = 40 + random_mix(number) % 215;
        memset(name + length, 'a' + (int)(number % 26), wanted - length);
        name[length = wanted] = 0;
    }
    return length;
}

bool model_value_full(const struct model_value *value)
{
    return value->count == MODEL_MAYBE_MAX;
}

size_t model_value_begin(struct model_value *value, char *bytes)
{
    uint32_t write = value->issued + 1;
    value->may[value->count++] = (struct model_maybe){write, bytes != NULL};
    atomic_store_release(&value->issued, write); /* before it is sent: no reader may see it earlier */
    return bytes ? value_make(bytes, value->owner, value->number, write) : 0;
}

void model_value_acked(struct model_value *value)
{
    value->may[0] = value->may[value->count - 1];
    value->count = 1;
    atomic_store_release(&value->acked,
                         value->may[0].write); /* from here on no reader may see an older one */
}

void model_value_refused(struct model_value *value)
{
    value->count--;
}

const char *model_value_existed(const struct model_value *value, bool existed)
{
    for (unsigned i = 0; i + 1 < value->count; i++)
        if (value->may[i].present == existed)
            return NULL;
    return text_of("a write said that the key %s", existed ? "existed" : "did not exist");
}

void model_value_past(struct model_value *value, uint32_t write, bool present, char how, uint64_t began,
                      uint64_t ended)
{
    memmove(value->past, value->past + 1, (MODEL_PAST - 1) * sizeof value->past[0]);
    value->past[MODEL_PAST - 1] = (struct model_past){write, how, present, began, ended};
}

const char *model_value_story(const struct model_value *value)
{
    char text[500] = "";
    for (unsigned i = 0; i < MODEL_PAST; i++) {
        const struct model_past *past = &value->past[i];
        if (past->write)
            snprintf(text + strlen(text), sizeof text - strlen(text), " %u%s%c %.1f to %.1f ms ago;",
                     past->write, past->present ? "" : " (absent)", past->how,
                     (double)(now_ns() - past->began) / 1e6, (double)(now_ns() - past->ended) / 1e6);
    }
    return text_of("%s", text);
}

static const char *value_wrong(const struct model_value *value, const char *bytes, size_t length)
{
    char may[400] = "";
    for (unsigned i = 0; i < value->count; i++)
        snprintf(may + strlen(may), sizeof may - strlen(may), " %u%s", value->may[i].write,
                 value->may[i].present ? "" : " (absent)");
    return text_of("read %s%.24s (%zu bytes), may be write%s of %u issued; before:%s", bytes ? "" : "nothing",
                   bytes ? bytes : "", length, may, value->issued, model_value_story(value));
}

const char *model_value_read(struct model_value *value, const char *bytes, size_t length)
{
    uint32_t write = bytes ? value_write(bytes, length) : 0;
    for (unsigned i = 0; i < value->count; i++) {
        const struct model_maybe *maybe = &value->may[i];
        if (maybe->present != (bytes != NULL) || (bytes && maybe->write != write))
            continue;
        if (bytes && !value_is(bytes, length, value->owner, value->number, write))
            return text_of("write %u was read with wrong bytes: %.24s, %zu bytes", write, bytes, length);
        memmove(value->may, maybe, (value->count - i) * sizeof *maybe);
        value->count -= i;
        if (value->may[0].write > value->acked && bytes)
            atomic_store_release(&value->acked, value->may[0].write); /* seen is as good as acknowledged */
        return NULL;
    }
    return value_wrong(value, bytes, length);
}

const char *model_value_foreign(uint32_t owner, uint32_t number, const char *bytes, size_t length,
                                uint32_t acked, uint32_t issued, uint32_t *write)
{
    *write = bytes ? value_write(bytes, length) : 0;
    if (!bytes)
        return NULL;
    if (!value_is(bytes, length, owner, number, *write))
        return text_of("a value that was never written: %.24s, %zu bytes", bytes, length);
    if (*write < acked || *write > issued)
        return text_of("write %u was read when %u was acknowledged before, of %u issued", *write, acked,
                       issued);
    return NULL;
}

/* ---- counters ---- */

void model_counter_unknown(struct model_counter *counter)
{
    counter->high++;
}

const char *model_counter_increased(struct model_counter *counter, int64_t reply)
{
    if (reply < counter->low + 1 || reply > counter->high + 1)
        return text_of("a counter became %" PRId64 " from %" PRId64 " to %" PRId64, reply, counter->low,
                       counter->high);
    counter->low = counter->high = reply;
    return NULL;
}

const char *model_counter_read(struct model_counter *counter, int64_t value)
{
    if (value < counter->low || value > counter->high)
        return text_of("a counter was read as %" PRId64 ", must be %" PRId64 " to %" PRId64, value,
                       counter->low, counter->high);
    counter->low = value;
    return NULL;
}

/* ---- what is appended to ---- */

bool model_tail_full(const struct model_tail *tail)
{
    return tail->count == MODEL_TOKENS_MAX;
}

void model_tail_token(const struct model_tail *tail, uint32_t number, char token[MODEL_TOKEN + 1])
{
    snprintf(token, MODEL_TOKEN + 1, "<%08u.%013" PRIx64 ">", number,
             value_seed(tail->owner, tail->number, number) >> 12);
}

void model_tail_begin(struct model_tail *tail, char token[MODEL_TOKEN + 1])
{
    tail->tokens[tail->count++] = (struct model_token){++tail->issued, false};
    model_tail_token(tail, tail->issued, token);
}

const char *model_tail_acked(struct model_tail *tail, int64_t length)
{
    int64_t certain = 0;
    tail->tokens[tail->count - 1].certain = true;
    for (unsigned i = 0; i < tail->count; i++)
        certain += tail->tokens[i].certain;
    if (length % MODEL_TOKEN || length < certain * MODEL_TOKEN || length > (int64_t)tail->count * MODEL_TOKEN)
        return text_of("APPEND made it %" PRId64 " bytes of %" PRId64 " to %u tokens", length, certain,
                       tail->count);
    return NULL;
}

void model_tail_refused(struct model_tail *tail)
{
    tail->count--;
}

const char *model_tail_read(struct model_tail *tail, const char *bytes, size_t length)
{
    struct model_tail old = *tail;
    unsigned kept = 0, at = 0;
    size_t offset = 0;
    while (offset < length) {
        char token[MODEL_TOKEN + 1];
        if (at == old.count)
            return text_of("appended bytes that were never sent, or twice, at %zu of %zu", offset, length);
        model_tail_token(tail, old.tokens[at].number, token);
        if (length - offset >= MODEL_TOKEN && !memcmp(bytes + offset, token, MODEL_TOKEN)) {
            tail->tokens[kept++] = (struct model_token){old.tokens[at].number, true};
            offset += MODEL_TOKEN;
        } else if (old.tokens[at].certain) {
            return text_of("an acknowledged APPEND (%u) is missing at %zu of %zu: %.24s",
                           old.tokens[at].number, offset, length, bytes + offset);
        }
        at++;
    }
    for (; at < old.count; at++) {
        if (old.tokens[at].certain)
            return text_of("an acknowledged APPEND (%u) is missing at the end, %zu", old.tokens[at].number,
                           length);
        tail->tokens[kept++] = old.tokens[at];
    }
    tail->count = kept;
    return NULL;
}

void model_tail_deleted(struct model_tail *tail)
{
    tail->count = 0;
}
