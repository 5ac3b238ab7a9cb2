/*
 * nic_region.c - the memory node's memory as its NIC knows it: the pool's registration, and the lock
 * region's, in host memory or in the device's own. See nic.h.
 *
 * Where the NIC is created and destroyed; nic_chip_clear also at a format, when nothing else uses the NIC.
 * Registering waits for the kernel: it pins every page.
 */
#include "memoryd/nic_state.h"

#include <errno.h>
#include <string.h>

/* At address 0 where the device can do that; else where it lies in this process. */
static int register_part(struct memoryd_nic *nic, enum nic_part part, void *memory, uint64_t bytes,
                         bool windows, struct error *error)
{
    struct nic_region *region = &nic->regions[part];
    const char *what = part == NIC_POOL ? "the pool" : "the lock region";
    unsigned access = IBV_ACCESS_LOCAL_WRITE | (windows ? (unsigned)IBV_ACCESS_MW_BIND : NIC_REMOTE);
    *region = (struct nic_region){.bytes = bytes, .windowed = windows};
    region->registration = ibv_reg_mr_iova(nic->device->domain, memory, bytes, 0, access);
    if (region->registration != NULL)
        return BANYAN_OK;
    region->address = (uintptr_t)memory;
    return verbs_memory_register(nic->device, memory, bytes, (int)access, what, &region->registration, error);
}

int nic_chip_clear(struct memoryd_nic *nic, struct error *error)
{
    static const uint8_t zeros[4096];
    for (uint64_t at = 0; at < nic->target->lock_bytes; at += sizeof zeros) {
        uint64_t left = nic->target->lock_bytes - at;
        int failed = ibv_memcpy_to_dm(nic->chip, at, zeros, left < sizeof zeros ? left : sizeof zeros);
        if (failed != 0)
            return error_set(error, BANYAN_ENET, "%s: its device memory cannot be written: %s",
                             nic->device->name, strerror(failed < 0 ? -failed : failed));
    }
    return BANYAN_OK;
}

/* Windows cannot be bound to device memory: compute nodes get its registration's own key. */
static int register_chip(struct memoryd_nic *nic, struct error *error)
{
    struct ibv_alloc_dm_attr wanted = {.length = nic->target->lock_bytes};
    nic->chip = ibv_alloc_dm(nic->device->context, &wanted);
    if (nic->chip == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s gives none of its device memory (%llu bytes wanted): %s",
                         nic->device->name, (unsigned long long)wanted.length, strerror(errno));
    int status = nic_chip_clear(nic, error);
    if (status)
        return status;
    struct nic_region *region = &nic->regions[NIC_LOCKS];
    *region = (struct nic_region){.bytes = wanted.length};
    region->registration = ibv_reg_dm_mr(nic->device->domain, nic->chip, 0, wanted.length,
                                         IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE | NIC_REMOTE);
    if (region->registration == NULL)
        return error_set(error, BANYAN_ENOMEM, "%s: its device memory cannot be registered: %s",
                         nic->device->name, strerror(errno));
    return BANYAN_OK;
}

int nic_regions_register(struct memoryd_nic *nic, bool chip, bool windows, struct error *error)
{
    const struct fabric_target *target = nic->target;
    int status = register_part(nic, NIC_POOL, target->pool, target->pool_bytes, windows, error);
    if (status)
        return status;
    return chip ? register_chip(nic, error)
                : register_part(nic, NIC_LOCKS, target->locks, target->lock_bytes, windows, error);
}

void nic_regions_release(struct memoryd_nic *nic)
{
    for (unsigned part = 0; part < NIC_PARTS; part++) {
        if (nic->regions[part].registration != NULL)
            ibv_dereg_mr(nic->regions[part].registration);
        nic->regions[part] = (struct nic_region){0};
    }
    if (nic->chip != NULL)
        ibv_free_dm(nic->chip);
    nic->chip = NULL;
}
