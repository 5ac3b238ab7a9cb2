/*
 * socket.c - listening, accepting and connecting; see net.h. Any thread. net_connect waits, up to its
 * time-out, and as long as the system's resolver takes for a name; nothing else here waits but net_wait.
 */
#include "net/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

static uint64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t deadline_after(uint64_t nanoseconds)
{
    uint64_t now = clock_now();
    return nanoseconds < INT64_MAX - now ? now + nanoseconds : INT64_MAX;
}

int net_wait(int fd, uint32_t events, uint64_t timeout_ns)
{
    struct pollfd waited = {.fd = fd};
    waited.events = (short)((events & EPOLLIN ? POLLIN : 0) | (events & EPOLLOUT ? POLLOUT : 0));
    uint64_t deadline = deadline_after(timeout_ns);
    for (;;) {
        uint64_t now = clock_now(), left = now < deadline ? deadline - now : 0;
        struct timespec timeout = {.tv_sec = (time_t)(left / 1000000000),
                                   .tv_nsec = (long)(left % 1000000000)};
        int count = ppoll(&waited, 1, &timeout, NULL);
        if (count > 0 ||
            (count < 0 && errno != EINTR)) /* a bad descriptor: the next call on it reports that */
            return BANYAN_OK;
        if (count == 0)
            return BANYAN_ETIMEOUT;
    }
}

/* So that a dead peer is noticed within a minute even if nothing is sent, and small messages leave at once.
 */
static void set_options(int fd, int family)
{
    if (family == AF_UNIX)
        return;
    int on = 1, idle = 30, interval = 10, times = 3;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

static int socket_open(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        set_options(fd, family);
    return fd;
}

static struct sockaddr_un unix_name(const char *path)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    _Static_assert(sizeof name.sun_path > NET_PATH_MAX, "a path and its 0 fit");
    memcpy(name.sun_path, path, strnlen(path, NET_PATH_MAX)); /* the rest is zero */
    return name;
}

static int resolve(const struct net_address *address, bool passive, struct addrinfo **found,
                   struct error *error)
{
    char port[8], text[NET_TEXT_MAX];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0)};
    bool every = !address->host[0] || strcmp(address->host, "*") == 0;
    snprintf(port, sizeof port, "%u", address->port);
    if (every && !passive)
        return error_set(error, BANYAN_EINVAL, "%s: no host to connect to",
                         net_address_format(address, text));
    int status = getaddrinfo(every ? NULL : address->host, port, &hints, found);
    if (!status)
        return 0;
    return error_set(error, status == EAI_MEMORY ? BANYAN_ENOMEM : BANYAN_ENET, "%s: %s",
                     net_address_format(address, text),
                     status == EAI_SYSTEM ? strerror(errno) : gai_strerror(status));
}

int net_address_resolve(const struct net_address *address, struct sockaddr_storage *name, struct error *error)
{
    struct addrinfo *found;
    int status = resolve(address, true, &found, error);
    if (status)
        return status;
    const struct addrinfo *best = found;
    while (best && best->ai_family != AF_INET)
        best = best->ai_next;
    best = best ? best : found;
    memset(name, 0, sizeof *name);
    memcpy(name, best->ai_addr, best->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

/* ---- listening ---- */

static int listen_failed(const struct net_address *address, int number, struct error *error)
{
    char text[NET_TEXT_MAX];
    int code =
        number == EADDRINUSE                                       ? BANYAN_EBUSY
        : number == EMFILE || number == ENFILE || number == ENOMEM ? BANYAN_ENOMEM
        : number == EACCES || number == EPERM || number == ENOENT || number == ENOTDIR || number == EROFS
            ? BANYAN_EINVAL
            : BANYAN_ENET;
    return error_set(error, code, "cannot listen on %s: %s", net_address_format(address, text),
                     strerror(number));
}

/* The descriptor, or the negative errno. */
static int listen_at(const struct addrinfo *at)
{
    int on = 1, off = 0, fd = socket_open(at->ai_family);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (at->ai_family == AF_INET6) /* "*" means IPv4 too */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, at->ai_addr, at->ai_addrlen) || listen(fd, SOMAXCONN)) {
        int number = errno;
        close(fd);
        return -number;
    }
    return fd;
}

/* A name gets its IPv4 address if it has one: that is what clients of "localhost" try. Every interface means
 * IPv6's wildcard, which serves both, or IPv4's where there is no IPv6. */
