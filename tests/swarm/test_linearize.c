/* test_linearize.c - the checker accepts what an atomic map can do and rejects what it cannot. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/error.h"
#include "base/random.h"
#include "swarm/linearize.h"

#define FOREVER UINT64_MAX

static struct history_op made(uint64_t invoked, uint64_t returned, enum history_kind kind, uint64_t argument,
                              uint64_t expected, int status, uint64_t result)
{
    return (struct history_op){.invoked = invoked,
                               .returned = returned,
                               .kind = (uint8_t)kind,
                               .argument = argument,
                               .expected = expected,
                               .status = status,
                               .result = result,
                               .known = returned != FOREVER};
}
#define GET(from, to, value)      made(from, to, HISTORY_GET, 0, 0, (value) ? 0 : BANYAN_ENOTFOUND, value)
#define PUT(from, to, value)      made(from, to, HISTORY_PUT, value, 0, 0, 0)
#define INSERT(from, to, v, code) made(from, to, HISTORY_INSERT, v, 0, code, 0)
#define UPDATE(from, to, v, code) made(from, to, HISTORY_UPDATE, v, 0, code, 0)
#define DELETE(from, to, code)    made(from, to, HISTORY_DELETE, 0, 0, code, 0)
#define CAS(from, to, e, v, code) made(from, to, HISTORY_CAS, v, e, code, 0)
#define MODIFY(from, to, old, v)  made(from, to, HISTORY_MODIFY, v, 0, 0, old)

#define judge(...)                                                                                           \
    linearize_key((const struct history_op[]){__VA_ARGS__},                                                  \
                  sizeof((const struct history_op[]){__VA_ARGS__}) / sizeof(struct history_op), 0, NULL,     \
                  NULL, 0)
#define accept(...) assert_int_equal(judge(__VA_ARGS__), LINEARIZE_ACCEPTED)
#define reject(...) assert_int_equal(judge(__VA_ARGS__), LINEARIZE_REJECTED)

static void accepts_sequences(void **state)
{
    accept(GET(1, 2, 0), PUT(3, 4, 7), GET(5, 6, 7), DELETE(7, 8, 0), GET(9, 10, 0));
    accept(INSERT(1, 2, 1, 0), INSERT(3, 4, 2, BANYAN_EEXIST), UPDATE(5, 6, 3, 0), CAS(7, 8, 3, 4, 0),
           CAS(9, 10, 3, 5, BANYAN_ECONFLICT), GET(11, 12, 4));
    accept(UPDATE(1, 2, 1, BANYAN_ENOTFOUND), DELETE(3, 4, BANYAN_ENOTFOUND),
           CAS(5, 6, 1, 2, BANYAN_ENOTFOUND));
    accept(MODIFY(1, 2, 0, 5), MODIFY(3, 4, 5, 6), MODIFY(5, 6, 6, 0), MODIFY(7, 8, 0, 0), GET(9, 10, 0));
}

static void accepts_overlaps(void **state)
{
    /* The second put may have come first. */
    accept(PUT(1, 10, 1), PUT(2, 9, 2), GET(11, 12, 1), GET(13, 14, 1));
    accept(PUT(1, 10, 1), PUT(2, 9, 2), GET(11, 12, 2));
    /* Readers during the write may see either, but then stay. */
    accept(PUT(1, 2, 1), PUT(3, 20, 2), GET(4, 5, 1), GET(6, 7, 2), GET(8, 9, 2));
    accept(INSERT(1, 10, 1, 0), INSERT(2, 9, 2, BANYAN_EEXIST), DELETE(3, 8, 0), INSERT(4, 12, 3, 0));
}

static void rejects_stale_reads(void **state)
{
    reject(PUT(1, 2, 1), PUT(3, 4, 2), GET(5, 6, 1));
    reject(PUT(1, 2, 1), PUT(3, 20, 2), GET(4, 5, 2), GET(6, 7, 1));
    reject(PUT(1, 2, 1), GET(3, 4, 0));
    reject(GET(1, 2, 1), PUT(3, 4, 1));
    reject(PUT(1, 2, 1), GET(3, 4, 9));
}

