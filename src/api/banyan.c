/*
 * banyan.c - the C API (include/banyan.h) over the tree, and over the store for indexes of records
 * (records.c).
 *
 * Called by programs, on any of their threads; the header states which object belongs to which thread. This
 * file judges every argument that comes from outside, so that the layers below may assert; it keeps the
 * counts of open handles that turn a wrong order of closing into BANYAN_EBUSY. A session holds a tree worker
 * of its own, because a worker belongs to one thread and the program, not the library, makes the threads.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "api/handles.h"
#include "base/atomic.h"

#define LONG_KEY_BYTES    64u
#define LONG_KEY_INTERNAL 4096u

#define TEXT_OF(x)     #x
#define NUMBER_TEXT(x) TEXT_OF(x)
#define VERSION_TEXT                                                                                         \
    NUMBER_TEXT(BANYAN_VERSION_MAJOR)                                                                        \
    "." NUMBER_TEXT(BANYAN_VERSION_MINOR) "." NUMBER_TEXT(BANYAN_VERSION_PATCH)

/* ---- common ------------------------------------------------------------------------------------ */

const char *banyan_strerror(int code)
{
    return error_name(code);
}

const char *banyan_version(int *major, int *minor, int *patch)
{
    if (major)
        *major = BANYAN_VERSION_MAJOR;
    if (minor)
        *minor = BANYAN_VERSION_MINOR;
    if (patch)
        *patch = BANYAN_VERSION_PATCH;
    return VERSION_TEXT;
}

/* Reads a caller's struct that may be older or newer than ours. */
int api_struct_in(void *ours, size_t our_bytes, const void *theirs, const char *name, struct error *error)
{
    size_t their_bytes;
    memcpy(&their_bytes, theirs, sizeof their_bytes);
    if (their_bytes < sizeof their_bytes || their_bytes > 65536)
        return error_set(error, BANYAN_EINVAL, "%s: struct_bytes is %zu, not its size", name, their_bytes);
    for (size_t i = our_bytes; i < their_bytes; i++)
        if (((const unsigned char *)theirs)[i] != 0)
            return error_set(error, BANYAN_ENOTSUP, "%s: byte %zu sets something this version does not know",
                             name, i);
    memset(ours, 0, our_bytes);
    memcpy(ours, theirs, their_bytes < our_bytes ? their_bytes : our_bytes);
    return BANYAN_OK;
}

/* Fills a caller's struct, as far as the caller knows it; struct_bytes stays, unknown fields become 0. */
static int struct_out(void *theirs, const void *ours, size_t our_bytes)
{
    size_t their_bytes;
    memcpy(&their_bytes, theirs, sizeof their_bytes);
    if (their_bytes < sizeof their_bytes || their_bytes > 65536)
        return BANYAN_EINVAL;
    memset((char *)theirs + sizeof their_bytes, 0, their_bytes - sizeof their_bytes);
    size_t copied = their_bytes < our_bytes ? their_bytes : our_bytes;
    memcpy((char *)theirs + sizeof their_bytes, (const char *)ours + sizeof their_bytes,
           copied - sizeof their_bytes);
    return BANYAN_OK;
}

/* A count only catches a program's mistakes: the program orders its own closes, so relaxed is enough. */
void api_count(uint32_t *count, int change)
{
    atomic_add_relaxed(count, (uint32_t)change);
}

/* Keeps the tree's message where banyan_session_error finds it. */
int api_result(struct banyan_session *session, int status)
{
    if (status) {
        const struct error *error = tree_session_error(session->tree_session);
        if (error->code == status)
            session->error = *error;
        else
            error_set(&session->error, status, "%s", error_name(status));
    }
    return status;
}

int api_check(struct banyan_session *session, const struct banyan_index *index)
{
    if (!session)
        return BANYAN_EINVAL;
    if (!index)
        return error_set(&session->error, BANYAN_EINVAL, "the index is NULL");
    if (index->banyan != session->banyan)
        return error_set(&session->error, BANYAN_EINVAL, "index %s is of another pool", index->name);
    return BANYAN_OK;
}

