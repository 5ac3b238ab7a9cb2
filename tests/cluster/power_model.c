/* power_model.c - see power_model.h. */
#include "cluster/power_model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/process.h"

/* ---- values ---- */

static void fill(char *bytes, uint64_t seed, uint32_t length)
{
    for (uint32_t i = 0; i < length; i += 8) {
        const uint64_t word = random_mix(seed + i);
        memcpy(bytes + i, &word, length - i < 8 ? length - i : 8);
    }
}

static void value_grow(struct power_value *value, uint32_t length)
{
    if (length <= value->length)
        return;
    value->bytes = realloc(value->bytes, length);
    if (!value->bytes)
        fail_hard("no memory");
    memset(value->bytes + value->length, 0, length - value->length);
    value->length = length;
}

static void value_clear(struct power_value *value)
{
    free(value->bytes);
    *value = (struct power_value){.expires = -1};
}

static void apply(struct power_value *value, const struct power_change *change)
{
    const uint32_t at = change->kind == POWER_APPEND ? value->length : change->offset;
    if (change->kind == POWER_SET || change->kind == POWER_DELETE)
        value_clear(value);
    if (change->kind == POWER_EXPIRE) {
        value->expires = value->present ? change->expires : -1;
        return;
    }
    if (change->kind == POWER_DELETE)
        return;
    value->present = true;
    value_grow(value, (change->kind == POWER_SET ? 0 : at) + change->length);
    if (change->length)
        fill(value->bytes + (change->kind == POWER_SET ? 0 : at), change->seed, change->length);
    if (change->kind == POWER_SET)
        value->expires = change->expires;
}

static void value_copy(struct power_value *to, const struct power_value *from)
{
    *to = (struct power_value){.present = from->present, .expires = from->expires};
    value_grow(to, from->length);
    if (from->length)
        memcpy(to->bytes, from->bytes, from->length);
}

static bool value_is(const struct power_value *value, const redisReply *found, int64_t expires)
{
    if (!value->present || found->type == REDIS_REPLY_NIL)
        return !value->present && found->type == REDIS_REPLY_NIL;
    return found->len == value->length && value->expires == expires &&
           (!value->length || !memcmp(found->str, value->bytes, value->length));
}

/* ---- keys ---- */

void power_key_init(struct power_key *key, unsigned client, unsigned number)
{
    *key = (struct power_key){.large = number % 16 == 3, .base = {.expires = -1}};
    /* Some are as long as a key may be, and differ in their ends alone. */
    snprintf(key->name, sizeof key->name, "%u.%0*u", client, number % 8 == 5 ? 60 : 1, number);
}

void power_key_free(struct power_key *key)
{
    value_clear(&key->base);
}

bool power_full(const struct power_key *key)
{
    return key->issued - key->first == POWER_CHANGES_MAX;
}

static struct power_change *change_of(struct power_key *key, uint64_t number)
{
    return &key->changes[number % POWER_CHANGES_MAX];
}

static uint32_t length_choose(const struct power_key *key, struct random *random)
{
    if (key->large && random_chance(random, 0.5)) /* to several parts of a journal */
        return (uint32_t)random_below(random, 280 << 10);
    return (uint32_t)(random_chance(random, 0.8) ? random_below(random, 40) : random_below(random, 5000));
}

static void change_choose(const struct power_key *key, struct random *random, struct power_change *change)
{
    static const enum power_kind kinds[] = {POWER_SET,    POWER_SET,    POWER_SET,   POWER_DELETE,
                                            POWER_APPEND, POWER_SPLICE, POWER_EXPIRE};
    *change = (struct power_change){.kind = kinds[random_below(random, 7)],
                                    .seed = random_next(random),
                                    .length = length_choose(key, random),
                                    .expires = -1};
    if (change->kind == POWER_APPEND || change->kind == POWER_SPLICE) {
        change->length = 1 + change->length % 3000;
        change->offset = (uint32_t)random_below(random, key->tip + 10);
        if (key->tip + 10 + change->length > POWER_BYTES_MAX)
            change->kind = POWER_DELETE;
    }
    if (change->kind == POWER_EXPIRE || (change->kind == POWER_SET && change->seed % 4 == 0))
        change->expires = INT64_C(4000000000000) + (int64_t)random_below(random, 1000000);
}

