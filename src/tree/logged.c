/*
 * logged.c - see logged.h and logging.h; the rules are L1 to L4 of docs/internals/log.md.
 */
#include "tree/logged.h"

#include <assert.h>
#include <string.h>

#include "base/task.h"
#include "format/record.h"
#include "format/value.h"
#include "tree/announce.h"
#include "tree/index.h"
#include "tree/leaf.h"
#include "tree/locate.h"
#include "tree/owned_cache_use.h"

void tree_compute_set_log(struct tree_compute *compute, const struct tree_log *log, void *context)
{
    compute->log = *log;
    compute->log_context = context;
}

void tree_compute_log(const struct tree_compute *compute, struct tree_log *log, void **context)
{
    *log = compute->log;
    *context = compute->log_context;
}

void tree_set_values(struct tree *tree, const struct tree_values *values, void *context)
{
    tree->values = *values;
    tree->values_context = context;
}

void tree_session_ahead(struct tree_session *session, const struct fabric_command *writes, uint32_t count)
{
    session->ahead = writes;
    session->ahead_count = count;
    session->ahead_done = false;
}

void tree_session_at_hand(struct tree_session *session, const struct fabric_command *writes, uint32_t count)
{
    session->at_hand = writes;
    session->at_hand_count = count;
}

const void *tree_session_find_at_hand(const struct tree_session *session, gaddr address, uint32_t length)
{
    for (uint32_t i = 0; i < session->at_hand_count; i++)
        if (session->at_hand[i].address == address && session->at_hand[i].length == length)
            return session->at_hand[i].write.data;
    return NULL;
}

bool tree_session_ahead_done(const struct tree_session *session)
{
    return session->ahead_done;
}

bool tree_session_replaces_later(const struct tree_session *session)
{
    return session->right != TREE_SHARED && session->logged;
}

bool tree_session_replaced(const struct tree_session *session)
{
    return session->replaced;
}

struct unmerged *tree_log_table(struct tree *tree)
{
    return atomic_load_acquire(&tree->rights->unmerged); /* acquire: as it was made */
}

struct unmerged *tree_log_table_make(struct tree *tree)
{
    struct unmerged *table = tree_log_table(tree);
    if (table)
        return table;
    struct unmerged *fresh = unmerged_create(tree->layout.geometry.value_bytes);
    if (!fresh)
        return NULL;
    spinlock_lock(&tree->compute->lock);
    table = tree->rights->unmerged;
    if (!table) {
        atomic_store_release(&tree->rights->unmerged, fresh);
        table = fresh;
        fresh = NULL;
    }
    spinlock_unlock(&tree->compute->lock);
    unmerged_destroy(fresh);
    return table;
}

bool tree_session_has_log(const struct tree_session *session)
{
    return session->compute->log.open != NULL;
}

bool tree_logs(const struct tree_session *session)
{
    /* A process without a log owns such a row only until another takes it, and writes through. */
    return session->right == TREE_OWNED && session->logged && !session->through && session->compute->log.open;
}

bool tree_merge_void(const struct tree_session *session, struct tree *tree, struct format_key key)
{
    struct unmerged *table = session->through ? tree_log_table(tree) : NULL;
    return table && unmerged_void(table, key);
}

enum unmerged_found tree_logged_find(struct tree_session *session, struct tree *tree, struct format_key key,
                                     uint8_t *value, uint32_t *length)
{
    struct unmerged *table = tree_log_table(tree);
    enum unmerged_found found = UNMERGED_NONE;
    session->entry_hits = 0;
    if (table)
        found = unmerged_find(table, key, value, length, tree_owned_draw(session), &session->entry_hits);
    if (found != UNMERGED_NONE) {
        session->cached = true;
        task_charge(TASK_WORK_LINE, 2);
    }
    return found;
}

/* ---- a change, with the key's latch held ---- */

