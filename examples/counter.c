/* counter.c - many threads count in the same few keys; banyan_modify makes each step atomic, so none is
 * lost. */
#include <banyan.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 4, STEPS = 2000, KEYS = 8, KEY_BYTES = 8 };

struct shared {
    struct banyan *banyan;
    struct banyan_index *index;
};

static void make_key(unsigned char key[KEY_BYTES], unsigned number)
{
    memset(key, 0, KEY_BYTES);
    key[KEY_BYTES - 1] = (unsigned char)number;
}

static enum banyan_verdict add_one(void *context, const void *old, size_t old_length, void *value,
                                   size_t *length)
{
    uint64_t count = 0;
    (void)context;
    if (old && old_length == sizeof count)
        memcpy(&count, old, sizeof count);
    count++;
    memcpy(value, &count, sizeof count);
    *length = sizeof count;
    return BANYAN_STORE;
}

/* Returns NULL if all went well. */
static void *work(void *argument)
{
    struct shared *shared = argument;
    struct banyan_session *session; /* one per thread */
    unsigned char key[KEY_BYTES];
    int status = banyan_session_open(shared->banyan, &session);
    if (status)
        return argument;
    for (unsigned i = 0; i < STEPS && !status; i++) {
        make_key(key, i % KEYS);
        status = banyan_modify(session, shared->index, key, sizeof key, add_one, NULL);
    }
    if (status)
        fprintf(stderr, "modify: %s\n", banyan_session_error(session));
    banyan_session_close(session);
    return status ? argument : NULL;
}

static int count_all(struct shared *shared)
{
    pthread_t threads[THREADS];
    int started = 0, failed = 0;
    while (started < THREADS && pthread_create(&threads[started], NULL, work, shared) == 0)
        started++;
    for (int i = 0; i < started; i++) {
        void *result;
        pthread_join(threads[i], &result);
        failed += result != NULL;
    }
    return started == THREADS && !failed ? 0 : 1;
}

static int check(struct banyan_session *session, struct banyan_index *index)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        unsigned char key[KEY_BYTES];
        uint64_t count = 0;
        size_t length = sizeof count;
        make_key(key, i);
        if (banyan_get(session, index, key, sizeof key, &count, &length))
            return 1;
        sum += count;
    }
    printf("%d threads made %d steps each; counted %llu\n", THREADS, STEPS, (unsigned long long)sum);
    return sum == (uint64_t)THREADS * STEPS ? 0 : 1;
}

int main(void)
{
    struct banyan_options options = {.struct_bytes = sizeof options, .pool_bytes = 64u << 20};
    struct banyan_geometry geometry = {
        .struct_bytes = sizeof geometry, .key_bytes = KEY_BYTES, .value_bytes = 8};
    struct banyan_session *session = NULL;
    struct shared shared = {NULL, NULL};
    int status = banyan_open(&shared.banyan, &options);
    if (!status)
        status = banyan_session_open(shared.banyan, &session);
    if (!status)
        status = banyan_index_create(session, "counters", &geometry, &shared.index);
    if (status)
        fprintf(stderr, "%s: %s\n", banyan_strerror(status), banyan_session_error(session));
    else
        status = count_all(&shared) || check(session, shared.index);
    banyan_index_close(shared.index);
    banyan_session_close(session);
    banyan_close(shared.banyan);
    return status ? 1 : 0;
}
