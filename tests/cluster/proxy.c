#include "cluster/proxy.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/atomic.h"
#include "base/random.h"
#include "base/thread.h"
#include "cluster/process.h"

#define PAIRS_MAX 64u
#define BUFFER    (256u << 10)
#define PARTS     64u /* a piece may be such a part of what waits: see proxy_shape */
#define TURN_MAX                                                                                             \
    64u /* pieces of one direction before the others have their turn: no connection's bytes, and no          \
           heartbeats, wait for all of another's */

struct direction {
    size_t begin, end;
    uint64_t due; /* when what is in the buffer may go on */
    bool over;    /* the sender has closed */
    bool more;    /* its turn ended before its bytes did */
    char *bytes;
};
struct pair {
    int fds[2]; /* the compute node's, the memory node's */
    struct direction ways[2];
};
struct proxy {
    struct net_address address, to;
    int listener;
    struct thread *thread;
    struct pair pairs[PAIRS_MAX]; /* fds[0] < 0: unused; the thread's own */
    uint32_t stop, hold, delay_ms, cuts_wanted, cuts_done;
    uint32_t piece, rate, jitter_us; /* see proxy_shape */
    struct random random;            /* the thread's own */
};

static void pair_close(struct pair *pair)
{
    for (int i = 0; i < 2; i++) {
        close(pair->fds[i]);
        free(pair->ways[i].bytes);
        pair->fds[i] = -1;
    }
}

static void accept_one(struct proxy *proxy)
{
    struct error error;
    int fd = -1, other = -1;
    struct pair *pair = NULL;
    if (net_accept(proxy->listener, &fd, NULL, &error) || fd < 0)
        return;
    for (unsigned i = 0; i < PAIRS_MAX && !pair; i++)
        if (proxy->pairs[i].fds[0] < 0)
            pair = &proxy->pairs[i];
    if (!pair || net_connect(&proxy->to, UINT64_C(1000000000), &other, &error)) {
        close(fd);
        return;
    }
    *pair = (struct pair){.fds = {fd, other}};
    for (int i = 0; i < 2; i++)
        pair->ways[i].bytes = malloc(BUFFER);
}

/* Sends a piece, and says when the next may go. -1: the connection is broken; 0: the receiver is slow. */
static int send_piece(struct proxy *proxy, struct pair *pair, int from, uint64_t now)
{
    struct direction *way = &pair->ways[from];
    uint32_t piece = atomic_load_relaxed(&proxy->piece), rate = atomic_load_relaxed(&proxy->rate);
    uint32_t jitter = atomic_load_relaxed(&proxy->jitter_us);
    size_t left = way->end - way->begin;
    const size_t most = left / PARTS > piece ? left / PARTS : piece;
    if (piece && left > most)
        left = 1 + random_below(&proxy->random, most);
    ssize_t put = send(pair->fds[!from], way->bytes + way->begin, left, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put < 0)
        return errno == EAGAIN ? 0 : -1;
    way->begin += (size_t)put;
    if (rate)
        way->due = now + (uint64_t)put * 1000000 / rate;
    if (jitter)
        way->due = (way->due > now ? way->due : now) + random_below(&proxy->random, (uint64_t)jitter * 1000);
    return 1;
}

/* ways[i] carries bytes from fds[i] to the other. False: the pair is done with. */
static bool move(struct proxy *proxy, struct pair *pair, int from, uint64_t now, uint64_t delay)
{
    struct direction *way = &pair->ways[from];
    if (way->begin == way->end && !way->over) {
        ssize_t got = recv(pair->fds[from], way->bytes, BUFFER, MSG_DONTWAIT);
        if (got < 0 && errno != EAGAIN)
            return false;
        way->over = got == 0;
        way->begin = 0;
        way->end = got > 0 ? (size_t)got : 0;
        way->due = way->due > now + delay ? way->due : now + delay;
    }
    int sent = 1;
    unsigned pieces = 0;
    for (; pieces < TURN_MAX && way->begin < way->end && now >= way->due && sent > 0; pieces++)
        sent = send_piece(proxy, pair, from, now);
    way->more = pieces == TURN_MAX && sent > 0;
    return sent >= 0 && (!way->over || way->begin < way->end); /* one side's end is the whole connection's */
}

static void move_all(struct proxy *proxy)
{
    uint64_t now = now_ns(), delay = (uint64_t)atomic_load_relaxed(&proxy->delay_ms) * 1000000;
    for (unsigned i = 0; i < PAIRS_MAX; i++) {
        struct pair *pair = &proxy->pairs[i];
        if (pair->fds[0] >= 0 && (!move(proxy, pair, 0, now, delay) || !move(proxy, pair, 1, now, delay)))
            pair_close(pair);
    }
}

