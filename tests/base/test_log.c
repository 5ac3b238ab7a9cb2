/* test_log.c - what reaches standard error: level, whole lines, and one line a message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>
#include "base/log.h"
#include "base/thread.h"

/* Standard error goes to a file while `body` runs; the text is the caller's to free. */
static char *capture(void (*body)(void))
{
    FILE *file = tmpfile();
    assert_non_null(file);
    int kept = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    body();
    dup2(kept, STDERR_FILENO);
    close(kept);
    long length = (fseek(file, 0, SEEK_END), ftell(file));
    char *text = calloc(1, (size_t)length + 1);
    rewind(file);
    assert_int_equal(fread(text, 1, (size_t)length, file), length);
    fclose(file);
    return text;
}

static int count_lines(const char *text)
{
    int lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void write_levels(void)
{
    log_set_level(LOG_WARNING);
    log_info("not this");
    log_warning("but %s %d", "this", 1);
    log_error("and this");
    log_set_level(LOG_INFO);
}

static void test_levels(void **state)
{
    (void)state;
    char *text = capture(write_levels);
    assert_null(strstr(text, "not this"));
    assert_non_null(strstr(text, "but this 1\n"));
    assert_non_null(strstr(text, "warning"));
    assert_non_null(strstr(text, "and this\n"));
    assert_int_equal(count_lines(text), 2);
    free(text);
}

static void write_awkward(void)
{
    char large[5000];
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    log_error("%s", large);
    log_error("two\nlines of a\rkey \033[31m");
}

static void test_one_line_a_message(void **state)
{
    (void)state;
    char *text = capture(write_awkward);
    assert_int_equal(count_lines(text), 2);
    assert_null(strchr(text, '\r'));
    assert_null(strchr(text, '\033'));
    assert_non_null(strstr(text, "xxxxxxxx"));
    free(text);
}

enum { LINES = 500, THREADS = 3 };

static void write_many(void *argument)
{
    (void)argument;
    for (int i = 0; i < LINES; i++)
        log_info("begin %05d %s end", i, "................................................");
}

static void write_from_threads(void)
{
    struct thread *threads[THREADS];
    struct error error;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(thread_start(&threads[i], write_many, NULL, &error), 0);
    for (int i = 0; i < THREADS; i++)
        thread_join(threads[i]);
}

static void test_lines_do_not_mix(void **state)
{
    (void)state;
    char *text = capture(write_from_threads);
    assert_int_equal(count_lines(text), LINES * THREADS);
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) && *line) {
        char *begin = strstr(line, "begin ");
        assert_non_null(begin);
        assert_null(strstr(begin + 1, "begin "));
        assert_string_equal(line + strlen(line) - 4, " end");
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_one_line_a_message),
        cmocka_unit_test(test_lines_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
