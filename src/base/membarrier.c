#include "base/membarrier.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool membarrier_register(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void membarrier_all(bool registered)
{
    if (registered)
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
    /* seq_cst: pairs with the fence of membarrier_light, where there is no such call */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
