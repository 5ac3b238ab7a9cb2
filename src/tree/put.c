/*
 * put.c - see put.h.
 */
#include "tree/put.h"

#include <string.h>

#include "tree/access.h"
#include "tree/announce.h"
#include "tree/in_place.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/session.h"
#include "tree/turn.h"

/* Keys that must ascend before anything is made of it. */
#define ASCENDING_LEAST 8u
/* Where a leaf gets fewer than so many they are better located together, in a batch. */
#define SHARED_LEAST 4u
/* So many are put under one latch at most, some microseconds. */
#define SHARED_MOST 8u

void tree_put_replaced(struct tree_item *item, const void *old, size_t length)
{
    if (!item->old)
        return;
    item->existed = old;
    item->old_length = length;
    if (length)
        memcpy(item->old, old, length);
}

enum tree_verdict tree_put_change(void *context, const void *old, size_t old_length, void *value,
                                  size_t *length)
{
    struct tree_item *item = context;
    tree_put_replaced(item, old, old_length);
    if (item->length)
        memcpy(value, item->value, item->length);
    *length = item->length;
    return TREE_PUT;
}

void tree_put_placed(void *context)
{
    struct tree_item *item = context;
    item->placed(item->placed_context, item);
}

int tree_put_single(struct tree_session *session, struct tree *tree, struct tree_item *item,
                    struct tree_run *run)
{
    struct tree_exchange exchange = {.key = item->key,
                                     .key_length = item->key_length,
                                     .value = item->value ? item->value : "",
                                     .length = item->length};
    bool asked;
    int status = tree_value_check(session, tree, item->value, item->length);
    if (status)
        return status;
    tree_session_ahead(session, item->ahead, item->ahead && !item->ahead_done);
    session->merge_met = item->met;
    status = tree_change(session, tree, tree_put_change, item->placed ? tree_put_placed : NULL, item,
                         &exchange, run, &asked);
    item->ahead_done |= tree_session_ahead_done(session);
    if (!status && asked)
        tree_put_replaced(item, exchange.existed ? exchange.old : NULL, exchange.old_length);
    if (!status && !tree_session_replaced(session))
        tree_put_replaced(item, NULL, 0);
    return status;
}

int tree_put(struct tree_session *session, struct tree *tree, struct tree_item *item)
{
    item->ahead_done = false;
    return item->status = tree_put_single(session, tree, item, NULL);
}

/* ---- ascending keys ---- */

static struct format_key item_key(const struct tree_item *item)
{
    return (struct format_key){item->key, (uint32_t)item->key_length};
}

/* How many of the items, from the first on, are plain puts whose keys ascend. */
static size_t ascending(struct tree_session *session, struct tree *tree, const struct tree_item *items,
                        size_t count)
{
    size_t length = 0;
    for (; length < count; length++) {
        const struct tree_item *item = &items[length];
        if (length && format_key_compare(item_key(item - 1), item_key(item)) >= 0)
            break;
        if (item->ahead || item->leaf || tree_key_check(session, tree, item->key, item->key_length) ||
            tree_value_check(session, tree, item->value, item->length))
            break;
    }
    return length;
}

/* How many of them, from the first on, are of ranges of this process's that are put in place. Within
 * tree_rights_enter_all. */
static uint32_t owned(struct tree_session *session, struct tree *tree, const struct tree_item *items,
                      uint32_t count)
{
    uint32_t first = 0;
    while (first < count && tree_rights_switch(session, tree, item_key(&items[first])) == TREE_OWNED &&
           !session->logged && !session->unkept && session->access->enter)
        first++;
    if (first < count) /* the access and the right are those of the first ones again */
        (void)tree_rights_switch(session, tree, item_key(items));
    return first;
}

/* False: it is left to a batch, whatever keeps it from being located. */
static bool locate(struct tree_session *session, struct tree *tree, struct format_key key,
                   struct format_link *leaf)
{
    struct tree_path path;
    uint32_t frames;
    if (tree_locate_cached(session, tree, key, leaf, &frames)) {
        tree_locate_count(session, frames);
        return true;
    }
    if (tree_locate(session, tree, key, false, 0, &path))
        return false;
    *leaf = path.link;
    return true;
}

/* Those of the first one's leaf, in place, if they are so many at least; returns how many. All of a call are
 * made together, so they count as two round trips: *counted says that they were. */
static uint32_t put_shared(struct tree_session *session, struct tree *tree, struct tree_item *items,
                           uint32_t count, uint32_t least, bool *full, bool *counted)
{
    struct format_link leaf;
    uint32_t done = 0;
    *full = false;
    if (tree_begin(session, tree))
        return 0;
    session->stats.operations--; /* each item counts by itself */
    if (!locate(session, tree, item_key(items), &leaf))
        return 0;
    tree_rights_enter_all(session, tree);
    count = owned(session, tree, items, count);
    if (count >= least) {
        const uint64_t trips = session->stats.cost.round_trips;
        done = tree_in_place_run(session, tree, leaf, items, count, least, tree_put_change, full);
        session->stats.cost.round_trips = trips + (done && !*counted ? 2 : 0);
        *counted |= done > 0;
    }
    tree_rights_leave(session);
    session->stats.operations += done;
    for (uint32_t i = 0; i < done; i++)
        items[i].status = 0;
    return done;
}

/* The first one's leaf is full: it is split, and what is appended behind the first goes with it. Returns how
 * many are done. */
static size_t put_split(struct tree_session *session, struct tree *tree, struct tree_item *items,
                        size_t count)
{
    struct tree_run run = {items + 1, count - 1, 0};
    const int status = items->status = tree_put_single(session, tree, items, &run);
    session->stats.operations += run.taken;
    for (size_t i = 1; i <= run.taken; i++) {
        items[i].status = status;
        tree_put_replaced(&items[i], NULL, 0); /* they are greater than all keys that there were */
    }
    return 1 + run.taken;
}

static uint32_t shared_least(uint32_t count)
{
    return count < SHARED_LEAST ? count : SHARED_LEAST;
}

size_t tree_put_ascending(struct tree_session *session, struct tree *tree, struct tree_item *items,
                          size_t count)
{
    size_t done = 0;
    bool many = false, counted = false;
    if (!session->compute->owned_access->find || session->through || count < ASCENDING_LEAST)
        return 0;
    const size_t length = ascending(session, tree, items, count);
    if (length < ASCENDING_LEAST)
        return 0;
    for (size_t i = 0; i < length; i++)
        items[i].ahead_done = false;
    while (done < length) {
        const size_t left = length - done;
        const uint32_t most = left < SHARED_MOST ? (uint32_t)left : SHARED_MOST;
        bool full;
        tree_turn_announce(session, NULL);
        /* Behind many of a leaf there may be a few more. */
        const uint32_t shared =
            put_shared(session, tree, items + done, most, many ? 1 : shared_least(most), &full, &counted);
        done += shared;
        if (full)
            done += put_split(session, tree, items + done, length - done);
        else if (!shared && !many)
            break;
        many = shared == SHARED_MOST;
    }
    return done;
}
