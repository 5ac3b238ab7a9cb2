/*
 * hello.c - the opening of a connection: whether its peer speaks this protocol, knows the secret, and may
 * have what it asks for; and the answer.
 *
 * On the connection's I/O thread. A refusal is a sentence for the peer and a line in the log; neither ever
 * holds the secret or a proof of it.
 */
#include "memoryd/session.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "memoryd/disk.h"
#include "memoryd/nic.h"
#include "memoryd/process.h"

static enum session_result refuse(struct memoryd_session *session, const struct error *error)
{
    uint8_t message[4 + sizeof error->text];
    int32_t code = error->code;
    size_t length = strlen(error->text);
    memcpy(message, &code, sizeof code);
    memcpy(message + sizeof code, error->text, length);
    log_warning("memory node: %s (%s) was refused: %s", session->peer,
                session->name[0] != 0 ? session->name : "no name yet", error->text);
    if (!memoryd_session_send(session, WIRE_REFUSE, error->code, 0, message, sizeof code + length))
        return memoryd_session_broken(session, "no memory for a reply");
    return SESSION_ENDED;
}

/* A name for logs and for people: what cannot be printed becomes '?'. */
static void clean_name(char to[WIRE_NAME_MAX + 1], const char from[WIRE_NAME_MAX + 1])
{
    size_t length = 0;
    for (; length < WIRE_NAME_MAX && from[length] != 0; length++)
        to[length] = from[length] > ' ' && from[length] < 127 ? from[length] : '?';
    if (length == 0)
        to[length++] = '?';
    to[length] = 0;
}

static int check_version(const struct wire_header *head, const void *bytes, struct error *error)
{
    uint32_t words[2] = {0, 0};
    if (head->length >= sizeof words)
        memcpy(words, bytes, sizeof words);
    if (words[0] != WIRE_MAGIC)
        return error_set(error, BANYAN_EINVAL,
                         "this is a memory node of Banyan, the other side speaks something else");
    if (words[1] != WIRE_VERSION)
        return error_set(
            error, BANYAN_EVERSION,
            "this memory node speaks version %u of the protocol, the other side %u: install the same "
            "version of Banyan at both ends",
            WIRE_VERSION, words[1]);
    if (head->length != sizeof(struct wire_hello))
        return error_set(error, BANYAN_EINVAL, "a hello of %u bytes", head->length);
    return BANYAN_OK;
}

static int check_proof(const struct memoryd_session *session, const struct wire_hello *hello,
                       struct error *error)
{
    const struct memoryd *daemon = session->daemon;
    uint8_t proof[NET_PROOF_BYTES];
    if (daemon->secret_length == 0)
        return BANYAN_OK;
    net_proof(daemon->secret, daemon->secret_length, "banyan client", session->nonce, hello->nonce, proof);
    if (!net_equal(proof, hello->proof, sizeof proof))
        return error_set(error, BANYAN_EINVAL, "the shared secret is missing or not the same");
    return BANYAN_OK;
}

/* All lists go through the NIC, or all over the stream, since a NIC's atomics are not atomic against this
 * machine's CPU. Monitors and formatters, which send no lists, may come either way. */
static int check_nic(const struct memoryd_session *session, const struct wire_hello *hello,
                     struct error *error)
{
    bool has = session->daemon->nic != NULL;
    if ((hello->role != WIRE_CONTROL && hello->role != WIRE_DATA) || has == (hello->nic == 1))
        return BANYAN_OK;
    return error_set(error, BANYAN_ENOTSUP,
                     has ? "this memory node is reached over RDMA alone: connect with rdma://host:port"
                         : "this memory node does not serve its memory over RDMA: start it with --rdma, or "
                           "connect with tcp://host:port");
}

/* ---- mapping ---- */

/* Whether this connection may map the memory. Where that is not possible hello->map becomes 0. */
static int check_map(struct memoryd_session *session, struct wire_hello *hello, struct error *error)
{
    const struct memory_node *node = session->daemon->node;
    bool possible = session->is_unix && session->daemon->nic == NULL &&
                    (hello->role == WIRE_CONTROL || hello->role == WIRE_DATA) &&
                    memory_node_pool_descriptor(node) >= 0 && memory_node_locks_descriptor(node) >= 0;
    if (hello->map != 1 || !possible) {
        hello->map = 0;
        return BANYAN_OK;
    }
    /* A process that writes the pool by itself is fenced by killing it (G6), so that must be possible. */
    if (!memoryd_process_killable(session->pidfd))
        return error_set(
            error, BANYAN_ENOTSUP,
            "the pool is not mapped for process %d: this memory node may not signal it, and could "
            "not fence it; connect without mapping, or run both as the same user",
            session->pid);
    return BANYAN_OK;
}

