/* trace.c - see trace.h. */
#include "swarm/trace.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "swarm/recorder.h"

#define ROWS_DEFAULT 200u
#define COLUMNS_MAX  6u
#define COLUMN_WIDTH 32u
#define INDENT       6u /* of continued lines */
#define AFTER_PART   8u /* of the rows, how many may stand after the culprit */
#define ACT_PART     8u /* of the rows, how many one operation may take; more are cut in the middle */
#define ACT_LEAST    6u /* at its begin, and at its end */

/* ---- the focus: what the failure is about ---- */

/* The first address in a message, as gaddr_format writes it. */
static gaddr address_in(const char *text)
{
    for (const char *at = text; *at; at++) {
        unsigned node;
        uint64_t offset;
        int length = 0;
        bool fresh = at == text || !isalnum((unsigned char)at[-1]);
        if (!fresh || !isdigit((unsigned char)*at))
            continue;
        if (sscanf(at, "%5u:0x%" SCNx64 "%n", &node, &offset, &length) == 2 && length)
            return gaddr_make((uint16_t)node, offset);
        if (sscanf(at, "%5u:lock:0x%" SCNx64 "%n", &node, &offset, &length) == 2 && length)
            return gaddr_make((uint16_t)node, offset | GADDR_LOCK_REGION);
    }
    return GADDR_NULL;
}

static bool is_stuck(const struct swarm_outcome *outcome)
{
    return outcome->end == SWARM_TIMEOUT || outcome->end == SWARM_MEMORY ||
           (outcome->end == SWARM_FAILED && outcome->result.status == BANYAN_ETIMEOUT);
}

/* Without anything better: a lock that is never freed, or the operation of the task that ran last. */
static void focus_find(struct recording *recording, const struct swarm_outcome *outcome)
{
    struct recorder_focus *focus = &recording->focus;
    const struct recorder_last *last = &recording->last;
    if (recording->blamed) {
        focus->has_key = true;
        focus->key = recording->blamed - 1;
    }
    focus->node = address_in(recording->failure);
    focus->has_node = focus->node != GADDR_NULL;
    if (is_stuck(outcome) && !focus->has_key && !focus->has_node &&
        recording->contended_times >= RECORDING_STUCK) {
        focus->has_node = true;
        focus->node = recording->contended;
    }
    if (outcome->end == SWARM_FAILED || outcome->end == SWARM_SOUND || focus->has_key || focus->has_node)
        return;
    focus->has_lane = true;
    focus->lane = last->lane;
    if (last->busy && last->has_key) {
        focus->has_key = true;
        focus->key = last->key;
    }
}

/* ---- choosing records ---- */

enum shown { SHOWN_NOT, SHOWN, SHOWN_CUT };

struct trace {
    const struct swarm_plan *plan;
    const struct swarm_trace_options *options;
    const struct recording *recording;
    const struct swarm_outcome *outcome;
    FILE *out;
    uint64_t first, end; /* records, counted since the run's begin */
    uint8_t *chosen;     /* owned, by operation */
    uint8_t *shown;      /* owned, by record since `first`: enum shown */
    uint32_t acts;
    uint32_t culprit; /* the operation that does not fit; 0: none */
    uint64_t *rows;   /* owned: records to be shown */
    uint32_t row_count, rows_max, left_out;
    uint32_t *lanes; /* owned, ascending */
    uint32_t lane_count;
};

static const struct record *record_at(const struct trace *trace, uint64_t number)
{
    return &trace->recording->records[number % RECORDS_MAX];
}

static void choose_acts(struct trace *trace)
{
    const struct history_op *culprit = &trace->recording->culprit;
    for (uint64_t i = trace->first; i < trace->end; i++)
        if (record_at(trace, i)->act > trace->acts)
            trace->acts = record_at(trace, i)->act;
    trace->chosen = calloc(trace->acts + 1, 1);
    if (!trace->chosen)
        abort();
    for (uint64_t i = trace->first; i < trace->end; i++) {
        const struct record *record = record_at(trace, i);
        if (record->concern == RECORD_CHOOSES && record->act)
            trace->chosen[record->act] = 1;
        if (record->kind == RECORD_BEGIN && culprit->time && record->time_ns == culprit->time &&
            record->lane == culprit->task && record->concern == RECORD_CHOOSES)
            trace->culprit = record->act;
    }
}