static int check_key(struct banyan_session *session, const struct banyan_index *index, const void *key,
                     size_t length)
{
    int status = api_check(session, index);
    if (status)
        return status;
    if (!key)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the key is NULL", index->name);
    const struct format_geometry *geometry = tree_geometry(index->tree);
    bool fits = geometry->key_kind == FORMAT_KEY_FIXED ? length == geometry->key_bytes
                                                       : length >= 1 && length <= geometry->key_bytes;
    if (!fits)
        return error_set(&session->error, BANYAN_EKEYSIZE, "index %s: a key of %zu bytes; %s %u", index->name,
                         length, geometry->key_kind == FORMAT_KEY_FIXED ? "keys have" : "keys have 1 to",
                         geometry->key_bytes);
    return BANYAN_OK;
}

static bool value_fits(const struct banyan_index *index, size_t length)
{
    const struct format_geometry *geometry = tree_geometry(index->tree);
    if (index->store)
        return length <= STORE_VALUE_MAX;
    return geometry->value_variable ? length <= geometry->value_bytes : length == geometry->value_bytes;
}

static int check_value(struct banyan_session *session, const struct banyan_index *index, const void *value,
                       size_t length)
{
    const struct format_geometry *geometry = tree_geometry(index->tree);
    if (!value && length > 0)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the value is NULL", index->name);
    if (!value_fits(index, length) && index->store)
        return error_set(&session->error, BANYAN_EVALUESIZE,
                         "index %s: a value of %zu bytes; values have at most %u", index->name, length,
                         BANYAN_VALUE_MAX);
    if (!value_fits(index, length))
        return error_set(
            &session->error, BANYAN_EVALUESIZE, "index %s: a value of %zu bytes; %s %u", index->name, length,
            geometry->value_variable ? "values have at most" : "values have", geometry->value_bytes);
    return BANYAN_OK;
}

static int check_entry(struct banyan_session *session, const struct banyan_index *index, const void *key,
                       size_t key_length, const void *value, size_t length)
{
    int status = check_key(session, index, key, key_length);
    return status ? status : check_value(session, index, value, length);
}

/* The layers below may take the address of an empty value for granted. */
static const void *value_or_empty(const void *value)
{
    return value ? value : "";
}

int banyan_pool_status(struct banyan *banyan, struct banyan_pool_status *status)
{
    struct memory_status_reply sum;
    if (!banyan || !status)
        return BANYAN_EINVAL;
    int failed = api_pool_status(banyan, &sum);
    const struct banyan_pool_status result = {
        .memory_nodes = banyan->node_count,
        .pool_bytes = sum.pool_bytes,
        .chunk_bytes = sum.chunk_bytes,
        .chunks_total = sum.chunks_total,
        .chunks_used = sum.chunks_used,
        .blocks_used = sum.blocks_used,
        .bytes_used = sum.bytes_used,
        .bytes_free_in_chunks = sum.bytes_free_in_chunks,
    };
    return failed ? failed : struct_out(status, &result, sizeof result);
}

/* ---- sessions ------------------------------------------------------------------------------------- */

int banyan_session_open(struct banyan *banyan, struct banyan_session **session)
{
    struct error error = {0};
    if (session)
        *session = NULL;
    if (!banyan || !session)
        return BANYAN_EINVAL;
    struct banyan_session *opened = calloc(1, sizeof *opened);
    if (!opened)
        return BANYAN_ENOMEM;
    opened->banyan = banyan;
    int status = pool_worker_create(&opened->worker, tree_compute_pool(banyan->compute), &error);
    if (!status) {
        status = tree_session_create(&opened->tree_session, banyan->compute, opened->worker, &error);
        if (status)
            pool_worker_destroy(opened->worker);
    }
    if (status) {
        free(opened);
        return status;
    }
    api_count(&banyan->sessions, 1);
    *session = opened;
    return BANYAN_OK;
}

int banyan_session_close(struct banyan_session *session)
{
    if (!session)
        return BANYAN_OK;
    if (session->iterators)
        return error_set(&session->error, BANYAN_EBUSY, "the session has %u open iterators",
                         session->iterators);
    api_detach_session(session);
    tree_session_destroy(session->tree_session);
    pool_worker_destroy(session->worker);
    free(session->room);
    api_count(&session->banyan->sessions, -1);
    free(session);
    return BANYAN_OK;
}

const char *banyan_session_error(const struct banyan_session *session)
{
    return session ? session->error.text : "the session is NULL";
}

