/* Settings that commands share, as options of the layers below: NICs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cli/cluster.h"

struct sample {
    struct cluster_rdma_settings nic;
};
static const struct option_entry table[] = {
    CLUSTER_RDMA_ROWS(struct sample, nic),
    {.kind = OPTION_END},
};

static void test_nics(void **state)
{
    struct sample sample = {.nic = CLUSTER_RDMA_DEFAULTS};
    struct verbs_options options;
    struct error error = {0};
    (void)state;
    assert_int_equal(cluster_rdma_prepare(&options, &sample.nic, &error), 0);
    assert_null(options.device);
    assert_int_equal(options.port, 0);
    assert_int_equal(options.gid_index, 0);
    assert_int_equal(options.mtu, 0);
    assert_int_equal(options.timeout, 18);
    const char *list = "rdma-device=mlx5_0,rdma-port=2,rdma-gid=0,rdma-mtu=4096,rdma-traffic-class=104,"
                       "rdma-service-level=3,rdma-timeout=14";
    assert_int_equal(option_set_list(table, &sample, list, &error), 0);
    assert_int_equal(cluster_rdma_prepare(&options, &sample.nic, &error), 0);
    assert_string_equal(options.device, "mlx5_0");
    assert_int_equal(options.port, 2);
    assert_int_equal(options.gid_index, 1); /* the first of the table */
    assert_int_equal(options.mtu, 4096);
    assert_int_equal(options.traffic_class, 104);
    assert_int_equal(options.service_level, 3);
    assert_int_equal(options.timeout, 14);
    assert_int_equal(option_set(table, &sample, "rdma-mtu", "256", &error), 0);
    assert_int_equal(cluster_rdma_prepare(&options, &sample.nic, &error), 0);
    assert_int_equal(options.mtu, 256);
    option_free(table, &sample);
}

static void test_nic_ranges(void **state)
{
    static const char *const wrong[] = {"rdma-port=255",          "rdma-mtu=512k",         "rdma-mtu=1000",
                                        "rdma-traffic-class=256", "rdma-service-level=16", "rdma-timeout=32",
                                        "rdma-timeout=0"};
    struct sample sample = {.nic = CLUSTER_RDMA_DEFAULTS};
    struct error error = {0};
    (void)state;
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(option_set_list(table, &sample, wrong[i], &error), BANYAN_EINVAL);
}

static void test_gids(void **state)
{
    static const char *const wrong[] = {"x", "-1", "+1", " 1", "1x", "0x1", "99999999999999999999", "256"};
    struct sample sample = {.nic = CLUSTER_RDMA_DEFAULTS};
    struct verbs_options options;
    (void)state;
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct error error = {0};
        assert_int_equal(option_set(table, &sample, "rdma-gid", wrong[i], &error), 0);
        assert_int_equal(cluster_rdma_prepare(&options, &sample.nic, &error), BANYAN_EINVAL);
        assert_non_null(strstr(error.text, "rdma-gid"));
        assert_non_null(strstr(error.text, wrong[i]));
    }
    option_free(table, &sample);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nics),
        cmocka_unit_test(test_nic_ranges),
        cmocka_unit_test(test_gids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
