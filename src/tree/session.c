/*
 * session.c - The objects of tree.h, errors with messages, buffers, and the one place where command lists are
 * executed: the `combine` switch decides here what shares a round trip. Fails with the fabric's errors,
 * named.
 */
#include "tree/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- life -------------------------------------------------------------------------------------------------
 */

int tree_compute_create(struct tree_compute **out, struct fabric *fabric,
                        const struct tree_switches *switches, struct error *error)
{
    *out = NULL;
    struct tree_compute *compute = calloc(1, sizeof *compute);
    if (!compute)
        return error_set(error, BANYAN_ENOMEM, "no memory for a compute node");
    compute->fabric = fabric;
    compute->switches = *switches;
    compute->epochs = epoch_domain_create();
    compute->locks = tree_lock_table_create();
    if (!compute->epochs || !compute->locks) {
        tree_compute_destroy(compute);
        return error_set(error, BANYAN_ENOMEM, "no memory for a compute node's lock table");
    }
    *out = compute;
    return 0;
}

void tree_compute_destroy(struct tree_compute *compute)
{
    if (!compute)
        return;
    if (compute->locks)
        tree_lock_table_destroy(compute->locks);
    if (compute->epochs)
        epoch_domain_destroy(compute->epochs);
    free(compute);
}

struct fabric *tree_compute_fabric(const struct tree_compute *compute)
{
    return compute->fabric;
}

int tree_worker_create(struct tree_worker **out, struct tree_compute *compute, struct error *error)
{
    *out = NULL;
    struct tree_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return error_set(error, BANYAN_ENOMEM, "no memory for a worker");
    worker->compute = compute;
    worker->memory_nodes = fabric_capabilities(compute->fabric)->memory_nodes;
    int status = 0;
    worker->epoch = epoch_slot_acquire(compute->epochs);
    if (!worker->epoch || tree_arenas_create(worker)) {
        status = error_set(error, BANYAN_ENOMEM, "no memory for a worker's free lists");
    } else {
        worker->endpoint = fabric_endpoint_open(compute->fabric, error);
        if (!worker->endpoint)
            status = error && error->code ? error->code : BANYAN_ENET;
    }
    if (status) {
        tree_worker_abandon(worker);
        return status;
    }
    *out = worker;
    return 0;
}

void tree_worker_abandon(struct tree_worker *worker)
{
    if (!worker)
        return;
    if (worker->endpoint)
        fabric_endpoint_close(worker->endpoint);
    tree_arenas_destroy(worker);
    if (worker->epoch)
        epoch_slot_release(worker->epoch);
    free(worker);
}

void tree_worker_destroy(struct tree_worker *worker)
{
    if (!worker)
        return;
    tree_arenas_return(worker);
    tree_worker_abandon(worker);
}

int tree_session_create(struct tree_session **out, struct tree_worker *worker, struct error *error)
{
    *out = calloc(1, sizeof **out);
    if (!*out)
        return error_set(error, BANYAN_ENOMEM, "no memory for a session");
    (*out)->worker = worker;
    (*out)->compute = worker->compute;
    (*out)->waiter.session = *out;
    return 0;
}

void tree_session_destroy(struct tree_session *session)
{
    if (!session)
        return;
    free(session->image.bytes);
    free(session->scratch);
    free(session->spare);
    free(session->wide);
    free(session->batch);
    free(session->order);
    free(session->entries);
    free(session->keys);
    free(session->gather);
    free(session);
}

const struct error *tree_session_error(const struct tree_session *session)
{
    return &session->error;
}

const struct tree_stats *tree_session_stats(const struct tree_session *session)
{
    return &session->stats;
}

void tree_session_stats_reset(struct tree_session *session)
{
    memset(&session->stats, 0, sizeof session->stats);
}

/* ---- errors ---- */

int tree_session_fail(struct tree_session *session, int code, const char *format, ...)
{
    char text[sizeof session->error.text];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return error_set(&session->error, code, "%s", text);
}

int tree_fail_memory(struct tree_session *session)
{
    return tree_fail(session, BANYAN_ENOMEM, "no memory for a session's buffers");
}

int tree_unknown(struct tree_session *session, int status)
{
    if (status == BANYAN_ENET || status == BANYAN_ETIMEOUT)
        return tree_fail(session, BANYAN_EUNKNOWN, "the write may have taken effect: %s", error_name(status));
    return status;
}

int tree_corrupt(struct tree_session *session, gaddr node, const char *what)
{
    char text[GADDR_TEXT_BYTES];
    return tree_fail(session, BANYAN_ECORRUPT, "node %s: %s", gaddr_format(node, text), what);
}

