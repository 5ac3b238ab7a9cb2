/* test_selector.c - the selector against queues whose optimum is known: clients in a closed loop, a network
 * interface that serves READs one after the other, and a CPU with some cores that walk, in virtual time. The
 * share that it comes to is as good as the best of all fixed ones. And its windows by themselves. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/random.h"
#include "tree/selector.h"

#define CLIENTS_MAX 128u
#define CORES_MAX   8u

/* Times in ns. */
struct queues {
    unsigned clients, cores, levels, selectors;
    uint64_t round_trip, read, walk; /* a READ at the interface, a walk on a core */
    uint64_t every; /* a client begins so often in the mean, or once it has its answer, if that is later */
};

struct station {
    uint64_t free[CORES_MAX];
    unsigned servers;
};

/* Exponential. */
static uint64_t draw_time(struct random *random, uint64_t mean)
{
    double draw = (double)((random_next(random) >> 11) + 1) * 0x1p-53;
    return (uint64_t)(-log(draw) * (double)mean);
}

/* When the station is done with what arrives now. Service times vary by about a quarter: by how many nodes
 * are visited. */
static uint64_t serve(struct station *station, uint64_t arrives, uint64_t mean, struct random *random)
{
    unsigned first = 0;
    for (unsigned i = 1; i < station->servers; i++)
        if (station->free[i] < station->free[first])
            first = i;
    uint64_t begins = arrives > station->free[first] ? arrives : station->free[first];
    return station->free[first] = begins + mean * 3 / 4 + draw_time(random, mean / 4);
}

struct client {
    uint64_t at;    /* when its next step arrives at a station, half a round trip from now */
    unsigned reads; /* that are left; 0: it rests until `at` */
    bool walks;
    uint64_t asked, begins;
};

struct run {
    const struct queues *queues;
    double fixed; /* share; below 0: the selector */
    struct selector selectors[CLIENTS_MAX];
    struct random random;
    struct station interface, cpu;
    struct client clients[CLIENTS_MAX];
    uint64_t done, walked;
};

static void begin(struct run *run, unsigned number, uint64_t now)
{
    struct client *client = &run->clients[number];
    struct selector *selector = &run->selectors[number % run->queues->selectors];
    uint64_t draw = random_next(&run->random);
    client->walks = run->fixed < 0 ? selector_walks(selector, now, run->queues->levels, draw)
                                   : (double)(draw >> 11) * 0x1p-53 < run->fixed;
    client->reads = run->queues->levels;
    client->asked = now;
    client->at = now + run->queues->round_trip / 2;
}

/* Now, or when it is its time. */
static void begin_next(struct run *run, unsigned number, uint64_t now)
{
    struct client *client = &run->clients[number];
    client->begins += draw_time(&run->random, run->queues->every);
    if (client->begins <= now) {
        client->begins = now;
        begin(run, number, now);
    } else {
        client->reads = 0;
        client->at = client->begins;
    }
}

static unsigned next_client(const struct run *run)
{
    unsigned number = 0;
    for (unsigned i = 1; i < run->queues->clients; i++)
        if (run->clients[i].at < run->clients[number].at)
            number = i;
    return number;
}

/* The client whose message arrives first has its step served. False: that is after `until`. */
static bool step(struct run *run, uint64_t from, uint64_t until)
{
    const struct queues *queues = run->queues;
    const unsigned number = next_client(run);
    struct client *client = &run->clients[number];
    if (client->at > until)
        return false;
    if (!client->reads) {
        begin(run, number, client->at);
        return true;
    }
    struct selector *selector = &run->selectors[number % queues->selectors];
    struct station *station = client->walks ? &run->cpu : &run->interface;
    uint64_t over = serve(station, client->at, client->walks ? queues->walk : queues->read, &run->random) +
                    queues->round_trip / 2;
    if (run->fixed < 0 && client->walks)
        selector_walked(selector, over, over - client->asked, false);
    else if (run->fixed < 0)
        selector_read(selector, over, over - client->asked);
    if (client->walks || --client->reads == 0) {
        run->done += over > from;
        run->walked += over > from && client->walks;
        begin_next(run, number, over);
        return true;
    }
    client->asked = over;
    client->at = over + queues->round_trip / 2;
    return true;
}

static void run_begin(struct run *run, const struct queues *queues, double fixed, enum selector_form form)
{
    struct selector_options options;
    *run = (struct run){
        .queues = queues, .fixed = fixed, .interface = {.servers = 1}, .cpu = {.servers = queues->cores}};
    selector_options_default(&options);
    options.form = form;
    random_seed(&run->random, 5);
    for (unsigned i = 0; i < queues->selectors; i++)
        selector_init(&run->selectors[i], &options);
    for (unsigned i = 0; i < queues->clients; i++)
        begin(run, i, i);
}

