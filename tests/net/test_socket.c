/* test_socket.c - listening, accepting, connecting with the messages of their failures, the process at the
 * other end, and descriptors passed along. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "net/net.h"

#define SECOND 1000000000u

static char directory[64];
static struct net_address unix_address;

static int set_up(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/test_socket.XXXXXX");
    if (!mkdtemp(directory))
        return -1;
    unix_address = (struct net_address){.kind = NET_UNIX};
    snprintf(unix_address.path, sizeof unix_address.path, "%s/socket", directory);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    unlink(unix_address.path);
    return rmdir(directory);
}

static int listen_at(struct net_address *address)
{
    struct error error = {0};
    int fd;
    if (net_listen(address, 0, &fd, &error))
        fail_msg("%s", error.text);
    assert_true(fd >= 0);
    return fd;
}

static int accept_one(int listener, char peer[NET_TEXT_MAX])
{
    struct error error = {0};
    int fd;
    assert_int_equal(net_wait(listener, EPOLLIN, 10ull * SECOND), BANYAN_OK);
    if (net_accept(listener, &fd, peer, &error))
        fail_msg("%s", error.text);
    assert_true(fd >= 0);
    return fd;
}

static void check_flags(int fd)
{
    assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void check_option(int fd, int level, int name)
{
    int value = 0;
    socklen_t length = sizeof value;
    assert_int_equal(getsockopt(fd, level, name, &value, &length), 0);
    assert_true(value != 0);
}

static void check_pair(int one, int other)
{
    char byte = 0;
    assert_int_equal(send(one, "x", 1, MSG_NOSIGNAL), 1);
    assert_int_equal(net_wait(other, EPOLLIN, 10ull * SECOND), BANYAN_OK);
    assert_int_equal(recv(other, &byte, 1, 0), 1);
    assert_int_equal(byte, 'x');
}

static void connect_and_check(struct net_address *address, const char *peer_prefix)
{
    int listener = listen_at(address), client, server, none;
    char peer[NET_TEXT_MAX];
    struct error error = {0};
    check_flags(listener);
    assert_int_equal(net_accept(listener, &none, NULL, &error), 0);
    assert_int_equal(none, -1);
    if (net_connect(address, 10ull * SECOND, &client, &error))
        fail_msg("%s", error.text);
    server = accept_one(listener, peer);
    assert_int_equal(strncmp(peer, peer_prefix, strlen(peer_prefix)), 0);
    check_flags(client);
    check_flags(server);
    if (address->kind == NET_TCP) {
        check_option(client, SOL_SOCKET, SO_KEEPALIVE);
        check_option(server, SOL_SOCKET, SO_KEEPALIVE);
        check_option(client, IPPROTO_TCP, TCP_NODELAY);
        check_option(server, IPPROTO_TCP, TCP_NODELAY);
    }
    check_pair(client, server);
    check_pair(server, client);
    assert_int_equal(net_wait(client, EPOLLIN, 1000), BANYAN_ETIMEOUT);
    close(client);
    close(server);
    close(listener);
}

static void test_tcp(void **state)
{
    (void)state;
    struct net_address address;
    assert_int_equal(net_address_parse(&address, "127.0.0.1:0", 0, NULL), 0);
    connect_and_check(&address, "127.0.0.1:");
    assert_true(address.port != 0);
    assert_int_equal(net_address_parse(&address, "localhost:0", 0, NULL), 0);
    connect_and_check(&address, "127.0.0.1:");
}

static bool have_ipv6(void)
{
    struct net_address address;
    int fd;
    assert_int_equal(net_address_parse(&address, "[::1]:0", 0, NULL), 0);
    if (net_listen(&address, 0, &fd, NULL))
        return false;
    close(fd);
    return true;
}

static void test_tcp6(void **state)
{
    (void)state;
    struct net_address address;
    if (!have_ipv6())
        skip();
    assert_int_equal(net_address_parse(&address, "[::1]:0", 0, NULL), 0);
    connect_and_check(&address, "[::1]:");
}

/* A port in use is named. */
static void test_tcp_in_use(void **state)
{
    (void)state;
    struct net_address address, text_of;
    struct error error = {0};
    char text[NET_TEXT_MAX];
    int other;
    assert_int_equal(net_address_parse(&address, "127.0.0.1:0", 0, NULL), 0);
    int listener = listen_at(&address);
    text_of = address;
    assert_int_equal(net_listen(&address, 0, &other, &error), BANYAN_EBUSY);
    assert_int_equal(other, -1);
    assert_non_null(strstr(error.text, net_address_format(&text_of, text)));
    assert_non_null(strstr(error.text, "in use"));
    close(listener);
}

