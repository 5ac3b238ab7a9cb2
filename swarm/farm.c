/* farm.c - see farm.h. */
#include "swarm/farm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 256u
#define LOOK_MS  50 /* how often bounds are looked at */

const char *swarm_end_name(enum swarm_end end)
{
    static const char *const names[] = {"ok", "FAILED", "CRASHED", "TOO LONG", "TOO MUCH MEMORY"};
    return names[end];
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* ---- one process ---- */

struct job {
    pid_t process; /* 0: none */
    int result;    /* pipe: the end of it is the end of the process */
    int words;     /* its standard error: a file in memory */
    double begun;
    size_t got;
    struct swarm_outcome outcome;
};

static void job_child(const struct swarm_farm *farm, uint64_t seed, int result_pipe, int words)
{
    struct swarm_plan plan;
    struct swarm_result result = {0};
    struct error error;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    dup2(words, STDERR_FILENO);
    int status = farm->plan(farm->context, seed, &plan, &error);
    if (status) {
        result.status = status;
        snprintf(result.what, sizeof result.what, "%s", error.text);
    } else {
        swarm_run(&plan, farm->watch, &result);
        swarm_plan_free(&plan);
    }
    fflush(stderr);
    if (write(result_pipe, &result, sizeof result) != (ssize_t)sizeof result)
        _exit(3);
    _exit(0);
}

static int job_start(struct job *job, const struct swarm_farm *farm, uint64_t seed, struct error *error)
{
    int ends[2] = {-1, -1};
    *job = (struct job){
        .outcome = {.seed = seed}, .begun = seconds_now(), .words = memfd_create("words", MFD_CLOEXEC)};
    if (job->words >= 0 && pipe2(ends, O_CLOEXEC) == 0) {
        fflush(NULL);
        job->process = fork();
        if (job->process == 0)
            job_child(farm, seed, ends[1], job->words);
        close(ends[1]);
        job->result = ends[0];
        if (job->process > 0)
            return 0;
        close(ends[0]);
    }
    int why = errno;
    if (job->words >= 0)
        close(job->words);
    job->process = 0;
    return error_set(error, BANYAN_ENOMEM, "seed %" PRIu64 ": no process for it: %s", seed, strerror(why));
}

/* One line of printable ASCII: the process may have written anything, and the text goes to terminals and into
 * JSON. */
static void make_plain(char *text)
{
    for (char *at = text; *at; at++)
        if (*at == '\n' || *at == '\t')
            *at = ' ';
        else if (*at < ' ' || *at > '~')
            *at = '?';
}

/* The last words. */
static void job_words(struct job *job)
{
    char *words = job->outcome.words;
    off_t length = lseek(job->words, 0, SEEK_END), room = (off_t)sizeof job->outcome.words - 1;
    ssize_t got = pread(job->words, words, (size_t)room, length > room ? length - room : 0);
    words[got > 0 ? got : 0] = 0;
    make_plain(words);
}

static void too_much_memory(struct job *job, uint64_t bytes)
{
    job->outcome.end = SWARM_MEMORY;
    snprintf(job->outcome.result.what, sizeof job->outcome.result.what, "stopped at %" PRIu64 " MB",
             bytes >> 20);
}

static void job_finish(struct job *job, const struct swarm_farm *farm)
{
    int status = 0;
    struct rusage usage = {0};
    while (wait4(job->process, &status, 0, &usage) < 0 && errno == EINTR)
        ;
    struct swarm_outcome *outcome = &job->outcome;
    outcome->seconds = seconds_now() - job->begun;
    job_words(job);
    close(job->result);
    close(job->words);
    job->process = 0;
    if (outcome->end == SWARM_TIMEOUT || outcome->end == SWARM_MEMORY)
        return;
    uint64_t most = (uint64_t)usage.ru_maxrss << 10;
    if (most > farm->bytes_max) { /* the memory was taken and freed between two looks */
        too_much_memory(job, most);
        return;
    }
    if (job->got == sizeof outcome->result) {
        outcome->result.what[sizeof outcome->result.what - 1] = 0;
        make_plain(outcome->result.what);
        outcome->end = outcome->result.status ? SWARM_FAILED : SWARM_SOUND;
        return;
    }
    memset(&outcome->result, 0, sizeof outcome->result);
    outcome->end = SWARM_CRASHED;
    if (WIFSIGNALED(status))
        snprintf(outcome->result.what, sizeof outcome->result.what, "%s", strsignal(WTERMSIG(status)));
    else
        snprintf(outcome->result.what, sizeof outcome->result.what, "exit status %d", WEXITSTATUS(status));
}

static uint64_t resident_bytes(pid_t process)
{
    char path[40], text[80] = "";
    unsigned long long resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)process);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (!fgets(text, sizeof text, file) || sscanf(text, "%*s %llu", &resident) != 1)
        resident = 0;
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Ends a process that goes beyond its bounds. */
static void job_bound(struct job *job, const struct swarm_farm *farm)
{
    struct swarm_outcome *outcome = &job->outcome;
    uint64_t resident = resident_bytes(job->process);
    if (seconds_now() - job->begun > farm->seconds_max) {
        outcome->end = SWARM_TIMEOUT;
        snprintf(outcome->result.what, sizeof outcome->result.what, "stopped after %.0f s",
                 farm->seconds_max);
    } else if (resident > farm->bytes_max) {
        too_much_memory(job, resident);
    } else {
        return;
    }
    kill(job->process, SIGKILL);
}