/* Operations in a millisecond. */
static double throughput(const struct queues *queues, double fixed, enum selector_form form, double *share)
{
    static struct run run;
    const uint64_t from = fixed < 0 ? 100000000 : 5000000, until = from + 20000000;
    run_begin(&run, queues, fixed, form);
    while (step(&run, from, until))
        ;
    *share = (double)run.walked / (double)run.done;
    return (double)run.done / ((double)(until - from) / 1e6);
}

static double best_fixed(const struct queues *queues, double *share)
{
    double best = 0;
    for (unsigned percent = 0; percent <= 100; percent += 10) {
        double got, is = throughput(queues, percent / 100.0, SELECTOR_MARGINAL, &got);
        if (is > best) {
            best = is;
            *share = percent / 100.0;
        }
    }
    return best;
}

static void as_good_as_the_best_share(void **state)
{
    static const unsigned cores[] = {1, 2, 4, 8}, clients[] = {4, 16, 64}, levels[] = {2, 4};
    double worst = 1, worst_queues = 1, sum = 0;
    for (unsigned i = 0; i < 24; i++) {
        struct queues queues = {.cores = cores[i % 4],
                                .clients = clients[i / 4 % 3],
                                .levels = levels[i / 12],
                                .selectors = i % 2 ? 4 : 1,
                                .round_trip = 4000,
                                .read = 200,
                                .walk = 2500};
        double best_share = 0, share, other;
        double best = best_fixed(&queues, &best_share);
        double own = throughput(&queues, -1, SELECTOR_MARGINAL, &share);
        double cell = throughput(&queues, -1, SELECTOR_QUEUES, &other);
        print_message("%u cores, %3u clients, %u levels: best fixed %.0f at %.0f %%; selector %.0f (%.3f) at "
                      "%.0f %%; by queues %.3f at %.0f %%\n",
                      queues.cores, queues.clients, queues.levels, best, 100 * best_share, own, own / best,
                      100 * share, cell / best, 100 * other);
        worst = own / best < worst ? own / best : worst;
        sum += own / best;
        worst_queues = cell / best < worst_queues ? cell / best : worst_queues;
    }
    print_message("at worst %.3f of the best fixed share, in the mean %.3f; by queues at worst %.3f\n", worst,
                  sum / 24, worst_queues);
    assert_true(worst > 0.92);
    assert_true(sum / 24 > 0.99);
    assert_true(worst > worst_queues);
}

/* ---- the load changes ---- */

#define MILLISECOND UINT64_C(1000000)
#define SLICE       (50 * MILLISECOND)
#define PHASE       (2000 * MILLISECOND)
#define SLICES      (unsigned)(3 * PHASE / SLICE)

/* One of Cell's servers: READs as its network interface, walks as its two cores serve them (4.1, Table 2);
 * each client asks it every 600 us. */
static const struct queues cell_server = {.clients = 96,
                                          .cores = 2,
                                          .levels = 4,
                                          .selectors = CLIENTS_MAX,
                                          .round_trip = 10000,
                                          .read = 960,
                                          .walk = 8000,
                                          .every = 600000};

/* The share of walks in each slice. `queues` change from the first
 * to the second of the three phases, and back. */
static void run_phases(const struct queues *calm, const struct queues *loaded, double shares[SLICES])
{
    static struct run run;
    run_begin(&run, calm, -1, SELECTOR_MARGINAL);
    for (unsigned i = 0; i < SLICES; i++) {
        const uint64_t from = i * SLICE;
        const struct queues *queues = i / (SLICES / 3) == 1 ? loaded : calm;
        run.queues = queues;
        run.done = run.walked = 0;
        while (step(&run, from, from + SLICE))
            ;
        shares[i] = (double)run.walked / (double)run.done;
    }
}

/* After how long, from the beginning of that phase on, the share stays within 0.1 of where it is at its end;
 * ms. */
static unsigned settled_after(const double shares[SLICES], unsigned phase)
{
    const unsigned begin = phase * (SLICES / 3), end = begin + SLICES / 3;
    unsigned settled = end;
    double last = 0;
    for (unsigned i = end - 10; i < end; i++)
        last += shares[i] / 10;
    while (settled > begin && fabs(shares[settled - 1] - last) < 0.1)
        settled--;
    return (unsigned)((settled - begin) * (SLICE / MILLISECOND));
}

static void print_shares(const char *what, const double shares[SLICES])
{
    print_message("%s: share of walks, %% of each %u ms:", what, (unsigned)(SLICE / MILLISECOND));
    for (unsigned i = 0; i < SLICES; i++)
        print_message("%s %.0f", i % (SLICES / 3) ? "" : "\n ", 100 * shares[i]);
    print_message("\n");
}

