/* peers.c - which other stores this build can compare with; see runner.h. */
#include <string.h>
#include "bench/runner.h"

#ifdef BENCH_WITH_LMDB
extern const struct bench_peer bench_peer_lmdb, bench_peer_lmdb_writemap;
#endif

static const struct bench_peer *const peers[] = {
#ifdef BENCH_WITH_LMDB
    &bench_peer_lmdb,
    &bench_peer_lmdb_writemap,
#endif
    NULL,
};

const struct bench_peer *bench_peer_find(const char *name, struct error *error)
{
    for (size_t i = 0; peers[i]; i++)
        if (!strcmp(peers[i]->name, name))
            return peers[i];
    error_set(error, BANYAN_EINVAL,
              peers[0]
                  ? "--peer: unknown peer '%.40s'; this build knows: lmdb, lmdb-writemap"
                  : "--peer: this build knows no peer '%.40s': it was made without LMDB's development files",
              name);
    return NULL;
}
