/* world_kept.c - see world_kept.h: the book. */
#include "swarm/world_kept.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/peers.h"
#include "format/record.h"
#include "swarm/world_disks.h"
#include "swarm/world_kept_book.h"
#include "swarm/world_parts.h"
#include "tree/logging.h"
#include "tree/rights.h"

/* ---- the book ---- */

static void *grown(void *items, size_t count, size_t *capacity, size_t bytes)
{
    if (count < *capacity)
        return items;
    *capacity = *capacity ? 2 * *capacity : 256;
    items = realloc(items, *capacity * bytes);
    if (!items)
        abort();
    return items;
}

/* One clock for the book and the clients. */
static uint64_t tick(const struct world_kept *kept)
{
    return ++kept->world->history.clock;
}

static struct kept_change *change_add(struct world_kept *kept, uint64_t key)
{
    kept->changes = grown(kept->changes, kept->change_count, &kept->change_capacity, sizeof *kept->changes);
    struct kept_change *change = &kept->changes[kept->change_count++];
    *change = (struct kept_change){.key = key, .number = kept->change_count, .status = KEPT_UNKNOWN};
    change->added = tick(kept);
    return change;
}

static void flight_begin(struct world_kept *kept, const struct tree_logged *logged, size_t change)
{
    size_t at = 0;
    while (at < kept->flight_count && kept->flights[at].logged != logged)
        at++;
    if (at == kept->flight_count) {
        kept->flights = grown(kept->flights, at, &kept->flight_capacity, sizeof *kept->flights);
        kept->flight_count++;
    }
    kept->flights[at] = (struct kept_flight){logged, change};
}

/* What its log has done until now: the frame of the change among it. */
static void change_ended(struct kept_change *change, const struct kept_watch *watch)
{
    struct log_stats stats;
    log_stats(watch->counts, &stats);
    change->watch = watch;
    change->drawn = stats.sequence;
    change->brought = watch->copies && !stats.uncarried;
    change->twice = watch->copies && !stats.degraded && (!change->record || change->brought);
}

static void flight_end(const struct kept_watch *watch, const struct tree_logged *logged, int status)
{
    struct world_kept *kept = watch->kept;
    size_t at = 0;
    while (at < kept->flight_count && kept->flights[at].logged != logged)
        at++;
    if (at == kept->flight_count)
        return;
    struct kept_change *change = &kept->changes[kept->flights[at].change];
    change->status = status == BANYAN_EUNKNOWN ? KEPT_UNKNOWN : status;
    change->ended = tick(kept);
    change_ended(change, watch);
    /* One that has lost the range may log again what others have released: it is refused. */
    if (!status && change->value == KEPT_NOBODYS)
        world_fail(kept->world, BANYAN_ECORRUPT, "a value that nobody has written is logged, of key %" PRIu64,
                   change->key);
    kept->flights[at] = kept->flights[--kept->flight_count];
}

/* ---- which value an entry has ---- */

/* The pool's bytes as they are when the entry's writes ahead have been done. */
static bool pool_look(const struct world *world, const struct tree_logged_entry *entry, gaddr address,
                      uint8_t *to, uint64_t bytes) /* entry NULL: as they are */
{
    const uint16_t node = gaddr_node(address);
    if (node >= world->options.memory_nodes)
        return false;
    const struct fabric_target *target = memory_node_target(world->memory[node]);
    if (gaddr_offset(address) > target->pool_bytes || bytes > target->pool_bytes - gaddr_offset(address))
        return false;
    memcpy(to, target->pool + gaddr_offset(address), bytes);
    for (uint32_t i = 0; entry && i < entry->ahead_count; i++) {
        const struct fabric_command *write = &entry->ahead[i];
        const gaddr from = write->address > address ? write->address : address;
        const gaddr end = write->address + write->length < address + bytes ? write->address + write->length
                                                                           : address + bytes;
        if (from < end)
            memcpy(to + (from - address), (const uint8_t *)write->write.data + (from - write->address),
                   end - from);
    }
    return true;
}

