/*
 * test_feed.c - the feed by itself: which pass a mark is in, what waits for what, and what a disk that is
 * slow, full or broken does to those who mark and wait. One thread, in a task with a clock of its own: where
 * it would sleep or park, the test does what the keeper does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/task.h"
#include "durable/feed.h"

#define LOOKS_MAX 100000u

struct fixture;
typedef void keeper_function(struct fixture *fixture);

struct fixture {
    struct task task; /* first */
    struct feed *feed;
    uint64_t now_ns;
    unsigned looks;          /* at the clock, while nothing else happens: a task that spins */
    unsigned waited;         /* times it slept or parked */
    unsigned after;          /* ... before the keeper comes */
    keeper_function *keeper; /* comes once; NULL: never */
    const struct error *error;
};

static struct fixture *of(struct task *task)
{
    return (struct fixture *)task;
}

static void waits(struct fixture *fixture)
{
    fixture->looks = 0;
    if (++fixture->waited > LOOKS_MAX)
        fail_msg("it waits for ever");
    if (fixture->keeper && fixture->waited >= fixture->after) {
        keeper_function *keeper = fixture->keeper;
        fixture->keeper = NULL;
        keeper(fixture);
    }
}

static void fixture_park(struct task *task)
{
    waits(of(task));
}

static void fixture_unpark(struct task *task)
{
    (void)task;
}

static void fixture_sleep(struct task *task, uint64_t ns)
{
    of(task)->now_ns += ns;
    waits(of(task));
}

static uint64_t fixture_now(struct task *task)
{
    if (++of(task)->looks > LOOKS_MAX)
        fail_msg("it spins for ever");
    return of(task)->now_ns;
}

static const struct task_ops fixture_ops = {.park = fixture_park,
                                            .unpark = fixture_unpark,
                                            .yield = fixture_park,
                                            .sleep = fixture_sleep,
                                            .now = fixture_now};

static void begin(struct fixture *fixture, const struct feed_options *options)
{
    struct error error = {0};
    *fixture = (struct fixture){.task = {&fixture_ops}, .now_ns = 1000000000};
    assert_int_equal(feed_create(&fixture->feed, options, &error), 0);
    task_set_self(&fixture->task);
    feed_lead_keeper(fixture->feed);
}

static void end(struct fixture *fixture)
{
    task_set_self(NULL);
    feed_destroy(fixture->feed);
}

/* From now on: the keeper comes when the task has waited so often. */
static void comes(struct fixture *fixture, unsigned after, keeper_function *keeper)
{
    fixture->waited = 0;
    fixture->after = after;
    fixture->keeper = keeper;
}

/* Whether the keeper was rung since it last looked. */
static bool rung(struct fixture *fixture)
{
    fixture->waited = 0;
    feed_sleep(fixture->feed, 1);
    return fixture->waited == 0;
}

static struct feed_writer writer(const struct fixture *fixture, unsigned lane)
{
    return (struct feed_writer){.feed = fixture->feed, .lane = lane};
}

/* The pass has taken these names of the lane, each all of one byte, and no others. */
static void takes(struct fixture *fixture, unsigned lane, const char *names)
{
    const struct feed_taken taken = feed_taken(fixture->feed, lane);
    uint32_t at = 0;
    assert_int_equal(taken.count, strlen(names));
    for (; *names; names++) {
        assert_true(at < taken.used);
        const uint8_t *entry = taken.bytes + at;
        assert_int_equal(entry[feed_entry_key(entry)], *names);
        assert_int_equal(entry[1] & FEED_VALUE, 0);
        at += feed_entry_bytes(entry);
    }
    assert_int_equal(at, taken.used);
}

/* A name of so many bytes, all the same. */
static void mark(struct feed_writer *writer, char name, size_t length)
{
    char bytes[255];
    memset(bytes, name, sizeof bytes);
    feed_mark(writer, bytes, length);
}

/* ---- tickets ---- */

