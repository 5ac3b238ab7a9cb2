/* selector.c - see selector.h. */
#include "tree/selector.h"

#include <math.h>

/* Fewer samples than these are no distribution, and no estimate. */
#define DISTRIBUTION 16u
#define ESTIMATE     4u
/* Of the first samples, one that is so many times their mean is an outlier: it would be in the mean for long.
 */
#define FIRST_TIMES 10
/* So many more outliers than other samples, and they are what is usual now. */
#define STRANGE 8u
/* Then, if they are so many times as long, or as short, the shares at their ends are in doubt; an end is so
 * many times what explores. */
#define DIFFERENT_TIMES 3
#define END_TIMES       4
/* What waits counts so many times more: for those behind it. */
#define QUEUED_TIMES 3
/* So many times as strongly a share falls where a walk takes longer than the READs. */
#define LATENCY_TIMES 4
/* An average is of about so many samples, and of no more than about so many operations: what the rarer way
 * took long ago says nothing. But it is of at least so many samples. */
#define AVERAGE_SAMPLES    100.0
#define AVERAGE_OPERATIONS 400.0
#define AVERAGE_LEAST      4.0
/* A way with a smaller share than this is averaged over about as long as if it had so much. */
#define RARE 0.125
/* While a share is in doubt, so much goes the rare way. */
#define DOUBTED 0.25
/* A share moves faster when it has moved the same way for longer than it usually does: for so many times as
 * many operations, and up to so many times as fast. The usual time is learned from about so many operations,
 * at first from fewer, and lies between these. */
#define SAME_TIMES    3
#define FASTER_TIMES  16
#define USUAL_LEARNED 1000.0
#define USUAL_LEAST   64.0
#define USUAL_MOST    512.0

void selector_options_default(struct selector_options *options)
{
    *options = (struct selector_options){.form = SELECTOR_MARGINAL,
                                         .explore = 0.01,
                                         .search_ns = 100,
                                         .silence_ns = UINT64_C(3000000000),
                                         .outlier = 3,
                                         .step = 0.005};
}

void selector_init(struct selector *selector, const struct selector_options *options)
{
    *selector = (struct selector){.options = *options};
    for (uint32_t i = 0; i < SELECTOR_LEVELS; i++)
        selector->shares[i] = (struct selector_share){.share = 0.5, .usual = USUAL_LEAST};
}

/* ---- averages ---- */

/* Too long; or so short that it is of another time. */
static bool is_outlier(const struct selector_average *average, double sample, double outlier)
{
    if (average->count < DISTRIBUTION)
        return average->count && sample > FIRST_TIMES * average->mean;
    /* Where all samples are alike, a hundredth of them is no outlier yet. */
    const double deviation = fmax(sqrt(average->variance), average->mean / 100);
    return sample - average->mean > outlier * deviation || sample * DIFFERENT_TIMES < average->mean;
}

/* The weight of a new sample: of a hundredth, or of more where operations have gone by since the last one, or
 * where there are few yet. */
static double weight_of(const struct selector_average *average, uint64_t decided)
{
    const double since = (double)(decided - average->decided);
    const double late = fmin(since / AVERAGE_OPERATIONS, 1 / AVERAGE_LEAST);
    return fmax(fmax(1.0 / average->count, 1 / AVERAGE_SAMPLES), late);
}

enum change { UNCHANGED, SHORTER, LONGER };

static enum change change_of(const struct selector_average *average, double sample)
{
    if (sample * DIFFERENT_TIMES < average->mean)
        return SHORTER;
    return sample > DIFFERENT_TIMES * average->mean ? LONGER : UNCHANGED;
}

/* When there are more outliers than other samples, it is no more a passing disturbance: what the average
 * knows is of another time, and is forgotten. What became of it, if that is quite another time. */
