/* trace_choose.c - which records of a recording are shown, in which order, and the lanes that they take
 * (contract: trace_rows.h). */
#include <stdlib.h>
#include <string.h>

#include "swarm/trace_rows.h"

#define ROWS_DEFAULT 200u

#define AFTER_PART 8u /* of the rows, how many may stand after the culprit */

#define ACT_PART 8u /* of the rows, how many one operation may take; more are cut in the middle */

#define ACT_LEAST 6u /* at its begin, and at its end */

static void choose_acts(struct trace_rows *trace)
{
    const struct history_op *culprit = &trace->recording->culprit;
    for (uint64_t i = trace->first; i < trace->end; i++)
        if (trace_record_at(trace, i)->act > trace->acts)
            trace->acts = trace_record_at(trace, i)->act;
    trace->chosen = calloc(trace->acts + 1, 1);
    if (!trace->chosen)
        abort();
    for (uint64_t i = trace->first; i < trace->end; i++) {
        const struct record *record = trace_record_at(trace, i);
        if (record->concern == RECORD_CHOOSES && record->act)
            trace->chosen[record->act] = 1;
        if (record->kind == RECORD_BEGIN && culprit->time && record->time_ns == culprit->time &&
            record->lane == culprit->task && record->concern == RECORD_CHOOSES)
            trace->culprit = record->act;
    }
}

/* If the run got stuck and nothing else is known, only operations that never ended are shown. */
static void choose_stuck(struct trace_rows *trace)
{
    const struct recorder_focus *focus = &trace->recording->focus;
    if (!trace_is_stuck(trace->outcome) || focus->has_key || focus->has_node || focus->has_lane)
        return;
    uint32_t lanes = 0;
    uint8_t *open = calloc(trace->acts + 1, 1);
    if (!open)
        abort();
    for (uint64_t i = trace->first; i < trace->end; i++)
        open[trace_record_at(trace, i)->act] = trace_record_at(trace, i)->kind != RECORD_END;
    for (uint32_t i = 1; i <= trace->acts; i++)
        lanes += open[i];
    if (lanes)
        memcpy(trace->chosen, open, trace->acts + 1);
    free(open);
}

static bool is_chosen(const struct trace_rows *trace, const struct record *record)
{
    if (trace->options->all)
        return record->concern != RECORD_ASIDE || record->lane != RECORDING_LANE_NONE;
    if (record->act)
        return record->concern != RECORD_ASIDE && trace->chosen[record->act];
    return record->concern == RECORD_CHOOSES;
}

/* An operation that goes in circles must not hide the records that led there. */
static void choose_records(struct trace_rows *trace)
{
    uint32_t *all = calloc(trace->acts + 1, sizeof *all), *seen = calloc(trace->acts + 1, sizeof *seen);
    uint32_t half = trace->rows_max / ACT_PART / 2;
    half = half < ACT_LEAST ? ACT_LEAST : half;
    trace->shown = calloc(trace->end - trace->first + 1, 1);
    if (!all || !seen || !trace->shown)
        abort();
    for (uint64_t i = trace->first; i < trace->end; i++)
        all[trace_record_at(trace, i)->act] += is_chosen(trace, trace_record_at(trace, i));
    for (uint64_t i = trace->first; i < trace->end; i++) {
        const struct record *record = trace_record_at(trace, i);
        if (!is_chosen(trace, record))
            continue;
        uint32_t number = seen[record->act]++, most = all[record->act];
        bool whole = trace->options->all || !record->act || most <= 2 * half;
        if (whole || number < half || number >= most - half)
            trace->shown[i - trace->first] = SHOWN;
        else if (number == half)
            trace->shown[i - trace->first] = SHOWN_CUT;
    }
    free(all);
    free(seen);
}

static bool is_shown(const struct trace_rows *trace, uint64_t number)
{
    return trace->shown[number - trace->first] != SHOWN_NOT;
}

/* The last rows; where one operation does not fit, those before its end and a few after. */
static void choose_rows(struct trace_rows *trace)
{
    uint64_t stop = trace->end, at;
    for (uint64_t i = trace->first; i < trace->end && trace->culprit; i++)
        if (trace_record_at(trace, i)->act == trace->culprit)
            stop = i + 1;
    trace->rows = calloc(trace->rows_max, sizeof *trace->rows);
    if (!trace->rows)
        abort();
    uint32_t before = 0,
             room = trace->culprit ? trace->rows_max - trace->rows_max / AFTER_PART : trace->rows_max;
    for (at = stop; at > trace->first && before < room; at--)
        before += is_shown(trace, at - 1);
    for (uint64_t i = trace->first; i < at; i++)
        trace->left_out += is_shown(trace, i);
    for (; at < trace->end && trace->row_count < trace->rows_max; at++)
        if (is_shown(trace, at))
            trace->rows[trace->row_count++] = at;
}

/* Sorts by time: a task runs ahead of the event loop, so its records come too early. By insertion: almost all
 * is in order.
 */
static void sort_rows(struct trace_rows *trace)
{
    for (uint32_t i = 1; i < trace->row_count; i++) {
        uint64_t row = trace->rows[i], time = trace_record_at(trace, row)->time_ns;
        uint32_t at = i;
        for (; at > 0 && trace_record_at(trace, trace->rows[at - 1])->time_ns > time; at--)
            trace->rows[at] = trace->rows[at - 1];
        trace->rows[at] = row;
    }
}

/* Of events that come again and again, with nothing of interest between them, one is enough. */
static void thin_rows(struct trace_rows *trace)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < trace->row_count; i++) {
        const struct record *record = trace_record_at(trace, trace->rows[i]);
        const struct record *before = kept ? trace_record_at(trace, trace->rows[kept - 1]) : NULL;
        if (!before || record->kind != RECORD_EVENT || strcmp(record->text, before->text) != 0)
            trace->rows[kept++] = trace->rows[i];
    }
    trace->row_count = kept;
}

static int number_order(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static void choose_lanes(struct trace_rows *trace)
{
    trace->lanes = calloc(trace->row_count + 1, sizeof *trace->lanes);
    if (!trace->lanes)
        abort();
    for (uint32_t i = 0; i < trace->row_count; i++) {
        uint32_t lane = trace_record_at(trace, trace->rows[i])->lane, at = 0;
        while (at < trace->lane_count && trace->lanes[at] != lane)
            at++;
        if (at == trace->lane_count && lane != RECORDING_LANE_NONE)
            trace->lanes[trace->lane_count++] = lane;
    }
    qsort(trace->lanes, trace->lane_count, sizeof *trace->lanes, number_order);
}

void trace_choose(struct trace_rows *trace)
{
    const struct recording *recording = trace->recording;
    trace->end = recording->count;
    trace->first = trace->end > RECORDS_MAX ? trace->end - RECORDS_MAX : 0;
    trace->rows_max = trace->options->rows_max ? trace->options->rows_max : ROWS_DEFAULT;
    choose_acts(trace);
    choose_stuck(trace);
    choose_records(trace);
    choose_rows(trace);
    sort_rows(trace);
    thin_rows(trace);
    choose_lanes(trace);
}

void trace_rows_free(struct trace_rows *trace)
{
    free(trace->chosen);
    free(trace->shown);
    free(trace->rows);
    free(trace->lanes);
}
