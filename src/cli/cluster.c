#include "cli/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/command.h"

const char *const cluster_log_levels[] = {"debug", "info", "warning", "error", NULL};

/* A number alone is a port of this machine: as a host's name it would be an odd way to write 0.0.28.242. */
static int address_parse(struct net_address *address, const char *item, uint16_t default_port,
                         struct error *error)
{
    char text[32];
    size_t digits = strspn(item, "0123456789");
    if (!digits || item[digits] || digits > 5)
        return net_address_parse(address, item, default_port, error);
    snprintf(text, sizeof text, "127.0.0.1:%s", item);
    return net_address_parse(address, text, default_port, error);
}

int cluster_addresses_parse(struct cluster_addresses *addresses, const char *setting, const char *text,
                            uint16_t default_port, struct error *error)
{
    char *copy = strdup(text ? text : ""), *rest = copy, *item;
    int status = copy ? 0 : error_set(error, BANYAN_ENOMEM, "no memory for addresses");
    addresses->count = 0;
    while (!status && (item = strsep(&rest, ","))) {
        struct error detail = {0};
        if (!*item)
            continue;
        if (addresses->count == CLUSTER_ADDRESSES_MAX)
            status =
                error_set(error, BANYAN_EINVAL, "%s: more than %u addresses", setting, CLUSTER_ADDRESSES_MAX);
        else if (address_parse(&addresses->list[addresses->count], item, default_port, &detail))
            status = error_set(error, BANYAN_EINVAL, "%s: %s", setting, detail.text);
        else
            addresses->count++;
    }
    free(copy);
    return status;
}

/* ---- RDMA ---- */

const char *const cluster_rdma_mtus[] = {"auto", "256", "512", "1024", "2048", "4096", NULL};

/* Packets' routes have a byte for it (struct ibv_global_route). */
#define GID_INDEX_MAX 255u

int cluster_rdma_prepare(struct verbs_options *options, const struct cluster_rdma_settings *settings,
                         struct error *error)
{
    *options = (struct verbs_options){
        .device = settings->device != NULL && settings->device[0] ? settings->device : NULL,
        .port = settings->port,
        .mtu = settings->mtu > 0 ? 128u << settings->mtu : 0,
        .traffic_class = settings->traffic_class,
        .service_level = settings->service_level,
        .timeout = settings->timeout,
    };
    if (settings->gid == NULL || !settings->gid[0])
        return 0;
    /* Digits only: strtoul alone would take signs and blanks. */
    size_t length = strspn(settings->gid, "0123456789");
    unsigned long index = length > 0 && length < 8 ? strtoul(settings->gid, NULL, 10) : GID_INDEX_MAX + 1;
    if (settings->gid[length] || index > GID_INDEX_MAX)
        return error_set(error, BANYAN_EINVAL,
                         "rdma-gid: '%.40s' is no index of a GID: 0 to %u; 'rdma link' and "
                         "/sys/class/infiniband/*/ports/*/gids show what there is",
                         settings->gid, GID_INDEX_MAX);
    options->gid_index = (uint32_t)index + 1;
    return 0;
}

/* ---- compute nodes ---- */

int cluster_fabric_prepare(struct cluster_fabric *fabric, const struct cluster_fabric_settings *settings,
                           struct error *error)
{
    memset(fabric, 0, sizeof *fabric);
    int status = cluster_addresses_parse(&fabric->addresses, "memory", settings->memory, 7100, error);
    if (!status && !fabric->addresses.count)
        status = error_set(error, BANYAN_EINVAL,
                           "no memory nodes are named: give --memory tcp://host:port, rdma://host:port or "
                           "unix:/path");
    if (!status && settings->secret_file)
        status = net_secret_read(settings->secret_file, fabric->secret, &fabric->secret_length, error);
    if (!status)
        status = cluster_client_tls(&fabric->tls, settings->certificate, settings->key, settings->authority,
                                    error);
    struct verbs_options nic = {0};
    if (!status)
        status = cluster_rdma_prepare(&nic, &settings->rdma, error);
    nic.spin_us = settings->spin_us;
    fabric->options = (struct fabric_remote_options){
        .nodes = fabric->addresses.list,
        .count = (uint16_t)fabric->addresses.count,
        .tls = fabric->tls,
        .secret = fabric->secret_length ? fabric->secret : NULL,
        .secret_length = fabric->secret_length,
        .lease_ms = settings->lease_ms,
        .timeout_ms = settings->timeout_ms,
        .copy = settings->copy,
        .nic = nic,
    };
    return status;
}

