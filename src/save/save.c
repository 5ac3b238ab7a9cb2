/* save.c - see save.h: a checkpoint from its beginning to its end. */
#include "save/save.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/task.h"
#include "persist/checkpoint.h"
#include "persist/table.h"
#include "save/floors.h"
#include "save/upload.h"
#include "store/store.h"

#define WAIT_NS      (UINT64_C(60) * 1000000000)
#define PART_BYTES   (UINT64_C(64) << 20)
#define STEP_KEYS    256u
#define NODES_MAX    POOL_PERSIST_MAX
#define TRIES        20u
#define TRY_AGAIN_NS UINT64_C(100000000)

struct save {
    struct owner *owner;
    struct tree_session *session;
    struct pool_session *pool; /* for all calls of the memory nodes: also while the other one scans */
    struct pool_session calls; /* that one */
    struct save_options options;
    struct save_node nodes[NODES_MAX];
    uint16_t count;
    uint16_t known; /* memory nodes that the cluster has had, as far as this process knew at the beginning */
    uint64_t number;
    struct save_mark *marks; /* owned */
    uint32_t mark_count;
    struct persist_table table; /* owned */
    struct save_upload upload;
    struct save_stats *stats;
    /* of the part that is written */
    struct archive_writer *writer; /* owned */
    uint16_t index;
    uint8_t last[FORMAT_KEY_MAX]; /* the key that was written last */
    size_t last_length;           /* 0: none was, of this index */
    uint32_t met;
    struct error visit_error;
    struct plain *plain; /* owned: STEP_KEYS, of an index that is no store's */
};

/* An entry of such an index, on its way from the scan, which holds up others, to the archive. */
struct plain {
    uint8_t key_length, value_length;
    uint8_t key[FORMAT_KEY_MAX], value[FORMAT_VALUE_MAX];
};

static int cancelled(const struct save *save)
{
    return save->options.cancelled && save->options.cancelled(save->options.context)
               ? pool_fail(save->pool, BANYAN_EABORT, "it was cancelled")
               : 0;
}

/* What the tree's session says of it. */
static int tree_failed(const struct save *save, int status)
{
    const struct error *said = tree_session_error(save->session);
    return pool_fail(save->pool, status, "%s", said->code == status ? said->text : error_name(status));
}

static int act_on_all(struct save *save, uint32_t action)
{
    int status = 0;
    for (uint16_t i = 0; i < save->count && !status; i++) {
        struct memory_save_request request = {.action = action, .number = save->number};
        status = save_node_send(save->pool, &save->nodes[i], &request);
    }
    for (uint16_t i = 0; i < save->count && !status; i++)
        status = save_node_wait(save->pool, &save->nodes[i], save->options.wait_ns);
    return status;
}

/* ---- holding all memory nodes ---- */

/* The home node first, so that of two compute nodes one gets them all. A memory node may be busy with what
 * the one before has left. */
static int node_take(struct save *save, struct save_node *node)
{
    int status = BANYAN_EBUSY;
    for (unsigned i = 0; i < TRIES && status == BANYAN_EBUSY; i++) {
        struct memory_save_request request = {.action = MEMORY_SAVE_TAKE};
        if (i)
            task_sleep(TRY_AGAIN_NS);
        status = save_node_call(save->pool, node, &request);
    }
    node->taken = !status;
    if (status == BANYAN_ENOTSUP)
        return pool_fail(save->pool, status,
                         "memory node %u keeps nothing on a disk: start it with --data and --durability "
                         "disk-second or disk-always",
                         (unsigned)node->node);
    return status == BANYAN_EBUSY
               ? pool_fail(save->pool, status, "another compute node makes a checkpoint of the cluster")
               : status;
}

static int take(struct save *save)
{
    int status = 0;
    for (uint16_t i = 0; i < save->count && !status; i++)
        status = node_take(save, &save->nodes[i]);
    return status;
}

static void leave(struct save *save)
{
    for (uint16_t i = 0; i < save->count; i++) {
        struct memory_save_request request = {.action = MEMORY_SAVE_LEAVE};
        struct save_node *node = &save->nodes[i];
        if (node->taken && !save_node_wait(save->pool, node, save->options.wait_ns))
            (void)save_node_call(save->pool, node,
                                 &request); /* else it is fenced one day, which leaves it too */
    }
    for (uint16_t i = 0; i < save->count; i++) /* when none of them is read any more */
        pool_block_release(save->pool, save->nodes[i].block, save->nodes[i].block_bytes);
}

/* ---- what another compute node has left (P13) ---- */

