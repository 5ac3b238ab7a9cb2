/*
 * verbs_gid.c - the table of GIDs of a device's ports: which port has an address, and which GID packets leave
 * with (verbs_device.h, CHOICE).
 *
 * Called when a device is chosen and opened. Reads the table with one call of the system.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/verbs_private.h"

#define GID_INDEX_MAX 255u /* struct ibv_global_route has a byte for it, and tables may be longer */

const char *verbs_gid_text(const uint8_t gid[16], char text[VERBS_GID_TEXT_BYTES])
{
    return inet_ntop(AF_INET6, gid, text, VERBS_GID_TEXT_BYTES);
}

bool verbs_address_gid(const struct sockaddr *address, union ibv_gid *gid)
{
    struct in6_addr six = {0};
    if (address == NULL)
        return false;
    if (address->sa_family == AF_INET) {
        six.s6_addr[10] = six.s6_addr[11] = 0xff;
        memcpy(six.s6_addr + 12, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6)
        six = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    else
        return false;
    if (IN6_IS_ADDR_UNSPECIFIED(&six) || IN6_IS_ADDR_LOOPBACK(&six))
        return false;
    const uint8_t none[4] = {0};
    if (IN6_IS_ADDR_V4MAPPED(&six) && (six.s6_addr[12] == 127 || memcmp(six.s6_addr + 12, none, 4) == 0))
        return false;
    memcpy(gid->raw, six.s6_addr, sizeof gid->raw);
    return true;
}

struct gids {
    struct ibv_gid_entry *entries; /* of all ports, those in use alone */
    size_t count;
};

static int gids_read(struct ibv_context *context, struct gids *gids, struct error *error)
{
    const char *name = ibv_get_device_name(context->device);
    struct ibv_device_attr attributes;
    size_t most = 0;
    *gids = (struct gids){0};
    if (ibv_query_device(context, &attributes) == 0)
        for (unsigned port = 1; port <= attributes.phys_port_cnt; port++) {
            struct ibv_port_attr of_port;
            if (ibv_query_port(context, (uint8_t)port, &of_port) == 0 && of_port.gid_tbl_len > 0)
                most += (size_t)of_port.gid_tbl_len;
        }
    gids->entries = calloc(most > 0 ? most : 1, sizeof *gids->entries);
    if (gids->entries == NULL)
        return error_set(error, BANYAN_ENOMEM, "RDMA device %s: no memory for its table of GIDs", name);
    ssize_t count = ibv_query_gid_table(context, gids->entries, most, 0);
    if (count >= 0) {
        gids->count = (size_t)count;
        return 0;
    }
    free(gids->entries);
    gids->entries = NULL;
    return error_set(error, BANYAN_ENET, "RDMA device %s: its table of GIDs cannot be read: %s", name,
                     strerror((int)-count));
}

static bool gid_is(const struct ibv_gid_entry *entry, unsigned port, const union ibv_gid *gid)
{
    return entry->port_num == port && memcmp(entry->gid.raw, gid->raw, sizeof gid->raw) == 0;
}

uint8_t verbs_gid_owner(struct ibv_context *context, const union ibv_gid *gid)
{
    struct gids gids;
    uint8_t owner = 0;
    if (gids_read(context, &gids, NULL))
        return 0;
    for (size_t i = 0; i < gids.count && owner == 0; i++)
        if (gid_is(&gids.entries[i], gids.entries[i].port_num, gid))
            owner = (uint8_t)gids.entries[i].port_num;
    free(gids.entries);
    return owner;
}

/* Higher is better; 0: cannot be used. Both ends choose the same version if both have RoCE v2. */
static unsigned gid_worth(const struct ibv_gid_entry *entry, unsigned port, const union ibv_gid *address)
{
    struct in6_addr six;
    memcpy(six.s6_addr, entry->gid.raw, sizeof six.s6_addr);
    if (entry->port_num != port || entry->gid_type == IBV_GID_TYPE_IB || entry->gid_index > GID_INDEX_MAX)
        return 0;
    unsigned version = entry->gid_type == IBV_GID_TYPE_ROCE_V2 ? 10 : 0;
    if (address != NULL && gid_is(entry, port, address))
        return version + 4;
    if (IN6_IS_ADDR_V4MAPPED(&six))
        return version + 3;
    return version + (IN6_IS_ADDR_LINKLOCAL(&six) ? 1 : 2);
}

static int gid_take(struct verbs_device *device, const struct ibv_gid_entry *entry)
{
    device->gid_index = (int)entry->gid_index;
    memcpy(device->gid, entry->gid.raw, sizeof device->gid);
    return 0;
}

/* --rdma-gid: it must be there. */
static int gid_by_index(struct verbs_device *device, const struct gids *gids, int length, struct error *error)
{
    struct verbs_text there = {0};
    uint32_t wanted = device->options.gid_index - 1;
    for (size_t i = 0; i < gids->count; i++) {
        char number[16];
        if (gids->entries[i].port_num != device->port || gids->entries[i].gid_index > GID_INDEX_MAX)
            continue;
        if (gids->entries[i].gid_index == wanted)
            return gid_take(device, &gids->entries[i]);
        snprintf(number, sizeof number, "%u", gids->entries[i].gid_index);
        verbs_text_add(&there, number);
    }
    return error_set(error, BANYAN_EINVAL,
                     "RDMA device %s: port %u has no GID at index %u (of %d, used: %s): --rdma-gid must name "
                     "one that `ibv_devinfo -v` or `show_gids` shows",
                     device->name, (unsigned)device->port, wanted, length,
                     there.length ? there.bytes : "none");
}

static int gid_by_worth(struct verbs_device *device, const struct gids *gids, const struct sockaddr *local,
                        struct error *error)
{
    const struct ibv_gid_entry *best = NULL;
    unsigned most = 0;
    union ibv_gid address;
    bool known = verbs_address_gid(local, &address);
    for (size_t i = 0; i < gids->count; i++) {
        unsigned worth = gid_worth(&gids->entries[i], device->port, known ? &address : NULL);
        if (worth > most) {
            most = worth;
            best = &gids->entries[i];
        }
    }
    if (best != NULL)
        return gid_take(device, best);
    return error_set(error, BANYAN_ENET,
                     "RDMA device %s: port %u has no GID: give its network interface an address "
                     "(ip address add)",
                     device->name, (unsigned)device->port);
}

int verbs_gid_choose(struct verbs_device *device, const struct ibv_port_attr *attributes,
                     const struct sockaddr *local, struct error *error)
{
    struct gids gids;
    int status = gids_read(device->context, &gids, error);
    if (status)
        return status;
    if (device->options.gid_index == 0 && !device->ethernet)
        device->options.gid_index = 1;
    if (device->options.gid_index > 0)
        status = gid_by_index(device, &gids, attributes->gid_tbl_len, error);
    else
        status = gid_by_worth(device, &gids, local, error);
    free(gids.entries);
    return status;
}
