/*
 * owned_cache_set.c - One set of the table of entries. Who changes a set works on a copy of it and writes
 * that back word by word, since searches read it meanwhile. No round trips, no allocations.
 */
#include "tree/owned_cache_set.h"

#include <assert.h>

#define HITS   OWNED_META_HITS
#define BUSY   16u  /* a write to the key is under way */
#define LINK   32u  /* a link stands between key and value */
#define BARE   64u  /* a shortcut: there is no value */
#define RECENT 128u /* found since a search for something to go came by */

/* After so many inserts for each entry that fits, hits are halved: what was popular long ago goes in the end.
 */
#define HALVE_AFTER 8u

void owned_set_shape_init(struct owned_set_shape *shape, const struct format_layout *layout,
                          uint32_t link_bytes)
{
    assert(link_bytes <= OWNED_LINK_MAX);
    *shape = (struct owned_set_shape){.key_varies = layout->geometry.key_kind == FORMAT_KEY_VARIABLE,
                                      .value_varies = layout->geometry.value_variable,
                                      .key_bytes = layout->geometry.key_bytes,
                                      .value_bytes = layout->geometry.value_bytes,
                                      .link_bytes = link_bytes,
                                      .rough = layout->geometry.content == FORMAT_CONTENT_STORE};
}

/* What an entry with these flags takes in the body. */
static uint32_t entry_size(const struct owned_set_shape *shape, uint32_t key, uint32_t value, uint8_t meta)
{
    return key + shape->key_varies + (meta & LINK ? shape->link_bytes : 0) +
           (meta & BARE ? 0 : value + shape->value_varies);
}

/* ---- what lies where, in a copy ---- */

struct place {
    uint32_t number, at, key_at, key_length, link_at, value_at, value_length, end;
};

/* The entry that begins at `at`; false if the bytes say that it ends beyond the set: they are of no one
 * state.
 */
static bool place_at(const struct owned_set_shape *shape, const struct owned_set *set, uint32_t number,
                     uint32_t at, struct place *place)
{
    uint8_t meta = set->meta[number];
    bool value_varies = shape->value_varies && !(meta & BARE);
    place->number = number;
    place->at = at;
    if (at + shape->key_varies + value_varies > OWNED_SET_BODY)
        return false;
    place->key_length = shape->key_varies ? set->body[at++] : shape->key_bytes;
    place->value_length = meta & BARE ? 0 : value_varies ? set->body[at++] : shape->value_bytes;
    place->key_at = at;
    place->link_at = at + place->key_length;
    place->value_at = place->link_at + (meta & LINK ? shape->link_bytes : 0);
    place->end = place->value_at + place->value_length;
    return place->end <= OWNED_SET_BODY;
}

static bool place_holds(const struct owned_set *set, const struct place *place, struct format_key key)
{
    return place->key_length == key.length && !memcmp(set->body + place->key_at, key.bytes, key.length);
}

static uint8_t tag_of(uint64_t hash)
{
    return (uint8_t)(hash >> 56);
}

/* A set that is locked, or a copy of one state: looks for a key. */
static bool find(const struct owned_set_shape *shape, const struct owned_set *set, struct format_key key,
                 uint64_t hash, struct place *place)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < set->count; i++) {
        bool sound = place_at(shape, set, i, at, place);
        assert(sound);
        (void)sound;
        if (set->tags[i] == tag_of(hash) && place_holds(set, place, key))
            return true;
        at = place->end;
    }
    return false;
}

/* What of meta tells whether an entry was found since replacement looked at it last. Hits that are counted in
 * rough steps stay for longer than that. */
static uint8_t looked(const struct owned_set_shape *shape)
{
    return shape->rough ? RECENT : HITS;
}

/* ---- searches: without the latch ---- */

static void count_hit(struct owned_set *set, const struct owned_set_shape *shape, uint32_t number,
                      uint8_t meta, uint32_t random)
{
    uint8_t hits = meta & HITS;
    if (shape->rough)
        hits = owned_hits_more(hits, random);
    else
        hits = (uint8_t)(hits + (hits < HITS));
    uint8_t more = (uint8_t)((meta & ~HITS) | hits | RECENT);
    /* A hint, which may be lost or hit another entry that has come to this place; flags stay as they are,
     * since the whole byte must still be what was read. */
    if (more != meta)
        atomic_swap_relaxed(&set->meta[number], &meta, more);
}