static int resolve_one(struct save *save, uint64_t number)
{
    struct persist_checkpoint_claim claims[NODES_MAX];
    for (uint16_t i = 0; i < save->count; i++) {
        const struct memory_save_reply *said = &save->nodes[i].said;
        claims[i] = (struct persist_checkpoint_claim){
            .there = true,
            .node = save->nodes[i].node,
            .committed = said->committed,
            .prepared = said->state == MEMORY_SAVE_PREPARED ? said->number : 0};
    }
    const bool counts = persist_checkpoint_counts(claims, save->count, number);
    log_info("checkpoint %" PRIu64 ", which another compute node has left, %s", number,
             counts ? "counts: all memory nodes have it" : "is dropped: not all memory nodes have it");
    save->number = number;
    for (uint16_t i = 0; i < save->count; i++) {
        struct save_node *node = &save->nodes[i];
        struct memory_save_request request = {.action = counts ? MEMORY_SAVE_COMMIT : MEMORY_SAVE_DROP,
                                              .number = number};
        if (node->said.state != MEMORY_SAVE_PREPARED || node->said.number != number)
            continue;
        int status = save_node_act(save->pool, node, &request, save->options.wait_ns);
        if (status)
            return status;
    }
    return 0;
}

static int resolve(struct save *save)
{
    uint64_t last = 0;
    int status = 0;
    for (uint16_t i = 0; i < save->count && !status; i++) {
        const struct memory_save_reply *said = &save->nodes[i].said;
        last = said->committed > last ? said->committed : last;
        last = said->number > last ? said->number : last;
        if (said->state == MEMORY_SAVE_PREPARED)
            status = resolve_one(save, said->number);
    }
    save->number = last + 1;
    return status;
}

/* ---- the positions ---- */

static int marks_take(struct save *save, struct save_node *node)
{
    uint64_t skip = 0;
    do {
        struct memory_save_request request = {.action = MEMORY_SAVE_LOOK, .offset = skip};
        int status = save_node_call(save->pool, node, &request);
        if (status)
            return status;
        const uint32_t count = node->said.count;
        struct save_mark *grown = realloc(save->marks, (save->mark_count + count + 1) * sizeof *grown);
        if (!grown)
            return pool_fail_memory(save->pool);
        save->marks = grown;
        for (uint32_t i = 0; i < count; i++) {
            const struct memory_save_mark *mark = &node->said.marks[i];
            uint32_t at = 0;
            while (at < save->mark_count && grown[at].instance != mark->instance)
                at++;
            if (at == save->mark_count)
                grown[save->mark_count++] = (struct save_mark){.instance = mark->instance};
            if (mark->sequence > grown[at].sequence)
                grown[at].sequence = mark->sequence;
        }
        skip += count;
    } while (node->said.count == MEMORY_SAVE_MARKS);
    return 0;
}

static int begin(struct save *save)
{
    int status = act_on_all(save, MEMORY_SAVE_BEGIN);
    for (uint16_t i = 0; i < save->count && !status; i++)
        status = marks_take(save, &save->nodes[i]);
    return status;
}

/* ---- indexes ---- */

static void index_add(void *context, const char *name, const struct format_geometry *geometry)
{
    struct save *save = context;
    struct persist_table_index *index =
        owner_is_map(name) || save->visit_error.code ? NULL : persist_table_index_add(&save->table);
    (void)geometry;
    if (index)
        memcpy(index->name, name, strnlen(name, PERSIST_NAME_MAX));
    else if (!owner_is_map(name))
        error_set(&save->visit_error, BANYAN_ENOMEM, "no memory for the names of indexes");
}

/* By their numbers; those that were dropped since are left out. */
static int index_order(const void *left, const void *right)
{
    const struct persist_table_index *a = left, *b = right;
    return (a->number > b->number) - (a->number < b->number);
}

static int indexes_list(struct save *save)
{
    struct persist_table *table = &save->table;
    uint32_t kept = 0;
    int status = tree_list(save->session, index_add, save);
    if (status)
        return tree_failed(save, status);
    if (save->visit_error.code)
        status = pool_fail(save->pool, save->visit_error.code, "%s", save->visit_error.text);
    for (uint32_t i = 0; i < table->index_count && !status; i++) {
        struct tree *tree = NULL;
        status = tree_open(save->session, table->indexes[i].name, &tree);
        if (!status) {
            table->indexes[kept] = table->indexes[i];
            table->indexes[kept++].number = tree_number(tree);
        }
        status = !status || status == BANYAN_ENOTFOUND ? 0 : tree_failed(save, status);
        tree_close(tree);
    }
    table->index_count = kept;
    if (kept)
        qsort(table->indexes, kept, sizeof *table->indexes, index_order);
    return status;
}

