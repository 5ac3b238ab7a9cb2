/*
 * dump.h - what the files of `banyan dump` share: dump.c (the command, and what one server says) and
 * dump_ranges.c (a cluster, range by range). One thread.
 */
#ifndef CLI_DUMP_H
#define CLI_DUMP_H

#include <hiredis/hiredis.h>
#include "archive/archive.h"
#include "cli/client.h"
#include "cli/output_file.h"
#include "net/net.h"

#define DUMP_SERVERS_MAX  64u
#define DUMP_WAIT_SECONDS 30u /* for one reply, and for a range that nobody serves */
#define DUMP_RETRY_NS     UINT64_C(100000000)

enum dump_format { DUMP_BANYAN, DUMP_AOF };
enum dump_consistent { CONSISTENT_AUTO, CONSISTENT_REQUIRE, CONSISTENT_OFF };

struct dump_settings {
    char *output, *password_file, *from, *to;
    uint32_t compress;
    int format, consistent; /* enum dump_format, enum dump_consistent */
    bool json;
};

/* A bound as RANGE takes it: "-", "+", "[key" or "(key". */
struct dump_bound {
    char bytes[ARCHIVE_KEY_MAX + 2];
    size_t length;
};

struct dump_server {
    struct net_address address;
    redisContext *connection; /* owned; NULL: lost, or not made yet */
    redisReply *ranges;       /* owned: what it said last to CUT RANGES, validated; NULL: nothing */
    char process[48];         /* which of the cluster's it is, as it says; "": it has not said yet */
};

struct dump {
    struct dump_settings settings;
    char password[NET_SECRET_MAX + 1];
    struct dump_server servers[DUMP_SERVERS_MAX];
    unsigned server_count;
    struct dump_server *server;    /* that is asked; one of these */
    struct archive_writer *writer; /* of the format banyan */
    struct output_file output;
    uint64_t keys, bytes;
    struct client_progress progress;
    uint32_t limit;
    struct dump_bound last; /* the lower bound of what is still to be read */
    struct dump_bound to;   /* the upper bound of the part that is read */
    bool cut;               /* the server has a cut for this connection, and the part comes from it */
    bool ended;             /* the part is read */
    /* How the keys were read: */
    uint64_t moments;                 /* cuts */
    uint64_t plain_parts, plain_keys; /* key by key: parts that lie together, and their keys */
    bool unnamed;                     /* some of them belong to a server that was not named */
};

enum dump_opening { DUMP_OPENED, DUMP_NONE, DUMP_LATER };

/* Asks dump->server for a cut from dump->last to dump->to. *opening: DUMP_NONE: the server has none to give;
 * DUMP_LATER: it is busy, or a range is on its way. `words` gets what it said. An error: it said something
 * else, or the connection is lost (dump_lost). */
int dump_cut_open(struct dump *dump, enum dump_opening *opening, char words[300], struct error *error);
/* Reads the part: from dump->last to dump->to, from the cut or key by key. BANYAN_EFENCED: the cut is over,
 * since the range is not its server's any more; dump_lost: the connection is. */
int dump_part(struct dump *dump, struct error *error);
/* Sends a command to dump->server, and gets its reply; NULL: the connection was lost. */
redisReply *dump_ask(struct dump *dump, int count, const char **arguments, const size_t *lengths,
                     struct error *error);
bool dump_lost(const struct dump *dump);
int dump_strange(const char *what, struct error *error);

/* All keys of a cluster: each range from its owner, as of one moment, as far as the owners are among the
 * servers; else, unless settings.consistent forbids that, key by key. All servers are connected. */
int dump_ranges(struct dump *dump, struct error *error);

#endif
