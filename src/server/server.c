/*
 * server.c - the server's life: listeners, threads with their fibers, what they do from time to time, and the
 * figures. Contract in server.h; the objects are client.h's.
 *
 * Thread 0 accepts, and hands connections out in turn. Each thread has a keeper, a fiber that sets the
 * thread's sessions up, ticks ten times a second (idle clients, published figures), and takes everything down
 * at the end: when the server stops, a thread's command fibers return, then the keepers wait for each other,
 * since threads post to each other until their last command has ended.
 */
#include "server/connection.h"
#include "server/cursors.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

#define TICK_NS        UINT64_C(100000000)
#define ACCEPT_ROUND   64u /* connections taken before others get their turn */
#define FLUSH_GRACE_NS UINT64_C(1000000000)
#define STORE_NAME     "redis"
#define OUTPUT_MAX     (UINT64_C(256) << 20)
#define CLIENT_MEMORY  (UINT64_C(1) << 30)
/* The values of commands under way may have so much, at least. */
#define VALUES_MEMORY   (4 * STORE_VALUE_MAX)
#define DESCRIPTORS_OWN 64u /* of this process, beside its clients' */
#define SPARE_BLOCKS    256u

/* ---- accepting ---- */

static bool from_this_machine(int fd)
{
    struct sockaddr_storage storage = {0};
    socklen_t length = sizeof storage;
    if (getpeername(fd, (struct sockaddr *)&storage, &length))
        return false;
    if (storage.ss_family == AF_INET) {
        const struct sockaddr_in *address = (const struct sockaddr_in *)&storage;
        return ntohl(address->sin_addr.s_addr) >> 24 == 127;
    }
    if (storage.ss_family == AF_INET6) {
        const struct in6_addr *address = &((const struct sockaddr_in6 *)&storage)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(address) ||
               (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
    }
    return storage.ss_family == AF_UNIX;
}

static const char denied_text[] =
    "-DENIED This server runs in protected mode: it has no password, and so takes connections from its own "
    "machine alone. Connect through the loopback interface or a Unix socket, or set a password (setting "
    "requirepass), or, where the network is trusted, turn protected mode off (setting protected-mode no) and "
    "start the server again.\r\n";
static const char full_text[] = "-ERR max number of clients reached\r\n";

/* A refused connection is told why, if that fits into its socket's buffer. */
static void connection_refuse(struct server *server, const struct server_listener *listener, int fd,
                              const char *text)
{
    if (!listener->tls) {
        ssize_t sent = send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
        (void)sent;
    }
    counter_add(&server->threads[0].counters.clients_rejected, 1);
    close(fd);
}

struct handover {
    struct server_thread *thread;
    int fd;
    bool tls, unix_socket;
    char peer[];
};

/* On the thread that gets the connection. */
static void handover_receive(void *argument)
{
    struct handover *handover = argument;
    struct server_thread *thread = handover->thread;
    struct server *server = thread->server;
    char *peer = strdup(handover->peer);
    struct net_stream *stream = NULL;
    if (peer && !thread->stopping)
        stream = net_stream_create(handover->fd, handover->tls ? server->tls : NULL, true, NULL);
    else
        close(handover->fd);
    if (!stream)
        free(peer);
    if (!stream || !client_open(thread, stream, peer, handover->unix_socket))
        atomic_add_relaxed(&server->clients, (uint64_t)-1);
    free(handover);
}

static void connection_hand_over(struct server *server, const struct server_listener *listener, int fd,
                                 const char *peer)
{
    struct server_thread *thread = &server->threads[server->next_thread++ % server->thread_count];
    struct handover *handover = malloc(sizeof *handover + strlen(peer) + 1);
    atomic_add_relaxed(&server->clients, 1);
    if (handover) {
        handover->thread = thread;
        handover->fd = fd;
        handover->tls = listener->tls;
        handover->unix_socket = listener->address.kind == NET_UNIX;
        strcpy(handover->peer, peer);
        if (thread->number == 0) {
            handover_receive(handover);
            return;
        }
        if (!worker_post(thread->worker, handover_receive, handover))
            return;
        free(handover);
    }
    atomic_add_relaxed(&server->clients, (uint64_t)-1);
    connection_refuse(server, listener, fd, full_text);
}

/* Too few descriptors, or the like: asking again at once would get the same answer. */
static void listeners_rest(struct server *server)
{
    server->accept_retry_ns = task_now() + TICK_NS;
    for (unsigned i = 0; i < server->listener_count; i++)
        if (server->listeners[i].watched)
            worker_watch_change(&server->listeners[i].watch, 0);
}

/* Protected mode refuses those of whom nothing is known. */
static bool stranger(const struct server_listener *listener, int fd)
{
    const struct server *server = listener->server;
    return server->options.protected_mode && !atomic_load_relaxed(&server->guarded) &&
           !(listener->tls && server->options.tls_clients) && !from_this_machine(fd);
}

static void listener_ready(struct worker_watch *watch, uint32_t events)
{
    struct server_listener *listener = (struct server_listener *)watch;
    struct server *server = listener->server;
    (void)events;
    for (unsigned i = 0; i < ACCEPT_ROUND; i++) {
        char peer[NET_TEXT_MAX];
        struct error error = {0};
        int fd = -1;
        if (net_accept(listener->fd, &fd, peer, &error)) {
            log_warning("cannot accept a connection: %s", error.text);
            listeners_rest(server);
            return;
        }
        if (fd < 0)
            return;
        if (atomic_load_relaxed(&server->clients) >= atomic_load_relaxed(&server->clients_max))
            connection_refuse(server, listener, fd, full_text);
        else if (stranger(listener, fd))
            connection_refuse(server, listener, fd, denied_text);
        else
            connection_hand_over(server, listener, fd, peer);
    }
}

static void listeners_close(struct server *server)
{
    for (unsigned i = 0; i < server->listener_count; i++) {
        struct server_listener *listener = &server->listeners[i];
        if (listener->watched)
            worker_watch_remove(&listener->watch);
        listener->watched = false;
        if (listener->fd >= 0) {
            close(listener->fd);
            if (listener->address.kind == NET_UNIX)
                unlink(listener->address.path);
        }
        listener->fd = -1;
    }
}

static int listeners_watch(struct server *server, struct error *error)
{
    for (unsigned i = 0; i < server->listener_count; i++) {
        struct server_listener *listener = &server->listeners[i];
        if (worker_watch_add(server->threads[0].worker, &listener->watch, listener->fd, EPOLLIN,
                             listener_ready))
            return error_set(error, BANYAN_ENOMEM, "cannot wait for connections: no memory");
        listener->watched = true;
    }
    return 0;
}

/* ---- a thread's sessions and fibers ---- */

static void stats_add(struct tree_stats *sum, const struct tree_stats *stats)
{
    fabric_cost_add(&sum->cost, &stats->cost);
    sum->operations += stats->operations;
    sum->retries += stats->retries;
    sum->cache_hits += stats->cache_hits;
    sum->cache_misses += stats->cache_misses;
    sum->splits += stats->splits;
    sum->unlinks += stats->unlinks;
    sum->handovers += stats->handovers;
    sum->snapshot_handovers += stats->snapshot_handovers;
}

/* Publishes what the thread's sessions have counted. On the thread. */
static void thread_publish(struct server_thread *thread)
{
    struct tree_stats sum = {0};
    for (unsigned i = 0; thread->fibers && i < thread->server->options.fibers; i++)
        if (thread->fibers[i].session)
            stats_add(&sum, tree_session_stats(thread->fibers[i].session));
    spinlock_lock(&thread->lock);
    thread->tree_stats = sum;
    spinlock_unlock(&thread->lock);
}

static void thread_take_down(struct server_thread *thread)
{
    unsigned count = thread->fibers ? thread->server->options.fibers : 0;
    thread_publish(thread);
    for (unsigned i = 0; i < count; i++) {
        if (thread->fibers[i].store)
            store_session_destroy(thread->fibers[i].store);
        tree_session_destroy(thread->fibers[i].session);
    }
    free(thread->fibers);
    thread->fibers = NULL;
    tree_worker_destroy(thread->tree);
    thread->tree = NULL;
}

static int session_open(struct server_thread *thread, struct tree_session **session,
                        struct store_session **store, struct error *error)
{
    int status = tree_session_create(session, thread->tree, error);
    return status ? status : store_session_create(store, thread->server->store, *session, error);
}

static int thread_set_up(struct server_thread *thread, struct error *error)
{
    struct server *server = thread->server;
    int status = tree_worker_create(&thread->tree, server->compute, error);
    if (status)
        return status;
    thread->fibers = calloc(server->options.fibers, sizeof *thread->fibers);
    if (!thread->fibers)
        return error_set(error, BANYAN_ENOMEM, "no memory for the fibers of a thread");
    for (unsigned i = 0; !status && i < server->options.fibers; i++) {
        thread->fibers[i].thread = thread;
        status = session_open(thread, &thread->fibers[i].session, &thread->fibers[i].store, error);
        if (!status)
            store_session_set_cancel(thread->fibers[i].store, client_fiber_cancelled, &thread->fibers[i]);
    }
    return status;
}

static int fiber_start(struct server_thread *thread, void (*function)(void *), void *argument,
                       struct error *error)
{
    if (worker_spawn(thread->worker, function, argument))
        return error_set(error, BANYAN_ENOMEM, "no memory for a fiber");
    thread->fibers_live++;
    return 0;
}

/* ---- fibers of thread 0 beside those for commands ---- */

/* Removes expired entries bit by bit, and counts what is there as it goes. */
static void sweep_main(void *argument)
{
    struct server_thread *thread = argument;
    struct server *server = thread->server;
    struct tree_session *session = NULL;
    struct store_session *store = NULL;
    struct store_sweep *sweep = calloc(1, sizeof *sweep);
    if (!sweep || session_open(thread, &session, &store, NULL))
        log_error("no memory for the sweep: entries that have expired are removed only when they are met");
    uint64_t passes = 0;
    while (sweep && store && !thread->stopping) {
        uint64_t seen = sweep->seen, removed = sweep->removed, before = sweep->passes;
        int status = store_sweep_step(store, sweep, server->options.sweep_entries);
        if (sweep->passes != passes) {
            passes = sweep->passes;
            atomic_store_relaxed(&server->keys, sweep->last_pass_keys);
            atomic_store_relaxed(&server->keys_at_ns, task_now());
        }
        /* Much to do (a quarter of what it saw): sooner again. Not across the end of a pass. */
        bool many = !status && sweep->passes == before && sweep->removed > removed &&
                    (sweep->removed - removed) * 4 >= sweep->seen - seen;
        task_sleep(many ? TICK_NS / 50 : TICK_NS);
    }
    if (store)
        store_session_destroy(store);
    tree_session_destroy(session);
    free(sweep);
    thread->fibers_live--;
}

static void node_ask(struct server *server, struct tree_session *session, unsigned number)
{
    struct server_node *node = &server->nodes[number];
    struct memory_status_request request = {.kind = MEMORY_STATUS};
    struct memory_status_reply reply = {0};
    char trouble[sizeof node->trouble] = "";
    size_t length = 0;
    int status =
        tree_memory_call(session, (uint16_t)number, &request, sizeof request, &reply, sizeof reply, &length);
    if (status) {
        fabric_trouble(server->fabric, (uint16_t)number, trouble, sizeof trouble);
        if (!trouble[0])
            snprintf(trouble, sizeof trouble, "%s", tree_session_error(session)->text);
    }
    spinlock_lock(&node->lock);
    node->connected = !status;
    if (!status) {
        node->asked = true;
        node->status = reply;
    }
    memcpy(node->trouble, trouble, sizeof trouble);
    spinlock_unlock(&node->lock);
}

/* Asks the memory nodes how they are, each about once a second. */
static void nodes_main(void *argument)
{
    struct server_thread *thread = argument;
    struct tree_session *session = NULL;
    if (tree_session_create(&session, thread->tree, NULL))
        log_error("no memory to ask memory nodes for their state");
    for (unsigned i = 0; session && !thread->stopping; i = (i + 1) % thread->server->node_count) {
        node_ask(thread->server, session, i);
        if (i + 1 < thread->server->node_count)
            continue;
        for (unsigned tick = 0; tick < 10 && !thread->stopping; tick++)
            task_sleep(TICK_NS);
    }
    tree_session_destroy(session);
    thread->fibers_live--;
}

/* For benchmarks: as long as some fiber can run, the worker does not sleep. */
static void busy_main(void *argument)
{
    struct server_thread *thread = argument;
    while (!thread->stopping)
        task_yield();
    thread->fibers_live--;
}

/* ---- the keeper of a thread ---- */

/* On the thread, in a callback or its keeper. */
static void thread_stop(void *argument)
{
    struct server_thread *thread = argument;
    if (thread->stopping)
        return;
    thread->stopping = true;
    if (thread->number == 0)
        listeners_close(thread->server);
    for (struct server_client *client = thread->clients, *next; client; client = next) {
        next = client->next;
        if (!client->running)
            client_finish(client);
    }
    while (thread->idle) {
        struct server_fiber *fiber = thread->idle;
        thread->idle = fiber->next_idle;
        fiber->idle = false;
        thread->woken++;
        task_unpark(fiber->task);
    }
}

static void idle_clients_close(struct server_thread *thread, uint64_t now)
{
    uint64_t timeout = atomic_load_relaxed(&thread->server->idle_timeout_s) * UINT64_C(1000000000);
    if (!timeout || now - thread->idle_checked_ns < 5 * TICK_NS)
        return;
    thread->idle_checked_ns = now;
    for (struct server_client *client = thread->clients, *next; client; client = next) {
        next = client->next;
        if (!client->running && !client->ready && now > client->active_ns &&
            now - client->active_ns > timeout)
            client_close(client);
    }
}

/* How many commands a second, about. Thread 0. */
static void rate_sample(struct server *server, uint64_t now)
{
    struct server_counters sum;
    if (now - server->sampled_ns < 10 * TICK_NS)
        return;
    server_counters_sum(server, &sum);
    uint64_t commands = sum.commands > server->sampled_commands ? sum.commands - server->sampled_commands : 0;
    atomic_store_relaxed(&server->commands_per_second,
                         (uint64_t)((double)commands * 1e9 / (double)(now - server->sampled_ns)));
    server->sampled_commands = sum.commands;
    server->sampled_ns = now;
}

static void thread_tick(struct server_thread *thread)
{
    struct server *server = thread->server;
    uint64_t now = task_now();
    /* Acquire: see server.stopping. */
    if (atomic_load_acquire(&server->stopping))
        thread_stop(thread);
    idle_clients_close(thread, now);
    thread_publish(thread);
    if (thread->number == 0)
        rate_sample(server, now);
    if (thread->number == 0 && server->accept_retry_ns && now >= server->accept_retry_ns) {
        server->accept_retry_ns = 0;
        for (unsigned i = 0; i < server->listener_count; i++)
            if (server->listeners[i].watched)
                worker_watch_change(&server->listeners[i].watch, EPOLLIN);
    }
}

/* Commands under way end, their replies get a while to be sent, then all clients are closed. */
static void thread_wind_up(struct server_thread *thread)
{
    struct server *server = thread->server;
    while (thread->fibers_live)
        task_sleep(TICK_NS / 100);
    uint64_t until = task_now() + FLUSH_GRACE_NS;
    while (thread->clients && task_now() < until)
        task_sleep(TICK_NS / 100);
    for (struct server_client *client = thread->clients, *next; client; client = next) {
        next = client->next;
        client_close(client);
    }
    while (thread->clients) /* the turn hook has some in hand */
        task_sleep(TICK_NS / 100);
    /* Release and acquire: what others posted to this thread came before they were quiet. */
    __atomic_fetch_add(&server->quiet_threads, 1u, __ATOMIC_ACQ_REL);
    while (atomic_load_acquire(&server->quiet_threads) < server->thread_count)
        task_sleep(TICK_NS / 100);
}

static int thread_begin(struct server_thread *thread, struct error *error)
{
    struct server *server = thread->server;
    int status = thread_set_up(thread, error);
    for (unsigned i = 0; !status && i < server->options.fibers; i++)
        status = fiber_start(thread, client_fiber_main, &thread->fibers[i], error);
    if (!status && server->options.busy_poll)
        status = fiber_start(thread, busy_main, thread, error);
    if (status || thread->number)
        return status;
    if (server->options.sweep_entries != UINT32_MAX)
        status = fiber_start(thread, sweep_main, thread, error);
    if (!status)
        status = fiber_start(thread, nodes_main, thread, error);
    return status ? status : listeners_watch(server, error);
}

/* Tells server_start how it went; the first trouble counts. */
static void start_report(struct server *server, const struct error *error)
{
    spinlock_lock(&server->start_lock);
    if (error->code && !server->start_error.code)
        server->start_error = *error;
    struct task *starter = server->starter;
    spinlock_unlock(&server->start_lock);
    __atomic_fetch_add(&server->started_threads, 1u, __ATOMIC_ACQ_REL);
    task_unpark(starter);
}

static void keeper_main(void *argument)
{
    struct server_thread *thread = argument;
    struct error error = {0};
    if (thread_begin(thread, &error))
        server_stop(thread->server);
    start_report(thread->server, &error);
    while (!thread->stopping) {
        thread_tick(thread);
        if (!thread->stopping)
            task_sleep(TICK_NS);
    }
    thread_wind_up(thread);
    thread_take_down(thread);
    worker_hook_remove(thread->worker, &thread->hook);
}

static void thread_main(void *argument)
{
    struct server_thread *thread = argument;
    worker_run(thread->worker);
}

/* ---- creation ---- */

static void options_complete(struct server_options *options)
{
    if (!options->threads)
        options->threads = thread_cpus();
    if (!options->fibers)
        options->fibers = 64;
    if (!options->clients_max)
        options->clients_max = 10000;
    if (!options->value_max)
        options->value_max = STORE_VALUE_MAX;
    if (!options->query_buffer_max)
        options->query_buffer_max = options->value_max + 65536;
    if (options->query_buffer_max < CLIENT_BLOCK_BYTES)
        options->query_buffer_max = CLIENT_BLOCK_BYTES;
    if (!options->output_buffer_max)
        options->output_buffer_max = OUTPUT_MAX;
    if (!options->client_memory_max)
        options->client_memory_max = CLIENT_MEMORY;
    if (!options->sweep_entries)
        options->sweep_entries = 256;
}

/* As many descriptors as the system allows: clients need them. */
static void descriptors_raise(uint64_t clients_max)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) || getrlimit(RLIMIT_NOFILE, &limit))
            return;
    }
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < clients_max + DESCRIPTORS_OWN)
        log_warning(
            "the system allows this process %llu open files: too few for %llu clients (see ulimit -n)",
            (unsigned long long)limit.rlim_cur, (unsigned long long)clients_max);
}