static void cut_all(struct proxy *proxy)
{
    for (unsigned i = 0; i < PAIRS_MAX; i++)
        if (proxy->pairs[i].fds[0] >= 0)
            pair_close(&proxy->pairs[i]);
}

static void wait_for_bytes(struct proxy *proxy, bool held)
{
    struct pollfd polls[1 + 2 * PAIRS_MAX] = {{.fd = proxy->listener, .events = POLLIN}};
    nfds_t count = 1;
    bool waiting = held, more = false;
    for (unsigned i = 0; i < PAIRS_MAX && !held; i++)
        for (int side = 0; side < 2 && proxy->pairs[i].fds[0] >= 0; side++) {
            const struct direction *way = &proxy->pairs[i].ways[side];
            more |= way->more;
            if (way->begin < way->end)
                waiting = true; /* for its time or the receiver */
            else
                polls[count++] = (struct pollfd){.fd = proxy->pairs[i].fds[side], .events = POLLIN};
        }
    if (poll(polls, held ? 0 : count, more ? 0 : waiting ? 1 : 5) > 0 && polls[0].revents)
        accept_one(proxy);
}

static void run(void *argument)
{
    struct proxy *proxy = argument;
    while (!atomic_load_relaxed(&proxy->stop)) {
        uint32_t cuts = atomic_load_acquire(&proxy->cuts_wanted);
        bool held = atomic_load_relaxed(&proxy->hold);
        if (cuts != proxy->cuts_done) {
            cut_all(proxy);
            atomic_store_release(&proxy->cuts_done, cuts); /* the sockets are closed */
        }
        if (!held)
            move_all(proxy);
        wait_for_bytes(proxy, held);
    }
    cut_all(proxy);
}

static struct proxy *start(const struct net_address *to, const struct net_address *at)
{
    struct error error;
    struct proxy *proxy = calloc(1, sizeof *proxy);
    proxy->to = *to;
    proxy->address = *at;
    for (unsigned i = 0; i < PAIRS_MAX; i++)
        proxy->pairs[i].fds[0] = -1;
    random_seed(&proxy->random, to->port);
    if (net_listen(&proxy->address, 0600, &proxy->listener, &error) ||
        thread_start(&proxy->thread, run, proxy, &error))
        fail_hard("proxy: %s", error.text);
    return proxy;
}

struct proxy *proxy_start(const struct net_address *to)
{
    const struct net_address at = {.kind = NET_TCP, .host = "127.0.0.1"};
    return start(to, &at);
}

struct proxy *proxy_start_before(const char *path)
{
    struct net_address at = {.kind = NET_UNIX}, to = {.kind = NET_UNIX};
    snprintf(at.path, sizeof at.path, "%s", path);
    snprintf(to.path, sizeof to.path, "%s.real", path);
    if (rename(at.path, to.path))
        fail_hard("no process listens at %s", path);
    return start(&to, &at);
}

struct net_address proxy_address(const struct proxy *proxy)
{
    return proxy->address;
}

static bool cut_done(void *context)
{
    const struct proxy *proxy = context;
    return atomic_load_acquire(&proxy->cuts_done) == proxy->cuts_wanted;
}

void proxy_cut(struct proxy *proxy)
{
    atomic_store_release(&proxy->cuts_wanted, proxy->cuts_wanted + 1);
    wait_until(cut_done, proxy, "the proxy's connections to be cut");
}

void proxy_hold(struct proxy *proxy, bool hold)
{
    atomic_store_relaxed(&proxy->hold, hold);
}

void proxy_delay(struct proxy *proxy, uint32_t ms)
{
    atomic_store_relaxed(&proxy->delay_ms, ms);
}

void proxy_shape(struct proxy *proxy, uint32_t piece, uint32_t rate, uint32_t jitter_us)
{
    atomic_store_relaxed(&proxy->piece, piece);
    atomic_store_relaxed(&proxy->rate, rate);
    atomic_store_relaxed(&proxy->jitter_us, jitter_us);
}

void proxy_stop(struct proxy *proxy)
{
    if (!proxy)
        return;
    atomic_store_relaxed(&proxy->stop, 1);
    thread_join(proxy->thread);
    close(proxy->listener);
    if (proxy->address.kind == NET_UNIX)
        unlink(proxy->address.path); /* a process that comes later listens there */
    free(proxy);
}
