/* Settings: flags before environment before file; an error is named with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/settings.h"

struct sample {
    char *listen;
    uint32_t threads;
    uint64_t size;
    bool copy;
    int pages;
};
static const char *const beside[] = {"auto", NULL};
static const struct option_entry table[] = {
    {"listen", OPTION_TEXT, offsetof(struct sample, listen), 0, 0, NULL, NULL, "Where"},
    {"worker-threads", OPTION_U32, offsetof(struct sample, threads), 1, 64, NULL, NULL, "How many"},
    {"size", OPTION_U64, offsetof(struct sample, size), 0, 0, NULL, "BYTES", "How large"},
    {"copy", OPTION_BOOL, offsetof(struct sample, copy), 0, 0, NULL, NULL, "Whether"},
    {"pages", OPTION_SWITCH, offsetof(struct sample, pages), 0, 0, beside, "auto|on|off", "Which"},
    {.kind = OPTION_END},
};
static const struct settings_command command = {.name = "sample", .table = table, .documentation = "Test."};

static void write_file(char path[], const char *text)
{
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static int read_text(struct sample *sample, const char *text, struct error *error)
{
    char path[] = "/tmp/banyan-settings-XXXXXX";
    write_file(path, text);
    int status = settings_read_file(&command, sample, path, error);
    unlink(path);
    return status;
}

static void test_precedence(void **state)
{
    (void)state;
    char path[] = "/tmp/banyan-settings-XXXXXX", option[64];
    write_file(path,
               "# a comment\nlisten = file:1 # and another\nworker-threads=3\nsize = 4K\n[other]\nnonsense\n"
               "[sample]\ncopy = on\n");
    snprintf(option, sizeof option, "--config=%s", path);
    char name[] = "banyan sample", flag[] = "--worker-threads=9";
    char *argv[] = {name, option, flag, NULL};
    struct sample sample = {.threads = 1};
    struct error error = {0};
    setenv("BANYAN_WORKER_THREADS", "5", 1);
    setenv("BANYAN_SIZE", "8K", 1);
    assert_int_equal(settings_read(&command, &sample, 3, argv, NULL, &error), 0);
    assert_string_equal(sample.listen, "file:1"); /* only the file says it */
    assert_int_equal(sample.size, 8192);          /* the environment before the file */
    assert_int_equal(sample.threads, 9);          /* the command line before both */
    assert_true(sample.copy);
    option_free(table, &sample);
    assert_null(sample.listen);
    unsetenv("BANYAN_WORKER_THREADS");
    unsetenv("BANYAN_SIZE");
    unlink(path);
}

/* The name of a switch alone says on, also of one that has other values beside on and off. */
static void test_switches(void **state)
{
    static const struct {
        const char *option;
        int before, after;
    } cases[] = {{"--pages", 2, 1},    {"--pages=on", 0, 1},   {"--pages=off", 2, 0},
                 {"--no-pages", 1, 0}, {"--pages=auto", 1, 2}, {"--size=1", 2, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[] = "banyan sample", option[32];
        char *argv[] = {name, option, NULL};
        struct sample sample = {.threads = 1, .pages = cases[i].before};
        struct error error = {0};
        snprintf(option, sizeof option, "%s", cases[i].option);
        assert_int_equal(settings_read(&command, &sample, 2, argv, NULL, &error), 0);
        assert_int_equal(sample.pages, cases[i].after);
    }
}

/* The library would take it for --config: a file that is asked for is read, or refused. */
static void test_config_in_full(void **state)
{
    (void)state;
    char path[] = "/tmp/banyan-settings-XXXXXX", option[64], name[] = "banyan sample";
    write_file(path, "worker-threads = 3\n");
    snprintf(option, sizeof option, "--conf=%s", path);
    char *argv[] = {name, option, NULL};
    struct sample sample = {.threads = 1};
    struct error error = {0};
    assert_int_equal(settings_read(&command, &sample, 2, argv, NULL, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "--config"));
    unlink(path);
}

static void test_sections(void **state)
{
    (void)state;
    struct sample sample = {.threads = 1};
    struct error error = {0};
    assert_int_equal(read_text(&sample, "[memory]\nworker-threads = 7\n[ sample ]\nsize = 1M\n", &error), 0);
    assert_int_equal(sample.threads, 1);
    assert_int_equal(sample.size, 1048576);
}

static void expect_fault(const char *text, const char *where, const char *what)
{
    struct sample sample = {.threads = 1};
    struct error error = {0};
    assert_int_equal(read_text(&sample, text, &error), BANYAN_EINVAL);
    if (!strstr(error.text, where) || !strstr(error.text, what))
        fail_msg("'%s' does not name %s and '%s'", error.text, where, what);
    option_free(table, &sample);
}

static void test_faults_name_file_and_line(void **state)
{
    (void)state;
    expect_fault("listen = a\nthreads\n", ":2:", "name = value");
    expect_fault("\n\nworker-threads = 1000\n", ":3:", "1 to 64");
    expect_fault("colour = blue\n", ":1:", "colour");
    expect_fault("[sample\n", ":1:", "section");
    expect_fault("size = lots\n", ":1:", "lots");
    struct sample sample = {0};
    struct error error = {0};
    assert_int_equal(settings_read_file(&command, &sample, "/nonexistent/banyan.conf", &error),
                     BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "/nonexistent/banyan.conf"));
    char *line = malloc(6000);
    memset(line, 'x', 5999);
    line[5999] = 0;
    expect_fault(line, ":1:", "longer");
    free(line);
}

static void test_environment_fault(void **state)
{
    (void)state;
    char name[] = "banyan sample";
    char *argv[] = {name, NULL};
    struct sample sample = {.threads = 1};
    struct error error = {0};
    setenv("BANYAN_WORKER_THREADS", "none", 1);
    assert_int_equal(settings_read(&command, &sample, 1, argv, NULL, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "BANYAN_WORKER_THREADS"));
    unsetenv("BANYAN_WORKER_THREADS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_precedence),
        cmocka_unit_test(test_switches),
        cmocka_unit_test(test_config_in_full),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_faults_name_file_and_line),
        cmocka_unit_test(test_environment_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
