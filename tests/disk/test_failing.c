/* test_failing.c - journal, manifest and both disks when the system refuses: no memory, no ring, writes,
 * syncs and changes of names that fail, each of them alone. */
#include <errno.h>
#include <liburing.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/log.h"
#include "disk/disk_simulated.h"
#include "disk/journal.h"
#include "disk/manifest.h"
#include "failing.h"

#define LIFE_BYTES 2336u /* of records, in one life */

static char folder[64];

static int refused(int status, const struct error *error)
{
    if (status)
        assert_true(error->code == status && error->text[0]);
    return status;
}

static int append_all(struct journal *journal, struct error *error)
{
    static const uint8_t bytes[700];
    uint64_t position, safe;
    int status = 0;
    for (uint32_t i = 0; !status && i < 7; i++) {
        status = journal_append(journal, 1, bytes, 100 * i, &position, error);
        if (!status && i % 3 == 2)
            status = journal_sync(journal, &safe, error);
    }
    return status ? status : journal_sync(journal, &safe, error);
}

static int journal_life(struct disk *disk, uint64_t from, struct error *error)
{
    const struct journal_options options = {
        .cluster = 1, .from = from, .file_bytes = 1000, .buffer_bytes = 4000, .seed = 1};
    struct journal_reader reader = {0};
    struct journal *journal;
    int status = journal_open(&journal, disk, &options, &reader, error);
    if (status)
        return status;
    status = append_all(journal, error);
    if (!status)
        status = journal_release(journal, journal_safe(journal), error);
    if (!status)
        assert_int_equal(journal_safe(journal), from + LIFE_BYTES);
    journal_close(journal);
    return status;
}

/* A first life, whose journal is released up to its end, and a second one. */
static int lives(struct disk *disk, struct error *error)
{
    struct manifest_part part = {.name = "checkpoint-1"}; /* an empty file */
    struct manifest first = {.cluster = 1,
                             .nodes = 1,
                             .position = LIFE_BYTES,
                             .part_count = 1,
                             .parts = &part},
                    read;
    struct disk_file *file = NULL;
    int status = disk_create(disk, part.name, &file, error);
    if (!status)
        status = disk_sync(file, error);
    disk_file_close(file);
    if (!status)
        status = manifest_replace(disk, NULL, &first, error);
    if (!status)
        status = journal_life(disk, 0, error);
    if (!status)
        status = manifest_open(disk, 1, 0, 1, &read, error);
    if (status)
        return status;
    status = journal_life(disk, read.position, error);
    manifest_free(&read);
    return status;
}

static int simulated_attempt(void *context)
{
    struct error error = {0};
    const bool memory = context != NULL; /* persistent memory: files are mapped */
    struct disk *disk =
        disk_simulated_create(&(struct disk_simulated_options){.seed = 1, .stale = true, .memory = memory});
    if (!disk)
        return BANYAN_ENOMEM;
    int status = refused(lives(disk, &error), &error);
    struct disk *cut = status ? NULL : disk_simulated_cut(disk);
    if (!status && (!cut || disk_simulated_states(disk) == UINT64_MAX))
        status = BANYAN_ENOMEM;
    disk_close(cut);
    disk_close(disk);
    return status;
}

static int real_attempt(void *context)
{
    char command[160], path[96];
    struct error error = {0};
    struct disk *disk;
    snprintf(path, sizeof path, "%s/data", folder);
    const struct disk_real_options options = {.io = *(enum disk_io *)context};
    int status = refused(disk_real_open(&disk, path, &options, &error), &error);
    if (!status)
        status = refused(lives(disk, &error), &error);
    disk_close(disk);
    snprintf(command, sizeof command, "rm -rf %s", path);
    assert_int_equal(system(command), 0); /* NOLINT: a name of mkdtemp's */
    return status;
}

#define ONE(what, code)                                                                                      \
    (&(struct failing_order){.calls = (what), .where = FAILING_HERE, .count = 1, .error = (code)})

static void test_no_memory(void **state)
{
    enum disk_io io = DISK_IO_AUTO;
    assert_true(failing_each(ONE(FAILING_MEMORY, ENOMEM), simulated_attempt, NULL, BANYAN_ENOMEM) > 100);
    assert_true(failing_each(ONE(FAILING_MEMORY, ENOMEM), simulated_attempt, &io, BANYAN_ENOMEM) > 150);
    assert_true(failing_each(ONE(FAILING_MEMORY, ENOMEM), real_attempt, &io, BANYAN_ENOMEM) > 30);
}

