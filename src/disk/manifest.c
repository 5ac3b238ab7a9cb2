/* manifest.c - see manifest.h: the directory's file and those that it names. */
#include "disk/manifest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

/* Longer than any manifest: 64 MiB. */
#define BYTES_MAX (UINT64_C(64) << 20)

void manifest_free(struct manifest *manifest)
{
    free(manifest->parts);
    *manifest = (struct manifest){0};
}

static const struct manifest_part *find_part(const struct manifest *manifest, const char *name)
{
    for (uint32_t i = 0; manifest && i < manifest->part_count; i++)
        if (!strcmp(manifest->parts[i].name, name))
            return &manifest->parts[i];
    return NULL;
}

/* ---- opening ---- */

static int read_bytes(struct disk_file *file, uint8_t **bytes, size_t *length, struct error *error)
{
    uint64_t size;
    int status = disk_size(file, &size, error);
    if (status)
        return status;
    if (size > BYTES_MAX)
        return error_set(error, BANYAN_ECORRUPT, "manifest has %" PRIu64 " bytes, more than any can have",
                         size);
    *bytes = malloc(size ? size : 1);
    if (!*bytes)
        return error_set(error, BANYAN_ENOMEM, "no memory for a manifest of %" PRIu64 " bytes", size);
    return disk_read(file, 0, *bytes, size, length, error);
}

static int read_named(struct disk *disk, const char *name, struct manifest *manifest, struct error *error)
{
    struct disk_file *file = NULL;
    uint8_t *bytes = NULL;
    size_t length = 0;
    *manifest = (struct manifest){0};
    int status = disk_open(disk, name, &file, error);
    if (!status)
        status = read_bytes(file, &bytes, &length, error);
    if (!status)
        status = manifest_decode(manifest, bytes, length, disk_path(disk), error);
    free(bytes);
    disk_file_close(file);
    return status;
}

int manifest_read(struct disk *disk, struct manifest *manifest, struct error *error)
{
    return read_named(disk, MANIFEST_NAME, manifest, error);
}

int manifest_read_prepared(struct disk *disk, const struct manifest *manifest, struct manifest *prepared,
                           struct error *error)
{
    int status = read_named(disk, MANIFEST_PREPARED, prepared, error);
    if (status)
        return status;
    if (prepared->cluster == manifest->cluster && prepared->node == manifest->node &&
        prepared->serial == manifest->serial + 1)
        return 0;
    /* That manifest came to count, and this file was about to be removed. */
    manifest_free(prepared);
    return error_set(error, BANYAN_ENOTFOUND, "no manifest is prepared in %.100s", disk_path(disk));
}

static int check_owner(const struct disk *disk, const struct manifest *manifest, uint64_t cluster,
                       uint32_t node, uint32_t nodes, struct error *error)
{
    if (manifest->cluster == cluster && manifest->node == node && manifest->nodes >= nodes)
        return 0;
    return error_set(error, BANYAN_EINVAL,
                     "manifest in %.40s is of memory node %" PRIu32 " of %" PRIu32 " of cluster %016" PRIx64
                     ", this is %" PRIu32 " of %" PRIu32 " of cluster %016" PRIx64
                     "; nothing is changed: name the directory of this memory node",
                     disk_path(disk), manifest->node, manifest->nodes, manifest->cluster, node, nodes,
                     cluster);
}

static int check_part(struct disk *disk, const struct manifest_part *part, struct error *error)
{
    struct disk_file *file = NULL;
    uint64_t bytes = 0;
    int status = disk_open(disk, part->name, &file, error);
    if (!status)
        status = disk_size(file, &bytes, error);
    disk_file_close(file);
    if (status == BANYAN_ENOTFOUND || (!status && bytes != part->bytes))
        return error_set(error, BANYAN_ECORRUPT,
                         "%s in %.60s is %s, and has to have %" PRIu64
                         ": the checkpoint is damaged; put the directory's copy in its place",
                         part->name, disk_path(disk), status ? "missing" : "of another length", part->bytes);
    return status;
}

struct sweep {
    struct disk *disk;
    const struct manifest *keep, *prepared; /* prepared: serial 0: there is none */
};

static int remove_stray(void *context, const char *name, uint64_t bytes, struct error *error)
{
    const struct sweep *sweep = context;
    const bool part = strncmp(name, MANIFEST_PREFIX, sizeof MANIFEST_PREFIX - 1) == 0;
    const bool kept = find_part(sweep->keep, name) || find_part(sweep->prepared, name);
    const bool stale = !strcmp(name, MANIFEST_PREPARED) && !sweep->prepared->serial;
    if (strcmp(name, MANIFEST_NEW) != 0 && !stale && (!part || kept))
        return 0;
    return disk_remove_if_there(sweep->disk, name, error);
}