static int listeners_open(struct server *server, const struct server_options *options, struct error *error)
{
    unsigned count = options->listen_count + options->listen_tls_count;
    server->listeners = calloc(count + 1, sizeof *server->listeners);
    if (!server->listeners)
        return error_set(error, BANYAN_ENOMEM, "no memory for listeners");
    for (unsigned i = 0; i < count; i++) {
        struct server_listener *listener = &server->listeners[i];
        listener->server = server;
        listener->fd = -1;
        listener->tls = i >= options->listen_count;
        listener->address =
            listener->tls ? options->listen_tls[i - options->listen_count] : options->listen[i];
        if (listener->tls && !options->tls)
            return error_set(error, BANYAN_EINVAL, "listening with TLS needs a certificate");
        int status = net_listen(&listener->address, options->unix_mode, &listener->fd, error);
        if (status)
            return status;
        server->listener_count++;
    }
    return 0;
}

/* Opens the store with a session of its own, which is not needed afterwards. */
static int store_attach(struct server *server, struct error *error)
{
    struct tree_worker *worker = NULL;
    struct tree_session *session = NULL;
    int status = tree_worker_create(&worker, server->compute, error);
    if (!status)
        status = tree_session_create(&session, worker, error);
    if (!status) {
        status = store_open(&server->store, session, STORE_NAME, true);
        if (status)
            error_set(error, status, "%s", tree_session_error(session)->text);
        else
            store_set_memory_max(server->store, server->options.client_memory_max > VALUES_MEMORY
                                                    ? server->options.client_memory_max
                                                    : VALUES_MEMORY);
    }
    tree_session_destroy(session);
    tree_worker_destroy(worker);
    return status;
}

