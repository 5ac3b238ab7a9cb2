/* test_selector.c - the selector against queues whose optimum is known: clients in a closed loop, a network
 * interface that serves READs one after the other, and a CPU with some cores that walk, in virtual time. The
 * share that it comes to is as good as the best of all fixed ones. And its windows by themselves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/random.h"
#include "tree/selector.h"

#define CLIENTS_MAX 256u
#define CORES_MAX   8u

/* Times in ns. */
struct queues {
    unsigned clients, cores, levels, selectors;
    uint64_t round_trip, read, walk; /* a READ at the interface, a walk on a core */
};

struct station {
    uint64_t free[CORES_MAX];
    unsigned servers;
};

/* When the station is done with what arrives now; service times are exponential. */
static uint64_t serve(struct station *station, uint64_t arrives, uint64_t mean, struct random *random)
{
    unsigned first = 0;
    for (unsigned i = 1; i < station->servers; i++)
        if (station->free[i] < station->free[first])
            first = i;
    double draw = (double)((random_next(random) >> 11) + 1) * 0x1p-53;
    uint64_t begins = arrives > station->free[first] ? arrives : station->free[first];
    return station->free[first] = begins + (uint64_t)(-__builtin_log(draw) * (double)mean);
}

struct client {
    uint64_t at;    /* when its next step arrives at a station, half a round trip from now */
    unsigned reads; /* that are left */
    bool walks;
    uint64_t asked;
};

struct run {
    const struct queues *queues;
    double fixed; /* share; below 0: the selector */
    struct selector selectors[4];
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

/* The client whose message arrives first has its step served. False: that is after `until`. */
static bool step(struct run *run, uint64_t from, uint64_t until)
{
    const struct queues *queues = run->queues;
    unsigned number = 0;
    for (unsigned i = 1; i < queues->clients; i++)
        if (run->clients[i].at < run->clients[number].at)
            number = i;
    if (run->clients[number].at > until)
        return false;
    struct client *client = &run->clients[number];
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
        begin(run, number, over);
        return true;
    }
    client->asked = over;
    client->at = over + queues->round_trip / 2;
    return true;
}

/* Operations in a millisecond. */
static double throughput(const struct queues *queues, double fixed, enum selector_form form, double *share)
{
    static struct run run;
    struct selector_options options;
    const uint64_t from = fixed < 0 ? 100000000 : 5000000, until = from + 20000000;
    run = (struct run){
        .queues = queues, .fixed = fixed, .interface = {.servers = 1}, .cpu = {.servers = queues->cores}};
    selector_options_default(&options);
    options.form = form;
    random_seed(&run.random, 5);
    for (unsigned i = 0; i < queues->selectors; i++)
        selector_init(&run.selectors[i], &options);
    for (unsigned i = 0; i < queues->clients; i++)
        begin(&run, i, i);
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
    double worst = 1, worst_queues = 1;
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
        worst_queues = cell / best < worst_queues ? cell / best : worst_queues;
    }
    print_message("at worst %.3f of the best fixed share; by queues %.3f\n", worst, worst_queues);
    assert_true(worst > 0.94);
    assert_true(worst > worst_queues);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_good_as_the_best_share),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