static void test_tickets(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 2});
    struct feed_writer first = writer(&fixture, 0), second = writer(&fixture, 1);
    assert_true(feed_safe(fixture.feed, first.ticket)); /* nothing was marked */
    mark(&first, 'a', 1);
    assert_int_equal(first.ticket, 1);
    assert_int_equal(feed_ticket(fixture.feed), 1);
    mark(&first, 'b', 3);
    mark(&second, 'd', 1); /* in another lane */
    assert_int_equal(first.ticket, 1);
    assert_int_equal(second.ticket, 1);
    const uint64_t pass = feed_begin(fixture.feed);
    assert_int_equal(pass, 1);
    mark(&first, 'c', 255); /* behind, in both: a pass takes all lanes at one instant */
    mark(&second, 'e', 1);
    assert_int_equal(first.ticket, 2);
    assert_int_equal(second.ticket, 2);
    assert_int_equal(feed_ticket(fixture.feed), 2);
    takes(&fixture, 0, "ab");
    takes(&fixture, 1, "d");
    second.ticket = 1; /* of the change before */
    assert_false(feed_safe(fixture.feed, 1));
    feed_done(fixture.feed, pass);
    assert_true(feed_safe(fixture.feed, second.ticket));
    assert_false(feed_safe(fixture.feed, first.ticket));
    feed_begin(fixture.feed);
    takes(&fixture, 0, "c");
    takes(&fixture, 1, "e");
    feed_done(fixture.feed, 2);
    assert_true(feed_safe(fixture.feed, first.ticket));
    end(&fixture);
}

/* ---- marks with values (K8) ---- */

static bool mark_value(struct feed_writer *writer, char name, size_t length, uint64_t expires)
{
    uint8_t bytes[FEED_VALUE_MAX + 1];
    memset(bytes, name, sizeof bytes);
    return feed_mark_value(writer, &name, 1,
                           &(struct store_value){.bytes = bytes, .length = length, .expires = expires});
}

static void test_values(void **state)
{
    static const struct {
        uint32_t length;
        uint64_t expires;
        bool there;
    } cases[] = {
        {0, 0, true}, {3, 7, true}, {FEED_VALUE_MAX, UINT64_MAX, true}, {FEED_VALUE_MAX + 1, 7, false}};
    struct fixture fixture;
    uint32_t at = 0;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1});
    struct feed_writer one = writer(&fixture, 0);
    for (unsigned i = 0; i < 4; i++)
        assert_true(mark_value(&one, (char)('a' + i), cases[i].length, cases[i].expires));
    assert_int_equal(one.ticket, 1);
    feed_begin(fixture.feed);
    const struct feed_taken taken = feed_taken(fixture.feed, 0);
    assert_int_equal(taken.count, 4);
    for (unsigned i = 0; i < 4; i++) {
        const uint8_t *entry = taken.bytes + at;
        const uint32_t key = feed_entry_key(entry);
        uint64_t expires = 0;
        assert_int_equal(entry[0], 1);
        assert_int_equal(entry[key], 'a' + (int)i);
        assert_int_equal(entry[1] & FEED_VALUE, cases[i].there ? FEED_VALUE : 0);
        assert_int_equal(feed_entry_value(entry), cases[i].there ? cases[i].length : 0);
        if (entry[1] & FEED_EXPIRES)
            memcpy(&expires, entry + FEED_ENTRY_HEADER, sizeof expires);
        assert_true(expires == (cases[i].there ? cases[i].expires : 0));
        for (uint32_t byte = 0; byte < feed_entry_value(entry); byte++)
            assert_int_equal(entry[key + 1 + byte], 'a' + (int)i);
        at += feed_entry_bytes(entry);
    }
    assert_int_equal(at, taken.used);
    end(&fixture);
}

/* It does not wait: what finds no room is not noted, and its caller marks the name later. */
static void test_value_without_room(void **state)
{
    struct fixture fixture;
    struct feed_stats stats;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1, .lane_bytes = 300});
    struct feed_writer one = writer(&fixture, 0);
    mark(&one, 'a', 200);
    one.ticket = 0;
    assert_false(mark_value(&one, 'b', 90, 0));
    assert_int_equal(one.ticket, 0);
    assert_int_equal(fixture.waited, 0);
    feed_stats(fixture.feed, &stats);
    assert_int_equal(stats.marks, 1);
    mark(&one, 'b', 1);
    feed_begin(fixture.feed);
    takes(&fixture, 0, "ab");
    end(&fixture);
}

