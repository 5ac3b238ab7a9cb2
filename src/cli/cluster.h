/*
 * cluster.h - the common settings of subcommands that run processes, turned into options of the layers
 * below, and the check of addresses that would be open to the network.
 */
#ifndef CLI_CLUSTER_H
#define CLI_CLUSTER_H

#include "cli/settings.h"
#include "fabric/remote.h"
#include "fabric/verbs_options.h"
#include "net/net.h"

#define CLUSTER_ADDRESSES_MAX 64u

struct cluster_addresses {
    struct net_address list[CLUSTER_ADDRESSES_MAX];
    unsigned count;
};
/* "a,b,c", each as net_address_parse takes it; the message begins with the setting's name. NULL text: none.
 */
int cluster_addresses_parse(struct cluster_addresses *addresses, const char *setting, const char *text,
                            uint16_t default_port, struct error *error);

/* Which NIC, and how it sends: settings `rdma-device`, `rdma-port`, ... Without them the NIC is the
 * one that owns the address. */
struct cluster_rdma_settings {
    char *device, *gid;
    uint32_t port, traffic_class, service_level, timeout;
    int mtu; /* of cluster_rdma_mtus */
};
#define CLUSTER_RDMA_ROW(type, member, name, kind, field, low, high, choices, unit, help)                    \
    {                                                                                                        \
        "rdma-" name, kind, offsetof(type, member.field), low, high, choices, unit, help                     \
    }
/* Rows of a settings table over a struct that has a cluster_rdma_settings as its member `member`. */
#define CLUSTER_RDMA_ROWS(type, member)                                                                      \
    CLUSTER_RDMA_ROW(type, member, "device", OPTION_TEXT, device, 0, 0, NULL, "NAME",                        \
                     "RDMA: the NIC, as 'rdma link' names it; else the one that owns the address"),          \
        CLUSTER_RDMA_ROW(type, member, "port", OPTION_U32, port, 0, 254, NULL, "N",                          \
                         "RDMA: the NIC's port, from 1; 0: the one that owns the address"),                  \
        CLUSTER_RDMA_ROW(type, member, "gid", OPTION_TEXT, gid, 0, 0, NULL, "INDEX",                         \
                         "RDMA: index of the port's GID; else the RoCE v2 one of the address"),              \
        CLUSTER_RDMA_ROW(type, member, "mtu", OPTION_CHOICE, mtu, 0, 0, cluster_rdma_mtus,                   \
                         "auto|256|512|1024|2048|4096", "RDMA: path MTU, bytes; auto: the port's"),          \
        CLUSTER_RDMA_ROW(type, member, "traffic-class", OPTION_U32, traffic_class, 0, 255, NULL, "N",        \
                         "RDMA: of packets; RoCE v2: DSCP * 4 + ECN"),                                       \
        CLUSTER_RDMA_ROW(type, member, "service-level", OPTION_U32, service_level, 0, 15, NULL, "N",         \
                         "RDMA: of packets; RoCE: the VLAN's priority"),                                     \
        CLUSTER_RDMA_ROW(type, member, "timeout", OPTION_U32, timeout, 1, 31, NULL, "N",                     \
                         "RDMA: a packet without an answer is sent again after 4.096 us * 2^N")
#define CLUSTER_RDMA_DEFAULTS                                                                                \
    {                                                                                                        \
        .timeout = 18                                                                                        \
    }
extern const char *const cluster_rdma_mtus[];
/* The settings as options of the device, which keep pointing at `device`. BANYAN_EINVAL: the GID's index. */
int cluster_rdma_prepare(struct verbs_options *options, const struct cluster_rdma_settings *settings,
                         struct error *error);