struct logging {
    struct tree_session *session;
    struct tree *tree;
    struct unmerged *table;
    struct unmerged_node *node;
    const struct tree_logged_change *change;
    struct tree_logged *logged;
    bool doubt;    /* a doubtful value is logged again */
    uint16_t home; /* the memory node whose stream gets the entry, if it does not say itself (home_of) */
    uint16_t sent; /* whose stream has got it */
    bool leafed;   /* what is to be logged may be in the leaf already */
    gaddr brought; /* the record of which the pieces were brought last; and where to */
    uint16_t brought_node;
    /* what the leaf has of the key */
    bool read, found;
    uint8_t value[FORMAT_VALUE_MAX];
    size_t length;
};

/* Where the record lies that the value refers to, else the leaf. */
static int home_find(struct logging *logging)
{
    struct tree_session *session = logging->session;
    struct tree_path path;
    if (session->ahead_count) {
        logging->home = gaddr_node(session->ahead[0].address);
        return 0;
    }
    int status = tree_locate(session, logging->tree, logging->change->key, false, 0, &path);
    if (!status)
        logging->home = gaddr_node(path.link.address);
    return status;
}

/* P3. Where memory nodes copy their streams to disks, an entry comes to the disk to which its record does,
 * whoever has written that: another process may have, elsewhere than its leaf lies. */
static uint16_t home_of(const struct logging *logging, const struct format_key *value, uint16_t otherwise)
{
    const struct pool_session *pool = &logging->session->pool;
    struct format_value decoded;
    if (!value || !format_value_decode(value->bytes, value->length, &decoded) || !decoded.record)
        return otherwise;
    const uint16_t node = gaddr_node(decoded.reference.address);
    return pool_on_disk(pool, node) ? node : otherwise;
}

/* What the log carries to the disks of other memory nodes (L8). */
void tree_logged_record(const struct tree *tree, struct tree_logged_entry *entry)
{
    struct format_value decoded;
    if (entry->value.length != FORMAT_REFERENCE_BYTES ||
        tree->layout.geometry.content != FORMAT_CONTENT_STORE ||
        !format_value_decode(entry->value.bytes, entry->value.length, &decoded) || !decoded.record)
        return;
    entry->in_pieces = decoded.reference.room;
    entry->record = decoded.reference.address;
    entry->record_bytes = format_record_block_bytes(entry->key.length, &decoded.reference);
}

static void entry_of(const struct logging *logging, const struct format_key *value,
                     struct tree_logged_entry *entry)
{
    const struct tree_session *session = logging->session;
    *entry = (struct tree_logged_entry){.index = logging->tree->index,
                                        .epoch = session->log_epoch,
                                        .key = logging->change->key,
                                        .value = value ? *value : (struct format_key){0},
                                        .ahead = session->ahead,
                                        .ahead_count = session->ahead_count,
                                        .again = logging->doubt};
    tree_logged_record(logging->tree, entry);
}

/* As in latch_take. */
static int pending_await(struct logging *logging)
{
    struct tree_session *session = logging->session;
    session->compute->log.lead(session->compute->log_context, session);
    unmerged_await(logging->table, logging->node);
    return TREE_RESTART;
}

/* Whether the leaf may name what this value of the table names: then it must be known what the leaf names,
 * and has to be released, before another value takes the place of this one. */
static bool value_shared(const struct logging *logging, const struct unmerged_look *look)
{
    const struct tree *tree = logging->tree;
    const struct tree_values *values = &tree->values;
    if (look->found != UNMERGED_VALUE || !values->shared)
        return false;
    return values->shared(tree->values_context, look->value, look->length) ||
           (look->leafed && values->names(tree->values_context, look->value, look->length));
}

/* What a task that waits for the latch leaves to its holder. */
struct work {
    struct tree_session *session;
    const struct tree_logged_change *change;
    struct tree_logged *logged;
};
/* Of those that wait for the latch, half go into a frame with one's own change: while that frame is on its
 * way the next one's tasks are there, and those of the last one come back. If all went along none would be.
 * At least COMBINE_LEAST, so that a few are one frame; at most COMBINE_MAX. */