int tree_invalid(struct tree_session *session, gaddr node, const char *what)
{
    return ++session->invalid <= TREE_PATIENCE ? TREE_RESTART : tree_corrupt(session, node, what);
}

int tree_restart(struct tree_session *session, gaddr node)
{
    session->stats.retries++;
    if (++session->restarts > TREE_RESTARTS_MAX)
        return tree_corrupt(session, node, "the tree leads here in circles");
    if (session->restarts > 64) /* somebody else is at work there: let it */
        task_sleep(session->restarts > 1024 ? 1000000 : 10000);
    else if (session->restarts > 8)
        task_yield();
    return 0;
}

/* ---- buffers and arguments ---- */

int tree_reserve(struct tree_session *session, uint8_t **buffer, uint32_t *capacity, uint32_t bytes)
{
    if (*capacity >= bytes)
        return 0;
    uint8_t *larger = aligned_alloc(64, (bytes + 63u) & ~63u);
    if (!larger)
        return tree_fail_memory(session);
    memset(larger, 0, bytes);
    free(*buffer);
    *buffer = larger;
    *capacity = bytes;
    return 0;
}

int tree_reserve_wide(struct tree_session *session, size_t bytes)
{
    if (session->wide_capacity >= bytes)
        return 0;
    uint8_t *larger = aligned_alloc(64, bytes);
    if (!larger)
        return tree_fail_memory(session);
    free(session->wide);
    session->wide = larger;
    session->wide_capacity = bytes;
    return 0;
}

int tree_buffers(struct tree_session *session, const struct tree *tree)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    uint32_t larger =
        geometry->leaf_bytes > geometry->internal_bytes ? geometry->leaf_bytes : geometry->internal_bytes;
    if (session->image.capacity >= larger && session->spare_capacity >= larger)
        return 0;
    int status = tree_reserve(session, &session->image.bytes, &session->image.capacity, larger);
    if (!status)
        status = tree_reserve(session, &session->scratch, &session->scratch_capacity, larger);
    if (!status)
        status = tree_reserve(session, &session->spare, &session->spare_capacity, larger);
    return status;
}

int tree_begin(struct tree_session *session, struct tree *tree)
{
    tree_session_begin(session);
    session->restarts = session->invalid = session->walked = 0;
    session->image.address = GADDR_NULL;
    session->stats.operations++;
    task_charge(TASK_WORK_OPERATION, 1);
    return tree_buffers(session, tree);
}

int tree_key_check(struct tree_session *session, struct tree *tree, const void *key, size_t length)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    if (!key && length)
        return tree_fail(session, BANYAN_EINVAL, "index %s: the key is a null pointer", tree->name);
    if (geometry->key_kind == FORMAT_KEY_FIXED && length != geometry->key_bytes)
        return tree_fail(session, BANYAN_EKEYSIZE, "index %s: a key has %u bytes, this one %zu", tree->name,
                         geometry->key_bytes, length);
    if (!length || length > geometry->key_bytes)
        return tree_fail(session, BANYAN_EKEYSIZE, "index %s: a key has 1 to %u bytes, this one %zu",
                         tree->name, geometry->key_bytes, length);
    return 0;
}

int tree_value_check(struct tree_session *session, struct tree *tree, const void *value, size_t length)
{
    const struct format_geometry *geometry = &tree->layout.geometry;
    if (!value && length)
        return tree_fail(session, BANYAN_EINVAL, "index %s: the value is a null pointer", tree->name);
    if (geometry->value_variable ? length > geometry->value_bytes : length != geometry->value_bytes)
        return tree_fail(session, BANYAN_EVALUESIZE, "index %s: a value has %s%u bytes, this one %zu",
                         tree->name, geometry->value_variable ? "at most " : "", geometry->value_bytes,
                         length);
    return 0;
}

/* ---- executing ---- */

/* How many of the commands may share a list under the `combine` switch. */
static uint32_t combine_length(const struct tree_session *session, const struct fabric_command *commands,
                               uint32_t count)
{
    if (session->compute->switches.combine == TREE_COMBINE_ALL)
        return count < FABRIC_COMMANDS_MAX ? count : FABRIC_COMMANDS_MAX;
    uint32_t together = 1;
    if (session->compute->switches.combine == TREE_COMBINE_WRITES && commands[0].operation == FABRIC_WRITE)
        while (together < count && together < FABRIC_COMMANDS_MAX &&
               commands[together].operation != FABRIC_READ)
            together++;
    return together;
}

