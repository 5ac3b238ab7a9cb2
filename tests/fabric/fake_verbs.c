/* fake_verbs.c - see fake_verbs.h. These functions come before those of the shared libraries. */
#include "fake_verbs.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct fake_verbs fake;

/* libibverbs hides more behind a device than it shows; drivers look there. */
struct device {
    struct ibv_device shown;
    void *hidden[32];
};
static struct device devices[FAKE_DEVICES];

void fake_verbs_start(void)
{
    memset(&fake, 0, sizeof fake);
    memset(devices, 0, sizeof devices);
    fake.no_state = IBV_QPS_UNKNOWN;
}

unsigned fake_verbs_device(const char *name)
{
    unsigned place = fake.count++;
    assert(place < FAKE_DEVICES);
    fake.devices[place] = (struct fake_device){
        .name = name, .transport = IBV_TRANSPORT_IB, .atomics = IBV_ATOMIC_HCA, .ports = 1};
    for (unsigned i = 0; i < FAKE_PORTS; i++)
        fake.devices[place].port[i] = (struct ibv_port_attr){
            .state = IBV_PORT_ACTIVE,
            .active_mtu = IBV_MTU_4096,
            .gid_tbl_len = 16,
            .max_msg_sz = 1u << 30,
            .link_layer = IBV_LINK_LAYER_ETHERNET,
        };
    return place;
}

void fake_verbs_gid(unsigned device, unsigned port, unsigned index, enum ibv_gid_type type,
                    const char *address)
{
    assert(fake.gid_count < FAKE_GIDS);
    struct fake_gid *gid = &fake.gids[fake.gid_count++];
    gid->device = device;
    gid->entry = (struct ibv_gid_entry){.gid_index = index, .port_num = port, .gid_type = type};
    int status = inet_pton(AF_INET6, address, gid->entry.gid.raw);
    assert(status == 1);
    (void)status;
}

static unsigned place_of(const struct ibv_device *device)
{
    return (unsigned)((const struct device *)(const void *)device - devices);
}

/* ---- libc ---- */

int faccessat(int folder, const char *path, int mode, int flags)
{
    const char *file = "/dev/infiniband/";
    if (strncmp(path, file, strlen(file)) != 0)
        return (int)syscall(SYS_faccessat, folder, path, mode);
    fake.accesses++;
    path += strlen(file);
    if (strcmp(path, "rdma_cm") == 0) {
        errno = ENOENT;
        return fake.manager ? 0 : -1;
    }
    for (unsigned i = 0; i < fake.count; i++)
        if (strcmp(devices[i].shown.dev_name, path) == 0) {
            errno = fake.devices[i].no_access;
            return errno == 0 ? 0 : -1;
        }
    errno = ENOENT;
    return -1;
}

/* ---- libibverbs ---- */

#undef ibv_query_port
#undef ibv_reg_mr

struct ibv_device **ibv_get_device_list(int *count)
{
    errno = fake.no_list;
    if (fake.no_list != 0)
        return NULL;
    struct ibv_device **list = calloc(fake.count + 1, sizeof *list);
    if (list == NULL)
        return NULL;
    for (unsigned i = 0; i < fake.count; i++) {
        struct ibv_device *device = &devices[i].shown;
        device->transport_type = fake.devices[i].transport;
        snprintf(device->name, sizeof device->name, "%s", fake.devices[i].name);
        snprintf(device->dev_name, sizeof device->dev_name, "uverbs%u", i);
        list[i] = device;
    }
    *count = (int)fake.count;
    return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
    free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
    return device->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
    errno = fake.devices[place_of(device)].no_open;
    if (errno != 0)
        return NULL;
    struct ibv_context *context = calloc(1, sizeof *context);
    if (context == NULL)
        return NULL;
    context->device = device;
    fake.contexts++;
    fake.opened++;
    return context;
}

int ibv_close_device(struct ibv_context *context)
{
    free(context);
    fake.contexts--;
    return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attributes)
{
    const struct fake_device *device = &fake.devices[place_of(context->device)];
    memset(attributes, 0, sizeof *attributes);
    attributes->atomic_cap = device->atomics;
    attributes->phys_port_cnt = (uint8_t)device->ports;
    attributes->max_qp = 1000;
    attributes->max_qp_wr = 512;
    attributes->max_cqe = -1;
    attributes->max_qp_rd_atom = 16;
    attributes->max_qp_init_rd_atom = 300;
    attributes->max_mr = 77;
    attributes->max_mr_size = 1u << 20;
    return fake.queries++ >= device->queries ? device->no_query : 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attributes)
{
    const struct fake_device *device = &fake.devices[place_of(context->device)];
    if (port == 0 || port > device->ports)
        return EINVAL;
    memcpy(attributes, &device->port[port - 1], sizeof(struct ibv_port_attr));
    return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most,
                             uint32_t flags, size_t size)
{
    size_t count = 0;
    assert(size == sizeof *entries);
    if (fake.no_gids != 0)
        return -fake.no_gids;
    for (unsigned i = 0; i < fake.gid_count; i++)
        if (fake.gids[i].device == place_of(context->device)) {
            if (count == most)
                return -EINVAL;
            entries[count++] = fake.gids[i].entry;
        }
    return (ssize_t)count;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
    errno = fake.no_domain;
    if (errno != 0)
        return NULL;
    struct ibv_pd *domain = calloc(1, sizeof *domain);
    if (domain == NULL)
        return NULL;
    domain->context = context;
    fake.domains++;
    return domain;
}

int ibv_dealloc_pd(struct ibv_pd *domain)
{
    free(domain);
    fake.domains--;
    return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *domain, void *memory, size_t bytes, uint64_t address,
                                unsigned access)
{
    static struct ibv_mr region;
    fake.region_access = access;
    errno = fake.no_region;
    return errno == 0 ? &region : NULL;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *domain, void *memory, size_t bytes, int access)
{
    return ibv_reg_mr_iova2(domain, memory, bytes, (uintptr_t)memory, (unsigned)access);
}

int ibv_modify_qp(struct ibv_qp *queue, struct ibv_qp_attr *attributes, int mask)
{
    if (attributes->qp_state == fake.no_state) {
        errno = abs(fake.no_state_reason);
        return fake.no_state_reason < 0 ? -1 : fake.no_state_reason;
    }
    assert(fake.change_count < 3);
    fake.changes[fake.change_count] = *attributes;
    fake.masks[fake.change_count++] = mask;
    return 0;
}

/* ---- libmlx5: knows the devices that are NVIDIA's, and nothing of them ---- */

bool mlx5dv_is_supported(struct ibv_device *device)
{
    return fake.devices[place_of(device)].nvidia;
}

int mlx5dv_query_device(struct ibv_context *context, void *attributes)
{
    return EOPNOTSUPP;
}

/* ---- librdmacm ---- */

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                   enum rdma_port_space space)
{
    *id = calloc(1, sizeof **id);
    fake.manager_asked++;
    return *id != NULL ? 0 : -1;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
    if (fake.manager_device == NULL) {
        errno = ENODEV;
        return -1;
    }
    id->port_num = (uint8_t)fake.manager_port;
    for (unsigned i = 0; i < fake.count; i++)
        if (strcmp(fake.devices[i].name, fake.manager_device) == 0)
            id->verbs = ibv_open_device(&devices[i].shown);
    return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
    if (id->verbs != NULL)
        ibv_close_device(id->verbs);
    free(id);
    return 0;
}
