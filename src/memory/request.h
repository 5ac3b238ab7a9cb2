/*
 * request.h - the requests that a memory node's CPU answers: their kinds, and how they and their replies lie
 * in memory. In host byte order: the backends that cross machines are little-endian alike.
 *
 * Every request begins with its kind, a uint32_t.
 */
#ifndef MEMORY_REQUEST_H
#define MEMORY_REQUEST_H

#include "fabric/fabric.h"

/*
 * THE LIST of kinds, and the registration of the services that answer them (service.h): OWN names a service
 * of every memory node, OTHER stands for one that only some have, which register it themselves. A kind of
 * this list that a memory node has no service for is BANYAN_ENOTSUP there; a kind that is not in it is
 * BANYAN_EINVAL. A number is never
 * given to another kind, so that a peer of another release gets an error, not an answer to something else.
 */
#define MEMORY_KINDS(OWN, OTHER)                                                                             \
    /* first kind, its number, how many kinds, the service */                                                \
    OWN(MEMORY_ALLOCATE, 1, 1, memory_allocate_service)                                                      \
    OWN(MEMORY_FREE, 2, 1, memory_free_service)                                                              \
    OWN(MEMORY_STATUS, 3, 1, memory_status_service)                                                          \
    OWN(MEMORY_USAGE, 4, 1, memory_usage_service)                                                            \
    OTHER(MEMORY_PEERS, 5, 1) /* the daemon's: memoryd/status.c */                                           \
    OWN(MEMORY_EVACUATE, 6, 3, memory_evacuate_service)                                                      \
    OWN(MEMORY_BOARD, 9, 8, memory_board_service)                                                            \
    OTHER(MEMORY_PROCESSES, 17, 5) /* the daemon's: memoryd/processes.c; what is asked: fabric/wire.h */     \
    OWN(MEMORY_LOG, 22, 6, memory_log_service)                                                               \
    OTHER(MEMORY_PERSIST, 28,                                                                                \
          2) /* of those with a disk: persist/disk.c; what is asked: fabric/wire.h, below */                 \
    OTHER(MEMORY_WALK, 30, 2)  /* of those whose CPU walks: walk_service.h */                                \
    OTHER(MEMORY_MERGE, 32, 2) /* likewise */                                                                \
    OWN(MEMORY_DRAIN, 40, 1, memory_drain_service)                                                           \
    OTHER(MEMORY_BRING, 41, 1)                         /* of those with a disk: persist/disk.c */            \
    OTHER(MEMORY_JOURNALS, 42, 1)                      /* likewise; what is asked: fabric/wire.h */          \
    OWN(MEMORY_CLUSTER, 44, 2, memory_cluster_service) /* cluster.h; what is asked: fabric/wire.h */         \
    OWN(MEMORY_HEAT, 46, 1, memory_heat_service)       /* heat.h */

#define MEMORY_KIND_OWN(name, number, kinds, service) name = (number), name##_LAST = (number) + (kinds)-1,
#define MEMORY_KIND_OTHER(name, number, kinds)        name = (number), name##_LAST = (number) + (kinds)-1,
enum memory_request_kind { MEMORY_KINDS(MEMORY_KIND_OWN, MEMORY_KIND_OTHER) };

#define MEMORY_EVACUATE_BEGIN MEMORY_EVACUATE
#define MEMORY_EVACUATE_RENEW (MEMORY_EVACUATE + 1)
#define MEMORY_EVACUATE_END   (MEMORY_EVACUATE + 2)

#define MEMORY_BOARD_LOOK    MEMORY_BOARD
#define MEMORY_BOARD_ENTER   (MEMORY_BOARD + 1)
#define MEMORY_BOARD_LEAVE   (MEMORY_BOARD + 2)
#define MEMORY_BOARD_LOCK    (MEMORY_BOARD + 3)
#define MEMORY_BOARD_CLEAN   (MEMORY_BOARD + 4)
#define MEMORY_BOARD_PUBLISH (MEMORY_BOARD + 5)
#define MEMORY_BOARD_UNLOCK  (MEMORY_BOARD + 6)
#define MEMORY_BOARD_MEMBERS (MEMORY_BOARD + 7)

