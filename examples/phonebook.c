/* phonebook.c - the basics: open a pool, create an index, store, read, change, list a range, delete.
 * Argument: a cluster's URI, such as tcp://127.0.0.1:7100; without it, a pool of this process. */
#include <banyan.h>
#include <stdio.h>
#include <string.h>

static int fail(struct banyan_session *session, const char *what, int status)
{
    fprintf(stderr, "%s: %s: %s\n", what, banyan_strerror(status),
            session ? banyan_session_error(session) : "");
    return 1;
}

/* Prints the names from `from` up to, but not including, `to`. */
static int list(struct banyan_session *session, struct banyan_index *phones, const char *from, const char *to)
{
    struct banyan_range range = {.struct_bytes = sizeof range,
                                 .from = from,
                                 .from_length = strlen(from),
                                 .to = to,
                                 .to_length = strlen(to),
                                 .to_exclusive = 1};
    struct banyan_iterator *iterator;
    const void *key, *value;
    size_t key_length, length;
    int count = 0, status = banyan_iterator_open(session, phones, &range, &iterator);
    if (status)
        return -1;
    while (!(status = banyan_iterator_next(iterator, &key, &key_length, &value, &length))) {
        printf("%.*s: %.*s\n", (int)key_length, (const char *)key, (int)length, (const char *)value);
        count++;
    }
    banyan_iterator_close(iterator);
    return status == BANYAN_ENOTFOUND ? count : -1;
}

static int use(struct banyan_session *session, struct banyan_index *phones)
{
    static const char *const entries[][2] = {
        {"grace", "555-1906"}, {"ada", "555-1815"}, {"alan", "555-1912"}};
    char number[32];
    size_t length = sizeof number;
    int status;
    for (size_t i = 0; i < 3; i++) {
        status = banyan_put(session, phones, entries[i][0], strlen(entries[i][0]), entries[i][1], 8);
        if (status)
            return fail(session, "put", status);
    }
    status = banyan_get(session, phones, "ada", 3, number, &length);
    if (status)
        return fail(session, "get", status);
    printf("ada's number is %.*s\n", (int)length, number);
    if (list(session, phones, "a", "b") != 2)
        return fail(session, "list", BANYAN_ECORRUPT);
    status = banyan_delete(session, phones, "alan", 4);
    if (status)
        return fail(session, "delete", status);
    length = sizeof number;
    status = banyan_get(session, phones, "alan", 4, number, &length);
    return status == BANYAN_ENOTFOUND ? 0 : fail(session, "get after delete", status);
}

/* The index, made where it does not exist yet: in a cluster it outlives this program. */
static int open_index(struct banyan_session *session, struct banyan_index **phones)
{
    int status = banyan_index_open(session, "phones", phones);
    return status == BANYAN_ENOTFOUND ? banyan_index_create(session, "phones", NULL, phones) : status;
}

int main(int argc, char **argv)
{
    char message[256] = "";
    struct banyan_options options = {.struct_bytes = sizeof options,
                                     .pool_bytes = 64u << 20,
                                     .uri = argc > 1 ? argv[1] : NULL,
                                     .message = message,
                                     .message_bytes = sizeof message};
    struct banyan *banyan;
    struct banyan_session *session = NULL;
    struct banyan_index *phones = NULL;
    int result = 1, status = banyan_open(&banyan, &options);
    if (status) {
        fprintf(stderr, "open: %s\n", message);
        return 1;
    }
    status = banyan_session_open(banyan, &session);
    if (!status)
        status = open_index(session, &phones);
    result = status ? fail(session, "open the index", status) : use(session, phones);
    banyan_index_close(phones);
    banyan_session_close(session);
    banyan_close(banyan);
    return result;
}
