/*
 * test_kept_kill.c - a memory node with a file whose process is killed: each call has happened wholly or not
 * at all, and one that was answered has happened (docs/internals/durability.md).
 *
 * Two ways. A call is STEPPED: its process runs one instruction at a time (ptrace), and whenever the file has
 * changed a copy of it is opened, as if the process had been killed there. So every point is tried, of every
 * kind of call, of a format, of a staged WRITE, and of the opening itself. And a process that makes random
 * calls is killed at a random moment, some hundred times.
 *
 * What is right is found by a second node, on a copy of the file from before, which makes the same calls: a
 * node does the same with the same file and the same calls.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/log.h"
#include "fabric/local.h"
#include "fabric/local_run.h"
#include "kept.h"
#include "memory/node.h"
#include "step.h"
#include "swarm/world.h"

static int setup(void **state)
{
    (void)state;
    kept_begin(NULL);
    step_set_up();
    log_set_level(LOG_ERROR);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    step_tear_down();
    kept_end();
    return 0;
}

/* The file as its next process finds it. */
static uint32_t digest_of(const char *name)
{
    struct memory_node *node = kept_open(name);
    uint32_t digest = kept_digest(node);
    memory_node_destroy(node);
    return digest;
}

/* ---- stepping ---- */

struct scene {
    const char *name; /* of the file */
    uint64_t seed;
    unsigned before; /* random calls that come first */
    enum kept_deed deed;
};

static void play_before(struct memory_node *node, const struct scene *scene, struct random *random)
{
    random_seed(random, scene->seed);
    for (unsigned i = 0; i < scene->before; i++)
        kept_do(node, random, KEPT_ANY);
}

static void scene_run(void *context)
{
    const struct scene *scene = context;
    struct random random;
    step_trace();
    struct memory_node *node = kept_open(scene->name);
    play_before(node, scene, &random);
    kept_before_call = step_begin;
    kept_do(node, &random, scene->deed);
    if (kept_before_call != NULL) /* there was nothing to free */
        step_begin();
    step_end();
}

/* ---- calls, stepped ---- */

struct verdict {
    struct scene scene;
    uint32_t before, after; /* digests */
    uint64_t cluster;       /* of the format */
    bool happened, ended;
};

static void judge_call(void *context, struct step_watch *watch)
{
    struct verdict *verdict = context;
    kept_copy("copy", verdict->scene.name);
    uint32_t digest = digest_of("copy");
    if (digest != verdict->before && digest != verdict->after)
        fail_msg("deed %d, seed %llu: half done after %llu instructions", (int)verdict->scene.deed,
                 (unsigned long long)verdict->scene.seed, (unsigned long long)watch->steps);
    if (verdict->before == verdict->after)
        return;
    if (verdict->happened && digest != verdict->after)
        fail_msg("deed %d: undone after %llu instructions", (int)verdict->scene.deed,
                 (unsigned long long)watch->steps);
    verdict->happened = digest == verdict->after;
    if (atomic_load_acquire(&step_shared->done) && !verdict->happened)
        fail_msg("deed %d was answered, and has not happened", (int)verdict->scene.deed);
}

static void verdict_child(void *context)
{
    struct verdict *verdict = context;
    scene_run(&verdict->scene);
}

/* The two states that the file may be found in. */
static void find_states(struct verdict *verdict, const char *start)
{
    for (unsigned happened = 0; happened < 2; happened++) {
        struct random random;
        kept_copy("twin", start);
        struct memory_node *node = kept_open("twin");
        play_before(node, &verdict->scene, &random);
        if (happened)
            kept_do(node, &random, verdict->scene.deed);
        struct memory_status_reply status;
        memory_node_status(node, &status);
        verdict->cluster = status.cluster_id;
        memory_node_destroy(node);
        *(happened ? &verdict->after : &verdict->before) = digest_of("twin");
    }
}

/* A batch with a bad block is refused, and who was fenced is fenced by any opening too. */
static bool changes_nothing(enum kept_deed deed)
{
    return deed == KEPT_FREE_BAD || deed == KEPT_FENCE;
}

/* False: the call would change nothing here, though others of its kind do. */
static bool step_deed(enum kept_deed deed, uint64_t seed, unsigned before)
{
    struct verdict verdict = {.scene = {.name = "stepped", .seed = seed, .before = before, .deed = deed}};
    memory_node_destroy(kept_open("stepped"));
    kept_copy("start", "stepped");
    find_states(&verdict, "start");
    const bool tells = verdict.before != verdict.after || changes_nothing(deed);
    if (tells)
        step_through("stepped", verdict_child, &verdict, judge_call);
    unlink(kept_path("stepped"));
    return tells;
}

