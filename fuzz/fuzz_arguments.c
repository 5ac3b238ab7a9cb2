/*
 * fuzz_arguments.c - what clients write as arguments: glob patterns, bounds of ranges, integers.
 *
 * Oracle: a glob matches as a plain recursive reading of the pattern says, in a bounded number of steps for
 * every pattern; a key lies within a parsed range exactly if it lies within the bounds' text; an integer is
 * what printing it gives back.
 */
#include <inttypes.h>

#include "fuzz/fuzz.h"
#include "server/arguments.h"
#include "server/bounds.h"
#include "server/glob.h"

/* ---- globs ---- */

struct naive {
    const uint8_t *pattern, *text;
    size_t length, text_length;
    bool any_case;
    uint32_t steps;
};

#define STEPS_MAX 200000u /* the naive reading is exponential: beyond this nothing is compared */

static uint8_t fold(const struct naive *naive, unsigned byte)
{
    return (uint8_t)(naive->any_case && byte >= 'A' && byte <= 'Z' ? byte + 32 : byte);
}

/* Reads a class after its '[' at *at, and moves *at to its end. Returns whether the byte fits. */
static bool class_fits(const struct naive *naive, size_t *at, unsigned byte)
{
    const uint8_t *p = naive->pattern;
    size_t i = *at;
    bool inverted = i < naive->length && p[i] == '^', fits = false;
    i += inverted;
    for (; i < naive->length && p[i] != ']'; i++) {
        unsigned low = p[i], high = p[i];
        if (p[i] == '\\' && naive->length - i >= 2) {
            low = high = p[++i];
        } else if (naive->length - i >= 3 && p[i + 1] == '-') {
            high = p[i + 2];
            i += 2;
        }
        if (low > high) {
            unsigned swap = low;
            low = high;
            high = swap;
        }
        fits |= byte >= low && byte <= high;
        if (!naive->any_case)
            continue;
        /* each letter of the range stands for both of its cases */
        if (byte >= 'a' && byte <= 'z')
            fits |= byte - 32 >= low && byte - 32 <= high;
        if (byte >= 'A' && byte <= 'Z')
            fits |= byte + 32 >= low && byte + 32 <= high;
    }
    *at = i < naive->length ? i + 1 : i;
    return fits != inverted;
}

static bool naive_matches(struct naive *naive, size_t at, size_t text)
{
    if (++naive->steps > STEPS_MAX)
        return false;
    if (at == naive->length)
        return text == naive->text_length;
    uint8_t byte = naive->pattern[at];
    if (byte == '*')
        return naive_matches(naive, at + 1, text) ||
               (text < naive->text_length && naive_matches(naive, at, text + 1));
    if (text == naive->text_length)
        return false;
    at++;
    bool fits;
    if (byte == '[') {
        fits = class_fits(naive, &at, naive->text[text]);
    } else if (byte == '?') {
        fits = true;
    } else {
        if (byte == '\\' && at < naive->length)
            byte = naive->pattern[at++];
        fits = fold(naive, byte) == fold(naive, naive->text[text]);
    }
    return fits && naive_matches(naive, at, text + 1);
}

static void judge_glob(struct fuzz_input *input)
{
    uint8_t how = fuzz_byte(input), prefix[GLOB_SINGLES_MAX];
    size_t length = fuzz_byte(input), text_length;
    length = length < input->length ? length : input->length;
    char *pattern = fuzz_text(input->bytes, length);
    text_length = input->length - length;
    char *text = fuzz_text(input->bytes + length, text_length);
    struct naive naive = {(const uint8_t *)pattern, (const uint8_t *)text, length, text_length, how & 1, 0};
    struct glob *glob = glob_create(pattern, length, naive.any_case);
    bool matches = glob_matches(glob, text, text_length), whole;
    bool expected = naive_matches(&naive, 0, 0);
    if (naive.steps <= STEPS_MAX && text_length <= GLOB_SINGLES_MAX)
        fuzz_must(matches == expected, "glob: %d instead of %d", matches, expected);
    fuzz_must(matches == glob_match_once(pattern, length, text, text_length, naive.any_case), "glob: once");
    fuzz_must(matches || !glob_matches_all(glob), "glob: matches all but this");
    size_t known = glob_prefix(glob, prefix, &whole);
    fuzz_must(known <= GLOB_SINGLES_MAX, "glob: a prefix of %zu bytes", known);
    if (matches)
        fuzz_must(text_length >= known && !memcmp(text, prefix, known) && (!whole || text_length == known),
                  "glob: another prefix");
    else
        fuzz_must(!whole || text_length != known || memcmp(text, prefix, known),
                  "glob: the one text does not match");
    glob_destroy(glob);
    free(pattern);
    free(text);
}

/* A short pattern against a long text of few letters: the time shows in libFuzzer's own limit. */
static void try_hostile_glob(struct fuzz_input *input)
{
    static char text[60000];
    char *pattern = fuzz_text(input->bytes, input->length < 600 ? input->length : 600);
    memset(text, 'a', sizeof text);
    glob_match_once(pattern, strlen(pattern), text, sizeof text, false);
    free(pattern);
}