static enum change average_add(struct selector_average *average, double sample, double outlier,
                               uint64_t decided)
{
    enum change change = UNCHANGED;
    if (is_outlier(average, sample, outlier)) {
        if (++average->strange < STRANGE)
            return UNCHANGED;
        change = change_of(average, sample);
        *average = (struct selector_average){.count = 0};
    } else if (average->strange) {
        average->strange--;
    }
    if (average->count < AVERAGE_SAMPLES)
        average->count++;
    const double weight = weight_of(average, decided), away = sample - average->mean;
    average->mean += weight * away;
    average->variance = (1 - weight) * (average->variance + weight * away * away);
    average->decided = decided;
    return change;
}

/* ---- the shares ---- */

static uint64_t decided(const struct selector *selector)
{
    return selector->walks + selector->reads;
}

static void forget_old(struct selector *selector, uint64_t now)
{
    if (selector->sampled_at && now > selector->sampled_at + selector->options.silence_ns) {
        selector->walk = selector->read = (struct selector_average){.count = 0};
        selector->round_trip = selector->least_walk = 0;
    }
    selector->sampled_at = now;
}

static bool estimated(const struct selector *selector)
{
    return selector->walk.count >= ESTIMATE && selector->read.count >= ESTIMATE;
}

/* What one step of that way costs, by the form. `least`: what it takes where nothing waits. */
static double cost(const struct selector *selector, const struct selector_average *average, double least)
{
    switch (selector->options.form) {
    case SELECTOR_LATENCY:
        return average->mean;
    case SELECTOR_QUEUES:
        return fmax(average->mean - selector->round_trip, 0);
    default:
        return average->mean + QUEUED_TIMES * (average->mean - least);
    }
}

/* How much more so many READs would take than a walk, as the logarithm of how many times as much; within 1
 * and -1. READs differ also where nothing waits, and all above the least counts as waiting. By that alone
 * walks would pay that take longer than the READs, though nobody waits behind those: so the operation itself
 * must wait less, too. */
static double advantage(const struct selector *selector, uint32_t levels)
{
    const double search = selector->options.search_ns;
    const double walk = cost(selector, &selector->walk, selector->least_walk);
    const double reads = levels * (cost(selector, &selector->read, selector->round_trip) + search);
    double gain = log(reads / fmax(walk, 1));
    if (selector->options.form == SELECTOR_MARGINAL)
        gain = fmin(gain, LATENCY_TIMES *
                              log(levels * (selector->read.mean + search) / fmax(selector->walk.mean, 1)));
    return fmin(fmax(gain, -1), 1);
}

/* The run of moves in the same way is over. The usual length of such a run is learned from the long runs,
 * since a share that is at rest turns often; from one run it learns at most its double, as the way from one
 * end to the other is no usual one. */
static void share_turn(struct selector_share *share, bool rises)
{
    const double learned = fmin(share->same, 2 * share->usual);
    share->usual += (learned - share->usual) * fmin(share->same / USUAL_LEARNED, 1);
    share->usual = fmin(fmax(share->usual, USUAL_LEAST), USUAL_MOST);
    share->same = 0;
    share->rises = rises;
}

/* By the time the rarer way's average tells what a change of the share has done, the share must not have
 * moved much further, or it swings. So it moves slowly where one way is rare, and everywhere, until it has
 * moved the same way for much longer than it does when it swings: then it is far from where it belongs. */
static void share_move(struct selector_share *share, const struct selector *selector, double weight,
                       uint32_t levels)
{
    const double least = selector->options.explore, most = 1 - selector->options.explore / levels;
    const double is = share->share, gain = advantage(selector, levels);
    const double rarer = fmax(fmin(is, 1 - is), RARE);
    if (share->rises != (gain > 0))
        share_turn(share, gain > 0);
    const double faster = fmin(fmax(share->same / share->usual - (SAME_TIMES - 1), 1), FASTER_TIMES);
    const double moved = is + selector->options.step * weight * rarer * is * (1 - is) * gain * faster;
    share->share = fmin(fmax(moved, least), most);
    if (moved >= least && moved <= most) /* else it stays, and does not move */
        share->same += weight;
}

