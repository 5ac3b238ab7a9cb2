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
#include <sys/user.h>
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

/* ---- instructions ---- */

#if defined(__x86_64__)
/* Of an instruction with an operand that is a register or memory: it writes to that one. */
static bool writes_operand(uint8_t opcode, uint8_t operand)
{
    const unsigned which = operand >> 3 & 7;
    if (opcode >= 0x80 && opcode <= 0x83) /* arithmetic with a constant; 7: a comparison */
        return which != 7;
    if (opcode == 0xf6 || opcode == 0xf7) /* 0: a test of bits */
        return which != 0;
    return opcode != 0x38 && opcode != 0x39; /* comparisons */
}

static bool long_opcode_may_store(const uint8_t *code)
{
    const uint8_t opcode = code[0];
    const bool sets = opcode >= 0x90 && opcode <= 0x9f; /* a byte, by a condition */
    const bool loads = opcode == 0xaf || opcode == 0xb6 || opcode == 0xb7 || opcode == 0xbe || opcode == 0xbf;
    const bool jumps = opcode >= 0x80 && opcode <= 0x8f, moves = opcode >= 0x40 && opcode <= 0x4f;
    return sets ? code[1] < 0xc0 : !loads && !jumps && !moves;
}

/* False only of an instruction that is known to write to registers and the stack alone. What stands here are
 * the usual ones; all others count as stores. The child is a fork, so its code lies here at the same address.
 */
static bool may_store(const uint8_t *code)
{
    if (*code == 0x66) /* 16 bits wide */
        code++;
    if (*code >= 0x40 && *code <= 0x4f) /* 64 bits wide, or the upper registers */
        code++;
    const uint8_t opcode = *code++;
    if (opcode == 0x0f)
        return long_opcode_may_store(code);
    if (opcode < 0x40 && (opcode & 7) >= 2) /* arithmetic: 2 to 5 write to a register; 6 and 7 are others */
        return (opcode & 7) >= 6;
    if (opcode < 0x40 || (opcode >= 0x80 && opcode <= 0x83) || opcode == 0x88 || opcode == 0x89 ||
        opcode == 0xc0 || opcode == 0xc1 || (opcode >= 0xd0 && opcode <= 0xd3) || opcode == 0xf6 ||
        opcode == 0xf7)
        return *code < 0xc0 && writes_operand(opcode, *code); /* from 0xc0 on the operand is a register */
    const bool stack = opcode >= 0x50 && opcode <= 0x5f;
    const bool jumps = (opcode >= 0x70 && opcode <= 0x7f) || opcode == 0xc3 || opcode == 0xe8 ||
                       opcode == 0xe9 || opcode == 0xeb;
    const bool tests = opcode == 0x84 || opcode == 0x85 || opcode == 0xa8 || opcode == 0xa9;
    const bool loads = opcode == 0x63 || opcode == 0x69 || opcode == 0x6b || opcode == 0x8a ||
                       opcode == 0x8b || opcode == 0x8d || opcode == 0x90 ||
                       (opcode >= 0xb0 && opcode <= 0xbf);
    return !stack && !jumps && !tests && !loads;
}

bool step_may_store(pid_t child)
{
    long at = ptrace(PTRACE_PEEKUSER, child, offsetof(struct user, regs.rip), NULL);
    return at == -1 || may_store((const uint8_t *)(uintptr_t)at);
}
#else
bool step_may_store(pid_t child)
{
    (void)child;
    return true;
}
#endif

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
        const bool stores = step_may_store(child);
        if (!step_once(child)) {
            step_kill(child);
            step_watch_end(&watch);
            skip();
        }
        watch.steps++;
        if (stores && step_watch_changed(&watch)) {
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
