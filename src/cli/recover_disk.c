/* recover_disk.c - see recover_disk.h. */
#include "cli/recover_disk.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "archive/archive.h"
#include "base/clock.h"
#include "cli/output_file.h"
#include "cli/recover_lost.h"
#include "cli/recover_names.h"
#include "disk/manifest.h"
#include "persist/checkpoint.h"

#define DIRECTORIES_MAX RECOVER_NODES_MAX
#define INDEXES_MAX     65536u

struct directory {
    char *path; /* owned */
    struct disk *disk;
    struct manifest manifest;
    uint64_t prepared; /* number of a checkpoint that did not come to count here; 0: there is none */
    struct journal *journal;
    struct journal_report report;
};

struct recovery {
    const struct recover_disk_settings *settings;
    struct directory directories[DIRECTORIES_MAX];
    uint16_t count;
    uint32_t nodes;                        /* that the cluster has had */
    struct disk *disks[DIRECTORIES_MAX];   /* by the memory nodes' numbers; NULL: it is not there */
    struct persist_checkpoint *checkpoint; /* NULL: none was made */
    struct persist_replay *replay;
    struct output_file output;
    struct archive_writer *writer;
    uint64_t *keys, *bytes; /* owned: [INDEXES_MAX] */
    uint64_t lost;
    uint16_t index; /* whose keys are written */
    struct recover_lost gone;
};

/* ---- the directories ---- */

static int directory_open(struct directory *directory, struct error *error)
{
    const struct disk_real_options options = {0};
    struct manifest prepared;
    struct stat there;
    if (stat(directory->path, &there) || !S_ISDIR(there.st_mode)) /* opening would make it */
        return error_set(
            error, BANYAN_EINVAL,
            "data: there is no directory %.200s. If that memory node's disk is lost, leave it out, "
            "and give the memory node's number with --lost",
            directory->path);
    int status = disk_real_open(&directory->disk, directory->path, &options, error);
    if (!status)
        status = manifest_read(directory->disk, &directory->manifest, error);
    if (status == BANYAN_ENOTFOUND)
        return error_set(
            error, BANYAN_EINVAL,
            "data: %.200s has no manifest: no memory node with a journal was formatted there. If its "
            "files are lost, leave it out, and give the memory node's number with --lost",
            directory->path);
    if (status)
        return status;
    status = manifest_read_prepared(directory->disk, &directory->manifest, &prepared, error);
    if (!status) {
        directory->prepared = prepared.checkpoint;
        manifest_free(&prepared);
    }
    return status == BANYAN_ENOTFOUND ? 0 : status;
}

static int directories_open(struct recovery *recovery, struct error *error)
{
    const char *at = recovery->settings->directories;
    int status = 0;
    if (!at || !*at)
        return error_set(error, BANYAN_EINVAL, "output: give the directories with --data");
    while (*at && !status) {
        const size_t length = strcspn(at, ",");
        struct directory *directory = &recovery->directories[recovery->count];
        if (recovery->count == DIRECTORIES_MAX)
            return error_set(error, BANYAN_EINVAL, "data: more than %u directories", DIRECTORIES_MAX);
        recovery->count++;
        directory->path = strndup(at, length);
        status = directory->path ? directory_open(directory, error)
                                 : error_set(error, BANYAN_ENOMEM, "no memory for a directory's name");
        at += length + (at[length] == ',');
    }
    return status;
}

/* How many memory nodes the cluster has had. All manifests are told before one joins, that of memory node 0
 * last; those of memory nodes that have left know of none that joined later. */
static uint32_t nodes_count(const struct recovery *recovery)
{
    uint32_t most = 0, home = 0, given = 0;
    for (uint16_t i = 0; i < recovery->count; i++) {
        const struct manifest *manifest = &recovery->directories[i].manifest;
        most = manifest->nodes > most ? manifest->nodes : most;
        home = manifest->node ? home : manifest->nodes;
        given = manifest->node >= given ? manifest->node + 1 : given;
    }
    most = home ? home : most;
    return given > most ? given : most;
}

/* That of another memory node which was to get the same number, and did not, is of no use here, and the right
 * one is missing. */
static int tokens_check(const struct recovery *recovery, const struct directory *directory,
                        struct error *error)
{
    const struct manifest *manifest = &directory->manifest;
    for (uint16_t i = 0; i < recovery->count && manifest->node < MANIFEST_JOINS_MAX; i++) {
        const struct manifest *other = &recovery->directories[i].manifest;
        if (manifest_join_denies(&other->joins[manifest->node], manifest->token, !other->node))
            return error_set(error, BANYAN_EINVAL,
                             "data: %.150s is not of the memory node %u that joined, but of one whose join "
                             "failed, so that another one got its number (%.100s says so): give the other "
                             "one's directory",
                             directory->path, (unsigned)manifest->node, recovery->directories[i].path);
    }
    return 0;
}

