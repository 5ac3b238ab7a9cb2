/* keys.c - see keys.h. */
#include "keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fabric/local.h"

#define BEGIN_MS                                                                                             \
    (UINT64_C(1) << 45) /* far behind the clock of the machine, by which a loading leaves out what expired   \
                         */
#define FAR_MS (UINT64_C(1) << 50)

uint64_t keys_below(struct keys *keys, uint64_t bound)
{
    return random_below(&keys->random, bound);
}

void keys_good(int status, const struct error *error)
{
    if (status)
        fail_msg("%s: %s", error_name(status), error->text);
}

void keys_check(struct store_session *session, int status)
{
    if (status)
        fail_msg("%s: %s", error_name(status), tree_session_error(store_session_tree(session))->text);
}

/* ---- what is known ---- */

static bool there(const struct keys *keys, const struct version *version)
{
    return version->bytes && (!version->expires || version->expires > keys->now_ms);
}

const struct version *keys_last(const struct keys *keys, unsigned number)
{
    const struct known *known = &keys->known[number];
    const struct version *version = &known->versions[known->count - 1];
    return there(keys, version) ? version : NULL;
}

/* What an operation that is about to begin may leave; `bytes` NULL: nothing. */
static void wish(struct keys *keys, unsigned number, const uint8_t *bytes, size_t length, uint64_t expires)
{
    struct known *known = &keys->known[number];
    struct version version = {.length = length, .expires = expires};
    assert_true(known->count < VERSIONS);
    if (bytes) {
        version.bytes = malloc(length + 1);
        assert_non_null(version.bytes);
        memcpy(version.bytes, bytes, length);
    }
    known->versions[known->count++] = version;
    known->fresh = true;
    keys->writes++;
}

unsigned keys_floor(const struct keys *keys, unsigned number, const struct feed *feed)
{
    const struct known *known = &keys->known[number];
    for (unsigned i = known->count; i-- > 0;) {
        const struct version *version = &known->versions[i];
        if (version->safe || (feed && version->ticket && feed_safe(feed, version->ticket)))
            return i;
    }
    fail_msg("no version of key %u was ever safe", number);
    return 0;
}

static void forget(struct known *known, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        free(known->versions[i].bytes);
    known->count -= count;
    memmove(known->versions, known->versions + count, known->count * sizeof *known->versions);
}

void keys_trim(struct keys *keys, const struct feed *feed)
{
    for (unsigned i = 0; i < KEYS; i++) {
        forget(&keys->known[i], keys_floor(keys, i, feed));
        keys->known[i].versions[0].safe = true;
    }
}

void keys_settle(struct keys *keys, const struct feed *feed)
{
    keys_trim(keys, feed);
    for (unsigned i = 0; i < KEYS; i++)
        for (unsigned k = 0; k < keys->known[i].count; k++)
            keys->known[i].versions[k].ticket = 0;
}

bool keys_crowded(const struct keys *keys)
{
    for (unsigned i = 0; i < KEYS; i++)
        if (keys->known[i].count + KEYS_AHEAD >= VERSIONS)
            return true;
    return false;
}

/* ---- life ---- */

static uint64_t now(void *context)
{
    return ((struct keys *)context)->now_ms;
}

static struct known *find(struct keys *keys, const void *key, size_t length)
{
    for (unsigned i = 0; i < KEYS; i++)
        if (keys->known[i].length == length && !memcmp(keys->known[i].key, key, length))
            return &keys->known[i];
    fail_msg("a key that no one has: %.*s", (int)length, (const char *)key);
    return NULL;
}

static void changed(void *context, const void *key, size_t length)
{
    struct side *side = context;
    find(side->keys, key, length)->marked = true;
    if (side->keys->changed)
        side->keys->changed(side->keys, &side->writer, key, length);
}

static bool placed(void *context, const void *key, size_t length, const struct store_value *value)
{
    struct side *side = context;
    struct keys *keys = side->keys;
    const bool noted = keys->placed && keys->placed(keys, &side->writer, key, length, value);
    find(keys, key, length)->marked |= noted;
    return noted;
}

static struct store_session *session_open(struct keys *keys, struct place *place, unsigned number)
{
    struct store_session *session;
    struct error error = {0};
    keys_good(tree_session_create(&place->trees[number], keys->compute, keys->worker, &error), &error);
    keys_good(store_session_create(&session, place->store, place->trees[number], &error), &error);
    store_session_seed(session, random_next(&keys->random));
    return session;
}