#define MEMORY_LOG_OPEN      MEMORY_LOG
#define MEMORY_LOG_TAKE      (MEMORY_LOG + 1)
#define MEMORY_LOG_GIVE      (MEMORY_LOG + 2)
#define MEMORY_LOG_LIST      (MEMORY_LOG + 3)
#define MEMORY_LOG_PROCESSES (MEMORY_LOG + 4)
#define MEMORY_LOG_RELEASE   (MEMORY_LOG + 5)

#define MEMORY_SAVE (MEMORY_PERSIST + 1)

#define MEMORY_BATCH_MAX 64

/* What a block is for: data keeps off the reserve of space for nodes of the tree (blocks.h). */
enum memory_purpose { MEMORY_FOR_DATA, MEMORY_FOR_NODES, MEMORY_PURPOSES };
/* In an allocation: as for data, and given back as soon as the memory node has taken what is written there.
 * So one that is being emptied hands it out too. */
#define MEMORY_FOR_STAGING MEMORY_PURPOSES

struct memory_allocate_request {
    uint32_t kind;
    uint32_t block_bytes;
    uint16_t want;        /* 1 to MEMORY_BATCH_MAX */
    uint16_t purpose;     /* enum memory_purpose, or MEMORY_FOR_STAGING */
    uint32_t least_bytes; /* 0, or a size: where there is no block of block_bytes, the largest one there is
                             will do, if it has at least so many */
};
/* BANYAN_ENOSPC when there is not one block. */
struct memory_allocate_reply {
    uint16_t count; /* 1 to want */
    uint16_t keep;  /* how many units of MEMORY_KEEP_UNIT free bytes a compute node may keep of this memory
                       node's */
    uint32_t block_bytes; /* of each: what was asked for, or less (then there is one) */
    gaddr blocks[MEMORY_BATCH_MAX];
};
#define MEMORY_KEEP_UNIT 1024u
struct memory_free_request {
    uint32_t kind;
    uint32_t block_bytes; /* of each: then the request may end behind the last address; 0: `sizes` tells */
    uint32_t count;
    uint32_t reserved;
    gaddr blocks[MEMORY_BATCH_MAX];
    uint32_t sizes[MEMORY_BATCH_MAX];
};
/* To every FREE that succeeds, as far as there is room for it. */
struct memory_free_reply {
    uint32_t keep; /* as above */
};
/* `on` 1: from now on ALLOCATE finds no room here, and compute nodes are told to keep no free blocks of this
 * memory node's, so that it can be emptied; 0: as before. Until the process ends. Logs' segments are handed
 * out as ever. */
struct memory_drain_request {
    uint32_t kind;
    uint32_t on;
};
/* Which addresses commands work on (heat.h): those noted as number `from` and later. The reply ends behind
 * the last address; it has fewer than there are where they do not fit, and begins later where they are kept
 * no more. */
