/* recording.c - see recording.h. */
#include "swarm/recording.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct recording *recording_create(void)
{
    void *memory = mmap(NULL, sizeof(struct recording), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void recording_destroy(struct recording *recording)
{
    if (recording)
        munmap(recording, sizeof *recording);
}

void recording_clear(struct recording *recording)
{
    recording->count = recording->blamed = 0;
    recording->name_count = 0;
    recording->failure[0] = 0;
    recording->contended = GADDR_NULL;
    recording->contended_times = 0;
    memset(&recording->last, 0, sizeof recording->last);
    memset(&recording->culprit, 0, sizeof recording->culprit);
}

void recording_label(uint32_t place, char text[8])
{
    char number[4] = "";
    if (place >= 26)
        snprintf(number, sizeof number, "%u", place / 26 % 1000);
    snprintf(text, 8, "%c%s", (char)('A' + place % 26), number);
}

struct record *recording_add(struct recording *recording, enum record_kind kind, uint64_t time)
{
    struct record *record = &recording->records[recording->count % RECORDS_MAX];
    *record = (struct record){.time_ns = time, .lane = RECORDING_LANE_NONE, .kind = (uint8_t)kind};
    recording->count++;
    return record;
}

/* The latest record is not wanted: its room is that of the next. */
void recording_drop_aside(struct recording *recording, const struct record *record)
{
    if (record->concern == RECORD_ASIDE && !recording->asides)
        recording->count--;
}

void record_add(struct record *record, const char *format, ...)
{
    size_t used = strlen(record->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(record->text + used, sizeof record->text - used, format, arguments);
    va_end(arguments);
}

/* The first node with a name that this is the lock of. */
uint32_t recording_find_lock(const struct recording *recording, gaddr lock)
{
    uint32_t at = 0;
    while (at < recording->name_count && recording->names[at].lock != lock)
        at++;
    return at;
}