/* ---- parts ---- */

static int send_out(void *context, const void *bytes, size_t length, struct error *error)
{
    struct save *save = context;
    int status = save_upload_bytes(&save->upload, bytes, length);
    return status ? error_set(error, status, "%s", save->pool->error.text) : 0;
}

/* Parts go to one memory node after the other, and their copies to the next one. */
static int part_begin(struct save *save)
{
    const uint32_t part = save->table.part_count;
    const unsigned copies = save->options.copies > 1 && save->count > 1 ? 2 : 1;
    struct save_node *nodes[SAVE_COPIES_MAX] = {&save->nodes[part % save->count],
                                                &save->nodes[(part + 1) % save->count]};
    struct persist_table_part *row = persist_table_part_add(&save->table);
    struct error error = {0};
    if (!row)
        return pool_fail_memory(save->pool);
    *row = (struct persist_table_part){.index = save->index,
                                       .node = nodes[0]->node,
                                       .second = copies > 1 ? nodes[1]->node : PERSIST_TABLE_NONE};
    int status = save_upload_begin(&save->upload, part, nodes, copies);
    if (!status && archive_writer_create(&save->writer, ARCHIVE_ORDERED, clock_wall_ms(), save->options.level,
                                         send_out, save, &error))
        status = pool_fail(save->pool, error.code, "%s", error.text);
    return status;
}

static int part_end(struct save *save)
{
    struct persist_table_part *row = &save->table.parts[save->table.part_count - 1];
    struct archive_totals totals;
    struct error error = {0};
    int status = archive_finish(save->writer, &error);
    if (status)
        return pool_fail(save->pool, status, "%s", error.text);
    archive_totals(save->writer, &totals);
    archive_writer_destroy(save->writer);
    save->writer = NULL;
    status = save_upload_end(&save->upload, totals.entries);
    row->bytes = save->upload.sent;
    row->check = save->upload.check;
    row->entries = totals.entries;
    save->stats->bytes += row->bytes;
    save->stats->parts++;
    return status;
}

static bool visit(void *context, const void *key, size_t key_length, const struct store_value *value)
{
    struct save *save = context;
    const struct archive_entry entry = {.key = key,
                                        .key_length = key_length,
                                        .value = value->bytes,
                                        .value_length = value->length,
                                        .expires = value->expires};
    memcpy(save->last, key, key_length);
    save->last_length = key_length;
    save->met++;
    return !archive_add(save->writer, &entry, &save->visit_error);
}

static bool plain_visit(void *context, const void *key, size_t key_length, const void *value, size_t length)
{
    struct save *save = context;
    struct plain *plain = &save->plain[save->met++];
    assert(key_length <= sizeof plain->key && length <= sizeof plain->value);
    plain->key_length = (uint8_t)key_length;
    plain->value_length = (uint8_t)length;
    memcpy(plain->key, key, key_length);
    memcpy(plain->value, value, length);
    return true;
}

static int plain_step(struct save *save, struct tree *tree, const struct tree_range *range)
{
    int status = tree_scan(save->session, tree, range, plain_visit, save);
    const uint32_t count = status ? 0 : save->met;
    bool more = true;
    save->met = 0;
    for (uint32_t i = 0; i < count && more; i++) {
        const struct plain *plain = &save->plain[i];
        const struct store_value value = {.bytes = plain->value, .length = plain->value_length};
        more = visit(save, plain->key, plain->key_length, &value);
    }
    return status;
}

/* The next keys of the index. 1: there are more. `store` NULL: it holds values as they are. */
static int step(struct save *save, struct tree *tree, struct store_session *store)
{
    struct tree_range range = {.limit = STEP_KEYS};
    if (save->last_length) {
        range.from = save->last;
        range.from_length = save->last_length;
        range.from_open = true;
    }
    save->met = 0;
    save->visit_error = (struct error){0};
    int status =
        store ? store_scan(store, &range, STORE_SCAN_VALUES, visit, save) : plain_step(save, tree, &range);
    save->stats->keys += save->met;
    if (save->visit_error.code)
        return pool_fail(save->pool, save->visit_error.code, "%s", save->visit_error.text);
    return status ? tree_failed(save, status) : save->met == STEP_KEYS;
}

static bool passing(int status)
{
    return status == BANYAN_EBUSY || status == BANYAN_ETIMEOUT || status == BANYAN_ENET;
}

