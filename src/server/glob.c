/*
 * glob.c - compiled patterns; contract in glob.h.
 *
 * A pattern becomes a row of steps: one byte, any byte, a byte of a class, or a star. Consecutive stars are
 * one. When a text does not fit, only the last star met has to take one byte more: every byte that an earlier
 * star could take as well, the last one can take instead. That bounds the work to the product of the two
 * lengths.
 */
#include "server/glob.h"

#include <stdlib.h>
#include <string.h>

enum step_kind { STEP_BYTE, STEP_ANY, STEP_CLASS, STEP_STAR };

struct glob_step {
    uint8_t kind;
    uint8_t byte;   /* STEP_BYTE */
    uint16_t class; /* STEP_CLASS: its number */
};
struct glob_class {
    uint64_t bits[4];
};
struct glob {
    bool any_case;
    bool hopeless; /* it needs more bytes than any text has */
    uint32_t count, singles;
    uint32_t class_count, class_capacity;
    struct glob_class *classes;
    struct glob_step steps[2 * GLOB_SINGLES_MAX + 1];
};

static inline uint8_t lower(uint8_t byte)
{
    return byte >= 'A' && byte <= 'Z' ? (uint8_t)(byte + 32) : byte;
}

static inline void class_add(struct glob_class *class, unsigned byte)
{
    class->bits[byte / 64] |= UINT64_C(1) << byte % 64;
}

static inline bool class_has(const struct glob_class *class, unsigned byte)
{
    return class->bits[byte / 64] >> byte % 64 & 1;
}

/* Adds the other case of each letter. */
static void class_fold(struct glob_class *class)
{
    for (unsigned byte = 'a'; byte <= 'z'; byte++) {
        if (class_has(class, byte))
            class_add(class, byte - 32);
        if (class_has(class, byte - 32))
            class_add(class, byte);
    }
}

/* Reads the class after its '[' at `at`; returns the place after the class. */
static size_t class_read(struct glob_class *class, const uint8_t *pattern, size_t length, size_t at,
                         bool any_case)
{
    bool inverted = at < length && pattern[at] == '^';
    at += inverted;
    memset(class, 0, sizeof *class);
    for (; at < length && pattern[at] != ']'; at++) {
        if (pattern[at] == '\\' && length - at >= 2) {
            class_add(class, pattern[++at]);
        } else if (length - at >= 3 && pattern[at + 1] == '-') {
            unsigned a = pattern[at], b = pattern[at + 2];
            for (unsigned byte = a < b ? a : b; byte <= (a < b ? b : a); byte++)
                class_add(class, byte);
            at += 2;
        } else {
            class_add(class, pattern[at]);
        }
    }
    if (any_case)
        class_fold(class);
    for (unsigned i = 0; inverted && i < 4; i++)
        class->bits[i] = ~class->bits[i];
    return at < length ? at + 1 : at;
}

static bool class_keep(struct glob *glob, const struct glob_class *class)
{
    if (glob->class_count == glob->class_capacity) {
        uint32_t capacity = glob->class_capacity ? glob->class_capacity * 2 : 4;
        struct glob_class *larger = realloc(glob->classes, capacity * sizeof *larger);
        if (!larger)
            return false;
        glob->classes = larger;
        glob->class_capacity = capacity;
    }
    glob->classes[glob->class_count++] = *class;
    return true;
}

static bool class_step(struct glob *glob, const uint8_t *pattern, size_t length, size_t *at)
{
    struct glob_class class;
    *at = class_read(&class, pattern, length, *at, glob->any_case);
    const struct glob_step step = {.kind = STEP_CLASS, .class = (uint16_t)glob->class_count};
    if (!class_keep(glob, &class))
        return false;
    glob->steps[glob->count++] = step;
    return true;
}

static bool compile(struct glob *glob, const uint8_t *pattern, size_t length)
{
    for (size_t at = 0; at < length;) {
        uint8_t byte = pattern[at++];
        if (byte == '*') {
            if (!glob->count || glob->steps[glob->count - 1].kind != STEP_STAR)
                glob->steps[glob->count++] = (struct glob_step){.kind = STEP_STAR};
            continue;
        }
        if (++glob->singles > GLOB_SINGLES_MAX) {
            glob->hopeless = true;
            return true;
        }
        if (byte == '[') {
            if (!class_step(glob, pattern, length, &at))
                return false;
        } else if (byte == '?') {
            glob->steps[glob->count++] = (struct glob_step){.kind = STEP_ANY};
        } else {
            if (byte == '\\' && at < length)
                byte = pattern[at++];
            byte = glob->any_case ? lower(byte) : byte;
            glob->steps[glob->count++] = (struct glob_step){.kind = STEP_BYTE, .byte = byte};
        }
    }
    return true;
}

struct glob *glob_create(const char *pattern, size_t length, bool any_case)
{
    struct glob *glob = malloc(sizeof *glob);
    if (!glob)
        return NULL;
    memset(glob, 0, offsetof(struct glob, steps));
    glob->any_case = any_case;
    if (!compile(glob, (const uint8_t *)pattern, length)) {
        glob_destroy(glob);
        return NULL;
    }
    return glob;
}

void glob_destroy(struct glob *glob)
{
    if (!glob)
        return;
    free(glob->classes);
    free(glob);
}

static inline bool step_takes(const struct glob *glob, const struct glob_step *step, uint8_t byte)
{
    switch (step->kind) {
    case STEP_BYTE:
        return step->byte == (glob->any_case ? lower(byte) : byte);
    case STEP_ANY:
        return true;
    case STEP_CLASS:
        return class_has(&glob->classes[step->class], byte);
    default:
        return false;
    }
}

bool glob_matches(const struct glob *glob, const void *text, size_t length)
{
    const uint8_t *bytes = text;
    uint32_t step = 0, star = UINT32_MAX; /* the step after the last star met */
    size_t at = 0, star_at = 0;           /* where the steps after the star are tried */
    if (glob->hopeless || length < glob->singles)
        return false;
    while (at < length || step < glob->count) {
        if (step < glob->count && glob->steps[step].kind == STEP_STAR) {
            star = ++step;
            star_at = at;
            if (step == glob->count)
                return true;
        } else if (at < length && step < glob->count && step_takes(glob, &glob->steps[step], bytes[at])) {
            step++;
            at++;
        } else if (star != UINT32_MAX && star_at < length) {
            step = star;
            at = ++star_at;
        } else {
            return false;
        }
    }
    return true;
}

bool glob_matches_all(const struct glob *glob)
{
    return glob->count == 1 && glob->steps[0].kind == STEP_STAR && !glob->hopeless;
}

size_t glob_prefix(const struct glob *glob, uint8_t prefix[GLOB_SINGLES_MAX], bool *whole)
{
    uint32_t count = 0;
    while (!glob->any_case && count < glob->count && glob->steps[count].kind == STEP_BYTE) {
        prefix[count] = glob->steps[count].byte;
        count++;
    }
    *whole = !glob->any_case && !glob->hopeless && count == glob->count;
    return count;
}

bool glob_match_once(const char *pattern, size_t length, const void *text, size_t text_length, bool any_case)
{
    struct glob *glob = glob_create(pattern, length, any_case);
    bool matches = glob && glob_matches(glob, text, text_length);
    glob_destroy(glob);
    return matches;
}
