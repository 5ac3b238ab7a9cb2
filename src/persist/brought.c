/* brought.c - see brought.h. The lock guards all of it; bytes are copied and hashed without it. */
#include "persist/brought.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/task.h"
#include "format/record.h"
#include "memory/request.h"
#include "persist/places.h"

#define WAITS UINT64_MAX /* the position of a piece that is not in the journal yet */

struct known {
    gaddr address;
    uint64_t hash, position;
    uint64_t until; /* task_now to which one of these may come */
    uint32_t open;  /* so many entries are to come that name it */
    bool old;  /* it stands before the position of a checkpoint: a caller that asks has to bring it again */
    bool gone; /* that position is the journal's beginning */
};

struct persist_brought {
    const struct fabric_target *const *targets; /* borrowed */
    uint16_t count;
    struct spinlock lock;                        /* guards what follows */
    struct places known;                         /* owned; by address and hash */
    struct persist_brought_piece *first, **last; /* owned: they wait */
    size_t waits;                                /* their bytes */
};

struct persist_brought *persist_brought_create(const struct fabric_target *const *targets, uint16_t count)
{
    struct persist_brought *brought = calloc(1, sizeof *brought);
    if (!brought)
        return NULL;
    brought->targets = targets;
    brought->count = count;
    brought->known = (struct places){.key_bytes = 16, .item_bytes = sizeof(struct known)};
    brought->last = &brought->first;
    return brought;
}

static void pieces_free(struct persist_brought_piece *piece)
{
    while (piece) {
        struct persist_brought_piece *next = piece->next;
        free(piece);
        piece = next;
    }
}

void persist_brought_destroy(struct persist_brought *brought)
{
    if (!brought)
        return;
    pieces_free(brought->first);
    places_clear(&brought->known);
    free(brought);
}

/* The lock is held. */
static struct known *known_find(const struct persist_brought *brought, gaddr address, uint64_t hash)
{
    const uint64_t key[2] = {address, hash};
    return places_find(&brought->known, key);
}

/* ---- calls ---- */

static const struct fabric_target *target_of(const struct persist_brought *brought, gaddr address)
{
    return gaddr_node(address) < brought->count ? brought->targets[gaddr_node(address)] : NULL;
}

static bool piece_possible(const struct persist_brought *brought, const struct memory_bring_piece *piece)
{
    const struct fabric_target *target = target_of(brought, piece->staged);
    const uint64_t offset = gaddr_offset(piece->staged);
    if (piece->address == GADDR_NULL || target_of(brought, piece->address) || !piece->length ||
        piece->length > FORMAT_PIECE_MAX)
        return false;
    return piece->staged == GADDR_NULL ||
           (target && offset <= target->pool_bytes && piece->length <= target->pool_bytes - offset);
}

/* A copy of what is staged, which may be any bytes: *taken NULL, and 0: they are others. */
static int piece_copy(const struct persist_brought *brought, const struct memory_bring_piece *piece,
                      struct persist_brought_piece **taken)
{
    struct persist_brought_piece *copy = malloc(sizeof *copy + piece->length);
    *taken = NULL;
    if (!copy)
        return BANYAN_ENOMEM;
    copy->next = NULL;
    copy->address = piece->address;
    copy->hash = piece->hash;
    copy->length = piece->length;
    atomic_copy_from(copy->bytes, target_of(brought, piece->staged)->pool + gaddr_offset(piece->staged),
                     piece->length);
    if (format_record_hash(copy->bytes, copy->length) == copy->hash)
        *taken = copy;
    else
        free(copy);
    return 0;
}

/* The lock is held: an entry is to come. */
static void open_one(struct known *known, uint64_t until)
{
    known->open++;
    if (known->until < until)
        known->until = until;
}

static uint64_t until_of(const struct memory_bring_piece *piece)
{
    const uint32_t asked = piece->hold_ms ? piece->hold_ms : MEMORY_BRING_HOLD_MS;
    return task_now() +
           UINT64_C(1000000) * (asked < MEMORY_BRING_HOLD_MS_MAX ? asked : MEMORY_BRING_HOLD_MS_MAX);
}

/* Whether the journal has the piece, or will; then an entry is to come. */
static bool is_there(struct persist_brought *brought, const struct memory_bring_piece *piece)
{
    const uint64_t until = until_of(piece);
    spinlock_lock(&brought->lock);
    struct known *known = known_find(brought, piece->address, piece->hash);
    const bool there = known && !known->old;
    if (there)
        open_one(known, until);
    spinlock_unlock(&brought->lock);
    return there;
}

/* Owns the piece if it takes it. Another call may have brought the same one since this one looked: what waits
 * is known, and waits once. */
