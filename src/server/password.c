/* password.c - see password.h. */
#include "server/password.h"

#include <assert.h>
#include <string.h>

void password_set(struct server_password *password, const char *text, size_t length)
{
    assert(length <= sizeof password->bytes);
    spinlock_lock(&password->lock);
    memset(password->bytes, 0, sizeof password->bytes);
    memcpy(password->bytes, text, length);
    password->length = (uint32_t)length;
    spinlock_unlock(&password->lock);
    atomic_store_relaxed(&password->set, length != 0);
}

size_t password_get(struct server_password *password, char text[NET_SECRET_MAX])
{
    spinlock_lock(&password->lock);
    memcpy(text, password->bytes, sizeof password->bytes);
    size_t length = password->length;
    spinlock_unlock(&password->lock);
    return length;
}

bool password_wanted(const struct server_password *password)
{
    return atomic_load_relaxed(&password->set);
}

bool password_check(struct server_password *password, const char *text, size_t length)
{
    char given[NET_SECRET_MAX] = {0}, wanted[NET_SECRET_MAX];
    memcpy(given, text, length < sizeof given ? length : sizeof given);
    bool same_length = password_get(password, wanted) == length;
    bool same = net_equal(given, wanted, sizeof given) & same_length;
    explicit_bzero(given, sizeof given);
    explicit_bzero(wanted, sizeof wanted);
    return same;
}

void password_destroy(struct server_password *password)
{
    explicit_bzero(password->bytes, sizeof password->bytes);
}