static void test_io_errors(void **state)
{
    enum disk_io io = DISK_IO_PLAIN;
    /* All syncs that there are: one that is left out would not be missed otherwise. */
    assert_int_equal(failing_each(ONE(FAILING_SYNC, EIO), real_attempt, &io, BANYAN_EUNKNOWN), 35);
    assert_true(failing_each(ONE(FAILING_PWRITEV, EIO), real_attempt, &io, BANYAN_EUNKNOWN) > 10);
    assert_true(failing_each(ONE(FAILING_PWRITEV, ENOSPC), real_attempt, &io, BANYAN_ENOSPC) > 10);
    assert_int_equal(failing_each(ONE(FAILING_PWRITEV, EINTR), real_attempt, &io, 0), 0);
    assert_true(failing_each(ONE(FAILING_NAMES, EIO), real_attempt, &io, BANYAN_EUNKNOWN) > 10);
    assert_true(failing_each(ONE(FAILING_FCNTL, EIO), real_attempt, &io, BANYAN_EINVAL) > 10);
    assert_int_equal(failing_each(ONE(FAILING_FTRUNCATE, EIO), real_attempt, &io, 0), 0);
}

static void test_no_ring(void **state)
{
    enum disk_io io = DISK_IO_AUTO;
    assert_int_equal(failing_each(ONE(FAILING_URING, EPERM), real_attempt, &io, 0), 0);
    const struct failing_order always = {.calls = FAILING_URING, .where = FAILING_HERE, .error = EPERM};
    failing_begin(&always);
    assert_int_equal(real_attempt(&io), 0);
    io = DISK_IO_URING;
    assert_int_equal(real_attempt(&io), BANYAN_ENOTSUP);
    assert_true(failing_end() >= 2);
}

/* In memory, where that can be had: it is made and removed some hundred times. */
/* ---- what the ring is given ---- */

static enum { FAULT_NONE, FAULT_WRITE, FAULT_SYNC } fault;
static unsigned pairs;

/* The linker sends the product's calls here: each hands over a write, and linked to it a sync of the same
 * file. */
int __real_io_uring_submit_and_wait(struct io_uring *ring, unsigned count);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned count);
int __wrap_io_uring_submit_and_wait(struct io_uring *ring, unsigned count)
{
    const unsigned first = ring->sq.sqe_head, mask = *ring->sq.kring_mask;
    if (ring->sq.sqe_tail - first == 2) {
        struct io_uring_sqe *write = &ring->sq.sqes[first & mask], *sync = &ring->sq.sqes[(first + 1) & mask];
        assert_int_equal(write->opcode, IORING_OP_WRITEV);
        assert_true(write->flags & IOSQE_IO_LINK);
        assert_int_equal(sync->opcode, IORING_OP_FSYNC);
        assert_int_equal(sync->fsync_flags, IORING_FSYNC_DATASYNC);
        assert_int_equal(write->fd, sync->fd);
        pairs++;
        write->fd = fault == FAULT_WRITE ? -1 : write->fd;
        sync->fd = fault == FAULT_SYNC ? -1 : sync->fd;
    }
    return __real_io_uring_submit_and_wait(ring, count);
}

static void test_ring_errors(void **state)
{
    enum disk_io io = DISK_IO_URING;
    fault = FAULT_NONE;
    const int status = real_attempt(&io);
    if (status == BANYAN_ENOTSUP)
        skip();
    assert_int_equal(status, 0);
    assert_true(pairs > 5);
    fault = FAULT_SYNC;
    assert_int_equal(real_attempt(&io), BANYAN_EUNKNOWN);
    fault = FAULT_WRITE;
    assert_int_equal(real_attempt(&io), BANYAN_EUNKNOWN);
    fault = FAULT_NONE;
}

static int begin(void **state)
{
    snprintf(folder, sizeof folder, "%s/banyan-disk-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    return mkdtemp(folder) ? 0 : -1;
}

static int end(void **state)
{
    return remove(folder);
}

int main(void)
{
    log_set_level(LOG_ERROR + 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_no_memory, begin, end),
        cmocka_unit_test_setup_teardown(test_io_errors, begin, end),
        cmocka_unit_test_setup_teardown(test_no_ring, begin, end),
        cmocka_unit_test_setup_teardown(test_ring_errors, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