static void calls_are_whole_at_every_instruction(void **state)
{
    (void)state;
    for (enum kept_deed deed = 0; deed < KEPT_FORMAT; deed++) {
        unsigned stepped = 0;
        for (uint64_t seed = 1; stepped < world_rounds(2); seed++) {
            if (seed == 100)
                fail_msg("deed %d changes nothing", (int)deed);
            stepped += step_deed(deed, world_seed(100 * deed + seed), 60);
        }
    }
}

/* A format leaves no cluster, or the new one. */
static void judge_format(void *context, struct step_watch *watch)
{
    struct verdict *verdict = context;
    struct memory_status_reply status;
    kept_copy("copy", verdict->scene.name);
    kept_unformatted = true;
    struct memory_node *node = kept_open("copy");
    kept_unformatted = false;
    memory_node_status(node, &status);
    uint32_t digest = kept_digest(node);
    if (status.cluster_id != 0 && digest != verdict->before && digest != verdict->after)
        fail_msg("half formatted after %llu instructions", (unsigned long long)watch->steps);
    verdict->happened = digest == verdict->after;
    if (status.cluster_id == 0) { /* the next format makes it whole, whatever the cut one left */
        struct error error = {0};
        assert_int_equal(memory_node_format(node, verdict->cluster, 1, 3, &error), 0);
        assert_int_equal(kept_digest(node), verdict->after);
    }
    memory_node_destroy(node);
    if (atomic_load_acquire(&step_shared->done))
        assert_true(verdict->happened);
}

static void formats_are_whole_at_every_instruction(void **state)
{
    (void)state;
    kept_end();
    kept_begin("/tmp"); /* where it is a disk, its file system clears the pool, not a million instructions */
    struct verdict verdict = {.scene = {.name = "stepped", .seed = 9, .before = 60, .deed = KEPT_FORMAT}};
    memory_node_destroy(kept_open("stepped"));
    kept_copy("start", "stepped");
    find_states(&verdict, "start");
    step_through("stepped", verdict_child, &verdict, judge_format);
    kept_end();
    kept_begin(NULL);
}

/* ---- staged WRITEs ---- */

#define PLACE  UINT64_C(100000) /* watched, as is the first staging area */
#define LENGTH 4096u

struct staged {
    uint8_t old[LENGTH], new[LENGTH];
    bool happened;
};

static void staged_child(void *context)
{
    struct staged *staged = context;
    step_trace();
    struct memory_node *node = kept_open("stepped");
    struct fabric_command command = {.operation = FABRIC_WRITE,
                                     .length = 300,
                                     .address = gaddr_make(0, PLACE),
                                     .write = {.data = staged->new}};
    uint8_t *where = memory_node_target(node)->pool + PLACE;
    step_begin();
    local_write_staged(where, &command, memory_node_staging(node, 0));
    /* another one of this thread, elsewhere: nothing of it gets under the first one's mark */
    command.address = gaddr_make(0, PLACE + 2000);
    command.write.data = staged->new + 2000;
    local_write_staged(where + 2000, &command, memory_node_staging(node, 0));
    step_end();
}

static void judge_staged(void *context, struct step_watch *watch)
{
    struct staged *staged = context;
    kept_copy("copy", "stepped");
    struct memory_node *node = kept_open("copy");
    const uint8_t *found = memory_node_target(node)->pool + PLACE;
    bool one = memcmp(found, staged->new, 300) == 0,
         other = memcmp(found + 2000, staged->new + 2000, 300) == 0;
    if ((!one && memcmp(found, staged->old, 300) != 0) ||
        (!other && memcmp(found + 2000, staged->old + 2000, 300) != 0) || (other && !one) ||
        (staged->happened && !one))
        fail_msg("a WRITE is cut after %llu instructions", (unsigned long long)watch->steps);
    staged->happened = one;
    assert_true(memcmp(found + 300, staged->old + 300, 1700) == 0);
    if (atomic_load_acquire(&step_shared->done))
        assert_true(one && other);
    memory_node_destroy(node);
}

