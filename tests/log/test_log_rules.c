/*
 * test_log_rules.c - single rules of the owner's log, each where it is easily broken: what happens between
 * two given lists is brought about by hand (processes.h). One thread.
 */
#include "processes.h"

#include <string.h>

#include "base/error.h"
#include "failing.h"
#include "log/reader.h"
#include "log/state.h"
#include "tree/index.h"
#include "tree/locate.h"
#include "tree/logging.h"
#include "tree/owners.h"
#include "tree/owned_cache.h"
#include "tree/session.h"
#include "tree/wrapper.h"

static struct processes world;

static bool is_frame(const struct process *process, const struct fabric_list *list)
{
    const struct fabric_command *last = &list->commands[list->count - 1];
    const struct log_segment *current = process->log->streams[list->node].current;
    return last->operation == FABRIC_WRITE && current && last->address > current->pool.address &&
           last->address < current->pool.address + current->size;
}

/* ---- the watermark ---- */

/* A hook that does something before the first WRITE of so many bytes. */
struct moment {
    struct process *process;
    uint32_t least, most;
    void (*act)(struct process *process);
    unsigned acted;
    bool no_frame, within;
};

static int at_moment(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct moment *moment = context;
    const struct fabric_command *last = &list->commands[list->count - 1];
    if (!moment->within && !moment->acted && last->operation == FABRIC_WRITE &&
        last->length >= moment->least && last->length <= moment->most &&
        !(moment->no_frame && is_frame(moment->process, list))) {
        moment->within = true;
        moment->act(moment->process);
        moment->within = false;
        moment->acted++;
    }
    return wrapper_pass(endpoint, list, list->count);
}

static void merge_meanwhile(struct process *process)
{
    assert_int_equal(log_flush_all(process->log, process->spare), 0);
}

static unsigned keys_right(struct process *process, unsigned from, unsigned to, uint64_t value)
{
    unsigned right = 0;
    for (unsigned i = from; i < to; i++)
        right += process_get(process, i) == value + i;
    return right;
}

static void put_keys(struct process *process, unsigned from, unsigned to, uint64_t value)
{
    for (unsigned i = from; i < to; i++)
        process_check(process, process_put(process, i, value + i));
}

/* A cycle between what is logged again and its place in the table does not take it for merged. */
static void a_cycle_while_a_range_is_inherited(void **state)
{
    (void)state;
    processes_open(&world, 2, 0);
    struct process *first = process_start(&world), *second = process_start(&world);
    process_own(&world, first);
    put_keys(first, 0, 40, 1000);
    process_dies(&world, first);
    struct moment moment = {.process = second, .least = 512, .most = UINT32_MAX, .act = merge_meanwhile};
    process_hooked(second, at_moment, &moment);
    process_own(&world, second);
    assert_int_equal(moment.acted, 1);
    process_hooked(second, NULL, NULL);
    heirs_end(&world, second);
    /* What was taken over counts as merged no sooner than it is: the process may publish now, and dies. */
    put_keys(second, 100, 101, 1);
    process_dies(&world, second);
    struct process *third = process_start(&world);
    process_own(&world, third);
    assert_int_equal(keys_right(third, 0, 40, 1000), 40);
    processes_close(&world);
}

/* A share that one of the process's tasks merges, while another brings something about. */
struct share {
    struct process *process, *other; /* other: gets the range, and gives it back; NULL: it stays */
    bool within;
};

/* Key 0 gets another value meanwhile, which is merged. */
static void range_goes_and_comes_back(struct process *process, struct process *other)
{
    process_gives_away(&world, process);
    process_others(&world, process, other);
    process_own(&world, other);
    heirs_end(&world, other);
    put_keys(other, 0, 1, 2000);
    assert_int_equal(log_flush_all(other->log, other->session), 0);
    process_gives_away(&world, other);
    process_others(&world, other, process);
    process_own(&world, process);
    heirs_end(&world, process);
}

/* The first READ of the share's is for the way to its leaf: it is located, and no right is announced yet. */
static int while_locating(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct share *share = context;
    struct process *other = share->other;
    if (!share->within && other && list->commands[0].operation == FABRIC_READ) {
        share->within = true;
        share->other = NULL;
        range_goes_and_comes_back(share->process, other);
    }
    return wrapper_pass(endpoint, list, list->count);
}

/* Returns how many requests it took. */
static uint64_t merge_share(struct process *process, struct process *other)
{
    struct share share = {.process = process, .other = other};
    struct tree_log_walk walk = {.least = UINT64_MAX};
    const uint64_t before = tree_session_stats(process->spare)->merge_calls;
    tree_root_forget(process->tree);
    process_hooked(process, while_locating, &share);
    (void)tree_log_apply(process->spare, process->tree, &walk, TREE_LOG_APPLY_MAX);
    process_hooked(process, NULL, NULL);
    assert_null(share.other);
    return tree_session_stats(process->spare)->merge_calls - before;
}

/* L5, of what memory nodes merge: a process that loses the range while it locates what it has taken to be
 * merged, and has the range again by the time it announces its right, has nothing of it to merge any more. */
static void what_was_dropped_is_merged_by_no_memory_node(void **state)
{
    (void)state;
    processes_open(&world, 2, 0);
    processes_merge_there(&world);
    struct process *first = process_start(&world), *second = process_start(&world);
    process_own(&world, first);
    put_keys(first, 0, 1, 1000);
    assert_int_equal(merge_share(first, NULL), 1);
    put_keys(first, 0, 1, 1001);
    const uint64_t requests = merge_share(first, second);
    assert_int_equal(process_get(first, 0), 2000);
    assert_int_equal(requests, 0);
    processes_close(&world);
}

/* What it cost to inherit the range under the process's epoch. */
static uint64_t reads_to_inherit(struct process *process, struct format_key lower,
                                 const struct format_key *upper)
{
    const uint64_t before = tree_session_stats(process->session)->cost.reads;
    process_check(process, log_inherit(process->log, process->session, process->tree, world.heirs,
                                       world.heir_count, lower, upper, process->epoch));
    return tree_session_stats(process->session)->cost.reads - before;
}

/* One transfer gives all that a dead process had: its log is READ for the first range, and not again. What
 * comes by a later transfer may lie in the log since. */
static void a_log_is_read_once_for_all_ranges_of_a_transfer(void **state)
{
    uint8_t middle[8];
    (void)state;
    processes_open(&world, 2, 0);
    struct process *first = process_start(&world), *second = process_start(&world);
    process_own(&world, first);
    put_keys(first, 0, 40, 1000);
    process_dies(&world, first);
    key_of(20, middle);
    const struct format_key least = {0}, bound = {middle, sizeof middle};
    process_moving(&world, second);
    second->epoch = world.version;
    assert_true(reads_to_inherit(second, least, &bound) > 0);
    assert_int_equal(reads_to_inherit(second, bound, NULL), 0);
    struct log_stats stats;
    log_stats(second->log, &stats);
    assert_int_equal(stats.inherited, 40);
    process_own_still(&world, second);
    assert_int_equal(keys_right(second, 0, 40, 1000), 40);
    process_moving(&world, second);
    second->epoch = world.version;
    assert_true(reads_to_inherit(second, bound, NULL) > 0);
    log_cleared(second->log, second->tree, least, NULL, second->epoch);
    assert_true(reads_to_inherit(second, bound, NULL) > 0); /* nothing was kept */
    processes_close(&world);
}

