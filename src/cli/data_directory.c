/* data_directory.c - see data_directory.h. */
#include "cli/data_directory.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/random.h"

/* The clusters of such directories have numbers that begin with this, so that a pool of `banyan memory`, with
 * a map of ranges or logs in it, is not taken for one. */
#define CLUSTER_MARK      (UINT64_C(0x5e7e) << 48)
#define CLUSTER_MARK_BITS (UINT64_C(0xffff) << 48)

struct opening {
    struct data_directory *data;
    const char *path;
    const struct data_wishes *wishes;
    struct error *error;
};

static const char *pool_path(const struct opening *opening, uint32_t number, char text[PATH_MAX])
{
    snprintf(text, PATH_MAX, "%s/pool-%u", opening->path, number);
    return text;
}

static bool pool_exists(const struct opening *opening, uint32_t number)
{
    char path[PATH_MAX];
    struct stat status;
    return lstat(pool_path(opening, number, path), &status) == 0;
}

/* ---- the directory ---- */

/* Of a new store: what lies in the directory already and is not ours; "" if nothing does. */
static int find_stranger(const struct opening *opening, char name[256])
{
    DIR *list = opendir(opening->path);
    name[0] = 0;
    if (!list)
        return error_set(opening->error, BANYAN_EINVAL, "data directory %s cannot be read: %s", opening->path,
                         strerror(errno));
    for (const struct dirent *entry; !name[0] && (entry = readdir(list));)
        if (entry->d_name[0] != '.' && strncmp(entry->d_name, "pool-", 5) != 0 &&
            strcmp(entry->d_name, "lost+found") != 0 && strcmp(entry->d_name, DATA_DISK) != 0)
            snprintf(name, 256, "%s", entry->d_name);
    closedir(list);
    return 0;
}

static int directory_make(const struct opening *opening)
{
    struct stat status;
    if (!opening->wishes->existing && mkdir(opening->path, 0700) == 0)
        return 0;
    if (!opening->wishes->existing && errno != EEXIST)
        return error_set(opening->error, BANYAN_EINVAL, "data directory %s cannot be made: %s", opening->path,
                         strerror(errno));
    if (stat(opening->path, &status) != 0)
        return error_set(opening->error, BANYAN_EINVAL, "data directory %s: %s", opening->path,
                         strerror(errno));
    if (!S_ISDIR(status.st_mode))
        return error_set(opening->error, BANYAN_EINVAL, "data directory %s is not a directory",
                         opening->path);
    return 0;
}

static int directory_check(const struct opening *opening)
{
    char name[256];
    int status = directory_make(opening);
    if (status || pool_exists(opening, 0))
        return status;
    if (opening->wishes->existing)
        return error_set(opening->error, BANYAN_EINVAL,
                         "data directory %s has no pool-0: no 'banyan serve --data' has kept anything there",
                         opening->path);
    status = find_stranger(opening, name);
    if (!status && name[0])
        status = error_set(opening->error, BANYAN_EINVAL,
                           "data directory %s has no pool-0, but other things (%s): name an empty directory, "
                           "or one that is not there",
                           opening->path, name);
    return status;
}

/* ---- its pools ---- */

static int pool_open(const struct opening *opening, uint32_t number, struct memory_status_reply *told)
{
    char path[PATH_MAX];
    const struct memory_options options = {.node = (uint16_t)number,
                                           .pool_bytes = opening->wishes->pool_bytes,
                                           .log_bytes = opening->wishes->log_bytes,
                                           .huge_pages =
                                               opening->wishes->huge_pages ? PAGES_HUGE : PAGES_PLAIN,
                                           .pool_file = pool_path(opening, number, path),
                                           .unformatted = true};
    struct data_directory *data = opening->data;
    if (opening->wishes->existing && !pool_exists(opening, number)) /* opening would make it */
        return error_set(opening->error, BANYAN_EINVAL, "data directory %s has no pool-%u", opening->path,
                         number);
    int status = memory_node_create(&data->nodes[number], &options, opening->error);
    if (status)
        return status;
    data->targets[number] = memory_node_target(data->nodes[number]);
    memory_node_status(data->nodes[number], told);
    data->cut |= memory_node_was_cut(data->nodes[number]);
    data->used |= told->blocks_used != 0;
    return 0;
}

