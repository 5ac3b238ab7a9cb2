/*
 * verbs_options.h - which NIC is used and how it sends, for all code that passes such settings on. Needs
 * no libibverbs. verbs_device_open validates them; verbs_device.h (CHOICE) says what is chosen where an
 * option is 0.
 */
#ifndef FABRIC_VERBS_OPTIONS_H
#define FABRIC_VERBS_OPTIONS_H

#include <stdint.h>

/* Every field may stay 0 or NULL; then its value is chosen. */
struct verbs_options {
    const char *device;     /* its name, as `rdma link` shows it: "mlx5_0" */
    uint32_t port;          /* from 1 */
    uint32_t gid_index;     /* from 1: index + 1 */
    uint32_t mtu;           /* path MTU in bytes: 256 to 4096, a power of two; 0: the port's */
    uint32_t traffic_class; /* 0 to 255; RoCE v2: DSCP << 2 and ECN; 0: the system's */
    uint32_t service_level; /* 0 to 15 */
    uint32_t timeout;       /* a packet is sent again after 4.096 us << timeout; 1 to 31; 0: 18 (1.07 s) */
    uint32_t spin_us;       /* how long a waiting worker polls before it sleeps; 0: 50 */
};

#endif
