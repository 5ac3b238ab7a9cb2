/*
 * password.h - the password of the server (requirepass), which may change while it runs. Any thread.
 */
#ifndef SERVER_PASSWORD_H
#define SERVER_PASSWORD_H

#include "base/atomic.h"
#include "net/net.h"

/* All zero: there is none. */
struct server_password {
    struct spinlock lock; /* guards length and bytes */
    uint32_t set;         /* relaxed: whether there is one; orders nothing */
    uint32_t length;
    char bytes[NET_SECRET_MAX];
};

/* `length` at most NET_SECRET_MAX; 0: none. */
void password_set(struct server_password *password, const char *text, size_t length);
/* Copies it; returns its length. */
size_t password_get(struct server_password *password, char text[NET_SECRET_MAX]);
/* Whether one has to be given. */
bool password_wanted(const struct server_password *password);
/* Whether this is it; takes the same time for every text. */
bool password_check(struct server_password *password, const char *text, size_t length);
/* Wipes it. */
void password_destroy(struct server_password *password);

#endif