/* What came while a pass was reading is doubtful to the next one, and to no other. */
static void test_doubt(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 2});
    struct feed_writer one = writer(&fixture, 0), other = writer(&fixture, 1);
    assert_true(mark_value(&one, 'a', 3, 0));
    feed_begin(fixture.feed);
    assert_int_equal(feed_taken(fixture.feed, 0).doubtful, 0);
    assert_true(mark_value(&one, 'b', 3, 0));
    feed_doubt(fixture.feed);
    assert_true(mark_value(&one, 'c', 3, 0));
    assert_true(mark_value(&other, 'd', 3, 0));
    feed_begin(fixture.feed);
    const struct feed_taken taken = feed_taken(fixture.feed, 0);
    assert_int_equal(taken.count, 2);
    assert_int_equal(taken.doubtful, feed_entry_bytes(taken.bytes));
    assert_int_equal(feed_taken(fixture.feed, 1).doubtful, 0);
    assert_true(mark_value(&one, 'e', 3, 0)); /* this pass reads nothing */
    feed_begin(fixture.feed);
    assert_int_equal(feed_taken(fixture.feed, 0).doubtful, 0);
    end(&fixture);
}

/* ---- marks that wait ---- */

static void take_three(struct fixture *fixture)
{
    feed_begin(fixture->feed);
    takes(fixture, 0, "ab");
}

static void test_full_lane(void **state)
{
    struct fixture fixture;
    struct feed_stats stats;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1, .lane_bytes = 300});
    struct feed_writer one = writer(&fixture, 0);
    mark(&one, 'a', 100);
    mark(&one, 'b', 192); /* the last byte */
    assert_int_equal(fixture.waited, 0);
    feed_sleep(fixture.feed, 0); /* it was woken: the lane is more than half full */
    assert_int_equal(fixture.waited, 0);
    assert_int_equal(feed_marked(fixture.feed), 300);
    comes(&fixture, 4, take_three);
    mark(&one, 'c', 1);
    assert_int_equal(fixture.waited, 4);
    assert_int_equal(one.ticket, 2);
    feed_sleep(fixture.feed, 0); /* a mark that waits has called */
    assert_int_equal(fixture.waited, 4);
    feed_begin(fixture.feed);
    takes(&fixture, 0, "c");
    feed_stats(fixture.feed, &stats);
    assert_int_equal(stats.marks, 3);
    assert_int_equal(stats.waits, 1);
    assert_true(stats.wait_ns > 0);
    end(&fixture);
}

static void done(struct fixture *fixture)
{
    feed_done(fixture->feed, 1);
}

static void test_late(void **state)
{
    struct fixture fixture;
    struct feed_stats stats;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 2, .late_ns = 1000, .wait_ns = 10000000});
    struct feed_writer one = writer(&fixture, 0), other = writer(&fixture, 1);
    mark(&one, 'a', 1);
    fixture.now_ns += 5000;
    mark(&other, 'b', 1); /* the keeper has not begun yet: what is late is the disk */
    assert_int_equal(fixture.waited, 0);
    feed_begin(fixture.feed);
    takes(&fixture, 1, "b"); /* the younger one first */
    takes(&fixture, 0, "a");
    feed_stats(fixture.feed, &stats);
    assert_int_equal(stats.behind_ns, 5000);
    comes(&fixture, 3, done);
    mark(&one, 'c', 1);
    assert_int_equal(fixture.waited, 3);
    assert_int_equal(one.ticket, 2);
    mark(&one, 'd', 1);
    assert_int_equal(fixture.waited, 3);
    feed_begin(fixture.feed);
    takes(&fixture, 0, "cd");
    end(&fixture);
}

/* ---- waiting for a pass ---- */

static void two_passes(struct fixture *fixture);

static void one_pass(struct fixture *fixture)
{
    feed_done(fixture->feed, feed_begin(fixture->feed));
}

static void two_passes(struct fixture *fixture)
{
    one_pass(fixture);
    assert_true(feed_wanted(fixture->feed)); /* the task waits for the next one still */
    comes(fixture, 1, one_pass);
}

static void test_wait(void **state)
{
    struct fixture fixture;
    struct error error = {0};
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1});
    struct feed_writer one = writer(&fixture, 0);
    assert_int_equal(feed_wait(fixture.feed, 0, &error), 0);
    mark(&one, 'a', 1);
    assert_false(feed_wanted(fixture.feed));
    comes(&fixture, 1, one_pass);
    assert_int_equal(feed_wait(fixture.feed, one.ticket, &error), 0);
    assert_true(fixture.waited > 0 && feed_safe(fixture.feed, one.ticket));
    assert_int_equal(feed_wait(fixture.feed, one.ticket, &error), 0);
    comes(&fixture, 1, two_passes);
    assert_int_equal(feed_wait(fixture.feed, 3, &error), 0);
    assert_true(feed_safe(fixture.feed, 3));
    assert_false(feed_wanted(fixture.feed));
    end(&fixture);
}

