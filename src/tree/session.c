/*
 * session.c - The objects of tree.h, a session's buffers, and what its operations count: restarts and
 * refusals. No round trips.
 */
#include "tree/session.h"

#include <stdlib.h>
#include <string.h>

#include "base/atomic.h"
#include "base/membarrier.h"
#include "base/task.h"
#include "tree/access.h"
#include "tree/announce.h"
#include "tree/cache.h"
#include "tree/exchanging.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/merging.h"
#include "tree/selectors.h"
#include "tree/walk.h"

/* ---- life ---- */

int tree_compute_create(struct tree_compute **out, struct fabric *fabric,
                        const struct tree_switches *switches, struct error *error)
{
    *out = NULL;
    struct tree_compute *compute = calloc(1, sizeof *compute);
    if (!compute)
        return error_set(error, BANYAN_ENOMEM, "no memory for a compute node");
    compute->switches = *switches;
    homes_init(&compute->homes, fabric_capabilities(fabric)->compute_id);
    compute->locks = tree_lock_table_create();
    compute->owned_access = tree_access_in_place(fabric, switches) ? &tree_access_direct : &tree_access_owned;
    compute->membarrier = membarrier_register();
    int status = pool_create(&compute->pool, fabric, (enum pool_combine)switches->combine, error);
    if (!status && !compute->locks)
        status = error_set(error, BANYAN_ENOMEM, "no memory for a compute node's lock table");
    if (!status)
        status = tree_selectors_create(&compute->walks, fabric, switches->walks, 0, "a compute node's walks",
                                       error);
    if (!status)
        status = tree_merges_create(&compute->merges, fabric, switches, error);
    if (!status)
        status = tree_exchanges_create(&compute->exchanges, fabric, switches, error);
    if (status) {
        tree_compute_destroy(compute);
        return status;
    }
    *out = compute;
    return 0;
}

void tree_compute_destroy(struct tree_compute *compute)
{
    if (!compute)
        return;
    if (compute->locks)
        tree_lock_table_destroy(compute->locks);
    pool_destroy(compute->pool);
    tree_selectors_destroy(compute->walks);
    tree_selectors_destroy(compute->merges);
    tree_selectors_destroy(compute->exchanges);
    free(compute);
}

struct pool *tree_compute_pool(const struct tree_compute *compute)
{
    return compute->pool;
}

int tree_session_create(struct tree_session **out, struct tree_compute *compute, struct pool_worker *worker,
                        struct error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return error_set(error, BANYAN_ENOMEM, "no memory for a session");
    pool_session_init(&(*out)->pool, worker, &(*out)->stats.cost);
    (*out)->compute = compute;
    (*out)->access = &tree_access_one_sided;
    (*out)->waiter.session = *out;
    (*out)->looks = 64;
    spinlock_lock(&compute->lock);
    (*out)->next = compute->sessions;
    if (compute->sessions)
        compute->sessions->before = *out;
    compute->sessions = *out;
    spinlock_unlock(&compute->lock);
    return 0;
}

static void session_unlist(struct tree_session *session)
{
    struct tree_compute *compute = session->compute;
    spinlock_lock(&compute->lock);
    if (session->before)
        session->before->next = session->next;
    else
        compute->sessions = session->next;
    if (session->next)
        session->next->before = session->before;
    spinlock_unlock(&compute->lock);
}

void tree_session_add_announcer(struct tree_session *session, struct tree_announcer *announcer)
{
    announcer->next = session->announcers;
    session->announcers = announcer;
}

void tree_session_remove_announcer(struct tree_session *session, const struct tree_announcer *announcer)
{
    struct tree_announcer **at = &session->announcers;
    while (*at != announcer)
        at = &(*at)->next;
    *at = announcer->next;
    if (session->withdrawn == announcer)
        session->withdrawn = NULL;
}

void tree_session_destroy(struct tree_session *session)
{
    if (!session)
        return;
    session_unlist(session);
    free(session->image.bytes);
    free(session->scratch);
    free(session->spare);
    free(session->wide);
    free(session->apply);
    free(session->merging);
    free(session->walk_request);
    free(session->walk_reply);
    free(session->batch);
    free(session->list);
    free(session->order);
    free(session->entries);
    free(session->keys);
    free(session->gather);
    tree_passing_free(session->passing);
    unmerged_run_free(&session->run);
    tree_drop_abandon(session);
    free(session);
}

struct pool_session *tree_session_pool(struct tree_session *session)
{
    return &session->pool;
}

const struct error *tree_session_error(const struct tree_session *session)
{
    return &session->pool.error;
}

const struct tree_stats *tree_session_stats(const struct tree_session *session)
{
    return &session->stats;
}

void tree_session_stats_reset(struct tree_session *session)
{
    session->stats = (struct tree_stats){0};
}

/* ---- errors ---- */

int tree_invalid(struct tree_session *session, gaddr node, const char *what)
{
    return ++session->invalid <= TREE_PATIENCE ? TREE_RESTART : pool_corrupt(&session->pool, node, what);
}

int tree_restart(struct tree_session *session, gaddr node)
{
    session->stats.retries++;
    if (++session->restarts > TREE_RESTARTS_MAX)
        return pool_corrupt(&session->pool, node, "the tree leads here in circles");
    if (session->restarts > 64) /* another session is at work there: wait for it */
        task_sleep(session->restarts > 1024 ? 1000000 : 10000);
    else if (session->restarts > 8)
        task_yield();
    return 0;
}

