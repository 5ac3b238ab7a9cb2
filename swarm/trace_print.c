/* trace_print.c - prints the rows that were chosen, in columns by lane or, of too many lanes, line by line
 * (contract: trace_rows.h). */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "swarm/trace_rows.h"

#define COLUMNS_MAX 6u

#define COLUMN_WIDTH 32u

#define INDENT 6u /* of continued lines */

static void lane_name(const struct trace_rows *trace, uint32_t lane, char text[32])
{
    uint32_t fibers = trace->plan->fibers, threads = trace->plan->threads;
    snprintf(text, 32, "%u.%u.%u", lane / fibers / threads, lane / fibers % threads, lane % fibers);
}

/* How a row reads in its lane. */
static void cell(const struct trace_rows *trace, uint64_t row, char text[RECORD_TEXT + 40])
{
    const struct record *record = trace_record_at(trace, row);
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

static void print_time(const struct trace_rows *trace, uint64_t time_ns)
{
    fprintf(trace->out, "%9" PRIu64 ".%03u", time_ns / 1000, (unsigned)(time_ns % 1000));
}

/* One line of a cell, in its column. */
static void print_piece(const struct trace_rows *trace, uint32_t column, const char *text, size_t length,
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

static void print_cell(const struct trace_rows *trace, uint32_t column, const char *text)
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

static uint32_t column_of(const struct trace_rows *trace, uint32_t lane)
{
    uint32_t column = 0;
    while (column < trace->lane_count && trace->lanes[column] != lane)
        column++;
    return column;
}

static void print_columns(const struct trace_rows *trace)
{
    char text[RECORD_TEXT + 40];
    fprintf(trace->out, "%13s", "us");
    for (uint32_t i = 0; i < trace->lane_count; i++) {
        lane_name(trace, trace->lanes[i], text);
        fprintf(trace->out, " |%-*s", (int)COLUMN_WIDTH, text);
    }
    fputc('\n', trace->out);
    for (uint32_t i = 0; i < trace->row_count; i++) {
        const struct record *record = trace_record_at(trace, trace->rows[i]);
        print_time(trace, record->time_ns);
        cell(trace, trace->rows[i], text);
        if (record->lane == RECORDING_LANE_NONE)
            fprintf(trace->out, " ======== %s\n", text);
        else
            print_cell(trace, column_of(trace, record->lane), text);
    }
}

static void print_lines(const struct trace_rows *trace)
{
    char text[RECORD_TEXT + 40], name[32];
    fprintf(trace->out, "%13s %-8s\n", "us", "lane");
    for (uint32_t i = 0; i < trace->row_count; i++) {
        const struct record *record = trace_record_at(trace, trace->rows[i]);
        print_time(trace, record->time_ns);
        lane_name(trace, record->lane, name);
        cell(trace, trace->rows[i], text);
        fprintf(trace->out, " %-8s %s\n", record->lane == RECORDING_LANE_NONE ? "========" : name, text);
    }
}

static void print_names(const struct trace_rows *trace)
{
    const struct recording *recording = trace->recording;
    bool seen[RECORDING_NAMES] = {false};
    char label[8], text[GADDR_TEXT_BYTES];
    for (uint32_t i = 0; i < trace->row_count; i++) {
        uint16_t name = trace_record_at(trace, trace->rows[i])->name;
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

static void print_head(const struct trace_rows *trace)
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

void trace_print(const struct trace_rows *trace)
{
    print_head(trace);
    print_names(trace);
    if (trace->lane_count > COLUMNS_MAX)
        print_lines(trace);
    else
        print_columns(trace);
}
