/* paper_formula.c - reads the `run` of a paper's row; see paper_run.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bench/paper_run.h"

struct words {
    char text[240];
    char *word[12];
    unsigned count, next;
};

static void split(struct words *words, const char *run)
{
    *words = (struct words){.count = 0};
    snprintf(words->text, sizeof words->text, "%s", run);
    char *rest = words->text, *word;
    while ((word = strsep(&rest, " ")))
        if (*word && words->count < sizeof words->word / sizeof words->word[0])
            words->word[words->count++] = word;
}

/* "" after the last. */
static const char *take(struct words *words)
{
    return words->next < words->count ? words->word[words->next++] : "";
}

static bool take_metric(struct words *words, enum paper_metric *metric)
{
    static const char *const names[] = {[PAPER_MOPS] = "mops",
                                        [PAPER_P50] = "p50",
                                        [PAPER_P90] = "p90",
                                        [PAPER_P99] = "p99",
                                        [PAPER_TRIPS] = "trips",
                                        [PAPER_READS] = "reads",
                                        [PAPER_WRITES] = "writes",
                                        [PAPER_ATOMICS] = "atomics",
                                        [PAPER_VERBS] = "verbs",
                                        [PAPER_CALLS] = "calls",
                                        [PAPER_WALKED] = "walked",
                                        [PAPER_BYTES] = "bytes",
                                        [PAPER_MOVE] = "move",
                                        [PAPER_HITS] = "hits",
                                        [PAPER_VALUES] = "values",
                                        [PAPER_LONGEST] = "longest",
                                        [PAPER_SERVED] = "served",
                                        [PAPER_DROP] = "drop",
                                        [PAPER_LOWEST] = "lowest",
                                        [PAPER_HALVED] = "halved",
                                        [PAPER_MEAN_RISE] = "mean-rise",
                                        [PAPER_P99_RISE] = "p99-rise",
                                        [PAPER_MEAN_AFTER] = "mean-after",
                                        [PAPER_P99_AFTER] = "p99-after",
                                        [PAPER_MEAN_BEFORE] = "mean-before",
                                        [PAPER_P99_BEFORE] = "p99-before"};
    const char *word = take(words);
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(word, names[i])) {
            *metric = (enum paper_metric)i;
            return true;
        }
    return false;
}

static bool take_real(struct words *words, double most, double *value)
{
    const char *word = take(words);
    char *end = NULL;
    *value = strtod(word, &end);
    return end != word && !*end && *value >= 0 && *value <= most;
}

static bool take_micro(struct words *words, struct paper_setup *setup)
{
    const char *name = take(words);
    double bytes = 0;
    if (!strcmp(name, "@locks")) {
        setup->kind = PAPER_LOCKS;
        return take_real(words, ZIPF_THETA_MAX, &setup->theta);
    }
    if (!strcmp(name, "@read")) {
        setup->kind = PAPER_READ;
        bool fits = take_real(words, 65536, &bytes) && bytes >= 1;
        setup->bytes = (uint32_t)bytes;
        return fits;
    }
    setup->kind = PAPER_CHIP;
    return !strcmp(name, "@chip");
}

static bool take_distribution(struct words *words, enum workload_distribution *distribution)
{
    const char *word = take(words);
    for (unsigned i = 0; workload_distribution_names[i]; i++)
        if (!strcmp(workload_distribution_names[i], word)) {
            *distribution = (enum workload_distribution)i;
            return true;
        }
    return false;
}

static bool take_index(struct words *words, struct paper_formula *formula)
{
    snprintf(formula->setup.workload, sizeof formula->setup.workload, "%s", take(words));
    if (!take_distribution(words, &formula->setup.distribution))
        return false;
    snprintf(formula->presets[0], sizeof formula->presets[0], "%s", take(words));
    const char *operator= words->next<words->count ? words->word[words->next] : "";
    if (strlen(operator) != 1 || !strchr("/-><", *operator))
        return true;
    formula->operator= * take(words);
    snprintf(formula->presets[1], sizeof formula->presets[1], "%s", take(words));
    return true;
}

static bool take_scan(struct words *words, struct paper_setup *setup)
{
    double entries = 0;
    if (words->next == words->count)
        return true;
    if (strcmp(take(words), "scan") || !take_real(words, 1 << 24, &entries) || entries < 1)
        return false;
    setup->scan_length = (uint32_t)entries;
    return setup->kind == PAPER_INDEX;
}

int paper_formula_parse(struct paper_formula *formula, const char *run, struct error *error)
{
    struct words words;
    split(&words, run);
    *formula = (struct paper_formula){.setup = {.kind = PAPER_INDEX}};
    bool fits = *run == '@' ? take_micro(&words, &formula->setup) : take_index(&words, formula);
    fits = fits && take_metric(&words, &formula->metric) && take_scan(&words, &formula->setup) &&
           words.next == words.count;
    return fits ? 0 : error_set(error, BANYAN_EINVAL, "'%.150s' names no run (bench/paper_run.h)", run);
}