static int count_segments(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    for (unsigned i = 0; i < list->count; i++)
        *(unsigned *)context +=
            list->commands[i].operation == FABRIC_READ && list->commands[i].length > FORMAT_LOG_BLOCK;
    return wrapper_pass(endpoint, list, list->count);
}

/* How many segments the next process READs, of a log of three: of the first one all is merged, or, with
 * `late`, nothing of any. */
static unsigned segments_to_inherit(bool late)
{
    unsigned count = 0, keys = 0;
    processes_open(&world, 1, 1 << 20);
    struct process *first = process_start(&world);
    struct log_stream *stream = &first->log->streams[0];
    world.all[0].log->options.threshold = 4;
    process_own(&world, first);
    heirs_end(&world, first);
    while (stream->next_number < 4) { /* from 1 on */
        if (!late && stream->current && stream->current->size - stream->current->tail < 4096)
            process_check(first, log_flush_all(first->log, first->session));
        process_check(first, process_put(first, keys % 200, 1000 + keys % 200));
        keys++;
    }
    for (unsigned i = 0; i < 3; i++) /* the first ones may stand beside what is under way in the one before */
        process_check(first, process_put(first, i, 1000 + i));
    process_dies(&world, first);
    struct process *second = process_start(&world);
    process_hooked(second, count_segments, &count);
    process_own(&world, second);
    process_hooked(second, NULL, NULL);
    assert_int_equal(keys_right(second, 0, 200, 1000), 200);
    processes_close(&world);
    return count;
}

/* L7. A segment of which all is merged has nothing for the next owner, and is not READ. */
static void what_is_merged_is_not_read(void **state)
{
    (void)state;
    assert_int_equal(segments_to_inherit(true), 3);
    assert_int_equal(segments_to_inherit(false), 1);
}

/* Whatever allocation fails while everything is merged, the watermark passes nothing that was not. */
static void merging_that_runs_out_of_memory(void **state)
{
    (void)state;
    for (unsigned failing = 1, met = 1; met; failing++) {
        processes_open(&world, 2, 0);
        struct process *first = process_start(&world), *second = process_start(&world);
        process_own(&world, first);
        heirs_end(&world, first);
        put_keys(first, 0, 300, 1000);
        failing_begin(&(struct failing_order){
            .calls = FAILING_MEMORY, .where = FAILING_HERE, .first = failing, .count = 1, .error = 12});
        int status = log_flush_all(first->log, first->session);
        met = failing_end();
        assert_true(met || !status);
        process_dies(&world, first);
        process_own(&world, second);
        assert_int_equal(keys_right(second, 0, 300, 1000), 300);
        processes_close(&world);
    }
}

static uint64_t watermark_in_pool(struct process *process)
{
    uint8_t bytes[FORMAT_LOG_BLOCK] __attribute__((aligned(8)));
    struct format_log_control control;
    struct fabric_command read = pool_read_command(process->log->streams[0].control, bytes, sizeof bytes);
    struct pool_session *pool = tree_session_pool(process->session);
    pool_session_begin(pool);
    process_check(process, pool_execute(pool, 0, &read, 1));
    pool_read_settle(&read);
    assert_null(format_log_control_decode(bytes, &control));
    return control.watermark;
}

/* The log is opened again after a loss; a merger publishes just then. */
static void a_watermark_never_goes_back(void **state)
{
    (void)state;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    put_keys(first, 0, 10, 1);
    process_check(first, log_flush_all(first->log, first->session));
    put_keys(first, 10, 20, 1);
    struct fabric_list none = {.node = 0};
    process_refuse(first, &none);
    process_own_still(&world, first);
    /* The header's WRITE, or the control block's: whatever comes first. */
    struct moment moment = {.process = first,
                            .least = FORMAT_LOG_BLOCK,
                            .most = FORMAT_LOG_BLOCK,
                            .act = merge_meanwhile,
                            .no_frame = true};
    process_hooked(first, at_moment, &moment);
    for (unsigned i = 0; i < 3000 && !moment.acted; i++)
        process_check(first, process_put(first, i % 10, i + 1));
    process_hooked(first, NULL, NULL);
    assert_int_equal(moment.acted, 1);
    struct log_stats stats;
    log_stats(first->log, &stats);
    assert_true(stats.watermark > 20);
    assert_true(watermark_in_pool(first) >= stats.watermark);
    processes_close(&world);
}

/* ---- what frames say of those before them ---- */

static uint32_t sealed_committed(struct process *process, struct log_place *place)
{
    uint8_t bytes[1024];
    struct format_log_frame frame;
    uint32_t committed;
    (void)process;
    format_log_frame_begin(&frame, bytes, sizeof bytes);
    const struct format_log_entry entry = {
        .kind = FORMAT_LOG_DELETE, .epoch = 1, .sequence = 1, .key = {(const uint8_t *)"key", 3}};
    assert_true(format_log_frame_add(&frame, &entry));
    log_stream_seal(place, NULL, &frame);
    memcpy(&committed, frame.bytes + 24, 4);
    return committed;
}

static void place_reserve(struct process *process, uint32_t bytes, struct log_place *place)
{
    pool_session_begin(tree_session_pool(process->session));
    process_check(process,
                  log_stream_reserve(&process->log->streams[0], process->session, bytes, true, NULL, place));
}

/* A frame that never came must not be called complete by one that was reserved before it was known. */
static void a_frame_behind_one_that_failed(void **state)
{
    (void)state;
    struct log_place whole, failed, behind, later;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    place_reserve(first, 64, &whole);
    log_stream_ended(&whole, 0);
    place_reserve(first, 128, &failed);
    place_reserve(first, 64, &behind);
    assert_ptr_equal(failed.segment, behind.segment);
    log_stream_ended(&failed, BANYAN_ETIMEOUT);
    assert_true(sealed_committed(first, &behind) <= failed.position);
    log_stream_ended(&behind, 0);
    place_reserve(first, 64, &later);
    assert_true(later.segment != failed.segment || sealed_committed(first, &later) <= failed.position);
    log_stream_ended(&later, 0);
    processes_close(&world);
}

/* A process whose first frame comes to this, and the room of the next one. */
static struct process *first_fails(int status, struct log_place *failed, struct log_place *behind)
{
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    place_reserve(first, 128, failed);
    log_stream_ended(failed, status);
    place_reserve(first, 64, behind);
    return first;
}