static int piece_add(struct persist_brought *brought, struct persist_brought_piece *piece, uint64_t until,
                     bool *taken)
{
    const uint64_t key[2] = {piece->address, piece->hash};
    int status = 0;
    spinlock_lock(&brought->lock);
    struct known *known = known_find(brought, piece->address, piece->hash);
    const bool there = known && !known->old;
    if (there)
        open_one(known, until);
    else if (brought->waits + piece->length > PERSIST_BROUGHT_WAITS_MAX)
        status = BANYAN_EBUSY;
    else if (!(known = places_put(&brought->known, key)))
        status = BANYAN_ENOMEM;
    *taken = !there && !status;
    if (*taken) {
        known->position = WAITS;
        known->old = known->gone = false;
        open_one(known, until);
        *brought->last = piece;
        brought->last = &piece->next;
        brought->waits += piece->length;
    }
    spinlock_unlock(&brought->lock);
    return status;
}

/* *missing: it is not there, and nothing was staged that is. */
static int piece_bring(struct persist_brought *brought, const struct memory_bring_piece *piece, bool *missing)
{
    struct persist_brought_piece *copy = NULL;
    bool taken;
    *missing = !is_there(brought, piece);
    if (!*missing || piece->staged == GADDR_NULL)
        return 0;
    int status = piece_copy(brought, piece, &copy);
    if (!copy)
        return status;
    status = piece_add(brought, copy, until_of(piece), &taken);
    if (!taken)
        free(copy);
    *missing = status;
    return status;
}

int persist_brought_call(struct persist_brought *brought, const void *request, size_t length, void *reply,
                         size_t *reply_length)
{
    const size_t least = offsetof(struct memory_bring_request, pieces);
    struct memory_bring_request asked;
    struct memory_bring_reply told = {.missing = {0}};
    int status = 0;
    if (length < least || length > sizeof asked)
        return BANYAN_EINVAL;
    memcpy(&asked, request, length);
    if (!asked.count || asked.count > MEMORY_BRING_MAX ||
        length != least + asked.count * sizeof asked.pieces[0])
        return BANYAN_EINVAL;
    for (uint32_t i = 0; i < asked.count; i++)
        if (!piece_possible(brought, &asked.pieces[i]))
            return BANYAN_EINVAL;
    for (uint32_t i = 0; i < asked.count && !status; i++) {
        bool missing;
        status = piece_bring(brought, &asked.pieces[i], &missing);
        told.missing[i / 64] |= (uint64_t)missing << (i % 64);
    }
    memcpy(reply, &told, sizeof told);
    *reply_length = status ? 0 : sizeof told;
    return status;
}

/* ---- the disk's thread ---- */

const struct persist_brought_piece *persist_brought_first(struct persist_brought *brought)
{
    spinlock_lock(&brought->lock);
    const struct persist_brought_piece *first = brought->first;
    spinlock_unlock(&brought->lock);
    return first;
}

void persist_brought_written(struct persist_brought *brought, uint64_t position)
{
    spinlock_lock(&brought->lock);
    struct persist_brought_piece *piece = brought->first;
    assert(piece);
    brought->first = piece->next;
    if (!brought->first)
        brought->last = &brought->first;
    brought->waits -= piece->length;
    struct known *known = known_find(brought, piece->address, piece->hash);
    assert(known && "what waits is known");
    known->position = position;
    spinlock_unlock(&brought->lock);
    free(piece);
}

enum persist_brought_state persist_brought_named(struct persist_brought *brought, gaddr address,
                                                 uint64_t hash)
{
    spinlock_lock(&brought->lock);
    struct known *known = known_find(brought, address, hash);
    enum persist_brought_state state = !known || known->gone      ? PERSIST_BROUGHT_NOT
                                       : known->position == WAITS ? PERSIST_BROUGHT_WAITS
                                                                  : PERSIST_BROUGHT_WRITTEN;
    if (state == PERSIST_BROUGHT_WRITTEN && known->open)
        known->open--;
    spinlock_unlock(&brought->lock);
    return state;
}

/* A piece that waits comes behind the position by itself. One that is open holds the journal once, and for as
 * long as its entry may still come: in a frame that the last pass has not looked for. */
static bool is_kept(const struct known *known, uint64_t looked)
{
    return known->position == WAITS || (known->open && (!known->old || looked < known->until));
}

/* The lock is held. Pieces that are gone make room; without memory for that they stay, and count for nothing.
 */
static void sweep(struct persist_brought *brought)
{
    struct places kept = {.key_bytes = brought->known.key_bytes, .item_bytes = brought->known.item_bytes};
    const struct known *known;
    uint64_t at = 0;
    while ((known = places_next(&brought->known, &at))) {
        struct known *copy = known->gone ? NULL : places_put(&kept, known);
        if (copy)
            *copy = *known;
        else if (!known->gone)
            break;
    }
    places_clear(known ? &kept : &brought->known);
    if (!known)
        brought->known = kept;
}

uint64_t persist_brought_forget(struct persist_brought *brought, uint64_t position, uint64_t looked)
{
    struct known *known;
    uint64_t at = 0;
    spinlock_lock(&brought->lock);
    while ((known = places_next(&brought->known, &at))) {
        known->gone = !is_kept(known, looked);
        known->old = known->position != WAITS;
        if (!known->gone && known->position < position)
            position = known->position;
    }
    sweep(brought);
    spinlock_unlock(&brought->lock);
    return position;
}
