/*
 * lmdb.c - the same workloads on LMDB, the fastest embedded ordered store of its kind, to compare `local`
 * with.
 *
 * Called through bench_peer by `banyan bench --peer lmdb`, in the same process and with the same keys,
 * values, threads and window. LMDB gets its fastest setting that still is a store: no disk synchronisation at
 * all (NOSYNC), with its usual writes or (peer lmdb-writemap) straight into a writable map, keys compared as
 * plain bytes, the environment on tmpfs where there is one. A thread reads in one long read transaction,
 * renewed every 1,000 operations; values are read in place. It writes `batch` operations per transaction;
 * LMDB has one writer at a time.
 */
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/thread.h"
#include "bench/client.h"

#define RENEW_EVERY 1000
#define LOAD_BATCH  100000

struct peer_store {
    char folder[64];
    MDB_env *env;
    MDB_dbi table;
};

/* Of a lookup, or what is written. */
struct peer_value {
    size_t length;
    uint8_t bytes[FORMAT_VALUE_MAX + 1];
};

struct peer_thread {
    struct peer_run *run;
    struct thread *handle;
    struct workload_generator generator;
    struct bench_meter meter;
    struct bench_result result;
    MDB_txn *reading, *writing;
    MDB_cursor *cursor;
    uint32_t reads, writes;
};

struct peer_run {
    const struct bench_config *config;
    uint32_t batch;
    struct peer_store store;
    struct bench_window window;
    struct spinlock lock;
    struct peer_thread *threads;
};

static int lmdb_failed(struct error *error, const char *what, int code)
{
    return error_set(error, code == MDB_MAP_FULL ? BANYAN_ENOSPC : BANYAN_EUNKNOWN, "LMDB: %s: %s", what,
                     mdb_strerror(code));
}

/* ---- the store ---- */

static int store_open(struct peer_store *store, const struct bench_config *config, unsigned flags,
                      struct error *error)
{
    const char *parent = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(store->folder, sizeof store->folder, "%s/banyan-bench-XXXXXX", parent);
    if (!mkdtemp(store->folder)) {
        store->folder[0] = 0;
        return error_set(error, BANYAN_EUNKNOWN, "LMDB: cannot make a folder in %s", parent);
    }
    size_t entry = config->geometry.key_bytes + config->geometry.value_bytes + 32u;
    size_t map =
        (size_t)(config->keys + config->operations + config->warm_up) * entry * 4 + (UINT64_C(64) << 20);
    int code = mdb_env_create(&store->env);
    if (!code)
        code = mdb_env_set_mapsize(store->env, (map + 4095) & ~(size_t)4095);
    if (!code)
        code = mdb_env_set_maxreaders(store->env, config->threads + 8);
    if (!code)
        code = mdb_env_open(store->env, store->folder, flags, 0600);
    MDB_txn *txn = NULL;
    if (!code)
        code = mdb_txn_begin(store->env, NULL, 0, &txn);
    if (!code)
        code = mdb_dbi_open(txn, NULL, MDB_CREATE, &store->table);
    if (txn && !code)
        code = mdb_txn_commit(txn);
    else if (txn)
        mdb_txn_abort(txn);
    return code ? lmdb_failed(error, "opening", code) : 0;
}

