/* heirs.c - see heirs.h. Any task; round trips are those of the log's hooks, and of a transfer. */
#include "owner/heirs.h"

#include <assert.h>
#include <string.h>

#include "owner/await.h"
#include "owner/board.h"
#include "owner/refused.h"
#include "owner/transfer.h"

#define AWAIT_NS (1 * MILLISECOND)

/* ---- lists of pieces ---- */

static struct owner_piece piece_of(const struct format_range *range, const struct format_range *upper)
{
    struct owner_piece piece = {.number = range->number, .epoch = range->epoch, .has_upper = upper != NULL};
    format_key_store(&piece.lower, (struct format_key){range->lower, range->lower_length});
    if (upper)
        format_key_store(&piece.upper, (struct format_key){upper->lower, upper->lower_length});
    return piece;
}

static int list_add(struct owner *owner, struct tree_session *session, struct owner_pieces *list,
                    const struct owner_piece *piece)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity ? 2 * list->capacity : 8;
        struct owner_piece *all = heap_resize(&owner->heap, list->all, capacity * sizeof *all);
        if (!all)
            return pool_fail_memory(tree_session_pool(session));
        list->all = all;
        list->capacity = capacity;
    }
    list->all[list->count++] = *piece;
    return 0;
}

static void list_remove(struct owner_pieces *list, uint32_t at)
{
    list->all[at] = list->all[--list->count];
}

/* Whether the piece begins at the key or below, and goes on behind it. */
static bool holds(const struct owner_piece *piece, struct format_key key)
{
    return format_key_compare(format_key_of(&piece->lower), key) <= 0 &&
           (!piece->has_upper || format_key_compare(key, format_key_of(&piece->upper)) < 0);
}

/* Of the piece the first part that the list has not; false: it has all of it, maybe in several parts: a bound
 * at which one was cut may have been taken away again. */
static bool list_lacks(const struct owner_pieces *list, struct owner_piece *piece)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const struct owner_piece *one = &list->all[i];
        if (one->number != piece->number || one->epoch != piece->epoch ||
            !holds(one, format_key_of(&piece->lower)))
            continue;
        if (!one->has_upper || (piece->has_upper && format_key_compare(format_key_of(&piece->upper),
                                                                       format_key_of(&one->upper)) <= 0))
            return false;
        piece->lower = one->upper;
        i = UINT32_MAX; /* from the first one on: what has the rest may lie anywhere */
    }
    for (uint32_t i = 0; i < list->count; i++) {
        const struct owner_piece *one = &list->all[i];
        if (one->number != piece->number || one->epoch != piece->epoch ||
            !holds(piece, format_key_of(&one->lower)))
            continue;
        piece->upper = one->lower;
        piece->has_upper = true;
    }
    return true;
}

static bool list_covers(const struct owner_pieces *list, const struct owner_piece *piece)
{
    struct owner_piece lacking = *piece;
    return !list_lacks(list, &lacking);
}

/* What both have in common: the piece's number and epoch; false: nothing. */
static bool overlap(const struct owner_piece *piece, const struct owner_piece *other,
                    struct owner_piece *common)
{
    *common = *piece;
    if (piece->number != other->number)
        return false;
    if (format_key_compare(format_key_of(&other->lower), format_key_of(&piece->lower)) > 0)
        common->lower = other->lower;
    if (other->has_upper && (!piece->has_upper || format_key_compare(format_key_of(&other->upper),
                                                                     format_key_of(&piece->upper)) < 0)) {
        common->upper = other->upper;
        common->has_upper = true;
    }
    return !common->has_upper ||
           format_key_compare(format_key_of(&common->lower), format_key_of(&common->upper)) < 0;
}

void owner_heirs_destroy(struct owner *owner)
{
    owner_refused_destroy(owner);
    heap_free(&owner->heap, owner->inherited.all);
    heap_free(&owner->heap, owner->flushed.all);
    heap_free(&owner->heap, owner->lent.all);
    heap_free(&owner->heap, owner->stranded.all);
}

static bool list_has_epoch(const struct owner_pieces *list, uint64_t epoch)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->all[i].epoch == epoch)
            return true;
    return false;
}