/* A segment in which one failed is not used again, when all that is in it is merged. */
static void a_segment_in_which_a_frame_failed(void **state)
{
    (void)state;
    struct log_place failed, behind;
    struct process *first = first_fails(BANYAN_ETIMEOUT, &failed, &behind);
    struct log_stream *stream = &first->log->streams[0];
    assert_ptr_not_equal(behind.segment, failed.segment);
    log_stream_ended(&behind, 0);
    log_stream_free_up_to(stream, FORMAT_LOG_SEQUENCE_MAX);
    assert_null(stream->spare);
    assert_ptr_equal(stream->broken, failed.segment);
    processes_close(&world);
}

/* L2. What a frame calls complete has smaller sequences than it: it was complete when its room was reserved,
 * and its sequences were drawn behind that. */
static void a_frame_beside_one_that_comes(void **state)
{
    (void)state;
    struct log_place before, beside, behind;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    place_reserve(first, 64, &before);
    place_reserve(first, 128, &beside);
    log_stream_ended(&before, 0); /* it may have drawn later than this one */
    assert_int_equal(sealed_committed(first, &beside), before.position);
    log_stream_ended(&beside, 0);
    place_reserve(first, 64, &behind);
    assert_int_equal(sealed_committed(first, &behind), behind.position);
    log_stream_ended(&behind, 0);
    processes_close(&world);
}

struct switching {
    struct process *process;
    struct log_place *place;
    unsigned met;
};

static int unreserve_meanwhile(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct switching *switching = context;
    if (!switching->met++)
        log_stream_unreserve(switching->place);
    return wrapper_pass(endpoint, list, list->count);
}

/* Room is given back while the header of the next segment, which says where this one ends, is on its way:
 * that header must not be believed, since nothing comes there. */
static void room_given_back_behind_a_header(void **state)
{
    (void)state;
    struct log_place whole, given, next;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    place_reserve(first, 40 << 10, &whole);
    log_stream_ended(&whole, 0);
    place_reserve(first, 128, &given);
    struct switching switching = {.process = first, .place = &given};
    process_hooked(first, unreserve_meanwhile, &switching);
    place_reserve(first, 40 << 10, &next);
    process_hooked(first, NULL, NULL);
    assert_true(switching.met > 0);
    assert_true(!next.segment->trusts || next.segment->before <= given.position);
    log_stream_ended(&next, 0);
    processes_close(&world);
}

/* Nor by the header of the next segment, which was written while it was under way. */
static void a_segment_behind_one_that_failed(void **state)
{
    (void)state;
    struct log_place failed, full, behind, later;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    place_reserve(first, 64, &failed);
    place_reserve(first, (64 << 10) - 192, &full);
    assert_ptr_equal(failed.segment, full.segment);
    log_stream_ended(&full, 0);
    place_reserve(first, 128, &behind); /* in a segment whose header says how far the one before it goes */
    assert_ptr_not_equal(behind.segment, full.segment);
    assert_true(behind.segment->trusts);
    assert_int_equal(sealed_committed(first, &behind), 0);
    log_stream_ended(&failed, BANYAN_ETIMEOUT);
    assert_int_equal(sealed_committed(first, &behind), 0);
    log_stream_ended(&behind, 0);
    place_reserve(first, 64, &later);
    assert_true(!sealed_committed(first, &later) || !later.segment->trusts);
    log_stream_ended(&later, 0);
    processes_close(&world);
}

/* It is not used again either: what failed for another reason than a loss may arrive at any time. */
static void a_segment_with_a_hole_is_given_back(void **state)
{
    (void)state;
    struct log_place failed, behind, other;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    place_reserve(first, 64, &failed);
    place_reserve(first, 64, &behind);
    log_stream_ended(&failed, BANYAN_ETIMEOUT);
    log_stream_ended(&behind, 0);
    place_reserve(first, 64, &other);
    assert_ptr_not_equal(other.segment, failed.segment);
    log_stream_ended(&other, 0);
    assert_int_equal(first->log->streams[0].segments, 2);
    process_check(first, log_flush_all(first->log, first->session));
    assert_int_equal(first->log->streams[0].segments, 1);
    processes_close(&world);
}

/* The answer to the next WRITE of a segment's header is lost, with the connection or alone. */
struct unheard {
    struct process *process;
    unsigned met;
    bool alone;
};

static int lose_header(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct unheard *unheard = context;
    const struct fabric_command *write = &list->commands[0];
    struct format_log_segment header;
    if (unheard->met || list->count != 1 || write->operation != FABRIC_WRITE ||
        write->length != FORMAT_LOG_BLOCK || format_log_segment_decode(write->write.data, &header))
        return wrapper_pass(endpoint, list, list->count);
    unheard->met++;
    if (!unheard->alone)
        return process_cut(unheard->process, endpoint, list, list->count);
    wrapper_pass(endpoint, list, list->count);
    return BANYAN_ETIMEOUT;
}

/* Its header is in memory, and no frame comes there. What the segment that took its place says of the one
 * before says nothing of it: nothing is corrupt. */
static void header_unheard(bool alone)
{
    processes_open(&world, 1, 1 << 20);
    struct process *first = process_start(&world), *second = process_start(&world);
    struct unheard unheard = {.process = first, .alone = alone};
    process_own(&world, first);
    heirs_end(&world, first);
    put_keys(first, 0, 20, 1);
    const uint64_t number = first->log->streams[0].current->number;
    process_hooked(first, lose_header, &unheard);
    for (unsigned i = 0; i < 4000 && !unheard.met; i++) {
        const int status = process_put(first, i % 20, 2);
        assert_true(!status || (unheard.met && (status == BANYAN_ENET || status == BANYAN_EUNKNOWN ||
                                                (alone && status == BANYAN_ETIMEOUT))));
    }
    process_hooked(first, NULL, NULL);
    assert_int_equal(unheard.met, 1);
    assert_true(alone == !!first->log->streams[0].broken);
    process_own_still(&world, first);
    put_keys(first, 0, 20, 3);
    assert_true(first->log->streams[0].current->number > number);
    assert_true(first->log->streams[0].current->trusts);
    process_dies(&world, first);
    process_own(&world, second);
    assert_int_equal(keys_right(second, 0, 20, 3), 20);
    processes_close(&world);
}

static void a_header_whose_answer_is_lost(void **state)
{
    (void)state;
    header_unheard(false);
    header_unheard(true);
}

/* ---- unknown outcomes ---- */

/* The n-th frame's list is cut before or behind its WRITE. */
struct cut {
    struct process *process;
    bool arrives, refused;
    unsigned frames; /* until it is; 0: never */
};

static int cut_frame(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct cut *cut = context;
    if (!cut->frames || !is_frame(cut->process, list) || --cut->frames)
        return wrapper_pass(endpoint, list, list->count);
    return cut->refused ? process_refuse(cut->process, list)
                        : process_cut(cut->process, endpoint, list, cut->arrives ? list->count : 0);
}