static void test_unix(void **state)
{
    (void)state;
    char prefix[NET_TEXT_MAX];
    connect_and_check(&unix_address, net_address_format(&unix_address, prefix));
}

static void test_unix_modes(void **state)
{
    (void)state;
    const unsigned modes[] = {0, 0700, 0770, 0777, 0600};
    mode_t mask = umask(022);
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        struct stat file;
        int fd;
        assert_int_equal(net_listen(&unix_address, modes[i], &fd, NULL), 0); /* replaces the stale one */
        assert_int_equal(stat(unix_address.path, &file), 0);
        assert_int_equal(file.st_mode & 07777, modes[i] ? modes[i] : 0700);
        close(fd);
    }
    umask(mask);
}

static void test_unix_live(void **state)
{
    (void)state;
    struct error error = {0};
    int other, listener = listen_at(&unix_address);
    assert_int_equal(net_listen(&unix_address, 0, &other, &error), BANYAN_EBUSY);
    assert_non_null(strstr(error.text, unix_address.path));
    int client, server = -1;
    assert_int_equal(net_connect(&unix_address, SECOND, &client, NULL), 0); /* the first still serves */
    for (int i = 0; i < 10; i++) { /* the probe is among the waiting connections */
        if (server >= 0)
            close(server);
        assert_int_equal(net_accept(listener, &server, NULL, NULL), 0);
        if (server < 0)
            break;
    }
    close(client);
    close(listener);
}

static void test_unix_other_file(void **state)
{
    (void)state;
    struct error error = {0};
    int fd = open(unix_address.path, O_WRONLY | O_CREAT, 0600), listener;
    assert_int_equal(write(fd, "data", 4), 4);
    close(fd);
    assert_int_equal(net_listen(&unix_address, 0, &listener, &error), BANYAN_EBUSY);
    struct stat file;
    assert_int_equal(stat(unix_address.path, &file), 0);
    assert_true(S_ISREG(file.st_mode) && file.st_size == 4);
    struct net_address nowhere = {.kind = NET_UNIX, .path = "/nonexistent/socket"};
    assert_int_equal(net_listen(&nowhere, 0, &listener, &error), BANYAN_EINVAL);
    assert_non_null(strstr(error.text, "unix:/nonexistent/socket: No such file"));
}

static void refused(const struct net_address *address, uint64_t timeout, int code, const char *why)
{
    struct error error = {0};
    char text[NET_TEXT_MAX];
    int fd;
    assert_int_equal(net_connect(address, timeout, &fd, &error), code);
    assert_int_equal(fd, -1);
    assert_int_equal(error.code, code);
    if (!strstr(error.text, net_address_format(address, text)) || !strstr(error.text, why))
        fail_msg("%s fails with: %s", text, error.text);
}

static void test_connect_fails(void **state)
{
    (void)state;
    struct net_address address;
    assert_int_equal(net_address_parse(&address, "127.0.0.1:0", 0, NULL), 0);
    close(listen_at(&address)); /* a port that was free a moment ago */
    refused(&address, SECOND, BANYAN_ENET, "Connection refused: nothing listens there");
    refused(&unix_address, SECOND, BANYAN_ENET, "No such file");
    close(listen_at(&unix_address));
    refused(&unix_address, SECOND, BANYAN_ENET, "Connection refused");
    assert_int_equal(net_address_parse(&address, "name.invalid:1", 0, NULL), 0);
    refused(&address, SECOND, BANYAN_ENET, "name.invalid");
    assert_int_equal(net_address_parse(&address, "*:1", 0, NULL), 0);
    refused(&address, SECOND, BANYAN_EINVAL, "no host");
}

/* A listener that accepts nothing, with its queue full, lets clients wait. */
static void test_connect_times_out(void **state)
{
    (void)state;
    int listener = listen_at(&unix_address), clients[8], count = 0;
    assert_int_equal(listen(listener, 0), 0); /* a shorter queue */
    while (count < 8 && net_connect(&unix_address, 1000, &clients[count], NULL) == 0)
        count++;
    assert_true(count > 0 && count < 8);
    refused(&unix_address, 2000000, BANYAN_ETIMEOUT, "timed out");
    while (count)
        close(clients[--count]);
    close(listener);
}

/* ---- the other end ---- */