static void store_close(struct peer_store *store)
{
    if (store->env)
        mdb_env_close(store->env);
    if (!store->folder[0])
        return;
    char path[96];
    snprintf(path, sizeof path, "%s/data.mdb", store->folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/lock.mdb", store->folder);
    unlink(path);
    rmdir(store->folder);
}

static int store_load(struct peer_store *store, const struct bench_config *config, struct error *error)
{
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX + 1];
    MDB_val k = {config->geometry.key_bytes, key}, v = {config->geometry.value_bytes, value};
    for (uint64_t rank = 0; rank < config->keys;) {
        MDB_txn *txn;
        int code = mdb_txn_begin(store->env, NULL, 0, &txn);
        if (code)
            return lmdb_failed(error, "loading", code);
        for (uint64_t end = rank + LOAD_BATCH; rank < end && rank < config->keys && !code; rank++) {
            uint64_t number = workload_loaded_number(rank);
            workload_key(number, key, k.mv_size);
            workload_value(number, 0, value, v.mv_size);
            code = mdb_put(txn, store->table, &k, &v, MDB_APPEND);
        }
        if (code)
            mdb_txn_abort(txn);
        else
            code = mdb_txn_commit(txn);
        if (code)
            return lmdb_failed(error, "loading", code);
    }
    return 0;
}

static void store_space(struct peer_store *store, struct bench_space *space)
{
    MDB_envinfo info;
    MDB_stat stat;
    mdb_env_info(store->env, &info);
    mdb_env_stat(store->env, &stat);
    space->entries = stat.ms_entries;
    space->index_bytes =
        (stat.ms_branch_pages + stat.ms_leaf_pages + stat.ms_overflow_pages) * (uint64_t)stat.ms_psize;
    space->pool_bytes = (info.me_last_pgno + 1) * (uint64_t)stat.ms_psize;
}

/* ---- operations ---- */

static int reader(struct peer_thread *thread)
{
    MDB_env *env = thread->run->store.env;
    int code = 0;
    if (!thread->reading) {
        code = mdb_txn_begin(env, NULL, MDB_RDONLY, &thread->reading);
        if (!code)
            code = mdb_cursor_open(thread->reading, thread->run->store.table, &thread->cursor);
    } else if (thread->reads >= RENEW_EVERY) {
        mdb_txn_reset(thread->reading);
        code = mdb_txn_renew(thread->reading);
        if (!code)
            code = mdb_cursor_renew(thread->reading, thread->cursor);
        thread->reads = 0;
    }
    thread->reads++;
    return code;
}

static int writer(struct peer_thread *thread)
{
    return thread->writing ? 0 : mdb_txn_begin(thread->run->store.env, NULL, 0, &thread->writing);
}

static int end_write(struct peer_thread *thread, bool now)
{
    if (!thread->writing || (!now && ++thread->writes < thread->run->batch))
        return 0;
    MDB_txn *txn = thread->writing;
    thread->writing = NULL;
    thread->writes = 0;
    return mdb_txn_commit(txn);
}

/* The value is copied, as the index's lookup does it: so its bytes are read within the time that is measured,
 * and judged behind it. */
static int perform_lookup(struct peer_thread *thread, MDB_val *key, struct peer_value *value)
{
    MDB_val found;
    int code = reader(thread);
    if (!code)
        code = mdb_get(thread->reading, thread->run->store.table, key, &found);
    if (code)
        return code;
    value->length = found.mv_size;
    memcpy(value->bytes, found.mv_data,
           found.mv_size < sizeof value->bytes ? found.mv_size : sizeof value->bytes);
    return 0;
}

/* The greatest key that is not above this one. */
static int find_below(MDB_cursor *cursor, MDB_val *key, MDB_val *found)
{
    MDB_val at = *key;
    int code = mdb_cursor_get(cursor, &at, found, MDB_SET_RANGE);
    const bool same = !code && at.mv_size == key->mv_size && !memcmp(at.mv_data, key->mv_data, at.mv_size);
    if (code == MDB_NOTFOUND)
        code = mdb_cursor_get(cursor, &at, found, MDB_LAST);
    else if (!code && !same)
        code = mdb_cursor_get(cursor, &at, found, MDB_PREV);
    *key = at;
    return code;
}