static void rejects_lost_updates(void **state)
{
    reject(PUT(1, 2, 1), MODIFY(3, 10, 1, 2), MODIFY(4, 9, 1, 3));
    reject(PUT(1, 2, 1), CAS(3, 10, 1, 2, 0), CAS(4, 9, 1, 3, 0));
    reject(PUT(1, 2, 1), UPDATE(3, 4, 2, 0), PUT(5, 6, 3), GET(7, 8, 2));
    reject(INSERT(1, 10, 1, 0), INSERT(2, 9, 2, 0));
}

static void rejects_resurrection(void **state)
{
    reject(PUT(1, 2, 1), DELETE(3, 4, 0), GET(5, 6, 1));
    reject(PUT(1, 2, 1), DELETE(3, 20, 0), GET(4, 5, 0), GET(6, 7, 1));
    reject(PUT(1, 2, 1), DELETE(3, 10, 0), DELETE(4, 9, 0));
    accept(PUT(1, 2, 1), DELETE(3, 10, 0), DELETE(4, 9, BANYAN_ENOTFOUND));
}

static void rejects_wrong_outcomes(void **state)
{
    reject(INSERT(1, 2, 1, BANYAN_EEXIST));
    reject(PUT(1, 2, 1), INSERT(3, 4, 2, 0));
    reject(PUT(1, 2, 1), DELETE(3, 4, 0), INSERT(5, 6, 2, BANYAN_EEXIST));
    reject(PUT(1, 2, 1), UPDATE(3, 4, 2, BANYAN_ENOTFOUND));
    reject(PUT(1, 2, 1), CAS(3, 4, 1, 2, BANYAN_ECONFLICT));
    reject(PUT(1, 2, 1), PUT(3, 4, 2), CAS(5, 6, 1, 3, 0));
    reject(PUT(1, 2, 1), PUT(3, 4, 2), made(5, 6, HISTORY_PUT, 3, 0, BANYAN_ENOTFOUND, 0));
}

static void allows_for_unknown_outcomes(void **state)
{
    accept(PUT(1, FOREVER, 1), GET(2, 3, 0), GET(4, 5, 0), GET(6, 7, 1));
    accept(PUT(1, FOREVER, 1), GET(2, 3, 0));
    reject(PUT(1, FOREVER, 1), GET(2, 3, 1), GET(4, 5, 0));
    reject(GET(1, 2, 1), PUT(3, FOREVER, 1));
    accept(PUT(1, 2, 1), DELETE(3, FOREVER, 0), GET(4, 5, 1), GET(6, 7, 0), INSERT(8, 9, 2, 0));
    reject(PUT(1, 2, 1), DELETE(3, FOREVER, 0), GET(4, 5, 0), PUT(6, 7, 2), GET(8, 9, 0));
    reject(PUT(1, 2, 1), UPDATE(3, FOREVER, 2, 0), GET(4, 5, 2), GET(6, 7, 1));
    accept(PUT(1, 2, 1), CAS(3, FOREVER, 1, 2, 0), GET(4, 5, 2));
    reject(PUT(1, 2, 1), CAS(3, FOREVER, 5, 2, 0), GET(4, 5, 2));
    accept(made(1, FOREVER, HISTORY_GET, 0, 0, 0, 0), PUT(2, 3, 1));
}

/* Which of many lost writes has happened makes no difference where no operation saw what they wrote: a search
 * that tries each set of them never ends. */
static void decides_among_many_lost_writes(void **state)
{
    struct history_op ops[64];
    size_t count = 0;
    for (uint64_t i = 0; i < 5; i++) {
        ops[count++] = DELETE(1, FOREVER, 0);
        ops[count++] = INSERT(1, FOREVER, 10 * i + 100, 0);
        ops[count++] = UPDATE(1, FOREVER, 10 * i + 101, 0);
        ops[count++] = PUT(1, FOREVER, 10 * i + 102);
        ops[count++] = MODIFY(1, FOREVER, 0, 10 * i + 103);
        ops[count++] = MODIFY(1, FOREVER, 0, 0);
    }
    ops[count++] = PUT(2, 3, 1);
    ops[count++] = GET(4, 5, 1);
    ops[count++] = GET(6, 7, 0); /* one of those that delete */
    ops[count++] = PUT(8, 9, 2);
    ops[count++] = INSERT(10, 11, 3, 0); /* another one */
    ops[count++] = GET(12, 13, 3);
    assert_int_equal(linearize_key(ops, count, 0, NULL, NULL, 0), LINEARIZE_ACCEPTED);
    ops[count++] = GET(14, 15, 2);
    assert_int_equal(linearize_key(ops, count, 0, NULL, NULL, 0), LINEARIZE_REJECTED);
}

