/* opened.c - See opened.h. */
#include "api/opened.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/task.h"
#include "tree/rights.h"

#define LOCK_SLEEP_NS UINT64_C(100000)

/* It is held over round trips, so those that wait sleep. */
static void registry_lock(struct banyan *banyan)
{
    while (!spinlock_try(&banyan->opening))
        task_sleep(LOCK_SLEEP_NS);
}

static void registry_unlock(struct banyan *banyan)
{
    spinlock_unlock(&banyan->opening);
}

/* The number alone does not name an index for ever: it comes back after many drops. */
static bool is_same(const struct api_opened *opened, const struct tree *tree)
{
    return !opened->dropped && tree_number(opened->tree) == tree_number(tree) &&
           !strcmp(tree_name(opened->tree), tree_name(tree));
}

static struct api_opened *find(const struct banyan *banyan, const struct tree *tree)
{
    struct api_opened *at = banyan->opened;
    while (at && !is_same(at, tree))
        at = at->next;
    return at;
}

static void tree_give_up(const struct api_opened *opened)
{
    if (opened->store)
        store_close(opened->store);
    else
        tree_close(opened->tree);
}

/* A tree that was just opened, of which there is no handle yet. It is closed on failure. */
static int wrap(struct banyan_session *session, struct tree *tree, struct api_opened **out)
{
    struct api_opened *opened = calloc(1, sizeof *opened);
    int status = opened ? 0
                        : error_set(&session->error, BANYAN_ENOMEM, "index %s: no memory for its handle",
                                    tree_name(tree));
    if (!status && tree_geometry(tree)->content == FORMAT_CONTENT_STORE)
        status = store_wrap(&opened->store, tree, &session->error);
    if (status) {
        tree_close(tree);
        free(opened);
        return status;
    }
    opened->tree = tree;
    status = owner_process_attach(session->banyan->owner, tree, &session->error);
    if (status) {
        tree_give_up(opened);
        free(opened);
        return status;
    }
    opened->next = session->banyan->opened;
    session->banyan->opened = opened;
    *out = opened;
    return 0;
}

/* Takes this process's share of an index that it did not have open. Where that fails the keeper tries again,
 * now and then. */
static void balance(struct banyan *banyan)
{
    struct error error = {0};
    owner_process_balance(banyan->owner, &error);
}

int api_opened_get(struct banyan_session *session, const char *name, const struct format_geometry *geometry,
                   struct api_opened **opened)
{
    struct tree *tree = NULL;
    registry_lock(session->banyan);
    int status = api_result(session, geometry ? tree_create(session->tree_session, name, geometry, &tree)
                                              : tree_open(session->tree_session, name, &tree));
    if (!status) {
        *opened = find(session->banyan, tree);
        if (*opened)
            tree_close(tree);
        else
            status = wrap(session, tree, opened);
    }
    if (!status && (*opened)->handles++ == 0 && session->banyan->wants_ranges)
        balance(session->banyan);
    registry_unlock(session->banyan);
    return status;
}

void api_opened_put(struct banyan *banyan, struct api_opened *opened)
{
    registry_lock(banyan);
    assert(opened->handles);
    if (!--opened->handles) {
        struct api_opened **at = &banyan->opened;
        while (*at != opened)
            at = &(*at)->next;
        *at = opened->next;
        struct error error = {0};
        owner_process_detach(banyan->owner, opened->tree, &error); /* what is left others take over */
        tree_give_up(opened);
        free(opened);
    }
    registry_unlock(banyan);
}

int api_opened_drop(struct banyan_session *session, const char *name)
{
    struct owner *owner = owner_process_owner(session->banyan->owner);
    registry_lock(session->banyan);
    struct api_opened *at = session->banyan->opened;
    while (at && (at->dropped || strcmp(tree_name(at->tree), name) != 0))
        at = at->next;
    int status = at && owner ? store_drop_owned(session->tree_session, owner, at->tree)
                             : store_drop_name(session->tree_session, owner, name);
    status = api_result(session, status);
    if (!status && at)
        at->dropped = true;
    registry_unlock(session->banyan);
    return status;
}
