/* selector.c - see selector.h. */
#include "tree/selector.h"

#include <math.h>
#include <string.h>

/* Fewer samples than these are no distribution, and no estimate. */
#define DISTRIBUTION 16u
#define ESTIMATE     4u
/* Of the first samples, one that is so many times the least is an outlier: it would be in the mean for long.
 */
#define FIRST_TIMES 10
/* A way with a smaller share than this counts as if it had so much: else the share would hardly leave it. */
#define RARE 0.05
/* Over so many samples the share moves faster at first, up to so many times. */
#define HURRY       2000u
#define HURRY_TIMES 10

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
    *selector = (struct selector){.options = *options, .share = 0.5};
}

/* ---- windows ---- */

static double window_mean(const struct selector_window *window)
{
    return window->count ? window->sum / window->count : 0;
}

static bool is_outlier(const struct selector_window *window, double sample, double outlier)
{
    if (window->count < DISTRIBUTION) {
        double least = sample;
        for (uint32_t i = 0; i < window->count; i++)
            least = fmin(least, window->samples[i]);
        return sample > FIRST_TIMES * least;
    }
    const double mean = window_mean(window);
    double variance = window->squares / window->count - mean * mean;
    /* Where all samples are alike, a hundredth of them is no outlier yet. */
    double deviation = fmax(sqrt(fmax(variance, 0)), mean / 100);
    return fabs(sample - mean) > outlier * deviation;
}

static void window_keep(struct selector_window *window, double sample)
{
    if (window->count == SELECTOR_SAMPLES) {
        const double old = window->samples[window->next];
        window->sum -= old;
        window->squares -= old * old;
    } else {
        window->count++;
    }
    window->samples[window->next] = sample;
    window->sum += sample;
    window->squares += sample * sample;
    window->next = (window->next + 1) % SELECTOR_SAMPLES;
}

/* A period has as many samples as the window. When more than half of them are dropped, it is no more a
 * passing disturbance: what the window knows is of another time. */
static void window_add(struct selector_window *window, double sample, double outlier)
{
    if (is_outlier(window, sample, outlier)) {
        if (++window->dropped > SELECTOR_SAMPLES / 2)
            memset(window, 0, sizeof *window);
    } else {
        window_keep(window, sample);
        window->kept++;
    }
    if (window->kept + window->dropped >= SELECTOR_SAMPLES)
        window->kept = window->dropped = 0;
}

/* ---- the share ---- */

static void forget_old(struct selector *selector, uint64_t now)
{
    if (selector->sampled_at && now > selector->sampled_at + selector->options.silence_ns) {
        memset(&selector->walk, 0, sizeof selector->walk);
        memset(&selector->read, 0, sizeof selector->read);
        selector->round_trip = selector->least_walk = 0;
        selector->samples = 0;
    }
    selector->sampled_at = now;
}

static bool estimated(const struct selector *selector)
{
    return selector->walk.count >= ESTIMATE && selector->read.count >= ESTIMATE;
}

/* What one step of that way costs, by the form. `least`: what it takes where nothing waits. */
static double cost(const struct selector *selector, const struct selector_window *window, double least)
{
    const double mean = window_mean(window);
    switch (selector->options.form) {
    case SELECTOR_LATENCY:
        return mean;
    case SELECTOR_QUEUES:
        return fmax(mean - selector->round_trip, 0);
    default:
        return 2 * mean - least;
    }
}

/* What the READs would take, less what a walk takes, as a part of the larger one. */
static double advantage(const struct selector *selector)
{
    const double walk = cost(selector, &selector->walk, selector->least_walk);
    const double reads = selector->levels * (cost(selector, &selector->read, selector->round_trip) +
                                             selector->options.search_ns);
    const double larger = fmax(walk, reads);
    return larger > 0 ? (reads - walk) / larger : 0;
}

/* The rarer way is sampled least: by the time its window tells what a change of the share has done, the share
 * must not have moved much further, or it swings. So it moves slowly near either end. */
static void adjust(struct selector *selector, double weight)
{
    const double explore = selector->options.explore, share = selector->share;
    const double rarer = fmax(fmin(share, 1 - share), RARE);
    if (!estimated(selector))
        return;
    double step = selector->options.step;
    if (selector->samples < HURRY) /* where it begins says nothing */
        step *= 1 + HURRY_TIMES * (1 - selector->samples / (double)HURRY);
    selector->samples++;
    selector->share += step * weight * rarer * share * (1 - share) * advantage(selector);
    selector->share = fmin(fmax(selector->share, explore), 1 - explore);
}

bool selector_walks(struct selector *selector, uint64_t now, double levels, uint64_t draw)
{
    forget_old(selector, now);
    bool walks = (double)(draw >> 11) * 0x1p-53 < selector->share;
    if (now < selector->refused_until)
        walks = false;
    else
        selector->levels += (levels - selector->levels) / (selector->levels > 0 ? SELECTOR_SAMPLES : 1);
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
    window_add(&selector->read, took, selector->options.outlier);
    adjust(selector, 1 / fmax(selector->levels, 1));
}

void selector_walked(struct selector *selector, uint64_t now, uint64_t took_ns, bool busy)
{
    double took = (double)took_ns;
    forget_old(selector, now);
    if (busy)
        took += selector->levels * (window_mean(&selector->read) + selector->options.search_ns);
    if (selector->least_walk == 0 || took < selector->least_walk)
        selector->least_walk = took;
    window_add(&selector->walk, took, selector->options.outlier);
    adjust(selector, 1);
}

void selector_refused(struct selector *selector, uint64_t now)
{
    selector->refused_until = now + selector->options.silence_ns;
}

double selector_walk_ns(const struct selector *selector)
{
    return window_mean(&selector->walk);
}

double selector_read_ns(const struct selector *selector)
{
    return window_mean(&selector->read);
}