static int perform_scan(struct peer_thread *thread, const struct workload_operation *operation, MDB_val *key,
                        bool *wrong)
{
    const bool reverse = operation->kind == WORKLOAD_REVERSE_SCAN;
    MDB_val found;
    int code = reader(thread);
    uint32_t count = 0;
    while (!code && count < operation->scan_length) {
        if (count)
            code = mdb_cursor_get(thread->cursor, key, &found, reverse ? MDB_PREV : MDB_NEXT);
        else if (reverse)
            code = find_below(thread->cursor, key, &found);
        else
            code = mdb_cursor_get(thread->cursor, key, &found, MDB_SET_RANGE);
        if (code)
            break;
        *wrong |= !workload_value_matches(workload_key_number(key->mv_data), found.mv_data, found.mv_size);
        count++;
    }
    thread->result.entries_scanned += count;
    return code == MDB_NOTFOUND ? 0 : code;
}

static int perform_write(struct peer_thread *thread, const struct workload_operation *operation, MDB_val *key,
                         uint8_t *value)
{
    MDB_dbi table = thread->run->store.table;
    MDB_val new_value = {thread->run->config->geometry.value_bytes, value}, old;
    int code = writer(thread);
    if (code)
        return code;
    workload_value(operation->number, operation->salt, value, new_value.mv_size);
    if (operation->kind == WORKLOAD_DELETE)
        code = mdb_del(thread->writing, table, key, NULL);
    else if (operation->kind == WORKLOAD_UPDATE || operation->kind == WORKLOAD_MODIFY)
        code = mdb_get(thread->writing, table, key, &old);
    if (!code && operation->kind != WORKLOAD_DELETE)
        code = mdb_put(thread->writing, table, key, &new_value,
                       operation->kind == WORKLOAD_INSERT ? MDB_NOOVERWRITE : 0);
    int end = end_write(thread, false);
    return end ? end : code;
}

static int perform(struct peer_thread *thread, const struct workload_operation *operation, uint8_t *bytes,
                   struct peer_value *value, bool *wrong)
{
    MDB_val key = {thread->run->config->geometry.key_bytes, bytes};
    if (operation->kind == WORKLOAD_LOOKUP)
        return perform_lookup(thread, &key, value);
    if (workload_is_scan(operation->kind))
        return perform_scan(thread, operation, &key, wrong);
    return perform_write(thread, operation, &key, value->bytes);
}

static bool step(struct peer_thread *thread, enum bench_phase phase)
{
    struct workload_operation operation;
    struct peer_value value;
    uint8_t key[FORMAT_KEY_MAX];
    bool wrong = false;
    workload_next(&thread->generator, &operation);
    workload_key(operation.number, key, thread->run->config->geometry.key_bytes);
    const uint64_t scanned = thread->result.entries_scanned;
    uint64_t begin = task_now();
    int code = perform(thread, &operation, key, &value, &wrong);
    uint64_t end = task_now();
    if (!code && operation.kind == WORKLOAD_LOOKUP)
        wrong = !workload_value_matches(operation.number, value.bytes, value.length);
    if (wrong || (code && code != MDB_NOTFOUND)) {
        struct error error = {0};
        lmdb_failed(&error, workload_kind_names[operation.kind], wrong ? MDB_CORRUPTED : code);
        bench_window_fail(&thread->run->window, &error);
        return false;
    }
    if (phase != BENCH_MEASURING)
        thread->result.entries_scanned = scanned;
    thread->result.absent += phase == BENCH_MEASURING && code == MDB_NOTFOUND;
    bench_meter_count(&thread->meter, phase, operation.kind, begin, end, NULL);
    return true;
}

static void thread_main(void *argument)
{
    struct peer_thread *thread = argument;
    struct bench_window *window = &thread->run->window;
    if (thread->run->config->pin)
        thread_pin((unsigned)(thread - thread->run->threads));
    bench_window_warm(window);
    for (;;) {
        enum bench_phase phase = bench_window_phase(window);
        if (phase == BENCH_DONE || !step(thread, phase))
            break;
    }
    if (thread->cursor)
        mdb_cursor_close(thread->cursor);
    if (thread->reading)
        mdb_txn_abort(thread->reading);
    end_write(thread, true);
}