static void step_staged(void (*child)(void *))
{
    static struct staged staged;
    struct random random;
    random_seed(&random, 3);
    for (unsigned i = 0; i < LENGTH; i++) {
        staged.old[i] = (uint8_t)random_next(&random);
        staged.new[i] = (uint8_t)~staged.old[i];
    }
    struct memory_node *node = kept_open("stepped");
    memcpy(memory_node_target(node)->pool + PLACE, staged.old, LENGTH);
    memory_node_destroy(node);
    staged.happened = false;
    step_through("stepped", child, &staged, judge_staged);
    unlink(kept_path("stepped"));
}

static void staged_writes_are_whole_at_every_instruction(void **state)
{
    (void)state;
    step_staged(staged_child);
}

/* The same by a process that embeds the memory node: a list, and a store into a window. */
static void embedded_child(void *context)
{
    struct staged *staged = context;
    struct error error = {0};
    step_trace();
    struct memory_node *node = kept_open("stepped");
    const struct fabric_target *target = memory_node_target(node);
    struct fabric *fabric = fabric_local_create(&target, 1, 1, &error);
    assert_non_null(fabric);
    struct fabric_endpoint *endpoint = fabric_endpoint_open(fabric, &error);
    assert_non_null(endpoint);
    struct fabric_command command = {.operation = FABRIC_WRITE,
                                     .length = 300,
                                     .address = gaddr_make(0, PLACE),
                                     .write = {.data = staged->new}};
    struct fabric_list list = {.count = 1, .commands = &command}, *lists = &list;
    step_begin();
    assert_int_equal(fabric_execute(endpoint, &lists, 1, NULL), 0);
    fabric_window_store(endpoint, gaddr_make(0, PLACE + 2000),
                        fabric_window(fabric, gaddr_make(0, PLACE + 2000), 300), staged->new + 2000, 300);
    step_end();
}

static void embedded_writes_are_whole_at_every_instruction(void **state)
{
    (void)state;
    step_staged(embedded_child);
}

/* ---- the opening, stepped ---- */

static void opening_child(void *context)
{
    const struct verdict *verdict = context;
    step_trace();
    step_begin();
    kept_open(verdict->scene.name);
    step_end();
}

static void judge_opening(void *context, struct step_watch *watch)
{
    const struct verdict *verdict = context;
    kept_copy("copy", verdict->scene.name);
    uint32_t digest = digest_of("copy");
    if (digest != verdict->before)
        fail_msg("another state after %llu instructions of the opening", (unsigned long long)watch->steps);
}

/* A process that is killed in the middle of a call that takes much back, and holds the board's lock. */
static void cut_child(void *context)
{
    const struct scene *scene = context;
    struct random random;
    struct memory_node *node = kept_open(scene->name);
    play_before(node, scene, &random);
    kept_do(node, &random, KEPT_BOARD_LOCK);
    keep_begin(&node->keep.node); /* so that the call's change never ends */
    keep_begin(&node->keep.board_list);
    for (unsigned i = 0; i < 4; i++) {
        kept_do(node, &random, KEPT_ALLOCATE);
        kept_do(node, &random, KEPT_LOG_TAKE);
        kept_do(node, &random, KEPT_FREE);
        kept_do(node, &random, KEPT_BOARD_ENTER);
    }
    struct wire_staging *area = memory_node_staging(node, 0);
    area->offset = PLACE;
    area->length = 100;
    memset(area->data, 7, 100);
    atomic_store_release(&area->marked, WIRE_STAGED);
}

static void openings_are_whole_at_every_instruction(void **state)
{
    (void)state;
    int status;
    struct verdict verdict = {.scene = {.name = "stepped", .seed = 5, .before = 80}};
    memory_node_destroy(kept_open("stepped"));
    pid_t child = step_child(cut_child, &verdict.scene);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    kept_copy("copy", "stepped");
    verdict.before = digest_of("copy");
    step_through("stepped", opening_child, &verdict, judge_opening);
    unlink(kept_path("stepped"));
}

/* The first opening makes the file: there is none, an empty pool, or what is made again. */
static void judge_making(void *context, struct step_watch *watch)
{
    (void)context;
    struct memory_status_reply told;
    kept_copy("copy", "stepped");
    struct error error = {0};
    struct memory_node *node = kept_try("copy", &error);
    if (node == NULL)
        fail_msg("after %llu instructions: %s", (unsigned long long)watch->steps, error.text);
    memory_node_status(node, &told);
    assert_true(told.cluster_id == 1 && told.blocks_used == 0);
    memory_node_destroy(node);
}

