/* trace.c - runs a failing plan again, first to learn what the failure is about, then recorded (contract:
 * trace.h). */
#include "swarm/trace.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "swarm/recorder.h"
#include "swarm/trace_rows.h"

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

bool trace_is_stuck(const struct swarm_outcome *outcome)
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
    if (trace_is_stuck(outcome) && !focus->has_key && !focus->has_node &&
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
        struct trace_rows rows = {
            .plan = plan, .options = options, .recording = recording, .outcome = outcome, .out = out};
        trace_choose(&rows);
        trace_print(&rows);
        trace_rows_free(&rows);
    }
    recording_destroy(recording);
    return status;
}
