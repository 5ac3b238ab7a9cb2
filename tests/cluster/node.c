/* node.c - see node.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cluster/node.h"
#include "fabric/remote.h"

void node_open(struct node *node, const char *memory)
{
    struct net_address addresses[NODE_MEMORY_MAX];
    struct error error = {0};
    char list[NODE_MEMORY_MAX * (NET_TEXT_MAX + 1)], *rest = NULL;
    uint16_t count = 0;
    snprintf(list, sizeof list, "%s", memory);
    for (char *one = strtok_r(list, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
        assert_true(count < NODE_MEMORY_MAX);
        assert_int_equal(net_address_parse(&addresses[count++], one, 0, &error), 0);
    }
    const struct fabric_remote_options options = {.nodes = addresses, .count = count};
    if (fabric_remote_open(&node->fabric, &options, &error))
        fail_msg("%s", error.text);
    assert_int_equal(pool_create(&node->pool, node->fabric, POOL_COMBINE_ALL, &error), 0);
    assert_int_equal(pool_worker_create(&node->worker, node->pool, &error), 0);
    pool_session_init(&node->session, node->worker, NULL);
    pool_session_begin(&node->session);
}

void node_close(struct node *node)
{
    pool_worker_destroy(node->worker);
    pool_destroy(node->pool);
    fabric_close(node->fabric);
}
