/*
 * in_place.c - see in_place.h.
 */
#include "tree/in_place.h"

#include "pool/pool.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/session.h"

/* One change, under the latch. The session's image has what of the leaf was copied, and the new slot. */
struct plain {
    struct tree_session *session;
    struct tree *tree;
    struct tree_in_place *place;
    struct format_header header;
    struct format_slot slot; /* where the key is, if found */
    bool found;
    uint32_t seed;
    uint32_t offset, length; /* of the image's bytes that the leaf gets; length 0: none */
    gaddr freed;             /* block of a key that is deleted */
};

static void plain_init(struct plain *plain, struct tree_session *session, struct tree *tree,
                       struct tree_in_place *place)
{
    plain->session = session;
    plain->tree = tree;
    plain->place = place;
    plain->length = plain->offset = 0;
    plain->freed = GADDR_NULL;
    place->full = false;
}

/* Whether the leaf is live. */
static bool plain_live(struct plain *plain)
{
    const struct format_layout *layout = &plain->tree->layout;
    uint8_t *image = plain->session->image.bytes;
    plain->session->image.address = GADDR_NULL;
    format_header_copy(layout, image, plain->place->spot.bytes);
    const bool live = format_node_verdict(layout, image, plain->place->point.link, plain->tree->index, 0,
                                          &plain->header) == FORMAT_LIVE;
    plain->seed = format_slot_seed(plain->header.tag, plain->header.version);
    return live;
}

/* Whether the live leaf is the key's, and says whether it has the key. */
static bool plain_find(struct plain *plain)
{
    uint8_t *image = plain->session->image.bytes;
    enum format_verdict verdict = format_point_verdict_in_place(
        &plain->place->point, plain->place->spot.bytes, image, &plain->header, &plain->slot);
    plain->found = verdict == FORMAT_HIT;
    return plain->found || verdict == FORMAT_MISS;
}

static bool plain_put(struct plain *plain, struct format_key value)
{
    const struct format_layout *layout = &plain->tree->layout;
    uint8_t *image = plain->session->image.bytes;
    struct format_key key = plain->place->point.key, lower = plain->header.lower;
    if (!tree_value_fits(plain->tree, value.length))
        return false;
    uint32_t number = plain->slot.number;
    gaddr block = GADDR_NULL;
    if (plain->found) {
        block = plain->slot.block;
    } else {
        number = format_bucket_free_slot(layout, image, &plain->place->point.bucket, plain->seed);
        plain->place->full = number == UINT32_MAX;
        if (plain->place->full || format_slot_needs_block(layout, lower, key))
            return false;
    }
    format_slot_write(layout, image, number, plain->seed, lower, block, key, value);
    plain->offset = layout->slot_offset[number];
    plain->length = layout->slot_bytes;
    return true;
}

static bool plain_delete(struct plain *plain)
{
    const struct format_layout *layout = &plain->tree->layout;
    const struct format_bucket *bucket = &plain->place->point.bucket;
    uint8_t *image = plain->session->image.bytes;
    atomic_copy_from(image + bucket->offset, plain->place->spot.bytes + bucket->offset, bucket->bytes);
    if (tree_only_entry(layout, image, plain->seed, bucket->first, bucket->count, plain->slot.number))
        return false; /* the leaf may have to go */
    format_slot_clear(layout, image, plain->slot.number, plain->seed);
    plain->offset = layout->slot_offset[plain->slot.number];
    plain->length = 4;
    plain->freed = plain->slot.block;
    return true;
}

static bool plain_decide(struct plain *plain, tree_modify_function *function, void *context)
{
    uint8_t value[FORMAT_VALUE_MAX + 1];
    size_t length = 0;
    const struct format_key old = plain->found ? plain->slot.value : (struct format_key){0};
    switch (function(context, old.bytes, old.length, value, &length)) {
    case TREE_PUT:
        return plain_put(plain, (struct format_key){value, (uint32_t)length});
    case TREE_DELETE:
        return !plain->found || plain_delete(plain);
    case TREE_KEEP:
        break;
    }
    return true;
}

bool tree_in_place_find(struct tree_session *session, struct tree *tree, struct format_link link,
                        struct format_key key, bool change, struct tree_in_place *place)
{
    const struct tree_access *access = session->access;
    if (!access->find(session, tree, link.address, change, &place->spot))
        return false;
    format_point_set(&place->point, &tree->layout, link, tree->index, key);
    access->prefetch(&place->spot, &place->point.bucket);
    return true;
}

bool tree_in_place_hit(struct tree_session *session, struct tree *tree, const struct tree_in_place *place,
                       struct format_slot *slot)
{
    session->image.address = GADDR_NULL;
    if (!format_point_hit_in_place(&place->point, place->spot.bytes, session->image.bytes, slot))
        return false;
    session->access->count_read(session, tree);
    session->cached = false; /* as after a list: nothing that could be lost lies between (O2) */
    tree_charge_bucket(&tree->layout);
    return true;
}

int tree_in_place_change(struct tree_session *session, struct tree *tree, struct tree_in_place *place,
                         tree_modify_function *function, tree_placed_function *placed, void *context)
{
    const struct tree_access *access = session->access;
    struct plain plain;
    plain_init(&plain, session, tree, place);
    if (!access->enter(session, &place->spot))
        return TREE_BY_LOCK;
    if (!plain_live(&plain) || !plain_find(&plain) || !plain_decide(&plain, function, context)) {
        access->abandon(&place->spot);
        return TREE_BY_LOCK;
    }
    access->leave(session, tree, &place->spot, session->image.bytes, plain.offset, plain.length, placed,
                  context);
    tree_charge_bucket(&tree->layout);
    session->cached = false; /* as above */
    if (plain.freed != GADDR_NULL)
        pool_block_release(&session->pool, plain.freed, place->point.key.length);
    return 0;
}

/* Whether the item's put is done, under the latch. */
static bool plain_item(struct plain *plain, struct tree_item *item, tree_modify_function *function)
{
    struct tree_session *session = plain->session;
    if (!plain_find(plain) || !plain_decide(plain, function, item))
        return false;
    session->access->store(session, plain->tree, &plain->place->spot, session->image.bytes, plain->offset,
                           plain->length);
    if (item->placed)
        item->placed(item->placed_context, item);
    tree_charge_bucket(&plain->tree->layout);
    return true;
}

uint32_t tree_in_place_run(struct tree_session *session, struct tree *tree, struct format_link link,
                           struct tree_item *items, uint32_t count, uint32_t least,
                           tree_modify_function *function, bool *full)
{
    const struct tree_access *access = session->access;
    const struct format_key far = {items[least - 1].key, (uint32_t)items[least - 1].key_length};
    struct format_key key = {items->key, (uint32_t)items->key_length};
    struct tree_in_place place;
    struct plain plain;
    uint32_t done = 0;
    *full = false;
    if (!tree_in_place_find(session, tree, link, key, true, &place))
        return 0;
    plain_init(&plain, session, tree, &place);
    if (!access->enter(session, &place.spot))
        return 0;
    const bool live = plain_live(&plain) && !format_header_side(&plain.header, far);
    while (live && plain_item(&plain, &items[done], function) && ++done < count) {
        key = (struct format_key){items[done].key, (uint32_t)items[done].key_length};
        format_point_set(&place.point, &tree->layout, link, tree->index, key);
    }
    *full = place.full;
    if (done)
        access->done(&place.spot);
    else
        access->abandon(&place.spot);
    session->cached = false; /* as above */
    return done;
}