static int threads_create(struct server *server, struct error *error)
{
    unsigned commands = command_table_count(server->table);
    server->threads = calloc(server->options.threads, sizeof *server->threads);
    if (!server->threads)
        return error_set(error, BANYAN_ENOMEM, "no memory for threads");
    for (unsigned i = 0; i < server->options.threads; i++) {
        struct server_thread *thread = &server->threads[i];
        server->thread_count++;
        thread->server = server;
        thread->number = i;
        thread->hook.turn = client_turn;
        thread->worker = worker_create();
        thread->commands = calloc(commands, sizeof *thread->commands);
        thread->spare = calloc(SPARE_BLOCKS, sizeof *thread->spare);
        thread->latency = histogram_create();
        thread->latency_before = histogram_create();
        if (!thread->worker || !thread->commands || !thread->spare || !thread->latency ||
            !thread->latency_before || worker_spawn(thread->worker, keeper_main, thread))
            return error_set(error, BANYAN_ENOMEM, "no memory for threads");
        worker_hook_add(thread->worker, &thread->hook);
    }
    return 0;
}

static void run_id_make(char text[41])
{
    uint8_t bytes[20];
    net_random(bytes, sizeof bytes);
    for (unsigned i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
}

static int server_fill(struct server *server, struct tree_compute *compute,
                       const struct server_options *options, struct error *error)
{
    static const struct server_command *const tables[] = {server_string_commands, server_key_commands,
                                                          server_range_commands, server_admin_commands, NULL};
    server->compute = compute;
    server->fabric = tree_compute_fabric(compute);
    server->options = *options;
    options_complete(&server->options);
    server->tls = options->tls;
    server->node_count = fabric_capabilities(server->fabric)->memory_nodes;
    server->clients_max = server->options.clients_max;
    server->value_max = server->options.value_max;
    server->idle_timeout_s = options->idle_timeout_s;
    server->started_ns = server->sampled_ns = task_now();
    server->started_ms = clock_wall_ms();
    run_id_make(server->run_id);
    if (options->password && strlen(options->password) > sizeof server->password)
        return error_set(error, BANYAN_EINVAL, "a password has at most %zu bytes", sizeof server->password);
    if (options->password)
        server_password_set(server, options->password, strlen(options->password));
    server->nodes = calloc(server->node_count, sizeof *server->nodes);
    server->cursors = server_cursors_create();
    if (!server->nodes || !server->cursors)
        return error_set(error, BANYAN_ENOMEM, "no memory for a server");
    descriptors_raise(server->clients_max);
    int status = command_table_create(&server->table, tables, error);
    if (!status)
        status = store_attach(server, error);
    if (!status)
        status = threads_create(server, error);
    return status ? status : listeners_open(server, options, error);
}

int server_create(struct server **out, struct tree_compute *compute, const struct server_options *options,
                  struct error *error)
{
    *out = NULL;
    struct server *server = calloc(1, sizeof *server);
    if (!server)
        return error_set(error, BANYAN_ENOMEM, "no memory for a server");
    int status = server_fill(server, compute, options, error);
    if (status)
        server_destroy(server);
    else
        *out = server;
    return status;
}

void server_set_settings(struct server *server, const struct server_setting *settings)
{
    server->settings = settings;
}

void server_destroy(struct server *server)
{
    if (!server)
        return;
    listeners_close(server);
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct server_thread *thread = &server->threads[i];
        worker_destroy(thread->worker);
        client_spare_free(thread);
        free(thread->commands);
        histogram_destroy(thread->latency);
        histogram_destroy(thread->latency_before);
    }
    free(server->threads);
    if (server->store)
        store_close(server->store);
    command_table_destroy(server->table);
    server_cursors_destroy(server->cursors);
    free(server->nodes);
    free(server->listeners);
    explicit_bzero(server->password, sizeof server->password);
    free(server);
}

