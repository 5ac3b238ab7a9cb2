/* presets.c - see presets.h. */
#include "bench/presets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const bench_ownership_names[] = {"none", "static", NULL};

struct named_preset {
    const char *name, *tree, *settings, *about;
    enum bench_ownership ownership;
};

/* What the evaluations of DEX, Dinomo and Cell compare, on the tree's presets (docs/benchmarks.md). */
static const struct named_preset owned[] = {
    {"p-sherman", "sherman", "cache-policy=inner",
     "sherman with ownership: no global locks for leaves, and no leaf is cached (DEX 8.2)", BENCH_OWNED},
    {"dex", "sherman", "cache-policy=dex,admission=0.1,delegate=on",
     "as p-sherman, with DEX's cache of leaves", BENCH_OWNED},
    {"banyan-owned", "banyan", "cache-policy=banyan",
     "banyan with ownership and its cache of leaves, entries and long values", BENCH_OWNED},
    {"dinomo", "banyan", "cache-policy=dinomo",
     "banyan with ownership and Dinomo's cache of values and shortcuts (DAC)", BENCH_OWNED},
    {"dinomo-s", "banyan", "cache-policy=dinomo,shortcuts-only=on", "dinomo with shortcuts only (Dinomo-S)",
     BENCH_OWNED},
    {"cell", "banyan", "cache-lowest=4,walks=auto",
     "banyan that caches no node of the lowest four levels, and walks as it pays (Cell 4)", BENCH_SHARED},
};
#define OWNED_COUNT (sizeof owned / sizeof owned[0])

const char *bench_preset_name(size_t i, const char **about)
{
    size_t tree = 0;
    while (tree_switches_presets[tree])
        tree++;
    if (i < tree || i >= tree + OWNED_COUNT) {
        *about = NULL;
        return i < tree ? tree_switches_presets[i] : NULL;
    }
    *about = owned[i - tree].about;
    return owned[i - tree].name;
}

static const struct named_preset *find_owned(const char *name)
{
    for (size_t i = 0; i < OWNED_COUNT; i++)
        if (!strcmp(owned[i].name, name))
            return &owned[i];
    return NULL;
}

enum format_leaf_kind bench_preset_leaf(const struct bench_preset *preset)
{
    const struct named_preset *named = find_owned(preset->base);
    return tree_switches_leaf(named ? named->tree : preset->base);
}

static int unknown_preset(const char *name, struct error *error)
{
    char names[400] = "";
    const char *about, *known;
    for (size_t i = 0; (known = bench_preset_name(i, &about)); i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", known);
    }
    return error_set(error, BANYAN_EINVAL,
                     "no preset is named '%.40s': choose %s; settings follow as in dex@threads=36", name,
                     names);
}

static int find_base(struct bench_preset *preset, struct error *error)
{
    const struct named_preset *named = find_owned(preset->base);
    if (tree_switches_preset(&preset->switches, named ? named->tree : preset->base, NULL))
        return unknown_preset(preset->base, error);
    if (!named)
        return 0;
    preset->ownership = named->ownership;
    return *named->settings ? option_set_list(tree_switches_table, &preset->switches, named->settings, error)
                            : 0;
}

static int set_ownership(struct bench_preset *preset, const char *value, struct error *error)
{
    for (int i = 0; bench_ownership_names[i]; i++)
        if (!strcmp(bench_ownership_names[i], value)) {
            preset->ownership = (enum bench_ownership)i;
            return 0;
        }
    return error_set(error, BANYAN_EINVAL, "preset '%s': own '%.20s' is not none or static", preset->name,
                     value);
}

static int set_flag(const struct bench_preset *preset, const char *name, const char *value, bool *flag,
                    struct error *error)
{
    *flag = !strcmp(value, "on");
    if (*flag || !strcmp(value, "off"))
        return 0;
    return error_set(error, BANYAN_EINVAL, "preset '%s': %s '%.20s' is not on or off", preset->name, name,
                     value);
}

static int set_log(struct bench_preset *preset, const char *value, struct error *error)
{
    preset->log = (uint32_t)(value[0] - '0');
    if (preset->log <= 2 && !value[1])
        return 0;
    return error_set(error, BANYAN_EINVAL, "preset '%s': log '%.20s' is not 0, 1 or 2 copies", preset->name,
                     value);
}