int banyan_session_stats(const struct banyan_session *session, struct banyan_session_stats *stats)
{
    if (!session || !stats)
        return BANYAN_EINVAL;
    const struct tree_stats *from = tree_session_stats(session->tree_session);
    struct banyan_session_stats to = {
        .operations = from->operations,
        .round_trips = from->cost.round_trips,
        .reads = from->cost.reads,
        .writes = from->cost.writes,
        .atomics = from->cost.atomics,
        .rpcs = from->cost.rpcs,
        .bytes_read = from->cost.bytes_read,
        .bytes_written = from->cost.bytes_written,
        .retries = from->retries,
        .cache_hits = from->cache_hits,
        .cache_misses = from->cache_misses,
        .splits = from->splits,
        .unlinks = from->unlinks,
    };
    return struct_out(stats, &to, sizeof to);
}

int banyan_session_stats_reset(struct banyan_session *session)
{
    if (!session)
        return BANYAN_EINVAL;
    tree_session_stats_reset(session->tree_session);
    return BANYAN_OK;
}

/* ---- indexes ---------------------------------------------------------------------------------------- */

static int check_name(struct banyan_session *session, const char *name, struct banyan_index **index)
{
    if (index)
        *index = NULL;
    if (!session)
        return BANYAN_EINVAL;
    if (!index || !name)
        return error_set(&session->error, BANYAN_EINVAL, "the index's %s is NULL", name ? "handle" : "name");
    size_t length = strnlen(name, BANYAN_NAME_MAX + 1u);
    if (length == 0 || length > BANYAN_NAME_MAX)
        return error_set(&session->error, BANYAN_EINVAL, "an index's name has 1 to %u bytes",
                         BANYAN_NAME_MAX);
    return BANYAN_OK;
}

/* Records: the store's own geometry, with what else the program asks for. */
static int geometry_of_records(struct banyan_session *session, const struct banyan_geometry *given,
                               struct format_geometry *geometry)
{
    if (!given->key_variable || !given->value_variable)
        return error_set(&session->error, BANYAN_EINVAL,
                         "geometry: value_bytes above %u needs variable keys and variable values",
                         BANYAN_SLOT_VALUE_MAX);
    store_geometry(geometry);
    if (given->leaf_bytes)
        geometry->leaf_bytes = given->leaf_bytes;
    if (given->internal_bytes)
        geometry->internal_bytes = given->internal_bytes;
    if (given->inline_key_bytes)
        geometry->inline_key_bytes = (uint8_t)given->inline_key_bytes;
    if (given->key_bytes)
        geometry->key_bytes = (uint8_t)given->key_bytes;
    return format_geometry_complete(geometry, fabric_capabilities(session->banyan->fabric)->atomic_write,
                                    &session->error);
}

/* The largest power of two that is not larger. */
static uint32_t largest_power(uint32_t number)
{
    uint32_t power = 1;
    while (power <= number / 2)
        power *= 2;
    return power;
}

static int geometry_convert(struct banyan_session *session, const struct banyan_geometry *given,
                            struct format_geometry *geometry)
{
    struct banyan_geometry g = {.key_variable = 1, .value_bytes = BANYAN_VALUE_MAX, .value_variable = 1};
    if (given) {
        int status = api_struct_in(&g, sizeof g, given, "geometry", &session->error);
        if (status)
            return status;
    }
    if (g.key_bytes > FORMAT_KEY_MAX || g.inline_key_bytes > FORMAT_KEY_MAX)
        return error_set(&session->error, BANYAN_EINVAL,
                         "geometry: key_bytes %u, inline_key_bytes %u: one is above %u", g.key_bytes,
                         g.inline_key_bytes, FORMAT_KEY_MAX);
    if (g.value_bytes > BANYAN_VALUE_MAX)
        return error_set(&session->error, BANYAN_EINVAL, "geometry: value_bytes is %u, at most %u",
                         g.value_bytes, BANYAN_VALUE_MAX);
    if (g.key_variable > 1 || g.value_variable > 1)
        return error_set(&session->error, BANYAN_EINVAL,
                         "geometry: key_variable and value_variable are 0 or 1");
    if (g.value_bytes > FORMAT_VALUE_MAX)
        return geometry_of_records(session, &g, geometry);
    /* Inner nodes hold whole keys: the tree's own default has no room for enough long ones. */
    uint32_t atomic_write = fabric_capabilities(session->banyan->fabric)->atomic_write;
    if (g.internal_bytes == 0 && g.key_bytes > LONG_KEY_BYTES)
        g.internal_bytes = largest_power(atomic_write < LONG_KEY_INTERNAL ? atomic_write : LONG_KEY_INTERNAL);
    *geometry = (struct format_geometry){
        .leaf_bytes = g.leaf_bytes,
        .internal_bytes = g.internal_bytes,
        .key_kind = g.key_variable ? FORMAT_KEY_VARIABLE : FORMAT_KEY_FIXED,
        .key_bytes = (uint8_t)g.key_bytes,
        .inline_key_bytes = (uint8_t)g.inline_key_bytes,
        .value_bytes = (uint8_t)g.value_bytes,
        .value_variable = g.value_variable != 0,
    };
    return format_geometry_complete(geometry, atomic_write, &session->error);
}

