/* recover_lost.c - see recover_lost.h. */
#include "cli/recover_lost.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ranges.h"

int recover_lost_read(struct recover_lost *lost, const char *text, uint32_t nodes, struct error *error)
{
    while (text && *text) {
        char *end;
        const unsigned long node = strtoul(text, &end, 10);
        if (end == text || (*end && *end != ',') || node >= nodes || node >= RECOVER_NODES_MAX)
            return error_set(error, BANYAN_EINVAL,
                             "lost: '%.100s' are no numbers of memory nodes; the cluster has 0 to %" PRIu32,
                             text, nodes - 1);
        lost->count += !lost->nodes[node];
        lost->nodes[node] = true;
        text = *end ? end + 1 : end;
    }
    return 0;
}

/* Nothing of it is needed. */
static void forget(struct recover_lost *lost, uint32_t node)
{
    lost->count -= lost->nodes[node];
    lost->nodes[node] = false;
}

int recover_lost_check(struct recover_lost *lost, uint32_t nodes, const bool *given,
                       const struct persist_table *table, bool accept_loss, struct error *error)
{
    for (uint32_t n = 0; n < nodes && n < RECOVER_NODES_MAX; n++) {
        if (given[n] && lost->nodes[n])
            return error_set(error, BANYAN_EINVAL,
                             "lost: the directory of memory node %" PRIu32 " is given with --data", n);
        if (table && persist_table_left(table, n)) {
            forget(lost, n);
        } else if (!given[n] && !lost->nodes[n] && accept_loss) {
            lost->nodes[n] = true;
            lost->count++;
        } else if (!given[n] && !lost->nodes[n]) {
            return error_set(error, BANYAN_EINVAL,
                             "data: the cluster has %" PRIu32
                             " memory nodes, and the directory of memory node %" PRIu32
                             " is not given. If its disk is lost, say so: --lost %" PRIu32,
                             nodes, n, n);
        }
    }
    return 0;
}

void recover_lost_tell(struct recover_lost *lost, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    lost->doubts++;
    if (lost->told)
        json_array_append_new(lost->told, json_string(text));
    else
        fprintf(lost->to, "%s\n", text);
}

/* An entry is there if one of its copies is: its process must have said that all have two. */
static void processes_judge(struct recover_lost *lost, const struct persist_replay *replay)
{
    const struct persist_replay_process *process;
    for (uint32_t at = 0; (process = persist_replay_process_next(replay, &at));) {
        if (process->silent)
            recover_lost_tell(
                lost,
                "MAY BE MISSING: compute node %u (instance %" PRIx64
                ") logged with an earlier release, which does not say whether its changes had two "
                "copies",
                (unsigned)process->process.compute_id, process->process.instance);
        else if (process->alone)
            recover_lost_tell(
                lost,
                "MAY BE MISSING: compute node %u (instance %" PRIx64
                ") has written changes with one copy (--log-copies 1, or no second memory node took "
                "them); those that stood on the lost disk alone are lost",
                (unsigned)process->process.compute_id, process->process.instance);
    }
}

/* One of the keys, for the message. */
static void missed_note(void *context, const struct persist_replay_key *key)
{
    struct persist_replay_key *one = context;
    *one = *key;
}

static void values_judge(struct recover_lost *lost, const struct persist_replay *replay)
{
    struct persist_replay_key one;
    char key[RANGES_KEY_TEXT];
    const uint64_t missed = persist_replay_missed(replay, missed_note, &one);
    if (!missed)
        return;
    ranges_key_format(one.key, one.key_length, key);
    recover_lost_tell(
        lost,
        "LOST: the newest values of %" PRIu64
        " keys, whose bytes stood on the lost disk alone (values of more than 64 KiB do): they have "
        "older values, or none. One of them is '%s' of index %u",
        missed, key, (unsigned)one.index);
}

void recover_lost_judge(struct recover_lost *lost, const struct persist_replay *replay)
{
    bool named = false;
    if (!lost->count)
        return;
    if (lost->count > 1)
        recover_lost_tell(lost,
                          "MAY BE MISSING: %u disks are lost; changes whose two copies stood on two of them "
                          "are in no journal that is left",
                          (unsigned)lost->count);
    for (uint32_t i = 1; i <= UINT16_MAX && !named; i++)
        named = persist_replay_index(replay, (uint16_t)i) != NULL;
    if (!named)
        recover_lost_tell(lost,
                          "LOST: the indexes' names, which were on the lost disk alone; the indexes have "
                          "numbers");
    processes_judge(lost, replay);
    values_judge(lost, replay);
}