#define MEMORY_HEAT_MOST 448u
struct memory_heat_request {
    uint32_t kind;
    uint32_t reserved;
    uint64_t from;
};
struct memory_heat_reply {
    uint64_t noted; /* so far */
    uint64_t first; /* the number of places[0] */
    uint32_t every; /* one of so many commands is noted */
    uint32_t count;
    gaddr places[MEMORY_HEAT_MOST];
};
struct memory_status_request {
    uint32_t kind;
    uint32_t reserved;
};
struct memory_status_reply {
    uint64_t pool_bytes, chunk_bytes, chunks_total, chunks_used;
    uint64_t blocks_used, bytes_used; /* handed out and not returned */
    uint64_t bytes_free_in_chunks;    /* of chunks in use, not handed out */
    uint64_t bytes_free;              /* in all */
    uint64_t bytes_resident;          /* of chunks that take memory, as far as the memory node knows */
    uint64_t chunks_emptying;         /* kept back while their blocks are moved (EVACUATE) */
    uint64_t chunks_emptied_total, chunks_returned_total; /* so far; returned to the system */
    uint64_t frees_total, allocations_total;
    uint64_t refusals_total; /* allocations that found no room */
    uint64_t cluster_id, node, node_count;
    /* added by the daemon's services; 0 in a process without one */
    uint64_t uptime_ms, compute_nodes, connections, fenced_total, locks_freed_total;
    uint64_t lists_total, commands_total, bytes_read_total, bytes_written_total;
    uint64_t nic, nic_queues; /* 1: it serves RDMA; queue pairs of compute nodes, whose traffic is in none of
                                 the counts above */
    /* of owners' logs (LOG) */
    uint64_t log_processes, log_segments, log_bytes; /* with a log here; of their segments */
    uint64_t log_bytes_max;                          /* that all segments together may have */
    uint64_t kept; /* 1: the pool lies in a file, so that what it holds outlives the process (level process of
                      durability); 0: it does not */
    /* of owners' logs on the disk; all 0 where there is none */
    uint64_t durability;  /* enum fabric_durability, as it was asked for */
    uint64_t disk_failed; /* 1: a write or a sync failed, and nothing is promised any more */
    uint64_t disk_full;   /* 1: the last try found no room */
    uint64_t disk_bytes, disk_syncs_total, disk_frames_total, disk_entries_total, disk_blocks_total;
    uint64_t disk_stale_total;     /* entries whose record was gone by then: the key has a newer one */
    uint64_t disk_elsewhere_total; /* entries with pieces on other memory nodes, which are not copied */
    uint64_t disk_persists_total;  /* PERSIST calls */
    uint64_t disk_sync_ns_max;     /* the longest pass with its sync */
    uint64_t disk_behind_ms;       /* since the last one began that came to its end */
    /* of WALK; all 0 where no thread walks */
    uint64_t walk_threads;
    uint64_t walks_total, walk_keys_total, walk_nodes_total; /* requests, keys of them, nodes looked at */
    uint64_t walk_answered_total;                            /* keys whose walk came to its end here */
    uint64_t walk_busy_total;                                /* requests that found the queue full */
    uint64_t walk_refused_total;                             /* that made no sense */
    uint64_t walk_cpu_ns_total;                              /* CPU time of the threads */
    uint64_t draining; /* 1: it hands out no blocks for nodes and data (DRAIN) */
    /* of MERGE, by threads of its own, or by those that walk where there are none */
    uint64_t merge_threads;
    uint64_t merges_total, merge_entries_total, merge_merged_total; /* requests, entries, those merged */
    uint64_t merge_busy_total;                                      /* requests that found the queue full */
    uint64_t merge_cpu_ns_total;                                    /* CPU time of threads of its own */
    /* The oldest list of memory nodes, by its generation, by which a compute node goes that is connected; 0:
     * one has not said yet; UINT64_MAX: none is connected. */
    uint64_t list_heard;
};
/* Which blocks are handed out, for `banyan check`: the bits of granules of MEMORY_BLOCK_MIN bytes. */
struct memory_usage_request {
    uint32_t kind;
    uint32_t reserved;
    uint64_t first; /* granule, from the first chunk's begin on; a multiple of 64 */
};
#define MEMORY_USAGE_WORDS 2048u
struct memory_usage_reply {
    gaddr base;        /* of granule 0 */
    uint64_t granules; /* there are so many */
    uint64_t
        first; /* at or behind the request's: none of those between is handed out; `granules`: none at all */
    uint32_t words, reserved;
    struct memory_usage_word {
        uint64_t used, starts;  /* 64 granules: those handed out, and those where a block begins */
    } bits[MEMORY_USAGE_WORDS]; /* only `words` of them are sent */
};
/*
 * Chunks that are to be emptied. BEGIN ends an evacuation that the same compute node has begun, and lets the
 * memory node choose; RENEW keeps the marks; both tell the ranges of the chunks that are kept back. END hands
 * what is left of them out again. Marks vanish MEMORY_EVACUATION_MS after the last BEGIN or RENEW.
 * BANYAN_ENOTFOUND: there is no such evacuation (any more). BANYAN_EBUSY: too many compute nodes empty
 * chunks.
 */