/* Creates (geometry given) or opens the tree and wraps it. */
static int index_wrap(struct banyan_session *session, const char *name,
                      const struct format_geometry *geometry, struct banyan_index **index)
{
    struct banyan_index *opened = calloc(1, sizeof *opened);
    if (!opened)
        return error_set(&session->error, BANYAN_ENOMEM, "index %s: no memory for its handle", name);
    opened->banyan = session->banyan;
    snprintf(opened->name, sizeof opened->name, "%s", name);
    int status = geometry ? tree_create(session->tree_session, name, geometry, &opened->tree)
                          : tree_open(session->tree_session, name, &opened->tree);
    if (status) {
        free(opened);
        return api_result(session, status);
    }
    if (tree_geometry(opened->tree)->content == FORMAT_CONTENT_STORE) {
        status = store_wrap(&opened->store, opened->tree, &session->error);
        if (status) {
            tree_close(opened->tree);
            free(opened);
            return status;
        }
    }
    api_count(&session->banyan->indexes, 1);
    *index = opened;
    return BANYAN_OK;
}

int banyan_index_create(struct banyan_session *session, const char *name,
                        const struct banyan_geometry *geometry, struct banyan_index **index)
{
    struct format_geometry converted;
    int status = check_name(session, name, index);
    if (!status)
        status = geometry_convert(session, geometry, &converted);
    return status ? status : index_wrap(session, name, &converted, index);
}

int banyan_index_open(struct banyan_session *session, const char *name, struct banyan_index **index)
{
    int status = check_name(session, name, index);
    return status ? status : index_wrap(session, name, NULL, index);
}

int banyan_index_close(struct banyan_index *index)
{
    if (!index)
        return BANYAN_OK;
    if (atomic_load_relaxed(&index->users))
        return BANYAN_EBUSY;
    api_detach_index(index);
    if (index->store)
        store_close(index->store);
    else
        tree_close(index->tree);
    api_count(&index->banyan->indexes, -1);
    free(index);
    return BANYAN_OK;
}

int banyan_index_geometry(const struct banyan_index *index, struct banyan_geometry *geometry)
{
    if (!index || !geometry)
        return BANYAN_EINVAL;
    const struct format_geometry *from = tree_geometry(index->tree);
    struct banyan_geometry to = {
        .key_bytes = from->key_bytes,
        .key_variable = from->key_kind == FORMAT_KEY_VARIABLE,
        .value_bytes = index->store ? BANYAN_VALUE_MAX : from->value_bytes,
        .value_variable = from->value_variable,
        .leaf_bytes = from->leaf_bytes,
        .internal_bytes = from->internal_bytes,
        .inline_key_bytes = from->inline_key_bytes,
    };
    return struct_out(geometry, &to, sizeof to);
}

struct list_call {
    void (*visit)(void *context, const char *name);
    void *context;
};

static void list_visit(void *context, const char *name, const struct format_geometry *geometry)
{
    struct list_call *call = context;
    (void)geometry;
    call->visit(call->context, name);
}

int banyan_index_list(struct banyan_session *session, void (*visit)(void *context, const char *name),
                      void *context)
{
    if (!session)
        return BANYAN_EINVAL;
    if (!visit)
        return error_set(&session->error, BANYAN_EINVAL, "the visit function is NULL");
    struct list_call call = {visit, context};
    return api_result(session, tree_list(session->tree_session, list_visit, &call));
}

/* ---- one key ------------------------------------------------------------------------------------------ */