static void change_send(const struct power_key *key, const struct power_change *change,
                        redisContext *connection)
{
    static const char *const deletes[] = {"DEL", "UNLINK", "GETDEL"}, *const sets[] = {"SET", "GETSET"};
    static __thread char bytes[POWER_BYTES_MAX];
    const unsigned way = (unsigned)(change->seed >> 32);
    fill(bytes, change->seed, change->length);
    switch (change->kind) {
    case POWER_SET:
        if (change->expires >= 0)
            redisAppendCommand(connection, "SET %s %b PXAT %lld", key->name, bytes, (size_t)change->length,
                               (long long)change->expires);
        else
            redisAppendCommand(connection, "%s %s %b", sets[way % 8 == 0], key->name, bytes,
                               (size_t)change->length);
        break;
    case POWER_DELETE:
        redisAppendCommand(connection, "%s %s", deletes[way % 3], key->name);
        break;
    case POWER_APPEND:
        redisAppendCommand(connection, "APPEND %s %b", key->name, bytes, (size_t)change->length);
        break;
    case POWER_SPLICE:
        redisAppendCommand(connection, "SETRANGE %s %u %b", key->name, change->offset, bytes,
                           (size_t)change->length);
        break;
    case POWER_EXPIRE:
        redisAppendCommand(connection, "PEXPIREAT %s %lld", key->name, (long long)change->expires);
        break;
    }
}

void power_send(struct power_key *key, struct random *random, redisContext *connection)
{
    struct power_change *change = change_of(key, ++key->issued);
    change_choose(key, random, change);
    change_send(key, change, connection);
    if (change->kind == POWER_SET || change->kind == POWER_DELETE)
        key->tip = 0;
    const uint32_t end = (change->kind == POWER_APPEND ? key->tip : change->offset) + change->length;
    if (change->kind != POWER_DELETE && change->kind != POWER_EXPIRE && end > key->tip)
        key->tip = end;
}

const char *power_answered(struct power_key *key, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR)
        return text_of("%s: %s", key->name, reply->str);
    key->acked++;
    return NULL;
}

bool power_changed(const struct power_key *key)
{
    bool present = key->base.present;
    for (uint64_t at = key->first + 1; at < key->acked; at++) {
        const enum power_kind kind = key->changes[at % POWER_CHANGES_MAX].kind;
        present = kind == POWER_DELETE ? false : kind == POWER_EXPIRE ? present : true;
    }
    const enum power_kind last = key->changes[key->acked % POWER_CHANGES_MAX].kind;
    return present || (last != POWER_DELETE && last != POWER_EXPIRE);
}

void power_safe(struct power_key *key, uint64_t number)
{
    if (number > key->safe)
        key->safe = number;
    for (; key->first < key->safe; key->first++)
        apply(&key->base, change_of(key, key->first + 1));
}

static void settle_lost(struct power_key *key, struct power_value *value)
{
    value_clear(&key->base);
    key->base = *value;
    key->first = key->safe = key->acked = key->issued;
}

const char *power_found(struct power_key *key, uint64_t least, bool lost, const redisReply *found,
                        int64_t expires)
{
    struct power_value value, last = {.expires = -1};
    uint64_t number = 0;
    bool right = false, before = false;
    value_copy(&value, &key->base);
    for (uint64_t at = key->first; at <= key->issued; at++) {
        if (at > key->first)
            apply(&value, change_of(key, at));
        if (!value_is(&value, found, expires))
            continue;
        before |= at < least;
        if (at < least)
            continue;
        value_clear(&last);
        value_copy(&last, &value);
        number = at;
        right = true;
    }
    value_clear(&value);
    if (!right)
        return text_of("%s has %s, of %zu bytes, expiry %" PRId64 ": changes safe %" PRIu64
                       ", answered %" PRIu64 ", sent %" PRIu64 ", known from %" PRIu64,
                       key->name, before ? "an older value" : "a value that it never had", found->len,
                       expires, key->safe, key->acked, key->issued, key->first);
    key->tip = last.length;
    if (lost) {
        settle_lost(key, &last);
        return NULL;
    }
    key->acked = key->issued = number;
    value_clear(&last);
    return NULL;
}
