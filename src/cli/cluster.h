/*
 * cluster.h - what the subcommands of running processes share: their settings' common parts, turned into
 * options of the layers below, and the checks of what may be served to whom.
 */
#ifndef CLI_CLUSTER_H
#define CLI_CLUSTER_H

#include "cli/settings.h"
#include "fabric/remote.h"
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

/* How memory nodes are reached: settings `memory`, `secret-file`, `fabric-certificate`, ... */
struct cluster_fabric_settings {
    char *memory, *secret_file;
    char *certificate, *key, *authority;
    uint32_t lease_ms, timeout_ms;
    bool copy;
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
     "The memory nodes: tcp://host:port or unix:/path, comma separated"},                                    \
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
         "TLS: who signs the memory nodes' certificates (PEM); turns TLS on"},                               \
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
    {                                                                                                        \
        "copy", OPTION_BOOL, offsetof(type, member.copy), 0, 0, NULL, NULL,                                  \
            "Over Unix sockets, send messages instead of mapping the pool"                                   \
    }
#define CLUSTER_FABRIC_DEFAULTS                                                                              \
    {                                                                                                        \
        .lease_ms = 2000, .timeout_ms = 5000                                                                 \
    }

struct cluster_fabric {
    struct cluster_addresses addresses;
    struct net_tls *tls;
    char secret[NET_SECRET_MAX + 1];
    size_t secret_length;
    struct fabric_remote_options options; /* points into this struct */
};
/* Reads files, connects to nothing. Must be closed, also when it fails. */
int cluster_fabric_prepare(struct cluster_fabric *fabric, const struct cluster_fabric_settings *settings,
                           struct error *error);
void cluster_fabric_close(struct cluster_fabric *fabric);

/* Refuses addresses that others than this machine reach when nothing guards them: BANYAN_EINVAL says what to
 * set. */
int cluster_guard(const struct cluster_addresses *addresses, bool guarded, const char *what,
                  const char *remedy, struct error *error);
/* TLS for servers; *tls stays NULL without a certificate. */
int cluster_server_tls(struct net_tls **tls, const char *certificate, const char *key, const char *authority,
                       bool require_peer, struct error *error);
/* Prints "banyan NAME: message" on standard error; returns the exit status: 2 for BANYAN_EINVAL, else 1. */
int cluster_failed(const char *name, const struct error *error);
extern const char *const cluster_log_levels[];

#endif