/* All of one cluster, each once. */
static int directories_check(struct recovery *recovery, struct error *error)
{
    const struct manifest *first = &recovery->directories[0].manifest;
    for (uint16_t i = 0; i < recovery->count; i++) {
        const struct directory *directory = &recovery->directories[i];
        const struct manifest *manifest = &directory->manifest;
        if (manifest->cluster != first->cluster)
            return error_set(
                error, BANYAN_EINVAL, "data: %.100s is of cluster %016" PRIx64 ", %.100s of %016" PRIx64,
                recovery->directories[0].path, first->cluster, directory->path, manifest->cluster);
        for (uint16_t j = 0; j < i; j++)
            if (recovery->directories[j].manifest.node == manifest->node)
                return error_set(error, BANYAN_EINVAL, "data: %.100s and %.100s are both of memory node %u",
                                 recovery->directories[j].path, directory->path, (unsigned)manifest->node);
        if (manifest->node >= DIRECTORIES_MAX)
            return error_set(error, BANYAN_ENOTSUP,
                             "data: %.200s is of memory node %u; at most %u have journals", directory->path,
                             (unsigned)manifest->node, DIRECTORIES_MAX);
        recovery->disks[manifest->node] = directory->disk;
    }
    for (uint16_t i = 0; i < recovery->count; i++) {
        int status = tokens_check(recovery, &recovery->directories[i], error);
        if (status)
            return status;
    }
    recovery->nodes = nodes_count(recovery);
    return recover_lost_read(&recovery->gone, recovery->settings->lost, recovery->nodes, error);
}

/* Those that are missing are known to be lost, or had left before the checkpoint. */
static int missing_check(void *context, const struct persist_table *table, struct error *error)
{
    struct recovery *recovery = context;
    bool given[DIRECTORIES_MAX];
    for (uint16_t i = 0; i < DIRECTORIES_MAX; i++)
        given[i] = recovery->disks[i] != NULL;
    if (table && table->nodes > recovery->nodes)
        recovery->nodes = table->nodes;
    return recover_lost_check(&recovery->gone, recovery->nodes, given, table, recovery->settings->accept_loss,
                              error);
}

/* ---- the journals ---- */

static void tell_loss(void *context, uint64_t from, uint64_t to, const char *why)
{
    struct recovery *recovery = context;
    recovery->lost++;
    fprintf(stderr, "LOST: bytes %" PRIu64 " to %" PRIu64 ": %s\n", from, to, why);
}

static void tell_part(void *context, const char *why)
{
    struct recovery *recovery = context;
    recovery->lost++;
    recover_lost_tell(&recovery->gone, "LOST: %s", why);
}

/* P13. */
static int checkpoint_open(struct recovery *recovery, struct error *error)
{
    struct persist_checkpoint_claim claims[DIRECTORIES_MAX];
    struct persist_checkpoint_source source = {
        .disks = recovery->disks,
        .count = DIRECTORIES_MAX,
        .lost = recovery->settings->accept_loss || recovery->gone.count ? tell_part : NULL,
        .context = recovery,
        .enough = missing_check,
        .claims = claims,
        .claim_count = recovery->count};
    for (uint16_t i = 0; i < recovery->count; i++) {
        const struct directory *directory = &recovery->directories[i];
        claims[i] = (struct persist_checkpoint_claim){.there = true,
                                                      .node = directory->manifest.node,
                                                      .committed = directory->manifest.checkpoint,
                                                      .prepared = directory->prepared};
    }
    source.number = persist_checkpoint_choose(claims, recovery->count);
    return source.number ? persist_checkpoint_open(&recovery->checkpoint, &source, error)
                         : missing_check(recovery, NULL, error);
}

static int record_take(void *context, const struct journal_record *record, struct error *error)
{
    const struct recovery *recovery = context;
    return persist_replay_record(recovery->replay, record, error);
}

/* Which directory is read as the n-th: that of memory node 0, or else of memory node 1, which name the
 * indexes, first. */
static uint16_t directory_turn(const struct recovery *recovery, uint16_t n)
{
    uint16_t home = 0;
    for (uint16_t i = 1; i < recovery->count; i++)
        if (recovery->directories[i].manifest.node < recovery->directories[home].manifest.node)
            home = i;
    return n == 0 ? home : n <= home ? (uint16_t)(n - 1) : n;
}