/* pool-0 says how many there are, if it belongs to a cluster. */
static int count_check(const struct opening *opening, const struct memory_status_reply *first)
{
    uint32_t asked = opening->wishes->memory_nodes, there = 1;
    while (there < DATA_NODES_MAX && pool_exists(opening, there))
        there++;
    if (first->cluster_id == 0) {
        opening->data->count = asked ? asked : there;
    } else if ((first->cluster_id & CLUSTER_MARK_BITS) != CLUSTER_MARK || first->node != 0 ||
               first->node_count == 0 || first->node_count > DATA_NODES_MAX) {
        return error_set(opening->error, BANYAN_EINVAL,
                         "data directory %s: pool-0 is memory node %llu of a cluster of %llu, and not of "
                         "'banyan serve': start it with 'banyan memory --pool-file'",
                         opening->path, (unsigned long long)first->node,
                         (unsigned long long)first->node_count);
    } else {
        opening->data->count = (uint32_t)first->node_count;
    }
    if (asked && asked != opening->data->count)
        return error_set(opening->error, BANYAN_EINVAL,
                         "data directory %s was made with %u memory nodes, not %u: leave the setting out, or "
                         "name an empty directory",
                         opening->path, opening->data->count, asked);
    if (there > opening->data->count)
        return error_set(
            opening->error, BANYAN_EINVAL,
            "data directory %s has a pool-%u, but its store has %u memory node%s: move away what "
            "does not belong to it",
            opening->path, opening->data->count, opening->data->count, opening->data->count == 1 ? "" : "s");
    return 0;
}

static int pool_check(const struct opening *opening, uint32_t number, const struct memory_status_reply *first,
                      const struct memory_status_reply *told)
{
    if (first->cluster_id == 0 && told->blocks_used == 0)
        return 0; /* it is formatted with the others */
    if (told->cluster_id == first->cluster_id && told->node == number &&
        told->node_count == first->node_count)
        return 0;
    return error_set(
        opening->error, BANYAN_EINVAL,
        "data directory %s: pool-%u does not belong to pool-0: all pools of a directory are kept, "
        "copied and moved together",
        opening->path, number);
}

static int format_all(const struct opening *opening)
{
    struct data_directory *data = opening->data;
    const uint64_t wished = opening->wishes->cluster;
    const uint64_t cluster = wished ? wished : CLUSTER_MARK | (random_entropy() & ~CLUSTER_MARK_BITS);
    int status = 0;
    data->cluster = cluster;
    for (uint32_t i = data->count; i-- > 0 && !status;)
        status =
            memory_node_format(data->nodes[i], cluster, (uint16_t)i, (uint16_t)data->count, opening->error);
    return status;
}

static int pools_open(const struct opening *opening)
{
    struct memory_status_reply first, other;
    int status = pool_open(opening, 0, &first);
    if (!status)
        status = count_check(opening, &first);
    opening->data->cluster = status ? 0 : first.cluster_id;
    for (uint32_t i = 1; !status && i < opening->data->count; i++) {
        status = pool_open(opening, i, &other);
        if (!status)
            status = pool_check(opening, i, &first, &other);
    }
    if (!status && first.cluster_id == 0)
        status = opening->wishes->existing
                     ? error_set(opening->error, BANYAN_EINVAL,
                                 "data directory %s: its first start did not come to its end; start 'banyan "
                                 "serve --data' again",
                                 opening->path)
                     : format_all(opening);
    return status;
}

/* The last one first: pool-0 says how many there are. */
static int pools_remove(const struct opening *opening)
{
    char path[PATH_MAX];
    for (uint32_t i = DATA_NODES_MAX; i-- > 0;)
        if (pool_exists(opening, i) && unlink(pool_path(opening, i, path)))
            return error_set(opening->error, BANYAN_EINVAL, "%.160s cannot be removed: %s", path,
                             strerror(errno));
    return 0;
}

bool data_directory_lost(const char *path)
{
    const struct opening opening = {.path = path};
    char name[PATH_MAX];
    bool lost = !pool_exists(&opening, 0);
    for (uint32_t i = 0; i < DATA_NODES_MAX && !lost && pool_exists(&opening, i); i++)
        lost = memory_pool_file_lost_power(pool_path(&opening, i, name));
    return lost;
}

int data_directory_make(const char *path, struct error *error)
{
    const struct data_wishes wishes = {.memory_nodes = 0};
    const struct opening opening = {.path = path, .wishes = &wishes, .error = error};
    return directory_make(&opening);
}

int data_directory_open(struct data_directory *data, const char *path, const struct data_wishes *wishes,
                        struct error *error)
{
    const struct opening opening = {.data = data, .path = path, .wishes = wishes, .error = error};
    *data = (struct data_directory){.count = 0};
    if (strlen(path) > PATH_MAX - sizeof "/pool-99")
        return error_set(error, BANYAN_EINVAL, "data directory %.40s...: the path is too long", path);
    int status = wishes->anew ? pools_remove(&opening) : 0;
    if (!status)
        status = directory_check(&opening);
    if (!status)
        status = pools_open(&opening);
    if (!status && data->cut)
        log_info("data directory %s: its last process did not end in order; it goes on with all that was "
                 "answered. Memory that was taken and not yet used is given back by 'banyan check --data %s "
                 "--reclaim', while no server runs",
                 path, path);
    return status;
}

void data_directory_close(struct data_directory *data)
{
    for (uint32_t i = 0; i < DATA_NODES_MAX && data->nodes[i]; i++)
        memory_node_destroy(data->nodes[i]);
    *data = (struct data_directory){.count = 0};
}
