/* paper.c - see paper.h. */
#include "bench/paper.h"

#include <stdio.h>
#include <string.h>

static void append(char *text, size_t size, const char *name)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
}

const struct paper *paper_find(const char *name, struct error *error)
{
    char names[200] = "";
    for (const struct paper *paper = papers; paper->name; paper++) {
        if (!strcmp(paper->name, name))
            return paper;
        append(names, sizeof names, paper->name);
    }
    error_set(error, BANYAN_EINVAL, "--paper: '%.40s' is not one of %s", name, names);
    return NULL;
}

bool paper_selected(const char *only, const char *figure)
{
    size_t length = strlen(figure);
    if (!only)
        return true;
    for (const char *at = only;; at++) {
        const char *end = strchrnul(at, ',');
        if ((size_t)(end - at) == length && !strncmp(at, figure, length))
            return true;
        if (!*end)
            return false;
        at = end;
    }
}

/* Whether an earlier row is of the same figure. */
static bool named_before(const struct paper *paper, size_t index)
{
    for (size_t i = 0; i < index; i++)
        if (!strcmp(paper->numbers[i].figure, paper->numbers[index].figure))
            return true;
    return false;
}

int paper_check_only(const struct paper *paper, const char *only, struct error *error)
{
    char names[400] = "";
    for (size_t i = 0; i < paper->count; i++)
        if (!named_before(paper, i))
            append(names, sizeof names, paper->numbers[i].figure);
    for (const char *at = only; at; at = strchr(at, ',')) {
        at += at != only; /* past the comma */
        char name[40];
        snprintf(name, sizeof name, "%.*s", (int)(strchrnul(at, ',') - at), at);
        bool known = false;
        for (size_t i = 0; i < paper->count && !known; i++)
            known = !strcmp(paper->numbers[i].figure, name);
        if (!known)
            return error_set(error, BANYAN_EINVAL, "--only: '%s' is not one of %s", name, names);
    }
    return 0;
}
