/*
 * verbs_mlx5_absent.c - in place of verbs_mlx5.c where this program is built without libmlx5: such NICs are
 * then driven by the plain provider, with 8-byte locks.
 */
#include "fabric/verbs_provider.h"

const struct verbs_provider *verbs_mlx5(void)
{
    return NULL;
}