static uint64_t number_of_pieces(struct world_kept *kept, const struct tree_logged_entry *entry,
                                 const struct format_record *record, uint16_t node, bool *apart)
{
    uint8_t *value = kept->value;
    uint64_t length = 0;
    if (record->length > DRIVER_RECORD_MAX)
        return 0;
    for (uint32_t i = 0; i < record->pieces; i++) {
        const struct format_piece piece = format_record_piece(kept->block, entry->key.length, i);
        const gaddr at = format_piece_address(entry->key.length, &piece);
        if (length + piece.length > DRIVER_RECORD_MAX || piece.block == GADDR_NULL ||
            !pool_look(kept->world, entry, at, value + length, piece.length))
            return 0;
        *apart |= gaddr_node(at) != node;
        length += piece.length;
    }
    return driver_value_number(&kept->world->setting.shape, value, length);
}

/* 0: it cannot be told. */
static uint64_t number_of(struct world_kept *kept, const struct tree_logged_entry *entry,
                          struct kept_change *change)
{
    const struct driver_shape *shape = &kept->world->setting.shape;
    struct format_value value;
    struct format_record record;
    if (!format_value_decode(entry->value.bytes, entry->value.length, &value))
        return 0;
    if (!value.record)
        return driver_value_number(shape, value.bytes, value.length);
    const struct format_reference *reference = &value.reference;
    const enum format_part part = reference->room ? FORMAT_PART_HEADER : FORMAT_PART_VALUE;
    const uint32_t bytes = format_record_read_bytes(entry->key.length, reference, part);
    change->record = true;
    change->reference = *reference;
    if (bytes > sizeof kept->block ||
        !pool_look(kept->world, entry, reference->address, kept->block, bytes) ||
        !format_record_validate(reference, entry->key.bytes, entry->key.length, part, kept->block, &record))
        return 0;
    return reference->room ? number_of_pieces(kept, entry, &record, change->node, &change->apart)
                           : driver_value_number(shape, record.value, record.length);
}

/* ---- between the tree and the log ---- */

static int watch_bring(void *context, struct tree_session *session, uint16_t node,
                       struct tree_logged_entry *entry)
{
    const struct kept_watch *watch = context;
    return watch->log.bring(watch->context, session, node, entry);
}

static struct unmerged_frame *watch_open(void *context, struct tree_session *session, uint16_t node,
                                         const struct tree_logged_entry *entry)
{
    struct kept_watch *watch = context;
    watch->node = node;
    return watch->log.open(watch->context, session, node, entry);
}

static uint32_t watch_add(void *context, struct tree_session *session, struct unmerged_frame *frame,
                          const struct tree_logged_entry *entry, struct tree_logged *logged)
{
    struct kept_watch *watch = context;
    struct world_kept *kept = watch->kept;
    struct world *world = kept->world;
    const uint64_t key = world_key_number(world, entry->key.bytes, entry->key.length);
    struct kept_change *change = change_add(kept, key);
    change->node = watch->node;
    change->again = entry->again;
    if (entry->value.bytes)
        change->value = number_of(kept, entry, change);
    if (entry->value.bytes && !change->value)
        change->value = KEPT_NOBODYS;
    if (key == UINT64_MAX)
        world_fail(world, BANYAN_ECORRUPT, "a key is logged that no client has");
    flight_begin(kept, logged, kept->change_count - 1);
    return watch->log.add(watch->context, session, frame, entry, logged);
}

static bool watch_fits(void *context, const struct unmerged_frame *frame,
                       const struct tree_logged_entry *entry)
{
    const struct kept_watch *watch = context;
    return watch->log.fits(watch->context, frame, entry);
}

static void watch_close(void *context, struct tree_session *session)
{
    const struct kept_watch *watch = context;
    watch->log.close(watch->context, session);
}

static void watch_room(void *context, struct tree_session *session)
{
    const struct kept_watch *watch = context;
    watch->log.room(watch->context, session);
}