uint16_t server_port(const struct server *server, unsigned i)
{
    return i < server->listener_count ? server->listeners[i].address.port : 0;
}

/* ---- starting and stopping ---- */

int server_start(struct server *server, struct error *error)
{
    int status = 0;
    unsigned started = 0;
    server->starter = task_self();
    while (!status && started < server->thread_count) {
        status =
            thread_start(&server->threads[started].thread, thread_main, &server->threads[started], error);
        started += !status;
    }
    if (status) { /* those that have started wait for no others */
        server->thread_count = started;
        server_stop(server);
    }
    /* Acquire: with what start_report says. */
    while (atomic_load_acquire(&server->started_threads) < started)
        task_park();
    if (!status && server->start_error.code)
        status = error_set(error, server->start_error.code, "%s", server->start_error.text);
    if (status) {
        server_stop(server);
        server_join(server);
    }
    return status;
}

void server_stop(struct server *server)
{
    /* Release: whoever sees it sees what the caller did before. */
    if (__atomic_exchange_n(&server->stopping, 1u, __ATOMIC_ACQ_REL))
        return;
    for (unsigned i = 0; i < server->thread_count; i++) /* without memory, the next tick sees it */
        worker_post(server->threads[i].worker, thread_stop, &server->threads[i]);
}

void server_join(struct server *server)
{
    for (unsigned i = 0; i < server->thread_count; i++) {
        if (server->threads[i].thread)
            thread_join(server->threads[i].thread);
        server->threads[i].thread = NULL;
    }
}

