#include "base/fiber.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif

#ifdef WITH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/lsan_interface.h>
#endif
#ifdef WITH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

struct fiber {
    void *stack_pointer;    /* while suspended */
    void *resumer_pointer;  /* of its resumer, while it runs */
    struct fiber *previous; /* running when it was resumed */
    uint8_t *mapping;       /* guard page, then the stack */
    size_t mapping_bytes, guard_bytes;
    fiber_function *function;
    void *argument;
    bool returned;
#ifdef WITH_ASAN
    bool abandoned; /* resumed for the last time, to give back its fake stack */
    void *fake_stack;
    const void *resumer_bottom;
    size_t resumer_bytes;
#endif
#ifdef WITH_TSAN
    void *tsan_self, *tsan_resumer;
#endif
};

/* A fiber stays on the thread that runs it, so the address of this may be cached across a switch. */
static _Thread_local struct fiber *running;

/*
 * fiber_switch(save, load): pushes what a callee must preserve, stores the stack pointer to *save, takes
 * `load` for the new one, pops the same from there and returns there.
 */
void fiber_switch(void **save, void *load) __asm__("banyan_fiber_switch")
    __attribute__((visibility("hidden")));

#if defined(__x86_64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".type banyan_fiber_switch,@function\n"
        ".hidden banyan_fiber_switch\n"
        ".globl banyan_fiber_switch\n"
        "banyan_fiber_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    subq $8, %rsp\n"
        "    stmxcsr (%rsp)\n"
        "    fnstcw 4(%rsp)\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    ldmxcsr (%rsp)\n"
        "    fldcw 4(%rsp)\n"
        "    addq $8, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size banyan_fiber_switch,.-banyan_fiber_switch\n");

static void *first_frame(uint8_t *top, void (*entry)(void))
{
    uint64_t *words = (uint64_t *)(void *)top;
    *--words = 0; /* entry's return address: it never returns */
    *--words = (uint64_t)(uintptr_t)entry;
    for (int i = 0; i < 6; i++)
        *--words = 0;
    uint32_t control = 0;
    uint16_t x87 = 0;
    __asm__ volatile("stmxcsr %0" : "=m"(control));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    *--words = control | (uint64_t)x87 << 32;
    return words;
}

#elif defined(__aarch64__)
__asm__(".text\n"
        ".p2align 4\n"
        ".type banyan_fiber_switch,%function\n"
        ".hidden banyan_fiber_switch\n"
        ".globl banyan_fiber_switch\n"
        "banyan_fiber_switch:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp, #0]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    mov sp, x1\n"
        "    ldp x19, x20, [sp, #0]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    ret\n"
        ".size banyan_fiber_switch,.-banyan_fiber_switch\n");

static void *first_frame(uint8_t *top, void (*entry)(void))
{
    uint64_t *words = (uint64_t *)(void *)(top - 160);
    memset(words, 0, 160);
    words[11] = (uint64_t)(uintptr_t)entry; /* x30: where ret goes */
    return words;
}
#else
#error "fibers know x86-64 and AArch64"
#endif

/* ---- sanitizers ---------------------------------------------------------------------------------- */

/* ThreadSanitizer keeps a call stack per fiber: a function that it sees entered before a switch and left
 * after it would be taken off the wrong one. So these become part of the function that switches. */
#define IN_SWITCHER static inline __attribute__((always_inline)) void

IN_SWITCHER leave_resumer(struct fiber *fiber, void **fake_stack)
{
    (void)fiber, (void)fake_stack;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(fake_stack, fiber->mapping + fiber->guard_bytes,
                                   fiber->mapping_bytes - fiber->guard_bytes);
#endif
#ifdef WITH_TSAN
    fiber->tsan_resumer = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber->tsan_self, 0);
#endif
}

IN_SWITCHER back_in_resumer(void *fake_stack)
{
    (void)fake_stack;
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(fake_stack, NULL, NULL);
#endif
}

IN_SWITCHER leave_fiber(struct fiber *fiber, bool for_ever)
{
    (void)fiber, (void)for_ever;
#ifdef WITH_ASAN
    __sanitizer_start_switch_fiber(for_ever ? NULL : &fiber->fake_stack, fiber->resumer_bottom,
                                   fiber->resumer_bytes);
#endif
#ifdef WITH_TSAN
    __tsan_switch_to_fiber(fiber->tsan_resumer, 0);
#endif
}