/* One way takes quite another time than it did, and that speaks for READs, or for walks. A share at the other
 * end hears of its rare way seldom, and would leave the end slowly: so it is in doubt, and the rare way is
 * measured anew, at once. */
static void doubt_ends(struct selector *selector, bool for_reads)
{
    for (uint32_t i = 0; i < SELECTOR_LEVELS; i++) {
        struct selector_share *share = &selector->shares[i];
        const double rare = for_reads ? 1 - share->share : share->share;
        if (rare >= END_TIMES * selector->options.explore)
            continue;
        share->doubted = true;
        (for_reads ? &selector->read : &selector->walk)->count = 0;
    }
}

/* Both ways are known again. A share in doubt begins in the middle if its rare way is the better one now.
 * Else it stays: a queue in which READs and walks wait alike, as that of a network interface, makes both
 * longer and shorter many times. */
static void judge_doubted(struct selector *selector)
{
    for (uint32_t i = 0; i < SELECTOR_LEVELS; i++) {
        struct selector_share *share = &selector->shares[i];
        if (share->doubted && (share->share > 0.5) != (advantage(selector, i + 1) > 0))
            share->share = 0.5;
        share->doubted = false;
    }
}

static void adjust(struct selector *selector, double weight)
{
    if (!estimated(selector))
        return;
    judge_doubted(selector);
    for (uint32_t i = 0; i < SELECTOR_LEVELS; i++)
        if (selector->shares[i].used)
            share_move(&selector->shares[i], selector, weight, i + 1);
}

static uint32_t share_index(uint32_t levels)
{
    return levels < SELECTOR_LEVELS ? levels - (levels > 0) : SELECTOR_LEVELS - 1;
}

bool selector_walks(struct selector *selector, uint64_t now, uint32_t levels, uint64_t draw)
{
    struct selector_share *share = &selector->shares[share_index(levels)];
    forget_old(selector, now);
    share->used = true;
    const double least = share->doubted ? DOUBTED : 0;
    bool walks = (double)(draw >> 11) * 0x1p-53 < fmin(fmax(share->share, least), 1 - least);
    if (now < selector->refused_until)
        walks = false;
    else
        selector->levels += (levels - selector->levels) / (selector->levels > 0 ? AVERAGE_SAMPLES : 1);
    selector->walks += walks;
    selector->reads += !walks;
    return walks;
}

void selector_read(struct selector *selector, uint64_t now, uint64_t took_ns)
{
    const double took = (double)took_ns;
    forget_old(selector, now);
    if (selector->round_trip == 0 || took < selector->round_trip)
        selector->round_trip = took;
    const enum change change =
        average_add(&selector->read, took, selector->options.outlier, decided(selector));
    if (change)
        doubt_ends(selector, change == SHORTER);
    adjust(selector, 1 / fmax(selector->levels, 1));
}

void selector_walked(struct selector *selector, uint64_t now, uint64_t took_ns, bool busy)
{
    double took = (double)took_ns;
    forget_old(selector, now);
    if (busy)
        took += selector->levels * (selector->read.mean + selector->options.search_ns);
    if (selector->least_walk == 0 || took < selector->least_walk)
        selector->least_walk = took;
    const enum change change =
        average_add(&selector->walk, took, selector->options.outlier, decided(selector));
    if (change)
        doubt_ends(selector, change == LONGER);
    adjust(selector, 1);
}

void selector_refused(struct selector *selector, uint64_t now)
{
    selector->refused_until = now + selector->options.silence_ns;
}

double selector_walk_ns(const struct selector *selector)
{
    return selector->walk.mean;
}

double selector_read_ns(const struct selector *selector)
{
    return selector->read.mean;
}

double selector_usual_share(const struct selector *selector)
{
    return selector->shares[share_index((uint32_t)lround(selector->levels))].share;
}