int cluster_peers_prepare(struct cluster_fabric *fabric, const struct cluster_fabric_settings *settings,
                          const char *peers, const char **why, struct error *error)
{
    const bool chosen = peers == NULL || !peers[0];
    *why = NULL;
    if (!chosen && !strcmp(peers, "off")) {
        *why = "peers is off";
        return 0;
    }
    int status = chosen ? 0 : cluster_addresses_parse(&fabric->peers, "peers", peers, 0, error);
    if (!status && !chosen && fabric->peers.count != 1)
        status = error_set(error, BANYAN_EINVAL, "peers: one address is wanted, or off");
    if (!status && fabric->tls != NULL && settings->certificate == NULL) {
        *why = "with TLS it needs fabric-certificate, since it is a server then";
        return chosen ? 0 : error_set(error, BANYAN_EINVAL, "peers: %s", *why);
    }
    if (!status)
        status = cluster_guard(&fabric->peers, fabric->secret_length > 0 || fabric->tls != NULL,
                               "the service for other compute nodes",
                               "give secret-file, or fabric-certificate and fabric-authority", error);
    if (!status && fabric->tls != NULL)
        status = cluster_server_tls(&fabric->peer_tls, settings->certificate, settings->key,
                                    settings->authority, true, error);
    fabric->options.peers = !status;
    fabric->options.peer_listen = fabric->peers.count > 0 ? &fabric->peers.list[0] : NULL;
    fabric->options.peer_tls = fabric->peer_tls;
    return status;
}

void cluster_fabric_close(struct cluster_fabric *fabric)
{
    if (fabric->peer_tls)
        net_tls_destroy(fabric->peer_tls);
    fabric->peer_tls = NULL;
    if (fabric->tls)
        net_tls_destroy(fabric->tls);
    fabric->tls = NULL;
    explicit_bzero(fabric->secret, sizeof fabric->secret);
}

int cluster_guard(const struct cluster_addresses *addresses, bool guarded, const char *what,
                  const char *remedy, struct error *error)
{
    char text[NET_TEXT_MAX];
    for (unsigned i = 0; !guarded && i < addresses->count; i++)
        if (!net_address_loopback(&addresses->list[i]))
            return error_set(error, BANYAN_EINVAL, "%s at %s would be open to the network: %s", what,
                             net_address_format(&addresses->list[i], text), remedy);
    return 0;
}

int cluster_client_tls(struct net_tls **tls, const char *certificate, const char *key, const char *authority,
                       struct error *error)
{
    *tls = NULL;
    if (key && !certificate)
        return error_set(error, BANYAN_EINVAL,
                         "fabric-key is of no use without fabric-certificate, whose key it is");
    if (!certificate && !authority)
        return 0;
    if (!authority)
        return error_set(error, BANYAN_EINVAL,
                         "fabric-certificate is of no use without fabric-authority, "
                         "by which the memory nodes are known");
    struct net_tls_options options = {
        .certificate_file = certificate, .key_file = key, .authority_file = authority};
    return net_tls_create(tls, false, &options, error);
}

int cluster_server_tls(struct net_tls **tls, const char *certificate, const char *key, const char *authority,
                       bool require_peer, struct error *error)
{
    *tls = NULL;
    if (!certificate)
        return key || authority
                   ? error_set(error, BANYAN_EINVAL, "TLS needs a certificate: give tls-certificate")
                   : 0;
    struct net_tls_options options = {.certificate_file = certificate,
                                      .key_file = key,
                                      .authority_file = authority,
                                      .require_peer = require_peer};
    return net_tls_create(tls, true, &options, error);
}

int cluster_failed(const char *name, const struct error *error)
{
    fprintf(stderr, "banyan %s: %s\n", name, error->text[0] ? error->text : error_name(error->code));
    /* a key that the index cannot have is bad input too */
    return error->code == BANYAN_EINVAL || error->code == BANYAN_EKEYSIZE ? COMMAND_USAGE : COMMAND_FAILED;
}
