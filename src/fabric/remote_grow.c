/*
 * remote_grow.c - what operators change of a cluster's list of memory nodes, and its first one (remote.h). On
 * any thread; each message waits at most the time-out. A change is one call of the home node, so it happens
 * wholly or not at all; a memory node that was formatted for a number that the list did not get is formatted
 * again by the next try.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "fabric/remote.h"
#include "fabric/remote_cluster.h"

#define JOURNAL_LOOK_NS  UINT64_C(1000000)
#define JOURNAL_AGAIN_NS UINT64_C(20000000)

/* An operator's talk with the home node. */
struct talk {
    const struct fabric_remote_options *options;
    struct remote_identity identity;
    struct remote_dialed home;
    struct net_address address; /* of the home node */
    struct wire_cluster_change change;
    struct wire_cluster_list *list;
};

static uint64_t timeout_of(const struct talk *talk)
{
    return talk->identity.timeout_ms * REMOTE_MS;
}

static int named(const struct net_address *address, int status, const char *text, struct error *error)
{
    char name[NET_TEXT_MAX];
    return error_set(error, status, "memory node %.100s: %s", net_address_format(address, name),
                     text[0] ? text : error_name(status));
}

/* ---- the talk ---- */

static int dial_home(struct talk *talk, struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_FORMATTER};
    struct error first = {0};
    for (uint16_t i = 0; i < talk->options->count; i++) {
        struct error one = {0};
        talk->address = talk->options->nodes[i];
        int status = remote_dial(&talk->identity, &talk->address, &wish, timeout_of(talk), &talk->home, &one);
        if (!status && talk->home.welcome.cluster_id == 0)
            status = remote_empty_error(&talk->address, &one);
        else if (!status && talk->home.welcome.node == 0)
            return BANYAN_OK;
        remote_hang_up(talk->home.stream);
        talk->home.stream = NULL;
        if (status && !first.code)
            first = one;
    }
    if (first.code)
        return error_set(error, first.code, "%s", first.text);
    return error_set(
        error, BANYAN_EINVAL,
        "none of the memory nodes that were named is the home node (number 0), which keeps the list "
        "of them: name it");
}

static int talk_open(struct talk **made, const struct fabric_remote_options *options,
                     struct wire_cluster_list *list, struct error *error)
{
    struct talk *talk = calloc(1, sizeof *talk);
    *made = talk;
    if (talk == NULL)
        return error_set(error, BANYAN_ENOMEM, "no memory for the list of memory nodes");
    talk->options = options;
    talk->list = list;
    remote_identity_set(&talk->identity, options);
    return dial_home(talk, error);
}

static void talk_close(struct talk *talk)
{
    if (talk == NULL)
        return;
    remote_hang_up(talk->home.stream);
    talk->home.stream = NULL;
    remote_dialed_drop(&talk->home);
    free(talk);
}

static int ask(struct talk *talk, struct error *error)
{
    struct error inner = {0};
    int status = remote_cluster_ask(talk->home.stream, talk->list, task_now() + timeout_of(talk), &inner);
    if (status == BANYAN_ENOTFOUND)
        return named(&talk->address, status, "it keeps no list of the cluster's memory nodes", error);
    return status ? named(&talk->address, status, inner.text, error) : BANYAN_OK;
}

/* Sends the change over the home node's stream; the list is what came of it. */
static int set_over(struct net_stream *stream, struct wire_cluster_change *change,
                    struct wire_cluster_list *list, uint64_t deadline, struct error *error)
{
    const size_t bytes = offsetof(struct wire_cluster_change, list) + wire_cluster_bytes(change->list.count);
    change->kind = WIRE_CLUSTER_SET;
    return remote_cluster_call(stream, change, bytes, list, deadline, error);
}