int owner_heirs_lend(struct owner *owner, struct tree_session *session, uint64_t epoch)
{
    const struct owner_piece piece = {.epoch = epoch};
    owner_turn_take(&owner->adopting);
    int status = list_has_epoch(&owner->lent, epoch) ? 0 : list_add(owner, session, &owner->lent, &piece);
    owner_turn_give(&owner->adopting);
    return status;
}

bool owner_heirs_lent(const struct owner *owner, uint64_t epoch)
{
    return list_has_epoch(&owner->lent, epoch);
}

int owner_heirs_strand(struct owner *owner, struct tree_session *session, uint16_t number)
{
    const struct owner_piece piece = {.number = number};
    return owner_heirs_stranded(owner, number) ? 0 : list_add(owner, session, &owner->stranded, &piece);
}

bool owner_heirs_stranded(const struct owner *owner, uint16_t number)
{
    for (uint32_t i = 0; i < owner->stranded.count; i++)
        if (owner->stranded.all[i].number == number)
            return true;
    return false;
}

/* ---- what the map says ---- */

static bool mine(const struct owner *owner, const struct format_range *range)
{
    return fabric_process_equal(range->owner, owner->self);
}

static bool mine_now(const struct owner *owner, const struct format_range *range)
{
    return mine(owner, range) && range->state != FORMAT_RANGE_MOVING;
}

static bool names(const struct format_range *range, struct fabric_process process)
{
    bool named = fabric_process_equal(range->owner, process) || fabric_process_equal(range->next, process);
    for (uint32_t i = 0; i < range->heir_count && !named; i++)
        named = fabric_process_equal(range->heirs[i].process, process);
    return named;
}

static bool inherited(const struct owner *owner, const struct format_range *range,
                      const struct format_range *upper)
{
    const struct owner_piece piece = piece_of(range, upper);
    return list_covers(&owner->inherited, &piece);
}

bool owner_heirs_ready(const struct owner *owner, const struct format_range *range,
                       const struct format_range *upper)
{
    return owner->options.log && range->heir_count < FORMAT_RANGE_HEIRS_MAX && inherited(owner, range, upper);
}

/* ---- adopting ---- */

struct adopting {
    struct owner *owner;
    struct tree_session *session;
    const struct owner_map *before;
};

static const struct format_key *bound_of(const struct owner_piece *piece, struct format_key *bound)
{
    *bound = format_key_of(&piece->upper);
    return piece->has_upper ? bound : NULL;
}

/* Merges the range, which moves to a process that will not inherit it. Bound to the incarnation in which this
 * process had the right: if a connection was lost since, this process may have been fenced, and then the next
 * owner has inherited, and writes to these leaves. */
static int flush(struct adopting *adopting, const struct format_range *range, const struct format_range *next)
{
    struct owner *owner = adopting->owner;
    struct pool_session *pool = tree_session_pool(adopting->session);
    const struct owner_piece piece = piece_of(range, next);
    const struct owner_index *index = owner_index_numbered(owner, range->number);
    struct format_key upper;
    if (list_covers(&owner->flushed, &piece))
        return 0;
    if (!index)
        return owner_heirs_stranded(owner, range->number)
                   ? pool_fail(pool, BANYAN_ENET,
                               "a range is to be shared whose index was closed before it was merged")
                   : 0;
    pool->pinned = adopting->before->incarnation ? adopting->before->incarnation : owner->copy.incarnation;
    int status = owner->log->flush(owner->log_context, adopting->session, index->tree,
                                   format_key_of(&piece.lower), bound_of(&piece, &upper));
    owner->overdue = status && pool->pinned != fabric_incarnation(owner->fabric);
    pool->pinned = 0;
    return status ? status : list_add(owner, adopting->session, &owner->flushed, &piece);
}

static int flush_all(struct adopting *adopting)
{
    const struct owner *owner = adopting->owner;
    int status = 0;
    for (uint32_t i = 0; i < owner->copy.count && !status; i++) {
        const struct format_range *range = &owner->copy.ranges[i];
        if (mine(owner, range) && range->state == FORMAT_RANGE_MOVING && range->logged && !range->inherited)
            status = flush(adopting, range, owner_map_after(&owner->copy, i));
    }
    return status;
}