static void tells_malformed(void **state)
{
    assert_int_equal(judge(PUT(1, 2, 1), PUT(3, 4, 1)), LINEARIZE_MALFORMED);
    assert_int_equal(judge(PUT(1, 2, 0)), LINEARIZE_MALFORMED);
}

/* ---- against a real atomic register -------------------------------------------------------------- */

struct running {
    struct history_op op;
    bool active, done;
};

static void take_effect(struct history_op *op, uint64_t *value)
{
    uint64_t old = *value;
    op->status = 0;
    switch ((enum history_kind)op->kind) {
    case HISTORY_GET:
        op->result = old;
        op->status = old ? 0 : BANYAN_ENOTFOUND;
        return;
    case HISTORY_PUT:
        break;
    case HISTORY_INSERT:
        op->status = old ? BANYAN_EEXIST : 0;
        break;
    case HISTORY_UPDATE:
        op->status = old ? 0 : BANYAN_ENOTFOUND;
        break;
    case HISTORY_DELETE:
        op->status = old ? 0 : BANYAN_ENOTFOUND;
        *value = 0;
        return;
    case HISTORY_CAS:
        op->status = !old ? BANYAN_ENOTFOUND : old == op->expected ? 0 : BANYAN_ECONFLICT;
        break;
    case HISTORY_MODIFY:
        op->result = old;
        break;
    }
    if (op->status == 0)
        *value = op->argument;
}

/* Many tasks whose operations begin, take effect and end at random moments. */
static size_t generate(struct random *random, struct history_op *ops, size_t count, unsigned tasks,
                       bool crashes)
{
    /* With dozens of tasks on one key most compare-and-sets would conflict, which says nothing and costs
     * time. */
    bool compare = tasks <= 16;
    struct running *running = calloc(tasks, sizeof *running);
    assert_non_null(running);
    uint64_t value = 0, clock = 0, next_value = 0;
    size_t begun = 0, ended = 0;
    while (ended < count) {
        struct running *task = &running[random_below(random, tasks)];
        clock++;
        if (!task->active) {
            if (begun == count)
                continue;
            static const uint8_t mix[] = {HISTORY_GET, HISTORY_GET,    HISTORY_GET,
                                          HISTORY_PUT, HISTORY_INSERT, HISTORY_UPDATE,
                                          HISTORY_CAS, HISTORY_DELETE, HISTORY_MODIFY};
            uint8_t kind = mix[random_below(random, sizeof mix)];
            if (kind == HISTORY_CAS && !compare)
                kind = HISTORY_UPDATE;
            *task = (struct running){.active = true};
            task->op = made(clock, 0, kind, 0, 0, 0, 0);
            if (kind != HISTORY_GET && kind != HISTORY_DELETE)
                task->op.argument = ++next_value;
            if (kind == HISTORY_CAS)
                task->op.expected = random_chance(random, 0.7) ? value : next_value / 2 + 1;
            task->op.task = (uint32_t)(task - running);
            begun++;
        } else if (!task->done) {
            if (crashes && random_chance(random, 0.01)) {
                if (random_chance(random, 0.5))
                    take_effect(&task->op, &value);
                task->op.known = false;
                task->op.returned = FOREVER;
                ops[ended++] = task->op;
                task->active = false;
                continue;
            }
            take_effect(&task->op, &value);
            task->done = true;
        } else {
            task->op.returned = clock;
            task->op.known = true;
            ops[ended++] = task->op;
            task->active = false;
        }
    }
    free(running);
    return ended;
}