/* D15: if a process died between the change of a name and its sync, the manifest that is read may have a name
 * that is not safe yet. It is made safe before any file is removed that the manifest before it names. */
static int sweep(struct disk *disk, const struct manifest *keep, const struct manifest *prepared,
                 struct error *error)
{
    struct sweep sweep = {disk, keep, prepared};
    int status = disk_sync_names(disk, error);
    return status ? status : disk_list(disk, remove_stray, &sweep, error);
}

static int check_parts(struct disk *disk, const struct manifest *manifest, struct error *error)
{
    int status = 0;
    for (uint32_t i = 0; !status && i < manifest->part_count; i++)
        status = check_part(disk, &manifest->parts[i], error);
    return status;
}

/* `prepared` NULL: nobody wants it, and it goes. */
static int open_all(struct disk *disk, uint64_t cluster, uint32_t node, uint32_t nodes,
                    struct manifest *manifest, struct manifest *prepared, struct error *error)
{
    const struct manifest none = {0};
    int status = manifest_read(disk, manifest, error);
    if (!status)
        status = check_owner(disk, manifest, cluster, node, nodes, error);
    if (!status)
        status = check_parts(disk, manifest, error);
    if (!status && prepared) {
        status = manifest_read_prepared(disk, manifest, prepared, error);
        status = status == BANYAN_ENOTFOUND ? 0 : status ? status : check_parts(disk, prepared, error);
    }
    return status ? status : sweep(disk, manifest, prepared ? prepared : &none, error);
}

int manifest_open_both(struct disk *disk, uint64_t cluster, uint32_t node, uint32_t nodes,
                       struct manifest *manifest, struct manifest *prepared, struct error *error)
{
    *prepared = (struct manifest){0};
    int status = open_all(disk, cluster, node, nodes, manifest, prepared, error);
    if (status) {
        manifest_free(manifest);
        manifest_free(prepared);
    }
    return status;
}

int manifest_open(struct disk *disk, uint64_t cluster, uint32_t node, uint32_t nodes,
                  struct manifest *manifest, struct error *error)
{
    int status = open_all(disk, cluster, node, nodes, manifest, NULL, error);
    if (status)
        manifest_free(manifest);
    return status;
}

/* ---- replacing ---- */

/* Writes it under another name, and syncs it. */
static int write_new(struct disk *disk, const uint8_t *bytes, size_t length, struct error *error)
{
    struct disk_file *file = NULL;
    int status = disk_remove_if_there(disk, MANIFEST_NEW, error);
    if (!status)
        status = disk_create(disk, MANIFEST_NEW, &file, error);
    if (!status)
        status = disk_write_sync(file, 0, &(struct disk_piece){bytes, length}, 1, error);
    disk_file_close(file);
    return status;
}

/* It has this name when 0 is returned, and whatever had it before has not; D14. */
static int publish(struct disk *disk, const char *name, const struct manifest *old, struct manifest *next,
                   struct error *error)
{
    uint8_t *bytes = NULL;
    size_t length = 0;
    next->serial = old ? old->serial + 1 : 1;
    int status = manifest_encode(next, &bytes, &length, error);
    if (!status)
        status = write_new(disk, bytes, length, error);
    if (!status) /* the names of its parts are safe before its own is */
        status = disk_sync_names(disk, error);
    if (!status)
        status = disk_rename(disk, MANIFEST_NEW, name, error);
    if (!status)
        status = disk_sync_names(disk, error);
    free(bytes);
    return status;
}

/* Those that `keep` does not name are needed no more, and the next opening would remove them too: so it is no
 * failure. */
static void remove_parts(struct disk *disk, const struct manifest *of, const struct manifest *keep)
{
    for (uint32_t i = 0; of && i < of->part_count; i++) {
        struct error error = {0};
        const char *name = of->parts[i].name;
        if (!find_part(keep, name) && disk_remove_if_there(disk, name, &error))
            log_warning("%s; it is removed when the directory is opened again", error.text);
    }
}

int manifest_replace(struct disk *disk, const struct manifest *old, struct manifest *next,
                     struct error *error)
{
    int status = publish(disk, MANIFEST_NAME, old, next, error);
    if (!status)
        remove_parts(disk, old, next);
    return status;
}

int manifest_prepare(struct disk *disk, const struct manifest *old, struct manifest *next,
                     struct error *error)
{
    return publish(disk, MANIFEST_PREPARED, old, next, error);
}

int manifest_forget(struct disk *disk, const struct manifest *now, const struct manifest *prepared,
                    struct error *error)
{
    /* The name first, and for good: a prepared manifest whose parts are missing would be damage. */
    int status = disk_remove_if_there(disk, MANIFEST_PREPARED, error);
    if (!status)
        status = disk_sync_names(disk, error);
    if (!status)
        remove_parts(disk, prepared, now);
    return status;
}