static int journals_read(struct recovery *recovery, struct error *error)
{
    struct disk *disks[DIRECTORIES_MAX];
    for (uint16_t i = 0; i < recovery->count; i++)
        disks[i] = recovery->directories[i].disk;
    int status = persist_replay_create(&recovery->replay, disks, recovery->count, error);
    if (!status && recovery->checkpoint)
        persist_replay_over(recovery->replay, persist_checkpoint_table(recovery->checkpoint));
    if (!status)
        persist_replay_lost(recovery->replay, recovery->gone.nodes, RECOVER_NODES_MAX);
    for (uint16_t n = 0; n < recovery->count && !status; n++) {
        const uint16_t i = directory_turn(recovery, n);
        struct directory *directory = &recovery->directories[i];
        const struct journal_options options = {.cluster = directory->manifest.cluster,
                                                .node = directory->manifest.node,
                                                .from = directory->manifest.position,
                                                .accept_loss = recovery->settings->accept_loss};
        struct journal_reader reader = {.visit = record_take, .loss = tell_loss, .context = recovery};
        persist_replay_next(recovery->replay, i);
        status = journal_open(&directory->journal, directory->disk, &options, &reader, error);
        directory->report = reader.report;
    }
    return status;
}

/* ---- what they come to ---- */

static int entry_count(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    struct recovery *recovery = context;
    (void)error;
    recovery->keys[index]++;
    recovery->bytes[index] += entry->key_length + entry->value_length;
    return 0;
}

static int entry_write(void *context, uint16_t index, const struct archive_entry *entry, struct error *error)
{
    struct recovery *recovery = context;
    return index == recovery->index ? archive_add(recovery->writer, entry, error) : 0;
}

/* Which index is written. One that was dropped is only if it is asked for. */
static int index_choose(struct recovery *recovery, struct error *error)
{
    unsigned several = 0;
    if (recovery->settings->index && *recovery->settings->index)
        return recover_names_find(recovery->replay, recovery->settings->index, &recovery->index, error);
    for (uint32_t i = 0; i < INDEXES_MAX; i++)
        if (recovery->keys[i] && !recover_names_dropped(recovery->replay, (uint16_t)i)) {
            recovery->index = (uint16_t)i;
            several++;
        }
    return several > 1 ? error_set(error, BANYAN_EINVAL,
                                   "the journals have keys of %u indexes: say which one with --index; "
                                   "without --output they are shown",
                                   several)
                       : 0;
}

static int archive_write(struct recovery *recovery, struct error *error)
{
    int status = index_choose(recovery, error);
    if (!status)
        status = output_file_open(&recovery->output, recovery->settings->output, error);
    if (!status)
        status = archive_writer_create(&recovery->writer, ARCHIVE_ORDERED, clock_wall_ms(), 0,
                                       output_file_write, &recovery->output, error);
    if (!status)
        status = persist_checkpoint_all(recovery->checkpoint, recovery->replay, entry_write, recovery, error);
    if (!status)
        status = archive_finish(recovery->writer, error);
    return status ? status : output_file_publish(&recovery->output, error);
}

/* ---- telling ---- */

static uint64_t checkpoint_number(const struct recovery *recovery)
{
    return recovery->checkpoint ? persist_checkpoint_table(recovery->checkpoint)->number : 0;
}

static int tell_json(const struct recovery *recovery, const struct persist_replay_stats *stats)
{
    json_t *nodes = json_array(), *indexes = json_array();
    for (uint16_t i = 0; i < recovery->count; i++) {
        const struct directory *directory = &recovery->directories[i];
        json_array_append_new(nodes, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "directory", directory->path,
                                               "node", (json_int_t)directory->manifest.node, "files",
                                               (json_int_t)directory->report.files, "records",
                                               (json_int_t)directory->report.records, "cut_bytes",
                                               (json_int_t)directory->report.cut_bytes, "lost_regions",
                                               (json_int_t)directory->report.lost));
    }
    for (uint32_t i = 0; i < INDEXES_MAX; i++)
        if (recovery->keys[i] || recover_names_live(recovery->replay, (uint16_t)i))
            json_array_append_new(indexes, recover_names_json(recovery->replay, (uint16_t)i,
                                                              recovery->keys[i], recovery->bytes[i]));
    json_t *all = json_pack("{s:o, s:o, s:O, s:I, s:I, s:I, s:I, s:I}", "memory_nodes", nodes, "indexes",
                            indexes, "missing", recovery->gone.told, "checkpoint",
                            (json_int_t)checkpoint_number(recovery), "changes", (json_int_t)stats->entries,
                            "covered", (json_int_t)stats->covered, "without_value",
                            (json_int_t)stats->missing, "written", (json_int_t)recovery->output.written);
    int failed = !all || json_dumpf(all, stdout, JSON_INDENT(2)) || putchar('\n') == EOF;
    json_decref(all);
    return failed;
}

