/*
 * process.h - the real `banyan` as processes, for tests: a scene is a temporary folder and the processes that
 * run in it, started from its one thread.
 *
 * A process is ready when it has announced itself on standard output. Standard error of each goes to a file
 * of the scene; scene_close() shows the files' ends when the test did not pass. Processes die with the thread
 * that started them (PR_SET_PDEATHSIG), whatever happens to the test, and scene_close() kills what still
 * runs. The program is $BANYAN_PROGRAM. What should never fail aborts the test program with a message.
 */
#ifndef TESTS_CLUSTER_PROCESS_H
#define TESTS_CLUSTER_PROCESS_H

#include <hiredis/hiredis.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "net/net.h"

#define SCENE_PROCESSES_MAX 32u
#define SCENE_PATH_MAX      96u

struct process {
    const char *name;    /* names its standard error's file: the same after a restart */
    const char *program; /* NULL: banyan */
    pid_t pid;           /* 0: does not run */
    int output;          /* the pipe from its standard output */
    int code;            /* after its end: exit status, or 128 + signal */
    char said[2048];     /* on standard output until it was ready */
};
struct scene {
    char folder[64];
    struct process processes[SCENE_PROCESSES_MAX];
    unsigned count;
    const char *environment[8]; /* "BANYAN_NAME=value", for what is started next; NULL ends */
    bool passed;
};
struct process_result {
    int code;
    char output[65536], error[16384]; /* with a terminating 0, cut to this */
};

void scene_open(struct scene *scene);
void scene_close(struct scene *scene);
/* A directory with all that is in it. */
void process_remove_folder(const char *folder);
/* For cmocka: each test has a scene of its own, in *state. */
int scene_set_up(void **state);
int scene_tear_down(void **state);
/* "FOLDER/name" in one of a few rotating buffers of the thread. */
const char *scene_path(const struct scene *scene, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A file of the scene, readable for its owner alone; returns its path. */
const char *scene_write(const struct scene *scene, const char *name, const char *text);
/* Text in a rotating buffer. */
const char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})
/* Starts `banyan arguments...` and waits until it is ready. `name` is static. Aborts the test if it ends
 * before. A `compute` without --lease gets one of 20 s. */
struct process *process_start(struct scene *scene, const char *name, const char *const *arguments);
/* Another program, which is ready when it has written a line. */
struct process *process_start_other(struct scene *scene, const char *name, const char *program,
                                    const char *const *arguments);
/* One that announces nothing, and ends by itself: does not wait. For process_spawn again after its end. */
void process_spawn(struct scene *scene, struct process *process, const char *const *arguments);
struct process *process_place(struct scene *scene, const char *name);
/* The same again, in the same place, after its end. */
void process_restart(struct scene *scene, struct process *process, const char *const *arguments);
/* The same, but returns false, and the process has ended, if it does so before it is ready. */
bool process_try(struct scene *scene, struct process *process, const char *const *arguments);
/* Runs to its end. program NULL: banyan. */
void process_run(struct scene *scene, const char *program, const char *const *arguments,
                 struct process_result *result);
/* The number-th address that it announced; aborts if there is none. */
struct net_address process_address(const struct process *process, unsigned number);
/* "host:port" of its status page. */
const char *process_http(const struct process *process);
void process_signal(const struct process *process, int signal);
/* Waits for the end, at most 60 seconds; returns its code. */
int process_wait(struct process *process);
int process_kill(struct process *process); /* SIGKILL */
int process_stop(struct process *process); /* SIGTERM */
/* True if it has ended; does not wait. */
bool process_ended(struct process *process);
/* The whole of the process's standard error so far; the caller frees it. */
char *process_errors(const struct scene *scene, const struct process *process);

/* A connection to a server; aborts if there is none within 10 s. Replies may take 60 s. */
redisContext *client_connect(const struct net_address *address);
/* One attempt: NULL if no server is there. */
redisContext *client_try(const struct net_address *address);
/* One HTTP GET; the whole answer, headers included; the caller frees it. */
char *http_get(const char *host_port, const char *path, const char *header);

/* Waits until condition(context), at most 60 s; else aborts with `what`. */
void wait_until(bool (*condition)(void *context), void *context, const char *what);
uint64_t now_ns(void);
_Noreturn void fail_hard(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
