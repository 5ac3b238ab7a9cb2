/* change.c - listing and changing the map, as owner.h has it: each call is one transfer (transfer.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "owner/board.h"
#include "owner/heirs.h"
#include "owner/transfer.h"
#include "owner/unkept.h"

/* ---- listing ---- */

static const char *name_of(struct owner *owner, uint16_t number)
{
    const struct owner_index *index = owner_index_numbered(owner, number);
    return index ? tree_name(index->tree) : "";
}

int owner_list(struct owner *owner, struct tree_session *session,
               void (*visit)(void *context, const struct owner_range *range), void *context)
{
    struct owner_map map = {0};
    int status = owner_join(owner, session);
    if (!status)
        status = owner_map_fetch(owner, session, &map);
    if (status)
        return status;
    owner_turn_take(&owner->adopting); /* names of attached indexes */
    for (uint32_t i = 0; i < map.count; i++) {
        const struct format_range *range = &map.ranges[i];
        struct owner_range told = {.index = name_of(owner, range->number),
                                   .number = range->number,
                                   .lower = range->lower,
                                   .lower_length = range->lower_length,
                                   .state = range->state,
                                   .owner = range->owner,
                                   .next = range->next,
                                   .epoch = range->epoch,
                                   .version = range->version,
                                   .logged = range->logged,
                                   .heir_count = range->heir_count};
        memcpy(told.heirs, range->heirs, sizeof told.heirs);
        visit(context, &told);
    }
    owner_turn_give(&owner->adopting);
    owner_map_free(&map);
    return 0;
}

int owner_check(struct owner *owner, struct tree_session *session,
                void (*problem)(void *context, const char *text), void *context, uint32_t *count)
{
    struct owner_map map = {0};
    *count = 0;
    int status = owner_join(owner, session);
    if (!status)
        status = owner_map_fetch(owner, session, &map);
    if (status)
        return status;
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < map.problem_count; i++) {
        char text[300];
        const char *name = name_of(owner, map.problems[i].number);
        snprintf(text, sizeof text, "index number %u%s%s%s: %s", (unsigned)map.problems[i].number,
                 *name ? " ('" : "", name, *name ? "')" : "", map.problems[i].text);
        problem(context, text);
        ++*count;
    }
    owner_turn_give(&owner->adopting);
    owner_map_free(&map);
    return 0;
}

int owner_members(struct owner *owner, struct tree_session *session,
                  void (*visit)(void *context, const struct owner_member *member), void *context)
{
    struct owner_members members;
    struct fabric_process *processes = NULL;
    uint32_t count = 0;
    int status = owner_join(owner, session);
    if (status)
        return status;
    status = owner_board_members(owner, session, &members);
    if (!status)
        status = owner_processes(owner, session, &processes, &count);
    for (uint32_t i = 0; i < members.count && !status; i++) {
        struct owner_member told = {.process = owner_process_of(&members.members[i].process),
                                    .willing = members.members[i].willing != 0,
                                    .logs = members.members[i].logs == MEMORY_BOARD_LOGS,
                                    .adopted = members.members[i].adopted};
        told.alive = owner_among(processes, count, told.process);
        visit(context, &told);
    }
    heap_free(&owner->heap, processes);
    owner_members_free(&members);
    return status;
}

/* ---- attached indexes ---- */

/* Under no turn: the caller's index stays attached while the caller uses it. */
static struct owner_index *attached(struct owner *owner, struct tree_session *session, struct tree *tree)
{
    spinlock_lock(&owner->lock);
    struct owner_index *index = owner_index_of(owner, tree);
    spinlock_unlock(&owner->lock);
    if (!index)
        pool_fail(tree_session_pool(session), BANYAN_EINVAL, "the index '%s' is not attached",
                  tree_name(tree));
    return index;
}