static int set(struct talk *talk, struct error *error)
{
    struct error inner = {0};
    int status =
        set_over(talk->home.stream, &talk->change, talk->list, task_now() + timeout_of(talk), &inner);
    if (status == BANYAN_EBUSY)
        return named(&talk->address, status,
                     "the list of memory nodes has just been changed by another operator: look again", error);
    return status ? named(&talk->address, status, inner.text, error) : BANYAN_OK;
}

int fabric_remote_list(const struct fabric_remote_options *options, struct wire_cluster_list *list,
                       struct error *error)
{
    struct talk *talk;
    int status = talk_open(&talk, options, list, error);
    if (!status)
        status = ask(talk, error);
    talk_close(talk);
    return status;
}

/* ---- a first list ---- */

static int entry_fill(struct wire_cluster_node *entry, const struct net_address *address,
                      const struct wire_welcome *welcome, struct error *error)
{
    char text[NET_TEXT_MAX];
    net_address_format(address, text);
    if (strlen(text) > WIRE_CLUSTER_TEXT_MAX)
        return error_set(
            error, BANYAN_EINVAL,
            "memory node %.100s...: its address is too long for the list of memory nodes, which takes "
            "%u characters",
            text, WIRE_CLUSTER_TEXT_MAX);
    *entry = (struct wire_cluster_node){.instance = welcome->instance, .state = WIRE_CLUSTER_MEMBER};
    memcpy(entry->address, text, strlen(text));
    return BANYAN_OK;
}

int remote_list_make(const struct fabric_remote_options *options, uint64_t cluster_id,
                     const struct remote_dialed *dialed, struct error *error)
{
    struct error inner = {0};
    int status = BANYAN_OK;
    if (options->count > WIRE_CLUSTER_NODES_MAX)
        return BANYAN_OK;
    struct wire_cluster_change *change = calloc(1, sizeof *change);
    struct wire_cluster_list *list = calloc(1, sizeof *list);
    if (change == NULL || list == NULL) {
        status = error_set(error, BANYAN_ENOMEM, "no memory for the list of memory nodes");
    } else {
        change->list.cluster_id = cluster_id;
        change->list.count = options->count;
        for (uint16_t i = 0; i < options->count && !status; i++)
            status = entry_fill(&change->list.nodes[i], &options->nodes[i], &dialed[i].welcome, error);
        const uint64_t timeout = (options->timeout_ms != 0 ? options->timeout_ms : 5000) * REMOTE_MS;
        if (!status && (status = set_over(dialed[0].stream, change, list, task_now() + timeout, &inner)))
            named(&options->nodes[0], status, inner.text, error);
    }
    free(list);
    free(change);
    return status;
}

/* ---- what a new one must be like ---- */

/* What the cluster's present memory nodes have in common. */
struct common {
    uint64_t lock_bytes;
    uint32_t atomic_write, durability;
    uint8_t lock_width;
    bool rdma;
};

static uint32_t atomic_write_of(const struct wire_welcome *welcome)
{
    return welcome->atomic_write != 0 ? welcome->atomic_write : FABRIC_LENGTH_MAX;
}

static void common_add(struct common *common, const struct wire_welcome *welcome)
{
    const bool first = common->lock_width == 0;
    const uint32_t write = atomic_write_of(welcome);
    common->lock_width = welcome->lock_width;
    if (first || welcome->lock_bytes < common->lock_bytes)
        common->lock_bytes = welcome->lock_bytes;
    if (first || write < common->atomic_write)
        common->atomic_write = write;
    if (first || welcome->durability < common->durability)
        common->durability = welcome->durability;
}

static int ask_welcome(struct talk *talk, const struct net_address *address, struct wire_welcome *welcome,
                       struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_MONITOR};
    struct remote_dialed dialed;
    int status = remote_dial(&talk->identity, address, &wish, timeout_of(talk), &dialed, error);
    if (status)
        return status;
    *welcome = dialed.welcome;
    remote_hang_up(dialed.stream);
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    return BANYAN_OK;
}