static int set_count(const struct bench_preset *preset, const char *name, const char *value, uint32_t *count,
                     struct error *error)
{
    struct error why = {0};
    uint64_t number = 0;
    if (option_parse_count(value, &number, &why) || !number || number > 1000000)
        return error_set(error, BANYAN_EINVAL, "preset '%s': %s '%.20s' is not a number from 1 to 1M",
                         preset->name, name, value);
    *count = (uint32_t)number;
    return 0;
}

static int set_cache(struct bench_preset *preset, const char *value, struct error *error)
{
    struct error why = {0};
    uint64_t bytes = 0;
    if (option_parse_size(value, &bytes, &why) || !bytes || bytes > UINT64_C(1) << 46)
        return error_set(error, BANYAN_EINVAL, "preset '%s': cache '%.20s' is not a number from 1 to 64T",
                         preset->name, value);
    preset->cache = bytes;
    return 0;
}

static int set_share(struct bench_preset *preset, const char *value, struct error *error)
{
    char *end = NULL;
    double share = strtod(value, &end);
    if (end == value || strcmp(end, "%") || !(share > 0) || share > 1000)
        return error_set(error, BANYAN_EINVAL, "preset '%s': cache '%.20s' is not a share up to 1000%%",
                         preset->name, value);
    preset->cache_share = share;
    return 0;
}

static int set_values(struct bench_preset *preset, const char *value, struct error *error)
{
    struct error why = {0};
    uint64_t bytes = 0;
    if (option_parse_size(value, &bytes, &why) || !bytes || bytes > BENCH_VALUE_MAX)
        return error_set(error, BANYAN_EINVAL, "preset '%s': values '%.20s' is not a number from 1 to %u",
                         preset->name, value, BENCH_VALUE_MAX);
    preset->values = (uint32_t)bytes;
    return 0;
}

static int set_one(struct bench_preset *preset, char *setting, struct error *error)
{
    struct error why = {0};
    char *value = strchr(setting, '=');
    if (!value)
        return error_set(error, BANYAN_EINVAL, "preset '%s': '%.40s' is not of the form setting=value",
                         preset->name, setting);
    *value++ = '\0';
    if (!strcmp(setting, "own"))
        return set_ownership(preset, value, error);
    if (!strcmp(setting, "move"))
        return set_flag(preset, setting, value, &preset->move, error);
    if (!strcmp(setting, "fail"))
        return set_flag(preset, setting, value, &preset->fail, error);
    if (!strcmp(setting, "log"))
        return set_log(preset, value, error);
    if (!strcmp(setting, "values"))
        return set_values(preset, value, error);
    if (!strcmp(setting, "cache") && strchr(value, '%'))
        return set_share(preset, value, error);
    if (!strcmp(setting, "cache"))
        return set_cache(preset, value, error);
    if (!strcmp(setting, "threads"))
        return set_count(preset, setting, value, &preset->threads, error);
    if (!strcmp(setting, "servers"))
        return set_count(preset, setting, value, &preset->servers, error);
    if (!strcmp(setting, "cores"))
        return set_count(preset, setting, value, &preset->cores, error);
    if (!option_set(tree_switches_table, &preset->switches, setting, value, &why))
        return 0;
    return error_set(
        error, BANYAN_EINVAL,
        "preset '%s': %s (settings are own, threads, servers, cores, cache, values, log, move, fail, and "
        "the switches of --help)",
        preset->name, why.text);
}

int bench_preset_settle(struct bench_preset *preset, struct error *error)
{
    char text[sizeof preset->name];
    snprintf(text, sizeof text, "%s", preset->name);
    char *rest = text;
    strsep(&rest, "@"); /* the preset itself */
    int status = 0;
    for (char *setting = strsep(&rest, "@"); setting && !status; setting = strsep(&rest, "@"))
        status = set_one(preset, setting, error);
    return status;
}

int bench_preset_find(struct bench_preset *preset, const char *name, struct error *error)
{
    *preset = (struct bench_preset){.ownership = BENCH_SHARED};
    size_t base = strcspn(name, "@");
    if (strlen(name) >= sizeof preset->name || base >= sizeof preset->base)
        return error_set(error, BANYAN_EINVAL, "preset '%.70s': the name is too long", name);
    snprintf(preset->name, sizeof preset->name, "%s", name);
    snprintf(preset->base, sizeof preset->base, "%.*s", (int)base, name);
    int status = find_base(preset, error);
    return status ? status : bench_preset_settle(preset, error);
}
