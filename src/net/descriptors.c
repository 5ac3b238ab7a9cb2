/* descriptors.c - file descriptors passed through a Unix socket, with one byte that carries them; see net.h.
 */
#include "net/net.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define DESCRIPTORS_MAX 253u /* what the kernel passes at once */

union control {
    char bytes[CMSG_SPACE(DESCRIPTORS_MAX * sizeof(int))];
    struct cmsghdr aligned;
};

static bool retry(int fd, uint32_t events, uint64_t timeout_ns, int *status)
{
    if (errno == EINTR)
        return true;
    if (errno != EAGAIN)
        return false;
    *status = net_wait(fd, events, timeout_ns);
    return !*status;
}

static int failed(int status, const char *what, struct error *error)
{
    if (status)
        return error_set(error, status, "%s: timed out", what);
    return error_set(error, BANYAN_ENET, "%s: %s", what, strerror(errno));
}

int net_send_descriptors(int fd, const int *descriptors, unsigned count, uint64_t timeout_ns,
                         struct error *error)
{
    static const char what[] = "sending descriptors";
    union control control;
    char byte = 'D';
    struct iovec vector = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (count > DESCRIPTORS_MAX)
        return error_set(error, BANYAN_EINVAL, "%s: %u are more than 253", what, count);
    if (count) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), descriptors, count * sizeof(int));
    }
    int status = BANYAN_OK;
    while (sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        if (!retry(fd, EPOLLOUT, timeout_ns, &status))
            return failed(status, what, error);
    return BANYAN_OK;
}

/* Takes at most `count`, and closes those that the peer sent beyond. Returns how many there were in all. */
static unsigned take_descriptors(struct msghdr *message, int *descriptors, unsigned count)
{
    unsigned all = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int descriptor;
            memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof descriptor);
            if (all < count)
                descriptors[all] = descriptor;
            else
                close(descriptor);
            all++;
        }
    }
    return all;
}

int net_receive_descriptors(int fd, int *descriptors, unsigned count, uint64_t timeout_ns,
                            struct error *error)
{
    static const char what[] = "receiving descriptors";
    union control control;
    char byte;
    struct iovec vector = {.iov_base = &byte, .iov_len = 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    int status = BANYAN_OK;
    ssize_t length;
    while ((length = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0)
        if (!retry(fd, EPOLLIN, timeout_ns, &status))
            return failed(status, what, error);
    unsigned all = take_descriptors(&message, descriptors, count);
    if (length == 1 && all == count && !(message.msg_flags & MSG_CTRUNC))
        return BANYAN_OK;
    for (unsigned i = 0; i < all && i < count; i++)
        close(descriptors[i]);
    if (length == 0)
        return error_set(error, BANYAN_ENET, "%s: the peer has closed the connection", what);
    if (message.msg_flags & MSG_CTRUNC)
        return error_set(error, BANYAN_ENOMEM, "%s: this process may not open as many", what);
    return error_set(error, BANYAN_ENET, "%s: the peer sent %u instead of %u", what, all, count);
}