#define MEMORY_EVACUATION_MS  60000u
#define MEMORY_EVACUATION_MAX 64u
struct memory_evacuate_request {
    uint32_t kind;
    uint32_t tried; /* END: 1 if everything in the chunks was tried: what is left of them is left alone until
                       it has changed */
    uint64_t evacuation; /* RENEW, END: as BEGIN named it */
};
struct memory_evacuate_reply {
    uint64_t evacuation; /* 0: nothing is worth emptying */
    uint32_t count;      /* ranges */
    uint32_t reserved;
    struct memory_evacuate_range {
        gaddr from, to; /* every block that begins from `from` on, before `to`, has bytes in the chunk */
    } ranges[MEMORY_EVACUATION_MAX]; /* only `count` of them are sent; in ascending order */
};
/*
 * The board (board.c): what compute nodes need of one memory node, memory node 0, to divide key ranges among
 * themselves (docs/internals/ownership.md). It holds a version number, a lock, and a table of members with
 * the version that each has adopted. A process is a compute id and an instance; the compute id of a request
 * is that of its connection.
 *
 *  LOOK     only the reply.
 *  ENTER    the caller is a member from now on, and has adopted `version`; a member's number only grows.
 *           What it says of itself (`willing`, `overdue`, `logs`) replaces what it said before.
 *           BANYAN_ENOSPC: there are MEMORY_BOARD_MEMBERS_MAX of them.
 *  LEAVE    it is none any more.
 *  LOCK     takes the lock if it is free, or the caller's already; `grant` of the reply is 0 if it is
 * another's
 *           (`holder`). Each grant has a number of its own. `orphan`: a holder that was fenced, which the
 *           caller must fence at every memory node before it writes anything.
 *  CLEAN    the caller, who has the lock, has fenced `process` at every memory node: it is no orphan any
 * more, and no member unless it has entered since `serial` was read. PUBLISH  `version` is the board's; it
 * must be the next one, or the board's already. UNLOCK   of that grant; of another one it does nothing.
 *  MEMBERS  `skip` tells how many earlier replies have named; the reply is a memory_board_members.
 *
 * BANYAN_ECONFLICT: to CLEAN and PUBLISH of a caller whose `grant` has not the lock (any more), and to
 * PUBLISH while there is an orphan.
 */