/* Key 5 holds 1, and perhaps 2. */
static void make_doubtful(struct process *process, bool arrives)
{
    struct cut cut = {.process = process, .arrives = arrives, .frames = 1};
    process_check(process, process_put(process, 5, 1));
    process_hooked(process, cut_frame, &cut);
    assert_int_equal(process_put(process, 5, 2), BANYAN_EUNKNOWN);
    process_hooked(process, NULL, NULL);
    assert_int_equal(cut.frames, 0);
    process_own_still(&world, process);
}

/* Either way, but for ever: what a reader has seen is there after a death. */
static void an_unknown_outcome_is_settled(void **state)
{
    (void)state;
    for (unsigned arrives = 0; arrives < 2; arrives++) {
        processes_open(&world, 1, 0);
        struct process *first = process_start(&world), *second = process_start(&world);
        process_own(&world, first);
        make_doubtful(first, arrives);
        assert_int_equal(process_get(first, 5), 1); /* the write has not happened yet, for any reader */
        process_check(first, tree_log_settle(first->session, first->tree));
        assert_int_equal(process_get(first, 5), 2);
        process_dies(&world, first);
        process_own(&world, second);
        assert_int_equal(process_get(second, 5), 2);
        processes_close(&world);
    }
}

static enum tree_verdict delete_if_there(void *context, const void *old, size_t old_length, void *value,
                                         size_t *length)
{
    (void)old_length, (void)value, (void)length;
    *(bool *)context = old;
    return old ? TREE_DELETE : TREE_KEEP;
}

/* A change of another process that comes to nothing, as a deletion of what is not there, is acknowledged
 * without an entry. So what it is decided on comes behind a write of unknown outcome: else that takes effect
 * after it. */
static void a_change_from_afar_behind_an_unknown_outcome(void **state)
{
    (void)state;
    for (unsigned arrives = 0; arrives < 2; arrives++) {
        processes_open(&world, 1, 0);
        struct process *first = process_start(&world), *second = process_start(&world);
        struct owners_way way = {.count = 1,
                                 .peers = {{fabric_self(first->fabric), first->spare, first->tree}}};
        struct cut cut = {.process = first, .arrives = arrives, .frames = 1};
        uint8_t key[8];
        bool found = false;
        process_own(&world, first);
        tree_compute_set_forward(second->compute, &owners_forward, &way);
        process_others(&world, second, first);
        process_hooked(first, cut_frame, &cut);
        assert_int_equal(process_put(first, 5, 2), BANYAN_EUNKNOWN);
        process_hooked(first, NULL, NULL);
        process_own_still(&world, first);
        key_of(5, key);
        assert_int_equal(process_get(second, 5), 0); /* it has not happened yet, for any reader */
        process_check(second,
                      tree_modify(second->session, second->tree, key, sizeof key, delete_if_there, &found));
        assert_true(found);
        process_check(first, tree_log_settle(first->session, first->tree));
        assert_int_equal(process_get(first, 5), 0);
        assert_int_equal(process_get(second, 5), 0);
        processes_close(&world);
    }
}

/* Also in a range that is on its way to another process: it could never be given away else. */
static void a_doubtful_key_in_a_range_that_leaves(void **state)
{
    (void)state;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    make_doubtful(first, true);
    process_moving(&world, first);
    process_check(first, log_flush(first->log, first->session, first->tree, (struct format_key){0}, NULL));
    assert_int_equal(unmerged_count(tree_log_table(first->tree)), 0);
    process_own_still(&world, first);
    assert_int_equal(process_get(first, 5), 2);
    processes_close(&world);
}

/* Also when the segments are full which it keeps from being free. */
static void a_doubtful_key_in_a_log_that_is_full(void **state)
{
    (void)state;
    processes_open(&world, 1, 1 << 20);
    struct process *first = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    make_doubtful(first, false);
    int status = 0;
    for (unsigned i = 10; i < 4000 && !status; i++)
        status = process_put(first, i, i);
    assert_int_equal(status, BANYAN_ENOSPC);
    assert_non_null(strstr(tree_session_error(first->session)->text, "not merged"));
    assert_int_equal(process_get(first, 10), 10);                       /* reads go on */
    process_check(first, tree_log_settle(first->session, first->tree)); /* by a task that meets it */
    process_check(first, log_flush_all(first->log, first->session));
    process_check(first, process_put(first, 6, 6));
    assert_int_equal(process_get(first, 5), 2);
    process_check(first, log_close(first->log, first->session));
    processes_close(&world);
}

/* A write of another task that comes between the merger's meeting the key and its logging it again: the
 * merger may have to wait for its frame. */
static struct {
    struct process *process;
    unsigned writes;
    int status;
} between;

static struct unmerged_frame *open_behind_another(void *context, struct tree_session *session, uint16_t node,
                                                  const struct tree_logged_entry *entry)
{
    struct process *process = between.process;
    uint8_t key[8], value[PROCESSES_VALUE] = {0};
    process->compute->log.open = log_tree.open;
    key_of(7, key);
    between.status = tree_upsert(process->spare, process->tree, key, sizeof key, value, sizeof value);
    between.writes++;
    return log_tree.open(context, session, node, entry);
}

/* Nor does the merger's frame, or one before it, wait for the room that this key keeps from being free. */
static void a_write_while_a_doubtful_key_is_settled(void **state)
{
    (void)state;
    processes_open(&world, 1, 1 << 20);
    struct process *first = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    make_doubtful(first, false);
    int status = 0;
    for (unsigned i = 10; i < 4000 && !status; i++)
        status = process_put(first, i, i);
    assert_int_equal(status, BANYAN_ENOSPC);
    between.process = first;
    first->compute->log.open = open_behind_another;
    process_check(first, log_flush_all(first->log, first->session));
    assert_int_equal(between.writes, 1);
    assert_int_equal(between.status, 0);
    assert_int_equal(process_get(first, 5), 2);
    process_check(first, log_close(first->log, first->session));
    processes_close(&world);
}

/* Each loss leaves a frame of unknown fate, and nothing is free before what is doubtful is in the log. So
 * losses take no segment each: else those that there may be are gone after some of them, and the log never
 * goes on. */
static void a_connection_that_is_lost_again_and_again(void **state)
{
    (void)state;
    processes_open(&world, 1, 1 << 20);
    struct process *first = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    for (unsigned i = 0; i < 40; i++) {
        struct cut cut = {.process = first, .arrives = i % 2, .frames = 1};
        make_doubtful(first, i % 3);
        process_hooked(first, cut_frame, &cut);
        assert_int_equal(tree_log_settle(first->session, first->tree), BANYAN_EUNKNOWN);
        process_hooked(first, NULL, NULL);
        process_own_still(&world, first);
    }
    assert_int_equal(first->log->streams[0].segments, 1);
    process_check(first, log_flush_all(first->log, first->session));
    process_check(first, process_put(first, 6, 6));
    assert_int_equal(process_get(first, 5), 2);
    process_dies(&world, first);
    struct process *second = process_start(&world);
    process_own(&world, second);
    assert_int_equal(process_get(second, 5), 2);
    assert_int_equal(process_get(second, 6), 6);
    processes_close(&world);
}