static int listen_tcp(struct net_address *address, int *fd, struct error *error)
{
    struct addrinfo *found;
    int status = resolve(address, true, &found, error), result = -EADDRNOTAVAIL;
    if (status)
        return status;
    bool every = !address->host[0] || strcmp(address->host, "*") == 0;
    const int order[2] = {every ? AF_INET6 : AF_INET, every ? AF_INET : AF_INET6};
    for (int i = 0; i < 2 && result < 0; i++)
        for (const struct addrinfo *at = found; at && result < 0; at = at->ai_next)
            if (at->ai_family == order[i])
                result = listen_at(at);
    freeaddrinfo(found);
    if (result < 0)
        return listen_failed(address, -result, error);
    struct sockaddr_storage bound = {0};
    socklen_t length = sizeof bound;
    getsockname(result, (struct sockaddr *)&bound, &length); /* cannot fail: it is bound */
    address->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                      : ((struct sockaddr_in *)&bound)->sin_port);
    *fd = result;
    return 0;
}

/* Whether the socket file has no listener any more. */
static bool unix_stale(const struct sockaddr_un *name)
{
    struct stat file;
    if (lstat(name->sun_path, &file) || !S_ISSOCK(file.st_mode))
        return false;
    int fd = socket_open(AF_UNIX);
    if (fd < 0)
        return false;
    bool stale = connect(fd, (const struct sockaddr *)name, sizeof *name) && errno == ECONNREFUSED;
    close(fd);
    return stale;
}

static int listen_unix(const struct net_address *address, unsigned mode, int *fd, struct error *error)
{
    struct sockaddr_un name = unix_name(address->path);
    int socket_fd = socket_open(AF_UNIX);
    if (socket_fd < 0)
        return listen_failed(address, errno, error);
    mode = mode ? mode : 0700;
    fchmod(socket_fd, mode); /* bind gives it to the file, less the umask: never more than wanted */
    int number = bind(socket_fd, (struct sockaddr *)&name, sizeof name) ? errno : 0;
    if (number == EADDRINUSE && unix_stale(&name)) {
        unlink(name.sun_path);
        number = bind(socket_fd, (struct sockaddr *)&name, sizeof name) ? errno : 0;
    }
    if (!number && (chmod(name.sun_path, mode) || listen(socket_fd, SOMAXCONN)))
        number = errno;
    if (number) {
        close(socket_fd);
        return listen_failed(address, number, error);
    }
    *fd = socket_fd;
    return 0;
}

int net_listen(struct net_address *address, unsigned mode, int *fd, struct error *error)
{
    *fd = -1;
    if (address->kind == NET_UNIX)
        return listen_unix(address, mode, fd, error);
    return listen_tcp(address, fd, error);
}

/* ---- accepting ---- */

static void peer_text(int listener, const struct sockaddr_storage *from, socklen_t length,
                      char peer[NET_TEXT_MAX])
{
    char host[64], port[8];
    struct sockaddr_un own = {0};
    if (from->ss_family == AF_UNIX) { /* clients have no address: the listener's is shown */
        length = sizeof own - 1;
        getsockname(listener, (struct sockaddr *)&own, &length);
        snprintf(peer, NET_TEXT_MAX, "unix:%s", own.sun_path);
    } else if (getnameinfo((const struct sockaddr *)from, length, host, sizeof host, port, sizeof port,
                           NI_NUMERICHOST | NI_NUMERICSERV)) {
        snprintf(peer, NET_TEXT_MAX, "unknown");
    } else {
        snprintf(peer, NET_TEXT_MAX, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    }
}

/* Errors of this one connection: the next one may be sound. */
static bool accept_again(int number)
{
    return number == EINTR || number == ECONNABORTED || number == EPROTO || number == ENETDOWN ||
           number == EHOSTDOWN || number == ENONET || number == EHOSTUNREACH || number == ENETUNREACH ||
           number == ENOPROTOOPT || number == EPERM;
}

int net_accept(int listener, int *fd, char peer[NET_TEXT_MAX], struct error *error)
{
    struct sockaddr_storage from = {0};
    socklen_t length;
    int tries = 16;
    do {
        length = sizeof from;
        *fd = accept4(listener, (struct sockaddr *)&from, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    } while (*fd < 0 && accept_again(errno) && --tries);
    if (*fd < 0) {
        int number = errno;
        if (number == EAGAIN || accept_again(number))
            return 0;
        bool full = number == EMFILE || number == ENFILE || number == ENOBUFS || number == ENOMEM;
        return error_set(error, full ? BANYAN_ENOMEM : BANYAN_ENET, "cannot accept a connection: %s",
                         strerror(number));
    }
    set_options(*fd, from.ss_family);
    if (peer)
        peer_text(listener, &from, length, peer);
    return 0;
}

int net_peer_process(int fd, int *pidfd, int *pid, uint32_t *uid, struct error *error)
{
    struct ucred peer;
    socklen_t length = sizeof peer;
    *pidfd = -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) || length != sizeof peer || peer.pid <= 0)
        return error_set(error, BANYAN_ENOTSUP, "the process at the other end of the socket is unknown");
    *pid = peer.pid;
    *uid = peer.uid;
    length = sizeof *pidfd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, pidfd, &length) == 0 && length == sizeof *pidfd)
        return 0;
    /* Older kernels: if the process has ended and its number was given to another one, the descriptor is of
     * that one. The end of the peer still shows on the socket itself. */
    long opened = syscall(SYS_pidfd_open, peer.pid, 0);
    *pidfd = opened < 0 ? -1 : (int)opened;
    return 0;
}

