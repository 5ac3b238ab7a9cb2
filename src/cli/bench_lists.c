/* bench_lists.c - lists that `banyan bench` prints instead of a run: names, and parameters of the simulator
 * (contract: bench_request.h). */
#include <stdio.h>
#include <string.h>

#include "bench/testbed.h"
#include "cli/bench_request.h"

void bench_list_names(void)
{
    const char *about = NULL;
    printf("Workloads (a name without its prefix means Sherman's, or DEX's where Sherman has none):\n");
    for (size_t i = 0; workload_name(i, NULL); i++) {
        const char *name = workload_name(i, &about);
        printf("  %-26s %s\n", name, about);
    }
    printf("\nPresets:\n");
    for (size_t i = 0; tree_switches_presets[i]; i++) {
        struct tree_switches switches = {0};
        tree_switches_preset(&switches, tree_switches_presets[i], NULL);
        printf("  %-16s leaf=%s", tree_switches_presets[i],
               format_leaf_kind_names[tree_switches_leaf(tree_switches_presets[i])]);
        for (const struct option_entry *entry = tree_switches_table; entry->kind != OPTION_END; entry++) {
            char text[64];
            option_format(entry, &switches, text, sizeof text);
            if (strcmp(entry->name, "cache-bytes"))
                printf(" %s=%s", entry->name, text);
        }
        printf("\n");
    }
    printf("\nTestbeds:\n");
    for (const struct testbed *testbed = testbeds; testbed->name; testbed++)
        printf("  %-16s %s\n  %-16s %u-byte leaves, cache of %llu MiB; %s%s%s\n", testbed->name,
               testbed->about, "", testbed->leaf_bytes, (unsigned long long)testbed->cache_bytes >> 20,
               testbed->sim, *testbed->switches ? "; " : "", testbed->switches);
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
