/* machine.h - what this machine has, and warnings where a setting asks for more. Any thread. */
#ifndef CLI_MACHINE_H
#define CLI_MACHINE_H

#include <stdint.h>

/* Bytes of memory that this process may use: the machine's, or what its control group allows if that is less.
 */
uint64_t machine_memory(void);
/* Warns (log) if memory nodes of so many bytes together do not fit, or so many threads (0: one for each CPU)
 * are more than there are CPUs; says what will happen. */
void machine_warn_pool(uint64_t bytes);
void machine_warn_threads(uint32_t threads);

#endif
