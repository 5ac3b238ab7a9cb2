/* address.c - the text of addresses, both ways. Any thread; cheap; resolves no names. See net.h. */
#include "net/net.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int refuse(const char *text, const char *why, struct error *error)
{
    return error_set(error, BANYAN_EINVAL, "address \"%.150s\": %s", text, why);
}

/* `text` after "unix:". */
static int parse_path(struct net_address *address, const char *text, const char *path, struct error *error)
{
    size_t length = strlen(path);
    if (length == 0)
        return refuse(text, "the path of the Unix socket is missing", error);
    if (length > NET_PATH_MAX)
        return refuse(text, "the path of a Unix socket has at most 107 bytes", error);
    address->kind = NET_UNIX;
    memcpy(address->path, path, length + 1);
    return 0;
}

/* Digits only: strtoul alone would take signs, blanks and an empty text. */
static int parse_port(struct net_address *address, const char *text, const char *port, struct error *error)
{
    size_t length = strlen(port);
    if (length == 0 || length > 5 || strspn(port, "0123456789") != length || strtoul(port, NULL, 10) > 65535)
        return refuse(text, "the port is not a number from 0 to 65535", error);
    address->port = (uint16_t)strtoul(port, NULL, 10);
    return 0;
}

static bool host_is_sound(const char *host)
{
    for (; *host; host++)
        if ((unsigned char)*host <= ' ' || *host == '/' || *host == '[' || *host == ']' || *host == 127)
            return false;
    return true;
}

/* Splits "host:port", "host", "[literal]:port"; a bare IPv6 literal is a host without a port. */
static int split_host(const char *rest, const char **host, size_t *length, const char **port)
{
    *host = rest;
    *port = NULL;
    if (*rest == '[') {
        const char *end = strchr(rest, ']');
        if (!end || (end[1] && end[1] != ':'))
            return BANYAN_EINVAL;
        *host = rest + 1;
        *length = (size_t)(end - *host);
        *port = end[1] ? end + 2 : NULL;
        return 0;
    }
    const char *colon = strchr(rest, ':');
    if (colon && strchr(colon + 1, ':')) {
        struct in6_addr ignored;
        *length = strlen(rest);
        return inet_pton(AF_INET6, rest, &ignored) == 1 ? 0 : BANYAN_EINVAL;
    }
    *length = colon ? (size_t)(colon - rest) : strlen(rest);
    *port = colon ? colon + 1 : NULL;
    return 0;
}

static int parse_host(struct net_address *address, const char *text, const char *rest, uint16_t default_port,
                      struct error *error)
{
    const char *host, *port;
    size_t length;
    if (split_host(rest, &host, &length, &port))
        return refuse(text, "an IPv6 address with a port is written [address]:port", error);
    if (length > NET_HOST_MAX)
        return refuse(text, "the host's name is longer than 255 bytes", error);
    memcpy(address->host, host, length);
    address->host[length] = 0;
    if (!host_is_sound(address->host))
        return refuse(text, "not a host's name", error);
    struct in6_addr ignored;
    if (*rest == '[' && inet_pton(AF_INET6, address->host, &ignored) != 1)
        return refuse(text, "not an IPv6 address", error);
    address->kind = NET_TCP;
    address->port = default_port;
    if (port)
        return parse_port(address, text, port, error);
    if (length == 0)
        return refuse(text, "empty", error);
    return default_port ? 0 : refuse(text, "the port is missing (host:port)", error);
}

int net_address_parse(struct net_address *address, const char *text, uint16_t default_port,
                      struct error *error)
{
    memset(address, 0, sizeof *address);
    if (strncasecmp(text, "unix:", 5) == 0)
        return parse_path(address, text, text + 5, error);
    address->rdma = strncasecmp(text, "rdma://", 7) == 0;
    const char *rest = address->rdma ? text + 7 : strncasecmp(text, "tcp://", 6) == 0 ? text + 6 : text;
    if (strstr(rest, "://"))
        return refuse(text, "neither unix:/path nor tcp://host:port nor rdma://host:port", error);
    return parse_host(address, text, rest, default_port, error);
}

char *net_address_format(const struct net_address *address, char text[NET_TEXT_MAX])
{
    const char *scheme = address->rdma ? "rdma" : "tcp";
    if (address->kind == NET_UNIX)
        snprintf(text, NET_TEXT_MAX, "unix:%s", address->path);
    else if (strchr(address->host, ':'))
        snprintf(text, NET_TEXT_MAX, "%s://[%s]:%u", scheme, address->host, address->port);
    else
        snprintf(text, NET_TEXT_MAX, "%s://%s:%u", scheme, address->host, address->port);
    return text;
}

bool net_address_loopback(const struct net_address *address)
{
    if (address->kind == NET_UNIX || strcasecmp(address->host, "localhost") == 0)
        return true;
    struct in_addr four;
    if (inet_pton(AF_INET, address->host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    struct in6_addr six;
    if (inet_pton(AF_INET6, address->host, &six) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&six) || (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
}