/* Its room is the next frame's, but not where a header is being written that says where its segment ends. */
static void room_that_comes_back(void **state)
{
    (void)state;
    struct log_place lost, next;
    struct process *first = first_fails(BANYAN_ENET, &lost, &next);
    struct log_stream *stream = &first->log->streams[0];
    assert_ptr_equal(next.segment, lost.segment);
    assert_int_equal(next.position, lost.position);
    log_stream_ended(&next, 0);
    place_reserve(first, 128, &lost);
    stream->switching = true;
    log_stream_ended(&lost, BANYAN_ENET);
    stream->switching = false;
    assert_true(lost.segment->broken);
    processes_close(&world);
}

static unsigned frames_in(struct process *process, const struct log_segment *segment, unsigned *empty)
{
    static uint8_t bytes[MEMORY_LOG_SEGMENT_LEAST];
    struct format_log_segment header;
    struct format_log_view view;
    unsigned frames = 0;
    pool_session_begin(tree_session_pool(process->session));
    process_check(process, log_bytes_read(process->session, segment->pool.address, bytes, segment->tail));
    assert_null(format_log_segment_decode(bytes, &header));
    *empty = 0;
    for (uint32_t at = FORMAT_LOG_BLOCK; at < segment->tail; at += view.bytes, frames++) {
        assert_int_equal(format_log_frame_find(&header, bytes, at, &view), FORMAT_LOG_WHOLE);
        *empty += !view.count;
    }
    return frames;
}

/* Room behind which another frame lies, or which another copy names, is covered before anything else is
 * written: nothing in the segment is called complete that is not there. */
static void room_that_is_covered(void **state)
{
    (void)state;
    struct log_place lost, other, behind, next;
    unsigned empty;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world);
    for (unsigned i = 0; i < 4; i++) { /* what lies behind it is lost too, and first or last; or stays */
        place_reserve(first, 128, &lost);
        place_reserve(first, 64, &other);
        other.named = i < 2;
        if (i % 2)
            log_stream_ended(&other, BANYAN_ENET);
        log_stream_ended(&lost, BANYAN_ENET);
        if (!(i % 2))
            log_stream_ended(&other, BANYAN_ENET);
        place_reserve(first, 64, &behind);
        assert_ptr_equal(behind.segment, lost.segment);
        assert_int_equal(behind.position, i < 2    ? other.position + 64
                                          : i == 2 ? other.position
                                                   : lost.position);
        log_stream_unreserve(&behind);
    }
    /* The covering is lost as well: it is made again. */
    place_reserve(first, 128, &lost);
    lost.named = true;
    log_stream_ended(&lost, BANYAN_ENET);
    struct cut cut = {.process = first, .frames = 1};
    process_hooked(first, cut_frame, &cut);
    pool_session_begin(tree_session_pool(first->session));
    assert_int_not_equal(log_stream_reserve(&first->log->streams[0], first->session, 64, true, NULL, &next),
                         0);
    process_hooked(first, NULL, NULL);
    assert_int_equal(cut.frames, 0);
    place_reserve(first, 64, &next);
    assert_ptr_equal(next.segment, lost.segment);
    assert_int_equal(next.position, lost.position + 128);
    log_stream_unreserve(&next);
    const unsigned frames = frames_in(first, lost.segment, &empty);
    assert_true(frames == empty && frames > 0);
    assert_int_equal(first->log->streams[0].segments, 1);
    processes_close(&world);
}

/* ---- what is taken over ---- */

/* What a process logged when it owned the range before does not count when it owns it again. */
static void an_entry_of_an_earlier_time(void **state)
{
    (void)state;
    processes_open(&world, 2, 0);
    struct process *first = process_start(&world), *second = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    process_check(first, process_put(first, 5, 1));
    process_gives_away(&world, first);
    process_own(&world, second);
    heirs_end(&world, second);
    assert_int_equal(process_get(second, 5), 1);
    process_check(second, process_put(second, 5, 2));
    process_check(second, log_flush_all(second->log, second->session));
    process_gives_away(&world, second);
    process_moving(&world, first); /* it is named as the owner, and logs nothing any more */
    first->epoch = world.version;
    process_dies(&world, first);
    struct process *third = process_start(&world);
    process_own(&world, third);
    assert_int_equal(process_get(third, 5), 2);
    processes_close(&world);
}

static uint64_t inherited(const struct process *process)
{
    struct log_stats stats;
    log_stats(process->log, &stats);
    return stats.inherited;
}

struct lost {
    struct process *process;
    uint16_t node;
    unsigned met;
};

static int lose_watermark(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct lost *lost = context;
    const gaddr word = lost->process->log->streams[lost->node].control + FORMAT_LOG_WATERMARK_OFFSET;
    if (list->commands[0].operation != FABRIC_WRITE || list->commands[0].address != word)
        return wrapper_pass(endpoint, list, list->count);
    lost->met++;
    return process_cut(lost->process, endpoint, list, 0);
}

/* The process dies when one of two memory nodes has the watermark: what is below is merged, and is not taken
 * over. */
static void a_watermark_that_one_memory_node_has(void **state)
{
    (void)state;
    for (uint16_t node = 0; node < 2; node++) {
        processes_open(&world, 2, 0);
        world.options.copies = 2;
        struct process *first = process_start(&world), *second = process_start(&world);
        struct lost lost = {.process = first, .node = node};
        process_own(&world, first);
        heirs_end(&world, first);
        put_keys(first, 0, 40, 5);
        process_hooked(first, lose_watermark, &lost);
        assert_true(log_flush_all(first->log, first->session) != 0);
        assert_int_equal(lost.met, 1);
        process_dies(&world, first);
        process_own(&world, second);
        assert_int_equal(inherited(second), 0);
        assert_int_equal(keys_right(second, 0, 40, 5), 40);
        processes_close(&world);
    }
}

/* ---- a memory node that is away (L8) ---- */

static struct log_stats stats_of(const struct process *process)
{
    struct log_stats stats;
    log_stats(process->log, &stats);
    return stats;
}

/* Puts of keys; those that were not done, since the memory node of their leaf is away, have the old value. */
static unsigned put_done(struct process *process, unsigned from, unsigned to, uint64_t value,
                         uint64_t *expected)
{
    unsigned done = 0;
    for (unsigned i = from; i < to; i++) {
        const int status = process_put(process, i, value);
        if (status && status != BANYAN_ENET)
            process_check(process, status);
        if (!status)
            expected[i] = value;
        done += !status;
    }
    return done;
}

/* The memory node that would have the second copy is away: another one gets it, and where there is none, the
 * write is done with one copy, and that is said. */
