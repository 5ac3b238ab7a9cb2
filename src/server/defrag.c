/* defrag.c - see defrag.h. */
#include "server/defrag.h"

#include <assert.h>
#include <stdlib.h>

#include "base/log.h"
#include "server/state.h"

/* Entries of a step, and the time that steps in a row take: others of the thread wait so long. */
#define STEP_ENTRIES 16u
#define SLICE_NS     UINT64_C(400000)
/* The longest rest between them: the marks of chunks being emptied would run out in a much longer one. */
#define REST_MAX_NS (POOL_EVACUATION_MS / 4 * UINT64_C(1000000))
/* How long after a refusal writes count as being refused. */
#define URGENT_NS UINT64_C(10000000000)
/* When memory nodes had nothing to empty, they are asked again after so long. */
#define AGAIN_NS        UINT64_C(1000000000)
#define AGAIN_URGENT_NS UINT64_C(100000000)
/* And so long after a pass that found no room to move to. */
#define AGAIN_REFUSED_NS UINT64_C(5000000000)
/* Leaves that a step of the walk for sparse leaves looks at: one step in each tick. */
#define STEP_LEAVES 32u

struct driver {
    struct server *server;
    struct store_session *store;
    struct store_defrag *defrag;
    struct store_merging merging;
    bool running;
    uint64_t merged_ns; /* when the last complete walk for sparse leaves began */
    uint64_t walk_ns;   /* when the one under way did */
    uint64_t hits;      /* before the pass under way */
    uint64_t begin_ns;  /* not before then */
    uint64_t rest_until;
};

void server_defrag_init(struct server_defrag *defrag, bool active)
{
    *defrag = (struct server_defrag){.active = active,
                                     .ignore_bytes = UINT64_C(4) << 20,
                                     .threshold_lower = 10,
                                     .threshold_upper = 100,
                                     .cycle_min = 1,
                                     .cycle_max = 5};
}

void server_defrag_refused(struct server *server)
{
    atomic_store_relaxed(&server->defrag.refused_ns, task_now());
}

/* ---- how much ---- */

static bool urgent(const struct server *server, uint64_t now)
{
    uint64_t refused = atomic_load_relaxed(&server->defrag.refused_ns);
    return refused && (now < refused || now - refused < URGENT_NS);
}

/* Percent of fragmented to used bytes; 0 if it is too little to care. */
static uint64_t fragmentation(struct server *server)
{
    uint64_t fragmented = 0, used = 1;
    for (unsigned i = 0; i < server_memory_nodes(server); i++) {
        struct server_memory_state state;
        if (!server_memory_is(server, i))
            continue;
        struct memory_status_reply status = {0};
        server_memory_state(server, i, &state, &status);
        fragmented += status.bytes_free_in_chunks;
        used += status.bytes_used;
    }
    return fragmented < atomic_load_relaxed(&server->defrag.ignore_bytes) ? 0 : fragmented * 100 / used;
}

/* Percent of the thread's time; 0: there is nothing to do. */
static uint64_t share(struct server *server, uint64_t now)
{
    struct server_defrag *defrag = &server->defrag;
    uint64_t lower = atomic_load_relaxed(&defrag->threshold_lower),
             upper = atomic_load_relaxed(&defrag->threshold_upper),
             least = atomic_load_relaxed(&defrag->cycle_min), most = atomic_load_relaxed(&defrag->cycle_max);
    if (!atomic_load_relaxed(&defrag->active))
        return 0;
    if (urgent(server, now))
        return most < DEFRAG_URGENT_SHARE ? DEFRAG_URGENT_SHARE : most;
    uint64_t percent = fragmentation(server);
    if (!percent || percent < lower)
        return 0;
    if (percent >= upper || most <= least) /* CONFIG SET may cross them */
        return most;
    return least + (most - least) * (percent - lower) / (upper - lower);
}

/* ---- passes ---- */

/* Nobody else writes these. */
static void publish(struct driver *driver, uint64_t percent)
{
    struct server_defrag *to = &driver->server->defrag;
    const struct store_defrag_counts *from = &driver->defrag->counts;
    uint64_t now = task_now(), since = to->since_ns;
    atomic_store_relaxed(&to->counts.passes, from->passes);
    atomic_store_relaxed(&to->counts.entries, from->entries);
    atomic_store_relaxed(&to->counts.hits, from->hits);
    atomic_store_relaxed(&to->counts.misses, from->misses);
    atomic_store_relaxed(&to->counts.key_hits, from->key_hits);
    atomic_store_relaxed(&to->counts.key_misses, from->key_misses);
    atomic_store_relaxed(&to->counts.bytes, from->bytes);
    atomic_store_relaxed(&to->merges, driver->merging.merges);
    atomic_store_relaxed(&to->running, driver->running ? percent : 0);
    if (since && !driver->running)
        atomic_store_relaxed(&to->time_ns, to->time_ns + (now - since));
    if (!since != !driver->running)
        atomic_store_relaxed(&to->since_ns, driver->running ? now : 0);
}