static int bound_of(struct tree_session *session, const struct tree *tree, const void *key, size_t length,
                    struct owner_bound *bound)
{
    struct pool_session *pool = tree_session_pool(session);
    const struct format_geometry *geometry = tree_geometry(tree);
    const bool fixed = geometry->key_kind == FORMAT_KEY_FIXED;
    if (!length)
        return pool_fail(pool, BANYAN_EINVAL,
                         "the first range begins at the least key, and nothing before it");
    if (length > OWNER_BOUND_MAX)
        return pool_fail(pool, BANYAN_EKEYSIZE, "a bound of %zu bytes is longer than %u", length,
                         OWNER_BOUND_MAX);
    if (fixed ? length != geometry->key_bytes : length > geometry->key_bytes)
        return pool_fail(pool, BANYAN_EKEYSIZE, "a bound of %zu bytes is no key of the index '%s' (%s%u)",
                         length, tree_name(tree), fixed ? "" : "at most ", (unsigned)geometry->key_bytes);
    bound->length = (uint8_t)length;
    memcpy(bound->bytes, key, length);
    return 0;
}

/* ---- splitting and merging ---- */

/* A transfer that is about one bound of an index. */
struct bound_change {
    struct owner_index *index;
    struct owner_transfer transfer;
    struct owner_bound bound;
};

/* 0: the transfer has begun, and is to be ended. */
static int bound_change_begin(struct bound_change *change, struct owner *owner, struct tree_session *session,
                              struct tree *tree, const void *key, size_t key_length)
{
    change->index = attached(owner, session, tree);
    if (!change->index)
        return BANYAN_EINVAL;
    int status = bound_of(session, tree, key, key_length, &change->bound);
    if (!status) /* ranges with heirs cannot become one */
        status = owner_heirs_await(owner, session);
    if (!status)
        status = owner_transfer_begin(&change->transfer, owner, session, true);
    if (status)
        return status;
    const struct owner_problem *problem = owner_map_problem(&change->transfer.map, change->index->number);
    if (!problem)
        return 0;
    return owner_transfer_end(&change->transfer,
                              pool_fail(tree_session_pool(session), BANYAN_ECORRUPT, "the index '%s': %s",
                                        tree_name(tree), problem->text));
}

int owner_split(struct owner *owner, struct tree_session *session, struct tree *tree, const void *key,
                size_t key_length)
{
    struct bound_change change;
    int status = bound_change_begin(&change, owner, session, tree, key, key_length);
    if (status)
        return status;
    return owner_transfer_end(&change.transfer,
                              owner_transfer_split(&change.transfer, change.index, &change.bound, 1));
}

/* Changes of the two ranges were logged under different epochs, by which a next owner would know them. So
 * they are merged into the leaves, by sharing them; then the range is its owner's again. After a death in
 * between the next process that wants ranges gets what is shared. */
static int merge_by_sharing(struct owner_transfer *transfer, uint32_t at)
{
    struct format_range two[2] = {transfer->map.ranges[at - 1], transfer->map.ranges[at]};
    const struct fabric_process was = two[0].owner;
    for (unsigned i = 0; i < 2; i++) {
        two[i].next = (struct fabric_process){0};
        two[i].unclaimed = true;
    }
    int status = owner_transfer_move(transfer, two, 2);
    if (!status && (!owner_nobody(two[0].owner) || !owner_nobody(two[1].owner)))
        return pool_fail(tree_session_pool(transfer->session), BANYAN_EBUSY,
                         "the ranges' owner was lost before it had merged them");
    if (!status)
        status = owner_transfer_merge(transfer, at);
    struct format_range one = transfer->map.ranges[at - 1];
    one.next = was;
    return status ? status : owner_transfer_move(transfer, &one, 1);
}

static int merge_at(struct owner_transfer *transfer, const struct owner_index *index,
                    const struct owner_bound *bound)
{
    struct pool_session *pool = tree_session_pool(transfer->session);
    char text[OWNER_BOUND_TEXT], left_text[OWNER_TEXT_BYTES], right_text[OWNER_TEXT_BYTES];
    uint32_t at = owner_map_find(&transfer->map, index->number, bound->bytes, bound->length);
    const struct format_range *right = at == UINT32_MAX ? NULL : &transfer->map.ranges[at];
    if (!right || right->lower_length != bound->length || memcmp(right->lower, bound->bytes, bound->length))
        return pool_fail(pool, BANYAN_ENOTFOUND, "no range of the index '%s' begins at %s",
                         tree_name(index->tree), owner_bound_text(bound->bytes, bound->length, text));
    if (!fabric_process_equal(right[-1].owner, right->owner))
        return pool_fail(pool, BANYAN_ECONFLICT, "the ranges belong to different owners: %s, and %s",
                         owner_describe(transfer->owner, right[-1].owner, left_text),
                         owner_describe(transfer->owner, right->owner, right_text));
    if (right->heir_count || right[-1].heir_count)
        return pool_fail(pool, BANYAN_EBUSY,
                         "%s has yet to merge what earlier owners of these ranges have logged",
                         owner_describe(transfer->owner, right->owner, right_text));
    if (right->logged == right[-1].logged && (!right->logged || right->epoch == right[-1].epoch))
        return owner_transfer_merge(transfer, at);
    return merge_by_sharing(transfer, at);
}

