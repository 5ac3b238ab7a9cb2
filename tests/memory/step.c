/* step.c - see step.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "step.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomic.h"
#include "kept.h"
#include "memory/node.h"

struct step_shared *step_shared;

void step_set_up(void)
{
    step_shared = mmap(NULL, sizeof *step_shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(step_shared, MAP_FAILED);
}

void step_tear_down(void)
{
    munmap(step_shared, sizeof *step_shared);
}

/* ---- children ---- */

pid_t step_child(void (*run)(void *), void *context)
{
    memset(step_shared, 0, sizeof *step_shared);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        run(context);
        _exit(0);
    }
    return child;
}

void step_kill(pid_t child)
{
    int status;
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
}

void step_trace(void)
{
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
}

void step_begin(void)
{
    atomic_store_release(&step_shared->ready, 1u);
    raise(SIGSTOP);
}

void step_end(void)
{
    atomic_store_release(&step_shared->done, 1u);
    for (;;)
        pause();
}

/* ---- their file ---- */

struct step_watch step_watch_begin(const char *name)
{
    struct stat status;
    int descriptor = open(kept_path(name), O_RDONLY | O_CLOEXEC);
    assert_true(descriptor >= 0);
    assert_int_equal(fstat(descriptor, &status), 0);
    struct step_watch watch = {.bytes = (size_t)status.st_size};
    void *file = mmap(NULL, watch.bytes, PROT_READ, MAP_SHARED, descriptor, 0);
    assert_ptr_not_equal(file, MAP_FAILED);
    close(descriptor);
    watch.file = file;
    watch.seen = malloc(watch.bytes);
    assert_non_null(watch.seen);
    memcpy(watch.seen, watch.file, watch.bytes);
    return watch;
}

void step_watch_end(struct step_watch *watch)
{
    munmap((void *)(uintptr_t)watch->file, watch->bytes);
    free(watch->seen);
}

bool step_watch_changed(struct step_watch *watch)
{
    static struct keep_layout layout;
    static const struct keep_sizes sizes = {KEPT_POOL, KEPT_CHUNK, KEPT_LOCKS, MEMORY_LOG_BYTES_LEAST, 2};
    bool changed = false;
    keep_layout(&layout, &sizes);
    for (enum keep_place place = 0; place < KEEP_PLACES; place++) {
        size_t at = layout.at[place], most = place == KEEP_STAGING ? 8192
                                             : place == KEEP_POOL  ? 262144
                                                                   : 4096;
        size_t end = place + 1 < KEEP_PLACES ? layout.at[place + 1] : layout.bytes;
        size_t length = end - at < most ? end - at : most;
        if (memcmp(watch->file + at, watch->seen + at, length) == 0)
            continue;
        memcpy(watch->seen + at, watch->file + at, length);
        changed = true;
    }
    return changed;
}

bool step_once(pid_t child)
{
    int status;
    if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0)
        return false;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSTOPPED(status));
    return true;
}

void step_through(const char *name, void (*run)(void *), void *context,
                  void (*judge)(void *context, struct step_watch *watch))
{
    int status;
    pid_t child = step_child(run, context);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status) || !atomic_load_acquire(&step_shared->ready))
        fail_msg("the child did not begin: %x", status);
    struct step_watch watch = step_watch_begin(name);
    judge(context, &watch);
    while (!atomic_load_acquire(&step_shared->done)) {
        if (!step_once(child)) {
            step_kill(child);
            step_watch_end(&watch);
            skip();
        }
        watch.steps++;
        if (step_watch_changed(&watch)) {
            watch.changes++;
            judge(context, &watch);
        }
    }
    judge(context, &watch);
    print_message("  %llu instructions, %llu changes of the file\n", (unsigned long long)watch.steps,
                  (unsigned long long)watch.changes);
    step_kill(child);
    step_watch_end(&watch);
}