/* ---- going to every thread ---- */

struct visit {
    void (*function)(struct server_thread *, void *context);
    void *context;
    struct task *caller;
    uint32_t left;
};
struct visit_call {
    struct visit *visit;
    struct server_thread *thread;
};

static void visit_run(void *argument)
{
    struct visit_call *call = argument;
    struct visit *visit = call->visit;
    struct task *caller = visit->caller;
    visit->function(call->thread, visit->context);
    /* Release: the caller sees what the function did. After this the visit may be gone. */
    __atomic_fetch_sub(&visit->left, 1u, __ATOMIC_ACQ_REL);
    task_unpark(caller);
}

bool server_each_thread(struct server *server, void (*function)(struct server_thread *, void *context),
                        void *context)
{
    struct visit visit = {
        .function = function, .context = context, .caller = task_self(), .left = server->thread_count};
    struct visit_call *calls = calloc(server->thread_count, sizeof *calls);
    bool all = calls != NULL;
    for (unsigned i = 0; calls && i < server->thread_count; i++) {
        calls[i] = (struct visit_call){.visit = &visit, .thread = &server->threads[i]};
        if (worker_post(server->threads[i].worker, visit_run, &calls[i])) {
            __atomic_fetch_sub(&visit.left, 1u, __ATOMIC_ACQ_REL);
            all = false;
        }
    }
    while (calls && atomic_load_acquire(&visit.left))
        task_park();
    free(calls);
    return all;
}