int owner_merge(struct owner *owner, struct tree_session *session, struct tree *tree, const void *key,
                size_t key_length)
{
    struct bound_change change;
    int status = bound_change_begin(&change, owner, session, tree, key, key_length);
    if (status)
        return status;
    return owner_transfer_end(&change.transfer, merge_at(&change.transfer, change.index, &change.bound));
}

/* ---- choosing ranges ---- */

struct choice {
    struct format_range *ranges; /* owned */
    uint32_t count;
};

static bool owner_matches(const struct owner_selection *selection, const struct format_range *range)
{
    return !selection->owned || fabric_process_equal(range->owner, selection->owner);
}

/* Those of one index; one that was never divided is one shared range, without an entry. */
static void choose_of(const struct owner_transfer *transfer, const struct owner_selection *selection,
                      uint16_t number, struct choice *choice)
{
    const struct format_range whole = {.number = number, .state = FORMAT_RANGE_SETTLED};
    uint32_t count, at = UINT32_MAX;
    const struct format_range *ranges = owner_map_of(&transfer->map, number, &count);
    if (!count) {
        ranges = &whole;
        count = 1;
        at = 0;
    } else if (selection->keyed) {
        at = owner_map_find(&transfer->map, number, selection->key, selection->key_length) -
             (uint32_t)(ranges - transfer->map.ranges);
    }
    for (uint32_t i = 0; i < count; i++)
        if (ranges[i].state == FORMAT_RANGE_SETTLED && (!selection->keyed || i == at) &&
            owner_matches(selection, &ranges[i]))
            choice->ranges[choice->count++] = ranges[i];
}

/* So many in 1,000, evenly among them. */
static void thin(struct choice *choice, uint32_t per_mille)
{
    uint32_t kept = 0;
    if (!per_mille || per_mille >= 1000)
        return;
    for (uint64_t i = 0; i < choice->count; i++)
        if ((i + 1) * per_mille / 1000 > i * per_mille / 1000)
            choice->ranges[kept++] = choice->ranges[i];
    if (!kept && choice->count) /* a share of something is something */
        kept = 1;
    choice->count = kept;
}

static int choose(struct owner_transfer *transfer, const struct owner_selection *selection,
                  struct choice *choice)
{
    struct owner *owner = transfer->owner;
    uint32_t indexes = 0;
    owner_turn_take(&owner->adopting);
    for (const struct owner_index *index = owner->indexes; index; index = index->next)
        indexes++;
    *choice =
        (struct choice){.ranges = heap_allocate(&transfer->owner->heap, (transfer->map.count + indexes + 1) *
                                                                            sizeof *choice->ranges)};
    for (const struct owner_index *index = owner->indexes; index && choice->ranges; index = index->next)
        if ((!selection->tree || selection->tree == index->tree) &&
            !owner_map_problem(&transfer->map, index->number))
            choose_of(transfer, selection, index->number, choice);
    owner_turn_give(&owner->adopting);
    if (!choice->ranges)
        return pool_fail_memory(tree_session_pool(transfer->session));
    thin(choice, selection->per_mille);
    return choice->count ? 0
                         : pool_fail(tree_session_pool(transfer->session), BANYAN_ENOTFOUND,
                                     "no range matches that could be moved");
}

/* ---- moving ---- */