/* The bytes from `from` to `to` of the body, into the copy, with whole words around them. */
static void fetch(const struct owned_set *set, struct owned_set *copy, uint32_t from, uint32_t to)
{
    from &= ~7u;
    to = (to + 7u) & ~7u;
    atomic_copy_from(copy->body + from, set->body + from, to - from);
}

bool owned_set_find(struct owned_set *set, const struct owned_set_shape *shape, struct format_key key,
                    uint64_t hash, struct owned_entry *entry, enum owned_entry_found *found)
{
    struct owned_set copy;
    struct place place = {0};
    uint32_t version = seqlock_read(&set->latch);
    bool varies = shape->key_varies || shape->value_varies, body = false;
    *found = OWNED_ENTRY_NONE;
    entry->lines = 1;
    atomic_copy_from(&copy, set, 64);
    if (version & 1u || copy.count > OWNED_SET_ENTRIES)
        return false;
    for (uint32_t i = 0, at = 0; i < copy.count; i++) {
        bool candidate = copy.tags[i] == tag_of(hash);
        if (varies && !body) { /* only the lengths in the body tell where an entry begins */
            bool any = memchr(copy.tags, tag_of(hash), copy.count) != NULL;
            if (!any)
                break;
            fetch(set, &copy, 0, OWNED_SET_BODY);
            entry->lines = OWNED_SET_BYTES / 64;
            body = true;
        }
        if (!place_at(shape, &copy, i, at, &place))
            return false;
        at = place.end;
        if (!candidate)
            continue;
        if (!body) {
            fetch(set, &copy, place.at, place.end);
            entry->lines++;
        }
        if (!place_holds(&copy, &place, key))
            continue;
        entry->linked = copy.meta[i] & LINK;
        if (entry->linked)
            memcpy(entry->link, copy.body + place.link_at, shape->link_bytes);
        if (copy.meta[i] & BUSY) {
            *found = OWNED_ENTRY_BUSY;
        } else if (copy.meta[i] & BARE) {
            *found = OWNED_ENTRY_SHORTCUT;
        } else {
            entry->length = place.value_length;
            memcpy(entry->value, copy.body + place.value_at, place.value_length);
            *found = OWNED_ENTRY_VALUE;
        }
        entry->hits = copy.meta[i] & HITS;
        entry->cold = !(copy.meta[i] & looked(shape));
        break;
    }
    if (!seqlock_same(&set->latch, version))
        return false;
    if (*found != OWNED_ENTRY_NONE && !entry->uncounted)
        count_hit(set, shape, place.number, copy.meta[place.number], entry->random);
    return true;
}

/* ---- changes: on a copy, with the latch held ---- */

static void load(const struct owned_set *set, struct owned_set *copy)
{
    atomic_copy_from(copy, set, sizeof *copy);
}

static void store(struct owned_set *set, const struct owned_set *copy)
{
    /* All but the latch. */
    atomic_copy_to((uint8_t *)set + 4, (const uint8_t *)copy + 4, 60 + ((copy->used + 7u) & ~7u));
}

static void take_out(struct owned_set *copy, const struct place *place)
{
    uint32_t size = place->end - place->at, behind = copy->count - place->number - 1u;
    memmove(copy->body + place->at, copy->body + place->end, copy->used - place->end);
    memmove(copy->tags + place->number, copy->tags + place->number + 1, behind);
    memmove(copy->meta + place->number, copy->meta + place->number + 1, behind);
    copy->used = (uint16_t)(copy->used - size);
    copy->count--;
}

/* Behind the others; there is room. */
static void append(const struct owned_set_shape *shape, struct owned_set *copy, uint8_t tag, uint8_t meta,
                   struct format_key key, const uint8_t *link, struct format_key value)
{
    uint8_t *at = copy->body + copy->used;
    assert(copy->count < OWNED_SET_ENTRIES &&
           copy->used + entry_size(shape, key.length, value.length, meta) <= OWNED_SET_BODY);
    if (shape->key_varies)
        *at++ = (uint8_t)key.length;
    if (shape->value_varies && !(meta & BARE))
        *at++ = (uint8_t)value.length;
    memcpy(at, key.bytes, key.length);
    at += key.length;
    if (meta & LINK) {
        memcpy(at, link, shape->link_bytes);
        at += shape->link_bytes;
    }
    if (!(meta & BARE) && value.length) {
        memcpy(at, value.bytes, value.length);
        at += value.length;
    }
    copy->tags[copy->count] = tag;
    copy->meta[copy->count++] = meta;
    copy->used = (uint16_t)(at - copy->body);
}

