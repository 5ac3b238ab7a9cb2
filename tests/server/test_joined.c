/*
 * test_joined.c - requests of several connections that are done together (fiber.h): the same replies, byte
 * for byte, as from a server that does each connection's by themselves, whatever joins what.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "serving.h"

#define CLIENTS     16u
#define REQUEST_MAX 256u
#define REPLY_MAX   4096u
#define MIDDLE_MAX  60000u /* of a value in one block */
#define LONG_VALUE                                                                                           \
    900000u /* some of these are more than one store_multi_get answers (STORE_MULTI_BYTES_MAX) */

static struct serving joins, apart; /* one of them joins connections, the other does not */
static int joins_fd[CLIENTS], apart_fd[CLIENTS];
static char reply[REPLY_MAX], expected[REPLY_MAX];

static int setup(void **state)
{
    (void)state;
    serving_prepare(&joins, 1);
    joins.options.sweep_entries = UINT32_MAX; /* its lookups would count as the clients' */
    serving_start(&joins);
    serving_prepare(&apart, 1);
    apart.options.alone = false;
    serving_start(&apart);
    for (unsigned i = 0; i < CLIENTS; i++) {
        joins_fd[i] = serving_connect(&joins);
        apart_fd[i] = serving_connect(&apart);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CLIENTS; i++) {
        close(joins_fd[i]);
        close(apart_fd[i]);
    }
    serving_end(&joins);
    serving_end(&apart);
    return 0;
}

/* The reply to a request that was sent with an ECHO behind it. */
static size_t reply_before_echo(int fd)
{
    static const char end[] = "$3\r\nend\r\n";
    size_t length = 0;
    while (length < sizeof end - 1 ||
           memcmp(expected + length - (sizeof end - 1), end, sizeof end - 1) != 0) {
        assert_true(length < sizeof expected);
        assert_true(serving_receive(fd, expected + length, 1));
        length++;
    }
    return length - (sizeof end - 1);
}

/* Sends each client's request to both servers: to the one that joins them all at once, to the other one after
 * the other. */
static void compare(char requests[CLIENTS][REQUEST_MAX])
{
    for (unsigned i = 0; i < CLIENTS; i++)
        assert_true(serving_say(joins_fd[i], requests[i]));
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_true(serving_say(apart_fd[i], requests[i]));
        assert_true(serving_say(apart_fd[i], "ECHO end\r\n"));
        size_t length = reply_before_echo(apart_fd[i]);
        assert_true(serving_receive(joins_fd[i], reply, length));
        if (memcmp(reply, expected, length) != 0)
            fail_msg("%.*s is answered %.*s, and not %.*s", 60, requests[i],
                     (int)(length < 100 ? length : 100), reply, (int)(length < 100 ? length : 100), expected);
    }
}

/* "@" is the client's own key, so that the order among the clients does not show. */
static const char *const kinds[] = {
    "GET @\r\n",
    "STRLEN @\r\n",
    "GETRANGE @ 1 3\r\n",
    "EXPIRETIME @\r\n",
    "GET @\r\nSTRLEN @\r\nGET nope\r\n",
    "SET @ value\r\n",
    "*3\r\n$3\r\nSET\r\n$4\r\n@\r\n$4\r\nv\r\nv\r\n",
    "SET @ v EXAT 4102444800\r\n",
    "set @ v pxat 4102444800123\r\n",
    "SET @ v PXAT 1\r\n",
    "SET @ v EXAT 4102444800 GET\r\n",
    "SET @ w EX 0\r\n",
    "SET @ w PX x\r\n",
    "SET @ w EX 9223372036854775807\r\n",
    "SET @ w EX\r\n",
    "SET @ w PX 100000 EX 100000\r\n",
    "SET @ w NX\r\n",
    "SET @ w XX KEEPTTL\r\n",
    "SETEX @ 0 w\r\n",
    "SETEX @ 100000 expires\r\nGET @\r\nPERSIST @\r\n",
    "PSETEX @ -5 w\r\n",
    "PSETEX @ 100000000 expires\r\nGET @\r\nPERSIST @\r\n",
    "SET @ \"of quotes\"\r\n",
    "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$1\r\nx\r\n",
    "*2\r\n$3\r\nGET\r\n$0\r\n\r\n",
    "SET @\r\n",
    "nope @\r\n",
    "DEL @\r\n",
    "APPEND @ more\r\n",
    "SET @ 1\r\nINCR @\r\nGET @\r\nSET @ 2\r\nGET @\r\n",
    "CLIENT REPLY SKIP\r\nSET @ 3\r\nGET @\r\n",
};
#define KINDS (sizeof kinds / sizeof *kinds)

