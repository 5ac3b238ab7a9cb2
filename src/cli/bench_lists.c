/* bench_lists.c - lists that `banyan bench` prints instead of a run: names, and parameters of the simulator
 * (contract: bench_request.h). */
#include <stdio.h>
#include <string.h>

#include "bench/testbed.h"
#include "cli/bench_request.h"

static void list_testbed(const struct testbed *testbed)
{
    char keys[64] = "";
    if (testbed->keys)
        snprintf(keys, sizeof keys, " with %llu million keys, less with fewer",
                 (unsigned long long)testbed->keys / 1000000);
    printf("  %-16s %s\n  %-16s %u-byte leaves, cache of %llu MiB%s; %s%s%s\n", testbed->name, testbed->about,
           "", testbed->leaf_bytes, (unsigned long long)testbed->cache_bytes >> 20, keys, testbed->sim,
           *testbed->switches ? "; " : "", testbed->switches);
}

void bench_list_names(void)
{
    const char *about = NULL;
    printf("Workloads (a name without its prefix means Sherman's, or DEX's where Sherman has none):\n");
    for (size_t i = 0; workload_name(i, NULL); i++) {
        const char *name = workload_name(i, &about);
        printf("  %-26s %s\n", name, about);
    }
    printf("\nPresets:\n");
    for (size_t i = 0; bench_preset_name(i, &about); i++) {
        struct bench_preset preset;
        struct error ignored = {0};
        bench_preset_find(&preset, bench_preset_name(i, &about), &ignored);
        if (about)
            printf("  %-16s %s\n", preset.name, about);
        printf("  %-16s own=%s leaf=%s", about ? "" : preset.name, bench_ownership_names[preset.ownership],
               format_leaf_kind_names[bench_preset_leaf(&preset)]);
        for (const struct option_entry *entry = tree_switches_table; entry->kind != OPTION_END; entry++) {
            char text[64];
            option_format(entry, &preset.switches, text, sizeof text);
            if (strcmp(entry->name, "cache-bytes"))
                printf(" %s=%s", entry->name, text);
        }
        printf("\n");
    }
    printf("\nTestbeds:\n");
    for (const struct testbed *testbed = testbeds; testbed->name; testbed++)
        list_testbed(testbed);
}

void bench_list_table(const struct option_entry *table, const void *defaults)
{
    for (const struct option_entry *entry = table; entry->kind != OPTION_END; entry++) {
        char text[64];
        option_format(entry, defaults, text, sizeof text);
        printf("  %s=%s%s%s\n      %s\n", entry->name, text, entry->unit ? " " : "",
               entry->unit ? entry->unit : "", entry->help ? entry->help : "");
        const struct sim_param_basis *basis =
            table == sim_params_table ? sim_param_basis_find(entry->name) : NULL;
        if (basis)
            printf("      %s, plausible from %g to %g: %s\n", sim_basis_name(basis->basis), basis->low,
                   basis->high, basis->source);
    }
}