static void a_memory_node_that_is_away(void **state)
{
    (void)state;
    for (unsigned nodes = 2; nodes <= 3; nodes++) {
        uint64_t expected[200];
        processes_open(&world, nodes, 0);
        world.options.copies = 2;
        struct process *first = process_start(&world);
        process_own(&world, first);
        heirs_end(&world, first);
        assert_int_equal(put_done(first, 0, 200, 5, expected), 200);
        process_check(first, log_flush_all(first->log, first->session)); /* there are many leaves */
        assert_int_equal(put_done(first, 0, 200, 6, expected), 200);
        process_away(first, 1, true);
        process_own_still(&world, first);
        const unsigned done = put_done(first, 0, 200, 7, expected);
        assert_true(done > 0); /* whose leaves lie on another one */
        assert_int_equal(stats_of(first).degraded, nodes == 2 ? done : 0);
        process_away(first, 1, false);
        assert_int_equal(put_done(first, 100, 120, 8, expected), 20);
        assert_int_equal(stats_of(first).degraded, nodes == 2 ? done : 0);
        process_dies(&world, first);
        struct process *next = process_start(&world);
        process_own(&world, next);
        for (unsigned i = 0; i < 200; i++)
            assert_int_equal(process_get(next, i), expected[i]);
        processes_close(&world);
    }
}

/* Frames to memory node 1 are not written: it goes away with the first of them, or, with `all`, no memory
 * node's are, and each costs the connection. */
struct leaving {
    struct process *process;
    bool all;
    unsigned met;
};

static int leave_at_frame(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct leaving *leaving = context;
    if (!is_frame(leaving->process, list) || (!leaving->all && list->node != 1))
        return wrapper_pass(endpoint, list, list->count);
    leaving->met++;
    if (leaving->all)
        return process_cut(leaving->process, endpoint, list, 0);
    process_away(leaving->process, 1, true);
    return BANYAN_ENET;
}

/* All keys of a process hold 1000 and more, in its logs on both memory nodes. */
#define MANY 8000u
static struct process *many_logged(uint32_t copies)
{
    const struct memory_options memory = {
        .pool_bytes = 64 << 20, .chunk_bytes = 64 << 10, .log_bytes = 32 << 20};
    processes_open_as(&world, 2, &memory);
    world.options.copies = copies;
    world.options.segment_bytes = 2 << 20;
    struct process *first = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    put_keys(first, 0, MANY, 5);
    process_check(first, log_flush_all(first->log, first->session)); /* leaves lie on both memory nodes */
    put_keys(first, 0, MANY, 1000);
    for (unsigned n = 0; n < 2; n++)
        assert_true(log_stream_fresh(&first->log->streams[n]) > 0);
    return first;
}

/* That process is dead. Returns the next one, which is about to inherit, and knows so many memory nodes; 0:
 * all that there are. */
static struct process *many_to_inherit_from(unsigned listed, uint32_t copies)
{
    process_dies(&world, many_logged(copies));
    world.listed = listed;
    struct process *second = process_start(&world);
    process_moving(&world, second);
    second->epoch = world.version;
    return second;
}

static struct process *many_to_inherit(uint32_t copies)
{
    return many_to_inherit_from(0, copies);
}

static int inherit_from_to(struct process *process, struct format_key lower, const struct format_key *upper)
{
    return log_inherit(process->log, process->session, process->tree, world.heirs, world.heir_count, lower,
                       upper, process->epoch);
}

/* L7. The new owner loses a memory node when it has read the heirs' logs: it needs nothing of them any more,
 * and logs all of it again on the other one, with one copy. What it so has the next one inherits. */
static void inheriting_while_a_memory_node_goes_away(void **state)
{
    uint8_t middle[8];
    (void)state;
    key_of(MANY / 2, middle);
    const struct format_key least = {0}, bound = {middle, sizeof middle};
    for (uint32_t copies = 1; copies <= 2; copies++) {
        struct process *second = many_to_inherit(copies);
        struct leaving leaving = {.process = second};
        process_hooked(second, leave_at_frame, &leaving);
        process_check(second, inherit_from_to(second, bound, NULL));
        assert_int_equal(leaving.met, 1);
        process_check(second, inherit_from_to(second, least, &bound));
        assert_int_equal(inherited(second), MANY);
        assert_true((stats_of(second).degraded > 0) == (copies == 2));
        process_own_still(&world, second);
        assert_int_equal(keys_right(second, 0, MANY, 1000), MANY); /* of the table: some leaves are away */
        process_dies(&world, second);
        struct process *third = process_start(&world);
        process_own(&world, third);
        assert_int_equal(keys_right(third, 0, MANY, 1000), MANY);
        processes_close(&world);
    }
}

/* L7. A log that cannot be read, since a memory node is away, can be when that is back; and what was read
 * stays, whatever fails behind that. */
static void inheriting_is_tried_again(void **state)
{
    (void)state;
    struct process *second = many_to_inherit(1);
    struct leaving leaving = {.process = second, .all = true};
    process_away(second, 1, true);
    assert_int_equal(inherit_from_to(second, (struct format_key){0}, NULL), BANYAN_ENET);
    process_away(second, 1, false);
    process_hooked(second, leave_at_frame, &leaving);
    assert_int_equal(inherit_from_to(second, (struct format_key){0}, NULL), BANYAN_ENET);
    assert_true(leaving.met >= 2); /* both memory nodes were tried */
    process_hooked(second, NULL, NULL);
    process_away(second, 0, true);
    process_check(second, inherit_from_to(second, (struct format_key){0}, NULL));
    assert_int_equal(inherited(second), MANY);
    process_away(second, 0, false);
    process_own_still(&world, second);
    assert_int_equal(keys_right(second, 0, MANY, 1000), MANY);
    processes_close(&world);
}

static uint64_t logs_on(uint16_t node)
{
    struct memory_status_reply told;
    memory_node_status(world.memory[node], &told);
    return told.log_processes;
}

/* L7. A process has logged on a memory node that had joined a moment ago. The next owner, and the process
 * that gives its log back, have not heard of that one yet, and ask the home node for its list first. Where
 * that cannot be asked nothing is inherited: what is known may not be all. */
static void a_log_on_a_memory_node_that_has_joined(void **state)
{
    (void)state;
    struct process *second = many_to_inherit_from(1, 1), *third = process_start(&world);
    const struct fabric_process gone = fabric_self(world.all[0].fabric);
    uint64_t before[2];
    process_list_away(second, true);
    assert_int_equal(inherit_from_to(second, (struct format_key){0}, NULL), BANYAN_ENET);
    process_list_away(second, false);
    assert_int_equal(fabric_memory_nodes(second->fabric), 1);
    process_check(second, inherit_from_to(second, (struct format_key){0}, NULL));
    assert_int_equal(inherited(second), MANY);
    process_own_still(&world, second);
    assert_int_equal(keys_right(second, 0, MANY, 1000), MANY);
    heirs_end(&world, second);
    for (uint16_t n = 0; n < 2; n++) {
        memory_node_release_locks(world.memory[n], gone.compute_id); /* it is fenced */
        before[n] = logs_on(n);
    }
    assert_int_equal(fabric_memory_nodes(third->fabric), 1);
    process_check(third, log_release_dead(third->log, third->session, gone));
    for (uint16_t n = 0; n < 2; n++)
        assert_int_equal(logs_on(n), before[n] - 1);
    processes_close(&world);
}

