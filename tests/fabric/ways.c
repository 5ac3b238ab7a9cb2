/* ways.c - see ways.h. */
#include "runners.h"
#include "ways.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "fabric/remote.h"
#include "tests/net/certificates.h"

static void way_close(struct way *way)
{
    for (uint16_t i = 0; i < way->count; i++) {
        if (way->proxies[i] != NULL)
            proxy_stop(way->proxies[i]);
        way->proxies[i] = NULL;
        daemon_kill(&way->daemons[i]);
    }
}

static struct fabric *way_open(void *context, const struct fabric_target *const *targets, uint16_t count)
{
    struct way *way = context;
    struct net_address nodes[CONFORMANCE_NODES_MAX];
    struct error error = {0};
    struct fabric *fabric;
    way->count = count;
    for (uint16_t i = 0; i < count; i++) {
        const struct daemon_options options = {.number = i,
                                               .rdma = way->rdma,
                                               .secret = way->secret,
                                               .certificate = way->certificate,
                                               .key = way->key,
                                               .pool_bytes = CONFORMANCE_POOL_BYTES,
                                               .chunk_bytes = CONFORMANCE_CHUNK_BYTES,
                                               .lock_bytes = CONFORMANCE_LOCK_BYTES};
        bool local = way->unix_sockets && (!way->mixed || i % 2 == 0);
        daemon_start(&way->daemons[i], &options);
        nodes[i] = local ? way->daemons[i].local : way->daemons[i].tcp;
        if (way->proxied) {
            way->proxies[i] = proxy_start(&nodes[i]);
            nodes[i] = proxy_address(way->proxies[i]);
            nodes[i].rdma = way->rdma;
        }
    }
    const struct fabric_remote_options options = {.nodes = nodes,
                                                  .count = count,
                                                  .tls = way->tls,
                                                  .secret = way->secret,
                                                  .secret_length = way->secret ? strlen(way->secret) : 0,
                                                  .timeout_ms = 20000,
                                                  .lease_ms = 20000,
                                                  .copy = way->copy};
    if (fabric_remote_open(&fabric, &options, &error)) {
        fprintf(stderr, "open: %s\n", error.text);
        way_close(way);
        return NULL;
    }
    return fabric;
}

static void way_shut(void *context, struct fabric *fabric)
{
    fabric_close(fabric);
    way_close(context);
}

static void way_lose(void *context, struct fabric *fabric, uint16_t node)
{
    struct way *way = context;
    proxy_cut(way->proxies[node]);
    proxy_open(way->proxies[node]);
}

void ways_conform(struct way way, const char *part, bool fibers, unsigned rounds)
{
    const struct conformance_backend backend = {.name = way.name,
                                                .context = &way,
                                                .rounds = rounds,
                                                .open = way_open,
                                                .run =
                                                    fibers ? conformance_run_fibers : conformance_run_threads,
                                                .close = way_shut,
                                                .lose = way.proxied ? way_lose : NULL};
    assert_int_equal(part ? conformance_run_some(&backend, part) : conformance_run(&backend), 0);
}

void ways_conform_tls(struct way way, const char *part, bool fibers, unsigned rounds)
{
    char directory[] = "/tmp/banyan-test-tls-XXXXXX", authority_file[64], certificate_file[64], key_file[64];
    char names[128] = "DNS:localhost,IP:127.0.0.1";
    const char *nic = getenv("BANYAN_RDMA_ADDRESS");
    if (way.rdma && nic)
        snprintf(names, sizeof names, "DNS:localhost,IP:127.0.0.1,IP:%s", nic);
    struct certificate authority, server;
    struct error error = {0};
    assert_non_null(mkdtemp(directory));
    snprintf(authority_file, sizeof authority_file, "%s/authority", directory);
    snprintf(certificate_file, sizeof certificate_file, "%s/certificate", directory);
    snprintf(key_file, sizeof key_file, "%s/key", directory);
    assert_true(certificate_make(&authority, NULL, "test authority", NULL, -60, 3600));
    assert_true(certificate_make(&server, &authority, "memory", names, -60, 3600));
    assert_true(certificate_write(&authority, authority_file, NULL));
    assert_true(certificate_write(&server, certificate_file, key_file));
    way.certificate = certificate_file;
    way.key = key_file;
    const struct net_tls_options options = {.authority_file = authority_file};
    assert_int_equal(net_tls_create(&way.tls, false, &options, &error), BANYAN_OK);
    ways_conform(way, part, fibers, rounds);
    net_tls_destroy(way.tls);
    certificate_free(&server);
    certificate_free(&authority);
    unlink(authority_file);
    unlink(certificate_file);
    unlink(key_file);
    rmdir(directory);
}