/* How memory nodes are reached: settings `memory`, `secret-file`, `fabric-certificate`, ... */
struct cluster_fabric_settings {
    char *memory, *secret_file;
    char *certificate, *key, *authority;
    uint32_t lease_ms, timeout_ms;
    bool copy;
    struct cluster_rdma_settings rdma;
    uint32_t spin_us;
};
/* Rows of a settings table over a struct that has a cluster_fabric_settings as its member `member`. */
#define CLUSTER_FABRIC_ROWS(type, member)                                                                    \
    {"memory",                                                                                               \
     OPTION_TEXT,                                                                                            \
     offsetof(type, member.memory),                                                                          \
     0,                                                                                                      \
     0,                                                                                                      \
     NULL,                                                                                                   \
     "ADDRESS,...",                                                                                          \
     "The memory nodes: tcp://host:port, rdma://host:port or unix:/path, comma separated"},                  \
        {"secret-file",                                                                                      \
         OPTION_TEXT,                                                                                        \
         offsetof(type, member.secret_file),                                                                 \
         0,                                                                                                  \
         0,                                                                                                  \
         NULL,                                                                                               \
         "FILE",                                                                                             \
         "First line: the secret that memory nodes and compute nodes share"},                                \
        {"fabric-certificate",                                                                               \
         OPTION_TEXT,                                                                                        \
         offsetof(type, member.certificate),                                                                 \
         0,                                                                                                  \
         0,                                                                                                  \
         NULL,                                                                                               \
         "FILE",                                                                                             \
         "TLS towards memory nodes: this node's certificate (PEM)"},                                         \
        {"fabric-key", OPTION_TEXT, offsetof(type, member.key),  0, 0,                                       \
         NULL,         "FILE",      "TLS: its private key (PEM)"},                                           \
        {"fabric-authority",                                                                                 \
         OPTION_TEXT,                                                                                        \
         offsetof(type, member.authority),                                                                   \
         0,                                                                                                  \
         0,                                                                                                  \
         NULL,                                                                                               \
         "FILE",                                                                                             \
         "TLS: the authority that signs the memory nodes' certificates (PEM); turns TLS on"},                \
        {"lease",                                                                                            \
         OPTION_U32,                                                                                         \
         offsetof(type, member.lease_ms),                                                                    \
         100,                                                                                                \
         60000,                                                                                              \
         NULL,                                                                                               \
         "ms",                                                                                               \
         "A compute node that is silent for so long is fenced and loses its locks"},                         \
        {"timeout",                                                                                          \
         OPTION_U32,                                                                                         \
         offsetof(type, member.timeout_ms),                                                                  \
         100,                                                                                                \
         600000,                                                                                             \
         NULL,                                                                                               \
         "ms",                                                                                               \
         "A memory node that does not answer for so long counts as lost"},                                   \
        {"copy",                                                                                             \
         OPTION_BOOL,                                                                                        \
         offsetof(type, member.copy),                                                                        \
         0,                                                                                                  \
         0,                                                                                                  \
         NULL,                                                                                               \
         NULL,                                                                                               \
         "Over Unix sockets, send messages instead of mapping the pool"},                                    \
        CLUSTER_RDMA_ROWS(type, member.rdma),                                                                \
    {                                                                                                        \
        "rdma-spin", OPTION_U32, offsetof(type, member.spin_us), 1, 60e6, NULL, "us",                        \
            "RDMA: so long a thread that waits for a NIC polls it before it sleeps"                          \
    }
#define CLUSTER_FABRIC_DEFAULTS                                                                              \
    {                                                                                                        \
        .lease_ms = 2000, .timeout_ms = 5000, .rdma = CLUSTER_RDMA_DEFAULTS, .spin_us = 50                   \
    }

struct cluster_fabric {
    struct cluster_addresses addresses, peers;
    struct net_tls *tls, *peer_tls;
    char secret[NET_SECRET_MAX + 1];
    size_t secret_length;
    struct fabric_remote_options options; /* points into this struct */
};
/* Reads files, connects to nothing. Must be closed, also when it fails. */
int cluster_fabric_prepare(struct cluster_fabric *fabric, const struct cluster_fabric_settings *settings,
                           struct error *error);
/* After that, for a process that may own key ranges: where it answers other compute nodes (peers.h). NULL or
 * "": the backend chooses; "off": nowhere; else one address. *why (a constant): why it answers none; NULL: it
 * does. BANYAN_EINVAL: the address is none, or open to the network, or wants a certificate. */
int cluster_peers_prepare(struct cluster_fabric *fabric, const struct cluster_fabric_settings *settings,
                          const char *peers, const char **why, struct error *error);
void cluster_fabric_close(struct cluster_fabric *fabric);

/* Refuses addresses that others than this machine reach when nothing guards them: BANYAN_EINVAL says what to
 * set. */
int cluster_guard(const struct cluster_addresses *addresses, bool guarded, const char *what,
                  const char *remedy, struct error *error);
/* TLS towards memory nodes; *tls stays NULL without a certificate and an authority. BANYAN_EINVAL for a
 * certificate without an authority. */
int cluster_client_tls(struct net_tls **tls, const char *certificate, const char *key, const char *authority,
                       struct error *error);
/* TLS for servers; *tls stays NULL without a certificate. */
int cluster_server_tls(struct net_tls **tls, const char *certificate, const char *key, const char *authority,
                       bool require_peer, struct error *error);
/* Prints "banyan NAME: message" on standard error; returns the exit status: 2 for BANYAN_EINVAL, else 1. */
int cluster_failed(const char *name, const struct error *error);
extern const char *const cluster_log_levels[];

#endif