static int member_check(const struct talk *talk, uint32_t number, const struct wire_welcome *welcome,
                        struct error *error)
{
    const struct wire_cluster_node *node = &talk->list->nodes[number];
    if (welcome->cluster_id == talk->list->cluster_id && welcome->node == number &&
        welcome->instance == node->instance)
        return BANYAN_OK;
    return error_set(error, BANYAN_EINVAL, "memory node %.100s is not the one that the list has as number %u",
                     node->address, number);
}

/* As an operator has named it, or as it is listed. */
static int member_welcome(struct talk *talk, uint32_t number, struct wire_welcome *welcome,
                          struct error *error)
{
    struct net_address address;
    int status = net_address_parse(&address, talk->list->nodes[number].address, 0, error);
    if (!status)
        status = ask_welcome(talk, &address, welcome, error);
    return status ? status : member_check(talk, number, welcome, error);
}

static int common_find(struct talk *talk, struct common *common, struct error *error)
{
    int status = BANYAN_OK;
    for (uint32_t i = 0; i < talk->list->count && !status; i++) {
        struct wire_welcome welcome;
        if (talk->list->nodes[i].state == WIRE_CLUSTER_REMOVED)
            continue;
        status = member_welcome(talk, i, &welcome, error);
        if (!status)
            common_add(common, &welcome);
    }
    common->rdma = talk->address.rdma;
    return status;
}

static int joining_validate(const struct talk *talk, const struct common *common,
                            const struct net_address *address, const struct wire_welcome *welcome,
                            struct error *error)
{
    char text[NET_TEXT_MAX], why[160] = "";
    const struct wire_cluster_list *list = talk->list;
    net_address_format(address, text);
    for (uint32_t i = 0; i < list->count && !why[0]; i++)
        if (list->nodes[i].state != WIRE_CLUSTER_REMOVED &&
            (list->nodes[i].instance == welcome->instance || !strcmp(list->nodes[i].address, text)))
            snprintf(why, sizeof why, "it is memory node %u of this cluster already", i);
    if (!why[0] && welcome->cluster_id != 0 && welcome->cluster_id != list->cluster_id)
        snprintf(why, sizeof why,
                 "it is number %u of another cluster; start it anew with an empty pool if that is not needed",
                 (unsigned)welcome->node);
    if (!why[0] && welcome->lock_width != common->lock_width)
        snprintf(why, sizeof why,
                 "it has lock words of %u bytes, the others of %u; start it with --lock-width %u",
                 welcome->lock_width, common->lock_width, common->lock_width);
    if (!why[0] && welcome->lock_bytes < common->lock_bytes)
        snprintf(why, sizeof why, "its lock region has %llu bytes, the others' at least %llu",
                 (unsigned long long)welcome->lock_bytes, (unsigned long long)common->lock_bytes);
    if (!why[0] && atomic_write_of(welcome) < common->atomic_write)
        snprintf(why, sizeof why,
                 "its pool lies in a file, and those of the others do not; start it without "
                 "--pool-file");
    if (!why[0] && welcome->durability < common->durability)
        snprintf(why, sizeof why,
                 "it keeps less than the others do: start it with --pool-file or --data, and the "
                 "fsync of the others, as they were");
    if (!why[0] && address->rdma != common->rdma)
        snprintf(why, sizeof why, "the home node is reached %s, and this one would not be",
                 common->rdma ? "over RDMA" : "without RDMA");
    return why[0] ? error_set(error, BANYAN_EINVAL, "memory node %.80s cannot join: %s", text, why)
                  : BANYAN_OK;
}

/* ---- joining ---- */