/* Ranges that are there already are none to be moved. */
static void leave_out(struct choice *choice)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < choice->count; i++)
        if (!fabric_process_equal(choice->ranges[i].owner, choice->ranges[i].next))
            choice->ranges[kept++] = choice->ranges[i];
    choice->count = kept;
}

static int taker_good(struct owner_transfer *transfer, struct fabric_process to)
{
    struct owner_members members;
    char text[OWNER_TEXT_BYTES];
    bool alive = false, member = false, logs = false;
    const bool self = fabric_process_equal(to, transfer->owner->self);
    if (owner_nobody(to) || self)
        return owner_unkept_allow(transfer->owner, transfer->session, to,
                                  self && transfer->owner->options.log);
    int status = owner_alive(transfer->owner, transfer->session, to, &alive);
    if (!status) {
        status = owner_board_members(transfer->owner, transfer->session, &members);
        const struct memory_board_member *found = owner_members_find(&members, to);
        member = found != NULL;
        logs = found && found->logs == MEMORY_BOARD_LOGS;
        owner_members_free(&members);
    }
    if (!status && (!alive || !member))
        status =
            pool_fail(tree_session_pool(transfer->session), BANYAN_ENOTFOUND,
                      "%s does not take part in this cluster", owner_describe(transfer->owner, to, text));
    return status ? status : owner_unkept_allow(transfer->owner, transfer->session, to, logs);
}

int owner_move(struct owner *owner, struct tree_session *session, const struct owner_selection *selection,
               struct fabric_process to, uint32_t *moved)
{
    struct owner_transfer transfer;
    struct choice choice = {0};
    if (moved)
        *moved = 0;
    if (selection->tree && !attached(owner, session, selection->tree))
        return BANYAN_EINVAL;
    int status = owner_heirs_await(owner, session); /* one that keeps no log gets none with heirs */
    if (status)
        return status;
    status = owner_transfer_begin(&transfer, owner, session, true);
    if (status)
        return status;
    status = taker_good(&transfer, to);
    if (!status)
        status = choose(&transfer, selection, &choice);
    for (uint32_t i = 0; i < choice.count && !status; i++)
        choice.ranges[i].next = to;
    if (!status) {
        leave_out(&choice);
        status = owner_transfer_move(&transfer, choice.ranges, choice.count);
    }
    if (!status && moved)
        *moved = choice.count;
    heap_free(&owner->heap, choice.ranges);
    return owner_transfer_end(&transfer, status);
}

int owner_take(struct owner *owner, struct tree_session *session, const struct owner_selection *selection,
               uint32_t *moved)
{
    return owner_move(owner, session, selection, owner->self, moved);
}

int owner_share(struct owner *owner, struct tree_session *session, const struct owner_selection *selection,
                uint32_t *moved)
{
    return owner_move(owner, session, selection, (struct fabric_process){0}, moved);
}

/* ---- leaving ---- */

/* What this process has, of one index or (NULL) of all, to the other willing processes. */
static int give(struct owner_transfer *transfer, const struct tree *only)
{
    struct owner *owner = transfer->owner;
    struct fabric_process *takers = NULL;
    uint32_t taker_count = 0, count = 0;
    bool inherit = false;
    struct format_range *ranges =
        heap_allocate(&transfer->owner->heap, (transfer->map.count + 1) * sizeof *ranges);
    if (!ranges)
        return pool_fail_memory(tree_session_pool(transfer->session));
    for (uint32_t i = 0; i < transfer->map.count; i++)
        if (transfer->map.ranges[i].state == FORMAT_RANGE_SETTLED &&
            fabric_process_equal(transfer->map.ranges[i].owner, owner->self) &&
            (!only || transfer->map.ranges[i].number == tree_number(only))) {
            ranges[count++] = transfer->map.ranges[i];
            inherit = inherit || transfer->map.ranges[i].heir_count;
        }
    int status =
        count ? owner_takers(owner, transfer->session, owner->self, inherit, &takers, &taker_count) : 0;
    if (!status) {
        owner_spread(ranges, count, takers, taker_count);
        status = owner_transfer_move(transfer, ranges, count);
    }
    heap_free(&transfer->owner->heap, takers);
    heap_free(&transfer->owner->heap, ranges);
    return status;
}