/* Writes an entry anew, with other flags and another value: it goes behind the others. There is room. */
static void rewrite(const struct owned_set_shape *shape, struct owned_set *copy, const struct place *place,
                    uint8_t meta, struct format_key value)
{
    uint8_t head[FORMAT_KEY_MAX + OWNED_LINK_MAX], tag = copy->tags[place->number];
    memcpy(head, copy->body + place->key_at, place->value_at - place->key_at);
    take_out(copy, place);
    append(shape, copy, tag, meta, (struct format_key){head, place->key_length}, head + place->key_length,
           value);
}

#define NO_ENTRY OWNED_SET_ENTRIES

/* The entry that was hit least, of those with all the flags `wanted`, but for one (or NO_ENTRY); from a place
 * on that varies. False: there is none. */
static bool least(const struct owned_set_shape *shape, const struct owned_set *copy, uint8_t wanted,
                  uint32_t except, struct place *place)
{
    uint32_t best = NO_ENTRY, start = copy->count ? copy->inserts % copy->count : 0, at = 0;
    for (uint32_t j = 0; j < copy->count; j++) {
        uint32_t i = start + j < copy->count ? start + j : start + j - copy->count;
        if (i == except || copy->meta[i] & BUSY || (copy->meta[i] & wanted) != wanted)
            continue;
        if (best == NO_ENTRY || (copy->meta[i] & HITS) < (copy->meta[best] & HITS))
            best = i;
    }
    for (uint32_t i = 0; best != NO_ENTRY && i <= best; i++, at = place->end)
        place_at(shape, copy, i, at, place);
    return best != NO_ENTRY;
}

static bool fits(const struct owned_set *copy, uint32_t size)
{
    return copy->count < OWNED_SET_ENTRIES && copy->used + size <= OWNED_SET_BODY;
}

/* Counts the insert; from time to time all hits are halved. */
static void age(const struct owned_set_shape *shape, struct owned_set *copy)
{
    uint32_t period = HALVE_AFTER * (copy->count ? copy->count : 1);
    if (++copy->inserts < period && copy->inserts < UINT8_MAX)
        return;
    copy->inserts = 0;
    for (uint32_t i = 0; i < copy->count; i++) {
        uint8_t hits = copy->meta[i] & HITS;
        hits = shape->rough ? owned_hits_half(hits) : hits / 2;
        copy->meta[i] = (uint8_t)((copy->meta[i] & ~HITS) | hits);
    }
}

/* Dinomo: a value that was not used since the last search becomes a shortcut. */
static bool demote(const struct owned_set_shape *shape, struct owned_set *copy)
{
    for (unsigned round = 0; round < 2; round++) {
        struct place place = {0};
        for (uint32_t i = 0, at = 0; i < copy->count; i++, at = place.end) {
            uint8_t meta = copy->meta[i];
            place_at(shape, copy, i, at, &place);
            if (meta & (BARE | BUSY) || !(meta & LINK) || place.end == place.value_at)
                continue;
            if (meta & RECENT) {
                copy->meta[i] = meta & (uint8_t)~RECENT;
                continue;
            }
            rewrite(shape, copy, &place, meta | BARE, (struct format_key){0});
            return true;
        }
    }
    return false;
}

/* Makes room for so many bytes; false if it cannot. */
static bool make_room(const struct owned_set_shape *shape, struct owned_set *copy,
                      const struct owned_put *put, uint32_t size, struct owned_put_result *result)
{
    struct place place = {0};
    if (size > OWNED_SET_BODY)
        return false;
    if (!fits(copy, size)) {
        result->counted = copy->count;
        for (uint32_t i = 0; i < copy->count; i++)
            result->cold += !(copy->meta[i] & looked(shape));
        for (uint32_t i = 0; i < copy->count && shape->rough; i++)
            copy->meta[i] &= (uint8_t)~RECENT;
    }
    while (!fits(copy, size)) {
        bool dac = put->replacement == OWNED_REPLACE_DAC;
        if (dac && copy->count < OWNED_SET_ENTRIES && demote(shape, copy)) {
            result->demoted++;
            continue;
        }
        if (!(dac && least(shape, copy, BARE, NO_ENTRY, &place)) && !least(shape, copy, 0, NO_ENTRY, &place))
            return false; /* all are busy */
        take_out(copy, &place);
        result->evicted++;
    }
    return true;
}