/* Where the cluster has no list: it is made of those that were named. */
static int list_first(struct talk *talk, struct error *error)
{
    struct wire_cluster_list *list = &talk->change.list;
    const uint16_t count = talk->options->count;
    int status = BANYAN_OK;
    if (talk->home.welcome.node_count != count || count > WIRE_CLUSTER_NODES_MAX)
        return error_set(
            error, BANYAN_EINVAL,
            "the home node keeps no list of the cluster's %u memory nodes yet: name all of them, at "
            "most %u, and it is made",
            (unsigned)talk->home.welcome.node_count, WIRE_CLUSTER_NODES_MAX);
    *list = (struct wire_cluster_list){.cluster_id = talk->home.welcome.cluster_id, .count = count};
    for (uint16_t i = 0; i < count && !status; i++) {
        struct wire_welcome welcome;
        status = ask_welcome(talk, &talk->options->nodes[i], &welcome, error);
        if (!status && (welcome.cluster_id != list->cluster_id || welcome.node >= count ||
                        list->nodes[welcome.node].state != 0))
            status =
                error_set(error, BANYAN_EINVAL, "the memory nodes that were named are not one whole cluster");
        if (!status)
            status = entry_fill(&list->nodes[welcome.node], &talk->options->nodes[i], &welcome, error);
    }
    return status ? status : set(talk, error);
}

/* One call of WIRE_JOURNALS. */
static int journals_call(struct net_stream *stream, const struct wire_journals_request *request,
                         struct wire_journals_reply *reply, uint64_t deadline, struct error *error)
{
    size_t length = 0;
    int status = remote_converse(stream, WIRE_CALL, request, sizeof *request, reply, sizeof *reply, &length,
                                 deadline, error);
    if (!status && length != sizeof *reply)
        status = error_set(error, BANYAN_EVERSION, "what it says of its journal makes no sense");
    return status;
}

/* What a memory node says of its own directory. */
static int journals_look(struct net_stream *stream, struct wire_journals_reply *reply, uint64_t deadline,
                         struct error *error)
{
    const struct wire_journals_request request = {.kind = WIRE_JOURNALS, .look = 1};
    return journals_call(stream, &request, reply, deadline, error);
}

/* Asks for it once, and waits until the change that is under way then is over. */
static int journal_tell_once(struct net_stream *stream, const struct wire_journals_request *note,
                             struct wire_journals_reply *reply, uint64_t deadline, struct error *error)
{
    struct wire_journals_request look = *note;
    look.look = 1;
    int status = journals_call(stream, note, reply, deadline, error);
    while (!status && reply->busy) {
        task_sleep(JOURNAL_LOOK_NS);
        status = journals_call(stream, &look, reply, deadline, error);
    }
    return status;
}

/* Returns 0 when it stands on the memory node's disk. A checkpoint that is prepared counts soon, as a rule,
 * and a change for another operator may have been under way: so it is asked again until the deadline. */
static int journal_tell(struct net_stream *stream, const struct wire_journals_request *note,
                        uint64_t deadline, struct error *error)
{
    struct wire_journals_reply reply;
    int status = journal_tell_once(stream, note, &reply, deadline, error);
    while (!status && !reply.stands && (!reply.status || reply.status == BANYAN_EBUSY) &&
           task_now() + JOURNAL_AGAIN_NS < deadline) {
        task_sleep(JOURNAL_AGAIN_NS);
        status = journal_tell_once(stream, note, &reply, deadline, error);
    }
    if (status == BANYAN_EEXIST)
        return error_set(error, BANYAN_EBUSY,
                         "another one has joined under the same number meanwhile: look again");
    if (status || reply.stands)
        return status;
    if (!reply.status || reply.status == BANYAN_EBUSY)
        return error_set(error, BANYAN_EBUSY,
                         "its part of a checkpoint is prepared: try again, and if it stays so, end the "
                         "checkpoint with 'banyan save' first");
    return error_set(error, reply.status, "its disk could not be written (%s); its log says why",
                     error_name(reply.status));
}