/* ---- the password ---- */

void server_password_set(struct server *server, const char *text, size_t length)
{
    spinlock_lock(&server->password_lock);
    memset(server->password, 0, sizeof server->password);
    memcpy(server->password, text, length);
    server->password_length = (uint32_t)length;
    spinlock_unlock(&server->password_lock);
    atomic_store_relaxed(&server->guarded, length != 0);
}

bool server_password_check(struct server *server, const char *text, size_t length)
{
    char given[NET_SECRET_MAX] = {0}, wanted[NET_SECRET_MAX];
    memcpy(given, text, length < sizeof given ? length : sizeof given);
    spinlock_lock(&server->password_lock);
    memcpy(wanted, server->password, sizeof wanted);
    bool same_length = server->password_length == length;
    spinlock_unlock(&server->password_lock);
    bool same = net_equal(given, wanted, sizeof given) & same_length;
    explicit_bzero(given, sizeof given);
    explicit_bzero(wanted, sizeof wanted);
    return same;
}

/* ---- figures ---- */

uint64_t server_client_memory(const struct server *server)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < server->thread_count; i++)
        sum += atomic_load_relaxed(&server->threads[i].counters.blocks) * CLIENT_BLOCK_BYTES +
               atomic_load_relaxed(&server->threads[i].counters.large);
    return sum;
}

