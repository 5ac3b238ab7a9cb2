/*
 * test_conformance.c - the fabric's conformance suite on memory nodes in processes of their own, through the
 * NIC at $BANYAN_RDMA_ADDRESS: by fibers of workers and by plain threads, with a secret, with TLS on
 * the connections that arrange it, and through a proxy that cuts those.
 * Usage: test_conformance [ROUNDS [NAME]]: repetitions of a task in the concurrent cases (50); one test
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/log.h"
#include "tests/fabric/ways.h"

static unsigned rounds = 50;

static void fibers(void **state)
{
    ways_conform((struct way){.name = "rdma, fibers", .rdma = true, .secret = "a shared secret"}, NULL, true,
                 rounds);
}
static void threads(void **state)
{
    ways_conform((struct way){.name = "rdma, threads", .rdma = true}, NULL, false, rounds);
}
/* The queue pairs' data does not go through the proxy: what cuts the stream must end them. */
static void proxied(void **state)
{
    ways_conform((struct way){.name = "rdma that loses connections, fibers", .rdma = true, .proxied = true},
                 NULL, true, rounds / 5 + 1);
    ways_conform((struct way){.name = "rdma that loses connections, threads", .rdma = true, .proxied = true},
                 "incarnations", false, 0);
}
/* Lists do not go through TLS: some cases are enough, since a connection takes an emulated machine long. */
static void tls(void **state)
{
    ways_conform_tls((struct way){.name = "rdma, TLS beside it", .rdma = true}, "order", true, rounds);
    ways_conform_tls((struct way){.name = "rdma, TLS beside it", .rdma = true}, "calls", true, rounds);
}

int main(int count, char **arguments)
{
    daemon_main(count, arguments);
    log_set_level(LOG_ERROR);
    if (count > 1)
        rounds = (unsigned)strtoul(arguments[1], NULL, 10);
    if (count > 2)
        cmocka_set_test_filter(arguments[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fibers),
        cmocka_unit_test(threads),
        cmocka_unit_test(proxied),
        cmocka_unit_test(tls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
