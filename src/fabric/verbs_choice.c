/*
 * verbs_choice.c - which device and port (verbs_device.h, CHOICE), and what the message says where there is
 * none. GIDs stand in verbs_gid.c.
 *
 * Called when a device is opened. Opens every device for a moment where librdmacm cannot say which it is:
 * some milliseconds each.
 */
#include "fabric/verbs_private.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CLASSES       "/sys/class"
#define DEVICE_FOLDER "/dev/infiniband"

/* ---- lists for messages ---- */

void verbs_text_add(struct verbs_text *text, const char *word)
{
    size_t room = sizeof text->bytes - text->length, more = strlen(word) + 2;
    if (text->full)
        return;
    if (more + sizeof " ..." > room) {
        text->length += (size_t)snprintf(text->bytes + text->length, room, " ...");
        text->full = true;
        return;
    }
    text->length +=
        (size_t)snprintf(text->bytes + text->length, room, "%s%s", text->length > 0 ? ", " : "", word);
}

/* ---- no device ---- */

/* The first name in the folder that begins so; false: there is none. */
static bool entry_find(const char *folder, const char *name, const char *prefix, char found[64])
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    DIR *entries = opendir(path);
    bool seen = false;
    if (entries == NULL)
        return false;
    for (const struct dirent *entry; !seen && (entry = readdir(entries)) != NULL;)
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
            snprintf(found, 64, "%.63s", entry->d_name);
            seen = true;
        }
    closedir(entries);
    return seen;
}

/* The kernel has a device and lets programs use it, but libibverbs does not show it. */
static int not_shown(const char *devices, const char *name, struct error *error)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", devices, name);
    if (access(path, F_OK) != 0)
        return error_set(error, BANYAN_ENOTSUP,
                         "no RDMA device: the kernel has one, but %s is missing: udev makes it (package "
                         "rdma-core); a container must be given the folder /dev/infiniband",
                         path);
    return error_set(error, BANYAN_ENOTSUP,
                     "libibverbs has no driver for %s, which the kernel knows: install ibverbs-providers "
                     "(Debian) or libibverbs (Red Hat)",
                     path);
}

int verbs_absent(const char *classes, const char *devices, int reason, struct error *error)
{
    char found[64];
    if (reason != 0 && reason != ENOSYS)
        return error_set(error, reason == ENOMEM ? BANYAN_ENOMEM : BANYAN_ENOTSUP,
                         "RDMA devices cannot be listed: %s", strerror(reason));
    if (entry_find(classes, "infiniband_verbs", "abi_version", found)) {
        if (reason == ENOSYS)
            return error_set(
                error, BANYAN_ENOTSUP,
                "libibverbs and the kernel do not speak the same version: install the libibverbs "
                "(rdma-core) that belongs to this kernel or its driver package");
        if (entry_find(classes, "infiniband_verbs", "uverbs", found))
            return not_shown(devices, found, error);
    } else if (entry_find(classes, "infiniband", "", found))
        return error_set(error, BANYAN_ENOTSUP,
                         "RDMA device %s is out of reach of programs: the kernel's module ib_uverbs is not "
                         "loaded (modprobe ib_uverbs)",
                         found);
    return error_set(
        error, BANYAN_ENOTSUP,
        "no RDMA device: load the NIC's kernel driver (mlx5_ib ...), or, without a NIC: modprobe "
        "rdma_rxe; rdma link add rxe0 type rxe netdev INTERFACE");
}

/* ---- opening ---- */

/* Checked first, since libibverbs waits some seconds for a device that it may not open. */
static int permission(const struct ibv_device *device, struct error *error)
{
    char path[sizeof DEVICE_FOLDER "/" + sizeof device->dev_name];
    snprintf(path, sizeof path, DEVICE_FOLDER "/%s", device->dev_name);
    if (faccessat(AT_FDCWD, path, R_OK | W_OK, AT_EACCESS) == 0)
        return 0;
    if (errno == EACCES || errno == EPERM)
        return error_set(error, BANYAN_ENOTSUP,
                         "RDMA device %s: no permission to open %s: this user must be in the group that owns "
                         "it (ls -l), or a udev rule give it mode 0666",
                         device->name, path);
    return error_set(error, BANYAN_ENOTSUP, "RDMA device %s cannot be opened: %s: %s", device->name, path,
                     strerror(errno));
}