bool owner_heirs_overdue(const struct owner *owner, const struct format_range *range,
                         const struct format_range *upper)
{
    const struct owner_piece piece = piece_of(range, upper);
    return mine(owner, range) && range->state == FORMAT_RANGE_MOVING && range->logged && !range->inherited &&
           owner->copy.incarnation != fabric_incarnation(owner->fabric) &&
           !list_covers(&owner->flushed, &piece);
}

/* The task that inherits ends first: it does not wait for the turn meanwhile. */
static void await_inheriting(struct owner *owner, const struct owner_piece *lost)
{
    struct owner_piece common;
    while (atomic_load_acquire(&owner->inheriting) && overlap(lost, &owner->under_way, &common))
        task_sleep(50 * MICROSECOND);
}

static void disown(struct owner *owner, const struct owner_piece *piece)
{
    const struct owner_index *index = owner_index_numbered(owner, piece->number);
    struct format_key upper;
    await_inheriting(owner, piece);
    if (index)
        owner->log->disown(owner->log_context, index->tree, format_key_of(&piece->lower),
                           bound_of(piece, &upper), piece->epoch);
}

/* Whether this process has the range as before, or has just flushed it. One that was another's in between has
 * another epoch. */
static bool keeps(const struct owner *owner, const struct format_range *was, const struct format_range *is)
{
    if (!mine(owner, is))
        return false;
    if (is->state == FORMAT_RANGE_MOVING)
        return is->logged && !is->inherited;
    return is->epoch == was->epoch;
}

/* What of a range that this process had is gone. */
static void disown_lost(struct adopting *adopting, uint32_t at)
{
    const struct owner *owner = adopting->owner;
    const struct format_range *was = &adopting->before->ranges[at];
    const struct owner_piece piece = piece_of(was, owner_map_after(adopting->before, at));
    struct owner_piece common;
    uint32_t count;
    const struct format_range *ranges = owner_map_of(&owner->copy, was->number, &count);
    if (!count) /* shared as a whole: it was closed, and dropped */
        disown(adopting->owner, &piece);
    for (uint32_t i = 0; i < count; i++) {
        const struct owner_piece now = piece_of(&ranges[i], i + 1 < count ? &ranges[i + 1] : NULL);
        if (overlap(&piece, &now, &common) && !keeps(owner, was, &ranges[i]))
            disown(adopting->owner, &common);
    }
}

/* What the map says of a piece of this process's. */
struct piece_look {
    bool mine;  /* its entries are this process's still, under its epoch */
    bool stays; /* ... and none of them moves on */
    bool heirs; /* one of them has heirs */
};

static struct piece_look piece_look(const struct owner *owner, const struct owner_piece *piece)
{
    uint32_t count;
    const struct format_range *ranges = owner_map_of(&owner->copy, piece->number, &count);
    struct piece_look look = {.mine = count, .stays = count};
    struct owner_piece common;
    for (uint32_t i = 0; i < count; i++) {
        const struct owner_piece now = piece_of(&ranges[i], i + 1 < count ? &ranges[i + 1] : NULL);
        if (!overlap(piece, &now, &common))
            continue;
        look.mine = look.mine && mine(owner, &ranges[i]) && ranges[i].epoch == piece->epoch;
        look.stays = look.stays && look.mine && mine_now(owner, &ranges[i]);
        look.heirs = look.heirs || ranges[i].heir_count;
    }
    return look;
}

/* Pieces whose heirs are off the map, or that are not this process's any more. Those that were lost in part
 * go on in what is left: parts that lie within one entry each. Of a range that moves on to be merged the log
 * is told here that its heirs are off, if it was not yet: it may be in the same version. Nobody says so
 * later, and the log would keep all that it has logged since. */
static void settle_inherited(struct owner *owner)
{
    struct format_key upper;
    for (uint32_t i = owner->inherited.count; i-- > 0;) {
        const struct owner_piece piece = owner->inherited.all[i];
        const struct owner_index *index = owner_index_numbered(owner, piece.number);
        const struct piece_look look = piece_look(owner, &piece);
        if (look.stays && look.heirs)
            continue;
        if (look.mine && !look.heirs && index)
            owner->log->cleared(owner->log_context, index->tree, format_key_of(&piece.lower),
                                bound_of(&piece, &upper), piece.epoch);
        list_remove(&owner->inherited, i);
    }
}

