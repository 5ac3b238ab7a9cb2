/* plan_skip.c - the rounds that a plan leaves out (contract: plan.h). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "swarm/plan.h"

int swarm_skip_parse(struct swarm_skip *skip, const struct swarm_plan *plan, struct error *error)
{
    uint64_t tasks = (uint64_t)plan->compute_nodes * plan->threads * plan->fibers;
    *skip = (struct swarm_skip){.tasks = (uint32_t)tasks, .rounds = plan->rounds};
    if (!plan->skip)
        return 0;
    skip->words = calloc((tasks * plan->rounds + 63) / 64, 8);
    if (!skip->words)
        return error_set(error, BANYAN_ENOMEM, "plan: no memory for %" PRIu64 " tasks of %u rounds", tasks,
                         plan->rounds);
    for (const char *at = plan->skip; *at;) {
        unsigned task, from, to;
        int length = 0;
        if (sscanf(at, "%u:%u-%u%n", &task, &from, &to, &length) != 3 || from > to || to >= plan->rounds ||
            task >= tasks || (at[length] && at[length] != ' '))
            return error_set(error, BANYAN_EINVAL,
                             "plan: skip '%.40s' is no task:from-to of %" PRIu64 " tasks and %u rounds", at,
                             tasks, plan->rounds);
        for (unsigned round = from; round <= to; round++)
            swarm_skip_set(skip, task, round, true);
        for (at += length; *at == ' ';)
            at++;
    }
    return 0;
}

void swarm_skip_set(struct swarm_skip *skip, uint32_t task, uint32_t round, bool left_out)
{
    uint64_t bit = (uint64_t)task * skip->rounds + round, mask = UINT64_C(1) << bit % 64;
    skip->words[bit / 64] = left_out ? skip->words[bit / 64] | mask : skip->words[bit / 64] & ~mask;
}

char *swarm_skip_format(const struct swarm_skip *skip)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = skip->words ? open_memstream(&text, &size) : NULL;
    if (!file)
        return NULL;
    for (uint32_t task = 0; task < skip->tasks; task++)
        for (uint32_t from = 0, to; from < skip->rounds; from = to + 1) {
            for (to = from; to < skip->rounds && swarm_skip_has(skip, task, to); to++)
                ;
            if (to > from)
                fprintf(file, "%s%u:%u-%u", ftell(file) ? " " : "", task, from, to - 1);
        }
    if (fclose(file) || size == 0) {
        free(text);
        return NULL;
    }
    return text;
}

void swarm_skip_free(struct swarm_skip *skip)
{
    free(skip->words);
    skip->words = NULL;
}
