/* load_servers.c - the kind of load that is RESP servers and their clients: load.h behind load_kind.h. */
#include <stdlib.h>
#include <string.h>
#include "cluster/load_kind.h"

#define THREADS 3u
#define KEYS    120u

struct servers {
    struct load_setup setup;
    struct load *load;
};

static void *servers_create(const struct load_setup *setup, const char *memories)
{
    struct servers *servers = calloc(1, sizeof *servers);
    if (!servers)
        fail_hard("no memory");
    servers->setup = *setup;
    return servers;
}

static const char *servers_compute(void *object, unsigned server, const char *memories, bool first,
                                   const char *arguments[LOAD_ARGUMENTS_MAX])
{
    const struct servers *servers = object;
    const char *const all[] = {"compute",
                               "--memory",
                               memories,
                               "--listen",
                               text_of("unix:%s", scene_path(servers->setup.scene, "c%u.sock", server)),
                               "--threads",
                               "2",
                               "--lease",
                               text_of("%u", servers->setup.lease_ms[server]),
                               servers->setup.copy ? "--copy" : "--no-copy",
                               "--log",
                               servers->setup.logged ? "auto" : "none",
                               "--log-segment-bytes", /* so that they end, and are used again */
                               "256K",
                               NULL};
    size_t used = sizeof all / sizeof *all - 1;
    memcpy(arguments, all, sizeof all);
    if (servers->setup.secret_file) { /* on a NIC, which may be emulated: give it time */
        arguments[used++] = "--secret-file";
        arguments[used++] = servers->setup.secret_file;
        arguments[used++] = "--timeout";
        arguments[used++] = text_of("%u", 5 * servers->setup.lease_ms[server]);
    }
    if (servers->setup.exchanged) { /* walks are nothing else, and leaves are never cached */
        static const char *const exchanging[] = {"--exchange-walks", "always", "--walks", "never",
                                                 "--cache-policy",   "inner"};
        memcpy(arguments + used, exchanging, sizeof exchanging);
        used += sizeof exchanging / sizeof *exchanging;
    }
    if (first && server == 0)
        arguments[used++] = "--format";
    arguments[used] = NULL;
    return NULL;
}

static void servers_start(void *object, struct process *const computes[LOAD_SERVERS])
{
    struct servers *servers = object;
    struct load_options options = {.threads = THREADS, .keys = KEYS, .seed = servers->setup.seed};
    for (unsigned i = 0; i < LOAD_SERVERS; i++)
        options.servers[i] = process_address(computes[i], 0);
    servers->load = load_start(&options);
}

/* Its clients work at the same rate all the time. */
static void servers_underway(void *object)
{
    (void)object;
}

static void servers_figures(const void *object, unsigned server, struct load_figures *figures)
{
    load_figures(((const struct servers *)object)->load, server, figures);
}

static void servers_forget_longest(void *object)
{
    load_forget_longest(((struct servers *)object)->load);
}

static void servers_advance(void *object, uint64_t operations)
{
    load_advance(((struct servers *)object)->load, operations);
}

static void servers_next_epoch(void *object)
{
    load_next_epoch(((struct servers *)object)->load);
}

static void servers_settle(void *object)
{
    load_wait_divided(((struct servers *)object)->load);
}

static void servers_pause(void *object)
{
    load_pause(((struct servers *)object)->load);
}

static void servers_resume(void *object)
{
    load_resume(((struct servers *)object)->load);
}

static void servers_verify(void *object)
{
    load_verify(((struct servers *)object)->load);
}

/* Its clients are measured through the figures alone. */
static void servers_calm(void *object, uint64_t patience_ns)
{
    (void)object;
}

static void servers_stop(void *object)
{
    load_stop(((struct servers *)object)->load);
    free(object);
}

const struct load_kind load_servers = {.name = "servers",
                                       .create = servers_create,
                                       .compute = servers_compute,
                                       .start = servers_start,
                                       .underway = servers_underway,
                                       .figures = servers_figures,
                                       .forget_longest = servers_forget_longest,
                                       .advance = servers_advance,
                                       .next_epoch = servers_next_epoch,
                                       .settle = servers_settle,
                                       .pause = servers_pause,
                                       .resume = servers_resume,
                                       .verify = servers_verify,
                                       .calm = servers_calm,
                                       .stop = servers_stop};
