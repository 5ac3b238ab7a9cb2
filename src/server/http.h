/*
 * http.h - a few read-only pages over HTTP (libmicrohttpd): metrics for Prometheus, a status page for people.
 *
 * Called by the command line. The library's own thread runs the pages' functions, so these must be safe on
 * any thread; a page is made anew for each request. Bodies of requests are dropped. At most
 * HTTP_CONNECTIONS_MAX connections are held, and a connection is closed after some seconds of silence.
 */
#ifndef SERVER_HTTP_H
#define SERVER_HTTP_H

#include <stdio.h>

#include "server/password.h"

#define HTTP_CONNECTIONS_MAX 64u

struct http;
struct http_page {
    const char *path; /* "/metrics"; NULL ends the table */
    const char *type; /* "text/html; charset=utf-8" */
    void (*write)(void *context, FILE *out);
    void *context;
};

/* Serves the pages at the address; address->port is set where it was 0. `pages` and `password` must stay.
 *
 * While a password is set, every page but /health asks for it (basic authentication, any user name; status
 * 401). While none is set, the pages are open if the address is the loopback's or a Unix socket, and else
 * closed: other machines never see them without a password. `password` NULL: there is none. /health says only
 * that the process answers. BANYAN_EINVAL, BANYAN_EBUSY, BANYAN_ENET name the address. */
int http_start(struct http **http, struct net_address *address, const struct http_page *pages,
               struct server_password *password, struct error *error);
void http_stop(struct http *http);

#endif