#define COMBINE_LEAST 16u
#define COMBINE_MAX   96u

/* Does the work of the task that would get the latch next, if it goes into the frame as well. */
static bool combine_one(struct logging *logging, struct unmerged_frame *frame)
{
    const struct tree_compute *compute = logging->session->compute;
    const struct work *work = unmerged_next_work(logging->table, logging->node);
    struct unmerged_look look;
    struct tree_logged_entry entry;
    uint8_t value[FORMAT_VALUE_MAX + 1];
    size_t length = 0;
    if (!work || work->session->pool.incarnation != logging->session->pool.incarnation)
        return false;
    unmerged_look(logging->table, logging->node, &look);
    const uint8_t *old = look.found == UNMERGED_VALUE ? look.value : NULL;
    if (value_shared(logging, &look))
        return false;
    enum tree_verdict verdict =
        work->change->function(work->change->context, old, old ? look.length : 0, value, &length);
    const struct format_key put = {value, (uint32_t)length};
    if (verdict == TREE_KEEP || (verdict == TREE_DELETE && !old) ||
        (verdict == TREE_PUT && !tree_value_fits(logging->tree, length)))
        return false; /* its own task decides again, once it has the latch */
    const struct format_key *now = verdict == TREE_PUT ? &put : NULL;
    entry_of(logging, now, &entry);
    entry.ahead_count = 0;
    if (entry.in_pieces || home_of(logging, now, logging->sent) != logging->sent ||
        !compute->log.fits(compute->log_context, frame, &entry))
        return false;
    uint32_t index = compute->log.add(compute->log_context, work->session, frame, &entry, work->logged);
    unmerged_write(logging->table, logging->node, now, frame, index, &work->logged->write);
    return true;
}

/* Flat combining: so a key that many write is bounded by the CPU, not by handing the latch over. */
static uint32_t combine(struct logging *logging, struct unmerged_frame *frame,
                        struct unmerged_wait *waits[COMBINE_MAX])
{
    uint32_t count = 0, most = unmerged_waits(logging->table, logging->node) / 2;
    if (most < COMBINE_LEAST)
        most = COMBINE_LEAST;
    else if (most > COMBINE_MAX)
        most = COMBINE_MAX;
    while (count < most && combine_one(logging, frame))
        waits[count++] = unmerged_take_work(logging->table, logging->node);
    return count;
}

/* Once for a value: its entry may have to wait for room in a frame more than once. */
static int pieces_bring(struct logging *logging, struct tree_logged_entry *entry)
{
    const struct tree_compute *compute = logging->session->compute;
    if (!entry->in_pieces)
        return 0;
    if (entry->record != logging->brought) {
        int status = compute->log.bring(compute->log_context, logging->session, logging->sent, entry);
        if (status)
            return status;
        logging->brought = entry->record;
        logging->brought_node = entry->brought;
    }
    entry->brought = logging->brought_node;
    return 0;
}

/* Into the open frame. 0, or TREE_RESTART: there was no room, or the key is pending in another frame, and the
 * latch's holder looks again. */
static int entry_add(struct logging *logging, const struct format_key *value)
{
    struct tree_session *session = logging->session;
    const struct tree_compute *compute = session->compute;
    struct tree_logged_entry entry;
    struct unmerged_look look;
    struct unmerged_wait *waits[COMBINE_MAX];
    uint32_t combined = 0;
    entry_of(logging, value, &entry);
    wakeup_init(&logging->logged->wakeup);
    /* What goes ahead is written by the list of the frame. */
    logging->sent = entry.ahead_count ? logging->home : home_of(logging, value, logging->home);
    int status = pieces_bring(logging, &entry);
    if (status)
        return status;
    struct unmerged_frame *frame = compute->log.open(compute->log_context, session, logging->sent, &entry);
    if (!frame) {
        compute->log.room(compute->log_context, session);
        return TREE_RESTART;
    }
    unmerged_look(logging->table, logging->node, &look);
    const bool elsewhere = look.frame && look.frame != frame; /* L3 */
    if (!elsewhere) {
        uint32_t index = compute->log.add(compute->log_context, session, frame, &entry, logging->logged);
        unmerged_write(logging->table, logging->node, value, frame, index, &logging->logged->write);
        if (entry.ahead_count || logging->leafed) /* unmerged_write has said neither */
            unmerged_mark(logging->table, logging->node, entry.ahead_count, logging->leafed);
        combined = logging->doubt ? 0 : combine(logging, frame, waits);
    }
    compute->log.close(compute->log_context, session);
    for (uint32_t i = 0; i < combined; i++)
        unmerged_work_done(waits[i]);
    session->stats.combined += combined;
    return elsewhere ? pending_await(logging) : 0;
}

