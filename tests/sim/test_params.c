/*
 * test_params.c - every cost of the simulated hardware has a basis: a source or the word estimate, and a
 * range around its default; and docs/internals/simulator.md states the same. PAGE is the path of that page.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/params.h"

/* These lay out the machines, state what the NIC can do, and set times that users choose; they cost nothing.
 */
static const char *const costless[] = {"shared-nic", "atomic-write",  "lock-width",      "release-by-write",
                                       "masked-cas", "read-lease-ns", "peer-timeout-ns", NULL};

static bool is_costless(const char *name)
{
    for (const char *const *other = costless; *other; other++)
        if (!strcmp(*other, name))
            return true;
    return false;
}

static double default_of(const struct option_entry *entry)
{
    struct sim_params params;
    sim_params_default(&params);
    const char *field = (const char *)&params + entry->offset;
    switch (entry->kind) {
    case OPTION_BOOL:
        return *(const bool *)(const void *)field;
    case OPTION_U32:
        return *(const uint32_t *)(const void *)field;
    case OPTION_DOUBLE:
        return *(const double *)(const void *)field;
    default:
        fail_msg("%s is of a kind that is no cost", entry->name);
        return 0;
    }
}

static void test_every_cost_has_a_basis(void **state)
{
    (void)state;
    for (const struct option_entry *entry = sim_params_table; entry->kind != OPTION_END; entry++) {
        const struct sim_param_basis *row = sim_param_basis_find(entry->name);
        if (is_costless(entry->name) != !row)
            fail_msg("%s: sim_params_basis must have a row for each cost, and for nothing else", entry->name);
    }
    for (const struct sim_param_basis *row = sim_params_basis; row->name; row++) {
        if (sim_param_basis_find(row->name) != row)
            fail_msg("%s has two rows in sim_params_basis", row->name);
        if (!option_find(sim_params_table, row->name))
            fail_msg("%s is in sim_params_basis, but is no parameter", row->name);
    }
}

static void test_every_default_lies_in_its_range(void **state)
{
    (void)state;
    for (const struct sim_param_basis *row = sim_params_basis; row->name; row++) {
        const struct option_entry *entry = option_find(sim_params_table, row->name);
        double value = default_of(entry), most = entry->kind == OPTION_BOOL ? 1 : entry->maximum;
        if (!(row->low <= value && value <= row->high && row->low < row->high))
            fail_msg("%s: %g is not within %g to %g", row->name, value, row->low, row->high);
        if (row->low < entry->minimum || row->high > most)
            fail_msg("%s: %g to %g is more than the parameter's own range", row->name, row->low, row->high);
        assert_true(strlen(row->source) > 0);
        assert_true(strlen(sim_basis_name(row->basis)) > 0);
    }
}

static char *read_page(void)
{
    FILE *file = fopen(PAGE, "re");
    if (!file)
        fail_msg("%s cannot be read", PAGE);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(file);
    char *text = malloc(size + 1);
    assert_non_null(text);
    rewind(file);
    assert_int_equal(fread(text, 1, size, file), size);
    text[size] = 0;
    fclose(file);
    return text;
}

static void test_the_page_states_the_same(void **state)
{
    (void)state;
    char *page = read_page();
    unsigned missing = 0;
    for (const struct option_entry *entry = sim_params_table; entry->kind != OPTION_END; entry++) {
        const struct sim_param_basis *row = sim_param_basis_find(entry->name);
        char line[1024];
        if (!row)
            continue;
        snprintf(line, sizeof line, "\n| `%s` | %g | %s | %s | %g to %g | %s |\n", row->name,
                 default_of(entry), entry->unit ? entry->unit : "", sim_basis_name(row->basis), row->low,
                 row->high, row->source);
        if (!strstr(page, line)) {
            print_error("docs/internals/simulator.md must have this row:%s", line);
            missing++;
        }
    }
    free(page);
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cost_has_a_basis),
        cmocka_unit_test(test_every_default_lies_in_its_range),
        cmocka_unit_test(test_the_page_states_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