/* Pieces that were inherited are cut at the bounds that the map has now, so that parts go their own ways. */
static int cut_inherited(struct adopting *adopting)
{
    struct owner *owner = adopting->owner;
    const uint32_t pieces = owner->inherited.count;
    struct owner_piece common;
    int status = 0;
    for (uint32_t at = 0; at < pieces && !status; at++) {
        const struct owner_piece piece = owner->inherited.all[at];
        uint32_t count;
        const struct format_range *ranges = owner_map_of(&owner->copy, piece.number, &count);
        bool first = true;
        for (uint32_t i = 0; i < count && !status; i++) {
            const struct owner_piece now = piece_of(&ranges[i], i + 1 < count ? &ranges[i + 1] : NULL);
            if (!overlap(&piece, &now, &common))
                continue;
            if (first)
                owner->inherited.all[at] = common;
            else
                status = list_add(owner, adopting->session, &owner->inherited, &common);
            first = false;
        }
    }
    return status;
}

static void settle_flushed(struct owner *owner)
{
    struct owner_piece now, common;
    for (uint32_t i = owner->flushed.count; i-- > 0;) {
        bool moving = false;
        for (uint32_t k = 0; k < owner->copy.count && !moving; k++) {
            const struct format_range *range = &owner->copy.ranges[k];
            now = piece_of(range, owner_map_after(&owner->copy, k));
            moving = mine(owner, range) && range->state == FORMAT_RANGE_MOVING &&
                     overlap(&owner->flushed.all[i], &now, &common);
        }
        if (!moving)
            list_remove(&owner->flushed, i);
    }
}

/* Tells the log of each attached index that no range names this process as an heir, or that it ended. A range
 * that moves on is going to. */
static void tell_released(struct owner *owner)
{
    for (const struct owner_index *index = owner->indexes; index; index = index->next) {
        uint32_t count;
        const struct format_range *ranges = owner_map_of(&owner->copy, index->number, &count);
        bool named = owner_map_problem(&owner->copy, index->number) != NULL;
        for (uint32_t i = 0; i < count && !named; i++) {
            named = mine(owner, &ranges[i]) && ranges[i].state == FORMAT_RANGE_MOVING;
            for (uint32_t k = 0; k < ranges[i].heir_count && !named; k++)
                named = fabric_process_equal(ranges[i].heirs[k].process, owner->self);
        }
        if (!named)
            owner->log->released(owner->log_context, index->tree, owner->copy.version);
        if (count && ranges[0].state == FORMAT_RANGE_CLOSED)
            owner->log->dropped(owner->log_context, index->tree);
    }
}

/* Whether there is something to inherit, or to take off. */
static bool something_pending(const struct owner *owner)
{
    bool pending = owner->inherited.count > 0;
    for (uint32_t i = 0; i < owner->copy.count && !pending; i++)
        pending = mine_now(owner, &owner->copy.ranges[i]) && owner->copy.ranges[i].heir_count;
    return pending;
}

int owner_heirs_adopted(struct owner *owner, struct tree_session *session, const struct owner_map *before)
{
    struct adopting adopting = {.owner = owner, .session = session, .before = before};
    if (!owner->log)
        return 0;
    int status = flush_all(&adopting);
    if (!status)
        status = cut_inherited(&adopting);
    if (status)
        return status;
    for (uint32_t i = 0; i < before->count; i++)
        if (mine_now(owner, &before->ranges[i]) && format_range_unmerged(&before->ranges[i]))
            disown_lost(&adopting, i);
    settle_inherited(owner);
    settle_flushed(owner);
    tell_released(owner);
    atomic_store_relaxed(&owner->heirs_pending, something_pending(owner)); /* a hint */
    if (owner_heirs_pending(owner))
        owner_wake(owner);
    return 0;
}

/* ---- inheriting ---- */

/* The next range that is to be inherited, none that failed; its index is kept until owner_index_put. *piece:
 * what was not inherited of it. The rest may have been served, and what its heirs had of it been changed. */