/* If the run got stuck and nothing else is known, only operations that never ended are shown. */
static void choose_stuck(struct trace *trace)
{
    const struct recorder_focus *focus = &trace->recording->focus;
    if (!is_stuck(trace->outcome) || focus->has_key || focus->has_node || focus->has_lane)
        return;
    uint32_t lanes = 0;
    uint8_t *open = calloc(trace->acts + 1, 1);
    if (!open)
        abort();
    for (uint64_t i = trace->first; i < trace->end; i++)
        open[record_at(trace, i)->act] = record_at(trace, i)->kind != RECORD_END;
    for (uint32_t i = 1; i <= trace->acts; i++)
        lanes += open[i];
    if (lanes)
        memcpy(trace->chosen, open, trace->acts + 1);
    free(open);
}

static bool is_chosen(const struct trace *trace, const struct record *record)
{
    if (trace->options->all)
        return record->concern != RECORD_ASIDE || record->lane != RECORDING_LANE_NONE;
    if (record->act)
        return record->concern != RECORD_ASIDE && trace->chosen[record->act];
    return record->concern == RECORD_CHOOSES;
}

/* An operation that goes in circles must not hide the records that led there. */
static void choose_records(struct trace *trace)
{
    uint32_t *all = calloc(trace->acts + 1, sizeof *all), *seen = calloc(trace->acts + 1, sizeof *seen);
    uint32_t half = trace->rows_max / ACT_PART / 2;
    half = half < ACT_LEAST ? ACT_LEAST : half;
    trace->shown = calloc(trace->end - trace->first + 1, 1);
    if (!all || !seen || !trace->shown)
        abort();
    for (uint64_t i = trace->first; i < trace->end; i++)
        all[record_at(trace, i)->act] += is_chosen(trace, record_at(trace, i));
    for (uint64_t i = trace->first; i < trace->end; i++) {
        const struct record *record = record_at(trace, i);
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

static bool is_shown(const struct trace *trace, uint64_t number)
{
    return trace->shown[number - trace->first] != SHOWN_NOT;
}

/* The last rows; where one operation does not fit, those before its end and a few after. */
static void choose_rows(struct trace *trace)
{
    uint64_t stop = trace->end, at;
    for (uint64_t i = trace->first; i < trace->end && trace->culprit; i++)
        if (record_at(trace, i)->act == trace->culprit)
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
static void sort_rows(struct trace *trace)
{
    for (uint32_t i = 1; i < trace->row_count; i++) {
        uint64_t row = trace->rows[i], time = record_at(trace, row)->time_ns;
        uint32_t at = i;
        for (; at > 0 && record_at(trace, trace->rows[at - 1])->time_ns > time; at--)
            trace->rows[at] = trace->rows[at - 1];
        trace->rows[at] = row;
    }
}

/* Of events that come again and again, with nothing of interest between them, one is enough. */
static void thin_rows(struct trace *trace)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < trace->row_count; i++) {
        const struct record *record = record_at(trace, trace->rows[i]);
        const struct record *before = kept ? record_at(trace, trace->rows[kept - 1]) : NULL;
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

static void choose_lanes(struct trace *trace)
{
    trace->lanes = calloc(trace->row_count + 1, sizeof *trace->lanes);
    if (!trace->lanes)
        abort();
    for (uint32_t i = 0; i < trace->row_count; i++) {
        uint32_t lane = record_at(trace, trace->rows[i])->lane, at = 0;
        while (at < trace->lane_count && trace->lanes[at] != lane)
            at++;
        if (at == trace->lane_count && lane != RECORDING_LANE_NONE)
            trace->lanes[trace->lane_count++] = lane;
    }
    qsort(trace->lanes, trace->lane_count, sizeof *trace->lanes, number_order);
}

/* ---- printing ---- */

static void lane_name(const struct trace *trace, uint32_t lane, char text[32])
{
    uint32_t fibers = trace->plan->fibers, threads = trace->plan->threads;
    snprintf(text, 32, "%u.%u.%u", lane / fibers / threads, lane / fibers % threads, lane % fibers);
}

/* How a row reads in its lane. */
static void cell(const struct trace *trace, uint64_t row, char text[RECORD_TEXT + 40])
{
    const struct record *record = record_at(trace, row);
    static const char *const marks[] = {"", "", "  > ", "    ", "  < ", ""};
    snprintf(text, RECORD_TEXT + 40, "%s%s%s", marks[record->kind], record->text,
             trace->culprit && record->act == trace->culprit && record->kind == RECORD_END
                 ? "  <=== DOES NOT FIT"
                 : "");
    if (trace->shown[row - trace->first] == SHOWN_CUT)
        snprintf(text, RECORD_TEXT + 40, "    ... and so on ...");
}

/* Where the next line of a cell ends: at most `width` bytes, at a space where there is one. */
static size_t line_end(const char *text, size_t width)
{
    size_t length = strlen(text), end = width;
    if (length <= width)
        return length;
    while (end > width / 2 && text[end] != ' ')
        end--;
    return end > width / 2 ? end : width;
}

static void print_time(const struct trace *trace, uint64_t time_ns)
{
    fprintf(trace->out, "%9" PRIu64 ".%03u", time_ns / 1000, (unsigned)(time_ns % 1000));
}

/* One line of a cell, in its column. */
static void print_piece(const struct trace *trace, uint32_t column, const char *text, size_t length,
                        bool first)
{
    uint32_t indent = first ? 0 : INDENT;
    for (uint32_t i = 0; i <= column; i++)
        fprintf(trace->out, " |%*s", i < column ? (int)COLUMN_WIDTH : (int)indent, "");
    fprintf(trace->out, "%.*s", (int)length, text);
    for (uint32_t i = column + 1; i < trace->lane_count; i++)
        fprintf(trace->out, "%*s |", (int)COLUMN_WIDTH - (i > column + 1 ? 0 : (int)(indent + length)), "");
    fputc('\n', trace->out);
}

static void print_cell(const struct trace *trace, uint32_t column, const char *text)
{
    for (bool first = true; *text; first = false) {
        size_t end = line_end(text, COLUMN_WIDTH - (first ? 0 : INDENT));
        if (!first)
            fprintf(trace->out, "%13s", "");
        print_piece(trace, column, text, end, first);
        for (text += end; *text == ' ';)
            text++;
    }
}

static uint32_t column_of(const struct trace *trace, uint32_t lane)
{
    uint32_t column = 0;
    while (column < trace->lane_count && trace->lanes[column] != lane)
        column++;
    return column;
}

static void print_columns(const struct trace *trace)
{
    char text[RECORD_TEXT + 40];
    fprintf(trace->out, "%13s", "us");
    for (uint32_t i = 0; i < trace->lane_count; i++) {
        lane_name(trace, trace->lanes[i], text);
        fprintf(trace->out, " |%-*s", (int)COLUMN_WIDTH, text);
    }
    fputc('\n', trace->out);
    for (uint32_t i = 0; i < trace->row_count; i++) {
        const struct record *record = record_at(trace, trace->rows[i]);
        print_time(trace, record->time_ns);
        cell(trace, trace->rows[i], text);
        if (record->lane == RECORDING_LANE_NONE)
            fprintf(trace->out, " ======== %s\n", text);
        else
            print_cell(trace, column_of(trace, record->lane), text);
    }
}

static void print_lines(const struct trace *trace)
{
    char text[RECORD_TEXT + 40], name[32];
    fprintf(trace->out, "%13s %-8s\n", "us", "lane");
    for (uint32_t i = 0; i < trace->row_count; i++) {
        const struct record *record = record_at(trace, trace->rows[i]);
        print_time(trace, record->time_ns);
        lane_name(trace, record->lane, name);
        cell(trace, trace->rows[i], text);
        fprintf(trace->out, " %-8s %s\n", record->lane == RECORDING_LANE_NONE ? "========" : name, text);
    }
}

static void print_names(const struct trace *trace)
{
    const struct recording *recording = trace->recording;
    bool seen[RECORDING_NAMES] = {false};
    char label[8], text[GADDR_TEXT_BYTES];
    for (uint32_t i = 0; i < trace->row_count; i++) {
        uint16_t name = record_at(trace, trace->rows[i])->name;
        if (name)
            seen[name - 1] = true;
    }
    for (uint32_t i = 0, shown = 0; i < recording->name_count; i++) {
        if (!seen[i])
            continue;
        recording_label(i, label);
        fprintf(trace->out, "%s%s: %s %s", shown++ ? ", " : "Where: ", label, recording->names[i].what,
                gaddr_format(recording->names[i].address, text));
    }
    fputc('\n', trace->out);
}

static void print_head(const struct trace *trace)
{
    const struct recorder_focus *focus = &trace->recording->focus;
    const struct swarm_outcome *outcome = trace->outcome;
    char text[400];
    fprintf(trace->out, "Trace of seed %" PRIu64 ": %s%s%.*s\n", trace->plan->seed,
            swarm_end_name(outcome->end), outcome->result.what[0] ? ": " : "",
            (int)strcspn(outcome->result.what, "\n"), outcome->result.what);
    if (outcome->end == SWARM_CRASHED && outcome->words[0])
        fprintf(trace->out, "Its last words: %s\n", outcome->words);
    swarm_plan_describe(trace->plan, text, sizeof text);
    fprintf(trace->out, "Plan: %s\nShown: ", text);
    if (trace->options->all || !(focus->has_key || focus->has_node || focus->has_lane))
        fprintf(trace->out, "everything");
    if (focus->has_key)
        fprintf(trace->out, "what concerns key %" PRIu64, focus->key);
    if (focus->has_node)
        fprintf(trace->out, "%saddress %s", focus->has_key ? ", and " : "what concerns ",
                gaddr_format(focus->node, text));
    if (focus->has_lane) {
        lane_name(trace, focus->lane, text);
        fprintf(trace->out, "%s%s, which ran last", focus->has_key ? ", and the task " : "the task ", text);
    }
    fprintf(trace->out, "; %u rows%s", trace->row_count, trace->row_count ? "" : ": nothing was recorded");
    if (trace->left_out)
        fprintf(trace->out, ", %u before them left out", trace->left_out);
    fprintf(trace->out, "\nLanes: compute node.thread.fiber. > commands posted, < answer if it is an error; "
                        "commands stand where they take effect.\n");
}

static void print(struct trace *trace)
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
    print_head(trace);
    print_names(trace);
    if (trace->lane_count > COLUMNS_MAX)
        print_lines(trace);
    else
        print_columns(trace);
    free(trace->chosen);
    free(trace->shown);
    free(trace->rows);
    free(trace->lanes);
}

/* ---- running ---- */

static int run(const struct swarm_plan *plan, const struct swarm_trace_options *options,
               struct recording *recording, struct swarm_outcome *outcome, struct error *error)
{
    struct swarm_watch watch = recorder_watch(recording);
    recording_clear(recording);
    return swarm_farm_one(plan, &watch, options->seconds_max, options->bytes_max, outcome, error);
}

int swarm_trace_run(const struct swarm_plan *plan, const struct swarm_trace_options *options, FILE *out,
                    struct swarm_outcome *outcome, struct error *error)
{
    struct recording *recording = recording_create();
    if (!recording)
        return error_set(error, BANYAN_ENOMEM, "no memory for a recording");
    recording->more = options->watch;
    int status = run(plan, options, recording, outcome, error);
    if (!status) {
        focus_find(recording, outcome);
        recording->texts = true;
        recording->asides = options->all;
        status = run(plan, options, recording, outcome, error);
    }
    if (!status) {
        struct trace trace = {
            .plan = plan, .options = options, .recording = recording, .outcome = outcome, .out = out};
        print(&trace);
    }
    recording_destroy(recording);
    return status;
}
