/*
 * target.h - single commands on the mapped memory of one memory node: where an address lies, and what a
 * READ, WRITE, CAS or FAA does to it with this machine's own loads, stores and atomics.
 *
 * Used by the backends that share a process or a mapping with the memory node (local, sim). Any thread;
 * nothing here waits, allocates or fails except by BANYAN_EADDRESS. A target does not know its own number:
 * the backend checks that a command's address is of the list's node (fabric_command_of_node).
 *
 * ORDER. A WRITE and an atomic take effect after everything the calling thread did before (release); what
 * the thread does after an atomic or a READ comes after it (acquire). What is NOT ordered here is a
 * WRITE before a later READ of another word (the store may still be in the CPU's store buffer): a backend
 * that runs lists on several threads puts fabric_target_fence() between them (see local.c). A simulator
 * that runs on one thread needs none.
 */
#ifndef FABRIC_TARGET_H
#define FABRIC_TARGET_H

#include "base/atomic.h"
#include "fabric/fabric.h"

/* GCC's ThreadSanitizer does not model fences and warns at each. With it, the release stores of words (below)
 * carry the order: those it understands. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wtsan"
#endif

/* Orders the stores of earlier commands before the loads of later ones, for every observer. */
static inline void fabric_target_fence(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline bool fabric_command_of_node(const struct fabric_command *command, uint16_t node)
{
    return gaddr_node(command->address) == node;
}

/* Where the command's first byte is mapped; NULL where address, length, alignment or operation is bad. */
static inline uint8_t *fabric_target_locate(const struct fabric_target *target,
                                            const struct fabric_command *command)
{
    uint64_t offset = gaddr_offset(command->address);
    uint64_t length = command->length;
    uint64_t bytes = target->pool_bytes;
    uint8_t *region = target->pool;
    if (offset & GADDR_LOCK_REGION) {
        offset ^= GADDR_LOCK_REGION;
        bytes = target->lock_bytes;
        region = target->locks;
    }
    if (command->operation == FABRIC_CAS || command->operation == FABRIC_FAA) {
        if (offset % 8 != 0)
            return NULL;
        length = 8;
    } else if (command->operation != FABRIC_READ && command->operation != FABRIC_WRITE) {
        return NULL;
    }
    /* length - 1 wraps for 0. The sum cannot: the offset is below 2^47. */
    if (length - 1 >= FABRIC_LENGTH_MAX || offset + length > bytes || command->address == GADDR_NULL)
        return NULL;
    return region + offset;
}

static inline void fabric_target_read(const uint8_t *where, struct fabric_command *command)
{
    atomic_copy_from(command->read.buffer, where, command->length);
    command->read.data = command->read.buffer;
    /* acquire: what is read after this READ is at least as new as what it returned */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

static inline void fabric_target_write(uint8_t *where, const struct fabric_command *command)
{
    const void *data = command->write.data;
    /* An unlock is one store of its own width, so that a neighbour's lock word is not touched. Release: a
     * thread that sees it (by a CAS, which acquires) sees the commands before it. */
    if (command->length == 2 && (uintptr_t)where % 2 == 0) {
        uint16_t value;
        memcpy(&value, data, sizeof value);
        __atomic_store_n((uint16_t *)(void *)where, value, __ATOMIC_RELEASE);
    } else if (command->length == 8 && (uintptr_t)where % 8 == 0) {
        uint64_t value;
        memcpy(&value, data, sizeof value);
        __atomic_store_n((uint64_t *)(void *)where, value, __ATOMIC_RELEASE);
    } else {
        /* release: the fence orders all that came before ahead of each of the relaxed stores */
        __atomic_thread_fence(__ATOMIC_RELEASE);
        atomic_copy_to(where, data, command->length);
    }
}

/* Atomics are sequentially consistent: all threads agree on one order of all of them (G1, G3). */
static inline void fabric_target_cas(uint8_t *where, struct fabric_command *command)
{
    uint64_t *word = (uint64_t *)(void *)where;
    uint64_t compare = command->cas.compare, swap = command->cas.swap, mask = command->cas.mask;
    if (mask == UINT64_MAX) {
        __atomic_compare_exchange_n(word, &compare, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        command->cas.old = compare;
        return;
    }
    uint64_t old = __atomic_load_n(word, __ATOMIC_SEQ_CST);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    unsigned shift = mask != 0 ? (unsigned)__builtin_ctzll(mask) : 0;
    if (shift % 16 == 0 && mask >> shift == 0xffff) {
        /* One lane, one 16-bit instruction: a change of the other lanes causes no retry. The bits of `old`
         * outside the mask are those of an instant just before. */
        uint16_t lane = (uint16_t)(compare >> shift);
        __atomic_compare_exchange_n((uint16_t *)(void *)where + shift / 16, &lane, (uint16_t)(swap >> shift),
                                    false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
        command->cas.old = (old & ~mask) | (uint64_t)lane << shift;
        return;
    }
#endif
    while (((old ^ compare) & mask) == 0 &&
           !__atomic_compare_exchange_n(word, &old, (old & ~mask) | (swap & mask), true, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
        ;
    command->cas.old = old;
}

static inline void fabric_target_faa(uint8_t *where, struct fabric_command *command)
{
    command->faa.old = __atomic_fetch_add((uint64_t *)(void *)where, command->faa.add, __ATOMIC_SEQ_CST);
}

/* Checks and runs one command; a READ is copied into its buffer. 0 or BANYAN_EADDRESS (nothing was done). */
int fabric_target_execute(const struct fabric_target *target, struct fabric_command *command);

#endif