static void request_write(const char *kind, unsigned client, unsigned key, char request[REQUEST_MAX])
{
    size_t length = 0;
    for (; *kind; kind++) {
        assert_true(length + 8 < REQUEST_MAX);
        if (*kind == '@')
            length += (size_t)snprintf(request + length, 8, "k%x.%u", client, key);
        else
            request[length++] = *kind;
    }
    request[length] = 0;
}

static void test_the_same(void **state)
{
    (void)state;
    const uint64_t seed = random_entropy();
    struct random random;
    char requests[CLIENTS][REQUEST_MAX];
    print_message("seed %llu\n", (unsigned long long)seed);
    random_seed(&random, seed);
    for (unsigned round = 0; round < 400; round++) {
        /* Those that do the same join each other's batches; others cut them short. */
        const uint64_t all = random_below(&random, KINDS), different = round % 4;
        for (unsigned i = 0; i < CLIENTS; i++) {
            const bool own = random_below(&random, 4) < different;
            request_write(kinds[own ? random_below(&random, KINDS) : all], i,
                          (unsigned)random_below(&random, 3), requests[i]);
        }
        compare(requests);
    }
}

/* Together they are more than is looked up at once, so that some requests run again. */
static void test_long_values(void **state)
{
    (void)state;
    static char value[LONG_VALUE], got[LONG_VALUE];
    char text[REQUEST_MAX];
    for (unsigned i = 0; i < CLIENTS; i++) {
        memset(value, 'a' + (int)i, sizeof value);
        request_write("*3\r\n$3\r\nSET\r\n$4\r\n@\r\n", i, 9, text);
        assert_true(serving_say(joins_fd[i], text));
        snprintf(text, sizeof text, "$%u\r\n", LONG_VALUE);
        assert_true(serving_say(joins_fd[i], text) && serving_send(joins_fd[i], value, sizeof value) &&
                    serving_say(joins_fd[i], "\r\n"));
        serving_expect(joins_fd[i], "+OK\r\n");
    }
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < CLIENTS; i++) {
            request_write("GET @\r\nGET nope\r\nGETRANGE @ 5 6\r\n", i, 9, text);
            assert_true(serving_say(joins_fd[i], text));
        }
        snprintf(text, sizeof text, "$%u\r\n", LONG_VALUE);
        for (unsigned i = 0; i < CLIENTS; i++) {
            memset(value, 'a' + (int)i, sizeof value);
            serving_expect(joins_fd[i], text);
            assert_true(serving_receive(joins_fd[i], got, sizeof got));
            assert_memory_equal(got, value, sizeof got);
            serving_expect(joins_fd[i], "\r\n$-1\r\n$2\r\n");
            assert_true(serving_receive(joins_fd[i], got, 4) && !memcmp(got, value, 2) &&
                        !memcmp(got + 2, "\r\n", 2));
        }
    }
}

/* "$LENGTH\r\n", the value, "\r\n". */
static void expect_bulk(int fd, const char *value, size_t length)
{
    static char got[MIDDLE_MAX + 2];
    char text[32];
    snprintf(text, sizeof text, "$%zu\r\n", length);
    serving_expect(fd, text);
    assert_true(serving_receive(fd, got, length + 2));
    assert_memory_equal(got, value, length);
    assert_memory_equal(got + length, "\r\n", 2);
}

/* Values that go from the pool straight to the reply (batch.c), of all clients at once and in pipelines that
 * are longer than what is gathered: each reply is whole and in its place, also where a request between them
 * has another one. */