/* So many hits, which came in rough steps, as this index counts. */
static uint8_t hits_as(const struct owned_set_shape *shape, uint8_t rough)
{
    uint32_t hits = shape->rough ? rough : owned_hits_count(rough);
    return (uint8_t)(hits < HITS ? hits : HITS);
}

static uint8_t with_hits(uint8_t meta, uint8_t hits)
{
    return (meta & HITS) < hits ? (uint8_t)((meta & ~HITS) | hits) : meta;
}

/* An entry that is there gets the value, if it has one. */
static void revalue(const struct owned_set_shape *shape, struct owned_set *copy, const struct place *place,
                    uint8_t meta, struct format_key value)
{
    if (meta & BARE) {
        copy->meta[place->number] = meta;
    } else if (place->value_length == value.length) {
        copy->meta[place->number] = meta;
        if (value.length)
            memcpy(copy->body + place->value_at, value.bytes, value.length);
    } else if (copy->used - place->value_length + value.length <= OWNED_SET_BODY) {
        rewrite(shape, copy, place, meta, value);
    } else {
        take_out(copy, place); /* it has grown too long to stay */
    }
}

void owned_set_put(struct owned_set *set, const struct owned_set_shape *shape, const struct owned_put *put,
                   uint64_t hash, struct owned_put_result *result)
{
    struct owned_set copy;
    struct place place = {0};
    const uint8_t hits = hits_as(shape, put->hits);
    load(set, &copy);
    if (find(shape, &copy, put->key, hash, &place)) {
        if (copy.meta[place.number] & BUSY)
            return;
        revalue(shape, &copy, &place, with_hits(copy.meta[place.number], hits), put->value);
        result->done = true;
        store(set, &copy);
        return;
    }
    uint8_t meta = put->link ? LINK : 0;
    uint32_t size = entry_size(shape, put->key.length, put->value.length, meta);
    if (put->bare || (put->replacement == OWNED_REPLACE_DAC && !fits(&copy, size))) {
        meta |= BARE; /* a miss brings a shortcut; values only while there is room */
        size = entry_size(shape, put->key.length, 0, meta);
    }
    age(shape, &copy);
    result->done = make_room(shape, &copy, put, size, result);
    if (result->done)
        append(shape, &copy, tag_of(hash), with_hits(meta, hits), put->key, put->link, put->value);
    store(set, &copy);
}

bool owned_set_promote(struct owned_set *set, const struct owned_set_shape *shape,
                       const struct owned_put *put, uint64_t hash, double miss, uint32_t *evicted)
{
    struct owned_set copy;
    struct place place, victim;
    load(set, &copy);
    if (!find(shape, &copy, put->key, hash, &place) || !(copy.meta[place.number] & BARE) ||
        copy.meta[place.number] & BUSY)
        return false;
    uint8_t meta = copy.meta[place.number] & (uint8_t)~BARE;
    uint32_t size = put->value.length + shape->value_varies, hits = meta & HITS;
    double penalty = 0;
    while (copy.used + size > OWNED_SET_BODY) {
        if (!least(shape, &copy, BARE, place.number, &victim))
            return false;
        penalty += (copy.meta[victim.number] & HITS) * (miss - 1);
        take_out(&copy, &victim);
        ++*evicted;
        if (!find(shape, &copy, put->key, hash, &place))
            return false;
    }
    if (*evicted && hits <= penalty) {
        *evicted = 0;
        return false; /* nothing was written back */
    }
    rewrite(shape, &copy, &place, meta, put->value);
    store(set, &copy);
    return true;
}

void owned_set_busy(struct owned_set *set, const struct owned_set_shape *shape, struct format_key key,
                    uint64_t hash)
{
    struct owned_set copy;
    struct place place = {0};
    load(set, &copy);
    if (!find(shape, &copy, key, hash, &place))
        return;
    copy.meta[place.number] |= BUSY;
    store(set, &copy);
}

/* An entry gets a link that had none: it is put anew, behind the others, and keeps its hits. */
static void relink(const struct owned_set_shape *shape, struct owned_set *copy, const struct place *place,
                   uint8_t meta, struct format_key key, struct format_key value, const uint8_t *link)
{
    const struct owned_put put = {.replacement = OWNED_REPLACE_LEAST};
    struct owned_put_result result = {0};
    uint8_t tag = copy->tags[place->number];
    take_out(copy, place);
    if (make_room(shape, copy, &put, entry_size(shape, key.length, value.length, meta | LINK), &result))
        append(shape, copy, tag, meta | LINK, key, link, value);
}

