/*
 * fiber.h - stackful coroutines: the context switch alone, no scheduler.
 * Own switch for x86-64 and AArch64, mmap'ed stacks with a guard page below, annotations for
 * AddressSanitizer and ThreadSanitizer. A fiber runs on the thread that resumes it.
 */
#ifndef BASE_FIBER_H
#define BASE_FIBER_H

#include <stdbool.h>
#include <stddef.h>

struct fiber;
typedef void fiber_function(void *argument);

/* NULL when memory is short. stack_bytes is rounded up to pages; 0 means 64 KiB (256 KiB sanitized). */
struct fiber *fiber_create(fiber_function *function, void *argument, size_t stack_bytes);
/* Runs the fiber until it suspends or returns; true while it can be resumed again. */
bool fiber_resume(struct fiber *fiber);
/* Goes back to the resumer of the calling fiber. */
void fiber_suspend(void);
/* The running fiber of this thread, NULL outside of one. */
struct fiber *fiber_current(void);
/* A fiber that has not returned may be destroyed too: its stack is dropped, and nothing on it runs any more.
 */
void fiber_destroy(struct fiber *fiber);

#endif
