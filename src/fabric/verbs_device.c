/*
 * verbs_device.c - opening a NIC, its limits, and its memory registrations; see verbs_device.h.
 * Which one it is stands in verbs_choice.c and verbs_gid.c, queue pairs in verbs_pair.c.
 *
 * FORK. ibv_fork_init is not called: no program of ours forks, and it would cost an madvise(MADV_DONTFORK)
 * for every registration, which splits mappings and takes whatever shares a page with it from the child. A
 * program that uses the library and forks needs Linux 5.12, which copies pinned pages for the child at once,
 * so that the parent's stay where the NIC looks; or RDMAV_FORK_SAFE=1 (docs/rdma.md).
 */
#include "fabric/verbs_device.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "fabric/verbs_private.h"

#define TIMEOUT_DEFAULT 18u /* 1.07 s: less sends packets twice where a peer is slow to answer */
#define SPIN_US_DEFAULT 50u

/* ---- options ---- */

static int options_validate(const struct verbs_options *options, struct error *error)
{
    uint32_t mtu = options->mtu;
    if (options->port > 254)
        return error_set(error, BANYAN_EINVAL, "RDMA: port %u: --rdma-port is 1 to 254", options->port);
    if (mtu != 0 && (mtu < 256 || mtu > 4096 || (mtu & (mtu - 1)) != 0))
        return error_set(error, BANYAN_EINVAL,
                         "RDMA: an MTU of %u bytes: --rdma-mtu is 256, 512, 1024, 2048 or 4096", mtu);
    if (options->traffic_class > 255)
        return error_set(error, BANYAN_EINVAL, "RDMA: traffic class %u: --rdma-traffic-class is 0 to 255",
                         options->traffic_class);
    if (options->service_level > 15)
        return error_set(error, BANYAN_EINVAL, "RDMA: service level %u: --rdma-service-level is 0 to 15",
                         options->service_level);
    if (options->timeout > 31)
        return error_set(error, BANYAN_EINVAL, "RDMA: timeout %u: --rdma-timeout is 1 to 31",
                         options->timeout);
    return 0;
}

uint32_t verbs_mtu_bytes(enum ibv_mtu mtu)
{
    return 128u << (unsigned)mtu;
}

static int mtu_choose(struct verbs_device *device, const struct ibv_port_attr *port, struct error *error)
{
    device->mtu = port->active_mtu;
    if (device->options.mtu == 0)
        return 0;
    if (device->options.mtu > verbs_mtu_bytes(port->active_mtu))
        return error_set(error, BANYAN_EINVAL,
                         "RDMA device %s: port %u has an MTU of at most %u bytes, not %u: lower --rdma-mtu, "
                         "or raise the MTU of its network interface and of the switches (4200 for 4096)",
                         device->name, (unsigned)device->port, verbs_mtu_bytes(port->active_mtu),
                         device->options.mtu);
    while (verbs_mtu_bytes(device->mtu) > device->options.mtu)
        device->mtu = (enum ibv_mtu)(device->mtu - 1);
    return 0;
}

/* ---- what it can do ---- */

/* The kernel's are ints, and -1 where there is no limit. */
static uint32_t limit(int value)
{
    return value < 0 ? UINT32_MAX : (uint32_t)value;
}

/* struct wire_nic has a byte for it. */
static uint32_t limit_byte(int value)
{
    return limit(value) < 255 ? limit(value) : 255;
}

static int limits_read(struct verbs_device *device, const struct ibv_port_attr *port, struct error *error)
{
    struct ibv_device_attr_ex extended = {0};
    int result = ibv_query_device_ex(device->context, NULL, &extended);
    if (result != 0)
        return error_set(error, BANYAN_ENET, "RDMA device %s: it does not say what it can: %s", device->name,
                         strerror(result > 0 ? result : errno));
    const struct ibv_device_attr *attributes = &extended.orig_attr;
    device->limits = (struct verbs_limits){
        .queues = limit(attributes->max_qp),
        .works = limit(attributes->max_qp_wr),
        .completions = limit(attributes->max_cqe),
        .reads_taken = limit_byte(attributes->max_qp_rd_atom),
        .reads_begun = limit_byte(attributes->max_qp_init_rd_atom),
        .message = port->max_msg_sz,
        .memory = attributes->max_mr_size,
    };
    return 0;
}

static const struct verbs_provider *provider_choose(struct ibv_context *context)
{
    const struct verbs_provider *maker = verbs_mlx5();
    return maker != NULL && maker->knows(context->device) ? maker : &verbs_plain;
}

/* ---- opening and closing ---- */

static int device_fill(struct verbs_device *device, const struct sockaddr *local, struct error *error)
{
    struct ibv_port_attr port;
    int status = verbs_port_active(device->context, device->port, &port, error);
    if (status)
        return status;
    snprintf(device->name, sizeof device->name, "%s", ibv_get_device_name(device->context->device));
    device->ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
    device->lid = device->ethernet ? 0 : port.lid;
    status = limits_read(device, &port, error);
    if (status == 0)
        status = mtu_choose(device, &port, error);
    if (status == 0)
        status = verbs_gid_choose(device, &port, local, error);
    if (status)
        return status;
    device->provider = provider_choose(device->context);
    device->provider->features(device->context, &device->features);
    device->domain = ibv_alloc_pd(device->context);
    if (device->domain == NULL)
        return error_set(error, BANYAN_ENOMEM,
                         "RDMA device %s: no protection domain to be had (%s): other programs use them all, "
                         "or a cgroup's rdma.max forbids it",
                         device->name, strerror(errno));
    return 0;
}