/* What no option can change. */
static int device_validate(struct ibv_context *context, struct ibv_device_attr *attributes,
                           struct error *error)
{
    const struct ibv_device *device = context->device;
    if (device->transport_type == IBV_TRANSPORT_IWARP)
        return error_set(error, BANYAN_ENOTSUP,
                         "RDMA device %s: iWARP has no atomics, and locks need them: use a NIC with "
                         "InfiniBand or RoCE, or tcp://",
                         device->name);
    if (device->transport_type != IBV_TRANSPORT_IB)
        return error_set(error, BANYAN_ENOTSUP,
                         "RDMA device %s: neither InfiniBand nor RoCE: use another NIC, or tcp://",
                         device->name);
    int result = ibv_query_device(context, attributes);
    if (result != 0)
        return error_set(error, BANYAN_ENET, "RDMA device %s: it does not say what it can: %s", device->name,
                         strerror(result > 0 ? result : errno));
    if (attributes->atomic_cap == IBV_ATOMIC_NONE)
        return error_set(error, BANYAN_ENOTSUP,
                         "RDMA device %s: it has no atomics, and locks need them: use another NIC, or "
                         "tcp://",
                         device->name);
    return 0;
}

static int context_open(struct ibv_device *device, struct ibv_context **context,
                        struct ibv_device_attr *attributes, struct error *error)
{
    int status = permission(device, error);
    if (status)
        return status;
    *context = ibv_open_device(device);
    if (*context == NULL)
        return error_set(error, errno == ENOMEM ? BANYAN_ENOMEM : BANYAN_ENOTSUP,
                         "RDMA device %s cannot be opened: %s", device->name, strerror(errno));
    status = device_validate(*context, attributes, error);
    if (status)
        ibv_close_device(*context);
    return status;
}

/* ---- ports ---- */

static const char *state_meaning(const struct ibv_port_attr *attributes)
{
    switch (attributes->state) {
    case IBV_PORT_DOWN:
        return "down (PORT_DOWN): no cable, or its network interface is down (ip link set INTERFACE up)";
    case IBV_PORT_INIT:
        return "waiting for a subnet manager (PORT_INIT): InfiniBand needs one, such as opensm";
    case IBV_PORT_ARMED:
        return "waiting for a subnet manager (PORT_ARMED): InfiniBand needs one, such as opensm";
    default:
        return "not in a state to carry packets";
    }
}

int verbs_port_active(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes,
                      struct error *error)
{
    const char *name = ibv_get_device_name(context->device);
    int result = ibv_query_port(context, port, attributes);
    if (result != 0)
        return error_set(error, BANYAN_EINVAL, "RDMA device %s has no port %u: --rdma-port (%s)", name,
                         (unsigned)port, strerror(result > 0 ? result : errno));
    if (attributes->state == IBV_PORT_ACTIVE || attributes->state == IBV_PORT_ACTIVE_DEFER)
        return 0;
    return error_set(error, BANYAN_ENET, "RDMA device %s: port %u is %s", name, (unsigned)port,
                     state_meaning(attributes));
}

/* ---- the choice ---- */

/* What was found among the devices that may be chosen. */
struct survey {
    const struct verbs_options *options;
    const union ibv_gid *address; /* NULL: not known */
    int owner, active;            /* places in the list, of the last active one; -1: none */
    uint8_t owner_port, active_port;
    unsigned actives; /* devices with an active port */
    struct verbs_text names;
    struct error error; /* of the first device that cannot be used */
};

/* The first port, or the one that was asked for, that is active; 0: none. */
static uint8_t port_find(struct ibv_context *context, unsigned ports, uint32_t wanted, struct error *error)
{
    struct ibv_port_attr attributes;
    if (wanted > ports) {
        error_set(error, BANYAN_EINVAL, "RDMA device %s has no port %u: --rdma-port (it has %u)",
                  ibv_get_device_name(context->device), wanted, ports);
        return 0;
    }
    for (unsigned port = wanted ? wanted : 1; port <= (wanted ? wanted : ports); port++)
        if (verbs_port_active(context, (uint8_t)port, &attributes, error) == 0)
            return (uint8_t)port;
    return 0;
}

static void survey_device(struct survey *survey, struct ibv_device **list, int place)
{
    struct ibv_context *context;
    struct ibv_device_attr attributes;
    struct error error = {0};
    int status = context_open(list[place], &context, &attributes, &error);
    uint8_t port = 0;
    if (status == 0) {
        port = port_find(context, attributes.phys_port_cnt, survey->options->port, &error);
        uint8_t owner =
            survey->address != NULL && survey->owner < 0 ? verbs_gid_owner(context, survey->address) : 0;
        if (owner > 0 && (survey->options->port == 0 || survey->options->port == owner)) {
            survey->owner = place;
            survey->owner_port = owner;
        }
        ibv_close_device(context);
    }
    if (port == 0) {
        if (survey->error.code == 0)
            survey->error = error;
        return;
    }
    verbs_text_add(&survey->names, ibv_get_device_name(list[place]));
    survey->active = place;
    survey->active_port = port;
    survey->actives++;
}