static int index_scan(struct save *save, struct tree *tree, struct store_session *store)
{
    const uint64_t most = save->options.part_bytes ? save->options.part_bytes : PART_BYTES;
    unsigned tries = 0;
    int status = part_begin(save);
    save->last_length = 0;
    while (!status && !(status = cancelled(save))) {
        status = step(save, tree, store);
        if (passing(status) && !save->visit_error.code && ++tries < TRIES) {
            task_sleep(TRY_AGAIN_NS);
            status = 0;
            continue;
        }
        if (status == BANYAN_ENOTFOUND) /* it was dropped: nothing of it could be missed */
            status = 0;
        if (status != 1)
            break;
        tries = 0;
        status = 0;
        if (save->options.progress)
            save->options.progress(save->options.context, save->stats->keys, save->stats->bytes);
        if (save->upload.sent < most)
            continue;
        status = part_end(save);
        if (!status)
            status = part_begin(save);
    }
    return status ? status : part_end(save);
}

/* The tree is attached. */
static int contents_save(struct save *save, struct tree *tree, struct store *store)
{
    struct store_session *session = NULL;
    struct error error = {0};
    int status = store ? store_session_create(&session, store, save->session, &error) : 0;
    if (status)
        return pool_fail(save->pool, status, "%s", error.text);
    status = index_scan(save, tree, session);
    if (session)
        store_session_destroy(session);
    save->stats->indexes += !status;
    return status;
}

static int tree_save(struct save *save, struct tree *tree)
{
    struct store *store = NULL;
    struct error error = {0};
    int status = owner_attach(save->owner, save->session, tree);
    if (status)
        return tree_failed(save, status);
    status = store_wrap(&store, tree, &error);
    if (status && status != BANYAN_EINVAL)
        (void)pool_fail(save->pool, status, "%s", error.text);
    else
        status = contents_save(save, tree, store);
    (void)owner_detach(save->owner, save->session, tree); /* it has no range of it */
    if (store)
        store_close(store);
    else
        tree_close(tree);
    return status;
}

/* An index that was dropped since, or made anew under its name, has nothing that could be missed: what the
 * new one has is behind the positions. */
static int index_save(struct save *save, const struct persist_table_index *index)
{
    struct tree *tree = NULL;
    save->index = index->number;
    int status = tree_open(save->session, index->name, &tree);
    if (status)
        return status == BANYAN_ENOTFOUND ? 0 : tree_failed(save, status);
    if (tree_number(tree) == index->number)
        return tree_save(save, tree);
    tree_close(tree);
    return 0;
}

/* ---- the end ---- */

static int table_send(struct save *save)
{
    uint8_t *bytes = NULL;
    size_t length = 0;
    struct error error = {0};
    int status = persist_table_encode(&save->table, &bytes, &length, &error);
    if (status)
        return pool_fail(save->pool, status, "%s", error.text);
    for (uint16_t i = 0; i < save->count && !status; i++) {
        struct save_node *node = &save->nodes[i];
        status = save_upload_begin(&save->upload, MEMORY_SAVE_TABLE, &node, 1);
        if (!status)
            status = save_upload_bytes(&save->upload, bytes, length);
        if (!status)
            status = save_upload_end(&save->upload, 0);
    }
    free(bytes);
    return status;
}

/* Which memory nodes take part: the members. Of the others some had left, and nothing of their journals is
 * needed any more; but one that has joined and could not be connected to is no member here either, and may
 * have a journal by then. So all that are listed must have been connected to, of the numbers that were known
 * before the list was asked for. One that has joined since is not in the checkpoint, as one that joins later
 * (persist_table_unaware). */
static int members_find(struct save *save)
{
    struct pool_session *pool = save->pool;
    save->known = pool->memory_nodes;
    if (!fabric_refresh(pool->fabric))
        return pool_fail(pool, BANYAN_ENET,
                         "the list of memory nodes could not be had of the home node, or one of them could "
                         "not be connected to");
    for (uint16_t node = 0; node < save->known; node++)
        if (fabric_membership(pool->fabric, node) && save->count++ < NODES_MAX)
            save->nodes[save->count - 1] = (struct save_node){.node = node, .block = GADDR_NULL};
    return save->count > NODES_MAX
               ? pool_fail(pool, BANYAN_ENOTSUP, "a cluster of %u memory nodes; with disks at most %u",
                           (unsigned)save->count, NODES_MAX)
               : 0;
}

