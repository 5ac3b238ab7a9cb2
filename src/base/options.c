#include "base/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- numbers ------------------------------------------------------------------------------------- */

static int parse_scaled(const char *text, uint64_t base, const char *what, uint64_t *value,
                        struct error *error)
{
    static const char suffixes[] = "kmgt";
    /* strtod would take blanks, signs, hexadecimal numbers and words as well. */
    char *end = (char *)text + (*text >= '0' && *text <= '9' ? strspn(text, "0123456789.eE+-") : 0);
    bool whole = strspn(text, "0123456789") == (size_t)(end - text);
    uint64_t scale = 1;
    double number = 0;
    char *read_to = end;
    errno = 0;
    if (whole)
        *value = strtoull(text, NULL, 10); /* exact beyond a double's 53 bits */
    else
        number = strtod(text, &read_to);
    bool wrong = end == text || read_to != end || errno;
    if (end != text && *end) {
        const char *suffix = strchr(suffixes, *end | 0x20);
        if (suffix && *suffix) {
            for (const char *at = suffixes; at <= suffix; at++)
                scale *= base;
            end++;
            if (base == 1024 && (*end == 'i' || *end == 'I'))
                end++;
            if (base == 1024 && (*end == 'b' || *end == 'B'))
                end++;
        }
    }
    wrong |= *end != 0;
    if (whole)
        wrong |= __builtin_mul_overflow(*value, scale, value);
    else
        wrong |= !(number * (double)scale < 0x1p64);
    if (wrong)
        return error_set(error, BANYAN_EINVAL, "'%s' is not a %s: give a number such as 4096, 64K or 8M",
                         text, what);
    if (!whole)
        *value = (uint64_t)(number * (double)scale + 0.5);
    return 0;
}

int option_parse_size(const char *text, uint64_t *value, struct error *error)
{
    return parse_scaled(text, 1024, "size", value, error);
}

int option_parse_count(const char *text, uint64_t *value, struct error *error)
{
    return parse_scaled(text, 1000, "count", value, error);
}

/* ---- fields -------------------------------------------------------------------------------------- */

const struct option_entry *option_find(const struct option_entry *table, const char *name)
{
    for (; table->kind != OPTION_END; table++)
        if (!strcmp(table->name, name))
            return table;
    return NULL;
}

/* Whether it is a word for on or off, and which. */
static bool read_bool(const char *value, bool *on)
{
    static const char *const words[] = {"off", "on", "false", "true", "no", "yes", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcasecmp(value, words[i])) {
            *on = i % 2;
            return true;
        }
    return false;
}

static int set_bool(const struct option_entry *entry, bool *field, const char *value, struct error *error)
{
    if (read_bool(value, field))
        return 0;
    return error_set(error, BANYAN_EINVAL, "option %s: '%s' is neither on nor off", entry->name, value);
}

static int set_switch(const struct option_entry *entry, int *field, const char *value, struct error *error)
{
    bool on;
    if (read_bool(value, &on)) {
        *field = on;
        return 0;
    }
    for (int i = 0; entry->choices[i]; i++)
        if (!strcmp(value, entry->choices[i])) {
            *field = 2 + i;
            return 0;
        }
    return error_set(error, BANYAN_EINVAL, "option %s: '%s' is none of on, off, %s", entry->name, value,
                     entry->choices[0]);
}

static const char *switch_text(const struct option_entry *entry, int value)
{
    if (value > 1)
        return entry->choices[value - 2];
    return value ? "on" : "off";
}