static void watch_lead(void *context, struct tree_session *session)
{
    const struct kept_watch *watch = context;
    watch->log.lead(watch->context, session);
}

static int watch_commit(void *context, struct tree_session *session, struct tree_logged *logged)
{
    const struct kept_watch *watch = context;
    int status = watch->log.commit(watch->context, session, logged);
    flight_end(watch, logged, status);
    return status;
}

void world_kept_watch(struct world_kept *kept, const struct world_compute *compute, const struct log *log,
                      unsigned copies)
{
    static const struct tree_log watching = {.bring = watch_bring,
                                             .open = watch_open,
                                             .add = watch_add,
                                             .fits = watch_fits,
                                             .close = watch_close,
                                             .room = watch_room,
                                             .lead = watch_lead,
                                             .commit = watch_commit};
    struct kept_watch *watch = world_allocate(1, sizeof *watch);
    watch->kept = kept;
    watch->counts = log;
    watch->process = fabric_self(compute->fabric);
    /* As its log has found: a log that begins where there is one memory node counts no frame of one copy. */
    watch->copies = copies > 1 && fabric_memory_nodes(compute->fabric) > 1;
    watch->next = kept->watches;
    kept->watches = watch;
    tree_compute_log(compute->compute, &watch->log, &watch->context);
    tree_compute_set_log(compute->compute, &watching, watch);
}

/* ---- rounds of disks ---- */

static bool pieces_stand(struct world_kept *kept, size_t key_length, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct format_piece piece = format_record_piece(kept->block, key_length, i);
        if (piece.length > sizeof kept->value ||
            !pool_look(kept->world, NULL, format_piece_address(key_length, &piece), kept->value,
                       piece.length) ||
            format_record_hash(kept->value, piece.length) != piece.hash)
            return false;
    }
    return true;
}

/* The record is in the pool as it was written. */
static bool record_stands(struct world_kept *kept, const struct kept_change *change)
{
    const struct format_reference *reference = &change->reference;
    const enum format_part part = reference->room ? FORMAT_PART_HEADER : FORMAT_PART_VALUE;
    uint8_t key[FORMAT_KEY_MAX];
    const size_t length = world_key(kept->world, change->key, key);
    const uint32_t bytes = format_record_read_bytes(length, reference, part);
    struct format_record record;
    return pool_look(kept->world, NULL, reference->address, kept->block, bytes) &&
           format_record_validate(reference, key, length, part, kept->block, &record) &&
           (!reference->room || pieces_stand(kept, length, record.pieces));
}

uint64_t world_kept_round_begin(struct world_kept *kept, unsigned memory)
{
    struct kept_rounds *rounds = &kept->rounds[memory];
    bool all = true; /* up to here nothing is to be looked at any more */
    for (size_t i = rounds->looked; i < kept->change_count; i++) {
        struct kept_change *change = &kept->changes[i];
        const bool mine = change->record && change->node == memory && !change->safe;
        change->stood =
            mine ? change->ended && !change->status && record_stands(kept, change) : change->stood;
        all = all && (!mine || (change->ended && !change->stood));
        if (all)
            rounds->looked = i + 1;
    }
    return tick(kept);
}

void world_kept_round_end(struct world_kept *kept, unsigned memory, uint64_t began)
{
    struct kept_rounds *rounds = &kept->rounds[memory];
    rounds->began = grown(rounds->began, rounds->count, &rounds->capacity, sizeof *rounds->began);
    rounds->began[rounds->count++] = began;
    for (size_t i = rounds->looked; i < kept->change_count; i++) {
        struct kept_change *change = &kept->changes[i];
        if (change->node == memory && change->record)
            change->safe = change->safe || change->stood;
    }
}

/* ---- clients ---- */

