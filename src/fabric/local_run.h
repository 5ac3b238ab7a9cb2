/*
 * local_run.h - runs a whole list at once on memory that is mapped here. For the local backend and the remote
 * one's mapped pools; and its WRITE for the daemon of a pool in a file. Any thread; some nanoseconds a
 * command; nothing waits or is allocated.
 *
 * STAGING (G5 where the memory outlives the process; wire.h). A WRITE of up to WIRE_STAGING_DATA bytes that
 * is more than one store is put down in the endpoint's staging area first. A killed process has done all
 * instructions before some point and none after it, so the memory node finds one of these:
 *  - before the mark is set: no byte is in its place, and the WRITE has not happened;
 *  - marked: offset, length and bytes were complete before (release), and the memory node copies them. What
 * the process had copied already is copied again, the same. No other compute node has written there in
 * between: the place is under a lock of this one, whose release stands behind the WRITE in the list, and the
 * memory node finishes what is marked before it frees locks;
 *  - the mark is cleared: every byte is in its place (release), and the area is not looked at. The next
 *    WRITE's offset and bytes are put down behind a fence, so that they are never seen under this mark.
 */
#ifndef FABRIC_LOCAL_RUN_H
#define FABRIC_LOCAL_RUN_H

#include "fabric/target.h"
#include "fabric/wire.h"

#if defined(__x86_64__)
#define LOCAL_ATOMICS_ARE_FENCES true /* a locked instruction drains the store buffer */
#else
#define LOCAL_ATOMICS_ARE_FENCES                                                                             \
    false /* later loads may be satisfied before the atomic's own store is seen */
#endif

/* What a list of one or two commands costs here, beyond the bytes of its WRITEs: 11 to 19 ns were measured on
 * an x86-64 server CPU. An estimate for code that chooses between a round trip and local work. */
#define LOCAL_ROUND_TRIP_NS 15u

/* Prefetches what a list will read or lock, so that the CPU's cache misses overlap. Of a READ with another
 * one behind it (an index's header before its bucket) the first two cache lines are enough. */
static inline void local_prefetch(const struct fabric_target *target, const struct fabric_list *list)
{
    uint32_t last = list->count < 4 ? list->count : 4u;
    for (uint32_t i = 0; i < last; i++) {
        const struct fabric_command *command = &list->commands[i];
        uint64_t offset = gaddr_offset(command->address);
        /* Not checked: a prefetch of any address cannot fault. */
        if (command->operation == FABRIC_READ && !(offset & GADDR_LOCK_REGION)) {
            uintptr_t at = (uintptr_t)target->pool + offset;
            uint32_t most = i + 1 < last ? 128 : 512;
            uint32_t length = command->length < most ? command->length : most;
            for (uintptr_t line = at & ~(uintptr_t)63; line < at + length; line += 64)
                __builtin_prefetch((const void *)line);
        } else if (command->operation == FABRIC_CAS) {
            const uint8_t *region = offset & GADDR_LOCK_REGION ? target->locks : target->pool;
            __builtin_prefetch((const void *)((uintptr_t)region + (offset & ~GADDR_LOCK_REGION)), 1);
        } else {
            return; /* a write-back, whose place has just been read */
        }
    }
}

static inline void local_write_staged(uint8_t *where, const struct fabric_command *command,
                                      struct wire_staging *staging)
{
    /* release: the last mark was cleared before anything of this WRITE is put down */
    __atomic_thread_fence(__ATOMIC_RELEASE);
    staging->offset = gaddr_offset(command->address);
    staging->length = command->length;
    memcpy(staging->data, command->write.data, command->length);
    /* release: what is marked is complete */
    atomic_store_release(&staging->marked, WIRE_STAGED);
    fabric_target_write(where, command); /* begins with a release fence: behind the mark */
    /* release: the bytes are in their place before the mark goes */
    atomic_store_release(&staging->marked, 0u);
}

/* Whether fabric_target_write does it by one store, which cannot be cut. */
static inline bool local_one_store(const uint8_t *where, uint32_t length)
{
    return length - 1u < 8 && (length & (length - 1)) == 0 && (uintptr_t)where % length == 0; /* 0 wraps */
}

/* staging: NULL where the memory dies with the process. */
static inline void local_write(uint8_t *where, const struct fabric_command *command,
                               struct wire_staging *staging)
{
    if (staging != NULL && command->length <= WIRE_STAGING_DATA && !local_one_store(where, command->length))
        local_write_staged(where, command, staging);
    else
        fabric_target_write(where, command);
}

/* Whether a single list is worth a local_prefetch: it begins with an atomic, which waits for its memory. */
static inline bool local_waits(const struct fabric_list *list)
{
    return list->count > 1 && list->commands[0].operation == FABRIC_CAS;
}

static inline int local_run(const struct fabric_target *target, struct fabric_list *list,
                            struct wire_staging *staging)
{
    /* Whether a store of this list may not yet be seen by all. A READ or atomic that follows must not be
     * answered before it is (G1), nor may the list complete (G4). */
    bool pending = false;
    int status = BANYAN_OK;

    for (uint32_t i = 0; i < list->count; i++) {
        struct fabric_command *command = &list->commands[i];
        uint8_t *where = fabric_target_locate(target, command);
        if (__builtin_expect(where == NULL || !fabric_command_of_node(command, list->node), 0)) {
            status = BANYAN_EADDRESS;
            break;
        }
        if (command->operation == FABRIC_WRITE) {
            local_write(where, command, staging);
            pending = true;
            continue;
        }
        if (pending)
            fabric_target_fence();
        pending = false;
        if (command->operation == FABRIC_READ) {
            command->read.data = where;
            continue;
        }
        if (command->operation == FABRIC_CAS)
            fabric_target_cas(where, command);
        else
            fabric_target_faa(where, command);
        pending = !LOCAL_ATOMICS_ARE_FENCES;
    }
    if (pending)
        fabric_target_fence();
    list->status = status;
    return status;
}

#endif
