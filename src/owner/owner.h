/*
 * owner.h - how the compute nodes of a cluster divide the key ranges of its indexes: the map of ranges in the
 * pool, this process's copy of it, transfers of ranges, and the calls between compute nodes for keys of
 * others' ranges (docs/internals/ownership.md). For the CLI, the server, the C library, benchmarks and the
 * swarm.
 *
 * ONE struct owner belongs to each process that works on a cluster's indexes, beside its tree_compute.
 * Without one (banyan serve, a process that has the pool to itself) tree_rights_own does (rights.h). A
 * process of a cluster that changes leaves and has no struct owner breaks the rights of all the others.
 *
 *     owner_create       then nothing of the process may begin an operation before owner_attach
 *     owner_join         this process is on the board, and has a copy of the map
 *     owner_attach       for each index that is opened, before its first operation
 *     tasks              owner_keep and owner_tick on one task each, owner_serve on one or more;
 *                        owner_threads_start starts them
 *     owner_balance      with policy auto: takes this process's share
 *     ...                operations of tree.h and above, on any session of the compute node
 *     owner_release      gives away what this process has
 *     owner_detach       and tree_close, for each index
 *     owner_stop         the tasks return
 *     owner_leave
 *     owner_destroy
 *
 * OPERATIONS need not know: the tree calls this layer for keys that others own (struct tree_forward).
 *
 * THREADS. Every function may be called by any task, each with a session of its own that is in no operation
 * and holds no lock. Functions with a session suspend the calling task, return 0 or a negative error, and
 * leave the message in tree_session_error. One transfer at a time runs in a cluster: others wait for it.
 */
#ifndef OWNER_OWNER_H
#define OWNER_OWNER_H

#include "format/key.h"
#include "format/range.h"
#include "tree/rights.h"

/* The index in which the map lies. Users' indexes cannot have this name where this layer is asked; listings
 * leave it out or mark it (owner_is_map). */
#define OWNER_MAP_NAME "banyan:ranges"
bool owner_is_map(const char *index_name);

/* The longest lower bound of a range: a key of the map is two bytes longer. */
#define OWNER_BOUND_MAX FORMAT_RANGE_LOWER_MAX

struct owner;

/* ---- options ---- */

/* Whether this process wants ranges. OWNER_NONE: it is given none but by owner_move. */
enum owner_policy { OWNER_NONE, OWNER_AUTO };

struct owner_options {
    int policy;          /* enum owner_policy */
    bool log;            /* this process keeps a log: the ranges that it is given are logged. Needs
                            owner_set_log before owner_join */
    uint64_t timeout_ns; /* an operation on a range that cannot be reached fails after it; 10 s */
    uint64_t adopt_ns;   /* a process that does not adopt a version for so long is fenced; 3 s */
    uint64_t tick_ns;    /* the keeper looks at the board so often where no notice comes; 20 ms */
    uint64_t balance_ns; /* with OWNER_AUTO: the keeper looks so often whether this process has much less than
                            its share; 0: only owner_balance does. 5 s */
    uint32_t ranges;     /* into how many ranges a process's share of an index is divided, about; 8 */
    uint64_t seed;       /* of the keys that bounds are chosen from; 0: this process's instance */
};
void owner_options_default(struct owner_options *options);

/* ---- the log ---- */

/*
 * What a process's log (src/log/) does for the ownership of ranges. A range goes from one process's log to
 * the next by its HEIRS: the map's entry names the processes whose logs may have changes of it that are not
 * merged into its leaves. A process that gets a range with heirs inherits from them before it serves it.
 *
 * The bounds: `upper` NULL: to the end of the index. `tree` is attached. Functions with a session suspend the
 * calling task, return 0 or a negative error with a message in the session, and are called again later after
 * an error: what they have done by then may be done again. For one range they are called one at a time.
 */