/* ---- connecting ---- */

static int connect_failed(const struct net_address *address, int number, struct error *error)
{
    char text[NET_TEXT_MAX];
    int code = number == ETIMEDOUT                                        ? BANYAN_ETIMEOUT
               : number == EMFILE || number == ENFILE || number == ENOMEM ? BANYAN_ENOMEM
                                                                          : BANYAN_ENET;
    return error_set(
        error, code, "cannot connect to %s: %s%s", net_address_format(address, text), strerror(number),
        number == ECONNREFUSED ? ": nothing listens there; is it running, is the port right?" : "");
}

/* The descriptor, or the negative errno. */
static int connect_at(int family, const struct sockaddr *name, socklen_t length, uint64_t timeout_ns)
{
    int number = 0, fd = socket_open(family);
    if (fd < 0)
        return -errno;
    uint64_t deadline = deadline_after(timeout_ns);
    while (connect(fd, name, length)) {
        number = errno;
        if (number == EINPROGRESS || number == EINTR) {
            socklen_t size = sizeof number;
            if (net_wait(fd, EPOLLOUT, timeout_ns))
                number = ETIMEDOUT;
            else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size))
                number = errno;
            break;
        }
        if (number != EAGAIN) /* EAGAIN: a Unix listener's queue is full, and no event tells when it is not */
            break;
        number = ETIMEDOUT;
        if (clock_now() >= deadline)
            break;
        number = 0;
        struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
    if (number) {
        close(fd);
        return -number;
    }
    return fd;
}

int net_connect_begin(const struct net_address *address, int *fd, struct error *error)
{
    char text[NET_TEXT_MAX], port[8];
    struct sockaddr_un name;
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | AI_NUMERICHOST};
    bool tcp = address->kind == NET_TCP;
    *fd = -1;
    snprintf(port, sizeof port, "%u", address->port);
    if (tcp && (!address->host[0] || getaddrinfo(address->host, port, &hints, &found)))
        return error_set(error, BANYAN_EINVAL, "%s is no literal address", net_address_format(address, text));
    name = unix_name(address->path);
    int number = 0, made = socket_open(tcp ? found->ai_family : AF_UNIX);
    if (made < 0 || connect(made, tcp ? found->ai_addr : (struct sockaddr *)&name,
                            tcp ? found->ai_addrlen : (socklen_t)sizeof name))
        number = errno;
    if (tcp)
        freeaddrinfo(found);
    if (made >= 0 && (number == 0 || number == EINPROGRESS)) {
        *fd = made;
        return 0;
    }
    if (made >= 0)
        close(made);
    return connect_failed(address, number, error);
}

void net_local_host(int fd, char host[NET_HOST_MAX + 1])
{
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof name;
    host[0] = 0;
    if (getsockname(fd, (struct sockaddr *)&name, &length) || name.ss_family == AF_UNIX ||
        getnameinfo((const struct sockaddr *)&name, length, host, NET_HOST_MAX + 1, NULL, 0, NI_NUMERICHOST))
        host[0] = 0;
}

/* What is left of the time is shared out evenly, so that one silent address does not use up all of it. */
static int connect_tcp(const struct net_address *address, uint64_t timeout_ns, int *fd, struct error *error)
{
    struct addrinfo *found;
    int status = resolve(address, false, &found, error), result = -EADDRNOTAVAIL;
    if (status)
        return status;
    uint64_t deadline = deadline_after(timeout_ns), count = 0;
    for (const struct addrinfo *at = found; at; at = at->ai_next)
        count++;
    for (const struct addrinfo *at = found; at && result < 0; at = at->ai_next, count--) {
        uint64_t now = clock_now();
        uint64_t left = now < deadline ? deadline - now : 0;
        result = connect_at(at->ai_family, at->ai_addr, at->ai_addrlen, left / count);
    }
    freeaddrinfo(found);
    if (result < 0)
        return connect_failed(address, -result, error);
    *fd = result;
    return 0;
}

int net_connect(const struct net_address *address, uint64_t timeout_ns, int *fd, struct error *error)
{
    *fd = -1;
    if (address->kind == NET_TCP)
        return connect_tcp(address, timeout_ns, fd, error);
    struct sockaddr_un name = unix_name(address->path);
    int result = connect_at(AF_UNIX, (struct sockaddr *)&name, sizeof name, timeout_ns);
    if (result < 0)
        return connect_failed(address, -result, error);
    *fd = result;
    return 0;
}