int tree_astray(struct tree_session *session, gaddr node)
{
    if (++session->astray > TREE_ASTRAY_MAX)
        return pool_corrupt(&session->pool, node, "the way to a key leads here, where the key cannot lie");
    return tree_restart(session, node);
}

/* ---- buffers and arguments ---- */

int tree_reserve(struct tree_session *session, uint8_t **buffer, uint32_t *capacity, uint32_t bytes)
{
    if (*capacity >= bytes)
        return 0;
    uint8_t *larger = aligned_alloc(64, (bytes + 63u) & ~63u);
    if (!larger)
        return pool_fail_memory(&session->pool);
    memset(larger, 0, bytes);
    free(*buffer);
    *buffer = larger;
    *capacity = bytes;
    return 0;
}

int tree_reserve_wide(struct tree_session *session, size_t bytes)
{
    if (session->wide_capacity >= bytes)
        return 0;
    uint8_t *larger = aligned_alloc(64, bytes);
    if (!larger)
        return pool_fail_memory(&session->pool);
    free(session->wide);
    session->wide = larger;
    session->wide_capacity = bytes;
    return 0;
}

int tree_buffers(struct tree_session *session, const struct tree *tree)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    uint32_t larger =
        geometry->leaf_bytes > geometry->internal_bytes ? geometry->leaf_bytes : geometry->internal_bytes;
    if (session->image.capacity >= larger && session->spare_capacity >= larger)
        return 0;
    int status = tree_reserve(session, &session->image.bytes, &session->image.capacity, larger);
    if (!status)
        status = tree_reserve(session, &session->scratch, &session->scratch_capacity, larger);
    if (!status)
        status = tree_reserve(session, &session->spare, &session->spare_capacity, larger);
    return status;
}

int tree_begin(struct tree_session *session, struct tree *tree)
{
    pool_session_begin(&session->pool);
    session->restarts = session->invalid = session->walked = session->astray = session->aways = 0;
    session->image.address = GADDR_NULL;
    session->entry_hits = 0;
    session->leaf_value.known = false;
    session->stats.operations++;
    task_charge(TASK_WORK_OPERATION, 1);
    return tree_buffers(session, tree);
}

void tree_charge_bucket(const struct format_layout *layout)
{
    struct task *task = task_self();
    if (!task->ops->charge)
        return;
    task->ops->charge(task, TASK_WORK_LEAF, layout->bucket_slots);
    task->ops->charge(task, TASK_WORK_CHECK, layout->bucket_slots);
}

void tree_charge_leaf(const struct tree_session *session, const struct format_layout *layout)
{
    task_charge(TASK_WORK_LEAF, layout->slots);
    if (session->compute->switches.node_check)
        tree_charge_checksum(layout);
}

void tree_charge_checksum(const struct format_layout *layout)
{
    task_charge(TASK_WORK_CHECKSUM, layout->geometry.leaf_bytes / TASK_LINE_BYTES);
}

int tree_key_check(struct tree_session *session, struct tree *tree, const void *key, size_t length)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    if (!key && length)
        return pool_fail(&session->pool, BANYAN_EINVAL, "index %s: the key is a null pointer", tree->name);
    if (geometry->key_kind == FORMAT_KEY_FIXED && length != geometry->key_bytes)
        return pool_fail(&session->pool, BANYAN_EKEYSIZE, "index %s: a key has %u bytes, this one %zu",
                         tree->name, geometry->key_bytes, length);
    if (!length || length > geometry->key_bytes)
        return pool_fail(&session->pool, BANYAN_EKEYSIZE, "index %s: a key has 1 to %u bytes, this one %zu",
                         tree->name, geometry->key_bytes, length);
    return 0;
}

bool tree_value_fits(const struct tree *tree, size_t length)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    return geometry->value_variable ? length <= geometry->value_bytes : length == geometry->value_bytes;
}

int tree_value_check(struct tree_session *session, struct tree *tree, const void *value, size_t length)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    if (!value && length)
        return pool_fail(&session->pool, BANYAN_EINVAL, "index %s: the value is a null pointer", tree->name);
    if (!tree_value_fits(tree, length))
        return pool_fail(&session->pool, BANYAN_EVALUESIZE, "index %s: a value has %s%u bytes, this one %zu",
                         tree->name, geometry->value_variable ? "at most " : "", geometry->value_bytes,
                         length);
    return 0;
}

/* A link led to a memory node that was removed, and so is older than the removal (R6): forgets all that leads
 * there. False: it led there too often; a link in the pool does. */
static bool away_forgotten(struct tree_session *session, struct tree *tree)
{
    const uint16_t node = session->pool.away;
    struct format_link root;
    uint8_t level;
    if (++session->aways > TREE_ASTRAY_MAX)
        return false;
    if (tree_root_known(tree, &root, &level) && gaddr_node(root.address) == node)
        tree_root_forget(tree);
    tree_cache_forget_node(tree->cache, session->pool.epoch, node);
    pool_session_begin(&session->pool);
    return true;
}

bool tree_again(struct tree_session *session, struct tree *tree, int *status)
{
    if (*status == BANYAN_ECORRUPT && session->pool.away != POOL_ANY_NODE && tree &&
        away_forgotten(session, tree)) {
        *status = 0;
        session->stats.retries++;
        session->image.address = GADDR_NULL;
        return true;
    }
    /* A row that moves away is merged under one incarnation, which does not come back. */
    const bool over = *status == BANYAN_EFENCED && session->drains;
    if (over || tree_rights_stale(session, status) || !pool_session_again(&session->pool, status))
        return false;
    session->stats.retries++;
    session->image.address = GADDR_NULL;
    return true;
}