static struct owner_index *find(struct owner *owner, const struct owner_pieces *failed,
                                struct format_range *range, struct owner_piece *piece)
{
    struct owner_index *index = NULL;
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < owner->copy.count && !index; i++) {
        const struct format_range *one = &owner->copy.ranges[i];
        const struct format_range *upper = owner_map_after(&owner->copy, i);
        *piece = piece_of(one, upper);
        if (!mine_now(owner, one) || !one->heir_count || !list_lacks(&owner->inherited, piece) ||
            owner_map_problem(&owner->copy, one->number))
            continue;
        if (owner_refused_wait(owner, piece) || list_covers(failed, piece))
            continue;
        index = owner_index_get(owner, one->number);
        *range = *one;
    }
    if (index) {
        owner->under_way = *piece;
        atomic_store_release(&owner->inheriting, true); /* release: what is under way */
    }
    owner_turn_give(&owner->adopting);
    return index;
}

/* The range was inherited: it is served from now on, if it is this process's still. */
static int conclude(struct owner *owner, struct tree_session *session, struct owner_index *index,
                    const struct owner_piece *piece)
{
    int status = 0;
    owner_turn_take(&owner->adopting);
    if (piece_look(owner, piece).stays) {
        status = list_add(owner, session, &owner->inherited, piece);
        if (!status)
            status = owner_install_again(owner, session, index);
    }
    owner_turn_give(&owner->adopting);
    return status;
}

static int inherit_one(struct owner *owner, struct tree_session *session, const struct owner_pieces *failed,
                       struct owner_piece *piece, bool *done)
{
    struct format_range range;
    struct format_key upper;
    struct owner_index *index = find(owner, failed, &range, piece);
    *done = !index;
    if (!index)
        return 0;
    int status = owner->log->inherit(owner->log_context, session, index->tree, range.heirs, range.heir_count,
                                     format_key_of(&piece->lower), bound_of(piece, &upper), piece->epoch);
    atomic_store_release(&owner->inheriting, false); /* release: what was inherited */
    if (status == BANYAN_ECORRUPT)
        owner_refused_note(owner, piece, tree_session_error(session)->text);
    else if (!status)
        owner_refused_end(owner, piece);
    if (!status)
        status = conclude(owner, session, index, piece);
    owner_index_put(owner, index);
    if (!status)
        OWNER_COUNT(owner, inherited, 1);
    return status == BANYAN_ECORRUPT ? 0 : status; /* other ranges go on */
}

/* A range that fails, since a memory node is away, keeps no others waiting: all that they need of the heirs'
 * logs may have been read already. It is tried again in the next step. */
static int inherit_all(struct owner *owner, struct tree_session *session)
{
    struct owner_pieces failed = {0};
    struct owner_piece piece;
    int first = 0;
    for (bool done = false; !done;) {
        int status = inherit_one(owner, session, &failed, &piece, &done);
        first = first ? first : status;
        if (status && list_add(owner, session, &failed, &piece))
            break;
    }
    heap_free(&owner->heap, failed.all);
    return first;
}

/* ---- taking heirs off ---- */

/* What the memory nodes keep of a dead heir's log, if no entry names it any more. */
static int release_dead(struct owner_transfer *transfer, struct fabric_process heir)
{
    struct owner *owner = transfer->owner;
    struct owner_members members;
    bool alive;
    for (uint32_t i = 0; i < transfer->map.count; i++)
        if (names(&transfer->map.ranges[i], heir))
            return 0;
    if (fabric_process_equal(heir, owner->self) || transfer->map.problem_count)
        return 0;
    int status = owner_alive(owner, transfer->session, heir, &alive);
    if (status || alive)
        return status;
    status = owner_board_members(owner, transfer->session, &members);
    const struct memory_board_member *member = status ? NULL : owner_members_find(&members, heir);
    const uint64_t serial = member ? member->serial : 0;
    owner_members_free(&members);
    if (!status) /* what it posted before its end must not reach blocks that are others' by then */
        status = owner_await_gone(transfer, heir, serial);
    return status ? status : owner->log->release_dead(owner->log_context, transfer->session, heir);
}

/* The entries of this process's that have heirs and were inherited; returns how many. */
static uint32_t choose(struct owner_transfer *transfer, struct format_range *ranges)
{
    struct owner *owner = transfer->owner;
    const struct owner_map *map = &transfer->map;
    uint32_t count = 0;
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < map->count; i++)
        if (mine_now(owner, &map->ranges[i]) && map->ranges[i].heir_count &&
            inherited(owner, &map->ranges[i], owner_map_after(map, i)))
            ranges[count++] = map->ranges[i];
    owner_turn_give(&owner->adopting);
    return count;
}