static void making_is_whole_at_every_instruction(void **state)
{
    (void)state;
    struct verdict verdict = {.scene = {.name = "stepped"}};
    /* The file is there already, empty, so that it can be watched. It grows by system calls. */
    int descriptor = open(kept_path("stepped"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(descriptor >= 0);
    close(descriptor);
    int status;
    pid_t child = step_child(opening_child, &verdict);
    assert_int_equal(waitpid(child, &status, 0), child);
    struct step_watch watch = {0};
    off_t size = -1;
    while (!atomic_load_acquire(&step_shared->done)) {
        struct stat now;
        if (!step_once(child)) {
            step_kill(child);
            skip();
        }
        assert_int_equal(stat(kept_path("stepped"), &now), 0);
        if (now.st_size != size) {
            size = now.st_size;
            judge_making(NULL, &watch);
            if (watch.bytes > 0)
                step_watch_end(&watch);
            watch =
                size > 0 && (uint64_t)size > KEPT_POOL ? step_watch_begin("stepped") : (struct step_watch){0};
        } else if (watch.bytes > 0 && step_watch_changed(&watch)) {
            judge_making(NULL, &watch);
        }
    }
    assert_true(watch.bytes > 0);
    judge_making(NULL, &watch);
    step_watch_end(&watch);
    step_kill(child);
    unlink(kept_path("stepped"));
}

/* ---- killed at random ---- */

struct life {
    uint64_t seed;
    const char *name;
};

static void life_child(void *context)
{
    const struct life *life = context;
    struct random random;
    struct memory_node *node = kept_open(life->name);
    random_seed(&random, life->seed);
    atomic_store_release(&step_shared->ready, 1u);
    for (;;) {
        uint32_t result = kept_do(node, &random, KEPT_ANY);
        step_shared->results ^= result;
        atomic_store_release(&step_shared->acknowledged, step_shared->acknowledged + 1);
    }
}

/* The same calls on a copy of the file, as many as were answered, or one more. */
static void replay(const struct life *life, uint64_t calls, uint32_t *digest)
{
    struct random random;
    kept_copy("twin", "start");
    struct memory_node *node = kept_open("twin");
    random_seed(&random, life->seed);
    for (uint64_t i = 0; i < calls; i++)
        kept_do(node, &random, KEPT_ANY);
    memory_node_destroy(node);
    *digest = digest_of("twin");
}

static void killed_at_random_nothing_is_lost(void **state)
{
    (void)state;
    const char *often = getenv("BANYAN_KEPT_KILLS");
    unsigned kills = often != NULL ? (unsigned)atoi(often) : world_rounds(200);
    uint64_t calls = 0;
    struct random random;
    random_seed(&random, world_seed(77));
    memory_node_destroy(kept_open("lives"));
    for (unsigned i = 0; i < kills; i++) {
        const struct life life = {.seed = random_next(&random), .name = "lives"};
        kept_copy("start", "lives");
        pid_t child = step_child(life_child, (void *)(uintptr_t)&life);
        uint64_t least = random_below(&random, 60);
        while (atomic_load_acquire(&step_shared->acknowledged) < least ||
               !atomic_load_acquire(&step_shared->ready))
            ;
        const struct timespec pause = {.tv_nsec = (long)random_below(&random, 40000)};
        nanosleep(&pause, NULL);
        step_kill(child);
        uint32_t answered, begun;
        replay(&life, step_shared->acknowledged, &answered);
        replay(&life, step_shared->acknowledged + 1, &begun);
        uint32_t found = digest_of("lives");
        if (found != answered && found != begun)
            fail_msg("kill %u, after %llu calls: neither what was answered, nor with the next call", i,
                     (unsigned long long)step_shared->acknowledged);
        calls += step_shared->acknowledged;
    }
    print_message("  %u kills, %llu calls answered\n", kills, (unsigned long long)calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_whole_at_every_instruction),
        cmocka_unit_test(formats_are_whole_at_every_instruction),
        cmocka_unit_test(staged_writes_are_whole_at_every_instruction),
        cmocka_unit_test(embedded_writes_are_whole_at_every_instruction),
        cmocka_unit_test(openings_are_whole_at_every_instruction),
        cmocka_unit_test(making_is_whole_at_every_instruction),
        cmocka_unit_test(killed_at_random_nothing_is_lost),
    };
    if (getenv("PART"))
        cmocka_set_test_filter(getenv("PART"));
    return cmocka_run_group_tests(tests, setup, teardown);
}