/* The epoch of the logged row that the key is in, of a process that may use it; 0: there is none. */
static uint64_t row_of(const struct world *world, uint64_t number)
{
    uint8_t key[FORMAT_KEY_MAX];
    const size_t length = world_key(world, number, key);
    uint64_t incarnation, epoch = 0;
    for (unsigned i = 0; i < world->compute_count && !epoch; i++) {
        const struct world_compute *node = &world->computes[i];
        const struct tree *tree = world->tasks[i * world_tasks_each(world)].tree;
        if (!tree || node->dead || !sim_connected(world->sim, (int)i, 0))
            continue;
        epoch = tree_rights_logged_at(tree, key, length, &incarnation);
        epoch = incarnation >= fabric_incarnation(node->fabric) ? epoch : 0;
    }
    return epoch;
}

void world_kept_call(struct world_kept *kept, const struct world_task *task, size_t count)
{
    struct kept_calls *calls = &kept->calls[task->number];
    const struct history_log *log = &task->log;
    for (size_t i = 0; i < count; i++)
        calls->epochs[i] = row_of(kept->world, log->ops[log->count - count + i].key);
}

void world_kept_return(struct world_kept *kept, const struct world_task *task, size_t count)
{
    const struct kept_calls *calls = &kept->calls[task->number];
    const struct history_log *log = &task->log;
    for (size_t i = 0; i < count; i++) {
        const size_t place = log->count - count + i;
        if (!calls->epochs[i] || calls->epochs[i] != row_of(kept->world, log->ops[place].key))
            continue;
        kept->sure = grown(kept->sure, kept->sure_count, &kept->sure_capacity, sizeof *kept->sure);
        kept->sure[kept->sure_count++] = (struct kept_sure){task->number, place};
    }
}

static int kept_one(void *context, struct subject_call *call)
{
    const struct world_task *task = context;
    struct world_kept *kept = world_disks_kept(task->world);
    world_kept_call(kept, task, 1);
    int status = subject_store.one(context, call);
    world_kept_return(kept, task, 1);
    return status;
}

static void kept_many(void *context, struct subject_call *calls, size_t count)
{
    const struct world_task *task = context;
    struct world_kept *kept = world_disks_kept(task->world);
    world_kept_call(kept, task, count);
    subject_store.many(context, calls, count);
    world_kept_return(kept, task, count);
}

static int kept_scan(void *context, const struct tree_range *range, tree_visit_function *visit,
                     void *visit_context)
{
    return subject_store.scan(context, range, visit, visit_context);
}

static int kept_sample(void *context, uint8_t *key, size_t *length)
{
    return subject_store.sample(context, key, length);
}

static int kept_move(void *context, const uint8_t *key, size_t length, uint64_t dice)
{
    return subject_store.move(context, key, length, dice);
}

static const char *kept_trouble(void *context)
{
    return subject_store.trouble(context);
}

static int kept_merge(void *context, uint32_t budget)
{
    return subject_store.merge(context, budget);
}

static int kept_move_node(void *context, const uint8_t *key, size_t length, uint8_t level, uint64_t dice)
{
    return subject_store.move_node(context, key, length, level, dice);
}

static int kept_drain(void *context, uint64_t dice)
{
    return subject_store.drain(context, dice);
}

const struct subject_ops subject_kept = {kept_one,     kept_many,  kept_scan,      kept_sample, kept_move,
                                         kept_trouble, kept_merge, kept_move_node, kept_drain};

/* ---- life ---- */

struct world_kept *world_kept_create(struct world *world)
{
    struct world_kept *kept = world_allocate(1, sizeof *kept);
    const struct world_options *options = &world->options;
    const unsigned tasks = (options->compute_nodes + options->restarts) * options->threads * options->fibers;
    kept->world = world;
    kept->calls = world_allocate(tasks, sizeof *kept->calls);
    return kept;
}

void world_kept_destroy(struct world_kept *kept)
{
    if (!kept)
        return;
    while (kept->watches) {
        struct kept_watch *gone = kept->watches;
        kept->watches = gone->next;
        free(gone);
    }
    for (unsigned i = 0; i < WORLD_MEMORY_MAX; i++)
        free(kept->rounds[i].began);
    free(kept->changes);
    free(kept->flights);
    free(kept->calls);
    free(kept->sure);
    free(kept);
}