int verbs_device_open(struct verbs_device **device, const struct verbs_options *options,
                      const struct sockaddr *local, struct error *error)
{
    struct verbs_options none = {0};
    struct verbs_place place;
    *device = NULL;
    if (options == NULL)
        options = &none;
    int status = options_validate(options, error);
    if (status == 0)
        status = verbs_choose(&place, options, local, error);
    if (status)
        return status;
    struct verbs_device *made = calloc(1, sizeof *made);
    if (made == NULL) {
        ibv_close_device(place.context);
        return error_set(error, BANYAN_ENOMEM, "RDMA: no memory for a device");
    }
    made->context = place.context;
    made->port = place.port;
    made->options = *options;
    made->options.device = NULL;
    if (made->options.timeout == 0)
        made->options.timeout = TIMEOUT_DEFAULT;
    if (made->options.spin_us == 0)
        made->options.spin_us = SPIN_US_DEFAULT;
    status = device_fill(made, local, error);
    if (status)
        verbs_device_close(made);
    else
        *device = made;
    return status;
}

void verbs_device_close(struct verbs_device *device)
{
    if (device == NULL)
        return;
    if (device->domain != NULL)
        ibv_dealloc_pd(device->domain);
    ibv_close_device(device->context);
    free(device);
}

/* ---- memory ---- */

/* What the kernel counts against RLIMIT_MEMLOCK. */
struct locked {
    uint64_t limit, used; /* bytes */
    bool exempt;          /* the kernel does not look at the limit */
};

/* CAP_IPC_LOCK exempts in the first user namespace alone; a container's root may have it and not be exempt.
 */
static bool namespace_is_first(void)
{
    unsigned inside = 1, outside = 1, count = 0;
    FILE *file = fopen("/proc/self/uid_map", "re");
    if (file == NULL)
        return true;
    bool first = fscanf(file, "%u %u %u", &inside, &outside, &count) == 3 && inside == 0 && outside == 0 &&
                 count == UINT32_MAX;
    fclose(file);
    return first;
}

static void locked_read(struct locked *locked)
{
    struct rlimit limits;
    uint64_t capabilities = 0, kilobytes = 0;
    char line[128];
    *locked = (struct locked){.limit = UINT64_MAX};
    if (getrlimit(RLIMIT_MEMLOCK, &limits) == 0 && limits.rlim_cur != RLIM_INFINITY)
        locked->limit = limits.rlim_cur;
    FILE *file = fopen("/proc/self/status", "re");
    if (file == NULL)
        return;
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "VmPin: %" SCNu64, &kilobytes) == 1)
            locked->used = kilobytes * 1024;
        else if (sscanf(line, "CapEff: %" SCNx64, &capabilities) == 1)
            locked->exempt = (capabilities >> 14 & 1) != 0; /* CAP_IPC_LOCK */
    }
    fclose(file);
    locked->exempt = locked->exempt && namespace_is_first();
}

static int registration_failed(const struct verbs_device *device, uint64_t bytes, const char *what,
                               int reason, struct error *error)
{
    struct locked locked;
    struct ibv_device_attr attributes;
    locked_read(&locked);
    if (!locked.exempt && (reason == EPERM || (reason == ENOMEM &&
                                               (bytes > locked.limit || locked.used > locked.limit - bytes))))
        return error_set(error, BANYAN_ENOMEM,
                         "%.40s: RDMA must lock %" PRIu64 " bytes in memory, the limit is %" PRIu64
                         " (%" PRIu64
                         " in use): raise it (ulimit -l, /etc/security/limits.d, systemd's LimitMEMLOCK=)",
                         what, bytes, locked.limit, locked.used);
    if (reason == EFAULT)
        return error_set(error, BANYAN_ENOMEM,
                         "%.40s: RDMA cannot lock %" PRIu64 " bytes: they are not all there (no huge pages "
                         "left: vm.nr_hugepages; or no room in /dev/shm's file system)",
                         what, bytes);
    if ((reason == ENOMEM || reason == ENOSPC) && ibv_query_device(device->context, &attributes) == 0)
        return error_set(error, BANYAN_ENOMEM,
                         "%.40s: RDMA device %s cannot register %" PRIu64 " bytes: the system has no memory "
                         "left, or all of its %d memory regions are in use",
                         what, device->name, bytes, attributes.max_mr);
    return error_set(error, BANYAN_EINVAL, "%.40s: RDMA device %s does not register %" PRIu64 " bytes: %s",
                     what, device->name, bytes, strerror(reason));
}

int verbs_memory_register(const struct verbs_device *device, void *memory, uint64_t bytes, int access,
                          const char *what, struct ibv_mr **region, struct error *error)
{
    *region = NULL;
    if (bytes > device->limits.memory)
        return error_set(error, BANYAN_EINVAL,
                         "%.40s: RDMA device %s registers at most %" PRIu64 " bytes at once, not %" PRIu64
                         ": make it smaller",
                         what, device->name, device->limits.memory, bytes);
    *region = ibv_reg_mr(device->domain, memory, bytes, (unsigned)(access & ~IBV_ACCESS_ON_DEMAND));
    return *region != NULL ? 0 : registration_failed(device, bytes, what, errno, error);
}