void server_counters_sum(const struct server *server, struct server_counters *sum)
{
    memset(sum, 0, sizeof *sum);
    for (unsigned i = 0; i < server->thread_count; i++) {
        const uint64_t *from = (const uint64_t *)&server->threads[i].counters;
        for (size_t j = 0; j < sizeof *sum / sizeof *from; j++)
            ((uint64_t *)sum)[j] += atomic_load_relaxed(&from[j]);
    }
}

static void counters_reset(struct server_thread *thread, void *context)
{
    struct server_counters *counters = &thread->counters;
    (void)context;
    uint64_t *const cleared[] = {&counters->clients_total,
                                 &counters->clients_rejected,
                                 &counters->clients_evicted,
                                 &counters->commands,
                                 &counters->hits,
                                 &counters->misses,
                                 &counters->errors,
                                 &counters->bytes_in,
                                 &counters->bytes_out,
                                 &counters->input_errors};
    for (size_t i = 0; i < sizeof cleared / sizeof *cleared; i++)
        atomic_store_relaxed(cleared[i], 0);
    for (unsigned i = 0; i < command_table_count(thread->server->table); i++) {
        atomic_store_relaxed(&thread->commands[i].calls, 0);
        atomic_store_relaxed(&thread->commands[i].nanoseconds, 0);
        atomic_store_relaxed(&thread->commands[i].failed, 0);
    }
    spinlock_lock(&thread->lock);
    histogram_reset(thread->latency);
    histogram_reset(thread->latency_before);
    spinlock_unlock(&thread->lock);
}