struct memory_board_process {
    uint64_t instance; /* 0: none */
    uint16_t compute_id;
    uint16_t reserved[3];
};
/* What a member can do with logged ranges. */
enum memory_board_log {
    MEMORY_BOARD_NO_LOG,   /* nothing: it can be given none that are not merged */
    MEMORY_BOARD_INHERITS, /* it can read other processes' logs, and merge what they have; it keeps none */
    MEMORY_BOARD_LOGS,     /* it keeps a log itself: its ranges are logged */
    MEMORY_BOARD_LOG_KINDS
};
struct memory_board_request {
    uint32_t kind;
    uint32_t skip;                       /* MEMBERS */
    uint64_t instance;                   /* the caller's */
    uint64_t grant;                      /* CLEAN, PUBLISH, UNLOCK */
    uint64_t version;                    /* ENTER, PUBLISH */
    uint64_t serial;                     /* CLEAN: the member's, as it was before the fencing began */
    uint16_t willing;                    /* ENTER: 1 if the process wants ranges */
    uint16_t overdue;                    /* ENTER: 1 if it can adopt nothing later before it was fenced */
    uint32_t logs;                       /* ENTER: enum memory_board_log */
    struct memory_board_process process; /* CLEAN */
};
struct memory_board_reply {
    uint64_t version, grant;
    struct memory_board_process holder, orphan;
};
#define MEMORY_BOARD_MEMBERS_MAX  4096u
#define MEMORY_BOARD_MEMBERS_PAGE 128u
struct memory_board_members {
    uint32_t count, total;
    uint64_t version;
    struct memory_board_member {
        struct memory_board_process process;
        uint64_t adopted, serial;  /* each ENTER has a serial number of its own */
        uint16_t willing, overdue; /* as it entered with them */
        uint32_t logs;
    } members[MEMORY_BOARD_MEMBERS_PAGE]; /* only `count` of them are sent */
};
/*
 * Owners' logs (log.c, docs/internals/log.md). A process (compute id and instance) that keeps a log here has
 * a control block of MEMORY_LOG_CONTROL_BYTES and segments; all are blocks of the pool that FREE does not
 * take, and that are never moved. The compute id of a request is that of its connection.
 *
 *  OPEN       the caller keeps a log here from now on. A new one has a control block of zeros and no segment;
 *             one that is there already stays as it is.
 *  TAKE       a segment of about `bytes` for the caller, or a smaller one: a multiple of
 *             MEMORY_LOG_SEGMENT_LEAST. Its first MEMORY_LOG_HEADER_BYTES are zero, the others anything.
 *  GIVE       the caller gives `segment` back, which must be one of its own, with its number.
 *  LIST       the segments of `process` with numbers above `after`, in the order in which they were taken:
 *             the reply is a memory_log_segments.
 *  PROCESSES  the processes that have a log here with serial numbers above `after`, in the order of their
 *             first OPEN: the reply is a memory_log_processes.
 *  RELEASE    gives back everything of `process`, which is the caller itself, or has been fenced here since
 *             its last OPEN.
 *
 * To OPEN and TAKE a reply with a `refusal` says why nothing was granted. A fencing gives nothing back, since
 * successors read the log; a format gives everything back.
 *
 * BANYAN_ENOTFOUND: the process (TAKE, GIVE: the caller) has no log here. BANYAN_ECONFLICT: to TAKE and GIVE
 * of a caller that was fenced since its last OPEN. BANYAN_EBUSY: RELEASE of another process that was not
 * fenced. BANYAN_EINVAL: to GIVE of what is no segment of the caller.
 */
#define MEMORY_LOG_PROCESSES_MAX 4096u
#define MEMORY_LOG_SEGMENTS_MAX  1024u /* of one process */
#define MEMORY_LOG_CONTROL_BYTES 64u
#define MEMORY_LOG_HEADER_BYTES  64u
#define MEMORY_LOG_SEGMENT_LEAST (64u << 10)
#define MEMORY_LOG_SEGMENT_MOST  (8u << 20)
struct memory_log_segment {
    gaddr address; /* a multiple of 64 */
    uint64_t bytes;
    uint64_t number; /* among all segments that the memory node has handed out so far; from 1 */
};
struct memory_log_request {
    uint32_t kind;
    uint32_t reserved;
    uint64_t instance;                   /* the caller's */
    uint64_t bytes;                      /* TAKE */
    uint64_t after;                      /* LIST, PROCESSES; 0: from the first on */
    struct memory_log_segment segment;   /* GIVE */
    struct memory_board_process process; /* LIST, RELEASE */
};
enum memory_log_refusal {
    MEMORY_LOG_GRANTED,
    MEMORY_LOG_NO_PROCESS, /* MEMORY_LOG_PROCESSES_MAX of them have a log here */
    MEMORY_LOG_NO_BUDGET,  /* segments have all the bytes that they may have together */
    MEMORY_LOG_NO_SHARE,   /* this process has all that one may have; the others keep room for theirs */
    MEMORY_LOG_NO_SPACE,   /* the pool has no room */
    MEMORY_LOG_REFUSALS,
};
/* To OPEN, TAKE, GIVE and RELEASE. */
struct memory_log_reply {
    uint32_t refusal;                  /* enum memory_log_refusal */
    uint32_t segments;                 /* that the caller has now */
    uint64_t bytes;                    /* of them */
    gaddr control;                     /* the caller's control block; GADDR_NULL: it has none */
    struct memory_log_segment segment; /* TAKE */
    uint64_t used, most;               /* bytes of all processes' segments, and what they may have */
};
#define MEMORY_LOG_PAGE 64u
struct memory_log_segments {
    uint32_t count;
    uint32_t total;  /* segments that the process has */
    uint32_t fenced; /* 1: it was fenced here since its last OPEN */
    uint32_t reserved;
    gaddr control;
    uint64_t bytes;                                      /* of all its segments */
    struct memory_log_segment segments[MEMORY_LOG_PAGE]; /* only `count` of them are sent */
};
struct memory_log_processes {
    uint32_t count, total;
    uint64_t used, most;
    struct memory_log_process {
        struct memory_board_process process;
        uint64_t serial; /* each first OPEN has a number of its own, from 1 */
        gaddr control;
        uint64_t bytes; /* of its segments */
        uint32_t segments;
        uint32_t fenced;          /* as above */
    } processes[MEMORY_LOG_PAGE]; /* only `count` of them are sent */
};
/* Who is connected. */
struct memory_peers_request {
    uint32_t kind;
    uint32_t skip; /* so many peers, which earlier replies have named */
};
#define MEMORY_PEERS_MAX 64u
struct memory_peers_reply {
    uint32_t count, total;
    struct memory_peer {
        uint16_t compute_id;
        uint8_t mapped, reserved;
        uint32_t connections;
        uint64_t connected_ms; /* ago */
        uint64_t heartbeat_ms; /* the last, ago */
        char name[64], address[128];
    } peers[MEMORY_PEERS_MAX]; /* only `count` of them are sent */
};