int banyan_get(struct banyan_session *session, struct banyan_index *index, const void *key, size_t key_length,
               void *value, size_t *length)
{
    unsigned char whole[FORMAT_VALUE_MAX];
    size_t whole_length = sizeof whole;
    int status = check_key(session, index, key, key_length);
    if (status)
        return status;
    if (!length || (!value && *length > 0))
        return error_set(&session->error, BANYAN_EINVAL, "index %s: no room for the value", index->name);
    if (index->store)
        return api_records_get(session, index, key, key_length, value, length);
    /* By way of a buffer that always suffices, so that a value that does not fit still tells its length. */
    status = tree_lookup(session->tree_session, index->tree, key, key_length, whole, &whole_length);
    if (status)
        return api_result(session, status);
    size_t room = *length;
    *length = whole_length;
    if (whole_length > room)
        return error_set(&session->error, BANYAN_EVALUESIZE,
                         "index %s: the value has %zu bytes, room for %zu", index->name, whole_length, room);
    if (whole_length > 0)
        memcpy(value, whole, whole_length);
    return BANYAN_OK;
}

int banyan_put(struct banyan_session *session, struct banyan_index *index, const void *key, size_t key_length,
               const void *value, size_t length)
{
    int status = check_entry(session, index, key, key_length, value, length);
    if (status)
        return status;
    if (index->store)
        return api_records_put(session, index, API_PUT, key, key_length, value_or_empty(value), length, 0,
                               NULL, 0);
    return api_result(session, tree_upsert(session->tree_session, index->tree, key, key_length,
                                           value_or_empty(value), length));
}

int banyan_put_until(struct banyan_session *session, struct banyan_index *index, const void *key,
                     size_t key_length, const void *value, size_t length, uint64_t expires_ms)
{
    int status = check_entry(session, index, key, key_length, value, length);
    if (status)
        return status;
    if (!index->store)
        return error_set(&session->error, BANYAN_ENOTSUP,
                         "index %s: only indexes of records have entries that expire", index->name);
    return api_records_put(session, index, API_PUT, key, key_length, value_or_empty(value), length,
                           expires_ms, NULL, 0);
}

int banyan_insert(struct banyan_session *session, struct banyan_index *index, const void *key,
                  size_t key_length, const void *value, size_t length)
{
    int status = check_entry(session, index, key, key_length, value, length);
    if (status)
        return status;
    if (index->store)
        return api_records_put(session, index, API_INSERT, key, key_length, value_or_empty(value), length, 0,
                               NULL, 0);
    return api_result(session, tree_insert(session->tree_session, index->tree, key, key_length,
                                           value_or_empty(value), length));
}

int banyan_update(struct banyan_session *session, struct banyan_index *index, const void *key,
                  size_t key_length, const void *value, size_t length)
{
    int status = check_entry(session, index, key, key_length, value, length);
    if (status)
        return status;
    if (index->store)
        return api_records_put(session, index, API_UPDATE, key, key_length, value_or_empty(value), length, 0,
                               NULL, 0);
    return api_result(session, tree_update(session->tree_session, index->tree, key, key_length,
                                           value_or_empty(value), length));
}

int banyan_delete(struct banyan_session *session, struct banyan_index *index, const void *key,
                  size_t key_length)
{
    int status = check_key(session, index, key, key_length);
    if (status)
        return status;
    return index->store
               ? api_records_delete(session, index, key, key_length)
               : api_result(session, tree_delete(session->tree_session, index->tree, key, key_length));
}

int banyan_compare_and_set(struct banyan_session *session, struct banyan_index *index, const void *key,
                           size_t key_length, const void *expected, size_t expected_length, const void *value,
                           size_t length)
{
    int status = check_entry(session, index, key, key_length, value, length);
    if (!status)
        status = check_value(session, index, expected, expected_length);
    if (status)
        return status;
    if (index->store)
        return api_records_put(session, index, API_REPLACE, key, key_length, value_or_empty(value), length, 0,
                               value_or_empty(expected), expected_length);
    return api_result(session, tree_compare_and_set(session->tree_session, index->tree, key, key_length,
                                                    value_or_empty(expected), expected_length,
                                                    value_or_empty(value), length));
}

struct modify_call {
    banyan_modify_function *function;
    void *context;
    struct banyan_session *session;
    const struct banyan_index *index;
    int status; /* of the last run: what the call returns if the tree has no complaint of its own */
};