bool owned_set_settle(struct owned_set *set, const struct owned_set_shape *shape, struct format_key key,
                      uint64_t hash, const struct format_key *value, const uint8_t *link)
{
    struct owned_set copy;
    struct place place = {0};
    load(set, &copy);
    if (!find(shape, &copy, key, hash, &place))
        return false;
    uint8_t meta = copy.meta[place.number] & (uint8_t)~BUSY;
    if (!value) {
        take_out(&copy, &place);
    } else if (link && !(meta & LINK)) {
        relink(shape, &copy, &place, meta, key, *value, link);
    } else {
        if (link)
            memcpy(copy.body + place.link_at, link, shape->link_bytes);
        revalue(shape, &copy, &place, meta, *value);
    }
    store(set, &copy);
    return true;
}

static bool in_spans(struct format_key key, const struct owned_span *spans, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (format_key_compare(key, spans[i].lower) >= 0 &&
            (!spans[i].has_upper || format_key_compare(key, spans[i].upper) < 0))
            return true;
    return false;
}

uint32_t owned_set_drop(struct owned_set *set, const struct owned_set_shape *shape,
                        const struct owned_span *spans, uint32_t count)
{
    struct owned_set copy;
    struct place place = {0};
    uint32_t dropped = 0;
    load(set, &copy);
    for (uint32_t i = 0, at = 0; i < copy.count;) {
        place_at(shape, &copy, i, at, &place);
        struct format_key key = {copy.body + place.key_at, place.key_length};
        if (in_spans(key, spans, count)) {
            take_out(&copy, &place);
            dropped++;
            continue;
        }
        at = place.end;
        i++;
    }
    if (dropped)
        store(set, &copy);
    return dropped;
}

/* ---- when the table is resized ---- */

/* Moves an entry behind those of another copy. */
static void move(const struct owned_set_shape *shape, struct owned_set *from, const struct place *place,
                 struct owned_set *to)
{
    append(shape, to, from->tags[place->number], from->meta[place->number],
           (struct format_key){from->body + place->key_at, place->key_length}, from->body + place->link_at,
           (struct format_key){from->body + place->value_at, place->value_length});
    take_out(from, place);
}

void owned_set_split(struct owned_set *set, struct owned_set *other, const struct owned_set_shape *shape,
                     bool (*goes)(const void *context, uint64_t hash), const void *context)
{
    struct owned_set copy, moved;
    struct place place = {0};
    load(set, &copy);
    load(other, &moved);
    assert(!moved.count && !moved.used);
    for (uint32_t i = 0, at = 0; i < copy.count;) {
        place_at(shape, &copy, i, at, &place);
        if (goes(context, format_key_hash((struct format_key){copy.body + place.key_at, place.key_length}))) {
            move(shape, &copy, &place, &moved);
            continue;
        }
        at = place.end;
        i++;
    }
    store(other, &moved);
    store(set, &copy);
}

uint32_t owned_set_merge(struct owned_set *set, struct owned_set *other, const struct owned_set_shape *shape)
{
    struct owned_set copy, from;
    struct place place = {0};
    load(set, &copy);
    load(other, &from);
    /* The least hit of both go first, until what is left fits into one. */
    uint32_t lost = 0;
    while (copy.count + from.count > OWNED_SET_ENTRIES || copy.used + from.used > OWNED_SET_BODY) {
        struct place mine = {0}, theirs = {0};
        bool has_mine = least(shape, &copy, 0, NO_ENTRY, &mine);
        bool has_theirs = least(shape, &from, 0, NO_ENTRY, &theirs);
        if (!has_mine && !has_theirs)
            break; /* all are busy */
        if (has_theirs && (!has_mine || (from.meta[theirs.number] & HITS) <= (copy.meta[mine.number] & HITS)))
            take_out(&from, &theirs);
        else
            take_out(&copy, &mine);
        lost++;
    }
    while (from.count) {
        bool sound = place_at(shape, &from, 0, 0, &place);
        assert(sound);
        (void)sound;
        if (fits(&copy, place.end)) {
            move(shape, &from, &place, &copy);
        } else { /* it is busy: who writes it finds no entry any more, and leaves none */
            take_out(&from, &place);
            lost++;
        }
    }
    store(set, &copy);
    store(other, &from);
    return lost;
}