static int map_session(struct memoryd_session *session, struct error *error)
{
    const struct memory_node *node = session->daemon->node;
    if (session->role == WIRE_CONTROL) {
        session->descriptors[0] = memory_node_pool_descriptor(node);
        session->descriptors[1] = memory_node_locks_descriptor(node);
        session->descriptor_count = 2;
    } else {
        int status = memoryd_staging_create(&session->staging, &session->descriptors[0], error);
        if (status)
            return status;
        session->descriptors_owned = true;
        session->descriptor_count = 1;
    }
    session->mapped = true;
    return BANYAN_OK;
}

/* ---- the answer ---- */

static void fill_welcome(const struct memoryd_session *session, const struct wire_hello *hello,
                         struct wire_welcome *welcome)
{
    struct memoryd *daemon = session->daemon;
    struct memoryd_groups *groups = &daemon->groups;
    *welcome = (struct wire_welcome){.lock_width = (uint8_t)daemon->target->lock_width,
                                     .instance = daemon->instance,
                                     .pool_bytes = daemon->target->pool_bytes,
                                     .lock_bytes = daemon->target->lock_bytes,
                                     .atomic_write =
                                         memory_node_staging(daemon->node, 0) != NULL ? WIRE_STAGING_DATA : 0,
                                     .durability = memoryd_disk_level(daemon->disk, daemon->node),
                                     .generation = memory_node_cluster_generation(daemon->node)};
    if (daemon->secret_length > 0)
        net_proof(daemon->secret, daemon->secret_length, "banyan server", hello->nonce, session->nonce,
                  welcome->proof);
    if (daemon->nic != NULL) {
        welcome->nic = hello->nic == 1;
        welcome->nic_mtu = memoryd_nic_mtu(daemon->nic);
        welcome->nic_promises = memoryd_nic_promises(daemon->nic);
    }
    spinlock_lock(&groups->lock);
    welcome->node = groups->number;
    welcome->node_count = groups->node_count;
    welcome->cluster_id = groups->cluster_id;
    spinlock_unlock(&groups->lock);
}

/* Gives the session what its hello asks for. */
static int admit(struct memoryd_session *session, struct wire_hello *hello, struct wire_welcome *welcome,
                 struct error *error)
{
    int status = check_nic(session, hello, error);
    if (!status)
        status = check_map(session, hello, error);
    if (status)
        return status;
    fill_welcome(session, hello, welcome);
    session->role = hello->role;
    session->number = welcome->node;
    session->nic = welcome->nic == 1;
    if (hello->role == WIRE_MONITOR || hello->role == WIRE_FORMATTER ||
        (hello->role == WIRE_CONTROL && welcome->cluster_id == 0))
        return BANYAN_OK;
    if (hello->role != WIRE_CONTROL && hello->role != WIRE_DATA)
        return error_set(error, BANYAN_EINVAL, "there is no role %u", hello->role);
    /* The mapping is made first, since it may fail: a session that has joined cannot be refused any more. */
    if (hello->map == 1)
        status = map_session(session, error);
    if (!status)
        status = memoryd_group_join(session, hello, welcome, error);
    welcome->mapped = session->mapped;
    return status;
}

static void log_welcome(const struct memoryd_session *session, const struct wire_welcome *welcome)
{
    if (session->role == WIRE_CONTROL && welcome->cluster_id == 0)
        log_info("memory node: %s (%s) was told that there is no cluster here yet", session->name,
                 session->peer);
    else if (session->role == WIRE_CONTROL)
        log_info("memory node %u: compute node %u connected: %s (%s), lease %u ms%s", session->number,
                 (unsigned)welcome->compute_id, session->name, session->peer, welcome->lease_ms,
                 session->mapped ? ", pool mapped"
                 : session->nic  ? ", RDMA"
                                 : "");
}

enum session_result memoryd_session_hello(struct memoryd_session *session, const struct wire_header *head,
                                          const void *bytes)
{
    struct wire_hello hello;
    struct wire_welcome welcome;
    struct error error = {0};
    if (check_version(head, bytes, &error))
        return refuse(session, &error);
    memcpy(&hello, bytes, sizeof hello);
    if (check_proof(session, &hello, &error))
        return refuse(session, &error);
    clean_name(session->name, hello.name);
    if (admit(session, &hello, &welcome, &error)) {
        memoryd_session_descriptors_sent(session); /* closes those that will not be sent */
        return refuse(session, &error);
    }
    session->open = true;
    if (session->pidfd >= 0) /* the group has taken it if it needs it */
        close(session->pidfd);
    session->pidfd = -1;
    log_welcome(session, &welcome);
    if (!memoryd_session_send(session, WIRE_WELCOME, 0, 0, &welcome, sizeof welcome))
        return memoryd_session_broken(session, "no memory for a reply");
    if (session->role == WIRE_CONTROL && session->group == NULL)
        return SESSION_ENDED;
    return session->descriptor_count > 0 ? SESSION_DESCRIPTORS : SESSION_MORE;
}
