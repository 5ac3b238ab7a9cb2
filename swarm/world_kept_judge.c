/* world_kept_judge.c - see world_kept.h: what was read back is held against the book. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swarm/linearize.h"
#include "swarm/world_kept_book.h"
#include "swarm/world_parts.h"

#define NOTHING UINT32_MAX

struct judge {
    struct world_kept *kept;
    struct world *world;
    struct world_kept_met *met;
    const struct persist_replay *replay;
    bool gone; /* a disk is */
    bool over; /* a checkpoint has been read as well */
    uint64_t keys;
    bool *missed;        /* by key: its newest value is said to have gone with a disk */
    uint64_t *back;      /* by key: the value that was read back; 0: none */
    uint32_t *last;      /* by key: 1 more than its last change in the book */
    uint32_t *before;    /* by change: 1 more than the one before of its key */
    uint32_t *line;      /* the changes of the key that is judged, in order */
    uint32_t line_count; /* 0: it has none */
};

/* ---- what was read back ---- */

static int back_take(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    struct judge *judge = context;
    struct world *world = judge->world;
    const uint64_t key = world_key_number(world, entry->key, entry->key_length);
    const uint64_t value = world_value_number(world, entry->value, entry->value_length);
    const uint64_t expires = value % 3 ? 0 : UINT64_C(1) << 45; /* as the driver writes it */
    (void)index;
    if ((key >= judge->keys || !judge->last[key]) && !judge->over)
        return error_set(error, BANYAN_ECORRUPT, "key %" PRIu64 " was read back, and was never logged", key);
    if (!value || entry->expires != expires) {
        driver_blame(&world->tasks[0].driver, key);
        return error_set(error, BANYAN_ECORRUPT,
                         "of key %" PRIu64 " a value was read back that was never written", key);
    }
    if (key >= judge->keys) /* nothing is promised of it */
        return 0;
    judge->back[key] = value;
    judge->met->recovered++;
    return 0;
}

/* ---- the promise of the level ---- */

/* A round of the change's memory node that ended well began behind the change's end. */
static bool round_behind(const struct world_kept *kept, const struct kept_change *change)
{
    const struct kept_rounds *rounds = &kept->rounds[change->node];
    return rounds->count && rounds->began[rounds->count - 1] > change->ended;
}

static const struct persist_replay_process *process_of(const struct judge *judge,
                                                       const struct kept_change *change)
{
    const struct persist_replay_process *process;
    uint32_t at = 0;
    do
        process = persist_replay_process_next(judge->replay, &at);
    while (process && !fabric_process_equal(process->process, change->watch->process));
    return process;
}

/* P16, of a committed change: both disks had it; or whoever reads back must think so. */
static bool is_spared(const struct judge *judge, const struct kept_change *change)
{
    const struct persist_replay_process *process = process_of(judge, change);
    return change->twice || (process && !process->silent && !process->alone &&
                             process->last > change->drawn && !judge->missed[change->key]);
}

static bool is_promised(const struct judge *judge, uint32_t at)
{
    const struct world_kept *kept = judge->kept;
    const struct kept_change *change = &kept->changes[judge->line[at]];
    if (change->status || !change->ended || (change->apart && !change->brought))
        return false;
    if (judge->gone)
        return is_spared(judge, change);
    if (judge->world->options.disk.level == WORLD_DISK_ALWAYS)
        return true;
    return change->record ? change->safe : round_behind(kept, change);
}

/* The changes of the key, the oldest first. */
static void line_make(struct judge *judge, uint64_t key)
{
    judge->line_count = 0;
    for (uint32_t at = judge->last[key]; at; at = judge->before[at - 1])
        judge->line[judge->line_count++] = at - 1;
    for (uint32_t i = 0; i < judge->line_count / 2; i++) {
        const uint32_t other = judge->line[i];
        judge->line[i] = judge->line[judge->line_count - 1 - i];
        judge->line[judge->line_count - 1 - i] = other;
    }
}

static int key_fails(const struct judge *judge, uint64_t key, uint32_t floor)
{
    const struct kept_change *changes = judge->kept->changes;
    const struct kept_change *promised = floor == NOTHING ? NULL : &changes[judge->line[floor]];
    char was[96] = "nothing is promised";
    driver_blame(&judge->world->tasks[0].driver, key);
    if (promised)
        snprintf(was, sizeof was, "change %" PRIu64 " (v%" PRIu64 ") of memory node %u is promised",
                 promised->number, promised->value, (unsigned)promised->node);
    for (uint32_t i = 0; i < judge->line_count; i++) {
        const struct kept_change *change = &changes[judge->line[i]];
        fprintf(stderr,
                "key %" PRIu64 ": change %" PRIu64 " [%" PRIu64 "..%" PRIu64 "] v%" PRIu64
                " memory node %u status %d%s%s%s%s\n",
                key, change->number, change->added, change->ended, change->value, (unsigned)change->node,
                change->status, change->again ? " again" : "", change->record ? " record" : "",
                change->apart ? " apart" : "", change->twice ? " twice" : "");
    }
    return world_fail(judge->world, BANYAN_ECONFLICT,
                      "power: of key %" PRIu64 " v%" PRIu64 " was read back (0: nothing); %s", key,
                      judge->back[key], was);
}