/* What the scan has seen of changes behind the positions is in the journals before the checkpoint counts. */
static int persist_all(struct save *save)
{
    uint16_t nodes[NODES_MAX];
    uint32_t at;
    for (uint16_t i = 0; i < save->count; i++)
        nodes[i] = save->nodes[i].node;
    return pool_persist(save->pool, nodes, save->count, &at);
}

static int scan_all(struct save *save)
{
    int status = 0;
    for (uint32_t i = 0; i < save->table.index_count && !status; i++)
        status = index_save(save, &save->table.indexes[i]);
    return status;
}

/* Not all memory nodes have prepared it, and none was told to commit it. What cannot be dropped now the next
 * checkpoint drops. */
static void drop_all(struct save *save)
{
    const struct error kept = save->pool->error;
    for (uint16_t i = 0; i < save->count; i++) {
        struct memory_save_request request = {.action = MEMORY_SAVE_DROP, .number = save->number};
        struct save_node *node = &save->nodes[i];
        (void)save_node_wait(save->pool, node, save->options.wait_ns);
        (void)save_node_act(save->pool, node, &request, save->options.wait_ns);
    }
    save->pool->error = kept;
}

static int make(struct save *save)
{
    const struct save_floors floors = {.owner = save->owner,
                                       .session = save->session,
                                       .wait_ns = save->options.wait_ns,
                                       .cancelled = save->options.cancelled,
                                       .context = save->options.context};
    int status = begin(save);
    if (!status)
        status = indexes_list(save);
    if (!status) {
        struct save_floors of = floors;
        of.marks = save->marks;
        of.mark_count = save->mark_count;
        status = save_floors_take(&of, &save->table);
        status = status ? tree_failed(save, status) : 0;
    }
    save->table.number = save->number;
    save->table.nodes = save->known;
    for (uint16_t i = 0; i < save->count; i++)
        if (save->nodes[i].node < PERSIST_TABLE_NODES)
            save->table.took |= UINT64_C(1) << save->nodes[i].node;
    if (!status)
        status = save_upload_open(&save->upload, save->pool, save->number, save->options.wait_ns);
    if (!status)
        status = scan_all(save);
    if (!status)
        status = table_send(save);
    if (!status)
        status = persist_all(save);
    if (status)
        return status;
    status = act_on_all(save, MEMORY_SAVE_PREPARE);
    if (status) {
        drop_all(save);
        return status;
    }
    /* From here on it counts as soon as one memory node has committed it: nobody drops it any more. */
    return act_on_all(save, MEMORY_SAVE_COMMIT);
}

int save_make(struct owner *owner, struct tree_session *session, const struct save_options *options,
              struct save_stats *stats, struct error *error)
{
    struct save *save = calloc(1, sizeof *save);
    *stats = (struct save_stats){0};
    if (!save)
        return error_set(error, BANYAN_ENOMEM, "no memory for a checkpoint");
    save->owner = owner;
    save->session = session;
    save->pool = &save->calls;
    pool_session_init(&save->calls, tree_session_pool(session)->worker, NULL);
    save->options = *options;
    save->options.wait_ns = options->wait_ns ? options->wait_ns : WAIT_NS;
    save->stats = stats;
    int status = members_find(save);
    if (!status)
        status = take(save);
    if (!status)
        status = resolve(save);
    if (!status)
        status = make(save);
    if (status)
        error_set(error, status, "%s", save->pool->error.text);
    stats->number = save->number;
    leave(save);
    archive_writer_destroy(save->writer);
    save_upload_close(&save->upload);
    persist_table_free(&save->table);
    free(save->marks);
    free(save->plain);
    free(save);
    return status;
}

int save_look(struct pool_session *session, struct save_look *look, struct error *error)
{
    *look = (struct save_look){0};
    for (uint16_t i = 0; i < session->memory_nodes; i++) {
        struct save_node node = {.node = i};
        if (!fabric_membership(session->fabric, i))
            continue;
        struct memory_save_request request = {.action = MEMORY_SAVE_LOOK};
        int status = save_node_call(session, &node, &request);
        if (status)
            return error_set(error, status, "%s", session->error.text);
        look->due |= node.said.due != 0;
        look->busy |= node.said.holder != 0;
        look->committed = node.said.committed > look->committed ? node.said.committed : look->committed;
        look->saved_ms = node.said.saved_ms > look->saved_ms ? node.said.saved_ms : look->saved_ms;
        look->journal_bytes += node.said.journal_bytes;
        look->checkpoint_bytes += node.said.checkpoint_bytes;
    }
    return 0;
}
