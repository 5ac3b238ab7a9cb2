/* http.c - see http.h. */
#include "server/http.h"

#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct http {
    struct MHD_Daemon *daemon;
    const struct http_page *pages;
    struct server_password *password; /* NULL: there is none */
    bool loopback;                    /* only this machine reaches the address */
};

#define SILENCE_SECONDS 10u

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type, void *body,
                             size_t length, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(length, body, mode);
    if (!response) {
        if (mode == MHD_RESPMEM_MUST_FREE)
            free(body);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", type);
    MHD_add_response_header(response, "Cache-Control", "no-store");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
    return reply(connection, status, "text/plain; charset=utf-8", (char *)(uintptr_t)text, strlen(text),
                 MHD_RESPMEM_PERSISTENT);
}

static enum MHD_Result reply_page(struct MHD_Connection *connection, const struct http_page *page)
{
    char *body = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&body, &length);
    if (!out)
        return MHD_NO;
    page->write(page->context, out);
    if (fclose(out) || !body) {
        free(body);
        return MHD_NO;
    }
    return reply(connection, MHD_HTTP_OK, page->type, body, length, MHD_RESPMEM_MUST_FREE);
}

static bool authorized(const struct http *http, struct MHD_Connection *connection)
{
    if (!http->password || !password_wanted(http->password))
        return http->loopback;
    char *password = NULL;
    char *user = MHD_basic_auth_get_username_password(connection, &password);
    bool right = password && password_check(http->password, password, strlen(password));
    MHD_free(user);
    MHD_free(password);
    return right;
}

static enum MHD_Result ask_password(struct MHD_Connection *connection)
{
    static const char text[] = "These pages need the server's password; any user name will do.\n";
    struct MHD_Response *response =
        MHD_create_response_from_buffer(sizeof text - 1, (char *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    enum MHD_Result result = MHD_queue_basic_auth_fail_response(connection, "banyan", response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *upload,
                              size_t *upload_length, void **state)
{
    const struct http *http = context;
    (void)version;
    (void)upload;
    (void)state;
    if (*upload_length) {
        *upload_length = 0; /* dropped */
        return MHD_YES;
    }
    if (strcmp(method, "GET") && strcmp(method, "HEAD"))
        return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "Only GET and HEAD are served.\n");
    if (!strcmp(url, "/health"))
        return reply_text(connection, MHD_HTTP_OK, "ok\n");
    if (!authorized(http, connection))
        return ask_password(connection);
    for (const struct http_page *page = http->pages; page->path; page++)
        if (!strcmp(url, page->path))
            return reply_page(connection, page);
    return reply_text(connection, MHD_HTTP_NOT_FOUND, "No such page; there are /, /metrics and /health.\n");
}

int http_start(struct http **out, struct net_address *address, const struct http_page *pages,
               struct server_password *password, struct error *error)
{
    int listener = -1;
    *out = NULL;
    int status = net_listen(address, 0, &listener, error);
    if (status)
        return status;
    struct http *http = calloc(1, sizeof *http);
    if (http) {
        http->pages = pages;
        http->password = password;
        http->loopback = net_address_loopback(address);
        http->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, answer, http,
                                        MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT,
                                        HTTP_CONNECTIONS_MAX, MHD_OPTION_CONNECTION_TIMEOUT, SILENCE_SECONDS,
                                        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_END);
    }
    if (!http || !http->daemon) {
        char text[NET_TEXT_MAX];
        close(listener);
        http_stop(http);
        return error_set(error, BANYAN_ENOMEM, "HTTP at %s: no memory or threads for it",
                         net_address_format(address, text));
    }
    *out = http;
    return 0;
}

void http_stop(struct http *http)
{
    if (!http)
        return;
    if (http->daemon)
        MHD_stop_daemon(http->daemon);
    free(http);
}
