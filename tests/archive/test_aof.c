/* test_aof.c - Redis's append-only files: commands, transactions, remarks, an end anywhere; and what is
 * written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "archive/aof.h"
#include "bytes.h"

/* "[position! a b c]" */
static int visit(void *context, const struct aof_command *command, struct error *error)
{
    char text[32];
    (void)error;
    snprintf(text, sizeof text, "[%llu%s", (unsigned long long)command->position,
             command->in_transaction ? "!" : "");
    bytes_text(context, text);
    for (uint32_t i = 0; i < command->count; i++) {
        bytes_text(context, " ");
        bytes_add(context, command->arguments[i].bytes, command->arguments[i].length);
    }
    bytes_text(context, "]");
    return 0;
}

static int read_all(const struct bytes *file, struct bytes *found, struct aof_counts *counts,
                    struct error *error)
{
    struct source source;
    bytes_free(found);
    bytes_text(found, "");
    *counts = (struct aof_counts){0};
    source_memory(&source, "file", file->start, file->length);
    int status = aof_read(&source, visit, found, counts, error);
    source_close(&source);
    return status;
}

#define SELECT "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n"
#define SET    "*3\r\n$3\r\nset\r\n$1\r\nk\r\n$2\r\n\r\n\r\n"
#define DEL    "*2\r\n$3\r\nDEL\r\n$0\r\n\r\n"
#define MULTI  "*1\r\n$5\r\nMULTI\r\n"
#define EXEC   "*1\r\n$4\r\nexec\r\n"

static void test_commands(void **state)
{
    struct bytes file = {0}, found = {0};
    struct aof_counts counts;
    (void)state;
    bytes_text(&file, "#TS:1700000000\r\n" SELECT SET "#TS:1700000001\r\n" MULTI SET DEL EXEC DEL);
    assert_int_equal(read_all(&file, &found, &counts, NULL), 0);
    assert_string_equal((char *)found.start,
                        "[16 SELECT 0][39 set k \r\n][98! set k \r\n][126! DEL ][159 DEL ]");
    assert_int_equal(counts.commands, 5);
    assert_false(counts.cut);
    bytes_free(&file);
    bytes_free(&found);
}

/* Wherever the file ends, all whole commands before are visited, and no transaction in part. */
static void test_each_end(void **state)
{
    static const char *const parts[] = {SELECT, SET, MULTI SET DEL EXEC, DEL};
    struct bytes file = {0}, found = {0};
    struct aof_counts counts;
    size_t ends[5] = {0};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        bytes_text(&file, parts[i]);
        ends[i + 1] = file.length;
    }
    for (file.length = 0; file.length <= ends[4]; file.length++) {
        unsigned whole = 4;
        while (ends[whole] > file.length)
            whole--;
        assert_int_equal(read_all(&file, &found, &counts, NULL), 0);
        assert_int_equal(counts.commands, whole < 3 ? whole : whole + 1);
        assert_int_equal(counts.cut, file.length > ends[whole]);
        if (counts.cut)
            assert_int_equal(counts.cut_at, ends[whole]);
    }
    bytes_free(&file);
    bytes_free(&found);
}

static void test_refused(void **state)
{
    static const char *const refused[][2] = {
        {"hello\r\n", "'*' and a number belong here"},
        {"*-1\r\n", "'*' and a number belong here"},
        {"*1\n", "'*' and a number belong here"},
        {"*\r\n", "'*' and a number belong here"},
        {"*0\r\n", "without a name"},
        {"*1048577\r\n", "'*' and a number belong here"},
        {"*99999999999999999999999999999999999999\r\n", "too long"},
        {"*1\r\n:3\r\n", "'$' and a number belong here"},
        {"*1\r\n$1\r\nab\r\n", "longer than it says"},
        {"*1\r\n$1073741825\r\n", "'$' and a number belong here"},
        {MULTI MULTI, "within another"},
        {EXEC, "has not begun"},
        {SET "x", NULL},
    };
    struct bytes file = {0}, found = {0};
    struct aof_counts counts;
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct error error = {0};
        bytes_free(&file);
        bytes_text(&file, refused[i][0]);
        int status = read_all(&file, &found, &counts, &error);
        if (!refused[i][1]) { /* the beginning of a line: it cannot be told from one that was cut */
            assert_int_equal(status, 0);
            assert_true(counts.cut);
            continue;
        }
        assert_int_equal(status, BANYAN_ECORRUPT);
        if (!strstr(error.text, refused[i][1]))
            fail_msg("'%s' is not '%s'", error.text, refused[i][1]);
    }
    bytes_free(&file);
    bytes_free(&found);
}

static void test_written_is_read(void **state)
{
    struct bytes file = {0}, found = {0};
    struct aof_counts counts;
    struct archive_entry entry = {.key = (const uint8_t *)"k\r\n",
                                  .key_length = 3,
                                  .value = (const uint8_t *)"",
                                  .expires = 1700000000000};
    (void)state;
    assert_int_equal(aof_write(&entry, bytes_write, &file, NULL), 0);
    entry = (struct archive_entry){
        .key = (const uint8_t *)"l", .key_length = 1, .value = (const uint8_t *)"vv", .value_length = 2};
    assert_int_equal(aof_write(&entry, bytes_write, &file, NULL), 0);
    assert_int_equal(read_all(&file, &found, &counts, NULL), 0);
    assert_string_equal((char *)found.start, "[0 SET k\r\n ][28 PEXPIREAT k\r\n 1700000000000][76 SET l vv]");
    bytes_free(&file);
    bytes_free(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_each_end),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_written_is_read),
    };
    return cmocka_run_group_tests_name("append-only files", tests, NULL, NULL);
}