struct owner_log {
    /*
     * This process has got the range, and it has heirs: takes over what their logs have of it that is not
     * merged. All operations of the range wait meanwhile (its row is MOVING), also those of other processes.
     * Of each heir's log only what it logged under its epoch counts; a later epoch's changes are newer. The
     * process itself may be one of the heirs, also twice. When it returns 0 this process's log has
     * all of it, safely, under `epoch`, or (where it keeps no log) the leaves have it. Until then the log of
     * this process must not make void what it had of the range under an earlier epoch: the next owner may
     * have to inherit from it. What is merged of a range before it is `cleared` must stay in this log: the
     * next owner inherits from the heirs too, and may find an older change there. It begins no operation of
     * an index (it would wait for a right that is waiting for it), and takes less than adopt_ns: the keeper
     * does it, and adopts nothing meanwhile.
     */
    int (*inherit)(void *context, struct tree_session *session, struct tree *tree,
                   const struct format_heir *heirs, uint32_t heir_count, struct format_key lower,
                   const struct format_key *upper, uint64_t epoch);
    /* The heirs of the range, or of a part of it, that was inherited under `epoch` are off the map: nobody
     * will inherit from them any more, and this log may forget what it has merged. Does not wait. */
    void (*cleared)(void *context, struct tree *tree, struct format_key lower, const struct format_key *upper,
                    uint64_t epoch);
    /* The range is about to be shared, unclaimed, or not logged any more: merges all that the log has of it
     * into its leaves. No operation of the range is under way, none begins, and no other process has a right
     * to it before this returns 0. All lists that change leaves go through the session (or are bound to the
     * same incarnation, pool_session's `pinned`): the process may have been fenced, and the range another's,
     * which the lists' refusal tells. Called again after an error. */
    int (*flush)(void *context, struct tree_session *session, struct tree *tree, struct format_key lower,
                 const struct format_key *upper);
    /* From now on (until false), the process waits for operations that rely on ranges which it loses. They
     * may wait for room in the log, which may come only when they have ended: so they get it at once, as far
     * as the memory nodes have any. Does not wait. */
    void (*hurry)(void *context, bool on);
    /* This process had the range, logged or to inherit, under `epoch`, and does not have it any more: changes
     * of it leave the table of what is not merged, and are merged by this process no more. Where another
     * process inherits them the log must be kept, until `released`. No operation of the range is under way.
     * Does not wait. Called again for what is gone already. */
    void (*disown)(void *context, struct tree *tree, struct format_key lower, const struct format_key *upper,
                   uint64_t epoch);
    /* In the map of `version`, which this process has adopted, no range of the index names this process as an
     * heir: what it disowned of the index under that version or an earlier one need not be kept any more.
     * Does not wait. */
    void (*released)(void *context, struct tree *tree, uint64_t version);
    /* The index is closed, and about to be dropped: nothing of it is logged any more. Does not wait; called
     * more than once. */
    void (*dropped)(void *context, struct tree *tree);
    /* A process that is gone, and fenced at every memory node: no range names it as owner or heir, so what
     * the memory nodes keep of its log may be given back. Under the map's lock. */
    int (*release_dead)(void *context, struct tree_session *session, struct fabric_process gone);
};

/* ---- life ---- */

/* Sets the compute node's struct tree_forward. No round trip. BANYAN_ENOMEM, BANYAN_EINVAL. */
int owner_create(struct owner **owner, struct tree_compute *compute, const struct owner_options *options,
                 struct error *error);
/* Before owner_join, once. Without a log this process is given no range with changes that are not merged.
 * With one, and without the option `log`, it inherits such ranges where no other process can, and merges at
 * once what they have. Both are borrowed until owner_destroy. */
void owner_set_log(struct owner *owner, const struct owner_log *log, void *context);
/* After its tasks have returned (or are gone: a simulation's). Makes no round trip: what this process owns
 * stays its own in the map until others need it, so owner_release comes first where there is time. Detaches
 * what is still attached. NULL is ignored. */
void owner_destroy(struct owner *owner);

/* Enters this process on the board, opens the map or creates it, and fetches it. Called again: does nothing.
 * owner_attach does it where it was not done. */
int owner_join(struct owner *owner, struct tree_session *session);

/* Before the first operation on an index that was just opened or created: installs its rows. BANYAN_EBUSY:
 * this process has the index open already (one struct tree each). BANYAN_ECORRUPT: its part of the map
 * contradicts itself; the message names the index and the entry; nothing of it may be used, other indexes are
 * as before.
 */