static int set_choice(const struct option_entry *entry, int *field, const char *value, struct error *error)
{
    char list[160] = "";
    for (int i = 0; entry->choices[i]; i++) {
        if (!strcmp(value, entry->choices[i])) {
            *field = i;
            return 0;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", entry->choices[i]);
    }
    return error_set(error, BANYAN_EINVAL, "option %s: '%s' is none of %s", entry->name, value, list);
}

static int set_share(const struct option_entry *entry, int *field, const char *value, struct error *error)
{
    const int least = (int)entry->minimum, most = (int)entry->maximum;
    char *end;
    for (int i = 0; entry->choices[i]; i++)
        if (!strcmp(value, entry->choices[i])) {
            *field = most + 1 + i;
            return 0;
        }
    if (!strcmp(value, "never") || !strcmp(value, "always")) {
        *field = *value == 'n' ? least : most;
        return 0;
    }
    long number = strtol(value, &end, 10);
    end += *end == '%';
    if (!isdigit((unsigned char)*value) || *end || number < least || number > most)
        return error_set(error, BANYAN_EINVAL,
                         "option %s: '%s' is none of never, always, %s, or %d to %d percent", entry->name,
                         value, entry->choices[0], least, most);
    *field = (int)number;
    return 0;
}

static void format_share(const struct option_entry *entry, int value, char *text, size_t size)
{
    const int least = (int)entry->minimum, most = (int)entry->maximum;
    if (value > most)
        snprintf(text, size, "%s", entry->choices[value - most - 1]);
    else if (value == least || value == most)
        snprintf(text, size, "%s", value == least ? "never" : "always");
    else
        snprintf(text, size, "%d", value);
}

/* "N" in the help stands for any number. */
static bool unit_shown(const struct option_entry *entry)
{
    return entry->unit && strcmp(entry->unit, "N") != 0;
}

static bool is_size(const struct option_entry *entry)
{
    return entry->unit && strcasecmp(entry->unit, "bytes") == 0;
}

/* As people write sizes: 16M. */
static const char *size_text(double bytes, char text[32])
{
    static const char suffixes[] = "KMGT";
    int scale = 0;
    while (scale < 4 && bytes >= 1024 && fmod(bytes, 1024) == 0) {
        bytes /= 1024;
        scale++;
    }
    snprintf(text, 32, "%.15g%.*s", bytes, scale != 0, scale ? suffixes + scale - 1 : "");
    return text;
}

static int out_of_range(const struct option_entry *entry, const char *value, double minimum, double maximum,
                        struct error *error)
{
    char least[32], most[32];
    if (is_size(entry))
        return error_set(error, BANYAN_EINVAL, "option %s: %s is not in the range %s to %s", entry->name,
                         value, size_text(minimum, least), size_text(maximum, most));
    return error_set(error, BANYAN_EINVAL, "option %s: %s is not in the range %.15g to %.15g%s%s",
                     entry->name, value, minimum, maximum, unit_shown(entry) ? " " : "",
                     unit_shown(entry) ? entry->unit : "");
}

static int set_whole(const struct option_entry *entry, void *field, const char *value, struct error *error)
{
    bool narrow = entry->kind == OPTION_U32, bounded = entry->minimum != 0 || entry->maximum != 0;
    double maximum = bounded ? entry->maximum : narrow ? UINT32_MAX : 18446744073709551615.0;
    uint64_t number = 0;
    struct error detail = {0};
    int status = option_parse_size(value, &number, &detail);
    if (status && is_size(entry))
        return error_set(error, status, "option %s: %s", entry->name, detail.text);
    if (status)
        return error_set(error, status, "option %s: '%s' is not a whole number from %.15g to %.15g%s%s",
                         entry->name, value, entry->minimum, maximum, unit_shown(entry) ? " " : "",
                         unit_shown(entry) ? entry->unit : "");
    if ((double)number < entry->minimum || (double)number > maximum || (narrow && number > UINT32_MAX))
        return out_of_range(entry, value, entry->minimum, maximum, error);
    if (narrow)
        *(uint32_t *)field = (uint32_t)number;
    else
        *(uint64_t *)field = number;
    return 0;
}

static int set_double(const struct option_entry *entry, double *field, const char *value, struct error *error)
{
    bool bounded = entry->minimum != 0 || entry->maximum != 0;
    char *end;
    double number = strtod(value, &end);
    if (end == value || *end || !isfinite(number))
        return error_set(error, BANYAN_EINVAL, "option %s: '%s' is not a number", entry->name, value);
    if (bounded && (number < entry->minimum || number > entry->maximum))
        return out_of_range(entry, value, entry->minimum, entry->maximum, error);
    *field = number;
    return 0;
}

static int set_text(const struct option_entry *entry, char **field, const char *value, struct error *error)
{
    char *copy = strdup(value);
    if (!copy)
        return error_set(error, BANYAN_ENOMEM, "option %s: no memory", entry->name);
    free(*field);
    *field = copy;
    return 0;
}

void option_free(const struct option_entry *table, void *object)
{
    for (; table->kind != OPTION_END; table++)
        if (table->kind == OPTION_TEXT) {
            char **field = (char **)(void *)((char *)object + table->offset);
            free(*field);
            *field = NULL;
        }
}

static int unknown(const struct option_entry *table, const char *name, struct error *error)
{
    char list[200] = "";
    for (; table->kind != OPTION_END; table++) {
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", table->name);
    }
    return error_set(error, BANYAN_EINVAL, "there is no option '%.40s'; known are %s", name, list);
}

int option_set(const struct option_entry *table, void *object, const char *name, const char *value,
               struct error *error)
{
    const struct option_entry *entry = option_find(table, name);
    if (!entry)
        return unknown(table, name, error);
    void *field = (char *)object + entry->offset;
    switch (entry->kind) {
    case OPTION_BOOL:
        return set_bool(entry, field, value, error);
    case OPTION_SWITCH:
        return set_switch(entry, field, value, error);
    case OPTION_CHOICE:
        return set_choice(entry, field, value, error);
    case OPTION_SHARE:
        return set_share(entry, field, value, error);
    case OPTION_U32:
    case OPTION_U64:
        return set_whole(entry, field, value, error);
    case OPTION_DOUBLE:
        return set_double(entry, field, value, error);
    case OPTION_TEXT:
        return set_text(entry, field, value, error);
    case OPTION_END:
        break;
    }
    return error_set(error, BANYAN_EINVAL, "option %s has no kind", name);
}

int option_set_list(const struct option_entry *table, void *object, const char *list, struct error *error)
{
    char *copy = strdup(list), *rest = copy, *item;
    if (!copy)
        return error_set(error, BANYAN_ENOMEM, "no memory to read options");
    int status = 0;
    while (!status && (item = strsep(&rest, ","))) {
        if (!*item)
            continue;
        char *value = strchr(item, '=');
        if (!value) {
            status = error_set(error, BANYAN_EINVAL, "'%s' has no value: write name=value", item);
            break;
        }
        *value++ = 0;
        status = option_set(table, object, item, value, error);
    }
    free(copy);
    return status;
}

/* The fewest digits that read back as the same number; whole numbers in full. */
static void format_double(double value, char *text, size_t size)
{
    char digits[40];
    if (value > -1e15 && value < 1e15) {
        int64_t whole = (int64_t)value;
        double back = (double)whole;
        if (!memcmp(&back, &value, sizeof back)) {
            snprintf(text, size, "%" PRId64, whole);
            return;
        }
    }
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        double back = strtod(digits, NULL);
        if (!memcmp(&back, &value, sizeof back))
            break;
    }
    snprintf(text, size, "%s", digits);
}