/* ---- bounds ---- */

static int compare(const void *a, size_t a_length, const void *b, size_t b_length)
{
    int order = memcmp(a, b, a_length < b_length ? a_length : b_length);
    return order ? order : (a_length > b_length) - (a_length < b_length);
}

/* Whether the key lies on the right side of a bound; false too if the text is no bound. */
static bool within(const struct resp_argument *bound, bool low, const void *key, size_t length)
{
    if (bound->length == 1 && (bound->bytes[0] == '-' || bound->bytes[0] == '+'))
        return (bound->bytes[0] == '-') == low;
    if (!bound->length || (bound->bytes[0] != '[' && bound->bytes[0] != '('))
        return false;
    int order = compare(key, length, bound->bytes + 1, bound->length - 1);
    order = low ? order : -order;
    return order > 0 || (order == 0 && bound->bytes[0] == '[');
}

static bool is_bound(const struct resp_argument *text)
{
    return (text->length && (text->bytes[0] == '[' || text->bytes[0] == '(')) ||
           (text->length == 1 && (text->bytes[0] == '-' || text->bytes[0] == '+'));
}

static bool in_range(const struct tree_range *range, const void *key, size_t length)
{
    int low = range->from ? compare(key, length, range->from, range->from_length) : 1;
    int high = range->to ? compare(key, length, range->to, range->to_length) : -1;
    return (low > 0 || (!low && !range->from_open)) && (high < 0 || (!high && !range->to_open));
}

static struct resp_argument take_argument(struct fuzz_input *input)
{
    static const char first[] = "[(-+";
    uint8_t how = fuzz_byte(input);
    size_t filled = how & 64 ? 250 + how % 16 : how % 64;
    char *bytes = malloc(filled + 8);
    bytes[0] = first[fuzz_byte(input) % 4];
    memset(bytes + 1, 'k', filled);
    uint8_t own = fuzz_byte(input) % 4;
    fuzz_take(input, bytes + (how & 128 ? 0 : 1 + filled), own);
    size_t length = how & 128 ? own : 1 + filled + own;
    struct resp_argument argument = {.bytes = fuzz_text(bytes, length), .length = length};
    free(bytes);
    return argument;
}

static void judge_bounds(struct fuzz_input *input)
{
    struct resp_argument low = take_argument(input), high = take_argument(input), key = take_argument(input);
    struct tree_range range;
    if (key.length > STORE_KEY_MAX)
        key.length = STORE_KEY_MAX;
    enum bounds_verdict verdict = bounds_read(&low, &high, &range);
    fuzz_must((verdict == BOUNDS_INVALID) == (!is_bound(&low) || !is_bound(&high)), "bounds: verdict %d",
              verdict);
    bool inside = within(&low, true, key.bytes, key.length) && within(&high, false, key.bytes, key.length);
    if (verdict == BOUNDS_RANGE && key.length)
        fuzz_must(in_range(&range, key.bytes, key.length) == inside, "bounds: a key is %s",
                  inside ? "left out" : "let in");
    else if (verdict == BOUNDS_EMPTY && key.length)
        fuzz_must(!inside, "bounds: empty, but for a key");
    fuzz_must(range.from_length <= STORE_KEY_MAX && range.to_length <= STORE_KEY_MAX, "bounds: too long");
    for (unsigned before = 0; before < 2; before++) {
        verdict = bounds_beside(&low, before, &range);
        int order = compare(key.bytes, key.length, low.bytes, low.length);
        bool beside = before ? order < 0 : order > 0;
        if (key.length)
            fuzz_must((verdict == BOUNDS_RANGE && in_range(&range, key.bytes, key.length)) == beside,
                      "bounds: beside a key");
    }
    free((void *)(uintptr_t)low.bytes);
    free((void *)(uintptr_t)high.bytes);
    free((void *)(uintptr_t)key.bytes);
}

/* ---- numbers ---- */

static void judge_number(struct fuzz_input *input)
{
    char *text = fuzz_text(input->bytes, input->length), back[32];
    int64_t value = 0;
    if (server_integer_parse(text, input->length, &value)) {
        snprintf(back, sizeof back, "%" PRId64, value);
        fuzz_must(strlen(back) == input->length && !memcmp(back, text, input->length), "'%s' is read as %s",
                  text, back);
    }
    free(text);
    fuzz_take(input, &value, sizeof value);
    int64_t again = 0;
    int length = snprintf(back, sizeof back, "%" PRId64, value);
    fuzz_must(server_integer_parse(back, (size_t)length, &again) && again == value,
              "%s is read as another number", back);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct fuzz_input input = {bytes, length};
    if (length > 4096)
        return 0;
    switch (fuzz_byte(&input) % 8) {
    case 0:
    case 1:
    case 2:
        judge_glob(&input);
        break;
    case 3:
        try_hostile_glob(&input);
        break;
    case 4:
    case 5:
        judge_bounds(&input);
        break;
    default:
        judge_number(&input);
        break;
    }
    return 0;
}
