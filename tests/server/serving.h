/*
 * serving.h - a RESP server in the test's own process, over memory nodes of the local fabric, and plain
 * sockets to talk to it byte by byte. The test's thread calls all of it; failures of the machinery itself
 * abort the test.
 */
#ifndef TESTS_SERVER_SERVING_H
#define TESTS_SERVER_SERVING_H

#include "fabric/local.h"
#include "memory/memory.h"
#include "server/server.h"

struct serving {
    struct memory_node *memory;
    struct fabric *fabric;
    struct tree_compute *compute;
    struct server *server;
    struct net_address addresses[4];
    struct server_options options;
    uint64_t pool_bytes; /* 1 GiB; the test may change it before serving_start */
    const struct format_geometry
        *made_before; /* NULL; else the store's index is there when the server comes */
};

/* Options with one TCP listener at 127.0.0.1, a port of the system's choice, `threads` threads. The test may
 * change them before serving_start. */
void serving_prepare(struct serving *serving, unsigned threads);
/* Makes the server; serving_start starts it too. */
void serving_create(struct serving *serving);
void serving_start(struct serving *serving);
/* Stops, waits, and frees. */
void serving_end(struct serving *serving);
/* What the store's index was made with. */
struct format_geometry serving_geometry(struct serving *serving);
uint16_t serving_port(const struct serving *serving, unsigned listener);

/* A blocking socket, with a time-out of 20 s for each call. */
int serving_connect(const struct serving *serving);
int serving_connect_port(uint16_t port);
/* Sends all; false when the server has hung up. */
bool serving_send(int fd, const void *bytes, size_t length);
bool serving_say(int fd, const char *text);
/* Receives exactly as many bytes; false if the connection ends before. */
bool serving_receive(int fd, void *bytes, size_t length);
/* Asserts that the next bytes are those of the text. */
void serving_expect(int fd, const char *text);
/* Asserts that the server closes, and returns what it sent before, terminated. */
size_t serving_expect_end(int fd, char *text, size_t size);
/* Asks again and again, up to 20 s, until the condition holds. */
bool serving_until(bool (*condition)(void *context), void *context);
struct server_stats serving_stats(const struct serving *serving);

#endif