/* Twice as many operations, for two seconds: more than the cores can walk. */
static void answers_a_spike_of_load(void **state)
{
    struct queues loaded = cell_server;
    double shares[SLICES];
    loaded.every /= 2;
    run_phases(&cell_server, &loaded, shares);
    print_shares("twice the load", shares);
    print_message("settled after %u ms, and behind it after %u ms\n", settled_after(shares, 1),
                  settled_after(shares, 2));
    assert_true(shares[SLICES / 3 - 1] > 0.9);
    assert_true(shares[2 * SLICES / 3 - 1] < 0.8);
    assert_true(shares[SLICES - 1] > 0.9);
    assert_true(settled_after(shares, 1) < 1000);
    assert_true(settled_after(shares, 2) < 1000);
}

/* The cores have other work for two seconds, so that a walk takes twenty times as long. What they can do
 * afterwards is seen by the few walks alone that explore. */
static void returns_to_cores_that_are_free_again(void **state)
{
    struct queues calm = cell_server, busy;
    double shares[SLICES];
    calm.clients = 24;
    calm.every /= 2;
    busy = calm;
    busy.walk *= 20;
    run_phases(&calm, &busy, shares);
    print_shares("cores that are taken", shares);
    print_message("settled after %u ms, and behind it after %u ms\n", settled_after(shares, 1),
                  settled_after(shares, 2));
    assert_true(shares[2 * SLICES / 3 - 1] < 0.1);
    assert_true(shares[SLICES - 1] > 0.9);
    assert_true(settled_after(shares, 1) < 1000);
    assert_true(settled_after(shares, 2) < 1000);
}

/* READs differ by themselves as much as a network's do, and nobody waits behind them. A walk, with its RPC,
 * takes longer than the two READs that it saves: none is worth it, though of what the READs take more lies
 * above the least. */
static void what_differs_by_itself_is_no_queue(void **state)
{
    struct selector_options options;
    struct selector selector;
    struct random random;
    uint64_t now = 1, walked = 0;
    const unsigned operations = 60000;
    random_seed(&random, 5);
    selector_options_default(&options);
    selector_init(&selector, &options);
    for (unsigned i = 0; i < operations; i++) {
        const bool walks = selector_walks(&selector, now, 2, random_next(&random));
        walked += walks && i >= operations / 2;
        now += 10000;
        if (walks)
            selector_walked(&selector, now, 6400 + random_below(&random, 1800), false);
        for (unsigned j = 0; j < 2 && !walks; j++)
            selector_read(&selector, now, 2270 + random_below(&random, 1760));
    }
    const double share = (double)walked / (operations / 2);
    print_message("walks of %.0f ns for two READs of %.0f ns: %.1f %%\n", selector_walk_ns(&selector),
                  selector_read_ns(&selector), 100 * share);
    assert_true(share < 0.02);
}

/* What ways of so many READs take, in turns of a thousand operations. */
struct turns {
    uint32_t levels;
    uint64_t read[2], walk[2];
};

/* The share of walks, once the selector has had time. */
static double share_in_turns(const struct turns *turns)
{
    struct selector_options options;
    struct selector selector;
    struct random random;
    uint64_t now = 1, walked = 0;
    const unsigned operations = 60000;
    random_seed(&random, 5);
    selector_options_default(&options);
    selector_init(&selector, &options);
    for (unsigned i = 0; i < operations; i++) {
        const unsigned turn = i / 1000 % 2;
        const bool walks = selector_walks(&selector, now, turns->levels, random_next(&random));
        walked += walks && i >= operations / 2;
        now += 10000;
        if (walks)
            selector_walked(&selector, now, turns->walk[turn] + random_below(&random, 1000), false);
        for (unsigned j = 0; j < turns->levels && !walks; j++)
            selector_read(&selector, now, turns->read[turn] + random_below(&random, 500));
    }
    return (double)walked / (operations / 2);
}

/* One way takes many times as long as before, and then as long as before again. The other way is the worse
 * one all the time: the share stays at its end, and looks at the other way a few times in each turn. */
static void an_end_stays_where_the_other_way_is_worse(void **state)
{
    /* Both wait in one queue, as that of a network interface; a walk waits there once. */
    const struct turns queue = {.levels = 4, .read = {5000, 205000}, .walk = {9000, 209000}};
    /* Cores that are slow, and that are slower still. */
    const struct turns cores = {.levels = 2, .read = {3000, 3000}, .walk = {50000, 500000}};
    const double by_walks = share_in_turns(&queue), by_reads = share_in_turns(&cores);
    print_message("walks that wait where the READs wait: %.1f %%; on slow cores: %.1f %%\n", 100 * by_walks,
                  100 * by_reads);
    assert_true(by_walks > 0.985);
    assert_true(by_reads < 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_good_as_the_best_share),
        cmocka_unit_test(answers_a_spike_of_load),
        cmocka_unit_test(returns_to_cores_that_are_free_again),
        cmocka_unit_test(what_differs_by_itself_is_no_queue),
        cmocka_unit_test(an_end_stays_where_the_other_way_is_worse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
