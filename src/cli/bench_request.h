/*
 * bench_request.h - a command line of `banyan bench`, as a plan and the places for its reports. Plain thread.
 */
#ifndef CLI_BENCH_REQUEST_H
#define CLI_BENCH_REQUEST_H

#include <stdio.h>

#include "bench/paper.h"
#include "bench/plan.h"
#include "bench/sensitivity.h"
#include "bench/testbed.h"
#include "cli/cluster.h"

/* Of a number that no option has given. */
#define BENCH_UNSET UINT64_MAX

struct switch_setting {
    const char *name, *value;
};

struct bench_request {
    struct bench_plan plan;
    uint64_t memory_nodes, compute_nodes, threads, fibers, keys, operations, warm_up;
    const char *json, *report;
    bool quiet, sensitive;
    struct sensitivity sensitivity; /* --sensitivity; released by bench_request_free */
    const char *of, *only;          /* --only: parameters, or the paper's figures; NULL: all */
    uint64_t jobs;
    const struct paper *paper;     /* NULL: none */
    const struct testbed *testbed; /* NULL: none */
    const char *sim[32];           /* --sim, in order: set over the testbed's */
    unsigned sim_count;
    bool fabric_given;
    struct cluster_addresses addresses; /* --memory */
    char secret[NET_SECRET_MAX + 1];
    const char *certificate, *key, *authority; /* --fabric-certificate, ... */
    struct net_tls *tls;                       /* owned; NULL: none */
    struct cluster_rdma_settings rdma;
    uint32_t spin_us;
    struct switch_setting settings[64];
    unsigned setting_count;
};

/* Fills a request of zeroes. Prints --help, --list and the like, and ends the process; a command line that
 * makes no sense ends it too, with COMMAND_USAGE and a message that names the option. */
void bench_request_read(struct bench_request *request, int argc, char **argv);
/* Frees all that the request owns, and wipes the secret. */
void bench_request_free(struct bench_request *request);

/* bench.c: opens the file of a report (NULL: none is wanted) and closes it; an exit status, with a message.
 */
int bench_output_open(const char *name, FILE **file);
int bench_output_close(const char *name, FILE *file);
/* Puts them into their files before the table is printed: its reader may leave early, and SIGPIPE ends us. */
void bench_output_keep(FILE *json, FILE *html);
/* bench_sensitivity.c: checks and completes the request for --sensitivity, after the plan's defaults and
 * before its check; runs it and writes the reports. */
int bench_sensitivity_complete(struct bench_request *request, struct error *error);
int bench_sensitivity_run(struct bench_request *request);

/* bench_lists.c: --list; a table's rows with the values that the object has. */
void bench_list_names(void);
void bench_list_table(const struct option_entry *table, const void *object);

#endif