static void place_open(struct keys *keys, struct place *place)
{
    snprintf(place->name, sizeof place->name, "place-%u", ++keys->made);
    assert_int_equal(store_open(&place->store, keys->tree, place->name, true), 0);
    store_set_clock(place->store, now, keys);
    for (unsigned i = 0; i < SIDES; i++) {
        place->sessions[i] = session_open(keys, place, i);
        store_session_set_changed(place->sessions[i], changed, &keys->sides[i]);
        store_session_set_placed(place->sessions[i], placed);
    }
    place->reader = session_open(keys, place, SIDES);
    place->scanner = session_open(keys, place, SIDES + 1);
}

/* Lengths from one byte to the longest, alike in the beginning, so that bounds between keys matter. */
static void name_keys(struct keys *keys, size_t longest)
{
    for (unsigned i = 0; i < KEYS; i++) {
        struct known *known = &keys->known[i];
        memset(known->key, i % 3 == 0 ? 0xff : 'k', sizeof known->key);
        known->length = i % 3 == 1 ? 1 + i : longest - i / 12;
        known->key[known->length - 1] = (uint8_t)(i % 4 ? i : 0xff - i);
        known->versions[0].safe = true;
        known->count = 1;
    }
}

void keys_open(struct keys *keys, uint64_t seed, unsigned sides)
{
    const struct memory_options memory = {.pool_bytes = UINT64_C(192) << 20};
    struct tree_switches switches;
    struct error error = {0};
    *keys = (struct keys){.side_count = sides, .now_ms = BEGIN_MS};
    random_seed(&keys->random, seed);
    keys_good(memory_node_create(&keys->memory, &memory, &error), &error);
    const struct fabric_target *target = memory_node_target(keys->memory);
    keys->fabric = fabric_local_create(&target, 1, 1, &error);
    keys_good(keys->fabric ? 0 : error.code, &error);
    tree_switches_preset(&switches, "banyan", &error);
    switches.cache_bytes = 8u << 20;
    switches.ownership = seed % 4 ? TREE_OWNERSHIP_ALL : TREE_OWNERSHIP_OFF; /* in place, and by lists */
    keys_good(tree_compute_create(&keys->compute, keys->fabric, &switches, &error), &error);
    keys_good(pool_worker_create(&keys->worker, tree_compute_pool(keys->compute), &error), &error);
    keys_good(tree_session_create(&keys->tree, keys->compute, keys->worker, &error), &error);
    assert_int_equal(tree_format(keys->tree), 0);
    for (unsigned i = 0; i < SIDES; i++)
        keys->sides[i].keys = keys;
    place_open(keys, &keys->places[0]);
    place_open(keys, &keys->places[1]);
    keys->live = &keys->places[0];
    keys->back = &keys->places[1];
    name_keys(keys, store_key_max(keys->live->reader));
    keys->bytes = malloc((size_t)2 * VALUE_MAX);
    assert_non_null(keys->bytes);
}

static void place_close(struct place *place)
{
    for (unsigned i = 0; i < SIDES; i++)
        store_session_destroy(place->sessions[i]);
    store_session_destroy(place->reader);
    store_session_destroy(place->scanner);
    for (unsigned i = 0; i < SIDES + 2; i++)
        tree_session_destroy(place->trees[i]);
    store_close(place->store);
}

void keys_close(struct keys *keys)
{
    for (unsigned i = 0; i < KEYS; i++)
        forget(&keys->known[i], keys->known[i].count);
    place_close(&keys->places[0]);
    place_close(&keys->places[1]);
    tree_session_destroy(keys->tree);
    pool_worker_destroy(keys->worker);
    tree_compute_destroy(keys->compute);
    fabric_close(keys->fabric);
    memory_node_destroy(keys->memory);
    free(keys->bytes);
}

/* ---- operations ---- */

static size_t length_draw(struct keys *keys)
{
    const uint64_t kind = keys_below(keys, 100);
    if (kind < 50)
        return keys_below(keys, 20);
    if (kind < 85 || !keys->longs)
        return keys_below(keys, 3000);
    return kind < 93 ? keys_below(keys, 70000) : keys_below(keys, VALUE_MAX);
}

static size_t bytes_draw(struct keys *keys, uint8_t *bytes)
{
    const size_t length = length_draw(keys);
    const uint64_t seed = random_next(&keys->random);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)random_mix(seed + i / 8);
    return length;
}