int owner_attach(struct owner *owner, struct tree_session *session, struct tree *tree);
/* Before tree_close, when no operation of it is under way any more. What this process still owns of it is
 * given to others or shared, if they can be asked; the status says whether that was so, the index is detached
 * in any case. */
int owner_detach(struct owner *owner, struct tree_session *session, struct tree *tree);

/* ---- tasks ---- */

/* The keeper: hears notices, looks at the board, adopts what is new, resumes the read lease after a loss of
 * the home node, ends transfers that a dead process has begun, and balances. Returns 0 after owner_stop. */
int owner_keep(struct owner *owner, struct tree_session *session);
/* One of the tasks that answer peer calls: as many calls are served at once. Returns 0 after owner_stop, or
 * at once where this process can get no calls. */
int owner_serve(struct owner *owner, struct tree_session *session);
/* The ticker: wakes the keeper now and then, since notices may be lost. Needs no session. */
void owner_tick(struct owner *owner);
/* The keeper, the serving tasks and the ticker return soon. Any thread; does not wait for them. */
void owner_stop(struct owner *owner);

/* For real processes: threads of this layer's own, the first with the keeper, each with some serving fibers.
 */
struct owner_threads;
int owner_threads_start(struct owner_threads **threads, struct owner *owner, unsigned count, unsigned fibers,
                        struct error *error);
/* Stops the owner and waits for the threads. NULL is ignored. */
void owner_threads_stop(struct owner_threads *threads);

/* ---- who owns what ---- */

/* Of enum format_range_state. */
extern const char *const owner_state_names[]; /* NULL-terminated */

/* `owner` and `next` of compute id 0: shared. */
struct owner_range {
    const char *index; /* its name; "" where the index is not there any more */
    uint16_t number;   /* of the index */
    const uint8_t *lower;
    uint32_t lower_length;
    enum format_range_state state;
    struct fabric_process owner, next;
    uint64_t epoch, version; /* of the map, when the entry was last written */
    bool logged;             /* its owner writes it by its log */
    uint32_t heir_count;     /* processes whose logs may have changes of it that are not merged */
    struct format_heir heirs[FORMAT_RANGE_HEIRS_MAX];
};
/* Every range in the map, by index and bound, as it is in the pool now; indexes without an entry are shared
 * as a whole and not visited. The strings are valid during the call. */
int owner_list(struct owner *owner, struct tree_session *session,
               void (*visit)(void *context, const struct owner_range *range), void *context);
/* "this process", "shared", or "compute node 3 (10.0.0.7:7401)". Returns text. */
#define OWNER_TEXT_BYTES 160
char *owner_describe(const struct owner *owner, struct fabric_process process, char text[OWNER_TEXT_BYTES]);

/* The processes that take part, as the board has them. `alive`: connected to the home node. */
struct owner_member {
    struct fabric_process process;
    bool alive, willing; /* willing: OWNER_AUTO */
    bool logs;           /* it keeps a log */
    uint64_t adopted;    /* the version that it has adopted; 0: none yet */
};
int owner_members(struct owner *owner, struct tree_session *session,
                  void (*visit)(void *context, const struct owner_member *member), void *context);

/* ---- changing it: each under the map's lock, and done when it returns 0 ---- */

/*
 * Which ranges: all that match every condition that is set. `tree` must be attached. A range is matched as a
 * whole: split first where a part is meant.
 */
struct owner_selection {
    struct tree *tree; /* NULL: of every attached index */
    const void *key;   /* the range that has the key; NULL: any */
    size_t key_length;
    bool keyed;                  /* `key` counts, also with length 0 */
    bool owned;                  /* those of `owner`; shared ones where that is zeros */
    struct fabric_process owner; /* with `owned` */
    uint32_t per_mille;          /* of those that match, so many in 1,000, spread evenly; 0: all */
};

/* The range that has the key is split there. A range of the same bound is left as it is. BANYAN_EKEYSIZE: the
 * bound is longer than OWNER_BOUND_MAX, or no key of the index. BANYAN_EINVAL: the least key. */
int owner_split(struct owner *owner, struct tree_session *session, struct tree *tree, const void *key,
                size_t key_length);