void server_counters_reset(struct server *server)
{
    server_each_thread(server, counters_reset, NULL);
}

static void publish(struct server_thread *thread, void *context)
{
    (void)context;
    thread_publish(thread);
}

void server_refresh(struct server *server)
{
    server_each_thread(server, publish, NULL);
}

static void latencies_sum(struct server *server, struct server_stats *stats)
{
    struct histogram *sum = histogram_create();
    if (!sum)
        return;
    for (unsigned i = 0; i < server->thread_count; i++) {
        struct server_thread *thread = &server->threads[i];
        spinlock_lock(&thread->lock);
        histogram_merge(sum, thread->latency);
        histogram_merge(sum, thread->latency_before);
        spinlock_unlock(&thread->lock);
    }
    stats->latency_us_p50 = histogram_quantile(sum, 0.5) / 1000;
    stats->latency_us_p99 = histogram_quantile(sum, 0.99) / 1000;
    stats->latency_us_p999 = histogram_quantile(sum, 0.999) / 1000;
    histogram_destroy(sum);
}

void server_stats(struct server *server, struct server_stats *stats)
{
    struct server_counters sum;
    uint64_t now = task_now(), keys_at = atomic_load_relaxed(&server->keys_at_ns);
    memset(stats, 0, sizeof *stats);
    server_counters_sum(server, &sum);
    stats->uptime_s = (now - server->started_ns) / UINT64_C(1000000000);
    stats->clients = sum.clients;
    stats->clients_total = sum.clients_total;
    stats->clients_rejected = sum.clients_rejected;
    stats->clients_evicted = sum.clients_evicted;
    stats->commands_total = sum.commands;
    stats->keyspace_hits = sum.hits;
    stats->keyspace_misses = sum.misses;
    stats->errors_total = sum.errors;
    stats->bytes_in = sum.bytes_in;
    stats->bytes_out = sum.bytes_out;
    stats->client_memory = server_client_memory(server);
    stats->keys = atomic_load_relaxed(&server->keys);
    stats->keys_age_s = keys_at ? (now > keys_at ? now - keys_at : 0) / UINT64_C(1000000000) : UINT64_MAX;
    for (unsigned i = 0; i < server->thread_count; i++) {
        spinlock_lock(&server->threads[i].lock);
        struct tree_stats tree = server->threads[i].tree_stats;
        spinlock_unlock(&server->threads[i].lock);
        stats_add(&stats->tree, &tree);
    }
    store_stats(server->store, &stats->store);
    stats->expired_total = stats->store.expired;
    tree_cache_stats(store_tree(server->store), &stats->cache);
    latencies_sum(server, stats);
}

void server_each_command(struct server *server,
                         void (*visit)(void *context, const char *name, uint64_t calls, uint64_t nanoseconds,
                                       uint64_t failed),
                         void *context)
{
    for (unsigned i = 0; i < command_table_count(server->table); i++) {
        uint64_t calls = 0, nanoseconds = 0, failed = 0;
        for (unsigned t = 0; t < server->thread_count; t++) {
            const struct server_command_counter *counter = &server->threads[t].commands[i];
            calls += atomic_load_relaxed(&counter->calls);
            nanoseconds += atomic_load_relaxed(&counter->nanoseconds);
            failed += atomic_load_relaxed(&counter->failed);
        }
        if (calls)
            visit(context, command_table_at(server->table, i)->name, calls, nanoseconds, failed);
    }
}

unsigned server_memory_nodes(struct server *server)
{
    return server->node_count;
}

void server_memory_state(struct server *server, unsigned number, struct server_memory_state *state,
                         struct memory_status_reply *status)
{
    struct server_node *node = &server->nodes[number];
    memset(state, 0, sizeof *state);
    state->node = (uint16_t)number;
    spinlock_lock(&node->lock);
    state->connected = node->connected;
    memcpy(state->trouble, node->trouble, sizeof state->trouble);
    if (node->asked)
        *status = node->status;
    state->status = node->asked ? status : NULL;
    spinlock_unlock(&node->lock);
}