static uint64_t expiry_draw(struct keys *keys)
{
    const uint64_t kind = keys_below(keys, 10);
    if (kind < 6)
        return 0;
    return kind < 8 ? FAR_MS + keys_below(keys, 1000) : keys->now_ms + 1 + keys_below(keys, 50);
}

static unsigned key_draw(struct keys *keys)
{
    return (unsigned)keys_below(keys, KEYS);
}

static void op_put(struct keys *keys, struct store_session *session)
{
    const unsigned number = key_draw(keys);
    const struct known *known = &keys->known[number];
    const size_t length = bytes_draw(keys, keys->bytes);
    const uint64_t expires = expiry_draw(keys);
    wish(keys, number, keys->bytes, length, expires);
    keys_check(session, store_put(session, known->key, known->length, keys->bytes, length, expires));
}

/* The bytes are those of the versions, which stay. */
static void op_multi_put(struct keys *keys, struct store_session *session)
{
    struct store_item items[KEYS_AHEAD];
    const unsigned count = 1 + (unsigned)keys_below(keys, keys_below(keys, 4) ? 8 : KEYS_AHEAD - 1);
    const bool longs = keys->longs;
    keys->longs = longs && count < 8;
    for (unsigned i = 0; i < count; i++) {
        const unsigned number = key_draw(keys);
        struct known *known = &keys->known[number];
        const size_t length = bytes_draw(keys, keys->bytes);
        wish(keys, number, keys->bytes, length, expiry_draw(keys));
        const struct version *version = &known->versions[known->count - 1];
        items[i] = (struct store_item){
            .key = known->key,
            .key_length = known->length,
            .value = {.bytes = version->bytes, .length = version->length, .expires = version->expires}};
    }
    keys->longs = longs;
    keys_check(session, store_multi_put(session, items, count));
}

/* More than a read of many keys returns at once (STORE_MULTI_BYTES_MAX). */
static void op_burst(struct keys *keys, struct store_session *session)
{
    for (unsigned i = 0; i < 20; i++) {
        const unsigned number = (i * 7 + key_draw(keys) % 7) % KEYS;
        const struct known *known = &keys->known[number];
        const size_t length = VALUE_MAX - keys_below(keys, 1000);
        memset(keys->bytes, (int)i, length);
        wish(keys, number, keys->bytes, length, 0);
        keys_check(session, store_put(session, known->key, known->length, keys->bytes, length, 0));
    }
}

static void op_delete(struct keys *keys, struct store_session *session)
{
    const unsigned number = key_draw(keys);
    const struct known *known = &keys->known[number];
    const bool was = keys_last(keys, number) != NULL;
    if (was)
        wish(keys, number, NULL, 0, 0);
    const int status = store_delete(session, known->key, known->length);
    assert_int_equal(status, was ? 0 : BANYAN_ENOTFOUND);
}

struct plan {
    enum store_verdict verdict;
    struct store_value value;
    bool adds; /* what it puts are the old bytes, and the value's behind them */
    uint8_t *room;
};

static enum store_verdict decide(void *context, const struct store_value *old, struct store_value *new)
{
    const struct plan *plan = context;
    *new = plan->value;
    if (plan->adds && old) {
        memcpy(plan->room, old->bytes, old->length);
        memcpy(plan->room + old->length, plan->value.bytes, plan->value.length);
        new->bytes = plan->room;
        new->length += old->length;
    }
    return plan->verdict;
}

/* A new value, whatever there was; or one that is made of the old one. */
static void modify_put(struct keys *keys, unsigned number, struct plan *plan)
{
    const struct version *old = keys_last(keys, number);
    uint8_t *added = keys->bytes + VALUE_MAX;
    plan->value.bytes = added;
    plan->value.length = bytes_draw(keys, added);
    plan->value.expires = expiry_draw(keys);
    plan->room = keys->bytes;
    plan->adds = keys_below(keys, 2) && (!old || old->length + plan->value.length <= VALUE_MAX);
    if (plan->adds && old) {
        memcpy(keys->bytes, old->bytes, old->length);
        memcpy(keys->bytes + old->length, added, plan->value.length);
        wish(keys, number, keys->bytes, old->length + plan->value.length, plan->value.expires);
    } else {
        wish(keys, number, added, plan->value.length, plan->value.expires);
    }
}