struct third {
    struct process *process;
    unsigned lists;
    uint16_t nodes[3];
    gaddr last;
};

static int refuse_the_second(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct third *third = context;
    if (!is_frame(third->process, list)) /* a log that is opened, a header */
        return wrapper_pass(endpoint, list, list->count);
    assert_true(third->lists < 3);
    third->nodes[third->lists++] = list->node;
    third->last = list->commands[list->count - 1].address;
    return third->lists == 2 ? process_refuse(third->process, list)
                             : wrapper_pass(endpoint, list, list->count);
}

/* A copy that is sent late, since the second one was refused, calls nothing complete: its sequences were
 * drawn before it had its room (L2). It names the first one. */
static void a_copy_that_goes_to_a_third(void **state)
{
    (void)state;
    struct format_log_view view;
    uint8_t bytes[FORMAT_LOG_BLOCK];
    processes_open(&world, 3, 0);
    world.options.copies = 2;
    struct process *first = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    put_keys(first, 0, 200, 5);
    struct third third = {.process = first};
    process_hooked(first, refuse_the_second, &third);
    process_check(first, process_put(first, 7, 77));
    process_hooked(first, NULL, NULL);
    assert_int_equal(third.lists, 3);
    assert_true(third.nodes[0] != third.nodes[1] && third.nodes[2] != third.nodes[1] &&
                third.nodes[2] != third.nodes[0]);
    assert_int_equal(stats_of(first).degraded, 0);
    process_own_still(&world, first);
    pool_session_begin(tree_session_pool(first->session));
    process_check(first, log_bytes_read(first->session, third.last, bytes, sizeof bytes));
    memcpy(&view.committed, bytes + 24, sizeof view.committed);
    memcpy(&view.other.nonce, bytes + 40, sizeof view.other.nonce);
    assert_int_equal(view.committed, 0);
    assert_true(view.other.nonce == first->log->streams[third.nodes[0]].current->nonce);
    processes_close(&world);
}

/* ---- costs ---- */

/* A write of a process that has nothing else to do: one round trip, and a WRITE for each copy. */
static void what_a_write_costs(void **state)
{
    (void)state;
    for (uint32_t copies = 1; copies <= 2; copies++) {
        struct fabric_cost before, after;
        processes_open(&world, 2, 0);
        world.options.copies = copies;
        struct process *first = process_start(&world);
        process_own(&world, first);
        put_keys(first, 0, 100, 1); /* segments are there, and inner nodes are cached */
        before = tree_session_stats(first->session)->cost;
        put_keys(first, 0, 100, 2);
        after = tree_session_stats(first->session)->cost;
        assert_int_equal(after.round_trips - before.round_trips, 100);
        assert_int_equal(after.writes - before.writes, 100 * copies);
        assert_int_equal(after.reads - before.reads, 0);
        assert_int_equal(after.atomics - before.atomics, 0);
        processes_close(&world);
    }
}

/* ---- what merging leaves in the cache ---- */

/* The value that the key's entry has; 0: it has none. */
static uint64_t cached(const struct process *process, unsigned number)
{
    uint8_t key[8], bytes[FORMAT_VALUE_MAX];
    uint32_t length, hits;
    uint64_t value;
    key_of(number, key);
    assert_non_null(process->tree->owned);
    if (!owned_cache_peek(process->tree->owned, tree_session_pool(process->session)->epoch,
                          (struct format_key){key, 8}, bytes, &length, &hits))
        return 0;
    assert_int_equal(length, PROCESSES_VALUE);
    memcpy(&value, bytes, 8);
    return value;
}

static unsigned keys_cached(const struct process *process, unsigned from, unsigned to, uint64_t value)
{
    unsigned right = 0;
    for (unsigned i = from; i < to; i++)
        right += cached(process, i) == value + i;
    return right;
}

/* Keys that were written and merged, and never read: a lookup takes no round trip. So it is for new keys, for
 * keys that had another value, and for keys that were met in the table; a deleted key has no entry. */
static void what_a_lookup_costs_behind_merging(void **state)
{
    (void)state;
    const enum tree_cache_policy policies[] = {TREE_CACHE_BANYAN, TREE_CACHE_DINOMO};
    for (unsigned p = 0; p < 2; p++) {
        processes_open(&world, 2, 0);
        world.policy = policies[p];
        struct process *first = process_start(&world);
        process_own(&world, first);
        heirs_end(&world, first);
        for (unsigned round = 1; round <= 3; round++) {
            put_keys(first, 0, 14 * round, 1000 * round);
            if (round == 2)
                assert_int_equal(keys_right(first, 0, 28, 2000), 28);
            process_check(first, log_flush_all(first->log, first->spare));
            assert_int_equal(unmerged_count(tree_log_table(first->tree)), 0);
            const uint64_t before = tree_session_stats(first->session)->cost.round_trips;
            assert_int_equal(keys_right(first, 0, 14 * round, 1000 * round), 14 * round);
            assert_int_equal(tree_session_stats(first->session)->cost.round_trips - before, 0);
        }
        process_check(first, process_delete(first, 7));
        process_check(first, log_flush_all(first->log, first->spare));
        assert_int_equal(cached(first, 7), 0);
        assert_int_equal(process_get(first, 7), 0);
        processes_close(&world);
    }
}

struct troubled {
    struct process *process;
    bool arrives;
    unsigned left; /* WRITEs that are passed on before one is lost */
    unsigned lost;
};

/* The WRITE of some slot is lost with the connection, before or behind its effect. */
static int a_slot_is_lost(void *context, struct fabric_endpoint *endpoint, struct fabric_list *list)
{
    struct troubled *troubled = context;
    bool writes = false;
    for (uint16_t i = 0; i < list->count; i++)
        writes |= list->commands[i].operation == FABRIC_WRITE;
    if (writes && !is_frame(troubled->process, list) && !troubled->lost && !troubled->left--) {
        troubled->lost++;
        return process_cut(troubled->process, endpoint, list, troubled->arrives ? list->count : 0);
    }
    return wrapper_pass(endpoint, list, list->count);
}