static bool writes(const struct history_op *op)
{
    return op->kind != HISTORY_GET;
}

/* The operation may have left the key with what was read back. */
static bool may_have_written(const struct judge *judge, const struct history_op *op, uint64_t key)
{
    return op->key == key && writes(op) && op->argument == judge->back[key] && !(op->known && op->status);
}

/* It came with the checkpoint, which has met what was written through. That is newer than what is promised,
 * unless it was over before that began. */
static bool written_through(const struct judge *judge, uint64_t key, uint32_t floor)
{
    const struct world *world = judge->world;
    const uint64_t since = floor == NOTHING ? 0 : judge->kept->changes[judge->line[floor]].added;
    for (uint32_t i = 0; i < judge->line_count; i++) {
        const struct kept_change *change = &judge->kept->changes[judge->line[i]];
        if (change->value && change->value == judge->back[key] &&
            (!change->status || change->status == KEPT_UNKNOWN))
            return false; /* it was logged, before what is promised */
    }
    for (unsigned i = 0; i < world->task_count && judge->over; i++)
        for (size_t j = 0; j < world->tasks[i].log.count; j++) {
            const struct history_op *op = &world->tasks[i].log.ops[j];
            if (may_have_written(judge, op, key) && (!op->known || op->returned > since))
                return true;
        }
    return false;
}

static int key_judge(struct judge *judge, uint64_t key)
{
    const struct kept_change *changes = judge->kept->changes;
    uint32_t floor = NOTHING;
    line_make(judge, key);
    for (uint32_t i = 0; i < judge->line_count; i++)
        if (is_promised(judge, i))
            floor = i;
    judge->met->keys += floor != NOTHING;
    judge->met->spared += floor != NOTHING && judge->gone;
    if (floor == NOTHING && !judge->back[key])
        return 0;
    for (uint32_t i = floor == NOTHING ? 0 : floor; i < judge->line_count; i++) {
        const struct kept_change *change = &changes[judge->line[i]];
        if (change->value != judge->back[key] || (change->status && change->status != KEPT_UNKNOWN))
            continue;
        judge->met->later += i != floor;
        return 0;
    }
    return written_through(judge, key, floor) ? 0 : key_fails(judge, key, floor);
}

/* ---- what clients were told ---- */

/* The operation has changed the key. */
static bool has_changed(const struct history_op *op)
{
    return op->known && !op->status && (op->argument || op->kind == HISTORY_DELETE || op->result);
}

/* The change that the operation made is in the book, committed while it lasted. */
static bool in_book(struct judge *judge, const struct history_op *op)
{
    for (uint32_t at = op->key < judge->keys ? judge->last[op->key] : 0; at; at = judge->before[at - 1]) {
        const struct kept_change *change = &judge->kept->changes[at - 1];
        if (change->value == op->argument && !change->status && !change->again &&
            change->added > op->invoked && change->ended && change->ended < op->returned)
            return true;
    }
    return false;
}

static int sure_judge(struct judge *judge)
{
    for (size_t i = 0; i < judge->kept->sure_count; i++) {
        const struct kept_sure *sure = &judge->kept->sure[i];
        const struct history_op *op = &judge->world->tasks[sure->task].log.ops[sure->place];
        if (!writes(op) || !has_changed(op))
            continue;
        judge->met->sure++;
        if (in_book(judge, op))
            continue;
        char text[320];
        history_format(op, text, sizeof text);
        driver_blame(&judge->world->tasks[0].driver, op->key);
        return world_fail(judge->world, BANYAN_ECONFLICT,
                          "acknowledged, and not committed to the log: %.220s", text);
    }
    return 0;
}

/* Nothing of the key was written through, for certain. */
static bool all_in_book(struct judge *judge, const struct history_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct history_op *op = &ops[i];
        if (!writes(op) || (op->known && !has_changed(op)))
            continue;
        if (!op->known || !in_book(judge, op))
            return false;
    }
    return true;
}