static void test_hurry(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1});
    feed_sleep(fixture.feed, 20000000); /* nobody calls: the time is over */
    assert_true(fixture.waited > 0);
    feed_hurry(fixture.feed, 2);
    fixture.waited = 0;
    feed_sleep(fixture.feed, 20000000);
    assert_int_equal(fixture.waited, 0);
    one_pass(&fixture);
    assert_true(feed_wanted(fixture.feed));
    one_pass(&fixture);
    assert_false(feed_wanted(fixture.feed));
    feed_hurry(fixture.feed, 2); /* that is through */
    assert_false(feed_wanted(fixture.feed));
    end(&fixture);
}

/* One that was answered comes again soon, and the keeper waits for it, for so long. */
static void test_gather(void **state)
{
    struct fixture fixture;
    struct error error = {0};
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1});
    assert_int_equal(feed_gather(fixture.feed, 1000000), 0); /* nobody was answered yet */
    assert_int_equal(fixture.waited, 0);
    comes(&fixture, 1, one_pass);
    assert_int_equal(feed_wait(fixture.feed, 1, &error), 0);
    const uint64_t now = fixture.now_ns;
    fixture.waited = 0;
    assert_int_equal(feed_gather(fixture.feed, 1000000), 0); /* it has not come again */
    assert_true(fixture.waited > 0 && fixture.now_ns - now >= 1000000 && fixture.now_ns - now < 2000000);
    one_pass(&fixture); /* answers nobody */
    fixture.waited = 0;
    assert_int_equal(feed_gather(fixture.feed, 1000000), 0);
    assert_int_equal(fixture.waited, 0);
    end(&fixture);
}

/* ---- who makes passes ---- */

static void lets_go(struct fixture *fixture)
{
    assert_false(feed_lead(fixture->feed));
    feed_lead_end(fixture->feed);
    assert_true(rung(fixture));
    assert_false(feed_lead(fixture->feed)); /* it is the keeper's turn */
}

/* One leader at a time, and the keeper comes next if it wants to. */
static void test_lead(void **state)
{
    struct fixture fixture;
    struct feed_stats stats;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1});
    assert_false(feed_lead(fixture.feed)); /* the keeper leads */
    feed_lead_end(fixture.feed);
    assert_false(rung(&fixture)); /* nothing is left to be done */
    assert_true(feed_lead(fixture.feed));
    assert_false(feed_lead(fixture.feed));
    one_pass(&fixture);
    feed_lead_end(fixture.feed);
    assert_false(rung(&fixture));
    assert_true(feed_lead(fixture.feed));
    comes(&fixture, 1, lets_go);
    feed_lead_keeper(fixture.feed);
    assert_null(fixture.keeper); /* it waited for that */
    assert_false(feed_lead(fixture.feed));
    feed_lead_end(fixture.feed);
    assert_true(feed_lead(fixture.feed));
    feed_lead_end(fixture.feed);
    feed_stats(fixture.feed, &stats);
    assert_int_equal(stats.led, 3);
    end(&fixture);
}

static void stops(struct fixture *fixture)
{
    feed_stop(fixture->feed);
    feed_lead_end(fixture->feed);
}

/* The keeper does not sleep through its end, though it took the ring while it waited for a leader. */
static void test_stop(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1});
    feed_lead_end(fixture.feed);
    assert_true(feed_lead(fixture.feed));
    comes(&fixture, 1, stops);
    feed_lead_keeper(fixture.feed);
    assert_null(fixture.keeper); /* it waited for that */
    feed_lead_end(fixture.feed);
    fixture.waited = 0;
    feed_sleep(fixture.feed, 0);
    feed_sleep(fixture.feed, 1000000000);
    assert_int_equal(fixture.waited, 0);
    end(&fixture);
}

