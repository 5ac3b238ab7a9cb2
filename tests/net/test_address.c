/* test_address.c - texts of addresses that are taken, and those that are refused with the text named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "net/net.h"

struct good {
    const char *text;
    uint16_t default_port;
    enum net_kind kind;
    const char *where; /* host or path */
    uint16_t port;
    const char *formatted;
    bool loopback;
};

static const struct good goods[] = {
    {"unix:/run/banyan.sock", 0, NET_UNIX, "/run/banyan.sock", 0, "unix:/run/banyan.sock", true},
    {"unix:relative", 7, NET_UNIX, "relative", 0, "unix:relative", true},
    {"tcp://example.org:7100", 0, NET_TCP, "example.org", 7100, "tcp://example.org:7100", false},
    {"rdma://10.9.0.1:7100", 0, NET_TCP, "10.9.0.1", 7100, "rdma://10.9.0.1:7100", false},
    {"RDMA://[fe80::2]", 7100, NET_TCP, "fe80::2", 7100, "rdma://[fe80::2]:7100", false},
    {"example.org:65535", 1, NET_TCP, "example.org", 65535, "tcp://example.org:65535", false},
    {"example.org", 7100, NET_TCP, "example.org", 7100, "tcp://example.org:7100", false},
    {"localhost:0", 7100, NET_TCP, "localhost", 0, "tcp://localhost:0", true},
    {"LOCALHOST:1", 0, NET_TCP, "LOCALHOST", 1, "tcp://LOCALHOST:1", true},
    {"127.1.2.3:6379", 0, NET_TCP, "127.1.2.3", 6379, "tcp://127.1.2.3:6379", true},
    {"128.0.0.1:6379", 0, NET_TCP, "128.0.0.1", 6379, "tcp://128.0.0.1:6379", false},
    {"127.0.0.1.example.org:1", 0, NET_TCP, "127.0.0.1.example.org", 1, "tcp://127.0.0.1.example.org:1",
     false},
    {"[::1]:7100", 0, NET_TCP, "::1", 7100, "tcp://[::1]:7100", true},
    {"tcp://[::1]", 7100, NET_TCP, "::1", 7100, "tcp://[::1]:7100", true},
    {"::1", 7100, NET_TCP, "::1", 7100, "tcp://[::1]:7100", true},
    {"[::ffff:127.0.0.1]:1", 0, NET_TCP, "::ffff:127.0.0.1", 1, "tcp://[::ffff:127.0.0.1]:1", true},
    {"[fe80::2]:1", 0, NET_TCP, "fe80::2", 1, "tcp://[fe80::2]:1", false},
    {"*:6379", 0, NET_TCP, "*", 6379, "tcp://*:6379", false},
    {":6379", 0, NET_TCP, "", 6379, "tcp://:6379", false},
    {"0.0.0.0:6379", 0, NET_TCP, "0.0.0.0", 6379, "tcp://0.0.0.0:6379", false},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof goods / sizeof *goods; i++) {
        const struct good *good = &goods[i];
        struct net_address address, again;
        char text[NET_TEXT_MAX];
        assert_int_equal(net_address_parse(&address, good->text, good->default_port, NULL), 0);
        assert_int_equal(address.kind, good->kind);
        assert_string_equal(good->kind == NET_UNIX ? address.path : address.host, good->where);
        assert_int_equal(address.port, good->port);
        assert_string_equal(net_address_format(&address, text), good->formatted);
        assert_int_equal(net_address_loopback(&address), good->loopback);
        assert_int_equal(net_address_parse(&again, text, 0, NULL), 0);
        assert_memory_equal(&again, &address, sizeof address);
    }
}

static void refused(const char *text, uint16_t default_port, const char *why)
{
    struct net_address address;
    struct error error = {0};
    assert_int_equal(net_address_parse(&address, text, default_port, &error), BANYAN_EINVAL);
    assert_int_equal(error.code, BANYAN_EINVAL);
    if (!strstr(error.text, why))
        fail_msg("\"%s\" is refused with: %s", text, error.text);
}

static void test_bad(void **state)
{
    (void)state;
    refused("", 7100, "empty");
    refused("tcp://", 7100, "empty");
    refused("unix:", 0, "path");
    refused("host", 0, "port is missing");
    refused("host:", 7100, "not a number");
    refused("host:65536", 0, "not a number");
    refused("host:-1", 0, "not a number");
    refused("host:+1", 0, "not a number");
    refused("host: 1", 0, "not a number");
    refused("host:1x", 0, "not a number");
    refused("host:000000001", 0, "not a number");
    refused("ho st:1", 0, "not a host");
    refused("host/path:1", 0, "not a host");
    refused("http://host:1", 0, "neither");
    refused("tcp://tcp://host:1", 0, "neither");
    refused("[::1:7100", 0, "[address]:port");
    refused("[::1]7100", 0, "[address]:port");
    refused("[host]:7100", 0, "not an IPv6");
    refused("1:2:3", 7100, "[address]:port");
}

static void test_too_long(void **state)
{
    (void)state;
    char text[600] = "unix:";
    struct net_address address;
    memset(text + 5, 'p', NET_PATH_MAX);
    assert_int_equal(net_address_parse(&address, text, 0, NULL), 0);
    text[5 + NET_PATH_MAX] = 'p';
    refused(text, 0, "107");
    memset(text, 'h', NET_HOST_MAX);
    text[NET_HOST_MAX] = 0;
    assert_int_equal(net_address_parse(&address, text, 1, NULL), 0);
    memset(text, 'h', sizeof text - 1);
    refused(text, 1, "255");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
