#include "base/random.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <assert.h>

uint64_t random_mix(uint64_t value)
{
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

void random_seed(struct random *random, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        seed += UINT64_C(0x9e3779b97f4a7c15);
        random->state[i] = random_mix(seed);
    }
}

static uint64_t rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

uint64_t random_next(struct random *random)
{
    uint64_t *s = random->state;
    uint64_t result = rotate(s[1] * 5, 7) * 9, shifted = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= shifted;
    s[3] = rotate(s[3], 45);
    return result;
}

uint64_t random_below(struct random *random, uint64_t bound)
{
    assert(bound);
    /* The high half of a 128-bit product; the few low halves that would favour some results are drawn
     * anew. */
    unsigned __int128 product = (unsigned __int128)random_next(random) * bound;
    if ((uint64_t)product < bound) {
        uint64_t threshold = -bound % bound;
        while ((uint64_t)product < threshold)
            product = (unsigned __int128)random_next(random) * bound;
    }
    return (uint64_t)(product >> 64);
}

double random_unit(struct random *random)
{
    return (double)(random_next(random) >> 11) * 0x1.0p-53;
}

bool random_chance(struct random *random, double probability)
{
    return random_unit(random) < probability;
}

uint64_t random_entropy(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, GRND_NONBLOCK) == (ssize_t)sizeof number)
        return number;
    /* Early in a boot: the time and this process, then. */
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    number = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    return random_mix(number ^ random_mix((uint64_t)getpid() ^ (uint64_t)(uintptr_t)&number));
}
