/*
 * fuzz_plan.c - the text of a simulated run's plan (swarm/plan.h), which is kept in files and read back.
 *
 * Oracle: refused text has a message with its line; accepted text is written, read again, and written
 * as the same; a plan that was checked has rounds to leave out that are read and written as the same.
 */
#include "fuzz/fuzz.h"
#include "swarm/plan.h"

static char *plan_text(const struct swarm_plan *plan)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);
    fuzz_must(file && !swarm_plan_write(plan, file) && !fclose(file), "a plan cannot be written");
    return text;
}

static void judge_skip(struct swarm_plan *plan)
{
    struct swarm_skip skip = {0}, again = {0};
    struct error error = {0};
    if (swarm_skip_parse(&skip, plan, &error)) {
        fuzz_must(error.text[0], "rounds to leave out are refused without a message");
    } else {
        char *text = swarm_skip_format(&skip), *old = plan->skip;
        plan->skip = text;
        fuzz_must(!swarm_skip_parse(&again, plan, &error), "'%s' is refused: %s", text ? text : "",
                  error.text);
        fuzz_must(again.tasks == skip.tasks && again.rounds == skip.rounds, "other rounds");
        for (uint32_t task = 0; task < skip.tasks && task < 64; task++)
            for (uint32_t round = 0; round < skip.rounds && round < 4096; round++)
                fuzz_must(swarm_skip_has(&skip, task, round) == swarm_skip_has(&again, task, round),
                          "round %u of task %u", round, task);
        plan->skip = old;
        free(text);
    }
    swarm_skip_free(&skip);
    swarm_skip_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct swarm_plan plan, again;
    struct error error = {0};
    if (length > 8192)
        return 0;
    char *text = fuzz_text(bytes, length), words[200];
    int status = swarm_plan_parse(&plan, text, &error);
    fuzz_must(!status == !error.text[0], "status %d, message '%s'", status, error.text);
    if (!status) {
        char *first = plan_text(&plan);
        status = swarm_plan_parse(&again, first, &error);
        fuzz_must(!status, "the text that it writes is refused: %s\n%s", error.text, first);
        char *second = plan_text(&again);
        fuzz_must(!strcmp(first, second), "it is written as\n%s\nand then as\n%s", first, second);
        swarm_plan_describe(&plan, words, sizeof words);
        free(first);
        free(second);
        swarm_plan_free(&again);
        if (!swarm_plan_check(&plan, &error))
            judge_skip(&plan);
    }
    swarm_plan_free(&plan);
    free(text);
    return 0;
}