static enum tree_verdict modify_run(void *context, const void *old, size_t old_length, void *value,
                                    size_t *length)
{
    struct modify_call *call = context;
    const struct format_geometry *geometry = tree_geometry(call->index->tree);
    size_t new_length = geometry->value_bytes;
    enum banyan_verdict verdict = call->function(call->context, old, old_length, value, &new_length);
    call->status = BANYAN_OK;
    switch (verdict) {
    case BANYAN_KEEP:
        return TREE_KEEP;
    case BANYAN_REMOVE:
        return TREE_DELETE;
    case BANYAN_STORE:
        if (value_fits(call->index, new_length)) {
            *length = new_length;
            return TREE_PUT;
        }
        call->status =
            error_set(&call->session->error, BANYAN_EVALUESIZE,
                      "index %s: the function made a value of %zu bytes", call->index->name, new_length);
        return TREE_KEEP;
    case BANYAN_REFUSE:
        call->status = error_set(&call->session->error, BANYAN_EABORT,
                                 "index %s: the function refused the change", call->index->name);
        return TREE_KEEP;
    }
    call->status = error_set(&call->session->error, BANYAN_EINVAL, "index %s: the function's verdict is %d",
                             call->index->name, (int)verdict);
    return TREE_KEEP;
}

int banyan_modify(struct banyan_session *session, struct banyan_index *index, const void *key,
                  size_t key_length, banyan_modify_function *function, void *context)
{
    int status = check_key(session, index, key, key_length);
    if (status)
        return status;
    if (!function)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the function is NULL", index->name);
    if (index->store)
        return api_records_modify(session, index, key, key_length, function, context);
    struct modify_call call = {function, context, session, index, BANYAN_OK};
    status = tree_modify(session->tree_session, index->tree, key, key_length, modify_run, &call);
    return status ? api_result(session, status) : call.status;
}

/* ---- many keys ----------------------------------------------------------------------------------------- */

#define GROUP_MAX                                                                                            \
    64 /* keys given to the tree at once: bounds the stack, and suffices to overlap round trips */
#define STATUS_UNTOUCHED 1 /* no status: those are 0 or negative */

typedef int multi_function(struct tree_session *, struct tree *, struct tree_item *, size_t);

static int item_check(struct banyan_session *session, const struct banyan_index *index,
                      const struct banyan_item *item, bool put)
{
    if (put)
        return check_entry(session, index, item->key, item->key_length, item->value, item->length);
    if (!item->value && item->length > 0)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: no room for a value", index->name);
    return check_key(session, index, item->key, item->key_length);
}

static void multi_group(struct banyan_session *session, struct banyan_index *index, struct banyan_item *items,
                        size_t count, bool put)
{
    struct tree_item group[GROUP_MAX];
    struct banyan_item *origin[GROUP_MAX];
    static char empty[1];
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        items[i].status = item_check(session, index, &items[i], put);
        if (items[i].status)
            continue;
        group[used] = (struct tree_item){.key = items[i].key,
                                         .key_length = items[i].key_length,
                                         .value = items[i].value ? items[i].value : empty,
                                         .length = items[i].length,
                                         .status = STATUS_UNTOUCHED};
        origin[used++] = &items[i];
    }
    if (used == 0)
        return;
    if (index->store) {
        api_records_multi(session, index, origin, used, put);
        return;
    }
    multi_function *function = put ? tree_multi_put : tree_multi_get;
    int status = function(session->tree_session, index->tree, group, used);
    for (size_t i = 0; i < used; i++) {
        if (group[i].status == STATUS_UNTOUCHED) /* the group failed before its turn */
            group[i].status = status ? status : BANYAN_EUNKNOWN;
        origin[i]->status = group[i].status;
        if (!put)
            origin[i]->length = group[i].length;
    }
    if (status && status != BANYAN_ENOTFOUND)
        api_result(session, status);
}

static int multi(struct banyan_session *session, struct banyan_index *index, struct banyan_item *items,
                 size_t count, bool put)
{
    int status = api_check(session, index);
    if (status)
        return status;
    if (!items && count > 0)
        return error_set(&session->error, BANYAN_EINVAL, "index %s: the items are NULL", index->name);
    for (size_t start = 0; start < count; start += GROUP_MAX)
        multi_group(session, index, items + start, count - start < GROUP_MAX ? count - start : GROUP_MAX,
                    put);
    for (size_t i = 0; i < count; i++)
        if (items[i].status && items[i].status != BANYAN_ENOTFOUND)
            return items[i].status;
    return BANYAN_OK;
}

int banyan_multi_get(struct banyan_session *session, struct banyan_index *index, struct banyan_item *items,
                     size_t count)
{
    return multi(session, index, items, count, false);
}

int banyan_multi_put(struct banyan_session *session, struct banyan_index *index, struct banyan_item *items,
                     size_t count)
{
    return multi(session, index, items, count, true);
}
