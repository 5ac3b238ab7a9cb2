/* liar.c - see liar.h. */
#include "liar.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/error.h"
#include "base/task.h"

#define LIMIT UINT64_C(20000000000) /* ns */
#define LOOK  UINT64_C(10000000)

struct talk {
    struct liar *liar;
    int fd;
};

bool liar_take(int fd, void *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        ssize_t got = recv(fd, (char *)bytes + at, length - at, 0);
        if (got > 0)
            at += (size_t)got;
        else if (got == 0 || errno != EAGAIN || net_wait(fd, EPOLLIN, LIMIT))
            return false;
    }
    return true;
}

bool liar_say(int fd, const void *bytes, size_t length)
{
    for (size_t at = 0; at < length;) {
        ssize_t some = send(fd, (const char *)bytes + at, length - at, MSG_NOSIGNAL);
        if (some >= 0)
            at += (size_t)some;
        else if (errno != EAGAIN || net_wait(fd, EPOLLOUT, LIMIT))
            return false;
    }
    return true;
}

static void *talk_main(void *argument)
{
    struct talk talk = *(struct talk *)argument;
    free(argument);
    talk.liar->talk(talk.liar, talk.fd);
    close(talk.fd);
    __atomic_sub_fetch(&talk.liar->talks, 1, __ATOMIC_ACQ_REL); /* the last look at the liar */
    return NULL;
}

static void begin_talk(struct liar *liar, int fd)
{
    pthread_t thread;
    struct talk *talk = malloc(sizeof *talk);
    if (talk == NULL)
        abort();
    *talk = (struct talk){.liar = liar, .fd = fd};
    __atomic_add_fetch(&liar->talks, 1, __ATOMIC_ACQ_REL);
    if (pthread_create(&thread, NULL, talk_main, talk) != 0 || pthread_detach(thread) != 0)
        abort();
}

static void *liar_main(void *argument)
{
    struct liar *liar = argument;
    while (!atomic_load_acquire(&liar->quit)) { /* acquire: as set by the test */
        int fd = -1;
        if (!net_wait(liar->listener, EPOLLIN, LOOK))
            net_accept(liar->listener, &fd, NULL, NULL);
        if (fd >= 0)
            begin_talk(liar, fd);
    }
    return NULL;
}

void liar_start(struct liar *liar, const struct net_address *address, void (*talk)(struct liar *liar, int fd),
                void *context)
{
    *liar = (struct liar){.address = *address, .talk = talk, .context = context};
    if (net_listen(&liar->address, 0, &liar->listener, NULL) ||
        pthread_create(&liar->thread, NULL, liar_main, liar) != 0)
        abort();
}

void liar_stop(struct liar *liar)
{
    atomic_store_release(&liar->quit, 1u); /* release: see liar_main */
    pthread_join(liar->thread, NULL);
    close(liar->listener);
    while (atomic_load_acquire(&liar->talks) > 0) /* acquire: what they did */
        task_sleep(1000000);
    if (liar->address.kind == NET_UNIX)
        unlink(liar->address.path);
}