static uint64_t seed_of_this_run(void)
{
    const char *given = getenv("BANYAN_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 1;
    return seed;
}

static void accepts_what_a_register_did(void **state)
{
    struct random random;
    random_seed(&random, seed_of_this_run());
    static const struct {
        size_t count;
        unsigned tasks;
        bool crashes;
    } shapes[] = {{50, 3, false}, {400, 8, true}, {3000, 12, false}, {5000, 40, false}, {2000, 24, true}};
    for (unsigned shape = 0; shape < sizeof shapes / sizeof shapes[0]; shape++) {
        struct history_op *ops = calloc(shapes[shape].count, sizeof *ops);
        assert_non_null(ops);
        for (unsigned round = 0; round < (shape < 2 ? 100 : 5); round++) {
            size_t count =
                generate(&random, ops, shapes[shape].count, shapes[shape].tasks, shapes[shape].crashes);
            char text[2000];
            enum linearize_verdict verdict = linearize_key(ops, count, 0, NULL, text, sizeof text);
            if (verdict != LINEARIZE_ACCEPTED)
                fail_msg("shape %u round %u: verdict %d: %s", shape, round, verdict, text);
        }
        free(ops);
    }
}

/* Replaces the value that one get saw by one that was certainly overwritten before the get began. */
static bool plant_stale_read(struct random *random, struct history_op *ops, size_t count)
{
    for (unsigned attempt = 0; attempt < 10000; attempt++) {
        const struct history_op *first = &ops[random_below(random, count)];
        const struct history_op *second = &ops[random_below(random, count)];
        struct history_op *get = &ops[random_below(random, count)];
        if (first->kind != HISTORY_PUT || second->kind != HISTORY_PUT || get->kind != HISTORY_GET ||
            !get->known)
            continue;
        if (first->returned >= second->invoked || second->returned >= get->invoked)
            continue;
        get->result = first->argument;
        get->status = 0;
        return true;
    }
    return false;
}

static void rejects_planted_stale_reads(void **state)
{
    struct random random;
    random_seed(&random, seed_of_this_run() + 5);
    static const unsigned tasks[] = {3, 6, 12, 16};
    struct history_op ops[300];
    for (unsigned round = 0; round < 100; round++) {
        size_t count = generate(&random, ops, 300, tasks[round % 4], round % 8 >= 4);
        if (!plant_stale_read(&random, ops, count))
            continue;
        assert_int_equal(linearize_key(ops, count, 0, NULL, NULL, 0), LINEARIZE_REJECTED);
    }
}

/* An outcome turned round is mostly, not always, impossible. */
static void rejects_planted_corruption(void **state)
{
    struct random random;
    random_seed(&random, seed_of_this_run() + 77);
    struct history_op ops[400];
    unsigned rejected = 0, undecided = 0, rounds = 300;
    for (unsigned round = 0; round < rounds; round++) {
        size_t count = generate(&random, ops, 400, 3, false);
        struct history_op *op;
        do
            op = &ops[random_below(&random, count)];
        while (op->kind != HISTORY_DELETE && op->kind != HISTORY_UPDATE && op->kind != HISTORY_INSERT);
        if (op->status != 0)
            op->status = 0;
        else
            op->status = op->kind == HISTORY_INSERT ? BANYAN_EEXIST : BANYAN_ENOTFOUND;
        enum linearize_verdict verdict = linearize_key(ops, count, 0, NULL, NULL, 0);
        rejected += verdict == LINEARIZE_REJECTED;
        undecided += verdict == LINEARIZE_UNDECIDED;
    }
    if (rejected < rounds * 60 / 100 || undecided > 0)
        fail_msg("%u of %u corrupted histories were rejected, %u undecided", rejected, rounds, undecided);
    print_message("%u of %u corrupted histories rejected\n", rejected, rounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_sequences),
        cmocka_unit_test(accepts_overlaps),
        cmocka_unit_test(rejects_stale_reads),
        cmocka_unit_test(rejects_lost_updates),
        cmocka_unit_test(rejects_resurrection),
        cmocka_unit_test(rejects_wrong_outcomes),
        cmocka_unit_test(allows_for_unknown_outcomes),
        cmocka_unit_test(tells_malformed),
        cmocka_unit_test(decides_among_many_lost_writes),
        cmocka_unit_test(accepts_what_a_register_did),
        cmocka_unit_test(rejects_planted_corruption),
        cmocka_unit_test(rejects_planted_stale_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