static void merge_step(struct driver *driver)
{
    bool ended = false;
    uint64_t now = task_now();
    if (!driver->walk_ns)
        driver->walk_ns = now;
    int status = store_merge_step(driver->store, &driver->merging, STEP_LEAVES, &ended);
    if (!status && !ended)
        return;
    /* An error ends the walk like its end: it must not keep chunks from being emptied. */
    driver->merged_ns = driver->walk_ns;
    driver->walk_ns = 0;
}

/* Since writes were refused no complete walk has been made: makes it, in slices. */
static bool merge_urgently(struct driver *driver, uint64_t now)
{
    uint64_t refused = atomic_load_relaxed(&driver->server->defrag.refused_ns), begun = task_now();
    if (!urgent(driver->server, now) || driver->merged_ns >= refused)
        return false;
    if (driver->walk_ns < refused) { /* what it has passed may have become sparse since */
        driver->merging.cursor.length = 0;
        driver->walk_ns = 0;
    }
    do
        merge_step(driver);
    while (driver->walk_ns && task_now() - begun < SLICE_NS);
    task_sleep(task_now() - begun);
    return true;
}

static void begin(struct driver *driver, uint64_t now)
{
    bool any;
    if (now < driver->begin_ns)
        return;
    int status = store_defrag_begin(driver->store, driver->defrag, &any);
    driver->running = !status && any;
    driver->hits = driver->defrag->counts.hits;
    driver->begin_ns = now + (urgent(driver->server, now) ? AGAIN_URGENT_NS : AGAIN_NS);
}

static void end(struct driver *driver)
{
    store_defrag_end(driver->store, driver->defrag);
    driver->running = false;
}

/* How long the others of the thread have it to themselves after steps of so many ns. */
static uint64_t rest_of(uint64_t used, uint64_t percent)
{
    uint64_t time = used * (100 - percent) / percent;
    return time < REST_MAX_NS ? time : REST_MAX_NS;
}

/* Steps for about SLICE_NS; then the others of the thread get the rest of the time. */
static void slice(struct driver *driver, uint64_t percent)
{
    uint64_t begun = task_now(), used = 0;
    bool done = false;
    int status = 0;
    while (!done && !status && used < SLICE_NS) {
        status = store_defrag_step(driver->store, driver->defrag, STEP_ENTRIES, &done);
        used = task_now() - begun;
    }
    /* After an error the next pass begins later, and from the first key; but damage stays where it is. */
    if (done || (status && status != BANYAN_ECORRUPT))
        end(driver);
    if (status == BANYAN_ENOSPC)
        driver->begin_ns = task_now() + AGAIN_REFUSED_NS;
    else if (done && !status && driver->defrag->counts.hits > driver->hits)
        driver->begin_ns = 0; /* there may be more of it */
    driver->rest_until = begun + used + rest_of(used, percent);
}

/* In short sleeps: a step that waited for the network is followed by a long rest, during which the server may
 * stop and CONFIG change. */
static void rest(struct driver *driver, const struct server_thread *thread)
{
    for (uint64_t now = task_now();
         now < driver->rest_until && !thread->stopping && atomic_load_relaxed(&driver->server->defrag.active);
         now = task_now()) {
        uint64_t left = driver->rest_until - now;
        task_sleep(left < SERVER_TICK_NS ? left : SERVER_TICK_NS);
    }
}

static void drive(struct driver *driver, struct server_thread *thread)
{
    uint64_t tick = 0;
    while (!thread->stopping) {
        uint64_t now = task_now(), percent = share(driver->server, now);
        if (driver->running && !atomic_load_relaxed(&driver->server->defrag.active))
            end(driver);
        if (!driver->running && percent && merge_urgently(driver, now))
            continue;
        if (!driver->running && percent)
            begin(driver, now);
        /* What was begun is brought to its end. */
        if (driver->running && !percent)
            percent = atomic_load_relaxed(&driver->server->defrag.cycle_min);
        publish(driver, percent);
        if (now >= tick && atomic_load_relaxed(&driver->server->defrag.active)) {
            tick = now + SERVER_TICK_NS;
            merge_step(driver);
        }
        if (driver->running) {
            slice(driver, percent);
            rest(driver, thread);
        } else {
            task_sleep(SERVER_TICK_NS);
        }
    }
    end(driver);
    publish(driver, 0);
}

void defrag_main(void *argument)
{
    struct server_thread *thread = argument;
    struct tree_session *session = NULL;
    struct driver driver = {.server = thread->server, .defrag = calloc(1, sizeof *driver.defrag)};
    if (!driver.defrag || server_thread_open_session(thread, &session, &driver.store, NULL))
        log_error("no memory for active defragmentation: space in sparse chunks stays there");
    else
        drive(&driver, thread);
    if (driver.store)
        store_session_destroy(driver.store);
    tree_session_destroy(session);
    free(driver.defrag);
    assert(thread->fibers_live);
    thread->fibers_live--;
}