/* Reads the part of its result that has come; true at the end of the process. */
static bool job_read(struct job *job)
{
    char *bytes = (char *)&job->outcome.result;
    char beyond;
    size_t room = sizeof job->outcome.result - job->got;
    bool bounded = job->outcome.end == SWARM_TIMEOUT || job->outcome.end == SWARM_MEMORY;
    ssize_t got =
        room && !bounded ? read(job->result, bytes + job->got, room) : read(job->result, &beyond, 1);
    if (got > 0 && room && !bounded)
        job->got += (size_t)got;
    return got == 0 || (got < 0 && errno != EINTR);
}

/* ---- many ---- */

static volatile sig_atomic_t interrupted; /* set by a signal handler: it can reach nothing else */

static void interrupt(int number)
{
    interrupted = 1;
}

struct farm_run {
    const struct swarm_farm *farm;
    struct job jobs[JOBS_MAX];
    unsigned under_way;
    uint64_t next;
    bool stopped, ended;
    double deadline;
};

static int start_some(struct farm_run *run, struct error *error)
{
    const struct swarm_farm *farm = run->farm;
    for (unsigned i = 0; i < farm->jobs && !run->stopped && !run->ended; i++) {
        if (run->jobs[i].process)
            continue;
        if (interrupted || (farm->minutes > 0 && seconds_now() > run->deadline)) {
            run->stopped = true;
            return 0;
        }
        int status = job_start(&run->jobs[i], farm, run->next, error);
        if (status)
            return status;
        run->under_way++;
        run->ended = run->next++ == farm->to;
    }
    return 0;
}

static void conclude(struct farm_run *run, struct job *job)
{
    job_finish(job, run->farm);
    run->under_way--;
    bool more = interrupted || run->farm->report(run->farm->context, &job->outcome);
    if (!more || (run->farm->fail_fast && job->outcome.end != SWARM_SOUND))
        run->stopped = true;
}

static void wait_some(struct farm_run *run)
{
    struct pollfd polls[JOBS_MAX];
    unsigned owners[JOBS_MAX] = {0}, count = 0;
    for (unsigned i = 0; i < run->farm->jobs; i++)
        if (run->jobs[i].process) {
            owners[count] = i;
            polls[count++] = (struct pollfd){.fd = run->jobs[i].result, .events = POLLIN};
        }
    int ready = poll(polls, count, LOOK_MS);
    for (unsigned i = 0; i < count; i++) {
        struct job *job = &run->jobs[owners[i]];
        if (interrupted)
            kill(job->process, SIGKILL);
        if (ready > 0 && polls[i].revents && job_read(job))
            conclude(run, job);
        else
            job_bound(job, run->farm);
    }
}

int swarm_farm_run(const struct swarm_farm *farm, struct error *error)
{
    if (farm->jobs < 1 || farm->jobs > JOBS_MAX)
        return error_set(error, BANYAN_EINVAL, "jobs: %u, must be 1 to %u", farm->jobs, JOBS_MAX);
    struct farm_run *run = calloc(1, sizeof *run);
    if (!run)
        return error_set(error, BANYAN_ENOMEM, "no memory for the jobs");
    *run =
        (struct farm_run){.farm = farm, .next = farm->from, .deadline = seconds_now() + farm->minutes * 60};
    struct sigaction action = {.sa_handler = interrupt}, old_interrupt, old_terminate;
    interrupted = 0;
    sigaction(SIGINT, &action, &old_interrupt);
    sigaction(SIGTERM, &action, &old_terminate);
    int status = 0;
    do {
        int started = start_some(run, error);
        if (started) { /* the runs under way are waited for; the first failure is reported */
            status = started;
            run->stopped = true;
        }
        if (run->under_way)
            wait_some(run);
    } while (run->under_way || !(run->stopped || run->ended));
    sigaction(SIGINT, &old_interrupt, NULL);
    sigaction(SIGTERM, &old_terminate, NULL);
    free(run);
    if (!status && interrupted)
        status = error_set(error, BANYAN_EABORT, "interrupted");
    return status;
}

struct one {
    const struct swarm_plan *plan;
    struct swarm_outcome *outcome;
};

static int one_plan(void *context, uint64_t seed, struct swarm_plan *plan, struct error *error)
{
    const struct one *one = context;
    return swarm_plan_copy(plan, one->plan, error);
}

static bool one_report(void *context, const struct swarm_outcome *outcome)
{
    const struct one *one = context;
    *one->outcome = *outcome;
    return false;
}

int swarm_farm_one(const struct swarm_plan *plan, const struct swarm_watch *watch, double seconds_max,
                   uint64_t bytes_max, struct swarm_outcome *outcome, struct error *error)
{
    struct one one = {plan, outcome};
    const struct swarm_farm farm = {.from = plan->seed,
                                    .to = plan->seed,
                                    .jobs = 1,
                                    .seconds_max = seconds_max,
                                    .bytes_max = bytes_max,
                                    .watch = watch,
                                    .plan = one_plan,
                                    .report = one_report,
                                    .context = &one};
    return swarm_farm_run(&farm, error);
}