static void test_peer_process(void **state)
{
    (void)state;
    int listener = listen_at(&unix_address);
    pid_t child = fork();
    if (child == 0) {
        int fd;
        char byte;
        if (net_connect(&unix_address, 10ull * SECOND, &fd, NULL) || net_wait(fd, EPOLLIN, 10ull * SECOND))
            _exit(1);
        _exit(recv(fd, &byte, 1, 0) == 1 ? 0 : 2);
    }
    assert_true(child > 0);
    int server = accept_one(listener, NULL), pidfd, pid, status;
    uint32_t uid;
    struct error error = {0};
    assert_int_equal(net_peer_process(server, &pidfd, &pid, &uid, &error), 0);
    assert_int_equal(pid, child);
    assert_int_equal(uid, getuid());
    if (pidfd >= 0) { /* becomes readable when the process ends */
        assert_int_equal(net_wait(pidfd, EPOLLIN, 0), BANYAN_ETIMEOUT);
        assert_true(fcntl(pidfd, F_GETFD) & FD_CLOEXEC);
    }
    assert_int_equal(send(server, "x", 1, MSG_NOSIGNAL), 1);
    if (pidfd >= 0) {
        assert_int_equal(net_wait(pidfd, EPOLLIN, 10ull * SECOND), BANYAN_OK);
        close(pidfd);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(server);
    close(listener);
}

static void test_peer_of_tcp(void **state)
{
    (void)state;
    struct net_address address;
    struct error error = {0};
    int client, pidfd, pid;
    uint32_t uid;
    assert_int_equal(net_address_parse(&address, "127.0.0.1:0", 0, NULL), 0);
    int listener = listen_at(&address);
    assert_int_equal(net_connect(&address, SECOND, &client, NULL), 0);
    assert_int_equal(net_peer_process(client, &pidfd, &pid, &uid, &error), BANYAN_ENOTSUP);
    assert_int_equal(pidfd, -1);
    close(client);
    close(listener);
}

/* ---- descriptors ---- */

static unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void test_descriptors(void **state)
{
    (void)state;
    int pair[2], sent[2] = {eventfd(0, 0), eventfd(7, 0)}, got[2] = {-1, -1};
    struct error error = {0};
    uint64_t value = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_int_equal(net_receive_descriptors(pair[1], got, 2, 1000000, &error), BANYAN_ETIMEOUT);
    assert_int_equal(net_send_descriptors(pair[0], sent, 2, SECOND, &error), 0);
    assert_int_equal(net_receive_descriptors(pair[1], got, 2, SECOND, &error), 0);
    assert_int_equal(read(got[1], &value, sizeof value), sizeof value);
    assert_int_equal(value, 7);
    assert_true(fcntl(got[0], F_GETFD) & FD_CLOEXEC);
    for (int i = 0; i < 2; i++) {
        close(sent[i]);
        close(got[i]);
    }
    assert_int_equal(net_send_descriptors(pair[0], NULL, 0, SECOND, &error), 0);
    assert_int_equal(net_receive_descriptors(pair[1], NULL, 0, SECOND, &error), 0);
    close(pair[0]);
    close(pair[1]);
}

/* Other numbers than were asked for are refused, and no descriptor stays open. */
static void test_descriptors_refused(void **state)
{
    (void)state;
    int pair[2], sent[3] = {0, 1, 2}, got[3];
    struct error error = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    unsigned before = open_descriptors();
    assert_int_equal(net_send_descriptors(pair[0], sent, 3, SECOND, &error), 0);
    assert_int_equal(net_receive_descriptors(pair[1], got, 2, SECOND, &error), BANYAN_ENET);
    assert_non_null(strstr(error.text, "sent 3 instead of 2"));
    assert_int_equal(net_send_descriptors(pair[0], sent, 1, SECOND, &error), 0);
    assert_int_equal(net_receive_descriptors(pair[1], got, 2, SECOND, &error), BANYAN_ENET);
    assert_int_equal(send(pair[0], "x", 1, 0), 1); /* without any */
    assert_int_equal(net_receive_descriptors(pair[1], got, 1, SECOND, &error), BANYAN_ENET);
    assert_int_equal(open_descriptors(), before);
    assert_int_equal(net_send_descriptors(pair[0], sent, 254, SECOND, &error), BANYAN_EINVAL);
    close(pair[0]);
    assert_int_equal(net_receive_descriptors(pair[1], got, 1, SECOND, &error), BANYAN_ENET);
    assert_non_null(strstr(error.text, "closed"));
    assert_int_equal(net_send_descriptors(pair[1], sent, 1, SECOND, &error), BANYAN_ENET); /* no SIGPIPE */
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp),
        cmocka_unit_test(test_tcp6),
        cmocka_unit_test(test_tcp_in_use),
        cmocka_unit_test_setup_teardown(test_unix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unix_modes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unix_live, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_unix_other_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_connect_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_connect_times_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_peer_process, set_up, tear_down),
        cmocka_unit_test(test_peer_of_tcp),
        cmocka_unit_test(test_descriptors),
        cmocka_unit_test(test_descriptors_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
