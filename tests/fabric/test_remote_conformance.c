/* test_remote_conformance.c - the conformance suite on memory nodes in processes of their own: over TCP, with
 * TLS, over a Unix socket with messages, mapped, and mixed; by fibers of workers and by plain threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "ways.h"

static void tcp_fibers(void **state)
{
    ways_conform((struct way){.name = "tcp, fibers", .secret = "a shared secret"}, NULL, true, 400);
}
static void tcp_threads(void **state)
{
    ways_conform((struct way){.name = "tcp, threads"}, NULL, false, 200);
}
static void tcp_proxied(void **state)
{
    ways_conform((struct way){.name = "tcp that loses connections, fibers", .proxied = true}, NULL, true, 50);
    ways_conform((struct way){.name = "tcp that loses connections, threads", .proxied = true}, "incarnations",
                 false, 0);
}
static void unix_copied(void **state)
{
    ways_conform((struct way){.name = "unix, messages", .unix_sockets = true, .copy = true}, NULL, true, 400);
}
static void unix_mapped(void **state)
{
    ways_conform((struct way){.name = "unix, mapped, fibers", .unix_sockets = true}, NULL, true, 20000);
    ways_conform((struct way){.name = "unix, mapped, threads", .unix_sockets = true}, NULL, false, 20000);
}
static void mixed(void **state)
{
    ways_conform((struct way){.name = "mixed", .unix_sockets = true, .mixed = true}, NULL, true, 400);
}
static void tls_fibers(void **state)
{
    ways_conform_tls((struct way){.name = "tls, fibers"}, NULL, true, 200);
}

int main(int count, char **arguments)
{
    daemon_main(count, arguments);
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tcp_fibers),  cmocka_unit_test(tcp_threads), cmocka_unit_test(tcp_proxied),
        cmocka_unit_test(unix_copied), cmocka_unit_test(unix_mapped), cmocka_unit_test(mixed),
        cmocka_unit_test(tls_fibers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