/* All that was committed of the key is promised: a value with parts on several memory nodes is not. */
static bool all_promised(struct judge *judge, uint64_t key)
{
    bool all = true;
    line_make(judge, key);
    for (uint32_t i = 0; i < judge->line_count; i++)
        all = all && (judge->kept->changes[judge->line[i]].status || is_promised(judge, i));
    return all;
}

/* One key's history, with a read behind all of it. */
static int whole_judge(struct judge *judge, struct history_op *ops, size_t count)
{
    struct world *world = judge->world;
    const uint64_t key = ops[0].key;
    char text[1000];
    if (key >= judge->keys || !judge->last[key] || !all_in_book(judge, ops, count) ||
        !all_promised(judge, key))
        return 0;
    judge->met->whole++;
    const uint64_t value = judge->back[key], end = world->history.clock + 1;
    ops[count] = (struct history_op){.kind = HISTORY_GET,
                                     .key = key,
                                     .known = true,
                                     .invoked = end,
                                     .returned = end + 1,
                                     .status = value ? 0 : BANYAN_ENOTFOUND,
                                     .result = value};
    if (linearize_key(ops, count + 1, 0, NULL, text, sizeof text) == LINEARIZE_ACCEPTED)
        return 0;
    driver_blame(&world->tasks[0].driver, key);
    return world_fail(world, BANYAN_ECONFLICT, "power: the history does not end as it was read back: %.220s",
                      text);
}

static int wholes_judge(struct judge *judge)
{
    struct world *world = judge->world;
    struct history_log *logs = world_allocate(world->task_count, sizeof *logs);
    size_t total;
    int status = 0;
    for (unsigned i = 0; i < world->task_count; i++)
        logs[i] = world->tasks[i].log;
    struct history_op *all = history_merge(logs, world->task_count, &total);
    struct history_op *one = world_allocate(total + 1, sizeof *one);
    for (size_t from = 0, to; from < total && !status; from = to) {
        for (to = from; to < total && all[to].key == all[from].key; to++)
            one[to - from] = all[to];
        status = whole_judge(judge, one, to - from);
    }
    free(one);
    free(all);
    free(logs);
    return status;
}

/* ---- all of it ---- */

static void index_make(struct judge *judge)
{
    const struct world_kept *kept = judge->kept;
    for (size_t i = 0; i < kept->change_count; i++)
        if (kept->changes[i].key != UINT64_MAX && kept->changes[i].key >= judge->keys)
            judge->keys = kept->changes[i].key + 1;
    judge->back = world_allocate(judge->keys, sizeof *judge->back);
    judge->missed = world_allocate(judge->keys, sizeof *judge->missed);
    judge->last = world_allocate(judge->keys, sizeof *judge->last);
    judge->before = world_allocate(kept->change_count, sizeof *judge->before);
    judge->line = world_allocate(kept->change_count, sizeof *judge->line);
    for (size_t i = 0; i < kept->change_count; i++) {
        uint32_t *last = &judge->last[kept->changes[i].key];
        judge->before[i] = *last;
        *last = (uint32_t)i + 1;
        judge->met->committed += !kept->changes[i].status && kept->changes[i].ended;
    }
    judge->met->changes = kept->change_count;
}

static void missed_take(void *context, const struct persist_replay_key *missed)
{
    struct judge *judge = context;
    const uint64_t key = world_key_number(judge->world, missed->key, missed->key_length);
    if (key < judge->keys)
        judge->missed[key] = true;
}

int world_kept_judge(struct world_kept *kept, struct persist_checkpoint *checkpoint,
                     struct persist_replay *replay, bool gone, struct world_kept_met *met)
{
    struct judge judge = {.kept = kept,
                          .world = kept->world,
                          .met = met,
                          .replay = replay,
                          .gone = gone,
                          .over = checkpoint != NULL};
    struct world *world = kept->world;
    struct error error = {0};
    *met = (struct world_kept_met){0};
    index_make(&judge);
    if (gone)
        met->missed = persist_replay_missed(replay, missed_take, &judge);
    int status = persist_checkpoint_all(checkpoint, replay, back_take, &judge, &error);
    if (status)
        status = world_fail(world, status, "power: %s", error.text);
    for (uint64_t key = 0; key < judge.keys && !status; key++)
        status = key_judge(&judge, key);
    if (!status)
        status = sure_judge(&judge);
    if (!status)
        status = world_linearize(world);
    if (!status && world->options.disk.level == WORLD_DISK_ALWAYS)
        status = wholes_judge(&judge);
    free(judge.back);
    free(judge.missed);
    free(judge.last);
    free(judge.before);
    free(judge.line);
    return status;
}
