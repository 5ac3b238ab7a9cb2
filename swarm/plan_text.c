/* plan_text.c - plans as text, written and read back (contract: plan.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "swarm/plan_fields.h"

#define HEADING "banyan sim plan, version "

int swarm_plan_write(const struct swarm_plan *plan, FILE *file)
{
    struct swarm_plan usual;
    swarm_plan_default(&usual);
    fprintf(file, HEADING "%u\n", SWARM_PLAN_VERSION);
    for (size_t part = 0; part < SWARM_PLAN_PARTS; part++)
        for (const struct option_entry *entry = swarm_plan_parts[part].table; entry->kind != OPTION_END;
             entry++) {
            char value[64], expected[64];
            if (entry->kind == OPTION_TEXT)
                continue;
            option_format(entry, (const char *)plan + swarm_plan_parts[part].offset, value, sizeof value);
            option_format(entry, (const char *)&usual + swarm_plan_parts[part].offset, expected,
                          sizeof expected);
            if (strcmp(value, expected) || !strcmp(entry->name, "seed"))
                fprintf(file, "%s = %s\n", entry->name, value);
        }
    if (plan->skip)
        fprintf(file, "skip = %s\n", plan->skip);
    return fflush(file) || ferror(file) ? BANYAN_ENOSPC : 0;
}

static int parse_heading(const char *line, struct error *error)
{
    char *end;
    unsigned long version =
        strncmp(line, HEADING, strlen(HEADING)) ? 0 : strtoul(line + strlen(HEADING), &end, 10);
    if (!version || *end)
        return error_set(error, BANYAN_EINVAL, "this is no plan: its first line is not '" HEADING "%u'",
                         SWARM_PLAN_VERSION);
    if (version != SWARM_PLAN_VERSION)
        return error_set(error, BANYAN_EVERSION,
                         "this plan is of version %lu, this program reads version %u: run it with the "
                         "program that wrote it",
                         version, SWARM_PLAN_VERSION);
    return 0;
}

static int parse_line(struct swarm_plan *plan, char *line, unsigned number, struct error *error)
{
    char *equals = strchr(line, '=');
    struct error why;
    if (!equals)
        return error_set(error, BANYAN_EINVAL, "line %u is no 'name = value': %.60s", number, line);
    *equals = 0;
    int status = swarm_plan_set(plan, option_trim(line), option_trim(equals + 1), &why);
    return status ? error_set(error, status, "line %u: %s", number, why.text) : 0;
}

int swarm_plan_parse(struct swarm_plan *plan, const char *text, struct error *error)
{
    swarm_plan_default(plan);
    char *copy = strdup(text), *rest = copy, *line;
    if (!copy)
        return error_set(error, BANYAN_ENOMEM, "plan: no memory");
    int status = 0;
    bool headed = false;
    for (unsigned number = 1; !status && (line = strsep(&rest, "\n")); number++) {
        line = option_trim(line);
        if (!headed)
            status = parse_heading(line, error);
        else if (*line && *line != '#')
            status = parse_line(plan, line, number, error);
        headed = true;
    }
    free(copy);
    return status ? status : swarm_plan_check(plan, error);
}

#define FILE_MAX (16u << 20)

static int read_text(FILE *file, char **text)
{
    size_t length = 0, room = 0;
    for (;;) {
        if (length + 1 >= room) {
            room = room ? room * 2 : 4096;
            char *larger = room > FILE_MAX ? NULL : realloc(*text, room);
            if (!larger)
                return BANYAN_ENOMEM;
            *text = larger;
        }
        size_t got = fread(*text + length, 1, room - length - 1, file);
        length += got;
        (*text)[length] = 0;
        if (got == 0)
            return ferror(file) ? BANYAN_EINVAL : 0;
    }
}

int swarm_plan_read(struct swarm_plan *plan, const char *path, struct error *error)
{
    swarm_plan_default(plan);
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(error, BANYAN_EINVAL, "%s: %s", path, strerror(errno));
    char *text = NULL;
    struct error why;
    int status = read_text(file, &text);
    fclose(file);
    if (status)
        error_set(error, status, "%s cannot be read, or is too long", path);
    else if ((status = swarm_plan_parse(plan, text, &why)))
        error_set(error, status, "%s: %s", path, why.text);
    free(text);
    return status;
}