/* To standard error where the file goes to standard output. */
static void tell_text(const struct recovery *recovery, const struct persist_replay_stats *stats)
{
    char name[RECOVER_NAME_TEXT];
    FILE *to = recovery->output.file == stdout ? stderr : stdout;
    for (uint16_t i = 0; i < recovery->count; i++) {
        const struct directory *directory = &recovery->directories[i];
        fprintf(to, "%s: memory node %u of %u, %" PRIu64 " records in %u files", directory->path,
                (unsigned)directory->manifest.node, (unsigned)recovery->nodes, directory->report.records,
                (unsigned)directory->report.files);
        if (directory->report.cut_bytes)
            fprintf(to, "; a torn tail of %" PRIu64 " bytes was cut", directory->report.cut_bytes);
        if (directory->report.lost)
            fprintf(to, "; %u regions are LOST", (unsigned)directory->report.lost);
        fputc('\n', to);
    }
    for (uint32_t i = 0; i < INDEXES_MAX; i++)
        if (recovery->keys[i] || recover_names_live(recovery->replay, (uint16_t)i))
            fprintf(to, "index %s: %" PRIu64 " keys, %.1f MiB\n",
                    recover_names_text(recovery->replay, (uint16_t)i, name), recovery->keys[i],
                    (double)recovery->bytes[i] / 1048576);
    if (recovery->checkpoint)
        fprintf(to, "checkpoint %" PRIu64 ", which has %" PRIu64 " of the changes already\n",
                checkpoint_number(recovery), stats->covered);
    fprintf(to, "%" PRIu64 " changes, %" PRIu64 " of them without their value when they were met\n",
            stats->entries, stats->missing);
    for (uint32_t n = 0; n < RECOVER_NODES_MAX; n++)
        if (recovery->gone.nodes[n])
            fprintf(to, "memory node %" PRIu32 ": its disk is lost%s\n", n,
                    recovery->gone.doubts ? "" : "; all that had two copies is there, on the others");
    if (recovery->settings->output)
        fprintf(to, "index %s is in %s\n", recover_names_text(recovery->replay, recovery->index, name),
                recovery->settings->output);
}

static int tell(const struct recovery *recovery, struct error *error)
{
    struct persist_replay_stats stats;
    persist_replay_stats(recovery->replay, &stats);
    if (!recovery->settings->json) {
        tell_text(recovery, &stats);
        return 0;
    }
    return tell_json(recovery, &stats) ? error_set(error, BANYAN_EINVAL, "the result cannot be printed") : 0;
}

/* ---- all of it ---- */

static void recovery_end(struct recovery *recovery)
{
    archive_writer_destroy(recovery->writer);
    output_file_close(&recovery->output);
    persist_replay_destroy(recovery->replay);
    persist_checkpoint_close(recovery->checkpoint);
    for (uint16_t i = 0; i < recovery->count; i++) {
        struct directory *directory = &recovery->directories[i];
        journal_close(directory->journal);
        manifest_free(&directory->manifest);
        disk_close(directory->disk);
        free(directory->path);
    }
    json_decref(recovery->gone.told);
    free(recovery->keys);
    free(recovery->bytes);
    free(recovery);
}

/* Without --output it is told and no more. */
static int doubts_accept(const struct recovery *recovery, struct error *error)
{
    if (!recovery->gone.doubts || recovery->settings->accept_loss || !recovery->settings->output)
        return 0;
    return error_set(
        error, BANYAN_ECORRUPT,
        "what is named above is missing, or may be (without --output all is told): --accept-loss "
        "writes the rest");
}

int recover_disk(const struct recover_disk_settings *settings, bool *doubtful, struct error *error)
{
    struct recovery *recovery = calloc(1, sizeof *recovery);
    if (!recovery)
        return error_set(error, BANYAN_ENOMEM, "no memory to read journals");
    recovery->settings = settings;
    recovery->gone.told = settings->json ? json_array() : NULL;
    recovery->gone.to = settings->output ? stderr : stdout;
    recovery->keys = calloc(INDEXES_MAX, sizeof *recovery->keys);
    recovery->bytes = calloc(INDEXES_MAX, sizeof *recovery->bytes);
    int status = recovery->keys && recovery->bytes
                     ? directories_open(recovery, error)
                     : error_set(error, BANYAN_ENOMEM, "no memory to read journals");
    if (!status)
        status = directories_check(recovery, error);
    if (!status)
        status = checkpoint_open(recovery, error);
    if (!status)
        status = journals_read(recovery, error);
    if (!status)
        recover_lost_judge(&recovery->gone, recovery->replay);
    if (!status)
        status = doubts_accept(recovery, error);
    if (!status)
        status = persist_checkpoint_all(recovery->checkpoint, recovery->replay, entry_count, recovery, error);
    if (!status && settings->output)
        status = archive_write(recovery, error);
    if (!status)
        status = tell(recovery, error);
    *doubtful = !settings->accept_loss && recovery->gone.doubts;
    recovery_end(recovery);
    return status;
}
