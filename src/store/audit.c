#include "store/audit_blocks.h"
#include "owner/owner.h"
#include "pool/pool.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROBLEMS_TOLD_MAX 10000u
#define NAMES_MAX         4096u

void audit_problem(struct audit *audit, const char *format, ...)
{
    char text[400];
    va_list arguments;
    if (audit->report->problems++ >= PROBLEMS_TOLD_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (char *at = text; *at; at++) /* keys may have any bytes */
        if (*at < ' ' || *at > '~')
            *at = '?';
    audit->options->problem(audit->options->context, text);
}

static void index_problem(void *context, const char *text)
{
    struct audit *audit = context;
    audit_problem(audit, "index %s: %s", audit->index, text);
}

void audit_progress(const struct audit *audit, const char *what)
{
    if (audit->options->progress)
        audit->options->progress(audit->options->context, what);
}

int audit_fail_memory(const struct audit *audit)
{
    return pool_fail(tree_session_pool(audit->session), BANYAN_ENOMEM,
                     "no memory for an account of the pool's blocks");
}

static void remember(void *context, const char *name, const struct format_geometry *geometry)
{
    struct audit *audit = context;
    if (audit->name_count == NAMES_MAX)
        return;
    snprintf(audit->names[audit->name_count], sizeof audit->names[0], "%s", name);
    audit->contents[audit->name_count++] = geometry->content;
}

/* The map of ranges is no index of users, so it is not counted as one. */
static void add_tree(const struct audit *audit, const struct tree_check_report *tree)
{
    struct audit_report *report = audit->report;
    if (owner_is_map(audit->index)) {
        report->map = true;
        report->map_entries = tree->entries;
    } else {
        report->indexes++;
        report->entries += tree->entries;
        report->leaves += tree->leaves;
        report->internals += tree->internals;
    }
    report->dead += tree->dead;
    report->marked += tree->marked;
    report->frozen += tree->frozen;
    report->missing_parents += tree->missing_parents;
    report->subtree_links += tree->subtree_links;
    report->subtree_links_away += tree->subtree_links_away;
}

static int check_store(struct audit *audit, struct tree *tree)
{
    struct error error = {0};
    struct store *store = NULL;
    struct store_session *session = NULL;
    struct store_check_report report;
    int status = store_wrap(&store, tree, &error);
    if (status) {
        tree_close(tree);
        return pool_fail(tree_session_pool(audit->session), status, "%s", error.text);
    }
    status = store_session_create(&session, store, audit->session, &error);
    if (status) {
        pool_fail(tree_session_pool(audit->session), status, "%s", error.text);
    } else {
        const struct store_check_visitor visitor = {
            .block = audit_reach, .problem = index_problem, .context = audit};
        memset(&report, 0, sizeof report);
        status = store_check_all(session, &visitor, &report);
        add_tree(audit, &report.tree);
        audit->report->values_record += report.values_record;
        audit->report->expired += report.expired;
        store_session_destroy(session);
    }
    store_close(store);
    return status;
}

static int check_plain(struct audit *audit, struct tree *tree)
{
    const struct tree_check_visitor visitor = {
        .node = audit_reach, .problem = index_problem, .context = audit};
    struct tree_check_report report;
    memset(&report, 0, sizeof report);
    int status = tree_check_all(audit->session, tree, &visitor, &report);
    add_tree(audit, &report);
    tree_close(tree);
    return status;
}

static int check_index(struct audit *audit, uint32_t number)
{
    struct tree *tree = NULL;
    audit->index = audit->names[number];
    audit_progress(audit, audit->index);
    int status = tree_open(audit->session, audit->index, &tree);
    if (!status)
        status = audit->contents[number] == FORMAT_CONTENT_STORE ? check_store(audit, tree)
                                                                 : check_plain(audit, tree);
    if (status == BANYAN_ECORRUPT) { /* it could not be opened; the other indexes are still walked */
        index_problem(audit, tree_session_error(audit->session)->text);
        return 0;
    }
    return status;
}

/*
 * Counts the half-dropped indexes, and ends their drops where lost blocks are to be given back, which is when
 * no other compute node is connected: a node may go back to its memory node only when no handle can take it
 * for a part of its index any more.
 */
static int end_drops(struct audit *audit)
{
    uint32_t ended;
    int status = tree_drop_count(audit->session, &audit->report->half_dropped);
    if (status == BANYAN_ECORRUPT) /* told when the indexes are listed */
        return 0;
    if (status || !audit->options->reclaim || !audit->report->half_dropped)
        return status;
    status = store_drop_finish(audit->session, &ended);
    if (status == BANYAN_ECORRUPT) {
        audit_problem(audit, "a half-dropped index: %s", tree_session_error(audit->session)->text);
        return 0;
    }
    if (status)
        return status;
    audit->report->half_dropped = 0;
    audit_unload(audit);
    status = audit_load(audit);
    if (!status)
        pool_worker_each_free(tree_session_pool(audit->session)->worker, audit_hold, audit);
    return status;
}

static void free_all(struct audit *audit)
{
    audit_unload(audit);
    free(audit->logs);
    free(audit->names);
    free(audit->contents);
}

int audit_run(struct tree_session *session, const struct audit_options *options, struct audit_report *report)
{
    struct audit audit = {.session = session,
                          .options = options,
                          .report = report,
                          .node_count = tree_session_pool(session)->memory_nodes};
    memset(report, 0, sizeof *report);
    audit.names = calloc(NAMES_MAX, sizeof *audit.names);
    audit.contents = calloc(NAMES_MAX, 1);
    int status = audit.names && audit.contents ? 0 : audit_fail_memory(&audit);
    if (!status)
        status = audit_load(&audit);
    if (!status && options->reclaim && report->compute_nodes)
        status = pool_fail(tree_session_pool(session), BANYAN_EBUSY,
                           "%llu compute nodes are connected: stop them first",
                           (unsigned long long)report->compute_nodes);
    if (!status)
        status = end_drops(&audit);
    if (!status)
        status = audit_logs(&audit);
    if (!status)
        status = tree_list(session, remember, &audit);
    if (status == BANYAN_ECORRUPT &&
        audit.name_count) { /* the indexes named before the damage can be walked */
        audit_problem(&audit, "%s; indexes named behind it were not checked",
                      tree_session_error(session)->text);
        status = 0;
    }
    for (uint32_t i = 0; !status && i < audit.name_count; i++)
        status = check_index(&audit, i);
    if (!status)
        status = audit_account(&audit);
    free_all(&audit);
    return status;
}