static void op_modify(struct keys *keys, struct store_session *session)
{
    const unsigned number = key_draw(keys);
    const struct known *known = &keys->known[number];
    const struct version *old = keys_last(keys, number);
    const uint64_t kind = keys_below(keys, 8);
    struct plan plan = {.verdict = STORE_PUT};
    enum store_need need = STORE_NEED_VALUE;
    bool existed = false;
    if (kind == 0) {
        plan.verdict = STORE_KEEP;
        need = keys_below(keys, 2) ? STORE_NEED_VALUE : STORE_NEED_LENGTH;
    } else if (kind == 1) {
        plan.verdict = STORE_REMOVE;
        need = keys_below(keys, 2) ? STORE_NEED_VALUE : STORE_NEED_LENGTH;
        if (old)
            wish(keys, number, NULL, 0, 0);
    } else if (kind < 5 && old) { /* the expiry alone */
        need = STORE_NEED_LENGTH;
        plan.value.expires = expiry_draw(keys);
        if (plan.value.expires != old->expires)
            wish(keys, number, old->bytes, old->length, plan.value.expires);
    } else {
        modify_put(keys, number, &plan);
    }
    keys_check(session, (keys_below(keys, 2) ? store_modify : store_modify_here)(
                            session, known->key, known->length, need, decide, &plan, NULL, &existed));
}

static void op_splice(struct keys *keys, struct store_session *session)
{
    const unsigned number = key_draw(keys);
    const struct known *known = &keys->known[number];
    const struct version *old = keys_last(keys, number);
    const size_t was = old ? old->length : 0;
    const size_t offset = keys_below(keys, 2) ? was : keys_below(keys, was + 500);
    uint8_t *added = keys->bytes + VALUE_MAX;
    const size_t length = 1 + bytes_draw(keys, added + 1);
    const size_t after = offset + length > was ? offset + length : was;
    uint64_t whole;
    if (after > VALUE_MAX - 1)
        return;
    added[0] = 7;
    memset(keys->bytes, 0, after);
    if (was)
        memcpy(keys->bytes, old->bytes, was);
    memcpy(keys->bytes + offset, added, length);
    wish(keys, number, keys->bytes, after, old ? old->expires : 0);
    keys_check(session, store_splice(session, known->key, known->length,
                                     offset == was && keys_below(keys, 2) ? STORE_AT_END : offset, added,
                                     length, &whole));
    assert_int_equal(whole, after);
}

static enum store_verdict aim(void *context, bool existed, uint64_t whole, struct store_edit *edit)
{
    (void)existed;
    *edit = (struct store_edit){.offset = whole / 2, .length = 1};
    return *(const enum store_verdict *)context;
}

static enum store_verdict invert(void *context, const struct store_edit *edit, uint8_t *bytes)
{
    (void)edit;
    bytes[0] = (uint8_t)~bytes[0];
    return *(const enum store_verdict *)context;
}

static void op_edit(struct keys *keys, struct store_session *session)
{
    const unsigned number = key_draw(keys);
    const struct known *known = &keys->known[number];
    const struct version *old = keys_last(keys, number);
    const size_t was = old ? old->length : 0;
    enum store_verdict verdict = keys_below(keys, 4) ? STORE_PUT : STORE_KEEP;
    const struct store_editor editor = {aim, invert, &verdict};
    uint64_t whole;
    bool existed;
    if (verdict == STORE_PUT) {
        memset(keys->bytes, 0, was + 1);
        if (was)
            memcpy(keys->bytes, old->bytes, was);
        keys->bytes[was / 2] = (uint8_t)~keys->bytes[was / 2];
        wish(keys, number, keys->bytes, was ? was : 1, old ? old->expires : 0);
    }
    keys_check(session, store_edit(session, known->key, known->length, &editor, &whole, &existed));
}

static int order(const struct known *left, const struct known *right)
{
    const size_t least = left->length < right->length ? left->length : right->length;
    const int bytes = memcmp(left->key, right->key, least);
    return bytes ? bytes : (left->length > right->length) - (left->length < right->length);
}

static void op_delete_range(struct keys *keys, struct store_session *session)
{
    const struct known *from = &keys->known[key_draw(keys)], *to = &keys->known[key_draw(keys)];
    const struct tree_range range = {
        .from = from->key, .from_length = from->length, .to = to->key, .to_length = to->length};
    uint64_t count, expected = 0;
    for (unsigned i = 0; i < KEYS; i++)
        if (keys_last(keys, i) && order(&keys->known[i], from) >= 0 && order(&keys->known[i], to) <= 0) {
            wish(keys, i, NULL, 0, 0);
            expected++;
        }
    keys_check(session, store_delete_range(session, &range, &count));
    assert_int_equal(count, expected);
}

