/* test_http.c - the pages of a server over HTTP: while a password is set, which may change at run time, they
 * ask for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "server/http.h"
#include "server/metrics.h"
#include "server/status_page.h"
#include "serving.h"

/* User and password in base64. */
#define SESAME   "Authorization: Basic YW55OnNlc2FtZSBzdHJlZXQ=\r\n" /* any:sesame street */
#define SESAM    "Authorization: Basic YW55OnNlc2FtZSBzdHJlZQ==\r\n" /* any:sesame stree */
#define CHANGED  "Authorization: Basic OmNoYW5nZWQ=\r\n"             /* :changed */
#define NO_COLON "Authorization: Basic c2VzYW1lIHN0cmVldA==\r\n"     /* sesame street */
#define EMPTY    "Authorization: Basic YW55Og==\r\n"                 /* any: */

struct web_pages {
    struct serving serving;
    struct http_page list[3];
    struct net_address address;
    struct http *http;
};

static void pages_start(struct web_pages *pages, const char *password, const char *host)
{
    struct error error = {0};
    serving_prepare(&pages->serving, 1);
    pages->serving.options.password = password;
    serving_start(&pages->serving);
    pages->list[0] = (struct http_page){"/metrics", "text/plain", metrics_compute, pages->serving.server};
    pages->list[1] = (struct http_page){"/", "text/html", status_page_compute, pages->serving.server};
    pages->list[2] = (struct http_page){.path = NULL};
    pages->address = (struct net_address){.kind = NET_TCP};
    strcpy(pages->address.host, host);
    assert_int_equal(http_start(&pages->http, &pages->address, pages->list,
                                server_password(pages->serving.server), &error),
                     0);
}

static void pages_end(struct web_pages *pages)
{
    http_stop(pages->http);
    serving_end(&pages->serving);
}

/* Asserts the answer's status; the answer must, or (with '!' before it) must not, hold the text. */
static void expect(const struct web_pages *pages, const char *path, const char *header, const char *status,
                   const char *text)
{
    enum { ROOM = 1 << 18 };
    char request[512], begin[64], *answer = malloc(ROOM);
    int fd = serving_connect_port(pages->address.port);
    assert_non_null(answer);
    snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n%s\r\n", path,
             header);
    snprintf(begin, sizeof begin, "HTTP/1.1 %s ", status);
    assert_true(serving_say(fd, request));
    serving_expect_end(fd, answer, ROOM);
    if (strncmp(answer, begin, strlen(begin)) != 0)
        fail_msg("%s with '%s' is answered with %.200s", path, header, answer);
    if (!strstr(answer, text + (*text == '!')) != (*text == '!'))
        fail_msg("%s with '%s': '%s' in %.400s", path, header, text, answer);
    close(fd);
    free(answer);
}

static void command(const struct web_pages *pages, const char *text, const char *reply)
{
    int fd = serving_connect(&pages->serving);
    assert_true(serving_say(fd, text));
    serving_expect(fd, reply);
    close(fd);
}

static void test_no_password(void **state)
{
    (void)state;
    struct web_pages pages;
    pages_start(&pages, NULL, "127.0.0.1");
    expect(&pages, "/", "", "200", "Banyan compute node");
    expect(&pages, "/metrics", "", "200", "\nbanyan_round_trips_total ");
    expect(&pages, "/metrics", "", "200", "\nbanyan_cache_budget_bytes ");
    expect(&pages, "/metrics", "", "200", "\nbanyan_cache_bytes{kind=\"inner\"} ");
    expect(&pages, "/metrics", "", "200", "\nbanyan_cache_evictions_total{kind=\"entries\"} 0\n");
    expect(&pages, "/", "", "200", "<h2>Cache of the index");
    expect(&pages, "/metrics", SESAME, "200", "\nbanyan_round_trips_total ");
    expect(&pages, "/health", "", "200", "ok\n");
    expect(&pages, "/other", "", "404", "!banyan_");
    pages_end(&pages);
}

static void test_password(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",
                                        SESAM,
                                        CHANGED,
                                        NO_COLON,
                                        EMPTY,
                                        "Authorization: Basic !\r\n",
                                        "Authorization: Bearer sesame street\r\n"};
    static const char *const paths[] = {"/", "/metrics", "/other"};
    struct web_pages pages;
    pages_start(&pages, "sesame street", "127.0.0.1");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) {
            expect(&pages, paths[p], wrong[i], "401", "\r\nWWW-Authenticate: Basic realm=");
            expect(&pages, paths[p], wrong[i], "401", "!banyan_");
        }
    expect(&pages, "/", SESAME, "200", "Banyan compute node");
    expect(&pages, "/metrics", SESAME, "200", "\nbanyan_round_trips_total ");
    expect(&pages, "/other", SESAME, "404", "!banyan_");
    expect(&pages, "/health", "", "200", "ok\n"); /* a probe needs no password, and learns nothing else */
    pages_end(&pages);
}

/* CONFIG SET requirepass takes effect on the pages at once. */
static void test_changes(void **state)
{
    (void)state;
    struct web_pages pages;
    pages_start(&pages, NULL, "127.0.0.1");
    expect(&pages, "/metrics", "", "200", "banyan_");
    command(&pages, "CONFIG SET requirepass \"sesame street\"\r\n", "+OK\r\n");
    expect(&pages, "/metrics", "", "401", "!banyan_");
    expect(&pages, "/metrics", SESAME, "200", "banyan_");
    command(&pages, "AUTH \"sesame street\"\r\nCONFIG SET requirepass changed\r\n", "+OK\r\n+OK\r\n");
    expect(&pages, "/metrics", SESAME, "401", "!banyan_");
    expect(&pages, "/metrics", CHANGED, "200", "banyan_");
    command(&pages, "AUTH changed\r\nCONFIG SET requirepass \"\"\r\n", "+OK\r\n+OK\r\n");
    expect(&pages, "/metrics", "", "200", "banyan_");
    pages_end(&pages);
}

/* Pages that other machines can reach are never open: without a password every request is refused. */
static void test_open_address(void **state)
{
    (void)state;
    struct web_pages pages;
    pages_start(&pages, "sesame street", "0.0.0.0");
    expect(&pages, "/metrics", "", "401", "!banyan_");
    expect(&pages, "/metrics", SESAME, "200", "banyan_");
    command(&pages, "AUTH \"sesame street\"\r\nCONFIG SET requirepass \"\"\r\n", "+OK\r\n+OK\r\n");
    expect(&pages, "/metrics", "", "401", "!banyan_");
    expect(&pages, "/metrics", SESAME, "401", "!banyan_");
    expect(&pages, "/metrics", EMPTY, "401", "!banyan_");
    expect(&pages, "/health", "", "200", "ok\n");
    pages_end(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_password),
        cmocka_unit_test(test_password),
        cmocka_unit_test(test_changes),
        cmocka_unit_test(test_open_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