/* ---- the run ---- */

static void measure(struct peer_run *run, struct workload_source *source, struct bench_result *result)
{
    unsigned count = run->config->threads * run->config->compute_nodes;
    bench_window_init(&run->window, run->config, count, &run->lock);
    uint64_t begin = task_now();
    struct error error = {0};
    for (unsigned i = 0; i < count; i++) {
        struct peer_thread *thread = &run->threads[i];
        thread->run = run;
        thread->meter = (struct bench_meter){.window = &run->window, .result = &thread->result};
        workload_generator_init(&thread->generator, source, bench_client_seed(run->config, i));
        if (thread_start(&thread->handle, thread_main, thread, &error))
            bench_window_fail(&run->window, &error);
    }
    for (unsigned i = 0; i < count; i++) {
        thread_join(run->threads[i].handle);
        bench_result_merge(result, &run->threads[i].result);
    }
    result->measure_seconds = (double)(task_now() - begin) / 1e9;
    bench_result_complete(result, &run->window);
}

extern const struct bench_peer bench_peer_lmdb, bench_peer_lmdb_writemap;

static int run_with(const struct bench_peer *peer, unsigned flags, const struct bench_config *config,
                    struct workload_source *source, uint32_t batch, struct bench_result *result,
                    struct error *error)
{
    struct peer_run run = {.config = config, .batch = batch};
    if (!workload_writes(source->workload))
        snprintf(result->preset, sizeof result->preset, "%s", peer->name);
    else
        snprintf(result->preset, sizeof result->preset, "%s, %u write%s/txn", peer->name, batch,
                 batch == 1 ? "" : "s");
    snprintf(result->workload, sizeof result->workload, "%s", source->workload->name);
    snprintf(result->distribution, sizeof result->distribution, "%s",
             workload_distribution_names[source->distribution]);
    result->scan_length = source->scan_length;
    result->peer = true;
    source->inserted = 0;
    run.threads = calloc(config->threads * config->compute_nodes, sizeof *run.threads);
    int status =
        run.threads ? 0 : error_set(error, BANYAN_ENOMEM, "no memory for %u threads", config->threads);
    uint64_t begin = task_now();
    if (!status)
        status = store_open(&run.store, config, flags, error);
    if (!status)
        status = store_load(&run.store, config, error);
    result->load_seconds = (double)(task_now() - begin) / 1e9;
    if (!status) {
        store_space(&run.store, &result->loaded);
        measure(&run, source, result);
        store_space(&run.store, &result->ended);
        if (run.window.failed) {
            *error = run.window.error;
            status = error->code;
        }
    }
    store_close(&run.store);
    free(run.threads);
    return status;
}

static int lmdb_run(const struct bench_config *config, struct workload_source *source, uint32_t batch,
                    struct bench_result *result, struct error *error)
{
    return run_with(&bench_peer_lmdb, MDB_NOSYNC | MDB_NOTLS, config, source, batch, result, error);
}

static int lmdb_writemap_run(const struct bench_config *config, struct workload_source *source,
                             uint32_t batch, struct bench_result *result, struct error *error)
{
    return run_with(&bench_peer_lmdb_writemap, MDB_NOSYNC | MDB_WRITEMAP | MDB_NOTLS, config, source, batch,
                    result, error);
}

const struct bench_peer bench_peer_lmdb = {
    .name = "lmdb",
    .settings = "NOSYNC, NOTLS, on tmpfs, keys as plain bytes; reads in one transaction renewed every 1000",
    .run = lmdb_run,
};

const struct bench_peer bench_peer_lmdb_writemap = {
    .name = "lmdb-writemap",
    .settings =
        "NOSYNC, WRITEMAP, NOTLS, on tmpfs, keys as plain bytes; reads in one transaction renewed every 1000",
    .run = lmdb_writemap_run,
};
