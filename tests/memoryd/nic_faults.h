/*
 * nic_faults.h - makes the machine's NIC look as if it could do more, or less: verbs_device_open of the
 * memory node (not that of the test's own clients) passes through here. Link with the --wrap arguments of
 * meson.build.
 */
#ifndef TESTS_MEMORY_NIC_FAULTS_H
#define TESTS_MEMORY_NIC_FAULTS_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

struct nic_faults {
    bool no_windows;      /* it says that it has none */
    bool broken_windows;  /* it says so, and gives none */
    bool chip;            /* it has device memory: `chip_memory` */
    uint64_t chip_bytes;  /* not 0: so much of it */
    bool promises;        /* its maker promises that a WRITE beside CASes is safe */
    bool broken_chip;     /* it says so, and gives none */
    bool half_proof;      /* of the first list of four requests only the first is run, and all seem done */
    bool events;          /* events are those of nic_faults_event */
    uint32_t queues;      /* not 0: so many queue pairs, it says */
    uint32_t delay_ms;    /* each connection of a queue pair takes so long */
    uint32_t connections; /* so many connections of queue pairs fail, UINT32_MAX: all; counts down */
};
/* Of the next devices that are opened with time-outs of the default: the memory node's. */
extern struct nic_faults nic_faults;
/* The device memory that was handed out last; NULL: none. */
uint8_t *nic_faults_chip(void);
/* The next event of the last such device; until it was acknowledged. */
void nic_faults_event(enum ibv_event_type type, struct ibv_qp *queue);
void nic_faults_wait_acknowledged(void);

#endif