IN_SWITCHER in_fiber(struct fiber *fiber, bool first)
{
    (void)fiber, (void)first;
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(first ? NULL : fiber->fake_stack, &fiber->resumer_bottom,
                                    &fiber->resumer_bytes);
    if (fiber->abandoned) {
        leave_fiber(fiber, true);
        fiber_switch(&fiber->stack_pointer, fiber->resumer_pointer);
    }
#endif
}

/* ---- fibers -------------------------------------------------------------------------------------- */

static void fiber_entry(void)
{
    struct fiber *fiber = running;
    in_fiber(fiber, true);
    fiber->function(fiber->argument);
    fiber->returned = true;
    leave_fiber(fiber, true);
    fiber_switch(&fiber->stack_pointer, fiber->resumer_pointer);
    abort(); /* a fiber that has returned was resumed */
}

#if defined(WITH_ASAN) || defined(WITH_TSAN)
#define STACK_DEFAULT ((size_t)256 << 10)
#else
#define STACK_DEFAULT ((size_t)64 << 10)
#endif

struct fiber *fiber_create(fiber_function *function, void *argument, size_t stack_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct fiber *fiber = calloc(1, sizeof *fiber);
    if (!fiber)
        return NULL;
    stack_bytes = stack_bytes ? stack_bytes : STACK_DEFAULT;
    fiber->guard_bytes = page;
    fiber->mapping_bytes = (stack_bytes + page - 1) / page * page + page;
    fiber->mapping = mmap(NULL, fiber->mapping_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (fiber->mapping == MAP_FAILED) {
        free(fiber);
        return NULL;
    }
    if (mprotect(fiber->mapping, page, PROT_NONE)) {
        munmap(fiber->mapping, fiber->mapping_bytes);
        free(fiber);
        return NULL;
    }
    fiber->function = function;
    fiber->argument = argument;
    fiber->stack_pointer = first_frame(fiber->mapping + fiber->mapping_bytes, fiber_entry);
#ifdef WITH_ASAN
    /* Memory that only a suspended fiber's stack refers to has not leaked. */
    __lsan_register_root_region(fiber->mapping + fiber->guard_bytes,
                                fiber->mapping_bytes - fiber->guard_bytes);
#endif
#ifdef WITH_TSAN
    fiber->tsan_self = __tsan_create_fiber(0);
#endif
    return fiber;
}

bool fiber_resume(struct fiber *fiber)
{
    void *fake_stack = NULL;
    assert(!fiber->returned && fiber != running);
    fiber->previous = running;
    running = fiber;
    leave_resumer(fiber, &fake_stack);
    fiber_switch(&fiber->resumer_pointer, fiber->stack_pointer);
    back_in_resumer(fake_stack);
    running = fiber->previous;
    return !fiber->returned;
}

void fiber_suspend(void)
{
    struct fiber *fiber = running;
    assert(fiber);
    leave_fiber(fiber, false);
    fiber_switch(&fiber->stack_pointer, fiber->resumer_pointer);
    in_fiber(fiber, false);
}

struct fiber *fiber_current(void)
{
    return running;
}

void fiber_destroy(struct fiber *fiber)
{
    if (!fiber)
        return;
    assert(fiber != running);
#ifdef WITH_ASAN
    /* Only the fiber itself can give its fake stack back, so it runs once more, straight to its end. */
    if (!fiber->returned) {
        fiber->abandoned = true;
        fiber_resume(fiber);
    }
    __lsan_unregister_root_region(fiber->mapping + fiber->guard_bytes,
                                  fiber->mapping_bytes - fiber->guard_bytes);
    /* The next mapping at this address must not find parts of it poisoned. */
    __asan_unpoison_memory_region(fiber->mapping + fiber->guard_bytes,
                                  fiber->mapping_bytes - fiber->guard_bytes);
#endif
#ifdef WITH_TSAN
    __tsan_destroy_fiber(fiber->tsan_self);
#endif
    munmap(fiber->mapping, fiber->mapping_bytes);
    free(fiber);
}