static void test_values_left(void **state)
{
    (void)state;
    enum { KEYS = 5 };
    static char values[CLIENTS][KEYS][MIDDLE_MAX];
    static size_t lengths[CLIENTS][KEYS];
    static char request[MIDDLE_MAX + REQUEST_MAX];
    char text[REQUEST_MAX];
    struct random random;
    random_seed(&random, 23);
    for (unsigned round = 0; round < 12; round++) {
        for (unsigned i = 0; i < CLIENTS; i++)
            for (unsigned key = 0; key < KEYS; key++) {
                lengths[i][key] = 17 + random_below(&random, round % 3 ? 12000 : MIDDLE_MAX - 16);
                memset(values[i][key], 'a' + (int)random_below(&random, 26), lengths[i][key]);
                memcpy(values[i][key] + random_below(&random, lengths[i][key]), "X", 1);
                request_write("*3\r\n$3\r\nSET\r\n$4\r\n@\r\n", i, key, text);
                size_t length =
                    (size_t)snprintf(request, sizeof request, "%s$%zu\r\n", text, lengths[i][key]);
                memcpy(request + length, values[i][key], lengths[i][key]);
                memcpy(request + length + lengths[i][key], "\r\n", 2);
                /* at once: of several sendings the later would wait for the first one's acknowledgement */
                assert_true(serving_send(joins_fd[i], request, length + lengths[i][key] + 2));
                serving_expect(joins_fd[i], "+OK\r\n");
            }
        const unsigned times = round % 2 ? 1 : 4;
        for (unsigned i = 0; i < CLIENTS; i++) {
            size_t length = 0;
            for (unsigned key = 0; key < KEYS * times; key++) {
                request_write(key % KEYS == 2 ? "GET @\r\nSTRLEN @\r\nGET nope\r\n" : "GET @\r\n", i,
                              key % KEYS, text);
                length += (size_t)snprintf(request + length, sizeof request - length, "%s", text);
            }
            assert_true(serving_send(joins_fd[i], request, length));
        }
        for (unsigned i = 0; i < CLIENTS; i++)
            for (unsigned key = 0; key < KEYS * times; key++) {
                expect_bulk(joins_fd[i], values[i][key % KEYS], lengths[i][key % KEYS]);
                if (key % KEYS != 2)
                    continue;
                snprintf(text, sizeof text, ":%zu\r\n$-1\r\n", lengths[i][key % KEYS]);
                serving_expect(joins_fd[i], text);
            }
    }
}

/* As many at once by one client, and behind them what no request can be: that is said behind their replies.
 */
static void test_broken_behind_long_values(void **state)
{
    (void)state;
    static char got[LONG_VALUE];
    char text[REQUEST_MAX], requests[8 * 16 + 16] = "";
    const int fd = serving_connect(&joins);
    for (unsigned i = 0; i < 8; i++) {
        request_write("GET @\r\n", i, 9, text);
        strcat(requests, text);
    }
    strcat(requests, "*1\r\nnope\r\n");
    assert_true(serving_say(fd, requests));
    snprintf(text, sizeof text, "$%u\r\n", LONG_VALUE);
    for (unsigned i = 0; i < 8; i++) {
        serving_expect(fd, text);
        assert_true(serving_receive(fd, got, sizeof got));
        assert_int_equal(got[0], 'a' + (int)i);
        assert_int_equal(got[sizeof got - 1], 'a' + (int)i);
        serving_expect(fd, "\r\n");
    }
    serving_expect(fd, "-ERR ");
    assert_true(serving_expect_end(fd, text, sizeof text) > 0);
    close(fd);
}

/* Some clients are gone before they are answered; the others are not held up. */
static void test_gone(void **state)
{
    (void)state;
    for (unsigned round = 0; round < 50; round++) {
        int gone[4];
        for (unsigned i = 0; i < 4; i++) {
            gone[i] = serving_connect(&joins);
            assert_true(serving_say(gone[i], "SET gone 1\r\n"));
        }
        for (unsigned i = 0; i < CLIENTS; i++) {
            assert_true(serving_say(joins_fd[i], "SET gone 2\r\n"));
            if (i < 4)
                close(gone[i]);
        }
        for (unsigned i = 0; i < CLIENTS; i++)
            serving_expect(joins_fd[i], "+OK\r\n");
    }
}

/* Lookups that are done together are one round trip (tree/multi.c), so there are fewer of these. */
static bool gets_counted(void *context)
{
    return serving_stats(&joins).tree.operations >= *(uint64_t *)context;
}

static void test_joins(void **state)
{
    (void)state;
    assert_true(serving_say(joins_fd[0], "SET joined 1\r\n"));
    serving_expect(joins_fd[0], "+OK\r\n");
    const struct tree_stats before = serving_stats(&joins).tree;
    uint64_t gets = before.operations, trips;
    do {
        for (unsigned round = 0; round < 20; round++) {
            for (unsigned i = 0; i < CLIENTS; i++)
                assert_true(serving_say(joins_fd[i], "GET joined\r\n"));
            for (unsigned i = 0; i < CLIENTS; i++)
                serving_expect(joins_fd[i], "$1\r\n1\r\n");
            gets += CLIENTS;
        }
        assert_true(serving_until(gets_counted, &gets));
        trips = serving_stats(&joins).tree.cost.round_trips - before.cost.round_trips;
    } while (trips >= gets - before.operations); /* until the test's time is over */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same),    cmocka_unit_test(test_long_values),
        cmocka_unit_test(test_values_left), cmocka_unit_test(test_broken_behind_long_values),
        cmocka_unit_test(test_gone),        cmocka_unit_test(test_joins),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
