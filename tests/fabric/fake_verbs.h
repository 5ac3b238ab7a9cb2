/*
 * fake_verbs.h - devices with RDMA of every kind: stands in for libibverbs, librdmacm and the
 * permissions under /dev/infiniband, for tests of verbs_device.c and its neighbours. A test describes the
 * devices, what librdmacm says and what fails; what was asked for is kept. Opened contexts and domains are
 * counted.
 *
 * One at a time; fake_verbs_start makes it empty.
 */
#ifndef TESTS_FABRIC_FAKE_VERBS_H
#define TESTS_FABRIC_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#define FAKE_DEVICES 20u
#define FAKE_PORTS   2u
#define FAKE_GIDS    64u

struct fake_device {
    const char *name;
    enum ibv_transport_type transport;
    enum ibv_atomic_cap atomics;
    int no_access;    /* errno of access to its file */
    int no_open;      /* errno of ibv_open_device */
    int no_query;     /* errno of ibv_query_device ... */
    unsigned queries; /* ... after so many that went well */
    bool nvidia;
    unsigned ports;
    struct ibv_port_attr port[FAKE_PORTS];
};

struct fake_verbs {
    int no_list; /* errno of ibv_get_device_list */
    unsigned count;
    struct fake_device devices[FAKE_DEVICES];

    struct fake_gid {
        unsigned device;
        struct ibv_gid_entry entry;
    } gids[FAKE_GIDS];
    unsigned gid_count;
    int no_gids; /* errno of the table */

    bool manager;               /* /dev/infiniband/rdma_cm is there */
    const char *manager_device; /* what it says; NULL: it does not know */
    unsigned manager_port;

    int no_domain, no_region; /* errno */
    /* ibv_modify_qp to this state fails so; negative: as older libraries do, -1 and errno */
    enum ibv_qp_state no_state;
    int no_state_reason;

    /* what was seen */
    unsigned contexts, domains; /* open now */
    unsigned opened, queries;   /* ever */
    unsigned manager_asked, accesses;
    unsigned region_access;
    struct ibv_qp_attr changes[3]; /* INIT, RTR, RTS */
    int masks[3];
    unsigned change_count;
};
extern struct fake_verbs fake;

void fake_verbs_start(void);
/* One more, RoCE with one active port of 4,096 bytes a packet; its place in `devices`. */
unsigned fake_verbs_device(const char *name);
/* One more in a device's table: an address as text, of the type. */
void fake_verbs_gid(unsigned device, unsigned port, unsigned index, enum ibv_gid_type type,
                    const char *address);

#endif