/* What the key holds, if the table does not say it. */
static int leaf_look(struct logging *logging)
{
    logging->length = sizeof logging->value;
    int status = tree_lookup_leaf(logging->session, logging->tree, logging->change->key, logging->value,
                                  &logging->length);
    logging->found = !status;
    logging->read = !status || (status == BANYAN_ENOTFOUND && !tree_is_dropped(logging->tree));
    return logging->read ? 0 : status;
}

/* What the key held before a change of which nobody knows whether it was made, and whose value may name what
 * was never written: so it was not made. No reader has seen it. */
static int before_look(struct logging *logging, struct unmerged_look *look)
{
    unmerged_look_committed(logging->table, logging->node, look);
    look->leafed = true; /* it may be merged while this lasts */
    if (look->found != UNMERGED_NONE)
        return 0;
    int status = logging->read ? 0 : leaf_look(logging);
    *look = (struct unmerged_look){.found = logging->found ? UNMERGED_VALUE : UNMERGED_DELETED,
                                   .value = logging->value,
                                   .length = (uint32_t)logging->length,
                                   .leafed = true};
    return status;
}

/* The key's last frame may have been written or not: its value, or the one before, is logged again, and
 * waited for. */
static int doubt_end(struct logging *logging, const struct unmerged_look *look)
{
    struct tree_session *session = logging->session;
    uint8_t value[FORMAT_VALUE_MAX];
    struct unmerged_look again = *look;
    const struct fabric_command *ahead = session->ahead;
    const uint32_t ahead_count = session->ahead_count;
    int status = look->fragile ? before_look(logging, &again) : 0;
    if (status)
        return status;
    const struct format_key same = {value, again.length};
    if (again.found == UNMERGED_VALUE && again.length)
        memcpy(value, again.value, again.length);
    session->ahead_count = 0; /* they are the next change's */
    logging->doubt = true;
    logging->leafed = again.leafed;
    do
        status = entry_add(logging, again.found == UNMERGED_DELETED ? NULL : &same);
    while (status == TREE_RESTART);
    logging->doubt = false;
    if (!status)
        status = session->compute->log.commit(session->compute->log_context, session, logging->logged);
    session->ahead = ahead;
    session->ahead_count = ahead_count;
    logging->leafed = false;
    logging->logged->frame = NULL;
    return status;
}

#define SHARED_WAIT_NS 5000u

/* What the table has shares its parts with what the leaf has: it goes there first. */
static int shared_merge(struct logging *logging)
{
    struct unmerged_merge merge;
    struct tree_session *session = logging->session;
    if (!unmerged_take_one(logging->table, logging->node, &merge)) {
        task_sleep(SHARED_WAIT_NS); /* it is being merged */
        return TREE_RESTART;
    }
    int status = tree_logged_merge_one(session, logging->tree, &merge);
    logging->read = false;
    return status ? status : TREE_RESTART;
}

/* The table begins to have the key: how often that was met until now, and what the cache knows of its leaf's
 * value, for tree_value_before. */
static void entry_look(struct logging *logging)
{
    struct tree_session *session = logging->session;
    uint32_t hits;
    session->leaf_value.known =
        tree_owned_peek(session, logging->tree, logging->change->key, session->leaf_value.bytes,
                        &session->leaf_value.length, &hits);
    if (!session->leaf_value.known)
        return;
    unmerged_met(logging->table, logging->node, hits);
    session->entry_hits = hits;
}

