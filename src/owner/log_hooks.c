/* log_hooks.c - see log_hooks.h. */
#include "owner/log_hooks.h"

#include <assert.h>

static int hook_inherit(void *context, struct tree_session *session, struct tree *tree,
                        const struct format_heir *heirs, uint32_t heir_count, struct format_key lower,
                        const struct format_key *upper, uint64_t epoch)
{
    struct owner_log_hooks *hooks = context;
    struct log_heir list[FORMAT_RANGE_HEIRS_MAX];
    assert(heir_count <= FORMAT_RANGE_HEIRS_MAX);
    for (uint32_t i = 0; i < heir_count; i++)
        list[i] = (struct log_heir){heirs[i].process, heirs[i].epoch};
    return log_inherit(hooks->log, session, tree, list, heir_count, lower, upper, epoch);
}

static void hook_cleared(void *context, struct tree *tree, struct format_key lower,
                         const struct format_key *upper, uint64_t epoch)
{
    struct owner_log_hooks *hooks = context;
    log_cleared(hooks->log, tree, lower, upper, epoch);
}

static int hook_flush(void *context, struct tree_session *session, struct tree *tree, struct format_key lower,
                      const struct format_key *upper)
{
    struct owner_log_hooks *hooks = context;
    return log_flush(hooks->log, session, tree, lower, upper);
}

static void hook_hurry(void *context, bool on)
{
    const struct owner_log_hooks *hooks = context;
    log_hurry(hooks->log, on);
}

static void hook_disown(void *context, struct tree *tree, struct format_key lower,
                        const struct format_key *upper, uint64_t epoch)
{
    struct owner_log_hooks *hooks = context;
    spinlock_lock(&hooks->lock);
    log_disown(hooks->log, hooks->session, tree, lower, upper, epoch);
    spinlock_unlock(&hooks->lock);
}

static void hook_released(void *context, struct tree *tree, uint64_t version)
{
    struct owner_log_hooks *hooks = context;
    log_released(hooks->log, tree, version);
}

static void hook_dropped(void *context, struct tree *tree)
{
    struct owner_log_hooks *hooks = context;
    spinlock_lock(&hooks->lock);
    log_dropped(hooks->log, hooks->session, tree);
    spinlock_unlock(&hooks->lock);
}

static int hook_release_dead(void *context, struct tree_session *session, struct fabric_process gone)
{
    struct owner_log_hooks *hooks = context;
    return log_release_dead(hooks->log, session, gone);
}

void owner_log_hook(struct owner *owner, struct owner_log_hooks *hooks)
{
    static const struct owner_log functions = {.inherit = hook_inherit,
                                               .cleared = hook_cleared,
                                               .flush = hook_flush,
                                               .hurry = hook_hurry,
                                               .disown = hook_disown,
                                               .released = hook_released,
                                               .dropped = hook_dropped,
                                               .release_dead = hook_release_dead};
    owner_set_log(owner, &functions, hooks);
}