/* Time goes on, and what has expired is met by readers, and swept up. */
static void op_expire(struct keys *keys, struct store_session *session)
{
    struct store_value value;
    struct store_sweep sweep = {.cursor_length = 0};
    keys->now_ms += keys_below(keys, 40);
    for (unsigned i = 0; i < 4; i++) {
        const unsigned number = key_draw(keys);
        const int status = store_get(session, keys->known[number].key, keys->known[number].length, &value);
        assert_int_equal(status, keys_last(keys, number) ? 0 : BANYAN_ENOTFOUND);
    }
    if (keys_below(keys, 2))
        keys_check(session, store_sweep_step(session, &sweep, 1 + (uint32_t)keys_below(keys, KEYS)));
}

static void operate(struct keys *keys, struct store_session *session)
{
    const uint64_t what = keys_below(keys, 100);
    if (keys->longs && keys_below(keys, 250) == 0)
        op_burst(keys, session);
    else if (what < 30)
        op_put(keys, session);
    else if (what < 42)
        op_delete(keys, session);
    else if (what < 62)
        op_modify(keys, session);
    else if (what < 74)
        op_splice(keys, session);
    else if (what < 80)
        op_edit(keys, session);
    else if (what < 90)
        op_multi_put(keys, session);
    else if (what < 92)
        op_delete_range(keys, session);
    else
        op_expire(keys, session);
}

void keys_step(struct keys *keys)
{
    const unsigned number = (unsigned)keys_below(keys, keys->side_count);
    for (unsigned i = 0; i < KEYS; i++)
        keys->known[i].marked = keys->known[i].fresh = false;
    operate(keys, keys->live->sessions[number]);
    for (unsigned i = 0; i < KEYS; i++) {
        struct known *known = &keys->known[i];
        if (known->fresh && !known->marked)
            fail_msg("key %u was changed, and not marked", i);
        for (unsigned k = known->count; known->fresh && k-- > 0 && !known->versions[k].ticket;)
            if (!known->versions[k].safe)
                known->versions[k].ticket = keys->sides[number].writer.ticket;
    }
    keys->operations++;
}

/* ---- judging ---- */

static bool is(const struct keys *keys, const struct version *version, const struct store_value *value)
{
    if (!there(keys, version) || !value)
        return !there(keys, version) && !value;
    return version->length == value->length && version->expires == value->expires &&
           !memcmp(version->bytes, value->bytes, value->length);
}

void keys_judge(struct keys *keys, struct store_session *session, const struct span spans[KEYS])
{
    uint64_t found = 0, counted;
    for (unsigned i = 0; i < KEYS; i++) {
        const struct known *known = &keys->known[i];
        struct store_value value;
        const int status = store_get(session, known->key, known->length, &value);
        unsigned at = spans[i].from;
        if (status != BANYAN_ENOTFOUND)
            keys_check(session, status);
        while (at <= spans[i].to && !is(keys, &known->versions[at], status ? NULL : &value))
            at++;
        if (at > spans[i].to)
            fail_msg("key %u is none of its versions %u to %u: %s %zu bytes", i, spans[i].from, spans[i].to,
                     status ? "nothing" : "", status ? (size_t)0 : value.length);
        found += !status;
    }
    keys_check(session, store_count(session, &(struct tree_range){.from = NULL}, &counted));
    assert_int_equal(counted, found);
}

void keys_empty(struct keys *keys, struct place *place)
{
    place_close(place);
    assert_int_equal(store_drop(keys->tree, place->name), 0);
    place_open(keys, place);
}

void keys_adopt(struct keys *keys)
{
    struct place *was = keys->live;
    keys->live = keys->back;
    keys->back = was;
    keys_empty(keys, was);
    for (unsigned i = 0; i < KEYS; i++) {
        struct known *known = &keys->known[i];
        struct store_value value;
        const int status = store_get(keys->live->reader, known->key, known->length, &value);
        wish(keys, i, status ? NULL : value.bytes, status ? 0 : value.length, status ? 0 : value.expires);
        forget(known, known->count - 1);
        known->versions[0].safe = true;
    }
}