/* A merging of which nobody knows whether it was done leaves nothing in the cache, and the next one does. */
static void a_merging_that_is_lost(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 8; which++) {
        processes_open(&world, 1, 0);
        struct process *first = process_start(&world);
        process_own(&world, first);
        heirs_end(&world, first);
        put_keys(first, 0, 64, 1000);
        process_check(first, log_flush_all(first->log, first->spare));
        put_keys(first, 0, 64, 2000);
        struct troubled troubled = {.process = first, .arrives = which % 2, .left = which / 2};
        process_hooked(first, a_slot_is_lost, &troubled);
        (void)log_flush_all(first->log, first->spare);
        process_hooked(first, NULL, NULL);
        assert_int_equal(troubled.lost, 1);
        unsigned unknown = 0;
        for (unsigned i = 0; i < 64; i++) {
            uint8_t key[8], bytes[FORMAT_VALUE_MAX];
            uint32_t length;
            key_of(i, key);
            if (unmerged_find(tree_log_table(first->tree), (struct format_key){key, 8}, bytes, &length, 0,
                              NULL) == UNMERGED_NONE)
                continue;
            unknown++;
            assert_true(cached(first, i) != 2000 + i); /* nobody knows that the leaf has it */
        }
        assert_true(unknown > 0);
        assert_true(tree_session_stats(first->spare)->unfinished > 0); /* no operation has told of it */
        process_own_still(&world, first);
        assert_int_equal(keys_right(first, 0, 64, 2000), 64);
        process_check(first, log_flush_all(first->log, first->spare));
        assert_int_equal(keys_cached(first, 0, 64, 2000), 64);
        processes_close(&world);
    }
}

/* What is merged in a range that is on its way to another process stays out of the cache: it is another's
 * soon, who changes it, and the range may come back. */
static void a_merging_while_the_range_leaves(void **state)
{
    (void)state;
    processes_open(&world, 1, 0);
    struct process *first = process_start(&world), *second = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    put_keys(first, 0, 64, 1000);
    process_check(first, log_flush_all(first->log, first->spare));
    put_keys(first, 0, 80, 2000);
    process_moving(&world, first);
    while (tree_rights_sweep(first->session, first->tree))
        ;
    process_check(first, log_flush(first->log, first->spare, first->tree, (struct format_key){0}, NULL));
    assert_int_equal(unmerged_count(tree_log_table(first->tree)), 0);
    process_own(&world, second);
    heirs_end(&world, second);
    assert_int_equal(keys_right(second, 0, 80, 2000), 80);
    put_keys(second, 0, 80, 3000);
    process_check(second, log_flush_all(second->log, second->session));
    process_moving(&world, second);
    process_own(&world, first);
    assert_int_equal(keys_right(first, 0, 80, 3000), 80);
    processes_close(&world);
}

/* ---- segments ---- */

/* All that was taken is given back, also what memory nodes were asked to give and could not answer. */
static void everything_is_given_back(void **state)
{
    (void)state;
    processes_open(&world, 2, 0);
    struct process *first = process_start(&world);
    process_own(&world, first);
    heirs_end(&world, first);
    put_keys(first, 0, 900, 5);
    process_check(first, log_close(first->log, first->session));
    struct log_stats stats;
    log_stats(first->log, &stats);
    assert_int_equal(stats.segments, 0);
    for (uint16_t n = 0; n < 2; n++) {
        struct memory_log_processes page;
        pool_session_begin(tree_session_pool(first->session));
        process_check(first, pool_log_processes(tree_session_pool(first->session), n, 0, &page));
        assert_int_equal(page.count, 0);
    }
    put_keys(first, 0, 10, 9); /* the log begins anew */
    process_dies(&world, first);
    struct process *second = process_start(&world);
    process_own(&world, second);
    assert_int_equal(keys_right(second, 0, 10, 9), 10);
    assert_int_equal(keys_right(second, 10, 900, 5), 890);
    processes_close(&world);
}

/* An owner has merged all, and then loses a connection. When the memory node is to leave, it gives back what
 * it has there, though it has nothing to write any more in the incarnation that it has now. */
static void segments_are_given_back_after_a_loss(void **state)
{
    (void)state;
    struct process *first = many_logged(1);
    struct fabric_list none = {.node = 1};
    process_check(first, log_flush_all(first->log, first->spare));
    assert_int_equal(stats_of(first).unmerged, 0);
    assert_int_equal(stats_of(first).watermark, stats_of(first).sequence);
    assert_int_equal(logs_on(1), 1);
    process_refuse(first, &none);
    process_own_still(&world, first);
    process_hears(first, 1, FABRIC_LEAVING);
    process_check(first, log_flush_all(first->log, first->spare));
    assert_false(log_stream_lingers(&first->log->streams[1]));
    assert_int_equal(logs_on(1), 0);
    assert_true(log_stream_lingers(&first->log->streams[0]));
    assert_int_equal(keys_right(first, 0, MANY, 1000), MANY);
    processes_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cycle_while_a_range_is_inherited),
        cmocka_unit_test(what_was_dropped_is_merged_by_no_memory_node),
        cmocka_unit_test(a_log_is_read_once_for_all_ranges_of_a_transfer),
        cmocka_unit_test(what_is_merged_is_not_read),
        cmocka_unit_test(merging_that_runs_out_of_memory),
        cmocka_unit_test(a_watermark_never_goes_back),
        cmocka_unit_test(a_frame_behind_one_that_failed),
        cmocka_unit_test(a_segment_behind_one_that_failed),
        cmocka_unit_test(a_segment_in_which_a_frame_failed),
        cmocka_unit_test(a_frame_beside_one_that_comes),
        cmocka_unit_test(room_given_back_behind_a_header),
        cmocka_unit_test(a_segment_with_a_hole_is_given_back),
        cmocka_unit_test(a_header_whose_answer_is_lost),
        cmocka_unit_test(an_unknown_outcome_is_settled),
        cmocka_unit_test(a_change_from_afar_behind_an_unknown_outcome),
        cmocka_unit_test(a_doubtful_key_in_a_range_that_leaves),
        cmocka_unit_test(a_doubtful_key_in_a_log_that_is_full),
        cmocka_unit_test(a_write_while_a_doubtful_key_is_settled),
        cmocka_unit_test(a_connection_that_is_lost_again_and_again),
        cmocka_unit_test(room_that_comes_back),
        cmocka_unit_test(room_that_is_covered),
        cmocka_unit_test(an_entry_of_an_earlier_time),
        cmocka_unit_test(a_watermark_that_one_memory_node_has),
        cmocka_unit_test(a_memory_node_that_is_away),
        cmocka_unit_test(inheriting_while_a_memory_node_goes_away),
        cmocka_unit_test(inheriting_is_tried_again),
        cmocka_unit_test(a_log_on_a_memory_node_that_has_joined),
        cmocka_unit_test(a_copy_that_goes_to_a_third),
        cmocka_unit_test(what_a_write_costs),
        cmocka_unit_test(what_a_lookup_costs_behind_merging),
        cmocka_unit_test(a_merging_that_is_lost),
        cmocka_unit_test(a_merging_while_the_range_leaves),
        cmocka_unit_test(everything_is_given_back),
        cmocka_unit_test(segments_are_given_back_after_a_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
