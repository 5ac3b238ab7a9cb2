/*
 * trace_rows.h - the rows of a trace: chosen by trace_choose.c, printed by trace_print.c. For trace.c; one
 * thread; aborts where this process has no memory.
 */
#ifndef SWARM_TRACE_ROWS_H
#define SWARM_TRACE_ROWS_H

#include "swarm/recording.h"
#include "swarm/trace.h"

enum trace_shown { SHOWN_NOT, SHOWN, SHOWN_CUT };
struct trace_rows {
    const struct swarm_plan *plan;
    const struct swarm_trace_options *options;
    const struct recording *recording;
    const struct swarm_outcome *outcome;
    FILE *out;
    uint64_t first, end; /* records, counted since the run's begin */
    uint8_t *chosen;     /* owned, by operation */
    uint8_t *shown;      /* owned, by record since `first`: enum trace_shown */
    uint32_t acts;
    uint32_t culprit; /* the operation that does not fit; 0: none */
    uint64_t *rows;   /* owned: records to be shown */
    uint32_t row_count, rows_max, left_out;
    uint32_t *lanes; /* owned, ascending */
    uint32_t lane_count;
};

/* Fills the rest, from plan, options, recording and outcome; to be freed. */
void trace_choose(struct trace_rows *trace);
void trace_print(const struct trace_rows *trace);
void trace_rows_free(struct trace_rows *trace);

static inline const struct record *trace_record_at(const struct trace_rows *trace, uint64_t number)
{
    return &trace->recording->records[number % RECORDS_MAX];
}
/* Some tasks wait for ever, or the run was stopped. */
bool trace_is_stuck(const struct swarm_outcome *outcome);

#endif