static bool cas_failed(const struct fabric_command *command)
{
    return command->operation == FABRIC_CAS &&
           (command->cas.old & command->cas.mask) != (command->cas.compare & command->cas.mask);
}

int tree_fabric_failed(struct tree_session *session, int status, const struct fabric_command *commands,
                       uint32_t count)
{
    char text[GADDR_TEXT_BYTES];
    gaddr at = commands[0].address;
    if (commands[0].operation == FABRIC_CAS && count > 1)
        at = commands[1].address; /* the node, rather than its lock */
    /* All addresses come from links: one that no memory node has is a corrupt link's. */
    if (status == BANYAN_EADDRESS || status == BANYAN_EINVAL)
        return tree_corrupt(session, at, "a link leads outside of the pool");
    char what[GADDR_TEXT_BYTES + 16];
    snprintf(what, sizeof what, "commands at %s", gaddr_format(at, text));
    return tree_node_failed(session, status, gaddr_node(at), what);
}

int tree_node_failed(struct tree_session *session, int status, uint16_t node, const char *what)
{
    char trouble[160] = "";
    fabric_trouble(session->compute->fabric, node, trouble, sizeof trouble);
    return tree_fail(session, status, "%s failed: %s%s%s", what, error_name(status), trouble[0] ? ": " : "",
                     trouble);
}

int tree_not_done(struct tree_session *session, int status)
{
    if (status != BANYAN_EUNKNOWN)
        return status;
    char cause[sizeof session->error.text];
    snprintf(cause, sizeof cause, "%s", session->error.text);
    return tree_fail(session, BANYAN_ENET, "not done: while helping: %s", cause);
}

bool tree_again(struct tree_session *session, int *status)
{
    /* No loss since it began: whoever refuses it then would do so for ever. */
    if (*status != BANYAN_EFENCED || fabric_incarnation(session->compute->fabric) == session->incarnation)
        return false;
    session->stats.retries++;
    session->image.address = GADDR_NULL;
    tree_session_begin(session);
    *status = 0;
    return true;
}

void tree_session_begin(struct tree_session *session)
{
    session->incarnation = fabric_incarnation(session->compute->fabric);
}

int tree_lists_execute(struct tree_session *session, struct fabric_list *const *lists, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        lists[i]->incarnation = session->incarnation;
    int status = fabric_execute(session->worker->endpoint, lists, count, &session->stats.cost);
    for (uint32_t i = 0; status && i < count; i++)
        if (lists[i]->status)
            return tree_fabric_failed(session, status, lists[i]->commands, lists[i]->count);
    return status;
}

int tree_execute(struct tree_session *session, uint16_t node, struct fabric_command *commands, uint32_t count)
{
    bool begun = false, wrote = false;
    for (; count; begun = true) {
        uint32_t together = combine_length(session, commands, count);
        struct fabric_list list = {.node = node,
                                   .count = (uint16_t)together,
                                   .commands = commands,
                                   .incarnation = session->incarnation};
        struct fabric_list *lists[1] = {&list};
        int status = fabric_execute(session->worker->endpoint, lists, 1, &session->stats.cost);
        if (status == BANYAN_EFENCED && begun)
            status = BANYAN_ENET; /* what stood before it is done: no longer "nothing" */
        if (status == BANYAN_ENOMEM && wrote)
            status = BANYAN_ENET; /* likewise; who has only locked and read gives the lock back */
        if (status)
            return tree_fabric_failed(session, status, commands, together);
        if (together == 1 && cas_failed(commands))
            return 0;
        wrote = wrote || commands[0].operation == FABRIC_WRITE;
        commands += together;
        count -= together;
    }
    return 0;
}

int tree_memory_call(struct tree_session *session, uint16_t node, const void *request, size_t length,
                     void *reply, size_t capacity, size_t *reply_length)
{
    char trouble[160];
    int status = fabric_call(session->worker->endpoint, node, request, length, reply, capacity, reply_length,
                             &session->stats.cost);
    if (!status)
        return 0;
    if (status == BANYAN_EFENCED) /* no connection: nothing that beginning again would mend */
        status = BANYAN_ENET;
    fabric_trouble(session->compute->fabric, node, trouble, sizeof trouble);
    return tree_fail(session, status, "a call of memory node %u failed: %s%s%s", (unsigned)node,
                     error_name(status), trouble[0] ? ": " : "", trouble);
}

uint16_t tree_session_memory_nodes(const struct tree_session *session)
{
    return session->worker->memory_nodes;
}

struct tree_worker *tree_session_worker(const struct tree_session *session)
{
    return session->worker;
}