static int member_tell(struct talk *talk, uint32_t number, const struct wire_journals_request *note,
                       struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_FORMATTER};
    const uint64_t deadline = task_now() + timeout_of(talk);
    struct net_address address;
    struct remote_dialed dialed;
    struct error inner = {0};
    int status = net_address_parse(&address, talk->list->nodes[number].address, 0, error);
    if (!status)
        status = remote_dial(&talk->identity, &address, &wish, timeout_of(talk), &dialed, error);
    if (status)
        return status;
    status = member_check(talk, number, &dialed.welcome, error);
    if (!status && dialed.welcome.durability >= FABRIC_KEPT_ON_DISK &&
        (status = journal_tell(dialed.stream, note, deadline, &inner)))
        error_set(error, status, "memory node %u (%.80s) must note that another one joins: %s", number,
                  talk->list->nodes[number].address, inner.text[0] ? inner.text : error_name(status));
    remote_hang_up(dialed.stream);
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    return status;
}

/* Before one more memory node is listed, and so before anything is logged there, all journals say that it is
 * one of the cluster: a recovery misses its journal. The home node's comes last, and is what counts: where
 * one before it could not be told, nothing has changed. When it is listed they say that too, so that a
 * directory of another one that was to get the number is not taken for its own. */
static int journals_tell(struct talk *talk, uint32_t joining, uint64_t token, bool joined,
                         struct error *error)
{
    const struct wire_journals_request note = {
        .kind = WIRE_JOURNALS, .nodes = joining + 1, .token = token, .joined = joined};
    int status = BANYAN_OK;
    for (uint32_t i = talk->list->count; i-- > 0 && !status;)
        if (i != joining && talk->list->nodes[i].state != WIRE_CLUSTER_REMOVED)
            status = member_tell(talk, i, &note, error);
    return status;
}

/* It is listed by now. The same call again makes good for what is not noted yet. */
static int joined_tell(struct talk *talk, uint32_t number, uint64_t token, struct error *error)
{
    struct error inner = {0};
    const int status = journals_tell(talk, number, token, true, &inner);
    return status ? error_set(error, status,
                              "memory node %u has joined, but not all have noted it: %.150s; "
                              "let it join again, for that alone",
                              number, inner.text)
                  : BANYAN_OK;
}

/* The number under which the cluster has it already; else that of the next one. */
static uint32_t number_of(const struct talk *talk, const struct wire_welcome *welcome)
{
    uint32_t number = 0;
    while (number < talk->list->count && (talk->list->nodes[number].state == WIRE_CLUSTER_REMOVED ||
                                          talk->list->nodes[number].instance != welcome->instance))
        number++;
    return number;
}

/* One whose journal an earlier try has begun, as of this number, is not formatted again: that would be
 * refused, and compute nodes have never heard of it. *token: of its directory; 0: it has none. */
static int joining_format(struct talk *talk, const struct net_address *joining, struct remote_dialed *dialed,
                          uint64_t *token, struct error *error)
{
    const uint32_t number = talk->list->count;
    const struct wire_format format = {.cluster_id = talk->list->cluster_id,
                                       .number = (uint16_t)number,
                                       .node_count = (uint16_t)(number + 1)};
    const bool has_disk = dialed->welcome.durability >= FABRIC_KEPT_ON_DISK;
    struct wire_journals_reply reply = {0};
    struct error inner = {0};
    int status = BANYAN_OK;
    if (!has_disk || dialed->welcome.cluster_id != format.cluster_id || dialed->welcome.node != number ||
        journals_look(dialed->stream, &reply, task_now() + timeout_of(talk), &inner))
        status = remote_format_one(&talk->identity, joining, dialed->stream, &format, error);
    if (!status && has_disk &&
        (status = journals_look(dialed->stream, &reply, task_now() + timeout_of(talk), &inner)))
        named(joining, status, inner.text, error);
    *token = reply.token;
    return status;
}

