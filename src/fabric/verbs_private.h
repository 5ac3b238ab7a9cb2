/*
 * verbs_private.h - what verbs_device.c, verbs_choice.c, verbs_gid.c, verbs_pair.c and their tests share. All
 * other files use verbs_device.h.
 *
 * All of it waits for the kernel; any thread.
 */
#ifndef FABRIC_VERBS_PRIVATE_H
#define FABRIC_VERBS_PRIVATE_H

#include "fabric/verbs_device.h"

/* A port of an opened device. */
struct verbs_place {
    struct ibv_context *context; /* the caller's to close */
    uint8_t port;
};
/* See CHOICE in verbs_device.h. The options have been validated. */
int verbs_choose(struct verbs_place *place, const struct verbs_options *options, const struct sockaddr *local,
                 struct error *error);
/* 0 and the port's attributes if it can carry packets now; else BANYAN_ENET or BANYAN_EINVAL (no such port).
 */
int verbs_port_active(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attributes,
                      struct error *error);
/* The GID of the port that packets leave with; `local` as in verbs_device_open. */
int verbs_gid_choose(struct verbs_device *device, const struct ibv_port_attr *attributes,
                     const struct sockaddr *local, struct error *error);
/* The GID that an address has where it stands in a port's table. False: an address of no port (loopback, a
 * wildcard, NULL, a Unix socket's). */
bool verbs_address_gid(const struct sockaddr *address, union ibv_gid *gid);
/* The first port of the device that has this GID; 0: none. */
uint8_t verbs_gid_owner(struct ibv_context *context, const union ibv_gid *gid);
/* Why libibverbs finds no device: `classes` is /sys/class and `devices` /dev/infiniband (tests have others),
 * `reason` the errno of ibv_get_device_list, 0 if its list was empty. Returns BANYAN_ENOTSUP, or
 * BANYAN_ENOMEM for ENOMEM. */
int verbs_absent(const char *classes, const char *devices, int reason, struct error *error);

/* As `ibv_devinfo -v` writes it: an IPv6 address. Returns text. */
#define VERBS_GID_TEXT_BYTES 46
const char *verbs_gid_text(const uint8_t gid[16], char text[VERBS_GID_TEXT_BYTES]);

/* A list for messages: "rxe0, rxe1 ...", as far as there is room. */
struct verbs_text {
    char bytes[56];
    size_t length;
    bool full;
};
void verbs_text_add(struct verbs_text *text, const char *word);

#endif
