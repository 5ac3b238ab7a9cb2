/* target.c - the out-of-line forms of what target.h does; see there. */
#include "fabric/target.h"

int fabric_target_execute(const struct fabric_target *target, struct fabric_command *command)
{
    uint8_t *where = fabric_target_locate(target, command);
    if (where == NULL)
        return BANYAN_EADDRESS;
    switch (command->operation) {
    case FABRIC_READ:
        fabric_target_read(where, command);
        break;
    case FABRIC_WRITE:
        fabric_target_write(where, command);
        break;
    case FABRIC_CAS:
        fabric_target_cas(where, command);
        break;
    case FABRIC_FAA:
        fabric_target_faa(where, command);
        break;
    }
    return BANYAN_OK;
}

int fabric_bounds_check(const struct fabric_target *target, const struct fabric_command *command)
{
    return fabric_target_locate(target, command) != NULL ? BANYAN_OK : BANYAN_EADDRESS;
}
