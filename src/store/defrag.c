/* defrag.c - see defrag.h. The walk; relocate.c moves single records. */
#include "store/defrag.h"

#include "store/cursor.h"
#include "store/relocate.h"

#include <assert.h>

/* Half of what pool_evacuation_renew asks for. */
#define RENEW_NS (POOL_EVACUATION_MS / 4 * UINT64_C(1000000))

int store_merge_step(struct store_session *session, struct store_merging *merging, uint32_t leaves,
                     bool *ended)
{
    struct tree_merge_report report = {0};
    store_begin_untimed(session);
    int status = tree_merge_step(session->tree, session->store->tree, &merging->cursor, leaves, &report);
    merging->leaves += report.leaves;
    merging->merges += report.merges;
    merging->walks += report.ended;
    *ended = report.ended;
    return status;
}

static bool evacuated(void *context, gaddr block)
{
    return pool_evacuation_holds(context, block);
}

static struct store_relocation relocation_of(struct store_defrag *defrag, uint64_t now)
{
    return (struct store_relocation){.now = now,
                                     .chosen = defrag->chosen ? defrag->chosen : evacuated,
                                     .context = defrag->chosen ? defrag->chosen_context : defrag->evacuation,
                                     .counts = &defrag->counts};
}

int store_defrag_begin(struct store_session *session, struct store_defrag *defrag, bool *any)
{
    int status = 0;
    assert(!defrag->evacuation);
    store_begin_untimed(session);
    pool_session_begin(tree_session_pool(session->tree));
    defrag->cursor_length = 0;
    defrag->cut = false;
    defrag->refused = 0;
    defrag->renewed_ns = task_now();
    if (!defrag->chosen)
        status = pool_evacuation_begin(tree_session_pool(session->tree), &defrag->evacuation);
    *any = defrag->chosen || defrag->evacuation;
    return status;
}

static void pass_end(struct store_session *session, struct store_defrag *defrag, bool tried)
{
    defrag->cursor_length = 0;
    if (!defrag->evacuation)
        return;
    pool_session_begin(tree_session_pool(session->tree));
    pool_evacuation_end(tree_session_pool(session->tree), defrag->evacuation,
                        tried); /* it ends by itself too */
    defrag->evacuation = NULL;
}

void store_defrag_end(struct store_session *session, struct store_defrag *defrag)
{
    pass_end(session, defrag, false);
}

/* A pass that lasts long says now and then that it goes on. False: there is nothing left to empty. */
static bool goes_on(struct store_session *session, struct store_defrag *defrag)
{
    if (defrag->chosen)
        return true;
    if (!defrag->evacuation)
        return false;
    if (task_now() - defrag->renewed_ns >= RENEW_NS) {
        defrag->renewed_ns = task_now();
        pool_session_begin(tree_session_pool(session->tree));
        pool_evacuation_renew(tree_session_pool(session->tree),
                              defrag->evacuation); /* the next may succeed */
    }
    return pool_evacuation_chunks(defrag->evacuation) > 0;
}

/* Whether the pass ends with it. */
static bool ends(int status)
{
    return status == BANYAN_ENOSPC || store_relocation_unanswered(status);
}

/* What not being answered comes to, for the pass: 0 as long as the next attempt may be. */
static int unanswered(struct store_defrag *defrag, int status)
{
    defrag->cut = true;
    if (defrag->unanswered < STORE_DEFRAG_UNANSWERED_MAX)
        defrag->unanswered++;
    return defrag->unanswered < STORE_DEFRAG_UNANSWERED_MAX ? 0 : status;
}

/* What moving one key has come to, for the pass: 0 too where others may still find the room that it did not,
 * or the owner that it did not. */
static int entry_move(struct store_session *session, struct store_defrag *defrag,
                      const struct store_relocation *relocation, const struct store_entry *entry)
{
    struct store_defrag_counts *counts = &defrag->counts;
    const uint64_t hits = counts->hits;
    int status = store_relocate(session, relocation, entry);
    if (store_relocation_unanswered(status)) {
        counts->misses++;
        return unanswered(defrag, status);
    }
    if (counts->hits > hits) /* a miss may have asked nobody */
        defrag->unanswered = 0;
    if (status == BANYAN_ENOSPC) {
        counts->misses++;
        defrag->cut |= ++defrag->refused >= STORE_DEFRAG_REFUSED_MAX;
        return defrag->refused >= STORE_DEFRAG_REFUSED_MAX ? status : 0;
    }
    defrag->cut |= status && status != BANYAN_ECORRUPT;
    return status;
}

/* A damaged record is passed over: another that lies behind it can be moved all the same. */
static int batch_move(struct store_session *session, struct store_defrag *defrag,
                      const struct store_relocation *relocation)
{
    int status = 0;
    for (uint32_t i = 0; i < session->batch->count && !ends(status); i++) {
        int one = entry_move(session, defrag, relocation, &session->batch->entries[i]);
        status = status && !ends(one) ? status : one ? one : status;
    }
    return status;
}

int store_defrag_step(struct store_session *session, struct store_defrag *defrag, uint32_t entries,
                      bool *done)
{
    struct store_cursor cursor = {
        .session = session, .part = FORMAT_PART_HEADER, .now = store_begin(session)};
    int status = 0;
    if (defrag->cursor_length)
        cursor.range = (struct tree_range){
            .from = defrag->cursor, .from_length = defrag->cursor_length, .from_open = true};
    *done = !goes_on(session, defrag);
    const struct store_relocation relocation = relocation_of(defrag, cursor.now);
    while (entries && !status && !*done && !cursor.done) {
        uint32_t room = entries < STORE_BATCH_ENTRIES ? entries : STORE_BATCH_ENTRIES;
        status = store_cursor_next(&cursor, room);
        defrag->cut |= status != 0;
        if (store_relocation_unanswered(status) && !(status = unanswered(defrag, status)))
            continue; /* the same entries again */
        if (status)
            break;
        status = batch_move(session, defrag, &relocation);
        defrag->counts.entries += cursor.met;
        entries -= room;
        if (cursor.met) {
            memcpy(defrag->cursor, cursor.last, cursor.last_length);
            defrag->cursor_length = cursor.last_length;
        }
    }
    *done |= cursor.done || ends(status);
    if (*done) {
        pass_end(session, defrag, cursor.done && !defrag->cut);
        defrag->counts.passes++;
    }
    return status;
}
