/* saves.c - see saves.h. */
#include "server/saves.h"

#include "pool/pool.h"
#include "server/state.h"

enum fabric_durability server_durability(const struct server *server)
{
    const struct durable *durable = server->options.durable;
    enum fabric_durability least = FABRIC_KEPT_ON_DISK_ALWAYS;
    if (durable)
        return durable_always(durable) ? FABRIC_KEPT_ON_DISK_ALWAYS : FABRIC_KEPT_ON_DISK;
    for (uint16_t node = 0; node < server_memory_nodes(server); node++) {
        if (!server_memory_is(server, node))
            continue;
        const enum fabric_durability kept = fabric_durability(server->fabric, node);
        least = kept < least ? kept : least;
    }
    return least;
}

int server_save_begin(const struct server *server, struct error *error)
{
    if (server->options.durable)
        return durable_save(server->options.durable, error);
    if (server->options.saver.begin && server_durability(server) >= FABRIC_KEPT_ON_DISK)
        return server->options.saver.begin(server->options.saver.context, error);
    return error_set(error, BANYAN_ENOTSUP,
                     "this server keeps nothing on a disk: start it, or its memory nodes, with --data and "
                     "--durability disk-second or disk-always");
}

void server_save_look(const struct server *server, struct server_saves *saves)
{
    *saves = (struct server_saves){.saving = false};
    if (server->options.durable) {
        struct durable_stats stats;
        durable_stats(server->options.durable, &stats);
        *saves = (struct server_saves){.saving = stats.saving,
                                       .failed = stats.save_failed,
                                       .saves = stats.saves,
                                       .saved_ms = stats.saved_at,
                                       .ns = stats.save_ns};
    } else if (server->options.saver.look) {
        server->options.saver.look(server->options.saver.context, saves);
    }
}

int server_persist(const struct server *server, struct store_session *session)
{
    struct pool_session *pool = tree_session_pool(store_session_tree(session));
    uint16_t nodes[POOL_PERSIST_MAX];
    uint32_t at;
    uint16_t count = 0;
    for (uint16_t node = 0; node < server_memory_nodes(server) && count < POOL_PERSIST_MAX; node++)
        if (server_memory_is(server, node))
            nodes[count++] = node;
    return pool_persist(pool, nodes, count, &at);
}