void option_format(const struct option_entry *entry, const void *object, char *text, size_t size)
{
    const void *field = (const char *)object + entry->offset;
    switch (entry->kind) {
    case OPTION_BOOL:
        snprintf(text, size, "%s", *(const bool *)field ? "on" : "off");
        return;
    case OPTION_SWITCH:
        snprintf(text, size, "%s", switch_text(entry, *(const int *)field));
        return;
    case OPTION_CHOICE:
        snprintf(text, size, "%s", entry->choices[*(const int *)field]);
        return;
    case OPTION_SHARE:
        format_share(entry, *(const int *)field, text, size);
        return;
    case OPTION_U32:
        snprintf(text, size, "%u", *(const uint32_t *)field);
        return;
    case OPTION_U64:
        snprintf(text, size, "%llu", (unsigned long long)*(const uint64_t *)field);
        return;
    case OPTION_DOUBLE:
        format_double(*(const double *)field, text, size);
        return;
    case OPTION_TEXT:
        snprintf(text, size, "%s", *(char *const *)field ? *(char *const *)field : "");
        return;
    case OPTION_END:
        break;
    }
    if (size)
        *text = 0;
}

char *option_trim(char *text)
{
    while (isspace((unsigned char)*text))
        text++;
    size_t length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
    return text;
}