/*
 * SAVE: a memory node's part in a checkpoint of the whole cluster, which one compute node makes
 * (persist/saving.h, save/save.h; docs/internals/durability.md, P11 to P15). One compute node at a time holds
 * it. TAKE, LEAVE and LOOK are done when they are answered. The other actions are done by the thread of the
 * memory node's disk: `busy` in the reply to a LOOK says that it has not ended yet, then `status` what came
 * of it. BANYAN_EBUSY: another compute node holds it, or an action is under way. BANYAN_EINVAL: the action
 * does not fit the state.
 */
enum memory_save_action {
    MEMORY_SAVE_LOOK = 1,
    MEMORY_SAVE_TAKE,
    MEMORY_SAVE_LEAVE,   /* what was begun and not prepared is dropped */
    MEMORY_SAVE_BEGIN,   /* the journal's position is noted; `number` is the checkpoint's */
    MEMORY_SAVE_WRITE,   /* `length` bytes at `address` of the pool come to `offset` of the part */
    MEMORY_SAVE_END,     /* of the part, which has `bytes` with this check, and is on the disk then */
    MEMORY_SAVE_PREPARE, /* all parts: from now on the checkpoint outlives a loss of power, and does not count
                          */
    MEMORY_SAVE_COMMIT,  /* it counts; what it makes unneeded is removed */
    MEMORY_SAVE_DROP,    /* it never will */
};
enum memory_save_state {
    MEMORY_SAVE_IDLE,
    MEMORY_SAVE_OPEN,    /* parts are written */
    MEMORY_SAVE_WRITTEN, /* the table is too: nothing more comes */
    MEMORY_SAVE_PREPARED,
};
#define MEMORY_SAVE_TABLE UINT32_MAX /* the part that says what the others are; each memory node has it */
#define MEMORY_SAVE_MARKS 64u
struct memory_save_request {
    uint32_t kind, action;
    uint64_t number;          /* from BEGIN on */
    uint32_t part;            /* WRITE, END: ascending from 0, in the whole cluster; or MEMORY_SAVE_TABLE */
    uint32_t length;          /* WRITE */
    gaddr address;            /* WRITE */
    uint64_t offset;          /* WRITE: how much of the part there is; LOOK: how many marks to leave out */
    uint64_t bytes, entries;  /* END */
    uint32_t check, reserved; /* END: CRC32C of all bytes */
};
struct memory_save_mark {
    uint64_t instance; /* of a process with segments here */
    uint64_t sequence; /* the greatest that stands before the position */
};
struct memory_save_reply {
    uint32_t state; /* enum memory_save_state */
    uint32_t busy;
    int32_t status;       /* of the last action that has ended; its message is in the memory node's log */
    uint16_t holder, due; /* compute id, or 0; due: 1: the journal has become long, or has no room */
    uint64_t number;      /* of the checkpoint that is under way or prepared; 0: there is none */
    uint64_t committed;   /* of the one that counts; 0: there is none */
    uint64_t saved_ms;    /* when that was committed, ms since 1970; 0: not in this life */
    uint64_t journal_bytes, checkpoint_bytes;
    uint32_t count, total;                            /* marks */
    struct memory_save_mark marks[MEMORY_SAVE_MARKS]; /* only `count` of them are sent */
};

