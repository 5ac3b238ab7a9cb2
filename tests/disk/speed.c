/*
 * speed.c - how fast a journal is on a real directory, beside a loop that writes the same bytes to one file
 * and syncs it, in turns. Mapped files lie in the page cache unless the directory lies in persistent memory:
 * then that way shows what the processor does, and no medium. Prints medians; asserts nothing. Usage:
 * disk-speed DIRECTORY [ms of each turn]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/task.h"
#include "disk/journal.h"

#define TURNS 5

struct shape {
    const char *name;
    uint32_t bytes, batch; /* of a record; records that are synced together */
};
static const struct shape shapes[] = {{"64 KiB, each synced", 65536, 1},
                                      {"64 KiB, 16 synced together", 65536, 16},
                                      {"200 bytes, each synced", 200, 1},
                                      {"200 bytes, 64 synced together", 200, 64}};
enum way { WAY_BARE, WAY_PLAIN, WAY_URING, WAY_MAPPED, WAYS };
static const char *const way_names[] = {"pwrite, fdatasync", "journal, plain", "journal, io_uring",
                                        "journal, mapped"};

static uint8_t payload[16 * 65536 + 65536];

static void must(int status, const struct error *error)
{
    if (!status)
        return;
    fprintf(stderr, "disk-speed: %s\n", error->text);
    exit(1);
}

/* Syncs a second. */
static double run_bare(const char *path, const struct shape *shape, uint64_t nanoseconds)
{
    char name[512];
    const uint32_t bytes = shape->batch * (32 + ((shape->bytes + 7) & ~7u));
    snprintf(name, sizeof name, "%s/bare", path);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    off_t offset = 0;
    uint64_t syncs = 0, began = task_now();
    while (file >= 0 && task_now() - began < nanoseconds) {
        if (pwrite(file, payload, bytes, offset) != (ssize_t)bytes || fdatasync(file))
            break;
        offset += bytes;
        syncs++;
    }
    double seconds = (double)(task_now() - began) / 1e9;
    if (file >= 0)
        close(file);
    unlink(name);
    return (double)syncs / seconds;
}

static double run_journal(const char *path, const struct shape *shape, struct disk_real_options options,
                          uint64_t nanoseconds)
{
    struct error error = {0};
    struct disk *disk;
    struct journal *journal;
    struct journal_reader reader = {0};
    char name[512];
    uint64_t syncs = 0, position, safe;
    snprintf(name, sizeof name, "%s/journal", path);
    must(disk_real_open(&disk, name, &options, &error), &error);
    must(journal_open(&journal, disk, &(struct journal_options){.cluster = 1}, &reader, &error), &error);
    uint64_t began = task_now();
    while (task_now() - began < nanoseconds) {
        for (uint32_t i = 0; i < shape->batch; i++)
            must(journal_append(journal, 1, payload, shape->bytes, &position, &error), &error);
        must(journal_sync(journal, &safe, &error), &error);
        syncs++;
    }
    double seconds = (double)(task_now() - began) / 1e9;
    journal_close(journal);
    disk_close(disk);
    snprintf(name, sizeof name, "rm -rf '%s/journal'", path);
    if (system(name)) /* NOLINT: the user's own directory */
        exit(1);
    return (double)syncs / seconds;
}

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

int main(int count, char **arguments)
{
    log_set_level(LOG_ERROR);
    if (count < 2) {
        fprintf(stderr, "usage: disk-speed DIRECTORY [ms of each turn]\n");
        return 2;
    }
    const uint64_t nanoseconds = (count > 2 ? strtoull(arguments[2], NULL, 10) : 500) * 1000000;
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (uint8_t)(i * 2654435761u >> 13);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        double found[WAYS][TURNS];
        for (int turn = 0; turn < TURNS; turn++) {
            found[WAY_BARE][turn] = run_bare(arguments[1], &shapes[i], nanoseconds);
            found[WAY_PLAIN][turn] = run_journal(
                arguments[1], &shapes[i], (struct disk_real_options){.io = DISK_IO_PLAIN}, nanoseconds);
            found[WAY_URING][turn] = run_journal(
                arguments[1], &shapes[i], (struct disk_real_options){.io = DISK_IO_URING}, nanoseconds);
            found[WAY_MAPPED][turn] = run_journal(arguments[1], &shapes[i],
                                                  (struct disk_real_options){.map_any = true}, nanoseconds);
        }
        printf("%s\n", shapes[i].name);
        for (int way = 0; way < WAYS; way++) {
            qsort(found[way], TURNS, sizeof **found, compare);
            const double median = found[way][TURNS / 2];
            printf("  %-20s %9.0f syncs/s %8.1f MB/s  (%.0f to %.0f syncs/s)\n", way_names[way], median,
                   median * shapes[i].bytes * shapes[i].batch / 1e6, found[way][0], found[way][TURNS - 1]);
        }
    }
    return 0;
}
