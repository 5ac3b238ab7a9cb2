/*
 * test_bench_memory.c - `banyan bench --memory` against memory nodes that run already: with a secret, and
 * over TLS. The program is $BANYAN_PROGRAM.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "cluster/process.h"
#include "net/certificates.h"

#define DAY   86400L
#define SMALL "--keys", "2k", "--operations", "1k", "--quiet"

static struct process_result result;

static const char *address_of(const struct process *memory)
{
    char text[NET_TEXT_MAX];
    struct net_address address = process_address(memory, 0);
    return text_of("%s", net_address_format(&address, text));
}

static void expect(struct scene *scene, const char *const *arguments, int code, const char *part)
{
    process_run(scene, NULL, arguments, &result);
    if (result.code != code || !strstr(code ? result.error : result.output, part))
        fail_msg("ended with %d, not %d and '%s': %s%s", result.code, code, part, result.output,
                 result.error);
}

static void a_secret_is_asked_for(void **state)
{
    struct scene *scene = *state;
    const char *secret = strdup(scene_write(scene, "secret", "correct horse battery staple\n")),
               *wrong = strdup(scene_write(scene, "wrong", "another horse battery staple\n"));
    struct process *memory = process_start(
        scene, "memory",
        ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M", "--secret-file", secret));
    const char *address = address_of(memory);
    expect(scene,
           ARGUMENTS("bench", "--fabric", "tcp", "--memory", address, "--secret-file", secret, "--threads",
                     "2", SMALL),
           0, "read-intensive");
    expect(scene, ARGUMENTS("bench", "--fabric", "tcp", "--memory", address, SMALL), 1, "secret");
    expect(scene, ARGUMENTS("bench", "--fabric", "tcp", "--memory", address, "--secret-file", wrong, SMALL),
           1, "secret");
    expect(scene,
           ARGUMENTS("bench", "--fabric", "tcp", "--memory", address, "--secret-file", "/no/such", SMALL), 2,
           "/no/such");
    assert_int_equal(process_stop(memory), 0);
    free((void *)(uintptr_t)secret);
    free((void *)(uintptr_t)wrong);
    scene->passed = true;
}

/* A certificate with its key in one file of the scene. */
static char *issue(struct scene *scene, const char *name, const struct certificate *authority,
                   struct certificate *made)
{
    char *path = strdup(scene_path(scene, "%s.pem", name));
    assert_true(certificate_make(made, authority, name, "DNS:localhost,IP:127.0.0.1", -DAY, DAY));
    assert_true(certificate_write(made, path, path));
    return path;
}

static void tls_is_spoken(void **state)
{
    struct scene *scene = *state;
    struct certificate authority, foreign, server, client;
    char *authority_path = issue(scene, "authority", NULL, &authority),
         *foreign_path = issue(scene, "foreign", NULL, &foreign),
         *server_path = issue(scene, "server", &authority, &server),
         *client_path = issue(scene, "client", &authority, &client);
    struct process *memory =
        process_start(scene, "memory",
                      ARGUMENTS("memory", "--listen", "127.0.0.1:0", "--size", "64M", "--tls-certificate",
                                server_path, "--tls-key", server_path, "--tls-authority", authority_path));
    const char *address = address_of(memory);
    expect(scene,
           ARGUMENTS("bench", "--fabric", "tcp", "--memory", address, "--fabric-authority", authority_path,
                     "--fabric-certificate", client_path, "--fabric-key", client_path, "--threads", "2",
                     SMALL),
           0, "read-intensive");
    expect(scene,
           ARGUMENTS("bench", "--fabric", "tcp", "--memory", address, "--fabric-authority", foreign_path,
                     "--fabric-certificate", client_path, "--fabric-key", client_path, SMALL),
           1, "TLS");
    expect(scene,
           ARGUMENTS("bench", "--fabric", "tcp", "--memory", address, "--fabric-authority", authority_path,
                     SMALL),
           1, "TLS"); /* the memory node asks for a certificate */
    assert_int_equal(process_stop(memory), 0);
    certificate_free(&authority);
    certificate_free(&foreign);
    certificate_free(&server);
    certificate_free(&client);
    free(authority_path);
    free(foreign_path);
    free(server_path);
    free(client_path);
    scene->passed = true;
}

static void settings_that_make_no_sense_are_told(void **state)
{
    struct scene *scene = *state;
    expect(scene, ARGUMENTS("bench", "--fabric", "tcp", "--fabric-authority", "/no/such.pem", SMALL), 2,
           "give --memory");
    expect(scene,
           ARGUMENTS("bench", "--fabric", "tcp", "--memory", "tcp://127.0.0.1:1", "--fabric-certificate",
                     "/no/such.pem", SMALL),
           2, "--fabric-authority");
    expect(scene,
           ARGUMENTS("bench", "--fabric", "tcp", "--memory", "tcp://127.0.0.1:1", "--fabric-authority",
                     "/no/such.pem", SMALL),
           2, "/no/such.pem");
    scene->passed = true;
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, scene_set_up, scene_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_secret_is_asked_for),
        TEST(tls_is_spoken),
        TEST(settings_that_make_no_sense_are_told),
    };
    return cmocka_run_group_tests_name("bench_memory", tests, NULL, NULL);
}