/* Whether the map that was adopted last has ranges of this process. */
static bool owns_some(struct owner *owner)
{
    bool some = false;
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < owner->copy.count && !some; i++)
        some = fabric_process_equal(owner->copy.ranges[i].owner, owner->self) ||
               fabric_process_equal(owner->copy.ranges[i].next, owner->self);
    owner_turn_give(&owner->adopting);
    return some;
}

int owner_release(struct owner *owner, struct tree_session *session)
{
    struct owner_transfer transfer;
    atomic_store_relaxed(&owner->released, true); /* a flag that orders nothing */
    int status = owner_tell(owner, session);      /* nobody gives it ranges from here on */
    if (!status && owns_some(owner))              /* others' may wait for an operator (banyan recover) */
        status = owner_heirs_await(owner, session);
    if (!status)
        status = owner_transfer_begin(&transfer, owner, session, true);
    if (status)
        return status;
    return owner_transfer_end(&transfer, give(&transfer, NULL));
}

int owner_give(struct owner *owner, struct tree_session *session, const struct tree *tree)
{
    struct owner_transfer transfer;
    int status = owner_heirs_await(owner, session);
    if (!status)
        status = owner_transfer_begin(&transfer, owner, session, true);
    return status ? status : owner_transfer_end(&transfer, give(&transfer, tree));
}

int owner_leave(struct owner *owner, struct tree_session *session)
{
    struct memory_board_reply reply;
    struct memory_board_request request = {.kind = MEMORY_BOARD_LEAVE};
    owner_turn_take(&owner->adopting);
    int status = owner->entered ? owner_board_call(session, &request, &reply) : 0;
    owner_turn_give(&owner->adopting);
    return status;
}

/* ---- the end of an index ---- */

/* From the last entry down, so that those that are left always begin at the least key. */
static int remove_entries(struct owner_transfer *transfer, uint16_t number, uint32_t keep)
{
    uint32_t count;
    int status = 0;
    const struct format_range *ranges = owner_map_of(&transfer->map, number, &count);
    uint32_t first = ranges ? (uint32_t)(ranges - transfer->map.ranges) : 0;
    while (count > keep && !status)
        status = owner_transfer_remove(transfer, first + --count);
    return status;
}

/* All shared, then one entry, then closed. */
static int close_index(struct owner_transfer *transfer, uint16_t number)
{
    uint32_t count, moves = 0;
    const struct format_range *ranges = owner_map_of(&transfer->map, number, &count);
    struct format_range *moving = heap_allocate(&transfer->owner->heap, (count + 1) * sizeof *moving);
    if (!moving)
        return pool_fail_memory(tree_session_pool(transfer->session));
    for (uint32_t i = 0; i < count; i++)
        if (!owner_nobody(ranges[i].owner)) {
            moving[moves] = ranges[i];
            moving[moves++].next = (struct fabric_process){0};
        }
    int status = owner_transfer_move(transfer, moving, moves);
    heap_free(&transfer->owner->heap, moving);
    if (!status)
        status = remove_entries(transfer, number, 1);
    struct format_range closed = {
        .number = number, .state = FORMAT_RANGE_CLOSED, .epoch = transfer->version + 1};
    if (!status)
        status = owner_transfer_write(transfer, &closed, 1);
    return status ? status : owner_transfer_publish(transfer);
}

int owner_close(struct owner *owner, struct tree_session *session, struct tree *tree)
{
    struct owner_transfer transfer;
    if (!attached(owner, session, tree))
        return BANYAN_EINVAL;
    int status = owner_heirs_await(owner, session);
    if (!status)
        status = owner_transfer_begin(&transfer, owner, session, true);
    if (status)
        return status;
    return owner_transfer_end(&transfer, close_index(&transfer, tree_number(tree)));
}

int owner_forget(struct owner *owner, struct tree_session *session, struct tree *tree)
{
    struct owner_transfer transfer;
    if (!attached(owner, session, tree))
        return BANYAN_EINVAL;
    int status = owner_transfer_begin(&transfer, owner, session, true);
    if (status)
        return status;
    status = remove_entries(&transfer, tree_number(tree), 0);
    if (!status)
        status = owner_transfer_publish(&transfer);
    return owner_transfer_end(&transfer, status);
}
