/*
 * sample.c - a random key. Walks from the root down cached frames, an entry of each at random, and reads the
 * leaf that it comes to: one round trip a try where the frames are cached.
 *
 * A walk prefers what hangs under small nodes. So each candidate has a weight, the number of choices on its
 * way, and is taken with a chance of weight over the greatest weight met of late (rejection): then every key
 * is about equally likely, whatever the nodes' fill. The root's choices count for nothing, for all walks
 * share them. What a walk chooses is a range of keys, not a leaf: a leaf that has split since the frame was
 * fetched is no less likely for it.
 */
#include <string.h>

#include "base/epoch.h"
#include "base/random.h"
#include "base/task.h"
#include "tree/cache.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/session.h"

/* Walks until the first candidate is taken whatever its weight; until the greatest weight is believed. */
#define TRIES_MAX    64u
#define TRIES_LEARN  8u
#define FORGET_SHARE 0.01 /* of the greatest weight, with each candidate that is refused */

struct sample {
    struct tree_session *session;
    struct tree *tree;
    struct format_key_copy from, to; /* of the range that was chosen */
    bool bounded;
    double weight;
    uint64_t met;
    struct format_key_copy key;
};

static bool keep_one_of_all(void *context, const void *key, size_t key_length, const void *value,
                            size_t length)
{
    struct sample *sample = context;
    (void)value;
    (void)length;
    if (!random_below(&sample->session->sample_random, ++sample->met))
        format_key_store(&sample->key, (struct format_key){key, (uint32_t)key_length});
    return true;
}

/* One of the range's keys, each equally likely; sample->met is 0 if there is none. */
static int pick(struct sample *sample, uint64_t limit)
{
    struct tree_range range = {
        .from = sample->from.bytes, .from_length = sample->from.length, .to_open = true, .limit = limit};
    if (sample->bounded) {
        range.to = sample->to.bytes;
        range.to_length = sample->to.length;
    }
    sample->met = 0;
    sample->session->stats.operations--; /* the sample counts, its parts do not */
    return tree_scan(sample->session, sample->tree, &range, keep_one_of_all, sample);
}

/* In an epoch: chooses an entry of the frame. */
static void choose(struct sample *sample, const struct tree_frame *frame, bool root, struct format_link *link)
{
    const struct format_layout *layout = &sample->tree->layout;
    uint32_t entry = (uint32_t)random_below(&sample->session->sample_random, frame->count);
    bool last = entry + 1 == frame->count;
    struct tree_key_room room;
    format_key_store(&sample->from, tree_frame_key(layout, frame, entry, &room));
    sample->bounded = !last || frame->has_upper;
    if (sample->bounded)
        format_key_store(&sample->to, tree_frame_key(layout, frame, entry + 1, &room));
    if (!root)
        sample->weight *= frame->count;
    *link = tree_frame_link(frame, entry);
}

/* Chooses the range of a leaf. TREE_RESTART: the way down was stale, or led into a gap. */
static int walk(struct sample *sample)
{
    struct tree_session *session = sample->session;
    struct tree *tree = sample->tree;
    struct format_link link, root;
    uint8_t level;
    int status = tree_root_get(session, tree, &root, &level);
    if (status)
        return status;
    link = root;
    sample->weight = 1;
    sample->bounded = false;
    format_key_store(&sample->from, format_key_least(&tree->layout));
    struct tree_frame *passing = NULL;
    for (bool fetched = false; level > 0;) {
        epoch_enter(session->pool.epoch);
        struct tree_frame *frame = passing ? passing : tree_cache_find(tree->cache, link);
        bool found = frame && frame->level == level;
        if (found) {
            tree_cache_touch(tree->cache, frame);
            choose(sample, frame, format_link_equal(link, root), &link);
        }
        epoch_leave(session->pool.epoch);
        if (passing)
            tree_frame_free(passing);
        passing = NULL;
        if (found) {
            session->stats.cache_hits++;
            fetched = false;
            level--;
            if (link.address == GADDR_NULL)
                return TREE_RESTART;
            continue;
        }
        if (fetched) /* evicted at once */
            return TREE_RESTART;
        status = tree_frame_fetch(session, tree, link, level, &passing);
        if (status == TREE_RESTART)
            tree_root_forget(tree); /* or below it: the scan that follows finds out and forgets the frame */
        if (status)
            return status;
        fetched = true;
    }
    return 0;
}

/* A descent with a key corrects what is stale on the way. */
static int correct(struct sample *sample)
{
    struct tree_path path;
    struct tree_session *session = sample->session;
    int status = tree_restart(session, sample->tree->root_word);
    if (!status)
        status = tree_locate(session, sample->tree, format_key_of(&sample->from), false, 0, &path);
    tree_again(session, sample->tree, &status);
    return status;
}

/* Whether the candidate is to be taken; learns from its weight. */
static bool accept(struct sample *sample)
{
    struct tree_session *session = sample->session;
    double weight = sample->weight * (double)sample->met;
    if (weight > session->sample_weight)
        session->sample_weight = weight;
    if (random_chance(&session->sample_random, weight / session->sample_weight))
        return true;
    session->sample_weight *= 1 - FORGET_SHARE;
    return false;
}

static void start(struct tree_session *session, struct tree *tree)
{
    if (session->sample_tree == tree)
        return;
    if (!session->sample_tree)
        random_seed(&session->sample_random,
                    random_mix(task_now()) + fabric_capabilities(session->pool.fabric)->compute_id);
    session->sample_tree = tree;
    session->sample_weight = 0;
}

/* *found with sample->key, if one of so many walks came to a key. */
static int try_walks(struct sample *sample, bool *found)
{
    struct tree_session *session = sample->session;
    unsigned learn = session->sample_weight > 0 ? 0 : TRIES_LEARN;
    struct format_key_copy candidate;
    *found = false;
    for (unsigned attempt = 0; attempt < TRIES_MAX; attempt++) {
        int status = walk(sample);
        if (tree_again(session, sample->tree, &status))
            continue;
        if (status == TREE_RESTART)
            status = correct(sample);
        else if (!status)
            status = pick(sample, 0);
        else
            return status;
        if (status)
            return status;
        if (!sample->met)
            continue;
        bool accepted = accept(sample);
        candidate = sample->key;
        *found = true;
        sample->met = 0;
        if (accepted && attempt >= learn)
            break;
    }
    if (*found)
        sample->key = candidate;
    return 0;
}

int tree_sample(struct tree_session *session, struct tree *tree, void *key, size_t *length)
{
    struct sample sample = {.session = session, .tree = tree};
    bool found;
    int status = tree_begin(session, tree);
    if (status)
        return status;
    start(session, tree);
    status = try_walks(&sample, &found);
    /* So sparse that no walk met one: the next key after the last walk's place, or the first of all. */
    for (unsigned round = 0; round < 2 && !status && !found; round++) {
        sample.bounded = false;
        status = pick(&sample, 1);
        found = sample.met;
        format_key_store(&sample.from, format_key_least(&tree->layout));
    }
    if (status)
        return pool_not_done(&session->pool, status);
    if (!found)
        return pool_fail(&session->pool, BANYAN_ENOTFOUND, "index %s: it is empty", tree->name);
    size_t capacity = *length;
    *length = sample.key.length;
    if (capacity < sample.key.length)
        return pool_fail(&session->pool, BANYAN_EKEYSIZE, "index %s: the key has %u bytes, the buffer %zu",
                         tree->name, sample.key.length, capacity);
    memcpy(key, sample.key.bytes, sample.key.length);
    return 0;
}