/* The pass that is under way has not what this task waits for. */
static void ends_its_pass(struct fixture *fixture)
{
    assert_false(rung(fixture)); /* the leader sees to it */
    feed_done(fixture->feed, 1);
    feed_lead_end(fixture->feed);
    assert_true(rung(fixture));
    feed_lead_keeper(fixture->feed);
    comes(fixture, 1, one_pass);
}

static void test_led_past(void **state)
{
    struct fixture fixture;
    struct error error = {0};
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1});
    struct feed_writer one = writer(&fixture, 0);
    feed_lead_end(fixture.feed);
    assert_true(feed_lead(fixture.feed));
    feed_begin(fixture.feed);
    takes(&fixture, 0, "");
    mark(&one, 'a', 1);
    assert_int_equal(one.ticket, 2);
    comes(&fixture, 1, ends_its_pass);
    assert_int_equal(feed_wait(fixture.feed, one.ticket, &error), 0);
    assert_true(feed_safe(fixture.feed, 2));
    feed_hurry(fixture.feed, 3); /* and the same for a task that does not wait in feed_wait */
    assert_true(rung(&fixture));
    feed_lead_end(fixture.feed);
    assert_true(feed_lead(fixture.feed));
    feed_lead_end(fixture.feed);
    assert_true(rung(&fixture));
    end(&fixture);
}

/* ---- a disk in trouble ---- */

static void fails(struct fixture *fixture)
{
    feed_fail(fixture->feed, fixture->error);
}

static void test_full_disk(void **state)
{
    struct fixture fixture;
    struct error error = {0}, full = {0};
    (void)state;
    error_set(&full, BANYAN_ENOSPC, "no room on it");
    begin(&fixture, &(struct feed_options){.lanes = 1, .lane_bytes = 300});
    fixture.error = &full;
    struct feed_writer one = writer(&fixture, 0);
    mark(&one, 'a', 1);
    feed_begin(fixture.feed);
    takes(&fixture, 0, "a");
    comes(&fixture, 1, fails);
    assert_int_equal(feed_wait(fixture.feed, one.ticket, &error), BANYAN_ENOSPC); /* woken by it */
    assert_string_equal(error.text, full.text);
    assert_int_equal(feed_wait(fixture.feed, one.ticket, NULL), BANYAN_ENOSPC); /* and told at once */
    assert_int_equal(feed_error(fixture.feed, NULL), BANYAN_ENOSPC);
    assert_int_equal(feed_wait(fixture.feed, 0, NULL), 0);
    mark(&one, 'b', 200);
    comes(&fixture, 3, one_pass);
    mark(&one, 'c', 200); /* waits for room in the lane, and does not give up */
    assert_int_equal(fixture.waited, 3);
    assert_int_equal(feed_error(fixture.feed, &error), 0);
    assert_true(feed_safe(fixture.feed, 2));
    assert_int_equal(one.ticket, 3);
    feed_begin(fixture.feed);
    takes(&fixture, 0, "c");
    end(&fixture);
}

static void test_broken_disk(void **state)
{
    struct fixture fixture;
    struct error error = {0}, full = {0}, broken = {0};
    (void)state;
    error_set(&full, BANYAN_ENOSPC, "no room on it");
    error_set(&broken, BANYAN_EUNKNOWN, "its cable is out");
    begin(&fixture, &(struct feed_options){.lanes = 1, .lane_bytes = 300, .late_ns = 1000});
    struct feed_writer one = writer(&fixture, 0);
    mark(&one, 'a', 1);
    feed_begin(fixture.feed);
    takes(&fixture, 0, "a");
    feed_fail(fixture.feed, &full);
    fixture.error = &broken;
    fixture.now_ns += 5000;
    mark(&one, 'b', 200); /* the disk is late, but has no pace without room: it is noted */
    assert_int_equal(one.ticket, 2);
    comes(&fixture, 2, fails);
    mark(&one, 'c', 200); /* waits for the lane until the disk is broken: it is not noted */
    assert_true(one.ticket == UINT64_MAX);
    assert_true(feed_missed(fixture.feed));
    feed_fail(fixture.feed, &full); /* changes nothing any more */
    assert_int_equal(feed_error(fixture.feed, &error), BANYAN_EUNKNOWN);
    assert_string_equal(error.text, broken.text);
    for (unsigned i = 0; i < 2; i++) { /* also when the change is very old */
        assert_int_equal(feed_wait(fixture.feed, one.ticket, &error), BANYAN_EUNKNOWN);
        assert_int_equal(feed_error(fixture.feed, &error), BANYAN_EUNKNOWN);
        assert_string_equal(error.text, broken.text);
        one.ticket = 0;
        fixture.waited = 0;
        mark(&one, 'c', 200);
        assert_true(one.ticket == UINT64_MAX);
        fixture.now_ns += UINT64_C(10000000000);
    }
    end(&fixture);
}