/*
 * BRING: an owner is going to log a value whose pieces lie on other memory nodes, and this one's disk is to
 * have them (persist/brought.h; docs/internals/durability.md, P17). Of each piece `address` is where its
 * bytes lie, and `hash` is that of its bytes; `staged` is where a copy of them lies in this memory node's
 * pool, or 0: then it is only asked whether the journal has them. Staged bytes are taken when the call
 * returns, and come to the journal before any frame that is written behind that. The reply has a bit for
 * each piece that is missing still. Until the entry is in the journal, but no longer than `hold_ms`, no
 * checkpoint releases what it has of the piece. BANYAN_EINVAL: the request makes no sense. BANYAN_EBUSY: too
 * much waits for the disk, and nothing of what is staged was taken; call again in a while. BANYAN_ENOMEM.
 */
#define MEMORY_BRING_MAX 256u
struct memory_bring_piece {
    gaddr address, staged;
    uint64_t hash;
    uint32_t length;
    uint32_t hold_ms; /* for so long the entry may take to come; 0: MEMORY_BRING_HOLD_MS */
};
#define MEMORY_BRING_HOLD_MS     10000u
#define MEMORY_BRING_HOLD_MS_MAX 660000u /* a longer one counts as this */
struct memory_bring_request {
    uint32_t kind;
    uint32_t count; /* 1 to MEMORY_BRING_MAX; only so many are sent */
    struct memory_bring_piece pieces[MEMORY_BRING_MAX];
};
struct memory_bring_reply {
    uint64_t missing[MEMORY_BRING_MAX / 64];
};

/*
 * WALK: the memory node's CPU goes down an index for the caller, from a link on, by what lies in its own pool
 * (walk.h, docs/internals/walks.md).
 *
 *  FIND   for each of `count` keys: a memory_walk_start and the key's bytes. The reply has a
 *         memory_walk_answer and the value's bytes for each, in the order of the keys.
 *  FETCH  for one position (count 1): its way down to level `down_to`. The reply has one memory_walk_answer.
 *
 * With `path`, and in any FETCH, the nodes above `down_to` that the way of the first key has passed come
 * behind the answers, each as a memory_walk_node and its bytes, as far as there is room in the reply; in a
 * FETCH down to level 0 up to `leaves` leaves follow, from the position on. BANYAN_EINVAL: the request makes
 * no sense. BANYAN_EBUSY: the memory node has too much to do, and nothing was looked at.
 */