/* A call that was interrupted behind the list is ended here. */
static int join_again(struct talk *talk, struct remote_dialed *dialed, uint32_t number, struct error *error)
{
    struct wire_journals_reply reply;
    if (dialed->welcome.durability < FABRIC_KEPT_ON_DISK)
        return BANYAN_OK;
    int status = journals_look(dialed->stream, &reply, task_now() + timeout_of(talk), error);
    return status ? status : joined_tell(talk, number, reply.token, error);
}

static int join_new(struct talk *talk, const struct net_address *joining, struct remote_dialed *dialed,
                    struct error *error)
{
    const uint32_t number = talk->list->count;
    uint64_t token = 0;
    talk->change.list = *talk->list;
    talk->change.list.count++;
    int status = entry_fill(&talk->change.list.nodes[number], joining, &dialed->welcome, error);
    if (!status)
        status = joining_format(talk, joining, dialed, &token, error);
    if (!status)
        status = journals_tell(talk, number, token, false, error);
    if (!status)
        status = set(talk, error);
    return status ? status : joined_tell(talk, number, token, error);
}

static int join(struct talk *talk, const struct net_address *joining, struct error *error)
{
    const struct remote_wish wish = {.role = WIRE_FORMATTER};
    struct common common = {0};
    struct remote_dialed dialed;
    if (talk->list->count == WIRE_CLUSTER_NODES_MAX)
        return error_set(error, BANYAN_ENOSPC,
                         "the cluster has had %u memory nodes, and there are no numbers left",
                         WIRE_CLUSTER_NODES_MAX);
    int status = common_find(talk, &common, error);
    if (!status)
        status = remote_dial(&talk->identity, joining, &wish, timeout_of(talk), &dialed, error);
    if (status)
        return status;
    const uint32_t number = number_of(talk, &dialed.welcome);
    if (number < talk->list->count)
        status = join_again(talk, &dialed, number, error);
    if (!status)
        status = joining_validate(talk, &common, joining, &dialed.welcome, error);
    if (!status)
        status = join_new(talk, joining, &dialed, error);
    remote_hang_up(dialed.stream);
    dialed.stream = NULL;
    remote_dialed_drop(&dialed);
    return status;
}

int fabric_remote_join(const struct fabric_remote_options *options, const struct net_address *joining,
                       struct wire_cluster_list *list, struct error *error)
{
    struct talk *talk;
    struct error none = {0};
    int status = talk_open(&talk, options, list, error);
    if (!status) {
        status = ask(talk, &none);
        if (status == BANYAN_ENOTFOUND)
            status = list_first(talk, error);
        else if (status)
            error_set(error, status, "%s", none.text);
    }
    if (!status)
        status = join(talk, joining, error);
    talk_close(talk);
    return status;
}

/* ---- leaving ---- */

static int state_validate(const struct talk *talk, uint16_t number, uint8_t state, struct error *error)
{
    const struct wire_cluster_list *list = talk->list;
    if (number >= list->count || list->nodes[number].state == WIRE_CLUSTER_REMOVED)
        return error_set(error, BANYAN_EINVAL, "there is no memory node %u", (unsigned)number);
    if (number == 0)
        return error_set(error, BANYAN_EINVAL, "memory node 0 is the home node, and cannot leave");
    if (state == WIRE_CLUSTER_REMOVED && list->nodes[number].state != WIRE_CLUSTER_LEAVING)
        return error_set(error, BANYAN_EINVAL, "memory node %u does not leave", (unsigned)number);
    return BANYAN_OK;
}

int fabric_remote_set_state(const struct fabric_remote_options *options, uint16_t number, uint8_t state,
                            struct wire_cluster_list *list, struct error *error)
{
    struct talk *talk;
    int status = talk_open(&talk, options, list, error);
    if (!status)
        status = ask(talk, error);
    if (!status)
        status = state_validate(talk, number, state, error);
    if (!status && list->nodes[number].state != state) {
        talk->change.list = *list;
        talk->change.list.nodes[number].state = state;
        status = set(talk, error);
    }
    talk_close(talk);
    return status;
}