static void still_busy(struct fixture *fixture)
{
    struct error error = {0};
    fixture->now_ns += 2000;
    assert_int_equal(feed_error(fixture->feed, &error), BANYAN_EBUSY);
    assert_true(error.text[0] != 0);
    comes(fixture, 1, one_pass);
}

/* A disk that takes long is waited for by those who have changed something; no change begins meanwhile. */
static void test_slow_disk(void **state)
{
    struct fixture fixture;
    struct error error = {0};
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1, .wait_ns = 1000});
    struct feed_writer one = writer(&fixture, 0);
    mark(&one, 'a', 1);
    feed_begin(fixture.feed);
    takes(&fixture, 0, "a");
    assert_int_equal(feed_error(fixture.feed, &error), 0);
    comes(&fixture, 1, still_busy);
    assert_int_equal(feed_wait(fixture.feed, one.ticket, &error), 0);
    assert_int_equal(feed_error(fixture.feed, &error), 0);
    end(&fixture);
}

/* The server ends while the disk has no room: who marks waits no longer, and what is not noted is known. */
static void test_end(void **state)
{
    struct fixture fixture;
    struct error full = {0};
    (void)state;
    error_set(&full, BANYAN_ENOSPC, "no room on it");
    begin(&fixture, &(struct feed_options){.lanes = 1, .lane_bytes = 300});
    struct feed_writer one = writer(&fixture, 0);
    mark(&one, 'a', 200);
    feed_end(fixture.feed);
    fixture.error = &full;
    comes(&fixture, 3, fails);
    mark(&one, 'b', 200); /* the disk may come round yet, until it says that it is full */
    assert_int_equal(fixture.waited, 3);
    assert_true(one.ticket == UINT64_MAX && feed_missed(fixture.feed));
    feed_begin(fixture.feed);
    takes(&fixture, 0, "a");
    end(&fixture);
}

/* How much a lane takes follows what passes take; and a disk that takes parts of a long one is not standing.
 */
static void test_pace(void **state)
{
    struct fixture fixture;
    (void)state;
    begin(&fixture, &(struct feed_options){.lanes = 1, .lane_bytes = 32u << 10, .wait_ns = 1000});
    struct feed_writer one = writer(&fixture, 0);
    feed_pace(fixture.feed, UINT64_C(1000000000)); /* twice as long as it may: half the bytes */
    for (unsigned i = 0; i < 64; i++)
        mark(&one, 'a', 256 - FEED_ENTRY_HEADER);
    assert_int_equal(feed_marked(fixture.feed), 16u << 10);
    assert_int_equal(fixture.waited, 0);
    comes(&fixture, 2, one_pass);
    mark(&one, 'b', 1);
    assert_int_equal(fixture.waited, 2);
    feed_pace(fixture.feed, 1);
    for (unsigned i = 0; i < 127; i++)
        mark(&one, 'c', 256 - FEED_ENTRY_HEADER);
    assert_int_equal(fixture.waited, 2);
    feed_begin(fixture.feed);
    takes(&fixture, 0,
          "b" /* and 127 more */
          "ccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
          "cccccccccccccccccccccccccccccccccccccccccccc");
    fixture.now_ns += 5000;
    assert_int_equal(feed_error(fixture.feed, NULL), BANYAN_EBUSY);
    feed_progress(fixture.feed);
    assert_int_equal(feed_error(fixture.feed, NULL), 0);
    fixture.now_ns += 5000;
    assert_int_equal(feed_error(fixture.feed, NULL), BANYAN_EBUSY);
    end(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tickets),
        cmocka_unit_test(test_full_lane),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_wait),
        cmocka_unit_test(test_hurry),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_lead),
        cmocka_unit_test(test_led_past),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_slow_disk),
        cmocka_unit_test(test_broken_disk),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_pace),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_doubt),
        cmocka_unit_test(test_value_without_room),
    };
    return cmocka_run_group_tests_name("the feed", tests, NULL, NULL);
}