/* librdmacm's answer; false: it has none. librdmacm keeps the devices that it has opened until the process
 * ends. */
static bool manager_ask(const struct sockaddr *local, const union ibv_gid *gid, char name[64], uint8_t *port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    struct sockaddr_in four = {.sin_family = AF_INET};
    memcpy(&six.sin6_addr, gid->raw, sizeof six.sin6_addr);
    memcpy(&four.sin_addr, gid->raw + 12, sizeof four.sin_addr);
    bool mapped = IN6_IS_ADDR_V4MAPPED(&six.sin6_addr);
    if (local->sa_family == AF_INET6)
        six.sin6_scope_id = ((const struct sockaddr_in6 *)(const void *)local)->sin6_scope_id;
    /* As in permission(): librdmacm would wait for it. */
    if (faccessat(AT_FDCWD, DEVICE_FOLDER "/rdma_cm", R_OK | W_OK, AT_EACCESS) != 0)
        return false;
    struct rdma_cm_id *id;
    if (rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) != 0)
        return false;
    struct sockaddr *address = mapped ? (struct sockaddr *)(void *)&four : (struct sockaddr *)(void *)&six;
    bool known = rdma_bind_addr(id, address) == 0 && id->verbs != NULL && id->port_num > 0;
    if (known) {
        snprintf(name, 64, "%s", ibv_get_device_name(id->verbs->device));
        *port = id->port_num;
    }
    rdma_destroy_id(id);
    return known;
}

static bool wanted(const struct verbs_options *options, const char *name)
{
    return options->device == NULL || strcmp(options->device, name) == 0;
}

/* Fills the survey; from librdmacm alone if it knows the device, so that no other device is opened. */
static void survey_run(struct survey *survey, struct ibv_device **list, int count,
                       const struct sockaddr *local)
{
    char name[64];
    uint8_t port;
    if (survey->address != NULL && manager_ask(local, survey->address, name, &port) &&
        (survey->options->port == 0 || survey->options->port == port))
        for (int i = 0; i < count; i++)
            if (wanted(survey->options, name) && strcmp(ibv_get_device_name(list[i]), name) == 0) {
                survey->owner = i;
                survey->owner_port = port;
                return;
            }
    for (int i = 0; i < count; i++)
        if (wanted(survey->options, ibv_get_device_name(list[i])))
            survey_device(survey, list, i);
}

static int choose_from(struct verbs_place *place, struct ibv_device **list, int count,
                       const struct verbs_options *options, const struct sockaddr *local, struct error *error)
{
    union ibv_gid address;
    struct survey survey = {.options = options, .owner = -1, .active = -1};
    struct ibv_device_attr attributes;
    struct ibv_port_attr port;
    if (verbs_address_gid(local, &address))
        survey.address = &address;
    survey_run(&survey, list, count, local);
    if (survey.owner < 0 && survey.actives > 1)
        return error_set(error, BANYAN_EINVAL,
                         "several RDMA devices have an active port (%s), and none owns the address of the "
                         "connection: choose one with --rdma-device NAME",
                         survey.names.bytes);
    int chosen = survey.owner >= 0 ? survey.owner : survey.active;
    if (chosen < 0)
        return error_set(error, survey.error.code, "%s", survey.error.text);
    place->port = survey.owner >= 0 ? survey.owner_port : survey.active_port;
    int status = context_open(list[chosen], &place->context, &attributes, error);
    if (status == 0 && (status = verbs_port_active(place->context, place->port, &port, error)) != 0)
        ibv_close_device(place->context);
    return status;
}

static int not_there(const char *name, struct ibv_device **list, int count, struct error *error)
{
    struct verbs_text names = {0};
    for (int i = 0; i < count; i++)
        verbs_text_add(&names, ibv_get_device_name(list[i]));
    return error_set(error, BANYAN_ENOTSUP,
                     "RDMA device %.40s: there is none of that name; there are: %s "
                     "(--rdma-device)",
                     name, names.bytes);
}

int verbs_choose(struct verbs_place *place, const struct verbs_options *options, const struct sockaddr *local,
                 struct error *error)
{
    int count = 0, status;
    bool there = false;
    errno = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    if (list == NULL)
        return verbs_absent(CLASSES, DEVICE_FOLDER, errno != 0 ? errno : ENOSYS, error);
    for (int i = 0; i < count; i++)
        there = there || wanted(options, ibv_get_device_name(list[i]));
    if (count == 0)
        status = verbs_absent(CLASSES, DEVICE_FOLDER, 0, error);
    else if (!there)
        status = not_there(options->device, list, count, error);
    else
        status = choose_from(place, list, count, options, local, error);
    ibv_free_device_list(list);
    return status;
}