/* Whether an heir before this one is the same process. */
static bool named_before(const struct format_range *ranges, uint32_t range, uint32_t heir)
{
    const struct fabric_process process = ranges[range].heirs[heir].process;
    for (uint32_t i = 0; i <= range; i++)
        for (uint32_t k = 0; k < (i < range ? ranges[i].heir_count : heir); k++)
            if (fabric_process_equal(ranges[i].heirs[k].process, process))
                return true;
    return false;
}

static int take_off(struct owner_transfer *transfer)
{
    struct owner *owner = transfer->owner;
    struct format_range *ranges =
        heap_allocate_zeros(&owner->heap, 2 * (transfer->map.count + 1), sizeof *ranges);
    if (!ranges)
        return pool_fail_memory(tree_session_pool(transfer->session));
    const uint32_t count = choose(transfer, ranges);
    struct format_range *were = ranges + count;
    memcpy(were, ranges, count * sizeof *ranges);
    for (uint32_t i = 0; i < count; i++) {
        ranges[i].heir_count = 0;
        memset(ranges[i].heirs, 0, sizeof ranges[i].heirs);
    }
    int status = count ? owner_transfer_write(transfer, ranges, count) : 0;
    if (count && !status)
        status = owner_transfer_publish(transfer);
    for (uint32_t i = 0; i < count && !status; i++)
        for (uint32_t k = 0; k < were[i].heir_count && !status; k++)
            if (!named_before(were, i, k))
                status = release_dead(transfer, were[i].heirs[k].process);
    heap_free(&owner->heap, ranges);
    return status;
}

static bool some_inherited(struct owner *owner)
{
    owner_turn_take(&owner->adopting);
    const bool some = owner->inherited.count > 0;
    owner_turn_give(&owner->adopting);
    return some;
}

int owner_heirs_step(struct owner *owner, struct tree_session *session)
{
    struct owner_transfer transfer;
    if (!owner->log || !owner_turn_try(&owner->heirs_turn))
        return 0;
    int status = inherit_all(owner, session);
    if (some_inherited(owner)) { /* also where another range cannot be inherited yet */
        int taken = owner_transfer_begin(&transfer, owner, session, false);
        if (!taken)
            taken = owner_transfer_end(&transfer, take_off(&transfer));
        else if (taken == BANYAN_EBUSY)
            taken = 0;
        status = status ? status : taken;
    }
    owner_turn_give(&owner->heirs_turn);
    return status;
}

/* ---- waiting ---- */

/* Whether a process that is there will take the range's heirs off. This one inherits ranges of indexes that
 * it has open, and no others. */
static bool awaited(const struct owner *owner, const struct format_range *range,
                    const struct fabric_process *processes, uint32_t count)
{
    return range->heir_count && owner_among(processes, count, range->owner) &&
           (!mine(owner, range) || owner_index_numbered(owner, range->number));
}

/* Whether a range of the adopted map has heirs that are waited for. */
static int look(struct owner *owner, struct tree_session *session, bool *some)
{
    struct fabric_process *processes = NULL;
    uint32_t count = 0;
    bool heirs = false;
    *some = false;
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < owner->copy.count && !heirs; i++)
        heirs = owner->copy.ranges[i].heir_count > 0;
    owner_turn_give(&owner->adopting);
    if (!heirs)
        return 0;
    int status = owner_processes(owner, session, &processes, &count);
    owner_turn_take(&owner->adopting);
    for (uint32_t i = 0; i < owner->copy.count && !status && !*some; i++)
        *some = awaited(owner, &owner->copy.ranges[i], processes, count);
    owner_turn_give(&owner->adopting);
    heap_free(&owner->heap, processes);
    return status;
}

int owner_heirs_await(struct owner *owner, struct tree_session *session)
{
    const uint64_t began = task_now();
    struct memory_board_reply board;
    for (;;) {
        bool some;
        int status = look(owner, session, &some);
        if (status || !some || task_now() - began >= owner->options.timeout_ns)
            return status;
        (void)owner_heirs_step(owner, session); /* what fails is tried again, until the time-out */
        if (!owner_board_look(session, &board))
            (void)owner_refresh(owner, session, board.version);
        task_sleep(AWAIT_NS);
    }
}