/* One look at the key, and what follows from it. TREE_RESTART: look again. */
static int decide(struct logging *logging)
{
    const struct tree_logged_change *change = logging->change;
    struct tree_session *session = logging->session;
    struct unmerged_look look;
    uint8_t value[FORMAT_VALUE_MAX + 1];
    size_t length = 0;
    unmerged_look(logging->table, logging->node, &look);
    session->entry_hits = look.met;
    if (look.found == UNMERGED_NONE)
        entry_look(logging);
    if (look.doubtful) {
        int status = doubt_end(logging, &look);
        return status ? status : TREE_RESTART;
    }
    if (look.found == UNMERGED_NONE && !change->blind && !logging->read) {
        int status = leaf_look(logging);
        if (status)
            return status;
    }
    const uint8_t *old = look.found == UNMERGED_VALUE ? look.value : NULL;
    size_t old_length = look.found == UNMERGED_VALUE ? look.length : 0;
    if (look.found == UNMERGED_NONE && logging->read && logging->found) {
        old = logging->value;
        old_length = logging->length;
    }
    if (look.found != UNMERGED_NONE && !look.frame)
        session->cached = true; /* O2 */
    if (value_shared(logging, &look))
        return look.frame ? pending_await(logging) : shared_merge(logging);
    enum tree_verdict verdict = change->function(change->context, old, old_length, value, &length);
    if (verdict == TREE_PUT) {
        int status = tree_value_check(session, logging->tree, value, length);
        const struct format_key put = {value, (uint32_t)length};
        return status ? status : entry_add(logging, &put);
    }
    if (verdict == TREE_DELETE && old)
        return entry_add(logging, NULL);
    if (!look.frame)
        return 0;
    return pending_await(logging); /* L3: what is kept was decided by a value that is not committed */
}

/* No task waits for another with a frame that nobody has begun to commit: it may be what that one waits for.
 */
static int latch_take(struct logging *logging)
{
    struct tree_session *session = logging->session;
    const struct tree_logged_change *change = logging->change;
    struct work work = {session, change, logging->logged};
    bool busy, taken = false;
    logging->node = unmerged_latch_try(logging->table, change->key, &busy);
    if (busy) {
        session->compute->log.lead(session->compute->log_context, session);
        wakeup_init(&logging->logged->wakeup);
        logging->node = unmerged_latch(logging->table, change->key,
                                       change->here || session->ahead_count ? NULL : &work, &taken);
    }
    return logging->node ? 0 : taken ? TREE_ANSWERED : pool_fail_memory(&session->pool);
}

int tree_logged_append(struct tree_session *session, struct tree *tree,
                       const struct tree_logged_change *change, struct tree_logged *logged)
{
    struct logging logging = {.session = session,
                              .tree = tree,
                              .table = tree_log_table_make(tree),
                              .change = change,
                              .logged = logged};
    *logged = (struct tree_logged){0};
    session->leaf_value.known = false;
    if (!logging.table)
        return pool_fail_memory(&session->pool);
    int status = home_find(&logging);
    if (status)
        return status;
    status = latch_take(&logging);
    if (status)
        return status == TREE_ANSWERED ? 0 : status;
    do
        status = decide(&logging);
    while (status == TREE_RESTART);
    unmerged_unlatch(logging.table, session->pool.epoch, logging.node);
    assert(!status || !logged->frame);
    return status;
}

int tree_logged_commit(struct tree_session *session, struct tree_logged *logged)
{
    const struct tree_compute *compute = session->compute;
    session->replaced = false;
    if (!logged->frame)
        return 0; /* nothing was changed, and what it was decided on is committed */
    int status = compute->log.commit(compute->log_context, session, logged);
    if (!status) {
        session->cached = false; /* O2: the commit has proven the right */
        session->replaced = logged->write.replaced;
        session->ahead_done |= session->ahead_count != 0;
    }
    return status;
}