/* The range that begins at the key and the one to its left become one. BANYAN_ENOTFOUND: no range begins
 * there. BANYAN_ECONFLICT: they are of different owners; the message names them. */
int owner_merge(struct owner *owner, struct tree_session *session, struct tree *tree, const void *key,
                size_t key_length);
/* The ranges become `to`'s; zeros: shared. *moved (may be NULL): how many. BANYAN_ENOTFOUND: nothing matched,
 * or there is no such process in the cluster; the message says which. BANYAN_ENOTSUP: memory nodes keep on
 * disks what owners log, and nothing of the ranges would be logged then. */
int owner_move(struct owner *owner, struct tree_session *session, const struct owner_selection *selection,
               struct fabric_process to, uint32_t *moved);
/* The same, to this process, and to shared. */
int owner_take(struct owner *owner, struct tree_session *session, const struct owner_selection *selection,
               uint32_t *moved);
int owner_share(struct owner *owner, struct tree_session *session, const struct owner_selection *selection,
                uint32_t *moved);
/* This process takes its share of each attached index, by the number of keys: from those that have most, and
 * of an index that was never divided everything, in `ranges` ranges. Does nothing where it has its share. */
int owner_balance(struct owner *owner, struct tree_session *session);
/* What this process has goes to the other willing processes, evenly, or is shared where there are none; from
 * here on it is not willing any more. */
int owner_release(struct owner *owner, struct tree_session *session);
/* Takes this process off the board, so that nobody waits for it: after its last operation, when its tasks
 * have returned. A process that ends without it is fenced by the next transfer that looks for it. */
int owner_leave(struct owner *owner, struct tree_session *session);

/* Does the work under the map's lock, so that no range moves meanwhile, and no log of a process that is gone
 * is given back. For as long as the time-out it waits for the lock; the work takes less than adopt_ns.
 * Returns what the work returns. */
int owner_locked(struct owner *owner, struct tree_session *session,
                 int (*work)(void *context, struct tree_session *session), void *context);

/* Before tree_drop (FLUSHALL, banyan drop): the index becomes shared as a whole, and stays so. owner_forget
 * takes its entries off the map; after the drop, or if there was none. The numbers of indexes are used again
 * after 127 drops, so that what a dead process leaves behind is taken off by the next owner_close. */
int owner_close(struct owner *owner, struct tree_session *session, struct tree *tree);
int owner_forget(struct owner *owner, struct tree_session *session, struct tree *tree);

/* What contradicts itself in the map, a sentence for each problem; for `banyan check`. *count: how many. */
int owner_check(struct owner *owner, struct tree_session *session,
                void (*problem)(void *context, const char *text), void *context, uint32_t *count);

/* ---- counters ---- */

struct owner_stats {
    uint64_t version;             /* adopted */
    uint64_t owned, ranges;       /* rows of attached indexes: this process's, and all */
    uint64_t adoptions, adopt_ns; /* versions, and how long that took in all */
    uint64_t adopt_longest_ns;
    uint64_t transfers, moved; /* begun here and ended; ranges that they moved */
    uint64_t transfer_ns, transfer_longest_ns;
    uint64_t finished;                                         /* of others, ended here */
    uint64_t takeovers;                                        /* of dead processes' ranges */
    uint64_t inherited;                                        /* ranges, from others' logs */
    uint64_t fencings;                                         /* processes that this one had fenced */
    uint64_t forwarded_lookups, forwarded_exchanges, messages; /* asked of others */
    uint64_t forwarded_scans;                                  /* parts of scans */
    uint64_t served_lookups, served_exchanges, served_scans;   /* for others */
    uint64_t refused, refusals;                  /* asked of others in vain; refused to others */
    uint64_t unreachable;                        /* operations that failed for their range's owner */
    uint64_t waits, wait_ns, wait_longest_ns;    /* calls of tree_forward's wait */
    uint64_t pauses, pause_ns, pause_longest_ns; /* rule O2: the read lease had lapsed */
    uint64_t lapses;                             /* of the read lease */
    uint64_t busy; /* not 0: this process changes the map, or inherits, or has heirs to take off */
};
/* Any thread; does not wait. */
void owner_stats(const struct owner *owner, struct owner_stats *stats);

#endif