#define MEMORY_WALK_FIND     MEMORY_WALK
#define MEMORY_WALK_FETCH    (MEMORY_WALK + 1)
#define MEMORY_WALK_KEYS_MAX 32u
#define MEMORY_WALK_LEAVES   32u
struct memory_walk_geometry { /* struct format_geometry, complete */
    uint32_t leaf_bytes, internal_bytes;
    uint8_t key_kind, key_bytes, inline_key_bytes, value_bytes, value_variable, content, leaf_kind, reserved;
};
struct memory_walk_request {
    uint32_t kind;
    uint16_t index; /* in each node's header */
    uint16_t count;
    struct memory_walk_geometry geometry;
    uint8_t path;    /* 1: the way's nodes are wanted; MERGE, EXCHANGE: what the keys held before */
    uint8_t down_to; /* FETCH */
    uint8_t leaves;  /* FETCH down to 0 */
    uint8_t before;  /* FETCH: 1: what lies just below the position; further leaves descend */
    uint32_t reserved;
};
struct memory_walk_start {
    gaddr address; /* of the node to begin with, on this memory node */
    uint32_t tag;
    uint8_t level, key_length; /* the key's bytes follow */
    uint16_t reserved;
};
enum memory_walk_outcome {
    MEMORY_WALK_HIT = 1,   /* the value, of the key in the leaf that the answer names (R1) */
    MEMORY_WALK_MISS,      /* the key is not in the index (R2): proven by that leaf */
    MEMORY_WALK_ARRIVED,   /* FETCH: the answer names the node of level `down_to` */
    MEMORY_WALK_ELSEWHERE, /* the named node, of the named level, is next, on another memory node */
    /* The walk ended at the named node, and the caller has to look itself: */
    MEMORY_WALK_STALE,    /* another node lies there now, or a dead one */
    MEMORY_WALK_UNPROVEN, /* it did not prove itself in many tries, or is half done */
    MEMORY_WALK_ASTRAY,   /* it is of another level, or lies left of the key */
    MEMORY_WALK_GAP,      /* the range belongs to its left neighbour's last child */
    MEMORY_WALK_FAR,      /* too many siblings on the way */
    MEMORY_WALK_CORRUPT,  /* what it says is impossible */
    MEMORY_WALK_MORE,     /* MERGE, EXCHANGE: more than one slot would have to be written */
    MEMORY_WALK_OUTCOMES
};
struct memory_walk_answer {
    gaddr address;
    uint32_t tag;
    uint8_t outcome; /* enum memory_walk_outcome */
    uint8_t level;
    uint8_t value_length; /* HIT; the bytes follow */
    uint8_t reserved;
};
/*
 * MERGE: for each of `count` entries a memory_merge_entry, the key's and the value's bytes: what an owner has
 * logged goes into its leaf (walk_merge.c, docs/internals/walks.md), of which the caller holds the lock until
 * it has the reply. That has a memory_walk_answer for each, in their order: HIT (the key had a value, which
 * follows with `path`) and MISS (it had none) say that the leaf has it now; all others that nothing was
 * written. The address is that of the block in which the key lies, if the slot names one, or did before the
 * key was deleted; the tag is the number of the slot that was written, UINT32_MAX: none.
 */
struct memory_merge_entry {
    gaddr leaf; /* on this memory node */
    uint32_t tag;
    uint8_t key_length, value_length; /* their bytes follow */
    uint8_t deleted;                  /* 1: the key goes; without a value */
    uint8_t reserved;
};
/*
 * EXCHANGE: the same of one change of a client (count 1), with a condition: behind the entry comes what its
 * key must hold, a memory_exchange_expected and its bytes. Where the key holds something else the answer says
 * what (HIT or MISS, as ever), and its tag is UINT32_MAX: nothing was written.
 */
#define MEMORY_EXCHANGE (MEMORY_MERGE + 1)
enum memory_expectation {
    MEMORY_EXPECT_ANYTHING, /* whatever it holds, or nothing */
    MEMORY_EXPECT_NOTHING,
    MEMORY_EXPECT_SOMETHING,
    MEMORY_EXPECT_VALUE, /* the bytes that follow */
    MEMORY_EXPECTATIONS
};
struct memory_exchange_expected {
    uint8_t expects; /* enum memory_expectation */
    uint8_t length;  /* VALUE */
    uint16_t reserved;
};
struct memory_walk_node {
    gaddr address;
    uint32_t tag;
    uint32_t bytes; /* that follow */
    uint8_t level;
    uint8_t reserved[7];
};
struct memory_walk_reply {
    uint16_t answers, nodes;
    uint32_t visited; /* nodes that were looked at */
    /* the answers, each with its value, then the nodes; nothing of it is aligned */
};

#endif
